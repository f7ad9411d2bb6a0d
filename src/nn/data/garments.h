/*
 * garments.h - the ten garments, and the random numbers that vary them.
 */
#ifndef SONDE_NN_DATA_GARMENTS_H
#define SONDE_NN_DATA_GARMENTS_H

#include "nn/data/canvas.h"

/* By label. */
extern const char *const sonde__data_garment_names[SONDE_NN_SYNTH_CLASSES];

/* The random numbers of one sample, in order. */
typedef struct sonde__data_dice {
    uint64_t seed, stream, next;
    uint32_t block[4];
} sonde__data_dice;

float sonde__data_dice_between(sonde__data_dice *dice, float low, float high);
bool sonde__data_dice_chance(sonde__data_dice *dice, float probability);

/* Draws a garment of this class on a cleared canvas. */
void sonde__data_garment_draw(sonde__data_canvas *canvas, sonde__data_dice *dice,
                              int label, float brightness);

#endif

/*
 * garments.h - the ten outlines, and the dice they are cut with.
 */
#ifndef SONDE_NN_DATA_GARMENTS_H
#define SONDE_NN_DATA_GARMENTS_H

#include "nn/data/canvas.h"

/* By label. */
extern const char *const sonde__garment_names[SONDE_NN_SYNTH_CLASSES];

/* Random numbers of one sample, one after the other. */
typedef struct sonde__dice {
    uint64_t seed, stream, next;
    uint32_t block[4];
} sonde__dice;

float sonde__dice_between(sonde__dice *dice, float low, float high);
bool sonde__dice_chance(sonde__dice *dice, float probability);

/* Draws a garment of this class on a cleared canvas. */
void sonde__garment_draw(sonde__canvas *canvas, sonde__dice *dice, int label,
                         float brightness);

#endif

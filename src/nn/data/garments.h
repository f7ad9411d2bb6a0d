/*
 * garments.h - the ten garments: antialiased outlines on a small grey picture.
 */
#ifndef SONDE_NN_DATA_GARMENTS_H
#define SONDE_NN_DATA_GARMENTS_H

#include <sonde/nn/dataset.h>

enum { SONDE__SIDE = SONDE_NN_SYNTH_SIDE, SONDE__PIXELS = SONDE__SIDE * SONDE__SIDE };

/* By label. */
extern const char *const sonde__data_garment_names[SONDE_NN_SYNTH_CLASSES];

/* The random numbers of one sample, in order. */
typedef struct sonde__data_dice {
    uint64_t seed, stream, next;
    uint32_t block[4];
} sonde__data_dice;

float sonde__data_dice_between(sonde__data_dice *dice, float low, float high);

typedef struct sonde__data_picture {
    float light[SONDE__PIXELS]; /* 0 to 1 */
    float drawn[SONDE__PIXELS]; /* covered part of each pixel */
    float cloth[SONDE__PIXELS]; /* texture: a factor of the brightness */
} sonde__data_picture;

/* Draws a garment of this class: its cut, pose and parts are the dice's. */
void sonde__data_garment_draw(sonde__data_picture *picture, sonde__data_dice *dice,
                              int label, float brightness);

#endif

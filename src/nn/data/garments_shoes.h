/*
 * garments_shoes.h - the classes that are no clothes, on a cleared canvas.
 */
#ifndef SONDE_NN_DATA_GARMENTS_SHOES_H
#define SONDE_NN_DATA_GARMENTS_SHOES_H

#include "nn/data/garments.h"

void sonde__draw_sandal(sonde__canvas *canvas, sonde__dice *dice, float brightness);
void sonde__draw_sneaker(sonde__canvas *canvas, sonde__dice *dice, float brightness);
void sonde__draw_bag(sonde__canvas *canvas, sonde__dice *dice, float brightness);
void sonde__draw_boot(sonde__canvas *canvas, sonde__dice *dice, float brightness);

#endif

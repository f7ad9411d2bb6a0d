/*
 * garments_shoes.h - the classes that are no clothes, on a cleared canvas.
 */
#ifndef SONDE_NN_DATA_GARMENTS_SHOES_H
#define SONDE_NN_DATA_GARMENTS_SHOES_H

#include "nn/data/garments.h"

void sonde__data_draw_sandal(sonde__data_canvas *canvas, sonde__data_dice *dice,
                             float brightness);
void sonde__data_draw_sneaker(sonde__data_canvas *canvas, sonde__data_dice *dice,
                              float brightness);
void sonde__data_draw_bag(sonde__data_canvas *canvas, sonde__data_dice *dice,
                          float brightness);
void sonde__data_draw_boot(sonde__data_canvas *canvas, sonde__data_dice *dice,
                           float brightness);

#endif

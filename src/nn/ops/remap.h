/*
 * remap.h - the maps of remap.c, as attrs.choice of the op.
 */
#ifndef SONDE_NN_OPS_REMAP_H
#define SONDE_NN_OPS_REMAP_H

#include "nn/ops/ops.h"

typedef enum sonde__op_map {
    SONDE__REMAP_CONSTANT = 0, /* pads */
    SONDE__REMAP_REFLECT = 1,
    SONDE__REMAP_REPLICATE = 2,
    SONDE__REMAP_CIRCULAR = 3,
    SONDE__REMAP_NEAREST = 4, /* interpolation */
    SONDE__REMAP_NEAREST_EXACT = 5,
    SONDE__REMAP_LINEAR = 6,
    SONDE__REMAP_LINEAR_CORNERS = 7,
    SONDE__REMAP_CUBIC = 8,
    SONDE__REMAP_CUBIC_CORNERS = 9,
    SONDE__REMAP_FLIP = 10,
    SONDE__REMAP_ROLL = 11,
    SONDE__REMAP_REPEAT = 12,      /* all, so many times */
    SONDE__REMAP_REPEAT_EACH = 13, /* each place so many times */
    SONDE__REMAP_WINDOWS = 14      /* windows side by side, each of kernel[0] places */
} sonde__op_map;

/* The place of x, of `extent` places, that place i of y copies, where the map copies; -1:
 * none. */
int64_t sonde__op_remap_place(const sonde__op_attrs *attrs, int64_t extent, int64_t i);

#endif

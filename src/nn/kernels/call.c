/*
 * call.c - sizes and places of layouts.
 */
#include "nn/kernels/call.h"

#include <assert.h>

static int64_t round_up(int64_t n, int64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

int64_t sonde__op_shape_count(const sonde__op_shape *shape)
{
    return sonde__op_dims_product(shape, 0, shape->rank);
}

/* A scalar is one sample of one element. */
static int64_t samples(const sonde__op_shape *shape)
{
    return shape->rank == 0 ? 1 : shape->dim[0];
}

static int64_t inner_count(const sonde__op_shape *shape)
{
    return sonde__op_dims_product(shape, 1, shape->rank);
}

int64_t sonde__op_layout_count(const sonde__op_shape *shape, sonde__op_layout layout)
{
    if (layout == SONDE__LANES) {
        return round_up(samples(shape), SONDE__LANE_WIDTH) * inner_count(shape);
    }
    if (layout == SONDE__PANELS) {
        return samples(shape) * round_up(inner_count(shape), SONDE__PANEL_WIDTH);
    }
    assert(layout == SONDE__PLAIN);
    return sonde__op_shape_count(shape);
}

int64_t sonde__op_layout_at(const sonde__op_shape *shape, sonde__op_layout layout,
                            int64_t n, int64_t k)
{
    if (layout == SONDE__LANES) { /* [n / 16][k][n % 16] */
        return (n / SONDE__LANE_WIDTH * inner_count(shape) + k) * SONDE__LANE_WIDTH +
               n % SONDE__LANE_WIDTH;
    }
    if (layout == SONDE__PANELS) { /* [k / 32][n][k % 32] */
        return (k / SONDE__PANEL_WIDTH * samples(shape) + n) * SONDE__PANEL_WIDTH +
               k % SONDE__PANEL_WIDTH;
    }
    assert(layout == SONDE__PLAIN);
    return n * inner_count(shape) + k;
}

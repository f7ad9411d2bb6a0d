/*
 * reorder_tile.h - 16 x 16 numbers of a matrix (N, K) from one layout into another.
 *
 * For the kernel files that are compiled once per instruction set. A tile is `samples` x
 * `columns` numbers, both at most 16; the rest of the destination's tile is written as
 * zeros where its layout has room for it (lanes, columns of a panel) and not touched
 * where it has none. Nothing past them is read.
 */
#ifndef SONDE_NN_KERNELS_REORDER_TILE_H
#define SONDE_NN_KERNELS_REORDER_TILE_H

#include "base/macros.h"
#include "nn/kernels/call.h"
#include "nn/kernels/vec.h"

/* A matrix in a layout. */
typedef struct layout_view {
    float *data;
    int64_t samples, columns;
    sonde__op_layout layout;
} layout_view;

/* Where the tile of samples n ... and columns k ... (multiples of 16) starts, and from
 * row to row of it: a row is a sample, in LANES a column. */
static inline float *layout_tile(const layout_view *m, int64_t n, int64_t k,
                                 int64_t *stride)
{
    if (m->layout == SONDE__LANES) {
        *stride = SONDE__LANE_WIDTH;
        return m->data + n * m->columns + k * SONDE__LANE_WIDTH;
    }
    if (m->layout == SONDE__PANELS) {
        *stride = SONDE__PANEL_WIDTH;
        return m->data + (k / SONDE__PANEL_WIDTH * m->samples + n) * SONDE__PANEL_WIDTH +
               k % SONDE__PANEL_WIDTH;
    }
    *stride = m->columns;
    return m->data + n * m->columns + k;
}

/* rows x columns copied, zeros up to width after each row and in rows up to height. */
static inline void copy_rows(const float *source, int64_t from_stride, int rows,
                             int columns, float *target, int64_t to_stride, int height,
                             int width)
{
    if (rows == 16 && columns == 16 && width == 16) {
        VEC_EACH (i, 16) {
            v16_store(target + i * to_stride, v16_load(source + i * from_stride));
        }
        return;
    }
    for (int i = 0; i < rows; i++) {
        const v16 row = v16_load_n(source + i * from_stride, columns);

        v16_store_n(target + i * to_stride, row, width);
    }
    for (int i = rows; i < height; i++) {
        v16_store_n(target + i * to_stride, v16_zero(), width);
    }
}

/* The same, transposed: height and width are those of the destination. */
static inline void transpose_rows(const float *source, int64_t from_stride, int rows,
                                  int columns, float *target, int64_t to_stride,
                                  int height, int width)
{
    float part[16][16], turned[16][16];

    if (rows == 16 && columns == 16 && height == 16 && width == 16) {
        vec_transpose16(source, from_stride, target, to_stride);
        return;
    }
    copy_rows(source, from_stride, rows, columns, part[0], 16, 16, 16);
    vec_transpose16(part[0], 16, turned[0], 16);
    copy_rows(turned[0], 16, height, 16, target, to_stride, height, width);
}

/* The tile at sample n and column k, multiples of 16; k may be past the last column, of a
 * panel that is only half full. */
static inline void reorder_tile(const layout_view *source, const layout_view *target,
                                int64_t n, int64_t k)
{
    const int64_t left = source->columns - k;
    const int samples = (int)SONDE_MIN(source->samples - n, 16);
    const int columns = (int)(left < 0 ? 0 : SONDE_MIN(left, 16));
    const bool from_lanes = source->layout == SONDE__LANES;
    int64_t from_stride, to_stride;
    const float *const a = layout_tile(source, n, k, &from_stride);
    float *const b = layout_tile(target, n, k, &to_stride);
    const int rows = from_lanes ? columns : samples;
    const int row = from_lanes ? samples : columns;

    if (target->layout == SONDE__LANES) { /* a row is a column, 16 wide */
        (from_lanes ? copy_rows : transpose_rows)(a, from_stride, rows, row, b, to_stride,
                                                  columns, 16);
    } else {
        (from_lanes ? transpose_rows
                    : copy_rows)(a, from_stride, rows, row, b, to_stride, samples,
                                 target->layout == SONDE__PANELS ? 16 : columns);
    }
}

#endif

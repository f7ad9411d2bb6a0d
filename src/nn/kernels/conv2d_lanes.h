/*
 * conv2d_lanes.h - the geometry of a convolution, and the micro-kernel that its forward
 * pass and its input gradient share.
 *
 * Both are, for every output pixel, a sum over taps of weight times input, so one loop
 * does them: a *run* is a row of output pixels that share a list of taps. Inside the
 * image that is all of them at once; along a padded border every pixel has its own list,
 * of the taps that meet the image. What a pixel sums, and in which order, never depends
 * on the run or on the tile that it fell into, so neither threads nor fusion change a
 * bit.
 */
#ifndef SONDE_NN_KERNELS_CONV2D_LANES_H
#define SONDE_NN_KERNELS_CONV2D_LANES_H

#include "base/macros.h"
#include "nn/kernels/lanes.h"

/* --- geometry ----------------------------------------------------------------------- */

typedef struct conv2d_geometry {
    int64_t samples, blocks, groups;
    int64_t c, h, w;   /* input; channels of one group */
    int64_t o, oh, ow; /* output; channels of one group */
    int64_t kernel[2], stride[2], padding[2], dilation[2];
    int64_t taps; /* of one output: c * kh * kw */
} conv2d_geometry;

/* x (N, C, H, W), w (O, C / groups, kh, kw); attrs: stride, padding, dilation, groups. */
static inline conv2d_geometry conv2d_geometry_of(const sonde__op_shape *x,
                                                 const sonde__op_shape *w,
                                                 const sonde__op_attrs *attrs)
{
    conv2d_geometry g = {.samples = x->dim[0],
                         .blocks = lanes_blocks(x->dim[0]),
                         .groups = attrs->window.groups,
                         .c = w->dim[1],
                         .h = x->dim[2],
                         .w = x->dim[3],
                         .o = w->dim[0] / attrs->window.groups,
                         .taps = w->dim[1] * w->dim[2] * w->dim[3]};

    for (int d = 0; d < 2; d++) {
        g.kernel[d] = w->dim[2 + d];
        g.stride[d] = attrs->window.stride[d];
        g.padding[d] = attrs->window.padding[d];
        g.dilation[d] = attrs->window.dilation[d];
    }
    g.oh =
        (g.h + 2 * g.padding[0] - g.dilation[0] * (g.kernel[0] - 1) - 1) / g.stride[0] +
        1;
    g.ow =
        (g.w + 2 * g.padding[1] - g.dilation[1] * (g.kernel[1] - 1) - 1) / g.stride[1] +
        1;
    return g;
}

static inline double conv2d_operations(const conv2d_geometry *g)
{
    return 2.0 * LANES * (double)(g->blocks * g->oh * g->ow) *
           (double)(g->groups * g->o * g->taps);
}

static inline int64_t conv2d_ceil_div(int64_t a, int64_t b) /* b > 0 */
{
    return a > 0 ? (a + b - 1) / b : -(-a / b);
}

/* Taps *first ... *last - 1 of output coordinate i along dimension d meet the image. */
static inline void conv2d_tap_range(const conv2d_geometry *g, int d, int64_t i,
                                    int64_t *first, int64_t *last)
{
    const int64_t extent = d == 0 ? g->h : g->w;
    const int64_t start = i * g->stride[d] - g->padding[d];

    *first = SONDE_MAX(conv2d_ceil_div(-start, g->dilation[d]), (int64_t)0);
    *last = SONDE_MIN(conv2d_ceil_div(extent - start, g->dilation[d]), g->kernel[d]);
    *last = SONDE_MAX(*first, *last);
}

/* Outputs first ... last - 1 along a dimension, which all meet the image with the same
 * taps, begin ... end - 1. */
typedef struct conv2d_band {
    int64_t first, last, begin, end;
} conv2d_band;

/* The longest band along dimension d that begins at output `first` and ends before limit.
 */
static inline conv2d_band conv2d_band_at(const conv2d_geometry *g, int d, int64_t first,
                                         int64_t limit)
{
    conv2d_band band = {.first = first, .last = first + 1};
    int64_t begin, end;

    conv2d_tap_range(g, d, first, &band.begin, &band.end);
    for (; band.last < limit; band.last++) {
        conv2d_tap_range(g, d, band.last, &begin, &end);
        if (begin != band.begin || end != band.end) {
            break;
        }
    }
    return band;
}

static inline bool conv2d_is_padded(const conv2d_geometry *g)
{
    return g->padding[0] > 0 || g->padding[1] > 0;
}

/* Channels from which a convolution is worth the kernels of many channels even where one
 * of few could go on into a max-pool. */
static inline bool conv2d_has_many_channels(const sonde__op_shape *w,
                                            const sonde__op_attrs *attrs)
{
    return attrs->window.groups == 1 && w->dim[0] >= 16 && w->dim[1] >= 16;
}

/* --- runs --------------------------------------------------------------------------- */

/* One tap: where its input lies, from the pixel's place, and its weight, in floats. */
typedef struct conv2d_tap {
    int64_t x, w;
} conv2d_tap;

/* Where pixels go: pixel i of channel o of a block at o * plane + i * LANES. */
typedef struct conv2d_target {
    float *y, *relu; /* relu: y < 0 ? 0 : y. NULL: not wanted */
    int64_t plane;
} conv2d_target;

static inline conv2d_target target_at(conv2d_target target, int64_t offset)
{
    target.y = target.y == NULL ? NULL : target.y + offset;
    target.relu = target.relu == NULL ? NULL : target.relu + offset;
    return target;
}

/*
 * Pixels i = 0 ... count - 1 of `channels` output channels:
 *
 *   y[o plane + to(i) + lane] = bias[o] + sum over taps t, in order, of
 *       weight[o weight_stride + t.w] * x[from(i) + t.x + lane]
 *
 * from(i) and to(i) go in steps of x_step and y_step, and by x_skip and y_skip more
 * after every `columns` pixels, beginning at column `column`. All lengths are in floats.
 */
typedef struct conv2d_run {
    const float *x;
    const float *weight;
    const float *bias; /* NULL: 0 */
    const conv2d_tap *taps;
    conv2d_target to;
    int64_t weight_stride, tap_count, channels;
    int64_t y_step, y_skip;
    int64_t count, column, columns, x_step, x_skip;
} conv2d_run;

/* Does a run. (conv2d_kernels.c) */
void sonde__kernel_conv2d_run_generic(const conv2d_run *run);
void sonde__kernel_conv2d_run_avx2(const conv2d_run *run);
void sonde__kernel_conv2d_run_avx512(const conv2d_run *run);

#endif

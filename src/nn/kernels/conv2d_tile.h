/*
 * conv2d_tile.h - the micro-kernel of conv2d_lanes.h's runs.
 *
 * A tile keeps (output channels) x (pixels) accumulators in registers, 24 of the 32 that
 * AVX-512 has, and goes over the taps: each tap costs one load a pixel and one broadcast
 * a channel for channels x pixels multiply-adds. Pixels are counted through from row to
 * row, so that no tile ends with a row. Weights are read as they lie, (O, C, kh, kw).
 */
#ifndef SONDE_NN_KERNELS_CONV2D_TILE_H
#define SONDE_NN_KERNELS_CONV2D_TILE_H

#include "nn/kernels/conv2d_lanes.h"

/* --- tiles -------------------------------------------------------------------------- */

/* X(channels, pixels), falling; the last has one channel. */
#if VF_WIDTH == 16 /* 32 registers */
#define CONV2D_TILES(X) X(12, 2) X(8, 3) X(6, 4) X(5, 5) X(4, 6) X(3, 7) X(2, 8) X(1, 8)
#else /* 16 */
#define CONV2D_TILES(X) X(6, 2) X(5, 2) X(4, 3) X(3, 3) X(2, 5) X(1, 8)
#endif
enum { MAX_TILE = 25, MAX_TILE_PIXELS = 8 };

VEC_INLINE void tile_start(vf *acc, const float *bias, const int channels,
                           const int pixels)
{
    VEC_UNROLL
    for (int i = 0; i < channels * pixels; i++) {
        acc[i] = vf_set1(bias == NULL ? 0.0F : bias[i / pixels]);
    }
}

/* A new base for the weights of four channels, which can all be addressed from it. GCC
 * would make an address for every channel ahead of the loop, and has no registers for
 * them. */
VEC_INLINE const float *tile_base(const float *weight)
{
#if !defined(__clang__)
    __asm__("" : "+r"(weight));
#endif
    return weight;
}

/* acc[o * pixels + p] += all taps */
VEC_INLINE void tile_sum(vf *acc, const conv2d_run *run, const float *weight,
                         const float *const *x, const int channels, const int pixels)
{
    const conv2d_tap *tap = run->taps, *const end = tap + run->tap_count;
    const int64_t stride = run->weight_stride;

    for (; tap < end; tap++) {
        const float *w = tile_base(weight + tap->w);
        vf v[MAX_TILE_PIXELS];

        VEC_UNROLL
        for (int p = 0; p < pixels; p++) {
            v[p] = vf_load(x[p] + tap->x);
        }
        VEC_UNROLL
        for (int o = 0; o < channels; o++) {
            if (o > 0 && o % 4 == 0) {
                w = tile_base(w + 4 * stride);
            }
            const vf b = vf_set1(w[o % 4 * stride]);

            VEC_UNROLL
            for (int p = 0; p < pixels; p++) {
                acc[o * pixels + p] = vf_fma(b, v[p], acc[o * pixels + p]);
            }
        }
    }
}

/* to: where pixels lie, from y of the tile's first channel */
VEC_INLINE void tile_store(const vf *acc, const conv2d_run *run, int64_t o,
                           const int64_t *to, const int channels, const int pixels)
{
    float *const y = run->y, *const relu = run->relu;
    int64_t at = o * run->y_plane;

    VEC_UNROLL
    for (int k = 0; k < channels; k++) {
        VEC_UNROLL
        for (int p = 0; p < pixels; p++) {
            if (y != NULL) {
                vf_store(y + at + to[p], acc[k * pixels + p]);
            }
            if (relu != NULL) {
                vf_store(relu + at + to[p], vf_relu(acc[k * pixels + p]));
            }
        }
        at += run->y_plane;
    }
}

/* How far a run has come. */
typedef struct run_place {
    const float *x;
    int64_t to, column;
} run_place;

/* A tile's channels, beginning at channel o, of the next pixels. */
VEC_INLINE void run_tile(const conv2d_run *run, int64_t o, run_place *place,
                         const int channels, const int pixels)
{
    const float *x[MAX_TILE_PIXELS];
    int64_t to[MAX_TILE_PIXELS];
    vf acc[MAX_TILE];

    VEC_UNROLL
    for (int p = 0; p < pixels; p++) {
        x[p] = place->x;
        to[p] = place->to;
        place->x += run->x_step;
        place->to += run->y_step;
        if (++place->column == run->columns) {
            place->column = 0;
            place->x += run->x_skip;
            place->to += run->y_skip;
        }
    }
    tile_start(acc, run->bias == NULL ? NULL : run->bias + o, channels, pixels);
    tile_sum(acc, run, run->weight + o * run->weight_stride, x, channels, pixels);
    tile_store(acc, run, o, to, channels, pixels);
}

VEC_INLINE void run_channels(const conv2d_run *run, int64_t o, const int channels,
                             const int pixels)
{
    run_place place = {run->x, 0, run->column};
    int64_t i = 0;

    for (; i + pixels <= run->count; i += pixels) {
        run_tile(run, o, &place, channels, pixels);
    }
    for (; i < run->count; i++) {
        run_tile(run, o, &place, channels, 1);
    }
}

#define DEFINE_TILE(channels, pixels)                                                    \
    static void run_##channels(const conv2d_run *run, int64_t o)                         \
    {                                                                                    \
        run_channels(run, o, channels, pixels);                                          \
    }
#define LIST_TILE(channels, pixels) {channels, run_##channels},

CONV2D_TILES(DEFINE_TILE)

typedef struct conv2d_tile {
    int64_t channels;
    void (*run)(const conv2d_run *run, int64_t o);
} conv2d_tile;

static const conv2d_tile conv2d_tiles[] = {CONV2D_TILES(LIST_TILE)};

/* The largest tile that leaves none of so many channels, or a tile's worth. */
static const conv2d_tile *choose_tile(int64_t channels)
{
    const conv2d_tile *tile = conv2d_tiles;

    while (tile->channels > channels ||
           (tile->channels != channels && channels - tile->channels < 3 &&
            tile->channels > 1)) {
        tile++;
    }
    return tile;
}

void ISA(sonde__kernel_conv2d_run)(const conv2d_run *run)
{
    for (int64_t o = 0; o < run->channels;) {
        const conv2d_tile *const tile = choose_tile(run->channels - o);

        for (int lane = 0; lane < LANES; lane += VF_WIDTH) {
            conv2d_run part = *run;

            part.x += lane;
            part.y = run->y == NULL ? NULL : run->y + lane;
            part.relu = run->relu == NULL ? NULL : run->relu + lane;
            tile->run(&part, o);
        }
        o += tile->channels;
    }
}

#endif

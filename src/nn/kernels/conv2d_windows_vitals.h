/*
 * conv2d_windows_vitals.h - vital signs of the convolution and of its ReLU, which
 * conv2d_relu_pool does not keep; part of conv2d_windows.h.
 *
 * A row of windows is convolved for a few channels into a buffer in cache, measured
 * there, and copied to where it is wanted. The signs of a row and its channels are kept:
 *
 *     signs   [blocks][rows of windows][groups][chunks of channels]
 *
 * and merged in this order when all parts are done.
 */
#ifndef SONDE_NN_KERNELS_CONV2D_WINDOWS_VITALS_H
#define SONDE_NN_KERNELS_CONV2D_WINDOWS_VITALS_H

#include "base/macros.h"
#include "base/memory.h"

enum { SEEN_CHANNELS = 6 }; /* at most; what a tile has with AVX-512 */

static int64_t seen_chunks(const conv2d_geometry *g)
{
    return (g->o + SEEN_CHANNELS - 1) / SEEN_CHANNELS;
}

/* Bytes of the signs of a whole call. */
static size_t seen_signs_size(const conv2d_geometry *g)
{
    const int64_t count = g->blocks * (g->oh / 2) * g->groups * seen_chunks(g);

    return ((size_t)count * sizeof(relu_signs) + SONDE__ALIGN - 1) / SONDE__ALIGN *
           SONDE__ALIGN;
}

/* Bytes of a part's buffer. */
static size_t seen_rows_size(const conv2d_geometry *g)
{
    return (size_t)(SEEN_CHANNELS * 2 * g->ow) * LANES * sizeof(float);
}

/* All pixels lie in windows, and a pixel of the image has all its taps. */
static bool seen_accepts(const conv2d_geometry *g)
{
    return !conv2d_is_padded(g) && g->oh % 2 == 0 && g->ow % 2 == 0;
}

/* Two rows of pixels of some channels to where they are wanted. */
static void seen_copy(const float *rows, int64_t channels, int64_t columns,
                      const conv2d_target *to)
{
    const int64_t count = 2 * columns * LANES;

    for (int64_t c = 0; c < channels; c++) {
        const float *const from = rows + c * count;

        if (to->y != NULL) {
            memcpy(to->y + c * to->plane, from, (size_t)count * sizeof *from);
        }
        for (int64_t i = 0; to->relu != NULL && i < count; i += VF_WIDTH) {
            vf_store(to->relu + c * to->plane + i, vf_relu(vf_load(from + i)));
        }
    }
}

/* run_window_row, with the vital signs of its pixels. to: where the first pixel goes. */
static void run_seen_row(const conv2d_geometry *g, const window_row *row,
                         const conv2d_target *to, float *rows, int valid,
                         relu_signs *signs)
{
    const int64_t chunks = seen_chunks(g), most = (g->o + chunks - 1) / chunks;

    for (int64_t i = 0; i < chunks; i++) {
        const int64_t o = i * most, channels = SONDE_MIN(most, g->o - o);
        const conv2d_target at = target_at(*to, o * to->plane);
        window_row some = *row;

        some.run.channels = channels;
        some.run.weight += o * row->run.weight_stride;
        some.run.bias = row->run.bias == NULL ? NULL : row->run.bias + o;
        some.run.y = rows;
        some.run.relu = NULL;
        some.run.y_plane = 2 * g->ow * LANES;
        some.pooled = row->pooled == NULL ? NULL : row->pooled + o * row->plane;
        some.index = row->index == NULL ? NULL : row->index + o * row->plane;
        run_window_row(&some);
        relu_signs_init(&signs[i]);
        relu_vitals_add(rows, channels * 2 * g->ow, valid, &signs[i]);
        seen_copy(rows, channels, g->ow, &at);
    }
}

static void merge_seen(const conv2d_geometry *g, const relu_signs *signs,
                       sonde_vitals *const out[2])
{
    const int64_t count = g->blocks * (g->oh / 2) * g->groups * seen_chunks(g);

    for (int i = 0; i < 2; i++) {
        if (out[i] != NULL) {
            sonde_vitals_init(out[i]);
        }
        for (int64_t k = 0; out[i] != NULL && k < count; k++) {
            sonde_vitals_merge(out[i], i == 0 ? &signs[k].pre : &signs[k].relu);
        }
    }
}

#endif

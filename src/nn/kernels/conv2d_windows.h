/*
 * conv2d_windows.h - convolution, ReLU and 2 x 2 max-pool in one; the second half of
 * conv2d_kernels.c, which includes it.
 *
 * Without padding a tile is (output channels) x (the four pixels of a window), and
 * windows are taken from registers. With padding two rows of pixels are convolved and
 * pooled while they are in cache.
 */
#ifndef SONDE_NN_KERNELS_CONV2D_WINDOWS_H
#define SONDE_NN_KERNELS_CONV2D_WINDOWS_H

/* Where windows go. NULL: not wanted. */
typedef struct windows_target {
    float *pooled;
    uint8_t *index;
    int64_t plane; /* from channel to channel */
} windows_target;

static windows_target windows_at(windows_target target, int64_t offset)
{
    target.pooled = target.pooled == NULL ? NULL : target.pooled + offset;
    target.index = target.index == NULL ? NULL : target.index + offset;
    return target;
}

/* A row of 2 x 2 windows: window i at i * LANES of pooled and index. */
typedef struct window_row {
    conv2d_run run;       /* of the upper row's first pixel; y and relu as in a run */
    int64_t x_row, y_row; /* from a window's upper to its lower pixels */
    int64_t count;        /* windows */
    windows_target to;
} window_row;

/* v: the pixels of a window before ReLU, row-major. The maximum is taken first: ReLU
 * keeps the order, and where nothing is positive all four are equal (0 or -0) and the
 * first one wins. */
VEC_INLINE void store_window(const window_row *row, const vf *v, int64_t offset)
{
    const vm upper = vm_beats(v[1], v[0]), lower = vm_beats(v[3], v[2]);
    const vf u = vf_pick(upper, v[1], v[0]), l = vf_pick(lower, v[3], v[2]);
    const vm down = vm_beats(l, u);
    const vf top = vf_pick(down, l, u);
    const vm positive = vm_positive(top);
    const vi one = vi_set1(1), two = vi_set1(2), three = vi_set1(3), zero = {0};

    if (row->to.pooled != NULL) {
        vf_store(row->to.pooled + offset, vf_pick(positive, top, vf_relu(v[0])));
    }
    if (row->to.index != NULL) {
        const vi i = vi_pick(down, vi_pick(lower, three, two), vi_pick(upper, one, zero));

        vi_store_u8(row->to.index + offset, vi_pick(positive, i, zero));
    }
}

#if VF_WIDTH == 16
/* The same where none of v is NaN: integer maxima, which order floats that are not both
 * negative, run beside the multiply-adds where float comparisons do not. The first pixel
 * is clamped to 0; that clamps the maximum, and keeps negative ones from winning. The
 * last maximum is max_ps, which gives v[0] where that is -0 and nothing is greater. */
VEC_INLINE void store_window_ordered(const window_row *row, const vf *v, int64_t offset)
{
    const __m512i v0 = _mm512_max_epi32((__m512i)v[0], _mm512_setzero_si512());
    const __m512i v1 = (__m512i)v[1], v2 = (__m512i)v[2], v3 = (__m512i)v[3];
    const __m512i u = _mm512_max_epi32(v0, v1), l = _mm512_max_epi32(v2, v3);

    if (row->to.pooled != NULL) {
        vf_store(row->to.pooled + offset,
                 (vf)_mm512_max_ps((__m512)_mm512_max_epi32(u, l), (__m512)v[0]));
    }
    if (row->to.index != NULL) {
        const __m128i two = _mm_set1_epi8(2), three = _mm_set1_epi8(3);
        const __m128i i = _mm_maskz_set1_epi8(_mm512_cmpgt_epi32_mask(v1, v0), 1);
        const __m128i j = _mm_mask_mov_epi8(two, _mm512_cmpgt_epi32_mask(v3, v2), three);

        _mm_storeu_si128((__m128i *)(void *)(row->to.index + offset),
                         _mm_mask_mov_epi8(i, _mm512_cmpgt_epi32_mask(l, u), j));
    }
}

/* Whether NaN may be among count vectors: their sum is NaN then, and for Inf - Inf too.
 */
VEC_INLINE bool maybe_nan(const vf *v, const int count)
{
    vf sum[2] = {v[0], v[1]};

    VEC_UNROLL
    for (int i = 2; i < count; i++) {
        sum[i % 2] += v[i];
    }
    sum[0] += sum[1];
    return _mm512_cmp_ps_mask((__m512)sum[0], (__m512)sum[0], _CMP_UNORD_Q) != 0;
}
#endif

VEC_INLINE void store_windows(const window_row *row, const vf *acc, int64_t offset,
                              const int channels)
{
#if VF_WIDTH == 16
    if (__builtin_expect(!maybe_nan(acc, 4 * channels), 1)) {
        VEC_EACH (k, channels) {
            store_window_ordered(row, acc + 4 * k, offset + k * row->to.plane);
        }
        return;
    }
#endif
    VEC_EACH (k, channels) {
        store_window(row, acc + 4 * k, offset + k * row->to.plane);
    }
}

/* The pixels themselves, and their ReLU, if they are wanted. */
VEC_INLINE void store_pixels(const window_row *row, const vf *v, int64_t offset)
{
    VEC_EACH (p, 4) {
        const int64_t target = offset + p / 2 * row->y_row + p % 2 * LANES;

        if (row->run.to.y != NULL) {
            vf_store(row->run.to.y + target, v[p]);
        }
        if (row->run.to.relu != NULL) {
            vf_store(row->run.to.relu + target, vf_relu(v[p]));
        }
    }
}

VEC_INLINE void run_windows(const window_row *row, int64_t o, const int channels)
{
    const conv2d_run *const run = &row->run;
    const float *const weight = run->weight + o * run->weight_stride;
    const float *const bias = run->bias == NULL ? NULL : run->bias + o;
    const float *x[4] = {run->x, run->x + run->x_step, run->x + row->x_row,
                         run->x + row->x_row + run->x_step};

    for (int64_t i = 0; i < row->count; i++) {
        vf acc[MAX_TILE];

        tile_start(acc, bias, channels, 4);
        tile_sum(acc, run, weight, x, channels, 4);
        VEC_EACH (p, 4) {
            x[p] += 2 * run->x_step;
        }
        store_windows(row, acc, o * row->to.plane + i * LANES, channels);
        if (run->to.y == NULL && run->to.relu == NULL) {
            continue;
        }
        VEC_EACH (k, channels) {
            store_pixels(row, acc + 4 * k, (o + k) * run->to.plane + 2 * i * LANES);
        }
    }
}

#define DEFINE_WINDOWS(name, channels)                                                   \
    static void name##_##channels(const window_row *row, int64_t o)                      \
    {                                                                                    \
        run_windows(row, o, channels);                                                   \
    }
#define LIST_WINDOWS(name, channels) name##_##channels,
#if VF_WIDTH == 16
#define WINDOW_TILES(X) VEC_UP_TO_6(X, run_windows)
#else
#define WINDOW_TILES(X) VEC_UP_TO_2(X, run_windows)
#endif

WINDOW_TILES(DEFINE_WINDOWS)

/* By channels - 1. */
static void (*const window_tiles[])(const window_row *row,
                                    int64_t o) = {WINDOW_TILES(LIST_WINDOWS)};

enum { MAX_WINDOW_TILE = SONDE_COUNT_OF(window_tiles) };

static void run_window_row(const window_row *row)
{
    for (int64_t o = 0; o < row->run.channels;) {
        const int64_t left = row->run.channels - o;
        /* as many tiles as need be, of even size */
        const int64_t tiles = (left + MAX_WINDOW_TILE - 1) / MAX_WINDOW_TILE;
        const int64_t channels = (left + tiles - 1) / tiles;

        for (int lane = 0; lane < LANES; lane += VF_WIDTH) {
            window_row part = *row;

            part.run.x += lane;
            part.run.to = target_at(row->run.to, lane);
            part.to = windows_at(row->to, lane);
            window_tiles[channels - 1](&part, o);
        }
        o += channels;
    }
}

#include "base/memory.h"
#include "base/macros.h"

/* --- vital signs -------------------------------------------------------------------- */

/*
 * Vital signs of the convolution and of its ReLU, which conv2d_relu_pool does not keep.
 *
 * A row of windows is convolved for a few channels into a buffer in cache, measured
 * there, and copied to where it is wanted. The signs of a row and its channels are kept:
 *
 *     signs   [blocks][rows of windows][groups][chunks of channels]
 *
 * and merged in this order when all parts are done.
 */

enum { SEEN_CHANNELS = 6 }; /* at most; what a tile has with AVX-512 */

static int64_t seen_chunks(const conv2d_geometry *g)
{
    return (g->o + SEEN_CHANNELS - 1) / SEEN_CHANNELS;
}

/* Bytes of the signs of a whole call. */
static size_t seen_signs_size(const conv2d_geometry *g)
{
    const int64_t count = g->blocks * (g->oh / 2) * g->groups * seen_chunks(g);

    return lanes_aligned((size_t)count * sizeof(relu_signs));
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
                      const conv2d_target *target)
{
    const int64_t count = 2 * columns * LANES;

    for (int64_t c = 0; c < channels; c++) {
        const float *const source = rows + c * count;

        if (target->y != NULL) {
            memcpy(target->y + c * target->plane, source, (size_t)count * sizeof *source);
        }
        for (int64_t i = 0; target->relu != NULL && i < count; i += VF_WIDTH) {
            vf_store(target->relu + c * target->plane + i, vf_relu(vf_load(source + i)));
        }
    }
}

/* run_window_row, with the vital signs of its pixels. to: where the first pixel goes. */
static void run_seen_row(const conv2d_geometry *g, const window_row *row,
                         const conv2d_target *target, float *rows, int valid, bool norms,
                         relu_signs *signs)
{
    const int64_t chunks = seen_chunks(g), most = (g->o + chunks - 1) / chunks;

    for (int64_t i = 0; i < chunks; i++) {
        const int64_t o = i * most, channels = SONDE_MIN(most, g->o - o);
        const conv2d_target offset = target_at(*target, o * target->plane);
        window_row some = *row;

        some.run.channels = channels;
        some.run.weight += o * row->run.weight_stride;
        some.run.bias = row->run.bias == NULL ? NULL : row->run.bias + o;
        some.run.to = (conv2d_target){rows, NULL, 2 * g->ow * LANES};
        some.to = windows_at(row->to, o * row->to.plane);
        run_window_row(&some);
        relu_signs_init(&signs[i], norms);
        relu_vitals_add(rows, channels * 2 * g->ow, valid, &signs[i]);
        seen_copy(rows, channels, g->ow, &offset);
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

/* What conv2d_relu_pool writes: whole tensors. */
typedef struct pool_outputs {
    conv2d_target pixels;
    windows_target windows;
    relu_signs *signs; /* NULL: not wanted */
    bool norms;        /* of these, only norms */
} pool_outputs;

/* Where pixel `row` * ow of a block goes. */
static conv2d_target pool_target(const conv2d_geometry *g, const pool_outputs *out,
                                 int64_t block, int64_t row)
{
    return target_at(out->pixels,
                     block * g->groups * g->o * out->pixels.plane + row * g->ow * LANES);
}

/* Where row `pool_row` of the windows of a block goes. */
static windows_target pool_windows(const conv2d_geometry *g, const pool_outputs *out,
                                   int64_t block, int64_t pool_row)
{
    return windows_at(out->windows, block * g->groups * g->o * out->windows.plane +
                                        pool_row * (g->ow / 2) * LANES);
}

/* One row of windows, of a convolution without padding. spare: for pixels that are looked
 * at. */
static void pool_row_direct(const conv2d_job *job, const pool_outputs *out, int64_t block,
                            int64_t pool_row, float *spare)
{
    const conv2d_geometry *const g = &job->g;
    const int64_t image = g->c * g->h * g->w;
    const conv2d_target pixels = pool_target(g, out, block, 2 * pool_row);
    const windows_target windows = pool_windows(g, out, block, pool_row);
    window_row row = {.run = {.taps = job->full,
                              .tap_count = g->taps,
                              .channels = g->o,
                              .weight_stride = g->taps,
                              .x_step = g->stride[1] * LANES},
                      .x_row = g->stride[0] * g->w * LANES,
                      .y_row = g->ow * LANES,
                      .count = g->ow / 2};

    for (int64_t group = 0; group < g->groups; group++) {
        const int64_t o = group * g->o;

        row.run.x = job->x + ((block * g->groups + group) * image +
                              2 * pool_row * g->stride[0] * g->w) *
                                 LANES;
        row.run.weight = job->weight + o * g->taps;
        row.run.bias = job->bias == NULL ? NULL : job->bias + o;
        row.run.to = target_at(pixels, o * pixels.plane);
        row.to = windows_at(windows, o * windows.plane);
        if (out->signs == NULL) {
            run_window_row(&row);
        } else {
            const conv2d_target result = row.run.to;
            const int64_t rows = (block * (g->oh / 2) + pool_row) * g->groups + group;

            run_seen_row(g, &row, &result, spare, lanes_valid(g->samples, block),
                         out->norms, out->signs + rows * seen_chunks(g));
        }
    }
}

/* One row of windows by way of two rows of pixels, which lie in conv or relu if they are
 * wanted, else in spare. */
static void pool_row_indirect(const conv2d_job *job, const pool_outputs *out,
                              int64_t block, int64_t pool_row, float *spare)
{
    const conv2d_geometry *const g = &job->g;
    const int64_t channels = g->groups * g->o;
    const bool wanted = out->pixels.y != NULL || out->pixels.relu != NULL;
    const conv2d_target rows = wanted ? pool_target(g, out, block, 2 * pool_row)
                                      : (conv2d_target){spare, NULL, 2 * g->ow * LANES};
    const float *const source = rows.y != NULL ? rows.y : rows.relu;
    const window_row row = {.to = pool_windows(g, out, block, pool_row)};

    convolve(job, block, (const int64_t[]){2 * pool_row, 2 * pool_row + 2},
             (const int64_t[]){0, g->ow}, rows);
    for (int64_t o = 0; o < channels; o++) {
        for (int64_t i = 0; i < g->ow / 2; i++) {
            for (int lane = 0; lane < LANES; lane += VF_WIDTH) {
                const float *const p = source + o * rows.plane + 2 * i * LANES + lane;
                const float *const q = p + g->ow * LANES;
                const vf v[4] = {vf_load(p), vf_load(p + LANES), vf_load(q),
                                 vf_load(q + LANES)};

                store_window(&row, v, o * row.to.plane + i * LANES + lane);
            }
        }
    }
}

/* The pixels of two rows, or of the last odd one, that lie in no window. */
static void convolve_leftover(const conv2d_job *job, const pool_outputs *out,
                              int64_t block, int64_t row)
{
    const conv2d_geometry *const g = &job->g;
    const int64_t rows[2] = {row, SONDE_MIN(row + 2, g->oh)};
    const int64_t columns[2] = {row + 1 < g->oh ? g->ow / 2 * 2 : 0, g->ow};

    if (out->pixels.y != NULL || out->pixels.relu != NULL) {
        convolve(job, block, rows, columns,
                 target_at(pool_target(g, out, block, row), columns[0] * LANES));
    }
}

static bool pool_accepts(const sonde__op_call *call)
{
    const sonde__op_shape *const y = &call->out[2].shape;
    conv2d_geometry g;

    if (!conv2d_accepts(call) ||
        conv2d_has_many_channels(&call->in[1].shape, call->attrs)) {
        return false;
    }
    g = call_geometry(call);
    return y->dim[2] == g.oh / 2 && y->dim[3] == g.ow / 2;
}

static size_t pool_part_size(const conv2d_geometry *g)
{
    const size_t rows = (size_t)(g->groups * g->o * 2 * g->ow) * LANES * sizeof(float);

    return lists_size(g) + (conv2d_is_padded(g) ? rows : seen_rows_size(g));
}

/* Signs, then the parts' own. */
static size_t pool_scratch(const sonde__op_call *call, int parts)
{
    const conv2d_geometry g = call_geometry(call);

    return seen_signs_size(&g) + pool_part_size(&g) * (size_t)parts;
}

static unsigned pool_tells(const sonde__op_call *call)
{
    const conv2d_geometry g = call_geometry(call);

    return seen_accepts(&g) ? 1U << 0 | 1U << 1 : 0;
}

static void pool_finish(const sonde__op_call *call, int parts)
{
    const conv2d_geometry g = call_geometry(call);

    (void)parts;
    merge_seen(&g, call->scratch, call->out_vitals);
}

static int pool_parts(const sonde__op_call *call, int max)
{
    const conv2d_geometry g = call_geometry(call);

    return lanes_parts(conv2d_operations(&g), g.blocks * (g.oh / 2), max);
}

/* A part is a range of rows of windows, counted through all blocks. */
static void conv2d_relu_pool_run_lanes(const sonde__op_call *call, int part, int parts)
{
    const conv2d_geometry size = call_geometry(call);
    char *const scratch = (char *)call->scratch + seen_signs_size(&size) +
                          (size_t)part * pool_part_size(&size);
    float *const spare = (float *)(void *)(scratch + lists_size(&size));
    const conv2d_job job = start_job(call, scratch);
    const bool seen = call->out_vitals[0] != NULL || call->out_vitals[1] != NULL;
    const int64_t rows = size.oh / 2;
    const pool_outputs out = {
        .pixels = {lanes_out(call, 0), lanes_out(call, 1), size.oh * size.ow * LANES},
        .windows = {lanes_out(call, 2), call->out[3].data, rows * (size.ow / 2) * LANES},
        .signs = seen ? (relu_signs *)call->scratch : NULL,
        .norms = sonde__op_wants_norms(call, 1U << 0 | 1U << 1)};
    int64_t first, last;

    lanes_split(size.blocks * rows, part, parts, &first, &last);
    for (int64_t i = first; i < last; i++) {
        const int64_t block = i / rows, row = i % rows;

        if (conv2d_is_padded(&size)) {
            pool_row_indirect(&job, &out, block, row, spare);
        } else {
            pool_row_direct(&job, &out, block, row, spare);
            convolve_leftover(&job, &out, block, 2 * row);
        }
        if (row == rows - 1 && size.oh % 2 == 1) {
            convolve_leftover(&job, &out, block, size.oh - 1);
        }
    }
    if (seen && parts == 1) {
        pool_finish(call, 1);
    }
}

#endif

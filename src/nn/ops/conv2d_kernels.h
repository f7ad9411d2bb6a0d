/*
 * conv2d_kernels.h - convolution over LANES, alone and fused with ReLU and 2 x 2
 * max-pool.
 *
 * A tile keeps (output channels) x (pixels) accumulators in registers, 24 of the 32 that
 * AVX-512 has, and goes over the taps: each tap costs one load a pixel and one broadcast
 * a channel for channels x pixels multiply-adds. Pixels are counted through from row to
 * row, so that no tile ends with a row. Weights are read as they lie, (O, C, kh, kw).
 *
 * Every output is bias + w x + w x + ..., taps in the order (c, kh, kw), one FMA each
 * where the ISA has it: the fused kernels give the bits of the plain one.
 *
 * Left out: reuse of the input across channel tiles beyond what caches give. Layers of
 * many channels are better served by a blocked matrix product.
 */
#include "nn/ops/conv2d_lanes.h"
#include "nn/ops/fast_conv.h"

/* --- tiles ---------------------------------------------------------------------------
 */

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

/* acc[o * pixels + p] += all taps */
VEC_INLINE void tile_sum(vf *acc, const conv2d_run *run, const float *weight,
                         const float *const *x, const int channels, const int pixels)
{
    const conv2d_tap *tap = run->taps, *const end = tap + run->tap_count;
    const int64_t stride = run->weight_stride;

    for (; tap < end; tap++) {
        const float *const w = weight + tap->w;
        vf v[MAX_TILE_PIXELS];

        VEC_UNROLL
        for (int p = 0; p < pixels; p++) {
            v[p] = vf_load(x[p] + tap->x);
        }
        VEC_UNROLL
        for (int o = 0; o < channels; o++) {
            const vf b = vf_set1(w[o * stride]);

            VEC_UNROLL
            for (int p = 0; p < pixels; p++) {
                acc[o * pixels + p] = vf_fma(b, v[p], acc[o * pixels + p]);
            }
        }
    }
}

VEC_INLINE void tile_store(const vf *acc, const conv2d_run *run, int64_t at,
                           const int channels, const int pixels)
{
    if (run->y != NULL) {
        VEC_UNROLL
        for (int i = 0; i < channels * pixels; i++) {
            vf_store(run->y + at + i / pixels * run->y_plane + i % pixels * run->y_step,
                     acc[i]);
        }
    }
    if (run->relu != NULL) {
        VEC_UNROLL
        for (int i = 0; i < channels * pixels; i++) {
            vf_store(run->relu + at + i / pixels * run->y_plane +
                         i % pixels * run->y_step,
                     vf_relu(acc[i]));
        }
    }
}

/* Goes on to the next pixel of a run. */
typedef struct run_place {
    const float *x;
    int64_t column;
} run_place;

VEC_INLINE const float *next_pixel(run_place *place, const conv2d_run *run)
{
    const float *const x = place->x;

    place->x += run->x_step;
    if (++place->column == run->columns) {
        place->column = 0;
        place->x += run->x_skip;
    }
    return x;
}

/* A tile's channels, beginning at channel o, over all pixels of a run. */
VEC_INLINE void run_channels(const conv2d_run *run, int64_t o, const int channels,
                             const int pixels)
{
    const float *const weight = run->weight + o * run->weight_stride;
    const float *const bias = run->bias == NULL ? NULL : run->bias + o;
    run_place place = {run->x, run->column};
    int64_t i = 0;

    for (; i + pixels <= run->count; i += pixels) {
        const float *x[MAX_TILE_PIXELS];
        vf acc[MAX_TILE];

        VEC_UNROLL
        for (int p = 0; p < pixels; p++) {
            x[p] = next_pixel(&place, run);
        }
        tile_start(acc, bias, channels, pixels);
        tile_sum(acc, run, weight, x, channels, pixels);
        tile_store(acc, run, o * run->y_plane + i * run->y_step, channels, pixels);
    }
    for (; i < run->count; i++) {
        const float *const x[1] = {next_pixel(&place, run)};
        vf acc[MAX_TILE];

        tile_start(acc, bias, channels, 1);
        tile_sum(acc, run, weight, x, channels, 1);
        tile_store(acc, run, o * run->y_plane + i * run->y_step, channels, 1);
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

void ISA(sonde__conv2d_run)(const conv2d_run *run)
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

/* --- images --------------------------------------------------------------------------
 */

/* What a part works with. y and relu are given per call of convolve. */
typedef struct conv2d_job {
    conv2d_geometry g;
    const float *x, *weight, *bias;
    conv2d_tap *full, *border; /* lists of g.taps each */
} conv2d_job;

/* A place to put pixels: pixel i of channel o of a block at o * plane + i * LANES. */
typedef struct conv2d_target {
    float *y, *relu; /* NULL: not wanted */
    int64_t plane;
} conv2d_target;

static conv2d_target target_at(conv2d_target target, int64_t offset)
{
    target.y = target.y == NULL ? NULL : target.y + offset;
    target.relu = target.relu == NULL ? NULL : target.relu + offset;
    return target;
}

/* Lists taps ky[0] ... ky[1] - 1 by kx[0] ... kx[1] - 1 of all channels, places counted
 * from the first of them. */
static int64_t list_taps(const conv2d_geometry *g, const int64_t ky[2],
                         const int64_t kx[2], conv2d_tap *taps)
{
    int64_t count = 0;

    for (int64_t c = 0; c < g->c; c++) {
        for (int64_t k = ky[0]; k < ky[1]; k++) {
            for (int64_t l = kx[0]; l < kx[1]; l++) {
                taps[count++] =
                    (conv2d_tap){.x = ((c * g->h + (k - ky[0]) * g->dilation[0]) * g->w +
                                       (l - kx[0]) * g->dilation[1]) *
                                      LANES,
                                 .w = (c * g->kernel[0] + k) * g->kernel[1] + l};
            }
        }
    }
    return count;
}

/* Does a run of every group. run->x, y and relu are those of the block's first channel.
 */
static void run_groups(const conv2d_job *job, conv2d_run *run)
{
    const conv2d_geometry *const g = &job->g;

    run->channels = g->o;
    run->weight_stride = g->taps;
    run->y_step = LANES;
    run->weight = job->weight;
    run->bias = job->bias;
    for (int64_t group = 0; group < g->groups; group++) {
        ISA(sonde__conv2d_run)(run);
        run->x += g->c * g->h * g->w * LANES;
        run->weight += g->o * g->taps;
        run->bias = run->bias == NULL ? NULL : run->bias + g->o;
        run->y = run->y == NULL ? NULL : run->y + g->o * run->y_plane;
        run->relu = run->relu == NULL ? NULL : run->relu + g->o * run->y_plane;
    }
}

/* Pixels first ... last - 1 of a row, which meet the image with the same taps. */
static void convolve_segment(const conv2d_job *job, int64_t block, int64_t row,
                             int64_t first, int64_t last, const int64_t ky[2],
                             conv2d_target target)
{
    const conv2d_geometry *const g = &job->g;
    const int64_t y0 = row * g->stride[0] - g->padding[0] + ky[0] * g->dilation[0];
    int64_t kx[2];
    conv2d_run run = {.taps = job->full,
                      .tap_count = g->taps,
                      .y = target.y,
                      .relu = target.relu,
                      .y_plane = target.plane,
                      .count = last - first,
                      .columns = last - first,
                      .x_step = g->stride[1] * LANES};

    if (first >= last) {
        return;
    }
    conv2d_tap_range(g, 1, first, &kx[0], &kx[1]);
    if (ky[1] - ky[0] < g->kernel[0] || kx[1] - kx[0] < g->kernel[1]) {
        run.taps = job->border;
        run.tap_count = list_taps(g, ky, kx, job->border);
    }
    run.x = job->x + block * g->groups * g->c * g->h * g->w * LANES;
    if (run.tap_count > 0) {
        const int64_t x0 = first * g->stride[1] - g->padding[1] + kx[0] * g->dilation[1];

        run.x += (y0 * g->w + x0) * LANES;
    }
    run_groups(job, &run);
}

/* Columns first ... last - 1 of a row of a padded convolution. */
static void convolve_row(const conv2d_job *job, int64_t block, int64_t row, int64_t first,
                         int64_t last, conv2d_target target)
{
    const conv2d_geometry *const g = &job->g;
    int64_t ky[2], ignored, inside, outside;

    conv2d_tap_range(g, 0, row, &ky[0], &ky[1]);
    conv2d_output_range(g, 1, 0, &inside, &ignored);
    conv2d_output_range(g, 1, g->kernel[1] - 1, &ignored, &outside);
    inside = SONDE_MIN(SONDE_MAX(inside, first), last);
    outside = SONDE_MIN(SONDE_MAX(outside, inside), last);
    for (int64_t i = first; i < last;) {
        const int64_t next = i == inside && inside < outside ? outside : i + 1;

        convolve_segment(job, block, row, i, next, ky,
                         target_at(target, (i - first) * LANES));
        i = next;
    }
}

/* Pixels first ... last - 1 of a block, counted through from row to row; target is where
 * the first of them goes. */
static void convolve(const conv2d_job *job, int64_t block, int64_t first, int64_t last,
                     conv2d_target target)
{
    const conv2d_geometry *const g = &job->g;

    if (g->padding[0] == 0 && g->padding[1] == 0) {
        const int64_t row = first / g->ow, column = first % g->ow;
        conv2d_run run = {.taps = job->full,
                          .tap_count = g->taps,
                          .y = target.y,
                          .relu = target.relu,
                          .y_plane = target.plane,
                          .count = last - first,
                          .column = column,
                          .columns = g->ow,
                          .x_step = g->stride[1] * LANES,
                          .x_skip = (g->stride[0] * g->w - g->ow * g->stride[1]) * LANES};

        run.x = job->x + (block * g->groups * g->c * g->h * g->w +
                          row * g->stride[0] * g->w + column * g->stride[1]) *
                             LANES;
        run_groups(job, &run);
        return;
    }
    for (int64_t i = first; i < last;) {
        const int64_t row = i / g->ow, end = SONDE_MIN((row + 1) * g->ow, last);

        convolve_row(job, block, row, i - row * g->ow, end - row * g->ow,
                     target_at(target, (i - first) * LANES));
        i = end;
    }
}

/* --- kernels -------------------------------------------------------------------------
 */

static bool conv2d_accepts(const sonde__call *call)
{
    return lanes_is_f32(&call->in[0].shape, 4) && lanes_is_f32(&call->in[1].shape, 4) &&
           (call->in_count < 3 || lanes_is_f32(&call->in[2].shape, 1));
}

static conv2d_geometry call_geometry(const sonde__call *call)
{
    return conv2d_geometry_of(&call->in[0].shape, &call->in[1].shape, call->attrs);
}

static size_t lists_size(const conv2d_geometry *g)
{
    const size_t size = 2 * (size_t)g->taps * sizeof(conv2d_tap);

    return (size + SONDE__ALIGN - 1) / SONDE__ALIGN * SONDE__ALIGN;
}

static size_t conv2d_scratch(const sonde__call *call, int parts)
{
    const conv2d_geometry g = call_geometry(call);

    return lists_size(&g) * (size_t)parts;
}

/* scratch: lists_size bytes for this part alone */
static conv2d_job start_job(const sonde__call *call, void *scratch)
{
    conv2d_job job = {.g = call_geometry(call),
                      .x = lanes_in(call, 0),
                      .weight = lanes_in(call, 1),
                      .bias = lanes_in(call, 2),
                      .full = scratch};
    const int64_t ky[2] = {0, job.g.kernel[0]}, kx[2] = {0, job.g.kernel[1]};

    job.border = job.full + job.g.taps;
    (void)list_taps(&job.g, ky, kx, job.full);
    return job;
}

static int conv2d_parts(const sonde__call *call, int max)
{
    const conv2d_geometry g = call_geometry(call);

    return lanes_parts(conv2d_operations(&g), g.blocks * g.oh * g.ow, max);
}

/* A part is a range of pixels, counted through all blocks. */
static void convolve_part(const sonde__call *call, float *y, float *relu, int part,
                          int parts)
{
    const conv2d_geometry size = call_geometry(call);
    const conv2d_job job =
        start_job(call, (char *)call->scratch + (size_t)part * lists_size(&size));
    const int64_t pixels = size.oh * size.ow, channels = size.groups * size.o;
    int64_t first, last;

    lanes_split(size.blocks * pixels, part, parts, &first, &last);
    while (first < last) {
        const int64_t block = first / pixels, begin = first - block * pixels;
        const int64_t end = SONDE_MIN(pixels, last - block * pixels);
        const conv2d_target all = {y, relu, pixels * LANES};

        convolve(&job, block, begin, end,
                 target_at(all, (block * channels * pixels + begin) * LANES));
        first = block * pixels + end;
    }
}

static void conv2d_run_lanes(const sonde__call *call, int part, int parts)
{
    convolve_part(call, lanes_out(call, 0), NULL, part, parts);
}

static void conv2d_relu_run_lanes(const sonde__call *call, int part, int parts)
{
    convolve_part(call, lanes_out(call, 0), lanes_out(call, 1), part, parts);
}

/* --- with max-pool ---------------------------------------------------------------------
 */

#if VF_WIDTH == 16
#define WINDOW_TILES(X) X(6) X(5) X(4) X(3) X(2) X(1)
#else
#define WINDOW_TILES(X) X(2) X(1)
#endif

/* Where a row of 2 x 2 windows goes: window i at i * LANES of pooled and index. */
typedef struct window_row {
    conv2d_run run;       /* of the upper row's first pixel; y and relu as in a run */
    int64_t x_row, y_row; /* from a window's upper to its lower pixels */
    int64_t count, plane; /* windows; from channel to channel of pooled and index */
    float *pooled;        /* NULL: not wanted */
    uint8_t *index;       /* likewise */
} window_row;

/* v: the pixels of a window before ReLU, row-major. The maximum is taken first: ReLU
 * keeps the order, and where nothing is positive all four are equal (0 or -0) and the
 * first one wins. */
VEC_INLINE void store_window(const window_row *row, const vf *v, int64_t at)
{
    const vm upper = vm_beats(v[1], v[0]), lower = vm_beats(v[3], v[2]);
    const vf u = vf_pick(upper, v[1], v[0]), l = vf_pick(lower, v[3], v[2]);
    const vm down = vm_beats(l, u);
    const vf top = vf_pick(down, l, u);
    const vm positive = vm_positive(top);
    const vi one = vi_set1(1), two = vi_set1(2), three = vi_set1(3), zero = {0};

    if (row->pooled != NULL) {
        vf_store(row->pooled + at, vf_pick(positive, top, vf_relu(v[0])));
    }
    if (row->index != NULL) {
        const vi i = vi_pick(down, vi_pick(lower, three, two), vi_pick(upper, one, zero));

        vi_store_u8(row->index + at, vi_pick(positive, i, zero));
    }
}

#if VF_WIDTH == 16
/* The same where none of v is NaN: integer maxima, which order floats that are not both
 * negative, run beside the multiply-adds where float comparisons do not. The first pixel
 * is clamped to 0; that clamps the maximum, and keeps negative ones from winning. The
 * last maximum is max_ps, which gives v[0] where that is -0 and nothing is greater. */
VEC_INLINE void store_window_ordered(const window_row *row, const vf *v, int64_t at)
{
    const __m512i v0 = _mm512_max_epi32((__m512i)v[0], _mm512_setzero_si512());
    const __m512i v1 = (__m512i)v[1], v2 = (__m512i)v[2], v3 = (__m512i)v[3];
    const __m512i u = _mm512_max_epi32(v0, v1), l = _mm512_max_epi32(v2, v3);

    if (row->pooled != NULL) {
        vf_store(row->pooled + at,
                 (vf)_mm512_max_ps((__m512)_mm512_max_epi32(u, l), (__m512)v[0]));
    }
    if (row->index != NULL) {
        const __m128i two = _mm_set1_epi8(2), three = _mm_set1_epi8(3);
        const __m128i i = _mm_maskz_set1_epi8(_mm512_cmpgt_epi32_mask(v1, v0), 1);
        const __m128i j = _mm_mask_mov_epi8(two, _mm512_cmpgt_epi32_mask(v3, v2), three);

        _mm_storeu_si128((__m128i *)(void *)(row->index + at),
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

VEC_INLINE void store_windows(const window_row *row, const vf *acc, int64_t at,
                              const int channels)
{
#if VF_WIDTH == 16
    if (__builtin_expect(!maybe_nan(acc, 4 * channels), 1)) {
        VEC_UNROLL
        for (int k = 0; k < channels; k++) {
            store_window_ordered(row, acc + 4 * k, at + k * row->plane);
        }
        return;
    }
#endif
    VEC_UNROLL
    for (int k = 0; k < channels; k++) {
        store_window(row, acc + 4 * k, at + k * row->plane);
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
        const int64_t at = o * run->y_plane + 2 * i * LANES;
        vf acc[MAX_TILE];

        tile_start(acc, bias, channels, 4);
        tile_sum(acc, run, weight, x, channels, 4);
        VEC_UNROLL
        for (int p = 0; p < 4; p++) {
            x[p] += 2 * run->x_step;
        }
        store_windows(row, acc, o * row->plane + i * LANES, channels);
        if (run->y != NULL || run->relu != NULL) {
            VEC_UNROLL
            for (int k = 0; k < 4 * channels; k++) {
                const int64_t to =
                    at + k / 4 * run->y_plane + k / 2 % 2 * row->y_row + k % 2 * LANES;

                if (run->y != NULL) {
                    vf_store(run->y + to, acc[k]);
                }
                if (run->relu != NULL) {
                    vf_store(run->relu + to, vf_relu(acc[k]));
                }
            }
        }
    }
}

#define DEFINE_WINDOWS(channels)                                                         \
    static void run_windows_##channels(const window_row *row, int64_t o)                 \
    {                                                                                    \
        run_windows(row, o, channels);                                                   \
    }
#define LIST_WINDOWS(channels) run_windows_##channels,

WINDOW_TILES(DEFINE_WINDOWS)

/* Falling channel counts: the last entry has one channel. */
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
            part.run.y = row->run.y == NULL ? NULL : row->run.y + lane;
            part.run.relu = row->run.relu == NULL ? NULL : row->run.relu + lane;
            part.pooled = row->pooled == NULL ? NULL : row->pooled + lane;
            part.index = row->index == NULL ? NULL : row->index + lane;
            window_tiles[MAX_WINDOW_TILE - channels](&part, o);
        }
        o += channels;
    }
}

/* What conv2d_relu_pool writes: whole tensors, any of them NULL. */
typedef struct pool_outputs {
    float *conv, *relu, *pooled;
    uint8_t *index;
} pool_outputs;

/* Where pixel `row` * ow of a block goes. */
static conv2d_target pool_target(const conv2d_geometry *g, const pool_outputs *out,
                                 int64_t block, int64_t row)
{
    const int64_t pixels = g->oh * g->ow;
    const conv2d_target all = {out->conv, out->relu, pixels * LANES};

    return target_at(all, (block * g->groups * g->o * pixels + row * g->ow) * LANES);
}

/* One row of windows, of a convolution without padding. */
static void pool_row_direct(const conv2d_job *job, const pool_outputs *out, int64_t block,
                            int64_t pool_row)
{
    const conv2d_geometry *const g = &job->g;
    const int64_t windows = (g->oh / 2) * (g->ow / 2), image = g->c * g->h * g->w;
    const conv2d_target target = pool_target(g, out, block, 2 * pool_row);
    const int64_t at =
        (block * g->groups * g->o * windows + pool_row * (g->ow / 2)) * LANES;
    window_row row = {.run = {.taps = job->full,
                              .tap_count = g->taps,
                              .channels = g->o,
                              .weight_stride = g->taps,
                              .y_plane = target.plane,
                              .x_step = g->stride[1] * LANES},
                      .x_row = g->stride[0] * g->w * LANES,
                      .y_row = g->ow * LANES,
                      .count = g->ow / 2,
                      .plane = windows * LANES};

    for (int64_t group = 0; group < g->groups; group++) {
        const int64_t o = group * g->o;

        row.run.x = job->x + ((block * g->groups + group) * image +
                              2 * pool_row * g->stride[0] * g->w) *
                                 LANES;
        row.run.weight = job->weight + o * g->taps;
        row.run.bias = job->bias == NULL ? NULL : job->bias + o;
        row.run.y = target.y == NULL ? NULL : target.y + o * target.plane;
        row.run.relu = target.relu == NULL ? NULL : target.relu + o * target.plane;
        row.pooled = out->pooled == NULL ? NULL : out->pooled + at + o * row.plane;
        row.index = out->index == NULL ? NULL : out->index + at + o * row.plane;
        run_window_row(&row);
    }
}

/* One row of windows by way of two rows of pixels, which lie in conv or relu if somebody
 * wants them, else in spare. */
static void pool_row_indirect(const conv2d_job *job, const pool_outputs *out,
                              int64_t block, int64_t pool_row, float *spare)
{
    const conv2d_geometry *const g = &job->g;
    const int64_t windows = (g->oh / 2) * (g->ow / 2), channels = g->groups * g->o;
    const bool wanted = out->conv != NULL || out->relu != NULL;
    const conv2d_target rows = wanted ? pool_target(g, out, block, 2 * pool_row)
                                      : (conv2d_target){spare, NULL, 2 * g->ow * LANES};
    const float *const from = rows.y != NULL ? rows.y : rows.relu;
    const window_row row = {
        .plane = windows * LANES, .pooled = out->pooled, .index = out->index};

    convolve(job, block, 2 * pool_row * g->ow, (2 * pool_row + 2) * g->ow, rows);
    for (int64_t o = 0; o < channels; o++) {
        for (int64_t i = 0; i < g->ow / 2; i++) {
            for (int lane = 0; lane < LANES; lane += VF_WIDTH) {
                const float *const p = from + o * rows.plane + 2 * i * LANES + lane;
                const float *const q = p + g->ow * LANES;
                const vf v[4] = {vf_load(p), vf_load(p + LANES), vf_load(q),
                                 vf_load(q + LANES)};

                store_window(&row, v,
                             ((block * channels + o) * windows + pool_row * (g->ow / 2) +
                              i) * LANES +
                                 lane);
            }
        }
    }
}

/* The pixels of two rows, or of the last odd one, that lie in no window. */
static void convolve_leftover(const conv2d_job *job, const pool_outputs *out,
                              int64_t block, int64_t row)
{
    const conv2d_geometry *const g = &job->g;
    const int64_t first = row + 1 < g->oh ? g->ow / 2 * 2 : 0;

    if (out->conv == NULL && out->relu == NULL) {
        return;
    }
    for (int64_t i = row; i < SONDE_MIN(row + 2, g->oh) && first < g->ow; i++) {
        convolve(job, block, i * g->ow + first, (i + 1) * g->ow,
                 target_at(pool_target(g, out, block, i), first * LANES));
    }
}

static bool pool_accepts(const sonde__call *call)
{
    const sonde__shape *const y = &call->out[2].shape;
    conv2d_geometry g;

    if (!conv2d_accepts(call)) {
        return false;
    }
    g = call_geometry(call);
    return y->dim[2] == g.oh / 2 && y->dim[3] == g.ow / 2;
}

static bool pool_is_direct(const conv2d_geometry *g)
{
    return g->padding[0] == 0 && g->padding[1] == 0;
}

static size_t pool_part_size(const conv2d_geometry *g)
{
    const size_t rows = (size_t)(g->groups * g->o * 2 * g->ow) * LANES * sizeof(float);

    return lists_size(g) + (pool_is_direct(g) ? 0 : rows);
}

static size_t pool_scratch(const sonde__call *call, int parts)
{
    const conv2d_geometry g = call_geometry(call);

    return pool_part_size(&g) * (size_t)parts;
}

static int pool_parts(const sonde__call *call, int max)
{
    const conv2d_geometry g = call_geometry(call);

    return lanes_parts(conv2d_operations(&g), g.blocks * (g.oh / 2), max);
}

/* A part is a range of rows of windows, counted through all blocks. */
static void conv2d_relu_pool_run_lanes(const sonde__call *call, int part, int parts)
{
    const conv2d_geometry size = call_geometry(call);
    char *const scratch = (char *)call->scratch + (size_t)part * pool_part_size(&size);
    const conv2d_job job = start_job(call, scratch);
    const pool_outputs out = {lanes_out(call, 0), lanes_out(call, 1), lanes_out(call, 2),
                              (uint8_t *)call->out[3].data};
    const int64_t rows = size.oh / 2;
    int64_t first, last;

    lanes_split(size.blocks * rows, part, parts, &first, &last);
    for (int64_t i = first; i < last; i++) {
        const int64_t block = i / rows, row = i % rows;

        if (pool_is_direct(&size)) {
            pool_row_direct(&job, &out, block, row);
            convolve_leftover(&job, &out, block, 2 * row);
        } else {
            pool_row_indirect(&job, &out, block, row,
                              (float *)(void *)(scratch + lists_size(&size)));
        }
        if (row == rows - 1 && size.oh % 2 == 1) {
            convolve_leftover(&job, &out, block, size.oh - 1);
        }
    }
}

/* --- rows of the table -----------------------------------------------------------------
 */

#define CONV2D_IN                                                                        \
    {                                                                                    \
        SONDE__LANES, SONDE__PLAIN, SONDE__PLAIN                                         \
    }

const sonde__conv2d_kernels ISA(sonde__conv2d) = {
    .forward = {.name = "lanes",
                .accepts = conv2d_accepts,
                .in = CONV2D_IN,
                .out = {SONDE__LANES},
                .scratch = conv2d_scratch,
                .parts = conv2d_parts,
                .run = conv2d_run_lanes},
    .relu = {.name = "lanes",
             .accepts = conv2d_accepts,
             .in = CONV2D_IN,
             .out = {SONDE__LANES, SONDE__LANES},
             .scratch = conv2d_scratch,
             .parts = conv2d_parts,
             .run = conv2d_relu_run_lanes},
    .relu_pool = {.name = "lanes",
                  .accepts = pool_accepts,
                  .in = CONV2D_IN,
                  .out = {SONDE__LANES, SONDE__LANES, SONDE__LANES, SONDE__LANES},
                  .scratch = pool_scratch,
                  .parts = pool_parts,
                  .run = conv2d_relu_pool_run_lanes},
};

/*
 * conv2d_kernels.c - convolution over LANES, alone and fused with ReLU and 2 x 2
 * max-pool.
 *
 * Every output is bias + w x + w x + ..., taps in the order (c, kh, kw), one FMA each
 * where the ISA has it: the fused kernels give the bits of the plain one. The work itself
 * is done by tiles.
 *
 * Omitted: reuse of the input across channel tiles beyond what caches give. Layers of
 * many channels have conv2d_wide_kernels.c, and are not fused with a max-pool.
 */
#include "base/isa.h"
#include "base/macros.h"
#include "base/memory.h"
#include "nn/kernels/conv2d_lanes.h"
#include "nn/kernels/fast.h"
#include "nn/kernels/relu_vitals.h"

/* --- tiles -------------------------------------------------------------------------- */

/*
 * A tile keeps (output channels) x (pixels) accumulators in registers, 24 of the 32 that
 * AVX-512 has, and goes over the taps: each tap costs one load a pixel and one broadcast
 * a channel for channels x pixels multiply-adds. Pixels are counted through from row to
 * row, so that no tile ends with a row. Weights are read as they lie, (O, C, kh, kw).
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
    VEC_EACH (i, channels * pixels) {
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

        VEC_EACH (p, pixels) {
            v[p] = vf_load(x[p] + tap->x);
        }
        VEC_EACH (o, channels) {
            if (o > 0 && o % 4 == 0) {
                w = tile_base(w + 4 * stride);
            }
            const vf b = vf_set1(w[o % 4 * stride]);

            VEC_EACH (p, pixels) {
                acc[o * pixels + p] = vf_fma(b, v[p], acc[o * pixels + p]);
            }
        }
    }
}

/* to: where pixels lie, from y of the tile's first channel */
VEC_INLINE void tile_store(const vf *acc, const conv2d_run *run, int64_t o,
                           const int64_t *target, const int channels, const int pixels)
{
    float *const y = run->to.y, *const relu = run->to.relu;
    int64_t offset = o * run->to.plane;

    VEC_EACH (k, channels) {
        VEC_EACH (p, pixels) {
            if (y != NULL) {
                vf_store(y + offset + target[p], acc[k * pixels + p]);
            }
            if (relu != NULL) {
                vf_store(relu + offset + target[p], vf_relu(acc[k * pixels + p]));
            }
        }
        offset += run->to.plane;
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
    int64_t target[MAX_TILE_PIXELS];
    vf acc[MAX_TILE];

    VEC_EACH (p, pixels) {
        x[p] = place->x;
        target[p] = place->to;
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
    tile_store(acc, run, o, target, channels, pixels);
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
            part.to = target_at(run->to, lane);
            tile->run(&part, o);
        }
        o += tile->channels;
    }
}

/* --- images ------------------------------------------------------------------------- */

/* What a part works with. y and relu are given per call of convolve. */
typedef struct conv2d_job {
    conv2d_geometry g;
    const float *x, *weight, *bias;
    conv2d_tap *full, *border; /* lists of g.taps each */
} conv2d_job;

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
        ISA(sonde__kernel_conv2d_run)(run);
        run->x += g->c * g->h * g->w * LANES;
        run->weight += g->o * g->taps;
        run->bias = run->bias == NULL ? NULL : run->bias + g->o;
        run->to = target_at(run->to, g->o * run->to.plane);
    }
}

/* The rows and columns of two bands. target is where the first pixel goes. */
static void convolve_bands(const conv2d_job *job, int64_t block, const conv2d_band *rows,
                           const conv2d_band *columns, conv2d_target target)
{
    const conv2d_geometry *const g = &job->g;
    const int64_t width = columns->last - columns->first;
    const int64_t ky[2] = {rows->begin, rows->end},
                  kx[2] = {columns->begin, columns->end};
    conv2d_run run = {.x = job->x + block * g->groups * g->c * g->h * g->w * LANES,
                      .taps = job->full,
                      .tap_count = g->taps,
                      .to = target,
                      .y_skip = (g->ow - width) * LANES,
                      .count = (rows->last - rows->first) * width,
                      .columns = width,
                      .x_step = g->stride[1] * LANES,
                      .x_skip = (g->stride[0] * g->w - width * g->stride[1]) * LANES};

    if (ky[1] - ky[0] < g->kernel[0] || kx[1] - kx[0] < g->kernel[1]) {
        run.taps = job->border;
        run.tap_count = list_taps(g, ky, kx, job->border);
    }
    if (run.tap_count > 0) {
        const int64_t y =
            rows->first * g->stride[0] - g->padding[0] + ky[0] * g->dilation[0];
        const int64_t x =
            columns->first * g->stride[1] - g->padding[1] + kx[0] * g->dilation[1];

        run.x += (y * g->w + x) * LANES;
    }
    run_groups(job, &run);
}

/* Rows rows[0] ... rows[1] - 1 by columns columns[0] ... columns[1] - 1 of a block;
 * target is where the first pixel goes. */
static void convolve(const conv2d_job *job, int64_t block, const int64_t rows[2],
                     const int64_t columns[2], conv2d_target target)
{
    conv2d_band across = {0}, down = {0};

    for (int64_t i = rows[0]; i < rows[1]; i = down.last) {
        down = conv2d_band_at(&job->g, 0, i, rows[1]);
        for (int64_t j = columns[0]; j < columns[1]; j = across.last) {
            const int64_t offset = (i - rows[0]) * job->g.ow + j - columns[0];

            across = conv2d_band_at(&job->g, 1, j, columns[1]);
            convolve_bands(job, block, &down, &across, target_at(target, offset * LANES));
        }
    }
}

/* Pixels first ... last - 1 of a block, counted through from row to row, of a convolution
 * without padding. */
static void convolve_pixels(const conv2d_job *job, int64_t block, int64_t first,
                            int64_t last, conv2d_target target)
{
    const conv2d_geometry *const g = &job->g;
    const int64_t row = first / g->ow, column = first % g->ow;
    conv2d_run run = {.taps = job->full,
                      .tap_count = g->taps,
                      .to = target,
                      .count = last - first,
                      .column = column,
                      .columns = g->ow,
                      .x_step = g->stride[1] * LANES,
                      .x_skip = (g->stride[0] * g->w - g->ow * g->stride[1]) * LANES};

    run.x = job->x + (block * g->groups * g->c * g->h * g->w + row * g->stride[0] * g->w +
                      column * g->stride[1]) *
                         LANES;
    run_groups(job, &run);
}

/* --- kernels ------------------------------------------------------------------------ */

static bool conv2d_accepts(const sonde__op_call *call)
{
    return lanes_is_f32(&call->in[0].shape, 4) && lanes_is_f32(&call->in[1].shape, 4) &&
           (call->in_count < 3 || lanes_is_f32(&call->in[2].shape, 1));
}

static conv2d_geometry call_geometry(const sonde__op_call *call)
{
    return conv2d_geometry_of(&call->in[0].shape, &call->in[1].shape, call->attrs);
}

static size_t lists_size(const conv2d_geometry *g)
{
    return lanes_aligned(2 * (size_t)g->taps * sizeof(conv2d_tap));
}

static size_t conv2d_scratch(const sonde__op_call *call, int parts)
{
    const conv2d_geometry g = call_geometry(call);

    return lists_size(&g) * (size_t)parts;
}

/* scratch: lists_size bytes for this part alone */
static conv2d_job start_job(const sonde__op_call *call, void *scratch)
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

static int conv2d_parts(const sonde__op_call *call, int max)
{
    const conv2d_geometry g = call_geometry(call);

    return lanes_parts(conv2d_operations(&g), g.blocks * g.oh, max);
}

/* A part is a range of pixels, or of rows if there is padding, counted through all
 * blocks. */
static void convolve_part(const sonde__op_call *call, float *y, float *relu, int part,
                          int parts)
{
    const conv2d_geometry g = call_geometry(call);
    const conv2d_job job =
        start_job(call, (char *)call->scratch + (size_t)part * lists_size(&g));
    const bool padded = conv2d_is_padded(&g);
    const int64_t pixels = g.oh * g.ow, units = padded ? g.oh : pixels;
    const int64_t columns[2] = {0, g.ow};
    int64_t first, last;

    lanes_split(g.blocks * units, part, parts, &first, &last);
    while (first < last) {
        const int64_t block = first / units;
        const int64_t range[2] = {first - block * units,
                                  SONDE_MIN(units, last - block * units)};
        const int64_t begin = padded ? range[0] * g.ow : range[0];
        const conv2d_target all = {y, relu, pixels * LANES},
                            target = target_at(
                                all, (block * g.groups * g.o * pixels + begin) * LANES);

        if (padded) {
            convolve(&job, block, range, columns, target);
        } else {
            convolve_pixels(&job, block, range[0], range[1], target);
        }
        first = block * units + range[1];
    }
}

static void conv2d_run_lanes(const sonde__op_call *call, int part, int parts)
{
    convolve_part(call, lanes_out(call, 0), NULL, part, parts);
}

static void conv2d_relu_run_lanes(const sonde__op_call *call, int part, int parts)
{
    convolve_part(call, lanes_out(call, 0), lanes_out(call, 1), part, parts);
    relu_vitals_run(call, parts);
}

#include "nn/kernels/conv2d_windows.h"

/* --- rows of the table -------------------------------------------------------------- */

SONDE__ISA_KERNEL(conv2d, "lanes", conv2d_accepts, (SONDE__LANES), (SONDE__LANES),
                  conv2d_run_lanes, .scratch = conv2d_scratch, .parts = conv2d_parts)
SONDE__ISA_KERNEL(conv2d_relu, "lanes", conv2d_accepts, (SONDE__LANES),
                  (SONDE__LANES, SONDE__LANES), conv2d_relu_run_lanes,
                  .scratch = conv2d_scratch, .parts = conv2d_parts,
                  .vitals_out = 1U << 0 | 1U << 1, .vitals_kept = 1U << 0,
                  .finish = relu_vitals_finish)
SONDE__ISA_KERNEL(conv2d_relu_pool, "lanes", pool_accepts, (SONDE__LANES),
                  (SONDE__LANES, SONDE__LANES, SONDE__LANES, SONDE__LANES),
                  conv2d_relu_pool_run_lanes, .scratch = pool_scratch,
                  .parts = pool_parts, .tells = pool_tells, .finish = pool_finish)

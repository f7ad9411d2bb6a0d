/*
 * conv2d_weight_kernels.c - weight and bias gradients of a convolution over LANES, alone
 * and fused with the gradients of the max-pool and the ReLU that follow it.
 *
 *   dw[o][c][k][l] = sum over samples and pixels (i, j) of
 *       dy[o][i][j] x[c][i s - p + k d][j s - p + l d]
 *   db[o] = sum over samples and pixels of dy[o][i][j]
 */
#include "base/isa.h"
#include "base/macros.h"
#include "nn/kernels/conv2d_weight_tile.h"
#include "nn/kernels/fast.h"
#include "nn/kernels/operand_vitals.h"

/* --- weight gradient ---------------------------------------------------------------- */

/* dy and x in, dw out */
static conv2d_geometry weight_geometry(const sonde__op_call *call)
{
    return conv2d_geometry_of(&call->in[1].shape, &call->out[0].shape, call->attrs);
}

static bool weight_accepts(const sonde__op_call *call)
{
    return lanes_is_f32(&call->in[0].shape, 4) && lanes_is_f32(&call->in[1].shape, 4) &&
           lanes_is_f32(&call->out[0].shape, 4);
}

/* Sums of a tile of channels, twice, and the plan's tables. */
static size_t weight_part_size(const weight_plan *p)
{
    return plan_size(p) + 2 * (size_t)(TILE_CHANNELS * p->g.taps) * LANES * sizeof(float);
}

static size_t weight_scratch(const sonde__op_call *call, int parts)
{
    const conv2d_geometry g = weight_geometry(call);
    const weight_plan p = outline_plan(&g);

    return weight_part_size(&p) * (size_t)parts;
}

static int weight_parts(const sonde__op_call *call, int max)
{
    const conv2d_geometry g = weight_geometry(call);
    const weight_plan p = outline_plan(&g);

    return lanes_parts(conv2d_operations(&g), g.groups * p.channel_tiles * p.tap_tiles,
                       max);
}

/* What a part works with. */
typedef struct weight_job {
    weight_plan plan;
    const float *dy, *x;
    float *dw;
    float *sums, *former; /* of a tile of channels */
} weight_job;

/* Tap tiles first ... last - 1 of `channels` channels from o on, of a group. */
static void weight_tap_tiles(const weight_job *job, int64_t group, int64_t o,
                             int64_t channels, int64_t first, int64_t last)
{
    const weight_plan *const p = &job->plan;
    const conv2d_geometry *const g = &p->g;
    const int64_t area = g->oh * g->ow, begin = p->tiles[first].first;
    const int64_t taps = p->tiles[last - 1].first + p->tiles[last - 1].count - begin;

    for (int64_t block = 0; block < g->blocks; block++) {
        const int64_t at = block * g->groups + group;
        const weight_rows in = {.dy = job->dy + (at * g->o + o) * area * LANES,
                                .x = job->x + at * g->c * g->h * g->w * LANES,
                                .dy_plane = area * LANES,
                                .rows = g->oh,
                                .channels = channels};

        begin_block(g->samples, block, job->sums, channels * taps, job->former);
        for (const tap_tile *t = p->tiles + first; t < p->tiles + last; t++) {
            sum_rows(p, &in, t, block == 0,
                     job->sums + (t->first - begin) * channels * LANES);
        }
        end_block(g->samples, block, job->sums, channels * taps, job->former);
    }
    for (const tap_tile *t = p->tiles + first; t < p->tiles + last; t++) {
        store_weights(job->sums + (t->first - begin) * channels * LANES, channels,
                      t->count, job->dw + (group * g->o + o) * g->taps + t->first,
                      g->taps);
    }
}

/* Tap tiles first ... last - 1 of a tile of channels, counted through all groups. One
 * block: each tile is finished while its sums are in cache. Several: all tap tiles go
 * over a block before the next one is read. */
static void weight_channels(const weight_job *job, int64_t channel_tile, int64_t first,
                            int64_t last)
{
    const weight_plan *const p = &job->plan;
    const int64_t group = channel_tile / p->channel_tiles;
    const int64_t step = p->g.blocks == 1 ? 1 : last - first;
    int64_t o, channels;

    channel_range(p, channel_tile - group * p->channel_tiles, &o, &channels);
    for (; first < last; first += step) {
        weight_tap_tiles(job, group, o, channels, first, first + step);
    }
}

/* A part is a range of tiles. */
static void weight_run(const sonde__op_call *call, int part, int parts)
{
    const conv2d_geometry g = weight_geometry(call);
    weight_job job = {.plan = outline_plan(&g),
                      .dy = lanes_in(call, 0),
                      .x = lanes_in(call, 1),
                      .dw = lanes_out(call, 0)};
    const size_t size = weight_part_size(&job.plan);
    char *const scratch = (char *)call->scratch + (size_t)part * size;
    const int64_t per_tile = job.plan.tap_tiles;
    int64_t first, last;

    complete_plan(&job.plan, scratch);
    job.sums = (float *)(void *)(scratch + plan_size(&job.plan));
    job.former = job.sums + TILE_CHANNELS * g.taps * LANES;
    lanes_split(g.groups * job.plan.channel_tiles * per_tile, part, parts, &first, &last);
    while (first < last) {
        const int64_t tile = first / per_tile, begin = first - tile * per_tile;
        const int64_t end = SONDE_MIN(per_tile, last - tile * per_tile);

        weight_channels(&job, tile, begin, end);
        first = tile * per_tile + end;
    }
}

/* --- sums of channels --------------------------------------------------------------- */

/*
 * A channel has two sums, of its even rows and of its odd ones, each pixel after pixel:
 * two chains of additions, and an order in which rows of windows give theirs, too.
 */
enum { CHANNEL_SUMS = 2 };

/* sums[channels][2][16] += rows of pixels, the first of them even */
VEC_INLINE void sum_planes_of(const float *from, int64_t plane, int64_t rows,
                              int64_t columns, float *sums, const int channels)
{
    vf acc[CHANNEL_SUMS * 2];

    VEC_UNROLL
    for (int i = 0; i < CHANNEL_SUMS * channels; i++) {
        acc[i] = vf_load(sums + i * LANES);
    }
    for (; rows >= 2; rows -= 2) {
        for (int64_t j = 0; j < columns; j++) {
            VEC_UNROLL
            for (int i = 0; i < CHANNEL_SUMS * channels; i++) {
                acc[i] += vf_load(from + i / 2 * plane + i % 2 * columns * LANES);
            }
            from += LANES;
        }
        from += columns * LANES;
    }
    for (int64_t j = 0; j < rows * columns; j++) {
        VEC_UNROLL
        for (int c = 0; c < channels; c++) {
            acc[2 * c] += vf_load(from + c * plane);
        }
        from += LANES;
    }
    VEC_UNROLL
    for (int i = 0; i < CHANNEL_SUMS * channels; i++) {
        vf_store(sums + i * LANES, acc[i]);
    }
}

static void sum_planes(const float *from, int64_t plane, int64_t rows, int64_t columns,
                       float *sums, int64_t channels)
{
    for (int lane = 0; lane < LANES; lane += VF_WIDTH) {
        int64_t c = 0;

        for (; c + 2 <= channels; c += 2) {
            sum_planes_of(from + c * plane + lane, plane, rows, columns,
                          sums + c * CHANNEL_SUMS * LANES + lane, 2);
        }
        if (c < channels) {
            sum_planes_of(from + c * plane + lane, plane, rows, columns,
                          sums + c * CHANNEL_SUMS * LANES + lane, 1);
        }
    }
}

/* to[c] = the sum of both sums of channel c, over lanes */
static void store_channel_sums(const float *sums, int64_t channels, float *to)
{
    for (int64_t c = 0; c < channels; c++) {
        to[c] = v16_sum(v16_add(v16_load(sums + c * CHANNEL_SUMS * LANES),
                                v16_load(sums + (c * CHANNEL_SUMS + 1) * LANES)));
    }
}

static bool sum_accepts(const sonde__op_call *call)
{
    return lanes_is_f32(&call->in[0].shape, -1) && call->in[0].shape.rank >= 2;
}

static int sum_parts(const sonde__op_call *call, int max)
{
    const sonde__op_shape *const dy = &call->in[0].shape;

    return lanes_parts((double)(lanes_inner(dy) * lanes_blocks(dy->dim[0])) * LANES,
                       dy->dim[1], max);
}

/* A part is a range of channels. */
static void sum_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__op_shape *const dy = &call->in[0].shape;
    const int64_t channels = dy->dim[1], samples = dy->dim[0];
    const int64_t columns = dy->rank > 2 ? dy->dim[dy->rank - 1] : 1;
    float *const to = lanes_out(call, 0);
    int64_t pixels = 1, first, last;

    for (int i = 2; i < dy->rank; i++) {
        pixels *= dy->dim[i];
    }
    lanes_split(channels, part, parts, &first, &last);
    for (int64_t c = first; c < last; c += 4) {
        const int64_t count = SONDE_MIN(last - c, (int64_t)4);
        float sums[4 * CHANNEL_SUMS * LANES] = {0}, former[4 * CHANNEL_SUMS * LANES];

        for (int64_t block = 0; block < lanes_blocks(samples); block++) {
            begin_block(samples, block, sums, CHANNEL_SUMS * count, former);
            sum_planes(lanes_in(call, 0) + (block * channels + c) * pixels * LANES,
                       pixels * LANES, pixels / columns, columns, sums, count);
            end_block(samples, block, sums, CHANNEL_SUMS * count, former);
        }
        store_channel_sums(sums, count, to + c);
    }
}

#include "nn/kernels/conv2d_weight_fused.h"

/* --- rows of the table -------------------------------------------------------------- */

const sonde__kernel_conv2d_weight_kernels ISA(sonde__kernel_conv2d_weight) = {
    .weight = {.name = "lanes",
               .accepts = weight_accepts,
               .in = {SONDE__LANES, SONDE__LANES},
               .scratch = weight_scratch,
               .parts = weight_parts,
               .run = weight_run},
    .channel_sum = {.name = "lanes",
                    .accepts = sum_accepts,
                    .in = {SONDE__LANES},
                    .parts = sum_parts,
                    .run = sum_run},
    .pool_relu = {.name = "lanes",
                  .accepts = fused_accepts,
                  .in = {SONDE__LANES, SONDE__LANES, SONDE__LANES, SONDE__LANES},
                  .out = {SONDE__LANES, SONDE__LANES},
                  .scratch = fused_scratch,
                  .parts = fused_parts,
                  .vitals_out = 1U << 0 | 1U << 1,
                  .run = fused_run,
                  .finish = fused_finish},
};

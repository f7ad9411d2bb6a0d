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
#include "nn/kernels/call.h"

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

/* A channel has two sums, see below. */
enum { CHANNEL_SUMS = 2 };

/* What a part works with, of the weight gradient alone or fused. */
typedef struct weight_memory {
    float *sums,
        *former; /* of a tile of channels: [channels * taps][16]; of db if fused */
    float *rows; /* fused: [channels][2, or oh if padded][ow][16] */
} weight_memory;

/* Lays out a part's memory and the plan's tables at `start`, or nowhere; returns the size. */
static size_t lay_out(weight_plan *p, bool fused, weight_memory *m, char *start)
{
    const int64_t sums = p->g.taps + (fused ? CHANNEL_SUMS : 0);
    const int64_t rows = !fused ? 0 : conv2d_is_padded(&p->g) ? p->g.oh : 2;
    const int64_t tile = TILE_CHANNELS * LANES;
    size_t used = 0;

    place_tables(p, start, &used);
    m->sums = sonde__op_take(start, &used, tile * sums, sizeof(float));
    m->former = sonde__op_take(start, &used, tile * sums, sizeof(float));
    m->rows = sonde__op_take(start, &used, tile * rows * p->g.ow, sizeof(float));
    return used;
}

static size_t scratch_of(const conv2d_geometry *g, bool fused, int parts)
{
    weight_plan p = outline_plan(g);
    weight_memory unused;

    return lay_out(&p, fused, &unused, NULL) * (size_t)parts;
}

/* The plan and the memory of a part. */
static weight_plan plan_of(const conv2d_geometry *g, bool fused,
                           const sonde__op_call *call, int part, weight_memory *m)
{
    weight_plan p = outline_plan(g);
    const size_t bytes = lay_out(&p, fused, m, NULL);

    (void)lay_out(&p, fused, m, (char *)call->scratch + bytes * (size_t)part);
    complete_plan(&p);
    return p;
}

static size_t weight_scratch(const sonde__op_call *call, int parts)
{
    const conv2d_geometry g = weight_geometry(call);

    return scratch_of(&g, false, parts);
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
    weight_memory m;
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
        const int64_t offset = block * g->groups + group;
        const weight_rows in = {.dy = job->dy + (offset * g->o + o) * area * LANES,
                                .x = job->x + offset * g->c * g->h * g->w * LANES,
                                .dy_plane = area * LANES,
                                .rows = g->oh,
                                .channels = channels};

        begin_block(g->samples, block, job->m.sums, channels * taps, job->m.former);
        for (const tap_tile *t = p->tiles + first; t < p->tiles + last; t++) {
            sum_rows(p, &in, t, block == 0,
                     job->m.sums + (t->first - begin) * channels * LANES);
        }
        end_block(g->samples, block, job->m.sums, channels * taps, job->m.former);
    }
    for (const tap_tile *t = p->tiles + first; t < p->tiles + last; t++) {
        store_weights(job->m.sums + (t->first - begin) * channels * LANES, channels,
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
    weight_job job = {
        .dy = lanes_in(call, 0), .x = lanes_in(call, 1), .dw = lanes_out(call, 0)};
    int64_t first, last, per_tile;

    job.plan = plan_of(&g, false, call, part, &job.m);
    per_tile = job.plan.tap_tiles;
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

/* sums[channels][2][16] += rows of pixels, the first of them even */
VEC_INLINE void sum_planes_of(const float *source, int64_t plane, int64_t rows,
                              int64_t columns, float *sums, const int channels)
{
    vf acc[CHANNEL_SUMS * 2];

    VEC_EACH (i, CHANNEL_SUMS * channels) {
        acc[i] = vf_load(sums + i * LANES);
    }
    for (; rows >= 2; rows -= 2) {
        for (int64_t j = 0; j < columns; j++) {
            VEC_EACH (i, CHANNEL_SUMS * channels) {
                acc[i] += vf_load(source + i / 2 * plane + i % 2 * columns * LANES);
            }
            source += LANES;
        }
        source += columns * LANES;
    }
    for (int64_t j = 0; j < rows * columns; j++) {
        VEC_EACH (c, channels) {
            acc[2 * c] += vf_load(source + c * plane);
        }
        source += LANES;
    }
    VEC_EACH (i, CHANNEL_SUMS * channels) {
        vf_store(sums + i * LANES, acc[i]);
    }
}

static void sum_planes(const float *source, int64_t plane, int64_t rows, int64_t columns,
                       float *sums, int64_t channels)
{
    for (int lane = 0; lane < LANES; lane += VF_WIDTH) {
        int64_t c = 0;

        for (; c + 2 <= channels; c += 2) {
            sum_planes_of(source + c * plane + lane, plane, rows, columns,
                          sums + c * CHANNEL_SUMS * LANES + lane, 2);
        }
        if (c < channels) {
            sum_planes_of(source + c * plane + lane, plane, rows, columns,
                          sums + c * CHANNEL_SUMS * LANES + lane, 1);
        }
    }
}

/* to[c] = the sum of both sums of channel c, over lanes */
static void store_channel_sums(const float *sums, int64_t channels, float *target)
{
    for (int64_t c = 0; c < channels; c++) {
        target[c] = v16_sum(v16_add(v16_load(sums + c * CHANNEL_SUMS * LANES),
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
    float *const target = lanes_out(call, 0);
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
        store_channel_sums(sums, count, target + c);
    }
}

/* --- max-pool, ReLU and convolution in one ------------------------------------------ */

/*
 * The pooled gradient is expanded to two rows of dy at a time, in cache, and these go the
 * way of the separate op, so the bits are its own: zeros are added like others, and a
 * zero times an Inf in x is NaN in both.
 */

/* One row of windows of some channels, expanded to two rows of pixels. */
typedef struct expand_row {
    const float *dy, *y; /* of the pool: the row's first window */
    const uint8_t *index;
    float *relu, *conv; /* gradients; relu may be NULL */
    float *sums;        /* [channels][2][16], see above */
    int64_t windows, window_plane, columns, conv_plane, relu_plane, channels;
} expand_row;

static void expand_channel(const expand_row *row, int64_t c, int lane)
{
    const int64_t source = c * row->window_plane + lane, down = row->columns * LANES;
    float *const conv = row->conv + c * row->conv_plane + lane;
    float *const relu = row->relu == NULL ? NULL : row->relu + c * row->relu_plane + lane;
    float *const sums = row->sums + c * CHANNEL_SUMS * LANES + lane;
    vf even = vf_load(sums), odd = vf_load(sums + LANES);

    for (int64_t i = 0; i < row->windows; i++) {
        const vf dy = vf_load(row->dy + source + i * LANES);
        const vf gated = vf_gate(vf_load(row->y + source + i * LANES), dy);
        const vi index = vi_load_u8(row->index + source + i * LANES);
        vf part[4];

        VEC_EACH (k, 4) {
            const vm here = vm_equal(index, vi_set1(k));
            const int64_t target = (2 * i + k % 2) * LANES + k / 2 * down;

            part[k] = vf_keep(here, gated);
            vf_store(conv + target, part[k]);
            if (relu != NULL) {
                vf_store(relu + target, vf_keep(here, dy));
            }
        }
        /* Of both pixels one is +0 in every lane, and adding it would change nothing. */
        even += (vf)((vi)part[0] | (vi)part[1]);
        odd += (vf)((vi)part[2] | (vi)part[3]);
    }
    vf_store(sums, even);
    vf_store(sums + LANES, odd);
}

static void zero_pixels(float *target, int64_t count)
{
    if (target != NULL) {
        memset(target, 0, (size_t)count * LANES * sizeof(float));
    }
}

static void expand(const expand_row *row)
{
    for (int64_t c = 0; c < row->channels; c++) {
        for (int lane = 0; lane < LANES; lane += VF_WIDTH) {
            expand_channel(row, c, lane);
        }
        for (int64_t i = 0; i < 2 && row->columns % 2 == 1; i++) { /* in no window */
            const int64_t offset = ((i + 1) * row->columns - 1) * LANES;

            zero_pixels(row->conv + c * row->conv_plane + offset, 1);
            zero_pixels(
                row->relu == NULL ? NULL : row->relu + c * row->relu_plane + offset, 1);
        }
    }
}

/* The op's operands, and a part's memory. */
typedef struct fused_job {
    weight_plan plan;
    const float *dy, *y, *x;
    const uint8_t *index;
    float *relu, *conv, *dw, *db; /* all but dw may be NULL */
    weight_memory m;              /* sums of dw, then of db; rows unless conv is wanted */
} fused_job;

static void fused_sum(const fused_job *job, const weight_rows *in, bool fresh)
{
    for (int64_t i = 0; i < job->plan.tap_tiles; i++) {
        const tap_tile *const tile = &job->plan.tiles[i];

        sum_rows(&job->plan, in, tile, fresh,
                 job->m.sums + tile->first * in->channels * LANES);
    }
}

/* Expands row i of windows of channels o ...; conv and relu are where the upper row of
 * pixels goes, relu may be NULL. */
static void fused_expand(const fused_job *job, int64_t block, int64_t o, int64_t i,
                         const weight_rows *in, float *conv, float *relu)
{
    const conv2d_geometry *const g = &job->plan.g;
    const int64_t pw = g->ow / 2, windows = g->oh / 2 * pw;
    const int64_t offset = ((block * g->groups * g->o + o) * windows + i * pw) * LANES;
    const expand_row row = {.dy = job->dy + offset,
                            .y = job->y + offset,
                            .index = job->index + offset,
                            .relu = relu,
                            .conv = conv,
                            .sums = job->m.sums + in->channels * g->taps * LANES,
                            .windows = pw,
                            .window_plane = windows * LANES,
                            .columns = g->ow,
                            .conv_plane = in->dy_plane,
                            .relu_plane = g->oh * g->ow * LANES,
                            .channels = in->channels};

    if (2 * i + 1 < g->oh) {
        expand(&row);
        return;
    }
    for (int64_t c = 0; c < in->channels; c++) { /* a last row in no window */
        zero_pixels(conv + c * row.conv_plane, g->ow);
        zero_pixels(relu == NULL ? NULL : relu + c * row.relu_plane, g->ow);
    }
}

/* Channels o ... o + channels - 1 of one block; x is that of their group. Two rows of dy
 * at a time; all of them first if there is padding, where a sum does not take rows in
 * order. */
static void fused_block(const fused_job *job, int64_t block, int64_t o, int64_t channels,
                        const float *x)
{
    const conv2d_geometry *const g = &job->plan.g;
    const bool whole = conv2d_is_padded(g) || job->conv != NULL;
    const int64_t plane = g->oh * g->ow * LANES,
                  first = (block * g->groups * g->o + o) * plane;
    float *const rows = job->conv != NULL ? job->conv + first : job->m.rows;
    weight_rows in = {.dy = rows,
                      .x = x,
                      .dy_plane = whole ? plane : 2 * g->ow * LANES,
                      .channels = channels};

    for (int64_t i = 0; 2 * i < g->oh; i++) {
        const int64_t offset = 2 * i * g->ow * LANES;
        float *const conv = whole ? rows + offset : rows;

        fused_expand(job, block, o, i, &in, conv,
                     job->relu == NULL ? NULL : job->relu + first + offset);
        if (!conv2d_is_padded(g)) {
            in.dy = conv;
            in.first_row = 2 * i;
            in.rows = SONDE_MIN(g->oh - 2 * i, (int64_t)2);
            fused_sum(job, &in, block == 0 && i == 0);
        }
    }
    if (conv2d_is_padded(g)) {
        in.rows = g->oh;
        fused_sum(job, &in, block == 0);
    }
}

static conv2d_geometry fused_geometry(const sonde__op_call *call)
{
    return conv2d_geometry_of(&call->in[3].shape, &call->out[2].shape, call->attrs);
}

static bool fused_accepts(const sonde__op_call *call)
{
    const sonde__op_shape *const dy = &call->in[0].shape;
    conv2d_geometry g;

    if (!lanes_is_f32(dy, 4) || !lanes_is_f32(&call->in[3].shape, 4) ||
        !lanes_is_f32(&call->out[2].shape, 4)) {
        return false;
    }
    g = fused_geometry(call);
    return dy->dim[2] == g.oh / 2 && dy->dim[3] == g.ow / 2;
}

static size_t fused_scratch(const sonde__op_call *call, int parts)
{
    const conv2d_geometry g = fused_geometry(call);

    return scratch_of(&g, true, parts);
}

static int fused_parts(const sonde__op_call *call, int max)
{
    const conv2d_geometry g = fused_geometry(call);
    const weight_plan p = outline_plan(&g);

    return lanes_parts(conv2d_operations(&g), g.groups * p.channel_tiles, max);
}

static void fused_store(const fused_job *job, int64_t o, int64_t channels)
{
    const weight_plan *const p = &job->plan;
    const int64_t taps = p->g.taps;

    for (int64_t i = 0; i < p->tap_tiles; i++) {
        const tap_tile *const tile = &p->tiles[i];

        store_weights(job->m.sums + tile->first * channels * LANES, channels, tile->count,
                      job->dw + o * taps + tile->first, taps);
    }
    if (job->db != NULL) {
        store_channel_sums(job->m.sums + channels * taps * LANES, channels, job->db + o);
    }
}

/* A tile of channels, counted through all groups. */
static void fused_channels(const fused_job *job, int64_t channel_tile)
{
    const conv2d_geometry *const g = &job->plan.g;
    const int64_t group = channel_tile / job->plan.channel_tiles;
    int64_t o, channels, rows;

    channel_range(&job->plan, channel_tile - group * job->plan.channel_tiles, &o,
                  &channels);
    o += group * g->o;
    rows = channels * (g->taps + CHANNEL_SUMS);
    memset(job->m.sums, 0, (size_t)rows * LANES * sizeof(float));
    for (int64_t block = 0; block < g->blocks; block++) {
        begin_block(g->samples, block, job->m.sums, rows, job->m.former);
        fused_block(job, block, o, channels,
                    job->x + (block * g->groups + group) * g->c * g->h * g->w * LANES);
        end_block(g->samples, block, job->m.sums, rows, job->m.former);
    }
    fused_store(job, o, channels);
}

static void gate_elements(const float *x, const float *gate, size_t n, float *target)
{
    for (size_t i = 0; i < n; i += VF_WIDTH) {
        vf_store(target + i, vf_gate(vf_load(gate + i), vf_load(x + i)));
    }
}

/* Vital signs of the gradients that are spread: every window's goes to one pixel, the
 * rest are zeros. */
static void fused_finish(const sonde__op_call *call, int parts)
{
    (void)parts;
    if (call->out_vitals[0] != NULL) {
        sonde__kernel_operand_vitals(&call->in[0], sonde__op_wants_norms(call, 1U << 0),
                                     call->out_vitals[0]);
        sonde__kernel_pad_vitals(call->out_vitals[0],
                                 sonde__op_shape_count(&call->out[0].shape));
    }
    if (call->out_vitals[1] != NULL) {
        sonde__kernel_gated_vitals(&call->in[0], call->in[2].data, gate_elements,
                                   sonde__op_wants_norms(call, 1U << 1),
                                   call->out_vitals[1]);
        sonde__kernel_pad_vitals(call->out_vitals[1],
                                 sonde__op_shape_count(&call->out[1].shape));
    }
}

/* A part is a range of tiles of channels. */
static void fused_run(const sonde__op_call *call, int part, int parts)
{
    const conv2d_geometry g = fused_geometry(call);
    fused_job job = {.dy = lanes_in(call, 0),
                     .index = (const uint8_t *)call->in[1].data,
                     .y = lanes_in(call, 2),
                     .x = lanes_in(call, 3),
                     .relu = lanes_out(call, 0),
                     .conv = lanes_out(call, 1),
                     .dw = lanes_out(call, 2),
                     .db = lanes_out(call, 3)};
    int64_t first, last;

    job.plan = plan_of(&g, true, call, part, &job.m);
    lanes_split(g.groups * job.plan.channel_tiles, part, parts, &first, &last);
    for (int64_t tile = first; tile < last; tile++) {
        fused_channels(&job, tile);
    }
    if (parts == 1) {
        fused_finish(call, 1);
    }
}

/* --- rows of the table -------------------------------------------------------------- */

SONDE__ISA_KERNEL(conv2d_grad_weight, "lanes", weight_accepts,
                  (SONDE__LANES, SONDE__LANES), (SONDE__PLAIN), weight_run,
                  .scratch = weight_scratch, .parts = weight_parts)
SONDE__ISA_KERNEL(channel_sum, "lanes", sum_accepts, (SONDE__LANES), (SONDE__PLAIN),
                  sum_run, .parts = sum_parts)
SONDE__ISA_KERNEL(pool_relu_conv_grad, "lanes", fused_accepts,
                  (SONDE__LANES, SONDE__LANES, SONDE__LANES, SONDE__LANES),
                  (SONDE__LANES, SONDE__LANES), fused_run, .scratch = fused_scratch,
                  .parts = fused_parts, .vitals_out = 1U << 0 | 1U << 1,
                  .finish = fused_finish)

/*
 * conv2d_weight_kernels.h - weight and bias gradients of a convolution over LANES, alone
 * and fused with the gradients of the max-pool and the ReLU behind it.
 *
 *   dw[o][c][k][l] = sum over samples and pixels (i, j) of
 *       dy[o][i][j] x[c][i s - p + k d][j s - p + l d]
 *   db[o] = sum over samples and pixels of dy[o][i][j]
 *
 * A tile keeps (output channels) x (taps) accumulators in registers, one vector over
 * lanes each, and goes over the pixels: each costs a load a channel and a load a tap.
 * Every sum runs over blocks in order, over pixels row by row, and last over lanes as
 * v16_sum does; of the last block only lanes that hold samples count.
 *
 * The fused kernel expands the pooled gradient to two rows of dy at a time and sends them
 * the same way, so its bits are those of the separate ops: zeros are added like others,
 * and a zero times an Inf in x is NaN in both.
 */
#include "nn/ops/conv2d_lanes.h"
#include "nn/ops/fast_conv.h"

/* --- tiles ---------------------------------------------------------------------------
 */

/* X(channels, taps), taps rising from 1 */
#if VF_WIDTH == 16 /* channels * taps + channels + 1 registers of 32 */
#define WEIGHT_TILES_1(X) X(1, 1) X(1, 2) X(1, 3) X(1, 4) X(1, 5) X(1, 6) X(1, 7) X(1, 8)
#define WEIGHT_TILES_2(X) X(2, 1) X(2, 2) X(2, 3) X(2, 4) X(2, 5) X(2, 6) X(2, 7) X(2, 8)
#define WEIGHT_TILES_3(X) X(3, 1) X(3, 2) X(3, 3) X(3, 4) X(3, 5) X(3, 6) X(3, 7) X(3, 8)
#define WEIGHT_TILES_4(X) X(4, 1) X(4, 2) X(4, 3) X(4, 4) X(4, 5) X(4, 6)
#define WEIGHT_TILES_5(X) X(5, 1) X(5, 2) X(5, 3) X(5, 4) X(5, 5)
enum { TILE_CHANNELS = 5, TILE_TAPS = 8 };
#else /* of 16 */
#define WEIGHT_TILES_1(X) X(1, 1) X(1, 2) X(1, 3) X(1, 4) X(1, 5) X(1, 6) X(1, 7) X(1, 8)
#define WEIGHT_TILES_2(X) X(2, 1) X(2, 2) X(2, 3) X(2, 4) X(2, 5) X(2, 6)
#define WEIGHT_TILES_3(X) X(3, 1) X(3, 2) X(3, 3) X(3, 4)
enum { TILE_CHANNELS = 3, TILE_TAPS = 8 };
#endif
enum { TILE_SUMS = 25, MAX_SPAN = 512 };

/* Pixels that lie behind each other in dy. x[t] is where tap t meets the first one, and
 * places[i] how far from there it meets pixel i: rows are short, and a loop over each
 * would end in a wrong guess. Lengths in floats. */
typedef struct weight_span {
    const float *dy;
    const float *x[TILE_TAPS];
    const int64_t *places;
    int64_t dy_plane, pixels;
    float *sums; /* [channels][taps][16], added to; channels lie sums_step apart */
    int64_t sums_step;
} weight_span;

VEC_INLINE void weight_tile(const weight_span *span, const int channels, const int taps)
{
    const int64_t *place = span->places, *const end = place + span->pixels;
    const float *dy = span->dy;
    const float *x[TILE_TAPS];
    vf acc[TILE_SUMS];

    VEC_UNROLL
    for (int i = 0; i < channels * taps; i++) {
        acc[i] = vf_load(span->sums + i / taps * span->sums_step + i % taps * LANES);
    }
    VEC_UNROLL
    for (int t = 0; t < taps; t++) {
        x[t] = span->x[t];
    }
    for (; place < end; place++, dy += LANES) {
        vf d[TILE_CHANNELS];

        VEC_UNROLL
        for (int o = 0; o < channels; o++) {
            d[o] = vf_load(dy + o * span->dy_plane);
        }
        VEC_UNROLL
        for (int t = 0; t < taps; t++) {
            const vf v = vf_load(x[t] + *place);

            VEC_UNROLL
            for (int o = 0; o < channels; o++) {
                acc[o * taps + t] = vf_fma(d[o], v, acc[o * taps + t]);
            }
        }
    }
    VEC_UNROLL
    for (int i = 0; i < channels * taps; i++) {
        vf_store(span->sums + i / taps * span->sums_step + i % taps * LANES, acc[i]);
    }
}

#define DEFINE_WEIGHT_TILE(channels, taps)                                               \
    static void weight_tile_##channels##_##taps(const weight_span *span)                 \
    {                                                                                    \
        weight_tile(span, channels, taps);                                               \
    }
#define LIST_WEIGHT_TILE(channels, taps) weight_tile_##channels##_##taps,

WEIGHT_TILES_1(DEFINE_WEIGHT_TILE)
WEIGHT_TILES_2(DEFINE_WEIGHT_TILE)
WEIGHT_TILES_3(DEFINE_WEIGHT_TILE)
#if VF_WIDTH == 16
WEIGHT_TILES_4(DEFINE_WEIGHT_TILE)
WEIGHT_TILES_5(DEFINE_WEIGHT_TILE)
#endif

typedef void (*weight_tile_fn)(const weight_span *span);

/* By channels - 1 and taps - 1. */
static const weight_tile_fn weight_tiles[TILE_CHANNELS][TILE_TAPS] = {
    {WEIGHT_TILES_1(LIST_WEIGHT_TILE)}, {WEIGHT_TILES_2(LIST_WEIGHT_TILE)},
    {WEIGHT_TILES_3(LIST_WEIGHT_TILE)},
#if VF_WIDTH == 16
    {WEIGHT_TILES_4(LIST_WEIGHT_TILE)}, {WEIGHT_TILES_5(LIST_WEIGHT_TILE)},
#endif
};

/* --- the plan: how the gradient is divided into tiles
 * -------------------------------------- */

/* Taps first ... first + count - 1. In a padded convolution they are of one row of the
 * kernel, (c, k, l ...), and all of them meet columns inside ... outside - 1 of dy. */
typedef struct tap_tile {
    int64_t first, count;
    int64_t k, l, inside, outside;
} tap_tile;

typedef struct weight_plan {
    conv2d_geometry g;
    bool padded;
    int64_t channel_tiles, tap_tiles; /* of one group */
    int64_t segments, per_segment;    /* taps are divided segment by segment into tiles */
    int64_t span_rows;                /* rows of dy that a tile goes over at once */
    tap_tile *tiles;
    int64_t *taps;   /* of each tap: how far it reaches into x */
    int64_t *places; /* of the pixels of span_rows rows: how far they lie in x */
} weight_plan;

/* All but the tables. */
static weight_plan outline_plan(const conv2d_geometry *g)
{
    weight_plan p = {.g = *g, .padded = g->padding[0] > 0 || g->padding[1] > 0};
    int64_t channels, most = TILE_TAPS;

    p.channel_tiles = (g->o + TILE_CHANNELS - 1) / TILE_CHANNELS;
    channels = (g->o + p.channel_tiles - 1) / p.channel_tiles;
    while (weight_tiles[channels - 1][most - 1] == NULL) {
        most--;
    }
    p.segments = p.padded ? g->c * g->kernel[0] : 1;
    p.per_segment = (g->taps / p.segments + most - 1) / most;
    p.tap_tiles = p.segments * p.per_segment;
    p.span_rows = SONDE_MIN(SONDE_MAX(MAX_SPAN / g->ow, (int64_t)1), g->oh);
    return p;
}

/* Bytes of the tables. */
static size_t plan_size(const weight_plan *p)
{
    const size_t size = (size_t)p->tap_tiles * sizeof(tap_tile) +
                        (size_t)(p->g.taps + p->span_rows * p->g.ow) * sizeof(int64_t);

    return (size + SONDE__ALIGN - 1) / SONDE__ALIGN * SONDE__ALIGN;
}

static void list_tiles(const weight_plan *p)
{
    const conv2d_geometry *const g = &p->g;
    const int64_t length = g->taps / p->segments;
    tap_tile *tile = p->tiles;

    for (int64_t segment = 0; segment < p->segments; segment++) {
        for (int64_t i = 0; i < p->per_segment; i++, tile++) {
            const int64_t l = length * i / p->per_segment;

            *tile = (tap_tile){.first = segment * length + l,
                               .count = length * (i + 1) / p->per_segment - l,
                               .k = segment % g->kernel[0],
                               .l = l,
                               .outside = g->ow};
            for (int64_t t = 0; p->padded && t < tile->count; t++) {
                int64_t begin, end;

                conv2d_output_range(g, 1, l + t, &begin, &end);
                tile->inside = SONDE_MAX(tile->inside, begin);
                tile->outside = SONDE_MIN(tile->outside, end);
            }
        }
    }
}

/* The tables lie at memory, plan_size bytes. */
static void complete_plan(weight_plan *p, void *memory)
{
    const conv2d_geometry *const g = &p->g;
    int64_t *to;

    p->tiles = memory;
    p->taps = (int64_t *)(void *)(p->tiles + p->tap_tiles);
    p->places = p->taps + g->taps;
    list_tiles(p);
    to = p->taps;
    for (int64_t c = 0; c < g->c; c++) {
        for (int64_t k = 0; k < g->kernel[0]; k++) {
            for (int64_t l = 0; l < g->kernel[1]; l++) {
                *to++ =
                    ((c * g->h + k * g->dilation[0]) * g->w + l * g->dilation[1]) * LANES;
            }
        }
    }
    to = p->places;
    for (int64_t i = 0; i < p->span_rows; i++) {
        for (int64_t j = 0; j < g->ow; j++) {
            *to++ = (i * g->stride[0] * g->w + j * g->stride[1]) * LANES;
        }
    }
}

static void channel_range(const weight_plan *p, int64_t tile, int64_t *first,
                          int64_t *count)
{
    *first = p->g.o * tile / p->channel_tiles;
    *count = p->g.o * (tile + 1) / p->channel_tiles - *first;
}

/* --- one tile over some rows
 * ------------------------------------------------------------- */

/* Rows of dy of `channels` channels, and all of x of their group, of one block. */
typedef struct weight_rows {
    const float *dy; /* the first channel's row first_row */
    const float *x;
    int64_t dy_plane, first_row, rows, channels;
} weight_rows;

/* Taps t ... t + taps - 1 over pixels that lie behind each other, the first at (row, j).
 */
static void sum_pixels(const weight_plan *p, const weight_rows *in, int64_t row,
                       int64_t j, int64_t pixels, int64_t t, int64_t taps, float *sums,
                       int64_t sums_step)
{
    const conv2d_geometry *const g = &p->g;
    const int64_t y = row * g->stride[0] - g->padding[0];
    const int64_t x = j * g->stride[1] - g->padding[1];
    const weight_tile_fn run = weight_tiles[in->channels - 1][taps - 1];
    weight_span span = {.dy = in->dy + ((row - in->first_row) * g->ow + j) * LANES,
                        .places = p->places,
                        .dy_plane = in->dy_plane,
                        .pixels = pixels,
                        .sums = sums,
                        .sums_step = sums_step};

    for (int lane = 0; lane < LANES; lane += VF_WIDTH) {
        for (int64_t i = 0; i < taps; i++) {
            span.x[i] = in->x + ((y * g->w + x) * LANES + p->taps[t + i] + lane);
        }
        run(&span);
        span.dy += VF_WIDTH;
        span.sums += VF_WIDTH;
    }
}

/* One row of a padded convolution: the columns that all taps meet at once, the others one
 * by one. Each sum takes its columns in order. */
static void sum_padded_row(const weight_plan *p, const weight_rows *in, int64_t row,
                           const tap_tile *tile, float *sums)
{
    const conv2d_geometry *const g = &p->g;
    const int64_t y = row * g->stride[0] - g->padding[0] + tile->k * g->dilation[0];

    if (y < 0 || y >= g->h) {
        return;
    }
    for (int64_t j = 0; j < g->ow;) {
        int64_t count = 1, first = tile->l, last = tile->l + tile->count;

        if (j == tile->inside && j < tile->outside) {
            count = tile->outside - j;
        } else {
            int64_t begin, end; /* taps that meet column j */

            conv2d_tap_range(g, 1, j, &begin, &end);
            first = SONDE_MAX(first, begin);
            last = SONDE_MIN(last, end);
        }
        if (first < last) {
            sum_pixels(p, in, row, j, count, tile->first + first - tile->l, last - first,
                       sums + (first - tile->l) * LANES, tile->count * LANES);
        }
        j += count;
    }
}

/* Adds what some rows give to the sums [channels][taps][16] of a tile. */
static void sum_rows(const weight_plan *p, const weight_rows *in, const tap_tile *tile,
                     float *sums)
{
    const int64_t end = in->first_row + in->rows, step = p->padded ? 1 : p->span_rows;

    for (int64_t row = in->first_row; row < end; row += step) {
        if (p->padded) {
            sum_padded_row(p, in, row, tile, sums);
        } else {
            sum_pixels(p, in, row, 0, SONDE_MIN(step, end - row) * p->g.ow, tile->first,
                       tile->count, sums, tile->count * LANES);
        }
    }
}

/* --- sums to gradients
 * ------------------------------------------------------------------- */

/* to[i] = the sum over lanes of row i of sums, i = 0 ... 15; rows past count are 0. */
static void sum_lanes(const float *sums, int64_t count, float to[16])
{
    v16 rows[16];

    for (int64_t i = 0; i < 16; i++) {
        rows[i] = i < count ? v16_load(sums + i * LANES) : v16_zero();
    }
    v16_store(to, v16_sums(rows));
}

/* The sums of a tile, whose first output is at dw; outputs lie dw_step apart. */
static void store_weights(const float *sums, int64_t channels, int64_t taps, float *dw,
                          int64_t dw_step)
{
    float part[(TILE_CHANNELS * TILE_TAPS + 15) / 16 * 16];

    for (int64_t i = 0; i < channels * taps; i += 16) {
        sum_lanes(sums + i * LANES, channels * taps - i, part + i);
    }
    for (int64_t o = 0; o < channels; o++) {
        memcpy(dw + o * dw_step, part + o * taps, (size_t)taps * sizeof(float));
    }
}

/* What the lanes of a block that hold no sample added is taken back: begin_block before,
 * end_block after. Only a last block has such lanes. */
static void begin_block(int64_t samples, int64_t block, const float *sums, int64_t rows,
                        float *former)
{
    if (lanes_valid(samples, block) < LANES) {
        memcpy(former, sums, (size_t)rows * LANES * sizeof(float));
    }
}

static void end_block(int64_t samples, int64_t block, float *sums, int64_t rows,
                      const float *former)
{
    if (lanes_valid(samples, block) < LANES) {
        lanes_restore(sums, former, rows, lanes_valid(samples, block));
    }
}

/* --- weight gradient
 * ----------------------------------------------------------------------- */

/* dy and x in, dw out */
static conv2d_geometry weight_geometry(const sonde__call *call)
{
    return conv2d_geometry_of(&call->in[1].shape, &call->out[0].shape, call->attrs);
}

static bool weight_accepts(const sonde__call *call)
{
    return lanes_is_f32(&call->in[0].shape, 4) && lanes_is_f32(&call->in[1].shape, 4) &&
           lanes_is_f32(&call->out[0].shape, 4);
}

/* Sums of a tile of channels, twice, and the plan's tables. */
static size_t weight_part_size(const weight_plan *p)
{
    return plan_size(p) + 2 * (size_t)(TILE_CHANNELS * p->g.taps) * LANES * sizeof(float);
}

static size_t weight_scratch(const sonde__call *call, int parts)
{
    const conv2d_geometry g = weight_geometry(call);
    const weight_plan p = outline_plan(&g);

    return weight_part_size(&p) * (size_t)parts;
}

static int weight_parts(const sonde__call *call, int max)
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

/* Tap tiles first ... last - 1 of a tile of channels, counted through all groups. */
static void weight_tap_tiles(const weight_job *job, int64_t channel_tile, int64_t first,
                             int64_t last)
{
    const weight_plan *const p = &job->plan;
    const conv2d_geometry *const g = &p->g;
    const tap_tile *const tiles = p->tiles;
    const int64_t group = channel_tile / p->channel_tiles, area = g->oh * g->ow;
    const int64_t begin = tiles[first].first;
    const int64_t taps = tiles[last - 1].first + tiles[last - 1].count - begin;
    int64_t o, channels;

    channel_range(p, channel_tile - group * p->channel_tiles, &o, &channels);
    memset(job->sums, 0, (size_t)(channels * taps) * LANES * sizeof(float));
    for (int64_t block = 0; block < g->blocks; block++) {
        const int64_t at = block * g->groups + group;
        const weight_rows in = {.dy = job->dy + (at * g->o + o) * area * LANES,
                                .x = job->x + at * g->c * g->h * g->w * LANES,
                                .dy_plane = area * LANES,
                                .rows = g->oh,
                                .channels = channels};

        begin_block(g->samples, block, job->sums, channels * taps, job->former);
        for (int64_t i = first; i < last; i++) {
            sum_rows(p, &in, &tiles[i],
                     job->sums + (tiles[i].first - begin) * channels * LANES);
        }
        end_block(g->samples, block, job->sums, channels * taps, job->former);
    }
    for (int64_t i = first; i < last; i++) {
        store_weights(job->sums + (tiles[i].first - begin) * channels * LANES, channels,
                      tiles[i].count,
                      job->dw + (group * g->o + o) * g->taps + tiles[i].first, g->taps);
    }
}

/* A part is a range of tiles. One block: each tile is finished while its sums are in
 * cache. Several: all tap tiles of some channels go over a block before the next one is
 * read. */
static void weight_run(const sonde__call *call, int part, int parts)
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
        const int64_t rest = last - tile * per_tile;
        const int64_t end = g.blocks == 1 ? begin + 1 : SONDE_MIN(per_tile, rest);

        weight_tap_tiles(&job, tile, begin, end);
        first = tile * per_tile + end;
    }
}

/* --- sums of channels
 * ---------------------------------------------------------------------- */

/* sums[c][lane] += all pixels of channel c, one after the other */
VEC_INLINE void sum_planes_of(const float *from, int64_t plane, int64_t pixels,
                              float *sums, const int channels)
{
    for (int lane = 0; lane < LANES; lane += VF_WIDTH) {
        const float *p = from + lane;
        vf acc[TILE_CHANNELS];

        VEC_UNROLL
        for (int c = 0; c < channels; c++) {
            acc[c] = vf_load(sums + c * LANES + lane);
        }
        for (int64_t i = 0; i < pixels; i++) {
            VEC_UNROLL
            for (int c = 0; c < channels; c++) {
                acc[c] += vf_load(p + c * plane);
            }
            p += LANES;
        }
        VEC_UNROLL
        for (int c = 0; c < channels; c++) {
            vf_store(sums + c * LANES + lane, acc[c]);
        }
    }
}

static void sum_planes(const float *from, int64_t plane, int64_t pixels, float *sums,
                       int64_t channels)
{
    if (channels == TILE_CHANNELS) {
        sum_planes_of(from, plane, pixels, sums, TILE_CHANNELS);
        return;
    }
    for (; channels > 1; channels -= 2) {
        sum_planes_of(from, plane, pixels, sums, 2);
        from += 2 * plane;
        sums += 2 * LANES;
    }
    if (channels == 1) {
        sum_planes_of(from, plane, pixels, sums, 1);
    }
}

static bool sum_accepts(const sonde__call *call)
{
    return lanes_is_f32(&call->in[0].shape, -1) && call->in[0].shape.rank >= 2;
}

static int sum_parts(const sonde__call *call, int max)
{
    const sonde__shape *const dy = &call->in[0].shape;

    return lanes_parts((double)(lanes_inner(dy) * lanes_blocks(dy->dim[0])) * LANES,
                       dy->dim[1], max);
}

/* A part is a range of channels. */
static void sum_run(const sonde__call *call, int part, int parts)
{
    const sonde__shape *const dy = &call->in[0].shape;
    const int64_t channels = dy->dim[1], samples = dy->dim[0];
    const int64_t pixels = channels == 0 ? 0 : lanes_inner(dy) / channels;
    float *const to = lanes_out(call, 0);
    int64_t first, last;

    lanes_split(channels, part, parts, &first, &last);
    for (int64_t c = first; c < last; c += TILE_CHANNELS) {
        const int64_t count = SONDE_MIN(last - c, (int64_t)TILE_CHANNELS);
        float sums[TILE_CHANNELS * LANES] = {0}, former[TILE_CHANNELS * LANES],
                                   part_to[16];

        for (int64_t block = 0; block < lanes_blocks(samples); block++) {
            begin_block(samples, block, sums, count, former);
            sum_planes(lanes_in(call, 0) + (block * channels + c) * pixels * LANES,
                       pixels * LANES, pixels, sums, count);
            end_block(samples, block, sums, count, former);
        }
        sum_lanes(sums, count, part_to);
        memcpy(to + c, part_to, (size_t)count * sizeof(float));
    }
}

/* --- fused with max-pool and ReLU
 * ------------------------------------------------------------ */

/* One row of windows of some channels, expanded to two rows of pixels. */
typedef struct expand_row {
    const float *dy, *y; /* of the pool: the row's first window */
    const uint8_t *index;
    float *relu, *conv; /* gradients; relu may be NULL */
    int64_t windows, window_plane, columns, conv_plane, relu_plane, channels;
} expand_row;

static void expand_channel(const expand_row *row, int64_t c, int lane)
{
    const int64_t from = c * row->window_plane + lane, down = row->columns * LANES;
    float *const conv = row->conv + c * row->conv_plane + lane;
    float *const relu = row->relu == NULL ? NULL : row->relu + c * row->relu_plane + lane;

    for (int64_t i = 0; i < row->windows; i++) {
        const vf dy = vf_load(row->dy + from + i * LANES);
        const vf gated = vf_gate(vf_load(row->y + from + i * LANES), dy);
        const vi index = vi_load_u8(row->index + from + i * LANES);

        VEC_UNROLL
        for (int k = 0; k < 4; k++) {
            const vm here = vm_equal(index, vi_set1(k));
            const int64_t to = (2 * i + k % 2) * LANES + k / 2 * down;

            vf_store(conv + to, vf_keep(here, gated));
            if (relu != NULL) {
                vf_store(relu + to, vf_keep(here, dy));
            }
        }
    }
}

static void zero_pixels(float *to, int64_t count)
{
    if (to != NULL) {
        memset(to, 0, (size_t)count * LANES * sizeof(float));
    }
}

static void expand(const expand_row *row)
{
    for (int64_t c = 0; c < row->channels; c++) {
        for (int lane = 0; lane < LANES; lane += VF_WIDTH) {
            expand_channel(row, c, lane);
        }
        for (int64_t i = 0; i < 2 && row->columns % 2 == 1; i++) { /* in no window */
            const int64_t at = ((i + 1) * row->columns - 1) * LANES;

            zero_pixels(row->conv + c * row->conv_plane + at, 1);
            zero_pixels(row->relu == NULL ? NULL : row->relu + c * row->relu_plane + at,
                        1);
        }
    }
}

/* The op's operands, and a part's memory. */
typedef struct fused_job {
    weight_plan plan;
    const float *dy, *y, *x;
    const uint8_t *index;
    float *relu, *conv, *dw, *db; /* all but dw may be NULL */
    float *sums, *former; /* [channels * taps + channels][16]: of dw, then of db */
    float *rows;          /* [channels][2][ow][16], unless conv is wanted */
} fused_job;

/* Sends rows of dy of channels o ... to the sums. */
static void fused_sum(const fused_job *job, const weight_rows *in)
{
    const weight_plan *const p = &job->plan;

    for (int64_t i = 0; i < p->tap_tiles; i++) {
        sum_rows(p, in, &p->tiles[i],
                 job->sums + p->tiles[i].first * in->channels * LANES);
    }
    if (job->db != NULL) {
        sum_planes(in->dy, in->dy_plane, in->rows * p->g.ow,
                   job->sums + in->channels * p->g.taps * LANES, in->channels);
    }
}

/* Channels o ... o + channels - 1 of one block; x is that of their group. */
static void fused_block(const fused_job *job, int64_t block, int64_t o, int64_t channels,
                        const float *x)
{
    const conv2d_geometry *const g = &job->plan.g;
    const int64_t ph = g->oh / 2, pw = g->ow / 2, plane = g->oh * g->ow * LANES;
    const int64_t first = block * g->groups * g->o + o;
    weight_rows in = {.x = x, .channels = channels};

    in.dy_plane = job->conv != NULL ? plane : 2 * g->ow * LANES;
    for (int64_t i = 0; 2 * i < g->oh; i++) {
        const int64_t at = first * ph * pw * LANES + i * pw * LANES;
        const int64_t to = first * plane + 2 * i * g->ow * LANES;
        float *const conv = job->conv != NULL ? job->conv + to : job->rows;
        float *const relu = job->relu != NULL ? job->relu + to : NULL;

        in.dy = conv;
        in.first_row = 2 * i;
        in.rows = SONDE_MIN(g->oh - 2 * i, (int64_t)2);
        if (in.rows == 2) {
            const expand_row row = {.dy = job->dy + at,
                                    .y = job->y + at,
                                    .index = job->index + at,
                                    .relu = relu,
                                    .conv = conv,
                                    .windows = pw,
                                    .window_plane = ph * pw * LANES,
                                    .columns = g->ow,
                                    .conv_plane = in.dy_plane,
                                    .relu_plane = plane,
                                    .channels = channels};

            expand(&row);
        } else {
            for (int64_t c = 0; c < channels; c++) { /* a last row in no window */
                zero_pixels(conv + c * in.dy_plane, g->ow);
                zero_pixels(relu == NULL ? NULL : relu + c * plane, g->ow);
            }
        }
        fused_sum(job, &in);
    }
}

static conv2d_geometry fused_geometry(const sonde__call *call)
{
    return conv2d_geometry_of(&call->in[3].shape, &call->out[2].shape, call->attrs);
}

static bool fused_accepts(const sonde__call *call)
{
    const sonde__shape *const dy = &call->in[0].shape;
    conv2d_geometry g;

    if (!lanes_is_f32(dy, 4) || !lanes_is_f32(&call->in[3].shape, 4) ||
        !lanes_is_f32(&call->out[2].shape, 4)) {
        return false;
    }
    g = fused_geometry(call);
    return dy->dim[2] == g.oh / 2 && dy->dim[3] == g.ow / 2;
}

static size_t fused_sums(const conv2d_geometry *g)
{
    return (size_t)(TILE_CHANNELS * (g->taps + 1)) * LANES;
}

static size_t fused_part_size(const weight_plan *p)
{
    const size_t rows = (size_t)(TILE_CHANNELS * 2 * p->g.ow) * LANES;

    return plan_size(p) + (2 * fused_sums(&p->g) + rows) * sizeof(float);
}

static size_t fused_scratch(const sonde__call *call, int parts)
{
    const conv2d_geometry g = fused_geometry(call);
    const weight_plan p = outline_plan(&g);

    return fused_part_size(&p) * (size_t)parts;
}

static int fused_parts(const sonde__call *call, int max)
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

        store_weights(job->sums + tile->first * channels * LANES, channels, tile->count,
                      job->dw + o * taps + tile->first, taps);
    }
    if (job->db != NULL) {
        store_weights(job->sums + channels * taps * LANES, channels, 1, job->db + o, 1);
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
    rows = channels * (g->taps + 1);
    memset(job->sums, 0, (size_t)rows * LANES * sizeof(float));
    for (int64_t block = 0; block < g->blocks; block++) {
        begin_block(g->samples, block, job->sums, rows, job->former);
        fused_block(job, block, o, channels,
                    job->x + (block * g->groups + group) * g->c * g->h * g->w * LANES);
        end_block(g->samples, block, job->sums, rows, job->former);
    }
    fused_store(job, o, channels);
}

/* A part is a range of tiles of channels. */
static void fused_run(const sonde__call *call, int part, int parts)
{
    const conv2d_geometry g = fused_geometry(call);
    fused_job job = {.plan = outline_plan(&g),
                     .dy = lanes_in(call, 0),
                     .index = (const uint8_t *)call->in[1].data,
                     .y = lanes_in(call, 2),
                     .x = lanes_in(call, 3),
                     .relu = lanes_out(call, 0),
                     .conv = lanes_out(call, 1),
                     .dw = lanes_out(call, 2),
                     .db = lanes_out(call, 3)};
    char *const scratch =
        (char *)call->scratch + (size_t)part * fused_part_size(&job.plan);
    int64_t first, last;

    complete_plan(&job.plan, scratch);
    job.sums = (float *)(void *)(scratch + plan_size(&job.plan));
    job.former = job.sums + fused_sums(&g);
    job.rows = job.former + fused_sums(&g);
    lanes_split(g.groups * job.plan.channel_tiles, part, parts, &first, &last);
    for (int64_t tile = first; tile < last; tile++) {
        fused_channels(&job, tile);
    }
}

/* --- rows of the table
 * ----------------------------------------------------------------------- */

const sonde__conv2d_weight_kernels ISA(sonde__conv2d_weight) = {
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
                  .run = fused_run},
};

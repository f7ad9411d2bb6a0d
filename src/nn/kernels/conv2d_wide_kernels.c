/*
 * conv2d_wide_kernels.c - convolution of many channels over LANES, and its input
 * gradient.
 *
 * Both sum, for every number of the result, weight times source over the source's
 * channels and over the taps that meet its image, in that order (channel, kh, kw), one
 * FMA each where the ISA has it: a chain for every block of channels, from 0 or the bias,
 * whose sums are added in order. Blocks depend on shapes alone, so bits do not depend on
 * tiles, segments and parts. The gradient is the forward pass with the roles of the
 * channels exchanged and other sources for a tap.
 *
 * A tile is ROWS channels of the result by up to UNITS units in registers. A unit is one
 * pixel of one block of 16 samples; those of a tile have the same taps. So that operands
 * are in the first-level cache, the sum is cut into blocks of source channels, and for
 * each of them
 *
 *   - the weights lie in a copy, [block][group of ROWS][tap][ROWS];
 *   - the rows of the source that a segment of a row of the result needs are copied to a
 *     strip, [channel][row][column][block of samples][16]: planes are often a power of
 *     two apart, and would all fall into the same lines of the cache;
 *   - every tile of the segment meets every group while its part of the strip is in the
 *     cache, and waits in the second level for the next block of channels.
 *
 * Omitted: groups, and few channels (conv2d_kernels.c has both).
 */
#include "base/isa.h"
#include "base/macros.h"
#include "base/memory.h"
#include "nn/kernels/conv2d_lanes.h"
#include "nn/kernels/fast.h"

enum {
#if VF_WIDTH > 4
    ROWS = VF_TILE_ROWS,
    UNITS = VF_TILE_VECS * VF_WIDTH / LANES,
#else
    ROWS = 2, /* a unit is four vectors: 8 accumulators of 16 registers */
    UNITS = 1,
#endif
    BLOCKS = 4,          /* blocks of samples of a segment, at most */
    SEGMENT_UNITS = 128, /* units of a segment, at most */
    BLOCK_TAPS = 144,    /* about so many taps of a block of channels */
    FEWEST_ROWS = 16,    /* channels of the result from which this pays */
    FEWEST_TAPS = 24,    /* terms of a sum likewise */
    MOST_KERNEL = 16     /* taps along a dimension */
};

/* Where a tap's source lies, counted from the unit's place in the strip, and its weights,
 * from the group's; in floats. */
typedef struct wide_tap {
    int32_t x, w;
} wide_tap;

/* A convolution or its gradient; "to" is the result's side. */
typedef struct wide {
    bool backward;
    int64_t blocks;
    int64_t from_c, from_size[2], to_c, to_size[2];
    int64_t kernel[2], stride[2], padding[2], dilation[2];
    int64_t w_to, w_from; /* floats between the weights of neighboring channels */
    const float *x, *weight, *bias;
    float *y, *relu; /* either may be NULL */
    /* how the work is cut */
    int64_t block_c, c_blocks; /* source channels of a block; blocks of them */
    int64_t groups;            /* of ROWS channels of the result */
    int64_t columns, segments; /* of a row, at most; in all */
    int64_t strip_columns;     /* of the source */
} wide;

/* --- geometry ----------------------------------------------------------------------- */

/* The taps of a coordinate that meet the source, and where. */
typedef struct reach {
    int count;
    int tap[MOST_KERNEL];
    int64_t source[MOST_KERNEL];
} reach;

static void find_reach(const wide *c, int d, int64_t i, reach *found)
{
    found->count = 0;
    for (int k = 0; k < (int)c->kernel[d]; k++) {
        int64_t at = 0;

        if (c->backward) {
            at = i + c->padding[d] - k * c->dilation[d];
            if (at % c->stride[d] != 0) {
                continue;
            }
            at /= c->stride[d];
        } else {
            at = i * c->stride[d] - c->padding[d] + k * c->dilation[d];
        }
        if (at >= 0 && at < c->from_size[d]) {
            found->tap[found->count] = k;
            found->source[found->count++] = at;
        }
    }
}

/* Whether two coordinates have the same taps at the same distances. */
static bool is_alike(const reach *a, const reach *b)
{
    bool alike = a->count == b->count;

    for (int k = 0; alike && k < a->count; k++) {
        alike = a->tap[k] == b->tap[k] &&
                a->source[k] - a->source[0] == b->source[k] - b->source[0];
    }
    return alike;
}

static int64_t block_groups(const wide *c)
{
    return (c->blocks + BLOCKS - 1) / BLOCKS;
}

static void cut(wide *c)
{
    const int64_t taps = c->kernel[0] * c->kernel[1];
    const int64_t most = SONDE_MAX(BLOCK_TAPS / taps, (int64_t)1);
    const int64_t reached = (c->kernel[1] - 1) * c->dilation[1] + 1;

    c->c_blocks = (c->from_c + most - 1) / most;
    c->block_c = (c->from_c + c->c_blocks - 1) / c->c_blocks;
    c->groups = (c->to_c + ROWS - 1) / ROWS;
    c->columns = SEGMENT_UNITS / SONDE_MIN(c->blocks, (int64_t)BLOCKS);
    c->columns = SONDE_MIN(c->columns, c->to_size[1]);
    c->segments =
        block_groups(c) * c->to_size[0] * ((c->to_size[1] + c->columns - 1) / c->columns);
    c->strip_columns =
        SONDE_MIN((c->backward ? c->columns : c->columns * c->stride[1]) + reached,
                  c->from_size[1]);
}

static wide wide_of(const sonde__op_shape *x, const sonde__op_shape *w,
                    const sonde__op_attrs *attrs, bool backward)
{
    const conv2d_geometry g = conv2d_geometry_of(x, w, attrs);
    wide c = {.backward = backward, .blocks = g.blocks};

    for (int d = 0; d < 2; d++) {
        c.kernel[d] = g.kernel[d];
        c.stride[d] = g.stride[d];
        c.padding[d] = g.padding[d];
        c.dilation[d] = g.dilation[d];
    }
    c.from_c = backward ? g.o : g.c;
    c.to_c = backward ? g.c : g.o;
    c.from_size[0] = backward ? g.oh : g.h;
    c.from_size[1] = backward ? g.ow : g.w;
    c.to_size[0] = backward ? g.h : g.oh;
    c.to_size[1] = backward ? g.w : g.ow;
    c.w_to = backward ? g.kernel[0] * g.kernel[1] : g.taps;
    c.w_from = backward ? g.taps : g.kernel[0] * g.kernel[1];
    cut(&c);
    return c;
}

/* --- tiles -------------------------------------------------------------------------- */

/* Units of a segment with the same taps. */
typedef struct wide_tile {
    int32_t list, units;
    int32_t x[BLOCKS]; /* places in the strip, in floats */
    int64_t y[BLOCKS]; /* places in the first channel of the result */
} wide_tile;

/* What the tiles of a block of channels have in common. */
typedef struct wide_pass {
    const float *strip, *weight;
    const wide_tap *end;
    float *y, *relu;   /* of the group's first channel; in the last pass */
    const float *bias; /* of the group, in the first pass; or NULL */
    int64_t plane;
    int rows;
    bool first, last;
} wide_pass;

VEC_INLINE void sum_taps(const wide_pass *pass, const wide_tile *tile,
                         const wide_tap *tap, const int rows, const int units,
                         v16 acc[ROWS][UNITS])
{
    const float *x[UNITS];

    VEC_EACH (u, units) {
        x[u] = pass->strip + tile->x[u];
    }
    for (; tap < pass->end; tap++) {
        const float *const w = pass->weight + tap->w;
        v16 v[UNITS];

        VEC_EACH (u, units) {
            v[u] = v16_load(x[u] + tap->x);
        }
        VEC_EACH (r, rows) {
            const v16 b = v16_set1(w[r]);

            VEC_EACH (u, units) {
                acc[r][u] = v16_fma(b, v[u], acc[r][u]);
            }
        }
    }
}

VEC_INLINE void store_result(const wide_pass *pass, const wide_tile *tile, const int rows,
                             const int units, v16 acc[ROWS][UNITS])
{
    VEC_TILE (r, rows, u, units) {
        const int64_t place = tile->y[u] + r * pass->plane;

        if (r < pass->rows && pass->y != NULL) {
            v16_store(pass->y + place, acc[r][u]);
        }
        if (r < pass->rows && pass->relu != NULL) {
            v16_store(pass->relu + place, v16_relu(acc[r][u]));
        }
    }
}

/* sums: where the tile waits between passes, [row][unit][16] */
VEC_INLINE void run_tile(const wide_pass *pass, const wide_tile *tile,
                         const wide_tap *taps, float *sums, const int rows,
                         const int units)
{
    v16 acc[ROWS][UNITS];

    VEC_TILE (r, rows, u, units) {
        acc[r][u] = v16_set1(pass->bias == NULL ? 0.0F : pass->bias[r]);
    }
    sum_taps(pass, tile, taps, rows, units, acc);
    if (!pass->first) {
        VEC_TILE (r, rows, u, units) {
            acc[r][u] = v16_add(v16_load(sums + (r * UNITS + u) * LANES), acc[r][u]);
        }
    }
    if (pass->last) {
        store_result(pass, tile, rows, units, acc);
        return;
    }
    VEC_TILE (r, rows, u, units) {
        v16_store(sums + (r * UNITS + u) * LANES, acc[r][u]);
    }
}

#define DEFINE_TILE(rows, units)                                                         \
    static void run_tile_##rows##_##units(const wide_pass *pass, const wide_tile *tile,  \
                                          const wide_tap *taps, float *sums)             \
    {                                                                                    \
        run_tile(pass, tile, taps, sums, rows, units);                                   \
    }
typedef void wide_tile_fn(const wide_pass *pass, const wide_tile *tile,
                          const wide_tap *taps, float *sums);

#define LIST_TILE(rows, units) [(rows - 1) / 2][units - 1] = run_tile_##rows##_##units,
#if VF_WIDTH == 16
#define WIDE_TILES(X) VEC_UP_TO_4(X, 2) VEC_UP_TO_4(X, 4) VEC_UP_TO_4(X, 6)
#elif VF_WIDTH == 8
#define WIDE_TILES(X) X(2, 1) X(4, 1) X(6, 1)
#else
#define WIDE_TILES(X) X(2, 1)
#endif

WIDE_TILES(DEFINE_TILE)

static wide_tile_fn *const tile_fns[][UNITS] = {WIDE_TILES(LIST_TILE)};

/* --- copies ------------------------------------------------------------------------- */

static int64_t block_floats(const wide *c) /* of the copied weights of one group */
{
    return c->block_c * c->kernel[0] * c->kernel[1] * ROWS;
}

/* copy[c block][group][channel of the block][kh kw][ROWS], groups first ... last - 1 */
static void copy_group(const wide *c, int64_t first, int64_t last, int64_t g,
                       int64_t from, float *copy)
{
    const int64_t taps = c->kernel[0] * c->kernel[1];
    const int rows = (int)SONDE_MIN(c->to_c - g * ROWS, (int64_t)ROWS);
    const float *w = c->weight + g * ROWS * c->w_to + from * c->w_from;
    float *to = copy +
                (from / c->block_c * (last - first) + g - first) * block_floats(c) +
                from % c->block_c * taps * ROWS;

    for (int r = 0; r < ROWS; r++) {
        for (int64_t t = 0; t < taps; t++) {
            to[t * ROWS + r] = r < rows ? w[r * c->w_to + t] : 0.0F;
        }
    }
}

/* In the order in which the weights lie. */
static void copy_weights(const wide *c, int64_t first, int64_t last, float *copy)
{
    if (c->backward) {
        for (int64_t from = 0; from < c->from_c; from++) {
            for (int64_t g = first; g < last; g++) {
                copy_group(c, first, last, g, from, copy);
            }
        }
        return;
    }
    for (int64_t g = first; g < last; g++) {
        for (int64_t from = 0; from < c->from_c; from++) {
            copy_group(c, first, last, g, from, copy);
        }
    }
}

/* A stretch of a row of the result in some blocks of samples. */
typedef struct segment {
    int64_t block, blocks, row, first, last; /* columns first ... last - 1 */
    int64_t from_first, from_last;           /* columns of the source */
    reach rows;
} segment;

static void copy_strip(const wide *c, const segment *s, int64_t channel, int64_t channels,
                       float *strip)
{
    const int64_t plane = c->from_size[0] * c->from_size[1] * LANES;

    for (int64_t i = channel; i < channel + channels; i++) {
        for (int k = 0; k < s->rows.count; k++) {
            const float *x =
                c->x + (s->block * c->from_c + i) * plane +
                (s->rows.source[k] * c->from_size[1] + s->from_first) * LANES;

            for (int64_t j = s->from_first; j < s->from_last; j++) {
                for (int64_t b = 0; b < s->blocks; b++) {
                    v16_store(strip, v16_load(x + b * c->from_c * plane));
                    strip += LANES;
                }
                x += LANES;
            }
        }
    }
}

/* --- segments ----------------------------------------------------------------------- */

/* A part's memory. */
typedef struct workspace {
    float *weights, *strip, *sums;
    wide_tap *lists;
    wide_tile *tiles;
    int64_t tile_count, list_count;
    int list_sizes[3 * MOST_KERNEL + 2]; /* taps of a channel */
    reach columns[3 * MOST_KERNEL + 2];  /* of each list */
} workspace;

/* Columns with the same remainder by the stride lose one tap after the other at either
 * border, and the remainders have kernel[1] taps among them; columns without taps are
 * alike. */
static int64_t most_lists(const wide *c)
{
    return 3 * c->kernel[1] + 2;
}

/* Parts are ranges of segments if there are enough of them, else of groups. */
static bool divides_segments(const wide *c, int parts)
{
    return c->segments % parts == 0 || c->segments >= 8 * (int64_t)parts;
}

static int64_t part_groups(const wide *c, int parts)
{
    return divides_segments(c, parts) ? c->groups : (c->groups + parts - 1) / parts;
}

static int64_t tile_floats(void)
{
    return ROWS * UNITS * LANES;
}

/* The units of a list fill whole tiles, except perhaps the last one. */
static int64_t most_tiles(const wide *c)
{
    const int64_t units = c->columns * SONDE_MIN(c->blocks, (int64_t)BLOCKS);

    return SONDE_MIN(units, units / UNITS + most_lists(c));
}

/* Lays out a part's memory at `start`, or nowhere; returns its size. */
static size_t lay_out(const wide *c, int parts, workspace *w, char *start)
{
    const int64_t lists = most_lists(c) * c->block_c * c->kernel[0] * c->kernel[1];
    const int64_t strip = c->block_c * c->kernel[0] * c->strip_columns *
                          SONDE_MIN(c->blocks, (int64_t)BLOCKS) * LANES;
    const int64_t groups = part_groups(c, parts);
    size_t used = 0;

    w->lists = sonde__op_take(start, &used, lists, sizeof(wide_tap));
    w->tiles = sonde__op_take(start, &used, SEGMENT_UNITS, sizeof(wide_tile));
    w->strip = sonde__op_take(start, &used, strip, sizeof(float));
    w->weights = sonde__op_take(start, &used, c->c_blocks * groups * block_floats(c),
                                sizeof(float));
    w->sums = sonde__op_take(start, &used, most_tiles(c) * groups * tile_floats(),
                             sizeof(float));
    return used;
}

/* The taps of a block of channels for columns like `across`. */
static int64_t make_list(const wide *c, const segment *s, const reach *across,
                         workspace *work)
{
    const int64_t size = c->block_c * c->kernel[0] * c->kernel[1];
    const int64_t columns = s->from_last - s->from_first;
    wide_tap *tap = work->lists + work->list_count * size;

    work->columns[work->list_count] = *across;
    work->list_sizes[work->list_count] = s->rows.count * across->count;
    for (int64_t i = 0; i < c->block_c; i++) {
        for (int k = 0; k < s->rows.count; k++) {
            for (int l = 0; l < across->count; l++) {
                const int64_t column = across->source[l] - across->source[0];
                const int64_t place = (i * s->rows.count + k) * columns + column;
                const int64_t w =
                    (i * c->kernel[0] + s->rows.tap[k]) * c->kernel[1] + across->tap[l];

                *tap++ =
                    (wide_tap){(int32_t)(place * s->blocks * LANES), (int32_t)(w * ROWS)};
            }
        }
    }
    return work->list_count++;
}

/* Tiles of the segment's units with one list, columns first, first + 1 ... among those
 * that are alike. */
static void make_tiles(const wide *c, const segment *s, workspace *work)
{
    const int64_t plane = c->to_size[0] * c->to_size[1] * LANES;

    work->tile_count = work->list_count = 0;
    for (int64_t first = s->first; first < s->last; first++) {
        reach across;
        int64_t list = 0;
        wide_tile *tile = NULL;

        find_reach(c, 1, first, &across);
        while (list < work->list_count && !is_alike(&work->columns[list], &across)) {
            list++;
        }
        if (list == work->list_count) {
            list = make_list(c, s, &across, work);
        }
        for (int64_t i = 0; i < work->tile_count; i++) { /* one that has room */
            if (work->tiles[i].list == list && work->tiles[i].units < UNITS) {
                tile = &work->tiles[i];
            }
        }
        for (int64_t b = 0; b < s->blocks; b++) {
            if (tile == NULL || tile->units == UNITS) {
                tile = &work->tiles[work->tile_count++];
                *tile = (wide_tile){.list = (int32_t)list};
            }
            tile->x[tile->units] =
                across.count == 0
                    ? 0
                    : (int32_t)(((across.source[0] - s->from_first) * s->blocks + b) *
                                LANES);
            tile->y[tile->units++] = (s->block + b) * c->to_c * plane +
                                     (s->row * c->to_size[1] + first) * LANES;
        }
    }
}

static segment segment_at(const wide *c, int64_t index)
{
    const int64_t across = (c->to_size[1] + c->columns - 1) / c->columns;
    const int64_t row = index / across % c->to_size[0];
    const int64_t block = index / across / c->to_size[0] * BLOCKS;
    segment s = {.block = block,
                 .blocks = SONDE_MIN(c->blocks - block, (int64_t)BLOCKS),
                 .row = row,
                 .first = index % across * c->columns,
                 .from_first = INT64_MAX};

    s.last = SONDE_MIN(s.first + c->columns, c->to_size[1]);
    find_reach(c, 0, row, &s.rows);
    for (int64_t j = s.first; j < s.last; j++) {
        reach columns;

        find_reach(c, 1, j, &columns);
        for (int l = 0; l < columns.count; l++) {
            s.from_first = SONDE_MIN(s.from_first, columns.source[l]);
            s.from_last = SONDE_MAX(s.from_last, columns.source[l] + 1);
        }
    }
    s.from_first = SONDE_MIN(s.from_first, s.from_last);
    return s;
}

/* One block of source channels: every tile with every group. */
static void run_pass(const wide *c, const workspace *work, wide_pass pass, int64_t first,
                     int64_t last, int64_t channels)
{
    const int64_t list_size = c->block_c * c->kernel[0] * c->kernel[1];
    const float *const weight = pass.weight;
    float *sums = work->sums, bias[ROWS];

    pass.bias = pass.first && c->bias != NULL ? bias : NULL;
    for (int64_t i = 0; i < work->tile_count; i++) {
        const wide_tile *tile = &work->tiles[i];
        const wide_tap *taps = work->lists + tile->list * list_size;

        pass.end = taps + work->list_sizes[tile->list] * channels;
        for (int64_t g = first; g < last; g++) {
            const int64_t row = g * ROWS;

            pass.weight = weight + (g - first) * block_floats(c);
            pass.rows = (int)SONDE_MIN(c->to_c - row, (int64_t)ROWS);
            pass.y = c->y == NULL ? NULL : c->y + row * pass.plane;
            pass.relu = c->relu == NULL ? NULL : c->relu + row * pass.plane;
            for (int r = 0; pass.bias != NULL && r < ROWS; r++) {
                bias[r] = c->bias[SONDE_MIN(row + r, c->to_c - 1)];
            }
            tile_fns[(pass.rows - 1) / 2][tile->units - 1](&pass, tile, taps, sums);
            sums += tile_floats();
        }
    }
}

static void run_segment(const wide *c, const segment *s, workspace *work, int64_t first,
                        int64_t last)
{
    make_tiles(c, s, work);
    for (int64_t block = 0; block < c->c_blocks; block++) {
        const int64_t channel = block * c->block_c;
        const int64_t channels = SONDE_MIN(c->block_c, c->from_c - channel);
        const wide_pass pass = {.strip = work->strip,
                                .weight = work->weights +
                                          block * (last - first) * block_floats(c),
                                .plane = c->to_size[0] * c->to_size[1] * LANES,
                                .first = block == 0,
                                .last = block + 1 == c->c_blocks};

        copy_strip(c, s, channel, channels, work->strip);
        run_pass(c, work, pass, first, last, channels);
    }
}

/* --- parts -------------------------------------------------------------------------- */

static int wide_parts(const wide *c, int max)
{
    const double operations = 2.0 * LANES * (double)(c->blocks * c->to_c * c->from_c) *
                              (double)(c->to_size[0] * c->to_size[1]) *
                              (double)(c->kernel[0] * c->kernel[1]);

    return lanes_parts(operations, SONDE_MAX(c->segments, c->groups), max);
}

static void run_part(const wide *c, void *scratch, int part, int parts)
{
    workspace work = {0};
    const size_t bytes = lay_out(c, parts, &work, NULL);
    int64_t group[2] = {0, c->groups}, segments[2] = {0, c->segments};

    if (divides_segments(c, parts)) {
        lanes_split(c->segments, part, parts, &segments[0], &segments[1]);
    } else {
        lanes_split(c->groups, part, parts, &group[0], &group[1]);
    }
    (void)lay_out(c, parts, &work, (char *)scratch + bytes * (size_t)part);
    if (group[0] == group[1] || segments[0] == segments[1]) {
        return;
    }
    copy_weights(c, group[0], group[1], work.weights);
    for (int64_t i = segments[0]; i < segments[1]; i++) {
        const segment s = segment_at(c, i);

        run_segment(c, &s, &work, group[0], group[1]);
    }
}

static wide call_of(const sonde__op_call *call, bool backward)
{
    wide c = wide_of(backward ? &call->out[0].shape : &call->in[0].shape,
                     &call->in[1].shape, call->attrs, backward);

    c.x = lanes_in(call, 0);
    c.weight = lanes_in(call, 1);
    c.bias = lanes_in(call, 2);
    c.y = lanes_out(call, 0);
    c.relu = lanes_out(call, 1);
    return c;
}

static bool accepts(const sonde__op_call *call, bool backward)
{
    const sonde__op_shape *const w = &call->in[1].shape;

    return lanes_is_f32(&call->in[0].shape, 4) && lanes_is_f32(w, 4) &&
           lanes_is_f32(&call->out[0].shape, 4) &&
           (call->in_count < 3 || lanes_is_f32(&call->in[2].shape, 1)) &&
           call->attrs->window.groups == 1 && w->dim[2] <= MOST_KERNEL &&
           w->dim[3] <= MOST_KERNEL && w->dim[backward ? 1 : 0] >= FEWEST_ROWS &&
           w->dim[backward ? 0 : 1] * w->dim[2] * w->dim[3] >= FEWEST_TAPS;
}

/* --- kernels ------------------------------------------------------------------------ */

/* The functions of a direction. */
#define DEFINE_DIRECTION(name, backward)                                                 \
    static bool name##_accepts(const sonde__op_call *call)                               \
    {                                                                                    \
        return accepts(call, backward);                                                  \
    }                                                                                    \
    static size_t name##_scratch(const sonde__op_call *call, int parts)                  \
    {                                                                                    \
        const wide c = call_of(call, backward);                                          \
        workspace unused;                                                                \
                                                                                         \
        return lay_out(&c, parts, &unused, NULL) * (size_t)parts;                        \
    }                                                                                    \
    static int name##_parts(const sonde__op_call *call, int max)                         \
    {                                                                                    \
        const wide c = call_of(call, backward);                                          \
                                                                                         \
        return wide_parts(&c, max);                                                      \
    }                                                                                    \
    static void name##_run(const sonde__op_call *call, int part, int parts)              \
    {                                                                                    \
        const wide c = call_of(call, backward);                                          \
                                                                                         \
        run_part(&c, call->scratch, part, parts);                                        \
    }

#define DEFINE_KERNEL(op, direction)                                                     \
    SONDE__ISA_KERNEL(op##_wide, "wide", direction##_accepts, (SONDE__LANES),            \
                      (SONDE__LANES, SONDE__LANES), direction##_run,                     \
                      .scratch = direction##_scratch, .parts = direction##_parts)

DEFINE_DIRECTION(forward, false)
DEFINE_DIRECTION(input, true)
DEFINE_KERNEL(conv2d, forward)
DEFINE_KERNEL(conv2d_relu, forward)
DEFINE_KERNEL(conv2d_grad_input, input)

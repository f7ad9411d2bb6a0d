/*
 * conv2d_weight_tile.h - the micro-kernel of a convolution's weight gradient, and how the
 * gradient is divided into its tiles.
 *
 * A tile keeps (output channels) x (taps) accumulators in registers, one vector over
 * lanes each, and goes over the pixels: each costs a load a channel and a load a tap.
 * Every sum runs over blocks in order, over pixels in an order that depends on the
 * convolution alone, and last over lanes as v16_sum does; of the last block only lanes
 * that hold samples count.
 */
#ifndef SONDE_NN_KERNELS_CONV2D_WEIGHT_TILE_H
#define SONDE_NN_KERNELS_CONV2D_WEIGHT_TILE_H

#include "base/macros.h"
#include "base/memory.h"
#include "nn/kernels/conv2d_lanes.h"

/* --- tiles -------------------------------------------------------------------------- */

/* X(channels, taps) of the tiles that there are. */
#if VF_WIDTH == 16 /* channels * taps + channels + 1 registers of 32 */
#define WEIGHT_TILES(X)                                                                  \
    VEC_UP_TO_8(X, 1)                                                                    \
    VEC_UP_TO_8(X, 2) VEC_UP_TO_8(X, 3) VEC_UP_TO_6(X, 4) VEC_UP_TO_4(X, 5) X(5, 5)
enum { TILE_CHANNELS = 5, TILE_TAPS = 8 };
#else /* of 16 */
#define WEIGHT_TILES(X) VEC_UP_TO_8(X, 1) VEC_UP_TO_6(X, 2) VEC_UP_TO_4(X, 3)
enum { TILE_CHANNELS = 3, TILE_TAPS = 8 };
#endif
enum { TILE_SUMS = 25, MAX_SPAN = 512 };

/* Where a pixel lies, from the first one of a span, in floats. */
typedef struct weight_place {
    int64_t dy, x;
} weight_place;

/*
 * Pixels of some rows. x[t] is where tap t meets the first one, and places tells how to
 * get from there to the others: rows are short, and a loop over each would end in a wrong
 * guess. The sum of channel o and tap t is the vector at sums + o sums_step + slot[t].
 */
typedef struct weight_span {
    const float *dy;
    const float *x[TILE_TAPS];
    const weight_place *places;
    int64_t dy_plane, pixels;
    float *sums;
    int64_t slot[TILE_TAPS], sums_step;
    bool fresh; /* sums hold nothing yet, else they are added to */
} weight_span;

VEC_INLINE void weight_tile(const weight_span *span, const int channels, const int taps)
{
    const weight_place *place = span->places, *const end = place + span->pixels;
    const float *x[TILE_TAPS];
    vf acc[TILE_SUMS];

    VEC_EACH (i, channels * taps) {
        acc[i] = (vf){0};
    }
    if (!span->fresh) {
        VEC_EACH (i, channels * taps) {
            acc[i] =
                vf_load(span->sums + i / taps * span->sums_step + span->slot[i % taps]);
        }
    }
    VEC_EACH (t, taps) {
        x[t] = span->x[t];
    }
    for (; place < end; place++) {
        const float *const dy = span->dy + place->dy;
        vf d[TILE_CHANNELS];

        VEC_EACH (o, channels) {
            d[o] = vf_load(dy + o * span->dy_plane);
        }
        VEC_EACH (t, taps) {
            const vf v = vf_load(x[t] + place->x);

            VEC_EACH (o, channels) {
                acc[o * taps + t] = vf_fma(d[o], v, acc[o * taps + t]);
            }
        }
    }
    VEC_EACH (i, channels * taps) {
        vf_store(span->sums + i / taps * span->sums_step + span->slot[i % taps], acc[i]);
    }
}

#define DEFINE_WEIGHT_TILE(channels, taps)                                               \
    static void weight_tile_##channels##_##taps(const weight_span *span)                 \
    {                                                                                    \
        weight_tile(span, channels, taps);                                               \
    }
#define LIST_WEIGHT_TILE(channels, taps)                                                 \
    [channels - 1][taps - 1] = weight_tile_##channels##_##taps,

WEIGHT_TILES(DEFINE_WEIGHT_TILE)

typedef void (*weight_tile_fn)(const weight_span *span);

/* NULL: there is no such tile. */
static const weight_tile_fn weight_tiles[TILE_CHANNELS][TILE_TAPS] = {
    WEIGHT_TILES(LIST_WEIGHT_TILE)};

/* --- the plan: how the gradient is divided ------------------------------------------ */

typedef struct tap_tile {
    int64_t first, count;
} tap_tile;

/* One tap: how far it reaches into x, and its place in the kernel. */
typedef struct weight_tap {
    int64_t x, k, l;
} weight_tap;

/* Pixels of dy that meet the image with the same taps. */
typedef struct weight_rect {
    conv2d_band rows, columns;
    int64_t span_rows;          /* that a tile goes over at once */
    const weight_place *places; /* of span_rows rows */
} weight_rect;

/*
 * Taps are divided evenly into tiles, and so are channels. A sum takes the rectangles in
 * order, and the pixels of each in order, whatever tile it is in. Without padding there
 * is one rectangle.
 */
typedef struct weight_plan {
    conv2d_geometry g;
    int64_t channel_tiles, tap_tiles; /* of one group */
    int64_t rects;
    tap_tile *tiles;
    weight_tap *taps;
    weight_rect *rect;
    weight_place *places;
} weight_plan;

static int64_t count_bands(const conv2d_geometry *g, int d, int64_t extent)
{
    int64_t count = 0;

    for (int64_t i = 0; i < extent; count++) {
        i = conv2d_band_at(g, d, i, extent).last;
    }
    return count;
}

/* All but the tables. */
static weight_plan outline_plan(const conv2d_geometry *g)
{
    weight_plan p = {.g = *g};
    int64_t channels, most = TILE_TAPS;

    p.channel_tiles = (g->o + TILE_CHANNELS - 1) / TILE_CHANNELS;
    channels = (g->o + p.channel_tiles - 1) / p.channel_tiles;
    while (weight_tiles[channels - 1][most - 1] == NULL) {
        most--;
    }
    p.tap_tiles = (g->taps + most - 1) / most;
    p.rects =
        conv2d_is_padded(g) ? count_bands(g, 0, g->oh) * count_bands(g, 1, g->ow) : 1;
    return p;
}

/* Places for the tables in memory. A rectangle's places are MAX_SPAN pixels, or a row, or all of
 * it. */
static void place_tables(weight_plan *p, char *start, size_t *used)
{
    const int64_t span = SONDE_MAX(p->g.ow, (int64_t)MAX_SPAN);
    const int64_t places = SONDE_MIN(p->rects * span, p->g.oh * p->g.ow);

    p->taps = sonde__op_take(start, used, p->g.taps, sizeof(weight_tap));
    p->tiles = sonde__op_take(start, used, p->tap_tiles, sizeof(tap_tile));
    p->rect = sonde__op_take(start, used, p->rects, sizeof(weight_rect));
    p->places = sonde__op_take(start, used, places, sizeof(weight_place));
}

static void list_taps(const weight_plan *p)
{
    const conv2d_geometry *const g = &p->g;
    weight_tap *tap = p->taps;

    for (int64_t i = 0; i < p->tap_tiles; i++) {
        const int64_t first = g->taps * i / p->tap_tiles;

        p->tiles[i] = (tap_tile){first, g->taps * (i + 1) / p->tap_tiles - first};
    }
    for (int64_t c = 0; c < g->c; c++) {
        for (int64_t k = 0; k < g->kernel[0]; k++) {
            for (int64_t l = 0; l < g->kernel[1]; l++) {
                *tap++ = (weight_tap){
                    ((c * g->h + k * g->dilation[0]) * g->w + l * g->dilation[1]) * LANES,
                    k, l};
            }
        }
    }
}

/* Fills in a rectangle of two bands; returns where the next one's places go. */
static weight_place *plan_rect(const conv2d_geometry *g, const conv2d_band *rows,
                               const conv2d_band *columns, weight_place *places,
                               weight_rect *rect)
{
    const int64_t height = rows->last - rows->first,
                  width = columns->last - columns->first;

    *rect = (weight_rect){.rows = *rows, .columns = *columns, .places = places};
    rect->span_rows = SONDE_MIN(SONDE_MAX(MAX_SPAN / width, (int64_t)1), height);
    for (int64_t i = 0; i < rect->span_rows; i++) {
        for (int64_t j = 0; j < width; j++) {
            *places++ =
                (weight_place){(i * g->ow + j) * LANES,
                               (i * g->stride[0] * g->w + j * g->stride[1]) * LANES};
        }
    }
    return places;
}

/* Fills in the tables. */
static void complete_plan(const weight_plan *p)
{
    const conv2d_geometry *const g = &p->g;
    weight_place *places = p->places;
    weight_rect *rect = p->rect;
    conv2d_band down = {0}, across = {0};

    list_taps(p);
    for (int64_t i = 0; i < g->oh; i = down.last) {
        down = conv2d_band_at(g, 0, i, g->oh);
        for (int64_t j = 0; j < g->ow; j = across.last) {
            across = conv2d_band_at(g, 1, j, g->ow);
            places = plan_rect(g, &down, &across, places, rect++);
        }
    }
}

static void channel_range(const weight_plan *p, int64_t tile, int64_t *first,
                          int64_t *count)
{
    *first = p->g.o * tile / p->channel_tiles;
    *count = p->g.o * (tile + 1) / p->channel_tiles - *first;
}

/* --- one tile over some rows -------------------------------------------------------- */

/* Rows of dy of `channels` channels, and all of x of their group, of one block. */
typedef struct weight_rows {
    const float *dy; /* the first channel's row first_row */
    const float *x;
    int64_t dy_plane, first_row, rows, channels;
} weight_rows;

/* The taps of a tile that meet the image in a rectangle: their numbers. */
static int64_t choose_taps(const weight_plan *p, const weight_rect *rect,
                           const tap_tile *tile, int64_t chosen[TILE_TAPS])
{
    int64_t count = 0;

    for (int64_t t = tile->first; t < tile->first + tile->count; t++) {
        const weight_tap *const tap = &p->taps[t];

        if (tap->k >= rect->rows.begin && tap->k < rect->rows.end &&
            tap->l >= rect->columns.begin && tap->l < rect->columns.end) {
            chosen[count++] = t;
        }
    }
    return count;
}

/* Rows first ... last - 1 of a rectangle. */
static void sum_rect(const weight_plan *p, const weight_rows *in, const weight_rect *rect,
                     int64_t first, int64_t last, const tap_tile *tile, bool fresh,
                     float *sums)
{
    const conv2d_geometry *const g = &p->g;
    const int64_t width = rect->columns.last - rect->columns.first;
    const int64_t x = rect->columns.first * g->stride[1] - g->padding[1];
    int64_t chosen[TILE_TAPS];
    const int64_t taps = choose_taps(p, rect, tile, chosen);
    weight_span span = {.places = rect->places,
                        .dy_plane = in->dy_plane,
                        .sums_step = tile->count * LANES,
                        .fresh = fresh};

    for (int64_t row = first; row < last && taps > 0; row += rect->span_rows) {
        const int64_t offset = (row - in->first_row) * g->ow + rect->columns.first;
        const int64_t y = row * g->stride[0] - g->padding[0];

        span.pixels = SONDE_MIN(rect->span_rows, last - row) * width;
        for (int lane = 0; lane < LANES; lane += VF_WIDTH) {
            span.dy = in->dy + offset * LANES + lane;
            span.sums = sums + lane;
            for (int64_t i = 0; i < taps; i++) {
                span.x[i] =
                    in->x + ((y * g->w + x) * LANES + p->taps[chosen[i]].x + lane);
                span.slot[i] = (chosen[i] - tile->first) * LANES;
            }
            weight_tiles[in->channels - 1][taps - 1](&span);
        }
        span.fresh = false;
    }
}

/* Adds what some rows give to the sums [channels][taps][16] of a tile; fresh: begins
 * them. */
static void sum_rows(const weight_plan *p, const weight_rows *in, const tap_tile *tile,
                     bool fresh, float *sums)
{
    if (fresh && p->rects > 1) {
        memset(sums, 0, (size_t)(in->channels * tile->count) * LANES * sizeof(float));
    }
    for (int64_t i = 0; i < p->rects; i++) {
        const weight_rect *const rect = &p->rect[i];

        sum_rect(p, in, rect, SONDE_MAX(rect->rows.first, in->first_row),
                 SONDE_MIN(rect->rows.last, in->first_row + in->rows), tile,
                 fresh && p->rects == 1, sums);
    }
}

/* --- sums to gradients -------------------------------------------------------------- */

/* to[i] = the sum over lanes of row i of sums, i = 0 ... 15; rows past count are 0. */
static void sum_lanes(const float *sums, int64_t count, float target[16])
{
    v16 rows[16];

    for (int64_t i = 0; i < 16; i++) {
        rows[i] = i < count ? v16_load(sums + i * LANES) : v16_zero();
    }
    v16_store(target, v16_sums(rows));
}

/* The sums of a tile, whose first output is at dw; outputs lie dw_step apart. */
static void store_weights(const float *sums, int64_t channels, int64_t taps, float *dw,
                          int64_t dw_step)
{
    float part[(TILE_CHANNELS * TILE_TAPS + 31) / 16 * 16];

    for (int64_t i = 0; i < channels * taps; i += 16) {
        sum_lanes(sums + i * LANES, channels * taps - i, part + i);
    }
    for (int64_t o = 0; o < channels; o++) {
        v16_store_n(dw + o * dw_step, v16_load(part + o * taps), (int)taps);
    }
}

/* What the lanes of a block that hold no sample added is taken back: begin_block before,
 * end_block after. Only a last block has such lanes. */
static void begin_block(int64_t samples, int64_t block, const float *sums, int64_t rows,
                        float *former)
{
    const size_t bytes = (size_t)rows * LANES * sizeof(float);

    if (lanes_valid(samples, block) == LANES) {
        return;
    }
    if (block == 0) {
        memset(former, 0, bytes);
    } else {
        memcpy(former, sums, bytes);
    }
}

static void end_block(int64_t samples, int64_t block, float *sums, int64_t rows,
                      const float *former)
{
    if (lanes_valid(samples, block) < LANES) {
        lanes_restore(sums, former, rows, lanes_valid(samples, block));
    }
}

#endif

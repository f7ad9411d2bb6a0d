/*
 * conv2d_wide_weight_kernels.c - weight gradient of a convolution of many channels over
 * LANES.
 *
 *   dw[o][c][k][l] = sum over samples and pixels (i, j) of
 *       dy[o][i][j] x[c][i s - p + k d][j s - p + l d]
 *
 * A term is one pixel of one sample. The output gradient is copied to panels
 * [term][STRIP], STRIP output channels side by side, a chunk of terms at a time. A tile
 * is ROWS input channels by a panel, for one tap, in registers: every term broadcasts one
 * number of x a row, where it lies. Only pixels take part whose tap meets the image, and
 * only lanes that hold samples.
 *
 * Order of the sum: chunks, blocks of samples, rows, columns and samples in order, one
 * FMA each where the ISA has it, in chains of about CHAIN_TERMS from 0, whose sums are
 * added in order. Chunks and chains depend on shapes alone, so bits do not depend on
 * parts.
 *
 * Omitted: groups, and few channels (conv2d_weight_kernels.c has both).
 */
#include "base/isa.h"
#include "base/macros.h"
#include "base/memory.h"
#include "nn/kernels/conv2d_lanes.h"
#include "nn/kernels/fast.h"

enum {
    ROWS = VF_TILE_ROWS,
    VECS = VF_TILE_VECS,
    STRIP = VECS * VF_WIDTH,
    CHUNK_PIXELS = 64, /* of 16 samples; at most */
    CHAIN_PIXELS = 16, /* likewise, of a run */
    CHAIN_TERMS = CHAIN_PIXELS * LANES,
    FEWEST_OUTPUTS = 16, /* channels from which this pays */
    FEWEST_INPUTS = 6
};

/* Terms side by side: pixels of one row of one block. */
typedef struct run {
    int64_t x;                    /* floats from channel 0 of block 0 */
    int32_t panel, pixels, terms; /* floats; terms of a pixel */
    bool ends;                    /* a chain ends after it */
} run;

typedef struct wide {
    conv2d_geometry g;
    const float *dy, *x;
    float *dw;
    int64_t blocks, rows, columns; /* of a chunk, at most */
    int64_t panels;
} wide;

/* Blocks, rows and columns first ... last - 1. */
typedef struct chunk {
    int64_t block[2], row[2], column[2];
} chunk;

static wide wide_of(const sonde__op_call *call)
{
    wide c = {
        .g = conv2d_geometry_of(&call->in[1].shape, &call->out[0].shape, call->attrs),
        .dy = lanes_in(call, 0),
        .x = lanes_in(call, 1),
        .dw = lanes_out(call, 0),
        .blocks = 1,
        .rows = 1};

    c.columns = SONDE_MIN(c.g.ow, (int64_t)CHUNK_PIXELS);
    if (c.columns == c.g.ow) {
        c.rows = SONDE_MIN(c.g.oh, CHUNK_PIXELS / c.g.ow);
    }
    if (c.rows == c.g.oh && c.columns == c.g.ow) {
        c.blocks = SONDE_MIN(c.g.blocks, CHUNK_PIXELS / (c.g.oh * c.g.ow));
    }
    c.panels = (c.g.o + STRIP - 1) / STRIP;
    return c;
}

/* --- memory of a part --------------------------------------------------------------- */

typedef struct workspace {
    float *panel, *sums; /* sums: [channel][tap][STRIP] */
    run *runs;           /* [tap][CHUNK_PIXELS] */
    int64_t *counts;     /* of each tap's runs */
} workspace;

/* Lays out a part's memory at `start`, or nowhere; returns its size. */
static size_t lay_out(const wide *c, workspace *w, char *start)
{
    const int64_t taps = c->g.kernel[0] * c->g.kernel[1];
    size_t used = 0;

    w->panel = sonde__op_take(start, &used, CHUNK_PIXELS * LANES * STRIP, sizeof(float));
    w->runs = sonde__op_take(start, &used, taps * CHUNK_PIXELS, sizeof(run));
    w->sums = sonde__op_take(start, &used, c->g.taps * STRIP, sizeof(float));
    w->counts = sonde__op_take(start, &used, taps, sizeof(int64_t));
    return used;
}

/* --- the panel ---------------------------------------------------------------------- */

/* to[lane][STRIP] = the numbers of `outputs` channels at a pixel; 0 beyond them. */
static void copy_pixel(const float *dy, int64_t plane, int64_t outputs, float *to)
{
    for (int64_t o = 0; o < STRIP; o += VF_WIDTH) {
        for (int lane = 0; lane < LANES; lane += VF_WIDTH) {
            vf rows[VF_WIDTH];

            VEC_EACH (r, VF_WIDTH) {
                rows[r] = (vf){0};
                if (o + r < outputs) {
                    rows[r] = vf_load(dy + (o + r) * plane + lane);
                }
            }
            vf_transpose(rows);
            VEC_EACH (r, VF_WIDTH) {
                vf_store(to + (lane + r) * STRIP + o, rows[r]);
            }
        }
    }
}

static void copy_panel(const wide *c, const chunk *k, int64_t first, float *panel)
{
    const conv2d_geometry *const g = &c->g;
    const int64_t plane = g->oh * g->ow * LANES;

    for (int64_t b = k->block[0]; b < k->block[1]; b++) {
        for (int64_t i = k->row[0]; i < k->row[1]; i++) {
            for (int64_t j = k->column[0]; j < k->column[1]; j++) {
                copy_pixel(c->dy + (b * g->o + first) * plane + (i * g->ow + j) * LANES,
                           plane, g->o - first, panel);
                panel += LANES * STRIP;
            }
        }
    }
}

/* --- runs --------------------------------------------------------------------------- */

/* Outputs *first ... *last - 1 of [range[0], range[1]) whose tap k meets the image. */
static void tap_outputs(const conv2d_geometry *g, int d, int64_t k,
                        const int64_t range[2], int64_t *first, int64_t *last)
{
    const int64_t extent = d == 0 ? g->h : g->w;
    const int64_t shift = g->padding[d] - k * g->dilation[d];

    *first = SONDE_MAX(range[0], conv2d_ceil_div(shift, g->stride[d]));
    *last = SONDE_MIN(range[1], conv2d_ceil_div(extent + shift, g->stride[d]));
}

/* Appends the runs of columns first ... last - 1 of a row, and tells where chains end. */
static run *add_runs(const conv2d_geometry *g, int valid, run next, int64_t pixels,
                     int64_t *terms, run *to)
{
    const bool dense = valid == LANES && g->stride[1] == 1; /* pixels are side by side */

    for (int64_t done = 0; done < pixels; done += CHAIN_PIXELS) {
        const int32_t count = (int32_t)SONDE_MIN(pixels - done, (int64_t)CHAIN_PIXELS);

        *terms += count * valid;
        next.pixels = dense ? 1 : count;
        next.terms = dense ? count * LANES : valid;
        next.ends = *terms >= CHAIN_TERMS;
        *terms = next.ends ? 0 : *terms;
        *to++ = next;
        next.x += count * g->stride[1] * LANES;
        next.panel += count * LANES * STRIP;
    }
    return to;
}

/* The runs of tap (k, l) in a chunk. Returns how many. */
static int64_t list_runs(const wide *c, const chunk *part, int64_t k, int64_t l,
                         run *runs)
{
    const conv2d_geometry *const g = &c->g;
    const int64_t columns = part->column[1] - part->column[0];
    const int64_t rows = part->row[1] - part->row[0];
    int64_t row[2], column[2], terms = 0;
    run *end = runs;

    tap_outputs(g, 0, k, part->row, &row[0], &row[1]);
    tap_outputs(g, 1, l, part->column, &column[0], &column[1]);
    for (int64_t b = part->block[0]; b < part->block[1]; b++) {
        for (int64_t i = row[0]; i < row[1]; i++) {
            const int64_t y = i * g->stride[0] - g->padding[0] + k * g->dilation[0];
            const int64_t x =
                column[0] * g->stride[1] - g->padding[1] + l * g->dilation[1];
            const int64_t pixel =
                ((b - part->block[0]) * rows + i - part->row[0]) * columns + column[0] -
                part->column[0];
            const run next = {.x = (b * g->c * g->h * g->w + y * g->w + x) * LANES,
                              .panel = (int32_t)(pixel * LANES * STRIP)};

            end = add_runs(g, lanes_valid(g->samples, b), next, column[1] - column[0],
                           &terms, end);
        }
    }
    return end - runs;
}

/* --- tiles -------------------------------------------------------------------------- */

typedef struct tile {
    const run *runs, *end;
    const float *panel;
    const float *x[ROWS]; /* of channel 0, block 0 */
    int64_t x_step;       /* floats between pixels */
    float *sums;
    int64_t sums_row;
    int rows; /* that exist */
} tile;

VEC_INLINE void clear(const int rows, const int vecs, vf acc[ROWS][VECS])
{
    VEC_TILE (k, rows, j, vecs) {
        acc[k][j] = (vf){0};
    }
}

/* Rows that do not exist are the last one once more. */
VEC_INLINE void add_sums(const tile *t, const int rows, const int vecs,
                         vf acc[ROWS][VECS])
{
    VEC_TILE (k, rows, j, vecs) {
        float *const to = t->sums + k * t->sums_row + j * VF_WIDTH;

        if (k < t->rows) {
            vf_store(to, vf_load(to) + acc[k][j]);
        }
    }
}

VEC_INLINE void sum_runs(const tile *t, const int rows, const int vecs,
                         vf acc[ROWS][VECS])
{
    for (const run *r = t->runs; r < t->end; r++) {
        int64_t at = r->x;

        for (int p = 0; p < r->pixels; p++) {
            const float *b = t->panel + r->panel + p * LANES * STRIP;

            for (int64_t i = at; i < at + r->terms; i++) {
                vf v[VECS];

                VEC_EACH (k, vecs) {
                    v[k] = vf_load(b + k * VF_WIDTH);
                }
                VEC_EACH (k, rows) {
                    const vf w = vf_set1(t->x[k][i]);

                    VEC_EACH (j, vecs) {
                        acc[k][j] = vf_fma(w, v[j], acc[k][j]);
                    }
                }
                b += STRIP;
            }
            at += t->x_step;
        }
        if (r->ends) {
            add_sums(t, rows, vecs, acc);
            clear(rows, vecs, acc);
        }
    }
}

VEC_INLINE void run_tile(const tile *t, const int rows, const int vecs)
{
    vf acc[ROWS][VECS];

    clear(rows, vecs, acc);
    sum_runs(t, rows, vecs, acc);
    add_sums(t, rows, vecs, acc);
}

typedef void tile_fn(const tile *t);

#define DEFINE_TILE(rows, vecs)                                                          \
    static void run_tile_##rows##_##vecs(const tile *t)                                  \
    {                                                                                    \
        run_tile(t, rows, vecs);                                                         \
    }
#define LIST_TILE(rows, vecs) [(rows - 1) / 2][vecs - 1] = run_tile_##rows##_##vecs,
#define TILES(X)                                                                         \
    VF_UP_TO_TILE_VECS(X, 2) VF_UP_TO_TILE_VECS(X, 4) VF_UP_TO_TILE_VECS(X, 6)

TILES(DEFINE_TILE)

static tile_fn *const tile_fns[][VECS] = {TILES(LIST_TILE)};

/* --- chunks ------------------------------------------------------------------------- */

/* Every tap of input channels channel[0] ... channel[1] - 1 with the panel. */
static void run_tiles(const wide *c, const workspace *work, const int64_t channel[2],
                      int64_t first)
{
    const conv2d_geometry *const g = &c->g;
    const int64_t taps = g->kernel[0] * g->kernel[1], plane = g->h * g->w * LANES;
    const int64_t outputs = SONDE_MIN(g->o - first, (int64_t)STRIP);
    const int64_t vecs = (outputs + VF_WIDTH - 1) / VF_WIDTH;
    tile t = {
        .panel = work->panel, .x_step = g->stride[1] * LANES, .sums_row = taps * STRIP};

    for (int64_t i = channel[0]; i < channel[1]; i += ROWS) {
        t.rows = (int)SONDE_MIN(channel[1] - i, (int64_t)ROWS);
        for (int r = 0; r < ROWS; r++) {
            t.x[r] = c->x + SONDE_MIN(i + r, channel[1] - 1) * plane;
        }
        for (int64_t tap = 0; tap < taps; tap++) {
            t.runs = work->runs + tap * CHUNK_PIXELS;
            t.end = t.runs + work->counts[tap];
            t.sums = work->sums + (i * taps + tap) * STRIP;
            tile_fns[(t.rows - 1) / 2][vecs - 1](&t);
        }
    }
}

static void run_chunk(const wide *c, const workspace *work, const chunk *k,
                      const int64_t channel[2], int64_t first)
{
    const conv2d_geometry *const g = &c->g;

    for (int64_t tap = 0; tap < g->kernel[0] * g->kernel[1]; tap++) {
        work->counts[tap] = list_runs(c, k, tap / g->kernel[1], tap % g->kernel[1],
                                      work->runs + tap * CHUNK_PIXELS);
    }
    copy_panel(c, k, first, work->panel);
    run_tiles(c, work, channel, first);
}

/* dw[first + o][channel ...] from the sums of a panel. */
static void store_panel(const wide *c, const float *sums, const int64_t channel[2],
                        int64_t first)
{
    const int64_t taps = c->g.kernel[0] * c->g.kernel[1];
    const int64_t begin = channel[0] * taps, end = channel[1] * taps;
    const int64_t outputs = SONDE_MIN(c->g.o - first, (int64_t)STRIP);
    float *const dw = c->dw + first * c->g.taps;

    for (int64_t t = begin; t < end; t += VF_WIDTH) {
        for (int64_t o = 0; o < outputs; o += VF_WIDTH) {
            const int filled = (int)SONDE_MIN(end - t, (int64_t)VF_WIDTH);
            vf rows[VF_WIDTH];

            VEC_EACH (r, VF_WIDTH) {
                rows[r] = (vf){0};
                if (r < filled) {
                    rows[r] = vf_load(sums + (t + r) * STRIP + o);
                }
            }
            vf_transpose(rows);
            VEC_EACH (r, VF_WIDTH) {
                if (o + r < outputs) {
                    vf_store_n(dw + (o + r) * c->g.taps + t, rows[r], filled);
                }
            }
        }
    }
}

static void limit(int64_t range[2], int64_t first, int64_t step, int64_t count)
{
    range[0] = first;
    range[1] = SONDE_MIN(first + step, count);
}

/* Output channels first ... of one panel. */
static void run_panel(const wide *c, const workspace *work, const int64_t channel[2],
                      int64_t first)
{
    const conv2d_geometry *const g = &c->g;

    memset(work->sums, 0, (size_t)(g->taps * STRIP) * sizeof(float));
    for (int64_t b = 0; b < g->blocks; b += c->blocks) {
        for (int64_t i = 0; i < g->oh; i += c->rows) {
            for (int64_t j = 0; j < g->ow; j += c->columns) {
                chunk k;

                limit(k.block, b, c->blocks, g->blocks);
                limit(k.row, i, c->rows, g->oh);
                limit(k.column, j, c->columns, g->ow);
                run_chunk(c, work, &k, channel, first);
            }
        }
    }
    store_panel(c, work->sums, channel, first);
}

/* --- the kernel --------------------------------------------------------------------- */

static bool weight_accepts(const sonde__op_call *call)
{
    const sonde__op_shape *const w = &call->out[0].shape;

    return lanes_is_f32(&call->in[0].shape, 4) && lanes_is_f32(&call->in[1].shape, 4) &&
           lanes_is_f32(w, 4) && call->attrs->window.groups == 1 &&
           w->dim[0] >= FEWEST_OUTPUTS && w->dim[1] >= FEWEST_INPUTS;
}

static size_t weight_scratch(const sonde__op_call *call, int parts)
{
    const wide c = wide_of(call);
    workspace unused;

    return lay_out(&c, &unused, NULL) * (size_t)parts;
}

static int weight_parts(const sonde__op_call *call, int max)
{
    const wide c = wide_of(call);

    return lanes_parts(conv2d_operations(&c.g), SONDE_MAX(c.panels, c.g.c / ROWS), max);
}

/* A part is a range of panels if they can be shared out, else of input channels. */
static void weight_run(const sonde__op_call *call, int part, int parts)
{
    const wide c = wide_of(call);
    workspace work;
    const size_t bytes = lay_out(&c, &work, NULL);
    int64_t panel[2] = {0, c.panels}, channel[2] = {0, c.g.c};

    (void)lay_out(&c, &work, (char *)call->scratch + bytes * (size_t)part);
    if (c.panels % parts == 0) {
        lanes_split(c.panels, part, parts, &panel[0], &panel[1]);
    } else {
        lanes_split(c.g.c, part, parts, &channel[0], &channel[1]);
    }
    for (int64_t p = panel[0]; p < panel[1] && channel[0] < channel[1]; p++) {
        run_panel(&c, &work, channel, p * STRIP);
    }
}

SONDE__ISA_KERNEL(conv2d_grad_weight_wide, "wide", weight_accepts,
                  (SONDE__LANES, SONDE__LANES), (SONDE__PLAIN), weight_run,
                  .scratch = weight_scratch, .parts = weight_parts)

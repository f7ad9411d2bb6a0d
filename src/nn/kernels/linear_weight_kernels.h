/*
 * linear_weight_kernels.h - the second half of linear_kernels.c: gradients of weight and
 * bias, the update that consumes the former while it is in cache, and the lists of
 * kernels.
 */
#ifndef SONDE_NN_KERNELS_LINEAR_WEIGHT_KERNELS_H
#define SONDE_NN_KERNELS_LINEAR_WEIGHT_KERNELS_H

enum {
    SAMPLE_CHUNK = 2048,        /* terms of a sum in one pass over a tile */
    PANELS_FLOATS = 128 * 1024, /* of x that stay in L2 whole: 512 KB */
};

/* dw (rows, cols) = dy^T x */
typedef struct weight_product {
    const float *dy; /* LANES */
    layout_view x;
    int64_t samples, rows, cols;
    float
        *panels; /* scratch of this part, if x is not in PANELS: all of x or one panel */
    bool all;    /* which of them */
    const sgd_rule *rule; /* with momentum and nothing else; dw is then not stored but */
    const sgd_arrays *update; /* updates these; or NULL */
} weight_product;

static int64_t panel_floats(int64_t samples, int64_t cols)
{
    return samples * ((cols + 31) / 32 * 32);
}

static weight_product weight_product_of(const sonde__operand *dy, const sonde__operand *x,
                                        float *scratch)
{
    const int64_t samples = x->shape.dim[0], cols = x->shape.dim[1];
    const weight_product p = {
        .dy = dy->data,
        .x = {x->data, samples, cols, x->layout},
        .samples = samples,
        .rows = dy->shape.dim[1],
        .cols = cols,
        .panels = scratch,
        .all = panel_floats(samples, cols) <= PANELS_FLOATS,
    };

    return p;
}

/* Floats of scratch a part, if x is not in PANELS. */
static int64_t weight_scratch_floats(const sonde__op_shape *x)
{
    const int64_t all = panel_floats(x->dim[0], x->dim[1]);

    return all <= PANELS_FLOATS ? all
                                : panel_floats(SONDE_MIN(x->dim[0], SAMPLE_CHUNK), 32);
}

/* Samples n ... n + count - 1 of x, columns k ... k + 31, to a panel of count samples. */
static void fill_panel(const weight_product *p, int64_t n, int64_t count, int64_t k,
                       float *panel)
{
    const int64_t width = SONDE_MIN(p->cols - k, 32);
    int64_t stride;

    for (int64_t i = 0; i < count; i += 16) {
        const int samples = (int)SONDE_MIN(count - i, 16);

        for (int64_t j = 0; j < 32; j += 16) {
            const int columns = (int)SONDE_MAX(0, SONDE_MIN(width - j, 16));
            const float *const source =
                columns == 0 ? panel : layout_tile(&p->x, n + i, k + j, &stride);
            float *const target = panel + i * 32 + j;

            if (columns == 0) {
                copy_rows(source, 0, 0, 0, target, 32, samples, 16);
            } else if (p->x.layout == SONDE__LANES) {
                transpose_rows(source, stride, columns, samples, target, 32, samples, 16);
            } else {
                copy_rows(source, stride, samples, columns, target, 32, samples, 16);
            }
        }
    }
}

/* Before the first chunk of rows. */
static void prepare_panels(const weight_product *p)
{
    for (int64_t k = 0; p->x.layout != SONDE__PANELS && p->all && k < p->cols; k += 32) {
        fill_panel(p, 0, p->samples, k, p->panels + k * p->samples);
    }
}

/* The panel of columns k ..., samples n ... n + count - 1. */
static const float *panel_at(const weight_product *p, int64_t n, int64_t count, int64_t k)
{
    if (p->x.layout == SONDE__PANELS) {
        return p->x.data + k * p->samples + n * 32;
    }
    if (p->all) {
        return p->panels + k * p->samples + n * 32;
    }
    fill_panel(p, n, count, k, p->panels);
    return p->panels;
}

/* One panel of the rows: c is where element (rows.begin, 0) of dw goes. The next panel's
 * part of a plain x is fetched meanwhile: its rows are too far apart for the processor to
 * guess. */
static void weight_panel(const weight_product *p, tile *t, const span rows, int64_t n,
                         int64_t k, const float *panel, float *c)
{
    const int64_t width = SONDE_MIN(p->cols - k, 32);
    const bool far = p->x.layout == SONDE__PLAIN && !p->all && k + 32 < p->cols;
    const float *const next = far ? p->x.data + n * p->cols + k + 32 : NULL;

    for (int64_t j = 0; j < width; j += TILE_COLS) {
        const bool narrow = VF_WIDTH == 16 && width <= 16;
        const row_groups groups =
            row_groups_of(rows.end - rows.begin, narrow ? NARROW_ROWS : WIDE_ROWS);

        t->cols = (int)(width - j);
        for (int64_t g = 0; g < groups.count; g++) {
            const int64_t first = row_group_start(&groups, g);
            const int64_t count = row_group_start(&groups, g + 1) - first;
            const float *const a = p->dy + n * p->rows + (rows.begin + first) * 16;

            t->ahead = next == NULL ? NULL : next + t->depth * g / groups.count * p->cols;
            (narrow ? weight_tiles.narrow[count] : weight_tiles.wide[count])(
                t, a, panel + j, c + first * p->cols + k + j, 0);
        }
    }
}

/* Rows of dw, to c and after it. */
static void weight_rows(const weight_product *p, const span rows, float *c)
{
    tile t = {.a_stride = p->rows * 16,
              .c_stride = p->cols,
              .ahead_stride = p->cols,
              .rule = p->rule,
              .update = p->update,
              .c_origin = p->update == NULL ? NULL : p->update->w_out};

    for (int64_t n = 0; n == 0 || n < p->samples; n += SAMPLE_CHUNK) {
        t.depth = SONDE_MIN(p->samples - n, SAMPLE_CHUNK);
        t.resume = n > 0;
        for (int64_t k = 0; k < p->cols; k += 32) {
            weight_panel(p, &t, rows, n, k, panel_at(p, n, t.depth, k), c);
        }
    }
}

/* The most rows whose dy stays in L2 through all panels. */
static int64_t chunk_rows(int64_t samples)
{
    return SONDE_MAX(4 * WIDE_ROWS,
                     CHUNK_FLOATS / SONDE_MAX(1, SONDE_MIN(samples, SAMPLE_CHUNK)));
}

static size_t grad_weight_scratch_part(const sonde__op_call *call)
{
    return rounded((size_t)weight_scratch_floats(&call->in[1].shape) * sizeof(float));
}

static size_t grad_weight_scratch(const sonde__op_call *call, int parts)
{
    return grad_weight_scratch_part(call) * (size_t)parts;
}

/* Rows of dw in chunks of at most `most`; element (0, 0) goes to c. */
static void weight_chunks(const weight_product *p, const span mine, int64_t most,
                          float *c)
{
    const row_groups chunks = row_groups_of(mine.end - mine.begin, most);

    if (mine.begin < mine.end) {
        prepare_panels(p);
    }
    for (int64_t i = 0; i < chunks.count; i++) {
        const span rows = {mine.begin + row_group_start(&chunks, i),
                           mine.begin + row_group_start(&chunks, i + 1)};

        weight_rows(p, rows, c + rows.begin * p->cols);
    }
}

static void grad_weight_run(const sonde__op_call *call, int part, int parts)
{
    const weight_product p =
        weight_product_of(&call->in[0], &call->in[1],
                          scratch_at(call, grad_weight_scratch_part(call), part));

    weight_chunks(&p, part_of(p.rows, part, parts), chunk_rows(p.samples),
                  call->out[0].data);
}

static int grad_weight_parts(const sonde__op_call *call, int max)
{
    const sonde__op_shape *dy = &call->in[0].shape, *x = &call->in[1].shape;

    return worth(2 * x->dim[0] * dy->dim[1] * x->dim[1], GRAIN_FLOPS, max);
}

/* --- gradient of the bias ----------------------------------------------------------- */

/* Sums over all lanes of 16 channels at c (count of them exist), the valid lanes only. */
static v16 sum_channels(const float *dy, int64_t samples, int64_t channels, int64_t c,
                        int count)
{
    v16 sum[16];

    for (int i = 0; i < 16; i++) {
        sum[i] = v16_zero();
    }
    for (int64_t n = 0; n < samples; n += 16) {
        const float *const block = dy + n * channels + c * 16;
        const int lanes = (int)SONDE_MIN(samples - n, 16);

        if (lanes == 16 && count == 16) {
            VEC_UNROLL
            for (int i = 0; i < 16; i++) {
                sum[i] = v16_add(sum[i], v16_load(block + 16 * i));
            }
        } else {
            for (int i = 0; i < count; i++) {
                sum[i] = v16_add(sum[i], v16_load_n(block + 16 * i, lanes));
            }
        }
    }
    return v16_sums(sum);
}

static void channel_sum_run(const sonde__op_call *call, int part, int parts)
{
    const float *const dy = call->in[0].data;
    float *const out = call->out[0].data;
    const int64_t samples = call->in[0].shape.dim[0], channels = call->in[0].shape.dim[1];
    const span mine = part_of((channels + 15) / 16, part, parts);

    for (int64_t group = mine.begin; group < mine.end; group++) {
        const int count = (int)SONDE_MIN(channels - group * 16, 16);

        v16_store_n(out + group * 16,
                    sum_channels(dy, samples, channels, group * 16, count), count);
    }
}

static int channel_sum_parts(const sonde__op_call *call, int max)
{
    const sonde__op_shape *dy = &call->in[0].shape;

    return worth(dy->dim[0] * dy->dim[1] * (int64_t)sizeof(float), GRAIN_BYTES, max);
}

static bool accepts_matrix(const sonde__op_call *call)
{
    return all_f32(call) && call->in[0].shape.rank == 2;
}

#include "base/macros.h"

/* --- the update --------------------------------------------------------------------- */

/*
 * The weight gradient that SGD consumes while it is in cache.
 *
 * With momentum alone and no tap on dw, each tile of dw updates w and v out of
 * registers and is never stored. Else chunks of rows of dw go to scratch, or to dw if it
 * is wanted whole, and the update runs over them, along memory, in blocks of vital signs:
 *
 *     element of dw  done        limit      end
 *                    | updated   | left     |     next chunk of rows     |
 *
 * The remainder stays for the next round. A block that parts share is updated in pieces,
 * whose dw is kept in a slot in scratch; its vital signs are taken when all parts are
 * done:
 *
 *     scratch  | signs of every block | one slot a part | part 0 | part 1 | ...
 *     part     | chunks of dw, and a block that is left | panels of x |
 *
 * Where dw turns out to hold NaN or infinities, its vital signs are taken from a dw that
 * is computed again: `again` below, which updates nothing.
 */

enum {
    UPDATE_W = 0,
    UPDATE_DY = 1,
    UPDATE_X = 2,
    UPDATE_V = 3,
    UPDATE_FLOATS = 16 * 1024, /* of dw between product and update: 64 KB */
    UPDATE_CHUNKS = 3          /* that scratch holds: what is left is moved that seldom */
};

/* Few enough rows that their dw is in cache when the update comes, but not so few that x
 * is read from beyond L2 too often. */
static int64_t update_rows(const sonde__op_shape *x)
{
    const int64_t cols = SONDE_MAX(1, x->dim[1]);

    if (panel_floats(x->dim[0], cols) > PANELS_FLOATS) {
        return chunk_rows(x->dim[0]);
    }
    return SONDE_MAX(WIDE_ROWS, UPDATE_FLOATS / cols / WIDE_ROWS * WIDE_ROWS);
}

/* Floats of a part's chunks of dw, and of a block that is left of those before. */
static int64_t update_floats(const sonde__op_call *call)
{
    const sonde__op_shape *x = &call->in[UPDATE_X].shape;
    const int64_t rows = SONDE_MIN(update_rows(x), call->in[UPDATE_W].shape.dim[0]);

    return (UPDATE_CHUNKS * rows * x->dim[1] + SONDE__VITALS_BLOCK + 15) / 16 * 16;
}

static size_t update_scratch_part(const sonde__op_call *call)
{
    return rounded(
        (size_t)(update_floats(call) + weight_scratch_floats(&call->in[UPDATE_X].shape)) *
        sizeof(float));
}

static size_t update_scratch(const sonde__op_call *call, int parts)
{
    return sgd_signs_bytes(sonde__op_shape_count(&call->in[UPDATE_W].shape)) +
           (SONDE__VITALS_BLOCK * sizeof(float) + update_scratch_part(call)) *
               (size_t)parts;
}

static int update_parts(const sonde__op_call *call, int max)
{
    const sonde__op_shape *w = &call->in[UPDATE_W].shape;

    return worth(2 * call->in[UPDATE_X].shape.dim[0] * w->dim[0] * w->dim[1], GRAIN_FLOPS,
                 max);
}

/* What all parts of a call share. */
typedef struct update {
    sgd_rule rule;
    sgd_arrays arrays; /* g is unused */
    sgd_vitals wanted, signs;
    float *whole; /* dw, or NULL */
    float *slots;
    int64_t rows, cols, count;
    int parts;
    bool again; /* nothing is updated any more */
} update;

static update update_of(const sonde__op_call *call, int parts, uint8_t *bad)
{
    const int64_t count = sonde__op_shape_count(&call->in[UPDATE_W].shape);
    update u = {
        .arrays = {.w = call->in[UPDATE_W].data,
                   .v = in_data(call, UPDATE_V),
                   .w_out = call->out[0].data,
                   .v_out = call->out[2].data,
                   .bad = bad},
        .wanted = {call->out_vitals[0], call->out_vitals[1], call->out_vitals[2],
                   sonde__op_wants_norms(call, 1U << 0 | 1U << 1 | 1U << 2)},
        .whole = call->out[1].data,
        .slots = (float *)call->scratch + sgd_signs_bytes(count) / sizeof(float),
        .rows = call->in[UPDATE_W].shape.dim[0],
        .cols = call->in[UPDATE_W].shape.dim[1],
        .count = count,
        .parts = parts,
    };

    u.rule = sgd_rule_of(call->live, u.arrays.v != NULL);
    u.signs = sgd_signs(&u.wanted, call->scratch, count);
    return u;
}

/* The slot of a block: that of the part which has its first element. *shared: whether
 * others have some of it. */
static float *slot_of(const update *u, int64_t block, bool *shared)
{
    const int64_t first = block * SONDE__VITALS_BLOCK;
    int part = 0;

    while (part_of(u->rows, part, u->parts).end * u->cols <= first) {
        part++;
    }
    *shared = part_of(u->rows, part, u->parts).end * u->cols <
              SONDE_MIN(first + SONDE__VITALS_BLOCK, u->count);
    return u->slots + (int64_t)part * SONDE__VITALS_BLOCK;
}

/* Elements from ... to - 1; g is dw of the first. */
static void update_blocks(const update *u, const float *g, int64_t source, int64_t target)
{
    for (int64_t i = source, n = 0; i < target; i += n) {
        const int64_t block = i / SONDE__VITALS_BLOCK,
                      start = block * SONDE__VITALS_BLOCK;
        const int64_t stop = SONDE_MIN(start + SONDE__VITALS_BLOCK, u->count);
        sgd_arrays moved = sgd_advanced(&u->arrays, i);

        n = SONDE_MIN(stop, target) - i;
        moved.g = g + (i - source);
        if (n == stop - start) {
            const sgd_vitals into = sgd_signs_of_block(&u->signs, block);

            if (u->again) {
                sgd_vitals_init(&into);
                take_block(into.g, moved.g, n, into.norms);
            } else {
                sgd_block(&u->rule, &moved, n, &into);
            }
        } else {
            bool shared;

            memcpy(slot_of(u, block, &shared) + (i - start), moved.g,
                   (size_t)n * sizeof *g);
            sgd_update(&u->rule, &moved, n);
        }
    }
}

static void grad_weight_sgd_finish(const sonde__op_call *call, int parts)
{
    const update u = update_of(call, parts, NULL);

    for (int64_t start = 0; start < u.count; start += SONDE__VITALS_BLOCK) {
        const int64_t block = start / SONDE__VITALS_BLOCK;
        const int64_t n = SONDE_MIN(u.count - start, SONDE__VITALS_BLOCK);
        const sgd_vitals into = sgd_signs_of_block(&u.signs, block);
        bool shared;
        const float *const g = slot_of(&u, block, &shared);

        if (shared) {
            sgd_vitals_init(&into);
            take_block(into.g, g, n, into.norms);
            take_block(into.w, u.arrays.w_out + start, n, into.norms);
            take_block(into.v, u.arrays.v_out == NULL ? NULL : u.arrays.v_out + start, n,
                       into.norms);
        }
    }
    sgd_signs_merge(&u.wanted, &u.signs, u.count);
}

/* Chunks of rows to memory, each followed by its update. */
static void update_chunks(const update *u, const weight_product *p, const span mine,
                          int64_t most, float *buffer, int64_t room)
{
    const row_groups chunks = row_groups_of(mine.end - mine.begin, most);
    const bool watched = sgd_any_wanted(&u->wanted);
    int64_t done = mine.begin * p->cols;
    float *left = buffer; /* dw of element `done` */

    if (mine.begin < mine.end) {
        prepare_panels(p);
    }
    for (int64_t i = 0; i < chunks.count; i++) {
        const span rows = {mine.begin + row_group_start(&chunks, i),
                           mine.begin + row_group_start(&chunks, i + 1)};
        const int64_t start = rows.begin * p->cols, end = rows.end * p->cols;
        const int64_t blocks = end / SONDE__VITALS_BLOCK * SONDE__VITALS_BLOCK;
        const int64_t limit =
            watched && rows.end < mine.end ? SONDE_MAX(blocks, done) : end;
        float *g = u->whole != NULL ? u->whole + done : left;

        if (u->whole == NULL && left + (end - done) > buffer + room) {
            g = memmove(buffer, left, (size_t)(start - done) * sizeof *g);
        }
        weight_rows(p, rows, g + (start - done));
        if (watched) {
            update_blocks(u, g, done, limit);
        } else {
            sgd_arrays moved = sgd_advanced(&u->arrays, done);

            moved.g = g;
            sgd_update(&u->rule, &moved, limit - done);
        }
        left = g + (limit - done);
        done = limit;
    }
}

/* Scratch of a part. */
static float *update_buffer(const update *u, const sonde__op_call *call, int part)
{
    return u->slots + (int64_t)u->parts * SONDE__VITALS_BLOCK +
           (int64_t)(update_scratch_part(call) / sizeof(float)) * part;
}

/* Vital signs of dw alone; all by one part, so that no block is shared. */
static void grad_weight_sgd_again(const sonde__op_call *call)
{
    update u = update_of(call, 1, NULL);
    float *const buffer = update_buffer(&u, call, 0);
    const weight_product p = weight_product_of(&call->in[UPDATE_DY], &call->in[UPDATE_X],
                                               buffer + update_floats(call));
    const span all = {0, u.rows};

    u.again = true;
    update_chunks(&u, &p, all, update_rows(&call->in[UPDATE_X].shape), buffer,
                  update_floats(call));
    grad_weight_sgd_finish(call, 1);
}

static void grad_weight_sgd_run(const sonde__op_call *call, int part, int parts)
{
    const update u = update_of(call, parts, sonde__op_part_bad(call, part));
    float *const buffer = update_buffer(&u, call, part);
    weight_product p = weight_product_of(&call->in[UPDATE_DY], &call->in[UPDATE_X],
                                         buffer + update_floats(call));
    const span mine = part_of(u.rows, part, parts);
    const bool watched = sgd_any_wanted(&u.wanted);

    if (!watched && u.whole == NULL && p.samples <= SAMPLE_CHUNK &&
        sgd_case_of(&u.rule) == SGD_MOMENTUM) {
        p.rule = &u.rule;
        p.update = &u.arrays;
        weight_chunks(&p, mine, p.all ? 2 * WIDE_ROWS : chunk_rows(p.samples),
                      u.arrays.w_out);
        return;
    }
    update_chunks(&u, &p, mine, update_rows(&call->in[UPDATE_X].shape), buffer,
                  update_floats(call));
    if (watched && parts == 1) {
        grad_weight_sgd_finish(call, 1);
    }
}

/* --- lists -------------------------------------------------------------------------- */

static const sonde__op_kernel linear_lanes = {
    .name = "lanes",
    .accepts = all_f32,
    .in = {SONDE__LANES},
    .out = {SONDE__LANES, SONDE__LANES},
    .parts = product_parts,
    .run = linear_run,
};
static const sonde__op_kernel linear_plain = {
    .name = "lanes, x plain",
    .accepts = all_f32,
    .in = {SONDE__PLAIN},
    .out = {SONDE__LANES, SONDE__LANES},
    .scratch = linear_scratch,
    .parts = product_parts,
    .run = linear_run,
};
static const sonde__op_kernel linear_relu_lanes = {
    .name = "lanes",
    .accepts = all_f32,
    .in = {SONDE__LANES},
    .out = {SONDE__LANES, SONDE__LANES},
    .parts = product_parts,
    .vitals_out = 1U << 0 | 1U << 1,
    .vitals_kept = 1U << 0,
    .run = linear_relu_run,
    .finish = relu_vitals_finish,
};
static const sonde__op_kernel linear_relu_plain = {
    .name = "lanes, x plain",
    .accepts = all_f32,
    .in = {SONDE__PLAIN},
    .out = {SONDE__LANES, SONDE__LANES},
    .scratch = linear_scratch,
    .parts = product_parts,
    .vitals_out = 1U << 0 | 1U << 1,
    .vitals_kept = 1U << 0,
    .run = linear_relu_run,
    .finish = relu_vitals_finish,
};
static const sonde__op_kernel grad_input_lanes = {
    .name = "lanes",
    .accepts = all_f32,
    .in = {SONDE__LANES},
    .out = {SONDE__LANES},
    .parts = product_parts,
    .run = grad_input_run,
};

#define GRAD_WEIGHT(variable, text, layout)                                              \
    static const sonde__op_kernel variable = {                                           \
        .name = text,                                                                    \
        .accepts = all_f32,                                                              \
        .in = {SONDE__LANES, layout},                                                    \
        .scratch = layout == SONDE__PANELS ? NULL : grad_weight_scratch,                 \
        .parts = grad_weight_parts,                                                      \
        .run = grad_weight_run,                                                          \
    };                                                                                   \
    static const sonde__op_kernel variable##_sgd = {                                     \
        .name = text,                                                                    \
        .accepts = all_f32,                                                              \
        .in = {SONDE__PLAIN, SONDE__LANES, layout},                                      \
        .scratch = update_scratch,                                                       \
        .parts = update_parts,                                                           \
        .vitals_out = 1U << 0 | 1U << 1 | 1U << 2,                                       \
        .finish = grad_weight_sgd_finish,                                                \
        .again = grad_weight_sgd_again,                                                  \
        .run = grad_weight_sgd_run,                                                      \
    };
GRAD_WEIGHT(grad_weight_panels, "lanes, x panels", SONDE__PANELS)
GRAD_WEIGHT(grad_weight_lanes, "lanes", SONDE__LANES)
GRAD_WEIGHT(grad_weight_plain, "lanes, x plain", SONDE__PLAIN)

static const sonde__op_kernel channel_sum_lanes = {
    .name = "lanes",
    .accepts = accepts_matrix,
    .in = {SONDE__LANES},
    .parts = channel_sum_parts,
    .run = channel_sum_run,
};

const sonde__op_kernel *const *const ISA(sonde__kernel_linear_lists)[] = {
    (const sonde__op_kernel *const[]){&linear_lanes, &linear_plain, NULL},
    (const sonde__op_kernel *const[]){&linear_relu_lanes, &linear_relu_plain, NULL},
    (const sonde__op_kernel *const[]){&grad_input_lanes, NULL},
    (const sonde__op_kernel *const[]){&grad_weight_panels, &grad_weight_lanes,
                                      &grad_weight_plain, NULL},
    (const sonde__op_kernel *const[]){&grad_weight_panels_sgd, &grad_weight_lanes_sgd,
                                      &grad_weight_plain_sgd, NULL},
    (const sonde__op_kernel *const[]){&channel_sum_lanes, NULL},
};

#endif

/*
 * linear_sgd.h - the second part of linear_weight_kernels.c: the weight gradient that SGD
 * consumes while it is in registers or in cache.
 *
 * With momentum alone and nothing wanted of dw but norms, each tile of dw updates w and v
 * out of registers and is never stored. With AVX-512, norms are added there as well: in
 * float32 over at most NORMS_PANELS panels of a group of rows, in double over panels, then
 * over groups. Groups do not depend on parts.
 *
 * Else chunks of rows of dw go to scratch, or to dw if it is wanted whole, and the update
 * runs over them, along memory, in blocks of vital signs:
 *
 *     element of dw  done        limit      end
 *                    | updated   | left     |     next chunk of rows     |
 *
 * The remainder stays for the next round. A block that parts share is updated in pieces,
 * whose dw is kept in a slot in scratch; its vital signs are taken when all parts are
 * done:
 *
 *     scratch  | signs of every block | one slot a part | part 0 | part 1 | ... | groups
 *     part     | chunks of dw, and a block that is left | panels of x |
 *
 * Where dw turns out to hold NaN or infinities, its vital signs are taken from a dw that
 * is computed again: `again` below, which updates nothing.
 */
#ifndef SONDE_NN_KERNELS_LINEAR_SGD_H
#define SONDE_NN_KERNELS_LINEAR_SGD_H

#include "base/macros.h"

enum {
    UPDATE_W = 0,
    UPDATE_DY = 1,
    UPDATE_X = 2,
    UPDATE_V = 3,
    UPDATE_FLOATS = 16 * 1024, /* of dw between product and update: 64 KB */
    UPDATE_CHUNKS = 3,         /* that scratch holds: what is left is moved that seldom */
    NORMS_PANELS = 16,         /* 192 numbers in each lane */
    NORMS_GROUPS = 16          /* of rows at a time, at most */
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
    return lanes_aligned(
        (size_t)(update_floats(call) + weight_scratch_floats(&call->in[UPDATE_X].shape)) *
        sizeof(float));
}

/* All but the sums of groups of rows. */
static size_t update_scratch_parts(const sonde__op_call *call, int parts)
{
    return sgd_signs_bytes(sonde__op_shape_count(&call->in[UPDATE_W].shape)) +
           (SONDE__VITALS_BLOCK * sizeof(float) + update_scratch_part(call)) *
               (size_t)parts;
}

/* Norms of a group of rows. */
typedef struct group_sums {
    sonde__norms_sums g, w;
} group_sums;

static size_t update_scratch(const sonde__op_call *call, int parts)
{
    const row_groups groups = row_groups_of(call->in[UPDATE_W].shape.dim[0], WIDE_ROWS);

    return update_scratch_parts(call, parts) +
           lanes_aligned((size_t)groups.count * sizeof(group_sums));
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
    row_groups groups; /* of rows */
    group_sums *sums;  /* of each */
    int64_t rows, cols, count;
    int parts;
    bool again; /* nothing is updated any more */
} update;

static update update_of(const sonde__op_call *call, int parts, uint8_t *bad)
{
    const int64_t count = sonde__op_shape_count(&call->in[UPDATE_W].shape);
    update u = {
        .arrays = {.w = call->in[UPDATE_W].data,
                   .v = lanes_in(call, UPDATE_V),
                   .w_out = call->out[0].data,
                   .v_out = call->out[2].data,
                   .bad = bad},
        .wanted = {{call->out_vitals[0], call->out_vitals[1], call->out_vitals[2]},
                   sonde__op_wants_norms(call, 1U << 0 | 1U << 1 | 1U << 2)},
        .whole = call->out[1].data,
        .slots = (float *)call->scratch + sgd_signs_bytes(count) / sizeof(float),
        .rows = call->in[UPDATE_W].shape.dim[0],
        .cols = call->in[UPDATE_W].shape.dim[1],
        .count = count,
        .parts = parts,
    };

    u.rule = sgd_rule_of(call->live, u.arrays.v != NULL);
    u.groups = row_groups_of(u.rows, WIDE_ROWS);
    u.sums =
        (group_sums *)(void *)((char *)call->scratch + update_scratch_parts(call, parts));
    u.signs = sgd_signs(&u.wanted, call->scratch, count);
    return u;
}

/* The slot of a block: that of the part which has its first element. *shared: whether
 * others have some of it. */
static float *slot_of(const update *u, int64_t block, bool *shared)
{
    const int64_t first = block * SONDE__VITALS_BLOCK;
    int part = 0;

    while (stream_share(u->rows, part, u->parts).end * u->cols <= first) {
        part++;
    }
    *shared = stream_share(u->rows, part, u->parts).end * u->cols <
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
                take_block(into.streams[SGD_G], moved.g, n, into.norms);
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

static void finish_blocks(const update *u)
{
    for (int64_t start = 0; start < u->count; start += SONDE__VITALS_BLOCK) {
        const int64_t block = start / SONDE__VITALS_BLOCK;
        const int64_t n = SONDE_MIN(u->count - start, SONDE__VITALS_BLOCK);
        const sgd_vitals into = sgd_signs_of_block(&u->signs, block);
        bool shared;
        const float *const g = slot_of(u, block, &shared);

        if (shared) {
            sgd_arrays arrays = sgd_advanced(&u->arrays, start);

            arrays.g = g;
            sgd_vitals_init(&into);
            for (int k = 0; k < SGD_STREAMS; k++) {
                take_block(into.streams[k], sgd_stream(&arrays, k), n, into.norms);
            }
        }
    }
    sgd_signs_merge(&u->wanted, &u->signs, u->count);
}

/* Chunks of rows to memory, each followed by its update. */
static void update_chunks(const update *u, const weight_product *p,
                          const stream_span mine, int64_t most, float *buffer,
                          int64_t room)
{
    const row_groups chunks = row_groups_of(mine.end - mine.begin, most);
    const bool watched = sgd_seen(&u->wanted) != 0;
    int64_t done = mine.begin * p->cols;
    float *left = buffer; /* dw of element `done` */

    if (mine.begin < mine.end) {
        prepare_panels(p);
    }
    for (int64_t i = 0; i < chunks.count; i++) {
        const stream_span rows = {mine.begin + row_group_start(&chunks, i),
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
    const stream_span all = {0, u.rows};

    u.again = true;
    update_chunks(&u, &p, all, update_rows(&call->in[UPDATE_X].shape), buffer,
                  update_floats(call));
    finish_blocks(&u);
}

/* --- in tiles ----------------------------------------------------------------------- */

/* Whether tiles of dw update w and v, and take what is wanted, out of registers. */
static bool runs_in_tiles(const update *u, int64_t samples)
{
    const bool can = sgd_seen(&u->wanted) == 0 || (VF_WIDTH == 16 && u->wanted.norms &&
                                                   u->wanted.streams[SGD_V] == NULL);

    return can && u->whole == NULL && samples <= SAMPLE_CHUNK &&
           sgd_case_of(&u->rule) == SGD_MOMENTUM;
}

#if VF_WIDTH == 16
static void add_sums(sonde__norms_sums *into, const sonde__nacc *acc)
{
    sonde__norms_sums part;

    sonde__nacc_close(acc, &part);
    into->sum += part.sum;
    into->sumsq += part.sumsq;
    into->most = SONDE_MAX(into->most, part.most);
}

static void norms_init(tile_norms *norms)
{
    sonde__nacc_init(&norms->g);
    sonde__nacc_init(&norms->w);
}

/* `count` groups of rows, from `first` on. */
static void groups_in_tiles(const update *u, const weight_product *all, int64_t first,
                            int64_t count)
{
    tile_norms norms[NORMS_GROUPS];
    weight_product p = *all;
    const stream_span rows = {row_group_start(&u->groups, first),
                              row_group_start(&u->groups, first + count)};
    tile t = {.a_stride = p.rows * 16,
              .c_stride = p.cols,
              .ahead_stride = p.cols,
              .rule = p.rule,
              .update = p.update,
              .c_origin = p.update->w_out,
              .depth = p.samples};

    p.norms = norms;
    p.groups = u->groups;
    p.group = first;
    p.end = first + count;
    for (int64_t i = 0; i < count; i++) {
        norms_init(&norms[i]);
        u->sums[first + i] = (group_sums){{0.0, 0.0, 0.0}, {0.0, 0.0, 0.0}};
    }
    for (int64_t k = 0; k < p.cols; k += 32) {
        weight_panel(&p, &t, rows, 0, k, panel_at(&p, 0, p.samples, k),
                     u->arrays.w_out + rows.begin * p.cols);
        if ((k / 32 + 1) % NORMS_PANELS != 0 && k + 32 < p.cols) {
            continue;
        }
        for (int64_t i = 0; i < count; i++) {
            add_sums(&u->sums[first + i].g, &norms[i].g);
            add_sums(&u->sums[first + i].w, &norms[i].w);
            norms_init(&norms[i]);
        }
    }
}

/* A part's groups of rows. A sum of numbers that are not finite is not finite. */
static void norms_in_tiles(const update *u, const weight_product *p, int part)
{
    const stream_span mine = stream_share(u->groups.count, part, u->parts);
    /* as many rows as a part takes at a time where nothing is wanted */
    const int64_t rows = p->all ? 2 * WIDE_ROWS : chunk_rows(p->samples);
    const int64_t most = SONDE_MIN(rows / WIDE_ROWS, (int64_t)NORMS_GROUPS);

    if (mine.begin < mine.end) {
        prepare_panels(p);
    }
    for (int64_t i = mine.begin; i < mine.end; i += most) {
        groups_in_tiles(u, p, i, SONDE_MIN(most, mine.end - i));
    }
    for (int64_t i = mine.begin; i < mine.end && u->arrays.bad != NULL; i++) {
        if (!isfinite(u->sums[i].g.sum)) {
            *u->arrays.bad = 1;
        }
    }
}

/* Norms of all groups, in their order. */
static void finish_tiles(const sonde__op_call *call, const update *u)
{
    bool plain = true;

    for (int64_t i = 0; i < u->groups.count; i++) {
        plain = plain && sonde__norms_is_plain(&u->sums[i].g);
    }
    if (u->wanted.streams[SGD_G] != NULL && !plain) {
        grad_weight_sgd_again(call); /* which leaves nothing else of what is wanted */
    } else {
        init_signs(u->wanted.streams[SGD_G], true);
    }
    init_signs(u->wanted.streams[SGD_W], true);
    for (int64_t i = 0; i < u->groups.count; i++) {
        const int64_t first = row_group_start(&u->groups, i) * u->cols;
        const int64_t n = row_group_start(&u->groups, i + 1) * u->cols - first;

        if (u->wanted.streams[SGD_G] != NULL && plain) {
            sonde__norms_take(u->wanted.streams[SGD_G], &u->sums[i].g, NULL, (size_t)n);
        }
        if (u->wanted.streams[SGD_W] != NULL) {
            sonde__norms_take(u->wanted.streams[SGD_W], &u->sums[i].w,
                              u->arrays.w_out + first, (size_t)n);
        }
    }
}
#endif

static void grad_weight_sgd_finish(const sonde__op_call *call, int parts)
{
    const update u = update_of(call, parts, NULL);

#if VF_WIDTH == 16
    if (runs_in_tiles(&u, call->in[UPDATE_X].shape.dim[0])) {
        finish_tiles(call, &u);
        return;
    }
#endif
    finish_blocks(&u);
}

static void grad_weight_sgd_run(const sonde__op_call *call, int part, int parts)
{
    update u = update_of(call, parts, sonde__op_part_bad(call, part));
    float *const buffer = update_buffer(&u, call, part);
    weight_product p = weight_product_of(&call->in[UPDATE_DY], &call->in[UPDATE_X],
                                         buffer + update_floats(call));
    const stream_span mine = stream_share(u.rows, part, parts);
    const bool watched = sgd_seen(&u.wanted) != 0;

    if (!runs_in_tiles(&u, p.samples)) {
        update_chunks(&u, &p, mine, update_rows(&call->in[UPDATE_X].shape), buffer,
                      update_floats(call));
    } else if (!watched) {
        p.rule = &u.rule;
        p.update = &u.arrays;
        weight_chunks(&p, mine, p.all ? 2 * WIDE_ROWS : chunk_rows(p.samples),
                      u.arrays.w_out);
    } else {
#if VF_WIDTH == 16
        sgd_arrays arrays = u.arrays;

        arrays.bad = NULL; /* the norms tell */
        p.rule = &u.rule;
        p.update = &arrays;
        norms_in_tiles(&u, &p, part);
#endif
    }
    if (watched && parts == 1) {
        grad_weight_sgd_finish(call, 1);
    }
}

#endif

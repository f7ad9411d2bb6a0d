/*
 * linear_kernels.c - the linear layer and its gradients in LANES, and the bias gradient.
 *
 * The matrix products are cut so that operands read repeatedly stay in cache: forward
 * and backward take as many sample blocks at once as half of L2 holds and run each group
 * of weight rows over them, so w is read from memory once per such batch; the weight
 * gradient takes one panel of x and a chunk of rows of dw at a time. x in a layout that a
 * tile cannot read is copied into scratch on the way, which costs less than a reorder op:
 * it is read from memory once in any case.
 *
 * Threads get blocks of samples where there are enough, else rows of w; of the weight
 * gradient they get rows, the same ones as in a forward op that divides rows, so that a
 * part of w stays in its core's L2.
 */
#include "base/isa.h"
#include "base/macros.h"
#include "nn/kernels/fast.h"
#include "nn/kernels/relu_vitals.h"
#include "nn/kernels/reorder_tile.h"
#include "nn/kernels/sgd_update.h"
#include "nn/kernels/tile_kernels.h"

#include <string.h>

enum {
    DEPTH_CHUNK = 1024,        /* terms of a sum in one pass over a tile */
    BATCH_FLOATS = 96 * 1024,  /* of x in L2 at once: 384 KB */
    CHUNK_FLOATS = 160 * 1024, /* of dy in L2 at once: 640 KB */
    GRAIN_FLOPS = 1000 * 1000, /* what is worth a part of its own */
    GRAIN_BYTES = 256 * 1024
};

typedef struct span {
    int64_t begin, end;
} span;

/* Part `part` of `parts` of count things. */
static inline span part_of(int64_t count, int part, int parts)
{
    return (span){count * part / parts, count * (part + 1) / parts};
}

static inline int worth(int64_t cost, int64_t grain, int max)
{
    const int64_t parts = cost / grain;

    return parts < 1 ? 1 : parts < max ? (int)parts : max;
}

static inline size_t rounded(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static inline const float *in_data(const sonde__op_call *call, int i)
{
    return i < call->in_count ? call->in[i].data : NULL;
}

static inline bool all_f32(const sonde__op_call *call)
{
    return call->in[0].shape.dtype == SONDE_F32;
}

/* --- forward and backward ----------------------------------------------------------- */

/* C (rows, samples) = A (rows, depth) B (depth, samples), B and C in LANES. */
typedef struct product {
    const tile_family *tiles;
    const float *a;
    int64_t a_row, a_depth; /* strides of A; one of them is 1 */
    layout_view b;
    float *c, *pre;
    const float *bias;
    bool relu;
    int64_t samples, rows, depth;
    float *scratch; /* of this part; for B not in LANES */
} product;

/* The rows of one group of tiles, times depth terms from k, for all column groups. */
static void run_columns(const product *p, tile *t, const span columns, const float *b,
                        const span rows, int64_t k)
{
    const int64_t row_count = rows.end - rows.begin;
    const float *const a = p->a + rows.begin * p->a_row + k * p->a_depth;
    const bool narrow = columns.end - columns.begin < TILE_COLS;
    const tile_fn run = narrow ? p->tiles->narrow[row_count] : p->tiles->wide[row_count];

    for (int64_t col = columns.begin; col < columns.end; col += TILE_COLS) {
        const int64_t block = col / 16, lane = col % 16;
        const float *const source =
            b + (block - columns.begin / 16) * p->depth * 16 + lane;
        float *const target = p->c + block * p->rows * 16 + lane;

        run(t, a, source + k * 16, target + rows.begin * 16, rows.begin);
    }
}

/* Columns (lanes of consecutive blocks) that fit in L2 together; all wide, or one narrow.
 */
static void run_batch(const product *p, const span columns, const float *b,
                      const span rows)
{
    const bool narrow = columns.end - columns.begin < TILE_COLS;
    const row_groups groups =
        row_groups_of(rows.end - rows.begin, narrow ? NARROW_ROWS : WIDE_ROWS);
    tile t = {.a_stride = p->a_row == 1 ? p->a_depth : p->a_row, .c_origin = p->c};

    t.b_second = VF_WIDTH == 16 ? p->depth * 16 : VF_WIDTH;
    t.c_second = VF_WIDTH == 16 ? p->rows * 16 : VF_WIDTH;
    for (int64_t k = 0; k == 0 || k < p->depth; k += DEPTH_CHUNK) {
        t.depth = SONDE_MIN(p->depth - k, DEPTH_CHUNK);
        t.resume = k > 0;
        t.bias = k == 0 ? p->bias : NULL;
        if (k + t.depth == p->depth) {
            t.pre = p->pre;
            t.relu = p->relu;
        }
        for (int64_t g = 0; g < groups.count; g++) {
            const span group = {rows.begin + row_group_start(&groups, g),
                                rows.begin + row_group_start(&groups, g + 1)};

            run_columns(p, &t, columns, b, group, k);
        }
    }
}

/* Blocks of B in LANES: where they are, or in scratch. */
static const float *lanes_of(const product *p, int64_t first, int64_t end)
{
    const layout_view target = {p->scratch, p->samples, p->depth, SONDE__LANES};

    if (p->b.layout == SONDE__LANES) {
        return p->b.data + first * p->depth * 16;
    }
    for (int64_t block = first; block < end; block++) {
        layout_view source = p->b, panel = target;

        source.data += block * 16 * p->depth;
        source.samples -= block * 16;
        panel.data += (block - first) * 16 * p->depth;
        panel.samples = source.samples;
        for (int64_t k = 0; k < p->depth; k += 16) {
            reorder_tile(&source, &panel, 0, k);
        }
    }
    return p->scratch;
}

/* Blocks in one batch: an even number. */
static int64_t batch_blocks(int64_t depth)
{
    const int64_t pair = SONDE_MAX(1, SONDE_MIN(depth, DEPTH_CHUNK)) * 32;

    return 2 * SONDE_MAX(1, BATCH_FLOATS / pair);
}

static void run_product(const product *p, int part, int parts)
{
    const int64_t blocks = (p->samples + 15) / 16, pairs = (blocks + 1) / 2;
    const bool by_samples = pairs >= 2 * parts;
    const span mine = by_samples ? part_of(pairs, part, parts) : (span){0, pairs};
    const span rows = by_samples ? (span){0, p->rows} : part_of(p->rows, part, parts);
    const int64_t end = SONDE_MIN(2 * mine.end, blocks), step = batch_blocks(p->depth);

    for (int64_t first = 2 * mine.begin; first < end; first += step) {
        const int64_t last = SONDE_MIN(first + step, end);
        const int64_t wide = last * 16 - last * 16 % TILE_COLS;
        const float *const b = lanes_of(p, first, last);

        if (wide > first * 16) {
            run_batch(p, (span){first * 16, wide}, b, rows);
        }
        if (wide < last * 16) { /* one block over */
            run_batch(p, (span){wide, last * 16}, b + (wide / 16 - first) * p->depth * 16,
                      rows);
        }
    }
}

static int product_parts(const sonde__op_call *call, int max)
{
    const sonde__op_shape *x = &call->in[0].shape, *w = &call->in[1].shape;

    return worth(2 * x->dim[0] * w->dim[0] * w->dim[1], GRAIN_FLOPS, max);
}

static size_t linear_scratch_part(const sonde__op_call *call)
{
    const int64_t blocks = (call->in[0].shape.dim[0] + 15) / 16;
    const int64_t depth = call->in[1].shape.dim[1];

    return rounded((size_t)(SONDE_MIN(blocks, batch_blocks(depth)) * depth * 16) *
                   sizeof(float));
}

static size_t linear_scratch(const sonde__op_call *call, int parts)
{
    return linear_scratch_part(call) * (size_t)parts;
}

static float *scratch_at(const sonde__op_call *call, size_t bytes, int part)
{
    return call->scratch == NULL
               ? NULL
               : (float *)call->scratch + bytes / sizeof(float) * (size_t)part;
}

static product linear_product(const sonde__op_call *call, int part)
{
    const int64_t samples = call->in[0].shape.dim[0];
    const int64_t outputs = call->in[1].shape.dim[0], inputs = call->in[1].shape.dim[1];
    const product p = {
        .tiles = &forward_tiles,
        .a = call->in[1].data,
        .a_row = inputs,
        .a_depth = 1,
        .b = {call->in[0].data, samples, inputs, call->in[0].layout},
        .bias = in_data(call, 2),
        .samples = samples,
        .rows = outputs,
        .depth = inputs,
        .scratch = scratch_at(call, linear_scratch_part(call), part),
    };

    return p;
}

static void linear_run(const sonde__op_call *call, int part, int parts)
{
    product p = linear_product(call, part);

    p.c = call->out[0].data;
    run_product(&p, part, parts);
}

static void linear_relu_run(const sonde__op_call *call, int part, int parts)
{
    product p = linear_product(call, part);

    p.c = call->out[1].data;
    p.pre = call->out[0].data;
    p.relu = true;
    run_product(&p, part, parts);
    relu_vitals_run(call, parts);
}

static void grad_input_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t samples = call->in[0].shape.dim[0];
    const int64_t outputs = call->in[1].shape.dim[0], inputs = call->in[1].shape.dim[1];
    const product p = {
        .tiles = &backward_tiles,
        .a = call->in[1].data,
        .a_row = 1,
        .a_depth = inputs,
        .b = {call->in[0].data, samples, outputs, SONDE__LANES},
        .c = call->out[0].data,
        .samples = samples,
        .rows = inputs,
        .depth = outputs,
    };

    run_product(&p, part, parts);
}

#include "nn/kernels/linear_weight_kernels.h"

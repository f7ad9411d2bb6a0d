/*
 * linear_kernels.c - the linear layer and its input gradient in LANES.
 *
 * The matrix products are cut so that operands read repeatedly stay in cache: as many
 * sample blocks at once as half of L2 holds, and each group of weight rows over them, so w
 * is read from memory once per such batch. x in a layout that a tile cannot read is copied
 * into scratch on the way, which costs less than a reorder op: it is read from memory once
 * in any case.
 *
 * Threads get blocks of samples where there are enough, else rows of w.
 */
#include "base/isa.h"
#include "base/macros.h"
#include "nn/kernels/fast.h"
#include "nn/kernels/linear_tile.h"
#include "nn/kernels/relu_vitals.h"
#include "nn/kernels/lanes.h"

#include <string.h>

enum {
    DEPTH_CHUNK = 1024,       /* terms of a sum in one pass over a tile */
    BATCH_FLOATS = 96 * 1024, /* of x in L2 at once: 384 KB */
};

/* --- tiles --------------------------------------------------------------------------- */

/* C in LANES: rows are 16 apart. */
VEC_INLINE void tile_store_lanes(const int rows, const int vecs, const tile *t, float *c,
                                 vf acc[MAX_TILE_ROWS][2])
{
    if (t->pre != NULL) {
        float *const pre = t->pre + (c - t->c_origin);

        VEC_TILE (r, rows, v, vecs) {
            vf_store(pre + 16 * r + v * t->c_second, acc[r][v]);
        }
    }
    if (t->relu) {
        VEC_TILE (r, rows, v, vecs) {
            acc[r][v] = vf_relu(acc[r][v]);
        }
    }
    VEC_TILE (r, rows, v, vecs) {
        vf_store(c + 16 * r + v * t->c_second, acc[r][v]);
    }
}

/* --- forward: A (row, k) at a[row * a_stride + k] ----------------------------------- */

/* One k of the sum; A through every third row's pointer, so that few registers hold all.
 */
VEC_INLINE void forward_step(const int rows, const int vecs, const int k,
                             const float *const base[], ptrdiff_t stride, ptrdiff_t twice,
                             const float *b, ptrdiff_t b_second, vf acc[MAX_TILE_ROWS][2])
{
    vf x[2];

    tile_load_b(vecs, b + 16 * k, b_second, x);
    VEC_EACH (r, rows) {
        const float *const a = base[r / 3] + (r % 3 == 0   ? 0
                                              : r % 3 == 1 ? stride
                                                           : twice);

        tile_step(vecs, a[k], x, acc[r]);
    }
}

VEC_INLINE void forward_tile(const int rows, const int vecs, const tile *t,
                             const float *a, const float *b, float *c, int64_t row)
{
    const ptrdiff_t stride = t->a_stride, b_second = t->b_second;
    const float *base[(MAX_TILE_ROWS + 2) / 3];
    vf acc[MAX_TILE_ROWS][2];
    ptrdiff_t twice = 2 * stride;
    int64_t k = t->depth;

    TILE_POINTER(twice);
    tile_init(rows, vecs, true, t, c, 16, t->c_second, row, acc);
    VEC_UNROLL
    for (int i = 0; 3 * i < rows; i++) {
        base[i] = a + 3 * i * stride;
        TILE_POINTER(base[i]);
    }
    for (; k >= 2; k -= 2) {
        forward_step(rows, vecs, 0, base, stride, twice, b, b_second, acc);
        forward_step(rows, vecs, 1, base, stride, twice, b, b_second, acc);
        b += 32;
        TILE_POINTER(b);
        VEC_UNROLL
        for (int i = 0; 3 * i < rows; i++) {
            base[i] += 2;
            TILE_POINTER(base[i]);
        }
    }
    if (k > 0) {
        forward_step(rows, vecs, 0, base, stride, twice, b, b_second, acc);
    }
    tile_store_lanes(rows, vecs, t, c, acc);
}

/* --- backward: A (row, o) at a[row + o * a_stride] ---------------------------------- */

VEC_INLINE void backward_tile(const int rows, const int vecs, const tile *t,
                              const float *a, const float *b, float *c, int64_t row)
{
    const ptrdiff_t stride = t->a_stride, b_second = t->b_second;
    vf acc[MAX_TILE_ROWS][2];

    tile_init(rows, vecs, true, t, c, 16, t->c_second, row, acc);
    for (int64_t o = t->depth; o > 0; o--) {
        vf dy[2];

        __builtin_prefetch(a + 8 * stride); /* every step another line */
        tile_load_b(vecs, b, b_second, dy);
        VEC_EACH (r, rows) {
            tile_step(vecs, a[r], dy, acc[r]);
        }
        a += stride;
        b += 16;
        TILE_POINTER(a);
        TILE_POINTER(b);
    }
    tile_store_lanes(rows, vecs, t, c, acc);
}

DEFINE_TILES(forward)
DEFINE_TILES(backward)

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
static void run_columns(const product *p, tile *t, const stream_span columns,
                        const float *b, const stream_span rows, int64_t k)
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
static void run_batch(const product *p, const stream_span columns, const float *b,
                      const stream_span rows)
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
            const stream_span group = {rows.begin + row_group_start(&groups, g),
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
    const stream_span mine =
        by_samples ? stream_share(pairs, part, parts) : (stream_span){0, pairs};
    const stream_span rows =
        by_samples ? (stream_span){0, p->rows} : stream_share(p->rows, part, parts);
    const int64_t end = SONDE_MIN(2 * mine.end, blocks), step = batch_blocks(p->depth);

    for (int64_t first = 2 * mine.begin; first < end; first += step) {
        const int64_t last = SONDE_MIN(first + step, end);
        const int64_t wide = last * 16 - last * 16 % TILE_COLS;
        const float *const b = lanes_of(p, first, last);

        if (wide > first * 16) {
            run_batch(p, (stream_span){first * 16, wide}, b, rows);
        }
        if (wide < last * 16) { /* one block over */
            run_batch(p, (stream_span){wide, last * 16},
                      b + (wide / 16 - first) * p->depth * 16, rows);
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

    return lanes_aligned((size_t)(SONDE_MIN(blocks, batch_blocks(depth)) * depth * 16) *
                         sizeof(float));
}

static size_t linear_scratch(const sonde__op_call *call, int parts)
{
    return linear_scratch_part(call) * (size_t)parts;
}

/* Of a layer, and of one whose ReLU follows: out[0] is then what goes into it. */
static void linear_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t outputs = call->in[1].shape.dim[0], inputs = call->in[1].shape.dim[1];
    const bool relu = call->out_count > 1;
    const product p = {
        .tiles = &forward_tiles,
        .a = call->in[1].data,
        .a_row = inputs,
        .a_depth = 1,
        .b = {call->in[0].data, call->in[0].shape.dim[0], inputs, call->in[0].layout},
        .c = call->out[relu ? 1 : 0].data,
        .pre = relu ? call->out[0].data : NULL,
        .bias = lanes_in(call, 2),
        .relu = relu,
        .samples = call->in[0].shape.dim[0],
        .rows = outputs,
        .depth = inputs,
        .scratch = scratch_at(call, linear_scratch_part(call), part),
    };

    run_product(&p, part, parts);
    if (relu) {
        relu_vitals_run(call, parts);
    }
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

/* --- kernels ------------------------------------------------------------------------ */

#define LINEAR(suffix, text, layout, needs)                                              \
    SONDE__ISA_KERNEL(linear##suffix, text, stream_f32, (layout), (SONDE__LANES),        \
                      linear_run, .scratch = needs, .parts = product_parts)              \
    SONDE__ISA_KERNEL(linear_relu##suffix, text, stream_f32, (layout),                   \
                      (SONDE__LANES, SONDE__LANES), linear_run, .scratch = needs,        \
                      .parts = product_parts, .vitals_out = 1U << 0 | 1U << 1,           \
                      .vitals_kept = 1U << 0, .finish = relu_vitals_finish)

LINEAR(, "lanes", SONDE__LANES, NULL)
LINEAR(_plain, "lanes, x plain", SONDE__PLAIN, linear_scratch)
SONDE__ISA_KERNEL(linear_grad_input, "lanes", stream_f32, (SONDE__LANES), (SONDE__LANES),
                  grad_input_run, .parts = product_parts)

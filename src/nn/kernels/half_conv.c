/*
 * half_conv.c - convolutions in bfloat16 and float16, as products over gemm.h.
 *
 * A block is some output pixels of some samples: whole small images, or rows of a large
 * one. For a block the taps that its pixels read are laid out as columns,
 *
 *   columns [taps of a group][pixels]      16 bits each, 0 in the padding
 *
 * and the product of the weights (outputs, taps) and the columns is the block of y. The
 * input gradient is the same with dy in the place of x: a pixel of dx reads, at tap (k, l),
 * the pixel of dy whose window has it there, if there is one. The weight gradient adds the
 * products of dy and the columns, block after block.
 *
 * Blocks depend on the shapes alone. Threads take blocks, and of the weight gradient taps,
 * so bits do not depend on them.
 */
#include "base/macros.h"
#include "nn/kernels/gemm.h"
#include "nn/kernels/fast.h"

#include <assert.h>
#include <string.h>

enum { BLOCK_PIXELS = 512, TAPS_A_PART = 32 };

/* What reads pixels of a source and makes pixels of a result. */
typedef struct conv {
    const sonde__op_call *call;
    const sonde__operand *source; /* x, or dy for the input gradient */
    bool back;                    /* the input gradient */
    sonde_dtype half;
    int64_t samples, groups;
    int64_t channels, height, width;   /* of the source; channels of a group */
    int64_t results, rows, cols;       /* of the result, likewise; of dw: those of dy */
    int64_t kernel[2], taps;           /* of a group: channels kernel[0] kernel[1] */
    int64_t block_samples, block_rows; /* of a block, at most */
    int64_t block_pixels, blocks;
    int64_t product_m, product_k; /* of a product, at most */
} conv;

typedef struct block {
    int64_t sample, samples, row, rows, pixels;
} block;

static conv conv_of(const sonde__op_call *call, const sonde__operand *source,
                    const sonde__op_shape *w, const sonde__op_shape *result, bool back)
{
    const sonde__op_shape *const s = &source->shape;
    conv c = {.call = call,
              .source = source,
              .back = back,
              .half = call->attrs->half,
              .samples = s->dim[0],
              .groups = call->attrs->window.groups,
              .channels = s->dim[1] / call->attrs->window.groups,
              .height = s->dim[2],
              .width = s->dim[3],
              .results = result->dim[1] / call->attrs->window.groups,
              .rows = result->dim[2],
              .cols = result->dim[3],
              .kernel = {w->dim[2], w->dim[3]}};
    const int64_t pixels = SONDE_MAX(c.rows * c.cols, (int64_t)1);

    c.taps = c.channels * c.kernel[0] * c.kernel[1];
    c.block_samples = SONDE_MAX(SONDE_MIN(BLOCK_PIXELS / pixels, c.samples), (int64_t)1);
    c.block_rows =
        pixels <= 2 * BLOCK_PIXELS
            ? c.rows
            : SONDE_MAX(BLOCK_PIXELS / SONDE_MAX(c.cols, (int64_t)1), (int64_t)1);
    c.blocks = (c.samples + c.block_samples - 1) / c.block_samples *
               ((c.rows + c.block_rows - 1) / SONDE_MAX(c.block_rows, (int64_t)1));
    c.block_pixels = c.block_samples * c.block_rows * c.cols;
    c.product_m = c.results;
    c.product_k = c.taps;
    return c;
}

static block block_at(const conv *c, int64_t number)
{
    const int64_t strips = (c->rows + c->block_rows - 1) / c->block_rows;
    block b = {.sample = number / strips * c->block_samples,
               .row = number % strips * c->block_rows};

    b.samples = SONDE_MIN(c->block_samples, c->samples - b.sample);
    b.rows = SONDE_MIN(c->block_rows, c->rows - b.row);
    b.pixels = b.samples * b.rows * c->cols;
    return b;
}

/* --- memory of a part --------------------------------------------------------------- */

typedef struct memory {
    uint16_t *source;  /* the samples of a block in 16 bits, if they are float32 */
    uint16_t *columns; /* [taps][pixels] */
    uint16_t *weights; /* (C, O kh kw): of the input gradient */
    void *result;      /* [results][pixels]: of several samples */
    void *relu;        /* likewise */
    void *product;     /* of gemm.h */
    int64_t held;      /* whose numbers are in source; -1: nothing's */
} memory;

/* Lays out a part's memory at `start`, or nowhere; returns its size. */
static size_t lay_out(const conv *c, memory *into, char *start)
{
    const int64_t pixels = c->block_pixels;
    const int64_t source = c->source->shape.dtype == SONDE_F32
                               ? c->block_samples * c->channels * c->height * c->width
                               : 0;
    size_t used = 0;

    into->source = sonde__op_take(start, &used, source, sizeof(uint16_t));
    into->columns = sonde__op_take(start, &used, c->taps * pixels, sizeof(uint16_t));
    into->weights = sonde__op_take(start, &used, c->back ? c->taps * c->results : 0,
                                   sizeof(uint16_t));
    into->result = sonde__op_take(start, &used, c->results * pixels, sizeof(float));
    into->relu = sonde__op_take(start, &used, c->results * pixels, sizeof(float));
    into->product = sonde__op_take(
        start, &used,
        (int64_t)sonde__kernel_half_gemm_scratch(c->product_m, c->product_k), 1);
    into->held = -1;
    return used;
}

static memory memory_of(const conv *c, int part)
{
    memory m;
    const size_t bytes = lay_out(c, &m, NULL);

    (void)lay_out(c, &m, (char *)c->call->scratch + bytes * (size_t)part);
    return m;
}

/* --- columns ------------------------------------------------------------------------ */

/* Places of a dimension of the result that read the source at a tap: first, first + step ...
 * before end. The first reads place `from` of the source, and each next one `by` further. */
typedef struct reads {
    int64_t first, end, step, from, by;
} reads;

static reads reads_of(const conv *c, int d, int64_t k)
{
    const sonde__op_attrs *const a = c->call->attrs;
    const int64_t stride = a->window.stride[d],
                  tap = k * a->window.dilation[d] - a->window.padding[d];
    const int64_t count = d == 0 ? c->rows : c->cols;
    const int64_t extent = d == 0 ? c->height : c->width;
    reads r = {.step = 1, .by = stride};

    if (c->back) {
        r.first = tap >= 0 ? tap : (tap % stride + stride) % stride;
        r.end = SONDE_MIN(tap + extent * stride, count);
        r.from = (r.first - tap) / stride;
        r.step = stride;
        r.by = 1;
    } else {
        r.first = tap >= 0 ? 0 : (-tap + stride - 1) / stride;
        r.end =
            tap >= extent ? 0 : SONDE_MIN((extent - tap + stride - 1) / stride, count);
        r.from = r.first * stride + tap;
    }
    return r;
}

/* A row of the result at a tap of its columns. */
static void read_row(const conv *c, const reads *columns, const uint16_t *source,
                     uint16_t *to)
{
    const reads r = *columns;

    memset(to, 0, (size_t)c->cols * sizeof *to);
    if (r.step == 1 && r.by == 1 && r.first < r.end) {
        memcpy(to + r.first, source + r.from, (size_t)(r.end - r.first) * sizeof *to);
        return;
    }
    for (int64_t j = r.first, place = r.from; j < r.end; j += r.step, place += r.by) {
        to[j] = source[place];
    }
}

/* Rows of a result as wide as the source, at a stride of 1: one copy, then the columns that
 * have the padding are 0. down, right: from a pixel of the result to what it reads. */
static void read_plane(const conv *c, const block *b, const uint16_t *plane, int64_t down,
                       int64_t right, uint16_t *to)
{
    const int64_t width = c->width, end = b->row + b->rows;
    const int64_t first = SONDE_MIN(SONDE_MAX(-down, b->row), end);
    const int64_t last = SONDE_MAX(SONDE_MIN(c->height - down, end), first);
    const int64_t start = (first + down) * width + right;
    const int64_t skip = SONDE_MAX(-start, (int64_t)0);
    const int64_t count =
        SONDE_MIN((last - first) * width, c->height * width - start) - skip;
    const int64_t from = right < 0 ? 0 : SONDE_MAX(width - right, (int64_t)0);
    const int64_t until = right < 0 ? SONDE_MIN(-right, width) : width;

    memset(to, 0, (size_t)((first - b->row) * width) * sizeof *to);
    if (count > 0) {
        memcpy(to + (first - b->row) * width + skip, plane + start + skip,
               (size_t)count * sizeof *to);
    }
    for (int64_t i = first - b->row; i < last - b->row; i++) {
        for (int64_t j = from; j < until; j++) {
            to[i * width + j] = 0;
        }
    }
    memset(to + (last - b->row) * width, 0, (size_t)((end - last) * width) * sizeof *to);
}

/* The source of a sample of the block in 16 bits, channels of group `group`. */
static const uint16_t *sample_of(const conv *c, const memory *m, const block *b,
                                 int64_t sample, int64_t group)
{
    const int64_t size = c->channels * c->height * c->width;
    const int64_t place = ((b->sample + sample) * c->groups + group) * size;

    return c->source->shape.dtype == SONDE_F32 ? m->source + sample * size
                                               : half_at(c->source, place);
}

static void narrow_block(const conv *c, memory *m, const block *b, int64_t group)
{
    const int64_t size = c->channels * c->height * c->width;
    const int64_t wanted = b->sample * c->groups + group;

    if (m->held == wanted) {
        return;
    }
    m->held = wanted;

    for (int64_t s = 0; s < b->samples && c->source->shape.dtype == SONDE_F32; s++) {
        sonde__kernel_half_narrow(
            half_at(c->source, ((b->sample + s) * c->groups + group) * size), size,
            c->half, m->source + s * size);
    }
}

/* A tap of one sample of a block. */
static void read_tap(const conv *c, const block *b, const uint16_t *plane, int64_t k,
                     int64_t l, uint16_t *to)
{
    const sonde__op_attrs *const a = c->call->attrs;
    const int64_t sign = c->back ? -1 : 1;
    const int64_t down = sign * (k * a->window.dilation[0] - a->window.padding[0]);
    const int64_t right = sign * (l * a->window.dilation[1] - a->window.padding[1]);
    const reads rows = reads_of(c, 0, k), columns = reads_of(c, 1, l);

    assert(to != NULL);
    if (a->window.stride[0] == 1 && a->window.stride[1] == 1 && c->cols == c->width) {
        read_plane(c, b, plane, down, right, to);
        return;
    }
    for (int64_t i = b->row; i < b->row + b->rows; i++, to += c->cols) {
        const int64_t steps = (i - rows.first) / rows.step;

        if (i < rows.first || i >= rows.end || (i - rows.first) % rows.step != 0) {
            memset(to, 0, (size_t)c->cols * sizeof *to);
        } else {
            read_row(c, &columns, plane + (rows.from + steps * rows.by) * c->width, to);
        }
    }
}

/* Rows first ... end - 1 of the columns of a block. */
static void take_columns(const conv *c, memory *m, const block *b, int64_t group,
                         int64_t first, int64_t end)
{
    const int64_t window = c->kernel[0] * c->kernel[1];

    narrow_block(c, m, b, group);
    for (int64_t t = first; t < end; t++) {
        const int64_t k = t / c->kernel[1] % c->kernel[0], l = t % c->kernel[1];
        uint16_t *to = m->columns + (t - first) * b->pixels;

        for (int64_t s = 0; s < b->samples; s++, to += b->rows * c->cols) {
            read_tap(c, b,
                     sample_of(c, m, b, s, group) + t / window * c->height * c->width, k,
                     l, to);
        }
    }
}

/* --- y and dx ----------------------------------------------------------------------- */

/* The weights (O, C, kh, kw) of a group as (C, O kh kw). */
static void turn_weights(const conv *c, const sonde__operand *w, int64_t group,
                         uint16_t *to)
{
    const int64_t window = c->kernel[0] * c->kernel[1];

    for (int64_t i = 0; i < c->results; i++) {
        for (int64_t o = 0; o < c->channels; o++, to += window) {
            const int64_t place = ((group * c->channels + o) * c->results + i) * window;

            if (w->shape.dtype == SONDE_F32) {
                sonde__kernel_half_narrow(half_at(w, place), window, c->half, to);
            } else {
                memcpy(to, half_at(w, place), (size_t)window * sizeof *to);
            }
        }
    }
}

static sonde__kernel_half_matrix weights_of(const conv *c, const memory *m,
                                            const sonde__operand *w, int64_t group)
{
    return (sonde__kernel_half_matrix){
        .data = c->back ? m->weights : half_at(w, group * c->results * c->taps),
        .dtype = c->back ? c->half : w->shape.dtype,
        .row = c->taps,
        .col = 1};
}

/* Rows [results][pixels] of several samples to where they belong in an operand, or from there. */
static void move_rows(const conv *c, const block *b, int64_t group,
                      const sonde__operand *operand, void *rows, bool out)
{
    const size_t size = sonde_dtype_size(operand->shape.dtype);
    const int64_t image = c->rows * c->cols;

    for (int64_t o = 0; operand->data != NULL && o < c->results; o++) {
        for (int64_t s = 0; s < b->samples; s++) {
            const int64_t plane = ((b->sample + s) * c->groups + group) * c->results + o;
            char *const row = (char *)rows + (size_t)(o * b->pixels + s * image) * size;
            char *const place = half_at(operand, plane * image);

            memcpy(out ? place : row, out ? row : place, (size_t)image * size);
        }
    }
}

/* One block of one group. outs: the result and its ReLU, data NULL if not wanted. */
static void run_block(const conv *c, memory *m, const block *b, int64_t group,
                      const sonde__operand *w, const sonde__operand *outs,
                      const float *bias)
{
    const sonde_dtype dtype = outs[0].shape.dtype;
    const int64_t image = c->rows * c->cols;
    const int64_t start =
        (b->sample * c->groups + group) * c->results * image + b->row * c->cols;
    const bool apart = b->samples > 1;
    sonde__kernel_half_gemm p = {.dtype = c->half,
                                 .m = c->results,
                                 .n = b->pixels,
                                 .k = c->taps,
                                 .a = weights_of(c, m, w, group),
                                 .b = {m->columns, c->half, b->pixels, 1},
                                 .bias = bias != NULL ? bias + group * c->results : NULL,
                                 .bias_of_rows = true,
                                 .c = half_at(&outs[0], start),
                                 .relu = half_at(&outs[1], start),
                                 .c_dtype = dtype,
                                 .c_row = image};

    take_columns(c, m, b, group, 0, c->taps);
    if (apart) {
        p.c = outs[0].data == NULL ? NULL : m->result;
        p.relu = outs[1].data == NULL ? NULL : m->relu;
        p.c_row = b->pixels;
    }
    sonde__kernel_half_gemm_run(&p, m->product);
    if (apart) {
        move_rows(c, b, group, &outs[0], m->result, true);
        move_rows(c, b, group, &outs[1], m->relu, true);
    }
}

/* Of a call of conv2d, or of its input gradient, which has neither bias nor ReLU. */
static void run_blocks(const conv *c, int part, int parts)
{
    const sonde__op_call *const call = c->call;
    const sonde__operand none = {.shape = call->out[0].shape};
    const sonde__operand outs[2] = {call->out[0],
                                    call->out_count > 1 ? call->out[1] : none};
    memory m = memory_of(c, part);

    for (int64_t g = 0; g < c->groups; g++) {
        if (c->back) {
            turn_weights(c, &call->in[1], g, m.weights);
        }
        for (int64_t i = c->blocks * part / parts; i < c->blocks * (part + 1) / parts;
             i++) {
            const block b = block_at(c, i);

            run_block(c, &m, &b, g, &call->in[1], outs,
                      call->in_count > 2 ? call->in[2].data : NULL);
        }
    }
}

/* --- dw ----------------------------------------------------------------------------- */

/* Adds a block's share of taps first ... end - 1 to sums (results, taps). */
static void add_block(const conv *c, memory *m, const block *b, int64_t group,
                      int64_t first, int64_t end, bool fresh, float *sums)
{
    const sonde__operand *const dy = &c->call->in[0];
    const int64_t image = c->rows * c->cols;
    sonde__kernel_half_gemm p = {.dtype = c->half,
                                 .m = c->results,
                                 .n = end - first,
                                 .k = b->pixels,
                                 .a = {m->result, dy->shape.dtype, b->pixels, 1},
                                 .b = {m->columns, c->half, 1, b->pixels},
                                 .c = sums + first,
                                 .c_dtype = SONDE_F32,
                                 .c_row = c->taps,
                                 .accumulate = !fresh};

    take_columns(c, m, b, group, first, end);
    if (b->samples > 1) {
        move_rows(c, b, group, dy, m->result, false);
    } else {
        p.a.data = half_at(dy, (b->sample * c->groups + group) * c->results * image +
                                   b->row * c->cols);
        p.a.row = image;
    }
    sonde__kernel_half_gemm_run(&p, m->product);
}

/* Units of taps that begin before the share of a part. */
static int64_t first_tap(const conv *c, int part, int parts)
{
    const int64_t units = (c->taps + TAPS_A_PART - 1) / TAPS_A_PART;

    return SONDE_MIN(units * part / parts * TAPS_A_PART, c->taps);
}

static void run_weight(const conv *c, int part, int parts)
{
    const int64_t first = first_tap(c, part, parts), end = first_tap(c, part + 1, parts);
    memory m = memory_of(c, part);

    for (int64_t g = 0; first < end && g < c->groups; g++) {
        float *const sums = (float *)c->call->out[0].data + g * c->results * c->taps;

        for (int64_t i = 0; i < c->blocks; i++) {
            const block b = block_at(c, i);

            add_block(c, &m, &b, g, first, end, i == 0, sums);
        }
    }
}

/* --- the kernels -------------------------------------------------------------------- */

/* An image without pixels or samples is the reference's. */
static bool has_blocks(const sonde__op_call *call)
{
    for (int i = 0; i < 2; i++) {
        for (int d = 0; d < 4; d++) {
            if (call->in[i].shape.dim[d] == 0) {
                return false;
            }
        }
    }
    return true;
}

/* Weights, whose gradient is added up, are float32. */
static bool adds_up(const sonde__op_call *call)
{
    return has_blocks(call) && call->attrs->wide;
}

static conv conv2d_of(const sonde__op_call *call)
{
    const sonde__op_shape *const y = &call->out[call->out_count > 1 ? 1 : 0].shape;

    return conv_of(call, &call->in[0], &call->in[1].shape, y, false);
}

static conv grad_input_of(const sonde__op_call *call)
{
    return conv_of(call, &call->in[0], &call->in[1].shape, &call->out[0].shape, true);
}

static conv grad_weight_of(const sonde__op_call *call)
{
    conv c = conv_of(call, &call->in[1], &call->out[0].shape, &call->in[0].shape, false);

    c.product_k = c.block_pixels;
    return c;
}

/* most: units that parts take. */
static int parts_of(const conv *c, int64_t most, int max)
{
    return half_parts(c->half,
                      (double)(c->samples * c->rows * c->cols) *
                          (double)(c->groups * c->results) * (double)c->taps,
                      most, max);
}

#define SHAPED(shaped, units, runs)                                                      \
    static int shaped##_parts(const sonde__op_call *call, int max)                       \
    {                                                                                    \
        const conv c = shaped##_of(call);                                                \
                                                                                         \
        return parts_of(&c, units, max);                                                 \
    }                                                                                    \
    static size_t shaped##_scratch(const sonde__op_call *call, int parts)                \
    {                                                                                    \
        const conv c = shaped##_of(call);                                                \
        memory unused;                                                                   \
                                                                                         \
        return lay_out(&c, &unused, NULL) * (size_t)parts;                               \
    }                                                                                    \
    static void shaped##_run(const sonde__op_call *call, int part, int parts)            \
    {                                                                                    \
        const conv c = shaped##_of(call);                                                \
                                                                                         \
        runs(&c, part, parts);                                                           \
    }

SHAPED(conv2d, c.blocks, run_blocks)
SHAPED(grad_input, c.blocks, run_blocks)
SHAPED(grad_weight, (c.taps + TAPS_A_PART - 1) / TAPS_A_PART, run_weight)

#define KERNEL(op, shaped, takes)                                                        \
    SONDE__HALF_LIST(op, &sonde__kernel_##shaped##_direct,                               \
                     &(const sonde__op_kernel)SONDE__HALF_KERNEL(                        \
                         "half", takes, shaped##_scratch, shaped##_parts, shaped##_run))

KERNEL(conv2d, conv2d, has_blocks)
KERNEL(conv2d_relu, conv2d, has_blocks)
KERNEL(conv2d_grad_input, grad_input, has_blocks)
KERNEL(conv2d_grad_weight, grad_weight, adds_up)
KERNEL(conv_transpose2d, grad_input, has_blocks)

/*
 * half_conv.c - convolutions in bfloat16 and float16, as products over half_gemm.h.
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
#include "nn/kernels/half_gemm.h"
#include "nn/kernels/half_ops.h"

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
    int64_t blocks;
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

static int64_t block_pixels(const conv *c)
{
    return c->block_samples * c->block_rows * c->cols;
}

/* --- memory of a part --------------------------------------------------------------- */

static size_t aligned(int64_t count, size_t size)
{
    return ((size_t)count * size + 63) / 64 * 64;
}

typedef struct memory {
    uint16_t *source;  /* the samples of a block in 16 bits, if they are float32 */
    uint16_t *columns; /* [taps][pixels] */
    uint16_t *weights; /* (C, O kh kw): of the input gradient */
    void *result;      /* [results][pixels]: of several samples */
    void *product;     /* of half_gemm.h */
    int64_t held;      /* whose numbers are in source; -1: nothing's */
} memory;

static void *taken(char *start, size_t *used, size_t bytes)
{
    void *const place = start == NULL ? NULL : start + *used;

    *used += bytes;
    return place;
}

/* Lays out a part's memory at `start`, or nowhere; returns its size. */
static size_t lay_out(const conv *c, int64_t m, int64_t k, memory *into, char *start)
{
    const int64_t pixels = block_pixels(c);
    const int64_t source = c->source->shape.dtype == SONDE_F32
                               ? c->block_samples * c->channels * c->height * c->width
                               : 0;
    size_t used = 0;

    into->source = taken(start, &used, aligned(source, sizeof(uint16_t)));
    into->columns = taken(start, &used, aligned(c->taps * pixels, sizeof(uint16_t)));
    into->weights = taken(start, &used,
                          aligned(c->back ? c->taps * c->results : 0, sizeof(uint16_t)));
    into->result = taken(start, &used, 2 * aligned(c->results * pixels, sizeof(float)));
    into->product = taken(start, &used, sonde__kernel_half_gemm_scratch(m, k));
    into->held = -1;
    return used;
}

static size_t part_bytes(const conv *c, int64_t m, int64_t k)
{
    memory unused;

    return lay_out(c, m, k, &unused, NULL);
}

/* --- columns ------------------------------------------------------------------------ */

/* The row of the source that row i of the result reads at tap k; -1: none. */
static int64_t row_read(const conv *c, int64_t i, int64_t k)
{
    const sonde__op_attrs *const a = c->call->attrs;
    const int64_t tap = k * a->window.dilation[0] - a->window.padding[0];
    const int64_t row = c->back ? i - tap : i * a->window.stride[0] + tap;

    if (row < 0 || (c->back && row % a->window.stride[0] != 0)) {
        return -1;
    }
    if (c->back) {
        return row / a->window.stride[0] < c->height ? row / a->window.stride[0] : -1;
    }
    return row < c->height ? row : -1;
}

/* One row of a result at tap l of a row of the source, with strides. */
static void read_strided(const conv *c, const uint16_t *source, int64_t l, uint16_t *to)
{
    const sonde__op_attrs *const a = c->call->attrs;
    const int64_t stride = a->window.stride[1],
                  tap = l * a->window.dilation[1] - a->window.padding[1];
    const int64_t step = c->back ? stride : 1; /* from result to result that reads */
    int64_t j = c->back ? (tap % stride + stride) % stride : 0;

    memset(to, 0, (size_t)c->cols * sizeof *to);
    for (; j < c->cols; j += step) {
        const int64_t place = c->back ? (j - tap) / stride : j * stride + tap;

        if (place >= c->width) {
            return;
        }
        if (c->back ? j >= tap : place >= 0) {
            to[j] = source[place];
        }
    }
}

/* The same with a stride of 1. */
static void read_shifted(const conv *c, const uint16_t *source, int64_t shift,
                         uint16_t *to)
{
    const int64_t first = SONDE_MIN(SONDE_MAX(-shift, (int64_t)0), c->cols);
    const int64_t end = SONDE_MAX(SONDE_MIN(c->width - shift, c->cols), first);

    for (int64_t j = 0; j < first; j++) {
        to[j] = 0;
    }
    memcpy(to + first, source + first + shift, (size_t)(end - first) * sizeof *to);
    for (int64_t j = end; j < c->cols; j++) {
        to[j] = 0;
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

    if (a->window.stride[0] == 1 && a->window.stride[1] == 1 && c->cols == c->width) {
        read_plane(c, b, plane, down, right, to);
        return;
    }
    for (int64_t i = b->row; i < b->row + b->rows; i++, to += c->cols) {
        const int64_t row = row_read(c, i, k);

        if (row < 0) {
            memset(to, 0, (size_t)c->cols * sizeof *to);
        } else if (a->window.stride[1] == 1) {
            read_shifted(c, plane + row * c->width, right, to);
        } else {
            read_strided(c, plane + row * c->width, l, to);
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

/* Rows of a product of several samples to where they belong. */
static void scatter(const conv *c, const block *b, int64_t group,
                    const sonde__operand *out, const void *rows)
{
    const size_t size = sonde_dtype_size(out->shape.dtype);
    const int64_t image = c->rows * c->cols;

    for (int64_t o = 0; out->data != NULL && o < c->results; o++) {
        for (int64_t s = 0; s < b->samples; s++) {
            const int64_t plane = ((b->sample + s) * c->groups + group) * c->results + o;

            memcpy((char *)out->data + (size_t)(plane * image) * size,
                   (const char *)rows + (size_t)(o * b->pixels + s * image) * size,
                   (size_t)image * size);
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
    void *const second =
        (char *)m->result + aligned(c->results * block_pixels(c), sizeof(float));
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
        p.relu = outs[1].data == NULL ? NULL : second;
        p.c_row = b->pixels;
    }
    sonde__kernel_half_gemm_run(&p, m->product);
    if (apart) {
        scatter(c, b, group, &outs[0], m->result);
        scatter(c, b, group, &outs[1], second);
    }
}

static void run_blocks(const conv *c, const sonde__operand *w, const sonde__operand *outs,
                       const float *bias, int part, int parts)
{
    char *const start =
        (char *)c->call->scratch + part_bytes(c, c->results, c->taps) * (size_t)part;
    memory m;

    (void)lay_out(c, c->results, c->taps, &m, start);
    for (int64_t g = 0; g < c->groups; g++) {
        if (c->back) {
            turn_weights(c, w, g, m.weights);
        }
        for (int64_t i = c->blocks * part / parts; i < c->blocks * (part + 1) / parts;
             i++) {
            const block b = block_at(c, i);

            run_block(c, &m, &b, g, w, outs, bias);
        }
    }
}

/* Multiplications that are worth a part. */
static int count_parts(const conv *c, int64_t most, int max)
{
    const double grain = c->half == SONDE_BF16 ? 4e6 : 1e6;
    const double work = (double)(c->samples * c->rows * c->cols) *
                        (double)(c->groups * c->results) * (double)c->taps;
    const double worth = SONDE_MIN(work / grain, (double)most);

    return worth < 1.0 ? 1 : worth > (double)max ? max : (int)worth;
}

static conv forward_of(const sonde__op_call *call)
{
    const sonde__op_shape *const y = &call->out[call->out_count > 1 ? 1 : 0].shape;

    return conv_of(call, &call->in[0], &call->in[1].shape, y, false);
}

static conv back_of(const sonde__op_call *call)
{
    return conv_of(call, &call->in[0], &call->in[1].shape, &call->out[0].shape, true);
}

static void conv2d_run(const sonde__op_call *call, int part, int parts)
{
    const conv c = forward_of(call);
    const sonde__operand none = {.shape = call->out[0].shape};
    const sonde__operand outs[2] = {call->out[0],
                                    call->out_count > 1 ? call->out[1] : none};

    run_blocks(&c, &call->in[1], outs, call->in_count > 2 ? call->in[2].data : NULL, part,
               parts);
}

static int conv2d_parts(const sonde__op_call *call, int max)
{
    const conv c = forward_of(call);

    return count_parts(&c, c.blocks, max);
}

static size_t conv2d_scratch(const sonde__op_call *call, int parts)
{
    const conv c = forward_of(call);

    return part_bytes(&c, c.results, c.taps) * (size_t)parts;
}

static void grad_input_run(const sonde__op_call *call, int part, int parts)
{
    const conv c = back_of(call);
    const sonde__operand outs[2] = {call->out[0], {.shape = call->out[0].shape}};

    run_blocks(&c, &call->in[1], outs, NULL, part, parts);
}

static int grad_input_parts(const sonde__op_call *call, int max)
{
    const conv c = back_of(call);

    return count_parts(&c, c.blocks, max);
}

static size_t grad_input_scratch(const sonde__op_call *call, int parts)
{
    const conv c = back_of(call);

    return part_bytes(&c, c.results, c.taps) * (size_t)parts;
}

/* --- dw ----------------------------------------------------------------------------- */

static conv weight_of(const sonde__op_call *call)
{
    return conv_of(call, &call->in[1], &call->out[0].shape, &call->in[0].shape, false);
}

/* dy of several samples as [results][pixels]. */
static void gather(const conv *c, const block *b, int64_t group, const sonde__operand *dy,
                   void *rows)
{
    const size_t size = sonde_dtype_size(dy->shape.dtype);
    const int64_t image = c->rows * c->cols;

    for (int64_t o = 0; o < c->results; o++) {
        for (int64_t s = 0; s < b->samples; s++) {
            const int64_t plane = ((b->sample + s) * c->groups + group) * c->results + o;

            memcpy((char *)rows + (size_t)(o * b->pixels + s * image) * size,
                   half_at(dy, plane * image), (size_t)image * size);
        }
    }
}

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
        gather(c, b, group, dy, m->result);
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

static void grad_weight_run(const sonde__op_call *call, int part, int parts)
{
    const conv c = weight_of(call);
    const int64_t first = first_tap(&c, part, parts),
                  end = first_tap(&c, part + 1, parts);
    char *const start = (char *)call->scratch +
                        part_bytes(&c, c.results, block_pixels(&c)) * (size_t)part;
    memory m;

    (void)lay_out(&c, c.results, block_pixels(&c), &m, start);
    for (int64_t g = 0; first < end && g < c.groups; g++) {
        float *const sums = (float *)call->out[0].data + g * c.results * c.taps;

        for (int64_t i = 0; i < c.blocks; i++) {
            const block b = block_at(&c, i);

            add_block(&c, &m, &b, g, first, end, i == 0, sums);
        }
    }
}

static int grad_weight_parts(const sonde__op_call *call, int max)
{
    const conv c = weight_of(call);

    return count_parts(&c, (c.taps + TAPS_A_PART - 1) / TAPS_A_PART, max);
}

static size_t grad_weight_scratch(const sonde__op_call *call, int parts)
{
    const conv c = weight_of(call);

    return part_bytes(&c, c.results, block_pixels(&c)) * (size_t)parts;
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

#define KERNEL(op, shaped, takes)                                                        \
    const sonde__op_kernel *const sonde__kernel_##op##_half[] = {                        \
        &sonde__kernel_##shaped##_direct,                                                \
        &(const sonde__op_kernel){.name = "half",                                        \
                                  .accepts = takes,                                      \
                                  .scratch = shaped##_scratch,                           \
                                  .parts = shaped##_parts,                               \
                                  .run = shaped##_run},                                  \
        NULL};

KERNEL(conv2d, conv2d, has_blocks)
KERNEL(conv2d_relu, conv2d, has_blocks)
KERNEL(conv2d_grad_input, grad_input, has_blocks)
KERNEL(conv2d_grad_weight, grad_weight, adds_up)
KERNEL(conv_transpose2d, grad_input, has_blocks)

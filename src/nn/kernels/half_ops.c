/*
 * half_ops.c - see fast.h: linear layers, casts, element-wise ops, sums over channels, the
 * rows of batch normalization, and max pooling (see pool.c), of which a plane becomes float32 in
 * cache.
 */
#include "base/cpu.h"
#include "base/macros.h"
#include "nn/kernels/fast.h"
#include "nn/kernels/stream_kernels.h"

#include <math.h>

enum { CHUNK = 1024 };

static bool is_flat(sonde_dtype dtype)
{
    return dtype == SONDE_F32 || sonde__op_is_half(dtype);
}

/* Every operand is a float of at most 32 bits, and all have one shape. */
static bool accepts_flat(const sonde__op_call *call)
{
    const sonde__op_shape *const first = &call->in[0].shape;

    for (int i = 0; i < call->in_count; i++) {
        const sonde__op_shape *const x = &call->in[i].shape;

        if (!is_flat(x->dtype) || x->rank != first->rank) {
            return false;
        }
        for (int d = 0; d < x->rank; d++) {
            if (x->dim[d] != first->dim[d]) {
                return false;
            }
        }
    }
    return is_flat(call->out[0].shape.dtype);
}

/* --- casts -------------------------------------------------------------------------- */

static void cast_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__operand *const x = &call->in[0], *const y = &call->out[0];
    const stream_span mine = stream_part(sonde__op_shape_count(&x->shape), part, parts);
    float wide[CHUNK];

    for (int64_t i = mine.begin; i < mine.end; i += CHUNK) {
        const int64_t n = SONDE_MIN(mine.end - i, (int64_t)CHUNK);

        if (y->shape.dtype == SONDE_F32) {
            half_load(x, i, n, half_at(y, i));
        } else if (x->shape.dtype == SONDE_F32) {
            half_store(half_at(x, i), n, y, i);
        } else {
            half_load(x, i, n, wide);
            half_store(wide, n, y, i);
        }
    }
}

/* --- element-wise ops --------------------------------------------------------------- */

/* A float32 kernel, over chunks. */
static void run_chunks(const sonde__op_kernel *kernel, const sonde__op_call *call,
                       int part, int parts)
{
    const stream_span mine =
        stream_part(sonde__op_shape_count(&call->in[0].shape), part, parts);
    float wide[2][CHUNK], result[CHUNK];
    sonde__op_call chunk = {
        .attrs = call->attrs, .in_count = call->in_count, .out_count = 1};

    for (int64_t i = mine.begin; i < mine.end; i += CHUNK) {
        const sonde__op_shape shape = {
            SONDE_F32, 1, {SONDE_MIN(mine.end - i, (int64_t)CHUNK)}};

        for (int k = 0; k < call->in_count; k++) {
            chunk.in[k] = (sonde__operand){shape, SONDE__PLAIN, wide[k]};
            half_load(&call->in[k], i, shape.dim[0], wide[k]);
        }
        chunk.out[0] = (sonde__operand){shape, SONDE__PLAIN, result};
        kernel->run(&chunk, 0, 1);
        half_store(result, shape.dim[0], &call->out[0], i);
    }
}

#define FLAT_KERNEL(op, takes, runs)                                                     \
    SONDE__HALF_LIST(op, &(const sonde__op_kernel)SONDE__HALF_KERNEL(                    \
                             "half", takes, NULL, stream_parts, runs))
#define CHUNKED(op)                                                                      \
    static void op##_run(const sonde__op_call *call, int part, int parts)                \
    {                                                                                    \
        run_chunks(sonde__kernel_##op##_fast()[0], call, part, parts);                   \
    }                                                                                    \
    FLAT_KERNEL(op, accepts_flat, op##_run)

FLAT_KERNEL(cast, accepts_flat, cast_run)
CHUNKED(relu)
CHUNKED(relu_grad)
CHUNKED(add)

/* --- a number for each channel ------------------------------------------------------ */

/* x (N, C, ...) of 16 bits + b (C), float32; parts take rows, which are (n, c). */
static void channel_add_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__operand *const x = &call->in[0], *const y = &call->out[0];
    const float *const bias = call->in[1].data;
    const int64_t channels = x->shape.dim[1], rows = x->shape.dim[0] * channels;
    int64_t inner = 1;
    float wide[CHUNK];

    for (int d = 2; d < x->shape.rank; d++) {
        inner *= x->shape.dim[d];
    }
    for (int64_t row = rows * part / parts; row < rows * (part + 1) / parts; row++) {
        for (int64_t i = 0; i < inner; i += CHUNK) {
            const int64_t n = SONDE_MIN(inner - i, (int64_t)CHUNK);

            half_load(x, row * inner + i, n, wide);
            for (int64_t k = 0; k < n; k++) {
                wide[k] += bias[row % channels];
            }
            half_store(wide, n, y, row * inner + i);
        }
    }
}

FLAT_KERNEL(channel_add, NULL, channel_add_run)

/* --- sums over channels ------------------------------------------------------------- */

/* Of rows of adjacent channels: columns first ... end - 1, in double, row by row. */
static void sum_columns(const sonde__operand *dy, int64_t first, int64_t end, float *sums)
{
    const int64_t rows = dy->shape.dim[0], channels = dy->shape.dim[1];
    float wide[CHUNK];
    double sum[CHUNK];

    for (int64_t c = first; c < end; c += CHUNK) {
        const int64_t n = SONDE_MIN(end - c, (int64_t)CHUNK);

        for (int64_t j = 0; j < n; j++) {
            sum[j] = 0.0;
        }
        for (int64_t i = 0; i < rows; i++) {
            half_load(dy, i * channels + c, n, wide);
            for (int64_t j = 0; j < n; j++) {
                sum[j] += (double)wide[j];
            }
        }
        for (int64_t j = 0; j < n; j++) {
            sums[c + j] = (float)sum[j];
        }
    }
}

/* Of one channel in every sample: sixteen sums in double, then theirs. */
static float sum_channel(const sonde__operand *dy, int64_t channel, int64_t inner)
{
    enum { LANES = SONDE__LANE_WIDTH };
    const int64_t channels = dy->shape.dim[1];
    double sum[LANES] = {0}, total = 0.0;
    float wide[CHUNK];

    for (int64_t i = 0; i < dy->shape.dim[0]; i++) {
        for (int64_t k = 0; k < inner; k += CHUNK) {
            const int64_t n = SONDE_MIN(inner - k, (int64_t)CHUNK);
            const int64_t padded = (n + LANES - 1) / LANES * LANES;

            half_load(dy, (i * channels + channel) * inner + k, n, wide);
            for (int64_t j = n; j < padded; j++) {
                wide[j] = 0.0F;
            }
            for (int64_t j = 0; j < padded; j += LANES) {
                for (int l = 0; l < LANES; l++) {
                    sum[l] += (double)wide[j + l];
                }
            }
        }
    }
    for (int l = 0; l < LANES; l++) {
        total += sum[l];
    }
    return (float)total;
}

static void channel_sum_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__operand *const dy = &call->in[0];
    const int64_t channels = dy->shape.dim[1];
    const int64_t first = channels * part / parts, end = channels * (part + 1) / parts;
    float *const sums = call->out[0].data;
    int64_t inner = 1;

    for (int d = 2; d < dy->shape.rank; d++) {
        inner *= dy->shape.dim[d];
    }
    if (inner == 1) {
        sum_columns(dy, first, end, sums);
        return;
    }
    for (int64_t c = first; c < end; c++) {
        sums[c] = sum_channel(dy, c, inner);
    }
}

FLAT_KERNEL(channel_sum, NULL, channel_sum_run)

/* --- batch normalization ------------------------------------------------------------ */

/* x is of 16 bits and not empty. */
static bool accepts_norm(const sonde__op_call *call)
{
    return sonde__op_is_half(call->in[0].shape.dtype) &&
           sonde__op_shape_count(&call->in[0].shape) > 0;
}

/* norm_kernels.c takes such operands as well as float32 in LANES. */
#define NORM_KERNEL(op)                                                                  \
    static void op##_run(const sonde__op_call *call, int part, int parts)                \
    {                                                                                    \
        sonde__kernel_##op##_fast()[0]->run(call, part, parts);                          \
    }                                                                                    \
    FLAT_KERNEL(op, accepts_norm, op##_run)

NORM_KERNEL(batch_norm)
NORM_KERNEL(batch_norm_relu)
NORM_KERNEL(batch_norm_grad)

/* --- max pooling --------------------------------------------------------------------- */

/* A plane of x (height, width) and of y (rows, columns). */
typedef struct planes {
    const sonde__op_attrs *attrs;
    int64_t count, height, width, rows, columns;
} planes;

static planes planes_of(const sonde__op_call *call, bool back)
{
    const sonde__op_shape *const x = back ? &call->out[0].shape : &call->in[0].shape;
    const sonde__op_shape *const y = back ? &call->in[0].shape : &call->out[0].shape;

    return (planes){call->attrs, x->dim[0] * x->dim[1], x->dim[2], x->dim[3], y->dim[2],
                    y->dim[3]};
}

/* Floats of a part: a plane of x and one of y, whole cache lines. */
static int64_t part_floats(const planes *p)
{
    return (p->height * p->width + p->rows * p->columns + 31) / 16 * 16;
}

static bool takes_two_planes(const sonde__op_call *call)
{
    return sonde__op_is_half(call->in[0].shape.dtype) && call->in[0].shape.rank == 4;
}

/* Position in x of tap k of window i along a dimension of extent; -1: in the padding. */
static int64_t position(const sonde__op_attrs *a, int d, int64_t i, int64_t k,
                        int64_t extent)
{
    const int64_t at =
        i * a->window.stride[d] - a->window.padding[d] + k * a->window.dilation[d];

    return at >= 0 && at < extent ? at : -1;
}

/* The first of equal maxima wins, and the last NaN. */
static float pool_window(const planes *p, const float *x, int64_t i, int64_t j,
                         uint8_t *winner)
{
    const sonde__op_attrs *const a = p->attrs;
    float max = -INFINITY;
    bool seen = false;

    *winner = 0;
    for (int64_t k = 0; k < a->window.kernel[0]; k++) {
        const int64_t row = position(a, 0, i, k, p->height);

        for (int64_t l = 0; row >= 0 && l < a->window.kernel[1]; l++) {
            const int64_t column = position(a, 1, j, l, p->width);
            const float value = column >= 0 ? x[row * p->width + column] : 0.0F;

            if (column >= 0 && (!seen || value > max || isnan(value))) {
                max = value;
                *winner = (uint8_t)(k * a->window.kernel[1] + l);
                seen = true;
            }
        }
    }
    return max;
}

static void max_pool2d_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__operand *const in = &call->in[0], *const out = &call->out[0];
    const planes p = planes_of(call, false);
    const int64_t size = p.height * p.width, made = p.rows * p.columns;
    float *const x = (float *)call->scratch + part_floats(&p) * part;
    float *const y = x + size;

    for (int64_t n = p.count * part / parts; n < p.count * (part + 1) / parts; n++) {
        uint8_t *const index =
            call->out[1].data != NULL ? (uint8_t *)call->out[1].data + n * made : NULL;

        half_load(in, n * size, size, x);
        for (int64_t i = 0; i < made; i++) {
            uint8_t winner = 0;

            y[i] = pool_window(&p, x, i / p.columns, i % p.columns, &winner);
            if (index != NULL) {
                index[i] = winner;
            }
        }
        half_store(y, made, out, n * made);
    }
}

static void max_pool2d_grad_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__operand *const in = &call->in[0], *const out = &call->out[0];
    const planes p = planes_of(call, true);
    const int64_t size = p.height * p.width, made = p.rows * p.columns;
    float *const x = (float *)call->scratch + part_floats(&p) * part;
    float *const y = x + size;

    for (int64_t n = p.count * part / parts; n < p.count * (part + 1) / parts; n++) {
        const uint8_t *const index = (const uint8_t *)call->in[1].data + n * made;

        half_load(in, n * made, made, y);
        for (int64_t i = 0; i < size; i++) {
            x[i] = 0.0F;
        }
        for (int64_t i = 0; i < made; i++) {
            const int64_t tap = index[i], right = p.attrs->window.kernel[1];
            const int64_t row =
                position(p.attrs, 0, i / p.columns, tap / right, p.height);
            const int64_t column =
                position(p.attrs, 1, i % p.columns, tap % right, p.width);

            if (row >= 0 && column >= 0) { /* else the window lies in the padding */
                x[row * p.width + column] += y[i];
            }
        }
        half_store(x, size, out, n * size);
    }
}

#define POOL_KERNEL(op, back)                                                            \
    static size_t op##_scratch(const sonde__op_call *call, int parts)                    \
    {                                                                                    \
        const planes p = planes_of(call, back);                                          \
                                                                                         \
        return (size_t)part_floats(&p) * sizeof(float) * (size_t)parts;                  \
    }                                                                                    \
    SONDE__HALF_LIST(                                                                    \
        op, &(const sonde__op_kernel)SONDE__HALF_KERNEL(                                 \
                "half", takes_two_planes, op##_scratch, stream_parts, op##_run))

POOL_KERNEL(max_pool2d, false)
POOL_KERNEL(max_pool2d_grad, true)

/* --- linear layers ------------------------------------------------------------------ */

/* Rows of an operand of two dimensions, or its columns. */
static sonde__kernel_half_matrix matrix_of(const sonde__operand *operand, bool turned)
{
    const int64_t width = operand->shape.dim[1];

    return (sonde__kernel_half_matrix){.data = operand->data,
                                       .dtype = operand->shape.dtype,
                                       .row = turned ? 1 : width,
                                       .col = turned ? width : 1};
}

/* out[0] (m, n) = in[0] in[1], either of them turned, + in[2]; out[1]: its ReLU. */
static sonde__kernel_half_gemm product_of(const sonde__op_call *call, bool turned_a,
                                          bool turned_b)
{
    const sonde__operand *const a = &call->in[0], *const b = &call->in[1];
    const sonde__operand *const c = &call->out[0];

    return (sonde__kernel_half_gemm){.dtype = call->attrs->half,
                                     .m = a->shape.dim[turned_a ? 1 : 0],
                                     .n = b->shape.dim[turned_b ? 0 : 1],
                                     .k = a->shape.dim[turned_a ? 0 : 1],
                                     .a = matrix_of(a, turned_a),
                                     .b = matrix_of(b, turned_b),
                                     .bias = call->in_count > 2 ? call->in[2].data : NULL,
                                     .c = c->data,
                                     .relu =
                                         call->out_count > 1 ? call->out[1].data : NULL,
                                     .c_dtype = c->shape.dtype,
                                     .c_row = b->shape.dim[turned_b ? 0 : 1]};
}

#define PRODUCT_KERNEL(op, turned_a, turned_b)                                           \
    static int op##_parts(const sonde__op_call *call, int max)                           \
    {                                                                                    \
        const sonde__kernel_half_gemm p = product_of(call, turned_a, turned_b);          \
                                                                                         \
        return half_parts(p.dtype, (double)p.m * (double)p.n * (double)p.k, max, max);   \
    }                                                                                    \
    static size_t op##_scratch(const sonde__op_call *call, int parts)                    \
    {                                                                                    \
        const sonde__kernel_half_gemm p = product_of(call, turned_a, turned_b);          \
                                                                                         \
        return sonde__kernel_half_gemm_scratch(p.m, p.k) * (size_t)parts;                \
    }                                                                                    \
    static void op##_run(const sonde__op_call *call, int part, int parts)                \
    {                                                                                    \
        sonde__kernel_half_gemm p = product_of(call, turned_a, turned_b);                \
        char *const scratch = (char *)call->scratch + op##_scratch(call, part);          \
                                                                                         \
        sonde__kernel_half_gemm_take_part(&p, part, parts);                              \
        sonde__kernel_half_gemm_run(&p, scratch);                                        \
    }                                                                                    \
    SONDE__HALF_LIST(op, &(const sonde__op_kernel)SONDE__HALF_KERNEL(                    \
                             "half", NULL, op##_scratch, op##_parts, op##_run))

PRODUCT_KERNEL(linear, false, true)             /* y (N, O) = x (N, K) w (O, K)^T + b */
PRODUCT_KERNEL(linear_relu, false, true)        /* likewise */
PRODUCT_KERNEL(linear_grad_input, false, false) /* dx (N, K) = dy (N, O) w (O, K) */
PRODUCT_KERNEL(linear_grad_weight, true, false) /* dw (O, K) = dy (N, O)^T x (N, K) */

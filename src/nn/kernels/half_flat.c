/*
 * half_flat.c - see half_ops.h: casts, element-wise ops, sums over channels, and the rows of
 * batch normalisation.
 */
#include "base/cpu.h"
#include "base/macros.h"
#include "nn/kernels/fast.h"
#include "nn/kernels/half_gemm.h"
#include "nn/kernels/half_ops.h"
#include "nn/kernels/stream_kernels.h"

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
    SONDE__HALF_KERNEL(op, takes, NULL, stream_parts, runs)
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

/* --- batch normalisation ------------------------------------------------------------ */

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

/*
 * half_pool.c - max pooling in bfloat16 and float16 and its gradient, see pool.c: a plane
 * becomes float32 in cache, and its result is rounded as it is stored. Parts take planes.
 */
#include "nn/kernels/half_gemm.h"
#include "nn/kernels/half_ops.h"
#include "nn/kernels/stream_kernels.h"

#include <math.h>

/* A plane of x (height, width) and of y (rows, columns). */
typedef struct planes {
    const sonde__op_attrs *attrs;
    int64_t count, height, width, rows, columns;
} planes;

static planes planes_of(const sonde__op_call *call, const sonde__op_shape *x,
                        const sonde__op_shape *y)
{
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

/* --- forward ------------------------------------------------------------------------ */

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
    const planes p = planes_of(call, &in->shape, &out->shape);
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

static size_t max_pool2d_scratch(const sonde__op_call *call, int parts)
{
    const planes p = planes_of(call, &call->in[0].shape, &call->out[0].shape);

    return (size_t)part_floats(&p) * sizeof(float) * (size_t)parts;
}

/* --- gradient ----------------------------------------------------------------------- */

static void max_pool2d_grad_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__operand *const in = &call->in[0], *const out = &call->out[0];
    const planes p = planes_of(call, &out->shape, &in->shape);
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

static size_t max_pool2d_grad_scratch(const sonde__op_call *call, int parts)
{
    const planes p = planes_of(call, &call->out[0].shape, &call->in[0].shape);

    return (size_t)part_floats(&p) * sizeof(float) * (size_t)parts;
}

SONDE__HALF_KERNEL(max_pool2d, takes_two_planes, max_pool2d_scratch, stream_parts,
                   max_pool2d_run)
SONDE__HALF_KERNEL(max_pool2d_grad, takes_two_planes, max_pool2d_grad_scratch,
                   stream_parts, max_pool2d_grad_run)

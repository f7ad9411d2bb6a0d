/*
 * pool.c - two-dimensional max pooling and its gradient.
 *
 *   y[n,c,i,j] = max over k, l of x[n, c, i s - p + k d, j s - p + l d]
 *
 * as torch.nn.MaxPool2d: the padding counts as -Inf, the first of equal maxima wins, and
 * a NaN beats every number (of several, the last). The second output is the position of
 * the winner within its window, k * kw + l, in a byte; hence windows of at most 256
 * elements. The gradient gives each input the sum of the output gradients of the windows
 * it won.
 *
 * attrs: window.
 */
#include "nn/ops/common.h"
#include "base/fail.h"
#include "nn/kernels/fast.h"

#include <math.h>

enum { LARGEST_WINDOW = 256 };

static sonde_err output_shape(const sonde__op_shape *x, const sonde__op_attrs *attrs,
                              sonde__op_shape *y, sonde_diag *diag)
{
    sonde__op_shape shape = *x;

    for (int d = 0; d < 2; d++) {
        SONDE__TRY(
            sonde__op_window_count(attrs, d, x->dim[2 + d], &shape.dim[2 + d], diag));
        if (attrs->window.padding[d] * 2 >
            attrs->window.dilation[d] * (attrs->window.kernel[d] - 1) + 1) {
            return sonde__fail(
                diag, SONDE_EINVAL, NULL, "at most half of the window",
                "padding %lld around a window of %lld",
                (long long)attrs->window.padding[d],
                (long long)(attrs->window.dilation[d] * (attrs->window.kernel[d] - 1) +
                            1));
        }
    }
    if (attrs->window.kernel[0] * attrs->window.kernel[1] > LARGEST_WINDOW) {
        return sonde__fail(diag, SONDE_EUNSUPPORTED, NULL, "at most 256 elements",
                           "a window of %lld x %lld", (long long)attrs->window.kernel[0],
                           (long long)attrs->window.kernel[1]);
    }
    SONDE__TRY(sonde__op_expect_size(&shape, "output", diag));
    *y = shape;
    return SONDE_OK;
}

static sonde_err max_pool2d_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                  sonde_diag *diag)
{
    sonde__op_shape y;

    SONDE__TRY(
        sonde__op_expect_rank(&call->in[0].shape, 4, "input", "(N, C, H, W)", diag));
    sonde__op_window_strides(attrs);
    SONDE__TRY(output_shape(&call->in[0].shape, attrs, &y, diag));
    call->out[0].shape = y;
    y.dtype = SONDE_U8;
    call->out[1].shape = y;
    return SONDE_OK;
}

/* Maximum and winner of window (i, j). A window that lies in the padding alone is -Inf
 * with winner 0, a position in the padding. */
static void pool_window(const sonde__op_call *call, int64_t n, int64_t c, int64_t i,
                        int64_t j, double *max, int64_t *winner)
{
    const sonde__operand *x = &call->in[0];
    const sonde__op_attrs *a = call->attrs;
    bool seen = false;

    *max = -(double)INFINITY;
    *winner = 0;
    for (int64_t k = 0; k < a->window.kernel[0]; k++) {
        for (int64_t l = 0; l < a->window.kernel[1]; l++) {
            const int64_t row = i * a->window.stride[0] - a->window.padding[0] +
                                k * a->window.dilation[0];
            const int64_t col = j * a->window.stride[1] - a->window.padding[1] +
                                l * a->window.dilation[1];
            double value = 0.0;

            if (row < 0 || row >= x->shape.dim[2] || col < 0 || col >= x->shape.dim[3]) {
                continue;
            }
            value = sonde__op_load(x, sonde__op_at4(&x->shape, n, c, row, col));
            if (!seen || value > *max || isnan(value)) {
                *max = value;
                *winner = k * a->window.kernel[1] + l;
                seen = true;
            }
        }
    }
}

static void max_pool2d_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__operand *y = &call->out[0];
    uint8_t *index = call->out[1].data;
    int64_t element = 0;

    (void)part, (void)parts;
    for (int64_t n = 0; n < y->shape.dim[0]; n++) {
        for (int64_t c = 0; c < y->shape.dim[1]; c++) {
            for (int64_t i = 0; i < y->shape.dim[2]; i++) {
                for (int64_t j = 0; j < y->shape.dim[3]; j++, element++) {
                    double max = 0.0;
                    int64_t winner = 0;

                    pool_window(call, n, c, i, j, &max, &winner);
                    sonde__op_store(y, element, max);
                    if (index != NULL) {
                        index[element] = (uint8_t)winner;
                    }
                }
            }
        }
    }
}

SONDE__OP(max_pool2d, "MaxPool2d", window, 1, 1, 2, .out_names = {NULL, "Index"},
          .infer = max_pool2d_infer,
          .backward = {&sonde__op_max_pool2d_grad, "dB", 0, true},
          SONDE__REFERENCE(max_pool2d_run), .fast = sonde__kernel_max_pool2d_fast,
          .halves = SONDE__HALVES_KEPT, .half_kernels = sonde__kernel_max_pool2d_half);

/* --- gradient ----------------------------------------------------------------------- */

static sonde_err max_pool2d_grad_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                       sonde_diag *diag)
{
    const sonde__op_shape *dy = &call->in[0].shape;
    sonde__op_shape x, y;

    SONDE__TRY(sonde__op_expect_float(dy, "output gradient", diag));
    SONDE__TRY(sonde__op_expect_dims(attrs, 4, dy->dtype, "input", &x, diag));
    SONDE__TRY(output_shape(&x, attrs, &y, diag));
    SONDE__TRY(sonde__op_expect_shape(dy, &y, "output gradient", diag));
    y.dtype = SONDE_U8;
    SONDE__TRY(sonde__op_expect_shape(&call->in[1].shape, &y, "index", diag));
    call->out[0].shape = x;
    return SONDE_OK;
}

/* Sum over the windows that element (n, c, row, col) has won. */
static double won_at(const sonde__op_call *call, int64_t n, int64_t c, int64_t row,
                     int64_t col)
{
    const sonde__operand *dy = &call->in[0];
    const uint8_t *index = call->in[1].data;
    const sonde__op_attrs *a = call->attrs;
    double sum = 0.0;

    for (int64_t k = 0; k < a->window.kernel[0]; k++) {
        const int64_t i = sonde__op_window_at(a, 0, row, k, dy->shape.dim[2]);

        for (int64_t l = 0; i >= 0 && l < a->window.kernel[1]; l++) {
            const int64_t j = sonde__op_window_at(a, 1, col, l, dy->shape.dim[3]);

            if (j >= 0) {
                const int64_t element = sonde__op_at4(&dy->shape, n, c, i, j);

                sum += index[element] == k * a->window.kernel[1] + l
                           ? sonde__op_load(dy, element)
                           : 0.0;
            }
        }
    }
    return sum;
}

static void max_pool2d_grad_run(const sonde__op_call *call, int part, int parts)
{
    (void)part, (void)parts;
    sonde__op_store_all(call, won_at);
}

SONDE__OP(max_pool2d_grad, "MaxPool2dGrad", window, 2, 2, 1,
          .infer = max_pool2d_grad_infer, SONDE__REFERENCE(max_pool2d_grad_run),
          .fast = sonde__kernel_max_pool2d_grad_fast, .halves = SONDE__HALVES_TAKEN,
          .half_kernels = sonde__kernel_max_pool2d_grad_half);

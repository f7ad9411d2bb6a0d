/*
 * avg_pool.c - average pooling over windows, and to a given size, with their gradients.
 *
 *   AvgPool2d           y = sum of a window of x / its elements
 *   AdaptiveAvgPool2d   window i of n along H elements: floor(i H / n) to
 *                       ceil((i + 1) H / n) - 1
 *
 * as torch.nn.functional.avg_pool2d (without ceil_mode) and adaptive_avg_pool2d. Elements
 * of the padding are 0; they count if attrs.window.include_pad, otherwise a window is divided by
 * its elements in x. The gradient of an element is the sum, over the windows that hold it,
 * of dy / elements.
 *
 * attrs: window.
 */
#include "base/fail.h"
#include "nn/ops/common.h"

/* A window along one dimension: from first, and its elements in x and in all. */
typedef struct range {
    int64_t first, last; /* exclusive */
    int64_t all;
} range;

static range window(const sonde__op_attrs *attrs, bool adaptive, int d, int64_t i,
                    int64_t extent)
{
    const int64_t size = attrs->window.kernel[d];
    int64_t first = i * attrs->window.stride[d] - attrs->window.padding[d],
            last = first + size;

    if (adaptive) {
        first = i * extent / size;
        last = ((i + 1) * extent + size - 1) / size;
    }
    return (range){.first = first < 0 ? 0 : first,
                   .last = last > extent ? extent : last,
                   .all = attrs->window.include_pad && !adaptive ? size : 0};
}

static double elements_of(range h, range w)
{
    return h.all > 0 ? (double)(h.all * w.all)
                     : (double)((h.last - h.first) * (w.last - w.first));
}

/* --- forward -------------------------------------------------------------------------- */

static sonde_err avg_pool2d_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                  sonde_diag *diag)
{
    const sonde__op_shape *x = &call->in[0].shape;

    SONDE__TRY(sonde__op_expect_rank(x, 4, "input", "(N, C, H, W)", diag));
    call->out[0].shape = *x;
    sonde__op_window_strides(attrs);
    for (int d = 0; d < 2; d++) {
        attrs->window.dilation[d] = 1;
        if (attrs->window.padding[d] * 2 > attrs->window.kernel[d]) {
            return sonde__fail(diag, SONDE_EINVAL, NULL, "at most half of the kernel",
                               "padding %lld of kernel %lld",
                               (long long)attrs->window.padding[d],
                               (long long)attrs->window.kernel[d]);
        }
        SONDE__TRY(sonde__op_window_count(attrs, d, x->dim[2 + d],
                                          &call->out[0].shape.dim[2 + d], diag));
    }
    return SONDE_OK;
}

static sonde_err adaptive_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                sonde_diag *diag)
{
    const sonde__op_shape *x = &call->in[0].shape;

    SONDE__TRY(sonde__op_expect_rank(x, 4, "input", "(N, C, H, W)", diag));
    call->out[0].shape = *x;
    for (int d = 0; d < 2; d++) {
        if (attrs->window.kernel[d] < 1) {
            return sonde__fail(diag, SONDE_EINVAL, NULL, "at least 1", "output_size %lld",
                               (long long)attrs->window.kernel[d]);
        }
        call->out[0].shape.dim[2 + d] = attrs->window.kernel[d];
    }
    return sonde__op_expect_size(&call->out[0].shape, "output", diag);
}

static double mean_at(const sonde__op_call *call, bool adaptive, int64_t n, int64_t c,
                      int64_t i, int64_t j)
{
    const sonde__op_shape *x = &call->in[0].shape;
    const range h = window(call->attrs, adaptive, 0, i, x->dim[2]);
    const range w = window(call->attrs, adaptive, 1, j, x->dim[3]);
    double sum = 0.0;

    for (int64_t a = h.first; a < h.last; a++) {
        for (int64_t b = w.first; b < w.last; b++) {
            sum += sonde__op_load(&call->in[0], sonde__op_at4(x, n, c, a, b));
        }
    }
    return sum / elements_of(h, w);
}

static double avg_at(const sonde__op_call *call, int64_t n, int64_t c, int64_t i,
                     int64_t j)
{
    return mean_at(call, false, n, c, i, j);
}

static double adaptive_at(const sonde__op_call *call, int64_t n, int64_t c, int64_t i,
                          int64_t j)
{
    return mean_at(call, true, n, c, i, j);
}

static void avg_pool2d_run(const sonde__op_call *call, int part, int parts)
{
    (void)part, (void)parts;
    sonde__op_store_all(call, avg_at);
}

static void adaptive_avg_pool2d_run(const sonde__op_call *call, int part, int parts)
{
    (void)part, (void)parts;
    sonde__op_store_all(call, adaptive_at);
}

/* --- gradient ------------------------------------------------------------------------- */

static sonde_err avg_grad_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                sonde_diag *diag)
{
    return sonde__op_infer_shaped(call, attrs, avg_pool2d_infer, diag);
}

static sonde_err adaptive_grad_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                     sonde_diag *diag)
{
    return sonde__op_infer_shaped(call, attrs, adaptive_infer, diag);
}

static double grad_at(const sonde__op_call *call, bool adaptive, int64_t n, int64_t c,
                      int64_t i, int64_t j)
{
    const sonde__op_shape *dy = &call->in[0].shape, *x = &call->out[0].shape;
    double sum = 0.0;

    for (int64_t a = 0; a < dy->dim[2]; a++) {
        const range h = window(call->attrs, adaptive, 0, a, x->dim[2]);

        for (int64_t b = 0; i >= h.first && i < h.last && b < dy->dim[3]; b++) {
            const range w = window(call->attrs, adaptive, 1, b, x->dim[3]);

            if (j >= w.first && j < w.last) {
                sum += sonde__op_load(&call->in[0], sonde__op_at4(dy, n, c, a, b)) /
                       elements_of(h, w);
            }
        }
    }
    return sum;
}

static double avg_grad_at(const sonde__op_call *call, int64_t n, int64_t c, int64_t i,
                          int64_t j)
{
    return grad_at(call, false, n, c, i, j);
}

static double adaptive_grad_at(const sonde__op_call *call, int64_t n, int64_t c,
                               int64_t i, int64_t j)
{
    return grad_at(call, true, n, c, i, j);
}

static void avg_pool2d_grad_run(const sonde__op_call *call, int part, int parts)
{
    (void)part, (void)parts;
    sonde__op_store_all(call, avg_grad_at);
}

static void adaptive_avg_pool2d_grad_run(const sonde__op_call *call, int part, int parts)
{
    (void)part, (void)parts;
    sonde__op_store_all(call, adaptive_grad_at);
}

/* --- rows ----------------------------------------------------------------------------- */

SONDE__OP(avg_pool2d, "AvgPool2d", window, 1, 1, 1, .infer = avg_pool2d_infer,
          .backward = {&sonde__op_avg_pool2d_grad, "d", 0, true},
          SONDE__REFERENCE(avg_pool2d_run), .halves = SONDE__HALVES_KEPT);

SONDE__OP(avg_pool2d_grad, "AvgPool2dGrad", window, 1, 1, 1, .infer = avg_grad_infer,
          SONDE__REFERENCE(avg_pool2d_grad_run), .halves = SONDE__HALVES_TAKEN);

SONDE__OP(adaptive_avg_pool2d, "AdaptiveAvgPool2d", window, 1, 1, 1,
          .infer = adaptive_infer,
          .backward = {&sonde__op_adaptive_avg_pool2d_grad, "d", 0, true},
          SONDE__REFERENCE(adaptive_avg_pool2d_run), .halves = SONDE__HALVES_KEPT);

SONDE__OP(adaptive_avg_pool2d_grad, "AdaptiveAvgPool2dGrad", window, 1, 1, 1,
          .infer = adaptive_grad_infer, SONDE__REFERENCE(adaptive_avg_pool2d_grad_run),
          .halves = SONDE__HALVES_TAKEN);

/*
 * conv2d.c - two-dimensional convolution, its input gradient, its weight gradient, and the
 * transposed convolution, which is the input gradient as a forward op.
 *
 *   y[n,o,i,j] = b[o] + sum over c, k, l of
 *       w[o,c,k,l] x[n, g C/G + c, i s - p + k d, j s - p + l d]
 *
 * where g is the group of o: a cross-correlation, as PyTorch's torch.nn.Conv2d documents.
 * The gradients are the transposes of that sum. Elements in the padding take no part, so
 * an infinite weight over padding gives no NaN; PyTorch's answer there depends on which
 * of its kernels runs. In bfloat16 and float16 the kernels multiply the padding's zeros.
 *
 * ConvTranspose2d makes y (N, O, H', W') of x (N, C, H, W) and w (C, O / groups, kh, kw):
 * what the input gradient makes of the dy x; H' = (H - 1) s - 2 p + d (kh - 1) + 1 and the
 * rows that a convolution of this stride leaves over, output_padding. As torch.nn.ConvTranspose2d.
 *
 * attrs: window.
 */
#include "nn/ops/common.h"
#include "base/fail.h"
#include "nn/kernels/fast.h"

#include <stdio.h>

static sonde_err output_shape(const sonde__op_shape *x, const sonde__op_shape *w,
                              sonde__op_attrs *attrs, sonde__op_shape *y,
                              sonde_diag *diag)
{
    sonde__op_shape shape = {
        .dtype = x->dtype, .rank = 4, .dim = {x->dim[0], w->dim[0], 0, 0}};
    const int64_t groups = attrs->window.groups;

    if (groups < 1 || x->dim[1] % groups != 0 || w->dim[0] % groups != 0) {
        return sonde__fail(diag, SONDE_EINVAL, NULL, "a divisor of both channel counts",
                           "%lld groups of %lld input and %lld output channels",
                           (long long)groups, (long long)x->dim[1], (long long)w->dim[0]);
    }
    if (w->dim[1] != x->dim[1] / groups) {
        char form[96];

        (void)snprintf(form, sizeof form, "%lld channels in %lld group%s",
                       (long long)(w->dim[1] * groups), (long long)groups,
                       groups == 1 ? "" : "s");
        return sonde__fail(diag, SONDE_ESHAPE, NULL, form, "input has %lld channels",
                           (long long)x->dim[1]);
    }
    attrs->window.kernel[0] = w->dim[2];
    attrs->window.kernel[1] = w->dim[3];
    SONDE__TRY(sonde__op_window_count(attrs, 0, x->dim[2], &shape.dim[2], diag));
    SONDE__TRY(sonde__op_window_count(attrs, 1, x->dim[3], &shape.dim[3], diag));
    SONDE__TRY(sonde__op_expect_size(&shape, "output", diag));
    *y = shape;
    return SONDE_OK;
}

/* --- forward ------------------------------------------------------------------------ */

static sonde_err conv2d_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                              sonde_diag *diag)
{
    const sonde__op_shape *x = &call->in[0].shape, *w = &call->in[1].shape;
    const sonde__op_shape bias = {.dtype = w->dtype, .rank = 1, .dim = {w->dim[0]}};
    sonde_dtype dtype = x->dtype;

    SONDE__TRY(sonde__op_expect_rank(x, 4, "input", "(N, C, H, W)", diag));
    SONDE__TRY(sonde__op_expect_rank(w, 4, "weight", "(O, C / groups, kh, kw)", diag));
    SONDE__TRY(sonde__op_expect_product(attrs, x, w, "weight", &dtype, diag));
    if (call->in_count > 2) {
        SONDE__TRY(sonde__op_expect_shape(&call->in[2].shape, &bias, "bias", diag));
    }
    SONDE__TRY(output_shape(x, w, attrs, &call->out[0].shape, diag));
    call->out[0].shape.dtype = dtype;
    return SONDE_OK;
}

static double convolve_at(const sonde__op_call *call, int64_t n, int64_t o, int64_t i,
                          int64_t j)
{
    const sonde__operand *x = &call->in[0], *w = &call->in[1];
    const int64_t channels = w->shape.dim[1]; /* of a group */
    const int64_t group = o / (w->shape.dim[0] / call->attrs->window.groups);
    double sum = sonde__op_has_in(call, 2) ? sonde__op_load(&call->in[2], o) : 0.0;

    for (int64_t c = 0; c < channels; c++) {
        for (int64_t k = 0; k < w->shape.dim[2]; k++) {
            const int64_t row =
                sonde__op_tap_position(call->attrs, 0, i, k, x->shape.dim[2]);

            for (int64_t l = 0; row >= 0 && l < w->shape.dim[3]; l++) {
                const int64_t col =
                    sonde__op_tap_position(call->attrs, 1, j, l, x->shape.dim[3]);

                if (col >= 0) {
                    sum +=
                        sonde__op_load_rounded(call, 1,
                                               sonde__op_at4(&w->shape, o, c, k, l)) *
                        sonde__op_load_rounded(
                            call, 0,
                            sonde__op_at4(&x->shape, n, group * channels + c, row, col));
                }
            }
        }
    }
    return sum;
}

static void conv2d_run(const sonde__op_call *call, int part, int parts)
{
    (void)part, (void)parts;
    sonde__op_store_all(call, convolve_at);
}

static void conv2d_gradient(const sonde__op_gradient_context *context)
{
    const sonde__op_value x = context->in[0], w = context->in[1],
                          dy = context->grad_out[0];

    if (context->wanted[0]) {
        context->grad_in[0] =
            sonde__op_emit_shaped(context, &sonde__op_conv2d_grad_input, x,
                                  (const sonde__op_value[]){dy, w}, 2);
    }
    if (context->wanted[1]) {
        context->grad_in[1] =
            sonde__op_emit_shaped(context, &sonde__op_conv2d_grad_weight, w,
                                  (const sonde__op_value[]){dy, x}, 2);
    }
    if (context->wanted[2]) {
        context->grad_in[2] =
            sonde__op_emit(context->graph, &sonde__op_channel_sum, NULL, &dy, 1);
    }
}

SONDE__OP(conv2d, "Conv2d", window, 2, 3, 1, .infer = conv2d_infer,
          .gradient = conv2d_gradient, SONDE__REFERENCE(conv2d_run),
          .fast = sonde__kernel_conv2d_fast, .halves = SONDE__HALVES_MADE,
          .half_kernels = sonde__kernel_conv2d_half);

/* --- gradient of the input ---------------------------------------------------------- */

static sonde_err conv2d_grad_input_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                         sonde_diag *diag)
{
    const sonde__op_shape *dy = &call->in[0].shape, *w = &call->in[1].shape;
    sonde__op_shape x, y;
    sonde_dtype dtype = w->dtype;

    SONDE__TRY(sonde__op_expect_rank(w, 4, "weight", "(O, C / groups, kh, kw)", diag));
    SONDE__TRY(sonde__op_expect_product(attrs, w, dy, "output gradient", &dtype, diag));
    SONDE__TRY(sonde__op_expect_dims(attrs, 4, dtype, "input", &x, diag));
    SONDE__TRY(output_shape(&x, w, attrs, &y, diag));
    y.dtype = dy->dtype;
    SONDE__TRY(sonde__op_expect_shape(dy, &y, "output gradient", diag));
    call->out[0].shape = x;
    return SONDE_OK;
}

/* Sum over the outputs that element (n, c, row, col) of the input went into. */
static double grad_input_at(const sonde__op_call *call, int64_t n, int64_t c, int64_t row,
                            int64_t col)
{
    const sonde__operand *dy = &call->in[0], *w = &call->in[1];
    const int64_t channels = w->shape.dim[1];                             /* of a group */
    const int64_t outputs = w->shape.dim[0] / call->attrs->window.groups; /* likewise */
    const int64_t first = c / channels * outputs;
    double sum = 0.0;

    for (int64_t o = first; o < first + outputs; o++) {
        for (int64_t k = 0; k < w->shape.dim[2]; k++) {
            const int64_t i =
                sonde__op_window_at(call->attrs, 0, row, k, dy->shape.dim[2]);

            for (int64_t l = 0; i >= 0 && l < w->shape.dim[3]; l++) {
                const int64_t j =
                    sonde__op_window_at(call->attrs, 1, col, l, dy->shape.dim[3]);

                if (j >= 0) {
                    sum += sonde__op_load_rounded(call, 0,
                                                  sonde__op_at4(&dy->shape, n, o, i, j)) *
                           sonde__op_load_rounded(
                               call, 1, sonde__op_at4(&w->shape, o, c % channels, k, l));
                }
            }
        }
    }
    return sum;
}

static void conv2d_grad_input_run(const sonde__op_call *call, int part, int parts)
{
    (void)part, (void)parts;
    sonde__op_store_all(call, grad_input_at);
}

SONDE__OP(conv2d_grad_input, "Conv2dGradInput", window, 2, 2, 1,
          .infer = conv2d_grad_input_infer, SONDE__REFERENCE(conv2d_grad_input_run),
          .fast = sonde__kernel_conv2d_grad_input_fast, .halves = SONDE__HALVES_MADE,
          .half_kernels = sonde__kernel_conv2d_grad_input_half);

/* --- gradient of the weight --------------------------------------------------------- */

static sonde_err conv2d_grad_weight_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                          sonde_diag *diag)
{
    const sonde__op_shape *dy = &call->in[0].shape, *x = &call->in[1].shape;
    sonde__op_shape w, y;
    sonde_dtype dtype = x->dtype;

    SONDE__TRY(sonde__op_expect_rank(x, 4, "input", "(N, C, H, W)", diag));
    SONDE__TRY(sonde__op_expect_product(attrs, x, dy, "output gradient", &dtype, diag));
    SONDE__TRY(sonde__op_expect_dims(attrs, 4, dtype, "weight", &w, diag));
    SONDE__TRY(output_shape(x, &w, attrs, &y, diag));
    y.dtype = dy->dtype;
    SONDE__TRY(sonde__op_expect_shape(dy, &y, "output gradient", diag));
    call->out[0].shape = w;
    return SONDE_OK;
}

/* Sum over samples and windows, for tap (k, l) from channel c of the group to output
 * o. */
static double grad_weight_at(const sonde__op_call *call, int64_t o, int64_t c, int64_t k,
                             int64_t l)
{
    const sonde__operand *dy = &call->in[0], *x = &call->in[1];
    const sonde__op_shape *w = &call->out[0].shape;
    const int64_t channel = o / (w->dim[0] / call->attrs->window.groups) * w->dim[1] + c;
    double sum = 0.0;

    for (int64_t n = 0; n < x->shape.dim[0]; n++) {
        for (int64_t i = 0; i < dy->shape.dim[2]; i++) {
            const int64_t row =
                sonde__op_tap_position(call->attrs, 0, i, k, x->shape.dim[2]);

            for (int64_t j = 0; row >= 0 && j < dy->shape.dim[3]; j++) {
                const int64_t col =
                    sonde__op_tap_position(call->attrs, 1, j, l, x->shape.dim[3]);

                if (col >= 0) {
                    sum += sonde__op_load_rounded(call, 0,
                                                  sonde__op_at4(&dy->shape, n, o, i, j)) *
                           sonde__op_load_rounded(
                               call, 1, sonde__op_at4(&x->shape, n, channel, row, col));
                }
            }
        }
    }
    return sum;
}

static void conv2d_grad_weight_run(const sonde__op_call *call, int part, int parts)
{
    (void)part, (void)parts;
    sonde__op_store_all(call, grad_weight_at);
}

SONDE__OP(conv2d_grad_weight, "Conv2dGradWeight", window, 2, 2, 1,
          .infer = conv2d_grad_weight_infer, SONDE__REFERENCE(conv2d_grad_weight_run),
          .fast = sonde__kernel_conv2d_grad_weight_fast, .halves = SONDE__HALVES_MADE,
          .half_kernels = sonde__kernel_conv2d_grad_weight_half);

/* --- transposed --------------------------------------------------------------------- */

static sonde_err transposed_extent(const sonde__op_attrs *attrs, int d, int64_t extent,
                                   int64_t kernel, int64_t *made, sonde_diag *diag)
{
    const int64_t more = attrs->window.output_padding[d],
                  stride = attrs->window.stride[d];

    if (stride < 1 || more < 0 || more >= stride) {
        return sonde__fail(diag, SONDE_EINVAL, NULL, "less than the stride",
                           "output_padding %lld for a stride of %lld", (long long)more,
                           (long long)stride);
    }
    if (stride > SONDE__MAX_EXTENT || kernel > SONDE__MAX_EXTENT ||
        attrs->window.dilation[d] > SONDE__MAX_EXTENT ||
        attrs->window.padding[d] > SONDE__MAX_EXTENT || extent > SONDE__MAX_EXTENT) {
        return sonde__fail(diag, SONDE_EINVAL, NULL, "at most 2^24",
                           "a larger size, kernel or stride");
    }
    *made = (extent - 1) * stride - 2 * attrs->window.padding[d] +
            attrs->window.dilation[d] * (kernel - 1) + more + 1;
    if (extent < 1 || *made < 1) {
        return sonde__fail(diag, SONDE_ESHAPE, NULL, "at least one row and column",
                           "%lld of %lld with a padding of %lld", (long long)*made,
                           (long long)extent, (long long)attrs->window.padding[d]);
    }
    return SONDE_OK;
}

static sonde_err conv_transpose2d_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                        sonde_diag *diag)
{
    const sonde__op_shape *x = &call->in[0].shape, *w = &call->in[1].shape;
    sonde__op_shape y = {.dtype = x->dtype, .rank = 4, .dim = {x->dim[0]}}, back;

    SONDE__TRY(sonde__op_expect_rank(x, 4, "input", "(N, C, H, W)", diag));
    SONDE__TRY(sonde__op_expect_rank(w, 4, "weight", "(C, O / groups, kh, kw)", diag));
    SONDE__TRY(sonde__op_expect_product(attrs, x, w, "weight", &y.dtype, diag));
    if (w->dim[0] != x->dim[1] || attrs->window.groups < 1 ||
        __builtin_mul_overflow(w->dim[1], attrs->window.groups, &y.dim[1])) {
        return sonde__fail(diag, SONDE_ESHAPE, NULL, "as many as the input has",
                           "a weight for %lld channels, an input of %lld",
                           (long long)w->dim[0], (long long)x->dim[1]);
    }
    for (int d = 0; d < 2; d++) {
        SONDE__TRY(transposed_extent(attrs, d, x->dim[2 + d], w->dim[2 + d],
                                     &y.dim[2 + d], diag));
    }
    SONDE__TRY(sonde__op_expect_size(&y, "output", diag));
    SONDE__TRY(output_shape(&y, w, attrs, &back, diag));
    back.dtype = x->dtype;
    SONDE__TRY(sonde__op_expect_shape(x, &back, "input", diag));
    call->out[0].shape = y;
    return SONDE_OK;
}

static void conv_transpose2d_run(const sonde__op_call *call, int part, int parts)
{
    (void)part, (void)parts;
    sonde__op_store_all(call, grad_input_at);
}

static void conv_transpose2d_gradient(const sonde__op_gradient_context *context)
{
    const sonde__op_value x = context->in[0], w = context->in[1],
                          dy = context->grad_out[0];

    if (context->wanted[0]) {
        const sonde__op_attrs attrs = sonde__op_product_attrs(context, x);

        context->grad_in[0] = sonde__op_emit(context->graph, &sonde__op_conv2d, &attrs,
                                             (const sonde__op_value[]){dy, w}, 2);
    }
    if (context->wanted[1]) {
        context->grad_in[1] =
            sonde__op_emit_shaped(context, &sonde__op_conv2d_grad_weight, w,
                                  (const sonde__op_value[]){x, dy}, 2);
    }
}

SONDE__OP(conv_transpose2d, "ConvTranspose2d", window, 2, 2, 1,
          .infer = conv_transpose2d_infer, .gradient = conv_transpose2d_gradient,
          SONDE__REFERENCE(conv_transpose2d_run),
          .fast = sonde__kernel_conv2d_grad_input_fast, .halves = SONDE__HALVES_MADE,
          .half_kernels = sonde__kernel_conv_transpose2d_half);

/*
 * linear.c - the fully connected layer, its input gradient and its weight gradient.
 *
 *   y = x w^T + b        dx = dy w        dw = dy^T x
 *
 * as torch.nn.Linear, for x (N, K), w (O, K), b (O). The bias gradient is a channel sum.
 */
#include "nn/ops/common.h"
#include "base/fail.h"
#include "nn/kernels/fast.h"
#include "nn/ops/layer_row.h"

#include <math.h>
#include <stdio.h>

/* a and b agree in dtype and, where they share a dimension, in its extent. */
static sonde_err expect_common(const sonde__op_attrs *attrs, const sonde__operand *a,
                               int dim_a, const sonde__operand *b, int dim_b,
                               const char *what_a, const char *what_b, sonde_dtype *dtype,
                               sonde_diag *diag)
{
    char text_a[SONDE__SHAPE_TEXT], text_b[SONDE__SHAPE_TEXT], wanted[64];

    SONDE__TRY(
        sonde__op_expect_product(attrs, &a->shape, &b->shape, what_b, dtype, diag));
    if (a->shape.dim[dim_a] == b->shape.dim[dim_b]) {
        return SONDE_OK;
    }
    (void)snprintf(wanted, sizeof wanted, "%lld in dimension %d of the %s",
                   (long long)a->shape.dim[dim_a], dim_b, what_b);
    return sonde__fail(diag, SONDE_ESHAPE, NULL, wanted, "%s is %s, %s is %s", what_a,
                       sonde__op_shape_text(&a->shape, text_a), what_b,
                       sonde__op_shape_text(&b->shape, text_b));
}

/* --- forward ------------------------------------------------------------------------ */

static sonde_err linear_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                              sonde_diag *diag)
{
    const sonde__op_shape *x = &call->in[0].shape, *w = &call->in[1].shape;
    const sonde__op_shape bias = {.dtype = w->dtype, .rank = 1, .dim = {w->dim[0]}};
    sonde__op_shape y = {.rank = 2, .dim = {x->dim[0], w->dim[0]}};

    SONDE__TRY(sonde__op_expect_rank(x, 2, "input", "(N, K)", diag));
    SONDE__TRY(sonde__op_expect_rank(w, 2, "weight", "(O, K)", diag));
    SONDE__TRY(expect_common(attrs, &call->in[0], 1, &call->in[1], 1, "input", "weight",
                             &y.dtype, diag));
    if (call->in_count > 2) {
        SONDE__TRY(sonde__op_expect_shape(&call->in[2].shape, &bias, "bias", diag));
    }
    SONDE__TRY(sonde__op_expect_size(&y, "output", diag));
    call->out[0].shape = y;
    return SONDE_OK;
}

static void linear_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__operand *x = &call->in[0], *w = &call->in[1], *b = &call->in[2];
    const int64_t samples = x->shape.dim[0], outputs = w->shape.dim[0];
    const int64_t inputs = w->shape.dim[1];

    (void)part, (void)parts;
    for (int64_t n = 0; n < samples; n++) {
        for (int64_t o = 0; o < outputs; o++) {
            double sum = sonde__op_has_in(call, 2) ? sonde__op_load(b, o) : 0.0;

            for (int64_t k = 0; k < inputs; k++) {
                sum += sonde__op_load_rounded(call, 0, n * inputs + k) *
                       sonde__op_load_rounded(call, 1, o * inputs + k);
            }
            sonde__op_store(&call->out[0], n * outputs + o, sum);
        }
    }
}

static void linear_gradient(const sonde__op_gradient_context *context)
{
    const sonde__op_value x = context->in[0], w = context->in[1],
                          dy = context->grad_out[0];

    if (context->wanted[0]) {
        const sonde__op_attrs attrs = sonde__op_product_attrs(context, x);

        context->grad_in[0] = sonde__op_emit(context->graph, &sonde__op_linear_grad_input,
                                             &attrs, (const sonde__op_value[]){dy, w}, 2);
    }
    if (context->wanted[1]) {
        const sonde__op_attrs attrs = sonde__op_product_attrs(context, w);

        context->grad_in[1] =
            sonde__op_emit(context->graph, &sonde__op_linear_grad_weight, &attrs,
                           (const sonde__op_value[]){dy, x}, 2);
    }
    if (context->wanted[2]) {
        context->grad_in[2] =
            sonde__op_emit(context->graph, &sonde__op_channel_sum, NULL, &dy, 1);
    }
}

SONDE__OP(linear, "Linear", none, 2, 3, 1, .infer = linear_infer,
          .gradient = linear_gradient, SONDE__REFERENCE(linear_run),
          .fast = sonde__kernel_linear_fast, .halves = SONDE__HALVES_MADE,
          .half_kernels = sonde__kernel_linear_half);

/* --- gradient of the input ---------------------------------------------------------- */

static sonde_err linear_grad_input_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                         sonde_diag *diag)
{
    const sonde__op_shape *dy = &call->in[0].shape, *w = &call->in[1].shape;
    sonde__op_shape dx = {.rank = 2, .dim = {dy->dim[0], w->dim[1]}};

    SONDE__TRY(sonde__op_expect_rank(dy, 2, "output gradient", "(N, O)", diag));
    SONDE__TRY(sonde__op_expect_rank(w, 2, "weight", "(O, K)", diag));
    SONDE__TRY(expect_common(attrs, &call->in[0], 1, &call->in[1], 0, "output gradient",
                             "weight", &dx.dtype, diag));
    SONDE__TRY(sonde__op_expect_size(&dx, "input gradient", diag));
    call->out[0].shape = dx;
    return SONDE_OK;
}

static void linear_grad_input_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__operand *dy = &call->in[0], *w = &call->in[1];
    const int64_t samples = dy->shape.dim[0], outputs = w->shape.dim[0];
    const int64_t inputs = w->shape.dim[1];

    (void)part, (void)parts;
    for (int64_t n = 0; n < samples; n++) {
        for (int64_t k = 0; k < inputs; k++) {
            double sum = 0.0;

            for (int64_t o = 0; o < outputs; o++) {
                sum += sonde__op_load_rounded(call, 0, n * outputs + o) *
                       sonde__op_load_rounded(call, 1, o * inputs + k);
            }
            sonde__op_store(&call->out[0], n * inputs + k, sum);
        }
    }
}

SONDE__OP(linear_grad_input, "LinearGradInput", none, 2, 2, 1,
          .infer = linear_grad_input_infer, SONDE__REFERENCE(linear_grad_input_run),
          .fast = sonde__kernel_linear_grad_input_fast, .halves = SONDE__HALVES_MADE,
          .half_kernels = sonde__kernel_linear_grad_input_half);

/* --- gradient of the weight --------------------------------------------------------- */

static sonde_err linear_grad_weight_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                          sonde_diag *diag)
{
    const sonde__op_shape *dy = &call->in[0].shape, *x = &call->in[1].shape;
    sonde__op_shape dw = {.rank = 2, .dim = {dy->dim[1], x->dim[1]}};

    SONDE__TRY(sonde__op_expect_rank(dy, 2, "output gradient", "(N, O)", diag));
    SONDE__TRY(sonde__op_expect_rank(x, 2, "input", "(N, K)", diag));
    SONDE__TRY(expect_common(attrs, &call->in[0], 0, &call->in[1], 0, "output gradient",
                             "input", &dw.dtype, diag));
    SONDE__TRY(sonde__op_expect_size(&dw, "weight gradient", diag));
    call->out[0].shape = dw;
    return SONDE_OK;
}

static void linear_grad_weight_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__operand *dy = &call->in[0], *x = &call->in[1];
    const int64_t samples = x->shape.dim[0], outputs = dy->shape.dim[1];
    const int64_t inputs = x->shape.dim[1];

    (void)part, (void)parts;
    for (int64_t o = 0; o < outputs; o++) {
        for (int64_t k = 0; k < inputs; k++) {
            double sum = 0.0;

            for (int64_t n = 0; n < samples; n++) {
                sum += sonde__op_load_rounded(call, 0, n * outputs + o) *
                       sonde__op_load_rounded(call, 1, n * inputs + k);
            }
            sonde__op_store(&call->out[0], o * inputs + k, sum);
        }
    }
}

SONDE__OP(linear_grad_weight, "LinearGradWeight", none, 2, 2, 1,
          .infer = linear_grad_weight_infer, SONDE__REFERENCE(linear_grad_weight_run),
          .fast = sonde__kernel_linear_grad_weight_fast, .halves = SONDE__HALVES_MADE,
          .half_kernels = sonde__kernel_linear_grad_weight_half);

/* --- layer -------------------------------------------------------------------------- */

sonde__op_value sonde__op_emit_linear(const sonde__op_builder *builder, sonde__op_value x,
                                      sonde__op_value w, sonde__op_value b)
{
    const sonde__op_shape shape = *sonde__op_value_shape(builder->graph, x);
    const int last = shape.rank - 1, count = b != 0 ? 3 : 2;
    sonde__op_value in[3] = {x, w, b};
    sonde__op_attrs dims = {.shape = {.rank = 2, .dims = {-1}}};

    if (last < 2) {
        return builder->emit(builder, &sonde__op_linear, NULL, in, count);
    }
    dims.shape.dims[1] = shape.dim[last];
    in[0] = builder->emit(builder, &sonde__op_reshape, &dims, &x, 1);
    const sonde__op_value y =
        in[0] == 0 ? 0 : builder->emit(builder, &sonde__op_linear, NULL, in, count);
    if (y == 0) {
        return 0;
    }
    dims = (sonde__op_attrs){.shape = {.rank = shape.rank, .dims = {-1}}};
    for (int i = 1; i < last; i++) {
        dims.shape.dims[i] = shape.dim[i];
    }
    dims.shape.dims[last] = sonde__op_value_shape(builder->graph, w)->dim[0];
    return builder->emit(builder, &sonde__op_reshape, &dims, &y, 1);
}

static int linear_params(const sonde__op_shape *x, const sonde__op_attrs *attrs,
                         sonde__op_param params[SONDE__MAX_PARAMS])
{
    const int64_t outputs = attrs->linear.out_features,
                  inputs = x->rank > 1 ? x->dim[x->rank - 1] : 0;
    const float bound = (float)(1.0 / sqrt((double)inputs));

    if (inputs < 1) {
        return 0;
    }
    params[0] = (sonde__op_param){.suffix = "weight",
                                  .role = SONDE_ROLE_WEIGHT,
                                  .rank = 2,
                                  .dim = {outputs, inputs},
                                  .bound = bound};
    params[1] = (sonde__op_param){.suffix = "bias",
                                  .role = SONDE_ROLE_BIAS,
                                  .rank = 1,
                                  .dim = {outputs},
                                  .bound = bound};
    return attrs->linear.bias ? 2 : 1;
}

static sonde__op_value build_linear(const sonde__op_builder *builder,
                                    sonde__op_attrs *attrs, const sonde__op_value *in)
{
    const sonde__op_shape *x = sonde__op_value_shape(builder->graph, in[0]);
    char text[SONDE__SHAPE_TEXT];

    (void)attrs;
    if (in[1] == 0) {
        (void)sonde__fail(builder->diag, SONDE_ESHAPE, NULL, "(N, ..., features)",
                          "a linear layer over %s", sonde__op_shape_text(x, text));
        return 0;
    }
    return sonde__op_emit_linear(builder, in[0], in[1], in[2]);
}

SONDE__LAYER(linear, linear, 1, "x Wᵀ + b over the last dimension",
             .fields = {SONDE__FIELD("out_features", SONDE__FIELD_WHOLE,
                                     linear.out_features, (double)NAN, 1, 1 << 24),
                        SONDE__FIELD("bias", SONDE__FIELD_FLAG, linear.bias, 1.0, 0, 1)},
             .params = linear_params, .build = build_linear);

/*
 * relu.c - the rectifier and its gradient.
 *
 *   y = x < 0 ? 0 : x        dx = y <= 0 ? 0 : dy
 *
 * written so that a NaN passes through both, as in torch.relu: comparisons with NaN are
 * false. The gradient reads the output, so the input need not be kept.
 *
 * attrs: none.
 */
#include "nn/ops/common.h"
#include "nn/kernels/fast_linear.h"

static sonde_err relu_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                            sonde_diag *diag)
{
    (void)attrs;
    SONDE__TRY(sonde__op_expect_float(&call->in[0].shape, "input", diag));
    call->out[0].shape = call->in[0].shape;
    return SONDE_OK;
}

static void relu_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t count = sonde__op_shape_count(&call->in[0].shape);

    (void)part, (void)parts;
    for (int64_t i = 0; i < count; i++) {
        const double x = sonde__op_load(&call->in[0], i);

        sonde__op_store(&call->out[0], i, x < 0.0 ? 0.0 : x);
    }
}

SONDE__KERNELS(relu, sonde__kernel_relu_fast)

static void relu_gradient(const sonde__op_gradient_context *context)
{
    const sonde__op_value in[] = {context->grad_out[0], context->out[0]};

    context->grad_in[0] =
        sonde__op_emit(context->graph, &sonde__op_relu_grad, NULL, in, 2);
}

const sonde__op_kind sonde__op_relu = {
    .name = "Relu",
    .in_min = 1,
    .in_max = 1,
    .out_count = 1,
    .infer = relu_infer,
    .gradient = relu_gradient,
    .kernels = relu_kernels,
};

static sonde_err relu_grad_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                 sonde_diag *diag)
{
    const sonde__op_shape *y = &call->in[1].shape;

    (void)attrs;
    SONDE__TRY(sonde__op_expect_float(y, "output", diag));
    SONDE__TRY(sonde__op_expect_shape(&call->in[0].shape, y, "output gradient", diag));
    call->out[0].shape = *y;
    return SONDE_OK;
}

static void relu_grad_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t count = sonde__op_shape_count(&call->in[0].shape);

    (void)part, (void)parts;
    for (int64_t i = 0; i < count; i++) {
        const double y = sonde__op_load(&call->in[1], i);

        sonde__op_store(&call->out[0], i,
                        y <= 0.0 ? 0.0 : sonde__op_load(&call->in[0], i));
    }
}

SONDE__KERNELS(relu_grad, sonde__kernel_relu_grad_fast)

const sonde__op_kind sonde__op_relu_grad = {
    .name = "ReluGrad",
    .in_min = 2,
    .in_max = 2,
    .out_count = 1,
    .infer = relu_grad_infer,
    .kernels = relu_grad_kernels,
};

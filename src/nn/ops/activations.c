/*
 * activations.c - ReLU, sigmoid and tanh with their gradients.
 *
 *   Relu         y = x < 0 ? 0 : x           ReluGrad      dx = y <= 0 ? 0 : dy
 *   Sigmoid      y = 1 / (1 + exp(-x))       SigmoidGrad   dx = dy y (1 - y)
 *   Tanh         y = tanh(x)                 TanhGrad      dx = dy (1 - y^2)
 *
 * Gradients read the output, so the input need not be kept. NaN passes through all of
 * them, as in PyTorch; ReLU's comparisons are written so that they are false for NaN. For
 * the two that saturate, an infinite input gives 0, 1 or -1, and a gradient of 0 there,
 * or NaN if dy is infinite.
 *
 * attrs: none. Sigmoid and tanh have no fast kernels.
 */
#include "nn/kernels/fast.h"
#include "nn/ops/common.h"

#include <math.h>

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
SONDE__HALF_KERNELS(relu)

static void relu_gradient(const sonde__op_gradient_context *context)
{
    const sonde__op_value in[] = {context->grad_out[0], context->out[0]};

    context->grad_in[0] =
        sonde__op_emit(context->graph, &sonde__op_relu_grad, NULL, in, 2);
}

const sonde__op_kind sonde__op_relu = {
    .name = "Relu",
    SONDE__OPERANDS(1, 1, 1),
    .infer = relu_infer,
    .gradient = relu_gradient,
    .kernels = relu_kernels,
    .halves = SONDE__HALVES_KEPT,
    .half_kernels = relu_half_kernels,
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
SONDE__HALF_KERNELS(relu_grad)

const sonde__op_kind sonde__op_relu_grad = {
    .name = "ReluGrad",
    SONDE__OPERANDS(2, 2, 1),
    .infer = relu_grad_infer,
    .kernels = relu_grad_kernels,
    .halves = SONDE__HALVES_KEPT,
    .half_kernels = relu_grad_half_kernels,
};

static sonde_err activation_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                  sonde_diag *diag)
{
    (void)attrs;
    SONDE__TRY(sonde__op_expect_float(&call->in[0].shape, "input", diag));
    call->out[0].shape = call->in[0].shape;
    return SONDE_OK;
}

static sonde_err gradient_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                sonde_diag *diag)
{
    const sonde__op_shape *y = &call->in[1].shape;

    (void)attrs;
    SONDE__TRY(sonde__op_expect_float(y, "output", diag));
    SONDE__TRY(sonde__op_expect_shape(&call->in[0].shape, y, "output gradient", diag));
    call->out[0].shape = *y;
    return SONDE_OK;
}

/* Defines the loops of an activation f(x) and of its slope as a function of y. */
#define ACTIVATION(op, f, slope)                                                         \
    static void op##_run(const sonde__op_call *call, int part, int parts)                \
    {                                                                                    \
        const int64_t count = sonde__op_shape_count(&call->in[0].shape);                 \
                                                                                         \
        (void)part, (void)parts;                                                         \
        for (int64_t i = 0; i < count; i++) {                                            \
            const double x = sonde__op_load(&call->in[0], i);                            \
                                                                                         \
            sonde__op_store(&call->out[0], i, f);                                        \
        }                                                                                \
    }                                                                                    \
                                                                                         \
    SONDE__KERNELS(op, NULL)                                                             \
                                                                                         \
    static void op##_gradient(const sonde__op_gradient_context *context)                 \
    {                                                                                    \
        const sonde__op_value in[] = {context->grad_out[0], context->out[0]};            \
                                                                                         \
        context->grad_in[0] =                                                            \
            sonde__op_emit(context->graph, &sonde__op_##op##_grad, NULL, in, 2);         \
    }                                                                                    \
                                                                                         \
    static void op##_grad_run(const sonde__op_call *call, int part, int parts)           \
    {                                                                                    \
        const int64_t count = sonde__op_shape_count(&call->in[0].shape);                 \
                                                                                         \
        (void)part, (void)parts;                                                         \
        for (int64_t i = 0; i < count; i++) {                                            \
            const double y = sonde__op_load(&call->in[1], i);                            \
                                                                                         \
            sonde__op_store(&call->out[0], i,                                            \
                            sonde__op_load(&call->in[0], i) * (slope));                  \
        }                                                                                \
    }                                                                                    \
                                                                                         \
    SONDE__KERNELS(op##_grad, NULL)

ACTIVATION(sigmoid, 1.0 / (1.0 + exp(-x)), y *(1.0 - y))
ACTIVATION(tanh, tanh(x), 1.0 - y * y)

const sonde__op_kind sonde__op_sigmoid = {
    .name = "Sigmoid",
    SONDE__OPERANDS(1, 1, 1),
    .infer = activation_infer,
    .gradient = sigmoid_gradient,
    .kernels = sigmoid_kernels,
};

const sonde__op_kind sonde__op_tanh = {
    .name = "Tanh",
    SONDE__OPERANDS(1, 1, 1),
    .infer = activation_infer,
    .gradient = tanh_gradient,
    .kernels = tanh_kernels,
};

const sonde__op_kind sonde__op_sigmoid_grad = {
    .name = "SigmoidGrad",
    SONDE__OPERANDS(2, 2, 1),
    .infer = gradient_infer,
    .kernels = sigmoid_grad_kernels,
};

const sonde__op_kind sonde__op_tanh_grad = {
    .name = "TanhGrad",
    SONDE__OPERANDS(2, 2, 1),
    .infer = gradient_infer,
    .kernels = tanh_grad_kernels,
};

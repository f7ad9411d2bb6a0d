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
 */
#include "nn/kernels/fast.h"
#include "nn/ops/common.h"
#include "nn/ops/layer_row.h"

#include <math.h>

static void relu_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t count = sonde__op_shape_count(&call->in[0].shape);

    (void)part, (void)parts;
    for (int64_t i = 0; i < count; i++) {
        const double x = sonde__op_load(&call->in[0], i);

        sonde__op_store(&call->out[0], i, x < 0.0 ? 0.0 : x);
    }
}

SONDE__OP(relu, "Relu", none, 1, 1, 1, .infer = sonde__op_infer_alike,
          .backward = {&sonde__op_relu_grad, "dA"}, SONDE__REFERENCE(relu_run),
          .fast = sonde__kernel_relu_fast, .halves = SONDE__HALVES_KEPT,
          .half_kernels = sonde__kernel_relu_half);

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

SONDE__OP(relu_grad, "ReluGrad", none, 2, 2, 1, .infer = sonde__op_infer_slope,
          SONDE__REFERENCE(relu_grad_run), .fast = sonde__kernel_relu_grad_fast,
          .halves = SONDE__HALVES_KEPT, .half_kernels = sonde__kernel_relu_grad_half);

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
    }

ACTIVATION(sigmoid, 1.0 / (1.0 + exp(-x)), y *(1.0 - y))
ACTIVATION(tanh, tanh(x), 1.0 - y * y)

SONDE__OP(sigmoid, "Sigmoid", none, 1, 1, 1, .infer = sonde__op_infer_alike,
          .backward = {&sonde__op_sigmoid_grad, "dA"}, SONDE__REFERENCE(sigmoid_run));

SONDE__OP(tanh, "Tanh", none, 1, 1, 1, .infer = sonde__op_infer_alike,
          .backward = {&sonde__op_tanh_grad, "dA"}, SONDE__REFERENCE(tanh_run));

SONDE__OP(sigmoid_grad, "SigmoidGrad", none, 2, 2, 1, .infer = sonde__op_infer_slope,
          SONDE__REFERENCE(sigmoid_grad_run));

SONDE__OP(tanh_grad, "TanhGrad", none, 2, 2, 1, .infer = sonde__op_infer_slope,
          SONDE__REFERENCE(tanh_grad_run));

/* --- layers ----------------------------------------------------------------------------- */

SONDE__LAYER(relu, relu, 1, "max(x, 0)");

SONDE__LAYER(sigmoid, sigmoid, 1, "1 / (1 + exp(-x))");

SONDE__LAYER(tanh, tanh, 1, "tanh(x)");

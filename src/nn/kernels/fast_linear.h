/*
 * fast_linear.h - the fast kernels of the linear layer, of element-wise ops, of updates
 * and of reorders, for the families' rows in the op table. Internal.
 *
 * float32 only. Each list is NULL-terminated, fastest first, made for the instruction set
 * that sonde__cpu_isa() found. Where a list holds several kernels, they differ in
 * layouts: every one of them beats a reorder before the first, so take the first that
 * needs none.
 *
 *   linear, linear_relu           x LANES or PLAIN → y LANES
 *   linear_grad_input             dy LANES → dx LANES
 *   linear_grad_weight(_sgd)      dy LANES, x PANELS, LANES or PLAIN → dw PLAIN
 *   linear_channel_sum            dy (N, C) LANES → PLAIN
 *   relu, relu_grad, add, scale, accumulate, reshape of nothing: ANY layout, element-wise
 *   sgd, adam                     PLAIN, vital signs of gradient and weight in the same loop
 *   reorder                       every pair of layouts
 */
#ifndef SONDE_NN_KERNELS_FAST_LINEAR_H
#define SONDE_NN_KERNELS_FAST_LINEAR_H

#include "base/cpu.h"
#include "nn/ops/ops.h"

#if defined(__GNUC__)
#pragma GCC visibility push(default) /* for tests, which link the shared library */
#endif

const sonde__op_kernel *const *sonde__kernel_linear_fast(void);
const sonde__op_kernel *const *sonde__kernel_linear_relu_fast(void);
const sonde__op_kernel *const *sonde__kernel_linear_grad_input_fast(void);
const sonde__op_kernel *const *sonde__kernel_linear_grad_weight_fast(void);
const sonde__op_kernel *const *sonde__kernel_linear_grad_weight_sgd_fast(void);
const sonde__op_kernel *const *sonde__kernel_linear_channel_sum_fast(void);
const sonde__op_kernel *const *sonde__kernel_relu_fast(void);
const sonde__op_kernel *const *sonde__kernel_relu_grad_fast(void);
const sonde__op_kernel *const *sonde__kernel_add_fast(void);
const sonde__op_kernel *const *sonde__kernel_scale_fast(void);
const sonde__op_kernel *const *sonde__kernel_accumulate_fast(void);
const sonde__op_kernel *const *sonde__kernel_sgd_fast(void);
const sonde__op_kernel *const *sonde__kernel_adam_fast(void);
const sonde__op_kernel *const *sonde__kernel_reorder_fast(void);

/* The same by number and instruction set, which the processor must have: for tests. */
typedef enum sonde__kernel_fast_op {
    SONDE__FAST_LINEAR = 0,
    SONDE__FAST_LINEAR_RELU = 1,
    SONDE__FAST_LINEAR_GRAD_INPUT = 2,
    SONDE__FAST_LINEAR_GRAD_WEIGHT = 3,
    SONDE__FAST_LINEAR_GRAD_WEIGHT_SGD = 4,
    SONDE__FAST_LINEAR_CHANNEL_SUM = 5,
    SONDE__FAST_RELU = 6,
    SONDE__FAST_RELU_GRAD = 7,
    SONDE__FAST_ADD = 8,
    SONDE__FAST_SCALE = 9,
    SONDE__FAST_ACCUMULATE = 10,
    SONDE__FAST_SGD = 11,
    SONDE__FAST_ADAM = 12,
    SONDE__FAST_REORDER = 13
} sonde__kernel_fast_op;
enum { SONDE__FAST_OPS = 14 };

const sonde__op_kernel *const *sonde__kernel_fast_kernels_of(sonde__isa isa,
                                                             sonde__kernel_fast_op op);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#endif

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
 *   sgd, adam                     PLAIN, vital signs of gradient and weight in the same
 * loop reorder                       every pair of layouts
 */
#ifndef SONDE_NN_OPS_FAST_LINEAR_H
#define SONDE_NN_OPS_FAST_LINEAR_H

#include "nn/ops/ops.h"

#if defined(__GNUC__)
#pragma GCC visibility push(default) /* for tests, which link the shared library */
#endif

const sonde__kernel *const *sonde__linear_fast(void);
const sonde__kernel *const *sonde__linear_relu_fast(void);
const sonde__kernel *const *sonde__linear_grad_input_fast(void);
const sonde__kernel *const *sonde__linear_grad_weight_fast(void);
const sonde__kernel *const *sonde__linear_grad_weight_sgd_fast(void);
const sonde__kernel *const *sonde__linear_channel_sum_fast(void);
const sonde__kernel *const *sonde__relu_fast(void);
const sonde__kernel *const *sonde__relu_grad_fast(void);
const sonde__kernel *const *sonde__add_fast(void);
const sonde__kernel *const *sonde__scale_fast(void);
const sonde__kernel *const *sonde__accumulate_fast(void);
const sonde__kernel *const *sonde__sgd_fast(void);
const sonde__kernel *const *sonde__adam_fast(void);
const sonde__kernel *const *sonde__reorder_fast(void);

/* The same by number and instruction set, which the processor must have: for tests. */
typedef enum sonde__fast_op {
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
} sonde__fast_op;
enum { SONDE__FAST_OPS = 14 };

const sonde__kernel *const *sonde__fast_kernels_of(sonde__isa isa, sonde__fast_op op);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#endif

/*
 * fast.h - the fast kernels by instruction set, and their lists for the op table.
 *
 * float32 only; the operands are those of ops.h. The reference serves declined calls
 * (other dtypes, an axis 0). Each list is NULL-terminated, fastest first, made for the
 * instruction set that sonde__cpu_isa() found. The kernels of one list differ in layouts:
 * every one of them beats a reorder before the first, so take the first that needs no
 * reorder.
 *
 * Over LANES: convolution, pooling, batch and group norm, softmax and NLL, each set a constant per
 * ISA (sonde__kernel_conv2d_avx2 ...).
 *   - conv2d_relu_pool and pool_relu_conv_grad take stride, padding, dilation and groups
 *     of the convolution from attrs; the pool is always 2 x 2 with stride 2, no padding.
 *   - A convolution of many channels has kernels of its own (conv2d_wide_kernels.c,
 *     conv2d_wide_weight_kernels.c), first in the lists; with a max-pool it is not fused.
 *   - An index is u8, row * window width + column; of equal numbers the first wins, of
 *     NaN the last, as in PyTorch.
 *
 * The others:
 *   linear, linear_relu           x LANES or PLAIN -> y LANES
 *   linear_grad_input             dy LANES -> dx LANES
 *   linear_grad_weight(_sgd)      dy LANES, x PANELS, LANES or PLAIN -> dw PLAIN
 *   linear_channel_sum            dy (N, C) LANES -> PLAIN
 *   relu, relu_grad, add, scale, accumulate: ANY layout, element-wise
 *   sgd, adam                     PLAIN, with vital signs of gradient and weight
 *   reorder                       every pair of layouts
 */
#ifndef SONDE_NN_KERNELS_FAST_H
#define SONDE_NN_KERNELS_FAST_H

#include <sonde/export.h>

#include "base/cpu.h"
#include "nn/ops/ops.h"

/* --- kernels over LANES ------------------------------------------------------------- */

typedef struct sonde__kernel_conv2d_kernels {
    sonde__op_kernel forward, relu, relu_pool;
} sonde__kernel_conv2d_kernels;

typedef struct sonde__kernel_conv2d_grad_kernels {
    sonde__op_kernel input;
} sonde__kernel_conv2d_grad_kernels;

/* Of many channels. */
typedef struct sonde__kernel_conv2d_wide_kernels {
    sonde__op_kernel forward, relu, input;
} sonde__kernel_conv2d_wide_kernels;

typedef struct sonde__kernel_conv2d_wide_weight_kernels {
    sonde__op_kernel weight;
} sonde__kernel_conv2d_wide_weight_kernels;

typedef struct sonde__kernel_conv2d_weight_kernels {
    sonde__op_kernel weight, channel_sum, pool_relu;
} sonde__kernel_conv2d_weight_kernels;

typedef struct sonde__kernel_pool_kernels {
    sonde__op_kernel forward, grad;
} sonde__kernel_pool_kernels;

typedef struct sonde__kernel_group_norm_kernels {
    sonde__op_kernel forward, grad;
} sonde__kernel_group_norm_kernels;

typedef struct sonde__kernel_batch_norm_kernels {
    sonde__op_kernel forward, relu, grad;
} sonde__kernel_batch_norm_kernels;

typedef struct sonde__kernel_softmax_kernels {
    sonde__op_kernel softmax, log_softmax, softmax_grad, log_softmax_grad;
    /* The functions that they use, for tests: y[i] = f(x[i]), count a multiple of 16. */
    void (*exp)(const float *x, float *y, size_t count);
    void (*log)(const float *x, float *y, size_t count);
} sonde__kernel_softmax_kernels;

/* Along the first axis. */
typedef struct sonde__kernel_softmax_batch_kernels {
    sonde__op_kernel softmax, log_softmax, softmax_grad, log_softmax_grad;
} sonde__kernel_softmax_batch_kernels;

typedef struct sonde__kernel_nll_kernels {
    sonde__op_kernel forward, grad;
} sonde__kernel_nll_kernels;

/* All sets of one instruction set. */
typedef struct sonde__kernel_lane_kernels {
    const sonde__kernel_conv2d_kernels *conv2d;
    const sonde__kernel_conv2d_grad_kernels *conv2d_grad;
    const sonde__kernel_conv2d_wide_kernels *conv2d_wide;
    const sonde__kernel_conv2d_wide_weight_kernels *conv2d_wide_weight;
    const sonde__kernel_conv2d_weight_kernels *conv2d_weight;
    const sonde__kernel_pool_kernels *pool;
    const sonde__kernel_group_norm_kernels *group_norm;
    const sonde__kernel_softmax_kernels *softmax;
    const sonde__kernel_nll_kernels *nll;
} sonde__kernel_lane_kernels;

/* For one instruction set, which the processor must have: for tests and benchmarks. */
SONDE_API const sonde__kernel_lane_kernels *sonde__kernel_lane_kernels_of(sonde__isa isa);

/* NULL-terminated lists for this processor, fastest first. */
SONDE_API const sonde__op_kernel *const *sonde__kernel_conv2d_fast(void);
const sonde__op_kernel *const *sonde__kernel_conv2d_relu_fast(void);
const sonde__op_kernel *const *sonde__kernel_conv2d_relu_pool_fast(void);
const sonde__op_kernel *const *sonde__kernel_conv2d_grad_input_fast(void);
const sonde__op_kernel *const *sonde__kernel_conv2d_grad_weight_fast(void);
SONDE_API const sonde__op_kernel *const *
sonde__kernel_channel_sum_fast(void); /* after the linear layer's */
const sonde__op_kernel *const *sonde__kernel_pool_relu_conv_grad_fast(void);
const sonde__op_kernel *const *sonde__kernel_max_pool2d_fast(void);
const sonde__op_kernel *const *sonde__kernel_max_pool2d_grad_fast(void);
const sonde__op_kernel *const *sonde__kernel_batch_norm_fast(void);
const sonde__op_kernel *const *sonde__kernel_batch_norm_relu_fast(void);
const sonde__op_kernel *const *sonde__kernel_batch_norm_grad_fast(void);
const sonde__op_kernel *const *sonde__kernel_group_norm_fast(void);
const sonde__op_kernel *const *sonde__kernel_group_norm_grad_fast(void);
const sonde__op_kernel *const *sonde__kernel_softmax_fast(void);
const sonde__op_kernel *const *sonde__kernel_log_softmax_fast(void);
const sonde__op_kernel *const *sonde__kernel_softmax_grad_fast(void);
const sonde__op_kernel *const *sonde__kernel_log_softmax_grad_fast(void);
const sonde__op_kernel *const *sonde__kernel_nll_fast(void);
SONDE_API const sonde__op_kernel *const *sonde__kernel_nll_grad_fast(void);

extern const sonde__kernel_conv2d_kernels sonde__kernel_conv2d_generic,
    sonde__kernel_conv2d_avx2, sonde__kernel_conv2d_avx512;
extern const sonde__kernel_conv2d_grad_kernels sonde__kernel_conv2d_grad_generic,
    sonde__kernel_conv2d_grad_avx2, sonde__kernel_conv2d_grad_avx512;
extern const sonde__kernel_conv2d_wide_kernels sonde__kernel_conv2d_wide_generic,
    sonde__kernel_conv2d_wide_avx2, sonde__kernel_conv2d_wide_avx512;
extern const sonde__kernel_conv2d_wide_weight_kernels
    sonde__kernel_conv2d_wide_weight_generic,
    sonde__kernel_conv2d_wide_weight_avx2, sonde__kernel_conv2d_wide_weight_avx512;
extern const sonde__kernel_conv2d_weight_kernels sonde__kernel_conv2d_weight_generic,
    sonde__kernel_conv2d_weight_avx2, sonde__kernel_conv2d_weight_avx512;
extern const sonde__kernel_pool_kernels sonde__kernel_pool_generic,
    sonde__kernel_pool_avx2, sonde__kernel_pool_avx512;
extern const sonde__kernel_group_norm_kernels sonde__kernel_group_norm_generic,
    sonde__kernel_group_norm_avx2, sonde__kernel_group_norm_avx512;
extern const sonde__kernel_batch_norm_kernels sonde__kernel_batch_norm_generic,
    sonde__kernel_batch_norm_avx2, sonde__kernel_batch_norm_avx512;
extern const sonde__kernel_softmax_kernels sonde__kernel_softmax_generic,
    sonde__kernel_softmax_avx2, sonde__kernel_softmax_avx512;
extern const sonde__kernel_softmax_batch_kernels sonde__kernel_softmax_batch_generic,
    sonde__kernel_softmax_batch_avx2, sonde__kernel_softmax_batch_avx512;
extern const sonde__kernel_nll_kernels sonde__kernel_nll_generic, sonde__kernel_nll_avx2,
    sonde__kernel_nll_avx512;

/* --- linear layers, element-wise ops, updates, reorders ----------------------------- */

SONDE_API const sonde__op_kernel *const *sonde__kernel_linear_fast(void);
const sonde__op_kernel *const *sonde__kernel_linear_relu_fast(void);
const sonde__op_kernel *const *sonde__kernel_linear_grad_input_fast(void);
const sonde__op_kernel *const *sonde__kernel_linear_grad_weight_fast(void);
const sonde__op_kernel *const *sonde__kernel_linear_grad_weight_sgd_fast(void);
const sonde__op_kernel *const *sonde__kernel_linear_channel_sum_fast(void);
const sonde__op_kernel *const *sonde__kernel_relu_fast(void);
const sonde__op_kernel *const *sonde__kernel_relu_grad_fast(void);
SONDE_API const sonde__op_kernel *const *sonde__kernel_add_fast(void);
const sonde__op_kernel *const *sonde__kernel_scale_fast(void);
const sonde__op_kernel *const *sonde__kernel_accumulate_fast(void);
const sonde__op_kernel *const *sonde__kernel_replica_sum_fast(void);
const sonde__op_kernel *const *sonde__kernel_sgd_fast(void);
const sonde__op_kernel *const *sonde__kernel_adam_fast(void);
const sonde__op_kernel *const *sonde__kernel_rmsprop_fast(void);
const sonde__op_kernel *const *sonde__kernel_adagrad_fast(void);
const sonde__op_kernel *const *sonde__kernel_lamb_fast(void);
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
    SONDE__FAST_REPLICA_SUM = 11,
    SONDE__FAST_SGD = 12,
    SONDE__FAST_ADAM = 13,
    SONDE__FAST_REORDER = 14,
    SONDE__FAST_RMSPROP = 15,
    SONDE__FAST_ADAGRAD = 16,
    SONDE__FAST_LAMB = 17
} sonde__kernel_fast_op;
enum { SONDE__FAST_OPS = 18 };

SONDE_API const sonde__op_kernel *const *
sonde__kernel_fast_kernels_of(sonde__isa isa, sonde__kernel_fast_op op);

#endif

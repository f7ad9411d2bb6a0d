/*
 * fast_conv.h - the kernels over LANES of convolution, pooling, group norm, softmax and
 * NLL, by instruction set, and their lists for the op table.
 *
 * Each set is a constant per ISA (sonde__kernel_conv2d_avx2 ...). The operands are those
 * of ops.h; where a call is declined (other dtypes, an axis 0) the reference serves.
 *
 * Conventions that ops.h leaves open:
 *   - conv2d_relu_pool and pool_relu_conv_grad take stride, padding, dilation and groups
 *     of the convolution from attrs; the pool is always 2 x 2 with stride 2, no padding.
 *   - An index is u8, row * window width + column; of equal numbers the first wins, of
 *     NaN the last, as in PyTorch.
 */
#ifndef SONDE_NN_KERNELS_FAST_CONV_H
#define SONDE_NN_KERNELS_FAST_CONV_H

#include "base/cpu.h"
#include "nn/ops/ops.h"

typedef struct sonde__kernel_conv2d_kernels {
    sonde__op_kernel forward, relu, relu_pool;
} sonde__kernel_conv2d_kernels;

typedef struct sonde__kernel_conv2d_grad_kernels {
    sonde__op_kernel input;
} sonde__kernel_conv2d_grad_kernels;

typedef struct sonde__kernel_conv2d_weight_kernels {
    sonde__op_kernel weight, channel_sum, pool_relu;
} sonde__kernel_conv2d_weight_kernels;

typedef struct sonde__kernel_pool_kernels {
    sonde__op_kernel forward, grad;
} sonde__kernel_pool_kernels;

typedef struct sonde__kernel_group_norm_kernels {
    sonde__op_kernel forward, grad;
} sonde__kernel_group_norm_kernels;

typedef struct sonde__kernel_softmax_kernels {
    sonde__op_kernel softmax, log_softmax, softmax_grad, log_softmax_grad;
    /* The functions that they use, for tests: to[i] = f(from[i]), count a multiple of 16.
     */
    void (*exp)(const float *from, float *to, size_t count);
    void (*log)(const float *from, float *to, size_t count);
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
    const sonde__kernel_conv2d_weight_kernels *conv2d_weight;
    const sonde__kernel_pool_kernels *pool;
    const sonde__kernel_group_norm_kernels *group_norm;
    const sonde__kernel_softmax_kernels *softmax;
    const sonde__kernel_nll_kernels *nll;
} sonde__kernel_lane_kernels;

#if defined(__GNUC__)
#pragma GCC visibility push(default) /* for tests, which link the shared library */
#endif

/* For one instruction set, which the processor must have: for tests and benchmarks. */
const sonde__kernel_lane_kernels *sonde__kernel_lane_kernels_of(sonde__isa isa);

/* NULL-terminated lists for this processor, fastest first. */
const sonde__op_kernel *const *sonde__kernel_conv2d_fast(void);
const sonde__op_kernel *const *sonde__kernel_conv2d_relu_fast(void);
const sonde__op_kernel *const *sonde__kernel_conv2d_relu_pool_fast(void);
const sonde__op_kernel *const *sonde__kernel_conv2d_grad_input_fast(void);
const sonde__op_kernel *const *sonde__kernel_conv2d_grad_weight_fast(void);
const sonde__op_kernel *const *
sonde__kernel_channel_sum_fast(void); /* after fast_linear.h's */
const sonde__op_kernel *const *sonde__kernel_pool_relu_conv_grad_fast(void);
const sonde__op_kernel *const *sonde__kernel_max_pool2d_fast(void);
const sonde__op_kernel *const *sonde__kernel_max_pool2d_grad_fast(void);
const sonde__op_kernel *const *sonde__kernel_group_norm_fast(void);
const sonde__op_kernel *const *sonde__kernel_group_norm_grad_fast(void);
const sonde__op_kernel *const *sonde__kernel_softmax_fast(void);
const sonde__op_kernel *const *sonde__kernel_log_softmax_fast(void);
const sonde__op_kernel *const *sonde__kernel_softmax_grad_fast(void);
const sonde__op_kernel *const *sonde__kernel_log_softmax_grad_fast(void);
const sonde__op_kernel *const *sonde__kernel_nll_fast(void);
const sonde__op_kernel *const *sonde__kernel_nll_grad_fast(void);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

extern const sonde__kernel_conv2d_kernels sonde__kernel_conv2d_generic,
    sonde__kernel_conv2d_avx2, sonde__kernel_conv2d_avx512;
extern const sonde__kernel_conv2d_grad_kernels sonde__kernel_conv2d_grad_generic,
    sonde__kernel_conv2d_grad_avx2, sonde__kernel_conv2d_grad_avx512;
extern const sonde__kernel_conv2d_weight_kernels sonde__kernel_conv2d_weight_generic,
    sonde__kernel_conv2d_weight_avx2, sonde__kernel_conv2d_weight_avx512;
extern const sonde__kernel_pool_kernels sonde__kernel_pool_generic,
    sonde__kernel_pool_avx2, sonde__kernel_pool_avx512;
extern const sonde__kernel_group_norm_kernels sonde__kernel_group_norm_generic,
    sonde__kernel_group_norm_avx2, sonde__kernel_group_norm_avx512;
extern const sonde__kernel_softmax_kernels sonde__kernel_softmax_generic,
    sonde__kernel_softmax_avx2, sonde__kernel_softmax_avx512;
extern const sonde__kernel_softmax_batch_kernels sonde__kernel_softmax_batch_generic,
    sonde__kernel_softmax_batch_avx2, sonde__kernel_softmax_batch_avx512;
extern const sonde__kernel_nll_kernels sonde__kernel_nll_generic, sonde__kernel_nll_avx2,
    sonde__kernel_nll_avx512;

#endif

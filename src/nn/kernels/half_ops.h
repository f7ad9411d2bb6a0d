/*
 * half_ops.h - the kernels of calls with bfloat16 or float16 operands, by op: arrays for
 * SONDE__HALF_KERNELS. All operands are PLAIN.
 *
 * half_products.c and half_conv.c have products, over half_gemm.h; half_norm.c batch
 * normalisation; half_pool.c max pooling; half_flat.c what goes element by element:
 * chunks become float32 in cache, the float32 kernel of the op takes them, and its result
 * is rounded as it is stored.
 */
#ifndef SONDE_NN_KERNELS_HALF_OPS_H
#define SONDE_NN_KERNELS_HALF_OPS_H

#include "nn/ops/ops.h"

extern const sonde__op_kernel *const sonde__kernel_linear_half[];
extern const sonde__op_kernel *const sonde__kernel_linear_relu_half[];
extern const sonde__op_kernel *const sonde__kernel_linear_grad_input_half[];
extern const sonde__op_kernel *const sonde__kernel_linear_grad_weight_half[];

extern const sonde__op_kernel *const sonde__kernel_conv2d_half[];
extern const sonde__op_kernel *const sonde__kernel_conv2d_relu_half[];
extern const sonde__op_kernel *const sonde__kernel_conv2d_grad_input_half[];
extern const sonde__op_kernel *const sonde__kernel_conv2d_grad_weight_half[];
extern const sonde__op_kernel *const sonde__kernel_conv_transpose2d_half[];

/* Before those of the same op: half_direct.c. */
extern const sonde__op_kernel sonde__kernel_conv2d_direct,
    sonde__kernel_grad_input_direct, sonde__kernel_grad_weight_direct;

extern const sonde__op_kernel *const sonde__kernel_max_pool2d_half[];
extern const sonde__op_kernel *const sonde__kernel_max_pool2d_grad_half[];

extern const sonde__op_kernel *const sonde__kernel_batch_norm_half[];
extern const sonde__op_kernel *const sonde__kernel_batch_norm_relu_half[];
extern const sonde__op_kernel *const sonde__kernel_batch_norm_grad_half[];

extern const sonde__op_kernel *const sonde__kernel_cast_half[];
extern const sonde__op_kernel *const sonde__kernel_relu_half[];
extern const sonde__op_kernel *const sonde__kernel_relu_grad_half[];
extern const sonde__op_kernel *const sonde__kernel_add_half[];
extern const sonde__op_kernel *const sonde__kernel_channel_sum_half[];
extern const sonde__op_kernel *const sonde__kernel_channel_add_half[];

#endif

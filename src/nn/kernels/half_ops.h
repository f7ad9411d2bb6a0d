/*
 * half_ops.h - the kernels of calls with bfloat16 or float16 operands, by op: arrays for
 * SONDE__HALF_KERNELS. All operands are PLAIN.
 *
 * half_products.c and half_conv.c have products, over half_gemm.h; norm_kernels.c batch
 * normalisation; half_pool.c max pooling; half_flat.c what goes element by element:
 * chunks become float32 in cache, the float32 kernel of the op takes them, and its result
 * is rounded as it is stored.
 */
#ifndef SONDE_NN_KERNELS_HALF_OPS_H
#define SONDE_NN_KERNELS_HALF_OPS_H

#include "nn/kernels/half_gemm.h"
#include "nn/kernels/call.h"

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

/* The list of an op that has one kernel. */
#define SONDE__HALF_KERNEL(op, takes, scratch_of, parts_of, runs)                        \
    const sonde__op_kernel *const sonde__kernel_##op##_half[] = {                        \
        &(const sonde__op_kernel){.name = "half",                                        \
                                  .accepts = takes,                                      \
                                  .scratch = scratch_of,                                 \
                                  .parts = parts_of,                                     \
                                  .run = runs},                                          \
        NULL};

/* Element i; NULL if there is no data. */
static inline void *half_at(const sonde__operand *operand, int64_t i)
{
    return operand->data == NULL ? NULL
                                 : (char *)operand->data +
                                       (size_t)i * sonde_dtype_size(operand->shape.dtype);
}

/* Elements from i on, to and from float32; stores nothing if there is no data. */
static inline void half_load(const sonde__operand *x, int64_t i, int64_t count,
                             float *into)
{
    sonde__kernel_half_widen(x->shape.dtype, half_at(x, i), count, into);
}

static inline void half_store(const float *from, int64_t count, const sonde__operand *y,
                              int64_t i)
{
    if (y->data != NULL) {
        sonde__kernel_half_narrow(from, count, y->shape.dtype, half_at(y, i));
    }
}

#endif

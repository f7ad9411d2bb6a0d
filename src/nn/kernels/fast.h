/*
 * fast.h - the fast kernels by op and instruction set.
 *
 * float32 only; the operands are those of ops.h. The reference serves declined calls
 * (other dtypes). A list is NULL-terminated, fastest first. The
 * kernels of one list differ in layouts: every one of them beats a reorder before the
 * first, so take the first that needs no reorder.
 *
 * Over LANES: convolution, pooling, batch and group norm, softmax and NLL.
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
 *   channel_sum                   dy LANES -> PLAIN; first the kernel of (N, C)
 *   relu, relu_grad, add, scale, accumulate, replica_sum: ANY layout, element-wise
 *   sgd, adam, rmsprop ...        PLAIN, with vital signs of gradient and weight
 *   reorder                       every pair of layouts
 */
#ifndef SONDE_NN_KERNELS_FAST_H
#define SONDE_NN_KERNELS_FAST_H

#include <sonde/export.h>

#include "base/cpu.h"
#include "nn/kernels/call.h"
#include "nn/kernels/gemm.h"

/*
 * Ops that have fast kernels: X(op, its number, its list).
 *
 *   ONE      the kernel sonde__kernel_OP
 *   WIDE     OP_wide, of many channels; OP
 *   ROWS     OP over LANES, along any axis but the first; OP_batch, along that; OP_rows,
 *            PLAIN along the last
 *   PLAIN    OP; OP_plain, of a plain x
 *   PANELS   OP_panels; OP; OP_plain
 *   SUMS     of (N, C); of any other
 */
#define SONDE__KERNEL_FAST_OPS(X)                                                        \
    X(conv2d, CONV2D, WIDE)                                                              \
    X(conv2d_relu, CONV2D_RELU, WIDE)                                                    \
    X(conv2d_relu_pool, CONV2D_RELU_POOL, ONE)                                           \
    X(conv2d_grad_input, CONV2D_GRAD_INPUT, WIDE)                                        \
    X(conv2d_grad_weight, CONV2D_GRAD_WEIGHT, WIDE)                                      \
    X(channel_sum, CHANNEL_SUM, SUMS)                                                    \
    X(pool_relu_conv_grad, POOL_RELU_CONV_GRAD, ONE)                                     \
    X(max_pool2d, MAX_POOL2D, ONE)                                                       \
    X(max_pool2d_grad, MAX_POOL2D_GRAD, ONE)                                             \
    X(batch_norm, BATCH_NORM, ONE)                                                       \
    X(batch_norm_relu, BATCH_NORM_RELU, ONE)                                             \
    X(batch_norm_grad, BATCH_NORM_GRAD, ONE)                                             \
    X(group_norm, GROUP_NORM, ONE)                                                       \
    X(group_norm_grad, GROUP_NORM_GRAD, ONE)                                             \
    X(softmax, SOFTMAX, ROWS)                                                            \
    X(log_softmax, LOG_SOFTMAX, ROWS)                                                    \
    X(softmax_grad, SOFTMAX_GRAD, ROWS)                                                  \
    X(log_softmax_grad, LOG_SOFTMAX_GRAD, ROWS)                                          \
    X(nll, NLL, ONE)                                                                     \
    X(nll_grad, NLL_GRAD, ONE)                                                           \
    X(linear, LINEAR, PLAIN)                                                             \
    X(linear_relu, LINEAR_RELU, PLAIN)                                                   \
    X(linear_grad_input, LINEAR_GRAD_INPUT, ONE)                                         \
    X(linear_grad_weight, LINEAR_GRAD_WEIGHT, PANELS)                                    \
    X(linear_grad_weight_sgd, LINEAR_GRAD_WEIGHT_SGD, PANELS)                            \
    X(relu, RELU, ONE)                                                                   \
    X(relu_grad, RELU_GRAD, ONE)                                                         \
    X(add, ADD, ONE)                                                                     \
    X(scale, SCALE, ONE)                                                                 \
    X(accumulate, ACCUMULATE, ONE)                                                       \
    X(replica_sum, REPLICA_SUM, ONE)                                                     \
    X(sgd, SGD, ONE)                                                                     \
    X(adam, ADAM, ONE)                                                                   \
    X(rmsprop, RMSPROP, ONE)                                                             \
    X(adagrad, ADAGRAD, ONE)                                                             \
    X(lamb, LAMB, ONE)                                                                   \
    X(reorder, REORDER, ONE)

#define SONDE__FAST_NUMBER(op, number, list) SONDE__FAST_##number,
typedef enum sonde__kernel_fast_op {
    SONDE__KERNEL_FAST_OPS(SONDE__FAST_NUMBER) SONDE__FAST_OPS
} sonde__kernel_fast_op;

/* sonde__kernel_OP_fast(): the list for this processor. */
#define SONDE__FAST_LIST(op, number, list)                                               \
    const sonde__op_kernel *const *sonde__kernel_##op##_fast(void);
SONDE__KERNEL_FAST_OPS(SONDE__FAST_LIST)

/* The list for an instruction set, which the processor must have: for tests. */
SONDE_API const sonde__op_kernel *const *
sonde__kernel_fast_kernels_of(sonde__isa isa, sonde__kernel_fast_op op);

/* The kernels. */
#define SONDE__KERNEL_FAST_KERNELS(X)                                                    \
    SONDE__KERNEL_FAST_OPS(X)                                                            \
    X(softmax_batch, , )                                                                 \
    X(log_softmax_batch, , )                                                             \
    X(softmax_grad_batch, , )                                                            \
    X(log_softmax_grad_batch, , )                                                        \
    X(conv2d_wide, , )                                                                   \
    X(conv2d_relu_wide, , )                                                              \
    X(conv2d_grad_input_wide, , )                                                        \
    X(conv2d_grad_weight_wide, , )                                                       \
    X(linear_plain, , )                                                                  \
    X(linear_relu_plain, , )                                                             \
    X(linear_grad_weight_panels, , )                                                     \
    X(linear_grad_weight_plain, , )                                                      \
    X(linear_grad_weight_sgd_panels, , )                                                 \
    X(linear_grad_weight_sgd_plain, , )                                                  \
    X(linear_channel_sum, , )

#define SONDE__FAST_KERNEL(name, number, list)                                           \
    extern const sonde__op_kernel sonde__kernel_##name##_generic,                        \
        sonde__kernel_##name##_avx2, sonde__kernel_##name##_avx512;
SONDE__KERNEL_FAST_KERNELS(SONDE__FAST_KERNEL)

/* Defines, in a kernel file, the kernel of an op for its instruction set: the name in dumps, the
 * calls it accepts, the layouts of operands in and out, in parentheses, its function, and what
 * other members are set. */
#define SONDE__ISA_LAYOUTS(...)                                                          \
    {                                                                                    \
        __VA_ARGS__                                                                      \
    }
#define SONDE__ISA_KERNEL(op, label, takes, ins, outs, runs, ...)                        \
    const sonde__op_kernel ISA(sonde__kernel_##op) = {.name = label,                     \
                                                      .accepts = takes,                  \
                                                      .in = SONDE__ISA_LAYOUTS ins,      \
                                                      .out = SONDE__ISA_LAYOUTS outs,    \
                                                      .run = runs,                       \
                                                      __VA_ARGS__};

/* --- bfloat16 and float16 ------------------------------------------------------------ */

/*
 * The kernels of calls with bfloat16 or float16 operands, by op: arrays for
 * SONDE__HALF_KERNELS. All operands are PLAIN.
 *
 * half_conv.c and half_direct.c have convolutions, over gemm.h. half_ops.c has the rest: products
 * of linear layers; max pooling; and what goes element by element: chunks become float32 in
 * cache, the float32 kernel of the op takes them, and its result is rounded as it is stored.
 */

/* sonde__kernel_OP_half: NULL-terminated, fastest first. */
#define SONDE__HALF_OPS(X)                                                               \
    X(linear)                                                                            \
    X(linear_relu)                                                                       \
    X(linear_grad_input)                                                                 \
    X(linear_grad_weight)                                                                \
    X(conv2d)                                                                            \
    X(conv2d_relu)                                                                       \
    X(conv2d_grad_input)                                                                 \
    X(conv2d_grad_weight)                                                                \
    X(conv_transpose2d)                                                                  \
    X(max_pool2d)                                                                        \
    X(max_pool2d_grad)                                                                   \
    X(batch_norm)                                                                        \
    X(batch_norm_relu)                                                                   \
    X(batch_norm_grad)                                                                   \
    X(cast)                                                                              \
    X(relu)                                                                              \
    X(relu_grad)                                                                         \
    X(add)                                                                               \
    X(channel_sum)                                                                       \
    X(channel_add)
#define SONDE__HALF_DECLARED(op)                                                         \
    extern const sonde__op_kernel *const sonde__kernel_##op##_half[];
SONDE__HALF_OPS(SONDE__HALF_DECLARED)

/* Before those of the same op: half_direct.c. */
extern const sonde__op_kernel sonde__kernel_conv2d_direct,
    sonde__kernel_grad_input_direct, sonde__kernel_grad_weight_direct;

/* Defines a list of kernels; a kernel of it. */
#define SONDE__HALF_LIST(op, ...)                                                        \
    const sonde__op_kernel *const sonde__kernel_##op##_half[] = {__VA_ARGS__, NULL};
#define SONDE__HALF_KERNEL(label, takes, scratch_of, parts_of, runs)                     \
    {                                                                                    \
        .name = label, .accepts = takes, .scratch = scratch_of, .parts = parts_of,       \
        .run = runs                                                                      \
    }

/* How many parts so many products are worth, at most `most` and max: those of float16 take as
 * long as those of float32; of bfloat16 a part pays later. */
static inline int half_parts(sonde_dtype half, double products, int64_t most, int max)
{
    const double grain = half == SONDE_BF16 ? 4e6 : 1e6;
    const double units = most < max ? (double)most : (double)max;
    const double parts = products / grain < units ? products / grain : units;

    return parts < 1.0 ? 1 : (int)parts;
}

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

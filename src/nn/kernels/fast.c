/*
 * fast.c - the choice among the instruction sets' kernels.
 */
#include "base/cpu.h"
#include "base/macros.h"
#include "nn/kernels/fast.h"
#include "nn/kernels/rows.h"
#include "nn/ops/common.h"

/* === over lanes ===================================================================== */

#define SETS(isa)                                                                        \
    {                                                                                    \
        &sonde__kernel_conv2d_##isa, &sonde__kernel_conv2d_grad_##isa,                   \
            &sonde__kernel_conv2d_wide_##isa, &sonde__kernel_conv2d_wide_weight_##isa,   \
            &sonde__kernel_conv2d_weight_##isa, &sonde__kernel_pool_##isa,               \
            &sonde__kernel_group_norm_##isa, &sonde__kernel_softmax_##isa,               \
            &sonde__kernel_nll_##isa                                                     \
    }

const sonde__kernel_lane_kernels *sonde__kernel_lane_kernels_of(sonde__isa isa)
{
    static const sonde__kernel_lane_kernels sets[] = {
        SETS(generic),
#if defined(__x86_64__)
        SETS(avx2),
        SETS(avx512),
#endif
    };

    return &sets[SONDE_MIN((size_t)isa, SONDE_COUNT_OF(sets) - 1)];
}

#if defined(__x86_64__)
#define LISTS(set, kernel)                                                               \
    {                                                                                    \
        {&sonde__kernel_##set##_generic.kernel, NULL},                                   \
            {&sonde__kernel_##set##_avx2.kernel, NULL},                                  \
        {                                                                                \
            &sonde__kernel_##set##_avx512.kernel, NULL                                   \
        }                                                                                \
    }
#else
#define LISTS(set, kernel)                                                               \
    {                                                                                    \
        {                                                                                \
            &sonde__kernel_##set##_generic.kernel, NULL                                  \
        }                                                                                \
    }
#endif

#define FAST(function, set, kernel)                                                      \
    const sonde__op_kernel *const *sonde__kernel_##function##_fast(void)                 \
    {                                                                                    \
        static const sonde__op_kernel *const lists[][2] = LISTS(set, kernel);            \
                                                                                         \
        return lists[sonde__cpu_isa()];                                                  \
    }

/* Kernels of many channels, then those of few. */
#define WIDE_FIRST(wide, set, kernel, isa)                                               \
    {                                                                                    \
        &sonde__kernel_##wide##_##isa.kernel, &sonde__kernel_##set##_##isa.kernel, NULL  \
    }
#if defined(__x86_64__)
#define WIDE_LISTS(wide, set, kernel)                                                    \
    {                                                                                    \
        WIDE_FIRST(wide, set, kernel, generic), WIDE_FIRST(wide, set, kernel, avx2),     \
            WIDE_FIRST(wide, set, kernel, avx512)                                        \
    }
#else
#define WIDE_LISTS(wide, set, kernel)                                                    \
    {                                                                                    \
        WIDE_FIRST(wide, set, kernel, generic)                                           \
    }
#endif
#define FAST_WIDE(function, wide, set, kernel)                                           \
    const sonde__op_kernel *const *sonde__kernel_##function##_fast(void)                 \
    {                                                                                    \
        static const sonde__op_kernel *const lists[][3] = WIDE_LISTS(wide, set, kernel); \
                                                                                         \
        return lists[sonde__cpu_isa()];                                                  \
    }

/* Over LANES, along any axis but the first, and along the first; PLAIN along the last. */
#if defined(__x86_64__)
#define PAIRS(kernel)                                                                    \
    {                                                                                    \
        {&sonde__kernel_softmax_generic.kernel,                                          \
         &sonde__kernel_softmax_batch_generic.kernel, &sonde__kernel_##kernel##_rows,    \
         NULL},                                                                          \
            {&sonde__kernel_softmax_avx2.kernel,                                         \
             &sonde__kernel_softmax_batch_avx2.kernel, &sonde__kernel_##kernel##_rows,   \
             NULL},                                                                      \
        {                                                                                \
            &sonde__kernel_softmax_avx512.kernel,                                        \
                &sonde__kernel_softmax_batch_avx512.kernel,                              \
                &sonde__kernel_##kernel##_rows, NULL                                     \
        }                                                                                \
    }
#else
#define PAIRS(kernel)                                                                    \
    {                                                                                    \
        {                                                                                \
            &sonde__kernel_softmax_generic.kernel,                                       \
                &sonde__kernel_softmax_batch_generic.kernel,                             \
                &sonde__kernel_##kernel##_rows, NULL                                     \
        }                                                                                \
    }
#endif

#define FAST_PAIR(function)                                                              \
    const sonde__op_kernel *const *sonde__kernel_##function##_fast(void)                 \
    {                                                                                    \
        static const sonde__op_kernel *const lists[][4] = PAIRS(function);               \
                                                                                         \
        return lists[sonde__cpu_isa()];                                                  \
    }

FAST_WIDE(conv2d, conv2d_wide, conv2d, forward)
FAST_WIDE(conv2d_relu, conv2d_wide, conv2d, relu)
FAST(conv2d_relu_pool, conv2d, relu_pool)
FAST_WIDE(conv2d_grad_input, conv2d_wide, conv2d_grad, input)
FAST_WIDE(conv2d_grad_weight, conv2d_wide_weight, conv2d_weight, weight)
FAST(pool_relu_conv_grad, conv2d_weight, pool_relu)
FAST(max_pool2d, pool, forward)
FAST(max_pool2d_grad, pool, grad)
FAST(batch_norm, batch_norm, forward)
FAST(batch_norm_relu, batch_norm, relu)
FAST(batch_norm_grad, batch_norm, grad)
FAST(group_norm, group_norm, forward)
FAST(group_norm_grad, group_norm, grad)
FAST_PAIR(softmax)
FAST_PAIR(log_softmax)
FAST_PAIR(softmax_grad)
FAST_PAIR(log_softmax_grad)
FAST(nll, nll, forward)
FAST(nll_grad, nll, grad)

const sonde__op_kernel *const *sonde__kernel_channel_sum_fast(void)
{
    static sonde__op_kernel_list list;
    const sonde__kernel_lane_kernels *const kernels =
        sonde__kernel_lane_kernels_of(sonde__cpu_isa());

    return sonde__op_list_kernels(&list, sonde__kernel_linear_channel_sum_fast,
                                  &kernels->conv2d_weight->channel_sum);
}

/* === linear layers, element-wise ops, updates, reorders ============================= */

#define LISTS_OF(isa)                                                                    \
    extern const sonde__op_kernel *const *const sonde__kernel_linear_lists_##isa[];      \
    extern const sonde__op_kernel *const *const sonde__kernel_elementwise_lists_##isa[]; \
    extern const sonde__op_kernel *const *const sonde__kernel_sgd_lists_##isa[];         \
    extern const sonde__op_kernel *const *const sonde__kernel_adam_lists_##isa[];        \
    extern const sonde__op_kernel *const *const sonde__kernel_reorder_lists_##isa[];     \
    extern const sonde__op_kernel *const *const sonde__kernel_adaptive_lists_##isa[];    \
                                                                                         \
    static const sonde__op_kernel *const *list_##isa(sonde__kernel_fast_op op)           \
    {                                                                                    \
        if (op < SONDE__FAST_RELU) {                                                     \
            return sonde__kernel_linear_lists_##isa[op];                                 \
        }                                                                                \
        if (op < SONDE__FAST_SGD) {                                                      \
            return sonde__kernel_elementwise_lists_##isa[op - SONDE__FAST_RELU];         \
        }                                                                                \
        if (op >= SONDE__FAST_RMSPROP) {                                                 \
            return sonde__kernel_adaptive_lists_##isa[op - SONDE__FAST_RMSPROP];         \
        }                                                                                \
        return op == SONDE__FAST_SGD    ? sonde__kernel_sgd_lists_##isa[0]               \
               : op == SONDE__FAST_ADAM ? sonde__kernel_adam_lists_##isa[0]              \
                                        : sonde__kernel_reorder_lists_##isa[0];          \
    }

LISTS_OF(generic)
#if defined(__x86_64__)
LISTS_OF(avx2)
LISTS_OF(avx512)
#endif

const sonde__op_kernel *const *sonde__kernel_fast_kernels_of(sonde__isa isa,
                                                             sonde__kernel_fast_op op)
{
#if defined(__x86_64__)
    if (isa == SONDE__AVX512) {
        return list_avx512(op);
    }
    if (isa == SONDE__AVX2) {
        return list_avx2(op);
    }
#endif
    (void)isa;
    return list_generic(op);
}

#define FAST_OP(function, op)                                                            \
    const sonde__op_kernel *const *sonde__kernel_##function##_fast(void)                 \
    {                                                                                    \
        return sonde__kernel_fast_kernels_of(sonde__cpu_isa(), SONDE__FAST_##op);        \
    }

FAST_OP(linear, LINEAR)
FAST_OP(linear_relu, LINEAR_RELU)
FAST_OP(linear_grad_input, LINEAR_GRAD_INPUT)
FAST_OP(linear_grad_weight, LINEAR_GRAD_WEIGHT)
FAST_OP(linear_grad_weight_sgd, LINEAR_GRAD_WEIGHT_SGD)
FAST_OP(linear_channel_sum, LINEAR_CHANNEL_SUM)
FAST_OP(relu, RELU)
FAST_OP(relu_grad, RELU_GRAD)
FAST_OP(add, ADD)
FAST_OP(scale, SCALE)
FAST_OP(accumulate, ACCUMULATE)
FAST_OP(replica_sum, REPLICA_SUM)
FAST_OP(sgd, SGD)
FAST_OP(adam, ADAM)
FAST_OP(reorder, REORDER)
FAST_OP(rmsprop, RMSPROP)
FAST_OP(adagrad, ADAGRAD)
FAST_OP(lamb, LAMB)

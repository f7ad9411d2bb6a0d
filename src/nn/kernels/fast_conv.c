/*
 * fast_conv.c - the choice among the instruction sets' kernels.
 */
#include "nn/ops/common.h"
#include "base/cpu.h"
#include "base/macros.h"
#include "nn/kernels/fast_conv.h"
#include "nn/kernels/fast_linear.h"

#define SETS(isa)                                                                        \
    {                                                                                    \
        &sonde__kernel_conv2d_##isa, &sonde__kernel_conv2d_grad_##isa,                   \
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

/* Along any axis but the first, and along the first. */
#if defined(__x86_64__)
#define PAIRS(kernel)                                                                    \
    {                                                                                    \
        {&sonde__kernel_softmax_generic.kernel,                                          \
         &sonde__kernel_softmax_batch_generic.kernel, NULL},                             \
            {&sonde__kernel_softmax_avx2.kernel,                                         \
             &sonde__kernel_softmax_batch_avx2.kernel, NULL},                            \
        {                                                                                \
            &sonde__kernel_softmax_avx512.kernel,                                        \
                &sonde__kernel_softmax_batch_avx512.kernel, NULL                         \
        }                                                                                \
    }
#else
#define PAIRS(kernel)                                                                    \
    {                                                                                    \
        {                                                                                \
            &sonde__kernel_softmax_generic.kernel,                                       \
                &sonde__kernel_softmax_batch_generic.kernel, NULL                        \
        }                                                                                \
    }
#endif

#define FAST_PAIR(function)                                                              \
    const sonde__op_kernel *const *sonde__kernel_##function##_fast(void)                 \
    {                                                                                    \
        static const sonde__op_kernel *const lists[][3] = PAIRS(function);               \
                                                                                         \
        return lists[sonde__cpu_isa()];                                                  \
    }

FAST(conv2d, conv2d, forward)
FAST(conv2d_relu, conv2d, relu)
FAST(conv2d_relu_pool, conv2d, relu_pool)
FAST(conv2d_grad_input, conv2d_grad, input)
FAST(conv2d_grad_weight, conv2d_weight, weight)
FAST(pool_relu_conv_grad, conv2d_weight, pool_relu)
FAST(max_pool2d, pool, forward)
FAST(max_pool2d_grad, pool, grad)
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

/*
 * fast_conv.c - which of the kernels compiled per instruction set the processor gets.
 */
#include "nn/ops/common.h"
#include "nn/ops/fast_conv.h"
#include "nn/ops/fast_linear.h"

#define SETS(isa)                                                                        \
    {                                                                                    \
        &sonde__conv2d_##isa, &sonde__conv2d_grad_##isa, &sonde__conv2d_weight_##isa,    \
            &sonde__pool_##isa, &sonde__group_norm_##isa, &sonde__softmax_##isa,         \
            &sonde__nll_##isa                                                            \
    }

const sonde__lane_kernels *sonde__lane_kernels_of(sonde__isa isa)
{
    static const sonde__lane_kernels sets[] = {
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
        {&sonde__##set##_generic.kernel, NULL}, {&sonde__##set##_avx2.kernel, NULL},     \
        {                                                                                \
            &sonde__##set##_avx512.kernel, NULL                                          \
        }                                                                                \
    }
#else
#define LISTS(set, kernel)                                                               \
    {                                                                                    \
        {                                                                                \
            &sonde__##set##_generic.kernel, NULL                                         \
        }                                                                                \
    }
#endif

#define FAST(function, set, kernel)                                                      \
    const sonde__kernel *const *sonde__##function##_fast(void)                           \
    {                                                                                    \
        static const sonde__kernel *const lists[][2] = LISTS(set, kernel);               \
                                                                                         \
        return lists[sonde__cpu_isa()];                                                  \
    }

/* Along any axis but the first, and along the first. */
#if defined(__x86_64__)
#define PAIRS(kernel)                                                                    \
    {                                                                                    \
        {&sonde__softmax_generic.kernel, &sonde__softmax_batch_generic.kernel, NULL},    \
            {&sonde__softmax_avx2.kernel, &sonde__softmax_batch_avx2.kernel, NULL},      \
        {                                                                                \
            &sonde__softmax_avx512.kernel, &sonde__softmax_batch_avx512.kernel, NULL     \
        }                                                                                \
    }
#else
#define PAIRS(kernel)                                                                    \
    {                                                                                    \
        {                                                                                \
            &sonde__softmax_generic.kernel, &sonde__softmax_batch_generic.kernel, NULL   \
        }                                                                                \
    }
#endif

#define FAST_PAIR(function)                                                              \
    const sonde__kernel *const *sonde__##function##_fast(void)                           \
    {                                                                                    \
        static const sonde__kernel *const lists[][3] = PAIRS(function);                  \
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

const sonde__kernel *const *sonde__channel_sum_fast(void)
{
    static sonde__kernel_list list;
    const sonde__lane_kernels *const kernels = sonde__lane_kernels_of(sonde__cpu_isa());

    return sonde__list_kernels(&list, sonde__linear_channel_sum_fast,
                               &kernels->conv2d_weight->channel_sum);
}

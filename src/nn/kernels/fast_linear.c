/*
 * fast_linear.c - the choice among the instruction sets' kernels.
 */
#include "nn/kernels/fast_linear.h"
#include "base/cpu.h"

#define LISTS(isa)                                                                       \
    extern const sonde__op_kernel *const *const sonde__kernel_linear_lists_##isa[];      \
    extern const sonde__op_kernel *const *const sonde__kernel_elementwise_lists_##isa[]; \
    extern const sonde__op_kernel *const *const sonde__kernel_sgd_lists_##isa[];         \
    extern const sonde__op_kernel *const *const sonde__kernel_adam_lists_##isa[];        \
    extern const sonde__op_kernel *const *const sonde__kernel_reorder_lists_##isa[];     \
                                                                                         \
    static const sonde__op_kernel *const *list_##isa(sonde__kernel_fast_op op)           \
    {                                                                                    \
        if (op < SONDE__FAST_RELU) {                                                     \
            return sonde__kernel_linear_lists_##isa[op];                                 \
        }                                                                                \
        if (op < SONDE__FAST_SGD) {                                                      \
            return sonde__kernel_elementwise_lists_##isa[op - SONDE__FAST_RELU];         \
        }                                                                                \
        return op == SONDE__FAST_SGD    ? sonde__kernel_sgd_lists_##isa[0]               \
               : op == SONDE__FAST_ADAM ? sonde__kernel_adam_lists_##isa[0]              \
                                        : sonde__kernel_reorder_lists_##isa[0];          \
    }

LISTS(generic)
#if defined(__x86_64__)
LISTS(avx2)
LISTS(avx512)
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

#define FAST(function, op)                                                               \
    const sonde__op_kernel *const *sonde__kernel_##function##_fast(void)                 \
    {                                                                                    \
        return sonde__kernel_fast_kernels_of(sonde__cpu_isa(), SONDE__FAST_##op);        \
    }

FAST(linear, LINEAR)
FAST(linear_relu, LINEAR_RELU)
FAST(linear_grad_input, LINEAR_GRAD_INPUT)
FAST(linear_grad_weight, LINEAR_GRAD_WEIGHT)
FAST(linear_grad_weight_sgd, LINEAR_GRAD_WEIGHT_SGD)
FAST(linear_channel_sum, LINEAR_CHANNEL_SUM)
FAST(relu, RELU)
FAST(relu_grad, RELU_GRAD)
FAST(add, ADD)
FAST(scale, SCALE)
FAST(accumulate, ACCUMULATE)
FAST(sgd, SGD)
FAST(adam, ADAM)
FAST(reorder, REORDER)

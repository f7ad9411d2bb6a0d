/*
 * half_norm.c - see half_norm.h: the choice of an instruction set, and the kernels' rows.
 */
#include "nn/kernels/half_norm.h"
#include "base/cpu.h"
#include "nn/kernels/half_ops.h"
#include "nn/kernels/stream_kernels.h"

static const sonde__kernel_half_norm_kernels *kernels_here(void)
{
#if defined(__x86_64__)
    const sonde__isa isa = sonde__cpu_isa();

    return isa == SONDE__AVX512 ? &sonde__kernel_half_norm_avx512
           : isa == SONDE__AVX2 ? &sonde__kernel_half_norm_avx2
                                : &sonde__kernel_half_norm_generic;
#else
    return &sonde__kernel_half_norm_generic;
#endif
}

static void forward(const sonde__op_call *call, int part, int parts)
{
    kernels_here()->forward(call, part, parts);
}

static void grad(const sonde__op_call *call, int part, int parts)
{
    kernels_here()->grad(call, part, parts);
}

/* x is of 16 bits and not empty. */
static bool takes_forward(const sonde__op_call *call)
{
    return sonde__op_is_half(call->in[0].shape.dtype) &&
           sonde__op_shape_count(&call->in[0].shape) > 0;
}

#define KERNEL(op, runs)                                                                 \
    const sonde__op_kernel *const sonde__kernel_##op##_half[] = {                        \
        &(const sonde__op_kernel){.name = "half",                                        \
                                  .accepts = takes_forward,                              \
                                  .parts = stream_parts,                                 \
                                  .run = runs},                                          \
        NULL};

KERNEL(batch_norm, forward)
KERNEL(batch_norm_relu, forward)
KERNEL(batch_norm_grad, grad)

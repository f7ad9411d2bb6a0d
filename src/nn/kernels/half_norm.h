/*
 * half_norm.h - batch normalisation and its gradient over PLAIN operands of bfloat16 or
 * float16: chunks become float32 in cache, as batch_norm_kernels.c has it over LANES.
 * Parameters and statistics are float32.
 */
#ifndef SONDE_NN_KERNELS_HALF_NORM_H
#define SONDE_NN_KERNELS_HALF_NORM_H

#include "nn/ops/ops.h"

typedef struct sonde__kernel_half_norm_kernels {
    sonde__op_kernel_fn forward; /* out[3], if there is one: the ReLU */
    sonde__op_kernel_fn grad;
} sonde__kernel_half_norm_kernels;

extern const sonde__kernel_half_norm_kernels sonde__kernel_half_norm_generic,
    sonde__kernel_half_norm_avx2, sonde__kernel_half_norm_avx512;

#endif

/*
 * conv2d_weight_avx512.c - conv2d_weight_kernels.h for AVX-512.
 */
#define ISA(name) name##_avx512

#include "nn/ops/conv2d_weight_kernels.h"

/*
 * conv2d_avx2.c - conv2d_kernels.h for AVX2 and FMA.
 */
#define ISA(name) name##_avx2

#include "nn/ops/conv2d_kernels.h"

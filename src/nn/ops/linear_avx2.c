/*
 * linear_avx2.c - linear_kernels.h for AVX2 and FMA.
 */
#define ISA(name) name##_avx2

#include "nn/ops/linear_kernels.h"

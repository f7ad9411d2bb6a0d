/*
 * elementwise_avx2.c - elementwise_kernels.h for AVX2 and FMA.
 */
#define ISA(name) name##_avx2

#include "nn/ops/elementwise_kernels.h"

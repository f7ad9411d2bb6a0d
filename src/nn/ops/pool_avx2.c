/*
 * pool_avx2.c - pool_kernels.h for AVX2 and FMA.
 */
#define ISA(name) name##_avx2

#include "nn/ops/pool_kernels.h"

/*
 * pool_avx512.c - pool_kernels.h for AVX-512.
 */
#define ISA(name) name##_avx512

#include "nn/ops/pool_kernels.h"

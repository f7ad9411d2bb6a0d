/*
 * nll_avx512.c - nll_kernels.h for AVX-512.
 */
#define ISA(name) name##_avx512

#include "nn/ops/nll_kernels.h"

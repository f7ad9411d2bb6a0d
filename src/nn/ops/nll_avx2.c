/*
 * nll_avx2.c - nll_kernels.h for AVX2 and FMA.
 */
#define ISA(name) name##_avx2

#include "nn/ops/nll_kernels.h"

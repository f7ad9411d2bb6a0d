/*
 * sgd_avx2.c - sgd_kernels.h for AVX2 and FMA.
 */
#define ISA(name) name##_avx2

#include "nn/ops/sgd_kernels.h"

/*
 * softmax_avx2.c - softmax_kernels.h for AVX2 and FMA.
 */
#define ISA(name) name##_avx2

#include "nn/ops/softmax_kernels.h"

/*
 * softmax_avx512.c - softmax_kernels.h for AVX-512.
 */
#define ISA(name) name##_avx512

#include "nn/ops/softmax_kernels.h"

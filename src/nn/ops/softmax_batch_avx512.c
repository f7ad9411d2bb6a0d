/*
 * softmax_batch_avx512.c - softmax_batch_kernels.h for AVX-512.
 */
#define ISA(name) name##_avx512

#include "nn/ops/softmax_batch_kernels.h"

/*
 * softmax_batch_avx2.c - softmax_batch_kernels.h for AVX2.
 */
#define ISA(name) name##_avx2

#include "nn/ops/softmax_batch_kernels.h"

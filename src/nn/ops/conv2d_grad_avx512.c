/*
 * conv2d_grad_avx512.c - conv2d_grad_kernels.h for AVX-512.
 */
#define ISA(name) name##_avx512

#include "nn/ops/conv2d_grad_kernels.h"

/*
 * elementwise_avx512.c - elementwise_kernels.h for AVX-512 (F, BW, DQ, VL).
 */
#define ISA(name) name##_avx512

#include "nn/ops/elementwise_kernels.h"

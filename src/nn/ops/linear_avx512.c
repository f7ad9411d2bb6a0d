/*
 * linear_avx512.c - linear_kernels.h for AVX-512 (F, BW, DQ, VL).
 */
#define ISA(name) name##_avx512

#include "nn/ops/linear_kernels.h"

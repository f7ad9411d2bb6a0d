/*
 * sgd_avx512.c - sgd_kernels.h for AVX-512 (F, BW, DQ, VL).
 */
#define ISA(name) name##_avx512

#include "nn/ops/sgd_kernels.h"

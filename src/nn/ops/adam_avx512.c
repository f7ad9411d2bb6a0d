/*
 * adam_avx512.c - adam_kernels.h for AVX-512 (F, BW, DQ, VL).
 */
#define ISA(name) name##_avx512

#include "nn/ops/adam_kernels.h"

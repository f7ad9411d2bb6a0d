/*
 * reorder_avx512.c - reorder_kernels.h for AVX-512 (F, BW, DQ, VL).
 */
#define ISA(name) name##_avx512

#include "nn/ops/reorder_kernels.h"

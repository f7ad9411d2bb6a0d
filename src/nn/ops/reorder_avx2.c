/*
 * reorder_avx2.c - reorder_kernels.h for AVX2 and FMA.
 */
#define ISA(name) name##_avx2

#include "nn/ops/reorder_kernels.h"

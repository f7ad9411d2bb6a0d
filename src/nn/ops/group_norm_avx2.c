/*
 * group_norm_avx2.c - group_norm_kernels.h for AVX2 and FMA.
 */
#define ISA(name) name##_avx2

#include "nn/ops/group_norm_kernels.h"

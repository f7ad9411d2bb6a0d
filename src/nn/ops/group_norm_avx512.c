/*
 * group_norm_avx512.c - group_norm_kernels.h for AVX-512.
 */
#define ISA(name) name##_avx512

#include "nn/ops/group_norm_kernels.h"

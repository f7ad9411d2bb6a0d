/*
 * adam_avx2.c - adam_kernels.h for AVX2 and FMA.
 */
#define ISA(name) name##_avx2

#include "nn/ops/adam_kernels.h"

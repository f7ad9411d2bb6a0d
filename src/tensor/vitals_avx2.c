/*
 * vitals_avx2.c - the kernels of vital signs in AVX2 with FMA and F16C.
 */
#define SONDE__KERNELS sonde__vitals_avx2

#include "tensor/vitals_kernels.h"

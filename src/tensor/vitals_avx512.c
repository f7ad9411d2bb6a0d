/*
 * vitals_avx512.c - the kernels of vital signs in AVX-512 (F, BW, DQ, VL).
 */
#define SONDE__KERNELS sonde__vitals_avx512

#include "tensor/vitals_kernels.h"

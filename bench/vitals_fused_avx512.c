/*
 * vitals_fused_avx512.c - the loops of vitals_fused.h for one instruction set.
 */
#define FUSED_KERNELS fused_avx512

#include "vitals_fused_kernels.h"

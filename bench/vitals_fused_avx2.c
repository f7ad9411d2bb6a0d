/*
 * vitals_fused_avx2.c - the loops of vitals_fused.h for one instruction set.
 */
#define FUSED_KERNELS fused_avx2

#include "vitals_fused_kernels.h"

/*
 * vitals_fused_generic.c - the loops of vitals_fused.h for one instruction set.
 */
#define FUSED_KERNELS fused_generic

#include "vitals_fused_kernels.h"

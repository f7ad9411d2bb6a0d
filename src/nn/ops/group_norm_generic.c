/*
 * group_norm_generic.c - group_norm_kernels.h for every processor.
 */
#define ISA(name) name##_generic

#include "nn/ops/group_norm_kernels.h"

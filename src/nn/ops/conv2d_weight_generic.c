/*
 * conv2d_weight_generic.c - conv2d_weight_kernels.h for every processor.
 */
#define ISA(name) name##_generic

#include "nn/ops/conv2d_weight_kernels.h"

/*
 * conv2d_generic.c - conv2d_kernels.h for every processor.
 */
#define ISA(name) name##_generic

#include "nn/ops/conv2d_kernels.h"

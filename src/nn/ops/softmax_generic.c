/*
 * softmax_generic.c - softmax_kernels.h for every processor.
 */
#define ISA(name) name##_generic

#include "nn/ops/softmax_kernels.h"

/*
 * softmax_batch_generic.c - softmax_batch_kernels.h for any processor.
 */
#define ISA(name) name##_generic

#include "nn/ops/softmax_batch_kernels.h"

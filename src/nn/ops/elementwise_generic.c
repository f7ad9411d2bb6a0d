/*
 * elementwise_generic.c - elementwise_kernels.h for any processor.
 */
#define ISA(name) name##_generic

#include "nn/ops/elementwise_kernels.h"

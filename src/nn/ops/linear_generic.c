/*
 * linear_generic.c - linear_kernels.h for any processor.
 */
#define ISA(name) name##_generic

#include "nn/ops/linear_kernels.h"

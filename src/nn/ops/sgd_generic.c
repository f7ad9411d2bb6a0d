/*
 * sgd_generic.c - sgd_kernels.h for any processor.
 */
#define ISA(name) name##_generic

#include "nn/ops/sgd_kernels.h"

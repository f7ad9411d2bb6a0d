/*
 * nll_generic.c - nll_kernels.h for every processor.
 */
#define ISA(name) name##_generic

#include "nn/ops/nll_kernels.h"

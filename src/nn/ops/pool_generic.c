/*
 * pool_generic.c - pool_kernels.h for every processor.
 */
#define ISA(name) name##_generic

#include "nn/ops/pool_kernels.h"

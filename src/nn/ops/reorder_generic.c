/*
 * reorder_generic.c - reorder_kernels.h for any processor.
 */
#define ISA(name) name##_generic

#include "nn/ops/reorder_kernels.h"

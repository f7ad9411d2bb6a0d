/*
 * adam_generic.c - adam_kernels.h for any processor.
 */
#define ISA(name) name##_generic

#include "nn/ops/adam_kernels.h"

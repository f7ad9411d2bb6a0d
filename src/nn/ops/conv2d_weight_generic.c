/* conv2d_weight_generic.c - conv2d_weight_kernels.h for every processor. */
#define LANES_ISA generic
#include "nn/ops/conv2d_weight_kernels.h"

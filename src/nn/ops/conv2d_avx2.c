/* conv2d_avx2.c - conv2d_kernels.h for AVX2. */
#define LANES_ISA avx2
#include "nn/ops/conv2d_kernels.h"

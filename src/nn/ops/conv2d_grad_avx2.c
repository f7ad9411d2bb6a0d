/* conv2d_grad_avx2.c - conv2d_grad_kernels.h for AVX2. */
#define LANES_ISA avx2
#include "nn/ops/conv2d_grad_kernels.h"

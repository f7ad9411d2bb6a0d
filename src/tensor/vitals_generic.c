/*
 * vitals_generic.c - the kernels of vital signs in plain C.
 */
#define SONDE__KERNELS sonde__vitals_generic

#include "tensor/vitals_kernels.h"

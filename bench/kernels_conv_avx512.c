/*
 * kernels_conv_avx512.c - see kernels_conv_peak.h.
 */
#define PEAK_FUNCTION peak_avx512
#include "kernels_conv_peak.h"

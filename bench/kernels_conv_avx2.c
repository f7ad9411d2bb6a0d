/*
 * kernels_conv_avx2.c - see kernels_conv_peak.h.
 */
#define PEAK_FUNCTION peak_avx2
#include "kernels_conv_peak.h"

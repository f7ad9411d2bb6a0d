/*
 * kernels_conv_generic.c - see kernels_conv_peak.h.
 */
#define PEAK_FUNCTION peak_generic
#include "kernels_conv_peak.h"

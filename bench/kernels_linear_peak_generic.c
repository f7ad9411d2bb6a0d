/*
 * kernels_linear_peak_generic.c - see kernels_linear_peak.h.
 */
#define PEAK bench_peak_generic

#include "kernels_linear_peak.h"

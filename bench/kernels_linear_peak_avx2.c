/*
 * kernels_linear_peak_avx2.c - see kernels_linear_peak.h.
 */
#define PEAK bench_peak_avx2

#include "kernels_linear_peak.h"

/*
 * kernels_linear_peak_avx512.c - see kernels_linear_peak.h.
 */
#define PEAK bench_peak_avx512

#include "kernels_linear_peak.h"

/*
 * kernels_conv_peak.h - multiply-adds as fast as one core does them.
 */
#ifndef BENCH_KERNELS_CONV_PEAK_H
#define BENCH_KERNELS_CONV_PEAK_H

/* GF/s of one core over about ten microseconds. */
double peak_generic(void);
double peak_avx2(void);
double peak_avx512(void);

#endif

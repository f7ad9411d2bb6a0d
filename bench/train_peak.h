/*
 * train_peak.h - the most that one core computes: products and sums in registers, nothing
 * else; train_peak_<isa>.c compile train_peak_kernels.h for each instruction set.
 */
#ifndef SONDE_BENCH_TRAIN_PEAK_H
#define SONDE_BENCH_TRAIN_PEAK_H

#include <stdint.h>

/* Runs `rounds` rounds of fused multiply-adds and returns the floating-point operations
 * done, two for each. *sum takes a value that depends on all of them. */
typedef double train_peak_fn(int64_t rounds, float *sum);

extern train_peak_fn train_peak_generic;
extern train_peak_fn train_peak_avx2;
extern train_peak_fn train_peak_avx512;

#endif

/*
 * kernels_linear.h - what the parts of bench_kernels_linear share: the machine's peak,
 * timing, operands, and a second thread that spins for work.
 */
#ifndef SONDE_BENCH_KERNELS_LINEAR_H
#define SONDE_BENCH_KERNELS_LINEAR_H

#include "nn/kernels/fast.h"
#include "nn/ops/ops.h"

extern const char *bench_filter;
extern double bench_peak; /* GF/s of one core */

/* Whether a line is to be measured. */
bool bench_wanted(const char *text);
void bench_measure_peak(void);
/* GF/s of multiply-adds in registers, once (kernels_linear_peak.h). */
double bench_peak_generic(void);
double bench_peak_avx2(void);
double bench_peak_avx512(void);

/* The second thread. Between the two, calls of two parts run on it too. */
bool bench_team_begin(void);
bool bench_team_end(void);

/* --- timing: the second percentile of many runs ------------------------------------- */

enum { MOST_RUNS = 1000 };

typedef struct timing {
    double begun, times[MOST_RUNS];
    size_t count;
} timing;

void timing_begin(timing *t);
bool timing_goes_on(const timing *t);
void timing_add(timing *t, double seconds);
double timing_end(timing *t);

/* --- calls -------------------------------------------------------------------------- */

/* count random numbers in [-0.5, 0.5). */
float *floats(int64_t count);
sonde__operand matrix(int64_t rows, int64_t cols, sonde__op_layout layout);

typedef struct job {
    const sonde__op_kernel *kernel;
    sonde__op_call call;
    double flops, bytes;
} job;

void add_scratch(job *j);
/* Seconds of a run of all jobs, one after the other. */
double time_jobs(const job *jobs, int count, int threads);

/* Whole training steps (kernels_linear_net.c). */
void bench_nets(void);

#endif

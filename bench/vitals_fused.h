/*
 * vitals_fused.h - an optimizer's loop with and without vital signs in it, as an engine
 * would write it; vitals_fused_<isa>.c compile vitals_fused_kernels.h for each
 * instruction set.
 */
#ifndef SONDE_BENCH_VITALS_FUSED_H
#define SONDE_BENCH_VITALS_FUSED_H

#include <sonde/stats.h>

/* SGD with momentum over n weights, gradients and momenta: m = 0.9 m + g; w -= 0.01 m. */
typedef struct fused_kernels {
    void (*read)(const float *x, size_t n, float *sum);
    void (*plain)(float *w, float *m, const float *g, size_t n);
    /* The same, with the vital signs of the new weights and of the gradients, in
     * registers. */
    void (*fused)(float *w, float *m, const float *g, size_t n, sonde_vitals vitals[2]);
    /* The same, a block at a time: update, then add up what lies in L1. */
    void (*blocked)(float *w, float *m, const float *g, size_t n, sonde_vitals vitals[2]);
    /* Only the vital signs of x, one register after the other. */
    void (*registers)(const float *x, size_t n, sonde_vitals *vitals);
} fused_kernels;

extern const fused_kernels fused_generic;
extern const fused_kernels fused_avx2;
extern const fused_kernels fused_avx512;

#endif

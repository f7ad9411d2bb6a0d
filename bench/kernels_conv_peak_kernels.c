/*
 * kernels_conv_peak_kernels.c - see kernels_conv_peak.h.
 */
#include "base/isa.h"
#include "kernels_conv_peak.h"
#include "base/clock.h"
#include "nn/kernels/vec.h"

double ISA(peak)(void)
{
    enum { ROUNDS = 4000, SUMS = 12 };
    vf sum[SUMS], x = {0}, y = {0};
    const double start = sonde__now();

    VEC_UNROLL
    for (int i = 0; i < SUMS; i++) { /* unknown, and each another */
        sum[i] = vf_rounded(y);
    }
    x = vf_rounded(x);
    y = vf_rounded(y);
    for (int round = 0; round < ROUNDS; round++) {
        VEC_UNROLL
        for (int i = 0; i < SUMS; i++) {
            sum[i] = vf_fma(sum[i], x, y);
        }
    }
    VEC_UNROLL
    for (int i = 1; i < SUMS; i++) {
        sum[0] += sum[i];
    }
    __asm__ volatile("" : : "x"(sum[0]));
    return 2.0 * SUMS * ROUNDS * VF_WIDTH / (sonde__now() - start) * 1e-9;
}

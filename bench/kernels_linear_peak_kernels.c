/*
 * kernels_linear_peak.h - the most multiply-adds that this instruction set does in a
 * second, as a loop in registers. Included by one file per instruction set, which defines
 * ISA(bench_peak).
 */
#include "base/isa.h"
#include "base/clock.h"
#include "kernels_linear.h"

#include "nn/kernels/vec.h"

#define LIVE(x) __asm__ volatile("" : : "m"(x))

double ISA(bench_peak)(void)
{
    enum { ROUNDS = 200000, CHAINS = 12 };
    float seed[VF_WIDTH] = {0.0F};
    vf sum[CHAINS], x, y;
    double start = 0.0;

    __asm__ volatile("" : "+m"(seed)); /* unknown from here on */
    x = y = vf_load(seed);
    for (int j = 0; j < CHAINS; j++) {
        sum[j] = vf_load(seed) + vf_set1((float)j);
    }
    start = sonde__now();
    for (int i = 0; i < ROUNDS; i++) {
        VEC_UNROLL
        for (int j = 0; j < CHAINS; j++) {
            sum[j] = vf_fma(sum[j], x, y);
        }
        x = vf_rounded(x);
    }
    start = sonde__now() - start;
    for (int j = 0; j < CHAINS; j++) {
        LIVE(sum[j]);
    }
    return 2.0 * CHAINS * ROUNDS * VF_WIDTH / start / 1e9;
}

/*
 * train_peak_kernels.h - the loop of train_peak.h; the includer defines ISA(train_peak).
 *
 * A fused multiply-add takes four cycles and two may begin in each, so eight independent
 * chains would do; there are more, to hide the loop, and no more than there are
 * registers.
 */
#include "base/isa.h"
#include "train_peak.h"

#include "nn/kernels/vec.h"

/* An operand that lies in a vector register. */
#if defined(__AVX512F__)
#define PEAK_REGISTER "+v"
#elif defined(__x86_64__)
#define PEAK_REGISTER "+x"
#else
#define PEAK_REGISTER "+w"
#endif

enum { CHAINS = VF_WIDTH == 16 ? 24 : 12 };

double ISA(train_peak)(int64_t rounds, float *sum)
{
    const vf scale = vf_set1(0.999F), more = vf_set1(0.001F);
    vf chain[CHAINS], all = vf_set1(0.0F);

    VEC_UNROLL
    for (int c = 0; c < CHAINS; c++) {
        chain[c] = vf_set1(1.0F + (float)c);
    }
    for (int64_t r = 0; r < rounds; r++) {
        VEC_UNROLL
        for (int c = 0; c < CHAINS; c++) {
            chain[c] = vf_fma(chain[c], scale, more);
            __asm__(
                ""
                : PEAK_REGISTER(chain[c])); /* nothing is computed ahead, or left out */
        }
    }
    VEC_UNROLL
    for (int c = 0; c < CHAINS; c++) {
        all += chain[c];
    }
    for (int i = 0; i < VF_WIDTH; i++) {
        *sum += all[i];
    }
    return (double)rounds * CHAINS * VF_WIDTH * 2.0;
}

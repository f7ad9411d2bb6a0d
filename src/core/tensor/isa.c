/*
 * isa.c - checks the instruction set, and chooses its kernels of vital signs.
 */
#include "base/cpu.h"
#include "tensor/vitals.h"

#include <sonde/stats.h>

sonde_err sonde_isa_check(sonde_diag *diag)
{
    return sonde__cpu_isa_check(diag);
}

const sonde__vitals_kernels *sonde__vitals_kernels_of(sonde__isa isa)
{
#if defined(__x86_64__)
    if (isa == SONDE__AVX512) {
        return &sonde__vitals_avx512;
    }
    if (isa == SONDE__AVX2) {
        return &sonde__vitals_avx2;
    }
#endif
    (void)isa;
    return &sonde__vitals_generic;
}

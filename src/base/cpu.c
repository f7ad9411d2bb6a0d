/*
 * cpu.c - which instruction set the kernels use.
 *
 * SONDE_ISA=generic|avx2|avx512 caps the choice; it never asks for what the processor
 * lacks.
 */
#include "base/cpu.h"
#include "base/fail.h"
#include "base/macros.h"

#include <stdbool.h>
#include <stddef.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const char *const isa_names[] = {"generic", "avx2", "avx512"};

#if defined(__x86_64__)
/* By hand: clang's __builtin_cpu_supports learnt this word only later. */
static bool has_f16c(void)
{
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;

    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

static int detect(void)
{
    int best = SONDE__GENERIC;
    const char *cap = getenv("SONDE_ISA");

#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c()) {
        best = SONDE__AVX2;
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
            best = SONDE__AVX512;
        }
    }
#endif
    for (int i = 0; cap != NULL && i < best; i++) {
        if (strcmp(cap, isa_names[i]) == 0) {
            best = i;
        }
    }
    return best;
}

sonde__isa sonde__cpu_isa(void)
{
    static atomic_int found = -1; /* any thread may find it; all find the same */
    int isa = atomic_load_explicit(&found, memory_order_relaxed);

    if (isa < 0) {
        isa = detect();
        atomic_store_explicit(&found, isa, memory_order_relaxed);
    }
    return (sonde__isa)isa;
}

const char *sonde__isa_name(void)
{
    return isa_names[sonde__cpu_isa()];
}

sonde_err sonde__cpu_isa_check(sonde_diag *diag)
{
    const char *cap = getenv("SONDE_ISA");

    for (size_t i = 0; i < SONDE_COUNT_OF(isa_names); i++) {
        if (cap == NULL || cap[0] == '\0' || strcmp(cap, isa_names[i]) == 0) {
            return SONDE_OK;
        }
    }
    return sonde__fail(diag, SONDE_EINVAL, "SONDE_ISA", "generic, avx2 or avx512", "'%s'",
                       cap);
}

int sonde__cpu_count(void)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

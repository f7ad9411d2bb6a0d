/*
 * cpu.h - the instruction set and the number of processors. Internal.
 */
#ifndef SONDE_BASE_CPU_H
#define SONDE_BASE_CPU_H

#include <sonde/error.h>

typedef enum sonde__isa {
    SONDE__GENERIC = 0,
    SONDE__AVX2 = 1,
    SONDE__AVX512 = 2
} sonde__isa;
/* NAME_generic, NAME_avx2 or NAME_avx512, as base/isa.h makes them; "&name": their addresses. */
#if defined(__x86_64__)
#define SONDE__OF_ISA(isa, name)                                                         \
    ((isa) == SONDE__AVX512 ? name##_avx512                                              \
     : (isa) == SONDE__AVX2 ? name##_avx2                                                \
                            : name##_generic)
#else
#define SONDE__OF_ISA(isa, name) ((void)(isa), name##_generic)
#endif
/* The best that the processor supports and SONDE_ISA allows; determined once. */
SONDE_API sonde__isa sonde__cpu_isa(void);
SONDE_API const char *sonde__isa_name(void); /* "generic", "avx2", "avx512" */
/* What multiplies bfloat16 matrices: float32 instructions, vdpbf16ps, or the tiles of AMX. */
typedef enum sonde__half {
    SONDE__HALF_BY_FLOAT = 0,
    SONDE__HALF_AVX512 = 1,
    SONDE__HALF_AMX = 2
} sonde__half;
/* The best that the processor supports and SONDE_ISA allows; determined once. The first
 * call asks Linux for the use of AMX, for all threads of the process. */
SONDE_API sonde__half sonde__cpu_half(void);
SONDE_API const char *
sonde__half_name(void); /* "float32 units", "avx512_bf16", "amx_bf16" */
/* SONDE_EINVAL: SONDE_ISA names no instruction set. */
SONDE_API SONDE_CHECKED sonde_err sonde__cpu_isa_check(sonde_diag *diag);
/* Processors this process may use, at least 1: those of its affinity mask, or fewer if a
 * cgroup (version 1 or 2) limits its processor time. */
SONDE_API int sonde__cpu_count(void);
/* For tests. The limit of a cgroup and its parents below a mount, in processors, rounded
 * up; 0: none. group: "/a/b". */
SONDE_API int sonde__cpu_quota(const char *mount, const char *group);

#endif

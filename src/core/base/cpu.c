/*
 * cpu.c - which instruction set the kernels use.
 *
 * SONDE_ISA=generic|avx2|avx512|avx512_bf16|amx_bf16 caps the choice; it never asks for
 * what the processor lacks. The last two differ from avx512 in products of bfloat16.
 */
#include "base/cpu.h"
#include "base/fail.h"
#include "base/macros.h"

#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

static const char *const isa_names[] = {"generic", "avx2", "avx512", "avx512_bf16",
                                        "amx_bf16"};
static const char *const half_names[] = {"float32 units", "avx512_bf16", "amx_bf16"};

#if defined(__x86_64__)
/* By hand: clang's __builtin_cpu_supports learnt this word only later. */
static bool has_f16c(void)
{
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;

    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

/* best, or what SONDE_ISA names if that is less. */
static int capped(int best)
{
    const char *cap = getenv("SONDE_ISA");

    for (int i = 0; cap != NULL && i < best; i++) {
        if (strcmp(cap, isa_names[i]) == 0) {
            return i;
        }
    }
    return best;
}

static int detect(void)
{
    int best = SONDE__GENERIC;

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
    return capped(best);
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

#if defined(__x86_64__)
/* Whether Linux saves the tiles of this process's threads: it must be asked. It refuses
 * where a thread's alternate stack for signals is too small for them. */
static bool may_use_tiles(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };

    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

static int detect_half(void)
{
    enum { AVX512_BF16 = 1U << 5, AMX_BF16 = 1U << 22, AMX_TILE = 1U << 24 };
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    int best = SONDE__AVX512;

    if (sonde__cpu_isa() != SONDE__AVX512 ||
        __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) == 0 ||
        (eax & AVX512_BF16) == 0) {
        return SONDE__HALF_BY_FLOAT;
    }
    best += SONDE__HALF_AVX512;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & AMX_BF16) != 0 &&
        (edx & AMX_TILE) != 0) {
        best++;
    }
    best = capped(best) - SONDE__AVX512;
    return best == SONDE__HALF_AMX && !may_use_tiles() ? SONDE__HALF_AVX512 : best;
}
#else
static int detect_half(void)
{
    return SONDE__HALF_BY_FLOAT;
}
#endif

sonde__half sonde__cpu_half(void)
{
    static atomic_int found = -1; /* any thread may find it; all find the same */
    int half = atomic_load_explicit(&found, memory_order_relaxed);

    if (half < 0) {
        half = detect_half();
        atomic_store_explicit(&found, half, memory_order_relaxed);
    }
    return (sonde__half)half;
}

const char *sonde__half_name(void)
{
    return half_names[sonde__cpu_half()];
}

sonde_err sonde__cpu_isa_check(sonde_diag *diag)
{
    const char *cap = getenv("SONDE_ISA");

    for (size_t i = 0; i < SONDE_COUNT_OF(isa_names); i++) {
        if (cap == NULL || cap[0] == '\0' || strcmp(cap, isa_names[i]) == 0) {
            return SONDE_OK;
        }
    }
    return sonde__fail(diag, SONDE_EINVAL, "SONDE_ISA",
                       "generic, avx2, avx512, avx512_bf16 or amx_bf16", "'%s'", cap);
}

/* === processors ===================================================================== */

enum { PATH = 4096 };

/* Reads up to `most` (1 or 2) numbers of a file, up to the first other word ("max"). */
static int read_numbers(const char *folder, const char *name, int most, long long *number)
{
    char path[PATH], text[64], *end = NULL;
    const char *next = text;
    int count = 0;

    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) {
        return 0;
    }
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return 0;
    }
    if (fgets(text, sizeof text, file) == NULL) {
        text[0] = '\0';
    }
    (void)fclose(file);
    while (count < most) {
        number[count] = strtoll(next, &end, 10);
        if (end == next) {
            break;
        }
        next = end;
        count++;
    }
    return count;
}

/* The limit of one folder of cgroups; 0: none. */
static int folder_quota(const char *folder)
{
    long long limit[2] = {0}; /* microseconds of work, in so many */

    if (read_numbers(folder, "cpu.max", 2, limit) < 2 &&
        (read_numbers(folder, "cpu.cfs_quota_us", 1, limit) < 1 ||
         read_numbers(folder, "cpu.cfs_period_us", 1, &limit[1]) < 1)) {
        return 0;
    }
    if (limit[0] <= 0 || limit[1] <= 0 || limit[0] / limit[1] >= INT_MAX) {
        return 0;
    }
    return (int)((limit[0] - 1) / limit[1]) + 1;
}

int sonde__cpu_quota(const char *mount, const char *group)
{
    char folder[PATH];
    const size_t root = strlen(mount);
    int least = 0;

    if (snprintf(folder, sizeof folder, "%s%s", mount, group) >= (int)sizeof folder) {
        return 0;
    }
    for (;;) {
        const int quota = folder_quota(folder);
        char *end = strrchr(folder, '/');

        least = quota > 0 && (least == 0 || quota < least) ? quota : least;
        if (strlen(folder) <= root || end == NULL || end < folder + root) {
            return least;
        }
        *end = '\0';
    }
}

/* The limit of this process's cgroups: lines "0::/group" and "4:cpu,cpuacct:/group". */
static int own_quota(void)
{
    char line[PATH];
    FILE *file = fopen("/proc/self/cgroup", "re");
    int least = 0;

    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *controllers = strchr(line, ':');
        char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        const bool second = group == controllers + 1;
        int quota = 0;

        if (group == NULL || (!second && strstr(controllers, "cpu") == NULL)) {
            continue;
        }
        group++;
        group[strcspn(group, "\n")] = '\0';
        quota = sonde__cpu_quota(second ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu", group);
        least = quota > 0 && (least == 0 || quota < least) ? quota : least;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return least;
}

int sonde__cpu_count(void)
{
    const int quota = own_quota();
    cpu_set_t set;
    int count = 1;

    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        count = CPU_COUNT(&set);
    }
    return quota > 0 && quota < count ? quota : count;
}

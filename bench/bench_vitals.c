/*
 * bench_vitals.c - the cost of observation: vital signs against reading, in memory and
 * in L2, fused into the loop of an optimizer, and the sketch.
 *
 * Prints name,value,unit,limit per line; limit is empty if there is none. Each figure is
 * the best of several runs, with the reference measured in between. n of the fused rows
 * is a multiple of 16.
 */
#include "vitals_fused.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/random.h"

#include <sonde/sketch.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { RUNS = 9, LARGE = 16 << 20, SMALL = 64 << 10 };

static const fused_kernels *kernels(void)
{
#if defined(__x86_64__)
    if (sonde__cpu_isa() == SONDE__AVX512) {
        return &fused_avx512;
    }
    if (sonde__cpu_isa() == SONDE__AVX2) {
        return &fused_avx2;
    }
#endif
    return &fused_generic;
}

static void row(const char *name, double value, const char *unit, const char *limit)
{
    (void)printf("%s,%.4g,%s,%s\n", name, value, unit, limit);
}

/* One thing to time. */
typedef struct job {
    const float *x;
    float *w, *m;
    size_t n;
    sonde_view view;
    sonde_vitals vitals[2];
    sonde_sketch sketch;
    float sum;
} job;

typedef void job_fn(job *j);

static void do_read(job *j)
{
    kernels()->read(j->x, j->n, &j->sum);
}
static void do_vitals(job *j)
{
    sonde_vitals_of(&j->view, &j->vitals[0]);
}
static void do_registers(job *j)
{
    kernels()->registers(j->x, j->n, &j->vitals[0]);
}
static void do_sketch(job *j)
{
    sonde_sketch_add(&j->sketch, &j->view);
}
static void do_plain(job *j)
{
    kernels()->plain(j->w, j->m, j->x, j->n);
}
static void do_fused(job *j)
{
    kernels()->fused(j->w, j->m, j->x, j->n, j->vitals);
}
static void do_blocked(job *j)
{
    kernels()->blocked(j->w, j->m, j->x, j->n, j->vitals);
}

/* Seconds of one call, the best of RUNS, for each of several jobs taken in turn. */
static void time_all(job_fn *const *jobs, size_t count, job *j, int repeat, double *best)
{
    for (size_t k = 0; k < count; k++) {
        best[k] = 1e9;
    }
    for (int run = 0; run < RUNS; run++) {
        for (size_t k = 0; k < count; k++) {
            double seconds = -sonde__now();

            for (int r = 0; r < repeat; r++) {
                jobs[k](j);
            }
            seconds = (seconds + sonde__now()) / repeat;
            best[k] = SONDE_MIN(best[k], seconds);
        }
    }
}

/* Memory on huge pages if the system gives them: the same for every figure. */
static void *memory(size_t size)
{
    void *block = sonde__malloc_aligned((size_t)2 << 20, size);

    if (block != NULL) {
        (void)madvise(block, size, MADV_HUGEPAGE);
        memset(block, 0, size);
    }
    return block;
}

static void of_floats(const char *where, float *x, size_t n, int repeat, bool large)
{
    static job_fn *const jobs[] = {do_read, do_vitals, do_sketch};
    const int64_t shape = (int64_t)n;
    static job j;
    double best[3];
    char name[64];
    const double bytes = (double)n * 4.0;

    j = (job){.x = x, .n = n, .view = sonde_view_of(SONDE_F32, 1, &shape, x)};
    time_all(jobs, 3, &j, repeat, best);
    (void)snprintf(name, sizeof name, "read_%s", where);
    row(name, bytes / best[0] * 1e-9, "GB/s", "");
    (void)snprintf(name, sizeof name, "vitals_%s", where);
    row(name, bytes / best[1] * 1e-9, "GB/s", large ? "" : ">=20");
    (void)snprintf(name, sizeof name, "vitals_over_read_%s", where);
    row(name, best[0] / best[1], "ratio", large ? ">=0.6" : "");
    (void)snprintf(name, sizeof name, "sketch_%s", where);
    row(name, best[2] / (double)n * 1e9, "ns/element", "");
    (void)snprintf(name, sizeof name, "sketch_over_vitals_%s", where);
    row(name, best[2] / best[1], "ratio", "");
}

static void of_dtypes(void *data, size_t bytes)
{
    static const sonde_dtype dtypes[] = {SONDE_F64, SONDE_F16, SONDE_BF16, SONDE_I32,
                                         SONDE_U8};
    static job_fn *const jobs[] = {do_vitals};
    static job j;

    for (size_t d = 0; d < SONDE_COUNT_OF(dtypes); d++) {
        const size_t n = bytes / sonde_dtype_size(dtypes[d]);
        const int64_t shape = (int64_t)n;
        double best = 0.0;
        char name[64];

        for (size_t i = 0; i < n; i++) {
            sonde_element_set(dtypes[d],
                              (unsigned char *)data + i * sonde_dtype_size(dtypes[d]),
                              (double)sonde__normal(1, 0, i) * 50.0);
        }
        j = (job){.view = sonde_view_of(dtypes[d], 1, &shape, data)};
        time_all(jobs, 1, &j, 50, &best);
        (void)snprintf(name, sizeof name, "vitals_%s_256KB", sonde_dtype_name(dtypes[d]));
        row(name, (double)bytes / best * 1e-9, "GB/s", "");
    }
}

/* Ones plus a little: the variance asks for a second pass over each block. */
static void of_large_means(float *x, size_t n)
{
    static job_fn *const jobs[] = {do_vitals};
    const int64_t shape = (int64_t)n;
    static job j;
    double best = 0.0;

    for (size_t i = 0; i < n; i++) {
        x[i] = 1.0F + 1e-3F * sonde__normal(1, 0, i);
    }
    j = (job){.view = sonde_view_of(SONDE_F32, 1, &shape, x)};
    time_all(jobs, 1, &j, 100, &best);
    row("vitals_large_mean_256KB", (double)n * 4.0 / best * 1e-9, "GB/s", "");
    x[5] = 1.0F / 0.0F;
    for (size_t i = 0; i < n; i += 4096) {
        x[i] = x[5];
    }
    time_all(jobs, 1, &j, 20, &best);
    row("vitals_infinities_256KB", (double)n * 4.0 / best * 1e-9, "GB/s", "");
}

/* What vital signs of weights and gradients add to an update of n weights. */
static void of_updates(const char *where, float *x, float *w, float *m, size_t n,
                       int repeat)
{
    static job_fn *const jobs[] = {do_plain, do_fused, do_blocked, do_registers};
    const double vectors = (double)n / 16.0;
    static job j;
    double best[4];
    char name[64];

    j = (job){.x = x, .w = w, .m = m, .n = n};
    time_all(jobs, 4, &j, repeat, best);
    (void)snprintf(name, sizeof name, "update_%s", where);
    row(name, best[0] / vectors * 1e9, "ns/vector", "");
    (void)snprintf(name, sizeof name, "fused_adds_%s", where);
    row(name, (best[1] - best[0]) / vectors / 2.0 * 1e9, "ns/vector", "<=1.2");
    (void)snprintf(name, sizeof name, "blocked_adds_%s", where);
    row(name, (best[2] - best[0]) / vectors / 2.0 * 1e9, "ns/vector", "");
    (void)snprintf(name, sizeof name, "accumulators_alone_%s", where);
    row(name, best[3] / vectors * 1e9, "ns/vector", "");
}

static void fill(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = sonde__normal(7, 0, i % 65536 + i / 65536);
    }
}

int main(void)
{
    float *x = memory((size_t)LARGE * 4), *w = memory(SMALL * 16),
          *m = memory(SMALL * 16);

    if (x == NULL || w == NULL || m == NULL) {
        (void)fprintf(stderr, "bench_vitals: out of memory\n");
        return 1;
    }
    (void)printf("name,value,unit,limit\n");
    fill(x, LARGE);
    of_floats("64MB", x, LARGE, 1, true);
    of_floats("4MB", x, (size_t)1 << 20, 10, false);
    of_floats("256KB", x, SMALL, 100, false);
    of_floats("4KB", x, 1024, 10000, false);
    of_updates("64k_weights", x, w, m, SMALL, 100);
    of_updates("200k_weights", x, w, m, 200000, 30);
    of_large_means(w, SMALL);
    of_dtypes(w, 256 << 10);
    sonde__free(x);
    sonde__free(w);
    sonde__free(m);
    return 0;
}

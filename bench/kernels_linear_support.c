/*
 * kernels_linear_support.c - see kernels_linear.h.
 */
#include "kernels_linear.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/memory.h"
#include "base/random.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

const char *bench_filter;
double bench_peak;

bool bench_wanted(const char *text)
{
    return bench_filter == NULL || strstr(text, bench_filter) != NULL;
}

/* --- peak --------------------------------------------------------------------------- */

void bench_measure_peak(void)
{
    double (*const loops[])(void) = {
        bench_peak_generic,
#if defined(__x86_64__)
        bench_peak_avx2,
        bench_peak_avx512,
#endif
    };

    for (int i = 0; i < 20; i++) {
        const double now = loops[sonde__cpu_isa()]();

        bench_peak = now > bench_peak ? now : bench_peak;
    }
}

/* --- a second thread that spins for work ------------------------------------------ */

static struct {
    atomic_uint ordered, done; /* counts of calls */
    atomic_bool stop;
    const sonde__op_kernel *kernel;
    const sonde__op_call *call;
} team;

static void *team_main(void *unused)
{
    unsigned seen = 0;

    (void)unused;
    while (!atomic_load_explicit(&team.stop, memory_order_relaxed)) {
        if (atomic_load_explicit(&team.ordered, memory_order_acquire) !=
            seen) { /* order */
            seen++;
            team.kernel->run(team.call, 1, 2);
            atomic_store_explicit(&team.done, seen, memory_order_release); /* run_call */
        }
    }
    return NULL;
}

static pthread_t second;

bool bench_team_begin(void)
{
    return pthread_create(&second, NULL, team_main, NULL) == 0;
}

bool bench_team_end(void)
{
    atomic_store_explicit(&team.stop, true, memory_order_relaxed);
    return pthread_join(second, NULL) == 0;
}

static void run_call(const sonde__op_kernel *kernel, const sonde__op_call *call,
                     int threads)
{
    if (threads == 1 || kernel->parts == NULL || kernel->parts(call, 2) == 1) {
        kernel->run(call, 0, 1);
        return;
    }
    team.kernel = kernel;
    team.call = call;
    const unsigned turn =
        atomic_fetch_add_explicit(&team.ordered, 1, memory_order_release) + 1;

    kernel->run(call, 0, 2);
    while (atomic_load_explicit(&team.done, memory_order_acquire) != turn) {
    }
}

/* --- timing ------------------------------------------------------------------------- */

void timing_begin(timing *t)
{
    t->begun = sonde__now();
    t->count = 0;
}

bool timing_goes_on(const timing *t)
{
    return t->count < 50 || (t->count < MOST_RUNS && sonde__now() - t->begun < 0.6);
}

void timing_add(timing *t, double seconds)
{
    t->times[t->count++] = seconds;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

double timing_end(timing *t)
{
    qsort(t->times, t->count, sizeof *t->times, compare);
    return t->times[t->count / 50];
}

/* --- calls ------------------------------------------------------------------------ */

float *floats(int64_t count)
{
    float *data = sonde__malloc_aligned(64, (size_t)(count + 16) * sizeof *data);

    if (data == NULL) {
        abort();
    }
    for (int64_t i = 0; i < count; i++) {
        data[i] = sonde__uniform(1, 2, (uint64_t)i) - 0.5F;
    }
    return data;
}

sonde__operand matrix(int64_t rows, int64_t cols, sonde__op_layout layout)
{
    sonde__operand o = {{SONDE_F32, 2, {rows, cols}}, layout, NULL};

    o.data = floats(sonde__op_layout_count(&o.shape, layout));
    return o;
}

void add_scratch(job *j)
{
    const size_t bytes = j->kernel->scratch == NULL ? 0 : j->kernel->scratch(&j->call, 2);

    j->call.scratch = bytes == 0 ? NULL : floats((int64_t)(bytes / sizeof(float)));
}

/* Seconds of a run of all jobs, one after the other. */
double time_jobs(const job *jobs, int count, int threads)
{
    timing t;

    timing_begin(&t);
    while (timing_goes_on(&t)) {
        const double start = sonde__now();

        for (int i = 0; i < count; i++) {
            run_call(jobs[i].kernel, &jobs[i].call, threads);
        }
        timing_add(&t, sonde__now() - start);
    }
    return timing_end(&t);
}

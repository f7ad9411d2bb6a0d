/*
 * bench_threads.c - what explicit threads cost where processors are not free.
 *
 *     bench_threads [seconds]     of each measurement; 2 if not given
 *
 * Trains the built-in networks with one thread and with 2, 4 and 8, on the machine as it
 * is (idle) and beside a competitor for each processor (busy). Turns with one thread and
 * with several alternate. Rows: the time of several over the time of one; the worst of
 * each condition has a limit.
 */
#include "support.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "base/macros.h"
#include "base/memory.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TURNS = 9, NAME = 96 };

/* --- competitors ---------------------------------------------------------------------- */

static pid_t *start_competitors(int count)
{
    pid_t *processes = bench_alloc((size_t)count * sizeof *processes);

    for (int i = 0; i < count; i++) {
        processes[i] = fork();
        if (processes[i] == 0) {
            for (volatile unsigned spins = 0;; spins++) {
                if (getppid() == 1) { /* the benchmark is gone */
                    _exit(0);
                }
            }
        }
        if (processes[i] < 0) {
            perror("bench_threads: fork");
            exit(2);
        }
    }
    return processes;
}

static void stop_competitors(pid_t *processes, int count)
{
    for (int i = 0; i < count; i++) {
        (void)kill(processes[i], SIGKILL);
        (void)waitpid(processes[i], NULL, 0);
    }
    sonde__free(processes);
}

/* --- measuring ------------------------------------------------------------------------ */

/* Seconds a step over about so many seconds. */
static double measure(bench_network *net, const bench_batches *batches, double seconds)
{
    const double started = sonde__now();
    int64_t steps = 0;

    do {
        bench_network_step(net, batches, steps++);
    } while (sonde__now() - started < seconds);
    return (sonde__now() - started) / (double)steps;
}

/* The time of a step with so many threads over that with one: the median of turns, each
 * beside the turns of one thread before and after it, so that other programs which come
 * and go count little. */
static double ratio(const char *job, const bench_batches *batches, int threads,
                    double seconds)
{
    bench_network one, several;
    double ratios[TURNS], before = 0.0;

    bench_network_make(&one, job, 1, NULL);
    bench_network_make(&several, job, threads, NULL);
    before = measure(&one, batches, seconds / TURNS);
    for (int i = 0; i < TURNS; i++) {
        const double spent = measure(&several, batches, seconds / TURNS);
        const double after = measure(&one, batches, seconds / TURNS);

        ratios[i] = 2.0 * spent / (before + after);
        before = after;
    }
    bench_network_free(&one);
    bench_network_free(&several);
    return bench_quantile(ratios, TURNS, 0.5);
}

static void measure_condition(const char *condition, double seconds)
{
    static const char *const jobs[] = {"fashion_cnn", "mnist_mlp_small", "mnist_mlp"};
    static const int threads[] = {2, 4, 8};
    double worst = 0.0;
    char name[NAME];

    for (size_t i = 0; i < SONDE_COUNT_OF(jobs); i++) {
        bench_batches batches;

        bench_batches_make(&batches, jobs[i], 4096, true);
        for (size_t k = 0; k < SONDE_COUNT_OF(threads); k++) {
            const double over_one = ratio(jobs[i], &batches, threads[k], seconds);

            worst = fmax(worst, over_one);
            (void)snprintf(name, sizeof name, "threads_%s_%s_%d_over_1", condition,
                           jobs[i], threads[k]);
            bench_row(name, over_one, "ratio", "");
        }
        bench_batches_free(&batches);
    }
    (void)snprintf(name, sizeof name, "threads_%s_worst_over_1", condition);
    bench_row(name, worst, "ratio", "<=1.3");
}

int main(int argc, char **argv)
{
    const double seconds = argc > 1 ? atof(argv[1]) : 2.0;
    const int processors = sonde__cpu_count();
    pid_t *competitors = NULL;

    if (!(seconds > 0.0)) {
        (void)fprintf(stderr, "usage: bench_threads [seconds]\n");
        return 2;
    }
    bench_header();
    measure_condition("idle", seconds);
    competitors = start_competitors(processors);
    measure_condition("busy", seconds);
    stop_competitors(competitors, processors);
    return 0;
}

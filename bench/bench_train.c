/*
 * bench_train.c - the cost of a training step against the limit of the processor, and
 * what observation adds to it.
 *
 *     bench_train [--job fashion_cnn] [--threads 1] [--seconds 5] [--bare]
 *
 * Several sessions of one job, which differ in their taps, take turns in blocks of a few
 * hundredths of a second, with a loop of multiply-adds in registers in between, so that
 * other load affects all of them alike. Rows, after the job and the threads:
 *
 *     peak                 of one core, in this process: the fast decile of all blocks
 *     step, step_p10       median and fast decile of the bare step, without taps
 *     over_floor           step_p10 over the time of its operations at the peak, counted as two per
 *                          multiply-add, forward and backward, without the gradient of the first
 *                          layer's input
 *     over_floor_median    the same of medians
 *     arena_over_live      bytes of the arena over the most that are alive at once
 *     noise                a second bare session over the first, minus 1
 *     not_due, ...         each tap's step over the bare one of the same round, minus 1; the median
 *                          of all rounds
 *
 * Times are of ten consecutive steps, because some taps are due at every tenth. The time
 * of a block is the lower quartile of its tens. There are many different batches: a
 * network that repeats one batch grows denormal momenta, which real training does not
 * have.
 *
 * --bare measures only the bare step, for a comparison of two builds.
 */
#include "support.h"
#include "train_peak.h"

#include "base/cpu.h"
#include "base/macros.h"
#include "base/memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sonde/error.h>

enum {
    TEN = 10,        /* steps that are timed together */
    SAMPLES = 16384, /* different ones */
    MOST_ROUNDS = 4000,
    MOST_TENS = 64 /* of a block */
};

static const double BLOCK_SECONDS = 0.02;

/* --- the jobs and the taps -------------------------------------------------------- */

/* Limits of the floor and, on one thread, of taps at every step; "" where none is set. */
typedef struct bar {
    const char *job;
    double flops; /* a step, see above */
    const char *floor, *tenth, *vitals, *all, *norms, *all_norms;
} bar;

static const bar bars[] = {
    {"fashion_cnn", 23.04e6, "<=1.5", "<=0.02", "<=0.11", "<=0.43", "<=0.04", "<=0.16"},
    {"mnist_mlp", 1201.5e6, "<=1.2", "<=0.005", "<=0.012", "<=0.05", "<=0.006",
     "<=0.025"},
    {"mnist_mlp_small", 32.2e6, "", "", "<=0.22", "<=0.36", "<=0.08", "<=0.15"},
};

typedef struct mode {
    const char *name, *selector; /* selector NULL: no tap */
    int64_t interval, start;
    unsigned how;
} mode;

static const mode modes[] = {
    {"bare", NULL, 0, 0, 0},
    {"noise", NULL, 0, 0, 0},
    {"not_due", "@all", 1, INT64_MAX / 2, SONDE_HOW_RAW | SONDE_HOW_VITALS},
    {"bad_gradients", "@gradient", 1, INT64_MAX / 2, SONDE_HOW_VITALS},
    {"vitals_every_10th", "@gradient,@update", 10, 0, SONDE_HOW_VITALS},
    {"vitals_every_step", "@gradient,@update", 1, 0, SONDE_HOW_VITALS},
    {"vitals_of_weights_before", "@gradient,@weight,@bias", 1, 0, SONDE_HOW_VITALS},
    {"norms_every_step", "@gradient,@update", 1, 0, SONDE_HOW_NORMS},
    {"norms_of_all_every_step", "@all", 1, 0, SONDE_HOW_NORMS},
    {"raw_of_all_every_step", "@all", 1, 0, SONDE_HOW_RAW},
    {"vitals_of_all_every_step", "@all", 1, 0, SONDE_HOW_VITALS},
};
enum { BARE = 0, MODES = SONDE_COUNT_OF(modes) };

/* Seconds: this thread's own, or the wall's. */
static double now_of(bool own)
{
    struct timespec now;

    (void)clock_gettime(own ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* --- the peak --------------------------------------------------------------------- */

static double peak_rate(double seconds)
{
    static const int64_t ROUNDS = 20000;
    const sonde__isa isa = sonde__cpu_isa();
    train_peak_fn *peak = train_peak_generic;
    double flops = 0.0, start = 0.0, now = 0.0;
    float sum = 0.0F;

#if defined(__x86_64__)
    peak = isa == SONDE__AVX512 ? train_peak_avx512
           : isa == SONDE__AVX2 ? train_peak_avx2
                                : train_peak_generic;
#else
    (void)isa;
#endif
    start = now_of(true);
    do {
        flops += peak(ROUNDS, &sum);
        now = now_of(true);
    } while (now - start < seconds);
    return isfinite(sum) ? flops / (now - start) : 0.0;
}

static void *peak_thread(void *argument)
{
    *(double *)argument = peak_rate(0.1);
    return NULL;
}

/* Of several cores at once: the best of a few tries. */
static double peak_together(int threads)
{
    enum { MOST = 64 };
    double best = 0.0;

    threads = SONDE_MIN(threads, (int)MOST);
    for (int attempt = 0; attempt < 3; attempt++) {
        pthread_t thread[MOST];
        double rate[MOST] = {0}, sum = 0.0;
        int started = 0;

        while (started < threads &&
               pthread_create(&thread[started], NULL, peak_thread, &rate[started]) == 0) {
            started++;
        }
        for (int i = 0; i < started; i++) {
            (void)pthread_join(thread[i], NULL);
            sum += rate[i];
        }
        best = SONDE_MAX(best, sum);
    }
    return best;
}

/* --- measuring -------------------------------------------------------------------- */

/* One session and its times. */
typedef struct lane {
    const mode *mode;
    bench_network net;
    int64_t steps; /* done */
    double *tens;  /* seconds a step, of every ten of every block */
    double *walls; /* likewise, by the wall */
    double *blocks;
} lane;

typedef struct bench {
    const bar *bar;
    int threads;
    double seconds;
    const char *only; /* the one mode beside the bare one; or NULL */
    bench_batches batches;
    lane lanes[MODES];
    size_t lane_count;
    double *peaks;
    size_t rounds, tens; /* of all, of a block */
} bench;

static void run_steps(bench *run, lane *track, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        bench_network_step(&track->net, &run->batches, track->steps++);
    }
}

/* Seconds a step; *wall (may be NULL) likewise. */
static double time_ten(bench *run, lane *track, double *wall)
{
    const bool own = run->threads == 1;
    const double start = now_of(own), wall_start = now_of(false);

    run_steps(run, track, TEN);
    if (wall != NULL) {
        *wall = (now_of(false) - wall_start) / TEN;
    }
    return (now_of(own) - start) / TEN;
}

/* Brings the session back into the caches, then times its tens. */
static void run_block(bench *run, lane *track, size_t round)
{
    double *tens = track->tens + round * run->tens, sorted[MOST_TENS];

    run_steps(run, track, 3);
    for (size_t i = 0; i < run->tens; i++) {
        tens[i] = time_ten(run, track, &track->walls[round * run->tens + i]);
    }
    memcpy(sorted, tens, run->tens * sizeof *tens);
    track->blocks[round] = bench_quantile(sorted, run->tens, 0.25);
}

static void open_lane(bench *run, lane *track, const mode *which)
{
    bench_tap tap = {.selector = which->selector,
                     .how = which->how,
                     .when_bad = strcmp(which->name, "bad_gradients") == 0};

    tap.when.every = which->interval;
    tap.when.start = which->start;
    tap.when.end = which->start > 0 ? SONDE_SCHEDULE_NEVER : 0;
    track->mode = which;
    bench_network_make(&track->net, run->bar->job, run->threads,
                       which->selector != NULL ? &tap : NULL);
    run_steps(run, track, TEN);
}

/* From the bare step's time: how much makes a block and how many blocks fit. */
static void choose_sizes(bench *run)
{
    const double first = time_ten(run, &run->lanes[BARE], NULL);
    const double ten = TEN * SONDE_MIN(first, time_ten(run, &run->lanes[BARE], NULL));
    const double tens = fmin(fmax(ceil(BLOCK_SECONDS / ten), 1.0), MOST_TENS);
    const double block = (tens + 0.3) * ten, turn = block * (double)run->lane_count;

    run->tens = (size_t)tens;
    run->rounds = (size_t)fmin(fmax(run->seconds / turn, 5.0), MOST_ROUNDS);
    run->peaks = bench_alloc(run->rounds * sizeof *run->peaks);
    for (size_t i = 0; i < run->lane_count; i++) {
        run->lanes[i].tens = bench_alloc(run->rounds * run->tens * sizeof(double));
        run->lanes[i].walls = bench_alloc(run->rounds * run->tens * sizeof(double));
        run->lanes[i].blocks = bench_alloc(run->rounds * sizeof(double));
    }
}

static void measure(bench *run)
{
    for (size_t round = 0; round < run->rounds; round++) {
        run->peaks[round] = peak_rate(0.002);
        for (size_t i = 0; i < run->lane_count; i++) {
            const size_t k = round % 2 == 0 ? i : run->lane_count - 1 - i;

            run_block(run, &run->lanes[k], round);
        }
    }
}

/* --- results ---------------------------------------------------------------------- */

static void row(const bench *run, const char *what, double value, const char *unit,
                const char *limit)
{
    char name[96];

    (void)snprintf(name, sizeof name, "%s_%dt_%s", run->bar->job, run->threads, what);
    bench_row(name, value, unit, limit);
}

static void report_step(bench *run)
{
    lane *bare = &run->lanes[BARE];
    const size_t count = run->rounds * run->tens;
    const double peak = bench_quantile(run->peaks, run->rounds, 0.9);
    const double peak_median = bench_quantile(run->peaks, run->rounds, 0.5);
    const double step = bench_quantile(bare->tens, count, 0.5);
    const double fast = bench_quantile(bare->tens, count, 0.1);
    const double flops = run->bar->flops;

    row(run, "peak", peak * 1e-9, "GF/s", "");
    row(run, "floor", flops / peak * 1e3, "ms", "");
    row(run, "step", step * 1e3, "ms", "");
    row(run, "step_p10", fast * 1e3, "ms", "");
    row(run, "wall", bench_quantile(bare->walls, count, 0.5) * 1e3, "ms", "");
    row(run, "wall_p10", bench_quantile(bare->walls, count, 0.1) * 1e3, "ms", "");
    row(run, "over_floor", fast * peak / flops, "ratio",
        run->threads == 1 ? run->bar->floor : "");
    row(run, "over_floor_median", step * peak_median / flops, "ratio", "");
    if (run->threads > 1) {
        const double together = peak_together(run->threads);

        row(run, "peak_together", together * 1e-9, "GF/s", "");
        row(run, "over_floor_together", fast * together / flops, "ratio", "");
    }
}

static void report_plan(const bench *run)
{
    sonde_nn_session_info info;
    sonde_diag diag = {0};

    bench_check(sonde_nn_session_describe(run->lanes[BARE].net.session, &info, &diag),
                &diag);
    row(run, "plan_threads", (double)info.threads, "threads", "");
    row(run, "arena_over_live", (double)info.arena_bytes / (double)info.largest_live,
        "ratio", "<=1.2");
}

/* How far a median may be off, twice its standard error by the spread of what it is of.
 */
static double doubt(double *values, size_t count)
{
    const double middle = bench_quantile(values, count, 0.5);
    double *away = bench_alloc(count * sizeof *away), spread = 0.0;

    for (size_t i = 0; i < count; i++) {
        away[i] = fabs(values[i] - middle);
    }
    spread = bench_quantile(away, count, 0.5);
    sonde__free(away);
    return 2.0 * 1.25 * 1.48 * spread / sqrt((double)count);
}

/* A tap's cost; without a limit where the noise is as large as that. */
static void report_tap(bench *run, lane *track, const double *bare)
{
    const char *limit =
        run->threads > 1 && strcmp(track->mode->name, "vitals_every_10th") != 0 ? ""
        : strcmp(track->mode->name, "vitals_every_step") == 0        ? run->bar->vitals
        : strcmp(track->mode->name, "vitals_every_10th") == 0        ? run->bar->tenth
        : strcmp(track->mode->name, "bad_gradients") == 0            ? run->bar->tenth
        : strcmp(track->mode->name, "norms_every_step") == 0         ? run->bar->norms
        : strcmp(track->mode->name, "norms_of_all_every_step") == 0  ? run->bar->all_norms
        : strcmp(track->mode->name, "vitals_of_all_every_step") == 0 ? run->bar->all
                                                                     : "";
    double noise = 0.0;

    for (size_t round = 0; round < run->rounds; round++) {
        track->blocks[round] = track->blocks[round] / bare[round] - 1.0;
    }
    noise = doubt(track->blocks, run->rounds);
    noise = fmax(
        noise, -bench_quantile(track->blocks, run->rounds, 0.5)); /* looking saves none */
    if (limit[0] != '\0' && noise > atof(limit + 2)) {
        (void)printf("# %s on %d threads: off by up to %.2g, so no verdict\n",
                     track->mode->name, run->threads, noise);
        limit = "";
    }
    row(run, track->mode->name, bench_quantile(track->blocks, run->rounds, 0.5), "ratio",
        limit);
}

static void report_taps(bench *run)
{
    for (size_t i = 1; i < run->lane_count; i++) {
        report_tap(run, &run->lanes[i], run->lanes[BARE].blocks);
    }
}

/* --- the program ------------------------------------------------------------------ */

static int usage(void)
{
    (void)fprintf(stderr, "usage: bench_train [--job NAME] [--threads N] [--seconds S] "
                          "[--bare | --mode NAME]\n");
    return 2;
}

static bool parse(bench *run, size_t *lanes, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const bool more = i + 1 < argc;

        if (strcmp(argv[i], "--bare") == 0) {
            *lanes = 1;
        } else if (strcmp(argv[i], "--mode") == 0 && more) {
            run->only = argv[++i];
        } else if (strcmp(argv[i], "--threads") == 0 && more) {
            run->threads = atoi(argv[++i]);
        } else if (strcmp(argv[i], "--seconds") == 0 && more) {
            run->seconds = atof(argv[++i]);
        } else if (strcmp(argv[i], "--job") == 0 && more) {
            i++;
            run->bar = NULL;
            for (size_t k = 0; k < SONDE_COUNT_OF(bars); k++) {
                run->bar = strcmp(argv[i], bars[k].job) == 0 ? &bars[k] : run->bar;
            }
        } else {
            return false;
        }
    }
    return run->bar != NULL && run->threads >= 0 && run->seconds > 0.0;
}

int main(int argc, char **argv)
{
    static bench run = {.bar = bars, .threads = 1, .seconds = 5.0};
    size_t lanes = MODES;

    if (!parse(&run, &lanes, argc, argv)) {
        return usage();
    }
    bench_batches_make(&run.batches, run.bar->job, SAMPLES, false);
    for (size_t i = 0; i < lanes; i++) {
        if (i == BARE || run.only == NULL || strcmp(run.only, modes[i].name) == 0) {
            open_lane(&run, &run.lanes[run.lane_count++], &modes[i]);
        }
    }
    choose_sizes(&run);
    measure(&run);
    bench_header();
    report_step(&run);
    report_plan(&run);
    report_taps(&run);
    for (size_t i = 0; i < run.lane_count; i++) {
        bench_network_free(&run.lanes[i].net);
        sonde__free(run.lanes[i].tens);
        sonde__free(run.lanes[i].walls);
        sonde__free(run.lanes[i].blocks);
    }
    sonde__free(run.peaks);
    bench_batches_free(&run.batches);
    return 0;
}

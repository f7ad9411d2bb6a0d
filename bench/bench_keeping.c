/*
 * bench_keeping.c - what it costs a training step to keep records: the ring in a file
 * against one in memory; a hook with its defaults against nothing, and what it records
 * for the rules beyond vital signs at every 10th step.
 *
 *     bench_keeping [--what ring|hook|defaults|noise] [--job fashion_cnn]
 *                   [--mode parameters_raw] [--seconds 10] [--dir FOLDER]
 *
 * Two sessions of one process take turns in short slices, in the order A B B A, so that
 * other programs and the clock of the processor affect both. A slice ends when the
 * recorder has written what the slice recorded, and the segments that are closed are
 * removed: at most a few hundred MB lie in FOLDER at a time. A pair is two neighboring slices, and 16
 * pairs, or fewer of a large network, are a round. Each round has new sessions, made in another order and at other
 * addresses: where a network lies in memory makes a difference of some percent. Rows are
 * medians over the rounds of the medians over their pairs, in processor seconds:
 *
 *     <job>_keep_<what>_thread         of the training thread, B over A
 *     <job>_keep_<what>_process        of all threads, the writer's too
 *     ..._low, ..._high                95 % of medians of resampled rounds (bootstrap)
 *     ..._rounds                       how many
 *     ..._first                        hook, defaults: of the first 100 steps of a run
 *
 * ring: both record, A with its ring in memory and B with it in a file; a round begins
 * when both rings have been written once, or after a second. hook: B has a hook without a
 * configuration, A has none; a slice is 100 steps, a whole period of what the rules need,
 * and a round begins after the first 100. defaults: the same B, and A has a hook with
 * `vitals_every: 10`, which records nothing for the rules beyond that. noise: neither
 * records: what the figures are worth.
 */
#include "recorded.h"

#include "base/macros.h"
#include "base/memory.h"
#include "base/random.h"
#include "record/record_sink.h"
#include "capture/hook_state.h"

#include <sonde/hook.h>
#include <sonde/recorder.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    SAMPLES = 16384,
    PERIOD = 100,
    PAIRS = 16,
    MOST_ROUNDS = 512,
    LEAST_ROUNDS = 4,
    RESAMPLES = 2000
};
#define SLICE 0.02       /* seconds of a slice */
#define MOST_WARMING 1.0 /* seconds */
#define ROUND 2.0        /* seconds of a round with hooks, at most, but for two pairs */
#define ROOM 1e9         /* bytes that must be free */

typedef enum what { WHAT_RING, WHAT_HOOK, WHAT_DEFAULTS, WHAT_NOISE } what;

static const char *const whats[] = {"ring", "hook", "defaults", "noise"};

typedef struct mode {
    const char *name, *selector;
    unsigned how;
} mode;

static const mode modes[] = {
    {"parameters_raw", "@gradient,@update", SONDE_HOW_RAW},
    {"all_raw", "@all", SONDE_HOW_RAW},
    {"all_vitals", "@all", SONDE_HOW_VITALS},
};

/* One of the two. */
typedef struct side {
    char run[512];
    bench_records records;
    sonde_recorder *recorder; /* NULL: records nothing */
    sonde_hook *hook;         /* NULL: has none */
    bench_network net;
    int64_t step;
    void *gap; /* before its memory */
} side;

typedef struct bench {
    const char *job, *dir;
    char folder[480];
    what what;
    const mode *mode;
    double seconds;
    bench_batches batches;
    side sides[2];
    size_t rounds;
    double thread[MOST_ROUNDS], process[MOST_ROUNDS], first[MOST_ROUNDS]; /* B over A */
} bench;

/* --- the sides ---------------------------------------------------------------------- */

/* vitals_every: 0 for the defaults. */
static void make_hook(side *self, const char *job, int64_t vitals_every)
{
    sonde_diag diag = {0};

    bench_check(sonde_hook_create(SONDE_OPTIONS(sonde_hook,
                                                .record = SONDE_OPTIONS(
                                                    sonde_recorder, .path = self->run),
                                                .vitals_every = vitals_every),
                                  &self->hook, &diag),
                &diag);
    bench_network_hook(&self->net, job, 1, self->hook);
    self->recorder = sonde__hook_recorder(self->hook);
}

static bool has_hooks(const bench *b)
{
    return b->what == WHAT_HOOK || b->what == WHAT_DEFAULTS;
}

static void make_side(bench *b, int which)
{
    side *const self = &b->sides[which];

    *self = (side){.recorder = NULL};
    self->gap =
        bench_alloc(64 + 64 * (size_t)sonde__below(5, b->rounds, (uint64_t)which, 16384));
    (void)snprintf(self->run, sizeof self->run, "%s/%d", b->folder, which);
    bench_remove(self->run);
    if (b->what == WHAT_RING) {
        self->records = (bench_records){.run = self->run,
                                        .selector = b->mode->selector,
                                        .how = b->mode->how,
                                        .interval = 1,
                                        .heap = which == 0};
        bench_network_record(&self->net, b->job, &self->records);
        self->recorder = self->records.recorder;
    } else if (has_hooks(b) && (which == 1 || b->what == WHAT_DEFAULTS)) {
        make_hook(self, b->job, which == 1 ? 0 : 10);
    } else {
        bench_network_make(&self->net, b->job, 1, NULL);
    }
}

static void free_sides(bench *b)
{
    for (int i = 0; i < 2; i++) {
        side *const self = &b->sides[i];
        sonde_diag diag = {0};

        bench_network_free(&self->net);
        if (self->hook != NULL) {
            bench_check(sonde_hook_close(self->hook, SONDE_RUN_FINISHED, NULL, &diag),
                        &diag);
        } else {
            bench_records_close(&self->records);
        }
        bench_remove(self->run);
        sonde__free(self->gap);
    }
}

/* --- slices ------------------------------------------------------------------------- */

static void run_slice(const bench *b, side *self, int64_t steps, double *thread,
                      double *process)
{
    const double thread_start = bench_clock(CLOCK_THREAD_CPUTIME_ID);
    const double process_start = bench_clock(CLOCK_PROCESS_CPUTIME_ID);

    for (int64_t i = 0; i < steps; i++) {
        bench_network_step(&self->net, &b->batches, self->step++);
    }
    *thread = bench_clock(CLOCK_THREAD_CPUTIME_ID) - thread_start;
    if (self->hook != NULL) {
        self->recorder = sonde__hook_recorder(self->hook);
    }
    if (self->recorder != NULL) {
        (void)sonde__recorder_drain(self->recorder, 600.0);
    }
    *process = bench_clock(CLOCK_PROCESS_CPUTIME_ID) - process_start;
    bench_records_thin(self->run);
}

/* Until a ring has been written once, or for a while. */
static void warm_ring(const bench *b, side *self)
{
    const double end = bench_clock(CLOCK_MONOTONIC) + MOST_WARMING;
    sonde_recorder_stats stats = {0};
    double thread = 0.0, process = 0.0;

    do {
        run_slice(b, self, 20, &thread, &process);
        if (self->recorder != NULL) {
            sonde__recorder_get_stats(self->recorder, &stats);
        }
    } while (self->recorder != NULL && stats.bytes < BENCH_RING &&
             bench_clock(CLOCK_MONOTONIC) < end);
}

/* The first steps; returns how many steps a slice has. *pairs: of a round. */
static int64_t warm(bench *b, int *pairs)
{
    double thread[2] = {0.0, 0.0}, process = 0.0;

    *pairs = PAIRS;
    if (has_hooks(b)) {
        run_slice(b, &b->sides[0], PERIOD, &thread[0], &process);
        run_slice(b, &b->sides[1], PERIOD, &thread[1], &process);
        b->first[b->rounds] = thread[1] / thread[0];
        *pairs = (int)fmin(PAIRS, fmax(2.0, ROUND / (2.0 * thread[0])));
        return PERIOD;
    }
    warm_ring(b, &b->sides[0]);
    warm_ring(b, &b->sides[1]);
    run_slice(b, &b->sides[0], 20, &thread[0], &process);
    return (int64_t)fmax(1.0, ceil(SLICE / (thread[0] / 20.0)));
}

static void measure_round(bench *b)
{
    double thread_ratios[PAIRS], process_ratios[PAIRS];
    const int order = (int)(b->rounds % 2);
    int64_t steps = 0;
    int pairs = 0;

    make_side(b, order);
    make_side(b, !order);
    steps = warm(b, &pairs);
    for (int i = 0; i < pairs; i++) {
        const int first = i % 2; /* A B, B A */
        double thread[2], process[2];

        run_slice(b, &b->sides[first], steps, &thread[first], &process[first]);
        run_slice(b, &b->sides[!first], steps, &thread[!first], &process[!first]);
        thread_ratios[i] = thread[1] / thread[0];
        process_ratios[i] = process[1] / process[0];
    }
    free_sides(b);
    b->thread[b->rounds] = bench_quantile(thread_ratios, (size_t)pairs, 0.5);
    b->process[b->rounds++] = bench_quantile(process_ratios, (size_t)pairs, 0.5);
}

static void measure(bench *b)
{
    const double end = bench_clock(CLOCK_MONOTONIC) + b->seconds;

    while (b->rounds < LEAST_ROUNDS ||
           (b->rounds < MOST_ROUNDS && bench_clock(CLOCK_MONOTONIC) < end)) {
        measure_round(b);
    }
}

/* --- results ------------------------------------------------------------------------ */

static void row(const bench *b, const char *kind, const char *end, double value,
                const char *limit)
{
    char name[160];

    (void)snprintf(name, sizeof name, "%s_keep_%s%s%s_%s%s", b->job, whats[b->what],
                   b->what == WHAT_RING ? "_" : "",
                   b->what == WHAT_RING ? b->mode->name : "", kind, end);
    bench_row(name, value, strcmp(end, "_rounds") == 0 ? "rounds" : "ratio", limit);
}

static void report(const bench *b, const char *kind, const double *ratios,
                   const char *limit)
{
    static double medians[RESAMPLES], copy[MOST_ROUNDS];

    for (uint64_t i = 0; i < RESAMPLES; i++) {
        for (uint64_t k = 0; k < b->rounds; k++) {
            copy[k] = ratios[sonde__below(11, i, k, b->rounds)];
        }
        medians[i] = bench_quantile(copy, b->rounds, 0.5);
    }
    memcpy(copy, ratios, b->rounds * sizeof *copy);
    row(b, kind, "", bench_quantile(copy, b->rounds, 0.5), limit);
    row(b, kind, "_low", bench_quantile(medians, RESAMPLES, 0.025), "");
    row(b, kind, "_high", bench_quantile(medians, RESAMPLES, 0.975), "");
}

static int find(const char *const *names, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

/* False: a usage error. */
static bool take_option(bench *b, const char *option, const char *value)
{
    const char *names[SONDE_COUNT_OF(modes)];
    int found = 0;

    for (size_t i = 0; i < SONDE_COUNT_OF(modes); i++) {
        names[i] = modes[i].name;
    }
    if (strcmp(option, "--job") == 0) {
        b->job = value;
    } else if (strcmp(option, "--dir") == 0) {
        b->dir = value;
    } else if (strcmp(option, "--seconds") == 0) {
        b->seconds = atof(value);
    } else if (strcmp(option, "--what") == 0) {
        found = find(whats, SONDE_COUNT_OF(whats), value);
        b->what = (what)found;
    } else if (strcmp(option, "--mode") == 0) {
        found = find(names, SONDE_COUNT_OF(modes), value);
        b->mode = &modes[found >= 0 ? found : 0];
    } else {
        return false;
    }
    return found >= 0 && b->seconds > 0.0;
}

int main(int argc, char **argv)
{
    static const char *const limits[] = {"<=1.03", "", "<=1.02", ""};
    static bench b = {.job = "fashion_cnn", .seconds = 10.0, .mode = &modes[0]};
    bool good = argc % 2 == 1;

    b.dir = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp";
    for (int i = 1; good && i + 1 < argc; i += 2) {
        good = take_option(&b, argv[i], argv[i + 1]);
    }
    if (!good) {
        (void)fprintf(stderr,
                      "usage: bench_keeping [--what ring|hook|defaults|noise] "
                      "[--job NAME] [--mode MODE] [--seconds S] [--dir FOLDER]\n");
        return 2;
    }
    bench_folder_make(b.dir, ROOM, b.folder, sizeof b.folder);
    bench_batches_make(&b.batches, b.job, SAMPLES, false);
    measure(&b);
    bench_header();
    report(&b, "thread", b.thread, limits[b.what]);
    report(&b, "process", b.process, limits[b.what]);
    if (has_hooks(&b)) {
        row(&b, "thread", "_first", bench_quantile(b.first, b.rounds, 0.5), "");
    }
    row(&b, "thread", "_rounds", (double)b.rounds, "");
    bench_batches_free(&b.batches);
    return 0;
}

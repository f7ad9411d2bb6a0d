/*
 * bench_rules.c - the cost of judging: all default rules during training, over vital
 * signs alone, with raw values, and as `sonde train` does by default, next to the bare
 * step; over a recorded run of 100,000 steps; and the delay until another process that
 * follows a run reports a fault.
 *
 *     bench_rules [FOLDER]         where the run is written and removed again; default /tmp
 *     bench_rules --job JOB [N]    only this network, judged by default, in N rounds
 *
 * Sessions of one network take turns of 200 steps, the same steps of the schedules of rules
 * in every turn. Times are of ten steps, in processor time of the thread; of each ten of the
 * 200 the fastest turn counts, so that looks at every 20th or 100th step have their weight.
 *
 * Prints name,value,unit,limit,verdict per line, and on stderr the findings in the
 * training, which is healthy and should have none.
 */
#include "support.h"

#include "base/clock.h"
#include "base/macros.h"
#include "base/random.h"
#include "record/record_sink.h"
#include "rules/engine.h"

#include <sonde/error.h>
#include <sonde/recorder.h>
#include <sonde/rules.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* TEN * TENS: steps in which all that is looked at seldom is due equally often, wherever
 * they begin. */
enum { TEN = 10, TENS = 20, RECORDED = 100000, TENSORS = 12 };
enum { BARE, USUAL, STATISTICS, ALL, LANES };

/* --- in process ------------------------------------------------------------------- */

static void print_findings(const char *what, sonde_rules *rules)
{
    size_t count = 0;
    const sonde_finding *all = sonde_rules_findings(rules, &count);

    for (size_t i = 0; i < count; i++) {
        (void)fprintf(stderr, "%s: step %lld: %s: %s: %s\n", what, (long long)all[i].step,
                      all[i].rule, all[i].tensor, all[i].message);
    }
}

static sonde_rules *default_rules(void)
{
    sonde_rules *rules = NULL;
    sonde_diag diag = {0};

    bench_check(sonde_rules_create(&rules, &diag), &diag);
    bench_check(sonde_rules_add_defaults(rules, &diag), &diag);
    return rules;
}

typedef struct attached {
    sonde_rules *rules;
    int64_t every, raw_every;
} attached;

static sonde_err attach(void *user, const sonde_catalogue *catalogue,
                        sonde_observer *observer, sonde_diag *diag)
{
    const attached *judging = user;

    return sonde_rules_attach(judging->rules, catalogue, observer, judging->every,
                              judging->raw_every, diag);
}

/* A session, and the fastest seconds a step of every ten. */
typedef struct lane {
    bench_network network;
    attached judging;
    double best[TENS];
} lane;

static double own_time(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void run_turn(lane *track, const bench_batches *batches, int64_t first)
{
    for (int64_t ten = 0; ten < TENS; ten++) {
        const double begun = own_time();

        for (int64_t i = 0; i < TEN; i++) {
            bench_network_step(&track->network, batches, first + ten * TEN + i);
        }
        track->best[ten] = SONDE_MIN(track->best[ten], (own_time() - begun) / TEN);
    }
}

static double seconds_a_step(const lane *track)
{
    double sum = 0.0;

    for (int ten = 0; ten < TENS; ten++) {
        sum += track->best[ten];
    }
    return sum / TENS;
}

/* The engine alone: evidence of every tensor it wants, at hand. */
static double engine_seconds(const sonde_catalogue *catalogue)
{
    sonde_rules *rules = default_rules();
    sonde_diag diag = {0};
    float values[64];
    const int64_t shape[1] = {64};
    const sonde_view view = sonde_view_of(SONDE_F32, 1, shape, values);
    sonde_vitals vitals;
    double begun = 0.0;

    bench_check(sonde__rules_begin(rules, catalogue, NULL, NULL, &diag), &diag);
    for (int i = 0; i < 64; i++) {
        values[i] = 0.01F * sonde__normal(1, 1, (uint64_t)i);
    }
    begun = sonde__now();
    for (int64_t step = 0; step < 2000; step++) {
        const sonde_coordinate at = {.global_step = step, .mode_step = step};

        values[step % 64] += 0.001F;
        sonde_vitals_of(&view, &vitals);
        for (uint32_t id = 0; id < sonde_catalogue_count(catalogue); id++) {
            const sonde_observation observation = {
                .id = id,
                .info = sonde_catalogue_info(catalogue, id),
                .at = at,
                .vitals = &vitals};

            if (sonde__rules_wants(rules, id) & SONDE_HOW_VITALS) {
                sonde__rules_put(rules, &observation);
            }
        }
        sonde__rules_end_step(rules, &at);
    }
    begun = (sonde__now() - begun) / 2000;
    sonde_rules_destroy(rules);
    return begun;
}

/* A line in percent of the bare step. */
static void row(const char *job, const char *what, double seconds, double bare,
                const char *limit)
{
    char name[64];

    (void)snprintf(name, sizeof name, "%s_%s", job, what);
    bench_row(name, 100.0 * seconds / bare, "%", limit);
}

/* count: of the lanes, from the first on. */
static void measure(lane *lanes, int count, const char *job, int rounds)
{
    bench_batches batches;

    bench_batches_make(&batches, job, 16384, false);
    bench_network_make(&lanes[BARE].network, job, 1, NULL);
    for (int i = 0; i < count; i++) {
        if (i != BARE) {
            bench_network_attach(&lanes[i].network, job, 1, attach, &lanes[i].judging);
        }
        for (int ten = 0; ten < TENS; ten++) {
            lanes[i].best[ten] = (double)INFINITY;
        }
    }
    for (int64_t round = 0; round < rounds; round++) {
        for (int i = 0; i < count; i++) {
            run_turn(&lanes[i], &batches, round * TEN * TENS);
        }
    }
    sonde_rules_finish(lanes[USUAL].judging.rules);
    bench_batches_free(&batches);
}

/* usual: no other way of judging. */
static void of_training(const char *job, int rounds, bool usual, const char *engine_limit,
                        const char *judge_limit)
{
    static lane lanes[LANES];
    double bare = 0.0;

    lanes[USUAL].judging = (attached){default_rules(), 0, 0};
    lanes[STATISTICS].judging = (attached){default_rules(), 1, INT64_MAX / 2};
    lanes[ALL].judging = (attached){default_rules(), 1, 10};
    measure(lanes, usual ? USUAL + 1 : LANES, job, rounds);
    print_findings(job, lanes[USUAL].judging.rules);
    bare = seconds_a_step(&lanes[BARE]);
    row(job, "rules_usual_added", seconds_a_step(&lanes[USUAL]) - bare, bare,
        judge_limit);
    if (!usual) {
        row(job, "rules_engine_share",
            engine_seconds(sonde_nn_session_catalogue(lanes[BARE].network.session)), bare,
            engine_limit);
        row(job, "rules_statistics_added", seconds_a_step(&lanes[STATISTICS]) - bare,
            bare, "");
        row(job, "rules_all_added", seconds_a_step(&lanes[ALL]) - bare, bare, "");
    }
    for (int i = 0; i < LANES; i++) {
        bench_network_free(&lanes[i].network);
        sonde_rules_destroy(lanes[i].judging.rules);
    }
}

/* --- recorded --------------------------------------------------------------------- */

static int remove_one(const char *path, const struct stat *status, int kind,
                      struct FTW *walk)
{
    (void)status;
    (void)kind;
    (void)walk;
    return remove(path);
}

static void declare(sonde_catalogue *catalogue, int i)
{
    static const sonde_role roles[3] = {SONDE_ROLE_WEIGHT, SONDE_ROLE_GRADIENT,
                                        SONDE_ROLE_LOSS};
    char name[64];
    sonde_tensor_info info = {.name = name,
                              .role = i == TENSORS - 1 ? roles[2] : roles[i % 2],
                              .dtype = SONDE_F32,
                              .rank = 2,
                              .shape = {8, 8},
                              .same_as = SONDE_NO_TENSOR};
    uint32_t id = 0;
    sonde_diag diag = {0};

    (void)snprintf(name, sizeof name, "%sfc%d.weight",
                   i == TENSORS - 1 ? "loss/"
                   : i % 2          ? "Gradient___"
                                    : "",
                   i / 2);
    bench_check(sonde_catalogue_declare(catalogue, &info, &id, &diag), &diag);
}

static void record(const char *path)
{
    const sonde_recorder_options options = {
        .size = sizeof options, .path = path, .when_full = SONDE_WHEN_FULL_WAIT};
    sonde_catalogue *catalogue = NULL;
    sonde_recorder *recorder = NULL;
    sonde_diag diag = {0};
    float values[64];
    const int64_t shape[2] = {8, 8};
    const sonde_view view = sonde_view_of(SONDE_F32, 2, shape, values);
    sonde_vitals vitals;

    bench_check(sonde_catalogue_create(&catalogue, &diag), &diag);
    for (int i = 0; i < TENSORS; i++) {
        declare(catalogue, i);
    }
    bench_check(sonde__recorder_create(&options, catalogue, &recorder, &diag), &diag);
    for (int i = 0; i < 64; i++) {
        values[i] = sonde__normal(1, 1, (uint64_t)i);
    }
    for (int64_t step = 0; step < RECORDED; step++) {
        const sonde_coordinate at = {.global_step = step, .mode_step = step};

        values[step % 64] = 0.5F + sonde__uniform(2, 2, (uint64_t)step);
        sonde_vitals_of(&view, &vitals);
        for (uint32_t id = 0; id < TENSORS; id++) {
            sonde__recorder_put_vitals(recorder, id, &at, &vitals);
        }
        sonde__recorder_end_step(recorder, &at);
    }
    bench_check(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, NULL, &diag), &diag);
    sonde_catalogue_destroy(catalogue);
}

static void of_recorded(const char *folder)
{
    char path[300];
    double best = 1e9;

    (void)snprintf(path, sizeof path, "%s/sonde_bench_rules", folder);
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    record(path);
    for (int run = 0; run < 3; run++) {
        sonde_rules *rules = default_rules();
        sonde_trial *trial = NULL;
        sonde_diag diag = {0};
        double seconds = -sonde__now();

        bench_check(sonde_trial_open(path, NULL, &trial, &diag), &diag);
        bench_check(sonde_rules_judge(rules, trial, NULL, &diag), &diag);
        best = SONDE_MIN(best, seconds + sonde__now());
        sonde_rules_destroy(rules);
        sonde_trial_close(trial);
    }
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    bench_row("rules_100000_steps_12_tensors", best, "s", "<=3");
}

/* --- live ------------------------------------------------------------------------- */

enum { LIVE_ROUNDS = 15, LIVE_STEPS = 400 };

static void write_time(void *user, const sonde_finding *finding, bool again)
{
    const double now = sonde__now();

    (void)finding;
    if (!again && write(*(const int *)user, &now, sizeof now) != sizeof now) {
        _exit(3);
    }
}

/* The other process: follows the run, and says when NonFinite speaks. */
static void follow(const char *path, int to)
{
    const sonde_rules_pace pace = {.follow = true, .stall = 20};
    sonde_rules *rules = NULL;
    sonde_trial *trial = NULL;
    sonde_diag diag = {0};

    while (sonde_trial_open(path, NULL, &trial, &diag) != SONDE_OK) {
        (void)usleep(1000);
    }
    bench_check(sonde_rules_create(&rules, &diag), &diag);
    bench_check(sonde_rules_add(rules, "NonFinite", &diag), &diag);
    sonde_rules_on_finding(rules, write_time, &to);
    bench_check(sonde_rules_judge(rules, trial, &pace, &diag), &diag);
    _exit(0);
}

/* Seconds from the end of the faulty step to the finding in the other process. A step a
 * millisecond; the fault is at another one in each round. */
static double live_once(const char *path, int round)
{
    const sonde_recorder_options options = {.size = sizeof options, .path = path};
    const int64_t shape[2] = {8, 8};
    float values[64] = {0};
    const sonde_view view = sonde_view_of(SONDE_F32, 2, shape, values);
    sonde_catalogue *catalogue = NULL;
    sonde_recorder *recorder = NULL;
    sonde_diag diag = {0};
    sonde_vitals vitals;
    double begun = 0.0, told = 0.0;
    int ends[2];
    pid_t child = 0;

    bench_check(pipe(ends) == 0 ? SONDE_OK : SONDE_EIO, &diag);
    child = fork();
    if (child == 0) {
        follow(path, ends[1]);
    }
    bench_check(sonde_catalogue_create(&catalogue, &diag), &diag);
    for (int i = 0; i < TENSORS; i++) {
        declare(catalogue, i);
    }
    bench_check(sonde__recorder_create(&options, catalogue, &recorder, &diag), &diag);
    for (int64_t step = 0; step < LIVE_STEPS + 7 * round; step++) {
        const sonde_coordinate at = {.global_step = step, .mode_step = step};
        const bool last = step + 1 == LIVE_STEPS + 7 * round;

        values[3] = last ? NAN : 1.0F;
        sonde_vitals_of(&view, &vitals);
        for (uint32_t id = 0; id < TENSORS; id++) {
            sonde__recorder_put_vitals(recorder, id, &at, &vitals);
        }
        sonde__recorder_end_step(recorder, &at);
        begun = sonde__now();
        (void)usleep(1000);
    }
    bench_check(read(ends[0], &told, sizeof told) == sizeof told ? SONDE_OK : SONDE_EIO,
                &diag);
    bench_check(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, NULL, &diag), &diag);
    (void)waitpid(child, NULL, 0);
    (void)close(ends[0]);
    (void)close(ends[1]);
    sonde_catalogue_destroy(catalogue);
    return told - begun;
}

static void of_live(const char *folder)
{
    double took[LIVE_ROUNDS];
    char path[300];

    (void)snprintf(path, sizeof path, "%s/sonde_bench_live", folder);
    for (int round = 0; round < LIVE_ROUNDS; round++) {
        (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
        took[round] = 1e3 * live_once(path, round);
    }
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    bench_row("rules_live_median", bench_quantile(took, LIVE_ROUNDS, 0.5), "ms", "<=250");
    bench_row("rules_live_largest", bench_quantile(took, LIVE_ROUNDS, 1.0), "ms",
              "<=250");
}

int main(int argc, char **argv)
{
    bench_header();
    if (argc > 2 && strcmp(argv[1], "--job") == 0) {
        of_training(argv[2], argc > 3 ? atoi(argv[3]) : 20, true, "", "<=3");
        return 0;
    }
    of_live(argc > 1 ? argv[1] : "/tmp");
    of_recorded(argc > 1 ? argv[1] : "/tmp");
    of_training("fashion_cnn", 40, false, "<=2", "<=3");
    of_training("mnist_mlp_small", 20, false, "", "");
    of_training("mnist_mlp", 5, false, "<=1", "");
    return 0;
}

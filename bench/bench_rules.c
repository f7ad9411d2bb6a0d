/*
 * bench_rules.c - the cost of judging: all default rules during training, over vital
 * signs alone, with raw values, and as `sonde train` does by default, next to the bare
 * step; over a recorded run of 100,000 steps; and the delay until another process that
 * follows a run reports a fault.
 *
 *     rules [FOLDER]     where the run is written and removed again; default /tmp
 *
 * Prints name,value,unit,limit,verdict per line, and on stderr the findings in the
 * training, which is healthy and should have none.
 */
#include "support.h"

#include "base/clock.h"
#include "base/macros.h"
#include "base/random.h"

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
#include <unistd.h>

/* STEPS: in which all that is looked at seldom is due equally often, wherever they
 * begin. */
enum { STEPS = 200, RECORDED = 100000, TENSORS = 12 };

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

/* A network like net, with rules in it. */
static void make_judged(bench_network *out, const char *job, attached *judging)
{
    const sonde_nn_job_info *info = NULL;
    sonde_diag diag = {0};

    memset(out, 0, sizeof *out);
    bench_check(sonde_nn_job_builtin(job, &out->job, &diag), &diag);
    info = sonde_nn_job_get_info(out->job);
    sonde_nn_job_get_info(out->job)->options.threads = 1;
    bench_check(sonde_nn_job_build(out->job, &out->model, &diag), &diag);
    bench_check(sonde_nn_training_session(out->model, &info->options, &info->optimizer,
                                          &out->session, &diag),
                &diag);
    bench_check(sonde_nn_session_attach(out->session, attach, judging, &diag), &diag);
    bench_check(sonde_nn_session_compile(out->session, &diag), &diag);
}

static double seconds_a_step(bench_network *network, const bench_batches *batches,
                             int64_t first)
{
    const double begun = sonde__now();

    for (int64_t i = 0; i < STEPS; i++) {
        bench_network_step(network, batches, first + i);
    }
    return (sonde__now() - begun) / STEPS;
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

    bench_check(sonde_rules_begin(rules, catalogue, NULL, NULL, &diag), &diag);
    for (int i = 0; i < 64; i++) {
        values[i] = 0.01F * sonde__normal(1, 1, (uint64_t)i);
    }
    begun = sonde__now();
    for (int64_t step = 0; step < 2000; step++) {
        const sonde_coordinate at = {.global_step = step, .mode_step = step};

        values[step % 64] += 0.001F;
        sonde_vitals_of(&view, &vitals);
        for (uint32_t id = 0; id < sonde_catalogue_count(catalogue); id++) {
            const sonde_observation seen = {.id = id,
                                            .info = sonde_catalogue_info(catalogue, id),
                                            .at = at,
                                            .vitals = &vitals};

            if (sonde_rules_wants(rules, id) & SONDE_HOW_VITALS) {
                sonde_rules_put(rules, &seen);
            }
        }
        sonde_rules_end_step(rules, &at);
    }
    begun = (sonde__now() - begun) / 2000;
    sonde_rules_destroy(rules);
    return begun;
}

static void of_training(const char *job, int rounds, const char *engine_limit)
{
    bench_batches batches;
    bench_network bare, stats, all, usual;
    attached of_stats = {default_rules(), 1, INT64_MAX / 2};
    attached of_all = {default_rules(), 1, 10}, of_usual = {default_rules(), 20, 200};
    double best[4] = {1e9, 1e9, 1e9, 1e9};
    char name[64];

    bench_batches_make(&batches, job, 16384, false);
    bench_network_make(&bare, job, 1, NULL);
    make_judged(&stats, job, &of_stats);
    make_judged(&all, job, &of_all);
    make_judged(&usual, job, &of_usual);
    for (int64_t round = 0; round < rounds; round++) {
        best[0] = SONDE_MIN(best[0], seconds_a_step(&bare, &batches, round * STEPS));
        best[1] = SONDE_MIN(best[1], seconds_a_step(&stats, &batches, round * STEPS));
        best[2] = SONDE_MIN(best[2], seconds_a_step(&all, &batches, round * STEPS));
        best[3] = SONDE_MIN(best[3], seconds_a_step(&usual, &batches, round * STEPS));
    }
    sonde_rules_finish(of_stats.rules);
    sonde_rules_finish(of_all.rules);
    print_findings(job, of_all.rules);
    (void)snprintf(name, sizeof name, "%s_rules_engine_share", job);
    bench_row(name,
              100.0 * engine_seconds(sonde_nn_session_catalogue(bare.session)) / best[0],
              "%", engine_limit);
    (void)snprintf(name, sizeof name, "%s_rules_statistics_added", job);
    bench_row(name, 100.0 * (best[1] / best[0] - 1.0), "%", "");
    (void)snprintf(name, sizeof name, "%s_rules_all_added", job);
    bench_row(name, 100.0 * (best[2] / best[0] - 1.0), "%", "");
    (void)snprintf(name, sizeof name, "%s_rules_usual_added", job);
    bench_row(name, 100.0 * (best[3] / best[0] - 1.0), "%", "<=5");
    bench_network_free(&bare);
    bench_network_free(&usual);
    bench_network_free(&stats);
    bench_network_free(&all);
    sonde_rules_destroy(of_stats.rules);
    sonde_rules_destroy(of_all.rules);
    sonde_rules_destroy(of_usual.rules);
    bench_batches_free(&batches);
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
    bench_check(sonde_recorder_create(&options, catalogue, &recorder, &diag), &diag);
    for (int i = 0; i < 64; i++) {
        values[i] = sonde__normal(1, 1, (uint64_t)i);
    }
    for (int64_t step = 0; step < RECORDED; step++) {
        const sonde_coordinate at = {.global_step = step, .mode_step = step};

        values[step % 64] = 0.5F + sonde__uniform(2, 2, (uint64_t)step);
        sonde_vitals_of(&view, &vitals);
        for (uint32_t id = 0; id < TENSORS; id++) {
            sonde_recorder_put_vitals(recorder, id, &at, &vitals);
        }
        sonde_recorder_end_step(recorder, &at);
    }
    bench_check(sonde_recorder_close(recorder, SONDE_RUN_FINISHED, NULL, &diag), &diag);
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
    bench_check(sonde_recorder_create(&options, catalogue, &recorder, &diag), &diag);
    for (int64_t step = 0; step < LIVE_STEPS + 7 * round; step++) {
        const sonde_coordinate at = {.global_step = step, .mode_step = step};
        const bool last = step + 1 == LIVE_STEPS + 7 * round;

        values[3] = last ? NAN : 1.0F;
        sonde_vitals_of(&view, &vitals);
        for (uint32_t id = 0; id < TENSORS; id++) {
            sonde_recorder_put_vitals(recorder, id, &at, &vitals);
        }
        sonde_recorder_end_step(recorder, &at);
        begun = sonde__now();
        (void)usleep(1000);
    }
    bench_check(read(ends[0], &told, sizeof told) == sizeof told ? SONDE_OK : SONDE_EIO,
                &diag);
    bench_check(sonde_recorder_close(recorder, SONDE_RUN_FINISHED, NULL, &diag), &diag);
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
    of_live(argc > 1 ? argv[1] : "/tmp");
    of_recorded(argc > 1 ? argv[1] : "/tmp");
    of_training("fashion_cnn", 20, "<=2");
    of_training("mnist_mlp_small", 20, "");
    of_training("mnist_mlp", 5, "<=1");
    return 0;
}

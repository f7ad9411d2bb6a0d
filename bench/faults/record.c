/*
 * record.c - recording a run, and judging it a second time.
 */
#include "record.h"

#include "support.h"

#include <sonde/trial.h>

#include <ftw.h>
#include <stdio.h>
#include <string.h>

static bool at_each_step(const sonde_tensor_info *info)
{
    return (info->role == SONDE_ROLE_INPUT && info->pass == SONDE_PASS_NONE) ||
           info->role == SONDE_ROLE_GRADIENT || info->role == SONDE_ROLE_WEIGHT ||
           info->role == SONDE_ROLE_BIAS;
}

static void tap_one(sonde_observer *observer, const char *name, sonde_sink *sink,
                    int mode, unsigned how, int64_t interval)
{
    sonde_tap tap = {.how = how, .where = sink};
    sonde_selector *what = NULL;
    sonde_diag diag = {0};

    bench_check(sonde_selector_create(name, &what, &diag), &diag);
    tap.what = what;
    tap.when[mode] = sonde_schedule_every(interval);
    bench_check(sonde_observer_add(observer, &tap, NULL, &diag), &diag);
    sonde_selector_destroy(what);
}

sonde_recorder *faults_record(const char *path, const sonde_catalogue *catalogue,
                              sonde_observer *observer)
{
    const sonde_recorder_options options = {.path = path,
                                            .when_full = SONDE_WHEN_FULL_WAIT};
    sonde_recorder *recorder = NULL;
    sonde_diag diag = {0};

    faults_record_remove(path);
    bench_check(sonde_recorder_create(&options, catalogue, &recorder, &diag), &diag);
    for (uint32_t id = 0; id < sonde_catalogue_count(catalogue); id++) {
        const sonde_tensor_info *info = sonde_catalogue_info(catalogue, id);

        for (int mode = 0; mode < SONDE_MODE_PREDICT; mode++) {
            tap_one(observer, info->name, sonde_recorder_sink(recorder), mode,
                    SONDE_HOW_VITALS, 1);
            tap_one(observer, info->name, sonde_recorder_sink(recorder), mode,
                    SONDE_HOW_RAW, at_each_step(info) ? 1 : 10);
        }
    }
    return recorder;
}

void faults_record_end(sonde_recorder *recorder)
{
    sonde_diag diag = {0};

    if (recorder != NULL) {
        bench_check(sonde_recorder_close(recorder, SONDE_RUN_FINISHED, NULL, &diag),
                    &diag);
    }
}

/* Only who waits for a run sees that it has stalled. */
static bool cannot_agree(const sonde_finding *finding)
{
    return strcmp(finding->rule, "StalledTraining") == 0;
}

/* How many of a are not in b, which are told. */
static size_t missing(sonde_rules *a, sonde_rules *b, const char *where)
{
    size_t count_a = 0, count_b = 0, lost = 0;
    const sonde_finding *all_a = sonde_rules_findings(a, &count_a);
    const sonde_finding *all_b = sonde_rules_findings(b, &count_b);

    for (size_t i = 0; i < count_a; i++) {
        bool has = cannot_agree(&all_a[i]);

        for (size_t j = 0; j < count_b && !has; j++) {
            has = all_a[i].id == all_b[j].id;
        }
        if (!has) {
            lost++;
            (void)fprintf(stderr, "only %s: %s %s at step %lld\n", where, all_a[i].rule,
                          all_a[i].tensor, (long long)all_a[i].step);
        }
    }
    return lost;
}

size_t faults_record_compare(const char *path, sonde_rules *found)
{
    sonde_rules *again = faults_default_rules();
    sonde_trial *trial = NULL;
    sonde_diag diag = {0};
    size_t apart = 0;

    bench_check(sonde_trial_open(path, NULL, &trial, &diag), &diag);
    bench_check(sonde_rules_judge(again, trial, NULL, &diag), &diag);
    apart = missing(found, again, "in process") + missing(again, found, "offline");
    sonde_rules_destroy(again);
    sonde_trial_close(trial);
    return apart;
}

static int remove_one(const char *path, const struct stat *status, int kind,
                      struct FTW *walk)
{
    (void)status;
    (void)kind;
    (void)walk;
    return remove(path);
}

void faults_record_remove(const char *path)
{
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/*
 * record.c - recording a run, judging it from beside while it is made, and a second time.
 */
#include "record.h"

#include "observe/collections.h"

#include "support.h"
#include "record/record_sink.h"

#include <sonde/program.h>
#include <sonde/trial.h>

#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- live --------------------------------------------------------------------------- */

/* Who follows the run that is being made. */
static struct {
    pthread_t thread;
    char path[512];
    sonde_rules *rules;
} live;

static void judge(const char *path, sonde_rules *rules, bool follow)
{
    const sonde_rules_pace pace = {.follow = follow};
    sonde_trial *trial = NULL;
    sonde_diag diag = {0};

    bench_check(sonde_trial_open(path, NULL, &trial, &diag), &diag);
    bench_check(sonde_rules_judge(rules, trial, &pace, &diag), &diag);
    sonde_trial_close(trial);
}

static void *follow_run(void *arg)
{
    (void)arg;
    judge(live.path, live.rules, true);
    return NULL;
}

static void begin_live(const char *path)
{
    (void)snprintf(live.path, sizeof live.path, "%s", path);
    live.rules = faults_default_rules();
    if (pthread_create(&live.thread, NULL, follow_run, NULL) != 0) {
        (void)fprintf(stderr, "error: no thread\n");
        exit(2);
    }
}

bool faults_record_defaults;

/* --- programs ----------------------------------------------------------------------- */

/* Records the programs of the steps, as a hook does: of tensors of their own, in a catalogue
 * that has those of the observer first. */
static struct {
    sonde_sink sink; /* first */
    sonde_catalogue *catalogue;
    sonde_recorder *recorder;
    uint32_t ids[SONDE_MODE_COUNT];
} programs;

static void put_nothing(sonde_sink *sink, const sonde_observation *observation)
{
    (void)sink, (void)observation;
}

static void put_program(sonde_sink *sink, const sonde_coordinate *at,
                        const sonde_program *program)
{
    sonde_diag diag = {0};
    char *text = NULL;
    size_t length = 0;

    (void)sink;
    bench_check(sonde_program_text(program, &text, &length, &diag), &diag);
    const int64_t size = (int64_t)length;
    const sonde_view view = sonde_view_of(SONDE_U8, 1, &size, text);
    sonde__recorder_put(programs.recorder, programs.ids[program->mode], at, &view);
    sonde_release(text);
}

/* Copies a catalogue, and declares the programs of each mode after it. */
static void copy_catalogue(const sonde_catalogue *from)
{
    sonde_diag diag = {0};
    uint32_t id = 0;

    bench_check(sonde_catalogue_create(&programs.catalogue, &diag), &diag);
    for (uint32_t i = 0; i < sonde_catalogue_count(from); i++) {
        sonde_tensor_info info = *sonde_catalogue_info(from, i);

        info.same_as = info.same_as == i ? SONDE_NO_TENSOR : info.same_as;
        bench_check(sonde_catalogue_declare(programs.catalogue, &info, &id, &diag),
                    &diag);
    }
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        char name[32];
        const sonde_tensor_info info = {.name = name,
                                        .role = SONDE_ROLE_PROGRAM,
                                        .dtype = SONDE_U8,
                                        .rank = 1,
                                        .shape = {1},
                                        .same_as = SONDE_NO_TENSOR};

        (void)snprintf(name, sizeof name, "program/%s",
                       sonde_mode_name((sonde_mode)mode));
        bench_check(sonde_catalogue_declare(programs.catalogue, &info,
                                            &programs.ids[mode], &diag),
                    &diag);
    }
}

/* --- recording ---------------------------------------------------------------------- */

static bool at_each_step(const sonde_tensor_info *info)
{
    return (info->role == SONDE_ROLE_INPUT && info->pass == SONDE_PASS_NONE) ||
           info->role == SONDE_ROLE_GRADIENT || info->role == SONDE_ROLE_WEIGHT ||
           info->role == SONDE_ROLE_BIAS;
}

static void tap_on(sonde_observer *observer, const char *name, sonde_sink *sink, int mode,
                   unsigned how, sonde_schedule when)
{
    sonde_tap tap = {.how = how, .where = sink};
    sonde_selector *what = NULL;
    sonde_diag diag = {0};

    bench_check(sonde_selector_create(name, &what, &diag), &diag);
    tap.what = what;
    tap.when[mode] = when;
    bench_check(sonde_observer_add(observer, &tap, NULL, &diag), &diag);
    sonde_selector_destroy(what);
}

static void tap_one(sonde_observer *observer, const char *name, sonde_sink *sink,
                    int mode, unsigned how, int64_t interval)
{
    tap_on(observer, name, sink, mode, how, sonde_schedule_every(interval));
}

/* As hook_taps.c does for a hook without options; looks: of the tensor, by mode. */
static void tap_defaults(sonde_observer *observer, const sonde_tensor_info *info,
                         const sonde_rules_looks *looks, sonde_sink *sink)
{
    const unsigned vital = sonde__observe_vital(info);

    for (int mode = 0; mode < SONDE_MODE_PREDICT; mode++) {
        const sonde_schedule values = sonde_schedule_join(
            &looks[mode].when[SONDE_FORM_RAW], &looks[mode].when[SONDE_FORM_HASH]);

        if (vital & SONDE__VITAL_ALWAYS) {
            tap_one(observer, info->name, sink, mode, SONDE_HOW_VITALS, 1);
        }
        if ((vital & SONDE__VITAL_LOOKS) &&
            looks[mode].when[SONDE_FORM_VITALS].every > 0) {
            tap_on(observer, info->name, sink, mode, SONDE_HOW_VITALS,
                   looks[mode].when[SONDE_FORM_VITALS]);
        }
        if ((vital & SONDE__VITAL_RAW) && values.every > 0) {
            tap_on(observer, info->name, sink, mode, SONDE_HOW_RAW, values);
        }
    }
    if (info->role <= SONDE_ROLE_GRADIENT || info->role == SONDE_ROLE_LOSS) {
        tap_one(observer, info->name, sink, SONDE_MODE_TRAIN, SONDE_HOW_RAW, 500);
    }
}

sonde_recorder *faults_record(const char *path, const sonde_catalogue *catalogue,
                              sonde_observer *observer, sonde_rules *rules)
{
    const sonde_recorder_options options = {
        .size = sizeof options, .path = path, .when_full = SONDE_WHEN_FULL_WAIT};
    sonde_rules_looks *looks = calloc(
        (size_t)sonde_catalogue_count(catalogue) * SONDE_MODE_COUNT, sizeof *looks);
    sonde_recorder *recorder = NULL;
    sonde_diag diag = {0};

    if (looks == NULL) {
        (void)fprintf(stderr, "error: out of memory\n");
        exit(2);
    }
    faults_record_remove(path);
    copy_catalogue(catalogue);
    bench_check(sonde__recorder_create(&options, programs.catalogue, &recorder, &diag),
                &diag);
    programs.recorder = recorder;
    programs.sink = (sonde_sink){.put = put_nothing, .program = put_program};
    bench_check(sonde_rules_default_looks(catalogue, 0, NULL, looks, &diag), &diag);
    for (uint32_t id = 0; id < sonde_catalogue_count(catalogue); id++) {
        const sonde_tensor_info *info = sonde_catalogue_info(catalogue, id);

        if (faults_record_defaults) {
            tap_defaults(observer, info, &looks[(size_t)id * SONDE_MODE_COUNT],
                         sonde__recorder_sink(recorder));
        }
        for (int mode = 0; mode < SONDE_MODE_PREDICT && !faults_record_defaults; mode++) {
            tap_one(observer, info->name, sonde__recorder_sink(recorder), mode,
                    SONDE_HOW_VITALS, 1);
            tap_one(observer, info->name, sonde__recorder_sink(recorder), mode,
                    SONDE_HOW_RAW, at_each_step(info) ? 1 : 10);
        }
    }
    free(looks);
    for (int mode = 0; mode < SONDE_MODE_PREDICT; mode++) { /* at the first step alone */
        tap_one(observer, sonde_catalogue_info(catalogue, 0)->name, &programs.sink, mode,
                SONDE_HOW_VITALS, INT64_MAX);
    }
    if (!faults_record_defaults) {
        bench_check(sonde_rules_write_to(rules, path, &diag), &diag);
        begin_live(path);
    }
    return recorder;
}

void faults_record_end(sonde_recorder *recorder)
{
    sonde_diag diag = {0};

    if (recorder != NULL) {
        bench_check(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, NULL, &diag),
                    &diag);
        sonde_catalogue_destroy(programs.catalogue);
    }
}

/* --- comparing ---------------------------------------------------------------------- */

/* Only who waits for a run sees that it has stalled. */
static bool cannot_agree(const sonde_finding *finding)
{
    return strcmp(finding->rule, "StalledTraining") == 0;
}

static bool is_same(const sonde_finding *a, const sonde_finding *b)
{
    static char lines[2][8192];

    (void)sonde_finding_json(a, lines[0], sizeof lines[0]);
    (void)sonde_finding_json(b, lines[1], sizeof lines[1]);
    return a->id == b->id && strcmp(lines[0], lines[1]) == 0;
}

/* Number of findings of a without an equal one in b; prints them. */
static size_t missing(sonde_rules *a, sonde_rules *b, const char *where)
{
    size_t count_a = 0, count_b = 0, lost = 0;
    const sonde_finding *all_a = sonde_rules_findings(a, &count_a);
    const sonde_finding *all_b = sonde_rules_findings(b, &count_b);

    for (size_t i = 0; i < count_a; i++) {
        bool has = cannot_agree(&all_a[i]);

        for (size_t j = 0; j < count_b && !has; j++) {
            has = is_same(&all_a[i], &all_b[j]);
        }
        if (!has) {
            lost++;
            (void)fprintf(stderr, "only %s: %s %s at step %lld, %llu steps\n", where,
                          all_a[i].rule, all_a[i].tensor, (long long)all_a[i].step,
                          (unsigned long long)all_a[i].steps);
        }
    }
    return lost;
}

static long findings_bytes;

static int add_bytes(const char *path, const struct stat *status, int kind,
                     struct FTW *walk)
{
    (void)path;
    (void)walk;
    findings_bytes += kind == FTW_F ? (long)status->st_size : 0;
    return 0;
}

/* Of the run's files of findings. */
static long count_bytes(const char *path)
{
    char folder[600];

    (void)snprintf(folder, sizeof folder, "%s/findings", path);
    findings_bytes = 0;
    (void)nftw(folder, add_bytes, 16, FTW_PHYS);
    return findings_bytes;
}

size_t faults_record_compare(const char *path, sonde_rules *rules)
{
    const long kept = count_bytes(path);
    sonde_rules *again = faults_default_rules();
    sonde_diag diag = {0};
    size_t apart = 0;

    (void)pthread_join(live.thread, NULL);
    bench_check(sonde_rules_write_to(again, path, &diag), &diag);
    judge(path, again, false);
    apart = missing(rules, again, "in process") + missing(again, rules, "offline") +
            missing(live.rules, again, "live") + missing(again, live.rules, "not live");
    if (count_bytes(path) != kept) {
        apart++;
        (void)fprintf(stderr, "judging again has added to the files of findings\n");
    }
    sonde_rules_destroy(again);
    sonde_rules_destroy(live.rules);
    return apart;
}

sonde_rules *faults_record_judge(const char *path)
{
    sonde_rules *again = faults_default_rules();

    judge(path, again, false);
    return again;
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

/*
 * export_walk.c - exports: options, files, and the walks over rows and raw values.
 *
 * If only statistics of vital signs are asked for, all steps of a tensor are read at
 * once; otherwise step by step with sonde_trial_reduce.
 */
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "export/export.h"
#include "base/options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { OFTEN = 64 }; /* values between two calls of progress */

/* --- options ---------------------------------------------------------------------- */

sonde_err sonde__export_check(const sonde_trial *trial,
                              const sonde_export_options *options, sonde_diag *diag)
{
    const uint32_t known = sonde_catalogue_count(sonde_trial_catalogue(trial));

    if ((unsigned)options->mode >= SONDE_MODE_COUNT) {
        return sonde__fail(diag, SONDE_EINVAL, "mode", "a mode", "%d",
                           (int)options->mode);
    }
    if (options->begin < 0 || options->end < 0 ||
        (options->end != 0 && options->end <= options->begin)) {
        return sonde__fail(diag, SONDE_EINVAL, "steps", "0 <= first < end",
                           "%lld to %lld", (long long)options->begin,
                           (long long)options->end);
    }
    if (options->elements < 0) {
        return sonde__fail(diag, SONDE_EINVAL, "elements", "0 or more", "%lld",
                           (long long)options->elements);
    }
    for (size_t i = 0; options->ids != NULL && i < options->id_count; i++) {
        if (options->ids[i] >= known) {
            return sonde__fail(diag, SONDE_ERANGE, "tensors", NULL,
                               "id %u in a catalogue of %u", options->ids[i], known);
        }
    }
    return SONDE_OK;
}

sonde_err sonde__export_progress(const sonde_export_options *options, uint64_t done,
                                 uint64_t total, sonde_diag *diag)
{
    if (options->progress == NULL || options->progress(options->user, done, total)) {
        return SONDE_OK;
    }
    return sonde__fail(diag, SONDE_EINTERRUPTED, "export", NULL, "stopped");
}

sonde_err sonde__export_leave_out(sonde__export *work, sonde_err err,
                                  const sonde_diag *why, sonde_diag *diag)
{
    char line[SONDE_DIAG_LINE];

    if (err != SONDE_EFORMAT && err != SONDE_EUNSUPPORTED && err != SONDE_EIO) {
        if (err != SONDE_OK && diag != NULL) {
            *diag = *why;
        }
        return err;
    }
    work->report->left_out++;
    if (work->options->report_line != NULL) {
        work->options->report_line(work->options->user,
                                   sonde_diag_line(why, line, sizeof line));
    }
    return SONDE_OK;
}

/* Whether the options include a step. */
static bool has_step(const sonde_export_options *options, const sonde_coordinate *where)
{
    const bool global = options->mode == SONDE_MODE_GLOBAL;
    const int64_t step = global ? where->global_step : where->mode_step;

    return (global || where->mode == options->mode) && step >= options->begin &&
           (options->end == 0 || step < options->end);
}

void sonde__export_choose(sonde__export *work, const sonde_stat *usual, size_t count)
{
    work->stats = work->options->stats;
    work->stat_count = work->options->stat_count;
    if (work->stats == NULL) {
        work->stat_count = usual != NULL ? count : SONDE_STAT_ENTRIES;
        for (size_t i = 0; i < work->stat_count; i++) {
            work->usual[i] =
                sonde_reduction_of_stat(usual != NULL ? usual[i] : (sonde_stat)i);
        }
        work->stats = work->usual;
    }
}

/* --- files ------------------------------------------------------------------------ */

sonde_err sonde__export_check_free(const char *path, sonde_diag *diag)
{
    struct stat status;

    if (path[0] == '\0') {
        return sonde__fail(diag, SONDE_EINVAL, "output", "a path", "an empty name");
    }
    SONDE__TRY(sonde__check_home(path, diag));
    if (lstat(path, &status) == 0) {
        return sonde__fail(diag, SONDE_EEXIST, path, "a path where nothing is",
                           "exists already");
    }
    return errno == ENOENT ? SONDE_OK
                           : sonde__fail_errno(diag, path, "cannot be written");
}

sonde_err sonde__export_open(sonde__whole_file *file, const char *path, sonde_diag *diag)
{
    *file = (sonde__whole_file){.fd = -1};
    SONDE__TRY(sonde__export_check_free(path, diag));
    return sonde__whole_open(file, path, diag);
}

sonde_err sonde__export_close(sonde__whole_file *file, sonde_diag *diag)
{
    const sonde_err err = sonde__whole_commit(file, SONDE__KEEP, diag);

    sonde__whole_close(file);
    return err;
}

/* --- walking over rows ------------------------------------------------------------ */

typedef struct row_walk {
    sonde__export *work;
    sonde_export_row_fn *row;
    void *user;
    sonde_reduced *values;
    bool plain;   /* only statistics of vital signs */
    unsigned how; /* steps with any of this have a row */
} row_walk;

/* Fills in step, mode and time of a step, counted in the mode asked for. */
static void place(const row_walk *walk, int64_t step, sonde_export_row *row)
{
    const sonde_mode mode = walk->work->options->mode;

    row->step = row->mode_step = step;
    row->mode = mode;
    if (mode == SONDE_MODE_GLOBAL) {
        (void)sonde_trial_mode_step(walk->work->trial, step, &row->mode, &row->mode_step);
    } else {
        (void)sonde_trial_global_step(walk->work->trial, mode, step, &row->step);
    }
    row->time = 0;
    (void)sonde_trial_step_time(walk->work->trial, mode, step, row->worker, &row->time);
}

static sonde_trial_at whole_step(const row_walk *walk, const sonde_export_row *row,
                                 int64_t step)
{
    return (sonde_trial_at){.mode = walk->work->options->mode,
                            .step = step,
                            .worker = row->worker,
                            .micro_batch = -1,
                            .replica = -1};
}

/* A reduction that vital signs do not answer. */
static sonde_err reduce(const row_walk *walk, const sonde_export_row *row, int64_t step,
                        size_t i, sonde_diag *diag)
{
    const sonde_trial_at place = whole_step(walk, row, step);
    sonde_diag why = {0};
    const sonde_err err =
        sonde_trial_reduce(walk->work->trial, row->id, &place, &walk->work->stats[i],
                           &walk->values[i], &why);

    return sonde__export_leave_out(walk->work, err == SONDE_ENOTFOUND ? SONDE_OK : err,
                                   &why, diag);
}

static sonde_err give_row(const row_walk *walk, sonde_export_row *row, int64_t step,
                          const sonde_vitals *vitals, sonde_diag *diag)
{
    for (size_t i = 0; i < walk->work->stat_count; i++) {
        walk->values[i] = (sonde_reduced){.how = 0};
        if (vitals != NULL) {
            sonde_reduce_vitals(&walk->work->stats[i], vitals, &walk->values[i]);
        }
        if (walk->work->stats[i].kind != SONDE_REDUCTION_STAT) {
            SONDE__TRY(reduce(walk, row, step, i, diag));
        }
    }
    place(walk, step, row);
    row->vitals = vitals;
    row->values = walk->values;
    return walk->row(walk->user, row, diag);
}

static sonde_err walk_step(const row_walk *walk, sonde_export_row *row, int64_t step,
                           sonde_diag *diag)
{
    const sonde_trial_at place = whole_step(walk, row, step);
    const unsigned has = sonde_trial_has(walk->work->trial, row->id, &place) & walk->how;
    sonde_vitals vitals;
    sonde_diag why = {0};

    if ((has & (SONDE_HOW_RAW | SONDE_HOW_VITALS | SONDE_HOW_NORMS)) == 0) {
        return has != 0 ? give_row(walk, row, step, NULL, diag) : SONDE_OK;
    }
    const sonde_err err =
        sonde_trial_vitals(walk->work->trial, row->id, &place, &vitals, &why);

    return err == SONDE_OK ? give_row(walk, row, step, &vitals, diag)
                           : sonde__export_leave_out(walk->work, err, &why, diag);
}

static sonde_err walk_steps(const row_walk *walk, sonde_export_row *row, sonde_diag *diag)
{
    const sonde_export_options *options = walk->work->options;
    int64_t *steps = NULL;
    size_t count = 0;
    sonde_err err = SONDE_OK;

    SONDE__TRY(sonde_trial_tensor_steps(walk->work->trial, row->id, options->mode,
                                        walk->how, &steps, &count, diag));
    for (size_t i = 0; i < count; i++) {
        if (steps[i] < options->begin ||
            (options->end != 0 && steps[i] >= options->end)) {
            continue;
        }
        SONDE__TRY_GO(walk_step(walk, row, steps[i], diag));
    }
error:
    sonde_release(steps);
    return err;
}

/* All rows of a tensor of a worker: at once if that suffices and nothing is damaged. */
static sonde_err walk_series(const row_walk *walk, sonde_export_row *row,
                             sonde_diag *diag)
{
    const sonde_export_options *options = walk->work->options;
    int64_t *steps = NULL;
    sonde_vitals *vitals = NULL;
    size_t count = 0;
    sonde_diag why = {0};
    sonde_err err = SONDE_EUNSUPPORTED;

    if (walk->plain) {
        err = sonde_trial_vitals_series(walk->work->trial, row->id, options->mode,
                                        row->worker, options->begin, options->end, &steps,
                                        &vitals, &count, &why);
    }
    if (!walk->plain ||
        (err == SONDE_OK && why.err != SONDE_OK)) { /* to report each damaged step */
        sonde_release(steps);
        sonde_release(vitals);
        return walk_steps(walk, row, diag);
    }
    if (err != SONDE_OK) {
        if (diag != NULL) {
            *diag = why;
        }
        return err == SONDE_ENOTFOUND ? SONDE_OK : err;
    }
    for (size_t i = 0; i < count; i++) {
        SONDE__TRY_GO(give_row(walk, row, steps[i], &vitals[i], diag));
    }
error:
    sonde_release(steps);
    sonde_release(vitals);
    return err;
}

static sonde_err walk_tensor(const row_walk *walk, uint32_t id, bool first,
                             sonde_diag *diag)
{
    sonde_trial *trial = walk->work->trial;
    const int asked = walk->work->options->worker;

    for (size_t i = 0; sonde_trial_worker(trial, i) >= 0; i++) {
        sonde_err err = SONDE_OK;
        sonde_export_row row = {
            .id = id,
            .tensor = sonde_catalogue_info(sonde_trial_catalogue(trial), id)->name,
            .worker = sonde_trial_worker(trial, i)};
        const sonde_trial_at anywhere = {.mode = SONDE_MODE_GLOBAL,
                                         .step = -1,
                                         .worker = row.worker,
                                         .micro_batch = -1,
                                         .replica = -1};

        if (asked >= 0 && row.worker != asked) {
            continue;
        }
        if ((sonde_trial_has(trial, id, &anywhere) & walk->how) == 0) {
            continue;
        }
        err = walk_series(walk, &row, diag);
        if (err != SONDE_OK || (asked < 0 && first)) {
            return err;
        }
    }
    return SONDE_OK;
}

static sonde_err walk_all(const row_walk *walk, bool first, sonde_diag *diag)
{
    const sonde_export_options *options = walk->work->options;
    const uint32_t *ids = options->ids;
    const size_t count =
        ids != NULL ? options->id_count
                    : sonde_catalogue_count(sonde_trial_catalogue(walk->work->trial));
    SONDE__TRY(sonde__export_check(walk->work->trial, options, diag));
    for (size_t i = 0; i < count; i++) {
        SONDE__TRY(sonde__export_progress(options, i, count, diag));
        SONDE__TRY(walk_tensor(walk, ids != NULL ? ids[i] : (uint32_t)i, first, diag));
    }
    return SONDE_OK;
}

sonde_err sonde__export_walk(sonde__export *work, bool first, sonde_export_row_fn *row,
                             void *user, sonde_diag *diag)
{
    row_walk walk = {.work = work,
                     .row = row,
                     .user = user,
                     .plain = true,
                     .how = SONDE_HOW_RAW | SONDE_HOW_VITALS | SONDE_HOW_NORMS};
    sonde_err err = SONDE_OK;

    walk.values = sonde__calloc(work->stat_count, sizeof *walk.values);
    if (walk.values == NULL) {
        return sonde__fail_nomem(diag, "a row");
    }
    for (size_t i = 0; i < work->stat_count; i++) {
        walk.plain = walk.plain && work->stats[i].kind == SONDE_REDUCTION_STAT;
        walk.how |= sonde_reduction_evidence(&work->stats[i]);
    }
    err = walk_all(&walk, first, diag);
    sonde__free(walk.values);
    return err;
}

sonde_err sonde_trial_rows(sonde_trial *trial, const sonde_export_options *options,
                           bool first, sonde_export_row_fn *row, void *user,
                           sonde_diag *diag)
{
    SONDE__NEEDS(diag, trial);
    SONDE__NEEDS_FUNCTION(diag, row);
    sonde_export_options taken = sonde_export_options_default();
    sonde_export_report report = {0};
    sonde__export work = {.trial = trial, .options = &taken, .report = &report};

    if (options != NULL) {
        SONDE__TAKE(sonde_export_options, &taken, options, diag);
    }

    sonde__export_choose(&work, NULL, 0);
    return sonde__export_walk(&work, first, row, user, diag);
}

/* --- walking over raw values ------------------------------------------------------ */

const char *sonde__export_worker(const sonde__export *work, int rank)
{
    const char *name = NULL;

    for (size_t i = 0;
         work->many_workers && (name = sonde_trial_worker_name(work->trial, i)) != NULL;
         i++) {
        if (sonde_trial_worker(work->trial, i) == rank) {
            return name;
        }
    }
    return "";
}

/* The name of a value in npz and safetensors; new. NULL: out of memory. */
static char *make_key(const sonde__export *work, const sonde_trial_record *record)
{
    const char *name =
        sonde_catalogue_info(sonde_trial_catalogue(work->trial), record->id)->name;
    const char *worker = sonde__export_worker(work, record->worker);
    const size_t size = strlen(worker) + strlen(name) + 96;
    char *key = sonde__malloc(size);

    if (key == NULL) {
        return NULL;
    }
    const int used = snprintf(
        key, size, "%s%s%010lld/%s/%s", worker, worker[0] != '\0' ? "/" : "",
        (long long)record->at.global_step, sonde_mode_name(record->at.mode), name);
    if (record->at.micro_batch != 0 || record->at.replica != 0) {
        (void)snprintf(key + used, size - (size_t)used, "@%d.%d", record->at.micro_batch,
                       record->at.replica);
    }
    return key;
}

static sonde_err give_value(sonde__export *work, const sonde_trial_record *record,
                            sonde__export_value_fn *value, void *user, sonde_diag *diag)
{
    const int asked = work->options->worker;
    sonde_err err = SONDE_OK;

    if ((asked >= 0 && record->worker != asked) ||
        !has_step(work->options, &record->at)) {
        return SONDE_OK;
    }
    char *key = make_key(work, record);
    if (key == NULL) {
        return sonde__fail_nomem(diag, "a name");
    }
    err = value(user, key, record, diag);
    sonde__free(key);
    return err;
}

/* SONDE_EEND at the end. */
static sonde_err give_next(sonde__export *work, sonde_trial_cursor *cursor,
                           sonde__export_value_fn *value, void *user, sonde_diag *diag)
{
    sonde_trial_record record;
    sonde_diag why = {0};
    const sonde_err err = sonde_trial_next(cursor, &record, &why);

    return err == SONDE_OK     ? give_value(work, &record, value, user, diag)
           : err == SONDE_EEND ? err
                               : sonde__export_leave_out(work, err, &why, diag);
}

sonde_err sonde__export_values(sonde__export *work, sonde__export_value_fn *value,
                               void *user, sonde_diag *diag)
{
    const bool global = work->options->mode == SONDE_MODE_GLOBAL;
    const sonde_trial_cursor_options options = {
        .size = sizeof options,
        .ids = work->options->ids,
        .id_count = work->options->id_count,
        .how = SONDE_HOW_RAW,
        .mode = work->options->mode,
        .begin = global ? work->options->begin : 0,
        .end = global ? work->options->end : 0,
        .incomplete = true,
    };
    sonde_trial_cursor *cursor = NULL;
    sonde_run_info info;
    sonde_err err = SONDE_OK;

    sonde_trial_describe(work->trial, &info);
    SONDE__TRY(sonde_trial_cursor_create(work->trial, &options, &cursor, diag));
    for (uint64_t done = 0;; done++) {
        if (done % OFTEN == 0) {
            err = sonde__export_progress(work->options, SONDE_MIN(done, info.records),
                                         info.records, diag);
            if (err != SONDE_OK) {
                break;
            }
        }
        err = give_next(work, cursor, value, user, diag);
        if (err != SONDE_OK) { /* SONDE_EEND after the last */
            break;
        }
    }
    sonde_trial_cursor_destroy(cursor);
    return err == SONDE_EEND ? SONDE_OK : err;
}

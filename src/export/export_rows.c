/*
 * export_rows.c - reductions as rows: walking over them, and the files made of them.
 *
 * Where statistics of vital signs alone are asked for, a tensor's steps are read in one go;
 * else step by step, as sonde_trial_reduce does it.
 */
#include "export/export_file.h"
#include "base/fail.h"
#include "base/memory.h"
#include "export/export_text.h"
#include "export/export_walk.h"

enum { OFTEN = 256 };

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

/* --- walking ---------------------------------------------------------------------- */

typedef struct walk {
    sonde__export *work;
    sonde_export_row_fn *row;
    void *user;
    sonde_reduced *values;
    bool plain;   /* nothing but statistics of vital signs */
    unsigned how; /* steps with any of this have a row */
} walk;

/* Where a step of the mode asked for lies. */
static void place(const walk *w, int64_t step, sonde_export_row *row)
{
    const sonde_mode mode = w->work->options->mode;

    row->step = row->mode_step = step;
    row->mode = mode;
    if (mode == SONDE_MODE_GLOBAL) {
        (void)sonde_trial_mode_step(w->work->trial, step, &row->mode, &row->mode_step);
    } else {
        (void)sonde_trial_global_step(w->work->trial, mode, step, &row->step);
    }
    row->time = 0;
    (void)sonde_trial_step_time(w->work->trial, mode, step, row->worker, &row->time);
}

static sonde_trial_at whole_step(const walk *w, const sonde_export_row *row, int64_t step)
{
    return (sonde_trial_at){.mode = w->work->options->mode,
                            .step = step,
                            .worker = row->worker,
                            .micro_batch = -1,
                            .replica = -1};
}

/* Of an error that is no other value's business: *bad is set, and it is told. */
static sonde_err pass_over(const walk *w, sonde_err err, const sonde_diag *why, bool *bad,
                           sonde_diag *diag)
{
    *bad = err != SONDE_OK;
    if (err == SONDE_OK || sonde__export_left_out(w->work, err, why)) {
        return SONDE_OK;
    }
    if (diag != NULL) {
        *diag = *why;
    }
    return err;
}

/* What the vital signs of the row do not tell. */
static sonde_err reduce(const walk *w, const sonde_export_row *row, int64_t step,
                        size_t i, sonde_diag *diag)
{
    const sonde_trial_at at = whole_step(w, row, step);
    sonde_diag why = {0};
    bool bad = false;
    sonde_err err = sonde_trial_reduce(w->work->trial, row->id, &at, &w->work->stats[i],
                                       &w->values[i], &why);

    err = pass_over(w, err == SONDE_ENOTFOUND ? SONDE_OK : err, &why, &bad, diag);
    return err;
}

static sonde_err give(const walk *w, sonde_export_row *row, int64_t step,
                      const sonde_vitals *vitals, sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    for (size_t i = 0; err == SONDE_OK && i < w->work->stat_count; i++) {
        w->values[i] = (sonde_reduced){.how = 0};
        if (vitals != NULL) {
            sonde_reduce_vitals(&w->work->stats[i], vitals, &w->values[i]);
        }
        if (w->work->stats[i].kind != SONDE_REDUCTION_STAT) {
            err = reduce(w, row, step, i, diag);
        }
    }
    if (err != SONDE_OK) {
        return err;
    }
    place(w, step, row);
    row->vitals = vitals;
    row->values = w->values;
    return w->row(w->user, row, diag);
}

static sonde_err walk_step(const walk *w, sonde_export_row *row, int64_t step,
                           sonde_diag *diag)
{
    const sonde_trial_at at = whole_step(w, row, step);
    const unsigned has = sonde_trial_has(w->work->trial, row->id, &at) & w->how;
    sonde_vitals vitals;
    sonde_diag why = {0};
    bool bad = false;
    sonde_err err = SONDE_OK;

    if ((has & (SONDE_HOW_RAW | SONDE_HOW_VITALS)) == 0) {
        return has != 0 ? give(w, row, step, NULL, diag) : SONDE_OK;
    }
    err = sonde_trial_vitals(w->work->trial, row->id, &at, &vitals, &why);
    err = pass_over(w, err, &why, &bad, diag);
    return err == SONDE_OK && !bad ? give(w, row, step, &vitals, diag) : err;
}

static sonde_err walk_steps(const walk *w, sonde_export_row *row, sonde_diag *diag)
{
    const sonde_export_options *options = w->work->options;
    int64_t *steps = NULL;
    size_t count = 0;
    sonde_err err = sonde_trial_tensor_steps(w->work->trial, row->id, options->mode,
                                             w->how, &steps, &count, diag);

    if (err != SONDE_OK) {
        return err;
    }
    for (size_t i = 0; err == SONDE_OK && i < count; i++) {
        if (steps[i] >= options->begin &&
            (options->end == 0 || steps[i] < options->end)) {
            err = walk_step(w, row, steps[i], diag);
        }
    }
    sonde_trial_free(steps);
    return err;
}

/* All rows of a tensor of a worker, in one go if that will do and nothing is damaged. */
static sonde_err walk_series(const walk *w, sonde_export_row *row, sonde_diag *diag)
{
    const sonde_export_options *options = w->work->options;
    int64_t *steps = NULL;
    sonde_vitals *vitals = NULL;
    size_t count = 0;
    sonde_diag why = {0};
    sonde_err err = SONDE_EUNSUPPORTED;

    if (w->plain) {
        err = sonde_trial_vitals_series(w->work->trial, row->id, options->mode,
                                        row->worker, options->begin, options->end, &steps,
                                        &vitals, &count, &why);
    }
    if (!w->plain || (err == SONDE_OK && why.err != SONDE_OK)) { /* each is told of */
        sonde_trial_free(steps);
        sonde_trial_free(vitals);
        return walk_steps(w, row, diag);
    }
    if (err != SONDE_OK && diag != NULL) {
        *diag = why;
    }
    for (size_t i = 0; err == SONDE_OK && i < count; i++) {
        err = give(w, row, steps[i], &vitals[i], diag);
    }
    sonde_trial_free(steps);
    sonde_trial_free(vitals);
    return err == SONDE_ENOTFOUND ? SONDE_OK : err;
}

static sonde_err walk_tensor(const walk *w, uint32_t id, bool first, sonde_diag *diag)
{
    sonde_trial *trial = w->work->trial;
    const int asked = w->work->options->worker;
    sonde_err err = SONDE_OK;

    for (size_t i = 0; err == SONDE_OK && sonde_trial_worker(trial, i) >= 0; i++) {
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
        if ((sonde_trial_has(trial, id, &anywhere) & w->how) == 0) {
            continue;
        }
        err = walk_series(w, &row, diag);
        if (asked < 0 && first) {
            break;
        }
    }
    return err;
}

static sonde_err walk_all(const walk *w, bool first, sonde_diag *diag)
{
    const sonde_export_options *options = w->work->options;
    const uint32_t *ids = options->ids;
    const size_t count =
        ids != NULL ? options->id_count
                    : sonde_catalogue_count(sonde_trial_catalogue(w->work->trial));
    sonde_err err = sonde__export_check(w->work->trial, options, diag);

    for (size_t i = 0; err == SONDE_OK && i < count; i++) {
        err = sonde__export_go_on(options, i, count, diag);
        if (err == SONDE_OK) {
            err = walk_tensor(w, ids != NULL ? ids[i] : (uint32_t)i, first, diag);
        }
    }
    return err;
}

sonde_err sonde__export_walk(sonde__export *work, bool first, sonde_export_row_fn *row,
                             void *user, sonde_diag *diag)
{
    walk w = {.work = work,
              .row = row,
              .user = user,
              .plain = true,
              .how = SONDE_HOW_RAW | SONDE_HOW_VITALS};
    sonde_err err = SONDE_OK;

    w.values = sonde__calloc(work->stat_count, sizeof *w.values);
    if (w.values == NULL) {
        return sonde__fail_nomem(diag, "a row");
    }
    for (size_t i = 0; i < work->stat_count; i++) {
        w.plain = w.plain && work->stats[i].kind == SONDE_REDUCTION_STAT;
        w.how |= sonde_reduction_evidence(&work->stats[i]);
    }
    err = walk_all(&w, first, diag);
    sonde__free(w.values);
    return err;
}

sonde_err sonde_trial_rows(sonde_trial *trial, const sonde_export_options *options,
                           bool first, sonde_export_row_fn *row, void *user,
                           sonde_diag *diag)
{
    const sonde_export_options usual = sonde_export_options_default();
    sonde_export_report report = {0};
    sonde__export work = {
        .trial = trial, .options = options != NULL ? options : &usual, .report = &report};

    sonde__export_choose(&work, NULL, 0);
    return sonde__export_walk(&work, first, row, user, diag);
}

/* --- the file --------------------------------------------------------------------- */

typedef struct rows_file {
    sonde__export *work;
    sonde_export_kind kind;
    sonde__export_out_file out;
    sonde_text text;
    uint32_t last; /* tensor */
} rows_file;

static sonde_err add_row(void *user, const sonde_export_row *row, sonde_diag *diag)
{
    rows_file *to = user;
    sonde_err err = SONDE_OK;

    to->text.length = 0;
    err = sonde_export_row_text(to->kind, row, to->work->stats, to->work->stat_count,
                                &to->text, diag);
    if (err == SONDE_OK && to->text.length > 0) {
        sonde__export_out_put(&to->out, to->text.data, to->text.length);
        err = sonde__export_out_status(&to->out, diag);
    }
    if (row != NULL) {
        to->work->report->tensors += row->id != to->last;
        to->work->report->rows++;
        to->last = row->id;
        if (err == SONDE_OK && to->work->report->rows % OFTEN == 0) {
            err = sonde__export_go_on(to->work->options, 0, 0, diag);
        }
    }
    return err;
}

sonde_err sonde__export_rows(sonde__export *work, sonde_export_kind kind,
                             const char *path, sonde_diag *diag)
{
    rows_file to = {.work = work, .kind = kind, .last = SONDE_NO_TENSOR};
    sonde_err err = sonde__export_out_open(&to.out, path, diag);

    if (err != SONDE_OK) {
        return err;
    }
    sonde__export_choose(work, NULL, 0);
    err = add_row(&to, NULL, diag); /* the head */
    if (err == SONDE_OK) {
        err = sonde__export_walk(work, false, add_row, &to, diag);
    }
    if (err == SONDE_OK && work->report->rows == 0) {
        err = sonde__fail(diag, SONDE_ENOTFOUND, path, NULL,
                          "nothing of these tensors and steps was recorded");
    }
    sonde_text_fini(&to.text);
    if (err == SONDE_OK) {
        return sonde__export_out_close(&to.out, diag);
    }
    sonde__export_out_abandon(&to.out);
    return err;
}

/*
 * export_rows.c - statistics as rows, and rows as CSV (RFC 4180) and JSON lines.
 */
#include "trial/export_file.h"
#include "trial/export_walk.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OFTEN = 256 };

/* --- walking ---------------------------------------------------------------------- */

typedef struct walk {
    sonde__export *work;
    sonde_export_row_fn *row;
    void *user;
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

static sonde_err give(const walk *w, sonde_export_row *row, int64_t step,
                      const sonde_vitals *vitals, sonde_diag *diag)
{
    place(w, step, row);
    row->vitals = vitals;
    return w->row(w->user, row, diag);
}

/* One step of a tensor of which some value is damaged. */
static sonde_err walk_step(const walk *w, sonde_export_row *row, int64_t step,
                           sonde_diag *diag)
{
    const sonde_trial_at at = {.mode = w->work->options->mode,
                               .step = step,
                               .worker = row->worker,
                               .micro_batch = -1,
                               .replica = -1};
    sonde_vitals vitals;
    sonde_diag why = {0};
    sonde_err err = SONDE_OK;

    if ((sonde_trial_has(w->work->trial, row->id, &at) &
         (SONDE_HOW_RAW | SONDE_HOW_VITALS)) == 0) {
        return SONDE_OK;
    }
    err = sonde_trial_vitals(w->work->trial, row->id, &at, &vitals, &why);
    if (err == SONDE_OK) {
        return give(w, row, step, &vitals, diag);
    }
    if (sonde__export_left_out(w->work, err, &why)) {
        return SONDE_OK;
    }
    if (diag != NULL) {
        *diag = why;
    }
    return err;
}

static sonde_err walk_steps(const walk *w, sonde_export_row *row, sonde_diag *diag)
{
    const sonde_export_options *options = w->work->options;
    int64_t *steps = NULL;
    size_t count = 0;
    sonde_err err =
        sonde_trial_tensor_steps(w->work->trial, row->id, options->mode,
                                 SONDE_HOW_RAW | SONDE_HOW_VITALS, &steps, &count, diag);

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

/* All rows of a tensor of a worker, in one go, or step by step if something is damaged.
 * *any: whether the worker has the tensor. */
static sonde_err walk_series(const walk *w, uint32_t id, int worker, bool *any,
                             sonde_diag *diag)
{
    sonde_trial *trial = w->work->trial;
    const sonde_export_options *options = w->work->options;
    sonde_export_row row = {
        .id = id,
        .tensor = sonde_catalogue_info(sonde_trial_catalogue(trial), id)->name,
        .worker = worker};
    int64_t *steps = NULL;
    sonde_vitals *vitals = NULL;
    size_t count = 0;
    sonde_diag why = {0};
    sonde_err err =
        sonde_trial_vitals_series(trial, id, options->mode, worker, options->begin,
                                  options->end, &steps, &vitals, &count, &why);

    *any = err != SONDE_ENOTFOUND;
    if (err == SONDE_ENOTFOUND) {
        return SONDE_OK;
    }
    if (err == SONDE_OK && why.err != SONDE_OK) { /* each is told of */
        sonde_trial_free(steps);
        sonde_trial_free(vitals);
        return walk_steps(w, &row, diag);
    }
    if (err != SONDE_OK && diag != NULL) {
        *diag = why;
    }
    for (size_t i = 0; err == SONDE_OK && i < count; i++) {
        err = give(w, &row, steps[i], &vitals[i], diag);
    }
    sonde_trial_free(steps);
    sonde_trial_free(vitals);
    return err;
}

static sonde_err walk_tensor(const walk *w, uint32_t id, bool first, sonde_diag *diag)
{
    const int asked = w->work->options->worker;
    sonde_err err = SONDE_OK;
    bool any = false;

    for (size_t i = 0; err == SONDE_OK && sonde_trial_worker(w->work->trial, i) >= 0;
         i++) {
        const int rank = sonde_trial_worker(w->work->trial, i);

        if (asked < 0 || rank == asked) {
            err = walk_series(w, id, rank, &any, diag);
        }
        if (asked < 0 && first && any) {
            break;
        }
    }
    return err;
}

sonde_err sonde__export_walk(sonde__export *work, bool first, sonde_export_row_fn *row,
                             void *user, sonde_diag *diag)
{
    const walk w = {work, row, user};
    const uint32_t *ids = work->options->ids;
    const size_t count = ids != NULL
                             ? work->options->id_count
                             : sonde_catalogue_count(sonde_trial_catalogue(work->trial));
    sonde_err err = sonde__export_check(work->trial, work->options, diag);

    for (size_t i = 0; err == SONDE_OK && i < count; i++) {
        err = sonde__export_go_on(work->options, i, count, diag);
        if (err == SONDE_OK) {
            err = walk_tensor(&w, ids != NULL ? ids[i] : (uint32_t)i, first, diag);
        }
    }
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

    return sonde__export_walk(&work, first, row, user, diag);
}

/* --- text ------------------------------------------------------------------------- */

static sonde_err add(sonde_text *text, const char *bytes, size_t n)
{
    const sonde_err err = sonde_text_reserve(text, text->length + n);

    if (err == SONDE_OK) {
        memcpy(text->data + text->length, bytes, n);
        text->length += n;
        text->data[text->length] = '\0';
    }
    return err;
}

static sonde_err add_text(sonde_text *text, const char *more)
{
    return add(text, more, strlen(more));
}

/* Quoted if it has to be. */
static sonde_err add_csv(sonde_text *text, const char *field)
{
    sonde_err err = SONDE_OK;

    if (strpbrk(field, ",\"\r\n") == NULL) {
        return add_text(text, field);
    }
    err = add_text(text, "\"");
    for (; err == SONDE_OK && *field != '\0'; field++) {
        err = *field == '"' ? add_text(text, "\"\"") : add(text, field, 1);
    }
    return err == SONDE_OK ? add_text(text, "\"") : err;
}

static sonde_err add_json(sonde_text *text, const char *string)
{
    sonde_err err = add_text(text, "\"");

    for (; err == SONDE_OK && *string != '\0'; string++) {
        char escaped[8] = {*string};

        if (*string == '"' || *string == '\\') {
            (void)snprintf(escaped, sizeof escaped, "\\%c", *string);
        } else if ((unsigned char)*string < 0x20) {
            (void)snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)*string);
        }
        err = add_text(text, escaped);
    }
    return err == SONDE_OK ? add_text(text, "\"") : err;
}

/* The fewest digits that give the same double again. */
static const char *shortest(double value, char buf[32])
{
    for (int digits = 15; digits <= 17; digits++) {
        (void)snprintf(buf, 32, "%.*g", digits, value);
        if (strtod(buf, NULL) == value) {
            break;
        }
    }
    return buf;
}

static sonde_err add_number(sonde_text *text, double value, bool json)
{
    char buf[32];

    if (isnan(value)) {
        return add_text(text, json ? "\"NaN\"" : "nan");
    }
    if (isinf(value)) {
        return add_text(text, value > 0.0 ? (json ? "\"Infinity\"" : "inf")
                                          : (json ? "\"-Infinity\"" : "-inf"));
    }
    return add_text(text, shortest(value, buf));
}

/* Seconds with six decimals; nothing if it is not known. */
static const char *time_text(int64_t time, char buf[32])
{
    buf[0] = '\0';
    if (time > 0) {
        (void)snprintf(buf, 32, "%lld.%06lld", (long long)(time / 1000000000),
                       (long long)(time / 1000 % 1000000));
    }
    return buf;
}

static sonde_err csv_head(const sonde_stat *stats, size_t count, sonde_text *text)
{
    sonde_err err = add_text(text, "step,mode,mode_step,worker,time,tensor");

    for (size_t i = 0; err == SONDE_OK && i < count; i++) {
        err = add_text(text, ",");
        if (err == SONDE_OK) {
            err = add_text(text, sonde_stat_name(stats[i]));
        }
    }
    return err == SONDE_OK ? add_text(text, "\n") : err;
}

static sonde_err csv_row(const sonde_export_row *row, const sonde_stat *stats,
                         size_t count, sonde_text *text)
{
    char head[128], time[32];
    sonde_err err = SONDE_OK;

    (void)snprintf(head, sizeof head, "%lld,%s,%lld,%d,%s,", (long long)row->step,
                   sonde_mode_name(row->mode), (long long)row->mode_step, row->worker,
                   time_text(row->time, time));
    err = add_text(text, head);
    if (err == SONDE_OK) {
        err = add_csv(text, row->tensor);
    }
    for (size_t i = 0; err == SONDE_OK && i < count; i++) {
        err = add_text(text, ",");
        if (err == SONDE_OK) {
            err = add_number(text, sonde_vitals_get(row->vitals, stats[i]), false);
        }
    }
    return err == SONDE_OK ? add_text(text, "\n") : err;
}

static sonde_err json_row(const sonde_export_row *row, const sonde_stat *stats,
                          size_t count, sonde_text *text)
{
    char head[160], time[32];
    sonde_err err = SONDE_OK;

    (void)snprintf(head, sizeof head,
                   "{\"step\":%lld,\"mode\":\"%s\",\"mode_step\":%lld,\"worker\":%d,"
                   "\"time\":%s,\"tensor\":",
                   (long long)row->step, sonde_mode_name(row->mode),
                   (long long)row->mode_step, row->worker,
                   row->time > 0 ? time_text(row->time, time) : "null");
    err = add_text(text, head);
    if (err == SONDE_OK) {
        err = add_json(text, row->tensor);
    }
    for (size_t i = 0; err == SONDE_OK && i < count; i++) {
        (void)snprintf(head, sizeof head, ",\"%s\":", sonde_stat_name(stats[i]));
        err = add_text(text, head);
        if (err == SONDE_OK) {
            err = add_number(text, sonde_vitals_get(row->vitals, stats[i]), true);
        }
    }
    return err == SONDE_OK ? add_text(text, "}\n") : err;
}

sonde_err sonde_export_row_text(sonde_export_kind kind, const sonde_export_row *row,
                                const sonde_stat *stats, size_t stat_count,
                                sonde_text *text, sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    if (kind != SONDE_EXPORT_CSV && kind != SONDE_EXPORT_JSONL) {
        return sonde__fail(diag, SONDE_EINVAL, "kind", "csv or jsonl", "%d", (int)kind);
    }
    if (kind == SONDE_EXPORT_CSV) {
        err = row == NULL ? csv_head(stats, stat_count, text)
                          : csv_row(row, stats, stat_count, text);
    } else if (row != NULL) {
        err = json_row(row, stats, stat_count, text);
    }
    return err == SONDE_OK ? err : sonde__fail_nomem(diag, "a row");
}

/* --- the file --------------------------------------------------------------------- */

typedef struct rows_file {
    sonde__export *work;
    sonde_export_kind kind;
    const sonde_stat *stats;
    size_t stat_count;
    sonde__out_file out;
    sonde_text text;
    uint32_t last; /* tensor */
} rows_file;

static sonde_err add_row(void *user, const sonde_export_row *row, sonde_diag *diag)
{
    rows_file *to = user;
    sonde_err err = SONDE_OK;

    to->text.length = 0;
    err =
        sonde_export_row_text(to->kind, row, to->stats, to->stat_count, &to->text, diag);
    if (err == SONDE_OK && to->text.length > 0) {
        sonde__out_put(&to->out, to->text.data, to->text.length);
        err = sonde__out_status(&to->out, diag);
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
    sonde_stat every[SONDE_STAT_ENTRIES];
    const bool usual = work->options->stats == NULL;
    rows_file to = {.work = work,
                    .kind = kind,
                    .stats = usual ? every : work->options->stats,
                    .stat_count = usual ? SONDE_STAT_ENTRIES : work->options->stat_count,
                    .last = SONDE_NO_TENSOR};
    sonde_err err = sonde__out_open(&to.out, path, diag);

    if (err != SONDE_OK) {
        return err;
    }
    for (int i = 0; i < SONDE_STAT_ENTRIES; i++) {
        every[i] = (sonde_stat)i;
    }
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
        return sonde__out_close(&to.out, diag);
    }
    sonde__out_abandon(&to.out);
    return err;
}

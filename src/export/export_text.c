/*
 * export_text.c - statistics and raw values as CSV (RFC 4180) and JSON lines: a line for each
 * row; of raw values in CSV a line for each element, in JSON for each value.
 *
 * Text goes to the file as it is made, so memory does not grow with the export.
 */
#include "export/export_text.h"
#include "base/fail.h"
#include "base/memory.h"
#include "export/export_file.h"
#include "tensor/convert.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OFTEN = 256 /* rows between two calls of progress */, FULL = 1 << 16 };

/* --- pieces of text ---------------------------------------------------------------- */

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
static sonde_err add_field(sonde_text *text, const char *field)
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

static sonde_err add_string(sonde_text *text, const char *string)
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

/* --- rows ------------------------------------------------------------------------- */

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

static sonde_err add_place(sonde_text *text, const sonde_export_row *row, bool json)
{
    char head[160], time[32];
    sonde_err err = SONDE_OK;

    if (row == NULL) {
        return add_text(text, "step,mode,mode_step,worker,time,tensor");
    }
    (void)snprintf(head, sizeof head,
                   json ? "{\"step\":%lld,\"mode\":\"%s\",\"mode_step\":%lld,"
                          "\"worker\":%d,\"time\":%s,\"tensor\":"
                        : "%lld,%s,%lld,%d,%s,",
                   (long long)row->step, sonde_mode_name(row->mode),
                   (long long)row->mode_step, row->worker,
                   json && row->time <= 0 ? "null" : time_text(row->time, time));
    err = add_text(text, head);
    if (err == SONDE_OK) {
        err = json ? add_string(text, row->tensor) : add_field(text, row->tensor);
    }
    return err;
}

static sonde_err add_reduced(sonde_text *text, const sonde_reduction *what,
                             const sonde_reduced *value, bool json)
{
    char hash[24];

    if (value->how == 0) {
        return add_text(text, json ? "null" : "");
    }
    if (what->kind != SONDE_REDUCTION_HASH) {
        return add_number(text, value->number, json);
    }
    (void)snprintf(hash, sizeof hash, json ? "\"%016llx\"" : "%016llx",
                   (unsigned long long)value->hash);
    return add_text(text, hash);
}

/* The name of a column; in a row of JSON, before its value. */
static sonde_err add_name(sonde_text *text, const sonde_reduction *what, bool json)
{
    sonde_err err = add_text(text, ",");

    if (err == SONDE_OK) {
        err = json ? add_string(text, what->name) : add_field(text, what->name);
    }
    return err == SONDE_OK && json ? add_text(text, ":") : err;
}

static sonde_err add_row(sonde_text *text, const sonde_export_row *row,
                         const sonde_reduction *stats, size_t count, bool json)
{
    sonde_err err = add_place(text, row, json);

    for (size_t i = 0; err == SONDE_OK && i < count; i++) {
        err = json || row == NULL ? add_name(text, &stats[i], json) : add_text(text, ",");
        if (err == SONDE_OK && row != NULL) {
            err = add_reduced(text, &stats[i], &row->values[i], json);
        }
    }
    return err == SONDE_OK ? add_text(text, json ? "}\n" : "\n") : err;
}

sonde_err sonde_export_row_text(sonde_export_kind kind, const sonde_export_row *row,
                                const sonde_reduction *stats, size_t stat_count,
                                sonde_text *text, sonde_diag *diag)
{
    const bool json = kind == SONDE_EXPORT_JSONL;

    if (kind != SONDE_EXPORT_CSV && kind != SONDE_EXPORT_JSONL) {
        return sonde__fail(diag, SONDE_EINVAL, "kind", "csv or jsonl", "%d", (int)kind);
    }
    if (row == NULL && json) {
        return SONDE_OK; /* it has no head */
    }
    return add_row(text, row, stats, stat_count, json) == SONDE_OK
               ? SONDE_OK
               : sonde__fail_nomem(diag, "a row");
}

/* --- the file of rows ------------------------------------------------------------- */

typedef struct rows_file {
    sonde__export *work;
    sonde_export_kind kind;
    sonde__export_out_file file;
    sonde_text text;
    uint32_t last; /* tensor */
} rows_file;

static sonde_err put_row(void *user, const sonde_export_row *row, sonde_diag *diag)
{
    rows_file *out = user;
    sonde_err err = SONDE_OK;

    out->text.length = 0;
    err = sonde_export_row_text(out->kind, row, out->work->stats, out->work->stat_count,
                                &out->text, diag);
    if (err == SONDE_OK && out->text.length > 0) {
        sonde__export_out_put(&out->file, out->text.data, out->text.length);
        err = sonde__export_out_status(&out->file, diag);
    }
    if (row != NULL) {
        out->work->report->tensors += row->id != out->last;
        out->work->report->rows++;
        out->last = row->id;
        if (err == SONDE_OK && out->work->report->rows % OFTEN == 0) {
            err = sonde__export_progress(out->work->options, 0, 0, diag);
        }
    }
    return err;
}

sonde_err sonde__export_rows(sonde__export *work, sonde_export_kind kind,
                             const char *path, sonde_diag *diag)
{
    rows_file out = {.work = work, .kind = kind, .last = SONDE_NO_TENSOR};
    sonde_err err = sonde__export_out_open(&out.file, path, diag);

    if (err != SONDE_OK) {
        return err;
    }
    sonde__export_choose(work, NULL, 0);
    err = put_row(&out, NULL, diag); /* the head */
    if (err == SONDE_OK) {
        err = sonde__export_walk(work, false, put_row, &out, diag);
    }
    if (err == SONDE_OK && work->report->rows == 0) {
        err = sonde__fail(diag, SONDE_ENOTFOUND, path, NULL,
                          "nothing of these tensors and steps was recorded");
    }
    sonde_text_fini(&out.text);
    if (err == SONDE_OK) {
        return sonde__export_out_close(&out.file, diag);
    }
    sonde__export_out_abandon(&out.file);
    return err;
}

/* --- raw values -------------------------------------------------------------------- */

typedef struct elements {
    sonde__export *work;
    bool json;
    sonde_print_options format; /* the shortest digits that give the element back */
    sonde__export_out_file file;
    sonde_text text, head; /* head: the beginning of the lines of a value */
    unsigned char *seen;   /* by id */
} elements;

/* Writes the text if there are at least so many bytes. */
static sonde_err flush(elements *out, size_t least, sonde_diag *diag)
{
    if (out->text.length < least) {
        return SONDE_OK;
    }
    sonde__export_out_put(&out->file, out->text.data, out->text.length);
    out->text.length = 0;
    return sonde__export_out_status(&out->file, diag);
}

/* One real number of any dtype. */
static sonde_err add_real(elements *out, sonde_dtype dtype, const void *element)
{
    sonde_view view = sonde_view_of(dtype, 0, NULL, (void *)(uintptr_t)element);
    double value = 0.0;

    if (out->json && sonde_dtype_is_float(dtype)) {
        value = sonde_element_get(dtype, element);
        if (!isfinite(value)) {
            return add_number(&out->text, value, true);
        }
    }
    return sonde_format_tensor(&view, &out->format, 0, &out->text);
}

static sonde_err add_element(elements *out, sonde_dtype dtype,
                             const unsigned char *element)
{
    const sonde_dtype part = sonde__dtype_part(dtype);
    sonde_err err = SONDE_OK;

    if (part == dtype || !out->json) { /* in CSV 1.5-2j, as Python reads it */
        return add_real(out, dtype, element);
    }
    err = add_text(&out->text, "[");
    err = err == SONDE_OK ? add_real(out, part, element) : err;
    err = err == SONDE_OK ? add_text(&out->text, ",") : err;
    err = err == SONDE_OK ? add_real(out, part, element + sonde_dtype_size(part)) : err;
    return err == SONDE_OK ? add_text(&out->text, "]") : err;
}

/* The beginning of every line of a value. */
static sonde_err add_head(const elements *out, const sonde_trial_record *record,
                          sonde_text *head)
{
    sonde_export_row row = {
        .tensor =
            sonde_catalogue_info(sonde_trial_catalogue(out->work->trial), record->id)
                ->name,
        .worker = record->worker,
        .step = record->at.global_step,
        .mode = record->at.mode,
        .mode_step = record->at.mode_step};
    char text[96];
    sonde_err err = SONDE_OK;

    (void)sonde_trial_step_time(out->work->trial, row.mode, row.mode_step, row.worker,
                                &row.time);
    err = add_place(head, &row, out->json);
    (void)snprintf(text, sizeof text,
                   out->json ? ",\"micro_batch\":%d,\"replica\":%d" : ",%d,%d",
                   record->at.micro_batch, record->at.replica);
    return err == SONDE_OK ? add_text(head, text) : err;
}

/* A line for each of the first count elements. */
static sonde_err add_lines(elements *out, const sonde_trial_record *record, int64_t count,
                           sonde_diag *diag)
{
    const sonde_view *view = &record->view;
    const size_t size = sonde_dtype_size(view->dtype);
    sonde_err err = SONDE_OK;

    out->head.length = 0;
    err = add_head(out, record, &out->head);
    for (int64_t i = 0; err == SONDE_OK && i < count; i++) {
        char index[32];

        (void)snprintf(index, sizeof index, ",%lld,", (long long)i);
        err = add_text(&out->text, out->head.data);
        err = err == SONDE_OK ? add_text(&out->text, index) : err;
        err = err == SONDE_OK
                  ? add_element(out, view->dtype,
                                (const unsigned char *)view->data + (size_t)i * size)
                  : err;
        err = err == SONDE_OK ? add_text(&out->text, "\n") : err;
        err = err == SONDE_OK ? flush(out, FULL, diag) : err;
    }
    return err;
}

static sonde_err add_shape(sonde_text *text, const sonde_view *view)
{
    char part[64];
    sonde_err err = SONDE_OK;

    (void)snprintf(part, sizeof part, ",\"dtype\":\"%s\",\"shape\":[",
                   sonde_dtype_name(view->dtype));
    err = add_text(text, part);
    for (int d = 0; err == SONDE_OK && d < view->rank; d++) {
        (void)snprintf(part, sizeof part, d > 0 ? ",%lld" : "%lld",
                       (long long)view->shape[d]);
        err = add_text(text, part);
    }
    return err == SONDE_OK ? add_text(text, "],\"values\":[") : err;
}

/* One line, with the first count elements. */
static sonde_err add_object(elements *out, const sonde_trial_record *record,
                            int64_t count, sonde_diag *diag)
{
    const sonde_view *view = &record->view;
    const size_t size = sonde_dtype_size(view->dtype);
    sonde_err err = add_head(out, record, &out->text);

    err = err == SONDE_OK ? add_shape(&out->text, view) : err;
    for (int64_t i = 0; err == SONDE_OK && i < count; i++) {
        err = i > 0 ? add_text(&out->text, ",") : SONDE_OK;
        err = err == SONDE_OK
                  ? add_element(out, view->dtype,
                                (const unsigned char *)view->data + (size_t)i * size)
                  : err;
        err = err == SONDE_OK ? flush(out, FULL, diag) : err;
    }
    return err == SONDE_OK ? add_text(&out->text, "]}\n") : err;
}

static sonde_err add_elements(void *user, const char *key,
                              const sonde_trial_record *record, sonde_diag *diag)
{
    elements *out = user;
    const int64_t most = out->work->options->elements;
    const int64_t all = sonde_view_count(&record->view);
    const int64_t count = most > 0 && all > most ? most : all;
    sonde_err err = SONDE_OK;

    (void)key;
    out->work->report->tensors += out->seen[record->id] == 0;
    out->work->report->values++;
    out->seen[record->id] = 1;
    err = out->json ? add_object(out, record, count, diag)
                    : add_lines(out, record, count, diag);
    if (err == SONDE_ENOMEM) {
        return sonde__fail_nomem(diag, "a line");
    }
    return err == SONDE_OK ? flush(out, FULL, diag) : err;
}

static sonde_err write_all(elements *out, const char *path, sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    if (!out->json) {
        err = add_place(&out->text, NULL, false);
        err = err == SONDE_OK ? add_text(&out->text, ",micro_batch,replica,index,value\n")
                              : err;
        if (err == SONDE_OK) {
            err = flush(out, 0, diag);
        }
    }
    if (err == SONDE_OK) {
        err = sonde__export_values(out->work, add_elements, out, diag);
    }
    if (err == SONDE_OK && out->work->report->values == 0) {
        err = sonde__fail(diag, SONDE_ENOTFOUND, path, NULL,
                          "no raw value of these tensors and steps was recorded");
    }
    return err == SONDE_OK ? flush(out, 0, diag) : err;
}

sonde_err sonde__export_elements(sonde__export *work, sonde_export_kind kind,
                                 const char *path, sonde_diag *diag)
{
    elements out = {.work = work,
                    .json = kind == SONDE_EXPORT_JSONL,
                    .format = sonde_print_options_default()};
    sonde_err err = sonde__export_out_open(&out.file, path, diag);

    if (err != SONDE_OK) {
        return err;
    }
    out.format.digits = 0;
    out.seen = sonde__calloc(
        (size_t)sonde_catalogue_count(sonde_trial_catalogue(work->trial)) + 1, 1);
    err = out.seen != NULL ? write_all(&out, path, diag)
                           : sonde__fail_nomem(diag, "an export");
    sonde_text_fini(&out.text);
    sonde_text_fini(&out.head);
    sonde__free(out.seen);
    if (err == SONDE_OK) {
        return sonde__export_out_close(&out.file, diag);
    }
    sonde__export_out_abandon(&out.file);
    return err;
}

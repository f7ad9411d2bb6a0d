/*
 * export_elements.c - raw values as CSV, a line an element, and as JSON lines, a line a value.
 *
 * Text goes to the file as it is made, so that memory stays the same whatever is exported.
 */
#include "tensor/convert.h"
#include "base/fail.h"
#include "base/memory.h"
#include "export/export_file.h"
#include "export/export_text.h"
#include "export/export_walk.h"

#include <math.h>
#include <stdio.h>

enum { FULL = 1 << 16 /* bytes of text that are worth writing */ };

typedef struct elements {
    sonde__export *work;
    bool json;
    sonde_print_options format; /* the shortest digits that give the element back */
    sonde__export_out_file out;
    sonde_text text, head; /* head: what the lines of a value begin with */
    unsigned char *seen;   /* by id */
} elements;

static sonde_err flush(elements *to, size_t from, sonde_diag *diag)
{
    if (to->text.length < from) {
        return SONDE_OK;
    }
    sonde__export_out_put(&to->out, to->text.data, to->text.length);
    to->text.length = 0;
    return sonde__export_out_status(&to->out, diag);
}

/* One real number of any dtype. */
static sonde_err add_real(elements *to, sonde_dtype dtype, const void *element)
{
    sonde_view view = sonde_view_of(dtype, 0, NULL, (void *)(uintptr_t)element);
    double value = 0.0;

    if (to->json && sonde_dtype_is_float(dtype)) {
        value = sonde_element_get(dtype, element);
        if (!isfinite(value)) {
            return sonde__export_number(&to->text, value, true);
        }
    }
    return sonde_format_tensor(&view, &to->format, 0, &to->text);
}

static sonde_err add_element(elements *to, sonde_dtype dtype,
                             const unsigned char *element)
{
    const sonde_dtype part = sonde__dtype_part(dtype);
    sonde_err err = SONDE_OK;

    if (part == dtype || !to->json) { /* in CSV 1.5-2j, as Python reads it */
        return add_real(to, dtype, element);
    }
    err = sonde__export_add(&to->text, "[");
    err = err == SONDE_OK ? add_real(to, part, element) : err;
    err = err == SONDE_OK ? sonde__export_add(&to->text, ",") : err;
    err = err == SONDE_OK ? add_real(to, part, element + sonde_dtype_size(part)) : err;
    return err == SONDE_OK ? sonde__export_add(&to->text, "]") : err;
}

/* What every line of a value begins with. */
static sonde_err add_head(const elements *to, const sonde_trial_record *record,
                          sonde_text *into)
{
    sonde_export_row row = {
        .tensor = sonde_catalogue_info(sonde_trial_catalogue(to->work->trial), record->id)
                      ->name,
        .worker = record->worker,
        .step = record->at.global_step,
        .mode = record->at.mode,
        .mode_step = record->at.mode_step};
    char text[96];
    sonde_err err = SONDE_OK;

    (void)sonde_trial_step_time(to->work->trial, row.mode, row.mode_step, row.worker,
                                &row.time);
    err = sonde__export_place(into, &row, to->json);
    (void)snprintf(text, sizeof text,
                   to->json ? ",\"micro_batch\":%d,\"replica\":%d" : ",%d,%d",
                   record->at.micro_batch, record->at.replica);
    return err == SONDE_OK ? sonde__export_add(into, text) : err;
}

/* A line for each of the first count elements. */
static sonde_err add_lines(elements *to, const sonde_trial_record *record, int64_t count,
                           sonde_diag *diag)
{
    const sonde_view *view = &record->view;
    const size_t size = sonde_dtype_size(view->dtype);
    sonde_err err = SONDE_OK;

    to->head.length = 0;
    err = add_head(to, record, &to->head);
    for (int64_t i = 0; err == SONDE_OK && i < count; i++) {
        char index[32];

        (void)snprintf(index, sizeof index, ",%lld,", (long long)i);
        err = sonde__export_add(&to->text, to->head.data);
        err = err == SONDE_OK ? sonde__export_add(&to->text, index) : err;
        err = err == SONDE_OK
                  ? add_element(to, view->dtype,
                                (const unsigned char *)view->data + (size_t)i * size)
                  : err;
        err = err == SONDE_OK ? sonde__export_add(&to->text, "\n") : err;
        err = err == SONDE_OK ? flush(to, FULL, diag) : err;
    }
    return err;
}

static sonde_err add_shape(sonde_text *text, const sonde_view *view)
{
    char part[64];
    sonde_err err = SONDE_OK;

    (void)snprintf(part, sizeof part, ",\"dtype\":\"%s\",\"shape\":[",
                   sonde_dtype_name(view->dtype));
    err = sonde__export_add(text, part);
    for (int d = 0; err == SONDE_OK && d < view->rank; d++) {
        (void)snprintf(part, sizeof part, d > 0 ? ",%lld" : "%lld",
                       (long long)view->shape[d]);
        err = sonde__export_add(text, part);
    }
    return err == SONDE_OK ? sonde__export_add(text, "],\"values\":[") : err;
}

/* One line, with the first count elements. */
static sonde_err add_object(elements *to, const sonde_trial_record *record, int64_t count,
                            sonde_diag *diag)
{
    const sonde_view *view = &record->view;
    const size_t size = sonde_dtype_size(view->dtype);
    sonde_err err = add_head(to, record, &to->text);

    err = err == SONDE_OK ? add_shape(&to->text, view) : err;
    for (int64_t i = 0; err == SONDE_OK && i < count; i++) {
        err = i > 0 ? sonde__export_add(&to->text, ",") : SONDE_OK;
        err = err == SONDE_OK
                  ? add_element(to, view->dtype,
                                (const unsigned char *)view->data + (size_t)i * size)
                  : err;
        err = err == SONDE_OK ? flush(to, FULL, diag) : err;
    }
    return err == SONDE_OK ? sonde__export_add(&to->text, "]}\n") : err;
}

static sonde_err add_value(void *user, const char *key, const sonde_trial_record *record,
                           sonde_diag *diag)
{
    elements *to = user;
    const int64_t most = to->work->options->elements;
    const int64_t all = sonde_view_count(&record->view);
    const int64_t count = most > 0 && all > most ? most : all;
    sonde_err err = SONDE_OK;

    (void)key;
    to->work->report->tensors += to->seen[record->id] == 0;
    to->work->report->values++;
    to->seen[record->id] = 1;
    err = to->json ? add_object(to, record, count, diag)
                   : add_lines(to, record, count, diag);
    if (err == SONDE_ENOMEM) {
        return sonde__fail_nomem(diag, "a line");
    }
    return err == SONDE_OK ? flush(to, FULL, diag) : err;
}

static sonde_err write_all(elements *to, const char *path, sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    if (!to->json) {
        err = sonde__export_place(&to->text, NULL, false);
        err = err == SONDE_OK
                  ? sonde__export_add(&to->text, ",micro_batch,replica,index,value\n")
                  : err;
        if (err == SONDE_OK) {
            err = flush(to, 0, diag);
        }
    }
    if (err == SONDE_OK) {
        err = sonde__export_values(to->work, add_value, to, diag);
    }
    if (err == SONDE_OK && to->work->report->values == 0) {
        err = sonde__fail(diag, SONDE_ENOTFOUND, path, NULL,
                          "no raw value of these tensors and steps was recorded");
    }
    return err == SONDE_OK ? flush(to, 0, diag) : err;
}

sonde_err sonde__export_elements(sonde__export *work, sonde_export_kind kind,
                                 const char *path, sonde_diag *diag)
{
    elements to = {.work = work,
                   .json = kind == SONDE_EXPORT_JSONL,
                   .format = sonde_print_options_default()};
    sonde_err err = sonde__export_out_open(&to.out, path, diag);

    if (err != SONDE_OK) {
        return err;
    }
    to.format.digits = 0;
    to.seen = sonde__calloc(
        (size_t)sonde_catalogue_count(sonde_trial_catalogue(work->trial)) + 1, 1);
    err = to.seen != NULL ? write_all(&to, path, diag)
                          : sonde__fail_nomem(diag, "an export");
    sonde_text_fini(&to.text);
    sonde_text_fini(&to.head);
    sonde__free(to.seen);
    if (err == SONDE_OK) {
        return sonde__export_out_close(&to.out, diag);
    }
    sonde__export_out_abandon(&to.out);
    return err;
}

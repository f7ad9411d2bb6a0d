/*
 * export_text.c - statistics and raw values as CSV (RFC 4180) and JSON lines: a line for
 * each row; of raw values in CSV a line for each element, in JSON for each value.
 *
 * Text goes to the file as it is made, so memory does not grow with the export.
 */
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "export/export.h"
#include "tensor/convert.h"

#include <sonde/json.h>

#include <sonde/sketch.h>

#include <float.h>
#include <math.h>
#include <string.h>

enum {
    OFTEN = 256, /* rows between two calls of progress */
    FULL = 1 << 16,
    BLOCK = 1024 /* elements formatted in one call */
};

/* --- rows as CSV ------------------------------------------------------------------ */

/* A field, quoted if necessary. */
static void put_field(sonde_text *text, const char *field)
{
    if (strpbrk(field, ",\"\r\n") == NULL) {
        sonde_text_add(text, field);
        return;
    }
    sonde_text_add(text, "\"");
    for (; *field != '\0'; field++) {
        sonde_text_put(text, field, 1);
        if (*field == '"') {
            sonde_text_add(text, "\"");
        }
    }
    sonde_text_add(text, "\"");
}

static void put_number(sonde_text *text, double value)
{
    sonde_json number = {.text = text};

    if (isnan(value)) {
        sonde_text_add(text, "nan");
    } else if (isinf(value)) {
        sonde_text_add(text, value > 0.0 ? "inf" : "-inf");
    } else {
        sonde_json_real(&number, NULL, value);
    }
}

/* Step to tensor; row NULL: their names. */
static void put_csv_place(sonde_text *text, const sonde_export_row *row)
{
    if (row == NULL) {
        sonde_text_add(text, "step,mode,mode_step,worker,time,tensor");
        return;
    }
    sonde_text_format(text, "%lld,%s,%lld,%d,", (long long)row->step,
                      sonde_mode_name(row->mode), (long long)row->mode_step, row->worker);
    if (row->time > 0) {
        sonde_text_format(text, "%lld.%06lld", (long long)(row->time / 1000000000),
                          (long long)(row->time / 1000 % 1000000));
    }
    sonde_text_add(text, ",");
    put_field(text, row->tensor);
}

static void put_csv_row(sonde_text *text, const sonde_export_row *row,
                        const sonde_reduction *stats, size_t count)
{
    put_csv_place(text, row);
    for (size_t i = 0; i < count; i++) {
        sonde_text_add(text, ",");
        if (row == NULL) {
            put_field(text, stats[i].name);
        } else if (row->values[i].how != 0 && stats[i].kind == SONDE_REDUCTION_HASH) {
            sonde_text_format(text, "%016llx", (unsigned long long)row->values[i].hash);
        } else if (row->values[i].how != 0) {
            put_number(text, row->values[i].number);
        }
    }
    sonde_text_add(text, "\n");
}

/* --- rows as JSON ----------------------------------------------------------------- */

/* Opens an object with step to tensor. */
static void put_json_place(sonde_json *json, const sonde_export_row *row)
{
    sonde_json_object(json, NULL);
    sonde_json_int(json, "step", row->step);
    sonde_json_string(json, "mode", sonde_mode_name(row->mode));
    sonde_json_int(json, "mode_step", row->mode_step);
    sonde_json_int(json, "worker", row->worker);
    if (row->time > 0) {
        sonde_json_format(json, "time", "%lld.%06lld",
                          (long long)(row->time / 1000000000),
                          (long long)(row->time / 1000 % 1000000));
    } else {
        sonde_json_raw(json, "time", "null");
    }
    sonde_json_string(json, "tensor", row->tensor);
}

/* Leaves the object open. */
static void put_json_row(sonde_json *json, const sonde_export_row *row,
                         const sonde_reduction *stats, size_t count)
{
    put_json_place(json, row);
    for (size_t i = 0; i < count; i++) {
        const sonde_reduced *value = &row->values[i];

        if (value->how == 0) {
            sonde_json_raw(json, stats[i].name, "null");
        } else if (stats[i].kind == SONDE_REDUCTION_HASH) {
            sonde_json_format(json, stats[i].name, "\"%016llx\"",
                              (unsigned long long)value->hash);
        } else {
            sonde_json_real(json, stats[i].name, value->number);
        }
    }
}

sonde_err sonde_export_row_text(sonde_export_kind kind, const sonde_export_row *row,
                                const sonde_reduction *stats, size_t stat_count,
                                sonde_text *text, sonde_diag *diag)
{
    if (kind == SONDE_EXPORT_CSV) {
        put_csv_row(text, row, stats, stat_count);
    } else if (kind != SONDE_EXPORT_JSONL) {
        return sonde__fail(diag, SONDE_EINVAL, "kind", "csv or jsonl", "%d", (int)kind);
    } else if (row != NULL) { /* JSON lines have no header line */
        sonde_json json = {.text = text};

        put_json_row(&json, row, stats, stat_count);
        sonde_json_end(&json);
        sonde_text_add(text, "\n");
    }
    return text->failed ? sonde__fail_nomem(diag, "a row") : SONDE_OK;
}

/* --- the file of rows ------------------------------------------------------------- */

typedef struct rows_file {
    sonde__export *work;
    sonde_export_kind kind;
    sonde__whole_file file;
    sonde_text text;
    uint32_t last;        /* tensor */
    uint64_t count;       /* of rows */
    sonde_sketch *sketch; /* room for one; of TensorBoard only */
} rows_file;

static sonde_err put_text(rows_file *out, sonde_diag *diag)
{
    if (out->text.failed) {
        return sonde__fail_nomem(diag, "a row");
    }
    (void)sonde__whole_write(&out->file, out->text.data, out->text.length);
    out->text.length = 0;
    return sonde__whole_status(&out->file, diag);
}

static sonde_err end_row(rows_file *out, uint32_t id, sonde_diag *diag)
{
    SONDE__TRY(put_text(out, diag));
    out->work->report->tensors += id != out->last;
    out->last = id;
    return ++out->count % OFTEN == 0
               ? sonde__export_progress(out->work->options, 0, 0, diag)
               : SONDE_OK;
}

static sonde_err put_row(void *user, const sonde_export_row *row, sonde_diag *diag)
{
    rows_file *out = user;

    SONDE__TRY(sonde_export_row_text(out->kind, row, out->work->stats,
                                     out->work->stat_count, &out->text, diag));
    out->work->report->rows++;
    return end_row(out, row->id, diag);
}

/* --- rows for TensorBoard --------------------------------------------------------- */

static void put_bin(sonde_json *json, double lower, double upper, uint64_t count)
{
    sonde_json_list(json, NULL);
    sonde_json_real(json, NULL, lower);
    sonde_json_real(json, NULL, upper);
    sonde_json_uint(json, NULL, count);
    sonde_json_end(json);
}

/* The bins that are not empty, in order: lower (exclusive) and upper edge, and count. */
static void put_bins(sonde_json *json, const sonde_sketch *sketch)
{
    double lower = 0.0, upper = 0.0;

    sonde_json_list(json, "bins");
    for (int bin = SONDE_SKETCH_BINS - 1; bin >= 0; bin--) {
        if (sketch->negative[bin] > 0) {
            sonde_sketch_bounds(bin, &lower, &upper);
            put_bin(json, -upper, -lower, sketch->negative[bin]);
        }
    }
    if (sketch->zero > 0) {
        put_bin(json, -DBL_MIN, 0.0, sketch->zero);
    }
    for (int bin = 0; bin < SONDE_SKETCH_BINS; bin++) {
        if (sketch->positive[bin] > 0) {
            sonde_sketch_bounds(bin, &lower, &upper);
            put_bin(json, lower, upper, sketch->positive[bin]);
        }
    }
    sonde_json_end(json);
}

/* The histogram of a row's step, if a sketch or a value was saved. */
static sonde_err put_histogram(rows_file *out, sonde_json *json,
                               const sonde_export_row *row, sonde_diag *diag)
{
    sonde_trial *trial = out->work->trial;
    const sonde_trial_at place = {.mode = SONDE_MODE_GLOBAL,
                                  .step = row->step,
                                  .worker = row->worker,
                                  .micro_batch = -1,
                                  .replica = -1};
    const sonde_vitals *all = row->vitals;
    const uint64_t finite = all->count - all->nan - all->pos_inf - all->neg_inf;
    sonde_diag why = {0};

    if ((sonde_trial_has(trial, row->id, &place) & (SONDE_HOW_RAW | SONDE_HOW_SKETCH)) ==
        0) {
        return SONDE_OK;
    }
    const sonde_err err = sonde_trial_sketch(trial, row->id, &place, out->sketch, &why);

    if (err != SONDE_OK) {
        return sonde__export_leave_out(out->work, err, &why, diag);
    }
    sonde_json_object(json, "histogram");
    sonde_json_real(json, "min", finite > 0 ? all->min : 0.0);
    sonde_json_real(json, "max", finite > 0 ? all->max : 0.0);
    sonde_json_uint(json, "count", finite);
    sonde_json_real(json, "sum", all->sum);
    sonde_json_real(json, "sumsq", all->sumsq);
    put_bins(json, out->sketch);
    sonde_json_end(json);
    out->work->report->histograms++;
    return SONDE_OK;
}

/* A row as JSON: of a single number its value, else statistics and histogram. */
static sonde_err put_board_row(void *user, const sonde_export_row *row, sonde_diag *diag)
{
    rows_file *out = user;
    const sonde__export *work = out->work;
    const sonde_tensor_info *info =
        sonde_catalogue_info(sonde_trial_catalogue(work->trial), row->id);
    const sonde_view shape = sonde_view_of(info->dtype, info->rank, info->shape, NULL);
    const bool number = sonde_view_count(&shape) == 1 && row->vitals != NULL;
    const size_t count = number ? 0 : work->stat_count;
    sonde_json json = {.text = &out->text};

    put_json_row(&json, row, work->stats, count);
    sonde_json_string(&json, "folder", sonde__export_worker(work, row->worker));
    sonde_json_real(&json, "seconds", 1e-9 * (double)row->time);
    for (size_t i = 0; i < count; i++) {
        work->report->scalars += row->values[i].how != 0;
    }
    if (number) {
        sonde_json_real(&json, "value", sonde_vitals_get(row->vitals, SONDE_STAT_MEAN));
        work->report->scalars++;
    } else if (row->vitals != NULL && !sonde_vitals_are_norms(row->vitals)) {
        SONDE__TRY(put_histogram(out, &json, row, diag));
    }
    sonde_json_end(&json);
    sonde_text_add(&out->text, "\n");
    return end_row(out, row->id, diag);
}

/* The line before the rows: when the run was made, and the names of its statistics. */
static sonde_err begin_board(rows_file *out, sonde_diag *diag)
{
    const sonde__export *work = out->work;
    sonde_json json = {.text = &out->text};
    sonde_run_info info;

    sonde_trial_describe(work->trial, &info);
    sonde_json_object(&json, NULL);
    sonde_json_string(&json, "created", info.created);
    sonde_json_list(&json, "statistics");
    for (size_t i = 0; i < work->stat_count; i++) {
        if (work->stats[i].kind == SONDE_REDUCTION_HASH) {
            return sonde__fail(diag, SONDE_EINVAL, work->stats[i].name,
                               "a statistic that is a number", "a scalar of TensorBoard");
        }
        sonde_json_string(&json, NULL, work->stats[i].name);
    }
    sonde_json_end(&json);
    sonde_json_end(&json);
    sonde_text_add(&out->text, "\n");
    out->sketch = sonde__malloc(sizeof *out->sketch);
    return out->sketch != NULL ? SONDE_OK : sonde__fail_nomem(diag, "a sketch");
}

sonde_err sonde__export_rows(sonde__export *work, sonde_export_kind kind,
                             const char *path, sonde_diag *diag)
{
    static const sonde_stat of_board[] = {SONDE_STAT_MEAN, SONDE_STAT_STD,
                                          SONDE_STAT_MIN,  SONDE_STAT_MAX,
                                          SONDE_STAT_L2,   SONDE_STAT_NONFINITE};
    const bool board = kind == SONDE_EXPORT_TENSORBOARD;
    rows_file out = {.work = work, .kind = kind, .last = SONDE_NO_TENSOR};
    sonde_err err = SONDE_OK;

    sonde__export_choose(work, board ? of_board : NULL, SONDE_COUNT_OF(of_board));
    SONDE__TRY_GO(board ? begin_board(&out, diag)
                        : sonde_export_row_text(kind, NULL, work->stats, work->stat_count,
                                                &out.text, diag));
    SONDE__TRY_GO(sonde__export_open(&out.file, path, diag));
    SONDE__TRY_GO(put_text(&out, diag));
    SONDE__TRY_GO(
        sonde__export_walk(work, false, board ? put_board_row : put_row, &out, diag));
    if (out.count == 0) {
        err = sonde__fail(diag, SONDE_ENOTFOUND, path, NULL,
                          "nothing of these tensors and steps was recorded");
        goto error;
    }
    err = sonde__export_close(&out.file, diag);
error:
    sonde__whole_close(&out.file);
    sonde_text_fini(&out.text);
    sonde__free(out.sketch);
    return err;
}

/* --- raw values ------------------------------------------------------------------- */

typedef struct elements {
    sonde__export *work;
    bool json;
    sonde_print_options format;       /* the shortest digits that give the element back */
    sonde_print_options block_format; /* the same, a list without brackets on one line */
    sonde__whole_file file;
    sonde_text text, head; /* head: the beginning of the lines of a value */
    unsigned char *seen;   /* by id */
} elements;

/* Writes the text if there are at least so many bytes. */
static sonde_err flush(elements *out, size_t least, sonde_diag *diag)
{
    if (out->text.failed) {
        return sonde__fail_nomem(diag, "a line");
    }
    if (out->text.length < least) {
        return SONDE_OK;
    }
    (void)sonde__whole_write(&out->file, out->text.data, out->text.length);
    out->text.length = 0;
    return sonde__whole_status(&out->file, diag);
}

/* One real number of any dtype. */
static void put_real(elements *out, sonde_dtype dtype, const void *element)
{
    const sonde_view view = sonde_view_of(dtype, 0, NULL, (void *)(uintptr_t)element);
    const bool json_float = out->json && sonde_dtype_is_float(dtype);

    if (json_float && !isfinite(sonde_element_get(dtype, element))) {
        sonde_json number = {.text = &out->text};

        sonde_json_real(&number, NULL, sonde_element_get(dtype, element));
    } else if (sonde_format_tensor(&view, &out->format, 0, &out->text) != SONDE_OK) {
        out->text.failed = true;
    }
}

static const unsigned char *element_at(const sonde_view *view, int64_t i)
{
    return (const unsigned char *)view->data + (size_t)i * sonde_dtype_size(view->dtype);
}

static void put_element(elements *out, const sonde_view *view, int64_t i)
{
    const sonde_dtype dtype = view->dtype, part = sonde__dtype_part(dtype);
    const unsigned char *element = element_at(view, i);

    if (part == dtype || !out->json) { /* in CSV 1.5-2j, as Python reads it */
        put_real(out, dtype, element);
        return;
    }
    sonde_text_add(&out->text, "[");
    put_real(out, part, element);
    sonde_text_add(&out->text, ",");
    put_real(out, part, element + sonde_dtype_size(part));
    sonde_text_add(&out->text, "]");
}

/* A line for each of the first count elements. */
static sonde_err put_lines(elements *out, const sonde_export_row *row,
                           const sonde_trial_record *record, int64_t count,
                           sonde_diag *diag)
{
    out->head.length = 0;
    put_csv_place(&out->head, row);
    sonde_text_format(&out->head, ",%d,%d", record->at.micro_batch, record->at.replica);
    if (out->head.failed) {
        return sonde__fail_nomem(diag, "a line");
    }
    for (int64_t i = 0; i < count; i++) {
        sonde_text_put(&out->text, out->head.data, out->head.length);
        sonde_text_format(&out->text, ",%lld,", (long long)i);
        put_element(out, &record->view, i);
        sonde_text_add(&out->text, "\n");
        SONDE__TRY(flush(out, FULL, diag));
    }
    return SONDE_OK;
}

/* JSON's numbers, from element i on, in one call: at most BLOCK, up to the first that
 * needs a form of its own. Returns how many. */
static int64_t put_block(elements *out, const sonde_view *view, int64_t i, int64_t count)
{
    const sonde_dtype dtype = view->dtype;
    const bool is_float = sonde_dtype_is_float(dtype);
    int64_t n = 0;
    sonde_view block;

    if (sonde__dtype_part(dtype) != dtype) {
        return 0;
    }
    while (n < SONDE_MIN(count - i, (int64_t)BLOCK) &&
           (!is_float || isfinite(sonde_element_get(dtype, element_at(view, i + n))))) {
        n++;
    }
    block = sonde_view_of(dtype, 1, &n, (void *)(uintptr_t)element_at(view, i));
    if (n > 0 &&
        sonde_format_tensor(&block, &out->block_format, 0, &out->text) != SONDE_OK) {
        out->text.failed = true;
    }
    return n;
}

/* The elements of a list. */
static sonde_err put_list(elements *out, const sonde_view *view, int64_t count,
                          sonde_diag *diag)
{
    int64_t i = 0;

    while (i < count) {
        int64_t n = 0;

        sonde_text_add(&out->text, i > 0 ? "," : "");
        n = put_block(out, view, i, count);
        if (n == 0) {
            put_element(out, view, i);
            n = 1;
        }
        SONDE__TRY(flush(out, FULL, diag));
        i += n;
    }
    return SONDE_OK;
}

/* One line, with the first count elements. */
static sonde_err put_object(elements *out, const sonde_export_row *row,
                            const sonde_trial_record *record, int64_t count,
                            sonde_diag *diag)
{
    const sonde_view *view = &record->view;
    sonde_json json = {.text = &out->text};
    sonde_err err = SONDE_OK;

    put_json_place(&json, row);
    sonde_json_int(&json, "micro_batch", record->at.micro_batch);
    sonde_json_int(&json, "replica", record->at.replica);
    sonde_json_string(&json, "dtype", sonde_dtype_name(view->dtype));
    sonde_json_list(&json, "shape");
    for (int d = 0; d < view->rank; d++) {
        sonde_json_int(&json, NULL, view->shape[d]);
    }
    sonde_json_end(&json);
    sonde_json_list(&json, "values");
    err = put_list(out, view, count, diag);
    sonde_json_end(&json);
    sonde_json_end(&json);
    sonde_text_add(&out->text, "\n");
    return err;
}

static sonde_err put_value(void *user, const char *key, const sonde_trial_record *record,
                           sonde_diag *diag)
{
    elements *out = user;
    const sonde_trial *trial = out->work->trial;
    const int64_t most = out->work->options->elements;
    const int64_t all = sonde_view_count(&record->view);
    const int64_t count = most > 0 && all > most ? most : all;
    sonde_export_row row = {
        .tensor = sonde_catalogue_info(sonde_trial_catalogue(trial), record->id)->name,
        .worker = record->worker,
        .step = record->at.global_step,
        .mode = record->at.mode,
        .mode_step = record->at.mode_step};
    sonde_err err = SONDE_OK;

    (void)key;
    (void)sonde_trial_step_time(trial, row.mode, row.mode_step, row.worker, &row.time);
    out->work->report->tensors += out->seen[record->id] == 0;
    out->work->report->values++;
    out->seen[record->id] = 1;
    err = out->json ? put_object(out, &row, record, count, diag)
                    : put_lines(out, &row, record, count, diag);
    return err != SONDE_OK ? err : flush(out, FULL, diag);
}

static sonde_err write_all(elements *out, const char *path, sonde_diag *diag)
{
    if (!out->json) {
        put_csv_place(&out->text, NULL);
        sonde_text_add(&out->text, ",micro_batch,replica,index,value\n");
    }
    SONDE__TRY(sonde__export_values(out->work, put_value, out, diag));
    if (out->work->report->values == 0) {
        return sonde__fail(diag, SONDE_ENOTFOUND, path, NULL,
                           "no raw value of these tensors and steps was recorded");
    }
    return flush(out, 0, diag);
}

sonde_err sonde__export_elements(sonde__export *work, sonde_export_kind kind,
                                 const char *path, sonde_diag *diag)
{
    elements out = {.work = work,
                    .json = kind == SONDE_EXPORT_JSONL,
                    .format = sonde_print_options_default()};
    sonde_err err = SONDE_OK;

    SONDE__TRY(sonde__export_open(&out.file, path, diag));
    out.format.digits = 0;
    out.block_format =
        (sonde_print_options){.size = sizeof(sonde_print_options), .separator = ","};
    out.seen = sonde__calloc(
        (size_t)sonde_catalogue_count(sonde_trial_catalogue(work->trial)) + 1, 1);
    if (out.seen == NULL) {
        err = sonde__fail_nomem(diag, "an export");
        goto error;
    }
    SONDE__TRY_GO(write_all(&out, path, diag));
    err = sonde__export_close(&out.file, diag);
error:
    sonde__whole_close(&out.file);
    sonde_text_fini(&out.text);
    sonde_text_fini(&out.head);
    sonde__free(out.seen);
    return err;
}

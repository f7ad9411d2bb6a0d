/*
 * export_values.c - raw values as npz and as one safetensors file.
 *
 * Npz is written in one go. Safetensors has its header first, so the run is walked twice:
 * once for keys, dtypes and shapes, once for the data, which are never all in memory.
 */
#include "tensor/convert.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "export/export_npz.h"
#include "export/export_walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OFTEN = 64, MOST_HEADER = 100 * 1000 * 1000 };

/* --- walking ---------------------------------------------------------------------- */

static const char *worker_name(const sonde__export *work, int rank)
{
    for (size_t i = 0; sonde_trial_worker_name(work->trial, i) != NULL; i++) {
        if (sonde_trial_worker(work->trial, i) == rank) {
            return sonde_trial_worker_name(work->trial, i);
        }
    }
    return "";
}

char *sonde__export_key(const sonde__export *work, const sonde_trial_record *record)
{
    const char *name =
        sonde_catalogue_info(sonde_trial_catalogue(work->trial), record->id)->name;
    const char *worker = work->many_workers ? worker_name(work, record->worker) : "";
    const size_t size = strlen(worker) + strlen(name) + 96;
    char *key = sonde__malloc(size);
    int used = 0;

    if (key == NULL) {
        return NULL;
    }
    used = snprintf(key, size, "%s%s%010lld/%s/%s", worker, worker[0] != '\0' ? "/" : "",
                    (long long)record->at.global_step, sonde_mode_name(record->at.mode),
                    name);
    if (record->at.micro_batch != 0 || record->at.replica != 0) {
        (void)snprintf(key + used, size - (size_t)used, "@%d.%d", record->at.micro_batch,
                       record->at.replica);
    }
    return key;
}

static sonde_err give(sonde__export *work, const sonde_trial_record *record,
                      sonde__export_value_fn *value, void *user, sonde_diag *diag)
{
    const int asked = work->options->worker;
    char *key = NULL;
    sonde_err err = SONDE_OK;

    if ((asked >= 0 && record->worker != asked) ||
        !sonde__export_has_step(work->options, &record->at)) {
        return SONDE_OK;
    }
    key = sonde__export_key(work, record);
    if (key == NULL) {
        return sonde__fail_nomem(diag, "a name");
    }
    err = value(user, key, record, diag);
    sonde__free(key);
    return err;
}

sonde_err sonde__export_values(sonde__export *work, sonde__export_value_fn *value,
                               void *user, sonde_diag *diag)
{
    const bool global = work->options->mode == SONDE_MODE_GLOBAL;
    const sonde_trial_cursor_options options = {
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
    err = sonde_trial_cursor_create(work->trial, &options, &cursor, diag);
    for (uint64_t done = 0; err == SONDE_OK; done++) {
        sonde_trial_record record;
        sonde_diag why = {0};

        if (done % OFTEN == 0) {
            err = sonde__export_go_on(work->options, SONDE_MIN(done, info.records),
                                      info.records, diag);
        }
        if (err != SONDE_OK) {
            break;
        }
        err = sonde_trial_next(cursor, &record, &why);
        if (err == SONDE_OK) {
            err = give(work, &record, value, user, diag);
        } else if (err != SONDE_EEND) {
            err = sonde__export_left_out(work, err, &why) ? SONDE_OK : err;
            if (err != SONDE_OK && diag != NULL) {
                *diag = why;
            }
        }
    }
    sonde_trial_cursor_destroy(cursor);
    return err == SONDE_EEND ? SONDE_OK : err;
}

static sonde_err fail_nothing(const char *path, sonde_diag *diag)
{
    return sonde__fail(diag, SONDE_ENOTFOUND, path, NULL,
                       "no raw value of these tensors and steps can be read");
}

/* Counts how many tensors values were of. */
typedef struct seen {
    unsigned char *of; /* by id */
    size_t count;
} seen;

static bool see_init(seen *tensors, const sonde_trial *trial)
{
    *tensors = (seen){
        .of = sonde__calloc(sonde_catalogue_count(sonde_trial_catalogue(trial)) + 1, 1)};
    return tensors->of != NULL;
}

static void see(seen *tensors, uint32_t id)
{
    tensors->count += tensors->of[id] == 0;
    tensors->of[id] = 1;
}

/* --- npz -------------------------------------------------------------------------- */

typedef struct npz_writer {
    sonde__export_npz_file npz;
    seen tensors;
} npz_writer;

static sonde_err add_to_npz(void *user, const char *key, const sonde_trial_record *record,
                            sonde_diag *diag)
{
    npz_writer *to = user;

    see(&to->tensors, record->id);
    return sonde__export_npz_add(&to->npz, key, &record->view, diag);
}

sonde_err sonde__export_npz(sonde__export *work, const char *path, sonde_diag *diag)
{
    npz_writer to = {0};
    sonde_err err = sonde__export_npz_open(&to.npz, path, diag);

    if (err != SONDE_OK) {
        return err;
    }
    err = see_init(&to.tensors, work->trial)
              ? sonde__export_values(work, add_to_npz, &to, diag)
              : sonde__fail_nomem(diag, "an export");
    if (err == SONDE_OK && to.npz.count == 0) {
        err = fail_nothing(path, diag);
    }
    work->report->values = to.npz.count;
    work->report->tensors = to.tensors.count;
    if (err == SONDE_OK) {
        err = sonde__export_npz_close(&to.npz, diag);
    } else {
        sonde__export_npz_abandon(&to.npz);
    }
    sonde__free(to.tensors.of);
    return err;
}

/* --- safetensors ------------------------------------------------------------------ */

typedef struct item {
    char *key; /* owned */
    uint32_t id;
    sonde_trial_at at;
    sonde_view view; /* without data */
    size_t number;   /* in order of the run */
} item;

typedef struct items {
    item *list;
    size_t count, capacity;
    seen tensors;
} items;

static sonde_err add_item(void *user, const char *key, const sonde_trial_record *record,
                          sonde_diag *diag)
{
    items *to = user;
    item one = {.key = sonde__strdup(key),
                .id = record->id,
                .at = {.mode = SONDE_MODE_GLOBAL,
                       .step = record->at.global_step,
                       .worker = record->worker,
                       .micro_batch = record->at.micro_batch,
                       .replica = record->at.replica},
                .view = record->view,
                .number = to->count};

    one.view.data = NULL;
    if (one.key == NULL ||
        !sonde__reserve(&to->list, &to->capacity, to->count + 1, sizeof one)) {
        sonde__free(one.key);
        return sonde__fail_nomem(diag, "an export");
    }
    see(&to->tensors, record->id);
    to->list[to->count++] = one;
    return SONDE_OK;
}

/* Wider elements first, so that all lie aligned; else in order of the run. */
static int compare(const void *a, const void *b)
{
    const item *x = a, *y = b;
    const size_t wide_x = sonde_dtype_size(x->view.dtype);
    const size_t wide_y = sonde_dtype_size(y->view.dtype);

    return wide_x != wide_y ? (wide_x < wide_y) - (wide_x > wide_y)
                            : (x->number > y->number) - (x->number < y->number);
}

static void put_quoted(sonde__export_out_file *to, const char *text)
{
    sonde__export_out_text(to, "\"");
    for (; *text != '\0'; text++) {
        char escaped[8] = {*text};

        if (*text == '"' || *text == '\\') {
            (void)snprintf(escaped, sizeof escaped, "\\%c", *text);
        } else if ((unsigned char)*text < 0x20) {
            (void)snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)*text);
        }
        sonde__export_out_text(to, escaped);
    }
    sonde__export_out_text(to, "\"");
}

static uint64_t bytes_of(const sonde_view *view)
{
    return (uint64_t)sonde_view_count(view) * sonde_dtype_size(view->dtype);
}

static void put_entry(sonde__export_out_file *to, const item *one, uint64_t begin)
{
    char text[128];

    put_quoted(to, one->key);
    (void)snprintf(text, sizeof text, ":{\"dtype\":\"%s\",\"shape\":[",
                   sonde__dtype_short_name(one->view.dtype));
    sonde__export_out_text(to, text);
    for (int d = 0; d < one->view.rank; d++) {
        (void)snprintf(text, sizeof text, "%s%lld", d > 0 ? "," : "",
                       (long long)one->view.shape[d]);
        sonde__export_out_text(to, text);
    }
    (void)snprintf(text, sizeof text, "],\"data_offsets\":[%llu,%llu]}",
                   (unsigned long long)begin,
                   (unsigned long long)(begin + bytes_of(&one->view)));
    sonde__export_out_text(to, text);
}

/* Length and JSON, padded so that data begin at a multiple of 8. */
static sonde_err put_header(sonde__export_out_file *to, const sonde__export *work,
                            const items *all, sonde_diag *diag)
{
    sonde_run_info info;
    uint64_t begin = 0, length = 0;

    sonde_trial_describe(work->trial, &info);
    sonde__export_out_put(to, &length, sizeof length); /* known at the end */
    sonde__export_out_text(to, "{\"__metadata__\":{\"sonde_run\":\"1\",\"id\":");
    put_quoted(to, info.id);
    sonde__export_out_text(to, ",\"model\":");
    put_quoted(to, info.model);
    sonde__export_out_text(to, "}");
    for (size_t i = 0; i < all->count; i++) {
        sonde__export_out_text(to, ",");
        put_entry(to, &all->list[i], begin);
        begin += bytes_of(&all->list[i].view);
    }
    sonde__export_out_text(to, "}");
    while (to->written % 8 != 0) {
        sonde__export_out_text(to, " ");
    }
    length = to->written - sizeof length;
    if (length > MOST_HEADER) {
        return sonde__fail(diag, SONDE_EINVAL, to->file.path,
                           "fewer tensors or steps: at most 100 MB",
                           "a header of %llu bytes", (unsigned long long)length);
    }
    sonde__export_out_patch(to, 0, &length, sizeof length);
    return sonde__export_out_status(to, diag);
}

static sonde_err put_data(sonde__export_out_file *to, sonde__export *work,
                          const items *all, sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    for (size_t i = 0; err == SONDE_OK && i < all->count; i++) {
        const item *one = &all->list[i];
        sonde_view view;

        err = sonde_trial_value(work->trial, one->id, &one->at, &view, diag);
        if (err == SONDE_OK && (view.dtype != one->view.dtype ||
                                !sonde_view_same_shape(&view, &one->view))) {
            err = sonde__fail(diag, SONDE_EFORMAT, one->key, NULL,
                              "has changed while it was exported");
        }
        if (err == SONDE_OK) {
            sonde__export_out_view(to, &view);
            err = sonde__export_out_status(to, diag);
        }
        if (err == SONDE_OK && i % OFTEN == 0) {
            err = sonde__export_go_on(work->options, i, all->count, diag);
        }
    }
    return err;
}

static sonde_err write_safetensors(sonde__export *work, const char *path, items *all,
                                   sonde_diag *diag)
{
    sonde__export_out_file file;
    sonde_err err = sonde__export_out_open(&file, path, diag);

    if (err != SONDE_OK) {
        return err;
    }
    if (all->count > 1) {
        qsort(all->list, all->count, sizeof all->list[0], compare);
    }
    err = put_header(&file, work, all, diag);
    if (err == SONDE_OK) {
        err = put_data(&file, work, all, diag);
    }
    if (err == SONDE_OK) {
        return sonde__export_out_close(&file, diag);
    }
    sonde__export_out_abandon(&file);
    return err;
}

sonde_err sonde__export_safetensors(sonde__export *work, const char *path,
                                    sonde_diag *diag)
{
    items all = {0};
    sonde_err err = see_init(&all.tensors, work->trial)
                        ? sonde__export_values(work, add_item, &all, diag)
                        : sonde__fail_nomem(diag, "an export");

    if (err == SONDE_OK && all.count == 0) {
        err = fail_nothing(path, diag);
    }
    if (err == SONDE_OK) {
        err = write_safetensors(work, path, &all, diag);
    }
    work->report->values = all.count;
    work->report->tensors = all.tensors.count;
    for (size_t i = 0; i < all.count; i++) {
        sonde__free(all.list[i].key);
    }
    sonde__free(all.list);
    sonde__free(all.tensors.of);
    return err;
}

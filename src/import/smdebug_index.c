/*
 * smdebug_index.c - one index file to items, and an item to its value.
 *
 *     {"meta": {"mode": "TRAIN", "mode_step": 3, "event_file_name": "events/..."},
 *      "tensor_payload": [{"tensorname", "start_idx", "length"}],
 *      "shape_payload": [...]}
 */
#include "import/smdebug_event.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "import/smdebug_state.h"

#include <assert.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* --- event files -------------------------------------------------------------------- */

static const char *event_name(const sonde__trial_worker *worker, int64_t step, char *name)
{
    (void)snprintf(name, SONDE__PATH, "events/%012lld/%012lld_%s.tfevents",
                   (long long)step, (long long)step, worker->name);
    return name;
}

static int open_events(const sonde_trial *trial, const sonde__trial_worker *worker,
                       const sonde__trial_file *file, char *path)
{
    char name[SONDE__PATH];

    (void)sonde__trial_path(
        trial, NULL,
        file->name != NULL ? file->name : event_name(worker, (int64_t)file->number, name),
        path);
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

/* The record's bytes, to trial->value. */
static sonde_err read_record(sonde_trial *trial, const sonde__trial_worker *worker,
                             const sonde__trial_file *file, uint64_t offset,
                             uint64_t bytes, sonde_diag *diag)
{
    char path[SONDE__PATH];
    size_t count = 0;
    sonde_err err = SONDE_OK;
    const int fd = open_events(trial, worker, file, path);

    if (fd < 0) {
        return sonde__fail_errno(diag, path, "cannot be opened");
    }
    if (lseek(fd, 0, SEEK_END) < (off_t)(offset + bytes)) {
        err =
            sonde__fail(diag, SONDE_EFORMAT, path, NULL, "cut off: no %llu bytes at %llu",
                        (unsigned long long)bytes, (unsigned long long)offset);
    } else if (!sonde__trial_scratch_reserve(&trial->value, (size_t)bytes)) {
        err = sonde__fail_nomem(diag, path);
    } else {
        err = sonde__trial_read_at(fd, trial->value.bytes, (size_t)bytes, offset, &count,
                                   path, diag);
    }
    (void)close(fd);
    if (err == SONDE_OK && count < bytes) {
        err = sonde__fail(diag, SONDE_EFORMAT, path, NULL, "cut off at %llu",
                          (unsigned long long)(offset + count));
    }
    return err;
}

static sonde_err read_tensor(sonde_trial *trial, const sonde__trial_worker *worker,
                             const sonde__trial_file *file, uint64_t offset,
                             uint64_t bytes, const char *tag, sonde_view *view,
                             sonde_diag *diag)
{
    const unsigned char *payload = NULL;
    char title[256];
    size_t size = 0;
    sonde_err err = read_record(trial, worker, file, offset, bytes, diag);

    (void)snprintf(title, sizeof title, "%s: '%.128s' at step %llu", worker->name, tag,
                   (unsigned long long)file->number);
    if (err == SONDE_OK) {
        err = sonde__import_event_unwrap(trial->value.bytes, (size_t)bytes, title,
                                         &payload, &size, diag);
    }
    return err == SONDE_OK
               ? sonde__import_event_tensor(payload, size, tag, title, view, diag)
               : err;
}

sonde_err sonde__trial_smdebug_value(sonde_trial *trial, sonde__trial_worker *worker,
                                     const sonde__trial_raw_item *item, sonde_view *view,
                                     sonde_diag *diag)
{
    const sonde__trial_file *file = &worker->files[SONDE__RAW].items[item->segment];

    return read_tensor(trial, worker, file, item->offset, item->bytes,
                       sonde_catalogue_info(trial->catalogue, item->item.tensor)->name,
                       view, diag);
}

void sonde__trial_smdebug_ahead(const sonde_trial *trial,
                                const sonde__trial_worker *worker,
                                const sonde__trial_file *file, uint64_t offset,
                                uint64_t count)
{
    char path[SONDE__PATH];
    const int fd = open_events(trial, worker, file, path);

    if (fd >= 0) {
        (void)posix_fadvise(fd, (off_t)offset, (off_t)count, POSIX_FADV_WILLNEED);
        (void)close(fd);
    }
}

/* --- one index file ------------------------------------------------------------------ */

typedef struct context {
    sonde_trial *trial;
    sonde__trial_worker *worker;
    const char *where;
    sonde_diag *diag;
    int64_t step;
    sonde_mode mode;
    int64_t mode_step;
    uint32_t index; /* of the step */
    sonde__trial_file *file;
} context;

static sonde_role role_of(const char *name)
{
    if (strncmp(name, "gradient", 8) == 0) {
        return SONDE_ROLE_GRADIENT;
    }
    if (strncmp(name, "scalar/", 7) == 0) {
        return SONDE_ROLE_SCALAR;
    }
    if (strstr(name, "_output") != NULL) {
        return strstr(name, "oss") != NULL ? SONDE_ROLE_LOSS : SONDE_ROLE_OUTPUT;
    }
    if (strstr(name, "_input") != NULL) {
        return SONDE_ROLE_INPUT;
    }
    return strstr(name, "weight") != NULL ? SONDE_ROLE_WEIGHT
           : strstr(name, "bias") != NULL ? SONDE_ROLE_BIAS
                                          : SONDE_ROLE_OTHER;
}

/* The tensor of a payload; dtype and shape from this, its first record. */
static sonde_err declare(const context *of, const char *name, uint64_t offset,
                         uint64_t bytes, uint32_t *tensor)
{
    sonde_tensor_info info = {.name = name,
                              .role = role_of(name),
                              .dtype = SONDE_F32,
                              .same_as = SONDE_NO_TENSOR};
    sonde_view view;
    sonde_diag why = {0};
    sonde_err err = SONDE_OK;

    if (sonde__trial_known(of->trial, name, tensor)) {
        return SONDE_OK;
    }
    err = read_tensor(of->trial, of->worker, of->file, offset, bytes, name, &view, &why);
    if (err == SONDE_OK) {
        info.dtype = view.dtype;
        info.rank = view.rank;
        memcpy(info.shape, view.shape, sizeof info.shape);
    } else if (err == SONDE_ENOMEM) {
        return sonde__fail_nomem(of->diag, "a tensor");
    } else {
        info.note = "its dtype and shape could not be read";
    }
    return sonde__trial_declare(of->trial, &info, tensor, of->diag);
}

static sonde_err take_payload(const context *of, const json_t *payload)
{
    const char *name = json_string_value(json_object_get(payload, "tensorname"));
    const json_t *start = json_object_get(payload, "start_idx");
    const json_t *length = json_object_get(payload, "length");
    sonde__trial_raw_item item = {.item = {.step = of->index}, .form = SONDE__FOREIGN};
    sonde_err err = SONDE_OK;

    if (name == NULL || name[0] == '\0' || strlen(name) > SONDE__MOST_NAME ||
        !json_is_integer(start) || json_integer_value(start) < 0 ||
        !json_is_integer(length) || json_integer_value(length) < 0 ||
        json_integer_value(length) > INT64_MAX - json_integer_value(start)) {
        sonde__trial_damage(of->trial, of->where,
                            "a tensor_payload without name or extent");
        return SONDE_OK;
    }
    assert(of->file != NULL);
    item.offset = (uint64_t)json_integer_value(start);
    item.bytes = (uint64_t)json_integer_value(length);
    item.segment = (uint32_t)(of->file - of->worker->files[SONDE__RAW].items);
    err = declare(of, name, item.offset, item.bytes, &item.item.tensor);
    if (err == SONDE_OK) {
        err = sonde__trial_worker_add(of->trial, of->worker, SONDE__RAW, &item.item,
                                      of->diag);
    }
    if (err == SONDE_OK) {
        of->trial->bytes += item.bytes;
    }
    return err;
}

static void read_meta(context *of, const json_t *meta)
{
    const char *mode = json_string_value(json_object_get(meta, "mode"));
    const json_t *step = json_object_get(meta, "mode_step");

    of->mode = SONDE_MODE_GLOBAL;
    for (int m = 0; mode != NULL && m < SONDE_MODE_COUNT; m++) {
        if (strcasecmp(mode, sonde_mode_name((sonde_mode)m)) == 0) {
            of->mode = (sonde_mode)m;
        }
    }
    of->mode_step = json_is_integer(step) && json_integer_value(step) >= 0
                        ? json_integer_value(step)
                        : of->step;
}

/* The event file that the index names, as an entry of the worker's files. */
static sonde_err find_file(context *of, const json_t *meta)
{
    const char *name = json_string_value(json_object_get(meta, "event_file_name"));
    char usual[SONDE__PATH];

    of->file = sonde__trial_file_of(&of->worker->files[SONDE__RAW], (uint64_t)of->step);
    if (of->file == NULL) {
        return sonde__fail_nomem(of->diag, "the files of a run");
    }
    if (name == NULL || of->file->name != NULL ||
        strcmp(name, event_name(of->worker, of->step, usual)) == 0) {
        return SONDE_OK;
    }
    if (name[0] == '/' || strstr(name, "..") != NULL) {
        sonde__trial_damage(of->trial, of->where,
                            "it names an event file outside the run");
        return SONDE_OK;
    }
    of->file->name = sonde__strdup(name);
    return of->file->name != NULL ? SONDE_OK
                                  : sonde__fail_nomem(of->diag, "the files of a run");
}

static sonde_err take_index(context *of, const json_t *object)
{
    const json_t *payloads = json_object_get(object, "tensor_payload");
    const json_t *meta = json_object_get(object, "meta");
    sonde_err err = SONDE_OK;

    read_meta(of, meta);
    of->index =
        sonde__trial_steps_intern(&of->trial->steps, of->step, of->mode, of->mode_step);
    err = of->index != SONDE__NONE ? find_file(of, meta)
                                   : sonde__fail_nomem(of->diag, "the steps of a run");
    for (size_t i = 0; i < json_array_size(payloads) && err == SONDE_OK; i++) {
        err = take_payload(of, json_array_get(payloads, i));
    }
    return err;
}

/* A damaged index is told and counts as read: it is never written again. */
sonde_err sonde__import_smdebug_read_index(sonde_trial *trial,
                                           sonde__trial_worker *worker, int64_t step,
                                           sonde_diag *diag)
{
    char path[SONDE__PATH], where[SONDE__PATH];
    context of = {.trial = trial,
                  .worker = worker,
                  .where = where,
                  .diag = diag,
                  .step = step,
                  .mode = SONDE_MODE_GLOBAL,
                  .mode_step = step};
    sonde_diag why = {0};
    json_error_t error;
    json_t *object = NULL;
    size_t size = 0;
    sonde_err err = SONDE_OK;

    (void)snprintf(where, sizeof where, "index/%09lld/%012lld_%.200s.json",
                   (long long)(step / 1000), (long long)step, worker->name);
    err = sonde__trial_read_small(trial, sonde__trial_path(trial, NULL, where, path),
                                  &size, &why);
    if (err == SONDE_ENOMEM) {
        return sonde__fail_nomem(diag, path);
    }
    if (err == SONDE_OK) {
        object = json_loadb((const char *)trial->buffer.bytes, size, 0, &error);
    }
    if (json_is_object(object)) {
        err = take_index(&of, object);
    } else {
        sonde__trial_damage(trial, where, "%s",
                            err != SONDE_OK ? why.found : "not a JSON object");
        of.index = sonde__trial_steps_intern(&trial->steps, step, of.mode, of.mode_step);
        err = of.index != SONDE__NONE ? SONDE_OK : sonde__fail_nomem(diag, where);
    }
    json_decref(object);
    if (err == SONDE_OK &&
        !sonde__trial_worker_ended(trial, worker, of.index, SONDE__NO_TIME)) {
        err = sonde__fail_nomem(diag, where);
    }
    if (err == SONDE_OK) {
        worker->last_ended = SONDE_MAX(worker->last_ended, step);
        trial->changed = true;
    }
    return err;
}

/* By whatever mode it has: steps of one global step are looked through. */
bool sonde__import_smdebug_has_read(const sonde_trial *trial,
                                    const sonde__trial_worker *worker, int64_t step)
{
    const sonde__trial_steps *steps = &trial->steps;
    const size_t count = steps->sorted_count[SONDE_MODE_GLOBAL];

    for (size_t place = sonde__trial_steps_lower(steps, SONDE_MODE_GLOBAL, step);
         place < count && sonde__trial_steps_at(steps, SONDE_MODE_GLOBAL, place) == step;
         place++) {
        if (sonde__trial_worker_has_ended(worker,
                                          steps->sorted[SONDE_MODE_GLOBAL][place])) {
            return true;
        }
    }
    return false;
}

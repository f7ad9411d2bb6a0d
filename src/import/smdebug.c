/*
 * smdebug.c - a directory that AWS's smdebug wrote, read as a trial.
 *
 *     index/<step / 1000, 9 digits>/<step, 12 digits>_<worker>.json
 *     events/<step, 12 digits>/<step, 12 digits>_<worker>.tfevents
 *     collections/000000000/<worker>_collections.json
 *     training_job_end.ts                                  exists when the job has ended
 *
 * An index file appears when its event file is complete, so a worker has ended a step
 * when its index file exists:
 *
 *     {"meta": {"mode": "TRAIN", "mode_step": 3, "event_file_name": "events/..."},
 *      "tensor_payload": [{"tensorname", "start_idx", "length"}],
 *      "shape_payload": [...]}
 *
 * Dtype and shape are in the records themselves: the first record of a tensor is read for
 * the catalogue, a value's own when it is asked for. The files of collections give the
 * number of workers.
 *
 * Deliberately left out: reductions as statistics (they are tensors with names of their
 * own) and TensorBoard's files.
 */
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "import/smdebug_event.h"
#include "trial/foreign.h"
#include "trial/run_file.h"
#include "trial/trial_catalogue.h"
#include "trial/worker.h"

#include <sonde/selector.h>

#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define COLLECTIONS "collections/000000000"

enum { WORKER_NAME = 200 }; /* bytes of a worker's name, its NUL included */

/* An index file in the list of those to read. */
typedef struct index_file {
    int64_t step;
    char worker[WORKER_NAME];
} index_file;

/* trial->foreign. */
typedef struct smdebug_state {
    index_file *files;
    size_t file_count, file_capacity;
    int64_t first_folder; /* of index/: earlier ones contain nothing new */
    uint32_t collected;   /* tensors that are in their collections */
    bool has_collections, no_collections; /* found; that there are none was noted */
} smdebug_state;

static bool is_smdebug(const char *folder)
{
    static const char *const names[] = {"index", "events", "collections"};

    for (size_t i = 0; i < SONDE_COUNT_OF(names); i++) {
        char path[SONDE__PATH];
        struct stat about;

        if (stat(sonde__trial_path(folder, names[i], path), &about) == 0 &&
            S_ISDIR(about.st_mode)) {
            return true;
        }
    }
    return false;
}

static sonde_err open_smdebug(sonde_trial *trial, sonde_diag *diag)
{
    trial->foreign = sonde__calloc(1, sizeof(smdebug_state));
    trial->program = sonde__strdup("smdebug");
    return trial->foreign != NULL && trial->program != NULL
               ? SONDE_OK
               : sonde__fail_nomem(diag, "a trial");
}

static void close_smdebug(void *foreign)
{
    smdebug_state *smdebug = foreign;

    if (smdebug != NULL) {
        sonde__free(smdebug->files);
        sonde__free(smdebug);
    }
}

/* --- event files ------------------------------------------------------------------ */

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
        trial->path,
        file->name != NULL ? file->name : event_name(worker, (int64_t)file->number, name),
        path);
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

/* Reads a record to trial->value. */
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

static sonde_err load_value(sonde_trial *trial, sonde__trial_worker *worker,
                            const sonde__trial_raw_item *item, sonde_view *view,
                            sonde_diag *diag)
{
    const sonde__trial_file *file =
        &worker->files[SONDE__FILE_SEGMENT].items[item->segment];

    return read_tensor(trial, worker, file, item->offset, item->bytes,
                       sonde_catalogue_info(trial->catalogue, item->item.tensor)->name,
                       view, diag);
}

static void read_ahead(const sonde_trial *trial, const sonde__trial_worker *worker,
                       const sonde__trial_file *file, uint64_t offset, uint64_t count)
{
    char path[SONDE__PATH];
    const int fd = open_events(trial, worker, file, path);

    if (fd >= 0) {
        (void)posix_fadvise(fd, (off_t)offset, (off_t)count, POSIX_FADV_WILLNEED);
        (void)close(fd);
    }
}

/* --- one index file --------------------------------------------------------------- */

typedef struct index_reader {
    sonde_trial *trial;
    sonde__trial_worker *worker;
    const char *where;
    sonde_diag *diag;
    int64_t step;
    sonde_mode mode;
    int64_t mode_step;
    uint32_t index; /* of the step */
    sonde__trial_file *file;
} index_reader;

static sonde_role guess_role(const char *name)
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

/* The tensor of a payload, declared with the dtype and shape of this, its first
 * record. */
static sonde_err declare_tensor(const index_reader *reader, const char *name,
                                uint64_t offset, uint64_t bytes, uint32_t *tensor)
{
    sonde_tensor_info info = {.name = name,
                              .role = guess_role(name),
                              .dtype = SONDE_F32,
                              .same_as = SONDE_NO_TENSOR};
    sonde_view view;
    sonde_diag why = {0};
    sonde_err err = SONDE_OK;

    if (sonde__trial_known(reader->trial, name, tensor)) {
        return SONDE_OK;
    }
    err = read_tensor(reader->trial, reader->worker, reader->file, offset, bytes, name,
                      &view, &why);
    if (err == SONDE_OK) {
        info.dtype = view.dtype;
        info.rank = view.rank;
        memcpy(info.shape, view.shape, sizeof info.shape);
    } else if (err == SONDE_ENOMEM) {
        return sonde__fail_nomem(reader->diag, "a tensor");
    } else {
        info.note = "its dtype and shape could not be read";
    }
    return sonde__trial_declare(reader->trial, &info, tensor, reader->diag);
}

static sonde_err take_payload(const index_reader *reader, const json_t *payload)
{
    const char *name = json_string_value(json_object_get(payload, "tensorname"));
    const json_t *start = json_object_get(payload, "start_idx");
    const json_t *length = json_object_get(payload, "length");
    sonde__trial_raw_item item = {.item = {.step = reader->index},
                                  .layout = SONDE__FOREIGN};
    sonde_err err = SONDE_OK;

    if (name == NULL || name[0] == '\0' || strlen(name) > SONDE__MOST_NAME ||
        !json_is_integer(start) || json_integer_value(start) < 0 ||
        !json_is_integer(length) || json_integer_value(length) < 0 ||
        json_integer_value(length) > INT64_MAX - json_integer_value(start)) {
        sonde__trial_damage(&reader->trial->damage, reader->where,
                            "a tensor_payload without name or extent");
        return SONDE_OK;
    }
    assert(reader->file != NULL);
    item.offset = (uint64_t)json_integer_value(start);
    item.bytes = (uint64_t)json_integer_value(length);
    item.segment =
        (uint32_t)(reader->file - reader->worker->files[SONDE__FILE_SEGMENT].items);
    err = declare_tensor(reader, name, item.offset, item.bytes, &item.item.tensor);
    if (err == SONDE_OK) {
        err = sonde__trial_worker_add(reader->trial, reader->worker, SONDE__RAW,
                                      &item.item, reader->diag);
    }
    if (err == SONDE_OK) {
        reader->trial->bytes += item.bytes;
    }
    return err;
}

static void read_meta(index_reader *reader, const json_t *meta)
{
    const char *mode = json_string_value(json_object_get(meta, "mode"));
    const json_t *step = json_object_get(meta, "mode_step");

    reader->mode = SONDE_MODE_GLOBAL;
    for (int m = 0; mode != NULL && m < SONDE_MODE_COUNT; m++) {
        if (strcasecmp(mode, sonde_mode_name((sonde_mode)m)) == 0) {
            reader->mode = (sonde_mode)m;
        }
    }
    reader->mode_step = json_is_integer(step) && json_integer_value(step) >= 0
                            ? json_integer_value(step)
                            : reader->step;
}

/* The event file that the index names, as an entry of the worker's files. */
static sonde_err find_file(index_reader *reader, const json_t *meta)
{
    const char *name = json_string_value(json_object_get(meta, "event_file_name"));
    char usual[SONDE__PATH];

    reader->file = sonde__trial_file_numbered(&reader->worker->files[SONDE__FILE_SEGMENT],
                                              (uint64_t)reader->step);
    if (reader->file == NULL) {
        return sonde__fail_nomem(reader->diag, "the files of a run");
    }
    if (name == NULL || reader->file->name != NULL ||
        strcmp(name, event_name(reader->worker, reader->step, usual)) == 0) {
        return SONDE_OK;
    }
    if (name[0] == '/' || strstr(name, "..") != NULL) {
        sonde__trial_damage(&reader->trial->damage, reader->where,
                            "it names an event file outside the run");
        return SONDE_OK;
    }
    reader->file->name = sonde__strdup(name);
    return reader->file->name != NULL
               ? SONDE_OK
               : sonde__fail_nomem(reader->diag, "the files of a run");
}

static sonde_err take_index(index_reader *reader, const json_t *object)
{
    const json_t *payloads = json_object_get(object, "tensor_payload");
    const json_t *meta = json_object_get(object, "meta");
    sonde_err err = SONDE_OK;

    read_meta(reader, meta);
    reader->index = sonde__trial_steps_intern(&reader->trial->steps, reader->step,
                                              reader->mode, reader->mode_step);
    err = reader->index != SONDE__NONE
              ? find_file(reader, meta)
              : sonde__fail_nomem(reader->diag, "the steps of a run");
    for (size_t i = 0; i < json_array_size(payloads) && err == SONDE_OK; i++) {
        err = take_payload(reader, json_array_get(payloads, i));
    }
    return err;
}

/* A damaged index is noted and counts as read: it is never written again. */
static sonde_err read_index(sonde_trial *trial, sonde__trial_worker *worker, int64_t step,
                            sonde_diag *diag)
{
    char where[SONDE__PATH];
    index_reader reader = {.trial = trial,
                           .worker = worker,
                           .where = where,
                           .diag = diag,
                           .step = step,
                           .mode = SONDE_MODE_GLOBAL,
                           .mode_step = step};
    json_t *object = NULL;
    bool found = false;
    sonde_err err = SONDE_OK;

    (void)snprintf(where, sizeof where, "index/%09lld/%012lld_%.200s.json",
                   (long long)(step / 1000), (long long)step, worker->name);
    err = sonde__trial_load_object(trial, where, &found, &object, diag);
    if (object != NULL) {
        err = take_index(&reader, object);
    } else if (err == SONDE_OK) {
        if (!found) {
            sonde__trial_damage(&trial->damage, where, "missing");
        }
        reader.index =
            sonde__trial_steps_intern(&trial->steps, step, reader.mode, reader.mode_step);
        err = reader.index != SONDE__NONE ? SONDE_OK : sonde__fail_nomem(diag, where);
    }
    json_decref(object);
    if (err == SONDE_OK &&
        !sonde__trial_worker_ended(trial, worker, reader.index, SONDE__NO_TIME)) {
        err = sonde__fail_nomem(diag, where);
    }
    if (err == SONDE_OK) {
        worker->last_ended = SONDE_MAX(worker->last_ended, step);
        trial->changed = true;
    }
    return err;
}

/* Whether the index of a step has been read, in any mode. */
static bool has_read(const sonde_trial *trial, const sonde__trial_worker *worker,
                     int64_t step)
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

/* --- collections ------------------------------------------------------------------ */

typedef struct collection_reader {
    sonde_trial *trial;
    const char *where, *collection;
    sonde_diag *diag;
} collection_reader;

static sonde_err join(const collection_reader *reader, uint32_t tensor)
{
    return sonde__trial_join(reader->trial, tensor, reader->collection)
               ? SONDE_OK
               : sonde__fail_nomem(reader->diag, "collections");
}

static sonde_err join_found(const collection_reader *reader, const char *pattern)
{
    sonde_selector *selector = NULL;
    uint32_t *ids = NULL;
    size_t count = 0;
    sonde_diag why = {0};
    sonde_err err = sonde_selector_create_regex(pattern, &selector, &why);

    if (err == SONDE_OK) {
        err = sonde_selector_resolve(selector, reader->trial->catalogue, &ids, &count,
                                     &why);
    }
    if (err != SONDE_OK && err != SONDE_ENOMEM) {
        sonde__trial_damage(&reader->trial->damage, reader->where,
                            "the pattern '%.100s' of '%.100s': %s", pattern,
                            reader->collection, why.found);
    }
    for (size_t i = 0; err == SONDE_OK && i < count; i++) {
        err = join(reader, ids[i]);
    }
    sonde_selector_free_ids(ids);
    sonde_selector_destroy(selector);
    return err == SONDE_ENOMEM ? sonde__fail_nomem(reader->diag, "collections")
                               : SONDE_OK;
}

static sonde_err take_collection(const collection_reader *reader,
                                 const json_t *collection)
{
    const json_t *names = json_object_get(collection, "tensor_names");
    const json_t *patterns = json_object_get(collection, "include_regex");
    sonde_err err = SONDE_OK;

    for (size_t i = 0; err == SONDE_OK && i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        uint32_t tensor = 0;

        if (name != NULL && sonde__trial_known(reader->trial, name, &tensor)) {
            err = join(reader, tensor);
        }
    }
    for (size_t i = 0; err == SONDE_OK && i < json_array_size(patterns); i++) {
        const char *pattern = json_string_value(json_array_get(patterns, i));

        if (pattern != NULL) {
            err = join_found(reader, pattern);
        }
    }
    return err;
}

static sonde_err take_collections(collection_reader *reader, const json_t *object)
{
    const json_t *workers =
        json_object_get(json_object_get(object, "_meta"), "num_workers");
    json_t *collections = json_object_get(object, "collections");
    const char *name = NULL;
    json_t *collection = NULL;

    if (json_is_integer(workers) && json_integer_value(workers) >= 1 &&
        json_integer_value(workers) <= 1 << 20) {
        reader->trial->world =
            SONDE_MAX(reader->trial->world, (int)json_integer_value(workers));
    }
    ((smdebug_state *)reader->trial->foreign)->has_collections = true;
    json_object_foreach(collections, name, collection)
    {
        sonde_err err = SONDE_OK;

        reader->collection = name;
        err = take_collection(reader, collection);
        if (err != SONDE_OK) {
            return err;
        }
    }
    return SONDE_OK;
}

static sonde_err read_collection_file(sonde_trial *trial, const char *name,
                                      sonde_diag *diag)
{
    char where[SONDE__PATH];
    collection_reader reader = {trial, where, NULL, diag};
    json_t *object = NULL;
    bool found = false;
    sonde_err err = SONDE_OK;

    (void)snprintf(where, sizeof where, COLLECTIONS "/%.255s", name);
    err = sonde__trial_load_object(trial, where, &found, &object, diag);
    if (object != NULL) {
        err = take_collections(&reader, object);
    } else if (err == SONDE_OK) {
        ((smdebug_state *)trial->foreign)->has_collections = true; /* unreadable */
    }
    json_decref(object);
    return err;
}

static sonde_err read_collections(sonde_trial *trial, sonde_diag *diag)
{
    static const char end[] = "_collections.json";
    smdebug_state *smdebug = trial->foreign;
    const uint32_t tensors = sonde_catalogue_count(trial->catalogue);
    char path[SONDE__PATH];
    const struct dirent *entry = NULL;
    sonde_err err = SONDE_OK;
    DIR *folder = NULL;

    if (smdebug->has_collections && smdebug->collected == tensors) {
        return SONDE_OK;
    }
    folder = opendir(sonde__trial_path(trial->path, COLLECTIONS, path));
    while (folder != NULL && err == SONDE_OK && (entry = readdir(folder)) != NULL) {
        const size_t length = strlen(entry->d_name), tail = sizeof end - 1;

        if (length > tail && strcmp(entry->d_name + length - tail, end) == 0) {
            err = read_collection_file(trial, entry->d_name, diag);
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    if (err == SONDE_OK) {
        smdebug->collected = tensors;
    }
    if (!smdebug->has_collections && trial->ended && !smdebug->no_collections) {
        smdebug->no_collections = true;
        sonde__trial_damage(&trial->damage, COLLECTIONS,
                            "no file of collections: how many workers there "
                            "were is not known");
    }
    return err;
}

/* --- workers ---------------------------------------------------------------------- */

/* "worker_3" is 3; any other name gets the first free number. */
static int worker_rank(const sonde_trial *trial, const char *name)
{
    static const char stem[] = "worker_";
    int rank = 0;

    if (strncmp(name, stem, sizeof stem - 1) == 0) {
        char *end = NULL;
        const char *digits = name + sizeof stem - 1;
        const long given = strtol(digits, &end, 10);

        if (end != digits && *end == '\0' && given >= 0 && given < 1 << 20) {
            return (int)given;
        }
    }
    for (size_t i = 0; i < trial->worker_count; i++) {
        rank += trial->workers[i]->rank == rank;
    }
    return rank;
}

static sonde_err find_worker(sonde_trial *trial, const char *name,
                             sonde__trial_worker **out, sonde_diag *diag)
{
    for (size_t i = 0; i < trial->worker_count; i++) {
        if (strcmp(trial->workers[i]->name, name) == 0) {
            *out = trial->workers[i];
            return SONDE_OK;
        }
    }
    return sonde__trial_add_worker(trial, worker_rank(trial, name), name, out, diag);
}

/* --- listing ---------------------------------------------------------------------- */

/* "000000000100_worker_0.json": step 100, worker "worker_0". */
static bool parse_name(const char *name, int64_t *step, char worker[WORKER_NAME])
{
    enum { DIGITS = 12 };
    static const char end[] = ".json";
    const size_t length = strlen(name), tail = sizeof end - 1;

    if (length <= DIGITS + 1 + tail || strspn(name, "0123456789") != DIGITS ||
        name[DIGITS] != '_' || strcmp(name + length - tail, end) != 0 ||
        length - DIGITS - 1 - tail >= WORKER_NAME) {
        return false;
    }
    *step = strtoll(name, NULL, 10);
    memcpy(worker, name + DIGITS + 1, length - DIGITS - 1 - tail);
    worker[length - DIGITS - 1 - tail] = '\0';
    return true;
}

static bool add_file(smdebug_state *smdebug, int64_t step, const char *worker)
{
    index_file *file = NULL;

    if (!sonde__reserve(&smdebug->files, &smdebug->file_capacity, smdebug->file_count + 1,
                        sizeof *smdebug->files)) {
        return false;
    }
    file = &smdebug->files[smdebug->file_count++];
    file->step = step;
    (void)snprintf(file->worker, sizeof file->worker, "%s", worker);
    return true;
}

static sonde_err list_folder(sonde_trial *trial, const char *name, sonde_diag *diag)
{
    char path[SONDE__PATH], worker[WORKER_NAME];
    const struct dirent *entry = NULL;
    bool ok = true;
    DIR *folder = opendir(sonde__trial_path(trial->path, name, path));

    while (ok && folder != NULL && (entry = readdir(folder)) != NULL) {
        int64_t step = 0;

        if (parse_name(entry->d_name, &step, worker) &&
            sonde__trial_in_range(trial, step)) {
            ok = add_file(trial->foreign, step, worker);
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return ok ? SONDE_OK : sonde__fail_nomem(diag, "the index files of a run");
}

static int by_step(const void *left, const void *right)
{
    const index_file *a = left, *b = right;

    if (a->step != b->step) {
        return a->step < b->step ? -1 : 1;
    }
    return strcmp(a->worker, b->worker);
}

/* Lists the index files of the folders that can contain new ones. */
static sonde_err list_files(sonde_trial *trial, sonde_diag *diag)
{
    smdebug_state *smdebug = trial->foreign;
    char path[SONDE__PATH];
    const struct dirent *entry = NULL;
    sonde_err err = SONDE_OK;
    DIR *index = opendir(sonde__trial_path(trial->path, "index", path));

    smdebug->file_count = 0;
    while (index != NULL && err == SONDE_OK && (entry = readdir(index)) != NULL) {
        char *end = NULL, name[300];
        const long long number = strtoll(entry->d_name, &end, 10);

        if (end != entry->d_name && *end == '\0' && number >= smdebug->first_folder) {
            (void)snprintf(name, sizeof name, "index/%s", entry->d_name);
            err = list_folder(trial, name, diag);
        }
    }
    if (index != NULL) {
        (void)closedir(index);
    }
    if (smdebug->file_count > 0) {
        qsort(smdebug->files, smdebug->file_count, sizeof *smdebug->files, by_step);
    }
    return err;
}

/* --- refreshing ------------------------------------------------------------------- */

static bool is_read(const sonde_trial *trial, const sonde__trial_worker *worker,
                    int64_t step)
{
    return step <= worker->last_ended && has_read(trial, worker, step);
}

static sonde_err read_new(sonde_trial *trial, sonde_diag *diag)
{
    const smdebug_state *smdebug = trial->foreign;

    for (size_t i = 0; i < smdebug->file_count; i++) {
        const index_file *file = &smdebug->files[i];
        sonde__trial_worker *worker = NULL;
        sonde_err err = find_worker(trial, file->worker, &worker, diag);

        if (err == SONDE_OK && !is_read(trial, worker, file->step)) {
            err = read_index(trial, worker, file->step, diag);
        }
        if (err != SONDE_OK) {
            return err;
        }
    }
    return SONDE_OK;
}

/* Folders whose steps all workers have ended are not listed again. */
static void skip_old_folders(sonde_trial *trial)
{
    smdebug_state *smdebug = trial->foreign;
    int64_t last = INT64_MAX;

    if (trial->worker_count < (size_t)trial->world) {
        return;
    }
    for (size_t i = 0; i < trial->worker_count; i++) {
        last = SONDE_MIN(last, trial->workers[i]->last_ended);
    }
    if (last != INT64_MAX && last >= 0) {
        smdebug->first_folder = SONDE_MAX(smdebug->first_folder, last / 1000);
    }
}

static sonde_err refresh_smdebug(sonde_trial *trial, sonde_diag *diag)
{
    char path[SONDE__PATH];
    struct stat about;
    const bool ended =
        stat(sonde__trial_path(trial->path, "training_job_end.ts", path), &about) == 0;
    sonde_err err = list_files(trial, diag);

    trial->changed = trial->changed || ended != trial->ended;
    trial->ended = ended;
    if (err == SONDE_OK) {
        err = read_new(trial, diag);
    }
    if (err == SONDE_OK) {
        err = read_collections(trial, diag);
    }
    if (err == SONDE_OK) {
        skip_old_folders(trial);
    }
    return err;
}

const sonde__trial_foreign *const sonde__trial_foreign_formats[] = {
    &(const sonde__trial_foreign){.expected = "the folders of smdebug",
                                  .is_one = is_smdebug,
                                  .open = open_smdebug,
                                  .refresh = refresh_smdebug,
                                  .value = load_value,
                                  .ahead = read_ahead,
                                  .close = close_smdebug},
    NULL,
};

/*
 * smdebug.c - a directory that AWS's smdebug wrote, read as a trial.
 *
 *     index/<step / 1000, 9 digits>/<step, 12 digits>_<worker>.json
 *     events/<step, 12 digits>/<step, 12 digits>_<worker>.tfevents
 *     collections/000000000/<worker>_collections.json
 *     training_job_end.ts                                  exists when the job has ended
 *
 *     smdebug.c         collections, workers, listing, refreshing
 *     smdebug_index.c   an index file: the step's tensors, values and statistics
 *     smdebug_values.c  event files: values and statistics when they are asked for
 *
 * An index file appears when its event file is complete, so a worker has ended a step
 * when its index file exists. The files of collections give the number of workers, and
 * roles to tensors whose names give none. A run that has been silent for long, and has no
 * end, counts as one whose writer has gone.
 *
 * Deliberately left out: TensorBoard's files.
 */
#include "observe/tensor_names.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "trial/smdebug.h"
#include "observe/tensor_roles.h"
#include "trial/trial_state.h"

#include <sonde/selector.h>

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define COLLECTIONS "collections/000000000"

bool sonde__smdebug_is_one(const char *folder)
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

sonde_err sonde__smdebug_open(sonde_trial *trial, sonde_diag *diag)
{
    trial->smdebug = sonde__calloc(1, sizeof *trial->smdebug);
    trial->program = sonde__strdup("smdebug");
    return trial->smdebug != NULL && trial->program != NULL
               ? SONDE_OK
               : sonde__fail_nomem(diag, "a trial");
}

void sonde__smdebug_close(sonde__smdebug *smdebug)
{
    if (smdebug != NULL) {
        sonde__free(smdebug->files);
        sonde__free(smdebug->records);
        sonde__free(smdebug->groups);
        sonde__free(smdebug);
    }
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

/* A collection also gives a role to a tensor whose name gives none. */
static sonde_err join(const collection_reader *reader, uint32_t tensor)
{
    sonde_catalogue *catalogue = reader->trial->catalogue;
    const sonde_role role = sonde_catalogue_info(catalogue, tensor)->role;

    sonde__catalogue_set_role(catalogue, tensor,
                              sonde__observe_role_joined(role, reader->collection));
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
    sonde_err err = SONDE_OK;

    SONDE__TRY_GO(sonde__selector_create_regex(pattern, &selector, &why));
    SONDE__TRY_GO(
        sonde_selector_resolve(selector, reader->trial->catalogue, &ids, &count, &why));
    for (size_t i = 0; i < count; i++) {
        SONDE__TRY_GO(join(reader, ids[i]));
    }
error:
    sonde_release(ids);
    sonde_selector_destroy(selector);
    if (err == SONDE_ENOMEM) {
        return sonde__fail_nomem(reader->diag, "collections");
    }
    if (err != SONDE_OK) {
        sonde__trial_damage(&reader->trial->damage, reader->where,
                            "the pattern '%.100s' of '%.100s': %s", pattern,
                            reader->collection, why.found);
    }
    return SONDE_OK;
}

static sonde_err take_collection(const collection_reader *reader,
                                 const json_t *collection)
{
    const json_t *names = json_object_get(collection, "tensor_names");
    const json_t *patterns = json_object_get(collection, "include_regex");

    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        uint32_t tensor = 0;

        if (name != NULL && sonde__trial_known(reader->trial, name, &tensor)) {
            SONDE__TRY(join(reader, tensor));
        }
    }
    for (size_t i = 0; i < json_array_size(patterns); i++) {
        const char *pattern = json_string_value(json_array_get(patterns, i));

        if (pattern != NULL) {
            SONDE__TRY(join_found(reader, pattern));
        }
    }
    return SONDE_OK;
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
    reader->trial->smdebug->has_collections = true;
    json_object_foreach(collections, name, collection)
    {
        reader->collection = name;
        SONDE__TRY(take_collection(reader, collection));
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
    SONDE__TRY(sonde__trial_load_object(trial, where, &found, &object, diag));
    if (object == NULL) {
        trial->smdebug->has_collections = true; /* unreadable */
        return SONDE_OK;
    }
    err = take_collections(&reader, object);
    json_decref(object);
    return err;
}

/* A folder of the run; NULL: there is none. */
static sonde_err open_folder(const char *path, DIR **out, sonde_diag *diag)
{
    *out = opendir(path);
    return *out != NULL || errno == ENOENT || errno == ENOTDIR
               ? SONDE_OK
               : sonde__fail_errno(diag, path, "cannot be listed");
}

static sonde_err read_collections(sonde_trial *trial, sonde_diag *diag)
{
    static const char end[] = "_collections.json";
    sonde__smdebug *smdebug = trial->smdebug;
    const uint32_t tensors = sonde_catalogue_count(trial->catalogue);
    char path[SONDE__PATH];
    const struct dirent *entry = NULL;
    sonde_err err = SONDE_OK;
    DIR *folder = NULL;

    if (smdebug->has_collections && smdebug->collected == tensors) {
        return SONDE_OK;
    }
    SONDE__TRY(
        open_folder(sonde__trial_path(trial->path, COLLECTIONS, path), &folder, diag));
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        const size_t length = strlen(entry->d_name), tail = sizeof end - 1;

        if (length > tail && strcmp(entry->d_name + length - tail, end) == 0) {
            SONDE__TRY_GO(read_collection_file(trial, entry->d_name, diag));
        }
    }
    smdebug->collected = tensors;
    if (!smdebug->has_collections && trial->ended && !smdebug->no_collections) {
        smdebug->no_collections = true;
        sonde__trial_damage(&trial->damage, COLLECTIONS,
                            "no file of collections: how many workers there "
                            "were is not known");
    }
error:
    if (folder != NULL) {
        (void)closedir(folder);
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
static bool parse_name(const char *name, int64_t *step,
                       char worker[SONDE__SMDEBUG_WORKER])
{
    enum { DIGITS = 12 };
    static const char end[] = ".json";
    const size_t length = strlen(name), tail = sizeof end - 1;

    if (length <= DIGITS + 1 + tail || strspn(name, "0123456789") != DIGITS ||
        name[DIGITS] != '_' || strcmp(name + length - tail, end) != 0 ||
        length - DIGITS - 1 - tail >= SONDE__SMDEBUG_WORKER) {
        return false;
    }
    *step = strtoll(name, NULL, 10);
    memcpy(worker, name + DIGITS + 1, length - DIGITS - 1 - tail);
    worker[length - DIGITS - 1 - tail] = '\0';
    return true;
}

static bool add_file(sonde__smdebug *smdebug, int64_t step, const char *worker)
{
    if (!sonde__reserve(&smdebug->files, &smdebug->file_capacity, smdebug->file_count + 1,
                        sizeof *smdebug->files)) {
        return false;
    }
    sonde__smdebug_index_file *file = &smdebug->files[smdebug->file_count++];
    file->step = step;
    (void)snprintf(file->worker, sizeof file->worker, "%s", worker);
    return true;
}

static sonde_err list_folder(sonde_trial *trial, const char *name, sonde_diag *diag)
{
    char path[SONDE__PATH], worker[SONDE__SMDEBUG_WORKER];
    const struct dirent *entry = NULL;
    bool ok = true;
    DIR *folder = NULL;

    SONDE__TRY(open_folder(sonde__trial_path(trial->path, name, path), &folder, diag));
    while (ok && folder != NULL && (entry = readdir(folder)) != NULL) {
        int64_t step = 0;

        if (parse_name(entry->d_name, &step, worker) &&
            sonde__trial_in_range(trial, step)) {
            ok = add_file(trial->smdebug, step, worker);
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return ok ? SONDE_OK : sonde__fail_nomem(diag, "the index files of a run");
}

static int by_step(const void *left, const void *right)
{
    const sonde__smdebug_index_file *a = left, *b = right;

    if (a->step != b->step) {
        return a->step < b->step ? -1 : 1;
    }
    return strcmp(a->worker, b->worker);
}

/* Lists the index files of the folders that can contain new ones. */
static sonde_err list_files(sonde_trial *trial, sonde_diag *diag)
{
    sonde__smdebug *smdebug = trial->smdebug;
    char path[SONDE__PATH];
    const struct dirent *entry = NULL;
    DIR *index = NULL;
    sonde_err err = SONDE_OK;

    smdebug->file_count = 0;
    SONDE__TRY(open_folder(sonde__trial_path(trial->path, "index", path), &index, diag));
    while (index != NULL && (entry = readdir(index)) != NULL) {
        char *end = NULL, name[300];
        const long long number = strtoll(entry->d_name, &end, 10);

        if (end != entry->d_name && *end == '\0' && number >= smdebug->first_folder) {
            (void)snprintf(name, sizeof name, "index/%s", entry->d_name);
            SONDE__TRY_GO(list_folder(trial, name, diag));
        }
    }
    if (smdebug->file_count > 0) {
        qsort(smdebug->files, smdebug->file_count, sizeof *smdebug->files, by_step);
    }
error:
    if (index != NULL) {
        (void)closedir(index);
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
    const sonde__smdebug *smdebug = trial->smdebug;

    for (size_t i = 0; i < smdebug->file_count; i++) {
        const sonde__smdebug_index_file *file = &smdebug->files[i];
        sonde__trial_worker *worker = NULL;
        SONDE__TRY(find_worker(trial, file->worker, &worker, diag));
        if (is_read(trial, worker, file->step)) {
            continue;
        }
        SONDE__TRY(sonde__smdebug_read_index(trial, worker, file->step, diag));
    }
    return SONDE_OK;
}

/* Folders whose steps all workers have ended are not listed again. */
static void skip_old_folders(sonde_trial *trial)
{
    sonde__smdebug *smdebug = trial->smdebug;
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

/* --- the end ------------------------------------------------------------------------ */

/* The time of the last step, or that of the last change of the index; ns since 1970. */
static int64_t last_change(const sonde_trial *trial)
{
    const sonde__smdebug *smdebug = trial->smdebug;
    char path[SONDE__PATH];
    struct stat about;

    if (smdebug->last_time > 0 ||
        stat(sonde__trial_path(trial->path, "index", path), &about) != 0) {
        return smdebug->last_time;
    }
    return (int64_t)about.st_mtim.tv_sec * 1000000000 + about.st_mtim.tv_nsec;
}

/* smdebug leaves no sign of the process that writes. It counts as gone after half an hour
 * without a step, or twenty times the usual time between steps if that is longer. */
static bool is_silent(const sonde_trial *trial)
{
    static const double least = 1800.0, times = 20.0;
    const sonde__smdebug *smdebug = trial->smdebug;
    const int64_t last = last_change(trial);
    struct timespec now = {0};
    double pause = 0.0;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (trial->steps.count > 1) {
        pause = 1e-9 * (double)(smdebug->last_time - smdebug->first_time) /
                (double)(trial->steps.count - 1);
    }
    return last > 0 &&
           (double)now.tv_sec - 1e-9 * (double)last > SONDE_MAX(least, times * pause);
}

/* Notes whether the writers have gone without an end. */
static void look_for_writers(sonde_trial *trial)
{
    const bool gone = !trial->ended && is_silent(trial);

    for (size_t i = 0; i < trial->worker_count; i++) {
        trial->changed = trial->changed || trial->workers[i]->crashed != gone;
        trial->workers[i]->crashed = gone;
    }
}

sonde_err sonde__smdebug_refresh(sonde_trial *trial, sonde_diag *diag)
{
    char path[SONDE__PATH];
    struct stat about;
    const bool ended =
        stat(sonde__trial_path(trial->path, "training_job_end.ts", path), &about) == 0;

    SONDE__TRY(list_files(trial, diag));
    trial->changed = trial->changed || ended != trial->ended;
    trial->ended = ended;
    SONDE__TRY(read_new(trial, diag));
    look_for_writers(trial);
    SONDE__TRY(read_collections(trial, diag));
    skip_old_folders(trial);
    return SONDE_OK;
}

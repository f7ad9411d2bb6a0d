/*
 * smdebug.c - a directory that AWS's smdebug wrote, as a trial.
 *
 *     index/<step / 1000, 9 digits>/<step, 12 digits>_<worker>.json
 *     events/<step, 12 digits>/<step, 12 digits>_<worker>.tfevents
 *     collections/000000000/<worker>_collections.json
 *     training_job_end.ts                                  there when the job has ended
 *
 * An index file appears when its event file is complete, so a worker has ended a step when
 * its index file is there. What an index does not tell, dtype and shape, is in the records
 * themselves: of each tensor's first for the catalogue, of a value when it is read. The
 * number of workers stands in the collections' files.
 *
 * Deliberately left out: reductions as statistics (they are tensors of their own names), and
 * TensorBoard's files beside.
 */
#include "import/smdebug_state.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool sonde__trial_smdebug_is(const sonde_trial *trial)
{
    static const char *const folders[] = {"index", "events", "collections"};

    for (size_t i = 0; i < SONDE_COUNT_OF(folders); i++) {
        char path[SONDE__PATH];
        struct stat about;

        if (stat(sonde__trial_path(trial, NULL, folders[i], path), &about) == 0 &&
            S_ISDIR(about.st_mode)) {
            return true;
        }
    }
    return false;
}

sonde_err sonde__trial_smdebug_open(sonde_trial *trial, sonde_diag *diag)
{
    trial->smdebug = sonde__calloc(1, sizeof *trial->smdebug);
    if (trial->smdebug == NULL) {
        return sonde__fail_nomem(diag, "a trial");
    }
    trial->program = sonde__strdup("smdebug");
    return trial->program != NULL ? SONDE_OK : sonde__fail_nomem(diag, "a trial");
}

void sonde__trial_smdebug_close(sonde__import_smdebug *smdebug)
{
    if (smdebug != NULL) {
        sonde__free(smdebug->files);
        sonde__free(smdebug);
    }
}

/* --- workers ---------------------------------------------------------------------- */

/* "worker_3" is 3; any other name the first number that is free. */
static int rank_of(const sonde_trial *trial, const char *name)
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
    return sonde__trial_add_worker(trial, rank_of(trial, name), name, out, diag);
}

/* --- listing ---------------------------------------------------------------------- */

/* "000000000100_worker_0.json": the step; worker gets the rest of the name. */
static bool parse_name(const char *name, int64_t *step, char worker[SONDE__SMDEBUG_NAME])
{
    enum { DIGITS = 12 };
    static const char end[] = ".json";
    const size_t length = strlen(name), tail = sizeof end - 1;

    if (length <= DIGITS + 1 + tail || strspn(name, "0123456789") != DIGITS ||
        name[DIGITS] != '_' || strcmp(name + length - tail, end) != 0 ||
        length - DIGITS - 1 - tail >= SONDE__SMDEBUG_NAME) {
        return false;
    }
    *step = strtoll(name, NULL, 10);
    memcpy(worker, name + DIGITS + 1, length - DIGITS - 1 - tail);
    worker[length - DIGITS - 1 - tail] = '\0';
    return true;
}

static bool add_file(sonde__import_smdebug *smdebug, int64_t step, const char *worker)
{
    sonde__import_smdebug_file *file = NULL;

    if (!sonde__reserve(&smdebug->files, &smdebug->file_capacity, smdebug->file_count + 1,
                        sizeof *smdebug->files)) {
        return false;
    }
    file = &smdebug->files[smdebug->file_count++];
    file->step = step;
    file->read = false;
    (void)snprintf(file->worker, sizeof file->worker, "%s", worker);
    return true;
}

static sonde_err list_folder(sonde_trial *trial, const char *name, sonde_diag *diag)
{
    char path[SONDE__PATH], worker[SONDE__SMDEBUG_NAME];
    const struct dirent *entry = NULL;
    bool ok = true;
    DIR *folder = opendir(sonde__trial_path(trial, NULL, name, path));

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
    const sonde__import_smdebug_file *a = left, *b = right;

    if (a->step != b->step) {
        return a->step < b->step ? -1 : 1;
    }
    return strcmp(a->worker, b->worker);
}

/* Index files of the folders in which something new can be. */
static sonde_err list_files(sonde_trial *trial, sonde_diag *diag)
{
    sonde__import_smdebug *smdebug = trial->smdebug;
    char path[SONDE__PATH];
    const struct dirent *entry = NULL;
    sonde_err err = SONDE_OK;
    DIR *index = opendir(sonde__trial_path(trial, NULL, "index", path));

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
    return step <= worker->last_ended &&
           sonde__import_smdebug_has_read(trial, worker, step);
}

static sonde_err read_new(sonde_trial *trial, sonde_diag *diag)
{
    const sonde__import_smdebug *smdebug = trial->smdebug;

    for (size_t i = 0; i < smdebug->file_count; i++) {
        const sonde__import_smdebug_file *file = &smdebug->files[i];
        sonde__trial_worker *worker = NULL;
        sonde_err err = find_worker(trial, file->worker, &worker, diag);

        if (err == SONDE_OK && !is_read(trial, worker, file->step)) {
            err = sonde__import_smdebug_read_index(trial, worker, file->step, diag);
        }
        if (err != SONDE_OK) {
            return err;
        }
    }
    return SONDE_OK;
}

/* Folders all of whose steps every worker has passed are not listed again. */
static void pass_folders(sonde_trial *trial)
{
    int64_t last = INT64_MAX;

    if (trial->worker_count < (size_t)trial->world) {
        return;
    }
    for (size_t i = 0; i < trial->worker_count; i++) {
        last = SONDE_MIN(last, trial->workers[i]->last_ended);
    }
    if (last != INT64_MAX && last >= 0) {
        trial->smdebug->first_folder =
            SONDE_MAX(trial->smdebug->first_folder, last / 1000);
    }
}

sonde_err sonde__trial_smdebug_refresh(sonde_trial *trial, sonde_diag *diag)
{
    char path[SONDE__PATH];
    struct stat about;
    const bool ended =
        stat(sonde__trial_path(trial, NULL, "training_job_end.ts", path), &about) == 0;
    sonde_err err = list_files(trial, diag);

    trial->changed = trial->changed || ended != trial->ended;
    trial->ended = ended;
    if (err == SONDE_OK) {
        err = read_new(trial, diag);
    }
    if (err == SONDE_OK) {
        err = sonde__import_smdebug_read_collections(trial, diag);
    }
    if (err == SONDE_OK) {
        pass_folders(trial);
    }
    return err;
}

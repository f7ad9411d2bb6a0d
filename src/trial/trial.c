/*
 * trial.c - opening, refreshing and describing a run.
 */
#include "trial/trial_state.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/names.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What must fit behind the path of a run: "/w0000000/" and the name of a file. */
enum { MOST_PATH = SONDE__PATH - 256 };

/* --- workers ---------------------------------------------------------------------- */

sonde_err sonde__trial_add_worker(sonde_trial *trial, int rank, const char *name,
                                  sonde__trial_worker **out, sonde_diag *diag)
{
    sonde__trial_worker *worker = NULL;
    size_t at = trial->worker_count;
    sonde_err err = SONDE_OK;

    if (!sonde__reserve(&trial->workers, &trial->worker_capacity, trial->worker_count + 1,
                        sizeof(sonde__trial_worker *))) {
        return sonde__fail_nomem(diag, "the workers of a run");
    }
    err = sonde__trial_worker_create(trial, rank, name, &worker, diag);
    if (err != SONDE_OK) {
        return err;
    }
    for (; at > 0 && trial->workers[at - 1]->rank > rank; at--) {
        trial->workers[at] = trial->workers[at - 1];
    }
    trial->workers[at] = worker;
    trial->worker_count++;
    trial->world = SONDE_MAX(trial->world, rank + 1);
    trial->changed = true;
    if (out != NULL) {
        *out = worker;
    }
    return SONDE_OK;
}

static bool has_worker(const sonde_trial *trial, int rank)
{
    for (size_t i = 0; i < trial->worker_count; i++) {
        if (trial->workers[i]->rank == rank) {
            return true;
        }
    }
    return false;
}

/* Workers whose folders have come. */
static sonde_err find_workers(sonde_trial *trial, sonde_diag *diag)
{
    const struct dirent *entry = NULL;
    sonde_err err = SONDE_OK;
    DIR *folder = opendir(trial->path);

    if (folder == NULL) {
        return sonde__fail_errno(diag, trial->path, "cannot be listed");
    }
    while (err == SONDE_OK && (entry = readdir(folder)) != NULL) {
        const int rank = sonde__record_worker_of_folder(entry->d_name);
        char path[SONDE__PATH];
        struct stat about;

        if (rank >= 0 && rank < INT32_MAX && !has_worker(trial, rank) &&
            stat(sonde__trial_path(trial, NULL, entry->d_name, path), &about) == 0 &&
            S_ISDIR(about.st_mode)) {
            err = sonde__trial_add_worker(trial, rank, entry->d_name, NULL, diag);
        }
    }
    (void)closedir(folder);
    return err;
}

/* --- refreshing ------------------------------------------------------------------- */

static sonde_err read_worker(sonde_trial *trial, sonde__trial_worker *worker,
                             sonde_diag *diag)
{
    sonde_err err = sonde__trial_catalogue_read(trial, worker, diag);

    if (err == SONDE_OK) {
        err = sonde__trial_generations_read(trial, worker, diag);
    }
    if (err == SONDE_OK) {
        err = sonde__trial_step_rows_read(trial, worker, diag);
    }
    if (err == SONDE_OK) {
        err = sonde__trial_index_read(trial, worker, diag);
    }
    if (err == SONDE_OK) {
        err = sonde__trial_stats_read(trial, worker, diag);
    }
    if (err == SONDE_OK) {
        err = sonde__trial_sketches_read(trial, worker, diag);
    }
    sonde__trial_damage_flush(trial, &worker->catalogue, worker->name);
    return err;
}

static bool is_part(const sonde__trial_file_list *files)
{
    return files->count > 0 && !files->items[files->count - 1].closed;
}

/* Of a worker that writes no more: whatever of its files is not complete will never be. */
static void note_ends(sonde_trial *trial, sonde__trial_worker *worker)
{
    const struct {
        sonde__trial_progress *progress;
        sonde__record_file_kind kind;
        bool part;
    } all[] = {
        {&worker->index, SONDE__FILE_INDEX, false},
        {&worker->stats, SONDE__FILE_STATS, is_part(&worker->files[SONDE__VITALS])},
        {&worker->sketch, SONDE__FILE_SKETCH, is_part(&worker->files[SONDE__SKETCH])},
        {&worker->steps, SONDE__FILE_STEPS, is_part(&worker->files[SONDE__STEP_FILES])},
        {&worker->catalogue, SONDE__FILE_OTHER, false},
    };

    for (size_t i = 0; i < SONDE_COUNT_OF(all); i++) {
        char name[SONDE__FILE_NAME] = SONDE__CATALOGUE_FILE, where[SONDE__PATH];

        if (all[i].kind != SONDE__FILE_OTHER) {
            sonde__record_file_name(name, all[i].kind, all[i].progress->number,
                                    all[i].part);
        }
        sonde__trial_progress_end(trial, all[i].progress,
                                  sonde__trial_where(worker, name, where));
    }
}

static void settle(sonde_trial *trial)
{
    sonde__trial_steps_settle(&trial->steps);
    for (size_t i = 0; i < trial->worker_count; i++) {
        for (int kind = 0; kind < SONDE__KINDS; kind++) {
            sonde__trial_store_settle(&trial->workers[i]->stores[kind], &trial->steps);
        }
    }
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        trial->lists[mode][0].valid = trial->lists[mode][1].valid = false;
    }
}

static sonde_err read_all(sonde_trial *trial, sonde_diag *diag)
{
    sonde_err err = sonde__trial_end_read(trial, diag);

    if (err == SONDE_OK && trial->worker_count < (size_t)trial->world) {
        err = find_workers(trial, diag);
    }
    for (size_t i = 0; i < trial->worker_count && err == SONDE_OK; i++) {
        err = sonde__trial_state_read(trial, trial->workers[i], diag);
    }
    for (size_t i = 0; i < trial->worker_count && err == SONDE_OK; i++) {
        err = read_worker(trial, trial->workers[i], diag);
    }
    for (size_t i = 0; i < trial->worker_count && err == SONDE_OK; i++) {
        sonde__trial_worker *worker = trial->workers[i];

        if (trial->ended || worker->said_ended || worker->crashed) {
            note_ends(trial, worker);
        }
    }
    return err;
}

sonde_err sonde_trial_refresh(sonde_trial *trial, bool *changed, sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    trial->changed = false;
    trial->look++;
    err = trial->smdebug != NULL ? sonde__trial_smdebug_refresh(trial, diag)
                                 : read_all(trial, diag);
    sonde__trial_judge(trial);
    if (trial->changed) {
        settle(trial);
    }
    if (err == SONDE_OK && changed != NULL) {
        *changed = trial->changed;
    }
    return err;
}

/* --- opening ---------------------------------------------------------------------- */

static sonde_err check_arguments(const char *path, const sonde_trial_options *options,
                                 sonde_diag *diag)
{
    struct stat about;

    if (strlen(path) > MOST_PATH) {
        return sonde__fail(diag, SONDE_EINVAL, "trial", "at most 3840 bytes",
                           "a path of %zu bytes", strlen(path));
    }
    if (stat(path, &about) != 0) {
        return sonde__fail_errno(diag, path, "cannot be opened");
    }
    if (!S_ISDIR(about.st_mode)) {
        return sonde__fail(diag, SONDE_EFORMAT, path, "the folder of a run", "a file");
    }
    if (options != NULL && (options->begin < 0 || options->end < 0 ||
                            (options->end != 0 && options->end <= options->begin))) {
        return sonde__fail(diag, SONDE_EINVAL, "steps of a trial",
                           "0 <= begin < end, or end 0", "begin %lld, end %lld",
                           (long long)options->begin, (long long)options->end);
    }
    return SONDE_OK;
}

/* NULL if memory is out. */
static sonde_trial *create(const char *path, const sonde_trial_options *options)
{
    sonde_trial *trial = sonde__calloc(1, sizeof *trial);
    size_t length = strlen(path);

    if (trial == NULL) {
        return NULL;
    }
    while (length > 1 && path[length - 1] == '/') {
        length--;
    }
    trial->begin = options != NULL ? options->begin : 0;
    trial->end = options != NULL ? options->end : 0;
    trial->world = 1;
    trial->last_complete = -1;
    trial->look = 1;
    sonde__trial_steps_init(&trial->steps);
    sonde__names_init(&trial->collections);
    sonde__names_init(&trial->members);
    (void)gethostname(trial->host, sizeof trial->host - 1);
    trial->path = sonde__strndup(path, length);
    if (trial->path == NULL ||
        sonde_catalogue_create(&trial->catalogue, NULL) != SONDE_OK) {
        sonde_trial_close(trial);
        return NULL;
    }
    return trial;
}

/* run.json and the workers' folders, or what there is of them. */
static sonde_err find_run(sonde_trial *trial, sonde_diag *diag)
{
    bool found = false;
    sonde_err err = sonde__trial_run_read(trial, &found, diag);

    if (err == SONDE_OK && !found && sonde__trial_smdebug_is(trial)) {
        return sonde__trial_smdebug_open(trial, diag);
    }
    if (err == SONDE_OK) {
        err = find_workers(trial, diag);
    }
    if (err == SONDE_OK && !found && trial->worker_count == 0) {
        return sonde__fail(diag, SONDE_EFORMAT, trial->path,
                           SONDE__RUN_FILE ", or the folders of smdebug",
                           "not a run: neither " SONDE__RUN_FILE
                           " nor a worker's folder is in it");
    }
    if (err == SONDE_OK && !found) {
        sonde__trial_damage(trial, SONDE__RUN_FILE, "missing");
    }
    return err;
}

static sonde_err open_trial(const char *path, const sonde_trial_options *options,
                            bool everything, void (*told)(void *user, const char *text),
                            void *user, sonde_trial **out, sonde_diag *diag)
{
    sonde_err err = check_arguments(path, options, diag);
    sonde_trial *trial = NULL;

    if (err != SONDE_OK) {
        return err;
    }
    trial = create(path, options);
    if (trial == NULL) {
        return sonde__fail_nomem(diag, "a trial");
    }
    trial->told = told;
    trial->told_user = user;
    trial->everything = everything;
    err = find_run(trial, diag);
    if (err == SONDE_OK) {
        err = sonde_trial_refresh(trial, NULL, diag);
    }
    if (err != SONDE_OK) {
        sonde_trial_close(trial);
        return err;
    }
    *out = trial;
    return SONDE_OK;
}

sonde_err sonde_trial_open(const char *path, const sonde_trial_options *options,
                           sonde_trial **out, sonde_diag *diag)
{
    return open_trial(path, options, false, NULL, NULL, out, diag);
}

sonde_err sonde__trial_open_all(const char *path,
                                void (*told)(void *user, const char *text), void *user,
                                sonde_trial **out, sonde_diag *diag)
{
    return open_trial(path, NULL, true, told, user, out, diag);
}

static void free_texts(sonde_trial *trial)
{
    char *const texts[] = {trial->path,    trial->id,      trial->program,
                           trial->model,   trial->created, trial->end_reason,
                           trial->end_text};

    for (size_t i = 0; i < SONDE_COUNT_OF(texts); i++) {
        sonde__free(texts[i]);
    }
    for (size_t i = 0; i < trial->damage_count; i++) {
        sonde__free(trial->damage[i]);
    }
    sonde__free(trial->damage);
}

void sonde_trial_close(sonde_trial *trial)
{
    if (trial == NULL) {
        return;
    }
    for (size_t i = 0; i < trial->worker_count; i++) {
        sonde__trial_worker_destroy(trial->workers[i]);
    }
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        sonde__free(trial->lists[mode][0].steps);
        sonde__free(trial->lists[mode][1].steps);
    }
    sonde__free(trial->workers);
    sonde__free(trial->cuts);
    sonde_catalogue_destroy(trial->catalogue);
    sonde__names_fini(&trial->collections);
    sonde__names_fini(&trial->members);
    sonde__trial_steps_fini(&trial->steps);
    sonde__trial_forms_fini(&trial->forms);
    sonde__free(trial->packed.bytes);
    sonde__free(trial->value.bytes);
    sonde__free(trial->buffer.bytes);
    sonde__trial_smdebug_close(trial->smdebug);
    free_texts(trial);
    sonde__free(trial);
}

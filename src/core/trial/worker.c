/*
 * worker.c - see worker.h.
 */
#include "trial/trial_state.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

/* --- opening ---------------------------------------------------------------------- */

static bool list_file(sonde__trial_worker *worker, const char *name)
{
    uint64_t number = 0;
    bool part = false;
    const sonde__record_file_kind kind = sonde__record_file_parse(name, &number, &part);

    return kind == SONDE__FILE_OTHER ||
           sonde__trial_progress_list(&worker->progress[kind], number);
}

static sonde_err list_files(sonde__trial_worker *worker, sonde_diag *diag)
{
    char path[SONDE__PATH];
    const struct dirent *entry = NULL;
    bool ok = true;
    DIR *folder = opendir(sonde__trial_path(worker->path, "", path));

    if (folder == NULL) {
        if (errno == ENOENT) {
            return SONDE_OK;
        }
        return sonde__fail_errno(diag, path, "cannot be listed");
    }
    while (ok && (entry = readdir(folder)) != NULL) {
        ok = list_file(worker, entry->d_name);
    }
    (void)closedir(folder);
    for (int kind = 0; kind < SONDE__FILE_OTHER; kind++) {
        sonde__trial_progress_sort(&worker->progress[kind]);
    }
    return ok ? SONDE_OK : sonde__fail_nomem(diag, path);
}

/* Notes segments whose index is missing. The newest may not have one yet. */
static void check_indexes(sonde_trial *trial, const sonde__trial_worker *worker)
{
    const sonde__trial_progress *segments = &worker->progress[SONDE__FILE_SEGMENT],
                                *index = &worker->progress[SONDE__FILE_INDEX];
    size_t place = 0;

    for (size_t i = 0; i + 1 < segments->listed_count; i++) {
        const uint64_t number = segments->listed[i];

        while (place < index->listed_count && index->listed[place] < number) {
            place++;
        }
        if ((place == index->listed_count || index->listed[place] != number) &&
            segments->listed[i + 1] != number &&
            !sonde__trial_has_file(worker->path, SONDE__FILE_INDEX, number)) {
            sonde__trial_damage(
                &trial->damage, worker->name,
                "the index of segment %08llu is missing: nothing in it is found",
                (unsigned long long)number);
        }
    }
}

static bool name_worker(const sonde_trial *trial, sonde__trial_worker *worker,
                        const char *name)
{
    char path[SONDE__PATH];

    worker->name = sonde__strdup(name);
    worker->path = sonde__strdup(sonde__trial_path(trial->path, name, path));
    for (int kind = 0; kind < SONDE__FILE_OTHER; kind++) {
        worker->files[kind].folder = worker->path;
        worker->files[kind].kind = (sonde__record_file_kind)kind;
    }
    return worker->name != NULL && worker->path != NULL;
}

static sonde_err create(sonde_trial *trial, int rank, const char *name,
                        sonde__trial_worker **out, sonde_diag *diag)
{
    sonde__trial_worker *worker = sonde__calloc(1, sizeof *worker);
    sonde_err err = SONDE_OK;

    if (worker == NULL) {
        return sonde__fail_nomem(diag, "a worker");
    }
    worker->rank = rank;
    worker->last_ended = -1;
    worker->put = -1;
    worker->file_count = -1;
    worker->limit = INT64_MAX;
    for (int kind = 0; kind < SONDE_FORM_COUNT; kind++) {
        sonde__trial_items_init(&worker->items[kind], kind);
    }
    SONDE__TRY_GO(name_worker(trial, worker, name) ? list_files(worker, diag)
                                                   : sonde__fail_nomem(diag, "a worker"));
    check_indexes(trial, worker);
    *out = worker;
    return SONDE_OK;

error:
    sonde__trial_worker_destroy(worker);
    return err;
}

sonde_err sonde__trial_add_worker(sonde_trial *trial, int rank, const char *name,
                                  sonde__trial_worker **out, sonde_diag *diag)
{
    sonde__trial_worker *worker = NULL;
    size_t place = trial->worker_count;

    if (!sonde__reserve(&trial->workers, &trial->worker_capacity, trial->worker_count + 1,
                        sizeof(sonde__trial_worker *))) {
        return sonde__fail_nomem(diag, "the workers of a run");
    }
    SONDE__TRY(create(trial, rank, name, &worker, diag));
    for (; place > 0 && trial->workers[place - 1]->rank > rank; place--) {
        trial->workers[place] = trial->workers[place - 1];
    }
    trial->workers[place] = worker;
    trial->worker_count++;
    trial->world = SONDE_MAX(trial->world, rank + 1);
    trial->changed = true;
    if (out != NULL) {
        *out = worker;
    }
    return SONDE_OK;
}
void sonde__trial_worker_destroy(sonde__trial_worker *worker)
{
    if (worker == NULL) {
        return;
    }
    for (int kind = 0; kind < SONDE_FORM_COUNT; kind++) {
        sonde__trial_items_fini(&worker->items[kind]);
    }
    for (int kind = 0; kind < SONDE__FILE_OTHER; kind++) {
        sonde__trial_file_list_fini(&worker->files[kind]);
        sonde__trial_progress_fini(&worker->progress[kind]);
    }
    sonde__trial_progress_fini(&worker->catalogue);
    sonde__trial_progress_fini(&worker->resumes);
    sonde__trial_progress_fini(&worker->listed);
    sonde__free(worker->generations);
    sonde__free(worker->ids);
    sonde__free(worker->layouts);
    sonde__free(worker->ended);
    sonde__free(worker->name);
    sonde__free(worker->path);
    sonde__free(worker);
}

/* --- what it has recorded --------------------------------------------------------- */

sonde_err sonde__trial_worker_add(sonde_trial *trial, sonde__trial_worker *worker,
                                  int kind, const sonde__trial_item *item,
                                  sonde_diag *diag)
{
    sonde__trial_step *step = &trial->steps.items[item->step];

    if (!sonde__trial_items_add(&worker->items[kind], &trial->steps, item)) {
        return sonde__fail_nomem(diag, "the index of a run");
    }
    step->saved = true;
    trial->changed = true;
    return SONDE_OK;
}

bool sonde__trial_worker_has_ended(const sonde__trial_worker *worker, uint32_t step)
{
    return step < worker->ended_count && worker->ended[step] != 0;
}

bool sonde__trial_worker_ended(sonde_trial *trial, sonde__trial_worker *worker,
                               uint32_t step, int64_t time)
{
    if (step >= worker->ended_count) {
        if (!sonde__reserve(&worker->ended, &worker->ended_capacity, (size_t)step + 1,
                            sizeof *worker->ended)) {
            return false;
        }
        while (worker->ended_count <= step) {
            worker->ended[worker->ended_count++] = 0;
        }
    }
    if (worker->ended[step] == 0) {
        worker->ended[step] = time > 0 ? time : SONDE__NO_TIME;
        trial->steps.items[step].ended++;
    }
    return true;
}

int64_t sonde__trial_ended_at(const sonde_trial *trial, uint32_t step, int rank)
{
    int64_t time = 0;

    for (size_t i = 0; i < trial->worker_count; i++) {
        const sonde__trial_worker *worker = trial->workers[i];

        if ((rank < 0 || worker->rank == rank) &&
            sonde__trial_worker_has_ended(worker, step) &&
            worker->ended[step] != SONDE__NO_TIME) {
            time = SONDE_MAX(time, worker->ended[step]);
        }
    }
    return time;
}

bool sonde__trial_step_complete(const sonde_trial *trial, const sonde__trial_step *step)
{
    return step->global <= trial->last_complete || step->ended >= (uint32_t)trial->world;
}

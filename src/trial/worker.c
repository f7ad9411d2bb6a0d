/*
 * worker.c - a worker's folder: what is in it when it is opened, its tensors under the
 * trial's ids, and the steps that it has ended.
 */
#include "trial/trial_state.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/names.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { MOST_UNKNOWN = 1 << 20 }; /* ids beyond it cannot be meant, unless declared */

/* --- opening ---------------------------------------------------------------------- */

static bool list_file(sonde__trial_worker *worker, const char *name)
{
    uint64_t number = 0;
    bool part = false;

    switch (sonde__record_file_parse(name, &number, &part)) {
    case SONDE__FILE_INDEX:
        return sonde__trial_progress_list(&worker->index, number);
    case SONDE__FILE_STATS:
        return sonde__trial_progress_list(&worker->stats, number);
    case SONDE__FILE_SKETCH:
        return sonde__trial_progress_list(&worker->sketch, number);
    case SONDE__FILE_STEPS:
        return sonde__trial_progress_list(&worker->steps, number);
    case SONDE__FILE_SEGMENT:
        return sonde__trial_progress_list(&worker->segments, number);
    case SONDE__FILE_OTHER:
        break;
    }
    return true;
}

static sonde_err list_files(sonde_trial *trial, sonde__trial_worker *worker,
                            sonde_diag *diag)
{
    char path[SONDE__PATH];
    const struct dirent *entry = NULL;
    bool ok = true;
    DIR *folder = opendir(sonde__trial_path(trial, worker, "", path));

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
    sonde__trial_progress_sort(&worker->index);
    sonde__trial_progress_sort(&worker->stats);
    sonde__trial_progress_sort(&worker->sketch);
    sonde__trial_progress_sort(&worker->steps);
    sonde__trial_progress_sort(&worker->segments);
    return ok ? SONDE_OK : sonde__fail_nomem(diag, path);
}

/* Segments whose index is gone. The newest may be so young that it has none yet. */
static void check_indexes(sonde_trial *trial, const sonde__trial_worker *worker)
{
    const sonde__trial_progress *segments = &worker->segments, *index = &worker->index;
    size_t at = 0;

    for (size_t i = 0; i + 1 < segments->listed_count; i++) {
        const uint64_t number = segments->listed[i];

        while (at < index->listed_count && index->listed[at] < number) {
            at++;
        }
        if ((at == index->listed_count || index->listed[at] != number) &&
            segments->listed[i + 1] != number) {
            sonde__trial_damage(
                trial, worker->name,
                "the index of segment %08llu is missing: nothing in it is found",
                (unsigned long long)number);
        }
    }
}

sonde_err sonde__trial_worker_create(sonde_trial *trial, int rank, const char *name,
                                     sonde__trial_worker **out, sonde_diag *diag)
{
    sonde__trial_worker *worker = sonde__calloc(1, sizeof *worker);
    sonde_err err = SONDE_OK;

    if (worker == NULL) {
        return sonde__fail_nomem(diag, "a worker");
    }
    worker->rank = rank;
    worker->last_ended = -1;
    worker->limit = INT64_MAX;
    for (int kind = 0; kind < SONDE__KINDS; kind++) {
        sonde__trial_store_init(&worker->stores[kind], (sonde__trial_kind)kind);
    }
    worker->name = sonde__strdup(name);
    err = worker->name != NULL ? list_files(trial, worker, diag)
                               : sonde__fail_nomem(diag, "a worker");
    if (err != SONDE_OK) {
        sonde__trial_worker_destroy(worker);
        return err;
    }
    check_indexes(trial, worker);
    *out = worker;
    return SONDE_OK;
}

void sonde__trial_worker_destroy(sonde__trial_worker *worker)
{
    if (worker == NULL) {
        return;
    }
    for (int kind = 0; kind < SONDE__KINDS; kind++) {
        sonde__trial_store_fini(&worker->stores[kind]);
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(worker->files); i++) {
        sonde__trial_file_list_fini(&worker->files[i]);
    }
    sonde__trial_progress_fini(&worker->index);
    sonde__trial_progress_fini(&worker->stats);
    sonde__trial_progress_fini(&worker->sketch);
    sonde__trial_progress_fini(&worker->segments);
    sonde__trial_progress_fini(&worker->steps);
    sonde__trial_progress_fini(&worker->catalogue);
    sonde__trial_progress_fini(&worker->resumes);
    sonde__free(worker->generations);
    sonde__free(worker->ids);
    sonde__free(worker->guess);
    sonde__free(worker->ended);
    sonde__free(worker->name);
    sonde__free(worker);
}

/* --- tensors ---------------------------------------------------------------------- */

sonde_err sonde__trial_declare(sonde_trial *trial, const sonde_tensor_info *info,
                               uint32_t *tensor, sonde_diag *diag)
{
    const sonde_err err = sonde_catalogue_declare(trial->catalogue, info, tensor, diag);

    if (err == SONDE_OK) {
        trial->changed = true;
    }
    /* A name that is taken is found first, before any other spelling of it. */
    return err == SONDE_EEXIST
               ? sonde_catalogue_find(trial->catalogue, info->name, tensor, diag)
               : err;
}

bool sonde__trial_known(const sonde_trial *trial, const char *name, uint32_t *tensor)
{
    uint32_t id = 0;

    if (sonde_catalogue_find(trial->catalogue, name, &id, NULL) != SONDE_OK ||
        strcmp(sonde_catalogue_info(trial->catalogue, id)->name, name) != 0) {
        return false;
    }
    *tensor = id;
    return true;
}

const char *sonde__trial_member_key(uint32_t tensor, const char *collection,
                                    char key[SONDE__MEMBER])
{
    (void)snprintf(key, SONDE__MEMBER, "%lu/%s", (unsigned long)tensor, collection);
    return key;
}

bool sonde__trial_join(sonde_trial *trial, uint32_t tensor, const char *collection)
{
    char key[SONDE__MEMBER];

    return sonde__names_intern(&trial->collections, collection) != SONDE__NO_NAME &&
           sonde__names_intern(&trial->members,
                               sonde__trial_member_key(tensor, collection, key)) !=
               SONDE__NO_NAME;
}

bool sonde__trial_worker_map(sonde__trial_worker *worker, uint32_t id, uint32_t tensor)
{
    if (id >= worker->id_count) {
        if (!sonde__reserve(&worker->ids, &worker->id_capacity, (size_t)id + 1,
                            sizeof *worker->ids)) {
            return false;
        }
        while (worker->id_count <= id) {
            worker->ids[worker->id_count++] = SONDE__NONE;
        }
    }
    worker->ids[id] = tensor;
    return true;
}

/* A tensor that no line declares: under the name that its value's key gives, if there is
 * one, else under its number. */
static sonde_err declare_unknown(sonde_trial *trial, sonde__trial_worker *worker,
                                 uint32_t id, const sonde__record_index_line *line,
                                 const char *known, sonde_diag *diag)
{
    char name[128];
    sonde_tensor_info info = {.name = known,
                              .role = SONDE_ROLE_OTHER,
                              .dtype = SONDE_F32,
                              .same_as = SONDE_NO_TENSOR,
                              .note = "its line in the catalogue is missing"};
    uint32_t tensor = 0;
    sonde_err err = SONDE_OK;

    if (known == NULL) {
        (void)snprintf(name, sizeof name, "%s/tensor_%lu", worker->name,
                       (unsigned long)id);
        info.name = name;
    }
    if (line != NULL) {
        info.dtype = line->dtype;
        info.rank = line->rank;
        memcpy(info.shape, line->shape, (size_t)line->rank * sizeof info.shape[0]);
    }
    err = sonde__trial_declare(trial, &info, &tensor, diag);
    if (err != SONDE_OK) {
        return err;
    }
    if (!sonde__trial_worker_map(worker, id, tensor)) {
        return sonde__fail_nomem(diag, "the ids of a worker");
    }
    if (!worker->has_catalogue && !worker->no_catalogue) {
        worker->no_catalogue = true;
        sonde__trial_damage(trial, worker->name, SONDE__CATALOGUE_FILE " is missing");
    }
    sonde__trial_damage_in(trial, &worker->catalogue, worker->name,
                           "no line of " SONDE__CATALOGUE_FILE
                           " declares tensor %lu: it is called '%.200s' here",
                           (unsigned long)id, info.name);
    return SONDE_OK;
}

static bool is_known(const sonde__trial_worker *worker, uint32_t id)
{
    return id < worker->id_count && worker->ids[id] != SONDE__NONE;
}

sonde_err sonde__trial_worker_tensor(sonde_trial *trial, sonde__trial_worker *worker,
                                     uint32_t id, const sonde__record_index_line *line,
                                     sonde__trial_file *segment, uint32_t *tensor,
                                     sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    *tensor = SONDE__NONE;
    if (!is_known(worker, id)) {
        err = sonde__trial_catalogue_read(trial, worker, diag);
        if (err == SONDE_OK && id < MOST_UNKNOWN && !is_known(worker, id)) {
            char *known = line != NULL
                              ? sonde__trial_name_in_header(trial, worker, segment, line)
                              : NULL;

            err = declare_unknown(trial, worker, id, line, known, diag);
            sonde__free(known);
        }
    }
    if (err == SONDE_OK && id < worker->id_count) {
        *tensor = worker->ids[id];
    }
    return err;
}

sonde_err sonde__trial_worker_add(sonde_trial *trial, sonde__trial_worker *worker,
                                  sonde__trial_kind kind, const sonde__trial_item *item,
                                  sonde_diag *diag)
{
    sonde__trial_step *step = &trial->steps.items[item->step];

    if (!sonde__trial_store_add(&worker->stores[kind], &trial->steps, item)) {
        return sonde__fail_nomem(diag, "the index of a run");
    }
    step->saved = true;
    trial->changed = true;
    return SONDE_OK;
}

/* --- ended steps ------------------------------------------------------------------ */

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
    if (worker->ended[step] == 0) { /* what comes late does not change when it was */
        worker->ended[step] = time > 0 ? time : SONDE__NO_TIME;
        trial->steps.items[step].ended++;
    }
    return true;
}

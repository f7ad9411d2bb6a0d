/*
 * side.c - see side.h.
 */
#include "diff/side.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/names.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* --- entries ------------------------------------------------------------------------ */

static bool is_known(const void *entries, uint32_t index, const void *known)
{
    const sonde__diff_entry *const all = entries;

    return strcmp(all[index].known, known) == 0;
}

const sonde__diff_entry *sonde__diff_side_find(const sonde__diff_side *side,
                                               const char *known)
{
    const uint32_t index = sonde__table_find(
        &side->table, XXH3_64bits(known, strlen(known)), is_known, side->entries, known);

    return index == SONDE__TABLE_NONE ? NULL : &side->entries[index];
}

/* Two names of B that become one name of A cannot both be compared with it. */
static sonde_err index_entries(sonde__diff_side *side, sonde_diag *diag)
{
    for (size_t i = 0; i < side->count; i++) {
        const sonde__diff_entry *const entry = &side->entries[i];
        const sonde__diff_entry *const other = sonde__diff_side_find(side, entry->known);

        if (other != NULL) {
            return sonde__fail(diag, SONDE_EINVAL, side->path, "a name for each tensor",
                               "'%.200s' and '%.200s' both become '%.200s'", other->name,
                               entry->name, entry->known);
        }
        if (!sonde__table_reserve(&side->table)) {
            return sonde__fail_nomem(diag, "names");
        }
        sonde__table_add(&side->table, XXH3_64bits(entry->known, strlen(entry->known)),
                         (uint32_t)i);
    }
    return SONDE_OK;
}

/* --- runs --------------------------------------------------------------------------- */

static sonde_err list_run(sonde__diff_side *side, sonde_diag *diag)
{
    const sonde_catalogue *const catalogue = sonde_trial_catalogue(side->trial);
    const uint32_t count = sonde_catalogue_count(catalogue);

    side->entries = sonde__calloc(count + 1, sizeof *side->entries);
    for (uint32_t id = 0; side->entries != NULL && id < count; id++) {
        const sonde_tensor_info *const info = sonde_catalogue_info(catalogue, id);

        if (info->same_as != id || info->role == SONDE_ROLE_PROGRAM) {
            continue; /* a second name of a value; a text */
        }
        sonde__diff_entry *const entry = &side->entries[side->count];
        entry->name = sonde__strdup(info->name);
        if (entry->name == NULL) {
            return sonde__fail_nomem(diag, side->path);
        }
        entry->id = id;
        side->count++;
    }
    return side->entries != NULL ? SONDE_OK : sonde__fail_nomem(diag, side->path);
}

/* --- files -------------------------------------------------------------------------- */

/* A tensor of one file. */
typedef struct found {
    const char *name;
    const sonde_view *view;
    size_t order;
} found;

static int by_name(const void *a, const void *b)
{
    const found *const x = a, *const y = b;
    const int names = strcmp(x->name, y->name);

    return names != 0 ? names : (x->order > y->order) - (x->order < y->order);
}

static int by_order(const void *a, const void *b)
{
    const sonde__diff_entry *const x = a, *const y = b;

    return (x->id > y->id) - (x->id < y->id);
}

/* All tensors of all files, sorted by name, those of one name by file. */
static found *gather(const sonde__diff_side *side, size_t *count)
{
    size_t all = 0, n = 0;
    found *list = NULL;

    for (size_t f = 0; f < side->file_count; f++) {
        all += sonde_safetensors_count(side->files[f]);
    }
    list = sonde__calloc(all + 1, sizeof *list);
    for (size_t f = 0; list != NULL && f < side->file_count; f++) {
        for (size_t i = 0; i < sonde_safetensors_count(side->files[f]); i++, n++) {
            list[n] = (found){sonde_safetensors_name(side->files[f], i),
                              sonde_safetensors_view(side->files[f], i), n};
        }
    }
    if (list != NULL) {
        qsort(list, all, sizeof *list, by_name);
    }
    *count = all;
    return list;
}

/* One entry for each name; id is the place of its first part in the files. */
static sonde_err list_files(sonde__diff_side *side, sonde_diag *diag)
{
    size_t all = 0;
    found *const list = gather(side, &all);
    sonde_err err = SONDE_OK;

    side->entries = sonde__calloc(all + 1, sizeof *side->entries);
    side->parts = sonde__calloc(all + 1, sizeof *side->parts);
    if (list == NULL || side->entries == NULL || side->parts == NULL) {
        err = sonde__fail_nomem(diag, side->path);
    }
    for (size_t i = 0; err == SONDE_OK && i < all; i++) {
        side->parts[i] = (sonde__diff_operand){*list[i].view, true};
        if (i > 0 && strcmp(list[i].name, list[i - 1].name) == 0) {
            side->entries[side->count - 1].part_count++;
            continue;
        }
        sonde__diff_entry *const entry = &side->entries[side->count++];
        *entry = (sonde__diff_entry){.name = sonde__strdup(list[i].name),
                                     .id = (uint32_t)list[i].order,
                                     .part = i,
                                     .part_count = 1};
        err = entry->name != NULL ? SONDE_OK : sonde__fail_nomem(diag, side->path);
    }
    sonde__free(list);
    if (err == SONDE_OK) {
        qsort(side->entries, side->count, sizeof *side->entries, by_order);
    }
    return err;
}

static sonde_err add_file(sonde__diff_side *side, size_t *capacity, const char *path,
                          sonde_diag *diag)
{
    if (!sonde__reserve(&side->files, capacity, side->file_count + 1,
                        sizeof(sonde_safetensors *))) {
        return sonde__fail_nomem(diag, path);
    }
    SONDE__TRY(sonde_safetensors_open(path, &side->files[side->file_count], diag));
    side->file_count++;
    return SONDE_OK;
}

static int is_weights(const struct dirent *entry)
{
    const size_t length = strlen(entry->d_name), end = strlen(".safetensors");

    return length > end && strcmp(entry->d_name + length - end, ".safetensors") == 0;
}

/* Files of a folder in alphabetical order; none: file_count stays 0. */
static sonde_err open_folder(sonde__diff_side *side, const char *path, sonde_diag *diag)
{
    struct dirent **names = NULL;
    const int count = scandir(path, &names, is_weights, alphasort);
    size_t capacity = 0;
    sonde_err err =
        count < 0 ? sonde__fail_errno(diag, path, "cannot be listed") : SONDE_OK;

    for (int i = 0; i < count; i++) {
        char file[4096];

        (void)snprintf(file, sizeof file, "%s/%s", path, names[i]->d_name);
        if (err == SONDE_OK) {
            err = add_file(side, &capacity, file, diag);
        }
        free(names[i]);
    }
    free(names);
    return err;
}

/* --- opening ------------------------------------------------------------------------ */

/* A run, or else files. */
static sonde_err open_path(sonde__diff_side *side, const char *path, sonde_diag *diag)
{
    struct stat facts;
    size_t capacity = 0;

    if (stat(path, &facts) == 0 && S_ISREG(facts.st_mode)) {
        return add_file(side, &capacity, path, diag);
    }
    const sonde_err err = sonde_trial_open(path, NULL, &side->trial, diag);
    if (err == SONDE_EFORMAT && stat(path, &facts) == 0 && S_ISDIR(facts.st_mode)) {
        sonde_diag other = {0};

        const sonde_err folder = open_folder(side, path, &other);
        if (folder != SONDE_OK) {
            if (diag != NULL) {
                *diag = other;
            }
            return folder;
        }
        if (side->file_count > 0) {
            return SONDE_OK;
        }
    }
    return err;
}

sonde_err sonde__diff_side_open(sonde__diff_side *side, const char *path,
                                const sonde_diff_options *rename, sonde_diag *diag)
{
    side->path = path;
    SONDE__TRY(open_path(side, path, diag));
    SONDE__TRY(side->trial != NULL ? list_run(side, diag) : list_files(side, diag));
    SONDE__TRY(sonde__diff_rename(side, rename, diag));
    return index_entries(side, diag);
}

void sonde__diff_side_close(sonde__diff_side *side)
{
    for (size_t i = 0; i < side->count; i++) {
        if (side->entries[i].known != side->entries[i].name) {
            sonde__free(side->entries[i].known);
        }
        sonde__free(side->entries[i].name);
    }
    for (size_t i = 0; i < side->file_count; i++) {
        sonde_safetensors_destroy(side->files[i]);
    }
    sonde__table_fini(&side->table);
    sonde__free(side->entries);
    sonde__free(side->parts);
    sonde__free(side->files);
    sonde_trial_close(side->trial);
    *side = (sonde__diff_side){0};
}

/* --- values ------------------------------------------------------------------------- */

/* The value of one worker; one that is not mapped is copied, as the next call ends it. */
static sonde_err get_one(const sonde__diff_side *side, uint32_t id,
                         const sonde_trial_at *where, sonde__diff_operand *part,
                         sonde_diag *diag)
{
    sonde_view view;
    SONDE__TRY(sonde_trial_value(side->trial, id, where, &view, diag));
    *part = (sonde__diff_operand){view, sonde_trial_is_mapped(side->trial, &view)};
    if (part->mapped) {
        return SONDE_OK;
    }
    part->view = sonde_view_of(
        view.dtype, view.rank, view.shape,
        sonde__malloc((size_t)sonde_view_count(&view) * sonde_dtype_size(view.dtype)));
    if (part->view.data == NULL) {
        return sonde__fail_nomem(diag, "a value");
    }
    return sonde_view_copy(&part->view, &view, diag);
}

sonde_err sonde__diff_value_get(const sonde__diff_side *side,
                                const sonde__diff_entry *entry,
                                const sonde_trial_at *where, sonde__diff_value *value,
                                sonde_diag *diag)
{
    sonde_trial_at at = *where;
    sonde_err err = SONDE_OK;
    size_t workers = 0;

    *value = (sonde__diff_value){0};
    if (side->trial == NULL) {
        value->part = &side->parts[entry->part];
        value->count = entry->part_count;
        return SONDE_OK;
    }
    while (where->worker < 0 && sonde_trial_worker(side->trial, workers) >= 0) {
        workers++;
    }
    value->own = sonde__calloc(workers + 1, sizeof *value->own);
    if (value->own == NULL) {
        return sonde__fail_nomem(diag, "a value");
    }
    value->part = value->own;
    for (size_t i = 0; err == SONDE_OK && i < SONDE_MAX(workers, 1); i++) {
        at.worker =
            where->worker < 0 ? sonde_trial_worker(side->trial, i) : where->worker;
        if ((sonde_trial_has(side->trial, entry->id, &at) & SONDE_HOW_RAW) != 0) {
            err = get_one(side, entry->id, &at, &value->own[value->count], diag);
            value->count += err == SONDE_OK;
        }
    }
    if (err == SONDE_OK && value->count == 0) {
        err = sonde__fail(diag, SONDE_ENOTFOUND, side->path, NULL, "no value of '%.200s'",
                          entry->name);
    }
    if (err != SONDE_OK) {
        sonde__diff_value_fini(value);
    }
    return err;
}

void sonde__diff_value_fini(sonde__diff_value *value)
{
    for (size_t i = 0; value->own != NULL && i < value->count; i++) {
        if (!value->own[i].mapped) {
            sonde__free(value->own[i].view.data);
        }
    }
    sonde__free(value->own);
    *value = (sonde__diff_value){0};
}

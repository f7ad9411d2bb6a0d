/*
 * smdebug_collections.c - which tensors belong to which of smdebug's collections: those that
 * its file lists, and those that its patterns find.
 */
#include "import/smdebug_state.h"
#include "base/fail.h"
#include "base/macros.h"

#include <sonde/selector.h>

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define FOLDER "collections/000000000"

typedef struct context {
    sonde_trial *trial;
    const char *where, *collection;
    sonde_diag *diag;
} context;

static sonde_err join(const context *of, uint32_t tensor)
{
    return sonde__trial_join(of->trial, tensor, of->collection)
               ? SONDE_OK
               : sonde__fail_nomem(of->diag, "collections");
}

static sonde_err join_found(const context *of, const char *pattern)
{
    sonde_selector *selector = NULL;
    uint32_t *ids = NULL;
    size_t count = 0;
    sonde_diag why = {0};
    sonde_err err = sonde_selector_create_regex(pattern, &selector, &why);

    if (err == SONDE_OK) {
        err = sonde_selector_resolve(selector, of->trial->catalogue, &ids, &count, &why);
    }
    if (err != SONDE_OK && err != SONDE_ENOMEM) {
        sonde__trial_damage(of->trial, of->where, "the pattern '%.100s' of '%.100s': %s",
                            pattern, of->collection, why.found);
    }
    for (size_t i = 0; err == SONDE_OK && i < count; i++) {
        err = join(of, ids[i]);
    }
    sonde_selector_free_ids(ids);
    sonde_selector_destroy(selector);
    return err == SONDE_ENOMEM ? sonde__fail_nomem(of->diag, "collections") : SONDE_OK;
}

static sonde_err take_collection(const context *of, const json_t *collection)
{
    const json_t *names = json_object_get(collection, "tensor_names");
    const json_t *patterns = json_object_get(collection, "include_regex");
    sonde_err err = SONDE_OK;

    for (size_t i = 0; err == SONDE_OK && i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        uint32_t tensor = 0;

        if (name != NULL && sonde__trial_known(of->trial, name, &tensor)) {
            err = join(of, tensor);
        }
    }
    for (size_t i = 0; err == SONDE_OK && i < json_array_size(patterns); i++) {
        const char *pattern = json_string_value(json_array_get(patterns, i));

        if (pattern != NULL) {
            err = join_found(of, pattern);
        }
    }
    return err;
}

static sonde_err take_file(context *of, const json_t *object)
{
    const json_t *workers =
        json_object_get(json_object_get(object, "_meta"), "num_workers");
    json_t *collections = json_object_get(object, "collections");
    const char *name = NULL;
    json_t *collection = NULL;

    if (json_is_integer(workers) && json_integer_value(workers) >= 1 &&
        json_integer_value(workers) <= 1 << 20) {
        of->trial->world = SONDE_MAX(of->trial->world, (int)json_integer_value(workers));
    }
    of->trial->smdebug->has_collections = true;
    json_object_foreach(collections, name, collection)
    {
        sonde_err err = SONDE_OK;

        of->collection = name;
        err = take_collection(of, collection);
        if (err != SONDE_OK) {
            return err;
        }
    }
    return SONDE_OK;
}

static sonde_err read_file(sonde_trial *trial, const char *name, sonde_diag *diag)
{
    char path[SONDE__PATH], where[SONDE__PATH];
    context of = {trial, where, NULL, diag};
    sonde_diag why = {0};
    json_error_t error;
    json_t *object = NULL;
    size_t size = 0;
    sonde_err err = SONDE_OK;

    (void)snprintf(where, sizeof where, FOLDER "/%.255s", name);
    err = sonde__trial_read_small(trial, sonde__trial_path(trial, NULL, where, path),
                                  &size, &why);
    if (err == SONDE_ENOMEM) {
        return sonde__fail_nomem(diag, path);
    }
    if (err == SONDE_OK) {
        object = json_loadb((const char *)trial->buffer.bytes, size, 0, &error);
    }
    if (json_is_object(object)) {
        err = take_file(&of, object);
    } else {
        sonde__trial_damage(trial, where, "%s",
                            err != SONDE_OK ? why.found : "not a JSON object");
        trial->smdebug->has_collections = true; /* such as they are */
        err = SONDE_OK;
    }
    json_decref(object);
    return err;
}

sonde_err sonde__import_smdebug_read_collections(sonde_trial *trial, sonde_diag *diag)
{
    static const char end[] = "_collections.json";
    sonde__import_smdebug *smdebug = trial->smdebug;
    const uint32_t tensors = sonde_catalogue_count(trial->catalogue);
    char path[SONDE__PATH];
    const struct dirent *entry = NULL;
    sonde_err err = SONDE_OK;
    DIR *folder = NULL;

    if (smdebug->has_collections && smdebug->collected == tensors) {
        return SONDE_OK;
    }
    folder = opendir(sonde__trial_path(trial, NULL, FOLDER, path));
    while (folder != NULL && err == SONDE_OK && (entry = readdir(folder)) != NULL) {
        const size_t length = strlen(entry->d_name), tail = sizeof end - 1;

        if (length > tail && strcmp(entry->d_name + length - tail, end) == 0) {
            err = read_file(trial, entry->d_name, diag);
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
        sonde__trial_damage(trial, FOLDER,
                            "no file of collections: how many workers there "
                            "were is not known");
    }
    return err;
}

/*
 * hook.c - the life of a hook: made, given tensors, opened at the first step, closed.
 */
#include "hook/hook_state.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <sonde/log.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- making ----------------------------------------------------------------------- */

/* Our copies of the strings that options point to. */
static sonde_err copy_texts(sonde_hook *hook, sonde_diag *diag)
{
    sonde_recorder_options *record = &hook->options.record;
    const char **const texts[] = {
        &record->path,  &record->resume, &record->program,      &record->model,
        &record->graph, &record->save,   &hook->options.include};

    for (size_t i = 0; i < SONDE_COUNT_OF(texts); i++) {
        if (*texts[i] == NULL) {
            continue;
        }
        hook->texts[i] = sonde__strdup(*texts[i]);
        if (hook->texts[i] == NULL) {
            return sonde__fail_nomem(diag, "a hook");
        }
        *texts[i] = hook->texts[i];
    }
    return SONDE_OK;
}

static sonde_err check_options(const sonde_hook_options *options, sonde_diag *diag)
{
    if (options->record.path == NULL && !options->dry_run) {
        return sonde__fail(diag, SONDE_EINVAL, "hook: path", "a folder, or dry_run",
                           "no path for the run");
    }
    if (options->vitals_every < 0) {
        return sonde__fail(diag, SONDE_EINVAL, "hook: vitals_every", "1 or more",
                           "%" PRId64, options->vitals_every);
    }
    return SONDE_OK;
}

/* What is saved from the start, and what the options add. */
static sonde_err add_defaults(sonde_hook *hook, sonde_diag *diag)
{
    static const char *const names[] = {"weights", "biases", "gradients", "losses"};
    sonde_err err = SONDE_OK;

    for (size_t i = 0; i < SONDE_COUNT_OF(names) && err == SONDE_OK; i++) {
        err = sonde__hook_add(hook, names[i], false, diag);
    }
    if (err == SONDE_OK && hook->options.save_all) {
        err = sonde__hook_add(hook, "all", true, diag);
    }
    if (err == SONDE_OK && hook->options.include != NULL) {
        err = sonde__hook_add(hook, "default", true, diag);
        if (err == SONDE_OK) {
            err = sonde_hook_include(hook, "default", hook->options.include, diag);
        }
    }
    return err;
}

static void destroy(sonde_hook *hook)
{
    sonde__hook_detach_all(hook);
    sonde__hook_forget_config(hook);
    for (size_t i = 0; i < SONDE_COUNT_OF(hook->texts); i++) {
        sonde__free(hook->texts[i]);
    }
    sonde_catalogue_destroy(hook->catalogue);
    sonde__free(hook->tensors);
    sonde__free(hook->due);
    sonde__free(hook->zeros);
    sonde__free(hook->held.items);
    sonde__free(hook->held.bytes);
    sonde__free(hook->early);
    sonde__free(hook->sketch);
    sonde__free(hook);
}

sonde_err sonde_hook_create(const sonde_hook_options *options, sonde_hook **out,
                            sonde_diag *diag)
{
    sonde_err err = check_options(options, diag);
    sonde_hook *hook = NULL;

    if (err != SONDE_OK) {
        return err;
    }
    hook = sonde__calloc(1, sizeof *hook);
    if (hook == NULL) {
        return sonde__fail_nomem(diag, "a hook");
    }
    hook->options = *options;
    hook->calls = &sonde__recorder_itself;
    if (hook->options.vitals_every == 0) {
        hook->options.vitals_every = 10;
    }
    sonde__unset_layers(hook->layers);
    err = copy_texts(hook, diag);
    if (err == SONDE_OK) {
        err = sonde_catalogue_create(&hook->catalogue, diag);
    }
    if (err == SONDE_OK) {
        err = add_defaults(hook, diag);
    }
    if (err != SONDE_OK) {
        destroy(hook);
        return err;
    }
    *out = hook;
    return SONDE_OK;
}

void sonde__hook_set_recorder(sonde_hook *hook, const sonde__recorder_calls *calls)
{
    hook->calls = calls;
}

const sonde_hook_gate *sonde_hook_get_gate(const sonde_hook *hook)
{
    return &hook->gate;
}

const char *sonde_hook_path(const sonde_hook *hook)
{
    return hook->options.dry_run ? NULL : hook->options.record.path;
}

sonde_recorder *sonde_hook_recorder(sonde_hook *hook)
{
    return hook->recorder;
}

/* --- tensors ---------------------------------------------------------------------- */

uint32_t sonde__hook_tensor_named(const sonde_hook *hook, const char *name)
{
    uint32_t id = 0;
    const sonde_err err = sonde_catalogue_find(hook->catalogue, name, &id, NULL);

    return err == SONDE_OK &&
                   strcmp(sonde_catalogue_info(hook->catalogue, id)->name, name) == 0
               ? id
               : SONDE_NO_TENSOR;
}

/* The three arrays by id, for one more tensor. */
static bool grow_arrays(sonde_hook *hook, size_t count)
{
    const size_t capacity = SONDE_MAX(2 * hook->tensor_capacity, (size_t)64);
    sonde__hook_tensor *tensors = NULL;
    uint8_t *due = NULL, *zeros = NULL;

    if (count <= hook->tensor_capacity) {
        return true;
    }
    tensors = sonde__calloc(capacity, sizeof *tensors);
    due = sonde__calloc(capacity, 1);
    zeros = sonde__calloc(capacity, 1);
    if (tensors == NULL || due == NULL || zeros == NULL) {
        sonde__free(tensors);
        sonde__free(due);
        sonde__free(zeros);
        return false;
    }
    if (hook->tensor_capacity > 0) {
        memcpy(tensors, hook->tensors, hook->tensor_capacity * sizeof *tensors);
        memcpy(due, hook->due, hook->tensor_capacity);
    }
    hook->gate.due = hook->gate.due == hook->due && hook->due != NULL ? due : zeros;
    sonde__free(hook->tensors);
    sonde__free(hook->due);
    sonde__free(hook->zeros);
    hook->tensors = tensors;
    hook->due = due;
    hook->zeros = zeros;
    hook->tensor_capacity = capacity;
    return true;
}

/* The collections of a tensor, and that it will come, to the recorder. */
static sonde_err tell_recorder(sonde_hook *hook, uint32_t id, sonde_diag *diag)
{
    const char *names[SONDE__MOST_COLLECTIONS];
    size_t count = 0;
    sonde_err err = SONDE_OK;

    if (hook->recorder == NULL) {
        return SONDE_OK;
    }
    if (hook->tensors[id].member != 0 || hook->tensors[id].vital != 0) {
        err = hook->calls->expect(hook->recorder, id, diag);
    }
    for (uint64_t sets = hook->tensors[id].member; sets != 0; sets &= sets - 1) {
        names[count++] = hook->collections[__builtin_ctzll(sets)].name;
    }
    return err == SONDE_OK && count > 0
               ? hook->calls->collections(hook->recorder, id, names, count, diag)
               : err;
}

sonde_err sonde__hook_add_tensor(sonde_hook *hook, const sonde_tensor_info *info,
                                 const sonde__hook_tensor *of, uint32_t *id,
                                 sonde_diag *diag)
{
    const uint32_t count = sonde_catalogue_count(hook->catalogue);
    uint32_t added = 0;
    sonde_err err = grow_arrays(hook, (size_t)count + 1)
                        ? SONDE_OK
                        : sonde__fail_nomem(diag, "a tensor of a hook");

    if (err == SONDE_OK) {
        err = sonde_catalogue_declare(hook->catalogue, info, &added, diag);
    }
    if (err != SONDE_OK) {
        return err;
    }
    hook->tensors[added] = *of;
    hook->due[added] = 0;
    hook->vital |= of->vital;
    *id = added;
    return tell_recorder(hook, added, diag);
}

sonde_err sonde_hook_declare(sonde_hook *hook, const sonde_tensor_info *info,
                             uint32_t *id, sonde_diag *diag)
{
    const sonde__hook_tensor nothing = {0};
    sonde_tensor_info own = *info;
    uint32_t added = 0;
    sonde_err err = SONDE_OK;

    if (own.name != NULL && own.role == SONDE_ROLE_OTHER) {
        own.role = sonde__role_by_name(own.name);
    }
    own.same_as =
        SONDE_NO_TENSOR; /* values are recorded under every name they are given */
    err = sonde__hook_add_tensor(hook, &own, &nothing, &added, diag);
    if (err == SONDE_OK && hook->resolved) {
        err =
            sonde__hook_members(hook, hook->catalogue, added, false, hook->tensors, diag);
        hook->vital |= hook->tensors[added].vital;
        if (err == SONDE_OK) {
            err = tell_recorder(hook, added, diag);
        }
        sonde__hook_look_again(hook);
    }
    if (err == SONDE_OK) {
        *id = added;
    }
    return err;
}

sonde_err sonde_hook_declare_view(sonde_hook *hook, const char *name,
                                  const sonde_view *view, uint32_t *id, sonde_diag *diag)
{
    sonde_tensor_info info = {.name = name,
                              .role = SONDE_ROLE_OTHER,
                              .dtype = view->dtype,
                              .rank = view->rank,
                              .same_as = SONDE_NO_TENSOR};

    memcpy(info.shape, view->shape, sizeof info.shape);
    return sonde_hook_declare(hook, &info, id, diag);
}

/* --- the run ---------------------------------------------------------------------- */

/* The tensors that were declared before the first step. */
static sonde_err settle_tensors(sonde_hook *hook, sonde_diag *diag)
{
    const uint32_t count = sonde_catalogue_count(hook->catalogue);
    sonde_err err = SONDE_OK;

    if (hook->resolved) {
        return SONDE_OK;
    }
    if (count > 0) { /* none: a program that declares as it goes */
        err = sonde__hook_members(hook, hook->catalogue, 0, true, hook->tensors, diag);
    }
    hook->resolved = err == SONDE_OK;
    for (uint32_t id = 0; id < count; id++) {
        hook->vital |= hook->tensors[id].vital;
    }
    return err;
}

static sonde_err open_recorder(sonde_hook *hook, sonde_diag *diag)
{
    sonde_recorder_options options = hook->options.record;
    int64_t next[SONDE_MODE_COUNT];
    char *save = options.save == NULL ? sonde__hook_tell(hook) : NULL;
    sonde_err err = SONDE_OK;

    if (options.save == NULL && save == NULL) {
        return sonde__fail_nomem(diag, "the configuration of a hook");
    }
    options.save = options.save != NULL ? options.save : save;
    if (options.graph == NULL && hook->graph[0] != '\0') {
        options.graph = hook->graph;
    }
    err = hook->calls->create(&options, hook->catalogue, &hook->recorder, diag);
    free(save);
    if (err == SONDE_OK && options.resume != NULL) {
        hook->calls->next(hook->recorder, next);
        for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
            hook->next_step[mode] = SONDE_MAX(hook->next_step[mode], next[mode]);
        }
        hook->next_global = SONDE_MAX(hook->next_global, next[SONDE_MODE_GLOBAL]);
    }
    return err;
}

sonde_err sonde_hook_open(sonde_hook *hook, sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    if (hook->open) {
        return SONDE_OK;
    }
    err = sonde__hook_settle(hook, diag);
    if (err == SONDE_OK) {
        err = settle_tensors(hook, diag);
    }
    if (err == SONDE_OK && !hook->options.dry_run && hook->recorder == NULL) {
        err = open_recorder(hook, diag);
    }
    for (uint32_t id = 0; err == SONDE_OK && id < sonde_catalogue_count(hook->catalogue);
         id++) {
        err = tell_recorder(hook, id, diag);
    }
    hook->open = err == SONDE_OK;
    return err;
}

sonde_err sonde_hook_close(sonde_hook *hook, sonde_run_end reason, const char *text,
                           sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    if (hook == NULL) {
        return SONDE_OK;
    }
    if (hook->stepping) {
        sonde_hook_step_done(hook);
    }
    if (hook->open && hook->options.dry_run) {
        sonde_log(SONDE_LOG_INFO, "hook",
                  "dry run: %" PRIu64 " values of %" PRIu64 " bytes, %" PRIu64
                  " rows of vital signs and %" PRIu64 " sketches in %" PRId64 " steps",
                  hook->values, hook->bytes, hook->rows, hook->sketches,
                  hook->next_global);
    }
    if (hook->open) {
        sonde__hook_warn_unmatched(hook);
    }
    if (hook->recorder != NULL) {
        err = hook->calls->close(hook->recorder, reason, text, diag);
    }
    destroy(hook);
    return err;
}

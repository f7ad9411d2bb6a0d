/*
 * members.c - which tensors are in which collections, and what is said of those that are
 * empty.
 */
#include "observe/collections.h"
#include "base/fail.h"
#include "base/memory.h"

#include "observe/tensor_names.h"

#include <sonde/log.h>

#include <stdio.h>
#include <string.h>

/* One pass over the tensors of a catalogue from an id on. */
typedef struct pass {
    const sonde_catalogue *catalogue;
    uint32_t from, count;
    bool first;              /* unknown names are errors */
    uint8_t *marks, *chosen; /* by id: of a selector; of a collection */
    sonde__observe_member *tensors;
    sonde_diag *diag;
} pass;

/* Marks what a choice selects; whether that is anything goes to the choice. */
static sonde_err mark(pass *over, sonde__observe_choice *choice)
{
    sonde_err err = SONDE_OK;

    memset(over->marks, 0, sonde_catalogue_count(over->catalogue));
    err = sonde__selector_mark(choice->what, over->catalogue, over->from, !over->first,
                               over->marks, over->diag);
    for (uint32_t id = over->from; id < over->count && err == SONDE_OK; id++) {
        choice->matched = choice->matched || over->marks[id] != 0;
    }
    return err;
}

static sonde_err fail_module(const pass *over, const sonde__observe_collection *of,
                             const sonde__observe_choice *choice)
{
    sonde_selector *what = NULL;
    sonde_err err = SONDE_OK;
    char text[512];

    if (choice->module == NULL ||
        sonde__observe_has_module(over->catalogue, choice->module)) {
        return SONDE_OK;
    }
    (void)snprintf(text, sizeof text, "module:%.480s", choice->module);
    err = sonde_selector_create(text, &what, over->diag);
    if (err == SONDE_OK) { /* fails, with the modules that are nearest */
        err = sonde__selector_mark(what, over->catalogue, 0, false, over->marks,
                                   over->diag);
        sonde_selector_destroy(what);
    }
    if (err != SONDE_OK && over->diag != NULL) {
        (void)snprintf(over->diag->where, sizeof over->diag->where, "collection '%.200s'",
                       of->name);
    }
    return err;
}

static const char *key_of(const sonde__observe_choice *choice)
{
    return choice->module != NULL ? "module" : choice->exclude ? "exclude" : "include";
}

/* Once, and only if somebody asked for the collection. */
static void warn(const sonde__observe_collection *of, sonde__observe_choice *choice,
                 const char *key)
{
    if (!of->asked || choice->matched || choice->told) {
        return;
    }
    choice->told = true;
    sonde_log(
        SONDE_LOG_WARNING, "hook", "collection '%s': %s '%s' matches no tensor", of->name,
        key, choice->module != NULL ? choice->module : sonde_selector_text(choice->what));
}

void sonde__observe_warn_unmatched(sonde__observe_setup *setup)
{
    for (size_t i = 0; i < setup->collection_count; i++) {
        sonde__observe_collection *of = &setup->collections[i];

        for (size_t k = 0; of->saved && k < of->choices.count; k++) {
            warn(of, &of->choices.items[k], key_of(&of->choices.items[k]));
        }
        for (int mode = 0; of->saved && mode < SONDE_MODE_COUNT; mode++) {
            if (of->when_nan[mode].what != NULL && of->when_nan[mode].matched) {
                break; /* the same selector, mostly; one mode's tensors do */
            }
            if (of->when_nan[mode].what != NULL) {
                warn(of, &of->when_nan[mode], "when_nan");
                break;
            }
        }
    }
}

/* What the first pass has to say of a selector that matches nothing. */
static sonde_err judge(const pass *over, const sonde__observe_collection *of,
                       sonde__observe_choice *choice, const char *key)
{
    sonde_err err = SONDE_OK;

    if (!over->first || choice->matched) {
        return SONDE_OK;
    }
    err = fail_module(over, of, choice);
    if (err == SONDE_OK) {
        warn(of, choice, key);
    }
    return err;
}

static sonde_err choose(pass *over, sonde__observe_collection *of, bool excludes)
{
    sonde_err err = SONDE_OK;

    for (size_t i = 0; i < of->choices.count && err == SONDE_OK; i++) {
        sonde__observe_choice *choice = &of->choices.items[i];

        if (choice->exclude != excludes) {
            continue;
        }
        err = mark(over, choice);
        if (err != SONDE_OK) {
            return err;
        }
        for (uint32_t id = over->from; id < over->count; id++) {
            if (over->marks[id] != 0) {
                over->chosen[id] = !excludes;
            }
        }
        err = judge(over, of, choice, key_of(choice));
    }
    return err;
}

/* Bit i of the masks: the tensors of collection i, and those its when_nan looks at. */
static sonde_err mark_collection(pass *over, sonde__observe_collection *of, size_t i)
{
    const uint64_t bit = UINT64_C(1) << i;
    sonde_err err = SONDE_OK;

    memset(over->chosen, 0, over->count);
    err = choose(over, of, false);
    if (err == SONDE_OK) {
        err = choose(over, of, true);
    }
    for (uint32_t id = over->from; id < over->count && err == SONDE_OK; id++) {
        over->tensors[id].member |= over->chosen[id] != 0 ? bit : 0U;
    }
    for (int mode = 0; mode < SONDE_MODE_COUNT && err == SONDE_OK; mode++) {
        sonde__observe_choice *choice = &of->when_nan[mode];

        if (choice->what == NULL) {
            continue;
        }
        err = mark(over, choice);
        for (uint32_t id = over->from; id < over->count && err == SONDE_OK; id++) {
            over->tensors[id].watch[mode] |= over->marks[id] != 0 ? bit : 0U;
        }
        if (err == SONDE_OK) {
            err = judge(over, of, choice, "when_nan");
        }
    }
    return err;
}

/* Whose vital signs are recorded anyway. */
static uint8_t vital_of(const sonde_tensor_info *info, uint32_t id)
{
    if (info->same_as != id) {
        return 0;
    }
    switch (info->role) {
    case SONDE_ROLE_LOSS:
        return SONDE__VITAL_ALWAYS;
    case SONDE_ROLE_WEIGHT:
    case SONDE_ROLE_BIAS:
    case SONDE_ROLE_GRADIENT:
    case SONDE_ROLE_UPDATE:
        return SONDE__VITAL_EVERY;
    case SONDE_ROLE_BUFFER:
    case SONDE_ROLE_OPTIMIZER:
    case SONDE_ROLE_INPUT:
    case SONDE_ROLE_OUTPUT:
    case SONDE_ROLE_ACTIVATION:
    case SONDE_ROLE_ACTIVATION_GRADIENT:
    case SONDE_ROLE_SCALAR:
    case SONDE_ROLE_OTHER:
        break;
    }
    return 0;
}

sonde_err sonde__observe_members(sonde__observe_setup *setup,
                                 const sonde_catalogue *catalogue, uint32_t first_id,
                                 uint32_t count, bool first,
                                 sonde__observe_member *tensors, sonde_diag *diag)
{
    pass over = {.catalogue = catalogue,
                 .from = first_id,
                 .count = count,
                 .first = first,
                 .marks = sonde__calloc(sonde_catalogue_count(catalogue), 1),
                 .chosen = sonde__calloc(count, 1),
                 .tensors = tensors,
                 .diag = diag};
    sonde_err err = SONDE_OK;

    if (over.marks == NULL || over.chosen == NULL) {
        sonde__free(over.marks);
        sonde__free(over.chosen);
        return sonde__fail_nomem(diag, "a selection");
    }
    for (size_t i = 0; i < setup->collection_count && err == SONDE_OK; i++) {
        if (setup->collections[i].saved) {
            err = mark_collection(&over, &setup->collections[i], i);
        }
    }
    for (uint32_t id = first_id; id < count && !setup->no_vitals; id++) {
        tensors[id].vital = vital_of(sonde_catalogue_info(catalogue, id), id);
    }
    sonde__free(over.marks);
    sonde__free(over.chosen);
    return err;
}

/*
 * collections_json.c - a configuration for run.json, and the digest of a graph.
 */
#include "observe/collections.h"

#define XXH_STATIC_LINKING_ONLY /* for a hash state that needs no allocation */
#include <jansson.h>
#include <xxhash.h>

#include <inttypes.h>
#include <stdio.h>

#include <string.h>

/* json_object_set_new takes the value, and fails for NULL. */
static bool set(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0;
}

/* JSON is UTF-8, but a selector may hold any bytes. */
static json_t *tell_text(const char *text)
{
    json_t *told = json_string(text);

    return told != NULL ? told : json_string("(not UTF-8)");
}

static json_t *tell_schedule(const sonde__observe_collection *collection, int mode)
{
    const sonde_schedule *when = &collection->when[mode];
    json_t *told = json_object();
    bool good = told != NULL;

    if (when->step_count > 0) {
        json_t *steps = json_array();

        good = good && steps != NULL;
        for (size_t i = 0; i < when->step_count && good; i++) {
            good = json_array_append_new(steps, json_integer(when->steps[i])) == 0;
        }
        good = set(told, "save_steps", steps) && good;
    } else if (when->every == 0) {
        good = good && set(told, "start_step", json_integer(0)) &&
               set(told, "end_step", json_integer(0));
    } else {
        good = good && set(told, "every", json_integer(when->every));
        if (when->start > 0) {
            good = good && set(told, "start_step", json_integer(when->start));
        }
        if (when->end != SONDE_SCHEDULE_NEVER) {
            good = good && set(told, "end_step", json_integer(when->end));
        }
    }
    if (collection->when_nan[mode].what != NULL) {
        const char *text = sonde_selector_text(collection->when_nan[mode].what);

        good = good && set(told, "when_nan", tell_text(text));
    }
    if (!good) {
        json_decref(told);
        return NULL;
    }
    return told;
}

/* Collection "weights" has the selector "@weights" by its name. */
static bool is_own(const sonde__observe_collection *collection,
                   const sonde__observe_choice *choice)
{
    const char *const text = sonde_selector_text(choice->what);

    return choice == collection->choices.items && !choice->exclude && text[0] == '@' &&
           strcmp(text + 1, collection->name) == 0;
}

static bool tell_choices(json_t *told, const sonde__observe_collection *collection)
{
    json_t *lists[2] = {json_array(), json_array()}; /* include, exclude */
    bool good = lists[0] != NULL && lists[1] != NULL;

    for (size_t i = 0; i < collection->choices.count && good; i++) {
        const sonde__observe_choice *choice = &collection->choices.items[i];

        good = is_own(collection, choice) ||
               json_array_append_new(lists[choice->exclude],
                                     tell_text(sonde_selector_text(choice->what))) == 0;
    }
    if (good && json_array_size(lists[0]) > 0) {
        good = json_object_set(told, "include", lists[0]) == 0;
    }
    if (good && json_array_size(lists[1]) > 0) {
        good = json_object_set(told, "exclude", lists[1]) == 0;
    }
    json_decref(lists[0]);
    json_decref(lists[1]);
    return good;
}

static bool tell_reductions(json_t *told, const sonde_reduction_config *config)
{
    json_t *names = json_array();
    bool good =
        names != NULL &&
        (!config->norms || json_array_append_new(names, json_string("norms")) == 0);

    for (int stat = 0; stat < SONDE_STAT_ENTRIES && good; stat++) {
        if ((config->stats >> stat & 1U) != 0) {
            json_t *name = json_string(sonde_stat_name((sonde_stat)stat));

            good = json_array_append_new(names, name) == 0;
        }
    }
    return set(told, "reductions", names) && good &&
           set(told, "histogram", json_boolean(config->histogram)) &&
           set(told, "save_raw_tensor", json_boolean(config->save_raw_tensor));
}

static json_t *tell_collection(const sonde__observe_setup *setup,
                               const sonde__observe_collection *collection)
{
    json_t *told = json_object();
    bool good = told != NULL;

    if (!collection->saved) {
        good = good && set(told, "save", json_false());
    } else {
        good = good && tell_choices(told, collection);
        for (int mode = 0; mode < SONDE_MODE_COUNT && good; mode++) {
            good = set(told, sonde_mode_name((sonde_mode)mode),
                       tell_schedule(collection, mode));
        }
        if (good && (collection->reduces || setup->reduces)) {
            good = tell_reductions(told, collection->reduces ? &collection->reductions
                                                             : &setup->reductions);
        }
    }
    if (!good) {
        json_decref(told);
        return NULL;
    }
    return told;
}

/* Nothing is left out that the form of a hook's file has, and nothing added: what is read
 * and written again is the same. */
char *sonde__observe_setup_json(const sonde__observe_setup *setup)
{
    json_t *told = json_object(), *collections = json_object();
    bool good =
        told != NULL && collections != NULL &&
        (!setup->no_vitals || set(told, "vitals", json_false())) &&
        (setup->looks || set(told, "vitals_every", json_integer(setup->vitals_every)));

    for (size_t i = 0; i < setup->collection_count && good; i++) {
        const sonde__observe_collection *collection = &setup->collections[i];

        good = set(collections, collection->name, tell_collection(setup, collection));
    }
    if (good && setup->configured) { /* else they are the usual ones */
        good = json_object_set(told, "collections", collections) == 0;
    }
    char *text = good ? json_dumps(told, JSON_COMPACT) : NULL;
    json_decref(collections);
    json_decref(told);
    return text;
}

void sonde__observe_digest(const sonde_catalogue *catalogue, char digest[SONDE__DIGEST])
{
    XXH3_state_t state;

    XXH3_INITSTATE(&state);
    (void)XXH3_64bits_reset(&state);
    for (uint32_t id = 0; id < sonde_catalogue_count(catalogue); id++) {
        const sonde_tensor_info *info = sonde_catalogue_info(catalogue, id);
        const int32_t kind[3] = {(int32_t)info->role, (int32_t)info->dtype, info->rank};
        const bool sized = info->role == SONDE_ROLE_WEIGHT ||
                           info->role == SONDE_ROLE_BIAS ||
                           info->role == SONDE_ROLE_BUFFER; /* others go with the batch */

        (void)XXH3_64bits_update(&state, info->name, strlen(info->name) + 1);
        (void)XXH3_64bits_update(&state, info->op, strlen(info->op) + 1);
        (void)XXH3_64bits_update(&state, kind, sizeof kind);
        (void)XXH3_64bits_update(&state, info->shape,
                                 sized ? (size_t)info->rank * sizeof info->shape[0] : 0);
    }
    (void)snprintf(digest, SONDE__DIGEST, "%016" PRIx64,
                   (uint64_t)XXH3_64bits_digest(&state));
}

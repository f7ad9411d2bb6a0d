/*
 * saving.c - when a collection is saved, and in which forms.
 *
 * A save schedule is merged from four layers: hook, hook's mode, collection, collection's
 * mode. What is wrong within a layer is found when it is given, what contradicts itself
 * between layers by check, at the latest by settle.
 */
#include "observe/collections.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/number.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- schedules -------------------------------------------------------------------- */

static sonde_err fail_key(const char *where, const char *key, int64_t value,
                          const char *expected, sonde_diag *diag)
{
    char place[256];

    (void)snprintf(place, sizeof place, "%.180s: %s", where, key);
    return sonde__fail(diag, SONDE_EINVAL, place, expected, "%" PRId64, value);
}

static sonde_err check_config(const sonde_save_config *config, const char *where,
                              sonde_diag *diag)
{
    if (config->every != SONDE_UNSET && config->every < 1) {
        return fail_key(where, "every", config->every, "1 or more", diag);
    }
    if (config->start_step != SONDE_UNSET && config->start_step < 0) {
        return fail_key(where, "start_step", config->start_step, "0 or more", diag);
    }
    if (config->end_step != SONDE_UNSET && config->end_step < 0) {
        return fail_key(where, "end_step", config->end_step, "0 or more", diag);
    }
    for (size_t i = 0; config->save_steps != NULL && i < config->save_step_count; i++) {
        if (config->save_steps[i] < 0) {
            return fail_key(where, "save_steps", config->save_steps[i], "0 or more",
                            diag);
        }
    }
    return SONDE_OK;
}

static int ascending(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* Copies the arrays and strings that a config points to. */
static sonde_err copy_config(sonde__observe_save_layer *layer,
                             const sonde_save_config *config, sonde_diag *diag)
{
    const size_t count = config->save_steps != NULL ? config->save_step_count : 0;
    int64_t *steps =
        config->save_steps != NULL ? sonde__calloc(count, sizeof *steps) : NULL;
    char *when_nan = config->when_nan != NULL ? sonde__strdup(config->when_nan) : NULL;

    if ((config->save_steps != NULL && steps == NULL) ||
        (config->when_nan != NULL && when_nan == NULL)) {
        sonde__free(steps);
        sonde__free(when_nan);
        return sonde__fail_nomem(diag, "a save schedule");
    }
    if (steps != NULL) {
        if (count > 0) {
            memcpy(steps, config->save_steps, count * sizeof *steps);
            qsort(steps, count, sizeof *steps, ascending);
        }
        sonde__free(layer->steps);
        layer->steps = steps;
        layer->config.save_steps = steps;
        layer->config.save_step_count = count;
    }
    if (when_nan != NULL) {
        sonde__free(layer->when_nan);
        layer->when_nan = when_nan;
        layer->config.when_nan = when_nan;
    }
    return SONDE_OK;
}

/* Whether a config says anything. */
static bool says_anything(const sonde_save_config *config)
{
    return config->every != SONDE_UNSET || config->start_step != SONDE_UNSET ||
           config->end_step != SONDE_UNSET || config->save_steps != NULL ||
           config->when_nan != NULL;
}

/* Overwrites a field with a value that is set. */
static void set_field(int64_t *field, int64_t value)
{
    *field = value != SONDE_UNSET ? value : *field;
}

/* Overwrites a result with the fields that a layer sets. */
static void merge_config(sonde_save_config *merged, const sonde_save_config *layer)
{
    const bool interval = layer->every != SONDE_UNSET ||
                          layer->start_step != SONDE_UNSET ||
                          layer->end_step != SONDE_UNSET;

    if (interval || layer->save_steps != NULL) { /* steps of an earlier layer lose */
        merged->save_steps = layer->save_steps;
        merged->save_step_count = layer->save_steps != NULL ? layer->save_step_count : 0;
    }
    if (layer->end_step == 0) { /* off, wherever an earlier layer starts */
        merged->start_step = 0;
    }
    set_field(&merged->every, layer->every);
    set_field(&merged->start_step, layer->start_step);
    set_field(&merged->end_step, layer->end_step);
    merged->when_nan = layer->when_nan != NULL ? layer->when_nan : merged->when_nan;
}

/* The settings of a collection in a mode, from all layers. */
static sonde_save_config effective(const sonde__observe_setup *setup,
                                   const sonde__observe_collection *collection, int mode)
{
    sonde_save_config config = {
        .every = 500, .end_step = SONDE_SCHEDULE_NEVER, .when_nan = ""};

    merge_config(&config, &setup->layers[0].config);
    merge_config(&config, &setup->layers[1 + mode].config);
    merge_config(&config, &collection->layers[0].config);
    merge_config(&config, &collection->layers[1 + mode].config);
    return config;
}

static sonde_schedule schedule_of(const sonde_save_config *config)
{
    if (config->save_step_count > 0) {
        return (sonde_schedule){.steps = config->save_steps,
                                .step_count = config->save_step_count};
    }
    if (config->start_step == 0 && config->end_step == 0) {
        return (sonde_schedule){0}; /* off */
    }
    return (sonde_schedule){
        .every = config->every, .start = config->start_step, .end = config->end_step};
}

static sonde_err check_effective(const sonde__observe_collection *collection, int mode,
                                 const sonde_save_config *config, sonde_diag *diag)
{
    char place[256];

    if (config->save_step_count > 0 || config->end_step > config->start_step ||
        (config->start_step == 0 && config->end_step == 0)) {
        return SONDE_OK;
    }
    (void)snprintf(place, sizeof place, "collection '%.128s', mode %s: end_step",
                   collection->name, sonde_mode_name((sonde_mode)mode));
    return sonde__fail(diag, SONDE_EINVAL, place, "a step after start_step",
                       "%" PRId64 " with start_step %" PRId64, config->end_step,
                       config->start_step);
}

sonde_err sonde__observe_save(sonde__observe_setup *setup, const char *collection,
                              int mode, const sonde_save_config *config, sonde_diag *diag)
{
    const char *where = collection != NULL ? collection : "hook";
    sonde__observe_collection *found = NULL;
    SONDE__TRY(sonde__observe_check_open(setup, where, diag));
    if (collection != NULL) {
        SONDE__TRY(sonde__observe_find_open(setup, collection, &found, diag));
    }
    setup->configured = setup->configured || says_anything(config);
    if (mode < -1 || mode >= SONDE_MODE_COUNT) {
        return sonde__fail(diag, SONDE_EINVAL, where, "-1 or a sonde_mode", "mode %d",
                           mode);
    }
    SONDE__TRY(check_config(config, where, diag));
    if (config->when_nan != NULL && config->when_nan[0] != '\0') {
        sonde_selector *what = NULL;

        SONDE__TRY(sonde_selector_create(config->when_nan, &what, diag));
        sonde_selector_destroy(what);
    }
    sonde__observe_save_layer *layer =
        found != NULL ? &found->layers[1 + mode] : &setup->layers[1 + mode];
    SONDE__TRY(copy_config(layer, config, diag));
    set_field(&layer->config.every, config->every);
    set_field(&layer->config.start_step, config->start_step);
    set_field(&layer->config.end_step, config->end_step);
    return SONDE_OK;
}

bool sonde__observe_says_global(const sonde__observe_setup *setup)
{
    const size_t layer = 1 + SONDE_MODE_GLOBAL;
    sonde_save_config said = sonde_save_config_unset();

    merge_config(&said, &setup->layers[layer].config);
    for (size_t i = 0; i < setup->collection_count; i++) {
        merge_config(&said, &setup->collections[i].layers[layer].config);
    }
    return said.every != SONDE_UNSET || said.start_step != SONDE_UNSET ||
           said.end_step != SONDE_UNSET || said.save_steps != NULL;
}

sonde_err sonde__observe_reduce(sonde__observe_setup *setup, const char *collection,
                                const sonde_reduction_config *config, sonde_diag *diag)
{
    const char *where = collection != NULL ? collection : "hook";
    sonde__observe_collection *found = NULL;
    SONDE__TRY(sonde__observe_check_open(setup, where, diag));
    if (collection != NULL) {
        SONDE__TRY(sonde__observe_find_open(setup, collection, &found, diag));
    }
    setup->configured = true;
    if (config->stats >> SONDE_STAT_ENTRIES != 0) {
        return sonde__fail(diag, SONDE_EINVAL, where, "bits of sonde_stat",
                           "stats 0x%" PRIx32, config->stats);
    }
    if (found != NULL) {
        found->reduces = true;
        found->reductions = *config;
    } else {
        setup->reduces = true;
        setup->reductions = *config;
    }
    return SONDE_OK;
}

/* --- names of reductions ------------------------------------------------------------ */

enum { LONGEST = 64 };

sonde_err sonde__observe_reduction_add(const char *name, sonde_reduction_config *config,
                                       sonde_diag *diag)
{
    sonde_reduction reduction;

    if (sonde__strcasecmp(name, "histogram") == 0 ||
        sonde__strcasecmp(name, "quantiles") == 0) {
        config->histogram = true;
        return SONDE_OK;
    }
    if (sonde__strcasecmp(name, "norms") == 0) {
        config->norms = true;
        return SONDE_OK;
    }
    SONDE__TRY(sonde_reduction_parse(name, &reduction, diag));
    if (reduction.kind == SONDE_REDUCTION_STAT) {
        config->stats |= UINT32_C(1) << reduction.stat;
    } else if ((sonde_reduction_evidence(&reduction) & SONDE_HOW_SKETCH) != 0) {
        config->histogram = true;
    } else {
        config->save_raw_tensor = true;
    }
    return SONDE_OK;
}

sonde_err sonde__observe_reductions_parse(const char *text,
                                          sonde_reduction_config *config,
                                          sonde_diag *diag)
{
    while (*text != '\0') {
        const size_t blank = strspn(text, " \t,");
        const size_t length = strcspn(text + blank, ", \t");
        char name[LONGEST];

        if (length > 0) {
            (void)snprintf(name, sizeof name, "%.*s",
                           (int)SONDE_MIN(length, (size_t)LONGEST), text + blank);
            SONDE__TRY(sonde__observe_reduction_add(name, config, diag));
        }
        text += blank + length;
    }
    return SONDE_OK;
}

/* --- settling --------------------------------------------------------------------- */

/* Collections of numbers, as smdebug lists them: hook-wide reductions leave them raw. */
static bool is_scalar_collection(const char *name)
{
    static const char *const names[] = {
        "losses",      "scalars", "metrics", "sm_metrics", "feature_importance",
        "average_shap"};

    for (size_t i = 0; i < SONDE_COUNT_OF(names); i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* The SONDE_HOW_ bits of a collection. */
static unsigned how_of(const sonde__observe_setup *setup,
                       const sonde__observe_collection *collection)
{
    const sonde_reduction_config *config = collection->reduces ? &collection->reductions
                                           : setup->reduces    ? &setup->reductions
                                                               : NULL;
    unsigned how = 0;

    if (config == NULL) {
        return SONDE_HOW_RAW;
    }
    how |= config->stats != 0 ? SONDE_HOW_VITALS : 0U;
    how |= config->stats == 0 && config->norms ? SONDE_HOW_NORMS : 0U;
    how |= config->histogram ? SONDE_HOW_SKETCH : 0U;
    how |= config->save_raw_tensor || how == 0 ||
                   (!collection->reduces && is_scalar_collection(collection->name))
               ? SONDE_HOW_RAW
               : 0U;
    return how;
}

static bool has_include(const sonde__observe_collection *collection)
{
    bool any = false;

    for (size_t i = 0; i < collection->choices.count; i++) {
        any = any || !collection->choices.items[i].exclude;
    }
    return any;
}

static sonde_err check_collection(const sonde__observe_setup *setup,
                                  const sonde__observe_collection *collection,
                                  bool filled, sonde_diag *diag)
{
    if (filled && !has_include(collection)) {
        return sonde__fail(diag, SONDE_EINVAL, collection->name,
                           "a selector or a module to include, or a built-in name",
                           "the collection includes nothing");
    }
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        const sonde_save_config config = effective(setup, collection, mode);
        SONDE__TRY(check_effective(collection, mode, &config, diag));
    }
    return SONDE_OK;
}

sonde_err sonde__observe_check(const sonde__observe_setup *setup, bool filled,
                               const sonde__observe_collection **wrong, sonde_diag *diag)
{
    for (size_t i = 0; i < setup->collection_count; i++) {
        const sonde__observe_collection *collection = &setup->collections[i];

        if (!collection->saved) {
            continue;
        }
        sonde_err err = check_collection(setup, collection, filled, diag);
        if (err != SONDE_OK) {
            if (wrong != NULL) {
                *wrong = collection;
            }
            return err;
        }
    }
    return SONDE_OK;
}

/* The schedules and the when_nan of collection i. */
static sonde_err settle_collection(sonde__observe_setup *setup, size_t i,
                                   sonde_diag *diag)
{
    sonde__observe_collection *collection = &setup->collections[i];

    collection->how = how_of(setup, collection);
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        const sonde_save_config config = effective(setup, collection, mode);
        sonde_selector **what = &collection->when_nan[mode].what;

        collection->when[mode] = schedule_of(&config);
        if (config.when_nan[0] == '\0') {
            continue;
        }
        if (*what == NULL) {
            SONDE__TRY(sonde_selector_create(config.when_nan, what, diag));
        }
        setup->nan_sets[mode] |= UINT64_C(1) << i;
    }
    return SONDE_OK;
}

sonde_err sonde__observe_settle(sonde__observe_setup *setup, sonde_diag *diag)
{
    if (setup->settled) {
        return SONDE_OK;
    }
    SONDE__TRY(sonde__observe_check(setup, true, NULL, diag));
    for (size_t i = 0; i < setup->collection_count; i++) {
        if (setup->collections[i].saved) {
            SONDE__TRY(settle_collection(setup, i, diag));
        }
    }
    setup->settled = true;
    return SONDE_OK;
}

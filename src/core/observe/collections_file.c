/*
 * collections_file.c - reads a configuration file of Sonde: a tree of YAML (or JSON), in
 * which each key is one call of collections.h; writes one in JSON, with its digest.
 *
 * Level by level: the setup; in it a schedule, its modes, reductions and collections; in
 * a collection again a schedule, its modes and reductions. An invalid value is reported
 * with its line, also if the call refuses it.
 */
#include "observe/tensor_names.h"
#include "observe/collections.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#define XXH_STATIC_LINKING_ONLY /* for a hash state that needs no allocation */
#include <sonde/text.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>
#include <xxhash.h>
#include <inttypes.h>

#define SCHEDULE_KEYS "every", "start_step", "end_step", "save_steps", "when_nan"
#define MODE_KEYS "train", "eval", "predict", "global"
#define REDUCTION_KEYS "reductions", "histogram", "save_raw_tensor", "save_shape"

typedef struct reading {
    const sonde__yaml_reader *reader;
    sonde__observe_setup *setup;
} reading;

sonde_err sonde__observe_fail_at(const sonde__yaml_reader *reader,
                                 const sonde__yaml *node, const sonde_diag *inner)
{
    if (inner->err == SONDE_ENOMEM) {
        return sonde__fail_nomem(reader->diag, "a hook");
    }
    return sonde__yaml_fail(reader, node, inner->err, inner->expected, "%s%s%s",
                            inner->where, inner->where[0] != '\0' ? ": " : "",
                            inner->found);
}

/* The error of a call, with the node's line. */
static sonde_err add_line(const reading *file, const sonde__yaml *node, sonde_err err,
                          const sonde_diag *inner)
{
    return err != SONDE_OK ? sonde__observe_fail_at(file->reader, node, inner) : SONDE_OK;
}

static bool is_null(const sonde__yaml *node)
{
    return node->kind == SONDE__YAML_SCALAR &&
           (node->text[0] == '\0' || strcmp(node->text, "null") == 0 ||
            strcmp(node->text, "~") == 0);
}

/* --- schedules -------------------------------------------------------------------- */

static sonde_err read_step(const sonde__yaml_reader *reader, const sonde__yaml *node,
                           const char **text, int64_t *out)
{
    char *end = NULL;

    errno = 0;
    long long value = strtoll(*text, &end, 10);
    if (end == *text || errno != 0 || value < 0) {
        return sonde__yaml_fail(reader, node, SONDE_EINVAL, "steps, 0 or more",
                                "save_steps has '%s'", *text);
    }
    *out = value;
    *text = end + strspn(end, " \t");
    return SONDE_OK;
}

/* "1,2,3" of a scalar; counts if steps is NULL. */
static sonde_err read_listed(const sonde__yaml_reader *reader, const sonde__yaml *node,
                             int64_t *steps, size_t *count)
{
    const char *text = node->text + strspn(node->text, " \t");

    *count = 0;
    while (*text != '\0') {
        int64_t step = 0;
        SONDE__TRY(read_step(reader, node, &text, &step));
        if (*text != ',' && *text != '\0') {
            return sonde__yaml_fail(reader, node, SONDE_EINVAL,
                                    "steps with commas between", "save_steps is '%s'",
                                    node->text);
        }
        text += *text == ',' ? 1 + strspn(text + 1, " \t") : 0;
        if (steps != NULL) {
            steps[*count] = step;
        }
        ++*count;
    }
    return SONDE_OK;
}

sonde_err sonde__observe_read_steps(const sonde__yaml_reader *reader,
                                    const sonde__yaml *node, int64_t **steps,
                                    size_t *count)
{
    sonde_err err = SONDE_OK;

    *steps = NULL;
    *count = node->kind == SONDE__YAML_LIST ? node->count : 0;
    if (node->kind == SONDE__YAML_SCALAR) {
        err = read_listed(reader, node, NULL, count);
    } else if (node->kind == SONDE__YAML_MAP) {
        err = sonde__yaml_fail(reader, node, SONDE_EINVAL, "a list of steps",
                               "save_steps is a map");
    }
    if (err != SONDE_OK) {
        return err;
    }
    *steps = sonde__calloc(*count, sizeof **steps);
    if (*steps == NULL) {
        return sonde__fail_nomem(reader->diag, "steps");
    }
    if (node->kind == SONDE__YAML_SCALAR) {
        return read_listed(reader, node, *steps, count);
    }
    for (size_t i = 0; i < *count; i++) {
        const sonde__yaml *child = node->children[i];
        const char *text = child->kind == SONDE__YAML_SCALAR ? child->text : "";

        SONDE__TRY(read_step(reader, child, &text, &(*steps)[i]));
        if (*text != '\0') {
            return sonde__yaml_fail(reader, child, SONDE_EINVAL, "a step",
                                    "save_steps has '%s'", child->text);
        }
    }
    return SONDE_OK;
}

/* --- selectors -------------------------------------------------------------------- */

/* Appends one name or pattern, its commas escaped. */
static sonde_err add_item(const sonde__yaml_reader *reader, const sonde__yaml *node,
                          sonde_text *text)
{
    if (node->kind != SONDE__YAML_SCALAR) {
        return sonde__yaml_fail(reader, node, SONDE_EINVAL, "a text or a list of texts",
                                "an entry of %s is %s",
                                node->key != NULL ? node->key : "a list",
                                node->kind == SONDE__YAML_LIST ? "a list" : "a map");
    }
    sonde_text_add(text, text->length > 0 ? "," : "");
    for (const char *c = node->text; *c != '\0'; c++) {
        sonde_text_add(text, *c == ',' ? "\\" : "");
        sonde_text_put(text, c, 1);
    }
    return SONDE_OK;
}

sonde_err sonde__observe_read_selector(const sonde__yaml_reader *reader,
                                       const sonde__yaml *map, const char *key,
                                       char **out)
{
    const sonde__yaml *node = map != NULL ? sonde__yaml_get(map, key) : NULL;
    sonde_text text = {0};
    sonde_err err = SONDE_OK;

    *out = NULL;
    if (node == NULL) {
        return SONDE_OK;
    }
    if (node->kind == SONDE__YAML_MAP) {
        return sonde__yaml_fail(reader, node, SONDE_EINVAL, "a text or a list of texts",
                                "%s is a map", key);
    }
    sonde_text_add(&text, node->kind == SONDE__YAML_SCALAR ? node->text : "");
    for (size_t i = 0; node->kind == SONDE__YAML_LIST && i < node->count; i++) {
        SONDE__TRY_GO(add_item(reader, node->children[i], &text));
    }
    *out = text.failed ? NULL : sonde__strdup(text.data != NULL ? text.data : "");
    if (*out == NULL) {
        err = sonde__fail_nomem(reader->diag, "a selector");
    }
error:
    sonde_text_fini(&text);
    return err;
}

/* The keys of a schedule in a map, for one layer. */
static sonde_err read_schedule(const reading *file, const sonde__yaml *map,
                               const char *collection, int mode)
{
    const sonde__yaml *list = sonde__yaml_get(map, "save_steps");
    sonde_save_config config = sonde_save_config_unset();
    int64_t *steps = NULL;
    char *when_nan = NULL;
    sonde_diag inner = {0};
    SONDE__TRY(sonde__yaml_int(file->reader, map, "every", 1, INT64_MAX, &config.every));
    sonde_err err = SONDE_OK;
    SONDE__TRY(sonde__yaml_int(file->reader, map, "start_step", 0, INT64_MAX,
                               &config.start_step));
    SONDE__TRY(
        sonde__yaml_int(file->reader, map, "end_step", 0, INT64_MAX, &config.end_step));
    SONDE__TRY(sonde__observe_read_selector(file->reader, map, "when_nan", &when_nan));
    config.when_nan = when_nan;
    if (list != NULL) {
        SONDE__TRY_GO(sonde__observe_read_steps(file->reader, list, &steps,
                                                &config.save_step_count));
        config.save_steps = steps;
    }
    if (config.start_step != SONDE_UNSET && config.start_step > 0 &&
        config.end_step != SONDE_UNSET && config.end_step <= config.start_step) {
        err = sonde__yaml_fail(file->reader, sonde__yaml_get(map, "end_step"),
                               SONDE_EINVAL, "a step after start_step",
                               "end_step is %lld with start_step %lld",
                               (long long)config.end_step, (long long)config.start_step);
        goto error;
    }
    err = sonde__observe_save(file->setup, collection, mode, &config, &inner);
    err = add_line(file, map, err, &inner);
error:
    sonde__free(when_nan);
    sonde__free(steps);
    return err;
}

/* A schedule, and the same of single modes in maps of their own. */
static sonde_err read_schedules(const reading *file, const sonde__yaml *map,
                                const char *collection)
{
    static const char *const keys[] = {SCHEDULE_KEYS};
    SONDE__TRY(read_schedule(file, map, collection, -1));
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        const sonde__yaml *node = sonde__yaml_get(map, sonde_mode_name((sonde_mode)mode));

        if (node == NULL) {
            continue;
        }
        SONDE__TRY(
            sonde__yaml_check_keys(file->reader, node, keys, SONDE_COUNT_OF(keys)));
        SONDE__TRY(read_schedule(file, node, collection, mode));
    }
    return SONDE_OK;
}

/* --- reductions ------------------------------------------------------------------- */

static sonde_err read_reductions(const reading *file, const sonde__yaml *map,
                                 const char *collection)
{
    const sonde__yaml *list = sonde__yaml_get(map, "reductions");
    sonde_reduction_config config = {0};
    sonde_diag inner = {0};
    sonde_err err = SONDE_OK;

    if (list == NULL && sonde__yaml_get(map, "histogram") == NULL &&
        sonde__yaml_get(map, "save_raw_tensor") == NULL) {
        return SONDE_OK;
    }
    if (list != NULL && list->kind == SONDE__YAML_SCALAR) {
        err = sonde__observe_reductions_parse(list->text, &config, &inner);
        if (err != SONDE_OK) {
            return add_line(file, list, err, &inner);
        }
    }
    for (size_t i = 0; list != NULL && i < list->count; i++) {
        const sonde__yaml *child = list->children[i];
        const char *text = child->kind == SONDE__YAML_SCALAR ? child->text : "";

        err = sonde__observe_reduction_add(text, &config, &inner);
        if (err != SONDE_OK) {
            return add_line(file, child, err, &inner);
        }
    }
    SONDE__TRY(sonde__yaml_bool(file->reader, map, "histogram", &config.histogram));
    SONDE__TRY(
        sonde__yaml_bool(file->reader, map, "save_raw_tensor", &config.save_raw_tensor));
    SONDE__TRY(sonde__yaml_bool(file->reader, map, "save_shape", &config.save_shape));
    err = sonde__observe_reduce(file->setup, collection, &config, &inner);
    return add_line(file, map, err, &inner);
}

/* --- collections ------------------------------------------------------------------ */

typedef sonde_err (*add_selector)(sonde__observe_setup *setup, const char *collection,
                                  const char *selector, sonde_diag *diag);

/* One selector or a list of them. */
static sonde_err read_selectors(const reading *file, const sonde__yaml *map,
                                const char *key, const char *collection, add_selector add)
{
    const sonde__yaml *list = sonde__yaml_get(map, key);

    if (list == NULL) {
        return SONDE_OK;
    }
    if (list->kind == SONDE__YAML_MAP) {
        return sonde__yaml_fail(file->reader, list, SONDE_EINVAL, "a selector or a list",
                                "%s is a map", key);
    }
    for (size_t i = 0; i < (list->kind == SONDE__YAML_SCALAR ? 1 : list->count); i++) {
        const sonde__yaml *node =
            list->kind == SONDE__YAML_SCALAR ? list : list->children[i];
        sonde_diag inner = {0};

        if (node->kind != SONDE__YAML_SCALAR) {
            return sonde__yaml_fail(file->reader, node, SONDE_EINVAL, "a selector",
                                    "an entry of %s is none", key);
        }
        sonde_err err = add(file->setup, collection, node->text, &inner);
        if (err != SONDE_OK) {
            return add_line(file, node, err, &inner);
        }
    }
    return SONDE_OK;
}

/* "fc1", or {name: fc1, inputs: true, outputs: false}. */
static sonde_err read_module(const reading *file, const sonde__yaml *node,
                             const char *collection)
{
    static const char *const keys[] = {"name", "inputs", "outputs"};
    bool inputs = false, outputs = true;
    const char *name = node->kind == SONDE__YAML_SCALAR ? node->text : NULL;
    sonde_diag inner = {0};
    sonde_err err = SONDE_OK;

    if (name == NULL) {
        SONDE__TRY(
            sonde__yaml_check_keys(file->reader, node, keys, SONDE_COUNT_OF(keys)));
        SONDE__TRY(sonde__yaml_text(file->reader, node, "name", &name));
        SONDE__TRY(sonde__yaml_bool(file->reader, node, "inputs", &inputs));
        SONDE__TRY(sonde__yaml_bool(file->reader, node, "outputs", &outputs));
    }
    if (name == NULL) {
        return sonde__yaml_fail(file->reader, node, SONDE_EINVAL, "name: a module",
                                "an entry of modules has no name");
    }
    err =
        sonde__observe_add_module(file->setup, collection, name, inputs, outputs, &inner);
    return add_line(file, node, err, &inner);
}

static sonde_err read_modules(const reading *file, const sonde__yaml *map,
                              const char *collection)
{
    const sonde__yaml *list = sonde__yaml_get(map, "modules");

    if (list == NULL) {
        return SONDE_OK;
    }
    if (list->kind != SONDE__YAML_LIST) {
        return read_module(file, list, collection);
    }
    for (size_t i = 0; i < list->count; i++) {
        SONDE__TRY(read_module(file, list->children[i], collection));
    }
    return SONDE_OK;
}

static sonde_err read_collection(const reading *file, const sonde__yaml *node,
                                 const char *name)
{
    static const char *const keys[] = {"include",     "exclude", "modules",     "save",
                                       SCHEDULE_KEYS, MODE_KEYS, REDUCTION_KEYS};
    bool saved = true;
    sonde_diag inner = {0};
    sonde_err err =
        add_line(file, node, sonde__observe_add_asked(file->setup, name, &inner), &inner);

    if (err != SONDE_OK || is_null(node)) {
        return err;
    }
    SONDE__TRY(sonde__yaml_check_keys(file->reader, node, keys, SONDE_COUNT_OF(keys)));
    SONDE__TRY(read_selectors(file, node, "include", name, sonde__observe_include));
    SONDE__TRY(read_selectors(file, node, "exclude", name, sonde__observe_exclude));
    SONDE__TRY(read_modules(file, node, name));
    SONDE__TRY(read_schedules(file, node, name));
    SONDE__TRY(read_reductions(file, node, name));
    err = sonde__yaml_bool(file->reader, node, "save", &saved);
    if (err != SONDE_OK || saved) {
        return err;
    }
    err = sonde__observe_remove_collection(file->setup, name, &inner);
    return add_line(file, node, err, &inner);
}

static sonde_err read_name(const reading *file, const sonde__yaml *node)
{
    sonde_diag inner = {0};

    if (node->kind != SONDE__YAML_SCALAR) {
        return sonde__yaml_fail(file->reader, node, SONDE_EINVAL, "a name",
                                "an entry of collections is none");
    }
    sonde_err err = sonde__observe_add_asked(file->setup, node->text, &inner);
    return add_line(file, node, err, &inner);
}

/* A map by name, or a list of names. */
static sonde_err read_collections(const reading *file, const sonde__yaml *root)
{
    const sonde__yaml *section = sonde__yaml_get(root, "collections");

    if (section == NULL || is_null(section)) {
        return SONDE_OK;
    }
    if (section->kind == SONDE__YAML_SCALAR) {
        return sonde__yaml_fail(file->reader, section, SONDE_EINVAL,
                                "collections by name, or a list of names",
                                "collections is '%s'", section->text);
    }
    for (size_t i = 0; i < section->count; i++) {
        SONDE__TRY(
            section->kind == SONDE__YAML_MAP
                ? read_collection(file, section->children[i], section->children[i]->key)
                : read_name(file, section->children[i]));
    }
    return SONDE_OK;
}

/* --- the whole -------------------------------------------------------------------- */

sonde_err sonde__observe_check_keys(const sonde__yaml_reader *reader,
                                    const sonde__yaml *root, bool options)
{
    enum { OPTIONS = 12 };
    static const char *const keys[] = {
        "path",         "resume",       "ring_bytes", "segment_bytes", "segment_seconds",
        "when_full",    "compress",     "save_all",   "dry_run",       "vitals",
        "vitals_every", "wait_seconds", "include",    "collections",   SCHEDULE_KEYS,
        MODE_KEYS,      REDUCTION_KEYS,
    };
    const size_t skipped = options ? 0 : OPTIONS;

    return sonde__yaml_check_keys(reader, root, keys + skipped,
                                  SONDE_COUNT_OF(keys) - skipped);
}

/* Checks the configuration as a whole; an error names the line of its collection. */
static sonde_err check(const reading *file, const sonde__yaml *root)
{
    const sonde__yaml *section = sonde__yaml_get(root, "collections"), *node = NULL;
    const sonde__observe_collection *wrong = NULL;
    sonde_diag inner = {0};
    const sonde_err err = sonde__observe_check(file->setup, true, &wrong, &inner);

    if (wrong != NULL && section != NULL) {
        node = sonde__yaml_get(section, wrong->name);
    }
    return add_line(file, node != NULL ? node : root, err, &inner);
}

sonde_err sonde__observe_read(const sonde__yaml_reader *reader, const sonde__yaml *root,
                              sonde__observe_setup *setup)
{
    const reading file = {reader, setup};

    if (sonde__yaml_get(root, "include") != NULL) {
        SONDE__TRY(sonde__observe_add(setup, "default", true, reader->diag));
        SONDE__TRY(
            read_selectors(&file, root, "include", "default", sonde__observe_include));
    }
    SONDE__TRY(read_schedules(&file, root, NULL));
    SONDE__TRY(read_reductions(&file, root, NULL));
    SONDE__TRY(read_collections(&file, root));
    return check(&file, root);
}

/* --- collections json -------------------------------------------------------------- */

/* A configuration for run.json, and the digest of a graph. */

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
        const char *text = sonde__selector_text(collection->when_nan[mode].what);

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
    const char *const text = sonde__selector_text(choice->what);

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
                                     tell_text(sonde__selector_text(choice->what))) == 0;
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

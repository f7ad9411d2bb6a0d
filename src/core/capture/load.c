/*
 * load.c - makes a hook from a configuration file, of sonde or of smdebug.
 */
#include "capture/hook_state.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/number.h"
#include <stdio.h>
#include <string.h>
#include <sonde/log.h>
#include <errno.h>
#include <stdlib.h>

enum { LARGEST_FILE = 1 << 20 };

static sonde_err read_when_full(const sonde__yaml_reader *reader, const sonde__yaml *root,
                                sonde_when_full *out)
{
    static const char *const names[] = {"default", "wait", "drop"};
    const char *text = NULL;
    const sonde_err err = sonde__yaml_text(reader, root, "when_full", &text);

    if (err != SONDE_OK || text == NULL) {
        return err;
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(names); i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (sonde_when_full)i;
            return SONDE_OK;
        }
    }
    return sonde__yaml_fail(reader, sonde__yaml_get(root, "when_full"), SONDE_EINVAL,
                            "default, wait or drop", "when_full is '%s'", text);
}

static sonde_err read_seconds(const sonde__yaml_reader *reader, const sonde__yaml *root,
                              const char *key, double *out)
{
    const sonde__yaml *const node = sonde__yaml_get(root, key);
    float seconds = 0.0F;
    SONDE__TRY(sonde__yaml_float(reader, root, key, &seconds));
    if (node != NULL && !(seconds > 0.0F)) {
        return sonde__yaml_fail(reader, node, SONDE_EINVAL, "more than 0", "%s is %g",
                                key, (double)seconds);
    }
    *out = (double)seconds;
    return SONDE_OK;
}

/* The numeric options of the recorder. */
static sonde_err read_sizes(const sonde__yaml_reader *reader, const sonde__yaml *root,
                            sonde_recorder_options *record)
{
    int64_t ring = 0, segment = 0;
    SONDE__TRY(sonde__yaml_int(reader, root, "ring_bytes", 1, (int64_t)1 << 40, &ring));
    SONDE__TRY(
        sonde__yaml_int(reader, root, "segment_bytes", 1, (int64_t)1 << 40, &segment));
    SONDE__TRY(read_seconds(reader, root, "segment_seconds", &record->segment_seconds));
    SONDE__TRY(read_seconds(reader, root, "wait_seconds", &record->wait_seconds));
    record->ring_bytes = (size_t)ring;
    record->segment_bytes = (size_t)segment;
    return SONDE_OK;
}

/* Strings borrow from the tree. */
static sonde_err read_options(const sonde__yaml_reader *reader, const sonde__yaml *root,
                              sonde__hook_said *said)
{
    sonde_hook_options *options = &said->hook;
    sonde_recorder_options *record = &said->record;
    bool vitals = true;
    const struct {
        const char *key;
        bool *flag;
    } flags[] = {{"save_all", &options->save_all},
                 {"dry_run", &options->dry_run},
                 {"vitals", &vitals},
                 {"compress", &record->compress}};
    SONDE__TRY(sonde__yaml_text(reader, root, "path", &record->path));
    SONDE__TRY(sonde__yaml_text(reader, root, "resume", &record->resume));
    for (size_t i = 0; i < SONDE_COUNT_OF(flags); i++) {
        SONDE__TRY(sonde__yaml_bool(reader, root, flags[i].key, flags[i].flag));
    }
    SONDE__TRY(sonde__yaml_int(reader, root, "vitals_every", 1, INT64_MAX,
                               &options->vitals_every));
    SONDE__TRY(read_when_full(reader, root, &record->when_full));
    options->no_vitals = !vitals;
    return read_sizes(reader, root, record);
}

/* --- reading ---------------------------------------------------------------------- */

static sonde_err from_own(const sonde__yaml_reader *reader, const sonde__yaml *root,
                          const sonde_hook_options *given, sonde_hook **out)
{
    sonde__hook_said options = {0};
    sonde_hook *hook = NULL;
    SONDE__TRY(sonde__observe_check_keys(reader, root, true));
    SONDE__TRY(read_options(reader, root, &options));
    SONDE__TRY(sonde__hook_options_over(&options, given, reader->diag));
    SONDE__TRY(sonde_hook_create(&options.hook, &hook, reader->diag));
    sonde_err err = sonde__observe_read(reader, root, &hook->setup);
    if (err != SONDE_OK) {
        (void)sonde_hook_close(hook, SONDE_RUN_FAILED, NULL, NULL);
        return err;
    }
    *out = hook;
    return SONDE_OK;
}

sonde_err sonde_hook_parse(const char *text, size_t size, const char *name,
                           const char *section, const sonde_hook_options *options,
                           sonde_hook **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, text, name, out);
    const sonde__yaml_reader reader = {name, diag};
    sonde__yaml *tree = NULL;
    SONDE__TRY(sonde__yaml_parse(text, size, name, &tree, diag));
    sonde_err err = SONDE_OK;
    const sonde__yaml *root = section != NULL ? sonde__yaml_get(tree, section) : tree;
    if (root == NULL) {
        err = sonde__yaml_fail(&reader, tree, SONDE_ENOTFOUND, section,
                               "there is no section '%s'", section);
    } else if (root->kind != SONDE__YAML_MAP) {
        err = sonde__yaml_fail(&reader, root, SONDE_EINVAL, "keys and values",
                               "the configuration is not a map");
    } else if (sonde__hook_is_smdebug(root)) {
        err = sonde__hook_from_smdebug(&reader, root, options, out);
    } else {
        err = from_own(&reader, root, options, out);
    }
    sonde__yaml_destroy(tree);
    return err;
}

sonde_err sonde_hook_load(const char *file, const sonde_hook_options *options,
                          sonde_hook **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, file, out);
    FILE *stream = fopen(file, "rb");
    size_t size = 0;
    sonde_err err = SONDE_OK;

    if (stream == NULL) {
        return sonde__fail_errno(diag, file, "cannot open the hook's configuration");
    }
    char *text = sonde__malloc(LARGEST_FILE + 1);
    if (text == NULL) {
        err = sonde__fail_nomem(diag, "a hook's configuration");
        goto error;
    }
    size = fread(text, 1, LARGEST_FILE + 1, stream);
    if (ferror(stream)) {
        err = sonde__fail_errno(diag, file, "cannot read the hook's configuration");
        goto error;
    }
    if (size > LARGEST_FILE) {
        err = sonde__fail(diag, SONDE_EINVAL, file, "at most 1 MiB",
                          "the configuration is too long");
        goto error;
    }
    err = sonde_hook_parse(text, size, file, NULL, options, out, diag);
error:
    (void)fclose(stream);
    sonde__free(text);
    return err;
}

sonde_err sonde_hook_configure(sonde_hook *hook, const char *text, sonde_diag *diag)
{
    SONDE__NEEDS(diag, hook, text);
    const sonde__yaml_reader reader = {"hook", diag};
    sonde__yaml *root = NULL;
    SONDE__TRY(sonde__observe_check_open(&hook->setup, "hook", diag));
    SONDE__TRY(sonde__yaml_parse(text, strlen(text), reader.name, &root, diag));
    sonde_err err = SONDE_OK;
    if (root->kind != SONDE__YAML_MAP) {
        err = sonde__yaml_fail(&reader, root, SONDE_EINVAL, "keys and values",
                               "the configuration is not a map");
        goto error;
    }
    SONDE__TRY_GO(sonde__observe_check_keys(&reader, root, false));
    err = sonde__observe_read(&reader, root, &hook->setup);
error:
    sonde__yaml_destroy(root);
    return err;
}

/* --- hook smdebug ------------------------------------------------------------------ */

/* Makes a hook from an unchanged debughookconfig.json of smdebug.
 *
 * Values there are texts, mostly ("100", "1,2,3", "true"), and modes are prefixes of keys
 * ("train.save_interval"). Deliberate differences from smdebug: save_steps replace the
 * interval; a listed `all` means all tensors; the reader accepts documented names of
 * reductions that smdebug refuses. It ignores keys for the platform (S3OutputPath), keys
 * for TensorBoard (an export here) and unknown keys, with a message in the log. */

static const char default_path[] = "/opt/ml/output/tensors";

typedef struct reading {
    const sonde__yaml_reader *reader;
    sonde_hook *hook;
} reading;

/* Collections that have another name here. */
static const char *own_name(const char *name)
{
    static const char *const names[][2] = {{"bias", "biases"},
                                           {"optimizer_variables", "optimizer_state"}};

    for (size_t i = 0; i < SONDE_COUNT_OF(names); i++) {
        if (strcmp(names[i][0], name) == 0) {
            return names[i][1];
        }
    }
    return name;
}

/* The default regular expressions of smdebug for the collections of its frameworks. */
static const char *framework_regex(const char *name)
{
    static const char *const regexes[][2] = {
        {"hyperparameters", "^hyperparameters/.*$"},
        {"metrics", "^[a-zA-Z]+-[a-zA-Z0-9]+$"},
        {"sm_metrics", "^sm_metrics/"},
        {"predictions", "^predictions$"},
        {"labels", "^labels$"},
        {"feature_importance", "^feature_importance/"},
        {"average_shap", "^average_shap/"},
        {"full_shap", "^full_shap/"},
        {"trees", "^trees/"},
        {"layers", "_(input|output)_[0-9]+$"}};

    for (size_t i = 0; i < SONDE_COUNT_OF(regexes); i++) {
        if (strcmp(regexes[i][0], name) == 0) {
            return regexes[i][1];
        }
    }
    return NULL;
}

bool sonde__hook_is_smdebug(const sonde__yaml *root)
{
    return sonde__yaml_get(root, "LocalPath") != NULL ||
           sonde__yaml_get(root, "S3OutputPath") != NULL ||
           sonde__yaml_get(root, "S3Path") != NULL ||
           sonde__yaml_get(root, "HookParameters") != NULL ||
           sonde__yaml_get(root, "CollectionConfigurations") != NULL;
}

/* --- values ----------------------------------------------------------------------- */

/* A map's scalar; NULL if it is missing, null, or no scalar. */
static const sonde__yaml *find(const sonde__yaml *map, const char *key)
{
    const sonde__yaml *node = map != NULL ? sonde__yaml_get(map, key) : NULL;

    return node != NULL && node->kind == SONDE__YAML_SCALAR &&
                   strcmp(node->text, "null") != 0
               ? node
               : NULL;
}

static bool is_true(const sonde__yaml *map, const char *key)
{
    const sonde__yaml *node = find(map, key);

    return node != NULL && sonde__strcasecmp(node->text, "true") == 0;
}

static sonde_err read_number(const reading *file, const sonde__yaml *map,
                             const char *prefix, const char *name, int64_t least,
                             int64_t *out)
{
    char key[64], *end = NULL;

    (void)snprintf(key, sizeof key, "%s%s", prefix, name);
    const sonde__yaml *node = find(map, key);
    if (node == NULL) {
        return SONDE_OK;
    }
    errno = 0;
    long long value = strtoll(node->text, &end, 10);
    if (end == node->text || *end != '\0' || errno != 0 || value < least) {
        return sonde__yaml_fail(file->reader, node, SONDE_EINVAL,
                                least > 0 ? "1 or more" : "0 or more", "%s is '%s'", key,
                                node->text);
    }
    *out = value;
    return SONDE_OK;
}

/* The schedule of one layer: keys with a mode's prefix, or with none. */
static sonde_err read_schedule(const reading *file, const sonde__yaml *map,
                               const char *collection, int mode)
{
    sonde_save_config config = sonde_save_config_unset();
    int64_t *steps = NULL;
    char prefix[16] = "", key[64], *when_nan = NULL;
    sonde_diag inner = {0};
    sonde_err err = SONDE_OK;

    if (mode >= 0) {
        (void)snprintf(prefix, sizeof prefix, "%s.", sonde_mode_name((sonde_mode)mode));
    }
    SONDE__TRY(read_number(file, map, prefix, "save_interval", 1, &config.every));
    SONDE__TRY(read_number(file, map, prefix, "start_step", 0, &config.start_step));
    SONDE__TRY(read_number(file, map, prefix, "end_step", 0, &config.end_step));
    (void)snprintf(key, sizeof key, "%swhen_nan", prefix);
    SONDE__TRY(sonde__observe_read_selector(file->reader, map, key, &when_nan));
    config.when_nan = when_nan;
    (void)snprintf(key, sizeof key, "%ssave_steps", prefix);
    const sonde__yaml *list = sonde__yaml_get(map, key);
    if (list != NULL) {
        SONDE__TRY_GO(sonde__observe_read_steps(file->reader, list, &steps,
                                                &config.save_step_count));
        config.save_steps = steps;
    }
    err = sonde__observe_save(&file->hook->setup, collection, mode, &config, &inner);
    if (err != SONDE_OK) {
        err = sonde__observe_fail_at(file->reader, map, &inner);
    }
error:
    sonde__free(when_nan);
    sonde__free(steps);
    return err;
}

static sonde_err read_schedules(const reading *file, const sonde__yaml *map,
                                const char *collection)
{
    for (int mode = -1; mode < SONDE_MODE_COUNT; mode++) {
        SONDE__TRY(read_schedule(file, map, collection, mode));
    }
    return SONDE_OK;
}

static sonde_err read_reductions(const reading *file, const sonde__yaml *map,
                                 const char *collection)
{
    const sonde__yaml *list = find(map, "reductions");
    const bool histogram = is_true(map, "save_histogram");
    sonde_reduction_config config = {.histogram = histogram,
                                     .save_shape = is_true(map, "save_shape"),
                                     .save_raw_tensor =
                                         list == NULL || is_true(map, "save_raw_tensor")};
    sonde_diag inner = {0};
    sonde_err err = SONDE_OK;

    if (list == NULL && !histogram) {
        return SONDE_OK;
    }
    if (list != NULL) {
        err = sonde__observe_reductions_parse(list->text, &config, &inner);
        if (err != SONDE_OK) {
            return sonde__observe_fail_at(file->reader, list, &inner);
        }
    }
    err = sonde__observe_reduce(&file->hook->setup, collection, &config, &inner);
    return err != SONDE_OK
               ? sonde__observe_fail_at(file->reader, list != NULL ? list : map, &inner)
               : SONDE_OK;
}

/* "a,b": regular expressions, each found anywhere in a name. */
static sonde_err read_regexes(const reading *file, const sonde__yaml *map,
                              const char *collection)
{
    const sonde__yaml *node = find(map, "include_regex");

    for (const char *text = node != NULL ? node->text : ""; *text != '\0';) {
        const size_t length = strcspn(text, ",");
        char *pattern = length > 0 ? sonde__strndup(text, length) : NULL;
        sonde_diag inner = {0};

        if (length > 0) {
            sonde_err err = pattern != NULL
                                ? sonde__observe_include_regex(
                                      &file->hook->setup, collection, pattern, &inner)
                                : sonde__fail_nomem(&inner, "a collection");
            sonde__free(pattern);
            if (err != SONDE_OK) {
                return sonde__observe_fail_at(file->reader, node, &inner);
            }
        }
        text += length + (text[length] == ',' ? 1 : 0);
    }
    return SONDE_OK;
}

/* Warns about unknown keys of a section. */
static void warn_keys(const reading *file, const sonde__yaml *map,
                      const char *const *keys, size_t count)
{
    for (size_t i = 0; map != NULL && i < map->count; i++) {
        const char *key = map->children[i]->key, *plain = key, *nearest = NULL;
        bool known = false;

        for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
            const char *name = sonde_mode_name((sonde_mode)mode);
            const size_t length = strlen(name);

            if (strncmp(key, name, length) == 0 && key[length] == '.') {
                plain = key + length + 1;
            }
        }
        for (size_t k = 0; k < count; k++) {
            known = known || strcmp(plain, keys[k]) == 0;
        }
        nearest = known ? NULL : sonde_diag_nearest(plain, keys, count);
        if (!known) {
            sonde_log(SONDE_LOG_WARNING, "hook", "%s:%d: '%s' is passed over%s%s",
                      file->reader->name, map->children[i]->line, key,
                      nearest != NULL ? "; expected " : "",
                      nearest != NULL ? nearest : "");
        }
    }
}

/* --- sections --------------------------------------------------------------------- */

#define COMMON_KEYS                                                                      \
    "include_regex", "reductions", "save_raw_tensor", "save_shape", "save_interval",     \
        "save_steps", "start_step", "end_step", "when_nan"

/* The settings of one collection. */
static sonde_err read_settings(const reading *file, const sonde__yaml *parameters,
                               const char *name)
{
    SONDE__TRY(read_regexes(file, parameters, name));
    SONDE__TRY(read_schedules(file, parameters, name));
    return read_reductions(file, parameters, name);
}

static sonde_err read_collection(const reading *file, const sonde__yaml *entry)
{
    static const char *const keys[] = {COMMON_KEYS, "save_histogram"};
    const sonde__yaml *yaml = find(entry, "CollectionName");
    const sonde__yaml *parameters = sonde__yaml_get(entry, "CollectionParameters");
    const char *name = NULL, *regex = NULL;
    sonde_diag inner = {0};

    if (yaml == NULL) {
        return sonde__yaml_fail(file->reader, entry, SONDE_EINVAL, "CollectionName",
                                "a collection without a name");
    }
    name = own_name(yaml->text);
    sonde_err err = sonde__observe_add_asked(&file->hook->setup, name, &inner);
    if (err != SONDE_OK) {
        return sonde__observe_fail_at(file->reader, yaml, &inner);
    }
    if (parameters != NULL && parameters->kind == SONDE__YAML_MAP) {
        warn_keys(file, parameters, keys, SONDE_COUNT_OF(keys));
        SONDE__TRY(read_settings(file, parameters, name));
    }
    regex = framework_regex(yaml->text);
    if (regex != NULL) {
        err = sonde__observe_include_regex(&file->hook->setup, name, regex, &inner);
        if (err != SONDE_OK) {
            return sonde__observe_fail_at(file->reader, yaml, &inner);
        }
    }
    if (strcmp(name, "default") == 0 &&
        sonde__observe_find_collection(&file->hook->setup, name)->choices.count == 0) {
        err = sonde__observe_remove_collection(&file->hook->setup, name,
                                               file->reader->diag);
    }
    return err;
}

static sonde_err read_collections(const reading *file, const sonde__yaml *root)
{
    const sonde__yaml *list = sonde__yaml_get(root, "CollectionConfigurations");

    if (list == NULL || (list->kind == SONDE__YAML_SCALAR &&
                         (list->text[0] == '\0' || strcmp(list->text, "null") == 0))) {
        return SONDE_OK;
    }
    if (list->kind != SONDE__YAML_LIST) {
        return sonde__yaml_fail(file->reader, list, SONDE_EINVAL, "a list",
                                "CollectionConfigurations is a %s",
                                list->kind == SONDE__YAML_MAP ? "map" : "text");
    }
    for (size_t i = 0; i < list->count; i++) {
        if (list->children[i]->kind != SONDE__YAML_MAP) {
            return sonde__yaml_fail(file->reader, list->children[i], SONDE_EINVAL,
                                    "CollectionName and CollectionParameters",
                                    "an entry of CollectionConfigurations is no map");
        }
        SONDE__TRY(read_collection(file, list->children[i]));
    }
    return SONDE_OK;
}

static sonde_err read_parameters(const reading *file, const sonde__yaml *parameters)
{
    static const char *const keys[] = {COMMON_KEYS,          "save_all",
                                       "include_workers",    "include_collections",
                                       "export_tensorboard", "tensorboard_dir"};

    if (parameters == NULL) {
        return SONDE_OK;
    }
    warn_keys(file, parameters, keys, SONDE_COUNT_OF(keys));
    if (is_true(parameters, "export_tensorboard") ||
        find(parameters, "tensorboard_dir") != NULL) {
        sonde_log(SONDE_LOG_WARNING, "hook",
                  "TensorBoard files are not written while recording: export the run");
    }
    if (find(parameters, "include_regex") != NULL) {
        SONDE__TRY(
            sonde__observe_add(&file->hook->setup, "default", true, file->reader->diag));
        SONDE__TRY(read_regexes(file, parameters, "default"));
    }
    SONDE__TRY(read_schedules(file, parameters, NULL));
    return read_reductions(file, parameters, NULL);
}

/* smdebug saves only losses and listed collections. */
static sonde_err leave_losses(sonde_hook *hook, sonde_diag *diag)
{
    static const char *const names[] = {"weights", "biases", "gradients"};

    for (size_t i = 0; i < SONDE_COUNT_OF(names); i++) {
        SONDE__TRY(sonde__observe_remove_collection(&hook->setup, names[i], diag));
    }
    return SONDE_OK;
}

sonde_err sonde__hook_from_smdebug(const sonde__yaml_reader *reader,
                                   const sonde__yaml *root,
                                   const sonde_hook_options *options, sonde_hook **out)
{
    const sonde__yaml *path = find(root, "LocalPath");
    const sonde__yaml *section = sonde__yaml_get(root, "HookParameters");
    const sonde__yaml *parameters =
        section != NULL && section->kind == SONDE__YAML_MAP ? section : NULL;
    const sonde__yaml *workers = find(parameters, "include_workers");
    sonde__hook_said said = {.hook = {.save_all = is_true(parameters, "save_all")}};
    reading file = {.reader = reader};
    sonde_diag inner = {0};
    sonde_err err = SONDE_OK;

    said.record.path = path != NULL ? path->text : default_path;
    SONDE__TRY(sonde__hook_options_over(&said, options, reader->diag));
    if (said.record.rank > 0 && (workers == NULL || strcmp(workers->text, "all") != 0)) {
        said.hook.dry_run = true; /* one worker writes */
    }
    SONDE__TRY(sonde_hook_create(&said.hook, &file.hook, reader->diag));
    SONDE__TRY_GO(leave_losses(file.hook, reader->diag));
    SONDE__TRY_GO(read_parameters(&file, parameters));
    SONDE__TRY_GO(read_collections(&file, root));
    if (sonde__observe_check(&file.hook->setup, false, NULL, &inner) != SONDE_OK) {
        err = sonde__observe_fail_at(reader, root, &inner);
        goto error;
    }
    *out = file.hook;
    return SONDE_OK;

error:
    (void)sonde_hook_close(file.hook, SONDE_RUN_FAILED, NULL, NULL);
    return err;
}

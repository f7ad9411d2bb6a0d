/*
 * load.c - makes a hook from a configuration file, of sonde or of smdebug.
 */
#include "capture/hook_state.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

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
    sonde_err err =
        sonde__yaml_int(reader, root, "ring_bytes", 1, (int64_t)1 << 40, &ring);

    if (err != SONDE_OK) {
        return err;
    }
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
    SONDE__TRY(sonde__observe_check_keys(reader, root));
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
                               "the configuration of a hook is none");
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

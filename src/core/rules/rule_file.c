/*
 * rule_file.c - opens a file of rules: a shared object, or a script by way of
 * sonde/sonde-lua.so, which is loaded at the first script.
 */
#include "rules/rule_file.h"
#include "base/fail.h"
#include "base/memory.h"
#include "base/object.h"
#include "base/point.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SCRIPT_MOST = 1 << 20 };

struct sonde_rule_file {
    char *path;
    const sonde_rule *rules[SONDE__RULE_MOST];
    size_t count;
    void *object;             /* of a shared object */
    const sonde_rule *script; /* of a script: its row */
};

/* --- scripts ------------------------------------------------------------------------ */

static const sonde__rule_scripts *scripts;
static char load_fault[256];

static void load_scripts(void)
{
    static const char here = 0;

    scripts = sonde__object_table(&here, "sonde-lua.so", "sonde__rule_lua", load_fault,
                                  sizeof load_fault);
}

static sonde_err run_script(sonde_rule_file *file, const char *text, size_t size,
                            const sonde_rule_limits *limits, sonde_diag *diag)
{
    const sonde_rule_limits given = limits != NULL ? *limits : (sonde_rule_limits){0};
    const sonde_rule_limits whole = {
        .seconds = given.seconds > 0 ? given.seconds : SONDE__RULE_SECONDS,
        .memory = given.memory > 0 ? given.memory : SONDE__RULE_MEMORY,
        .instructions =
            given.instructions > 0 ? given.instructions : SONDE__RULE_INSTRUCTIONS,
    };
    static pthread_once_t loaded = PTHREAD_ONCE_INIT;

    (void)pthread_once(&loaded, load_scripts);
    if (scripts == NULL) {
        return sonde__fail(diag, SONDE_EUNSUPPORTED, file->path,
                           "sonde/sonde-lua.so beside libsonde",
                           "rules in Lua are not installed: %s", load_fault);
    }
    SONDE__TRY(scripts->open(text, size, file->path, &whole, &file->script, diag));
    file->rules[file->count++] = file->script;
    return SONDE_OK;
}

static sonde_err open_script(sonde_rule_file *file, const sonde_rule_limits *limits,
                             sonde_diag *diag)
{
    FILE *stream = fopen(file->path, "rbe");

    if (stream == NULL) {
        return sonde__fail_errno(diag, file->path, "a script cannot be opened");
    }
    char *text = sonde__malloc(SCRIPT_MOST + 1);
    const size_t size = text != NULL ? fread(text, 1, SCRIPT_MOST + 1, stream) : 0;
    sonde_err err = SONDE_OK;

    if (text == NULL) {
        err = sonde__fail_nomem(diag, file->path);
    } else if (ferror(stream)) {
        err = sonde__fail_errno(diag, file->path, "a script cannot be read");
    } else if (size > SCRIPT_MOST) {
        err = sonde__fail(diag, SONDE_EINVAL, file->path, "at most 1 MB",
                          "a larger script");
    } else {
        err = run_script(file, text, size, limits, diag);
    }
    (void)fclose(stream);
    sonde__free(text);
    return err;
}

/* --- shared objects ----------------------------------------------------------------- */

/* The message of dlopen, without the path that it begins with. */
static const char *load_error(const char *path)
{
    const char *text = dlerror(); /* NOLINT(concurrency-mt-unsafe) */
    const size_t length = strlen(path);

    if (text == NULL) {
        return "it cannot be loaded";
    }
    return strncmp(text, path, length) == 0 && strncmp(text + length, ": ", 2) == 0
               ? text + length + 2
               : text;
}

static sonde_err check_table(const char *path, const sonde_rule_plugin *table,
                             sonde_diag *diag)
{
    char expected[64];

    if (table->abi != SONDE_RULE_ABI) {
        (void)snprintf(expected, sizeof expected, "rule interface %d", SONDE_RULE_ABI);
        return sonde__fail(diag, SONDE_EUNSUPPORTED, path, expected,
                           "it was built for rule interface %u", table->abi);
    }
    if (table->rule_size != sizeof(sonde_rule)) {
        (void)snprintf(expected, sizeof expected, "%zu, as in this <sonde/rule.h>",
                       sizeof(sonde_rule));
        return sonde__fail(diag, SONDE_EUNSUPPORTED, path, expected,
                           "the size of its rows is %u bytes", table->rule_size);
    }
    if (table->rules == NULL || table->count == 0 || table->count > SONDE__RULE_MOST) {
        return sonde__fail(diag, SONDE_EINVAL, path, "1 to 64 rules",
                           "a table of %zu rules%s", table->count,
                           table->rules == NULL ? " without address" : "");
    }
    for (size_t i = 0; i < table->count; i++) {
        if (table->rules[i] == NULL) {
            return sonde__fail(diag, SONDE_EINVAL, path, "the address of a sonde_rule",
                               "rule %zu is NULL", i + 1);
        }
        if (table->rules[i]->abi != SONDE_RULE_ABI) {
            (void)snprintf(expected, sizeof expected,
                           ".abi = SONDE_RULE_ABI, which is %d", SONDE_RULE_ABI);
            return sonde__fail(diag, SONDE_EUNSUPPORTED, path, expected,
                               "rule %zu has rule interface %u", i + 1,
                               table->rules[i]->abi);
        }
    }
    return SONDE_OK;
}

static sonde_err open_object(sonde_rule_file *file, sonde_diag *diag)
{
    const char *path = file->path;
    char slashed[4096];

    /* Without a slash dlopen would search the system's folders. */
    (void)snprintf(slashed, sizeof slashed, "%s%s", strchr(path, '/') ? "" : "./", path);
    file->object = dlopen(slashed, RTLD_NOW | RTLD_LOCAL);
    if (file->object == NULL) {
        return sonde__fail(diag, SONDE_EFORMAT, path, "a shared object", "%s",
                           load_error(slashed));
    }
    const sonde_rule_plugin *table = dlsym(file->object, SONDE_RULE_PLUGIN_NAME);

    if (table == NULL) {
        return sonde__fail(diag, SONDE_EFORMAT, path, "SONDE_RULE_PLUGIN(&rule) in it",
                           "no symbol " SONDE_RULE_PLUGIN_NAME);
    }
    SONDE__TRY(check_table(path, table, diag));
    for (size_t i = 0; i < table->count; i++) {
        file->rules[i] = table->rules[i];
    }
    file->count = table->count;
    return SONDE_OK;
}

/* --- a file ------------------------------------------------------------------------- */

static sonde_err check_rules(const sonde_rule_file *file, sonde_diag *diag)
{
    for (size_t i = 0; i < file->count; i++) {
        const sonde_rule *rule = file->rules[i], *other = NULL;

        SONDE__TRY(sonde__rule_check(rule, file->path, diag));
        if (sonde_rule_by_name(rule->name, &other, NULL) == SONDE_OK) {
            return sonde__fail(diag, SONDE_EEXIST, file->path, "an unused name",
                               "rule %s: a built-in rule has this name", rule->name);
        }
        for (size_t j = 0; j < i; j++) {
            if (sonde__strcasecmp(file->rules[j]->name, rule->name) == 0) {
                return sonde__fail(diag, SONDE_EEXIST, file->path, "an unused name",
                                   "rule %s occurs twice", rule->name);
            }
        }
    }
    return SONDE_OK;
}

sonde_err sonde_rule_file_open(const char *path, const sonde_rule_limits *limits,
                               sonde_rule_file **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, path, out);
    const size_t length = strlen(path);

    if (access(path, R_OK) != 0) {
        return sonde__fail_errno(diag, path, "a file of rules cannot be read");
    }
    sonde_rule_file *file = sonde__calloc(1, sizeof *file);

    if (file == NULL) {
        return sonde__fail_nomem(diag, path);
    }
    file->path = sonde__strdup(path);
    sonde_err err = SONDE_OK;

    if (file->path == NULL) {
        err = sonde__fail_nomem(diag, path);
    } else if (length > 4 && strcmp(path + length - 4, ".lua") == 0) {
        err = open_script(file, limits, diag);
    } else {
        err = open_object(file, diag);
    }
    if (err == SONDE_OK) {
        err = check_rules(file, diag);
    }
    if (err != SONDE_OK) {
        sonde_rule_file_close(file);
        return err;
    }
    *out = file;
    return SONDE_OK;
}

const sonde_rule *sonde_rule_file_at(const sonde_rule_file *file, size_t i)
{
    return file != NULL && i < file->count ? file->rules[i] : NULL;
}

const char *sonde__rule_file_path(const sonde_rule_file *file)
{
    return file->path;
}

void sonde_rule_file_close(sonde_rule_file *file)
{
    if (file == NULL) {
        return;
    }
    if (file->script != NULL) {
        scripts->close(file->script);
    }
    if (file->object != NULL) {
        (void)dlclose(file->object);
    }
    sonde__free(file->path);
    sonde__free(file);
}

/*
 * rule_file.c - opens a file of rules: a shared object, or a script by way of
 * sonde/sonde-lua.so, which is loaded at the first script.
 */
#include "rules/rule_file.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/shared_object.h"
#include "base/number.h"

#include <ctype.h>
#include <dlfcn.h>
#include <math.h>
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

/* --- rows that users wrote ------------------------------------------------------------ */

enum { NAME_MOST = 64, TEXT_MOST = 2000, STATE_MOST = 1 << 28, FIELD = 8 };

/* A letter, then letters, digits and "_", since file names contain it. */
static bool is_name(const char *text)
{
    size_t length = 0;

    if (text == NULL || !isalpha((unsigned char)text[0])) {
        return false;
    }
    for (; text[length] != '\0' && length <= NAME_MOST; length++) {
        if (!isalnum((unsigned char)text[length]) && text[length] != '_') {
            return false;
        }
    }
    return length <= NAME_MOST;
}

static bool is_text(const char *text)
{
    return text != NULL && strnlen(text, TEXT_MOST + 1) <= TEXT_MOST;
}

static size_t field_size(sonde_rule_kind kind)
{
    return kind == SONDE_RULE_FLAG ? sizeof(bool) : FIELD;
}

static sonde_err bad_row(sonde_diag *diag, const char *path, const sonde_rule *rule,
                         const char *expected, const char *what)
{
    return sonde__fail(diag, SONDE_EINVAL, path, expected, "rule %s: %s",
                       is_name(rule->name) ? rule->name : "?", what);
}

static sonde_err check_param(const sonde_rule *rule, size_t i, const char *path,
                             sonde_diag *diag)
{
    const sonde_rule_param *param = &rule->params[i];
    char what[128];
    const char *expected = NULL;

    if (!is_name(param->name)) {
        expected = "letters, digits and '_'";
        (void)snprintf(what, sizeof what, "parameter %zu has no name", i + 1);
        return bad_row(diag, path, rule, expected, what);
    }
    if ((unsigned)param->kind > SONDE_RULE_COLLECTIONS) {
        expected = "a kind of sonde_rule_kind";
    } else if (!is_text(param->help)) {
        expected = "a help text";
    } else if (param->initial != NULL && !is_text(param->initial)) {
        expected = "a shorter default";
    } else if (!isfinite(param->least) || !isfinite(param->most) ||
               param->least > param->most) {
        expected = "least <= most";
    } else if (param->offset > rule->state_size ||
               rule->state_size - param->offset < field_size(param->kind)) {
        expected = "an offset inside the state";
    } else if (param->offset % field_size(param->kind) != 0) {
        expected = "an offset that is aligned";
    }
    (void)snprintf(what, sizeof what, "parameter '%s' is invalid", param->name);
    for (size_t j = 0; j < i && expected == NULL; j++) {
        if (sonde__strcasecmp(rule->params[j].name, param->name) == 0) {
            expected = "an unused name";
            (void)snprintf(what, sizeof what, "parameter '%s' occurs twice", param->name);
        }
    }
    return expected != NULL ? bad_row(diag, path, rule, expected, what) : SONDE_OK;
}

static sonde_err check_need(const sonde_rule *rule, size_t i, const char *path,
                            sonde_diag *diag)
{
    const sonde_rule_need *need = &rule->needs[i];
    char what[64];

    (void)snprintf(what, sizeof what, "need %zu is invalid", i + 1);
    if (!is_text(need->what)) {
        return bad_row(diag, path, rule, "a text what", what);
    }
    if (need->how == 0 || (need->how & ~(unsigned)SONDE_HOW_ALL) != 0) {
        return bad_row(diag, path, rule, "SONDE_HOW_ bits", what);
    }
    if ((need->how & ~(unsigned)SONDE_HOW_SIGNS) != 0 && rule->observe == NULL) {
        return bad_row(diag, path, rule, "a function observe",
                       "it needs more than vital signs");
    }
    if (sonde_schedule_check(&need->when, NULL) != SONDE_OK ||
        need->when.step_count > 0 || need->when.start != 0 || need->when.end != 0) {
        return bad_row(diag, path, rule, "when with every, first, row and row_every",
                       what);
    }
    return SONDE_OK;
}

static sonde_err check_texts(const sonde_rule *rule, const char *path, sonde_diag *diag)
{
    const struct {
        const char *text, *name;
    } texts[] = {{rule->summary, "summary"},
                 {rule->condition, "condition"},
                 {rule->advice, "advice"}};

    if (!is_name(rule->name)) {
        return bad_row(diag, path, rule, "a letter, then letters, digits and '_'",
                       rule->name != NULL ? "its name is invalid" : "it has no name");
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(texts); i++) {
        if (!is_text(texts[i].text)) {
            char expected[64];

            (void)snprintf(expected, sizeof expected, "a text of at most %d bytes",
                           TEXT_MOST);
            return bad_row(diag, path, rule, expected, texts[i].name);
        }
    }
    return SONDE_OK;
}

/* Checks that a user's row is complete and valid. */
static sonde_err check_rule(const sonde_rule *rule, const char *path, sonde_diag *diag)
{
    SONDE__TRY(check_texts(rule, path, diag));
    if (rule->param_count > SONDE__RULE_MOST || rule->need_count > SONDE__RULE_MOST ||
        (rule->param_count > 0 && rule->params == NULL) ||
        (rule->need_count > 0 && rule->needs == NULL)) {
        return bad_row(diag, path, rule, "at most 64 of each", "parameters or needs");
    }
    if (rule->state_size > STATE_MOST || rule->tensor_size > STATE_MOST) {
        return bad_row(diag, path, rule, "at most 256 MB", "the size of its state");
    }
    if ((rule->modes >> SONDE_MODE_COUNT) != 0) {
        return bad_row(diag, path, rule, "a bit for each mode", "its modes");
    }
    if (rule->wants == NULL && (rule->need_count > 0 || rule->program == NULL)) {
        return bad_row(diag, path, rule, "a function wants", "it selects no tensors");
    }
    for (size_t i = 0; i < rule->param_count; i++) {
        SONDE__TRY(check_param(rule, i, path, diag));
    }
    for (size_t i = 0; i < rule->need_count; i++) {
        SONDE__TRY(check_need(rule, i, path, diag));
    }
    return SONDE_OK;
}

/* --- a file ------------------------------------------------------------------------- */

static sonde_err check_rules(const sonde_rule_file *file, sonde_diag *diag)
{
    for (size_t i = 0; i < file->count; i++) {
        const sonde_rule *rule = file->rules[i], *other = NULL;

        SONDE__TRY(check_rule(rule, file->path, diag));
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

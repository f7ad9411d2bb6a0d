/*
 * rule_names.c - adds rules by name, built in or from a file, and lists of them.
 */
#include "rules/engine.h"
#include "base/fail.h"
#include "base/memory.h"
#include "base/number.h"
#include "rules/rule_file.h"

#include <string.h>

/* --- files of rules ----------------------------------------------------------------- */

static const sonde_rule *find_loaded(const sonde_rules *rules, const char *name)
{
    const sonde_rule *rule = NULL;

    for (size_t i = 0; i < rules->file_count; i++) {
        for (size_t j = 0; (rule = sonde_rule_file_at(rules->files[i], j)) != NULL; j++) {
            if (sonde__strcasecmp(rule->name, name) == 0) {
                return rule;
            }
        }
    }
    return NULL;
}

static const sonde_rule_file *find_file(const sonde_rules *rules, const char *path)
{
    for (size_t i = 0; i < rules->file_count; i++) {
        if (strcmp(sonde__rule_file_path(rules->files[i]), path) == 0) {
            return rules->files[i];
        }
    }
    return NULL;
}

void sonde_rules_set_limits(sonde_rules *rules, const sonde_rule_limits *limits)
{
    if (rules == NULL) {
        return;
    }
    rules->limits = limits != NULL ? *limits : (sonde_rule_limits){0};
}

sonde_err sonde_rules_load(sonde_rules *rules, const char *path, sonde_diag *diag)
{
    SONDE__NEEDS(diag, rules, path);
    sonde_rule_file *file = NULL;
    const sonde_rule *rule = NULL;
    sonde_err err = SONDE_OK;

    if (find_file(rules, path) != NULL) {
        return SONDE_OK;
    }
    if (!sonde__reserve(&rules->files, &rules->file_capacity, rules->file_count + 1,
                        sizeof(sonde_rule_file *))) {
        return sonde__fail_nomem(diag, path);
    }
    SONDE__TRY(sonde_rule_file_open(path, &rules->limits, &file, diag));
    for (size_t i = 0; (rule = sonde_rule_file_at(file, i)) != NULL; i++) {
        if (find_loaded(rules, rule->name) != NULL) {
            err =
                sonde__fail(diag, SONDE_EEXIST, path, "a unique name",
                            "rule %s: another file has a rule of this name", rule->name);
            sonde_rule_file_close(file);
            return err;
        }
    }
    rules->files[rules->file_count++] = file;
    return SONDE_OK;
}

static bool ends_in(const char *text, const char *end)
{
    const size_t length = strlen(text), n = strlen(end);

    return length > n && strcmp(text + length - n, end) == 0;
}

/* --- adding ------------------------------------------------------------------------- */

static sonde_err add_file(sonde_rules *rules, const char *path, const char *params,
                          sonde_diag *diag)
{
    const sonde_rule *rule = NULL;
    size_t count = 0;
    SONDE__TRY(sonde_rules_load(rules, path, diag));
    const sonde_rule_file *file = find_file(rules, path);
    while (sonde_rule_file_at(file, count) != NULL) {
        count++;
    }
    if (params != NULL && count > 1) {
        return sonde__fail(diag, SONDE_EINVAL, path, "one of its rules by name",
                           "parameters for a file of %zu rules", count);
    }
    for (size_t i = 0; (rule = sonde_rule_file_at(file, i)) != NULL; i++) {
        SONDE__TRY(sonde_rules_add_rule(rules, rule, params, diag));
    }
    return SONDE_OK;
}

static sonde_err add_named(sonde_rules *rules, const char *name, const char *params,
                           sonde_diag *diag)
{
    const sonde_rule *rule = find_loaded(rules, name);

    if (strchr(name, '/') != NULL || ends_in(name, ".lua") || ends_in(name, ".so")) {
        return add_file(rules, name, params, diag);
    }
    if (rule == NULL) {
        SONDE__TRY(sonde_rule_by_name(name, &rule, diag));
    }
    return sonde_rules_add_rule(rules, rule, params, diag);
}

sonde_err sonde_rules_add(sonde_rules *rules, const char *text, sonde_diag *diag)
{
    SONDE__NEEDS(diag, rules, text);
    const size_t length = strcspn(text, ":");
    char *name = sonde__strndup(text, length);

    if (name == NULL) {
        return sonde__fail_nomem(diag, "a rule");
    }
    const sonde_err err =
        add_named(rules, name, text[length] == ':' ? text + length + 1 : NULL, diag);
    sonde__free(name);
    return err;
}

static sonde_err add_default(sonde_rules *rules, const sonde_rule *rule, sonde_diag *diag)
{
    return rule->by_name_only ? SONDE_OK : sonde_rules_add_rule(rules, rule, NULL, diag);
}

sonde_err sonde_rules_add_defaults(sonde_rules *rules, sonde_diag *diag)
{
    SONDE__NEEDS(diag, rules);
    const sonde_rule *rule = NULL;

    for (size_t i = 0; (rule = sonde_rule_at_index(i)) != NULL; i++) {
        SONDE__TRY(add_default(rules, rule, diag));
    }
    for (size_t i = 0; i < rules->file_count; i++) {
        for (size_t j = 0; (rule = sonde_rule_file_at(rules->files[i], j)) != NULL; j++) {
            SONDE__TRY(add_default(rules, rule, diag));
        }
    }
    return SONDE_OK;
}

/* --- lists -------------------------------------------------------------------------- */

/* True if an item is a parameter of the rule before it: "patience=2". A rule would have a
 * colon before the first "=". */
static bool is_parameter(const char *item, size_t length)
{
    const char *equals = memchr(item, '=', length);

    return equals != NULL && memchr(item, ':', (size_t)(equals - item)) == NULL;
}

/* Bytes up to the next comma with no backslash before it. */
static size_t item_length(const char *text)
{
    size_t n = 0;

    while (text[n] != '\0' && text[n] != ',') {
        n += text[n] == '\\' && text[n + 1] != '\0' ? 2 : 1;
    }
    return n;
}

/* The rule at the beginning of text, with its parameters. */
static size_t rule_length(const char *text)
{
    size_t n = item_length(text);

    while (text[n] == ',') {
        const size_t more = item_length(text + n + 1);

        if (!is_parameter(text + n + 1, more)) {
            break;
        }
        n += 1 + more;
    }
    return n;
}

sonde_err sonde_rules_add_list(sonde_rules *rules, const char *text, sonde_diag *diag)
{
    SONDE__NEEDS(diag, rules, text);
    for (;;) {
        const size_t length = rule_length(text), name = item_length(text);
        char *one = sonde__strndup(text, length);

        if (one == NULL) {
            return sonde__fail_nomem(diag, "rules");
        }
        if (name < length && memchr(one, ':', name) == NULL) {
            one[name] = ':'; /* the first parameter */
        }
        const sonde_err err = sonde__strcasecmp(one, "default") == 0
                                  ? sonde_rules_add_defaults(rules, diag)
                                  : sonde_rules_add(rules, one, diag);
        sonde__free(one);
        if (err != SONDE_OK || text[length] == '\0') {
            return err;
        }
        text += length + 1;
    }
}

/*
 * params.c - the parameters of a rule, from "name=value,name=value" into its state, and
 * the tensors that expressions and collections among them select.
 *
 * Each such parameter marks tensors of the catalogue; when the catalogue has grown, the
 * new tensors are marked as well.
 */
#include "rules/engine.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/number.h"

#include "observe/tensor_names.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- values ------------------------------------------------------------------------- */

static const char *param_name_at(const void *list, size_t i)
{
    return ((const sonde_rule_param *)list)[i].name;
}

static const char *where_of(const sonde_rule_run *run, const sonde_rule_param *param,
                            char *buf, size_t size)
{
    (void)snprintf(buf, size, "%s:%s", run->rule->name, param->name);
    return buf;
}

static sonde_err fail_number(const sonde_rule_run *run, const sonde_rule_param *param,
                             const char *text, sonde_diag *diag)
{
    const char *kind =
        param->kind == SONDE_RULE_COUNT ? "a whole number" : "a finite number";
    char where[128], expected[128];

    if (param->least != 0 || param->most != 0) {
        (void)sonde__snprintf(expected, sizeof expected, "%s from %g to %g", kind,
                              param->least, param->most);
    } else {
        (void)snprintf(expected, sizeof expected, "%s", kind);
    }
    return sonde__fail(diag, SONDE_EINVAL, where_of(run, param, where, sizeof where),
                       expected, "'%s'", text);
}

static bool in_range(const sonde_rule_param *param, double value)
{
    return (param->least == 0 && param->most == 0) ||
           (value >= param->least && value <= param->most);
}

static sonde_err store_number(sonde_rule_run *run, const sonde_rule_param *param,
                              void *field, const char *text, sonde_diag *diag)
{
    char *end = NULL;

    errno = 0;
    if (param->kind == SONDE_RULE_COUNT) {
        const long long number = strtoll(text, &end, 10);
        const int64_t value = number;

        if (end == text || *end != '\0' || errno != 0 ||
            !in_range(param, (double)value)) {
            return fail_number(run, param, text, diag);
        }
        memcpy(field, &value, sizeof value);
    } else {
        const double value = sonde__strtod(text, &end);

        if (end == text || *end != '\0' || !isfinite(value) || !in_range(param, value)) {
            return fail_number(run, param, text, diag);
        }
        memcpy(field, &value, sizeof value);
    }
    return SONDE_OK;
}

static sonde_err store_flag(const sonde_rule_run *run, const sonde_rule_param *param,
                            void *field, const char *text, sonde_diag *diag)
{
    static const char *const yes[] = {"true", "yes", "1"}, *const no[] = {"false", "no",
                                                                          "0"};
    char where[128];

    for (size_t i = 0; i < SONDE_COUNT_OF(yes); i++) {
        if (sonde__strcasecmp(text, yes[i]) == 0 || sonde__strcasecmp(text, no[i]) == 0) {
            const bool value = sonde__strcasecmp(text, yes[i]) == 0;

            memcpy(field, &value, sizeof value);
            return SONDE_OK;
        }
    }
    return sonde__fail(diag, SONDE_EINVAL, where_of(run, param, where, sizeof where),
                       "true or false", "'%s'", text);
}

static sonde_err store(sonde_rule_run *run, size_t i, const char *text, sonde_diag *diag)
{
    const sonde_rule_param *param = &run->rule->params[i];
    void *field = (char *)run->state + param->offset;

    if (param->kind == SONDE_RULE_FLAG) {
        return store_flag(run, param, field, text, diag);
    }
    if (param->kind == SONDE_RULE_REAL || param->kind == SONDE_RULE_COUNT) {
        return store_number(run, param, field, text, diag);
    }
    sonde__free(run->texts[i]);
    run->texts[i] = sonde__strdup(text);
    memcpy(field, &run->texts[i], sizeof run->texts[i]);
    return run->texts[i] != NULL ? SONDE_OK : sonde__fail_nomem(diag, param->name);
}

static sonde_err set_defaults(sonde_rule_run *run, sonde_diag *diag)
{
    for (size_t i = 0; i < run->rule->param_count; i++) {
        const sonde_rule_param *param = &run->rule->params[i];
        char *field = (char *)run->state + param->offset;
        const double no_number = NAN;
        const int64_t no_count = INT64_MIN;

        if (param->initial != NULL) {
            SONDE__TRY(store(run, i, param->initial, diag));
        } else if (param->kind == SONDE_RULE_REAL) {
            memcpy(field, &no_number, sizeof no_number);
        } else if (param->kind == SONDE_RULE_COUNT) {
            memcpy(field, &no_count, sizeof no_count);
        }
    }
    return SONDE_OK;
}

static sonde_err fail_unknown(const sonde_rule_run *run, const char *name,
                              sonde_diag *diag)
{
    const sonde_rule *rule = run->rule;
    char near[SONDE__NEAREST_TEXT] = "";

    if (sonde__observe_nearest_names(name, rule->params, param_name_at, rule->param_count,
                                     near, sizeof near) == 0) {
        size_t used = 0;

        for (size_t i = 0; i < rule->param_count && used < sizeof near; i++) {
            used += (size_t)snprintf(near + used, sizeof near - used, "%s%s",
                                     i > 0 ? ", " : "", rule->params[i].name);
        }
    }
    return sonde__fail(diag, SONDE_EINVAL, rule->name, near[0] != '\0' ? near : NULL,
                       rule->param_count > 0 ? "unknown parameter '%s'"
                                             : "unknown parameter '%s': it has none",
                       name);
}

/* Reads one "name=value"; changes the text. */
static sonde_err read_one(sonde_rule_run *run, char *text, bool *given, sonde_diag *diag)
{
    char *equals = strchr(text, '=');

    if (equals == NULL || equals == text) {
        return sonde__fail(diag, SONDE_EINVAL, run->rule->name, "parameter=value", "'%s'",
                           text);
    }
    *equals = '\0';
    for (size_t i = 0; i < run->rule->param_count; i++) {
        if (sonde__strcasecmp(run->rule->params[i].name, text) == 0) {
            if (strcmp(equals + 1, "None") == 0) {
                return SONDE_OK; /* as smdebug writes it: the default holds */
            }
            given[i] = true;
            return store(run, i, equals + 1, diag);
        }
    }
    return fail_unknown(run, text, diag);
}

/* Takes the next item off *rest: up to a comma with no backslash before it; "\," becomes
 * ",". */
static char *next_item(char **rest)
{
    char *item = *rest, *out = item, *in = item;

    while (*in != '\0' && *in != ',') {
        if (in[0] == '\\' && in[1] == ',') {
            in++;
        }
        *out++ = *in++;
    }
    *rest = *in == ',' ? in + 1 : NULL;
    *out = '\0';
    return item;
}

sonde_err sonde__rule_read_params(sonde_rule_run *run, const char *text, sonde_diag *diag)
{
    char *copy = sonde__strdup(text != NULL ? text : "");
    bool *given = run->given;
    char *rest = copy;
    sonde_err err = SONDE_OK;

    if (copy == NULL) {
        return sonde__fail_nomem(diag, "parameters");
    }
    SONDE__TRY_DONE(set_defaults(run, diag));
    while (rest != NULL && *rest != '\0') {
        SONDE__TRY_DONE(read_one(run, next_item(&rest), given, diag));
    }
    for (size_t i = 0; i < run->rule->param_count; i++) {
        const sonde_rule_param *param = &run->rule->params[i];

        if (param->required && !given[i]) {
            err = sonde__fail(diag, SONDE_EINVAL, run->rule->name, param->help,
                              "parameter '%s' is missing", param->name);
            goto done;
        }
    }
done:
    sonde__free(copy);
    return err;
}

/* --- what they select --------------------------------------------------------------- */

/* The comma-separated list with prefix before each item, as selectors need it; returned
 * new. */
static char *prefixed(const char *list, const char *prefix)
{
    size_t commas = 1, used = 0, size = 0;

    for (const char *p = list; *p != '\0'; p++) {
        commas += *p == ',';
    }
    size = strlen(list) + commas * strlen(prefix) + 1;
    char *text = sonde__malloc(size);
    if (text == NULL) {
        return NULL;
    }
    used = (size_t)snprintf(text, size, "%s", prefix);
    for (const char *p = list; *p != '\0'; p++) {
        text[used++] = *p;
        if (*p == ',' && (p == list || p[-1] != '\\')) {
            memcpy(text + used, prefix, strlen(prefix));
            used += strlen(prefix);
            p += strspn(p + 1, " ");
        }
    }
    text[used] = '\0';
    return text;
}

sonde_err sonde__rule_make_selectors(sonde_rule_run *run, sonde_diag *diag)
{
    for (size_t i = 0; i < run->rule->param_count; i++) {
        const char *text = run->texts[i];

        if (run->rule->params[i].kind != SONDE_RULE_REGEX || text == NULL ||
            text[0] == '\0') {
            continue;
        }
        char *written = prefixed(text, "re:");
        if (written == NULL) {
            return sonde__fail_nomem(diag, "a selector");
        }
        const sonde_err err = sonde_selector_create(written, &run->selectors[i], diag);
        sonde__free(written);
        if (err != SONDE_OK) {
            return err;
        }
    }
    return SONDE_OK;
}

static bool role_is(const sonde_tensor_info *info, const char *collection, size_t length)
{
    const char *role = sonde_role_name(info->role);
    const size_t n = strlen(role);

    if (length == 3 && sonde__strncasecmp(collection, "all", 3) == 0) {
        return true;
    }
    if (info->role == SONDE_ROLE_LOSS && length == 6 &&
        sonde__strncasecmp(collection, "losses", 6) == 0) {
        return true;
    }
    if (info->role == SONDE_ROLE_BIAS && length == 6 &&
        sonde__strncasecmp(collection, "biases", 6) == 0) {
        return true;
    }
    return sonde__strncasecmp(collection, role, n) == 0 &&
           (length == n || (length == n + 1 && collection[n] == 's'));
}

static bool in_collections(const sonde_rules *rules, uint32_t id, const char *list)
{
    const sonde_tensor_info *info = sonde_catalogue_info(rules->catalogue, id);

    for (const char *p = list; *p != '\0';) {
        const size_t length = strcspn(p, ",");
        char name[128];

        (void)snprintf(name, sizeof name, "%.*s", (int)length, p);
        if (role_is(info, p, length) ||
            (rules->in_collection != NULL &&
             rules->in_collection(rules->collection_user, id, name))) {
            return true;
        }
        p += length;
        p += strspn(p, ", ");
    }
    return false;
}

static sonde_err mark_selected(sonde_rule_run *run, size_t i, size_t first,
                               sonde_diag *diag)
{
    return sonde__selector_mark(run->selectors[i], run->rules->catalogue, (uint32_t)first,
                                first > 0, run->marks[i], diag);
}

sonde_err sonde__rule_mark(sonde_rule_run *run, size_t first, size_t end,
                           sonde_diag *diag)
{
    for (size_t i = 0; i < run->rule->param_count; i++) {
        const bool collections =
            run->rule->params[i].kind == SONDE_RULE_COLLECTIONS && run->texts[i] != NULL;
        uint8_t *grown = NULL;
        sonde_err err = SONDE_OK;

        if (run->selectors[i] == NULL && !collections) {
            continue;
        }
        const size_t kept = run->marks[i] != NULL ? first : 0;
        grown = sonde__grow(run->marks[i], kept, end);
        if (grown == NULL) {
            return sonde__fail_nomem(diag, "a rule's tensors");
        }
        run->marks[i] = grown;
        memset(grown + kept, 0, end - kept);
        if (run->selectors[i] != NULL) {
            err = mark_selected(run, i, first, diag);
        }
        for (size_t id = first; id < end && collections; id++) {
            grown[id] = in_collections(run->rules, (uint32_t)id, run->texts[i]);
        }
        if (err != SONDE_OK) {
            return err;
        }
    }
    return SONDE_OK;
}

bool sonde_rule_matches(const sonde_rule_run *run, size_t param, uint32_t id)
{
    if (run == NULL || param >= run->rule->param_count) {
        return false;
    }
    return run->marks[param] != NULL && id < run->rules->slot_count &&
           run->marks[param][id] != 0;
}

bool sonde_rule_selected(const sonde_rule_run *run, uint32_t id, bool *given)
{
    if (run == NULL) {
        return false;
    }
    bool could = false, does = false;

    for (size_t i = 0; i < run->rule->param_count; i++) {
        could = could || run->marks[i] != NULL;
        does = does || sonde_rule_matches(run, i, id);
    }
    if (given != NULL) {
        *given = could;
    }
    return does;
}

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

#include <sonde/text.h>

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

static sonde_err fail_value(const sonde_rule_run *run, const sonde_rule_param *param,
                            const char *expected, const char *text, sonde_diag *diag)
{
    char where[128];

    (void)snprintf(where, sizeof where, "%s:%s", run->rule->name, param->name);
    return sonde__fail(diag, SONDE_EINVAL, where, expected, "'%s'", text);
}

static sonde_err fail_number(const sonde_rule_run *run, const sonde_rule_param *param,
                             const char *text, sonde_diag *diag)
{
    const char *kind =
        param->kind == SONDE_RULE_COUNT ? "a whole number" : "a finite number";
    char expected[128];

    if (param->least == 0 && param->most == 0) {
        return fail_value(run, param, kind, text, diag);
    }
    (void)sonde__snprintf(expected, sizeof expected, "%s from %g to %g", kind,
                          param->least, param->most);
    return fail_value(run, param, expected, text, diag);
}

static bool in_range(const sonde_rule_param *param, double value)
{
    return (param->least == 0 && param->most == 0) ||
           (value >= param->least && value <= param->most);
}

static sonde_err store_number(sonde_rule_run *run, const sonde_rule_param *param,
                              void *field, const char *text, sonde_diag *diag)
{
    const bool whole = param->kind == SONDE_RULE_COUNT;
    char *end = NULL;

    errno = 0;
    const int64_t count = whole ? strtoll(text, &end, 10) : 0;
    const double real = whole ? (double)count : sonde__strtod(text, &end);

    if (end == text || *end != '\0' || (whole && errno != 0) || !isfinite(real) ||
        !in_range(param, real)) {
        return fail_number(run, param, text, diag);
    }
    memcpy(field, whole ? (const void *)&count : &real, sizeof count);
    return SONDE_OK;
}

static sonde_err store_flag(const sonde_rule_run *run, const sonde_rule_param *param,
                            void *field, const char *text, sonde_diag *diag)
{
    static const char *const words[] = {"false", "true", "no", "yes", "0", "1"};

    for (size_t i = 0; i < SONDE_COUNT_OF(words); i++) {
        if (sonde__strcasecmp(text, words[i]) == 0) {
            const bool value = i % 2 == 1;

            memcpy(field, &value, sizeof value);
            return SONDE_OK;
        }
    }
    return fail_value(run, param, "true or false", text, diag);
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
    sonde__free(run->values[i].text);
    run->values[i].text = sonde__strdup(text);
    memcpy(field, &run->values[i].text, sizeof run->values[i].text);
    return run->values[i].text != NULL ? SONDE_OK : sonde__fail_nomem(diag, param->name);
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
static sonde_err read_one(sonde_rule_run *run, char *text, sonde_diag *diag)
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
            run->values[i].given = true;
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
    char *rest = copy;
    sonde_err err = SONDE_OK;

    if (copy == NULL) {
        return sonde__fail_nomem(diag, "parameters");
    }
    SONDE__TRY_DONE(set_defaults(run, diag));
    while (rest != NULL && *rest != '\0') {
        SONDE__TRY_DONE(read_one(run, next_item(&rest), diag));
    }
    for (size_t i = 0; i < run->rule->param_count; i++) {
        const sonde_rule_param *param = &run->rule->params[i];

        if (param->required && !run->values[i].given) {
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

/* The comma-separated list as a selector of regular expressions: "re:" before each. */
static sonde_err make_selector(const char *list, sonde_selector **out, sonde_diag *diag)
{
    sonde_text text = {0};

    sonde_text_add(&text, "re:");
    for (const char *p = list; *p != '\0'; p++) {
        sonde_text_put(&text, p, 1);
        if (*p == ',' && (p == list || p[-1] != '\\')) {
            sonde_text_add(&text, "re:");
            p += strspn(p + 1, " ");
        }
    }
    const sonde_err err = text.failed ? sonde__fail_nomem(diag, "a selector")
                                      : sonde_selector_create(text.data, out, diag);
    sonde_text_fini(&text);
    return err;
}

sonde_err sonde__rule_make_selectors(sonde_rule_run *run, sonde_diag *diag)
{
    for (size_t i = 0; i < run->rule->param_count; i++) {
        const char *text = run->values[i].text;

        if (run->rule->params[i].kind == SONDE_RULE_REGEX && text != NULL &&
            text[0] != '\0') {
            SONDE__TRY(make_selector(text, &run->values[i].selector, diag));
        }
    }
    return SONDE_OK;
}

/* Whether a collection is that of a role: its name or its plural, or "all". */
static bool role_is(const sonde_tensor_info *info, const char *collection)
{
    const char *role = sonde_role_name(info->role), *end = collection + strlen(role);
    const bool es = info->role == SONDE_ROLE_LOSS || info->role == SONDE_ROLE_BIAS;

    return sonde__strcasecmp(collection, "all") == 0 ||
           (sonde__strncasecmp(collection, role, strlen(role)) == 0 &&
            (*end == '\0' || sonde__strcasecmp(end, "s") == 0 ||
             (es && sonde__strcasecmp(end, "es") == 0)));
}

static bool in_collections(const sonde_rules *rules, uint32_t id, const char *list)
{
    const sonde_tensor_info *info = sonde_catalogue_info(rules->catalogue, id);

    for (const char *p = list; *p != '\0';) {
        const size_t length = strcspn(p, ",");
        char name[128];

        (void)snprintf(name, sizeof name, "%.*s", (int)length, p);
        if (role_is(info, name) ||
            (rules->in_collection != NULL &&
             rules->in_collection(rules->collection_user, id, name))) {
            return true;
        }
        p += length;
        p += strspn(p, ", ");
    }
    return false;
}

sonde_err sonde__rule_mark(sonde_rule_run *run, size_t first, size_t end,
                           sonde_diag *diag)
{
    for (size_t i = 0; i < run->rule->param_count; i++) {
        sonde__rule_value *value = &run->values[i];
        const bool collections =
            run->rule->params[i].kind == SONDE_RULE_COLLECTIONS && value->text != NULL;
        const size_t kept = value->marks != NULL ? first : 0;

        if (value->selector == NULL && !collections) {
            continue;
        }
        if (!sonde__reserve(&value->marks, &value->mark_capacity, end, 1)) {
            return sonde__fail_nomem(diag, "a rule's tensors");
        }
        uint8_t *marks = value->marks;
        if (marks == NULL) { /* there are no tensors */
            continue;
        }
        memset(marks + kept, 0, end - kept);
        for (size_t id = first; id < end && collections; id++) {
            marks[id] = in_collections(run->rules, (uint32_t)id, value->text);
        }
        if (value->selector != NULL) {
            SONDE__TRY(sonde__selector_mark(value->selector, run->rules->catalogue,
                                            (uint32_t)first, first > 0, marks, diag));
        }
    }
    return SONDE_OK;
}

bool sonde_rule_matches(const sonde_rule_run *run, size_t param, uint32_t id)
{
    if (run == NULL || param >= run->rule->param_count) {
        return false;
    }
    return run->values[param].marks != NULL && id < run->rules->slot_count &&
           run->values[param].marks[id] != 0;
}

bool sonde_rule_selected(const sonde_rule_run *run, uint32_t id, bool *given)
{
    if (run == NULL) {
        return false;
    }
    bool could = false, does = false;

    for (size_t i = 0; i < run->rule->param_count; i++) {
        could = could || run->values[i].marks != NULL;
        does = does || sonde_rule_matches(run, i, id);
    }
    if (given != NULL) {
        *given = could;
    }
    return does;
}

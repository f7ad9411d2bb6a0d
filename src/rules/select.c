/*
 * select.c - the tensors that a rule's parameters mean: expressions and collections; and those
 * that a rule knows by what the catalogue says of their module.
 *
 * Marks are made anew for what a catalogue has grown by.
 */
#include "rules/builtin/builtin.h"
#include "base/fail.h"
#include "base/memory.h"
#include "rules/engine.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Every item of a comma list with prefix in front of it, as a selector wants it; new. */
static char *prefixed(const char *list, const char *prefix)
{
    size_t commas = 1, used = 0, size = 0;
    char *text = NULL;

    for (const char *p = list; *p != '\0'; p++) {
        commas += *p == ',';
    }
    size = strlen(list) + commas * strlen(prefix) + 1;
    text = sonde__malloc(size);
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
        char *written = NULL;
        sonde_err err = SONDE_OK;

        if (run->rule->params[i].kind != SONDE_RULE_REGEX || text == NULL ||
            text[0] == '\0') {
            continue;
        }
        written = prefixed(text, "re:");
        if (written == NULL) {
            return sonde__fail_nomem(diag, "a selector");
        }
        err = sonde_selector_create(written, &run->selectors[i], diag);
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

    if (length == 3 && strncasecmp(collection, "all", 3) == 0) {
        return true;
    }
    if (info->role == SONDE_ROLE_LOSS && length == 6 &&
        strncasecmp(collection, "losses", 6) == 0) {
        return true;
    }
    if (info->role == SONDE_ROLE_BIAS && length == 6 &&
        strncasecmp(collection, "biases", 6) == 0) {
        return true;
    }
    return strncasecmp(collection, role, n) == 0 &&
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

static sonde_err mark_selected(sonde_rule_run *run, size_t i, size_t from,
                               sonde_diag *diag)
{
    uint32_t *ids = NULL;
    size_t count = 0;
    const sonde_err err = sonde_selector_resolve(run->selectors[i], run->rules->catalogue,
                                                 &ids, &count, diag);

    for (size_t j = 0; err == SONDE_OK && j < count; j++) {
        if (ids[j] >= from) {
            run->marks[i][ids[j]] = 1;
        }
    }
    sonde_selector_free_ids(ids);
    return err;
}

sonde_err sonde__rule_mark(sonde_rule_run *run, size_t from, size_t to, sonde_diag *diag)
{
    for (size_t i = 0; i < run->rule->param_count; i++) {
        const bool collections =
            run->rule->params[i].kind == SONDE_RULE_COLLECTIONS && run->texts[i] != NULL;
        uint8_t *grown = NULL;
        sonde_err err = SONDE_OK;

        if (run->selectors[i] == NULL && !collections) {
            continue;
        }
        grown = sonde__grow(run->marks[i], from, to);
        if (grown == NULL) {
            return sonde__fail_nomem(diag, "a rule's tensors");
        }
        run->marks[i] = grown;
        memset(grown + from, 0, to - from);
        if (run->selectors[i] != NULL) {
            err = mark_selected(run, i, from, diag);
        }
        for (size_t id = from; id < to && collections; id++) {
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
    return run->marks[param] != NULL && id < run->rules->slot_count &&
           run->marks[param][id] != 0;
}

bool sonde_rule_selected(const sonde_rule_run *run, uint32_t id, bool *given)
{
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

const char *sonde__builtin_goes_into(const sonde_rule_run *run,
                                     const sonde_tensor_info *info)
{
    static const char *const names[] = {"relu", "gelu",    "selu", "elu",
                                        "tanh", "sigmoid", "silu", "softplus"};
    const sonde_catalogue *catalogue = run->rules->catalogue;

    for (size_t i = 0; i < SONDE__COUNT_OF(names); i++) {
        if (sonde__builtin_is_input_of(info->name, names[i])) {
            return names[i];
        }
    }
    if (info->role != SONDE_ROLE_INPUT || info->module[0] == '\0') {
        return NULL;
    }
    for (uint32_t id = 0; id < sonde_catalogue_count(catalogue); id++) {
        const sonde_tensor_info *of = sonde_catalogue_info(catalogue, id);

        for (size_t i = 0; i < SONDE__COUNT_OF(names); i++) {
            if (of->role == SONDE_ROLE_OUTPUT && strcmp(of->module, info->module) == 0 &&
                strcasecmp(of->op, names[i]) == 0) {
                return names[i];
            }
        }
    }
    return NULL;
}

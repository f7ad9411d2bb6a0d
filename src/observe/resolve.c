/*
 * resolve.c - marks the tensors that a selector's items mean.
 *
 * Regular expressions run without JIT and under limits: one that backtracks without end
 * costs milliseconds and an error, not a hung program.
 */
#include "observe/selector_items.h"

#include "base/fail.h"
#include "base/memory.h"
#include "observe/tensor_names.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <sonde/error.h>

enum {
    MATCH_LIMIT =
        100000, /* calls of the matcher a name; a sane expression needs hundreds */
    HEAP_LIMIT_KIB = 4096 /* of backtracking memory */
};

static sonde_err fail_match(const sonde_selector *selector, const char *name, int code,
                            sonde_diag *diag)
{
    PCRE2_UCHAR wrong[128] = {0};

    if (code == PCRE2_ERROR_NOMEMORY) {
        return sonde__fail_nomem(diag, "matching a regular expression");
    }
    if (code == PCRE2_ERROR_MATCHLIMIT || code == PCRE2_ERROR_DEPTHLIMIT ||
        code == PCRE2_ERROR_HEAPLIMIT) {
        return sonde__fail(diag, SONDE_EINVAL, selector->text,
                           "an expression without nested repetition",
                           "matching '%s' takes too many steps", name);
    }
    (void)pcre2_get_error_message(code, wrong, sizeof wrong);
    return sonde__fail(diag, SONDE_EINVAL, selector->text,
                       "a Perl-compatible regular expression", "matching '%s': %s", name,
                       (const char *)wrong);
}

/* What is to be marked: tensors from an id on. */
typedef struct marking {
    const sonde_catalogue *catalogue;
    uint32_t from, count;
    uint8_t *marks; /* by id */
} marking;

static sonde_err mark_regex(const sonde_selector *selector, const sonde__observe_item *of,
                            const marking *to, sonde_diag *diag)
{
    pcre2_match_context *limits = pcre2_match_context_create(selector->memory);
    pcre2_match_data *found = pcre2_match_data_create(1, selector->memory);
    sonde_err err = SONDE_OK;

    if (limits == NULL || found == NULL) {
        err = sonde__fail_nomem(diag, "matching a regular expression");
        goto done;
    }
    (void)pcre2_set_match_limit(limits, MATCH_LIMIT);
    (void)pcre2_set_heap_limit(limits, HEAP_LIMIT_KIB);
    for (uint32_t id = to->from; id < to->count && err == SONDE_OK; id++) {
        const char *name = sonde_catalogue_info(to->catalogue, id)->name;
        const int code =
            pcre2_match(of->code, (PCRE2_SPTR)name, strlen(name), 0, 0, found, limits);

        if (code >= 0) {
            to->marks[id] = 1;
        } else if (code != PCRE2_ERROR_NOMATCH) {
            err = fail_match(selector, name, code, diag);
        }
    }
done:
    pcre2_match_data_free(found);
    pcre2_match_context_free(limits);
    return err;
}

/* text without a "model." that no module has; into *kept, which the caller frees. */
static sonde_err without_model(const sonde_catalogue *catalogue, const char *text,
                               char **kept, sonde_diag *diag)
{
    const size_t model = sonde__observe_model_prefix(text);

    *kept = sonde__strdup(text);
    if (*kept == NULL) {
        return sonde__fail_nomem(diag, "a selector");
    }
    if (model != SIZE_MAX && !sonde__observe_has_module(catalogue, "model")) {
        const char *rest = text + model + SONDE__MODEL_LENGTH;

        memcpy(*kept + model, rest, strlen(rest) + 1);
    }
    return SONDE_OK;
}

static void mark_glob(const char *pattern, const marking *to)
{
    for (uint32_t id = to->from; id < to->count; id++) {
        if (sonde__observe_glob_match(pattern,
                                      sonde_catalogue_info(to->catalogue, id)->name)) {
            to->marks[id] = 1;
        }
    }
}

static const char *module_at(const void *list, size_t i)
{
    const sonde_catalogue *catalogue = list;

    return sonde_catalogue_info(catalogue, (uint32_t)i)->module;
}

static sonde_err mark_module(const char *path, const marking *to, sonde_diag *diag)
{
    char near[SONDE__NEAREST_TEXT], expected[SONDE__NEAREST_TEXT + 24];
    bool any = false;

    for (uint32_t id = to->from; id < to->count; id++) {
        if (sonde__observe_in_module(sonde_catalogue_info(to->catalogue, id), path)) {
            to->marks[id] = 1;
            any = true;
        }
    }
    if (any) {
        return SONDE_OK;
    }
    if (sonde__observe_nearest_names(path, to->catalogue, module_at, to->count, near,
                                     sizeof near) > 0) {
        (void)snprintf(expected, sizeof expected, "a module such as %s", near);
    } else {
        (void)snprintf(expected, sizeof expected, "a module that has tensors");
    }
    return sonde__fail(diag, SONDE_ENOTFOUND, NULL, expected, "unknown module '%s'",
                       path);
}

static void mark_role(int role, const marking *to)
{
    for (uint32_t id = to->from; id < to->count; id++) {
        const sonde_tensor_info *info = sonde_catalogue_info(to->catalogue, id);

        if (role == SONDE__ROLE_ALL ? info->same_as == id : (int)info->role == role) {
            to->marks[id] = 1;
        }
    }
}

static sonde_err mark_pattern(const sonde__observe_item *of, const marking *to,
                              sonde_diag *diag)
{
    char *kept = NULL;
    sonde_err err = without_model(to->catalogue, of->text, &kept, diag);

    if (err == SONDE_OK && of->kind == SONDE__ITEM_GLOB) {
        mark_glob(kept, to);
    } else if (err == SONDE_OK) {
        err = mark_module(kept, to, diag);
    }
    sonde__free(kept);
    return err;
}

static sonde_err mark_item(const sonde_selector *selector, const sonde__observe_item *of,
                           const marking *to, sonde_diag *diag)
{
    sonde_err err = SONDE_OK;
    uint32_t id = 0;

    switch (of->kind) {
    case SONDE__ITEM_EXACT:
        err = sonde_catalogue_find(to->catalogue, of->text, &id, diag);
        if (err == SONDE_OK && id >= to->from) {
            to->marks[id] = 1;
        }
        break;
    case SONDE__ITEM_REGEX:
        err = mark_regex(selector, of, to, diag);
        break;
    case SONDE__ITEM_COLLECTION:
        mark_role(of->role, to);
        break;
    case SONDE__ITEM_GLOB:
    case SONDE__ITEM_MODULE:
        err = mark_pattern(of, to, diag);
        break;
    }
    return err;
}

static sonde_err list_marked(const uint8_t *marks, uint32_t declared, uint32_t **ids,
                             size_t *count, sonde_diag *diag)
{
    uint32_t *listed = NULL;
    size_t n = 0;

    for (uint32_t id = 0; id < declared; id++) {
        n += marks[id];
    }
    listed = sonde__calloc(n, sizeof *listed);
    if (listed == NULL) {
        return sonde__fail_nomem(diag, "a selection");
    }
    n = 0;
    for (uint32_t id = 0; id < declared; id++) {
        if (marks[id] != 0) {
            listed[n++] = id;
        }
    }
    *ids = listed;
    *count = n;
    return SONDE_OK;
}

sonde_err sonde__selector_mark(const sonde_selector *selector,
                               const sonde_catalogue *catalogue, uint32_t from,
                               bool unknown_is_fine, uint8_t *marks, sonde_diag *diag)
{
    const marking to = {catalogue, from, sonde_catalogue_count(catalogue), marks};
    sonde_diag wrong = {0};
    sonde_err err = SONDE_OK;

    for (size_t i = 0; i < selector->count && err == SONDE_OK; i++) {
        err = mark_item(selector, &selector->items[i], &to, &wrong);
        if (err == SONDE_ENOTFOUND && unknown_is_fine) {
            err = SONDE_OK;
        }
    }
    if (err != SONDE_OK && diag != NULL) {
        *diag = wrong;
    }
    return err;
}

sonde_err sonde_selector_resolve(const sonde_selector *selector,
                                 const sonde_catalogue *catalogue, uint32_t **ids,
                                 size_t *count, sonde_diag *diag)
{
    const uint32_t declared = sonde_catalogue_count(catalogue);
    uint8_t *marks = sonde__calloc(declared, 1);
    sonde_err err = SONDE_OK;

    if (marks == NULL) {
        return sonde__fail_nomem(diag, "a selection");
    }
    err = sonde__selector_mark(selector, catalogue, 0, false, marks, diag);
    if (err == SONDE_OK) {
        err = list_marked(marks, declared, ids, count, diag);
    }
    sonde__free(marks);
    return err;
}

void sonde_selector_free_ids(uint32_t *ids)
{
    sonde__free(ids);
}

/*
 * resolve.c - marks the tensors that a selector's items mean.
 *
 * Regular expressions run without JIT and under limits: one that backtracks without end
 * costs milliseconds and an error, not a hung program.
 */
#include "observe/selector_items.h"

#include "base/base.h"
#include "observe/names.h"

#include <stdio.h>
#include <string.h>

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

static sonde_err mark_regex(const sonde_selector *selector, const sonde__item *of,
                            const sonde_catalogue *catalogue, uint8_t *marks,
                            sonde_diag *diag)
{
    const uint32_t count = sonde_catalogue_count(catalogue);
    pcre2_match_context *limits = pcre2_match_context_create(selector->memory);
    pcre2_match_data *found = pcre2_match_data_create(1, selector->memory);
    sonde_err err = SONDE_OK;

    if (limits == NULL || found == NULL) {
        err = sonde__fail_nomem(diag, "matching a regular expression");
        goto done;
    }
    (void)pcre2_set_match_limit(limits, MATCH_LIMIT);
    (void)pcre2_set_heap_limit(limits, HEAP_LIMIT_KIB);
    for (uint32_t id = 0; id < count && err == SONDE_OK; id++) {
        const char *name = sonde_catalogue_info(catalogue, id)->name;
        const int code =
            pcre2_match(of->code, (PCRE2_SPTR)name, strlen(name), 0, 0, found, limits);

        if (code >= 0) {
            marks[id] = 1;
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
    const size_t model = sonde__model_prefix(text);

    *kept = sonde__strdup(text);
    if (*kept == NULL) {
        return sonde__fail_nomem(diag, "a selector");
    }
    if (model != SIZE_MAX && !sonde__has_module(catalogue, "model")) {
        const char *rest = text + model + SONDE__MODEL_LENGTH;

        memcpy(*kept + model, rest, strlen(rest) + 1);
    }
    return SONDE_OK;
}

static void mark_glob(const char *pattern, const sonde_catalogue *catalogue,
                      uint8_t *marks)
{
    const uint32_t count = sonde_catalogue_count(catalogue);

    for (uint32_t id = 0; id < count; id++) {
        if (sonde__glob_match(pattern, sonde_catalogue_info(catalogue, id)->name)) {
            marks[id] = 1;
        }
    }
}

static const char *module_at(const void *list, size_t i)
{
    const sonde_catalogue *catalogue = list;

    return sonde_catalogue_info(catalogue, (uint32_t)i)->module;
}

static sonde_err mark_module(const char *path, const sonde_catalogue *catalogue,
                             uint8_t *marks, sonde_diag *diag)
{
    const uint32_t count = sonde_catalogue_count(catalogue);
    char near[SONDE__NEAREST_TEXT], expected[SONDE__NEAREST_TEXT + 24];
    bool any = false;

    for (uint32_t id = 0; id < count; id++) {
        if (sonde__in_module(sonde_catalogue_info(catalogue, id), path)) {
            marks[id] = 1;
            any = true;
        }
    }
    if (any) {
        return SONDE_OK;
    }
    if (sonde__nearest_names(path, catalogue, module_at, count, near, sizeof near) > 0) {
        (void)snprintf(expected, sizeof expected, "a module such as %s", near);
    } else {
        (void)snprintf(expected, sizeof expected, "a module that has tensors");
    }
    return sonde__fail(diag, SONDE_ENOTFOUND, NULL, expected, "unknown module '%s'",
                       path);
}

static void mark_role(int role, const sonde_catalogue *catalogue, uint8_t *marks)
{
    const uint32_t count = sonde_catalogue_count(catalogue);

    for (uint32_t id = 0; id < count; id++) {
        const sonde_tensor_info *info = sonde_catalogue_info(catalogue, id);

        if (role == SONDE__ROLE_ALL ? info->same_as == id : (int)info->role == role) {
            marks[id] = 1;
        }
    }
}

static sonde_err mark_pattern(const sonde__item *of, const sonde_catalogue *catalogue,
                              uint8_t *marks, sonde_diag *diag)
{
    char *kept = NULL;
    sonde_err err = without_model(catalogue, of->text, &kept, diag);

    if (err == SONDE_OK && of->kind == SONDE__ITEM_GLOB) {
        mark_glob(kept, catalogue, marks);
    } else if (err == SONDE_OK) {
        err = mark_module(kept, catalogue, marks, diag);
    }
    sonde__free(kept);
    return err;
}

static sonde_err mark_item(const sonde_selector *selector, const sonde__item *of,
                           const sonde_catalogue *catalogue, uint8_t *marks,
                           sonde_diag *diag)
{
    sonde_err err = SONDE_OK;
    uint32_t id = 0;

    switch (of->kind) {
    case SONDE__ITEM_EXACT:
        err = sonde_catalogue_find(catalogue, of->text, &id, diag);
        if (err == SONDE_OK) {
            marks[id] = 1;
        }
        break;
    case SONDE__ITEM_REGEX:
        err = mark_regex(selector, of, catalogue, marks, diag);
        break;
    case SONDE__ITEM_COLLECTION:
        mark_role(of->role, catalogue, marks);
        break;
    case SONDE__ITEM_GLOB:
    case SONDE__ITEM_MODULE:
        err = mark_pattern(of, catalogue, marks, diag);
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
    for (size_t i = 0; i < selector->count && err == SONDE_OK; i++) {
        err = mark_item(selector, &selector->items[i], catalogue, marks, diag);
    }
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

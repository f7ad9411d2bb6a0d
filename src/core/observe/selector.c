/*
 * selector.c - selectors: their text becomes items, and items mark the tensors they mean.
 *
 * Regular expressions run without JIT and under limits: one that backtracks without end
 * costs milliseconds and an error, not a hung program.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <sonde/error.h>

#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "observe/tensor_names.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef enum sonde__observe_item_kind {
    SONDE__ITEM_EXACT,
    SONDE__ITEM_GLOB,
    SONDE__ITEM_REGEX,
    SONDE__ITEM_COLLECTION,
    SONDE__ITEM_MODULE
} sonde__observe_item_kind;

enum { SONDE__ROLE_ALL = -1 };

typedef struct sonde__observe_item {
    sonde__observe_item_kind kind;
    char *text;    /* without its prefix, commas plain */
    size_t offset; /* where that begins in the selector's text */
    int role;      /* of a collection: a sonde_role, or SONDE__ROLE_ALL */
    pcre2_code *code;
    pcre2_match_context *limits; /* of a match; never changed, so that threads share it */
} sonde__observe_item;

struct sonde_selector {
    char *text;
    bool whole; /* the text is one item of its kind, commas included */
    sonde__observe_item *items;
    size_t count, capacity;
    pcre2_general_context *memory; /* makes PCRE2 allocate through the seam */
};

enum {
    LONGEST_REGEX = 65536,
    MATCH_LIMIT =
        100000, /* calls of the matcher a name; a sane expression needs hundreds */
    HEAP_LIMIT_KIB = 4096 /* of backtracking memory */
};

/* --- collections ------------------------------------------------------------------ */

static const struct collection {
    const char *name;
    int role;
} collections[] = {
    {"all", SONDE__ROLE_ALL},
    {"weight", SONDE_ROLE_WEIGHT},
    {"weights", SONDE_ROLE_WEIGHT},
    {"bias", SONDE_ROLE_BIAS},
    {"biases", SONDE_ROLE_BIAS},
    {"buffer", SONDE_ROLE_BUFFER},
    {"buffers", SONDE_ROLE_BUFFER},
    {"gradient", SONDE_ROLE_GRADIENT},
    {"gradients", SONDE_ROLE_GRADIENT},
    {"update", SONDE_ROLE_UPDATE},
    {"updates", SONDE_ROLE_UPDATE},
    {"optimizer", SONDE_ROLE_OPTIMIZER},
    {"optimizers", SONDE_ROLE_OPTIMIZER},
    {"optimizer_state", SONDE_ROLE_OPTIMIZER},
    {"loss", SONDE_ROLE_LOSS},
    {"losses", SONDE_ROLE_LOSS},
    {"input", SONDE_ROLE_INPUT},
    {"inputs", SONDE_ROLE_INPUT},
    {"output", SONDE_ROLE_OUTPUT},
    {"outputs", SONDE_ROLE_OUTPUT},
    {"activation", SONDE_ROLE_ACTIVATION},
    {"activations", SONDE_ROLE_ACTIVATION},
    {"activation_gradient", SONDE_ROLE_ACTIVATION_GRADIENT},
    {"activation_gradients", SONDE_ROLE_ACTIVATION_GRADIENT},
    {"scalar", SONDE_ROLE_SCALAR},
    {"scalars", SONDE_ROLE_SCALAR},
    {"other", SONDE_ROLE_OTHER},
    {"others", SONDE_ROLE_OTHER},
    {"program", SONDE_ROLE_PROGRAM},
    {"programs", SONDE_ROLE_PROGRAM},
};

static const char *collection_at(const void *list, size_t i)
{
    const struct collection *row = list;

    return row[i].name;
}

/* --- reading ---------------------------------------------------------------------- */

/* SONDE_EINVAL, with the position as a user counts it: characters from 1. */
static sonde_err fail_at(const sonde_selector *selector, size_t offset, const char *wrong,
                         const char *expected, sonde_diag *diag)
{
    return sonde__fail(diag, SONDE_EINVAL, selector->text, expected,
                       "%s at character %zu", wrong, offset + 1);
}

/* The offset in the selector's text of an offset in an item's, where "\," became ",". */
static size_t source_offset(const sonde_selector *selector,
                            const sonde__observe_item *item, size_t offset)
{
    const char *p = selector->text + item->offset;

    for (size_t i = 0; i < offset && *p != '\0'; i++) {
        if (item->text[i] == ',' && *p == '\\') {
            p++;
        }
        p++;
    }
    return (size_t)(p - selector->text);
}

static sonde_err read_glob(const sonde_selector *selector,
                           const sonde__observe_item *item, sonde_diag *diag)
{
    size_t offset = 0;
    const char *wrong = sonde__observe_glob_check(item->text, &offset);

    return wrong == NULL ? SONDE_OK
                         : fail_at(selector, source_offset(selector, item, offset), wrong,
                                   "a glob of * ? [a-z] [!a-z]", diag);
}

static sonde_err read_collection(const sonde_selector *selector,
                                 sonde__observe_item *item, sonde_diag *diag)
{
    char near[SONDE__NEAREST_TEXT], expected[SONDE__NEAREST_TEXT + 24];
    char wrong[64];

    for (size_t i = 0; i < SONDE_COUNT_OF(collections); i++) {
        if (strcmp(item->text, collections[i].name) == 0) {
            item->role = collections[i].role;
            return SONDE_OK;
        }
    }
    (void)snprintf(wrong, sizeof wrong, "unknown collection '%.32s'", item->text);
    if (sonde__observe_nearest_names(item->text, collections, collection_at,
                                     SONDE_COUNT_OF(collections), near,
                                     sizeof near) > 0) {
        (void)snprintf(expected, sizeof expected, "a collection such as %s", near);
        return fail_at(selector, item->offset, wrong, expected, diag);
    }
    return fail_at(selector, item->offset, wrong,
                   "all, weights, biases, buffers, gradients, updates, optimizer_state, "
                   "losses, inputs, outputs, activations, activation_gradients, "
                   "scalars, programs or others",
                   diag);
}

static void *pcre_malloc(PCRE2_SIZE size, void *user)
{
    (void)user;
    return sonde__malloc(size);
}

static void pcre_free(void *ptr, void *user)
{
    (void)user;
    sonde__free(ptr);
}

static sonde_err set_limits(const sonde_selector *selector, sonde__observe_item *item,
                            sonde_diag *diag)
{
    item->limits = pcre2_match_context_create(selector->memory);
    if (item->limits == NULL) {
        return sonde__fail_nomem(diag, "matching a regular expression");
    }
    (void)pcre2_set_match_limit(item->limits, MATCH_LIMIT);
    (void)pcre2_set_heap_limit(item->limits, HEAP_LIMIT_KIB);
    return SONDE_OK;
}

static sonde_err read_regex(sonde_selector *selector, sonde__observe_item *item,
                            sonde_diag *diag)
{
    pcre2_compile_context *limits = NULL;
    PCRE2_SIZE offset = 0;
    int code = 0;

    if (selector->memory == NULL) {
        selector->memory = pcre2_general_context_create(pcre_malloc, pcre_free, NULL);
    }
    if (selector->memory != NULL) {
        limits = pcre2_compile_context_create(selector->memory);
    }
    if (limits == NULL) {
        return sonde__fail_nomem(diag, "a regular expression");
    }
    (void)pcre2_set_max_pattern_length(limits, LONGEST_REGEX);
    item->code = pcre2_compile((PCRE2_SPTR)item->text, PCRE2_ZERO_TERMINATED,
                               PCRE2_DOLLAR_ENDONLY, &code, &offset, limits);
    pcre2_compile_context_free(limits);
    if (item->code == NULL && code == PCRE2_ERROR_HEAP_FAILED) {
        return sonde__fail_nomem(diag, "a regular expression");
    }
    if (item->code == NULL) {
        PCRE2_UCHAR wrong[128] = {0};

        (void)pcre2_get_error_message(code, wrong, sizeof wrong);
        return fail_at(selector, source_offset(selector, item, offset),
                       (const char *)wrong, "a Perl-compatible regular expression", diag);
    }
    return set_limits(selector, item, diag);
}

/* The kind of the sonde__observe_item at text, and the length of the prefix that says
 * so. */
static sonde__observe_item_kind classify(const char *text, size_t length, size_t *prefix)
{
    static const struct {
        const char *text;
        sonde__observe_item_kind kind;
    } prefixes[] = {{"re:", SONDE__ITEM_REGEX},
                    {"glob:", SONDE__ITEM_GLOB},
                    {"module:", SONDE__ITEM_MODULE},
                    {"@", SONDE__ITEM_COLLECTION}};

    for (size_t i = 0; i < SONDE_COUNT_OF(prefixes); i++) {
        *prefix = strlen(prefixes[i].text);
        if (length >= *prefix && memcmp(text, prefixes[i].text, *prefix) == 0) {
            return prefixes[i].kind;
        }
    }
    *prefix = 0;
    for (size_t i = 0; i < length; i++) {
        if (strchr("*?[", text[i]) != NULL) {
            return SONDE__ITEM_GLOB;
        }
    }
    return SONDE__ITEM_EXACT;
}

/* A copy of length bytes in which "\," is ","; NULL if memory is out. */
static char *copy_unescaped(const char *text, size_t length)
{
    char *copy = sonde__strndup(text, length);
    size_t used = 0;

    for (size_t i = 0; copy != NULL && i < length; i++) {
        if (text[i] == '\\' && i + 1 < length) {
            if (text[i + 1] != ',') {
                copy[used++] = text[i];
            }
            i++;
        }
        copy[used++] = text[i];
    }
    if (copy != NULL) {
        copy[used] = '\0';
    }
    return copy;
}

/* Takes text, which may be NULL for want of memory. */
static sonde_err add_item(sonde_selector *selector, sonde__observe_item_kind kind,
                          char *text, size_t offset, sonde_diag *diag)
{
    if (text == NULL || !sonde__reserve(&selector->items, &selector->capacity,
                                        selector->count + 1, sizeof *selector->items)) {
        sonde__free(text);
        return sonde__fail_nomem(diag, "a selector");
    }
    sonde__observe_item *added = &selector->items[selector->count++];
    *added = (sonde__observe_item){.kind = kind, .text = text, .offset = offset};
    if (text[0] == '\0') {
        return fail_at(selector, offset, "nothing",
                       "a name, pattern, collection or module", diag);
    }
    switch (kind) {
    case SONDE__ITEM_GLOB:
        return read_glob(selector, added, diag);
    case SONDE__ITEM_REGEX:
        return read_regex(selector, added, diag);
    case SONDE__ITEM_COLLECTION:
        return read_collection(selector, added, diag);
    case SONDE__ITEM_EXACT:
    case SONDE__ITEM_MODULE:
        break;
    }
    return SONDE_OK;
}

/* The comma that ends the sonde__observe_item at text, or the end. */
static size_t item_length(const char *text)
{
    size_t i = 0;

    while (text[i] != '\0' && text[i] != ',') {
        i += text[i] == '\\' && text[i + 1] != '\0' ? 2 : 1;
    }
    return i;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static sonde_err read_items(sonde_selector *selector, sonde_diag *diag)
{
    const char *p = selector->text;

    for (;;) {
        const char *end = p + item_length(p);
        const char *last = end;
        sonde__observe_item_kind kind = SONDE__ITEM_EXACT;
        size_t prefix = 0, length = 0;

        while (p < last && is_blank(*p)) {
            p++;
        }
        while (last > p && is_blank(last[-1])) {
            last--;
        }
        length = (size_t)(last - p);
        kind = classify(p, length, &prefix);
        sonde_err err =
            add_item(selector, kind, copy_unescaped(p + prefix, length - prefix),
                     (size_t)(p + prefix - selector->text), diag);
        if (err != SONDE_OK || *end == '\0') {
            return err;
        }
        p = end + 1;
    }
}

/* Of a text to be cut into items, or of one that is an item of that kind whole. */
static sonde_err create(const char *text, bool whole, sonde__observe_item_kind kind,
                        sonde_selector **out, sonde_diag *diag)
{
    sonde_selector *selector = sonde__calloc(1, sizeof *selector);
    sonde_err err = SONDE_OK;

    if (selector == NULL) {
        return sonde__fail_nomem(diag, "a selector");
    }
    selector->whole = whole;
    selector->text = sonde__strdup(text);
    if (selector->text == NULL) {
        err = sonde__fail_nomem(diag, "a selector");
    } else if (whole) {
        err = add_item(selector, kind, sonde__strdup(text), 0, diag);
    } else {
        err = read_items(selector, diag);
    }
    if (err != SONDE_OK) {
        sonde_selector_destroy(selector);
        return err;
    }
    *out = selector;
    return SONDE_OK;
}

sonde_err sonde_selector_create(const char *text, sonde_selector **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, text, out);
    return create(text, false, SONDE__ITEM_EXACT, out, diag);
}

sonde_err sonde__selector_create_regex(const char *pattern, sonde_selector **out,
                                       sonde_diag *diag)
{
    SONDE__NEEDS(diag, pattern, out);
    return create(pattern, true, SONDE__ITEM_REGEX, out, diag);
}

sonde_err sonde__selector_create_exact(const char *name, sonde_selector **out,
                                       sonde_diag *diag)
{
    return create(name, true, SONDE__ITEM_EXACT, out, diag);
}

sonde_err sonde__selector_copy(const sonde_selector *selector, sonde_selector **out,
                               sonde_diag *diag)
{
    return create(selector->text, selector->whole,
                  selector->whole ? selector->items[0].kind : SONDE__ITEM_EXACT, out,
                  diag);
}

void sonde_selector_destroy(sonde_selector *selector)
{
    if (selector == NULL) {
        return;
    }
    for (size_t i = 0; i < selector->count; i++) {
        pcre2_match_context_free(selector->items[i].limits);
        pcre2_code_free(selector->items[i].code);
        sonde__free(selector->items[i].text);
    }
    pcre2_general_context_free(selector->memory);
    sonde__free(selector->items);
    sonde__free(selector->text);
    sonde__free(selector);
}

const char *sonde__selector_text(const sonde_selector *selector)
{
    if (selector == NULL) {
        return NULL;
    }
    return selector->text;
}

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

/* The tensors to mark, from first_id on. */
typedef struct marking {
    const sonde_catalogue *catalogue;
    uint32_t first_id, count;
    uint8_t *marks; /* by id */
} marking;

static sonde_err mark_regex(const sonde_selector *selector,
                            const sonde__observe_item *item, const marking *work,
                            sonde_diag *diag)
{
    pcre2_match_data *data = pcre2_match_data_create(1, selector->memory);
    sonde_err err = data != NULL
                        ? SONDE_OK
                        : sonde__fail_nomem(diag, "matching a regular expression");

    for (uint32_t id = work->first_id; err == SONDE_OK && id < work->count; id++) {
        const char *name = sonde_catalogue_info(work->catalogue, id)->name;
        const int code = pcre2_match(item->code, (PCRE2_SPTR)name, strlen(name), 0, 0,
                                     data, item->limits);

        if (code >= 0) {
            work->marks[id] = 1;
        } else if (code != PCRE2_ERROR_NOMATCH) {
            err = fail_match(selector, name, code, diag);
        }
    }
    pcre2_match_data_free(data);
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

static void mark_glob(const char *pattern, const marking *work)
{
    for (uint32_t id = work->first_id; id < work->count; id++) {
        if (sonde__observe_glob_match(pattern,
                                      sonde_catalogue_info(work->catalogue, id)->name)) {
            work->marks[id] = 1;
        }
    }
}

static const char *module_at(const void *list, size_t i)
{
    const sonde_catalogue *catalogue = list;

    return sonde_catalogue_info(catalogue, (uint32_t)i)->module;
}

static sonde_err mark_module(const char *path, const marking *work, sonde_diag *diag)
{
    char near[SONDE__NEAREST_TEXT], expected[SONDE__NEAREST_TEXT + 24];
    bool any = false;

    for (uint32_t id = work->first_id; id < work->count; id++) {
        if (sonde__observe_in_module(sonde_catalogue_info(work->catalogue, id), path)) {
            work->marks[id] = 1;
            any = true;
        }
    }
    if (any) {
        return SONDE_OK;
    }
    if (sonde__observe_nearest_names(path, work->catalogue, module_at, work->count, near,
                                     sizeof near) > 0) {
        (void)snprintf(expected, sizeof expected, "a module such as %s", near);
    } else {
        (void)snprintf(expected, sizeof expected, "a module that has tensors");
    }
    return sonde__fail(diag, SONDE_ENOTFOUND, NULL, expected, "unknown module '%s'",
                       path);
}

static void mark_role(int role, const marking *work)
{
    for (uint32_t id = work->first_id; id < work->count; id++) {
        const sonde_tensor_info *info = sonde_catalogue_info(work->catalogue, id);

        if (role == SONDE__ROLE_ALL ? info->same_as == id : (int)info->role == role) {
            work->marks[id] = 1;
        }
    }
}

static sonde_err mark_pattern(const sonde__observe_item *item, const marking *work,
                              sonde_diag *diag)
{
    char *kept = NULL;
    SONDE__TRY(without_model(work->catalogue, item->text, &kept, diag));
    sonde_err err = SONDE_OK;
    if (item->kind == SONDE__ITEM_GLOB) {
        mark_glob(kept, work);
    } else {
        err = mark_module(kept, work, diag);
    }
    sonde__free(kept);
    return err;
}

static sonde_err mark_item(const sonde_selector *selector,
                           const sonde__observe_item *item, const marking *work,
                           sonde_diag *diag)
{
    sonde_err err = SONDE_OK;
    uint32_t id = 0;

    switch (item->kind) {
    case SONDE__ITEM_EXACT:
        SONDE__TRY(sonde_catalogue_find(work->catalogue, item->text, &id, diag));
        if (id >= work->first_id) {
            work->marks[id] = 1;
        }
        break;
    case SONDE__ITEM_REGEX:
        err = mark_regex(selector, item, work, diag);
        break;
    case SONDE__ITEM_COLLECTION:
        mark_role(item->role, work);
        break;
    case SONDE__ITEM_GLOB:
    case SONDE__ITEM_MODULE:
        err = mark_pattern(item, work, diag);
        break;
    }
    return err;
}

static sonde_err list_marked(const uint8_t *marks, uint32_t declared, uint32_t **ids,
                             size_t *count, sonde_diag *diag)
{
    size_t n = 0;

    for (uint32_t id = 0; id < declared; id++) {
        n += marks[id];
    }
    uint32_t *listed = sonde__calloc(n, sizeof *listed);
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
                               const sonde_catalogue *catalogue, uint32_t first_id,
                               bool unknown_is_fine, uint8_t *marks, sonde_diag *diag)
{
    const marking work = {catalogue, first_id, sonde_catalogue_count(catalogue), marks};
    for (size_t i = 0; i < selector->count; i++) {
        sonde_diag wrong = {0};
        const sonde_err err = mark_item(selector, &selector->items[i], &work, &wrong);

        if (err == SONDE_OK || (err == SONDE_ENOTFOUND && unknown_is_fine)) {
            continue;
        }
        if (diag != NULL) {
            *diag = wrong;
        }
        return err;
    }
    return SONDE_OK;
}

sonde_err sonde_selector_resolve(const sonde_selector *selector,
                                 const sonde_catalogue *catalogue, uint32_t **ids,
                                 size_t *count, sonde_diag *diag)
{
    SONDE__NEEDS(diag, selector, ids, count, catalogue);
    const uint32_t declared = sonde_catalogue_count(catalogue);
    uint8_t *marks = sonde__calloc(declared, 1);
    sonde_err err = SONDE_OK;

    if (marks == NULL) {
        return sonde__fail_nomem(diag, "a selection");
    }
    SONDE__TRY_GO(sonde__selector_mark(selector, catalogue, 0, false, marks, diag));
    err = list_marked(marks, declared, ids, count, diag);
error:
    sonde__free(marks);
    return err;
}

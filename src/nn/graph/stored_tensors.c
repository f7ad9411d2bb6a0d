/*
 * stored_tensors.c - whether a file of weights has the tensors that a model needs.
 */

#include "nn/graph/graph.h"
#include "base/fail.h"

#include <stdio.h>
#include <string.h>

enum { NAMED = 6, NAME_MAX = 48 }; /* names of a list, and bytes of each */

typedef struct name_list {
    char text[NAMED * (NAME_MAX + 4) + 1]; /* 'a', 'b' */
    size_t length, count;
} name_list;

static void add_name(name_list *list, const char *name)
{
    if (list->count++ < NAMED) {
        list->length += (size_t)snprintf(
            list->text + list->length, sizeof list->text - list->length, "%s'%.*s'",
            list->length > 0 ? ", " : "", (int)NAME_MAX, name);
    }
}

/* " and 12 more", if the list does not hold all names. */
static const char *rest_of(const name_list *list, char *text, size_t size)
{
    text[0] = '\0';
    if (list->count > NAMED) {
        (void)snprintf(text, size, " and %zu more", list->count - NAMED);
    }
    return text;
}

static sonde_err fail_shape(const char *path, const sonde_named_view *wanted,
                            const sonde_view *have, sonde_diag *diag)
{
    char found[96], expected[96];

    (void)sonde_shape_text(have->rank, have->shape, found, sizeof found);
    (void)sonde_shape_text(wanted->view.rank, wanted->view.shape, expected,
                           sizeof expected);
    return sonde__fail(diag, SONDE_ESHAPE, path, expected, "tensor '%s' is %s",
                       wanted->name, found);
}

static bool is_wanted(const char *name, const sonde_named_view *wanted, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(name, wanted[i].name) == 0) {
            return true;
        }
    }
    return false;
}

/* The wanted tensors that the file lacks, and the first of another shape, or NULL. */
static const sonde_named_view *compare(const sonde_safetensors *file,
                                       const sonde_named_view *wanted, size_t count,
                                       name_list *missing)
{
    const sonde_named_view *other = NULL;

    for (size_t i = 0; i < count; i++) {
        const sonde_view *have = sonde_safetensors_find(file, wanted[i].name);

        if (have == NULL) {
            add_name(missing, wanted[i].name);
        } else if (other == NULL && !sonde_view_same_shape(have, &wanted[i].view)) {
            other = &wanted[i];
        }
    }
    return other;
}

sonde_err sonde__graph_check_stored(const sonde_safetensors *file, const char *path,
                                    const sonde_named_view *wanted, size_t count,
                                    bool exact, sonde_diag *diag)
{
    name_list missing = {.length = 0}, unknown = {.length = 0};
    const sonde_named_view *other = compare(file, wanted, count, &missing);
    char rest[32];

    if (missing.count > 0) {
        return sonde__fail(diag, SONDE_ENOTFOUND, path, NULL, "it has no tensor %s%s",
                           missing.text, rest_of(&missing, rest, sizeof rest));
    }
    if (other != NULL) {
        return fail_shape(path, other, sonde_safetensors_find(file, other->name), diag);
    }
    for (size_t i = 0; exact && i < sonde_safetensors_count(file); i++) {
        const char *name = sonde_safetensors_name(file, i);

        if (!is_wanted(name, wanted, count)) {
            add_name(&unknown, name);
        }
    }
    if (unknown.count == 0) {
        return SONDE_OK;
    }
    return sonde__fail(diag, SONDE_EINVAL, path, NULL,
                       unknown.count == 1 ? "tensor %s%s is no tensor of this model"
                                          : "tensors %s%s are no tensors of this model",
                       unknown.text, rest_of(&unknown, rest, sizeof rest));
}

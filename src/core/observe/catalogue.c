/*
 * catalogue.c - names, ids and metadata.
 *
 * A tensor's id is its name's id in one table of interned names, so the two arrays run in
 * step; module, op and note are interned in a second table because they repeat. A name is
 * interned last: a declaration that fails leaves nothing behind but spare strings.
 */
#include <sonde/error.h>
#include <sonde/catalogue.h>

#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/names.h"
#include "observe/tensor_names.h"
#include "observe/tensor_roles.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <assert.h>
#include <stdio.h>
#include <string.h>

struct sonde_catalogue {
    sonde__names names;   /* of tensors; text i is info[i].name */
    sonde__names strings; /* modules, ops, notes */
    sonde_tensor_info *info;
    size_t capacity;
};

const char *sonde_role_name(sonde_role role)
{
    static const char *const names[SONDE_ROLE_COUNT] = {
        "weight",
        "bias",
        "buffer",
        "gradient",
        "update",
        "optimizer",
        "loss",
        "input",
        "output",
        "activation",
        "activation_gradient",
        "scalar",
        "other",
        "program",
    };
    const size_t i = (size_t)role;

    return i < SONDE_COUNT_OF(names) ? names[i] : "?";
}

const char *sonde_pass_name(sonde_pass pass)
{
    static const char *const names[] = {"none", "forward", "backward", "update"};
    const size_t i = (size_t)pass;

    return i < SONDE_COUNT_OF(names) ? names[i] : "?";
}

sonde_err sonde_catalogue_create(sonde_catalogue **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, out);
    sonde_catalogue *catalogue = sonde__calloc(1, sizeof *catalogue);
    if (catalogue == NULL) {
        return sonde__fail_nomem(diag, "a catalogue");
    }
    sonde__names_init(&catalogue->names);
    sonde__names_init(&catalogue->strings);
    *out = catalogue;
    return SONDE_OK;
}

void sonde_catalogue_destroy(sonde_catalogue *catalogue)
{
    if (catalogue == NULL) {
        return;
    }
    sonde__names_fini(&catalogue->names);
    sonde__names_fini(&catalogue->strings);
    sonde__free(catalogue->info);
    sonde__free(catalogue);
}

uint32_t sonde_catalogue_count(const sonde_catalogue *catalogue)
{
    return catalogue != NULL ? (uint32_t)catalogue->names.count : 0;
}

const sonde_tensor_info *sonde_catalogue_info(const sonde_catalogue *catalogue,
                                              uint32_t id)
{
    return catalogue != NULL && id < catalogue->names.count ? &catalogue->info[id] : NULL;
}

void sonde__catalogue_set_role(sonde_catalogue *catalogue, uint32_t id, sonde_role role)
{
    assert(id < catalogue->names.count);
    catalogue->info[id].role = role;
}

/* --- declaring -------------------------------------------------------------------- */

static sonde_err check_enums(const sonde_tensor_info *info, sonde_diag *diag)
{
    if ((unsigned)info->role >= SONDE_ROLE_COUNT) {
        return sonde__fail(diag, SONDE_EINVAL, info->name, "a sonde_role", "role %d",
                           (int)info->role);
    }
    if ((unsigned)info->pass > SONDE_PASS_UPDATE) {
        return sonde__fail(diag, SONDE_EINVAL, info->name, "a sonde_pass", "pass %d",
                           (int)info->pass);
    }
    if ((unsigned)info->dtype >= SONDE_DTYPE_COUNT) {
        return sonde__fail(diag, SONDE_EDTYPE, info->name, "a sonde_dtype", "dtype %d",
                           (int)info->dtype);
    }
    return SONDE_OK;
}

static sonde_err check_shape(const sonde_tensor_info *info, sonde_diag *diag)
{
    int64_t bytes = 8; /* of the widest dtype; empty dimensions are left out */

    if (info->rank < 0 || info->rank > SONDE_MAX_DIMS) {
        return sonde__fail(diag, SONDE_ESHAPE, info->name, "0 to 8 dimensions", "rank %d",
                           info->rank);
    }
    for (int i = 0; i < info->rank; i++) {
        if (info->shape[i] < 0) {
            return sonde__fail(diag, SONDE_ESHAPE, info->name, "0 or more",
                               "dimension %d is %lld", i, (long long)info->shape[i]);
        }
        if (__builtin_mul_overflow(bytes, SONDE_MAX(info->shape[i], 1), &bytes)) {
            return sonde__fail(diag, SONDE_ESHAPE, info->name, "fewer than 2^60 elements",
                               "a shape that no memory holds");
        }
    }
    return SONDE_OK;
}

/* An alias is the same value, so it has the same elements. */
static sonde_err check_alias(const sonde_catalogue *catalogue,
                             const sonde_tensor_info *info, sonde_diag *diag)
{
    if (info->same_as == SONDE_NO_TENSOR) {
        return SONDE_OK;
    }
    if (info->same_as >= catalogue->names.count) {
        return sonde__fail(diag, SONDE_ERANGE, info->name, "an id declared before",
                           "alias of tensor %lu", (unsigned long)info->same_as);
    }
    const sonde_tensor_info *tensor = &catalogue->info[info->same_as];
    if (tensor->dtype != info->dtype) {
        return sonde__fail(diag, SONDE_EDTYPE, info->name, "the same dtype",
                           "alias of '%s', which is of another dtype", tensor->name);
    }
    if (tensor->rank != info->rank ||
        memcmp(tensor->shape, info->shape, (size_t)info->rank * sizeof info->shape[0]) !=
            0) {
        return sonde__fail(diag, SONDE_ESHAPE, info->name, "the same shape",
                           "alias of '%s', which is of another shape", tensor->name);
    }
    return SONDE_OK;
}

/* NULL only if memory is out. */
static const char *keep_string(sonde_catalogue *catalogue, const char *text)
{
    if (text == NULL || text[0] == '\0') {
        return "";
    }
    const uint32_t id = sonde__names_intern(&catalogue->strings, text);
    return id != SONDE__NO_NAME ? catalogue->strings.text[id] : NULL;
}

static sonde_err add_entry(sonde_catalogue *catalogue, const sonde_tensor_info *info,
                           uint32_t *id, sonde_diag *diag)
{
    sonde_tensor_info entry = *info;
    uint32_t added = SONDE__NO_NAME;

    entry.module = keep_string(catalogue, info->module);
    entry.op = keep_string(catalogue, info->op);
    entry.note = keep_string(catalogue, info->note);
    if (entry.module == NULL || entry.op == NULL || entry.note == NULL ||
        !sonde__reserve(&catalogue->info, &catalogue->capacity,
                        catalogue->names.count + 1, sizeof *catalogue->info)) {
        return sonde__fail_nomem(diag, "a catalogue entry");
    }
    added = sonde__names_intern(&catalogue->names, info->name);
    if (added == SONDE__NO_NAME) {
        return sonde__fail_nomem(diag, "a catalogue entry");
    }
    for (int i = info->rank; i < SONDE_MAX_DIMS; i++) {
        entry.shape[i] = 0;
    }
    entry.name = catalogue->names.text[added];
    entry.same_as =
        info->same_as == SONDE_NO_TENSOR ? added : catalogue->info[info->same_as].same_as;
    catalogue->info[added] = entry;
    *id = added;
    return SONDE_OK;
}

sonde_err sonde_catalogue_declare(sonde_catalogue *catalogue,
                                  const sonde_tensor_info *info, uint32_t *id,
                                  sonde_diag *diag)
{
    SONDE__NEEDS(diag, catalogue, info, id);
    if (info->name == NULL || info->name[0] == '\0') {
        return sonde__fail(diag, SONDE_EINVAL, "catalogue", "a name",
                           "a tensor without a name");
    }
    if (sonde__names_find(&catalogue->names, info->name) != SONDE__NO_NAME) {
        return sonde__fail(diag, SONDE_EEXIST, info->name, "an unused name",
                           "another tensor has this name");
    }
    SONDE__TRY(check_enums(info, diag));
    SONDE__TRY(check_shape(info, diag));
    SONDE__TRY(check_alias(catalogue, info, diag));
    return add_entry(catalogue, info, id, diag);
}

/* --- finding ---------------------------------------------------------------------- */

static bool ends_in(const char *text, size_t length, const char *end)
{
    const size_t n = strlen(end);

    return length >= n && memcmp(text + length - n, end, n) == 0;
}

/* The name itself, or with "_0" behind "_output" or "_input". spelt has room for that and
 * is left as it was. */
static uint32_t find_spelt(const sonde_catalogue *catalogue, char *spelt)
{
    const size_t length = strlen(spelt);
    uint32_t id = sonde__names_find(&catalogue->names, spelt);

    if (id == SONDE__NO_NAME &&
        (ends_in(spelt, length, "_output") || ends_in(spelt, length, "_input"))) {
        memcpy(spelt + length, "_0", 3);
        id = sonde__names_find(&catalogue->names, spelt);
        spelt[length] = '\0';
    }
    return id;
}

static const char *name_at(const void *list, size_t i)
{
    const sonde_catalogue *catalogue = list;

    return catalogue->names.text[i];
}

static sonde_err fail_unknown(const sonde_catalogue *catalogue, const char *name,
                              const char *spelt, sonde_diag *diag)
{
    static const char gradient[] = "Gradient___";
    const size_t prefix = sizeof gradient - 1;
    char near[SONDE__NEAREST_TEXT], expected[SONDE__NEAREST_TEXT + 24];

    if (strncmp(spelt, gradient, prefix) == 0 &&
        sonde__names_find(&catalogue->names, spelt + prefix) != SONDE__NO_NAME) {
        return sonde__fail(diag, SONDE_ENOTFOUND, NULL, "a tensor that leads to the loss",
                           "unknown tensor '%s': '%s' exists but has no gradient", name,
                           spelt + prefix);
    }
    if (sonde__observe_nearest_names(spelt, catalogue, name_at, catalogue->names.count,
                                     near, sizeof near) > 0) {
        (void)snprintf(expected, sizeof expected, "a name such as %s", near);
    } else {
        (void)snprintf(expected, sizeof expected, "one of the %zu names declared",
                       catalogue->names.count);
    }
    return sonde__fail(diag, SONDE_ENOTFOUND, NULL, expected, "unknown tensor '%s'",
                       name);
}

sonde_err sonde_catalogue_find(const sonde_catalogue *catalogue, const char *name,
                               uint32_t *id, sonde_diag *diag)
{
    size_t length = 0, model = 0;
    sonde_err err = SONDE_OK;
    uint32_t found = SONDE__NO_NAME;

    SONDE__NEEDS(diag, catalogue, name, id);
    found = sonde__names_find(&catalogue->names, name);
    if (found != SONDE__NO_NAME) {
        *id = found;
        return SONDE_OK;
    }
    length = strlen(name);
    model = sonde__observe_model_prefix(name);
    char *spelt = sonde__malloc(length + sizeof "_0");
    if (spelt == NULL) {
        return sonde__fail_nomem(diag, "a name");
    }
    memcpy(spelt, name, length + 1);
    found = find_spelt(catalogue, spelt);
    if (found == SONDE__NO_NAME && model != SIZE_MAX &&
        !sonde__observe_has_module(catalogue, "model")) {
        memmove(spelt + model, spelt + model + SONDE__MODEL_LENGTH,
                length - model - SONDE__MODEL_LENGTH + 1);
        found = find_spelt(catalogue, spelt);
    }
    if (found == SONDE__NO_NAME) {
        err = diag != NULL ? fail_unknown(catalogue, name, spelt, diag) : SONDE_ENOTFOUND;
    } else {
        *id = found;
    }
    sonde__free(spelt);
    return err;
}

bool sonde__observe_has_module(const sonde_catalogue *catalogue, const char *path)
{
    const uint32_t count = sonde_catalogue_count(catalogue);

    for (uint32_t id = 0; id < count; id++) {
        if (sonde__observe_in_module(sonde_catalogue_info(catalogue, id), path)) {
            return true;
        }
    }
    return false;
}

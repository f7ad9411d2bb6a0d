/*
 * collections.c - the collections of a hook and what they include.
 */
#include "observe/collections.h"
#include "base/fail.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

enum { LONGEST_NAME = 256 };

const char *const sonde__observe_builtin_collections[] = {"weights",
                                                          "biases",
                                                          "gradients",
                                                          "losses",
                                                          "updates",
                                                          "optimizer_state",
                                                          "inputs",
                                                          "outputs",
                                                          "activations",
                                                          "buffers",
                                                          "scalars",
                                                          "all",
                                                          "activation_gradients",
                                                          NULL};

static bool is_builtin(const char *name)
{
    for (size_t i = 0; sonde__observe_builtin_collections[i] != NULL; i++) {
        if (strcmp(sonde__observe_builtin_collections[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* --- finding ---------------------------------------------------------------------- */

static sonde__observe_collection *find(sonde__observe_setup *setup, const char *name)
{
    for (size_t i = 0; i < setup->collection_count; i++) {
        if (strcmp(setup->collections[i].name, name) == 0) {
            return &setup->collections[i];
        }
    }
    return NULL;
}

sonde__observe_collection *sonde__observe_find_collection(sonde__observe_setup *setup,
                                                          const char *name)
{
    return find(setup, name);
}

sonde_err sonde__observe_check_open(const sonde__observe_setup *setup, const char *what,
                                    sonde_diag *diag)
{
    return setup->settled
               ? sonde__fail(diag, SONDE_ESTATE, what, "it before the first step",
                             "the hook is at work and its configuration frozen")
               : SONDE_OK;
}

sonde_err sonde__observe_find_open(sonde__observe_setup *setup, const char *name,
                                   sonde__observe_collection **out, sonde_diag *diag)
{
    const char *names[SONDE__MOST_COLLECTIONS], *nearest = NULL;
    sonde__observe_collection *found = NULL;
    const sonde_err err = sonde__observe_check_open(setup, name, diag);

    if (err != SONDE_OK) {
        return err;
    }
    found = find(setup, name);
    if (found != NULL) {
        found->asked = true;
        *out = found;
        return SONDE_OK;
    }
    for (size_t i = 0; i < setup->collection_count; i++) {
        names[i] = setup->collections[i].name;
    }
    nearest = sonde_diag_nearest(name, names, setup->collection_count);
    (void)sonde__fail(diag, SONDE_ENOTFOUND, name,
                      nearest != NULL ? nearest : "a collection that was added",
                      "unknown collection '%s'", name);
    return SONDE_ENOTFOUND;
}

/* --- adding ------------------------------------------------------------------------ */

void sonde__observe_forget(sonde__observe_setup *setup)
{
    for (size_t i = 0; i < setup->collection_count; i++) {
        sonde__observe_collection *of = &setup->collections[i];

        for (size_t k = 0; k < of->choices.count; k++) {
            sonde_selector_destroy(of->choices.items[k].what);
            sonde__free(of->choices.items[k].module);
        }
        for (size_t mode = 0; mode < SONDE_MODE_COUNT; mode++) {
            sonde_selector_destroy(of->when_nan[mode].what);
        }
        sonde__free(of->choices.items);
        sonde__observe_forget_layers(of->layers);
        sonde__free(of->name);
    }
    setup->collection_count = 0;
    sonde__observe_forget_layers(setup->layers);
}

static sonde_err check_name(const char *name, sonde_diag *diag)
{
    const size_t length = strlen(name);

    if (length == 0 || length > LONGEST_NAME) {
        return sonde__fail(diag, SONDE_EINVAL, "collection", "a name of 1 to 256 bytes",
                           "a name of %zu bytes", length);
    }
    return SONDE_OK;
}

/* Takes the selector, whatever it returns. */
static sonde_err add_choice(sonde__observe_collection *to, sonde_selector *what,
                            const char *module, bool exclude, sonde_diag *diag)
{
    sonde__observe_choice choice = {.what = what, .exclude = exclude};

    choice.module = module != NULL ? sonde__strdup(module) : NULL;
    if ((module != NULL && choice.module == NULL) ||
        !sonde__reserve(&to->choices.items, &to->choices.capacity, to->choices.count + 1,
                        sizeof choice)) {
        sonde__free(choice.module);
        sonde_selector_destroy(what);
        return sonde__fail_nomem(diag, "a collection");
    }
    to->choices.items[to->choices.count++] = choice;
    return SONDE_OK;
}

sonde_err sonde__observe_add(sonde__observe_setup *setup, const char *name, bool asked,
                             sonde_diag *diag)
{
    sonde__observe_collection *added = find(setup, name);
    sonde_selector *role = NULL;
    char text[LONGEST_NAME + 2];
    sonde_err err = check_name(name, diag);

    if (err != SONDE_OK) {
        return err;
    }
    if (added != NULL) {
        added->saved = true;
        added->asked = added->asked || asked;
        return SONDE_OK;
    }
    if (setup->collection_count == SONDE__MOST_COLLECTIONS) {
        return sonde__fail(diag, SONDE_ERANGE, name, "at most 64 collections",
                           "one collection too many");
    }
    if (is_builtin(name)) {
        (void)snprintf(text, sizeof text, "@%s", name);
        err = sonde_selector_create(text, &role, diag);
        if (err != SONDE_OK) {
            return err;
        }
    }
    added = &setup->collections[setup->collection_count];
    *added = (sonde__observe_collection){.saved = true, .asked = asked};
    sonde__observe_unset_layers(added->layers);
    added->name = sonde__strdup(name);
    if (added->name == NULL) {
        sonde_selector_destroy(role);
        return sonde__fail_nomem(diag, "a collection");
    }
    setup->collection_count++;
    return role != NULL ? add_choice(added, role, NULL, false, diag) : SONDE_OK;
}

sonde_err sonde__observe_add_asked(sonde__observe_setup *setup, const char *name,
                                   sonde_diag *diag)
{
    const sonde_err err = sonde__observe_check_open(setup, name, diag);

    return err == SONDE_OK ? sonde__observe_add(setup, name, true, diag) : err;
}

sonde_err sonde__observe_remove_collection(sonde__observe_setup *setup, const char *name,
                                           sonde_diag *diag)
{
    sonde__observe_collection *of = NULL;
    const sonde_err err = sonde__observe_find_open(setup, name, &of, diag);

    if (err == SONDE_OK) {
        of->saved = false;
    }
    return err;
}

static sonde_err choose(sonde__observe_setup *setup, const char *collection,
                        const char *selector, bool exclude, sonde_diag *diag)
{
    sonde__observe_collection *of = NULL;
    sonde_selector *what = NULL;
    sonde_err err = sonde__observe_find_open(setup, collection, &of, diag);

    if (err == SONDE_OK) {
        err = sonde_selector_create(selector, &what, diag);
    }
    return err == SONDE_OK ? add_choice(of, what, NULL, exclude, diag) : err;
}

sonde_err sonde__observe_include(sonde__observe_setup *setup, const char *collection,
                                 const char *selector, sonde_diag *diag)
{
    return choose(setup, collection, selector, false, diag);
}

sonde_err sonde__observe_exclude(sonde__observe_setup *setup, const char *collection,
                                 const char *selector, sonde_diag *diag)
{
    return choose(setup, collection, selector, true, diag);
}

sonde_err sonde__observe_include_regex(sonde__observe_setup *setup,
                                       const char *collection, const char *pattern,
                                       sonde_diag *diag)
{
    sonde__observe_collection *of = NULL;
    sonde_selector *what = NULL;
    sonde_err err = sonde__observe_find_open(setup, collection, &of, diag);

    if (err == SONDE_OK) {
        err = sonde_selector_create_regex(pattern, &what, diag);
    }
    return err == SONDE_OK ? add_choice(of, what, NULL, false, diag) : err;
}

/* A regular expression of a module's inputs or outputs, by name; a leading "model." may be
 * missing from the name, as everywhere. */
static char *module_pattern(const char *module, bool inputs, bool outputs)
{
    static const char prefix[] = "model.";
    const size_t skipped = strncmp(module, prefix, 6) == 0 ? 6 : 0;
    const size_t length = strlen(module + skipped);
    char *pattern = sonde__malloc(2 * length + 64);
    char *to = pattern;

    if (pattern == NULL) {
        return NULL;
    }
    to += sprintf(to, "^%s", skipped != 0 ? "(?:model\\.)?" : "");
    for (const char *from = module + skipped; *from != '\0'; from++) {
        const bool plain = (*from >= '0' && *from <= '9') ||
                           (*from >= 'a' && *from <= 'z') ||
                           (*from >= 'A' && *from <= 'Z') || (unsigned char)*from >= 0x80;

        if (!plain) {
            *to++ = '\\';
        }
        *to++ = *from;
    }
    (void)sprintf(to, "_(?:%s%s%s)(?:_[0-9]+)?$", inputs ? "input" : "",
                  inputs && outputs ? "|" : "", outputs ? "output" : "");
    return pattern;
}

sonde_err sonde__observe_add_module(sonde__observe_setup *setup, const char *collection,
                                    const char *module, bool inputs, bool outputs,
                                    sonde_diag *diag)
{
    sonde__observe_collection *of = NULL;
    sonde_selector *what = NULL;
    char *pattern = NULL;
    sonde_err err = sonde__observe_find_open(setup, collection, &of, diag);

    if (err != SONDE_OK) {
        return err;
    }
    if (module[0] == '\0' || (!inputs && !outputs)) {
        return sonde__fail(diag, SONDE_EINVAL, collection,
                           "a module and inputs, outputs or both",
                           "module '%s' of which %s", module,
                           inputs || outputs ? "there is no name" : "nothing is asked");
    }
    pattern = module_pattern(module, inputs, outputs);
    if (pattern == NULL) {
        return sonde__fail_nomem(diag, "a collection");
    }
    err = sonde_selector_create_regex(pattern, &what, diag);
    sonde__free(pattern);
    return err == SONDE_OK ? add_choice(of, what, module, false, diag) : err;
}

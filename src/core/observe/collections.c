/*
 * collections.c - collections: their selectors, and the tensors that they select.
 */
#include <sonde/log.h>

#include "base/fail.h"
#include "base/memory.h"
#include "observe/collections.h"
#include "observe/tensor_names.h"

#include <stdio.h>
#include <string.h>

sonde_save_config sonde_save_config_unset(void)
{
    return (sonde_save_config){
        .every = SONDE_UNSET, .start_step = SONDE_UNSET, .end_step = SONDE_UNSET};
}

void sonde__observe_unset_layers(sonde__observe_save_layers layers)
{
    for (size_t i = 0; i < 1 + SONDE_MODE_COUNT; i++) {
        layers[i].config = sonde_save_config_unset();
    }
}

void sonde__observe_forget_layers(sonde__observe_save_layers layers)
{
    for (size_t i = 0; i < 1 + SONDE_MODE_COUNT; i++) {
        sonde__free(layers[i].steps);
        sonde__free(layers[i].when_nan);
    }
}

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
    SONDE__TRY(sonde__observe_check_open(setup, name, diag));
    sonde__observe_collection *collection = find(setup, name);
    if (collection != NULL) {
        collection->asked = true;
        *out = collection;
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
        sonde__observe_collection *collection = &setup->collections[i];

        for (size_t k = 0; k < collection->choices.count; k++) {
            sonde_selector_destroy(collection->choices.items[k].what);
            sonde__free(collection->choices.items[k].module);
        }
        for (size_t mode = 0; mode < SONDE_MODE_COUNT; mode++) {
            sonde_selector_destroy(collection->when_nan[mode].what);
        }
        sonde__free(collection->choices.items);
        sonde__observe_forget_layers(collection->layers);
        sonde__free(collection->name);
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

/* Takes the selector, on failure too. */
static sonde_err add_choice(sonde__observe_collection *collection, sonde_selector *what,
                            const char *module, bool exclude, sonde_diag *diag)
{
    sonde__observe_choice choice = {.what = what, .exclude = exclude};

    choice.module = module != NULL ? sonde__strdup(module) : NULL;
    if ((module != NULL && choice.module == NULL) ||
        !sonde__reserve(&collection->choices.items, &collection->choices.capacity,
                        collection->choices.count + 1, sizeof choice)) {
        sonde__free(choice.module);
        sonde_selector_destroy(what);
        return sonde__fail_nomem(diag, "a collection");
    }
    collection->choices.items[collection->choices.count++] = choice;
    return SONDE_OK;
}

sonde_err sonde__observe_add(sonde__observe_setup *setup, const char *name, bool asked,
                             sonde_diag *diag)
{
    sonde__observe_collection *added = find(setup, name);
    sonde_selector *role = NULL;
    char text[LONGEST_NAME + 2];
    SONDE__TRY(check_name(name, diag));
    setup->configured = setup->configured || asked;
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
        SONDE__TRY(sonde_selector_create(text, &role, diag));
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

    return err != SONDE_OK ? err : sonde__observe_add(setup, name, true, diag);
}

sonde_err sonde__observe_remove_collection(sonde__observe_setup *setup, const char *name,
                                           sonde_diag *diag)
{
    sonde__observe_collection *collection = NULL;
    SONDE__TRY(sonde__observe_find_open(setup, name, &collection, diag));
    collection->saved = false;
    setup->configured = true;
    return SONDE_OK;
}

static sonde_err choose(sonde__observe_setup *setup, const char *collection,
                        const char *selector, bool exclude, sonde_diag *diag)
{
    sonde__observe_collection *found = NULL;
    sonde_selector *what = NULL;
    SONDE__TRY(sonde__observe_find_open(setup, collection, &found, diag));
    SONDE__TRY(sonde_selector_create(selector, &what, diag));
    return add_choice(found, what, NULL, exclude, diag);
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
    sonde__observe_collection *found = NULL;
    sonde_selector *what = NULL;
    SONDE__TRY(sonde__observe_find_open(setup, collection, &found, diag));
    SONDE__TRY(sonde__selector_create_regex(pattern, &what, diag));
    return add_choice(found, what, NULL, false, diag);
}

/* A regular expression of a module's inputs or outputs, by name; a leading "model." may
 * be missing from the name, as everywhere. */
static char *module_pattern(const char *module, bool inputs, bool outputs)
{
    static const char prefix[] = "model.";
    const size_t skipped = strncmp(module, prefix, 6) == 0 ? 6 : 0;
    const size_t length = strlen(module + skipped);
    char *pattern = sonde__malloc(2 * length + 64);
    char *end = pattern;

    if (pattern == NULL) {
        return NULL;
    }
    end += sprintf(end, "^%s", skipped != 0 ? "(?:model\\.)?" : "");
    for (const char *c = module + skipped; *c != '\0'; c++) {
        const bool plain = (*c >= '0' && *c <= '9') || (*c >= 'a' && *c <= 'z') ||
                           (*c >= 'A' && *c <= 'Z') || (unsigned char)*c >= 0x80;

        if (!plain) {
            *end++ = '\\';
        }
        *end++ = *c;
    }
    (void)sprintf(end, "_(?:%s%s%s)(?:_[0-9]+)?$", inputs ? "input" : "",
                  inputs && outputs ? "|" : "", outputs ? "output" : "");
    return pattern;
}

sonde_err sonde__observe_add_module(sonde__observe_setup *setup, const char *collection,
                                    const char *module, bool inputs, bool outputs,
                                    sonde_diag *diag)
{
    sonde__observe_collection *found = NULL;
    sonde_selector *what = NULL;
    SONDE__TRY(sonde__observe_find_open(setup, collection, &found, diag));
    if (module[0] == '\0' || (!inputs && !outputs)) {
        return sonde__fail(diag, SONDE_EINVAL, collection,
                           "a module and inputs, outputs or both",
                           "module '%s' of which %s", module,
                           inputs || outputs ? "there is no name" : "nothing is asked");
    }
    char *pattern = module_pattern(module, inputs, outputs);
    if (pattern == NULL) {
        return sonde__fail_nomem(diag, "a collection");
    }
    sonde_err err = sonde__selector_create_regex(pattern, &what, diag);
    sonde__free(pattern);
    return err != SONDE_OK ? err : add_choice(found, what, module, false, diag);
}

/* One pass over the tensors of a catalogue from an id on. */
typedef struct pass {
    const sonde_catalogue *catalogue;
    uint32_t first_id, count;
    bool first;              /* unknown names are errors */
    uint8_t *marks, *chosen; /* by id: of a selector; of a collection */
    sonde__observe_member *tensors;
    sonde_diag *diag;
} pass;

/* Marks the tensors that a choice selects; sets choice->matched if there are any. */
static sonde_err mark(pass *over, sonde__observe_choice *choice)
{
    memset(over->marks, 0, sonde_catalogue_count(over->catalogue));
    SONDE__TRY(sonde__selector_mark(choice->what, over->catalogue, over->first_id,
                                    !over->first, over->marks, over->diag));
    for (uint32_t id = over->first_id; id < over->count; id++) {
        choice->matched = choice->matched || over->marks[id] != 0;
    }
    return SONDE_OK;
}

static sonde_err fail_module(const pass *over,
                             const sonde__observe_collection *collection,
                             const sonde__observe_choice *choice)
{
    sonde_selector *what = NULL;
    sonde_err err = SONDE_OK;
    char text[512];

    if (choice->module == NULL ||
        sonde__observe_has_module(over->catalogue, choice->module)) {
        return SONDE_OK;
    }
    (void)snprintf(text, sizeof text, "module:%.480s", choice->module);
    SONDE__TRY_GO(sonde_selector_create(text, &what, over->diag));
    /* Fails, and names the nearest modules. */
    err = sonde__selector_mark(what, over->catalogue, 0, false, over->marks, over->diag);
    sonde_selector_destroy(what);
    if (err == SONDE_OK) {
        return SONDE_OK;
    }
error:
    if (over->diag != NULL) {
        (void)snprintf(over->diag->where, sizeof over->diag->where, "collection '%.200s'",
                       collection->name);
    }
    return err;
}

static const char *choice_key(const sonde__observe_choice *choice)
{
    return choice->module != NULL ? "module" : choice->exclude ? "exclude" : "include";
}

/* Warns once, and only for a collection that the user asked for. */
static void warn(const sonde__observe_collection *collection,
                 sonde__observe_choice *choice, const char *key)
{
    if (!collection->asked || choice->matched || choice->warned) {
        return;
    }
    choice->warned = true;
    sonde_log(SONDE_LOG_WARNING, "hook", "collection '%s': %s '%s' matches no tensor",
              collection->name, key,
              choice->module != NULL ? choice->module
                                     : sonde__selector_text(choice->what));
}

void sonde__observe_warn_unmatched(sonde__observe_setup *setup)
{
    for (size_t i = 0; i < setup->collection_count; i++) {
        sonde__observe_collection *collection = &setup->collections[i];

        for (size_t k = 0; collection->saved && k < collection->choices.count; k++) {
            warn(collection, &collection->choices.items[k],
                 choice_key(&collection->choices.items[k]));
        }
        for (int mode = 0; collection->saved && mode < SONDE_MODE_COUNT; mode++) {
            if (collection->when_nan[mode].what != NULL &&
                collection->when_nan[mode].matched) {
                break; /* the same selector, mostly; one mode's tensors do */
            }
            if (collection->when_nan[mode].what != NULL) {
                warn(collection, &collection->when_nan[mode], "when_nan");
                break;
            }
        }
    }
}

/* Reports, in the first pass, a selector that matches nothing. */
static sonde_err judge(const pass *over, const sonde__observe_collection *collection,
                       sonde__observe_choice *choice, const char *key)
{
    if (!over->first || choice->matched) {
        return SONDE_OK;
    }
    SONDE__TRY(fail_module(over, collection, choice));
    warn(collection, choice, key);
    return SONDE_OK;
}

static sonde_err apply_choices(pass *over, sonde__observe_collection *collection,
                               bool excludes)
{
    for (size_t i = 0; i < collection->choices.count; i++) {
        sonde__observe_choice *choice = &collection->choices.items[i];

        if (choice->exclude != excludes) {
            continue;
        }
        SONDE__TRY(mark(over, choice));
        for (uint32_t id = over->first_id; id < over->count; id++) {
            if (over->marks[id] != 0) {
                over->chosen[id] = !excludes;
            }
        }
        SONDE__TRY(judge(over, collection, choice, choice_key(choice)));
    }
    return SONDE_OK;
}

/* Bit i of the masks: the tensors of collection i, and those its when_nan looks at. */
static sonde_err mark_collection(pass *over, sonde__observe_collection *collection,
                                 size_t i)
{
    const uint64_t bit = UINT64_C(1) << i;

    memset(over->chosen, 0, over->count);
    SONDE__TRY(apply_choices(over, collection, false));
    SONDE__TRY(apply_choices(over, collection, true));
    for (uint32_t id = over->first_id; id < over->count; id++) {
        over->tensors[id].member |= over->chosen[id] != 0 ? bit : 0U;
    }
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        sonde__observe_choice *choice = &collection->when_nan[mode];

        if (choice->what == NULL) {
            continue;
        }
        SONDE__TRY(mark(over, choice));
        for (uint32_t id = over->first_id; id < over->count; id++) {
            over->tensors[id].watch[mode] |= over->marks[id] != 0 ? bit : 0U;
        }
        SONDE__TRY(judge(over, collection, choice, "when_nan"));
    }
    return SONDE_OK;
}

/* --- what is recorded in any case ------------------------------------------------- */

/* Labels, tokens, predictions, weights and small gradients, which rules compare element
 * by element. */
static bool is_small(const sonde_tensor_info *info)
{
    static const int64_t most_bytes[SONDE_ROLE_COUNT] = {
        [SONDE_ROLE_WEIGHT] = 256 * 1024, [SONDE_ROLE_BIAS] = 64 * 1024,
        [SONDE_ROLE_BUFFER] = 64 * 1024,  [SONDE_ROLE_GRADIENT] = 4 * 1024,
        [SONDE_ROLE_INPUT] = 64 * 1024,   [SONDE_ROLE_OUTPUT] = 64 * 1024};
    const int64_t most = most_bytes[info->role];
    int64_t bytes = (int64_t)sonde_dtype_size(info->dtype);

    for (int i = 0; i < info->rank && bytes <= most; i++) {
        bytes = info->shape[i] <= most ? bytes * info->shape[i] : most + 1;
    }
    return bytes <= most;
}

unsigned sonde__observe_vital(const sonde_tensor_info *info)
{
    const unsigned looks =
        SONDE__VITAL_LOOKS | (is_small(info) ? (unsigned)SONDE__VITAL_RAW : 0U);

    switch (info->role) {
    case SONDE_ROLE_LOSS:
        return SONDE__VITAL_ALWAYS;
    case SONDE_ROLE_WEIGHT:
    case SONDE_ROLE_BIAS:
    case SONDE_ROLE_GRADIENT:
    case SONDE_ROLE_UPDATE:
        return SONDE__VITAL_EVERY | looks;
    case SONDE_ROLE_BUFFER:
    case SONDE_ROLE_OPTIMIZER:
    case SONDE_ROLE_INPUT:
    case SONDE_ROLE_OUTPUT:
    case SONDE_ROLE_ACTIVATION:
    case SONDE_ROLE_ACTIVATION_GRADIENT:
        return looks;
    case SONDE_ROLE_SCALAR:
    case SONDE_ROLE_OTHER:
    case SONDE_ROLE_PROGRAM:
        break;
    }
    return 0;
}

/* An alias is recorded under the name of its tensor, and listed, since rules may know the
 * tensor by it: the input of an activation is the output of another layer. */
static uint8_t tensor_vital(const sonde__observe_setup *setup,
                            const sonde_tensor_info *info, uint32_t id)
{
    unsigned vital = sonde__observe_vital(info);

    if (info->same_as != id) {
        return setup->looks && (vital & SONDE__VITAL_LOOKS) ? SONDE__VITAL_NAMED : 0;
    }
    if (setup->others && info->same_as == id && info->role == SONDE_ROLE_OTHER) {
        vital = SONDE__VITAL_EVERY | SONDE__VITAL_LOOKS;
    }
    if (!setup->looks) {
        vital &= ~((unsigned)SONDE__VITAL_LOOKS | (unsigned)SONDE__VITAL_RAW);
    } else if ((vital & SONDE__VITAL_LOOKS) != 0) {
        vital &= ~(unsigned)SONDE__VITAL_EVERY;
    }
    return (uint8_t)(setup->configured ? vital & ~(unsigned)SONDE__VITAL_RAW : vital);
}

sonde_err sonde__observe_members(sonde__observe_setup *setup,
                                 const sonde_catalogue *catalogue, uint32_t first_id,
                                 uint32_t count, bool first,
                                 sonde__observe_member *tensors, sonde_diag *diag)
{
    pass over = {.catalogue = catalogue,
                 .first_id = first_id,
                 .count = count,
                 .first = first,
                 .marks = sonde__calloc(sonde_catalogue_count(catalogue), 1),
                 .chosen = sonde__calloc(count, 1),
                 .tensors = tensors,
                 .diag = diag};
    sonde_err err = SONDE_OK;

    if (over.marks == NULL || over.chosen == NULL) {
        err = sonde__fail_nomem(diag, "a selection");
        goto error;
    }
    for (size_t i = 0; i < setup->collection_count; i++) {
        if (setup->collections[i].saved) {
            SONDE__TRY_GO(mark_collection(&over, &setup->collections[i], i));
        }
    }
    for (uint32_t id = first_id; id < count && !setup->no_vitals; id++) {
        tensors[id].vital = tensor_vital(setup, sonde_catalogue_info(catalogue, id), id);
    }
error:
    sonde__free(over.marks);
    sonde__free(over.chosen);
    return err;
}

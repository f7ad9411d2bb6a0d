/*
 * job_layers.c - the layers of a job: each is checked as it is built, so an error has the
 * layer's line. Unknown kinds are found before that, all at once.
 */
#include "nn/job/job_layers.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

enum { MAX_LAYERS = 4096 };

/* The name of an entry's kind; NULL: the entry is no layer. */
static const char *asked_kind(const sonde__yaml *entry)
{
    return entry->kind == SONDE__YAML_SCALAR                     ? entry->text
           : entry->kind == SONDE__YAML_MAP && entry->count == 1 ? entry->children[0]->key
                                                                 : NULL;
}

/* Appends ", item" to a list, or ", ..." if there is no room. */
static void append_item(char *list, size_t size, const char *item)
{
    const size_t used = strlen(list);
    const char *comma = used > 0 ? ", " : "";

    if (used + strlen(item) + 8 < size) {
        (void)snprintf(list + used, size - used, "%s%s", comma, item);
    } else if (used + 6 < size && (used < 3 || strcmp(list + used - 3, "...") != 0)) {
        (void)snprintf(list + used, size - used, "%s...", comma);
    }
}

/* Unknown layers, and the names nearest to them. */
typedef struct unknown_kinds {
    const char *names[SONDE__JOB_MAX_KINDS];
    size_t kinds;
    const sonde__yaml *first;
    char found[300], near[256];
    bool all_near;
} unknown_kinds;

/* The list of an entry that is a group of layers; NULL: it is none. */
static const sonde__yaml *grouped_layers(const sonde__yaml *entry)
{
    const sonde__yaml *body = entry->kind == SONDE__YAML_MAP ? entry->children[0] : NULL;
    const sonde__yaml *list =
        body != NULL && strcmp(body->key, "layers") == 0 && body->kind == SONDE__YAML_MAP
            ? sonde__yaml_get(body, "layers")
            : NULL;

    return list != NULL && list->kind == SONDE__YAML_LIST ? list : NULL;
}

static void add_unknown(unknown_kinds *u, const sonde__yaml *entry, const char *asked)
{
    const char *nearest = sonde_diag_nearest(asked, u->names, u->kinds);
    char item[120];

    if (u->first == NULL) {
        (void)snprintf(item, sizeof item, "unknown layer '%.80s'", asked);
    } else {
        (void)snprintf(item, sizeof item, "line %d '%.80s'", entry->line, asked);
    }
    append_item(u->found, sizeof u->found, item);
    u->first = u->first != NULL ? u->first : entry;
    u->all_near = u->all_near && nearest != NULL;
    append_item(u->near, sizeof u->near, nearest != NULL ? nearest : "");
}

static sonde_err find_unknown(const sonde__job_builder *b, const sonde__yaml *section,
                              unknown_kinds *u)
{
    for (size_t i = 0; i < section->count; i++) {
        const sonde__yaml *entry = section->children[i];
        const char *asked = asked_kind(entry);
        const sonde__yaml *inner = asked != NULL ? grouped_layers(entry) : NULL;
        sonde__job_layer_kind kind;

        if (asked == NULL) {
            return sonde__yaml_fail(&b->reader, entry, SONDE_EINVAL,
                                    "one layer: {its options}", "not a layer");
        }
        if (!sonde__job_find_kind(asked, &kind)) {
            add_unknown(u, entry, asked);
        }
        SONDE__TRY(inner != NULL ? find_unknown(b, inner, u) : SONDE_OK);
    }
    return SONDE_OK;
}

/* Finds all unknown layers of the list, and of groups in it, at once. Expects the names
 * nearest to them, or, if one is near none, all that there are. */
static sonde_err check_kinds(const sonde__job_builder *b, const sonde__yaml *section)
{
    unknown_kinds u = {.all_near = true};
    sonde_err err = SONDE_OK;

    u.kinds = sonde__job_list_kinds(u.names);
    err = find_unknown(b, section, &u);
    if (err != SONDE_OK || u.first == NULL) {
        return err;
    }
    if (!u.all_near) {
        u.near[0] = '\0';
        for (size_t i = 0; i < u.kinds; i++) {
            append_item(u.near, sizeof u.near, u.names[i]);
        }
    }
    return sonde__yaml_fail(&b->reader, u.first, SONDE_EINVAL, u.near, "%s", u.found);
}

/* Whether a layer's key `dtype` says something else: what `to` casts to. */
static bool has_own_dtype(const sonde__job_layer_kind *kind)
{
    for (size_t i = 0; i < SONDE_COUNT_OF(kind->keys) && kind->keys[i] != NULL; i++) {
        if (strcmp(kind->keys[i], "dtype") == 0) {
            return true;
        }
    }
    return false;
}

/* Whether a layer has no key `dtype` for its products. */
static bool has_no_dtype(const sonde__job_layer_kind *kind)
{
    return has_own_dtype(kind) || kind->build == NULL;
}

static sonde_err check_layer_keys(const sonde__job_builder *b, const sonde__yaml *body,
                                  const sonde__job_layer_kind *kind)
{
    const char *keys[SONDE_COUNT_OF(kind->keys) + 3] = {"name", "from", "dtype"};
    size_t count = has_no_dtype(kind) ? 2 : 3;

    for (size_t i = 0; i < SONDE_COUNT_OF(kind->keys) && kind->keys[i] != NULL; i++) {
        keys[count++] = kind->keys[i];
    }
    return sonde__yaml_check_keys(&b->reader, body, keys, count);
}

static sonde_err find_value(const sonde__job_builder *b, const sonde__yaml *node,
                            sonde_nn_value *value)
{
    for (size_t i = b->count; node->kind == SONDE__YAML_SCALAR && i-- > 0;) {
        if (b->values[i].name != NULL && strcmp(b->values[i].name, node->text) == 0) {
            *value = b->values[i].value;
            return SONDE_OK;
        }
    }
    return sonde__yaml_fail(&b->reader, node, SONDE_ENOTFOUND,
                            "the name of a layer before it, or input", "from '%s'",
                            node->kind == SONDE__YAML_SCALAR ? node->text : "a list");
}

/* The values of `from`, and how many they are in b->given. */
static sonde_err read_from(sonde__job_builder *b, const sonde__yaml *body,
                           const sonde__job_layer_kind *kind, sonde_nn_value *in)
{
    static const char *const words[] = {"no", "one", "two", "three", "four"};
    const sonde__yaml *source = sonde__yaml_get(body, "from");
    const size_t least = (size_t)kind->inputs,
                 most = least + (kind->row != NULL ? (size_t)kind->row->optional : 0);
    char needed[32];

    in[0] = b->current;
    b->given = 1;
    if (source == NULL && least == 1) {
        return SONDE_OK;
    }
    if (source != NULL && least == 1 && (source->kind != SONDE__YAML_LIST || most == 1)) {
        return find_value(b, source, &in[0]);
    }
    if (source == NULL || source->kind != SONDE__YAML_LIST || source->count < least ||
        source->count > most) {
        (void)snprintf(needed, sizeof needed, most > least ? "%s to %s" : "%s",
                       words[least], words[most]);
        return sonde__yaml_fail(&b->reader, body, SONDE_EINVAL,
                                least == 1 ? "from: NAME" : "from: [a, b]",
                                "the layer needs %s inputs", needed);
    }
    b->given = source->count;
    for (size_t i = 0; i < source->count; i++) {
        SONDE__TRY(find_value(b, source->children[i], &in[i]));
    }
    return SONDE_OK;
}

sonde_err sonde__job_remember(sonde__job_builder *b, const char *name,
                              sonde_nn_value value)
{
    if (!sonde__reserve(&b->values, &b->capacity, b->count + 1, sizeof *b->values)) {
        return sonde__fail_nomem(b->reader.diag, "a job");
    }
    b->values[b->count++] = (sonde__job_value){name, value};
    b->current = value;
    return SONDE_OK;
}

sonde_err sonde__job_check_layer(const sonde__job_builder *b, const sonde__yaml *entry)
{
    sonde_diag diag = {0};
    const sonde_err err = sonde_nn_model_status(b->model, &diag);

    if (err != SONDE_OK) {
        return sonde__yaml_fail(&b->reader, entry, err, diag.expected, "%s: %s",
                                diag.where, diag.found);
    }
    return SONDE_OK;
}

/* The float type of a layer's products; layers without the key have the session's. */
static sonde_err begin_dtype(const sonde__job_builder *b, const sonde__yaml *body,
                             const sonde__job_layer_kind *kind)
{
    static const sonde_dtype dtypes[] = {SONDE_F32, SONDE_BF16, SONDE_F16};
    const char *text = NULL;
    const sonde__yaml *node = sonde__yaml_get(body, "dtype");
    sonde_err err = SONDE_OK;

    if (node == NULL || has_no_dtype(kind)) {
        return SONDE_OK;
    }
    err = sonde__yaml_text(&b->reader, body, "dtype", &text);
    for (size_t i = 0; err == SONDE_OK && i < SONDE_COUNT_OF(dtypes); i++) {
        if (strcmp(text, sonde_dtype_name(dtypes[i])) == 0) {
            sonde_nn_begin_dtype(b->model, dtypes[i]);
            return SONDE_OK;
        }
    }
    return err != SONDE_OK
               ? err
               : sonde__yaml_fail(&b->reader, node, SONDE_EINVAL,
                                  "float32, bfloat16 or float16", "dtype is '%s'", text);
}

static sonde_err build_group(sonde__job_builder *b, const sonde__yaml *entry,
                             const char *name, sonde_nn_value in, sonde_nn_value *out);

static sonde_err build_layer(sonde__job_builder *b, const sonde__yaml *entry)
{
    const sonde__yaml nothing = {.kind = SONDE__YAML_MAP, .line = entry->line};
    sonde__job_layer_kind kind = {0};
    const sonde__yaml *body = &nothing;
    const char *name = NULL;
    sonde_nn_value in[SONDE__MAX_OPERANDS] = {0}, out = 0;
    sonde_err err = SONDE_OK;

    (void)sonde__job_find_kind(asked_kind(entry), &kind); /* check_kinds found it */
    if (entry->kind == SONDE__YAML_MAP &&
        !(entry->children[0]->kind == SONDE__YAML_SCALAR &&
          entry->children[0]->text[0] == '\0')) {
        body = entry->children[0];
        err = check_layer_keys(b, body, &kind);
    }
    if (err != SONDE_OK) {
        return err;
    }
    SONDE__TRY(sonde__yaml_text(&b->reader, body, "name", &name));
    SONDE__TRY(read_from(b, body, &kind, in));
    SONDE__TRY(begin_dtype(b, body, &kind));
    b->kind = &kind;
    err = kind.build != NULL ? kind.build(b, body, name, in, &out)
                             : build_group(b, body, name, in[0], &out);
    b->kind = NULL;
    sonde_nn_end_dtype(b->model);
    if (err != SONDE_OK) {
        return err;
    }
    SONDE__TRY(sonde__job_check_layer(b, entry));
    return sonde__job_remember(b, name, out);
}

/* Whether an entry is a softmax over the batch of the layer before it. */
static bool is_batch_softmax(const sonde__job_builder *b, const sonde__yaml *entry)
{
    const sonde__yaml *body = entry->kind == SONDE__YAML_MAP ? entry->children[0] : entry;
    const char *kind = asked_kind(entry);
    int64_t dim = 1;

    return (strcmp(kind, "softmax") == 0 || strcmp(kind, "log_softmax") == 0) &&
           body->kind == SONDE__YAML_MAP && sonde__yaml_get(body, "from") == NULL &&
           sonde__yaml_int(&b->reader, body, "dim", -SONDE_MAX_DIMS, SONDE_MAX_DIMS - 1,
                           &dim) == SONDE_OK &&
           dim == 0;
}

/* --- lists of layers ---------------------------------------------------------------------- */

/* The layers of a list, which has some. */
static sonde_err check_list(const sonde__job_builder *b, const sonde__yaml *owner,
                            const sonde__yaml *section)
{
    if (section == NULL || section->kind != SONDE__YAML_LIST || section->count == 0 ||
        section->count > MAX_LAYERS) {
        return sonde__yaml_fail(&b->reader, section != NULL ? section : owner,
                                SONDE_EINVAL, "layers: a list of 1 to 4096 layers",
                                section != NULL && section->count > 0
                                    ? "the model has %zu layers"
                                    : "the model has no layers",
                                section != NULL ? section->count : 0);
    }
    return SONDE_OK;
}

static sonde_err build_list(sonde__job_builder *b, const sonde__yaml *section,
                            size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (b->built++ >= MAX_LAYERS) {
            return sonde__yaml_fail(&b->reader, section->children[i], SONDE_EINVAL,
                                    "at most 4096",
                                    "more layers than that, all repeats "
                                    "counted");
        }
        SONDE__TRY(build_layer(b, section->children[i]));
    }
    return SONDE_OK;
}

static sonde_err build_group(sonde__job_builder *b, const sonde__yaml *entry,
                             const char *name, sonde_nn_value in, sonde_nn_value *out)
{
    const sonde__yaml *section = sonde__yaml_get(entry, "layers");
    const size_t outside = b->count;
    int64_t times = 0;
    char number[24];
    sonde_err err = check_list(b, entry, section);

    if (err == SONDE_OK) {
        err = sonde__yaml_int(&b->reader, entry, "times", 1, MAX_LAYERS, &times);
    }
    if (err == SONDE_OK && name == NULL) {
        err = sonde__yaml_fail(&b->reader, entry, SONDE_EINVAL, "name: NAME",
                               "layers in a group without a name");
    }
    *out = in;
    for (int64_t i = 0; err == SONDE_OK && i < (times > 0 ? times : 1); i++) {
        sonde_nn_scope_push(b->model, name);
        if (times > 0) {
            (void)snprintf(number, sizeof number, "%lld", (long long)i);
            sonde_nn_scope_push(b->model, number);
        }
        err = sonde__job_remember(b, "input", *out);
        err = err == SONDE_OK ? build_list(b, section, section->count) : err;
        *out = b->current;
        sonde_nn_scope_pop(b->model);
        if (times > 0) {
            sonde_nn_scope_pop(b->model);
        }
        b->count = outside; /* names within are known within */
    }
    return err;
}

sonde_err sonde__job_build_layers(sonde__job_builder *b, const sonde__yaml *model)
{
    const sonde__yaml *section = sonde__yaml_get(model, "layers");
    size_t count = 0;
    SONDE__TRY(check_list(b, model, section));
    SONDE__TRY(check_kinds(b, section));
    count = section->count;
    if (b->one_sample && is_batch_softmax(b, section->children[count - 1])) {
        count--;
    }
    return build_list(b, section, count);
}

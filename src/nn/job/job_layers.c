/*
 * job_layers.c - the layers of a job's model.
 *
 * A table holds the kinds of layers that have functions of their own in model.h, each
 * with its keys and a function that calls the builder. All others are rows in src/nn/ops
 * (layer_row.h).
 *
 * Every layer is checked as it is built, so an error has the layer's line.
 */
#include "nn/job/job.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "nn/ops/layer_row.h"

#include <stdio.h>
#include <string.h>

/* A layer's name and output, for `from`. */
typedef struct made {
    const char *name;
    sonde_nn_value value;
} made;

typedef struct job_builder {
    sonde__yaml_reader reader;
    sonde_nn_model *model;
    made *values;
    size_t count, capacity;
    sonde_nn_value current;     /* output of the layer before */
    const sonde__op_layer *row; /* of the layer at hand, or NULL */
    size_t given;               /* inputs of the layer at hand */
    bool one_sample;            /* of sonde_nn_job_info */
} job_builder;

enum { MAX_LAYERS = 4096, MAX_KINDS = 256 };

typedef struct layer_kind {
    const char *name;
    const char *keys[9]; /* besides name and from */
    int inputs;
    /* in has `inputs` values. Reads what is left of the entry; returns an error of
     * reading; errors of building stick in the model. */
    sonde_err (*build)(job_builder *b, const sonde__yaml *entry, const char *name,
                       const sonde_nn_value *in, sonde_nn_value *out);
    const sonde__op_layer *row; /* or NULL */
} layer_kind;

/* One number for both axes, or two; *pair stays 0 if the key is missing. */
static sonde_err read_pair(const job_builder *b, const sonde__yaml *entry,
                           const char *key, int64_t pair[2])
{
    size_t count = 0;
    const sonde_err err = sonde__yaml_ints(&b->reader, entry, key, pair, 2, &count);

    if (err != SONDE_OK) {
        return err;
    }
    if (count == 1) {
        pair[1] = pair[0];
    }
    return SONDE_OK;
}

/* The keys of a window that moves over images. */
static sonde_err read_window(const job_builder *b, const sonde__yaml *entry,
                             int64_t kernel[2], int64_t stride[2], int64_t padding[2],
                             int64_t dilation[2])
{
    const struct {
        const char *key;
        int64_t *pair;
    } keys[] = {{"kernel", kernel},
                {"stride", stride},
                {"padding", padding},
                {"dilation", dilation}};

    for (size_t i = 0; i < SONDE_COUNT_OF(keys); i++) {
        const sonde_err err = read_pair(b, entry, keys[i].key, keys[i].pair);

        if (err != SONDE_OK) {
            return err;
        }
    }
    return SONDE_OK;
}

static sonde_err build_conv2d(job_builder *b, const sonde__yaml *entry, const char *name,
                              const sonde_nn_value *in, sonde_nn_value *out)
{
    sonde_nn_conv2d_options options = {.size = sizeof options, .groups = 1};
    bool bias = true;
    sonde_err err = sonde__yaml_int(&b->reader, entry, "out", 1, INT32_MAX, &options.out);

    if (err != SONDE_OK) {
        return err;
    }
    err = read_window(b, entry, options.kernel, options.stride, options.padding,
                      options.dilation);
    if (err != SONDE_OK) {
        return err;
    }
    err = sonde__yaml_int(&b->reader, entry, "groups", 1, INT32_MAX, &options.groups);
    if (err != SONDE_OK) {
        return err;
    }
    err = sonde__yaml_bool(&b->reader, entry, "bias", &bias);
    options.no_bias = !bias;
    if (err != SONDE_OK) {
        return err;
    }
    *out = sonde_nn_conv2d(b->model, name, in[0], &options);
    return SONDE_OK;
}

static sonde_err build_linear(job_builder *b, const sonde__yaml *entry, const char *name,
                              const sonde_nn_value *in, sonde_nn_value *out)
{
    sonde_nn_linear_options options = {.size = sizeof options};
    bool bias = true;
    sonde_err err = sonde__yaml_int(&b->reader, entry, "out", 1, INT32_MAX, &options.out);

    if (err != SONDE_OK) {
        return err;
    }
    err = sonde__yaml_bool(&b->reader, entry, "bias", &bias);
    options.no_bias = !bias;
    if (err != SONDE_OK) {
        return err;
    }
    *out = sonde_nn_linear(b->model, name, in[0], &options);
    return SONDE_OK;
}

static sonde_err build_group_norm(job_builder *b, const sonde__yaml *entry,
                                  const char *name, const sonde_nn_value *in,
                                  sonde_nn_value *out)
{
    sonde_nn_group_norm_options options = {.size = sizeof options};
    bool affine = true;
    sonde_err err =
        sonde__yaml_int(&b->reader, entry, "groups", 1, INT32_MAX, &options.groups);

    if (err != SONDE_OK) {
        return err;
    }
    err = sonde__yaml_float(&b->reader, entry, "eps", &options.eps);
    if (err != SONDE_OK) {
        return err;
    }
    err = sonde__yaml_bool(&b->reader, entry, "affine", &affine);
    options.no_affine = !affine;
    if (err != SONDE_OK) {
        return err;
    }
    *out = sonde_nn_group_norm(b->model, name, in[0], &options);
    return SONDE_OK;
}

static sonde_err build_max_pool2d(job_builder *b, const sonde__yaml *entry,
                                  const char *name, const sonde_nn_value *in,
                                  sonde_nn_value *out)
{
    sonde_nn_pool2d_options options = {.size = sizeof options};
    const sonde_err err = read_window(b, entry, options.kernel, options.stride,
                                      options.padding, options.dilation);

    if (err != SONDE_OK) {
        return err;
    }
    *out = sonde_nn_max_pool2d(b->model, name, in[0], &options);
    return SONDE_OK;
}

static sonde_err build_relu(job_builder *b, const sonde__yaml *entry, const char *name,
                            const sonde_nn_value *in, sonde_nn_value *out)
{
    (void)entry;
    *out = sonde_nn_relu(b->model, name, in[0]);
    return SONDE_OK;
}

static sonde_err build_sigmoid(job_builder *b, const sonde__yaml *entry, const char *name,
                               const sonde_nn_value *in, sonde_nn_value *out)
{
    (void)entry;
    *out = sonde_nn_sigmoid(b->model, name, in[0]);
    return SONDE_OK;
}

static sonde_err build_tanh(job_builder *b, const sonde__yaml *entry, const char *name,
                            const sonde_nn_value *in, sonde_nn_value *out)
{
    (void)entry;
    *out = sonde_nn_tanh(b->model, name, in[0]);
    return SONDE_OK;
}

static sonde_err read_axis(const job_builder *b, const sonde__yaml *entry, int *axis)
{
    int64_t value = 1;
    const sonde_err err = sonde__yaml_int(&b->reader, entry, "axis", -SONDE_MAX_DIMS,
                                          SONDE_MAX_DIMS - 1, &value);

    *axis = (int)value;
    return err;
}

static sonde_err build_softmax(job_builder *b, const sonde__yaml *entry, const char *name,
                               const sonde_nn_value *in, sonde_nn_value *out)
{
    int axis = 1;
    const sonde_err err = read_axis(b, entry, &axis);

    if (err != SONDE_OK) {
        return err;
    }
    *out = sonde_nn_softmax(b->model, name, in[0], axis);
    return SONDE_OK;
}

static sonde_err build_log_softmax(job_builder *b, const sonde__yaml *entry,
                                   const char *name, const sonde_nn_value *in,
                                   sonde_nn_value *out)
{
    int axis = 1;
    const sonde_err err = read_axis(b, entry, &axis);

    if (err != SONDE_OK) {
        return err;
    }
    *out = sonde_nn_log_softmax(b->model, name, in[0], axis);
    return SONDE_OK;
}

static sonde_err build_flatten(job_builder *b, const sonde__yaml *entry, const char *name,
                               const sonde_nn_value *in, sonde_nn_value *out)
{
    int axis = 1;
    const sonde_err err = read_axis(b, entry, &axis);

    if (err != SONDE_OK) {
        return err;
    }
    *out = sonde_nn_flatten(b->model, name, in[0], axis);
    return SONDE_OK;
}

static sonde_err build_reshape(job_builder *b, const sonde__yaml *entry, const char *name,
                               const sonde_nn_value *in, sonde_nn_value *out)
{
    int64_t shape[SONDE_MAX_DIMS] = {0};
    size_t rank = 0;
    const sonde_err err =
        sonde__yaml_ints(&b->reader, entry, "shape", shape, SONDE_MAX_DIMS, &rank);

    if (err != SONDE_OK) {
        return err;
    }
    *out = sonde_nn_reshape(b->model, name, in[0], (int)rank, shape);
    return SONDE_OK;
}

static sonde_err build_add(job_builder *b, const sonde__yaml *entry, const char *name,
                           const sonde_nn_value *in, sonde_nn_value *out)
{
    (void)entry;
    *out = sonde_nn_add(b->model, name, in[0], in[1]);
    return SONDE_OK;
}

static sonde_err build_mul(job_builder *b, const sonde__yaml *entry, const char *name,
                           const sonde_nn_value *in, sonde_nn_value *out)
{
    (void)entry;
    *out = sonde_nn_mul(b->model, name, in[0], in[1]);
    return SONDE_OK;
}

static sonde_err build_print(job_builder *b, const sonde__yaml *entry, const char *name,
                             const sonde_nn_value *in, sonde_nn_value *out)
{
    return sonde__job_build_print(&b->reader, entry, b->model, name, in[0], out);
}

/* Begins a block and hands its input on. */
static sonde_err build_block(job_builder *b, const sonde__yaml *entry, const char *name,
                             const sonde_nn_value *in, sonde_nn_value *out)
{
    (void)entry;
    sonde_nn_begin_block(b->model, name);
    *out = in[0];
    return SONDE_OK;
}

static const layer_kind layer_kinds[] = {
    {"conv2d",
     {"out", "kernel", "stride", "padding", "dilation", "groups", "bias"},
     1,
     build_conv2d,
     NULL},
    {"linear", {"out", "bias"}, 1, build_linear, NULL},
    {"group_norm", {"groups", "eps", "affine"}, 1, build_group_norm, NULL},
    {"max_pool2d",
     {"kernel", "stride", "padding", "dilation"},
     1,
     build_max_pool2d,
     NULL},
    {"relu", {NULL}, 1, build_relu, NULL},
    {"sigmoid", {NULL}, 1, build_sigmoid, NULL},
    {"tanh", {NULL}, 1, build_tanh, NULL},
    {"softmax", {"axis"}, 1, build_softmax, NULL},
    {"log_softmax", {"axis"}, 1, build_log_softmax, NULL},
    {"flatten", {"axis"}, 1, build_flatten, NULL},
    {"reshape", {"shape"}, 1, build_reshape, NULL},
    {"add", {NULL}, 2, build_add, NULL},
    {"mul", {NULL}, 2, build_mul, NULL},
    {"print",
     {"gradient", "summarise_threshold", "edge_items", "max_line_width", "digits",
      "float_format", "separator", "open_bracket", "close_bracket"},
     1,
     build_print,
     NULL},
    {"block", {NULL}, 1, build_block, NULL},
};

/* --- rows of src/nn/ops ------------------------------------------------------------- */

static sonde_err build_row(job_builder *b, const sonde__yaml *entry, const char *name,
                           const sonde_nn_value *in, sonde_nn_value *out)
{
    const sonde__op_layer *row = b->row;
    sonde_nn_setting settings[SONDE__MAX_FIELDS];
    size_t count = 0;
    const sonde_err err =
        sonde__job_read_settings(&b->reader, entry, row, settings, &count);

    if (err != SONDE_OK) {
        return err;
    }
    *out = sonde_nn_layer(b->model, row->name, name, in, b->given, settings, count);
    return SONDE_OK;
}

static layer_kind row_kind(const sonde__op_layer *row)
{
    layer_kind kind = {
        .name = row->name, .inputs = row->inputs, .build = build_row, .row = row};

    for (int i = 0; i < sonde__op_field_count(row); i++) {
        kind.keys[i] = row->fields[i].key;
    }
    return kind;
}

/* --- entries ---------------------------------------------------------------------- */

/* The names of all kinds of layers; returns their count. */
static size_t list_kinds(const char *names[MAX_KINDS])
{
    size_t count = 0;

    for (size_t i = 0; i < SONDE_COUNT_OF(layer_kinds); i++) {
        names[count++] = layer_kinds[i].name;
    }
    for (size_t i = 0; sonde__op_layers[i] != NULL && count < MAX_KINDS; i++) {
        names[count++] = sonde__op_layers[i]->name;
    }
    return count;
}

/* The name of an entry's kind; NULL: the entry is no layer. */
static const char *asked_kind(const sonde__yaml *entry)
{
    return entry->kind == SONDE__YAML_SCALAR                     ? entry->text
           : entry->kind == SONDE__YAML_MAP && entry->count == 1 ? entry->children[0]->key
                                                                 : NULL;
}

/* The kind of a name; false: unknown. */
static bool find_kind(const char *asked, layer_kind *kind)
{
    const sonde__op_layer *row = sonde__op_find_layer(asked);

    for (size_t i = 0; i < SONDE_COUNT_OF(layer_kinds); i++) {
        if (strcmp(asked, layer_kinds[i].name) == 0) {
            *kind = layer_kinds[i];
            return true;
        }
    }
    if (row != NULL) {
        *kind = row_kind(row);
    }
    return row != NULL;
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

/* Finds all unknown layers of the list at once. Expects the names nearest to them, or, if
 * one is near none, all that there are. */
static sonde_err check_kinds(const job_builder *b, const sonde__yaml *section)
{
    const char *names[MAX_KINDS];
    const size_t kinds = list_kinds(names);
    const sonde__yaml *first = NULL;
    char found[300] = "", near[256] = "", item[120];
    bool all_near = true;

    for (size_t i = 0; i < section->count; i++) {
        const sonde__yaml *entry = section->children[i];
        const char *asked = asked_kind(entry), *nearest = NULL;
        layer_kind kind;

        if (asked == NULL) {
            return sonde__yaml_fail(&b->reader, entry, SONDE_EINVAL,
                                    "one layer: {its options}", "not a layer");
        }
        if (find_kind(asked, &kind)) {
            continue;
        }
        if (first == NULL) {
            (void)snprintf(item, sizeof item, "unknown layer '%.80s'", asked);
        } else {
            (void)snprintf(item, sizeof item, "line %d '%.80s'", entry->line, asked);
        }
        append_item(found, sizeof found, item);
        first = first != NULL ? first : entry;
        nearest = sonde_diag_nearest(asked, names, kinds);
        all_near = all_near && nearest != NULL;
        append_item(near, sizeof near, nearest != NULL ? nearest : "");
    }
    if (first == NULL) {
        return SONDE_OK;
    }
    if (!all_near) {
        near[0] = '\0';
        for (size_t i = 0; i < kinds; i++) {
            append_item(near, sizeof near, names[i]);
        }
    }
    return sonde__yaml_fail(&b->reader, first, SONDE_EINVAL, near, "%s", found);
}

static sonde_err check_layer_keys(const job_builder *b, const sonde__yaml *body,
                                  const layer_kind *kind)
{
    const char *keys[SONDE_COUNT_OF(kind->keys) + 2] = {"name", "from"};
    size_t count = 2;

    for (size_t i = 0; i < SONDE_COUNT_OF(kind->keys) && kind->keys[i] != NULL; i++) {
        keys[count++] = kind->keys[i];
    }
    return sonde__yaml_check_keys(&b->reader, body, keys, count);
}

static sonde_err find_value(const job_builder *b, const sonde__yaml *node,
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
static sonde_err read_from(job_builder *b, const sonde__yaml *body,
                           const layer_kind *kind, sonde_nn_value *in)
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
        const sonde_err err = find_value(b, source->children[i], &in[i]);

        if (err != SONDE_OK) {
            return err;
        }
    }
    return SONDE_OK;
}

static sonde_err remember(job_builder *b, const char *name, sonde_nn_value value)
{
    if (!sonde__reserve(&b->values, &b->capacity, b->count + 1, sizeof *b->values)) {
        return sonde__fail_nomem(b->reader.diag, "a job");
    }
    b->values[b->count++] = (made){name, value};
    b->current = value;
    return SONDE_OK;
}

/* The model's own error, with the line of the entry that made it. */
static sonde_err check_layer(const job_builder *b, const sonde__yaml *entry)
{
    sonde_diag diag = {0};
    const sonde_err err = sonde_nn_model_status(b->model, &diag);

    if (err != SONDE_OK) {
        return sonde__yaml_fail(&b->reader, entry, err, diag.expected, "%s: %s",
                                diag.where, diag.found);
    }
    return SONDE_OK;
}

static sonde_err build_layer(job_builder *b, const sonde__yaml *entry)
{
    const sonde__yaml nothing = {.kind = SONDE__YAML_MAP, .line = entry->line};
    layer_kind kind = {0};
    const sonde__yaml *body = &nothing;
    const char *name = NULL;
    sonde_nn_value in[SONDE__MAX_OPERANDS] = {0}, out = 0;
    sonde_err err = SONDE_OK;

    (void)find_kind(asked_kind(entry), &kind); /* check_kinds found it */
    if (entry->kind == SONDE__YAML_MAP &&
        !(entry->children[0]->kind == SONDE__YAML_SCALAR &&
          entry->children[0]->text[0] == '\0')) {
        body = entry->children[0];
        err = check_layer_keys(b, body, &kind);
    }
    if (err != SONDE_OK) {
        return err;
    }
    err = sonde__yaml_text(&b->reader, body, "name", &name);
    if (err != SONDE_OK) {
        return err;
    }
    err = read_from(b, body, &kind, in);
    if (err != SONDE_OK) {
        return err;
    }
    b->row = kind.row;
    err = kind.build(b, body, name, in, &out);
    if (err != SONDE_OK) {
        return err;
    }
    err = check_layer(b, entry);
    if (err != SONDE_OK) {
        return err;
    }
    return remember(b, name, out);
}

/* Whether an entry is a softmax over the batch of the layer before it. */
static bool is_batch_softmax(const job_builder *b, const sonde__yaml *entry)
{
    const sonde__yaml *body = entry->kind == SONDE__YAML_MAP ? entry->children[0] : entry;
    const char *kind = asked_kind(entry);
    int axis = 1;

    return (strcmp(kind, "softmax") == 0 || strcmp(kind, "log_softmax") == 0) &&
           body->kind == SONDE__YAML_MAP && sonde__yaml_get(body, "from") == NULL &&
           read_axis(b, body, &axis) == SONDE_OK && axis == 0;
}

static sonde_err build_layers(job_builder *b, const sonde__yaml *model)
{
    const sonde__yaml *section = sonde__yaml_get(model, "layers");
    size_t count = 0;
    sonde_err err = SONDE_OK;

    if (section == NULL || section->kind != SONDE__YAML_LIST || section->count == 0 ||
        section->count > MAX_LAYERS) {
        return sonde__yaml_fail(&b->reader, section != NULL ? section : model,
                                SONDE_EINVAL, "layers: a list of 1 to 4096 layers",
                                "the model has no layers");
    }
    err = check_kinds(b, section);
    if (err != SONDE_OK) {
        return err;
    }
    count = section->count;
    if (b->one_sample && is_batch_softmax(b, section->children[count - 1])) {
        count--;
    }
    for (size_t i = 0; i < count; i++) {
        err = build_layer(b, section->children[i]);
        if (err != SONDE_OK) {
            return err;
        }
    }
    return SONDE_OK;
}

sonde_err sonde__job_build_layers(const sonde__yaml_reader *reader,
                                  const sonde__yaml *section, sonde_nn_model *model,
                                  sonde_nn_value sample, bool one_sample,
                                  sonde_nn_value *output)
{
    job_builder b = {.reader = *reader, .model = model, .one_sample = one_sample};
    sonde_err err = remember(&b, "input", sample);

    if (err == SONDE_OK) {
        err = build_layers(&b, section);
    }
    *output = b.current;
    sonde__free(b.values);
    return err;
}

/*
 * job_layers.c - the model section of a job: its inputs, its layers, its loss.
 *
 * A table holds the kinds of layers, each with its keys and a function that calls the
 * builder.
 *
 * Every layer is checked as it is built, so an error has the layer's line.
 */
#include "nn/job/job.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

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
    sonde_nn_value current; /* output of the layer before */
    bool one_sample;        /* of sonde_nn_job_info */
} job_builder;

enum { MAX_LAYERS = 4096 };

typedef struct layer_kind {
    const char *name;
    const char *keys[9]; /* besides name and from */
    int inputs;
    /* in has `inputs` values. Reads what is left of the entry; returns an error of reading;
     * errors of building stick in the model. */
    sonde_err (*build)(job_builder *b, const sonde__yaml *entry, const char *name,
                       const sonde_nn_value *in, sonde_nn_value *out);
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

static sonde_err build_conv2d(job_builder *b, const sonde__yaml *entry, const char *name,
                              const sonde_nn_value *in, sonde_nn_value *out)
{
    sonde_nn_conv2d_options options = {.groups = 1};
    bool bias = true;
    sonde_err err = sonde__yaml_int(&b->reader, entry, "out", 1, INT32_MAX, &options.out);

    if (err != SONDE_OK) {
        return err;
    }
    err = read_pair(b, entry, "kernel", options.kernel);
    if (err != SONDE_OK) {
        return err;
    }
    err = read_pair(b, entry, "stride", options.stride);
    if (err != SONDE_OK) {
        return err;
    }
    err = read_pair(b, entry, "padding", options.padding);
    if (err != SONDE_OK) {
        return err;
    }
    err = read_pair(b, entry, "dilation", options.dilation);
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
    sonde_nn_linear_options options = {0};
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
    sonde_nn_group_norm_options options = {0};
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
    sonde_nn_pool2d_options options = {0};
    sonde_err err = read_pair(b, entry, "kernel", options.kernel);

    if (err != SONDE_OK) {
        return err;
    }
    err = read_pair(b, entry, "stride", options.stride);
    if (err != SONDE_OK) {
        return err;
    }
    err = read_pair(b, entry, "padding", options.padding);
    if (err != SONDE_OK) {
        return err;
    }
    err = read_pair(b, entry, "dilation", options.dilation);
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

/* Text of at most 7 bytes; what is there stays if the key is missing. */
static sonde_err read_short_text(const job_builder *b, const sonde__yaml *entry,
                                 const char *key, char *to, size_t size)
{
    const char *text = NULL;
    const sonde_err err = sonde__yaml_text(&b->reader, entry, key, &text);

    if (err != SONDE_OK || text == NULL) {
        return err;
    }
    if (strlen(text) >= size) {
        return sonde__yaml_fail(&b->reader, sonde__yaml_get(entry, key), SONDE_EINVAL,
                                "at most 7 characters", "%s is '%s'", key, text);
    }
    memcpy(to, text, strlen(text) + 1);
    return SONDE_OK;
}

static sonde_err read_float_format(const job_builder *b, const sonde__yaml *entry,
                                   sonde_float_format *format)
{
    const char *text = NULL;
    sonde_diag diag = {0};
    sonde_err err = sonde__yaml_text(&b->reader, entry, "float_format", &text);

    if (err != SONDE_OK || text == NULL) {
        return err;
    }
    err = sonde_float_format_parse(text, format, &diag);
    return err == SONDE_OK
               ? err
               : sonde__yaml_fail(&b->reader, sonde__yaml_get(entry, "float_format"), err,
                                  diag.expected, "float_format is '%s'", text);
}

static sonde_err read_print_options(const job_builder *b, const sonde__yaml *entry,
                                    sonde_print_options *options)
{
    struct {
        const char *key;
        int64_t most, value;
        int *to; /* NULL: the threshold */
    } numbers[] = {
        {"summarise_threshold", INT64_MAX, options->summarise_threshold, NULL},
        {"edge_items", INT32_MAX, options->edge_items, &options->edge_items},
        {"max_line_width", INT32_MAX, options->max_line_width, &options->max_line_width},
        {"digits", 17, options->digits, &options->digits}};
    const struct {
        const char *key;
        char *to;
    } texts[] = {{"separator", options->separator},
                 {"open_bracket", options->open_bracket},
                 {"close_bracket", options->close_bracket}};
    sonde_err err = read_float_format(b, entry, &options->float_format);

    if (err != SONDE_OK) {
        return err;
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(numbers); i++) {
        err = sonde__yaml_int(&b->reader, entry, numbers[i].key, 0, numbers[i].most,
                              &numbers[i].value);
        if (err != SONDE_OK) {
            return err;
        }
        if (numbers[i].to != NULL) {
            *numbers[i].to = (int)numbers[i].value;
        }
    }
    options->summarise_threshold = numbers[0].value;
    for (size_t i = 0; i < SONDE_COUNT_OF(texts); i++) {
        err = read_short_text(b, entry, texts[i].key, texts[i].to,
                              sizeof options->separator);
        if (err != SONDE_OK) {
            return err;
        }
    }
    return SONDE_OK;
}

static sonde_err build_print(job_builder *b, const sonde__yaml *entry, const char *name,
                             const sonde_nn_value *in, sonde_nn_value *out)
{
    sonde_print_options options = sonde_print_options_default();
    bool gradient = true;
    sonde_err err = sonde__yaml_bool(&b->reader, entry, "gradient", &gradient);

    if (err != SONDE_OK) {
        return err;
    }
    err = read_print_options(b, entry, &options);
    if (err != SONDE_OK) {
        return err;
    }
    *out = sonde_nn_print(b->model, in[0], name, gradient, &options);
    return SONDE_OK;
}

static const layer_kind layer_kinds[] = {
    {"conv2d",
     {"out", "kernel", "stride", "padding", "dilation", "groups", "bias"},
     1,
     build_conv2d},
    {"linear", {"out", "bias"}, 1, build_linear},
    {"group_norm", {"groups", "eps", "affine"}, 1, build_group_norm},
    {"max_pool2d", {"kernel", "stride", "padding", "dilation"}, 1, build_max_pool2d},
    {"relu", {NULL}, 1, build_relu},
    {"sigmoid", {NULL}, 1, build_sigmoid},
    {"tanh", {NULL}, 1, build_tanh},
    {"softmax", {"axis"}, 1, build_softmax},
    {"log_softmax", {"axis"}, 1, build_log_softmax},
    {"flatten", {"axis"}, 1, build_flatten},
    {"reshape", {"shape"}, 1, build_reshape},
    {"add", {NULL}, 2, build_add},
    {"mul", {NULL}, 2, build_mul},
    {"print",
     {"gradient", "summarise_threshold", "edge_items", "max_line_width", "digits",
      "float_format", "separator", "open_bracket", "close_bracket"},
     1,
     build_print},
};

/* --- entries ---------------------------------------------------------------------- */

/* The kind of that name; NULL: unknown. */
static const layer_kind *kind_of(const char *name)
{
    for (size_t i = 0; i < SONDE_COUNT_OF(layer_kinds); i++) {
        if (strcmp(name, layer_kinds[i].name) == 0) {
            return &layer_kinds[i];
        }
    }
    return NULL;
}

/* The name of an entry's kind; NULL: the entry is no layer. */
static const char *asked_kind(const sonde__yaml *entry)
{
    return entry->kind == SONDE__YAML_SCALAR                     ? entry->text
           : entry->kind == SONDE__YAML_MAP && entry->count == 1 ? entry->children[0]->key
                                                                 : NULL;
}

/* "relu, or another of: conv2d, linear, ..."; the nearest name comes first. */
static const char *known_kinds(const char *asked, char *buf, size_t size)
{
    const char *names[SONDE_COUNT_OF(layer_kinds)], *nearest = NULL;
    size_t used = 0;

    for (size_t i = 0; i < SONDE_COUNT_OF(layer_kinds); i++) {
        names[i] = layer_kinds[i].name;
    }
    nearest = sonde_diag_nearest(asked, names, SONDE_COUNT_OF(names));
    used = (size_t)snprintf(buf, size, "%s%s", nearest != NULL ? nearest : "",
                            nearest != NULL ? ", or another of: " : "");
    for (size_t i = 0; i < SONDE_COUNT_OF(layer_kinds) && used < size; i++) {
        used += (size_t)snprintf(buf + used, size - used, "%s%s", i > 0 ? ", " : "",
                                 names[i]);
    }
    return buf;
}

/* Finds all unknown layers of the list at once. */
static sonde_err check_kinds(const job_builder *b, const sonde__yaml *section)
{
    const sonde__yaml *first = NULL;
    char found[300], known[256];
    size_t used = 0;

    for (size_t i = 0; i < section->count; i++) {
        const sonde__yaml *entry = section->children[i];
        const char *asked = asked_kind(entry);

        if (asked == NULL) {
            return sonde__yaml_fail(&b->reader, entry, SONDE_EINVAL,
                                    "one layer: {its options}", "not a layer");
        }
        if (kind_of(asked) != NULL || used >= sizeof found) {
            continue;
        }
        if (first == NULL) {
            first = entry;
            used = (size_t)snprintf(found, sizeof found, "unknown layer '%s'", asked);
        } else {
            used += (size_t)snprintf(found + used, sizeof found - used, ", line %d '%s'",
                                     entry->line, asked);
        }
    }
    return first == NULL
               ? SONDE_OK
               : sonde__yaml_fail(&b->reader, first, SONDE_EINVAL,
                                  known_kinds(asked_kind(first), known, sizeof known),
                                  "%s", found);
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

static sonde_err read_from(const job_builder *b, const sonde__yaml *body, int inputs,
                           sonde_nn_value *in)
{
    const sonde__yaml *from = sonde__yaml_get(body, "from");

    in[0] = b->current;
    if (from == NULL && inputs == 1) {
        return SONDE_OK;
    }
    if (from != NULL && inputs == 1) {
        return find_value(b, from, &in[0]);
    }
    if (from == NULL || from->kind != SONDE__YAML_LIST || from->count != (size_t)inputs) {
        return sonde__yaml_fail(&b->reader, body, SONDE_EINVAL, "from: [a, b]",
                                "the layer needs two inputs");
    }
    for (int i = 0; i < inputs; i++) {
        const sonde_err err = find_value(b, from->children[i], &in[i]);

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

    return err == SONDE_OK ? err
                           : sonde__yaml_fail(&b->reader, entry, err, diag.expected,
                                              "%s: %s", diag.where, diag.found);
}

static sonde_err build_layer(job_builder *b, const sonde__yaml *entry)
{
    const sonde__yaml nothing = {.kind = SONDE__YAML_MAP, .line = entry->line};
    const layer_kind *kind = kind_of(asked_kind(entry));
    const sonde__yaml *body = &nothing;
    const char *name = NULL;
    sonde_nn_value in[2] = {0, 0}, out = 0;
    sonde_err err = SONDE_OK;

    if (entry->kind == SONDE__YAML_MAP &&
        !(entry->children[0]->kind == SONDE__YAML_SCALAR &&
          entry->children[0]->text[0] == '\0')) {
        body = entry->children[0];
        err = check_layer_keys(b, body, kind);
    }
    if (err != SONDE_OK) {
        return err;
    }
    err = sonde__yaml_text(&b->reader, body, "name", &name);
    if (err != SONDE_OK) {
        return err;
    }
    err = read_from(b, body, kind->inputs, in);
    if (err != SONDE_OK) {
        return err;
    }
    err = kind->build(b, body, name, in, &out);
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

/* --- the model section -------------------------------------------------------------- */

static sonde_err build_loss(job_builder *b, const sonde__yaml *section,
                            sonde_nn_value target)
{
    static const char *const kinds[] = {"nll", "cross_entropy"};
    static const char *const keys[] = {"name"};
    const char *name = "loss";
    bool entropy = false;
    sonde_err err = SONDE_OK;

    if (section->kind == SONDE__YAML_SCALAR) {
        entropy = strcmp(section->text, kinds[1]) == 0;
        if (!entropy && strcmp(section->text, kinds[0]) != 0) {
            return sonde__yaml_fail(&b->reader, section, SONDE_EINVAL,
                                    "nll or cross_entropy", "unknown loss '%s'",
                                    section->text);
        }
    } else {
        err = sonde__yaml_check_keys(&b->reader, section, kinds, 2);
        if (err != SONDE_OK) {
            return err;
        }
        if (section->count != 1) {
            return sonde__yaml_fail(&b->reader, section, SONDE_EINVAL, "one loss",
                                    "%zu losses", section->count);
        }
        err = sonde__yaml_check_keys(&b->reader, section->children[0], keys, 1);
        if (err != SONDE_OK) {
            return err;
        }
        err = sonde__yaml_text(&b->reader, section->children[0], "name", &name);
        if (err != SONDE_OK) {
            return err;
        }
        entropy = strcmp(section->children[0]->key, kinds[1]) == 0;
    }
    sonde_nn_loss(b->model,
                  entropy ? sonde_nn_cross_entropy(b->model, name, b->current, target)
                          : sonde_nn_nll_loss(b->model, name, b->current, target));
    return check_layer(b, section);
}

/* Samples and targets, one of each: compile instantiates the graph with the session's
 * batch size. */
static sonde_err build_inputs(job_builder *b, const sonde__yaml *model,
                              sonde_nn_value *target)
{
    int64_t shape[SONDE_MAX_DIMS] = {1};
    size_t rank = 0;
    sonde_err err = sonde__yaml_ints(&b->reader, model, "input", shape + 1,
                                     SONDE_MAX_DIMS - 1, &rank);

    if (err != SONDE_OK) {
        return err;
    }
    if (rank == 0) {
        err = sonde__yaml_fail(&b->reader, model, SONDE_EINVAL, "input: [1, 28, 28]",
                               "the model says no shape of its input");
    }
    if (err != SONDE_OK) {
        return err;
    }
    err = remember(b, "input", sonde_nn_input(b->model, SONDE_F32, (int)rank + 1, shape));
    *target = sonde_nn_input(b->model, SONDE_I64, 1, shape);
    if (err != SONDE_OK) {
        return err;
    }
    return check_layer(b, model);
}

/* What a reader of the job wants to know of its model. */
static sonde_err describe(const job_builder *b, sonde_nn_job_info *info,
                          const sonde__yaml *model)
{
    const int64_t *shape = NULL;
    int rank = 0;

    shape = sonde_nn_value_shape(b->model, b->values[0].value, &rank);
    info->sample_rank = rank - 1;
    memcpy(info->sample_shape, shape + 1, (size_t)(rank - 1) * sizeof *shape);
    shape = sonde_nn_value_shape(b->model, b->current, &rank);
    if (rank != 2) {
        return sonde__yaml_fail(&b->reader, model, SONDE_ESHAPE, "(N, classes)",
                                "the last layer's output has %d dimensions", rank);
    }
    info->classes = shape[1];
    return SONDE_OK;
}

static sonde_err build_model(job_builder *b, const sonde__yaml *model,
                             sonde_nn_job_info *info)
{
    static const char *const keys[] = {"input", "layers", "loss"};
    const sonde__yaml *loss = NULL;
    sonde_nn_value target = 0;
    sonde_err err = sonde__yaml_check_keys(&b->reader, model, keys, SONDE_COUNT_OF(keys));

    if (err != SONDE_OK) {
        return err;
    }
    err = build_inputs(b, model, &target);
    if (err != SONDE_OK) {
        return err;
    }
    err = build_layers(b, model);
    if (err != SONDE_OK) {
        return err;
    }
    sonde_nn_output(b->model, b->current);
    loss = sonde__yaml_get(model, "loss");
    if (loss == NULL) {
        return sonde__yaml_fail(&b->reader, model, SONDE_EINVAL,
                                "loss: nll or cross_entropy", "the model says no loss");
    }
    err = build_loss(b, loss, target);
    if (err != SONDE_OK) {
        return err;
    }
    return describe(b, info, model);
}

sonde_err sonde__job_build(const sonde_nn_job *job, sonde_nn_job_info *info,
                           sonde_nn_model **out, sonde_diag *diag)
{
    const char *name = job->builtin != NULL ? job->info.model_name : job->name;
    job_builder b = {.reader = {name, diag}, .one_sample = job->info.one_sample};
    sonde_err err = sonde_nn_model_create(&b.model, diag);

    if (err != SONDE_OK) {
        return err;
    }
    err = build_model(&b, job->model, info);
    sonde__free(b.values);
    if (err != SONDE_OK) {
        sonde_nn_model_destroy(b.model);
        return err;
    }
    sonde_nn_model_initialise(b.model, info->seed);
    *out = b.model;
    return SONDE_OK;
}

sonde_err sonde_nn_job_build(const sonde_nn_job *job, sonde_nn_model **out,
                             sonde_diag *diag)
{
    sonde_nn_job_info info = job->info;

    return sonde__job_build(job, &info, out, diag);
}

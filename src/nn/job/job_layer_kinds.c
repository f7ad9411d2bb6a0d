/*
 * job_layer_kinds.c - the kinds of layers of a job by name.
 *
 * A table holds the kinds of layers that have functions of their own in model.h, each
 * with its keys and a function that calls the builder. All others are rows in src/nn/ops
 * (layer_row.h).
 */
#include "nn/job/job_layers.h"
#include "base/fail.h"
#include "base/macros.h"

#include <string.h>

/* One number for both axes, or two; *pair stays 0 if the key is missing. */
static sonde_err read_pair(const sonde__job_builder *b, const sonde__yaml *entry,
                           const char *key, int64_t pair[2])
{
    size_t count = 0;
    SONDE__TRY(sonde__yaml_ints(&b->reader, entry, key, pair, 2, &count));
    if (count == 1) {
        pair[1] = pair[0];
    }
    return SONDE_OK;
}

/* The keys of a window that moves over images. */
static sonde_err read_window(const sonde__job_builder *b, const sonde__yaml *entry,
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
        SONDE__TRY(read_pair(b, entry, keys[i].key, keys[i].pair));
    }
    return SONDE_OK;
}

static sonde_err build_conv2d(sonde__job_builder *b, const sonde__yaml *entry,
                              const char *name, const sonde_nn_value *in,
                              sonde_nn_value *out)
{
    sonde_nn_conv2d_options options = {.size = sizeof options, .groups = 1};
    bool bias = true;
    sonde_err err = sonde__yaml_int(&b->reader, entry, "out", 1, INT32_MAX, &options.out);

    if (err != SONDE_OK) {
        return err;
    }
    SONDE__TRY(read_window(b, entry, options.kernel, options.stride, options.padding,
                           options.dilation));
    SONDE__TRY(
        sonde__yaml_int(&b->reader, entry, "groups", 1, INT32_MAX, &options.groups));
    err = sonde__yaml_bool(&b->reader, entry, "bias", &bias);
    options.no_bias = !bias;
    if (err != SONDE_OK) {
        return err;
    }
    *out = sonde_nn_conv2d(b->model, name, in[0], &options);
    return SONDE_OK;
}

static sonde_err build_linear(sonde__job_builder *b, const sonde__yaml *entry,
                              const char *name, const sonde_nn_value *in,
                              sonde_nn_value *out)
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

static sonde_err build_group_norm(sonde__job_builder *b, const sonde__yaml *entry,
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
    SONDE__TRY(sonde__yaml_float(&b->reader, entry, "eps", &options.eps));
    err = sonde__yaml_bool(&b->reader, entry, "affine", &affine);
    options.no_affine = !affine;
    if (err != SONDE_OK) {
        return err;
    }
    *out = sonde_nn_group_norm(b->model, name, in[0], &options);
    return SONDE_OK;
}

static sonde_err build_max_pool2d(sonde__job_builder *b, const sonde__yaml *entry,
                                  const char *name, const sonde_nn_value *in,
                                  sonde_nn_value *out)
{
    sonde_nn_pool2d_options options = {.size = sizeof options};
    SONDE__TRY(read_window(b, entry, options.kernel, options.stride, options.padding,
                           options.dilation));
    *out = sonde_nn_max_pool2d(b->model, name, in[0], &options);
    return SONDE_OK;
}

sonde_err sonde__job_read_axis(const sonde__job_builder *b, const sonde__yaml *entry,
                               int *axis)
{
    int64_t value = 1;
    const sonde_err err = sonde__yaml_int(&b->reader, entry, "axis", -SONDE_MAX_DIMS,
                                          SONDE_MAX_DIMS - 1, &value);

    *axis = (int)value;
    return err;
}

/* A layer without keys, of one input or two, or with the key axis. */
static sonde_err build_plain(sonde__job_builder *b, const sonde__yaml *entry,
                             const char *name, const sonde_nn_value *in,
                             sonde_nn_value *out)
{
    const sonde__job_layer_kind *kind = b->kind;
    int axis = 1;
    SONDE__TRY(sonde__job_read_axis(b, entry, &axis));
    *out = kind->of_one != NULL   ? kind->of_one(b->model, name, in[0])
           : kind->of_two != NULL ? kind->of_two(b->model, name, in[0], in[1])
                                  : kind->along(b->model, name, in[0], axis);
    return SONDE_OK;
}

static sonde_err build_reshape(sonde__job_builder *b, const sonde__yaml *entry,
                               const char *name, const sonde_nn_value *in,
                               sonde_nn_value *out)
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

static sonde_err build_print(sonde__job_builder *b, const sonde__yaml *entry,
                             const char *name, const sonde_nn_value *in,
                             sonde_nn_value *out)
{
    return sonde__job_build_print(&b->reader, entry, b->model, name, in[0], out);
}

/* Begins a block and hands its input on. */
static sonde_err build_block(sonde__job_builder *b, const sonde__yaml *entry,
                             const char *name, const sonde_nn_value *in,
                             sonde_nn_value *out)
{
    (void)entry;
    sonde_nn_begin_block(b->model, name);
    *out = in[0];
    return SONDE_OK;
}

static const sonde__job_layer_kind layer_kinds[] = {
    {"conv2d",
     {"out", "kernel", "stride", "padding", "dilation", "groups", "bias"},
     1,
     .build = build_conv2d},
    {"linear", {"out", "bias"}, 1, .build = build_linear},
    {"group_norm", {"groups", "eps", "affine"}, 1, .build = build_group_norm},
    {"max_pool2d",
     {"kernel", "stride", "padding", "dilation"},
     1,
     .build = build_max_pool2d},
    {"relu", {NULL}, 1, .build = build_plain, .of_one = sonde_nn_relu},
    {"sigmoid", {NULL}, 1, .build = build_plain, .of_one = sonde_nn_sigmoid},
    {"tanh", {NULL}, 1, .build = build_plain, .of_one = sonde_nn_tanh},
    {"softmax", {"axis"}, 1, .build = build_plain, .along = sonde_nn_softmax},
    {"log_softmax", {"axis"}, 1, .build = build_plain, .along = sonde_nn_log_softmax},
    {"flatten", {"axis"}, 1, .build = build_plain, .along = sonde_nn_flatten},
    {"reshape", {"shape"}, 1, .build = build_reshape},
    {"add", {NULL}, 2, .build = build_plain, .of_two = sonde_nn_add},
    {"mul", {NULL}, 2, .build = build_plain, .of_two = sonde_nn_mul},
    {"print",
     {"gradient", "summarise_threshold", "edge_items", "max_line_width", "digits",
      "float_format", "separator", "open_bracket", "close_bracket"},
     1,
     .build = build_print},
    {"block", {NULL}, 1, .build = build_block},
    {"layers", {"times", "layers"}, 1, .build = NULL}, /* a group: job_layers.c */
};

/* --- rows of src/nn/ops ------------------------------------------------------------- */

static sonde_err build_row(sonde__job_builder *b, const sonde__yaml *entry,
                           const char *name, const sonde_nn_value *in,
                           sonde_nn_value *out)
{
    const sonde__op_layer *row = b->kind->row;
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

static sonde__job_layer_kind row_kind(const sonde__op_layer *row)
{
    sonde__job_layer_kind kind = {
        .name = row->name, .inputs = row->inputs, .build = build_row, .row = row};

    for (int i = 0; i < sonde__op_field_count(row); i++) {
        kind.keys[i] = row->fields[i].key;
    }
    return kind;
}

/* --- by name ------------------------------------------------------------------------ */

size_t sonde__job_list_kinds(const char *names[SONDE__JOB_MAX_KINDS])
{
    size_t count = 0;

    for (size_t i = 0; i < SONDE_COUNT_OF(layer_kinds); i++) {
        names[count++] = layer_kinds[i].name;
    }
    for (size_t i = 0; sonde__op_layers[i] != NULL && count < SONDE__JOB_MAX_KINDS; i++) {
        names[count++] = sonde__op_layers[i]->name;
    }
    return count;
}

bool sonde__job_find_kind(const char *asked, sonde__job_layer_kind *kind)
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

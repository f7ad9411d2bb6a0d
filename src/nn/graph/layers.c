/*
 * layers.c - the layers of the builder: by name, and functions of their own.
 *
 * Sonde_nn_layer: a layer by its name, from its row in src/nn/ops.
 *
 * The builder's layers and functions, with PyTorch's defaults.
 */
#include "nn/graph/layer.h"
#include "base/fail.h"
#include "nn/ops/layer_row.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/macros.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* === named layer ==================================================================== */

/* The layer's name; one without is known by its kind. */
static const char *place(const sonde__graph_layer *layer)
{
    return layer->path[0] != '\0' || layer->kind == NULL ? layer->path : layer->kind;
}

/* An error of an argument, under the name of the layer. */
static bool refuse(const sonde__graph_layer *layer, const sonde_diag *diag)
{
    sonde_diag named = *diag;

    (void)snprintf(named.where, sizeof named.where, "%s", place(layer));
    (void)sonde__graph_fail_diag(&layer->model->graph, diag->err, &named);
    return false;
}

bool sonde__graph_read_settings(const sonde__graph_layer *layer,
                                const sonde__op_layer *row,
                                const sonde_nn_setting *settings, size_t count,
                                sonde__op_attrs *attrs)
{
    sonde__op_graph *graph = &layer->model->graph;
    bool given[SONDE__MAX_FIELDS] = {false};

    if (row->preset != NULL) {
        *attrs = *row->preset;
    }
    sonde__op_set_defaults(row, attrs);
    for (size_t i = 0; i < count; i++) {
        const sonde_nn_setting *setting = &settings[i];
        const sonde__op_field *field =
            setting->key != NULL ? sonde__op_find_field(row, setting->key) : NULL;
        sonde_diag diag = {0};
        sonde_err err = SONDE_OK;

        if (field == NULL) {
            (void)sonde__graph_fail(graph, SONDE_EINVAL, place(layer), NULL,
                                    "%s has no key '%s'", row->name,
                                    setting->key != NULL ? setting->key : "");
            return false;
        }
        given[field - row->fields] = true;
        err = setting->word != NULL
                  ? sonde__op_set_word(field, attrs, setting->word, &diag)
                  : sonde__op_set_field(field, attrs, setting->values,
                                        setting->count == 0 ? 1 : setting->count, &diag);
        if (err != SONDE_OK) {
            return refuse(layer, &diag);
        }
    }
    for (int i = 0; i < sonde__op_field_count(row); i++) {
        if (!given[i] && isnan(row->fields[i].fallback)) {
            (void)sonde__graph_fail(graph, SONDE_EINVAL, place(layer), row->fields[i].key,
                                    "%s lacks a key", row->name);
            return false;
        }
    }
    return true;
}

static sonde_nn_value add_buffer(sonde__graph_layer *layer, const sonde__op_param *param)
{
    sonde__op_shape shape = {.dtype = param->counts ? SONDE_I64 : SONDE_F32,
                             .rank = param->rank};

    for (int i = 0; i < param->rank; i++) {
        shape.dim[i] = param->dim[i];
    }
    return sonde__graph_layer_buffer(layer, param->suffix, &shape, param->constant);
}

/* Creates the layer's own tensors after its inputs; returns how many values there are. */
static int add_params(sonde__graph_layer *layer, const sonde__op_layer *row,
                      const sonde__op_attrs *attrs, sonde_nn_value *in)
{
    const sonde__op_shape *x = sonde__graph_shape(layer->model, in[0]);
    sonde__op_param params[SONDE__MAX_PARAMS] = {{0}};
    const int count = row->params != NULL ? row->params(x, attrs, params) : 0;
    const int inputs = row->inputs + row->optional;

    for (int i = 0; i < count; i++) {
        const sonde__op_param *param = &params[i];

        in[inputs + i] =
            param->role == SONDE_ROLE_BUFFER
                ? add_buffer(layer, param)
                : sonde__graph_layer_drawn(
                      layer, param->suffix, param->rank, param->dim, param->role,
                      (sonde__graph_param){.bound = param->bound,
                                           .constant = param->constant,
                                           .spread = param->spread,
                                           .blank_first = (size_t)param->blank_first,
                                           .blank = (size_t)param->blank});
    }
    return inputs + count;
}

sonde_nn_value sonde__graph_reduce_loss(sonde__graph_layer *layer,
                                        const sonde__op_attrs *attrs,
                                        sonde_nn_value losses)
{
    const int rank = sonde__graph_shape(layer->model, losses)->rank;
    const sonde__op_attrs all = {
        .reduce = {.axes = (1U << (unsigned)rank) - 1U,
                   .mean = attrs->reduction == SONDE__REDUCE_MEAN}};

    return losses == 0 || attrs->reduction == SONDE__REDUCE_NONE
               ? losses
               : sonde__graph_layer_op(layer, &sonde__op_reduce, &all, &losses, 1);
}

static sonde__op_value emit_op(const sonde__op_builder *builder,
                               const sonde__op_kind *kind, const sonde__op_attrs *attrs,
                               const sonde__op_value *in, int count)
{
    return sonde__graph_layer_op(builder->layer, kind, attrs, in, count);
}

sonde_nn_value sonde__graph_emit_row(sonde__graph_layer *layer,
                                     const sonde__op_layer *row, sonde__op_attrs *attrs,
                                     const sonde_nn_value *operands, int count)
{
    const sonde__op_graph *graph = &layer->model->graph;
    sonde_diag diag = {0};
    const sonde__op_builder builder = {
        .graph = graph, .layer = layer, .emit = emit_op, .diag = &diag};

    attrs->stream = graph->op_count;
    if (row->build == NULL) {
        return sonde__graph_layer_op(layer, row->kind, attrs, operands, count);
    }
    const sonde_nn_value out =
        graph->err == SONDE_OK ? row->build(&builder, attrs, operands) : 0;
    if (out == 0 && graph->err == SONDE_OK) {
        if (diag.err == SONDE_OK) {
            (void)sonde__fail(&diag, SONDE_EINVAL, NULL, "all inputs and tensors",
                              "%s with too few values", row->name);
        }
        (void)refuse(layer, &diag);
    }
    return out;
}

static sonde_nn_value build(sonde__graph_layer *layer, const sonde__op_layer *row,
                            const sonde_nn_value *in, int given,
                            const sonde_nn_setting *settings, size_t setting_count)
{
    sonde_nn_value operands[SONDE__MAX_OPERANDS + SONDE__MAX_PARAMS] = {0}, out = 0;
    sonde__op_attrs attrs;

    sonde__op_attrs_clear(&attrs);
    if (!sonde__graph_read_settings(layer, row, settings, setting_count, &attrs)) {
        return 0;
    }
    for (int i = 0; i < given; i++) {
        if (in[i] == 0 && i < row->inputs) {
            return sonde__graph_fail(&layer->model->graph, SONDE_EINVAL, place(layer),
                                     "a value of this model", "input %d is missing", i);
        }
        if (!sonde__graph_has_value(&layer->model->graph, layer->path, in[i])) {
            return 0;
        }
        operands[i] = in[i];
        sonde__graph_layer_input(layer, in[i]);
    }
    const int count = in[0] != 0 ? add_params(layer, row, &attrs, operands) : row->inputs;
    out = sonde__graph_emit_row(layer, row, &attrs, operands, count);
    return row->reduces ? sonde__graph_reduce_loss(layer, &attrs, out) : out;
}

sonde_nn_value sonde_nn_layer(sonde_nn_model *model, const char *kind, const char *name,
                              const sonde_nn_value *in, size_t count,
                              const sonde_nn_setting *settings, size_t setting_count)
{
    const sonde__op_layer *row = kind != NULL ? sonde__op_find_layer(kind) : NULL;
    sonde__graph_layer layer;

    if (!sonde__graph_layer_begin(model, &layer, name)) {
        return 0;
    }
    if (row == NULL) {
        return sonde__graph_fail(&model->graph, SONDE_EINVAL, layer.path,
                                 kind != NULL ? sonde__op_nearest_layer(kind) : NULL,
                                 "unknown layer '%s'", kind != NULL ? kind : "");
    }
    layer.kind = row->name;
    if (in == NULL || count < (size_t)row->inputs ||
        count > (size_t)(row->inputs + row->optional)) {
        char inputs[48];

        (void)snprintf(inputs, sizeof inputs, row->optional > 0 ? "%d to %d" : "%d",
                       row->inputs, row->inputs + row->optional);
        return sonde__graph_fail(&model->graph, SONDE_EINVAL, layer.path, inputs,
                                 "%s with %zu inputs", row->name, in != NULL ? count : 0);
    }
    if (settings == NULL && setting_count > 0) {
        return sonde__graph_fail(&model->graph, SONDE_EINVAL, layer.path, "a pointer",
                                 "settings is NULL");
    }
    return sonde__graph_layer_end(
        &layer, build(&layer, row, in, (int)count, settings, setting_count));
}

/* === layers ========================================================================= */

/* False: the model has an error, this or an earlier one. */
static bool take_options(sonde_nn_model *model, const char *layer, void *own, size_t size,
                         const void *given, const char *name)
{
    sonde_diag diag = {0};
    const sonde_err err = sonde__given_options(own, size, given, name, &diag);

    if (err == SONDE_OK) {
        return true;
    }
    if (model != NULL) {
        (void)sonde__graph_fail(&model->graph, err, layer, diag.expected, "%s of %s",
                                diag.found, name);
    }
    return false;
}

/* --- the dtype of layers ------------------------------------------------------------ */

void sonde_nn_begin_dtype(sonde_nn_model *model, sonde_dtype dtype)
{
    if (model == NULL) {
        return;
    }
    if (dtype != SONDE_F32 && !sonde__op_is_half(dtype)) {
        (void)sonde__graph_fail(&model->graph, SONDE_EDTYPE, "dtype",
                                "float32, bfloat16 or float16", "%s",
                                sonde_dtype_name(dtype));
        return;
    }
    model->graph.half = dtype;
}

void sonde_nn_end_dtype(sonde_nn_model *model)
{
    if (model != NULL) {
        model->graph.half = 0;
    }
}

/* --- layers with options ------------------------------------------------------------- */

/* A field of an option struct as a setting of the layer's row: one number, or two, of which
 * the second, unless both are EXACT, is as the first if it is 0. A field of 0 keeps the
 * row's default, unless it is REQUIRED. */
typedef struct own_field {
    const char *key;
    const int64_t *values;
    int count;
    enum { OPTIONAL, REQUIRED, EXACT } rule;
} own_field;

static sonde_nn_value build_layer(sonde_nn_model *model, const char *kind,
                                  const char *name, sonde_nn_value x,
                                  const own_field *fields, size_t count,
                                  const sonde_nn_setting *last)
{
    sonde_nn_setting settings[SONDE__MAX_FIELDS];
    size_t used = 0;

    for (size_t i = 0; i < count; i++) {
        const int64_t *values = fields[i].values;
        const int64_t second = fields[i].count > 1 ? values[1] : 0;

        if (values[0] != 0 || second != 0 || fields[i].rule == REQUIRED) {
            settings[used++] = (sonde_nn_setting){
                .key = fields[i].key,
                .values = {(double)values[0], (double)second},
                .count = second != 0 || fields[i].rule == EXACT ? 2 : 1};
        }
    }
    if (last->key != NULL) {
        settings[used++] = *last;
    }
    return sonde_nn_layer(model, kind, name, &x, 1, settings, used);
}

static sonde_nn_setting flag_unless(const char *key, bool off)
{
    return (sonde_nn_setting){.key = key, .values = {off ? 0.0 : 1.0}};
}

sonde_nn_value sonde_nn_conv2d(sonde_nn_model *model, const char *name, sonde_nn_value x,
                               const sonde_nn_conv2d_options *options)
{
    sonde_nn_conv2d_options own;

    if (!take_options(model, name, &own, sizeof own, options,
                      "sonde_nn_conv2d_options")) {
        return 0;
    }
    const own_field fields[] = {{"out_channels", &own.out_channels, 1, REQUIRED},
                                {"kernel_size", own.kernel_size, 2, REQUIRED},
                                {"stride", own.stride, 2, OPTIONAL},
                                {"padding", own.padding, 2, EXACT},
                                {"dilation", own.dilation, 2, OPTIONAL},
                                {"groups", &own.groups, 1, OPTIONAL}};
    const sonde_nn_setting bias = flag_unless("bias", own.no_bias);
    return build_layer(model, "conv2d", name, x, fields, SONDE_COUNT_OF(fields), &bias);
}

sonde_nn_value sonde_nn_linear(sonde_nn_model *model, const char *name, sonde_nn_value x,
                               const sonde_nn_linear_options *options)
{
    sonde_nn_linear_options own;

    if (!take_options(model, name, &own, sizeof own, options,
                      "sonde_nn_linear_options")) {
        return 0;
    }
    const own_field fields[] = {{"out_features", &own.out_features, 1, REQUIRED}};
    const sonde_nn_setting bias = flag_unless("bias", own.no_bias);
    return build_layer(model, "linear", name, x, fields, SONDE_COUNT_OF(fields), &bias);
}

sonde_nn_value sonde_nn_group_norm(sonde_nn_model *model, const char *name,
                                   sonde_nn_value x,
                                   const sonde_nn_group_norm_options *options)
{
    sonde_nn_group_norm_options own;

    if (!take_options(model, name, &own, sizeof own, options,
                      "sonde_nn_group_norm_options")) {
        return 0;
    }
    const sonde_nn_setting settings[] = {
        {.key = "num_groups", .values = {(double)own.num_groups}},
        flag_unless("affine", own.no_affine),
        {.key = "eps", .values = {(double)own.eps}}};
    return sonde_nn_layer(model, "group_norm", name, &x, 1, settings,
                          own.eps != 0.0F ? 3 : 2);
}

sonde_nn_value sonde_nn_max_pool2d(sonde_nn_model *model, const char *name,
                                   sonde_nn_value x,
                                   const sonde_nn_pool2d_options *options)
{
    sonde_nn_pool2d_options own;

    if (!take_options(model, name, &own, sizeof own, options,
                      "sonde_nn_pool2d_options")) {
        return 0;
    }
    const own_field fields[] = {{"kernel_size", own.kernel_size, 2, REQUIRED},
                                {"stride", own.stride, 2, OPTIONAL},
                                {"padding", own.padding, 2, EXACT},
                                {"dilation", own.dilation, 2, OPTIONAL}};
    return build_layer(model, "max_pool2d", name, x, fields, SONDE_COUNT_OF(fields),
                       &(sonde_nn_setting){.key = NULL});
}

/* --- layers without ----------------------------------------------------------------- */

/* A layer of one op. */
static sonde_nn_value one_op(sonde_nn_model *model, const char *name,
                             const sonde__op_kind *kind, const sonde__op_attrs *attrs,
                             const sonde_nn_value *in, int count)
{
    sonde__graph_layer layer;

    if (!sonde__graph_layer_begin(model, &layer, name)) {
        return 0;
    }
    for (int i = 0; i < count; i++) {
        sonde__graph_layer_input(&layer, in[i]);
    }
    return sonde__graph_layer_end(&layer,
                                  sonde__graph_layer_op(&layer, kind, attrs, in, count));
}

sonde_nn_value sonde_nn_relu(sonde_nn_model *model, const char *name, sonde_nn_value x)
{
    return one_op(model, name, &sonde__op_relu, NULL, &x, 1);
}

sonde_nn_value sonde_nn_softmax(sonde_nn_model *model, const char *name, sonde_nn_value x,
                                int axis)
{
    const sonde__op_attrs attrs = {.along = {.axis = axis}};

    return one_op(model, name, &sonde__op_softmax, &attrs, &x, 1);
}

sonde_nn_value sonde_nn_log_softmax(sonde_nn_model *model, const char *name,
                                    sonde_nn_value x, int axis)
{
    const sonde__op_attrs attrs = {.along = {.axis = axis}};

    return one_op(model, name, &sonde__op_log_softmax, &attrs, &x, 1);
}

sonde_nn_value sonde_nn_flatten(sonde_nn_model *model, const char *name, sonde_nn_value x,
                                int start_dim)
{
    return sonde_nn_layer(
        model, "flatten", name, &x, 1,
        &(sonde_nn_setting){.key = "start_dim", .values = {(double)start_dim}}, 1);
}

/* --- losses ------------------------------------------------------------------------- */

sonde_nn_value sonde_nn_nll_loss(sonde_nn_model *model, const char *name,
                                 sonde_nn_value log_probabilities, sonde_nn_value target)
{
    const sonde__op_attrs attrs = {.loss = {.mean = true}};
    const sonde_nn_value in[2] = {log_probabilities, target};

    return one_op(model, name, &sonde__op_nll, &attrs, in, 2);
}

/* Without options. */
static sonde_nn_value plain_cross_entropy(sonde_nn_model *model, const char *name,
                                          sonde_nn_value logits, sonde_nn_value target)
{
    sonde__graph_layer layer;
    const sonde__op_attrs softmax = {.along = {.axis = 1}},
                          nll = {.loss = {.mean = true}};
    sonde_nn_value in[2] = {0, target};

    if (!sonde__graph_layer_begin(model, &layer, name)) {
        return 0;
    }
    sonde__graph_layer_input(&layer, logits);
    sonde__graph_layer_input(&layer, target);
    in[0] = sonde__graph_layer_op(&layer, &sonde__op_log_softmax, &softmax, &logits, 1);
    return sonde__graph_layer_end(
        &layer, sonde__graph_layer_op(&layer, &sonde__op_nll, &nll, in, 2));
}

sonde_nn_value sonde__graph_function(sonde_nn_model *model, const sonde__op_kind *kind,
                                     const sonde__op_attrs *attrs, sonde_nn_value in)
{
    return one_op(model, NULL, kind, attrs, &in, 1);
}

static bool check_entropy(sonde__graph_layer *layer, const sonde_nn_value *in,
                          const sonde_nn_cross_entropy_options *options)
{
    sonde__op_graph *graph = &layer->model->graph;
    const sonde__op_shape *x = sonde__graph_shape(layer->model, in[0]);
    int axis = options->axis == 0 ? 1 : options->axis;

    if (!(options->label_smoothing >= 0.0F && options->label_smoothing <= 1.0F)) {
        (void)sonde__graph_fail(graph, SONDE_EINVAL, layer->path, "0 to 1",
                                "label_smoothing is %g",
                                (double)options->label_smoothing);
        return false;
    }
    if ((options->weight != NULL) != (options->weights != 0)) {
        (void)sonde__graph_fail(graph, SONDE_EINVAL, layer->path,
                                "weight and its count, weights", "%lld weights at %s",
                                (long long)options->weights,
                                options->weight != NULL ? "a pointer" : "NULL");
        return false;
    }
    axis += axis < 0 ? x->rank : 0;
    if (options->weights != 0 &&
        (axis < 0 || axis >= x->rank || x->dim[axis] != options->weights)) {
        (void)sonde__graph_fail(graph, SONDE_ESHAPE, layer->path,
                                "a weight for each class", "%lld weights",
                                (long long)options->weights);
        return false;
    }
    return true;
}

/* The buffer <name>.weight with the weights of the classes. */
static sonde_nn_value add_weights(sonde__graph_layer *layer,
                                  const sonde_nn_cross_entropy_options *options)
{
    const sonde__op_shape shape = {
        .dtype = SONDE_F32, .rank = 1, .dim = {options->weights}};
    const sonde_nn_value value = sonde__graph_layer_buffer(layer, "weight", &shape, 1.0F);
    sonde_nn_model *model = layer->model;

    for (size_t i = 0; i < model->buffer_count; i++) {
        if (value != 0 && model->buffers[i].value == value) {
            model->buffers[i].given = true;
            memcpy(model->buffers[i].data, options->weight,
                   (size_t)options->weights * sizeof(float));
        }
    }
    return value;
}

sonde_nn_value sonde_nn_cross_entropy(sonde_nn_model *model, const char *name,
                                      sonde_nn_value logits, sonde_nn_value target,
                                      const sonde_nn_cross_entropy_options *options)
{
    sonde_nn_cross_entropy_options taken;
    sonde__graph_layer layer;
    sonde__op_attrs softmax = {.along = {.axis = 1}};
    sonde__op_attrs nll = {.loss = {.mean = true}};
    sonde_nn_value in[3] = {logits, target, 0};
    int count = 2;

    if (options == NULL) {
        return plain_cross_entropy(model, name, logits, target);
    }
    if (!sonde__graph_layer_begin(model, &layer, name) ||
        !take_options(model, name, &taken, sizeof taken, options,
                      "sonde_nn_cross_entropy_options")) {
        return 0;
    }
    if (!check_entropy(&layer, in, &taken)) {
        return 0;
    }
    softmax.along.axis = taken.axis == 0 ? 1 : taken.axis;
    nll = (sonde__op_attrs){.loss = {.mean = !taken.sum,
                                     .axis = softmax.along.axis,
                                     .label_smoothing = taken.label_smoothing,
                                     .ignores = taken.ignores,
                                     .ignore_index = taken.ignore_index}};
    sonde__graph_layer_input(&layer, logits);
    sonde__graph_layer_input(&layer, target);
    if (taken.weight != NULL) {
        in[2] = add_weights(&layer, &taken);
        count = 3;
    }
    if (!taken.of_log_probabilities) {
        in[0] =
            sonde__graph_layer_op(&layer, &sonde__op_log_softmax, &softmax, &logits, 1);
    }
    return sonde__graph_layer_end(
        &layer, sonde__graph_layer_op(&layer, &sonde__op_nll_weighted, &nll, in, count));
}

/* --- functions ---------------------------------------------------------------------- */

sonde_nn_value sonde_nn_add(sonde_nn_model *model, const char *name, sonde_nn_value a,
                            sonde_nn_value b)
{
    const sonde_nn_value in[2] = {a, b};

    return one_op(model, name, &sonde__op_add, NULL, in, 2);
}

sonde_nn_value sonde_nn_reshape(sonde_nn_model *model, const char *name, sonde_nn_value x,
                                int rank, const int64_t *shape)
{
    sonde__op_attrs attrs = {.shape = {.rank = rank}};

    if (model == NULL) {
        return 0;
    }
    if (rank < 0 || rank > SONDE_MAX_DIMS) {
        return sonde__graph_fail(&model->graph, SONDE_ESHAPE,
                                 name != NULL ? name : "Reshape", "at most 8 dimensions",
                                 "%d dimensions", rank);
    }
    if (shape == NULL && rank > 0) {
        return sonde__graph_fail(&model->graph, SONDE_EINVAL,
                                 name != NULL ? name : "Reshape", "a pointer",
                                 "shape is NULL");
    }
    for (int i = 0; i < rank; i++) {
        attrs.shape.dims[i] = shape[i];
    }
    return one_op(model, name, &sonde__op_reshape, &attrs, &x, 1);
}

sonde_nn_value sonde_nn_print(sonde_nn_model *model, sonde_nn_value x, const char *title,
                              bool print_gradient, const sonde_print_options *options)
{
    sonde__op_graph *graph = NULL;
    const sonde_nn_value printed = one_op(model, NULL, &sonde__op_identity, NULL, &x, 1);
    sonde__graph_print_request request = {.value = printed, .gradient = print_gradient};

    if (printed == 0) {
        return 0;
    }
    graph = &model->graph;
    if (title != NULL && title[0] != '\0') {
        request.title = sonde__graph_string(graph, "%s", title);
    }
    request.options = sonde_print_options_default();
    if (options != NULL &&
        !take_options(model, title, &request.options, sizeof request.options, options,
                      "sonde_print_options")) {
        return 0;
    }
    if (!sonde__reserve(&graph->prints, &graph->print_capacity, graph->print_count + 1,
                        sizeof *graph->prints)) {
        return sonde__graph_fail(graph, SONDE_ENOMEM, NULL, NULL, "out of memory");
    }
    graph->prints[graph->print_count++] = request;
    return printed;
}

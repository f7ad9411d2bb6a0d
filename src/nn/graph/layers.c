/*
 * layers.c - the builder's layers and functions, with PyTorch's defaults.
 */
#include "nn/graph/layer.h"
#include "base/memory.h"
#include "base/given.h"

#include <math.h>
#include <string.h>

/* The options of a caller who gave none: what is required is missing from them. */

static int64_t or_default(int64_t value, int64_t fallback)
{
    return value != 0 ? value : fallback;
}

/* (a, b) with 0 standing for the default, and b for a. */
static void pair(int64_t target[2], const int64_t source[2], int64_t fallback)
{
    target[0] = or_default(source[0], fallback);
    target[1] = or_default(source[1], target[0]);
}

/* The bound of PyTorch's default for conv and linear: kaiming_uniform with a = sqrt(5) is
 * uniform in +-sqrt(6 / ((1 + a^2) fan_in)) = +-1/sqrt(fan_in), and so is the bias. */
static float fan_in_bound(double fan_in)
{
    return (float)(1.0 / sqrt(fan_in));
}

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

/* --- layers with parameters --------------------------------------------------------- */

sonde_nn_value sonde_nn_conv2d(sonde_nn_model *model, const char *name, sonde_nn_value x,
                               const sonde_nn_conv2d_options *given)
{
    sonde_nn_conv2d_options taken;
    const sonde_nn_conv2d_options *const options = &taken;
    sonde__graph_layer layer;
    sonde__op_attrs attrs = {0};
    const sonde__op_shape *shape = sonde__graph_shape(model, x);
    sonde_nn_value in[3] = {x, 0, 0};

    if (!sonde__graph_layer_begin(model, &layer, name)) {
        return 0;
    }
    layer.kind = "conv2d";
    if (!take_options(model, name, &taken, sizeof taken, given,
                      "sonde_nn_conv2d_options")) {
        return 0;
    }
    attrs.groups = or_default(options->groups, 1);
    (void)sonde__graph_has_value(&model->graph, layer.path, x); /* else the first error */
    pair(attrs.kernel, options->kernel, 0);
    pair(attrs.stride, options->stride, 1);
    attrs.padding[0] = options->padding[0];
    attrs.padding[1] = options->padding[1];
    pair(attrs.dilation, options->dilation, 1);
    if (options->out < 1 || attrs.kernel[0] < 1 || attrs.kernel[1] < 1 ||
        attrs.groups < 1) {
        (void)sonde__graph_fail(
            &model->graph, SONDE_EINVAL, layer.path,
            "out, kernel and groups of at least 1",
            "a conv2d with out %lld, kernel (%lld, %lld), groups %lld",
            (long long)options->out, (long long)attrs.kernel[0],
            (long long)attrs.kernel[1], (long long)attrs.groups);
    } else if (x != 0 && (shape->rank != 4 || shape->dim[1] % attrs.groups != 0)) {
        char text[96];

        (void)sonde__graph_fail(
            &model->graph, SONDE_ESHAPE, layer.path,
            "(N, C, H, W) with C divisible by groups", "a conv2d over %s in %lld groups",
            sonde_shape_text(shape->rank, shape->dim, text, sizeof text),
            (long long)attrs.groups);
    } else if (x != 0) {
        const int64_t dim[4] = {options->out, shape->dim[1] / attrs.groups,
                                attrs.kernel[0], attrs.kernel[1]};
        const float bound =
            fan_in_bound((double)dim[1] * (double)dim[2] * (double)dim[3]);

        in[1] = sonde__graph_layer_param(&layer, "weight", 4, dim, SONDE_ROLE_WEIGHT,
                                         bound, 0.0F);
        if (!options->no_bias) {
            in[2] = sonde__graph_layer_param(&layer, "bias", 1, dim, SONDE_ROLE_BIAS,
                                             bound, 0.0F);
        }
    }
    sonde__graph_layer_input(&layer, x);
    return sonde__graph_layer_end(&layer,
                                  sonde__graph_layer_op(&layer, &sonde__op_conv2d, &attrs,
                                                        in, options->no_bias ? 2 : 3));
}

/* The op over (N, K); of more dimensions all but the last are folded into the first. */
static sonde_nn_value linear_op(sonde__graph_layer *layer, sonde_nn_value *in, int count)
{
    const sonde__op_shape x = *sonde__graph_shape(layer->model, in[0]);
    const int last = x.rank - 1;
    sonde__op_attrs rows = {.rank = 2, .dims = {-1}},
                    back = {.rank = x.rank, .dims = {-1}};

    if (x.rank <= 2) {
        return sonde__graph_layer_op(layer, &sonde__op_linear, NULL, in, count);
    }
    rows.dims[1] = x.dim[last];
    in[0] = sonde__graph_layer_op(layer, &sonde__op_reshape, &rows, in, 1);
    sonde_nn_value y =
        in[0] == 0 ? 0 : sonde__graph_layer_op(layer, &sonde__op_linear, NULL, in, count);
    if (y == 0) {
        return 0;
    }
    for (int i = 1; i < last; i++) {
        back.dims[i] = x.dim[i];
    }
    back.dims[last] = sonde__graph_shape(layer->model, y)->dim[1];
    return sonde__graph_layer_op(layer, &sonde__op_reshape, &back, &y, 1);
}

sonde_nn_value sonde_nn_linear(sonde_nn_model *model, const char *name, sonde_nn_value x,
                               const sonde_nn_linear_options *given)
{
    sonde_nn_linear_options taken;
    const sonde_nn_linear_options *const options = &taken;
    sonde__graph_layer layer;
    const sonde__op_shape *shape = sonde__graph_shape(model, x);
    sonde_nn_value in[3] = {x, 0, 0};

    if (!sonde__graph_layer_begin(model, &layer, name)) {
        return 0;
    }
    layer.kind = "linear";
    if (!take_options(model, name, &taken, sizeof taken, given,
                      "sonde_nn_linear_options")) {
        return 0;
    }
    (void)sonde__graph_has_value(&model->graph, layer.path, x); /* else the first error */
    if (options->out < 1) {
        (void)sonde__graph_fail(&model->graph, SONDE_EINVAL, layer.path, "at least 1",
                                "a linear layer with out %lld", (long long)options->out);
    } else if (x != 0 && shape->rank < 2) {
        char text[96];

        (void)sonde__graph_fail(
            &model->graph, SONDE_ESHAPE, layer.path, "(N, ..., features)",
            "a linear layer over %s",
            sonde_shape_text(shape->rank, shape->dim, text, sizeof text));
    } else if (x != 0) {
        const int64_t dim[2] = {options->out, shape->dim[shape->rank - 1]};
        const float bound = fan_in_bound((double)dim[1]);

        in[1] = sonde__graph_layer_param(&layer, "weight", 2, dim, SONDE_ROLE_WEIGHT,
                                         bound, 0.0F);
        if (!options->no_bias) {
            in[2] = sonde__graph_layer_param(&layer, "bias", 1, dim, SONDE_ROLE_BIAS,
                                             bound, 0.0F);
        }
    }
    sonde__graph_layer_input(&layer, x);
    return sonde__graph_layer_end(&layer,
                                  linear_op(&layer, in, options->no_bias ? 2 : 3));
}

sonde_nn_value sonde_nn_group_norm(sonde_nn_model *model, const char *name,
                                   sonde_nn_value x,
                                   const sonde_nn_group_norm_options *given)
{
    sonde_nn_group_norm_options taken;
    const sonde_nn_group_norm_options *const options = &taken;
    sonde__graph_layer layer;
    sonde__op_attrs attrs = {0};
    const sonde__op_shape *shape = sonde__graph_shape(model, x);
    sonde_nn_value in[3] = {x, 0, 0};

    if (!sonde__graph_layer_begin(model, &layer, name)) {
        return 0;
    }
    layer.kind = "group_norm";
    if (!take_options(model, name, &taken, sizeof taken, given,
                      "sonde_nn_group_norm_options")) {
        return 0;
    }
    if (!(options->eps >= 0.0F) || isinf(options->eps)) {
        (void)sonde__graph_fail(&model->graph, SONDE_EINVAL, layer.path,
                                "0 (1e-5) or more", "eps is %g", (double)options->eps);
        return 0;
    }
    attrs.groups = options->groups;
    attrs.eps = options->eps > 0.0F ? options->eps : 1e-5F;
    if (!options->no_affine && x != 0 && shape->rank >= 2) {
        const int64_t dim[1] = {shape->dim[1]};

        in[1] = sonde__graph_layer_param(&layer, "weight", 1, dim, SONDE_ROLE_WEIGHT,
                                         0.0F, 1.0F);
        in[2] =
            sonde__graph_layer_param(&layer, "bias", 1, dim, SONDE_ROLE_BIAS, 0.0F, 0.0F);
    }
    sonde__graph_layer_input(&layer, x);
    return sonde__graph_layer_end(
        &layer, sonde__graph_layer_op(&layer, &sonde__op_group_norm, &attrs, in,
                                      options->no_affine ? 1 : 3));
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

sonde_nn_value sonde_nn_max_pool2d(sonde_nn_model *model, const char *name,
                                   sonde_nn_value x, const sonde_nn_pool2d_options *given)
{
    sonde_nn_pool2d_options taken;
    const sonde_nn_pool2d_options *const options = &taken;
    sonde__op_attrs attrs = {0};

    if (!take_options(model, name, &taken, sizeof taken, given,
                      "sonde_nn_pool2d_options")) {
        return 0;
    }
    pair(attrs.kernel, options->kernel, 0);
    attrs.stride[0] = or_default(options->stride[0], attrs.kernel[0]);
    attrs.stride[1] =
        or_default(options->stride[1],
                   options->stride[0] != 0 ? options->stride[0] : attrs.kernel[1]);
    attrs.padding[0] = options->padding[0];
    attrs.padding[1] = options->padding[1];
    pair(attrs.dilation, options->dilation, 1);
    return one_op(model, name, &sonde__op_max_pool2d, &attrs, &x, 1);
}

sonde_nn_value sonde_nn_relu(sonde_nn_model *model, const char *name, sonde_nn_value x)
{
    return one_op(model, name, &sonde__op_relu, NULL, &x, 1);
}

sonde_nn_value sonde_nn_sigmoid(sonde_nn_model *model, const char *name, sonde_nn_value x)
{
    return one_op(model, name, &sonde__op_sigmoid, NULL, &x, 1);
}

sonde_nn_value sonde_nn_tanh(sonde_nn_model *model, const char *name, sonde_nn_value x)
{
    return one_op(model, name, &sonde__op_tanh, NULL, &x, 1);
}

sonde_nn_value sonde_nn_softmax(sonde_nn_model *model, const char *name, sonde_nn_value x,
                                int axis)
{
    const sonde__op_attrs attrs = {.axis = axis};

    return one_op(model, name, &sonde__op_softmax, &attrs, &x, 1);
}

sonde_nn_value sonde_nn_log_softmax(sonde_nn_model *model, const char *name,
                                    sonde_nn_value x, int axis)
{
    const sonde__op_attrs attrs = {.axis = axis};

    return one_op(model, name, &sonde__op_log_softmax, &attrs, &x, 1);
}

sonde_nn_value sonde_nn_flatten(sonde_nn_model *model, const char *name, sonde_nn_value x,
                                int first_axis)
{
    const sonde__op_shape *shape = sonde__graph_shape(model, x);
    sonde__op_attrs attrs = {0};
    const int axis = first_axis < 0 ? first_axis + shape->rank : first_axis;

    if (model == NULL) {
        return 0;
    }
    if (axis < 0 || axis >= (x != 0 ? shape->rank : SONDE_MAX_DIMS)) {
        return sonde__graph_fail(&model->graph, SONDE_EINVAL,
                                 name != NULL ? name : "Flatten", "an axis of the input",
                                 "axis %d of a tensor of rank %d", first_axis,
                                 shape->rank);
    }
    attrs.rank = axis + 1;
    attrs.dims[axis] = -1; /* the dimensions before are 0: copied */
    return one_op(model, name, &sonde__op_reshape, &attrs, &x, 1);
}

/* --- losses ------------------------------------------------------------------------- */

sonde_nn_value sonde_nn_nll_loss(sonde_nn_model *model, const char *name,
                                 sonde_nn_value log_probabilities, sonde_nn_value target)
{
    const sonde__op_attrs attrs = {.mean = true};
    const sonde_nn_value in[2] = {log_probabilities, target};

    return one_op(model, name, &sonde__op_nll, &attrs, in, 2);
}

sonde_nn_value sonde_nn_cross_entropy(sonde_nn_model *model, const char *name,
                                      sonde_nn_value logits, sonde_nn_value target)
{
    sonde__graph_layer layer;
    const sonde__op_attrs softmax = {.axis = 1}, nll = {.mean = true};
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
    axis += axis < 0 ? x->rank : 0;
    if (options->weights > 0 &&
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

sonde_nn_value sonde_nn_cross_entropy_with(sonde_nn_model *model, const char *name,
                                           sonde_nn_value logits, sonde_nn_value target,
                                           const sonde_nn_cross_entropy_options *options)
{
    sonde_nn_cross_entropy_options taken;
    sonde__graph_layer layer;
    sonde__op_attrs softmax = {.axis = 1};
    sonde__op_attrs nll = {.mean = true};
    sonde_nn_value in[3] = {logits, target, 0};
    int count = 2;

    if (!sonde__graph_layer_begin(model, &layer, name) ||
        !take_options(model, name, &taken, sizeof taken, options,
                      "sonde_nn_cross_entropy_options")) {
        return 0;
    }
    if (!check_entropy(&layer, in, &taken)) {
        return 0;
    }
    softmax.axis = taken.axis == 0 ? 1 : taken.axis;
    nll = (sonde__op_attrs){.mean = !taken.sum,
                            .axis = softmax.axis,
                            .number = {taken.label_smoothing},
                            .choice = taken.ignores ? 1 : 0,
                            .groups = taken.ignore_index};
    sonde__graph_layer_input(&layer, logits);
    sonde__graph_layer_input(&layer, target);
    if (taken.weight != NULL && taken.weights > 0) {
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

sonde_nn_value sonde_nn_mul(sonde_nn_model *model, const char *name, sonde_nn_value a,
                            sonde_nn_value b)
{
    const sonde_nn_value in[2] = {a, b};

    return one_op(model, name, &sonde__op_mul, NULL, in, 2);
}

sonde_nn_value sonde_nn_reshape(sonde_nn_model *model, const char *name, sonde_nn_value x,
                                int rank, const int64_t *shape)
{
    sonde__op_attrs attrs = {.rank = rank};

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
        attrs.dims[i] = shape[i];
    }
    return one_op(model, name, &sonde__op_reshape, &attrs, &x, 1);
}

sonde_nn_value sonde_nn_transpose(sonde_nn_model *model, const char *name,
                                  sonde_nn_value x, const int *permutation)
{
    sonde__op_attrs attrs = {.rank = sonde__graph_shape(model, x)->rank};

    if (permutation == NULL) {
        return model == NULL ? 0
                             : sonde__graph_fail(&model->graph, SONDE_EINVAL,
                                                 name != NULL ? name : "Transpose",
                                                 "a pointer", "permutation is NULL");
    }
    for (int i = 0; i < attrs.rank; i++) {
        attrs.dims[i] = permutation[i];
    }
    return one_op(model, name, &sonde__op_transpose, &attrs, &x, 1);
}

static sonde_nn_value reduce(sonde_nn_model *model, const char *name, sonde_nn_value x,
                             const int *axes, int count, bool keep_dims, bool mean)
{
    const int rank = sonde__graph_shape(model, x)->rank;
    sonde__op_attrs attrs = {.keep_dims = keep_dims, .mean = mean};

    if (model == NULL) {
        return 0;
    }
    if (count < 0 || (count > 0 && axes == NULL)) {
        return sonde__graph_fail(&model->graph, SONDE_EINVAL,
                                 name != NULL ? name : "Reduce", "a list of axes",
                                 "%d axes%s", count, axes == NULL ? " at NULL" : "");
    }
    for (int i = 0; i < count; i++) {
        const int axis = axes[i] < 0 ? axes[i] + rank : axes[i];

        if (x != 0 && (axis < 0 || axis >= rank)) {
            return sonde__graph_fail(
                &model->graph, SONDE_EINVAL, name != NULL ? name : "Reduce",
                "an axis of the input", "axis %d of a tensor of rank %d", axes[i], rank);
        }
        attrs.axes |= 1U << (unsigned)(axis & 31);
    }
    if (count == 0) {
        attrs.axes = (1U << (unsigned)rank) - 1U;
    }
    return one_op(model, name, &sonde__op_reduce, &attrs, &x, 1);
}

sonde_nn_value sonde_nn_sum(sonde_nn_model *model, const char *name, sonde_nn_value x,
                            const int *axes, int count, bool keep_dims)
{
    return reduce(model, name, x, axes, count, keep_dims, false);
}

sonde_nn_value sonde_nn_mean(sonde_nn_model *model, const char *name, sonde_nn_value x,
                             const int *axes, int count, bool keep_dims)
{
    return reduce(model, name, x, axes, count, keep_dims, true);
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

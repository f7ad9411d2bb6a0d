/*
 * onnx_write_layers.c - products, convolutions, pools, norms, embeddings and losses of
 * classes as nodes of ONNX.
 */
#include "base/macros.h"
#include "nn/onnx/onnx_file.h"
#include "nn/onnx/onnx_write.h"

#include <string.h>

static int rank_of(const sonde__onnx_writer *w, int i)
{
    return sonde__onnx_operand_shape(w, i)->rank;
}

static int64_t dim_of(const sonde__onnx_writer *w, int i, int dim)
{
    return sonde__onnx_operand_shape(w, i)->dim[dim];
}

/* --- products ---------------------------------------------------------------------------- */

static bool write_linear(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    (void)a;
    sonde__onnx_set_int(w, "transB", 1);
    return sonde__onnx_end_all(w, "Gemm");
}

/* With its last two dimensions swapped. */
static const char *swapped(sonde__onnx_writer *w, int i)
{
    int64_t order[SONDE_MAX_DIMS];
    const int rank = rank_of(w, i);

    for (int k = 0; k < rank; k++) {
        order[k] = k < rank - 2 ? k : 2 * rank - 3 - k;
    }
    return sonde__onnx_turned(w, sonde__onnx_operand(w, i), order, rank);
}

static bool write_matmul(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    const char *first = (a->choice & 1) != 0 ? swapped(w, 0) : sonde__onnx_operand(w, 0);
    const char *second = (a->choice & 2) != 0 ? swapped(w, 1) : sonde__onnx_operand(w, 1);
    const char *product = NULL;

    if (a->scale == 0.0F || a->scale == 1.0F) {
        return SONDE__ONNX_END(w, "MatMul", first, second);
    }
    product = SONDE__ONNX_STEP(w, "MatMul", first, second);
    return SONDE__ONNX_END(w, "Mul", product, sonde__onnx_scalar(w, (double)a->scale));
}

static bool write_scale(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    return SONDE__ONNX_END(w, "Mul", sonde__onnx_operand(w, 0),
                           sonde__onnx_scalar(w, (double)a->scale));
}

/* --- windows ----------------------------------------------------------------------------- */

static void set_window(sonde__onnx_writer *w, const sonde__op_attrs *a,
                       const int64_t *kernel)
{
    const int64_t pads[] = {a->padding[0], a->padding[1], a->padding[0], a->padding[1]};

    sonde__onnx_set_ints(w, "kernel_shape", kernel, 2);
    sonde__onnx_set_ints(w, "strides", a->stride, 2);
    sonde__onnx_set_ints(w, "pads", pads, 4);
}

static bool write_conv(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    set_window(w, a, sonde__onnx_operand_shape(w, 1)->dim + 2);
    sonde__onnx_set_ints(w, "dilations", a->dilation, 2);
    sonde__onnx_set_int(w, "group", a->groups);
    return sonde__onnx_end_all(w, "Conv");
}

static bool write_conv_transpose(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    set_window(w, a, sonde__onnx_operand_shape(w, 1)->dim + 2);
    sonde__onnx_set_ints(w, "dilations", a->dilation, 2);
    sonde__onnx_set_ints(w, "output_padding", a->dims, 2);
    sonde__onnx_set_int(w, "group", a->groups);
    return sonde__onnx_end_all(w, "ConvTranspose");
}

static bool write_max_pool(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    if (w->needed[1]) {
        return false; /* places within windows */
    }
    set_window(w, a, a->kernel);
    sonde__onnx_set_ints(w, "dilations", a->dilation, 2);
    return sonde__onnx_end_all(w, "MaxPool");
}

static bool write_avg_pool(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    set_window(w, a, a->kernel);
    sonde__onnx_set_int(w, "count_include_pad", a->include_pad);
    return sonde__onnx_end_all(w, "AveragePool");
}

/* Window i of so many along an axis, which they share as equally as they can. */
static const char *window_of(sonde__onnx_writer *w, const char *x, int axis,
                             int64_t extent, int64_t count, int64_t i, const char *reduce)
{
    const char *part = sonde__onnx_cut(w, x, axis, i * extent / count,
                                       ((i + 1) * extent + count - 1) / count);

    return SONDE__ONNX_STEP(w, reduce, part, sonde__onnx_single(w, axis));
}

/* The windows of x along an axis, each reduced to one place; NULL: too many. */
static const char *windows_of(sonde__onnx_writer *w, const char *x, int axis,
                              int64_t extent, int64_t count, const char *reduce)
{
    enum { MOST = 24 };
    const char *parts[MOST];

    if (count > MOST) {
        return NULL;
    }
    for (int64_t i = 0; i < count; i++) {
        parts[i] = window_of(w, x, axis, extent, count, i, reduce);
    }
    sonde__onnx_set_int(w, "axis", axis);
    return sonde__onnx_step(w, "Concat", 0, parts, (size_t)count);
}

/* x (N, C, H, W) in (h, w) windows: a pool where they are alike. NULL: too many. */
static const char *adaptive(sonde__onnx_writer *w, const char *x,
                            const sonde__op_shape *shape, const int64_t *count,
                            const char *pool, const char *reduce)
{
    const int64_t *extent = shape->dim + 2;

    if (extent[0] % count[0] == 0 && extent[1] % count[1] == 0) {
        const int64_t size[] = {extent[0] / count[0], extent[1] / count[1]};

        sonde__onnx_set_ints(w, "kernel_shape", size, 2);
        sonde__onnx_set_ints(w, "strides", size, 2);
        return SONDE__ONNX_STEP(w, pool, x);
    }
    x = windows_of(w, x, 2, extent[0], count[0], reduce);
    return x == NULL ? NULL : windows_of(w, x, 3, extent[1], count[1], reduce);
}

static bool write_adaptive_pool(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    const char *y = NULL;

    if (a->kernel[0] == 1 && a->kernel[1] == 1) {
        return sonde__onnx_end_all(w, "GlobalAveragePool");
    }
    y = adaptive(w, sonde__onnx_operand(w, 0), sonde__onnx_operand_shape(w, 0), a->kernel,
                 "AveragePool", "ReduceMean");
    return y != NULL && SONDE__ONNX_END(w, "Identity", y);
}

/* --- adaptive_max_pool2d ------------------------------------------------------------------ */

/* The op that makes a value; NULL: none. */
static const sonde__graph_node_op *maker_of(const sonde__onnx_writer *w,
                                            sonde__op_value value)
{
    const sonde__op_graph *graph = &w->model->graph;

    for (size_t i = 0; i < graph->op_count; i++) {
        if (graph->ops[i].kind != NULL && graph->ops[i].out[0] == value) {
            return &graph->ops[i];
        }
    }
    return NULL;
}

/* What a value is another shape of. */
static sonde__op_value unshaped(const sonde__onnx_writer *w, sonde__op_value value)
{
    const sonde__graph_node_op *op = maker_of(w, value);

    while (op != NULL && strcmp(op->kind->name, "Reshape") == 0) {
        value = op->in[0];
        op = maker_of(w, value);
    }
    return value;
}

/* Whether the op takes from x, under another shape, the largest element of windows of x:
 * which op names their places, or NULL. */
static const sonde__graph_node_op *windows_that(const sonde__onnx_writer *w,
                                                const sonde__graph_node_op *gather)
{
    const sonde__graph_node_op *places = maker_of(w, gather->in[1]);

    return places != NULL && strcmp(places->kind->name, "ArgWindow") == 0 &&
                   unshaped(w, gather->in[0]) == unshaped(w, places->in[0])
               ? places
               : NULL;
}

/* Places of the largest elements are not written, their elements are. */
static bool write_arg_window(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    const sonde__op_graph *graph = &w->model->graph;

    (void)a;
    for (size_t i = 0; i < graph->output_count; i++) {
        if (graph->outputs[i] == w->op->out[0]) {
            return false;
        }
    }
    for (size_t i = 0; i < graph->op_count; i++) {
        const sonde__graph_node_op *op = &graph->ops[i];

        for (int k = 0; op->kind != NULL && k < op->in_count; k++) {
            if (op->in[k] == w->op->out[0] &&
                (strcmp(op->kind->name, "Gather") != 0 || windows_that(w, op) == NULL)) {
                return false;
            }
        }
    }
    return true;
}

static bool write_gather(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    static const int64_t flat[] = {0, 0, -1};
    const sonde__graph_node_op *windows = windows_that(w, w->op);
    const char *y = NULL;

    if (windows != NULL) {
        y = adaptive(w, sonde__onnx_value_name(w, windows->in[0]),
                     &w->model->graph.values[windows->in[0]].shape, windows->attrs.kernel,
                     "MaxPool", "ReduceMax");
        return y != NULL &&
               SONDE__ONNX_END(w, "Reshape", y, sonde__onnx_integers(w, flat, 3));
    }
    sonde__onnx_set_int(w, "axis", a->axis);
    return sonde__onnx_end_all(w, rank_of(w, 1) == rank_of(w, 0) ? "GatherElements"
                                                                 : "Gather");
}

/* --- norms ------------------------------------------------------------------------------- */

/* (x - mean) / sqrt(var + eps) over axes, which stay as 1; without the mean: of an RMS
 * norm. */
static const char *normal(sonde__onnx_writer *w, const char *x, const int64_t *axes,
                          int count, float eps, bool centred)
{
    const char *all = sonde__onnx_integers(w, axes, count), *spread = NULL;

    if (centred) {
        x = SONDE__ONNX_STEP(w, "Sub", x, SONDE__ONNX_STEP(w, "ReduceMean", x, all));
    }
    spread = SONDE__ONNX_STEP(w, "Mul", x, x);
    spread = SONDE__ONNX_STEP(w, "ReduceMean", spread, all);
    spread = SONDE__ONNX_STEP(w, "Add", spread, sonde__onnx_scalar(w, (double)eps));
    spread = SONDE__ONNX_STEP(w, "Sqrt", spread);
    return SONDE__ONNX_STEP(w, "Div", x, spread);
}

/* A vector of the channels, for x (N, C, ...). */
static const char *beside_channels(sonde__onnx_writer *w, int i, int rank)
{
    int64_t dims[SONDE_MAX_DIMS];

    for (int k = 1; k < rank; k++) {
        dims[k - 1] = k == 1 ? -1 : 1;
    }
    return rank <= 2 ? sonde__onnx_operand(w, i)
                     : sonde__onnx_reshaped(w, sonde__onnx_operand(w, i), dims, rank - 1);
}

/* y times the weight and plus the bias of each channel, where they are inputs. */
static bool end_channels(sonde__onnx_writer *w, const char *y, int weight, int bias)
{
    const int rank = rank_of(w, 0);

    if (weight > 0 && sonde__onnx_has_operand(w, weight)) {
        y = SONDE__ONNX_STEP(w, "Mul", y, beside_channels(w, weight, rank));
    }
    if (bias > 0 && sonde__onnx_has_operand(w, bias)) {
        y = SONDE__ONNX_STEP(w, "Add", y, beside_channels(w, bias, rank));
    }
    return SONDE__ONNX_END(w, "Identity", y);
}

/* Of running statistics alone, or of those of the batch. */
static bool write_batch_norm(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    const int rank = rank_of(w, 0), mean = a->affine ? 3 : 1;
    int64_t axes[SONDE_MAX_DIMS] = {0};
    const char *x = sonde__onnx_operand(w, 0), *spread = NULL;

    if (a->affine && a->track) {
        sonde__onnx_set_float(w, "epsilon", (double)a->eps);
        return SONDE__ONNX_END(w, "BatchNormalization", x, sonde__onnx_operand(w, 1),
                               sonde__onnx_operand(w, 2), sonde__onnx_operand(w, 3),
                               sonde__onnx_operand(w, 4));
    }
    if (a->track) {
        spread = SONDE__ONNX_STEP(w, "Add", beside_channels(w, mean + 1, rank),
                                  sonde__onnx_scalar(w, (double)a->eps));
        spread = SONDE__ONNX_STEP(w, "Sqrt", spread);
        x = SONDE__ONNX_STEP(w, "Sub", x, beside_channels(w, mean, rank));
        return SONDE__ONNX_END(w, "Div", x, spread);
    }
    for (int k = 2; k < rank; k++) {
        axes[k - 1] = k;
    }
    x = normal(w, x, axes, rank - 1, a->eps, true);
    return end_channels(w, x, a->affine ? 1 : 0, a->affine ? 2 : 0);
}

/* Groups of channels; ONNX has no form without weights. */
static bool write_group_norm(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    static const int64_t last[] = {2};
    const int64_t groups[] = {0, a->groups, -1};
    const bool instance = strcmp(w->op->kind->name, "InstanceNorm") == 0;
    const char *x = sonde__onnx_operand(w, 0), *shape = NULL;

    if (w->needed[1] || w->needed[2]) {
        return false; /* the mean and the spread */
    }
    if (sonde__onnx_has_operand(w, 1) && sonde__onnx_has_operand(w, 2)) {
        if (!instance) {
            sonde__onnx_set_int(w, "num_groups", a->groups);
        }
        sonde__onnx_set_float(w, "epsilon", (double)a->eps);
        return sonde__onnx_end_all(w, instance ? "InstanceNormalization"
                                               : "GroupNormalization");
    }
    shape = SONDE__ONNX_STEP(w, "Shape", x);
    x = normal(w, sonde__onnx_reshaped(w, x, groups, 3), last, 1, a->eps, true);
    return end_channels(w, SONDE__ONNX_STEP(w, "Reshape", x, shape), 1, 2);
}

static bool write_row_norm(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    const bool centred = strcmp(w->op->kind->name, "LayerNorm") == 0;
    int64_t axes[SONDE_MAX_DIMS];
    const char *y = NULL;

    if (w->needed[1] || w->needed[2]) {
        return false;
    }
    if (centred && sonde__onnx_has_operand(w, 1)) {
        sonde__onnx_set_int(w, "axis", -a->rank);
        sonde__onnx_set_float(w, "epsilon", (double)a->eps);
        return sonde__onnx_end_all(w, "LayerNormalization");
    }
    for (int k = 0; k < a->rank; k++) {
        axes[k] = k - a->rank;
    }
    y = normal(w, sonde__onnx_operand(w, 0), axes, a->rank, a->eps, centred);
    return sonde__onnx_has_operand(w, 1)
               ? SONDE__ONNX_END(w, "Mul", y, sonde__onnx_operand(w, 1))
               : SONDE__ONNX_END(w, "Identity", y);
}

static bool write_softmax(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    sonde__onnx_set_int(w, "axis", a->axis);
    return sonde__onnx_end_all(w, w->op->kind->name);
}

static bool write_prelu(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    (void)a;
    return SONDE__ONNX_END(w, "PRelu", sonde__onnx_operand(w, 0),
                           dim_of(w, 1, 0) == 1 ? sonde__onnx_operand(w, 1)
                                                : beside_channels(w, 1, rank_of(w, 0)));
}

static bool write_channel_add(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    (void)a;
    return SONDE__ONNX_END(w, "Add", sonde__onnx_operand(w, 0),
                           beside_channels(w, 1, rank_of(w, 0)));
}

/* --- tables ------------------------------------------------------------------------------ */

static bool write_embedding(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    (void)a;
    return SONDE__ONNX_END(w, "Gather", sonde__onnx_operand(w, 1),
                           sonde__onnx_operand(w, 0));
}

/* Whether each id of a bag takes part: (N, L, 1); NULL: all do. */
static const char *parts_of(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    const int64_t padding = (int64_t)a->number[0];
    const char *parts = NULL;

    if (a->number[0] < 0.0F) {
        return NULL;
    }
    parts = SONDE__ONNX_STEP(w, "Equal", sonde__onnx_operand(w, 0),
                             sonde__onnx_single(w, padding));
    parts = SONDE__ONNX_STEP(w, "Not", parts);
    return SONDE__ONNX_STEP(w, "Unsqueeze", parts, sonde__onnx_single(w, -1));
}

static bool write_embedding_bag(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    static const char *const reductions[] = {"ReduceMean", "ReduceSum", "ReduceMax"};
    const char *rows = SONDE__ONNX_STEP(w, "Gather", sonde__onnx_operand(w, 1),
                                        sonde__onnx_operand(w, 0));
    const char *parts = parts_of(w, a), *axis = sonde__onnx_single(w, 1), *count = NULL;
    const double least = -(double)__builtin_inff();

    if (parts == NULL) {
        sonde__onnx_set_int(w, "keepdims", 0);
        return SONDE__ONNX_END(w, reductions[a->choice], rows, axis);
    }
    rows = SONDE__ONNX_STEP(w, "Where", parts, rows,
                            sonde__onnx_scalar(w, a->choice == 2 ? least : 0.0));
    sonde__onnx_set_int(w, "keepdims", 0);
    rows = SONDE__ONNX_STEP(w, a->choice == 2 ? "ReduceMax" : "ReduceSum", rows, axis);
    sonde__onnx_set_int(w, "to", SONDE__ONNX_FLOAT);
    count = SONDE__ONNX_STEP(w, "Cast", parts);
    sonde__onnx_set_int(w, "keepdims", 0);
    count = SONDE__ONNX_STEP(w, "ReduceSum", count, axis);
    if (a->choice == 0) {
        count = SONDE__ONNX_STEP(w, "Max", count, sonde__onnx_scalar(w, 1.0));
        return SONDE__ONNX_END(w, "Div", rows, count);
    }
    count = SONDE__ONNX_STEP(w, "Greater", count, sonde__onnx_scalar(w, 0.0));
    return SONDE__ONNX_END(w, "Where", count, rows, sonde__onnx_scalar(w, 0.0));
}

/* --- classes ------------------------------------------------------------------------------ */

static bool write_number(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    const char *y = NULL;

    (void)a;
    sonde__onnx_set_int(w, "to", SONDE__ONNX_FLOAT);
    y = SONDE__ONNX_STEP(w, "Cast", sonde__onnx_operand(w, 0));
    return SONDE__ONNX_END(w, "Unsqueeze", y, sonde__onnx_single(w, 1));
}

static bool write_one_hot(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    static const int64_t off_and_on[] = {0, 1};
    const char *y = SONDE__ONNX_STEP(w, "OneHot", sonde__onnx_operand(w, 0),
                                     sonde__onnx_single(w, a->groups),
                                     sonde__onnx_integers(w, off_and_on, 2));

    sonde__onnx_set_int(w, "to", SONDE__ONNX_FLOAT);
    return SONDE__ONNX_END(w, "Cast", y);
}

static bool write_nll(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    const bool weighted = strcmp(w->op->kind->name, "NllWeighted") == 0;

    if (weighted && (a->axis != 1 || a->number[0] != 0.0F)) {
        return false; /* classes elsewhere, or smoothed labels */
    }
    if (weighted && a->choice == 1) {
        sonde__onnx_set_int(w, "ignore_index", a->groups);
    }
    sonde__onnx_set_text(w, "reduction", a->mean ? "mean" : "sum");
    return sonde__onnx_end_all(w, "NegativeLogLikelihoodLoss");
}

const sonde__onnx_written sonde__onnx_write_layers[] = {
    {"Linear", write_linear},
    {"MatMul", write_matmul},
    {"Scale", write_scale},
    {"Conv2d", write_conv},
    {"ConvTranspose2d", write_conv_transpose},
    {"MaxPool2d", write_max_pool},
    {"AvgPool2d", write_avg_pool},
    {"AdaptiveAvgPool2d", write_adaptive_pool},
    {"ArgWindow", write_arg_window},
    {"Gather", write_gather},
    {"BatchNorm", write_batch_norm},
    {"GroupNorm", write_group_norm},
    {"InstanceNorm", write_group_norm},
    {"LayerNorm", write_row_norm},
    {"RmsNorm", write_row_norm},
    {"Softmax", write_softmax},
    {"LogSoftmax", write_softmax},
    {"PRelu", write_prelu},
    {"ChannelAdd", write_channel_add},
    {"Embedding", write_embedding},
    {"EmbeddingBag", write_embedding_bag},
    {"Number", write_number},
    {"OneHot", write_one_hot},
    {"Nll", write_nll},
    {"NllWeighted", write_nll},
    {NULL, NULL},
};

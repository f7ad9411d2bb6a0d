/*
 * onnx_save.c - writes a network for inference as an ONNX file, opset 21.
 *
 * Only what leads to the outputs is written; the loss is not. The batch is open. Ops that
 * ONNX has become one node each, under their values' names; dropout becomes Identity.
 *
 * The graph is written field by field into one buffer, since every message begins with its
 * length: a node is made in a buffer of its own and then put into the graph's.
 */
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/whole_file.h"
#include "nn/graph/graph.h"
#include "nn/onnx/onnx_file.h"

#include <sonde/nn/onnx.h>

#include <stdio.h>
#include <string.h>

enum { OPSET = 21, IR_VERSION = 10, TRACKED = 5 };

/* --- the wire --------------------------------------------------------------------------- */

typedef struct buffer {
    unsigned char *bytes;
    size_t size, capacity;
    bool failed; /* memory is out */
} buffer;

static void put(buffer *b, const void *bytes, size_t size)
{
    if (size == 0 || b->failed) {
        return;
    }
    if (!sonde__reserve(&b->bytes, &b->capacity, b->size + size, 1)) {
        b->failed = true;
        return;
    }
    memcpy(b->bytes + b->size, bytes, size);
    b->size += size;
}

static void put_number(buffer *b, uint64_t number)
{
    unsigned char bytes[10];
    size_t count = 0;

    do {
        const unsigned char low = (unsigned char)(number & 0x7FU);

        number >>= 7U;
        bytes[count++] = (unsigned char)(low | (number != 0 ? 0x80U : 0U));
    } while (number != 0);
    put(b, bytes, count);
}

static void put_int(buffer *b, unsigned field, int64_t number)
{
    put_number(b, (uint64_t)field << 3U);
    put_number(b, (uint64_t)number);
}

static void put_bytes(buffer *b, unsigned field, const void *bytes, size_t size)
{
    put_number(b, ((uint64_t)field << 3U) | 2U);
    put_number(b, size);
    put(b, bytes, size);
}

static void put_text(buffer *b, unsigned field, const char *text)
{
    put_bytes(b, field, text, strlen(text));
}

/* Puts a message into another, and empties it. */
static void put_message(buffer *b, unsigned field, buffer *inner)
{
    b->failed = b->failed || inner->failed;
    put_bytes(b, field, inner->bytes, inner->size);
    inner->size = 0;
}

/* --- nodes ------------------------------------------------------------------------------ */

typedef struct writer {
    const sonde_nn_model *model;
    buffer graph, node, part;
    const sonde__graph_node_op *op; /* at hand */
    size_t extra;                   /* names made up */
} writer;

static const char *value_name(const writer *w, sonde__op_value value, char buf[32])
{
    const char *name = w->model->graph.values[value].name;

    if (name != NULL) {
        return name;
    }
    (void)snprintf(buf, 32, "value-%u", value);
    return buf;
}

static void add_input(writer *w, int i)
{
    char buf[32];

    put_text(&w->node, 1,
             i < w->op->in_count && w->op->in[i] != 0 ? value_name(w, w->op->in[i], buf)
                                                      : "");
}

static void add_inputs(writer *w, int count)
{
    for (int i = 0; i < count; i++) {
        add_input(w, i);
    }
}

static void begin_attribute(writer *w, const char *name, int type)
{
    put_text(&w->part, 1, name);
    put_int(&w->part, 20, type);
}

static void add_int(writer *w, const char *name, int64_t number)
{
    begin_attribute(w, name, SONDE__ONNX_A_INT);
    put_int(&w->part, 3, number);
    put_message(&w->node, 5, &w->part);
}

static void add_float(writer *w, const char *name, float number)
{
    begin_attribute(w, name, SONDE__ONNX_A_FLOAT);
    put_number(&w->part, (2U << 3U) | 5U);
    put(&w->part, &number, sizeof number); /* little-endian, as this machine is */
    put_message(&w->node, 5, &w->part);
}

static void add_ints(writer *w, const char *name, const int64_t *numbers, int count)
{
    begin_attribute(w, name, SONDE__ONNX_A_INTS);
    for (int i = 0; i < count; i++) {
        put_int(&w->part, 8, numbers[i]);
    }
    put_message(&w->node, 5, &w->part);
}

/* An initialiser of its own as the next input. */
static void add_constant(writer *w, int type, const void *data, size_t size,
                         int64_t count)
{
    char name[32];

    (void)snprintf(name, sizeof name, "constant-%zu", w->extra++);
    if (count > 0) {
        put_int(&w->part, 1, count);
    }
    put_int(&w->part, 2, type);
    put_text(&w->part, 8, name);
    put_bytes(&w->part, 9, data, size);
    put_message(&w->graph, 5, &w->part);
    put_text(&w->node, 1, name);
}

static void add_whole(writer *w, const int64_t *numbers, int count)
{
    add_constant(w, SONDE__ONNX_INT64, numbers, (size_t)count * sizeof *numbers, count);
}

/* --- ops --------------------------------------------------------------------------------- */

/* The name of the ONNX op, after its inputs and attributes are added; NULL: ONNX has none
 * like it. */
typedef const char *(*write_op)(writer *w, const sonde__op_attrs *a);

static void add_window(writer *w, const sonde__op_attrs *a, const int64_t *kernel)
{
    const int64_t pads[] = {a->padding[0], a->padding[1], a->padding[0], a->padding[1]};

    add_ints(w, "kernel_shape", kernel, 2);
    add_ints(w, "strides", a->stride, 2);
    add_ints(w, "pads", pads, 4);
}

static const char *write_conv(writer *w, const sonde__op_attrs *a)
{
    add_inputs(w, w->op->in_count);
    add_window(w, a, w->model->graph.values[w->op->in[1]].shape.dim + 2);
    add_ints(w, "dilations", a->dilation, 2);
    add_int(w, "group", a->groups);
    return "Conv";
}

static const char *write_linear(writer *w, const sonde__op_attrs *a)
{
    (void)a;
    add_inputs(w, w->op->in_count);
    add_int(w, "transB", 1);
    return "Gemm";
}

static const char *write_max_pool(writer *w, const sonde__op_attrs *a)
{
    add_inputs(w, 1);
    add_window(w, a, a->kernel);
    add_ints(w, "dilations", a->dilation, 2);
    return "MaxPool";
}

static const char *write_avg_pool(writer *w, const sonde__op_attrs *a)
{
    add_inputs(w, 1);
    add_window(w, a, a->kernel);
    add_int(w, "count_include_pad", a->include_pad);
    return "AveragePool";
}

static const char *write_adaptive_pool(writer *w, const sonde__op_attrs *a)
{
    add_inputs(w, 1);
    return a->kernel[0] == 1 && a->kernel[1] == 1 ? "GlobalAveragePool" : NULL;
}

static const char *write_softmax(writer *w, const sonde__op_attrs *a)
{
    add_inputs(w, 1);
    add_int(w, "axis", a->axis);
    return strcmp(w->op->kind->name, "Softmax") == 0 ? "Softmax" : "LogSoftmax";
}

static const char *write_gelu(writer *w, const sonde__op_attrs *a)
{
    add_inputs(w, 1);
    begin_attribute(w, "approximate", SONDE__ONNX_A_STRING);
    put_text(&w->part, 4, a->choice == 1 ? "tanh" : "none");
    put_message(&w->node, 5, &w->part);
    return "Gelu";
}

static const char *write_alpha(writer *w, const sonde__op_attrs *a)
{
    const char *kind = w->op->kind->name;

    add_inputs(w, 1);
    add_float(w, "alpha", a->number[0]);
    return strcmp(kind, "LeakyRelu") == 0 ? "LeakyRelu"
           : strcmp(kind, "Elu") == 0     ? "Elu"
                                          : "Celu";
}

/* As the caller gave it: 0 copies a dimension and -1 takes the rest, in ONNX too. */
static const char *write_reshape(writer *w, const sonde__op_attrs *a)
{
    (void)a;
    add_inputs(w, 1);
    add_whole(w, w->op->given.dims, w->op->given.rank);
    return "Reshape";
}

static const char *write_transpose(writer *w, const sonde__op_attrs *a)
{
    add_inputs(w, 1);
    add_ints(w, "perm", a->dims, a->rank);
    return "Transpose";
}

static const char *write_scale(writer *w, const sonde__op_attrs *a)
{
    add_inputs(w, 1);
    add_constant(w, SONDE__ONNX_FLOAT, &a->scale, sizeof a->scale, 0);
    return "Mul";
}

static const char *write_batch_norm(writer *w, const sonde__op_attrs *a)
{
    if (!a->affine || !a->track) {
        return NULL;
    }
    add_inputs(w, 5);
    add_float(w, "epsilon", a->eps);
    return "BatchNormalization";
}

static const char *write_instance_norm(writer *w, const sonde__op_attrs *a)
{
    if (w->op->in_count < 3) {
        return NULL;
    }
    add_inputs(w, 3);
    add_float(w, "epsilon", a->eps);
    return "InstanceNormalization";
}

static const char *write_fill(writer *w, const sonde__op_attrs *a)
{
    buffer tensor = {0};
    const int64_t one = 1;

    if (a->rank < 1) {
        return NULL;
    }
    add_whole(w, a->dims, a->rank);
    put_int(&tensor, 1, one);
    put_int(&tensor, 2, SONDE__ONNX_FLOAT);
    put_bytes(&tensor, 9, &a->scale, sizeof a->scale);
    begin_attribute(w, "value", SONDE__ONNX_A_TENSOR);
    put_message(&w->part, 5, &tensor);
    put_message(&w->node, 5, &w->part);
    sonde__free(tensor.bytes);
    return "ConstantOfShape";
}

static const char *write_group_norm(writer *w, const sonde__op_attrs *a)
{
    if (w->op->in_count < 3) {
        return NULL;
    }
    add_inputs(w, 3);
    add_int(w, "num_groups", a->groups);
    add_float(w, "epsilon", a->eps);
    return "GroupNormalization";
}

static const char *write_layer_norm(writer *w, const sonde__op_attrs *a)
{
    if (w->op->in_count < 2) {
        return NULL;
    }
    add_inputs(w, w->op->in_count);
    add_int(w, "axis", -a->rank);
    add_float(w, "epsilon", a->eps);
    return "LayerNormalization";
}

static const char *write_reduce(writer *w, const sonde__op_attrs *a)
{
    int64_t axes[SONDE_MAX_DIMS];
    int count = 0;

    for (int i = 0; i < SONDE_MAX_DIMS; i++) {
        if ((a->axes >> (unsigned)i & 1U) != 0) {
            axes[count++] = i;
        }
    }
    add_inputs(w, 1);
    add_whole(w, axes, count);
    add_int(w, "keepdims", a->keep_dims);
    return a->mean ? "ReduceMean" : "ReduceSum";
}

static const char *write_embedding(writer *w, const sonde__op_attrs *a)
{
    (void)a;
    add_input(w, 1);
    add_input(w, 0);
    return "Gather";
}

static const char *write_cat(writer *w, const sonde__op_attrs *a)
{
    add_inputs(w, w->op->in_count);
    add_int(w, "axis", a->axis);
    return "Concat";
}

static const char *write_slice(writer *w, const sonde__op_attrs *a)
{
    const int64_t axis = a->axis;

    add_inputs(w, 1);
    add_whole(w, &a->kernel[0], 1);
    add_whole(w, &a->kernel[1], 1);
    add_whole(w, &axis, 1);
    add_whole(w, &a->stride[0], 1);
    return "Slice";
}

/* ONNX keeps a dimension where the shape says 1. */
static const char *write_broadcast(writer *w, const sonde__op_attrs *a)
{
    int64_t dims[SONDE_MAX_DIMS];

    if (a->rank < 1) {
        return NULL;
    }
    for (int i = 0; i < a->rank; i++) {
        dims[i] = w->op->given.dims[i] == -1 ? 1 : w->op->given.dims[i];
    }
    add_inputs(w, 1);
    add_whole(w, dims, a->rank);
    return "Expand";
}

static const char *write_compare(writer *w, const sonde__op_attrs *a)
{
    static const char *const names[] = {"Equal",       NULL,      "Less",
                                        "LessOrEqual", "Greater", "GreaterOrEqual"};

    add_inputs(w, 2);
    return a->choice >= 0 && a->choice < (int)SONDE_COUNT_OF(names) ? names[a->choice]
                                                                    : NULL;
}

static const char *write_identity(writer *w, const sonde__op_attrs *a)
{
    (void)a;
    add_inputs(w, 1);
    return "Identity";
}

/* Ops without attributes that ONNX has under this name. */
static const char *const same[][2] = {
    {"Relu", "Relu"},   {"Sigmoid", "Sigmoid"},
    {"Tanh", "Tanh"},   {"Add", "Add"},
    {"Mul", "Mul"},     {"Sub", "Sub"},
    {"Div", "Div"},     {"MatMul", "MatMul"},
    {"Neg", "Neg"},     {"Abs", "Abs"},
    {"Exp", "Exp"},     {"Log", "Log"},
    {"Sqrt", "Sqrt"},   {"Reciprocal", "Reciprocal"},
    {"Sin", "Sin"},     {"Cos", "Cos"},
    {"Erf", "Erf"},     {"Softsign", "Softsign"},
    {"Mish", "Mish"},   {"Hardswish", "HardSwish"},
    {"Maximum", "Max"}, {"Minimum", "Min"},
    {"Selu", "Selu"},   {"Where", "Where"},
};

static const struct {
    const char *kind;
    write_op write;
} ops[] = {
    {"Conv2d", write_conv},
    {"Linear", write_linear},
    {"MaxPool2d", write_max_pool},
    {"AvgPool2d", write_avg_pool},
    {"AdaptiveAvgPool2d", write_adaptive_pool},
    {"Softmax", write_softmax},
    {"LogSoftmax", write_softmax},
    {"Gelu", write_gelu},
    {"LeakyRelu", write_alpha},
    {"Elu", write_alpha},
    {"Celu", write_alpha},
    {"Reshape", write_reshape},
    {"Transpose", write_transpose},
    {"Scale", write_scale},
    {"BatchNorm", write_batch_norm},
    {"GroupNorm", write_group_norm},
    {"InstanceNorm", write_instance_norm},
    {"Fill", write_fill},
    {"LayerNorm", write_layer_norm},
    {"Reduce", write_reduce},
    {"Embedding", write_embedding},
    {"Cat", write_cat},
    {"Slice", write_slice},
    {"Broadcast", write_broadcast},
    {"Compare", write_compare},
    {"Identity", write_identity},
    {"Dropout", write_identity},
};

/* Writes the op at hand; false: ONNX has none like it. */
static bool write_node(writer *w)
{
    const char *kind = w->op->kind->name, *name = NULL;
    char buf[32];

    w->node.size = 0;
    for (size_t i = 0; i < SONDE_COUNT_OF(same) && name == NULL; i++) {
        if (strcmp(same[i][0], kind) == 0) {
            add_inputs(w, w->op->in_count);
            name = same[i][1];
        }
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(ops) && name == NULL; i++) {
        if (strcmp(ops[i].kind, kind) == 0) {
            name = ops[i].write(w, &w->op->attrs);
        }
    }
    if (name == NULL) {
        return false;
    }
    put_text(&w->node, 2, value_name(w, w->op->out[0], buf));
    put_text(&w->node, 3, value_name(w, w->op->out[0], buf));
    put_text(&w->node, 4, name);
    put_message(&w->graph, 1, &w->node);
    return true;
}

/* --- values ------------------------------------------------------------------------------ */

/* An input or an output of the graph. */
static void put_value(writer *w, unsigned field, sonde__op_value value)
{
    const sonde__op_shape *shape = &w->model->graph.values[value].shape;
    buffer dim = {0}, dims = {0}, tensor = {0}, type = {0}, info = {0};
    buffer *const all[] = {&dim, &dims, &tensor, &type, &info};
    char buf[32];

    for (int i = 0; i < shape->rank; i++) {
        if (i == 0) {
            put_text(&dim, 2, "batch");
        } else {
            put_int(&dim, 1, shape->dim[i]);
        }
        put_message(&dims, 1, &dim);
    }
    put_int(&tensor, 1,
            shape->dtype == SONDE_I64    ? SONDE__ONNX_INT64
            : shape->dtype == SONDE_BOOL ? SONDE__ONNX_BOOL
                                         : SONDE__ONNX_FLOAT);
    put_message(&tensor, 2, &dims);
    put_message(&type, 1, &tensor);
    put_text(&info, 1, value_name(w, value, buf));
    put_message(&info, 2, &type);
    put_message(&w->graph, field, &info);
    for (size_t i = 0; i < SONDE_COUNT_OF(all); i++) {
        sonde__free(all[i]->bytes);
    }
}

static void put_tensor(writer *w, size_t i)
{
    const sonde_view view = sonde__graph_tensor_view(w->model, i);

    for (int k = 0; k < view.rank; k++) {
        put_int(&w->part, 1, view.shape[k]);
    }
    put_int(&w->part, 2, view.dtype == SONDE_I64 ? SONDE__ONNX_INT64 : SONDE__ONNX_FLOAT);
    put_text(&w->part, 8, sonde__graph_tensor_name(w->model, i));
    put_bytes(&w->part, 9, view.data,
              (size_t)sonde_view_count(&view) * sonde_dtype_size(view.dtype));
    put_message(&w->graph, 5, &w->part);
}

/* --- the whole --------------------------------------------------------------------------- */

/* Marks what the outputs, without the loss, are computed from. */
static void find_live(const sonde__op_graph *graph, bool *live)
{
    for (size_t i = 0; i < graph->output_count; i++) {
        live[graph->outputs[i]] = graph->outputs[i] != graph->loss;
    }
    for (size_t i = graph->op_count; i-- > 0;) {
        const sonde__graph_node_op *op = &graph->ops[i];
        bool needed = false;

        for (int k = 0; k < op->out_count; k++) {
            needed = needed || live[op->out[k]];
        }
        for (int k = 0; needed && op->kind != NULL && k < op->in_count; k++) {
            if (k == TRACKED && strcmp(op->kind->name, "BatchNorm") == 0) {
                break; /* how many batches it has seen: only training reads it */
            }
            live[op->in[k]] = true;
        }
    }
}

static sonde_err write_ops(writer *w, const bool *live, sonde_diag *diag)
{
    const sonde__op_graph *graph = &w->model->graph;
    char list[256] = "";
    size_t count = 0;

    for (size_t i = 0; i < graph->op_count; i++) {
        const size_t used = strlen(list);
        char buf[32];

        w->op = &graph->ops[i];
        if (w->op->kind == NULL || !live[w->op->out[0]] || write_node(w)) {
            continue;
        }
        if (used < sizeof list - 1) {
            (void)snprintf(list + used, sizeof list - used, "%s%s (%.60s)",
                           count > 0 ? ", " : "", w->op->kind->name,
                           value_name(w, w->op->out[0], buf));
        }
        count++;
    }
    return count == 0 ? SONDE_OK
                      : sonde__fail(diag, SONDE_EUNSUPPORTED, "ONNX", NULL,
                                    "%zu op%s that cannot be written: %s", count,
                                    count == 1 ? "" : "s", list);
}

static sonde_err write_graph(writer *w, const bool *live, sonde_diag *diag)
{
    const sonde__op_graph *graph = &w->model->graph;
    const size_t params = sonde_nn_parameter_count(w->model);
    const sonde_err err = write_ops(w, live, diag);

    if (err != SONDE_OK) {
        return err;
    }
    put_text(&w->graph, 2, "sonde");
    for (size_t i = 0; i < sonde__graph_tensor_count(w->model); i++) {
        const sonde__op_value value =
            i < params ? w->model->params[i].value : w->model->buffers[i - params].value;

        if (live[value]) {
            put_tensor(w, i);
        }
    }
    for (size_t i = 0; i < graph->input_count; i++) {
        if (live[graph->inputs[i]]) {
            put_value(w, 11, graph->inputs[i]);
        }
    }
    for (size_t i = 0; i < graph->output_count; i++) {
        if (graph->outputs[i] != graph->loss) {
            put_value(w, 12, graph->outputs[i]);
        }
    }
    return SONDE_OK;
}

sonde_err sonde_nn_onnx_save(const sonde_nn_model *model, const char *path,
                             sonde_diag *diag)
{
    SONDE__NEEDS(diag, model, path);
    writer w = {.model = model};
    buffer whole = {0};
    bool *live = sonde__calloc(model->graph.value_count, sizeof *live);
    sonde_err err = live != NULL ? sonde_nn_model_status(model, diag)
                                 : sonde__fail_nomem(diag, "an ONNX model");

    if (err != SONDE_OK) {
        goto done;
    }
    find_live(&model->graph, live);
    err = write_graph(&w, live, diag);
    if (err != SONDE_OK) {
        goto done;
    }
    put_int(&whole, 1, IR_VERSION);
    put_text(&whole, 2, "sonde");
    put_message(&whole, 7, &w.graph);
    put_int(&w.part, 2, OPSET);
    put_message(&whole, 8, &w.part);
    err = whole.failed ? sonde__fail_nomem(diag, "an ONNX model")
                       : sonde__whole_put(path, whole.bytes, whole.size, diag);

done:
    sonde__free(w.graph.bytes);
    sonde__free(w.node.bytes);
    sonde__free(w.part.bytes);
    sonde__free(whole.bytes);
    sonde__free(live);
    return err;
}

/*
 * function.c - ops over given values, and tensors in the caller's memory.
 */
#include "nn/graph/layer.h"
#include "nn/ops/layer_row.h"
#include "base/fail.h"
#include "base/memory.h"

#include <sonde/nn/model.h>

#include <math.h>
#include <stdint.h>
#include <string.h>

/* --- tensors ------------------------------------------------------------------------ */

/* What memory of a tensor has to be and is not; NULL: it is good. */
static const char *wanted_memory(sonde_role role, const sonde_view *memory)
{
    const bool parameter = role == SONDE_ROLE_WEIGHT || role == SONDE_ROLE_BIAS;

    if (!parameter && role != SONDE_ROLE_BUFFER) {
        return "the role weight, bias or buffer";
    }
    if (parameter && memory->dtype != SONDE_F32) {
        return "a parameter of float32";
    }
    if (memory->data == NULL || (uintptr_t)memory->data % SONDE__ALIGN != 0) {
        return "memory aligned to 64 bytes";
    }
    if (!sonde_view_is_contiguous(memory) || sonde_view_count(memory) < 1) {
        return "a contiguous tensor that is not empty";
    }
    return NULL;
}

static bool accepts_memory(sonde__op_graph *graph, const char *name, sonde_role role,
                           const sonde_view *memory)
{
    const char *expected = wanted_memory(role, memory);

    if (expected == NULL) {
        return true;
    }
    (void)sonde__graph_fail(graph, SONDE_EINVAL, name, expected, "a %s of %s",
                            sonde_role_name(role), sonde_dtype_name(memory->dtype));
    return false;
}

sonde_nn_value sonde_nn_tensor(sonde_nn_model *model, const char *name, sonde_role role,
                               const sonde_view *memory)
{
    sonde__op_graph *graph = model != NULL ? &model->graph : NULL;
    sonde__op_shape shape = {0};

    if (model == NULL || graph->err != SONDE_OK) {
        return 0;
    }
    if (name == NULL || memory == NULL) {
        return sonde__graph_fail(graph, SONDE_EINVAL, name != NULL ? name : "tensor",
                                 "a pointer", "%s is NULL",
                                 name == NULL ? "name" : "memory");
    }
    if (!accepts_memory(graph, name, role, memory)) {
        return 0;
    }
    shape.dtype = memory->dtype;
    shape.rank = memory->rank;
    memcpy(shape.dim, memory->shape, sizeof shape.dim);
    const char *own = sonde__graph_string(graph, "%s", name);
    return own != NULL ? sonde__graph_add_tensor(
                             model, own, &shape, role,
                             (sonde__graph_param){.data = memory->data, .borrowed = true})
                       : 0;
}

/* The borrowed tensor of a name, or NULL. */
static sonde__graph_param *find_borrowed(const sonde_nn_model *model, const char *name,
                                         sonde_view *view)
{
    const size_t params = model->param_count;

    for (size_t i = 0; name != NULL && i < sonde__graph_tensor_count(model); i++) {
        sonde__graph_param *tensor =
            i < params ? &model->params[i] : &model->buffers[i - params];

        if (tensor->borrowed && strcmp(sonde__graph_tensor(model, i).name, name) == 0) {
            *view = sonde__graph_tensor(model, i).view;
            return tensor;
        }
    }
    return NULL;
}

sonde_err sonde_nn_tensor_move(sonde_nn_model *model, const char *name,
                               const sonde_view *memory, sonde_diag *diag)
{
    sonde_view view = {0};
    sonde__graph_param *tensor = model != NULL ? find_borrowed(model, name, &view) : NULL;

    if (tensor == NULL || memory == NULL) {
        return sonde__fail(diag, SONDE_EINVAL, name != NULL ? name : "name",
                           "the name of a borrowed tensor, and its memory",
                           memory == NULL ? "memory is NULL" : "there is none");
    }
    if (memory->dtype != view.dtype || !sonde_view_same_shape(memory, &view)) {
        return sonde__fail(diag, SONDE_ESHAPE, name, "the shape and dtype as before",
                           "another one");
    }
    const char *expected = wanted_memory(SONDE_ROLE_BUFFER, memory);
    if (expected != NULL) {
        return sonde__fail(diag, SONDE_EINVAL, name, expected, "other memory");
    }
    tensor->data = memory->data;
    return SONDE_OK;
}

/* --- ops ---------------------------------------------------------------------------- */

#define DIMS(key_, least_)                                                               \
    SONDE__FIELD(key_, SONDE__FIELD_DIMS, shape.dims, 0, least_, 1e15)
#define WHOLE(key_, member_, fallback_)                                                  \
    SONDE__FIELD(key_, SONDE__FIELD_WHOLE, member_, fallback_, -1e15, 1e15)
#define PAIR(key_, member_, fallback_)                                                   \
    SONDE__FIELD(key_, SONDE__FIELD_PAIR, member_, fallback_, 0, 1 << 20)
#define FLAG(key_, member_, fallback_)                                                   \
    SONDE__FIELD(key_, SONDE__FIELD_FLAG, member_, fallback_, 0, 1)

/* Ops under the layers of these names, over given tensors, and ops that are no layers. */
static const sonde__op_layer own_rows[] = {
    {.name = "conv2d",
     .kind = &sonde__op_conv2d,
     .fields = {PAIR("stride", window.stride, 1), PAIR("padding", window.padding, 0),
                PAIR("dilation", window.dilation, 1), WHOLE("groups", window.groups, 1)}},
    {.name = "linear", .kind = &sonde__op_linear},
    {.name = "group_norm",
     .kind = &sonde__op_group_norm,
     .fields = {WHOLE("num_groups", norm.groups, 1),
                SONDE__FIELD_ANY("eps", norm.eps, 1e-5)}},
    {.name = "identity", .kind = &sonde__op_identity},
    {.name = "reshape", .kind = &sonde__op_reshape, .fields = {DIMS("shape", -1)}},
    {.name = "broadcast", .kind = &sonde__op_broadcast, .fields = {DIMS("shape", 1)}},
    {.name = "scale",
     .kind = &sonde__op_scale,
     .fields = {SONDE__FIELD_ANY("value", fill.value, 1)}},
    {.name = "fill",
     .kind = &sonde__op_fill,
     .fields = {SONDE__FIELD_ANY("value", fill.value, 0), DIMS("shape", 1)}},
    {.name = "nll", .kind = &sonde__op_nll, .fields = {FLAG("mean", loss.mean, 1)}},
    {.name = "nll_weighted",
     .kind = &sonde__op_nll_weighted,
     .fields = {FLAG("mean", loss.mean, 1),
                SONDE__FIELD_ANY("label_smoothing", loss.label_smoothing, 0),
                FLAG("ignores", loss.ignores, 0),
                WHOLE("ignore_index", loss.ignore_index, 0)}},
};

static const sonde__op_layer *find_row(const char *kind)
{
    for (size_t i = 0; i < sizeof own_rows / sizeof own_rows[0]; i++) {
        if (strcmp(own_rows[i].name, kind) == 0) {
            return &own_rows[i];
        }
    }
    return sonde__op_find_layer(kind);
}

static sonde_nn_value emit(sonde__graph_layer *layer, const sonde__op_layer *row,
                           const sonde_nn_value *in, int count,
                           const sonde_nn_setting *settings, size_t setting_count)
{
    sonde_nn_value operands[SONDE__MAX_OPERANDS + SONDE__MAX_PARAMS] = {0}, out = 0;
    sonde__op_attrs attrs;

    sonde__op_attrs_clear(&attrs);
    if (!sonde__graph_read_settings(layer, row, settings, setting_count, &attrs)) {
        return 0;
    }
    for (int i = 0; i < count; i++) {
        operands[i] = in[i];
    }
    out = sonde__graph_emit_row(layer, row, &attrs, operands, count);
    return row->reduces ? sonde__graph_reduce_loss(layer, &attrs, out) : out;
}

static bool accepts_count(sonde__op_graph *graph, const sonde__op_layer *row,
                          size_t count)
{
    const int least = row->build != NULL ? row->inputs : row->kind->in_min;
    const int most =
        row->build != NULL
            ? row->inputs + row->optional + (row->params != NULL ? SONDE__MAX_PARAMS : 0)
            : row->kind->in_max;

    if (count >= (size_t)least && count <= (size_t)most) {
        return true;
    }
    (void)sonde__graph_fail(graph, SONDE_EINVAL, row->name, NULL,
                            "%zu values (expected %d to %d)", count, least, most);
    return false;
}

sonde_nn_value sonde_nn_function(sonde_nn_model *model, const char *module,
                                 const char *kind, const sonde_nn_value *in, size_t count,
                                 const sonde_nn_setting *settings, size_t setting_count)
{
    const sonde__op_layer *row = kind != NULL ? find_row(kind) : NULL;
    sonde__op_graph *graph = model != NULL ? &model->graph : NULL;
    sonde__graph_layer layer = {.model = model, .kind = kind};

    if (model == NULL || graph->err != SONDE_OK) {
        return 0;
    }
    if (row == NULL) {
        return sonde__graph_fail(graph, SONDE_EINVAL, module, "a function of function.h",
                                 "unknown function '%s'", kind != NULL ? kind : "");
    }
    if ((in == NULL && count > 0) || (settings == NULL && setting_count > 0)) {
        return sonde__graph_fail(graph, SONDE_EINVAL, kind, "a pointer", "%s is NULL",
                                 in == NULL && count > 0 ? "in" : "settings");
    }
    if (!accepts_count(graph, row, count)) {
        return 0;
    }
    layer.outer = graph->module;
    layer.path = sonde__graph_string(graph, "%s", module != NULL ? module : "");
    if (layer.path == NULL) {
        return 0;
    }
    graph->module = layer.path;
    const sonde_nn_value out = emit(&layer, row, in, (int)count, settings, setting_count);
    graph->module = layer.outer;
    return graph->err == SONDE_OK ? out : 0;
}

void sonde_nn_module_output(sonde_nn_model *model, const char *module,
                            sonde_nn_value value)
{
    sonde__op_graph *graph = model != NULL ? &model->graph : NULL;
    const char *path = NULL, *name = NULL, *outer = NULL;

    if (model == NULL || module == NULL || value == 0 || graph->err != SONDE_OK ||
        !sonde__graph_has_value(graph, module, value)) {
        return;
    }
    path = sonde__graph_string(graph, "%s", module);
    name = path != NULL ? sonde__graph_output_name(model, path) : NULL;
    if (name == NULL) {
        return;
    }
    sonde__graph_node_value *node = sonde__graph_value(graph, value);
    if (node->source == SONDE__FROM_OP && node->role != SONDE_ROLE_OUTPUT &&
        node->role != SONDE_ROLE_LOSS) {
        node->name = name;
        node->role = SONDE_ROLE_OUTPUT;
        return;
    }
    outer = graph->module;
    graph->module = node->module; /* alive as long as the value is */
    (void)sonde__graph_alias(graph, name, value, SONDE_ROLE_OUTPUT);
    graph->module = outer;
}

/* --- values ------------------------------------------------------------------------- */

sonde_nn_value_info sonde_nn_value_describe(const sonde_nn_model *model,
                                            sonde_nn_value value)
{
    if (model == NULL || value == 0 || value >= model->graph.value_count) {
        return (sonde_nn_value_info){.name = NULL, .dtype = SONDE_F32};
    }
    return (sonde_nn_value_info){.name = model->graph.values[value].name,
                                 .dtype = sonde__graph_shape(model, value)->dtype};
}

void sonde_nn_name_value(sonde_nn_model *model, sonde_nn_value value, const char *module,
                         const char *name, sonde_role role, bool also)
{
    sonde__op_graph *graph = model != NULL ? &model->graph : NULL;

    if (model == NULL || module == NULL || graph->err != SONDE_OK ||
        !sonde__graph_has_value(graph, module, value)) {
        return;
    }
    const char *outer = graph->module;
    const char *path = sonde__graph_string(graph, "%s", module);
    const char *own = name != NULL ? sonde__graph_string(graph, "%s", name) : NULL;

    if (also) {
        graph->module = path;
        (void)sonde__graph_alias(graph, own, value, role);
        graph->module = outer;
    } else if (path != NULL) {
        sonde__graph_node_value *node = sonde__graph_value(graph, value);

        node->name = own;
        node->module = path;
        node->role = role;
    }
}

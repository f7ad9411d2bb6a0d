/*
 * model.c - a model's life, its inputs and outputs, the names of its values, and its
 * parameters and buffers: drawn, saved, loaded.
 */
#include "base/fail.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/random.h"
#include "nn/graph/layer.h"

#include <sonde/safetensors.h>

#include <stdio.h>
#include <string.h>

sonde_err sonde__graph_expect(const void *pointer, const char *what, sonde_diag *diag)
{
    return pointer != NULL
               ? SONDE_OK
               : sonde__fail(diag, SONDE_EINVAL, what, "a pointer", "it is NULL");
}

const sonde__op_shape *sonde__graph_shape(const sonde_nn_model *model,
                                          sonde_nn_value value)
{
    static const sonde__op_shape none;

    return model != NULL ? sonde__op_value_shape(&model->graph, value) : &none;
}

sonde_err sonde_nn_model_create(sonde_nn_model **out, sonde_diag *diag)
{
    sonde_nn_model *model = NULL;
    SONDE__TRY(sonde__graph_expect(out, "out", diag));
    model = sonde__calloc(1, sizeof *model);
    if (model == NULL) {
        return sonde__fail_nomem(diag, "a model");
    }
    if (sonde__graph_init(&model->graph) != SONDE_OK) {
        sonde_nn_model_destroy(model);
        return sonde__fail_nomem(diag, "a model");
    }
    *out = model;
    return SONDE_OK;
}

static void free_data(const sonde__graph_param *tensors, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!tensors[i].borrowed) {
            sonde__free(tensors[i].data);
        }
    }
}

void sonde_nn_model_destroy(sonde_nn_model *model)
{
    if (model == NULL) {
        return;
    }
    free_data(model->params, model->param_count);
    free_data(model->buffers, model->buffer_count);
    sonde__free(model->params);
    sonde__free(model->buffers);
    sonde__free(model->calls);
    sonde__graph_fini(&model->graph);
    sonde__free(model);
}

sonde_err sonde_nn_model_status(const sonde_nn_model *model, sonde_diag *diag)
{
    const sonde_err err = sonde__graph_expect(model, "model", diag);

    if (err != SONDE_OK) {
        return err;
    }
    if (model->graph.err != SONDE_OK && diag != NULL) {
        *diag = model->graph.diag;
    }
    return model->graph.err;
}

sonde_nn_value sonde_nn_input(sonde_nn_model *model, sonde_dtype dtype, int rank,
                              const int64_t *shape)
{
    sonde__op_graph *graph = NULL;
    sonde__op_shape input = {.dtype = dtype, .rank = rank};

    if (model == NULL) {
        return 0;
    }
    graph = &model->graph;
    const size_t index = graph->input_count;
    const char *name = index == 0 ? sonde__graph_string(graph, "input")
                                  : sonde__graph_string(graph, "input/%zu", index);
    if (sonde_dtype_size(dtype) == 0) {
        return sonde__graph_fail(graph, SONDE_EDTYPE, name, "a sonde_dtype", "dtype %d",
                                 (int)dtype);
    }
    if (rank < 1 || rank > SONDE_MAX_DIMS) {
        return sonde__graph_fail(graph, SONDE_ESHAPE, name, "1 to 8 dimensions",
                                 "an input of %d dimensions", rank);
    }
    if (shape == NULL) {
        return sonde__graph_fail(graph, SONDE_EINVAL, name, "a pointer", "shape is NULL");
    }
    for (int i = 0; i < rank; i++) {
        if (shape[i] < 1) {
            return sonde__graph_fail(graph, SONDE_ESHAPE, name, "at least 1",
                                     "dimension %d is %lld", i, (long long)shape[i]);
        }
        input.dim[i] = shape[i];
    }
    const sonde__op_value value = sonde__graph_leaf(graph, &input, SONDE__FROM_INPUT,
                                                    (int)index, name, SONDE_ROLE_INPUT);
    if (value != 0) {
        (void)sonde__graph_push(graph, &graph->inputs, &graph->input_count,
                                &graph->input_capacity, value);
    }
    return value;
}

void sonde_nn_output(sonde_nn_model *model, sonde_nn_value value)
{
    sonde__op_graph *graph = model != NULL ? &model->graph : NULL;

    if (model != NULL && value != 0 && graph->err == SONDE_OK &&
        sonde__graph_has_value(graph, "output", value)) {
        (void)sonde__graph_push(graph, &graph->outputs, &graph->output_count,
                                &graph->output_capacity, value);
    }
}

void sonde_nn_loss(sonde_nn_model *model, sonde_nn_value value)
{
    sonde__op_graph *graph = model != NULL ? &model->graph : NULL;

    if (model == NULL || value == 0 || graph->err != SONDE_OK ||
        !sonde__graph_has_value(graph, "loss", value)) {
        return;
    }
    if (graph->loss != 0) {
        (void)sonde__graph_fail(graph, SONDE_ESTATE, graph->values[value].name,
                                "one final loss", "the model has a loss already");
    } else if (sonde__op_shape_count(sonde__op_value_shape(graph, value)) != 1) {
        (void)sonde__graph_fail(graph, SONDE_ESHAPE, graph->values[value].name,
                                "a scalar", "the loss has more than one element");
    } else {
        graph->loss = value;
        graph->values[value].role = SONDE_ROLE_LOSS;
    }
}

sonde_nn_value sonde_nn_model_output(const sonde_nn_model *model, size_t i)
{
    return model != NULL && i < model->graph.output_count ? model->graph.outputs[i] : 0;
}

size_t sonde_nn_output_loss(sonde_nn_model *model)
{
    const sonde__op_graph *graph = model != NULL ? &model->graph : NULL;

    for (size_t i = 0; model != NULL && i < graph->output_count; i++) {
        if (graph->outputs[i] == graph->loss) {
            return i;
        }
    }
    if (model == NULL || graph->loss == 0) {
        return SIZE_MAX;
    }
    sonde_nn_output(model, graph->loss);
    return graph->output_count - 1;
}

const int64_t *sonde_nn_value_shape(const sonde_nn_model *model, sonde_nn_value value,
                                    int *rank)
{
    const sonde__op_shape *shape = sonde__graph_shape(model, value);

    if (model == NULL || value == 0 || value >= model->graph.value_count) {
        return NULL;
    }
    if (rank != NULL) {
        *rank = shape->rank;
    }
    return shape->dim;
}

/* --- modules ------------------------------------------------------------------------ */

const char *sonde__graph_module_path(sonde_nn_model *model, const char *name)
{
    sonde__op_graph *graph = &model->graph;

    if (name == NULL || name[0] == '\0') {
        return graph->module;
    }
    return sonde__graph_string(graph, "%s%s%s", graph->module,
                               graph->module[0] != '\0' ? "." : "", name);
}

void sonde_nn_scope_push(sonde_nn_model *model, const char *name)
{
    if (model == NULL) {
        return;
    }
    if (name == NULL || name[0] == '\0' || strchr(name, '.') != NULL) {
        (void)sonde__graph_fail(&model->graph, SONDE_EINVAL,
                                name != NULL ? name : "scope", "a name without dots",
                                "not a name for a scope");
        return;
    }
    const char *path = sonde__graph_module_path(model, name);
    if (path != NULL) {
        model->graph.module = path;
    }
}

void sonde_nn_begin_block(sonde_nn_model *model, const char *name)
{
    sonde__op_graph *graph = model != NULL ? &model->graph : NULL;
    int i = 0;

    if (graph == NULL) {
        return;
    }
    if (name == NULL || name[0] == '\0') {
        (void)sonde__graph_fail(graph, SONDE_EINVAL, "block", "a name",
                                "a block without name");
        return;
    }
    while (i < graph->stage_count && strcmp(graph->stages[i], name) != 0) {
        i++;
    }
    if (i == SONDE__MOST_STAGES) {
        (void)sonde__graph_fail(graph, SONDE_ERANGE, name, "at most 64 blocks",
                                "one block more");
        return;
    }
    if (i == graph->stage_count) {
        graph->stages[i] = sonde__graph_string(graph, "%s", name);
        graph->stage_count += graph->stages[i] != NULL;
    }
    graph->stage = i;
}

void sonde_nn_scope_pop(sonde_nn_model *model)
{
    sonde__op_graph *graph = model != NULL ? &model->graph : NULL;
    const char *dot = model != NULL ? strrchr(graph->module, '.') : NULL;
    const size_t length = dot != NULL ? (size_t)(dot - graph->module) : 0;

    if (model == NULL) {
        return;
    }
    if (graph->module[0] == '\0') {
        (void)sonde__graph_fail(graph, SONDE_ESTATE, NULL, "a push for every pop",
                                "no scope is open");
        return;
    }
    const char *outer = sonde__graph_string(graph, "%.*s", (int)length, graph->module);
    if (outer != NULL) {
        graph->module = outer;
    }
}

/* The record of a key's calls; NULL if memory is out. */
static sonde__graph_module_calls *calls_of(sonde_nn_model *model, const char *key)
{
    for (size_t i = 0; i < model->call_count; i++) {
        if (model->calls[i].name == key) {
            return &model->calls[i];
        }
    }
    if (!sonde__reserve(&model->calls, &model->call_capacity, model->call_count + 1,
                        sizeof *model->calls)) {
        (void)sonde__graph_fail(&model->graph, SONDE_ENOMEM, NULL, NULL, "out of memory");
        return NULL;
    }
    model->calls[model->call_count] = (sonde__graph_module_calls){.name = key};
    return &model->calls[model->call_count++];
}

/* "<module>/<word>:<k>", counting k within the module. */
static const char *function_name(sonde_nn_model *model, const char *module,
                                 const char *word)
{
    sonde__op_graph *graph = &model->graph;
    const char *key =
        sonde__graph_string(graph, "%s%s%s", module, module[0] != '\0' ? "/" : "", word);
    sonde__graph_module_calls *calls = key != NULL ? calls_of(model, key) : NULL;

    return calls != NULL ? sonde__graph_string(graph, "%s:%d", key, calls->outputs++)
                         : NULL;
}

/* --- layers ------------------------------------------------------------------------- */

/* ___ separates the parts of Gradient___NAME and its like. */
static bool is_layer_name(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";

    return name[0] != '\0' && name[strspn(name, letters)] == '\0' &&
           strstr(name, "___") == NULL;
}

bool sonde__graph_layer_begin(sonde_nn_model *model, sonde__graph_layer *layer,
                              const char *name)
{
    sonde__op_graph *graph = model != NULL ? &model->graph : NULL;

    if (model == NULL) {
        return false;
    }
    *layer = (sonde__graph_layer){
        .model = model, .outer = graph->module, .named = name != NULL};
    if (graph->err != SONDE_OK) {
        return false;
    }
    if (name != NULL && !is_layer_name(name)) {
        (void)sonde__graph_fail(graph, SONDE_EINVAL, name,
                                strstr(name, "___") != NULL
                                    ? "no ___, which is part of names of gradients"
                                    : "letters, digits, _ and -",
                                "not a name for a layer");
        return false;
    }
    layer->path = sonde__graph_module_path(model, name);
    if (layer->path == NULL) {
        return false;
    }
    graph->module = layer->path;
    return true;
}

/* As the table of names has it (docs/recording.md): what a module reads is an activation,
 * and integers that a loss reads are labels, an input of the program. */
static sonde_role alias_role(const sonde__graph_layer *layer, sonde_nn_value value)
{
    const bool labels =
        !sonde_dtype_is_float(sonde__graph_shape(layer->model, value)->dtype) &&
        sonde__strcasestr(layer->path, "loss") != NULL;

    return labels ? SONDE_ROLE_INPUT : SONDE_ROLE_ACTIVATION;
}

void sonde__graph_layer_input(sonde__graph_layer *layer, sonde_nn_value value)
{
    sonde_nn_model *model = layer->model;

    if (!layer->named || value == 0) {
        return;
    }
    sonde__graph_module_calls *calls = calls_of(model, layer->path);
    if (calls != NULL) {
        (void)sonde__graph_alias(&model->graph,
                                 sonde__graph_string(&model->graph, "%s_input_%d",
                                                     layer->path, calls->inputs++),
                                 value, alias_role(layer, value));
    }
}

sonde_nn_value sonde__graph_layer_op(sonde__graph_layer *layer,
                                     const sonde__op_kind *kind,
                                     const sonde__op_attrs *attrs,
                                     const sonde_nn_value *in, int count)
{
    sonde__op_graph *graph = &layer->model->graph;

    for (int i = 0; i < count; i++) {
        if (in[i] == 0) {
            return sonde__graph_fail(graph, SONDE_EINVAL, layer->path,
                                     "a value of this model", "input %d is missing", i);
        }
        if (in[i] >= graph->value_count) {
            return sonde__graph_fail(graph, SONDE_EINVAL, layer->path,
                                     "a value of this model", "input %d is value %u", i,
                                     in[i]);
        }
    }
    const sonde_nn_value out = sonde__op_emit(graph, kind, attrs, in, count);
    for (int i = 0; out != 0 && i < kind->out_count; i++) {
        sonde__graph_node_value *value = &graph->values[out + (sonde__op_value)i];

        value->role = SONDE_ROLE_ACTIVATION;
        value->name = function_name(layer->model, layer->path,
                                    i == 0 ? kind->name : kind->out_names[i]);
    }
    return out;
}

const char *sonde__graph_output_name(sonde_nn_model *model, const char *path)
{
    sonde__graph_module_calls *calls = calls_of(model, path);

    return calls != NULL ? sonde__graph_string(&model->graph, "%s_output_%d", path,
                                               calls->outputs++)
                         : NULL;
}

sonde_nn_value sonde__graph_layer_end(sonde__graph_layer *layer, sonde_nn_value result)
{
    sonde__op_graph *graph = &layer->model->graph;

    graph->module = layer->outer;
    if (result == 0 || graph->err != SONDE_OK || !layer->named) {
        return graph->err == SONDE_OK ? result : 0;
    }
    const char *name = sonde__graph_output_name(layer->model, layer->path);
    if (name != NULL) {
        /* The last op of a module has the module's name; the count of its function name
         * stays unused. */
        graph->values[result].name = name;
        graph->values[result].role = SONDE_ROLE_OUTPUT;
    }
    return graph->err == SONDE_OK ? result : 0;
}

void sonde__graph_fill_buffer(const sonde_nn_model *model, size_t i)
{
    const sonde__graph_param *buffer = &model->buffers[i];
    const bool counts = model->graph.values[buffer->value].shape.dtype == SONDE_I64;

    for (size_t k = 0; k < buffer->count; k++) {
        if (counts) {
            ((int64_t *)buffer->data)[k] = (int64_t)buffer->constant;
        } else {
            ((float *)buffer->data)[k] = buffer->constant;
        }
    }
}

/* The tensor of a name, of a module that was called before; NULL: there is none. */
static const sonde__graph_param *known_tensor(const sonde_nn_model *model,
                                              const char *name)
{
    for (size_t i = 0; i < model->param_count; i++) {
        if (model->graph.values[model->params[i].value].name == name) {
            return &model->params[i];
        }
    }
    for (size_t i = 0; i < model->buffer_count; i++) {
        if (model->graph.values[model->buffers[i].value].name == name) {
            return &model->buffers[i];
        }
    }
    return NULL;
}

sonde_nn_value sonde__graph_add_tensor(sonde_nn_model *model, const char *name,
                                       const sonde__op_shape *shape, sonde_role role,
                                       sonde__graph_param tensor)
{
    sonde__op_graph *graph = &model->graph;
    const bool buffer = role == SONDE_ROLE_BUFFER;
    sonde__graph_param **list = buffer ? &model->buffers : &model->params;
    size_t *count = buffer ? &model->buffer_count : &model->param_count;
    size_t *capacity = buffer ? &model->buffer_capacity : &model->param_capacity;
    const size_t stream = *count;

    if (!sonde__graph_check_size(graph, name, shape)) {
        return 0;
    }
    tensor.count = (size_t)sonde__op_shape_count(shape);
    if (!sonde__reserve(list, capacity, *count + 1, sizeof **list)) {
        return sonde__graph_fail(graph, SONDE_ENOMEM, name, NULL, "out of memory");
    }
    if (!tensor.borrowed) {
        tensor.data = sonde__malloc_aligned(
            SONDE__ALIGN, tensor.count * sonde_dtype_size(shape->dtype));
    }
    if (tensor.data == NULL) {
        return sonde__graph_fail(graph, SONDE_ENOMEM, name, NULL, "out of memory");
    }
    tensor.value =
        sonde__graph_leaf(graph, shape, buffer ? SONDE__FROM_BUFFER : SONDE__FROM_PARAM,
                          (int)stream, name, role);
    (*list)[(*count)++] = tensor;
    if (tensor.borrowed || tensor.given) {
        return tensor.value;
    }
    if (buffer) {
        sonde__graph_fill_buffer(model, stream);
    } else {
        sonde__graph_param_draw(&model->params[stream], 0, stream);
    }
    return tensor.value;
}

static sonde_nn_value layer_tensor(sonde__graph_layer *layer, const char *suffix,
                                   const sonde__op_shape *shape, sonde_role role,
                                   sonde__graph_param tensor)
{
    sonde_nn_model *model = layer->model;
    sonde__op_graph *graph = &model->graph;
    const char *name = sonde__graph_string(graph, "%s.%s", layer->path, suffix);

    if (name == NULL) {
        return 0;
    }
    const sonde__graph_param *known = known_tensor(model, name);
    if (known != NULL &&
        memcmp(&graph->values[known->value].shape, shape, sizeof *shape) != 0) {
        return sonde__graph_fail(graph, SONDE_ESHAPE, name, "the shape of its first call",
                                 "the module was called before with another shape");
    }
    if (known != NULL) {
        return known->value;
    }
    if (!layer->named) {
        return sonde__graph_fail(graph, SONDE_EINVAL,
                                 layer->kind != NULL ? layer->kind : suffix, "a name",
                                 "a layer with parameters (%s) needs a name", suffix);
    }
    return sonde__graph_add_tensor(model, name, shape, role, tensor);
}

sonde_nn_value sonde__graph_layer_param(sonde__graph_layer *layer, const char *suffix,
                                        int rank, const int64_t *dim, sonde_role role,
                                        float bound, float constant)
{
    return sonde__graph_layer_drawn(
        layer, suffix, rank, dim, role,
        (sonde__graph_param){.bound = bound, .constant = constant});
}

sonde_nn_value sonde__graph_layer_drawn(sonde__graph_layer *layer, const char *suffix,
                                        int rank, const int64_t *dim, sonde_role role,
                                        sonde__graph_param drawn)
{
    sonde__op_shape shape = {.dtype = SONDE_F32, .rank = rank};

    for (int i = 0; i < rank; i++) {
        shape.dim[i] = dim[i];
    }
    return layer_tensor(layer, suffix, &shape, role, drawn);
}

sonde_nn_value sonde__graph_layer_buffer(sonde__graph_layer *layer, const char *suffix,
                                         const sonde__op_shape *shape, float constant)
{
    return layer_tensor(layer, suffix, shape, SONDE_ROLE_BUFFER,
                        (sonde__graph_param){.constant = constant});
}

/* === parameters ===================================================================== */

void sonde__graph_param_draw(sonde__graph_param *param, uint64_t seed, size_t stream)
{
    float *data = param->data;

    for (size_t i = 0; i < param->count; i++) {
        data[i] = param->spread > 0.0F ? sonde__normal(seed, stream, i) * param->spread
                  : param->bound > 0.0F
                      ? (2.0F * sonde__uniform(seed, stream, i) - 1.0F) * param->bound
                      : param->constant;
    }
    for (size_t i = 0; i < param->blank; i++) {
        data[param->blank_first + i] = 0.0F;
    }
}

void sonde_nn_model_initialize(sonde_nn_model *model, uint64_t seed)
{
    const sonde_nn_model_info info = sonde_nn_model_get_info(model);

    for (size_t i = 0; i < info.parameter_count; i++) {
        if (!model->params[i].given && !model->params[i].borrowed) {
            sonde__graph_param_draw(&model->params[i], seed, i);
        }
    }
    for (size_t i = 0; i < info.buffer_count; i++) {
        if (!model->buffers[i].given && !model->buffers[i].borrowed) {
            sonde__graph_fill_buffer(model, i);
        }
    }
}

sonde_nn_model_info sonde_nn_model_get_info(const sonde_nn_model *model)
{
    if (model == NULL) {
        return (sonde_nn_model_info){0};
    }
    return (sonde_nn_model_info){.input_count = model->graph.input_count,
                                 .output_count = model->graph.output_count,
                                 .parameter_count = model->param_count,
                                 .buffer_count = model->buffer_count,
                                 .loss = model->graph.loss};
}

/* Tensor i of one of the lists, in place. */
static sonde_named_view tensor_at(const sonde_nn_model *model,
                                  const sonde__graph_param *list, size_t count, size_t i)
{
    if (i >= count) {
        return (sonde_named_view){0};
    }
    const uint32_t value = list[i].value;
    const sonde__op_shape *shape = sonde__op_value_shape(&model->graph, value);

    return (sonde_named_view){
        .name = model->graph.values[value].name,
        .view = sonde_view_of(shape->dtype, shape->rank, shape->dim, list[i].data)};
}

sonde_named_view sonde_nn_parameter(const sonde_nn_model *model, size_t i)
{
    return model != NULL ? tensor_at(model, model->params, model->param_count, i)
                         : (sonde_named_view){0};
}

sonde_named_view sonde_nn_buffer(const sonde_nn_model *model, size_t i)
{
    return model != NULL ? tensor_at(model, model->buffers, model->buffer_count, i)
                         : (sonde_named_view){0};
}

size_t sonde__graph_tensor_count(const sonde_nn_model *model)
{
    return model->param_count + model->buffer_count;
}

sonde_named_view sonde__graph_tensor(const sonde_nn_model *model, size_t i)
{
    return i < model->param_count ? sonde_nn_parameter(model, i)
                                  : sonde_nn_buffer(model, i - model->param_count);
}

void sonde_nn_parameter_leave_out(sonde_nn_model *model, size_t i, bool left_out)
{
    if (model != NULL && i < model->param_count) {
        model->params[i].left_out = left_out;
    }
}

/* The model's parameters and buffers, to free; NULL: no memory. */
static sonde_named_view *list_tensors(const sonde_nn_model *model, sonde_diag *diag)
{
    const size_t count = sonde__graph_tensor_count(model);
    sonde_named_view *named = sonde__calloc(count, sizeof *named);

    if (named == NULL) {
        (void)sonde__fail_nomem(diag, "the list of tensors");
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        named[i] = sonde__graph_tensor(model, i);
    }
    return named;
}

sonde_err sonde_nn_model_save(const sonde_nn_model *model, const char *path,
                              sonde_diag *diag)
{
    static const sonde_metadata format = {"format",
                                          "pt"}; /* the value torch's own writer uses */
    sonde_err err = sonde__graph_expect(model, "model", diag);

    if (err != SONDE_OK) {
        return err;
    }
    SONDE__TRY(sonde__graph_expect(path, "path", diag));
    sonde_named_view *named = list_tensors(model, diag);
    if (named == NULL) {
        return SONDE_ENOMEM;
    }
    err = sonde_safetensors_write(path, named, sonde__graph_tensor_count(model), &format,
                                  1, diag);
    sonde__free(named);
    return err;
}

sonde_err sonde_nn_model_load(sonde_nn_model *model, const char *path, sonde_diag *diag)
{
    sonde_safetensors *file = NULL;
    sonde_named_view *named = NULL;
    sonde_err err = sonde__graph_expect(model, "model", diag);

    if (err != SONDE_OK) {
        return err;
    }
    SONDE__TRY(sonde__graph_expect(path, "path", diag));
    SONDE__TRY(sonde_safetensors_open(path, &file, diag));
    named = list_tensors(model, diag);
    SONDE__TRY_GO(named == NULL ? SONDE_ENOMEM
                                : sonde__graph_check_stored(
                                      file, path, named, sonde__graph_tensor_count(model),
                                      true, diag));
    for (size_t i = 0; i < sonde__graph_tensor_count(model); i++) {
        SONDE__TRY_GO(sonde_view_copy(&named[i].view,
                                      sonde_safetensors_find(file, named[i].name), diag));
    }
error:
    sonde__free(named);
    sonde_safetensors_destroy(file);
    return err;
}

/*
 * named_layer.c - sonde_nn_layer: a layer by its name, from its row in src/nn/ops.
 */
#include "nn/graph/layer.h"
#include "base/fail.h"
#include "nn/ops/layer_row.h"

#include <math.h>
#include <stdio.h>

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
    sonde__op_attrs attrs = {0};

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

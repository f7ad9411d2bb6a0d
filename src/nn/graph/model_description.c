/*
 * model_description.c - a model's graph as JSON.
 *
 * The graph is instantiated a second time for a batch of one sample more: dimensions that
 * differ depend on the batch.
 */
#include "base/fail.h"
#include "base/macros.h"
#include "nn/graph/graph.h"
#include "nn/graph/layer.h"

#include <sonde/json.h>
#include <sonde/nn/model.h>

#include <assert.h>
#include <string.h>

static void put_ids(sonde_json *json, const char *key, const sonde__op_value *ids,
                    size_t count)
{
    sonde_json_list(json, key);
    for (size_t i = 0; i < count; i++) {
        sonde_json_uint(json, NULL, ids[i]);
    }
    sonde_json_end(json);
}

static void put_element(sonde_json *json, const char *key,
                        const sonde__packed_field *field, const unsigned char *bytes)
{
    int64_t number = 0;
    int32_t word = 0;
    float real = 0.0F;

    switch (field->kind) {
    case SONDE__PACKED_LONG:
        memcpy(&number, bytes, sizeof number);
        sonde_json_int(json, key, number);
        break;
    case SONDE__PACKED_BOOL:
        sonde_json_bool(json, key, bytes[0] != 0);
        break;
    case SONDE__PACKED_WORD:
        memcpy(&word, bytes, sizeof word);
        sonde_json_int(json, key, word);
        break;
    case SONDE__PACKED_REAL:
        memcpy(&real, bytes, sizeof real);
        sonde_json_real(json, key, (double)real);
        break;
    }
}

static void put_fields(sonde_json *json, const sonde__op_fields *table,
                       const sonde__op_attrs *attrs)
{
    for (size_t i = 0; i < table->count; i++) {
        const sonde__packed_field *field = &table->fields[i];
        const unsigned char *bytes = (const unsigned char *)attrs + field->offset;
        const size_t size = field->kind == SONDE__PACKED_LONG ? 8 : 4;

        if (field->count == 1) {
            put_element(json, field->name, field, bytes);
            continue;
        }
        sonde_json_list(json, field->name);
        for (int k = 0; k < field->count; k++) {
            put_element(json, NULL, field, bytes + (size_t)k * size);
        }
        sonde_json_end(json);
    }
}

static void put_attrs(sonde_json *json, const char *key, const sonde__op_kind *kind,
                      const sonde__op_attrs *attrs)
{
    sonde_json_object(json, key);
    put_fields(json, &sonde__op_fields_common, attrs);
    put_fields(json, kind->fields, attrs);
    sonde_json_end(json);
}

/* other: the same value for another batch, or NULL. */
static void put_value(sonde_json *json, const sonde__graph_node_value *value,
                      const sonde__graph_node_value *other)
{
    static const char *const sources[] = {"op",    "input",  "parameter",
                                          "state", "buffer", "number"};

    assert(value != NULL);
    sonde_json_object(json, NULL);
    sonde_json_string(json, "name", value->name);
    sonde_json_string(json, "source", sources[value->source]);
    sonde_json_string(json, "dtype", sonde_dtype_name(value->shape.dtype));
    sonde_json_list(json, "shape");
    for (int i = 0; i < value->shape.rank; i++) {
        sonde_json_int(json, NULL, value->shape.dim[i]);
    }
    sonde_json_end(json);
    sonde_json_list(json, "batch");
    for (int i = 0; other != NULL && i < value->shape.rank; i++) {
        if (value->shape.dim[i] != other->shape.dim[i]) {
            sonde_json_int(json, NULL, i);
        }
    }
    sonde_json_end(json);
    sonde_json_end(json);
}

static void put_op(sonde_json *json, const sonde__graph_node_op *op)
{
    sonde_json_object(json, NULL);
    sonde_json_string(json, "kind", op->kind->name);
    put_ids(json, "in", op->in, (size_t)op->in_count);
    put_ids(json, "out", op->out, (size_t)op->out_count);
    put_attrs(json, "attrs", op->kind, &op->attrs);
    put_attrs(json, "given", op->kind, &op->given);
    sonde_json_end(json);
}

static void put_graph(sonde_json *json, const sonde__op_graph *graph,
                      const sonde__op_graph *other)
{
    sonde_json_object(json, NULL);
    sonde_json_list(json, "values");
    sonde_json_raw(json, NULL, "null");
    for (size_t i = 1; i < graph->value_count; i++) {
        put_value(json, &graph->values[i], other != NULL ? &other->values[i] : NULL);
    }
    sonde_json_end(json);
    sonde_json_list(json, "ops");
    for (size_t i = 0; i < graph->op_count; i++) {
        if (graph->ops[i].kind != NULL) {
            put_op(json, &graph->ops[i]);
        }
    }
    sonde_json_end(json);
    put_ids(json, "inputs", graph->inputs, graph->input_count);
    sonde_json_list(json, "outputs");
    for (size_t i = 0; i < graph->output_count; i++) {
        if (graph->outputs[i] != graph->loss) {
            sonde_json_uint(json, NULL, graph->outputs[i]);
        }
    }
    sonde_json_end(json);
    sonde_json_end(json);
}

sonde_err sonde_nn_model_describe(const sonde_nn_model *model, sonde_text *text,
                                  sonde_diag *diag)
{
    SONDE__NEEDS(diag, model, text);
    SONDE__TRY(sonde_nn_model_status(model, diag));
    const sonde__op_graph *graph = &model->graph;
    const sonde__op_shape *first =
        graph->input_count > 0 ? &graph->values[graph->inputs[0]].shape : NULL;
    sonde__op_graph other = {0};
    const bool varies = first != NULL && first->rank > 0 &&
                        sonde__graph_instantiate(graph, first->dim[0] + 1, false, &other,
                                                 NULL) == SONDE_OK;
    const bool full = other.err == SONDE_ENOMEM;

    if (!full) {
        put_graph(&(sonde_json){.text = text}, graph, varies ? &other : NULL);
    }
    sonde__graph_fini(&other);
    return full || text->failed ? sonde__fail_nomem(diag, "the description of a model")
                                : SONDE_OK;
}

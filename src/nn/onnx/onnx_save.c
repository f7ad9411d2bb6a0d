/*
 * onnx_save.c - writes a network for inference as an ONNX file, opset 21.
 *
 * Only what leads to the outputs is written; the loss is not. The batch is open where the
 * network works with another one: dimensions that then differ have the name "batch". Most
 * ops become one node under their values' names, others several (onnx_recipes.c,
 * onnx_write_*.c); dropout becomes Identity.
 */
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/whole_file.h"
#include "nn/onnx/onnx_file.h"
#include "nn/onnx/onnx_write.h"

#include <sonde/nn/onnx.h>

#include <stdio.h>
#include <string.h>

enum { OPSET = 21, IR_VERSION = 10 };

/* Writes the op at hand; false: ONNX has none like it. */
static bool write_node(sonde__onnx_writer *w)
{
    static const sonde__onnx_written *const tables[] = {
        sonde__onnx_write_layers, sonde__onnx_write_places, sonde__onnx_write_heads};

    w->named = 0;
    for (size_t t = 0; t < SONDE_COUNT_OF(tables); t++) {
        for (const sonde__onnx_written *row = tables[t]; row->kind != NULL; row++) {
            if (strcmp(row->kind, w->op->kind->name) == 0) {
                return row->write(w, &w->op->attrs);
            }
        }
    }
    return sonde__onnx_write_recipe(w);
}

/* --- values ------------------------------------------------------------------------------ */

/* An input or an output of the graph. */
static void put_value(sonde__onnx_writer *w, unsigned field, sonde__op_value value)
{
    const sonde__op_shape *shape = &w->model->graph.values[value].shape;
    sonde__onnx_wire dim = {0}, dims = {0}, tensor = {0}, type = {0}, info = {0};
    sonde__onnx_wire *const all[] = {&dim, &dims, &tensor, &type, &info};

    w->named = 0;
    for (int i = 0; i < shape->rank; i++) {
        if (sonde__onnx_varies(w, value, i)) {
            sonde__onnx_wire_text(&dim, 2, "batch");
        } else {
            sonde__onnx_wire_int(&dim, 1, shape->dim[i]);
        }
        sonde__onnx_wire_message(&dims, 1, &dim);
    }
    sonde__onnx_wire_int(&tensor, 1, sonde__onnx_type(shape->dtype));
    sonde__onnx_wire_message(&tensor, 2, &dims);
    sonde__onnx_wire_message(&type, 1, &tensor);
    sonde__onnx_wire_text(&info, 1, sonde__onnx_value_name(w, value));
    sonde__onnx_wire_message(&info, 2, &type);
    sonde__onnx_wire_message(&w->graph, field, &info);
    for (size_t i = 0; i < SONDE_COUNT_OF(all); i++) {
        sonde__onnx_wire_free(all[i]);
    }
}

static void put_tensor(sonde__onnx_writer *w, size_t i)
{
    const sonde_view view = sonde__graph_tensor_view(w->model, i);

    for (int k = 0; k < view.rank; k++) {
        sonde__onnx_wire_int(&w->part, 1, view.shape[k]);
    }
    sonde__onnx_wire_int(&w->part, 2, sonde__onnx_type(view.dtype));
    sonde__onnx_wire_text(&w->part, 8, sonde__graph_tensor_name(w->model, i));
    sonde__onnx_wire_bytes(&w->part, 9, view.data,
                           (size_t)sonde_view_count(&view) *
                               sonde_dtype_size(view.dtype));
    sonde__onnx_wire_message(&w->graph, 5, &w->part);
}

/* Begins no name of a value. */
static const char *free_prefix(const sonde__op_graph *graph)
{
    static const char *const prefixes[] = {"", "onnx-", "made-", "sonde-"};

    for (size_t p = 0; p < SONDE_COUNT_OF(prefixes) - 1; p++) {
        static const char *const stems[] = {"constant-", "between-", "unread-", "value-"};
        const size_t length = strlen(prefixes[p]);
        bool taken = false;

        for (size_t i = 1; i < graph->value_count; i++) {
            const char *name = graph->values[i].name;

            for (size_t k = 0; name != NULL && k < SONDE_COUNT_OF(stems); k++) {
                taken =
                    taken || (strncmp(name, prefixes[p], length) == 0 &&
                              strncmp(name + length, stems[k], strlen(stems[k])) == 0);
            }
        }
        if (!taken) {
            return prefixes[p];
        }
    }
    return prefixes[SONDE_COUNT_OF(prefixes) - 1];
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
            if (k == (op->attrs.affine ? 5 : 3) &&
                strcmp(op->kind->name, "BatchNorm") == 0) {
                break; /* how many batches it has seen: only training reads it */
            }
            live[op->in[k]] = true;
        }
    }
}

/* Which outputs of the op at hand are read; false: none is. */
static bool find_needed(sonde__onnx_writer *w, const bool *live)
{
    bool any = false;

    for (int k = 0; k < SONDE__MAX_OPERANDS; k++) {
        w->needed[k] = k < w->op->out_count && live[w->op->out[k]];
        any = any || w->needed[k];
    }
    return any;
}

/* Ops that cannot be written, by kind: each with the value of the first. */
typedef struct refusals {
    const sonde__op_kind *kinds[16];
    const char *first[16];
    size_t counts[16], kind_count, count;
} refusals;

static void add_refusal(refusals *r, sonde__onnx_writer *w)
{
    size_t i = 0;

    while (i < r->kind_count && r->kinds[i] != w->op->kind) {
        i++;
    }
    r->count++;
    if (i == SONDE_COUNT_OF(r->kinds)) {
        return;
    }
    if (i == r->kind_count) {
        const char *name = w->model->graph.values[w->op->out[0]].name;

        r->kinds[r->kind_count] = w->op->kind;
        r->first[r->kind_count++] = name != NULL ? name : "";
    }
    r->counts[i]++;
}

static sonde_err refuse(const refusals *r, sonde_diag *diag)
{
    char list[320] = "";

    for (size_t i = 0; i < r->kind_count; i++) {
        const size_t used = strlen(list);
        char more[32] = "";

        if (r->counts[i] > 1) {
            (void)snprintf(more, sizeof more, " and %zu more", r->counts[i] - 1);
        }
        (void)snprintf(list + used, sizeof list - used, "%s%s (%.40s%s)",
                       i > 0 ? ", " : "", r->kinds[i]->name, r->first[i], more);
    }
    return sonde__fail(diag, SONDE_EUNSUPPORTED, "ONNX", NULL,
                       "%zu op%s that cannot be written: %s", r->count,
                       r->count == 1 ? "" : "s", list);
}

static sonde_err write_ops(sonde__onnx_writer *w, const bool *live, sonde_diag *diag)
{
    const sonde__op_graph *graph = &w->model->graph;
    refusals refused = {.count = 0};

    for (size_t i = 0; i < graph->op_count; i++) {
        w->op = &graph->ops[i];
        if (w->op->kind != NULL && find_needed(w, live) && !write_node(w)) {
            add_refusal(&refused, w);
            w->node.size = w->part.size = 0;
        }
    }
    return refused.count == 0 ? SONDE_OK : refuse(&refused, diag);
}

static sonde_err write_graph(sonde__onnx_writer *w, const bool *live, sonde_diag *diag)
{
    const sonde__op_graph *graph = &w->model->graph;
    const size_t params = sonde_nn_parameter_count(w->model);
    SONDE__TRY(write_ops(w, live, diag));
    sonde__onnx_wire_text(&w->graph, 2, "sonde");
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

/* The whole file, of a written graph. */
static sonde_err put_file(sonde__onnx_writer *w, const char *path, sonde_diag *diag)
{
    sonde__onnx_wire whole = {0};
    sonde_err err = SONDE_OK;

    sonde__onnx_wire_int(&whole, 1, IR_VERSION);
    sonde__onnx_wire_text(&whole, 2, "sonde");
    sonde__onnx_wire_message(&whole, 7, &w->graph);
    sonde__onnx_wire_int(&w->part, 2, OPSET);
    sonde__onnx_wire_message(&whole, 8, &w->part);
    err = whole.failed ? sonde__fail_nomem(diag, "an ONNX model")
                       : sonde__whole_put(path, whole.bytes, whole.size, diag);
    sonde__onnx_wire_free(&whole);
    return err;
}

/* The same network for one sample more, which shows what depends on the batch. */
static bool make_other(const sonde__op_graph *graph, sonde__op_graph *other)
{
    const sonde__op_shape *first =
        graph->input_count > 0 ? &graph->values[graph->inputs[0]].shape : NULL;

    return first != NULL && first->rank > 0 &&
           sonde__graph_instantiate(graph, first->dim[0] + 1, false, other, NULL) ==
               SONDE_OK;
}

sonde_err sonde_nn_onnx_save(const sonde_nn_model *model, const char *path,
                             sonde_diag *diag)
{
    SONDE__NEEDS(diag, model, path);
    const size_t count = model->graph.value_count;
    sonde__op_graph other = {0};
    sonde__onnx_writer *w = sonde__calloc(1, sizeof *w);
    bool *live = sonde__calloc(count, sizeof *live);
    sonde_err err = w != NULL && live != NULL ? sonde_nn_model_status(model, diag)
                                              : sonde__fail_nomem(diag, "an ONNX model");

    if (err != SONDE_OK) {
        goto done;
    }
    w->model = model;
    w->prefix = free_prefix(&model->graph);
    w->other = make_other(&model->graph, &other) ? &other : NULL;
    if (other.err == SONDE_ENOMEM) {
        err = sonde__fail_nomem(diag, "an ONNX model");
        goto done;
    }
    find_live(&model->graph, live);
    err = write_graph(w, live, diag);
    if (err == SONDE_OK) {
        err = put_file(w, path, diag);
    }

done:
    if (w != NULL) {
        sonde__onnx_wire_free(&w->graph);
        sonde__onnx_wire_free(&w->node);
        sonde__onnx_wire_free(&w->part);
    }
    sonde__graph_fini(&other);
    sonde__free(w);
    sonde__free(live);
    return err;
}

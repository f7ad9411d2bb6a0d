/*
 * prune.c - removes ops that lead neither to an output, nor to the loss of a training
 * session, nor to a parameter's gradient, nor to an update.
 */
#include "nn/compile/compile.h"
#include "base/memory.h"

#include <sonde/log.h>

static bool updates_in_place(const sonde__graph_node_op *op)
{
    for (int i = 0; i < op->out_count; i++) {
        if (op->kind->alias[i] != 0) {
            return true;
        }
    }
    return false;
}

static void mark_roots(const sonde__plan_program *program, bool *needed)
{
    const sonde__op_graph *graph = &program->graph;

    for (size_t i = 0; i < graph->output_count; i++) {
        needed[graph->outputs[i]] = true;
    }
    if (program->optimizer != NULL) {
        needed[graph->loss] = true;
        needed[program->gradient_of[graph->loss]] = true;
        for (size_t i = 0; i < program->model->param_count; i++) {
            needed[program->trained[i].summed] = true; /* 0: none */
        }
    }
    for (size_t i = 0; i < graph->op_count; i++) {
        for (int k = 0; updates_in_place(&graph->ops[i]) && k < graph->ops[i].in_count;
             k++) {
            needed[graph->ops[i].in[k]] = true;
        }
    }
}

/* Removes prints whose results are unused. */
static void drop_prints(sonde__op_graph *graph, const bool *needed)
{
    for (size_t i = 0; i < graph->print_count; i++) {
        sonde__graph_print_request *request = &graph->prints[i];
        const char *printed = NULL;

        for (size_t k = 0; k < graph->op_count && printed == NULL; k++) {
            if (graph->ops[k].out[0] == request->value) { /* pruned, but still there */
                printed = graph->values[graph->ops[k].in[0]].name;
            }
        }
        if (!needed[request->value]) {
            sonde_log(SONDE_LOG_WARNING, "compile",
                      "print %s'%s' is removed: its result is unused",
                      request->title != NULL ? "" : "of ",
                      request->title != NULL ? request->title
                      : printed != NULL      ? printed
                                             : "");
            request->value = 0;
        }
    }
}

void sonde__pass_prune(sonde__plan_program *program)
{
    sonde__op_graph *graph = &program->graph;
    bool *needed = sonde__calloc(graph->value_count, sizeof *needed);

    if (needed == NULL) {
        (void)sonde__graph_fail(graph, SONDE_ENOMEM, NULL, NULL, "out of memory");
        return;
    }
    mark_roots(program, needed);
    for (size_t i = graph->op_count; i-- > 0;) {
        sonde__graph_node_op *op = &graph->ops[i];
        bool keep = updates_in_place(op);

        for (int k = 0; k < op->out_count; k++) {
            keep = keep || needed[op->out[k]];
        }
        for (int k = 0; keep && k < op->in_count; k++) {
            needed[op->in[k]] = true;
        }
        if (!keep) {
            for (int k = 0; k < op->out_count; k++) {
                graph->values[op->out[k]].name = NULL;
            }
            op->kind = NULL;
        }
    }
    drop_prints(graph, needed);
    for (size_t v = 1; v < graph->value_count; v++) {
        if (graph->values[v].source != SONDE__FROM_OP &&
            graph->values[v].source != SONDE__FROM_HYPER && !needed[v]) {
            graph->values[v].name = NULL; /* a parameter or input that nothing reads */
        }
    }
    sonde__free(needed);
}

size_t sonde__plan_use_count(const sonde__op_graph *graph, sonde__op_value value)
{
    size_t count = 0;

    for (size_t i = 0; i < graph->op_count; i++) {
        for (int k = 0; graph->ops[i].kind != NULL && k < graph->ops[i].in_count; k++) {
            count += graph->ops[i].in[k] == value;
        }
    }
    return count;
}

size_t sonde__plan_producer(const sonde__op_graph *graph, sonde__op_value value)
{
    for (size_t i = 0; i < graph->op_count; i++) {
        for (int k = 0; graph->ops[i].kind != NULL && k < graph->ops[i].out_count; k++) {
            if (graph->ops[i].out[k] == value) {
                return i;
            }
        }
    }
    return SIZE_MAX;
}

/*
 * prune.c - which ops stay, and their order over stages.
 *
 * Removes ops that lead neither to an output, nor to the loss of a training
 * session, nor to a parameter's gradient, nor to an update.
 *
 * The stages of a pipeline: blocks of layers, in the order in which they were
 * begun. The ops of a micro-batch are put in the order of its segments,
 *
 *     forward 0, forward 1 ... forward S-1, backward S-1 ... backward 0
 *
 * Each in the order it had. A segment reads what earlier ones and itself have made, so a
 * micro-batch goes through them one after the other, and while it is in one, another
 * micro-batch, in memory of its own, may be in another.
 */
#include "nn/compile/compile.h"
#include "base/memory.h"

#include <sonde/log.h>
#include <string.h>

/* === prune ========================================================================== */

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

/* === stage ========================================================================== */

int sonde__plan_segment(const sonde__op_graph *graph, const sonde__graph_node_op *op)
{
    return op->late ? 2 * graph->stage_count - 1 - op->stage : op->stage;
}

/* Whether an op of every stage leads to the loss: its forward segment is not empty. */
static void check_reached(sonde__op_graph *graph, size_t count)
{
    for (int s = 0; s < graph->stage_count && graph->err == SONDE_OK; s++) {
        bool reached = false;

        for (size_t i = 0; i < count; i++) {
            reached = reached || (graph->ops[i].kind != NULL && !graph->ops[i].late &&
                                  graph->ops[i].stage == s);
        }
        if (!reached) {
            (void)sonde__graph_fail(graph, SONDE_EINVAL, graph->stages[s],
                                    "layers that lead to the loss",
                                    "nothing reaches this block");
        }
    }
}

/* Whether the ops are still in an order of execution. */
static void check_order(sonde__op_graph *graph, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const sonde__graph_node_op *op = &graph->ops[i];

        for (int k = 0; op->kind != NULL && k < op->in_count; k++) {
            const size_t maker =
                op->in[k] != 0 ? sonde__plan_producer(graph, op->in[k]) : SIZE_MAX;

            if (maker != SIZE_MAX && maker > i) {
                (void)sonde__graph_fail(graph, SONDE_EINVAL, graph->stages[op->stage],
                                        "blocks in the order of their layers",
                                        "it reads what block %s makes later",
                                        graph->stages[graph->ops[maker].stage]);
                return;
            }
        }
    }
}

void sonde__pass_stage(sonde__plan_program *program)
{
    sonde__op_graph *graph = &program->graph;
    const size_t count =
        program->micro_ops < graph->op_count ? program->micro_ops : graph->op_count;
    sonde__graph_node_op *sorted = NULL;
    size_t filled = 0;

    if (!sonde__plan_has_stages(program)) {
        return;
    }
    check_reached(graph, count);
    sorted = sonde__calloc(count, sizeof *sorted);
    if (sorted == NULL) {
        (void)sonde__graph_fail(graph, SONDE_ENOMEM, NULL, NULL, "out of memory");
        return;
    }
    for (int segment = 0; segment < 2 * graph->stage_count; segment++) {
        for (size_t i = 0; i < count; i++) {
            if (sonde__plan_segment(graph, &graph->ops[i]) == segment) {
                sorted[filled++] = graph->ops[i];
            }
        }
    }
    memcpy(graph->ops, sorted, count * sizeof *sorted);
    sonde__free(sorted);
    if (graph->err == SONDE_OK) {
        check_order(graph, count);
    }
}

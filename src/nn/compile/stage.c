/*
 * stage.c - the stages of a pipeline: blocks of layers, in the order in which they were
 * begun. The ops of a micro-batch are put in the order of its segments,
 *
 *     forward 0, forward 1 ... forward S-1, backward S-1 ... backward 0
 *
 * each in the order it had. A segment reads what earlier ones and itself have made, so a
 * micro-batch goes through them one after the other, and while it is in one, another
 * micro-batch, in memory of its own, may be in another.
 */
#include "nn/compile/compile.h"
#include "base/memory.h"

#include <string.h>

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

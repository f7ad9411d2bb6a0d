/*
 * track.c - brings the buffers of the model up to date: the running statistics of batch
 * normalisation, and what other ops keep besides their parameters.
 *
 * Each op that has buffers emits its own ops (sonde__op_kind has `track`). They follow the
 * backward pass of every micro-batch, so buffers change once a micro-batch, as in PyTorch,
 * and not when the forward pass runs a second time to be observed.
 */
#include "nn/compile/compile.h"

void sonde__pass_track(sonde__plan_program *program)
{
    sonde__op_graph *graph = &program->graph;
    const size_t op_count = graph->op_count;

    graph->pass = SONDE_PASS_FORWARD;
    for (size_t i = 0; i < op_count && graph->err == SONDE_OK; i++) {
        const sonde__graph_node_op op = graph->ops[i]; /* a copy: the list grows */

        if (op.pass == SONDE_PASS_FORWARD && op.kind->track != NULL) {
            graph->module = op.module;
            graph->stage = op.stage;
            op.kind->track(graph, &op.attrs, op.in, op.out);
        }
    }
    graph->module = sonde__graph_string(graph, "%s", "");
}

/*
 * optimise.c - one update op for every parameter that has a gradient: UpdatedVar___W,
 * and the optimiser's state as Accl1___W (momentum; Adam's first moment), Accl2___W
 * (second moment) and Step___W.
 *
 * An op goes to the end of the list; with G = 1 the fuse pass may bring it forward.
 */
#include "nn/compile/compile.h"

static sonde__op_value state(sonde__op_graph *graph, const sonde__op_shape *shape)
{
    return sonde__graph_leaf(graph, shape, SONDE__FROM_STATE, graph->state_count++, NULL,
                             SONDE_ROLE_OPTIMIZER);
}

static void name_state(sonde__op_graph *graph, sonde__op_value value, const char *prefix,
                       const char *param)
{
    graph->values[value].name = sonde__graph_string(graph, "%s___%s", prefix, param);
    graph->values[value].role = SONDE_ROLE_OPTIMIZER;
}

static void emit_update(sonde__plan_program *program, const sonde__plan_trained *trained)
{
    static const sonde__op_shape counter = {.dtype = SONDE_F32, .rank = 0};
    sonde__op_graph *graph = &program->graph;
    const sonde__op_shape shape = *sonde__op_value_shape(graph, trained->param);
    const sonde__graph_node_value param = graph->values[trained->param];
    const bool adam = program->optimizer->kind != SONDE_NN_SGD;
    const bool momentum = !adam && program->optimizer->momentum != 0.0F;
    sonde__op_value in[5] = {trained->param, trained->summed, 0, 0, 0};
    sonde__op_value out = 0;
    int count = 2;

    graph->module = param.module;
    if (adam || momentum) {
        in[count++] = state(graph, &shape);
    }
    if (adam) {
        in[count++] = state(graph, &shape);
        in[count++] = state(graph, &counter);
    }
    out = sonde__op_emit(graph, adam ? &sonde__op_adam : &sonde__op_sgd, NULL, in, count);
    if (out == 0) {
        return;
    }
    graph->values[out].name = sonde__graph_string(graph, "UpdatedVar___%s", param.name);
    graph->values[out].role = SONDE_ROLE_UPDATE;
    if (adam || momentum) {
        name_state(graph, out + 1, "Accl1", param.name);
    }
    if (adam) {
        name_state(graph, out + 2, "Accl2", param.name);
        name_state(graph, out + 3, "Step", param.name);
    }
}

void sonde__pass_optimise(sonde__plan_program *program)
{
    sonde__op_graph *graph = &program->graph;

    graph->pass = SONDE_PASS_UPDATE;
    for (size_t i = 0; i < program->model->param_count && graph->err == SONDE_OK; i++) {
        if (program->trained[i].gradient != 0 && !program->model->params[i].left_out) {
            emit_update(program, &program->trained[i]);
        }
    }
    if (program->options->gradient_accumulation == 1) {
        program->micro_ops = graph->op_count;
    }
}

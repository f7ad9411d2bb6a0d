/*
 * accumulate_gradients.c - gradient accumulation: with G > 1, Accum___W holds the running
 * sum of the micro-batches' gradients; it is zero when a step begins.
 */
#include "nn/compile/compile.h"

void sonde__pass_accumulate(sonde__plan_program *program)
{
    static const sonde__op_attrs plain_sum = {.scale = 1.0F};
    sonde__op_graph *graph = &program->graph;

    graph->pass = SONDE_PASS_BACKWARD;
    for (size_t i = 0; i < program->model->param_count; i++) {
        sonde__plan_trained *trained = &program->trained[i];
        sonde__op_value in[2] = {0, trained->gradient};

        if (trained->gradient == 0 || program->options->gradient_accumulation == 1) {
            continue;
        }
        graph->module = graph->values[trained->param].module;
        in[0] = sonde__graph_leaf(graph, sonde__op_value_shape(graph, trained->param),
                                  SONDE__FROM_STATE, graph->state_count++, NULL,
                                  SONDE_ROLE_GRADIENT);
        trained->summed = sonde__op_emit(graph, &sonde__op_accumulate, &plain_sum, in, 2);
        if (trained->summed == 0) {
            return;
        }
        graph->values[trained->summed].name =
            sonde__graph_string(graph, "Accum___%s", graph->values[trained->param].name);
        graph->values[trained->summed].role = SONDE_ROLE_GRADIENT;
        graph->values[trained->summed].note =
            "running sum over the micro-batches of a step";
    }
    program->micro_ops = graph->op_count;
}

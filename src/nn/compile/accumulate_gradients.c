/*
 * accumulate_gradients.c - sums of gradients over the micro-batches of a step.
 *
 * With G > 1, Accum___W holds the running sum of the micro-batches' gradients of a
 * replica; it is zero when a step begins. With R > 1 or several ranks,
 * FinalReducedGradient___W is the sum of their gradients, in their order; with both,
 * ReplicaGradient___W is the one over the replicas of a rank.
 */
#include "nn/compile/compile.h"

/* After the micro-batches: several sums become one, by an op that adds `count` of them. */
static void reduce(sonde__plan_program *program, sonde__plan_trained *trained,
                   const sonde__op_kind *kind, int count, const char *name)
{
    const sonde__op_attrs attrs = {.replicas = {.count = count}};
    sonde__op_graph *graph = &program->graph;

    if (trained->gradient == 0 || graph->err != SONDE_OK) {
        return;
    }
    graph->module = graph->values[trained->param].module;
    trained->summed = sonde__op_emit(graph, kind, &attrs, &trained->summed, 1);
    if (trained->summed == 0) {
        return;
    }
    sonde__graph_node_value *value = &graph->values[trained->summed];
    value->role = SONDE_ROLE_GRADIENT;
    value->pass = SONDE_PASS_UPDATE; /* one a step */
    value->note = kind == &sonde__op_rank_sum
                      ? "sum over the ranks, replicas and micro-batches of a step"
                      : "sum over the replicas and micro-batches of a step";
    value->name =
        sonde__graph_string(graph, "%s%s", name, graph->values[trained->param].name);
}

static void reduce_all(sonde__plan_program *program)
{
    const int replicas = program->options->replication_factor;
    const int ranks = sonde_nn_ranks_count(program->ranks);
    const char *last = "FinalReducedGradient___";

    const size_t count = program->model->param_count;

    for (size_t i = 0; replicas > 1 && i < count; i++) {
        reduce(program, &program->trained[i], &sonde__op_replica_sum, replicas,
               ranks > 1 ? "ReplicaGradient___" : last);
    }
    for (size_t i = 0; ranks > 1 && i < count; i++) {
        reduce(program, &program->trained[i], &sonde__op_rank_sum, ranks, last);
    }
}

void sonde__pass_accumulate(sonde__plan_program *program)
{
    static const sonde__op_attrs plain_sum = {.fill = {.value = 1.0F}};
    sonde__op_graph *graph = &program->graph;

    graph->pass = SONDE_PASS_BACKWARD;
    for (size_t i = 0; i < program->model->param_count; i++) {
        sonde__plan_trained *trained = &program->trained[i];
        sonde__op_value in[2] = {0, trained->gradient};

        if (trained->gradient == 0 || program->options->gradient_accumulation == 1) {
            continue;
        }
        graph->module = graph->values[trained->param].module;
        graph->stage = graph->ops[sonde__plan_producer(graph, trained->gradient)].stage;
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
    reduce_all(program);
}

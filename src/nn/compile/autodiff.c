/*
 * autodiff.c - gradients, and what runs beside them in each micro-batch.
 *
 * Reverse-mode differentiation of the graph: gradients become values.
 *
 * Ops are walked backwards from the loss; each emits the ops of its own gradient. A value
 * read by several ops gets the sum of their gradients, in the order met. The
 * gradient of value X is named Gradient___X.
 *
 * Brings the buffers of the model up to date: the running statistics of batch
 * normalization, and what other ops keep besides their parameters.
 *
 * Each op that has buffers emits its own ops (sonde__op_kind has `track`). They follow the
 * backward pass of every micro-batch, so buffers change once a micro-batch, as in PyTorch,
 * and not when the forward pass runs a second time to be observed.
 *
 * Sums of gradients over the micro-batches of a step.
 *
 * With G > 1, Accum___W holds the running sum of the micro-batches' gradients of a
 * replica; it is zero when a step begins. With R > 1 or several ranks,
 * FinalReducedGradient___W is the sum of their gradients, in their order; with both,
 * ReplicaGradient___W is the one over the replicas of a rank.
 */
#include "nn/compile/compile.h"
#include "base/memory.h"

/* === autodiff ======================================================================= */

/* Marks the values through which the loss depends on a parameter. */
static void mark_differentiable(const sonde__op_graph *graph, bool *needs)
{
    for (size_t v = 1; v < graph->value_count; v++) {
        needs[v] = graph->values[v].source == SONDE__FROM_PARAM;
    }
    for (size_t i = 0; i < graph->op_count; i++) {
        const sonde__graph_node_op *op = &graph->ops[i];
        bool any = false;

        for (int k = 0; k < op->in_count; k++) {
            any = any || needs[op->in[k]];
        }
        if (any && sonde__op_has_gradient(op->kind)) {
            needs[op->out[0]] = true;
        }
    }
}

static void name_gradient(sonde__op_graph *graph, sonde__op_value value,
                          sonde__op_value gradient)
{
    const sonde__graph_node_value *forward = &graph->values[value];
    const char *name = NULL;

    if (forward->name == NULL || gradient == 0) {
        return;
    }
    name = sonde__graph_string(graph, "Gradient___%s", forward->name);
    if (graph->values[gradient].name != NULL) { /* a sum hands its own gradient on */
        graph->module = forward->module;
        (void)sonde__graph_alias(graph, name, gradient, SONDE_ROLE_ACTIVATION_GRADIENT);
        return;
    }
    graph->values[gradient].name = name;
    graph->values[gradient].module = forward->module;
    if (forward->source == SONDE__FROM_PARAM) {
        graph->values[gradient].role = SONDE_ROLE_GRADIENT;
        graph->values[gradient].note = "of one micro-batch, unscaled";
    } else {
        graph->values[gradient].role = SONDE_ROLE_ACTIVATION_GRADIENT;
    }
}

/* Gradients of one op's inputs, added to what is known of them. */
static void differentiate(sonde__plan_program *program, const sonde__graph_node_op *op,
                          const bool *needs)
{
    sonde__op_graph *graph = &program->graph;
    sonde__op_value grad_out[SONDE__MAX_OPERANDS] = {0},
                    grad_in[SONDE__MAX_OPERANDS] = {0};
    bool wanted[SONDE__MAX_OPERANDS] = {false};
    const sonde__op_gradient_context context = {.graph = graph,
                                                .attrs = &op->attrs,
                                                .in = op->in,
                                                .out = op->out,
                                                .grad_out = grad_out,
                                                .wanted = wanted,
                                                .grad_in = grad_in};
    bool any = false;

    for (int i = 0; i < op->out_count; i++) {
        grad_out[i] = program->gradient_of[op->out[i]];
        any = any || grad_out[i] != 0;
    }
    if (!any || !sonde__op_has_gradient(op->kind)) {
        return;
    }
    for (int i = 0; i < op->in_count; i++) {
        wanted[i] = op->in[i] != 0 && needs[op->in[i]];
    }
    graph->module = op->module;
    graph->stage = op->stage;
    sonde__op_differentiate(op->kind, &context);
    for (int i = 0; i < op->in_count && graph->err == SONDE_OK; i++) {
        sonde__op_value *known = &program->gradient_of[op->in[i]];

        if (!wanted[i] || grad_in[i] == 0) {
            continue;
        }
        if (*known == 0) {
            *known = grad_in[i];
        } else {
            const sonde__op_value terms[2] = {*known, grad_in[i]};

            *known = sonde__op_emit(graph, &sonde__op_add, NULL, terms, 2);
        }
    }
}

void sonde__pass_autodiff(sonde__plan_program *program)
{
    sonde__op_graph *graph = &program->graph;
    const size_t op_count = graph->op_count;
    const sonde__op_shape *loss_shape = sonde__op_value_shape(graph, graph->loss);
    sonde__op_attrs one = {.fill = {.value = 1.0F,
                                    .rank = loss_shape->rank,
                                    .scaled = sonde__plan_scales(program)}};
    bool *needs = sonde__calloc(program->forward_values, sizeof *needs);

    if (needs == NULL) {
        (void)sonde__graph_fail(graph, SONDE_ENOMEM, NULL, NULL, "out of memory");
        return;
    }
    for (int i = 0; i < loss_shape->rank; i++) {
        one.fill.dims[i] = loss_shape->dim[i];
    }
    mark_differentiable(graph, needs);
    graph->pass = SONDE_PASS_BACKWARD;
    graph->late = true;
    graph->stage = graph->stage_count > 0 ? graph->stage_count - 1 : 0;
    program->gradient_of[graph->loss] =
        sonde__op_emit(graph, &sonde__op_fill, &one, NULL, 0);
    for (size_t i = op_count; i-- > 0 && graph->err == SONDE_OK;) {
        const sonde__graph_node_op op = graph->ops[i]; /* a copy: the list grows */

        for (int k = 0; k < op.out_count; k++) {
            name_gradient(graph, op.out[k], program->gradient_of[op.out[k]]);
        }
        differentiate(program, &op, needs);
    }
    for (size_t i = 0; i < program->model->param_count && graph->err == SONDE_OK; i++) {
        sonde__plan_trained *trained = &program->trained[i];

        trained->gradient = program->gradient_of[trained->param];
        trained->summed = trained->gradient;
        name_gradient(graph, trained->param, trained->gradient);
    }
    graph->module = sonde__graph_string(graph, "%s", "");
    sonde__free(needs);
}

/* === track ========================================================================== */

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

/* === accumulate gradients =========================================================== */

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
    const int replicas = program->options->replicas;
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

/*
 * autodiff.c - reverse-mode differentiation of the graph: gradients become values.
 *
 * Ops are walked backwards from the loss; each emits the ops of its own gradient. A value
 * read by several ops gets the sum of their gradients, in the order met. The
 * gradient of value X is named Gradient___X.
 */
#include "nn/compile/compile.h"
#include "base/memory.h"

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

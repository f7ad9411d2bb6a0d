/*
 * optimize.c - clipping of gradients, and one update op for every parameter that has a
 * gradient: UpdatedVar___W, and the optimizer's state as Accl1___W (momentum; first
 * moment; mean or sum of squares), Accl2___W (second moment; centered mean), Accl3___W
 * (RMSprop's momentum) and Step___W.
 *
 * An update goes to the end of the list; with G = 1 the fuse pass may bring it forward.
 * Clipping by norm needs all gradients, so all updates come after it; the norm is
 * GlobalNorm___default, a clipped gradient Clipped___W. With automatic loss scaling all
 * updates come after FoundInf___default, and the op that moves the scale after them.
 *
 * What updates read besides is named, to be observed: learningRate___<group>,
 * clipNorm___default, lossScaling___default, trainStep___default.
 */
#include "nn/compile/compile.h"

enum { MOST_STATES = 3 };

/* How an optimizer updates; its states follow weight and gradient. */
typedef struct update_row {
    const sonde__op_kind *op;
    const char *states[MOST_STATES]; /* "Step" is a scalar */
} update_row;

static const update_row updates[] = {
    [SONDE_NN_SGD] = {&sonde__op_sgd, {"Accl1"}},
    [SONDE_NN_ADAM] = {&sonde__op_adam, {"Accl1", "Accl2", "Step"}},
    [SONDE_NN_ADAMW] = {&sonde__op_adam, {"Accl1", "Accl2", "Step"}},
    [SONDE_NN_RMSPROP] = {&sonde__op_rmsprop, {"Accl1", "Accl2", "Accl3"}},
    [SONDE_NN_ADAGRAD] = {&sonde__op_adagrad, {"Accl1", "Step"}},
    [SONDE_NN_LAMB] = {&sonde__op_lamb, {"Accl1", "Accl2", "Step"}},
};

/* Whether the optimizer has state k of its row. */
static bool has_state(const sonde_nn_optimizer *optimizer, int k)
{
    const bool momentum = optimizer->momentum != 0.0F;

    return optimizer->kind == SONDE_NN_SGD ? k == 0 && momentum
           : optimizer->kind == SONDE_NN_RMSPROP
               ? k == 0 || (k == 1 ? optimizer->centered : momentum)
               : updates[optimizer->kind].states[k] != NULL;
}

/* updates.c has the bits. */
static int choice_of(const sonde_nn_optimizer *optimizer)
{
    return optimizer->kind != SONDE_NN_RMSPROP
               ? 0
               : (optimizer->centered ? 1 : 0) | (optimizer->momentum != 0.0F ? 2 : 0) |
                     (optimizer->tf_variant ? 4 : 0);
}

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

static void emit_update(sonde__plan_program *program, size_t i)
{
    static const sonde__op_shape counter = {.dtype = SONDE_F32, .rank = 0};
    const sonde__plan_trained *trained = &program->trained[i];
    const int group = program->group_of[i];
    const sonde_nn_optimizer *optimizer = sonde__plan_optimizer(program, group);
    const update_row *row = &updates[optimizer->kind];
    sonde__op_graph *graph = &program->graph;
    const sonde__op_shape shape = *sonde__op_value_shape(graph, trained->param);
    const sonde__graph_node_value param = graph->values[trained->param];
    const sonde__op_attrs attrs = {
        .update = {.variant = choice_of(optimizer),
                   .group = group,
                   .bare = optimizer->no_bias_decay && shape.rank <= 1}};
    sonde__op_value in[2 + MOST_STATES] = {trained->param, trained->summed};
    int count = 2;

    graph->module = param.module;
    for (int k = 0; k < MOST_STATES; k++) {
        if (has_state(optimizer, k)) {
            in[2 + k] = state(graph, row->states[k][0] == 'S' ? &counter : &shape);
            count = 3 + k;
        }
    }
    const sonde__op_value out = sonde__op_emit(graph, row->op, &attrs, in, count);
    if (out == 0) {
        return;
    }
    graph->values[out].name = sonde__graph_string(graph, "UpdatedVar___%s", param.name);
    graph->values[out].role = SONDE_ROLE_UPDATE;
    for (int k = 0; k < MOST_STATES; k++) {
        if (has_state(optimizer, k)) {
            name_state(graph, out + 1 + (sonde__op_value)k, row->states[k], param.name);
        }
    }
}

/* --- clipping ----------------------------------------------------------------------- */

static bool is_updated(const sonde__plan_program *program, size_t i)
{
    return program->trained[i].gradient != 0 && !program->model->params[i].left_out;
}

/* Replaces what the update of a parameter reads. */
static void clip(sonde__plan_program *program, sonde__plan_trained *trained,
                 const sonde__op_kind *kind, sonde__op_value norm)
{
    sonde__op_graph *graph = &program->graph;
    const sonde__graph_node_value param = graph->values[trained->param];
    const sonde__op_value in[] = {trained->summed, norm};
    const bool last = norm != 0 || program->optimizer->clip_norm == 0.0F;

    graph->module = param.module;
    trained->summed = sonde__op_emit(graph, kind, NULL, in, norm != 0 ? 2 : 1);
    if (trained->summed != 0 && sonde__plan_updates_apart(program)) {
        graph->values[trained->summed].pass = SONDE_PASS_UPDATE; /* one a step */
    }
    if (trained->summed != 0 && last) {
        graph->values[trained->summed].name =
            sonde__graph_string(graph, "Clipped___%s", param.name);
    }
}

/* The norm of all gradients that are applied. */
static sonde__op_value emit_norm(sonde__plan_program *program)
{
    sonde__op_graph *graph = &program->graph;
    sonde__op_value norm = 0;

    graph->module = sonde__graph_string(graph, "%s", "");
    for (size_t i = 0; i < program->model->param_count && graph->err == SONDE_OK; i++) {
        const sonde__op_value in[] = {program->trained[i].summed, norm};

        if (is_updated(program, i)) {
            norm = sonde__op_emit(graph, &sonde__op_gradient_norm, NULL, in,
                                  norm != 0 ? 2 : 1);
        }
    }
    if (norm != 0) {
        graph->values[norm].name = sonde__graph_string(graph, "GlobalNorm___default");
        graph->values[norm].role = SONDE_ROLE_OPTIMIZER;
    }
    if (norm != 0 && sonde__plan_updates_apart(program)) {
        graph->values[norm].pass = SONDE_PASS_UPDATE;
    }
    return norm;
}

static void clip_all(sonde__plan_program *program)
{
    const sonde_nn_optimizer *optimizer = program->optimizer;
    const size_t count = program->model->param_count;

    for (size_t i = 0; i < count && optimizer->clip_value > 0.0F; i++) {
        if (is_updated(program, i)) {
            clip(program, &program->trained[i], &sonde__op_clip_value, 0);
        }
    }
    sonde__op_value norm = optimizer->clip_norm > 0.0F ? emit_norm(program) : 0;
    for (size_t i = 0; i < count && norm != 0; i++) {
        if (is_updated(program, i)) {
            clip(program, &program->trained[i], &sonde__op_clip_norm, norm);
        }
    }
}

/* --- loss scaling ------------------------------------------------------------------- */

static const sonde__op_shape one_number = {.dtype = SONDE_F32, .rank = 0};

static void name_number(sonde__op_graph *graph, sonde__op_value value, const char *what,
                        const char *group)
{
    if (value != 0) {
        graph->values[value].name = sonde__graph_string(graph, "%s___%s", what, group);
        graph->values[value].role = SONDE_ROLE_SCALAR;
        graph->values[value].pass = SONDE_PASS_UPDATE;
    }
}

/* Whether a gradient that is applied is not finite; 0: the scale is fixed. */
static sonde__op_value emit_found(sonde__plan_program *program)
{
    sonde__op_graph *graph = &program->graph;
    sonde__op_value value = 0;

    graph->module = sonde__graph_string(graph, "%s", "");
    for (size_t i = 0; program->optimizer->automatic_loss_scaling &&
                       i < program->model->param_count && graph->err == SONDE_OK;
         i++) {
        const sonde__op_value in[] = {program->trained[i].summed, value};

        if (is_updated(program, i)) {
            value =
                sonde__op_emit(graph, &sonde__op_found_inf, NULL, in, value != 0 ? 2 : 1);
        }
    }
    name_number(graph, value, "FoundInf", "default");
    return value;
}

static void emit_loss_scale(sonde__plan_program *program, sonde__op_value value)
{
    static const char *const names[] = {"lossScaling", "growthTracker", "skippedSteps"};
    const sonde_nn_optimizer *optimizer = program->optimizer;
    sonde__op_graph *graph = &program->graph;
    const sonde__op_attrs attrs = {
        .scaler = {
            .growth = optimizer->growth_factor != 0.0F ? optimizer->growth_factor : 2.0F,
            .backoff =
                optimizer->backoff_factor != 0.0F ? optimizer->backoff_factor : 0.5F,
            .interval =
                optimizer->growth_interval != 0 ? optimizer->growth_interval : 2000}};
    sonde__op_value in[] = {value, 0, 0, 0}, out = 0;

    graph->module = sonde__graph_string(graph, "%s", "");
    for (int k = 1; k <= 3; k++) {
        in[k] = state(graph, &one_number);
    }
    out = sonde__op_emit(graph, &sonde__op_loss_scale, &attrs, in, 4);
    for (sonde__op_value k = 0; out != 0 && k < 3; k++) {
        name_number(graph, out + k, names[k], "default");
    }
}

/* --- numbers of the optimizer ------------------------------------------------------- */

/* Which numbers have names, in the order in which a session writes them. */
static void name_numbers(sonde__plan_program *program)
{
    static const sonde__op_shape whole = {.dtype = SONDE_I64, .rank = 0};
    const sonde_nn_optimizer *optimizer = program->optimizer;
    sonde__op_graph *graph = &program->graph;
    const struct {
        const char *name;
        const sonde__op_shape *shape;
        bool exists;
    } rows[SONDE__HYPER_RATES] = {
        [SONDE__HYPER_STEP] = {"trainStep", &whole, true},
        [SONDE__HYPER_CLIP_NORM] = {"clipNorm", &one_number, optimizer->clip_norm > 0.0F},
        [SONDE__HYPER_LOSS_SCALE] = {"lossScaling", &one_number,
                                     optimizer->loss_scaling != 0.0F &&
                                         !optimizer->automatic_loss_scaling},
    };

    graph->module = sonde__graph_string(graph, "%s", "");
    for (int i = 0; i < SONDE__HYPER_RATES; i++) {
        if (rows[i].exists) {
            name_number(graph,
                        sonde__graph_leaf(graph, rows[i].shape, SONDE__FROM_HYPER, i,
                                          NULL, SONDE_ROLE_SCALAR),
                        rows[i].name, "default");
        }
    }
    for (int i = 0; i <= (int)program->group_count; i++) {
        name_number(graph,
                    sonde__graph_leaf(graph, &one_number, SONDE__FROM_HYPER,
                                      SONDE__HYPER_RATES + i, NULL, SONDE_ROLE_SCALAR),
                    "learningRate", i == 0 ? "default" : program->groups[i - 1].name);
    }
}

void sonde__pass_optimize(sonde__plan_program *program)
{
    sonde__op_graph *graph = &program->graph;

    graph->pass = SONDE_PASS_BACKWARD;
    clip_all(program);
    const sonde__op_value value = emit_found(program);
    graph->pass = SONDE_PASS_UPDATE;
    const size_t first = graph->op_count;
    for (size_t i = 0; i < program->model->param_count && graph->err == SONDE_OK; i++) {
        if (is_updated(program, i)) {
            emit_update(program, i);
        }
    }
    if (value != 0) {
        emit_loss_scale(program, value);
    }
    if (graph->op_count > first) {
        name_numbers(program);
    }
    if (!sonde__plan_updates_apart(program)) {
        program->micro_ops = graph->op_count;
    }
}

/*
 * loop_watch.c - the loop's tensors: their names, and handing them to an observer.
 */
#include "loop.h"

#include "support.h"

#include <stdio.h>
#include <string.h>

typedef struct what {
    sonde_role role;
    sonde_pass pass;
    const char *op;
    sonde_dtype dtype;
    uint32_t same_as;
} what;

static uint32_t declare(loop *training, const char *name, what kind, int64_t rows,
                        int64_t columns)
{
    const sonde_tensor_info info = {.name = name,
                                    .op = kind.op,
                                    .role = kind.role,
                                    .pass = kind.pass,
                                    .dtype = kind.dtype,
                                    .rank = rows == 0      ? 0
                                            : columns == 0 ? 1
                                                           : 2,
                                    .shape = {rows, columns},
                                    .same_as = kind.same_as};
    uint32_t id = 0;
    sonde_diag diag = {0};

    bench_check(sonde_catalogue_declare(training->catalogue, &info, &id, &diag), &diag);
    return id;
}

static what kind_of(sonde_role role, sonde_pass pass, const char *op)
{
    return (what){role, pass, op, SONDE_F32, SONDE_NO_TENSOR};
}

static void declare_param(loop *training, loop_param *param, bool bias)
{
    const bool adam = training->plan.optimizer.kind != SONDE_NN_SGD;
    const what state = kind_of(SONDE_ROLE_OPTIMIZER, SONDE_PASS_UPDATE, "Optimizer");
    char name[64];

    param->id =
        declare(training, param->name,
                kind_of(bias ? SONDE_ROLE_BIAS : SONDE_ROLE_WEIGHT, SONDE_PASS_NONE, ""),
                param->rows, param->columns);
    if (param->frozen) {
        return;
    }
    (void)snprintf(name, sizeof name, "Gradient___%s", param->name);
    param->id_g =
        declare(training, name, kind_of(SONDE_ROLE_GRADIENT, SONDE_PASS_BACKWARD, "Grad"),
                param->rows, param->columns);
    (void)snprintf(name, sizeof name, "Accl1___%s", param->name);
    param->id_m = declare(training, name, state, param->rows, param->columns);
    if (adam) {
        (void)snprintf(name, sizeof name, "Accl2___%s", param->name);
        param->id_v = declare(training, name, state, param->rows, param->columns);
        (void)snprintf(name, sizeof name, "Step___%s", param->name);
        param->id_step = declare(training, name, state, 0, 0);
    }
}

static void declare_layer(loop *training, loop_layer *layer, int l)
{
    static const char *const names[] = {"relu", "tanh", "sigmoid"};
    static const char *const ops[] = {"Relu", "Tanh", "Sigmoid"};
    const loop_plan *plan = &training->plan;
    const what buffer = kind_of(SONDE_ROLE_BUFFER, SONDE_PASS_NONE, "");
    what output = kind_of(SONDE_ROLE_OUTPUT, SONDE_PASS_FORWARD, "Linear");
    char name[64];

    (void)snprintf(name, sizeof name, "fc%d_output_0", l + 1);
    layer->id_z = layer->id_n = declare(training, name, output, plan->batch, layer->out);
    if (l == plan->hidden) {
        return;
    }
    if (layer->gamma != NULL) {
        output.op = "BatchNorm";
        (void)snprintf(name, sizeof name, "norm%d_output_0", l + 1);
        layer->id_n = declare(training, name, output, plan->batch, layer->out);
        (void)snprintf(name, sizeof name, "norm%d.running_mean", l + 1);
        layer->id_mean = declare(training, name, buffer, layer->out, 0);
        (void)snprintf(name, sizeof name, "norm%d.running_var", l + 1);
        layer->id_var = declare(training, name, buffer, layer->out, 0);
    }
    (void)snprintf(name, sizeof name, "%s%d_input_0", names[plan->activation], l + 1);
    output.op = ops[plan->activation];
    layer->id_in = declare(
        training, name,
        (what){SONDE_ROLE_INPUT, SONDE_PASS_FORWARD, "Linear", SONDE_F32, layer->id_n},
        plan->batch, layer->out);
    (void)snprintf(name, sizeof name, "%s%d_output_0", names[plan->activation], l + 1);
    layer->id_a = declare(training, name, output, plan->batch, layer->out);
    (void)snprintf(name, sizeof name, "block%d_output_0", l + 1);
    output.op = "Block";
    layer->id_o = declare(training, name, output, plan->batch, layer->out);
}

void loop_declare(loop *training)
{
    const loop_plan *plan = &training->plan;
    loop_net *net = &training->nets[0];
    what input = kind_of(SONDE_ROLE_INPUT, SONDE_PASS_NONE, "");

    for (int i = 0; i < net->param_count; i++) {
        declare_param(training, &net->params[i],
                      strstr(net->params[i].name, ".bias") != NULL);
    }
    training->id_x = plan->embedding ? UINT32_MAX
                                     : declare(training, "input", input, plan->batch,
                                               faults_sample(plan->data));
    input.dtype = SONDE_I64;
    training->id_tokens = plan->embedding
                              ? declare(training, "input", input, plan->batch, TOKENS)
                              : UINT32_MAX;
    input.dtype = plan->data == DATA_REGRESSION ? SONDE_F32 : SONDE_I64;
    training->id_y = declare(training, "input/1", input, plan->batch, 0);
    for (int l = 0; l < training->layers; l++) {
        declare_layer(training, &net->layers[l], l);
    }
    training->id_scores = declare(training, "loss_input_0",
                                  (what){SONDE_ROLE_INPUT, SONDE_PASS_FORWARD, "Linear",
                                         SONDE_F32, net->layers[plan->hidden].id_z},
                                  plan->batch, net->layers[plan->hidden].out);
    training->id_loss =
        declare(training, "loss_output_0",
                kind_of(SONDE_ROLE_LOSS, SONDE_PASS_FORWARD, "Loss"), 0, 0);
}

/* --- handing over ----------------------------------------------------------------- */

static void observe(loop *training, uint32_t id, const void *values, int replica)
{
    const sonde_observer_gate *gate = sonde_observer_get_gate(training->observer);

    if (id != UINT32_MAX && sonde_observer_wants(gate, id) != 0) {
        const sonde_tensor_info *info = sonde_catalogue_info(training->catalogue, id);
        /* the observer only reads */
        const sonde_view view = sonde_view_of(info->dtype, info->rank, info->shape,
                                              (void *)(uintptr_t)values);

        sonde_observer_observe(training->observer, id, &view, NULL, 0, replica);
    }
}

/* The ids are those of the first replica: all replicas share the tensors. */
void loop_observe_forward(loop *training, const loop_net *net, int replica)
{
    const loop_plan *plan = &training->plan;

    observe(training, training->id_x, net->x, replica);
    observe(training, training->id_tokens, net->tokens, replica);
    observe(training, training->id_y,
            plan->data == DATA_REGRESSION ? (const void *)net->t : (const void *)net->y,
            replica);
    for (int l = 0; l < training->layers; l++) {
        const loop_layer *layer = &net->layers[l], *ids = &training->nets[0].layers[l];

        if (l == plan->hidden) {
            observe(training, ids->id_z, layer->o, replica);
            break;
        }
        observe(training, ids->id_z, layer->z, replica);
        if (layer->gamma != NULL) {
            observe(training, ids->id_n, layer->n, replica);
            observe(training, ids->id_mean, layer->mean, replica);
            observe(training, ids->id_var, layer->var, replica);
        }
        observe(training, ids->id_a, layer->a, replica);
        observe(training, ids->id_o, layer->o, replica);
    }
    observe(training, training->id_loss, &net->loss, replica);
}

void loop_observe_update(loop *training, const loop_net *net, int replica)
{
    const bool adam = training->plan.optimizer.kind != SONDE_NN_SGD;

    for (int i = 0; i < net->param_count; i++) {
        const loop_param *param = &net->params[i], *ids = &training->nets[0].params[i];

        observe(training, ids->id, param->w, replica);
        if (param->frozen) {
            continue;
        }
        observe(training, ids->id_g, param->g, replica);
        observe(training, ids->id_m, param->m, replica);
        if (adam) {
            observe(training, ids->id_v, param->v, replica);
            observe(training, ids->id_step, &param->step, replica);
        }
    }
}

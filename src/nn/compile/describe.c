/*
 * describe.c - the program of a compiled model (<sonde/program.h>): the forward graph as the
 * model was built, before any pass rewrites it, and the events of a step.
 *
 * Operations have the names of docs/program.md, and no lines: a model does not know which
 * source built it. Those that neither an output nor the loss needs are left out.
 */
#include "nn/compile/describe.h"
#include "nn/compile/describe_parts.h"
#include "base/fail.h"
#include "base/names.h"

#include <stdio.h>
#include <string.h>

enum { EVENTS = 8, OP = 48 };

/* What a node is made of. */
typedef struct node_parts {
    char op[OP];
    sonde__plan_attributes attributes;
    int inputs[SONDE__MAX_OPERANDS], outputs[SONDE__MAX_OPERANDS];
} node_parts;

/* A description in the making. Value id of the graph is row id - 1. */
typedef struct describing {
    const sonde__plan_program *from;
    sonde__op_graph graph; /* a copy of the forward graph */
    sonde_mode mode;
    sonde_program_value *values;
    sonde_program_node *nodes;
    node_parts *parts; /* by node */
    sonde_program_module *modules;
    sonde__names names; /* of modules: their indices */
    bool lacks_memory;
    int *ranks; /* by module: of the operation that says what it is */
    sonde_program_parameter *parameters;
    bool *live; /* by value id: an output or the loss needs it */
    size_t node_count, module_count;
    sonde_program_event events[EVENTS];
    size_t event_count;
    sonde_program_optimizer optimizer;
    sonde__plan_attributes rates, facts;
    sonde_program_loss loss;
} describing;

static bool trains(const describing *d)
{
    return d->from->optimizer != NULL;
}

static sonde_program_attributes list(const sonde__plan_attributes *rows)
{
    return (sonde_program_attributes){rows->row, rows->count};
}

/* --- values, modules, parameters ---------------------------------------------------------- */

/* Marks what the outputs and the loss are made of. */
static void mark_live(describing *d)
{
    const sonde__op_graph *graph = &d->graph;

    for (size_t i = 0; i < graph->output_count; i++) {
        d->live[graph->outputs[i]] = true;
    }
    d->live[graph->loss] = trains(d) || d->live[graph->loss];
    for (size_t i = graph->op_count; i-- > 0;) {
        const sonde__graph_node_op *op = &graph->ops[i];
        bool live = false;

        for (int k = 0; k < op->out_count; k++) {
            live = live || d->live[op->out[k]];
        }
        for (int k = 0; live && k < op->in_count; k++) {
            d->live[op->in[k]] = true;
        }
    }
    d->live[0] = false;
}

static bool has_live(const describing *d, const sonde__graph_node_op *op)
{
    for (int k = 0; k < op->out_count; k++) {
        if (d->live[op->out[k]]) {
            return true;
        }
    }
    return false;
}

static void take_value(describing *d, sonde__op_value id)
{
    static const sonde_value_kind kinds[] = {
        [SONDE__FROM_OP] = SONDE_VALUE_COMPUTED,
        [SONDE__FROM_INPUT] = SONDE_VALUE_INPUT,
        [SONDE__FROM_PARAM] = SONDE_VALUE_PARAMETER,
        [SONDE__FROM_STATE] = SONDE_VALUE_CONSTANT,
        [SONDE__FROM_BUFFER] = SONDE_VALUE_BUFFER,
        [SONDE__FROM_HYPER] = SONDE_VALUE_CONSTANT,
    };
    const sonde__graph_node_value *from = &d->graph.values[id];
    sonde_program_value *value = &d->values[id - 1];
    const bool parameter = from->source == SONDE__FROM_PARAM;

    *value = (sonde_program_value){.kind = kinds[from->source],
                                   .dtype = from->shape.dtype,
                                   .rank = from->shape.rank,
                                   .tensor = from->name,
                                   .node = -1,
                                   .parameter = parameter ? from->index : -1,
                                   .requires_grad = parameter};
    memcpy(value->shape, from->shape.dim, sizeof value->shape);
}

/* The index of a module, which becomes known; that of the model if memory runs out. */
static int module_of(describing *d, const char *name)
{
    const uint32_t index = sonde__names_intern(&d->names, name);

    if (index == SONDE__NO_NAME) {
        d->lacks_memory = true;
        return 0;
    }
    if (index == d->module_count) {
        d->modules[d->module_count++] = (sonde_program_module){
            .name = name, .registered = true, .training = trains(d)};
    }
    return (int)index;
}

static void take_parameter(describing *d, size_t i)
{
    const sonde__graph_param *param = &d->from->model->params[i];
    const sonde__graph_node_value *value = &d->graph.values[param->value];

    d->parameters[i] = (sonde_program_parameter){
        .name = value->name,
        .module = module_of(d, value->module != NULL ? value->module : ""),
        .count = (int64_t)param->count,
        .requires_grad = true, /* also of one that the optimizer leaves out */
        .optimizer = trains(d) && !param->left_out ? 0 : -1,
        .used = d->live[param->value],
        .reached = trains(d) && d->from->trained[i].gradient != 0};
}

/* Whether an operation is the second half of a cross-entropy: the layer is one operation here,
 * as in PyTorch. */
static bool ends_cross_entropy(const describing *d, const sonde__graph_node_op *op,
                               int module)
{
    const sonde_program_node *before =
        d->node_count > 0 ? &d->nodes[d->node_count - 1] : NULL;
    char name[OP];

    if (before == NULL || before->module != module ||
        d->modules[module].name[0] == '\0' || before->outputs[0] != (int)op->in[0] - 1 ||
        strcmp(before->op, "log_softmax") != 0) {
        return false;
    }
    sonde__plan_describe_name(&d->graph, op, name, sizeof name);
    return strcmp(name, "nll_loss") == 0;
}

/* Sets the operands of a node, and which results need gradients. */
static void take_operands(describing *d, const sonde__graph_node_op *op,
                          node_parts *parts)
{
    bool grad = false;

    for (int k = 0; k < op->in_count; k++) {
        parts->inputs[k] = (int)op->in[k] - 1;
        grad = grad || (op->in[k] != 0 && d->values[op->in[k] - 1].requires_grad);
    }
    grad = grad && trains(d) && sonde__op_has_gradient(op->kind);
    for (int k = 0; k < op->out_count; k++) {
        sonde_program_value *value = &d->values[op->out[k] - 1];

        parts->outputs[k] = (int)op->out[k] - 1;
        value->requires_grad = grad && sonde_dtype_is_float(value->dtype);
    }
}

/* What a layer is, its most telling operation says. */
static void take_kind(describing *d, int module, const sonde__op_kind *kind,
                      const char *name, const node_parts *parts)
{
    sonde_program_module *layer = &d->modules[module];
    const int rank = sonde__plan_describe_rank(kind);

    layer->called = true;
    if (layer->name[0] != '\0' && d->ranks[module] < rank) {
        d->ranks[module] = rank;
        layer->kind = name;
        layer->attributes = list(&parts->attributes);
    }
}

static void take_op(describing *d, const sonde__graph_node_op *op)
{
    const int module = module_of(d, op->module);
    const bool joined = ends_cross_entropy(d, op, module);
    node_parts *parts = &d->parts[joined ? --d->node_count : d->node_count];
    const int scores = parts->inputs[0];
    int outputs = op->out_count;

    *parts = (node_parts){0};
    sonde__plan_describe_name(&d->graph, op, parts->op, sizeof parts->op);
    sonde__plan_describe_op(&d->graph, op, &parts->attributes);
    take_operands(d, op, parts);
    if (joined) {
        (void)snprintf(parts->op, sizeof parts->op, "cross_entropy");
        parts->inputs[0] = scores;
        parts->outputs[outputs++] = (int)op->in[0] - 1;
    }
    take_kind(d, module, op->kind, joined ? "CrossEntropyLoss" : op->kind->name, parts);
    d->nodes[d->node_count++] =
        (sonde_program_node){.op = parts->op,
                             .attributes = list(&parts->attributes),
                             .inputs = parts->inputs,
                             .input_count = (size_t)op->in_count,
                             .outputs = parts->outputs,
                             .output_count = (size_t)outputs,
                             .module = module};
}

/* --- the loss and the events -------------------------------------------------------------- */

/* The node that makes a value; -1: none. */
static int maker_of(const describing *d, int value)
{
    for (size_t i = 0; value >= 0 && i < d->node_count; i++) {
        for (size_t k = 0; k < d->nodes[i].output_count; k++) {
            if (d->nodes[i].outputs[k] == value) {
                return (int)i;
            }
        }
    }
    return -1;
}

/* From the loss up by first operands to the operation that reads the targets. */
static void find_loss(describing *d)
{
    int node = maker_of(d, d->loss.value);

    for (size_t left = d->node_count; node >= 0 && left > 0; left--) {
        const sonde_program_node *at = &d->nodes[node];
        const int first = at->input_count > 0 ? at->inputs[0] : -1;
        const int second = at->input_count > 1 ? at->inputs[1] : -1;

        if (second >= 0 && d->values[second].kind == SONDE_VALUE_INPUT) {
            d->loss.node = node;
            d->loss.predictions = first;
            d->loss.targets = second;
            return;
        }
        node = maker_of(d, first);
    }
    d->loss.node = maker_of(d, d->loss.value);
}

static sonde_program_event *add_event(describing *d, sonde_event_kind kind)
{
    sonde_program_event *event = &d->events[d->event_count++];

    *event = (sonde_program_event){
        .kind = kind,
        .module = -1,
        .value = -1,
        .node = -1,
        .optimizer = -1,
        .grad = trains(d) && (kind == SONDE_EVENT_FORWARD || kind == SONDE_EVENT_LOSS)};
    return event;
}

static void add_events(describing *d)
{
    const sonde_nn_optimizer *optimizer = d->from->optimizer;
    sonde_program_event *event = NULL;

    if (trains(d)) {
        add_event(d, SONDE_EVENT_ZERO_GRAD)->optimizer = 0;
    }
    event = add_event(d, SONDE_EVENT_FORWARD);
    event->module = 0;
    event->training = trains(d);
    if (d->loss.value >= 0) {
        event = add_event(d, SONDE_EVENT_LOSS);
        event->value = d->loss.value;
        event->node = d->loss.node;
    }
    if (!trains(d)) {
        return;
    }
    d->loss.backward = (int)d->event_count;
    add_event(d, SONDE_EVENT_BACKWARD)->value = d->loss.value;
    if (sonde__plan_scales(d->from)) {
        (void)add_event(d, SONDE_EVENT_UNSCALE);
    }
    if (optimizer->clip_norm > 0.0F || optimizer->clip_value > 0.0F) {
        (void)add_event(d, SONDE_EVENT_CLIP);
    }
    add_event(d, SONDE_EVENT_STEP)->optimizer = 0;
}

static void take_optimizer(describing *d)
{
    static const char *const kinds[] = {"SGD",     "Adam",    "AdamW",
                                        "RMSprop", "Adagrad", "LAMB"};
    const sonde_nn_optimizer *optimizer = d->from->optimizer;
    const sonde_nn_options *options = d->from->options;

    if (optimizer != NULL) {
        sonde__plan_describe_number(&d->rates, "lr", (double)optimizer->learning_rate);
        sonde__plan_describe_number(&d->rates, "weight_decay",
                                    (double)optimizer->weight_decay);
        if (optimizer->momentum > 0.0F) {
            sonde__plan_describe_number(&d->rates, "momentum",
                                        (double)optimizer->momentum);
        }
        d->optimizer = (sonde_program_optimizer){"optimizer", kinds[optimizer->kind],
                                                 list(&d->rates)};
    }
    if (options->gradient_accumulation > 1) {
        sonde__plan_describe_number(&d->facts, "accumulation",
                                    options->gradient_accumulation);
    }
    if (options->replicas > 1) {
        sonde__plan_describe_number(&d->facts, "replicas", options->replicas);
    }
}

/* --- the whole ------------------------------------------------------------------------------ */

static void take_graph(describing *d)
{
    const sonde__op_graph *graph = &d->graph;

    mark_live(d);
    d->modules[module_of(d, "")].kind = "Model";
    d->modules[0].called = true;
    if (d->lacks_memory) {
        return; /* there is no model to take the place of a module */
    }
    for (sonde__op_value id = 1; id < graph->value_count; id++) {
        take_value(d, id);
    }
    for (size_t i = 0; i < d->from->model->param_count; i++) {
        take_parameter(d, i);
    }
    for (size_t i = 0; i < graph->op_count; i++) {
        if (graph->ops[i].kind != NULL && has_live(d, &graph->ops[i])) {
            take_op(d, &graph->ops[i]);
        }
    }
    d->loss = (sonde_program_loss){
        .node = -1, .value = -1, .predictions = -1, .targets = -1, .backward = -1};
    if (graph->loss != 0 && d->live[graph->loss]) {
        d->loss.value = (int)graph->loss - 1;
        find_loss(d);
    }
    take_optimizer(d);
    add_events(d);
}

static bool allocate(describing *d)
{
    const size_t values = d->graph.value_count, ops = d->graph.op_count;
    const size_t params = d->from->model->param_count;

    d->values = sonde__calloc(values, sizeof *d->values);
    d->live = sonde__calloc(values, sizeof *d->live);
    d->nodes = sonde__calloc(ops + 1, sizeof *d->nodes);
    d->parts = sonde__calloc(ops + 1, sizeof *d->parts);
    d->modules = sonde__calloc(ops + params + 1, sizeof *d->modules);
    d->ranks = sonde__calloc(ops + params + 1, sizeof *d->ranks);
    d->parameters = sonde__calloc(params + 1, sizeof *d->parameters);
    return d->values != NULL && d->live != NULL && d->nodes != NULL && d->parts != NULL &&
           d->modules != NULL && d->ranks != NULL && d->parameters != NULL;
}

static void release(describing *d)
{
    sonde__free(d->values);
    sonde__free(d->live);
    sonde__free(d->nodes);
    sonde__free(d->parts);
    sonde__free(d->modules);
    sonde__names_fini(&d->names);
    sonde__free(d->ranks);
    sonde__free(d->parameters);
    sonde__graph_fini(&d->graph);
}

static sonde_err copy(const describing *d, sonde_program **out, sonde_diag *diag)
{
    const sonde_program program = {.size = sizeof program,
                                   .producer = "sonde_nn",
                                   .mode = d->mode,
                                   .values = d->values,
                                   .value_count = d->graph.value_count - 1,
                                   .nodes = d->nodes,
                                   .node_count = d->node_count,
                                   .modules = d->modules,
                                   .module_count = d->module_count,
                                   .parameters = d->parameters,
                                   .parameter_count = d->from->model->param_count,
                                   .optimizers = &d->optimizer,
                                   .optimizer_count = trains(d) ? 1 : 0,
                                   .events = d->events,
                                   .event_count = d->event_count,
                                   .losses = &d->loss,
                                   .loss_count = d->loss.value >= 0 ? 1 : 0,
                                   .facts = list(&d->facts),
                                   .complete = true};

    return sonde_program_copy(&program, out, diag);
}

sonde_err sonde__plan_describe(const sonde__plan_program *from, sonde_mode mode,
                               sonde_program **out, sonde_diag *diag)
{
    describing d = {.from = from, .mode = mode};
    sonde_err err = SONDE_OK;

    SONDE__TRY_DONE(sonde__graph_instantiate(&from->model->graph, from->batch_size,
                                             from->optimizer != NULL, &d.graph, diag));
    if (!allocate(&d)) {
        err = sonde__fail_nomem(diag, "a program");
        goto done;
    }
    take_graph(&d);
    err = d.lacks_memory ? sonde__fail_nomem(diag, "a program") : copy(&d, out, diag);
done:
    release(&d);
    return err;
}

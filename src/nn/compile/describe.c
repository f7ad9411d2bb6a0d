/*
 * describe.c - the program of a compiled model (<sonde/program.h>): the forward graph as the
 * model was built, before any pass rewrites it, and the events of a step.
 *
 * Operations have the names of docs/program.md, and no lines: a model does not know which
 * source built it. Those that neither an output nor the loss needs are left out.
 */
#include "nn/compile/describe.h"
#include "base/fail.h"
#include "base/number.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_ATTRIBUTES = 4, TEXT = 32, EVENTS = 8 };

typedef struct attributes {
    sonde_program_attribute row[MOST_ATTRIBUTES];
    char text[MOST_ATTRIBUTES][TEXT];
    size_t count;
} attributes;

/* What a node is made of. */
typedef struct node_parts {
    char op[48];
    attributes attributes;
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
    sonde_program_parameter *parameters;
    bool *live; /* by value id: an output or the loss needs it */
    size_t node_count, module_count;
    sonde_program_event events[EVENTS];
    size_t event_count;
    sonde_program_optimizer optimizer;
    attributes rates, facts;
    sonde_program_loss loss;
} describing;

static bool trains(const describing *d)
{
    return d->from->optimizer != NULL;
}

/* --- attributes --------------------------------------------------------------------------- */

static void add(attributes *to, const char *name, double value)
{
    if (to->count < MOST_ATTRIBUTES) {
        sonde_program_attribute *row = &to->row[to->count];

        (void)sonde__snprintf(to->text[to->count], TEXT, "%.7g", value);
        *row = (sonde_program_attribute){name, to->text[to->count], value};
        to->count++;
    }
}

static void add_word(attributes *to, const char *name, const char *word)
{
    if (to->count < MOST_ATTRIBUTES) {
        (void)snprintf(to->text[to->count], TEXT, "%s", word);
        to->row[to->count] =
            (sonde_program_attribute){name, to->text[to->count], (double)NAN};
        to->count++;
    }
}

static sonde_program_attributes list(const attributes *rows)
{
    return (sonde_program_attributes){rows->row, rows->count};
}

static void add_of_op(attributes *to, const sonde__graph_node_op *op)
{
    const sonde__op_fields *family = op->kind->fields;
    const sonde__op_attrs *attrs = &op->attrs;

    if (family == &sonde__op_fields_along) {
        add(to, "dim", attrs->along.axis);
    } else if (family == &sonde__op_fields_loss) {
        add_word(to, "reduction", attrs->loss.mean ? "mean" : "sum");
        if (attrs->loss.label_smoothing > 0.0F) {
            add(to, "label_smoothing", (double)attrs->loss.label_smoothing);
        }
        if (attrs->loss.ignores) {
            add(to, "ignore_index", (double)attrs->loss.ignore_index);
        }
    } else if (family == &sonde__op_fields_norm) {
        add(to, "eps", (double)attrs->norm.eps);
        if (attrs->norm.track) {
            add(to, "momentum", (double)attrs->norm.momentum);
        }
    } else if (op->kind == &sonde__op_scale) {
        add(to, "scalar", (double)attrs->fill.value);
    } else if (op->kind == &sonde__op_dropout) {
        add(to, "p", (double)attrs->p);
        add_word(to, "training", attrs->training ? "true" : "false");
    }
}

/* --- names of operations ------------------------------------------------------------------ */

/* "LogSoftmax" as "log_softmax". */
static void write_snake(const char *kind, char *op, size_t size)
{
    size_t used = 0;

    for (size_t i = 0; kind[i] != '\0' && used + 2 < size; i++) {
        if (isupper((unsigned char)kind[i]) && i > 0) {
            op[used++] = '_';
        }
        op[used++] = (char)sonde__tolower((unsigned char)kind[i]);
    }
    op[used] = '\0';
}

/* Classes of nll_loss lie along dimension 1 in PyTorch; along another it is no nll_loss. */
static bool is_nll(const sonde__op_graph *graph, const sonde__graph_node_op *op)
{
    return (op->kind == &sonde__op_nll || op->kind == &sonde__op_nll_weighted) &&
           (op->attrs.loss.axis <= 1 || graph->values[op->in[0]].shape.rank <= 2);
}

static void write_op(const sonde__op_graph *graph, const sonde__graph_node_op *op,
                     char *name, size_t size)
{
    static const struct {
        const char *kind, *op;
    } others[] = {{"PRelu", "prelu"},
                  {"MatMul", "matmul"},
                  {"BceLoss", "binary_cross_entropy"},
                  {"BceWithLogitsLoss", "binary_cross_entropy_with_logits"},
                  {"FloatPower", "pow"},
                  {"Broadcast", "expand"},
                  {"Cast", "to"},
                  {"Slice", "index"},
                  {"Gather", "index"},
                  {"Scale", "mul"},
                  {"ArgExtreme", "argmax"},
                  {"Attention", "scaled_dot_product_attention"},
                  {"SelfAttention", "scaled_dot_product_attention"},
                  {"ChannelAdd", "add"}};
    const char *found = NULL;

    for (size_t i = 0; i < sizeof others / sizeof *others && found == NULL; i++) {
        found = strcmp(op->kind->name, others[i].kind) == 0 ? others[i].op : NULL;
    }
    if (is_nll(graph, op)) {
        found = "nll_loss";
    } else if (op->kind == &sonde__op_reduce) {
        found = op->attrs.reduce.mean ? "mean" : "sum";
    } else if (op->kind == &sonde__op_extreme) {
        found = op->attrs.reduce.smallest ? "min" : "max";
    }
    if (found != NULL) {
        (void)snprintf(name, size, "%s", found);
    } else {
        write_snake(op->kind->name, name, size);
    }
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

/* The index of a module, which becomes known. The strings of a graph are interned. */
static int module_of(describing *d, const char *name)
{
    for (size_t i = d->module_count; i-- > 0;) {
        if (strcmp(d->modules[i].name, name) == 0) {
            return (int)i;
        }
    }
    d->modules[d->module_count] =
        (sonde_program_module){.name = name, .registered = true, .training = trains(d)};
    return (int)d->module_count++;
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

static void take_op(describing *d, const sonde__graph_node_op *op)
{
    node_parts *parts = &d->parts[d->node_count];
    const int module = module_of(d, op->module);
    sonde_program_module *layer = &d->modules[module];
    bool grad = false;

    write_op(&d->graph, op, parts->op, sizeof parts->op);
    add_of_op(&parts->attributes, op);
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
    if (layer->kind == NULL &&
        layer->name[0] != '\0') { /* what a layer is, its first op says */
        layer->kind = op->kind->name;
        layer->attributes = list(&parts->attributes);
    }
    layer->called = true;
    d->nodes[d->node_count++] =
        (sonde_program_node){.op = parts->op,
                             .attributes = list(&parts->attributes),
                             .inputs = parts->inputs,
                             .input_count = (size_t)op->in_count,
                             .outputs = parts->outputs,
                             .output_count = (size_t)op->out_count,
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

    *event = (sonde_program_event){.kind = kind,
                                   .module = -1,
                                   .value = -1,
                                   .node = -1,
                                   .optimizer = -1,
                                   .grad = trains(d)};
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
        add(&d->rates, "lr", (double)optimizer->learning_rate);
        add(&d->rates, "weight_decay", (double)optimizer->weight_decay);
        if (optimizer->momentum > 0.0F) {
            add(&d->rates, "momentum", (double)optimizer->momentum);
        }
        d->optimizer = (sonde_program_optimizer){"optimizer", kinds[optimizer->kind],
                                                 list(&d->rates)};
    }
    if (options->gradient_accumulation > 1) {
        add(&d->facts, "accumulation", options->gradient_accumulation);
    }
    if (options->replicas > 1) {
        add(&d->facts, "replicas", options->replicas);
    }
}

/* --- the whole ------------------------------------------------------------------------------ */

static void take_graph(describing *d)
{
    const sonde__op_graph *graph = &d->graph;

    mark_live(d);
    d->modules[d->module_count++] = (sonde_program_module){.name = "",
                                                           .kind = "Model",
                                                           .registered = true,
                                                           .called = true,
                                                           .training = trains(d)};
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
    d->parameters = sonde__calloc(params + 1, sizeof *d->parameters);
    return d->values != NULL && d->live != NULL && d->nodes != NULL && d->parts != NULL &&
           d->modules != NULL && d->parameters != NULL;
}

static void release(describing *d)
{
    sonde__free(d->values);
    sonde__free(d->live);
    sonde__free(d->nodes);
    sonde__free(d->parts);
    sonde__free(d->modules);
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
    err = copy(&d, out, diag);
done:
    release(&d);
    return err;
}

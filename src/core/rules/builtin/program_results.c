/*
 * program_results.c - ModelStructure, by the results that operations leave:
 *
 *     dropped    nothing reads what a layer makes, and what the layer reads goes on in its
 *                place: self.relu(x) for x = self.relu(x). Judged are activations, dropout,
 *                normalizations and whole blocks whose result has the shape of their input
 *     linear     a layer of products reads the result of another one with no activation in
 *                between, and the module that calls them has an activation that the step does
 *                not call; or all layers of a network do so, and there are three or more
 *     drawn      random numbers take the place of what an encoder makes: they have its shape
 *                or its distribution, pass no gradient, and no layer reads its results
 */
#include "rules/builtin/program_walk.h"

#include "base/memory.h"
#include "base/number.h"

#include <string.h>

#define ACTIVATIONS                                                                      \
    "relu relu6 leaky_relu elu selu celu gelu silu mish hardswish hardtanh softplus "    \
    "tanh prelu rrelu threshold"
#define OFTEN_DROPPED                                                                    \
    ACTIVATIONS " dropout dropout1d dropout2d dropout3d alpha_dropout "                  \
                "feature_alpha_dropout batch_norm layer_norm group_norm instance_norm "  \
                "rms_norm"
#define PRODUCTS                                                                         \
    "linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d"
/* Operations that leave a network of products one product. */
#define AFFINE                                                                           \
    "reshape squeeze unsqueeze transpose contiguous dropout dropout1d dropout2d "        \
    "batch_norm avg_pool1d avg_pool2d adaptive_avg_pool1d adaptive_avg_pool2d mean "     \
    "identity clone to"
/* Also randn_like and rand_like, whose operand is what they have the shape of. */
#define NOISE "randn rand randn_like rand_like normal"

typedef struct results {
    const sonde_program *program;
    const bool *used;   /* values that the objective is made of */
    const size_t *last; /* the last operation that reads a value, from 1; 0: none does */
} results;

static bool is_called_by(const sonde_program *program, int module, size_t whole)
{
    const char *name = program->modules[whole].name;
    const size_t length = strlen(name);

    return module >= 0 && (size_t)module != whole &&
           program->modules[module].registered &&
           strncmp(program->modules[module].name, name, length) == 0 &&
           (length == 0 || program->modules[module].name[length] == '.');
}

static bool is_in(const sonde_program *program, const sonde_program_node *node,
                  size_t whole)
{
    return node->module == (int)whole || is_called_by(program, node->module, whole);
}

/* --- dropped -------------------------------------------------------------------------- */

static void report_dropped(sonde_rule_run *run, const results *r,
                           const sonde_program_node *node, const char *name,
                           sonde_place place)
{
    const sonde_program *program = r->program;
    sonde__builtin_text line;

    if (sonde_rule_found_at(run, program->values[node->outputs[0]].tensor, place,
                            SONDE_SEVERITY_ERROR, "readers", 0.0, 1.0)) {
        sonde_rule_say(
            run, "Assign the result: x = layer(x).",
            "Nothing reads what %.60s%s makes: the next operation reads what it "
            "was given, so it has no effect.",
            name, sonde__builtin_walk_line(program, place, &line));
    }
}

/* Whether a value that was given to an operation goes on after it, to the objective. */
static bool goes_on(const results *r, int value, size_t after)
{
    return value >= 0 && r->used[value] && r->last[value] > after + 1 &&
           r->program->values[value].requires_grad;
}

static void judge_operation(sonde_rule_run *run, const results *r, size_t i,
                            sonde_place *said)
{
    const sonde_program_node *node = &r->program->nodes[i];
    const int given = sonde__builtin_walk_first(node), made = node->outputs[0];

    if (sonde__builtin_walk_is(node->op, OFTEN_DROPPED) && r->last[made] == 0 &&
        !r->used[made] && goes_on(r, given, i) &&
        strcmp(sonde_attribute_text(node->attributes, "inplace"), "true") != 0 &&
        !sonde__builtin_walk_is_said(said, node->place)) {
        report_dropped(run, r, node, node->op, node->place);
    }
}

/* A block of several operations. */
static void judge_block(sonde_rule_run *run, const results *r, size_t module,
                        sonde_place *said)
{
    const sonde_program *program = r->program;
    const sonde_program_node *end = NULL;
    size_t at = 0, first = program->node_count;

    for (size_t i = 0; i < program->node_count; i++) {
        if (is_in(program, &program->nodes[i], module)) {
            first = first == program->node_count ? i : first;
            end = &program->nodes[i];
            at = i;
        }
    }
    if (end == NULL || first == at || end->output_count == 0) {
        return;
    }
    for (size_t i = first; i <= at; i++) { /* any result of it is used */
        for (size_t k = 0; k < program->nodes[i].output_count; k++) {
            const int made = program->nodes[i].outputs[k];

            if (r->used[made] || r->last[made] > at + 1) {
                return;
            }
        }
    }
    const int given = sonde__builtin_walk_first(&program->nodes[first]);
    if (goes_on(r, given, at) && r->last[end->outputs[0]] == 0 &&
        program->values[end->outputs[0]].requires_grad &&
        sonde__builtin_walk_same_shape(&program->values[given],
                                       &program->values[end->outputs[0]]) &&
        !sonde__builtin_walk_is_said(said, program->modules[module].place)) {
        report_dropped(run, r, end, program->modules[module].name,
                       program->modules[module].place);
    }
}

static void judge_dropped(sonde_rule_run *run, const results *r)
{
    const sonde_program *program = r->program;
    sonde_place said = {NULL, 0};

    for (size_t i = 0; i < program->node_count; i++) {
        if (program->nodes[i].output_count > 0) {
            judge_operation(run, r, i, &said);
        }
    }
    for (size_t i = 0; i < program->module_count; i++) {
        const sonde_program_module *module = &program->modules[i];

        if (module->registered && module->called && module->name[0] != '\0') {
            judge_block(run, r, i, &said);
        }
    }
}

/* --- linear --------------------------------------------------------------------------- */

static bool is_activation(const sonde_program_module *module)
{
    static const char *const kinds[] = {"ReLU", "GELU", "SiLU",      "ELU",
                                        "Tanh", "Mish", "Sigmoid",   "Softplus",
                                        "SELU", "CELU", "LeakyReLU", "PReLU"};

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(module->kind, kinds[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* The module that has another one as its part: the number of its name without the last word;
 * -1: none. */
static int owner_of(const sonde_program *program, int module)
{
    const char *name = module >= 0 ? program->modules[module].name : "";
    const char *dot = strrchr(name, '.');
    const size_t length = dot != NULL ? (size_t)(dot - name) : 0;

    for (size_t i = 0; name[0] != '\0' && i < program->module_count; i++) {
        if (program->modules[i].registered &&
            strlen(program->modules[i].name) == length &&
            strncmp(program->modules[i].name, name, length) == 0) {
            return (int)i;
        }
    }
    return -1;
}

/* An activation that a module has and that the step does not call; NULL: there is none. */
static const sonde_program_module *find_idle(const sonde_program *program, int owner)
{
    for (size_t i = 0; owner >= 0 && i < program->module_count; i++) {
        const sonde_program_module *module = &program->modules[i];

        if (module->registered && !module->called && is_activation(module) &&
            owner_of(program, (int)i) == owner) {
            return module;
        }
    }
    return NULL;
}

/* The product whose result another one reads, with nothing in between that is not affine. */
static const sonde_program_node *find_product(const sonde_program *program,
                                              const sonde_program_node *node)
{
    int value = sonde__builtin_walk_first(node);
    const sonde_program_node *maker = sonde__builtin_walk_up(program, &value, AFFINE);

    return maker != NULL && sonde__builtin_walk_is(maker->op, PRODUCTS) ? maker : NULL;
}

static bool calls_all_once(const sonde_program *program, int owner)
{
    for (size_t i = 0; owner >= 0 && i < program->node_count; i++) {
        if (program->nodes[i].module == owner &&
            sonde__builtin_walk_is(program->nodes[i].op,
                                   ACTIVATIONS " sigmoid softmax")) {
            return false; /* as functions */
        }
    }
    return owner >= 0;
}

static bool judge_idle(sonde_rule_run *run, const results *r,
                       const sonde_program_node *node)
{
    const sonde_program *program = r->program;
    const sonde_program_node *before = find_product(program, node);
    const int owner = owner_of(program, node->module);
    const sonde_program_module *idle =
        before != NULL && owner_of(program, before->module) == owner &&
                calls_all_once(program, owner)
            ? find_idle(program, owner)
            : NULL;
    sonde__builtin_text line, first;

    if (idle == NULL) {
        return false;
    }
    if (sonde_rule_found_at(run, program->values[node->outputs[0]].tensor, node->place,
                            SONDE_SEVERITY_WARNING, "calls", 0.0, 1.0)) {
        sonde_rule_say(
            run, "Call the activation between the two layers.",
            "%s%s reads what %s%s makes, so the two are one linear layer, while %s '%.60s' "
            "of the same module is never called.",
            node->op, sonde__builtin_walk_line(program, node->place, &line), before->op,
            sonde__builtin_walk_line(program, before->place, &first), idle->kind,
            idle->name);
    }
    return true;
}

/* The last of three products or more, if nothing else is in the model's modules. */
static const sonde_program_node *find_linear(const results *r, size_t *count)
{
    const sonde_program *program = r->program;
    const sonde_program_node *last = NULL;

    *count = 0;
    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];
        const bool product = sonde__builtin_walk_is(node->op, PRODUCTS);

        if (node->module < 0 || node->output_count == 0 || !r->used[node->outputs[0]] ||
            sonde__strcasestr(program->modules[node->module].kind, "loss") != NULL) {
            continue;
        }
        if (!product && !sonde__builtin_walk_is(node->op, AFFINE)) {
            return NULL;
        }
        if (product && *count > 0 && find_product(program, node) != last) {
            return NULL; /* not one after the other */
        }
        last = product ? node : last;
        *count += product;
    }
    return *count >= 3 ? last : NULL;
}

static void judge_linear(sonde_rule_run *run, const results *r)
{
    const sonde_program *program = r->program;
    size_t count = 0;
    sonde__builtin_text line;

    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];

        if (node->output_count > 0 && r->used[node->outputs[0]] &&
            sonde__builtin_walk_is(node->op, PRODUCTS) && judge_idle(run, r, node)) {
            return;
        }
    }
    const sonde_program_node *last = find_linear(r, &count);
    if (last != NULL &&
        sonde_rule_found_at(run, program->values[last->outputs[0]].tensor, last->place,
                            SONDE_SEVERITY_WARNING, "layers", (double)count, 2.0)) {
        sonde_rule_say(run, "Put an activation, such as ReLU, between the layers.",
                       "The network is %zu linear layers up to this one%s with no "
                       "activation between any of them: together they are one.",
                       count, sonde__builtin_walk_line(program, last->place, &line));
    }
}

/* --- drawn ---------------------------------------------------------------------------- */

/* The layer that reads random numbers, through operations that pass no gradient; NULL: none
 * does. below: room for marks. */
static const sonde_program_node *find_reader(const results *r, size_t from, bool *below)
{
    const sonde_program *program = r->program;

    memset(below, 0, program->value_count * sizeof *below);
    below[program->nodes[from].outputs[0]] = true;
    for (size_t i = from + 1; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];
        const int value = sonde__builtin_walk_operand(node, 0);
        bool reads = false;

        for (size_t k = 0; k < node->input_count; k++) {
            reads = reads || (node->inputs[k] >= 0 && below[node->inputs[k]]);
        }
        if (!reads || node->output_count == 0) {
            continue;
        }
        if (!program->values[node->outputs[0]].requires_grad) {
            below[node->outputs[0]] = true;
        } else if (sonde__builtin_walk_is(node->op, PRODUCTS) && value >= 0 &&
                   below[value] && r->used[node->outputs[0]]) {
            return node;
        }
    }
    return NULL;
}

/* The optimizer that holds a parameter of those that are marked, or that a layer reads; -1:
 * none does. */
static int holder_of(const sonde_program *program, const sonde_program_node *node)
{
    for (size_t k = 0; k < node->input_count; k++) {
        const int value = node->inputs[k];
        const int parameter = value >= 0 ? program->values[value].parameter : -1;

        if (parameter >= 0) {
            return program->parameters[parameter].optimizer;
        }
    }
    return -1;
}

/* Whether an operation reads a parameter and something that a gradient flows through from
 * `value`. marks: room. */
static bool is_read_by_layer(const sonde_program *program, int value, bool *marks)
{
    memset(marks, 0, program->value_count * sizeof *marks);
    marks[value] = true;
    sonde__builtin_walk_below(program, marks, true);
    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];
        const int given = sonde__builtin_walk_operand(node, 0);

        if (given >= 0 && marks[given] && node->input_count > 1 &&
            holder_of(program, node) >= 0) {
            return true;
        }
    }
    return false;
}

static void judge_drawn(sonde_rule_run *run, const results *r, size_t number, bool *marks)
{
    const sonde_program *program = r->program;
    const sonde_program_node *node = &program->nodes[number];
    int value = sonde__builtin_walk_first(node);
    sonde__builtin_text line, at, made;

    if (value < 0 || node->output_count == 0 ||
        program->values[node->outputs[0]].requires_grad || !r->used[value] ||
        !program->values[value].requires_grad) {
        return;
    }
    const sonde_program_node *encoder =
        sonde__builtin_walk_up(program, &value, "exp mul add div " SONDE__WALK_VIEWS);
    const sonde_program_node *reader = find_reader(r, number, marks);
    if (encoder == NULL || reader == NULL ||
        !sonde__builtin_walk_is(encoder->op, PRODUCTS) ||
        holder_of(program, encoder) < 0 ||
        holder_of(program, encoder) != holder_of(program, reader) ||
        is_read_by_layer(program, value, marks)) {
        return;
    }
    if (sonde_rule_found_at(run, program->values[node->outputs[0]].tensor, node->place,
                            SONDE_SEVERITY_ERROR, "gradients", 0.0, 1.0)) {
        sonde_rule_say(
            run, "Make the sample of both: mean + std * torch.randn_like(std).",
            "%s%s passes no gradient, and %s%s reads its numbers in place of "
            "what %s%s makes: the prediction does not depend on that layer.",
            node->op, sonde__builtin_walk_line(program, node->place, &line), reader->op,
            sonde__builtin_walk_line(program, reader->place, &at), encoder->op,
            sonde__builtin_walk_line(program, encoder->place, &made));
    }
}

/* --- kept ----------------------------------------------------------------------------- */

/* How many calls of a cell, from operation i on, have its state; each with another input. */
static size_t count_calls(const results *r, size_t i)
{
    const sonde_program *program = r->program;
    const sonde_program_node *first = &program->nodes[i];
    const int state = sonde__builtin_walk_operand(first, 1);
    int before = -1;
    size_t count = 0;

    for (; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];

        if (node->module != first->module || strcmp(node->op, first->op) != 0) {
            continue;
        }
        const int input = sonde__builtin_walk_operand(node, 0);
        if (sonde__builtin_walk_operand(node, 1) != state || input == before ||
            node->output_count == 0 || !r->used[node->outputs[0]]) {
            return 0;
        }
        before = input;
        count++;
    }
    return count;
}

static void judge_kept(sonde_rule_run *run, const results *r)
{
    enum { CALLS = 4 };
    const sonde_program *program = r->program;
    sonde__builtin_text line;

    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];
        const bool cell =
            sonde__builtin_walk_is(node->op,
                                   "lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell") &&
            sonde__builtin_walk_operand(node, 1) >= 0;
        const size_t calls = cell ? count_calls(r, i) : 0;

        if (calls >= CALLS &&
            sonde_rule_found_at(run, program->values[node->outputs[0]].tensor,
                                node->place, SONDE_SEVERITY_ERROR, "calls", (double)calls,
                                1.0)) {
            sonde_rule_say(
                run, "Pass the state that a call returns to the next call.",
                "%s%s is called %zu times with one and the same state: no call "
                "knows of those before it.",
                node->op, sonde__builtin_walk_line(program, node->place, &line), calls);
            return;
        }
    }
}

/* --- all ------------------------------------------------------------------------------ */

static size_t *last_reads(sonde_rule_run *run, const sonde_program *program)
{
    size_t *last = sonde__calloc(program->value_count + 1, sizeof *last);

    if (last == NULL) {
        sonde_rule_fail(run, "out of memory");
        return NULL;
    }
    for (size_t i = 0; i < program->node_count; i++) {
        for (size_t k = 0; k < program->nodes[i].input_count; k++) {
            if (program->nodes[i].inputs[k] >= 0) {
                last[program->nodes[i].inputs[k]] = i + 1;
            }
        }
    }
    return last;
}

void sonde__builtin_results_program(sonde_rule_run *run, const sonde_program *program)
{
    bool *used = sonde__builtin_walk_marks(run, program),
         *marks = sonde__builtin_walk_marks(run, program);
    size_t *last = last_reads(run, program);

    if (used != NULL && marks != NULL && last != NULL &&
        sonde__builtin_walk_objectives(program, used)) {
        const results r = {program, used, last};

        sonde__builtin_walk_above(program, used, false);
        judge_dropped(run, &r);
        judge_linear(run, &r);
        judge_kept(run, &r);
        for (size_t i = 0; i < program->node_count; i++) {
            if (sonde__builtin_walk_is(program->nodes[i].op, NOISE)) {
                judge_drawn(run, &r, i, marks);
            }
        }
    }
    sonde__free(last);
    sonde__free(marks);
    sonde__free(used);
}

/*
 * program_free_losses.c - losses that need not fall, by the program of a training step:
 *
 *     players      backward is called on losses that train the parameters of different
 *                  optimizers, and one of these losses is made of parameters of several; or
 *                  parameters of several are used, of which some step and others rest:
 *                  players take turns, each for some steps.
 *                  Of a program that is not complete: two optimizers hold parameters, and
 *                  backward is called at two places, or again after a step of one
 *     rewards      a factor of the loss has no gradient, and the other factor is
 *                    - made of what the program drew from an output of the network, or
 *                    - exp(p - p'), of which p' has no gradient (a ratio of policies), or
 *                    - a chosen logarithm, where the first factor is the difference of
 *                      data and an output of the network (an advantage)
 *     bootstrap    a target is the sum of data and an output of the network itself, outside
 *                  of modules
 *
 * Cost: a few passes over values and nodes.
 */
#include "rules/builtin/program_walk.h"

#include "base/memory.h"
#include "rules/suspicion.h"

#include <string.h>

/* --- players ------------------------------------------------------------------------ */

/* The optimizers, a bit each, of the parameters that a value is made of. */
static uint64_t optimizers_of(const sonde_program *program, int value, bool by_gradient,
                              bool *marks)
{
    uint64_t held = 0;

    memset(marks, 0, program->value_count * sizeof *marks);
    marks[value] = true;
    sonde__builtin_walk_above(program, marks, by_gradient);
    for (size_t i = 0; i < program->value_count; i++) {
        const int parameter = program->values[i].parameter;

        if (marks[i] && parameter >= 0 && program->parameters[parameter].optimizer >= 0) {
            held |= UINT64_C(1) << (program->parameters[parameter].optimizer & 63);
        }
    }
    return held;
}

static bool are_several(uint64_t optimizers)
{
    return (optimizers & (optimizers - 1)) != 0;
}

/* Whether an optimizer steps between two events, or these are at different places. */
static bool are_apart(const sonde_program *program, size_t first, size_t second)
{
    const sonde_program_event *a = &program->events[first], *b = &program->events[second];

    for (size_t i = first + 1; i < second; i++) {
        if (program->events[i].kind == SONDE_EVENT_STEP) {
            return true;
        }
    }
    return a->place.line != b->place.line || strcmp(a->place.file, b->place.file) != 0;
}

/* Whether the losses of two backward passes are of two players. */
static bool oppose(const sonde_program *program, size_t first, size_t second, bool *marks)
{
    const int a = program->events[first].value, b = program->events[second].value;

    if (a == b || !are_apart(program, first, second)) {
        return false;
    }
    if (!program->complete || a < 0 || b < 0) {
        return true;
    }
    return optimizers_of(program, a, true, marks) !=
               optimizers_of(program, b, true, marks) &&
           (are_several(optimizers_of(program, a, false, marks)) ||
            are_several(optimizers_of(program, b, false, marks)));
}

/* The optimizers that step, a bit each. */
static uint64_t stepping(const sonde_program *program)
{
    uint64_t found = 0;

    for (size_t i = 0; i < program->event_count; i++) {
        const sonde_program_event *event = &program->events[i];

        if (event->kind == SONDE_EVENT_STEP && event->optimizer >= 0) {
            found |= UINT64_C(1) << (event->optimizer & 63);
        }
    }
    return found;
}

/* Whether parameters of several optimizers are used, of which some step and others rest. */
static bool takes_turns(const sonde_program *program)
{
    const uint64_t steps = stepping(program);
    uint64_t used = 0;

    for (size_t i = 0; i < program->value_count; i++) {
        const int parameter = program->values[i].parameter;
        const int optimizer =
            parameter >= 0 ? program->parameters[parameter].optimizer : -1;

        used |= optimizer >= 0 ? UINT64_C(1) << (optimizer & 63) : 0;
    }
    return (used & steps) != 0 && (used & ~steps) != 0;
}

static bool has_players(const sonde_program *program, bool *marks)
{
    size_t before = SIZE_MAX;
    uint64_t held = 0;

    for (size_t i = 0; i < program->parameter_count; i++) {
        const int optimizer = program->parameters[i].optimizer;

        held |= optimizer >= 0 ? UINT64_C(1) << (optimizer & 63) : 0;
    }
    for (size_t i = 0; are_several(held) && i < program->event_count; i++) {
        if (program->events[i].kind != SONDE_EVENT_BACKWARD) {
            continue;
        }
        if (takes_turns(program) ||
            (before != SIZE_MAX && oppose(program, before, i, marks))) {
            return true;
        }
        before = i;
    }
    return false;
}

/* --- rewards ------------------------------------------------------------------------ */

/* What values of the step are made of. */
typedef struct origins {
    bool *loss;    /* they are part of what backward is called on */
    bool *network; /* made of parameters */
    bool *drawn;   /* made of what was drawn from an output of the network */
} origins;

/* Whether an operation draws from an output of the network, and not with its shape. */
static bool draws(const sonde_program *program, const sonde_program_node *node,
                  const origins *origin)
{
    const int from = sonde__builtin_walk_first(node);
    const sonde_program_node *made = sonde__builtin_walk_maker(program, from);

    return from >= 0 && origin->network[from] && node->output_count > 0 &&
           sonde__builtin_walk_is(node->op, "multinomial bernoulli normal poisson "
                                            "binomial") &&
           (made == NULL || !sonde__builtin_walk_is(made->op, "full ones zeros empty"));
}

static void mark_origins(const sonde_program *program, const origins *origin)
{
    for (size_t i = 0; i < program->value_count; i++) {
        origin->network[i] = program->values[i].parameter >= 0;
    }
    sonde__builtin_walk_below(program, origin->network, false);
    for (size_t i = 0; i < program->node_count; i++) {
        if (draws(program, &program->nodes[i], origin)) {
            origin->drawn[program->nodes[i].outputs[0]] = true;
        }
    }
    sonde__builtin_walk_below(program, origin->drawn, false);
    (void)sonde__builtin_walk_objectives(program, origin->loss);
    sonde__builtin_walk_above(program, origin->loss, false);
}

/* Whether one operand of an operation is an output of the network and the other is data. */
static bool joins_data(const sonde_program_node *node, const origins *origin)
{
    const int a = sonde__builtin_walk_operand(node, 0),
              b = sonde__builtin_walk_operand(node, 1);

    return a >= 0 && b >= 0 && origin->network[a] != origin->network[b];
}

static bool is_ratio(const sonde_program *program, int value)
{
    const sonde_program_node *made =
        sonde__builtin_walk_up(program, &value, SONDE__WALK_VIEWS " " SONDE__WALK_PLAIN);

    if (made == NULL || strcmp(made->op, "exp") != 0) {
        return false;
    }
    made = sonde__builtin_walk_maker(program, sonde__builtin_walk_first(made));
    if (made == NULL || strcmp(made->op, "sub") != 0) {
        return false;
    }
    const int before = sonde__builtin_walk_operand(made, 1);
    return before >= 0 && !program->values[before].requires_grad;
}

static bool is_chosen_logarithm(const sonde_program *program, int value)
{
    const sonde_program_node *made = sonde__builtin_walk_up(
        program, &value, SONDE__WALK_VIEWS " " SONDE__WALK_PLAIN " neg sum mean");

    if (made == NULL || strcmp(made->op, "index") != 0) {
        return false;
    }
    value = sonde__builtin_walk_first(made);
    made =
        sonde__builtin_walk_up(program, &value, SONDE__WALK_VIEWS " " SONDE__WALK_PLAIN);
    return made != NULL && sonde__builtin_walk_is(made->op, "log log_softmax sub");
}

static bool is_advantage(const sonde_program *program, int value, const origins *origin)
{
    const sonde_program_node *made = NULL;

    for (size_t left = program->node_count; left > 0; left--) {
        made = sonde__builtin_walk_up(
            program, &value, SONDE__WALK_VIEWS " " SONDE__WALK_PLAIN " detach div mul");
        if (made == NULL || strcmp(made->op, "sub") != 0) {
            return false;
        }
        if (joins_data(made, origin)) {
            return true;
        }
        value = sonde__builtin_walk_first(made);
        if (value < 0) {
            return false;
        }
    }
    return false;
}

/* Whether a product weights what the network did with a reward. */
static bool is_rewarded(const sonde_program *program, const sonde_program_node *node,
                        const origins *origin)
{
    int a = sonde__builtin_walk_operand(node, 0),
        b = sonde__builtin_walk_operand(node, 1);

    if (a >= 0 && !program->values[a].requires_grad) {
        const int other = a;

        a = b;
        b = other;
    }
    if (a < 0 || !program->values[a].requires_grad ||
        (b >= 0 && program->values[b].requires_grad)) {
        return false;
    }
    return origin->drawn[a] ||
           (b >= 0 && (is_ratio(program, a) || (is_advantage(program, b, origin) &&
                                                is_chosen_logarithm(program, a))));
}

static bool has_rewards(const sonde_program *program, const origins *origin)
{
    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];

        if (strcmp(node->op, "mul") == 0 && node->module < 0 && node->output_count > 0 &&
            origin->loss[node->outputs[0]] && is_rewarded(program, node, origin)) {
            return true;
        }
    }
    return false;
}

/* --- bootstrap ---------------------------------------------------------------------- */

static bool is_bootstrapped(const sonde_program *program, int targets,
                            const origins *origin, bool *marks)
{
    if (targets < 0 || program->values[targets].requires_grad ||
        !origin->network[targets]) {
        return false;
    }
    memset(marks, 0, program->value_count * sizeof *marks);
    marks[targets] = true;
    sonde__builtin_walk_above(program, marks, false);
    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];

        if (node->module < 0 && strcmp(node->op, "add") == 0 && node->output_count > 0 &&
            marks[node->outputs[0]] && joins_data(node, origin)) {
            return true;
        }
    }
    return false;
}

static bool has_bootstrap(const sonde_program *program, const origins *origin,
                          bool *marks)
{
    for (size_t i = 0; i < program->loss_count; i++) {
        if (is_bootstrapped(program, program->losses[i].targets, origin, marks)) {
            return true;
        }
    }
    return false;
}

/* Why losses need not fall, as a clause; NULL: nothing says so. */
static const char *reason_of(const sonde_program *program)
{
    const size_t count = program->value_count;
    const char *why = NULL;

    if (!sonde__builtin_walk_trains(program)) {
        return NULL;
    }
    bool *marks = sonde__calloc(count > 0 ? count : 1, 4 * sizeof *marks);
    if (marks == NULL) {
        return NULL;
    }
    const origins origin = {marks + count, marks + 2 * count, marks + 3 * count};
    mark_origins(program, &origin);
    if (has_players(program, marks)) {
        why = "they are of several players";
    } else if (has_rewards(program, &origin)) {
        why = "they weight actions with rewards";
    } else if (has_bootstrap(program, &origin, marks)) {
        why = "their targets are made by the network itself";
    }
    sonde__free(marks);
    return why;
}

void sonde__builtin_free_losses(sonde_rule_run *run, const sonde_program *program)
{
    const char *why = sonde__rule_loss_may_rise(run) ? NULL : reason_of(program);

    sonde__rule_free_losses(run, why);
}

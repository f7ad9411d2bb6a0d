/*
 * program_players.c - LossSign, by the program: players of an adversarial training that do not
 * oppose each other.
 *
 * The outputs of a discriminator are pushed up, down, or to a number, by the objective after
 * which an optimizer steps:
 *     binary_cross_entropy with targets that are all 1 or all 0, up or down;
 *     mse_loss with targets that are all one number, or the square of a difference to one;
 *     all that rises or falls with the output, down or up.
 * An output is generated if parameters of another optimizer are above it. Fires when the
 * discriminator's own optimizer pushes generated and other outputs alike, or when that of a
 * generator pushes generated ones as the discriminator's does.
 */
#include "rules/builtin/program_signs.h"

#include "rules/builtin/program_walk.h"

#include "base/memory.h"
#include "base/number.h"

#include <math.h>
#include <string.h>

enum { PUSHES = 64 };
#define PASSED SONDE__WALK_VIEWS " " SONDE__WALK_PLAIN " index"

/* What the objective before a step of an optimizer wants of an output. */
typedef struct push {
    int value, optimizer;
    const sonde_program_node *node; /* of the loss */
    bool to_number;                 /* a number; else a direction, 1 or -1 */
    double aim;
    bool generated;
} push;

typedef struct players {
    const sonde_program *program;
    push pushes[PUSHES];
    size_t count;
    sonde__builtin_sign *signs;
    bool *marks;
    int optimizer; /* that steps next */
} players;

/* The optimizers, a bit each, that hold what a value is made of. */
static uint64_t holders_of(players *p, int value)
{
    const sonde_program *program = p->program;
    uint64_t held = 0;

    memset(p->marks, 0, program->value_count * sizeof *p->marks);
    p->marks[value] = true;
    sonde__builtin_walk_above(program, p->marks, false);
    for (size_t i = 0; i < program->value_count; i++) {
        const int parameter = program->values[i].parameter;

        if (p->marks[i] && parameter >= 0 &&
            program->parameters[parameter].optimizer >= 0) {
            held |= UINT64_C(1) << (program->parameters[parameter].optimizer & 63);
        }
    }
    return held;
}

/* Notes a push of the output of a module; one that is pushed twice has no aim. */
static void add(players *p, int value, const sonde_program_node *node, bool to_number,
                double aim)
{
    const sonde_program_node *made = sonde__builtin_walk_up(p->program, &value, PASSED);

    if (made == NULL || made->module < 0 || !p->program->values[value].requires_grad ||
        p->count == PUSHES) {
        return;
    }
    for (size_t i = 0; i < p->count; i++) {
        push *one = &p->pushes[i];

        if (one->value == value && one->optimizer == p->optimizer) {
            one->aim = one->to_number == to_number && one->aim == aim ? aim : (double)NAN;
            return;
        }
    }
    const uint64_t others = holders_of(p, value) & ~(UINT64_C(1) << (p->optimizer & 63));
    p->pushes[p->count++] =
        (push){value, p->optimizer, node, to_number, aim, others != 0};
}

/* The number that a value is compared with in a square, and the value; NaN: it is none. */
static double compared_with(const sonde_program *program,
                            const sonde_program_node *square, int *value)
{
    *value = sonde__builtin_walk_first(square);
    const sonde_program_node *made = sonde__builtin_walk_up(program, value, PASSED);

    if (made == NULL || made->module >= 0) {
        return 0.0;
    }
    const double number = sonde_attribute_number(made->attributes, "scalar", (double)NAN);
    const bool subtracts = sonde__builtin_walk_is(made->op, "sub");
    if (!subtracts && !sonde__builtin_walk_is(made->op, "add")) {
        return (double)NAN;
    }
    *value = sonde__builtin_walk_first(made);
    return subtracts ? number : -number;
}

/* What a loss that has a sign in the objective wants. */
static void take_loss(players *p, const sonde_program_node *node, int sign)
{
    const double all =
        sonde_attribute_number(node->attributes, "targets_all", (double)NAN);
    int value = sonde__builtin_walk_operand(node, 0);

    if (sonde__builtin_walk_is(node->op, "binary_cross_entropy "
                                         "binary_cross_entropy_with_logits")) {
        (void)sonde__builtin_walk_up(p->program, &value, PASSED " sigmoid");
        if (all == 0.0 || all == 1.0) {
            add(p, value, node, false, (all > 0.0 ? 1.0 : -1.0) * sign);
        }
    } else if (sonde__builtin_walk_is(node->op, "mse_loss") && sign > 0 &&
               isfinite(all)) {
        add(p, value, node, true, all);
    } else if (sonde__builtin_walk_is(node->op, "pow square") && sign > 0 &&
               sonde_attribute_number(node->attributes, "exponent", 2.0) == 2.0) {
        const double number = compared_with(p->program, node, &value);

        if (isfinite(number) && value >= 0) {
            add(p, value, node, true, number);
        }
    }
}

/* The operation outside of modules that reads a value first; NULL: none does. */
static const sonde_program_node *find_outside(const sonde_program *program, int value)
{
    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];

        for (size_t k = 0; k < node->input_count && node->module < 0; k++) {
            if (node->inputs[k] == value) {
                return node;
            }
        }
    }
    return NULL;
}

/* Whether a module, which is no loss, makes a value of several samples. */
static bool is_output(const sonde_program *program, const sonde_program_node *node)
{
    const char *kind = node->module >= 0 ? program->modules[node->module].kind : "loss";

    return sonde__strcasestr(kind, "loss") == NULL &&
           sonde__strcasestr(kind, "criterion") == NULL &&
           program->values[node->outputs[0]].rank > 0;
}

/* Notes the pushes of the objective whose signs are followed. */
static void collect(players *p)
{
    const sonde_program *program = p->program;

    sonde__builtin_signs_follow(program, p->signs);
    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];
        const int out = node->output_count > 0 ? node->outputs[0] : -1;
        const sonde__builtin_sign sign = out >= 0 ? p->signs[out] : SONDE__SIGN_UNKNOWN;

        if (sign != SONDE__SIGN_RISES && sign != SONDE__SIGN_FALLS) {
            continue;
        }
        take_loss(p, node, (int)sign);
        const sonde_program_node *reader =
            is_output(program, node) ? find_outside(program, out) : NULL;
        if (reader != NULL) {
            add(p, out, reader, false, -(double)sign);
        }
    }
}

static void collect_all(players *p)
{
    const sonde_program *program = p->program;
    size_t first = 0;

    for (size_t i = 0; i < program->event_count; i++) {
        if (program->events[i].kind != SONDE_EVENT_STEP ||
            program->events[i].optimizer < 0) {
            continue;
        }
        memset(p->signs, 0, program->value_count * sizeof *p->signs);
        for (size_t k = first; k < i; k++) {
            if (program->events[k].kind == SONDE_EVENT_BACKWARD &&
                program->events[k].value >= 0) {
                p->signs[program->events[k].value] = SONDE__SIGN_RISES;
            }
        }
        p->optimizer = program->events[i].optimizer;
        collect(p);
        first = i + 1;
    }
}

/* Whether two outputs are of one network, and are pushed alike. */
static bool are_alike(const players *p, const push *a, const push *b)
{
    const sonde_program_node *x = sonde__builtin_walk_maker(p->program, a->value),
                             *y = sonde__builtin_walk_maker(p->program, b->value);

    return a != b && a->value != b->value && x->module == y->module &&
           strcmp(x->op, y->op) == 0 && a->to_number == b->to_number &&
           fabs(a->aim - b->aim) < 1e-6;
}

/* Whether an optimizer trains the network of an output: it alone holds what an output that
 * is not generated is made of. */
static bool is_own(players *p, const push *a)
{
    const sonde_program_node *x = sonde__builtin_walk_maker(p->program, a->value);

    for (size_t i = 0; i < p->count; i++) {
        const push *b = &p->pushes[i];
        const sonde_program_node *y = sonde__builtin_walk_maker(p->program, b->value);

        if (!b->generated && b->optimizer == a->optimizer && x->module == y->module &&
            strcmp(x->op, y->op) == 0 &&
            holders_of(p, b->value) == UINT64_C(1) << (b->optimizer & 63)) {
            return true;
        }
    }
    return false;
}

static void report(sonde_rule_run *run, const sonde_program *program, const push *a,
                   const push *b)
{
    const bool one = a->optimizer == b->optimizer;
    sonde__builtin_text first, second;

    if (sonde_rule_found_at(
            run, sonde__builtin_walk_tensor(program, b->node->outputs[0], -1),
            b->node->place, SONDE_SEVERITY_ERROR, "aim", b->aim, -b->aim)) {
        sonde_rule_say(
            run,
            one ? "Give generated and real samples different targets."
                : "The generator must want the opposite: the target of real samples.",
            "%s%s wants of the discriminator's outputs what %s%s wants: %s.", b->node->op,
            sonde__builtin_walk_line(program, b->node->place, &first), a->node->op,
            sonde__builtin_walk_line(program, a->node->place, &second),
            one ? "it learns one answer for real and for generated samples"
                : "generator and discriminator are not opponents");
    }
}

static void judge(sonde_rule_run *run, players *p)
{
    for (size_t i = 0; i < p->count; i++) {
        for (size_t k = 0; k < p->count; k++) {
            const push *a = &p->pushes[i], *b = &p->pushes[k];
            const bool same = a->optimizer == b->optimizer;

            if (b->generated && a->generated != same && are_alike(p, a, b) &&
                is_own(p, a) && (same || !is_own(p, b))) {
                report(run, p->program, a, b);
                return;
            }
        }
    }
}

void sonde__builtin_player_program(sonde_rule_run *run, const sonde_program *program)
{
    players *p = sonde__calloc(1, sizeof *p);
    bool *marks = sonde__builtin_walk_marks(run, program);
    sonde__builtin_sign *signs = sonde__calloc(program->value_count + 1, sizeof *signs);

    if (p == NULL || signs == NULL) {
        sonde_rule_fail(run, "out of memory");
    } else if (marks != NULL && program->optimizer_count > 1 &&
               sonde__builtin_walk_trains(program)) {
        p->program = program;
        p->signs = signs;
        p->marks = marks;
        collect_all(p);
        judge(run, p);
    }
    sonde__free(signs);
    sonde__free(marks);
    sonde__free(p);
}

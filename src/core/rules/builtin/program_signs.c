/*
 * program_signs.c - LossSign, by the program: losses that enter the objective with the wrong
 * sign, so that training makes them larger.
 *
 * Judged are
 *     losses of PyTorch's, squares and sizes of a difference of predictions and targets,
 *     with which the objective must rise;
 *     logarithms of probabilities chosen by labels, with which it must fall.
 * It fires if all that the objective is made of have the wrong sign, or one of several
 * logarithms, as the two of a binary cross-entropy. A factor whose sign is
 * not known (a reward), several players and an optimizer that maximizes are not judged.
 */
#include "rules/builtin/program_signs.h"

#include "rules/builtin/program_walk.h"
#include "rules/context.h"
#include "rules/suspicion.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

#define RISING                                                                            \
    "add mean sum stack cat exp expm1 log log1p sqrt relu softplus sigmoid tanh "         \
    "leaky_relu elu logsigmoid clamp max min maximum minimum nan_to_num expand identity " \
    "alias detach " SONDE__WALK_VIEWS " " SONDE__WALK_PLAIN
#define LOSSES                                                                           \
    "cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss "                 \
    "binary_cross_entropy binary_cross_entropy_with_logits"

/* --- signs ---------------------------------------------------------------------------- */

static int sign_of(double number)
{
    return number > 0.0 ? 1 : number < 0.0 ? -1 : 0;
}

/* Whether no element of a value is below 0: the targets of the first loss, or one minus them,
 * by the facts of the program. */
static bool is_never_below(const sonde_program *program, int value)
{
    const double least = sonde_attribute_number(program->facts, "targets_min", -1.0),
                 most = sonde_attribute_number(program->facts, "targets_max", 2.0);
    int targets = program->loss_count > 0 ? program->losses[0].targets : -1;
    const sonde_program_node *made =
        sonde__builtin_walk_up(program, &value, SONDE__WALK_VIEWS " detach");
    const bool rest = made != NULL && sonde__builtin_walk_is(made->op, "sub") &&
                      made->inputs[0] < 0 &&
                      sonde_attribute_number(made->attributes, "scalar", 1.0) == 1.0;

    value = rest ? sonde__builtin_walk_first(made) : value;
    (void)sonde__builtin_walk_up(program, &targets, SONDE__WALK_VIEWS " detach");
    (void)sonde__builtin_walk_up(program, &value, SONDE__WALK_VIEWS " detach");
    if (value != targets) { /* "1 - y", of which y is the target that was found */
        made = sonde__builtin_walk_maker(program, targets);
        targets =
            made != NULL && sonde__builtin_walk_is(made->op, "sub") && made->inputs[0] < 0
                ? sonde__builtin_walk_first(made)
                : -1;
    }
    return value >= 0 && value == targets && least >= 0.0 && most <= 1.0;
}

/* How the result of an operation changes with operand k: 1, -1, or 0 if that is unknown. */
static int changes(const sonde_program *program, const sonde_program_node *node, size_t k)
{
    const double scalar = sonde_attribute_number(node->attributes, "scalar", (double)NAN);

    if (sonde__builtin_walk_is(node->op, "neg")) {
        return -1;
    }
    if (sonde__builtin_walk_is(node->op, "sub")) {
        return k == 0 ? 1 : -1;
    }
    if (sonde__builtin_walk_is(node->op, "mul")) {
        const bool weighs = node->input_count == 2 && node->inputs[1 - k] >= 0;
        return weighs ? is_never_below(program, node->inputs[1 - k]) : sign_of(scalar);
    }
    if (sonde__builtin_walk_is(node->op, "div")) {
        return k == 0 ? sign_of(scalar) : 0;
    }
    if (sonde__builtin_walk_is(node->op, "index")) {
        return k == 0;
    }
    return sonde__builtin_walk_is(node->op, RISING) &&
           sonde_attribute_number(node->attributes, "alpha", 1.0) > 0.0;
}

/* Gives the operands of an operation their signs. */
static void pass_on(const sonde_program *program, const sonde_program_node *node,
                    sonde__builtin_sign now, sonde__builtin_sign *signs)
{
    for (size_t k = 0; k < node->input_count; k++) {
        const int value = node->inputs[k], by = changes(program, node, k);

        if (value < 0 || by == 0) {
            continue;
        }
        const sonde__builtin_sign found = now == SONDE__SIGN_BOTH ? now
                                          : (int)now * by > 0     ? SONDE__SIGN_RISES
                                                                  : SONDE__SIGN_FALLS;
        signs[value] = signs[value] == SONDE__SIGN_UNKNOWN || signs[value] == found
                           ? found
                           : SONDE__SIGN_BOTH;
    }
}

void sonde__builtin_signs_follow(const sonde_program *program, sonde__builtin_sign *signs)
{
    for (size_t i = program->node_count; i-- > 0;) {
        const sonde_program_node *node = &program->nodes[i];

        if (node->output_count > 0 && signs[node->outputs[0]] != SONDE__SIGN_UNKNOWN) {
            pass_on(program, node, signs[node->outputs[0]], signs);
        }
    }
}

/* --- losses ----------------------------------------------------------------------------- */

static bool is_learned(const sonde_program *program, int value)
{
    return value >= 0 && program->values[value].requires_grad;
}

/* Whether a value is a difference of what is learned and what is given, of several numbers. */
static bool is_error(const sonde_program *program, int value)
{
    const sonde_program_node *made =
        sonde__builtin_walk_up(program, &value, SONDE__WALK_VIEWS " " SONDE__WALK_PLAIN);

    if (made == NULL || !sonde__builtin_walk_is(made->op, "sub") ||
        made->input_count != 2 || made->inputs[0] < 0 || made->inputs[1] < 0) {
        return false;
    }
    const bool first = is_learned(program, made->inputs[0]);
    const int given = made->inputs[first ? 1 : 0];
    return first != is_learned(program, made->inputs[1]) &&
           program->values[given].rank > 0;
}

/* Whether an operation squares a value, or takes its size. */
static bool is_size(const sonde_program_node *node)
{
    const double exponent =
        sonde_attribute_number(node->attributes, "exponent",
                               sonde_attribute_number(node->attributes, "scalar", 0.0));

    return sonde__builtin_walk_is(node->op, "square abs") ||
           (sonde__builtin_walk_is(node->op, "pow") && fmod(exponent, 2.0) == 0.0 &&
            exponent > 0.0) ||
           (sonde__builtin_walk_is(node->op, "mul") && node->input_count == 2 &&
            node->inputs[0] == node->inputs[1]);
}

/* Whether labels, which the network does not make, choose among logarithms of probabilities. */
static bool is_chosen(const sonde_program *program, const sonde_program_node *node,
                      const bool *network)
{
    int labels = node->input_count == 2 || node->input_count == 3
                     ? node->inputs[node->input_count - 1]
                     : -1;
    int value = sonde__builtin_walk_operand(node, 0);

    if (!sonde__builtin_walk_is(node->op, "index") || labels < 0 || value < 0) {
        return false;
    }
    const sonde_program_node *made =
        sonde__builtin_walk_up(program, &value, SONDE__WALK_PLAIN);
    return made != NULL && sonde__builtin_walk_is(made->op, "log_softmax") &&
           !network[labels] && program->values[labels].rank > 0 &&
           !sonde_dtype_is_float(program->values[labels].dtype) &&
           program->values[labels].dtype != SONDE_BOOL;
}

/* Whether an operation makes logarithms of probabilities. */
static bool is_log(const sonde_program *program, const sonde_program_node *node)
{
    int value = sonde__builtin_walk_first(node);
    const sonde_program_node *made = NULL;

    if (!sonde__builtin_walk_is(node->op, "log")) {
        return sonde__builtin_walk_is(node->op, "logsigmoid");
    }
    made = sonde__builtin_walk_up(program, &value, SONDE__WALK_PLAIN " add sub index");
    return made != NULL && sonde__builtin_walk_is(made->op, "sigmoid softmax");
}

/* The sign that the objective must have with a loss; UNKNOWN: the operation is none. */
static sonde__builtin_sign right_sign(const sonde_program *program,
                                      const sonde_program_node *node, const bool *network)
{
    if (!is_learned(program, node->outputs[0])) {
        return SONDE__SIGN_UNKNOWN;
    }
    if (sonde__builtin_walk_is(node->op, LOSSES) ||
        (is_size(node) && is_error(program, sonde__builtin_walk_operand(node, 0)))) {
        return SONDE__SIGN_RISES;
    }
    return is_chosen(program, node, network) || is_log(program, node)
               ? SONDE__SIGN_FALLS
               : SONDE__SIGN_UNKNOWN;
}

/* Whether the objective is made of more that is learned, by an operation that ends a way. */
static bool ends_way(const sonde_program *program, const sonde_program_node *node)
{
    for (size_t k = 0; k < node->input_count; k++) {
        if (is_learned(program, node->inputs[k]) && changes(program, node, k) == 0) {
            return true;
        }
    }
    return false;
}

/* Ends ways at losses: what they are made of gets no sign. *open: others end elsewhere. */
static void follow_to_losses(const sonde_program *program, sonde__builtin_sign *signs,
                             const bool *network, signed char *terms, bool *open)
{
    for (size_t i = program->node_count; i-- > 0;) {
        const sonde_program_node *node = &program->nodes[i];
        const sonde__builtin_sign now =
            node->output_count > 0 ? signs[node->outputs[0]] : SONDE__SIGN_UNKNOWN;
        const sonde__builtin_sign right = now != SONDE__SIGN_UNKNOWN
                                              ? right_sign(program, node, network)
                                              : SONDE__SIGN_UNKNOWN;

        if (right != SONDE__SIGN_UNKNOWN) {
            terms[i] = now == right ? 1 : -1;
            *open = *open || now == SONDE__SIGN_BOTH;
        } else if (now != SONDE__SIGN_UNKNOWN) {
            *open = *open || ends_way(program, node);
            pass_on(program, node, now, signs);
        }
    }
}

/* The first loss of the wrong sign, if all that the objective is made of are so, or one of
 * several logarithms of probabilities. */
static const sonde_program_node *find_wrong(const sonde_program *program,
                                            const signed char *terms)
{
    const sonde_program_node *wrong = NULL;
    bool right = false, others = false;

    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];

        wrong = terms[i] < 0 && wrong == NULL ? node : wrong;
        right = right || terms[i] > 0;
        others = others || (terms[i] != 0 && !is_log(program, node));
    }
    return right && others ? NULL : wrong;
}

/* Whether a step trains parameters, and no optimizer maximizes. */
static bool minimizes(const sonde_program *program)
{
    bool any = false;

    for (size_t i = 0; i < program->optimizer_count; i++) {
        if (sonde_attribute_number(program->optimizers[i].attributes, "maximize", 0.0) >
            0.0) {
            return false;
        }
    }
    for (size_t i = 0; i < program->parameter_count && !any; i++) {
        any = program->parameters[i].reached && program->parameters[i].optimizer >= 0;
    }
    return any && sonde__builtin_walk_event(program, 0, SONDE_EVENT_STEP) != NULL;
}

/* Sets the signs of what backward is called on; how many there are. */
static size_t set_objectives(const sonde_program *program, sonde__builtin_sign *signs)
{
    size_t count = 0;

    for (size_t i = 0; i < program->event_count; i++) {
        const sonde_program_event *event = &program->events[i];

        if (event->kind == SONDE_EVENT_BACKWARD && event->value >= 0) {
            signs[event->value] = SONDE__SIGN_RISES;
            count++;
        }
    }
    return count;
}

static void report_wrong(sonde_rule_run *run, const sonde_program *program,
                         const sonde_program_node *wrong)
{
    const bool logarithm = sonde__builtin_walk_is(wrong->op, "index log logsigmoid");
    sonde__builtin_text line;

    if (sonde_rule_found_at(run,
                            sonde__builtin_walk_tensor(program, wrong->outputs[0], -1),
                            wrong->place, SONDE_SEVERITY_ERROR, "sign",
                            logarithm ? 1.0 : -1.0, logarithm ? -1.0 : 1.0)) {
        sonde_rule_say(run, "Check the signs on the way from here to backward.",
                       "%s%s %s: training makes the network worse.",
                       logarithm ? "The logarithm of a probability" : wrong->op,
                       sonde__builtin_walk_line(program, wrong->place, &line),
                       logarithm ? "enters what is minimized without a minus"
                                 : "enters what is minimized with a minus");
    }
}

static void judge(sonde_rule_run *run, const sonde_program *program,
                  sonde__builtin_sign *signs, bool *network, signed char *terms)
{
    bool open = false;

    for (size_t i = 0; i < program->value_count; i++) {
        network[i] = program->values[i].parameter >= 0;
    }
    sonde__builtin_walk_below(program, network, false);
    follow_to_losses(program, signs, network, terms, &open);
    const sonde_program_node *wrong = open ? NULL : find_wrong(program, terms);
    if (wrong != NULL) {
        report_wrong(run, program, wrong);
    }
}

void sonde__builtin_sign_program(sonde_rule_run *run, const sonde_program *program)
{
    bool *network = sonde__builtin_walk_marks(run, program);
    sonde__builtin_sign *signs = sonde__calloc(program->value_count + 1, sizeof *signs);
    signed char *terms = sonde__calloc(program->node_count + 1, sizeof *terms);

    if (signs == NULL || terms == NULL) {
        sonde_rule_fail(run, "out of memory");
    } else if (network != NULL && sonde__builtin_walk_trains(program) &&
               set_objectives(program, signs) > 0) {
        sonde__rule_judged_program(run);
        if (minimizes(program) && !sonde__rule_loss_may_rise(run)) {
            judge(run, program, signs, network, terms);
        }
    }
    sonde__free(terms);
    sonde__free(signs);
    sonde__free(network);
}

/*
 * program_optimizers.c - OptimizerState, of the settings of optimizers, which the program
 * shows:
 *
 *     momentum   of 1 or more: velocities never fade; or above HEAVY, unless the learning rate
 *                is as small: a gradient then moves weights FAR, past any place where the loss
 *                is low
 *     clipping   to a norm below TINY: what is left of gradients moves nothing
 *     betas      beta1 above beta2: they are swapped
 *     ascent     maximize, and the optimizer steps on the loss of a comparison with targets,
 *                which is not negated
 *     decay      it takes more than DECAY of each weight at a step, or is more than COUPLED
 *                beside the gradients of an optimizer that divides by their size
 *
 * The findings are at the line of the optimizer's step.
 */
#include "rules/builtin/program_walk.h"
#include "rules/context.h"

#include "base/number.h"

#include <math.h>
#include <string.h>

#define HEAVY 0.995
#define FAR 5.0 /* learning rate over 1 - momentum; of SGD */
#define TINY 1e-6
#define DECAY 0.015
#define COUPLED 0.3
#define COMPARING                                                                        \
    "cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss "                 \
    "binary_cross_entropy binary_cross_entropy_with_logits ctc_loss gaussian_nll_loss "  \
    "poisson_nll_loss"

/* The two numbers of an attribute such as "[0.9, 0.999]". */
static bool take_pair(sonde_program_attributes attributes, const char *name,
                      double pair[2])
{
    const char *text = sonde_attribute_text(attributes, name);
    char *end = NULL;

    text += strcspn(text, "0123456789.");
    pair[0] = sonde__strtod(text, &end);
    if (end == text || *end != ',') {
        return false;
    }
    text = end + 1;
    pair[1] = sonde__strtod(text, &end);
    return end != text;
}

static sonde_place place_of(const sonde_program *program, int optimizer)
{
    for (size_t i = 0; i < program->event_count; i++) {
        const sonde_program_event *event = &program->events[i];

        if (event->kind == SONDE_EVENT_STEP && event->optimizer == optimizer) {
            return event->place;
        }
    }
    return (sonde_place){"", 0};
}

/* The loss that an optimizer's parameters are trained with, if it compares predictions with
 * targets; NULL: there are several, or it is none of these. */
static const sonde_program_node *comparison(const sonde_program *program)
{
    const sonde_program_event *backward =
        sonde__builtin_walk_event(program, 0, SONDE_EVENT_BACKWARD);

    if (backward == NULL || backward->value < 0 || program->optimizer_count != 1) {
        return NULL;
    }
    int value = backward->value;
    const sonde_program_node *made =
        sonde__builtin_walk_up(program, &value, "mean sum " SONDE__WALK_VIEWS);

    return made != NULL && sonde__builtin_walk_is(made->op, COMPARING) ? made : NULL;
}

static bool holds_used(const sonde_program *program, int optimizer)
{
    for (size_t i = 0; i < program->parameter_count; i++) {
        if (program->parameters[i].optimizer == optimizer &&
            program->parameters[i].used) {
            return true;
        }
    }
    return false;
}

static void judge_momentum(sonde_rule_run *run, const sonde_program *program, int index)
{
    const sonde_program_optimizer *its = &program->optimizers[index];
    const double momentum = sonde_attribute_number(its->attributes, "momentum", 0.0);
    const double rate = sonde_attribute_number(its->attributes, "lr", 0.0);
    double betas[2] = {0.0, 1.0};

    if (momentum >= 1.0 &&
        sonde_rule_found_at(run, "", place_of(program, index), SONDE_SEVERITY_ERROR,
                            "momentum", momentum, 1.0)) {
        sonde_rule_say(
            run, "Use a momentum below 1, usually 0.9.",
            "%s has a momentum of %.4g: its velocities never fade, so training "
            "cannot settle.",
            its->kind, momentum);
    }
    if (momentum > HEAVY && momentum < 1.0 &&
        rate / (1.0 - momentum) > (strcmp(its->kind, "SGD") == 0 ? FAR : FAR / 10.0) &&
        sonde_rule_found_at(run, "", place_of(program, index), SONDE_SEVERITY_WARNING,
                            "momentum", momentum, HEAVY)) {
        sonde_rule_say(
            run, "Use a momentum of 0.9 to 0.99, or a lower learning rate.",
            "%s has a momentum of %.4g: a gradient acts for %.0f steps, which is "
            "too long for a learning rate of %.3g.",
            its->kind, momentum, ceil(1.0 / (1.0 - momentum)), rate);
    }
    if (take_pair(its->attributes, "betas", betas) && betas[0] > betas[1] &&
        sonde_rule_found_at(run, "", place_of(program, index), SONDE_SEVERITY_ERROR,
                            "beta1", betas[0], betas[1])) {
        sonde_rule_say(run, "Swap them: beta1 belongs to the mean of gradients.",
                       "%s has beta1 = %.4g and beta2 = %.4g, which look swapped.",
                       its->kind, betas[0], betas[1]);
    }
}

static void judge_clipping(sonde_rule_run *run, const sonde_program *program)
{
    for (size_t i = 0; i < program->event_count; i++) {
        const sonde_program_event *event = &program->events[i];
        const double norm =
            event->kind == SONDE_EVENT_CLIP
                ? sonde_attribute_number(event->attributes, "max_norm", 1.0)
                : 1.0;

        if (norm < TINY &&
            sonde_rule_found_at(run, "", event->place, SONDE_SEVERITY_ERROR, "max_norm",
                                norm, TINY)) {
            sonde_rule_say(run, "Clip to a norm of about 1.",
                           "The gradients are clipped to a norm of %.3g: what is left of "
                           "them moves nothing.",
                           norm);
        }
    }
}

static void judge_ascent(sonde_rule_run *run, const sonde_program *program, int index)
{
    const sonde_program_optimizer *its = &program->optimizers[index];
    const sonde_program_node *loss =
        strcmp(sonde_attribute_text(its->attributes, "maximize"), "true") == 0 &&
                holds_used(program, index)
            ? comparison(program)
            : NULL;
    sonde__builtin_text text;

    if (loss != NULL && sonde_rule_found_at(run, "", place_of(program, index),
                                            SONDE_SEVERITY_ERROR, "maximize", 1.0, 0.0)) {
        sonde_rule_say(run, "Leave maximize out, or negate the loss.",
                       "%s maximizes %s%s: each step makes the predictions worse.",
                       its->kind, loss->op,
                       sonde__builtin_walk_line(program, loss->place, &text));
    }
}

static void judge_decay(sonde_rule_run *run, const sonde_program *program, int index)
{
    const sonde_program_optimizer *its = &program->optimizers[index];
    const double rate = sonde_attribute_number(its->attributes, "lr", 0.0);
    const double decay = sonde_attribute_number(its->attributes, "weight_decay", 0.0);
    const double momentum = sonde_attribute_number(its->attributes, "momentum", 0.0);
    const bool plain = strcmp(its->kind, "SGD") == 0;
    const bool apart =
        strcmp(its->kind, "AdamW") == 0 ||
        strcmp(sonde_attribute_text(its->attributes, "decoupled_weight_decay"), "true") ==
            0;
    const bool divides =
        strcmp(its->kind, "Adam") == 0 || strcmp(its->kind, "RMSprop") == 0 ||
        strcmp(its->kind, "Adagrad") == 0 || strcmp(its->kind, "NAdam") == 0 ||
        strcmp(its->kind, "RAdam") == 0;
    const double share = apart ? rate * decay
                         : plain && momentum >= 0.0 && momentum < 1.0
                             ? rate * decay / (1.0 - momentum)
                             : 0.0;

    if (share > DECAY &&
        sonde_rule_found_at(run, "", place_of(program, index), SONDE_SEVERITY_WARNING,
                            "decay", share, DECAY)) {
        sonde_rule_say(
            run, "Lower weight_decay: 0.0001 to 0.1 is usual.",
            "The weight decay of %s, %.3g with a learning rate of %.3g, takes "
            "%.2g %% of every weight at each step: what is learned fades within "
            "%.0f steps.",
            its->kind, decay, rate, 100.0 * share, ceil(1.0 / share));
    } else if (divides && !apart && decay > COUPLED &&
               sonde_rule_found_at(run, "", place_of(program, index),
                                   SONDE_SEVERITY_WARNING, "weight_decay", decay,
                                   COUPLED)) {
        sonde_rule_say(
            run, "Lower weight_decay, or use AdamW, which decays apart.",
            "%s adds %.3g times each weight to its gradient, as its weight decay: "
            "that is most of the step.",
            its->kind, decay);
    }
}

void sonde__builtin_optimizer_program(sonde_rule_run *run, const sonde_program *program)
{
    if (!sonde__builtin_walk_trains(program) ||
        sonde__builtin_walk_event(program, 0, SONDE_EVENT_STEP) == NULL) {
        return;
    }
    judge_clipping(run, program);
    for (size_t i = 0; i < program->optimizer_count; i++) {
        judge_momentum(run, program, (int)i);
        judge_ascent(run, program, (int)i);
        judge_decay(run, program, (int)i);
        sonde__rule_judged_program(run);
    }
}

bool sonde__builtin_optimizer_is_swapped(const sonde_program *program)
{
    double betas[2];

    for (size_t i = 0; program != NULL && i < program->optimizer_count; i++) {
        if (take_pair(program->optimizers[i].attributes, "betas", betas) &&
            betas[0] > betas[1]) {
            return true;
        }
    }
    return false;
}

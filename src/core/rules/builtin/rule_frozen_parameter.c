/*
 * FrozenParameter - a parameter that should be trained does not change.
 *
 * Fires when the vital signs of a parameter stay the same to the bit, and
 *     alone     at `patience` comparisons of observed steps in a row its gradient is not 0
 *               and other parameters change: the optimiser lacks it. Or no parameter
 *               changes, although the optimiser's state for this one (moments, step
 *               counter) does: the optimiser holds stale copies.
 *     idle      no parameter changes: frozen_idle.c.
 *     cut off   a weight never had a gradient: frozen_cut_off.c.
 * A parameter whose expected change is below its precision is ignored. L is the median,
 * over the parameters that changed, of |change of sum a step| / |sum of gradient|, which
 * is the learning rate of plain SGD; L max|g| must be above 1e-6 max|w|. A parameter, or a
 * network, that has rested before has to rest three times as long: gradients may be
 * accumulated over steps, and players may take turns.
 *
 * Layers may be frozen on purpose. The finding is a note, not an error, where the rule
 * cannot distinguish this from a mistake: the optimiser's state for the parameter changes
 * (its learning rate is 0); or the parameters without a change are the first layers, at
 * least two or half of them.
 *
 * Evidence: vital signs of parameters, of their gradients and of the optimiser's values;
 * losses, if there are any.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_vitals.h"
#include "rules/builtin/frozen.h"
#include "rules/suspicion.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_RATES = 64 };
enum { TURNS = 3 }; /* times `idle` */

static const sonde_rule_param params[] = {
    SONDE__COUNT(sonde__builtin_frozen, patience, "2", 1, 1e9,
                 "comparisons in a row of a parameter whose gradient is not 0"),
    SONDE__COUNT(sonde__builtin_frozen, idle, "40", 1, 1e9,
                 "comparisons in a row without any change, or without a gradient"),
};
static const sonde_rule_need needs[] = {
    {"parameters", SONDE_HOW_VITALS, false, SONDE__PARAMETERS, SONDE__CLOSELY},
    {"gradients", SONDE_HOW_VITALS, false, SONDE__GRADIENTS, SONDE__CLOSELY},
    {"optimiser values", SONDE_HOW_VITALS, true, SONDE__STATE, SONDE__AT_TIMES},
    {"losses", SONDE_HOW_VITALS, true, SONDE__LOSSES, SONDE__EACH_STEP}};

/* The learning rate of plain SGD by the change of a parameter. A gradient may sum to 0,
 * as that of the last layer of a classifier does: then a lower bound. */
static double rate_of(const sonde_vitals *now, const sonde_vitals *before,
                      const sonde_vitals *g)
{
    return fabs(g->sum) > 1e-3 * g->l1 ? fabs(now->sum - before->sum) / fabs(g->sum)
                                       : fabs(now->l1 - before->l1) / g->l1;
}

/* Compares all tensors but gradients with their last values. Returns L of the file
 * header, 0 if no parameter changed. */
static double compare(sonde_rule_run *run, sonde_rule_tensor *tensors, size_t count)
{
    double rates[MOST_RATES];
    size_t changed = 0;

    for (size_t i = 0; i < count; i++) {
        sonde__builtin_frozen_memory *memory = tensors[i].memory;
        const sonde_vitals *now = tensors[i].vitals, *g = NULL;

        if (tensors[i].need == SONDE__FROZEN_GRADIENTS ||
            tensors[i].need == SONDE__FROZEN_LOSSES || now == NULL) {
            continue;
        }
        const double steps = (double)sonde__builtin_steps_since(run, &memory->last);
        memory->same =
            memory->has_before && sonde__builtin_same_vitals(now, &memory->before);
        g = tensors[i].need == SONDE__FROZEN_PARAMETERS && memory->gradient != SIZE_MAX
                ? tensors[memory->gradient].vitals
                : NULL;
        if (memory->has_before && !memory->same && g != NULL && changed < MOST_RATES &&
            g->l1 > 0.0) {
            rates[changed++] = rate_of(now, &memory->before, g) / fmax(steps, 1.0);
        }
    }
    if (changed == 0) {
        return 0.0;
    }
    sonde__builtin_sort(rates, changed);
    return rates[changed / 2];
}

/* True if the optimiser's state for this parameter has changed. */
static bool state_changes(const sonde_rule_tensor *tensors,
                          const sonde__builtin_frozen_memory *memory)
{
    const sonde__builtin_frozen_memory *state =
        memory->state != SIZE_MAX ? tensors[memory->state].memory : NULL;

    return state != NULL && tensors[memory->state].vitals != NULL && state->has_before &&
           !state->same;
}

/* --- alone -------------------------------------------------------------------------- */

/* Whether parameter i may be frozen on purpose. */
static bool may_be_meant(sonde_rule_run *run, size_t i)
{
    sonde__builtin_frozen *state = sonde_rule_state(run);
    const sonde_rule_tensor *tensors = sonde__builtin_tensors(run);
    const sonde__builtin_frozen_memory *memory = tensors[i].memory;

    if (state_changes(tensors, memory)) {
        return true;
    }
    sonde__builtin_frozen_survey(run);
    return !memory->moved && i < state->first_moving &&
           (state->still >= 2 || 2 * state->still >= state->weights);
}

static void judge(sonde_rule_run *run, size_t i, sonde__builtin_frozen_memory *memory,
                  const sonde_vitals *g, bool others)
{
    const sonde__builtin_frozen *state = sonde_rule_state(run);
    sonde_severity severity = SONDE_SEVERITY_ERROR;

    if (memory->steps < state->patience || memory->steps <= 3 * memory->rest_most) {
        return;
    }
    if (memory->meant || (others && may_be_meant(run, i))) {
        memory->meant = true; /* also once layers before it are trained */
        severity = SONDE_SEVERITY_NOTE;
    }
    if (sonde_rule_found(run, i, severity, "steps_unchanged", (double)memory->steps,
                         (double)state->patience)) {
        sonde_rule_say(run, NULL,
                       "It has a gradient (mean %.3g) but does not change, %s%s.",
                       g->l1 / (double)g->count,
                       others ? "while other parameters do"
                              : "and neither does any other parameter, while the "
                                "optimiser's state does",
                       severity == SONDE_SEVERITY_NOTE
                           ? "; if it is frozen on purpose, its gradient is not needed"
                           : "");
    }
}

/* Judges parameter i; rate is L of the file header. */
static void judge_alone(sonde_rule_run *run, size_t i, double rate)
{
    const sonde_rule_tensor *tensors = sonde__builtin_tensors(run);
    sonde__builtin_frozen_memory *memory = tensors[i].memory;
    const sonde_vitals *now = tensors[i].vitals;
    const sonde_vitals *g =
        memory->gradient != SIZE_MAX ? tensors[memory->gradient].vitals : NULL;
    const bool stuck = memory->same && g != NULL && sonde__builtin_nonzero(g) > 0 &&
                       sonde__builtin_bad(g) == 0 && sonde__builtin_bad(now) == 0 &&
                       (rate > 0.0 ? rate * g->abs_max > 1e-6 * now->abs_max
                                   : state_changes(tensors, memory));

    memory->steps = stuck ? memory->steps + 1 : 0;
    if (g != NULL) {
        memory->pulled = memory->pulled || sonde__builtin_nonzero(g) > 0;
        judge(run, i, memory, g, rate > 0.0);
    }
}

/* --- steps -------------------------------------------------------------------------- */

/* Keeps the values of this step, and how long a parameter rests. */
static void keep(sonde_rule_tensor *tensors, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        sonde__builtin_frozen_memory *memory = tensors[i].memory;

        if (tensors[i].need == SONDE__FROZEN_GRADIENTS ||
            tensors[i].need == SONDE__FROZEN_LOSSES || tensors[i].vitals == NULL) {
            continue;
        }
        if (memory->has_before && !memory->same) {
            memory->rest_most = memory->moved && memory->rest > memory->rest_most
                                    ? memory->rest
                                    : memory->rest_most;
            memory->moved = true;
        }
        memory->rest = memory->same ? memory->rest + 1 : 0;
        memory->before = *tensors[i].vitals;
        memory->has_before = true;
    }
}

static void step(sonde_rule_run *run)
{
    sonde__builtin_frozen *state = sonde_rule_state(run);
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    if (state->linked != count) {
        sonde__builtin_link(run, SONDE__FROZEN_PARAMETERS, SONDE__FROZEN_GRADIENTS, NULL,
                            offsetof(sonde__builtin_frozen_memory, gradient));
        sonde__builtin_link(run, SONDE__FROZEN_PARAMETERS, SONDE__FROZEN_STATE, NULL,
                            offsetof(sonde__builtin_frozen_memory, state));
        state->linked = count;
    }
    const double rate = compare(run, tensors, count);
    for (size_t i = 0; i < count; i++) {
        if (tensors[i].need == SONDE__FROZEN_PARAMETERS && tensors[i].vitals != NULL) {
            judge_alone(run, i, rate);
        }
    }
    sonde__builtin_frozen_judge_idle(run);
    keep(tensors, count);
    if (state->compared >= (sonde__rule_loss_falls(run) ? 1 : TURNS) * state->idle &&
        !state->looked) {
        sonde__builtin_frozen_judge_cut_off(run);
    }
}

static void finish(sonde_rule_run *run)
{
    const sonde__builtin_frozen *state = sonde_rule_state(run);

    if (state->compared >= state->idle && !state->looked) {
        sonde__builtin_frozen_judge_cut_off(run);
    }
}

const sonde_rule sonde__builtin_frozen_parameter = {
    SONDE__RULE("FrozenParameter", sonde__builtin_frozen),
    .summary = "a parameter that should be trained does not change",
    .condition =
        "Over `patience` observed steps, a parameter stays the same to the bit although its gradient is not 0, while other parameters or the optimiser's state change; or over `idle` observed steps (10 after changes at every step) no parameter changes although there are gradients; or after `idle` observed steps a weight has had neither a gradient nor a change while others are trained (where the loss need not fall, three times as many, or at the end). A note where nothing that is trained may use the weight (its module's output has no gradient, or it was never meant to be trained) and training does not go badly, and where layers may be frozen on purpose: whole modules, and weights whose module has no output where those of others are seen; of the others, those before all trained ones whose gradient is not declared.",
    .advice = "Check that the optimiser holds this parameter itself and not an old copy, "
              "and that its learning rate is not 0.",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(sonde__builtin_frozen_memory),
    .wants = sonde__builtin_wants_role,
    .step = step,
    .finish = finish,
};

/*
 * FrozenParameter - a parameter has a gradient but does not change.
 *
 * Fires when, at `patience` comparisons of observed steps in a row, the vital signs of a
 * parameter are the same to the bit, its gradient is not 0, and either
 *     other parameters change (the optimiser lacks this one); or
 *     no parameter changes, although the optimiser works: its state for this parameter
 *     (moments, step counter) changes (the optimiser holds stale copies).
 * A parameter whose expected change is below its precision is ignored. L is the median,
 * over the parameters that changed, of |change of sum| / |sum of gradient|, which is the
 * learning rate of plain SGD; L max|g| must be above 1e-6 max|w|. A backbone that is
 * frozen on purpose has no gradient. Where gradients are accumulated over steps, or the
 * learning rate is 0 for a step, nothing fires: parameters and moments do not change
 * either, or not for long enough.
 *
 * Evidence: vital signs of parameters, of their gradients and of the optimiser's values.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_vitals.h"

#include <math.h>

enum { PARAMETERS = 0, GRADIENTS = 1, STATE = 2, MOST_RATES = 64 };

typedef struct frozen {
    int64_t patience;
    size_t linked; /* number of tensors when parameters were linked */
} frozen;

typedef struct tensor_memory {
    size_t gradient, state; /* of a parameter: indices of its tensors */
    sonde_vitals before;
    bool has_before, same;
    int64_t steps; /* comparisons in a row at which it was the same */
} tensor_memory;

static const sonde_rule_param params[] = {
    SONDE__COUNT(frozen, patience, "2", 1, 1e9, "comparisons in a row"),
};
static const sonde_rule_need needs[] = {
    {"parameters", SONDE_HOW_VITALS, false, false},
    {"gradients", SONDE_HOW_VITALS, false, false},
    {"optimiser values", SONDE_HOW_VITALS, true, false}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    (void)run;
    if (!sonde__builtin_is_own(info, id)) {
        return SONDE_RULE_IGNORE;
    }
    return sonde__builtin_is_parameter(info)    ? PARAMETERS
           : sonde__builtin_is_gradient(info)   ? GRADIENTS
           : info->role == SONDE_ROLE_OPTIMIZER ? STATE
                                                : SONDE_RULE_IGNORE;
}

/* Compares all tensors but gradients with their last values. Returns L of the file
 * header, 0 if no parameter changed. */
static double compare(sonde_rule_tensor *tensors, size_t count)
{
    double rates[MOST_RATES];
    size_t changed = 0;

    for (size_t i = 0; i < count; i++) {
        tensor_memory *memory = tensors[i].memory;
        const sonde_vitals *now = tensors[i].vitals, *g = NULL;

        if (tensors[i].need == GRADIENTS || now == NULL) {
            continue;
        }
        memory->same =
            memory->has_before && sonde__builtin_same_vitals(now, &memory->before);
        g = tensors[i].need == PARAMETERS && memory->gradient != SIZE_MAX
                ? tensors[memory->gradient].vitals
                : NULL;
        if (memory->has_before && !memory->same && g != NULL && changed < MOST_RATES &&
            fabs(g->sum) > 1e-3 * g->l1 && g->l1 > 0.0) {
            rates[changed++] = fabs(now->sum - memory->before.sum) / fabs(g->sum);
        }
    }
    if (changed == 0) {
        return 0.0;
    }
    sonde__builtin_sort(rates, changed);
    return rates[changed / 2];
}

/* True if the optimiser's state for this parameter has changed. */
static bool state_changes(const sonde_rule_tensor *tensors, const tensor_memory *memory)
{
    const tensor_memory *state =
        memory->state != SIZE_MAX ? tensors[memory->state].memory : NULL;

    return state != NULL && tensors[memory->state].vitals != NULL && state->has_before &&
           !state->same;
}

static void judge(sonde_rule_run *run, size_t i, const tensor_memory *memory,
                  const sonde_vitals *g, bool others)
{
    const frozen *state = sonde_rule_state(run);

    if (memory->steps >= state->patience &&
        sonde_rule_found(run, i, SONDE_SEVERITY_ERROR, "steps_unchanged",
                         (double)memory->steps, (double)state->patience)) {
        sonde_rule_say(run, NULL,
                       "It has a gradient (mean %.3g) but does not change, %s.",
                       g->l1 / (double)g->count,
                       others ? "while other parameters do"
                              : "and neither does any other parameter, while the "
                                "optimiser's state does");
    }
}

static void step(sonde_rule_run *run)
{
    frozen *state = sonde_rule_state(run);
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);
    double rate = 0.0;

    if (state->linked != count) {
        sonde__builtin_link(run, PARAMETERS, GRADIENTS, NULL,
                            offsetof(tensor_memory, gradient));
        sonde__builtin_link(run, PARAMETERS, STATE, NULL, offsetof(tensor_memory, state));
        state->linked = count;
    }
    rate = compare(tensors, count);
    for (size_t i = 0; i < count; i++) {
        tensor_memory *memory = tensors[i].memory;
        const sonde_vitals *now = tensors[i].vitals, *g = NULL;
        bool stuck = false;

        if (tensors[i].need != PARAMETERS || now == NULL) {
            continue;
        }
        g = memory->gradient != SIZE_MAX ? tensors[memory->gradient].vitals : NULL;
        stuck = memory->same && g != NULL && sonde__builtin_nonzero(g) > 0 &&
                sonde__builtin_bad(g) == 0 && sonde__builtin_bad(now) == 0 &&
                (rate > 0.0 ? rate * g->abs_max > 1e-6 * now->abs_max
                            : state_changes(tensors, memory));
        memory->steps = stuck ? memory->steps + 1 : 0;
        if (g != NULL) {
            judge(run, i, memory, g, rate > 0.0);
        }
    }
    for (size_t i = 0; i < count; i++) {
        tensor_memory *memory = tensors[i].memory;

        if (tensors[i].need != GRADIENTS && tensors[i].vitals != NULL) {
            memory->before = *tensors[i].vitals;
            memory->has_before = true;
        }
    }
}

const sonde_rule sonde__builtin_frozen_parameter = {
    SONDE__RULE("FrozenParameter", frozen),
    .summary = "a parameter has a gradient but does not change",
    .condition =
        "Over `patience` observed steps, a parameter stays the same to the bit although "
        "its gradient is not 0, while other parameters or the optimiser's state change.",
    .advice = "Check that the optimiser holds this parameter itself and not an old copy, "
              "and that its learning rate is not 0.",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(tensor_memory),
    .wants = wants,
    .step = step,
};

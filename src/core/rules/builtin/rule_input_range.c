/*
 * InputRange - an input does not look normalised.
 *
 * Fires when a floating-point input has a root mean square above `threshold` at
 * `patience` observed steps in a row: pixels of 0 ... 255 have about 100, normalised
 * ones about 1. Inputs whose names say that they are targets, labels or rewards are not
 * judged. A note where outputs of the network's layers are seen at that step and none has a
 * root mean square above half of `threshold`: the network normalises the input itself, or
 * takes no more than its sine. Evidence: vital signs of inputs and outputs.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_vitals.h"
#include "rules/suspicion.h"
#include "base/point.h"

#include <math.h>
#include <string.h>

typedef struct range {
    const char *tensor_regex;
    double threshold;
    int64_t patience;
} range;

static const sonde_rule_param params[] = {
    SONDE__REGEX(
        range, tensor_regex, NULL,
        "regular expressions that select inputs (default: the inputs of the session)"),
    SONDE__REAL(range, threshold, "16", 0, 1e300, "largest acceptable root mean square"),
    SONDE__COUNT(range, patience, "1", 1, 1e9, "observed steps in a row"),
};
static const sonde_rule_need needs[] = {
    {"inputs", SONDE_HOW_VITALS, false, SONDE__INPUTS, SONDE__OFTEN},
    {"outputs of layers", SONDE_HOW_VITALS, true, SONDE__OUTPUTS, SONDE__SELDOM},
    {"losses", SONDE_HOW_VITALS, true, SONDE__LOSSES, SONDE__EACH_STEP}};
enum { INPUTS = 0, OUTPUTS = 1, LOSSES = 2 };
static const sonde__rule_terms large = {SONDE__TERMS(NOTE, WARNING, NOTE, NOTE, NOTE)};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    if (info->role == SONDE_ROLE_OUTPUT && info->pass != SONDE_PASS_BACKWARD &&
        sonde__builtin_is_own(info, id) && sonde_dtype_is_float(info->dtype)) {
        return OUTPUTS;
    }
    if (sonde__builtin_is_loss(info, id)) {
        return LOSSES;
    }
    return sonde__builtin_wants_chosen(
        run, id,
        info->role == SONDE_ROLE_INPUT && info->pass == SONDE_PASS_NONE &&
            sonde__builtin_is_own(info, id) && sonde_dtype_is_float(info->dtype) &&
            sonde__strcasestr(info->name, "target") == NULL &&
            sonde__strcasestr(info->name, "label") == NULL &&
            sonde__strcasestr(info->name, "reward") == NULL);
}

/* Whether outputs of layers are seen at this step, and all of them are small. */
static bool is_quiet(const range *state, const sonde_rule_tensor *tensors, size_t count)
{
    double loudest = -1.0;

    for (size_t i = 0; i < count; i++) {
        const sonde_vitals *v = tensors[i].need == OUTPUTS ? tensors[i].vitals : NULL;

        if (v != NULL && sonde__builtin_finite(v) > 0) {
            loudest = fmax(loudest, sonde__builtin_rms(v));
        }
    }
    return loudest >= 0.0 && loudest < 0.5 * state->threshold;
}

static void step(sonde_rule_run *run)
{
    const range *state = sonde_rule_state(run);
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);
    const bool quiet = is_quiet(state, tensors, count);

    for (size_t i = 0; i < count; i++) {
        int64_t *streak = tensors[i].memory;
        const sonde_vitals *v = tensors[i].vitals;

        if (tensors[i].need != INPUTS || v == NULL || sonde__builtin_finite(v) == 0) {
            continue;
        }
        *streak = sonde__builtin_rms(v) > state->threshold ? *streak + 1 : 0;
        if (*streak >= state->patience &&
            (quiet ? sonde_rule_found(run, i, SONDE_SEVERITY_NOTE, "rms",
                                      sonde__builtin_rms(v), state->threshold)
                   : sonde__rule_suspect(run, i, &large, "rms", sonde__builtin_rms(v),
                                         state->threshold))) {
            sonde_rule_say(run, NULL,
                           "Its values range from %.4g to %.4g, with a mean of %.4g and "
                           "a standard deviation of %.4g.",
                           v->min, v->max, v->mean, sqrt(sonde__builtin_variance(v)));
        }
    }
}

const sonde_rule sonde__builtin_input_range = {
    SONDE__RULE("InputRange", range),
    .summary = "an input does not look normalised",
    .condition =
        "The root mean square of an input is above `threshold` at `patience` observed steps in a row. A note where all outputs of layers are small. It waits for training: a warning where training goes badly, else a note.",
    .advice = "Subtract the mean and divide by the standard deviation, or scale the "
              "values to 0 ... 1.",
    .tensor_size = sizeof(int64_t),
    .wants = wants,
    .step = step,
};

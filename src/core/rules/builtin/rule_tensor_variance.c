/*
 * TensorVariance - the variance of a tensor is above max_threshold or below
 * min_threshold.
 *
 * Judges the tensors that collection_names and tensor_regex select, else weights. At
 * least one threshold is required. The variance is that of the population of finite
 * values. Evidence: vital signs.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_vitals.h"

#include "base/fail.h"

#include <math.h>

typedef struct variance_rule {
    const char *collection_names, *tensor_regex;
    double max_threshold, min_threshold;
} variance_rule;

static const sonde_rule_param params[] = {
    SONDE__CHOSEN(variance_rule),
    SONDE__REAL(variance_rule, max_threshold, NULL, 0, 0, "largest acceptable variance"),
    SONDE__REAL(variance_rule, min_threshold, NULL, 0, 0, "smallest acceptable variance"),
};
static const sonde_rule_need needs[] = {
    {"the selected tensors", SONDE_HOW_VITALS, false, SONDE__ANY, SONDE__OFTEN}};

static sonde_err init(sonde_rule_run *run, sonde_diag *diag)
{
    const variance_rule *state = sonde_rule_state(run);

    if (isnan(state->max_threshold) && isnan(state->min_threshold)) {
        return sonde__fail(diag, SONDE_EINVAL, "TensorVariance",
                           "max_threshold, min_threshold or both",
                           "no threshold is given");
    }
    return SONDE_OK;
}

static void step(sonde_rule_run *run)
{
    const variance_rule *state = sonde_rule_state(run);
    const sonde_rule_tensor *tensors = sonde__builtin_tensors(run);

    SONDE__EACH (run, i) {
        const sonde_vitals *v = tensors[i].vitals;
        const double variance = v != NULL ? sonde__builtin_variance(v) : (double)NAN;
        const bool large = variance > state->max_threshold;

        if ((large || variance < state->min_threshold) &&
            sonde_rule_found(run, i, SONDE_SEVERITY_WARNING, "variance", variance,
                             large ? state->max_threshold : state->min_threshold)) {
            sonde_rule_say(run, NULL, "Its variance is %.4g, %s the limit of %.4g.",
                           variance, large ? "above" : "below",
                           large ? state->max_threshold : state->min_threshold);
        }
    }
}

const sonde_rule sonde__builtin_tensor_variance = {
    SONDE__RULE("TensorVariance", variance_rule),
    .summary = "the variance of a tensor is outside the given bounds",
    .condition =
        "The variance of a tensor is above `max_threshold` or below `min_threshold`.",
    .advice =
        "A large variance leads to exploding values, a small one to vanishing values: "
        "check the initialisation, the normalisation and the learning rate.",
    .by_name_only = true,
    .init = init,
    .wants = sonde__builtin_wants_weight,
    .step = step,
};

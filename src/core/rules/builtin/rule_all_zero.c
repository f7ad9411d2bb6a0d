/*
 * AllZero - a tensor is all zeros.
 *
 * Fires when at least `threshold` percent of the values of a tensor are 0. Judges the
 * tensors that collection_names and tensor_regex select; one of them is required.
 * Evidence: vital signs.
 */
#include "rules/builtin/builtin.h"

#include "base/fail.h"

typedef struct all_zero {
    const char *collection_names, *tensor_regex;
    double threshold;
} all_zero;

static const sonde_rule_param params[] = {
    SONDE__CHOSEN(all_zero),
    SONDE__REAL(all_zero, threshold, "100", 0, 100,
                "smallest percentage of zeros that counts"),
};
static const sonde_rule_need needs[] = {
    {"the selected tensors", SONDE_HOW_VITALS, false, SONDE__ANY, SONDE__OFTEN}};

static sonde_err init(sonde_rule_run *run, sonde_diag *diag)
{
    const all_zero *state = sonde_rule_state(run);

    if (state->collection_names == NULL && state->tensor_regex == NULL) {
        return sonde__fail(diag, SONDE_EINVAL, "AllZero",
                           "collection_names or tensor_regex", "no tensors are chosen");
    }
    return SONDE_OK;
}

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    (void)info;
    return sonde__builtin_wants_chosen(run, id, false);
}

static void step(sonde_rule_run *run)
{
    const all_zero *state = sonde_rule_state(run);
    const sonde_rule_tensor *tensors = sonde__builtin_tensors(run);

    SONDE__EACH (run, i) {
        const sonde_vitals *v = tensors[i].vitals;
        const double share =
            v != NULL && v->count > 0 ? 100.0 * (double)v->zero / (double)v->count : -1.0;

        if (v != NULL && share >= state->threshold &&
            sonde_rule_found(run, i, SONDE_SEVERITY_WARNING, "zero_percent", share,
                             state->threshold)) {
            sonde_rule_say(run, NULL, "%.4g %% of its %llu values are 0.", share,
                           (unsigned long long)v->count);
        }
    }
}

const sonde_rule sonde__builtin_all_zero = {
    SONDE__RULE("AllZero", all_zero),
    .summary = "a tensor is all zeros",
    .condition = "At least `threshold` % of a tensor's values are 0.",
    .advice = "For a weight, check its initialisation. For an activation or a gradient, "
              "look for dead units before it or for a mask that hides everything.",
    .by_name_only = true,
    .init = init,
    .wants = wants,
    .step = step,
};

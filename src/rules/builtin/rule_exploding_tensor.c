/*
 * ExplodingTensor - a tensor contains a NaN or, unless only_nan is set, an infinity.
 *
 * Judges all tensors, or those that collection_names and tensor_regex select, with one
 * finding for each. NonFinite names the first one. Evidence: vital signs.
 */
#include "rules/builtin/builtin.h"

typedef struct exploding {
    const char *collection_names, *tensor_regex;
    bool only_nan;
} exploding;

static const sonde_rule_param params[] = {
    SONDE__CHOSEN(exploding),
    SONDE__FLAG(exploding, only_nan, "false", "accept infinities"),
};
static const sonde_rule_need needs[] = {{"tensors", SONDE_HOW_VITALS, false, false}};

static void step(sonde_rule_run *run)
{
    const exploding *state = sonde_rule_state(run);
    size_t count = 0;
    const sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    for (size_t i = 0; i < count && sonde_rule_any_bad(run); i++) {
        const sonde_vitals *v = tensors[i].vitals;
        const uint64_t inf = v == NULL || state->only_nan ? 0 : v->pos_inf + v->neg_inf;
        const uint64_t bad = v == NULL ? 0 : v->nan + inf;

        if (bad > 0 && sonde_rule_found(run, i, SONDE_SEVERITY_ERROR, "nonfinite",
                                        (double)bad, 0.0)) {
            sonde_rule_say(run, NULL,
                           "%llu of %llu values are %s: %llu NaN, %llu infinite.",
                           (unsigned long long)bad, (unsigned long long)v->count,
                           inf == 0      ? "NaN"
                           : v->nan == 0 ? "infinite"
                                         : "NaN or infinite",
                           (unsigned long long)v->nan, (unsigned long long)inf);
        }
    }
}

const sonde_rule sonde__builtin_exploding_tensor = {
    SONDE__RULE("ExplodingTensor", exploding),
    .summary = "a tensor holds NaN or infinite values",
    .condition = "A tensor contains a NaN or, unless `only_nan` is set, an infinity.",
    .advice = "Lower the learning rate or clip gradients. NonFinite names the first "
              "tensor that became NaN or infinite.",
    .wants = sonde__builtin_wants_any,
    .step = step,
};

/*
 * FeatureImportanceOverweight - a few features decide everything (imported runs of boosted trees).
 *
 * Fires when the nfeatures largest values of a feature-importance tensor have more than
 * `threshold` of its sum, where it has more features than that. Evidence: raw values.
 */
#include "rules/builtin/builtin.h"

enum { REGEX = 0, MOST = 64 };

typedef struct importance {
    const char *tensor_regex;
    double threshold;
    int64_t nfeatures;
} importance;

static const sonde_rule_param params[] = {
    {"tensor_regex", SONDE_RULE_REGEX, ".*feature_importance/weight", 0, 0,
     "expressions that select feature importances", offsetof(importance, tensor_regex),
     false},
    {"threshold", SONDE_RULE_REAL, "0.8", 0, 1, "share that they may have",
     offsetof(importance, threshold), false},
    {"nfeatures", SONDE_RULE_COUNT, "3", 1, MOST, "how many features are added up",
     offsetof(importance, nfeatures), false},
};
static const sonde_rule_need needs[] = {
    {"feature importances", SONDE_HOW_RAW, false, false}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    (void)info;
    return sonde_rule_matches(run, REGEX, id) ? 0 : SONDE_RULE_IGNORE;
}

/* Puts a value among the largest, which are kept in descending order. */
static void keep_largest(double *largest, int64_t count, double value)
{
    for (int64_t i = 0; i < count; i++) {
        if (value > largest[i]) {
            const double smaller = largest[i];

            largest[i] = value;
            value = smaller;
        }
    }
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *seen)
{
    const importance *state = sonde_rule_state(run);
    double largest[MOST] = {0}, values[SONDE__CHUNK], sum = 0.0, top = 0.0;
    sonde__builtin_reader reader;
    size_t count = 0;

    sonde__builtin_reader_init(&reader, seen->view);
    for (size_t n = sonde__builtin_reader_take(&reader, values); n > 0;
         n = sonde__builtin_reader_take(&reader, values)) {
        for (size_t i = 0; i < n; i++) {
            sum += values[i];
            keep_largest(largest, state->nfeatures, values[i]);
        }
    }
    for (int64_t i = 0; i < state->nfeatures; i++) {
        top += largest[i];
    }
    if (sonde_view_count(seen->view) > state->nfeatures && sum > 0.0 &&
        top / sum > state->threshold &&
        sonde_rule_found(run, (size_t)(tensor - sonde_rule_tensors(run, &count)),
                         SONDE_SEVERITY_WARNING, "share", top / sum, state->threshold)) {
        sonde_rule_say(run, NULL, "The %lld largest of %lld features have %.3g %% of it.",
                       (long long)state->nfeatures,
                       (long long)sonde_view_count(seen->view), 100.0 * top / sum);
    }
}

const sonde_rule sonde__builtin_feature_importance = {
    .abi = SONDE_RULE_ABI,
    .name = "FeatureImportanceOverweight",
    .summary = "a few features decide everything",
    .condition =
        "The `nfeatures` largest importances are more than `threshold` of their sum.",
    .advice = "See whether these features give the label away; drop them, or regularise.",
    .params = params,
    .param_count = SONDE__COUNT_OF(params),
    .needs = needs,
    .need_count = SONDE__COUNT_OF(needs),
    .state_size = sizeof(importance),
    .wants = wants,
    .observe = observe,
};

/*
 * FeatureImportanceOverweight - a few features dominate a model (imported runs of boosted
 * trees).
 *
 * Fires when the nfeatures largest values of a feature-importance tensor make up more
 * than `threshold` of its sum, if it has more features than that. Evidence: raw values.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_values.h"

enum { MOST = 64 };

typedef struct importance {
    const char *tensor_regex;
    double threshold;
    int64_t nfeatures;
} importance;

static const sonde_rule_param params[] = {
    SONDE__REGEX(importance, tensor_regex, ".*feature_importance/weight",
                 "regular expressions that select feature importances"),
    SONDE__REAL(importance, threshold, "0.8", 0, 1,
                "largest acceptable share of these features"),
    SONDE__COUNT(importance, nfeatures, "3", 1, MOST,
                 "number of features whose importances are added up"),
};
static const sonde_rule_need needs[] = {
    {"feature importances", SONDE_HOW_RAW, false, false}};

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
        sonde_rule_found(run, sonde__builtin_index(run, tensor), SONDE_SEVERITY_WARNING,
                         "share", top / sum, state->threshold)) {
        sonde_rule_say(run, NULL,
                       "The %lld most important of %lld features have %.3g %% of the "
                       "total importance.",
                       (long long)state->nfeatures,
                       (long long)sonde_view_count(seen->view), 100.0 * top / sum);
    }
}

const sonde_rule sonde__builtin_feature_importance = {
    SONDE__RULE("FeatureImportanceOverweight", importance),
    .summary = "a few features dominate the model",
    .condition = "The `nfeatures` largest importances make up more than `threshold` of "
                 "the sum of all.",
    .advice = "Check whether these features leak the label; drop them, or regularise.",
    .wants = sonde__builtin_wants_matched,
    .observe = observe,
};

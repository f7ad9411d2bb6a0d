/*
 * FeatureImportanceOverweight - a few features dominate a model (imported runs of boosted
 * trees).
 *
 * Fires when the nfeatures largest values of a feature-importance tensor make up more
 * than `threshold` of its sum, if it has more features than that. Scalars with the same
 * name up to the last slash (feature_importance/weight/f0, /f1 ...) are the elements of
 * one such tensor; the finding is at the largest. Evidence: raw values.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_values.h"

#include <string.h>

enum { MOST = 64 };

typedef struct importance {
    const char *tensor_regex;
    double threshold;
    int64_t nfeatures;
} importance;

/* A scalar's value at this step. */
typedef struct tensor_memory {
    double value;
    bool seen, done;
} tensor_memory;

static const sonde_rule_param params[] = {
    SONDE__REGEX(importance, tensor_regex, ".*feature_importance/weight",
                 "regular expressions that select feature importances"),
    SONDE__REAL(importance, threshold, "0.8", 0, 1,
                "largest acceptable share of these features"),
    SONDE__COUNT(importance, nfeatures, "3", 1, MOST,
                 "number of features whose importances are added up"),
};
static const sonde_rule_need needs[] = {
    {"feature importances", SONDE_HOW_RAW, false, SONDE__NUMBERS, SONDE__OFTEN}};

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

static void judge(sonde_rule_run *run, size_t i, const double *largest, double sum,
                  int64_t features)
{
    const importance *state = sonde_rule_state(run);
    double top = 0.0;

    for (int64_t k = 0; k < state->nfeatures; k++) {
        top += largest[k];
    }
    if (features > state->nfeatures && sum > 0.0 && top / sum > state->threshold &&
        sonde_rule_found(run, i, SONDE_SEVERITY_WARNING, "share", top / sum,
                         state->threshold)) {
        sonde_rule_say(run, NULL,
                       "The %lld most important of %lld features have %.3g %% of the "
                       "total importance.",
                       (long long)state->nfeatures, (long long)features,
                       100.0 * top / sum);
    }
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *seen)
{
    const importance *state = sonde_rule_state(run);
    double largest[MOST] = {0}, values[SONDE__CHUNK], sum = 0.0;
    tensor_memory *memory = tensor->memory;
    sonde__builtin_reader reader;

    sonde__builtin_reader_init(&reader, seen->view);
    for (size_t n = sonde__builtin_reader_take(&reader, values); n > 0;
         n = sonde__builtin_reader_take(&reader, values)) {
        for (size_t i = 0; i < n; i++) {
            sum += values[i];
            keep_largest(largest, state->nfeatures, values[i]);
            memory->value = values[i];
        }
    }
    memory->seen = sonde_view_count(seen->view) == 1;
    if (!memory->seen) {
        judge(run, sonde__builtin_index(run, tensor), largest, sum,
              sonde_view_count(seen->view));
    }
}

/* Length of the name up to the last slash. */
static size_t prefix_length(const char *name)
{
    const char *slash = strrchr(name, '/');

    return slash != NULL ? (size_t)(slash - name) : 0;
}

/* Judges the scalars of this step that share their prefix with tensor i. */
static void judge_scalars(sonde_rule_run *run, size_t i)
{
    const importance *state = sonde_rule_state(run);
    size_t count = 0, best = i;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);
    const char *first = sonde_rule_info(run, tensors[i].id)->name;
    const size_t length = prefix_length(first);
    double largest[MOST] = {0}, sum = 0.0;
    int64_t features = 0;

    for (size_t k = i; k < count; k++) {
        const char *name = sonde_rule_info(run, tensors[k].id)->name;
        tensor_memory *memory = tensors[k].memory;

        if (memory->seen && !memory->done && prefix_length(name) == length &&
            strncmp(name, first, length) == 0) {
            memory->done = true;
            sum += memory->value;
            keep_largest(largest, state->nfeatures, memory->value);
            features++;
            if (memory->value > ((const tensor_memory *)tensors[best].memory)->value) {
                best = k;
            }
        }
    }
    judge(run, best, largest, sum, features);
}

static void step(sonde_rule_run *run)
{
    sonde_rule_tensor *tensors = sonde__builtin_tensors(run);

    SONDE__EACH (run, i) {
        const tensor_memory *memory = tensors[i].memory;

        if (memory->seen && !memory->done) {
            judge_scalars(run, i);
        }
    }
    SONDE__EACH (run, i) {
        memset(tensors[i].memory, 0, sizeof(tensor_memory));
    }
}

const sonde_rule sonde__builtin_feature_importance = {
    SONDE__RULE("FeatureImportanceOverweight", importance),
    .summary = "a few features dominate the model",
    .condition = "The `nfeatures` largest importances make up more than `threshold` of "
                 "the sum of all; scalars whose names differ after the last slash are "
                 "the elements of one tensor.",
    .advice = "Check whether these features leak the label; drop them, or regularise.",
    .wants = sonde__builtin_wants_matched,
    .tensor_size = sizeof(tensor_memory),
    .observe = observe,
    .step = step,
};

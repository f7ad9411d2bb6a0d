/*
 * rule_trees.c - rules about imported runs of boosted trees.
 */
#include "rules/builtin/builtin.h"

#include <string.h>

/* --- FeatureImportanceOverweight --------------------------------------------------- */

/*
 * FeatureImportanceOverweight - a few features dominate a model (imported runs of boosted
 * trees).
 *
 * Fires when the nfeatures largest values of a feature-importance tensor make up more
 * than `threshold` of its sum, if it has more features than that. Scalars with the same
 * name up to the last slash (feature_importance/weight/f0, /f1 ...) are the elements of
 * one such tensor; the finding is at the largest. Evidence: raw values.
 */

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

static const sonde_rule_param importance_params[] = {
    SONDE__REGEX(importance, tensor_regex, ".*feature_importance/weight",
                 "regular expressions that select feature importances"),
    SONDE__REAL(importance, threshold, "0.8", 0, 1,
                "largest acceptable share of these features in the sum"),
    SONDE__COUNT(importance, nfeatures, "3", 1, MOST,
                 "number of features whose importances are added up"),
};
static const sonde_rule_need importance_needs[] = {
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

static void judge(sonde_rule_run *run, sonde_rule_tensor *t, const double *largest,
                  double sum, int64_t features)
{
    const importance *state = sonde_rule_state(run);
    double top = 0.0;

    for (int64_t k = 0; k < state->nfeatures; k++) {
        top += largest[k];
    }
    if (features > state->nfeatures && sum > 0.0 && top / sum > state->threshold) {
        sonde__rule_report(
            run, t, SONDE__SURE(WARNING), "share", top / sum, state->threshold, NULL,
            "The %lld most important of %lld features have %.3g %% of the "
            "total importance.",
            (long long)state->nfeatures, (long long)features, 100.0 * top / sum);
    }
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *observation)
{
    const importance *state = sonde_rule_state(run);
    double largest[MOST] = {0}, values[SONDE__CHUNK], sum = 0.0;
    tensor_memory *memory = tensor->memory;
    sonde__builtin_reader reader = sonde__builtin_read(observation->view);

    for (size_t n = 0; (n = sonde__builtin_next(&reader, values)) > 0;) {
        for (size_t i = 0; i < n; i++) {
            sum += values[i];
            keep_largest(largest, state->nfeatures, values[i]);
            memory->value = values[i];
        }
    }
    memory->seen = sonde_view_count(observation->view) == 1;
    if (!memory->seen) {
        judge(run, tensor, largest, sum, sonde_view_count(observation->view));
    }
}

/* Length of the name up to the last slash. */
static size_t prefix_length(const char *name)
{
    const char *slash = strrchr(name, '/');

    return slash != NULL ? (size_t)(slash - name) : 0;
}

/* Judges the scalars of this step that share their prefix with a tensor. */
static void judge_scalars(sonde_rule_run *run, sonde_rule_tensor *like)
{
    const importance *state = sonde_rule_state(run);
    sonde_rule_tensor *best = like;
    const char *first = sonde_rule_info(run, like->id)->name;
    const size_t length = prefix_length(first);
    double largest[MOST] = {0}, sum = 0.0;
    int64_t features = 0;

    SONDE__EACH (run, t) {
        const char *name = sonde_rule_info(run, t->id)->name;
        tensor_memory *memory = t->memory;

        if (memory->seen && !memory->done && prefix_length(name) == length &&
            strncmp(name, first, length) == 0) {
            memory->done = true;
            sum += memory->value;
            keep_largest(largest, state->nfeatures, memory->value);
            features++;
            if (memory->value > ((const tensor_memory *)best->memory)->value) {
                best = t;
            }
        }
    }
    judge(run, best, largest, sum, features);
}

static void importance_step(sonde_rule_run *run)
{

    SONDE__EACH (run, t) {
        const tensor_memory *memory = t->memory;

        if (memory->seen && !memory->done) {
            judge_scalars(run, t);
        }
    }
    SONDE__EACH (run, t) {
        memset(t->memory, 0, sizeof(tensor_memory));
    }
}

const sonde_rule sonde__builtin_feature_importance = {
    SONDE__RULE("FeatureImportanceOverweight", importance),
    .summary = "a few features dominate the model",
    .condition =
        "The `nfeatures` largest importances make up more than `threshold` of the sum of all. Scalars whose names differ only after the last slash are the elements of one tensor.",
    .advice = "Check whether these features leak the label; drop them, or regularize.",
    .wants = sonde__builtin_wants_matched,
    .tensor_size = sizeof(tensor_memory),
    .observe = observe,
    .step = importance_step,
};

/* --- TreeDepth --------------------------------------------------------------------- */

/*
 * TreeDepth - a boosted tree is as deep as `depth` (imported runs).
 *
 * Nodes are numbered from 0, level by level, so the largest number n in a tree of depth d
 * is at least 2^d - 1. Fires when log2(n + 1) reaches depth. Evidence: vital signs of
 * node numbers.
 */

typedef struct tree {
    const char *tensor_regex;
    double depth;
} tree;

static const sonde_rule_param tree_params[] = {
    SONDE__REGEX(tree, tensor_regex, ".*trees/.*(?i:node).*",
                 "regular expressions that select node numbers"),
    SONDE__REAL(tree, depth, "4", 0, 1e6, "smallest depth that counts as too deep"),
};
static const sonde_rule_need tree_needs[] = {
    {"node numbers of trees", SONDE_HOW_VITALS, false, SONDE__NUMBERS, SONDE__OFTEN}};

static void tree_step(sonde_rule_run *run)
{
    const tree *state = sonde_rule_state(run);

    SONDE__EACH_SEEN (run, t, 0) {
        const sonde_vitals *v = t->vitals;
        const double depth =
            sonde__builtin_finite(v) > 0 && v->max >= 0 ? log2(v->max + 1.0) : -1.0;

        if (depth >= state->depth) {
            sonde__rule_report(
                run, t, SONDE__SURE(NOTE), "depth", depth, state->depth, NULL,
                "Its largest node number is %.0f, which means a depth of %.3g.", v->max,
                floor(depth));
        }
    }
}

const sonde_rule sonde__builtin_tree_depth = {
    SONDE__RULE("TreeDepth", tree),
    .summary = "a boosted tree is deeper than wanted",
    .condition = "The depth of a tree, log2(largest node number + 1), reaches `depth`.",
    .advice = "Limit max_depth: deep trees overfit.",
    .wants = sonde__builtin_wants_matched,
    .step = tree_step,
};

/*
 * TreeDepth - a boosted tree is as deep as `depth` (imported runs).
 *
 * Nodes are numbered from 0, level by level, so the largest number n in a tree of depth d
 * is at least 2^d - 1. Fires when log2(n + 1) reaches depth. Evidence: vital signs of
 * node numbers.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_vitals.h"

#include <math.h>

typedef struct tree {
    const char *tensor_regex;
    double depth;
} tree;

static const sonde_rule_param params[] = {
    SONDE__REGEX(tree, tensor_regex, ".*trees/.*(?i:node).*",
                 "regular expressions that select node numbers"),
    SONDE__REAL(tree, depth, "4", 0, 1e6, "smallest depth that counts as too deep"),
};
static const sonde_rule_need needs[] = {
    {"node numbers of trees", SONDE_HOW_VITALS, false, SONDE__NUMBERS, SONDE__OFTEN}};

static void step(sonde_rule_run *run)
{
    const tree *state = sonde_rule_state(run);
    const sonde_rule_tensor *tensors = sonde__builtin_tensors(run);

    SONDE__EACH (run, i) {
        const sonde_vitals *v = tensors[i].vitals;
        const double depth = v != NULL && sonde__builtin_finite(v) > 0 && v->max >= 0
                                 ? log2(v->max + 1.0)
                                 : -1.0;

        if (v != NULL && depth >= state->depth &&
            sonde_rule_found(run, i, SONDE_SEVERITY_NOTE, "depth", depth, state->depth)) {
            sonde_rule_say(
                run, NULL,
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
    .step = step,
};

/*
 * update_large.c - WeightUpdateRatio: a weight changes by more than its own size.
 *
 * Fires when r of a weight is above large_threshold at `patience` comparisons in a row.
 * With smdebug, r is not divided by the steps between, and weights near 0 count in full.
 */
#include "rules/builtin/update_ratio.h"
#include "rules/suspicion.h"

static const sonde__rule_terms too_large = {SONDE__TERMS(NOTE, ERROR, ERROR, NOTE, NOTE)};

void sonde__builtin_update_large(sonde_rule_run *run, size_t i,
                                 const sonde__builtin_update *update, int64_t *streak)
{
    const sonde__builtin_update_ratio *state = sonde_rule_state(run);
    const double ratio = state->smdebug ? update->ratio : update->ratio / update->steps;
    const double judged = state->smdebug ? ratio : update->tame / update->steps;
    const bool large = judged > state->large_threshold;

    *streak = large ? *streak + 1 : 0;
    if (*streak >= state->patience &&
        (state->smdebug ? sonde_rule_found(run, i, SONDE_SEVERITY_ERROR, "update_ratio",
                                           ratio, state->large_threshold)
                        : sonde__rule_suspect(run, i, &too_large, "update_ratio", ratio,
                                              state->large_threshold))) {
        sonde_rule_say(run, "Lower the learning rate, or clip gradients.",
                       "It changed by %s%.3g times its own size.",
                       update->exact && update->steps <= 1.0 ? "" : "at least ", ratio);
    }
}

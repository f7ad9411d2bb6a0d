/*
 * update_small.c - WeightUpdateRatio: a weight hardly changes.
 *
 * Fires when 0 < r < small_threshold (a weight that does not change at all is
 * FrozenParameter's) at small_patience comparisons in a row in which r has not doubled: a
 * weight after a branch that begins at 0 wakes slowly. A note where r has fallen there step
 * by step, from above small_threshold, each time to more than 1 / AT_ONCE of its value: so
 * ends training whose loss has reached 0, or a schedule. With smdebug, r = 0 counts.
 */
#include "rules/builtin/update_ratio.h"
#include "rules/suspicion.h"

static const sonde__rule_terms too_small = {
    SONDE__TERMS(NOTE, WARNING, WARNING, NOTE, WARNING)};

#define AT_ONCE 100.0

void sonde__builtin_update_small(sonde_rule_run *run, size_t i,
                                 const sonde__builtin_update *update, int64_t *streak,
                                 sonde__builtin_update_past *past)
{
    const sonde__builtin_update_ratio *state = sonde_rule_state(run);
    const double ratio = update->ratio;
    const bool small = update->exact && (ratio > 0.0 || state->smdebug) &&
                       ratio < state->small_threshold;

    if (!small || *streak == 0 || ratio > 2.0 * past->first) {
        *streak = 0;
        past->first = ratio;
    }
    if (small && past->last >= state->small_threshold) {
        past->slowly = ratio * AT_ONCE > past->last;
    }
    past->last = update->exact ? ratio : past->last;
    *streak += small;
    if (*streak >= state->small_patience &&
        (past->slowly || state->smdebug
             ? sonde_rule_found(
                   run, i, state->smdebug ? SONDE_SEVERITY_WARNING : SONDE_SEVERITY_NOTE,
                   "update_ratio", ratio, state->small_threshold)
             : sonde__rule_suspect(run, i, &too_small, "update_ratio", ratio,
                                   state->small_threshold))) {
        sonde_rule_say(run, "Raise the learning rate.",
                       "It changed by only %.3g times its own size.", ratio);
    }
}

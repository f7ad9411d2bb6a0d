/*
 * update_slow.c - WeightUpdateRatio: the learning rate is too low to learn anything.
 *
 * Fires, for the weight that changes most, when over the first SLOW_STEPS comparisons of
 * a run that is observed from its first step on the largest r of all weights was below
 * `slow` on average, did not grow (as in a warm-up), and the loss did not fall: a
 * thousand such steps change nothing by more than 3 %. A note; below a third of `slow` a
 * warning.
 */
#include "rules/builtin/update_ratio.h"

enum { SLOW_STEPS = 40, SLOW_PART = 10 /* of them at either end */ };

void sonde__builtin_update_slow_step(sonde_rule_run *run)
{
    sonde__builtin_update_ratio *state = sonde_rule_state(run);
    sonde__builtin_update_slow *slow = &state->slow_state;
    const double largest = state->step.largest_between, loss = state->step.loss;
    const int64_t place = slow->compared;
    double mean = 0.0;

    if (!state->from_start || place >= SLOW_STEPS) {
        return;
    }
    slow->compared++;
    mean = (slow->sum += largest) / SLOW_STEPS;
    if (place < SLOW_PART) {
        slow->first_part += largest;
        slow->first_loss += loss;
    } else if (place >= SLOW_STEPS - SLOW_PART) {
        slow->last_part += largest;
        slow->last_loss += loss;
    }
    if (slow->compared == SLOW_STEPS && mean > 0.0 && mean < state->slow &&
        slow->last_part < 3.0 * slow->first_part &&
        slow->last_loss > 0.95 * slow->first_loss &&
        sonde_rule_found(run, state->step.fastest,
                         mean < state->slow / 3.0 ? SONDE_SEVERITY_WARNING
                                                  : SONDE_SEVERITY_NOTE,
                         "update_ratio", mean, state->slow)) {
        sonde_rule_say(run, "Raise the learning rate.",
                       "In the first %d steps no weight changed by more than %.2g times "
                       "its own size a step, and the loss did not fall.",
                       SLOW_STEPS, mean);
    }
}

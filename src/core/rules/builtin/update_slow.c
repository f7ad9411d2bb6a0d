/*
 * update_slow.c - WeightUpdateRatio: the learning rate is too low to learn anything.
 *
 * Fires, for the weight that changes most, when over the first 40 comparisons of a run
 * that is observed from its first step on the largest r of all weights was below `slow`
 * on average, did not grow (as in a warm-up), and the loss did not fall: a thousand such
 * steps change nothing by more than 3 %. If r was below 8 `slow` on average over the first
 * 40 comparisons, or the first 100, and did not grow, the losses decide (suspicion.h): if
 * they fall by less than SLIGHT it is a warning below NEAR `slow` and a note above it, where
 * a trained network is tuned further; nothing if they fall as they should.
 *
 * Weight decay moves weights along -w', without any gradient. Where the rest of the updates
 * is below a tenth of them at the first 40 comparisons, only r of the rest is judged, and
 * the loss is not: gradients do nothing.
 */
#include "rules/builtin/update_ratio.h"
#include "rules/suspicion.h"

#define SHARE 0.1
#define LIMIT 8.0 /* times `slow` */
#define NEAR 2.5  /* times `slow` */
#define FALLEN 0.95
#define SLIGHT 0.05
enum { DECAYED = 40 };

typedef struct look {
    int64_t steps, part; /* comparisons; of them at either end */
} look;

static const look looks[2] = {{40, 10}, {100, 20}};

static const sonde__rule_terms perhaps_slow = {
    .slight = SLIGHT, SONDE__TERMS(NOTHING, NOTE, WARNING, NOTE, NOTE)};

static const sonde__rule_terms rather_slow = {
    .slight = SLIGHT, SONDE__TERMS(NOTHING, NOTE, NOTE, NOTE, NOTE)};

static void report(sonde_rule_run *run, double mean, const look *at, bool still)
{
    const sonde__builtin_update_ratio *state = sonde_rule_state(run);
    const size_t i = state->step.fastest;
    bool first = false;

    if (mean < state->slow && still) {
        first = sonde_rule_found(run, i,
                                 sonde__rule_loss_is_free(run) ? SONDE_SEVERITY_NOTE
                                                               : SONDE_SEVERITY_WARNING,
                                 "update_ratio", mean, state->slow);
    } else {
        first = sonde__rule_suspect(
            run, i, mean < NEAR * state->slow ? &perhaps_slow : &rather_slow,
            "update_ratio", mean, LIMIT * state->slow);
    }
    if (first) {
        sonde_rule_say(run,
                       "Raise the learning rate; check the loss's reduction and the "
                       "optimiser's epsilon.",
                       "In the first %lld steps no weight changed by more than %.2g "
                       "times its own size a step, and the loss hardly fell.",
                       (long long)at->steps, mean);
    }
}

static void take(sonde_rule_run *run, sonde__builtin_update_look *slow, const look *at)
{
    const sonde__builtin_update_ratio *state = sonde_rule_state(run);
    const double largest = state->step.largest_between, loss = state->step.loss;
    const int64_t place = slow->compared;

    if (place >= at->steps) {
        return;
    }
    slow->compared++;
    double mean = (slow->sum += largest) / (double)at->steps;
    if (place < at->part) {
        slow->first_part += largest;
        slow->first_loss += loss;
    } else if (place >= at->steps - at->part) {
        slow->last_part += largest;
        slow->last_loss += loss;
    }
    if (slow->compared == at->steps && mean > 0.0 && mean < LIMIT * state->slow &&
        slow->last_part < 3.0 * slow->first_part) {
        report(run, mean, at, slow->last_loss > FALLEN * slow->first_loss);
    }
}

/* Takes a comparison without weight decay. */
static void take_decayed(sonde_rule_run *run, sonde__builtin_update_look *slow)
{
    const sonde__builtin_update_ratio *state = sonde_rule_state(run);
    const double across = state->step.across, largest = state->step.largest_between;

    if (slow->compared >= DECAYED || slow->compared < 0) {
        return;
    }
    if (!(across < SHARE * largest)) {
        slow->compared = -1; /* no comparison will do */
        return;
    }
    slow->sum += across;
    slow->first_part += slow->compared < DECAYED / 4 ? across : 0.0;
    slow->last_part += slow->compared >= DECAYED - DECAYED / 4 ? across : 0.0;
    slow->compared++;
    if (slow->compared == DECAYED && slow->sum < DECAYED * state->slow &&
        slow->last_part < 3.0 * slow->first_part &&
        sonde_rule_found(run, state->step.fastest, SONDE_SEVERITY_WARNING, "update_ratio",
                         slow->sum / DECAYED, state->slow)) {
        sonde_rule_say(run,
                       "Raise the learning rate; check the loss's scale and the "
                       "optimiser's epsilon.",
                       "In the first %d steps only weight decay moved the weights: "
                       "gradients changed none by more than %.2g times its own size.",
                       DECAYED, slow->sum / DECAYED);
    }
}

void sonde__builtin_update_slow_step(sonde_rule_run *run)
{
    sonde__builtin_update_ratio *state = sonde_rule_state(run);

    for (size_t i = 0; i < 2 && state->from_start; i++) {
        take(run, &state->slow_state.looks[i], &looks[i]);
    }
    if (state->from_start) {
        take_decayed(run, &state->slow_state.decayed);
    }
}

/*
 * update_rates.c - WeightUpdateRatio: the learning rate is too high for most weights, or too
 * low to learn anything.
 */
#include "rules/builtin/update_ratio.h"

#include "rules/context.h"

#include "base/macros.h"

#include <string.h>

/* --- too high ----------------------------------------------------------------------- */

/*
 * An episode begins when the median r over weights is above `fast`, and lasts AFTER steps.
 * Fires, for the weight that changed most in it, when
 *     replaced   the median was above 2 `fast` at three comparisons in a row (not judged if
 *                the weights have fewer than FEW elements together). If the episode began
 *                with the run, the loss also has to be where it should not be: not below
 *                STILL times its value before; with an optimizer that divides, above WORSE
 *                times that, or not below STILL for LONG such comparisons, as must the
 *                loss of the step be; or
 *     in vain    the median was above `fast` at three comparisons in a row, and at the end
 *                the loss is not below STILL times its value before. A network that has
 *                learned (its loss is below half of its first ones) need not improve
 *                further; there the loss has to have doubled. A note if no median of the
 *                episode was above BOLD `fast`.
 * At the start the loss decides, because r cannot: optimizers that divide by the size of
 * gradients (Adagrad, RMSprop, Adam, Lion) move every element by about the learning rate
 * at their first steps, or by ten times as much, however small the weight is. Weights that
 * begin small grow to their own size within these steps, and r falls. There, if the loss
 * has not risen to RISEN times its value before and r has halved, the episode lasts three
 * times as long, and what is found at its end is a note if r is below `fast`. Such an
 * optimizer is known by the names of its state or, without any, by updates whose elements
 * are of nearly one size.
 */

#define STILL 0.85
enum {
    ON_END = SONDE__UPDATE_ON_END,
    FIRST = SONDE__UPDATE_FIRST,
    AFTER = 15,
    LONG = 12
};
#define FEW 32.0
#define WORSE 1.25
#define RISEN 1.1
#define BOLD 1.5
#define EVEN 0.75 /* (mean |d|)^2 / mean d^2 of an update; 0.64 for normal elements */

#define TOO_FAST "Lower the learning rate, or clip gradients."
SONDE__TERMS(too_fast, NOTE, ERROR, ERROR, NOTE, ERROR);
/* By less, or no longer. */
SONDE__TERMS(rather_fast, NOTHING, NOTE, NOTE, NOTE, NOTE);

/* Whether the loss is above `times` its value before the episode. */
static bool is_above(const sonde__builtin_update_fast *fast, double times)
{
    return sonde__builtin_recent_mean(&fast->losses, FIRST) >
           fast->base + (times - 1.0) * fabs(fast->base);
}

/* Whether the loss is as it should be after large updates. */
static bool has_paid(const sonde__builtin_update_fast *fast)
{
    const double first = fast->first_losses / (double)fast->first_count;

    return !is_above(fast, fast->base < 0.5 * first ? 2.0 : STILL);
}

/* Whether r has halved and the loss has not risen, after updates that were divided. */
static bool settles(const sonde__builtin_update_fast *fast, double median)
{
    return fast->divides && median < 0.5 * fast->most && !is_above(fast, RISEN);
}

/* Whether the optimizer divides updates by the size of gradients. even: of the updates of
 * this step, the median. */
static bool divides(const sonde_rule_run *run, double even)
{
    static const char *const names[] = {".exp_avg",    ".exp_avg_sq", ".exp_inf", ".sum",
                                        ".square_avg", "Accl2___",    "_sq_row"};
    const sonde_catalogue *catalogue = sonde__rule_catalogue(run);
    bool any = false;

    for (uint32_t id = 0; id < sonde_catalogue_count(catalogue); id++) {
        const sonde_tensor_info *info = sonde_catalogue_info(catalogue, id);

        if (info->role == SONDE_ROLE_OPTIMIZER) {
            any = true;
            if (sonde__builtin_has_word(info->name, names, SONDE_COUNT_OF(names))) {
                return true;
            }
        }
    }
    return !any && even > EVEN;
}

/* Whether the loss shows that the weights should not be replaced. loss: of this step. At
 * the start, a mean that includes the loss before the episode says little about a loss
 * that falls, or that was high once: this one must be high, too. */
static bool is_harmful(const sonde__builtin_update_fast *fast, double loss)
{
    const double base = fast->base;
    const bool still = !(loss <= base + (STILL - 1.0) * fabs(base));

    return !fast->early ||
           (still && (is_above(fast, WORSE) ||
                      ((!fast->divides || fast->high >= LONG) && !has_paid(fast))));
}

/* Begins an episode when the median is above the limit, or continues the one that is
 * open. */
static void follow_episode(sonde__builtin_update_ratio *state, double median)
{
    sonde__builtin_update_fast *fast = &state->fast_state;

    if (median > state->fast && fast->since == 0) {
        fast->base = sonde__builtin_recent_mean(&fast->losses, 2 * FIRST);
        fast->base = isnan(fast->base) ? state->step.loss : fast->base;
        fast->since = 1;
        fast->suspect_ratio = 0.0;
    } else if (fast->since > 0) {
        fast->since++;
    }
    if (fast->since > 0 && state->step.largest > fast->suspect_ratio) {
        fast->suspect = state->step.fastest;
        fast->suspect_ratio = state->step.largest;
    }
    if (median > state->fast) {
        fast->above++;
    } else if (fast->above < ON_END) {
        fast->above = 0;
    }
}

/* Ends an episode, if it has lasted long enough. */
static void end_episode(sonde_rule_run *run, double median)
{
    sonde__builtin_update_ratio *state = sonde_rule_state(run);
    sonde__builtin_update_fast *fast = &state->fast_state;
    const bool settled = settles(fast, median);

    if (fast->since == 0 ||
        (fast->above > 0 && fast->since <= (settled ? 3 : 1) * AFTER)) {
        return;
    }
    if (fast->above >= ON_END && !has_paid(fast)) {
        const bool note =
            (settled && median <= state->fast) || fast->most < BOLD * state->fast;
        const double loss = sonde__builtin_recent_mean(&fast->losses, FIRST);

        sonde__rule_report(
            run, sonde__builtin_at(run, fast->suspect), note ? &rather_fast : &too_fast,
            "update_ratio", fast->suspect_ratio, state->fast, TOO_FAST,
            "Most weights changed by more than %.3g times their own size at each of "
            "several steps (this one by up to %.3g times), and the loss %s %.4g to %.4g.",
            state->fast, fast->suspect_ratio,
            loss > fast->base ? "rose from" : "fell only from", fast->base, loss);
    }
    fast->since = fast->above = 0;
}

/* median: of the step's ratios. */
static void judge_fast(sonde_rule_run *run, double median)
{
    sonde__builtin_update_ratio *state = sonde_rule_state(run);
    sonde__builtin_update_fast *fast = &state->fast_state;
    const double limit = 2.0 * state->fast;
    double least = median;

    memmove(fast->medians, fast->medians + 1, (ON_END - 1) * sizeof *fast->medians);
    fast->medians[ON_END - 1] = median;
    for (int i = 0; i < ON_END; i++) {
        least = fmin(least, fast->medians[i]);
    }
    follow_episode(state, median);
    fast->high = median > limit ? fast->high + 1 : 0;
    fast->most = fast->since == 1 ? median : fmax(fast->most, median);
    if (fast->since == 1 && !(fast->medians[ON_END - 2] > state->fast)) {
        fast->early = state->from_start && fast->compared < FIRST;
        fast->divides = fast->early && divides(run, state->step.even);
    }
    fast->compared++;
    if (least > limit && state->step.elements >= FEW &&
        is_harmful(fast, state->step.loss)) {
        sonde__rule_report(
            run, sonde__builtin_at(run, state->step.fastest), &too_fast, "update_ratio",
            state->step.largest, limit, TOO_FAST,
            "Most weights change by more than %.3g times their own size at "
            "each step (this one by %.3g times).",
            limit, state->step.largest);
    }
    end_episode(run, median);
}

/* --- too low ------------------------------------------------------------------------ */

/*
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

SONDE__TERMS(perhaps_slow, NOTHING, NOTE, WARNING, NOTE, NOTE, .slight = SLIGHT);

SONDE__TERMS(rather_slow, NOTHING, NOTE, NOTE, NOTE, NOTE, .slight = SLIGHT);

static void report(sonde_rule_run *run, double mean, const look *at, bool still)
{
    const sonde__builtin_update_ratio *state = sonde_rule_state(run);
    const bool sure = mean < state->slow && still;
    const sonde__rule_terms *terms = sure && sonde__rule_loss_is_free(run)
                                         ? SONDE__SURE(NOTE)
                                     : sure                      ? SONDE__SURE(WARNING)
                                     : mean < NEAR * state->slow ? &perhaps_slow
                                                                 : &rather_slow;

    sonde__rule_report(
        run, sonde__builtin_at(run, state->step.fastest), terms, "update_ratio", mean,
        sure ? state->slow : LIMIT * state->slow,
        "Raise the learning rate; check the loss's reduction and the optimizer's epsilon.",
        "In the first %lld steps no weight changed by more than %.2g times its own size a "
        "step, and the loss hardly fell.",
        (long long)at->steps, mean);
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
        slow->last_part < 3.0 * slow->first_part) {
        sonde__rule_report(run, sonde__builtin_at(run, state->step.fastest),
                           SONDE__SURE(WARNING), "update_ratio", slow->sum / DECAYED,
                           state->slow,
                           "Raise the learning rate; check the loss's scale and the "
                           "optimizer's epsilon.",
                           "In the first %d steps only weight decay moved the weights: "
                           "gradients changed none by more than %.2g times its own size.",
                           DECAYED, slow->sum / DECAYED);
    }
}

void sonde__builtin_update_judge(sonde_rule_run *run)
{
    sonde__builtin_update_ratio *state = sonde_rule_state(run);
    sonde__builtin_updates *all = &state->step;
    sonde__builtin_update_fast *fast = &state->fast_state;

    if (!isfinite(all->loss)) {
        return;
    }
    if (all->count > 0 && state->num_steps == 1) {
        sonde__builtin_sort(all->ratios, all->count);
        if (state->fast > 0.0) {
            judge_fast(run, all->ratios[all->count / 2]);
        }
        for (size_t i = 0; i < 2 && state->from_start; i++) {
            take(run, &state->slow_state.looks[i], &looks[i]);
        }
        if (state->from_start) {
            take_decayed(run, &state->slow_state.decayed);
        }
    }
    sonde__builtin_recent_take(&fast->losses, all->loss);
    if (fast->first_count < FIRST) {
        fast->first_losses += all->loss;
        fast->first_count++;
    }
}

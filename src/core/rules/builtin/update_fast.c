/*
 * update_fast.c - WeightUpdateRatio: the learning rate is too high for most weights.
 *
 * An episode begins when the median r over weights is above `fast`, and lasts AFTER steps.
 * Fires, for the weight that changed most in it, when
 *     replaced   the median was above 2 `fast` at three comparisons in a row (not judged if
 *                the weights have fewer than FEW elements together). If the episode began
 *                with the run, the loss also has to be where it should not be: not below
 *                STILL times its value before; with an optimiser that divides, above WORSE
 *                times that, or not below STILL for LONG such comparisons, as must the
 *                loss of the step be; or
 *     in vain    the median was above `fast` at three comparisons in a row, and at the end
 *                the loss is not below STILL times its value before. A network that has
 *                learnt (its loss is below half of its first ones) need not improve
 *                further; there the loss has to have doubled. A note if no median of the
 *                episode was above BOLD `fast`.
 * At the start the loss decides, because r cannot: optimisers that divide by the size of
 * gradients (Adagrad, RMSprop, Adam, Lion) move every element by about the learning rate
 * at their first steps, or by ten times as much, however small the weight is. Weights that
 * begin small grow to their own size within these steps, and r falls. There, if the loss
 * has not risen to RISEN times its value before and r has halved, the episode lasts three
 * times as long, and what is found at its end is a note if r is below `fast`. Such an
 * optimiser is known by the names of its state or, without any, by updates whose elements
 * are of nearly one size.
 */
#include "rules/builtin/update_ratio.h"

#include "rules/context.h"
#include "rules/suspicion.h"

#include "base/macros.h"

#include <math.h>
#include <string.h>

#define STILL 0.85
enum { ON_END = SONDE__UPDATE_ON_END, FIRST = SONDE__UPDATE_FIRST, AFTER = 15 };
enum { LONG = 12 };
#define FEW 32.0
#define WORSE 1.25
#define RISEN 1.1
#define BOLD 1.5
#define EVEN 0.75 /* (mean |d|)^2 / mean d^2 of an update; 0.64 for normal elements */

static const sonde__rule_terms too_fast = {SONDE__TERMS(NOTE, ERROR, ERROR, NOTE, ERROR)};

/* Mean of the last `count` losses at most; NaN if there is none. */
static double recent_loss(const sonde__builtin_update_fast *fast, int64_t count)
{
    const int64_t all = SONDE_MIN(fast->losses.count, count);
    double sum = 0.0;

    for (int64_t i = 1; i <= all; i++) {
        sum += fast->losses.value[(fast->losses.count - i) % SONDE__RECENT];
    }
    return all > 0 ? sum / (double)all : (double)NAN;
}

void sonde__builtin_update_fast_loss(sonde__builtin_update_fast *fast, double loss)
{
    sonde__builtin_recent_take(&fast->losses, loss);
    if (fast->first_count < FIRST) {
        fast->first_losses += loss;
        fast->first_count++;
    }
}

/* Whether the loss is above `times` its value before the episode. */
static bool is_above(const sonde__builtin_update_fast *fast, double times)
{
    return recent_loss(fast, FIRST) > fast->base + (times - 1.0) * fabs(fast->base);
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

/* Whether the optimiser divides updates by the size of gradients. even: of the updates of
 * this step, the median. */
static bool divides(const sonde_rule_run *run, double even)
{
    static const char *const names[] = {".exp_avg",    ".exp_avg_sq", ".exp_inf", ".sum",
                                        ".square_avg", "Accl2___",    "_sq_row"};
    const sonde_catalogue *catalogue = sonde__rule_catalogue(run);
    bool any = false;

    for (uint32_t id = 0; id < sonde_catalogue_count(catalogue); id++) {
        const sonde_tensor_info *info = sonde_catalogue_info(catalogue, id);

        for (size_t i = 0; i < SONDE_COUNT_OF(names); i++) {
            if (info->role == SONDE_ROLE_OPTIMIZER &&
                strstr(info->name, names[i]) != NULL) {
                return true;
            }
        }
        any = any || info->role == SONDE_ROLE_OPTIMIZER;
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

/* The weights are replaced within a few steps. */
static void report_replaced(sonde_rule_run *run)
{
    const sonde__builtin_update_ratio *state = sonde_rule_state(run);
    const double ratio = state->step.largest, limit = 2.0 * state->fast;

    if (sonde__rule_suspect(run, state->step.fastest, &too_fast, "update_ratio", ratio,
                            limit)) {
        sonde_rule_say(run, "Lower the learning rate, or clip gradients.",
                       "Most weights change by more than %.3g times their own size at "
                       "each step (this one by %.3g times).",
                       limit, ratio);
    }
}

/* The updates were large, and the loss did not fall. */
static void report_in_vain(sonde_rule_run *run, sonde_severity severity)
{
    const sonde__builtin_update_ratio *state = sonde_rule_state(run);
    const sonde__builtin_update_fast *fast = &state->fast_state;

    if (severity != SONDE_SEVERITY_NOTE
            ? sonde__rule_suspect(run, fast->suspect, &too_fast, "update_ratio",
                                  fast->suspect_ratio, state->fast)
            : sonde_rule_found(run, fast->suspect, severity, "update_ratio",
                               fast->suspect_ratio, state->fast)) {
        sonde_rule_say(run, "Lower the learning rate, or clip gradients.",
                       "Most weights changed by more than %.3g times their own size at "
                       "each of several steps (this one by up to %.3g times), and the "
                       "loss did not fall: it was %.4g before and is %.4g now.",
                       state->fast, fast->suspect_ratio, fast->base,
                       recent_loss(fast, FIRST));
    }
}

/* Begins an episode when the median is above the limit, or continues the one that is
 * open. */
static void follow_episode(sonde__builtin_update_ratio *state, double median)
{
    sonde__builtin_update_fast *fast = &state->fast_state;

    if (median > state->fast && fast->since == 0) {
        fast->base = recent_loss(fast, 2 * FIRST);
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

void sonde__builtin_update_fast_step(sonde_rule_run *run, double median)
{
    sonde__builtin_update_ratio *state = sonde_rule_state(run);
    sonde__builtin_update_fast *fast = &state->fast_state;
    double least = median;

    memmove(fast->medians, fast->medians + 1, (ON_END - 1) * sizeof *fast->medians);
    fast->medians[ON_END - 1] = median;
    for (int i = 0; i < ON_END; i++) {
        least = fmin(least, fast->medians[i]);
    }
    follow_episode(state, median);
    fast->high = median > 2.0 * state->fast ? fast->high + 1 : 0;
    fast->most = fast->since == 1 ? median : fmax(fast->most, median);
    if (fast->since == 1 && !(fast->medians[ON_END - 2] > state->fast)) {
        fast->early = state->from_start && fast->compared < FIRST;
        fast->divides = fast->early && divides(run, state->step.even);
    }
    fast->compared++;
    if (least > 2.0 * state->fast && state->step.elements >= FEW &&
        is_harmful(fast, state->step.loss)) {
        report_replaced(run);
    }
    if (fast->since > (settles(fast, median) ? 3 : 1) * AFTER ||
        (fast->since > 0 && fast->above == 0)) {
        if (fast->above >= ON_END && !has_paid(fast)) {
            report_in_vain(run, (settles(fast, median) && median <= state->fast) ||
                                        fast->most < BOLD * state->fast
                                    ? SONDE_SEVERITY_NOTE
                                    : SONDE_SEVERITY_ERROR);
        }
        fast->since = fast->above = 0;
    }
}

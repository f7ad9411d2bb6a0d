/*
 * WeightUpdateRatio - weights change too much or too little for what they are.
 *
 *     r = |w - w'|2 / (|w'|2 + epsilon)        w' the value at the last observed step
 *
 * over SAMPLE elements of each weight, evenly spread. Networks that learn have an r of 1e-4 ... 5e-2
 * a step. Where k training steps lie between w' and w, weights have changed by at least r / k at
 * each on average, which is what large, fast and in vain go by; and r itself is not less than what
 * would have come of one step, which is what slow and small go by. So they say less, not more, of
 * steps that are looked at seldom. Fires
 *     large      when r of a weight > large_threshold, at `patience` comparisons on end;
 *     fast       when the median r over weights was above 2 `fast` at three comparisons on end: all
 *                weights are replaced within a few steps;
 *     in vain    when it was above `fast`, and AFTER steps on the loss has not come below
 *                STILL times what it was before: bold learning rates show so large an r for a few
 *                steps, but then they pay. A network that has learnt (a loss of less than half of
 *                the first ones) need not pay any more; there the loss has to have doubled;
 *     slow       when over the first SLOW_STEPS comparisons of a run, from its first step on, the
 *                largest r of all weights was below `slow` on average, did not grow (as in a
 *                warm-up) and the loss did not fall: a thousand such steps change nothing by more
 *                than 3 %. A note; below a third of that a warning.
 *     small      when 0 < r < small_threshold (a weight that does not change at all is
 *                FrozenParameter's), at `patience` and at least SMALL_ON_END comparisons on end, over
 *                which it has not doubled: what lies behind a branch that begins at 0 wakes slowly.
 * num_steps: w' is the value at least so many observed steps back, 1 by default, and r is of so many
 * steps then. Of fast, in vain
 * and slow the weight that changes most is named.
 *
 * So that weights that begin at 0 may rise, |w'| is not taken below a root mean square of
 * 1e-2 for large and fast.
 *
 * Evidence: raw weights, and losses; without raw weights vital signs, which bound |w - w'| from
 * below by the change of the norm and of the mean and so can show that r is large, not more.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_values.h"
#include "rules/builtin/builtin_vitals.h"
#include "rules/builtin/series.h"

#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

#define LEAST_RMS 1e-2
#define STILL 0.85
enum {
    WEIGHTS = 0,
    LOSSES = 1,
    SAMPLE = 512,
    MOST_WEIGHTS = 128, /* that the median is taken of */
    ON_END = 3,
    SMALL_ON_END = 10,
    AFTER = 15,
    LAST = 5, /* losses that are averaged */
    SLOW_STEPS = 40,
    SLOW_PART = 10 /* of them at either end */
};

typedef struct update_ratio {
    int64_t num_steps, patience;
    double large_threshold, small_threshold, epsilon, fast, slow;
    /* of this step */
    double ratios[MOST_WEIGHTS], most; /* r / k of weights; the largest */
    double most_between;               /* the largest r */
    size_t count, fastest;             /* how many; the tensor that has the largest */
    double loss;
    /* fast and in vain */
    double medians[ON_END]; /* the last ones */
    sonde__builtin_recent losses;
    double base; /* loss before it began */
    double first_losses;
    int64_t first_count; /* at most LAST */
    int64_t since,
        begun; /* comparisons since; 0: it has not. So many were above on end */
    size_t suspect;
    double suspect_ratio;
    /* slow */
    int64_t compared;
    bool from_start, seen;
    double sum, first_part, last_part, first_loss, last_loss;
} update_ratio;

typedef struct tensor_memory {
    double *raw; /* sample of w' */
    size_t raw_count;
    int64_t raw_age, vitals_age;
    int64_t raw_last, vitals_last; /* see sonde__builtin_steps_since */
    int64_t large, small;          /* comparisons on end */
    double change;                 /* |w - w'| of this step by raw values; NaN: none */
    double steps;                  /* k / num_steps of it */
    double norm;                   /* |w'| */
    double small_ratio;            /* the first of those that were small */
    sonde_vitals before;
    bool has_before;
} tensor_memory;

static const sonde_rule_param params[] = {
    SONDE__COUNT(update_ratio, num_steps, "1", 1, 1e9, "observed steps between w' and w"),
    SONDE__REAL(update_ratio, large_threshold, "10", 0, 1e300,
                "largest ratio that is in order"),
    SONDE__REAL(update_ratio, small_threshold, "1e-8", 0, 1e300,
                "smallest ratio that is in order"),
    SONDE__REAL(update_ratio, epsilon, "1e-9", 0, 1e300, "added to the norm of w'"),
    SONDE__REAL(
        update_ratio, fast, "0.1", 0, 1e300,
        "median ratio that is in order for a few steps, if the loss falls; 0: any"),
    SONDE__REAL(update_ratio, slow, "3e-5", 0, 1,
                "largest ratio that teaches nothing; 0: none is looked for"),
    SONDE__COUNT(update_ratio, patience, "1", 1, 1e9, "comparisons on end"),
};
static const sonde_rule_need needs[] = {
    {"values of weights", SONDE_HOW_VITALS | SONDE_HOW_RAW, false, true},
    {"losses", SONDE_HOW_VITALS, true, false}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    (void)run;
    if (!sonde__builtin_is_own(info, id)) {
        return SONDE_RULE_IGNORE;
    }
    return info->role == SONDE_ROLE_WEIGHT ? WEIGHTS
           : info->role == SONDE_ROLE_LOSS ? LOSSES
                                           : SONDE_RULE_IGNORE;
}

/* k / num_steps, at least 1. */
static double steps_between(sonde_rule_run *run, int64_t *last)
{
    const update_ratio *state = sonde_rule_state(run);
    const double steps = (double)sonde__builtin_steps_since(run, last);

    return fmax(steps / (double)state->num_steps, 1.0);
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *seen)
{
    const update_ratio *state = sonde_rule_state(run);
    tensor_memory *memory = tensor->memory;
    double values[SAMPLE], change = 0.0, norm = 0.0;
    size_t count = 0;

    if (seen->view == NULL || seen->at.micro_batch != 0 || seen->at.replica != 0) {
        return;
    }
    memory->raw_age++;
    if (memory->raw_count > 0 && memory->raw_age < state->num_steps) {
        return;
    }
    count = sonde__builtin_sample(seen->view, SAMPLE, values);
    for (size_t i = 0; i < count; i++) {
        const double d = values[i] - memory->raw[i];

        change += d * d;
        norm += memory->raw[i] * memory->raw[i];
        memory->raw[i] = values[i];
    }
    memory->raw_age = 0;
    memory->norm = sqrt(norm);
    memory->steps = steps_between(run, &memory->raw_last);
    memory->change = memory->raw_count != count ? (double)NAN : sqrt(change);
    memory->raw_count = count;
}

static sonde_err bind(sonde_rule_run *run, size_t i, sonde_diag *diag)
{
    size_t count = 0;
    sonde_rule_tensor *tensor = &sonde_rule_tensors(run, &count)[i];
    tensor_memory *memory = tensor->memory;

    if (tensor->need == WEIGHTS) {
        memory->raw = sonde__calloc(SAMPLE, sizeof *memory->raw);
    }
    return tensor->need != WEIGHTS || memory->raw != NULL
               ? SONDE_OK
               : sonde__fail_nomem(diag, "WeightUpdateRatio");
}

/* |w - w'| from below. */
static double least_change(const sonde_vitals *now, const sonde_vitals *before)
{
    const double n = (double)sonde__builtin_finite(now);
    const double of_norm = fabs(sqrt(now->sumsq) - sqrt(before->sumsq));
    const double of_mean = fabs(now->mean - before->mean) * sqrt(n);

    return fmax(of_norm, of_mean);
}

static double tame_ratio(const update_ratio *state, double change, double norm,
                         double count)
{
    return change / (fmax(norm, LEAST_RMS * sqrt(count)) + state->epsilon);
}

/* What lies between w' and w. */
typedef struct comparison {
    double change, norm; /* |w - w'| and |w'| */
    double steps;        /* k / num_steps */
    double count;        /* elements */
    bool exact;          /* change is not just a bound */
} comparison;

static void judge(sonde_rule_run *run, size_t i, tensor_memory *memory,
                  const comparison *seen)
{
    const update_ratio *state = sonde_rule_state(run);
    const double ratio = seen->change / (seen->norm + state->epsilon);
    const double tame = tame_ratio(state, seen->change, seen->norm, seen->count);
    const bool large = tame / seen->steps > state->large_threshold;
    const bool small = seen->exact && ratio > 0.0 && ratio < state->small_threshold;

    memory->large = large ? memory->large + 1 : 0;
    if (!small || memory->small == 0 || ratio > 2.0 * memory->small_ratio) {
        memory->small = 0;
        memory->small_ratio = ratio;
    }
    memory->small += small;
    if (memory->large >= state->patience &&
        sonde_rule_found(run, i, SONDE_SEVERITY_ERROR, "update_ratio",
                         ratio / seen->steps, state->large_threshold)) {
        sonde_rule_say(run, "Lower the learning rate, or clip gradients.",
                       "Its last change is %s%.3g times as large as the weight itself.",
                       seen->exact && seen->steps <= 1.0 ? "" : "at least ",
                       ratio / seen->steps);
    }
    if (memory->small >= SONDE_MAX(state->patience, (int64_t)SMALL_ON_END) &&
        sonde_rule_found(run, i, SONDE_SEVERITY_WARNING, "update_ratio", ratio,
                         state->small_threshold)) {
        sonde_rule_say(run, "Raise the learning rate.",
                       "Its last change is only %.3g of the weight itself.", ratio);
    }
}

/* Mean of the last `count` losses at most; NaN if there is none. */
static double recent_loss(const update_ratio *state, int64_t count)
{
    const int64_t all = SONDE_MIN(state->losses.count, count);
    double sum = 0.0;

    for (int64_t i = 1; i <= all; i++) {
        sum += state->losses.value[(state->losses.count - i) % SONDE__RECENT];
    }
    return all > 0 ? sum / (double)all : (double)NAN;
}

static void say_fast(sonde_rule_run *run, size_t i, double ratio, double threshold,
                     bool in_vain)
{
    const update_ratio *state = sonde_rule_state(run);

    if (!sonde_rule_found(run, i, SONDE_SEVERITY_ERROR, "update_ratio", ratio,
                          threshold)) {
        return;
    }
    if (in_vain) {
        sonde_rule_say(
            run, "Lower the learning rate, or clip gradients.",
            "Weights changed by more than %.3g of themselves at each of several "
            "steps (this one by up to %.3g), and the loss has not fallen: %.4g "
            "before, %.4g now.",
            threshold, ratio, state->base, recent_loss(state, LAST));
    } else {
        sonde_rule_say(
            run, "Lower the learning rate, or clip gradients.",
            "Weights change by more than %.3g of themselves at each step (this "
            "one by %.3g).",
            threshold, ratio);
    }
}

/* Whether the loss is as it should be after large updates. */
static bool has_paid(const update_ratio *state)
{
    const double now = recent_loss(state, LAST);
    const double first = state->first_losses / (double)state->first_count;

    return now < (state->base < 0.5 * first ? 2.0 : STILL) * state->base;
}

static void judge_fast(sonde_rule_run *run, double median)
{
    update_ratio *state = sonde_rule_state(run);
    double least = median;

    memmove(state->medians, state->medians + 1, (ON_END - 1) * sizeof *state->medians);
    state->medians[ON_END - 1] = median;
    for (int i = 0; i < ON_END; i++) {
        least = fmin(least, state->medians[i]);
    }
    if (median > state->fast && state->since == 0) {
        state->base = recent_loss(state, 2 * LAST);
        state->base = isnan(state->base) ? state->loss : state->base;
        state->since = 1;
        state->suspect_ratio = 0.0;
    } else if (state->since > 0) {
        state->since++;
    }
    if (state->since > 0 && state->most > state->suspect_ratio) {
        state->suspect = state->fastest;
        state->suspect_ratio = state->most;
    }
    state->begun = median > state->fast    ? state->begun + 1
                   : state->begun < ON_END ? 0
                                           : state->begun;
    if (least > 2.0 * state->fast) {
        say_fast(run, state->fastest, state->most, 2.0 * state->fast, false);
    }
    if (state->since > AFTER || (state->since > 0 && state->begun == 0)) {
        if (state->begun >= ON_END && !has_paid(state)) {
            say_fast(run, state->suspect, state->suspect_ratio, state->fast, true);
        }
        state->since = state->begun = 0;
    }
}

static void judge_slow(sonde_rule_run *run)
{
    update_ratio *state = sonde_rule_state(run);
    const double mean = (state->sum += state->most_between) / SLOW_STEPS;
    const int64_t at = state->compared++;

    if (at < SLOW_PART) {
        state->first_part += state->most_between;
        state->first_loss += state->loss;
    } else if (at >= SLOW_STEPS - SLOW_PART) {
        state->last_part += state->most_between;
        state->last_loss += state->loss;
    }
    if (state->compared == SLOW_STEPS && mean > 0.0 && mean < state->slow &&
        state->last_part < 3.0 * state->first_part &&
        state->last_loss > 0.95 * state->first_loss &&
        sonde_rule_found(run, state->fastest,
                         mean < state->slow / 3.0 ? SONDE_SEVERITY_WARNING
                                                  : SONDE_SEVERITY_NOTE,
                         "update_ratio", mean, state->slow)) {
        sonde_rule_say(
            run, "Raise the learning rate.",
            "Over the first %d steps no weight changed by more than %.2g of itself "
            "a step, and the loss did not fall.",
            SLOW_STEPS, mean);
    }
}

/* Among the weights of this step. */
static void count_in(update_ratio *state, size_t i, const comparison *seen)
{
    const double between = tame_ratio(state, seen->change, seen->norm, seen->count);
    const double tame = between / seen->steps;

    if (seen->count > 1.0 && state->count < MOST_WEIGHTS) {
        state->ratios[state->count++] = tame;
        state->fastest = tame >= state->most ? i : state->fastest;
        state->most = fmax(state->most, tame);
        state->most_between = fmax(state->most_between, between);
    }
}

/* Judges weight i by itself, and counts it in. */
static void take_weight(sonde_rule_run *run, size_t i, const sonde_rule_tensor *tensor)
{
    update_ratio *state = sonde_rule_state(run);
    const sonde_vitals *now = tensor->vitals;
    tensor_memory *memory = tensor->memory;
    const bool finite = now != NULL && sonde__builtin_bad(now) == 0 && now->count > 0;

    if (memory->raw_count > 0 && memory->raw_age == 0 && isfinite(memory->change)) {
        const comparison seen = {memory->change, memory->norm, memory->steps,
                                 (double)memory->raw_count, true};

        judge(run, i, memory, &seen);
        count_in(state, i, &seen);
    } else if (finite && memory->has_before &&
               memory->vitals_age + 1 >= state->num_steps) {
        int64_t last = memory->vitals_last;
        const comparison seen = {least_change(now, &memory->before),
                                 sqrt(memory->before.sumsq), steps_between(run, &last),
                                 (double)now->count, false};

        judge(run, i, memory, &seen);
    }
    memory->change = NAN;
    if (finite) {
        memory->vitals_age++;
        if (!memory->has_before || memory->vitals_age >= state->num_steps) {
            (void)sonde__builtin_steps_since(run, &memory->vitals_last);
            memory->before = *now;
            memory->has_before = true;
            memory->vitals_age = 0;
        }
    }
}

static void step(sonde_rule_run *run)
{
    update_ratio *state = sonde_rule_state(run);
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    state->from_start =
        state->seen ? state->from_start : sonde_rule_at(run)->mode_step == 0;
    state->seen = true;
    state->count = 0;
    state->most = state->most_between = 0.0;
    state->loss = NAN;
    for (size_t i = 0; i < count; i++) {
        const sonde_vitals *v = tensors[i].vitals;

        if (tensors[i].need == WEIGHTS) {
            take_weight(run, i, &tensors[i]);
        } else if (v != NULL && sonde__builtin_finite(v) > 0 && isnan(state->loss)) {
            state->loss = v->mean;
        }
    }
    if (state->count > 0 && isfinite(state->loss) && state->num_steps == 1) {
        sonde__builtin_sort(state->ratios, state->count);
        if (state->fast > 0.0) {
            judge_fast(run, state->ratios[state->count / 2]);
        }
        if (state->from_start && state->compared < SLOW_STEPS) {
            judge_slow(run);
        }
    }
    if (isfinite(state->loss)) {
        sonde__builtin_recent_take(&state->losses, state->loss);
        if (state->first_count < LAST) {
            state->first_losses += state->loss;
            state->first_count++;
        }
    }
}

static void destroy(sonde_rule_run *run)
{
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    for (size_t i = 0; i < count; i++) {
        sonde__free(((tensor_memory *)tensors[i].memory)->raw);
    }
}

const sonde_rule sonde__builtin_weight_update_ratio = {
    SONDE__RULE("WeightUpdateRatio", update_ratio),
    .summary = "a weight's update is too large or too small for it",
    .condition =
        "|w - w'|2 / (|w'|2 + epsilon) > `large_threshold` or < `small_threshold`; or "
        "its "
        "median over weights > 2 `fast` at three steps on end, or > `fast` and the loss "
        "does not fall; or its largest < `slow` over the first 40 steps and the loss "
        "does "
        "not fall.",
    .advice = "Change the learning rate.",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(tensor_memory),
    .wants = wants,
    .bind = bind,
    .observe = observe,
    .step = step,
    .destroy = destroy,
};

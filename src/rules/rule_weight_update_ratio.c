/*
 * WeightUpdateRatio - a weight's update is too large or too small for the weight.
 *
 *     r = |w - w'|2 / (|w'|2 + epsilon)        w' the value at the last observed step
 *
 * Fires when r > large_threshold, or 0 < r < small_threshold (a weight that does not change at
 * all is FrozenParameter's), over `patience` comparisons on end. num_steps: w' is the value at
 * least so many observed steps back, 1 by default.
 *
 * So that weights that begin at 0 may rise, |w'| is not taken below a root mean square of
 * 1e-2 for large_threshold.
 *
 * Evidence: raw weights; without them vital signs, which bound |w - w'| from below by the change
 * of the norm and of the mean and so can show that r is large, not that it is small.
 */
#include "rules/builtin.h"

#include "base/base.h"

#define LEAST_RMS 1e-2

typedef struct update_ratio {
    int64_t num_steps, patience;
    double large_threshold, small_threshold, epsilon;
} update_ratio;

typedef struct memory {
    double *raw; /* w' */
    int64_t raw_count, raw_age, vitals_age;
    int64_t large, small; /* comparisons on end */
    double ratio;         /* of this step by raw values; NaN: none */
    double norm;          /* |w'| */
    sonde_vitals before;
    bool has_before;
} memory;

static const sonde_rule_param params[] = {
    {"num_steps", SONDE_RULE_COUNT, "1", 1, 1e9, "observed steps between w' and w",
     offsetof(update_ratio, num_steps), false},
    {"large_threshold", SONDE_RULE_REAL, "10", 0, 1e300, "largest ratio that is in order",
     offsetof(update_ratio, large_threshold), false},
    {"small_threshold", SONDE_RULE_REAL, "1e-8", 0, 1e300,
     "smallest ratio that is in order", offsetof(update_ratio, small_threshold), false},
    {"epsilon", SONDE_RULE_REAL, "1e-9", 0, 1e300, "added to the norm of w'",
     offsetof(update_ratio, epsilon), false},
    {"patience", SONDE_RULE_COUNT, "1", 1, 1e9, "comparisons on end",
     offsetof(update_ratio, patience), false},
};
static const sonde_rule_need needs[] = {
    {"values of weights", SONDE_HOW_VITALS | SONDE_HOW_RAW, false, false}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    (void)run;
    return info->role == SONDE_ROLE_WEIGHT && sonde__is_own(info, id) ? 0
                                                                      : SONDE_RULE_IGNORE;
}

static bool make_room(sonde_rule_run *run, memory *of, int64_t count)
{
    if (of->raw != NULL && of->raw_count == count) {
        return true;
    }
    sonde__free(of->raw);
    of->raw = sonde__malloc((size_t)count * sizeof *of->raw);
    of->raw_count = count;
    of->raw_age = 0;
    if (of->raw == NULL) {
        sonde_rule_fail(run, "out of memory for %lld values", (long long)count);
    }
    return of->raw != NULL;
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *seen)
{
    const update_ratio *state = sonde_rule_state(run);
    memory *of = tensor->memory;
    sonde__reader reader;
    double values[SONDE__CHUNK], change = 0.0, norm = 0.0;
    const bool first = of->raw == NULL;
    const bool due = of->raw_age + 1 >= state->num_steps;
    size_t at = 0;

    if (seen->view == NULL || seen->at.micro_batch != 0 || seen->at.replica != 0 ||
        !make_room(run, of, sonde_view_count(seen->view))) {
        return;
    }
    of->raw_age++;
    if (!first && !due) {
        return;
    }
    sonde__reader_init(&reader, seen->view);
    for (size_t n = sonde__reader_take(&reader, values); n > 0;
         n = sonde__reader_take(&reader, values)) {
        for (size_t i = 0; i < n; i++, at++) {
            const double d = first ? 0.0 : values[i] - of->raw[at];

            change += d * d;
            norm += first ? 0.0 : of->raw[at] * of->raw[at];
            of->raw[at] = values[i];
        }
    }
    of->raw_age = 0;
    of->norm = sqrt(norm);
    of->ratio = first ? (double)NAN : sqrt(change);
}

/* |w - w'| from below. */
static double least_change(const sonde_vitals *now, const sonde_vitals *before)
{
    const double n = (double)sonde__finite(now);
    const double of_norm = fabs(sqrt(now->sumsq) - sqrt(before->sumsq));
    const double of_mean = fabs(now->mean - before->mean) * sqrt(n);

    return fmax(of_norm, of_mean);
}

static void judge(sonde_rule_run *run, size_t i, memory *of, double change, double norm,
                  double count, bool exact)
{
    const update_ratio *state = sonde_rule_state(run);
    const double ratio = change / (norm + state->epsilon);
    const double tame = change / (fmax(norm, LEAST_RMS * sqrt(count)) + state->epsilon);
    const bool large = tame > state->large_threshold;
    const bool small = exact && ratio > 0.0 && ratio < state->small_threshold;

    of->large = large ? of->large + 1 : 0;
    of->small = small ? of->small + 1 : 0;
    if (of->large >= state->patience &&
        sonde_rule_found(run, i, SONDE_SEVERITY_ERROR, "update_ratio", ratio,
                         state->large_threshold)) {
        sonde_rule_say(run, "Lower the learning rate, or clip gradients.",
                       "Its last change is %s%.3g times as large as the weight itself.",
                       exact ? "" : "at least ", ratio);
    }
    if (of->small >= state->patience &&
        sonde_rule_found(run, i, SONDE_SEVERITY_WARNING, "update_ratio", ratio,
                         state->small_threshold)) {
        sonde_rule_say(run, "Raise the learning rate.",
                       "Its last change is only %.3g of the weight itself.", ratio);
    }
}

static void step(sonde_rule_run *run)
{
    const update_ratio *state = sonde_rule_state(run);
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    for (size_t i = 0; i < count; i++) {
        memory *of = tensors[i].memory;
        const sonde_vitals *now = tensors[i].vitals;
        const bool finite = now != NULL && sonde__bad(now) == 0 && now->count > 0;

        if (of->raw != NULL && of->raw_age == 0 && isfinite(of->ratio)) {
            judge(run, i, of, of->ratio, of->norm, (double)of->raw_count, true);
        } else if (finite && of->has_before && of->vitals_age + 1 >= state->num_steps) {
            judge(run, i, of, least_change(now, &of->before), sqrt(of->before.sumsq),
                  (double)now->count, false);
        }
        of->ratio = NAN;
        if (finite) {
            of->vitals_age++;
            if (!of->has_before || of->vitals_age >= state->num_steps) {
                of->before = *now;
                of->has_before = true;
                of->vitals_age = 0;
            }
        }
    }
}

static void destroy(sonde_rule_run *run)
{
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    for (size_t i = 0; i < count; i++) {
        sonde__free(((memory *)tensors[i].memory)->raw);
    }
}

const sonde_rule sonde__weight_update_ratio = {
    .abi = SONDE_RULE_ABI,
    .name = "WeightUpdateRatio",
    .summary = "a weight's update is too large or too small for it",
    .condition =
        "|w - w'|2 / (|w'|2 + epsilon) > `large_threshold` or < `small_threshold`.",
    .advice = "Change the learning rate.",
    .params = params,
    .param_count = SONDE__COUNT_OF(params),
    .needs = needs,
    .need_count = SONDE__COUNT_OF(needs),
    .modes = SONDE__TRAIN,
    .state_size = sizeof(update_ratio),
    .tensor_size = sizeof(memory),
    .wants = wants,
    .observe = observe,
    .step = step,
    .destroy = destroy,
};

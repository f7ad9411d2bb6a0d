/*
 * WeightUpdateRatio - a weight's updates are too large or too small for it.
 *
 * This file measures by how much each weight changes; update_ratio.h says how, and
 * update_large.c, update_small.c, update_fast.c and update_slow.c say what they report.
 *
 * Evidence: raw weights, and losses. Without raw weights, vital signs bound |w - w'| from
 * below by the change of the norm and of the mean, and so can show that an update is
 * large, nothing else.
 */
#include "rules/builtin/update_ratio.h"
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_values.h"
#include "rules/builtin/builtin_vitals.h"

#include "base/fail.h"
#include "base/memory.h"

#include <math.h>

#define LEAST_RMS 1e-2
enum { WEIGHTS = 0, LOSSES = 1, SAMPLE = 512 };

typedef sonde__builtin_update_ratio update_ratio;

typedef struct tensor_memory {
    double *raw; /* sample of w' */
    size_t raw_count;
    int64_t raw_age, vitals_age;
    int64_t raw_last, vitals_last; /* see sonde__builtin_steps_since */
    int64_t large, small;          /* comparisons in a row */
    sonde__builtin_update_past past;
    double change; /* |w - w'| of this step by raw values; NaN: none */
    double even;   /* see sonde__builtin_updates */
    double steps;  /* k / num_steps of it */
    double norm;   /* |w'| */
    double across; /* |w - w'| less its part along -w', as weight decay makes it */
    sonde_vitals before;
    bool has_before;
} tensor_memory;

static const sonde_rule_param params[] = {
    SONDE__COUNT(update_ratio, num_steps, "1", 1, 1e9, "observed steps between w' and w"),
    SONDE__REAL(update_ratio, large_threshold, "10", 0, 1e300,
                "largest acceptable ratio"),
    SONDE__REAL(update_ratio, small_threshold, "1e-8", 0, 1e300,
                "smallest acceptable ratio"),
    SONDE__REAL(update_ratio, epsilon, "1e-9", 0, 1e300, "added to the norm of w'"),
    SONDE__REAL(update_ratio, fast, "0.1", 0, 1e300,
                "largest acceptable median ratio, unless the loss falls; 0: any"),
    SONDE__REAL(update_ratio, slow, "3e-5", 0, 1,
                "largest ratio at which nothing is learnt; 0: do not check"),
    SONDE__COUNT(update_ratio, patience, "1", 1, 1e9, "comparisons in a row"),
    SONDE__COUNT(update_ratio, small_patience, "10", 1, 1e9,
                 "comparisons in a row below small_threshold"),
    SONDE__SMDEBUG(update_ratio),
};
/* update_slow.c judges the first 40 comparisons. */
#define FIRST_AND_PAIRS                                                                  \
    {                                                                                    \
        .first = 50, .every = 100, .row = 2, .row_every = 100                            \
    }
static const sonde_rule_need needs[] = {
    {"weights", SONDE_HOW_VITALS | SONDE_HOW_RAW, false, SONDE__WEIGHTS, FIRST_AND_PAIRS},
    {"losses", SONDE_HOW_VITALS, true, SONDE__LOSSES, SONDE__EACH_STEP}};

static sonde_err init(sonde_rule_run *run, sonde_diag *diag)
{
    update_ratio *state = sonde_rule_state(run);

    (void)diag;
    state->smdebug = sonde__builtin_as_smdebug(
        run, "num_steps,large_threshold,small_threshold,epsilon",
        "fast,slow,patience,small_patience");
    if (state->smdebug) {
        state->fast = state->slow = 0.0;
        state->patience = state->small_patience = 1;
    }
    return SONDE_OK;
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
    double values[SAMPLE], change = 0.0, norm = 0.0, sum = 0.0, along = 0.0;

    if (seen->view == NULL || seen->at.micro_batch != 0 || seen->at.replica != 0) {
        return;
    }
    memory->raw_age++;
    if (memory->raw_count > 0 && memory->raw_age < state->num_steps) {
        return;
    }
    const size_t count = sonde__builtin_sample(seen->view, SAMPLE, values);
    for (size_t i = 0; i < count; i++) {
        const double d = values[i] - memory->raw[i];

        change += d * d;
        sum += fabs(d);
        norm += memory->raw[i] * memory->raw[i];
        along += d * memory->raw[i];
        memory->raw[i] = values[i];
    }
    memory->raw_age = 0;
    along = fmin(along, 0.0);
    memory->norm = sqrt(norm);
    memory->across = sqrt(fmax(change - (norm > 0.0 ? along * along / norm : 0.0), 0.0));
    memory->steps = steps_between(run, &memory->raw_last);
    memory->change = memory->raw_count != count ? (double)NAN : sqrt(change);
    memory->even = change > 0.0 ? sum * sum / (change * (double)count) : 0.0;
    memory->raw_count = count;
}

static sonde_err bind(sonde_rule_run *run, size_t i, sonde_diag *diag)
{
    sonde_rule_tensor *tensor = &sonde__builtin_tensors(run)[i];
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
    const double by_norm = fabs(sqrt(now->sumsq) - sqrt(before->sumsq));
    const double by_mean = fabs(now->mean - before->mean) * sqrt(n);

    return fmax(by_norm, by_mean);
}

/* Judges weight i by itself; one with raw values is among the weights of the step. */
static void judge(sonde_rule_run *run, size_t i, tensor_memory *memory,
                  sonde__builtin_update update)
{
    const double even = memory->even;
    update_ratio *state = sonde_rule_state(run);
    sonde__builtin_updates *all = &state->step;

    update.ratio = update.change / (update.norm + state->epsilon);
    update.tame = update.change /
                  (fmax(update.norm, LEAST_RMS * sqrt(update.count)) + state->epsilon);
    sonde__builtin_update_large(run, i, &update, &memory->large);
    sonde__builtin_update_small(run, i, &update, &memory->small, &memory->past);
    if (update.exact && update.count > 1.0 && all->count < SONDE__UPDATE_WEIGHTS) {
        const double tame = update.tame / update.steps;

        all->even = (all->even * (double)all->count + even) / (double)(all->count + 1);
        all->ratios[all->count++] = tame;
        all->elements += update.count;
        all->fastest = tame >= all->largest ? i : all->fastest;
        all->largest = fmax(all->largest, tame);
        all->largest_between = fmax(all->largest_between, update.tame);
        if (update.change > 0.0) {
            all->across = fmax(all->across, update.tame * memory->across / update.change);
        }
    }
}

static void keep_vitals(sonde_rule_run *run, tensor_memory *memory,
                        const sonde_vitals *now)
{
    const update_ratio *state = sonde_rule_state(run);

    memory->vitals_age++;
    if (!memory->has_before || memory->vitals_age >= state->num_steps) {
        (void)sonde__builtin_steps_since(run, &memory->vitals_last);
        memory->before = *now;
        memory->has_before = true;
        memory->vitals_age = 0;
    }
}

static void take_weight(sonde_rule_run *run, size_t i, const sonde_rule_tensor *tensor)
{
    const update_ratio *state = sonde_rule_state(run);
    const sonde_vitals *now = tensor->vitals;
    tensor_memory *memory = tensor->memory;
    const bool finite = now != NULL && sonde__builtin_bad(now) == 0 && now->count > 0;

    if (memory->raw_count > 0 && memory->raw_age == 0 && isfinite(memory->change)) {
        judge(run, i, memory,
              (sonde__builtin_update){.change = memory->change,
                                      .norm = memory->norm,
                                      .steps = memory->steps,
                                      .count = (double)memory->raw_count,
                                      .exact = true});
    } else if (finite && memory->has_before &&
               memory->vitals_age + 1 >= state->num_steps) {
        int64_t last = memory->vitals_last;

        judge(run, i, memory,
              (sonde__builtin_update){.change = least_change(now, &memory->before),
                                      .norm = sqrt(memory->before.sumsq),
                                      .steps = steps_between(run, &last),
                                      .count = (double)now->count});
    }
    memory->change = NAN;
    if (finite) {
        keep_vitals(run, memory, now);
    }
}

/* Judges all weights of the step together. */
static void judge_step(sonde_rule_run *run)
{
    update_ratio *state = sonde_rule_state(run);
    sonde__builtin_updates *all = &state->step;

    if (all->count > 0 && isfinite(all->loss) && state->num_steps == 1) {
        sonde__builtin_sort(all->ratios, all->count);
        if (state->fast > 0.0) {
            sonde__builtin_update_fast_step(run, all->ratios[all->count / 2]);
        }
        sonde__builtin_update_slow_step(run);
    }
    if (isfinite(all->loss)) {
        sonde__builtin_update_fast_loss(&state->fast_state, all->loss);
    }
}

static void step(sonde_rule_run *run)
{
    update_ratio *state = sonde_rule_state(run);
    sonde__builtin_updates *all = &state->step;
    sonde_rule_tensor *tensors = sonde__builtin_tensors(run);

    state->from_start =
        state->seen ? state->from_start : sonde_rule_at(run)->mode_step == 0;
    state->seen = true;
    all->count = 0;
    all->largest = all->largest_between = all->elements = all->even = all->across = 0.0;
    all->loss = NAN;
    SONDE__EACH (run, i) {
        const sonde_vitals *v = tensors[i].vitals;

        if (tensors[i].need == WEIGHTS) {
            take_weight(run, i, &tensors[i]);
        } else if (v != NULL && sonde__builtin_finite(v) > 0 &&
                   (isnan(all->loss) ||
                    sonde__builtin_loss_kind(run, tensors[i].id) == SONDE__LOSS_WHOLE)) {
            all->loss = v->mean;
        }
    }
    judge_step(run);
}

static void destroy(sonde_rule_run *run)
{
    sonde__builtin_free_each(run, offsetof(tensor_memory, raw));
}

const sonde_rule sonde__builtin_weight_update_ratio = {
    SONDE__RULE("WeightUpdateRatio", update_ratio),
    .summary = "a weight's updates are too large or too small for its size",
    .condition =
        "The ratio r = |w - w'|2 / (|w'|2 + `epsilon`) of a weight is above `large_threshold`, or below `small_threshold` at `small_patience` comparisons in a row; or the median of r over the weights is above 2 `fast` at three steps in a row, or above `fast` while the loss does not fall (a note unless it was above 1.5 `fast`; at the start of a run, only if the loss does not fall, and with an optimiser that divides by the size of gradients only if it rises, or if this lasts); or the largest r is below `slow` over the first 40 steps while the loss does not fall, or would be without what makes weights smaller in proportion, as weight decay does. Large and fast updates, and those below `small_threshold`, wait for training: a note where training goes well. With `smdebug`, which `num_steps`, `epsilon` or a threshold alone imply: r is above `large_threshold` or below `small_threshold` at any comparison.",
    .advice = "Change the learning rate.",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(tensor_memory),
    .init = init,
    .wants = sonde__builtin_wants_role,
    .bind = bind,
    .observe = observe,
    .step = step,
    .destroy = destroy,
};

/*
 * WeightUpdateRatio - a weight's updates are too large or too small for it.
 *
 * This file measures by how much each weight changes, as update_ratio.h says, and judges
 * each weight by itself; update_rates.c judges all weights of a step together.
 *
 * Evidence: raw weights, and losses. Without raw weights, vital signs bound |w - w'| from
 * below by the change of the norm and of the mean, and so can show that an update is
 * large, nothing else.
 */
#include "rules/builtin/update_ratio.h"

#include <string.h>

#define LEAST_RMS 1e-2
#define AT_ONCE 100.0
enum { WEIGHTS = 0, LOSSES = 1, SAMPLE = 512 };

typedef sonde__builtin_update_ratio update_ratio;

SONDE__TERMS(too_large, NOTE, ERROR, ERROR, NOTE, NOTE);
SONDE__TERMS(too_small, NOTE, WARNING, WARNING, NOTE, WARNING);

/* One weight's change from w' to w. */
typedef struct update {
    double change, norm; /* |w - w'| and |w'| */
    double steps;        /* k / num_steps, at least 1 */
    double count;        /* elements */
    bool exact;          /* false: change is a lower bound, from vital signs */
    double ratio;        /* r */
    double tame;         /* r with |w'| of at least a root mean square of 1e-2, so that
                            weights that begin at 0 may rise */
} update;

typedef struct tensor_memory {
    size_t raw_count;
    int64_t raw_age, vitals_age;
    int64_t raw_last, vitals_last; /* see sonde__builtin_steps_since */
    int64_t large, small;          /* comparisons in a row; small ones: */
    double first;                  /* r at the beginning of them */
    double last;                   /* r of the comparison before */
    bool moved;                    /* r was ever at least small_threshold */
    bool slowly;                   /* r has fallen below the threshold step by step */
    bool compared;                 /* at this step, by raw values: */
    update update;
    double even;   /* see sonde__builtin_updates */
    double across; /* |w - w'| less its part along -w', as weight decay makes it */
    sonde_vitals before;
    bool has_before;
    double raw[SAMPLE]; /* of w' */
} tensor_memory;

static const sonde_rule_param update_ratio_params[] = {
    SONDE__COUNT(update_ratio, num_steps, "1", 1, 1e9,
                 "number of observed steps between w' and w"),
    SONDE__REAL(update_ratio, large_threshold, "10", 0, 1e300,
                "largest acceptable ratio r of a weight"),
    SONDE__REAL(update_ratio, small_threshold, "1e-8", 0, 1e300,
                "smallest acceptable ratio r of a weight"),
    SONDE__REAL(update_ratio, epsilon, "1e-9", 0, 1e300,
                "number added to the norm of w'"),
    SONDE__REAL(update_ratio, fast, "0.1", 0, 1e300,
                "largest acceptable median ratio unless the loss falls; 0: do not check"),
    SONDE__REAL(update_ratio, slow, "3e-5", 0, 1,
                "largest ratio at which nothing is learned; 0: do not check"),
    SONDE__COUNT(update_ratio, patience, "1", 1, 1e9,
                 "number of comparisons in a row above large_threshold"),
    SONDE__COUNT(update_ratio, small_patience, "10", 1, 1e9,
                 "number of comparisons in a row below small_threshold"),
    SONDE__SMDEBUG(update_ratio),
};
/* The first 40 comparisons are judged together. */
#define FIRST_AND_PAIRS SONDE__WHEN(.first = 50, .every = 100, .row = 2, .row_every = 100)
static const sonde_rule_need update_ratio_needs[] = {
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
                    const sonde_observation *observation)
{
    const update_ratio *state = sonde_rule_state(run);
    tensor_memory *memory = tensor->memory;
    double values[SAMPLE], change = 0.0, norm = 0.0, sum = 0.0, along = 0.0;
    const size_t count = sonde__builtin_sample_first(observation, SAMPLE, values);

    memory->raw_age += count > 0;
    if (count == 0 || (memory->raw_count > 0 && memory->raw_age < state->num_steps)) {
        return;
    }
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
    memory->across = sqrt(fmax(change - (norm > 0.0 ? along * along / norm : 0.0), 0.0));
    memory->even = change > 0.0 ? sum * sum / (change * (double)count) : 0.0;
    memory->update = (update){.change = sqrt(change),
                              .norm = sqrt(norm),
                              .steps = steps_between(run, &memory->raw_last),
                              .count = (double)count,
                              .exact = true};
    memory->compared = memory->raw_count == count && isfinite(change);
    memory->raw_count = count;
}

/*
 * Fires when r is above large_threshold at `patience` comparisons in a row. With smdebug, r
 * is not divided by the steps between, and weights near 0 count in full.
 */
static void judge_large(sonde_rule_run *run, const sonde_rule_tensor *t, const update *u)
{
    const update_ratio *state = sonde_rule_state(run);
    tensor_memory *memory = t->memory;
    const double ratio = state->smdebug ? u->ratio : u->ratio / u->steps;
    const double judged = state->smdebug ? ratio : u->tame / u->steps;

    memory->large = judged > state->large_threshold ? memory->large + 1 : 0;
    if (memory->large >= state->patience) {
        sonde__rule_report(run, t, state->smdebug ? SONDE__SURE(ERROR) : &too_large,
                           "update_ratio", ratio, state->large_threshold,
                           "Lower the learning rate, or clip gradients.",
                           "It changed by %s%.3g times its own size.",
                           u->exact && u->steps <= 1.0 ? "" : "at least ", ratio);
    }
}

/* Whether the program shows that an optimizer holds a weight. */
static bool is_held(const sonde_rule_run *run, const sonde_rule_tensor *t)
{
    const sonde_program *program = sonde_rule_program(run, SONDE_MODE_TRAIN);
    const char *name = sonde_rule_info(run, t->id)->name;

    for (size_t i = 0; program != NULL && i < program->parameter_count; i++) {
        if (strcmp(program->parameters[i].name, name) == 0) {
            return program->parameters[i].optimizer >= 0;
        }
    }
    return false;
}

/*
 * Fires when 0 < r < small_threshold (a weight that does not change at all is
 * FrozenParameter's) at small_patience comparisons in a row in which r has not doubled: a
 * weight after a branch that begins at 0 wakes slowly. A note where r has fallen there step
 * by step, from above small_threshold, each time to more than 1 / AT_ONCE of its value: so
 * ends training whose loss has reached 0, or a schedule. A warning, however training goes, where
 * an optimizer holds the weight and r was never more. With smdebug, r = 0 counts.
 */
static void judge_small(sonde_rule_run *run, const sonde_rule_tensor *t, const update *u)
{
    const update_ratio *state = sonde_rule_state(run);
    tensor_memory *memory = t->memory;
    const double ratio = u->ratio;
    const bool small =
        u->exact && (ratio > 0.0 || state->smdebug) && ratio < state->small_threshold;

    if (!small || memory->small == 0 || ratio > 2.0 * memory->first) {
        memory->small = 0;
        memory->first = ratio;
    }
    if (small && memory->last >= state->small_threshold) {
        memory->slowly = ratio * AT_ONCE > memory->last;
    }
    memory->last = u->exact ? ratio : memory->last;
    memory->moved = memory->moved || (u->exact && ratio >= state->small_threshold);
    memory->small += small;
    if (memory->small >= state->small_patience) {
        sonde__rule_report(run, t,
                           state->smdebug                      ? SONDE__SURE(WARNING)
                           : memory->slowly                    ? SONDE__SURE(NOTE)
                           : !memory->moved && is_held(run, t) ? SONDE__SURE(WARNING)
                                                               : &too_small,
                           "update_ratio", ratio, state->small_threshold,
                           "Raise the learning rate.",
                           "It changed by only %.3g times its own size.", ratio);
    }
}

/* Judges a weight by itself; one with raw values is among the weights of the step. */
static void judge(sonde_rule_run *run, const sonde_rule_tensor *t, update u)
{
    update_ratio *state = sonde_rule_state(run);
    const tensor_memory *memory = t->memory;
    sonde__builtin_updates *all = &state->step;

    u.ratio = u.change / (u.norm + state->epsilon);
    u.tame = u.change / (fmax(u.norm, LEAST_RMS * sqrt(u.count)) + state->epsilon);
    judge_large(run, t, &u);
    judge_small(run, t, &u);
    if (u.exact && u.count > 1.0 && all->count < SONDE__UPDATE_WEIGHTS) {
        const double tame = u.tame / u.steps, count = (double)all->count;

        all->even = (all->even * count + memory->even) / (count + 1.0);
        all->ratios[all->count++] = tame;
        all->elements += u.count;
        all->fastest = tame >= all->largest ? sonde__builtin_index(run, t) : all->fastest;
        all->largest = fmax(all->largest, tame);
        all->largest_between = fmax(all->largest_between, u.tame);
        if (u.change > 0.0) {
            all->across = fmax(all->across, u.tame * memory->across / u.change);
        }
    }
}

static void take_weight(sonde_rule_run *run, const sonde_rule_tensor *t)
{
    const update_ratio *state = sonde_rule_state(run);
    const sonde_vitals *now = t->vitals;
    tensor_memory *memory = t->memory;
    const bool finite = sonde__builtin_is_finite(now);

    if (memory->compared) {
        judge(run, t, memory->update);
    } else if (finite && memory->has_before &&
               memory->vitals_age + 1 >= state->num_steps) {
        int64_t last = memory->vitals_last;

        judge(run, t,
              (update){.change = sonde__builtin_least_change(now, &memory->before),
                       .norm = sqrt(memory->before.sumsq),
                       .steps = steps_between(run, &last),
                       .count = (double)now->count});
    }
    memory->compared = false;
    memory->vitals_age += finite;
    if (finite && (!memory->has_before || memory->vitals_age >= state->num_steps)) {
        (void)sonde__builtin_steps_since(run, &memory->vitals_last);
        memory->before = *now;
        memory->has_before = true;
        memory->vitals_age = 0;
    }
}

static void step(sonde_rule_run *run)
{
    update_ratio *state = sonde_rule_state(run);
    const sonde_vitals *loss = sonde__builtin_loss_of(run, LOSSES, true);

    state->from_start =
        state->seen ? state->from_start : sonde_rule_at(run)->mode_step == 0;
    state->seen = true;
    state->step = (sonde__builtin_updates){
        .fastest = state->step.fastest, .loss = loss != NULL ? loss->mean : (double)NAN};
    SONDE__EACH_OF (run, t, WEIGHTS) {
        take_weight(run, t);
    }
    sonde__builtin_update_judge(run);
}

const sonde_rule sonde__builtin_weight_update_ratio = {
    SONDE__RULE("WeightUpdateRatio", update_ratio),
    .summary = "a weight's updates are too large or too small for its size",
    .condition =
        "Each weight has the ratio r = |w - w'|2 / (|w'|2 + `epsilon`). Any of these holds: (1) r is above `large_threshold` at `patience` comparisons in a row; (2) r is below `small_threshold` at `small_patience` comparisons in a row; "
        "(3) the median of r over the weights is above 2 `fast` at three steps in a row; (4) that median is above `fast` at three steps in a row while the loss does not fall; (5) the largest r is below `slow` over the first 40 steps while the loss does not fall. "
        "(3) fires at the start of a run only if the loss does not fall. If the optimizer divides by the size of gradients, it fires there only if the loss rises or this lasts. "
        "(4) is a note if the median was never above 1.5 `fast`. (5) also fires if r is below `slow` only without the part that shrinks weights in proportion, as weight decay does. "
        "(1) to (4) wait for training: they are notes if training goes well. "
        "With `smdebug` (implied if only `num_steps`, `epsilon` or a threshold is set), the rule fires when r is above `large_threshold` or below `small_threshold` at any comparison.",
    .advice = "Change the learning rate.",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(tensor_memory),
    .init = init,
    .wants = sonde__builtin_wants_role,
    .observe = observe,
    .step = step,
};

/*
 * VanishingGradient - a gradient is too small for its parameter to learn.
 *
 * Fires for a gradient g when, at `patience` observed steps in a row,
 *     tiny     mean |g| is below threshold and below relative times the largest mean |g|
 *              of the step (where all gradients are small, the network has converged); or
 *     gone     all elements are 0, which they were not before, while another gradient is
 *              not 0; or
 *     all      the largest mean |g| of the step is below threshold, and that is not the
 *              end of learning: the loss is not near 0, and either gradients were as
 *              small at the first step that is judged, or they became so at once, not
 *              step by step; or
 *     profile  among at least four weights, from the output to the input, gradients
 *              shrink at nearly every layer, and by a factor of `profile` in all.
 * A gradient that was below relative times the step's largest at each step so far, while
 * weights before and after its own have larger ones, is that of a branch that the data do
 * not use (a scale that no object has): a note. With depth, gradients vanish for all
 * weights before.
 *
 * The mean is over elements that are not 0: rows of an embedding that a batch does not
 * use say nothing. Gradients of one dimension are only judged with `biases`, because a
 * bias before a normalisation has only rounding errors. A gradient that was 0 from the
 * start is frozen, and a gradient that doubles within the patience is growing; neither
 * fires.
 *
 * With smdebug: at any step, the mean of |g| over all elements is below threshold.
 *
 * Evidence: vital signs of gradients; losses, if there are any.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/vanishing.h"
#include "rules/builtin/builtin_vitals.h"
#include "rules/suspicion.h"

#include <math.h>
#include <string.h>

enum { LASTING = 10 };
static const sonde__rule_terms vanished = {.looks = LASTING,
                                           SONDE__TERMS(NOTE, ERROR, ERROR, NOTE, ERROR)};
/* A branch that the data do not use. */
static const sonde__rule_terms unused = {.looks = LASTING,
                                         SONDE__TERMS(NOTE, NOTE, NOTE, NOTE, NOTE)};
/* A loss is near 0 below this, or below this part of its first value. */
#define LOSS_END 1e-4
#define LOSS_PART 0.02
/* Gradients that fall by more than this from one observed step to the next do so at once.
 * Between steps that lie further apart they may fall further. */
#define AT_ONCE 1e-3

static const sonde_rule_param params[] = {
    SONDE__REAL(sonde__builtin_vanishing, threshold, "1e-7", 0, 1e30,
                "mean of |gradient| below which a gradient is tiny"),
    SONDE__COUNT(sonde__builtin_vanishing, patience, "3", 1, 1e9,
                 "observed steps in a row"),
    SONDE__REAL(sonde__builtin_vanishing, relative, "1e-3", 0, 1e30,
                "a gradient is tiny only below this share of the step's largest; 0: "
                "regardless of the others"),
    SONDE__REAL(sonde__builtin_vanishing, profile, "1e-4", 0, 1,
                "ratio of the first to the last layer's gradient below which gradients "
                "vanish; 0: do not check"),
    SONDE__FLAG(sonde__builtin_vanishing, biases, "false",
                "judge gradients of one dimension as well"),
    SONDE__SMDEBUG(sonde__builtin_vanishing),
};
static const sonde_rule_need needs[] = {
    {"gradients", SONDE_HOW_VITALS, false, SONDE__GRADIENTS, SONDE__AT_TIMES},
    {"losses", SONDE_HOW_VITALS, true, SONDE__LOSSES, SONDE__EACH_STEP}};

static sonde_err init(sonde_rule_run *run, sonde_diag *diag)
{
    sonde__builtin_vanishing *state = sonde_rule_state(run);

    (void)diag;
    state->smdebug =
        sonde__builtin_as_smdebug(run, "threshold", "patience,relative,profile,biases");
    state->first_loss = state->loss = (double)NAN;
    return SONDE_OK;
}

static sonde_err bind(sonde_rule_run *run, size_t i, sonde_diag *diag)
{
    sonde__builtin_vanishing *state = sonde_rule_state(run);
    const sonde_rule_tensor *tensors = sonde__builtin_tensors(run);
    const sonde_tensor_info *info = sonde_rule_info(run, tensors[i].id);
    sonde__builtin_vanishing_memory *memory = tensors[i].memory;

    (void)diag;
    if (tensors[i].need != SONDE__VANISHING_GRADIENTS) {
        return SONDE_OK;
    }
    memory->alive = sonde__builtin_was_nonzero(run, tensors[i].id);
    memory->weight = info->rank >= 2 && strncmp(info->name, "Accum___", 8) != 0;
    memory->judged = memory->weight || info->rank >= 2 || state->biases;
    state->layers += memory->weight;
    return SONDE_OK;
}

/* The number of steps in a row at which it was small, with this one. */
static int64_t last_small(sonde__builtin_vanishing_memory *memory, bool small)
{
    if (!small) {
        memory->small = 0;
    } else if (memory->small++ == 0) {
        memory->first_small = memory->now;
    } else if (memory->now > 2.0 * memory->first_small) {
        memory->small = 1; /* it grows */
        memory->first_small = memory->now;
    }
    return memory->small;
}

/* The mean of the losses of this step, if it has any. */
static void take_loss(sonde__builtin_vanishing *state, const sonde_rule_tensor *tensors,
                      size_t count)
{
    double sum = 0.0;
    size_t losses = 0;

    for (size_t i = 0; i < count; i++) {
        const sonde_vitals *v = tensors[i].vitals;

        if (tensors[i].need == SONDE__VANISHING_LOSSES && v != NULL && v->count > 0 &&
            sonde__builtin_bad(v) == 0) {
            sum += fabs(v->mean);
            losses++;
        }
    }
    if (losses > 0) {
        state->loss = sum / (double)losses;
        state->first_loss = isnan(state->first_loss) ? state->loss : state->first_loss;
    }
}

static bool has_learnt(const sonde__builtin_vanishing *state)
{
    return state->loss < LOSS_END || state->loss < LOSS_PART * state->first_loss;
}

/* True if all gradients of this step have vanished; largest: their largest mean. */
static bool all_vanished(sonde_rule_run *run, double largest)
{
    sonde__builtin_vanishing *state = sonde_rule_state(run);
    const int64_t steps = sonde__builtin_steps_since(run, &state->last);
    const bool small = largest < state->threshold;
    const bool began =
        !state->any || largest < state->largest * pow(AT_ONCE, fmax((double)steps, 1.0));

    state->all = small && !has_learnt(state) && (state->all || began);
    state->largest = largest;
    state->any = true;
    return state->all;
}

/* The condition that smdebug documents. */
static void judge_as_smdebug(sonde_rule_run *run)
{
    const sonde__builtin_vanishing *state = sonde_rule_state(run);
    const sonde_rule_tensor *tensors = sonde__builtin_tensors(run);

    SONDE__EACH (run, i) {
        const sonde_vitals *v = tensors[i].vitals;
        const bool finite = v != NULL && v->count > 0 && sonde__builtin_bad(v) == 0;
        const double mean = finite ? v->l1 / (double)v->count : (double)NAN;

        if (tensors[i].need == SONDE__VANISHING_GRADIENTS && mean < state->threshold &&
            sonde_rule_found(run, i, SONDE_SEVERITY_ERROR, "abs_mean", mean,
                             state->threshold)) {
            sonde_rule_say(run, NULL, "The mean of |gradient| is %.3g, below %.3g.", mean,
                           state->threshold);
        }
    }
}

static bool any_seen(const sonde_rule_tensor *tensors, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (((const sonde__builtin_vanishing_memory *)tensors[i].memory)->seen) {
            return true;
        }
    }
    return false;
}

static const sonde__rule_terms *terms_of(const sonde__builtin_vanishing *state,
                                         const sonde_rule_tensor *tensors, size_t count,
                                         size_t i, double largest)
{
    return !state->all &&
                   sonde__builtin_vanishing_is_branch(state, tensors, count, i, largest)
               ? &unused
               : &vanished;
}

static void judge(sonde_rule_run *run, double largest)
{
    const sonde__builtin_vanishing *state = sonde_rule_state(run);
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);
    const bool all = all_vanished(run, largest);
    const size_t far =
        state->layers >= SONDE__VANISHING_LEAST_LAYERS && state->profile > 0
            ? sonde__builtin_vanishing_vanished_on_the_way(tensors, count, state->profile)
            : count;

    for (size_t i = 0; i < count; i++) {
        sonde__builtin_vanishing_memory *memory = tensors[i].memory;
        const bool tiny =
            memory->now > 0.0 && memory->now < state->threshold &&
            (state->relative <= 0.0 || memory->now < state->relative * largest);
        const bool gone = memory->now <= 0.0 && memory->alive && largest > 0.0;

        if (!memory->seen || !memory->judged) {
            continue;
        }
        memory->mattered = memory->mattered || memory->now >= state->relative * largest;
        if (last_small(memory, tiny || gone || all || i == far) < state->patience) {
            sonde__rule_clear(run, i);
        } else if (sonde__rule_suspect(
                       run, i, terms_of(state, tensors, count, i, largest), "abs_mean",
                       memory->now,
                       i == far && !tiny ? state->profile * largest : state->threshold)) {
            sonde__builtin_vanishing_report(run, memory, largest, i == far && !tiny);
        }
    }
}

/* Whether any gradient of this step can be judged. */
static void note_bad(sonde_rule_run *run, const sonde_rule_tensor *tensors, size_t count)
{
    sonde__builtin_vanishing *state = sonde_rule_state(run);
    size_t bad = 0, finite = 0;

    for (size_t i = 0; i < count; i++) {
        const sonde_vitals *v = tensors[i].vitals;

        if (tensors[i].need == SONDE__VANISHING_GRADIENTS && v != NULL && v->count > 0) {
            bad += sonde__builtin_bad(v) > 0;
            finite += sonde__builtin_bad(v) == 0;
        }
    }
    if (finite > 0) {
        state->bad = false;
    } else if (bad > 0 && !state->bad) {
        state->bad = true;
        state->bad_from = sonde_rule_at(run)->global_step;
    }
}

static void finish(sonde_rule_run *run)
{
    const sonde__builtin_vanishing *state = sonde_rule_state(run);

    if (state->bad) {
        sonde_rule_lacked(run,
                          "all gradients are NaN or infinite from step %lld on, see "
                          "NonFinite",
                          (long long)state->bad_from);
    }
}

static void step(sonde_rule_run *run)
{
    sonde__builtin_vanishing *state = sonde_rule_state(run);
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    note_bad(run, tensors, count);
    if (state->smdebug) {
        judge_as_smdebug(run);
        return;
    }
    take_loss(state, tensors, count);
    const double largest = sonde__builtin_vanishing_take_means(tensors, count);

    if (any_seen(tensors, count)) {
        judge(run, largest);
    }
}

const sonde_rule sonde__builtin_vanishing_gradient = {
    SONDE__RULE("VanishingGradient", sonde__builtin_vanishing),
    .summary = "a gradient is too small for its parameter to learn",
    .condition =
        "Over `patience` observed steps, the mean of |gradient| (of elements that are not 0) is below `threshold` and below `relative` times the step's largest; or all elements have become 0; or all gradients are below `threshold` from the first step on or from one step to the next, while the loss is not near 0; or gradients shrink by a factor of `profile` from the last layer to the first. It waits for training: a note where training goes well, nothing where the gradient grows. A note for a gradient that was never above `relative` times the step's largest while weights before and after its own have larger ones: a branch that the data do not use. With `smdebug`, which `threshold` alone implies: the mean of |gradient| of any gradient is below `threshold` at any step.",
    .advice = "Use ReLU-like activations, normalisation or residual connections, and an "
              "initialisation that preserves the variance.",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(sonde__builtin_vanishing_memory),
    .init = init,
    .wants = sonde__builtin_wants_role,
    .bind = bind,
    .step = step,
    .finish = finish,
};

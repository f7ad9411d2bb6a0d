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
 * weights before and after it have larger ones, is a note: the data do not use this branch
 * (a scale that no object has). If depth is the cause, gradients vanish for all weights
 * before.
 *
 * The mean is over elements that are not 0, so rows of an embedding that a batch does not
 * use are ignored. Gradients of one dimension are only judged with `biases`, because a
 * bias before a normalization has only rounding errors. A gradient that doubles within the
 * patience is growing and does not fire.
 *
 * A gradient that is there and exactly 0 at the first NEVER observed steps fires, too, while
 * another is not 0: the loss does not depend on the parameter, whether or not weight decay
 * moves it. It is a note for a branch as above, an error however training goes, and a
 * warning if the loss need not fall (players take turns).
 *
 * A gradient that is gone for GONE observed steps, with those of all weights before it, is a
 * warning however training goes, unless the loss need not fall: the rest of the network
 * learns without these layers.
 *
 * With smdebug: at any step, the mean of |g| over all elements is below threshold.
 *
 * Evidence: vital signs of gradients; losses, if there are any.
 */
#include "rules/builtin/builtin.h"

#include "rules/context.h"

#include <sonde/trial.h>

#include <string.h>

enum { GRADIENTS, LOSSES }; /* needs */
enum { LEAST_LAYERS = 4, LASTING = 10, NEVER = 20, GONE = 100 };

typedef struct vanishing {
    double threshold, relative, profile;
    int64_t patience;
    bool biases, smdebug;
    double largest;          /* mean |g| of the last step with gradients */
    int64_t last;            /* see sonde__builtin_steps_since */
    double first_loss, loss; /* NaN: none yet */
    bool any, all;           /* a step had gradients; at the last, all had vanished */
    bool bad;         /* no gradient of the last step with gradients is finite ... */
    int64_t bad_from; /* ... since this one */
} vanishing;

typedef struct tensor_memory {
    double now;         /* mean |g| at the last step with this gradient */
    int64_t gone;       /* observed steps in a row at which it was gone, at the front */
    int64_t small;      /* observed steps in a row at which it was small */
    double first_small; /* mean at the first of them */
    int64_t zeros;      /* observed steps at which it was 0, if it was never more */
    bool alive;         /* was ever not 0 */
    bool mattered;      /* was ever at least `relative` times the step's largest */
    bool weight, seen, judged;
} tensor_memory;

SONDE__TERMS(vanished, NOTE, ERROR, ERROR, NOTE, ERROR, .looks = LASTING);
/* Exactly 0 from the first step on. */
SONDE__TERMS(never, ERROR, ERROR, ERROR, ERROR, ERROR);
/* ... where players may take turns. */
SONDE__TERMS(never_yet, WARNING, WARNING, WARNING, WARNING, WARNING);
/* A branch that the data do not use. */
SONDE__TERMS(unused, NOTE, NOTE, NOTE, NOTE, NOTE, .looks = LASTING);
/* A loss is near 0 below this, or below this part of its first value. */
#define LOSS_END 1e-4
#define LOSS_PART 0.02
/* Gradients that fall by more than this from one observed step to the next do so at once.
 * Between steps that lie further apart they may fall further. */
#define AT_ONCE 1e-3

static const sonde_rule_param vanishing_params[] = {
    SONDE__REAL(vanishing, threshold, "1e-7", 0, 1e30,
                "mean of |gradient| below which a gradient is tiny"),
    SONDE__COUNT(vanishing, patience, "3", 1, 1e9,
                 "number of observed steps in a row at which a condition must hold"),
    SONDE__REAL(vanishing, relative, "1e-3", 0, 1e30,
                "a gradient is tiny only below this share of the step's largest; 0: "
                "regardless of the others"),
    SONDE__REAL(vanishing, profile, "1e-4", 0, 1,
                "ratio of the first to the last layer's gradient below which gradients "
                "vanish; 0: do not check"),
    SONDE__FLAG(vanishing, biases, "false",
                "judge gradients of one dimension (biases) as well"),
    SONDE__SMDEBUG(vanishing),
};
static const sonde_rule_need vanishing_needs[] = {
    {"gradients", SONDE_HOW_VITALS, false, SONDE__GRADIENTS, SONDE__AT_TIMES},
    {"losses", SONDE_HOW_VITALS, true, SONDE__LOSSES, SONDE__EACH_STEP}};

/* --- the gradients of one step, from layer to layer -------------------------------- */

/* Computes the means of this step. Returns the largest; negative: none was seen. */
static double take_means(sonde_rule_run *run)
{
    double largest = -1.0;

    SONDE__EACH (run, t) {
        const sonde_vitals *v = t->vitals;
        tensor_memory *memory = t->memory;

        memory->seen = t->need == GRADIENTS && sonde__builtin_is_finite(v) &&
                       !isnan(v->l1) && /* NaN: smdebug saved other statistics */
                       !(v->zero == v->count && sonde__builtin_is_reverse_recurrence(
                                                    sonde_rule_info(run, t->id)->name));
        if (memory->seen) {
            const uint64_t n = sonde__builtin_nonzero(v);

            memory->now = n > 0 ? v->l1 / (double)n : 0.0;
            memory->alive = memory->alive || n > 0;
            largest = fmax(largest, memory->now);
        }
    }
    return largest;
}

/*
 * The last tensor on the way to the input if gradients vanish on that way, else NULL.
 * Gradients of weights are declared from output to input or in reverse; they vanish in the
 * direction in which they shrink.
 */
static const sonde_rule_tensor *vanished_on_the_way(sonde_rule_run *run, double share)
{
    size_t layers = 0, down = 0, up = 0;
    const sonde_rule_tensor *first = NULL, *last = NULL;
    double start = 0.0, before = 0.0;

    SONDE__EACH (run, t) {
        const tensor_memory *memory = t->memory;

        if (!memory->weight || !memory->seen || memory->now <= 0.0) {
            continue;
        }
        if (layers++ == 0) {
            first = t;
            start = memory->now;
        } else {
            down += memory->now < before;
            up += memory->now > before;
        }
        before = memory->now;
        last = t;
    }
    return layers < LEAST_LAYERS                                    ? NULL
           : 4 * down >= 3 * (layers - 1) && before < share * start ? last
           : 4 * up >= 3 * (layers - 1) && start < share * before   ? first
                                                                    : NULL;
}

/* True if weights before and after a tensor have gradients that are not small. */
static bool is_branch(sonde_rule_run *run, const sonde_rule_tensor *tensor,
                      double largest)
{
    const vanishing *state = sonde_rule_state(run);
    const double least = fmax(state->threshold, state->relative * largest);
    bool before = false, after = false;

    SONDE__EACH (run, t) {
        const tensor_memory *other = t->memory;

        if (other->weight && other->seen && other->now >= least) {
            before = before || t < tensor;
            after = after || t > tensor;
        }
    }
    return before && after;
}

static void describe(sonde_rule_run *run, const tensor_memory *memory, double largest,
                     bool on_the_way)
{
    const vanishing *state = sonde_rule_state(run);
    const double now = memory->now;

    if (state->all) {
        sonde_rule_say(
            run,
            "Look for dead units or saturated activations after it: lower the "
            "learning rate, and check the loss and what is detached.",
            "The gradients of all parameters have vanished: the mean of "
            "|gradient| is %.3g here and nowhere above %.3g, so nothing learns.",
            now, largest);
    } else if (now <= 0.0) {
        sonde_rule_say(run,
                       "Look for dead units after it: lower the learning rate, or use a "
                       "leaky activation.",
                       "All elements of the gradient have become exactly 0, while the "
                       "mean of another is %.3g: this parameter no longer learns.",
                       largest);
    } else if (on_the_way) {
        sonde_rule_say(run, NULL,
                       "From the output to this layer the mean of |gradient| shrinks to "
                       "%.2g times its value (here %.3g): the first layers hardly learn.",
                       now / largest, now);
    } else {
        sonde_rule_say(run, NULL,
                       "The mean of |gradient| is %.3g, while the largest of this step "
                       "is %.3g: this parameter hardly learns.",
                       now, largest);
    }
}

/* --- the rule ---------------------------------------------------------------------- */

static sonde_err init(sonde_rule_run *run, sonde_diag *diag)
{
    vanishing *state = sonde_rule_state(run);

    (void)diag;
    state->smdebug =
        sonde__builtin_as_smdebug(run, "threshold", "patience,relative,profile,biases");
    state->first_loss = state->loss = (double)NAN;
    return SONDE_OK;
}

/* True if the trial has vital signs of the tensor, with elements that are not 0, from before
 * the first step that is judged. */
static bool was_nonzero(const sonde_rule_run *run, uint32_t id)
{
    int64_t *steps = NULL, begin = 0;
    sonde_vitals *vitals = NULL;
    size_t count = 0;
    bool was = false;
    sonde_trial *trial = sonde__rule_trial(run, &begin);

    if (trial == NULL || begin <= 0 ||
        sonde_trial_vitals_series(trial, id, SONDE_MODE_GLOBAL, -1, 0, begin, &steps,
                                  &vitals, &count, NULL) != SONDE_OK) {
        return false;
    }
    for (size_t i = 0; i < count && !was; i++) {
        was = sonde_vitals_are_norms(&vitals[i]) ? vitals[i].abs_max > 0.0
                                                 : vitals[i].zero < vitals[i].count;
    }
    sonde_release(steps);
    sonde_release(vitals);
    return was;
}

static sonde_err bind(sonde_rule_run *run, size_t i, sonde_diag *diag)
{
    const vanishing *state = sonde_rule_state(run);
    const sonde_rule_tensor *t = sonde__builtin_at(run, i);
    const sonde_tensor_info *info = sonde_rule_info(run, t->id);
    tensor_memory *memory = t->memory;

    (void)diag;
    if (t->need == GRADIENTS) {
        memory->alive = was_nonzero(run, t->id);
        memory->weight = info->rank >= 2 && strncmp(info->name, "Accum___", 8) != 0;
        memory->judged = info->rank >= 2 || state->biases;
    }
    return SONDE_OK;
}

/* The number of steps in a row at which it was small, with this one. */
static int64_t last_small(tensor_memory *memory, bool small)
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
static void take_loss(sonde_rule_run *run, vanishing *state)
{
    double sum = 0.0;
    size_t losses = 0;

    SONDE__EACH_FINITE (run, t, LOSSES) {
        sum += fabs(t->vitals->mean);
        losses++;
    }
    if (losses > 0) {
        state->loss = sum / (double)losses;
        state->first_loss = isnan(state->first_loss) ? state->loss : state->first_loss;
    }
}

static bool has_learnt(const vanishing *state)
{
    return state->loss < LOSS_END || state->loss < LOSS_PART * state->first_loss;
}

/* True if all gradients of this step have vanished; largest: their largest mean. */
static bool all_vanished(sonde_rule_run *run, double largest)
{
    vanishing *state = sonde_rule_state(run);
    const int64_t steps = sonde__builtin_steps_since(run, &state->last);
    const bool small = largest < state->threshold;
    const bool began =
        !state->any || largest < state->largest * pow(AT_ONCE, fmax((double)steps, 1.0));

    state->all = small && !has_learnt(state) && (state->all || began);
    state->largest = largest;
    state->any = true;
    return state->all;
}

/* A gradient that was never more than 0. */
static void judge_zeros(sonde_rule_run *run, const sonde_rule_tensor *t, double largest)
{
    tensor_memory *memory = t->memory;

    if (++memory->zeros >= NEVER) {
        sonde__rule_report(
            run, t,
            is_branch(run, t, largest)      ? &unused
            : sonde__rule_loss_is_free(run) ? &never_yet
                                            : &never,
            "abs_mean", 0.0, 0.0,
            "Look for units that are dead from the start (biases far below 0), for detach, "
            "and for a factor of 0 between this parameter and the loss.",
            "Its gradient has been exactly 0 since the first step, while the mean of "
            "another is %.3g: the loss does not depend on this parameter.",
            largest);
    }
}

/* The condition that smdebug documents. */
static void judge_as_smdebug(sonde_rule_run *run)
{
    const vanishing *state = sonde_rule_state(run);

    SONDE__EACH_FINITE (run, t, GRADIENTS) {
        const double mean = t->vitals->l1 / (double)t->vitals->count;

        if (mean < state->threshold) {
            sonde__rule_report(
                run, t, SONDE__SURE(ERROR), "abs_mean", mean, state->threshold, NULL,
                "The mean of |gradient| is %.3g, below %.3g.", mean, state->threshold);
        }
    }
}

/* A gradient that is gone; front: so are those of all weights before. */
static void judge_gone(sonde_rule_run *run, const sonde_rule_tensor *t, bool front)
{
    tensor_memory *memory = t->memory;

    memory->gone = front ? memory->gone + 1 : 0;
    if (memory->gone >= GONE && !sonde__rule_loss_may_rise(run)) {
        sonde__rule_report(
            run, t, SONDE__SURE(WARNING), "abs_mean", 0.0, 0.0,
            "Look for units that have died, and for a detach or a factor of "
            "0 that begins at some step.",
            "Its gradient has become exactly 0 and stayed so for %d "
            "observed steps: this parameter no longer learns.",
            GONE);
    }
}

static void judge(sonde_rule_run *run, double largest)
{
    const vanishing *state = sonde_rule_state(run);
    const bool all = all_vanished(run, largest);
    const sonde_rule_tensor *far =
        state->profile > 0 ? vanished_on_the_way(run, state->profile) : NULL;
    bool front = true; /* no weight before has a gradient */

    SONDE__EACH (run, t) {
        tensor_memory *memory = t->memory;
        const bool tiny =
            memory->now > 0.0 && memory->now < state->threshold &&
            (state->relative <= 0.0 || memory->now < state->relative * largest);
        const bool gone = memory->now <= 0.0 && memory->alive && largest > 0.0;

        if (!memory->seen || !memory->judged) {
            continue;
        }
        front = front && memory->now <= 0.0;
        judge_gone(run, t, gone && front);
        memory->mattered = memory->mattered || memory->now >= state->relative * largest;
        if (!memory->alive && largest > 0.0) {
            judge_zeros(run, t, largest);
            continue;
        }
        if (last_small(memory, tiny || gone || all || t == far) < state->patience) {
            sonde__rule_clear(run, t);
        } else if (sonde__rule_holds(
                       run, t,
                       !all && !memory->mattered && is_branch(run, t, largest)
                           ? &unused
                           : &vanished,
                       "abs_mean", memory->now,
                       t == far && !tiny ? state->profile * largest : state->threshold)) {
            describe(run, memory, largest, t == far && !tiny);
        }
    }
}

/* Whether any gradient of this step can be judged. */
static void note_bad(sonde_rule_run *run)
{
    vanishing *state = sonde_rule_state(run);
    size_t bad = 0, finite = 0;

    SONDE__EACH_SEEN (run, t, GRADIENTS) {
        bad += sonde__builtin_bad(t->vitals) > 0;
        finite += sonde__builtin_is_finite(t->vitals);
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
    const vanishing *state = sonde_rule_state(run);

    if (state->bad) {
        sonde_rule_lacked(run,
                          "all gradients are NaN or infinite from step %lld on, see "
                          "NonFinite",
                          (long long)state->bad_from);
    }
}

static void step(sonde_rule_run *run)
{
    vanishing *state = sonde_rule_state(run);

    note_bad(run);
    if (state->smdebug) {
        judge_as_smdebug(run);
        return;
    }
    take_loss(run, state);
    const double largest = take_means(run);

    if (largest >= 0.0) {
        judge(run, largest);
    }
}

const sonde_rule sonde__builtin_vanishing_gradient = {
    SONDE__RULE("VanishingGradient", vanishing),
    .summary = "a gradient is too small for its parameter to learn",
    .condition =
        "Any of these holds over `patience` observed steps: (1) the mean of |gradient| over elements that are not 0 is below `threshold` and below `relative` times the largest such mean of the step; (2) all elements have become 0; "
        "(3) all gradients are below `threshold` from the first step on, or become so from one step to the next, while the loss is not near 0; (4) gradients shrink by a factor of `profile` from the last layer to the first; (5) at the first 20 observed steps, all elements are exactly 0, while another gradient is not. "
        "The finding waits for training: it is a note if training goes well (but for (5), an error), and is dropped if the gradient grows. (2) is a warning if the gradients of all layers before are gone too, for 100 observed steps. "
        "It is also a note if the gradient was never above `relative` times the step's largest while weights before and after it have larger gradients: the data do not use this branch. "
        "With `smdebug` (implied if only `threshold` is set), the rule fires when the mean of |gradient| of any gradient is below `threshold` at any step.",
    .advice = "Use ReLU-like activations, normalization or residual connections, and an "
              "initialization that preserves the variance.",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(tensor_memory),
    .init = init,
    .wants = sonde__builtin_wants_role,
    .bind = bind,
    .step = step,
    .finish = finish,
};

/*
 * VanishingGradient - a gradient is too small for its parameter to learn.
 *
 * Fires for a gradient g when, at `patience` observed steps in a row,
 *     tiny     mean |g| is below threshold and below relative times the largest mean |g|
 *              of the step (where all gradients are small, the network has converged); or
 *     gone     all elements are 0, which they were not before, while another gradient is
 *              not 0; or
 *     profile  among at least four weights, from the output to the input, gradients
 *              shrink at nearly every layer, and by a factor of `profile` in all.
 * The mean is over elements that are not 0: rows of an embedding that a batch does not
 * use say nothing. Gradients of one dimension are only judged with `biases`, because a
 * bias before a normalisation has only rounding errors. A gradient that was 0 from the
 * start is frozen, and a gradient that doubles within the patience is growing; neither
 * fires.
 *
 * Evidence: vital signs of gradients.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_vitals.h"

#include <string.h>

enum { LEAST_LAYERS = 4 };

typedef struct vanishing {
    double threshold, relative, profile;
    int64_t patience;
    bool biases;
    size_t layers; /* weights among the tensors */
} vanishing;

typedef struct tensor_memory {
    double now;         /* mean |g| at the last step with this gradient */
    int64_t small;      /* observed steps in a row at which it was small */
    double first_small; /* mean at the first of them */
    bool alive;         /* was ever not 0 */
    bool weight, seen, judged;
} tensor_memory;

static const sonde_rule_param params[] = {
    SONDE__REAL(vanishing, threshold, "1e-7", 0, 1e30,
                "mean of |gradient| below which a gradient is tiny"),
    SONDE__COUNT(vanishing, patience, "3", 1, 1e9, "observed steps in a row"),
    SONDE__REAL(vanishing, relative, "1e-3", 0, 1e30,
                "a gradient is tiny only below this share of the step's largest; 0: "
                "regardless of the others"),
    SONDE__REAL(vanishing, profile, "1e-4", 0, 1,
                "ratio of the first to the last layer's gradient below which gradients "
                "vanish; 0: do not check"),
    SONDE__FLAG(vanishing, biases, "false", "judge gradients of one dimension as well"),
};
static const sonde_rule_need needs[] = {{"gradients", SONDE_HOW_VITALS, false, false}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    (void)run;
    return sonde__builtin_is_gradient(info) && sonde__builtin_is_own(info, id)
               ? 0
               : SONDE_RULE_IGNORE;
}

static sonde_err bind(sonde_rule_run *run, size_t i, sonde_diag *diag)
{
    vanishing *state = sonde_rule_state(run);
    size_t count = 0;
    const sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);
    const sonde_tensor_info *info = sonde_rule_info(run, tensors[i].id);
    tensor_memory *memory = tensors[i].memory;

    (void)diag;
    memory->weight = info->rank >= 2 && strncmp(info->name, "Accum___", 8) != 0;
    memory->judged = memory->weight || info->rank >= 2 || state->biases;
    state->layers += memory->weight;
    return SONDE_OK;
}

/* Computes the means of this step. Returns the largest. */
static double take_means(sonde_rule_tensor *tensors, size_t count)
{
    double largest = 0.0;

    for (size_t i = 0; i < count; i++) {
        const sonde_vitals *v = tensors[i].vitals;
        tensor_memory *memory = tensors[i].memory;

        memory->seen = v != NULL && sonde__builtin_bad(v) == 0 && v->count > 0;
        if (memory->seen) {
            const uint64_t n = sonde__builtin_nonzero(v);

            memory->now = n > 0 ? v->l1 / (double)n : 0.0;
            memory->alive = memory->alive || n > 0;
            largest = memory->now > largest ? memory->now : largest;
        }
    }
    return largest;
}

/*
 * Index of the last tensor on the way to the input if gradients vanish on that way, else
 * count. Gradients of weights are declared from output to input or in reverse; they
 * vanish in the direction in which they shrink.
 */
static size_t vanished_on_the_way(const sonde_rule_tensor *tensors, size_t count,
                                  double share)
{
    size_t layers = 0, down = 0, up = 0, first = count, last = count;
    double before = 0.0;

    for (size_t i = 0; i < count; i++) {
        const tensor_memory *memory = tensors[i].memory;

        if (!memory->weight || !memory->seen || memory->now <= 0.0) {
            continue;
        }
        if (layers > 0) {
            down += memory->now < before;
            up += memory->now > before;
        } else {
            first = i;
        }
        before = memory->now;
        last = i;
        layers++;
    }
    if (layers < LEAST_LAYERS) {
        return count;
    }
    if (4 * down >= 3 * (layers - 1) &&
        before < share * ((const tensor_memory *)tensors[first].memory)->now) {
        return last;
    }
    if (4 * up >= 3 * (layers - 1) &&
        ((const tensor_memory *)tensors[first].memory)->now < share * before) {
        return first;
    }
    return count;
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

static void report(sonde_rule_run *run, const tensor_memory *memory, double largest,
                   bool on_the_way)
{
    if (memory->now <= 0.0) {
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
                       memory->now / largest, memory->now);
    } else {
        sonde_rule_say(run, NULL,
                       "The mean of |gradient| is %.3g, while the largest of this step "
                       "is %.3g: this parameter hardly learns.",
                       memory->now, largest);
    }
}

static void step(sonde_rule_run *run)
{
    const vanishing *state = sonde_rule_state(run);
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);
    const double largest = take_means(tensors, count);
    const size_t far = state->layers >= LEAST_LAYERS && state->profile > 0
                           ? vanished_on_the_way(tensors, count, state->profile)
                           : count;

    for (size_t i = 0; i < count; i++) {
        tensor_memory *memory = tensors[i].memory;
        const bool tiny =
            memory->now > 0.0 && memory->now < state->threshold &&
            (state->relative <= 0.0 || memory->now < state->relative * largest);
        const bool gone = memory->now <= 0.0 && memory->alive && largest > 0.0;

        if (memory->seen && memory->judged &&
            last_small(memory, tiny || gone || i == far) >= state->patience &&
            sonde_rule_found(run, i, SONDE_SEVERITY_ERROR, "abs_mean", memory->now,
                             i == far && !tiny ? state->profile * largest
                                               : state->threshold)) {
            report(run, memory, largest, i == far && !tiny);
        }
    }
}

const sonde_rule sonde__builtin_vanishing_gradient = {
    SONDE__RULE("VanishingGradient", vanishing),
    .summary = "a gradient is too small for its parameter to learn",
    .condition = "Over `patience` observed steps, the mean of |gradient| (of elements "
                 "that are not 0) is below `threshold` and below `relative` times the "
                 "step's largest; or all elements have become 0; or gradients shrink by "
                 "a factor of `profile` from the last layer to the first.",
    .advice = "Use ReLU-like activations, normalisation or residual connections, and an "
              "initialisation that preserves the variance.",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(tensor_memory),
    .wants = wants,
    .bind = bind,
    .step = step,
};

/*
 * LossNotDecreasing - the loss does not fall, or rises.
 *
 * With window 0, as others do it: the loss of a step is compared with that of the newest step at
 * least num_steps back; it fires when it fell by less than diff_percent percent of that, or rose
 * by more than increase_threshold_percent. Then the next comparison is num_steps on. The loss of
 * single batches is noise, so most healthy runs fire.
 *
 * With window n (the default, 50), losses are averaged over n observed steps, and the means of
 * windows are compared: it fires when two windows on end are more than increase_threshold_percent,
 * four standard errors and SPREAD deviations of means above the best before them: the best of many
 * is low by luck, and where batches are small and steps large, means wander by more than losses
 * scatter. That deviation is told by second differences of the last 32 means, which know of no
 * trend: of independent means, the median of their magnitudes is BEND times it.
 *
 * Of the loss tensors of training steps, or (use_losses_collection false) of those that
 * collection_names and tensor_regex select. Evidence: vital signs.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/spikes.h"

typedef struct not_decreasing {
    const char *collection_names, *tensor_regex;
    bool use_losses_collection;
    int64_t num_steps, window;
    double diff_percent, increase;
} not_decreasing;

enum { KEPT = 64 }; /* saved steps looked back over, at most */
#define SPREAD 6.0
#define BEND 1.652 /* 0.6745 sqrt 6 */

typedef struct memory {
    double loss[KEPT]; /* a ring: the last saved ones */
    int64_t step[KEPT];
    int64_t saved, next_check;
    double sum, sumsq; /* of the window that is being filled */
    int64_t in_window;
    double best, best_error;
    double mean, slope;          /* of the last window; from the one before to it */
    sonde__builtin_recent bends; /* |second differences| */
    int64_t windows, above;
} memory;

static const sonde_rule_param params[] = {
    SONDE__CHOSEN(not_decreasing),
    {"use_losses_collection", SONDE_RULE_FLAG, "true", 0, 0, "the loss tensors as well",
     offsetof(not_decreasing, use_losses_collection), false},
    {"num_steps", SONDE_RULE_COUNT, "10", 1, 1e9, "steps to look back, with window=0",
     offsetof(not_decreasing, num_steps), false},
    {"diff_percent", SONDE_RULE_REAL, "0.1", 0, 100,
     "percent that it has to fall by, with window=0",
     offsetof(not_decreasing, diff_percent), false},
    {"increase_threshold_percent", SONDE_RULE_REAL, "5", 0, 1e9,
     "percent that it may rise by", offsetof(not_decreasing, increase), false},
    {"window", SONDE_RULE_COUNT, "50", 0, 1e9,
     "observed steps that are averaged; 0: compare single steps",
     offsetof(not_decreasing, window), false},
};
static const sonde_rule_need needs[] = {{"losses", SONDE_HOW_VITALS, false, false}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    const not_decreasing *state = sonde_rule_state(run);
    const bool loss = state->use_losses_collection && info->role == SONDE_ROLE_LOSS &&
                      sonde__builtin_is_own(info, id);

    return loss || sonde_rule_selected(run, id, NULL) ? 0 : SONDE_RULE_IGNORE;
}

/* The newest saved step that is at least num_steps back; false if there is none. */
static bool look_back(const not_decreasing *state, const memory *of, int64_t step,
                      double *loss)
{
    const int64_t kept = of->saved < KEPT ? of->saved : KEPT;

    for (int64_t i = 1; i <= kept; i++) {
        const int64_t at = (of->saved - i) % KEPT;

        if (of->step[at] <= step - state->num_steps) {
            *loss = of->loss[at];
            return true;
        }
    }
    return false;
}

static void compare_steps(sonde_rule_run *run, size_t i, memory *of, double loss)
{
    const not_decreasing *state = sonde_rule_state(run);
    const int64_t step = sonde_rule_at(run)->global_step;
    double before = 0.0;

    if (step >= of->next_check && look_back(state, of, step, &before)) {
        const double fell = before != 0.0 ? 100.0 * (before - loss) / fabs(before) : 0.0;

        of->next_check = step + state->num_steps;
        if (fell < state->diff_percent || -fell > state->increase) {
            const bool rose = -fell > state->increase;

            if (sonde_rule_found(run, i, SONDE_SEVERITY_WARNING, "percent_fallen", fell,
                                 rose ? -state->increase : state->diff_percent)) {
                sonde_rule_say(run, NULL,
                               "The loss went from %.5g to %.5g in %lld steps or more.",
                               before, loss, (long long)state->num_steps);
            }
        }
    }
    of->loss[of->saved % KEPT] = loss;
    of->step[of->saved % KEPT] = step;
    of->saved++;
}

static void end_window(sonde_rule_run *run, size_t i, memory *of)
{
    const not_decreasing *state = sonde_rule_state(run);
    const double n = (double)of->in_window;
    const double mean = of->sum / n;
    const double error = sqrt(fmax(of->sumsq / n - mean * mean, 0.0) / n);
    const double both = sqrt(error * error + of->best_error * of->best_error);

    if (of->windows == 0 || mean < of->best) {
        of->best = mean;
        of->best_error = error;
        of->above = 0;
    } else {
        const double wander = sonde__builtin_recent_median(&of->bends) / BEND;
        const double clear = fmax(4.0 * both, SPREAD * wander);
        const bool rose = mean > of->best + state->increase / 100.0 * fabs(of->best) &&
                          mean > of->best + clear;

        of->above = rose ? of->above + 1 : 0;
    }
    if (of->windows >= 2) {
        sonde__builtin_recent_take(&of->bends, fabs(mean - of->mean - of->slope));
    }
    of->slope = mean - of->mean;
    of->mean = mean;
    of->windows++;
    of->sum = of->sumsq = 0.0;
    of->in_window = 0;
    if (of->above >= 2 &&
        sonde_rule_found(run, i, SONDE_SEVERITY_WARNING, "percent_risen",
                         100.0 * (mean - of->best) / fabs(of->best), state->increase)) {
        sonde_rule_say(
            run, NULL,
            "Averaged over %lld steps the loss has risen from %.5g to %.5g, and "
            "stays there.",
            (long long)state->window, of->best, mean);
    }
}

static void step(sonde_rule_run *run)
{
    const not_decreasing *state = sonde_rule_state(run);
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    for (size_t i = 0; i < count; i++) {
        const sonde_vitals *v = tensors[i].vitals;
        memory *of = tensors[i].memory;

        if (v == NULL || sonde__builtin_bad(v) > 0 || v->count == 0) {
            continue;
        }
        if (state->window == 0) {
            compare_steps(run, i, of, v->mean);
            continue;
        }
        of->sum += v->mean;
        of->sumsq += v->mean * v->mean;
        if (++of->in_window >= state->window) {
            end_window(run, i, of);
        }
    }
}

const sonde_rule sonde__builtin_loss_not_decreasing = {
    .abi = SONDE_RULE_ABI,
    .name = "LossNotDecreasing",
    .summary = "the loss rises, or does not fall",
    .condition =
        "Averaged over `window` steps the loss is `increase_threshold_percent` above its "
        "best, twice on end; with window=0: since num_steps it fell by less than "
        "`diff_percent` percent or rose by more than `increase_threshold_percent`.",
    .advice = "Lower the learning rate; see whether labels and inputs belong together.",
    .params = params,
    .param_count = SONDE__COUNT_OF(params),
    .needs = needs,
    .need_count = SONDE__COUNT_OF(needs),
    .modes = SONDE__TRAIN,
    .state_size = sizeof(not_decreasing),
    .tensor_size = sizeof(memory),
    .wants = wants,
    .step = step,
};

/*
 * Overtraining - training goes on and nothing improves.
 *
 * A round is a stretch of training steps with the evaluation that follows it. Fires when the mean
 * evaluation loss has not improved by more than delta for patience_validation rounds, or the mean
 * training loss for patience_train rounds while evaluation does not improve either.
 *
 * Evidence: vital signs of losses, in training and evaluation steps.
 */
#include "rules/builtin/builtin.h"
#include "base/macros.h"
#include "rules/builtin/phases.h"

typedef struct overtraining {
    int64_t patience_train, patience_validation;
    double delta;
} overtraining;

typedef struct memory {
    sonde__builtin_phases phases;
    double best_train, best_eval;
    int64_t stale_train, stale_eval; /* rounds without improvement */
} memory;

static const sonde_rule_param params[] = {
    {"patience_train", SONDE_RULE_COUNT, "5", 1, 1e9,
     "rounds without improvement of training", offsetof(overtraining, patience_train),
     false},
    {"patience_validation", SONDE_RULE_COUNT, "10", 1, 1e9,
     "rounds without improvement of evaluation",
     offsetof(overtraining, patience_validation), false},
    {"delta", SONDE_RULE_REAL, "0.01", 0, 1e9, "improvement that counts",
     offsetof(overtraining, delta), false},
};
static const sonde_rule_need needs[] = {{"losses", SONDE_HOW_VITALS, false, false}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    (void)run;
    return info->role == SONDE_ROLE_LOSS && sonde__builtin_is_own(info, id)
               ? 0
               : SONDE_RULE_IGNORE;
}

static void improve(double *best, int64_t *stale, double now, double delta, bool first)
{
    if (first || now < *best - delta) {
        *best = now;
        *stale = 0;
    } else {
        (*stale)++;
    }
}

static void judge(sonde_rule_run *run, size_t i, memory *of)
{
    const overtraining *state = sonde_rule_state(run);
    const bool first = of->phases.rounds == 1;
    bool train = false, eval = false;

    improve(&of->best_train, &of->stale_train, of->phases.train_mean, state->delta,
            first);
    improve(&of->best_eval, &of->stale_eval, of->phases.eval_mean, state->delta, first);
    train = of->stale_train >= state->patience_train &&
            of->stale_eval >= state->patience_train;
    eval = of->stale_eval >= state->patience_validation;
    if ((train || eval) &&
        sonde_rule_found(
            run, i, SONDE_SEVERITY_NOTE, "rounds",
            (double)(train ? of->stale_train : of->stale_eval),
            (double)(train ? state->patience_train : state->patience_validation))) {
        sonde_rule_say(run, NULL,
                       "For %lld rounds the loss of %s has not improved by %.3g on %.4g.",
                       (long long)(train ? of->stale_train : of->stale_eval),
                       train ? "training" : "evaluation", state->delta,
                       train ? of->best_train : of->best_eval);
    }
}

static void step(sonde_rule_run *run)
{
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    for (size_t i = 0; i < count; i++) {
        const sonde_vitals *v = tensors[i].vitals;
        memory *of = tensors[i].memory;

        if (v != NULL && v->count > 0 && sonde__builtin_bad(v) == 0 &&
            sonde__builtin_phases_take(&of->phases, sonde_rule_at(run), v->mean)) {
            judge(run, i, of);
        }
    }
}

static void finish(sonde_rule_run *run)
{
    const overtraining *state = sonde_rule_state(run);
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);
    int64_t rounds = 0;

    for (size_t i = 0; i < count; i++) {
        memory *of = tensors[i].memory;

        if (sonde__builtin_phases_end(&of->phases)) {
            judge(run, i, of);
        }
        rounds = SONDE_MAX(rounds, of->phases.rounds);
    }
    sonde__builtin_phases_lacked(
        run, rounds, SONDE_MIN(state->patience_train, state->patience_validation) + 1);
}

const sonde_rule sonde__builtin_overtraining = {
    .abi = SONDE_RULE_ABI,
    .name = "Overtraining",
    .summary = "training goes on and nothing improves",
    .condition =
        "No improvement above `delta` of the mean evaluation loss for "
        "`patience_validation` rounds, or of both losses for `patience_train` rounds.",
    .advice = "Stop here, or lower the learning rate.",
    .params = params,
    .param_count = SONDE__COUNT_OF(params),
    .needs = needs,
    .need_count = SONDE__COUNT_OF(needs),
    .modes = SONDE__TRAIN | 1U << SONDE_MODE_EVAL,
    .state_size = sizeof(overtraining),
    .tensor_size = sizeof(memory),
    .wants = wants,
    .step = step,
    .finish = finish,
};

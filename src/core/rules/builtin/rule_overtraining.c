/*
 * Overtraining - training continues without improvement.
 *
 * A round is a sequence of training steps and the evaluation that follows it. Fires when
 * the mean evaluation loss has not improved by more than delta for patience_validation
 * rounds, or the mean training loss for patience_train rounds while evaluation does not
 * improve either.
 *
 * Evidence: vital signs of losses, in training and evaluation steps.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_vitals.h"
#include "rules/builtin/series.h"

#include "base/macros.h"

typedef struct overtraining {
    int64_t patience_train, patience_validation;
    double delta;
} overtraining;

typedef struct tensor_memory {
    sonde__builtin_phases phases;
    double best_train, best_eval;
    int64_t stale_train, stale_eval; /* rounds without improvement */
} tensor_memory;

static const sonde_rule_param params[] = {
    SONDE__COUNT(overtraining, patience_train, "5", 1, 1e9,
                 "rounds without improvement of the training loss"),
    SONDE__COUNT(overtraining, patience_validation, "10", 1, 1e9,
                 "rounds without improvement of the evaluation loss"),
    SONDE__REAL(overtraining, delta, "0.01", 0, 1e9,
                "smallest decrease that counts as an improvement"),
};
static const sonde_rule_need needs[] = {
    {"losses", SONDE_HOW_VITALS, false, SONDE__LOSSES, SONDE__EACH_STEP}};

static void improve(double *best, int64_t *stale, double now, double delta, bool first)
{
    if (first || now < *best - delta) {
        *best = now;
        *stale = 0;
    } else {
        (*stale)++;
    }
}

static void judge(sonde_rule_run *run, size_t i, tensor_memory *memory)
{
    const overtraining *state = sonde_rule_state(run);
    const bool first = memory->phases.rounds == 1;
    bool train = false, eval = false;

    improve(&memory->best_train, &memory->stale_train, memory->phases.train_mean,
            state->delta, first);
    improve(&memory->best_eval, &memory->stale_eval, memory->phases.eval_mean,
            state->delta, first);
    train = memory->stale_train >= state->patience_train &&
            memory->stale_eval >= state->patience_train;
    eval = memory->stale_eval >= state->patience_validation;
    if ((train || eval) &&
        sonde_rule_found(
            run, i, SONDE_SEVERITY_NOTE, "rounds",
            (double)(train ? memory->stale_train : memory->stale_eval),
            (double)(train ? state->patience_train : state->patience_validation))) {
        sonde_rule_say(
            run, NULL,
            "For %lld rounds the %s loss has not improved by %.3g on its best (%.4g).",
            (long long)(train ? memory->stale_train : memory->stale_eval),
            train ? "training" : "evaluation", state->delta,
            train ? memory->best_train : memory->best_eval);
    }
}

static void step(sonde_rule_run *run)
{
    sonde_rule_tensor *tensors = sonde__builtin_tensors(run);

    SONDE__EACH (run, i) {
        const sonde_vitals *v = tensors[i].vitals;
        tensor_memory *memory = tensors[i].memory;

        if (v != NULL && v->count > 0 && sonde__builtin_bad(v) == 0 &&
            sonde__builtin_phases_take(&memory->phases, sonde_rule_at(run), v->mean)) {
            judge(run, i, memory);
        }
    }
}

static void finish(sonde_rule_run *run)
{
    const overtraining *state = sonde_rule_state(run);
    sonde_rule_tensor *tensors = sonde__builtin_tensors(run);
    int64_t rounds = 0;

    SONDE__EACH (run, i) {
        tensor_memory *memory = tensors[i].memory;

        if (sonde__builtin_phases_end(&memory->phases)) {
            judge(run, i, memory);
        }
        rounds = SONDE_MAX(rounds, memory->phases.rounds);
    }
    sonde__builtin_phases_lacked(
        run, rounds, SONDE_MIN(state->patience_train, state->patience_validation) + 1);
}

const sonde_rule sonde__builtin_overtraining = {
    SONDE__RULE("Overtraining", overtraining),
    .summary = "training continues without improvement",
    .condition = "The mean evaluation loss has not improved by more than `delta` for "
                 "`patience_validation` rounds, or both losses have not for "
                 "`patience_train` rounds.",
    .advice = "Stop here, or lower the learning rate.",
    .modes = SONDE__TRAIN | 1U << SONDE_MODE_EVAL,
    .tensor_size = sizeof(tensor_memory),
    .wants = sonde__builtin_wants_role,
    .step = step,
    .finish = finish,
};

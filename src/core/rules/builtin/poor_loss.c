/*
 * poor_loss.c - PoorWeightInitialization: the loss does not change, and a gradient is narrow.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_vitals.h"
#include "rules/builtin/poor.h"
#include "rules/suspicion.h"

#include <math.h>

/* The loss is the same to its last digit. */
static const sonde__rule_terms same_loss = {
    SONDE__TERMS(NOTHING, ERROR, ERROR, ERROR, ERROR)};
#define CONSTANT 1e-7
#define MOVED 2e-4

static void report_stuck(sonde_rule_run *run, size_t i,
                         const sonde__builtin_poor_memory *memory, double loss, bool sure)
{
    const sonde__builtin_poor *state = sonde_rule_state(run);
    const double steps = fmax((double)memory->still, (double)state->patience);
    const double least = (double)state->patience;

    if (sure ? sonde_rule_found(run, i, SONDE_SEVERITY_ERROR, "steps_unmoved", steps,
                                least)
             : sonde__rule_suspect(run, i, &same_loss, "steps_unmoved", steps, least)) {
        sonde_rule_say(run, NULL,
                       "The loss does not change (%.5g), and the values of a gradient "
                       "lie within %g of each other.",
                       loss, state->distribution_range);
    }
}

static void judge_loss(sonde_rule_run *run, size_t i, sonde__builtin_poor_memory *memory,
                       double loss)
{
    const sonde__builtin_poor *state = sonde_rule_state(run);
    const bool still =
        state->heard > 1 && fabs(loss - memory->loss) < 1e-4 * fabs(memory->loss);

    memory->still = still && state->narrow ? memory->still + 1 : 0;
    memory->moved = memory->still > 0
                        ? fmax(memory->moved, fabs(loss - memory->loss) /
                                                  fmax(fabs(memory->loss), 1e-300))
                        : 0.0;
    memory->loss =
        memory->still > 0 ? memory->loss : loss; /* of the first step of the streak */
    memory->stuck = memory->stuck || memory->still >= state->patience;
    if (memory->still >= state->patience && memory->moved < CONSTANT) {
        report_stuck(run, i, memory, loss, false);
    }
}

void sonde__builtin_poor_judge_losses(sonde_rule_run *run,
                                      const sonde_rule_tensor *tensors, size_t count)
{
    sonde__builtin_poor *state = sonde_rule_state(run);
    bool any = false;

    state->narrow = false;
    for (size_t i = 0; i < count; i++) {
        const sonde_vitals *v = tensors[i].vitals;

        any = any || (tensors[i].need == SONDE__POOR_LOSSES && v != NULL);
        state->narrow =
            state->narrow ||
            (tensors[i].need == SONDE__POOR_GRADIENTS && v != NULL && v->count > 1 &&
             sonde__builtin_bad(v) == 0 && v->max - v->min < state->distribution_range);
    }
    state->heard += any;
    for (size_t i = 0; i < count; i++) {
        const sonde_vitals *v = tensors[i].vitals;

        if (tensors[i].need == SONDE__POOR_LOSSES && v != NULL &&
            sonde__builtin_finite(v) > 0) {
            judge_loss(run, i, tensors[i].memory, v->mean);
        }
    }
}

void sonde__builtin_poor_take_loss(sonde__builtin_poor *state, sonde_rule_run *run,
                                   const sonde_rule_tensor *tensors, size_t count)
{
    double sum = 0.0, losses = 0.0;

    for (size_t i = 0; i < count; i++) {
        const sonde_vitals *v =
            tensors[i].need == SONDE__POOR_LOSSES ? tensors[i].vitals : NULL;

        if (v != NULL && sonde__builtin_finite(v) > 0) {
            const bool whole =
                sonde__builtin_loss_kind(run, tensors[i].id) == SONDE__LOSS_WHOLE;

            state->whole = state->whole || whole;
            sum = whole ? v->mean : sum + v->mean;
            losses = whole ? 1.0 : losses + 1.0;
        }
    }
    if (losses > 0.0) {
        const double loss = sum / losses;
        const double n = fmin((double)++state->losses, SONDE__POOR_LOSSES_AVERAGED);

        if (state->losses <= SONDE__POOR_LOSSES_AVERAGED) {
            state->first_loss += (loss - state->first_loss) / n;
        }
        state->last_loss += (loss - state->last_loss) / n;
    }
}

void sonde__builtin_poor_judge_stuck(sonde_rule_run *run)
{
    const sonde__builtin_poor *state = sonde_rule_state(run);
    const sonde_rule_tensor *tensors = sonde__builtin_tensors(run);

    SONDE__EACH (run, i) {
        const sonde__builtin_poor_memory *memory = tensors[i].memory;

        if (tensors[i].need == SONDE__POOR_LOSSES && memory->stuck &&
            fabs(state->last_loss - state->first_loss) <
                MOVED * fabs(state->first_loss)) {
            report_stuck(run, i, memory, state->last_loss, true);
        }
    }
}

void sonde__builtin_poor_withdraw_moved(sonde_rule_run *run,
                                        const sonde_rule_tensor *tensors, size_t count)
{
    const double first = ((const sonde__builtin_poor *)sonde_rule_state(run))->first_loss;

    for (size_t i = 0; i < count; i++) {
        const sonde_vitals *v =
            tensors[i].need == SONDE__POOR_LOSSES ? tensors[i].vitals : NULL;

        if (v != NULL && sonde__builtin_bad(v) == 0 &&
            fabs(v->mean - first) > MOVED * fabs(first)) {
            sonde__rule_withdraw(run, i);
        }
    }
}

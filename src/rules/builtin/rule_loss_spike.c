/*
 * LossSpike - the loss jumps and does not recover.
 *
 * B is the last `patience` observed training steps and A the 64 before them. Fires when
 *     nine tenths of B are above nine tenths of A, and
 *     the median of B is above `factor` times that of A (above the largest of A while A
 *     has fewer than 16 losses).
 * Losses of small batches can differ by a factor of a hundred, so no large loss of A is
 * left out, and B is compared with the distribution of A, not only with its size. For
 * independent losses of any one distribution, this happens about once in 10^9 steps. A
 * spike that recovers sooner does not fire. Evidence: vital signs of losses.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_vitals.h"

#include <math.h>
#include <string.h>

enum { BEFORE = 64, FEW = 16, MOST = 256 };

typedef struct spike {
    double factor;
    int64_t patience, least;
} spike;

typedef struct tensor_memory {
    double losses[BEFORE + MOST]; /* the last ones, oldest first */
    size_t count;
} tensor_memory;

static const sonde_rule_param params[] = {
    SONDE__REAL(spike, factor, "2", 1, 1e300, "multiple of the median before the jump"),
    SONDE__COUNT(spike, patience, "15", 1, MOST,
                 "observed steps for which the loss stays high"),
    SONDE__COUNT(spike, least, "5", 1, BEFORE,
                 "observed steps that are needed before the jump"),
};
static const sonde_rule_need needs[] = {{"losses", SONDE_HOW_VITALS, false, false}};

/* --- ranks -------------------------------------------------------------------------- */

static size_t count_above(const double *values, size_t count, double limit)
{
    size_t above = 0;

    for (size_t i = 0; i < count; i++) {
        above += values[i] > limit;
    }
    return above;
}

/* How many of count values may violate a condition. */
static size_t tenth(size_t count)
{
    return count / 10;
}

/* --- judging ------------------------------------------------------------------------ */

static void take(tensor_memory *memory, double loss, size_t room)
{
    if (memory->count == room) {
        memmove(memory->losses, memory->losses + 1, (room - 1) * sizeof *memory->losses);
        memory->count--;
    }
    memory->losses[memory->count++] = loss;
}

static void judge(sonde_rule_run *run, size_t i, const tensor_memory *memory)
{
    const spike *state = sonde_rule_state(run);
    const size_t patience = (size_t)state->patience;
    const size_t before = memory->count - patience;
    const double *after = memory->losses + before;
    const double now = memory->losses[memory->count - 1];
    double sorted[BEFORE], later[MOST], limit = 0.0;

    /* The last loss usually decides; sorting takes longer. */
    if (count_above(memory->losses, before, now) > tenth(before)) {
        return;
    }
    memcpy(sorted, memory->losses, before * sizeof *sorted);
    sonde__builtin_sort(sorted, before);
    limit = sorted[before - 1 - tenth(before)];
    if (count_above(after, patience, limit) < patience - tenth(patience)) {
        return;
    }
    memcpy(later, after, patience * sizeof *later);
    sonde__builtin_sort(later, patience);
    limit = fmax(limit, state->factor * sorted[before < FEW ? before - 1 : before / 2]);
    if (limit > 0.0 && later[patience / 2] > limit &&
        sonde_rule_found(run, i, SONDE_SEVERITY_ERROR, "mean", now, limit)) {
        sonde_rule_say(run, NULL,
                       "It jumped from about %.4g to %.4g %zu observed steps ago and has "
                       "not recovered (now %.4g).",
                       sorted[before / 2], later[patience / 2], patience - 1, now);
    }
}

static void step(sonde_rule_run *run)
{
    const spike *state = sonde_rule_state(run);
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    for (size_t i = 0; i < count; i++) {
        const sonde_vitals *v = tensors[i].vitals;
        tensor_memory *memory = tensors[i].memory;

        if (v == NULL || sonde__builtin_finite(v) == 0) {
            continue;
        }
        take(memory, v->mean, BEFORE + (size_t)state->patience);
        if (memory->count >= (size_t)(state->least + state->patience)) {
            judge(run, i, memory);
        }
    }
}

const sonde_rule sonde__builtin_loss_spike = {
    SONDE__RULE("LossSpike", spike),
    .summary = "the loss jumps and does not recover",
    .condition = "Over the last `patience` observed steps, the median loss is above "
                 "`factor` times the median of the 64 steps before, and nine tenths of "
                 "the losses are above nine tenths of those.",
    .advice = "Lower the learning rate or clip gradients, and resume from a checkpoint "
              "before the jump.",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(tensor_memory),
    .wants = sonde__builtin_wants_loss,
    .step = step,
};

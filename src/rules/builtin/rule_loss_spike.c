/*
 * LossSpike - the loss jumps up and does not come back.
 *
 * With B the last `patience` observed training steps and A the 64 before them, fires when
 *     all of B but a tenth are above nine tenths of A, and
 *     the median of B is above `factor` times that of A; above that of A's largest, as long as
 *     there are fewer than 16 of them.
 * Losses of small batches differ from each other by a factor of a hundred. So none is left out of A
 * for being large, and B is compared with where A's losses lie, not with their size alone: of
 * independent losses of one distribution, whatever its tails, it stands out like that once in some
 * 10^9 steps. A spike that recovers sooner is let be. Evidence: vital
 * signs of losses.
 */
#include "rules/builtin/builtin.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { BEFORE = 64, FEW = 16, MOST = 256 };

typedef struct spike {
    double factor;
    int64_t patience, least;
} spike;

typedef struct memory {
    double losses[BEFORE + MOST]; /* the last ones, oldest first */
    size_t count;
} memory;

static const sonde_rule_param params[] = {
    {"factor", SONDE_RULE_REAL, "2", 1, 1e300, "times the median before the jump",
     offsetof(spike, factor), false},
    {"patience", SONDE_RULE_COUNT, "15", 1, MOST, "observed steps that it stays up",
     offsetof(spike, patience), false},
    {"least", SONDE_RULE_COUNT, "5", 1, BEFORE, "observed steps before the jump",
     offsetof(spike, least), false},
};
static const sonde_rule_need needs[] = {{"losses", SONDE_HOW_VITALS, false, false}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    (void)run;
    return info->role == SONDE_ROLE_LOSS && sonde__builtin_is_own(info, id)
               ? 0
               : SONDE_RULE_IGNORE;
}

/* --- ranks ------------------------------------------------------------------------ */

static size_t count_above(const double *values, size_t count, double limit)
{
    size_t above = 0;

    for (size_t i = 0; i < count; i++) {
        above += values[i] > limit;
    }
    return above;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* How many of so many may be on the wrong side. */
static size_t tenth(size_t count)
{
    return count / 10;
}

/* --- judging ---------------------------------------------------------------------- */

static void take(memory *of, double loss, size_t room)
{
    if (of->count == room) {
        memmove(of->losses, of->losses + 1, (room - 1) * sizeof *of->losses);
        of->count--;
    }
    of->losses[of->count++] = loss;
}

static void judge(sonde_rule_run *run, size_t i, const memory *of)
{
    const spike *state = sonde_rule_state(run);
    const size_t patience = (size_t)state->patience;
    const size_t before = of->count - patience;
    const double *after = of->losses + before;
    const double now = of->losses[of->count - 1];
    double sorted[BEFORE], later[MOST], limit = 0.0;

    /* The last one tells, mostly, and sorting takes longer. */
    if (count_above(of->losses, before, now) > tenth(before)) {
        return;
    }
    memcpy(sorted, of->losses, before * sizeof *sorted);
    qsort(sorted, before, sizeof *sorted, by_size);
    limit = sorted[before - 1 - tenth(before)];
    if (count_above(after, patience, limit) < patience - tenth(patience)) {
        return;
    }
    memcpy(later, after, patience * sizeof *later);
    qsort(later, patience, sizeof *later, by_size);
    limit = fmax(limit, state->factor * sorted[before < FEW ? before - 1 : before / 2]);
    if (limit > 0.0 && later[patience / 2] > limit &&
        sonde_rule_found(run, i, SONDE_SEVERITY_ERROR, "mean", now, limit)) {
        sonde_rule_say(run, NULL,
                       "It jumped from about %.4g to %.4g %zu observed steps ago and has "
                       "not come back (now %.4g).",
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
        memory *of = tensors[i].memory;

        if (v == NULL || sonde__builtin_finite(v) == 0) {
            continue;
        }
        take(of, v->mean, BEFORE + (size_t)state->patience);
        if (of->count >= (size_t)(state->least + state->patience)) {
            judge(run, i, of);
        }
    }
}

const sonde_rule sonde__builtin_loss_spike = {
    .abi = SONDE_RULE_ABI,
    .name = "LossSpike",
    .summary = "the loss jumps up and does not come back",
    .condition =
        "Over the last `patience` observed steps the median loss is above `factor` times "
        "that of the 64 before, and nine tenths of the losses above nine tenths of "
        "those.",
    .advice =
        "Lower the learning rate or clip gradients, and go on from a checkpoint before "
        "the jump.",
    .params = params,
    .param_count = SONDE__COUNT_OF(params),
    .needs = needs,
    .need_count = SONDE__COUNT_OF(needs),
    .modes = SONDE__TRAIN,
    .state_size = sizeof(spike),
    .tensor_size = sizeof(memory),
    .wants = wants,
    .step = step,
};

/*
 * frozen_idle.c - FrozenParameter: no parameter changes.
 *
 * Fires when no parameter changes for `idle` comparisons in a row, or IDLE_AFTER if all
 * of the first ones changed something, although gradients are not 0: they
 * are cleared or clipped away before the update, or the optimiser holds
 * other tensors. Gradients below ENDED times the largest so far do not
 * count: training has converged. Where they have grown to SUMMED times
 * those at the beginning of the rest, they are summed for a later update,
 * and the parameters may rest twice as long.
 * Or gradients, which were seen at all of the first IDLE_AFTER comparisons or
 * more, are not seen any more, for as long.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_vitals.h"
#include "rules/builtin/frozen.h"

#include <math.h>

enum { IDLE_AFTER = 10 }; /* comparisons */
#define ENDED 1e-4
#define SUMMED 3.0

static void report_idle(sonde_rule_run *run, int64_t needed)
{
    const sonde__builtin_frozen *state = sonde_rule_state(run);
    const sonde_rule_tensor *tensors = sonde__builtin_tensors(run);
    const sonde__builtin_frozen_memory *memory = tensors[state->idlest].memory;
    const sonde_vitals *g = tensors[memory->gradient].vitals;

    if (sonde_rule_found(run, state->idlest, SONDE_SEVERITY_ERROR, "steps_unchanged",
                         (double)state->idle_now, (double)needed)) {
        sonde_rule_say(run,
                       "Check that the optimiser holds these parameters and is called, "
                       "that gradients are not cleared or clipped away before it is, and "
                       "that the learning rate is not 0.",
                       "No parameter changed at the last %lld observed steps, although "
                       "there are gradients, the largest of them here (%.3g).",
                       (long long)state->idle_now, g->abs_max);
    }
}

/* Judges a comparison at which nothing changed and no gradient was seen. */
static void judge_bare(sonde_rule_run *run)
{
    sonde__builtin_frozen *state = sonde_rule_state(run);

    state->bare++;
    if (state->bare >= IDLE_AFTER && state->led >= IDLE_AFTER && state->idle_most == 0 &&
        sonde_rule_found(run, state->idlest, SONDE_SEVERITY_ERROR, "steps_unchanged",
                         (double)state->bare, (double)IDLE_AFTER)) {
        sonde_rule_say(run,
                       "Check that gradients are not cleared between the backward pass "
                       "and the optimiser's step, and that it is called.",
                       "No parameter changed at the last %lld observed steps, and none "
                       "had a gradient, as all of them had before.",
                       (long long)state->bare);
    }
}

void sonde__builtin_frozen_judge_idle(sonde_rule_run *run)
{
    sonde__builtin_frozen *state = sonde_rule_state(run);
    size_t most = SIZE_MAX;
    const sonde_rule_tensor *tensors = sonde__builtin_tensors(run);
    bool any = false, changed = false, shown = false, ended = false, summed = false;
    int64_t needed = state->idle;

    SONDE__EACH_SEEN (run, tensors, i, SONDE__FROZEN_PARAMETERS) {
        const sonde__builtin_frozen_memory *memory = tensors[i].memory;

        any = any || memory->has_before;
        const sonde_vitals *g =
            memory->gradient != SIZE_MAX ? tensors[memory->gradient].vitals : NULL;
        shown = shown || g != NULL;
        /* a copy that follows the weights, as a teacher does, has no gradient */
        changed = changed || (memory->has_before && !memory->same &&
                              (memory->gradient != SIZE_MAX || !state->pulls));
        if (g != NULL && sonde__builtin_nonzero(g) > 0 && sonde__builtin_bad(g) == 0 &&
            (most == SIZE_MAX ||
             g->abs_max >
                 tensors[((sonde__builtin_frozen_memory *)tensors[most].memory)->gradient]
                     .vitals->abs_max)) {
            most = i;
        }
    }
    state->pulls = state->pulls || most != SIZE_MAX;
    state->compared += any;
    state->changed += changed;
    state->led += any && most != SIZE_MAX && state->led + 1 == state->compared;
    if (any && !changed && !shown && state->led > 0) {
        judge_bare(run);
        return;
    }
    state->bare = any ? 0 : state->bare;
    if (most != SIZE_MAX) {
        const sonde__builtin_frozen_memory *memory = tensors[most].memory;

        state->idlest = state->reported ? state->idlest : most;
        const double now = tensors[memory->gradient].vitals->abs_max;

        state->largest = fmax(state->largest, now);
        state->resting = state->idle_now == 0 ? now : state->resting;
        summed = now > SUMMED * state->resting;
        ended = now < ENDED * state->largest;
    }
    if (!any || changed || most == SIZE_MAX || ended) {
        state->idle_most = changed && state->idle_now > state->idle_most
                               ? state->idle_now
                               : state->idle_most;
        state->idle_now = changed ? 0 : state->idle_now;
        return;
    }
    state->idle_now++;
    if (state->idle_most == 0 && state->changed >= IDLE_AFTER && needed > IDLE_AFTER) {
        needed = IDLE_AFTER;
    }
    needed *= summed ? 2 : 1;
    if (state->idle_now >= needed && state->idle_now > 3 * state->idle_most) {
        state->reported = true;
        report_idle(run, needed);
    }
}

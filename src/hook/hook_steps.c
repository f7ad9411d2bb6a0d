/*
 * steps.c - steps of a program of its own, the gate that record looks at, scalars.
 *
 * A step at which nothing is due is one comparison and the recorder's end of step: gate.due
 * points to zeros. At another one an entry for each tensor is filled from its masks, unless
 * the same was due the last time.
 */
#include "hook/hook_state.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <sonde/log.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Modes in which parameters change, so that their vital signs do. */
static bool trains(sonde_mode mode)
{
    return mode == SONDE_MODE_TRAIN || mode == SONDE_MODE_GLOBAL;
}

/* The first step >= step of a mode with anything due. */
static int64_t first_due(const sonde_hook *hook, sonde_mode mode, int64_t step)
{
    const sonde_schedule vitals = sonde_schedule_every(hook->options.vitals_every);
    int64_t next = SONDE_SCHEDULE_NEVER;

    if (hook->nan_sets[mode] != 0 || (hook->vital & SONDE__VITAL_ALWAYS) != 0) {
        return step;
    }
    if ((hook->vital & SONDE__VITAL_EVERY) != 0 && trains(mode)) {
        next = sonde_schedule_next(&vitals, step);
    }
    for (size_t i = 0; i < hook->collection_count; i++) {
        if (hook->collections[i].saved) {
            const int64_t due =
                sonde_schedule_next(&hook->collections[i].when[mode], step);

            next = SONDE_MIN(next, due);
        }
    }
    return next;
}

/* --- the gate --------------------------------------------------------------------- */

static bool is_wanted(const sonde_hook *hook, const sonde__hook_tensor *of)
{
    const uint64_t nan_sets = hook->nan_sets[hook->at.mode];

    return (of->member & (hook->due_sets | nan_sets)) != 0 ||
           of->watch[hook->at.mode] != 0 || (of->vital & hook->vital_due) != 0;
}

/* What is due at the step that begins. */
static void find_due(sonde_hook *hook)
{
    const sonde_mode mode = hook->at.mode;
    const int64_t step = hook->at.mode_step;

    hook->due_sets = 0;
    for (size_t i = 0; i < hook->collection_count; i++) {
        if (hook->collections[i].saved &&
            sonde_schedule_due(&hook->collections[i].when[mode], step)) {
            hook->due_sets |= UINT64_C(1) << i;
        }
    }
    hook->vital_due = hook->vital & SONDE__VITAL_ALWAYS;
    if (trains(mode) && step % hook->options.vitals_every == 0) {
        hook->vital_due |= hook->vital & SONDE__VITAL_EVERY;
    }
}

/* gate.due for what is due; filled anew only if that is not what it was filled for last. */
static void set_gate(sonde_hook *hook)
{
    const uint32_t count = sonde_catalogue_count(hook->catalogue);
    sonde__filling *filled = &hook->filled;

    if (!filled->valid || filled->mode != hook->at.mode ||
        filled->sets != hook->due_sets || filled->vital != hook->vital_due) {
        filled->any = false;
        for (uint32_t id = 0; id < count; id++) {
            hook->due[id] = is_wanted(hook, &hook->tensors[id]);
            filled->any = filled->any || hook->due[id] != 0;
        }
        filled->mode = hook->at.mode;
        filled->sets = hook->due_sets;
        filled->vital = hook->vital_due;
        filled->valid = true;
    }
    hook->gate.due = filled->any ? hook->due : hook->zeros;
}

void sonde__hook_look_again(sonde_hook *hook)
{
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        hook->next_due[mode] = 0;
    }
    hook->filled.valid = false;
    hook->gate.due = hook->zeros;
    if (hook->stepping && hook->attachments == NULL) {
        find_due(hook);
        set_gate(hook);
    }
}

/* --- steps ------------------------------------------------------------------------ */

static void put_scalar(sonde_hook *hook, uint32_t id, double value);

/* The counts of the next step of a mode; ends one that is on. */
static void count_step(sonde_hook *hook, sonde_mode mode)
{
    if (hook->stepping) {
        sonde_hook_step_done(hook);
    }
    if (mode == SONDE_MODE_GLOBAL) {
        hook->next_step[mode] = hook->next_global;
    }
    hook->at = (sonde_coordinate){.mode = mode,
                                  .global_step = hook->next_global++,
                                  .mode_step = hook->next_step[mode]++};
    hook->stepping = true;
    hook->begun = true;
    for (size_t i = 0; i < hook->early_count; i++) {
        put_scalar(hook, hook->early[i].id, hook->early[i].value);
    }
    hook->early_count = 0;
}

void sonde_hook_set_mode(sonde_hook *hook, sonde_mode mode)
{
    if ((unsigned)mode < SONDE_MODE_COUNT) {
        hook->mode = mode;
    } else {
        sonde_log(SONDE_LOG_ERROR, "hook", "mode %d is none: the mode stays %s",
                  (int)mode, sonde_mode_name(hook->mode));
    }
}

sonde_err sonde_hook_go_on(sonde_hook *hook, sonde_mode mode, int64_t step,
                           sonde_diag *diag)
{
    if ((unsigned)mode >= SONDE_MODE_COUNT) {
        return sonde__fail(diag, SONDE_EINVAL, "hook", "a sonde_mode", "mode %d",
                           (int)mode);
    }
    if (step < hook->next_step[mode]) {
        return sonde__fail(diag, SONDE_EINVAL, "hook", "a later step",
                           "step %" PRId64 " of mode %s, whose next step is %" PRId64,
                           step, sonde_mode_name(mode), hook->next_step[mode]);
    }
    if (!hook->open && hook->options.record.resume != NULL &&
        (hook->options.record.resume_step == SONDE_RESUME_BEHIND ||
         mode == SONDE_MODE_GLOBAL)) {
        hook->options.record.resume_mode = mode;
        hook->options.record.resume_step = step > 0 ? step : SONDE_RESUME_ANEW;
    }
    hook->next_step[mode] = step;
    if (mode == SONDE_MODE_GLOBAL) {
        hook->next_global = step;
    }
    return SONDE_OK;
}

sonde_err sonde_hook_begin_step(sonde_hook *hook, sonde_diag *diag)
{
    if (hook->attachments != NULL) {
        return sonde__fail(diag, SONDE_ESTATE, "hook",
                           "steps of the session it is attached to",
                           "begin_step of a hook whose steps a session counts");
    }
    if (!hook->open) {
        const sonde_err err = sonde_hook_open(hook, diag);

        if (err != SONDE_OK) {
            return err;
        }
        if (hook->mode != SONDE_MODE_GLOBAL && sonde__hook_says_global(hook)) {
            sonde_log(SONDE_LOG_WARNING, "hook",
                      "the schedule of mode global holds where the mode is global; steps "
                      "are of mode %s",
                      sonde_mode_name(hook->mode));
        }
    }
    count_step(hook, hook->mode);
    if (hook->at.mode_step >= hook->next_due[hook->at.mode]) {
        find_due(hook);
        set_gate(hook);
        hook->next_due[hook->at.mode] =
            first_due(hook, hook->at.mode, hook->at.mode_step + 1);
    }
    return SONDE_OK;
}

void sonde_hook_next_step(sonde_hook *hook, int64_t at_least, sonde_coordinate *at)
{
    hook->next_step[at->mode] = SONDE_MAX(hook->next_step[at->mode], at_least);
    count_step(hook, at->mode);
    at->global_step = hook->at.global_step;
    at->mode_step = hook->at.mode_step;
}

void sonde_hook_step_done(sonde_hook *hook)
{
    if (!hook->stepping) {
        return;
    }
    if (hook->recorder != NULL) {
        hook->calls->end_step(hook->recorder, &hook->at);
    }
    hook->gate.due = hook->zeros;
    hook->stepping = false;
    hook->tripped = 0;
    hook->held.count = 0;
    hook->held.used = 0;
}

void sonde_hook_end_step(sonde_hook *hook)
{
    sonde_hook_step_done(hook);
}

/* --- values ----------------------------------------------------------------------- */

/* Where a value of a tensor is: at this step, as the micro-batch that it has come to. */
static sonde_coordinate place(sonde_hook *hook, sonde__hook_tensor *of)
{
    sonde_coordinate at = hook->at;

    if (of->step != at.global_step) {
        of->step = at.global_step;
        of->count = 0;
    }
    at.micro_batch = (int)of->count++;
    return at;
}

void sonde_hook_record_due(sonde_hook *hook, uint32_t id, const sonde_view *view)
{
    sonde__hook_tensor *of = &hook->tensors[id];
    const sonde_mode mode = hook->at.mode;
    const sonde_coordinate at = place(hook, of);
    const uint64_t watching = of->watch[mode] & ~hook->tripped;
    const sonde_vitals *known = NULL;
    sonde_vitals vitals;
    unsigned how = (of->vital & hook->vital_due) != 0 ? SONDE_HOW_VITALS : 0U;
    uint64_t sets = 0, waiting = 0;

    if (watching != 0) {
        sonde_vitals_of(view, &vitals);
        known = &vitals;
        if (vitals.nan + vitals.pos_inf + vitals.neg_inf > 0) {
            sonde__hook_trip(hook, watching);
        }
    }
    sets = of->member & (hook->due_sets | hook->tripped);
    waiting = of->member & hook->nan_sets[mode] & ~sets;
    how |= sonde__hook_how(hook, sets);
    sonde__hook_emit(hook, id, &at, view, known, NULL, how);
    if (waiting != 0 && (sonde__hook_how(hook, waiting) & ~how) != 0) {
        sonde__hook_hold(hook, id, &at, view, waiting, how);
    }
}

/* --- scalars ---------------------------------------------------------------------- */

static void put_scalar(sonde_hook *hook, uint32_t id, double value)
{
    const sonde_view view = sonde_view_of(SONDE_F64, 0, NULL, &value);
    const sonde_coordinate at = place(hook, &hook->tensors[id]);

    sonde__hook_emit(hook, id, &at, &view, NULL, NULL,
                     hook->options.no_vitals ? SONDE_HOW_RAW
                                             : SONDE_HOW_RAW | SONDE_HOW_VITALS);
}

static sonde_err find_scalar(sonde_hook *hook, const char *name, uint32_t *id,
                             sonde_diag *diag)
{
    const size_t size = strlen(name) + sizeof "scalar/";
    char *full = sonde__malloc(size);
    sonde_err err = SONDE_OK;

    if (full == NULL) {
        return sonde__fail_nomem(diag, "a scalar");
    }
    (void)snprintf(full, size, "scalar/%s", name);
    *id = sonde__hook_tensor_named(hook, full);
    if (*id == SONDE_NO_TENSOR) {
        const sonde_tensor_info info = {.name = full,
                                        .role = SONDE_ROLE_SCALAR,
                                        .dtype = SONDE_F64,
                                        .same_as = SONDE_NO_TENSOR};

        err = sonde_hook_declare(hook, &info, id, diag);
    }
    sonde__free(full);
    return err;
}

sonde_err sonde_hook_scalar(sonde_hook *hook, const char *name, double value,
                            sonde_diag *diag)
{
    uint32_t id = 0;
    sonde_err err = find_scalar(hook, name, &id, diag);

    if (err != SONDE_OK) {
        return err;
    }
    if (!hook->begun) {
        if (!sonde__reserve(&hook->early, &hook->early_capacity, hook->early_count + 1,
                            sizeof *hook->early)) {
            return sonde__fail_nomem(diag, "a scalar");
        }
        hook->early[hook->early_count++] = (sonde__early){id, value};
        return SONDE_OK;
    }
    put_scalar(hook, id, value);
    if (!hook->stepping && hook->recorder != NULL) { /* closes its step once more */
        hook->calls->end_step(hook->recorder, &hook->at);
    }
    return SONDE_OK;
}

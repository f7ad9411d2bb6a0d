/*
 * trial_steps.c - the steps of a trial: lists, completeness, waiting, one count to the
 * other.
 */
#include "base/clock.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "trial/trial_state.h"

#include <stdlib.h>
#include <time.h>

/* --- lists of steps --------------------------------------------------------------- */

static bool fill_list(const sonde_trial *trial, sonde_mode mode, bool incomplete,
                      sonde__trial_step_list *list)
{
    const sonde__trial_steps *steps = &trial->steps;

    list->count = 0;
    for (size_t i = 0; i < steps->sorted_count[mode]; i++) {
        const sonde__trial_step *step = &steps->items[steps->sorted[mode][i]];
        const int64_t value = sonde__trial_steps_at(steps, mode, i);

        if (!step->saved || (!incomplete && !sonde__trial_step_complete(trial, step)) ||
            (list->count > 0 && list->steps[list->count - 1] == value)) {
            continue;
        }
        if (!sonde__reserve(&list->steps, &list->capacity, list->count + 1,
                            sizeof *list->steps)) {
            return false;
        }
        list->steps[list->count++] = value;
    }
    return true;
}

const int64_t *sonde_trial_steps(sonde_trial *trial, sonde_mode mode, bool incomplete,
                                 size_t *count)
{
    if (trial == NULL || count == NULL) {
        return NULL;
    }
    static const int64_t none;

    *count = 0;
    if ((unsigned)mode >= SONDE_MODE_COUNT) {
        return &none;
    }
    sonde__trial_step_list *list = &trial->lists[mode][incomplete];
    if (!list->valid) {
        if (!fill_list(trial, mode, incomplete, list)) {
            return NULL;
        }
        list->valid = true;
    }
    *count = list->count;
    return list->count > 0 ? list->steps : &none;
}

/* Copies the steps of a history, as mode counts them, each once. Returns how many. */
static size_t copy_steps(const sonde_trial *trial, const sonde__trial_items *items,
                         const sonde__trial_history *history, sonde_mode mode,
                         int64_t *steps)
{
    size_t count = 0;

    for (uint32_t i = 0; i < history->count; i++) {
        const sonde__trial_item *item = sonde__trial_items_at(items, history->numbers[i]);
        const sonde__trial_step *step = &trial->steps.items[item->step];
        const int64_t value = mode == SONDE_MODE_GLOBAL ? step->global : step->mode_step;

        if ((mode == SONDE_MODE_GLOBAL || step->mode == mode) &&
            (count == 0 || steps[count - 1] != value)) {
            steps[count++] = value;
        }
    }
    return count;
}

static int ascending(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;

    return (a > b) - (a < b);
}

static size_t sort_steps(int64_t *steps, size_t count)
{
    size_t kept = 0;
    bool sorted = true;

    for (size_t i = 1; i < count; i++) {
        sorted = sorted && steps[i - 1] < steps[i];
    }
    if (sorted) {
        return count;
    }
    qsort(steps, count, sizeof *steps, ascending);
    for (size_t i = 0; i < count; i++) {
        if (kept == 0 || steps[kept - 1] != steps[i]) {
            steps[kept++] = steps[i];
        }
    }
    return kept;
}

sonde_err sonde_trial_tensor_steps(sonde_trial *trial, uint32_t id, sonde_mode mode,
                                   unsigned how, int64_t **steps, size_t *count,
                                   sonde_diag *diag)
{
    SONDE__NEEDS(diag, trial, steps, count);
    size_t most = 0, n = 0;
    int64_t *all = NULL;

    if (id >= sonde_catalogue_count(trial->catalogue) ||
        (unsigned)mode >= SONDE_MODE_COUNT) {
        return sonde__fail(diag, SONDE_ERANGE, trial->path,
                           "an id of its catalogue, and a mode", "tensor %lu, mode %d",
                           (unsigned long)id, (int)mode);
    }
    for (int pass = 0; pass < 2; pass++) {
        for (size_t w = 0; w < trial->worker_count; w++) {
            for (int form = 0; form < SONDE_FORM_COUNT; form++) {
                const sonde__trial_items *items = &trial->workers[w]->items[form];
                const sonde__trial_history *history =
                    sonde__trial_items_history(items, id);

                if (how != 0 && (how & 1U << form) == 0) {
                    continue;
                }
                most += pass == 0 ? history->count : 0;
                n += pass == 1 ? copy_steps(trial, items, history, mode, all + n) : 0;
            }
        }
        if (pass == 0) {
            all = sonde__malloc(most * sizeof *all);
            if (all == NULL) {
                return sonde__fail_nomem(diag, "a list of steps");
            }
        }
    }
    *count = sort_steps(all, n);
    *steps = all;
    return SONDE_OK;
}

/* --- completeness ----------------------------------------------------------------- */

sonde_step_state sonde_trial_has_passed_step(sonde_trial *trial, int64_t step,
                                             sonde_mode mode)
{
    if (trial == NULL) {
        return SONDE_STEP_UNAVAILABLE;
    }
    const sonde__trial_steps *steps = &trial->steps;
    bool there = false, complete = false;

    if ((unsigned)mode >= SONDE_MODE_COUNT) {
        return SONDE_STEP_UNAVAILABLE;
    }
    size_t place = sonde__trial_steps_lower(steps, mode, step);
    for (; place < steps->sorted_count[mode] &&
           sonde__trial_steps_at(steps, mode, place) == step;
         place++) {
        const sonde__trial_step *found = &steps->items[steps->sorted[mode][place]];

        complete = complete || sonde__trial_step_complete(trial, found);
        there = there || found->saved;
    }
    if (there) {
        return complete                             ? SONDE_STEP_AVAILABLE
               : trial->status == SONDE_RUN_RUNNING ? SONDE_STEP_NOT_YET
                                                    : SONDE_STEP_UNAVAILABLE;
    }
    if (complete || trial->status != SONDE_RUN_RUNNING) {
        return SONDE_STEP_UNAVAILABLE; /* ended, and nothing was saved at it */
    }
    if (mode == SONDE_MODE_GLOBAL) {
        return step <= trial->last_complete ? SONDE_STEP_UNAVAILABLE : SONDE_STEP_NOT_YET;
    }
    return place < steps->sorted_count[mode] &&
                   steps->items[steps->sorted[mode][place]].global <= trial->last_complete
               ? SONDE_STEP_UNAVAILABLE
               : SONDE_STEP_NOT_YET;
}

/* The last known step of a mode, of a crashed run the last complete one; -1: none. */
static int64_t last_known(const sonde_trial *trial, sonde_mode mode)
{
    const sonde__trial_steps *steps = &trial->steps;
    size_t count = steps->sorted_count[mode];

    while (count > 0 && trial->status == SONDE_RUN_CRASHED &&
           steps->items[steps->sorted[mode][count - 1]].global > trial->last_complete) {
        count--;
    }
    return count > 0 ? sonde__trial_steps_at(steps, mode, count - 1) : -1;
}

static sonde_err fail_unavailable(const sonde_trial *trial, int64_t step, sonde_mode mode,
                                  sonde_diag *diag)
{
    const int64_t last = last_known(trial, mode);

    if (trial->status != SONDE_RUN_RUNNING && step > last) {
        return sonde__fail(diag, SONDE_EEND, trial->path, NULL,
                           "the run %s at %s step %lld, before step %lld",
                           trial->status == SONDE_RUN_ENDED ? "ended"
                           : trial->smdebug != NULL         ? "stopped without an end"
                                                            : "crashed",
                           sonde_mode_name(mode), (long long)last, (long long)step);
    }
    return sonde__fail(diag, SONDE_ENOTFOUND, trial->path, NULL,
                       "nothing was saved at %s step %lld", sonde_mode_name(mode),
                       (long long)step);
}

static void pause_for(double seconds)
{
    struct timespec length = {.tv_sec = (time_t)seconds};

    length.tv_nsec = (long)((seconds - (double)length.tv_sec) * 1e9);
    (void)nanosleep(&length, NULL);
}

sonde_err sonde_trial_wait_for_steps(sonde_trial *trial, const int64_t *steps,
                                     size_t count, sonde_mode mode, double seconds,
                                     sonde_diag *diag)
{
    SONDE__NEEDS(diag, trial);
    if (count > 0) {
        SONDE__NEEDS(diag, steps);
    }
    if ((unsigned)mode >= SONDE_MODE_COUNT) {
        return sonde__fail(diag, SONDE_EINVAL, "mode", "a sonde_mode", "%d", (int)mode);
    }
    const double until = sonde__now() + seconds, most = 0.05;
    double pause = 0.001;
    bool changed = false;
    size_t i = 0;

    for (;;) {
        sonde_step_state state = SONDE_STEP_AVAILABLE;
        double left = until - sonde__now();

        while (i < count && state == SONDE_STEP_AVAILABLE) {
            state = sonde_trial_has_passed_step(trial, steps[i], mode);
            i += state == SONDE_STEP_AVAILABLE;
        }
        if (i == count) {
            return SONDE_OK;
        }
        if (state == SONDE_STEP_UNAVAILABLE) {
            return fail_unavailable(trial, steps[i], mode, diag);
        }
        if (seconds >= 0 && left <= 0) {
            return sonde__fail(diag, SONDE_ETIMEOUT, trial->path, NULL,
                               "%s step %lld did not come within %g s",
                               sonde_mode_name(mode), (long long)steps[i], seconds);
        }
        pause = changed ? 0.001 : SONDE_MIN(pause * 1.5, most);
        pause_for(seconds >= 0 ? SONDE_MIN(pause, left) : pause);
        SONDE__TRY(sonde_trial_refresh(trial, &changed, diag));
    }
}

/* --- one count to the other ------------------------------------------------------- */

bool sonde_trial_mode_step(sonde_trial *trial, int64_t global_step, sonde_mode *mode,
                           int64_t *mode_step)
{
    if (trial == NULL || mode == NULL || mode_step == NULL) {
        return false;
    }
    const sonde__trial_steps *steps = &trial->steps;
    const size_t place = sonde__trial_steps_lower(
        steps, SONDE_MODE_GLOBAL, global_step + (global_step < INT64_MAX));

    if (place == 0 ||
        sonde__trial_steps_at(steps, SONDE_MODE_GLOBAL, place - 1) != global_step) {
        return false;
    }
    *mode = (sonde_mode)steps->items[steps->sorted[SONDE_MODE_GLOBAL][place - 1]].mode;
    *mode_step = steps->items[steps->sorted[SONDE_MODE_GLOBAL][place - 1]].mode_step;
    return true;
}

bool sonde_trial_global_step(sonde_trial *trial, sonde_mode mode, int64_t mode_step,
                             int64_t *global_step)
{
    if (trial == NULL || global_step == NULL) {
        return false;
    }
    const sonde__trial_steps *steps = &trial->steps;

    if ((unsigned)mode >= SONDE_MODE_COUNT) {
        return false;
    }
    const size_t place =
        sonde__trial_steps_lower(steps, mode, mode_step + (mode_step < INT64_MAX));
    if (place == 0 || sonde__trial_steps_at(steps, mode, place - 1) != mode_step) {
        return false;
    }
    *global_step = steps->items[steps->sorted[mode][place - 1]].global;
    return true;
}

/* --- times ------------------------------------------------------------------------ */

bool sonde_trial_step_time(const sonde_trial *trial, sonde_mode mode, int64_t step,
                           int worker, int64_t *time)
{
    if (trial == NULL || time == NULL) {
        return false;
    }
    const sonde__trial_steps *steps = &trial->steps;
    int64_t found = 0;

    if ((unsigned)mode >= SONDE_MODE_COUNT) {
        return false;
    }
    for (size_t place = sonde__trial_steps_lower(steps, mode, step);
         place < steps->sorted_count[mode] &&
         sonde__trial_steps_at(steps, mode, place) == step;
         place++) {
        found = SONDE_MAX(
            found, sonde__trial_ended_at(trial, steps->sorted[mode][place], worker));
    }
    if (found == 0) {
        return false;
    }
    *time = found;
    return true;
}

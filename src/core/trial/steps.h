/*
 * steps.h - the steps of a run, each stored once, and their order. Internal.
 *
 *     items          (global step, mode, step of the mode) in order of arrival; the
 *                    index of a step never changes
 *     sorted[mode]   indexes by step of that mode; sorted[SONDE_MODE_GLOBAL]: all, by
 *                    global step
 *
 * Workers share steps. A step arrives as soon as any file mentions it, so arrival is
 * nearly in order; what arrives out of order is sorted once a refresh by
 * sonde__trial_steps_sort, and queries come after it. Interning the step that was
 * interned last, or the one after it, costs a comparison, any other a hash; a search
 * costs log2(steps) comparisons. One thread at a time.
 */
#ifndef SONDE_TRIAL_STEPS_H
#define SONDE_TRIAL_STEPS_H

#include "base/table.h"

#include <sonde/export.h>
#include <sonde/tap.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SONDE__NONE UINT32_MAX /* no index: absent, or out of memory */

typedef struct sonde__trial_step {
    int64_t global, mode_step;
    uint32_t ended; /* workers that have ended it */
    uint8_t mode;
    bool saved;  /* something was saved at it */
    bool listed; /* in sorted[]; false once a resumed writer superseded it */
} sonde__trial_step;

typedef struct sonde__trial_steps {
    sonde__trial_step *items;
    size_t count, capacity;
    sonde__table table; /* from (global step, mode, step of the mode) to the index */
    uint32_t last;      /* the step interned last; SONDE__NONE before the first */
    uint32_t *sorted[SONDE_MODE_COUNT];
    size_t sorted_count[SONDE_MODE_COUNT], sorted_capacity[SONDE_MODE_COUNT];
    bool unsorted[SONDE_MODE_COUNT];
} sonde__trial_steps;

SONDE_API void sonde__trial_steps_init(sonde__trial_steps *steps);
SONDE_API void sonde__trial_steps_fini(sonde__trial_steps *steps);
/* The index of a step, which is added if it is new. SONDE__NONE: out of memory, and
 * nothing has changed. */
SONDE_API uint32_t sonde__trial_steps_intern(sonde__trial_steps *steps, int64_t global,
                                             sonde_mode mode, int64_t mode_step);
SONDE_API void sonde__trial_steps_sort(sonde__trial_steps *steps);
/* Removes the steps from a global step on that are neither saved nor ended from
 * sorted[]. */
void sonde__trial_steps_drop_empty(sonde__trial_steps *steps, int64_t global);
/* The step number at a place in sorted[mode]. */
SONDE_API int64_t sonde__trial_steps_at(const sonde__trial_steps *steps, sonde_mode mode,
                                        size_t place);
/* The first place in sorted[mode] whose step is at least step. */
SONDE_API size_t sonde__trial_steps_lower(const sonde__trial_steps *steps,
                                          sonde_mode mode, int64_t step);

#endif

/*
 * find.c - from what a user asks for (mode, step, worker, micro-batch, replica) to items, and
 * from items to what he gets.
 */
#include "trial/trial_state.h"
#include "base/fail.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

/* --- steps that may be meant ------------------------------------------------------- */

typedef struct candidates {
    const sonde_trial *trial;
    sonde_mode mode;
    int64_t step;
    size_t place, begin; /* in sorted[mode]; places begin ... place - 1 are left */
} candidates;

/*
 * A step of a mode is one global step, but for runs whose workers count differently, or that
 * were resumed from a point between: then the one that was met last comes first.
 */
static candidates candidates_of(const sonde_trial *trial, const sonde_trial_at *at)
{
    const sonde__trial_steps *steps = &trial->steps;
    candidates of = {trial, at->mode, at->step, 0, 0};

    of.begin = sonde__trial_steps_lower(steps, at->mode, at->step);
    of.place = of.begin;
    while (of.place < steps->sorted_count[at->mode] &&
           sonde__trial_steps_at(steps, at->mode, of.place) == at->step) {
        of.place++;
    }
    return of;
}

static bool next_candidate(candidates *of, uint32_t *step)
{
    if (of->place == of->begin) {
        return false;
    }
    *step = of->trial->steps.sorted[of->mode][--of->place];
    return true;
}

/* --- items ------------------------------------------------------------------------ */

static bool is_valid(const sonde_trial *trial, uint32_t id, const sonde_trial_at *at)
{
    return id < sonde_catalogue_count(trial->catalogue) &&
           (unsigned)at->mode < SONDE_MODE_COUNT && at->replica >= -1 &&
           at->replica <= UINT16_MAX && at->micro_batch >= -1 && at->worker >= -1;
}

/* The places of a step in a track, of one lane or of all. */
static bool find_range(const sonde_trial *trial, const sonde__trial_store *store,
                       uint32_t id, uint32_t step, const sonde_trial_at *at,
                       sonde__trial_found *found)
{
    const sonde__trial_steps *steps = &trial->steps;
    const int64_t global = steps->items[step].global;
    const sonde__trial_track *track = sonde__trial_store_track(store, id);
    const bool all = at->micro_batch < 0 || at->replica < 0;
    const uint64_t lane =
        all ? 0 : (uint64_t)at->micro_batch << 16 | (uint64_t)at->replica;
    uint32_t first = sonde__trial_track_lower(store, steps, track, global, lane),
             count = 0;

    while (first + count < track->count) {
        const sonde__trial_item *item =
            sonde__trial_store_at(store, track->items[first + count]);

        if (item->step != step || (!all && sonde__trial_lane(item) != lane)) {
            break;
        }
        count++;
    }
    found->items = track->items != NULL ? track->items + first : NULL;
    found->count = count;
    return count > 0;
}

bool sonde__trial_find(const sonde_trial *trial, sonde__trial_kind kind, uint32_t id,
                       const sonde_trial_at *at, sonde__trial_found *found)
{
    if (!is_valid(trial, id, at)) {
        return false;
    }
    for (size_t w = 0; w < trial->worker_count; w++) {
        sonde__trial_worker *worker = trial->workers[w];
        candidates of = candidates_of(trial, at);
        uint32_t step = 0;

        if (at->worker >= 0 && at->worker != worker->rank) {
            continue;
        }
        while (next_candidate(&of, &step)) {
            if (find_range(trial, &worker->stores[kind], id, step, at, found)) {
                found->worker = worker;
                found->store = &worker->stores[kind];
                return true;
            }
        }
    }
    return false;
}

unsigned sonde_trial_has(sonde_trial *trial, uint32_t id, const sonde_trial_at *at)
{
    static const unsigned bits[SONDE__KINDS] = {SONDE_HOW_RAW, SONDE_HOW_VITALS,
                                                SONDE_HOW_SKETCH};
    unsigned how = 0;
    sonde__trial_found found;

    for (int kind = 0; kind < SONDE__KINDS; kind++) {
        how |= sonde__trial_find(trial, (sonde__trial_kind)kind, id, at, &found)
                   ? bits[kind]
                   : 0;
    }
    return how;
}

/* --- what is not there ------------------------------------------------------------- */

/* "train step 100, micro-batch 2" */
static const char *place_text(const sonde_trial_at *at, char *text, size_t size)
{
    const int n = snprintf(text, size, "%s step %lld", sonde_mode_name(at->mode),
                           (long long)at->step);

    if (n > 0 && (at->micro_batch > 0 || at->replica > 0)) {
        (void)snprintf(text + n, size - (size_t)n, ", micro-batch %d, replica %d",
                       at->micro_batch, at->replica);
    }
    return text;
}

/* What there is instead: of another kind here, or of this kind near here. */
static const char *instead(sonde_trial *trial, sonde__trial_kind kind, uint32_t id,
                           const sonde_trial_at *at, char *text, size_t size)
{
    const unsigned how = sonde_trial_has(trial, id, at);
    const unsigned bit = kind == SONDE__RAW ? SONDE_HOW_RAW : SONDE_HOW_VITALS;
    int64_t *steps = NULL, before = -1, after = -1;
    size_t count = 0;

    if ((how & SONDE_HOW_VITALS) != 0) {
        return "its vital signs, which are there";
    }
    if ((how & SONDE_HOW_SKETCH) != 0) {
        return "its sketch, which is there";
    }
    if (sonde_trial_tensor_steps(trial, id, at->mode, bit, &steps, &count, NULL) !=
        SONDE_OK) {
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        before = steps[i] <= at->step ? steps[i] : before;
        after = steps[i] >= at->step && after < 0 ? steps[i] : after;
    }
    sonde_trial_free(steps);
    if (before < 0 && after < 0) {
        (void)snprintf(text, size, "a tensor of which there is any in mode %s",
                       sonde_mode_name(at->mode));
    } else if (before >= 0 && after >= 0 && before != after) {
        (void)snprintf(text, size, "step %lld or %lld", (long long)before,
                       (long long)after);
    } else {
        (void)snprintf(text, size, "step %lld, or another worker or micro-batch",
                       (long long)(before >= 0 ? before : after));
    }
    return text;
}

sonde_err sonde__trial_fail_missing(sonde_trial *trial, sonde__trial_kind kind,
                                    uint32_t id, const sonde_trial_at *at,
                                    sonde_diag *diag)
{
    static const char *const whats[SONDE__KINDS] = {"raw value", "vital signs", "sketch"};
    char place[96], other[200];

    if (id >= sonde_catalogue_count(trial->catalogue)) {
        return sonde__fail(diag, SONDE_ERANGE, trial->path, "an id of its catalogue",
                           "tensor %lu", (unsigned long)id);
    }
    if (!is_valid(trial, id, at)) {
        return sonde__fail(diag, SONDE_EINVAL, trial->path,
                           "a mode, and -1 or more for the rest",
                           "mode %d, worker %d, micro-batch %d, replica %d",
                           (int)at->mode, at->worker, at->micro_batch, at->replica);
    }
    return sonde__fail(diag, SONDE_ENOTFOUND, trial->path,
                       instead(trial, kind, id, at, other, sizeof other),
                       "no %s of '%.200s' at %s", whats[kind],
                       sonde_catalogue_info(trial->catalogue, id)->name,
                       place_text(at, place, sizeof place));
}

/* --- what is ---------------------------------------------------------------------- */

static const sonde__trial_raw_item *raw_at(const sonde__trial_found *found, uint32_t i)
{
    return (const void *)sonde__trial_store_at(found->store, found->items[i]);
}

sonde_err sonde_trial_value(sonde_trial *trial, uint32_t id, const sonde_trial_at *at,
                            sonde_view *view, sonde_diag *diag)
{
    sonde__trial_found found;

    trial->look++;
    if (at->micro_batch < 0 || at->replica < 0) {
        return sonde__fail(diag, SONDE_EINVAL, trial->path, "one of them",
                           "a value of all micro-batches or replicas");
    }
    if (!sonde__trial_find(trial, SONDE__RAW, id, at, &found)) {
        return sonde__trial_fail_missing(trial, SONDE__RAW, id, at, diag);
    }
    return sonde__trial_value_of(trial, found.worker, raw_at(&found, 0), view, diag);
}

static sonde_err saved_vitals(const sonde_trial *trial, const sonde__trial_found *found,
                              sonde_vitals *vitals, sonde_diag *diag)
{
    sonde__trial_rows rows = {0};

    sonde_vitals_init(vitals);
    for (uint32_t i = 0; i < found->count; i++) {
        const sonde__trial_row_item *item =
            (const void *)sonde__trial_store_at(found->store, found->items[i]);
        const sonde__record_stats_row *row = NULL;
        sonde_vitals part;
        const sonde_err err =
            sonde__trial_row_of(trial, found->worker, item->row, &rows, &row, diag);

        if (err != SONDE_OK) {
            return err;
        }
        sonde__record_stats_to_vitals(row, found->count == 1 ? vitals : &part);
        if (found->count > 1) {
            sonde_vitals_merge(vitals, &part);
        }
    }
    return SONDE_OK;
}

sonde_err sonde__trial_vitals_of_values(sonde_trial *trial,
                                        const sonde__trial_found *found,
                                        sonde_vitals *vitals, sonde_diag *diag)
{
    sonde_vitals_init(vitals);
    for (uint32_t i = 0; i < found->count; i++) {
        sonde_view view;
        sonde_vitals part;
        const sonde_err err =
            sonde__trial_value_of(trial, found->worker, raw_at(found, i), &view, diag);

        if (err != SONDE_OK) {
            return err;
        }
        sonde_vitals_of(&view, found->count == 1 ? vitals : &part);
        if (found->count > 1) {
            sonde_vitals_merge(vitals, &part);
        }
    }
    return SONDE_OK;
}

sonde_err sonde_trial_vitals(sonde_trial *trial, uint32_t id, const sonde_trial_at *at,
                             sonde_vitals *vitals, sonde_diag *diag)
{
    sonde__trial_found found;
    sonde_vitals result;
    sonde_err err = SONDE_OK;

    trial->look++;
    if (sonde__trial_find(trial, SONDE__VITALS, id, at, &found)) {
        err = saved_vitals(trial, &found, &result, diag);
    } else if (sonde__trial_find(trial, SONDE__RAW, id, at, &found)) {
        err = sonde__trial_vitals_of_values(trial, &found, &result, diag);
    } else {
        return sonde__trial_fail_missing(trial, SONDE__VITALS, id, at, diag);
    }
    if (err == SONDE_OK) {
        *vitals = result;
    }
    return err;
}

static sonde_err sketch_of_all(sonde_trial *trial, const sonde__trial_found *found,
                               bool raw, sonde_sketch *sum, sonde_sketch *part,
                               sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    sonde_sketch_init(sum);
    for (uint32_t i = 0; i < found->count && err == SONDE_OK; i++) {
        const sonde__trial_item *item =
            sonde__trial_store_at(found->store, found->items[i]);
        sonde_view view;

        if (raw) {
            err = sonde__trial_value_of(trial, found->worker, raw_at(found, i), &view,
                                        diag);
            if (err == SONDE_OK) {
                sonde_sketch_add(sum, &view);
            }
            continue;
        }
        err =
            sonde__trial_sketch_of(trial, found->worker, (const void *)item, part, diag);
        if (err == SONDE_OK) {
            sonde_sketch_merge(sum, part);
        }
    }
    return err;
}

sonde_err sonde_trial_sketch(sonde_trial *trial, uint32_t id, const sonde_trial_at *at,
                             sonde_sketch *sketch, sonde_diag *diag)
{
    const bool saved = (sonde_trial_has(trial, id, at) & SONDE_HOW_SKETCH) != 0;
    sonde__trial_found found;
    sonde_sketch *work = NULL; /* two of 18 KB: too much for a stack */
    sonde_err err = SONDE_OK;

    trial->look++;
    if (!sonde__trial_find(trial, saved ? SONDE__SKETCH : SONDE__RAW, id, at, &found)) {
        return sonde__trial_fail_missing(trial, SONDE__SKETCH, id, at, diag);
    }
    work = sonde__malloc(2 * sizeof *work);
    if (work == NULL) {
        return sonde__fail_nomem(diag, "a sketch");
    }
    err = sketch_of_all(trial, &found, !saved, &work[0], &work[1], diag);
    if (err == SONDE_OK) {
        *sketch = work[0];
    }
    sonde__free(work);
    return err;
}

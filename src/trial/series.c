/*
 * series.c - the vital signs of one tensor over many steps.
 *
 * Two tracks, saved rows and raw values, are walked side by side; where a step is in both,
 * what was saved counts. A step that cannot be read is left out and told of. A step's rows lie apart by as many rows as a step has, so the time
 * goes into memory: some 100 ns a step.
 */
#include "trial/trial_state.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <string.h>

typedef struct walk {
    sonde_trial *trial;
    sonde__trial_worker *worker;
    const sonde__trial_store *stores[2]; /* rows, raw values */
    const sonde__trial_track *tracks[2];
    uint32_t at[2];
    sonde_mode mode;
    int64_t begin, end; /* as mode counts */
    sonde__trial_rows rows;
    int64_t *steps;
    sonde_vitals *vitals;
    size_t count;
    uint64_t left_out;
    sonde_diag first; /* of what was left out */
} walk;

static const sonde__trial_item *item_at(const walk *of, int which, uint32_t place)
{
    return sonde__trial_store_at(of->stores[which], of->tracks[which]->items[place]);
}

static const sonde__trial_step *step_of(const walk *of, const sonde__trial_item *item)
{
    return &of->trial->steps.items[item->step];
}

/* Which track goes on; -1 if both are at their ends. */
static int choose(const walk *of)
{
    const bool left[2] = {of->at[0] < of->tracks[0]->count,
                          of->at[1] < of->tracks[1]->count};

    if (!left[0] || !left[1]) {
        return left[0] ? 0 : left[1] ? 1 : -1;
    }
    return step_of(of, item_at(of, 0, of->at[0]))->global <=
                   step_of(of, item_at(of, 1, of->at[1]))->global
               ? 0
               : 1;
}

/* Items of the same step from the place on. */
static uint32_t count_step(const walk *of, int which)
{
    const uint32_t first = of->at[which];
    const int64_t global = step_of(of, item_at(of, which, first))->global;
    uint32_t count = 1;

    while (first + count < of->tracks[which]->count &&
           step_of(of, item_at(of, which, first + count))->global == global) {
        count++;
    }
    return count;
}

static sonde_err read_rows(walk *of, uint32_t count, sonde_vitals *vitals,
                           sonde_diag *diag)
{
    for (uint32_t i = 0; i < count; i++) {
        const sonde__trial_row_item *item = (const void *)item_at(of, 0, of->at[0] + i);
        const sonde__record_stats_row *row = NULL;
        sonde_vitals part;
        const sonde_err err =
            sonde__trial_row_of(of->trial, of->worker, item->row, &of->rows, &row, diag);

        if (err != SONDE_OK) {
            return err;
        }
        if (count == 1) {
            sonde__record_stats_to_vitals(row, vitals);
            break;
        }
        if (i == 0) {
            sonde_vitals_init(vitals);
        }
        sonde__record_stats_to_vitals(row, &part);
        sonde_vitals_merge(vitals, &part);
    }
    return SONDE_OK;
}

static sonde_err take_step(walk *of, int which, uint32_t count, int64_t value,
                           sonde_diag *diag)
{
    sonde_vitals *vitals = &of->vitals[of->count];
    sonde_err err = SONDE_OK;

    if (which == 0) {
        err = read_rows(of, count, vitals, diag);
    } else {
        const sonde__trial_found found = {of->worker, of->stores[1],
                                          of->tracks[1]->items + of->at[1], count};

        err = sonde__trial_vitals_of_values(of->trial, &found, vitals, diag);
    }
    if (err == SONDE_OK) {
        of->steps[of->count++] = value;
    }
    return err;
}

enum { MOST_TOLD = 5 };

/* Whether an error is the matter of that one step alone, which is left out then. */
static bool leave_out(walk *of, int which, sonde_err err, const sonde_diag *why)
{
    sonde__trial_store *store =
        &of->worker->stores[which == 0 ? SONDE__VITALS : SONDE__RAW];

    if (err != SONDE_EFORMAT && err != SONDE_EUNSUPPORTED && err != SONDE_EIO) {
        return false;
    }
    if (of->left_out++ == 0) {
        of->first = *why;
    }
    if (err != SONDE_EUNSUPPORTED && of->left_out <= MOST_TOLD &&
        sonde__trial_store_tell(store, of->tracks[which]->items[of->at[which]])) {
        sonde__trial_damage(of->trial, why->where, "%s", why->found);
    }
    return true;
}

/* Passes over what lies before the range, by halves: tracks ascend in global steps. */
static void skip_before(walk *of, int which)
{
    uint32_t low = 0, high = of->tracks[which]->count;

    while (of->mode == SONDE_MODE_GLOBAL && low < high) {
        const uint32_t middle = low + (high - low) / 2;

        if (step_of(of, item_at(of, which, middle))->global < of->begin) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    of->at[which] = low;
}

static sonde_err take_all(walk *of, sonde_diag *diag)
{
    int64_t last = -1;
    int which = 0;

    skip_before(of, 0);
    skip_before(of, 1);
    while ((which = choose(of)) >= 0) {
        const sonde__trial_step *step = step_of(of, item_at(of, which, of->at[which]));
        const int64_t value =
            of->mode == SONDE_MODE_GLOBAL ? step->global : step->mode_step;
        const uint32_t count = count_step(of, which);
        sonde_err err = SONDE_OK;

        if (of->mode == SONDE_MODE_GLOBAL && of->end != 0 && value >= of->end) {
            break;
        }
        if ((of->mode == SONDE_MODE_GLOBAL || step->mode == of->mode) &&
            value >= of->begin && (of->end == 0 || value < of->end) &&
            step->global != last) {
            sonde_diag why = {0};

            err = take_step(of, which, count, value, &why);
            last = err == SONDE_OK ? step->global : last;
            if (leave_out(of, which, err, &why)) {
                err = SONDE_OK;
            } else if (err != SONDE_OK && diag != NULL) {
                *diag = why;
            }
        }
        if (err != SONDE_OK) {
            return err;
        }
        of->at[which] += count;
    }
    return SONDE_OK;
}

static bool start(walk *of, sonde__trial_worker *worker, uint32_t id)
{
    of->worker = worker;
    of->stores[0] = &worker->stores[SONDE__VITALS];
    of->stores[1] = &worker->stores[SONDE__RAW];
    for (int which = 0; which < 2; which++) {
        of->tracks[which] = sonde__trial_store_track(of->stores[which], id);
    }
    return of->tracks[0]->count + of->tracks[1]->count > 0;
}

/* The worker asked for, or the first that has any. */
static bool choose_worker(walk *of, uint32_t id, int rank)
{
    for (size_t i = 0; i < of->trial->worker_count; i++) {
        sonde__trial_worker *worker = of->trial->workers[i];

        if ((rank < 0 || rank == worker->rank) && start(of, worker, id)) {
            return true;
        }
    }
    return false;
}

static sonde_err run(walk *of, sonde_diag *diag)
{
    const size_t all = (size_t)of->tracks[0]->count + of->tracks[1]->count;
    const size_t most =
        of->end != 0 ? SONDE_MIN(all, (size_t)(of->end - of->begin)) : all;
    sonde_err err = SONDE_OK;

    of->steps = sonde__malloc(most * sizeof *of->steps);
    of->vitals = sonde__malloc(most * sizeof *of->vitals);
    err = of->steps != NULL && of->vitals != NULL
              ? take_all(of, diag)
              : sonde__fail_nomem(diag, "vital signs of many steps");
    if (err != SONDE_OK) {
        sonde__free(of->steps);
        sonde__free(of->vitals);
    }
    return err;
}

sonde_err sonde_trial_vitals_series(sonde_trial *trial, uint32_t id, sonde_mode mode,
                                    int worker, int64_t begin, int64_t end,
                                    int64_t **steps, sonde_vitals **vitals, size_t *count,
                                    sonde_diag *diag)
{
    walk of = {.trial = trial, .mode = mode, .begin = begin, .end = end};
    sonde_err err = SONDE_OK;

    if (id >= sonde_catalogue_count(trial->catalogue)) {
        return sonde__fail(diag, SONDE_ERANGE, trial->path, "an id of its catalogue",
                           "tensor %lu", (unsigned long)id);
    }
    if ((unsigned)mode >= SONDE_MODE_COUNT || begin < 0 || end < 0 ||
        (end != 0 && end <= begin)) {
        return sonde__fail(
            diag, SONDE_EINVAL, trial->path, "a mode, and 0 <= begin < end",
            "mode %d, begin %lld, end %lld", (int)mode, (long long)begin, (long long)end);
    }
    if (!choose_worker(&of, id, worker)) {
        return sonde__fail(diag, SONDE_ENOTFOUND, trial->path, NULL,
                           "neither vital signs nor values of '%s' were saved",
                           sonde_catalogue_info(trial->catalogue, id)->name);
    }
    trial->look++;
    err = run(&of, diag);
    if (err == SONDE_OK) {
        *steps = of.steps;
        *vitals = of.vitals;
        *count = of.count;
    }
    if (err == SONDE_OK && of.left_out > 0 && diag != NULL) {
        *diag = of.first;
    }
    return err;
}

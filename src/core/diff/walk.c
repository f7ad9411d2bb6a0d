/*
 * walk.c - all steps that both sides have, in order, and in each all tensors.
 */
#include "diff/diff_state.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "diff/rounding.h"

#include <stdlib.h>
#include <string.h>

/* A step of A. */
typedef struct step {
    int64_t global, step;
    sonde_mode mode;
} step;

/* What the walk carries along. */
typedef struct walk {
    sonde_diff *diff;
    step *steps;
    size_t count;
    bool (*seen)(void *user, const sonde_difference *one);
    void *user;
    bool ended; /* seen wants no more */
    int64_t global;
} walk;

/* --- steps ---------------------------------------------------------------------------- */

static int by_global(const void *a, const void *b)
{
    const step *const x = a, *const y = b;

    return (x->global > y->global) - (x->global < y->global);
}

static bool is_asked(const sonde_diff_options *options, sonde_mode mode, int64_t at)
{
    return (options->modes == 0 || (options->modes >> mode & 1U) != 0) &&
           at >= options->begin && (options->end == 0 || at < options->end);
}

static bool has_step(const int64_t *steps, size_t count, int64_t at)
{
    size_t low = 0, high = count;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (steps[middle] < at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < count && steps[low] == at;
}

/* Adds the steps of a mode that both have, and counts the others. */
static sonde_err add_mode(walk *w, size_t *capacity, sonde_mode mode, sonde_diag *diag)
{
    sonde_diff *const diff = w->diff;
    sonde_trial *const trial = diff->side[SONDE__DIFF_A].trial;
    size_t in_a = 0, in_b = 0, common = 0;
    const int64_t *const a = sonde_trial_steps(trial, mode, true, &in_a);
    const int64_t *const b =
        sonde_trial_steps(diff->side[SONDE__DIFF_B].trial, mode, true, &in_b);

    if (a == NULL || b == NULL) {
        return sonde__fail_nomem(diag, "the steps of a run");
    }
    for (size_t i = 0; i < in_a; i++) {
        step one = {a[i], a[i], mode};

        if (!is_asked(&diff->options, mode, a[i])) {
            continue;
        }
        if (!has_step(b, in_b, a[i])) {
            diff->report.only_a++;
            continue;
        }
        (void)sonde_trial_global_step(trial, mode, a[i], &one.global);
        if (!sonde__reserve(&w->steps, capacity, w->count + 1, sizeof *w->steps)) {
            return sonde__fail_nomem(diag, "the steps of a run");
        }
        w->steps[w->count++] = one;
        common++;
    }
    for (size_t i = 0; i < in_b; i++) {
        diff->report.only_b += is_asked(&diff->options, mode, b[i]);
    }
    diff->report.only_b -= common;
    return SONDE_OK;
}

static sonde_err list_steps(walk *w, sonde_diag *diag)
{
    size_t capacity = 0;

    for (int mode = 0; mode < SONDE_MODE_GLOBAL; mode++) {
        SONDE__TRY(add_mode(w, &capacity, (sonde_mode)mode, diag));
    }
    if (w->count == 0) { /* a run without modes */
        SONDE__TRY(add_mode(w, &capacity, SONDE_MODE_GLOBAL, diag));
    }
    if (w->count > 0) {
        qsort(w->steps, w->count, sizeof *w->steps, by_global);
    }
    return SONDE_OK;
}

/* --- programs ------------------------------------------------------------------------- */

/* Loads the program of A in force at the first step of a mode: terms of sums, lines. */
static sonde_err load_program(sonde_diff *diff, const step *at, sonde_diag *diag)
{
    sonde_trial *const trial = diff->side[SONDE__DIFF_A].trial;
    const sonde_catalogue *const catalogue = sonde_trial_catalogue(trial);
    sonde_err err =
        sonde_trial_program(trial, at->mode, at->step, &diff->program[at->mode], NULL);

    (void)diag;
    if (err != SONDE_OK) {
        return err == SONDE_ENOMEM ? err : SONDE_OK; /* it is not needed */
    }
    for (size_t i = 0; i < diff->count; i++) {
        diff->rows[i].terms[at->mode] = sonde__diff_terms(
            diff->program[at->mode],
            sonde_catalogue_info(catalogue, diff->rows[i].entry[SONDE__DIFF_A]->id));
    }
    return SONDE_OK;
}

/* --- places --------------------------------------------------------------------------- */

static void count_one(sonde_diff *diff, sonde__diff_row *row, const sonde_difference *one,
                      int64_t global)
{
    sonde_diff_tensor *const out = &row->out;

    diff->report.places++;
    diff->report.counts[one->kind]++;
    out->compared++;
    out->counts[one->kind]++;
    if (one->kind == SONDE_DIFF_SAME) {
        return;
    }
    out->first = out->first < 0 ? global : out->first;
    out->last = global;
    if (one->kind != SONDE_DIFF_ROUNDING && out->beyond < 0) {
        out->beyond = global;
    }
    if (out->relative_step < 0 || one->relative > out->relative) {
        out->relative = one->relative;
        out->relative_step = global;
    }
    if (one->kind != SONDE_DIFF_SHAPE) {
        diff->now = SONDE_MAX(diff->now, one->relative);
    }
}

static sonde_err visit(walk *w, sonde__diff_row *row,
                       const sonde_trial_at at[SONDE__DIFF_SIDES], bool *found,
                       sonde_diag *diag)
{
    sonde_difference one;
    bool compared = false;
    SONDE__TRY(sonde__diff_place(w->diff, row, at, &one, &compared, diag));
    *found = compared;
    if (!compared) {
        return SONDE_OK;
    }
    const sonde_program *const program = w->diff->program[one.mode];
    if (one.kind != SONDE_DIFF_SAME && program != NULL) {
        one.place = sonde_program_place_of(program, one.name);
    } else {
        one.place = (sonde_place){.file = ""};
    }
    count_one(w->diff, row, &one, w->global);
    if (one.kind != SONDE_DIFF_SAME && w->seen != NULL && !w->seen(w->user, &one)) {
        w->ended = true;
    }
    return SONDE_OK;
}

/* All micro-batches and replicas of a tensor on a pair of workers. */
static sonde_err visit_shards(walk *w, sonde__diff_row *row, const step *at,
                              const int worker[SONDE__DIFF_SIDES], sonde_diag *diag)
{
    bool more = true;

    for (int micro = 0; more && !w->ended; micro++) {
        bool found = true;

        more = false;
        for (int replica = 0; found && !w->ended; replica++) {
            sonde_trial_at places[SONDE__DIFF_SIDES];

            for (int i = 0; i < SONDE__DIFF_SIDES; i++) {
                places[i] =
                    (sonde_trial_at){at->mode, at->step, worker[i], micro, replica};
            }
            SONDE__TRY(visit(w, row, places, &found, diag));
            more = more || found;
        }
    }
    return SONDE_OK;
}

static size_t workers_of(const sonde__diff_side *side)
{
    size_t count = 0;

    while (side->trial != NULL && sonde_trial_worker(side->trial, count) >= 0) {
        count++;
    }
    return count;
}

/* Workers in pairs; one worker against several: against all of them together. */
static sonde_err visit_workers(walk *w, sonde__diff_row *row, const step *at,
                               sonde_diag *diag)
{
    sonde_diff *const diff = w->diff;
    const size_t a = workers_of(&diff->side[SONDE__DIFF_A]);
    const size_t b = workers_of(&diff->side[SONDE__DIFF_B]);
    const size_t pairs = SONDE_MAX(SONDE_MIN(a, b), 1);

    for (size_t i = 0; i < pairs && !w->ended; i++) {
        int worker[SONDE__DIFF_SIDES] = {0};

        for (int side = 0; side < SONDE__DIFF_SIDES; side++) {
            const size_t own = workers_of(&diff->side[side]);

            worker[side] = pairs == 1 && own > 1
                               ? -1
                               : sonde_trial_worker(diff->side[side].trial, i);
        }
        SONDE__TRY(visit_shards(w, row, at, worker, diag));
    }
    return SONDE_OK;
}

static sonde_err visit_step(walk *w, const step *at, sonde_diag *diag)
{
    sonde_diff *const diff = w->diff;
    const uint32_t *const order = diff->begun ? diff->later : diff->first;

    if (diff->program[at->mode] == NULL) {
        SONDE__TRY(load_program(diff, at, diag));
    }
    w->global = at->global;
    diff->terms = 0.0;
    diff->now = 0.0;
    for (size_t i = 0; i < diff->count && !w->ended; i++) {
        sonde__diff_row *const row = &diff->rows[order[i]];

        if (row->entry[SONDE__DIFF_B] != NULL) {
            diff->terms += row->terms[at->mode];
            SONDE__TRY(visit_workers(w, row, at, diag));
        }
    }
    diff->begun = true;
    diff->grown = SONDE_MAX(diff->grown, diff->now);
    diff->report.steps++;
    return SONDE_OK;
}

/* --- files ---------------------------------------------------------------------------- */

static sonde_err visit_files(walk *w, sonde_diag *diag)
{
    const sonde_trial_at at[SONDE__DIFF_SIDES] = {{0}};
    sonde_diff *const diff = w->diff;
    bool found = false;

    diff->report.files = true;
    diff->report.steps = 1;
    for (size_t i = 0; i < diff->count && !w->ended; i++) {
        if (diff->rows[i].entry[SONDE__DIFF_B] != NULL) {
            diff->rows[i].terms[0] = 1.0; /* weights are stored, not added up */
            SONDE__TRY(visit(w, &diff->rows[i], at, &found, diag));
        }
    }
    return SONDE_OK;
}

sonde_err sonde_diff_run(sonde_diff *diff,
                         bool (*seen)(void *user, const sonde_difference *one),
                         void *user, sonde_diag *diag)
{
    SONDE__NEEDS(diag, diff);
    walk w = {.diff = diff, .seen = seen, .user = user};
    sonde_err err = SONDE_OK;

    if (diff->report.steps > 0) {
        return sonde__fail(diag, SONDE_ESTATE, "sonde_diff_run", "one call",
                           "a second one");
    }
    if (diff->side[SONDE__DIFF_A].trial == NULL) {
        err = visit_files(&w, diag);
    } else {
        err = list_steps(&w, diag);
        for (size_t i = 0; err == SONDE_OK && i < w.count && !w.ended; i++) {
            err = visit_step(&w, &w.steps[i], diag);
        }
    }
    sonde__free(w.steps);
    for (size_t i = 0; i < diff->count; i++) {
        diff->report.not_comparable +=
            diff->rows[i].out.other != NULL && diff->rows[i].out.compared == 0;
    }
    return err;
}

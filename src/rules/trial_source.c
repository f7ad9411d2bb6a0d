/*
 * trial_source.c - rules over a trial: its steps in order, vital signs in blocks of steps.
 *
 *     for every block of at most BLOCK steps
 *         series of every tensor that a rule wants      one call of the trial each
 *         for every step: its rows; its raw values and sketches by a cursor; end_step
 *
 * A live run is read up to its last complete step, again and again, until it has ended.
 */
#include "rules/engine.h"

#include "tensor/hash.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { BLOCK = 2048, POLL_MS = 20 };
#define STALL_SECONDS 1800.0

/* The vital signs of a tensor over a block, and how far they have been handed over. */
typedef struct series {
    int64_t *steps;
    sonde_vitals *vitals;
    size_t count, at;
} series;

typedef struct source {
    sonde_rules *rules;
    sonde_trial *trial;
    const sonde_rules_pace *pace;
    series *series; /* by id */
    size_t count, capacity;
    sonde_trial_cursor
        *cursor;               /* over raw values and sketches; NULL: no rule wants any */
    sonde_trial_record record; /* the next of them */
    bool has_record;
    int64_t next; /* the first global step that has not been judged */
} source;

static bool in_collection(const void *user, uint32_t id, const char *collection)
{
    return sonde_trial_in_collection(user, id, collection);
}

static void free_block(source *from)
{
    for (size_t id = 0; id < from->count; id++) {
        sonde_trial_free(from->series[id].steps);
        sonde_trial_free(from->series[id].vitals);
        from->series[id] = (series){0};
    }
}

static sonde_err grow(source *from, sonde_diag *diag)
{
    const size_t count = sonde_catalogue_count(sonde_trial_catalogue(from->trial));

    if (!sonde__reserve(&from->series, &from->capacity, count, sizeof *from->series)) {
        return sonde__fail_nomem(diag, "the tensors of a trial");
    }
    for (size_t id = from->count; id < count; id++) {
        from->series[id] = (series){0};
    }
    from->count = count;
    return SONDE_OK;
}

/* The vital signs of global steps begin ... end - 1. */
static sonde_err read_block(source *from, int64_t begin, int64_t end, sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    free_block(from);
    for (uint32_t id = 0; id < from->count && err == SONDE_OK; id++) {
        series *rows = &from->series[id];

        if (sonde_rules_wants(from->rules, id) & SONDE_HOW_VITALS) {
            err = sonde_trial_vitals_series(from->trial, id, SONDE_MODE_GLOBAL, -1, begin,
                                            end, &rows->steps, &rows->vitals,
                                            &rows->count, diag);
        }
    }
    return err;
}

/* The next record that can be read: damage is the trial's to tell, rules do without. */
static void next_record(source *from)
{
    sonde_err err = SONDE_EFORMAT;

    while (err != SONDE_OK && err != SONDE_EEND && err != SONDE_ENOMEM) {
        err = sonde_trial_next(from->cursor, &from->record, NULL);
    }
    from->has_record = err == SONDE_OK;
}

/* A cursor over what rules want beyond vital signs, from the next step on. */
static sonde_err open_cursor(source *from, sonde_diag *diag)
{
    sonde_trial_cursor_options options = {.mode = SONDE_MODE_GLOBAL, .begin = from->next};
    uint32_t *ids = sonde__malloc(from->count * sizeof *ids);
    sonde_err err = SONDE_OK;

    sonde_trial_cursor_destroy(from->cursor);
    from->cursor = NULL;
    from->has_record = false;
    if (ids == NULL) {
        return sonde__fail_nomem(diag, "the tensors of a trial");
    }
    for (uint32_t id = 0; id < from->count; id++) {
        unsigned how = sonde_rules_wants(from->rules, id);

        how = (how & SONDE_HOW_HASH) ? how | SONDE_HOW_RAW : how;
        how &= SONDE_HOW_RAW | SONDE_HOW_SKETCH;
        if (how != 0) {
            ids[options.id_count++] = id;
            options.how |= how;
        }
    }
    options.ids = ids;
    if (options.id_count > 0) {
        err = sonde_trial_cursor_create(from->trial, &options, &from->cursor, diag);
    }
    sonde__free(ids);
    if (err == SONDE_OK && from->cursor != NULL) {
        next_record(from);
    }
    return err;
}

static void put_vitals(source *from, const sonde_coordinate *at)
{
    for (uint32_t id = 0; id < from->count; id++) {
        series *rows = &from->series[id];

        while (rows->at < rows->count && rows->steps[rows->at] < at->global_step) {
            rows->at++;
        }
        if (rows->at < rows->count && rows->steps[rows->at] == at->global_step) {
            const sonde_observation seen = {
                .id = id,
                .info = sonde_catalogue_info(sonde_trial_catalogue(from->trial), id),
                .at = *at,
                .vitals = &rows->vitals[rows->at]};

            sonde_rules_put(from->rules, &seen);
        }
    }
}

/* Raw values and sketches of the step. Replicas of worker w count from 1024 w. */
static void put_records(source *from, int64_t step)
{
    while (from->has_record && from->record.at.global_step <= step) {
        const sonde_trial_record *record = &from->record;
        sonde_observation seen = {
            .id = record->id,
            .info = sonde_catalogue_info(sonde_trial_catalogue(from->trial), record->id),
            .at = record->at};

        seen.at.replica += record->worker * 1024;
        if (record->how & SONDE_HOW_RAW) {
            seen.view = &record->view;
            if (sonde_rules_wants(from->rules, record->id) & SONDE_HOW_HASH) {
                seen.hash = sonde__hash_view(seen.view);
            }
        } else {
            seen.sketch = record->sketch;
        }
        if (record->at.global_step == step) {
            sonde_rules_put(from->rules, &seen);
        }
        next_record(from);
    }
}

static void judge_step(source *from, int64_t step)
{
    sonde_coordinate at = {.global_step = step, .mode_step = step};

    if (!sonde_trial_mode_step(from->trial, step, &at.mode, &at.mode_step)) {
        at.mode = SONDE_MODE_GLOBAL;
    }
    put_vitals(from, &at);
    put_records(from, step);
    sonde_rules_end_step(from->rules, &at);
    from->next = step + 1;
}

static bool stopped(const source *from)
{
    return from->pace->stop != NULL && from->pace->stop(from->pace->user);
}

static sonde_err fail_stopped(sonde_diag *diag)
{
    return sonde__fail(diag, SONDE_EINTERRUPTED, "rules", NULL, "interrupted");
}

/* All complete steps from next on. *any: whether there were. */
static sonde_err judge_new(source *from, bool *any, sonde_diag *diag)
{
    size_t count = 0, first = 0;
    const int64_t *steps =
        sonde_trial_steps(from->trial, SONDE_MODE_GLOBAL, false, &count);
    const int64_t end = from->pace->end > 0 ? from->pace->end : INT64_MAX;
    sonde_err err = sonde_rules_refresh(from->rules, diag);

    if (err == SONDE_OK) {
        err = grow(from, diag);
    }
    while (first < count && steps[first] < from->next) {
        first++;
    }
    while (count > first && steps[count - 1] >= end) {
        count--;
    }
    *any = first < count;
    while (err == SONDE_OK && first < count) {
        const size_t last = SONDE_MIN(first + BLOCK, count) - 1;

        err = read_block(from, steps[first], steps[last] + 1, diag);
        /* the cursor comes behind it: a block's vital signs may use up the memory that a
         * compressed record lies in */
        if (err == SONDE_OK) {
            err = open_cursor(from, diag);
        }
        for (; err == SONDE_OK && first <= last; first++) {
            err = stopped(from) ? fail_stopped(diag) : SONDE_OK;
            if (err == SONDE_OK) {
                judge_step(from, steps[first]);
            }
        }
    }
    return err;
}

static sonde_err fail_stalled(const source *from, double limit, sonde_diag *diag)
{
    sonde_run_info info;

    sonde_trial_describe(from->trial, &info);
    return sonde__fail(diag, SONDE_ETIMEOUT, info.path, "a run that grows or ends",
                       "no new step for %.0f s, the last is %lld", limit,
                       (long long)info.last_step);
}

static sonde_err follow(source *from, sonde_diag *diag)
{
    const double limit = from->pace->stall > 0 ? from->pace->stall : STALL_SECONDS;
    const struct timespec pause = {0, POLL_MS * 1000000L};
    double grown = sonde__now();
    sonde_err err = SONDE_OK;

    for (;;) {
        sonde_run_info info;
        bool changed = false, any = false;

        err = sonde_trial_refresh(from->trial, &changed, diag);
        if (err == SONDE_OK) {
            err = judge_new(from, &any, diag);
        }
        if (err != SONDE_OK) {
            return err;
        }
        grown = any ? sonde__now() : grown;
        sonde_trial_describe(from->trial, &info);
        if ((info.status != SONDE_RUN_RUNNING && !any) ||
            (from->pace->end > 0 && from->next >= from->pace->end)) {
            return SONDE_OK;
        }
        if (stopped(from)) {
            return fail_stopped(diag);
        }
        sonde_rules_idle(from->rules, sonde__now() - grown);
        if (!any && sonde__now() - grown > limit) {
            return fail_stalled(from, limit, diag);
        }
        (void)nanosleep(&pause, NULL);
    }
}

sonde_err sonde_rules_judge(sonde_rules *rules, sonde_trial *trial,
                            const sonde_rules_pace *pace, sonde_diag *diag)
{
    const sonde_rules_pace whole = {0};
    source from = {.rules = rules, .trial = trial, .pace = pace != NULL ? pace : &whole};
    bool any = false;
    sonde_err err = SONDE_OK;

    from.next = from.pace->begin;
    err = sonde_rules_begin(rules, sonde_trial_catalogue(trial), in_collection, trial,
                            diag);
    if (err == SONDE_OK) {
        err = judge_new(&from, &any, diag);
    }
    if (err == SONDE_OK && from.pace->follow) {
        err = follow(&from, diag);
    }
    sonde_rules_finish(rules);
    free_block(&from);
    sonde__free(from.series);
    sonde_trial_cursor_destroy(from.cursor);
    return err;
}

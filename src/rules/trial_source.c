/*
 * trial_source.c - rules over a trial: its steps in order, vital signs in blocks of steps.
 *
 *     for every block of at most BLOCK steps
 *         series of every tensor that a rule wants      one call of the trial each
 *         for every step: its rows; its raw values and sketches by a cursor; end_step
 *
 * A live run is read up to its last complete step, again and again, until it has ended.
 *
 * A tensor may have several names (aliases). Whichever of them it was recorded under, once or
 * twice, rules see its value once under each name that they want, as in the process.
 */
#include "rules/engine.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include "tensor/hash.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { BLOCK = 2048, POLL_MS = 20 };
#define STALL_SECONDS 1800.0

/* The vital signs of a name over a block, and how far they have been handed over. */
typedef struct series {
    int64_t *steps;
    sonde_vitals *vitals;
    size_t count, at;
    uint32_t next; /* the next name of the same tensor; SONDE_NO_TENSOR: none */
    unsigned how;  /* of a tensor's own name: what is wanted under all of them */
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

static const sonde_tensor_info *info_of(const source *from, uint32_t id)
{
    return sonde_catalogue_info(sonde_trial_catalogue(from->trial), id);
}

static void free_block(source *from)
{
    for (size_t id = 0; id < from->count; id++) {
        series *rows = &from->series[id];

        sonde_trial_free(rows->steps);
        sonde_trial_free(rows->vitals);
        *rows = (series){.next = rows->next, .how = rows->how};
    }
}

/* A name that is new, behind the others of its tensor. */
static void add_name(source *from, uint32_t id)
{
    const uint32_t tensor = info_of(from, id)->same_as;
    uint32_t last = tensor;

    from->series[id] = (series){.next = SONDE_NO_TENSOR};
    from->series[tensor].how |= sonde_rules_wants(from->rules, id);
    while (from->series[last].next != SONDE_NO_TENSOR) {
        last = from->series[last].next;
    }
    if (last != id) {
        from->series[last].next = id;
    }
}

static sonde_err grow(source *from, sonde_diag *diag)
{
    const size_t count = sonde_catalogue_count(sonde_trial_catalogue(from->trial));

    if (!sonde__reserve(&from->series, &from->capacity, count, sizeof *from->series)) {
        return sonde__fail_nomem(diag, "the tensors of a trial");
    }
    for (size_t id = from->count; id < count; id++) {
        add_name(from, (uint32_t)id);
    }
    from->count = count;
    return SONDE_OK;
}

/* What is wanted of the tensor that has this name, under all its names. */
static unsigned wants(const source *from, uint32_t id)
{
    return from->series[info_of(from, id)->same_as].how;
}

/* The vital signs of global steps begin ... end - 1. */
static sonde_err read_block(source *from, int64_t begin, int64_t end, sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    free_block(from);
    for (uint32_t id = 0; id < from->count && err == SONDE_OK; id++) {
        series *rows = &from->series[id];

        if (wants(from, id) & SONDE_HOW_VITALS) {
            err = sonde_trial_vitals_series(from->trial, id, SONDE_MODE_GLOBAL, -1, begin,
                                            end, &rows->steps, &rows->vitals,
                                            &rows->count, diag);
            err = err == SONDE_ENOTFOUND ? SONDE_OK : err; /* not under this name */
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
        unsigned how = wants(from, id);

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

/* Shows it under every name of the tensor of which any of how is wanted. */
static void put(source *from, uint32_t tensor, unsigned how, sonde_observation *seen)
{
    for (uint32_t id = tensor; id != SONDE_NO_TENSOR; id = from->series[id].next) {
        if (sonde_rules_wants(from->rules, id) & how) {
            seen->id = id;
            seen->info = info_of(from, id);
            sonde_rules_put(from->rules, seen);
        }
    }
}

/* Of one name; NULL if there are none at that step. */
static const sonde_vitals *vitals_at(series *rows, int64_t step)
{
    while (rows->at < rows->count && rows->steps[rows->at] < step) {
        rows->at++;
    }
    return rows->at < rows->count && rows->steps[rows->at] == step
               ? &rows->vitals[rows->at]
               : NULL;
}

static void put_vitals(source *from, const sonde_coordinate *at)
{
    for (uint32_t id = 0; id < from->count; id++) {
        sonde_observation seen = {.at = *at};
        uint32_t name = info_of(from, id)->same_as == id ? id : SONDE_NO_TENSOR;

        for (; name != SONDE_NO_TENSOR && seen.vitals == NULL;
             name = from->series[name].next) {
            seen.vitals = vitals_at(&from->series[name], at->global_step);
        }
        if (seen.vitals != NULL) {
            put(from, id, SONDE_HOW_VITALS, &seen);
        }
    }
}

/* Whether a record is under an earlier name of its tensor as well. */
static bool has_earlier(const source *from, const sonde_trial_record *record)
{
    const sonde_trial_at at = {.mode = SONDE_MODE_GLOBAL,
                               .step = record->at.global_step,
                               .worker = record->worker,
                               .micro_batch = record->at.micro_batch,
                               .replica = record->at.replica};
    uint32_t name = info_of(from, record->id)->same_as;

    while (name != record->id &&
           (sonde_trial_has(from->trial, name, &at) & record->how) == 0) {
        name = from->series[name].next;
    }
    return name != record->id;
}

/* Raw values and sketches of the step. Replicas of worker w count from 1024 w. */
static void put_records(source *from, int64_t step)
{
    for (; from->has_record && from->record.at.global_step <= step; next_record(from)) {
        const sonde_trial_record *record = &from->record;
        const unsigned how = record->how & SONDE_HOW_RAW ? SONDE_HOW_RAW | SONDE_HOW_HASH
                                                         : SONDE_HOW_SKETCH;
        sonde_observation seen = {.at = record->at};

        if (record->at.global_step < step || has_earlier(from, record)) {
            continue;
        }
        seen.at.replica += record->worker * 1024;
        if (record->how & SONDE_HOW_RAW) {
            seen.view = &record->view;
            seen.hash = wants(from, record->id) & SONDE_HOW_HASH
                            ? sonde__hash_view(seen.view)
                            : 0;
        } else {
            seen.sketch = record->sketch;
        }
        put(from, info_of(from, record->id)->same_as, how, &seen);
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

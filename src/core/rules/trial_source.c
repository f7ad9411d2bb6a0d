/*
 * trial_source.c - rules over a trial: its steps in order, with vital signs in blocks of
 * steps.
 *
 *     for every block of at most BLOCK steps
 *         series of every tensor that a rule wants      one call of the trial each
 *         for every step: its rows; its raw values and sketches by a cursor; end_step
 *
 * A live run is read up to its last complete step, repeatedly, until it has ended.
 *
 * A tensor can have several names (aliases). Whichever of them it was recorded under,
 * once or twice, rules see its value once under each name that they want, as in the
 * training process.
 */
#include "rules/engine.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include "tensor/reduction.h"

#include <sonde/log.h>

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { BLOCK = 2048, POLL_MS = 20 };
#define STALL_SECONDS 1800.0

/* The vital signs of a name over a block, and the position of the next row. */
typedef struct series {
    int64_t *steps;
    sonde_vitals *vitals;
    size_t count, at;
    uint32_t next; /* the next name of the same tensor; SONDE_NO_TENSOR: none */
    unsigned how;  /* of a tensor's own name: the evidence needed under all names */
} series;

typedef struct trial_source {
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
} trial_source;

static bool in_collection(const void *user, uint32_t id, const char *collection)
{
    return sonde_trial_in_collection(user, id, collection);
}

static const sonde_tensor_info *info_of(const trial_source *source, uint32_t id)
{
    return sonde_catalogue_info(sonde_trial_catalogue(source->trial), id);
}

static void free_block(trial_source *source)
{
    for (size_t id = 0; id < source->count; id++) {
        series *rows = &source->series[id];

        sonde_release(rows->steps);
        sonde_release(rows->vitals);
        *rows = (series){.next = rows->next, .how = rows->how};
    }
}

/* Adds a new name after the other names of its tensor. */
static void add_name(trial_source *source, uint32_t id)
{
    const uint32_t tensor = info_of(source, id)->same_as;
    uint32_t last = tensor;

    source->series[id] = (series){.next = SONDE_NO_TENSOR};
    source->series[tensor].how |= sonde__rules_wants(source->rules, id);
    while (source->series[last].next != SONDE_NO_TENSOR) {
        last = source->series[last].next;
    }
    if (last != id) {
        source->series[last].next = id;
    }
}

static sonde_err grow(trial_source *source, sonde_diag *diag)
{
    const size_t count = sonde_catalogue_count(sonde_trial_catalogue(source->trial));

    if (!sonde__reserve(&source->series, &source->capacity, count,
                        sizeof *source->series)) {
        return sonde__fail_nomem(diag, "the tensors of a trial");
    }
    for (size_t id = source->count; id < count; id++) {
        add_name(source, (uint32_t)id);
    }
    source->count = count;
    return SONDE_OK;
}

/* The evidence that is needed of the tensor with this name, under all its names. */
static unsigned wants(const trial_source *source, uint32_t id)
{
    return source->series[info_of(source, id)->same_as].how;
}

/* Reads the vital signs of global steps begin ... end - 1. */
static sonde_err read_block(trial_source *source, int64_t begin, int64_t end,
                            sonde_diag *diag)
{
    free_block(source);
    for (uint32_t id = 0; id < source->count; id++) {
        series *rows = &source->series[id];

        if ((wants(source, id) & SONDE_HOW_SIGNS) == 0) {
            continue;
        }
        const sonde_err err = sonde_trial_vitals_series(
            source->trial, id, SONDE_MODE_GLOBAL, -1, begin, end, &rows->steps,
            &rows->vitals, &rows->count, diag);
        if (err != SONDE_OK && err != SONDE_ENOTFOUND) { /* not under this name */
            return err;
        }
    }
    return SONDE_OK;
}

/* Reads the next record that is intact; the trial reports damage. SONDE_ENOMEM. */
static sonde_err next_record(trial_source *source, sonde_diag *diag)
{
    sonde_err err = SONDE_EFORMAT;

    while (err != SONDE_OK && err != SONDE_EEND && err != SONDE_ENOMEM) {
        err = sonde_trial_next(source->cursor, &source->record, NULL);
    }
    source->has_record = err == SONDE_OK;
    return err == SONDE_ENOMEM ? sonde__fail_nomem(diag, "the records of a step")
                               : SONDE_OK;
}

static bool is_program(const trial_source *source, uint32_t id)
{
    return info_of(source, id)->role == SONDE_ROLE_PROGRAM;
}

/* Rules read the programs of the first worker. One whose text is damaged is left out. */
static sonde_err take_program(trial_source *source, const sonde_trial_record *record,
                              sonde_diag *diag)
{
    sonde_program *program = NULL;
    sonde_diag fault;
    sonde_err err = SONDE_OK;

    if (record->worker != sonde_trial_worker(source->trial, 0)) {
        return SONDE_OK;
    }
    err = sonde_program_read(record->view.data, (size_t)sonde_view_count(&record->view),
                             &program, &fault);
    if (err == SONDE_ENOMEM) {
        return sonde__fail_nomem(diag, "a program");
    }
    if (err != SONDE_OK) {
        char line[SONDE_DIAG_LINE];

        sonde_log(SONDE_LOG_WARNING, "rules", "%s at step %lld is left out: %s",
                  info_of(source, record->id)->name, (long long)record->at.global_step,
                  sonde_diag_line(&fault, line, sizeof line));
        return SONDE_OK;
    }
    err = sonde__rules_take_program(source->rules, record->at.global_step, program, diag);
    if (err != SONDE_OK) {
        sonde_program_destroy(program);
    }
    return err;
}

/* Takes the programs that hold already at the first step that is judged. */
static sonde_err take_earlier(trial_source *source, sonde_diag *diag)
{
    const sonde_catalogue *catalogue = sonde_trial_catalogue(source->trial);
    uint32_t ids[SONDE_MODE_COUNT];
    sonde_trial_cursor_options options = {.size = sizeof options,
                                          .ids = ids,
                                          .mode = SONDE_MODE_GLOBAL,
                                          .end = source->next};
    sonde_err err = SONDE_OK;

    for (uint32_t id = 0; id < sonde_catalogue_count(catalogue) &&
                          options.id_count < SONDE_MODE_COUNT && source->next > 0;
         id++) {
        if (is_program(source, id)) {
            ids[options.id_count++] = id;
        }
    }
    if (options.id_count == 0) {
        return SONDE_OK;
    }
    SONDE__TRY(sonde_trial_cursor_create(source->trial, &options, &source->cursor, diag));
    for (err = next_record(source, diag); err == SONDE_OK && source->has_record;
         err = next_record(source, diag)) {
        SONDE__TRY_DONE(take_program(source, &source->record, diag));
    }
done:
    sonde_trial_cursor_destroy(source->cursor);
    source->cursor = NULL;
    return err;
}

/* Opens a cursor over the evidence other than vital signs, from the next step on. */
static sonde_err open_cursor(trial_source *source, sonde_diag *diag)
{
    sonde_trial_cursor_options options = {
        .size = sizeof options, .mode = SONDE_MODE_GLOBAL, .begin = source->next};
    uint32_t *ids = sonde__malloc(source->count * sizeof *ids);
    sonde_err err = SONDE_OK;

    sonde_trial_cursor_destroy(source->cursor);
    source->cursor = NULL;
    source->has_record = false;
    if (ids == NULL) {
        return sonde__fail_nomem(diag, "the tensors of a trial");
    }
    for (uint32_t id = 0; id < source->count; id++) {
        unsigned how = wants(source, id);

        how = (how & SONDE_HOW_HASH) ? how | SONDE_HOW_RAW : how;
        how |= is_program(source, id) ? SONDE_HOW_RAW : 0;
        how &= SONDE_HOW_RAW | SONDE_HOW_SKETCH;
        if (how != 0) {
            ids[options.id_count++] = id;
            options.how |= how;
        }
    }
    options.ids = ids;
    if (options.id_count > 0) {
        err = sonde_trial_cursor_create(source->trial, &options, &source->cursor, diag);
    }
    sonde__free(ids);
    if (err != SONDE_OK) {
        return err;
    }
    return source->cursor != NULL ? next_record(source, diag) : SONDE_OK;
}

/* Puts it under every name of the tensor for which any of how is needed. */
static void put(trial_source *source, uint32_t tensor, unsigned how,
                sonde_observation *observation)
{
    for (uint32_t id = tensor; id != SONDE_NO_TENSOR; id = source->series[id].next) {
        if (sonde__rules_wants(source->rules, id) & how) {
            observation->id = id;
            observation->info = info_of(source, id);
            sonde__rules_put(source->rules, observation);
        }
    }
}

/* The vital signs of one name; NULL if it has none at that step. */
static const sonde_vitals *vitals_at(series *rows, int64_t step)
{
    while (rows->at < rows->count && rows->steps[rows->at] < step) {
        rows->at++;
    }
    return rows->at < rows->count && rows->steps[rows->at] == step
               ? &rows->vitals[rows->at]
               : NULL;
}

static void put_vitals(trial_source *source, const sonde_coordinate *at)
{
    for (uint32_t id = 0; id < source->count; id++) {
        sonde_observation observation = {.at = *at};
        uint32_t name = info_of(source, id)->same_as == id ? id : SONDE_NO_TENSOR;

        for (; name != SONDE_NO_TENSOR && observation.vitals == NULL;
             name = source->series[name].next) {
            observation.vitals = vitals_at(&source->series[name], at->global_step);
        }
        if (observation.vitals != NULL) {
            put(source, id, SONDE_HOW_SIGNS, &observation);
        }
    }
}

/* True if the record also exists under an earlier name of its tensor. */
static bool has_earlier(const trial_source *source, const sonde_trial_record *record)
{
    const sonde_trial_at at = {.mode = SONDE_MODE_GLOBAL,
                               .step = record->at.global_step,
                               .worker = record->worker,
                               .micro_batch = record->at.micro_batch,
                               .replica = record->at.replica};
    uint32_t name = info_of(source, record->id)->same_as;

    while (name != record->id &&
           (sonde_trial_has(source->trial, name, &at) & record->how) == 0) {
        name = source->series[name].next;
    }
    return name != record->id;
}

/* Puts the raw values and sketches of the step. The replicas of worker w count from 1024
 * w. */
static sonde_err put_records(trial_source *source, int64_t step, sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    for (; err == SONDE_OK && source->has_record && source->record.at.global_step <= step;
         err = next_record(source, diag)) {
        const sonde_trial_record *record = &source->record;
        const unsigned how = record->how & SONDE_HOW_RAW ? SONDE_HOW_RAW | SONDE_HOW_HASH
                                                         : SONDE_HOW_SKETCH;
        sonde_observation observation = {.at = record->at};

        if (is_program(source, record->id)) {
            SONDE__TRY(take_program(source, record, diag));
            continue;
        }
        if (record->at.global_step < step || has_earlier(source, record)) {
            continue;
        }
        observation.at.replica += record->worker * SONDE__RULES_WORKER;
        if (record->how & SONDE_HOW_RAW) {
            observation.view = &record->view;
            observation.hash = wants(source, record->id) & SONDE_HOW_HASH
                                   ? sonde__hash_view(observation.view)
                                   : 0;
        } else {
            observation.sketch = record->sketch;
        }
        put(source, info_of(source, record->id)->same_as, how, &observation);
    }
    return err;
}

static sonde_err judge_step(trial_source *source, int64_t step, sonde_diag *diag)
{
    sonde_coordinate at = {.global_step = step, .mode_step = step};

    if (!sonde_trial_mode_step(source->trial, step, &at.mode, &at.mode_step)) {
        at.mode = SONDE_MODE_GLOBAL;
    }
    put_vitals(source, &at);
    SONDE__TRY(put_records(source, step, diag));
    sonde__rules_end_step(source->rules, &at);
    source->next = step + 1;
    return source->rules->forgot ? sonde__fail_nomem(diag, "a finding") : SONDE_OK;
}

static bool stopped(const trial_source *source)
{
    return source->pace->stop != NULL && source->pace->stop(source->pace->user);
}

static sonde_err fail_stopped(sonde_diag *diag)
{
    return sonde__fail(diag, SONDE_EINTERRUPTED, "rules", NULL, "interrupted");
}

/* Judges these steps, at most BLOCK. */
static sonde_err judge_block(trial_source *source, const int64_t *steps, size_t count,
                             sonde_diag *diag)
{
    SONDE__TRY(read_block(source, steps[0], steps[count - 1] + 1, diag));
    /* open the cursor afterwards: reading the block can reuse the memory of a compressed
     * record */
    SONDE__TRY(open_cursor(source, diag));
    for (size_t i = 0; i < count; i++) {
        if (stopped(source)) {
            return fail_stopped(diag);
        }
        SONDE__TRY(judge_step(source, steps[i], diag));
    }
    return SONDE_OK;
}

/* Judges all complete steps from next on. Sets *any if there were any. */
static sonde_err judge_new(trial_source *source, bool *any, sonde_diag *diag)
{
    size_t count = 0, first = 0, training = 0;
    const int64_t *steps =
        sonde_trial_steps(source->trial, SONDE_MODE_GLOBAL, false, &count);
    const int64_t end = source->pace->end > 0 ? source->pace->end : INT64_MAX;

    if (steps == NULL ||
        sonde_trial_steps(source->trial, SONDE_MODE_TRAIN, true, &training) == NULL) {
        return sonde__fail_nomem(diag, "the steps of a trial");
    }
    SONDE__TRY(sonde__rules_refresh(source->rules, diag));
    SONDE__TRY(grow(source, diag));
    source->rules->has_training = source->rules->has_training || training > 0;
    while (first < count && steps[first] < source->next) {
        first++;
    }
    while (count > first && steps[count - 1] >= end) {
        count--;
    }
    *any = first < count;
    for (; first < count; first += BLOCK) {
        SONDE__TRY(judge_block(source, steps + first,
                               SONDE_MIN((size_t)BLOCK, count - first), diag));
    }
    return SONDE_OK;
}

static sonde_err fail_stalled(const trial_source *source, double limit, sonde_diag *diag)
{
    sonde_run_info info;

    sonde_trial_describe(source->trial, &info);
    return sonde__fail(diag, SONDE_ETIMEOUT, info.path, "a run that grows or ends",
                       "no new step for %.0f s, the last is %lld", limit,
                       (long long)info.last_step);
}

/* Whether nothing more comes. smdebug leaves no sign of its writer: a limit that the
 * caller gives counts for more than the guess that it has gone. */
static bool is_over(const trial_source *source, const sonde_run_info *info)
{
    return info->status == SONDE_RUN_ENDED ||
           (info->status == SONDE_RUN_CRASHED &&
            !(info->foreign && source->pace->stall > 0));
}

/* A run without an end whose writer may live has stalled since its last step. */
static void count_silence(const trial_source *source, const sonde_run_info *info)
{
    struct timespec now = {0};

    if (info->foreign && info->status == SONDE_RUN_CRASHED && info->last_time > 0) {
        (void)clock_gettime(CLOCK_REALTIME, &now);
        sonde__rules_idle(source->rules,
                          (double)now.tv_sec - 1e-9 * (double)info->last_time);
    }
}

static sonde_err follow(trial_source *source, sonde_diag *diag)
{
    const double limit = source->pace->stall > 0 ? source->pace->stall : STALL_SECONDS;
    const struct timespec pause = {0, POLL_MS * 1000000L};
    double grown = sonde__now();

    for (;;) {
        sonde_run_info info;
        bool changed = false, any = false;

        SONDE__TRY(sonde_trial_refresh(source->trial, &changed, diag));
        SONDE__TRY(judge_new(source, &any, diag));
        grown = any ? sonde__now() : grown;
        sonde_trial_describe(source->trial, &info);
        if ((is_over(source, &info) && !any) ||
            (source->pace->end > 0 && source->next >= source->pace->end)) {
            count_silence(source, &info);
            return SONDE_OK;
        }
        if (stopped(source)) {
            return fail_stopped(diag);
        }
        sonde__rules_idle(source->rules, sonde__now() - grown);
        if (!any && sonde__now() - grown > limit) {
            return fail_stalled(source, limit, diag);
        }
        (void)nanosleep(&pause, NULL);
    }
}

sonde_err sonde_rules_judge(sonde_rules *rules, sonde_trial *trial,
                            const sonde_rules_pace *pace, sonde_diag *diag)
{
    SONDE__NEEDS(diag, rules, trial);
    const sonde_rules_pace whole = {0};
    trial_source source = {
        .rules = rules, .trial = trial, .pace = pace != NULL ? pace : &whole};
    bool any = false;
    sonde_err err = SONDE_OK;

    source.next = source.pace->begin;
    rules->trial = trial;
    rules->begin = source.pace->begin;
    SONDE__TRY_DONE(sonde__rules_begin(rules, sonde_trial_catalogue(trial), in_collection,
                                       trial, diag));
    SONDE__TRY_DONE(take_earlier(&source, diag));
    err = judge_new(&source, &any, diag);
    if (err != SONDE_OK || !source.pace->follow) {
        goto done;
    }
    err = follow(&source, diag);
done:
    sonde_rules_finish(rules);
    rules->trial = NULL;
    free_block(&source);
    sonde__free(source.series);
    sonde_trial_cursor_destroy(source.cursor);
    return err;
}

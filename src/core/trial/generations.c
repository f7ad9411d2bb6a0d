/*
 * generations.c - see generations.h.
 */
#include "trial/generations.h"
#include "base/fail.h"
#include "base/memory.h"

typedef struct line_reader {
    sonde_trial *trial;
    sonde__trial_worker *worker;
    const char *where;
    sonde_diag *diag;
} line_reader;

/* Sets worker->limit for a file. */
static void set_limit(sonde__trial_worker *worker, sonde__record_file_kind kind,
                      uint64_t number)
{
    worker->limit = sonde__record_generation_limit(
        worker->generations, worker->generation_count, kind, number);
}

bool sonde__trial_counts(const sonde_trial *trial, sonde__trial_worker *worker,
                         int64_t global)
{
    if (!sonde__trial_in_range(trial, global)) {
        return false;
    }
    if (global < worker->limit) {
        return true;
    }
    worker->superseded++;
    return trial->everything;
}

/* --- removing what is superseded -------------------------------------------------- */

static void subtract_bytes(void *user, const sonde__trial_item *item)
{
    sonde_trial *trial = user;
    const sonde__trial_raw_item *raw = (const void *)item;
    const sonde__trial_layout *layout = &trial->layouts.items[raw->layout];
    const sonde_view view =
        sonde_view_of((sonde_dtype)layout->dtype, layout->rank, layout->shape, NULL);

    trial->bytes -= (uint64_t)sonde_view_count(&view) * sonde_dtype_size(view.dtype);
}

static void remove_ends(sonde_trial *trial, sonde__trial_worker *worker, int64_t global)
{
    for (size_t i = 0; i < worker->ended_count; i++) {
        sonde__trial_step *step = &trial->steps.items[i];

        if (worker->ended[i] != 0 && step->global >= global) {
            worker->ended[i] = 0;
            worker->superseded_steps++;
            step->ended--;
        }
    }
    worker->last_ended = global - 1; /* earlier steps have passed, for any writer */
}

/* Marks again at which steps something is saved, after items were removed. */
static void mark_saved(sonde_trial *trial, int64_t global)
{
    for (size_t i = 0; i < trial->steps.count; i++) {
        sonde__trial_step *step = &trial->steps.items[i];

        step->saved = step->saved && step->global < global;
    }
    for (size_t w = 0; w < trial->worker_count; w++) {
        for (int kind = 0; kind < SONDE__KINDS; kind++) {
            const sonde__trial_items *items = &trial->workers[w]->items[kind];

            for (size_t i = 0; i < items->block_count; i++) {
                trial->steps.items[items->blocks[i].step].saved = true;
            }
        }
    }
}

/* Removes what the worker recorded from a global step on. */
static void supersede(sonde_trial *trial, sonde__trial_worker *worker, int64_t global)
{
    for (int kind = 0; kind < SONDE__KINDS; kind++) {
        sonde__trial_items *items = &worker->items[kind];
        const uint32_t before = items->superseded;

        sonde__trial_items_supersede(items, &trial->steps, global,
                                     kind == SONDE__RAW ? subtract_bytes : NULL, trial);
        worker->superseded += items->superseded - before;
    }
    remove_ends(trial, worker, global);
    mark_saved(trial, global);
    sonde__trial_steps_drop_empty(&trial->steps, global);
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        trial->lists[mode][0].valid = trial->lists[mode][1].valid = false;
    }
}

/* --- reading ---------------------------------------------------------------------- */

static sonde_err take_line(void *user, char *text, size_t length)
{
    const line_reader *reader = user;
    sonde__trial_worker *worker = reader->worker;
    sonde_trial *trial = reader->trial;
    sonde__record_generation line;

    if (!sonde__record_generation_parse(text, length, &line)) {
        sonde__trial_damage_in(&trial->damage, &worker->resumes.bad, reader->where,
                               "line %llu: not a generation",
                               (unsigned long long)worker->resumes.line);
        return SONDE_OK;
    }
    if (!sonde__reserve(&worker->generations, &worker->generation_capacity,
                        worker->generation_count + 1, sizeof *worker->generations) ||
        !sonde__reserve(&trial->cuts, &trial->cut_capacity, trial->cut_count + 1,
                        sizeof *trial->cuts)) {
        return sonde__fail_nomem(reader->diag, "the generations of a run");
    }
    worker->generations[worker->generation_count++] = line;
    trial->cuts[trial->cut_count++] = line.step;
    trial->changed = true;
    if (!trial->everything) {
        supersede(trial, worker, line.step);
    }
    return SONDE_OK;
}

sonde_err sonde__trial_generations_read(sonde_trial *trial, sonde__trial_worker *worker,
                                        sonde_diag *diag)
{
    char path[SONDE__PATH], where[SONDE__PATH];
    line_reader reader = {trial, worker, where, diag};
    bool found = false;

    (void)sonde__trial_path(worker->path, SONDE__GENERATIONS_FILE, path);
    (void)sonde__trial_path(worker->name, SONDE__GENERATIONS_FILE, where);
    return sonde__trial_read_lines(&trial->damage, &worker->resumes, path, where,
                                   take_line, &reader, &found, diag);
}

/* --- numbered files --------------------------------------------------------------- */

sonde_err sonde__trial_read_files(sonde_trial *trial, sonde__trial_worker *worker,
                                  sonde__record_file_kind kind,
                                  sonde__trial_read_fn *read_on, sonde_diag *diag)
{
    sonde__trial_progress *progress = &worker->progress[kind];

    for (;;) {
        uint64_t next = 0;
        const bool more = sonde__trial_progress_peek(worker->path, progress, kind, &next);
        sonde_err err = SONDE_OK;

        if (progress->begun) {
            set_limit(worker, kind, progress->number);
            err = read_on(trial, worker, kind, diag);
        }
        if (err != SONDE_OK || !more) {
            return err;
        }
        sonde__trial_progress_move(&trial->damage, worker->name, progress, kind, next);
        /* Written before the file: whose it is. */
        SONDE__TRY(sonde__trial_generations_read(trial, worker, diag));
    }
}

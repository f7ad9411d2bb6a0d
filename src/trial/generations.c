/*
 * generations.c - who went on with a worker's files, and what does not count any more since.
 *
 * Each writer has files of its own: a line of generations.jsonl, written before them, says
 * with which number of each kind they begin and which global step is the first in them. Of
 * what lies in the files of a writer, the steps from the first of any later writer on are
 * superseded. What is not read yet is passed over when it is (sonde__trial_counts); what was read is
 * taken out of the stores (cut), and followers are told.
 */
#include "trial/trial_state.h"
#include "base/fail.h"
#include "base/memory.h"

typedef struct context {
    sonde_trial *trial;
    sonde__trial_worker *worker;
    const char *where;
    sonde_diag *diag;
} context;

void sonde__trial_worker_limit(sonde__trial_worker *worker, sonde__record_file_kind kind,
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

/* --- cutting ---------------------------------------------------------------------- */

static void take_bytes(void *user, const sonde__trial_item *item)
{
    sonde_trial *trial = user;
    const sonde__trial_raw_item *raw = (const void *)item;
    const sonde__trial_form *form = &trial->forms.items[raw->form];
    const sonde_view view =
        sonde_view_of((sonde_dtype)form->dtype, form->rank, form->shape, NULL);

    trial->bytes -= (uint64_t)sonde_view_count(&view) * sonde_dtype_size(view.dtype);
}

static void cut_ends(sonde_trial *trial, sonde__trial_worker *worker, int64_t global)
{
    for (size_t i = 0; i < worker->ended_count; i++) {
        sonde__trial_step *step = &trial->steps.items[i];

        if (worker->ended[i] != 0 && step->global >= global) {
            worker->ended[i] = 0;
            worker->superseded_steps++;
            step->ended--;
        }
    }
    worker->last_ended = global - 1; /* what is below has passed, whoever wrote it */
}

/* Which steps anything is saved at, after some of it went. */
static void mark_saved(sonde_trial *trial, int64_t global)
{
    for (size_t i = 0; i < trial->steps.count; i++) {
        sonde__trial_step *step = &trial->steps.items[i];

        step->saved = step->saved && step->global < global;
    }
    for (size_t w = 0; w < trial->worker_count; w++) {
        for (int kind = 0; kind < SONDE__KINDS; kind++) {
            const sonde__trial_store *store = &trial->workers[w]->stores[kind];

            for (size_t i = 0; i < store->span_count; i++) {
                trial->steps.items[store->spans[i].step].saved = true;
            }
        }
    }
}

/* What the worker recorded of a global step and later goes. */
static void cut(sonde_trial *trial, sonde__trial_worker *worker, int64_t global)
{
    for (int kind = 0; kind < SONDE__KINDS; kind++) {
        sonde__trial_store *store = &worker->stores[kind];
        const uint32_t before = store->superseded;

        sonde__trial_store_cut(store, &trial->steps, global,
                               kind == SONDE__RAW ? take_bytes : NULL, trial);
        worker->superseded += store->superseded - before;
    }
    cut_ends(trial, worker, global);
    mark_saved(trial, global);
    sonde__trial_steps_prune(&trial->steps, global);
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        trial->lists[mode][0].valid = trial->lists[mode][1].valid = false;
    }
}

/* --- reading ---------------------------------------------------------------------- */

static sonde_err take_line(void *user, char *text, size_t length)
{
    const context *of = user;
    sonde__trial_worker *worker = of->worker;
    sonde_trial *trial = of->trial;
    sonde__record_generation line;

    if (!sonde__record_generation_parse(text, length, &line)) {
        sonde__trial_damage_in(trial, &worker->resumes, of->where,
                               "line %llu: not a generation",
                               (unsigned long long)worker->resumes.line);
        return SONDE_OK;
    }
    if (!sonde__reserve(&worker->generations, &worker->generation_capacity,
                        worker->generation_count + 1, sizeof *worker->generations) ||
        !sonde__reserve(&trial->cuts, &trial->cut_capacity, trial->cut_count + 1,
                        sizeof *trial->cuts)) {
        return sonde__fail_nomem(of->diag, "the generations of a run");
    }
    worker->generations[worker->generation_count++] = line;
    trial->cuts[trial->cut_count++] = line.step;
    trial->changed = true;
    if (!trial->everything) {
        cut(trial, worker, line.step);
    }
    return SONDE_OK;
}

sonde_err sonde__trial_generations_read(sonde_trial *trial, sonde__trial_worker *worker,
                                        sonde_diag *diag)
{
    char path[SONDE__PATH], where[SONDE__PATH];
    context of = {trial, worker, where, diag};
    bool found = false;

    (void)sonde__trial_path(trial, worker, SONDE__GENERATIONS_FILE, path);
    (void)sonde__trial_where(worker, SONDE__GENERATIONS_FILE, where);
    return sonde__trial_read_lines(trial, &worker->resumes, path, where, take_line, &of,
                                   &found, diag);
}

/*
 * query.c - from a place (mode, step, worker, micro-batch, replica) to the items there,
 * and from items to values, vital signs, sketches, reductions and series.
 */
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "tensor/reduction.h"
#include "trial/trial_state.h"

#include <stdio.h>
#include <string.h>

/* Items of one tensor at one step of one worker. */
typedef struct found_items {
    sonde__trial_worker *worker;
    const sonde__trial_items *items;
    const uint32_t *numbers; /* borrowed until an item is added */
    uint32_t count;
    int form; /* of evidence */
} found_items;

/* --- steps at a place ------------------------------------------------------------- */

typedef struct candidates {
    const sonde_trial *trial;
    sonde_mode mode;
    int64_t step;
    size_t place, begin; /* in sorted[mode]; begin ... place - 1 are left */
} candidates;

/*
 * A step of a mode can be several global steps: if the workers count differently, or if
 * the run was resumed from between. The one that arrived last comes first.
 */
static candidates find_candidates(const sonde_trial *trial, const sonde_trial_at *where)
{
    const sonde__trial_steps *steps = &trial->steps;
    candidates left = {trial, where->mode, where->step, 0, 0};

    left.begin = sonde__trial_steps_lower(steps, where->mode, where->step);
    left.place = left.begin;
    while (left.place < steps->sorted_count[where->mode] &&
           sonde__trial_steps_at(steps, where->mode, left.place) == where->step) {
        left.place++;
    }
    return left;
}

static bool next_candidate(candidates *left, uint32_t *step)
{
    if (left->place == left->begin) {
        return false;
    }
    *step = left->trial->steps.sorted[left->mode][--left->place];
    return true;
}

/* --- items ------------------------------------------------------------------------ */

static bool is_valid(const sonde_trial *trial, uint32_t id, const sonde_trial_at *where)
{
    return id < sonde_catalogue_count(trial->catalogue) &&
           (unsigned)where->mode < SONDE_MODE_COUNT && where->replica >= -1 &&
           where->replica <= UINT16_MAX && where->micro_batch >= -1 &&
           where->worker >= -1;
}

/* The items of a step in a history, of one shard or of all. */
static bool find_range(const sonde_trial *trial, const sonde__trial_items *items,
                       uint32_t id, uint32_t step, const sonde_trial_at *where,
                       found_items *found)
{
    const sonde__trial_steps *steps = &trial->steps;
    const int64_t global = steps->items[step].global;
    const sonde__trial_history *history = sonde__trial_items_history(items, id);
    const bool all = where->micro_batch < 0 || where->replica < 0;
    const uint64_t shard =
        all ? 0 : (uint64_t)where->micro_batch << 16 | (uint64_t)where->replica;
    uint32_t first = sonde__trial_history_lower(items, steps, history, global, shard),
             count = 0;

    while (first + count < history->count) {
        const sonde__trial_item *item =
            sonde__trial_items_at(items, history->numbers[first + count]);

        if (item->step != step || (!all && sonde__trial_shard(item) != shard)) {
            break;
        }
        count++;
    }
    found->numbers = history->numbers != NULL ? history->numbers + first : NULL;
    found->count = count;
    return count > 0;
}

/* The items at a place: one, or those of all shards if micro-batch or replica is -1. */
static bool find(const sonde_trial *trial, int form, uint32_t id,
                 const sonde_trial_at *where, found_items *found)
{
    if (!is_valid(trial, id, where)) {
        return false;
    }
    for (size_t w = 0; w < trial->worker_count; w++) {
        sonde__trial_worker *worker = trial->workers[w];
        candidates left = find_candidates(trial, where);
        uint32_t step = 0;

        if (where->worker >= 0 && where->worker != worker->rank) {
            continue;
        }
        while (next_candidate(&left, &step)) {
            if (find_range(trial, &worker->items[form], id, step, where, found)) {
                found->worker = worker;
                found->items = &worker->items[form];
                found->form = form;
                return true;
            }
        }
    }
    return false;
}

/* The same for the first form of how that is there: vital signs before the value that has
 * more, and the value before what has less. */
static bool find_any(const sonde_trial *trial, unsigned how, uint32_t id,
                     const sonde_trial_at *where, found_items *items)
{
    static const int order[] = {SONDE_FORM_VITALS, SONDE_FORM_RAW, SONDE_FORM_NORMS,
                                SONDE_FORM_SKETCH};

    for (size_t i = 0; i < SONDE_COUNT_OF(order); i++) {
        if ((how >> order[i] & 1U) != 0 && find(trial, order[i], id, where, items)) {
            return true;
        }
    }
    return false;
}

/* Whether a worker has an item of a form at any step of a mode. */
static bool has_any(const sonde_trial *trial, const sonde__trial_items *items,
                    uint32_t id, sonde_mode mode)
{
    const sonde__trial_history *history = sonde__trial_items_history(items, id);

    for (uint32_t i = 0; i < history->count; i++) {
        const uint32_t step = sonde__trial_items_at(items, history->numbers[i])->step;

        if (mode == SONDE_MODE_GLOBAL || trial->steps.items[step].mode == mode) {
            return true;
        }
    }
    return false;
}

static bool has_form(const sonde_trial *trial, int form, uint32_t id,
                     const sonde_trial_at *where)
{
    found_items items;

    if (where->step >= 0) {
        return find(trial, form, id, where, &items);
    }
    for (size_t w = 0; w < trial->worker_count && is_valid(trial, id, where); w++) {
        const sonde__trial_worker *worker = trial->workers[w];

        if ((where->worker < 0 || where->worker == worker->rank) &&
            has_any(trial, &worker->items[form], id, where->mode)) {
            return true;
        }
    }
    return false;
}

unsigned sonde_trial_has(sonde_trial *trial, uint32_t id, const sonde_trial_at *where)
{
    if (trial == NULL || where == NULL) {
        return 0;
    }
    unsigned how = 0;

    for (int form = 0; form < SONDE_FORM_COUNT; form++) {
        how |= has_form(trial, form, id, where) ? 1U << form : 0;
    }
    return how;
}

/* --- missing items ---------------------------------------------------------------- */

/* "train step 100, micro-batch 2" */
static const char *place_text(const sonde_trial_at *where, char *text, size_t size)
{
    const int n = snprintf(text, size, "%s step %lld", sonde_mode_name(where->mode),
                           (long long)where->step);

    if (n > 0 && (where->micro_batch > 0 || where->replica > 0)) {
        (void)snprintf(text + n, size - (size_t)n, ", micro-batch %d, replica %d",
                       where->micro_batch, where->replica);
    }
    return text;
}

/* What exists instead: another form here, or this form nearby. NULL: not known. */
static const char *alternative(sonde_trial *trial, int form, uint32_t id,
                               const sonde_trial_at *where, char *text, size_t size)
{
    const unsigned how = sonde_trial_has(trial, id, where);
    const unsigned bit = form == SONDE_FORM_RAW ? SONDE_HOW_RAW : SONDE_HOW_VITALS;
    int64_t *steps = NULL, before = -1, after = -1;
    size_t count = 0;

    if (where->step >= 0 && how != 0) {
        (void)snprintf(text, size, "its %s, saved there",
                       sonde__evidence_forms[__builtin_ctz(how)].print.one);
        return text;
    }
    if (sonde_trial_tensor_steps(trial, id, where->mode, bit, &steps, &count, NULL) !=
        SONDE_OK) {
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        before = steps[i] <= where->step ? steps[i] : before;
        after = steps[i] >= where->step && after < 0 ? steps[i] : after;
    }
    sonde_release(steps);
    if (before < 0 && after < 0) {
        (void)snprintf(text, size, "a tensor saved in mode %s",
                       sonde_mode_name(where->mode));
    } else if (before >= 0 && after >= 0 && before != after) {
        (void)snprintf(text, size, "step %lld or %lld", (long long)before,
                       (long long)after);
    } else {
        (void)snprintf(text, size, "step %lld, or another worker or micro-batch",
                       (long long)(before >= 0 ? before : after));
    }
    return text;
}

static sonde_err fail_missing(sonde_trial *trial, int form, uint32_t id,
                              const sonde_trial_at *where, sonde_diag *diag)
{
    char place[96], other[200];

    if (id >= sonde_catalogue_count(trial->catalogue)) {
        return sonde__fail(diag, SONDE_ERANGE, trial->path, "an id of its catalogue",
                           "tensor %lu", (unsigned long)id);
    }
    if (!is_valid(trial, id, where)) {
        return sonde__fail(
            diag, SONDE_EINVAL, trial->path, "a mode, and -1 or more for the rest",
            "mode %d, worker %d, micro-batch %d, replica %d", (int)where->mode,
            where->worker, where->micro_batch, where->replica);
    }
    return sonde__fail(diag, SONDE_ENOTFOUND, trial->path,
                       alternative(trial, form, id, where, other, sizeof other),
                       "no %s of '%.200s' at %s", sonde__evidence_forms[form].print.one,
                       sonde_catalogue_info(trial->catalogue, id)->name,
                       place_text(where, place, sizeof place));
}

/* --- values ----------------------------------------------------------------------- */

static const sonde__trial_raw_item *raw_item(const found_items *items, uint32_t i)
{
    return (const void *)sonde__trial_items_at(items->items, items->numbers[i]);
}

sonde_err sonde_trial_value(sonde_trial *trial, uint32_t id, const sonde_trial_at *where,
                            sonde_view *view, sonde_diag *diag)
{
    SONDE__NEEDS(diag, trial, where, view);
    found_items items;

    trial->question++;
    if (where->micro_batch < 0 || where->replica < 0) {
        return sonde__fail(diag, SONDE_EINVAL, trial->path, "one of them",
                           "a value of all micro-batches or replicas");
    }
    if (!find(trial, SONDE_FORM_RAW, id, where, &items)) {
        return fail_missing(trial, SONDE_FORM_RAW, id, where, diag);
    }
    return sonde__trial_load_value(trial, items.worker, raw_item(&items, 0), view, diag);
}

sonde_err sonde_trial_hash(sonde_trial *trial, uint32_t id, const sonde_trial_at *where,
                           uint64_t *hash, sonde_view *form, sonde_diag *diag)
{
    SONDE__NEEDS(diag, trial, where, hash, form);
    found_items items;

    if (!find(trial, SONDE_FORM_RAW, id, where, &items)) {
        return fail_missing(trial, SONDE_FORM_RAW, id, where, diag);
    }
    const sonde__trial_raw_item *const item = raw_item(&items, 0);
    if (item->layout == SONDE__FOREIGN) {
        return sonde__fail(diag, SONDE_EUNSUPPORTED, trial->path, "a run of Sonde",
                           "a run without hashes of its values");
    }
    const sonde__trial_layout *const layout = &trial->layouts.items[item->layout];
    *hash = item->hash;
    *form = sonde_view_of((sonde_dtype)layout->dtype, layout->rank, layout->shape, NULL);
    return SONDE_OK;
}

bool sonde_trial_is_mapped(const sonde_trial *trial, const sonde_view *value)
{
    return trial != NULL && value != NULL && trial->smdebug == NULL &&
           value->data != (const void *)trial->value.bytes;
}

/* The evidence of one item, computed from its value if it is not the form that is stored. */
static sonde_err load_evidence(sonde_trial *trial, const found_items *items, uint32_t i,
                               int form, sonde__trial_rows *rows,
                               sonde__evidence *evidence, sonde_diag *diag)
{
    const void *const item = sonde__trial_items_at(items->items, items->numbers[i]);
    const sonde__record_stats_row *row = NULL;
    sonde_view view;

    switch (sonde__evidence_forms[items->form].store) {
    case SONDE__STORE_ROW:
        SONDE__TRY(sonde__trial_load_row(trial, items->worker,
                                         ((const sonde__trial_row_item *)item)->row, rows,
                                         &row, diag));
        sonde__record_stats_to_vitals(row, &evidence->own_vitals);
        evidence->vitals = &evidence->own_vitals;
        return SONDE_OK;
    case SONDE__STORE_SKETCH:
        evidence->sketch = evidence->own_sketch;
        return sonde__trial_load_sketch(trial, items->worker, item, evidence->own_sketch,
                                        diag);
    case SONDE__STORE_VALUE:
    case SONDE__STORE_NOT:
    case SONDE__STORES:
    default:
        SONDE__TRY(sonde__trial_load_value(trial, items->worker, item, &view, diag));
        evidence->vitals = NULL;
        evidence->sketch = NULL;
        sonde__evidence_forms[form].compute(&view, evidence);
        return SONDE_OK;
    }
}

/* The evidence of all items, merged in order. part: scratch, with a sketch of its own.
 * rows is kept between calls. */
static sonde_err gather(sonde_trial *trial, const found_items *found, int form,
                        sonde__trial_rows *rows, sonde__evidence *sum,
                        sonde__evidence *part, sonde_diag *diag)
{
    SONDE__TRY(load_evidence(trial, found, 0, form, rows, sum, diag));
    for (uint32_t i = 1; i < found->count; i++) {
        SONDE__TRY(load_evidence(trial, found, i, form, rows, part, diag));
        sonde__evidence_forms[form].merge(sum, part);
    }
    return SONDE_OK;
}

static sonde_err gather_vitals(sonde_trial *trial, const found_items *items,
                               sonde__trial_rows *rows, sonde_vitals *vitals,
                               sonde_diag *diag)
{
    sonde__evidence sum = {0}, part = {0};
    SONDE__TRY(gather(trial, items, SONDE_FORM_VITALS, rows, &sum, &part, diag));
    *vitals = sum.own_vitals;
    return SONDE_OK;
}

sonde_err sonde_trial_vitals(sonde_trial *trial, uint32_t id, const sonde_trial_at *where,
                             sonde_vitals *vitals, sonde_diag *diag)
{
    SONDE__NEEDS(diag, trial, where, vitals);
    const sonde__evidence_form *const form = &sonde__evidence_forms[SONDE_FORM_VITALS];
    sonde__trial_rows rows = {0};
    found_items items;

    trial->question++;
    if (!find_any(trial, form->print.bit | form->needs, id, where, &items)) {
        return fail_missing(trial, SONDE_FORM_VITALS, id, where, diag);
    }
    return gather_vitals(trial, &items, &rows, vitals, diag);
}

/* Two sketches of 18 KB are too large for the stack. */
static sonde_err gather_sketch(sonde_trial *trial, const found_items *items,
                               sonde_sketch **out, sonde_diag *diag)
{
    sonde_sketch *const work = sonde__malloc(2 * sizeof *work);
    sonde__evidence sum = {0}, part = {0};

    if (work == NULL) {
        return sonde__fail_nomem(diag, "a sketch");
    }
    sum.own_sketch = &work[0];
    part.own_sketch = &work[1];
    const sonde_err err =
        gather(trial, items, SONDE_FORM_SKETCH, NULL, &sum, &part, diag);
    if (err != SONDE_OK) {
        sonde__free(work);
        return err;
    }
    *out = work;
    return SONDE_OK;
}

sonde_err sonde_trial_sketch(sonde_trial *trial, uint32_t id, const sonde_trial_at *where,
                             sonde_sketch *sketch, sonde_diag *diag)
{
    SONDE__NEEDS(diag, trial, where, sketch);
    sonde_sketch *merged = NULL;
    found_items items;

    trial->question++;
    if (!find(trial, SONDE_FORM_SKETCH, id, where, &items) &&
        !find_any(trial, sonde__evidence_forms[SONDE_FORM_SKETCH].needs, id, where,
                  &items)) {
        return fail_missing(trial, SONDE_FORM_SKETCH, id, where, diag);
    }
    SONDE__TRY(gather_sketch(trial, &items, &merged, diag));
    *sketch = *merged;
    sonde__free(merged);
    return SONDE_OK;
}

/* --- reductions ------------------------------------------------------------------- */

static sonde_err reduce_values(sonde_trial *trial, const found_items *items,
                               const sonde_reduction *reduction, sonde_reduced *out,
                               sonde_diag *diag)
{
    sonde__reducer reducer;
    sonde_err err = SONDE_OK;

    sonde__reducer_init(&reducer, reduction);
    for (uint32_t i = 0; i < items->count; i++) {
        const sonde__trial_item *item =
            sonde__trial_items_at(items->items, items->numbers[i]);
        sonde_view view;

        SONDE__TRY_GO(sonde__trial_load_value(trial, items->worker, (const void *)item,
                                              &view, diag));
        SONDE__TRY_GO(sonde__reducer_add(&reducer, &view, diag));
    }
    sonde__reducer_finish(&reducer, out);
error:
    sonde__reducer_fini(&reducer);
    return err;
}

sonde_err sonde_trial_reduce(sonde_trial *trial, uint32_t id, const sonde_trial_at *where,
                             const sonde_reduction *reduction, sonde_reduced *out,
                             sonde_diag *diag)
{
    SONDE__NEEDS(diag, trial, where, reduction, out);
    const unsigned evidence = sonde_reduction_evidence(reduction);
    sonde__trial_rows rows = {0};
    sonde_sketch *sketch = NULL;
    sonde_vitals vitals;
    found_items items;

    trial->question++;
    if (!find_any(trial, evidence | SONDE_HOW_RAW, id, where, &items)) {
        return fail_missing(trial,
                            (evidence & SONDE_HOW_VITALS) != 0 ? SONDE_FORM_VITALS
                                                               : SONDE_FORM_RAW,
                            id, where, diag);
    }
    if (items.form == SONDE_FORM_RAW) {
        return reduce_values(trial, &items, reduction, out, diag);
    }
    if (items.form == SONDE_FORM_SKETCH) {
        SONDE__TRY(gather_sketch(trial, &items, &sketch, diag));
        sonde_reduce_sketch(reduction, sketch, out);
        sonde__free(sketch);
        return SONDE_OK;
    }
    SONDE__TRY(gather_vitals(trial, &items, &rows, &vitals, diag));
    sonde_reduce_vitals(reduction, &vitals, out);
    return SONDE_OK;
}

/* --- series ----------------------------------------------------------------------- */

/*
 * Three histories, rows of vital signs, raw values and rows of norms, are walked side by
 * side; where a step is in several, the first of these is used. The rows of consecutive steps lie far apart in the file,
 * so the time goes into memory: some 100 ns a step.
 */
enum { WALKED = 3 };
static const int walked[WALKED] = {SONDE_FORM_VITALS, SONDE_FORM_RAW, SONDE_FORM_NORMS};

typedef struct series_walk {
    sonde_trial *trial;
    sonde__trial_worker *worker;
    const sonde__trial_items *items[WALKED];
    const sonde__trial_history *histories[WALKED];
    uint32_t place[WALKED];
    sonde_mode mode;
    int64_t begin, end; /* as mode counts */
    sonde__trial_rows rows;
    int64_t *steps;
    sonde_vitals *vitals;
    size_t count;
    uint64_t left_out;
    sonde_diag first; /* of the steps left out */
} series_walk;

static const sonde__trial_item *item_at(const series_walk *walk, int which,
                                        uint32_t place)
{
    return sonde__trial_items_at(walk->items[which],
                                 walk->histories[which]->numbers[place]);
}

static const sonde__trial_step *step_of(const series_walk *walk,
                                        const sonde__trial_item *item)
{
    return &walk->trial->steps.items[item->step];
}

/* The history with the next step; -1: all are at their ends. */
static int choose(const series_walk *walk)
{
    int64_t next = INT64_MAX;
    int chosen = -1;

    for (int which = 0; which < WALKED; which++) {
        if (walk->place[which] < walk->histories[which]->count) {
            const int64_t global =
                step_of(walk, item_at(walk, which, walk->place[which]))->global;

            chosen = chosen < 0 || global < next ? which : chosen;
            next = SONDE_MIN(next, global);
        }
    }
    return chosen;
}

/* Number of items of the next step. */
static uint32_t count_step(const series_walk *walk, int which)
{
    const uint32_t first = walk->place[which];
    const int64_t global = step_of(walk, item_at(walk, which, first))->global;
    uint32_t count = 1;

    while (first + count < walk->histories[which]->count &&
           step_of(walk, item_at(walk, which, first + count))->global == global) {
        count++;
    }
    return count;
}

static sonde_err take_step(series_walk *walk, int which, uint32_t count, int64_t value,
                           sonde_diag *diag)
{
    const found_items items = {walk->worker, walk->items[which],
                               walk->histories[which]->numbers + walk->place[which],
                               count, walked[which]};
    SONDE__TRY(gather_vitals(walk->trial, &items, &walk->rows, &walk->vitals[walk->count],
                             diag));
    walk->steps[walk->count++] = value;
    return SONDE_OK;
}

enum { MOST_REPORTED = 5 };

/* Leaves out a step for an error that concerns it alone; false for other errors. */
static bool leave_out(series_walk *walk, int which, sonde_err err, const sonde_diag *why)
{
    sonde__trial_items *items = &walk->worker->items[walked[which]];

    if (err != SONDE_EFORMAT && err != SONDE_EUNSUPPORTED && err != SONDE_EIO) {
        return false;
    }
    if (walk->left_out++ == 0) {
        walk->first = *why;
    }
    if (err != SONDE_EUNSUPPORTED && walk->left_out <= MOST_REPORTED &&
        sonde__trial_items_report(items,
                                  walk->histories[which]->numbers[walk->place[which]])) {
        sonde__trial_damage(&walk->trial->damage, why->where, "%s", why->found);
    }
    return true;
}

/* Skips the steps before the range by bisection: histories ascend in global steps. */
static void skip_before(series_walk *walk, int which)
{
    uint32_t low = 0, high = walk->histories[which]->count;

    while (walk->mode == SONDE_MODE_GLOBAL && low < high) {
        const uint32_t middle = low + (high - low) / 2;

        if (step_of(walk, item_at(walk, which, middle))->global < walk->begin) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    walk->place[which] = low;
}

static sonde_err take_all(series_walk *walk, sonde_diag *diag)
{
    int64_t last = -1;
    int which = 0;

    for (which = 0; which < WALKED; which++) {
        skip_before(walk, which);
    }
    while ((which = choose(walk)) >= 0) {
        const sonde__trial_step *step =
            step_of(walk, item_at(walk, which, walk->place[which]));
        const int64_t value =
            walk->mode == SONDE_MODE_GLOBAL ? step->global : step->mode_step;
        const uint32_t count = count_step(walk, which);

        if (walk->mode == SONDE_MODE_GLOBAL && walk->end != 0 && value >= walk->end) {
            break;
        }
        if ((walk->mode == SONDE_MODE_GLOBAL || step->mode == walk->mode) &&
            value >= walk->begin && (walk->end == 0 || value < walk->end) &&
            step->global != last) {
            sonde_diag why = {0};
            const sonde_err err = take_step(walk, which, count, value, &why);

            last = err != SONDE_OK ? last : step->global;
            if (err != SONDE_OK && !leave_out(walk, which, err, &why)) {
                if (diag != NULL) {
                    *diag = why;
                }
                return err;
            }
        }
        walk->place[which] += count;
    }
    return SONDE_OK;
}

static bool start(series_walk *walk, sonde__trial_worker *worker, uint32_t id)
{
    bool any = false;

    walk->worker = worker;
    for (int which = 0; which < WALKED; which++) {
        walk->items[which] = &worker->items[walked[which]];
        walk->histories[which] = sonde__trial_items_history(walk->items[which], id);
        any = any || walk->histories[which]->count > 0;
    }
    return any;
}

/* The worker asked for, or the first one with any. */
static bool choose_worker(series_walk *walk, uint32_t id, int rank)
{
    for (size_t i = 0; i < walk->trial->worker_count; i++) {
        sonde__trial_worker *worker = walk->trial->workers[i];

        if ((rank < 0 || rank == worker->rank) && start(walk, worker, id)) {
            return true;
        }
    }
    return false;
}

static sonde_err run(series_walk *walk, sonde_diag *diag)
{
    const size_t all = (size_t)walk->histories[0]->count + walk->histories[1]->count +
                       walk->histories[2]->count;
    const size_t most =
        walk->end != 0 ? SONDE_MIN(all, (size_t)(walk->end - walk->begin)) : all;

    walk->steps = sonde__malloc(most * sizeof *walk->steps);
    walk->vitals = sonde__malloc(most * sizeof *walk->vitals);
    sonde_err err = walk->steps != NULL && walk->vitals != NULL
                        ? take_all(walk, diag)
                        : sonde__fail_nomem(diag, "vital signs of many steps");
    if (err != SONDE_OK) {
        sonde__free(walk->steps);
        sonde__free(walk->vitals);
    }
    return err;
}

sonde_err sonde_trial_vitals_series(sonde_trial *trial, uint32_t id, sonde_mode mode,
                                    int worker, int64_t begin, int64_t end,
                                    int64_t **steps, sonde_vitals **vitals, size_t *count,
                                    sonde_diag *diag)
{
    SONDE__NEEDS(diag, trial, steps, vitals, count);
    series_walk series = {.trial = trial, .mode = mode, .begin = begin, .end = end};

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
    if (!choose_worker(&series, id, worker)) {
        return sonde__fail(diag, SONDE_ENOTFOUND, trial->path, NULL,
                           "neither vital signs nor values of '%s' were saved",
                           sonde_catalogue_info(trial->catalogue, id)->name);
    }
    trial->question++;
    SONDE__TRY(run(&series, diag));
    *steps = series.steps;
    *vitals = series.vitals;
    *count = series.count;
    if (series.left_out > 0 && diag != NULL) {
        *diag = series.first;
    }
    return SONDE_OK;
}

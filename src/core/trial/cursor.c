/*
 * cursor.c - everything of a run in the order of steps, read ahead from the disk.
 *
 * On entering a step, the cursor copies the step's list of items, so a refresh in between
 * changes nothing. Raw values lie in their segments in the order of their items, so the
 * cursor knows what comes next: it asks the kernel for the wanted bytes of the following
 * megabytes, in as few and as long pieces as possible. Reading one tensor of twelve from
 * a disk is ten times faster this way (bench_trial, walk_cold_of_one).
 */
#include "trial/trial_state.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "trial/smdebug.h"
#include "base/options.h"

#include <string.h>

/* A walk over everything announces only the beginning of each segment: where every
 * byte is read, the kernel's own reading ahead is faster (its pages are larger), but
 * it does not see from file to file. */
enum { AHEAD = 16 << 20, GAP = 64 << 10, BEGINNING = 1 << 20 };

/* What the cursor keeps of a worker. */
typedef struct worker_source {
    sonde__trial_worker *worker;
    sonde__trial_rows rows;
    uint32_t announced; /* raw items below it were announced to the kernel, or are past */
    uint64_t pending;   /* bytes announced and not reached yet */
} worker_source;

typedef struct walk_entry {
    uint32_t source, number;
    int form;
} walk_entry;

struct sonde_trial_cursor {
    sonde_trial *trial;
    sonde_trial_cursor_options options;
    bool *wanted; /* by id; NULL: all */
    size_t wanted_count;
    int64_t next;     /* the first global step that has not been entered */
    size_t went_back; /* for sonde_trial_went_back */
    walk_entry *entries;
    size_t count, capacity, at;
    worker_source *sources;
    size_t source_count, source_capacity;
    uint64_t fetched; /* bytes announced to the kernel in all */
    sonde_vitals vitals;
    sonde_sketch *sketch;
};

/* --- making ----------------------------------------------------------------------- */

static sonde_err check_options(const sonde_trial *trial,
                               const sonde_trial_cursor_options *options,
                               sonde_diag *diag)
{
    const unsigned known = SONDE_HOW_ALL & ~sonde__evidence_in(SONDE__STORE_NOT);
    const uint32_t count = sonde_catalogue_count(trial->catalogue);

    if ((options->how & ~known) != 0 || (unsigned)options->mode >= SONDE_MODE_COUNT ||
        options->begin < 0 || options->end < 0 ||
        (options->end != 0 && options->end <= options->begin)) {
        return sonde__fail(diag, SONDE_EINVAL, trial->path,
                           "raw, vitals, norms or sketch, a mode, and 0 <= begin < end",
                           "how %u, mode %d, begin %lld, end %lld", options->how,
                           (int)options->mode, (long long)options->begin,
                           (long long)options->end);
    }
    for (size_t i = 0; options->ids != NULL && i < options->id_count; i++) {
        if (options->ids[i] >= count) {
            return sonde__fail(diag, SONDE_ERANGE, trial->path, "an id of its catalogue",
                               "tensor %lu", (unsigned long)options->ids[i]);
        }
    }
    return SONDE_OK;
}

static bool allocate(sonde_trial_cursor *cursor)
{
    const sonde_trial_cursor_options *options = &cursor->options;

    if ((options->how & SONDE_HOW_SKETCH) != 0) {
        cursor->sketch = sonde__malloc(sizeof *cursor->sketch);
        if (cursor->sketch == NULL) {
            return false;
        }
    }
    if (options->ids == NULL) {
        return true;
    }
    cursor->wanted_count = sonde_catalogue_count(cursor->trial->catalogue);
    cursor->wanted = sonde__calloc(cursor->wanted_count, sizeof *cursor->wanted);
    for (size_t i = 0; cursor->wanted != NULL && i < options->id_count; i++) {
        cursor->wanted[options->ids[i]] = true;
    }
    return cursor->wanted != NULL;
}

sonde_err sonde_trial_cursor_create(sonde_trial *trial,
                                    const sonde_trial_cursor_options *options,
                                    sonde_trial_cursor **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, trial, out);
    sonde_trial_cursor_options taken;
    SONDE__TAKE(sonde_trial_cursor_options, &taken, options, diag);
    taken.mode = options != NULL ? taken.mode : SONDE_MODE_GLOBAL;
    SONDE__TRY(check_options(trial, &taken, diag));
    sonde_trial_cursor *cursor = sonde__calloc(1, sizeof *cursor);
    if (cursor == NULL) {
        return sonde__fail_nomem(diag, "a cursor");
    }
    cursor->trial = trial;
    cursor->options = taken;
    cursor->options.how = cursor->options.how != 0 ? cursor->options.how : SONDE_HOW_RAW;
    cursor->options.ahead =
        cursor->options.ahead != 0 ? cursor->options.ahead : (size_t)AHEAD;
    cursor->next = cursor->options.begin;
    cursor->went_back = trial->cut_count;
    if (!allocate(cursor)) {
        sonde_trial_cursor_destroy(cursor);
        return sonde__fail_nomem(diag, "a cursor");
    }
    cursor->options.ids = NULL; /* borrowed for this call only */
    *out = cursor;
    return SONDE_OK;
}

void sonde_trial_cursor_destroy(sonde_trial_cursor *cursor)
{
    if (cursor == NULL) {
        return;
    }
    sonde__free(cursor->wanted);
    sonde__free(cursor->entries);
    sonde__free(cursor->sources);
    sonde__free(cursor->sketch);
    sonde__free(cursor);
}

static bool is_wanted(const sonde_trial_cursor *cursor, uint32_t tensor)
{
    return cursor->wanted == NULL ||
           (tensor < cursor->wanted_count && cursor->wanted[tensor]);
}

/* --- fetching ahead --------------------------------------------------------------- */

/* A piece of one segment. */
typedef struct piece {
    uint32_t segment;
    uint64_t begin, end;
} piece;

static void announce(sonde_trial_cursor *cursor, const worker_source *source,
                     const piece *wanted)
{
    const sonde_trial *trial = cursor->trial;
    const sonde__trial_file_list *files = &source->worker->files[SONDE__FILE_SEGMENT];
    const uint64_t count = wanted->end - wanted->begin;

    if (count == 0) {
        return;
    }
    if (trial->smdebug != NULL) {
        sonde__smdebug_ahead(trial, source->worker, &files->items[wanted->segment],
                             wanted->begin, count);
    } else {
        sonde__trial_file_ahead(files, &files->items[wanted->segment], trial->question,
                                wanted->begin, count);
    }
    cursor->fetched += count;
}

/* Announces values from item first on, until enough bytes are pending. */
static void fetch_ahead(sonde_trial_cursor *cursor, worker_source *source, uint32_t first)
{
    const sonde__trial_items *items = &source->worker->items[SONDE_FORM_RAW];
    piece next = {0, 0, 0};

    source->announced = SONDE_MAX(source->announced, first);
    while (source->announced < items->count && source->pending < cursor->options.ahead) {
        const sonde__trial_raw_item *item =
            (const void *)sonde__trial_items_at(items, source->announced++);

        if (!is_wanted(cursor, item->item.tensor)) {
            continue;
        }
        source->pending += item->bytes;
        if (cursor->wanted == NULL && item->offset >= BEGINNING) {
            continue;
        }
        if (next.end == next.begin || item->segment != next.segment ||
            item->offset < next.begin || item->offset > next.end + GAP) {
            announce(cursor, source, &next);
            next = (piece){item->segment, item->offset, item->offset};
        }
        next.end = SONDE_MAX(next.end, item->offset + item->bytes);
    }
    announce(cursor, source, &next);
}

/* The walk has reached the items of a block. */
static void reach(sonde_trial_cursor *cursor, worker_source *source,
                  const sonde__trial_block *block)
{
    const sonde__trial_items *items = &source->worker->items[SONDE_FORM_RAW];
    const uint32_t end = block->first + block->count;

    if (cursor->options.ahead == SIZE_MAX) {
        return;
    }
    for (uint32_t i = block->first; i < end && i < source->announced; i++) {
        const sonde__trial_raw_item *item = (const void *)sonde__trial_items_at(items, i);

        if (is_wanted(cursor, item->item.tensor)) {
            source->pending -= SONDE_MIN(source->pending, item->bytes);
        }
    }
    if (source->pending < cursor->options.ahead / 2) {
        fetch_ahead(cursor, source, end);
    }
}

uint64_t sonde__trial_cursor_fetched(const sonde_trial_cursor *cursor)
{
    return cursor->fetched;
}

/* --- entering a step -------------------------------------------------------------- */

static bool add_entry(sonde_trial_cursor *cursor, size_t index, int form, uint32_t number)
{
    if (!sonde__reserve(&cursor->entries, &cursor->capacity, cursor->count + 1,
                        sizeof *cursor->entries)) {
        return false;
    }
    cursor->entries[cursor->count++] = (walk_entry){(uint32_t)index, number, form};
    return true;
}

static bool is_current(const sonde_trial_cursor *cursor, const sonde__trial_items *items,
                       int64_t global, uint32_t number)
{
    const sonde__trial_item *item = sonde__trial_items_at(items, number);
    const sonde__trial_steps *steps = &cursor->trial->steps;
    const sonde_mode mode = cursor->options.mode;

    if (!is_wanted(cursor, item->tensor) ||
        (mode != SONDE_MODE_GLOBAL && steps->items[item->step].mode != mode)) {
        return false;
    }
    return !items->repeated ||
           sonde__trial_items_find(items, steps, item->tensor, global,
                                   sonde__trial_shard(item)) == number;
}

static bool gather_form(sonde_trial_cursor *cursor, size_t index, int form,
                        int64_t global)
{
    const sonde__trial_steps *steps = &cursor->trial->steps;
    worker_source *source = &cursor->sources[index];
    const sonde__trial_items *items = &source->worker->items[form];
    size_t place = sonde__trial_items_block(items, steps, global);

    for (; place < items->block_count; place++) {
        const sonde__trial_block *block = &items->blocks[place];

        if (steps->items[block->step].global != global) {
            break;
        }
        for (uint32_t i = 0; i < block->count; i++) {
            if (is_current(cursor, items, global, block->first + i) &&
                !add_entry(cursor, index, form, block->first + i)) {
                return false;
            }
        }
        if (form == SONDE_FORM_RAW) {
            reach(cursor, source, block);
        }
    }
    return true;
}

/* The source of a worker, new if need be; SIZE_MAX: out of memory. */
static size_t find_source(sonde_trial_cursor *cursor, size_t i)
{
    sonde__trial_worker *worker = cursor->trial->workers[i];

    if (i < cursor->source_count && cursor->sources[i].worker == worker) {
        return i;
    }
    for (size_t index = 0; index < cursor->source_count; index++) {
        if (cursor->sources[index].worker == worker) {
            return index;
        }
    }
    if (!sonde__reserve(&cursor->sources, &cursor->source_capacity,
                        cursor->source_count + 1, sizeof *cursor->sources)) {
        return SIZE_MAX;
    }
    cursor->sources[cursor->source_count] = (worker_source){.worker = worker};
    return cursor->source_count++;
}

static bool gather(sonde_trial_cursor *cursor, int64_t global)
{
    static const sonde__evidence_store order[] = {SONDE__STORE_ROW, SONDE__STORE_VALUE,
                                                  SONDE__STORE_SKETCH};

    cursor->count = cursor->at = 0;
    cursor->trial->question++;
    for (size_t w = 0; w < cursor->trial->worker_count; w++) {
        const size_t index = find_source(cursor, w);

        for (size_t k = 0; k < SONDE_COUNT_OF(order); k++) {
            unsigned how = cursor->options.how & sonde__evidence_in(order[k]);

            for (; how != 0; how &= how - 1) {
                if (index == SIZE_MAX ||
                    !gather_form(cursor, index, __builtin_ctz(how), global)) {
                    cursor->count = 0;
                    return false;
                }
            }
        }
    }
    return true;
}

/* Whether there is a step to enter next, and which. */
static bool next_step(const sonde_trial_cursor *cursor, int64_t *global)
{
    const sonde_trial *trial = cursor->trial;
    const sonde__trial_steps *steps = &trial->steps;
    const size_t count = steps->sorted_count[SONDE_MODE_GLOBAL];
    size_t place = sonde__trial_steps_lower(steps, SONDE_MODE_GLOBAL, cursor->next);

    if (place == count) {
        return false;
    }
    *global = sonde__trial_steps_at(steps, SONDE_MODE_GLOBAL, place);
    for (; place < count; place++) {
        const sonde__trial_step *step =
            &steps->items[steps->sorted[SONDE_MODE_GLOBAL][place]];

        if (step->global != *global) {
            break;
        }
        if (!cursor->options.incomplete && !sonde__trial_step_complete(trial, step)) {
            return false;
        }
    }
    return cursor->options.end == 0 || *global < cursor->options.end;
}

/* --- records ---------------------------------------------------------------------- */

static sonde_err read_entry(sonde_trial_cursor *cursor, const walk_entry *entry,
                            sonde_trial_record *record, sonde_diag *diag)
{
    sonde_trial *trial = cursor->trial;
    worker_source *source = &cursor->sources[entry->source];
    const sonde__trial_item *item =
        sonde__trial_items_at(&source->worker->items[entry->form], entry->number);
    const sonde__trial_step *step = &trial->steps.items[item->step];
    const sonde__record_stats_row *row = NULL;

    *record = (sonde_trial_record){
        .id = item->tensor,
        .worker = source->worker->rank,
        .how = sonde__evidence_forms[entry->form].print.bit,
        .at = {.mode = (sonde_mode)step->mode,
               .global_step = step->global,
               .mode_step = step->mode_step,
               .micro_batch = (int)item->micro_batch,
               .replica = item->replica},
    };
    switch (sonde__evidence_forms[entry->form].store) {
    case SONDE__STORE_ROW:
        SONDE__TRY(sonde__trial_load_row(trial, source->worker,
                                         ((const sonde__trial_row_item *)item)->row,
                                         &source->rows, &row, diag));
        sonde__record_stats_to_vitals(row, &cursor->vitals);
        record->vitals = &cursor->vitals;
        return SONDE_OK;
    case SONDE__STORE_SKETCH:
        record->sketch = cursor->sketch;
        return sonde__trial_load_sketch(trial, source->worker, (const void *)item,
                                        cursor->sketch, diag);
    case SONDE__STORE_VALUE:
    case SONDE__STORE_NOT:
    case SONDE__STORES:
    default:
        return sonde__trial_load_value(trial, source->worker, (const void *)item,
                                       &record->view, diag);
    }
}

/* Goes back to a step that was passed, if a writer resumed the run from it. */
static sonde_err go_back(sonde_trial_cursor *cursor, sonde_diag *diag)
{
    const int64_t begin = cursor->options.begin;
    int64_t step = 0;

    if (!sonde_trial_went_back(cursor->trial, &cursor->went_back, &step) ||
        step >= cursor->next || cursor->next == begin) {
        return SONDE_OK;
    }
    cursor->next = SONDE_MAX(step, begin);
    cursor->count = cursor->at = 0;
    return sonde__fail(
        diag, SONDE_ERESUMED, cursor->trial->path, NULL,
        "the run was resumed from step %lld: records from that step on are "
        "superseded",
        (long long)cursor->next);
}

sonde_err sonde_trial_next(sonde_trial_cursor *cursor, sonde_trial_record *record,
                           sonde_diag *diag)
{
    SONDE__NEEDS(diag, cursor, record);
    sonde_trial_record read;
    SONDE__TRY(go_back(cursor, diag));
    while (cursor->at == cursor->count) {
        int64_t global = 0;

        if (!next_step(cursor, &global)) {
            return sonde__fail(diag, SONDE_EEND, cursor->trial->path, NULL,
                               "no more records");
        }
        if (!gather(cursor, global)) {
            return sonde__fail_nomem(diag, "the records of a step");
        }
        cursor->next = global + 1;
    }
    sonde_err err = read_entry(cursor, &cursor->entries[cursor->at++], &read, diag);
    if (err != SONDE_OK) {
        cursor->at -= err == SONDE_ENOMEM; /* the same one again */
        return err;
    }
    *record = read;
    return SONDE_OK;
}

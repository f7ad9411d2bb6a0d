/*
 * items.c - see items.h.
 */
#include "trial/items.h"
#include "base/macros.h"
#include "base/memory.h"

#include <sonde/reduction.h>

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#if defined(SONDE_STRESS) && SONDE_STRESS
enum { CHUNK_BITS = 2 };
#else
enum { CHUNK_BITS = 12 };
#endif
enum { CHUNK = 1 << CHUNK_BITS };
static const size_t MOST_ITEMS = UINT32_MAX - 1;

void sonde__trial_items_init(sonde__trial_items *items, int form)
{
    static const size_t sizes[SONDE__STORES] = {
        [SONDE__STORE_VALUE] = sizeof(sonde__trial_raw_item),
        [SONDE__STORE_ROW] = sizeof(sonde__trial_row_item),
        [SONDE__STORE_SKETCH] = sizeof(sonde__trial_sketch_item),
    };

    *items = (sonde__trial_items){.item_size = sizes[sonde__evidence_forms[form].store],
                                  .fresh = true};
}

void sonde__trial_items_fini(sonde__trial_items *items)
{
    for (size_t i = 0; i < items->chunk_count; i++) {
        sonde__free(items->chunks[i]);
    }
    for (size_t i = 0; i < items->history_count; i++) {
        sonde__free(items->histories[i].numbers);
    }
    sonde__free(items->chunks);
    sonde__free(items->histories);
    sonde__free(items->blocks);
    *items = (sonde__trial_items){0};
}

static sonde__trial_item *item_at(const sonde__trial_items *items, uint32_t number)
{
    unsigned char *chunk = items->chunks[number >> CHUNK_BITS];

    return (void *)(chunk + (number & (CHUNK - 1)) * items->item_size);
}

const sonde__trial_item *sonde__trial_items_at(const sonde__trial_items *items,
                                               uint32_t number)
{
    return item_at(items, number);
}

bool sonde__trial_items_report(sonde__trial_items *items, uint32_t number)
{
    sonde__trial_item *item = item_at(items, number);
    const bool first = !item->reported;

    item->reported = 1;
    return first;
}

/* Notes the place of the last item of a history. */
static void note_last(const sonde__trial_items *items, const sonde__trial_steps *steps,
                      sonde__trial_history *history)
{
    if (history->count > 0) {
        const sonde__trial_item *last =
            item_at(items, history->numbers[history->count - 1]);

        history->last_step = steps->items[last->step].global;
        history->last_shard = sonde__trial_shard(last);
    }
}

/* --- adding ----------------------------------------------------------------------- */

static bool reserve_chunk(sonde__trial_items *items)
{
    if (items->count < items->chunk_count << CHUNK_BITS) {
        return true;
    }
    if (!sonde__reserve(&items->chunks, &items->chunk_capacity, items->chunk_count + 1,
                        sizeof *items->chunks)) {
        return false;
    }
    unsigned char *chunk = sonde__malloc((size_t)CHUNK * items->item_size);
    if (chunk == NULL) {
        return false;
    }
    items->chunks[items->chunk_count++] = chunk;
    return true;
}

static bool reserve_histories(sonde__trial_items *items, uint32_t tensor)
{
    if (tensor < items->history_count) {
        return true;
    }
    if (!sonde__reserve(&items->histories, &items->history_capacity, (size_t)tensor + 1,
                        sizeof *items->histories)) {
        return false;
    }
    for (size_t i = items->history_count; i <= tensor; i++) {
        items->histories[i] = (sonde__trial_history){0};
    }
    items->history_count = (size_t)tensor + 1;
    return true;
}

static bool reserve(sonde__trial_items *items, uint32_t tensor)
{
    size_t capacity = 0;

    if (items->count >= MOST_ITEMS || !reserve_chunk(items) ||
        !reserve_histories(items, tensor) ||
        !sonde__reserve(&items->blocks, &items->block_capacity, items->block_count + 1,
                        sizeof *items->blocks)) {
        return false;
    }
    sonde__trial_history *history = &items->histories[tensor];
    capacity = history->capacity;
    if (!sonde__reserve(&history->numbers, &capacity, (size_t)history->count + 1,
                        sizeof *history->numbers)) {
        return false;
    }
    history->capacity = (uint32_t)SONDE_MIN(capacity, (size_t)UINT32_MAX);
    return true;
}

/* Room is there. Of two items of one place, sorting drops the earlier one. */
static void add_to_history(sonde__trial_items *items, const sonde__trial_item *item,
                           int64_t global)
{
    sonde__trial_history *history = &items->histories[item->tensor];
    const uint64_t shard = sonde__trial_shard(item);

    if (history->count > 0 &&
        (global < history->last_step ||
         (global == history->last_step && shard <= history->last_shard))) {
        history->unsorted = items->unsorted = true;
    }
    history->numbers[history->count++] = items->count;
    history->last_step = global;
    history->last_shard = shard;
}

static void add_to_block(sonde__trial_items *items, const sonde__trial_item *item,
                         int64_t global)
{
    sonde__trial_block *last =
        items->block_count > 0 ? &items->blocks[items->block_count - 1] : NULL;

    if (!items->fresh && last != NULL && last->step == item->step) {
        last->count++;
        return;
    }
    if (last != NULL && global <= items->last_step) {
        items->unsorted = true;
    }
    assert(items->blocks != NULL);
    items->blocks[items->block_count++] =
        (sonde__trial_block){item->step, items->count, 1};
    items->last_step = global;
    items->fresh = false;
}

bool sonde__trial_items_add(sonde__trial_items *items, const sonde__trial_steps *steps,
                            const sonde__trial_item *item)
{
    const int64_t global = steps->items[item->step].global;

    if (!reserve(items, item->tensor)) {
        return false;
    }
    unsigned char *chunk = items->chunks[items->count >> CHUNK_BITS];
    memcpy(chunk + (items->count & (CHUNK - 1)) * items->item_size, item,
           items->item_size);
    add_to_history(items, item, global);
    add_to_block(items, item, global);
    items->count++;
    return true;
}

/* --- sorting ---------------------------------------------------------------------- */

typedef struct sort_order {
    const sonde__trial_items *items;
    const sonde__trial_steps *steps;
} sort_order;

static int compare_blocks(const void *left, const void *right, void *context)
{
    const sort_order *order = context;
    const sonde__trial_block *a = left, *b = right;
    const int64_t x = order->steps->items[a->step].global;
    const int64_t y = order->steps->items[b->step].global;

    return x != y ? (x > y) - (x < y) : (a->first > b->first) - (a->first < b->first);
}

static int compare_items(const void *left, const void *right, void *context)
{
    const sort_order *order = context;
    const uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    const sonde__trial_item *p = sonde__trial_items_at(order->items, a);
    const sonde__trial_item *q = sonde__trial_items_at(order->items, b);
    const int64_t x = order->steps->items[p->step].global;
    const int64_t y = order->steps->items[q->step].global;
    const uint64_t m = sonde__trial_shard(p), n = sonde__trial_shard(q);

    if (x != y) {
        return x < y ? -1 : 1;
    }
    return m != n ? (m < n ? -1 : 1) : (a > b) - (a < b);
}

/*
 * Of blocks with one global step that are of different steps (after a resume, step 90 is
 * training where it was evaluation) only those at the end stay that are of the last's
 * step. True if any had to go.
 */
static bool drop_replaced(sonde__trial_items *items, const sonde__trial_steps *steps)
{
    size_t kept = 0, next = 0;

    for (size_t i = 0; i < items->block_count; i = next) {
        const int64_t global = steps->items[items->blocks[i].step].global;

        for (next = i; next < items->block_count; next++) {
            if (steps->items[items->blocks[next].step].global != global) {
                break;
            }
        }
        size_t first = next - 1;
        while (first > i &&
               items->blocks[first - 1].step == items->blocks[next - 1].step) {
            first--;
        }
        memmove(&items->blocks[kept], &items->blocks[first],
                (next - first) * sizeof *items->blocks);
        kept += next - first;
    }
    if (kept == items->block_count) {
        return false;
    }
    items->block_count = kept;
    return true;
}

/* Whether the item is in one of the blocks that count at its global step, or before
 * one. */
static bool is_kept(const sonde__trial_items *items, const sonde__trial_steps *steps,
                    uint32_t number)
{
    const uint32_t step = sonde__trial_items_at(items, number)->step;
    const size_t block =
        sonde__trial_items_block(items, steps, steps->items[step].global);

    return block < items->block_count && items->blocks[block].step == step &&
           items->blocks[block].first <= number;
}

static void sort_history(sonde__trial_items *items, const sonde__trial_steps *steps,
                         sonde__trial_history *history, bool replaced)
{
    sort_order order = {items, steps};
    uint32_t kept = 0;

    if (history->unsorted) {
        qsort_r(history->numbers, history->count, sizeof *history->numbers, compare_items,
                &order);
    }
    for (uint32_t i = 0; i < history->count; i++) {
        const uint32_t number = history->numbers[i];
        const sonde__trial_item *item = sonde__trial_items_at(items, number);

        if (replaced && !is_kept(items, steps, number)) {
            continue;
        }
        if (kept > 0) {
            const sonde__trial_item *before =
                sonde__trial_items_at(items, history->numbers[kept - 1]);

            if (sonde__trial_shard(before) == sonde__trial_shard(item) &&
                steps->items[before->step].global == steps->items[item->step].global) {
                kept--; /* the later one replaces it */
                items->repeated = true;
            }
        }
        history->numbers[kept++] = number;
    }
    history->count = kept;
    history->unsorted = false;
    note_last(items, steps, history);
}

void sonde__trial_items_sort(sonde__trial_items *items, const sonde__trial_steps *steps)
{
    sort_order order = {items, steps};

    if (!items->unsorted) {
        return;
    }
    qsort_r(items->blocks, items->block_count, sizeof *items->blocks, compare_blocks,
            &order);
    const bool replaced = drop_replaced(items, steps);
    for (size_t t = 0; t < items->history_count; t++) {
        if (items->histories[t].unsorted || replaced) {
            sort_history(items, steps, &items->histories[t], replaced);
        }
    }
    items->unsorted = false;
    items->fresh = true;
    if (items->block_count > 0) {
        items->last_step =
            steps->items[items->blocks[items->block_count - 1].step].global;
    }
}

/* --- superseding ------------------------------------------------------------------ */

static void supersede_in_history(const sonde__trial_items *items,
                                 const sonde__trial_steps *steps,
                                 sonde__trial_history *history)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < history->count; i++) {
        if (!sonde__trial_items_at(items, history->numbers[i])->superseded) {
            history->numbers[kept++] = history->numbers[i];
        }
    }
    history->count = kept;
    note_last(items, steps, history);
}

static void supersede_blocks(sonde__trial_items *items, const sonde__trial_steps *steps,
                             int64_t global)
{
    size_t kept = 0;

    for (size_t i = 0; i < items->block_count; i++) {
        if (steps->items[items->blocks[i].step].global < global) {
            items->blocks[kept++] = items->blocks[i];
        }
    }
    items->block_count = kept;
    items->fresh = true;
    if (kept > 0) {
        items->last_step = steps->items[items->blocks[kept - 1].step].global;
    }
}

void sonde__trial_items_supersede(sonde__trial_items *items,
                                  const sonde__trial_steps *steps, int64_t global,
                                  void (*gone)(void *user, const sonde__trial_item *item),
                                  void *user)
{
    const uint32_t before = items->superseded;

    for (uint32_t i = 0; i < items->count; i++) {
        sonde__trial_item *item = item_at(items, i);

        if (!item->superseded && steps->items[item->step].global >= global) {
            item->superseded = 1;
            items->superseded++;
            if (gone != NULL) {
                gone(user, item);
            }
        }
    }
    for (size_t t = 0; t < items->history_count && items->superseded > before; t++) {
        supersede_in_history(items, steps, &items->histories[t]);
    }
    supersede_blocks(items, steps, global);
}

/* --- finding ---------------------------------------------------------------------- */

const sonde__trial_history *sonde__trial_items_history(const sonde__trial_items *items,
                                                       uint32_t tensor)
{
    static const sonde__trial_history none;

    return tensor < items->history_count ? &items->histories[tensor] : &none;
}

uint32_t sonde__trial_history_lower(const sonde__trial_items *items,
                                    const sonde__trial_steps *steps,
                                    const sonde__trial_history *history, int64_t global,
                                    uint64_t shard)
{
    uint32_t low = 0, high = history->count;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const sonde__trial_item *item =
            sonde__trial_items_at(items, history->numbers[middle]);
        const int64_t step = steps->items[item->step].global;

        if (step < global || (step == global && sonde__trial_shard(item) < shard)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

uint32_t sonde__trial_items_find(const sonde__trial_items *items,
                                 const sonde__trial_steps *steps, uint32_t tensor,
                                 int64_t global, uint64_t shard)
{
    const sonde__trial_history *history = sonde__trial_items_history(items, tensor);
    const uint32_t place =
        sonde__trial_history_lower(items, steps, history, global, shard);

    if (place < history->count) {
        const sonde__trial_item *item =
            sonde__trial_items_at(items, history->numbers[place]);

        if (steps->items[item->step].global == global &&
            sonde__trial_shard(item) == shard) {
            return history->numbers[place];
        }
    }
    return SONDE__NONE;
}

size_t sonde__trial_items_block(const sonde__trial_items *items,
                                const sonde__trial_steps *steps, int64_t global)
{
    size_t low = 0, high = items->block_count;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (steps->items[items->blocks[middle].step].global < global) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* --- layouts ---------------------------------------------------------------------- */

void sonde__trial_layouts_fini(sonde__trial_layouts *layouts)
{
    sonde__free(layouts->items);
    sonde__table_fini(&layouts->table);
    *layouts = (sonde__trial_layouts){0};
}

static bool match_layout(const void *array, uint32_t index, const void *key)
{
    return memcmp((const sonde__trial_layout *)array + index, key,
                  sizeof(sonde__trial_layout)) == 0;
}

uint32_t sonde__trial_layouts_intern(sonde__trial_layouts *layouts,
                                     const sonde__trial_layout *layout, uint32_t guess)
{
    uint32_t index = guess;

    if (guess < layouts->count && match_layout(layouts->items, guess, layout)) {
        return guess;
    }
    const uint64_t hash = XXH3_64bits(layout, sizeof *layout);
    index =
        sonde__table_find(&layouts->table, hash, match_layout, layouts->items, layout);
    if (index != SONDE__TABLE_NONE) {
        return index;
    }
    if (layouts->count >= SONDE__NONE - 1 ||
        !sonde__reserve(&layouts->items, &layouts->capacity, layouts->count + 1,
                        sizeof *layouts->items) ||
        !sonde__table_reserve(&layouts->table)) {
        return SONDE__NONE;
    }
    layouts->items[layouts->count] = *layout;
    sonde__table_add(&layouts->table, hash, (uint32_t)layouts->count);
    return (uint32_t)layouts->count++;
}

/* --- steps ------------------------------------------------------------------------- */

void sonde__trial_steps_init(sonde__trial_steps *steps)
{
    *steps = (sonde__trial_steps){.last = SONDE__NONE};
}

void sonde__trial_steps_fini(sonde__trial_steps *steps)
{
    sonde__free(steps->items);
    sonde__table_fini(&steps->table);
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        sonde__free(steps->sorted[mode]);
    }
    sonde__trial_steps_init(steps);
}

/* Steps count up; the upper bits of the product spread them. */
static uint64_t hash_step(const sonde__trial_step *step)
{
    const uint64_t mixed =
        (uint64_t)step->global * 0x9E3779B97F4A7C15U ^
        ((uint64_t)step->mode_step + (uint64_t)step->mode * 0x165667B19E3779F9U) *
            0xC2B2AE3D27D4EB4FU;

    return mixed >> 20;
}

static bool is_same(const sonde__trial_step *a, const sonde__trial_step *b)
{
    return a->global == b->global && a->mode_step == b->mode_step && a->mode == b->mode;
}

static bool match_step(const void *array, uint32_t index, const void *key)
{
    return is_same((const sonde__trial_step *)array + index, key);
}

static int64_t value_in(const sonde__trial_steps *steps, int mode, uint32_t index)
{
    const sonde__trial_step *step = &steps->items[index];

    return mode == SONDE_MODE_GLOBAL ? step->global : step->mode_step;
}

/* Room is there. */
static void append_sorted(sonde__trial_steps *steps, int mode, uint32_t index)
{
    const size_t n = steps->sorted_count[mode];

    if (n > 0 && value_in(steps, mode, steps->sorted[mode][n - 1]) >
                     value_in(steps, mode, index)) {
        steps->unsorted[mode] = true;
    }
    steps->sorted[mode][n] = index;
    steps->sorted_count[mode] = n + 1;
}

static bool reserve_steps(sonde__trial_steps *steps, int mode)
{
    return steps->count < SONDE__NONE - 1 &&
           sonde__reserve(&steps->items, &steps->capacity, steps->count + 1,
                          sizeof *steps->items) &&
           sonde__reserve(&steps->sorted[mode], &steps->sorted_capacity[mode],
                          steps->sorted_count[mode] + 1, sizeof *steps->sorted[mode]) &&
           sonde__reserve(&steps->sorted[SONDE_MODE_GLOBAL],
                          &steps->sorted_capacity[SONDE_MODE_GLOBAL],
                          steps->sorted_count[SONDE_MODE_GLOBAL] + 1,
                          sizeof *steps->sorted[mode]) &&
           sonde__table_reserve(&steps->table);
}

/* Room is there. */
static void list_step(sonde__trial_steps *steps, int mode, uint32_t index)
{
    if (mode != SONDE_MODE_GLOBAL) {
        append_sorted(steps, mode, index);
    }
    append_sorted(steps, SONDE_MODE_GLOBAL, index);
    steps->items[index].listed = true;
}

static bool is_guess(const sonde__trial_steps *steps, uint32_t index,
                     const sonde__trial_step *step)
{
    return index < steps->count && steps->items[index].listed &&
           is_same(&steps->items[index], step);
}

uint32_t sonde__trial_steps_intern(sonde__trial_steps *steps, int64_t global,
                                   sonde_mode mode, int64_t mode_step)
{
    const sonde__trial_step step = {
        .global = global, .mode_step = mode_step, .mode = (uint8_t)mode};

    if (is_guess(steps, steps->last, &step)) {
        return steps->last;
    }
    if (is_guess(steps, steps->last + 1, &step)) { /* files mention steps in one order */
        return ++steps->last;
    }
    const uint64_t hash = hash_step(&step);
    uint32_t index =
        sonde__table_find(&steps->table, hash, match_step, steps->items, &step);
    if (index != SONDE__TABLE_NONE && steps->items[index].listed) {
        return steps->last = index;
    }
    if (!reserve_steps(steps, (int)mode)) {
        return SONDE__NONE;
    }
    if (index == SONDE__TABLE_NONE) {
        index = (uint32_t)steps->count++;
        steps->items[index] = step;
        sonde__table_add(&steps->table, hash, index);
    }
    list_step(steps, (int)mode, index);
    return steps->last = index;
}

void sonde__trial_steps_drop_empty(sonde__trial_steps *steps, int64_t global)
{
    for (size_t i = 0; i < steps->count; i++) {
        sonde__trial_step *step = &steps->items[i];

        step->listed =
            step->listed && (step->global < global || step->saved || step->ended > 0);
    }
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        size_t kept = 0;

        for (size_t i = 0; i < steps->sorted_count[mode]; i++) {
            if (steps->items[steps->sorted[mode][i]].listed) {
                steps->sorted[mode][kept++] = steps->sorted[mode][i];
            }
        }
        steps->sorted_count[mode] = kept;
    }
    steps->last = SONDE__NONE;
}

/* --- order ------------------------------------------------------------------------ */

typedef struct step_order {
    const sonde__trial_steps *steps;
    int mode;
} step_order;

static int compare(const void *left, const void *right, void *context)
{
    const step_order *order = context;
    const uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    const int64_t x = value_in(order->steps, order->mode, a);
    const int64_t y = value_in(order->steps, order->mode, b);

    return x != y ? (x > y) - (x < y) : (a > b) - (a < b);
}

void sonde__trial_steps_sort(sonde__trial_steps *steps)
{
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        if (steps->unsorted[mode]) {
            step_order order = {steps, mode};

            qsort_r(steps->sorted[mode], steps->sorted_count[mode],
                    sizeof *steps->sorted[mode], compare, &order);
            steps->unsorted[mode] = false;
        }
    }
}

int64_t sonde__trial_steps_at(const sonde__trial_steps *steps, sonde_mode mode,
                              size_t place)
{
    return value_in(steps, (int)mode, steps->sorted[mode][place]);
}

size_t sonde__trial_steps_lower(const sonde__trial_steps *steps, sonde_mode mode,
                                int64_t step)
{
    size_t low = 0, high = steps->sorted_count[mode];

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (sonde__trial_steps_at(steps, mode, middle) < step) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

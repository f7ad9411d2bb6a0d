/*
 * items.c - a worker's items of one kind: kept in chunks, found by tensor and step, walked
 * step by step.
 *
 * Adding is appending in three places. Where an item does not come behind the one before it
 * in its track, or a step behind the one before, the order is made up for by settle.
 */
#include "trial/store.h"
#include "base/macros.h"
#include "base/memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#if defined(SONDE_STRESS) && SONDE_STRESS
enum { CHUNK_BITS = 2 };
#else
enum { CHUNK_BITS = 12 };
#endif
enum { CHUNK = 1 << CHUNK_BITS };
static const size_t MOST_ITEMS = UINT32_MAX - 1;

void sonde__trial_store_init(sonde__trial_store *store, sonde__trial_kind kind)
{
    static const size_t sizes[SONDE__KINDS] = {
        [SONDE__RAW] = sizeof(sonde__trial_raw_item),
        [SONDE__VITALS] = sizeof(sonde__trial_row_item),
        [SONDE__SKETCH] = sizeof(sonde__trial_sketch_item),
    };

    *store = (sonde__trial_store){.item_size = sizes[kind], .fresh = true};
}

void sonde__trial_store_fini(sonde__trial_store *store)
{
    for (size_t i = 0; i < store->chunk_count; i++) {
        sonde__free(store->chunks[i]);
    }
    for (size_t i = 0; i < store->track_count; i++) {
        sonde__free(store->tracks[i].items);
    }
    sonde__free(store->chunks);
    sonde__free(store->tracks);
    sonde__free(store->spans);
    *store = (sonde__trial_store){0};
}

static sonde__trial_item *item_at(const sonde__trial_store *store, uint32_t number)
{
    unsigned char *chunk = store->chunks[number >> CHUNK_BITS];

    return (void *)(chunk + (number & (CHUNK - 1)) * store->item_size);
}

const sonde__trial_item *sonde__trial_store_at(const sonde__trial_store *store,
                                               uint32_t number)
{
    return item_at(store, number);
}

bool sonde__trial_store_tell(sonde__trial_store *store, uint32_t number)
{
    sonde__trial_item *item = item_at(store, number);
    const bool first = !item->told;

    item->told = 1;
    return first;
}

static int64_t global_of(const sonde__trial_store *store, const sonde__trial_steps *steps,
                         uint32_t number)
{
    return steps->items[sonde__trial_store_at(store, number)->step].global;
}

/* --- adding ----------------------------------------------------------------------- */

static bool reserve_chunk(sonde__trial_store *store)
{
    unsigned char *chunk = NULL;

    if (store->count < store->chunk_count << CHUNK_BITS) {
        return true;
    }
    if (!sonde__reserve(&store->chunks, &store->chunk_capacity, store->chunk_count + 1,
                        sizeof *store->chunks)) {
        return false;
    }
    chunk = sonde__malloc((size_t)CHUNK * store->item_size);
    if (chunk == NULL) {
        return false;
    }
    store->chunks[store->chunk_count++] = chunk;
    return true;
}

static bool reserve_tracks(sonde__trial_store *store, uint32_t tensor)
{
    if (tensor < store->track_count) {
        return true;
    }
    if (!sonde__reserve(&store->tracks, &store->track_capacity, (size_t)tensor + 1,
                        sizeof *store->tracks)) {
        return false;
    }
    for (size_t i = store->track_count; i <= tensor; i++) {
        store->tracks[i] = (sonde__trial_track){0};
    }
    store->track_count = (size_t)tensor + 1;
    return true;
}

static bool reserve(sonde__trial_store *store, uint32_t tensor)
{
    sonde__trial_track *track = NULL;
    size_t capacity = 0;

    if (store->count >= MOST_ITEMS || !reserve_chunk(store) ||
        !reserve_tracks(store, tensor) ||
        !sonde__reserve(&store->spans, &store->span_capacity, store->span_count + 1,
                        sizeof *store->spans)) {
        return false;
    }
    track = &store->tracks[tensor];
    capacity = track->capacity;
    if (!sonde__reserve(&track->items, &capacity, (size_t)track->count + 1,
                        sizeof *track->items)) {
        return false;
    }
    track->capacity = (uint32_t)SONDE_MIN(capacity, (size_t)UINT32_MAX);
    return true;
}

/* Room is there. Equal places follow each other: settle drops the earlier one. */
static void add_to_track(sonde__trial_store *store, const sonde__trial_item *item,
                         int64_t global)
{
    sonde__trial_track *track = &store->tracks[item->tensor];
    const uint64_t lane = sonde__trial_lane(item);

    if (track->count > 0 && (global < track->last_step ||
                             (global == track->last_step && lane <= track->last_lane))) {
        track->unsorted = store->unsorted = true;
    }
    track->items[track->count++] = store->count;
    track->last_step = global;
    track->last_lane = lane;
}

static void add_to_span(sonde__trial_store *store, const sonde__trial_item *item,
                        int64_t global)
{
    sonde__trial_span *last =
        store->span_count > 0 ? &store->spans[store->span_count - 1] : NULL;

    if (!store->fresh && last != NULL && last->step == item->step) {
        last->count++;
        return;
    }
    if (last != NULL && global <= store->last_step) {
        store->unsorted = true;
    }
    assert(store->spans != NULL);
    store->spans[store->span_count++] = (sonde__trial_span){item->step, store->count, 1};
    store->last_step = global;
    store->fresh = false;
}

bool sonde__trial_store_add(sonde__trial_store *store, const sonde__trial_steps *steps,
                            const sonde__trial_item *item)
{
    const int64_t global = steps->items[item->step].global;
    unsigned char *chunk = NULL;

    if (!reserve(store, item->tensor)) {
        return false;
    }
    chunk = store->chunks[store->count >> CHUNK_BITS];
    memcpy(chunk + (store->count & (CHUNK - 1)) * store->item_size, item,
           store->item_size);
    add_to_track(store, item, global);
    add_to_span(store, item, global);
    store->count++;
    return true;
}

/* --- settling --------------------------------------------------------------------- */

typedef struct order {
    const sonde__trial_store *store;
    const sonde__trial_steps *steps;
} order;

static int compare_spans(const void *left, const void *right, void *context)
{
    const order *by = context;
    const sonde__trial_span *a = left, *b = right;
    const int64_t x = by->steps->items[a->step].global;
    const int64_t y = by->steps->items[b->step].global;

    return x != y ? (x > y) - (x < y) : (a->first > b->first) - (a->first < b->first);
}

static int compare_items(const void *left, const void *right, void *context)
{
    const order *by = context;
    const uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    const sonde__trial_item *p = sonde__trial_store_at(by->store, a);
    const sonde__trial_item *q = sonde__trial_store_at(by->store, b);
    const int64_t x = by->steps->items[p->step].global;
    const int64_t y = by->steps->items[q->step].global;
    const uint64_t m = sonde__trial_lane(p), n = sonde__trial_lane(q);

    if (x != y) {
        return x < y ? -1 : 1;
    }
    return m != n ? (m < n ? -1 : 1) : (a > b) - (a < b);
}

/*
 * Of spans with one global step that are of different steps (after a resume, step 90 is
 * training where it was evaluation) only those at the end stay that are of the last's step.
 * True if any had to go.
 */
static bool drop_overruled(sonde__trial_store *store, const sonde__trial_steps *steps)
{
    size_t kept = 0, next = 0;

    for (size_t i = 0; i < store->span_count; i = next) {
        const int64_t global = steps->items[store->spans[i].step].global;
        size_t first = 0;

        for (next = i; next < store->span_count; next++) {
            if (steps->items[store->spans[next].step].global != global) {
                break;
            }
        }
        first = next - 1;
        while (first > i && store->spans[first - 1].step == store->spans[next - 1].step) {
            first--;
        }
        memmove(&store->spans[kept], &store->spans[first],
                (next - first) * sizeof *store->spans);
        kept += next - first;
    }
    if (kept == store->span_count) {
        return false;
    }
    store->span_count = kept;
    return true;
}

/* Whether the item is in one of the spans that count at its global step, or before one. */
static bool stands(const sonde__trial_store *store, const sonde__trial_steps *steps,
                   uint32_t number)
{
    const uint32_t step = sonde__trial_store_at(store, number)->step;
    const size_t span = sonde__trial_store_span(store, steps, steps->items[step].global);

    return span < store->span_count && store->spans[span].step == step &&
           store->spans[span].first <= number;
}

static void settle_track(sonde__trial_store *store, const sonde__trial_steps *steps,
                         sonde__trial_track *track, bool overruled)
{
    order by = {store, steps};
    uint32_t kept = 0;

    if (track->unsorted) {
        qsort_r(track->items, track->count, sizeof *track->items, compare_items, &by);
    }
    for (uint32_t i = 0; i < track->count; i++) {
        const uint32_t number = track->items[i];
        const sonde__trial_item *item = sonde__trial_store_at(store, number);

        if (overruled && !stands(store, steps, number)) {
            continue;
        }
        if (kept > 0) {
            const sonde__trial_item *before =
                sonde__trial_store_at(store, track->items[kept - 1]);

            if (sonde__trial_lane(before) == sonde__trial_lane(item) &&
                steps->items[before->step].global == steps->items[item->step].global) {
                kept--; /* the later one counts */
                store->repeated = true;
            }
        }
        track->items[kept++] = number;
    }
    track->count = kept;
    track->unsorted = false;
    if (kept > 0) {
        track->last_step = global_of(store, steps, track->items[kept - 1]);
        track->last_lane =
            sonde__trial_lane(sonde__trial_store_at(store, track->items[kept - 1]));
    }
}

void sonde__trial_store_settle(sonde__trial_store *store, const sonde__trial_steps *steps)
{
    order by = {store, steps};
    bool overruled = false;

    if (!store->unsorted) {
        return;
    }
    qsort_r(store->spans, store->span_count, sizeof *store->spans, compare_spans, &by);
    overruled = drop_overruled(store, steps);
    for (size_t t = 0; t < store->track_count; t++) {
        if (store->tracks[t].unsorted || overruled) {
            settle_track(store, steps, &store->tracks[t], overruled);
        }
    }
    store->unsorted = false;
    store->fresh = true;
    if (store->span_count > 0) {
        store->last_step = steps->items[store->spans[store->span_count - 1].step].global;
    }
}

/* --- cutting ---------------------------------------------------------------------- */

static void cut_track(const sonde__trial_store *store, const sonde__trial_steps *steps,
                      sonde__trial_track *track)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < track->count; i++) {
        if (!sonde__trial_store_at(store, track->items[i])->superseded) {
            track->items[kept++] = track->items[i];
        }
    }
    track->count = kept;
    if (kept > 0) {
        track->last_step = global_of(store, steps, track->items[kept - 1]);
        track->last_lane =
            sonde__trial_lane(sonde__trial_store_at(store, track->items[kept - 1]));
    }
}

static void cut_spans(sonde__trial_store *store, const sonde__trial_steps *steps,
                      int64_t global)
{
    size_t kept = 0;

    for (size_t i = 0; i < store->span_count; i++) {
        if (steps->items[store->spans[i].step].global < global) {
            store->spans[kept++] = store->spans[i];
        }
    }
    store->span_count = kept;
    store->fresh = true;
    if (kept > 0) {
        store->last_step = steps->items[store->spans[kept - 1].step].global;
    }
}

void sonde__trial_store_cut(sonde__trial_store *store, const sonde__trial_steps *steps,
                            int64_t global,
                            void (*gone)(void *user, const sonde__trial_item *item),
                            void *user)
{
    const uint32_t before = store->superseded;

    for (uint32_t i = 0; i < store->count; i++) {
        sonde__trial_item *item = item_at(store, i);

        if (!item->superseded && steps->items[item->step].global >= global) {
            item->superseded = 1;
            store->superseded++;
            if (gone != NULL) {
                gone(user, item);
            }
        }
    }
    for (size_t t = 0; t < store->track_count && store->superseded > before; t++) {
        cut_track(store, steps, &store->tracks[t]);
    }
    cut_spans(store, steps, global);
}

/* --- finding ---------------------------------------------------------------------- */

const sonde__trial_track *sonde__trial_store_track(const sonde__trial_store *store,
                                                   uint32_t tensor)
{
    static const sonde__trial_track none;

    return tensor < store->track_count ? &store->tracks[tensor] : &none;
}

uint32_t sonde__trial_track_lower(const sonde__trial_store *store,
                                  const sonde__trial_steps *steps,
                                  const sonde__trial_track *track, int64_t global,
                                  uint64_t lane)
{
    uint32_t low = 0, high = track->count;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const sonde__trial_item *item =
            sonde__trial_store_at(store, track->items[middle]);
        const int64_t step = steps->items[item->step].global;

        if (step < global || (step == global && sonde__trial_lane(item) < lane)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

uint32_t sonde__trial_store_find(const sonde__trial_store *store,
                                 const sonde__trial_steps *steps, uint32_t tensor,
                                 int64_t global, uint64_t lane)
{
    const sonde__trial_track *track = sonde__trial_store_track(store, tensor);
    const uint32_t place = sonde__trial_track_lower(store, steps, track, global, lane);

    if (place < track->count) {
        const sonde__trial_item *item = sonde__trial_store_at(store, track->items[place]);

        if (steps->items[item->step].global == global &&
            sonde__trial_lane(item) == lane) {
            return track->items[place];
        }
    }
    return SONDE__NONE;
}

size_t sonde__trial_store_span(const sonde__trial_store *store,
                               const sonde__trial_steps *steps, int64_t global)
{
    size_t low = 0, high = store->span_count;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (steps->items[store->spans[middle].step].global < global) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

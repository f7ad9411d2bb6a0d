/*
 * deliver.c - out to the recorder, and what is held back until it is known whether anybody
 * wants it.
 *
 * A collection with a when_nan may turn out to be wanted after its values have gone by. So
 * each value that is not recorded at once for another reason is copied, and at the end of
 * the step either let go to the recorder or forgotten. The copies lie one behind the other
 * in one block, which grows to what a step needs and stays.
 */
#include "hook/hook_state.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <sonde/log.h>

#include <string.h>

unsigned sonde__hook_how(const sonde_hook *hook, uint64_t sets)
{
    unsigned how = 0;

    for (; sets != 0; sets &= sets - 1) {
        how |= hook->collections[__builtin_ctzll(sets)].how;
    }
    return how;
}

void sonde__hook_emit(sonde_hook *hook, uint32_t id, const sonde_coordinate *at,
                      const sonde_view *view, const sonde_vitals *vitals,
                      const sonde_sketch *sketch, unsigned how)
{
    sonde_vitals own;

    if ((how & SONDE_HOW_RAW) != 0) {
        hook->values++;
        hook->bytes += (uint64_t)sonde_view_count(view) * sonde_dtype_size(view->dtype);
        if (hook->recorder != NULL) {
            hook->calls->put(hook->recorder, id, at, view);
        }
    }
    if ((how & SONDE_HOW_VITALS) != 0) {
        if (vitals == NULL) {
            sonde_vitals_of(view, &own);
            vitals = &own;
        }
        hook->rows++;
        if (hook->recorder != NULL) {
            hook->calls->put_vitals(hook->recorder, id, at, vitals);
        }
    }
    if ((how & SONDE_HOW_SKETCH) != 0) {
        if (sketch == NULL) {
            sonde_sketch_init(hook->sketch);
            sonde_sketch_add(hook->sketch, view);
            sketch = hook->sketch;
        }
        hook->sketches++;
        if (hook->recorder != NULL) {
            hook->calls->put_sketch(hook->recorder, id, at, sketch);
        }
    }
}

/* --- holding ---------------------------------------------------------------------- */

size_t sonde__hook_held_size(size_t bytes)
{
    return (bytes + SONDE__ALIGN - 1) / SONDE__ALIGN * SONDE__ALIGN;
}

static bool make_room(sonde__holding *held, size_t values, size_t bytes)
{
    size_t size = SONDE_MAX(held->size, (size_t)4096);
    unsigned char *grown = NULL;

    if (!sonde__reserve(&held->items, &held->capacity, values, sizeof *held->items)) {
        return false;
    }
    if (bytes <= held->size) {
        return true;
    }
    while (size < bytes) {
        if (size > SIZE_MAX / 2) {
            return false;
        }
        size *= 2;
    }
    grown = sonde__malloc_aligned(SONDE__ALIGN, size);
    if (grown == NULL) {
        return false;
    }
    if (held->used > 0) {
        memcpy(grown, held->bytes, held->used);
    }
    sonde__free(held->bytes);
    held->bytes = grown;
    held->size = size;
    return true;
}

sonde_err sonde__hook_reserve(sonde_hook *hook, size_t values, size_t bytes,
                              sonde_diag *diag)
{
    return make_room(&hook->held, values, bytes)
               ? SONDE_OK
               : sonde__fail_nomem(diag, "the values that a when_nan may want");
}

void sonde__hook_hold(sonde_hook *hook, uint32_t id, const sonde_coordinate *at,
                      const sonde_view *view, uint64_t sets, unsigned done)
{
    sonde__holding *held = &hook->held;
    sonde__held *last = held->count > 0 ? &held->items[held->count - 1] : NULL;
    const size_t bytes = (size_t)sonde_view_count(view) * sonde_dtype_size(view->dtype);
    const size_t size = sonde__hook_held_size(bytes);

    if (last != NULL && last->id == id && last->at.micro_batch == at->micro_batch &&
        last->at.replica == at->replica) { /* held already, for another collection */
        last->sets |= sets;
        return;
    }
    if (size < bytes || !make_room(held, held->count + 1, held->used + size)) {
        if (!held->failed) {
            sonde_log(SONDE_LOG_ERROR, "hook",
                      "no memory to keep values for when_nan: some steps will lack them");
        }
        held->failed = true;
        return;
    }
    last = &held->items[held->count];
    *last = (sonde__held){
        .id = id, .at = *at, .sets = sets, .done = done, .offset = held->used};
    last->view =
        sonde_view_of(view->dtype, view->rank, view->shape, held->bytes + held->used);
    if (sonde_view_copy(&last->view, view, NULL) == SONDE_OK) {
        held->count++;
        held->used += size;
    }
}

void sonde__hook_trip(sonde_hook *hook, uint64_t sets)
{
    sonde__holding *held = &hook->held;

    hook->tripped |= sets;
    for (size_t i = 0; i < held->count; i++) {
        sonde__held *of = &held->items[i];
        const unsigned how = sonde__hook_how(hook, of->sets & sets) & ~of->done;

        if (how != 0) {
            of->view.data = held->bytes + of->offset;
            sonde__hook_emit(hook, of->id, &of->at, &of->view, NULL, NULL, how);
            of->done |= how;
        }
    }
}

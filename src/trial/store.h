/*
 * store.h - what a trial remembers of a run: its steps, the forms that values come in, and
 * for every worker where each value, row and sketch lies. Internal.
 *
 *     steps     one entry for each (global step, mode, step of the mode) that was met
 *     forms     dtype, shape and packing, each once
 *     items     of a worker and kind: a raw value, 48 bytes; a row of vital signs, 20; a
 *               sketch, 32; in the order in which they were written
 *     tracks    by tensor: items by (global step, micro-batch, replica), of equal ones the
 *               one that was written last
 *     spans     which items a step has
 *
 * Items arrive nearly in order. What does not (of a writer that resumed, of a second worker)
 * is sorted by settle, once for all that a refresh brought; questions are asked of what is
 * settled.
 *
 * What needs memory returns false or SONDE__NONE when there is none, and then leaves what
 * was there as it was.
 */
#ifndef SONDE_TRIAL_STORE_H
#define SONDE_TRIAL_STORE_H

#include "record/format.h"

#include <sonde/export.h>
#include <sonde/tap.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SONDE__NONE UINT32_MAX

/* --- steps (steps.c) -------------------------------------------------------------- */

typedef struct sonde__trial_step {
    int64_t global, mode_step;
    uint32_t ended; /* workers that have ended it */
    uint8_t mode;
    bool saved;  /* anything was saved at it */
    bool listed; /* among the sorted: not one that is superseded */
} sonde__trial_step;

typedef struct sonde__trial_steps {
    sonde__trial_step *items; /* in order of arrival */
    size_t count, capacity;
    uint32_t *slots; /* open addressing; index + 1, 0 is empty */
    size_t slot_count;
    uint32_t last; /* the one asked for last; SONDE__NONE before the first */
    /* By step of the mode and then by arrival; of SONDE_MODE_GLOBAL all, by global step. */
    uint32_t *sorted[SONDE_MODE_COUNT];
    size_t sorted_count[SONDE_MODE_COUNT], sorted_capacity[SONDE_MODE_COUNT];
    bool unsorted[SONDE_MODE_COUNT];
} sonde__trial_steps;

SONDE_API void sonde__trial_steps_init(sonde__trial_steps *steps);
SONDE_API void sonde__trial_steps_fini(sonde__trial_steps *steps);
/* The index of a step, new if need be. */
SONDE_API uint32_t sonde__trial_steps_intern(sonde__trial_steps *steps, int64_t global,
                                             sonde_mode mode, int64_t mode_step);
SONDE_API void sonde__trial_steps_settle(sonde__trial_steps *steps);
/* Takes the steps from a global one on off the lists that are neither saved nor ended. */
SONDE_API void sonde__trial_steps_prune(sonde__trial_steps *steps, int64_t global);
/* The step at a place of sorted[mode], as that mode counts. */
SONDE_API int64_t sonde__trial_steps_at(const sonde__trial_steps *steps, sonde_mode mode,
                                        size_t place);
/* The first place of sorted[mode] that is not below step. */
SONDE_API size_t sonde__trial_steps_lower(const sonde__trial_steps *steps,
                                          sonde_mode mode, int64_t step);

/* --- forms (forms.c) -------------------------------------------------------------- */

typedef struct sonde__trial_form {
    int64_t shape[SONDE_MAX_DIMS]; /* behind rank: 0 */
    uint8_t dtype, rank, packing, spare[5];
} sonde__trial_form;

#define SONDE__FOREIGN SONDE__NONE /* the form of a value whose own bytes tell it */

typedef struct sonde__trial_forms {
    sonde__trial_form *items;
    size_t count, capacity;
    uint32_t *slots;
    size_t slot_count;
} sonde__trial_forms;

SONDE_API void sonde__trial_forms_fini(sonde__trial_forms *forms);
/* The index of a form. guess, if it is one, is looked at first. */
SONDE_API uint32_t sonde__trial_forms_intern(sonde__trial_forms *forms,
                                             const sonde__trial_form *form,
                                             uint32_t guess);

/* --- a worker's items (items.c) --------------------------------------------------- */

typedef enum sonde__trial_kind {
    SONDE__RAW = 0,
    SONDE__VITALS = 1,
    SONDE__SKETCH = 2
} sonde__trial_kind;
enum { SONDE__KINDS = 3 };

/* What every item begins with. */
typedef struct sonde__trial_item {
    uint32_t step;   /* of the trial's steps */
    uint32_t tensor; /* of the trial's catalogue */
    uint32_t micro_batch;
    uint16_t replica;
    uint8_t superseded; /* it does not count any more */
    uint8_t told;       /* that it cannot be read */
} sonde__trial_item;

typedef struct sonde__trial_row_item {
    sonde__trial_item item;
    uint32_t row; /* counted over all rows of the worker's files, damaged ones too */
} sonde__trial_row_item;

typedef struct sonde__trial_raw_item {
    sonde__trial_item item;
    uint64_t offset, bytes; /* as stored, from the start of the segment's data */
    uint64_t hash;          /* of the value */
    uint32_t segment;       /* of the worker's segments */
    uint32_t form;
} sonde__trial_raw_item;

typedef struct sonde__trial_sketch_item {
    sonde__trial_item item;
    uint64_t offset; /* in its file */
    uint32_t file;   /* of the worker's sketch files */
    uint32_t length;
} sonde__trial_sketch_item;

typedef struct sonde__trial_track {
    uint32_t *items;
    uint32_t count, capacity;
    int64_t last_step; /* of the last item */
    uint64_t last_lane;
    bool unsorted;
} sonde__trial_track;

/* Items first ... first + count - 1 are of one step. */
typedef struct sonde__trial_span {
    uint32_t step, first, count;
} sonde__trial_span;

/* All of one kind of one worker. */
typedef struct sonde__trial_store {
    size_t item_size;
    unsigned char **chunks;
    size_t chunk_count, chunk_capacity;
    uint32_t count;
    uint32_t superseded;        /* of them */
    sonde__trial_track *tracks; /* by tensor */
    size_t track_count, track_capacity;
    sonde__trial_span *spans; /* by global step and then by first */
    size_t span_count, span_capacity;
    int64_t last_step; /* of the last span that was begun */
    bool unsorted;     /* spans or tracks */
    bool fresh;        /* the next item begins a span */
    bool repeated;     /* spans hold items that later ones overrule */
} sonde__trial_store;

SONDE_API void sonde__trial_store_init(sonde__trial_store *store, sonde__trial_kind kind);
SONDE_API void sonde__trial_store_fini(sonde__trial_store *store);
/* Adds a copy of an item of the store's kind. */
SONDE_API bool sonde__trial_store_add(sonde__trial_store *store,
                                      const sonde__trial_steps *steps,
                                      const sonde__trial_item *item);
SONDE_API void sonde__trial_store_settle(sonde__trial_store *store,
                                         const sonde__trial_steps *steps);
/* From a global step on nothing counts that is there now. gone (may be NULL) is called for
 * each item. */
SONDE_API void sonde__trial_store_cut(
    sonde__trial_store *store, const sonde__trial_steps *steps, int64_t global,
    void (*gone)(void *user, const sonde__trial_item *item), void *user);
/* Whether it is to be told that the item cannot be read: once. */
SONDE_API bool sonde__trial_store_tell(sonde__trial_store *store, uint32_t number);
SONDE_API const sonde__trial_item *sonde__trial_store_at(const sonde__trial_store *store,
                                                         uint32_t number);

/* Micro-batch and replica in the order of observation, as one number. */
static inline uint64_t sonde__trial_lane(const sonde__trial_item *item)
{
    return (uint64_t)item->micro_batch << 16 | item->replica;
}

/* The track of a tensor; an empty one if it has none. */
SONDE_API const sonde__trial_track *
sonde__trial_store_track(const sonde__trial_store *store, uint32_t tensor);
/* The first place in a track that is not below (global step, lane). */
uint32_t sonde__trial_track_lower(const sonde__trial_store *store,
                                  const sonde__trial_steps *steps,
                                  const sonde__trial_track *track, int64_t global,
                                  uint64_t lane);
/* The number of the item at exactly that place, or SONDE__NONE. */
SONDE_API uint32_t sonde__trial_store_find(const sonde__trial_store *store,
                                           const sonde__trial_steps *steps,
                                           uint32_t tensor, int64_t global,
                                           uint64_t lane);
/* The first span whose global step is not below global. */
SONDE_API size_t sonde__trial_store_span(const sonde__trial_store *store,
                                         const sonde__trial_steps *steps, int64_t global);

#endif

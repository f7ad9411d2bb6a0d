/*
 * items.h - where every value, row of vital signs and sketch of a worker lies. Internal.
 *
 * There are items of each form of evidence (tensor/evidence.h) that a run stores.
 *
 * An item is a fixed-size note of one record in a file (48, 20 or 32 bytes). Items of one
 * kind of one worker are numbered in the order they were written and have two indexes:
 *
 *     number          0    1    2    3    4    5    6
 *     item            a@1  b@1  a@2  b@2  a@3  b@3  a@2     tensor @ global step
 *
 *     block           step 1: 0..1  step 2: 2..3  step 3: 4..5        consecutive items
 *                                                        of a step, by global step
 *     history of a    0, 6, 4       the later a@2 replaces the earlier one
 *     history of b    1, 3, 5       by (global step, shard)
 *
 * Adding appends in three places. Items arrive nearly in order; what a resumed writer
 * brings out of order is sorted once a refresh by sonde__trial_items_sort, and queries
 * come after it. Finding one item costs log2(length of the history) comparisons.
 *
 * Functions that need memory return false or SONDE__NONE when it is out, and change
 * nothing. One thread at a time.
 */
#ifndef SONDE_TRIAL_ITEMS_H
#define SONDE_TRIAL_ITEMS_H

#include "base/table.h"
#include "tensor/evidence.h"

#include <sonde/tensor.h>
#include <sonde/export.h>
#include <sonde/tap.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- steps ------------------------------------------------------------------------ */

/* The steps of a run, each stored once, and their order.
 *
 *     items          (global step, mode, step of the mode) in order of arrival; the
 *                    index of a step never changes
 *     sorted[mode]   indexes by step of that mode; sorted[SONDE_MODE_GLOBAL]: all, by
 *                    global step
 *
 * Workers share steps. A step arrives as soon as any file mentions it, so arrival is
 * nearly in order; what arrives out of order is sorted once a refresh by
 * sonde__trial_steps_sort, and queries come after it. Interning the step that was
 * interned last, or the one after it, costs a comparison, any other a hash; a search
 * costs log2(steps) comparisons. One thread at a time. */

#define SONDE__NONE UINT32_MAX /* no index: absent, or out of memory */

typedef struct sonde__trial_step {
    int64_t global, mode_step;
    uint32_t ended; /* workers that have ended it */
    uint8_t mode;
    bool saved;  /* something was saved at it */
    bool listed; /* in sorted[]; false once a resumed writer superseded it */
} sonde__trial_step;

typedef struct sonde__trial_steps {
    sonde__trial_step *items;
    size_t count, capacity;
    sonde__table table; /* from (global step, mode, step of the mode) to the index */
    uint32_t last;      /* the step interned last; SONDE__NONE before the first */
    uint32_t *sorted[SONDE_MODE_COUNT];
    size_t sorted_count[SONDE_MODE_COUNT], sorted_capacity[SONDE_MODE_COUNT];
    bool unsorted[SONDE_MODE_COUNT];
} sonde__trial_steps;

SONDE_API void sonde__trial_steps_init(sonde__trial_steps *steps);
SONDE_API void sonde__trial_steps_fini(sonde__trial_steps *steps);
/* The index of a step, which is added if it is new. SONDE__NONE: out of memory, and
 * nothing has changed. */
SONDE_API uint32_t sonde__trial_steps_intern(sonde__trial_steps *steps, int64_t global,
                                             sonde_mode mode, int64_t mode_step);
SONDE_API void sonde__trial_steps_sort(sonde__trial_steps *steps);
/* Removes the steps from a global step on that are neither saved nor ended from
 * sorted[]. */
void sonde__trial_steps_drop_empty(sonde__trial_steps *steps, int64_t global);
/* The step number at a place in sorted[mode]. */
SONDE_API int64_t sonde__trial_steps_at(const sonde__trial_steps *steps, sonde_mode mode,
                                        size_t place);
/* The first place in sorted[mode] whose step is at least step. */
SONDE_API size_t sonde__trial_steps_lower(const sonde__trial_steps *steps,
                                          sonde_mode mode, int64_t step);

/* --- items ------------------------------------------------------------------------ */

/* The beginning of every item. */
typedef struct sonde__trial_item {
    uint32_t step;   /* index in the trial's steps */
    uint32_t tensor; /* id in the trial's catalogue */
    uint32_t micro_batch;
    uint16_t replica;
    uint8_t superseded; /* by a resumed writer */
    uint8_t reported;   /* that it cannot be read */
} sonde__trial_item;

typedef struct sonde__trial_row_item {
    sonde__trial_item item;
    uint32_t row; /* among all rows of the worker's files, damaged ones included */
} sonde__trial_row_item;

typedef struct sonde__trial_raw_item {
    sonde__trial_item item;
    uint64_t offset, bytes; /* as stored, from the start of the segment's data */
    uint64_t hash;          /* of the value */
    uint32_t segment;       /* index in the worker's segments */
    uint32_t layout;        /* index in the trial's layouts */
} sonde__trial_raw_item;

typedef struct sonde__trial_sketch_item {
    sonde__trial_item item;
    uint64_t offset; /* in its file */
    uint32_t file;   /* index in the worker's sketch files */
    uint32_t length;
} sonde__trial_sketch_item;

/* The items of one tensor. */
typedef struct sonde__trial_history {
    uint32_t *numbers;
    uint32_t count, capacity;
    int64_t last_step; /* global step and shard of the last item */
    uint64_t last_shard;
    bool unsorted;
} sonde__trial_history;

/* Items first ... first + count - 1, all of one step. */
typedef struct sonde__trial_block {
    uint32_t step, first, count;
} sonde__trial_block;

/* All items of one kind of one worker. */
typedef struct sonde__trial_items {
    size_t item_size;
    unsigned char **chunks; /* of 4096 items each; items never move */
    size_t chunk_count, chunk_capacity;
    uint32_t count;
    uint32_t superseded;             /* items among them */
    sonde__trial_history *histories; /* by tensor */
    size_t history_count, history_capacity;
    sonde__trial_block *blocks; /* by global step, then by first */
    size_t block_count, block_capacity;
    int64_t last_step; /* global step of the last block */
    bool unsorted;     /* some history, or the blocks */
    bool fresh;        /* the next item begins a block */
    bool repeated;     /* blocks contain items that later ones replace */
} sonde__trial_items;

SONDE_API void sonde__trial_items_init(sonde__trial_items *items, int form);
SONDE_API void sonde__trial_items_fini(sonde__trial_items *items);
/* Adds a copy of an item, which is of the kind of items. */
SONDE_API bool sonde__trial_items_add(sonde__trial_items *items,
                                      const sonde__trial_steps *steps,
                                      const sonde__trial_item *item);
SONDE_API void sonde__trial_items_sort(sonde__trial_items *items,
                                       const sonde__trial_steps *steps);
/* Marks every item from a global step on as superseded and removes it from the indexes.
 * gone (may be NULL) is called for each. */
void sonde__trial_items_supersede(sonde__trial_items *items,
                                  const sonde__trial_steps *steps, int64_t global,
                                  void (*gone)(void *user, const sonde__trial_item *item),
                                  void *user);
/* True at the first call for an item: its damage is reported once. */
bool sonde__trial_items_report(sonde__trial_items *items, uint32_t number);
/* Borrowed until items is finished. */
const sonde__trial_item *sonde__trial_items_at(const sonde__trial_items *items,
                                               uint32_t number);

/* Micro-batch and replica as one number, in the order of observation. */
static inline uint64_t sonde__trial_shard(const sonde__trial_item *item)
{
    return (uint64_t)item->micro_batch << 16 | item->replica;
}

/* The history of a tensor, perhaps an empty one. Borrowed until an item is added. */
SONDE_API const sonde__trial_history *
sonde__trial_items_history(const sonde__trial_items *items, uint32_t tensor);
/* The first place in a history that is not before (global step, shard). */
uint32_t sonde__trial_history_lower(const sonde__trial_items *items,
                                    const sonde__trial_steps *steps,
                                    const sonde__trial_history *history, int64_t global,
                                    uint64_t shard);
/* The number of the item of a tensor at (global step, shard), or SONDE__NONE. */
SONDE_API uint32_t sonde__trial_items_find(const sonde__trial_items *items,
                                           const sonde__trial_steps *steps,
                                           uint32_t tensor, int64_t global,
                                           uint64_t shard);
/* The first block whose global step is at least global. */
SONDE_API size_t sonde__trial_items_block(const sonde__trial_items *items,
                                          const sonde__trial_steps *steps,
                                          int64_t global);

/* --- layouts ---------------------------------------------------------------------- */

/* Dtype, shape and packing of stored values. Each combination is stored once. */
typedef struct sonde__trial_layout {
    int64_t shape[SONDE_MAX_DIMS]; /* 0 from rank on */
    uint8_t dtype, rank, packing, spare[5];
} sonde__trial_layout;

#define SONDE__FOREIGN SONDE__NONE /* the layout of a value of a foreign format */

typedef struct sonde__trial_layouts {
    sonde__trial_layout *items;
    size_t count, capacity;
    sonde__table table;
} sonde__trial_layouts;

/* Start with a zeroed one. */
SONDE_API void sonde__trial_layouts_fini(sonde__trial_layouts *layouts);
/* The index of a layout, which is added if it is new. guess, if valid, is compared
 * first and makes this cheap. */
SONDE_API uint32_t sonde__trial_layouts_intern(sonde__trial_layouts *layouts,
                                               const sonde__trial_layout *layout,
                                               uint32_t guess);

#endif

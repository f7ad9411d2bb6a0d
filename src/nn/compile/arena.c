/*
 * arena.c - where every buffer of a plan lies.
 *
 * A buffer of the arena lives from the step that first writes it to the step that last
 * reads it. Buffers are placed largest first, each in the lowest gap left by those whose
 * lives overlap its own; a step's scratch is a buffer that lives for one step. Buffers
 * that exist only to be shown come last, so that they move no other.
 *
 *     arena   |  buffer a  |   buffer c   |            (steps 0-3)
 *             |     buffer b   | scratch  |  d  |      (steps 4-7)
 *
 * Cost: the number of blocks times those that lie below a block's place.
 */
#include "nn/compile/compile.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20 };

typedef struct block {
    size_t bytes, offset;
    int first, last;
    bool watched;
    size_t index; /* among all blocks */
} block;

/* Aligned memory, on huge pages if it is large and the system gives them: the planes of a
 * convolution are pages apart, so that a tile meets another page with every channel. */
void *sonde__plan_take_pages(size_t bytes, bool zeros)
{
    const size_t align = bytes < HUGE_PAGE ? SONDE__ALIGN : HUGE_PAGE;
    void *memory =
        zeros ? sonde__calloc_aligned(align, bytes) : sonde__malloc_aligned(align, bytes);

    if (memory != NULL && bytes >= HUGE_PAGE) {
        (void)madvise(memory, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
    }
    return memory;
}

/* --- lifetimes and places ----------------------------------------------------------- */

static void touch(sonde__plan *plan, int buffer, int step)
{
    if (buffer >= 0) {
        plan->buffers[buffer].first = SONDE_MIN(plan->buffers[buffer].first, step);
        plan->buffers[buffer].last = SONDE_MAX(plan->buffers[buffer].last, step);
    }
}

static void find_lifetimes(sonde__plan *plan)
{
    for (size_t i = 0; i < plan->step_count; i++) {
        for (int k = 0; k < SONDE__MAX_OPERANDS; k++) {
            touch(plan, plan->steps[i].in_buffer[k], (int)i);
            touch(plan, plan->steps[i].out_buffer[k], (int)i);
        }
    }
    for (size_t i = 0; i < plan->output_count; i++) {
        touch(plan, plan->outputs[i].buffer, (int)plan->step_count - 1);
    }
}

/* The lowest offset at which a block fits among those placed whose lives overlap. placed
 * is in the order of offsets. */
static size_t lowest_gap(const block *blocks, const size_t *placed, size_t count,
                         const block *wanted)
{
    size_t offset = 0;

    for (size_t i = 0; i < count; i++) {
        const block *other = &blocks[placed[i]];

        if (other->offset >= offset + wanted->bytes) {
            return offset; /* those that follow lie higher */
        }
        if (other->first <= wanted->last && wanted->first <= other->last) {
            offset = SONDE_MAX(offset, other->offset + other->bytes);
        }
    }
    return offset;
}

/* Largest first, those that exist only to be shown last; else in order of index. */
static int compare_blocks(const void *a, const void *b)
{
    const block *x = a, *y = b;

    if (x->watched != y->watched) {
        return x->watched ? 1 : -1;
    }
    if (x->bytes != y->bytes) {
        return x->bytes > y->bytes ? -1 : 1;
    }
    return x->index < y->index ? -1 : x->index > y->index;
}

/* Keeps placed, which has count entries, in the order of offsets. */
static void insert_placed(const block *blocks, size_t *placed, size_t count, size_t index)
{
    size_t low = 0, high = count;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (blocks[placed[middle]].offset <= blocks[index].offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    memmove(&placed[low + 1], &placed[low], (count - low) * sizeof *placed);
    placed[low] = index;
}

/* Sets the offset of every block that has bytes; returns the bytes that all of them need.
 * order has room for count blocks, placed for count indices. */
static size_t place_blocks(block *blocks, size_t count, block *order, size_t *placed)
{
    size_t end = 0, sorted = 0;

    for (size_t i = 0; i < count; i++) {
        if (blocks[i].bytes > 0) {
            order[sorted] = blocks[i];
            order[sorted++].index = i;
        }
    }
    qsort(order, sorted, sizeof *order, compare_blocks);
    for (size_t i = 0; i < sorted; i++) {
        const size_t index = order[i].index;

        blocks[index].offset = lowest_gap(blocks, placed, i, &blocks[index]);
        insert_placed(blocks, placed, i, index);
        end = SONDE_MAX(end, blocks[index].offset + blocks[index].bytes);
    }
    return end;
}

/* delta has room for step_count + 1 numbers, all 0. */
static size_t most_alive(const block *blocks, size_t count, size_t step_count,
                         size_t *delta)
{
    size_t most = 0, alive = 0;

    for (size_t i = 0; i < count; i++) {
        if (blocks[i].bytes > 0) { /* sums modulo 2^64 come out right */
            delta[blocks[i].first] += blocks[i].bytes;
            delta[blocks[i].last + 1] -= blocks[i].bytes;
        }
    }
    for (size_t step = 0; step < step_count; step++) {
        alive += delta[step];
        most = SONDE_MAX(most, alive);
    }
    return most;
}

/* Blocks of the arena: buffers, then the scratch of steps. */
static void list_blocks(const sonde__plan *plan, block *blocks)
{
    for (size_t i = 0; i < plan->buffer_count; i++) {
        const sonde__plan_buffer *buffer = &plan->buffers[i];

        if (buffer->place == SONDE__IN_ARENA && buffer->last >= 0) {
            blocks[i].bytes = sonde__plan_aligned(buffer->bytes);
            blocks[i].first = buffer->first;
            blocks[i].last = buffer->last;
        }
    }
    for (size_t i = 0; i < plan->step_count; i++) {
        for (int k = 0; k < plan->steps[i].call.out_count; k++) {
            if ((plan->steps[i].watched >> (unsigned)k & 1U) != 0) {
                blocks[plan->steps[i].out_buffer[k]].watched = true;
            }
        }
        blocks[plan->buffer_count + i].bytes =
            sonde__plan_aligned(plan->steps[i].scratch_bytes);
        blocks[plan->buffer_count + i].first = (int)i;
        blocks[plan->buffer_count + i].last = (int)i;
    }
}

/* Points buffers and calls into the arena. */
static void point_blocks(sonde__plan *plan, const block *blocks)
{
    for (size_t i = 0; i < plan->buffer_count; i++) {
        plan->buffers[i].offset = blocks[i].offset;
        if (plan->buffers[i].place == SONDE__IN_ARENA) {
            plan->buffers[i].data = plan->arena + blocks[i].offset;
        }
    }
    for (size_t i = 0; i < plan->step_count; i++) {
        if (plan->steps[i].scratch_bytes > 0) {
            plan->steps[i].call.scratch =
                plan->arena + blocks[plan->buffer_count + i].offset;
        }
    }
}

/* A large arena is not cleared: nothing reads a number before it is written, but in lanes
 * that hold no sample, and the first touch of every page would take most of the time of a
 * compile. */
static bool take_arena(sonde__plan *plan)
{
    plan->arena =
        sonde__plan_take_pages(plan->arena_bytes, plan->arena_bytes < HUGE_PAGE);
    return plan->arena != NULL;
}

/* --- known places ------------------------------------------------------------------- */

static bool overlap(const block *a, const block *b)
{
    return a->first <= b->last && b->first <= a->last &&
           a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

static int compare_offsets(const void *a, const void *b)
{
    const block *x = a, *y = b;

    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Whether blocks that live at once lie apart. sorted has room for count blocks. */
static bool lie_apart(const block *blocks, size_t count, block *sorted)
{
    size_t taken = 0;

    for (size_t i = 0; i < count; i++) {
        if (blocks[i].bytes > 0) {
            sorted[taken++] = blocks[i];
        }
    }
    qsort(sorted, taken, sizeof *sorted, compare_offsets);
    for (size_t i = 0; i < taken; i++) {
        const size_t end = sorted[i].offset + sorted[i].bytes;

        for (size_t k = i + 1; k < taken && sorted[k].offset < end; k++) {
            if (overlap(&sorted[i], &sorted[k])) {
                return false;
            }
        }
    }
    return true;
}

/* Takes places that were found before, if they hold these blocks. */
static bool take_places(const sonde__plan_places *places, block *blocks, size_t count,
                        block *sorted)
{
    if (places->count != count) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (places->offset[i] % SONDE__ALIGN != 0 ||
            places->offset[i] > places->arena_bytes ||
            blocks[i].bytes > places->arena_bytes - places->offset[i]) {
            return false;
        }
        blocks[i].offset = places->offset[i];
    }
    return lie_apart(blocks, count, sorted);
}

/* Those of the first replica, whose plan has the same steps. */
static bool copy_places(const sonde__plan *first, const sonde__plan *plan, block *blocks)
{
    if (first == NULL || first->step_count != plan->step_count ||
        first->buffer_count != plan->buffer_count) {
        return false;
    }
    for (size_t i = 0; i < plan->buffer_count; i++) {
        blocks[i].offset = first->buffers[i].offset;
    }
    for (size_t i = 0; i < plan->step_count; i++) {
        const unsigned char *scratch = first->steps[i].call.scratch;

        blocks[plan->buffer_count + i].offset =
            scratch != NULL ? (size_t)(scratch - first->arena) : 0;
    }
    return true;
}

/* --- the whole ---------------------------------------------------------------------- */

/* Room to work in. */
typedef struct placing {
    block *blocks, *order;
    size_t *placed, *delta;
} placing;

static void place(const sonde__plan_device *device, sonde__plan *plan, placing *work)
{
    const size_t count = plan->buffer_count + plan->step_count;
    const sonde__plan_lookup *lookup = device->first == NULL ? device->lookup : NULL;
    const sonde__plan_places *places =
        lookup != NULL ? lookup->find(lookup->user, &plan->key) : NULL;

    plan->known = places != NULL && take_places(places, work->blocks, count, work->order);
    if (places != NULL && plan->known) {
        plan->arena_bytes = places->arena_bytes;
    } else if (copy_places(device->first, plan, work->blocks)) {
        plan->arena_bytes = device->first->arena_bytes;
    } else {
        plan->arena_bytes = place_blocks(work->blocks, count, work->order, work->placed);
    }
    plan->largest_live = most_alive(work->blocks, count, plan->step_count, work->delta);
}

sonde_err sonde__plan_make_arena(const sonde__plan_device *device, sonde__plan *plan,
                                 sonde_diag *diag)
{
    const size_t count = plan->buffer_count + plan->step_count;
    placing work = {.blocks = sonde__calloc(count, sizeof *work.blocks),
                    .order = sonde__calloc(count, sizeof *work.order),
                    .placed = sonde__calloc(count, sizeof *work.placed),
                    .delta = sonde__calloc(plan->step_count + 1, sizeof *work.delta)};
    bool well = work.blocks != NULL && work.order != NULL && work.placed != NULL &&
                work.delta != NULL;

    if (well) {
        find_lifetimes(plan);
        list_blocks(plan, work.blocks);
        place(device, plan, &work);
        well = take_arena(plan);
    }
    if (well) {
        point_blocks(plan, work.blocks);
    }
    sonde__free(work.blocks);
    sonde__free(work.order);
    sonde__free(work.placed);
    sonde__free(work.delta);
    return well ? SONDE_OK : sonde__fail_nomem(diag, "the plan's memory");
}

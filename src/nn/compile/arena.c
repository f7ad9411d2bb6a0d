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

sonde_err sonde__plan_make_arena(sonde__plan *plan, sonde_diag *diag)
{
    const size_t count = plan->buffer_count + plan->step_count;
    block *blocks = sonde__calloc(count, sizeof *blocks);
    block *order = sonde__calloc(count, sizeof *order);
    size_t *placed = sonde__calloc(count, sizeof *placed);
    size_t *delta = sonde__calloc(plan->step_count + 1, sizeof *delta);
    bool well = blocks != NULL && order != NULL && placed != NULL && delta != NULL;

    if (well) {
        find_lifetimes(plan);
        list_blocks(plan, blocks);
        plan->arena_bytes = place_blocks(blocks, count, order, placed);
        plan->largest_live = most_alive(blocks, count, plan->step_count, delta);
        well = take_arena(plan);
    }
    if (well) {
        point_blocks(plan, blocks);
    }
    sonde__free(blocks);
    sonde__free(order);
    sonde__free(placed);
    sonde__free(delta);
    return well ? SONDE_OK : sonde__fail_nomem(diag, "the plan's memory");
}

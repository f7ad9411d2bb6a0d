/*
 * steps.c - see steps.h.
 */
#include "trial/steps.h"
#include "base/memory.h"

#include <stdlib.h>

enum { FIRST_SLOTS = 64 };

void sonde__trial_steps_init(sonde__trial_steps *steps)
{
    *steps = (sonde__trial_steps){.last = SONDE__NONE};
}

void sonde__trial_steps_fini(sonde__trial_steps *steps)
{
    sonde__free(steps->items);
    sonde__free(steps->slots);
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        sonde__free(steps->sorted[mode]);
    }
    sonde__trial_steps_init(steps);
}

/* Fibonacci hashing: steps count up, and the upper bits of the product spread them. */
static size_t hash_of(int64_t global, int mode, int64_t mode_step)
{
    const uint64_t mixed = (uint64_t)global * 0x9E3779B97F4A7C15U ^
                           ((uint64_t)mode_step + (uint64_t)mode * 0x165667B19E3779F9U) *
                               0xC2B2AE3D27D4EB4FU;

    return (size_t)(mixed >> 20);
}

static bool is_step(const sonde__trial_step *step, int64_t global, int mode,
                    int64_t mode_step)
{
    return step->global == global && step->mode_step == mode_step && step->mode == mode;
}

static size_t find_slot(const sonde__trial_steps *steps, int64_t global, int mode,
                        int64_t mode_step)
{
    const size_t mask = steps->slot_count - 1;
    size_t slot = hash_of(global, mode, mode_step) & mask;

    while (steps->slots[slot] != 0 &&
           !is_step(&steps->items[steps->slots[slot] - 1], global, mode, mode_step)) {
        slot = (slot + 1) & mask;
    }
    return slot;
}

static bool rehash(sonde__trial_steps *steps)
{
    const size_t slot_count =
        steps->slot_count > 0 ? steps->slot_count * 2 : (size_t)FIRST_SLOTS;
    uint32_t *slots = sonde__calloc(slot_count, sizeof *slots);

    if (slots == NULL) {
        return false;
    }
    sonde__free(steps->slots);
    steps->slots = slots;
    steps->slot_count = slot_count;
    for (size_t i = 0; i < steps->count; i++) {
        const sonde__trial_step *step = &steps->items[i];

        slots[find_slot(steps, step->global, step->mode, step->mode_step)] =
            (uint32_t)i + 1;
    }
    return true;
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

static bool reserve(sonde__trial_steps *steps, int mode)
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
           ((steps->count + 1) * 2 <= steps->slot_count || rehash(steps));
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

uint32_t sonde__trial_steps_intern(sonde__trial_steps *steps, int64_t global,
                                   sonde_mode mode, int64_t mode_step)
{
    uint32_t index = steps->last;
    size_t slot = 0;

    if (index != SONDE__NONE &&
        is_step(&steps->items[index], global, (int)mode, mode_step)) {
        return index;
    }
    index = SONDE__NONE;
    if (steps->slot_count > 0) {
        slot = find_slot(steps, global, (int)mode, mode_step);
        index = steps->slots[slot] != 0 ? steps->slots[slot] - 1 : SONDE__NONE;
        if (index != SONDE__NONE && steps->items[index].listed) {
            return steps->last = index;
        }
    }
    if (!reserve(steps, (int)mode)) {
        return SONDE__NONE;
    }
    if (index == SONDE__NONE) {
        index = (uint32_t)steps->count++;
        steps->items[index] = (sonde__trial_step){
            .global = global, .mode_step = mode_step, .mode = (uint8_t)mode};
        steps->slots[find_slot(steps, global, (int)mode, mode_step)] = index + 1;
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

typedef struct sort_order {
    const sonde__trial_steps *steps;
    int mode;
} sort_order;

static int compare(const void *left, const void *right, void *context)
{
    const sort_order *order = context;
    const uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    const int64_t x = value_in(order->steps, order->mode, a);
    const int64_t y = value_in(order->steps, order->mode, b);

    return x != y ? (x > y) - (x < y) : (a > b) - (a < b);
}

void sonde__trial_steps_sort(sonde__trial_steps *steps)
{
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        if (steps->unsorted[mode]) {
            sort_order order = {steps, mode};

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

/*
 * steps.c - see steps.h.
 */
#include "trial/steps.h"
#include "base/memory.h"

#include <stdlib.h>

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
    if (!reserve(steps, (int)mode)) {
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

/*
 * test_store.c - steps and items against a plain list that is searched from its end: in
 * any order of arrival, with steps that come again.
 */
#include "cmocka_all.h"
#include "base/macros.h"
#include "base/random.h"

#include "trial/items.h"

#include <string.h>

enum { MOST = 3000, STEPS = 60, TENSORS = 5, LANES = 3 };

/* Everything added, in order. */
typedef struct model {
    struct {
        int64_t global, mode_step;
        sonde_mode mode;
        uint32_t tensor, shard;
    } items[MOST];
    uint32_t count;
} model;

static model all;

/* The number of the current item at a place: the last one, unless the global step became
 * another step after it. */
static uint32_t expected(uint32_t tensor, int64_t global, uint32_t shard)
{
    uint32_t last = SONDE__NONE;

    for (uint32_t i = all.count; i > 0; i--) {
        const uint32_t k = i - 1;

        if (all.items[k].global != global) {
            continue;
        }
        last = last == SONDE__NONE ? k : last;
        if (all.items[k].mode != all.items[last].mode) {
            return SONDE__NONE;
        }
        if (all.items[k].tensor == tensor && all.items[k].shard == shard) {
            return k;
        }
    }
    return SONDE__NONE;
}

static void add(sonde__trial_steps *steps, sonde__trial_items *items, uint64_t seed,
                int64_t global)
{
    const uint64_t i = all.count;
    const bool eval = sonde__below(seed, 1, i, 20) == 0;
    sonde__trial_row_item item = {
        .item = {.tensor = (uint32_t)sonde__below(seed, 2, i, TENSORS),
                 .micro_batch = (uint32_t)sonde__below(seed, 3, i, LANES)},
        .row = all.count,
    };

    all.items[i].global = global;
    all.items[i].mode = eval ? SONDE_MODE_EVAL : SONDE_MODE_TRAIN;
    all.items[i].mode_step = eval ? global / 2 : global;
    all.items[i].tensor = item.item.tensor;
    all.items[i].shard = item.item.micro_batch;
    item.item.step = sonde__trial_steps_intern(steps, global, all.items[i].mode,
                                               all.items[i].mode_step);
    assert_true(sonde__trial_items_add(items, steps, &item.item));
    all.count++;
}

static void compare(const sonde__trial_steps *steps, const sonde__trial_items *items)
{
    for (uint32_t t = 0; t < TENSORS; t++) {
        const sonde__trial_history *history = sonde__trial_items_history(items, t);
        uint32_t found = 0;

        for (int64_t s = 0; s < STEPS; s++) {
            for (uint32_t shard = 0; shard < LANES; shard++) {
                const uint32_t wanted = expected(t, s, shard);

                assert_int_equal(
                    sonde__trial_items_find(items, steps, t, s, (uint64_t)shard << 16),
                    wanted);
                if (wanted != SONDE__NONE) {
                    assert_int_equal(history->numbers[found++], wanted); /* in order */
                }
            }
        }
        assert_int_equal(history->count, found);
    }
}

/* Every item that counts lies in a block of its step; others do only if that is said. */
static void compare_blocks(const sonde__trial_steps *steps,
                           const sonde__trial_items *items)
{
    for (uint32_t i = 0; i < all.count; i++) {
        const int64_t global = all.items[i].global;
        const bool counts =
            expected(all.items[i].tensor, global, all.items[i].shard) == i;
        bool within = false;

        for (size_t at = sonde__trial_items_block(items, steps, global);
             at < items->block_count &&
             steps->items[items->blocks[at].step].global == global;
             at++) {
            within = within || (i >= items->blocks[at].first &&
                                i - items->blocks[at].first < items->blocks[at].count);
        }
        assert_true(counts ? within : !within || items->repeated);
    }
}

/* style 0: ascending; 1: with steps back, as by resumes; 2: anyhow. */
static int64_t next_step(int style, uint64_t seed, int64_t before)
{
    const uint64_t i = all.count;

    if (style == 2) {
        return (int64_t)sonde__below(seed, 4, i, STEPS);
    }
    if (style == 1 && sonde__below(seed, 5, i, 300) == 0) {
        return before / 2;
    }
    return SONDE_MIN(before + (int64_t)(sonde__below(seed, 6, i, 20) == 0), STEPS - 1);
}

static void items_are_found_as_in_a_list(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 9; seed++) {
        sonde__trial_steps steps;
        sonde__trial_items items;
        int64_t global = 0;

        all.count = 0;
        sonde__trial_steps_init(&steps);
        sonde__trial_items_init(&items, SONDE_FORM_VITALS);
        while (all.count < 1500) {
            global = next_step((int)(seed % 3), seed, global);
            add(&steps, &items, seed, global);
            if (sonde__below(seed, 7, all.count, 100) == 0) {
                sonde__trial_steps_sort(&steps);
                sonde__trial_items_sort(&items, &steps);
                compare(&steps, &items);
                compare_blocks(&steps, &items);
            }
        }
        sonde__trial_items_fini(&items);
        sonde__trial_steps_fini(&steps);
    }
}

static void steps_are_sorted_by_either_count(void **state)
{
    sonde__trial_steps steps;

    (void)state;
    sonde__trial_steps_init(&steps);
    for (uint64_t i = 0; i < 2000; i++) {
        const int64_t global = (int64_t)sonde__below(3, 0, i, 700);
        const uint32_t a =
            sonde__trial_steps_intern(&steps, global, SONDE_MODE_TRAIN, 1000 - global);

        assert_int_equal(
            sonde__trial_steps_intern(&steps, global, SONDE_MODE_TRAIN, 1000 - global),
            a);
        assert_int_equal(steps.items[a].global, global);
    }
    assert_true(steps.count <= 700);
    sonde__trial_steps_sort(&steps);
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        const size_t count = steps.sorted_count[mode];

        assert_int_equal(count, mode == SONDE_MODE_TRAIN || mode == SONDE_MODE_GLOBAL
                                    ? steps.count
                                    : 0);
        for (size_t i = 1; i < count; i++) {
            const int64_t step = sonde__trial_steps_at(&steps, (sonde_mode)mode, i);

            assert_true(sonde__trial_steps_at(&steps, (sonde_mode)mode, i - 1) < step);
            assert_int_equal(sonde__trial_steps_lower(&steps, (sonde_mode)mode, step), i);
        }
    }
    sonde__trial_steps_fini(&steps);
}

static void layouts_are_kept_once(void **state)
{
    sonde__trial_layouts layouts = {0};

    (void)state;
    for (int round = 0; round < 2; round++) {
        for (int64_t i = 0; i < 500; i++) {
            const sonde__trial_layout layout = {
                .shape = {i, 3}, .dtype = SONDE_F32, .rank = 2};

            assert_int_equal(
                sonde__trial_layouts_intern(&layouts, &layout, (uint32_t)i / 2), i);
        }
    }
    assert_int_equal(layouts.count, 500);
    sonde__trial_layouts_fini(&layouts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_are_found_as_in_a_list),
        cmocka_unit_test(steps_are_sorted_by_either_count),
        cmocka_unit_test(layouts_are_kept_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Reductions at read time: those of what was saved and those of the raw value are the
 * same bits as at save time, for every dtype; and where nothing answers, that is said.
 */
#include "trial/run_folder.h"

#include "base/macros.h"
#include "base/random.h"

#include <stddef.h>
#include <stdint.h>
#include <math.h>

#include <sonde/error.h>

enum { COUNT = 5000 };

static const char *const exact[] = {"median", "abs_p99",  "quantile:0.1",
                                    "prod",   "abs_prod", "hash"};

static sonde_reduction named(const char *name)
{
    sonde_reduction reduction;

    assert_int_equal(sonde_reduction_parse(name, &reduction, NULL), SONDE_OK);
    return reduction;
}

static void assert_same(const sonde_reduced *a, const sonde_reduced *b)
{
    assert_true(memcmp(&a->number, &b->number, sizeof a->number) == 0 ||
                (isnan(a->number) && isnan(b->number)));
    assert_true(a->hash == b->hash);
}

static unsigned char data[SONDE_DTYPE_COUNT][COUNT * 16];

static sonde_view value_of(int d)
{
    const int64_t shape = COUNT;

    return sonde_view_of((sonde_dtype)d, 1, &shape, data[d]);
}

/* Step 0: the raw value; 1: vital signs; 2: a sketch. */
static sonde_trial *recorded(void)
{
    static sonde_sketch sketch;
    const int64_t shape = COUNT;
    writer w;

    writer_begin(test_run, 1);
    writer_open(&w, test_run, 0);
    for (int d = 0; d < SONDE_DTYPE_COUNT; d++) {
        (void)writer_tensor(&w, sonde_dtype_name((sonde_dtype)d), "other", (sonde_dtype)d,
                            1, &shape, "all");
        for (size_t i = 0; i < sizeof data[d]; i++) {
            const unsigned char byte =
                (unsigned char)sonde__below(4, (uint64_t)d, i, 256);

            data[d][i] = d == SONDE_BOOL ? byte & 1U : byte;
        }
    }
    for (int64_t s = 0; s < 3; s++) {
        for (int d = 0; d < SONDE_DTYPE_COUNT; d++) {
            const sonde_view view = value_of(d);
            const sonde_coordinate at = writer_at(SONDE_MODE_TRAIN, s, s);
            sonde_vitals vitals;

            if (s == 0) {
                writer_put(&w, at, (uint32_t)d, &view, SONDE__PACKED_NOT);
            } else if (s == 1) {
                sonde_vitals_of(&view, &vitals);
                writer_row(&w, at, (uint32_t)d, &vitals);
            } else {
                sonde_sketch_init(&sketch);
                sonde_sketch_add(&sketch, &view);
                writer_sketch(&w, at, (uint32_t)d, &sketch);
            }
        }
        writer_end_step(&w, writer_at(SONDE_MODE_TRAIN, s, s));
    }
    writer_close(&w);
    return trial_opened(test_run);
}

static sonde_reduced read_at(sonde_trial *trial, uint32_t id, int64_t step,
                             const sonde_reduction *reduction)
{
    const sonde_trial_at at = trial_at(SONDE_MODE_TRAIN, step);
    sonde_reduced value;

    assert_int_equal(sonde_trial_reduce(trial, id, &at, reduction, &value, NULL),
                     SONDE_OK);
    return value;
}

static void read_time_is_save_time_bit_for_bit(void **state)
{
    static sonde_sketch sketch;
    sonde_trial *trial = recorded();

    (void)state;
    for (uint32_t d = 0; d < SONDE_DTYPE_COUNT; d++) {
        const sonde_view view = value_of((int)d);

        for (int s = 0; s < SONDE_STAT_ENTRIES; s++) {
            const sonde_reduction reduction = sonde_reduction_of_stat((sonde_stat)s);
            sonde_reduced saved, raw = read_at(trial, d, 0, &reduction);
            const sonde_reduced reduced = read_at(trial, d, 1, &reduction);

            assert_int_equal(sonde_reduce(&reduction, &view, &saved, NULL), SONDE_OK);
            assert_int_equal(raw.how,
                             SONDE_HOW_VITALS == reduced.how ? SONDE_HOW_RAW : 0);
            assert_same(&raw, &saved);
            assert_same(&reduced, &saved);
        }
        sonde_sketch_init(&sketch);
        sonde_sketch_add(&sketch, &view);
        for (size_t n = 0; n < SONDE_COUNT_OF(exact); n++) {
            const sonde_reduction reduction = named(exact[n]);
            const sonde_reduced raw = read_at(trial, d, 0, &reduction);
            sonde_reduced saved;

            assert_int_equal(sonde_reduce(&reduction, &view, &saved, NULL), SONDE_OK);
            assert_int_equal(raw.how, SONDE_HOW_RAW);
            assert_same(&raw, &saved);
            if (reduction.kind == SONDE_REDUCTION_QUANTILE) {
                const sonde_reduced near = read_at(trial, d, 2, &reduction);

                sonde_reduce_sketch(&reduction, &sketch, &saved);
                assert_int_equal(near.how, SONDE_HOW_SKETCH);
                assert_same(&near, &saved);
            }
        }
    }
    sonde_trial_close(trial);
}

static void what_is_not_there_is_said(void **state)
{
    sonde_trial *trial = recorded();
    const sonde_reduction median = named("median"), prod = named("prod"),
                          mean = named("mean");
    sonde_trial_at at = trial_at(SONDE_MODE_TRAIN, 1);
    sonde_reduced value = {.number = 7.0};
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(sonde_trial_reduce(trial, SONDE_F32, &at, &median, &value, &diag),
                     SONDE_ENOTFOUND);
    assert_string_equal(diag.found, "no raw value of 'float32' at train step 1");
    assert_string_equal(diag.expected, "its vital signs, saved there");
    at.step = 2;
    assert_int_equal(sonde_trial_reduce(trial, SONDE_F32, &at, &prod, &value, NULL),
                     SONDE_ENOTFOUND);
    assert_int_equal(sonde_trial_reduce(trial, SONDE_F32, &at, &mean, &value, NULL),
                     SONDE_ENOTFOUND);
    assert_int_equal(
        sonde_trial_reduce(trial, SONDE_DTYPE_COUNT, &at, &mean, &value, NULL),
        SONDE_ERANGE);
    assert_true(value.number == 7.0);
    sonde_trial_close(trial);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(read_time_is_save_time_bit_for_bit, folder_make,
                                        folder_remove),
        cmocka_unit_test_setup_teardown(what_is_not_there_is_said, folder_make,
                                        folder_remove),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

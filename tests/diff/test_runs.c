/*
 * Comparing runs: the first step and tensor that differ in the order of a step, hashes and
 * statistics, workers, what only one run has.
 */
#include "trial/run_folder.h"

#include <sonde/diff.h>
#include <sonde/safetensors.h>

#include <math.h>
#include <stdint.h>

enum { COUNT = 12, STEPS = 5, NOWHERE = -1 };

static const int64_t shape[2] = {4, 3};
/* In the order of the catalogue, which is not that of a step. */
static const char *const tensors[] = {"fc.weight", "gradient/fc.weight", "fc_output_0",
                                      "loss"};
static const char *const roles[] = {"weight", "gradient", "activation", "loss"};
enum { TENSORS = 4 };

static char other_run[160];

static int begin(void **state)
{
    const int failed = folder_make(state);

    (void)snprintf(other_run, sizeof other_run, "%s/other", test_folder);
    return failed;
}

typedef struct change {
    int step, tensor; /* from this step on this tensor, and all after it, differ ... */
    float factor;     /* ... by this factor */
    bool rows;        /* statistics instead of values */
    int steps;        /* 0: STEPS */
} change;

/* The order of a step. */
static int place_of(int tensor)
{
    static const int places[TENSORS] = {0, 3, 1, 2};

    return places[tensor];
}

static float element(int tensor, int step, int i, change c)
{
    const float value = (float)(tensor + 1) * 0.5F + (float)(i - 5) / 8.0F + (float)step;
    const bool changed =
        c.step != NOWHERE &&
        (step > c.step || (step == c.step && place_of(tensor) >= place_of(c.tensor)));

    return changed ? value * c.factor : value;
}

static void write_run(const char *path, change c)
{
    const int steps = c.steps > 0 ? c.steps : STEPS;
    writer w;

    writer_begin(path, 1);
    writer_open(&w, path, 0);
    for (int t = 0; t < TENSORS; t++) {
        (void)writer_tensor(&w, tensors[t], roles[t], SONDE_F32, 2, shape, "all");
    }
    for (int step = 0; step < steps; step++) {
        const sonde_coordinate at = writer_at(SONDE_MODE_TRAIN, step, step);

        for (int t = 0; t < TENSORS; t++) {
            float data[COUNT];
            const sonde_view view = sonde_view_of(SONDE_F32, 2, shape, data);
            sonde_vitals vitals;

            for (int i = 0; i < COUNT; i++) {
                data[i] = element(t, step, i, c);
            }
            if (c.rows) {
                sonde_vitals_of(&view, &vitals);
                writer_row(&w, at, (uint32_t)t, &vitals);
            } else {
                writer_put(&w, at, (uint32_t)t, &view,
                           t == 2 ? SONDE__PACKED_ZSTD : SONDE__PACKED_NOT);
            }
        }
        writer_end_step(&w, at);
    }
    writer_close(&w);
    writer_end(path, "finished", steps - 1);
}

typedef struct found {
    int count;
    sonde_difference first;
} found;

static bool keep(void *user, const sonde_difference *one)
{
    found *const f = user;

    if (f->count++ == 0) {
        f->first = *one;
    }
    return true;
}

static found compare(change a, change b, const sonde_diff_options *options,
                     sonde_diff_report *report, sonde_diff **open)
{
    found f = {0};

    write_run(test_run, a);
    write_run(other_run, b);
    assert_int_equal(sonde_diff_open(test_run, other_run, options, open, NULL), SONDE_OK);
    assert_int_equal(sonde_diff_run(*open, keep, &f, NULL), SONDE_OK);
    sonde_diff_describe(*open, report);
    return f;
}

static const change none = {.step = NOWHERE};

static void same_by_hashes(void **state)
{
    sonde_diff_report report;
    sonde_diff *diff = NULL;

    (void)state;
    assert_int_equal(compare(none, none, NULL, &report, &diff).count, 0);
    assert_int_equal(report.places, TENSORS * STEPS);
    assert_int_equal(report.by_hash, report.places);
    assert_int_equal(report.steps, STEPS);
    sonde_diff_close(diff);
}

static void first_in_the_order_of_a_step(void **state)
{
    const change late = {.step = 2, .tensor = 2, .factor = 1.5F}; /* the activation */
    sonde_diff_report report;
    sonde_diff *diff = NULL;
    sonde_diff_tensor row;

    (void)state;
    const found f = compare(none, late, NULL, &report, &diff);

    assert_string_equal(f.first.name, "fc_output_0");
    assert_int_equal(f.first.step, 2);
    assert_int_equal(f.first.kind, SONDE_DIFF_BEYOND);
    assert_int_equal(f.count, 3 + TENSORS * 2);
    assert_true(sonde_diff_tensor_get(diff, 0, &row));
    assert_string_equal(row.name, "fc.weight");
    assert_int_equal(row.first, 3);
    assert_true(sonde_diff_tensor_get(diff, 3, &row));
    assert_string_equal(row.name, "gradient/fc.weight");
    assert_false(sonde_diff_tensor_get(diff, 4, &row));
    sonde_diff_close(diff);
}

static void rounding_grows(void **state)
{
    const change small = {.step = 0, .tensor = 0, .factor = 1.0F + 0x1p-22F};
    sonde_diff_report report;
    sonde_diff *diff = NULL;

    (void)state;
    (void)compare(none, small, NULL, &report, &diff);
    assert_int_equal(report.counts[SONDE_DIFF_BEYOND], 0);
    assert_true(report.counts[SONDE_DIFF_ROUNDING] > STEPS);
    sonde_diff_close(diff);
}

static void statistics(void **state)
{
    const change rows = {.step = NOWHERE, .rows = true};
    const change late = {.step = 3, .tensor = 3, .factor = 2.0F, .rows = true};
    sonde_diff_report report;
    sonde_diff *diff = NULL;

    (void)state;
    const found f = compare(rows, late, NULL, &report, &diff);

    assert_string_equal(f.first.name, "loss");
    assert_int_equal(f.first.step, 3);
    assert_int_equal(f.first.how, SONDE_HOW_VITALS);
    assert_int_equal(f.first.kind, SONDE_DIFF_BEYOND);
    assert_int_equal(report.by_hash, 0);
    sonde_diff_close(diff);
}

static void values_against_statistics(void **state)
{
    const change rows = {.step = NOWHERE, .rows = true};
    sonde_diff_report report;
    sonde_diff *diff = NULL;

    (void)state;
    assert_int_equal(compare(none, rows, NULL, &report, &diff).count, 0);
    assert_int_equal(report.places, TENSORS * STEPS);
    sonde_diff_close(diff);
}

static void steps_of_one(void **state)
{
    const change shorter = {.step = NOWHERE, .steps = 3};
    sonde_diff_report report;
    sonde_diff *diff = NULL;

    (void)state;
    (void)compare(none, shorter, NULL, &report, &diff);
    assert_int_equal(report.steps, 3);
    assert_int_equal(report.only_a, 2);
    assert_int_equal(report.only_b, 0);
    sonde_diff_close(diff);
}

static void selected(void **state)
{
    const change late = {.step = 2, .tensor = 0, .factor = 1.5F};
    const sonde_diff_options options = {.size = sizeof options,
                                        .selector = "loss",
                                        .modes = 1U << SONDE_MODE_TRAIN,
                                        .begin = 1,
                                        .end = 4};
    sonde_diff_report report;
    sonde_diff *diff = NULL;

    (void)state;
    const found f = compare(none, late, &options, &report, &diff);

    assert_string_equal(f.first.name, "loss");
    assert_int_equal(report.places, 3);
    sonde_diff_close(diff);
}

static void yardstick(void **state)
{
    const change coarse = {.step = 0, .tensor = 2, .factor = 1.01F};
    const change other = {.step = 0, .tensor = 2, .factor = 0.99F};
    sonde_diff_options options = {.size = sizeof options};
    sonde_diff_report report;
    sonde_diff *diff = NULL;
    char third[200];

    (void)state;
    (void)snprintf(third, sizeof third, "%s/third", test_folder);
    write_run(third, other);
    options.yardstick = third;
    (void)compare(none, coarse, &options, &report, &diff);
    assert_int_equal(report.counts[SONDE_DIFF_BEYOND], 0);
    sonde_diff_close(diff);
}

static void a_run_against_files(void **state)
{
    sonde_diff *diff = NULL;
    char file[200];
    float data[COUNT] = {0};
    const sonde_named_view one = {"w", sonde_view_of(SONDE_F32, 2, shape, data)};

    (void)state;
    (void)snprintf(file, sizeof file, "%s/w.safetensors", test_folder);
    assert_int_equal(sonde_safetensors_write(file, &one, 1, NULL, 0, NULL), SONDE_OK);
    write_run(test_run, none);
    assert_int_equal(sonde_diff_open(test_run, file, NULL, &diff, NULL), SONDE_EINVAL);
}

static void hash_of_a_value(void **state)
{
    const sonde_trial_at at = {.mode = SONDE_MODE_TRAIN, .step = 1, .worker = -1};
    const sonde_trial_at late = {.mode = SONDE_MODE_TRAIN, .step = STEPS, .worker = -1};
    sonde_trial *trial = NULL;
    sonde_view form, value;
    uint64_t hash = 0;

    (void)state;
    write_run(test_run, none);
    assert_int_equal(sonde_trial_open(test_run, NULL, &trial, NULL), SONDE_OK);
    for (uint32_t id = 0; id < TENSORS; id++) { /* id 2 is compressed */
        assert_int_equal(sonde_trial_hash(trial, id, &at, &hash, &form, NULL), SONDE_OK);
        assert_int_equal(sonde_trial_value(trial, id, &at, &value, NULL), SONDE_OK);
        assert_true(hash == XXH3_64bits(value.data, COUNT * sizeof(float)));
        assert_true(sonde_view_same_shape(&form, &value) && form.data == NULL);
    }
    assert_int_equal(sonde_trial_hash(trial, 0, &late, &hash, &form, NULL),
                     SONDE_ENOTFOUND);
    assert_int_equal(sonde_trial_hash(trial, 0, NULL, &hash, &form, NULL), SONDE_EINVAL);
    sonde_trial_close(trial);
}

static bool stop_at_once(void *user, const sonde_difference *one)
{
    (void)one;
    ++*(int *)user;
    return false;
}

static void ends_when_asked(void **state)
{
    const change all = {.step = 0, .tensor = 0, .factor = 3.0F};
    sonde_diff *diff = NULL;
    int count = 0;

    (void)state;
    write_run(test_run, none);
    write_run(other_run, all);
    assert_int_equal(sonde_diff_open(test_run, other_run, NULL, &diff, NULL), SONDE_OK);
    assert_int_equal(sonde_diff_run(diff, stop_at_once, &count, NULL), SONDE_OK);
    assert_int_equal(count, 1);
    sonde_diff_close(diff);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(same_by_hashes, begin, folder_remove),
        cmocka_unit_test_setup_teardown(first_in_the_order_of_a_step, begin,
                                        folder_remove),
        cmocka_unit_test_setup_teardown(rounding_grows, begin, folder_remove),
        cmocka_unit_test_setup_teardown(statistics, begin, folder_remove),
        cmocka_unit_test_setup_teardown(values_against_statistics, begin, folder_remove),
        cmocka_unit_test_setup_teardown(steps_of_one, begin, folder_remove),
        cmocka_unit_test_setup_teardown(selected, begin, folder_remove),
        cmocka_unit_test_setup_teardown(yardstick, begin, folder_remove),
        cmocka_unit_test_setup_teardown(a_run_against_files, begin, folder_remove),
        cmocka_unit_test_setup_teardown(hash_of_a_value, begin, folder_remove),
        cmocka_unit_test_setup_teardown(ends_when_asked, begin, folder_remove),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

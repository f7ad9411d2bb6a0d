/*
 * test_data_synth.c - drawn garments: the same every time, balanced, learnable, and
 * written as a data set that opens by name.
 */
#include "nn/data_files.h"

#include <sonde/nn/dataset.h>

enum { PIXELS = SONDE_NN_SYNTH_SIDE * SONDE_NN_SYNTH_SIDE };

static void samples_depend_on_seed_split_and_index(void **state)
{
    uint8_t a[PIXELS], b[PIXELS];

    (void)state;
    for (int64_t i = 0; i < 50; i++) {
        const int label = sonde_nn_synth_draw(3, SONDE_NN_TRAIN, i, a);

        assert_in_range(label, 0, 9);
        assert_int_equal(sonde_nn_synth_draw(3, SONDE_NN_TRAIN, i, b), label);
        assert_memory_equal(a, b, PIXELS);
        (void)sonde_nn_synth_draw(3, SONDE_NN_TEST, i, b);
        assert_memory_not_equal(a, b, PIXELS);
        (void)sonde_nn_synth_draw(4, SONDE_NN_TRAIN, i, b);
        assert_memory_not_equal(a, b, PIXELS);
        (void)sonde_nn_synth_draw(3, SONDE_NN_TRAIN, i + 1, b);
        assert_memory_not_equal(a, b, PIXELS);
    }
}

static void every_ten_samples_are_the_ten_classes(void **state)
{
    uint8_t pixels[PIXELS];
    int in_order = 0;

    (void)state;
    for (int64_t block = 0; block < 20; block++) {
        int seen = 0;

        for (int64_t i = 0; i < 10; i++) {
            const int label =
                sonde_nn_synth_draw(1, SONDE_NN_TRAIN, block * 10 + i, pixels);

            seen |= 1 << label;
            in_order += label == i ? 1 : 0;
        }
        assert_int_equal(seen, 1023);
    }
    assert_true(in_order < 60); /* 20 expected */
}

/* A garment is neither nothing nor everything, and the corners are background. */
static void garments_fill_a_part_of_the_picture(void **state)
{
    uint8_t pixels[PIXELS];
    int corners = 0;

    (void)state;
    for (int64_t i = 0; i < 500; i++) {
        int covered = 0;

        (void)sonde_nn_synth_draw(9, SONDE_NN_TRAIN, i, pixels);
        for (int p = 0; p < PIXELS; p++) {
            covered += pixels[p] > 0 ? 1 : 0;
        }
        assert_in_range(covered, 60, 700);
        corners += pixels[0] > 0 ? 1 : 0;
    }
    assert_true(corners < 50);
}

static double distance(const float *center, const uint8_t *pixels)
{
    double sum = 0.0;

    for (int p = 0; p < PIXELS; p++) {
        const double d = (double)center[p] - (double)pixels[p];

        sum += d * d;
    }
    return sum;
}

/* The class whose mean picture is nearest: far better than chance, far from perfect. */
static void classes_can_be_told_apart_but_not_too_well(void **state)
{
    enum { TRAIN = 1000, TEST = 500 };
    static float centers[10][PIXELS];
    uint8_t pixels[PIXELS];
    int right = 0;

    (void)state;
    for (int64_t i = 0; i < TRAIN; i++) {
        const int label = sonde_nn_synth_draw(5, SONDE_NN_TRAIN, i, pixels);

        for (int p = 0; p < PIXELS; p++) {
            centers[label][p] += (float)pixels[p] / (TRAIN / 10);
        }
    }
    for (int64_t i = 0; i < TEST; i++) {
        const int label = sonde_nn_synth_draw(5, SONDE_NN_TEST, i, pixels);
        int nearest = 0;

        for (int c = 1; c < 10; c++) {
            nearest = distance(centers[c], pixels) < distance(centers[nearest], pixels)
                          ? c
                          : nearest;
        }
        right += nearest == label ? 1 : 0;
    }
    assert_in_range(right, TEST * 45 / 100, TEST * 90 / 100);
}

static bool count_progress(void *user, int64_t done, int64_t total)
{
    int64_t *last = user;

    assert_true(done > *last && done <= total);
    *last = done;
    return true;
}

static void sets_open_by_name(void **state)
{
    int64_t last = 0;
    const sonde_nn_synth_options options = {.size = sizeof options,
                                            .seed = 6,
                                            .train = 60,
                                            .test = 20,
                                            .progress = count_progress,
                                            .user = &last};
    sonde_nn_dataset *set = NULL;
    sonde_nn_sample sample;
    uint8_t pixels[PIXELS];

    (void)state;
    assert_int_equal(setenv("SONDE_CACHE", data_path("cache"), 1), 0);
    assert_int_equal(unsetenv("SONDE_DATA"), 0);
    assert_int_equal(sonde_nn_synth(NULL, &options, NULL), SONDE_OK);
    assert_int_equal(last, 80);
    assert_int_equal(
        sonde_nn_dataset_open(NULL,
                              SONDE_OPTIONS(sonde_nn_dataset, .name = "fashion-synth",
                                            .split = SONDE_NN_TEST),
                              &set, NULL),
        SONDE_OK);
    assert_int_equal(sonde_nn_dataset_get_traits(set)->count, 20);
    assert_string_equal(sonde_nn_dataset_class_name(set, 7), "Sneaker");
    for (int64_t i = 0; i < 20; i++) {
        assert_int_equal(sonde_nn_dataset_get(set, i, NULL, &sample, NULL), SONDE_OK);
        assert_int_equal(sample.label, sonde_nn_synth_draw(6, SONDE_NN_TEST, i, pixels));
        assert_memory_equal(sample.data, pixels, PIXELS);
    }
    sonde_nn_dataset_destroy(set);
}

static bool stop(void *user, int64_t done, int64_t total)
{
    (void)user;
    (void)done;
    (void)total;
    return false;
}

static void stopping_leaves_no_files(void **state)
{
    const sonde_nn_synth_options options = {
        .size = sizeof options, .train = 1000, .test = 10, .progress = stop};
    const sonde_nn_synth_options wrong = {.size = sizeof wrong, .train = -1};

    (void)state;
    assert_int_equal(sonde_nn_synth(data_path("stopped"), &options, NULL),
                     SONDE_EINTERRUPTED);
    assert_int_equal(rmdir(data_path("stopped")), 0); /* it is empty */
    assert_int_equal(sonde_nn_synth(data_path("stopped"), &wrong, NULL), SONDE_EINVAL);
}

static sonde_err write_set(void *user)
{
    const sonde_nn_synth_options options = {
        .size = sizeof options, .train = 3, .test = 2};

    return sonde_nn_synth(user, &options, NULL);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    assert_true(data_fail_allocations(write_set, data_path("few")) > 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_depend_on_seed_split_and_index),
        cmocka_unit_test(every_ten_samples_are_the_ten_classes),
        cmocka_unit_test(garments_fill_a_part_of_the_picture),
        cmocka_unit_test(classes_can_be_told_apart_but_not_too_well),
        cmocka_unit_test(sets_open_by_name),
        cmocka_unit_test(stopping_leaves_no_files),
        cmocka_unit_test(every_allocation_may_fail),
    };

    return cmocka_run_group_tests(tests, data_folder_make, data_folder_remove);
}

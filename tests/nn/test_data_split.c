/*
 * test_data_split.c - a part of a data set and its rest: every sample in one of them, in
 * order.
 */
#include "nn/data/dataset.h"
#include "nn/data_loader.h"

enum { COUNT = 100, PART = 23 };

static void split(const sonde_nn_dataset *set, int64_t count, uint64_t seed,
                  sonde_nn_dataset **part, sonde_nn_dataset **rest)
{
    assert_int_equal(sonde_nn_dataset_split(set, count, seed, part, rest, NULL),
                     SONDE_OK);
}

/* The samples of a part, marked by how often they are there; checks that they ascend. */
static void mark(const sonde_nn_dataset *part, int *times)
{
    const int64_t count = sonde_nn_dataset_get_traits(part)->count;
    int64_t before = -1;

    for (int64_t i = 0; i < count; i++) {
        sonde_nn_sample sample;

        assert_int_equal(sonde_nn_dataset_get(part, i, NULL, &sample, NULL), SONDE_OK);
        assert_int_equal(sample.label, sonde_nn_dataset_label(part, i));
        assert_int_equal(*(const uint8_t *)sample.data, sample.label % 251);
        assert_true(sample.label > before);
        before = sample.label;
        times[sample.label]++;
    }
}

static void every_sample_is_in_one_of_the_two(void **state)
{
    const sonde_nn_dataset *set = set_of(COUNT);
    sonde_nn_dataset *part = NULL, *rest = NULL;
    int times[COUNT] = {0};

    (void)state;
    split(set, PART, 7, &part, &rest);
    assert_int_equal(sonde_nn_dataset_get_traits(part)->count, PART);
    assert_int_equal(sonde_nn_dataset_get_traits(rest)->count, COUNT - PART);
    mark(part, times);
    mark(rest, times);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(times[i], 1);
    }
    assert_string_equal(sonde__dataset_where(part, 3), "memory");
    sonde_nn_dataset_destroy(part);
    sonde_nn_dataset_destroy(rest);
}

static int64_t first_label(const sonde_nn_dataset *set, uint64_t seed)
{
    sonde_nn_dataset *part = NULL;
    int64_t label = 0;

    split(set, 1, seed, &part, NULL);
    label = sonde_nn_dataset_label(part, 0);
    sonde_nn_dataset_destroy(part);
    return label;
}

static void a_seed_draws_the_same_and_another_other_samples(void **state)
{
    const sonde_nn_dataset *set = set_of(4);
    int drawn[4] = {0};

    (void)state;
    assert_int_equal(first_label(set, 3), first_label(set, 3));
    for (uint64_t seed = 0; seed < 1000; seed++) {
        drawn[first_label(set, seed)]++;
    }
    for (int i = 0; i < 4; i++) { /* 250 each: 4.4 deviations of a fair draw are 60 */
        assert_in_range(drawn[i], 190, 310);
    }
}

static void a_loader_reads_a_part_and_parts_have_parts(void **state)
{
    const sonde_nn_dataset *set = set_of(COUNT);
    const sonde_nn_transform transforms[] = {{.kind = SONDE_NN_TO_FLOAT}};
    const sonde_nn_loader_options options = {.size = sizeof options,
                                             .batch = 4,
                                             .keep_last = true,
                                             .workers = 1,
                                             .transforms = transforms,
                                             .transform_count = 1};
    sonde_nn_dataset *part = NULL, *smaller = NULL;
    sonde_nn_loader *loader = NULL;
    sonde_nn_batch batch = {.count = 1};
    int64_t seen = 0;

    (void)state;
    split(set, PART, 1, &part, NULL);
    split(part, 10, 2, &smaller, NULL);
    loader = loader_of(smaller, &options);
    while (batch.count > 0) {
        assert_int_equal(sonde_nn_loader_next(loader, &batch, NULL), SONDE_OK);
        for (int64_t i = 0; i < batch.count; i++, seen++) {
            const float *pixels = (const float *)batch.data + i * SAMPLE;

            assert_int_equal(batch.labels[i], sonde_nn_dataset_label(smaller, seen));
            assert_float_equal(pixels[0], (float)(batch.labels[i] % 251) / 255.0F, 1e-6);
        }
    }
    assert_int_equal(seen, 10);
    sonde_nn_loader_destroy(loader);
    sonde_nn_dataset_destroy(smaller);
    sonde_nn_dataset_destroy(part);
}

static void classes_are_counted_and_named(void **state)
{
    const char *const names[3] = {"zero", "one", "two"};
    const uint8_t pixels[6][2] = {{0}};
    const int64_t labels[6] = {0, 1, 2, 0, 1, 2}, shape[2] = {6, 2};
    sonde_view data = sonde_view_of(SONDE_U8, 2, shape, NULL);
    sonde_view classes = sonde_view_of(SONDE_I64, 1, shape, NULL);
    const sonde_nn_dataset_options options = {.size = sizeof options,
                                              .data = &data,
                                              .labels = &classes,
                                              .classes = 3,
                                              .class_names = names};
    sonde_nn_dataset *set = NULL, *part = NULL;
    sonde_nn_dataset_info info;
    int64_t counts[3];

    (void)state;
    memcpy(&data.data, &(const void *){pixels}, sizeof data.data);
    memcpy(&classes.data, &(const void *){labels}, sizeof classes.data);
    assert_int_equal(sonde_nn_dataset_open(NULL, &options, &set, NULL), SONDE_OK);
    split(set, 5, 0, &part, NULL);
    assert_int_equal(sonde_nn_dataset_describe(part, &info, counts, NULL), SONDE_OK);
    assert_int_equal(counts[0] + counts[1] + counts[2], 5);
    assert_int_equal(info.smallest, 1);
    assert_string_equal(sonde_nn_dataset_class_name(part, 2), "two");
    sonde_nn_dataset_destroy(part);
    sonde_nn_dataset_destroy(set);
}

static void counts_that_cannot_be(void **state)
{
    const sonde_nn_dataset *set = set_of(COUNT);
    sonde_nn_dataset *part = NULL, *rest = NULL;
    sonde_nn_sample sample;
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(sonde_nn_dataset_split(set, 0, 0, &part, NULL, &diag), SONDE_ERANGE);
    assert_int_equal(sonde_nn_dataset_split(set, COUNT, 0, &part, &rest, &diag),
                     SONDE_ERANGE);
    assert_string_equal(diag.found, "a part of 100 samples");
    assert_string_equal(diag.expected, "1 to 99");
    split(set, COUNT, 0, &part, NULL);
    assert_int_equal(sonde_nn_dataset_get(part, COUNT, NULL, &sample, &diag),
                     SONDE_ERANGE);
    sonde_nn_dataset_destroy(part);
}

static sonde_err split_both(void *user)
{
    sonde_nn_dataset *part = NULL, *rest = NULL;
    const sonde_err err = sonde_nn_dataset_split(user, PART, 0, &part, &rest, NULL);

    sonde_nn_dataset_destroy(part);
    sonde_nn_dataset_destroy(rest);
    return err;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    assert_int_equal(data_fail_allocations(split_both, set_of(COUNT)), 4);
}

static int tear_down(void **state)
{
    (void)state;
    sonde_nn_dataset_destroy(plain.set);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_is_in_one_of_the_two),
        cmocka_unit_test(a_seed_draws_the_same_and_another_other_samples),
        cmocka_unit_test(a_loader_reads_a_part_and_parts_have_parts),
        cmocka_unit_test(classes_are_counted_and_named),
        cmocka_unit_test(counts_that_cannot_be),
        cmocka_unit_test(every_allocation_may_fail),
    };

    return cmocka_run_group_tests(tests, NULL, tear_down);
}

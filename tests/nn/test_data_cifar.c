/*
 * test_data_cifar.c - CIFAR-10's binary files as a data set.
 */
#include "data_files.h"
#include "engine.h"

#include <sonde/nn/job.h>

#include <sys/stat.h>

enum { RECORD = 3073 };

/* count records: record i has the label i, and pixel k is i + k. */
static void write_batch(const char *path, int count, size_t cut)
{
    unsigned char *bytes = calloc((size_t)count, RECORD);

    assert_non_null(bytes);
    for (int i = 0; i < count; i++) {
        bytes[i * RECORD] = (unsigned char)i;
        for (int k = 0; k < RECORD - 1; k++) {
            bytes[i * RECORD + 1 + k] = (unsigned char)(i + k);
        }
    }
    data_write(path, bytes, (size_t)count * RECORD - cut);
    free(bytes);
}

static void batches_are_one_set(void **state)
{
    sonde_nn_dataset *set = NULL;
    const sonde_nn_dataset_traits *traits = NULL;
    sonde_nn_sample sample;

    (void)state;
    assert_int_equal(mkdir(data_path("c"), 0700), 0);
    assert_false(sonde_nn_dataset_is_cifar10(data_path("c"), SONDE_NN_TRAIN));
    expect_err(SONDE_ENOTFOUND, sonde_nn_dataset_open_cifar10(
                                    data_path("c"), SONDE_NN_TRAIN, &set, &engine_diag));
    write_batch(data_path("c/data_batch_1.bin"), 4, 0);
    write_batch(data_path("c/data_batch_3.bin"), 3, 0);
    assert_true(sonde_nn_dataset_is_cifar10(data_path("c"), SONDE_NN_TRAIN));
    assert_false(sonde_nn_dataset_is_cifar10(data_path("c"), SONDE_NN_TEST));
    must(sonde_nn_dataset_open_cifar10(data_path("c"), SONDE_NN_TRAIN, &set,
                                       &engine_diag));
    traits = sonde_nn_dataset_get_traits(set);
    assert_int_equal(traits->count, 7);
    assert_int_equal(traits->rank, 3);
    assert_int_equal(traits->shape[0], 3);
    assert_int_equal(traits->shape[2], 32);
    assert_int_equal(traits->classes, 10);
    assert_string_equal(sonde_nn_dataset_class_name(set, 9), "truck");
    must(sonde_nn_dataset_get(set, 5, NULL, &sample, &engine_diag));
    assert_int_equal(sample.label, 1);
    assert_int_equal(((const uint8_t *)sample.data)[3071], (uint8_t)(1 + 3071));
    sonde_nn_dataset_destroy(set);
}

static void bad_files_are_told(void **state)
{
    sonde_nn_dataset *set = NULL;
    char line[600];

    (void)state;
    assert_int_equal(mkdir(data_path("b"), 0700), 0);
    write_batch(data_path("b/test_batch.bin"), 2, 10);
    expect_err(SONDE_EFORMAT, sonde_nn_dataset_open_cifar10(data_path("b"), SONDE_NN_TEST,
                                                            &set, &engine_diag));
    (void)snprintf(line, sizeof line,
                   "%s: record 1 ends after 3063 bytes (expected records of 3073 bytes)",
                   data_path("b/test_batch.bin"));
    expect_line(line);
    write_batch(data_path("b/test_batch.bin"), 11, 0);
    expect_err(SONDE_ERANGE, sonde_nn_dataset_open_cifar10(data_path("b"), SONDE_NN_TEST,
                                                           &set, &engine_diag));
    (void)snprintf(line, sizeof line, "%s: label 10 of record 10 (expected 0 to 9)",
                   data_path("b/test_batch.bin"));
    expect_line(line);
}

static void a_job_takes_them(void **state)
{
    static const char text[] =
        "model: {input: [3, 32, 32], layers: [flatten, linear: {name: fc, out_features: 10}],\n"
        "  loss: cross_entropy}\n";
    sonde_nn_job *job = NULL;
    sonde_nn_dataset *set = NULL;

    (void)state;
    assert_int_equal(mkdir(data_path("j"), 0700), 0);
    write_batch(data_path("j/data_batch_1.bin"), 4, 0);
    write_batch(data_path("j/test_batch.bin"), 2, 0);
    must(sonde_nn_job_parse(text, strlen(text), "job", &job, &engine_diag));
    sonde_nn_job_get_info(job)->data_path = data_path("j");
    assert_true(sonde_nn_job_has_test(job));
    must(sonde_nn_job_open_data(job, SONDE_NN_TEST, &set, &engine_diag));
    assert_int_equal(sonde_nn_dataset_get_traits(set)->count, 2);
    sonde_nn_dataset_destroy(set);
    sonde_nn_job_destroy(job);
}

static sonde_err open_train(void *user)
{
    sonde_nn_dataset *set = NULL;
    const sonde_err err = sonde_nn_dataset_open_cifar10(user, SONDE_NN_TRAIN, &set, NULL);

    sonde_nn_dataset_destroy(set);
    return err;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    assert_int_equal(mkdir(data_path("a"), 0700), 0);
    write_batch(data_path("a/data_batch_1.bin"), 2, 0);
    assert_true(data_fail_allocations(open_train, data_path("a")) > 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_are_one_set),
        cmocka_unit_test(bad_files_are_told),
        cmocka_unit_test(a_job_takes_them),
        cmocka_unit_test(every_allocation_may_fail),
    };

    return cmocka_run_group_tests(tests, data_folder_make, data_folder_remove);
}

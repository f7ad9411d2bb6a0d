/*
 * test_data_metrics.c - the confusion matrix on batches counted by hand.
 */
#include "nn/data_files.h"
#include "nn/train/train_state.h"

#include <sonde/nn/evaluator.h>

#include <math.h>

static sonde_nn_confusion *matrix_of(int64_t classes)
{
    sonde_nn_confusion *matrix = NULL;

    assert_int_equal(sonde_nn_confusion_create(classes, &matrix, NULL), SONDE_OK);
    return matrix;
}

/* Rows, by label and prediction: 0>0 0>1 1>1 1>1 2>0 2>NaN. */
static void batches_are_counted(void **state)
{
    float scores[6][3] = {{3, 1, 2},  {-2, -1, -3},      {0, 0.5f, 0.25f},
                          {-5, 4, 4}, {7, 7, -INFINITY}, {1, NAN, 9}};
    int64_t labels[6] = {0, 0, 1, 1, 2, 2};
    const int64_t shape[2] = {6, 3};
    const sonde_view s = sonde_view_of(SONDE_F32, 2, shape, scores);
    const sonde_view l = sonde_view_of(SONDE_I64, 1, shape, labels);
    static const uint64_t wanted[9] = {1, 1, 0, 0, 2, 0, 1, 0, 0};
    sonde_nn_confusion *matrix = matrix_of(3);
    sonde_nn_class_scores class_scores;

    (void)state;
    assert_true(isnan(sonde_nn_confusion_get_info(matrix).accuracy));
    for (int i = 0; i < 2; i++) { /* reset forgets the first time */
        sonde_nn_confusion_reset(matrix);
        assert_int_equal(sonde_nn_confusion_update(matrix, &s, &l, NULL), SONDE_OK);
    }
    assert_memory_equal(sonde_nn_confusion_get_info(matrix).counts, wanted,
                        sizeof wanted);
    assert_int_equal(sonde_nn_confusion_get_info(matrix).counts[6], 1);
    assert_int_equal(sonde_nn_confusion_get_info(matrix).classes, 3);
    assert_int_equal(sonde_nn_confusion_get_info(matrix).total, 6);
    assert_int_equal(sonde_nn_confusion_get_info(matrix).nan_rows, 1);
    assert_true(sonde_nn_confusion_get_info(matrix).accuracy == 0.5);
    class_scores = sonde_nn_confusion_class(matrix, 0);
    assert_true(class_scores.support == 2 && class_scores.precision == 0.5 &&
                class_scores.recall == 0.5 && class_scores.f1 == 0.5);
    class_scores = sonde_nn_confusion_class(matrix, 1);
    assert_true(class_scores.precision == 2.0 / 3.0 && class_scores.recall == 1.0 &&
                class_scores.f1 == 0.8);
    class_scores = sonde_nn_confusion_class(matrix, 2);
    assert_true(class_scores.support == 2 && class_scores.nan_rows == 1);
    assert_true(class_scores.precision == 0.0 && class_scores.recall == 0.0 &&
                class_scores.f1 == 0.0);
    sonde_nn_confusion_destroy(matrix);
}

static void any_strides_and_dtypes_will_do(void **state)
{
    double scores[3][4] = {{0, 1, 9, 9}, {5, 2, 9, 9}, {3, 3, 9, 9}};
    uint8_t labels[6] = {1, 99, 0, 99, 0, 99};
    sonde_view s = sonde_view_of(SONDE_F64, 2, (const int64_t[]){3, 2}, scores);
    sonde_view l = sonde_view_of(SONDE_U8, 1, (const int64_t[]){3}, labels);
    sonde_nn_confusion *matrix = matrix_of(2);

    (void)state;
    s.stride[0] = 4;
    l.stride[0] = 2;
    assert_int_equal(sonde_nn_confusion_update(matrix, &s, &l, NULL), SONDE_OK);
    assert_true(sonde_nn_confusion_get_info(matrix).accuracy ==
                1.0); /* a tie goes to the first */
    sonde_nn_confusion_destroy(matrix);
}

static void argmax_takes_the_first_largest(void **state)
{
    static const float row[6] = {-INFINITY, 2, 7, 2, 7, 9};

    (void)state;
    assert_int_equal(sonde_nn_argmax(SONDE_F32, row, 5, 1), 2);
    assert_int_equal(sonde_nn_argmax(SONDE_F32, row, 3, 2), 1);
    assert_int_equal(sonde_nn_argmax(SONDE_F32, row, 1, 1), 0);
    assert_int_equal(sonde_nn_argmax(SONDE_F32, row, 0, 1), SONDE_NN_NAN_ROW);
}

static void bad_batches_count_nothing(void **state)
{
    float scores[2][2] = {{1, 0}, {0, 1}};
    int64_t labels[2] = {0, 2};
    const int64_t shape[2] = {2, 2};
    sonde_view s = sonde_view_of(SONDE_F32, 2, shape, scores);
    sonde_view l = sonde_view_of(SONDE_I64, 1, shape, labels);
    sonde_nn_confusion *matrix = matrix_of(2), *none = NULL;
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(sonde_nn_confusion_update(matrix, &s, &l, &diag), SONDE_ERANGE);
    assert_string_equal(diag.found, "label 2 of sample 1");
    assert_string_equal(diag.expected, "0 to 1");
    labels[1] = 1;
    l.shape[0] = 1;
    assert_int_equal(sonde_nn_confusion_update(matrix, &s, &l, &diag), SONDE_ESHAPE);
    l.shape[0] = 2;
    l.dtype = SONDE_F64;
    assert_int_equal(sonde_nn_confusion_update(matrix, &s, &l, &diag), SONDE_EDTYPE);
    l.dtype = SONDE_I64;
    s.shape[1] = 1;
    assert_int_equal(sonde_nn_confusion_update(matrix, &s, &l, &diag), SONDE_ESHAPE);
    assert_string_equal(diag.expected, "(N, 2)");
    assert_int_equal(sonde_nn_confusion_get_info(matrix).total, 0);
    assert_int_equal(sonde_nn_confusion_create(0, &none, &diag), SONDE_EINVAL);
    assert_int_equal(sonde_nn_confusion_create(INT64_MAX, &none, &diag), SONDE_ENOMEM);
    assert_null(none);
    sonde_nn_confusion_destroy(matrix);
    sonde_nn_confusion_destroy(NULL);
}

static void means_are_weighted_and_compensated(void **state)
{
    sonde__train_mean mean = {0};

    (void)state;
    assert_true(isnan(sonde__train_mean_get(&mean)));
    sonde__train_mean_add(&mean, 2.0, 16.0);
    sonde__train_mean_add(&mean, 5.0, 8.0);
    assert_true(sonde__train_mean_get(&mean) == 3.0);
    mean = (sonde__train_mean){0};
    sonde__train_mean_add(&mean, 1.0, 1.0);
    sonde__train_mean_add(&mean, 1e100, 1.0);
    sonde__train_mean_add(&mean, 1.0, 1.0);
    sonde__train_mean_add(&mean, -1e100, 1.0);
    assert_true(sonde__train_mean_get(&mean) == 0.5); /* a plain sum gives 0 */
    sonde__train_mean_add(&mean, (double)NAN, 1.0);
    assert_true(isnan(sonde__train_mean_get(&mean)));
    assert_int_equal(mean.nonfinite, 1);
}

static sonde_err create(void *user)
{
    sonde_nn_confusion *matrix = NULL;
    const sonde_err err = sonde_nn_confusion_create(3, &matrix, user);

    sonde_nn_confusion_destroy(matrix);
    return err;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    assert_int_equal(data_fail_allocations(create, NULL), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_are_counted),
        cmocka_unit_test(any_strides_and_dtypes_will_do),
        cmocka_unit_test(argmax_takes_the_first_largest),
        cmocka_unit_test(bad_batches_count_nothing),
        cmocka_unit_test(means_are_weighted_and_compensated),
        cmocka_unit_test(every_allocation_may_fail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * test_outfeed_table.c - the table of an epoch's end, to the letter; and what is refused.
 */
#include "observe/feed.h"

#include <math.h>
#include <stdlib.h>

/* --- the table -------------------------------------------------------------------- */

/* Fills count numbers with exactly this mean, deviation and extremes: the extremes once,
 * the rest at two levels. */
static float *numbers(size_t count, double mean, double std, double min, double max)
{
    const double n = (double)count, rest = n - 2.0;
    const double center = (n * mean - min - max) / rest;
    const double square = (n * (std * std + mean * mean) - min * min - max * max) / rest;
    const double half = sqrt(square - center * center);
    float *values = malloc(count * sizeof *values);

    assert_non_null(values);
    values[0] = (float)min;
    values[1] = (float)max;
    for (size_t i = 2; i < count; i++) {
        values[i] = (float)(i % 2 == 0 ? center + half : center - half);
    }
    return values;
}

static void expect_table(const sonde_outfeed_batch *batch, const char *title, int epoch,
                         const char *want)
{
    sonde_text text = {0};

    assert_int_equal(sonde_outfeed_table(batch, title, epoch, &text), SONDE_OK);
    assert_string_equal(text.data, want);
    sonde_text_fini(&text);
}

/* The sample that describes the table, with its keys and its numbers. */
static void the_table_is_the_references(void **state)
{
    float *bias = numbers(125 * 128, -0.000663, 0.021037, -0.108830, 0.111534);
    float *kernel = numbers(125 * 256 * 128, -0.000120, 0.012575, -0.186476, 0.183576);
    const sonde_outfed entries[] = {
        {"Dense_128/bias:0_grad",
         sonde_view_of(SONDE_F32, 2, (const int64_t[]){125, 128}, bias)},
        {"Dense_128/kernel:0_grad",
         sonde_view_of(SONDE_F32, 3, (const int64_t[]){125, 256, 128}, kernel)}};
    const sonde_outfeed_batch batch = {entries, 2, 125}, none = {0};

    (void)state;
    expect_table(&batch, "Gradients callback", 3,
                 "\n"
                 "Gradients callback\n"
                 "key: Dense_128/bias:0_grad shape: (125, 128)\n"
                 "key: Dense_128/kernel:0_grad shape: (125, 256, 128)\n"
                 "Epoch 3 - Summary Stats\n"
                 "Index Name                         Mean         Std          Minimum"
                 "      Maximum      NaNs    infs   \n"
                 "0     Dense_128/bias:0_grad        -0.000663    0.021037     -0.108830"
                 "    0.111534     False   False  \n"
                 "1     Dense_128/kernel:0_grad      -0.000120    0.012575     -0.186476"
                 "    0.183576     False   False  \n");
    expect_table(&none, "Single layer activations callback", 3,
                 "\nSingle layer activations callback\nNo data enqueued\n");
    free(bias);
    free(kernel);
}

static void not_a_number_and_infinities(void **state)
{
    float clean[2] = {1.0F, 3.0F}, broken[3] = {1.0F, (float)NAN, 2.0F},
          endless[3] = {-(float)INFINITY, 0.0F, 5.0F},
          above[2] = {(float)INFINITY, 123456792.0F};
    double wide[2] = {-1e20, 1e20};
    const sonde_outfed entries[] = {
        {"a", sonde_view_of(SONDE_F32, 1, (const int64_t[]){2}, clean)},
        {"nan", sonde_view_of(SONDE_F32, 1, (const int64_t[]){3}, broken)},
        {"\xc3\xa9t\xc3\xa9", sonde_view_of(SONDE_F32, 1, (const int64_t[]){3}, endless)},
        {"up", sonde_view_of(SONDE_F32, 2, (const int64_t[]){1, 2}, above)},
        {"wide", sonde_view_of(SONDE_F64, 1, (const int64_t[]){2}, wide)}};
    const sonde_outfeed_batch batch = {entries, 5, 2};

    (void)state;
    expect_table(&batch, "q", 1,
                 "\n"
                 "q\n"
                 "key: a shape: (2,)\n"
                 "key: nan shape: (3,)\n"
                 "key: \xc3\xa9t\xc3\xa9 shape: (3,)\n"
                 "key: up shape: (1, 2)\n"
                 "key: wide shape: (2,)\n"
                 "Epoch 1 - Summary Stats\n"
                 "Index Name      Mean         Std          Minimum      Maximum      "
                 "NaNs    infs   \n"
                 "0     a         2.000000     1.000000     1.000000     3.000000     "
                 "False   False  \n"
                 "1     nan        nan          nan          nan          nan         "
                 "True    False  \n"
                 "2     \xc3\xa9t\xc3\xa9       -inf          nan         -inf         "
                 "5.000000     False   True   \n"
                 "3     up         inf          nan         123456792.000000  inf"
                 "         False   True   \n"
                 "4     wide      0.000000     100000000000000000000.000000 "
                 "-100000000000000000000.000000 100000000000000000000.000000 False   "
                 "False  \n");
}

/* A queue without rows since the last time says so, although it has keys. */
static void no_rows_are_no_data(void **state)
{
    const sonde_outfeed_options options =
        feed_options(4, SONDE_OUTFEED_BLOCK, SONDE_OUTFEED_STEP);
    sonde_outfeed_batch batch;
    feed f;

    (void)state;
    assert_int_equal(feed_open(&f, &options, (sonde_call_shape){1, 1, 1}), SONDE_OK);
    assert_int_equal(sonde_outfeed_add(f.queue, "s", NULL, NULL), SONDE_OK);
    assert_int_equal(feed_bind(&f, NULL), SONDE_OK);
    batch = feed_take(&f);
    expect_table(&batch, "q", 1, "\nq\nNo data enqueued\n");
    feed_steps(&f, 1);
    batch = feed_take(&f);
    expect_table(&batch, "q", 12,
                 "\nq\nkey: s shape: (1,)\nEpoch 12 - Summary Stats\n"
                 "Index Name   Mean         Std          Minimum      Maximum      "
                 "NaNs    infs   \n"
                 "0     s      1000.000000  0.000000     1000.000000  1000.000000  "
                 "False   False  \n");
    feed_close(&f);
}

static sonde_err make_table(void *user)
{
    float value = 1.0F;
    const sonde_outfed entry = {"a key of some length",
                                sonde_view_of(SONDE_F32, 0, NULL, &value)};
    const sonde_outfeed_batch batch = {&entry, 1, 1};
    sonde_text text = {0};
    const sonde_err err = sonde_outfeed_table(&batch, "title", 1, &text);

    (void)user;
    sonde_text_fini(&text);
    return err;
}

static void no_allocation_failure_is_lost(void **state)
{
    (void)state;
    assert_true(net_alloc_failures(make_table, NULL) > 1);
}

/* --- what is refused -------------------------------------------------------------- */

static void expect_options(sonde_outfeed_options options, const char *line)
{
    sonde_outfeed *queue = NULL;
    sonde_diag diag = {0};
    char buf[SONDE_DIAG_LINE];

    assert_int_equal(sonde_outfeed_create(&options, &queue, &diag), SONDE_EINVAL);
    assert_string_equal(sonde_diag_line(&diag, buf, sizeof buf), line);
    assert_null(queue);
}

static void options_that_cannot_be(void **state)
{
    const sonde_schedule never = {.every = -1};
    const sonde_outfeed_options good =
        feed_options(1, SONDE_OUTFEED_ERROR, SONDE_OUTFEED_STEP);
    sonde_outfeed_options bad = good;

    (void)state;
    bad.rows = 0;
    expect_options(bad, "rows: 0 (expected 1 or more)");
    bad = good;
    bad.when_full = (sonde_outfeed_full)3;
    expect_options(bad, "when_full: 3 (expected a sonde_outfeed_full)");
    bad = good;
    bad.per = (sonde_outfeed_per)2;
    expect_options(bad, "per: 2 (expected a sonde_outfeed_per)");
    bad = good;
    bad.when_full = SONDE_OUTFEED_BLOCK;
    bad.one_thread = true;
    expect_options(bad, "one_thread: a queue of one thread that blocks when it is full "
                        "(expected another when_full: no other thread makes room)");
    bad = good;
    bad.when = &never;
    {
        sonde_outfeed *queue = NULL;

        assert_int_equal(sonde_outfeed_create(&bad, &queue, NULL), SONDE_EINVAL);
    }
}

/* Adds, binds, and expects this error with this line. */
static void expect_refused(sonde_outfeed_per per, sonde_call_shape shape,
                           const char *tensor, const char *key, sonde_err want,
                           const char *line)
{
    const sonde_outfeed_options options = feed_options(4, SONDE_OUTFEED_BLOCK, per);
    sonde_diag diag = {0};
    char buf[SONDE_DIAG_LINE];
    feed f;

    assert_int_equal(feed_open(&f, &options, shape), SONDE_OK);
    assert_int_equal(sonde_outfeed_add(f.queue, "w", NULL, NULL), SONDE_OK);
    assert_int_equal(sonde_outfeed_add(f.queue, tensor, key, NULL), SONDE_OK);
    assert_int_equal(feed_bind(&f, &diag), want);
    assert_string_equal(sonde_diag_line(&diag, buf, sizeof buf), line);
    feed_close(&f);
}

static void tensors_that_cannot_be(void **state)
{
    const sonde_call_shape one = {1, 1, 1}, four = {1, 4, 1};

    (void)state;
    expect_refused(SONDE_OUTFEED_STEP, one, "outt", NULL, SONDE_ENOTFOUND,
                   "outfeed 'q': unknown tensor 'outt' (expected a name such as out)");
    expect_refused(
        SONDE_OUTFEED_STEP, one, "out", "w", SONDE_EEXIST,
        "outfeed 'q': 'out' would have the key 'w', which 'w' has (expected an "
        "unused key)");
    expect_refused(SONDE_OUTFEED_MICRO_BATCH, four, "UpdatedVar___w", NULL, SONDE_EINVAL,
                   "outfeed 'q': 'UpdatedVar___w' comes once a step, a row every "
                   "micro-batch (expected a queue with a row a step)");
}

static void gradients_that_cannot_be(void **state)
{
    sonde_outfeed_options options =
        feed_options(4, SONDE_OUTFEED_BLOCK, SONDE_OUTFEED_STEP);
    sonde_diag diag = {0};
    char buf[SONDE_DIAG_LINE];
    sonde_outfeed *queue = NULL;
    sonde_catalogue *bare = NULL;
    sonde_observer *observer = NULL;

    (void)state;
    assert_int_equal(sonde_outfeed_create(&options, &queue, NULL), SONDE_OK);
    assert_int_equal(
        sonde_outfeed_add_gradients(queue, SONDE_OUTFEED_AFTER_COMPUTE, &diag),
        SONDE_EINVAL);
    assert_string_equal(sonde_diag_line(&diag, buf, sizeof buf),
                        "outfeed 'q': gradients AFTER_COMPUTE in a queue with a row a "
                        "step (expected gradients BEFORE_APPLY)");
    assert_int_equal(sonde_outfeed_add_gradients(queue, (sonde_outfeed_gradients)2, NULL),
                     SONDE_EINVAL);
    assert_int_equal(sonde_outfeed_add_gradients(queue, SONDE_OUTFEED_BEFORE_APPLY, NULL),
                     SONDE_OK);
    assert_int_equal(sonde_catalogue_create(&bare, NULL), SONDE_OK);
    assert_int_equal(sonde_observer_create(bare, &observer, NULL), SONDE_OK);
    assert_int_equal(sonde_outfeed_attach(queue, bare, observer, &diag), SONDE_ENOTFOUND);
    assert_string_equal(
        sonde_diag_line(&diag, buf, sizeof buf),
        "outfeed 'q': no parameter has a gradient (expected parameters that are trained)");
    sonde_observer_destroy(observer);
    sonde_outfeed_destroy(queue);
    sonde_catalogue_destroy(bare);
    options.per = SONDE_OUTFEED_MICRO_BATCH;
    assert_int_equal(sonde_outfeed_create(&options, &queue, NULL), SONDE_OK);
    assert_int_equal(sonde_outfeed_add_gradients(queue, SONDE_OUTFEED_BEFORE_APPLY, NULL),
                     SONDE_EINVAL);
    sonde_outfeed_destroy(queue);
    sonde_outfeed_destroy(NULL);
}

static void a_queue_in_use_takes_no_more_tensors(void **state)
{
    const sonde_outfeed_options options =
        feed_options(4, SONDE_OUTFEED_BLOCK, SONDE_OUTFEED_STEP);
    feed f;

    (void)state;
    assert_int_equal(feed_open(&f, &options, (sonde_call_shape){1, 1, 1}), SONDE_OK);
    assert_int_equal(sonde_outfeed_add(f.queue, "w", NULL, NULL), SONDE_OK);
    assert_int_equal(feed_bind(&f, NULL), SONDE_OK);
    assert_int_equal(sonde_outfeed_add(f.queue, "s", NULL, NULL), SONDE_ESTATE);
    assert_int_equal(
        sonde_outfeed_add_gradients(f.queue, SONDE_OUTFEED_BEFORE_APPLY, NULL),
        SONDE_ESTATE);
    feed_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_the_references),
        cmocka_unit_test(not_a_number_and_infinities),
        cmocka_unit_test(no_rows_are_no_data),
        cmocka_unit_test(no_allocation_failure_is_lost),
        cmocka_unit_test(options_that_cannot_be),
        cmocka_unit_test(tensors_that_cannot_be),
        cmocka_unit_test(gradients_that_cannot_be),
        cmocka_unit_test(a_queue_in_use_takes_no_more_tensors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

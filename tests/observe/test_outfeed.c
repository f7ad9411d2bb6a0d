/*
 * test_outfeed.c - what outfeed queues carry: keys, filters, gradients, rows.
 */
#include "observe/feed.h"
#include "base/macros.h"

static const sonde_call_shape one = {1, 1, 1}, four = {1, 4, 1};

/* --- stacking --------------------------------------------------------------------- */

static void rows_are_stacked_in_the_order_of_adding(void **state)
{
    const sonde_outfeed_options options =
        feed_options(10, SONDE_OUTFEED_BLOCK, SONDE_OUTFEED_STEP);
    sonde_outfeed_batch batch;
    feed f;

    (void)state;
    assert_int_equal(feed_open(&f, &options, one), SONDE_OK);
    assert_int_equal(sonde_outfeed_add(f.queue, "out", "Layer_acts", NULL), SONDE_OK);
    assert_int_equal(sonde_outfeed_add(f.queue, "s", NULL, NULL), SONDE_OK);
    assert_int_equal(sonde_outfeed_add(f.queue, "Gradient___w", NULL, NULL), SONDE_OK);
    assert_int_equal(feed_bind(&f, NULL), SONDE_OK);
    feed_steps(&f, 3);
    batch = feed_take(&f);
    assert_int_equal(batch.count, 3);
    assert_int_equal(batch.rows, 3);
    feed_expect_shape(&batch.entries[0], "Layer_acts", "(3, 2)");
    feed_expect_shape(&batch.entries[1], "s", "(3)");
    feed_expect_shape(&batch.entries[2], "w_grad", "(3, 2)");
    for (int step = 0; step < 3; step++) {
        assert_true(feed_number(&batch.entries[0], 2 * step) ==
                    feed_value(FEED_OUT, step, 0, 0));
        assert_true(feed_number(&batch.entries[0], 2 * step + 1) ==
                    feed_value(FEED_OUT, step, 0, 0) + 0.5F);
        assert_true(feed_number(&batch.entries[1], step) ==
                    feed_value(FEED_S, step, 0, 0));
        assert_true(feed_number(&batch.entries[2], 2 * step) ==
                    feed_value(FEED_GRAD_W, step, 0, 0));
    }
    /* All since the last time, and the last batch stays while the next one is made. */
    feed_steps(&f, 2);
    assert_true(feed_number(&batch.entries[1], 2) == feed_value(FEED_S, 2, 0, 0));
    batch = feed_take(&f);
    assert_int_equal(batch.rows, 2);
    assert_true(feed_number(&batch.entries[1], 0) == feed_value(FEED_S, 3, 0, 0));
    assert_true(feed_number(&batch.entries[1], 1) == feed_value(FEED_S, 4, 0, 0));
    batch = feed_take(&f);
    assert_int_equal(batch.rows, 0);
    assert_int_equal(batch.count, 3);
    feed_expect_shape(&batch.entries[0], "Layer_acts", "(0, 2)");
    assert_int_equal(sonde_outfeed_get_counts(f.queue).put, 5);
    assert_int_equal(sonde_outfeed_get_counts(f.queue).taken, 5);
    feed_close(&f);
}

/* Two replicas have an axis of their own, micro-batches a row each. */
static void replicas_and_micro_batches_have_their_places(void **state)
{
    const sonde_call_shape shape = {1, 3, 2};
    const sonde_outfeed_options options =
        feed_options(6, SONDE_OUTFEED_BLOCK, SONDE_OUTFEED_MICRO_BATCH);
    sonde_outfeed_batch batch;
    feed f;

    (void)state;
    assert_int_equal(feed_open(&f, &options, shape), SONDE_OK);
    assert_int_equal(sonde_outfeed_add(f.queue, "out", NULL, NULL), SONDE_OK);
    assert_int_equal(sonde_outfeed_add(f.queue, "s", NULL, NULL), SONDE_OK);
    assert_int_equal(feed_bind(&f, NULL), SONDE_OK);
    feed_steps(&f, 2);
    batch = feed_take(&f);
    assert_int_equal(batch.rows, 6);
    feed_expect_shape(&batch.entries[0], "out", "(6, 2, 2)");
    feed_expect_shape(&batch.entries[1], "s", "(6, 2)");
    for (int k = 0; k < 6; k++) {
        for (int r = 0; r < 2; r++) {
            assert_true(feed_number(&batch.entries[0], 4 * k + 2 * r) ==
                        feed_value(FEED_OUT, k / 3, k % 3, r));
            assert_true(feed_number(&batch.entries[1], 2 * k + r) ==
                        feed_value(FEED_S, k / 3, k % 3, r));
        }
    }
    feed_close(&f);
}

/* A row a step holds the last micro-batch, and what comes once a step. */
static void a_row_a_step_is_the_last_micro_batch(void **state)
{
    const sonde_outfeed_options options =
        feed_options(6, SONDE_OUTFEED_BLOCK, SONDE_OUTFEED_STEP);
    sonde_outfeed_batch batch;
    feed f;

    (void)state;
    assert_int_equal(feed_open(&f, &options, four), SONDE_OK);
    assert_int_equal(sonde_outfeed_add(f.queue, "out", NULL, NULL), SONDE_OK);
    assert_int_equal(sonde_outfeed_add(f.queue, "UpdatedVar___w", NULL, NULL), SONDE_OK);
    assert_int_equal(feed_bind(&f, NULL), SONDE_OK);
    feed_steps(&f, 2);
    batch = feed_take(&f);
    assert_int_equal(batch.rows, 2);
    assert_true(feed_number(&batch.entries[0], 2) == feed_value(FEED_OUT, 1, 3, 0));
    assert_true(feed_number(&batch.entries[1], 2) == feed_value(FEED_UPDATED_W, 1, 3, 0));
    feed_close(&f);
}

/* On a schedule, a row at each of its steps; a queue of one thread has half the memory,
 * and the batch lies where the next rows come. */
static void a_schedule_says_which_steps(void **state)
{
    const int64_t steps[] = {1, 4};
    const sonde_schedule when = {.steps = steps, .step_count = 2};
    sonde_outfeed_options options =
        feed_options(3, SONDE_OUTFEED_ERROR, SONDE_OUTFEED_STEP);

    (void)state;
    options.when = &when;
    for (int i = 0; i < 2; i++) {
        sonde_outfeed_batch batch;
        const void *first = NULL;
        feed f;

        options.one_thread = i == 1;
        assert_int_equal(feed_open(&f, &options, one), SONDE_OK);
        assert_int_equal(sonde_outfeed_add(f.queue, "s", NULL, NULL), SONDE_OK);
        assert_int_equal(feed_bind(&f, NULL), SONDE_OK);
        feed_steps(&f, 3);
        batch = feed_take(&f);
        assert_int_equal(batch.rows, 1);
        assert_true(feed_number(&batch.entries[0], 0) == feed_value(FEED_S, 1, 0, 0));
        first = batch.entries[0].value.data;
        feed_steps(&f, 5);
        batch = feed_take(&f);
        assert_int_equal(batch.rows, 1);
        assert_true(feed_number(&batch.entries[0], 0) == feed_value(FEED_S, 4, 0, 0));
        assert_int_equal(batch.entries[0].value.data == first, i == 1);
        feed_close(&f);
    }
}

/* --- gradients -------------------------------------------------------------------- */

static void expect_gradients(sonde_call_shape shape, sonde_outfeed_gradients mode,
                             int64_t rows, uint32_t s, uint32_t w)
{
    const sonde_outfeed_options options =
        feed_options(32, SONDE_OUTFEED_BLOCK,
                     mode == SONDE_OUTFEED_BEFORE_APPLY ? SONDE_OUTFEED_STEP
                                                        : SONDE_OUTFEED_MICRO_BATCH);
    const int last = shape.micro_batches - 1;
    sonde_outfeed_batch batch;
    feed f;

    assert_int_equal(feed_open(&f, &options, shape), SONDE_OK);
    assert_int_equal(sonde_outfeed_add_gradients(f.queue, mode, NULL), SONDE_OK);
    assert_int_equal(feed_bind(&f, NULL), SONDE_OK);
    feed_steps(&f, 5);
    batch = feed_take(&f);
    assert_int_equal(batch.count, 2);
    assert_int_equal(batch.rows, rows);
    assert_string_equal(batch.entries[0].key, "s_grad"); /* the last parameter first */
    assert_string_equal(batch.entries[1].key, "w_grad");
    assert_true(feed_number(&batch.entries[0], rows - 1) == feed_value(s, 4, last, 0));
    assert_true(feed_number(&batch.entries[1], 2 * rows - 1) ==
                feed_value(w, 4, last, 0) + 0.5F);
    assert_true(feed_number(&batch.entries[0], 0) ==
                feed_value(s, 0, rows == 5 ? last : 0, 0));
    feed_close(&f);
}

static void gradients_before_and_after_accumulation(void **state)
{
    (void)state;
    expect_gradients(four, SONDE_OUTFEED_AFTER_COMPUTE, 20, FEED_GRAD_S, FEED_GRAD_W);
    expect_gradients(four, SONDE_OUTFEED_BEFORE_APPLY, 5, FEED_ACCUM_S, FEED_ACCUM_W);
    expect_gradients(one, SONDE_OUTFEED_AFTER_COMPUTE, 5, FEED_GRAD_S, FEED_GRAD_W);
    expect_gradients(one, SONDE_OUTFEED_BEFORE_APPLY, 5, FEED_GRAD_S, FEED_GRAD_W);
}

/* --- filters ---------------------------------------------------------------------- */

static void keys_that_hold_no_filter_stay_out(void **state)
{
    static const char *const filters[] = {"ayer", "w_gr"};
    sonde_outfeed_options options =
        feed_options(4, SONDE_OUTFEED_BLOCK, SONDE_OUTFEED_STEP);
    sonde_outfeed_batch batch;
    feed f;

    (void)state;
    options.filters = filters;
    options.filter_count = 2;
    assert_int_equal(feed_open(&f, &options, one), SONDE_OK);
    assert_int_equal(sonde_outfeed_add(f.queue, "s", "layer", NULL), SONDE_OK);
    assert_int_equal(sonde_outfeed_add(f.queue, "w", "LAYER", NULL), SONDE_OK);
    assert_int_equal(sonde_outfeed_add(f.queue, "out", "Layer 2", NULL), SONDE_OK);
    assert_int_equal(
        sonde_outfeed_add_gradients(f.queue, SONDE_OUTFEED_BEFORE_APPLY, NULL), SONDE_OK);
    assert_int_equal(feed_bind(&f, NULL), SONDE_OK);
    /* What stays out is not even asked for. */
    assert_int_equal(sonde_observer_ever_wants(f.observer, FEED_W), 0);
    assert_int_equal(sonde_observer_ever_wants(f.observer, FEED_GRAD_S), 0);
    assert_int_equal(sonde_observer_ever_wants(f.observer, FEED_GRAD_W), SONDE_HOW_RAW);
    feed_steps(&f, 1);
    batch = feed_take(&f);
    assert_int_equal(batch.count, 3);
    assert_string_equal(batch.entries[0].key, "layer");
    assert_string_equal(batch.entries[1].key, "Layer 2");
    assert_string_equal(batch.entries[2].key, "w_grad");
    feed_close(&f);
}

static void filters_that_leave_nothing_are_told(void **state)
{
    static const char *const filters[] = {"Dense_128"};
    sonde_outfeed_options options =
        feed_options(4, SONDE_OUTFEED_BLOCK, SONDE_OUTFEED_STEP);
    feed f;

    (void)state;
    options.filters = filters;
    options.filter_count = 1;
    assert_int_equal(feed_open(&f, &options, one), SONDE_OK);
    assert_int_equal(sonde_outfeed_add(f.queue, "out", NULL, NULL), SONDE_OK);
    feed_listen();
    assert_int_equal(feed_bind(&f, NULL), SONDE_OK);
    sonde_log_set_sink(NULL, NULL);
    assert_int_equal(feed_warnings, 1);
    assert_string_equal(feed_message, "outfeed 'q': no key passes its filters");
    feed_steps(&f, 2);
    assert_int_equal(feed_take(&f).count, 0);
    feed_close(&f);
}

/* Rows of the first observer are gone, and the keys are those of before. */
static void a_queue_is_attached_anew(void **state)
{
    const sonde_outfeed_options options =
        feed_options(4, SONDE_OUTFEED_ERROR, SONDE_OUTFEED_STEP);
    sonde_outfeed_batch batch;
    feed f;

    (void)state;
    assert_int_equal(feed_open(&f, &options, one), SONDE_OK);
    assert_int_equal(sonde_outfeed_add(f.queue, "w", "key", NULL), SONDE_OK);
    assert_int_equal(feed_bind(&f, NULL), SONDE_OK);
    feed_steps(&f, 3);
    sonde_observer_destroy(f.observer);
    assert_int_equal(sonde_observer_create(f.catalogue, &f.observer, NULL), SONDE_OK);
    assert_int_equal(feed_bind(&f, NULL), SONDE_OK);
    feed_steps(&f, 1);
    batch = feed_take(&f);
    assert_int_equal(batch.count, 1);
    assert_int_equal(batch.rows, 1);
    assert_string_equal(batch.entries[0].key, "key");
    assert_true(feed_number(&batch.entries[0], 0) == feed_value(FEED_W, 3, 0, 0));
    feed_close(&f);
}

/* --- memory ----------------------------------------------------------------------- */

static size_t allocated;

static void *allocate_counting(void *user, size_t align, size_t size)
{
    void *block = NULL;

    (void)user;
    allocated += size;
    return posix_memalign(&block, SONDE_MAX(align, sizeof block), size) == 0 ? block
                                                                             : NULL;
}

static void release(void *user, void *block)
{
    (void)user;
    free(block);
}

/* Bytes that binding a queue of so many rows of eight bytes allocates. */
static size_t bytes_for(int64_t rows, bool one_thread)
{
    static const sonde_allocator counting = {allocate_counting, release, NULL};
    sonde_outfeed_options options =
        feed_options(rows, SONDE_OUTFEED_DROP_OLDEST, SONDE_OUTFEED_STEP);
    feed f;

    options.one_thread = one_thread;
    assert_int_equal(feed_open(&f, &options, one), SONDE_OK);
    assert_int_equal(sonde_outfeed_add(f.queue, "w", NULL, NULL), SONDE_OK);
    allocated = 0;
    sonde_set_allocator(&counting);
    assert_int_equal(feed_bind(&f, NULL), SONDE_OK);
    sonde_set_allocator(NULL);
    feed_close(&f);
    return allocated;
}

/* Twice, because the producer continues while the consumer reads. */
static void memory_is_rows_times_their_bytes(void **state)
{
    enum { ROWS = 10000 };

    (void)state;
    assert_in_range(bytes_for(2 * ROWS, false) - bytes_for(ROWS, false), 2 * ROWS * 8,
                    2 * ROWS * 8 + 256);
    assert_in_range(bytes_for(2 * ROWS, true) - bytes_for(ROWS, true), ROWS * 8,
                    ROWS * 8 + 256);
}

static void nothing_is_allocated_in_use(void **state)
{
    for (int full = 0; full <= SONDE_OUTFEED_ERROR; full++) {
        const sonde_outfeed_options options =
            feed_options(40, (sonde_outfeed_full)full, SONDE_OUTFEED_MICRO_BATCH);
        sonde_outfeed_batch batch = {0};
        feed f;

        (void)state;
        assert_int_equal(feed_open(&f, &options, four), SONDE_OK);
        assert_int_equal(
            sonde_outfeed_add_gradients(f.queue, SONDE_OUTFEED_AFTER_COMPUTE, NULL),
            SONDE_OK);
        assert_int_equal(feed_bind(&f, NULL), SONDE_OK);
        feed_listen();
        alloc_failure_begin(0);
        for (int i = 0; i < 3; i++) {
            feed_steps(&f, full == SONDE_OUTFEED_BLOCK ? 10 : 15);
            if (sonde_outfeed_dequeue(f.queue, &batch, NULL) != SONDE_OK) {
                batch = feed_take(&f); /* the rows that fit */
            }
            assert_true(batch.rows == 40);
        }
        assert_int_equal(alloc_failure_count, 0);
        (void)alloc_failure_end();
        sonde_log_set_sink(NULL, NULL);
        feed_close(&f);
    }
}

static sonde_err build(void *user)
{
    static const char *const filters[] = {"grad", "key"};
    sonde_outfeed_options options =
        feed_options(4, SONDE_OUTFEED_DROP_OLDEST, SONDE_OUTFEED_STEP);
    feed f;
    sonde_err err = SONDE_OK;

    (void)user;
    options.filters = filters;
    options.filter_count = 2;
    err = feed_open(&f, &options, one);
    if (err == SONDE_OK) {
        err = sonde_outfeed_add(f.queue, "out", "key", NULL);
    }
    if (err == SONDE_OK) {
        err = sonde_outfeed_add_gradients(f.queue, SONDE_OUTFEED_BEFORE_APPLY, NULL);
    }
    if (err == SONDE_OK) {
        err = feed_bind(&f, NULL);
    }
    if (err == SONDE_OK) {
        sonde_text text = {0};

        feed_steps(&f, 2);
        if (sonde_outfeed_dequeue(f.queue, &(sonde_outfeed_batch){0}, NULL) == SONDE_OK) {
            const sonde_outfeed_batch none = {0};

            err = sonde_outfeed_table(&none, "t", 1, &text);
        }
        sonde_text_fini(&text);
    }
    feed_close(&f);
    return err;
}

static void no_allocation_failure_is_lost(void **state)
{
    (void)state;
    assert_true(net_alloc_failures(build, NULL) > 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_stacked_in_the_order_of_adding),
        cmocka_unit_test(replicas_and_micro_batches_have_their_places),
        cmocka_unit_test(a_row_a_step_is_the_last_micro_batch),
        cmocka_unit_test(a_schedule_says_which_steps),
        cmocka_unit_test(gradients_before_and_after_accumulation),
        cmocka_unit_test(keys_that_hold_no_filter_stay_out),
        cmocka_unit_test(filters_that_leave_nothing_are_told),
        cmocka_unit_test(a_queue_is_attached_anew),
        cmocka_unit_test(memory_is_rows_times_their_bytes),
        cmocka_unit_test(nothing_is_allocated_in_use),
        cmocka_unit_test(no_allocation_failure_is_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * test_outfeed_losses.c - rows that do not get in, or not stay: counted, told, never
 * torn.
 */
#include "observe/feed.h"
#include "base/macros.h"

static const sonde_call_shape one = {1, 1, 1};

static void the_oldest_rows_go_and_are_counted(void **state)
{
    sonde_outfeed_options options =
        feed_options(4, SONDE_OUTFEED_DROP_OLDEST, SONDE_OUTFEED_STEP);

    (void)state;
    for (int same = 0; same < 2; same++) {
        sonde_outfeed_batch batch;
        sonde_outfeed_counts counts;
        feed f;

        options.one_thread = same == 1;
        assert_int_equal(feed_open(&f, &options, one), SONDE_OK);
        assert_int_equal(sonde_outfeed_add(f.queue, "out", NULL, NULL), SONDE_OK);
        assert_int_equal(sonde_outfeed_add(f.queue, "s", NULL, NULL), SONDE_OK);
        assert_int_equal(feed_bind(&f, NULL), SONDE_OK);
        feed_listen();
        for (int64_t steps = 1; steps < 12; steps++) {
            const int64_t first = f.step, kept = steps < 4 ? steps : 4;

            feed_steps(&f, (int)steps);
            batch = feed_take(&f);
            assert_int_equal(batch.rows, kept);
            for (int64_t i = 0; i < kept; i++) {
                const int64_t step = first + steps - kept + i;

                assert_true(feed_number(&batch.entries[0], 2 * i + 1) ==
                            feed_value(FEED_OUT, step, 0, 0) + 0.5F);
                assert_true(feed_number(&batch.entries[1], i) ==
                            feed_value(FEED_S, step, 0, 0));
            }
        }
        sonde_log_set_sink(NULL, NULL);
        assert_int_equal(feed_warnings, 1); /* the first is told, all are counted */
        counts = sonde_outfeed_get_counts(f.queue);
        assert_int_equal(counts.put, 66);
        assert_int_equal(counts.dropped, 1 + 2 + 3 + 4 + 5 + 6 + 7);
        assert_int_equal(counts.taken, 66 - 28);
        assert_int_equal(counts.refused + counts.partial, 0);
        feed_close(&f);
    }
}

static void a_full_queue_is_an_error_at_the_next_dequeue(void **state)
{
    sonde_outfeed_options options =
        feed_options(3, SONDE_OUTFEED_ERROR, SONDE_OUTFEED_STEP);
    sonde_outfeed_batch batch = {0};
    sonde_diag diag = {0};
    char line[SONDE_DIAG_LINE];
    feed f;

    (void)state;
    options.one_thread = true;
    assert_int_equal(feed_open(&f, &options, one), SONDE_OK);
    assert_int_equal(sonde_outfeed_add(f.queue, "s", NULL, NULL), SONDE_OK);
    assert_int_equal(feed_bind(&f, NULL), SONDE_OK);
    feed_listen();
    feed_steps(&f, 5);
    sonde_log_set_sink(NULL, NULL);
    assert_int_equal(feed_errors, 1);
    assert_int_equal(sonde_outfeed_dequeue(f.queue, &batch, &diag), SONDE_ERANGE);
    assert_string_equal(sonde_diag_line(&diag, line, sizeof line),
                        "outfeed 'q': it was full, and 2 rows are lost (expected at most "
                        "3 rows between dequeues)");
    batch = feed_take(&f); /* those that fit are there */
    assert_int_equal(batch.rows, 3);
    assert_true(feed_number(&batch.entries[0], 2) == feed_value(FEED_S, 2, 0, 0));
    feed_steps(&f, 1);
    batch = feed_take(&f);
    assert_int_equal(batch.rows, 1);
    assert_true(feed_number(&batch.entries[0], 0) == feed_value(FEED_S, 5, 0, 0));
    assert_int_equal(sonde_outfeed_get_counts(f.queue).refused, 2);
    feed_close(&f);
}

/* A tensor that does not come, or in another shape; a step that is not ended. */
static void rows_that_are_not_whole_do_not_get_in(void **state)
{
    const sonde_outfeed_options options =
        feed_options(9, SONDE_OUTFEED_BLOCK, SONDE_OUTFEED_MICRO_BATCH);
    sonde_coordinate at = {.mode_step = 2, .global_step = 2};
    float values[3] = {0};
    const sonde_view large = sonde_view_of(SONDE_F32, 1, (const int64_t[]){3}, values);
    sonde_outfeed_batch batch;
    feed f;

    (void)state;
    assert_int_equal(feed_open(&f, &options, one), SONDE_OK);
    assert_int_equal(sonde_outfeed_add(f.queue, "out", NULL, NULL), SONDE_OK);
    assert_int_equal(sonde_outfeed_add(f.queue, "s", NULL, NULL), SONDE_OK);
    assert_int_equal(feed_bind(&f, NULL), SONDE_OK);
    feed_listen();
    feed_steps(&f, 1);
    f.skip = FEED_S;
    feed_steps(&f, 1);
    f.skip = FEED_OUT;
    assert_true(
        sonde_observer_begin_step(f.observer, sonde_observer_get_gate(f.observer), &at));
    feed_observe(&f, FEED_S, 2, 0, 0);
    sonde_observer_observe(f.observer, FEED_OUT, &large, NULL, 0, 0);
    sonde_observer_end_step(f.observer);
    f.skip = FEED_COUNT;
    at.mode_step = 3;
    assert_true(
        sonde_observer_begin_step(f.observer, sonde_observer_get_gate(f.observer), &at));
    feed_observe(&f, FEED_S, 3, 0, 0); /* and broken off */
    f.step = 4;
    feed_steps(&f, 1);
    sonde_log_set_sink(NULL, NULL);
    batch = feed_take(&f);
    assert_int_equal(batch.rows, 2);
    assert_true(feed_number(&batch.entries[1], 0) == feed_value(FEED_S, 0, 0, 0));
    assert_true(feed_number(&batch.entries[1], 1) == feed_value(FEED_S, 4, 0, 0));
    assert_int_equal(sonde_outfeed_get_counts(f.queue).partial, 3);
    assert_int_equal(feed_errors, 1);
    feed_close(&f);
}

/* A dequeue in the middle of a row: the row is not torn, and comes with the next. */
static void a_row_is_never_torn(void **state)
{
    const sonde_outfeed_full fulls[] = {SONDE_OUTFEED_BLOCK, SONDE_OUTFEED_DROP_OLDEST,
                                        SONDE_OUTFEED_ERROR, SONDE_OUTFEED_ERROR};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(fulls); i++) {
        const sonde_coordinate at = {.mode_step = 2, .global_step = 2};
        sonde_outfeed_options options = feed_options(4, fulls[i], SONDE_OUTFEED_STEP);
        sonde_outfeed_batch batch;
        feed f;

        options.one_thread = i == 3;
        assert_int_equal(feed_open(&f, &options, one), SONDE_OK);
        assert_int_equal(sonde_outfeed_add(f.queue, "out", NULL, NULL), SONDE_OK);
        assert_int_equal(sonde_outfeed_add(f.queue, "s", NULL, NULL), SONDE_OK);
        assert_int_equal(feed_bind(&f, NULL), SONDE_OK);
        feed_steps(&f, 2);
        assert_true(sonde_observer_begin_step(f.observer,
                                              sonde_observer_get_gate(f.observer), &at));
        feed_observe(&f, FEED_OUT, 2, 0, 0);
        batch = feed_take(&f);
        assert_int_equal(batch.rows, 2);
        feed_observe(&f, FEED_S, 2, 0, 0);
        assert_int_equal(feed_take(&f).rows, 0);
        sonde_observer_end_step(f.observer);
        batch = feed_take(&f);
        assert_int_equal(batch.rows, 1);
        assert_true(feed_number(&batch.entries[0], 1) ==
                    feed_value(FEED_OUT, 2, 0, 0) + 0.5F);
        assert_true(feed_number(&batch.entries[1], 0) == feed_value(FEED_S, 2, 0, 0));
        feed_close(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_oldest_rows_go_and_are_counted),
        cmocka_unit_test(a_full_queue_is_an_error_at_the_next_dequeue),
        cmocka_unit_test(rows_that_are_not_whole_do_not_get_in),
        cmocka_unit_test(a_row_is_never_torn),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

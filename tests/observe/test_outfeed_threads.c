/*
 * test_outfeed_threads.c - a producer and a consumer at the same time. tsan: yes
 */
#include "observe/feed.h"
#include "base/macros.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

static const sonde_call_shape one = {1, 1, 1};

enum { STEPS = 3000 };

typedef struct consumer {
    sonde_outfeed *queue;
    int64_t next;  /* the step that comes next, if none is lost */
    int64_t rows;  /* taken */
    int64_t holes; /* steps passed over */
    uint64_t errors;
    bool wrong;
} consumer;

/* Every row must hold both tensors of one step, steps in order. */
static void look(consumer *self, const sonde_outfeed_batch *batch)
{
    for (int64_t i = 0; i < batch->rows; i++) {
        const float s = feed_number(&batch->entries[1], i);
        const int64_t step = (int64_t)(s - feed_value(FEED_S, 0, 0, 0)) / 100;
        const float *out = (const float *)batch->entries[0].value.data + 2 * i;

        self->wrong = self->wrong || s != feed_value(FEED_S, step, 0, 0) ||
                      out[0] != feed_value(FEED_OUT, step, 0, 0) ||
                      out[1] != out[0] + 0.5F || step < self->next;
        self->holes += step - self->next;
        self->next = step + 1;
        self->rows++;
    }
}

static void *consume(void *user)
{
    consumer *self = user;
    sonde_err err = SONDE_OK;

    do {
        sonde_outfeed_batch batch;

        err = sonde_outfeed_wait(self->queue, 1, -1.0);
        if (sonde_outfeed_dequeue(self->queue, &batch, NULL) == SONDE_OK) {
            look(self, &batch);
        } else {
            self->errors++;
        }
    } while (err == SONDE_OK);
    return NULL;
}

static void silent(void *user, sonde_log_level level, const char *room,
                   const char *message)
{
    (void)user, (void)level, (void)room, (void)message;
}

static sonde_outfeed_counts run_both(sonde_outfeed_full full, int64_t rows, consumer *got)
{
    const sonde_outfeed_options options = feed_options(rows, full, SONDE_OUTFEED_STEP);
    sonde_outfeed_counts counts;
    sonde_outfeed_batch batch;
    pthread_t thread;
    feed f;

    assert_int_equal(feed_open(&f, &options, one), SONDE_OK);
    assert_int_equal(sonde_outfeed_add(f.queue, "out", NULL, NULL), SONDE_OK);
    assert_int_equal(sonde_outfeed_add(f.queue, "s", NULL, NULL), SONDE_OK);
    assert_int_equal(feed_bind(&f, NULL), SONDE_OK);
    *got = (consumer){.queue = f.queue};
    sonde_log_set_sink(silent, NULL);
    assert_int_equal(pthread_create(&thread, NULL, consume, got), 0);
    feed_steps(&f, STEPS);
    sonde_outfeed_close(f.queue);
    assert_int_equal(pthread_join(thread, NULL), 0);
    sonde_log_set_sink(NULL, NULL);
    while (sonde_outfeed_dequeue(f.queue, &batch, NULL) == SONDE_ERANGE) {
        got->errors++; /* closed between the error and the rows behind it */
    }
    look(got, &batch);
    counts = sonde_outfeed_get_counts(f.queue);
    feed_close(&f);
    assert_false(got->wrong);
    assert_int_equal(counts.partial, 0);
    assert_int_equal(got->rows, (int64_t)counts.taken);
    return counts;
}

static void who_blocks_loses_nothing(void **state)
{
    static const int64_t sizes[] = {1, 2, 7, 100};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(sizes); i++) {
        consumer got;
        const sonde_outfeed_counts counts = run_both(SONDE_OUTFEED_BLOCK, sizes[i], &got);

        assert_int_equal(got.rows, STEPS);
        assert_int_equal(got.holes, 0);
        assert_int_equal(counts.put, STEPS);
        assert_int_equal(counts.dropped + counts.refused, 0);
    }
}

static void what_is_dropped_or_refused_adds_up(void **state)
{
    static const int64_t sizes[] = {1, 2, 7, 100};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(sizes); i++) {
        consumer got;
        sonde_outfeed_counts counts = run_both(SONDE_OUTFEED_DROP_OLDEST, sizes[i], &got);

        assert_int_equal(counts.put, STEPS);
        assert_int_equal(counts.taken + counts.dropped, STEPS);
        assert_int_equal(got.next, STEPS); /* the newest is never the one that goes */
        assert_int_equal(got.holes, (int64_t)counts.dropped);
        counts = run_both(SONDE_OUTFEED_ERROR, sizes[i], &got);
        assert_int_equal(counts.put + counts.refused, STEPS);
        assert_int_equal(counts.taken, counts.put);
        assert_int_equal(got.errors > 0, counts.refused > 0);
    }
}

/* --- a producer that waits -------------------------------------------------------- */

typedef struct producer {
    feed *f;
    atomic_bool done;
} producer;

static void *produce(void *user)
{
    producer *self = user;

    feed_steps(self->f, 5);
    atomic_store(&self->done, true); /* with the load in the tests */
    return NULL;
}

static void nap(void)
{
    const struct timespec moment = {.tv_nsec = 20000000};

    (void)nanosleep(&moment, NULL);
}

static void a_full_queue_holds_the_producer_until_close(void **state)
{
    const sonde_outfeed_options options =
        feed_options(2, SONDE_OUTFEED_BLOCK, SONDE_OUTFEED_STEP);
    sonde_outfeed_batch batch;
    pthread_t thread;
    feed f;
    producer p = {.f = &f};

    (void)state;
    assert_int_equal(feed_open(&f, &options, one), SONDE_OK);
    assert_int_equal(sonde_outfeed_add(f.queue, "s", NULL, NULL), SONDE_OK);
    assert_int_equal(feed_bind(&f, NULL), SONDE_OK);
    assert_int_equal(sonde_outfeed_wait(f.queue, 1, 0.01), SONDE_ETIMEOUT);
    assert_int_equal(pthread_create(&thread, NULL, produce, &p), 0);
    assert_int_equal(sonde_outfeed_wait(f.queue, 100, -1.0), SONDE_OK); /* full */
    nap();
    assert_false(atomic_load(&p.done));
    assert_int_equal(feed_take(&f).rows, 2);
    assert_int_equal(sonde_outfeed_wait(f.queue, 2, 10.0), SONDE_OK);
    nap();
    assert_false(atomic_load(&p.done));
    sonde_log_set_sink(silent, NULL);
    sonde_outfeed_close(f.queue);
    assert_int_equal(pthread_join(thread, NULL), 0);
    sonde_log_set_sink(NULL, NULL);
    assert_true(atomic_load(&p.done));
    assert_int_equal(sonde_outfeed_wait(f.queue, 2, 0.0), SONDE_OK); /* what is in */
    batch = feed_take(&f);
    assert_int_equal(batch.rows, 2);
    assert_true(feed_number(&batch.entries[0], 1) == feed_value(FEED_S, 3, 0, 0));
    assert_int_equal(sonde_outfeed_wait(f.queue, 1, -1.0), SONDE_EEND);
    assert_int_equal(sonde_outfeed_get_counts(f.queue).refused, 1);
    feed_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_blocks_loses_nothing),
        cmocka_unit_test(what_is_dropped_or_refused_adds_up),
        cmocka_unit_test(a_full_queue_holds_the_producer_until_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

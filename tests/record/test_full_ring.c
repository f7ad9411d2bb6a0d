/*
 * test_full_ring.c - a ring that is full: the producer waits or drops, as it was asked
 * to.
 */
#include "record/faulty.h"
#include "record/record_sink.h"

/* --- full rings ------------------------------------------------------------------- */

typedef struct order {
    int64_t last;
    uint64_t count;
} order;

static void ascending(void *user, const sonde__record_index_line *line, const void *bytes,
                      size_t size)
{
    order *const seen = user;
    float first = 0.0F;

    assert_int_equal(size, BYTES);
    memcpy(&first, bytes, sizeof first);
    assert_true(first == (float)line->step);
    assert_true(line->step > seen->last);
    seen->last = line->step;
    seen->count++;
}

static void full_rings_wait_or_drop(void **state)
{
    enum { STEPS = 100, ROWS = 40 /* more at each step */ };
    char path[RUN_PATH];
    sonde_catalogue *catalogue = run_catalogue(1, FLOATS);

    (void)state;
    for (int policy = SONDE_WHEN_FULL_DEFAULT; policy <= SONDE_WHEN_FULL_DROP; policy++) {
        sonde_recorder *recorder = create_faulty(
            SONDE_OPTIONS(sonde_recorder, .path = run_path(path, "policy"),
                          .ring_bytes = 64 * 1024, .when_full = (sonde_when_full)policy),
            catalogue);
        order seen = {.last = -1};
        run_content content = {.value = ascending, .user = &seen};
        sonde_recorder_stats stats;
        sonde_vitals vitals;
        sonde_err err = SONDE_OK;

        sonde_vitals_init(&vitals);
        atomic_store(&faulty.slow, true);
        for (int64_t step = 0; step < STEPS; step++) {
            const sonde_coordinate at = run_at(step);

            put(recorder, step);
            for (int row = 0; row < ROWS; row++) {
                sonde__recorder_put_vitals(recorder, 0, &at, &vitals);
            }
        }
        atomic_store(&faulty.slow, false);
        assert_true(sonde__recorder_drain(recorder, 60));
        sonde__recorder_get_stats(recorder, &stats);
        err = sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL);
        run_read(path, 0, &content);
        assert_int_equal(stats.records, content.values);
        assert_int_equal(stats.rows, content.rows);
        assert_int_equal(content.values + content.rows + stats.lost_ring_full,
                         (2 + ROWS) * STEPS);
        if (policy == SONDE_WHEN_FULL_WAIT) {
            assert_int_equal(stats.lost_ring_full, 0);
            assert_int_equal(err, SONDE_OK);
        } else {
            /* by default a value that has waited may leave room for its row */
            assert_true(stats.lost_ring_full > 0 || policy == SONDE_WHEN_FULL_DEFAULT);
            assert_int_equal(err, stats.lost_ring_full > 0 ? SONDE_EIO : SONDE_OK);
        }
        if (policy == SONDE_WHEN_FULL_DROP) {
            assert_int_equal(stats.waits, 0);
            assert_true(content.values < STEPS);
        } else {
            assert_true(stats.waits > 0 && stats.waited_seconds > 0.0);
            assert_int_equal(content.values, STEPS);
            assert_int_equal(content.ends, STEPS);
        }
        run_remove(path);
    }
    sonde_catalogue_destroy(catalogue);
}

/* A value that no ring holds goes in a block of its own, in its turn. */
static void values_larger_than_the_ring_come_through(void **state)
{
    char path[RUN_PATH];
    const int64_t small = 1000, large = 200000;
    sonde_catalogue *catalogue = run_catalogue(1, 10);
    sonde_recorder *recorder = NULL;
    float *x = calloc((size_t)large, sizeof *x);
    run_content content = {0};

    (void)state;
    assert_non_null(x);
    recorder = run_create(
        SONDE_OPTIONS(sonde_recorder, .path = run_path(path, "large"), .ring_bytes = 1),
        catalogue);
    for (int64_t step = 0; step < 20; step++) {
        const sonde_coordinate at = run_at(step);
        const sonde_view view =
            sonde_view_of(SONDE_F32, 1, step % 3 == 1 ? &large : &small, x);

        x[0] = (float)step;
        sonde__recorder_put(recorder, 0, &at, &view);
    }
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL),
                     SONDE_OK);
    run_read(path, 0, &content);
    assert_int_equal(content.values, 20);
    assert_int_equal(content.bytes, (uint64_t)(7 * large + 13 * small) * 4);
    /* With a disk that is full and one such value on its way, the producer goes on. */
    run_remove(path);
    recorder = create_faulty(SONDE_OPTIONS(sonde_recorder, .path = path, .ring_bytes = 1,
                                           .wait_seconds = 0.05),
                             catalogue);
    atomic_store(&faulty.fault, ENOSPC);
    for (int64_t step = 0; step < 20; step++) {
        const sonde_coordinate at = run_at(step);
        const sonde_view view = sonde_view_of(SONDE_F32, 1, &large, x);

        sonde__recorder_put(recorder, 0, &at, &view);
    }
    atomic_store(&faulty.fault, 0);
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL),
                     SONDE_EIO);
    run_read(path, 0, &content);
    assert_in_range(content.values, 1, 19);
    free(x);
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_rings_wait_or_drop),
        cmocka_unit_test(values_larger_than_the_ring_come_through),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

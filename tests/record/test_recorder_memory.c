/*
 * test_recorder_memory.c - every allocation may fail: nothing leaks, nothing half-made
 * is left, and once a recorder runs it loses what it has no memory for, and counts it.
 * Putting allocates nothing.
 */
#include "record/run_dir.h"

#include "alloc_failure.h"
#include "record/record_sink.h"

enum { FLOATS = 3000 };

static sonde_err record(const char *path, const char *resume, bool compress,
                        const sonde_catalogue *catalogue, bool *began)
{
    sonde_recorder *recorder = NULL;
    static float x[FLOATS];
    const int64_t shape = FLOATS;
    const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, x);
    const sonde_coordinate at = run_at(0);
    static sonde_sketch sketch;
    sonde_vitals vitals;
    sonde_diag diag = {0};
    const sonde_err err = sonde__recorder_create(
        SONDE_OPTIONS(sonde_recorder, .path = path, .resume = resume,
                      .compress = compress, .program = "test", .wait_seconds = 1e-6,
                      .ring_bytes = 1 << 20),
        catalogue, &recorder, &diag);

    *began = err == SONDE_OK;
    if (err != SONDE_OK) {
        assert_null(recorder);
        assert_true(diag.found[0] != '\0');
        return err;
    }
    sonde_sketch_init(&sketch);
    sonde_vitals_init(&vitals);
    for (uint32_t id = 0; id < 3; id++) {
        sonde__recorder_put(recorder, id, &at, &view);
        sonde__recorder_put_vitals(recorder, id, &at, &vitals);
        sonde__recorder_put_sketch(recorder, id, &at, &sketch);
    }
    sonde__recorder_end_step(recorder, &at);
    return sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL);
}

/* Fails the n-th allocation and all after it, for n = 0, 1 ... until all succeed. */
static void fail_each(const char *path, bool resume, bool compress)
{
    sonde_catalogue *catalogue = run_catalogue(3, FLOATS);
    char id[33];
    bool done = false;
    size_t lossy = 0, failed = 0;

    for (size_t n = 0; !done; n++) {
        sonde_err err = SONDE_OK;
        bool began = false;

        run_remove(path);
        if (resume) {
            assert_int_equal(record(path, NULL, compress, catalogue, &began), SONDE_OK);
            (void)run_id(path, id);
        }
        alloc_failure_begin(n);
        err = record(path, resume ? id : NULL, compress, catalogue, &began);
        assert_int_equal(alloc_failure_end(), 0);
        done = err == SONDE_OK;
        if (began && !done) {
            run_content content = {0};

            assert_int_equal(err, SONDE_EIO); /* lost and told */
            run_read(path, 0, &content);
            lossy++;
        } else if (!began) {
            assert_int_equal(err, SONDE_ENOMEM);
            assert_true(resume || access(path, F_OK) != 0);
            failed++;
        }
        assert_true(n < 2000);
    }
    assert_true(failed > 5 && lossy > 3);
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

static void every_allocation_of_a_new_run_may_fail(void **state)
{
    char path[RUN_PATH];

    (void)state;
    fail_each(run_path(path, "memory"), false, false);
}

static void every_allocation_of_a_compressed_run_may_fail(void **state)
{
    char path[RUN_PATH];

    (void)state;
    fail_each(run_path(path, "memory-z"), false, true);
}

static void every_allocation_of_going_on_may_fail(void **state)
{
    char path[RUN_PATH];

    (void)state;
    fail_each(run_path(path, "memory-again"), true, false);
}

/* --- nothing is allocated by the producer ----------------------------------------- */

static _Thread_local size_t allocated; /* by this thread */

static void *counting_alloc(void *user, size_t align, size_t size)
{
    void *ptr = NULL;

    (void)user;
    allocated++;
    return posix_memalign(&ptr, align < sizeof ptr ? sizeof ptr : align, size) == 0
               ? ptr
               : NULL;
}

static void counting_free(void *user, void *ptr)
{
    (void)user;
    free(ptr);
}

static void the_producer_allocates_nothing(void **state)
{
    static const sonde_allocator counting = {counting_alloc, counting_free, NULL};
    char path[RUN_PATH];
    sonde_catalogue *catalogue = run_catalogue(3, FLOATS);
    sonde_recorder *recorder = NULL;
    static float x[FLOATS];
    const int64_t shape = FLOATS / 2;
    sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, x);
    static sonde_sketch sketch;
    sonde_vitals vitals;

    (void)state;
    sonde_sketch_init(&sketch);
    sonde_vitals_init(&vitals);
    sonde_set_allocator(&counting);
    recorder = run_create(
        SONDE_OPTIONS(sonde_recorder, .path = run_path(path, "counted")), catalogue);
    assert_true(allocated > 0);
    allocated = 0;
    for (int64_t step = 0; step < 200; step++) {
        const sonde_coordinate at = run_at(step);

        for (uint32_t id = 0; id < 3; id++) {
            view.stride[0] = 1 + step % 2;
            sonde__recorder_put(recorder, id, &at, &view);
            sonde__recorder_put_vitals(recorder, id, &at, &vitals);
            sonde__recorder_put_sketch(recorder, id, &at, &sketch);
        }
        sonde__recorder_end_step(recorder, &at);
    }
    assert_true(sonde__recorder_drain(recorder, 60));
    assert_int_equal(allocated, 0);
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL),
                     SONDE_OK);
    sonde_set_allocator(NULL);
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_of_a_new_run_may_fail),
        cmocka_unit_test(every_allocation_of_a_compressed_run_may_fail),
        cmocka_unit_test(every_allocation_of_going_on_may_fail),
        cmocka_unit_test(the_producer_allocates_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

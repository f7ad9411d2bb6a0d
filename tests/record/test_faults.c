/*
 * test_faults.c - disks that are full or gone: the producer goes on, what is lost is
 * counted by its cause, and recording goes on when it can.
 */
#include "record/faulty.h"
#include "base/clock.h"
#include "base/macros.h"
#include "record/record_sink.h"

#include <sonde/log.h>

#include <sys/resource.h>
#include <sys/wait.h>

/* --- what was said ---------------------------------------------------------------- */

static struct {
    atomic_int errors, warnings;
    char last[256];
} said;

static void listen(void *user, sonde_log_level level, const char *room,
                   const char *message)
{
    (void)user;
    assert_string_equal(room, "record");
    if (level == SONDE_LOG_ERROR) {
        (void)atomic_fetch_add(&said.errors, 1);
    } else if (level == SONDE_LOG_WARNING) {
        (void)atomic_fetch_add(&said.warnings, 1);
    }
    (void)snprintf(said.last, sizeof said.last, "%s", message);
}

static void begin_listening(void)
{
    atomic_store(&said.errors, 0);
    atomic_store(&said.warnings, 0);
    sonde_log_set_sink(listen, NULL);
}

/* --- faults that pass ------------------------------------------------------------- */

/* A short fault with room in the ring costs nothing at all, wherever it strikes. */
static void a_short_fault_costs_nothing(void **state)
{
    static const int partial[] = {0, 1, 100, BYTES, BYTES + 1, 5 * BYTES, 5 * BYTES + 77};
    char path[RUN_PATH];
    sonde_catalogue *catalogue = run_catalogue(1, FLOATS);

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(partial); i++) {
        const bool early = i % 2 == 0; /* before any file is open, or later */
        sonde_recorder *recorder = create_faulty(
            SONDE_OPTIONS(sonde_recorder, .path = run_path(path, "short")), catalogue);
        run_content content = {0};
        int64_t step = 0;

        begin_listening();
        for (; step < 3 && !early; step++) {
            put(recorder, step);
        }
        assert_true(sonde__recorder_drain(recorder, 60));
        atomic_store(&faulty.settle_after, partial[i]);
        atomic_store(&faulty.fault, ENOSPC);
        for (int64_t end = step + 20; step < end; step++) {
            put(recorder, step);
        }
        wait_for_faults(2);
        assert_false(sonde__recorder_drain(recorder, 0.01));
        run_read(path, 0, &content); /* nothing torn meanwhile */
        atomic_store(&faulty.fault, 0);
        assert_true(sonde__recorder_drain(recorder, 60));
        put(recorder, step++);
        assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL),
                         SONDE_OK);
        sonde_log_set_sink(NULL, NULL);
        assert_int_equal(atomic_load(&said.errors), 1);
        assert_int_equal(atomic_load(&said.warnings), 1);
        assert_non_null(strstr(said.last, "0 records were lost"));
        run_read(path, 0, &content);
        assert_int_equal(content.values, step);
        assert_int_equal(content.rows, step);
        assert_int_equal(content.ends, step);
        run_remove(path);
    }
    sonde_catalogue_destroy(catalogue);
}

/* close retries at once, however long the wait between two attempts has grown. */
static void a_fault_that_is_over_at_close_loses_nothing(void **state)
{
    char path[RUN_PATH];
    sonde_catalogue *catalogue = run_catalogue(1, FLOATS);
    sonde_recorder *recorder =
        create_faulty(SONDE_OPTIONS(sonde_recorder, .path = run_path(path, "over"),
                                    .wait_seconds = 0.001),
                      catalogue);
    run_content content = {0};

    (void)state;
    put(recorder, 0);
    assert_true(sonde__recorder_drain(recorder, 60));
    atomic_store(&faulty.fault, EIO);
    put(recorder, 1);
    wait_for_faults(12); /* after 1, 2, 4 ... 128 ms */
    atomic_store(&faulty.fault, 0);
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL),
                     SONDE_OK);
    run_read(path, 0, &content);
    assert_int_equal(content.values, 2);
    assert_int_equal(content.rows, 2);
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

/* One longer than wait_seconds costs what does not fit into half of the ring. */
static void a_long_fault_is_counted(void **state)
{
    enum { MANY = 500 };
    static const struct {
        int fault;
        bool disk;
    } kinds[] = {{ENOSPC, true}, {EDQUOT, true}, {EFBIG, true}, {EIO, false}};
    char path[RUN_PATH];
    sonde_catalogue *catalogue = run_catalogue(1, FLOATS);

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(kinds); i++) {
        sonde_recorder *recorder =
            create_faulty(SONDE_OPTIONS(sonde_recorder, .path = run_path(path, "long"),
                                        .ring_bytes = 256 * 1024, .wait_seconds = 0.05),
                          catalogue);
        run_content content = {0};
        sonde_recorder_stats stats;
        sonde_diag diag = {0};
        uint64_t lost = 0;

        put(recorder, 0);
        assert_true(sonde__recorder_drain(recorder, 60));
        begin_listening();
        atomic_store(&faulty.fault, kinds[i].fault);
        atomic_store(&faulty.settle_after, BYTES + 7);
        for (int64_t step = 1; step <= MANY; step++) {
            put(recorder, step); /* does not block for ever */
        }
        wait_for_faults(1);
        atomic_store(&faulty.fault, 0);
        assert_true(sonde__recorder_drain(recorder, 60));
        sonde__recorder_get_stats(recorder, &stats);
        lost = kinds[i].disk ? stats.lost_disk_full : stats.lost_io_error;
        assert_in_range(lost, MANY, 2 * MANY - 2);
        assert_int_equal(stats.lost_disk_full + stats.lost_io_error, lost);
        put(recorder, MANY + 1); /* recording has resumed */
        assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", &diag),
                         SONDE_EIO);
        sonde_log_set_sink(NULL, NULL);
        assert_int_equal(atomic_load(&said.errors), 1);
        run_read(path, 0, &content);
        assert_int_equal(content.last_step, MANY + 1);
        /* Rows may also have found the ring full. */
        assert_int_equal(content.values + content.rows + lost + stats.lost_ring_full,
                         2 * (MANY + 2));
        assert_true(content.values > 20);
        run_remove(path);
    }
    sonde_catalogue_destroy(catalogue);
}

static void a_fault_at_the_end_is_told(void **state)
{
    char path[RUN_PATH], id[33];
    sonde_catalogue *catalogue = run_catalogue(1, FLOATS);
    sonde_recorder *recorder = create_faulty(
        SONDE_OPTIONS(sonde_recorder, .path = run_path(path, "end"), .wait_seconds = 0.2),
        catalogue);
    run_content content = {0};
    sonde_diag diag = {0};

    (void)state;
    for (int64_t step = 0; step < 5; step++) {
        put(recorder, step);
    }
    assert_true(sonde__recorder_drain(recorder, 60));
    atomic_store(&faulty.sync_fails, true); /* the segment cannot be closed */
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", &diag),
                     SONDE_EIO);
    assert_true(diag.found[0] != '\0');
    run_read(path, 0, &content); /* everything is there, as parts */
    assert_int_equal(content.values, 5);
    assert_int_equal(content.parts, 3);
    recorder =
        create_faulty(SONDE_OPTIONS(sonde_recorder, .path = path,
                                    .resume = run_id(path, id), .wait_seconds = 0.2),
                      catalogue);
    for (int64_t step = 5; step < 8; step++) {
        put(recorder, step);
    }
    atomic_store(&faulty.fault, ENOSPC); /* and nothing can be written */
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", &diag),
                     SONDE_EIO);
    assert_non_null(strstr(diag.found, "6 to a full disk"));
    run_read(path, 0, &content);
    assert_int_equal(content.values, 5);
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

/* --- one fault in 1,000 steps ------------------------------------------------------- */

/* A single call that fails, of any kind and at any place, costs nothing, though the ring holds
 * just a few steps: raw values wait. */
static void one_failing_call_costs_nothing(void **state)
{
    enum { STEPS = 24 };
    char path[RUN_PATH];
    sonde_catalogue *catalogue = run_catalogue(1, FLOATS);
    int failed = 0;

    (void)state;
    for (int n = 0; n == 0 || failed > 0; n++) {
        sonde_recorder *recorder = create_faulty(
            SONDE_OPTIONS(sonde_recorder, .path = run_path(path, "one"),
                          .ring_bytes = 64 * 1024, .segment_bytes = 64 * 1024,
                          .when_full = SONDE_WHEN_FULL_WAIT),
            catalogue);
        run_content content = {0};

        atomic_store(&faulty.one_in, n + 1);
        for (int64_t step = 0; step < STEPS; step++) {
            put(recorder, step);
        }
        assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL),
                         SONDE_OK);
        failed = atomic_load(&faulty.one_in) > 0 ? 0 : 1;
        run_read(path, 0, &content);
        assert_int_equal(content.values, STEPS);
        assert_int_equal(content.rows, STEPS);
        assert_int_equal(content.ends, STEPS);
        assert_int_equal(content.parts, 0);
        run_remove(path);
        assert_true(n < 2000);
    }
    sonde_catalogue_destroy(catalogue);
}

/* --- a disk that hangs -------------------------------------------------------------- */

/* Neither put nor close waits longer than it may; what comes late is written all the same. */
static void a_disk_that_hangs_holds_nothing_up(void **state)
{
    char path[RUN_PATH];
    sonde_catalogue *catalogue = run_catalogue(1, FLOATS);
    sonde_recorder *recorder =
        create_faulty(SONDE_OPTIONS(sonde_recorder, .path = run_path(path, "hang"),
                                    .ring_bytes = 64 * 1024, .wait_seconds = 0.2),
                      catalogue);
    sonde_diag diag = {0};
    sonde_recorder_stats stats;
    const double began = sonde__now();

    (void)state;
    atomic_store(&faulty.hangs, true);
    for (int64_t step = 0; step < 200; step++) {
        put(recorder, step);
    }
    sonde__recorder_get_stats(recorder, &stats);
    assert_true(stats.lost_ring_full > 0);
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", &diag),
                     SONDE_EIO);
    assert_non_null(strstr(diag.found, "hung"));
    assert_true(sonde__now() - began < 60.0); /* it waits twice, for 1.2 s */
    atomic_store(&faulty.hangs, false);
    while (!atomic_load(&faulty.destroyed) && sonde__now() - began < 120.0) {
        nap(0.01); /* the thread frees the recorder */
    }
    assert_true(atomic_load(&faulty.destroyed));
    assert_true(run_has(path, "end.json"));
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

/* --- the folder is taken away ----------------------------------------------------- */

static void a_lost_folder_is_begun_again(void **state)
{
    char path[RUN_PATH], worker[RUN_PATH], id[33], again[33];
    sonde_catalogue *catalogue = run_catalogue(1, FLOATS);
    sonde_recorder *recorder = run_create(
        SONDE_OPTIONS(sonde_recorder, .path = run_path(path, "taken")), catalogue);
    run_content content = {0};
    sonde_recorder_stats stats = {0};
    const double until = sonde__now() + 60.0;

    (void)state;
    begin_listening();
    for (int64_t step = 0; step < 10; step++) {
        put(recorder, step);
    }
    assert_true(sonde__recorder_drain(recorder, 60));
    (void)run_id(path, id);
    run_remove(path);
    while (stats.lost_io_error < 20 && sonde__now() < until) {
        nap(0.02);
        sonde__recorder_get_stats(recorder, &stats);
    }
    assert_int_equal(stats.lost_io_error, 20); /* ten values, ten rows */
    assert_int_equal(stats.records, 0);
    put(recorder, 10);
    assert_false(sonde__recorder_drain(recorder, 0.3));
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_equal(mkdir(run_file(worker, path, "w0000"), 0777), 0);
    assert_true(sonde__recorder_drain(recorder, 60));
    put(recorder, 11);
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL),
                     SONDE_EIO);
    sonde_log_set_sink(NULL, NULL);
    assert_true(atomic_load(&said.errors) >= 1);
    run_read(path, 0, &content);
    assert_int_equal(content.values, 2);
    assert_int_equal(content.rows, 2);
    assert_string_equal(run_id(path, again), id);
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

/* --- a limit of the system's ------------------------------------------------------ */

/* Files may not grow beyond a limit; the signal that would say so ends nobody. */
static void a_limit_on_files_loses_and_counts(void **state)
{
    char path[RUN_PATH];
    sonde_catalogue *catalogue = run_catalogue(1, FLOATS);
    const pid_t child = (run_path(path, "limit"), fork());
    int status = 0;

    (void)state;
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit limit = {300 * 1000, 300 * 1000};
        sonde_recorder *recorder = NULL;
        sonde_recorder_stats stats;

        if (setrlimit(RLIMIT_FSIZE, &limit) != 0 ||
            sonde__recorder_create(SONDE_OPTIONS(sonde_recorder, .path = path,
                                                 .ring_bytes = 256 * 1024,
                                                 .wait_seconds = 0.1),
                                   catalogue, &recorder, NULL) != SONDE_OK) {
            _exit(1);
        }
        for (int64_t step = 0; step < 300; step++) {
            put(recorder, step);
        }
        sonde__recorder_get_stats(recorder, &stats);
#if defined(SONDE_STRESS) /* where a write in pieces loses the cause, but not the count */
        stats.lost_disk_full += stats.lost_io_error;
#endif
        if (stats.lost_disk_full == 0) {
            _exit(2);
        }
        _exit(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL) == SONDE_EIO
                  ? 0
                  : 3);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    run_content content = {0};

    run_read(path, 0, &content);
    assert_true(content.values > 20 && content.values < 80);
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_short_fault_costs_nothing),
        cmocka_unit_test(a_fault_that_is_over_at_close_loses_nothing),
        cmocka_unit_test(a_long_fault_is_counted),
        cmocka_unit_test(a_fault_at_the_end_is_told),
        cmocka_unit_test(one_failing_call_costs_nothing),
        cmocka_unit_test(a_disk_that_hangs_holds_nothing_up),
        cmocka_unit_test(a_lost_folder_is_begun_again),
        cmocka_unit_test(a_limit_on_files_loses_and_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * test_workers.c - several workers of one run into one prefix: on machines of their own and
 * on one machine, one of them restarted, and a reader of all. The store is server.py.
 */
#include "cmocka_all.h"

#include "record/run_dir.h"
#include "s3/store_server.h"
#include "record/record_sink.h"

#include <sonde/recorder.h>
#include <sonde/trial.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORLD = 3, STEPS = 20 };

typedef struct worker {
    const char *run;
    int rank;
    const char *resume;
    sonde_catalogue *catalogue;
    sonde_recorder *recorder;
    sonde_err err;
    sonde_diag diag;
} worker;

static void open_worker(worker *one)
{
    const sonde_recorder_options options = {.size = sizeof options,
                                            .path = one->run,
                                            .rank = one->rank,
                                            .world = WORLD,
                                            .resume = one->resume,
                                            .segment_seconds = 0.1};

    one->catalogue = run_catalogue(1, 2);
    one->err =
        sonde__recorder_create(&options, one->catalogue, &one->recorder, &one->diag);
}

static void write_steps(worker *one, int64_t first, int64_t end)
{
    const int64_t shape = 2;

    for (int64_t step = first; step < end; step++) {
        float x[2] = {(float)one->rank, (float)step};
        const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, x);
        const sonde_coordinate at = run_at(step);

        sonde__recorder_put(one->recorder, 0, &at, &view);
        sonde__recorder_end_step(one->recorder, &at);
    }
}

static void close_worker(worker *one)
{
    assert_int_equal(
        sonde__recorder_close(one->recorder, SONDE_RUN_FINISHED, "", &one->diag),
        SONDE_OK);
    sonde_catalogue_destroy(one->catalogue);
}

/* A reader finds each worker's values. */
static void read_all(const char *run, int64_t steps)
{
    sonde_trial *trial = NULL;
    sonde_run_info info;
    sonde_verify_report report = {0};
    sonde_diag diag = {0};

    assert_int_equal(sonde_trial_open(run, NULL, &trial, &diag), SONDE_OK);
    sonde_trial_describe(trial, &info);
    assert_int_equal(info.world, WORLD);
    assert_int_equal(info.workers, WORLD);
    assert_int_equal(info.status, SONDE_RUN_ENDED);
    assert_int_equal(info.last_step, steps - 1);
    sonde_trial_close(trial);
    assert_int_equal(sonde_trial_verify(run, &report, NULL, NULL, &diag), SONDE_OK);
    assert_int_equal(report.records, WORLD * steps);
    assert_int_equal(report.damaged, 0);
    assert_int_equal(report.lost, 0);
}

/* All begin. */
static void begin(worker *workers, const char *run)
{
    for (int i = 0; i < WORLD; i++) {
        workers[i] = (worker){.run = run, .rank = i};
        open_worker(&workers[i]);
        if (workers[i].err != SONDE_OK) {
            fail_msg("worker %d: %s: %s", i, workers[i].diag.where,
                     workers[i].diag.found);
        }
    }
}

static void on_one_machine(void **state)
{
    const char *run = "s3://bucket/runs/one";
    char path[256];
    worker workers[WORLD], again = {.run = run, .rank = 1};

    (void)state;
    (void)setenv("SONDE_SPOOL", in_root(path, "spool"), 1);
    begin(workers, run);
    open_worker(&again); /* a second process of the same rank */
    assert_int_equal(again.err, SONDE_EBUSY);
    sonde_catalogue_destroy(again.catalogue);
    for (int i = WORLD - 1; i >= 0; i--) {
        write_steps(&workers[i], 0, STEPS);
        close_worker(&workers[i]);
    }
    read_all(run, STEPS);
    (void)snprintf(path, sizeof path, "test -z \"$(find %s/spool -type f)\"", root);
    assert_int_equal(system(path), 0);
}

static void on_machines_of_their_own(void **state)
{
    const char *run = "s3://bucket/runs/several";
    char path[256], name[16];
    worker workers[WORLD], again = {.run = run, .rank = 1};

    (void)state;
    for (int i = 0; i < WORLD; i++) {
        (void)snprintf(name, sizeof name, "spool%d", i);
        (void)setenv("SONDE_SPOOL", in_root(path, name), 1);
        workers[i] = (worker){.run = run, .rank = i};
        open_worker(&workers[i]);
        assert_int_equal(workers[i].err, SONDE_OK);
    }
    write_steps(&workers[1], 0, STEPS / 2);
    close_worker(&workers[1]);
    open_worker(&again); /* its rank has been written */
    assert_int_equal(again.err, SONDE_EEXIST);
    sonde_catalogue_destroy(again.catalogue);
    again = (worker){.run = run, .rank = 1, .resume = SONDE_RESUME_ANY};
    open_worker(&again);
    assert_int_equal(again.err, SONDE_OK);
    write_steps(&again, STEPS / 2, STEPS);
    close_worker(&again);
    for (int i = 0; i < WORLD; i += 2) {
        write_steps(&workers[i], 0, STEPS);
        close_worker(&workers[i]);
    }
    read_all(run, STEPS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_one_machine),
        cmocka_unit_test(on_machines_of_their_own),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}

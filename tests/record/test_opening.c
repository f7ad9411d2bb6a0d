/*
 * test_opening.c - a run is opened on a disk that hangs or fails at any call: create
 * returns, nothing of an earlier writer is destroyed, and a later create on a disk that
 * works finds all of it.
 */
#include "record/gate.h"
#include "record/record_sink.h"

#include <math.h>
#include <signal.h>
#include <sys/wait.h>

enum { FLOATS = 500, STEPS = 12, WAIT_MOST = 60 };

static void put_step(sonde_recorder *recorder, int64_t step)
{
    float x[FLOATS];
    const int64_t shape = FLOATS;
    const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, x);
    const sonde_coordinate at = run_at(step);
    sonde_vitals vitals;

    for (int i = 0; i < FLOATS; i++) {
        x[i] = (float)(step + i);
    }
    sonde_vitals_of(&view, &vitals);
    sonde__recorder_put(recorder, 0, &at, &view);
    sonde__recorder_put_vitals(recorder, 0, &at, &vitals);
    sonde__recorder_end_step(recorder, &at);
}

static void let_go(void)
{
    const double until = sonde__now() + WAIT_MOST;

    atomic_store(&gate.hangs, false);
    while (atomic_load(&gate.destroyed) == 0 && sonde__now() < until) {
        gate_nap();
    }
    assert_int_equal(atomic_load(&gate.destroyed), 1);
}

static sonde_recorder_options options_of(const char *path, const char *resume)
{
    return (sonde_recorder_options){.size = sizeof(sonde_recorder_options),
                                    .path = path,
                                    .resume = resume,
                                    .ring_bytes = 256 * 1024,
                                    .segment_bytes = 12 * 1024,
                                    .when_full = SONDE_WHEN_FULL_WAIT};
}

/* Calls of the store that a create makes. */
static int count_calls(const sonde_recorder_options *options,
                       const sonde_catalogue *catalogue)
{
    sonde_recorder *recorder = NULL;
    int calls = 0;

    gate_reset();
    assert_int_equal(gate_recorder(options, catalogue, &recorder, NULL), SONDE_OK);
    calls = atomic_load(&gate.calls); /* the thread may have made some more */
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, NULL, NULL),
                     SONDE_OK);
    return calls;
}

static void create_returns_from_a_disk_that_hangs(void **state)
{
    char path[RUN_PATH];
    sonde_catalogue *catalogue = run_catalogue(1, FLOATS);
    sonde_recorder_options options = options_of(run_path(path, "hangs"), NULL);
    const int calls = count_calls(&options, catalogue);
    sonde_recorder *recorder = NULL;

    (void)state;
    assert_in_range(calls, 5, 1000);
    for (int n = 1; n <= 5; n++) { /* the run's folder ... its state.json */
        sonde_diag diag = {0};

        run_remove(path);
        gate_reset();
        atomic_store(&gate.at, n);
        atomic_store(&gate.hangs, true);
        options.wait_seconds = 0.05;
        assert_int_equal(gate_recorder(&options, catalogue, &recorder, &diag), SONDE_EIO);
        assert_non_null(strstr(diag.found, "has hung for 0.05 s"));
        let_go();
        assert_false(run_has(path, "run.json")); /* the path is free again */
        options.wait_seconds = 0.0;
        recorder = run_create(&options, catalogue);
        put_step(recorder, 0);
        assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, NULL, NULL),
                         SONDE_OK);
    }
    run_remove(path);
    sonde_catalogue_destroy(catalogue);
}

/* A run whose writer was killed: some of its steps are in the files, some in the ring. */
static void leave_a_run(const char *path, const sonde_catalogue *catalogue)
{
    const sonde_recorder_options options = options_of(path, NULL);
    int status = 0;
    const pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        sonde_recorder *const recorder = run_create(&options, catalogue);

        for (int64_t step = 0; step < STEPS; step++) {
            put_step(recorder, step);
            if (step == STEPS / 2) {
                (void)sonde__recorder_drain(recorder, WAIT_MOST);
            }
        }
        (void)kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

static void copy_run(const char *from, const char *to)
{
    char command[3 * RUN_PATH];

    run_remove(to);
    (void)snprintf(command, sizeof command, "cp -r '%s' '%s'", from, to);
    assert_int_equal(system(command), 0);
}

static void check_all(const char *path)
{
    run_content content = {0};

    run_read(path, 0, &content);
    assert_int_equal(content.values, STEPS);
    assert_int_equal(content.rows, STEPS);
    assert_int_equal(content.last_step, STEPS - 1);
    assert_false(run_has(path, "w0000/ring"));
}

static void resume_well(const char *path, const sonde_catalogue *catalogue)
{
    const sonde_recorder_options options = options_of(path, SONDE_RESUME_ANY);
    sonde_recorder *const recorder = run_create(&options, catalogue);

    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, NULL, NULL),
                     SONDE_OK);
    check_all(path);
}

/* Every call of a recovery fails, one at a time; once, and with all calls after it. */
static void a_failed_recovery_destroys_nothing(void **state)
{
    static const int errors[] = {ENOSPC, EROFS, EFBIG};
    char path[RUN_PATH], copy[RUN_PATH];
    sonde_catalogue *catalogue = run_catalogue(1, FLOATS);
    sonde_recorder_options options =
        options_of(run_path(copy, "recovery.copy"), SONDE_RESUME_ANY);
    int calls = 0, refused = 0;

    (void)state;
    leave_a_run(run_path(path, "recovery"), catalogue);
    copy_run(path, copy);
    options.wait_seconds = INFINITY;
    calls = count_calls(&options, catalogue);
    check_all(copy);
    for (int n = 1; n <= calls; n++) {
        sonde_recorder *recorder = NULL;
        sonde_diag diag = {0};

        copy_run(path, copy);
        gate_reset();
        atomic_store(&gate.error, n % 16 == 0 ? EIO : errors[n % 3]); /* EIO costs time */
        atomic_store(&gate.forever, n % 2 == 0);
        atomic_store(&gate.at, n);
        if (gate_recorder(&options, catalogue, &recorder, &diag) == SONDE_OK) {
            atomic_store(&gate.at, 0);
            (void)sonde__recorder_close(recorder, SONDE_RUN_FINISHED, NULL, NULL);
        } else {
            refused++;
            assert_true(diag.where[0] != '\0');
        }
        resume_well(copy, catalogue);
    }
    assert_true(refused > calls / 4);
    run_remove(path);
    run_remove(copy);
    sonde_catalogue_destroy(catalogue);
}

/* Its ring says how far the files of the earlier writers have come. */
static void a_resumed_run_may_be_killed_at_once(void **state)
{
    char path[RUN_PATH];
    sonde_catalogue *catalogue = run_catalogue(1, FLOATS);
    sonde_recorder_options options = options_of(run_path(path, "at-once"), NULL);
    run_content content = {0};
    int64_t step = 0;
    uint64_t put = 1; /* and one that is lost */
    sonde_recorder *recorder = run_create(&options, catalogue);

    (void)state;
    put_step(recorder, step++);
    sonde__recorder_put(recorder, 99, &(sonde_coordinate){0}, &(sonde_view){0});
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, NULL, NULL),
                     SONDE_EIO);
    options.resume = SONDE_RESUME_ANY;
    for (int i = 0; i < 6; i++, step++) {
        int status = 0;
        const pid_t child = fork();

        assert_true(child >= 0);
        if (child == 0) {
            recorder = run_create(&options, catalogue);
            put_step(recorder, step);
            (void)kill(getpid(), SIGKILL); /* before the writer comes, nearly always */
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
    }
    recorder = run_create(&options, catalogue);
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, NULL, NULL),
                     SONDE_OK);
    run_read(path, 0, &content);
    assert_int_equal(content.values, step);
    assert_int_equal(content.rows, step);
    put += 2 * (uint64_t)step;
    assert_int_equal(run_number(path, "w0000/state.json", "put"), put);
    run_remove(path);
    sonde_catalogue_destroy(catalogue);
}

/* The recovery of a run hangs at one of its calls. */
static void create_returns_from_a_recovery_that_hangs(void **state)
{
    char path[RUN_PATH], copy[RUN_PATH];
    sonde_catalogue *catalogue = run_catalogue(1, FLOATS);
    sonde_recorder_options options =
        options_of(run_path(copy, "stuck.copy"), SONDE_RESUME_ANY);
    int calls = 0;

    (void)state;
    leave_a_run(run_path(path, "stuck"), catalogue);
    copy_run(path, copy);
    calls = count_calls(&options, catalogue);
    options.wait_seconds = 0.05;
    for (int n = 1; n < calls; n += 1 + calls / 5) {
        sonde_recorder *recorder = NULL;
        sonde_diag diag = {0};

        copy_run(path, copy);
        gate_reset();
        atomic_store(&gate.at, n);
        atomic_store(&gate.hangs, true);
        if (gate_recorder(&options, catalogue, &recorder, &diag) == SONDE_OK) {
            atomic_store(&gate.hangs, false); /* a call of the writer, not of the open */
            (void)sonde__recorder_close(recorder, SONDE_RUN_FINISHED, NULL, NULL);
        } else {
            assert_non_null(strstr(diag.found, "has hung"));
            let_go();
        }
        resume_well(copy, catalogue);
    }
    run_remove(path);
    run_remove(copy);
    sonde_catalogue_destroy(catalogue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(create_returns_from_a_disk_that_hangs),
        cmocka_unit_test(a_failed_recovery_destroys_nothing),
        cmocka_unit_test(create_returns_from_a_recovery_that_hangs),
        cmocka_unit_test(a_resumed_run_may_be_killed_at_once),
    };

    if (access("/dev/shm", W_OK) ==
        0) { /* the syncs of a disk would take most of the time */
        (void)setenv("TMPDIR", "/dev/shm", 1);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

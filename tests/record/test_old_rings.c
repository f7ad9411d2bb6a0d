/*
 * test_old_rings.c - rings of killed writers that cannot be used as they are: of before a
 * restart of the machine, damaged, with refused records. What they held is counted as
 * lost, once, however often the recovery fails.
 */
#include "record/gate.h"
#include "record/record_sink.h"

#include <sonde/trial.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

enum { FLOATS = 500, STEPS = 12, PUT = 2 * STEPS + 1, NO_TENSOR = 99 };

typedef struct old_ring {
    char path[RUN_PATH], copy[RUN_PATH];
    sonde_catalogue *catalogue;
} old_ring;

static void put_step(sonde_recorder *recorder, int64_t step)
{
    static float x[FLOATS];
    const int64_t shape = FLOATS;
    const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, x);
    const sonde_coordinate at = run_at(step);
    sonde_vitals vitals;

    sonde_vitals_of(&view, &vitals);
    sonde__recorder_put(recorder, 0, &at, &view);
    sonde__recorder_put_vitals(recorder, 0, &at, &vitals);
    sonde__recorder_end_step(recorder, &at);
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

/* A run whose writer was killed: half of its steps are in the files, half in the ring, and
 * one value was refused. */
static void leave(old_ring *old, const char *name)
{
    char copy[RUN_PATH];
    const sonde_recorder_options options = options_of(old->path, NULL);
    int status = 0;
    pid_t child = 0;

    old->catalogue = run_catalogue(1, FLOATS);
    (void)snprintf(copy, sizeof copy, "%s.copy", name);
    (void)run_path(old->path, name);
    (void)run_path(old->copy, copy);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        sonde_recorder *const recorder = run_create(&options, old->catalogue);

        sonde__recorder_put(recorder, NO_TENSOR, &(sonde_coordinate){0},
                            &(sonde_view){0});
        for (int64_t step = 0; step < STEPS; step++) {
            put_step(recorder, step);
            if (step == STEPS / 2) {
                (void)sonde__recorder_drain(recorder, 60.0);
            }
        }
        (void)kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

static void remove_all(old_ring *old)
{
    run_remove(old->path);
    run_remove(old->copy);
    sonde_catalogue_destroy(old->catalogue);
}

static void copy_run(const old_ring *old)
{
    char command[3 * RUN_PATH];

    run_remove(old->copy);
    (void)snprintf(command, sizeof command, "cp -r '%s' '%s'", old->path, old->copy);
    assert_int_equal(system(command), 0);
}

/* Opens the copy while the disk fails from the n-th call on. False if that is beyond the
 * opening. */
static bool fail_once(const old_ring *old, int n)
{
    const sonde_recorder_options options = options_of(old->copy, SONDE_RESUME_ANY);
    sonde_recorder *recorder = NULL;

    gate_reset();
    atomic_store(&gate.error, ENOSPC);
    atomic_store(&gate.forever, true);
    atomic_store(&gate.at, n);
    if (gate_recorder(&options, old->catalogue, &recorder, NULL) != SONDE_OK) {
        return true;
    }
    atomic_store(&gate.at, 0);
    (void)sonde__recorder_close(recorder, SONDE_RUN_FINISHED, NULL, NULL);
    return false;
}

/* Resumes the copy. What was put and is not in its files is counted, and nothing else. */
static void check(const old_ring *old, uint64_t least_lost)
{
    const sonde_recorder_options options = options_of(old->copy, SONDE_RESUME_ANY);
    sonde_recorder *const recorder = run_create(&options, old->catalogue);
    sonde_verify_report report = {0};
    run_content content = {0};

    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, NULL, NULL),
                     SONDE_OK);
    run_read(old->copy, 0, &content);
    assert_int_equal(sonde_trial_verify(old->copy, &report, NULL, NULL, NULL), SONDE_OK);
    assert_int_equal(report.damaged, 0);
    assert_int_equal(content.values + content.rows + report.lost, PUT);
    assert_true(report.lost >= least_lost);
    assert_int_equal(run_number(old->copy, "w0000/state.json", "put"), PUT);
}

/* The copy at once, and after an opening that fails at each of its calls. */
static void check_each(const old_ring *old, uint64_t least_lost)
{
    copy_run(old);
    check(old, least_lost);
    for (int n = 1; copy_run(old), fail_once(old, n); n++) {
        check(old, least_lost);
    }
}

/* --- rings ------------------------------------------------------------------------ */

static void write_ring(const old_ring *old, uint64_t at, const void *bytes, size_t size)
{
    char path[RUN_PATH];
    const int fd = open(run_file(path, old->path, "w0000/ring"), O_WRONLY);

    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, size, (off_t)at), size);
    assert_int_equal(close(fd), 0);
}

static void what_was_refused_is_counted_once(void **state)
{
    old_ring old;

    (void)state;
    leave(&old, "refused");
    check_each(&old, 1);
    remove_all(&old);
}

static void a_ring_of_before_a_restart_is_lost(void **state)
{
    static const char boot[64] = "12345678-1234-1234-1234-123456789abc";
    old_ring old;

    (void)state;
    leave(&old, "restart");
    write_ring(&old, offsetof(sonde__record_ring_head, boot), boot, sizeof boot);
    check_each(&old, 2);
    remove_all(&old);
}

static void blocks_after_a_damaged_one_are_lost(void **state)
{
    static const char noise[32] = "no block begins so";
    old_ring old;
    char *bytes = NULL;
    const sonde__record_ring_head *head = NULL;
    uint64_t tail = 0;
    size_t size = 0;

    (void)state;
    leave(&old, "block");
    bytes = run_load(old.path, "w0000/ring", &size);
    assert_non_null(bytes);
    head = (const void *)bytes;
    tail = SONDE_MAX(head->marks[0].tail, head->marks[1].tail);
    if (tail < atomic_load(&head->head)) { /* else the writer was faster than the kill */
        write_ring(&old, SONDE__RING_PAGE + tail % head->size, noise, sizeof noise);
        check_each(&old, 2);
    }
    free(bytes);
    remove_all(&old);
}

/* Its head is damaged: it is put away, and stays for people. */
static void a_ring_that_is_damaged_is_put_away(void **state)
{
    old_ring old;
    sonde_verify_report report = {0};
    sonde_recorder_options options;
    sonde_recorder *recorder = NULL;

    (void)state;
    leave(&old, "away");
    write_ring(&old, 0, "DAMAGED!", 8);
    copy_run(&old);
    for (int n = 1; fail_once(&old, n) && n < 8; n++) {
    }
    options = options_of(old.copy, SONDE_RESUME_ANY);
    recorder = run_create(&options, old.catalogue);
    put_step(recorder, STEPS);
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, NULL, NULL),
                     SONDE_OK);
    assert_true(run_has(old.copy, "w0000/ring.damaged"));
    assert_false(run_has(old.copy, "w0000/ring"));
    assert_int_equal(sonde_trial_verify(old.copy, &report, NULL, NULL, NULL), SONDE_OK);
    assert_int_equal(report.damaged, 1);
    assert_in_range(report.records, 1 + STEPS / 2, STEPS + 1);
    copy_run(&old); /* the same by a reader */
    assert_int_equal(sonde_trial_verify(old.copy, &report, NULL, NULL, NULL), SONDE_OK);
    assert_true(run_has(old.copy, "w0000/ring.damaged"));
    assert_int_equal(report.damaged, 1);
    remove_all(&old);
}

/* A ring in memory dies with its writer, whose last state.json counts what was in it. */
static void records_of_a_ring_in_memory_are_lost(void **state)
{
    char path[RUN_PATH];
    json_t *state_file = NULL;
    old_ring old;

    (void)state;
    leave(&old, "memory");
    assert_int_equal(unlink(run_file(path, old.path, "w0000/ring")), 0);
    state_file = run_json(old.path, "w0000/state.json");
    assert_int_equal(json_object_set_new(state_file, "put", json_integer(PUT)), 0);
    assert_int_equal(json_object_del(state_file, "check"), 0);
    assert_int_equal(
        json_dump_file(state_file, run_file(path, old.path, "w0000/state.json"), 0), 0);
    json_decref(state_file);
    check_each(&old, 1);
    remove_all(&old);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_refused_is_counted_once),
        cmocka_unit_test(a_ring_of_before_a_restart_is_lost),
        cmocka_unit_test(blocks_after_a_damaged_one_are_lost),
        cmocka_unit_test(a_ring_that_is_damaged_is_put_away),
        cmocka_unit_test(records_of_a_ring_in_memory_are_lost),
    };

    if (access("/dev/shm", W_OK) ==
        0) { /* the syncs of a disk would take most of the time */
        (void)setenv("TMPDIR", "/dev/shm", 1);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

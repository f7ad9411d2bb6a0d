/*
 * test_alive.c - which writers count as dead: by the lock, the process and the heartbeat.
 */
#include "trial/run_folder.h"

#include <sonde/error.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

/* A run that says: pid of this host runs, with a heartbeat of so many seconds ago. */
static void write_state(int64_t pid, int seconds, bool has_lock)
{
    char path[WRITER_PATH], host[256] = "";
    writer w;

    (void)gethostname(host, sizeof host - 1);
    writer_begin(test_run, 1);
    writer_open(&w, test_run, 0);
    writer_state(&w, "running", pid, host, seconds, 0);
    known_declare(&w);
    known_step(&w, writer_at(SONDE_MODE_TRAIN, 0, 0));
    writer_path(&w, SONDE__LOCK_FILE, path);
    if (has_lock) {
        assert_int_equal(fclose(writer_file(path, "w")), 0);
    }
    writer_drop(&w);
}

static sonde_run_status status(void)
{
    sonde_trial *const trial = trial_opened(test_run);
    sonde_run_info info;

    sonde_trial_describe(trial, &info);
    sonde_trial_close(trial);
    return info.status;
}

static pid_t gone(void)
{
    const pid_t child = fork();

    if (child == 0) {
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    return child;
}

static int take_lock(void)
{
    char path[512];
    int lock = -1;

    (void)snprintf(path, sizeof path, "%s/w0000/" SONDE__LOCK_FILE, test_run);
    lock = open(path, O_RDWR | O_CLOEXEC);
    assert_true(lock >= 0);
    assert_int_equal(flock(lock, LOCK_EX | LOCK_NB), 0);
    return lock;
}

/* Stopped for a minute, or in another namespace of processes, where this number is free. */
static void a_writer_with_its_lock_lives(void **state)
{
    int lock = -1;

    (void)state;
    write_state(gone(), 60, true);
    lock = take_lock();
    assert_int_equal(status(), SONDE_RUN_RUNNING);
    assert_int_equal(close(lock), 0);
    assert_int_equal(status(), SONDE_RUN_CRASHED);
}

/* Another process has its number by now. */
static void a_number_that_is_used_again_is_no_writer(void **state)
{
    (void)state;
    write_state(getpid(), 60, true);
    assert_int_equal(status(), SONDE_RUN_CRASHED);
}

static void a_writer_without_a_lock_is_known_by_its_number(void **state)
{
    (void)state;
    write_state(getpid(), 60, false);
    assert_int_equal(status(), SONDE_RUN_RUNNING);
}

/* The clock was set back: the heartbeat is in the future. */
static void a_clock_may_go_backwards(void **state)
{
    int lock = -1;

    (void)state;
    write_state(gone(), -3600, true);
    lock = take_lock();
    assert_int_equal(status(), SONDE_RUN_RUNNING);
    assert_int_equal(close(lock), 0);
    assert_int_equal(status(), SONDE_RUN_CRASHED);
}

/* The clock of another machine is an hour behind, or ahead: its writer lives while its
 * heartbeat changes. */
static void a_clock_of_another_machine_may_be_wrong(void **state)
{
    (void)state;
    for (int hours = -1; hours <= 1; hours += 2) {
        sonde_trial *trial = NULL;
        sonde_run_info info;
        bool changed = false;
        writer w;

        writer_begin(test_run, 1);
        writer_open(&w, test_run, 0);
        writer_state(&w, "running", 1, "another machine", hours * 3600, 0);
        known_declare(&w);
        known_step(&w, writer_at(SONDE_MODE_TRAIN, 0, 0));
        trial = trial_opened(test_run);
        sonde_trial_describe(trial, &info);
        assert_int_equal(info.status, hours > 0 ? SONDE_RUN_CRASHED : SONDE_RUN_RUNNING);
        writer_state(&w, "running", 1, "another machine", hours * 3600 - 5, 0);
        assert_int_equal(sonde_trial_refresh(trial, &changed, NULL), SONDE_OK);
        sonde_trial_describe(trial, &info);
        assert_int_equal(info.status, SONDE_RUN_RUNNING);
        sonde_trial_close(trial);
        writer_drop(&w);
        assert_int_equal(folder_remove(NULL), 0);
        assert_int_equal(folder_make(NULL), 0);
    }
}

#define ON_ITS_OWN(test) cmocka_unit_test_setup_teardown(test, folder_make, folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_ITS_OWN(a_writer_with_its_lock_lives),
        ON_ITS_OWN(a_number_that_is_used_again_is_no_writer),
        ON_ITS_OWN(a_writer_without_a_lock_is_known_by_its_number),
        ON_ITS_OWN(a_clock_may_go_backwards),
        ON_ITS_OWN(a_clock_of_another_machine_may_be_wrong),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

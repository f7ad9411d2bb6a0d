/*
 * test_ring_space.c - how large the ring is, and a disk that has no room for it: then it
 * is in memory, and one warning says so.
 */
#include "record/faulty.h"
#include "record/record_sink.h"

#include <sonde/log.h>
#include <sonde/trial.h>

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* Bytes of the ring of a recorder with one tensor of n floats. */
static size_t size_of_ring(size_t asked, int64_t n)
{
    char path[RUN_PATH];
    sonde_catalogue *catalogue = run_catalogue(1, n);
    sonde_recorder *recorder =
        run_create(SONDE_OPTIONS(sonde_recorder, .path = run_path(path, "space"),
                                 .ring_bytes = asked),
                   catalogue);
    const size_t size = recorder->ring.size;

    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL),
                     SONDE_OK);
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
    return size;
}

static void the_ring_takes_four_of_the_largest(void **state)
{
    const size_t least = size_of_ring(1, 1);

    (void)state;
    assert_int_equal(size_of_ring(0, 1), 64 << 20);
    assert_true(least < 1 << 20);
    assert_in_range(size_of_ring(1, 500 * 1000), 4 * 500 * 1000 * 4, 16 << 20);
    assert_int_equal(size_of_ring(1, 100 * 1000 * 1000), least); /* beyond 256 MiB */
}

/* --- a disk without room -------------------------------------------------------------- */

static atomic_int warnings;

static void listen(void *user, sonde_log_level level, const char *room,
                   const char *message)
{
    (void)user;
    (void)room;
    if (level >= SONDE_LOG_WARNING &&
        strstr(message, "there is no file for the ring") != NULL) {
        (void)atomic_fetch_add(&warnings, 1);
    }
}

enum { STEPS = 100, NO_MOUNT = 77 };

/* Files of at most 1 MB. */
static int limit_files(const char *folder)
{
    const struct rlimit limit = {1000 * 1000, 1000 * 1000};

    (void)folder;
    return setrlimit(RLIMIT_FSIZE, &limit);
}

static int write_text(const char *path, const char *text)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    const bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

    return fd >= 0 && close(fd) == 0 && done ? 0 : -1;
}

/* A file system of 4 MiB, of which a mapping without space would end the process. */
static int mount_little(const char *folder)
{
    char users[64], groups[64];

    (void)snprintf(users, sizeof users, "%ld %ld 1", (long)getuid(), (long)getuid());
    (void)snprintf(groups, sizeof groups, "%ld %ld 1", (long)getgid(), (long)getgid());
    return unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 ||
                   write_text("/proc/self/setgroups", "deny") != 0 ||
                   write_text("/proc/self/uid_map", users) != 0 ||
                   write_text("/proc/self/gid_map", groups) != 0
               ? -1
               : mount("none", folder, "tmpfs", 0, "size=4m");
}

/* The status of a child that records into a folder with little room. */
static int record_without_room(const char *folder, int (*restrict_it)(const char *folder))
{
    char path[RUN_PATH + 8];
    sonde_catalogue *catalogue = run_catalogue(1, FLOATS);
    sonde_recorder *recorder = NULL;
    sonde_verify_report report = {0};
    sonde_diag diag = {0};

    if (restrict_it(folder) != 0) {
        return NO_MOUNT;
    }
    (void)snprintf(path, sizeof path, "%s/run", folder);
    sonde_log_set_sink(listen, NULL);
    if (sonde__recorder_create(SONDE_OPTIONS(sonde_recorder, .path = path), catalogue,
                               &recorder, &diag) != SONDE_OK) {
        char line[SONDE_DIAG_LINE];

        (void)fprintf(stderr, "%s\n", sonde_diag_line(&diag, line, sizeof line));
        return 1;
    }
    if (run_has(path, "w0000/ring") || run_has(path, "w0000/ring.new")) {
        return 2;
    }
    for (int64_t step = 0; step < STEPS; step++) {
        put(recorder, step);
    }
    if (sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL) != SONDE_OK) {
        return 3;
    }
    if (sonde_trial_verify(path, &report, NULL, NULL, NULL) != SONDE_OK ||
        report.records != STEPS || report.rows != STEPS || report.damaged > 0) {
        return 4;
    }
    sonde_catalogue_destroy(catalogue);
    return atomic_load(&warnings) == 1 ? 0 : 5;
}

static void without_room_the_ring_is_in_memory(void **state)
{
    int (*const ways[])(const char *folder) = {limit_files, mount_little};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(ways); i++) {
        char folder[RUN_PATH];
        int status = 0;
        pid_t child = 0;

        assert_int_equal(mkdir(run_path(folder, "room"), 0700), 0);
        child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            _exit(record_without_room(folder, ways[i]));
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) == NO_MOUNT && ways[i] == mount_little) {
            print_message("this process may not mount: not tried on a full disk\n");
        } else {
            assert_int_equal(WEXITSTATUS(status), 0);
        }
        run_remove(folder);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_ring_takes_four_of_the_largest),
        cmocka_unit_test(without_room_the_ring_is_in_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * test_spool_hangs.c - the disk of a spool hangs, while it is opened: another process that
 * is stopped holds its lock; or while a file is sent, which a lease keeps from being
 * opened. Opening and closing return, and once the disk answers, the next open succeeds.
 * tsan: yes
 */
#include "s3/store_server.h"

#include "base/memory.h"
#include "base/clock.h"
#include "record/recorder_state.h"
#include "record/record_sink.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define SOON 0.1 /* seconds */

static const char URL[] = "s3://bucket/hangs";
static const sonde__store_writer place = {.world = 1};

static void a_lock_that_is_held(void **state)
{
    char *folder = NULL, *slash = NULL;
    sonde__store_spool *spool = NULL;
    sonde_diag diag = {0};
    int lock = -1;
    double until = sonde__now() + 60.0;
    sonde_err err = SONDE_OK;

    (void)state;
    assert_int_equal(sonde__recorder_open_spool(URL, &place, 60.0, &spool, &diag),
                     SONDE_OK);
    assert_int_equal(sonde__store_spool_folder(URL, &folder, NULL), SONDE_OK);
    sonde__store_spool_close(spool);
    slash = strrchr(folder, '/');
    assert_non_null(slash);
    *slash = '\0'; /* without "run" */
    lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(lock >= 0);
    assert_int_equal(flock(lock, LOCK_EX), 0);
    assert_int_equal(sonde__recorder_open_spool(URL, &place, SOON, &spool, &diag),
                     SONDE_EIO);
    assert_string_equal(diag.where, URL);
    assert_non_null(strstr(diag.found, "a system call on its spool has hung for 0.1 s"));
    assert_int_equal(close(lock), 0);
    do { /* the thread that was left has the spool for a moment */
        err = sonde__recorder_open_spool(URL, &place, 60.0, &spool, &diag);
    } while (err == SONDE_EBUSY && sonde__now() < until);
    assert_int_equal(err, SONDE_OK);
    sonde__store_spool_close(spool);
    sonde__free(folder);
}

/* A store that answers slowly is no disk that hangs. */
static void a_slow_store_is_waited_for(void **state)
{
    char command[256];
    sonde__store_spool *spool = NULL;
    sonde_diag diag = {0};

    (void)state;
    (void)snprintf(command, sizeof command,
                   "python3 -c \"import urllib.request as r; r.urlopen(r.Request('%s/_/"
                   "fault?what=slower&match=GET&count=1', method='PUT'))\"",
                   getenv("AWS_ENDPOINT_URL"));
    assert_int_equal(system(command), 0); /* 2 s */
    assert_int_equal(
        sonde__recorder_open_spool("s3://bucket/slow", &place, 1.0, &spool, &diag),
        SONDE_OK);
    sonde__store_spool_close(spool);
}

/* A file that nobody can open while its descriptor, which is returned, has a lease. */
static int make_leased(const char *path)
{
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, "{}\n", 3), 3);
    (void)signal(SIGIO, SIG_IGN);
    return fcntl(fd, F_SETLEASE, F_WRLCK) == 0 ? fd : -1;
}

/* The program's thread reads no file of the spool once it is open. */
static void starting_waits_for_no_disk(void **state)
{
    static const char text[] = "{\"sonde_run\":1,\"id\":\"0\"}\n";
    const double begun = sonde__now();
    char leased[256], run[512], *folder = NULL;
    sonde__store_spool *spool = NULL;
    sonde_diag diag = {0};
    int fd = -1;

    (void)state;
    fd = make_leased(in_root(leased, "leased"));
    if (fd < 0) {
        skip(); /* no leases on this file system */
    }
    assert_int_equal(
        sonde__recorder_open_spool("s3://bucket/start", &place, 60.0, &spool, &diag),
        SONDE_OK);
    assert_int_equal(sonde__store_spool_folder("s3://bucket/start", &folder, NULL),
                     SONDE_OK);
    assert_true(mkdir(folder, 0700) == 0 || errno == EEXIST);
    (void)snprintf(run, sizeof run, "%s/run.json", folder);
    assert_int_equal(rename(leased, run), 0);
    assert_int_equal(sonde__store_spool_start(spool, text, sizeof text - 1, &diag),
                     SONDE_OK);
    /* a process that opens the file waits for 45 s, or until the lease is given back */
    assert_true(sonde__now() - begun < 30.0);
    assert_int_equal(fcntl(fd, F_SETLEASE, F_UNLCK), 0);
    assert_int_equal(close(fd), 0);
    sonde__store_spool_close(spool);
    sonde__free(folder);
}

static void a_file_that_cannot_be_read(void **state)
{
    const sonde_tensor_info info = {
        .name = "w", .dtype = SONDE_F32, .same_as = SONDE_NO_TENSOR};
    const struct timespec nap = {.tv_nsec = 10000000};
    const double until = sonde__now() + 60.0;
    sonde_recorder_options options = {.size = sizeof options,
                                      .path = "s3://bucket/unread"};
    char leased[256], findings[512], *folder = NULL;
    sonde_catalogue *catalogue = NULL;
    sonde_recorder *recorder = NULL;
    sonde__store_spool *spool = NULL;
    sonde_diag diag = {0};
    uint32_t id = 0;
    int fd = -1;
    sonde_err err = SONDE_OK;

    (void)state;
    fd = make_leased(in_root(leased, "leased"));
    if (fd < 0) {
        skip(); /* no leases on this file system */
    }
    (void)setenv("SONDE_S3_CLOSE_SECONDS", "0.1", 1);
    (void)setenv("SONDE_S3_STOP_SECONDS", "0.5", 1);
    assert_int_equal(sonde_catalogue_create(&catalogue, &diag), SONDE_OK);
    assert_int_equal(sonde_catalogue_declare(catalogue, &info, &id, &diag), SONDE_OK);
    assert_int_equal(sonde__recorder_create(&options, catalogue, &recorder, &diag),
                     SONDE_OK);
    assert_int_equal(sonde__store_spool_folder(options.path, &folder, NULL), SONDE_OK);
    (void)snprintf(findings, sizeof findings, "%s/findings", folder);
    assert_true(mkdir(findings, 0700) == 0 || errno == EEXIST);
    (void)strcat(findings, "/Rule.jsonl");
    assert_int_equal(rename(leased, findings), 0);
    while (fcntl(fd, F_GETLEASE) == F_WRLCK && sonde__now() < until) {
        (void)nanosleep(&nap, NULL); /* until the sender opens the file */
    }
    assert_int_not_equal(fcntl(fd, F_GETLEASE), F_WRLCK);
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, NULL, &diag),
                     SONDE_EIO);
    assert_non_null(strstr(diag.found, "a system call on its spool hangs"));
    assert_int_equal(fcntl(fd, F_SETLEASE, F_UNLCK), 0);
    assert_int_equal(close(fd), 0);
    do { /* the thread that was left ends */
        err = sonde__recorder_open_spool(
            options.path,
            &(sonde__store_writer){.world = 1, .resumes = true, .sends = true}, 60.0,
            &spool, &diag);
    } while (err == SONDE_EBUSY && sonde__now() < until);
    assert_int_equal(err, SONDE_OK);
    sonde__store_spool_close(spool);
    sonde_catalogue_destroy(catalogue);
    sonde__free(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lock_that_is_held),
        cmocka_unit_test(a_slow_store_is_waited_for),
        cmocka_unit_test(starting_waits_for_no_disk),
        cmocka_unit_test(a_file_that_cannot_be_read),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}

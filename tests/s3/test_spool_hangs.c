/*
 * test_spool_hangs.c - the disk of a spool hangs while it is opened: another process that
 * is stopped holds its lock, or a file cannot be opened. Opening returns, and once the
 * disk answers, the next one succeeds.
 * tsan: yes
 */
#include "s3/store_server.h"

#include "base/memory.h"
#include "base/clock.h"
#include "record/recorder_state.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lock_that_is_held),
        cmocka_unit_test(a_slow_store_is_waited_for),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}

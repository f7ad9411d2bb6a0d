/*
 * test_process.c - credential_process: a program that does not end, a program that leaves
 * another one behind, a parent that ignores SIGCHLD; and times as services write them.
 */
#include "cmocka_all.h"

#include "base/clock.h"
#include "store/s3/keys.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define GOOD                                                                             \
    "printf '{\\\"AccessKeyId\\\": \\\"a\\\", \\\"SecretAccessKey\\\": \\\"b\\\"}'"

static long requests_left = -1; /* of jansson, that succeed before one fails */

static void *allocate(size_t size)
{
    return requests_left >= 0 && requests_left-- == 0 ? NULL : malloc(size);
}

static char config[] = "/tmp/sonde-process.XXXXXX";

static int set_up(void **state)
{
    const int fd = mkstemp(config);

    (void)state;
    (void)setenv("AWS_CONFIG_FILE", config, 1);
    (void)setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
    return fd < 0 ? -1 : close(fd);
}

static int tear_down(void **state)
{
    (void)state;
    return unlink(config);
}

/* Runs a script of the shell as the process of profile "p". */
static sonde_err run(const char *script, double most, sonde__s3_keys *keys,
                     sonde_diag *diag)
{
    FILE *stream = fopen(config, "we");

    assert_non_null(stream);
    (void)fprintf(stream, "[profile p]\ncredential_process = sh -c \"%s\"\n", script);
    assert_int_equal(fclose(stream), 0);
    *keys = (sonde__s3_keys){0};
    return sonde__s3_keys_of_process("p", most, keys, diag);
}

static void a_program_that_does_not_end_is_killed(void **state)
{
    const double begin = sonde__now();
    sonde__s3_keys keys;
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(run("sleep 60 & sleep 60", 0.2, &keys, &diag), SONDE_ETIMEOUT);
    assert_non_null(strstr(diag.found, "'sh' did not end in 0 s"));
    assert_true(sonde__now() - begin < 50.0);
}

static void a_program_may_leave_another_one(void **state)
{
    const double begin = sonde__now();
    sonde__s3_keys keys;
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(run("sleep 100 & " GOOD, 80.0, &keys, &diag), SONDE_OK);
    assert_string_equal(keys.key, "a");
    assert_string_equal(keys.secret, "b");
    assert_null(keys.token);
    assert_true(sonde__now() - begin < 60.0);
    sonde__s3_keys_fini(&keys);
}

static void a_parent_may_ignore_its_children(void **state)
{
    void (*before)(int) = signal(SIGCHLD, SIG_IGN);
    sonde__s3_keys keys;
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(run(GOOD, 25.0, &keys, &diag), SONDE_OK);
    sonde__s3_keys_fini(&keys);
    (void)signal(SIGCHLD, before);
}

/* More than a pipe holds, and more than is read. */
static void output_has_a_limit(void **state)
{
    sonde__s3_keys keys;
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(run("head -c 9000000 /dev/zero", 5.0, &keys, &diag), SONDE_EIO);
    assert_non_null(strstr(diag.found, "'sh' ends with"));
}

static void times_are_read(void **state)
{
    (void)state;
    assert_true(sonde__s3_time("1970-01-02T00:00:01Z") == 86401.0);
    assert_true(sonde__s3_time("1970-01-02T00:00:01.25Z") == 86401.0);
    assert_true(sonde__s3_time("1970-01-02T00:00:01UTC") == 86401.0);
    assert_true(sonde__s3_time("1970-01-02T02:30:01+02:30") == 86401.0);
    assert_true(sonde__s3_time("1970-01-01T23:00:01.5-01:00") == 86401.0);
    assert_true(sonde__s3_time("tomorrow") == 0.0);
}

/* The system's clock, which may be set; the monotonic one goes on. */
static time_t set_by;

time_t time(time_t *out)
{
    struct timespec now;
    time_t shown = 0;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    shown = now.tv_sec + set_by;
    if (out != NULL) {
        *out = shown;
    }
    return shown;
}

/* Whatever happens to the clock, a renewal comes after its time at the latest. */
static void a_clock_that_is_set_back_delays_no_renewal(void **state)
{
    const struct timespec nap = {.tv_nsec = 20000000};

    (void)state;
    for (int hours = -1; hours <= 1; hours++) {
        sonde__s3_keys keys = {0};
        const double begun = sonde__now();

        set_by = 0;
        sonde__s3_keys_renew_after(&keys, 0.2);
        assert_true(!sonde__s3_keys_are_old(&keys) || sonde__now() - begun >= 0.2 ||
                    (double)time(NULL) >= keys.renew);
        set_by = hours * (time_t)3600;
        while (!sonde__s3_keys_are_old(&keys)) {
            assert_true(hours < 1 && sonde__now() - begun < 60.0);
            (void)nanosleep(&nap, NULL);
        }
    }
    set_by = 0;
}

/* Memory that runs out is no wrong answer of a service. */
static void json_needs_memory(void **state)
{
    char json[] =
        "{\"AccessKeyId\":\"\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\","
        "\"SecretAccessKey\":\"b\",\"Token\":\"c\"}";
    bool failed = true;
    const sonde_text text = {.data = json, .length = sizeof json - 1};

    (void)state;
    for (long n = 0; failed; n++) {
        sonde__s3_keys keys = {0};
        sonde_err err = SONDE_OK;

        requests_left = n;
        err = sonde__s3_keys_take_json(&keys, &text, "Token", "here", NULL);
        failed = requests_left < 0;
        requests_left = -1;
        assert_int_equal(err, failed ? SONDE_ENOMEM : SONDE_OK);
        sonde__s3_keys_fini(&keys);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_that_does_not_end_is_killed),
        cmocka_unit_test(a_program_may_leave_another_one),
        cmocka_unit_test(a_parent_may_ignore_its_children),
        cmocka_unit_test(output_has_a_limit),
        cmocka_unit_test(times_are_read),
        cmocka_unit_test(a_clock_that_is_set_back_delays_no_renewal),
        cmocka_unit_test(json_needs_memory),
    };

    json_set_alloc_funcs(allocate, free); /* before any JSON is read */
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

/*
 * test_log_level.c - a SONDE_LOG_LEVEL that is no level is reported, once, and does not
 * silence the log. A process of its own: the variable is read at the first use.
 */
#include "cmocka_all.h"

#include <sonde/log.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char lines[4][256];
static int count;

static void keep(void *user, sonde_log_level level, const char *room, const char *line)
{
    (void)user;
    if (count < 4) {
        (void)snprintf(lines[count], sizeof lines[count], "%d %s: %s", (int)level, room,
                       line);
    }
    count++;
}

static void a_wrong_level_is_reported(void **state)
{
    char expected[256];

    (void)state;
    assert_int_equal(setenv("SONDE_LOG_LEVEL", "loud", 1), 0);
    sonde_log_set_sink(keep, NULL);
    sonde_log(SONDE_LOG_INFO, "test", "one");
    sonde_log(SONDE_LOG_DEBUG, "test", "none");
    sonde_log(SONDE_LOG_INFO, "test", "two");
    (void)snprintf(expected, sizeof expected,
                   "%d log: SONDE_LOG_LEVEL: unknown level 'loud' (expected debug, info, "
                   "warning, error, critical or off)",
                   (int)SONDE_LOG_WARNING);
    assert_int_equal(count, 3);
    assert_string_equal(lines[0], expected);
    assert_non_null(strstr(lines[1], "one"));
    assert_non_null(strstr(lines[2], "two"));
    sonde_log_set_sink(NULL, NULL);
}

static size_t length;

static void measure(void *user, sonde_log_level level, const char *room, const char *line)
{
    (void)user, (void)level, (void)room;
    length = strlen(line);
}

static void a_long_message_is_cut(void **state)
{
    (void)state;
    sonde_log_set_sink(measure, NULL);
    sonde_log(SONDE_LOG_INFO, "test", "%2000d", 1);
    sonde_log_set_sink(NULL, NULL);
    assert_int_equal(length, 1023);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_level_is_reported),
        cmocka_unit_test(a_long_message_is_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

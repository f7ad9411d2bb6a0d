/*
 * clock.c - the clocks.
 */
#include "base/clock.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

double sonde__now(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int64_t sonde__date(void)
{
    struct timespec now = {0};

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

bool sonde__clock_condition(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    bool good = pthread_condattr_init(&monotonic) == 0;

    if (good) {
        good = pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0 &&
               pthread_cond_init(condition, &monotonic) == 0;
        (void)pthread_condattr_destroy(&monotonic);
    }
    return good;
}

struct timespec sonde__clock_after(double seconds)
{
    struct timespec until = {0};

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)seconds;
    until.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    return until;
}

const char *sonde__date_text(char *text)
{
    struct timespec now = {0};
    struct tm utc = {0};

    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &utc);
    (void)snprintf(text, SONDE__DATE_TEXT, "%04d-%02d-%02dT%02d:%02d:%02d.%06ldZ",
                   utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour,
                   utc.tm_min, utc.tm_sec, now.tv_nsec / 1000);
    return text;
}

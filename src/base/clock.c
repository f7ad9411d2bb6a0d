/*
 * clock.c - the clocks.
 */
#include "base/clock.h"

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

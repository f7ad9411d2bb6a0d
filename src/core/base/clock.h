/*
 * clock.h - the clocks. Internal.
 */
#ifndef SONDE_BASE_CLOCK_H
#define SONDE_BASE_CLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include <sonde/export.h>

SONDE_API double sonde__now(void);   /* seconds, monotonic */
SONDE_API int64_t sonde__date(void); /* ns since 1970, UTC, by the system's clock */

/* A condition whose waits end by the monotonic clock, and such a time, in so many
 * seconds. */
SONDE_API bool sonde__clock_condition(pthread_cond_t *condition);
SONDE_API struct timespec sonde__clock_after(double seconds);

enum { SONDE__DATE_TEXT = 64 };
/* The date as "2026-01-31T12:00:00.000000Z", in SONDE__DATE_TEXT bytes at text. */
const char *sonde__date_text(char *text);

#endif

/*
 * schedule.h - when a tap is due.
 *
 *     due(s) = s in steps                                        if steps are given
 *            = start <= s < end and s mod every < together       otherwise
 *              or s < first
 *
 * Steps count from 0 within a mode, and `every` is anchored at step 0, not at start.
 *
 * Plain values: any number of threads may read one.
 */
#ifndef SONDE_SCHEDULE_H
#define SONDE_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sonde/error.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SONDE_SCHEDULE_NEVER INT64_MAX

typedef struct sonde_schedule {
    int64_t every; /* >= 1; a zeroed schedule (every 0, no steps) is never due */
    int64_t start; /* first step, inclusive */
    int64_t end;   /* exclusive; 0 with start 0: no end (SONDE_SCHEDULE_NEVER too) */
    const int64_t *steps; /* ascending; borrowed while checking, copied by an observer */
    size_t step_count;
    int64_t first;    /* with every: each of the first steps, this many, as well */
    int64_t together; /* with every: steps in a row; 0: 1 */
} sonde_schedule;

/* Every step. */
SONDE_API sonde_schedule sonde_schedule_always(void);
/* Steps 0, every, 2 every ... */
SONDE_API sonde_schedule sonde_schedule_every(int64_t every);
/* every < 1, end <= start, negative or unsorted steps: SONDE_EINVAL naming the key. */
SONDE_API SONDE_CHECKED sonde_err sonde_schedule_check(const sonde_schedule *schedule,
                                                       sonde_diag *diag);
SONDE_API bool sonde_schedule_due(const sonde_schedule *schedule, int64_t step);
/* The first due step >= step, or SONDE_SCHEDULE_NEVER. */
SONDE_API int64_t sonde_schedule_next(const sonde_schedule *schedule, int64_t step);

#ifdef __cplusplus
}
#endif

#endif

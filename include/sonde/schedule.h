/*
 * schedule.h - when a tap is due.
 *
 *     due(s) = s in steps                                        if steps are given
 *            = s < first, or start <= s < end and                otherwise
 *              (s mod every = 0 or s mod row_every < row)
 *
 * Steps count from 0 within a mode, and `every` and `row_every` are anchored at step 0,
 * not at start.
 *
 * Plain values: any number of threads may read one.
 */
#ifndef SONDE_SCHEDULE_H
#define SONDE_SCHEDULE_H

#include <sonde/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
    /* With every, as well: each of the first `first` steps, and `row` steps in a row at
     * each step that row_every divides (0: no rows). */
    int64_t first, row, row_every;
} sonde_schedule;

/* Steps 0, every, 2 every ...; 1: every step. */
SONDE_API sonde_schedule sonde_schedule_every(int64_t every);
/* every < 1, end <= start, a row without row_every, negative or unsorted steps:
 * SONDE_EINVAL naming the key. */
SONDE_API SONDE_CHECKED sonde_err sonde_schedule_check(const sonde_schedule *schedule,
                                                       sonde_diag *diag);
SONDE_API bool sonde_schedule_due(const sonde_schedule *schedule, int64_t step);
/* The first due step >= step, or SONDE_SCHEDULE_NEVER. */
SONDE_API int64_t sonde_schedule_next(const sonde_schedule *schedule, int64_t step);
/* The schedule whose first steps are as many, whose looks are as close together and whose
 * rows are as long as those of both; for schedules without steps, start and end. A
 * schedule that is never due adds nothing. */
SONDE_API sonde_schedule sonde_schedule_join(const sonde_schedule *a,
                                             const sonde_schedule *b);

/* === save schedules of collections =================================================== */

/*
 * Which steps of a collection are saved, and what of them.
 *
 *     due(s) = s in save_steps                                           if they are given
 *            = start_step <= s < end_step and s mod every == 0           otherwise
 *     or a tensor that when_nan selects held a NaN or an infinity at step s
 *
 * where s counts the steps of the mode. Later layers win, field by field: hook, hook's
 * mode, collection, collection's mode. A layer that gives every, start_step or end_step
 * and no save_steps also cancels the save_steps of the layers before it.
 *
 * Plain values: any number of threads may read one.
 */

/* A field that is SONDE_UNSET is taken from the layer before. */
#define SONDE_UNSET INT64_MIN
typedef struct sonde_save_config {
    int64_t every;      /* 500 */
    int64_t start_step; /* 0 */
    int64_t end_step;   /* exclusive; SONDE_SCHEDULE_NEVER: no end; 0 with start 0: off */
    const int64_t *save_steps; /* NULL: from the layer before */
    size_t save_step_count;
    const char *when_nan; /* a selector; "": none; NULL: from the layer before */
} sonde_save_config;
/* All fields unset. */
SONDE_API sonde_save_config sonde_save_config_unset(void);

/* Which reductions are kept; bit i is sonde_stat i. With any, raw values are dropped
 * unless save_raw_tensor. All statistics are in one row of vital signs, so any of them
 * brings all. */
typedef struct sonde_reduction_config {
    uint32_t stats;
    bool histogram; /* the sketch */
    bool save_raw_tensor;
    bool norms;      /* of the statistics, those that norms have (<sonde/stats.h>) */
    bool save_shape; /* accepted for smdebug; the run's catalogue has all shapes anyway */
} sonde_reduction_config;

#ifdef __cplusplus
}
#endif

#endif

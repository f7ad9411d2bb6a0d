/*
 * schedule.c - whether a step is due, the next due step, and the checks of a schedule.
 *
 * A list of steps is searched by halves; `every` is a division.
 */
#include <sonde/error.h>
#include <sonde/schedule.h>

#include "base/fail.h"
#include "base/macros.h"
#include "observe/attach.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

sonde_schedule sonde_schedule_every(int64_t every)
{
    return (sonde_schedule){.every = every};
}

static sonde_err check_steps(const sonde_schedule *schedule, sonde_diag *diag)
{
    if (schedule->steps == NULL) {
        return sonde__fail(diag, SONDE_EINVAL, "steps", "a list", "%zu steps at NULL",
                           schedule->step_count);
    }
    for (size_t i = 0; i < schedule->step_count; i++) {
        const long long step = (long long)schedule->steps[i];

        if (step < 0) {
            return sonde__fail(diag, SONDE_EINVAL, "steps", "0 or more", "step %lld",
                               step);
        }
        if (i > 0 && schedule->steps[i - 1] > schedule->steps[i]) {
            return sonde__fail(diag, SONDE_EINVAL, "steps", "ascending steps",
                               "%lld follows %lld", step,
                               (long long)schedule->steps[i - 1]);
        }
    }
    return SONDE_OK;
}

sonde_err sonde_schedule_check(const sonde_schedule *schedule, sonde_diag *diag)
{
    SONDE__NEEDS(diag, schedule);
    const long long start = (long long)schedule->start, end = (long long)schedule->end;

    if (schedule->step_count > 0) {
        return check_steps(schedule, diag);
    }
    if (schedule->every == 0 && start == 0 && end == 0) {
        return SONDE_OK; /* never */
    }
    if (schedule->every < 1) {
        return sonde__fail(diag, SONDE_EINVAL, "every", "1 or more", "%lld",
                           (long long)schedule->every);
    }
    if (start < 0) {
        return sonde__fail(diag, SONDE_EINVAL, "start", "0 or more", "%lld", start);
    }
    if (schedule->first < 0) {
        return sonde__fail(diag, SONDE_EINVAL, "first", "0 or more", "%lld",
                           (long long)schedule->first);
    }
    if (schedule->row < 0) {
        return sonde__fail(diag, SONDE_EINVAL, "row", "0 or more", "%lld",
                           (long long)schedule->row);
    }
    if (schedule->row > 0 && schedule->row_every < 1) {
        return sonde__fail(diag, SONDE_EINVAL, "row_every", "1 or more, with row", "%lld",
                           (long long)schedule->row_every);
    }
    if (end <= start && !(start == 0 && end == 0)) {
        return sonde__fail(diag, SONDE_EINVAL, "end", "a step after start",
                           "%lld with start %lld", end, start);
    }
    return SONDE_OK;
}

/* The first index whose step is >= step, or step_count. */
static size_t search(const sonde_schedule *schedule, int64_t step)
{
    size_t low = 0, high = schedule->step_count;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (schedule->steps[middle] < step) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The first step >= first, and below end, with step mod every < row. */
static int64_t next_row(int64_t first, int64_t end, int64_t every, int64_t row)
{
    const int64_t beyond = first % every, left = every - beyond;

    if (beyond < row) {
        return first;
    }
    return first < end - left ? first + left : SONDE_SCHEDULE_NEVER;
}

int64_t sonde_schedule_next(const sonde_schedule *schedule, int64_t step)
{
    if (schedule == NULL || (schedule->step_count > 0 && schedule->steps == NULL)) {
        return SONDE_SCHEDULE_NEVER;
    }
    const int64_t first = SONDE_MAX(SONDE_MAX(step, schedule->start), 0);
    const int64_t end =
        schedule->end == 0 && schedule->start == 0 ? SONDE_SCHEDULE_NEVER : schedule->end;

    if (schedule->step_count > 0) {
        const size_t i = search(schedule, step);

        return i < schedule->step_count ? schedule->steps[i] : SONDE_SCHEDULE_NEVER;
    }
    if (schedule->every >= 1 && SONDE_MAX(step, 0) < schedule->first) {
        return SONDE_MAX(step, 0);
    }
    if (schedule->every < 1 || first >= end) {
        return SONDE_SCHEDULE_NEVER;
    }
    int64_t next = next_row(first, end, schedule->every, 1);
    if (schedule->row > 0 && next > first) {
        next = SONDE_MIN(next, next_row(first, end, schedule->row_every, schedule->row));
    }
    return next;
}

bool sonde_schedule_due(const sonde_schedule *schedule, int64_t step)
{
    if (schedule == NULL) {
        return false;
    }
    return step != SONDE_SCHEDULE_NEVER && sonde_schedule_next(schedule, step) == step;
}

sonde_schedule sonde_schedule_join(const sonde_schedule *a, const sonde_schedule *b)
{
    if (a == NULL || b == NULL) {
        return a != NULL ? *a : b != NULL ? *b : (sonde_schedule){0};
    }
    sonde_schedule both = *a;

    if (a->every < 1 || b->every < 1) {
        return a->every < 1 ? *b : *a;
    }
    both.first = SONDE_MAX(a->first, b->first);
    both.every = SONDE_MIN(a->every, b->every);
    both.row = SONDE_MAX(a->row, b->row);
    both.row_every = a->row < 1   ? b->row_every
                     : b->row < 1 ? a->row_every
                                  : SONDE_MIN(a->row_every, b->row_every);
    return both;
}

/* The first steps show errors of the setup: as many are observed if a program says how
 * often to look at a role, or at all tensors. */
enum { FIRST_OF_ROLE = 20, FIRST_OF_ALL = 50 };

void sonde__observe_thin(sonde_schedule *when, int64_t every, bool vitals)
{
    if (every < 0) {
        *when = (sonde_schedule){0};
    } else if (every > 0 && vitals) {
        *when = (sonde_schedule){.every = every, .first = FIRST_OF_ROLE};
    } else if (every > 0 && when->every > 0) {
        when->every = SONDE_MAX(when->every, every);
        when->row_every = SONDE_MAX(when->row_every, every);
        when->first = SONDE_MIN(when->first, (int64_t)FIRST_OF_ROLE);
    }
}

sonde_schedule sonde__observe_judged(int64_t every)
{
    return (sonde_schedule){.every = every, .first = FIRST_OF_ALL};
}

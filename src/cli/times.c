/*
 * times.c - moments, durations and rates of a run's steps, for people.
 */
#include "cli/cli_run.h"

#include <inttypes.h>
#include <time.h>

enum { RATE_STEPS = 100 };

const char *cli_moment_text(int64_t time, char *buf, size_t size)
{
    const time_t seconds = (time_t)(time / 1000000000);
    struct tm utc = {0};

    (void)gmtime_r(&seconds, &utc);
    if (strftime(buf, size, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0) {
        buf[0] = '\0';
    }
    return buf;
}

const char *cli_duration_text(double seconds, char *buf, size_t size)
{
    const double whole = seconds > 0.0 ? seconds : 0.0;
    const int64_t rounded = (int64_t)(whole + 0.5);

    if (whole < 59.5) {
        (void)snprintf(buf, size, whole < 9.95 ? "%.1f s" : "%.0f s", whole);
    } else if (rounded < 3600) {
        (void)snprintf(buf, size, "%" PRId64 " min %" PRId64 " s", rounded / 60,
                       rounded % 60);
    } else if (rounded < 86400) {
        (void)snprintf(buf, size, "%" PRId64 " h %" PRId64 " min", rounded / 3600,
                       rounded % 3600 / 60);
    } else {
        (void)snprintf(buf, size, "%" PRId64 " d %" PRId64 " h", rounded / 86400,
                       rounded % 86400 / 3600);
    }
    return buf;
}

double cli_age(int64_t time)
{
    struct timespec now = {0};

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec - (double)time / 1e9 + (double)now.tv_nsec / 1e9;
}

double cli_steps_per_second(sonde_trial *trial)
{
    size_t count = 0, first = 0;
    const int64_t *steps = sonde_trial_steps(trial, SONDE_MODE_GLOBAL, false, &count);
    int64_t began = 0, ended = 0;

    if (count < 2) {
        return 0.0;
    }
    first = count > RATE_STEPS ? count - 1 - RATE_STEPS : 0;
    if (!sonde_trial_step_time(trial, SONDE_MODE_GLOBAL, steps[first], -1, &began) ||
        !sonde_trial_step_time(trial, SONDE_MODE_GLOBAL, steps[count - 1], -1, &ended) ||
        ended <= began) {
        return 0.0;
    }
    return (double)(steps[count - 1] - steps[first]) * 1e9 / (double)(ended - began);
}

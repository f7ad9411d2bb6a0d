/*
 * track.c - see track.h.
 */
#include "report/track.h"
#include "base/macros.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <string.h>

#include <sonde/error.h>

/* --- quantities --------------------------------------------------------------------- */

static const char *label_of(sonde_stat stat)
{
    switch (stat) {
    case SONDE_STAT_MEAN:
        return "mean";
    case SONDE_STAT_ABS_MEAN:
        return "mean of |x|";
    case SONDE_STAT_ABS_MAX:
    case SONDE_STAT_LINF:
        return "largest |x|";
    case SONDE_STAT_L1:
        return "sum of |x|";
    case SONDE_STAT_L2:
        return "norm";
    case SONDE_STAT_VARIANCE:
        return "variance";
    case SONDE_STAT_ABS_VARIANCE:
        return "variance of |x|";
    case SONDE_STAT_ABS_STD:
        return "standard deviation of |x|";
    case SONDE_STAT_STD:
        return "standard deviation";
    case SONDE_STAT_COUNT:
    case SONDE_STAT_MIN:
    case SONDE_STAT_MAX:
    case SONDE_STAT_SUM:
    case SONDE_STAT_ABS_MIN:
    case SONDE_STAT_NAN:
    case SONDE_STAT_POS_INF:
    case SONDE_STAT_NEG_INF:
    case SONDE_STAT_ZERO:
    case SONDE_STAT_NONFINITE:
        break;
    }
    return sonde_stat_name(stat);
}

static sonde__report_quantity of_stat(sonde_stat stat)
{
    return (sonde__report_quantity){SONDE__OF_STAT, stat, label_of(stat)};
}

static const sonde__report_quantity rms = {SONDE__OF_RMS, SONDE_STAT_L2,
                                           "root mean square"};
static const sonde__report_quantity zeros = {SONDE__OF_ZERO_PERCENT, SONDE_STAT_ZERO,
                                             "values that are 0, %"};

sonde__report_quantity sonde__report_quantity_usual(sonde_role role)
{
    return role == SONDE_ROLE_LOSS || role == SONDE_ROLE_SCALAR ? of_stat(SONDE_STAT_MEAN)
                                                                : rms;
}

sonde__report_quantity sonde__report_quantity_of(const char *statistic, sonde_role role,
                                                 bool *same)
{
    /* statistics of rules that vital signs do not hold, and what shows them */
    static const struct {
        const char *name;
        sonde_stat stat;
    } near[] = {{"variance_ratio", SONDE_STAT_VARIANCE},
                {"percent_saturated", SONDE_STAT_ABS_MEAN},
                {"percent_equal", SONDE_STAT_STD},
                {"l1_difference", SONDE_STAT_L1},
                {"nonfinite", SONDE_STAT_ABS_MAX},
                {"update_ratio", SONDE_STAT_L2},
                {"steps_unchanged", SONDE_STAT_L2},
                {"changes", SONDE_STAT_L2}};
    sonde_stat stat = SONDE_STAT_MEAN;

    *same = strcmp(statistic, "rms") == 0 || strcmp(statistic, "zero_percent") == 0;
    if (strcmp(statistic, "rms") == 0) {
        return rms;
    }
    if (*same || strcmp(statistic, "percent_inactive") == 0) {
        return zeros;
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(near); i++) {
        if (strcmp(statistic, near[i].name) == 0) {
            return of_stat(near[i].stat);
        }
    }
    *same = sonde_stat_parse(statistic, &stat, NULL) == SONDE_OK;
    return *same ? of_stat(stat) : sonde__report_quantity_usual(role);
}

/* The number; NaN if no element is finite. */
static double value_of(const sonde_vitals *vitals, const sonde__report_quantity *of)
{
    sonde_vitals finite = *vitals;

    finite.count -= vitals->nan + vitals->pos_inf + vitals->neg_inf;
    finite.nan = finite.pos_inf = finite.neg_inf = 0;
    if (finite.count == 0) {
        return NAN;
    }
    switch (of->kind) {
    case SONDE__OF_RMS:
        return sqrt(finite.sumsq / (double)finite.count);
    case SONDE__OF_ZERO_PERCENT:
        return 100.0 * (double)finite.zero / (double)finite.count;
    case SONDE__OF_STAT:
        break;
    }
    return sonde_vitals_get(&finite, of->stat);
}

/* --- tracks ------------------------------------------------------------------------- */

static void add_value(sonde__report_track *track, sonde__report_column *column,
                      double value)
{
    if (!column->any) {
        column->first = column->low = column->high = value;
        column->any = true;
    }
    column->low = fmin(column->low, value);
    column->high = fmax(column->high, value);
    column->last = track->last = value;
    track->low = fmin(track->low, value);
    track->high = fmax(track->high, value);
    track->zero = track->zero || !(fabs(value) > 0.0);
    track->negative = track->negative || value < 0.0;
    if (value > 0.0) {
        track->least = fmin(track->least, value);
    }
}

static void add_step(sonde__report_track *track, int64_t step, const sonde_vitals *vitals,
                     const sonde__report_quantity *of)
{
    /* in double: steps times columns might not fit */
    const double share =
        (double)(step - track->begin) / ((double)(track->end - track->begin) + 1.0);
    const int at = SONDE_MIN((int)(share * track->count), track->count - 1);
    const double value = value_of(vitals, of);
    const bool bad = vitals->nan + vitals->pos_inf + vitals->neg_inf > 0;

    track->steps++;
    track->bad += bad;
    track->column[at].bad = track->column[at].bad || bad;
    if (isfinite(value)) {
        add_value(track, &track->column[at], value);
    }
}

sonde_err sonde__report_track_read(sonde_trial *trial, uint32_t id, sonde_mode mode,
                                   const sonde__report_quantity *of, int64_t begin,
                                   int64_t end, int columns, sonde__report_track *track,
                                   sonde_diag *diag)
{
    int64_t *steps = NULL;
    sonde_vitals *vitals = NULL;
    size_t count = 0;
    sonde_err err = SONDE_OK;

    *track = (sonde__report_track){.begin = begin,
                                   .end = end,
                                   .count = end - begin < columns ? (int)(end - begin) + 1
                                                                  : columns,
                                   .low = (double)INFINITY,
                                   .high = -(double)INFINITY,
                                   .least = (double)INFINITY,
                                   .last = (double)NAN};
    err = sonde_trial_vitals_series(trial, id, SONDE_MODE_GLOBAL, -1, begin, end + 1,
                                    &steps, &vitals, &count, diag);
    if (err != SONDE_OK) {
        return err == SONDE_ENOMEM ? err : SONDE_OK;
    }
    for (size_t i = 0; i < count; i++) {
        sonde_mode of_step = SONDE_MODE_GLOBAL;
        int64_t mode_step = 0;

        if (mode == SONDE_MODE_GLOBAL ||
            (sonde_trial_mode_step(trial, steps[i], &of_step, &mode_step) &&
             of_step == mode)) {
            add_step(track, steps[i], &vitals[i], of);
        }
    }
    sonde_trial_free(steps);
    sonde_trial_free(vitals);
    return SONDE_OK;
}

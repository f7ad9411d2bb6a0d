/*
 * track.h - how a number of a tensor goes over the steps, reduced to columns.
 *
 * A column stands for a stretch of steps and knows the first, least, largest and last value
 * of it, so that a curve of 100,000 steps is drawn as it would be by a point a step.
 */
#ifndef SONDE_REPORT_TRACK_H
#define SONDE_REPORT_TRACK_H

#include <sonde/error.h>
#include <sonde/trial.h>

#include <stdbool.h>
#include <stdint.h>

/* What is drawn of a tensor's vital signs: of its finite elements, so that a single NaN does
 * not blind it. */
typedef enum sonde__report_quantity_kind {
    SONDE__OF_STAT = 0,
    SONDE__OF_RMS = 1,         /* sqrt of the mean of x^2 */
    SONDE__OF_ZERO_PERCENT = 2 /* how many elements are 0 */
} sonde__report_quantity_kind;

typedef struct sonde__report_quantity {
    sonde__report_quantity_kind kind;
    sonde_stat stat;
    const char *label;
} sonde__report_quantity;

enum { SONDE__COLUMNS = 240 };

typedef struct sonde__report_column {
    double first, low, high, last;
    bool any; /* a value */
    bool bad; /* a step at which an element was NaN or infinite */
} sonde__report_column;

typedef struct sonde__report_track {
    sonde__report_column column[SONDE__COLUMNS];
    int count;           /* columns used: of the axis */
    int64_t begin, end;  /* the axis: steps begin ... end */
    double low, high;    /* over all; low > high: no value */
    double least;        /* positive one; infinite: none */
    double last;         /* value */
    bool zero, negative; /* whether there are such values */
    uint64_t steps, bad; /* seen; of them with NaN or infinities */
} sonde__report_track;

/*
 * The track of tensor id over global steps begin ... end in columns (at most SONDE__COLUMNS),
 * of the steps of a mode; SONDE_MODE_GLOBAL: of all. What cannot be read is left out; only
 * SONDE_ENOMEM is an error.
 */
SONDE_API sonde_err sonde__report_track_read(sonde_trial *trial, uint32_t id,
                                             sonde_mode mode,
                                             const sonde__report_quantity *of,
                                             int64_t begin, int64_t end, int columns,
                                             sonde__report_track *track,
                                             sonde_diag *diag);

/* What a finding's statistic is best shown as. *same: it is that number itself, so that the
 * finding's threshold can be drawn. */
SONDE_API sonde__report_quantity sonde__report_quantity_of(const char *statistic,
                                                           sonde_role role, bool *same);
/* What tells most of a tensor of that role. */
SONDE_API sonde__report_quantity sonde__report_quantity_usual(sonde_role role);

#endif

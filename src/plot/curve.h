/*
 * curve.h - numbers of tensors over the steps: read, reduced to columns, drawn.
 *
 * A column stands for a range of steps and keeps its first, least, largest and last
 * value, so a curve of 100,000 steps looks as if every step were drawn. A curve is SVG
 * that stretches to its place, with labels of HTML around it.
 */
#ifndef SONDE_REPORT_CURVE_H
#define SONDE_REPORT_CURVE_H

#include "plot/html.h"

#include <sonde/error.h>
#include <sonde/trial.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- reading ------------------------------------------------------------------------ */

/* The number drawn for a tensor, over its finite elements: one NaN does not hide the
 * rest. */
typedef enum sonde__report_quantity_kind {
    SONDE__QUANTITY_STAT = 0,
    SONDE__QUANTITY_RMS = 1,         /* sqrt of the mean of x^2 */
    SONDE__QUANTITY_ZERO_PERCENT = 2 /* share of elements that are 0 */
} sonde__report_quantity_kind;

typedef struct sonde__report_quantity {
    sonde__report_quantity_kind kind;
    sonde_stat stat;
    const char *label;
} sonde__report_quantity;

enum { SONDE__COLUMNS = 240 };

typedef struct sonde__report_column {
    double first, low, high, last;
    bool any; /* has a value */
    bool bad; /* has a step with a NaN or infinite element */
} sonde__report_column;

typedef struct sonde__report_track {
    sonde__report_column column[SONDE__COLUMNS];
    int count;           /* of columns used */
    int64_t begin, end;  /* the axis: steps begin ... end */
    double low, high;    /* over all columns; low > high: no value */
    double least;        /* positive value; infinite: none */
    double last;         /* value */
    bool zero, negative; /* true: there are such values */
    uint64_t steps, bad; /* steps read; those with NaN or infinities */
} sonde__report_track;

/*
 * Reads the track of tensor id over global steps begin ... end into at most `columns`
 * columns (up to SONDE__COLUMNS), from the steps of a mode; SONDE_MODE_GLOBAL: from all.
 * Unreadable steps are skipped; the only error is SONDE_ENOMEM.
 */
SONDE_API sonde_err sonde__report_track_read(sonde_trial *trial, uint32_t id,
                                             sonde_mode mode,
                                             const sonde__report_quantity *quantity,
                                             int64_t begin, int64_t end, int columns,
                                             sonde__report_track *track,
                                             sonde_diag *diag);

/* The quantity that shows a finding's statistic best. *same: it is that statistic itself,
 * so the finding's threshold can be drawn. */
sonde__report_quantity sonde__report_quantity_of(const char *statistic, sonde_role role,
                                                 bool *same);
/* The most informative quantity for a tensor of that role. */
SONDE_API sonde__report_quantity sonde__report_quantity_usual(sonde_role role);

/* --- drawing ------------------------------------------------------------------------ */

typedef struct sonde__report_trace {
    const sonde__report_track *track;
    const char *name; /* in the legend; NULL: a single line */
} sonde__report_trace;

typedef struct sonde__report_curve {
    const sonde__report_trace *lines; /* at most 2, over the same steps */
    size_t line_count;
    const char *label;   /* of the quantity: ours, not escaped */
    const char *tensor;  /* its name: the run's, escaped */
    double threshold;    /* NaN: none */
    int64_t first, last; /* steps at which the finding held; first < 0: none */
} sonde__report_curve;

/* Adds a figure; nothing if there is no value. */
void sonde__report_curve_draw(sonde_text *page, const sonde__report_curve *curve);
/* Adds a line without axes, as high as a row of text. */
void sonde__report_spark_draw(sonde_text *page, const sonde__report_track *track);

#endif

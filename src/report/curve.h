/*
 * curve.h - tracks as curves: SVG that stretches to its place, labels of HTML around it.
 */
#ifndef SONDE_REPORT_CURVE_H
#define SONDE_REPORT_CURVE_H

#include "report/html.h"
#include "report/track.h"

#include <stddef.h>
#include <stdint.h>

typedef struct sonde__report_trace {
    const sonde__report_track *track;
    const char *name; /* in the legend; NULL: there is but one line */
} sonde__report_trace;

typedef struct sonde__report_curve {
    const sonde__report_trace *lines; /* at most 2, of one axis of steps */
    size_t line_count;
    const char *label; /* what is drawn: ours */
    const char *of;    /* of which tensor: the run's */
    double threshold;  /* NaN: none */
    int64_t from, to;  /* steps at which the finding held; from < 0: none */
} sonde__report_curve;

/* A figure, or nothing if there is no value. */
void sonde__report_curve_draw(sonde_text *page, const sonde__report_curve *curve);
/* A line without axes, as high as a row of text. */
void sonde__report_spark_draw(sonde_text *page, const sonde__report_track *track);

#endif

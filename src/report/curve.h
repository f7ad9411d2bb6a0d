/*
 * curve.h - tracks as curves: SVG that stretches to its place, labels of HTML around it.
 */
#ifndef SONDE_REPORT_CURVE_H
#define SONDE_REPORT_CURVE_H

#include "report/html.h"
#include "report/track.h"

typedef struct sonde__trace {
    const sonde__track *track;
    const char *name; /* in the legend; NULL: there is but one line */
} sonde__trace;

typedef struct sonde__curve {
    const sonde__trace *lines; /* at most 2, of one axis of steps */
    size_t line_count;
    const char *label; /* what is drawn: ours */
    const char *of;    /* of which tensor: the run's */
    double threshold;  /* NaN: none */
    int64_t from, to;  /* steps at which the finding held; from < 0: none */
} sonde__curve;

/* A figure, or nothing if there is no value. */
void sonde__curve_draw(sonde__bytes *page, const sonde__curve *curve);
/* A line without axes, as high as a row of text. */
void sonde__spark_draw(sonde__bytes *page, const sonde__track *track);

#endif

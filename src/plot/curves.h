/*
 * curves.h - the points of curves, read from views and ready to draw.
 */
#ifndef SONDE_PLOT_CURVES_H
#define SONDE_PLOT_CURVES_H

#include <sonde/error.h>
#include <sonde/plot.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a point can be drawn. */
typedef enum sonde__plot_mark {
    SONDE__MARK_POINT,
    SONDE__MARK_NAN,
    SONDE__MARK_ABOVE, /* +Inf, and beyond 1e300 */
    SONDE__MARK_BELOW  /* -Inf, below -1e300, and <= 0 on a logarithmic axis */
} sonde__plot_mark;

typedef struct sonde__plot_series {
    size_t count;
    double *x, *y;     /* (count) */
    double *smooth;    /* (count), NaN in gaps; NULL: not smoothed */
    bool ascending;    /* x never falls */
    bool whole;        /* all x are integers */
    uint64_t marks[4]; /* number of points of each kind */
} sonde__plot_series;

/* where names the series in diag. On failure there is nothing to free. */
SONDE_API sonde_err sonde__plot_series_read(const sonde_plot_series *series, bool log_y,
                                            double smooth, const char *where,
                                            sonde__plot_series *out, sonde_diag *diag);
SONDE_API void sonde__plot_series_fini(sonde__plot_series *series);

sonde__plot_mark sonde__plot_mark_of(double y, bool log_y);

#endif

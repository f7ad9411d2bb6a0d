/*
 * series.c - see series.h.
 */
#include "plot/series.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <math.h>

sonde__plot_mark sonde__plot_mark_of(double y, bool log_y)
{
    if (isnan(y)) {
        return SONDE__MARK_NAN;
    }
    if (y > 1e300) {
        return SONDE__MARK_ABOVE;
    }
    if (y < -1e300 || (log_y && y < 1e-300)) {
        return SONDE__MARK_BELOW;
    }
    return SONDE__MARK_POINT;
}

static sonde_err check_line(const sonde_view *view, const char *where, const char *axis,
                            sonde_diag *diag)
{
    char shape[160] = "";

    if (sonde_dtype_size(view->dtype) == 0) {
        return sonde__fail(diag, SONDE_EDTYPE, where, NULL, "%s: no dtype has number %d",
                           axis, (int)view->dtype);
    }
    if (view->rank != 1) {
        const int rank = SONDE_MIN(SONDE_MAX(view->rank, 0), SONDE_MAX_DIMS);

        return sonde__fail(diag, SONDE_ESHAPE, where, "(n)", "%s of shape %s", axis,
                           sonde_shape_text(rank, view->shape, shape, sizeof shape));
    }
    return SONDE_OK;
}

static sonde_err check_series(const sonde_plot_series *from, const char *where,
                              sonde_diag *diag)
{
    sonde_err err = check_line(&from->y, where, "y", diag);

    if (err == SONDE_OK && from->x.data != NULL) {
        err = check_line(&from->x, where, "x", diag);
    }
    if (err != SONDE_OK) {
        return err;
    }
    if (from->y.shape[0] < 1 || from->y.data == NULL) {
        return sonde__fail(diag, SONDE_EINVAL, where, "at least one point",
                           "the series is empty");
    }
    if (from->x.data != NULL && from->x.shape[0] != from->y.shape[0]) {
        return sonde__fail(diag, SONDE_ESHAPE, where, "as many x as y",
                           "%lld x and %lld y", (long long)from->x.shape[0],
                           (long long)from->y.shape[0]);
    }
    return SONDE_OK;
}

static double element(const sonde_view *view, size_t i)
{
    const char *const data = view->data;
    const int64_t at = (int64_t)i * view->stride[0];

    return sonde_element_get(view->dtype,
                             data + at * (int64_t)sonde_dtype_size(view->dtype));
}

static sonde_err read_points(const sonde_plot_series *from, bool log_y, const char *where,
                             sonde__plot_series *s, sonde_diag *diag)
{
    s->ascending = true;
    s->whole = true;
    for (size_t i = 0; i < s->count; i++) {
        const double x = from->x.data != NULL ? element(&from->x, i) : (double)i;

        if (!(fabs(x) <= 1e300)) {
            return sonde__fail(diag, SONDE_EINVAL, where, "finite x",
                               "x is %g at point %zu", x, i);
        }
        s->x[i] = x;
        s->y[i] = element(&from->y, i);
        s->ascending = s->ascending && (i == 0 || x >= s->x[i - 1]);
        s->whole = s->whole && floor(x) >= x;
        s->marks[sonde__plot_mark_of(s->y[i], log_y)]++;
    }
    return SONDE_OK;
}

/* m = w m + (1 - w) y, shown divided by 1 - w^t (Kingma and Ba 2015, section 3); points
 * that are not drawn take no part and leave a gap. */
static void smooth_points(sonde__plot_series *s, bool log_y, double weight)
{
    double mean = 0, left = 1;

    for (size_t i = 0; i < s->count; i++) {
        if (sonde__plot_mark_of(s->y[i], log_y) != SONDE__MARK_POINT) {
            s->smooth[i] = NAN;
            continue;
        }
        mean = weight * mean + (1 - weight) * s->y[i];
        left *= weight;
        s->smooth[i] = mean / (1 - left);
    }
}

sonde_err sonde__plot_series_read(const sonde_plot_series *from, bool log_y,
                                  double smooth, const char *where,
                                  sonde__plot_series *out, sonde_diag *diag)
{
    sonde__plot_series s = {0};
    size_t size = 0;
    sonde_err err = check_series(from, where, diag);

    if (err != SONDE_OK) {
        return err;
    }
    s.count = (size_t)from->y.shape[0];
    if (sonde__mul(s.count, sizeof(double), &size)) {
        s.x = sonde__malloc(size);
        s.y = sonde__malloc(size);
        s.smooth = smooth > 0 ? sonde__malloc(size) : NULL;
    }
    if (s.x == NULL || s.y == NULL || (smooth > 0 && s.smooth == NULL)) {
        err = sonde__fail_nomem(diag, "the points of a curve");
    } else {
        err = read_points(from, log_y, where, &s, diag);
    }
    if (err != SONDE_OK) {
        sonde__plot_series_fini(&s);
        return err;
    }
    if (s.smooth != NULL) {
        smooth_points(&s, log_y, smooth);
    }
    *out = s;
    return SONDE_OK;
}

void sonde__plot_series_fini(sonde__plot_series *series)
{
    sonde__free(series->x);
    sonde__free(series->y);
    sonde__free(series->smooth);
    *series = (sonde__plot_series){0};
}

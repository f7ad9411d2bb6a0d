/*
 * curves.c - lines of one or several series; values that have no point are marked at the
 * edge.
 *
 * A series becomes runs of consecutive drawable points: a run of one is a dot, a longer
 * one a line. Where a run has several points a pixel, each pixel column keeps its first,
 * least, greatest and last point: the line covers the same pixels at a bounded cost.
 */
#include "plot/page.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "plot/axes.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* === points ========================================================================= */

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

static sonde_err check_series(const sonde_plot_series *series, const char *where,
                              sonde_diag *diag)
{
    SONDE__TRY(check_line(&series->y, where, "y", diag));
    if (series->x.data != NULL) {
        SONDE__TRY(check_line(&series->x, where, "x", diag));
    }
    if (series->y.shape[0] < 1 || series->y.data == NULL) {
        return sonde__fail(diag, SONDE_EINVAL, where, "at least one point",
                           "the series is empty");
    }
    if (series->x.data != NULL && series->x.shape[0] != series->y.shape[0]) {
        return sonde__fail(diag, SONDE_ESHAPE, where, "as many x as y",
                           "%lld x and %lld y", (long long)series->x.shape[0],
                           (long long)series->y.shape[0]);
    }
    return SONDE_OK;
}

static double element(const sonde_view *view, size_t i)
{
    const char *const data = view->data;
    const int64_t offset = (int64_t)i * view->stride[0];

    return sonde_element_get(view->dtype,
                             data + offset * (int64_t)sonde_dtype_size(view->dtype));
}

static sonde_err read_points(const sonde_plot_series *series, bool log_y,
                             const char *where, sonde__plot_series *s, sonde_diag *diag)
{
    s->ascending = true;
    s->whole = true;
    for (size_t i = 0; i < s->count; i++) {
        const double x = series->x.data != NULL ? element(&series->x, i) : (double)i;

        if (!(fabs(x) <= 1e300)) {
            return sonde__fail(diag, SONDE_EINVAL, where, "finite x",
                               "x is %g at point %zu", x, i);
        }
        s->x[i] = x;
        s->y[i] = element(&series->y, i);
        s->ascending = s->ascending && (i == 0 || x >= s->x[i - 1]);
        s->whole = s->whole && floor(x) >= x;
        s->marks[sonde__plot_mark_of(s->y[i], log_y)]++;
    }
    return SONDE_OK;
}

/* m = w m + (1 - w) y, shown divided by 1 - w^t (Kingma and Ba 2015, section 3). Points
 * that cannot be drawn are skipped and leave a gap. */
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

sonde_err sonde__plot_series_read(const sonde_plot_series *series, bool log_y,
                                  double smooth, const char *where,
                                  sonde__plot_series *out, sonde_diag *diag)
{
    sonde__plot_series s = {0};
    size_t size = 0;
    sonde_err err = SONDE_OK;

    SONDE__TRY(check_series(series, where, diag));
    s.count = (size_t)series->y.shape[0];
    if (sonde__mul(s.count, sizeof(double), &size)) {
        s.x = sonde__malloc(size);
        s.y = sonde__malloc(size);
        s.smooth = smooth > 0 ? sonde__malloc(size) : NULL;
    }
    if (s.x == NULL || s.y == NULL || (smooth > 0 && s.smooth == NULL)) {
        err = sonde__fail_nomem(diag, "the points of a curve");
    } else {
        err = read_points(series, log_y, where, &s, diag);
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

/* === the picture ==================================================================== */

enum { SERIES_MAX = 32, NAME_SIZE = 32, DOTS_UP_TO = 40, MARK_EVERY = 7 };

typedef struct chart {
    const sonde_curves_plot *plot;
    sonde__plot_series series[SERIES_MAX];
    char names[SERIES_MAX][NAME_SIZE]; /* for series without a name */
    sonde__plot_legend_entry entries[SERIES_MAX];
    sonde__plot_frame frame;
    uint64_t marks[4];
} chart;

/* --- reading ------------------------------------------------------------------------ */

static sonde_err check_plot(const sonde_curves_plot *plot, sonde_diag *diag)
{
    if (plot->count < 1 || plot->count > SERIES_MAX || plot->series == NULL) {
        return sonde__fail(diag, SONDE_EINVAL, "series", "1 to 32", "%zu", plot->count);
    }
    if (!(plot->smooth >= 0 && plot->smooth < 1)) {
        return sonde__fail(diag, SONDE_EINVAL, "smooth", "0 or more, less than 1", "%g",
                           plot->smooth);
    }
    return SONDE_OK;
}

static const char *name_of(chart *c, size_t i)
{
    if (c->plot->series[i].name != NULL) {
        return c->plot->series[i].name;
    }
    (void)snprintf(c->names[i], NAME_SIZE, "series %zu", i + 1);
    return c->names[i];
}

static sonde_err read_series(chart *c, sonde_diag *diag)
{
    const sonde_curves_plot *const plot = c->plot;

    for (size_t i = 0; i < plot->count; i++) {
        char where[128] = "";

        (void)snprintf(where, sizeof where, "series '%.100s'", name_of(c, i));
        SONDE__TRY(sonde__plot_series_read(&plot->series[i], plot->log_y,
                                           plot->series[i].plain ? 0.0 : plot->smooth,
                                           where, &c->series[i], diag));
        for (int kind = 0; kind < 4; kind++) {
            c->marks[kind] += c->series[i].marks[kind];
        }
        c->entries[i] = (sonde__plot_legend_entry){.name = name_of(c, i),
                                                   .color = sonde__plot_line_color(i),
                                                   .dash = (int)(i / SONDE__PALETTE) % 4,
                                                   .pen = 2};
    }
    if (c->marks[SONDE__MARK_POINT] == 0) {
        return sonde__fail(diag, SONDE_EINVAL, "curves",
                           plot->log_y ? "a finite value above 0" : "a finite value",
                           "none of the values can be drawn (NaN: %llu)",
                           (unsigned long long)c->marks[SONDE__MARK_NAN]);
    }
    return SONDE_OK;
}

/* The range of x over all points, and that of y over the drawable ones. */
static void find_ranges(const chart *c, sonde__plot_axis *x, sonde__plot_axis *y)
{
    x->low = y->low = INFINITY;
    x->high = y->high = -INFINITY;
    x->whole = true;
    for (size_t k = 0; k < c->plot->count; k++) {
        const sonde__plot_series *const s = &c->series[k];

        x->whole = x->whole && s->whole;
        for (size_t i = 0; i < s->count; i++) {
            x->low = SONDE_MIN(x->low, s->x[i]);
            x->high = SONDE_MAX(x->high, s->x[i]);
            if (sonde__plot_mark_of(s->y[i], c->plot->log_y) == SONDE__MARK_POINT) {
                y->low = SONDE_MIN(y->low, s->y[i]);
                y->high = SONDE_MAX(y->high, s->y[i]);
            }
        }
    }
}

static void make_frame(chart *c)
{
    sonde__plot_axis *const x = &c->frame.x, *const y = &c->frame.y;

    *x = (sonde__plot_axis){.label = c->plot->x_label};
    *y = (sonde__plot_axis){.label = c->plot->y_label, .log = c->plot->log_y};
    find_ranges(c, x, y);
    sonde__plot_range_widen(&x->low, &x->high);
    if (y->log) {
        const double factor =
            SONDE_MAX(pow(y->high / y->low, 0.05), 1.05); /* a twentieth of its length */

        y->low = SONDE_MAX(y->low / factor, 1e-300);
        y->high = SONDE_MIN(y->high * factor, 1e300);
        return;
    }
    if (y->low >= 0 && y->low < 0.2 * y->high) {
        y->low = 0; /* close enough to zero to include it */
    }
    sonde__plot_range_widen(&y->low, &y->high);
    const double room = y->high * 0.05 - y->low * 0.05;
    y->high = SONDE_MIN(y->high + room, 1e300);
    if (y->low > 0 || y->low < 0) {
        y->low = SONDE_MAX(y->low - room, -1e300);
    }
}

/* --- lines -------------------------------------------------------------------------- */

/* One pixel column of a long line. */
typedef struct column {
    sonde__plot_point first, least, greatest, last;
    size_t least_at, greatest_at;
} column;

static size_t put_column(sonde__plot_point *out, const column *col)
{
    const bool least_first = col->least_at < col->greatest_at;

    out[0] = col->first;
    out[1] = least_first ? col->least : col->greatest;
    out[2] = least_first ? col->greatest : col->least;
    out[3] = col->last;
    return 4;
}

/* Keeps four points a pixel column, in place; returns how many are left. */
static size_t thin_out(sonde__plot_point *points, size_t count, double scale)
{
    column col = {0};
    size_t kept = 0, in_column = 0;

    for (size_t i = 0; i < count; i++) {
        const sonde__plot_point p = points[i];

        if (in_column > 0 && floor(p.x * scale) > floor(col.first.x * scale)) {
            /* Writes at most what was read: a column of up to four points is kept. */
            kept += in_column > 4 ? put_column(points + kept, &col) : in_column;
            in_column = 0;
        }
        if (in_column < 4 && kept + in_column < i) {
            points[kept + in_column] = p;
        }
        if (in_column == 0) {
            col = (column){p, p, p, p, i, i};
        }
        if (p.y < col.least.y) {
            col.least = p;
            col.least_at = i;
        }
        if (p.y > col.greatest.y) {
            col.greatest = p;
            col.greatest_at = i;
        }
        col.last = p;
        in_column++;
    }
    return kept + (in_column > 4 ? put_column(points + kept, &col) : in_column);
}

typedef struct stroke {
    uint32_t color;
    double pen;
    int dash;
    bool dots;
} stroke;

static void draw_run(sonde__plot_scene *scene, sonde__plot_point *points, size_t count,
                     bool ascending, stroke s)
{
    const size_t all = count;

    if (ascending && (double)count > 4 * scene->width * scene->scale) {
        count = thin_out(points, count, scene->scale);
    }
    if (count > 1) {
        sonde__plot_line(scene, points, count, s.color, s.pen, s.dash);
    }
    for (size_t i = 0; i < count && (s.dots || all == 1); i++) {
        sonde__plot_dot(scene, points[i].x, points[i].y, s.pen + 4, s.color);
    }
}

/* y is the series' own or its smoothed values. */
static void draw_values(const chart *c, sonde__plot_scene *scene,
                        const sonde__plot_series *series, const double *y, stroke s)
{
    sonde__plot_point *run = NULL; /* room for all points */
    size_t size = 0, count = 0;

    if (!sonde__mul(series->count, sizeof *run, &size) ||
        (run = sonde__malloc(size)) == NULL) {
        scene->err = SONDE_ENOMEM;
        return;
    }
    for (size_t i = 0; i < series->count; i++) {
        if (sonde__plot_mark_of(y[i], c->plot->log_y) != SONDE__MARK_POINT) {
            draw_run(scene, run, count, series->ascending, s);
            count = 0;
            continue;
        }
        run[count++] = (sonde__plot_point){sonde__plot_frame_x(&c->frame, series->x[i]),
                                           sonde__plot_frame_y(&c->frame, y[i])};
    }
    draw_run(scene, run, count, series->ascending, s);
    sonde__free(run);
}

/* --- marks -------------------------------------------------------------------------- */

static void draw_mark(sonde__plot_scene *scene, sonde__plot_box area,
                      sonde__plot_mark mark, double x, uint32_t color)
{
    const double r = 3.5, top = area.y + 2, bottom = area.y + area.h - 2;
    const sonde__plot_point up[] = {{x, top}, {x - r, top + 2 * r}, {x + r, top + 2 * r}};
    const sonde__plot_point down[] = {
        {x, bottom}, {x - r, bottom - 2 * r}, {x + r, bottom - 2 * r}};

    if (mark == SONDE__MARK_NAN) {
        sonde__plot_segment(scene, x - r, bottom - 2 * r, x + r, bottom, color, 1.6);
        sonde__plot_segment(scene, x - r, bottom, x + r, bottom - 2 * r, color, 1.6);
    } else {
        sonde__plot_area(scene, mark == SONDE__MARK_ABOVE ? up : down, 3, color);
    }
}

/* At most one mark of a kind every MARK_EVERY pixels. */
static void draw_marks(const chart *c, sonde__plot_scene *scene, size_t k)
{
    const sonde__plot_series *const s = &c->series[k];
    double last[4] = {-1e9, -1e9, -1e9, -1e9};

    for (size_t i = 0; i < s->count; i++) {
        const sonde__plot_mark mark = sonde__plot_mark_of(s->y[i], c->plot->log_y);
        const double x = sonde__plot_frame_x(&c->frame, s->x[i]);

        if (mark != SONDE__MARK_POINT && fabs(x - last[mark]) >= MARK_EVERY) {
            draw_mark(scene, c->frame.area, mark, x, c->entries[k].color);
            last[mark] = x;
        }
    }
}

/* The meaning and the count of each kind of mark; empty if there are none. */
static const char *describe_marks(const chart *c, char *buf, size_t size)
{
    static const char *const kinds[] = {
        [SONDE__MARK_POINT] = "",
        [SONDE__MARK_NAN] = "\xc3\x97 NaN",
        [SONDE__MARK_ABOVE] = "\xe2\x96\xb2 +Inf",
        [SONDE__MARK_BELOW] = "\xe2\x96\xbc \xe2\x88\x92Inf",
    };
    size_t length = 0;

    buf[0] = '\0';
    for (int kind = SONDE__MARK_NAN; kind <= SONDE__MARK_BELOW && length < size; kind++) {
        const char *const name = kind == SONDE__MARK_BELOW && c->plot->log_y
                                     ? "\xe2\x96\xbc 0 or less"
                                     : kinds[kind];
        char count[40] = "";

        if (c->marks[kind] > 0) {
            length += (size_t)snprintf(
                buf + length, size - length, "%s%s: %s", length > 0 ? ",   " : "", name,
                sonde__plot_grouped(c->marks[kind], count, sizeof count));
        }
    }
    return buf;
}

/* --- the picture -------------------------------------------------------------------- */

static void draw_series(const chart *c, sonde__plot_scene *scene)
{
    for (size_t k = 0; k < c->plot->count; k++) {
        const sonde__plot_series *const s = &c->series[k];
        const sonde__plot_legend_entry *const e = &c->entries[k];
        const bool dots = s->count <= DOTS_UP_TO;
        const bool smooth = s->smooth != NULL;

        draw_values(
            c, scene, s, s->y,
            (stroke){.color = smooth ? sonde__plot_faded(e->color, 0x48) : e->color,
                     .pen = smooth ? 1.2 : e->pen,
                     .dash = smooth ? 0 : e->dash,
                     .dots = dots && !smooth});
    }
    for (size_t k = 0; k < c->plot->count; k++) {
        const sonde__plot_legend_entry *const e = &c->entries[k];

        if (c->series[k].smooth != NULL) {
            draw_values(c, scene, &c->series[k], c->series[k].smooth,
                        (stroke){.color = e->color, .pen = e->pen, .dash = e->dash});
        }
    }
    for (size_t k = 0; k < c->plot->count; k++) {
        draw_marks(c, scene, k);
    }
}

static bool draw(void *state, sonde__plot_scene *scene, sonde__plot_box space)
{
    chart *const c = state;
    const size_t entries =
        c->plot->count > 1 || c->plot->series[0].name != NULL ? c->plot->count : 0;
    const double legend = sonde__plot_legend(scene, space, c->entries, entries, true);

    space.y += legend;
    space.h -= legend;
    make_frame(c);
    if (!sonde__plot_frame_layout(scene, space, &c->frame)) {
        return false;
    }
    sonde__plot_frame_draw_grid(scene, &c->frame);
    draw_series(c, scene);
    sonde__plot_frame_draw_axes(scene, &c->frame);
    return true;
}

static sonde_err build(chart *c, sonde__plot_scene *scene, sonde_diag *diag)
{
    char note[200] = "", subtitle[80] = "";
    SONDE__TRY(read_series(c, diag));
    if (c->plot->smooth > 0) {
        (void)snprintf(subtitle, sizeof subtitle,
                       "Pale: as measured; strong: moving average, weight %g",
                       c->plot->smooth);
    }
    return sonde__plot_page_chart(scene, &c->plot->page, subtitle,
                                  describe_marks(c, note, sizeof note), draw, c, diag);
}

sonde_err sonde__plot_build_curves(const void *description, sonde__plot_scene *scene,
                                   sonde_diag *diag)
{
    const sonde_curves_plot *const plot = description;

    SONDE__TRY(check_plot(plot, diag));
    chart *c = sonde__calloc(1, sizeof *c);

    if (c == NULL) {
        return sonde__fail_nomem(diag, "curves");
    }
    c->plot = plot;
    const sonde_err err = build(c, scene, diag);

    for (size_t i = 0; i < plot->count; i++) {
        sonde__plot_series_fini(&c->series[i]);
    }
    sonde__free(c);
    return err;
}

sonde_err sonde_plot_curves(const char *path, const sonde_curves_plot *plot,
                            sonde_diag *diag)
{
    return sonde__plot_draw(path, &plot->page, sonde__plot_build_curves, plot, diag);
}

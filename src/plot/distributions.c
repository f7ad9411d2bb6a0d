/*
 * distributions.c - one histogram as bars, and many of them as a heat map over steps.
 *
 * Heat map: each column of pixels takes the mean of the steps that it covers, as shares of
 * their values, weighted by the part of it that they cover. A thousand steps on a hundred
 * pixels lose no mass, and ten steps on a thousand pixels stand as ten columns.
 */
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/number.h"
#include "plot/axes.h"
#include "plot/page.h"

#include <math.h>
#include <stdio.h>

/* === histogram ====================================================================== */

typedef struct bars {
    const sonde_histogram_plot *plot;
    uint64_t total, largest; /* count of all bins, and of the fullest */
} bars;

/* NULL counts as a histogram without bins. */
static sonde_err check_bins(const sonde_histogram *h, const char *where, sonde_diag *diag)
{
    if (h == NULL || h->bins < 1 || h->bins > (int)SONDE_COUNT_OF(h->counts)) {
        return sonde__fail(diag, SONDE_EINVAL, where, "1 to 512 bins", "%d bins",
                           h != NULL ? h->bins : 0);
    }
    if (!isfinite(h->lower) || !isfinite(h->upper) || h->lower > h->upper) {
        return sonde__fail(diag, SONDE_EINVAL, where, "finite edges in order",
                           "edges %g and %g", h->lower, h->upper);
    }
    return SONDE_OK;
}

static sonde_err check_histogram(const sonde_histogram_plot *plot, uint64_t *total,
                                 uint64_t *largest, sonde_diag *diag)
{
    const sonde_histogram *const h = plot->histogram;

    SONDE__TRY(check_bins(h, "histogram", diag));
    for (int i = 0; i < h->bins; i++) {
        *total += h->counts[i];
        *largest = SONDE_MAX(*largest, h->counts[i]);
    }
    if (*total == 0) {
        return sonde__fail(diag, SONDE_EINVAL, "histogram", "at least one value",
                           "all bins are empty");
    }
    if (plot->zeros > h->counts[0]) {
        return sonde__fail(
            diag, SONDE_EINVAL, "zeros", "no more than the first bin holds",
            "%llu zeros, the first bin holds %llu", (unsigned long long)plot->zeros,
            (unsigned long long)h->counts[0]);
    }
    return SONDE_OK;
}

static sonde__plot_frame make_frame(const sonde_histogram_plot *plot, uint64_t largest)
{
    const sonde_histogram *const h = plot->histogram;
    sonde__plot_frame frame = {
        .x = {.label = plot->x_label, .low = h->lower, .high = h->upper},
        .y = {.label = plot->y_label != NULL ? plot->y_label : "Frequency",
              .high = (double)largest * 1.05,
              .whole = true}};

    sonde__plot_range_widen(&frame.x.low, &frame.x.high);
    return frame;
}

/* One bar between two heights, with a thin gap to the next. */
static void draw_bar(sonde__plot_scene *scene, const sonde__plot_frame *frame,
                     double left, double right, double low, double high, uint32_t color)
{
    const double x0 = sonde__plot_frame_x(frame, left),
                 x1 = sonde__plot_frame_x(frame, right);
    const double y0 = sonde__plot_frame_y(frame, low);
    const double y1 = sonde__plot_frame_y(frame, high);
    const double gap = x1 - x0 >= 5 ? 1 : 0;

    if (high > low) {
        sonde__plot_fill(scene, (sonde__plot_box){x0, y1, x1 - x0 - gap, y0 - y1}, color);
    }
}

static void draw_bars(const sonde_histogram_plot *plot, sonde__plot_scene *scene,
                      const sonde__plot_frame *frame)
{
    const sonde_histogram *const h = plot->histogram;
    const double low = frame->x.low, width = frame->x.high / h->bins - low / h->bins;

    for (int i = 0; i < h->bins; i++) {
        const double left = low + i * width, right = low + (i + 1) * width;
        const uint64_t apart = i == 0 ? plot->zeros : 0;
        const double rest = (double)(h->counts[i] - apart);

        draw_bar(scene, frame, left, right, 0, rest, sonde__plot_line_color(0));
        draw_bar(scene, frame, left, right, rest, (double)h->counts[i],
                 sonde__plot_line_color(1));
    }
}

/* Legend, axes and bars. */
static bool draw_histogram(void *state, sonde__plot_scene *scene, sonde__plot_box space)
{
    const bars *const b = state;
    const sonde_histogram_plot *const plot = b->plot;
    char count[40] = "", zeros[160] = "";
    const sonde__plot_legend_entry entries[] = {
        {.name = zeros, .color = sonde__plot_line_color(1)},
        {.name = "other values", .color = sonde__plot_line_color(0)},
    };
    const size_t entry_count = plot->zeros > 0 ? SONDE_COUNT_OF(entries) : 0;
    sonde__plot_frame frame = make_frame(plot, b->largest);

    (void)sonde__snprintf(zeros, sizeof zeros,
                          "%s zeros (%.3g %%), set two below the smallest other value",
                          sonde__plot_grouped(plot->zeros, count, sizeof count),
                          (double)plot->zeros / (double)b->total * 100);
    const double legend = sonde__plot_legend(scene, space, entries, entry_count, true);
    space.y += legend;
    space.h -= legend;
    if (!sonde__plot_frame_layout(scene, space, &frame)) {
        return false;
    }
    sonde__plot_frame_draw_grid(scene, &frame);
    draw_bars(plot, scene, &frame);
    sonde__plot_frame_draw_axes(scene, &frame);
    return true;
}

sonde_err sonde__plot_build_histogram(const void *description, sonde__plot_scene *scene,
                                      sonde_diag *diag)
{
    const sonde_histogram_plot *const plot = description;
    bars b = {.plot = plot};
    SONDE__TRY(check_histogram(plot, &b.total, &b.largest, diag));
    char count[40] = "", subtitle[120] = "";
    (void)snprintf(subtitle, sizeof subtitle, "%s values in %d bins",
                   sonde__plot_grouped(b.total, count, sizeof count),
                   plot->histogram->bins);
    return sonde__plot_page_chart(scene, &plot->page, subtitle, NULL, draw_histogram, &b,
                                  diag);
}

sonde_err sonde_plot_histogram(const char *path, const sonde_histogram_plot *plot,
                               sonde_diag *diag)
{
    return sonde__plot_draw(path, &plot->page, sonde__plot_build_histogram, plot, diag);
}

/* === heat map ======================================================================= */

enum { ROWS_MAX = 4096 };

typedef struct map {
    const sonde_heatmap_plot *plot;
    double *totals;  /* (count): values of each step */
    double *medians; /* (count): NaN of an empty step */
    double largest;  /* share of a step's values in a row */
    uint64_t empty;  /* steps without values */
    sonde__plot_frame frame;
    sonde__plot_axis bar; /* per cent */
} map;

/* --- reading ------------------------------------------------------------------------ */

static sonde_err check_map(const sonde_heatmap_plot *plot, sonde_diag *diag)
{
    if (plot->count < 1 || plot->counts == NULL) {
        return sonde__fail(diag, SONDE_EINVAL, "heat map", "at least one step", "%zu",
                           plot->count);
    }
    if (plot->rows < 1 || plot->rows > ROWS_MAX) {
        return sonde__fail(diag, SONDE_EINVAL, "rows", "1 to 4096", "%zu", plot->rows);
    }
    if (!isfinite(plot->low) || !isfinite(plot->high) || plot->low > plot->high) {
        return sonde__fail(diag, SONDE_EINVAL, "rows", "finite edges in order",
                           "edges %g and %g", plot->low, plot->high);
    }
    for (size_t i = 1; plot->steps != NULL && i < plot->count; i++) {
        if (plot->steps[i] <= plot->steps[i - 1]) {
            return sonde__fail(diag, SONDE_EINVAL, "steps", "ascending steps",
                               "step %lld after step %lld", (long long)plot->steps[i],
                               (long long)plot->steps[i - 1]);
        }
    }
    return SONDE_OK;
}

static const double *counts_of(const map *m, size_t step)
{
    return m->plot->counts + step * m->plot->rows;
}

static sonde_err read_step(map *m, size_t step, sonde_diag *diag)
{
    const sonde_heatmap_plot *const plot = m->plot;
    const double *const counts = counts_of(m, step);
    double below = 0, largest = 0;

    for (size_t row = 0; row < plot->rows; row++) {
        if (!(counts[row] >= 0) || !isfinite(counts[row])) {
            return sonde__fail(diag, SONDE_EINVAL, "counts", "0 or more",
                               "%g at step %zu, row %zu", counts[row], step, row);
        }
        m->totals[step] += counts[row];
        largest = SONDE_MAX(largest, counts[row]);
    }
    m->medians[step] = NAN;
    if (!(m->totals[step] > 0)) {
        m->empty++;
        return SONDE_OK;
    }
    m->largest = SONDE_MAX(m->largest, largest / m->totals[step]);
    for (size_t row = 0; row < plot->rows && isnan(m->medians[step]); row++) {
        const double share = counts[row] / m->totals[step];

        if (share > 0 && (below + share >= 0.5 || row + 1 == plot->rows)) {
            m->medians[step] = plot->low + ((double)row + (0.5 - below) / share) *
                                               (plot->high / (double)plot->rows -
                                                plot->low / (double)plot->rows);
        }
        below += share;
    }
    return SONDE_OK;
}

static sonde_err read_steps(map *m, sonde_diag *diag)
{
    SONDE__TRY(check_map(m->plot, diag));
    m->totals = sonde__calloc(m->plot->count, sizeof *m->totals);
    m->medians = sonde__calloc(m->plot->count, sizeof *m->medians);
    if (m->totals == NULL || m->medians == NULL) {
        return sonde__fail_nomem(diag, "a heat map");
    }
    for (size_t i = 0; i < m->plot->count; i++) {
        SONDE__TRY(read_step(m, i, diag));
    }
    return m->empty < m->plot->count
               ? SONDE_OK
               : sonde__fail(diag, SONDE_EINVAL, "heat map", "at least one value",
                             "all steps are empty");
}

/* --- columns ------------------------------------------------------------------------ */

static double step_at(const map *m, size_t i)
{
    return m->plot->steps != NULL ? (double)m->plot->steps[i] : (double)i;
}

/* The left edge of column i; i == count: the right edge of the last. */
static double edge(const map *m, size_t i)
{
    const size_t count = m->plot->count;

    if (count == 1) {
        return step_at(m, 0) + (i == 0 ? -0.5 : 0.5);
    }
    if (i == 0) {
        return step_at(m, 0) - (step_at(m, 1) - step_at(m, 0)) / 2;
    }
    if (i == count) {
        return step_at(m, count - 1) +
               (step_at(m, count - 1) - step_at(m, count - 2)) / 2;
    }
    return step_at(m, i - 1) / 2 + step_at(m, i) / 2;
}

static bool is_empty(const map *m, size_t i)
{
    return isnan(m->medians[i]);
}

/* Mean shares (rows) over steps x0 ... x1. *i is the first step to look at, and advances.
 * Returns the length of the part with values. */
static double average(const map *m, double x0, double x1, size_t *i, double *mean)
{
    double weight = 0;

    for (size_t row = 0; row < m->plot->rows; row++) {
        mean[row] = 0;
    }
    while (*i + 1 < m->plot->count && edge(m, *i + 1) <= x0) {
        ++*i;
    }
    for (size_t k = *i; k < m->plot->count && edge(m, k) < x1; k++) {
        const double part = SONDE_MIN(edge(m, k + 1), x1) - SONDE_MAX(edge(m, k), x0);

        if (part > 0 && !is_empty(m, k)) {
            weight += part;
            for (size_t row = 0; row < m->plot->rows; row++) {
                mean[row] += counts_of(m, k)[row] / m->totals[k] * part;
            }
        }
    }
    return weight;
}

/* Pixels (rows, columns), the highest values on top. */
static uint32_t *make_pixels(const map *m, int columns)
{
    const double low = m->frame.x.low, width = (m->frame.x.high - low) / columns;
    const size_t rows = m->plot->rows;
    uint32_t *pixels = sonde__calloc((size_t)columns * rows, sizeof *pixels);
    double *mean = sonde__calloc(rows, sizeof *mean);
    size_t step = 0;

    for (int x = 0; pixels != NULL && mean != NULL && x < columns; x++) {
        const double weight =
            average(m, low + x * width, low + (x + 1) * width, &step, mean);

        for (size_t row = 0; row < rows; row++) {
            const uint32_t color =
                weight > 0 ? sonde__plot_color_at(m->plot->colors,
                                                  mean[row] / weight / m->largest)
                           : SONDE__PAPER;

            pixels[(rows - 1 - row) * (size_t)columns + (size_t)x] =
                0xff000000u | color >> 8;
        }
    }
    if (mean == NULL) {
        sonde__free(pixels);
        pixels = NULL;
    }
    sonde__free(mean);
    return pixels;
}

/* --- drawing ------------------------------------------------------------------------ */

/* Runs of medians; a light edge below the line keeps it readable on every color. */
static void draw_medians(const map *m, sonde__plot_scene *scene)
{
    const size_t count = m->plot->count;
    sonde__plot_point *points = sonde__calloc(count, sizeof *points);
    size_t run = 0;

    if (points == NULL) {
        scene->err = SONDE_ENOMEM;
        return;
    }
    for (size_t i = 0; i <= count; i++) {
        if (i < count && !is_empty(m, i)) {
            points[run++] =
                (sonde__plot_point){sonde__plot_frame_x(&m->frame, step_at(m, i)),
                                    sonde__plot_frame_y(&m->frame, m->medians[i])};
            continue;
        }
        if (run > 1) {
            sonde__plot_line(scene, points, run, 0xffffffc0u, 4, 0);
            sonde__plot_line(scene, points, run, sonde__plot_line_color(1), 2, 0);
        } else if (run == 1) {
            sonde__plot_dot(scene, points[0].x, points[0].y, 8, 0xffffffc0u);
            sonde__plot_dot(scene, points[0].x, points[0].y, 6,
                            sonde__plot_line_color(1));
        }
        run = 0;
    }
    sonde__free(points);
}

static void make_axes(map *m)
{
    const sonde_heatmap_plot *const plot = m->plot;

    m->frame = (sonde__plot_frame){
        .x = {.label = plot->x_label != NULL ? plot->x_label : "Step",
              .low = edge(m, 0),
              .high = edge(m, plot->count),
              .whole = true},
        .y = {.label = plot->y_label, .low = plot->low, .high = plot->high}};
    sonde__plot_range_widen(&m->frame.x.low, &m->frame.x.high);
    sonde__plot_range_widen(&m->frame.y.low, &m->frame.y.high);
    m->bar = (sonde__plot_axis){.label = "Share of values (%)", .high = m->largest * 100};
}

static bool draw_map(void *state, sonde__plot_scene *scene, sonde__plot_box space)
{
    map *const m = state;
    const sonde__plot_legend_entry entry = {
        .name = "median", .color = sonde__plot_line_color(1), .pen = 2};
    const double legend =
        sonde__plot_legend(scene, space, &entry, m->plot->median ? 1 : 0, true);
    double bar = 0;

    space.y += legend;
    space.h -= legend;
    make_axes(m);
    bar = sonde__plot_color_bar_width(scene, &m->bar, space.h - 50);
    space.w -= bar;
    if (!sonde__plot_frame_layout(scene, space, &m->frame)) {
        return false;
    }
    const int columns = (int)round(m->frame.area.w * scene->scale);
    if (scene->err == SONDE_OK) {
        sonde__plot_image(scene, m->frame.area, make_pixels(m, columns), columns,
                          (int)m->plot->rows);
    }
    scene->clip = m->frame.area;
    if (m->plot->median) {
        draw_medians(m, scene);
    }
    scene->clip = (sonde__plot_box){0};
    sonde__plot_outline(scene, m->frame.area, SONDE__AXIS, 1);
    sonde__plot_frame_draw_axes(scene, &m->frame);
    sonde__plot_color_bar_draw(
        scene, &m->bar, m->plot->colors,
        (sonde__plot_box){space.x + space.w, m->frame.area.y, bar, m->frame.area.h});
    return true;
}

static sonde_err build_map(map *m, sonde__plot_scene *scene, sonde_diag *diag)
{
    const sonde_heatmap_plot *const plot = m->plot;
    char note[80] = "", count[40] = "";
    SONDE__TRY(sonde__plot_colors_check(plot->colors, diag));
    SONDE__TRY(read_steps(m, diag));
    if (m->empty > 0) {
        (void)snprintf(note, sizeof note, "%s of the steps hold no values",
                       sonde__plot_grouped(m->empty, count, sizeof count));
    }
    return sonde__plot_page_chart(scene, &plot->page, NULL, note, draw_map, m, diag);
}

sonde_err sonde__plot_build_heatmap(const void *description, sonde__plot_scene *scene,
                                    sonde_diag *diag)
{
    map m = {.plot = description};
    const sonde_err err = build_map(&m, scene, diag);

    sonde__free(m.totals);
    sonde__free(m.medians);
    return err;
}

sonde_err sonde_plot_heatmap(const char *path, const sonde_heatmap_plot *plot,
                             sonde_diag *diag)
{
    return sonde__plot_draw(path, &plot->page, sonde__plot_build_heatmap, plot, diag);
}

/*
 * histogram.c - bars between edges, zeros told apart.
 */
#include "plot/axes.h"
#include "base/fail.h"
#include "base/macros.h"
#include "plot/colour.h"
#include "plot/page.h"

#include <math.h>
#include <stdio.h>

#define LOG_FLOOR 0.7 /* where bars of a logarithmic axis start: a count of 1 shows */

static sonde_err check_plot(const sonde_histogram_plot *plot, uint64_t *total,
                            uint64_t *largest, sonde_diag *diag)
{
    const sonde_histogram *const h = plot->histogram;

    if (h == NULL || h->bins < 1 || h->bins > (int)SONDE_COUNT_OF(h->counts)) {
        return sonde__fail(diag, SONDE_EINVAL, "histogram", "1 to 512 bins", "%d bins",
                           h != NULL ? h->bins : 0);
    }
    if (!isfinite(h->lower) || !isfinite(h->upper) || h->lower > h->upper) {
        return sonde__fail(diag, SONDE_EINVAL, "histogram", "finite edges in order",
                           "edges %g and %g", h->lower, h->upper);
    }
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
              .low = plot->log_y ? LOG_FLOOR : 0,
              .high = (double)largest * (plot->log_y ? 1.6 : 1.05),
              .log = plot->log_y,
              .whole = true}};

    if (plot->log_y) {
        frame.y.high = SONDE_MAX(frame.y.high, 12);
    }
    sonde__plot_range_widen(&frame.x.low, &frame.x.high);
    return frame;
}

/* One bar between two heights, with a hair of paper between it and the next. */
static void draw_bar(sonde__plot_scene *scene, const sonde__plot_frame *frame,
                     double left, double right, double from, double to, uint32_t colour)
{
    const double floor_at = frame->y.low;
    const double x0 = sonde__plot_frame_x(frame, left),
                 x1 = sonde__plot_frame_x(frame, right);
    const double y0 = sonde__plot_frame_y(frame, SONDE_MAX(from, floor_at));
    const double y1 = sonde__plot_frame_y(frame, SONDE_MAX(to, floor_at));
    const double gap = x1 - x0 >= 5 ? 1 : 0;

    if (to > from) {
        sonde__plot_fill(scene, (sonde__plot_box){x0, y1, x1 - x0 - gap, y0 - y1},
                         colour);
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

        draw_bar(scene, frame, left, right, 0, rest, sonde__plot_line_colour(0));
        draw_bar(scene, frame, left, right, rest, (double)h->counts[i],
                 sonde__plot_line_colour(1));
    }
}

/* Legend, axes and bars in the space; false: too small. */
static bool draw(const sonde_histogram_plot *plot, sonde__plot_scene *scene,
                 sonde__plot_box space, uint64_t total, uint64_t largest)
{
    char count[40] = "", zeros[160] = "";
    const sonde__plot_legend_entry entries[] = {
        {.name = zeros, .colour = sonde__plot_line_colour(1)},
        {.name = "other values", .colour = sonde__plot_line_colour(0)},
    };
    const size_t entry_count = plot->zeros > 0 ? SONDE_COUNT_OF(entries) : 0;
    sonde__plot_frame frame = make_frame(plot, largest);
    double legend = 0;

    (void)snprintf(zeros, sizeof zeros,
                   "%s zeros (%.3g %%), set two below the smallest other value",
                   sonde__plot_grouped(plot->zeros, count, sizeof count),
                   (double)plot->zeros / (double)total * 100);
    legend = sonde__plot_legend(scene, space, entries, entry_count, true);
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
    sonde__plot_page page = {0};
    uint64_t total = 0, largest = 0;
    sonde_err err = check_plot(plot, &total, &largest, diag);
    char count[40] = "", subtitle[120] = "";

    if (err != SONDE_OK) {
        return err;
    }
    (void)snprintf(subtitle, sizeof subtitle, "%s values in %d bins",
                   sonde__plot_grouped(total, count, sizeof count),
                   plot->histogram->bins);
    err = sonde__plot_page_begin(scene, &plot->page, subtitle, NULL,
                                 sonde__plot_chart_height(scene), &page, diag);
    if (err != SONDE_OK) {
        return err;
    }
    if (!draw(plot, scene, page.space, total, largest)) {
        err = sonde__plot_no_room(scene, diag);
    } else {
        err = sonde__plot_page_end(scene, &page, page.space.y + page.space.h, diag);
    }
    sonde__plot_page_fini(&page);
    return err;
}

sonde_err sonde_plot_histogram(const char *path, const sonde_histogram_plot *plot,
                               sonde_diag *diag)
{
    return sonde__plot_draw(path, &plot->page, sonde__plot_build_histogram, plot, diag);
}

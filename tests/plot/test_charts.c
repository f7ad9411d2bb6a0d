/*
 * test_charts.c - histograms, curves and heat maps: what stands where.
 */
#include "checks.h"

#include "plot/axes.h"
#include "plot/colour.h"
#include "plot/series.h"

#define MINUS "\xe2\x88\x92"

/* --- histogram -------------------------------------------------------------------------
 */

static sonde_histogram make_histogram(int bins, double lower, double upper)
{
    sonde_histogram h = {.bins = bins, .lower = lower, .upper = upper};

    for (int i = 0; i < bins; i++) {
        h.counts[i] = (uint64_t)(10 * (i + 1));
    }
    return h;
}

/* The bars of a scene, from left to right as they are drawn. */
static size_t find_bars(const sonde__scene *scene, uint32_t colour, sonde__box *boxes,
                        size_t most)
{
    size_t count = 0;

    for (size_t i = 0; i < scene->count; i++) {
        const sonde__item *const item = &scene->items[i];

        if (item->kind == SONDE__ITEM_FILL && item->colour == colour && count < most) {
            boxes[count++] = item->box;
        }
    }
    return count;
}

static void test_histogram(void **state)
{
    sonde_histogram h = make_histogram(4, -8, 8);
    const sonde_histogram_plot plot = {
        .page = {.title = "Gradient histogram", .note = "Of the last step."},
        .histogram = &h,
        .x_label = "log2 |g|"};
    sonde__scene scene = {0};
    sonde__box bars[8] = {{0}};
    decoded d = {0};

    (void)state;
    assert_int_equal(build_scene(sonde__build_histogram, &plot, 900, &scene), SONDE_OK);
    check_texts(&scene);
    assert_int_equal(count_texts(&scene, "Gradient histogram"), 1);
    assert_int_equal(count_texts(&scene, "Frequency"), 1);
    assert_int_equal(count_texts(&scene, "log2 |g|"), 1);
    assert_int_equal(count_texts(&scene, "Of the last step."), 1);
    assert_int_equal(count_texts(&scene, "100 values in 4 bins"), 1);
    assert_int_equal(count_texts(&scene, MINUS "8"), 1);
    assert_int_equal(find_bars(&scene, sonde__line_colour(0), bars, 8), 4);
    for (int i = 0; i < 4; i++) { /* heights 10, 20, 30, 40 on one floor */
        assert_true(fabs(bars[i].h / bars[0].h - (i + 1)) < 1e-6);
        assert_true(fabs(bars[i].y + bars[i].h - bars[0].y - bars[0].h) < 1e-6);
        assert_true(i == 0 || bars[i].x > bars[i - 1].x + bars[i - 1].w);
    }
    d = draw_png(sonde__build_histogram, &plot, &plot.page);
    assert_int_equal(pixel(&d, bars[3].x + 40, bars[3].y + 5),
                     sonde__line_colour(0) >> 8);
    assert_int_not_equal(pixel(&d, bars[0].x + 40, bars[3].y + 5),
                         sonde__line_colour(0) >> 8);
    free(d.rgb);
    sonde__scene_fini(&scene);
}

/* Zeros stand on top of what else the first bin holds, and in the legend. */
static void test_zeros_apart(void **state)
{
    sonde_histogram h = make_histogram(4, -8, 8);
    sonde_histogram_plot plot = {.histogram = &h, .zeros = 6};
    sonde__scene scene = {0};
    sonde__box bars[8] = {{0}}, zeros[2] = {{0}};
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(build_scene(sonde__build_histogram, &plot, 900, &scene), SONDE_OK);
    check_texts(&scene);
    assert_int_equal(
        count_texts(&scene, "6 zeros (6 %), set two below the smallest other value"), 1);
    assert_int_equal(find_bars(&scene, sonde__line_colour(0), bars, 8), 5); /* + legend */
    assert_int_equal(find_bars(&scene, sonde__line_colour(1), zeros, 2), 2);
    assert_true(fabs(zeros[1].h / bars[1].h - 6.0 / 4) < 1e-6);
    assert_true(fabs(zeros[1].y + zeros[1].h - bars[1].y) < 1e-6);
    sonde__scene_fini(&scene);
    plot.zeros = 11;
    assert_int_equal(sonde_plot_histogram(in_folder("z.png"), &plot, &diag),
                     SONDE_EINVAL);
    assert_string_equal(diag.where, "zeros");
}

static void test_log_histogram(void **state)
{
    sonde_histogram h = {.bins = 4, .lower = 0, .upper = 4, .counts = {1, 10, 0, 100000}};
    const sonde_histogram_plot plot = {.histogram = &h, .log_y = true};
    sonde__scene scene = {0};
    sonde__box bars[4] = {{0}};

    (void)state;
    assert_int_equal(build_scene(sonde__build_histogram, &plot, 900, &scene), SONDE_OK);
    check_texts(&scene);
    assert_int_equal(count_texts(&scene, "100k"), 1);
    assert_int_equal(find_bars(&scene, sonde__line_colour(0), bars, 4), 3);
    assert_true(bars[0].h > 4); /* a single value shows */
    assert_true(fabs((bars[2].h - bars[0].h) / (bars[1].h - bars[0].h) - 5) < 1e-6);
    sonde__scene_fini(&scene);
}

static void test_histogram_errors(void **state)
{
    sonde_histogram h = make_histogram(3, 0, 1);
    sonde_histogram_plot plot = {.histogram = NULL};
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(sonde_plot_histogram(in_folder("h.png"), &plot, &diag),
                     SONDE_EINVAL);
    plot.histogram = &h;
    h.bins = 513;
    assert_int_equal(sonde_plot_histogram(file_name, &plot, &diag), SONDE_EINVAL);
    assert_non_null(strstr(diag.found, "513"));
    h.bins = 3;
    h.upper = NAN;
    assert_int_equal(sonde_plot_histogram(file_name, &plot, &diag), SONDE_EINVAL);
    h.upper = -1;
    assert_int_equal(sonde_plot_histogram(file_name, &plot, &diag), SONDE_EINVAL);
    h = (sonde_histogram){.bins = 3, .upper = 1};
    assert_int_equal(sonde_plot_histogram(file_name, &plot, &diag), SONDE_EINVAL);
    assert_non_null(strstr(diag.found, "empty"));
    h.upper = 0;
    h.counts[1] = 5; /* all values alike: one edge, still a picture */
    assert_int_equal(sonde_plot_histogram(file_name, &plot, &diag), SONDE_OK);
}

/* --- curves ----------------------------------------------------------------------------
 */

static sonde_plot_series series_of(const char *name, double *y, int64_t count)
{
    return (sonde_plot_series){.name = name, .y = sonde_view_of(SONDE_F64, 1, &count, y)};
}

static size_t count_lines(const sonde__scene *scene, uint32_t colour)
{
    size_t count = 0;

    for (size_t i = 0; i < scene->count; i++) {
        count +=
            scene->items[i].kind == SONDE__ITEM_LINE && scene->items[i].colour == colour;
    }
    return count;
}

/* The i-th stroke of a colour. */
static const sonde__item *find_line(const sonde__scene *scene, uint32_t colour, size_t i)
{
    for (size_t k = 0; k < scene->count; k++) {
        const sonde__item *const item = &scene->items[k];

        if (item->kind == SONDE__ITEM_LINE && item->colour == colour && i-- == 0) {
            return item;
        }
    }
    fail_msg("no such line");
    abort();
}

static void test_curve(void **state)
{
    double y[5] = {4, 2, 1, 0.5, 0.25};
    float x[5] = {0, 100, 200, 300, 400};
    sonde_plot_series series = series_of(NULL, y, 5);
    const sonde_curves_plot plot = {
        .series = &series, .count = 1, .x_label = "Step", .y_label = "Loss"};
    sonde__scene scene = {0};
    const sonde__item *line = NULL;
    const sonde__point *points = NULL;

    (void)state;
    series.x = sonde_view_of(SONDE_F32, 1, (int64_t[]){5}, x);
    assert_int_equal(build_scene(sonde__build_curves, &plot, 900, &scene), SONDE_OK);
    check_texts(&scene);
    assert_int_equal(count_texts(&scene, "Step") + count_texts(&scene, "Loss"), 2);
    assert_int_equal(count_texts(&scene, "400"), 1);
    line = find_line(&scene, sonde__line_colour(0), 0);
    assert_int_equal(line->count, 5);
    points = line->payload;
    /* x in proportion; y falls by halves, downwards on the page. */
    assert_true(fabs((points[4].x - points[0].x) / (points[1].x - points[0].x) - 4) <
                1e-6);
    assert_true(fabs((points[2].y - points[1].y) / (points[1].y - points[0].y) - 0.5) <
                1e-6);
    assert_true(points[1].y > points[0].y);
    assert_int_equal(count_kind(&scene, SONDE__ITEM_DOT), 5); /* few points show */
    sonde__scene_fini(&scene);
}

/* NaN and infinite values part the line and are marked and counted. */
static void test_gaps(void **state)
{
    double y[8] = {1, 2, NAN, 3, INFINITY, 2, 1, -INFINITY};
    sonde_plot_series series = series_of("loss", y, 8);
    sonde_curves_plot plot = {.series = &series, .count = 1};
    sonde__scene scene = {0};
    const uint32_t colour = sonde__line_colour(0);

    (void)state;
    assert_int_equal(build_scene(sonde__build_curves, &plot, 900, &scene), SONDE_OK);
    check_texts(&scene);
    assert_int_equal(count_texts(&scene, "\xc3\x97 NaN: 1,   \xe2\x96\xb2 +Inf: 1,   "
                                         "\xe2\x96\xbc " MINUS "Inf: 1"),
                     1);
    /* The legend's swatch, 0-1, 5-6, and the two strokes of the cross. */
    assert_int_equal(find_line(&scene, colour, 1)->count, 2);
    assert_int_equal(count_lines(&scene, colour), 5);
    assert_int_equal(count_kind(&scene, SONDE__ITEM_AREA), 2); /* two triangles */
    sonde__scene_fini(&scene);

    y[0] = 0;
    y[1] = -5;
    plot.log_y = true;
    assert_int_equal(build_scene(sonde__build_curves, &plot, 900, &scene), SONDE_OK);
    assert_int_equal(count_texts(&scene, "\xc3\x97 NaN: 1,   \xe2\x96\xb2 +Inf: 1,   "
                                         "\xe2\x96\xbc 0 or less: 3"),
                     1);
    sonde__scene_fini(&scene);
}

static void test_single_point(void **state)
{
    double y = 0.25;
    sonde_plot_series series = series_of(NULL, &y, 1);
    const sonde_curves_plot plot = {.series = &series, .count = 1};
    sonde__scene scene = {0};

    (void)state;
    assert_int_equal(build_scene(sonde__build_curves, &plot, 900, &scene), SONDE_OK);
    check_texts(&scene);
    assert_int_equal(count_kind(&scene, SONDE__ITEM_DOT), 1);
    assert_int_equal(count_texts(&scene, "0.250"), 1);
    sonde__scene_fini(&scene);
}

/* A long series: as many strokes' points as pixels allow, extremes kept. */
static void test_long_series(void **state)
{
    enum { COUNT = 200000 };
    double *y = calloc(COUNT, sizeof *y);
    sonde_plot_series series = series_of(NULL, y, COUNT);
    const sonde_curves_plot plot = {.series = &series, .count = 1};
    sonde__scene scene = {0};
    const sonde__item *line = NULL;
    const sonde__point *points = NULL;
    double least = 1e9, greatest = -1e9;
    size_t peaks = 0;

    (void)state;
    assert_non_null(y);
    for (int i = 0; i < COUNT; i++) {
        y[i] = i % 2 == 0 ? 1 : 2;
    }
    y[77777] = 100; /* both extremes in one column, in either order */
    y[77779] = -100;
    y[123456] = -99;
    y[123458] = 99;
    assert_int_equal(build_scene(sonde__build_curves, &plot, 900, &scene), SONDE_OK);
    line = find_line(&scene, sonde__line_colour(0), 0);
    assert_in_range(line->count, 900, 4 * 900);
    points = line->payload;
    for (size_t i = 0; i < line->count; i++) {
        least = SONDE_MIN(least, points[i].y);
        greatest = SONDE_MAX(greatest, points[i].y);
        peaks += fabs(points[i].y - points[0].y) > line->box.h * 0.4;
        assert_true(i == 0 || points[i].x >= points[i - 1].x);
    }
    /* From 100 to -100 with a twentieth of room at both ends: 200 of 220 parts. */
    assert_true(fabs((greatest - least) / line->box.h - 1) < 1e-9);
    assert_true(line->box.h > 350);
    assert_int_equal(peaks, 4);
    sonde__scene_fini(&scene);
    free(y);
}

/* m_t / (1 - w^t) of a constant is the constant; gaps stay gaps. */
static void test_smoothing(void **state)
{
    double y[6] = {3, 3, NAN, 3, 3, 7};
    sonde_plot_series from = series_of("loss", y, 6);
    sonde_curves_plot plot = {.series = &from, .count = 1, .smooth = 0.9};
    sonde__series s = {0};
    sonde__scene scene = {0};
    double mean = 0;

    (void)state;
    assert_int_equal(sonde__series_read(&from, false, 0.9, "loss", &s, NULL), SONDE_OK);
    for (int i = 0; i < 5; i++) {
        assert_true(i == 2 ? isnan(s.smooth[i]) : fabs(s.smooth[i] - 3) < 1e-12);
    }
    for (int i = 0; i < 6; i++) {
        mean = i == 2 ? mean : 0.9 * mean + 0.1 * y[i];
    }
    assert_true(fabs(s.smooth[5] - mean / (1 - pow(0.9, 5))) < 1e-12);
    sonde__series_fini(&s);
    assert_int_equal(build_scene(sonde__build_curves, &plot, 900, &scene), SONDE_OK);
    check_texts(&scene);
    assert_int_equal(count_lines(&scene, sonde__faded(sonde__line_colour(0), 0x48)), 2);
    /* The swatch, two runs, the cross. */
    assert_int_equal(count_lines(&scene, sonde__line_colour(0)), 5);
    sonde__scene_fini(&scene);
}

static void test_curve_errors(void **state)
{
    double y[3] = {1, 2, 3}, x[3] = {0, 1, NAN};
    sonde_plot_series series = series_of("validation", y, 0);
    sonde_curves_plot plot = {.series = &series, .count = 1};
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(sonde_plot_curves(in_folder("c.svg"), &plot, &diag), SONDE_EINVAL);
    assert_string_equal(diag.where, "series 'validation'");
    assert_non_null(strstr(diag.found, "empty"));
    series = series_of(NULL, y, 3);
    series.x = sonde_view_of(SONDE_F64, 1, (int64_t[]){2}, x);
    assert_int_equal(sonde_plot_curves(file_name, &plot, &diag), SONDE_ESHAPE);
    assert_string_equal(diag.where, "series 'series 1'");
    series.x.shape[0] = 3;
    assert_int_equal(sonde_plot_curves(file_name, &plot, &diag), SONDE_EINVAL);
    assert_non_null(strstr(diag.found, "nan at point 2"));
    series.x.data = NULL;
    series.y.rank = 2;
    assert_int_equal(sonde_plot_curves(file_name, &plot, &diag), SONDE_ESHAPE);
    series.y.rank = 1;
    plot.smooth = 1;
    assert_int_equal(sonde_plot_curves(file_name, &plot, &diag), SONDE_EINVAL);
    plot.smooth = NAN;
    assert_int_equal(sonde_plot_curves(file_name, &plot, &diag), SONDE_EINVAL);
    plot.smooth = 0;
    plot.count = 33;
    assert_int_equal(sonde_plot_curves(file_name, &plot, &diag), SONDE_EINVAL);
    plot.count = 0;
    assert_int_equal(sonde_plot_curves(file_name, &plot, &diag), SONDE_EINVAL);
    plot.count = 1;
    y[0] = y[1] = y[2] = NAN;
    assert_int_equal(sonde_plot_curves(file_name, &plot, &diag), SONDE_EINVAL);
    assert_non_null(strstr(diag.found, "NaN: 3"));
    y[0] = y[1] = y[2] = -1;
    plot.log_y = true;
    assert_int_equal(sonde_plot_curves(file_name, &plot, &diag), SONDE_EINVAL);
    assert_int_equal(access(file_name, F_OK), -1);
}

/* Ticks of many digits: fewer of them, and room for the last. */
static void test_long_tick_labels(void **state)
{
    double x[2] = {0}, y[2] = {0.25, 0.5};

    (void)state;
    for (int width = 200; width < 1000; width += 9) {
        for (int last = 1; last <= 20; last++) {
            sonde_plot_series series = series_of(NULL, y, 2);
            const sonde_curves_plot plot = {.series = &series, .count = 1};
            sonde__scene scene = {0};

            x[0] = 123456780;
            x[1] = 123456780 + last;
            series.x = sonde_view_of(SONDE_F64, 1, (int64_t[]){2}, x);
            assert_int_equal(build_scene(sonde__build_curves, &plot, width, &scene),
                             SONDE_OK);
            check_texts(&scene);
            sonde__scene_fini(&scene);
        }
    }
}

/* The largest and smallest doubles there are, and values that hardly differ. */
static void test_extreme_values(void **state)
{
    static double values[][3] = {
        {-1e300, 0, 1e300},     {1.7e308, -1.7e308, 1},    {5e-324, 0, 1e-320},
        {1e15, 1e15 + 1, 1e15}, {1, 1 + 1e-15, 1 - 1e-15}, {0, 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(values); i++) {
        for (int log_y = 0; log_y < 2; log_y++) {
            sonde_plot_series series = series_of(NULL, values[i], 3);
            const sonde_curves_plot plot = {
                .series = &series, .count = 1, .log_y = log_y == 1};
            sonde__scene scene = {0};
            const sonde_err err = build_scene(sonde__build_curves, &plot, 900, &scene);

            if (err == SONDE_OK) {
                check_texts(&scene);
                assert_int_equal(sonde__scene_save(&scene, in_folder("e.png"), NULL),
                                 SONDE_OK);
            } else {
                assert_int_equal(err, SONDE_EINVAL);
                assert_int_equal(log_y, 1);
            }
            sonde__scene_fini(&scene);
        }
    }
}

/* --- heat map --------------------------------------------------------------------------
 */

static void test_heatmap(void **state)
{
    /* Three steps of one value each, in a bin that climbs; one step without values. */
    sonde_histogram h[4] = {{.bins = 4, .lower = 0, .upper = 4}};
    const int64_t steps[4] = {0, 10, 20, 30};
    sonde_heatmap_plot plot = {.histograms = h,
                               .steps = steps,
                               .count = 4,
                               .y_label = "log2 |g|",
                               .colours = SONDE_COLOURS_BLUES,
                               .median = true};
    const uint32_t full = sonde__colour_at(SONDE_COLOURS_BLUES, 1) >> 8;
    sonde__scene scene = {0};
    decoded d = {0};
    sonde__box area = {0};

    (void)state;
    h[1] = h[2] = h[3] = h[0];
    h[0].counts[0] = 5;
    h[1].counts[1] = 7;
    h[2].counts[3] = 9;
    assert_int_equal(build_scene(sonde__build_heatmap, &plot, 900, &scene), SONDE_OK);
    check_texts(&scene);
    assert_int_equal(count_texts(&scene, "Step"), 1);
    assert_int_equal(count_texts(&scene, "log2 |g|"), 1);
    assert_int_equal(count_texts(&scene, "Share of values (%)"), 1);
    assert_int_equal(count_texts(&scene, "1 of the steps hold no values"), 1);
    assert_int_equal(count_texts(&scene, "median"), 1);
    for (size_t i = 0; i < scene.count && area.w <= 0; i++) {
        if (scene.items[i].kind == SONDE__ITEM_IMAGE) {
            area = scene.items[i].box;
        }
    }
    d = draw_png(sonde__build_heatmap, &plot, &plot.page);
    for (int step = 0; step < 4; step++) {
        static const int bin_of[] = {0, 1, 3, -1};

        for (int bin = 0; bin < 4; bin++) {
            /* Beside the median's line, at a fifth of the column and of the bin. */
            const double x = area.x + area.w * (step + 0.05) / 4;
            const double y = area.y + area.h * (3 - bin + 0.1) / 4;

            assert_int_equal(pixel(&d, x, y), bin == bin_of[step] ? full : 0xffffff);
        }
    }
    free(d.rgb);
    sonde__scene_fini(&scene);
}

/* No share gets lost between histograms of different edges: every column sums to one. */
static void test_heatmap_of_many_steps(void **state)
{
    enum { STEPS = 3000 };
    sonde_histogram *h = calloc(STEPS, sizeof *h);
    sonde_heatmap_plot plot = {.histograms = h, .count = STEPS, .log_colours = true};
    sonde__scene scene = {0};

    (void)state;
    assert_non_null(h);
    for (int i = 0; i < STEPS; i++) {
        h[i] = (sonde_histogram){
            .bins = 10 + i % 7, .lower = -20 - i * 0.001, .upper = -1 - (i % 5)};
        for (int k = 0; k < h[i].bins; k++) {
            h[i].counts[k] = (uint64_t)(k * (h[i].bins - k));
        }
    }
    assert_int_equal(build_scene(sonde__build_heatmap, &plot, 600, &scene), SONDE_OK);
    check_texts(&scene);
    assert_int_equal(count_kind(&scene, SONDE__ITEM_IMAGE), 2); /* map and colour bar */
    sonde__scene_fini(&scene);
    free(h);
}

static void test_heatmap_errors(void **state)
{
    sonde_histogram h[2] = {{.bins = 2, .upper = 1, .counts = {1, 1}},
                            {.bins = 2, .upper = 1, .counts = {1, 1}}};
    const int64_t steps[2] = {5, 5};
    sonde_heatmap_plot plot = {.histograms = h, .count = 0};
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(sonde_plot_heatmap(in_folder("m.png"), &plot, &diag), SONDE_EINVAL);
    plot.count = 2;
    plot.steps = steps;
    assert_int_equal(sonde_plot_heatmap(file_name, &plot, &diag), SONDE_EINVAL);
    assert_non_null(strstr(diag.found, "step 5 after step 5"));
    plot.steps = NULL;
    h[1].lower = INFINITY;
    assert_int_equal(sonde_plot_heatmap(file_name, &plot, &diag), SONDE_EINVAL);
    assert_string_equal(diag.where, "histogram 1");
    h[1].lower = 0;
    h[1].bins = 0;
    assert_int_equal(sonde_plot_heatmap(file_name, &plot, &diag), SONDE_EINVAL);
    h[0] = h[1] = (sonde_histogram){.bins = 2, .upper = 1};
    assert_int_equal(sonde_plot_heatmap(file_name, &plot, &diag), SONDE_EINVAL);
    assert_non_null(strstr(diag.found, "empty"));
    assert_int_equal(access(file_name, F_OK), -1);
    h[0].counts[1] = 3;
    assert_int_equal(sonde_plot_heatmap(file_name, &plot, &diag), SONDE_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_histogram),
        cmocka_unit_test(test_zeros_apart),
        cmocka_unit_test(test_log_histogram),
        cmocka_unit_test(test_histogram_errors),
        cmocka_unit_test(test_curve),
        cmocka_unit_test(test_gaps),
        cmocka_unit_test(test_single_point),
        cmocka_unit_test(test_long_series),
        cmocka_unit_test(test_smoothing),
        cmocka_unit_test(test_curve_errors),
        cmocka_unit_test(test_long_tick_labels),
        cmocka_unit_test(test_extreme_values),
        cmocka_unit_test(test_heatmap),
        cmocka_unit_test(test_heatmap_of_many_steps),
        cmocka_unit_test(test_heatmap_errors),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

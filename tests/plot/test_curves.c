/*
 * test_curves.c - lines, gaps, marks and smoothing; long series and extreme values.
 */
#include "checks.h"
#include "base/macros.h"

#include "plot/axes.h"
#include "plot/page.h"

#define MINUS "\xe2\x88\x92"

static sonde_plot_series series_of(const char *name, double *y, int64_t count)
{
    return (sonde_plot_series){.name = name, .y = sonde_view_of(SONDE_F64, 1, &count, y)};
}

static size_t count_lines(const sonde__plot_scene *scene, uint32_t color)
{
    size_t count = 0;

    for (size_t i = 0; i < scene->count; i++) {
        count +=
            scene->items[i].kind == SONDE__ITEM_LINE && scene->items[i].color == color;
    }
    return count;
}

/* The i-th stroke of a color. */
static const sonde__plot_item *find_line(const sonde__plot_scene *scene, uint32_t color,
                                         size_t i)
{
    for (size_t k = 0; k < scene->count; k++) {
        const sonde__plot_item *const item = &scene->items[k];

        if (item->kind == SONDE__ITEM_LINE && item->color == color && i-- == 0) {
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
    sonde__plot_scene scene = {0};
    const sonde__plot_item *line = NULL;
    const sonde__plot_point *points = NULL;

    (void)state;
    series.x = sonde_view_of(SONDE_F32, 1, (int64_t[]){5}, x);
    assert_int_equal(build_scene(sonde__plot_build_curves, &plot, 900, &scene), SONDE_OK);
    check_texts(&scene);
    assert_int_equal(count_texts(&scene, "Step") + count_texts(&scene, "Loss"), 2);
    assert_int_equal(count_texts(&scene, "400"), 1);
    line = find_line(&scene, sonde__plot_line_color(0), 0);
    assert_int_equal(line->count, 5);
    points = line->payload;
    /* x in proportion; y falls by halves, downwards on the page. */
    assert_true(fabs((points[4].x - points[0].x) / (points[1].x - points[0].x) - 4) <
                1e-6);
    assert_true(fabs((points[2].y - points[1].y) / (points[1].y - points[0].y) - 0.5) <
                1e-6);
    assert_true(points[1].y > points[0].y);
    assert_int_equal(count_kind(&scene, SONDE__ITEM_DOT), 5); /* few points show */
    sonde__plot_scene_fini(&scene);
}

/* NaN and infinite values part the line and are marked and counted. */
static void test_gaps(void **state)
{
    double y[8] = {1, 2, NAN, 3, INFINITY, 2, 1, -INFINITY};
    sonde_plot_series series = series_of("loss", y, 8);
    sonde_curves_plot plot = {.series = &series, .count = 1};
    sonde__plot_scene scene = {0};
    const uint32_t color = sonde__plot_line_color(0);

    (void)state;
    assert_int_equal(build_scene(sonde__plot_build_curves, &plot, 900, &scene), SONDE_OK);
    check_texts(&scene);
    assert_int_equal(count_texts(&scene, "\xc3\x97 NaN: 1,   \xe2\x96\xb2 +Inf: 1,   "
                                         "\xe2\x96\xbc " MINUS "Inf: 1"),
                     1);
    /* The legend's swatch, 0-1, 5-6, and the two strokes of the cross. */
    assert_int_equal(find_line(&scene, color, 1)->count, 2);
    assert_int_equal(count_lines(&scene, color), 5);
    assert_int_equal(count_kind(&scene, SONDE__ITEM_AREA), 2); /* two triangles */
    sonde__plot_scene_fini(&scene);

    y[0] = 0;
    y[1] = -5;
    plot.log_y = true;
    assert_int_equal(build_scene(sonde__plot_build_curves, &plot, 900, &scene), SONDE_OK);
    assert_int_equal(count_texts(&scene, "\xc3\x97 NaN: 1,   \xe2\x96\xb2 +Inf: 1,   "
                                         "\xe2\x96\xbc 0 or less: 3"),
                     1);
    sonde__plot_scene_fini(&scene);
}

static void test_single_point(void **state)
{
    double y = 0.25;
    sonde_plot_series series = series_of(NULL, &y, 1);
    const sonde_curves_plot plot = {.series = &series, .count = 1};
    sonde__plot_scene scene = {0};

    (void)state;
    assert_int_equal(build_scene(sonde__plot_build_curves, &plot, 900, &scene), SONDE_OK);
    check_texts(&scene);
    assert_int_equal(count_kind(&scene, SONDE__ITEM_DOT), 1);
    assert_int_equal(count_texts(&scene, "0.250"), 1);
    sonde__plot_scene_fini(&scene);
}

/* A long series: as many strokes' points as pixels allow, extremes kept. */
static void test_long_series(void **state)
{
    enum { COUNT = 200000 };
    double *y = calloc(COUNT, sizeof *y);
    sonde_plot_series series = series_of(NULL, y, COUNT);
    const sonde_curves_plot plot = {.series = &series, .count = 1};
    sonde__plot_scene scene = {0};
    const sonde__plot_item *line = NULL;
    const sonde__plot_point *points = NULL;
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
    assert_int_equal(build_scene(sonde__plot_build_curves, &plot, 900, &scene), SONDE_OK);
    line = find_line(&scene, sonde__plot_line_color(0), 0);
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
    sonde__plot_scene_fini(&scene);
    free(y);
}

/* m_t / (1 - w^t) of a constant is the constant; gaps stay gaps. */
static void test_smoothing(void **state)
{
    double y[6] = {3, 3, NAN, 3, 3, 7};
    sonde_plot_series from = series_of("loss", y, 6);
    sonde_curves_plot plot = {.series = &from, .count = 1, .smooth = 0.9};
    sonde__plot_series s = {0};
    sonde__plot_scene scene = {0};
    double mean = 0;

    (void)state;
    assert_int_equal(sonde__plot_series_read(&from, false, 0.9, "loss", &s, NULL),
                     SONDE_OK);
    for (int i = 0; i < 5; i++) {
        assert_true(i == 2 ? isnan(s.smooth[i]) : fabs(s.smooth[i] - 3) < 1e-12);
    }
    for (int i = 0; i < 6; i++) {
        mean = i == 2 ? mean : 0.9 * mean + 0.1 * y[i];
    }
    assert_true(fabs(s.smooth[5] - mean / (1 - pow(0.9, 5))) < 1e-12);
    sonde__plot_series_fini(&s);
    assert_int_equal(build_scene(sonde__plot_build_curves, &plot, 900, &scene), SONDE_OK);
    check_texts(&scene);
    assert_int_equal(
        count_lines(&scene, sonde__plot_faded(sonde__plot_line_color(0), 0x48)), 2);
    /* The swatch, two runs, the cross. */
    assert_int_equal(count_lines(&scene, sonde__plot_line_color(0)), 5);
    sonde__plot_scene_fini(&scene);
}

/* A plain one is drawn as it is beside those that are smoothed. */
static void test_plain_among_smoothed(void **state)
{
    double y[4] = {3, 2, 4, 1}, few[4] = {5, 1, 5, 1};
    sonde_plot_series both[] = {series_of("training", y, 4),
                                series_of("evaluation", few, 4)};
    const sonde_curves_plot plot = {.series = both, .count = 2, .smooth = 0.9};

    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        sonde__plot_scene scene = {0};

        both[1].plain = plain == 1;
        assert_int_equal(build_scene(sonde__plot_build_curves, &plot, 900, &scene),
                         SONDE_OK);
        assert_int_equal(
            count_lines(&scene, sonde__plot_faded(sonde__plot_line_color(0), 0x48)), 1);
        assert_int_equal(
            count_lines(&scene, sonde__plot_faded(sonde__plot_line_color(1), 0x48)),
            plain == 1 ? 0 : 1);
        sonde__plot_scene_fini(&scene);
    }
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
            sonde__plot_scene scene = {0};

            x[0] = 123456780;
            x[1] = 123456780 + last;
            series.x = sonde_view_of(SONDE_F64, 1, (int64_t[]){2}, x);
            assert_int_equal(build_scene(sonde__plot_build_curves, &plot, width, &scene),
                             SONDE_OK);
            check_texts(&scene);
            sonde__plot_scene_fini(&scene);
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
            sonde__plot_scene scene = {0};
            const sonde_err err =
                build_scene(sonde__plot_build_curves, &plot, 900, &scene);

            if (err == SONDE_OK) {
                check_texts(&scene);
                assert_int_equal(sonde__plot_scene_save(&scene, in_folder("e.png"), NULL),
                                 SONDE_OK);
            } else {
                assert_int_equal(err, SONDE_EINVAL);
                assert_int_equal(log_y, 1);
            }
            sonde__plot_scene_fini(&scene);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_curve),
        cmocka_unit_test(test_gaps),
        cmocka_unit_test(test_single_point),
        cmocka_unit_test(test_long_series),
        cmocka_unit_test(test_smoothing),
        cmocka_unit_test(test_plain_among_smoothed),
        cmocka_unit_test(test_curve_errors),
        cmocka_unit_test(test_long_tick_labels),
        cmocka_unit_test(test_extreme_values),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

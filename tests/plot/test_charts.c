/*
 * test_charts.c - histograms and heat maps: what stands where.
 */
#include "checks.h"

#include "plot/axes.h"

#define MINUS "\xe2\x88\x92"

/* --- histogram ---------------------------------------------------------------------- */

static sonde_histogram make_histogram(int bins, double lower, double upper)
{
    sonde_histogram h = {.bins = bins, .lower = lower, .upper = upper};

    for (int i = 0; i < bins; i++) {
        h.counts[i] = (uint64_t)(10 * (i + 1));
    }
    return h;
}

/* The bars of a scene, from left to right as they are drawn. */
static size_t find_bars(const sonde__plot_scene *scene, uint32_t color,
                        sonde__plot_box *boxes, size_t most)
{
    size_t count = 0;

    for (size_t i = 0; i < scene->count; i++) {
        const sonde__plot_item *const item = &scene->items[i];

        if (item->kind == SONDE__ITEM_FILL && item->color == color && count < most) {
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
    sonde__plot_scene scene = {0};
    sonde__plot_box bars[8] = {{0}};
    decoded d = {0};

    (void)state;
    assert_int_equal(build_scene(sonde__plot_build_histogram, &plot, 900, &scene),
                     SONDE_OK);
    check_texts(&scene);
    assert_int_equal(count_texts(&scene, "Gradient histogram"), 1);
    assert_int_equal(count_texts(&scene, "Frequency"), 1);
    assert_int_equal(count_texts(&scene, "log2 |g|"), 1);
    assert_int_equal(count_texts(&scene, "Of the last step."), 1);
    assert_int_equal(count_texts(&scene, "100 values in 4 bins"), 1);
    assert_int_equal(count_texts(&scene, MINUS "8"), 1);
    assert_int_equal(find_bars(&scene, sonde__plot_line_color(0), bars, 8), 4);
    for (int i = 0; i < 4; i++) { /* heights 10, 20, 30, 40 on one floor */
        assert_true(fabs(bars[i].h / bars[0].h - (i + 1)) < 1e-6);
        assert_true(fabs(bars[i].y + bars[i].h - bars[0].y - bars[0].h) < 1e-6);
        assert_true(i == 0 || bars[i].x > bars[i - 1].x + bars[i - 1].w);
    }
    d = draw_png(sonde__plot_build_histogram, &plot, &plot.page);
    assert_int_equal(pixel(&d, bars[3].x + 40, bars[3].y + 5),
                     sonde__plot_line_color(0) >> 8);
    assert_int_not_equal(pixel(&d, bars[0].x + 40, bars[3].y + 5),
                         sonde__plot_line_color(0) >> 8);
    free(d.rgb);
    sonde__plot_scene_fini(&scene);
}

/* Zeros stand on top of what else the first bin holds, and in the legend. */
static void test_zeros_apart(void **state)
{
    sonde_histogram h = make_histogram(4, -8, 8);
    sonde_histogram_plot plot = {.histogram = &h, .zeros = 6};
    sonde__plot_scene scene = {0};
    sonde__plot_box bars[8] = {{0}}, zeros[2] = {{0}};
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(build_scene(sonde__plot_build_histogram, &plot, 900, &scene),
                     SONDE_OK);
    check_texts(&scene);
    assert_int_equal(
        count_texts(&scene, "6 zeros (6 %), set two below the smallest other value"), 1);
    assert_int_equal(find_bars(&scene, sonde__plot_line_color(0), bars, 8),
                     5); /* + legend */
    assert_int_equal(find_bars(&scene, sonde__plot_line_color(1), zeros, 2), 2);
    assert_true(fabs(zeros[1].h / bars[1].h - 6.0 / 4) < 1e-6);
    assert_true(fabs(zeros[1].y + zeros[1].h - bars[1].y) < 1e-6);
    sonde__plot_scene_fini(&scene);
    plot.zeros = 11;
    assert_int_equal(sonde_plot_histogram(in_folder("z.png"), &plot, &diag),
                     SONDE_EINVAL);
    assert_string_equal(diag.where, "zeros");
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

/* --- heat map ----------------------------------------------------------------------- */

static void test_heatmap(void **state)
{
    /* Three steps of one value each, in a bin that climbs; one step without values. */
    const double counts[4][4] = {{5, 0, 0, 0}, {0, 7, 0, 0}, {0, 0, 0, 9}, {0}};
    const int64_t steps[4] = {0, 10, 20, 30};
    const sonde_heatmap_plot plot = {.counts = counts[0],
                                     .steps = steps,
                                     .count = 4,
                                     .rows = 4,
                                     .high = 4,
                                     .y_label = "log2 |g|",
                                     .colors = SONDE_COLORS_BLUES,
                                     .median = true};
    const uint32_t full = sonde__plot_color_at(SONDE_COLORS_BLUES, 1) >> 8;
    sonde__plot_scene scene = {0};
    decoded d = {0};
    sonde__plot_box area = {0};

    (void)state;
    assert_int_equal(build_scene(sonde__plot_build_heatmap, &plot, 900, &scene),
                     SONDE_OK);
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
    d = draw_png(sonde__plot_build_heatmap, &plot, &plot.page);
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
    sonde__plot_scene_fini(&scene);
}

static void test_heatmap_of_many_steps(void **state)
{
    enum { STEPS = 3000, ROWS = 17 };
    static double counts[STEPS][ROWS];
    const sonde_heatmap_plot plot = {
        .counts = counts[0], .count = STEPS, .rows = ROWS, .low = -20, .high = -1};
    sonde__plot_scene scene = {0};

    (void)state;
    for (int i = 0; i < STEPS * ROWS; i++) {
        counts[i / ROWS][i % ROWS] = i % 7 * (i % ROWS);
    }
    assert_int_equal(build_scene(sonde__plot_build_heatmap, &plot, 600, &scene),
                     SONDE_OK);
    check_texts(&scene);
    assert_int_equal(count_kind(&scene, SONDE__ITEM_IMAGE), 2); /* map and color bar */
    sonde__plot_scene_fini(&scene);
}

static void test_heatmap_errors(void **state)
{
    static const struct {
        double counts[2], low, high;
        size_t count, rows;
        int64_t second;
        const char *where, *found;
    } mistakes[] = {
        {{1, 1}, 0, 1, 0, 1, 6, "heat map", "0"},
        {{1, 1}, 0, 1, 2, 0, 6, "rows", "0"},
        {{1, 1}, 0, 1, 2, 4097, 6, "rows", "4097"},
        {{1, 1}, 0, 1, 2, 1, 5, "steps", "step 5 after step 5"},
        {{1, 1}, 2, 1, 2, 1, 6, "rows", "edges 2 and 1"},
        {{1, 1}, 0, INFINITY, 2, 1, 6, "rows", "inf"},
        {{1, -1}, 0, 1, 2, 1, 6, "counts", "-1 at step 1, row 0"},
        {{1, NAN}, 0, 1, 2, 1, 6, "counts", "nan"},
        {{0, 0}, 0, 1, 2, 1, 6, "heat map", "empty"},
    };
    const double good[2] = {0, 3};
    sonde_heatmap_plot plot = {.counts = good, .count = 2, .rows = 1};
    sonde_diag diag = {0};

    (void)state;
    (void)in_folder("m.png");
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        const int64_t steps[2] = {5, mistakes[i].second};
        const sonde_heatmap_plot bad = {.counts = mistakes[i].counts,
                                        .steps = steps,
                                        .count = mistakes[i].count,
                                        .rows = mistakes[i].rows,
                                        .low = mistakes[i].low,
                                        .high = mistakes[i].high};

        assert_int_equal(sonde_plot_heatmap(file_name, &bad, &diag), SONDE_EINVAL);
        assert_string_equal(diag.where, mistakes[i].where);
        assert_non_null(strstr(diag.found, mistakes[i].found));
    }
    assert_int_equal(access(file_name, F_OK), -1);
    assert_int_equal(sonde_plot_heatmap(file_name, &plot, &diag), SONDE_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_histogram),
        cmocka_unit_test(test_zeros_apart),
        cmocka_unit_test(test_histogram_errors),
        cmocka_unit_test(test_heatmap),
        cmocka_unit_test(test_heatmap_of_many_steps),
        cmocka_unit_test(test_heatmap_errors),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

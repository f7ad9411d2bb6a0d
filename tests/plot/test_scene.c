/*
 * test_scene.c - texts, colors and ticks: what pictures are put together from.
 */
#include "checks.h"
#include "base/macros.h"
#include "base/memory.h"

#include "plot/axes.h"
#include "plot/scene.h"

#define ELLIPSIS "\xe2\x80\xa6"
#define MINUS "\xe2\x88\x92"

/* --- texts -------------------------------------------------------------------------- */

static void check_clean(const char *text, const char *expected)
{
    char *clean = sonde__plot_text_clean(text);

    assert_non_null(clean);
    assert_string_equal(clean, expected);
    sonde__free(clean);
}

static void test_clean(void **state)
{
    (void)state;
    check_clean("", "");
    check_clean("caf\xc3\xa9 \xe2\x82\x82 \xf0\x9f\x99\x82",
                "caf\xc3\xa9 \xe2\x82\x82 \xf0\x9f\x99\x82");
    check_clean("a\tb\nc\x7f", "a b c ");
    check_clean("\xff", "\xef\xbf\xbd");
    check_clean("\xc3", "\xef\xbf\xbd");                                 /* cut off */
    check_clean("\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd");                 /* overlong */
    check_clean("\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"); /* surrogate */
    check_clean("\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
}

static void test_width_is_measured(void **state)
{
    const sonde__plot_font font = {12, false}, twice = {24, false};
    sonde__plot_scene scene = {0};
    double narrow = 0, wide = 0;

    (void)state;
    assert_int_equal(sonde__plot_scene_init(&scene, 900, 1, NULL), SONDE_OK);
    narrow = sonde__plot_text_width(&scene, "iiii", font);
    wide = sonde__plot_text_width(&scene, "WWWW", font);
    assert_true(narrow > 4 && narrow < wide && wide < 4 * 13);
    /* Unhinted: in proportion to the size, or the page would not scale. */
    assert_true(fabs(sonde__plot_text_width(&scene, "WWWW", twice) - 2 * wide) < 0.1);
    sonde__plot_scene_fini(&scene);
}

static void test_fitting(void **state)
{
    const sonde__plot_font font = {12, false};
    sonde__plot_scene scene = {0};

    (void)state;
    assert_int_equal(sonde__plot_scene_init(&scene, 900, 1, NULL), SONDE_OK);
    for (double most = 15; most < 300; most += 7) {
        sonde__plot_text(&scene,
                         "\xc3\x84rger mit \xc3\x9c"
                         "berl\xc3\xa4ngen im Text",
                         font, SONDE__INK, (sonde__plot_place){.maximum = most});
    }
    for (size_t i = 0; i < scene.count; i++) {
        const char *const text = scene.items[i].payload;
        const bool cut = strstr(text, ELLIPSIS) != NULL;

        assert_true(scene.items[i].box.w <= 15 + 7 * (double)i);
        check_clean(text, text); /* never cut inside a character */
        assert_true(cut || strlen(text) == strlen("Aerger mit Ueberlaengen im Text"));
        if (i > 0) {
            assert_true(scene.items[i].box.w >= scene.items[i - 1].box.w);
        }
    }
    assert_non_null(strstr(scene.items[0].payload, ELLIPSIS));
    assert_null(strstr(scene.items[scene.count - 1].payload, ELLIPSIS));
    sonde__plot_scene_fini(&scene);
}

static void test_wrapping(void **state)
{
    const sonde__plot_font font = {12, false};
    sonde__plot_scene scene = {0};
    sonde__plot_lines lines = {0};

    (void)state;
    assert_int_equal(sonde__plot_scene_init(&scene, 900, 1, NULL), SONDE_OK);
    lines = sonde__plot_wrap(&scene, "one line", font, 400, 3);
    assert_int_equal(lines.count, 1);
    assert_string_equal(lines.line[0], "one line");
    sonde__plot_lines_fini(&lines);

    lines = sonde__plot_wrap(&scene, "  ankle boot with laces  ", font, 75, 3);
    assert_int_equal(lines.count, 2);
    assert_string_equal(lines.line[0], "ankle boot");
    assert_string_equal(lines.line[1], "with laces");
    sonde__plot_lines_fini(&lines);

    lines = sonde__plot_wrap(&scene, "inner_membrane_translocase", font, 90, 3);
    assert_int_equal(lines.count, 3);
    assert_string_equal(lines.line[0], "inner_");
    assert_string_equal(lines.line[1], "membrane_");
    assert_string_equal(lines.line[2], "translocase");
    sonde__plot_lines_fini(&lines);

    lines = sonde__plot_wrap(&scene, "a b c d e f g h i j k l m n", font, 30, 2);
    assert_int_equal(lines.count, 2);
    assert_non_null(strstr(lines.line[1], ELLIPSIS));
    sonde__plot_lines_fini(&lines);

    lines = sonde__plot_wrap(&scene, "   ", font, 30, 2);
    assert_int_equal(lines.count, 0);
    sonde__plot_scene_fini(&scene);
}

/* Every alignment puts the box where it says, upright and turned. */
static void test_alignment(void **state)
{
    const sonde__plot_font font = {20, false};
    sonde__plot_scene scene = {0};

    (void)state;
    assert_int_equal(sonde__plot_scene_init(&scene, 900, 1, NULL), SONDE_OK);
    for (int turned = 0; turned < 2; turned++) {
        for (int ax = SONDE__LEFT; ax <= SONDE__RIGHT; ax++) {
            for (int ay = SONDE__TOP; ay <= SONDE__BOTTOM; ay++) {
                sonde__plot_box box = {0};

                sonde__plot_text(&scene, "Word", font, SONDE__INK,
                                 (sonde__plot_place){.x = 100,
                                                     .y = 200,
                                                     .align_x = (sonde__plot_align_x)ax,
                                                     .align_y = (sonde__plot_align_y)ay,
                                                     .turned = turned == 1});
                box = scene.items[scene.count - 1].box;
                assert_true((turned == 1) == (box.h > box.w));
                if (ax == SONDE__LEFT) {
                    assert_true(fabs(box.x - 100) < 1e-9);
                } else if (ax == SONDE__RIGHT) {
                    assert_true(fabs(box.x + box.w - 100) < 1e-9);
                } else {
                    assert_true(fabs(box.x + box.w / 2 - 100) < 3);
                }
                if (ay == SONDE__TOP) {
                    assert_true(fabs(box.y - 200) < 1e-9);
                } else if (ay == SONDE__BOTTOM) {
                    assert_true(fabs(box.y + box.h - 200) < 1e-9);
                } else {
                    assert_true(fabs(box.y + box.h / 2 - 200) < 3);
                }
            }
        }
    }
    sonde__plot_scene_fini(&scene);
}

/* --- colors ------------------------------------------------------------------------ */

/* Values of matplotlib 3.10's viridis at i / 255. */
static void test_viridis(void **state)
{
    static const struct {
        int i, r, g, b;
    } known[] = {{0, 68, 1, 84},      {25, 72, 36, 117},   {64, 59, 82, 139},
                 {100, 42, 118, 142}, {128, 33, 145, 140}, {192, 94, 201, 98},
                 {230, 189, 223, 38}, {255, 253, 231, 37}};

    (void)state;
    for (size_t k = 0; k < SONDE_COUNT_OF(known); k++) {
        const uint32_t c = sonde__plot_color_at(SONDE_COLORS_VIRIDIS, known[k].i / 255.0);

        assert_true(abs((int)(c >> 24) - known[k].r) <= 2);
        assert_true(abs((int)(c >> 16 & 255) - known[k].g) <= 2);
        assert_true(abs((int)(c >> 8 & 255) - known[k].b) <= 2);
        assert_int_equal(c & 255, 255);
    }
}

static void test_color_maps(void **state)
{
    (void)state;
    assert_int_equal(sonde__plot_color_at(SONDE_COLORS_GRAY, 0.5) >> 8, 0x808080);
    assert_int_equal(sonde__plot_color_at(SONDE_COLORS_GRAY, -3), 0x000000ff);
    assert_int_equal(sonde__plot_color_at(SONDE_COLORS_GRAY, INFINITY), 0xffffffff);
    assert_int_equal(sonde__plot_color_at(SONDE_COLORS_BLUES, 0), 0xffffffff);
    assert_int_equal(sonde__plot_color_at(SONDE_COLORS_GRAY, NAN), SONDE__NAN_COLOR);
    for (int map = SONDE_COLORS_VIRIDIS; map <= SONDE_COLORS_BLUES; map++) {
        for (int i = 0; i <= 100; i++) {
            const uint32_t c = sonde__plot_color_at((sonde_colors)map, i / 100.0);

            assert_true(sonde__plot_contrast(sonde__plot_ink_on(c), c) >= 4.5);
            assert_true(c != SONDE__NAN_COLOR);
        }
    }
}

/* --- ticks -------------------------------------------------------------------------- */

static void check_labels(const sonde__plot_ticks *ticks, size_t count,
                         const char *const *labels)
{
    assert_int_equal(ticks->count, count);
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(ticks->label[i], labels[i]);
    }
}

#define CHECK_LABELS(ticks, ...)                                                         \
    check_labels(&(ticks), sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *),       \
                 (const char *[]){__VA_ARGS__})

static void test_linear_ticks(void **state)
{
    sonde__plot_ticks t = {0};

    (void)state;
    sonde__plot_ticks_linear(0, 10, 5, false, &t);
    CHECK_LABELS(t, "0", "2", "4", "6", "8", "10");
    sonde__plot_ticks_linear(-0.3, 0.31, 4, false, &t);
    CHECK_LABELS(t, MINUS "0.2", "0", "0.2");
    sonde__plot_ticks_linear(0, 37000, 4, false, &t);
    CHECK_LABELS(t, "0", "10k", "20k", "30k");
    sonde__plot_ticks_linear(0, 2.4e6, 5, false, &t);
    CHECK_LABELS(t, "0", "0.5M", "1.0M", "1.5M", "2.0M");
    sonde__plot_ticks_linear(0, 3e-5, 3, false, &t);
    CHECK_LABELS(t, "0",
                 "1\xc3\x97"
                 "10\xe2\x81\xbb\xe2\x81\xb5",
                 "2\xc3\x97"
                 "10\xe2\x81\xbb\xe2\x81\xb5",
                 "3\xc3\x97"
                 "10\xe2\x81\xbb\xe2\x81\xb5");
    sonde__plot_ticks_linear(0.249, 0.2512, 3, false, &t);
    CHECK_LABELS(t, "0.249", "0.250", "0.251");
    sonde__plot_ticks_linear(0, 3, 10, true, &t);
    CHECK_LABELS(t, "0", "1", "2", "3");
}

static void test_log_ticks(void **state)
{
    sonde__plot_ticks t = {0};

    (void)state;
    sonde__plot_ticks_log(0.5, 20000, 8, &t);
    CHECK_LABELS(t, "1", "10", "100", "1k", "10k");
    sonde__plot_ticks_log(0.03, 2.9, 9, &t);
    CHECK_LABELS(t, "0.05", "0.1", "0.2", "0.5", "1", "2");
    sonde__plot_ticks_log(1e-9, 1, 5, &t);
    CHECK_LABELS(t, "10\xe2\x81\xbb\xe2\x81\xb8", "10\xe2\x81\xbb\xe2\x81\xb6",
                 "10\xe2\x81\xbb\xe2\x81\xb4", "10\xe2\x81\xbb\xc2\xb2",
                 "10\xe2\x81\xb0");
    assert_int_equal(t.fine_count, 72);
    sonde__plot_ticks_log(2, 5, 4, &t); /* less than a decade: as a linear axis */
    CHECK_LABELS(t, "2", "3", "4", "5");
}

/* Whatever the range: 1-2-5 steps, inside, ascending, at least two, labels all different.
 */
static void test_ticks_of_any_range(void **state)
{
    static const double lows[] = {0,     -1,     1,         -1e-12, 1e-12,
                                  1e300, -1e300, 123456789, -7e7};
    static const double spans[] = {1e-250, 1e-7, 0.3, 1, 9.99, 12345, 1e15, 1e300};

    (void)state;
    for (size_t a = 0; a < SONDE_COUNT_OF(lows); a++) {
        for (size_t b = 0; b < SONDE_COUNT_OF(spans); b++) {
            double low = lows[a], high = lows[a] + spans[b];
            sonde__plot_ticks t = {0};

            sonde__plot_range_widen(&low, &high);
            assert_true(low < high);
            for (int wanted = 2; wanted < 15; wanted++) {
                sonde__plot_ticks_linear(low, high, wanted, false, &t);
                assert_in_range(t.count, 1, wanted + 1);
                for (int i = 0; i < t.count; i++) {
                    const double slack = (high - low) * 1e-6;

                    assert_true(t.value[i] >= low - slack && t.value[i] <= high + slack);
                    if (i > 0) {
                        assert_true(t.value[i] > t.value[i - 1]);
                        assert_string_not_equal(t.label[i], t.label[i - 1]);
                    }
                }
            }
        }
    }
}

static void test_numbers(void **state)
{
    static const struct {
        double value;
        const char *text;
    } known[] = {{0, "0"},        {1, "1"},         {999, "999"},
                 {999.6, "1k"},   {12345, "12.3k"}, {1e6, "1M"},
                 {0.25, "0.25"},  {0.001, "0.001"}, {-1500, MINUS "1.5k"},
                 {1e-7, "1e-07"}, {2.5e9, "2.5G"},  {INFINITY, "inf"}};
    char buf[64] = "";

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(known); i++) {
        assert_string_equal(sonde__plot_short_number(known[i].value, 3, buf, sizeof buf),
                            known[i].text);
    }
    assert_string_equal(sonde__plot_grouped(7, buf, sizeof buf), "7");
    assert_string_equal(sonde__plot_grouped(1234567, buf, sizeof buf), "1\xe2\x80\x89"
                                                                       "234\xe2\x80\x89"
                                                                       "567");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clean),      cmocka_unit_test(test_width_is_measured),
        cmocka_unit_test(test_fitting),    cmocka_unit_test(test_wrapping),
        cmocka_unit_test(test_alignment),  cmocka_unit_test(test_viridis),
        cmocka_unit_test(test_color_maps), cmocka_unit_test(test_linear_ticks),
        cmocka_unit_test(test_log_ticks),  cmocka_unit_test(test_ticks_of_any_range),
        cmocka_unit_test(test_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

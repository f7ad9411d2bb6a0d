/*
 * test_pictures.c - what each picture shows: texts in the scene, colors in the PNG.
 */
#include "checks.h"
#include "base/macros.h"
#include "base/memory.h"

#include "plot/axes.h"
#include "plot/page.h"

#define MINUS "\xe2\x88\x92"

/* --- images ------------------------------------------------------------------------- */

static const char *const fruits[] = {"Apple", "Pear", "Plum", "Cherry", "Fig", "Quince"};

/* Six images of 4 x 4; image i is i everywhere but for its first pixel, which is 10. */
static void fill_images(float data[6][4][4])
{
    for (int i = 0; i < 6; i++) {
        for (int k = 0; k < 16; k++) {
            data[i][k / 4][k % 4] = k == 0 ? 10 : (float)i;
        }
    }
}

static void test_images(void **state)
{
    float data[6][4][4];
    const sonde_images_plot plot = {
        .images = sonde_view_of(SONDE_F32, 3, (int64_t[]){6, 4, 4}, data),
        .labels = fruits,
    };
    sonde__plot_scene scene = {0};
    decoded d = {0};
    size_t image = 0;

    (void)state;
    fill_images(data);
    assert_int_equal(build_scene(sonde__plot_build_images, &plot, 900, &scene), SONDE_OK);
    check_texts(&scene);
    d = draw_png(sonde__plot_build_images, &plot, &plot.page);
    for (size_t i = 0; i < scene.count; i++) {
        const sonde__plot_box box = scene.items[i].box;

        if (scene.items[i].kind != SONDE__ITEM_IMAGE) {
            continue;
        }
        assert_true(box.w >= 100 && fmod(box.w, 4) < 1e-9); /* whole pixels */
        assert_int_equal(pixel(&d, box.x + 1, box.y + 1),
                         sonde__plot_color_at(SONDE_COLORS_VIRIDIS, 1) >> 8);
        assert_int_equal(pixel(&d, box.x + box.w - 1, box.y + box.h - 1),
                         sonde__plot_color_at(SONDE_COLORS_VIRIDIS, (double)image / 10) >>
                             8);
        assert_int_equal(pixel(&d, box.x - 1, box.y + 1), 0xffffff);
        /* The label stands centered above. */
        {
            const sonde__plot_box label = find_text(&scene, fruits[image])->box;

            assert_true(fabs(label.x + label.w / 2 - box.x - box.w / 2) < 1);
            assert_true(label.y + label.h <= box.y && label.y + label.h > box.y - 12);
        }
        image++;
    }
    assert_int_equal(image, 6);
    free(d.rgb);
    sonde__plot_scene_fini(&scene);
}

/* Five columns as usual: the sixth image stands below the first. */
static void test_columns(void **state)
{
    float data[6][4][4];
    sonde_images_plot plot = {
        .images = sonde_view_of(SONDE_F32, 3, (int64_t[]){6, 4, 4}, data),
        .labels = fruits,
    };
    sonde__plot_scene scene = {0};

    (void)state;
    fill_images(data);
    assert_int_equal(build_scene(sonde__plot_build_images, &plot, 900, &scene), SONDE_OK);
    assert_true(
        fabs(find_text(&scene, "Apple")->box.y - find_text(&scene, "Fig")->box.y) < 1);
    assert_true(find_text(&scene, "Quince")->box.y >
                find_text(&scene, "Apple")->box.y + 50);
    sonde__plot_scene_fini(&scene);
    plot.columns = 3;
    assert_int_equal(build_scene(sonde__plot_build_images, &plot, 900, &scene), SONDE_OK);
    assert_true(find_text(&scene, "Cherry")->box.y >
                find_text(&scene, "Plum")->box.y + 50);
    check_texts(&scene);
    sonde__plot_scene_fini(&scene);
}

/* The lower right pixel of image i. */
static uint32_t last_pixel(const sonde_images_plot *plot, size_t i)
{
    sonde__plot_scene scene = {0};
    uint32_t color = 0;

    assert_int_equal(build_scene(sonde__plot_build_images, plot, 900, &scene), SONDE_OK);
    for (size_t k = 0; k < scene.count; k++) {
        const sonde__plot_item *const item = &scene.items[k];

        if (item->kind == SONDE__ITEM_IMAGE && i-- == 0) {
            const uint32_t *const pixels = item->payload;

            color = pixels[item->columns * item->rows - 1] & 0xffffffu;
        }
    }
    sonde__plot_scene_fini(&scene);
    return color;
}

static void test_ranges(void **state)
{
    int16_t data[2][1][2] = {{{0, 1}}, {{-10, 10}}};
    const sonde_images_plot plot = {
        .images = sonde_view_of(SONDE_I16, 3, (int64_t[]){2, 1, 2}, data),
        .colors = SONDE_COLORS_GRAY};

    (void)state;
    assert_int_equal(last_pixel(&plot, 0), 0x8c8c8c); /* 11 of 20 */
    assert_int_equal(last_pixel(&plot, 1), 0xffffff);
}

/* The same colors whatever the order of axes, the strides and the dtype. */
static void test_image_layouts(void **state)
{
    unsigned char chw[2][3][2][2], hwc[2][2][2][3];
    float floats[2][3][2][2];
    const sonde_view views[] = {
        sonde_view_of(SONDE_U8, 4, (int64_t[]){2, 3, 2, 2}, chw),
        sonde_view_of(SONDE_U8, 4, (int64_t[]){2, 2, 2, 3}, hwc),
        sonde_view_of(SONDE_F32, 4, (int64_t[]){2, 3, 2, 2}, floats),
    };

    (void)state;
    for (int k = 0; k < 24; k++) {
        const int n = k / 12, c = k / 4 % 3, y = k / 2 % 2, x = k % 2;

        chw[n][c][y][x] = hwc[n][y][x][c] = (unsigned char)(k * 10);
        floats[n][c][y][x] = (float)(k * 10) / 255;
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(views); i++) {
        sonde__plot_pictures p = {0};
        uint32_t *pixels = NULL;

        assert_int_equal(sonde__plot_pictures_of(&views[i], true, "images", &p, NULL),
                         SONDE_OK);
        assert_int_equal(p.channels, 3);
        pixels = sonde__plot_picture_pixels(
            &p, 1, (sonde__plot_span){0, i == 2 ? 1 : 255}, SONDE_COLORS_GRAY, 2, 2);
        assert_int_equal(pixels[0], 0xff78a0c8); /* 120, 160, 200 */
        assert_int_equal(pixels[3], 0xff96bee6); /* 150, 190, 230 */
        sonde__free(pixels);
    }
}

/* Made smaller, a pixel is the mean of its part. */
static void test_shrinking(void **state)
{
    unsigned char data[2][4] = {{0, 100, 200, 200}, {100, 200, 0, 0}};
    const sonde_view view = sonde_view_of(SONDE_U8, 2, (int64_t[]){2, 4}, data);
    sonde__plot_pictures p = {0};
    uint32_t *pixels = NULL;

    (void)state;
    assert_int_equal(sonde__plot_pictures_of(&view, false, "image", &p, NULL), SONDE_OK);
    pixels = sonde__plot_picture_pixels(&p, 0, (sonde__plot_span){0, 200},
                                        SONDE_COLORS_GRAY, 2, 1);
    assert_int_equal(pixels[0], 0xff808080);
    assert_int_equal(pixels[1], 0xff808080);
    sonde__free(pixels);
}

/* NaN is magenta, also where an image is made smaller, and counted below. */
static void test_nan_pixels(void **state)
{
    static float data[600][600];
    const sonde_images_plot plot = {
        .images = sonde_view_of(SONDE_F32, 3, (int64_t[]){1, 600, 600}, data),
        .columns = 5,
        .page = {.width = 300},
    };
    sonde__plot_scene scene = {0};
    decoded d = {0};
    uint64_t magenta = 0;

    (void)state;
    data[0][0] = 1;
    data[300][300] = NAN;
    data[10][10] = INFINITY;
    assert_int_equal(build_scene(sonde__plot_build_images, &plot, 300, &scene), SONDE_OK);
    assert_int_equal(count_texts(&scene, "1 NaN (magenta) and 1 infinite values"), 1);
    check_texts(&scene);
    d = draw_png(sonde__plot_build_images, &plot, &plot.page);
    for (int i = 0; i < d.width * d.height; i++) {
        magenta += pixel(&d, i % d.width, (double)(i / d.width)) == SONDE__NAN_COLOR >> 8;
    }
    assert_int_equal(magenta, 1);
    free(d.rgb);
    sonde__plot_scene_fini(&scene);
}

static void test_panels(void **state)
{
    static unsigned char photo[30][40][3];
    float small[1][4][4] = {{{0, 1, 0.5F, 0.25F}}};
    const sonde_plot_panel panels[] = {
        {.title = "Before",
         .image = sonde_view_of(SONDE_U8, 3, (int64_t[]){30, 40, 3}, photo)},
        {.title = "After",
         .image = sonde_view_of(SONDE_F32, 3, (int64_t[]){1, 4, 4}, small),
         .colors = SONDE_COLORS_GRAY},
    };
    const sonde_panels_plot plot = {.panels = panels, .count = 2, .arrows = true};
    sonde__plot_scene scene = {0};
    decoded d = {0};
    sonde__plot_box boxes[2] = {{0}};
    size_t found = 0;

    (void)state;
    for (int i = 0; i < 1200; i++) {
        photo[i / 40][i % 40][0] = 200;
        photo[i / 40][i % 40][2] = 50;
    }
    assert_int_equal(build_scene(sonde__plot_build_panels, &plot, 900, &scene), SONDE_OK);
    check_texts(&scene);
    for (size_t i = 0; i < scene.count; i++) {
        if (scene.items[i].kind == SONDE__ITEM_IMAGE) {
            assert_true(found < 2);
            boxes[found++] = scene.items[i].box;
        }
    }
    assert_int_equal(found, 2);
    assert_true(boxes[0].x + boxes[0].w < boxes[1].x);
    assert_true(fabs(boxes[0].w / boxes[0].h - 4.0 / 3) < 0.01);
    assert_int_equal(count_kind(&scene, SONDE__ITEM_AREA), 1); /* the arrow's head */
    assert_int_equal(count_texts(&scene, "40 \xc3\x97 30, RGB"), 1);
    assert_int_equal(count_texts(&scene, "4 \xc3\x97 4"), 1);
    assert_int_equal(count_texts(&scene, "Before") + count_texts(&scene, "After"), 2);
    d = draw_png(sonde__plot_build_panels, &plot, &plot.page);
    assert_int_equal(pixel(&d, boxes[0].x + 50, boxes[0].y + 50), 0xc80032);
    assert_int_equal(pixel(&d, boxes[1].x + boxes[1].w * 3 / 8, boxes[1].y + 3),
                     0xffffff);
    assert_int_equal(pixel(&d, boxes[1].x + boxes[1].w * 5 / 8, boxes[1].y + 3),
                     0x808080);
    free(d.rgb);
    sonde__plot_scene_fini(&scene);
}

/* --- confusion matrix --------------------------------------------------------------- */

static void test_confusion(void **state)
{
    uint64_t counts[3][3] = {{50, 0, 3}, {7, 100, 11}, {0, 25, 804}};
    const sonde_confusion_plot plot = {
        .counts = sonde_view_of(SONDE_U64, 2, (int64_t[]){3, 3}, counts),
        .classes = fruits,
    };
    sonde__plot_scene scene = {0};
    decoded d = {0};
    sonde__plot_box cell = {0};

    (void)state;
    assert_int_equal(build_scene(sonde__plot_build_confusion, &plot, 900, &scene),
                     SONDE_OK);
    check_texts(&scene);
    assert_int_equal(count_texts(&scene, "True label"), 1);
    assert_int_equal(count_texts(&scene, "Predicted label"), 1);
    assert_int_equal(count_texts(&scene, "Plum"), 2);
    assert_int_equal(count_texts(&scene, "804"), 1);
    assert_int_equal(count_texts(&scene, "Accuracy 95.40 % of 1\xe2\x80\x89"
                                         "000 samples"),
                     1);
    /* Row 1, column 2: right of 100, below 3. */
    cell = find_text(&scene, "11")->box;
    assert_true(cell.x > find_text(&scene, "100")->box.x + 40);
    assert_true(fabs(cell.y - find_text(&scene, "100")->box.y) < 1);
    assert_true(cell.y > find_text(&scene, "3")->box.y + 40);
    d = draw_png(sonde__plot_build_confusion, &plot, &plot.page);
    for (int i = 0; i < 9; i++) {
        const uint64_t value = counts[i / 3][i % 3];
        char text[8] = "";
        sonde__plot_box box = {0};

        (void)snprintf(text, sizeof text, "%d", (int)value);
        if (value == 0) {
            continue; /* stands twice, and in the color bar */
        }
        box = find_text(&scene, text)->box;
        assert_int_equal(
            pixel(&d, box.x + box.w / 2, box.y - 8),
            sonde__plot_color_at(SONDE_COLORS_VIRIDIS, (double)value / 804) >> 8);
    }
    free(d.rgb);
    sonde__plot_scene_fini(&scene);
}

/* A count stands out of its cell by a contrast ratio of 4.5 at least. */
static void test_contrast_of_counts(void **state)
{
    double counts[8][8];
    const sonde_confusion_plot plot = {
        .counts = sonde_view_of(SONDE_F64, 2, (int64_t[]){8, 8}, counts)};
    sonde__plot_scene scene = {0};
    uint32_t ground = SONDE__PAPER;
    int checked = 0;

    (void)state;
    for (int i = 0; i < 64; i++) {
        counts[i / 8][i % 8] = i + 100;
    }
    assert_int_equal(build_scene(sonde__plot_build_confusion, &plot, 900, &scene),
                     SONDE_OK);
    for (size_t i = 0; i < scene.count && checked < 64; i++) {
        const sonde__plot_item *const item = &scene.items[i];

        if (item->kind == SONDE__ITEM_FILL) {
            ground = item->color;
        } else if (item->kind == SONDE__ITEM_TEXT && ground != SONDE__PAPER) {
            assert_true(sonde__plot_contrast(item->color, ground) >= 4.5);
            assert_true(item->font.size >= 8);
            checked++;
        }
    }
    assert_int_equal(checked, 64);
    sonde__plot_scene_fini(&scene);
}

static void test_confusion_errors(void **state)
{
    double counts[4] = {1, 2, -3, 4};
    sonde_confusion_plot plot = {
        .counts = sonde_view_of(SONDE_F64, 2, (int64_t[]){2, 2}, counts)};
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(sonde_plot_confusion(in_folder("a.png"), &plot, &diag),
                     SONDE_EINVAL);
    assert_non_null(strstr(diag.found, "-3 at row 1, column 0"));
    counts[2] = NAN;
    assert_int_equal(sonde_plot_confusion(file_name, &plot, &diag), SONDE_EINVAL);
    counts[2] = 0;
    plot.counts.shape[1] = 1;
    assert_int_equal(sonde_plot_confusion(file_name, &plot, &diag), SONDE_ESHAPE);
    assert_non_null(strstr(diag.found, "(2, 1)"));
    plot.counts.shape[0] = plot.counts.shape[1] = 1001;
    assert_int_equal(sonde_plot_confusion(file_name, &plot, &diag), SONDE_ESHAPE);
    plot.counts.shape[0] = plot.counts.shape[1] = 2;
    plot.colors = (sonde_colors)9;
    assert_int_equal(sonde_plot_confusion(file_name, &plot, &diag), SONDE_EINVAL);
    assert_string_equal(diag.where, "colors");
    assert_int_equal(access(file_name, F_OK), -1);
}

static void test_image_errors(void **state)
{
    float data[16] = {0};
    sonde_images_plot plot = {.images =
                                  sonde_view_of(SONDE_F32, 2, (int64_t[]){4, 4}, data)};
    sonde_panels_plot panels = {0};
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(sonde_plot_images(in_folder("a.svg"), &plot, &diag), SONDE_ESHAPE);
    assert_non_null(strstr(diag.found, "(4, 4)"));
    plot.images = sonde_view_of(SONDE_F32, 4, (int64_t[]){1, 2, 4, 2}, data);
    assert_int_equal(sonde_plot_images(file_name, &plot, &diag), SONDE_ESHAPE);
    plot.images = sonde_view_of(SONDE_F32, 3, (int64_t[]){0, 4, 4}, data);
    assert_int_equal(sonde_plot_images(file_name, &plot, &diag), SONDE_ESHAPE);
    plot.images = sonde_view_of(SONDE_F32, 3, (int64_t[]){1, 4, 4}, NULL);
    assert_int_equal(sonde_plot_images(file_name, &plot, &diag), SONDE_EINVAL);
    plot.images = sonde_view_of((sonde_dtype)77, 3, (int64_t[]){1, 4, 4}, data);
    assert_int_equal(sonde_plot_images(file_name, &plot, &diag), SONDE_EDTYPE);
    plot.images = sonde_view_of(SONDE_F32, 3, (int64_t[]){1, 4, 4}, data);
    plot.columns = -1;
    assert_int_equal(sonde_plot_images(file_name, &plot, &diag), SONDE_EINVAL);
    assert_int_equal(sonde_plot_panels(file_name, &panels, &diag), SONDE_EINVAL);
    assert_string_equal(diag.where, "panels");
    assert_int_equal(access(file_name, F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_images),
        cmocka_unit_test(test_columns),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_image_layouts),
        cmocka_unit_test(test_shrinking),
        cmocka_unit_test(test_nan_pixels),
        cmocka_unit_test(test_panels),
        cmocka_unit_test(test_confusion),
        cmocka_unit_test(test_contrast_of_counts),
        cmocka_unit_test(test_confusion_errors),
        cmocka_unit_test(test_image_errors),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

/*
 * checks.h - what the tests of pictures share: building a scene, questions about its
 * texts, reading files back.
 */
#ifndef SONDE_TESTS_PLOT_CHECKS_H
#define SONDE_TESTS_PLOT_CHECKS_H

#include "cmocka_all.h"
#include "plot/page.h"

#include <sonde/plot.h>

#include <math.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- scenes ------------------------------------------------------------------------- */

/* A picture's scene; err is what building gave. To be freed with sonde__plot_scene_fini.
 */
static inline sonde_err build_scene(sonde__plot_builder build, const void *plot,
                                    double width, sonde__plot_scene *scene)
{
    sonde_diag diag = {0};

    assert_int_equal(sonde__plot_scene_init(scene, width, 1, &diag), SONDE_OK);
    return build(plot, scene, &diag);
}

/* How many of the scene's texts are exactly that. */
static inline size_t count_texts(const sonde__plot_scene *scene, const char *text)
{
    size_t count = 0;

    for (size_t i = 0; i < scene->count; i++) {
        const sonde__plot_item *const item = &scene->items[i];

        count += item->kind == SONDE__ITEM_TEXT && strcmp(item->payload, text) == 0;
    }
    return count;
}

static inline size_t count_kind(const sonde__plot_scene *scene,
                                sonde__plot_item_kind kind)
{
    size_t count = 0;

    for (size_t i = 0; i < scene->count; i++) {
        count += scene->items[i].kind == kind;
    }
    return count;
}

/* The only item with that text. */
static inline const sonde__plot_item *find_text(const sonde__plot_scene *scene,
                                                const char *text)
{
    const sonde__plot_item *found = NULL;

    for (size_t i = 0; i < scene->count; i++) {
        const sonde__plot_item *const item = &scene->items[i];

        if (item->kind == SONDE__ITEM_TEXT && strcmp(item->payload, text) == 0) {
            assert_null(found);
            found = item;
        }
    }
    if (found == NULL) {
        fail_msg("no text '%s'", text);
    }
    return found;
}

static inline bool boxes_overlap(sonde__plot_box a, sonde__plot_box b)
{
    const double slack = 0.25; /* touching is not overlapping */

    return a.x + slack < b.x + b.w && b.x + slack < a.x + a.w &&
           a.y + slack < b.y + b.h && b.y + slack < a.y + a.h;
}

/* No text leaves the page, none touches another; none is a lone ellipsis. */
static inline void check_texts(const sonde__plot_scene *scene)
{
    assert_int_equal(scene->err, SONDE_OK);
    assert_true(scene->height > 0);
    for (size_t i = 0; i < scene->count; i++) {
        const sonde__plot_item *const a = &scene->items[i];

        if (a->kind != SONDE__ITEM_TEXT) {
            continue;
        }
        if (a->box.x < 0 || a->box.y < 0 || a->box.x + a->box.w > scene->width ||
            a->box.y + a->box.h > scene->height) {
            fail_msg("'%s' leaves the page of %g x %g", (const char *)a->payload,
                     scene->width, scene->height);
        }
        for (size_t k = 0; k < i; k++) {
            const sonde__plot_item *const b = &scene->items[k];

            if (b->kind == SONDE__ITEM_TEXT && boxes_overlap(a->box, b->box)) {
                fail_msg("'%s' overlaps '%s' on a page of %g x %g",
                         (const char *)a->payload, (const char *)b->payload, scene->width,
                         scene->height);
            }
        }
    }
}

/* --- files -------------------------------------------------------------------------- */

static char folder[64];     /* of this test program */
static char file_name[128]; /* of the last picture */

static inline int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/sonde-plot-XXXXXX");
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static inline int remove_folder(void **state)
{
    char command[128] = "";

    (void)state;
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static inline const char *in_folder(const char *name)
{
    (void)snprintf(file_name, sizeof file_name, "%s/%s", folder, name);
    return file_name;
}

/* The whole file with a NUL behind; to be freed. */
static inline char *slurp(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    char *bytes = NULL;

    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *size = (size_t)ftell(file);
    rewind(file);
    bytes = malloc(*size + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *size, file), *size);
    bytes[*size] = '\0';
    assert_int_equal(fclose(file), 0);
    return bytes;
}

typedef struct decoded {
    int width, height;
    unsigned char *rgb; /* (height, width, 3), to be freed */
} decoded;

static inline decoded read_png(const char *path)
{
    png_image image = {.version = PNG_IMAGE_VERSION};
    decoded d = {0};

    assert_true(png_image_begin_read_from_file(&image, path));
    image.format = PNG_FORMAT_RGB;
    d.rgb = malloc(PNG_IMAGE_SIZE(image));
    assert_non_null(d.rgb);
    assert_true(png_image_finish_read(&image, NULL, d.rgb, 0, NULL));
    d.width = (int)image.width;
    d.height = (int)image.height;
    return d;
}

/* 0xRRGGBB */
static inline uint32_t pixel(const decoded *d, double x, double y)
{
    const int column = (int)x, row = (int)y;
    const unsigned char *at = NULL;

    assert_in_range(column, 0, d->width - 1);
    assert_in_range(row, 0, d->height - 1);
    at = d->rgb + 3 * ((ptrdiff_t)row * d->width + column);
    return (uint32_t)at[0] << 16 | (uint32_t)at[1] << 8 | at[2];
}

/* Draws into the test's folder and reads the PNG back. */
static inline decoded draw_png(sonde__plot_builder build, const void *plot,
                               const sonde_plot_page *page)
{
    sonde_diag diag = {0};
    const double width = page->width > 0 ? page->width : SONDE__PAGE_WIDTH;
    const double scale = page->scale > 0 ? page->scale : 1;
    sonde__plot_scene scene = {0};
    decoded d = {0};

    assert_int_equal(sonde__plot_scene_init(&scene, width, scale, &diag), SONDE_OK);
    assert_int_equal(build(plot, &scene, &diag), SONDE_OK);
    assert_int_equal(sonde__plot_scene_save(&scene, in_folder("picture.png"), &diag),
                     SONDE_OK);
    d = read_png(file_name);
    assert_int_equal(d.width, (int)ceil(scene.width * scale));
    assert_int_equal(d.height, (int)ceil(scene.height * scale));
    sonde__plot_scene_fini(&scene);
    return d;
}

#endif

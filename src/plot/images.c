/*
 * images.c - sample images in a grid, each under its label.
 *
 * Labels are wrapped to two lines of their cell; all cells of a row are as high as its
 * tallest label needs.
 */
#include "plot/colour.h"
#include "base/fail.h"
#include "base/macros.h"
#include "plot/page.h"
#include "plot/pictures.h"

#include <math.h>

enum { COLUMNS = 5, BETWEEN = 16, LABEL_LINES = 2 };

typedef struct grid {
    sonde__plot_pictures pictures;
    sonde__plot_span span; /* unless each image has its own */
    int64_t columns, rows;
    double cell;  /* width of a cell */
    double w, h;  /* of an image */
    double label; /* height of the labels, 0 if there are none */
} grid;

static sonde_err read_plot(const sonde_images_plot *plot, grid *g, sonde_diag *diag)
{
    sonde_err err =
        sonde__plot_pictures_of(&plot->images, true, "images", &g->pictures, diag);

    if (err == SONDE_OK) {
        err = sonde__plot_colours_check(plot->colours, diag);
    }
    if (err == SONDE_OK && plot->columns < 0) {
        err =
            sonde__fail(diag, SONDE_EINVAL, "columns", "1 or more", "%d", plot->columns);
    }
    if (err == SONDE_OK) {
        err =
            sonde__plot_span_of(&g->pictures, 0, plot->each_range ? 0 : g->pictures.count,
                                plot->low, plot->high, "images", &g->span, diag);
    }
    g->columns = plot->columns > 0 ? plot->columns : COLUMNS;
    g->columns = SONDE_MIN(g->columns, g->pictures.count);
    if (err == SONDE_OK) {
        g->rows = (g->pictures.count + g->columns - 1) / g->columns;
    }
    return err;
}

static const char *label_of(const sonde_images_plot *plot, int64_t i)
{
    return plot->labels != NULL ? plot->labels[i] : NULL;
}

static double label_height(const sonde_images_plot *plot, sonde__plot_scene *scene,
                           const grid *g)
{
    double height = 0;

    for (int64_t i = 0; plot->labels != NULL && i < g->pictures.count; i++) {
        if (label_of(plot, i) != NULL) {
            sonde__plot_lines lines = sonde__plot_wrap(
                scene, label_of(plot, i), SONDE__FONT_LABEL, g->cell, LABEL_LINES);

            height =
                SONDE_MAX(height, sonde__plot_lines_height(&lines, SONDE__FONT_LABEL));
            sonde__plot_lines_fini(&lines);
        }
    }
    return height > 0 ? ceil(height) + 6 : 0;
}

/* Sizes of cells and images in the space; false: too small. */
static bool lay_out(const sonde_images_plot *plot, sonde__plot_scene *scene,
                    sonde__plot_box space, grid *g)
{
    double most_h = 1e9;

    g->cell = floor((space.w + BETWEEN) / (double)g->columns) - BETWEEN;
    if (g->cell < 8) {
        return false;
    }
    g->label = label_height(plot, scene, g);
    if (space.h > 0) {
        most_h = (space.h + BETWEEN) / (double)g->rows - BETWEEN - g->label;
    }
    if (most_h < 4) {
        return false;
    }
    sonde__plot_picture_fit(&g->pictures, g->cell, most_h, &g->w, &g->h);
    return true;
}

static sonde_err draw_cell(const sonde_images_plot *plot, sonde__plot_scene *scene,
                           const grid *g, int64_t i, double top, sonde_diag *diag)
{
    const int64_t row = i / g->columns, column = i % g->columns;
    const double x = SONDE__MARGIN + (double)column * (g->cell + BETWEEN);
    const double y = top + (double)row * (g->h + g->label + BETWEEN);
    const sonde__plot_box box = {floor(x + (g->cell - g->w) / 2), y + g->label, g->w,
                                 g->h};
    sonde__plot_span span = g->span;

    if (plot->each_range) {
        const sonde_err err = sonde__plot_span_of(&g->pictures, i, i + 1, plot->low,
                                                  plot->high, "images", &span, diag);
        if (err != SONDE_OK) {
            return err;
        }
    }
    sonde__plot_picture_draw(scene, &g->pictures, i, span, plot->colours, box);
    if (label_of(plot, i) != NULL) {
        sonde__plot_lines lines = sonde__plot_wrap(
            scene, label_of(plot, i), SONDE__FONT_LABEL, g->cell, LABEL_LINES);

        sonde__plot_lines_draw(scene, &lines, SONDE__FONT_LABEL, SONDE__INK,
                               (sonde__plot_text_at){.x = x + g->cell / 2,
                                                     .y = box.y - 4,
                                                     .align_x = SONDE__CENTRE,
                                                     .align_y = SONDE__BOTTOM});
        sonde__plot_lines_fini(&lines);
    }
    return SONDE_OK;
}

sonde_err sonde__plot_build_images(const void *description, sonde__plot_scene *scene,
                                   sonde_diag *diag)
{
    const sonde_images_plot *const plot = description;
    grid g = {0};
    sonde__plot_page page = {0};
    char note[120] = "";
    sonde_err err = read_plot(plot, &g, diag);

    if (err != SONDE_OK) {
        return err;
    }
    (void)sonde__plot_oddities_text(
        sonde__plot_oddities_of(&g.pictures, 0, g.pictures.count), note, sizeof note);
    err = sonde__plot_page_begin(scene, &plot->page, NULL, note, 0, &page, diag);
    if (err != SONDE_OK) {
        return err;
    }
    if (!lay_out(plot, scene, page.space, &g)) {
        err = sonde__plot_no_room(scene, diag);
    } else if ((g.h + g.label + BETWEEN) * (double)g.rows * scene->scale >
               SONDE__PAGE_LONGEST) {
        err = sonde__fail(diag, SONDE_EINVAL, "images", "more columns or fewer images",
                          "%lld rows do not fit on a page", (long long)g.rows);
    }
    for (int64_t i = 0; err == SONDE_OK && i < g.pictures.count; i++) {
        err = draw_cell(plot, scene, &g, i, page.space.y, diag);
    }
    if (err == SONDE_OK) {
        err = sonde__plot_page_end(
            scene, &page,
            page.space.y + (double)g.rows * (g.h + g.label + BETWEEN) - BETWEEN, diag);
    }
    sonde__plot_page_fini(&page);
    return err;
}

sonde_err sonde_plot_images(const char *path, const sonde_images_plot *plot,
                            sonde_diag *diag)
{
    return sonde__plot_draw(path, &plot->page, sonde__plot_build_images, plot, diag);
}

/*
 * panels.c - images side by side, each under its title and with its size below.
 *
 * Every panel gets the same square of room, so that a large photograph and the small
 * image made of it are seen at the same size.
 */
#include "plot/colour.h"
#include "base/fail.h"
#include "base/macros.h"
#include "plot/page.h"
#include "plot/pictures.h"

#include <math.h>
#include <stdio.h>

enum { PANELS_MAX = 8, BETWEEN = 56, TITLE_LINES = 2, SIDE_MAX = 420 };

typedef struct row {
    sonde__plot_pictures pictures[PANELS_MAX];
    sonde__plot_span span[PANELS_MAX];
    double title;  /* height of the titles, 0 if there are none */
    double size;   /* height of the sizes below */
    double side;   /* room for an image, both ways */
    double height; /* of the highest image */
} row;

static sonde_err read_panels(const sonde_panels_plot *plot, row *r,
                             sonde__plot_oddities *odd, sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    if (plot->count < 1 || plot->count > PANELS_MAX || plot->panels == NULL) {
        return sonde__fail(diag, SONDE_EINVAL, "panels", "1 to 8", "%zu", plot->count);
    }
    for (size_t i = 0; err == SONDE_OK && i < plot->count; i++) {
        const sonde_plot_panel *const panel = &plot->panels[i];
        char where[32] = "";

        (void)snprintf(where, sizeof where, "panel %zu", i);
        err = sonde__plot_pictures_of(&panel->image, false, where, &r->pictures[i], diag);
        if (err == SONDE_OK) {
            err = sonde__plot_colours_check(panel->colours, diag);
        }
        if (err == SONDE_OK) {
            const sonde__plot_oddities more =
                sonde__plot_oddities_of(&r->pictures[i], 0, 1);

            err = sonde__plot_span_of(&r->pictures[i], 0, 1, panel->low, panel->high,
                                      where, &r->span[i], diag);
            odd->nan += more.nan;
            odd->infinite += more.infinite;
        }
    }
    return err;
}

static bool lay_out(const sonde_panels_plot *plot, sonde__plot_scene *scene,
                    sonde__plot_box space, row *r)
{
    const double count = (double)plot->count;

    r->side = floor((space.w + BETWEEN) / count) - BETWEEN;
    r->size = sonde__plot_text_height(SONDE__FONT_TEXT) + 8;
    if (r->side < 24) {
        return false;
    }
    for (size_t i = 0; i < plot->count; i++) {
        if (plot->panels[i].title != NULL) {
            sonde__plot_lines lines = sonde__plot_wrap(
                scene, plot->panels[i].title, SONDE__FONT_LABEL, r->side, TITLE_LINES);

            r->title =
                SONDE_MAX(r->title, sonde__plot_lines_height(&lines, SONDE__FONT_LABEL));
            sonde__plot_lines_fini(&lines);
        }
    }
    r->title += r->title > 0 ? 8 : 0;
    r->height = space.h > 0 ? space.h - r->title - r->size : SIDE_MAX;
    if (r->height < 16) {
        return false;
    }
    if (space.h <= 0) { /* as high as the highest image, once it has its width */
        double highest = 0;

        for (size_t i = 0; i < plot->count; i++) {
            double w = 0, h = 0;

            sonde__plot_picture_fit(&r->pictures[i], r->side,
                                    SONDE_MAX(r->side, SIDE_MAX), &w, &h);
            highest = SONDE_MAX(highest, h);
        }
        r->height = highest;
    }
    return true;
}

static void draw_arrow(sonde__plot_scene *scene, double x, double y)
{
    const double half = 14;
    const sonde__plot_point head[] = {
        {x + half, y}, {x + half - 9, y - 5}, {x + half - 9, y + 5}};

    sonde__plot_segment(scene, x - half, y, x + half - 8, y, SONDE__AXIS, 2);
    sonde__plot_area(scene, head, SONDE_COUNT_OF(head), SONDE__AXIS);
}

static void draw_panel(const sonde_panels_plot *plot, sonde__plot_scene *scene,
                       const row *r, size_t i, double top)
{
    const sonde__plot_pictures *const pictures = &r->pictures[i];
    const double x = SONDE__MARGIN + (double)i * (r->side + BETWEEN);
    const double middle = x + r->side / 2;
    sonde__plot_box box = {0};
    char size[64] = "";

    sonde__plot_picture_fit(pictures, r->side, r->height, &box.w, &box.h);
    box.x = floor(middle - box.w / 2);
    box.y = top + r->title + floor((r->height - box.h) / 2);
    sonde__plot_picture_draw(scene, pictures, 0, r->span[i], plot->panels[i].colours,
                             box);
    sonde__plot_outline(scene, box, SONDE__GRID, 1);
    if (plot->panels[i].title != NULL) {
        sonde__plot_lines lines = sonde__plot_wrap(
            scene, plot->panels[i].title, SONDE__FONT_LABEL, r->side, TITLE_LINES);

        sonde__plot_lines_draw(scene, &lines, SONDE__FONT_LABEL, SONDE__INK,
                               (sonde__plot_text_at){.x = middle,
                                                     .y = box.y - 6,
                                                     .align_x = SONDE__CENTRE,
                                                     .align_y = SONDE__BOTTOM});
        sonde__plot_lines_fini(&lines);
    }
    (void)snprintf(size, sizeof size, "%lld \xc3\x97 %lld%s", (long long)pictures->width,
                   (long long)pictures->height, pictures->channels == 3 ? ", RGB" : "");
    sonde__plot_text(scene, size, SONDE__FONT_TEXT, SONDE__MUTED,
                     (sonde__plot_text_at){.x = middle,
                                           .y = box.y + box.h + 8,
                                           .align_x = SONDE__CENTRE,
                                           .maximum = r->side});
}

sonde_err sonde__plot_build_panels(const void *description, sonde__plot_scene *scene,
                                   sonde_diag *diag)
{
    const sonde_panels_plot *const plot = description;
    row r = {0};
    sonde__plot_page page = {0};
    sonde__plot_oddities odd = {0};
    char note[120] = "";
    sonde_err err = read_panels(plot, &r, &odd, diag);

    if (err != SONDE_OK) {
        return err;
    }
    (void)sonde__plot_oddities_text(odd, note, sizeof note);
    err = sonde__plot_page_begin(scene, &plot->page, NULL, note, 0, &page, diag);
    if (err != SONDE_OK) {
        return err;
    }
    if (!lay_out(plot, scene, page.space, &r)) {
        sonde__plot_page_fini(&page);
        return sonde__plot_no_room(scene, diag);
    }
    for (size_t i = 0; i < plot->count; i++) {
        draw_panel(plot, scene, &r, i, page.space.y);
        if (plot->arrows && i > 0) {
            draw_arrow(scene,
                       SONDE__MARGIN + (double)i * (r.side + BETWEEN) - BETWEEN / 2.0,
                       page.space.y + r.title + r.height / 2);
        }
    }
    err = sonde__plot_page_end(scene, &page, page.space.y + r.title + r.height + r.size,
                               diag);
    sonde__plot_page_fini(&page);
    return err;
}

sonde_err sonde_plot_panels(const char *path, const sonde_panels_plot *plot,
                            sonde_diag *diag)
{
    return sonde__plot_draw(path, &plot->page, sonde__plot_build_panels, plot, diag);
}

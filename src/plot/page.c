/*
 * page.c - see page.h.
 */
#include "plot/page.h"
#include "base/fail.h"
#include "base/macros.h"

#include <math.h>

/* --- title, notes ------------------------------------------------------------------- */

/* Lines of a text at y; returns where the next may start. */
static double draw_heading(sonde__plot_scene *scene, const char *text,
                           sonde__plot_font font, uint32_t color, double y)
{
    const double width = scene->width - 2 * SONDE__MARGIN;
    sonde__plot_lines lines = {0};

    if (text == NULL || text[0] == '\0') {
        return y;
    }
    lines = sonde__plot_wrap(scene, text, font, width, 3);
    sonde__plot_lines_draw(scene, &lines, font, color,
                           (sonde__plot_place){.x = SONDE__MARGIN, .y = y});
    y += sonde__plot_lines_height(&lines, font) + 4;
    sonde__plot_lines_fini(&lines);
    return y;
}

sonde_err sonde__plot_page_begin(sonde__plot_scene *scene, const sonde_plot_page *options,
                                 const char *subtitle, const char *note, double natural,
                                 sonde__plot_page *page, sonde_diag *diag)
{
    const double width = scene->width - 2 * SONDE__MARGIN;
    const char *const notes[2] = {note, options->note};
    double top = SONDE__MARGIN - 6;

    *page = (sonde__plot_page){.height = options->height > 0 ? options->height : natural};
    top = draw_heading(scene, options->title, SONDE__FONT_TITLE, SONDE__INK, top);
    top = draw_heading(scene, subtitle, SONDE__FONT_TEXT, SONDE__MUTED, top);
    if (top > SONDE__MARGIN) {
        top += 10;
    }
    for (int i = 0; i < 2; i++) {
        if (notes[i] != NULL && notes[i][0] != '\0') {
            page->notes[i] = sonde__plot_wrap(scene, notes[i], SONDE__FONT_TEXT, width,
                                              SONDE__LINES_MAX);
            page->notes_height +=
                sonde__plot_lines_height(&page->notes[i], SONDE__FONT_TEXT) + 4;
        }
    }
    page->space = (sonde__plot_box){SONDE__MARGIN, top, width, 0};
    if (page->height > 0) {
        page->space.h = page->height - top - SONDE__MARGIN -
                        (page->notes_height > 0 ? page->notes_height + 8 : 0);
        if (page->space.h < 24) {
            sonde__plot_page_fini(page);
            return sonde__plot_no_room(scene, diag);
        }
    }
    return SONDE_OK;
}

sonde_err sonde__plot_page_end(sonde__plot_scene *scene, const sonde__plot_page *page,
                               double bottom, sonde_diag *diag)
{
    const double notes = page->notes_height > 0 ? page->notes_height + 8 : 0;

    scene->height =
        page->height > 0 ? page->height : ceil(bottom + notes + SONDE__MARGIN);
    if (scene->height * scene->scale > SONDE__PAGE_LONGEST) {
        return sonde__fail(diag, SONDE_EINVAL, "picture", NULL,
                           "it would be %.0f pixels high, at most %d are possible",
                           scene->height * scene->scale, SONDE__PAGE_LONGEST);
    }
    double y = scene->height - SONDE__MARGIN - page->notes_height + 4;
    for (int i = 0; i < 2; i++) {
        sonde__plot_lines_draw(scene, &page->notes[i], SONDE__FONT_TEXT, SONDE__MUTED,
                               (sonde__plot_place){.x = SONDE__MARGIN, .y = y});
        y += sonde__plot_lines_height(&page->notes[i], SONDE__FONT_TEXT) + 4;
    }
    return SONDE_OK;
}

void sonde__plot_page_fini(sonde__plot_page *page)
{
    sonde__plot_lines_fini(&page->notes[0]);
    sonde__plot_lines_fini(&page->notes[1]);
}

sonde_err sonde__plot_page_chart(sonde__plot_scene *scene, const sonde_plot_page *options,
                                 const char *subtitle, const char *note,
                                 sonde__plot_painter paint, void *chart, sonde_diag *diag)
{
    const double natural = round(SONDE_MIN(SONDE_MAX(scene->width * 0.65, 240), 540));
    sonde__plot_page page = {0};

    SONDE__TRY(
        sonde__plot_page_begin(scene, options, subtitle, note, natural, &page, diag));
    const sonde_err err =
        paint(chart, scene, page.space)
            ? sonde__plot_page_end(scene, &page, page.space.y + page.space.h, diag)
            : sonde__plot_no_room(scene, diag);
    sonde__plot_page_fini(&page);
    return err;
}

sonde_err sonde__plot_no_room(const sonde__plot_scene *scene, sonde_diag *diag)
{
    return sonde__fail(diag, SONDE_EINVAL, "picture", "a larger width or height",
                       "a page %.0f pixels wide is too small for the contents",
                       scene->width);
}

/* --- drawing ------------------------------------------------------------------------ */

static sonde_err check_page(const sonde_plot_page *page, double *width, double *scale,
                            sonde_diag *diag)
{
    *width = page->width != 0 ? page->width : SONDE__PAGE_WIDTH;
    *scale = page->scale < 0 || page->scale > 0 ? page->scale : 1;
    if (*width < 160 || *width > 16000) {
        return sonde__fail(diag, SONDE_EINVAL, "width", "160 to 16000", "%d pixels",
                           page->width);
    }
    if (page->height != 0 && (page->height < 120 || page->height > 16000)) {
        return sonde__fail(diag, SONDE_EINVAL, "height", "120 to 16000", "%d pixels",
                           page->height);
    }
    if (!(page->scale >= 0) || *scale < 0.5 || *scale > 8) {
        return sonde__fail(diag, SONDE_EINVAL, "scale", "0.5 to 8", "%g", page->scale);
    }
    if (SONDE_MAX(*width, page->height) * *scale > SONDE__PAGE_LONGEST) {
        return sonde__fail(diag, SONDE_EINVAL, "scale", NULL,
                           "the picture would have more than %d pixels a side",
                           SONDE__PAGE_LONGEST);
    }
    return SONDE_OK;
}

sonde_err sonde__plot_draw(const char *path, const sonde_plot_page *page,
                           sonde__plot_builder build, const void *plot, sonde_diag *diag)
{
    sonde__plot_scene scene = {0};
    double width = 0, scale = 0;
    sonde_err err = sonde_plot_check_path(path, diag);

    if (err != SONDE_OK || (err = check_page(page, &width, &scale, diag)) != SONDE_OK ||
        (err = sonde__plot_scene_init(&scene, width, scale, diag)) != SONDE_OK) {
        return err;
    }
    SONDE__TRY_DONE(build(plot, &scene, diag));
    err = sonde__plot_scene_save(&scene, path, diag);
done:
    sonde__plot_scene_fini(&scene);
    return err;
}

/*
 * images.c - views as images, in a grid or side by side.
 *
 * Grid: labels are wrapped to two lines of their cell; all cells of a row are as high as
 * its tallest label needs. Panels: each gets the same square of room, so a large
 * photograph and the small image made of it are shown at the same size.
 */
#include "plot/images.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "plot/colour.h"
#include "plot/page.h"
#include "plot/ticks.h"

#include <math.h>
#include <stdio.h>

/* === pixels of a view =============================================================== */

/* --- axes --------------------------------------------------------------------------- */

static bool is_colour_axis(int64_t size)
{
    return size == 1 || size == 3;
}

/* The view's axes of image, channel, row and column; -1: none. */
static bool find_axes(const sonde_view *view, bool batch, int axis[4])
{
    const int first = batch ? 1 : 0;

    axis[0] = batch ? 0 : -1;
    if (view->rank == first + 2) {
        axis[1] = -1;
        axis[2] = first;
        axis[3] = first + 1;
        return true;
    }
    if (view->rank != first + 3) {
        return false;
    }
    if (is_colour_axis(view->shape[first])) {
        axis[1] = first;
        axis[2] = first + 1;
        axis[3] = first + 2;
        return true;
    }
    axis[1] = first + 2;
    axis[2] = first;
    axis[3] = first + 1;
    return is_colour_axis(view->shape[first + 2]);
}

sonde_err sonde__plot_pictures_of(const sonde_view *view, bool batch, const char *where,
                                  sonde__plot_pictures *out, sonde_diag *diag)
{
    const char *const expected =
        batch ? "(N, H, W), (N, C, H, W) or (N, H, W, C) with C 1 or 3"
              : "(H, W), (C, H, W) or (H, W, C) with C 1 or 3";
    int64_t size[4] = {1, 1, 1, 1}, step[4] = {0};
    int axis[4] = {0};
    char shape[160] = "";

    if (sonde_dtype_size(view->dtype) == 0) {
        return sonde__fail(diag, SONDE_EDTYPE, where, NULL, "no dtype has number %d",
                           (int)view->dtype);
    }
    if (view->rank < 0 || view->rank > SONDE_MAX_DIMS || !find_axes(view, batch, axis)) {
        return sonde__fail(
            diag, SONDE_ESHAPE, where, expected, "shape %s",
            sonde_shape_text(SONDE_MAX(view->rank, 0), view->shape, shape, sizeof shape));
    }
    for (int i = 0; i < 4; i++) {
        if (axis[i] >= 0) {
            size[i] = view->shape[axis[i]];
            step[i] = view->stride[axis[i]];
        }
        if (size[i] < 1 || (i >= 2 && size[i] > 1 << 20)) {
            return sonde__fail(
                diag, SONDE_ESHAPE, where, "at least one image of at least one pixel",
                "shape %s",
                sonde_shape_text(view->rank, view->shape, shape, sizeof shape));
        }
    }
    if (view->data == NULL) {
        return sonde__fail(diag, SONDE_EINVAL, where, NULL, "the view has no data");
    }
    *out = (sonde__plot_pictures){.view = view,
                                  .count = size[0],
                                  .channels = size[1],
                                  .height = size[2],
                                  .width = size[3],
                                  .step = {step[0], step[1], step[2], step[3]}};
    return SONDE_OK;
}

static double value_at(const sonde__plot_pictures *p, int64_t i, int64_t channel,
                       int64_t y, int64_t x)
{
    const int64_t element =
        i * p->step[0] + channel * p->step[1] + y * p->step[2] + x * p->step[3];
    const char *const data = p->view->data;
    const int64_t size = (int64_t)sonde_dtype_size(p->view->dtype);

    return sonde_element_get(p->view->dtype, data + element * size);
}

/* --- range -------------------------------------------------------------------------- */

typedef struct census {
    double low, high; /* of the finite values; low > high if there are none */
    sonde__plot_oddities odd;
} census;

static census count_values(const sonde__plot_pictures *p, int64_t first, int64_t last)
{
    census c = {INFINITY, -INFINITY, {0, 0}};

    for (int64_t i = first; i < last; i++) {
        for (int64_t channel = 0; channel < p->channels; channel++) {
            for (int64_t y = 0; y < p->height; y++) {
                for (int64_t x = 0; x < p->width; x++) {
                    const double value = value_at(p, i, channel, y, x);

                    if (isfinite(value)) {
                        c.low = SONDE_MIN(c.low, value);
                        c.high = SONDE_MAX(c.high, value);
                    } else if (isnan(value)) {
                        c.odd.nan++;
                    } else {
                        c.odd.infinite++;
                    }
                }
            }
        }
    }
    return c;
}

sonde_err sonde__plot_span_of(const sonde__plot_pictures *pictures, int64_t first,
                              int64_t last, double low, double high, const char *where,
                              sonde__plot_span *span, sonde_diag *diag)
{
    const bool colour = pictures->channels == 3;
    const bool real = sonde_dtype_is_float(pictures->view->dtype);

    if (!isfinite(low) || !isfinite(high) || low > high) {
        return sonde__fail(diag, SONDE_EINVAL, where, "low < high, or both 0",
                           "a range from %g to %g", low, high);
    }
    if (low < high) {
        *span = (sonde__plot_span){low, high};
        return SONDE_OK;
    }
    if (colour && pictures->view->dtype == SONDE_U8) {
        *span = (sonde__plot_span){0, 255};
        return SONDE_OK;
    }
    const census c = count_values(pictures, first, last);
    if (c.low > c.high || (colour && real && c.low >= 0 && c.high <= 1)) {
        *span = (sonde__plot_span){0, 1}; /* also if no value is finite */
    } else {
        *span = (sonde__plot_span){c.low, c.high};
    }
    return SONDE_OK;
}

sonde__plot_oddities sonde__plot_oddities_of(const sonde__plot_pictures *pictures,
                                             int64_t first, int64_t last)
{
    if (!sonde_dtype_is_float(pictures->view->dtype)) {
        return (sonde__plot_oddities){0, 0};
    }
    return count_values(pictures, first, last).odd;
}

const char *sonde__plot_oddities_text(sonde__plot_oddities odd, char *buf, size_t size)
{
    char nan[40] = "", infinite[40] = "";

    (void)sonde__plot_grouped(odd.nan, nan, sizeof nan);
    (void)sonde__plot_grouped(odd.infinite, infinite, sizeof infinite);
    buf[0] = '\0';
    if (odd.nan > 0 && odd.infinite > 0) {
        (void)snprintf(buf, size, "%s NaN (magenta) and %s infinite values", nan,
                       infinite);
    } else if (odd.nan > 0) {
        (void)snprintf(buf, size, "%s NaN values (magenta)", nan);
    } else if (odd.infinite > 0) {
        (void)snprintf(buf, size, "%s infinite values", infinite);
    }
    return buf;
}

/* --- pixels ------------------------------------------------------------------------- */

/* Mean of a channel over rows y[0] ... y[1] - 1 and columns x[0] ... x[1] - 1, as a part
 * of the span; NaN if one value is NaN. */
static double mean_part(const sonde__plot_pictures *p, int64_t i, int64_t channel,
                        const int64_t y[2], const int64_t x[2], sonde__plot_span span)
{
    double sum = 0;

    for (int64_t row = y[0]; row < y[1]; row++) {
        for (int64_t column = x[0]; column < x[1]; column++) {
            const double value = value_at(p, i, channel, row, column);
            const double clamped = SONDE_MIN(SONDE_MAX(value, span.low), span.high);

            if (isnan(value)) {
                return NAN;
            }
            sum += span.high > span.low
                       ? (clamped / 2 - span.low / 2) / (span.high / 2 - span.low / 2)
                       : 0;
        }
    }
    return sum / (double)((y[1] - y[0]) * (x[1] - x[0]));
}

static uint32_t pixel_at(const sonde__plot_pictures *p, int64_t i, const int64_t y[2],
                         const int64_t x[2], sonde__plot_span span, sonde_colours colours)
{
    uint32_t rgb = 0;

    if (p->channels == 1) {
        return sonde__plot_colour_at(colours, mean_part(p, i, 0, y, x, span));
    }
    for (int64_t channel = 0; channel < 3; channel++) {
        const double part = mean_part(p, i, channel, y, x, span);

        if (isnan(part)) {
            return SONDE__NAN_COLOUR;
        }
        rgb = rgb << 8 | (uint32_t)lround(part * 255);
    }
    return rgb << 8 | 0xffu;
}

uint32_t *sonde__plot_picture_pixels(const sonde__plot_pictures *pictures, int64_t i,
                                     sonde__plot_span span, sonde_colours colours,
                                     int columns, int rows)
{
    size_t count = 0;
    uint32_t *pixels = NULL;

    if (!sonde__mul((size_t)columns, (size_t)rows, &count) ||
        !sonde__mul(count, sizeof *pixels, &count) ||
        (pixels = sonde__malloc(count)) == NULL) {
        return NULL;
    }
    for (int row = 0; row < rows; row++) {
        const int64_t y[2] = {pictures->height * row / rows,
                              pictures->height * (row + 1) / rows};

        for (int column = 0; column < columns; column++) {
            const int64_t x[2] = {pictures->width * column / columns,
                                  pictures->width * (column + 1) / columns};

            pixels[(size_t)row * (size_t)columns + (size_t)column] =
                0xff000000u | pixel_at(pictures, i, y, x, span, colours) >> 8;
        }
    }
    return pixels;
}

void sonde__plot_picture_draw(sonde__plot_scene *scene,
                              const sonde__plot_pictures *pictures, int64_t i,
                              sonde__plot_span span, sonde_colours colours,
                              sonde__plot_box box)
{
    const double w = SONDE_MAX(1, round(box.w * scene->scale));
    const double h = SONDE_MAX(1, round(box.h * scene->scale));
    const int columns = (int)SONDE_MIN((double)pictures->width, w);
    const int rows = (int)SONDE_MIN((double)pictures->height, h);

    if (scene->err != SONDE_OK) {
        return;
    }
    sonde__plot_image(
        scene, box, sonde__plot_picture_pixels(pictures, i, span, colours, columns, rows),
        columns, rows);
}

void sonde__plot_picture_fit(const sonde__plot_pictures *pictures, double most_w,
                             double most_h, double *w, double *h)
{
    const double width = (double)pictures->width, height = (double)pictures->height;
    double factor = SONDE_MIN(most_w / width, most_h / height);

    if (factor >= 2) {
        factor = floor(factor);
    }
    *w = SONDE_MAX(1, floor(width * factor));
    *h = SONDE_MAX(1, floor(height * factor));
}

/* === a grid of images =============================================================== */

enum { COLUMNS = 5, CELL_GAP = 16, LABEL_LINES = 2 };

typedef struct grid {
    sonde__plot_pictures pictures;
    sonde__plot_span span; /* unless each_range */
    int64_t columns, rows;
    double cell;  /* width of a cell */
    double w, h;  /* size of an image */
    double label; /* height of the labels, 0 if there are none */
} grid;

static sonde_err read_grid(const sonde_images_plot *plot, grid *g, sonde_diag *diag)
{
    sonde_err err =
        sonde__plot_pictures_of(&plot->images, true, "images", &g->pictures, diag);

    if (err != SONDE_OK) {
        return err;
    }
    err = sonde__plot_colours_check(plot->colours, diag);
    if (err != SONDE_OK) {
        return err;
    }
    if (plot->columns < 0) {
        return sonde__fail(diag, SONDE_EINVAL, "columns", "1 or more", "%d",
                           plot->columns);
    }
    err = sonde__plot_span_of(&g->pictures, 0, plot->each_range ? 0 : g->pictures.count,
                              plot->low, plot->high, "images", &g->span, diag);
    if (err != SONDE_OK) {
        return err;
    }
    g->columns = plot->columns > 0 ? plot->columns : COLUMNS;
    g->columns = SONDE_MIN(g->columns, g->pictures.count);
    g->rows = (g->pictures.count + g->columns - 1) / g->columns;
    return SONDE_OK;
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
static bool lay_out_grid(const sonde_images_plot *plot, sonde__plot_scene *scene,
                         sonde__plot_box space, grid *g)
{
    double most_h = 1e9;

    g->cell = floor((space.w + CELL_GAP) / (double)g->columns) - CELL_GAP;
    if (g->cell < 8) {
        return false;
    }
    g->label = label_height(plot, scene, g);
    if (space.h > 0) {
        most_h = (space.h + CELL_GAP) / (double)g->rows - CELL_GAP - g->label;
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
    const double x = SONDE__MARGIN + (double)column * (g->cell + CELL_GAP);
    const double y = top + (double)row * (g->h + g->label + CELL_GAP);
    const sonde__plot_box box = {floor(x + (g->cell - g->w) / 2), y + g->label, g->w,
                                 g->h};
    sonde__plot_span span = g->span;

    if (plot->each_range) {
        SONDE__TRY(sonde__plot_span_of(&g->pictures, i, i + 1, plot->low, plot->high,
                                       "images", &span, diag));
    }
    sonde__plot_picture_draw(scene, &g->pictures, i, span, plot->colours, box);
    if (label_of(plot, i) != NULL) {
        sonde__plot_lines lines = sonde__plot_wrap(
            scene, label_of(plot, i), SONDE__FONT_LABEL, g->cell, LABEL_LINES);

        sonde__plot_lines_draw(scene, &lines, SONDE__FONT_LABEL, SONDE__INK,
                               (sonde__plot_place){.x = x + g->cell / 2,
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
    sonde_err err = read_grid(plot, &g, diag);

    if (err != SONDE_OK) {
        return err;
    }
    (void)sonde__plot_oddities_text(
        sonde__plot_oddities_of(&g.pictures, 0, g.pictures.count), note, sizeof note);
    SONDE__TRY(sonde__plot_page_begin(scene, &plot->page, NULL, note, 0, &page, diag));
    if (!lay_out_grid(plot, scene, page.space, &g)) {
        err = sonde__plot_no_room(scene, diag);
        goto done;
    }
    if ((g.h + g.label + CELL_GAP) * (double)g.rows * scene->scale >
        SONDE__PAGE_LONGEST) {
        err = sonde__fail(diag, SONDE_EINVAL, "images", "more columns or fewer images",
                          "%lld rows do not fit on a page", (long long)g.rows);
        goto done;
    }
    for (int64_t i = 0; i < g.pictures.count; i++) {
        SONDE__TRY_DONE(draw_cell(plot, scene, &g, i, page.space.y, diag));
    }
    err = sonde__plot_page_end(
        scene, &page,
        page.space.y + (double)g.rows * (g.h + g.label + CELL_GAP) - CELL_GAP, diag);
done:
    sonde__plot_page_fini(&page);
    return err;
}

sonde_err sonde_plot_images(const char *path, const sonde_images_plot *plot,
                            sonde_diag *diag)
{
    return sonde__plot_draw(path, &plot->page, sonde__plot_build_images, plot, diag);
}

/* === images side by side ============================================================ */

enum { PANELS_MAX = 8, PANEL_GAP = 56, TITLE_LINES = 2, SIDE_MAX = 420 };

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
    if (plot->count < 1 || plot->count > PANELS_MAX || plot->panels == NULL) {
        return sonde__fail(diag, SONDE_EINVAL, "panels", "1 to 8", "%zu", plot->count);
    }
    for (size_t i = 0; i < plot->count; i++) {
        const sonde_plot_panel *const panel = &plot->panels[i];
        sonde__plot_oddities more = {0};
        char where[32] = "";
        sonde_err err = SONDE_OK;

        (void)snprintf(where, sizeof where, "panel %zu", i);
        err = sonde__plot_pictures_of(&panel->image, false, where, &r->pictures[i], diag);
        if (err != SONDE_OK) {
            return err;
        }
        err = sonde__plot_colours_check(panel->colours, diag);
        if (err != SONDE_OK) {
            return err;
        }
        more = sonde__plot_oddities_of(&r->pictures[i], 0, 1);
        odd->nan += more.nan;
        odd->infinite += more.infinite;
        err = sonde__plot_span_of(&r->pictures[i], 0, 1, panel->low, panel->high, where,
                                  &r->span[i], diag);
        if (err != SONDE_OK) {
            return err;
        }
    }
    return SONDE_OK;
}

static bool lay_out_panels(const sonde_panels_plot *plot, sonde__plot_scene *scene,
                           sonde__plot_box space, row *r)
{
    const double count = (double)plot->count;

    r->side = floor((space.w + PANEL_GAP) / count) - PANEL_GAP;
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
    const double x = SONDE__MARGIN + (double)i * (r->side + PANEL_GAP);
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
                               (sonde__plot_place){.x = middle,
                                                   .y = box.y - 6,
                                                   .align_x = SONDE__CENTRE,
                                                   .align_y = SONDE__BOTTOM});
        sonde__plot_lines_fini(&lines);
    }
    (void)snprintf(size, sizeof size, "%lld \xc3\x97 %lld%s", (long long)pictures->width,
                   (long long)pictures->height, pictures->channels == 3 ? ", RGB" : "");
    sonde__plot_text(scene, size, SONDE__FONT_TEXT, SONDE__MUTED,
                     (sonde__plot_place){.x = middle,
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
    SONDE__TRY(sonde__plot_page_begin(scene, &plot->page, NULL, note, 0, &page, diag));
    if (!lay_out_panels(plot, scene, page.space, &r)) {
        sonde__plot_page_fini(&page);
        return sonde__plot_no_room(scene, diag);
    }
    for (size_t i = 0; i < plot->count; i++) {
        draw_panel(plot, scene, &r, i, page.space.y);
        if (plot->arrows && i > 0) {
            draw_arrow(scene,
                       SONDE__MARGIN + (double)i * (r.side + PANEL_GAP) - PANEL_GAP / 2.0,
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

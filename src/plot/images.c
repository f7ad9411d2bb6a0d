/*
 * images.c - views as images, in a gallery: the images of one view in a grid, or a few
 * views side by side with their sizes.
 *
 * Labels are wrapped to two lines of their cell; all cells are as high as the tallest
 * label and the highest image need. Views side by side get the same room, so a large
 * photograph and the small image made of it are shown at the same size.
 */
#include "plot/page.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "plot/axes.h"

#include <math.h>
#include <stdio.h>

/* === pixels of a view =============================================================== */

/* --- axes --------------------------------------------------------------------------- */

static bool is_color_axis(int64_t size)
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
    if (is_color_axis(view->shape[first])) {
        axis[1] = first;
        axis[2] = first + 1;
        axis[3] = first + 2;
        return true;
    }
    axis[1] = first + 2;
    axis[2] = first;
    axis[3] = first + 1;
    return is_color_axis(view->shape[first + 2]);
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
    uint64_t nan, infinite;
} census;

static census count_values(const sonde__plot_pictures *p)
{
    census c = {.low = INFINITY, .high = -INFINITY};

    for (int64_t i = 0; i < p->count; i++) {
        for (int64_t channel = 0; channel < p->channels; channel++) {
            for (int64_t y = 0; y < p->height; y++) {
                for (int64_t x = 0; x < p->width; x++) {
                    const double value = value_at(p, i, channel, y, x);

                    if (isfinite(value)) {
                        c.low = SONDE_MIN(c.low, value);
                        c.high = SONDE_MAX(c.high, value);
                    } else if (isnan(value)) {
                        c.nan++;
                    } else {
                        c.infinite++;
                    }
                }
            }
        }
    }
    return c;
}

/* The range of all values, as described in <sonde/plot.h>. */
static sonde__plot_span span_of(const sonde__plot_pictures *pictures)
{
    const bool color = pictures->channels == 3;
    const bool real = sonde_dtype_is_float(pictures->view->dtype);

    if (color && pictures->view->dtype == SONDE_U8) {
        return (sonde__plot_span){0, 255};
    }
    const census c = count_values(pictures);

    if (c.low > c.high || (color && real && c.low >= 0 && c.high <= 1)) {
        return (sonde__plot_span){0, 1}; /* also if no value is finite */
    }
    return (sonde__plot_span){c.low, c.high};
}

/* "3 NaN values (magenta)", or "" if there are none. Returns buf. */
static const char *oddities_text(uint64_t nans, uint64_t infinities, char *buf,
                                 size_t size)
{
    char nan[40] = "", infinite[40] = "";

    (void)sonde__plot_grouped(nans, nan, sizeof nan);
    (void)sonde__plot_grouped(infinities, infinite, sizeof infinite);
    buf[0] = '\0';
    if (nans > 0 && infinities > 0) {
        (void)snprintf(buf, size, "%s NaN (magenta) and %s infinite values", nan,
                       infinite);
    } else if (nans > 0) {
        (void)snprintf(buf, size, "%s NaN values (magenta)", nan);
    } else if (infinities > 0) {
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
                         const int64_t x[2], sonde__plot_span span, sonde_colors colors)
{
    uint32_t rgb = 0;

    if (p->channels == 1) {
        return sonde__plot_color_at(colors, mean_part(p, i, 0, y, x, span));
    }
    for (int64_t channel = 0; channel < 3; channel++) {
        const double part = mean_part(p, i, channel, y, x, span);

        if (isnan(part)) {
            return SONDE__NAN_COLOR;
        }
        rgb = rgb << 8 | (uint32_t)lround(part * 255);
    }
    return rgb << 8 | 0xffu;
}

uint32_t *sonde__plot_picture_pixels(const sonde__plot_pictures *pictures, int64_t i,
                                     sonde__plot_span span, sonde_colors colors,
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
                0xff000000u | pixel_at(pictures, i, y, x, span, colors) >> 8;
        }
    }
    return pixels;
}

static void draw_picture(sonde__plot_scene *scene, const sonde__plot_pictures *pictures,
                         int64_t i, sonde__plot_span span, sonde_colors colors,
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
        scene, box, sonde__plot_picture_pixels(pictures, i, span, colors, columns, rows),
        columns, rows);
}

/* The largest size with the proportions of the images within most_w, most_h; a whole
 * multiple of their size if that is 2 or more. */
static void fit(const sonde__plot_pictures *pictures, double most_w, double most_h,
                double *w, double *h)
{
    const double width = (double)pictures->width, height = (double)pictures->height;
    double factor = SONDE_MIN(most_w / width, most_h / height);

    if (factor >= 2) {
        factor = floor(factor);
    }
    *w = SONDE_MAX(1, floor(width * factor));
    *h = SONDE_MAX(1, floor(height * factor));
}

/* === the gallery ==================================================================== */

enum { COLUMNS = 5, LABEL_LINES = 2, VIEWS_MAX = 8, SIDE_MAX = 420 };

typedef struct gallery {
    bool panels, arrows; /* a view each, with its size below; arrows between them */
    sonde__plot_pictures pictures[VIEWS_MAX]; /* the first, unless panels */
    sonde__plot_span span[VIEWS_MAX];
    sonde_colors colors[VIEWS_MAX];
    const char *titles[VIEWS_MAX];
    const char *const *labels; /* of all images; NULL: none */
    uint64_t nan, infinite;
    int64_t count, columns, rows;
    double gap, cell;     /* between cells; width of a cell */
    double label, height; /* of the labels, and of the highest image */
    double size;          /* of the texts below */
} gallery;

static sonde_err read_view(gallery *g, const sonde_view *view, sonde_colors colors,
                           const char *where, sonde_diag *diag)
{
    const int64_t i = g->panels ? g->count : 0;

    SONDE__TRY(sonde__plot_pictures_of(view, !g->panels, where, &g->pictures[i], diag));
    SONDE__TRY(sonde__plot_colors_check(colors, diag));
    g->colors[i] = colors;
    g->span[i] = span_of(&g->pictures[i]);
    g->count += g->pictures[i].count;
    if (sonde_dtype_is_float(view->dtype)) {
        const census c = count_values(&g->pictures[i]);

        g->nan += c.nan;
        g->infinite += c.infinite;
    }
    return SONDE_OK;
}

static const char *label_of(const gallery *g, int64_t i)
{
    return g->labels != NULL ? g->labels[i] : NULL;
}

static double label_height(const gallery *g, sonde__plot_scene *scene)
{
    double height = 0;

    for (int64_t i = 0; i < g->count; i++) {
        if (label_of(g, i) != NULL) {
            sonde__plot_lines lines = sonde__plot_wrap(
                scene, label_of(g, i), SONDE__FONT_LABEL, g->cell, LABEL_LINES);

            height =
                SONDE_MAX(height, sonde__plot_lines_height(&lines, SONDE__FONT_LABEL));
            sonde__plot_lines_fini(&lines);
        }
    }
    return height > 0 ? ceil(height) + 6 : 0;
}

/* Sizes of cells and images in the space; false: too small. */
static bool lay_out(gallery *g, sonde__plot_scene *scene, sonde__plot_box space)
{
    double most = g->panels ? SIDE_MAX : 1e9;

    g->rows = (g->count + g->columns - 1) / g->columns;
    g->cell = floor((space.w + g->gap) / (double)g->columns) - g->gap;
    if (g->cell < (g->panels ? 24 : 8)) {
        return false;
    }
    g->label = label_height(g, scene);
    g->size = g->panels ? sonde__plot_text_height(SONDE__FONT_TEXT) + 8 : 0;
    if (space.h > 0) {
        most = (space.h + g->gap) / (double)g->rows - g->gap - g->label - g->size;
    }
    for (int64_t i = 0; i < (g->panels ? g->count : 1); i++) {
        double w = 0, h = 0;

        fit(&g->pictures[i], g->cell, SONDE_MAX(most, 1), &w, &h);
        g->height = SONDE_MAX(g->height, h);
    }
    return most >= (g->panels ? 16 : 4);
}

/* The arrow to a cell from the one before. */
static void draw_arrow(sonde__plot_scene *scene, double x, double y)
{
    const double half = 14;
    const sonde__plot_point head[] = {
        {x + half, y}, {x + half - 9, y - 5}, {x + half - 9, y + 5}};

    sonde__plot_segment(scene, x - half, y, x + half - 8, y, SONDE__AXIS, 2);
    sonde__plot_area(scene, head, SONDE_COUNT_OF(head), SONDE__AXIS);
}

/* What a panel has besides its image: frame, size, arrow. */
static void draw_panel(const gallery *g, sonde__plot_scene *scene, int64_t i,
                       sonde__plot_box box, double x)
{
    const sonde__plot_pictures *pictures = &g->pictures[i];
    char size[64] = "";

    sonde__plot_outline(scene, box, SONDE__GRID, 1);
    (void)snprintf(size, sizeof size, "%lld \xc3\x97 %lld%s", (long long)pictures->width,
                   (long long)pictures->height, pictures->channels == 3 ? ", RGB" : "");
    sonde__plot_text(scene, size, SONDE__FONT_TEXT, SONDE__MUTED,
                     (sonde__plot_place){.x = x + g->cell / 2,
                                         .y = box.y + box.h + 8,
                                         .align_x = SONDE__CENTER,
                                         .maximum = g->cell});
    if (g->arrows && i > 0) {
        draw_arrow(scene, x - g->gap / 2, box.y + box.h / 2);
    }
}

static void draw_cell(const gallery *g, sonde__plot_scene *scene, int64_t i, double top)
{
    const int64_t view = g->panels ? i : 0;
    const double height = g->height + g->label + g->size + g->gap;
    const int64_t row = i / g->columns;
    const double x = SONDE__MARGIN + (double)(i % g->columns) * (g->cell + g->gap);
    const double y = top + (double)row * height + g->label;
    sonde__plot_box box = {0};

    fit(&g->pictures[view], g->cell, g->height, &box.w, &box.h);
    box.x = floor(x + (g->cell - box.w) / 2);
    box.y = y + floor((g->height - box.h) / 2);
    draw_picture(scene, &g->pictures[view], i - view, g->span[view], g->colors[view],
                 box);
    if (g->panels) {
        draw_panel(g, scene, i, box, x);
    }
    if (label_of(g, i) != NULL) {
        sonde__plot_lines lines = sonde__plot_wrap(
            scene, label_of(g, i), SONDE__FONT_LABEL, g->cell, LABEL_LINES);

        sonde__plot_lines_draw(scene, &lines, SONDE__FONT_LABEL, SONDE__INK,
                               (sonde__plot_place){.x = x + g->cell / 2,
                                                   .y = box.y - 4,
                                                   .align_x = SONDE__CENTER,
                                                   .align_y = SONDE__BOTTOM});
        sonde__plot_lines_fini(&lines);
    }
}

static sonde_err draw_gallery(gallery *g, const sonde_plot_page *options,
                              sonde__plot_scene *scene, sonde_diag *diag)
{
    sonde__plot_page page = {0};
    char note[120] = "";
    sonde_err err = SONDE_OK;

    SONDE__TRY(sonde__plot_page_begin(
        scene, options, NULL, oddities_text(g->nan, g->infinite, note, sizeof note), 0,
        &page, diag));
    if (!lay_out(g, scene, page.space)) {
        err = sonde__plot_no_room(scene, diag);
        goto done;
    }
    const double height =
        (double)g->rows * (g->height + g->label + g->size + g->gap) - g->gap;

    if ((height + g->gap) * scene->scale > SONDE__PAGE_LONGEST) {
        err = sonde__fail(diag, SONDE_EINVAL, "images", "more columns or fewer images",
                          "%lld rows do not fit on a page", (long long)g->rows);
        goto done;
    }
    for (int64_t i = 0; i < g->count; i++) {
        draw_cell(g, scene, i, page.space.y);
    }
    err = sonde__plot_page_end(scene, &page, page.space.y + height, diag);
done:
    sonde__plot_page_fini(&page);
    return err;
}

sonde_err sonde__plot_build_images(const void *description, sonde__plot_scene *scene,
                                   sonde_diag *diag)
{
    const sonde_images_plot *const plot = description;
    gallery g = {.labels = plot->labels, .gap = 16};

    SONDE__TRY(read_view(&g, &plot->images, plot->colors, "images", diag));
    if (plot->columns < 0) {
        return sonde__fail(diag, SONDE_EINVAL, "columns", "1 or more", "%d",
                           plot->columns);
    }
    g.columns = SONDE_MIN(plot->columns > 0 ? plot->columns : COLUMNS, g.count);
    return draw_gallery(&g, &plot->page, scene, diag);
}

sonde_err sonde_plot_images(const char *path, const sonde_images_plot *plot,
                            sonde_diag *diag)
{
    return sonde__plot_draw(path, &plot->page, sonde__plot_build_images, plot, diag);
}

sonde_err sonde__plot_build_panels(const void *description, sonde__plot_scene *scene,
                                   sonde_diag *diag)
{
    const sonde_panels_plot *const plot = description;
    gallery g = {.panels = true,
                 .arrows = plot->arrows,
                 .labels = g.titles,
                 .columns = (int64_t)plot->count,
                 .gap = 56};

    if (plot->count < 1 || plot->count > VIEWS_MAX || plot->panels == NULL) {
        return sonde__fail(diag, SONDE_EINVAL, "panels", "1 to 8", "%zu", plot->count);
    }
    for (size_t i = 0; i < plot->count; i++) {
        char where[32] = "";

        (void)snprintf(where, sizeof where, "panel %zu", i);
        g.titles[i] = plot->panels[i].title;
        SONDE__TRY(
            read_view(&g, &plot->panels[i].image, plot->panels[i].colors, where, diag));
    }
    return draw_gallery(&g, &plot->page, scene, diag);
}

sonde_err sonde_plot_panels(const char *path, const sonde_panels_plot *plot,
                            sonde_diag *diag)
{
    return sonde__plot_draw(path, &plot->page, sonde__plot_build_panels, plot, diag);
}

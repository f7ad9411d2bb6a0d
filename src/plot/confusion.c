/*
 * confusion.c - a confusion matrix: true labels down, predicted labels across.
 *
 * Names are shortened to a part of the page; where rows are thinner than a line of text,
 * only every n-th is shown. Cells show their value in the largest font that fits all of
 * them, or none. With more than DRAWN_CELLS classes the cells are one image.
 */
#include "plot/axes.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/number.h"
#include "plot/page.h"

#include <math.h>
#include <stdio.h>

enum { CLASSES_MAX = 1000, DRAWN_CELLS = 64, CELL_MAX = 56, CELL_MAX_FEW = 96, GAP = 8 };

typedef struct matrix {
    const sonde_confusion_plot *plot;
    int classes;
    double *values; /* (K, K): counts */
    double total, right;
    bool whole; /* all counts are integers */
    double cell, names_left, names_below;
    bool upright; /* names below are short enough to need no turning */
    double x, y;  /* of the first cell */
    sonde__plot_axis bar;
    sonde__plot_font font; /* for the values; size 0: they do not fit */
    bool shortened;        /* "12.3k" */
} matrix;

/* --- reading ------------------------------------------------------------------------ */

static sonde_err check_view(const sonde_view *view, sonde_diag *diag)
{
    char shape[160] = "";

    if (sonde_dtype_size(view->dtype) == 0) {
        return sonde__fail(diag, SONDE_EDTYPE, "counts", NULL, "no dtype has number %d",
                           (int)view->dtype);
    }
    if (view->rank != 2 || view->shape[0] != view->shape[1] || view->shape[0] < 1 ||
        view->shape[0] > CLASSES_MAX) {
        const int rank = SONDE_MIN(SONDE_MAX(view->rank, 0), SONDE_MAX_DIMS);

        return sonde__fail(diag, SONDE_ESHAPE, "counts", "(K, K), K from 1 to 1000",
                           "shape %s",
                           sonde_shape_text(rank, view->shape, shape, sizeof shape));
    }
    if (view->data == NULL) {
        return sonde__fail(diag, SONDE_EINVAL, "counts", NULL, "the view has no data");
    }
    return SONDE_OK;
}

static sonde_err read_value(matrix *m, int row, int column, sonde_diag *diag)
{
    const sonde_view *const view = &m->plot->counts;
    const int64_t element = row * view->stride[0] + column * view->stride[1];
    const char *const data = view->data;
    const double value = sonde_element_get(
        view->dtype, data + element * (int64_t)sonde_dtype_size(view->dtype));

    if (!isfinite(value) || value < 0) {
        return sonde__fail(diag, SONDE_EINVAL, "counts", "a count of 0 or more",
                           "%g at row %d, column %d", value, row, column);
    }
    m->values[row * m->classes + column] = value;
    m->total += value;
    m->right += row == column ? value : 0;
    m->whole = m->whole && floor(value) >= value;
    return SONDE_OK;
}

static sonde_err read_matrix(const sonde_confusion_plot *plot, matrix *m,
                             sonde_diag *diag)
{
    double largest = 0;

    *m = (matrix){.plot = plot, .whole = true};
    SONDE__TRY(check_view(&plot->counts, diag));
    SONDE__TRY(sonde__plot_colors_check(plot->colors, diag));
    m->classes = (int)plot->counts.shape[0];
    m->values = sonde__calloc((size_t)m->classes * (size_t)m->classes, sizeof(double));
    if (m->values == NULL) {
        return sonde__fail_nomem(diag, "a confusion matrix");
    }
    for (int i = 0; i < m->classes * m->classes; i++) {
        SONDE__TRY(read_value(m, i / m->classes, i % m->classes, diag));
    }
    for (int i = 0; i < m->classes * m->classes; i++) {
        largest = SONDE_MAX(largest, m->values[i]);
    }
    m->bar = (sonde__plot_axis){.high = largest > 0 ? largest : 1, .whole = m->whole};
    return SONDE_OK;
}

static const char *class_name(const matrix *m, int i, char buf[16])
{
    if (m->plot->classes != NULL && m->plot->classes[i] != NULL) {
        return m->plot->classes[i];
    }
    (void)snprintf(buf, 16, "%d", i);
    return buf;
}

/* "Accuracy 89.25 % of 10 000 samples"; empty if the values are not counts. */
static const char *summary(const matrix *m, char *buf, size_t size)
{
    char total[40] = "";

    buf[0] = '\0';
    if (m->whole && m->total > 0 && m->total < 1e18) {
        (void)sonde__snprintf(
            buf, size, "Accuracy %.2f %% of %s samples", m->right / m->total * 100,
            sonde__plot_grouped((uint64_t)m->total, total, sizeof total));
    }
    return buf;
}

/* --- layout ------------------------------------------------------------------------- */

static void write_value(const matrix *m, double value, char *buf, size_t size)
{
    if (m->whole && !m->shortened && value < 1e15) {
        (void)sonde__snprintf(buf, size, "%.0f", value);
    } else {
        (void)sonde__plot_short_number(value, 3, buf, size);
    }
}

/* Width of the widest value, per unit of font size. */
static double widest_value(const matrix *m, sonde__plot_scene *scene)
{
    const sonde__plot_font font = {10, false};
    double width = 0;
    char text[40] = "";

    for (int i = 0; i < m->classes * m->classes; i++) {
        double w = 0;

        write_value(m, m->values[i], text, sizeof text);
        w = sonde__plot_text_width(scene, text, font);
        width = SONDE_MAX(width, w);
    }
    return width / font.size;
}

/* The largest font in which every value fits its cell, shortened if need be. */
static void choose_font(matrix *m, sonde__plot_scene *scene)
{
    m->font.size = 0;
    if (m->cell < 14 || m->classes > DRAWN_CELLS) {
        return;
    }
    for (int shortened = 0; shortened < 2; shortened++) {
        double widest = 0, size = 0;

        m->shortened = shortened == 1;
        widest = widest_value(m, scene);
        size = floor(SONDE_MIN(13, (m->cell - 5) / widest));
        while (size >= 8 &&
               sonde__plot_text_height((sonde__plot_font){size, false}) > m->cell) {
            size--;
        }
        if (size >= 8) {
            m->font.size = size;
            return;
        }
    }
}

/* Every n-th name is shown: 1, 2, 5, 10 ... */
static int name_step(const matrix *m)
{
    const double least = sonde__plot_text_height(SONDE__FONT_TEXT) / m->cell;

    return least <= 1 ? 1 : (int)sonde__plot_nice_step(least, 1);
}

/* Widest name, at most `most`. */
static double widest_name(const matrix *m, sonde__plot_scene *scene, double most)
{
    double width = 0;

    for (int i = 0; i < m->classes; i++) {
        char buf[16] = "";
        const double w =
            sonde__plot_text_width(scene, class_name(m, i, buf), SONDE__FONT_TEXT);

        width = SONDE_MAX(width, w);
    }
    return ceil(SONDE_MIN(width, most));
}

/* Gives the names the room that the cells leave on a side. */
static void give_names_the_rest(matrix *m, sonde__plot_scene *scene,
                                sonde__plot_box space, double around, double bar)
{
    const double side = m->cell * m->classes;
    const double longest = widest_name(m, scene, space.w);

    m->names_left = SONDE_MIN(
        longest, SONDE_MAX(m->names_left, floor(space.w - around - side - bar)));
    if (space.h > 0) {
        m->names_below =
            SONDE_MIN(longest, SONDE_MAX(m->names_below, floor(space.h - around - side)));
    }
}

static bool lay_out(matrix *m, sonde__plot_scene *scene, sonde__plot_box space)
{
    const double title = sonde__plot_text_height(SONDE__FONT_LABEL) + 2 * GAP;
    const double most = m->classes <= 4 ? CELL_MAX_FEW : CELL_MAX;
    double bar = 0, cell = 0, width = 0;

    m->names_left = widest_name(m, scene, SONDE_MAX(space.w * 0.25, 40));
    m->names_below = SONDE_MIN(m->names_left, 180);
    if (space.h > 0) {
        m->names_below = SONDE_MIN(m->names_below, SONDE_MAX(space.h * 0.3, 24));
    }
    bar =
        sonde__plot_color_bar_width(scene, &m->bar, space.h > 0 ? space.h : space.w / 2);
    cell = (space.w - title - m->names_left - GAP - bar) / m->classes;
    if (space.h > 0) {
        cell = SONDE_MIN(cell, (space.h - title - m->names_below - GAP) / m->classes);
    }
    m->cell = floor(SONDE_MIN(cell, most));
    if (m->cell < 1 || m->cell * m->classes < 24) {
        return false;
    }
    give_names_the_rest(m, scene, space, title + GAP, bar);
    m->upright = m->names_left <= SONDE_MIN(m->cell - 4, 28);
    if (m->upright) {
        m->names_below = ceil(sonde__plot_text_height(SONDE__FONT_TEXT));
    }
    /* Chooses the ticks again, for the final height of the bar. */
    bar = sonde__plot_color_bar_width(scene, &m->bar, m->cell * m->classes);
    width = title + m->names_left + GAP + m->cell * m->classes + bar;
    m->x = floor(space.x + SONDE_MAX(0, (space.w - width) / 2) + title + m->names_left +
                 GAP);
    m->y = ceil(space.y);
    choose_font(m, scene);
    return true;
}

/* --- drawing ------------------------------------------------------------------------ */

static uint32_t cell_color(const matrix *m, double value)
{
    return sonde__plot_color_at(m->plot->colors, value / m->bar.high);
}

static void draw_cells(const matrix *m, sonde__plot_scene *scene)
{
    const double gap = m->cell >= 24 ? 1 : 0;

    for (int row = 0; row < m->classes; row++) {
        for (int column = 0; column < m->classes; column++) {
            const double value = m->values[row * m->classes + column];
            const uint32_t color = cell_color(m, value);
            const sonde__plot_box box = {m->x + column * m->cell, m->y + row * m->cell,
                                         m->cell - gap, m->cell - gap};
            char text[40] = "";

            sonde__plot_fill(scene, box, color);
            if (m->font.size > 0) {
                write_value(m, value, text, sizeof text);
                sonde__plot_text(scene, text, m->font, sonde__plot_ink_on(color),
                                 (sonde__plot_place){.x = box.x + box.w / 2,
                                                     .y = box.y + box.h / 2,
                                                     .align_x = SONDE__CENTER,
                                                     .align_y = SONDE__MIDDLE});
            }
        }
    }
}

static void draw_image(const matrix *m, sonde__plot_scene *scene)
{
    const size_t count = (size_t)m->classes * (size_t)m->classes;
    const double side = m->cell * m->classes;
    uint32_t *pixels = sonde__malloc(count * sizeof *pixels); /* (K, K) */

    for (size_t i = 0; pixels != NULL && i < count; i++) {
        pixels[i] = 0xff000000u | cell_color(m, m->values[i]) >> 8;
    }
    sonde__plot_image(scene, (sonde__plot_box){m->x, m->y, side, side}, pixels,
                      m->classes, m->classes);
}

static void draw_names(const matrix *m, sonde__plot_scene *scene)
{
    const double side = m->cell * m->classes;
    const int step = name_step(m);
    char buf[16] = "";

    for (int i = 0; i < m->classes; i += step) {
        const char *const name = class_name(m, i, buf);
        const double middle = (i + 0.5) * m->cell;

        sonde__plot_text(scene, name, SONDE__FONT_TEXT, SONDE__INK,
                         (sonde__plot_place){.x = m->x - GAP,
                                             .y = m->y + middle,
                                             .align_x = SONDE__RIGHT,
                                             .align_y = SONDE__MIDDLE,
                                             .maximum = m->names_left + 0.5});
        sonde__plot_text(
            scene, name, SONDE__FONT_TEXT, SONDE__INK,
            (sonde__plot_place){.x = m->x + middle,
                                .y = m->y + side + GAP,
                                .align_x = SONDE__CENTER,
                                .align_y = SONDE__TOP,
                                .maximum = m->upright ? 0 : m->names_below + 0.5,
                                .turned = !m->upright});
    }
    sonde__plot_text(scene, "True label", SONDE__FONT_LABEL, SONDE__INK,
                     (sonde__plot_place){.x = m->x - m->names_left - 2.5 * GAP,
                                         .y = m->y + side / 2,
                                         .align_x = SONDE__RIGHT,
                                         .align_y = SONDE__MIDDLE,
                                         .maximum = side,
                                         .turned = true});
    sonde__plot_text(scene, "Predicted label", SONDE__FONT_LABEL, SONDE__INK,
                     (sonde__plot_place){.x = m->x + side / 2,
                                         .y = m->y + side + 2.5 * GAP + m->names_below,
                                         .align_x = SONDE__CENTER,
                                         .maximum = side});
}

static sonde_err draw(matrix *m, sonde__plot_scene *scene, const sonde__plot_page *page,
                      sonde_diag *diag)
{
    const double side = m->cell * m->classes;
    const double bar = sonde__plot_color_bar_width(scene, &m->bar, side);

    if (m->classes > DRAWN_CELLS) {
        draw_image(m, scene);
    } else {
        draw_cells(m, scene);
    }
    sonde__plot_outline(scene, (sonde__plot_box){m->x - 1, m->y - 1, side + 1, side + 1},
                        SONDE__GRID, 1);
    draw_names(m, scene);
    sonde__plot_color_bar_draw(scene, &m->bar, m->plot->colors,
                               (sonde__plot_box){m->x + side, m->y, bar, side});
    return sonde__plot_page_end(scene, page,
                                m->y + side + 2.5 * GAP + m->names_below +
                                    sonde__plot_text_height(SONDE__FONT_LABEL),
                                diag);
}

sonde_err sonde__plot_build_confusion(const void *description, sonde__plot_scene *scene,
                                      sonde_diag *diag)
{
    const sonde_confusion_plot *const plot = description;
    matrix m = {0};
    sonde__plot_page page = {0};
    char subtitle[120] = "";
    sonde_err err = SONDE_OK;

    SONDE__TRY_DONE(read_matrix(plot, &m, diag));
    SONDE__TRY_DONE(sonde__plot_page_begin(scene, &plot->page,
                                           summary(&m, subtitle, sizeof subtitle), NULL,
                                           0, &page, diag));
    err = lay_out(&m, scene, page.space) ? draw(&m, scene, &page, diag)
                                         : sonde__plot_no_room(scene, diag);
    sonde__plot_page_fini(&page);
done:
    sonde__free(m.values);
    return err;
}

sonde_err sonde_plot_confusion(const char *path, const sonde_confusion_plot *plot,
                               sonde_diag *diag)
{
    return sonde__plot_draw(path, &plot->page, sonde__plot_build_confusion, plot, diag);
}

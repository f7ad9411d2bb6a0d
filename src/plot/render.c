/*
 * render.c - draws a scene with cairo, as PNG or SVG, and writes the file.
 *
 * One loop over the items serves both kinds. Straight lines and boxes snap to whole
 * pixels. Images that an SVG would enlarge are enlarged here, pixel by pixel, because
 * viewers blur them.
 */
#include "plot/scene.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/number.h"
#include "base/whole_file.h"

#include <sonde/text.h>

#include <sonde/plot.h>

#include <cairo-svg.h>
#include <cairo.h>
#include <math.h>
#include <string.h>

/* --- the kind of file --------------------------------------------------------------- */

typedef enum file_kind { KIND_PNG, KIND_SVG } file_kind;

static sonde_err find_kind(const char *path, file_kind *kind, sonde_diag *diag)
{
    const char *const slash = path != NULL ? strrchr(path, '/') : NULL;
    const char *const name = slash != NULL ? slash + 1 : path;
    const char *const dot = name != NULL ? strrchr(name, '.') : NULL;

    if (name == NULL || name[0] == '\0') {
        return sonde__fail(diag, SONDE_EINVAL, path, "a name that ends in .png or .svg",
                           "no file name for the picture");
    }
    if (dot != NULL && sonde__strcasecmp(dot, ".png") == 0) {
        *kind = KIND_PNG;
        return SONDE_OK;
    }
    if (dot != NULL && sonde__strcasecmp(dot, ".svg") == 0) {
        *kind = KIND_SVG;
        return SONDE_OK;
    }
    return sonde__fail(diag, SONDE_EINVAL, path, ".png or .svg", "%s%s%s",
                       dot != NULL ? "pictures of the kind '" : "the name has no ending",
                       dot != NULL ? dot : "", dot != NULL ? "' cannot be written" : "");
}

sonde_err sonde_plot_check_path(const char *path, sonde_diag *diag)
{
    file_kind kind = KIND_PNG;

    return find_kind(path, &kind, diag);
}

/* --- pens --------------------------------------------------------------------------- */

typedef struct brush {
    cairo_t *cairo;
    double scale;
    bool vector;
} brush;

static void set_color(const brush *b, uint32_t color)
{
    cairo_set_source_rgba(b->cairo, (color >> 24) / 255.0, ((color >> 16) & 255u) / 255.0,
                          ((color >> 8) & 255u) / 255.0, (color & 255u) / 255.0);
}

static double snap(const brush *b, double value)
{
    return round(value * b->scale) / b->scale;
}

/* Edges on whole pixels, at least one pixel wide and high. */
static sonde__plot_box snapped(const brush *b, sonde__plot_box box)
{
    const double x = snap(b, box.x), y = snap(b, box.y), pixel = 1 / b->scale;

    return (sonde__plot_box){x, y, SONDE_MAX(snap(b, box.x + box.w) - x, pixel),
                             SONDE_MAX(snap(b, box.y + box.h) - y, pixel)};
}

/* --- shapes ------------------------------------------------------------------------- */

static void draw_fill(const brush *b, const sonde__plot_item *item)
{
    const sonde__plot_box box = snapped(b, item->box);

    cairo_rectangle(b->cairo, box.x, box.y, box.w, box.h);
    cairo_fill(b->cairo);
}

static bool is_upright(const sonde__plot_point *points, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        if (fabs(points[i].x - points[i - 1].x) > 0 &&
            fabs(points[i].y - points[i - 1].y) > 0) {
            return false;
        }
    }
    return true;
}

/* A pen of an odd number of pixels is sharp when it runs along their centers. */
static void draw_line(const brush *b, const sonde__plot_item *item)
{
    static const double dashes[][2] = {{7, 4}, {2, 3}, {12, 4}};
    const sonde__plot_point *const points = item->payload;
    const bool sharp = is_upright(points, item->count);
    const double pen = SONDE_MAX(1, round(item->width * b->scale));
    const double shift = fmod(pen, 2) > 0.5 ? 0.5 : 0;

    for (size_t i = 0; i < item->count; i++) {
        const double x = points[i].x, y = points[i].y;

        if (sharp) {
            cairo_line_to(b->cairo, (floor(x * b->scale) + shift) / b->scale,
                          (floor(y * b->scale) + shift) / b->scale);
        } else {
            cairo_line_to(b->cairo, x, y);
        }
    }
    if (item->dash > 0) {
        cairo_set_dash(b->cairo, dashes[(item->dash - 1) % 3], 2, 0);
    }
    cairo_set_line_width(b->cairo, sharp ? pen / b->scale : item->width);
    cairo_set_line_join(b->cairo, sharp ? CAIRO_LINE_JOIN_MITER : CAIRO_LINE_JOIN_ROUND);
    cairo_set_line_cap(b->cairo, sharp || item->dash > 0 ? CAIRO_LINE_CAP_BUTT
                                                         : CAIRO_LINE_CAP_ROUND);
    cairo_stroke(b->cairo);
}

static void draw_area(const brush *b, const sonde__plot_item *item)
{
    const sonde__plot_point *const points = item->payload;

    for (size_t i = 0; i < item->count; i++) {
        cairo_line_to(b->cairo, points[i].x, points[i].y);
    }
    cairo_close_path(b->cairo);
    cairo_fill(b->cairo);
}

static void draw_dot(const brush *b, const sonde__plot_item *item)
{
    cairo_arc(b->cairo, item->box.x + item->box.w / 2, item->box.y + item->box.h / 2,
              item->box.w / 2, 0, 6.283185307179586);
    cairo_fill(b->cairo);
}

static void draw_text(const brush *b, const sonde__plot_item *item)
{
    sonde__plot_font_set(b->cairo, item->font);
    cairo_translate(b->cairo, item->start.x, item->start.y);
    if (item->turned) {
        cairo_rotate(b->cairo, -1.5707963267948966);
    }
    cairo_move_to(b->cairo, 0, 0);
    cairo_show_text(b->cairo, item->payload);
}

/* --- images ------------------------------------------------------------------------- */

/* How many times each pixel is repeated both ways: in an SVG, enough for a sharp screen,
 * but never beyond some millions in all. */
static int repeats(const brush *b, const sonde__plot_item *item)
{
    double times = 1;

    if (!b->vector) {
        return 1;
    }
    times = ceil(2 * b->scale *
                 SONDE_MAX(item->box.w / item->columns, item->box.h / item->rows));
    times = SONDE_MIN(times, sqrt(4e6 / ((double)item->columns * item->rows)));
    return times > 2 ? (int)times : 1;
}

static cairo_surface_t *image_surface(const sonde__plot_item *item, int times)
{
    const int columns = item->columns * times, rows = item->rows * times;
    const uint32_t *const pixels = item->payload;
    cairo_surface_t *surface =
        cairo_image_surface_create(CAIRO_FORMAT_RGB24, columns, rows);
    unsigned char *const rgb = cairo_image_surface_get_data(surface);
    const int stride = cairo_image_surface_get_stride(surface);

    for (int y = 0; rgb != NULL && y < rows; y++) {
        for (int x = 0; x < columns; x++) {
            const uint32_t pixel =
                pixels[(size_t)(y / times) * (size_t)item->columns + (size_t)(x / times)];

            memcpy(rgb + (ptrdiff_t)y * stride + (ptrdiff_t)x * 4, &pixel, sizeof pixel);
        }
    }
    cairo_surface_mark_dirty(surface);
    return surface;
}

static void draw_image(const brush *b, const sonde__plot_item *item)
{
    const int times = repeats(b, item);
    const sonde__plot_box box = snapped(b, item->box);
    cairo_surface_t *surface = image_surface(item, times);

    cairo_rectangle(b->cairo, box.x, box.y, box.w, box.h);
    cairo_clip(b->cairo);
    cairo_translate(b->cairo, box.x, box.y);
    cairo_scale(b->cairo, box.w / (item->columns * times), box.h / (item->rows * times));
    cairo_set_source_surface(b->cairo, surface, 0, 0);
    cairo_pattern_set_filter(cairo_get_source(b->cairo), CAIRO_FILTER_NEAREST);
    cairo_paint(b->cairo);
    cairo_surface_destroy(surface); /* an error in it is now the context's */
}

/* --- the scene ---------------------------------------------------------------------- */

static void draw_item(const brush *b, const sonde__plot_item *item)
{
    cairo_save(b->cairo);
    cairo_new_path(b->cairo);
    if (item->clip.w > 0) {
        cairo_rectangle(b->cairo, item->clip.x, item->clip.y, item->clip.w, item->clip.h);
        cairo_clip(b->cairo);
    }
    set_color(b, item->color);
    switch (item->kind) {
    case SONDE__ITEM_FILL:
        draw_fill(b, item);
        break;
    case SONDE__ITEM_LINE:
        draw_line(b, item);
        break;
    case SONDE__ITEM_AREA:
        draw_area(b, item);
        break;
    case SONDE__ITEM_DOT:
        draw_dot(b, item);
        break;
    case SONDE__ITEM_TEXT:
        draw_text(b, item);
        break;
    case SONDE__ITEM_IMAGE:
        draw_image(b, item);
        break;
    }
    cairo_restore(b->cairo);
}

static cairo_status_t draw_scene(const sonde__plot_scene *scene, cairo_surface_t *surface,
                                 bool vector)
{
    const brush b = {cairo_create(surface), scene->scale, vector};
    cairo_status_t status = CAIRO_STATUS_SUCCESS;

    cairo_scale(b.cairo, scene->scale, scene->scale);
    set_color(&b, SONDE__PAPER);
    cairo_paint(b.cairo);
    for (size_t i = 0; i < scene->count; i++) {
        draw_item(&b, &scene->items[i]);
    }
    status = cairo_status(b.cairo);
    cairo_destroy(b.cairo);
    return status;
}

static cairo_status_t collect(void *closure, const unsigned char *data, unsigned length)
{
    sonde_text *const bytes = closure;

    sonde_text_put(bytes, data, length);
    return bytes->failed ? CAIRO_STATUS_NO_MEMORY : CAIRO_STATUS_SUCCESS;
}

static cairo_status_t make_png(const sonde__plot_scene *scene, sonde_text *out)
{
    cairo_surface_t *surface = cairo_image_surface_create(
        CAIRO_FORMAT_RGB24, (int)ceil(scene->width * scene->scale - 1e-6),
        (int)ceil(scene->height * scene->scale - 1e-6));
    cairo_status_t status = draw_scene(scene, surface, false);

    if (status == CAIRO_STATUS_SUCCESS) {
        status = cairo_surface_write_to_png_stream(surface, collect, out);
    }
    cairo_surface_destroy(surface);
    return status;
}

/* --- SVG ---------------------------------------------------------------------------- */

static void add_escaped(sonde_text *out, const char *text)
{
    for (; *text != '\0'; text++) {
        const char *const entity = *text == '&'   ? "&amp;"
                                   : *text == '<' ? "&lt;"
                                   : *text == '>' ? "&gt;"
                                                  : NULL;

        if (entity != NULL) {
            sonde_text_add(out, entity);
        } else {
            sonde_text_put(out, text, 1);
        }
    }
}

static void add_description(const sonde__plot_scene *scene, sonde_text *out)
{
    sonde_text_add(out, "\n<desc>");
    for (size_t i = 0; i < scene->count; i++) {
        if (scene->items[i].kind == SONDE__ITEM_TEXT) {
            add_escaped(out, scene->items[i].payload);
            sonde_text_add(out, "\n");
        }
    }
    sonde_text_add(out, "</desc>");
}

/* Copies plain with the description after its <svg ...>; unchanged if it has none. */
static void describe(const sonde__plot_scene *scene, const sonde_text *plain,
                     sonde_text *out)
{
    const char *const start = memmem(plain->data, plain->length, "<svg", 4);
    const size_t before = start != NULL ? (size_t)(start - plain->data) : plain->length;
    const char *const end =
        start != NULL ? memchr(start, '>', plain->length - before) : NULL;
    const size_t head = end != NULL ? (size_t)(end - plain->data) + 1 : plain->length;

    sonde_text_put(out, plain->data, head);
    if (end != NULL) {
        add_description(scene, out);
    }
    sonde_text_put(out, plain->data + head, plain->length - head);
}

static cairo_status_t make_svg(const sonde__plot_scene *scene, sonde_text *out)
{
    sonde_text plain = {0};
    cairo_surface_t *surface = cairo_svg_surface_create_for_stream(
        collect, &plain, scene->width * scene->scale, scene->height * scene->scale);
    cairo_status_t status = CAIRO_STATUS_SUCCESS;

#if CAIRO_VERSION >= CAIRO_VERSION_ENCODE(1, 16, 0)
    cairo_svg_surface_set_document_unit(surface, CAIRO_SVG_UNIT_PX);
#endif
    status = draw_scene(scene, surface, true);
    cairo_surface_finish(surface);
    if (status == CAIRO_STATUS_SUCCESS) {
        status = cairo_surface_status(surface);
    }
    cairo_surface_destroy(surface);
    if (status == CAIRO_STATUS_SUCCESS) {
        describe(scene, &plain, out);
    }
    sonde_text_fini(&plain);
    return out->failed ? CAIRO_STATUS_NO_MEMORY : status;
}

sonde_err sonde__plot_scene_save(const sonde__plot_scene *scene, const char *path,
                                 sonde_diag *diag)
{
    file_kind kind = KIND_PNG;
    sonde_text bytes = {0};
    cairo_status_t status = CAIRO_STATUS_SUCCESS;
    sonde_err err = SONDE_OK;

    SONDE__TRY(find_kind(path, &kind, diag));
    if (scene->err != SONDE_OK) {
        return sonde__fail_nomem(diag, "a picture");
    }
    status = kind == KIND_PNG ? make_png(scene, &bytes) : make_svg(scene, &bytes);
    if (status == CAIRO_STATUS_SUCCESS && !bytes.failed) {
        err = sonde__whole_put(path, bytes.data, bytes.length, diag);
    } else if (status == CAIRO_STATUS_NO_MEMORY || bytes.failed) {
        err = sonde__fail_nomem(diag, "a picture");
    } else {
        err = sonde__fail(diag, SONDE_EINVAL, path, NULL, "cannot be drawn: %s",
                          cairo_status_to_string(status));
    }
    sonde_text_fini(&bytes);
    return err;
}

/*
 * scene.c - the list of shapes, and texts: measured, shortened, wrapped and placed.
 *
 * The box of a line reaches from ASCENT above its baseline to DESCENT below, in parts of
 * the font size: DejaVu Sans needs that for accented capitals and for the letter g.
 */
#include "plot/scene.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/utf8.h"

#include <assert.h>
#include <cairo.h>
#include <math.h>
#include <string.h>

/* === shapes ========================================================================= */

/* A drawing context on which texts are measured; NULL: out of memory. */
static cairo_t *create_ruler(void)
{
    cairo_surface_t *surface = cairo_image_surface_create(CAIRO_FORMAT_A8, 1, 1);
    cairo_t *cairo = cairo_create(surface);

    cairo_surface_destroy(surface); /* the context keeps it */
    if (cairo_status(cairo) != CAIRO_STATUS_SUCCESS) {
        cairo_destroy(cairo);
        return NULL;
    }
    return cairo;
}

sonde_err sonde__plot_scene_init(sonde__plot_scene *scene, double width, double scale,
                                 sonde_diag *diag)
{
    *scene = (sonde__plot_scene){.width = width, .scale = scale};
    scene->ruler = create_ruler();
    if (scene->ruler == NULL) {
        return sonde__fail_nomem(diag, "measuring texts");
    }
    return SONDE_OK;
}

void sonde__plot_scene_fini(sonde__plot_scene *scene)
{
    for (size_t i = 0; i < scene->count; i++) {
        sonde__free(scene->items[i].payload);
    }
    sonde__free(scene->items);
    cairo_destroy(scene->ruler); /* NULL is fine */
    *scene = (sonde__plot_scene){0};
}

/* Takes the item's payload also on failure. */
static void add_item(sonde__plot_scene *scene, sonde__plot_item item)
{
    if (scene->err == SONDE_OK &&
        !sonde__reserve(&scene->items, &scene->capacity, scene->count + 1,
                        sizeof *scene->items)) {
        scene->err = SONDE_ENOMEM;
    }
    if (scene->err != SONDE_OK) {
        sonde__free(item.payload);
        return;
    }
    item.clip = scene->clip;
    scene->items[scene->count++] = item;
}

void sonde__plot_fill(sonde__plot_scene *scene, sonde__plot_box box, uint32_t color)
{
    assert(isfinite(box.x) && isfinite(box.y) && isfinite(box.w) && isfinite(box.h));
    add_item(scene,
             (sonde__plot_item){.kind = SONDE__ITEM_FILL, .box = box, .color = color});
}

/* The smallest box around the points. */
static sonde__plot_box around(const sonde__plot_point *points, size_t count)
{
    double x0 = points[0].x, x1 = x0, y0 = points[0].y, y1 = y0;

    for (size_t i = 0; i < count; i++) {
        assert(isfinite(points[i].x) && isfinite(points[i].y));
        x0 = SONDE_MIN(x0, points[i].x);
        x1 = SONDE_MAX(x1, points[i].x);
        y0 = SONDE_MIN(y0, points[i].y);
        y1 = SONDE_MAX(y1, points[i].y);
    }
    return (sonde__plot_box){x0, y0, x1 - x0, y1 - y0};
}

static void add_points(sonde__plot_scene *scene, sonde__plot_item item,
                       const sonde__plot_point *points)
{
    size_t size = 0;

    if (scene->err != SONDE_OK || item.count == 0) {
        return;
    }
    item.box = around(points, item.count);
    if (sonde__mul(item.count, sizeof *points, &size)) {
        item.payload = sonde__malloc(size);
    }
    if (item.payload == NULL) {
        scene->err = SONDE_ENOMEM;
        return;
    }
    memcpy(item.payload, points, size);
    add_item(scene, item);
}

void sonde__plot_line(sonde__plot_scene *scene, const sonde__plot_point *points,
                      size_t count, uint32_t color, double width, int dash)
{
    add_points(scene,
               (sonde__plot_item){.kind = SONDE__ITEM_LINE,
                                  .color = color,
                                  .width = width,
                                  .dash = dash,
                                  .count = count},
               points);
}

void sonde__plot_area(sonde__plot_scene *scene, const sonde__plot_point *points,
                      size_t count, uint32_t color)
{
    add_points(
        scene,
        (sonde__plot_item){.kind = SONDE__ITEM_AREA, .color = color, .count = count},
        points);
}

void sonde__plot_segment(sonde__plot_scene *scene, double x0, double y0, double x1,
                         double y1, uint32_t color, double width)
{
    const sonde__plot_point points[] = {{x0, y0}, {x1, y1}};

    sonde__plot_line(scene, points, SONDE_COUNT_OF(points), color, width, 0);
}

void sonde__plot_outline(sonde__plot_scene *scene, sonde__plot_box box, uint32_t color,
                         double width)
{
    const sonde__plot_point points[] = {
        {box.x, box.y},         {box.x + box.w, box.y}, {box.x + box.w, box.y + box.h},
        {box.x, box.y + box.h}, {box.x, box.y},         {box.x + box.w, box.y},
    };

    sonde__plot_line(scene, points, SONDE_COUNT_OF(points), color, width, 0);
}

void sonde__plot_dot(sonde__plot_scene *scene, double x, double y, double diameter,
                     uint32_t color)
{
    add_item(scene, (sonde__plot_item){
                        .kind = SONDE__ITEM_DOT,
                        .box = {x - diameter / 2, y - diameter / 2, diameter, diameter},
                        .color = color});
}

void sonde__plot_image(sonde__plot_scene *scene, sonde__plot_box box, uint32_t *pixels,
                       int columns, int rows)
{
    if (pixels == NULL) {
        scene->err = scene->err != SONDE_OK ? scene->err : SONDE_ENOMEM;
        return;
    }
    add_item(scene, (sonde__plot_item){.kind = SONDE__ITEM_IMAGE,
                                       .box = box,
                                       .columns = columns,
                                       .rows = rows,
                                       .payload = pixels});
}

/* === texts ========================================================================== */

#define ASCENT 0.93
#define DESCENT 0.24
#define CAPITAL 0.73 /* height of a capital letter: centers what the eye sees */
#define LEADING 1.25 /* from one baseline to the next */

static const char ELLIPSIS[] = "\xe2\x80\xa6";

/* --- measuring ---------------------------------------------------------------------- */

void sonde__plot_font_set(struct _cairo *cairo, sonde__plot_font font)
{
    cairo_font_options_t *options = cairo_font_options_create();

    cairo_font_options_set_hint_metrics(options, CAIRO_HINT_METRICS_OFF);
    cairo_font_options_set_hint_style(options, CAIRO_HINT_STYLE_NONE);
    cairo_font_options_set_antialias(options, CAIRO_ANTIALIAS_GRAY);
    cairo_set_font_options(cairo, options);
    cairo_font_options_destroy(options);
    cairo_select_font_face(cairo, "DejaVu Sans", CAIRO_FONT_SLANT_NORMAL,
                           font.bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(cairo, font.size);
}

/* Width of a clean text. */
static double measure(sonde__plot_scene *scene, const char *text, sonde__plot_font font)
{
    cairo_text_extents_t extents = {0};

    sonde__plot_font_set(scene->ruler, font);
    cairo_text_extents(scene->ruler, text, &extents);
    if (cairo_status(scene->ruler) != CAIRO_STATUS_SUCCESS && scene->err == SONDE_OK) {
        scene->err = SONDE_ENOMEM; /* clean text leaves cairo no other reason */
    }
    return SONDE_MAX(extents.x_advance, extents.x_bearing + extents.width);
}

double sonde__plot_text_height(sonde__plot_font font)
{
    return font.size * (ASCENT + DESCENT);
}

double sonde__plot_text_width(sonde__plot_scene *scene, const char *text,
                              sonde__plot_font font)
{
    char *clean = scene->err == SONDE_OK ? sonde__plot_text_clean(text) : NULL;

    if (clean == NULL) {
        scene->err = scene->err != SONDE_OK ? scene->err : SONDE_ENOMEM;
        return 0;
    }
    const double width = measure(scene, clean, font);
    sonde__free(clean);
    return width;
}

/* --- clean UTF-8 -------------------------------------------------------------------- */

/* Bytes of the character at text; 0: it is malformed, or U+FFFE or U+FFFF (not in
 * XML). */
static size_t character_length(const char *text)
{
    const bool excluded =
        strncmp(text, "\xef\xbf", 2) == 0 && (unsigned char)text[2] >= 0xbe;

    return excluded ? 0 : sonde__utf8_length(text);
}

char *sonde__plot_text_clean(const char *text)
{
    const size_t length = strlen(text);
    char *clean = NULL, *end = NULL;
    size_t room = 0;

    if (!sonde__mul(length, 3, &room) || (clean = sonde__malloc(room + 1)) == NULL) {
        return NULL;
    }
    end = clean;
    for (size_t i = 0; i < length;) {
        const unsigned char *c = (const unsigned char *)text + i;
        const size_t size = character_length(text + i);

        if (size == 0) {
            memcpy(end, SONDE__REPLACEMENT, 3);
            end += 3;
            i++;
        } else if (*c < 0x20 || *c == 0x7f ||
                   (size == 2 && c[0] == 0xc2 && c[1] < 0xa0)) {
            *end++ = ' ';
            i += size;
        } else {
            memcpy(end, c, size);
            end += size;
            i += size;
        }
    }
    *end = '\0';
    return clean;
}

/* --- shortening --------------------------------------------------------------------- */

/* Start of the last character that begins before end. */
static size_t back_one(const char *text, size_t end)
{
    while (end > 0 && ((unsigned char)text[--end] & 0xc0) == 0x80) {
    }
    return end;
}

/* Cuts the clean text in place to its longest start that fits with an ellipsis, by
 * bisection. Its buffer has room for the ellipsis after the text. */
static void shorten(sonde__plot_scene *scene, char *text, sonde__plot_font font,
                    double width)
{
    size_t fits = 0, over = strlen(text);

    if (measure(scene, text, font) <= width) {
        return;
    }
    char *trial = sonde__malloc(over + sizeof ELLIPSIS);
    if (trial == NULL) {
        scene->err = SONDE_ENOMEM;
        return;
    }
    while (over > fits) {
        size_t middle = back_one(text, fits + (over - fits) / 2 + 1);

        if (middle <= fits) { /* one character left between them */
            middle = back_one(text, over);
            if (middle <= fits) {
                break;
            }
        }
        memcpy(trial, text, middle);
        memcpy(trial + middle, ELLIPSIS, sizeof ELLIPSIS);
        if (measure(scene, trial, font) <= width) {
            fits = middle;
        } else {
            over = middle;
        }
    }
    while (fits > 0 && text[fits - 1] == ' ') {
        fits--;
    }
    memcpy(text + fits, ELLIPSIS, sizeof ELLIPSIS);
    sonde__free(trial);
}

/* A clean copy of text, no longer than width if width > 0; NULL: scene.err is set. */
static char *fitted(sonde__plot_scene *scene, const char *text, size_t length,
                    sonde__plot_font font, double width)
{
    char *part = scene->err == SONDE_OK ? sonde__malloc(length + sizeof ELLIPSIS) : NULL;

    if (part == NULL) {
        scene->err = scene->err != SONDE_OK ? scene->err : SONDE_ENOMEM;
        return NULL;
    }
    memcpy(part, text, length);
    part[length] = '\0';
    char *clean = sonde__plot_text_clean(part);
    sonde__free(part);
    if (clean == NULL) {
        scene->err = SONDE_ENOMEM;
        return NULL;
    }
    if (width > 0) {
        const size_t size = strlen(clean) + 1;
        char *roomy = sonde__grow(clean, size, size + sizeof ELLIPSIS);

        if (roomy == NULL) {
            scene->err = SONDE_ENOMEM;
        } else {
            clean = roomy;
            shorten(scene, clean, font, width);
        }
    }
    if (scene->err != SONDE_OK) {
        sonde__free(clean);
        return NULL;
    }
    return clean;
}

/* --- placing ------------------------------------------------------------------------ */

/* The box of a text of that length, and where its baseline starts. */
static void set_place(sonde__plot_item *item, double length, sonde__plot_place place)
{
    const double size = item->font.size, height = sonde__plot_text_height(item->font);
    double shift = 0, base = 0;

    if (place.turned) { /* runs towards smaller y */
        shift = place.align_y == SONDE__BOTTOM   ? 0
                : place.align_y == SONDE__MIDDLE ? length / 2
                                                 : length;
        base = place.align_x == SONDE__LEFT     ? size * ASCENT
               : place.align_x == SONDE__CENTER ? size * CAPITAL / 2
                                                : -size * DESCENT;
        item->start = (sonde__plot_point){place.x + base, place.y + shift};
        item->box = (sonde__plot_box){item->start.x - size * ASCENT,
                                      item->start.y - length, height, length};
        return;
    }
    shift = place.align_x == SONDE__LEFT     ? 0
            : place.align_x == SONDE__CENTER ? length / 2
                                             : length;
    base = place.align_y == SONDE__TOP      ? size * ASCENT
           : place.align_y == SONDE__MIDDLE ? size * CAPITAL / 2
                                            : -size * DESCENT;
    item->start = (sonde__plot_point){place.x - shift, place.y + base};
    item->box =
        (sonde__plot_box){item->start.x, item->start.y - size * ASCENT, length, height};
}

void sonde__plot_text(sonde__plot_scene *scene, const char *text, sonde__plot_font font,
                      uint32_t color, sonde__plot_place place)
{
    sonde__plot_item item = {
        .kind = SONDE__ITEM_TEXT, .color = color, .font = font, .turned = place.turned};
    char *clean = fitted(scene, text, strlen(text), font, place.maximum);

    if (clean == NULL) {
        return;
    }
    set_place(&item, measure(scene, clean, font), place);
    item.payload = clean;
    add_item(scene, item);
}

/* --- breaking into lines ------------------------------------------------------------ */

/* The end of the piece that starts at start: the next place where a line may end. */
static size_t piece_end(const char *text, size_t start)
{
    size_t end = start;

    while (text[end] == ' ') {
        end++;
    }
    while (text[end] != '\0' && text[end] != ' ') {
        if (strchr("-_/.", text[end++]) != NULL) {
            break;
        }
    }
    return end;
}

/* The end of the longest line that starts at start: at least one piece. */
static size_t line_end(sonde__plot_scene *scene, const char *text, size_t start,
                       sonde__plot_font font, double width)
{
    size_t end = piece_end(text, start);

    while (scene->err == SONDE_OK && text[end] != '\0') {
        const size_t next = piece_end(text, end);
        char *line = fitted(scene, text + start, next - start, font, 0);
        const bool fits = line != NULL && measure(scene, line, font) <= width;

        sonde__free(line);
        if (!fits) {
            break;
        }
        end = next;
    }
    return end;
}

sonde__plot_lines sonde__plot_wrap(sonde__plot_scene *scene, const char *text,
                                   sonde__plot_font font, double width, size_t most)
{
    sonde__plot_lines lines = {0};
    char *clean = fitted(scene, text, strlen(text), font, 0);
    size_t start = 0;

    most = SONDE_MIN(most, (size_t)SONDE__LINES_MAX);
    while (scene->err == SONDE_OK && lines.count < most) {
        size_t end = 0, size = 0;

        start += strspn(clean + start, " ");
        if (clean[start] == '\0') {
            break;
        }
        end = lines.count + 1 == most ? strlen(clean)
                                      : line_end(scene, clean, start, font, width);
        size = end - start;
        while (clean[start + size - 1] == ' ') {
            size--;
        }
        lines.line[lines.count] = fitted(scene, clean + start, size, font, width);
        lines.count += lines.line[lines.count] != NULL;
        start = end;
    }
    sonde__free(clean);
    return lines;
}

void sonde__plot_lines_fini(sonde__plot_lines *lines)
{
    for (size_t i = 0; i < lines->count; i++) {
        sonde__free(lines->line[i]);
    }
    *lines = (sonde__plot_lines){0};
}

double sonde__plot_lines_height(const sonde__plot_lines *lines, sonde__plot_font font)
{
    return lines->count == 0 ? 0
                             : sonde__plot_text_height(font) +
                                   font.size * LEADING * (double)(lines->count - 1);
}

void sonde__plot_lines_draw(sonde__plot_scene *scene, const sonde__plot_lines *lines,
                            sonde__plot_font font, uint32_t color,
                            sonde__plot_place place)
{
    const double height = sonde__plot_lines_height(lines, font);

    place.y -= place.align_y == SONDE__TOP      ? 0
               : place.align_y == SONDE__MIDDLE ? height / 2
                                                : height;
    place.align_y = SONDE__TOP;
    for (size_t i = 0; i < lines->count; i++) {
        sonde__plot_text(scene, lines->line[i], font, color, place);
        place.y += font.size * LEADING;
    }
}

/*
 * scene.h - a page as a list of shapes, placed before any of them is drawn.
 *
 * Pictures are built as a scene, in units of one pixel at scale 1, y down; a back end
 * then draws the same list as PNG or SVG (render.h). Texts are measured as they are
 * added, and each item keeps the box that it covers, so a test can ask a finished scene
 * whether two texts overlap or one leaves the page.
 *
 *     sonde__scene_init -> sonde__fill, sonde__text ... -> sonde__scene_save -> fini
 *
 * Adding never fails on the spot: the first failure is kept in scene.err, later calls do
 * nothing, and saving reports it. So drawing code has no error paths of its own.
 *
 * Omitted: letters missing in the font are shown as boxes; no text shaping, right-to-left
 * scripts or kerning.
 */
#ifndef SONDE_PLOT_SCENE_H
#define SONDE_PLOT_SCENE_H

#include "base/base.h"

#include <sonde/plot.h>

/* 0xRRGGBBAA */
#define SONDE__PAPER 0xffffffffu
#define SONDE__INK 0x1f2933ffu
#define SONDE__MUTED 0x56626effu
#define SONDE__AXIS 0x8a96a3ffu
#define SONDE__GRID 0xe3e8ecffu
#define SONDE__GRID_FINE 0xf1f4f6ffu

typedef struct sonde__box {
    double x, y, w, h;
} sonde__box;

typedef struct sonde__point {
    double x, y;
} sonde__point;

typedef struct sonde__font {
    double size;
    bool bold;
} sonde__font;

/* Which part of a text lies at the point given. */
typedef enum sonde__align_x { SONDE__LEFT, SONDE__CENTRE, SONDE__RIGHT } sonde__align_x;
typedef enum sonde__align_y { SONDE__TOP, SONDE__MIDDLE, SONDE__BOTTOM } sonde__align_y;

/* A text's place; maximum > 0 shortens it with an ellipsis to that length. */
typedef struct sonde__text_at {
    double x, y;
    sonde__align_x align_x;
    sonde__align_y align_y;
    double maximum;
    bool turned; /* reads upwards; align_x is then across the lines, align_y along them */
} sonde__text_at;

typedef enum sonde__item_kind {
    SONDE__ITEM_FILL, /* box */
    SONDE__ITEM_LINE, /* points, stroked */
    SONDE__ITEM_AREA, /* points, filled */
    SONDE__ITEM_DOT,  /* box's circle, filled */
    SONDE__ITEM_TEXT, /* from origin */
    SONDE__ITEM_IMAGE /* pixels over box */
} sonde__item_kind;

typedef struct sonde__item {
    sonde__item_kind kind;
    sonde__box box;  /* what it covers; of a text its line, as measured */
    sonde__box clip; /* w == 0: none */
    uint32_t colour;
    double width;       /* LINE: of the pen */
    int dash;           /* LINE: 0 solid, 1 ... 3 */
    sonde__font font;   /* TEXT */
    bool turned;        /* TEXT */
    sonde__point start; /* TEXT: of the baseline */
    size_t count;       /* LINE, AREA: points */
    int columns, rows;  /* IMAGE */
    void *payload;      /* taken: points, UTF-8 text or 0xffRRGGBB pixels, by kind */
} sonde__item;

struct _cairo;

typedef struct sonde__scene {
    double width, height;
    double scale; /* pixels of the file per unit */
    sonde__item *items;
    size_t count, capacity;
    sonde__box clip;      /* put on items as they are added */
    struct _cairo *ruler; /* measures texts */
    sonde_err err;        /* the first failure */
} sonde__scene;

/* Only a scene that init accepted needs fini. */
SONDE_API sonde_err sonde__scene_init(sonde__scene *scene, double width, double scale,
                                      sonde_diag *diag);
SONDE_API void sonde__scene_fini(sonde__scene *scene);

/* --- shapes ----------------------------------------------------------------------------
 */

SONDE_API void sonde__fill(sonde__scene *scene, sonde__box box, uint32_t colour);
/* Points are copied. */
SONDE_API void sonde__line(sonde__scene *scene, const sonde__point *points, size_t count,
                           uint32_t colour, double width, int dash);
void sonde__segment(sonde__scene *scene, double x0, double y0, double x1, double y1,
                    uint32_t colour, double width);
void sonde__outline(sonde__scene *scene, sonde__box box, uint32_t colour, double width);
void sonde__area(sonde__scene *scene, const sonde__point *points, size_t count,
                 uint32_t colour);
void sonde__dot(sonde__scene *scene, double x, double y, double diameter,
                uint32_t colour);
/* pixels (rows, columns) are taken, also on failure; NULL counts as out of memory. */
void sonde__image(sonde__scene *scene, sonde__box box, uint32_t *pixels, int columns,
                  int rows);

/* --- texts -----------------------------------------------------------------------------
 */

/* Malformed UTF-8 becomes U+FFFD and control characters spaces; that is what is measured.
 */
SONDE_API double sonde__text_width(sonde__scene *scene, const char *text,
                                   sonde__font font);
/* Height of one line. */
SONDE_API double sonde__text_height(sonde__font font);
SONDE_API void sonde__text(sonde__scene *scene, const char *text, sonde__font font,
                           uint32_t colour, sonde__text_at at);

enum { SONDE__LINES_MAX = 8 };

typedef struct sonde__lines {
    size_t count;
    char *line[SONDE__LINES_MAX];
} sonde__lines;

/* Breaks text into at most `most` lines of at most `width`: at spaces, behind - _ / . ; a
 * piece that is too long by itself, and what is left for the last line, ends in an
 * ellipsis. Free with sonde__lines_fini. */
SONDE_API sonde__lines sonde__wrap(sonde__scene *scene, const char *text,
                                   sonde__font font, double width, size_t most);
SONDE_API void sonde__lines_fini(sonde__lines *lines);
/* Height of that many lines, and drawing them downwards from at, aligned as at says. */
SONDE_API double sonde__lines_height(const sonde__lines *lines, sonde__font font);
SONDE_API void sonde__lines_draw(sonde__scene *scene, const sonde__lines *lines,
                                 sonde__font font, uint32_t colour, sonde__text_at at);

/* --- the file --------------------------------------------------------------------------
 */

/* Draws the scene on paper and writes it to path, by its ending (render.c). */
SONDE_API sonde_err sonde__scene_save(const sonde__scene *scene, const char *path,
                                      sonde_diag *diag);

#endif

/*
 * scene.h - a page as a list of shapes, placed before any of them is drawn.
 *
 * Pictures are built as a scene, in units of one pixel at scale 1, y down; render.c draws
 * the same list as PNG or SVG. Texts are measured as they are added, and each item keeps
 * the box that it covers, so a test can check that no two texts of a finished scene
 * overlap and none leaves the page.
 *
 *     sonde__plot_scene_init
 *       -> sonde__plot_fill, sonde__plot_text ...
 *       -> sonde__plot_scene_save -> sonde__plot_scene_fini
 *
 * Adding never fails at once: the first failure is kept in scene.err, later calls do
 * nothing, and saving reports it. Drawing code therefore needs no error paths.
 *
 * Omitted: text shaping, right-to-left scripts and kerning. Letters missing in the font
 * are drawn as boxes.
 */
#ifndef SONDE_PLOT_SCENE_H
#define SONDE_PLOT_SCENE_H

#include <sonde/error.h>
#include <sonde/plot.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 0xRRGGBBAA */
#define SONDE__PAPER 0xffffffffu
#define SONDE__INK 0x1f2933ffu
#define SONDE__MUTED 0x56626effu
#define SONDE__AXIS 0x8a96a3ffu
#define SONDE__GRID 0xe3e8ecffu
#define SONDE__GRID_FINE 0xf1f4f6ffu

typedef struct sonde__plot_box {
    double x, y, w, h;
} sonde__plot_box;

typedef struct sonde__plot_point {
    double x, y;
} sonde__plot_point;

typedef struct sonde__plot_font {
    double size;
    bool bold;
} sonde__plot_font;

/* The part of a text that lies at its place. */
typedef enum sonde__plot_align_x {
    SONDE__LEFT,
    SONDE__CENTER,
    SONDE__RIGHT
} sonde__plot_align_x;
typedef enum sonde__plot_align_y {
    SONDE__TOP,
    SONDE__MIDDLE,
    SONDE__BOTTOM
} sonde__plot_align_y;

/* Where a text goes; maximum > 0 shortens it with an ellipsis to that length. */
typedef struct sonde__plot_place {
    double x, y;
    sonde__plot_align_x align_x;
    sonde__plot_align_y align_y;
    double maximum;
    bool turned; /* reads upwards; align_x is then across the lines, align_y along them */
} sonde__plot_place;

typedef enum sonde__plot_item_kind {
    SONDE__ITEM_FILL, /* box */
    SONDE__ITEM_LINE, /* points, stroked */
    SONDE__ITEM_AREA, /* points, filled */
    SONDE__ITEM_DOT,  /* box's circle, filled */
    SONDE__ITEM_TEXT, /* from origin */
    SONDE__ITEM_IMAGE /* pixels over box */
} sonde__plot_item_kind;

typedef struct sonde__plot_item {
    sonde__plot_item_kind kind;
    sonde__plot_box box;  /* covered area; for a text, its line as measured */
    sonde__plot_box clip; /* w == 0: none */
    uint32_t color;
    double width;            /* LINE: of the pen */
    int dash;                /* LINE: 0 solid, 1 ... 3 */
    sonde__plot_font font;   /* TEXT */
    bool turned;             /* TEXT */
    sonde__plot_point start; /* TEXT: of the baseline */
    size_t count;            /* LINE, AREA: points */
    int columns, rows;       /* IMAGE */
    void *payload;           /* taken: points, UTF-8 text or 0xffRRGGBB pixels */
} sonde__plot_item;

struct _cairo;

typedef struct sonde__plot_scene {
    double width, height;
    double scale; /* pixels of the file per unit */
    sonde__plot_item *items;
    size_t count, capacity;
    sonde__plot_box clip; /* copied to items as they are added */
    struct _cairo *ruler; /* measures texts */
    sonde_err err;        /* the first failure */
} sonde__plot_scene;

/* Only a scene that init accepted needs fini. */
SONDE_API sonde_err sonde__plot_scene_init(sonde__plot_scene *scene, double width,
                                           double scale, sonde_diag *diag);
SONDE_API void sonde__plot_scene_fini(sonde__plot_scene *scene);

/* --- shapes ------------------------------------------------------------------------- */

void sonde__plot_fill(sonde__plot_scene *scene, sonde__plot_box box, uint32_t color);
/* Points are copied. */
void sonde__plot_line(sonde__plot_scene *scene, const sonde__plot_point *points,
                      size_t count, uint32_t color, double width, int dash);
void sonde__plot_segment(sonde__plot_scene *scene, double x0, double y0, double x1,
                         double y1, uint32_t color, double width);
void sonde__plot_outline(sonde__plot_scene *scene, sonde__plot_box box, uint32_t color,
                         double width);
void sonde__plot_area(sonde__plot_scene *scene, const sonde__plot_point *points,
                      size_t count, uint32_t color);
void sonde__plot_dot(sonde__plot_scene *scene, double x, double y, double diameter,
                     uint32_t color);
/* pixels (rows, columns) are taken, also on failure; NULL counts as out of memory. */
void sonde__plot_image(sonde__plot_scene *scene, sonde__plot_box box, uint32_t *pixels,
                       int columns, int rows);

/* --- texts -------------------------------------------------------------------------- */

/* A copy of text as valid UTF-8: malformed bytes become U+FFFD, control characters
 * spaces. Returned new; NULL: out of memory. All functions below apply it to their
 * texts. */
SONDE_API char *sonde__plot_text_clean(const char *text);
/* Sets DejaVu Sans, or the system's substitute, without hinting of widths: a text is as
 * long on paper as it was measured, at any scale. */
void sonde__plot_font_set(struct _cairo *cairo, sonde__plot_font font);

SONDE_API double sonde__plot_text_width(sonde__plot_scene *scene, const char *text,
                                        sonde__plot_font font);
/* Height of one line. */
double sonde__plot_text_height(sonde__plot_font font);
SONDE_API void sonde__plot_text(sonde__plot_scene *scene, const char *text,
                                sonde__plot_font font, uint32_t color,
                                sonde__plot_place place);

enum { SONDE__LINES_MAX = 8 };

typedef struct sonde__plot_lines {
    size_t count;
    char *line[SONDE__LINES_MAX];
} sonde__plot_lines;

/* Breaks text into at most `most` lines of at most `width`: at spaces, after - _ / . ; a
 * piece too long for a line, and a last line with too much text, end in an ellipsis. Free
 * with sonde__plot_lines_fini. */
SONDE_API sonde__plot_lines sonde__plot_wrap(sonde__plot_scene *scene, const char *text,
                                             sonde__plot_font font, double width,
                                             size_t most);
SONDE_API void sonde__plot_lines_fini(sonde__plot_lines *lines);

double sonde__plot_lines_height(const sonde__plot_lines *lines, sonde__plot_font font);
/* Draws the lines downwards from place. */
void sonde__plot_lines_draw(sonde__plot_scene *scene, const sonde__plot_lines *lines,
                            sonde__plot_font font, uint32_t color,
                            sonde__plot_place place);

/* --- the file ----------------------------------------------------------------------- */

/* Draws the scene on white paper and writes it to path, as PNG or SVG by its ending. */
SONDE_API sonde_err sonde__plot_scene_save(const sonde__plot_scene *scene,
                                           const char *path, sonde_diag *diag);

#endif

/*
 * axes.h - colors, ticks and their labels, and a plot area with two axes, a color bar
 * and a legend: measured, then drawn.
 *
 *     legend_height, color_bar_width -> frame_layout -> draw_grid -> data -> draw_axes
 */
#ifndef SONDE_PLOT_AXES_H
#define SONDE_PLOT_AXES_H

#include "plot/scene.h"

#include <sonde/error.h>
#include <sonde/export.h>
#include <sonde/plot.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* === colors ======================================================================= */

/* Colors are 0xRRGGBBAA. The color of NaN is in no color map. */
#define SONDE__NAN_COLOR 0xe6007effu

/* t in 0 ... 1, clamped; NaN gives the color of NaN. */
SONDE_API uint32_t sonde__plot_color_at(sonde_colors colors, double t);
/* Black or white, the one with more contrast to color: a ratio (WCAG 2.1) of at least
 * 4.5. */
SONDE_API uint32_t sonde__plot_ink_on(uint32_t color);
SONDE_API double sonde__plot_contrast(uint32_t a, uint32_t b);

enum { SONDE__PALETTE = 7 };
/* Line colors that color-blind people can distinguish (Okabe and Ito 2008, the light
 * ones darkened); they repeat after SONDE__PALETTE. */
SONDE_API uint32_t sonde__plot_line_color(size_t i);
/* The same with another opacity, 0 ... 255. */
SONDE_API uint32_t sonde__plot_faded(uint32_t color, uint32_t alpha);

/* SONDE_EINVAL: colors is not a value of the enumeration. */
sonde_err sonde__plot_colors_check(sonde_colors colors, sonde_diag *diag);

/* === ticks ========================================================================= */

enum { SONDE__TICKS_MAX = 32, SONDE__TICKS_FINE_MAX = 96, SONDE__LABEL_SIZE = 32 };

typedef struct sonde__plot_ticks {
    int count;
    double value[SONDE__TICKS_MAX];
    char label[SONDE__TICKS_MAX][SONDE__LABEL_SIZE];
    int fine_count; /* logarithmic axis: 2 ... 9 times the decades */
    double fine[SONDE__TICKS_FINE_MAX];
} sonde__plot_ticks;

/*
 * At most `wanted` + 1 ticks (2 ... 30) inside low ... high, at multiples of 1, 2 or 5
 * times a power of ten; the step is at least 1 if whole. low and high lie within
 * +-1.1e300 and far enough apart for distinct ticks (sonde__plot_range_widen ensures
 * both).
 */
SONDE_API void sonde__plot_ticks_linear(double low, double high, int wanted, bool whole,
                                        sonde__plot_ticks *ticks);
/* The same for a logarithmic axis, 0 < low < high: decades, every n-th where there are
 * many; also 2 and 5 times a decade where there are few; linear within one decade. */
SONDE_API void sonde__plot_ticks_log(double low, double high, int wanted,
                                     sonde__plot_ticks *ticks);

/* The smallest 1, 2 or 5 times a power of ten that divides range into at most `wanted`
 * parts. */
double sonde__plot_nice_step(double range, int wanted);

/* "1 234 567", with thin spaces. Returns buf. */
SONDE_API const char *sonde__plot_grouped(uint64_t value, char *buf, size_t size);
/* At most `digits` significant digits, then k, M, G or T: "12.3k", "0.94", "1.2e-07".
 * Returns buf. */
SONDE_API const char *sonde__plot_short_number(double value, int digits, char *buf,
                                               size_t size);

/* === axes ========================================================================== */

typedef struct sonde__plot_axis {
    const char *label; /* NULL: none */
    double low, high;  /* low < high; both positive if log */
    bool log;
    bool whole; /* ticks at integers only */
    sonde__plot_ticks ticks;
} sonde__plot_axis;

typedef struct sonde__plot_frame {
    sonde__plot_box area; /* between the axes */
    sonde__plot_axis x, y;
} sonde__plot_frame;

/* Makes low < high, distinguishable as doubles and within +-1.1e300. */
SONDE_API void sonde__plot_range_widen(double *low, double *high);

/* Chooses ticks and the area so that all labels lie within space; false: no room. */
bool sonde__plot_frame_layout(sonde__plot_scene *scene, sonde__plot_box space,
                              sonde__plot_frame *frame);
void sonde__plot_frame_draw_grid(sonde__plot_scene *scene,
                                 const sonde__plot_frame *frame);
void sonde__plot_frame_draw_axes(sonde__plot_scene *scene,
                                 const sonde__plot_frame *frame);
/* The position of a value; values beyond the axis lie outside it, at most 20 of its
 * lengths. */
double sonde__plot_frame_x(const sonde__plot_frame *frame, double x);
double sonde__plot_frame_y(const sonde__plot_frame *frame, double y);

/* --- color bar --------------------------------------------------------------------- */

/* Chooses the ticks of the bar's axis, for a bar of that height. */
double sonde__plot_color_bar_width(sonde__plot_scene *scene, sonde__plot_axis *axis,
                                   double height);
/* Draws it at the right end of box. */
void sonde__plot_color_bar_draw(sonde__plot_scene *scene, const sonde__plot_axis *axis,
                                sonde_colors colors, sonde__plot_box box);

/* --- legend ------------------------------------------------------------------------- */

typedef struct sonde__plot_legend_entry {
    const char *name; /* borrowed */
    uint32_t color;
    int dash;
    double pen; /* width of the line; 0: a block */
} sonde__plot_legend_entry;

/* Draws the entries above a plot in as many rows as they need in box.w; measures only if
 * draw is false. Returns the height used. */
double sonde__plot_legend(sonde__plot_scene *scene, sonde__plot_box box,
                          const sonde__plot_legend_entry *entries, size_t count,
                          bool draw);

#endif

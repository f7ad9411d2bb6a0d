/*
 * axes.h - a plot area with two axes, a colour bar, a legend: measured, then drawn.
 *
 *     legend_height, colour_bar_width -> frame_layout -> draw_grid -> data -> draw_axes
 */
#ifndef SONDE_PLOT_AXES_H
#define SONDE_PLOT_AXES_H

#include "plot/scene.h"
#include "plot/ticks.h"

#include <sonde/plot.h>

typedef struct sonde__axis {
    const char *label; /* NULL: none */
    double low, high;  /* low < high; both positive if log */
    bool log;
    bool whole; /* ticks at integers only */
    sonde__ticks ticks;
} sonde__axis;

typedef struct sonde__frame {
    sonde__box area; /* between the axes */
    sonde__axis x, y;
} sonde__frame;

/* Makes low < high, far enough apart to be told apart and within +-1.1e300. */
SONDE_API void sonde__range_widen(double *low, double *high);

/* Chooses ticks and the area so that all labels lie within space; false: no room. */
bool sonde__frame_layout(sonde__scene *scene, sonde__box space, sonde__frame *frame);
void sonde__frame_draw_grid(sonde__scene *scene, const sonde__frame *frame);
void sonde__frame_draw_axes(sonde__scene *scene, const sonde__frame *frame);
/* Where a value lies; beyond the axis it continues, up to a page's length away. */
double sonde__frame_x(const sonde__frame *frame, double x);
double sonde__frame_y(const sonde__frame *frame, double y);

/* --- colour bar ------------------------------------------------------------------------
 */

/* axis is the bar's; its ticks are chosen here, for a bar of that height. */
double sonde__colour_bar_width(sonde__scene *scene, sonde__axis *axis, double height);
/* In the right end of a space that wide, from y over height. */
void sonde__colour_bar_draw(sonde__scene *scene, const sonde__axis *axis,
                            sonde_colours colours, sonde__box box);

/* --- legend ----------------------------------------------------------------------------
 */

typedef struct sonde__legend_entry {
    const char *name; /* borrowed */
    uint32_t colour;
    int dash;
    double pen; /* of the line; 0: a block */
} sonde__legend_entry;

/* Rows of entries above a plot, as many as they need in box.w; draws unless scene's turn
 * is only to measure (draw false). Returns the height used. */
double sonde__legend(sonde__scene *scene, sonde__box box,
                     const sonde__legend_entry *entries, size_t count, bool draw);

#endif

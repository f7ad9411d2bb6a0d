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

/* Makes low < high, far enough apart to be told apart and within +-1.1e300. */
SONDE_API void sonde__plot_range_widen(double *low, double *high);

/* Chooses ticks and the area so that all labels lie within space; false: no room. */
bool sonde__plot_frame_layout(sonde__plot_scene *scene, sonde__plot_box space,
                              sonde__plot_frame *frame);
void sonde__plot_frame_draw_grid(sonde__plot_scene *scene,
                                 const sonde__plot_frame *frame);
void sonde__plot_frame_draw_axes(sonde__plot_scene *scene,
                                 const sonde__plot_frame *frame);
/* Where a value lies; beyond the axis it continues, up to a page's length away. */
double sonde__plot_frame_x(const sonde__plot_frame *frame, double x);
double sonde__plot_frame_y(const sonde__plot_frame *frame, double y);

/* --- colour bar --------------------------------------------------------------------- */

/* axis is the bar's; its ticks are chosen here, for a bar of that height. */
double sonde__plot_colour_bar_width(sonde__plot_scene *scene, sonde__plot_axis *axis,
                                    double height);
/* In the right end of a space that wide, from y over height. */
void sonde__plot_colour_bar_draw(sonde__plot_scene *scene, const sonde__plot_axis *axis,
                                 sonde_colours colours, sonde__plot_box box);

/* --- legend ------------------------------------------------------------------------- */

typedef struct sonde__plot_legend_entry {
    const char *name; /* borrowed */
    uint32_t colour;
    int dash;
    double pen; /* of the line; 0: a block */
} sonde__plot_legend_entry;

/* Rows of entries above a plot, as many as they need in box.w; draws unless scene's turn
 * is only to measure (draw false). Returns the height used. */
double sonde__plot_legend(sonde__plot_scene *scene, sonde__plot_box box,
                          const sonde__plot_legend_entry *entries, size_t count,
                          bool draw);

#endif

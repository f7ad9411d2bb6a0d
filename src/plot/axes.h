/*
 * axes.h - a plot area with two axes, a colour bar and a legend: measured, then drawn.
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

/* --- colour bar --------------------------------------------------------------------- */

/* Chooses the ticks of the bar's axis, for a bar of that height. */
double sonde__plot_colour_bar_width(sonde__plot_scene *scene, sonde__plot_axis *axis,
                                    double height);
/* Draws it at the right end of box. */
void sonde__plot_colour_bar_draw(sonde__plot_scene *scene, const sonde__plot_axis *axis,
                                 sonde_colours colours, sonde__plot_box box);

/* --- legend ------------------------------------------------------------------------- */

typedef struct sonde__plot_legend_entry {
    const char *name; /* borrowed */
    uint32_t colour;
    int dash;
    double pen; /* width of the line; 0: a block */
} sonde__plot_legend_entry;

/* Draws the entries above a plot in as many rows as they need in box.w; measures only if
 * draw is false. Returns the height used. */
double sonde__plot_legend(sonde__plot_scene *scene, sonde__plot_box box,
                          const sonde__plot_legend_entry *entries, size_t count,
                          bool draw);

#endif

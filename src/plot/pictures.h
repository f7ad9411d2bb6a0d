/*
 * pictures.h - reading views as images, and turning them into pixels.
 */
#ifndef SONDE_PLOT_PICTURES_H
#define SONDE_PLOT_PICTURES_H

#include "plot/scene.h"

#include <sonde/plot.h>

/* Images of one size in a view, whatever the order of its axes. */
typedef struct sonde__plot_pictures {
    const sonde_view *view; /* borrowed */
    int64_t count, channels, height, width;
    int64_t step[4]; /* in elements, to the next image, channel, row, column */
} sonde__plot_pictures;

/* batch: (N, H, W), (N, C, H, W), (N, H, W, C); else the same without N. where names the
 * view in diag. */
SONDE_API sonde_err sonde__plot_pictures_of(const sonde_view *view, bool batch,
                                            const char *where, sonde__plot_pictures *out,
                                            sonde_diag *diag);

/* The values that span the colours. */
typedef struct sonde__plot_span {
    double low, high;
} sonde__plot_span;

/* low == high: found over images first ... last - 1, as <sonde/plot.h> tells. where names
 * the option in diag. */
sonde_err sonde__plot_span_of(const sonde__plot_pictures *pictures, int64_t first,
                              int64_t last, double low, double high, const char *where,
                              sonde__plot_span *span, sonde_diag *diag);

/* NaN and infinite values of images first ... last - 1. */
typedef struct sonde__plot_oddities {
    uint64_t nan, infinite;
} sonde__plot_oddities;
sonde__plot_oddities sonde__plot_oddities_of(const sonde__plot_pictures *pictures,
                                             int64_t first, int64_t last);
/* "3 NaN values in magenta, 1 infinite" or "" if there are none. Returns buf. */
const char *sonde__plot_oddities_text(sonde__plot_oddities odd, char *buf, size_t size);

/* Image i as (rows, columns) pixels, no more than it has; smaller, each is the mean over
 * its part, or the colour of NaN if one of them is. To be freed; NULL: out of memory. */
SONDE_API uint32_t *sonde__plot_picture_pixels(const sonde__plot_pictures *pictures,
                                               int64_t i, sonde__plot_span span,
                                               sonde_colours colours, int columns,
                                               int rows);

/* Draws image i into box, whose sides have its proportions. */
void sonde__plot_picture_draw(sonde__plot_scene *scene,
                              const sonde__plot_pictures *pictures, int64_t i,
                              sonde__plot_span span, sonde_colours colours,
                              sonde__plot_box box);

/* The greatest size of width : height within most_w, most_h; a whole multiple of it where
 * it is enlarged to at least the double. */
void sonde__plot_picture_fit(const sonde__plot_pictures *pictures, double most_w,
                             double most_h, double *w, double *h);

#endif

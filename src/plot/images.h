/*
 * images.h - reads views as images and turns them into pixels.
 */
#ifndef SONDE_PLOT_IMAGES_H
#define SONDE_PLOT_IMAGES_H

#include "plot/scene.h"

#include <sonde/plot.h>

/* Images of one size in a view, for any order of its axes. */
typedef struct sonde__plot_pictures {
    const sonde_view *view; /* borrowed */
    int64_t count, channels, height, width;
    int64_t step[4]; /* in elements, to the next image, channel, row, column */
} sonde__plot_pictures;

/* Reads (N, H, W), (N, C, H, W) or (N, H, W, C) if batch; the same without N if not.
 * where names the view in diag. */
SONDE_API sonde_err sonde__plot_pictures_of(const sonde_view *view, bool batch,
                                            const char *where, sonde__plot_pictures *out,
                                            sonde_diag *diag);

/* The values that span the colours. */
typedef struct sonde__plot_span {
    double low, high;
} sonde__plot_span;

/* The given range, or if low == high the range of images first ... last - 1, as described
 * in <sonde/plot.h>. where names the option in diag. */
sonde_err sonde__plot_span_of(const sonde__plot_pictures *pictures, int64_t first,
                              int64_t last, double low, double high, const char *where,
                              sonde__plot_span *span, sonde_diag *diag);

/* Counts the NaN and infinite values of images first ... last - 1. */
typedef struct sonde__plot_oddities {
    uint64_t nan, infinite;
} sonde__plot_oddities;
sonde__plot_oddities sonde__plot_oddities_of(const sonde__plot_pictures *pictures,
                                             int64_t first, int64_t last);
/* "3 NaN values (magenta)", or "" if there are none. Returns buf. */
const char *sonde__plot_oddities_text(sonde__plot_oddities odd, char *buf, size_t size);

/* Image i as (rows, columns) pixels, at most its own size. Each pixel is the mean of its
 * part of the image, or the colour of NaN if the part has one. Returned new; NULL: out of
 * memory. */
SONDE_API uint32_t *sonde__plot_picture_pixels(const sonde__plot_pictures *pictures,
                                               int64_t i, sonde__plot_span span,
                                               sonde_colours colours, int columns,
                                               int rows);

/* Draws image i into box, whose sides have its proportions. */
void sonde__plot_picture_draw(sonde__plot_scene *scene,
                              const sonde__plot_pictures *pictures, int64_t i,
                              sonde__plot_span span, sonde_colours colours,
                              sonde__plot_box box);

/* The largest size with the image's proportions within most_w, most_h; a whole multiple
 * of its size if that is 2 or more. */
void sonde__plot_picture_fit(const sonde__plot_pictures *pictures, double most_w,
                             double most_h, double *w, double *h);

#endif

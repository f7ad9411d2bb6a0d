/*
 * page.h - the frame of every picture: title above, notes below, contents between; the
 * builders, and what they read: views as images, points of curves.
 *
 *     sonde__plot_page_begin -> draw into page.space -> sonde__plot_page_end
 *
 * A builder turns a picture's description into a scene; sonde__plot_draw runs it and
 * writes the file.
 */
#ifndef SONDE_PLOT_PAGE_H
#define SONDE_PLOT_PAGE_H

#include "plot/scene.h"

#include <sonde/error.h>
#include <sonde/plot.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SONDE__MARGIN = 24, SONDE__PAGE_WIDTH = 900, SONDE__PAGE_LONGEST = 32000 };

#define SONDE__FONT_TITLE ((sonde__plot_font){17, true})
#define SONDE__FONT_LABEL ((sonde__plot_font){13, false})
#define SONDE__FONT_TEXT ((sonde__plot_font){12, false})

typedef struct sonde__plot_page {
    sonde__plot_box space; /* for the contents; h is 0 if they decide their height */
    sonde__plot_lines notes[2];
    double notes_height;
    double height; /* of the page; 0: the contents decide */
} sonde__plot_page;

/*
 * Draws title and subtitle (may be NULL) and measures the notes: the picture's own note
 * (may be NULL), then the user's. natural is the page's height if the user gave none; 0:
 * the contents decide. SONDE_EINVAL: no room is left for the contents. page needs
 * sonde__plot_page_fini only if this succeeded.
 */
sonde_err sonde__plot_page_begin(sonde__plot_scene *scene, const sonde_plot_page *options,
                                 const char *subtitle, const char *note, double natural,
                                 sonde__plot_page *page, sonde_diag *diag);
/* Draws the notes below the contents, which end at bottom, and sets the scene's height.
 */
sonde_err sonde__plot_page_end(sonde__plot_scene *scene, const sonde__plot_page *page,
                               double bottom, sonde_diag *diag);
void sonde__plot_page_fini(sonde__plot_page *page);

/* Draws a chart into space; false: it does not fit. */
typedef bool (*sonde__plot_painter)(void *chart, sonde__plot_scene *scene,
                                    sonde__plot_box space);
/* A page that paint fills: begins it, paints, ends it. Its natural height is that of a
 * chart with axes. */
sonde_err sonde__plot_page_chart(sonde__plot_scene *scene, const sonde_plot_page *options,
                                 const char *subtitle, const char *note,
                                 sonde__plot_painter paint, void *chart,
                                 sonde_diag *diag);
/* Fails with SONDE_EINVAL: the contents do not fit. */
sonde_err sonde__plot_no_room(const sonde__plot_scene *scene, sonde_diag *diag);

typedef sonde_err (*sonde__plot_builder)(const void *plot, sonde__plot_scene *scene,
                                         sonde_diag *diag);
/* Checks path and page, builds and saves. */
sonde_err sonde__plot_draw(const char *path, const sonde_plot_page *page,
                           sonde__plot_builder build, const void *plot, sonde_diag *diag);

/* The builders; plot points to a sonde_<name>_plot. */
SONDE_API sonde_err sonde__plot_build_images(const void *plot, sonde__plot_scene *scene,
                                             sonde_diag *diag);
SONDE_API sonde_err sonde__plot_build_panels(const void *plot, sonde__plot_scene *scene,
                                             sonde_diag *diag);
SONDE_API sonde_err sonde__plot_build_confusion(const void *plot,
                                                sonde__plot_scene *scene,
                                                sonde_diag *diag);
SONDE_API sonde_err sonde__plot_build_histogram(const void *plot,
                                                sonde__plot_scene *scene,
                                                sonde_diag *diag);
SONDE_API sonde_err sonde__plot_build_curves(const void *plot, sonde__plot_scene *scene,
                                             sonde_diag *diag);
SONDE_API sonde_err sonde__plot_build_heatmap(const void *plot, sonde__plot_scene *scene,
                                              sonde_diag *diag);

/* === images ======================================================================== */

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

/* The values that span the colors. */
typedef struct sonde__plot_span {
    double low, high;
} sonde__plot_span;

/* Image i as (rows, columns) pixels, at most its own size. Each pixel is the mean of its
 * part of the image, or the color of NaN if the part has one. Returned new; NULL: out of
 * memory. */
SONDE_API uint32_t *sonde__plot_picture_pixels(const sonde__plot_pictures *pictures,
                                               int64_t i, sonde__plot_span span,
                                               sonde_colors colors, int columns,
                                               int rows);

/* === points of curves ============================================================== */

/* How a point can be drawn. */
typedef enum sonde__plot_mark {
    SONDE__MARK_POINT,
    SONDE__MARK_NAN,
    SONDE__MARK_ABOVE, /* +Inf, and beyond 1e300 */
    SONDE__MARK_BELOW  /* -Inf, below -1e300, and <= 0 on a logarithmic axis */
} sonde__plot_mark;

typedef struct sonde__plot_series {
    size_t count;
    double *x, *y;     /* (count) */
    double *smooth;    /* (count), NaN in gaps; NULL: not smoothed */
    bool ascending;    /* x never falls */
    bool whole;        /* all x are integers */
    uint64_t marks[4]; /* number of points of each kind */
} sonde__plot_series;

/* where names the series in diag. On failure there is nothing to free. */
SONDE_API sonde_err sonde__plot_series_read(const sonde_plot_series *series, bool log_y,
                                            double smooth, const char *where,
                                            sonde__plot_series *out, sonde_diag *diag);
SONDE_API void sonde__plot_series_fini(sonde__plot_series *series);

sonde__plot_mark sonde__plot_mark_of(double y, bool log_y);

#endif

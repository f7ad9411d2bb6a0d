/*
 * page.h - the frame of every picture: title above, notes below, contents between.
 *
 *     sonde__plot_page_begin -> draw into page.space -> sonde__plot_page_end
 *
 * A builder turns a picture's description into a scene; sonde__plot_draw runs it and
 * writes the file.
 */
#ifndef SONDE_PLOT_PAGE_H
#define SONDE_PLOT_PAGE_H

#include "plot/scene.h"

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

#endif

/*
 * plot.h - pictures of data, tensors and training, as PNG or SVG.
 *
 * One call makes one file; the ending of the path chooses its kind:
 *
 *     const sonde_confusion_plot plot = {
 *         .page = {.title = "Fashion-MNIST, test set"},
 *         .counts = sonde_view_of(SONDE_U64, 2, (int64_t[]){10, 10}, counts),
 *         .classes = class_names,
 *     };
 *     err = sonde_plot_confusion("confusion.png", &plot, &diag);
 *
 * A struct describes the picture; 0 and NULL in it select the default. Everything in it
 * is borrowed during the call. Texts are UTF-8 and measured before they are placed: a
 * text that is too long is wrapped, made smaller or shortened with an ellipsis, so texts
 * never overlap and are never cut off.
 *
 * NaN is never hidden: NaN pixels are magenta, a color in no map; NaN and infinite
 * points of a curve are marked at the edge; both are counted below the picture.
 *
 * Files: a picture is written to a temporary file and renamed, so it appears whole or not
 * at all; on failure an older file remains. In an SVG, letters are outlines, so it looks
 * the same everywhere; its <desc> holds all texts for search and screen readers.
 *
 * Errors of every function that takes a path: SONDE_EINVAL for an ending other than .png
 * and .svg (any case), for values that cannot be drawn and for a page too small for its
 * contents; SONDE_ESHAPE and SONDE_EDTYPE for views of the wrong kind; SONDE_EIO and
 * SONDE_ENOTFOUND for a path that cannot be written, with the path in diag; SONDE_ENOMEM.
 *
 * Threads: calls share nothing; any number may run at once. Cost: 10 to 50 ms for a
 * default page, most of it for compressing the PNG.
 */
#ifndef SONDE_PLOT_H
#define SONDE_PLOT_H

#include <sonde/export.h>
#include <sonde/rules.h>
#include <sonde/sketch.h>
#include <sonde/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* SONDE_OK if path ends in .png or .svg. Call it before long work that ends in a picture.
 * It checks the text only, not the disk. */
SONDE_API SONDE_CHECKED sonde_err sonde_plot_check_path(const char *path,
                                                        sonde_diag *diag);

/* --- the page ----------------------------------------------------------------------- */

typedef struct sonde_plot_page {
    const char *title; /* NULL: none */
    const char *note;  /* a sentence below the picture; NULL: none */
    int width;         /* pixels at scale 1; 160 ... 16000; 0: 900 */
    int height;        /* pixels at scale 1; 120 ... 16000; 0: fits the contents */
    double scale;      /* 0.5 ... 8: pixels per unit of PNG, magnification of SVG; 0: 1 */
} sonde_plot_page;

/* Color maps, from the lowest value to the highest. */
typedef enum sonde_colors {
    SONDE_COLORS_VIRIDIS =
        0,                 /* dark blue, green, yellow; as matplotlib's, within 2/255 */
    SONDE_COLORS_GRAY = 1, /* black to white */
    SONDE_COLORS_BLUES = 2 /* white to dark blue: for counts, 0 being white */
} sonde_colors;

/* --- images ------------------------------------------------------------------------- */

/*
 * Sample images in a grid, each under its label.
 *
 * images is (N, H, W), (N, C, H, W) or (N, H, W, C), any dtype, C being 1 or 3; the
 * second axis is tried as C first. The colors span, for three channels, 0 ... 255 if
 * uint8 and 0 ... 1 if floats within it; otherwise the least to the greatest finite value
 * of all images. One channel is drawn with a color map; three are red, green and blue.
 */
typedef struct sonde_images_plot {
    sonde_plot_page page;
    sonde_view images;
    const char *const *labels; /* (N), each may be NULL; NULL: no labels */
    int columns;               /* 0: 5, or as many as there are images */
    sonde_colors colors;
} sonde_images_plot;

/* SONDE_ESHAPE: no images. */
SONDE_API SONDE_CHECKED sonde_err sonde_plot_images(const char *path,
                                                    const sonde_images_plot *plot,
                                                    sonde_diag *diag);

/* One image of any size: (H, W), (C, H, W) or (H, W, C); otherwise as above. */
typedef struct sonde_plot_panel {
    const char *title; /* NULL: none */
    sonde_view image;
    sonde_colors colors;
} sonde_plot_panel;

/* Images side by side with their sizes in pixels, such as one before and after its
 * transformation. */
typedef struct sonde_panels_plot {
    sonde_plot_page page;
    const sonde_plot_panel *panels; /* (count) */
    size_t count;                   /* 1 ... 8 */
    bool arrows;                    /* an arrow from each to the next */
} sonde_panels_plot;

SONDE_API SONDE_CHECKED sonde_err sonde_plot_panels(const char *path,
                                                    const sonde_panels_plot *plot,
                                                    sonde_diag *diag);

/* --- confusion matrix --------------------------------------------------------------- */

/*
 * counts is (K, K), any dtype, K at most 1000: true label down, predicted label across.
 * Cells show their value if there is room. Accuracy and total are shown below the title.
 * SONDE_EINVAL: a negative, NaN or infinite count.
 */
typedef struct sonde_confusion_plot {
    sonde_plot_page page;
    sonde_view counts;
    const char *const *classes; /* (K); NULL: 0, 1, 2 ... */
    sonde_colors colors;
} sonde_confusion_plot;

SONDE_API SONDE_CHECKED sonde_err sonde_plot_confusion(const char *path,
                                                       const sonde_confusion_plot *plot,
                                                       sonde_diag *diag);

/* --- histogram ---------------------------------------------------------------------- */

/*
 * Bars between the histogram's edges. sonde_histogram_log2 counts zeros in the first
 * bin, two below the smallest log2|x|; zeros is their number. They are drawn on top of
 * that bar in a second color, and a legend shows their share. SONDE_EINVAL: no bins,
 * edges not finite or not in order, all bins empty, more zeros than the first bin holds.
 */
typedef struct sonde_histogram_plot {
    sonde_plot_page page;
    const sonde_histogram *histogram;
    const char *x_label; /* NULL: none */
    const char *y_label; /* NULL: "Frequency" */
    uint64_t zeros;
} sonde_histogram_plot;

SONDE_API SONDE_CHECKED sonde_err sonde_plot_histogram(const char *path,
                                                       const sonde_histogram_plot *plot,
                                                       sonde_diag *diag);

/* --- curves ------------------------------------------------------------------------- */

/* y against x, or against 0, 1, 2 ... where x.data is NULL. Both are (n), any dtype. */
typedef struct sonde_plot_series {
    const char *name; /* for the legend; NULL: "series 1" and so on */
    sonde_view y;
    sonde_view x;
    bool plain; /* not smoothed, even if the plot's other series are */
} sonde_plot_series;

/*
 * Lines through the points in their order. NaN and infinite y leave a gap and are marked
 * at the edge of the plot; so are values <= 0 if log_y. smooth in (0, 1) adds to each
 * series its exponential moving average with that weight on the past, bias-corrected as
 * in Adam (Kingma and Ba 2015, section 3), and draws the series itself pale. In long
 * series, each pixel column keeps its first, last, least and greatest value.
 *
 * SONDE_EINVAL: no series, a series without points, x not finite, smooth outside [0, 1),
 * no value that can be drawn. SONDE_ESHAPE: not one axis, or x and y of different
 * lengths.
 */
typedef struct sonde_curves_plot {
    sonde_plot_page page;
    const sonde_plot_series *series; /* (count) */
    size_t count;                    /* 1 ... 32 */
    const char *x_label;             /* NULL: none */
    const char *y_label;             /* NULL: none */
    double smooth;
    bool log_y;
} sonde_curves_plot;

SONDE_API SONDE_CHECKED sonde_err sonde_plot_curves(const char *path,
                                                    const sonde_curves_plot *plot,
                                                    sonde_diag *diag);

/* --- heat map over steps ------------------------------------------------------------ */

/*
 * How a distribution changes: one column per step; a color is the share of that step's
 * values in the row at that height. A column reaches half-way to its neighbors; columns
 * closer than a pixel are averaged. A step without values stays white.
 *
 * SONDE_EINVAL: no steps, steps not ascending, no rows or more than 4096, low and high not
 * finite or not in order, a count below 0 or not finite, or all counts 0.
 */
typedef struct sonde_heatmap_plot {
    sonde_plot_page page;
    const double *counts; /* (count, rows): values in each row, from the lowest */
    const int64_t *steps; /* (count), ascending; NULL: 0, 1, 2 ... */
    size_t count, rows;
    double low, high;    /* the edges of all rows together */
    const char *x_label; /* NULL: "Step" */
    const char *y_label; /* NULL: none */
    bool median;         /* a line through the medians */
    sonde_colors colors;
} sonde_heatmap_plot;

SONDE_API SONDE_CHECKED sonde_err sonde_plot_heatmap(const char *path,
                                                     const sonde_heatmap_plot *plot,
                                                     sonde_diag *diag);

/* === reports ========================================================================= */

/*
 * The findings of rules in a run, as one page.
 *
 * The page is one self-contained HTML file: style and curves are in it, it has no script
 * and loads nothing. It follows the reader's light or dark theme, fits wide and narrow
 * screens and can be printed. From top to bottom:
 *
 *     the verdict, and when each finding began
 *     the loss
 *     a card for each rule with findings: what, where, when, how bad, what to try
 *     the tensors, a line each
 *     the rules that judged, and the data that the others lacked
 *     the run
 *
 * The same run and the same findings give the same bytes. All texts of the run are
 * escaped, so tensors may have any name.
 *
 * Threads: those of the trial and the rules.
 */

/*
 * Writes the page of a trial that the rules have judged. A file at path is replaced once
 * the page is complete. It shows 8 findings of each rule and 200 tensors, and counts the
 * others. Curves show vital signs, reduced to the width of the page: the page of a long run
 * is as small as that of a short one, about 100 KB. SONDE_EIO, SONDE_ENOTFOUND: path cannot be written; SONDE_ENOMEM. Cost: reads the
 * vital signs of the shown tensors once or twice.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_report_write(const char *path, sonde_trial *trial,
                                                     sonde_rules *rules,
                                                     sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif

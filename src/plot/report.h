/*
 * report.h - the page of findings: its text, numbers of tensors over the steps, and the
 * parts of the page with the data that they share.
 *
 * A curve is read as columns: each stands for a range of steps and keeps its first, least,
 * largest and last value, so a curve of 100,000 steps looks as if every step were drawn.
 * It is SVG that stretches to its place, with labels of HTML around it.
 */
#ifndef SONDE_PLOT_REPORT_H
#define SONDE_PLOT_REPORT_H

#include <sonde/error.h>
#include <sonde/plot.h>
#include <sonde/text.h>
#include <sonde/trial.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* === text ========================================================================== */

/*
 * Appends a template with values for its directives:
 *
 *     %e  const char *             text of the run, escaped for content and attributes;
 *                                  control characters and malformed bytes are U+FFFD
 *     %s  const char *             markup
 *     %d  int64_t                  a number
 *     %n  uint64_t                 the same with thin spaces between thousands
 *     %c  uint64_t, const char *   "1 rule", "12 rules"
 *     %f  double                   with one decimal
 *     %g  double                   at most 4 significant digits; NaN, ∞ by name
 *     %h  double                   at most 3
 *     %%                           a per cent sign
 */
void sonde__report_put(sonde_text *page, const char *template, ...);

/* The lines of report.css; NULL ends them. */
extern const char *const sonde__report_style[];

/* === curves ======================================================================== */

/* --- reading ------------------------------------------------------------------------ */

/* The number drawn for a tensor, over its finite elements: one NaN does not hide the
 * rest. */
typedef enum sonde__report_quantity_kind {
    SONDE__QUANTITY_STAT = 0,
    SONDE__QUANTITY_RMS = 1,         /* sqrt of the mean of x^2 */
    SONDE__QUANTITY_ZERO_PERCENT = 2 /* share of elements that are 0 */
} sonde__report_quantity_kind;

typedef struct sonde__report_quantity {
    sonde__report_quantity_kind kind;
    sonde_stat stat;
    const char *label;
} sonde__report_quantity;

enum { SONDE__COLUMNS = 240 };

typedef struct sonde__report_column {
    double first, low, high, last;
    bool any; /* has a value */
    bool bad; /* has a step with a NaN or infinite element */
} sonde__report_column;

typedef struct sonde__report_track {
    sonde__report_column column[SONDE__COLUMNS];
    int count;           /* of columns used */
    int64_t begin, end;  /* the axis: steps begin ... end */
    double low, high;    /* over all columns; low > high: no value */
    double least;        /* positive value; infinite: none */
    double last;         /* value */
    bool zero, negative; /* true: there are such values */
    uint64_t steps, bad; /* steps read; those with NaN or infinities */
} sonde__report_track;

/*
 * Reads the track of tensor id over global steps begin ... end into at most `columns`
 * columns (up to SONDE__COLUMNS), from the steps of a mode; SONDE_MODE_GLOBAL: from all.
 * Unreadable steps are skipped; the only error is SONDE_ENOMEM.
 */
SONDE_API sonde_err sonde__report_track_read(sonde_trial *trial, uint32_t id,
                                             sonde_mode mode,
                                             const sonde__report_quantity *quantity,
                                             int64_t begin, int64_t end, int columns,
                                             sonde__report_track *track,
                                             sonde_diag *diag);

/* The quantity that shows a finding's statistic best. *same: it is that statistic itself,
 * so the finding's threshold can be drawn. */
sonde__report_quantity sonde__report_quantity_of(const char *statistic, sonde_role role,
                                                 bool *same);
/* The most informative quantity for a tensor of that role. */
SONDE_API sonde__report_quantity sonde__report_quantity_usual(sonde_role role);

/* --- drawing ------------------------------------------------------------------------ */

typedef struct sonde__report_trace {
    const sonde__report_track *track;
    const char *name; /* in the legend; NULL: a single line */
} sonde__report_trace;

typedef struct sonde__report_curve {
    const sonde__report_trace *lines; /* at most 2, over the same steps */
    size_t line_count;
    const char *label;   /* of the quantity: ours, not escaped */
    const char *tensor;  /* its name: the run's, escaped */
    double threshold;    /* NaN: none */
    int64_t first, last; /* steps at which the finding held; first < 0: none */
} sonde__report_curve;

/* Adds a figure; nothing if there is no value. */
void sonde__report_curve_draw(sonde_text *page, const sonde__report_curve *curve);
/* Adds a line without axes, as high as a row of text. */
void sonde__report_spark_draw(sonde_text *page, const sonde__report_track *track);

/* === parts ========================================================================= */

enum { SONDE__REPORT_PLACES = 8 }; /* findings that are shown of each rule */

/* The findings of one rule; each group is a card. */
typedef struct sonde__report_group {
    const char *name;       /* of the rule */
    const sonde_rule *rule; /* NULL: the rule did not judge this run */
    size_t *member;         /* (count) indices into findings, in their order */
    size_t count;
    sonde_severity worst;
    int64_t first, last; /* steps, over all of them */
    uint64_t because_of; /* the finding that all follow from; 0: there is none */
} sonde__report_group;

typedef struct sonde__report {
    sonde_text page;
    sonde_trial *trial;
    const sonde_catalogue *catalogue;
    sonde_rules *rules;
    sonde_run_info info;
    sonde_finding *findings; /* causes first */
    size_t count;
    sonde__report_group *groups; /* in the order of their findings */
    size_t group_count;
    size_t *members;    /* of all groups */
    bool any_step;      /* false: there is nothing to draw */
    int64_t begin, end; /* the axis of all curves: global steps */
} sonde__report;

/* The tensor of a finding; SONDE_NO_TENSOR: the run as a whole. */
uint32_t sonde__report_tensor(const sonde__report *report, const sonde_finding *finding);
/* A training loss; SONDE_NO_TENSOR: the run has none. */
uint32_t sonde__report_loss(const sonde__report *report);

/* The parts of verdict.c, from top to bottom; each writes its own heading. */
void sonde__report_verdict(sonde__report *report);
void sonde__report_when(sonde__report *report);
sonde_err sonde__report_loss_curve(sonde__report *report, sonde_diag *diag);
sonde_err sonde__report_cards(sonde__report *report, sonde_diag *diag);

#endif

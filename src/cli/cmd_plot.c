/*
 * cmd_plot.c - `sonde plot`: curves of statistics, or a heat map of magnitudes over the
 * steps.
 */
#include "cli/cli_job.h"
#include "cli/run_reading.h"
#include "base/fail.h"

#include <sonde/plot.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- a heat map of magnitudes over the steps ---------------------------------------- */

enum {
    MOST_COLUMNS = 1000,
    PER_EXPONENT = 1 << SONDE_SKETCH_MANTISSA_BITS,
    EXPONENTS = SONDE_SKETCH_BINS / PER_EXPONENT,
    ROWS = SONDE_SKETCH_BINS, /* as many for each octave as it has bins */
    FEW = 1000 /* octaves at the bottom with less than 1 / FEW are cut off */
};

/* The columns, and counts of the elements that they do not show. */
typedef struct columns {
    double *counts; /* (count, ROWS) */
    int64_t *steps;
    size_t count;
    int first, rows;               /* of the rows that are drawn */
    uint64_t exponents[EXPONENTS]; /* elements of each, of all steps */
    uint64_t elements, zeros, nonfinite;
    uint64_t below; /* elements too small to be drawn, */
    int floor;      /* in magnitude less than 2^floor */
} columns;

/*
 * Elements of a bin of the sketch, over log2|x|. The bins of an octave are not equal there
 * (0.32, 0.26, 0.22 and 0.19 wide); the rows are, so a bin's count is spread by overlap.
 */
static void spread(double *rows, int bin, uint64_t count)
{
    double *octave = rows + bin / PER_EXPONENT * PER_EXPONENT;
    const double part = 1.0 / PER_EXPONENT;
    const double begin = log2(1.0 + bin % PER_EXPONENT * part) * PER_EXPONENT;
    const double end = log2(1.0 + (bin % PER_EXPONENT + 1) * part) * PER_EXPONENT;

    for (int i = 0; i < PER_EXPONENT; i++) {
        const double overlap = fmin(end, i + 1) - fmax(begin, i);

        octave[i] += overlap > 0.0 ? (double)count * overlap / (end - begin) : 0.0;
    }
}

/* Cuts off the lowest octaves, which contain few elements of all steps together, and rows
 * without elements at both ends. */
static void cut(columns *c)
{
    const uint64_t finite = c->elements - c->zeros - c->nonfinite;
    int e = 0, first = ROWS, last = -1;

    while (e < EXPONENTS && (c->below + c->exponents[e]) * FEW <= finite) {
        c->below += c->exponents[e++];
    }
    c->floor = e + SONDE_SKETCH_MIN_EXPONENT;
    for (size_t i = 0; i < c->count * ROWS; i++) {
        const int row = (int)(i % ROWS);

        if (c->counts[i] > 0.0 && row >= e * PER_EXPONENT) {
            first = row < first ? row : first;
            last = row > last ? row : last;
        }
    }
    c->first = last < 0 ? 0 : first;
    c->rows = last < 0 ? 1 : last - first + 1;
    for (size_t i = 0; i < c->count; i++) {
        memmove(c->counts + i * (size_t)c->rows, c->counts + i * ROWS + c->first,
                (size_t)c->rows * sizeof *c->counts);
    }
}

/* Chooses at most MOST_COLUMNS steps of the range, evenly spaced. */
static sonde_err choose_steps(sonde_trial *trial, uint32_t id, const cli_range *range,
                              columns *c, sonde_diag *diag)
{
    size_t all = 0, kept = 0;
    SONDE__TRY(sonde_trial_tensor_steps(
        trial, id, range->mode, SONDE_HOW_RAW | SONDE_HOW_SKETCH, &c->steps, &all, diag));
    for (size_t i = 0; i < all; i++) {
        if (c->steps[i] >= range->begin &&
            (range->end == 0 || c->steps[i] < range->end)) {
            c->steps[kept++] = c->steps[i];
        }
    }
    c->count = kept < MOST_COLUMNS ? kept : MOST_COLUMNS;
    for (size_t i = 0; kept > c->count && i < c->count; i++) {
        c->steps[i] = c->steps[i * (kept - 1) / (c->count - 1)];
    }
    if (c->count == 0) {
        return cli_fail_nothing(trial, id, range, SONDE_HOW_RAW | SONDE_HOW_SKETCH, diag);
    }
    c->counts = calloc(c->count * ROWS, sizeof *c->counts);
    return c->counts != NULL ? SONDE_OK : cli_fail_memory(diag);
}

static void add_column(columns *c, const sonde_sketch *sketch, size_t i)
{
    c->elements += sketch->count;
    c->zeros += sketch->zero;
    c->nonfinite += sketch->nan + sketch->pos_inf + sketch->neg_inf;
    for (int bin = 0; bin < SONDE_SKETCH_BINS; bin++) {
        const uint64_t count = sketch->positive[bin] + sketch->negative[bin];

        c->exponents[bin / PER_EXPONENT] += count;
        if (count > 0) {
            spread(c->counts + i * ROWS, bin, count);
        }
    }
}

/* A damaged step, or one that the worker lacks, stays empty. */
static sonde_err read_column(sonde_trial *trial, uint32_t id, const cli_range *range,
                             columns *c, size_t i, sonde_sketch *sketch, size_t *left_out,
                             sonde_diag *diag)
{
    const sonde_trial_at place = {.mode = range->mode,
                                  .step = c->steps[i],
                                  .worker = range->worker,
                                  .micro_batch = -1,
                                  .replica = -1};
    char line[SONDE_DIAG_LINE];
    sonde_err err = SONDE_OK;

    if (cli_interrupted()) {
        return diag->err = SONDE_EINTERRUPTED;
    }
    if ((sonde_trial_has(trial, id, &place) & (SONDE_HOW_RAW | SONDE_HOW_SKETCH)) == 0) {
        return SONDE_OK;
    }
    err = sonde_trial_sketch(trial, id, &place, sketch, diag);
    if (err == SONDE_EFORMAT || err == SONDE_EUNSUPPORTED) {
        cli_left_out(left_out, sonde_diag_line(diag, line, sizeof line));
        return SONDE_OK;
    }
    if (err != SONDE_OK) {
        return err;
    }
    add_column(c, sketch, i);
    return SONDE_OK;
}

static sonde_err read_columns(sonde_trial *trial, uint32_t id, const cli_range *range,
                              columns *c, size_t *left_out, sonde_diag *diag)
{
    sonde_sketch *sketch = malloc(sizeof *sketch);
    sonde_err err = SONDE_OK;

    if (sketch == NULL) {
        return cli_fail_memory(diag);
    }
    for (size_t i = 0; i < c->count; i++) {
        err = read_column(trial, id, range, c, i, sketch, left_out, diag);
        if (err != SONDE_OK) {
            break;
        }
    }
    free(sketch);
    return err;
}

/* Describes the elements that are not drawn. NULL: there are none. */
static const char *hidden(const columns *c, char *note, size_t size)
{
    size_t used = 0;

    if (c->zeros > 0) {
        used += (size_t)snprintf(note + used, size - used, ", %.3g %% zeros",
                                 100.0 * (double)c->zeros / (double)c->elements);
    }
    if (c->below > 0) {
        used +=
            (size_t)snprintf(note + used, size - used, ", %.3g %% below 2^%d",
                             100.0 * (double)c->below / (double)c->elements, c->floor);
    }
    if (c->nonfinite > 0) {
        used += (size_t)snprintf(note + used, size - used,
                                 ", %" PRIu64 " elements that are NaN or infinite",
                                 c->nonfinite);
    }
    return used > 0 ? note + 2 : NULL;
}

/* Draws a column for each step of the range with a sketch or a value, at most 1000,
 * evenly spaced. Sets the page's note. *left_out counts unreadable steps. */
static sonde_err draw_heat(sonde_trial *trial, uint32_t id, const cli_range *range,
                           const char *x_label, const sonde_plot_page *page,
                           size_t *left_out, const char *path, sonde_diag *diag)
{
    columns c = {0};
    char what[160], note[192];
    sonde_heatmap_plot plot = {
        .page = *page, .x_label = x_label, .y_label = "log2 |x|", .median = true};
    sonde_err err = SONDE_OK;

    SONDE__TRY_DONE(choose_steps(trial, id, range, &c, diag));
    SONDE__TRY_DONE(read_columns(trial, id, range, &c, left_out, diag));
    cut(&c);
    plot.counts = c.counts;
    plot.steps = c.steps;
    plot.count = c.count;
    plot.rows = (size_t)c.rows;
    plot.low = (double)c.first / PER_EXPONENT + SONDE_SKETCH_MIN_EXPONENT;
    plot.high = plot.low + (double)c.rows / PER_EXPONENT;
    if (hidden(&c, what, sizeof what) != NULL) {
        (void)snprintf(note, sizeof note, "Not drawn: %s", hidden(&c, what, sizeof what));
        plot.page.note = note;
    }
    err = sonde_plot_heatmap(path, &plot, diag);

done:
    free(c.counts);
    sonde_release(c.steps);
    return err;
}

enum { MOST_SERIES = 32 };

typedef struct plot_values {
    const char *stats, *steps, *mode, *out, *title;
    int64_t worker, width, height;
    double smooth;
    bool histogram, log_y;
} plot_values;

/* Points of one statistic of one tensor in one mode. */
typedef struct points {
    uint32_t id;
    size_t stat; /* which of those asked for */
    sonde_mode mode;
    cli_curve curve;
    char name[192];
} points;

typedef struct plotting {
    const plot_values *asked;
    sonde_trial *trial;
    cli_range range;
    cli_stats stats;
    uint32_t *ids; /* of the tensors, each once, in order of their arguments */
    size_t id_count;
    points series[MOST_SERIES];
    size_t series_count;
    size_t left_out;
    char title[256];
} plotting;

static sonde_plot_page make_page(const plotting *p)
{
    return (sonde_plot_page){
        .title = p->title,
        .width = p->asked->width != CLI_NOT_GIVEN ? (int)p->asked->width : 0,
        .height = p->asked->height != CLI_NOT_GIVEN ? (int)p->asked->height : 0};
}

static const char *x_label(const plotting *p)
{
    switch (p->range.mode) {
    case SONDE_MODE_TRAIN:
        return "training step";
    case SONDE_MODE_EVAL:
        return "step of evaluation";
    case SONDE_MODE_PREDICT:
        return "step of prediction";
    case SONDE_MODE_GLOBAL:
        break;
    }
    return "step";
}

/* --- curves ----------------------------------------------------------------------- */

/* The tensors of one more argument. */
static sonde_err add_selected(plotting *p, const char *text, sonde_diag *diag)
{
    uint32_t *ids = NULL, *all = NULL;
    size_t count = 0;
    SONDE__TRY(cli_select_some(p->trial, text, &ids, &count, diag));
    all = realloc(p->ids, (p->id_count + count) * sizeof *all);
    if (all != NULL) {
        p->ids = all;
    }
    for (size_t i = 0; all != NULL && i < count; i++) {
        bool known = false;

        for (size_t k = 0; k < p->id_count; k++) {
            known = known || all[k] == ids[i];
        }
        if (!known) {
            all[p->id_count++] = ids[i];
        }
    }
    sonde_release(ids);
    return all != NULL ? SONDE_OK : cli_fail_memory(diag);
}

/* Whether the curve shows the tensor itself: a single number without --stat. */
static bool is_whole(const plotting *p, uint32_t id)
{
    return p->asked->stats == NULL &&
           cli_is_number(sonde_catalogue_info(sonde_trial_catalogue(p->trial), id));
}

/* The series of a row's statistic. NULL: there are too many. */
static points *find_series(plotting *p, const sonde_export_row *row, size_t stat)
{
    for (size_t i = p->series_count; i-- > 0;) {
        points *one = &p->series[i];

        if (one->id == row->id && one->stat == stat && one->mode == row->mode) {
            return one;
        }
    }
    if (p->series_count == MOST_SERIES) {
        return NULL;
    }
    p->series[p->series_count] = (points){.id = row->id, .stat = stat, .mode = row->mode};
    return &p->series[p->series_count++];
}

static sonde_err add_point(void *user, const sonde_export_row *row, sonde_diag *diag)
{
    plotting *p = user;
    const bool global = p->range.mode == SONDE_MODE_GLOBAL;

    for (size_t i = 0; i < p->stats.count; i++) {
        points *one = NULL;

        if (row->values[i].how == 0) {
            continue;
        }
        one = find_series(p, row, i);
        if (one == NULL) {
            return sonde_diag_set(diag, SONDE_EINVAL, "plot",
                                  "fewer tensors or statistics", "more than 32 curves");
        }
        SONDE__TRY(cli_curve_add(&one->curve,
                                 (double)(global ? row->step : row->mode_step),
                                 row->values[i].number, diag));
    }
    return cli_interrupted() ? SONDE_EINTERRUPTED : SONDE_OK;
}

static sonde_err read_points(plotting *p, sonde_diag *diag)
{
    const sonde_export_options options =
        cli_rows(p->ids, p->id_count, &p->range, &p->stats, &p->left_out);
    const sonde_err err = sonde_trial_rows(p->trial, &options, true, add_point, p, diag);
    if (err == SONDE_EINTERRUPTED) {
        diag->err = err;
    }
    if (err != SONDE_OK || p->series_count > 0) {
        return err;
    }
    return cli_fail_nothing(p->trial, p->ids[0], &p->range, cli_stats_evidence(&p->stats),
                            diag);
}

/* "conv1.weight, std, eval": only the parts that differ. */
static void name_series(plotting *p)
{
    for (size_t i = 0; i < p->series_count; i++) {
        points *one = &p->series[i];
        const char *tensor =
            sonde_catalogue_info(sonde_trial_catalogue(p->trial), one->id)->name;
        const bool stat = p->stats.count > 1 && !is_whole(p, one->id);
        bool mode = false;

        for (size_t k = 0; k < p->series_count; k++) {
            mode = mode || (p->series[k].id == one->id && p->series[k].mode != one->mode);
        }
        (void)snprintf(one->name, sizeof one->name, "%.128s%s%s%s%s", tensor,
                       stat ? ", " : "", stat ? p->stats.item[one->stat].name : "",
                       mode ? ", " : "", mode ? sonde_mode_name(one->mode) : "");
    }
}

static sonde_err draw_curves(plotting *p, sonde_diag *diag)
{
    sonde_plot_series series[MOST_SERIES];
    const bool one_stat = p->stats.count == 1 && !is_whole(p, p->ids[0]);
    const sonde_curves_plot plot = {.page = make_page(p),
                                    .series = series,
                                    .count = p->series_count,
                                    .x_label = x_label(p),
                                    .y_label = one_stat ? p->stats.item[0].name : NULL,
                                    .smooth =
                                        isnan(p->asked->smooth) ? 0.0 : p->asked->smooth,
                                    .log_y = p->asked->log_y};

    name_series(p);
    for (size_t i = 0; i < p->series_count; i++) {
        points *one = &p->series[i];

        series[i] = cli_curve_series(one->name, &one->curve);
    }
    return sonde_plot_curves(p->asked->out, &plot, diag);
}

static sonde_err plot_curves(plotting *p, int argc, char **argv, sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    for (int i = 0; i < argc; i++) {
        SONDE__TRY_DONE(add_selected(p, argv[i], diag));
    }
    SONDE__TRY_DONE(read_points(p, diag));
    err = draw_curves(p, diag);

done:
    for (size_t i = 0; i < p->series_count; i++) {
        cli_curve_free(&p->series[i].curve);
    }
    free(p->ids);
    return err;
}

static sonde_err plot_heat(plotting *p, const char *name, sonde_diag *diag)
{
    sonde_plot_page page = make_page(p);
    uint32_t id = 0;

    SONDE__TRY(sonde_catalogue_find(sonde_trial_catalogue(p->trial), name, &id, diag));
    if (p->asked->title == NULL) {
        page.title = name;
    }
    return draw_heat(p->trial, id, &p->range, x_label(p), &page, &p->left_out,
                     p->asked->out, diag);
}

/* --- the command ------------------------------------------------------------------ */

static void make_title(plotting *p)
{
    sonde_run_info info;

    sonde_trial_describe(p->trial, &info);
    (void)snprintf(p->title, sizeof p->title, "%s",
                   p->asked->title != NULL ? p->asked->title
                   : info.model[0] != '\0' ? info.model
                                           : info.path);
}

static sonde_err check(plotting *p, int argc, sonde_diag *diag)
{
    if (p->asked->out == NULL) {
        return sonde_diag_set(diag, SONDE_EINVAL, "--out", "FILE.png or FILE.svg",
                              "is missing");
    }
    if (p->asked->histogram && (argc != 2 || p->asked->stats != NULL)) {
        return sonde_diag_set(diag, SONDE_EINVAL, "--histogram", "one tensor",
                              "several tensors, or --stat");
    }
    SONDE__TRY(sonde_plot_check_path(p->asked->out, diag));
    SONDE__TRY(cli_stats_parse(p->asked->stats, "mean", &p->stats, diag));
    for (size_t i = 0; i < p->stats.count; i++) {
        if (p->stats.item[i].kind == SONDE_REDUCTION_HASH) {
            return sonde_diag_set(diag, SONDE_EINVAL, "--stat",
                                  "a statistic that is a number", "a curve of hashes");
        }
    }
    return cli_range_parse(p->asked->mode, p->asked->steps, p->asked->worker, &p->range,
                           diag);
}

static int run_plot(const void *values, int argc, char **argv)
{
    plotting p = {.asked = values};
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;

    cli_catch_interrupt();
    SONDE__TRY_DONE(check(&p, argc, &diag));
    SONDE__TRY_DONE(sonde_trial_open(argv[0], NULL, &p.trial, &diag));
    make_title(&p);
    err = p.asked->histogram ? plot_heat(&p, argv[1], &diag)
                             : plot_curves(&p, argc - 1, argv + 1, &diag);

done:
    sonde_trial_close(p.trial);
    return err == SONDE_OK ? cli_left_out_end(p.left_out) : cli_fail(&diag);
}

#define OPTION(...) CLI_OPTION(plot_values, __VA_ARGS__)

static const cli_option plot_options[] = {
    OPTION("out", 'o', CLI_TEXT, "FILE", out,
           "write the picture to this .png or .svg file"),
    OPTION("stat", 0, CLI_TEXT, "STAT[,STAT...]", stats,
           "plot these statistics of larger tensors (mean)"),
    OPTION("histogram", 'g', CLI_FLAG, NULL, histogram,
           "plot a heat map of the magnitudes of one tensor"),
    OPTION("steps", 0, CLI_TEXT, "A:B", steps,
           "plot only steps A to B - 1; also A:, :B or A"),
    OPTION("mode", 'm', CLI_TEXT, "MODE", mode,
           "read the steps of train, eval or predict (global: all modes)"),
    OPTION("worker", 'w', CLI_COUNT, "RANK", worker,
           "read this worker (default: the first that has the tensor)"),
    OPTION("log", 0, CLI_FLAG, NULL, log_y, "use a logarithmic y axis"),
    OPTION("smooth", 0, CLI_REAL, "W", smooth,
           "add a moving average with weight W on the past, 0 to 1"),
    OPTION("title", 0, CLI_TEXT, "TEXT", title,
           "set the title (default: the name of the model)"),
    OPTION("width", 0, CLI_SIZE, "N", width, "make the picture N pixels wide (900)"),
    OPTION("height", 0, CLI_SIZE, "N", height, "make the picture N pixels high"),
};

const cli_command cli_plot = {
    .name = "plot",
    .arguments = "RUN TENSORS...",
    .summary = "plot recorded tensors over steps",
    .details =
        "Each of TENSORS is a selector; at most 32 curves. A heat map of a long run shows "
        "1000\nevenly spaced steps." CLI_STATISTICS,
    .examples =
        "  sonde plot runs/first @loss -o loss.png --smooth 0.9\n"
        "  sonde plot runs/first 'Gradient___*.weight' --stat l2 --log -o norms.svg\n"
        "  sonde plot runs/first Gradient___fc1.weight --histogram -o gradients.png",
    .options = plot_options,
    .option_count = CLI_COUNT_OF(plot_options),
    .least = 2,
    .most = -1,
    .values_size = sizeof(plot_values),
    .run = run_plot,
};

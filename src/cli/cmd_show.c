/*
 * cmd_show.c - `sonde show`: one tensor at one step as values, statistics or a histogram.
 */
#include "cli/run_reading.h"
#include "base/fail.h"

#include <sonde/print.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct show_values {
    const char *mode, *float_format;
    int64_t step, worker, micro_batch, replica;
    int64_t digits, edge, threshold;
    bool stats, histogram, ascii, json;
} show_values;

/* The tensor and step to show. */
typedef struct shown {
    const show_values *asked;
    sonde_trial *trial;
    const sonde_tensor_info *info;
    uint32_t id;
    sonde_trial_at at;
    char where[160]; /* the step and its time, as text */
    int64_t time;    /* 0: not known */
} shown;

/* --- JSON ------------------------------------------------------------------------- */

/* Leaves the object open. */
static sonde_json *begin_json(const shown *what)
{
    sonde_json *const json = cli_json();

    sonde_json_object(json, NULL);
    CLI_PUT(json, cli_text("name", what->info->name),
            cli_text("mode", sonde_mode_name(what->at.mode)),
            cli_int("step", what->at.step),
            what->time > 0 ? cli_time("time", what->time) : cli_none());
    return json;
}

static void end_json(sonde_json *json)
{
    sonde_json_end(json);
    cli_json_print("\n");
}

/* A complex number as the list of its parts. */
static void put_element(sonde_json *json, const char *key, sonde_dtype dtype,
                        const void *element)
{
    const sonde_dtype part = dtype == SONDE_C64 ? SONDE_F32 : SONDE_F64;
    const unsigned char *parts = element;
    int64_t whole = 0;

    if (dtype == SONDE_U64 || dtype == SONDE_I64) { /* exact beyond 2^53 too */
        memcpy(&whole, element, sizeof whole);
        sonde_json_format(json, key, dtype == SONDE_I64 ? "%" PRId64 : "%" PRIu64, whole);
    } else if (sonde_dtype_is_complex(dtype)) {
        sonde_json_list(json, key);
        sonde_json_real(json, NULL, sonde_element_get(part, parts));
        sonde_json_real(json, NULL,
                        sonde_element_get(part, parts + sonde_dtype_size(part)));
        sonde_json_end(json);
    } else {
        sonde_json_real(json, key, sonde_element_get(dtype, element));
    }
}

/* Nested lists, innermost last. */
static void put_values(sonde_json *json, const char *key, const sonde_view *view, int dim,
                       int64_t *index)
{
    if (dim == view->rank) {
        put_element(json, key, view->dtype, sonde_view_at(view, index));
        return;
    }
    sonde_json_list(json, key);
    for (int64_t i = 0; i < view->shape[dim]; i++) {
        index[dim] = i;
        put_values(json, NULL, view, dim + 1, index);
    }
    sonde_json_end(json);
    cli_json_print(""); /* large tensors do not gather in memory */
}

/* --- values ----------------------------------------------------------------------- */

static sonde_err print_options(const show_values *asked, sonde_print_options *options,
                               sonde_diag *diag)
{
    *options = sonde_print_options_default();
    options->max_line_width = cli_columns();
    if (asked->digits != CLI_NOT_GIVEN) {
        options->digits = (int)asked->digits;
    }
    if (asked->edge != CLI_NOT_GIVEN) {
        options->edge_items = (int)asked->edge;
    }
    if (asked->threshold != CLI_NOT_GIVEN) {
        options->summarize_threshold = asked->threshold;
    }
    if (asked->float_format != NULL) {
        SONDE__TRY(
            sonde_float_format_parse(asked->float_format, &options->float_format, diag));
    }
    return sonde_print_options_check(options, diag);
}

static sonde_err show_elements(const shown *what, sonde_diag *diag)
{
    sonde_print_options options;
    sonde_text text = {0};
    sonde_view view;
    char shape[96];
    sonde_err err = SONDE_OK;

    SONDE__TRY(print_options(what->asked, &options, diag));
    SONDE__TRY(sonde_trial_value(what->trial, what->id, &what->at, &view, diag));
    (void)sonde_shape_text(view.rank, view.shape, shape, sizeof shape);
    if (what->asked->json) {
        int64_t index[SONDE_MAX_DIMS] = {0};

        sonde_json *const json = begin_json(what);

        sonde_json_string(json, "dtype", sonde_dtype_name(view.dtype));
        put_values(json, "values", &view, 0, index);
        end_json(json);
        return SONDE_OK;
    }
    err = sonde_format_tensor(&view, &options, strlen(what->info->name) + 2, &text);
    if (err != SONDE_OK) {
        sonde_text_fini(&text);
        return cli_fail_memory(diag);
    }
    (void)printf("%s: %s %s\n%s: %s\n", what->where, sonde_dtype_name(view.dtype), shape,
                 what->info->name, text.data);
    sonde_text_fini(&text);
    return SONDE_OK;
}

/* --- statistics ------------------------------------------------------------------- */

static sonde_err show_stats(const shown *what, sonde_diag *diag)
{
    sonde_vitals vitals;
    sonde_json *json = NULL;

    SONDE__TRY(sonde_trial_vitals(what->trial, what->id, &what->at, &vitals, diag));
    if (what->asked->json) {
        json = begin_json(what);
    } else {
        (void)printf("%s\n%s\n", what->where, what->info->name);
    }
    for (int s = 0; s < SONDE_STAT_ENTRIES; s++) {
        const double value = sonde_vitals_get(&vitals, (sonde_stat)s);
        const char *name = sonde_stat_name((sonde_stat)s);

        if (sonde_vitals_are_norms(&vitals) && !sonde_stat_is_norm((sonde_stat)s)) {
            continue;
        }
        if (json != NULL) {
            sonde_json_real(json, name, value);
        } else {
            (void)printf("  %-10s %.9g\n", name, value);
        }
    }
    if (json != NULL) {
        end_json(json);
    }
    return SONDE_OK;
}

/* --- histogram -------------------------------------------------------------------- */

enum {
    EXPONENTS = SONDE_SKETCH_MAX_EXPONENT - SONDE_SKETCH_MIN_EXPONENT + 1,
    PER_EXPONENT = SONDE_SKETCH_BINS / EXPONENTS,
    MOST_ROWS = 24,
    MOST_BARS = MOST_ROWS + 5
};

/* Elements by the exponent of their magnitude: 2^(MIN + i) <= |x| < 2^(MIN + i + 1). */
typedef struct exponents {
    uint64_t count[EXPONENTS];
    int first, last; /* with a count above 0; first > last: none */
} exponents;

static void count_exponents(const sonde_sketch *sketch, exponents *out)
{
    *out = (exponents){.first = EXPONENTS, .last = -1};
    for (int bin = 0; bin < SONDE_SKETCH_BINS; bin++) {
        const uint64_t here = sketch->positive[bin] + sketch->negative[bin];
        const int e = bin / PER_EXPONENT;

        out->count[e] += here;
        if (here > 0) {
            out->first = e < out->first ? e : out->first;
            out->last = e;
        }
    }
}

/* Blocks in eighths of a cell; '#' in ASCII. */
static void print_bar(uint64_t count, uint64_t most, int width, bool ascii)
{
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    const double cells = most > 0 ? (double)width * (double)count / (double)most : 0.0;
    int parts = (int)(8.0 * cells + 0.5);

    if (ascii) {
        parts = (int)(cells + 0.5) * 8;
    }
    if (count > 0 && parts == 0) {
        parts = ascii ? 8 : 1; /* a small count stays visible */
    }
    for (int i = 0; i < parts / 8; i++) {
        (void)fputs(ascii ? "#" : "█", stdout);
    }
    (void)fputs(eighths[parts % 8], stdout);
}

typedef struct bar {
    char label[32];
    uint64_t count;
} bar;

/* Bars for NaN, infinities and zeros, if any, then one for each exponent or several. */
static size_t make_bars(const sonde_sketch *sketch, bar bars[MOST_BARS])
{
    const bar apart[] = {{"nan", sketch->nan},
                         {"-inf", sketch->neg_inf},
                         {"inf", sketch->pos_inf},
                         {"0", sketch->zero}};
    exponents found;
    size_t n = 0;
    int step = 1;

    for (size_t i = 0; i < CLI_COUNT_OF(apart); i++) {
        if (apart[i].count > 0) {
            bars[n++] = apart[i];
        }
    }
    count_exponents(sketch, &found);
    step = (found.last - found.first) / MOST_ROWS + 1;
    for (int e = found.first; e <= found.last; e += step) {
        bar *one = &bars[n++];

        one->count = 0;
        for (int i = e; i < e + step && i < EXPONENTS; i++) {
            one->count += found.count[i];
        }
        (void)snprintf(one->label, sizeof one->label, "2^%d ... 2^%d",
                       e + SONDE_SKETCH_MIN_EXPONENT,
                       e + step + SONDE_SKETCH_MIN_EXPONENT);
    }
    return n;
}

static void print_bars(const shown *what, const sonde_sketch *sketch)
{
    const bool ascii = what->asked->ascii || !cli_is_utf8();
    const int width = cli_columns() - 41 > 8 ? cli_columns() - 41 : 8;
    bar bars[MOST_BARS];
    const size_t count = make_bars(sketch, bars);
    uint64_t most = 0;

    for (size_t i = 0; i < count; i++) {
        most = bars[i].count > most ? bars[i].count : most;
    }
    (void)printf("%s\n%s: magnitudes of %" PRIu64 " elements\n", what->where,
                 what->info->name, sketch->count);
    for (size_t i = 0; i < count; i++) {
        (void)printf("  %-16s %10" PRIu64 " %6.2f %%  ", bars[i].label, bars[i].count,
                     100.0 * (double)bars[i].count / (double)sketch->count);
        print_bar(bars[i].count, most, width, ascii);
        (void)putchar('\n');
    }
}

static void print_bars_json(const shown *what, const sonde_sketch *sketch)
{
    sonde_json *const json = begin_json(what);

    CLI_PUT(json, cli_uint("count", sketch->count), cli_uint("nan", sketch->nan),
            cli_uint("pos_inf", sketch->pos_inf), cli_uint("neg_inf", sketch->neg_inf),
            cli_uint("zero", sketch->zero));
    sonde_json_list(json, "bins");
    for (int bin = 0; bin < SONDE_SKETCH_BINS; bin++) {
        double lower = 0.0, upper = 0.0;

        if (sketch->positive[bin] + sketch->negative[bin] == 0) {
            continue;
        }
        sonde_sketch_bounds(bin, &lower, &upper);
        sonde_json_object(json, NULL);
        CLI_PUT(json, cli_exact("lower", lower), cli_exact("upper", upper),
                cli_uint("positive", sketch->positive[bin]),
                cli_uint("negative", sketch->negative[bin]));
        sonde_json_end(json);
    }
    sonde_json_end(json);
    end_json(json);
}

static sonde_err show_histogram(const shown *what, sonde_diag *diag)
{
    sonde_sketch *sketch = malloc(sizeof *sketch);
    sonde_err err = SONDE_OK;

    if (sketch == NULL) {
        return cli_fail_memory(diag);
    }
    SONDE__TRY_DONE(sonde_trial_sketch(what->trial, what->id, &what->at, sketch, diag));
    if (what->asked->json) {
        print_bars_json(what, sketch);
    } else {
        print_bars(what, sketch);
    }

done:
    free(sketch);
    return err;
}

/* --- the command ------------------------------------------------------------------ */

/* The kinds of records that can be shown. */
static unsigned needed_kinds(const show_values *values)
{
    return values->histogram ? SONDE_HOW_RAW | SONDE_HOW_SKETCH
           : values->stats   ? SONDE_HOW_RAW | SONDE_HOW_VITALS | SONDE_HOW_NORMS
                             : SONDE_HOW_RAW;
}

/* Statistics and histograms cover all micro-batches, values one. */
static int choose_part(int64_t given, const show_values *asked)
{
    const bool merged = asked->stats || asked->histogram;

    return given != CLI_NOT_GIVEN ? (int)given : merged ? -1 : 0;
}

/* "step 100 (train 90), 2026-01-31T12:00:00Z" */
static void set_where(shown *what)
{
    char step[96], moment[32];

    (void)cli_step_text(what->trial, what->at.mode, what->at.step, step, sizeof step);
    if (sonde_trial_step_time(what->trial, what->at.mode, what->at.step, what->at.worker,
                              &what->time)) {
        (void)snprintf(what->where, sizeof what->where, "%s, %s", step,
                       cli_moment_text(what->time, moment, sizeof moment));
    } else {
        (void)snprintf(what->where, sizeof what->where, "%s", step);
    }
}

static sonde_err find(shown *what, const char *name, sonde_diag *diag)
{
    const show_values *values = what->asked;
    const sonde_catalogue *catalogue = sonde_trial_catalogue(what->trial);
    cli_range range;
    sonde_err err = SONDE_OK;

    SONDE__TRY(cli_range_parse(values->mode, NULL, values->worker, &range, diag));
    SONDE__TRY(sonde_catalogue_find(catalogue, name, &what->id, diag));
    what->info = sonde_catalogue_info(catalogue, what->id);
    what->at = (sonde_trial_at){.mode = range.mode,
                                .step = values->step,
                                .worker = range.worker,
                                .micro_batch = choose_part(values->micro_batch, values),
                                .replica = choose_part(values->replica, values)};
    if (values->step == CLI_NOT_GIVEN) {
        err = cli_last_step(what->trial, what->id, &range, needed_kinds(values),
                            &what->at.step, diag);
    } else if ((sonde_trial_has(what->trial, what->id, &what->at) &
                needed_kinds(values)) == 0) {
        range.begin = values->step;
        range.end = values->step + 1;
        err = cli_fail_nothing(what->trial, what->id, &range, needed_kinds(values), diag);
    }
    set_where(what);
    return err;
}

static int run_show(const void *values, int argc, char **argv)
{
    shown what = {.asked = values};
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;

    (void)argc;
    if (what.asked->stats && what.asked->histogram) {
        return cli_fail_text("show: --summary and --histogram (expected one of them)");
    }
    SONDE__TRY_DONE(sonde_trial_open(argv[0], NULL, &what.trial, &diag));
    SONDE__TRY_DONE(find(&what, argv[1], &diag));
    err = what.asked->histogram ? show_histogram(&what, &diag)
          : what.asked->stats   ? show_stats(&what, &diag)
                                : show_elements(&what, &diag);

done:
    sonde_trial_close(what.trial);
    return err == SONDE_OK ? CLI_OK : cli_fail(&diag);
}

#define OPTION(...) CLI_OPTION(show_values, __VA_ARGS__)

static const cli_option show_options[] = {
    OPTION("step", 0, CLI_SEED, "N", step,
           "read this step (default: the last one saved)"),
    OPTION("mode", 'm', CLI_TEXT, "MODE", mode,
           "read the steps of train, eval or predict (global: all modes)"),
    OPTION("summary", 0, CLI_FLAG, NULL, stats, "print all statistics of the tensor"),
    OPTION("histogram", 'g', CLI_FLAG, NULL, histogram,
           "print a histogram of magnitudes by powers of two"),
    OPTION("micro-batch", 0, CLI_COUNT, "K", micro_batch,
           "read this micro-batch (default: 0 for values, else all)"),
    OPTION("replica", 0, CLI_COUNT, "R", replica,
           "read this replica (default: 0 for values, else all)"),
    OPTION("worker", 'w', CLI_COUNT, "RANK", worker,
           "read this worker (default: the first that has the tensor)"),
    OPTION("digits", 0, CLI_COUNT, "N", digits, "print N significant digits (4); 0: all"),
    OPTION("float-format", 0, CLI_TEXT, "FORM", float_format,
           "print floats as auto, fixed, scientific or none"),
    OPTION("threshold", 0, CLI_COUNT, "N", threshold,
           "shorten tensors of more than N elements (1000); 0: never"),
    OPTION("edge", 0, CLI_COUNT, "N", edge,
           "print N elements at each end of a shortened dimension (3)"),
    OPTION("ascii", 0, CLI_FLAG, NULL, ascii, "draw the bars of a histogram in ASCII"),
    OPTION("format", 0, CLI_FORMAT, "text|json", json,
           "print text, or one JSON object (text)"),
};

const cli_command cli_show = {
    .name = "show",
    .arguments = "RUN TENSOR",
    .summary = "print a recorded tensor, its statistics or its histogram",
    .details =
        "Statistics and histograms are read as saved, or computed from the saved value, with "
        "the\nsame result.",
    .examples = "  sonde show runs/first conv1.weight\n"
                "  sonde show runs/first Gradient___fc1.weight --step 300 --histogram\n"
                "  sonde show runs/first loss --mode eval --summary",
    .options = show_options,
    .option_count = CLI_COUNT_OF(show_options),
    .least = 2,
    .most = 2,
    .values_size = sizeof(show_values),
    .run = run_show,
};

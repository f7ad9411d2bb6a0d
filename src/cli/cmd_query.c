/*
 * cmd_query.c - `sonde query`: statistics of tensors over steps, as a table, CSV or JSON.
 */
#include "cli/run_reading.h"
#include "base/fail.h"

#include <inttypes.h>
#include <string.h>

typedef struct query_values {
    const char *stats, *steps, *mode, *format;
    int64_t worker;
} query_values;

typedef enum query_format {
    QUERY_TABLE = 0,
    QUERY_CSV = 1,
    QUERY_JSON = 2,
    QUERY_JSONL = 3
} query_format;

typedef struct query {
    query_format format;
    cli_stats stats;
    int name_width;
    size_t rows, left_out;
    size_t answered[CLI_STATS_MOST];    /* rows with this statistic */
    size_t approximate[CLI_STATS_MOST]; /* of them, from histograms */
    size_t steps;                       /* rows, including those without any statistic */
    sonde_text text;
} query;

static sonde_err parse_format(const char *text, query_format *format, sonde_diag *diag)
{
    static const char *const names[] = {
        [QUERY_TABLE] = "text",
        [QUERY_CSV] = "csv",
        [QUERY_JSON] = "json",
        [QUERY_JSONL] = "jsonl",
    };

    for (size_t i = 0; i < CLI_COUNT_OF(names); i++) {
        if (text == NULL || strcmp(text, names[i]) == 0) {
            *format = (query_format)i;
            return SONDE_OK;
        }
    }
    return sonde_diag_set(diag, SONDE_EINVAL, "--format", "text, csv, json or jsonl",
                          "'%s'", text);
}

/* --- rows ------------------------------------------------------------------------- */

static int column_width(const sonde_reduction *reduction)
{
    const int least = reduction->kind == SONDE_REDUCTION_HASH ? 16 : 13;
    const int letters = cli_letters(reduction->name);

    return letters > least ? letters : least;
}

static void print_table_head(const query *q)
{
    (void)printf("%10s  %-7s  %-*s", "step", "mode", q->name_width, "tensor");
    for (size_t i = 0; i < q->stats.count; i++) {
        (void)printf("  %*s", column_width(&q->stats.item[i]), q->stats.item[i].name);
    }
    (void)putchar('\n');
}

static void print_table_row(const query *q, const sonde_export_row *row)
{
    (void)printf("%10" PRId64 "  %-7s  %-*s", row->step, sonde_mode_name(row->mode),
                 cli_field(row->tensor, q->name_width), row->tensor);
    for (size_t i = 0; i < q->stats.count; i++) {
        char text[64];

        (void)printf(
            "  %*s", column_width(&q->stats.item[i]),
            cli_reduced_text(&q->stats.item[i], &row->values[i], text, sizeof text));
    }
    (void)putchar('\n');
}

static sonde_err print_text_row(query *q, const sonde_export_row *row, sonde_diag *diag)
{
    const sonde_export_kind kind =
        q->format == QUERY_CSV ? SONDE_EXPORT_CSV : SONDE_EXPORT_JSONL;

    q->text.length = 0;
    SONDE__TRY(
        sonde_export_row_text(kind, row, q->stats.item, q->stats.count, &q->text, diag));
    if (q->format == QUERY_JSON) { /* the comma comes before the newline */
        (void)printf("%s\n%.*s", q->rows > 0 ? "," : "", (int)(q->text.length - 1),
                     q->text.data);
    } else {
        (void)fwrite(q->text.data, 1, q->text.length, stdout);
    }
    return SONDE_OK;
}

/* Whether the row has any statistic. */
static bool count_answers(query *q, const sonde_export_row *row)
{
    bool any = false;

    for (size_t i = 0; i < q->stats.count; i++) {
        q->answered[i] += row->values[i].how != 0;
        q->approximate[i] += row->values[i].how == SONDE_HOW_SKETCH;
        any = any || row->values[i].how != 0;
    }
    q->steps++;
    return any;
}

/* What a statistic is computed from, besides the value. */
static const char *other_evidence(const sonde_reduction *reduction)
{
    const unsigned how = sonde_reduction_evidence(reduction);

    return (how & SONDE_HOW_SKETCH) != 0   ? " or its histogram"
           : (how & SONDE_HOW_NORMS) != 0  ? ", its vital signs or its norms"
           : (how & SONDE_HOW_VITALS) != 0 ? " or its vital signs"
                                           : "";
}

/* Warns of statistics that are missing or approximate. */
static void warn_of_answers(const query *q)
{
    for (size_t i = 0; i < q->stats.count; i++) {
        const sonde_reduction *reduction = &q->stats.item[i];

        if (q->answered[i] < q->steps) {
            cli_warn("%s needs the value%s, saved at %zu of %zu steps", reduction->name,
                     other_evidence(reduction), q->answered[i], q->steps);
        }
        if (q->approximate[i] > 0) {
            cli_warn(
                "%s is computed from histograms at %zu of %zu steps, with an error of "
                "up to %g %%",
                reduction->name, q->approximate[i], q->steps, 100.0 * SONDE_SKETCH_ERROR);
        }
    }
}

static sonde_err print_row(void *user, const sonde_export_row *row, sonde_diag *diag)
{
    query *q = user;
    sonde_err err = SONDE_OK;

    if (!count_answers(q, row)) {
        return SONDE_OK;
    }
    if (q->format == QUERY_TABLE) {
        print_table_row(q, row);
    } else {
        err = print_text_row(q, row, diag);
    }
    q->rows++;
    return err;
}

static sonde_err print_rows(query *q, sonde_trial *trial,
                            const sonde_export_options *options, sonde_diag *diag)
{
    if (q->format == QUERY_TABLE) {
        print_table_head(q);
    } else if (q->format == QUERY_CSV) {
        SONDE__TRY(print_text_row(q, NULL, diag));
    } else if (q->format == QUERY_JSON) {
        (void)putchar('[');
    }
    SONDE__TRY(sonde_trial_rows(trial, options, true, print_row, q, diag));
    if (q->format == QUERY_JSON) {
        (void)puts("\n]");
    }
    warn_of_answers(q);
    return SONDE_OK;
}

/* --- the command ------------------------------------------------------------------ */

/* Finds the longest name, and fails if there is nothing to print. */
static sonde_err prepare(query *q, sonde_trial *trial, const uint32_t *ids, size_t count,
                         const cli_range *range, sonde_diag *diag)
{
    const unsigned how = cli_stats_evidence(&q->stats);
    bool any = count == 0;

    for (size_t i = 0; i < count; i++) {
        const int length =
            cli_letters(sonde_catalogue_info(sonde_trial_catalogue(trial), ids[i])->name);

        q->name_width = length > q->name_width ? length : q->name_width;
    }
    for (size_t i = 0; i < count && !any; i++) {
        int64_t *steps = NULL;
        size_t steps_count = 0;
        SONDE__TRY(sonde_trial_tensor_steps(trial, ids[i], range->mode, how, &steps,
                                            &steps_count, diag));
        for (size_t k = 0; k < steps_count && !any; k++) {
            any = steps[k] >= range->begin && (range->end == 0 || steps[k] < range->end);
        }
        sonde_release(steps);
    }
    return any ? SONDE_OK : cli_fail_nothing(trial, ids[0], range, how, diag);
}

static sonde_err answer(const query_values *values, const char *run, const char *selector,
                        query *q, sonde_diag *diag)
{
    sonde_trial *trial = NULL;
    uint32_t *ids = NULL;
    size_t count = 0;
    cli_range range;
    sonde_err err = SONDE_OK;

    SONDE__TRY_DONE(parse_format(values->format, &q->format, diag));
    SONDE__TRY_DONE(cli_stats_parse(values->stats, "mean,std,min,max", &q->stats, diag));
    SONDE__TRY_DONE(
        cli_range_parse(values->mode, values->steps, values->worker, &range, diag));
    SONDE__TRY_DONE(sonde_trial_open(run, NULL, &trial, diag));
    SONDE__TRY_DONE(cli_select(trial, selector, &ids, &count, diag));
    SONDE__TRY_DONE(prepare(q, trial, ids, count, &range, diag));
    const sonde_export_options options =
        cli_rows(ids, count, &range, &q->stats, &q->left_out);

    err = print_rows(q, trial, &options, diag);

done:
    sonde_release(ids);
    sonde_trial_close(trial);
    return err;
}

static int run_query(const void *values, int argc, char **argv)
{
    query q = {.name_width = cli_letters("tensor")};
    sonde_diag diag = {0};
    const sonde_err err = answer(values, argv[0], argv[1], &q, &diag);

    (void)argc;
    sonde_text_fini(&q.text);
    return err == SONDE_OK ? cli_left_out_end(q.left_out) : cli_fail(&diag);
}

#define OPTION(...) CLI_OPTION(query_values, __VA_ARGS__)

static const cli_option query_options[] = {
    OPTION("stat", 0, CLI_TEXT, "STAT[,STAT...]", stats,
           "print these statistics (mean,std,min,max)"),
    OPTION("steps", 0, CLI_TEXT, "A:B", steps,
           "read only steps A to B - 1; also A:, :B or A"),
    OPTION("mode", 'm', CLI_TEXT, "MODE", mode,
           "read the steps of train, eval or predict (global: all modes)"),
    OPTION("worker", 'w', CLI_COUNT, "RANK", worker,
           "read this worker (default: the first that has the tensor)"),
    OPTION("format", 0, CLI_TEXT, "FORMAT", format,
           "print text, csv, json or jsonl (text)"),
};

const cli_command cli_query = {
    .name = "query",
    .arguments = "RUN TENSORS",
    .summary = "print statistics of recorded tensors over steps",
    .details =
        "TENSORS is a selector: a name, a glob, re:REGEX, @role, module:NAME, or several,\n"
        "separated by commas. Prints one row for each tensor and step, merged over\n"
        "micro-batches and replicas. In JSON, NaN and infinities are the strings \"NaN\",\n"
        "\"Infinity\" and \"-Infinity\"." CLI_STATISTICS,
    .examples =
        "  sonde query runs/first 'Gradient___*.weight' --stat l2,zero\n"
        "  sonde query runs/first @loss --mode train --steps 100:200 --format csv",
    .options = query_options,
    .option_count = CLI_COUNT_OF(query_options),
    .least = 2,
    .most = 2,
    .values_size = sizeof(query_values),
    .run = run_query,
};

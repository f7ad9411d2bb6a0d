/*
 * cmd_export.c - `sonde export`: writes a run for TensorBoard, NumPy, safetensors, CSV or
 * JSON.
 */
#include "cli/cli_job.h"
#include "base/fail.h"
#include "cli/run_reading.h"

#include <sonde/nn/onnx.h>

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

typedef struct export_values {
    const char *format, *steps, *mode, *stats, *weights;
    int64_t worker, elements;
    bool values, quiet;
} export_values;

typedef struct exporting {
    cli_progress progress;
    size_t left_out;
} exporting;

static bool on_progress(void *user, uint64_t done, uint64_t total)
{
    exporting *work = user;

    if (total > 0) {
        work->progress.total = (int64_t)total;
        cli_progress_update(&work->progress, (int64_t)done, NULL);
    }
    return !cli_interrupted();
}

static void on_left_out(void *user, const char *text)
{
    exporting *work = user;

    cli_left_out(&work->left_out, text);
}

static void print_report(const sonde_export_report *report, const char *out)
{
    const struct {
        uint64_t count;
        const char *what;
    } parts[] = {
        {report->values, "values"},     {report->rows, "rows"},
        {report->scalars, "scalars"},   {report->histograms, "histograms"},
        {report->left_out, "left out"},
    };

    (void)printf("%s: %" PRIu64 " tensors", out, report->tensors);
    for (size_t i = 0; i < CLI_COUNT_OF(parts); i++) {
        if (parts[i].count > 0) {
            (void)printf(", %" PRIu64 " %s", parts[i].count, parts[i].what);
        }
    }
    (void)putchar('\n');
}

/* Refuses what the kind of export would ignore. */
static sonde_err check_kind(const export_values *values, sonde_export_kind kind,
                            const char *out, sonde_diag *diag)
{
    const bool raw = kind == SONDE_EXPORT_NPZ || kind == SONDE_EXPORT_SAFETENSORS;
    const bool text = kind == SONDE_EXPORT_CSV || kind == SONDE_EXPORT_JSONL;
    const size_t length = strlen(out);

    if (values->weights != NULL) {
        return sonde_diag_set(diag, SONDE_EINVAL, "--weights", "--format onnx",
                              "not for %s", values->format);
    }
    if (values->stats != NULL && raw) {
        return sonde_diag_set(diag, SONDE_EINVAL, "--stat", "tensorboard, csv or jsonl",
                              "not for %s", values->format);
    }
    if (values->values && !text) {
        return sonde_diag_set(diag, SONDE_EINVAL, "--values", "csv or jsonl",
                              "not for %s", values->format);
    }
    if (kind != SONDE_EXPORT_TENSORBOARD && length > 0 && out[length - 1] == '/') {
        return sonde_diag_set(diag, SONDE_EINVAL, out, "a file", "names a folder");
    }
    return SONDE_OK;
}

/* Sets all options except the tensors. */
static sonde_err set_up(const export_values *values, const char *out,
                        sonde_export_kind *kind, cli_stats *stats,
                        sonde_export_options *options, sonde_diag *diag)
{
    cli_range range;
    sonde_err err = SONDE_OK;

    if (values->format == NULL) {
        return sonde_diag_set(diag, SONDE_EINVAL, "--format", SONDE_EXPORT_NAMES,
                              "is missing");
    }
    err = sonde_export_kind_parse(values->format, kind, diag);
    if (err != SONDE_OK) {
        (void)snprintf(diag->where, sizeof diag->where, "--format");
        return err;
    }
    SONDE__TRY(check_kind(values, *kind, out, diag));
    SONDE__TRY(
        cli_range_parse(values->mode, values->steps, values->worker, &range, diag));
    if (values->stats != NULL) {
        SONDE__TRY(cli_stats_parse(values->stats, NULL, stats, diag));
        options->stats = stats->item;
        options->stat_count = stats->count;
    }
    if (values->values && values->stats != NULL) {
        return sonde_diag_set(diag, SONDE_EINVAL, "--values", "one of them",
                              "and --stat");
    }
    if (!values->values && values->elements != CLI_NOT_GIVEN) {
        return sonde_diag_set(diag, SONDE_EINVAL, "--elements", "both",
                              "without --values");
    }
    options->values = values->values;
    options->elements = values->elements != CLI_NOT_GIVEN ? values->elements : 0;
    options->mode = range.mode;
    options->begin = range.begin;
    options->end = range.end;
    options->worker = range.worker;
    return SONDE_OK;
}

static sonde_err export_run(const export_values *values, int argc, char **argv,
                            exporting *work, sonde_diag *diag)
{
    sonde_export_options options = sonde_export_options_default();
    sonde_export_kind kind = SONDE_EXPORT_TENSORBOARD;
    sonde_export_report report = {0};
    sonde_trial *trial = NULL;
    uint32_t *ids = NULL;
    cli_stats stats;
    sonde_err err = SONDE_OK;

    SONDE__TRY_DONE(set_up(values, argv[1], &kind, &stats, &options, diag));
    SONDE__TRY_DONE(sonde_trial_open(argv[0], NULL, &trial, diag));
    if (argc > 2) {
        SONDE__TRY_DONE(cli_select_some(trial, argv[2], &ids, &options.id_count, diag));
        options.ids = ids;
    }
    options.progress = on_progress;
    options.report_line = on_left_out;
    options.user = work;
    cli_progress_begin(&work->progress, "Export", "parts", 0, values->quiet);
    err = sonde_trial_export(trial, kind, argv[1], &options, &report, diag);
    cli_progress_end(&work->progress);
    if (err == SONDE_OK && !values->quiet) {
        print_report(&report, argv[1]);
    }

done:
    sonde_release(ids);
    sonde_trial_close(trial);
    return err;
}

/* Refuses what a model does not have, and an OUT that exists. */
static sonde_err check_model(const export_values *values, int argc, char **argv,
                             sonde_diag *diag)
{
    const struct {
        const char *name;
        bool given;
    } options[] = {
        {"--steps", values->steps != NULL},
        {"--mode", values->mode != NULL},
        {"--stat", values->stats != NULL},
        {"--values", values->values},
        {"--elements", values->elements != CLI_NOT_GIVEN},
        {"--worker", values->worker != CLI_NOT_GIVEN},
        {"TENSORS", argc > 2},
    };
    struct stat about;

    for (size_t i = 0; i < CLI_COUNT_OF(options); i++) {
        if (options[i].given) {
            return sonde_diag_set(diag, SONDE_EINVAL, options[i].name, NULL,
                                  "not for onnx");
        }
    }
    if (lstat(argv[1], &about) == 0) {
        return sonde_diag_set(diag, SONDE_EEXIST, argv[1], "a path where nothing is",
                              "exists already");
    }
    return SONDE_OK;
}

/* A model with its weights, as ONNX. */
static sonde_err export_model(const export_values *values, int argc, char **argv,
                              sonde_diag *diag)
{
    sonde_nn_job *job = NULL;
    sonde_nn_model *model = NULL;
    sonde_err err = SONDE_OK;

    SONDE__TRY(check_model(values, argc, argv, diag));
    SONDE__TRY(cli_job_open(argv[0], &job, diag));
    SONDE__TRY_DONE(sonde_nn_job_build(job, &model, diag));
    SONDE__TRY_DONE(cli_weights_load(job, model, values->weights, argv[0], diag));
    err = sonde_nn_onnx_save(model, argv[1], diag);
    if (err == SONDE_OK && !values->quiet) {
        (void)printf("%s: %zu parameters\n", argv[1],
                     sonde_nn_model_get_info(model).parameter_count);
    }

done:
    sonde_nn_model_destroy(model);
    sonde_nn_job_destroy(job);
    return err;
}

static int run_export(const void *values, int argc, char **argv)
{
    const export_values *asked = values;
    exporting work = {.left_out = 0};
    sonde_diag diag = {0};

    cli_catch_interrupt();
    if (asked->format != NULL && strcmp(asked->format, "onnx") == 0) {
        return export_model(asked, argc, argv, &diag) == SONDE_OK ? CLI_OK
                                                                  : cli_fail(&diag);
    }
    if (export_run(asked, argc, argv, &work, &diag) != SONDE_OK) {
        return cli_fail(&diag);
    }
    return cli_left_out_end(work.left_out);
}

#define OPTION(...) CLI_OPTION(export_values, __VA_ARGS__)

static const cli_option export_options[] = {
    OPTION("format", 0, CLI_TEXT, "FORMAT", format,
           "write " SONDE_EXPORT_NAMES ", or onnx"),
    OPTION("steps", 0, CLI_TEXT, "A:B", steps,
           "export only steps A to B - 1; also A:, :B or A"),
    OPTION("mode", 'm', CLI_TEXT, "MODE", mode,
           "export only train, eval or predict, with its own step count"),
    OPTION("stat", 0, CLI_TEXT, "STAT[,STAT...]", stats,
           "write these statistics (tensorboard, csv, jsonl)"),
    OPTION("values", 0, CLI_FLAG, NULL, values,
           "write raw values instead of statistics (csv, jsonl)"),
    OPTION("elements", 0, CLI_COUNT, "N", elements,
           "with --values: write the first N elements of each value (all)"),
    OPTION("worker", 'w', CLI_COUNT, "RANK", worker, "export only this worker"),
    OPTION("weights", 0, CLI_TEXT, "FILE", weights,
           "for onnx: load these weights (sonde-out/model.safetensors)"),
    OPTION("quiet", 'q', CLI_FLAG, NULL, quiet, "print only errors"),
};

const cli_command cli_export = {
    .name = "export",
    .arguments = "RUN OUT [TENSORS]",
    .summary = "write a run in another format",
    .details =
        "tensorboard       a folder with scalars and histograms of each mode\n"
        "npz, safetensors  raw values, named like 0000000100/train/conv1.weight\n"
        "csv, jsonl        statistics, a row for each tensor and step; with --values raw\n"
        "                  values: a line for each element, or an object for each value\n"
        "onnx              a model for inference, with saved weights: RUN is then a\n"
        "                  built-in model, a job file or an ONNX file\n\n"
        "Without --stat, tensorboard gets mean, std, min, max, l2 and nonfinite, csv and "
        "jsonl\nall statistics. numpy has no float8 or bfloat16: npz stores float8 as "
        "codes (uint8)\nand bfloat16 as float32.\n\n"
        "OUT must not exist; it is written completely or not at all. Damaged values are\n"
        "omitted and named; the exit code is then 1.",
    .examples =
        "  sonde export runs/first board --format tensorboard\n"
        "  sonde export runs/first weights.npz '*.weight' --format npz --steps 1000:\n"
        "  sonde export runs/first biases.csv @bias --format csv --values\n"
        "  sonde export fashion_cnn net.onnx --format onnx --weights sonde-out/model.safetensors",
    .options = export_options,
    .option_count = CLI_COUNT_OF(export_options),
    .least = 2,
    .most = 3,
    .values_size = sizeof(export_values),
    .run = run_export,
};

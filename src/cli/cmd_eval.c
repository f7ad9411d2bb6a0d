/*
 * cmd_eval.c - `sonde eval`: how well saved weights do on the test set.
 */
#include "cli/cli_job.h"
#include "base/fail.h"
#include "cli/run_reading.h"

#include <sonde/nn/job.h>

#include <stddef.h>
#include <math.h>
#include <string.h>

typedef struct eval_values {
    const char *weights, *data, *picture, *target, *share, *split_seed;
    cli_list inputs;
    int64_t batch, threads;
    bool json, quiet;
} eval_values;

typedef struct evaluation {
    const eval_values *asked;
    sonde_nn_job *job;
    sonde_nn_model *model;
    sonde_nn_dataset *set;
    sonde_nn_evaluator *evaluator;
    const char *data; /* the name of the job's data set */
    cli_progress progress;
    char tokenizer[CLI_TOKENIZER_PATH];
} evaluation;

/* The names of the classes, and the counts: rows are labels. */
static void print_matrix(sonde_json *json, const sonde_nn_dataset *set,
                         const sonde_nn_confusion *matrix)
{
    const sonde_nn_confusion_info info = sonde_nn_confusion_get_info(matrix);
    const int64_t classes = info.classes;

    sonde_json_uint(json, "nan", info.nan_rows);
    sonde_json_list(json, "classes");
    for (int64_t i = 0; i < classes; i++) {
        const char *name = sonde_nn_dataset_class_name(set, i);

        sonde_json_string(json, NULL, name[0] != '\0' ? name : NULL);
    }
    sonde_json_end(json);
    sonde_json_list(json, "confusion");
    for (int64_t i = 0; i < classes; i++) {
        sonde_json_list(json, NULL);
        for (int64_t j = 0; j < classes; j++) {
            sonde_json_uint(json, NULL, info.counts[i * classes + j]);
        }
        sonde_json_end(json);
    }
    sonde_json_end(json);
}

static void print_json(const evaluation *run, const sonde_nn_score *score,
                       const sonde_nn_confusion *matrix)
{
    const sonde_nn_job_info *info = sonde_nn_job_get_info(run->job);
    sonde_json *const json = cli_json();

    sonde_json_object(json, NULL);
    cli_put_score(json, "", score);
    if (strcmp(info->data_name, run->data) != 0) {
        CLI_PUT(json, cli_text("stand_in", info->data_name),
                cli_text("stands_for", run->data));
    }
    if (score->classes) {
        print_matrix(json, run->set, matrix);
    }
    sonde_json_end(json);
    cli_json_print("\n");
}

static bool on_progress(void *user, int64_t done, int64_t total)
{
    evaluation *run = user;

    (void)total;
    cli_progress_update(&run->progress, done, NULL);
    return !cli_interrupted();
}

/* A loss that balances the classes weights them by the training set. */
static sonde_err balance(evaluation *run, sonde_diag *diag)
{
    sonde_nn_dataset *set = NULL;
    sonde_err err = SONDE_OK;

    if (!sonde_nn_job_get_info(run->job)->balanced) {
        return SONDE_OK;
    }
    err = cli_data_open(run->job, SONDE_NN_TRAIN, true, &set, diag);
    if (err == SONDE_OK) {
        err = sonde_nn_job_balance(run->job, set, diag);
    }
    sonde_nn_dataset_destroy(set);
    return err;
}

/* Which arrays or columns are read, and which samples are the test set. */
static sonde_err set_columns(const evaluation *run, sonde_diag *diag)
{
    const eval_values *values = run->asked;
    const struct {
        const char *name, *text;
    } options[] = {{"data_target", values->target},
                   {"test_share", values->share},
                   {"split_seed", values->split_seed}};
    sonde_err err = SONDE_OK;

    if (values->inputs.count > 0) {
        sonde_nn_job_get_info(run->job)->data_inputs.count = 0;
    }
    for (size_t i = 0; i < values->inputs.count && err == SONDE_OK; i++) {
        err = sonde_nn_job_set(run->job, "data_inputs", values->inputs.text[i], diag);
    }
    for (size_t i = 0; i < CLI_COUNT_OF(options) && err == SONDE_OK; i++) {
        if (options[i].text != NULL) {
            err = sonde_nn_job_set(run->job, options[i].name, options[i].text, diag);
        }
    }
    return err;
}

static sonde_err set_up(evaluation *run, const char *model, sonde_diag *diag)
{
    const eval_values *values = run->asked;
    sonde_nn_evaluator_options options = {
        .size = sizeof options, .progress = on_progress, .progress_user = run};
    SONDE__TRY(cli_job_open(model, &run->job, diag));
    sonde_nn_job_info *info = sonde_nn_job_get_info(run->job);
    SONDE__TRY(sonde_nn_job_set_environment(run->job, diag));
    if (values->batch != CLI_NOT_GIVEN) {
        info->eval_batch_size = values->batch;
    }
    if (values->threads != CLI_NOT_GIVEN) {
        info->options.threads = (int)values->threads;
    }
    if (values->data != NULL) {
        info->data_path = values->data;
    }
    SONDE__TRY(set_columns(run, diag));
    SONDE__TRY(balance(run, diag));
    SONDE__TRY(cli_tokenizer_find(run->job, values->weights, run->tokenizer, diag));
    SONDE__TRY(sonde_nn_job_build(run->job, &run->model, diag));
    SONDE__TRY(cli_weights_load(run->job, run->model, values->weights, model, diag));
    run->data = info->data_name;
    if (!sonde_nn_job_has_test(run->job) &&
        sonde_nn_data_kind_at(info->data_path) != SONDE_NN_DATA_SPLIT) {
        cli_warn(
            "%s has no folder test: all of its images are evaluated, those of training "
            "too",
            info->data_path);
    }
    SONDE__TRY(cli_data_open(run->job, SONDE_NN_TEST, values->quiet, &run->set, diag));
    options.set = run->set;
    return sonde_nn_evaluator_create(run->job, run->model, &options, &run->evaluator,
                                     diag);
}

static sonde_err evaluate(evaluation *run, sonde_diag *diag)
{
    const int64_t count = sonde_nn_dataset_get_traits(run->set)->count;
    sonde_err err = SONDE_OK;

    cli_progress_begin(&run->progress, "evaluating", "samples", count,
                       run->asked->quiet || run->asked->json);
    err = sonde_nn_evaluator_run(run->evaluator, diag);
    cli_progress_end(&run->progress);
    return err;
}

static sonde_err show(const evaluation *run, sonde_diag *diag)
{
    const eval_values *values = run->asked;
    const sonde_nn_score score = sonde_nn_evaluator_score(run->evaluator);
    const sonde_nn_confusion *matrix = sonde_nn_evaluator_score(run->evaluator).matrix;

    if (values->json) {
        print_json(run, &score, matrix);
    } else {
        cli_print_scores(&score, matrix, run->set, values->quiet);
    }
    if (values->picture != NULL && matrix == NULL) {
        return sonde_diag_set(diag, SONDE_EINVAL, "--confusion", "a model with classes",
                              "the model has none");
    }
    return values->picture != NULL ? cli_draw_confusion(values->picture, matrix, run->set,
                                                        "Confusion matrix", diag)
                                   : SONDE_OK;
}

static int run_eval(const void *values, int argc, char **argv)
{
    evaluation run = {.asked = values};
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;

    cli_catch_interrupt();
    SONDE__TRY_DONE(set_up(&run, argc > 0 ? argv[0] : NULL, &diag));
    SONDE__TRY_DONE(evaluate(&run, &diag));
    err = show(&run, &diag);

done:
    sonde_nn_evaluator_destroy(run.evaluator);
    sonde_nn_dataset_destroy(run.set);
    sonde_nn_model_destroy(run.model);
    sonde_nn_job_destroy(run.job);
    return err == SONDE_OK ? CLI_OK : cli_fail(&diag);
}

#define OPTION(...) CLI_OPTION(eval_values, __VA_ARGS__)

static const cli_option eval_options[] = {
    OPTION("weights", 0, CLI_TEXT, "FILE", weights,
           "load these weights (sonde-out/model.safetensors)"),
    OPTION("data", 'd', CLI_TEXT, "PATH", data,
           "read the data set from this folder or file"),
    OPTION("data-target", 0, CLI_TEXT, "NAME", target,
           "use this array or column of a table as the target"),
    OPTION("data-inputs", 0, CLI_LIST, "ARRAY", inputs,
           "use this array or column of a table as an input; repeatable"),
    OPTION("test-share", 0, CLI_TEXT, "X", share,
           "hold out this share as the test set of data without one (0.1)"),
    OPTION("split-seed", 0, CLI_TEXT, "N", split_seed,
           "seed the choice of the held-out samples (0)"),
    OPTION("batch-size", 'b', CLI_SIZE, "N", batch,
           "evaluate batches of at most N samples"),
    OPTION("threads", 't', CLI_COUNT, "N", threads,
           "use at most N threads; 0: automatic"),
    OPTION("confusion", 'c', CLI_TEXT, "FILE", picture,
           "draw the confusion matrix (.png or .svg)"),
    OPTION("format", 0, CLI_FORMAT, "text|json", json,
           "print text, or one JSON object (text)"),
    OPTION("quiet", 'q', CLI_FLAG, NULL, quiet, "print only the accuracy"),
};

const cli_command cli_eval = {
    .name = "eval",
    .arguments = "[MODEL | JOB.yaml | FILE.plan]",
    .summary = "evaluate saved weights on the test set",
    .details = "Without --weights, evaluates sonde-out/model.safetensors, which 'sonde "
               "train' saves.",
    .examples = "  sonde eval\n"
                "  sonde eval mnist_mlp --weights runs/mnist.safetensors --confusion "
                "confusion.png",
    .options = eval_options,
    .option_count = CLI_COUNT_OF(eval_options),
    .most = 1,
    .values_size = sizeof(eval_values),
    .run = run_eval,
};

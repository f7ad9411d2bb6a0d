/*
 * eval.c - `sonde eval`: how well saved weights do on the test set.
 */
#include "cli/evaluation.h"
#include "cli/cli_job.h"

#include <math.h>

typedef struct eval_values {
    const char *model, *data, *picture;
    int64_t batch, threads;
    bool json, quiet;
} eval_values;

static void print_json(const cli_score *score, const sonde_nn_confusion *matrix)
{
    const int64_t classes = sonde_nn_confusion_classes(matrix);

    (void)printf("{\"loss\": ");
    (void)printf(isfinite(score->loss) ? "%.9g" : "null", score->loss);
    (void)printf(
        ", \"accuracy\": %.6f, \"samples\": %lld, \"nan\": %llu, \"confusion\": [",
        score->accuracy, (long long)score->samples,
        (unsigned long long)sonde_nn_confusion_nan_rows(matrix));
    for (int64_t i = 0; i < classes; i++) {
        (void)printf("%s[", i > 0 ? ", " : "");
        for (int64_t j = 0; j < classes; j++) {
            (void)printf("%s%llu", j > 0 ? ", " : "",
                         (unsigned long long)sonde_nn_confusion_count(matrix, i, j));
        }
        (void)putchar(']');
    }
    (void)puts("]}");
}

static sonde_err show(const eval_values *asked, const cli_evaluation *run,
                      const sonde_nn_dataset *set, sonde_diag *diag)
{
    const cli_score score = cli_evaluation_score(run);
    const sonde_nn_confusion *matrix = cli_evaluation_matrix(run);

    if (asked->json) {
        print_json(&score, matrix);
    } else {
        cli_print_scores(&score, matrix, set, asked->quiet);
    }
    return asked->picture != NULL
               ? cli_draw_confusion(asked->picture, matrix, set, "Confusion matrix", diag)
               : SONDE_OK;
}

static sonde_err evaluate(const eval_values *asked, sonde_nn_job *job,
                          sonde_nn_model *model, const char *weights, sonde_diag *diag)
{
    const sonde_nn_job_info *info = sonde_nn_job_get_info(job);
    sonde_nn_dataset *set = NULL;
    cli_evaluation *run = NULL;
    sonde_err err = cli_weights_load(model, weights, asked->model, diag);

    if (err == SONDE_OK) {
        err = cli_data_open(info, asked->data, SONDE_NN_TEST, asked->quiet, &set, diag);
    }
    if (err == SONDE_OK) {
        const cli_evaluating of = {.info = info,
                                   .model = model,
                                   .set = set,
                                   .quiet = asked->quiet || asked->json};

        err = cli_evaluation_create(&of, &run, diag);
    }
    if (err == SONDE_OK) {
        err = cli_evaluation_run(run, diag);
    }
    if (err == SONDE_OK) {
        err = show(asked, run, set, diag);
    }
    cli_evaluation_destroy(run);
    sonde_nn_dataset_destroy(set);
    return err;
}

static int run_eval(const void *values, int argc, char **argv)
{
    const eval_values *asked = values;
    sonde_nn_job *job = NULL;
    sonde_nn_model *model = NULL;
    sonde_diag diag = {0};
    sonde_err err = cli_job_open(asked->model, &job, &diag);

    cli_catch_interrupt();
    if (err == SONDE_OK) {
        sonde_nn_job_info *info = sonde_nn_job_get_info(job);

        if (asked->batch != CLI_NOT_GIVEN) {
            info->eval_batch_size = asked->batch;
        }
        if (asked->threads != CLI_NOT_GIVEN) {
            info->options.threads = (int)asked->threads;
        }
        err = cli_evaluation_model(job, &model, &diag);
    }
    if (err == SONDE_OK) {
        err = evaluate(asked, job, model, argc > 0 ? argv[0] : NULL, &diag);
    }
    sonde_nn_model_destroy(model);
    sonde_nn_job_destroy(job);
    return err == SONDE_OK ? CLI_OK : cli_fail(&diag);
}

#define OPTION(name, letter, kind, argument, field, help)                                \
    {                                                                                    \
        name, letter, kind, argument, help, offsetof(eval_values, field)                 \
    }

static const cli_option eval_options[] = {
    OPTION("model", 'm', CLI_TEXT, "MODEL", model,
           "built-in model or job file the weights are of (fashion_cnn)"),
    OPTION("data", 'd', CLI_TEXT, "FOLDER", data, "where the data set lies"),
    OPTION("batch-size", 'b', CLI_SIZE, "N", batch, "samples of a batch"),
    OPTION("threads", 't', CLI_COUNT, "N", threads, "at most; 0: as many as pay"),
    OPTION("confusion", 'c', CLI_TEXT, "FILE", picture,
           "draw the confusion matrix (.png or .svg)"),
    OPTION("json", 0, CLI_FLAG, NULL, json, "one JSON object on stdout"),
    OPTION("quiet", 'q', CLI_FLAG, NULL, quiet, "only the accuracy"),
};

const cli_command cli_eval = {
    .name = "eval",
    .arguments = "[WEIGHTS.safetensors]",
    .summary = "evaluate saved weights on the test set",
    .details = "Without WEIGHTS those of sonde-out/model.safetensors, which 'sonde "
               "train' leaves there.",
    .examples =
        "  sonde eval\n"
        "  sonde eval runs/mnist.safetensors --model mnist_mlp --confusion confusion.png",
    .options = eval_options,
    .option_count = CLI_COUNT_OF(eval_options),
    .most = 1,
    .values_size = sizeof(eval_values),
    .run = run_eval,
};

/*
 * evaluation.c - see evaluation.h.
 */
#include "cli/evaluation.h"

#include "cli/cli_job.h"
#include "cli/cli_run.h"

#include <sonde/plot.h>

#include <stdlib.h>
#include <string.h>

enum { SEED = 0 }; /* of the samples that are drawn: they are not the run's */

struct cli_evaluation {
    cli_evaluating of;
    sonde_nn_dataset *part;         /* of the set; NULL: all of it is taken */
    sonde_nn_session *whole, *rest; /* for whole batches, and for a last, smaller one */
    sonde_nn_loader *loader;
    sonde_nn_confusion *matrix;
    sonde_nn_running_mean loss;
    int64_t batch;
    uint64_t runs;
};

sonde_err cli_evaluation_model(const sonde_nn_job *job, sonde_nn_model **out,
                               sonde_diag *diag)
{
    const sonde_err err = sonde_nn_job_build(job, out, diag);

    if (err == SONDE_OK) {
        sonde_nn_output(*out, sonde_nn_model_loss(*out));
    }
    return err;
}

/* --- setting up ------------------------------------------------------------------- */

static sonde_err make_session(const cli_evaluation *run, int64_t batch,
                              sonde_nn_session **out, sonde_diag *diag)
{
    sonde_nn_options options = run->of.info->options;
    sonde_err err = SONDE_OK;

    options.on_progress = NULL;
    options.device_iterations = 1;
    options.gradient_accumulation = 1;
    options.output_mode = SONDE_ANCHOR_ALL;
    sonde_nn_options_set_batch_size(&options, batch);
    err = sonde_nn_inference_session(run->of.model, &options, out, diag);
    if (err == SONDE_OK) {
        err = sonde_nn_session_attach_hook(*out, run->of.hook, diag);
    }
    if (err == SONDE_OK && run->of.judge != NULL) {
        err = cli_judge_attach(run->of.judge, *out, diag);
    }
    return err == SONDE_OK ? sonde_nn_session_compile(*out, diag) : err;
}

/* Batches of at most the job's size and as much alike as can be: a mean of their losses, as rules
 * take it, is then nearly that of the samples. */
static sonde_err set_up(cli_evaluation *run, sonde_diag *diag)
{
    const sonde_nn_job_info *info = run->of.info;
    const int64_t all = sonde_nn_dataset_get_traits(run->of.set)->count;
    const int64_t count = run->of.most > 0 && run->of.most < all ? run->of.most : all;
    sonde_err err = SONDE_OK;

    const int64_t batches = (count + info->eval_batch_size - 1) / info->eval_batch_size;

    run->batch = (count + batches - 1) / batches;
    if (count < all) {
        err = sonde_nn_dataset_split(run->of.set, count, SEED, &run->part, NULL, diag);
    }
    if (err == SONDE_OK) {
        err = cli_loader_create(info, run->part != NULL ? run->part : run->of.set,
                                run->batch, false, 1, &run->loader, diag);
    }
    if (err == SONDE_OK) {
        err = sonde_nn_confusion_create(info->classes, &run->matrix, diag);
    }
    if (err == SONDE_OK) {
        err = make_session(run, run->batch, &run->whole, diag);
    }
    if (err == SONDE_OK && count % run->batch != 0) {
        err = make_session(run, count % run->batch, &run->rest, diag);
    }
    return err;
}

sonde_err cli_evaluation_create(const cli_evaluating *of, cli_evaluation **out,
                                sonde_diag *diag)
{
    cli_evaluation *run = calloc(1, sizeof *run);
    sonde_err err = SONDE_OK;

    if (run == NULL) {
        return cli_fail_memory(diag);
    }
    run->of = *of;
    err = set_up(run, diag);
    if (err != SONDE_OK) {
        cli_evaluation_destroy(run);
        return err;
    }
    *out = run;
    return SONDE_OK;
}

void cli_evaluation_destroy(cli_evaluation *run)
{
    if (run == NULL) {
        return;
    }
    sonde_nn_loader_destroy(run->loader);
    sonde_nn_session_destroy(run->whole);
    sonde_nn_session_destroy(run->rest);
    sonde_nn_confusion_destroy(run->matrix);
    sonde_nn_dataset_destroy(run->part);
    free(run);
}

/* --- running ---------------------------------------------------------------------- */

static sonde_err take_batch(cli_evaluation *run, const sonde_nn_batch *batch,
                            sonde_diag *diag)
{
    sonde_nn_session *session = batch->count == run->batch ? run->whole : run->rest;
    sonde_view inputs[2], scores, loss;
    sonde_err err = SONDE_OK;

    cli_batch_views(run->of.info, batch, inputs);
    err = sonde_nn_session_run(session, inputs, 2, diag);
    if (err == SONDE_OK) {
        err = sonde_nn_session_output(session, 0, &scores, diag);
    }
    if (err == SONDE_OK) {
        err = sonde_nn_session_output(session, 1, &loss, diag);
    }
    if (err == SONDE_OK) {
        err = sonde_nn_confusion_update(run->matrix, &scores, &inputs[1], diag);
    }
    if (err == SONDE_OK) {
        sonde_nn_running_mean_add(&run->loss, (double)*(const float *)loss.data,
                                  (double)batch->count);
    }
    return err;
}

sonde_err cli_evaluation_run(cli_evaluation *run, sonde_diag *diag)
{
    cli_progress progress;
    int64_t done = 0;
    sonde_err err = SONDE_OK;

    sonde_nn_confusion_reset(run->matrix);
    run->loss = (sonde_nn_running_mean){0};
    cli_progress_begin(&progress, "evaluating", "samples",
                       sonde_nn_loader_samples(run->loader), run->of.quiet);
    sonde_nn_loader_start_epoch(run->loader, run->runs++);
    while (err == SONDE_OK) {
        sonde_nn_batch batch;

        err = sonde_nn_loader_next(run->loader, &batch, diag);
        if (err != SONDE_OK || batch.count == 0) {
            break;
        }
        err = take_batch(run, &batch, diag);
        done += batch.count;
        cli_progress_update(&progress, done, NULL);
        if (err == SONDE_OK && cli_interrupted() && !run->of.unbroken) {
            err = diag->err = SONDE_EINTERRUPTED;
        }
    }
    cli_progress_end(&progress);
    return err;
}

/* --- telling ---------------------------------------------------------------------- */

cli_score cli_evaluation_score(const cli_evaluation *run)
{
    return (cli_score){.loss = sonde_nn_running_mean_get(&run->loss),
                       .accuracy = sonde_nn_confusion_accuracy(run->matrix),
                       .samples = (int64_t)sonde_nn_confusion_total(run->matrix)};
}

const sonde_nn_confusion *cli_evaluation_matrix(const cli_evaluation *run)
{
    return run->matrix;
}

void cli_print_scores(const cli_score *score, const sonde_nn_confusion *matrix,
                      const sonde_nn_dataset *set, bool brief)
{
    const int64_t classes = sonde_nn_confusion_classes(matrix);

    if (!brief) {
        (void)printf("Eval loss: %.4f\n", score->loss);
    }
    (void)printf("Eval accuracy: %.2f%%\n", 100.0 * score->accuracy);
    if (sonde_nn_confusion_nan_rows(matrix) > 0) {
        (void)printf("%llu predictions were NaN and count as wrong\n",
                     (unsigned long long)sonde_nn_confusion_nan_rows(matrix));
    }
    if (!brief) {
        (void)printf("%-12s %9s %9s %9s %9s\n", "class", "samples", "precision", "recall",
                     "f1");
    }
    for (int64_t i = 0; !brief && i < classes; i++) {
        const sonde_nn_class_scores scores = sonde_nn_confusion_class(matrix, i);
        char number[24];
        const char *name = sonde_nn_dataset_class_name(set, i);

        (void)snprintf(number, sizeof number, "%lld", (long long)i);
        (void)printf("%-12s %9llu %8.1f%% %8.1f%% %8.1f%%\n",
                     name[0] != '\0' ? name : number, (unsigned long long)scores.support,
                     100.0 * scores.precision, 100.0 * scores.recall, 100.0 * scores.f1);
    }
}

sonde_err cli_draw_confusion(const char *path, const sonde_nn_confusion *matrix,
                             const sonde_nn_dataset *set, const char *title,
                             sonde_diag *diag)
{
    const int64_t classes = sonde_nn_confusion_classes(matrix);
    const sonde_nn_dataset_traits *traits = sonde_nn_dataset_get_traits(set);
    const uint64_t *counts = sonde_nn_confusion_counts(matrix);
    sonde_confusion_plot plot = {.page = {.title = title}};

    plot.counts = sonde_view_of(SONDE_U64, 2, (int64_t[]){classes, classes}, NULL);
    memcpy(&plot.counts.data, &counts, sizeof counts);
    plot.classes = traits->classes == classes ? traits->class_names : NULL;
    return sonde_plot_confusion(path, &plot, diag);
}

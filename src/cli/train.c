/*
 * train.c - `sonde train`: a job from its data to a judged model, with pictures.
 */
#include "cli/job.h"
#include "cli/judge.h"
#include "cli/pictures.h"
#include "cli/prints.h"
#include "cli/record.h"
#include "cli/resume.h"
#include "cli/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct train_values {
    const char *data, *out, *resume;
    int64_t epochs, batch, seed, threads, iterations, accumulation;
    double learning_rate;
    cli_list print;
    cli_record record;
    cli_judging judging;
    cli_acting acting;
    bool no_eval, no_pictures, json, quiet;
} train_values;

/* Everything a run holds. */
typedef struct training {
    const train_values *asked;
    sonde_nn_job *job;
    sonde_nn_job_info *info;
    sonde_nn_dataset *train, *test;
    sonde_nn_model *model;
    sonde_nn_session *session;
    sonde_printer *printer;
    sonde_hook *hook; /* NULL: nothing is recorded */
    cli_judge judge;
    const sonde_request *stopped; /* whoever asked for it; NULL: nobody */
    sonde_nn_loader *loader;
    sonde_nn_confusion *matrix;
    float *losses; /* of every call */
    size_t loss_count, loss_capacity;
    cli_resume resume;
    char out[3072];
} training;

/* --- setting up ------------------------------------------------------------------- */

static void apply_overrides(const train_values *asked, sonde_nn_job_info *info)
{
    if (asked->epochs != CLI_NOT_GIVEN) {
        info->epochs = (int)asked->epochs;
    }
    if (asked->batch != CLI_NOT_GIVEN) {
        info->batch_size = asked->batch;
    }
    if (asked->seed != CLI_NOT_GIVEN) {
        info->seed = (uint64_t)asked->seed;
        info->options.random_seed = (uint64_t)asked->seed;
    }
    if (asked->threads != CLI_NOT_GIVEN) {
        info->options.threads = (int)asked->threads;
    }
    if (asked->iterations != CLI_NOT_GIVEN) {
        info->options.device_iterations = (int)asked->iterations;
    }
    if (asked->accumulation != CLI_NOT_GIVEN) {
        info->options.gradient_accumulation = (int)asked->accumulation;
    }
    if (!isnan(asked->learning_rate)) {
        info->optimizer.learning_rate = (float)asked->learning_rate;
    }
}

/* Whoever records, judges and may ask the session for something. */
static sonde_err add_observers(training *run, const char *job, sonde_diag *diag)
{
    const train_values *asked = run->asked;
    const char *path = NULL;
    char checkpoints[4096];
    const cli_record record = cli_resume_record(&asked->record, &run->resume);
    sonde_err err =
        cli_hook_open(&record, job, run->job, "sonde train", &run->hook, diag);

    if (err == SONDE_OK) {
        err = sonde_nn_session_attach_hook(run->session, run->hook, diag);
    }
    if (err == SONDE_OK) {
        path = run->hook != NULL ? sonde_hook_path(run->hook) : NULL;
        err = cli_judge_open(&asked->judging, &asked->acting, run->job, path, asked->json,
                             &run->judge, diag);
    }
    if (err == SONDE_OK) {
        err = cli_judge_attach(&run->judge, run->session, diag);
    }
    if (err == SONDE_OK) {
        err = cli_join(path != NULL ? path : run->out, "checkpoints", checkpoints,
                       sizeof checkpoints, diag);
    }
    return err == SONDE_OK ? sonde_nn_session_attach_control(
                                 run->session, run->judge.control, checkpoints, diag)
                           : err;
}

static sonde_err set_up(training *run, const char *job, sonde_diag *diag)
{
    const train_values *asked = run->asked;
    sonde_err err = cli_job_open(job, &run->job, diag);

    if (err != SONDE_OK) {
        return err;
    }
    run->info = sonde_nn_job_get_info(run->job);
    apply_overrides(asked, run->info);
    run->info->options.on_progress =
        asked->quiet || asked->json ? NULL : cli_compile_progress;
    (void)snprintf(run->out, sizeof run->out, "%s",
                   asked->out != NULL ? asked->out : "sonde-out");
    err = cli_make_folder(run->out, diag);
    if (err == SONDE_OK) {
        err = cli_resume_find(asked->resume, run->out, &run->resume, diag);
    }
    if (err == SONDE_OK) {
        err = sonde_nn_job_build(run->job, &run->model, diag);
    }
    if (err == SONDE_OK) {
        err = sonde_nn_training_session(run->model, &run->info->options,
                                        &run->info->optimizer, &run->session, diag);
    }
    if (err == SONDE_OK) {
        err = cli_prints_open(&asked->print, run->job, run->session, &run->printer, diag);
    }
    if (err == SONDE_OK) {
        err = add_observers(run, job, diag);
    }
    if (err == SONDE_OK) {
        err = sonde_nn_session_compile(run->session, diag);
    }
    if (err == SONDE_OK && run->resume.path[0] != '\0') {
        err = sonde_nn_session_load(run->session, run->resume.path, diag);
    }
    if (err == SONDE_OK) {
        err = cli_data_open(run->info, asked->data, SONDE_NN_TRAIN, asked->quiet,
                            &run->train, diag);
    }
    if (err == SONDE_OK && !asked->no_eval) {
        err = cli_data_open(run->info, asked->data, SONDE_NN_TEST, asked->quiet,
                            &run->test, diag);
    }
    return err;
}

static void tear_down(training *run)
{
    sonde_nn_confusion_destroy(run->matrix);
    sonde_nn_loader_destroy(run->loader);
    sonde_nn_session_destroy(run->session);
    cli_judge_close(&run->judge);
    sonde_printer_destroy(run->printer);
    sonde_nn_model_destroy(run->model);
    sonde_nn_dataset_destroy(run->train);
    sonde_nn_dataset_destroy(run->test);
    sonde_nn_job_destroy(run->job);
    free(run->losses);
}

/* --- training --------------------------------------------------------------------- */

static sonde_err keep_loss(training *run, sonde_nn_running_mean *mean, sonde_diag *diag)
{
    const size_t last = sonde_nn_session_output_count(run->session) - 1;
    sonde_view loss;
    sonde_err err = sonde_nn_session_output(run->session, last, &loss, diag);

    if (err != SONDE_OK) {
        return err;
    }
    if (run->loss_count == run->loss_capacity) {
        const size_t capacity = run->loss_capacity > 0 ? 2 * run->loss_capacity : 4096;
        float *grown = realloc(run->losses, capacity * sizeof *grown);

        if (grown == NULL) {
            return diag->err = SONDE_ENOMEM;
        }
        run->losses = grown;
        run->loss_capacity = capacity;
    }
    run->losses[run->loss_count++] = *(const float *)loss.data;
    sonde_nn_running_mean_add(mean, (double)*(const float *)loss.data, 1.0);
    return SONDE_OK;
}

static sonde_err save_checkpoint(const training *run, sonde_diag *diag)
{
    char path[4096];
    const sonde_err err =
        cli_join(run->out, "checkpoint.safetensors", path, sizeof path, diag);

    return err == SONDE_OK ? sonde_nn_session_save(run->session, path, diag) : err;
}

static sonde_err train_epoch(training *run, int epoch, int64_t skip,
                             sonde_nn_running_mean *mean, sonde_diag *diag)
{
    cli_progress progress;
    char title[48], note[48] = "";
    sonde_err err = SONDE_OK;

    (void)snprintf(title, sizeof title, "epoch %d/%d", epoch + 1, run->info->epochs);
    cli_progress_begin(&progress, title, "samples", sonde_nn_loader_samples(run->loader),
                       run->asked->quiet || run->asked->json);
    sonde_nn_loader_start_epoch(run->loader, (uint64_t)epoch);
    while (err == SONDE_OK && !cli_interrupted()) {
        sonde_nn_batch batch;
        sonde_view inputs[2];

        err = sonde_nn_loader_next(run->loader, &batch, diag);
        if (err != SONDE_OK || batch.count == 0) {
            break;
        }
        if (batch.number < skip) {
            continue; /* done before the checkpoint that the run goes on from */
        }
        cli_batch_views(run->info, &batch, inputs);
        err = sonde_nn_session_run(run->session, inputs, 2, diag);
        if (err == SONDE_OK) {
            err = keep_loss(run, mean, diag);
        }
        if (err == SONDE_OK) {
            err = sonde_nn_session_heed(run->session, diag);
        }
        if (progress.terminal && (batch.number & 63) == 0) {
            (void)snprintf(note, sizeof note, "loss %.4f",
                           sonde_nn_running_mean_get(mean));
        }
        cli_progress_update(&progress, (batch.number + 1) * batch.count, note);
    }
    cli_progress_end(&progress);
    return err;
}

static void report_epoch(const training *run, int epoch, double loss, double seconds,
                         int64_t samples)
{
    const double rate = seconds > 0.0 ? (double)samples / seconds : 0.0;

    if (run->asked->json) {
        (void)printf("{\"event\": \"epoch\", \"epoch\": %d, \"step\": %lld, \"loss\": ",
                     epoch, (long long)sonde_nn_session_step(run->session));
        (void)printf(isfinite(loss) ? "%.9g" : "null", loss);
        (void)printf(", \"seconds\": %.6f, \"samples_per_second\": %.1f}\n", seconds,
                     rate);
    } else if (!run->asked->quiet) {
        (void)printf("epoch %d/%d: loss %.4f, %.2f s, %.0f samples/s\n", epoch + 1,
                     run->info->epochs, loss, seconds, rate);
    }
    (void)fflush(stdout);
}

static sonde_err tell_hook(const training *run, const char *name, double value,
                           sonde_diag *diag)
{
    return run->hook != NULL ? sonde_hook_scalar(run->hook, name, value, diag) : SONDE_OK;
}

/* Ctrl-C, or a request: what is needed to go on is saved. */
static sonde_err break_off(training *run, sonde_diag *diag)
{
    const sonde_request *asked = sonde_nn_session_stopped(run->session);
    const long long step = (long long)sonde_nn_session_step(run->session);
    const sonde_err err = save_checkpoint(run, diag);

    if (err != SONDE_OK) {
        return err;
    }
    if (asked == NULL) {
        cli_warn("interrupted at step %lld; go on with --resume "
                 "%s/checkpoint.safetensors",
                 step, run->out);
        return diag->err = SONDE_EINTERRUPTED;
    }
    run->stopped = asked;
    if (run->asked->json) {
        (void)printf("{\"event\": \"stopped\", \"step\": %lld, \"by\": \"%s\", "
                     "\"text\": ",
                     step, asked->by == SONDE_BY_RULE ? "rule" : "user");
        cli_json_string(stdout, asked->text);
        (void)puts("}");
    }
    cli_warn(
        "stopped after %lld steps: %s; go on with --resume %s/checkpoint.safetensors",
        step, asked->text, run->out);
    return SONDE_OK;
}

static sonde_err train_all(training *run, sonde_diag *diag)
{
    sonde_nn_session_info plan;
    int64_t batches = 0, done = 0;
    sonde_err err = sonde_nn_session_describe(run->session, &plan, diag);

    if (err == SONDE_OK) {
        err = cli_loader_create(run->info, run->train, plan.combined_batch, true, 1,
                                &run->loader, diag);
    }
    if (err != SONDE_OK) {
        return err;
    }
    batches = sonde_nn_loader_batches(run->loader);
    done = sonde_nn_session_step(run->session) / plan.device_iterations;
    for (int epoch = (int)(done / batches); err == SONDE_OK && epoch < run->info->epochs;
         epoch++) {
        const double started = cli_now();
        const int64_t skip = epoch == (int)(done / batches) ? done % batches : 0;
        sonde_nn_running_mean mean = {0};

        err = train_epoch(run, epoch, skip, &mean, diag);
        if (sonde_nn_session_stopped(run->session) != NULL ||
            (err == SONDE_OK && cli_interrupted())) {
            return break_off(run, diag);
        }
        if (err != SONDE_OK) {
            break;
        }
        report_epoch(run, epoch, sonde_nn_running_mean_get(&mean), cli_now() - started,
                     (batches - skip) * plan.combined_batch);
        err = tell_hook(run, "epoch_loss", sonde_nn_running_mean_get(&mean), diag);
        if (err == SONDE_OK) {
            err = save_checkpoint(run, diag);
        }
    }
    return err;
}

static sonde_err judge(training *run, sonde_diag *diag)
{
    char path[4096];
    sonde_err err = cli_join(run->out, "model.safetensors", path, sizeof path, diag);

    if (err == SONDE_OK) {
        err = sonde_nn_model_save(run->model, path, diag);
    }
    if (err != SONDE_OK || run->asked->no_eval || run->stopped != NULL) {
        return err;
    }
    err = cli_evaluate(run->info, run->model, run->test, run->hook, &run->judge,
                       run->asked->quiet || run->asked->json, &run->matrix, diag);
    if (err == SONDE_OK) {
        err = tell_hook(run, "accuracy", sonde_nn_confusion_accuracy(run->matrix), diag);
    }
    if (err != SONDE_OK) {
        return err;
    }
    if (run->asked->json) {
        (void)printf("{\"event\": \"eval\", \"accuracy\": %.6f, \"samples\": %llu}\n",
                     sonde_nn_confusion_accuracy(run->matrix),
                     (unsigned long long)sonde_nn_confusion_total(run->matrix));
    } else {
        cli_print_scores(run->matrix, run->test, !run->asked->quiet);
    }
    return SONDE_OK;
}

/* Closes everything. */
static int end(training *run, sonde_err err, const sonde_diag *diag)
{
    int code = CLI_OK;

    if (err == SONDE_OK && run->stopped != NULL) {
        code = run->stopped->by == SONDE_BY_RULE ? CLI_VERDICT : CLI_INTERRUPTED;
        cli_hook_stop(run->hook, run->stopped);
    } else {
        cli_hook_close(run->hook, err, diag);
    }
    tear_down(run);
    return err == SONDE_OK ? code : cli_fail(diag);
}

static int run_train(const void *values, int argc, char **argv)
{
    training run = {.asked = values};
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;

    cli_catch_interrupt();
    err = set_up(&run, argc > 0 ? argv[0] : NULL, &diag);
    if (err == SONDE_OK) {
        err = train_all(&run, &diag);
    }
    if (err == SONDE_OK) {
        err = judge(&run, &diag);
        cli_judge_verdict(&run.judge);
    }
    if (err == SONDE_OK && !run.asked->no_pictures) {
        const cli_pictures pictures = {.out = run.out,
                                       .train = run.train,
                                       .test = run.test,
                                       .losses = run.losses,
                                       .loss_count = run.loss_count,
                                       .matrix = run.matrix};

        err = cli_draw_pictures(&pictures, &diag);
    }
    if (err == SONDE_OK && !run.asked->quiet && !run.asked->json) {
        (void)printf("Saved to %s: model.safetensors, checkpoint.safetensors%s\n",
                     run.out,
                     run.asked->no_pictures ? ""
                     : run.matrix == NULL   ? ", samples.png, loss.png"
                                            : ", samples.png, loss.png, confusion.png");
    }
    return end(&run, err, &diag);
}

#define OPTION(name, letter, kind, argument, field, help)                                \
    {                                                                                    \
        name, letter, kind, argument, help, offsetof(train_values, field)                \
    }

static const cli_option train_options[] = {
    OPTION(
        "data", 'd', CLI_TEXT, "FOLDER", data,
        "where the data set lies (default: SONDE_DATA, the cache, a fetch, a stand-in)"),
    OPTION("out", 'o', CLI_TEXT, "FOLDER", out,
           "where model, checkpoint and pictures go (sonde-out)"),
    OPTION("epochs", 'e', CLI_COUNT, "N", epochs, "epochs instead of the job's"),
    OPTION("batch-size", 'b', CLI_SIZE, "N", batch, "samples of a micro-batch"),
    OPTION("learning-rate", 'l', CLI_REAL, "X", learning_rate, "instead of the job's"),
    OPTION("seed", 's', CLI_SEED, "N", seed, "of initial weights and of shuffling"),
    OPTION("threads", 't', CLI_COUNT, "N", threads, "at most; 0: as many as pay"),
    OPTION("device-iterations", 0, CLI_SIZE, "N", iterations, "steps a call"),
    OPTION("gradient-accumulation", 0, CLI_SIZE, "N", accumulation,
           "micro-batches a step"),
    OPTION("print", 'p', CLI_LIST, "TENSORS", print,
           "print these at every step to stderr; may be given again"),
    CLI_RECORD_OPTIONS(train_values),
    CLI_JUDGING_OPTIONS(train_values),
    CLI_ACTING_OPTIONS(train_values),
    OPTION("resume", 0, CLI_MAYBE, "[FILE]", resume,
           "go on from a checkpoint (the one in --out), and with its run"),
    OPTION("no-eval", 0, CLI_FLAG, NULL, no_eval, "do not evaluate at the end"),
    OPTION("no-pictures", 0, CLI_FLAG, NULL, no_pictures, "draw nothing"),
    OPTION("json", 0, CLI_FLAG, NULL, json, "one JSON object a line on stdout"),
    OPTION("quiet", 'q', CLI_FLAG, NULL, quiet, "only the result and errors"),
};

const cli_command cli_train = {
    .name = "train",
    .arguments = "[MODEL | JOB.yaml]",
    .summary = "train a network, evaluate it, draw what was seen",
    .details =
        "MODEL is fashion_cnn (the default), mnist_mlp or mnist_mlp_small; JOB.yaml "
        "describes any other.\n"
        "Ctrl-C and 'sonde stop' save a checkpoint and end with code 130. With --resume\n"
        "training goes on as if it had never been interrupted, and what was recorded "
        "beyond\n"
        "the checkpoint counts no more.\n"
        "Training is judged by rules while it runs ('sonde rules list'). A finding is "
        "printed\n"
        "at once and kept in RUN/findings if the run is recorded; a line at the end sums "
        "up.\n"
        "One that --stop-on names ends training after its step as at its end, but for "
        "the\n"
        "evaluation, with code 1.",
    .examples = "  sonde train\n"
                "  sonde train fashion_cnn --epochs 1 --print 'Gradient___fc2.bias'\n"
                "  sonde train --record runs/first --save-interval 100\n"
                "  sonde train --record runs/first --save-interval 100 --resume\n"
                "  sonde train --stop-on error --on-finding 'command:notify-send Sonde'\n"
                "  sonde train job.yaml --resume sonde-out/checkpoint.safetensors",
    .options = train_options,
    .option_count = CLI_COUNT_OF(train_options),
    .most = 1,
    .values_size = sizeof(train_values),
    .run = run_train,
};

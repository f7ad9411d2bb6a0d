/*
 * train.c - `sonde train`: a job from its data to a judged model, with pictures.
 */
#include "cli/train.h"

#include "cli/cli_job.h"
#include "cli/prints.h"

#include <math.h>

/* --- setting up ------------------------------------------------------------------- */

static void apply_overrides(const cli_train_values *asked, sonde_nn_job_info *info)
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
    if (asked->eval_every != CLI_NOT_GIVEN) {
        info->eval_every = asked->eval_every;
    }
    if (asked->eval_samples != CLI_NOT_GIVEN) {
        info->eval_samples = asked->eval_samples;
    }
    if (!isnan(asked->learning_rate)) {
        info->optimizer.learning_rate = (float)asked->learning_rate;
    }
    if (!isnan(asked->validation)) {
        info->validation = (float)asked->validation;
    }
}

/* Whoever records, judges and may ask the session for something. */
static sonde_err add_observers(cli_training *run, const char *job, sonde_diag *diag)
{
    const cli_train_values *asked = run->asked;
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

/* The training samples, less those that are held out of it, and the test set. */
static sonde_err open_data(cli_training *run, sonde_diag *diag)
{
    enum { SEED = 0 }; /* the same are held out, whatever the run's seed */
    const cli_train_values *asked = run->asked;
    const double share = (double)run->info->validation;
    sonde_err err = SONDE_OK;

    if (!(share >= 0.0 && share < 1.0)) {
        *diag = (sonde_diag){
            .err = SONDE_EINVAL, .where = "--validation", .expected = "a share, below 1"};
        (void)snprintf(diag->found, sizeof diag->found, "%g", share);
        return SONDE_EINVAL;
    }
    err = cli_data_open(run->info, asked->data, SONDE_NN_TRAIN, asked->quiet, &run->train,
                        diag);
    if (err == SONDE_OK && share > 0.0) {
        const int64_t all = sonde_nn_dataset_get_traits(run->train)->count;

        err = sonde_nn_dataset_split(run->train, llround(share * (double)all), SEED,
                                     &run->held_out, &run->kept, diag);
    }
    if (err == SONDE_OK && !asked->no_eval) {
        err = cli_data_open(run->info, asked->data, SONDE_NN_TEST, asked->quiet,
                            &run->test, diag);
    }
    return err;
}

/* Behind the training session, which names what only it has. */
static sonde_err open_evaluation(cli_training *run, sonde_diag *diag)
{
    const bool quiet = run->asked->quiet || run->asked->json;
    const sonde_nn_dataset *set = run->held_out != NULL ? run->held_out : run->test;
    const cli_evaluating of = {.info = run->info,
                               .model = run->model,
                               .set = set,
                               .most = run->info->eval_samples,
                               .hook = run->hook,
                               .judge = &run->judge,
                               .unbroken = true,
                               .quiet = quiet};

    return run->asked->no_eval || run->info->eval_every == 0
               ? SONDE_OK
               : cli_evaluation_create(&of, &run->between, diag);
}

static sonde_err set_up(cli_training *run, const char *job, sonde_diag *diag)
{
    const cli_train_values *asked = run->asked;
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
        err = cli_evaluation_model(run->job, &run->model, diag);
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
        err = open_data(run, diag);
    }
    return err == SONDE_OK ? open_evaluation(run, diag) : err;
}

static void tear_down(cli_training *run)
{
    cli_evaluation_destroy(run->between);
    cli_evaluation_destroy(run->final);
    sonde_nn_loader_destroy(run->loader);
    sonde_nn_session_destroy(run->session);
    cli_judge_close(&run->judge);
    sonde_printer_destroy(run->printer);
    sonde_nn_model_destroy(run->model);
    sonde_nn_dataset_destroy(run->held_out);
    sonde_nn_dataset_destroy(run->kept);
    sonde_nn_dataset_destroy(run->train);
    sonde_nn_dataset_destroy(run->test);
    sonde_nn_job_destroy(run->job);
    cli_curve_free(&run->losses);
    cli_curve_free(&run->evaluations);
}

/* --- running ---------------------------------------------------------------------- */

/* Closes everything. */
static int end(cli_training *run, sonde_err err, const sonde_diag *diag)
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
    cli_training run = {.asked = values};
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;

    cli_catch_interrupt();
    err = set_up(&run, argc > 0 ? argv[0] : NULL, &diag);
    if (err == SONDE_OK) {
        err = cli_train_all(&run, &diag);
    }
    if (err == SONDE_OK) {
        err = cli_train_finish(&run, &diag);
        cli_judge_verdict(&run.judge);
    }
    if (err == SONDE_OK && !run.asked->no_pictures) {
        const cli_pictures pictures = {.out = run.out,
                                       .train = run.train,
                                       .test = run.test,
                                       .losses = &run.losses,
                                       .evaluations = &run.evaluations,
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
        name, letter, kind, argument, help, offsetof(cli_train_values, field)            \
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
    CLI_RECORD_OPTIONS(cli_train_values),
    CLI_JUDGING_OPTIONS(cli_train_values),
    CLI_ACTING_OPTIONS(cli_train_values),
    OPTION("eval-every", 0, CLI_COUNT, "N", eval_every,
           "evaluate every N epochs (1); 0: only at the end"),
    OPTION("eval-samples", 0, CLI_COUNT, "N", eval_samples,
           "samples such an evaluation takes at most (1024); 0: all"),
    OPTION("validation", 0, CLI_REAL, "SHARE", validation,
           "hold out this share of the training samples, and evaluate epochs on it"),
    OPTION("resume", 0, CLI_MAYBE, "[FILE]", resume,
           "go on from a checkpoint (the one in --out), and with its run"),
    OPTION("no-eval", 0, CLI_FLAG, NULL, no_eval, "do not evaluate"),
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
        "Every epoch ends with an evaluation, which changes nothing of the training: of "
        "the test\n"
        "set, or better of samples that are held out (--validation), as whoever chooses "
        "by the\n"
        "test set can no longer trust it. The score at the end is of the whole test "
        "set.\n"
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
    .values_size = sizeof(cli_train_values),
    .run = run_train,
};

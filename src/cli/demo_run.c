/*
 * demo_run.c - trains one side of a demo and records it.
 *
 *     for every epoch: train steps, then the test samples, with their loss
 *
 * Rules look on, and see what is recorded: vital signs of everything at every step, raw values of
 * labels and scores at every step, of parameters, gradients and activations now and then. So the
 * record, judged again, says the same.
 */
#include "cli/demo.h"
#include "cli/evaluation.h"
#include "cli/cli_job.h"
#include "cli/record.h"

#include <sonde/nn/session.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What rules look at in the process. */
static const char recording[] =
    "record:\n"
    "  every: 20\n" /* RAW_INTERVAL */
    "  vitals_every: 1\n"
    "  compress: true\n"
    "  collections:\n"
    "    inputs: {every: 1, reductions: [mean]}\n"
    "    outputs: {every: 1, reductions: [mean]}\n"
    "    activations: {every: 1, reductions: [mean]}\n"
    "    activation_gradients: {every: 1, reductions: [mean]}\n"
    "    states: {include: 're:^(Accl[12]|Step|UpdatedVar)___', every: 1,"
    " reductions: [mean]}\n"
    "    labels: {include: 'input/1', every: 1}\n"
    "    units: {include: 're:^(relu[0-9]?_output|(tanh|sigmoid)_input)_[0-9]$'}\n";
enum { RAW_INTERVAL = 20 };

typedef struct running {
    const demo *of;
    const demo_side *side;
    const demo_options *asked;
    sonde_nn_job *job;
    sonde_nn_job_info *info;
    sonde_nn_model *model;
    sonde_nn_session *training;
    cli_evaluation *evaluation; /* NULL: none */
    sonde_hook *hook;
    cli_judge judge;
    demo_set train, test;
    sonde_nn_loader *loader;
} running;

static sonde_err fail_memory(sonde_diag *diag)
{
    *diag = (sonde_diag){.err = SONDE_ENOMEM, .found = "out of memory"};
    return SONDE_ENOMEM;
}

/* --- the model -------------------------------------------------------------------- */

static sonde_err open_job(running *run, sonde_diag *diag)
{
    const char *model = run->side->model != NULL ? run->side->model : run->of->model;
    const char *weights = run->of->each_weight ? "    weights: {every: 1}\n" : "";
    const char *besides = run->of->besides != NULL ? run->of->besides : "";
    const size_t size = strlen(model) + strlen(run->side->job) + sizeof recording +
                        strlen(weights) + strlen(besides);
    char *text = malloc(size);
    sonde_err err = SONDE_OK;

    if (text == NULL) {
        return fail_memory(diag);
    }
    (void)snprintf(text, size, "%s%s%s%s%s", model, run->side->job, recording, weights,
                   besides);
    err = sonde_nn_job_parse(text, strlen(text), run->of->name, &run->job, diag);
    free(text);
    if (err != SONDE_OK) {
        return err;
    }
    run->info = sonde_nn_job_get_info(run->job);
    run->info->seed += (uint64_t)run->asked->seed;
    run->info->options.random_seed = run->info->seed;
    if (!isnan(run->asked->learning_rate)) {
        run->info->optimizer.learning_rate = (float)run->asked->learning_rate;
    }
    if (run->asked->threads != CLI_NOT_GIVEN) {
        run->info->options.threads = (int)run->asked->threads;
    }
    return SONDE_OK;
}

/* What a careless hand does to initial weights. */
static void set_weights(const running *run)
{
    for (size_t i = 0; i < sonde_nn_parameter_count(run->model); i++) {
        const sonde_view view = sonde_nn_parameter_view(run->model, i);
        const int64_t count = sonde_view_count(&view);
        float *values = view.data;

        for (int64_t k = 0; k < count && view.rank > 1; k++) {
            values[k] = run->side->alike ? fabsf(values[0]) : values[k];
            values[k] *= run->side->gain > 0.0F ? run->side->gain : 1.0F;
        }
    }
}

/* The optimiser was not given the parameters of one module. */
static void leave_out(const running *run)
{
    const size_t length = run->side->frozen != NULL ? strlen(run->side->frozen) : 0;

    for (size_t i = 0; length > 0 && i < sonde_nn_parameter_count(run->model); i++) {
        const char *name = sonde_nn_parameter_name(run->model, i);

        if (strncmp(name, run->side->frozen, length) == 0 && name[length] == '.') {
            sonde_nn_parameter_leave_out(run->model, i, true);
        }
    }
}

/* --- setting up ------------------------------------------------------------------- */

static sonde_err open_data(running *run, sonde_diag *diag)
{
    const demo_data *data = &run->side->data;
    sonde_err err = cli_demo_data(data, run->asked->data, SONDE_NN_TRAIN, run->info->seed,
                                  &run->train, diag);

    if (err == SONDE_OK) {
        err = cli_loader_create(run->info, run->train.set, run->info->batch_size, true, 0,
                                &run->loader, diag);
    }
    return err == SONDE_OK && data->test > 0
               ? cli_demo_data(data, run->asked->data, SONDE_NN_TEST, run->info->seed,
                               &run->test, diag)
               : err;
}

static sonde_err make_training(running *run, sonde_diag *diag)
{
    const sonde_hook_options hook = {.record = {.path = run->asked->run,
                                                .program = "sonde demo",
                                                .model = run->of->name}};
    sonde_err err = sonde_nn_training_session(
        run->model, &run->info->options, &run->info->optimizer, &run->training, diag);

    err = err == SONDE_OK ? sonde_nn_job_hook(run->job, &hook, &run->hook, diag) : err;
    err = err == SONDE_OK ? sonde_nn_session_attach_hook(run->training, run->hook, diag)
                          : err;
    err = err == SONDE_OK ? cli_judge_attach(&run->judge, run->training, diag) : err;
    return err == SONDE_OK ? sonde_nn_session_compile(run->training, diag) : err;
}

static sonde_err make_evaluation(running *run, sonde_diag *diag)
{
    const cli_evaluating of = {.info = run->info,
                               .model = run->model,
                               .set = run->test.set,
                               .hook = run->hook,
                               .judge = &run->judge,
                               .quiet = true};

    return cli_evaluation_create(&of, &run->evaluation, diag);
}

static sonde_err set_up(running *run, sonde_diag *diag)
{
    sonde_err err = open_job(run, diag);

    err = err == SONDE_OK ? cli_evaluation_model(run->job, &run->model, diag) : err;
    if (err != SONDE_OK) {
        return err;
    }
    set_weights(run);
    leave_out(run);
    run->judge = (cli_judge){.rules = run->asked->rules,
                             .interval = 1,
                             .raw_interval = run->of->each_weight ? 1 : RAW_INTERVAL};
    err = open_data(run, diag);
    err = err == SONDE_OK ? make_training(run, diag) : err;
    return err == SONDE_OK && run->side->data.test > 0 ? make_evaluation(run, diag) : err;
}

static void tear_down(running *run)
{
    sonde_nn_loader_destroy(run->loader);
    sonde_nn_session_destroy(run->training);
    cli_evaluation_destroy(run->evaluation);
    sonde_nn_model_destroy(run->model);
    cli_demo_data_free(&run->train);
    cli_demo_data_free(&run->test);
    sonde_nn_job_destroy(run->job);
}

/* --- running ---------------------------------------------------------------------- */

static sonde_err train_step(const running *run, const sonde_nn_batch *batch, double *loss,
                            sonde_diag *diag)
{
    sonde_view inputs[2], view;
    sonde_err err = SONDE_OK;

    cli_batch_views(run->info, batch, inputs);
    err = sonde_nn_session_run(run->training, inputs, 2, diag);
    err = err == SONDE_OK ? sonde_nn_session_output(run->training, 1, &view, diag) : err;
    *loss = err == SONDE_OK ? (double)*(const float *)view.data : 0.0;
    if (isnan(*loss)) {
        *loss = (double)NAN; /* a NaN has a sign that means nothing */
    }
    if (err == SONDE_OK && run->side->decay > 0.0F) {
        run->info->optimizer.learning_rate *= run->side->decay;
        err = sonde_nn_session_set_optimizer(run->training, &run->info->optimizer, diag);
    }
    return err;
}

static void say_step(const running *run, int64_t step, double loss)
{
    if (!run->asked->quiet && run->evaluation == NULL) {
        (void)printf("  step %4lld: loss %.4g\n", (long long)step, loss);
        (void)fflush(stdout);
    }
}

static sonde_err train_epoch(const running *run, int epoch, sonde_nn_running_mean *mean,
                             sonde_diag *diag)
{
    enum { EVERY = 20 };
    int64_t step = 0;
    double loss = 0.0;
    sonde_nn_batch batch = {.count = 1};
    sonde_err err = SONDE_OK;

    sonde_nn_loader_start_epoch(run->loader, (uint64_t)epoch);
    while (err == SONDE_OK) {
        err = sonde_nn_loader_next(run->loader, &batch, diag);
        if (err != SONDE_OK || batch.count == 0) {
            break;
        }
        for (int i = 0; err == SONDE_OK && i < (run->side->twice ? 2 : 1); i++) {
            step = sonde_nn_session_step(run->training);
            err = train_step(run, &batch, &loss, diag);
            sonde_nn_running_mean_add(mean, loss, 1.0);
            if (err == SONDE_OK && step % EVERY == 0) {
                say_step(run, step, loss);
            }
        }
        if (err == SONDE_OK && cli_interrupted()) {
            err = diag->err = SONDE_EINTERRUPTED;
        }
    }
    if (err == SONDE_OK && step % EVERY != 0) {
        say_step(run, step, loss);
    }
    return err;
}

static sonde_err run_epoch(const running *run, int epoch, sonde_diag *diag)
{
    sonde_nn_running_mean mean = {0};
    sonde_err err = train_epoch(run, epoch, &mean, diag);

    if (err != SONDE_OK || run->evaluation == NULL) {
        return err;
    }
    err = cli_evaluation_run(run->evaluation, diag);
    if (err == SONDE_OK && !run->asked->quiet) {
        (void)printf("  epoch %2d: loss %.4g, test loss %.4g\n", epoch + 1,
                     sonde_nn_running_mean_get(&mean),
                     cli_evaluation_score(run->evaluation).loss);
        (void)fflush(stdout);
    }
    return err;
}

static sonde_err run_all(const running *run, sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    for (int epoch = 0; err == SONDE_OK && epoch < run->info->epochs; epoch++) {
        if (run->asked->epoch != NULL && run->evaluation != NULL) {
            *run->asked->epoch = epoch + 1;
        }
        err = run_epoch(run, epoch, diag);
    }
    return err;
}

sonde_err cli_demo_train(const demo *of, const demo_side *side,
                         const demo_options *options, sonde_diag *diag)
{
    running run = {.of = of, .side = side, .asked = options};
    sonde_err err = set_up(&run, diag);

    err = err == SONDE_OK ? run_all(&run, diag) : err;
    cli_hook_close(run.hook, err, diag);
    tear_down(&run);
    return err;
}

/*
 * demo_run.c - trains one side of a demo and records it.
 *
 *     for every epoch: train steps, then the test samples, with their loss
 *
 * What is recorded is what the rules ask for: vital signs of everything at every step, raw
 * values of labels and scores at every step, of parameters, gradients and activations now and
 * then.
 */
#include "cli/demo.h"
#include "cli/job.h"
#include "cli/record.h"

#include <sonde/nn/session.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char recording[] =
    "record:\n"
    "  save_interval: 20\n"
    "  vitals_interval: 1\n"
    "  compress: true\n"
    "  collections:\n"
    "    inputs: {save_interval: 1, reductions: [mean]}\n"
    "    outputs: {save_interval: 1, reductions: [mean]}\n"
    "    activations: {save_interval: 1, reductions: [mean]}\n"
    "    labels: {include: 'input/1', save_interval: 1}\n"
    "    units: {include: 're:^(relu[0-9]?_output|(tanh|sigmoid)_input)_[0-9]$',"
    " save_interval: 10}\n";

typedef struct running {
    const demo *of;
    const demo_side *side;
    const demo_options *asked;
    sonde_nn_job *job;
    sonde_nn_job_info *info;
    sonde_nn_model *model;
    sonde_nn_session *training, *evaluation;
    sonde_hook *hook;
    demo_set train, test;
    sonde_nn_loader *loader, *tester;
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
    const char *weights = run->of->each_weight ? "    weights: {save_interval: 1}\n" : "";
    const size_t size =
        strlen(model) + strlen(run->side->job) + sizeof recording + strlen(weights);
    char *text = malloc(size);
    sonde_err err = SONDE_OK;

    if (text == NULL) {
        return fail_memory(diag);
    }
    (void)snprintf(text, size, "%s%s%s%s", model, run->side->job, recording, weights);
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

static sonde_err open_data(running *run, int64_t batch, sonde_diag *diag)
{
    const demo_data *data = &run->side->data;
    sonde_err err = cli_demo_data(data, run->asked->data, SONDE_NN_TRAIN, run->info->seed,
                                  &run->train, diag);

    if (err == SONDE_OK) {
        err = cli_loader_create(run->info, run->train.set, batch, true, 0, &run->loader,
                                diag);
    }
    if (err == SONDE_OK && data->test > 0) {
        err = cli_demo_data(data, run->asked->data, SONDE_NN_TEST, run->info->seed,
                            &run->test, diag);
        if (err == SONDE_OK) {
            err = cli_loader_create(run->info, run->test.set, run->info->eval_batch_size,
                                    false, 0, &run->tester, diag);
        }
    }
    return err;
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
    return err == SONDE_OK ? sonde_nn_session_compile(run->training, diag) : err;
}

static sonde_err make_evaluation(running *run, sonde_diag *diag)
{
    sonde_nn_options options = run->info->options;
    sonde_err err = SONDE_OK;

    sonde_nn_batch_size(&options, run->info->eval_batch_size);
    err = sonde_nn_inference_session(run->model, &options, &run->evaluation, diag);
    err = err == SONDE_OK ? sonde_nn_session_attach_hook(run->evaluation, run->hook, diag)
                          : err;
    return err == SONDE_OK ? sonde_nn_session_compile(run->evaluation, diag) : err;
}

static sonde_err set_up(running *run, sonde_diag *diag)
{
    sonde_err err = open_job(run, diag);

    err = err == SONDE_OK ? sonde_nn_job_build(run->job, &run->model, diag) : err;
    if (err != SONDE_OK) {
        return err;
    }
    set_weights(run);
    leave_out(run);
    /* so that evaluation knows its loss as well */
    sonde_nn_output(run->model, sonde_nn_model_loss(run->model));
    err = open_data(run, run->info->batch_size, diag);
    err = err == SONDE_OK ? make_training(run, diag) : err;
    return err == SONDE_OK && run->side->data.test > 0 ? make_evaluation(run, diag) : err;
}

static void tear_down(running *run)
{
    sonde_nn_loader_destroy(run->loader);
    sonde_nn_loader_destroy(run->tester);
    sonde_nn_session_destroy(run->training);
    sonde_nn_session_destroy(run->evaluation);
    sonde_nn_model_destroy(run->model);
    cli_demo_data_free(&run->train);
    cli_demo_data_free(&run->test);
    sonde_nn_job_destroy(run->job);
}

/* --- running ---------------------------------------------------------------------- */

/* Output i of the session as numbers. */
static sonde_err output(const sonde_nn_session *session, size_t i, const float **values,
                        sonde_diag *diag)
{
    sonde_view view;
    const sonde_err err = sonde_nn_session_output(session, i, &view, diag);

    if (err == SONDE_OK) {
        *values = view.data;
    }
    return err;
}

static sonde_err train_step(const running *run, const sonde_nn_batch *batch, double *loss,
                            sonde_diag *diag)
{
    sonde_view inputs[2];
    const float *values = NULL;
    sonde_err err = SONDE_OK;

    cli_batch_views(run->info, batch, inputs);
    err = sonde_nn_session_run(run->training, inputs, 2, diag);
    err = err == SONDE_OK ? output(run->training, 1, &values, diag) : err;
    *loss = err == SONDE_OK ? (double)values[0] : 0.0;
    if (err == SONDE_OK && run->side->decay > 0.0F) {
        run->info->optimizer.learning_rate *= run->side->decay;
        err = sonde_nn_session_set_optimizer(run->training, &run->info->optimizer, diag);
    }
    return err;
}

static void say_loss(const running *run, const char *what, int64_t step, double loss)
{
    if (!run->asked->quiet) {
        /* a NaN has a sign that means nothing */
        (void)printf("  %s %4lld: loss %.4g\n", what, (long long)step,
                     isnan(loss) ? (double)NAN : loss);
        (void)fflush(stdout);
    }
}

static sonde_err train_epoch(const running *run, int epoch, sonde_diag *diag)
{
    const int64_t every = run->side->data.test > 0 ? INT64_MAX : 20;
    double loss = 0.0;
    sonde_nn_batch batch = {.count = 1};
    sonde_err err = SONDE_OK;

    sonde_nn_loader_start_epoch(run->loader, (uint64_t)epoch);
    while (err == SONDE_OK) {
        int64_t step = 0;

        err = sonde_nn_loader_next(run->loader, &batch, diag);
        if (err != SONDE_OK || batch.count == 0) {
            break;
        }
        for (int i = 0; err == SONDE_OK && i < (run->side->twice ? 2 : 1); i++) {
            step = sonde_nn_session_step(run->training);
            err = train_step(run, &batch, &loss, diag);
            if (err == SONDE_OK && step % every == 0 && every != INT64_MAX) {
                say_loss(run, "step", step, loss);
            }
        }
        if (err == SONDE_OK && cli_interrupted()) {
            err = diag->err = SONDE_EINTERRUPTED;
        }
    }
    if (err == SONDE_OK) {
        say_loss(run, "step", sonde_nn_session_step(run->training) - 1, loss);
    }
    return err;
}

static sonde_err evaluate(const running *run, sonde_diag *diag)
{
    sonde_nn_batch batch = {.count = 1};
    double sum = 0.0;
    int64_t batches = 0;
    sonde_err err = SONDE_OK;

    sonde_nn_loader_start_epoch(run->tester, 0);
    while (err == SONDE_OK) {
        sonde_view inputs[2];
        const float *loss = NULL;

        err = sonde_nn_loader_next(run->tester, &batch, diag);
        if (err != SONDE_OK || batch.count < run->info->eval_batch_size) {
            break;
        }
        cli_batch_views(run->info, &batch, inputs);
        err = sonde_nn_session_run(run->evaluation, inputs, 2, diag);
        err = err == SONDE_OK ? output(run->evaluation, 1, &loss, diag) : err;
        sum += err == SONDE_OK ? (double)loss[0] : 0.0;
        batches++;
    }
    if (err == SONDE_OK && batches > 0) {
        say_loss(run, "     of the test samples,", batches * run->info->eval_batch_size,
                 sum / (double)batches);
    }
    return err;
}

static sonde_err run_all(const running *run, sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    for (int epoch = 0; err == SONDE_OK && epoch < run->info->epochs; epoch++) {
        err = train_epoch(run, epoch, diag);
        if (err == SONDE_OK && run->evaluation != NULL) {
            err = evaluate(run, diag);
        }
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

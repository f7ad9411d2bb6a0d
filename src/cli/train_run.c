/*
 * train_run.c - the loop of `sonde train`: epochs, an evaluation behind each, the score at the end.
 *
 *     train epoch 1 | evaluate | checkpoint | train epoch 2 | evaluate | checkpoint | ... | score
 *
 * Evaluations between epochs are part of the run: they are recorded, and judged. They take the same
 * samples each time, so that one can be compared with another. The score at the end is taken over
 * the whole test set; if that is what was evaluated between epochs, the last of these is it.
 */
#include "cli/train.h"

#include "cli/cli_job.h"
#include "cli/cli_run.h"

#include <math.h>
#include <string.h>

/* Those of the session that are done, before a checkpoint and after it. */
static int64_t calls(const cli_training *run)
{
    return sonde_nn_session_step(run->session) / run->info->options.device_iterations;
}

/* --- training --------------------------------------------------------------------- */

static sonde_err keep_loss(cli_training *run, sonde_nn_running_mean *mean,
                           sonde_diag *diag)
{
    const size_t last = sonde_nn_session_output_count(run->session) - 1;
    sonde_view view;
    double loss = 0.0;
    sonde_err err = sonde_nn_session_output(run->session, last, &view, diag);

    if (err != SONDE_OK) {
        return err;
    }
    loss = (double)*(const float *)view.data;
    sonde_nn_running_mean_add(mean, loss, 1.0);
    return cli_curve_add(&run->losses, (double)(calls(run) - 1), loss, diag);
}

static sonde_err save_checkpoint(const cli_training *run, sonde_diag *diag)
{
    char path[4096];
    const sonde_err err =
        cli_join(run->out, "checkpoint.safetensors", path, sizeof path, diag);

    return err == SONDE_OK ? sonde_nn_session_save(run->session, path, diag) : err;
}

static sonde_err train_epoch(cli_training *run, int epoch, int64_t skip,
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

static sonde_err tell_hook(const cli_training *run, const char *name, double value,
                           sonde_diag *diag)
{
    return run->hook != NULL ? sonde_hook_scalar(run->hook, name, value, diag) : SONDE_OK;
}

/* Ctrl-C, or a request: what is needed to go on is saved. */
static sonde_err break_off(cli_training *run, sonde_diag *diag)
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
        sonde_json *const json = cli_json();

        sonde_json_object(json, NULL);
        sonde_json_string(json, "event", "stopped");
        sonde_json_int(json, "step", step);
        sonde_json_string(json, "by", asked->by == SONDE_BY_RULE ? "rule" : "user");
        sonde_json_string(json, "text", asked->text);
        sonde_json_end(json);
        cli_json_print("\n");
    }
    cli_warn("stopped after %lld step%s: %.*s; go on with --resume "
             "%s/checkpoint.safetensors",
             step, step == 1 ? "" : "s", cli_sentence(asked->text), asked->text,
             run->out);
    return SONDE_OK;
}

/* --- epochs ----------------------------------------------------------------------- */

/* What came of an epoch. */
typedef struct epoch_result {
    double loss, seconds; /* of training */
    int64_t samples;
    bool evaluated;
    cli_score score;
} epoch_result;

static const char *set_name(const cli_training *run)
{
    return run->held_out != NULL ? "val" : "test";
}

static void print_number(const char *key, double value)
{
    (void)printf(", \"%s\": ", key);
    (void)printf(isfinite(value) ? "%.9g" : "null", value);
}

static void report_epoch(const cli_training *run, int epoch, const epoch_result *of)
{
    const double rate = of->seconds > 0.0 ? (double)of->samples / of->seconds : 0.0;

    if (run->asked->json) {
        (void)printf("{\"event\": \"epoch\", \"epoch\": %d, \"step\": %lld", epoch,
                     (long long)sonde_nn_session_step(run->session));
        print_number("loss", of->loss);
        if (of->evaluated) {
            (void)printf(", \"eval_set\": \"%s\"", set_name(run));
            print_number("eval_loss", of->score.loss);
            print_number("eval_accuracy", of->score.accuracy);
            (void)printf(", \"eval_samples\": %lld", (long long)of->score.samples);
        }
        (void)printf(", \"seconds\": %.6f, \"samples_per_second\": %.1f}\n", of->seconds,
                     rate);
    } else if (!run->asked->quiet) {
        (void)printf("epoch %d/%d: loss %.4f", epoch + 1, run->info->epochs, of->loss);
        if (of->evaluated) {
            (void)printf(", %s loss %.4f, %s accuracy %.2f%%", set_name(run),
                         of->score.loss, set_name(run), 100.0 * of->score.accuracy);
        }
        (void)printf(", %.2f s, %.0f samples/s\n", of->seconds, rate);
    }
    (void)fflush(stdout);
}

static bool is_evaluated(const cli_training *run, int epoch)
{
    return run->between != NULL &&
           ((epoch + 1) % run->info->eval_every == 0 || epoch + 1 == run->info->epochs);
}

static sonde_err evaluate_epoch(cli_training *run, int epoch, epoch_result *of,
                                sonde_diag *diag)
{
    sonde_err err = cli_evaluation_run(run->between, diag);

    if (err != SONDE_OK) {
        return err;
    }
    run->evaluated = epoch + 1;
    of->evaluated = true;
    of->score = cli_evaluation_score(run->between);
    err =
        cli_curve_add(&run->evaluations, (double)(calls(run) - 1), of->score.loss, diag);
    if (err == SONDE_OK) {
        err = tell_hook(run, "eval_loss", of->score.loss, diag);
    }
    return err == SONDE_OK ? tell_hook(run, "eval_accuracy", of->score.accuracy, diag)
                           : err;
}

/* Training that was begun at batch skip has come to the end of its epoch. */
static sonde_err end_epoch(cli_training *run, int epoch, epoch_result *of,
                           sonde_diag *diag)
{
    sonde_err err = tell_hook(run, "epoch_loss", of->loss, diag);

    if (err == SONDE_OK && is_evaluated(run, epoch)) {
        err = evaluate_epoch(run, epoch, of, diag);
    }
    if (err == SONDE_OK) {
        report_epoch(run, epoch, of);
        err = sonde_nn_session_heed(run->session, diag);
    }
    return err == SONDE_OK ? save_checkpoint(run, diag) : err;
}

/* What epochs are evaluated on, unless it is the whole test set. */
static void tell_evaluation(const cli_training *run)
{
    const sonde_nn_dataset *set = run->held_out != NULL ? run->held_out : run->test;
    const int64_t most = run->info->eval_samples;
    int64_t all = 0;
    char some_text[32], all_text[32];

    if (run->between == NULL || run->asked->quiet || run->asked->json) {
        return;
    }
    all = sonde_nn_dataset_get_traits(set)->count;
    (void)cli_commas((uint64_t)all, all_text);
    if (most > 0 && most < all) {
        (void)printf("epochs are evaluated on %s of %s %s samples (--eval-samples)\n",
                     cli_commas((uint64_t)most, some_text), all_text,
                     run->held_out != NULL ? "held-out" : "test");
    } else if (run->held_out != NULL) {
        (void)printf("epochs are evaluated on %s held-out samples\n", all_text);
    }
    (void)fflush(stdout);
}

sonde_err cli_train_all(cli_training *run, sonde_diag *diag)
{
    sonde_nn_session_info plan;
    int64_t batches = 0, done = 0;
    sonde_err err = sonde_nn_session_describe(run->session, &plan, diag);

    if (err == SONDE_OK) {
        err = cli_loader_create(run->info, run->kept != NULL ? run->kept : run->train,
                                plan.combined_batch, true, 1, &run->loader, diag);
    }
    if (err != SONDE_OK) {
        return err;
    }
    tell_evaluation(run);
    batches = sonde_nn_loader_batches(run->loader);
    done = sonde_nn_session_step(run->session) / plan.device_iterations;
    for (int epoch = (int)(done / batches); err == SONDE_OK && epoch < run->info->epochs;
         epoch++) {
        const double started = cli_now();
        const int64_t skip = epoch == (int)(done / batches) ? done % batches : 0;
        sonde_nn_running_mean mean = {0};
        epoch_result result = {.samples = (batches - skip) * plan.combined_batch};

        run->judge.epoch = epoch + 1;
        err = train_epoch(run, epoch, skip, &mean, diag);
        if (err == SONDE_OK && !cli_interrupted()) {
            result.loss = sonde_nn_running_mean_get(&mean);
            result.seconds = cli_now() - started;
            err = end_epoch(run, epoch, &result, diag);
        }
        if (sonde_nn_session_stopped(run->session) != NULL ||
            (err == SONDE_OK && cli_interrupted())) {
            return break_off(run, diag);
        }
    }
    return err;
}

/* --- the score -------------------------------------------------------------------- */

/* The evaluation that has taken the whole test set with the weights as they are now; NULL if
 * none has. */
static cli_evaluation *is_scored(const cli_training *run)
{
    const int64_t all = sonde_nn_dataset_get_traits(run->test)->count;
    const bool whole = run->held_out == NULL && run->between != NULL &&
                       run->evaluated == run->info->epochs && run->evaluated > 0 &&
                       cli_evaluation_score(run->between).samples == all;

    return whole ? run->between : NULL;
}

/* With evaluations between epochs this one is no part of the run: on other samples its loss cannot
 * be compared with theirs. */
static sonde_err score(cli_training *run, sonde_diag *diag)
{
    const bool alone = run->between == NULL;
    const cli_evaluating of = {.info = run->info,
                               .model = run->model,
                               .set = run->test,
                               .hook = alone ? run->hook : NULL,
                               .judge = alone ? &run->judge : NULL,
                               .quiet = run->asked->quiet || run->asked->json};
    cli_evaluation *last = is_scored(run);
    sonde_err err = SONDE_OK;

    if (last == NULL) {
        err = cli_evaluation_create(&of, &run->final, diag);
        last = run->final;
    }
    if (err == SONDE_OK && run->final != NULL) {
        err = cli_evaluation_run(run->final, diag);
    }
    if (err != SONDE_OK) {
        return err;
    }
    run->score = cli_evaluation_score(last);
    run->matrix = cli_evaluation_matrix(last);
    err = tell_hook(run, "test_loss", run->score.loss, diag);
    return err == SONDE_OK ? tell_hook(run, "accuracy", run->score.accuracy, diag) : err;
}

sonde_err cli_train_finish(cli_training *run, sonde_diag *diag)
{
    char path[4096];
    sonde_err err = cli_join(run->out, "model.safetensors", path, sizeof path, diag);

    if (err == SONDE_OK) {
        err = sonde_nn_model_save(run->model, path, diag);
    }
    if (err != SONDE_OK || run->asked->no_eval || run->stopped != NULL) {
        return err;
    }
    err = score(run, diag);
    if (err == SONDE_OK && run->asked->json) {
        (void)printf("{\"event\": \"eval\"");
        print_number("loss", run->score.loss);
        (void)printf(", \"accuracy\": %.6f, \"samples\": %lld}\n", run->score.accuracy,
                     (long long)run->score.samples);
    } else if (err == SONDE_OK) {
        cli_print_scores(&run->score, run->matrix, run->test, run->asked->quiet);
    }
    return err;
}

/*
 * trainer.c - a trainer's run: see trainer.h.
 *
 *     prepare; for each epoch: train_epoch, end_epoch; finish
 */
#include "nn/train/train_state.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/whole_file.h"

#include <math.h>
#include <unistd.h>

static bool interrupted(const sonde_nn_trainer *trainer)
{
    const sonde_nn_trainer_events *events = &trainer->options.events;

    if (trainer->options.ranks != NULL) {
        return trainer->ends;
    }
    return events->interrupted != NULL && events->interrupted(events->user);
}

/* Takes requests; SONDE_EINTERRUPTED after one to stop. Ranks do so where they agree. */
static sonde_err heed(const sonde_nn_trainer *trainer, sonde_diag *diag)
{
    return trainer->options.ranks == NULL ? sonde_nn_session_heed(trainer->session, diag)
                                          : SONDE_OK;
}

/* The request that ends the training; NULL: none. */
static const sonde_request *stop_request(const sonde_nn_trainer *trainer)
{
    return trainer->rank_stopped ? &trainer->rank_stop
                                 : sonde_nn_session_stopped(trainer->session);
}

/* After a call: the mean loss over the ranks, and whether one of them is to end. All take
 * the same steps, so all end after the same one, by the same request. */
static sonde_err agree(sonde_nn_trainer *trainer, double *loss, sonde_diag *diag)
{
    const sonde_nn_trainer_events *events = &trainer->options.events;
    sonde_nn_ranks *ranks = trainer->options.ranks;
    double numbers[] = {*loss, 0.0};
    sonde_err err = SONDE_OK;

    if (ranks == NULL) {
        return SONDE_OK;
    }
    if (sonde_nn_session_heed(trainer->session, NULL) != SONDE_OK ||
        (events->interrupted != NULL && events->interrupted(events->user))) {
        numbers[1] = 1.0;
    }
    err = sonde_nn_ranks_sum(ranks, numbers, SONDE_COUNT_OF(numbers), diag);
    *loss = numbers[0] / sonde_nn_ranks_count(ranks);
    trainer->ends = numbers[1] > 0.0;
    if (err != SONDE_OK || !trainer->ends) {
        return err;
    }
    return sonde_nn_ranks_first(ranks, sonde_nn_session_stopped(trainer->session),
                                &trainer->rank_stop, sizeof trainer->rank_stop,
                                &trainer->rank_stopped, diag);
}

static sonde_err prepare(sonde_nn_trainer *trainer, sonde_diag *diag)
{
    SONDE__TRY(sonde_nn_session_compile(trainer->session, diag));
    SONDE__TRY(sonde_nn_session_describe(trainer->session, &trainer->plan, diag));
    SONDE__TRY(sonde__train_resume_load(trainer, diag));
    SONDE__TRY(sonde_nn_session_share(trainer->session, diag));
    trainer->first_step = sonde_nn_session_step(trainer->session);
    SONDE__TRY(sonde__train_open_data(trainer, diag));
    SONDE__TRY(sonde__train_agree(trainer, diag));
    SONDE__TRY(sonde__train_resume_check_data(trainer, diag));
    return sonde__train_open_evaluation(trainer, diag);
}

/* --- the set of evaluations ------------------------------------------------------- */

static const char *eval_set(const sonde_nn_trainer *trainer)
{
    return trainer->held_out != NULL ? "val" : "test";
}

/* Samples of that set. */
static int64_t count_eval_set(const sonde_nn_trainer *trainer)
{
    const sonde_nn_dataset *set =
        trainer->held_out != NULL ? trainer->held_out : trainer->test;

    return set != NULL ? sonde_nn_dataset_get_traits(set)->count
           : trainer->options.test != NULL
               ? sonde_nn_loader_get_info(trainer->options.test).samples
               : 0;
}

static void announce(const sonde_nn_trainer *trainer)
{
    const sonde_nn_trainer_events *events = &trainer->options.events;
    const int64_t all = count_eval_set(trainer);
    const int64_t most =
        trainer->job != NULL ? sonde_nn_job_get_info(trainer->job)->eval_samples : 0;
    const sonde_nn_trainer_plan plan = {
        .eval_set = trainer->between != NULL ? eval_set(trainer) : NULL,
        .eval_samples = most > 0 && most < all ? most : all,
        .eval_all = all,
        .resumed = trainer->resume[0] != '\0'};

    if (events->begin != NULL) {
        events->begin(events->user, &plan);
    }
}

/* --- training ----------------------------------------------------------------------- */

/* A job whose target is the sample reads no labels. */
static size_t count_inputs(const sonde_nn_trainer *trainer,
                           const sonde_nn_feed_batch *batch)
{
    const size_t most = sonde_nn_model_get_info(trainer->model).input_count;

    return trainer->job != NULL ? SONDE_MIN(batch->count, most) : batch->count;
}

static sonde_err train_batch(sonde_nn_trainer *trainer, const sonde_nn_feed_batch *batch,
                             sonde_nn_step *step, sonde__train_mean *mean,
                             sonde_diag *diag)
{
    const sonde_nn_trainer_events *events = &trainer->options.events;
    SONDE__TRY(sonde__train_set_rates(trainer, diag));
    SONDE__TRY(sonde_nn_session_run(trainer->session, batch->inputs,
                                    count_inputs(trainer, batch), diag));
    SONDE__TRY(sonde__train_keep_former(trainer, diag));
    SONDE__TRY(sonde_nn_session_loss(trainer->session, &step->loss, diag));
    SONDE__TRY(agree(trainer, &step->loss, diag));
    sonde__train_mean_add(mean, step->loss, 1.0);
    step->mean = sonde__train_mean_get(mean);
    step->step = sonde_nn_session_step(trainer->session);
    step->call = step->step / trainer->session_options.device_iterations - 1;
    step->samples += batch->samples;
    if (events->step != NULL) {
        SONDE__TRY(events->step(events->user, step, diag));
    }
    return heed(trainer, diag);
}

/* The first `skip` batches were trained on before the checkpoint. */
static sonde_err train_epoch(sonde_nn_trainer *trainer, int epoch, int64_t skip,
                             sonde__train_mean *mean, sonde_diag *diag)
{
    const sonde_nn_feed *feed = &trainer->feed;
    sonde_nn_step step = {.epoch = epoch};

    if (feed->start_epoch != NULL) {
        feed->start_epoch(feed->user, (uint64_t)epoch);
    }
    for (int64_t i = 0; !interrupted(trainer); i++) {
        sonde_nn_feed_batch batch = {0};
        SONDE__TRY(feed->next(feed->user, &batch, diag));
        if (batch.samples == 0) {
            return SONDE_OK;
        }
        if (i < skip) {
            step.samples += batch.samples;
            continue;
        }
        SONDE__TRY(train_batch(trainer, &batch, &step, mean, diag));
    }
    return SONDE_OK;
}

/* --- epochs ------------------------------------------------------------------------- */

static sonde_err record_number(const sonde_nn_trainer *trainer, const char *name,
                               double value, sonde_diag *diag)
{
    return trainer->hook != NULL && !trainer->options.no_scalars
               ? sonde_hook_scalar(trainer->hook, name, value, diag)
               : SONDE_OK;
}

/* The error of an output that is no class, and its R2 if it has one. */
static sonde_err record_fit(const sonde_nn_trainer *trainer, const char *error,
                            const char *r2, const sonde_nn_score *score, sonde_diag *diag)
{
    SONDE__TRY(record_number(trainer, error, score->error, diag));
    return isnan(score->r2) ? SONDE_OK : record_number(trainer, r2, score->r2, diag);
}

static sonde_err save_checkpoint(sonde_nn_trainer *trainer, sonde_diag *diag)
{
    const sonde_nn_trainer_events *events = &trainer->options.events;
    char path[SONDE__TRAIN_PATH];

    if (trainer->options.out == NULL) {
        return SONDE_OK;
    }
    SONDE__TRY(
        sonde__train_path(trainer->options.out, "checkpoint.safetensors", path, diag));
    SONDE__TRY(sonde_nn_session_save(trainer->session, path, diag));
    trainer->saved_step = sonde_nn_session_step(trainer->session);
    if (events->checkpoint != NULL) {
        events->checkpoint(events->user, path, trainer->saved_step);
    }
    return SONDE_OK;
}

/* A failure does not end training. */
static void try_checkpoint(sonde_nn_trainer *trainer)
{
    char line[SONDE_DIAG_LINE];
    sonde_diag diag = {0};

    trainer->unsaved = save_checkpoint(trainer, &diag) != SONDE_OK;
    if (trainer->unsaved) {
        sonde__train_warn(trainer, "%s; training continues without this checkpoint",
                          sonde_diag_line(&diag, line, sizeof line));
    }
}

static bool is_evaluated(const sonde_nn_trainer *trainer, int epoch)
{
    return trainer->between != NULL &&
           ((epoch + 1) % trainer->eval_every == 0 || epoch + 1 == trainer->epochs);
}

static sonde_err evaluate_epoch(sonde_nn_trainer *trainer, sonde_nn_epoch *epoch,
                                sonde_diag *diag)
{
    SONDE__TRY(sonde_nn_evaluator_run(trainer->between, diag));
    trainer->evaluated = epoch->number + 1;
    epoch->eval_set = eval_set(trainer);
    epoch->score = sonde_nn_evaluator_score(trainer->between);
    SONDE__TRY(record_number(trainer, "eval_loss", epoch->score.loss, diag));
    return epoch->score.tokens
               ? record_number(trainer, "eval_perplexity", epoch->score.perplexity, diag)
           : epoch->score.classes
               ? record_number(trainer, "eval_accuracy", epoch->score.accuracy, diag)
               : record_fit(trainer, "eval_error", "eval_r2", &epoch->score, diag);
}

static sonde_err end_epoch(sonde_nn_trainer *trainer, sonde_nn_epoch *epoch,
                           sonde_diag *diag)
{
    const sonde_nn_trainer_events *events = &trainer->options.events;
    SONDE__TRY(record_number(trainer, "epoch_loss", epoch->loss, diag));
    if (is_evaluated(trainer, epoch->number)) {
        SONDE__TRY(evaluate_epoch(trainer, epoch, diag));
    }
    if (events->epoch_end != NULL) {
        epoch->step = sonde_nn_session_step(trainer->session);
        SONDE__TRY(events->epoch_end(events->user, epoch, diag));
    }
    SONDE__TRY(heed(trainer, diag));
    try_checkpoint(trainer);
    return SONDE_OK;
}

static sonde_err run_epoch(sonde_nn_trainer *trainer, int number, int64_t skip,
                           sonde_diag *diag)
{
    const sonde_nn_trainer_events *events = &trainer->options.events;
    const double started = sonde__now();
    sonde__train_mean mean = {0};
    sonde_nn_epoch epoch = {.number = number,
                            .count = trainer->epochs,
                            .step = sonde_nn_session_step(trainer->session),
                            .samples = trainer->feed.samples};

    trainer->epoch = number + 1;
    if (events->epoch_begin != NULL) {
        events->epoch_begin(events->user, &epoch);
    }
    SONDE__TRY(train_epoch(trainer, number, skip, &mean, diag));
    if (interrupted(trainer)) {
        return SONDE_OK;
    }
    epoch.samples = (trainer->feed.batches - skip) * trainer->plan.combined_batch *
                    trainer->plan.ranks;
    epoch.loss = sonde__train_mean_get(&mean);
    epoch.seconds = sonde__now() - started;
    return end_epoch(trainer, &epoch, diag);
}

/* After an interruption or a request: saves the checkpoint that a resumed run needs. */
static sonde_err break_off(sonde_nn_trainer *trainer, sonde_diag *diag)
{
    const sonde_nn_trainer_events *events = &trainer->options.events;
    const sonde_request *request = stop_request(trainer);
    SONDE__TRY(save_checkpoint(trainer, diag));
    trainer->stopped = request;
    if (events->stopped != NULL) {
        events->stopped(events->user, request, sonde_nn_session_step(trainer->session));
    }
    return request != NULL
               ? SONDE_OK
               : sonde__fail(diag, SONDE_EINTERRUPTED, "training", NULL, "interrupted");
}

/* A rank has ended: what is done is kept, so that the ranks can be started again. */
static void keep_last_step(sonde_nn_trainer *trainer)
{
    if (trainer->options.out != NULL) {
        try_checkpoint(trainer);
        if (!trainer->unsaved) {
            sonde__train_warn(trainer,
                              "a rank has ended; resume with %s/checkpoint.safetensors, "
                              "of step %lld",
                              trainer->options.out, (long long)trainer->saved_step);
        }
    }
}

static sonde_err train_all(sonde_nn_trainer *trainer, sonde_diag *diag)
{
    const int64_t batches = trainer->feed.batches;
    const int64_t done =
        sonde_nn_session_step(trainer->session) / trainer->plan.device_iterations;

    announce(trainer);
    if (trainer->resume[0] != '\0' && done / batches >= trainer->epochs) {
        sonde__train_warn(
            trainer,
            "%s: at step %lld training is complete (epochs: %d), so nothing is trained",
            trainer->resume, (long long)trainer->first_step, trainer->epochs);
    }
    trainer->session_options.device_iterations = trainer->plan.device_iterations;
    sonde__train_set_total(trainer,
                           trainer->epochs * batches * trainer->plan.device_iterations);
    for (int64_t epoch = done / batches; epoch < trainer->epochs; epoch++) {
        const int64_t skip = epoch == done / batches ? done % batches : 0;
        const sonde_err err = run_epoch(trainer, (int)epoch, skip, diag);

        if (stop_request(trainer) != NULL || (err == SONDE_OK && interrupted(trainer))) {
            return break_off(trainer, diag);
        }
        if (err != SONDE_OK &&
            sonde_nn_ranks_sum(trainer->options.ranks, NULL, 0, NULL)) {
            keep_last_step(trainer);
        }
        if (err != SONDE_OK) {
            return err;
        }
    }
    return SONDE_OK;
}

/* --- the score ---------------------------------------------------------------------- */

/* The samples of the final score; NULL: none of a job. */
static const sonde_nn_dataset *score_set(const sonde_nn_trainer *trainer)
{
    return trainer->test != NULL ? trainer->test : trainer->held_out;
}

/* Whether the last evaluation covered that whole set with the final weights. */
static bool is_scored(const sonde_nn_trainer *trainer)
{
    return (trainer->held_out == NULL || trainer->test == NULL) &&
           trainer->between != NULL && trainer->evaluated == trainer->epochs &&
           trainer->evaluated > 0 &&
           sonde_nn_evaluator_score(trainer->between).samples == count_eval_set(trainer);
}

/* After evaluations between epochs, the final one is not part of the run: on other
 * samples its loss cannot be compared with theirs. */
static sonde_err evaluate_all(sonde_nn_trainer *trainer, sonde_diag *diag)
{
    if (trainer->final == NULL) {
        SONDE__TRY(sonde__train_make_evaluator(trainer, score_set(trainer), 0,
                                               trainer->between == NULL, &trainer->final,
                                               diag));
    }
    return sonde_nn_evaluator_run(trainer->final, diag);
}

static sonde_err score(sonde_nn_trainer *trainer, sonde_diag *diag)
{
    const sonde_nn_trainer_events *events = &trainer->options.events;
    const sonde_nn_evaluator *last = trainer->between;
    sonde_nn_score result;
    sonde_err err = SONDE_OK;

    if (!is_scored(trainer)) {
        err = evaluate_all(trainer, diag);
        last = trainer->final;
    }
    if (err != SONDE_OK) {
        return err;
    }
    result = sonde_nn_evaluator_score(last);
    trainer->matrix = result.matrix;
    SONDE__TRY(record_number(trainer, "test_loss", result.loss, diag));
    SONDE__TRY(
        result.tokens    ? record_number(trainer, "perplexity", result.perplexity, diag)
        : result.classes ? record_number(trainer, "accuracy", result.accuracy, diag)
                         : record_fit(trainer, "error", "r2", &result, diag));
    if (events->scored != NULL) {
        events->scored(events->user, &result, trainer->matrix);
    }
    return SONDE_OK;
}

/* The tokens of a model of byte pairs stand beside its weights. */
static sonde_err save_tokenizer(const sonde_nn_trainer *trainer, sonde_diag *diag)
{
    const sonde_nn_tokenizer *tokenizer = NULL;
    char path[SONDE__TRAIN_PATH];
    size_t size = 0;

    if (trainer->job == NULL ||
        sonde_nn_job_get_info(trainer->job)->input_dtype != SONDE_I64) {
        return SONDE_OK;
    }
    SONDE__TRY(sonde_nn_job_tokenizer(trainer->job, &tokenizer, diag));
    if (tokenizer == NULL) {
        return SONDE_OK;
    }
    SONDE__TRY(sonde__train_path(trainer->options.out, "tokenizer.json", path, diag));
    const char *json = sonde_nn_tokenizer_json(tokenizer, &size);

    return sonde__whole_put(path, json, size, diag);
}

/* Weights that were trained before are not overwritten by untrained ones. */
static sonde_err save_model(const sonde_nn_trainer *trainer, sonde_diag *diag)
{
    const sonde_nn_trainer_options *options = &trainer->options;
    const bool trained = trainer->resume[0] != '\0' ||
                         sonde_nn_session_step(trainer->session) > trainer->first_step;
    char path[SONDE__TRAIN_PATH];

    if (options->out == NULL) {
        return SONDE_OK;
    }
    SONDE__TRY(sonde__train_path(options->out, "model.safetensors", path, diag));
    if (!trained && access(path, F_OK) == 0) {
        sonde__train_warn(trainer, "%s is kept: nothing was trained", path);
        return SONDE_OK;
    }
    SONDE__TRY(save_tokenizer(trainer, diag));
    SONDE__TRY(sonde_nn_model_save(trainer->model, path, diag));
    if (options->events.saved != NULL) {
        options->events.saved(options->events.user, path);
    }
    return SONDE_OK;
}

static void report_unsaved(const sonde_nn_trainer *trainer)
{
    if (trainer->unsaved && trainer->saved_step < 0) {
        sonde__train_warn(trainer, "no checkpoint could be saved");
    } else if (trainer->unsaved) {
        sonde__train_warn(trainer,
                          "the last checkpoint that could be saved is at step %lld",
                          (long long)trainer->saved_step);
    }
}

/* A model that cannot be saved is scored all the same. */
static sonde_err finish(sonde_nn_trainer *trainer, sonde_diag *diag)
{
    const sonde_nn_trainer_options *options = &trainer->options;
    const sonde_err saved = save_model(trainer, diag);
    sonde_diag scoring = {0};

    if (trainer->stopped == NULL && !options->no_evaluation &&
        (score_set(trainer) != NULL || options->test != NULL)) {
        const sonde_err err = score(trainer, &scoring);

        if (err != SONDE_OK) {
            *diag = scoring;
            return err;
        }
    }
    if (trainer->rules != NULL) {
        sonde_rules_finish(trainer->rules);
    }
    report_unsaved(trainer);
    return saved;
}

sonde_err sonde_nn_trainer_run(sonde_nn_trainer *trainer, sonde_diag *diag)
{
    SONDE__NEEDS(diag, trainer);
    sonde_diag own = {0};
    sonde_err err = SONDE_OK;

    if (trainer->ran) {
        return sonde__fail(diag, SONDE_ESTATE, "trainer", "another trainer",
                           "it has run already");
    }
    trainer->ran = true;
    diag = diag != NULL ? diag : &own;
    SONDE__TRY_DONE(prepare(trainer, diag));
    SONDE__TRY_DONE(train_all(trainer, diag));
    err = finish(trainer, diag);

done:
    sonde__train_hook_close(trainer, err, diag);
    return err;
}

/* --- reading ------------------------------------------------------------------------ */

sonde_nn_trainer_info sonde_nn_trainer_get_info(const sonde_nn_trainer *trainer)
{
    if (trainer == NULL) {
        return (sonde_nn_trainer_info){.session = NULL};
    }
    return (sonde_nn_trainer_info){.session = trainer->session,
                                   .model = trainer->model,
                                   .rules = trainer->rules,
                                   .actions = trainer->actions,
                                   .stopped = trainer->stopped,
                                   .train = trainer->train,
                                   .test = trainer->test,
                                   .matrix = trainer->matrix};
}

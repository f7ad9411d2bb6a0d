/*
 * trainer_setup.c - a trainer's creation, its data and its evaluator.
 */
#include "nn/train/train_state.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/options.h"
#include "nn/ranks/ranks.h"

#include <sonde/log.h>
#include <sonde/nn/job.h>

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* --- feeds -------------------------------------------------------------------------- */

static void start_loader(void *user, uint64_t epoch)
{
    sonde_nn_loader_start_epoch(user, epoch);
}

static sonde_err next_of_loader(void *user, sonde_nn_feed_batch *out, sonde_diag *diag)
{
    sonde_nn_batch batch;
    SONDE__TRY(sonde_nn_loader_next(user, &batch, diag));
    out->count = sonde__train_batch_views(user, &batch, out->inputs);
    out->samples = batch.count;
    return SONDE_OK;
}

sonde_nn_feed sonde_nn_loader_feed(sonde_nn_loader *loader)
{
    if (loader == NULL) {
        return (sonde_nn_feed){0};
    }
    return (sonde_nn_feed){.user = loader,
                           .batches = sonde_nn_loader_get_info(loader).batches,
                           .samples = sonde_nn_loader_get_info(loader).samples,
                           .start_epoch = start_loader,
                           .next = next_of_loader};
}

/* --- creating ----------------------------------------------------------------------- */

static sonde_err attach_judging(sonde_nn_trainer *trainer, sonde_diag *diag)
{
    const char *path = trainer->hook != NULL ? sonde_hook_path(trainer->hook) : NULL;
    const char *folder = path != NULL ? path : trainer->options.out;
    char checkpoints[SONDE__TRAIN_PATH];
    SONDE__TRY(sonde__train_judging_open(trainer, path, diag));
    if (trainer->rules != NULL) {
        SONDE__TRY(sonde_nn_session_set(
            trainer->session,
            SONDE_OPTIONS(sonde_nn_session, .attach = sonde__train_judging_attach,
                          .user = trainer),
            diag));
    }
    if (folder != NULL) {
        SONDE__TRY(sonde__train_path(folder, "checkpoints", checkpoints, diag));
    }
    return sonde_nn_session_attach_control(trainer->session, trainer->control,
                                           folder != NULL ? checkpoints : NULL, diag);
}

/* The session with its recording and rules, not compiled. */
static sonde_err make_session(sonde_nn_trainer *trainer, sonde_diag *diag)
{
    SONDE__TRY(sonde__train_resume_find(trainer, diag));
    SONDE__TRY(sonde_nn_session_create(trainer->model, &trainer->session_options,
                                       &trainer->optimizer, &trainer->session, diag));
    SONDE__TRY(sonde_nn_session_set(
        trainer->session,
        SONDE_OPTIONS(sonde_nn_session, .ranks = trainer->options.ranks), diag));
    SONDE__TRY(sonde__train_add_groups(trainer, diag));
    if (trainer->job != NULL) {
        SONDE__TRY(sonde__train_hook_open(trainer, &trainer->hook, diag));
    }
    SONDE__TRY(sonde_nn_session_set(
        trainer->session, SONDE_OPTIONS(sonde_nn_session, .hook = trainer->hook), diag));
    return attach_judging(trainer, diag);
}

/* Refuses a folder that another trainer saves into. Where folders cannot be locked, or
 * there is none yet, nothing is locked. */
static sonde_err lock_out(sonde_nn_trainer *trainer, sonde_diag *diag)
{
    const char *out = trainer->options.out;

    trainer->lock = out != NULL ? open(out, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (trainer->lock >= 0 && flock(trainer->lock, LOCK_EX | LOCK_NB) != 0 &&
        errno == EWOULDBLOCK) {
        return sonde__fail(diag, SONDE_ESTATE, out, "another folder",
                           "another training saves into it");
    }
    return SONDE_OK;
}

/* What would crash later, or train nothing without a word. */
static sonde_err check_options(const sonde_nn_trainer_options *options, sonde_diag *diag)
{
    const sonde_nn_feed *feed = options->feed;

    if (options->group_count > 0 && options->groups == NULL) {
        return sonde__fail(diag, SONDE_EINVAL, "groups", "a pointer",
                           "%zu groups at NULL", options->group_count);
    }
    if (feed != NULL && (feed->next == NULL || feed->batches < 1)) {
        return sonde__fail(diag, SONDE_EINVAL, "feed", "next, and 1 batch or more",
                           feed->next == NULL ? "next is NULL" : "%lld batches",
                           (long long)feed->batches);
    }
    return SONDE_OK;
}

static sonde_err finish_create(sonde_nn_trainer *trainer, sonde_nn_trainer **out,
                               sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    trainer->saved_step = -1;
    if (sonde_nn_ranks_rank(trainer->options.ranks) > 0) {
        trainer->options.out = NULL; /* rank 0 saves */
    }
    SONDE__TRY_GO(lock_out(trainer, diag));
    SONDE__TRY_GO(sonde__train_take_rate(trainer, diag));
    SONDE__TRY_GO(make_session(trainer, diag));
    *out = trainer;
    return SONDE_OK;

error:
    if (trainer->options.hook != NULL) {
        trainer->hook = NULL; /* it is still the caller's */
    }
    sonde_nn_trainer_destroy(trainer);
    return err;
}

/* What trainers of both kinds have in common; NULL: memory is out. */
static sonde_nn_trainer *begin_create(const sonde_nn_trainer_options *options,
                                      sonde_diag *diag)
{
    sonde_nn_trainer *const trainer = sonde__calloc(1, sizeof *trainer);

    if (trainer == NULL) {
        (void)sonde__fail_nomem(diag, "a trainer");
        return NULL;
    }
    trainer->options = *options;
    trainer->options.feed = NULL;
    trainer->feed = options->feed != NULL ? *options->feed : (sonde_nn_feed){0};
    trainer->lock = -1;
    trainer->model = options->model;
    return trainer;
}

static sonde_err create_for_model(const sonde_nn_trainer_options *options,
                                  sonde_nn_trainer **out, sonde_diag *diag)
{
    sonde_nn_model *const model = options->model;
    const sonde_nn_feed *const feed = options->feed;
    SONDE__NEEDS(diag, model, feed);
    sonde_nn_options session;
    sonde_nn_options_init(&session);
    if (options->session != NULL) {
        SONDE__TAKE(sonde_nn_options, &session, options->session, diag);
    }
    if (options->epochs < 0 || options->eval_every < 0) {
        return sonde__fail(diag, SONDE_EINVAL, "epochs", "0 or more",
                           "%d epochs, evaluated every %lld", options->epochs,
                           (long long)options->eval_every);
    }
    sonde_nn_trainer *const trainer = begin_create(options, diag);
    if (trainer == NULL) {
        return SONDE_ENOMEM;
    }
    trainer->options.session = NULL;
    trainer->session_options = session;
    trainer->optimizer = options->optimizer;
    trainer->epochs = options->epochs;
    trainer->eval_every = options->eval_every;
    trainer->hook = options->hook;
    if (options->test != NULL) {
        (void)sonde_nn_output_loss(model);
    }
    return finish_create(trainer, out, diag);
}

static sonde_err open_split(const sonde_nn_trainer *trainer, sonde_nn_split split,
                            sonde_nn_dataset **out, sonde_diag *diag)
{
    const sonde_nn_trainer_options *options = &trainer->options;

    return options->open_data != NULL
               ? options->open_data(options->events.user, split, out, diag)
               : sonde_nn_job_open_data(trainer->job, split, out, diag);
}

/* A text may have fewer byte pairs than the job asks for: then the model has as many tokens
 * as are learnt. */
static sonde_err settle_vocabulary(sonde_nn_job *job, sonde_diag *diag)
{
    const sonde_nn_job_info *info = sonde_nn_job_get_info(job);
    const sonde_nn_tokenizer *tokenizer = NULL;
    char text[24];

    if (info->input_dtype != SONDE_I64 || info->tokens == 0 ||
        info->tokenizer[0] != '\0') {
        return SONDE_OK;
    }
    SONDE__TRY(sonde_nn_job_tokenizer(job, &tokenizer, diag));
    if (sonde_nn_tokenizer_size(tokenizer) >= info->classes) {
        return SONDE_OK;
    }
    (void)snprintf(text, sizeof text, "%lld",
                   (long long)sonde_nn_tokenizer_size(tokenizer));
    return sonde_nn_job_set(job, "vocabulary", text, diag);
}

static sonde_err create_for_job(sonde_nn_job *job,
                                const sonde_nn_trainer_options *options,
                                sonde_nn_trainer **out, sonde_diag *diag)
{
    const sonde_nn_job_info *info = sonde_nn_job_get_info(job);
    sonde_err err = SONDE_OK;
    SONDE__TRY(sonde_nn_job_set_environment(job, diag));
    sonde_nn_trainer *const trainer = begin_create(options, diag);
    if (trainer == NULL) {
        return SONDE_ENOMEM;
    }
    trainer->options.hook = NULL;
    trainer->job = job;
    trainer->session_options = info->options;
    trainer->optimizer = info->optimizer;
    trainer->epochs = info->epochs;
    trainer->eval_every = info->eval_every;
    if (options->feed == NULL) {
        SONDE__TRY_GO(settle_vocabulary(job, diag));
    }
    if (sonde_nn_job_get_info(job)->balanced && trainer->feed.next == NULL) {
        SONDE__TRY_GO(open_split(trainer, SONDE_NN_TRAIN, &trainer->train, diag));
        SONDE__TRY_GO(sonde_nn_job_balance(job, trainer->train, diag));
    }
    if (trainer->model == NULL) {
        SONDE__TRY_GO(sonde_nn_job_build(job, &trainer->own_model, diag));
        trainer->model = trainer->own_model;
    }
    (void)sonde_nn_output_loss(trainer->model);
    return finish_create(trainer, out, diag);

error:
    sonde_nn_trainer_destroy(trainer);
    return err;
}

sonde_err sonde_nn_trainer_create(sonde_nn_job *job,
                                  const sonde_nn_trainer_options *options,
                                  sonde_nn_trainer **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, options, out);
    sonde_nn_trainer_options taken;
    SONDE__TAKE(sonde_nn_trainer_options, &taken, options, diag);
    SONDE__TRY(check_options(&taken, diag));
    return job != NULL ? create_for_job(job, &taken, out, diag)
                       : create_for_model(&taken, out, diag);
}

void sonde_nn_trainer_destroy(sonde_nn_trainer *trainer)
{
    if (trainer == NULL) {
        return;
    }
    sonde_nn_evaluator_destroy(trainer->between);
    sonde_nn_evaluator_destroy(trainer->final);
    sonde_nn_loader_destroy(trainer->loader);
    sonde_nn_session_destroy(trainer->session);
    sonde__train_hook_close(trainer, SONDE_EINTERRUPTED, NULL);
    sonde__train_judging_close(trainer);
    sonde_nn_model_destroy(trainer->own_model);
    sonde_nn_dataset_destroy(trainer->held_out);
    sonde_nn_dataset_destroy(trainer->kept);
    sonde_nn_dataset_destroy(trainer->train);
    sonde_nn_dataset_destroy(trainer->test);
    if (trainer->lock >= 0) {
        (void)close(trainer->lock);
    }
    sonde__free(trainer->groups);
    sonde__free(trainer);
}

/* --- the data ----------------------------------------------------------------------- */

/* The training set, less the samples that are held out of it. */
static sonde_err open_training(sonde_nn_trainer *trainer, sonde_diag *diag)
{
    enum { SEED = 0 }; /* holds out the same samples in every run */
    sonde_nn_job_info *info = sonde_nn_job_get_info(trainer->job);
    const double share = (double)info->validation;
    if (trainer->train == NULL) {
        SONDE__TRY(open_split(trainer, SONDE_NN_TRAIN, &trainer->train, diag));
    }
    if (share > 0.0) {
        const int64_t all = sonde_nn_dataset_get_traits(trainer->train)->count;

        SONDE__TRY(sonde_nn_dataset_split(trainer->train, llround(share * (double)all),
                                          SEED, &trainer->held_out, &trainer->kept,
                                          diag));
    }
    info->rank = sonde_nn_ranks_rank(trainer->options.ranks);
    info->world = sonde_nn_ranks_count(trainer->options.ranks);
    SONDE__TRY(sonde_nn_job_loader(
        trainer->job, trainer->kept != NULL ? trainer->kept : trainer->train,
        trainer->plan.combined_batch, true, &trainer->loader, diag));
    trainer->feed = sonde_nn_loader_feed(trainer->loader);
    return SONDE_OK;
}

sonde_err sonde__train_open_data(sonde_nn_trainer *trainer, sonde_diag *diag)
{
    if (trainer->job == NULL) {
        return SONDE_OK;
    }
    if (trainer->feed.next == NULL) {
        SONDE__TRY(open_training(trainer, diag));
    }
    if (trainer->options.no_evaluation) {
        return SONDE_OK;
    }
    if (sonde_nn_job_has_test(trainer->job)) {
        return open_split(trainer, SONDE_NN_TEST, &trainer->test, diag);
    }
    if (trainer->held_out == NULL) {
        sonde__train_warn(
            trainer,
            "%s: no folder test, so nothing is evaluated; 'validation' holds "
            "out samples to evaluate on",
            sonde_nn_job_get_info(trainer->job)->data_path);
    }
    return SONDE_OK;
}

/* --- the same training in all ranks --------------------------------------------------- */

static uint64_t mix_real(uint64_t hash, double number)
{
    int64_t bits = 0;

    memcpy(&bits, &number, sizeof bits);
    return sonde__ranks_mix(hash, bits);
}

static uint64_t mix_rate(uint64_t hash, const sonde_nn_rate *rate)
{
    hash = sonde__ranks_mix(hash, (int64_t)rate->kind);
    hash = sonde__ranks_mix(hash, rate->warmup);
    hash = sonde__ranks_mix(hash, rate->total);
    hash = sonde__ranks_mix(hash, rate->every);
    hash = mix_real(mix_real(hash, rate->gamma), rate->end);
    for (int i = 0; i < rate->table_count; i++) {
        hash = sonde__ranks_mix(hash, rate->table_step[i]);
        hash = mix_real(hash, rate->table_rate[i]);
    }
    return hash;
}

sonde_err sonde__train_agree(const sonde_nn_trainer *trainer, sonde_diag *diag)
{
    const sonde_nn_dataset *set = trainer->kept != NULL ? trainer->kept : trainer->train;
    sonde_nn_ranks *const ranks = trainer->options.ranks;
    uint64_t rates = mix_rate(SONDE__RANKS_SEED, &trainer->rate);

    if (ranks == NULL) {
        return SONDE_OK;
    }
    for (size_t i = 0; i < trainer->group_count; i++) {
        rates = mix_rate(rates, &trainer->groups[i].rate);
    }
    SONDE__TRY(sonde__ranks_agree(ranks, (uint64_t)trainer->epochs,
                                  "the number of epochs", diag));
    SONDE__TRY(sonde__ranks_agree(ranks, rates, "the schedule", diag));
    return set == NULL
               ? SONDE_OK
               : sonde__ranks_agree(ranks,
                                    (uint64_t)sonde_nn_dataset_get_traits(set)->count,
                                    "the number of training samples", diag);
}

/* --- evaluation --------------------------------------------------------------------- */

/* Evaluations between epochs are never broken off. */
static bool report_progress(void *user, int64_t done, int64_t total)
{
    const sonde_nn_trainer *trainer = user;
    const sonde_nn_trainer_events *events = &trainer->options.events;

    if (events->evaluating != NULL) {
        events->evaluating(events->user, done, total);
    }
    return trainer->final == NULL || events->interrupted == NULL ||
           !events->interrupted(events->user);
}

static sonde_nn_evaluator_options evaluator_options(sonde_nn_trainer *trainer,
                                                    bool part_of_run)
{
    const bool judged = part_of_run && trainer->rules != NULL;

    return (sonde_nn_evaluator_options){.size = sizeof(sonde_nn_evaluator_options),
                                        .session = &trainer->session_options,
                                        .hook = part_of_run ? trainer->hook : NULL,
                                        .attach =
                                            judged ? sonde__train_judging_attach : NULL,
                                        .attach_user = trainer,
                                        .progress = report_progress,
                                        .progress_user = trainer};
}

sonde_err sonde__train_make_evaluator(sonde_nn_trainer *trainer,
                                      const sonde_nn_dataset *set, int64_t most,
                                      bool part_of_run, sonde_nn_evaluator **out,
                                      sonde_diag *diag)
{
    sonde_nn_evaluator_options options = evaluator_options(trainer, part_of_run);

    options.loader = trainer->options.test;
    options.set = set;
    options.most = most;
    return sonde_nn_evaluator_create(options.loader != NULL ? NULL : trainer->job,
                                     trainer->model, &options, out, diag);
}

/* Call after compiling the training session: some names that a hook may select exist
 * only there. Without evaluations between epochs, makes the final one, so that its
 * mistakes are found before the first step. */
sonde_err sonde__train_open_evaluation(sonde_nn_trainer *trainer, sonde_diag *diag)
{
    const bool between = trainer->eval_every > 0;
    const sonde_nn_dataset *set = trainer->held_out != NULL && (between || !trainer->test)
                                      ? trainer->held_out
                                      : trainer->test;

    if (trainer->options.no_evaluation || (set == NULL && !trainer->options.test)) {
        return SONDE_OK;
    }
    return sonde__train_make_evaluator(
        trainer, set,
        between && trainer->job != NULL
            ? sonde_nn_job_get_info(trainer->job)->eval_samples
            : 0,
        true, between ? &trainer->between : &trainer->final, diag);
}

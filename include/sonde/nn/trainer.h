/*
 * trainer.h - trains a model: epochs, evaluation, checkpoints, recording, rules.
 *
 *     create; run; score, verdict, ...; destroy
 *
 *     train epoch 1 | evaluate | checkpoint | train epoch 2 | evaluate | checkpoint | ... | score
 *
 * A job brings its model, data, numbers, recording and rules along:
 *
 *     sonde_nn_trainer_options options = {.size = sizeof options, .out = "out", .events = {.epoch_end = print_epoch}};
 *     err = sonde_nn_trainer_create(job, &options, &trainer, &diag);
 *     err = sonde_nn_trainer_run(trainer, &diag);
 *
 * A C program brings a model and a feed, which delivers the inputs of each call; over a
 * loader the feed is sonde_nn_loader_feed(loader).
 *
 * Evaluations between epochs belong to the run: they are recorded and judged. They take
 * the same samples each time, so that they can be compared. The final score covers the
 * whole test set; the trainer reuses the last evaluation if that covered it.
 *
 * A resumed run ends with the same bits as an uninterrupted one; a checkpoint of another
 * batch size, D, G or seed is refused. A checkpoint between epochs that cannot be saved
 * is a warning: training continues and tries again after the next epoch. The folder `out`
 * is locked: a second trainer in it is refused. Results of an earlier training in `out`
 * are renamed after the first call (model.1.safetensors, ...), which is a warning; a
 * training resumed from the checkpoint in `out` replaces them. The library prints
 * nothing: events report what happens. One thread at a time.
 */
#ifndef SONDE_NN_TRAINER_H
#define SONDE_NN_TRAINER_H

#include <sonde/options.h>
#include <sonde/actions.h>
#include <sonde/nn/evaluator.h>
#include <sonde/nn/ranks.h>
#include <sonde/rules.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sonde_nn_trainer sonde_nn_trainer;

/* --- feeds ------------------------------------------------------------------------ */

enum { SONDE_NN_FEED_INPUTS = 8 };

/* The inputs of one call of the training session, in the order of the model's inputs. */
typedef struct sonde_nn_feed_batch {
    sonde_view inputs[SONDE_NN_FEED_INPUTS];
    size_t count;    /* of inputs */
    int64_t samples; /* 0: the epoch is over */
} sonde_nn_feed_batch;

typedef struct sonde_nn_feed {
    void *user;
    int64_t batches, samples;                        /* of one epoch */
    void (*start_epoch)(void *user, uint64_t epoch); /* NULL: nothing to do */
    /* The views stay valid until the following next. */
    sonde_err (*next)(void *user, sonde_nn_feed_batch *batch, sonde_diag *diag);
} sonde_nn_feed;

/* Samples and labels of a loader, which is borrowed as long as the feed is used. */
SONDE_API sonde_nn_feed sonde_nn_loader_feed(sonde_nn_loader *loader);

/* --- events ----------------------------------------------------------------------- */

/* Before the first epoch: the samples that evaluations between epochs take. */
typedef struct sonde_nn_trainer_plan {
    const char
        *eval_set; /* "val" (held out), "test"; NULL: no evaluation between epochs */
    int64_t eval_samples; /* of eval_all */
    int64_t eval_all;
    bool resumed; /* false: training begins at step 0 */
} sonde_nn_trainer_plan;

typedef struct sonde_nn_step {
    int epoch;       /* from 0 */
    int64_t call;    /* of the training session's run, from 0 */
    int64_t step;    /* steps done, D for each call */
    int64_t samples; /* of the epoch that are done */
    double loss;     /* mean of the call's steps and micro-batches */
    double mean;     /* mean of the epoch so far */
} sonde_nn_step;

typedef struct sonde_nn_epoch {
    int number, count;    /* from 0; of all epochs */
    int64_t step;         /* steps done */
    int64_t samples;      /* trained on; at the beginning: of the whole epoch */
    double loss, seconds; /* of training; at the beginning 0 */
    const char *eval_set; /* as in the plan; NULL: this epoch was not evaluated */
    sonde_nn_score score; /* of the evaluation */
} sonde_nn_epoch;

/* Each may be NULL. An error that one returns ends training. */
typedef struct sonde_nn_trainer_events {
    void *user;
    void (*begin)(void *user, const sonde_nn_trainer_plan *plan);
    void (*epoch_begin)(void *user, const sonde_nn_epoch *epoch);
    sonde_err (*step)(void *user, const sonde_nn_step *step, sonde_diag *diag);
    void (*evaluating)(void *user, int64_t done, int64_t total);
    sonde_err (*epoch_end)(void *user, const sonde_nn_epoch *epoch, sonde_diag *diag);
    void (*checkpoint)(void *user, const char *path, int64_t step);
    /* model.safetensors was saved. */
    void (*saved)(void *user, const char *path);
    /* Before the actions on the finding start, and after. epoch from 1; 0: not training.
     */
    void (*finding)(void *user, const sonde_finding *finding, int epoch);
    void (*acted)(void *user, const sonde_finding *finding);
    /* Training stopped early, with a checkpoint. request NULL: interrupted() returned
     * true. */
    void (*stopped)(void *user, const sonde_request *request, int64_t step);
    /* The final score: of the whole test set, or of the held-out samples if the data has
     * no test set. */
    void (*scored)(void *user, const sonde_nn_score *score,
                   const sonde_nn_confusion *matrix);
    /* A warning for people, one line. NULL: it goes to the log. */
    void (*warning)(void *user, const char *text);
    /* True stops training after the current call. Polled after every call. */
    bool (*interrupted)(void *user);
} sonde_nn_trainer_events;

/* --- options ---------------------------------------------------------------------- */

/* Zero means the default. Pointers are borrowed until destroy. */
typedef struct sonde_nn_trainer_options {
    size_t size; /* sizeof(sonde_nn_trainer_options) */
    sonde_nn_trainer_events events;
    const char
        *out; /* folder of checkpoint.safetensors and model.safetensors; NULL: neither
                           is saved */
    const char
        *resume; /* a checkpoint; "": that in out, if there is one; NULL: from step 0 */
    bool no_evaluation;
    bool no_scalars; /* do not record losses of epochs and scores as tensors scalar/... */

    /* Needed without a job; of a job instead of its own model and training set: */
    sonde_nn_model *model;     /* otherwise a new one (sonde_nn_job_build) */
    const sonde_nn_feed *feed; /* copied; its user is borrowed */

    /* For a job: */
    const char *program;   /* name in the run's description; NULL: "sonde" */
    const char *run_model; /* name of the model there; NULL: the job's */
    /* Opens the data; the trainer takes it. NULL: sonde_nn_job_open_data. */
    sonde_err (*open_data)(void *user, sonde_nn_split split, sonde_nn_dataset **out,
                           sonde_diag *diag);

    /* Without a job: */
    const sonde_nn_options *session; /* copied; NULL: the defaults */
    sonde_nn_optimizer optimizer;
    int epochs;
    sonde_nn_loader *test; /* evaluated on; NULL: no evaluation */
    int64_t eval_every;    /* epochs; 0: only at the end */
    sonde_hook *hook;      /* records the run; the trainer takes it and closes it */

    /* For both: */
    /* Trains together with the trainers of all ranks; borrowed. Rank 0 alone resumes and
     * saves; each rank records as a worker of the run; all stop when one is interrupted or
     * asked to stop. A job's samples are shared among the ranks; a feed has this rank's,
     * as many batches as the others'. */
    sonde_nn_ranks *ranks;
    sonde_rules
        *rules; /* judge the run, instead of the job's rules; NULL: the job's, or none */
    int64_t rules_every, rules_raw_every; /* of these (sonde_rules_attach) */
    const sonde_nn_rate
        *rate; /* how the learning rate changes, copied; NULL: it does not.
                                  A job has its own. total 0: the steps of all epochs */
    const sonde_nn_group *groups; /* of parameters, copied with their rates; a job has its
                                     own */
    size_t group_count;
} sonde_nn_trainer_options;

/* --- a trainer's life ------------------------------------------------------------- */

/* job NULL: options bring the model, the feed, the optimizer and the epochs. job is borrowed
 * until destroy. SONDE_EINVAL: numbers out of range, a feed without next or batches. With a test
 * loader the trainer adds the loss to the model's outputs. After an error the hook is still the
 * caller's. */
SONDE_API SONDE_CHECKED sonde_err
sonde_nn_trainer_create(sonde_nn_job *job, const sonde_nn_trainer_options *options,
                        sonde_nn_trainer **out, sonde_diag *diag);
/* Waits for actions that are not done. NULL is fine. */
SONDE_API void sonde_nn_trainer_destroy(sonde_nn_trainer *trainer);

/*
 * Compiles, resumes, opens the data, trains the remaining epochs, saves the model,
 * scores it and closes the recording. Once: SONDE_ESTATE after that. SONDE_EINTERRUPTED after interrupted(); a
 * request to stop (<sonde/control.h>) is no error: the trainer saves a checkpoint and
 * the model, skips the final score and returns SONDE_OK.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_trainer_run(sonde_nn_trainer *trainer,
                                                       sonde_diag *diag);

/* --- results ---------------------------------------------------------------------- */

/* All borrowed until destroy. */
typedef struct sonde_nn_trainer_info {
    sonde_nn_session
        *session; /* not compiled before run: for taps, anchors, outfeeds, and the
                                * learning rate later on */
    sonde_nn_model *model;  /* what the session trains */
    sonde_rules *rules;     /* of the run; NULL: none */
    sonde_actions *actions; /* NULL: none */
    /* after run: */
    const sonde_request *stopped; /* the request that stopped training; NULL: none */
    const sonde_nn_dataset *train,
        *test; /* of the job; NULL: not opened, or the job has none
                                           * (sonde_nn_job_has_test) */
    const sonde_nn_confusion
        *matrix; /* predictions of the whole test set; NULL: not scored */
} sonde_nn_trainer_info;
/* Zeros for NULL. */
SONDE_API sonde_nn_trainer_info
sonde_nn_trainer_get_info(const sonde_nn_trainer *trainer);

/* What the rules of the trainer found (sonde_rules_verdict); false without rules. */
SONDE_API bool sonde_nn_trainer_verdict(const sonde_nn_trainer *trainer,
                                        sonde_verdict *verdict);

#ifdef __cplusplus
}
#endif

#endif

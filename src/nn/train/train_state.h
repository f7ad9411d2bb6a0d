/*
 * train_state.h - the state of a trainer, shared by setup, loop and judging.
 */
#ifndef SONDE_NN_TRAIN_TRAIN_STATE_H
#define SONDE_NN_TRAIN_TRAIN_STATE_H

#include <sonde/nn/trainer.h>

enum { SONDE__TRAIN_PATH = 4096 };

/* A group of parameters. */
typedef struct sonde__train_group {
    const char *name; /* borrowed */
    sonde_nn_optimizer optimizer;
    bool own; /* it has a schedule of its own */
    sonde_nn_rate rate;
} sonde__train_group;

/* A running mean, with Neumaier's compensated sum (1974). {0} is an empty one. */
typedef struct sonde__train_mean {
    double sum, rest; /* the sum is sum + rest */
    double weight;
    uint64_t nonfinite; /* NaN and infinite values, not in the sum */
} sonde__train_mean;

/* Adds value with a weight (a mean over n samples counts n times). */
SONDE_API void sonde__train_mean_add(sonde__train_mean *mean, double value,
                                     double weight);
/* NaN if a non-finite value was added, or none at all. */
SONDE_API double sonde__train_mean_get(const sonde__train_mean *mean);

struct sonde_nn_trainer {
    sonde_nn_trainer_options options;
    sonde_nn_job *job; /* NULL: created from a model and a feed */
    sonde_nn_options session_options;
    sonde_nn_optimizer optimizer;
    sonde_nn_rate rate; /* of steps, over optimizer.learning_rate */
    bool scheduled;     /* the rate changes */
    sonde__train_group *groups;
    size_t group_count;
    int epochs;
    int64_t eval_every;

    sonde_nn_model *model;
    sonde_nn_model *own_model; /* the same, if the trainer built it */
    sonde_nn_session *session;
    sonde_nn_session_info plan; /* of the compiled session */
    sonde_hook *hook;           /* NULL: nothing is recorded */

    /* judging.c */
    sonde_rules *rules;     /* NULL: no judging */
    sonde_rules *own_rules; /* the same, if the trainer made them */
    sonde_actions *actions; /* NULL: none */
    sonde_control *control;
    int64_t rules_every, rules_raw_every;

    /* the job's data */
    sonde_nn_dataset *train, *test;
    sonde_nn_dataset *held_out,
        *kept; /* the two parts of train; NULL: nothing is held out */
    sonde_nn_loader *loader;
    sonde_nn_feed feed;

    sonde_nn_evaluator *between; /* of epochs; NULL: none */
    sonde_nn_evaluator *final; /* of the whole test set, if `between` does not cover it */
    int evaluated;             /* epochs done when `between` ran last */
    const sonde_nn_confusion *matrix; /* of the final score; NULL: not scored */

    char resume[SONDE__TRAIN_PATH];   /* the checkpoint; "": none */
    sonde_nn_checkpoint_info resumed; /* what it says */
    int64_t first_step;               /* of this run */
    int64_t saved_step;               /* of the last checkpoint; -1: none */
    bool unsaved;                     /* a later one could not be saved */
    bool former_kept;                 /* results of an earlier training are renamed */
    int lock;                         /* of the folder out; -1: none */
    int epoch;                        /* being trained, from 1; 0: none yet */
    bool ran;                         /* run was called */
    const sonde_request *stopped;     /* NULL: no request stopped it */
    bool ends;                        /* all ranks end: one of them is to */
    bool rank_stopped;                /* rank_stop ends them */
    sonde_request rank_stop;
};

/* Views of a loader's batch as a session's inputs: samples, further inputs, and labels or
 * the target of numbers. Returns how many. */
size_t sonde__train_batch_views(const sonde_nn_loader *loader,
                                const sonde_nn_batch *batch,
                                sonde_view inputs[SONDE_NN_FEED_INPUTS]);
/* "folder/name" in path. */
sonde_err sonde__train_path(const char *folder, const char *name,
                            char path[SONDE__TRAIN_PATH], sonde_diag *diag);
void sonde__train_warn(const sonde_nn_trainer *trainer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* rates.c: the schedules of a job, or of the options. */
sonde_err sonde__train_take_rate(sonde_nn_trainer *trainer, sonde_diag *diag);
/* Gives the session its groups. */
sonde_err sonde__train_add_groups(sonde_nn_trainer *trainer, sonde_diag *diag);
/* Steps of the training, for schedules that do not say them. */
void sonde__train_set_total(sonde_nn_trainer *trainer, int64_t steps);
/* Gives the session the learning rates of its next step. */
sonde_err sonde__train_set_rates(const sonde_nn_trainer *trainer, sonde_diag *diag);

/* judging.c: rules, actions and control of a run. path: the recording, or NULL. */
sonde_err sonde__train_judging_open(sonde_nn_trainer *trainer, const char *path,
                                    sonde_diag *diag);
/* Has a session judged; a sonde_nn_attach whose user is the trainer. */
sonde_err sonde__train_judging_attach(void *user, const sonde_catalogue *catalogue,
                                      sonde_observer *observer, sonde_diag *diag);
/* Waits for actions. */
void sonde__train_judging_close(sonde_nn_trainer *trainer);

/* recording.c: the job's hook; *out stays NULL if nothing is recorded. */
sonde_err sonde__train_hook_open(const sonde_nn_trainer *trainer, sonde_hook **out,
                                 sonde_diag *diag);
/* Ends the recording by err (with *diag), or by the request that stopped training. */
void sonde__train_hook_close(sonde_nn_trainer *trainer, sonde_err err,
                             const sonde_diag *diag);
/* At the first call: renames what an earlier training saved in options.out, unless this
 * one continues from the checkpoint there. */
sonde_err sonde__train_keep_former(sonde_nn_trainer *trainer, sonde_diag *diag);
/* Finds the checkpoint that options.resume names, and reads what it says. */
sonde_err sonde__train_resume_find(sonde_nn_trainer *trainer, sonde_diag *diag);
/* Loads it into the compiled session, if there is one with the same settings. */
sonde_err sonde__train_resume_load(sonde_nn_trainer *trainer, sonde_diag *diag);
/* With the data open: refuses a checkpoint of epochs of another length, and tells the
 * session how long they are. */
sonde_err sonde__train_resume_check_data(const sonde_nn_trainer *trainer,
                                         sonde_diag *diag);

/* trainer_setup.c: the data and the evaluator of a trainer whose session is compiled. */
sonde_err sonde__train_open_data(sonde_nn_trainer *trainer, sonde_diag *diag);
/* Refuses ranks that would take other numbers of steps, or other learning rates. */
sonde_err sonde__train_agree(const sonde_nn_trainer *trainer, sonde_diag *diag);
sonde_err sonde__train_open_evaluation(sonde_nn_trainer *trainer, sonde_diag *diag);
/* most: samples, 0: all of set. part_of_run: recorded and judged. */
sonde_err sonde__train_make_evaluator(sonde_nn_trainer *trainer,
                                      const sonde_nn_dataset *set, int64_t most,
                                      bool part_of_run, sonde_nn_evaluator **out,
                                      sonde_diag *diag);

#endif

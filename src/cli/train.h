/*
 * train.h - a run of `sonde train`: what it holds (train.c), and its loop (train_run.c).
 */
#ifndef SONDE_CLI_TRAIN_H
#define SONDE_CLI_TRAIN_H

#include <sonde/nn/loader.h>

#include "cli/evaluation.h"
#include "cli/judge.h"
#include "cli/cli_pictures.h"
#include "cli/record.h"
#include "cli/cli_resume.h"

/* As on the command line. */
typedef struct cli_train_values {
    const char *data, *out, *resume;
    int64_t epochs, batch, seed, threads, iterations, accumulation;
    int64_t eval_every, eval_samples;
    double learning_rate, validation;
    cli_list print;
    cli_record record;
    cli_judging judging;
    cli_acting acting;
    bool no_eval, no_pictures, json, quiet;
} cli_train_values;

typedef struct cli_training {
    const cli_train_values *asked;
    sonde_nn_job *job;
    sonde_nn_job_info *info;
    sonde_nn_dataset *train, *test; /* test NULL: not evaluated */
    sonde_nn_dataset *held_out,
        *kept; /* the two parts of train; NULL: nothing is held out */
    sonde_nn_model *model;
    sonde_nn_session *session;
    sonde_printer *printer;
    sonde_hook *hook; /* NULL: nothing is recorded */
    cli_judge judge;
    const sonde_request *stopped; /* whoever asked for it; NULL: nobody */
    sonde_nn_loader *loader;
    cli_evaluation *between; /* of epochs; NULL: none */
    int evaluated;           /* epochs that were done when it last ran */
    cli_evaluation
        *final;      /* of the whole test set; NULL: the last one between epochs was */
    cli_score score; /* of the whole test set */
    const sonde_nn_confusion *matrix; /* its predictions; NULL: not evaluated */
    cli_curve losses, evaluations;
    cli_resume resume;
    char out[3072];
} cli_training;

/* Every epoch that is left, each with its evaluation and its checkpoint. Whoever stopped it is
 * in run->stopped then. */
sonde_err cli_train_all(cli_training *run, sonde_diag *diag);
/* Saves the model; scores it on the whole test set and tells that. */
sonde_err cli_train_finish(cli_training *run, sonde_diag *diag);

#endif

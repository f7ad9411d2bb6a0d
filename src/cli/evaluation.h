/*
 * evaluation.h - how well a model does on a data set, once or between epochs, and telling it.
 *
 *     create, which compiles; run, run ...; score, matrix; destroy
 */
#ifndef SONDE_CLI_EVALUATION_H
#define SONDE_CLI_EVALUATION_H

#include <sonde/nn/dataset.h>
#include <sonde/nn/job.h>
#include <sonde/nn/metrics.h>

#include "cli/judge.h"

/* The job's model, for evaluation as well: its loss is its second output. */
sonde_err cli_evaluation_model(const sonde_nn_job *job, sonde_nn_model **out,
                               sonde_diag *diag);

/* All borrowed until destroy. */
typedef struct cli_evaluating {
    const sonde_nn_job_info *info;
    sonde_nn_model *model; /* of cli_evaluation_model */
    const sonde_nn_dataset *set;
    int64_t most;     /* samples it takes, at most, always the same ones; 0: all */
    sonde_hook *hook; /* records it; NULL: nobody */
    cli_judge *judge; /* judges it; NULL: nobody */
    bool unbroken;    /* Ctrl-C waits for its end */
    bool quiet;
} cli_evaluating;

typedef struct cli_evaluation cli_evaluation;

/* Nothing of the model changes. Every sample counts once: the last batch, if it is smaller, has
 * a plan of its own. */
sonde_err cli_evaluation_create(const cli_evaluating *of, cli_evaluation **out,
                                sonde_diag *diag);
/* Forgets what was counted, and counts. SONDE_EINTERRUPTED on Ctrl-C. */
sonde_err cli_evaluation_run(cli_evaluation *run, sonde_diag *diag);
/* NULL is fine. */
void cli_evaluation_destroy(cli_evaluation *run);

typedef struct cli_score {
    double loss; /* mean over the samples; NaN if that of any batch is not finite */
    double accuracy;
    int64_t samples;
} cli_score;

/* Of the last run. */
cli_score cli_evaluation_score(const cli_evaluation *run);
const sonde_nn_confusion *cli_evaluation_matrix(const cli_evaluation *run);

/* Loss and accuracy, and a line for each class; brief: the accuracy alone. */
void cli_print_scores(const cli_score *score, const sonde_nn_confusion *matrix,
                      const sonde_nn_dataset *set, bool brief);
/* confusion.png (or .svg) of what was counted. */
sonde_err cli_draw_confusion(const char *path, const sonde_nn_confusion *matrix,
                             const sonde_nn_dataset *set, const char *title,
                             sonde_diag *diag);

#endif

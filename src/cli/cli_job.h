/*
 * cli_job.h - the job and the data of train, eval, predict, tensors and compile; the
 * pictures and scores that a training or an evaluation leaves.
 */
#ifndef SONDE_CLI_CLI_JOB_H
#define SONDE_CLI_CLI_JOB_H

#include <sonde/nn/dataset.h>
#include <sonde/nn/evaluator.h>
#include <sonde/nn/job.h>
#include <sonde/plot.h>

#include "cli/cli.h"
#include "cli/cells.h"

/* A file (if one of that name exists, or it ends in .yaml, .yml, .json, .onnx or .plan),
 * else a built-in model. NULL: fashion_cnn. */
sonde_err cli_job_open(const char *text, sonde_nn_job **out, sonde_diag *diag);

/* The name of a built-in model; NULL: text is none. NULL is fashion_cnn. */
const char *cli_job_built_in(const char *text);
/* An argument that stands for a file: SONDE_EINVAL if it is a built-in model instead, and
 * no file has that name. what: "an image", "saved weights". */
sonde_err cli_job_check_file(const char *argument, const char *what, sonde_diag *diag);

/* Whether an argument names a plan, by its ending. */
bool cli_job_is_plan(const char *argument);
/* Loads saved weights into a model of the job. path NULL: those that sonde train saves in
 * sonde-out, or those of an ONNX file or a plan. Errors name text, which is that of
 * cli_job_open. */
sonde_err cli_weights_load(sonde_nn_job *job, sonde_nn_model *model, const char *path,
                           const char *text, sonde_diag *diag);

/*
 * A split of the job's data. Data that is not there is fetched into the cache; if that
 * fails, a stand-in is drawn there, with a warning, and the job names it. Samples must
 * have the model's shape.
 */
sonde_err cli_data_open(sonde_nn_job *job, sonde_nn_split split, bool quiet,
                        sonde_nn_dataset **out, sonde_diag *diag);

enum { CLI_TOKENIZER_PATH = 4096 };
/*
 * Before the model is built: a job of text that names no tokenizer takes the
 * tokenizer.json beside the weights, if there is one. path holds its name as long as the
 * job lives. weights NULL: those of sonde-out.
 */
sonde_err cli_tokenizer_find(sonde_nn_job *job, const char *weights,
                             char path[CLI_TOKENIZER_PATH], sonde_diag *diag);

/* Downloads a data set into a folder, with progress under a title. mirror may be NULL. */
sonde_err cli_fetch(const char *name, const char *folder, const char *mirror,
                    const char *title, bool quiet, sonde_diag *diag);

/* --- pictures and scores ------------------------------------------------------------ */

/* Points of a curve. {0} has none. */
typedef struct cli_curve {
    double *x, *y;
    size_t count, capacity;
} cli_curve;

sonde_err cli_curve_add(cli_curve *curve, double x, double y, sonde_diag *diag);
void cli_curve_free(cli_curve *curve);
sonde_plot_series cli_curve_series(const char *name, const cli_curve *curve);

/* The data of the pictures; borrowed. */
typedef struct cli_pictures {
    const char *out; /* folder */
    const sonde_nn_dataset *train, *test;
    const cli_curve *losses;          /* of every call, whose number is x */
    const cli_curve *evaluations;     /* their losses, at the calls before them */
    const sonde_nn_confusion *matrix; /* NULL: none */
} cli_pictures;

/* samples.png if the set holds images, loss.png, confusion.png: appends the names of
 * those that were drawn, and warns of others. */
void cli_draw_pictures(const cli_pictures *run, cli_list *drawn);

/* Loss, accuracy, and a line for each class; brief: the accuracy alone. */
void cli_print_scores(const sonde_nn_score *score, const sonde_nn_confusion *matrix,
                      const sonde_nn_dataset *set, bool brief);
/* The members of a score in JSON, each name after a prefix ("eval_" or ""). */
void cli_put_score(sonde_json *json, const char *prefix, const sonde_nn_score *score);
/* confusion.png (or .svg). */
sonde_err cli_draw_confusion(const char *path, const sonde_nn_confusion *matrix,
                             const sonde_nn_dataset *set, const char *title,
                             sonde_diag *diag);

#endif

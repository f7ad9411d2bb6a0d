/*
 * job.h - what train, eval, predict, tensors and compile have in common: a job, its data, its
 * model, an evaluation.
 */
#ifndef SONDE_CLI_JOB_H
#define SONDE_CLI_JOB_H

#include <sonde/nn/dataset.h>
#include <sonde/nn/job.h>
#include <sonde/nn/loader.h>
#include <sonde/nn/metrics.h>
#include <sonde/nn/session.h>

#include "cli/judge.h"

/* A file (if one of that name exists, or it ends in .yaml, .yml or .json), else a built-in
 * model. NULL: fashion_cnn. */
sonde_err cli_job_open(const char *text, sonde_nn_job **out, sonde_diag *diag);

/*
 * A split of the job's data. dir (may be NULL or "auto") replaces the usual places. Data that
 * is nowhere is fetched into the cache; if that fails, a stand-in is drawn there, and said.
 * Samples must have the model's shape.
 */
sonde_err cli_data_open(const sonde_nn_job_info *info, const char *dir,
                        sonde_nn_split split, bool quiet, sonde_nn_dataset **out,
                        sonde_diag *diag);

/* The job's transforms over a set: to float, normalise. batch is the combined one. */
sonde_err cli_loader_create(const sonde_nn_job_info *info, const sonde_nn_dataset *set,
                            int64_t batch, bool shuffle, int workers,
                            sonde_nn_loader **out, sonde_diag *diag);

/* Views of a batch as a session's two inputs. */
void cli_batch_views(const sonde_nn_job_info *info, const sonde_nn_batch *batch,
                     sonde_view inputs[2]);

/*
 * Runs the model over a whole set (the last batch filled up and its surplus not counted) and
 * counts its predictions. Stops with SONDE_EINTERRUPTED on Ctrl-C. hook (may be NULL) records
 * it, judge (may be NULL) judges it.
 */
sonde_err cli_evaluate(const sonde_nn_job_info *info, sonde_nn_model *model,
                       const sonde_nn_dataset *set, sonde_hook *hook, cli_judge *judge,
                       bool quiet, sonde_nn_confusion **out, sonde_diag *diag);

/* Accuracy, and a line for each class. */
void cli_print_scores(const sonde_nn_confusion *matrix, const sonde_nn_dataset *set,
                      bool per_class);
/* confusion.png (or .svg) of what was counted. */
sonde_err cli_draw_confusion(const char *path, const sonde_nn_confusion *matrix,
                             const sonde_nn_dataset *set, const char *title,
                             sonde_diag *diag);

#endif

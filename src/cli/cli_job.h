/*
 * job.h - what train, eval, predict, tensors and compile have in common: a job and its data.
 */
#ifndef SONDE_CLI_CLI_JOB_H
#define SONDE_CLI_CLI_JOB_H

#include <sonde/nn/dataset.h>
#include <sonde/nn/job.h>

#include "cli/cli.h"

/* A file (if one of that name exists, or it ends in .yaml, .yml or .json), else a built-in
 * model. NULL: fashion_cnn. */
sonde_err cli_job_open(const char *text, sonde_nn_job **out, sonde_diag *diag);

/* Saved weights into a model. path NULL: those that sonde train leaves in sonde-out. text is what
 * cli_job_open was given, which an error names. */
sonde_err cli_weights_load(sonde_nn_model *model, const char *path, const char *text,
                           sonde_diag *diag);

/*
 * A split of the job's data. Data that is not there is fetched into the cache; if that fails, a
 * stand-in is drawn there, with a warning. Samples must have the model's shape.
 */
sonde_err cli_data_open(sonde_nn_job *job, sonde_nn_split split, bool quiet,
                        sonde_nn_dataset **out, sonde_diag *diag);

#endif

/*
 * option.h - the options of a training: one table for job files, commands and the
 * environment.
 *
 * Each row is a key of a job's section, a flag of `sonde train` (the name with dashes:
 * --batch-size) and, if the row allows it, an environment variable (SONDE_BATCH_SIZE).
 * Later wins: default, built-in job, job file, sonde_nn_job_set, environment.
 *
 * The table is constant: any number of threads may read it.
 */
#ifndef SONDE_NN_OPTION_H
#define SONDE_NN_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sonde/nn/job.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sonde_nn_option_kind {
    SONDE_NN_OPTION_FLAG = 0,  /* true or false */
    SONDE_NN_OPTION_COUNT = 1, /* a whole number */
    SONDE_NN_OPTION_REAL = 2,  /* a finite number */
    SONDE_NN_OPTION_TEXT = 3,
    SONDE_NN_OPTION_TEXTS =
        4, /* a list; the first sonde_nn_job_set replaces or extends the job's */
    SONDE_NN_OPTION_CHOICE = 5 /* one of a few words */
} sonde_nn_option_kind;

typedef struct sonde_nn_option {
    const char *section; /* of the job: "options" */
    const char *key;     /* there; NULL: not in job files */
    const char *name;    /* "batch_size"; no two rows share one */
    char letter;         /* of the short flag; 0: none */
    bool no_environment; /* there is no variable */
    sonde_nn_option_kind kind;
    const char *value;    /* stands for the value in help, "N"; of CHOICE "mean|sum" */
    const char *standard; /* the default; NULL: none, or said by help */
    const char *help;
    int64_t least, most;      /* of COUNT */
    double least_real, below; /* of REAL: least_real <= value < below */
    size_t offset, size;      /* of the value in sonde_nn_job_info */
    const char *variable;     /* that sets it too, if its own is unset; NULL: none */
} sonde_nn_option;

/* Row i; NULL after the last. Static. */
SONDE_API const sonde_nn_option *sonde_nn_option_at(size_t i);

/* Sets an option by its name; SONDE_EINVAL with the name in diag->where and the range;
 * SONDE_ENOTFOUND: no option has this name. text is borrowed until the job is destroyed. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_job_set(sonde_nn_job *job, const char *name,
                                                   const char *text, sonde_diag *diag);
/* Sets what the environment sets. A trainer does this itself. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_job_set_environment(sonde_nn_job *job,
                                                               sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif

/*
 * demo.h - networks that really go wrong, and the same ones repaired.
 *
 * A demo is a job file in examples/demos (<sonde/nn/job.h>). The record is never
 * edited: the rules find what the network did.
 */
#ifndef SONDE_CLI_DEMO_H
#define SONDE_CLI_DEMO_H

#include <sonde/nn/dataset.h>
#include <sonde/nn/job.h>
#include <sonde/rules.h>

#include "cli/cli.h"

/* A job file that is part of the command. */
typedef struct cli_demo_file {
    const char *name, *text;
} cli_demo_file;

/* Both end with a name NULL. recordings: usual, and by the names of --hook-type. */
extern const cli_demo_file cli_demo_files[], cli_demo_recordings[];

/* As the command line has it. */
typedef struct cli_demo_options {
    const char *run;       /* where it is recorded: a new folder */
    const char *data;      /* NULL: drawn */
    bool fixed;            /* trains the repaired job */
    const char *hook_type; /* NULL: records what the rules need */
    int64_t seed;          /* added to the job's */
    int64_t threads;       /* CLI_NOT_GIVEN: the job's */
    double learning_rate;  /* NAN: the job's */
    bool quiet;
    sonde_rules *rules; /* NULL: no judging */
    /* For each finding; epoch 0: the demo has no evaluations. */
    void (*on_finding)(void *user, const sonde_finding *finding, int epoch);
    void *user;
} cli_demo_options;

/* The job of a demo, with the recording that makes judging it again find the same, or that
 * of a hook type. SONDE_EINVAL: there is no such type. */
sonde_err cli_demo_open(const cli_demo_file *file, bool fixed, const char *hook_type,
                        sonde_nn_job **out, sonde_diag *diag);
/* Trains a demo, records it and has it judged. Prints the loss unless quiet. */
sonde_err cli_demo_train(const cli_demo_file *file, const cli_demo_options *options,
                         sonde_diag *diag);

#endif

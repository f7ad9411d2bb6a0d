/*
 * demo.h - networks that really go wrong, and the same ones put right.
 *
 * A demo is a row of a table (demo_table.c): a job as `sonde train` takes it, and what is done
 * to it that a job cannot say. Nothing is ever written into a record: what the rules find is
 * what the network did.
 */
#ifndef SONDE_CLI_DEMO_H
#define SONDE_CLI_DEMO_H

#include <sonde/nn/dataset.h>
#include <sonde/rules.h>

#include "cli/judge.h"

/* The samples: drawn garments, or those of --data. */
typedef struct demo_data {
    int64_t train, test; /* how many; test 0: the network is not evaluated */
    int scarce;          /* every so many-th sample of class 0 is there; 0: all */
    bool shuffled;       /* labels belong to other samples */
    bool hole;           /* one pixel of a sample is NaN */
} demo_data;

/* One way to train it. */
typedef struct demo_side {
    const char *job; /* the rest of the job: data, optimizer, options */
    demo_data data;
    float gain;  /* initial weights are multiplied by it; 0: not */
    float decay; /* the learning rate is multiplied by it after each step; 0: not */
    bool alike;  /* all initial weights of a layer are the same number */
    bool twice;  /* every batch is used for two steps */
    const char
        *frozen; /* parameters of this module are not the optimiser's; NULL: all are */
    int seeds;   /* of a second run: its own seed is so much larger; 0: the same */
    const char *model; /* NULL: that of the demo */
} demo_side;

typedef struct demo {
    const char *name;
    const char *what, *why, *repair; /* a line each */
    const char *rule;                /* that finds it; NULL: none may find anything */
    const char *tensor;              /* that is named; NULL: the run as a whole, or any */
    const char *statistic;           /* worth a look, of `look` */
    const char *look;                /* a selector for `sonde plot` */
    const char *model;               /* of the job */
    bool pair;                       /* two runs, which are compared */
    bool each_weight;                /* weights are recorded at each step */
    const char *besides; /* collections that are recorded as well; NULL: none */
    demo_side wrong, right;
} demo;

extern const demo cli_demos[];
extern const size_t cli_demo_count;

/* As the command line has it. */
typedef struct demo_options {
    const char *run;      /* where it is recorded: a new folder */
    const char *data;     /* NULL: drawn */
    int64_t seed;         /* added to the job's */
    int64_t threads;      /* CLI_NOT_GIVEN: as the job */
    double learning_rate; /* NAN: as the job */
    bool quiet;
    sonde_rules
        *rules; /* that judge it, and tell themselves what they find; NULL: nobody */
    int *epoch; /* counts, from 1, where epochs are evaluated; may be NULL */
} demo_options;

/* Trains one side of it, records it and has it judged, before each next step. Says how the loss
 * goes, unless quiet. */
sonde_err cli_demo_train(const demo *of, const demo_side *side,
                         const demo_options *options, sonde_diag *diag);

/* A split of a side's data; *out reads from *pixels and *labels, which are freed after it. */
typedef struct demo_set {
    sonde_nn_dataset *set;
    float *pixels; /* (count, 1, 28, 28), 0 ... 1 */
    int64_t *labels;
} demo_set;
sonde_err cli_demo_data(const demo_data *data, const char *folder, sonde_nn_split split,
                        uint64_t seed, demo_set *out, sonde_diag *diag);
void cli_demo_data_free(demo_set *set);

#endif

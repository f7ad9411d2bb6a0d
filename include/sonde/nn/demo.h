/*
 * demo.h - the section `demo` of a job: a network that goes wrong, why, and the repair.
 *
 *     demo:
 *       what: Most units of a layer give 0 for every sample.
 *       why: ...
 *       repair: ...
 *       rule: DeadRelu                  # finds it; without: no rule may find anything
 *       tensor: relu1_output_0          # is named by the finding; without: any
 *       plot: relu*_output_0            # worth a look
 *       statistic: zero                 # of these
 *       samples: {train: 6400, test: 500}
 *       fault: {alike: true}            # what the rest of a job cannot express
 *       fixed:                          # replaces these in the repaired job; its fault is gone
 *         optimizer: {learning_rate: 0.001}
 *
 * A job with this section trains like any other (sonde train); `sonde demo` also applies
 * samples and fault.
 *
 * Threads: those of the job (<sonde/nn/job.h>).
 */
#ifndef SONDE_NN_DEMO_H
#define SONDE_NN_DEMO_H

#include <stdbool.h>

#include <sonde/nn/job.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sonde_nn_demo {
    const char *what, *why, *repair;
    const char *rule, *tensor;    /* NULL: none; any */
    const char *plot, *statistic; /* a selector; NULL: no statistic */
    const char
        *collections;    /* of a hook's configuration, to record as well; NULL: none */
    bool pair;           /* two runs, which are compared */
    int64_t raw_every;   /* raw values for rules; 0: the command's choice */
    int64_t train, test; /* samples; test 0: no evaluation */
    /* The fault; zero: none. */
    int64_t scarce;     /* keeps every n-th sample of class 0 */
    int64_t seeds;      /* added to the seed of the second run of a pair */
    float gain;         /* factor of the initial weights */
    float decay;        /* factor of the learning rate after each step */
    bool shuffled;      /* labels belong to other samples */
    bool hole;          /* one pixel of a sample is NaN */
    bool alike;         /* the initial weights of a layer are one number */
    bool twice;         /* every batch is used for two steps */
    const char *frozen; /* module that the optimizer leaves out; NULL: none */
} sonde_nn_demo;

/* Borrowed until destroy; NULL: the job has no such section. */
SONDE_API const sonde_nn_demo *sonde_nn_job_get_demo(const sonde_nn_job *job);
/* Makes the job the repaired one. Once, before building. SONDE_ESTATE: the job has no such
 * section. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_job_fix_demo(sonde_nn_job *job,
                                                        sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif

/*
 * faults.h - planted faults and clean runs: what the parts of the benchmark share.
 *
 *     data.c       what is learnt
 *     engine.c     networks that a trainer of Sonde's engine trains, with rules attached
 *     loop.h       networks with a loop of their own, for what the engine lacks: dropout, batch
 *                  norm, embeddings, replicas, frozen layers, optimizers with mistakes
 *     plants_*.c   the faults, one row each: what is planted where, who has to find it
 *     clean.c      runs in which nothing is wrong
 *     table.c      what came out, with bounds
 *
 * All rules are the default ones with their default parameters.
 */
#ifndef SONDE_BENCH_FAULTS_H
#define SONDE_BENCH_FAULTS_H

#include "record/record_sink.h"

#include <sonde/nn/trainer.h>
#include <sonde/rules.h>

#include <stdint.h>

/* --- data ------------------------------------------------------------------------- */

typedef enum faults_data_kind {
    DATA_BLOBS = 0,     /* (B, 32): ten overlapping clouds */
    DATA_IMAGES = 1,    /* (B, 1, 14, 14): garments, drawn or of Fashion-MNIST */
    DATA_TINY = 2,      /* (B, 32): 64 samples of the clouds, again and again */
    DATA_REGRESSION = 3 /* (B, 32): a smooth function of the first eight, and noise */
} faults_data_kind;

enum { FEATURES = 32, SIDE = 14, PIXELS = SIDE * SIDE, CLASSES = 10 };

/* Numbers of a sample. */
int64_t faults_sample(faults_data_kind kind);
/* Batch number `step` of a seed: x (batch, sample); y (batch), of regression t (batch)
 * instead. */
void faults_batch(faults_data_kind kind, uint64_t seed, int64_t step, int64_t batch,
                  float *x, int64_t *y, float *t);
/* Uniform in 0 ... 1, and standard normal, pure functions of all three. */
float faults_uniform(uint64_t seed, uint64_t stream, uint64_t index);
float faults_normal(uint64_t seed, uint64_t stream, uint64_t index);

/* --- networks of the engine ------------------------------------------------------- */

typedef enum faults_net { NET_MLP = 0, NET_CNN = 1, NET_RESIDUAL = 2 } faults_net;

typedef struct faults_training faults_training;

/* How a network is trained. Zero means the usual. */
typedef struct faults_plan {
    faults_net net;
    faults_data_kind data; /* MLP: any; the others: images */
    uint64_t seed;
    int64_t batch; /* 32 */
    int64_t width; /* of hidden layers; 64 (MLP), 8 (channels) */
    int steps;
    sonde_nn_optimizer optimizer;
    int accumulate; /* micro-batches a step */
    int warmup;     /* steps over which the learning rate rises from 0 */
    int64_t every;  /* of steps that rules look at, as `sonde train` has it; 0: all */
    enum { HEAD_CROSS_ENTROPY = 0, HEAD_NLL = 1, HEAD_TWICE = 2, HEAD_MISSING = 3 } head;
    bool dropout;   /* masks that are drawn anew for every batch, as an input */
    bool zero_init; /* residual branches begin at 0 */
    void (*prepare)(faults_training *training);              /* the model is there */
    void (*before)(faults_training *training, int64_t step); /* the batch is there */
    double severity;                                         /* for these two */
    const char *record; /* folder to record what rules look at to, or NULL */
} faults_plan;

struct faults_training {
    faults_plan plan;
    sonde_nn_model *model;
    sonde_nn_trainer *trainer;
    sonde_nn_session *session; /* the trainer's */
    sonde_rules *rules;
    float *x, *t, *mask; /* of the batch that comes: samples, targets of regression */
    int64_t *y, samples; /* labels; how many */
    float first_loss, last_loss;
    sonde_recorder *recorder;
};

/* The usual plan of a network: an optimizer that trains it well. */
faults_plan faults_usual(faults_net net, uint64_t seed);
/* Trains and judges; the rules have finished and hold what they found. */
void faults_train(const faults_plan *plan, faults_training *out);
void faults_training_free(faults_training *training);
/* A parameter by its name; ends the program if there is none. */
sonde_view faults_parameter(const faults_training *training, const char *name);
sonde_rules *faults_default_rules(void);

/* --- faults ----------------------------------------------------------------------- */

/* Who may find a fault: a rule and the tensors that are right, as patterns of fnmatch
 * parted by blanks; "-" stands for the run as a whole. */
typedef struct faults_answer {
    const char *rule, *tensors;
} faults_answer;

enum { MOST_ANSWERS = 8, MOST_SEVERITIES = 4 };

typedef struct faults_row {
    int number;                       /* in the table of faults */
    const char *what;                 /* is planted */
    const char *net;                  /* in which network */
    double severity[MOST_SEVERITIES]; /* ends with a 0; none: one run with 0 */
    int shows, limit; /* step at which it shows, and steps until it must be found */
    faults_answer answers[MOST_ANSWERS];
    /* Trains with it; *rules (new) hold what was found. record: a folder or NULL. */
    void (*run)(const struct faults_row *row, uint64_t seed, double severity,
                const char *record, sonde_rules **rules);
    int variant; /* for run */
} faults_row;

extern const faults_row faults_engine_rows[], faults_loop_rows[];
extern const size_t faults_engine_row_count, faults_loop_row_count;

/* --- clean runs ------------------------------------------------------------------- */

typedef struct faults_clean {
    const char *what;
    void (*run)(int variant, uint64_t seed, const char *record, sonde_rules **rules);
    int variant;
} faults_clean;

extern const faults_clean faults_clean_rows[];
extern const size_t faults_clean_row_count;

/* --- what came out ---------------------------------------------------------------- */

void faults_tally_fault(const faults_row *row, uint64_t seed, double severity,
                        sonde_rules *rules);
void faults_tally_clean(const faults_clean *row, uint64_t seed, sonde_rules *rules);
/* Prints it all; the number of bars that were missed. */
int faults_table(bool markdown, bool every_row);

#endif

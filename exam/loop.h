/*
 * loop.h - networks of dense layers with a training loop of their own, in plain C: what
 * a foreign program is to libsonde. It has what the engine lacks (dropout, batch norm,
 * tanh and sigmoid, embeddings, evaluation in the same process, replicas, layers that
 * are frozen) and can make the mistakes that programs make.
 *
 *     hidden layer   z = x W' + b; batch norm?; activation; op?; dropout?; x + that?
 *
 * Tensors have the names and roles that the engine gives.
 */
#ifndef SONDE_BENCH_FAULTS_LOOP_H
#define SONDE_BENCH_FAULTS_LOOP_H

#include "faults.h"
#include "record/record_sink.h"

#include <sonde/observer.h>
#include <sonde/recorder.h>

enum { MOST_LAYERS = 14, MOST_PARAMS = 60, TOKENS = 8, WORDS = 500 };

typedef enum loop_activation {
    ACT_RELU = 0,
    ACT_TANH = 1,
    ACT_SIGMOID = 2
} loop_activation;

/* An op after the first activation h, as people write them: log(1.01 + h), sqrt(1.01 +
 * h), and h / rms(h); of a value that `shift` was taken from, which is the fault. */
typedef enum loop_op {
    OP_NONE = 0,
    OP_LOG = 1,
    OP_SQRT = 2,
    OP_DIVIDE = 3,
    OP_EXP = 4
} loop_op;

typedef enum loop_mistake {
    MISTAKE_NONE = 0,
    MISTAKE_NO_ZERO_GRAD,
    MISTAKE_STALE_COPIES,   /* the optimizer works on copies of all parameters */
    MISTAKE_FROZEN_LAYER,   /* one layer is not in the optimizer */
    MISTAKE_FROZEN_CHANGES, /* weight decay reaches frozen layers */
    MISTAKE_SWAPPED_BETAS,
    MISTAKE_STUCK_STEP,  /* Adam's step counter stays */
    MISTAKE_FLIP_WEIGHT, /* bit `severity` of an element of fc2.weight, once */
    MISTAKE_FLIP_GRADIENT,
    MISTAKE_FLIP_MOMENT,
    MISTAKE_FLIP_SECOND, /* sign bit and all of v */
    MISTAKE_NO_ALL_REDUCE,
    MISTAKE_SAME_BATCH, /* on both replicas */
    MISTAKE_DROPOUT_IN_EVAL,
    MISTAKE_NORM_IN_EVAL,
    MISTAKE_OP /* the op's argument leaves its domain */
} loop_mistake;

struct loop;

typedef struct loop_plan {
    faults_data_kind data;
    uint64_t seed;
    int64_t batch, width;
    int hidden; /* layers */
    int steps;
    loop_activation activation;
    bool residual, norm, embedding, softmax_twice, softmax_missing;
    float dropout, gain; /* gain: of the initial weights; 0: 1 */
    loop_op op;
    int frozen; /* the first layers, declared frozen: no gradient is made for them */
    sonde_nn_optimizer optimizer;
    float clip; /* norm of all gradients; 0: not clipped */
    int eval_every, eval_batches;
    int replicas;
    float label_noise; /* share of wrong labels in it */
    int pool; /* batches of the data that are trained on, again and again; 0: always new ones */
    loop_mistake mistake;
    int at; /* step of the mistake */
    double severity;
    double idle; /* seconds without a step after the last */
    /* At every step, before it: what else may be wrong. */
    void (*before)(struct loop *training, int64_t step);
    const char *record;
} loop_plan;

typedef struct loop_param {
    char name[40];
    int64_t rows, columns; /* columns 0: one dimension */
    float *w, *g, *m, *v, step;
    float *copy; /* what an optimizer has that holds stale copies */
    bool frozen;
    uint32_t id, id_g, id_m, id_v, id_step;
} loop_param;

typedef struct loop_layer {
    loop_param *weight, *bias, *gamma, *beta;
    int64_t in, out;
    const float *x; /* (B, in) */
    float *z, *n, *a, *o,
        *mask;         /* (B, out): before and after the norm, activation, output */
    float *hat, *back; /* normalized; gradient of x (B, in) */
    float *mean, *var; /* running, (out) */
    float *deviation;  /* 1 / of the batch */
    uint32_t id_z, id_n, id_a, id_in, id_o, id_mean, id_var;
} loop_layer;

/* One replica. */
typedef struct loop_net {
    loop_param params[MOST_PARAMS];
    int param_count;
    loop_layer layers[MOST_LAYERS];
    float *x, *t, *back, *probabilities;
    int64_t *y, *tokens;
    float loss;
    void *blocks[512];
    int block_count;
} loop_net;

typedef struct loop {
    loop_plan plan;
    loop_net nets[2];
    sonde_catalogue *catalogue;
    sonde_observer *observer;
    sonde_rules *rules;
    sonde_recorder *recorder;
    sonde_coordinate at;
    int64_t mode_steps[SONDE_MODE_COUNT];
    uint32_t id_x, id_y, id_tokens, id_scores, id_loss;
    bool evaluating;
    float shift; /* of the op */
    int layers;
} loop;

/* Trains and judges; rules (new) have finished. */
void loop_train(const loop_plan *plan, sonde_rules **rules);

/* loop_net.c */
void loop_make(loop *training, loop_net *net, int replica);
void loop_forward(loop *training, loop_net *net, bool evaluating, uint64_t draw);
void loop_backward(loop *training, loop_net *net);
loop_param *loop_find(loop_net *net, const char *name);
/* loop_update.c */
void loop_reduce(loop *training);
void loop_update(loop *training, loop_net *net, int64_t step);
/* loop_watch.c */
void loop_declare(loop *training);
void loop_observe_forward(loop *training, const loop_net *net, int replica);
void loop_observe_update(loop *training, const loop_net *net, int replica);

#endif

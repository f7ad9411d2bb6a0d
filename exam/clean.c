/*
 * clean.c - healthy runs, some of which look suspicious.
 */
#include "faults.h"
#include "loop.h"

#include "base/macros.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <string.h>

/* --- of the engine ------------------------------------------------------------------ */

static void finish(const faults_plan *plan, sonde_rules **rules)
{
    faults_training training;

    faults_train(plan, &training);
    faults_training_free(&training);
    *rules = training.rules;
}

/* All networks with all optimizers, at learning rates from careful to bold. */
static void ordinary(int variant, uint64_t seed, const char *record, sonde_rules **rules)
{
    const faults_net net = (faults_net)(variant % 3);
    const float bold[] = {0.3F, 1.0F, 2.0F};
    faults_plan plan = faults_usual(net, seed);
    const float by = bold[seed % 3];

    switch (variant / 3) {
    case 0:
        plan.optimizer = sonde_nn_optimizer_sgd(by * 0.1F, 0.0F);
        break;
    case 1:
        plan.optimizer.learning_rate *= by;
        break;
    case 2:
        plan.optimizer = sonde_nn_optimizer_default(SONDE_NN_ADAM, by * 0.003F);
        break;
    default:
        plan.optimizer = sonde_nn_optimizer_default(SONDE_NN_ADAMW, by * 0.003F);
        break;
    }
    plan.head = seed % 2 == 0 ? HEAD_NLL : HEAD_CROSS_ENTROPY;
    plan.batch = (int64_t[]){8, 32, 64}[seed / 2 % 3];
    plan.record = record;
    finish(&plan, rules);
}

static void with_warmup(int variant, uint64_t seed, const char *record,
                        sonde_rules **rules)
{
    faults_plan plan = faults_usual((faults_net)variant, seed);

    plan.warmup = 40;
    plan.optimizer = seed % 2 == 0 ? sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.003F)
                                   : plan.optimizer;
    plan.record = record;
    finish(&plan, rules);
}

static void with_accumulation(int variant, uint64_t seed, const char *record,
                              sonde_rules **rules)
{
    faults_plan plan = faults_usual((faults_net)variant, seed);

    plan.accumulate = 4;
    plan.batch = 8;
    plan.record = record;
    finish(&plan, rules);
}

static void zero_branches(int variant, uint64_t seed, const char *record,
                          sonde_rules **rules)
{
    faults_plan plan = faults_usual(NET_RESIDUAL, seed);

    plan.zero_init = true;
    plan.optimizer.learning_rate = 0.02F; /* they take off late */
    plan.warmup = variant;
    plan.record = record;
    finish(&plan, rules);
}

static void with_dropout(int variant, uint64_t seed, const char *record,
                         sonde_rules **rules)
{
    faults_plan plan = faults_usual(NET_MLP, seed);

    plan.dropout = true;
    plan.width = variant;
    plan.record = record;
    finish(&plan, rules);
}

static void of_data(int variant, uint64_t seed, const char *record, sonde_rules **rules)
{
    faults_plan plan = faults_usual(NET_MLP, seed);

    plan.data = (faults_data_kind)variant;
    plan.optimizer = seed % 2 == 0 ? sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.003F)
                                   : sonde_nn_optimizer_sgd(0.02F, 0.9F);
    plan.batch = seed % 2 == 0 ? 16 : 4;
    plan.steps = 400;
    plan.record = record;
    finish(&plan, rules);
}

/* Small batches, until all is known by heart: losses and gradients of most batches are
 * next to nothing by then, and scatter. Of every other seed rules see what they see in
 * `sonde train`. */
static void long_run(int variant, uint64_t seed, const char *record, sonde_rules **rules)
{
    faults_plan plan = faults_usual((faults_net)variant, seed);

    plan.data = DATA_IMAGES;
    plan.batch = (int64_t[]){4, 16}[seed / 2 % 2];
    plan.steps = 5000;
    plan.optimizer.learning_rate *=
        (float)plan.batch / 32.0F; /* more would be too much */
    plan.every = seed % 2 == 0 ? 20 : 1;
    plan.record = record;
    finish(&plan, rules);
}

/* One batch in twenty is of another world: the loss jumps and comes back. */
static void spoil_now_and_then(faults_training *training, int64_t step)
{
    if (step > 20 && step % 20 == 7) {
        for (int64_t i = 0; i < training->samples; i++) {
            training->y[i] = (training->y[i] + 5) % CLASSES;
        }
    }
}

static void spikes(int variant, uint64_t seed, const char *record, sonde_rules **rules)
{
    faults_plan plan = faults_usual((faults_net)variant, seed);

    plan.before = spoil_now_and_then;
    plan.record = record;
    finish(&plan, rules);
}

/* Biases of -0.15: in every batch most ReLUs rest, but not always the same. */
static void make_sparse(faults_training *training)
{
    const sonde_view bias = faults_parameter(
        training, training->plan.net == NET_MLP ? "fc1.bias" : "conv2.bias");

    for (int64_t k = 0; k < sonde_view_count(&bias); k++) {
        ((float *)bias.data)[k] = -0.15F;
    }
}

static void sparse(int variant, uint64_t seed, const char *record, sonde_rules **rules)
{
    faults_plan plan = faults_usual((faults_net)variant, seed);

    plan.prepare = make_sparse;
    plan.width *= 2;
    plan.record = record;
    finish(&plan, rules);
}

/* --- with loops of their own --------------------------------------------------------- */

static loop_plan usual(uint64_t seed)
{
    return (loop_plan){
        .data = DATA_BLOBS,
        .seed = seed,
        .batch = 32,
        .width = 32,
        .hidden = 3,
        .steps = 150,
        .optimizer = seed % 2 == 0 ? sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.003F)
                                   : sonde_nn_optimizer_sgd(0.05F, 0.9F)};
}

static void loop_ordinary(int variant, uint64_t seed, const char *record,
                          sonde_rules **rules)
{
    loop_plan plan = usual(seed);

    plan.activation = (loop_activation)(variant % 3);
    plan.norm = variant / 3 % 2 == 1;
    plan.hidden = plan.activation == ACT_SIGMOID ? 1 : 3;
    plan.residual = variant / 6 == 1;
    plan.record = record;
    loop_train(&plan, rules);
}

static void loop_dropout(int variant, uint64_t seed, const char *record,
                         sonde_rules **rules)
{
    loop_plan plan = usual(seed);

    plan.dropout = 0.5F;
    plan.norm = variant == 1;
    plan.eval_every = 30;
    plan.eval_batches = 3;
    plan.record = record;
    loop_train(&plan, rules);
}

static void loop_frozen(int variant, uint64_t seed, const char *record,
                        sonde_rules **rules)
{
    loop_plan plan = usual(seed);

    plan.hidden = 4;
    plan.frozen = variant;
    plan.norm = false;
    plan.record = record;
    loop_train(&plan, rules);
}

static void loop_embedding(int variant, uint64_t seed, const char *record,
                           sonde_rules **rules)
{
    loop_plan plan = usual(seed);

    plan.embedding = true;
    plan.hidden = variant;
    plan.record = record;
    loop_train(&plan, rules);
}

static void loop_replicas(int variant, uint64_t seed, const char *record,
                          sonde_rules **rules)
{
    loop_plan plan = usual(seed);

    plan.replicas = 2;
    plan.norm = variant == 1;
    plan.steps = 80;
    plan.record = record;
    loop_train(&plan, rules);
}

static void loop_clipped(int variant, uint64_t seed, const char *record,
                         sonde_rules **rules)
{
    loop_plan plan = usual(seed);

    plan.clip = 0.1F;
    plan.residual = variant == 1;
    plan.record = record;
    loop_train(&plan, rules);
}

/* The same batch at every step, on purpose; learnt by heart. */
static void one_batch(struct loop *training, int64_t step)
{
    (void)step;
    faults_batch(training->plan.data, training->plan.seed, 0, training->plan.batch,
                 training->nets[0].x, training->nets[0].y, training->nets[0].t);
}

static void loop_whole_batch(int variant, uint64_t seed, const char *record,
                             sonde_rules **rules)
{
    loop_plan plan = usual(seed);

    plan.before = one_batch;
    plan.hidden = variant;
    plan.record = record;
    loop_train(&plan, rules);
}

/* Cosine from the start to nothing, as schedules do. */
static void anneal(struct loop *training, int64_t step)
{
    static const float pi = 3.14159265F;

    training->plan.optimizer.learning_rate =
        0.0015F * (1.0F + cosf(pi * (float)step / (float)training->plan.steps));
}

static void loop_annealed(int variant, uint64_t seed, const char *record,
                          sonde_rules **rules)
{
    loop_plan plan = usual(seed);

    plan.optimizer = sonde_nn_optimizer_default(SONDE_NN_ADAMW, 0.003F);
    plan.before = anneal;
    plan.steps = 200;
    plan.norm = variant == 1;
    plan.eval_every = 50;
    plan.eval_batches = 3;
    plan.record = record;
    loop_train(&plan, rules);
}

static void loop_data(int variant, uint64_t seed, const char *record, sonde_rules **rules)
{
    loop_plan plan = usual(seed);

    plan.data = (faults_data_kind)variant;
    plan.activation = ACT_TANH;
    plan.steps = 200;
    plan.optimizer.learning_rate *= 0.5F;
    plan.record = record;
    loop_train(&plan, rules);
}

const faults_clean faults_clean_rows[] = {
    {"MLP, SGD", ordinary, 0},
    {"CNN, SGD", ordinary, 1},
    {"residual, SGD", ordinary, 2},
    {"MLP, momentum", ordinary, 3},
    {"CNN, momentum", ordinary, 4},
    {"residual, momentum", ordinary, 5},
    {"MLP, Adam", ordinary, 6},
    {"CNN, Adam", ordinary, 7},
    {"residual, Adam", ordinary, 8},
    {"MLP, AdamW", ordinary, 9},
    {"CNN, AdamW", ordinary, 10},
    {"residual, AdamW", ordinary, 11},
    {"MLP, warm-up from 0", with_warmup, NET_MLP},
    {"CNN, warm-up from 0", with_warmup, NET_CNN},
    {"residual, warm-up from 0", with_warmup, NET_RESIDUAL},
    {"MLP, gradient accumulation", with_accumulation, NET_MLP},
    {"CNN, gradient accumulation", with_accumulation, NET_CNN},
    {"residual branches from 0", zero_branches, 0},
    {"residual branches from 0, warm-up", zero_branches, 20},
    {"MLP, dropout", with_dropout, 128},
    {"MLP, dropout, narrow", with_dropout, 16},
    {"MLP, tiny data", of_data, DATA_TINY},
    {"MLP, regression", of_data, DATA_REGRESSION},
    {"MLP, images", of_data, DATA_IMAGES},
    {"MLP, long", long_run, NET_MLP},
    {"CNN, long", long_run, NET_CNN},
    {"residual, long", long_run, NET_RESIDUAL},
    {"MLP, spikes that recover", spikes, NET_MLP},
    {"CNN, spikes that recover", spikes, NET_CNN},
    {"MLP, sparse ReLUs", sparse, NET_MLP},
    {"CNN, sparse ReLUs", sparse, NET_CNN},
    {"loop, ReLU", loop_ordinary, 0},
    {"loop, tanh", loop_ordinary, 1},
    {"loop, sigmoid", loop_ordinary, 2},
    {"loop, ReLU, batch norm", loop_ordinary, 3},
    {"loop, tanh, batch norm", loop_ordinary, 4},
    {"loop, sigmoid, batch norm", loop_ordinary, 5},
    {"loop, ReLU, residual", loop_ordinary, 6},
    {"loop, dropout", loop_dropout, 0},
    {"loop, dropout and batch norm", loop_dropout, 1},
    {"loop, frozen backbone", loop_frozen, 1},
    {"loop, mostly frozen backbone", loop_frozen, 4},
    {"loop, embedding", loop_embedding, 1},
    {"loop, embedding, deeper", loop_embedding, 3},
    {"loop, two replicas", loop_replicas, 0},
    {"loop, two replicas, batch norm", loop_replicas, 1},
    {"loop, clipped gradients", loop_clipped, 0},
    {"loop, clipped gradients, residual", loop_clipped, 1},
    {"loop, one batch by heart", loop_whole_batch, 2},
    {"loop, rate annealed to 0", loop_annealed, 0},
    {"loop, rate annealed to 0, batch norm", loop_annealed, 1},
    {"loop, tiny data", loop_data, DATA_TINY},
    {"loop, regression", loop_data, DATA_REGRESSION},
    {"loop, images", loop_data, DATA_IMAGES},
};
const size_t faults_clean_row_count = SONDE_COUNT_OF(faults_clean_rows);

/*
 * plants_loop.c - faults in loops of one's own.
 */
#include "faults.h"
#include "loop.h"

#include "base/macros.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <string.h>

enum { SHOWS = 40 };

/* Three networks: a plain one of ReLUs, one of tanh with batch norm, a deep residual
 * one. */
typedef enum loop_net_kind { LOOP_RELU = 0, LOOP_NORM = 1, LOOP_DEEP = 2 } loop_net_kind;

static loop_plan usual(loop_net_kind kind, uint64_t seed)
{
    loop_plan plan = {.data = DATA_BLOBS,
                      .seed = seed,
                      .batch = 32,
                      .width = 32,
                      .hidden = 2,
                      .optimizer = sonde_nn_optimizer_sgd(0.05F, 0.9F)};

    if (kind == LOOP_NORM) {
        plan.activation = ACT_TANH;
        plan.norm = true;
        plan.hidden = 3;
        plan.optimizer = sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.003F);
    } else if (kind == LOOP_DEEP) {
        plan.hidden = 6;
        plan.residual = true;
        plan.dropout = 0.1F;
        plan.optimizer = sonde_nn_optimizer_default(SONDE_NN_ADAMW, 0.002F);
    }
    return plan;
}

/* What a mistake needs to be made at all. */
static void for_mistake(loop_plan *plan, loop_net_kind kind, int shows)
{
    const loop_mistake mistake = plan->mistake;

    plan->frozen = mistake == MISTAKE_FROZEN_CHANGES ? 1 : 0;
    plan->replicas =
        mistake == MISTAKE_NO_ALL_REDUCE || mistake == MISTAKE_SAME_BATCH ? 2 : 1;
    if (mistake == MISTAKE_DROPOUT_IN_EVAL || mistake == MISTAKE_NORM_IN_EVAL) {
        plan->at = 0;
        plan->dropout = 0.2F;
        plan->eval_every = shows;
        plan->eval_batches = 2;
        plan->steps = 3 * shows;
    }
    if ((mistake == MISTAKE_SWAPPED_BETAS || mistake == MISTAKE_STUCK_STEP ||
         mistake == MISTAKE_FLIP_SECOND) &&
        kind != LOOP_DEEP) {
        plan->optimizer = sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.003F);
    }
}

static void run(const faults_row *row, loop_net_kind kind, uint64_t seed, double severity,
                const char *record, sonde_rules **rules)
{
    loop_plan plan = usual(kind, seed);

    plan.steps = row->shows + row->limit + 5;
    plan.mistake = (loop_mistake)row->variant;
    plan.at = row->shows;
    plan.severity = severity;
    plan.record = record;
    for_mistake(&plan, kind, row->shows);
    loop_train(&plan, rules);
}

static void on_relu(const faults_row *row, uint64_t seed, double severity,
                    const char *record, sonde_rules **rules)
{
    run(row, LOOP_RELU, seed, severity, record, rules);
}

static void on_norm(const faults_row *row, uint64_t seed, double severity,
                    const char *record, sonde_rules **rules)
{
    run(row, LOOP_NORM, seed, severity, record, rules);
}

static void on_deep(const faults_row *row, uint64_t seed, double severity,
                    const char *record, sonde_rules **rules)
{
    run(row, LOOP_DEEP, seed, severity, record, rules);
}

/* --- faults of one op, of the activations, of the data ------------------------------ */

static void with_op(const faults_row *row, uint64_t seed, double severity,
                    const char *record, sonde_rules **rules)
{
    loop_plan plan = usual(LOOP_RELU, seed);

    plan.op = (loop_op)(row->variant % 10);
    plan.activation = (loop_activation)(row->variant / 10);
    plan.optimizer = sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.002F);
    plan.mistake = MISTAKE_OP;
    plan.at = row->shows;
    plan.severity = severity;
    plan.steps = row->shows + 10;
    plan.record = record;
    loop_train(&plan, rules);
}

static void deep_sigmoid(const faults_row *row, uint64_t seed, double severity,
                         const char *record, sonde_rules **rules)
{
    loop_plan plan = usual(LOOP_RELU, seed);

    plan.activation = ACT_SIGMOID;
    plan.hidden = (int)severity;
    plan.gain = row->variant == 0 ? 1.0F : 0.57F; /* PyTorch's default is smaller */
    plan.optimizer = row->variant == 0
                         ? sonde_nn_optimizer_sgd(0.05F, 0.9F)
                         : sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.001F);
    plan.steps = row->limit + 10;
    plan.record = record;
    loop_train(&plan, rules);
}

static void saturated(const faults_row *row, uint64_t seed, double severity,
                      const char *record, sonde_rules **rules)
{
    loop_plan plan = usual(LOOP_RELU, seed);

    plan.activation = (loop_activation)row->variant;
    plan.gain = (float)severity;
    plan.steps = row->limit + 10;
    plan.record = record;
    loop_train(&plan, rules);
}

static void large_initial(const faults_row *row, uint64_t seed, double severity,
                          const char *record, sonde_rules **rules)
{
    loop_plan plan = usual(LOOP_RELU, seed);

    plan.hidden = 5;
    plan.gain = (float)severity;
    plan.steps = row->limit + 10;
    plan.record = record;
    loop_train(&plan, rules);
}

static void wrong_head(const faults_row *row, uint64_t seed, double severity,
                       const char *record, sonde_rules **rules)
{
    loop_plan plan = usual(LOOP_NORM, seed);

    (void)severity;
    plan.softmax_twice = row->variant == 0;
    plan.softmax_missing = row->variant == 1;
    plan.steps = row->limit + 10;
    plan.record = record;
    loop_train(&plan, rules);
}

/* --- loss curves -------------------------------------------------------------------- */

/* Few samples, a third of them with wrong labels: what is learnt of them holds nowhere
 * else. */
static void overfit(const faults_row *row, uint64_t seed, double severity,
                    const char *record, sonde_rules **rules)
{
    loop_plan plan = usual((loop_net_kind)row->variant, seed);

    plan.data = DATA_BLOBS;
    plan.pool = (int)severity;
    plan.label_noise = 0.3F;
    plan.dropout = 0.0F;
    plan.eval_every = 10;
    plan.eval_batches = 4;
    plan.steps = row->limit;
    plan.record = record;
    loop_train(&plan, rules);
}

static void forget_rate(struct loop *training, int64_t step)
{
    if (step == 60) {
        training->plan.optimizer.learning_rate *= (float)training->plan.severity;
    }
}

/* Training continues long after the network has stopped learning. */
static void overtrain(const faults_row *row, uint64_t seed, double severity,
                      const char *record, sonde_rules **rules)
{
    loop_plan plan = usual((loop_net_kind)row->variant, seed);

    plan.before = forget_rate;
    plan.severity = severity;
    plan.eval_every = 20;
    plan.eval_batches = 2;
    plan.steps = row->limit;
    plan.record = record;
    loop_train(&plan, rules);
}

/* The learning rate rises until the loss goes up and down and does not come back. */
static void oscillate(const faults_row *row, uint64_t seed, double severity,
                      const char *record, sonde_rules **rules)
{
    loop_plan plan = usual((loop_net_kind)row->variant, seed);

    plan.before = forget_rate;
    plan.severity = severity;
    plan.steps = row->shows + row->limit;
    plan.record = record;
    loop_train(&plan, rules);
}

/* The process has stopped to train and is still there. */
static void stall(const faults_row *row, uint64_t seed, double severity,
                  const char *record, sonde_rules **rules)
{
    loop_plan plan = usual((loop_net_kind)row->variant, seed);

    plan.steps = row->shows + 1;
    plan.record = record;
    plan.idle = severity;
    loop_train(&plan, rules);
}

/* clang-format off */
#define BAD(at) {"NonFinite", at}, {"ExplodingTensor", at}
#define FLIPPED {"UpdateSpike", "fc2.weight"}, \
    {"GradientSpike", "Gradient___fc2.weight Accl*___fc2.weight"}, \
    {"OptimizerState", "Accl*___fc2.weight"}, {"WeightUpdateRatio", "fc2.weight"}, \
    BAD("*fc2*")
#define STUCK {"FrozenParameter", "fc*"}
#define WRONG_ADAM {"OptimizerState", "Accl* Step*"}

/* number, what, network, severities, shows, limit, answers, run, variant */
const faults_row faults_loop_rows[] = {
    {1, "log of what is below 0", "loop, ReLU", {1.5}, SHOWS, 1,
     {BAD("block1_output_0")}, with_op, 1},
    {1, "sqrt of what is below 0", "loop, ReLU", {1.5}, SHOWS, 1,
     {BAD("block1_output_0")}, with_op, 2},
    {1, "division by 0", "loop, ReLU", {1}, SHOWS, 1, {BAD("block1_output_0")}, with_op,
     3},
    {1, "log of what is below 0", "loop, tanh", {1.5}, SHOWS, 1,
     {BAD("block1_output_0")}, with_op, 11},
    {1, "sqrt of what is below 0", "loop, tanh", {1.5}, SHOWS, 1,
     {BAD("block1_output_0")}, with_op, 12},
    {1, "log of what is below 0", "loop, sigmoid", {1.5}, SHOWS, 1,
     {BAD("block1_output_0")}, with_op, 21},
    {2, "exp that overflows", "loop, ReLU", {1}, SHOWS, 1, {BAD("block1_output_0")},
     with_op, 4},
    {2, "exp that overflows", "loop, tanh", {1}, SHOWS, 1, {BAD("block1_output_0")},
     with_op, 14},
    {3, "bit of a weight", "loop, ReLU", {30, 25}, SHOWS, 5, {FLIPPED}, on_relu,
     MISTAKE_FLIP_WEIGHT},
    {3, "bit of a weight", "loop, norm", {30, 25}, SHOWS, 5, {FLIPPED}, on_norm,
     MISTAKE_FLIP_WEIGHT},
    {3, "bit of a weight", "loop, deep", {30, 25}, SHOWS, 5, {FLIPPED}, on_deep,
     MISTAKE_FLIP_WEIGHT},
    {3, "bit of a gradient", "loop, ReLU", {30}, SHOWS, 5, {FLIPPED}, on_relu,
     MISTAKE_FLIP_GRADIENT},
    {3, "bit of a gradient", "loop, norm", {30}, SHOWS, 5, {FLIPPED}, on_norm,
     MISTAKE_FLIP_GRADIENT},
    {3, "bit of a gradient", "loop, deep", {30}, SHOWS, 5, {FLIPPED}, on_deep,
     MISTAKE_FLIP_GRADIENT},
    {3, "bit of a moment", "loop, ReLU", {30}, SHOWS, 5, {FLIPPED}, on_relu,
     MISTAKE_FLIP_MOMENT},
    {3, "bit of a moment", "loop, norm", {30}, SHOWS, 5, {FLIPPED}, on_norm,
     MISTAKE_FLIP_MOMENT},
    {3, "bit of a moment", "loop, deep", {30}, SHOWS, 5, {FLIPPED}, on_deep,
     MISTAKE_FLIP_MOMENT},
    {6, "sigmoids, layers:", "loop, sigmoid", {8, 10, 12}, 0, 20, {{"VanishingGradient",
     "Gradient___fc[1-4].weight"}}, deep_sigmoid, 0},
    {6, "sigmoids as by default, layers:", "loop, sigmoid", {5, 8, 10}, 0, 20,
     {{"VanishingGradient", "Gradient___fc[1-4].weight"}}, deep_sigmoid, 1},
    {7, "initial weights x", "loop, ReLU", {10, 30, 100}, 0, 5,
     {{"PoorWeightInitialization", "relu* loss*"}}, large_initial, 0},
    {10, "initial weights x", "loop, tanh", {100, 300, 1000}, 0, 20,
     {{"SaturatedActivation", "tanh*"}}, saturated, ACT_TANH},
    {10, "initial weights x", "loop, sigmoid", {200, 500, 1000}, 0, 20,
     {{"SaturatedActivation", "sigmoid*"}}, saturated, ACT_SIGMOID},
    {11, "a layer the optimizer lacks", "loop, ReLU", {0}, SHOWS, 2,
     {{"FrozenParameter", "fc2.*"}}, on_relu, MISTAKE_FROZEN_LAYER},
    {11, "a layer the optimizer lacks", "loop, norm", {0}, SHOWS, 2,
     {{"FrozenParameter", "fc2.*"}}, on_norm, MISTAKE_FROZEN_LAYER},
    {11, "a layer the optimizer lacks", "loop, deep", {0}, 0, 2, {{"FrozenParameter",
     "fc2.*"}}, on_deep, MISTAKE_FROZEN_LAYER},
    {12, "decay of a frozen layer", "loop, ReLU", {0}, SHOWS, 2, {{"UnfrozenParameter",
     "fc1.*"}}, on_relu, MISTAKE_FROZEN_CHANGES},
    {12, "decay of a frozen layer", "loop, norm", {0}, SHOWS, 2, {{"UnfrozenParameter",
     "fc1.*"}}, on_norm, MISTAKE_FROZEN_CHANGES},
    {12, "decay of a frozen layer", "loop, deep", {0}, 1, 2, {{"UnfrozenParameter",
     "fc1.*"}}, on_deep, MISTAKE_FROZEN_CHANGES},
    {13, "no zero_grad", "loop, ReLU", {0}, 1, 3, {{"MissingZeroGrad", "-"}}, on_relu,
     MISTAKE_NO_ZERO_GRAD},
    {13, "no zero_grad", "loop, norm", {0}, SHOWS, 3, {{"MissingZeroGrad", "-"}},
     on_norm, MISTAKE_NO_ZERO_GRAD},
    {13, "no zero_grad", "loop, deep", {0}, 1, 3, {{"MissingZeroGrad", "-"}}, on_deep,
     MISTAKE_NO_ZERO_GRAD},
    {14, "stale copies", "loop, ReLU", {0}, 0, 2, {STUCK}, on_relu,
     MISTAKE_STALE_COPIES},
    {14, "stale copies", "loop, norm", {0}, 0, 2, {STUCK}, on_norm,
     MISTAKE_STALE_COPIES},
    {14, "stale copies", "loop, deep", {0}, SHOWS, 2, {STUCK}, on_deep,
     MISTAKE_STALE_COPIES},
    {17, "the same batch on both", "loop, ReLU", {0}, 0, 2, {{"DuplicateBatch",
     "input"}}, on_relu, MISTAKE_SAME_BATCH},
    {17, "the same batch on both", "loop, norm", {0}, SHOWS, 2, {{"DuplicateBatch",
     "input"}}, on_norm, MISTAKE_SAME_BATCH},
    {18, "dropout in evaluation", "loop, ReLU", {0}, SHOWS, 2, {{"EvalNondeterminism",
     "*"}}, on_relu, MISTAKE_DROPOUT_IN_EVAL},
    {18, "dropout in evaluation", "loop, deep", {0}, SHOWS, 2, {{"EvalNondeterminism",
     "*"}}, on_deep, MISTAKE_DROPOUT_IN_EVAL},
    {18, "batch norm learns in evaluation", "loop, norm", {0}, SHOWS, 2,
     {{"EvalNondeterminism", "norm*"}}, on_norm, MISTAKE_NORM_IN_EVAL},
    {19, "softmax twice", "loop, norm", {0}, 0, 20, {{"SoftmaxMisuse", "loss*"}},
     wrong_head, 0},
    {19, "softmax missing", "loop, norm", {0}, 0, 20, {{"SoftmaxMisuse", "loss*"}},
     wrong_head, 1},
    {20, "no all-reduce", "loop, ReLU", {0}, 0, 1, {{"ReplicaDivergence", "*"}},
     on_relu, MISTAKE_NO_ALL_REDUCE},
    {20, "no all-reduce", "loop, norm", {0}, SHOWS, 1, {{"ReplicaDivergence", "*"}},
     on_norm, MISTAKE_NO_ALL_REDUCE},
    {20, "no all-reduce", "loop, deep", {0}, SHOWS, 1, {{"ReplicaDivergence", "*"}},
     on_deep, MISTAKE_NO_ALL_REDUCE},
    {21, "swapped betas", "loop, ReLU", {0}, 0, 10, {WRONG_ADAM}, on_relu,
     MISTAKE_SWAPPED_BETAS},
    {21, "swapped betas", "loop, norm", {0}, 0, 10, {WRONG_ADAM}, on_norm,
     MISTAKE_SWAPPED_BETAS},
    {21, "swapped betas", "loop, deep", {0}, SHOWS, 10, {WRONG_ADAM}, on_deep,
     MISTAKE_SWAPPED_BETAS},
    {21, "step counter stays", "loop, ReLU", {0}, SHOWS, 10, {WRONG_ADAM}, on_relu,
     MISTAKE_STUCK_STEP},
    {21, "step counter stays", "loop, norm", {0}, 1, 10, {WRONG_ADAM}, on_norm,
     MISTAKE_STUCK_STEP},
    {21, "step counter stays", "loop, deep", {0}, SHOWS, 10, {WRONG_ADAM}, on_deep,
     MISTAKE_STUCK_STEP},
    {21, "second moment below 0", "loop, ReLU", {0}, SHOWS, 10, {WRONG_ADAM}, on_relu,
     MISTAKE_FLIP_SECOND},
    {21, "second moment below 0", "loop, deep", {0}, SHOWS, 10, {WRONG_ADAM}, on_deep,
     MISTAKE_FLIP_SECOND},
    {22, "over-fitting, batches:", "loop, ReLU", {2, 4}, 0, 400, {{"Overfit", "loss*"}},
     overfit, LOOP_RELU},
    {22, "over-fitting, batches:", "loop, norm", {2, 4}, 0, 400, {{"Overfit", "loss*"}},
     overfit, LOOP_NORM},
    {22, "over-fitting, batches:", "loop, deep", {2, 4}, 0, 400, {{"Overfit", "loss*"}},
     overfit, LOOP_DEEP},
    {22, "over-training, rate x", "loop, ReLU", {1e-6}, 60, 540, {{"Overtraining",
     "loss*"}}, overtrain, LOOP_RELU},
    {22, "over-training, rate x", "loop, deep", {1e-6}, 60, 540, {{"Overtraining",
     "loss*"}}, overtrain, LOOP_DEEP},
    {22, "oscillating, rate x", "loop, ReLU", {30, 100}, 60, 200, {{"LossSpike",
     "loss*"}, {"LossNotDecreasing", "loss*"}, {"WeightUpdateRatio", "*"}}, oscillate,
     LOOP_RELU},
    {22, "oscillating, rate x", "loop, norm", {100, 300}, 60, 200, {{"LossSpike",
     "loss*"}, {"LossNotDecreasing", "loss*"}, {"WeightUpdateRatio", "*"}}, oscillate,
     LOOP_NORM},
    {22, "stalled, seconds", "loop, ReLU", {1900, 10000}, 19, 1, {{"StalledTraining",
     "-"}}, stall, LOOP_RELU},
};
/* clang-format on */
const size_t faults_loop_row_count = SONDE_COUNT_OF(faults_loop_rows);

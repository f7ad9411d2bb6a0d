/*
 * plants_engine.c - faults in networks that the engine trains.
 */
#include "faults.h"
#include "record.h"

#include "support.h"

#include "base/macros.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <string.h>

#include <sonde/error.h>

enum { SHOWS = 40 }; /* step of faults that come later */

static float *find_values(const faults_training *training, const char *name,
                          int64_t *count)
{
    sonde_view view = faults_parameter(training, name);

    *count = sonde_view_count(&view);
    return view.data;
}

/* --- initialization --------------------------------------------------------------- */

static bool is_weight(const char *name)
{
    return strstr(name, "weight") != NULL && strstr(name, "norm") == NULL;
}

static void scale_weights(faults_training *training)
{
    for (size_t i = 0; i < sonde_nn_model_get_info(training->model).parameter_count;
         i++) {
        int64_t count = 0;
        const char *name = sonde_nn_parameter(training->model, i).name;
        float *w = find_values(training, name, &count);

        for (int64_t k = 0; k < count && is_weight(name); k++) {
            w[k] *= (float)training->plan.severity;
        }
    }
}

/* severity 1: zeros; 2: biases as well; 3: a constant; 4: a constant and no biases. */
static void equal_weights(faults_training *training)
{
    const int kind = (int)training->plan.severity;

    for (size_t i = 0; i < sonde_nn_model_get_info(training->model).parameter_count;
         i++) {
        int64_t count = 0;
        const char *name = sonde_nn_parameter(training->model, i).name;
        float *w = find_values(training, name, &count);

        for (int64_t k = 0; k < count; k++) {
            if (is_weight(name)) {
                w[k] = kind >= 3 ? 0.03F : 0.0F;
            } else if (strstr(name, "norm") == NULL && kind % 2 == 0) {
                w[k] = 0.0F;
            }
        }
    }
}

static void kill_relus(faults_training *training)
{
    const char *name = training->plan.net == NET_MLP   ? "fc1.bias"
                       : training->plan.net == NET_CNN ? "conv2.bias"
                                                       : "block2.norm1.bias";
    int64_t count = 0;
    float *b = find_values(training, name, &count);

    for (int64_t k = 0; k < count; k++) {
        b[k] = -(float)training->plan.severity;
    }
}

/* --- while it trains -------------------------------------------------------------- */

static const char *middle_weight(const faults_training *training)
{
    return training->plan.net == NET_MLP   ? "fc2.weight"
           : training->plan.net == NET_CNN ? "conv2.weight"
                                           : "block2.conv1.weight";
}

static void overflow(faults_training *training, int64_t step)
{
    int64_t count = 0;
    float *w = find_values(training, middle_weight(training), &count);

    for (int64_t k = 0; k < count && step == SHOWS; k++) {
        w[k] *= (float)training->plan.severity;
    }
}

static void flip_weight(faults_training *training, int64_t step)
{
    int64_t count = 0;
    float *w = find_values(training, middle_weight(training), &count);
    uint32_t bits = 0;
    float most = 0.0F;

    for (int64_t k = 0; k < count; k++) {
        most = fmaxf(most, fabsf(w[k]));
    }
    /* an element that the flip makes stand out; no rule can see any other */
    for (uint64_t i = 0; step == SHOWS && i < 100000; i++) {
        float *at =
            w +
            (int64_t)(faults_uniform(training->plan.seed, 60, i) * (float)count) % count;
        const float before = fabsf(*at);
        float after = 0.0F;

        memcpy(&bits, at, sizeof bits);
        bits ^= UINT32_C(1) << (unsigned)training->plan.severity;
        memcpy(&after, &bits, sizeof after);
        if (fabsf(after) > before && fabsf(after) > 2.0F * most) {
            *at = after;
            break;
        }
    }
}

static void shuffle_labels(faults_training *training, int64_t step)
{
    for (int64_t i = 0; i < training->samples; i++) {
        const uint64_t at = (uint64_t)(step * training->samples + i);
        const float u = faults_uniform(training->plan.seed, 61, at);

        training->y[i] =
            training->plan.severity > 1.0 ? 3 : (int64_t)(u * CLASSES) % CLASSES;
    }
}

static void spoil_input(faults_training *training, int64_t step)
{
    const int64_t sample = faults_sample(training->plan.data);
    const int64_t row = step % training->samples;

    if (training->plan.severity > 1.0) {
        for (int64_t i = 0; i < training->samples * sample; i++) {
            training->x[i] =
                (float)training->plan.severity / 2.0F * (training->x[i] + 1.0F);
        }
    } else if (step == SHOWS) {
        for (int64_t i = 0; i < sample; i++) {
            training->x[row * sample + i] = NAN;
        }
    }
}

static void same_batch(faults_training *training, int64_t step)
{
    if (step >= SHOWS && step < SHOWS + (int64_t)training->plan.severity) {
        faults_batch(training->plan.data, training->plan.seed, SHOWS - 1,
                     training->samples, training->x, training->y, training->t);
    }
}

static void raise_rate(faults_training *training, int64_t step)
{
    sonde_nn_optimizer now = training->plan.optimizer;
    sonde_diag diag = {0};

    now.learning_rate *= step >= SHOWS ? (float)training->plan.severity : 1.0F;
    bench_check(sonde_nn_session_set_optimizer(training->session, NULL, &now, &diag),
                &diag);
}

/* --- the rows --------------------------------------------------------------------- */

typedef enum plant {
    PLANT_OVERFLOW,
    PLANT_FLIP,
    PLANT_RATE,
    PLANT_RATE_ADAM,
    PLANT_RATE_LATER,
    PLANT_SCALE,
    PLANT_EQUAL,
    PLANT_DEAD,
    PLANT_LABELS,
    PLANT_INPUT,
    PLANT_BATCH,
    PLANT_TWICE,
    PLANT_MISSING
} plant;

static void choose(faults_plan *plan, plant what)
{
    static void (*const before[])(faults_training *, int64_t) = {
        [PLANT_OVERFLOW] = overflow,     [PLANT_FLIP] = flip_weight,
        [PLANT_RATE_LATER] = raise_rate, [PLANT_LABELS] = shuffle_labels,
        [PLANT_INPUT] = spoil_input,     [PLANT_BATCH] = same_batch,
        [PLANT_MISSING] = NULL};
    static void (*const prepare[])(faults_training *) = {[PLANT_SCALE] = scale_weights,
                                                         [PLANT_EQUAL] = equal_weights,
                                                         [PLANT_DEAD] = kill_relus,
                                                         [PLANT_MISSING] = NULL};

    plan->before = before[what];
    plan->prepare = prepare[what];
    if (what == PLANT_RATE_ADAM) {
        plan->optimizer = sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.002F);
    }
    if (what == PLANT_RATE || what == PLANT_RATE_ADAM) {
        plan->optimizer.learning_rate *= (float)plan->severity;
    }
    plan->head = what == PLANT_TWICE     ? HEAD_TWICE
                 : what == PLANT_MISSING ? HEAD_MISSING
                                         : HEAD_CROSS_ENTROPY;
}

static void train(const faults_row *row, faults_net net, uint64_t seed, double severity,
                  const char *record, sonde_rules **rules)
{
    faults_plan plan = faults_usual(net, seed);
    faults_training training;

    plan.severity = severity;
    plan.steps = row->shows + row->limit + 5;
    plan.record = record;
    choose(&plan, (plant)row->variant);
    faults_train(&plan, &training);
    faults_training_free(&training);
    *rules = training.rules;
}

static void on_mlp(const faults_row *row, uint64_t seed, double severity,
                   const char *record, sonde_rules **rules)
{
    train(row, NET_MLP, seed, severity, record, rules);
}

static void on_cnn(const faults_row *row, uint64_t seed, double severity,
                   const char *record, sonde_rules **rules)
{
    train(row, NET_CNN, seed, severity, record, rules);
}

static void on_residual(const faults_row *row, uint64_t seed, double severity,
                        const char *record, sonde_rules **rules)
{
    train(row, NET_RESIDUAL, seed, severity, record, rules);
}

/* clang-format off */
#define BAD(at) {"NonFinite", at}, {"ExplodingTensor", at}
/* The rate is that of all weights, and the loss shows it. What becomes NaN, or spikes,
 * on the way between the two is found, but is not where it comes from. */
#define TOO_FAST {"WeightUpdateRatio", "*weight"}, {"LossSpike", "loss*"}, \
    {"LossNotDecreasing", "loss*"}, {"NonFinite", "*.weight loss*"}, \
    {"GradientSpike", "Gradient___*.weight"}
#define FLIPPED(weight, output) {"UpdateSpike", weight}, \
    {"WeightUpdateRatio", weight}, {"NonFinite", weight " " output}, \
    {"ExplodingTensor", weight " " output}
#define SAME {"SymmetricUnits", "*weight"}

/* number, what, network, severities, shows, limit, answers, run, variant */
const faults_row faults_engine_rows[] = {
    {2, "weights that overflow", "MLP", {1e38}, SHOWS, 1, {BAD("fc2_output_0")},
     on_mlp, PLANT_OVERFLOW},
    {2, "weights that overflow", "CNN", {1e30, 1e38}, SHOWS, 1, {BAD("conv2_output_0")},
     on_cnn, PLANT_OVERFLOW},
    {2, "weights that overflow", "residual", {1e38}, SHOWS, 1,
     {BAD("block2.conv1_output_0 block2.norm1_output_0")}, on_residual, PLANT_OVERFLOW},
    {3, "bit of a weight", "MLP", {30, 25}, SHOWS, 5, {FLIPPED("fc2.weight",
     "fc2_output_0")}, on_mlp, PLANT_FLIP},
    {3, "bit of a weight", "CNN", {30, 25}, SHOWS, 5, {FLIPPED("conv2.weight",
     "conv2_output_0")}, on_cnn, PLANT_FLIP},
    {3, "bit of a weight", "residual", {30, 25}, SHOWS, 5,
     {FLIPPED("block2.conv1.weight", "block2.*_output_0")}, on_residual, PLANT_FLIP},
    {4, "learning rate x", "MLP", {30, 100, 300}, 0, 20, {TOO_FAST}, on_mlp, PLANT_RATE},
    {4, "learning rate x", "CNN", {30, 100, 300}, 0, 20, {TOO_FAST}, on_cnn, PLANT_RATE},
    {4, "learning rate x", "residual", {30, 100, 300}, 0, 20, {TOO_FAST}, on_residual,
     PLANT_RATE},
    {4, "learning rate x, Adam", "MLP", {30, 100, 300}, 0, 20, {TOO_FAST}, on_mlp,
     PLANT_RATE_ADAM},
    {4, "learning rate x, Adam", "CNN", {30, 100, 300}, 0, 20, {TOO_FAST}, on_cnn,
     PLANT_RATE_ADAM},
    {4, "learning rate x, Adam", "residual", {30, 100, 300}, 0, 20, {TOO_FAST},
     on_residual, PLANT_RATE_ADAM},
    {4, "learning rate x, later", "MLP", {30, 100, 300}, SHOWS, 20, {TOO_FAST}, on_mlp,
     PLANT_RATE_LATER},
    {4, "learning rate x, later", "CNN", {30, 100, 300}, SHOWS, 20, {TOO_FAST}, on_cnn,
     PLANT_RATE_LATER},
    {4, "learning rate x, later", "residual", {30, 100, 300}, SHOWS, 20, {TOO_FAST},
     on_residual, PLANT_RATE_LATER},
    {5, "learning rate x", "MLP", {1e-3, 1e-4}, 0, 50, {{"WeightUpdateRatio",
     "*weight"}}, on_mlp, PLANT_RATE},
    {5, "learning rate x", "CNN", {1e-3, 1e-4}, 0, 50, {{"WeightUpdateRatio",
     "*weight"}}, on_cnn, PLANT_RATE},
    {5, "learning rate x", "residual", {1e-3, 1e-4}, 0, 50, {{"WeightUpdateRatio",
     "*weight"}}, on_residual, PLANT_RATE},
    {5, "learning rate x, Adam", "MLP", {1e-3, 1e-4}, 0, 50, {{"WeightUpdateRatio",
     "*weight"}}, on_mlp, PLANT_RATE_ADAM},
    {5, "learning rate x, Adam", "CNN", {1e-3, 1e-4}, 0, 50, {{"WeightUpdateRatio",
     "*weight"}}, on_cnn, PLANT_RATE_ADAM},
    {7, "initial weights x", "MLP", {10, 30, 100}, 0, 5, {{"PoorWeightInitialization",
     "relu* loss*"}}, on_mlp, PLANT_SCALE},
    {7, "initial weights x", "CNN", {10, 30, 100}, 0, 5, {{"PoorWeightInitialization",
     "relu* loss*"}}, on_cnn, PLANT_SCALE},
    {8, "weights all 0, all alike", "MLP", {1, 2, 3, 4}, 0, 1, {SAME}, on_mlp,
     PLANT_EQUAL},
    {8, "weights all 0, all alike", "CNN", {1, 2, 3, 4}, 0, 1, {SAME}, on_cnn,
     PLANT_EQUAL},
    {8, "weights all 0, all alike", "residual", {1, 2, 3, 4}, 0, 1, {SAME}, on_residual,
     PLANT_EQUAL},
    {9, "biases of -", "MLP", {10, 100}, 0, 50, {{"DeadRelu", "relu1*"}}, on_mlp,
     PLANT_DEAD},
    {9, "biases of -", "CNN", {10, 100}, 0, 50, {{"DeadRelu", "relu2*"}}, on_cnn,
     PLANT_DEAD},
    {9, "biases of -", "residual", {10, 100}, 0, 50, {{"DeadRelu", "block2.relu1*"}},
     on_residual, PLANT_DEAD},
    {15, "labels drawn, all alike", "MLP", {1, 2}, 0, 100, {{"LabelNoise", "loss*"},
     {"ClassImbalance", "-"}}, on_mlp, PLANT_LABELS},
    {15, "labels drawn, all alike", "CNN", {1, 2}, 0, 100, {{"LabelNoise", "loss*"},
     {"ClassImbalance", "-"}}, on_cnn, PLANT_LABELS},
    {15, "labels drawn, all alike", "residual", {1, 2}, 0, 100, {{"LabelNoise",
     "loss*"}, {"ClassImbalance", "-"}}, on_residual, PLANT_LABELS},
    {16, "a row of NaN", "MLP", {1}, SHOWS, 1, {BAD("input")}, on_mlp, PLANT_INPUT},
    {16, "a row of NaN", "CNN", {1}, SHOWS, 1, {BAD("input")}, on_cnn, PLANT_INPUT},
    {16, "pixels of 0 ...", "CNN", {255, 1000}, 0, 1, {{"InputRange", "input"}}, on_cnn,
     PLANT_INPUT},
    {16, "features up to", "MLP", {255, 1000}, 0, 1, {{"InputRange", "input"}}, on_mlp,
     PLANT_INPUT},
    {17, "the same batch again", "MLP", {1, 5}, SHOWS, 2, {{"DuplicateBatch", "input"}},
     on_mlp, PLANT_BATCH},
    {17, "the same batch again", "CNN", {1, 5}, SHOWS, 2, {{"DuplicateBatch", "input"}},
     on_cnn, PLANT_BATCH},
    {17, "the same batch again", "residual", {1, 5}, SHOWS, 2, {{"DuplicateBatch",
     "input"}}, on_residual, PLANT_BATCH},
    {19, "softmax twice", "MLP", {0}, 0, 20, {{"SoftmaxMisuse", "loss*"}}, on_mlp,
     PLANT_TWICE},
    {19, "softmax twice", "CNN", {0}, 0, 20, {{"SoftmaxMisuse", "loss*"}}, on_cnn,
     PLANT_TWICE},
    {19, "softmax twice", "residual", {0}, 0, 20, {{"SoftmaxMisuse", "loss*"}},
     on_residual, PLANT_TWICE},
    {19, "softmax missing", "MLP", {0}, 0, 20, {{"SoftmaxMisuse", "loss*"}}, on_mlp,
     PLANT_MISSING},
    {19, "softmax missing", "CNN", {0}, 0, 20, {{"SoftmaxMisuse", "loss*"}}, on_cnn,
     PLANT_MISSING},
    {19, "softmax missing", "residual", {0}, 0, 20, {{"SoftmaxMisuse", "loss*"}},
     on_residual, PLANT_MISSING},
};
/* clang-format on */
const size_t faults_engine_row_count = SONDE_COUNT_OF(faults_engine_rows);

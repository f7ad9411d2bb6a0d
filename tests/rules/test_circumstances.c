/*
 * What healthy programs do, and the faults that look like it: each rule is silent, or says
 * a note, about the one, and speaks about the other.
 */
#include "rules/stream.h"

#include "base/macros.h"

enum { N = 16, SQUARE = N * N, STEPS = 60 };

static float fading(float rate, int step)
{
    return expf(rate * (float)step);
}

static void batches(stream *s, int again, int step)
{
    stream_put_all(s, 0, 1.0F + (float)(again ? step - (step == 20) : step / 4));
}

/* With labels: counts, whose likelihood falls below 0, or a cross-entropy of wrong sign. */
static void below_zero(stream *s, int fault, int step)
{
    stream_put_all(s, 1, fault ? -2.3F : -0.7F + 1.7F * fading(-0.2F, step));
}

static void scales(stream *s, int kind, int step)
{
    (void)kind;
    stream_put_normal(s, 0, 1.0, 1e-3 * step);
}

/* Rows that rise from 0 by the sign of a gradient. */
static void rows_meet(stream *s, int stay, int step)
{
    float *w = s->values[0];

    for (int i = 0; i < 32 * N; i++) {
        w[i] += 1e-3F * (!stay && step > 1    ? stream_normal(s)
                         : i / N % 2 == i % 2 ? 1.0F
                                              : -1.0F);
    }
    stream_put(s, 0, w);
}

enum { RISEN_RATE, PRUNED, LOADED };

static void jumps(stream *s, int kind, int step)
{
    float *w = s->values[0], *pruned = s->values[1];

    if (step == 0) {
        stream_walk(s, w, SQUARE, 1.0F);
    }
    stream_walk(s, w, SQUARE, kind != PRUNED && step >= 30 ? 0.3F : 1e-3F);
    for (int i = 0; i < SQUARE; i++) {
        pruned[i] = kind == PRUNED && step >= 30 && i % 2 ? 0.001F : w[i];
    }
    stream_put(s, 0, pruned);
    stream_put_all(s, 1,
                   kind != RISEN_RATE && step > 30 ? 4.0F : 2.0F * fading(-0.01F, step));
}

/* The weights of a run's beginning, a tenth as large, are loaded over trained ones. */
static void small_ones_loaded(stream *s, int kind, int step)
{
    float *w = s->values[0];

    (void)kind;
    if (step == 0) {
        stream_walk(s, w, SQUARE, 1.0F);
    } else if (step == 30) {
        memset(w, 0, SQUARE * sizeof *w);
    }
    stream_put_walk(s, 0, w, step == 30 ? 0.1F : 1e-3F);
    stream_put_all(s, 1, step > 29 ? 4.0F : 2.0F * fading(-0.01F, step));
}

/* One element, of a tensor of norm 1, swings less and less, or stops at once. */
static void ends(stream *s, int fault, int step)
{
    const double change = !fault ? pow(0.5, step) : step < 20 ? 1e-2 : 1e-9;
    const float w[N] = {1.0F, (float)(step % 2 == 0 ? change : -change)};

    stream_put(s, 0, w);
}

/* A small weight whose first updates are as large as it is, and then fall. kind: what the
 * loss does. */
static void first_updates(stream *s, int kind, int step)
{
    static const double slopes[] = {-0.005, 0.0, 0.2};
    float *w = s->values[0];

    if (step == 0) {
        stream_walk(s, w, SQUARE, 0.1F);
    }
    for (int i = 0; i < SQUARE; i++) {
        w[i] += (float)(0.08 * pow(0.8, step)) * (w[i] > 0.0F ? 1.0F : -1.0F);
    }
    stream_put(s, 0, w);
    stream_put_all(s, 2, (float)(2.0 * exp(slopes[kind] * step)));
}

static void normalized_input(stream *s, int fault, int step)
{
    (void)step;
    stream_put_normal(s, 0, 200.0, 80.0);
    stream_put_normal(s, 1, 0.0, fault ? 90.0 : 1.0);
}

static void last_sigmoid(stream *s, int fault, int step)
{
    const float off = fault ? 1e-4F : 0.5F * fading(-0.3F, step);
    float a[N];

    for (int i = 0; i < N; i++) {
        a[i] = i % 2 ? off : 1.0F - off;
    }
    stream_put(s, 0, a);
    stream_put_all(s, 1, fault ? 2.0F : -logf(1.0F - off));
}

static void lowered_until_evaluation(stream *s, int kind, int step)
{
    (void)kind;
    s->at.mode = step == 10 ? SONDE_MODE_EVAL : SONDE_MODE_TRAIN;
    stream_put_all(s, 0, 2.0F - 0.1F * (float)(step < 10 ? step : 10));
}

static void follows(stream *s, int kind, int step)
{
    (void)kind;
    (void)step;
    for (uint32_t i = 0; i < 3; i++) {
        stream_put_normal(s, i, 0.0, 1.0);
    }
}

static void rests(stream *s, int fault, int step)
{
    stream_put_all(s, 0, 1.0F + 0.01F * (float)SONDE_MIN(step, 20));
    stream_put_normal(s, 1, 0.0, step >= 20 && !fault ? 1e-6 : 1.0);
}

/* A scaler skips an update whose gradients overflow; or the update is not skipped. */
static void overflows(stream *s, int fault, int step)
{
    stream_put_all(s, 1, step == 3 ? INFINITY : 1.0F);
    stream_put_all(s, 0, fault && step >= 3 ? NAN : 1.0F);
}

/* A divergence whose weight grows, while the total falls; or the only loss rises. */
static void part_rises(stream *s, int fault, int step)
{
    stream_put_all(s, 0, 1.0F + 0.02F * (float)step);
    if (!fault) {
        stream_put_all(s, 1, 9.0F - 0.05F * (float)step);
    }
}

/* The scale of random weights is one value beside their mean; constant: so is that. */
static void scale_of_random(stream *s, int deviation, int step)
{
    (void)step;
    if (deviation == 0) {
        stream_put_all(s, 0, -5.0F);
    } else {
        stream_put_normal(s, 0, 0.0, 0.1 * deviation);
    }
    stream_put_all(s, 1, -5.0F);
}

/* A branch that begins at 0 wakes below the other gradients; or a gradient leaves them. */
static void wakes(stream *s, int fault, int step)
{
    stream_put_normal(s, 0, 0.0, step < 10 ? 1e-10 : fault ? 10.0 : 0.01);
    stream_put_normal(s, 1, 0.0, 0.05);
}

#define WITH_LABELS "input labels 8, loss loss"
#define JUMPING "weight fc.weight 16 16, loss loss"
#define UPDATED(state)                                                                   \
    "weight fc.weight 16 16, optimizer fc.weight." state " 16 16, loss loss"
#define NORMALIZED "input input 8 8, output first_output_0 8 8"
#define LAST "output last_output_0 16 1 =Sigmoid, loss loss"
#define COPIED(name)                                                                     \
    "weight net.fc1.weight 4 4, weight head.weight 4 4, weight " name                    \
    " 4 4, gradient gradient/net.fc1.weight 4 4, gradient gradient/head.weight 4 4"
#define TRAINED "weight fc.weight 4 4, gradient gradient/fc.weight 4 4"
#define RANDOM "weight fc.weight_mu 32 16, weight fc.weight_rho 32 16"
#define BRANCHES                                                                         \
    "gradient gradient/branch.weight 16 16, gradient gradient/fc.weight 16 16"

static const stream_case cases[] = {
    {"a rollout is used for four updates", "DuplicateBatch", "input input 8 8", batches,
     0, STEPS, NOTED},
    {"a batch is repeated once, later", "DuplicateBatch", "input input 8 8", batches, 1,
     STEPS, FAILED},
    {"a likelihood falls below 0", "LossSign", WITH_LABELS, below_zero, 0, STEPS, SILENT},
    {"a cross-entropy is below 0", "LossSign",
     "input labels 8, loss loss =CrossEntropyLoss", below_zero, 1, STEPS, FAILED},
    {"the scale of a normalization begins at 1", "SymmetricUnits",
     "weight norm1.weight 8 16", scales, 0, 10, SILENT, .losing = true},
    {"a gamma begins at 1", "SymmetricUnits", "weight layer.gamma 8 16", scales, 0, 10,
     SILENT, .losing = true},
    {"the weight of a layer begins at 1", "SymmetricUnits", "weight fc.weight 8 16",
     scales, 0, 10, FAILED, .losing = true},
    {"rows that meet by chance part", "SymmetricUnits", "weight head.weight 32 16",
     rows_meet, 0, 10, SILENT, .losing = true},
    {"rows that meet stay together", "SymmetricUnits", "weight head.weight 32 16",
     rows_meet, 1, 10, FAILED, .losing = true},
    {"the rate rises, and the loss falls", "WeightJump", JUMPING, jumps, RISEN_RATE,
     STEPS, NOTED},
    {"weights are pruned", "WeightJump", JUMPING, jumps, PRUNED, STEPS, SILENT},
    {"other weights are loaded", "WeightJump", JUMPING, jumps, LOADED, STEPS, FAILED},
    {"small weights of another time are no pruning", "WeightJump", JUMPING,
     small_ones_loaded, 0, STEPS, FAILED},
    {"training ends slowly", "WeightUpdateRatio", "weight fc.weight 1 16", ends, 0, STEPS,
     NOTED},
    {"training stops at once", "WeightUpdateRatio", "weight fc.weight 1 16", ends, 1,
     STEPS, WARNED},
    {"Adam explains its first updates", "WeightUpdateRatio", UPDATED("exp_avg_sq"),
     first_updates, 0, STEPS, SILENT},
    {"Adagrad explains its first updates", "WeightUpdateRatio", UPDATED("sum"),
     first_updates, 0, STEPS, SILENT},
    {"momentum does not, but the loss falls", "WeightUpdateRatio",
     UPDATED("momentum_buffer"), first_updates, 0, STEPS, NOTED},
    {"momentum does not, and the loss stays", "WeightUpdateRatio",
     UPDATED("momentum_buffer"), first_updates, 1, STEPS, FAILED},
    {"Adam's first updates, and the loss rises", "WeightUpdateRatio",
     UPDATED("exp_avg_sq"), first_updates, 2, STEPS, FAILED},
    {"a network normalizes its input", "InputRange", NORMALIZED, normalized_input, 0, 10,
     NOTED, .losing = true},
    {"a network does not normalize its input", "InputRange", NORMALIZED, normalized_input,
     1, 10, WARNED, .losing = true},
    {"the last sigmoid becomes sure", "SaturatedActivation", LAST, last_sigmoid, 0, STEPS,
     NOTED},
    {"the last sigmoid is sure and wrong", "SaturatedActivation", LAST, last_sigmoid, 1,
     STEPS, FAILED},
    {"a temperature is lowered until the evaluation", "TrainEvalMode",
     "buffer temperature 2", lowered_until_evaluation, 0, 30, NOTED},
    {"statistics stay after the evaluation", "TrainEvalMode", "buffer bn.running_var 2",
     lowered_until_evaluation, 0, 30, FAILED},
    {"an average of a trained part follows", "UnfrozenParameter",
     COPIED("target.fc1.weight"), follows, 0, 10, SILENT},
    /* no optimizer does this without a gradient: the program does */
    {"a frozen layer changes", "UnfrozenParameter", COPIED("stem.conv.weight"), follows,
     0, 10, NOTED},
    {"converged parameters rest", "FrozenParameter", TRAINED, rests, 0, STEPS, SILENT},
    {"parameters rest with gradients as before", "FrozenParameter", TRAINED, rests, 1,
     STEPS, FAILED},
    {"an update is skipped (NonFinite)", "NonFinite", TRAINED, overflows, 0, 6, NOTED},
    {"an update is skipped (ExplodingTensor)", "ExplodingTensor", TRAINED, overflows, 0,
     6, NOTED},
    {"it is not skipped (NonFinite)", "NonFinite", TRAINED, overflows, 1, 6, FAILED},
    {"it is not skipped (ExplodingTensor)", "ExplodingTensor", TRAINED, overflows, 1, 6,
     FAILED},
    {"a part of the loss rises", "LossNotDecreasing:window=10",
     "loss kl_loss, loss total_loss", part_rises, 0, STEPS, NOTED},
    {"the loss rises", "LossNotDecreasing:window=10", "loss loss", part_rises, 1, STEPS,
     WARNED},
    {"a constant scale of random weights", "SymmetricUnits", RANDOM, scale_of_random, 1,
     10, SILENT, .losing = true},
    {"a constant scale of small weights", "PoorWeightInitialization", RANDOM,
     scale_of_random, 1, 10, SILENT, .losing = true},
    {"constant weights", "SymmetricUnits", RANDOM, scale_of_random, 0, 10, FAILED,
     .losing = true},
    {"large weights", "PoorWeightInitialization", RANDOM, scale_of_random, 30, 10, WARNED,
     .losing = true},
    {"a branch wakes", "GradientSpike", BRANCHES, wakes, 0, 30, SILENT, .losing = true},
    {"a gradient leaves the others", "GradientSpike", BRANCHES, wakes, 1, 30, FAILED,
     .losing = true},
};

int main(void)
{
    return stream_main(cases, SONDE_COUNT_OF(cases), NULL, 0);
}

/*
 * PoorWeightInitialization, and the rules for images, tokens, features and trees.
 */
#include "rules/stream.h"

#include "base/macros.h"

enum { STEPS = 15 };

/* Layers whose activation inputs have these deviations. */
enum { PYTORCH, QUIET, GROWING, DYING };

static void layers(stream *s, int kind, int step)
{
    static const double deviations[][4] = {[PYTORCH] = {0.58, 0.24, 0.1, 0.04},
                                           [QUIET] = {0.2, 0.1, 1, 1},
                                           [GROWING] = {1, 2, 12, 30},
                                           [DYING] = {1, 0.7, 0.03, 0.02}};

    (void)step;
    for (uint32_t i = 0; i < 4; i++) {
        stream_put_normal(s, i, 0.1, deviations[kind][i]);
    }
}

/* Activations known by the op of their module, and seen at every other step only: steps
 * between have but a loss, and say nothing of layers. */
static void every_other_step(stream *s, int kind, int step)
{
    static const double deviations[] = {1, 1, 0.01};

    (void)kind;
    for (uint32_t i = 0; i < 3 && step % 2 == 1; i++) {
        stream_put_normal(s, 2 * i + 1, 0.1, deviations[i]);
    }
    stream_put_all(s, 6, 2.3F - 1e-3F * (float)step);
}

/* A loss that falls, from step `late` on. -1: never. */
static void late_loss(stream *s, int late, int step)
{
    stream_put_all(
        s, 0, late < 0 ? 0.1F : 0.1F - 0.001F * (float)SONDE_MAX(step - late + 1, 0));
    stream_put_normal(s, 1, 0.0, 1e-6);
    stream_put_normal(s, 2, 0.0, 1.0);
}

static void still_loss(stream *s, int bad, int step)
{
    stream_put_all(s, 0, bad ? 2.3026F : 2.3F - 0.01F * (float)step);
    stream_put_normal(s, 1, 0.0, 1e-6);
    stream_put_normal(s, 2, 0.0, 1.0);
}

/* One pixel, 3 channels. */
static void images(stream *s, int bad, int step)
{
    float values[150];

    (void)step;
    for (int i = 0; i < 150; i++) {
        values[i] = 0.5F * stream_normal(s) + (bad && i % 3 == 2 ? 0.4F : 0.0F);
    }
    stream_put(s, 0, values);
}

enum { FEW, MANY, EVEN, TOP, NODES };

static void ten_values(stream *s, int kind, int step)
{
    static const float values[][10] = {[FEW] = {1, 2, 0, 4, 0, 6, 7, 8, 9, 0},
                                       [MANY] = {1, 2, 0, 4, 0, 0, 0, 0, 9, 0},
                                       [EVEN] = {1, 2, 1, 2, 1, 2, 1, 2, 1, 2},
                                       [TOP] = {50, 2, 1, 60, 1, 2, 1, 2, 1, 40},
                                       [NODES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 15}};

    (void)step;
    stream_put(s, 0, values[kind]);
}

/* smdebug writes a scalar for each feature of boosted trees. */
static void features(stream *s, int bad, int step)
{
    static const float even[] = {3, 4, 3, 4, 3, 4}, top[] = {90, 80, 70, 1, 2, 1};

    (void)step;
    for (uint32_t i = 0; i < 6; i++) {
        stream_put_all(s, i, bad ? top[i] : even[i]);
    }
}

#define LAYERS "4*input relu_input_# 16 20"
#define MODULES                                                                          \
    "3*output act#_output_0 16 20 =Relu @act# + input act#_input_0 16 20 @act#, "        \
    "loss loss_output_0"
#define STILL "loss loss_output_0, gradient Gradient___w 5 5, input relu_input_0 5 5"
#define LATE "loss loss, gradient gradient/w 5 5, input relu_input_0 5 5"
#define TOKENS "other embedding0_input_0 10"
#define FEATURES "other feature_importance/weight 10"
#define TREES "other trees/Node 10"
#define SCALARS "6*other feature_importance/weight/f#"

static const stream_case cases[] = {
    {"variances as PyTorch's", "PoorWeightInitialization", LAYERS, layers, PYTORCH,
     STEPS},
    {"variances grow to what is usual", "PoorWeightInitialization", LAYERS, layers, QUIET,
     STEPS},
    {"variances grow", "PoorWeightInitialization", LAYERS, layers, GROWING, STEPS, FOUND,
     "relu_input_2", 1},
    {"variances die", "PoorWeightInitialization", LAYERS, layers, DYING, STEPS, FOUND,
     "relu_input_2", 9},
    /* at the end: the loss did not fall */
    {"steps without activations do not count", "PoorWeightInitialization", MODULES,
     every_other_step, 0, 2 * STEPS, FOUND, "act2_input_0", 29},
    {"a loss falls", "PoorWeightInitialization", STILL, still_loss, 0, STEPS},
    {"a loss stands still", "PoorWeightInitialization", STILL, still_loss, 1, STEPS,
     FOUND, "loss_output_0", 5},
    {"a loss of spikes falls once units fire", "PoorWeightInitialization", LATE,
     late_loss, 8, 60},
    {"a loss of spikes never falls", "PoorWeightInitialization", LATE, late_loss, -1, 60,
     FAILED, "loss", 5},
    {"images are centered", "CheckInputImages", "input input 50 3", images, 0, STEPS},
    {"images are to be centered", "CheckInputImages", "input input 50 3", images, 1,
     STEPS, FOUND, "input", 9, "channel 2"},
    {"few tokens are 0", "NLPSequenceRatio", TOKENS, ten_values, FEW, 1},
    {"many tokens are 0", "NLPSequenceRatio", TOKENS, ten_values, MANY, 1, FOUND,
     "embedding0_input_0", 0},
    {"tokens that are asked for",
     "NLPSequenceRatio:token_values=7\\,9,token_thresholds_percent=50\\,9", TOKENS,
     ten_values, FEW, 1, FOUND, "embedding0_input_0", 0},
    {"even features", "FeatureImportanceOverweight", FEATURES, ten_values, EVEN, 1},
    {"features of much weight", "FeatureImportanceOverweight", FEATURES, ten_values, TOP,
     1, FOUND, "feature_importance/weight", 0},
    {"two of them", "FeatureImportanceOverweight:nfeatures=2", FEATURES, ten_values, TOP,
     1},
    {"even features, above a low threshold", "FeatureImportanceOverweight:threshold=0.3",
     FEATURES, ten_values, EVEN, 1, FOUND, "feature_importance/weight", 0},
    {"a tree of a usual depth", "TreeDepth", TREES, ten_values, FEW, 1},
    {"a deep tree", "TreeDepth", TREES, ten_values, NODES, 1, FOUND, "trees/Node", 0},
    {"a tree deeper than 3", "TreeDepth:depth=3", TREES, ten_values, FEW, 1, FOUND,
     "trees/Node", 0},
    {"a tree no deeper than 5", "TreeDepth:depth=5", TREES, ten_values, NODES, 1},
    {"scalars of even features", "FeatureImportanceOverweight", SCALARS, features, 0, 3},
    {"scalars of features are one tensor", "FeatureImportanceOverweight", SCALARS,
     features, 1, 3, FOUND, "feature_importance/weight/f0", 0, .lasts = 3},
};

int main(void)
{
    return stream_main(cases, SONDE_COUNT_OF(cases), NULL, 0);
}

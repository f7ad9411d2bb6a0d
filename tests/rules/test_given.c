/*
 * A parameter that a user gives changes what a rule finds: each stream of evidence is
 * judged with the default and with given values. And the rules that need a choice of
 * tensors: AllZero, TensorVariance, UnchangedTensor.
 */
#include "rules/stream.h"

#include "base/macros.h"

enum { STEPS = 40, BATCH = 40, CLASSES = 4 };

/* Weights grow by so many percent at each step. */
static void grow(stream *s, int percent, int step)
{
    for (uint32_t i = 0; i < 4; i++) {
        float values[60];

        for (int k = 0; k < 60; k++) {
            values[k] = (float)((0.1 + 0.01 * k) * pow(1.0 + percent / 100.0, step));
        }
        stream_put(s, i, values);
    }
}

/* The first gradient shrinks, the second stays. */
static void shrink(stream *s, int kind, int step)
{
    (void)kind;
    stream_put_normal(s, 0, 0.0, step < 10 ? 1.0 : 1e-9);
    stream_put_normal(s, 1, 0.0, 1.0);
}

/* The loss does not change, and gradients lie within 0.02 of each other. */
static void stand(stream *s, int kind, int step)
{
    float values[20];

    (void)kind;
    (void)step;
    for (int i = 0; i < 20; i++) {
        values[i] = 0.001F * (float)i;
    }
    stream_put_all(s, 0, 2.3F);
    stream_put(s, 1, values);
}

/* The loss stays, another number falls. */
static void another_falls(stream *s, int kind, int step)
{
    (void)kind;
    stream_put_all(s, 0, 2.3F);
    stream_put_all(s, 1, 2.3F / (float)(step + 1));
}

/* A third of class 1 are taken for class 0. */
static void confuse(stream *s, int kind, int step)
{
    float label[BATCH], score[BATCH * CLASSES] = {0};

    (void)kind;
    s->at.mode = SONDE_MODE_EVAL;
    for (int i = 0; i < BATCH; i++) {
        const int n = step * BATCH + i, right = n % 4;

        label[i] = (float)right;
        score[i * CLASSES + (right == 1 && n % 3 == 0 ? 0 : right)] = 1.0F;
    }
    stream_put(s, 0, label);
    stream_put(s, 1, score);
}

/* One class has a hundredth of the labels. */
static void lack(stream *s, int kind, int step)
{
    float label[50];

    (void)kind;
    for (int i = 0; i < 50; i++) {
        label[i] = (float)(i == 0 && step % 2 == 0 ? 3 : i % 3);
    }
    stream_put(s, 0, label);
}

/* --- chosen tensors ------------------------------------------------------------------- */

static void put_row(stream *s, double last)
{
    const float values[8] = {0, 0, 0, 0, 0, 0, 0, (float)last};

    stream_put(s, 0, values);
}

static void zero_from(stream *s, int from, int step)
{
    put_row(s, step < from ? 1.0 : 0.0);
}

/* From step 5 on its deviation is so many hundredths. */
static void spread(stream *s, int hundredths, int step)
{
    stream_put_normal(s, 0, 3.0, step < 5 ? 1.0 : hundredths / 100.0);
}

/* From step 3 on it moves by so many billionths. */
static void move(stream *s, int billionths, int step)
{
    put_row(s, 1.0 + (step < 3 ? step : 3 + 1e-9 * billionths * step));
}

static void what_is_missing_is_said(void **state)
{
    static const char *const bad[] = {"AllZero", "TensorVariance", "AllZero:threshold=5"};
    sonde_rules *rules = NULL;
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(sonde_rules_create(&rules, NULL), SONDE_OK);
    for (size_t i = 0; i < SONDE_COUNT_OF(bad); i++) {
        assert_int_equal(sonde_rules_add(rules, bad[i], &diag), SONDE_EINVAL);
        assert_true(diag.expected[0] != '\0');
    }
    sonde_rules_destroy(rules);
}

#define WEIGHTS "4*weight fc#.weight 6 10"
#define MATRIX "gradient Gradient___fc1.weight 40 5, gradient Gradient___fc2.weight 40 3"
#define VECTOR "gradient Gradient___fc1.weight 40, gradient Gradient___fc2.weight 40 3"
#define STANDING "loss loss, gradient Gradient___fc1.weight 4 5"
#define NUMBERS "loss loss, scalar error"
#define CLASSIFIER "input batch_labels 40, output loss_input_0 40 4"
#define LABELS "input batch_labels 50"
#define BOUNDS "TensorVariance:max_threshold=100,min_threshold=0.01"

static const stream_case cases[] = {
    {"2 % a step", "WeightUpdateRatio", WEIGHTS, grow, 2, STEPS, SILENT, .losing = true},
    {"2 % a step is fast", "WeightUpdateRatio:fast=0.005", WEIGHTS, grow, 2, STEPS, FOUND,
     .losing = true},
    {"60 % a step is large", "WeightUpdateRatio:large_threshold=0.5,small_threshold=1e-9",
     WEIGHTS, grow, 60, STEPS, FOUND, .losing = true},
    {"60 % a step beside a large epsilon",
     "WeightUpdateRatio:large_threshold=0.5,small_threshold=1e-30,epsilon=1e12", WEIGHTS,
     grow, 60, STEPS, SILENT, .losing = true},
    {"a matrix shrinks", "VanishingGradient", MATRIX, shrink, 0, STEPS, FOUND},
    {"a matrix may shrink", "VanishingGradient:relative=1e-15,profile=0", MATRIX, shrink,
     0, STEPS, SILENT},
    {"a bias shrinks", "VanishingGradient", VECTOR, shrink, 0, STEPS, SILENT},
    {"biases count", "VanishingGradient:biases=true", VECTOR, shrink, 0, STEPS, FOUND},
    {"a usual range of gradients", "PoorWeightInitialization", STANDING, stand, 0, STEPS,
     SILENT},
    {"a given range of gradients", "PoorWeightInitialization:distribution_range=0.1",
     STANDING, stand, 0, STEPS, FOUND},
    {"the loss stays", "LossNotDecreasing", NUMBERS, another_falls, 0, 300, FOUND},
    {"what is named falls",
     "LossNotDecreasing:use_losses_collection=false,tensor_regex=error", NUMBERS,
     another_falls, 0, 300, SILENT},
    {"what is named stays",
     "LossNotDecreasing:use_losses_collection=false,tensor_regex=loss", NUMBERS,
     another_falls, 0, 300, FOUND},
    {"confusion", "Confusion", CLASSIFIER, confuse, 0, 100, FOUND},
    {"labels among inputs", "Confusion:labels_collection=inputs", CLASSIFIER, confuse, 0,
     100, FOUND},
    {"labels among weights", "Confusion:labels_collection=weights", CLASSIFIER, confuse,
     0, 100, SILENT},
    {"predictions among outputs", "Confusion:predictions_collection=outputs", CLASSIFIER,
     confuse, 0, 100, FOUND},
    {"predictions among weights", "Confusion:predictions_collection=weights", CLASSIFIER,
     confuse, 0, 100, SILENT},
    {"a class lacks labels", "ClassImbalance", LABELS, lack, 0, STEPS, FOUND},
    {"there are too few labels", "ClassImbalance:per_class=1000", LABELS, lack, 0, STEPS,
     SILENT},
    {"it has to be sure", "ClassImbalance:sure=9", LABELS, lack, 0, STEPS, SILENT},
    {"all are 0", "AllZero:tensor_regex=^mask", "other mask 8", zero_from, 4, 10, FOUND,
     "mask", 4},
    {"most are 0", "AllZero:tensor_regex=^mask,threshold=87.5", "other mask 8", zero_from,
     1, 1, FOUND, "mask", 0},
    {"one is not 0", "AllZero:collection_names=weights", "weight w 8", zero_from, 1, 1},
    {"a variance of 1", BOUNDS, "weight w 30 30", spread, 100, 10},
    {"a variance of 400", BOUNDS, "weight w 30 30", spread, 2000, 10, FOUND, "w", 5},
    {"a variance of 0.0001", BOUNDS, "weight w 30 30", spread, 1, 10, FOUND, "w", 5},
    {"a value moves", "UnchangedTensor", "weight w 8", move, 1000000, 10},
    {"a value stays", "UnchangedTensor", "weight w 8", move, 0, 10, FOUND, "w", 5},
    {"a value all but stays", "UnchangedTensor", "weight w 8", move, 1, 10, FOUND, "w",
     5},
};

int main(void)
{
    const struct CMUnitTest others[] = {cmocka_unit_test(what_is_missing_is_said)};

    return stream_main(cases, SONDE_COUNT_OF(cases), others, SONDE_COUNT_OF(others));
}

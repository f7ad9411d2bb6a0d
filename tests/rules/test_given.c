/*
 * test_given.c - a parameter that a user gives changes what a rule finds: each case is one
 * stream of evidence, judged with the default and with the given value.
 */
#include "rules/stream.h"
#include "base/macros.h"

enum { STEPS = 40 };

/* Finishes; whether the rule found anything. */
static bool fires(stream *s)
{
    bool found = false;

    sonde_rules_finish(s->rules);
    found = stream_count(s) > 0;
    stream_close(s);
    return found;
}

/* --- WeightUpdateRatio -------------------------------------------------------------- */

/* Weights grow by that factor at each step; training goes badly. */
static bool grows(const char *rule, double factor)
{
    enum { LAYERS = 4, N = 60 };
    uint32_t weights[LAYERS];
    stream s;

    stream_open_losing(&s, rule);
    for (int i = 0; i < LAYERS; i++) {
        char name[32];

        (void)snprintf(name, sizeof name, "fc%d.weight", i + 1);
        weights[i] = stream_declare(&s, name, SONDE_ROLE_WEIGHT, 6, 10);
    }
    stream_begin(&s);
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < LAYERS; i++) {
            float values[N];

            for (int k = 0; k < N; k++) {
                values[k] = (float)((0.1 + 0.01 * k) * pow(factor, step));
            }
            stream_put(&s, weights[i], values);
        }
        stream_end(&s);
    }
    return fires(&s);
}

static void update_ratios(void **state)
{
    (void)state;
    assert_false(grows("WeightUpdateRatio", 1.02));
    assert_true(grows("WeightUpdateRatio:fast=0.005", 1.02));
    assert_true(grows("WeightUpdateRatio:large_threshold=0.5,small_threshold=1e-9", 1.6));
    assert_false(grows(
        "WeightUpdateRatio:large_threshold=0.5,small_threshold=1e-30,epsilon=1e12", 1.6));
}

/* --- VanishingGradient -------------------------------------------------------------- */

/* The first gradient, of so many dimensions, shrinks to `to`; the second stays at 1. */
static bool shrinks(const char *rule, int64_t columns, double to)
{
    uint32_t first = 0, second = 0;
    stream s;

    stream_open(&s, rule);
    first = stream_declare(&s, "Gradient___fc1.weight", SONDE_ROLE_GRADIENT, 40, columns);
    second = stream_declare(&s, "Gradient___fc2.weight", SONDE_ROLE_GRADIENT, 40, 3);
    stream_begin(&s);
    for (int step = 0; step < STEPS; step++) {
        stream_put_normal(&s, first, 0.0, step < 10 ? 1.0 : to);
        stream_put_normal(&s, second, 0.0, 1.0);
        stream_end(&s);
    }
    return fires(&s);
}

static void vanishing_gradients(void **state)
{
    (void)state;
    assert_true(shrinks("VanishingGradient", 5, 1e-9));
    assert_false(shrinks("VanishingGradient:relative=1e-15,profile=0", 5, 1e-9));
    assert_false(shrinks("VanishingGradient", 0, 1e-9));
    assert_true(shrinks("VanishingGradient:biases=true", 0, 1e-9));
}

/* --- PoorWeightInitialization ------------------------------------------------------- */

/* The loss does not change, and gradients lie within 0.02 of each other. */
static bool stands(const char *rule)
{
    uint32_t loss = 0, gradient = 0;
    stream s;

    stream_open(&s, rule);
    loss = stream_declare(&s, "loss", SONDE_ROLE_LOSS, 0, 0);
    gradient = stream_declare(&s, "Gradient___fc1.weight", SONDE_ROLE_GRADIENT, 4, 5);
    stream_begin(&s);
    for (int step = 0; step < STEPS; step++) {
        float values[20];

        for (int i = 0; i < 20; i++) {
            values[i] = 0.001F * (float)i;
        }
        stream_put_all(&s, loss, 2.3F);
        stream_put(&s, gradient, values);
        stream_end(&s);
    }
    return fires(&s);
}

static void ranges_of_gradients(void **state)
{
    (void)state;
    assert_false(stands("PoorWeightInitialization"));
    assert_true(stands("PoorWeightInitialization:distribution_range=0.1"));
}

/* --- LossNotDecreasing -------------------------------------------------------------- */

/* The loss stays, another number falls. */
static bool does_not_fall(const char *rule)
{
    uint32_t loss = 0, other = 0;
    stream s;

    stream_open(&s, rule);
    loss = stream_declare(&s, "loss", SONDE_ROLE_LOSS, 0, 0);
    other = stream_declare(&s, "error", SONDE_ROLE_SCALAR, 0, 0);
    stream_begin(&s);
    for (int step = 0; step < 300; step++) {
        stream_put_all(&s, loss, 2.3F);
        stream_put_all(&s, other, 2.3F / (float)(step + 1));
        stream_end(&s);
    }
    return fires(&s);
}

static void losses_or_what_is_named(void **state)
{
    (void)state;
    assert_true(does_not_fall("LossNotDecreasing"));
    assert_false(does_not_fall(
        "LossNotDecreasing:use_losses_collection=false,tensor_regex=error"));
    assert_true(
        does_not_fall("LossNotDecreasing:use_losses_collection=false,tensor_regex=loss"));
}

/* --- ClassImbalance and Confusion --------------------------------------------------- */

/* Every tenth label is of class 3; a third of class 1 are taken for class 0. */
static bool confuses(const char *rule, int steps)
{
    enum { BATCH = 40, CLASSES = 4 };
    uint32_t labels = 0, scores = 0;
    stream s;

    stream_open(&s, rule);
    labels = stream_declare(&s, "batch_labels", SONDE_ROLE_INPUT, BATCH, 0);
    scores = stream_declare(&s, "loss_input_0", SONDE_ROLE_OUTPUT, BATCH, CLASSES);
    s.at.mode = SONDE_MODE_EVAL;
    stream_begin(&s);
    for (int step = 0; step < steps; step++) {
        float label[BATCH], score[BATCH * CLASSES] = {0};

        for (int i = 0; i < BATCH; i++) {
            const int n = step * BATCH + i, right = n % 4;

            label[i] = (float)right;
            score[i * CLASSES + (right == 1 && n % 3 == 0 ? 0 : right)] = 1.0F;
        }
        stream_put(&s, labels, label);
        stream_put(&s, scores, score);
        stream_end(&s);
    }
    return fires(&s);
}

static void collections_of_labels(void **state)
{
    (void)state;
    assert_true(confuses("Confusion", 100));
    assert_true(confuses("Confusion:labels_collection=inputs", 100));
    assert_false(confuses("Confusion:labels_collection=weights", 100));
    assert_true(confuses("Confusion:predictions_collection=outputs", 100));
    assert_false(confuses("Confusion:predictions_collection=weights", 100));
}

/* One class has a hundredth of the labels. */
static bool lacks(const char *rule)
{
    enum { BATCH = 50 };
    uint32_t labels = 0;
    stream s;

    stream_open(&s, rule);
    labels = stream_declare(&s, "batch_labels", SONDE_ROLE_INPUT, BATCH, 0);
    stream_begin(&s);
    for (int step = 0; step < STEPS; step++) {
        float label[BATCH];

        for (int i = 0; i < BATCH; i++) {
            label[i] = (float)(i == 0 && step % 2 == 0 ? 3 : i % 3);
        }
        stream_put(&s, labels, label);
        stream_end(&s);
    }
    return fires(&s);
}

static void labels_of_a_class(void **state)
{
    (void)state;
    assert_true(lacks("ClassImbalance"));
    assert_false(lacks("ClassImbalance:per_class=1000"));
    assert_false(lacks("ClassImbalance:sure=9"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(update_ratios),
        cmocka_unit_test(vanishing_gradients),
        cmocka_unit_test(ranges_of_gradients),
        cmocka_unit_test(losses_or_what_is_named),
        cmocka_unit_test(collections_of_labels),
        cmocka_unit_test(labels_of_a_class),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

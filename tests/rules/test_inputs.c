/*
 * PoorWeightInitialization, and the rules for images, tokens, features and trees.
 */
#include "rules/stream.h"
#include "base/macros.h"

enum { STEPS = 15 };

/* Layers whose activation inputs have these deviations. */
static void run_layers(stream *s, const double *deviation, int layers)
{
    uint32_t ids[8];

    stream_open(s, "PoorWeightInitialization");
    for (int i = 0; i < layers; i++) {
        char name[64];

        (void)snprintf(name, sizeof name, "relu_input_%d", i);
        ids[i] = stream_declare(s, name, SONDE_ROLE_INPUT, 16, 20);
    }
    stream_begin(s);
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < layers; i++) {
            stream_put_normal(s, ids[i], 0.1, deviation[i]);
        }
        stream_end(s);
    }
}

static void variances_that_grow_or_die_are_found(void **state)
{
    static const double pytorch[] = {0.58, 0.24, 0.1, 0.04}, large[] = {1, 2, 12, 30};
    static const double quiet[] = {0.2, 0.1, 1, 1};
    static const double dying[] = {1, 0.7, 0.03, 0.02};
    stream s;

    (void)state;
    run_layers(&s, pytorch, 4);
    stream_expect_clean(&s);
    stream_close(&s);
    run_layers(&s, quiet, 4); /* grows, but to what is usual */
    stream_expect_clean(&s);
    stream_close(&s);
    run_layers(&s, large, 4);
    (void)stream_expect(&s, "relu_input_2", 1);
    stream_close(&s);
    run_layers(&s, dying, 4);
    (void)stream_expect(&s, "relu_input_2", 9);
    stream_close(&s);
}

/* Activations known by the op of their module, and seen at every other step only: steps
 * between have but a loss, and say nothing of layers. */
static void steps_without_activations_do_not_count(void **state)
{
    static const double deviation[] = {1, 1, 0.01};
    uint32_t ids[3], loss = 0;
    stream s;

    (void)state;
    stream_open(&s, "PoorWeightInitialization");
    for (int i = 0; i < 3; i++) {
        char module[16], name[32];

        (void)snprintf(module, sizeof module, "act%d", i);
        s.module = module;
        s.op = "Relu";
        (void)snprintf(name, sizeof name, "act%d_output_0", i);
        (void)stream_declare(&s, name, SONDE_ROLE_OUTPUT, 16, 20);
        s.op = NULL;
        (void)snprintf(name, sizeof name, "act%d_input_0", i);
        ids[i] = stream_declare(&s, name, SONDE_ROLE_INPUT, 16, 20);
    }
    s.module = NULL;
    loss = stream_declare(&s, "loss_output_0", SONDE_ROLE_LOSS, 0, 0);
    stream_begin(&s);
    for (int step = 0; step < 2 * STEPS; step++) {
        for (int i = 0; i < 3 && step % 2 == 1; i++) {
            stream_put_normal(&s, ids[i], 0.1, deviation[i]);
        }
        stream_put_all(&s, loss, 2.3F - 1e-3F * (float)step);
        stream_end(&s);
    }
    (void)stream_expect(&s, "act2_input_0", 29); /* at the end: the loss did not fall */
    stream_close(&s);
}

static void a_loss_that_stands_still_is_found(void **state)
{
    (void)state;
    for (int bad = 0; bad < 2; bad++) {
        stream s;
        uint32_t loss = 0, gradient = 0, input = 0;

        stream_open(&s, "PoorWeightInitialization");
        loss = stream_declare(&s, "loss_output_0", SONDE_ROLE_LOSS, 0, 0);
        gradient = stream_declare(&s, "Gradient___w", SONDE_ROLE_GRADIENT, 5, 5);
        input = stream_declare(&s, "relu_input_0", SONDE_ROLE_INPUT, 5, 5);
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            stream_put_all(&s, loss, bad ? 2.3026F : 2.3F - 0.01F * (float)step);
            stream_put_normal(&s, gradient, 0.0, 1e-6);
            stream_put_normal(&s, input, 0.0, 1.0);
            stream_end(&s);
        }
        if (bad) {
            (void)stream_expect(&s, "loss_output_0", 5);
        } else {
            stream_expect_clean(&s);
        }
        stream_close(&s);
    }
}

/* A loss of spikes: the same number until units fire. */
static void a_loss_that_begins_late_is_let_be(void **state)
{
    (void)state;
    for (int dead = 0; dead < 2; dead++) {
        stream s;
        uint32_t loss = 0, gradient = 0, input = 0;

        stream_open(&s, "PoorWeightInitialization");
        loss = stream_declare(&s, "loss", SONDE_ROLE_LOSS, 0, 0);
        gradient = stream_declare(&s, "gradient/w", SONDE_ROLE_GRADIENT, 5, 5);
        input = stream_declare(&s, "relu_input_0", SONDE_ROLE_INPUT, 5, 5);
        stream_begin(&s);
        for (int step = 0; step < 60; step++) {
            stream_put_all(&s, loss,
                           dead || step < 8 ? 0.1F : 0.1F - 0.001F * (float)(step - 7));
            stream_put_normal(&s, gradient, 0.0, 1e-6);
            stream_put_normal(&s, input, 0.0, 1.0);
            stream_end(&s);
        }
        if (dead) {
            assert_int_equal(stream_expect(&s, "loss", 5).severity, SONDE_SEVERITY_ERROR);
        } else {
            stream_expect_clean(&s);
        }
        stream_close(&s);
    }
}

static void images_are_to_be_centred(void **state)
{
    (void)state;
    for (int bad = 0; bad < 2; bad++) {
        stream s;
        uint32_t id = 0;

        stream_open(&s, "CheckInputImages");
        id = stream_declare(&s, "input", SONDE_ROLE_INPUT, 50,
                            3); /* one pixel, 3 channels */
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            float values[150];

            for (int i = 0; i < 150; i++) {
                values[i] = 0.5F * stream_normal(&s) + (bad && i % 3 == 2 ? 0.4F : 0.0F);
            }
            stream_put(&s, id, values);
            stream_end(&s);
        }
        if (bad) {
            assert_non_null(strstr(stream_expect(&s, "input", 9).message, "channel 2"));
        } else {
            stream_expect_clean(&s);
        }
        stream_close(&s);
    }
}

static void run_values(stream *s, const char *rule, const char *name, const float *values)
{
    uint32_t id = 0;

    stream_open(s, rule);
    id = stream_declare(s, name, SONDE_ROLE_OTHER, 10, 0);
    stream_begin(s);
    stream_put(s, id, values);
    stream_end(s);
}

static void tokens_features_and_trees_are_counted(void **state)
{
    static const float few[] = {1, 2, 0, 4, 0, 6, 7, 8, 9, 0};
    static const float many[] = {1, 2, 0, 4, 0, 0, 0, 0, 9, 0};
    static const float even[] = {1, 2, 1, 2, 1, 2, 1, 2, 1, 2};
    static const float top[] = {50, 2, 1, 60, 1, 2, 1, 2, 1, 40};
    static const float nodes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 15};
    static const struct {
        const char *rule, *name;
        const float *values;
        bool bad;
    } cases[] = {
        {"NLPSequenceRatio", "embedding0_input_0", few, false},
        {"NLPSequenceRatio", "embedding0_input_0", many, true},
        {"NLPSequenceRatio:token_values=7\\,9,token_thresholds_percent=50\\,9",
         "embedding0_input_0", few, true},
        {"FeatureImportanceOverweight", "feature_importance/weight", even, false},
        {"FeatureImportanceOverweight", "feature_importance/weight", top, true},
        {"FeatureImportanceOverweight:nfeatures=2", "feature_importance/weight", top,
         false},
        {"FeatureImportanceOverweight:threshold=0.3", "feature_importance/weight", even,
         true},
        {"TreeDepth", "trees/Node", few, false},
        {"TreeDepth", "trees/Node", nodes, true},
        {"TreeDepth:depth=3", "trees/Node", few, true},
        {"TreeDepth:depth=5", "trees/Node", nodes, false},
    };

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(cases); i++) {
        stream s;

        run_values(&s, cases[i].rule, cases[i].name, cases[i].values);
        if (cases[i].bad) {
            (void)stream_expect(&s, cases[i].name, 0);
        } else {
            stream_expect_clean(&s);
        }
        stream_close(&s);
    }
}

/* smdebug writes a scalar for each feature of boosted trees. */
static void scalars_of_features_are_one_tensor(void **state)
{
    static const float even[] = {3, 4, 3, 4, 3, 4}, top[] = {90, 80, 70, 1, 2, 1};
    stream s;
    uint32_t ids[6] = {0};

    (void)state;
    for (int bad = 0; bad < 2; bad++) {
        stream_open(&s, "FeatureImportanceOverweight");
        for (int i = 0; i < 6; i++) {
            char name[64];

            (void)snprintf(name, sizeof name, "feature_importance/weight/f%d", i);
            ids[i] = stream_declare(&s, name, SONDE_ROLE_OTHER, 0, 0);
        }
        stream_begin(&s);
        for (int step = 0; step < 3; step++) {
            for (int i = 0; i < 6; i++) {
                stream_put_all(&s, ids[i], bad ? top[i] : even[i]);
            }
            stream_end(&s);
        }
        if (bad) {
            assert_int_equal(stream_expect(&s, "feature_importance/weight/f0", 0).steps,
                             3);
        } else {
            stream_expect_clean(&s);
        }
        stream_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scalars_of_features_are_one_tensor),
        cmocka_unit_test(variances_that_grow_or_die_are_found),
        cmocka_unit_test(steps_without_activations_do_not_count),
        cmocka_unit_test(a_loss_that_stands_still_is_found),
        cmocka_unit_test(a_loss_that_begins_late_is_let_be),
        cmocka_unit_test(images_are_to_be_centred),
        cmocka_unit_test(tokens_features_and_trees_are_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * DeadRelu and SaturatedActivation on layers by hand.
 */
#include "rules/stream.h"
#include "base/macros.h"
#include "base/random.h"

enum { BATCH = 32, UNITS = 20, STEPS = 20 };

/* Units below `dead` give 0 from step 5 on; the others now and then. */
static void run_relu(stream *s, int dead, double sparse, bool walking)
{
    uint32_t id = 0, gradient = 0;

    stream_open(s, "DeadRelu");
    id = stream_declare(s, "relu_output_0", SONDE_ROLE_OUTPUT, BATCH, UNITS);
    gradient = stream_declare(s, "Gradient___relu_output_0", SONDE_ROLE_GRADIENT, 4, 0);
    stream_begin(s);
    for (int step = 0; step < STEPS; step++) {
        float values[BATCH * UNITS];

        for (int i = 0; i < BATCH * UNITS; i++) {
            const int unit = walking ? (i + step * 7) % UNITS : i % UNITS;
            const bool zero = (unit < dead && step >= 5) ||
                              (double)sonde__uniform(5, 6, s->draws++) < sparse;

            values[i] = zero ? 0.0F : fabsf(stream_normal(s)) + 0.01F;
        }
        stream_put(s, id, values);
        stream_put_all(s, gradient, 0.0F);
        stream_end(s);
    }
}

static void dead_units_are_found_after_the_patience(void **state)
{
    stream s;
    sonde_finding found;

    (void)state;
    run_relu(&s, 15, 0.3, false);
    found = stream_expect(&s, "relu_output_0", 7);
    assert_true(found.value > 74.9 && found.value < 75.1);
    stream_close(&s);
}

static void sparse_layers_are_fine(void **state)
{
    stream s;

    (void)state;
    run_relu(&s, 9, 0.5, false); /* less than half of the layer */
    stream_expect_clean(&s);
    stream_close(&s);
    run_relu(&s, 0, 0.95, false); /* very sparse */
    stream_expect_clean(&s);
    stream_close(&s);
    run_relu(&s, 11, 0.2, true); /* others in each step */
    stream_expect_clean(&s);
    stream_close(&s);
}

/* Vital signs tell that most layers live; at the limit, units are counted. */
static void half_of_a_layer_is_the_limit(void **state)
{
    (void)state;
    for (int dead = 8; dead <= 12; dead++) {
        stream s;

        run_relu(&s, dead, 0.0, false);
        if (dead > UNITS / 2) {
            (void)stream_expect(&s, "relu_output_0", 7);
        } else {
            stream_expect_clean(&s);
        }
        stream_close(&s);
    }
}

static void saturated_units_are_found(void **state)
{
    static const double scales[] = {1.0, 3000.0, 8.0};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(scales); i++) {
        stream s;
        uint32_t id = 0;

        stream_open(&s, "SaturatedActivation");
        id = stream_declare(&s, "tanh_input_0", SONDE_ROLE_INPUT, BATCH, UNITS);
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            stream_put_normal(&s, id, 0.0, step >= 5 ? scales[i] : 1.0);
            stream_end(&s);
        }
        if (i == 1) {
            (void)stream_expect(&s, "tanh_input_0", 7);
        } else {
            stream_expect_clean(&s);
        }
        stream_close(&s);
    }
}

/* Of a module with a name of its own, whose output's op says what it is. */
static void inputs_are_known_by_the_op_of_their_module(void **state)
{
    static const char *const ops[] = {"Tanh", "Sigmoid", "Add"};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(ops); i++) {
        stream s;
        uint32_t id = 0;

        stream_open(&s, "SaturatedActivation");
        s.module = "act";
        s.op = ops[i];
        (void)stream_declare(&s, "act_output_0", SONDE_ROLE_OUTPUT, BATCH, UNITS);
        s.op = NULL;
        id = stream_declare(&s, "act_input_0", SONDE_ROLE_INPUT, BATCH, UNITS);
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            stream_put_all(&s, id, 14.0F); /* far out for tanh, not for a sigmoid */
            stream_end(&s);
        }
        if (i == 0) {
            (void)stream_expect(&s, "act_input_0", 2);
        } else if (i == 1) {
            stream_expect_clean(&s);
        } else {
            sonde_rules_finish(s.rules);
            assert_int_equal(stream_count(&s), 0);
        }
        stream_close(&s);
    }
}

static void ranges_of_inputs_are_the_given_ones(void **state)
{
    static const struct {
        const char *rule, *name;
        float value;
        bool bad;
    } cases[] = {
        {"SaturatedActivation", "tanh_input_0", 14.0F, true},
        {"SaturatedActivation:threshold_tanh_max=15", "tanh_input_0", 14.0F, false},
        {"SaturatedActivation:threshold_tanh_min=-3", "tanh_input_0", -4.0F, true},
        {"SaturatedActivation:threshold_sigmoid_max=13", "sigmoid_input_0", 14.0F, true},
        {"SaturatedActivation", "sigmoid_input_0", -14.0F, false},
        {"SaturatedActivation:threshold_sigmoid_min=-13", "sigmoid_input_0", -14.0F,
         true},
        {"SaturatedActivation:threshold_layer=100", "tanh_input_0", 14.0F, false},
    };

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(cases); i++) {
        stream s;
        uint32_t id = 0;

        stream_open(&s, cases[i].rule);
        id = stream_declare(&s, cases[i].name, SONDE_ROLE_INPUT, BATCH, UNITS);
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            stream_put_all(&s, id, cases[i].value);
            stream_end(&s);
        }
        if (cases[i].bad) {
            (void)stream_expect(&s, cases[i].name, 2);
        } else {
            stream_expect_clean(&s);
        }
        stream_close(&s);
    }
}

/* Outputs of tanh at both ends; of a sigmoid, at both or at one. */
static void flat_outputs_are_found(void **state)
{
    static const struct {
        const char *name;
        float low, high, noise;
        bool bad;
    } cases[] = {{"tanh2_output_0", -1.0F, 1.0F, 0.005F, true},
                 {"tanh2_output_0", -0.9F, 0.9F, 0.02F, false},
                 {"sigmoid_output_0", 0.0F, 1.0F, 0.002F, true},
                 {"sigmoid_output_0", 0.0F, 0.0F, 0.002F, false}};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(cases); i++) {
        stream s;
        uint32_t id = 0, input = 0;

        stream_open(&s, "SaturatedActivation");
        input = stream_declare(&s, "tanh_input_0", SONDE_ROLE_INPUT, BATCH, UNITS);
        id = stream_declare(&s, cases[i].name, SONDE_ROLE_OUTPUT, BATCH, UNITS);
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            float values[BATCH * UNITS];

            for (int k = 0; k < BATCH * UNITS; k++) {
                const float end = k % 3 == 0 ? cases[i].low : cases[i].high;

                values[k] = end * (1.0F - cases[i].noise * fabsf(stream_normal(&s))) +
                            (end > 0.0F ? 0.0F : 0.001F);
            }
            stream_put(&s, id, values);
            stream_put_normal(&s, input, 0.0, 1.0);
            stream_end(&s);
        }
        if (cases[i].bad) {
            (void)stream_expect(&s, cases[i].name, 2);
        } else {
            stream_expect_clean(&s);
        }
        stream_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dead_units_are_found_after_the_patience),
        cmocka_unit_test(sparse_layers_are_fine),
        cmocka_unit_test(half_of_a_layer_is_the_limit),
        cmocka_unit_test(saturated_units_are_found),
        cmocka_unit_test(ranges_of_inputs_are_the_given_ones),
        cmocka_unit_test(inputs_are_known_by_the_op_of_their_module),
        cmocka_unit_test(flat_outputs_are_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

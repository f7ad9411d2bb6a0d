/*
 * test_session_trap.c - floating-point exceptions name the op, the tensor and the element;
 * durations of calls are counted.
 */
#include "engine.h"

#include <math.h>

/* exp(x) of a linear layer, trained by its mean. */
static sonde_nn_model *exponential(void)
{
    sonde_nn_model *model = NULL;
    sonde_nn_value x = 0;

    must(sonde_nn_model_create(&model, &engine_diag));
    x = sonde_nn_input(model, SONDE_F32, 2, (int64_t[]){2, 3});
    x = sonde_nn_linear(model, "fc", x,
                        SONDE_OPTIONS(sonde_nn_linear, .out_features = 2));
    x = sonde_nn_layer(model, "exp", "exp", &x, 1, NULL, 0);
    sonde_nn_loss(model, engine_reduce(model, "mean", "loss", x, NULL, 0, false));
    must(sonde_nn_model_status(model, &engine_diag));
    for (int i = 0; i < 6; i++) {
        engine_parameter(model, "fc.weight", NULL)[i] = i == 5 ? 1.0F : 0.0F;
    }
    engine_parameter(model, "fc.bias", NULL)[0] = 0.0F;
    engine_parameter(model, "fc.bias", NULL)[1] = 0.0F;
    return model;
}

static sonde_nn_session *open_trapping(sonde_nn_model *model, int accumulation)
{
    const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.0F, 0.0F);
    sonde_nn_session *session = NULL;
    sonde_nn_options options;

    sonde_nn_options_init(&options);
    options.floating_point_exceptions = true;
    options.gradient_accumulation = accumulation;
    must(sonde_nn_session_create(model, &options, &sgd, &session, &engine_diag));
    return session;
}

static sonde_err run_with(sonde_nn_session *session, int samples, int at, float value)
{
    float x[12] = {0};
    const sonde_view view = sonde_view_of(SONDE_F32, 2, (int64_t[]){samples, 3}, x);

    x[at] = value;
    memset(&engine_diag, 0, sizeof engine_diag);
    return sonde_nn_session_run(session, &view, 1, &engine_diag);
}

/* Step 0 is well; in step 1 the second micro-batch overflows in exp, in its second sample's
 * second unit. A call after that is well again: no number was stored. */
static void the_first_op_that_makes_an_infinity_is_named(void **state)
{
    sonde_nn_model *model = exponential();
    sonde_nn_session *session = open_trapping(model, 2);
    engine_sink sink;

    (void)state;
    engine_sink_init(&sink, true);
    engine_tap_all(session, SONDE_HOW_RAW, &sink);
    assert_int_equal(run_with(session, 4, 11, 80.0F), SONDE_OK);
    assert_int_equal(run_with(session, 4, 11, 100.0F), SONDE_ERANGE);
    expect_line(
        "exp_output_0: Exp in exp makes inf at element 3 of 4, step 1, micro-batch "
        "1, replica 0 (expected finite numbers)");
    assert_int_equal(run_with(session, 4, 11, 1.0F), SONDE_OK);
    assert_int_equal(sonde_nn_session_step(session), 2);
    sonde_nn_session_destroy(session);
    engine_sink_fini(&sink);
    sonde_nn_model_destroy(model);
}

/* A NaN of the caller's is the input's; one in a parameter is the parameter's. */
static void numbers_that_were_bad_before_are_named(void **state)
{
    sonde_nn_model *model = exponential();
    sonde_nn_session *session = open_trapping(model, 1);

    (void)state;
    assert_int_equal(run_with(session, 2, 4, NAN), SONDE_ERANGE);
    expect_line("input: Linear in fc reads nan at element 4 of 6, step 0, micro-batch 0, "
                "replica 0 (expected finite numbers)");
    engine_parameter(model, "fc.bias", NULL)[1] = -INFINITY;
    assert_int_equal(run_with(session, 2, 4, 1.0F), SONDE_ERANGE);
    expect_line(
        "fc.bias: Linear in fc reads -inf at element 1 of 2, step 0, micro-batch 0, "
        "replica 0 (expected finite numbers)");
    sonde_nn_session_destroy(session);
    sonde_nn_model_destroy(model);
}

/* Without findings the weights are those without the option, with every fusion undone. */
static void the_option_changes_no_bit(void **state)
{
    float *weights[2] = {NULL, NULL};

    (void)state;
    for (int i = 0; i < 2; i++) {
        const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.05F, 0.9F);
        engine_net net;
        sonde_nn_session *session = NULL;
        sonde_nn_options options;

        engine_cnn(&net, 5);
        sonde_nn_options_init(&options);
        options.floating_point_exceptions = i == 1;
        must(sonde_nn_session_create(net.model, &options, &sgd, &session, &engine_diag));
        for (uint64_t t = 0; t < 4; t++) {
            engine_train(&net, session, t);
        }
        weights[i] = engine_weights(net.model);
        if (i == 1) {
            assert_same_bits(weights[0], weights[1], engine_weight_count(net.model));
        }
        sonde_nn_session_destroy(session);
        engine_net_fini(&net);
    }
    free(weights[0]);
    free(weights[1]);
}

static void durations_of_calls_are_counted(void **state)
{
    sonde_nn_model *model = exponential();
    sonde_nn_session *session = open_trapping(model, 1);
    sonde_nn_session_info info;

    (void)state;
    must(sonde_nn_session_compile(session, &engine_diag));
    must(sonde_nn_session_describe(session, &info, &engine_diag));
    assert_true(info.latency.calls == 0 && info.latency.maximum == 0.0);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(run_with(session, 2, 0, 1.0F), SONDE_OK);
    }
    must(sonde_nn_session_describe(session, &info, &engine_diag));
    assert_int_equal(info.latency.calls, 100);
    assert_true(info.latency.minimum > 0.0 &&
                info.latency.minimum <= info.latency.median);
    assert_true(info.latency.median <= info.latency.p90 &&
                info.latency.p90 <= info.latency.p99);
    assert_true(info.latency.p99 <= info.latency.maximum);
    assert_true(info.latency.mean >= info.latency.minimum &&
                info.latency.mean <= info.latency.maximum);
    sonde_nn_session_destroy(session);
    sonde_nn_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_op_that_makes_an_infinity_is_named),
        cmocka_unit_test(numbers_that_were_bad_before_are_named),
        cmocka_unit_test(the_option_changes_no_bit),
        cmocka_unit_test(durations_of_calls_are_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

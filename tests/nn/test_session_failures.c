/*
 * test_session_failures.c - memory that runs out at any point of building, compiling or
 * reading a job: SONDE_ENOMEM, no crash, no leak.
 */
#include "alloc_failure.h"
#include "engine.h"

#include <sonde/nn/job.h>

static engine_net net;

/* A model of every layer; its status, when all is done. */
static sonde_err build_model(sonde_nn_model **out)
{
    const int64_t shape[4] = {2, 2, 6, 6};
    sonde_nn_model *m = NULL;
    sonde_nn_value x = 0, target = 0;
    sonde_err err = sonde_nn_model_create(&m, NULL);

    if (err != SONDE_OK) {
        return err;
    }
    x = sonde_nn_input(m, SONDE_F32, 4, shape);
    target = sonde_nn_input(m, SONDE_I64, 1, shape);
    sonde_nn_scope_push(m, "block");
    x = sonde_nn_conv2d(
        m, "conv", x,
        SONDE_OPTIONS(sonde_nn_conv2d, .out_channels = 4, .kernel_size = {3}));
    x = sonde_nn_group_norm(m, "norm", x,
                            SONDE_OPTIONS(sonde_nn_group_norm, .num_groups = 2));
    x = sonde_nn_add(m, "sum", x, sonde_nn_relu(m, NULL, x));
    sonde_nn_scope_pop(m);
    x = sonde_nn_print(m, x, "seen", true, NULL);
    x = sonde_nn_max_pool2d(m, "pool", x,
                            SONDE_OPTIONS(sonde_nn_pool2d, .kernel_size = {2, 2}));
    x = sonde_nn_flatten(m, NULL, x, 1);
    x = sonde_nn_linear(m, "fc", x, SONDE_OPTIONS(sonde_nn_linear, .out_features = 3));
    sonde_nn_output(m, x);
    sonde_nn_loss(m, sonde_nn_cross_entropy(m, "loss", x, target, NULL));
    err = sonde_nn_model_status(m, NULL);
    if (err != SONDE_OK) {
        sonde_nn_model_destroy(m);
        return err;
    }
    *out = m;
    return SONDE_OK;
}

static void building_survives_want_of_memory(void **state)
{
    size_t n = 0;

    (void)state;
    for (;; n++) {
        sonde_nn_model *model = NULL;
        sonde_err err = SONDE_OK;

        alloc_failure_begin(n);
        err = build_model(&model);
        sonde_nn_model_destroy(model);
        assert_int_equal(alloc_failure_end(), 0);
        if (err == SONDE_OK) {
            break;
        }
        assert_int_equal(err, SONDE_ENOMEM);
        assert_null(model);
    }
    assert_in_range(n, 20, 1000);
}

/* A session with anchors, taps and all that compile makes; then destroyed. */
static sonde_err compile_session(bool training, sonde_sink *sink)
{
    const sonde_schedule some = {.steps = (const int64_t[]){1, 5}, .step_count = 2};
    const sonde_nn_optimizer adam = sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.1F);
    sonde_nn_session *session = NULL;
    sonde_nn_options options;
    sonde_err err = SONDE_OK;

    sonde_nn_options_init(&options);
    options.gradient_accumulation = training ? 2 : 1;
    options.threads = 2;
    err = training ? sonde_nn_session_create(net.model, &options, &adam, &session, NULL)
                   : sonde_nn_session_create(net.model, &options, NULL, &session, NULL);
    if (err == SONDE_OK) {
        err = sonde_nn_session_anchor(session, "a", "fc2.bias", SONDE_ANCHOR_FINAL, 1,
                                      NULL);
    }
    if (err == SONDE_OK) {
        err = sonde_nn_session_tap(session, "*", &some, SONDE_HOW_RAW | SONDE_HOW_SKETCH,
                                   sink, NULL);
    }
    if (err == SONDE_OK) {
        err = sonde_nn_session_compile(session, NULL);
    }
    sonde_nn_session_destroy(session);
    return err;
}

static void compiling_survives_want_of_memory(void **state)
{
    (void)state;
    engine_cnn(&net, 3);
    for (int training = 0; training < 2; training++) {
        size_t n = 0;

        for (;; n++) {
            engine_sink sink;
            sonde_err err = SONDE_OK;

            engine_sink_init(&sink, true);
            alloc_failure_begin(n);
            err = compile_session(training == 1, &sink.sink);
            assert_int_equal(alloc_failure_end(), 0);
            if (err == SONDE_OK) {
                break;
            }
            assert_int_equal(err, SONDE_ENOMEM);
        }
        assert_in_range(n, 50, 20000);
    }
    engine_net_fini(&net);
}

/* What failed for want of memory can be compiled again when there is some. */
static void a_session_that_failed_compiles_later(void **state)
{
    (void)state;
    engine_mlp(&net, 3);
    for (size_t n = 0; n < 200; n += 7) {
        sonde_nn_session *session = NULL;

        alloc_failure_begin(SIZE_MAX);
        must(sonde_nn_session_create(net.model, NULL, &engine_sgd, &session,
                                     &engine_diag));
        must(sonde_nn_session_anchor(session, "a", "fc2.bias", SONDE_ANCHOR_FINAL, 1,
                                     &engine_diag));
        alloc_failure_left = n;
        expect_err(SONDE_ENOMEM, sonde_nn_session_compile(session, &engine_diag));
        alloc_failure_left = SIZE_MAX;
        engine_train(&net, session, 1);
        sonde_nn_session_destroy(session);
        assert_int_equal(alloc_failure_end(), 0);
    }
    engine_net_fini(&net);
}

static void reading_a_job_survives_want_of_memory(void **state)
{
    static const char text[] = "model:\n"
                               "  input: [4]\n"
                               "  layers:\n"
                               "    - linear: {name: a, out_features: 3}\n"
                               "    - relu: {name: b}\n"
                               "    - add: {from: [a, b]}\n"
                               "  loss: {cross_entropy: {name: loss}}\n"
                               "optimizer: {kind: adam, learning_rate: 0.1}\n"
                               "options: {epochs: 2}\n"
                               "observe: [{tensors: a.weight, every: 3}]\n";
    size_t n = 0;

    (void)state;
    for (;; n++) {
        sonde_nn_job *job = NULL;
        sonde_err err = SONDE_OK;

        alloc_failure_begin(n);
        err = sonde_nn_job_parse(text, sizeof text - 1, "job", &job, NULL);
        sonde_nn_job_destroy(job);
        assert_int_equal(alloc_failure_end(), 0);
        if (err == SONDE_OK) {
            break;
        }
        assert_int_equal(err, SONDE_ENOMEM);
        assert_null(job);
    }
    assert_in_range(n, 50, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(building_survives_want_of_memory),
        cmocka_unit_test(compiling_survives_want_of_memory),
        cmocka_unit_test(a_session_that_failed_compiles_later),
        cmocka_unit_test(reading_a_job_survives_want_of_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

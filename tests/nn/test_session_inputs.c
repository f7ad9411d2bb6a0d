/*
 * test_session_inputs.c - what is refused of a call's inputs and of a session's options,
 * and that nothing has run then.
 */
#include "engine.h"

/* A training session of D = 2 and G = 2 on micro-batches of 3, and a good batch for it.
 */
typedef struct fixture {
    engine_net net;
    engine_batch batch;
    sonde_nn_session *session;
    float *weights;
} fixture;

static int set_up(void **state)
{
    static fixture f;
    sonde_nn_options options;

    engine_cnn(&f.net, 3);
    sonde_nn_options_init(&options);
    options.device_iterations = 2;
    options.gradient_accumulation = 2;
    must(sonde_nn_session_create(f.net.model, &options, &engine_sgd, &f.session,
                                 &engine_diag));
    engine_batch_init(&f.batch, &f.net, 12, 1);
    must(sonde_nn_session_run(f.session, f.batch.views, 2, &engine_diag));
    f.weights = engine_weights(f.net.model);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;

    sonde_nn_session_destroy(f->session);
    engine_batch_fini(&f->batch);
    engine_net_fini(&f->net);
    free(f->weights);
    return 0;
}

/* Nothing has run since set_up. */
static void expect_untouched(const fixture *f)
{
    float *now = engine_weights(f->net.model);

    assert_same_bits(now, f->weights, engine_weight_count(f->net.model));
    assert_int_equal(sonde_nn_session_step(f->session), 2);
    free(now);
}

static void refuse(const fixture *f, size_t count, sonde_err err, const char *want,
                   int line)
{
    expect_err(err,
               sonde_nn_session_run(f->session, f->batch.views, count, &engine_diag));
    engine_expect_line(want, __FILE__, line);
    expect_untouched(f);
}
#define refused(f, count, err, want) refuse(f, count, err, want, __LINE__)

static void a_wrong_count_is_refused(void **state)
{
    fixture *f = *state;

    refused(f, 1, SONDE_EINVAL,
            "inputs: number of inputs mismatch: expected 2 but got 1");
    refused(f, 0, SONDE_EINVAL,
            "inputs: number of inputs mismatch: expected 2 but got 0");
    refused(f, 3, SONDE_EINVAL,
            "inputs: number of inputs mismatch: expected 2 but got 3");
}

static void a_wrong_shape_is_refused(void **state)
{
    fixture *f = *state;

    f->batch.views[0].shape[0] = 11;
    refused(f, 2, SONDE_ESHAPE,
            "input: shape mismatch: got (11, 1, 12, 12) (expected (12, 1, 12, 12): "
            "batch_size 3 of device_iterations 2, gradient_accumulation 2, replicas 1)");
    f->batch.views[0].shape[0] = 12;
    f->batch.views[0] =
        sonde_view_of(SONDE_F32, 3, (const int64_t[]){12, 12, 12}, f->batch.samples);
    refused(f, 2, SONDE_ESHAPE,
            "input: shape mismatch: got (12, 12, 12) (expected (12, 1, 12, 12))");
    f->batch.views[0] =
        sonde_view_of(SONDE_F32, 4, (const int64_t[]){12, 1, 12, 12}, f->batch.samples);
    f->batch.views[1] =
        sonde_view_of(SONDE_I64, 1, (const int64_t[]){3}, f->batch.targets);
    refused(f, 2, SONDE_ESHAPE,
            "input/1: shape mismatch: got (3) (expected (12): batch_size 3 of "
            "device_iterations 2, gradient_accumulation 2, replicas 1)");
    f->batch.views[1] = sonde_view_of(SONDE_I64, 0, NULL, f->batch.targets);
    refused(f, 2, SONDE_ESHAPE, "input/1: shape mismatch: got () (expected (12))");
}

static void a_wrong_dtype_is_refused(void **state)
{
    fixture *f = *state;

    f->batch.views[0].dtype = SONDE_F64;
    refused(f, 2, SONDE_EDTYPE, "input: dtype mismatch: got float64 (expected float32)");
    f->batch.views[0].dtype = SONDE_F32;
    f->batch.views[1].dtype = SONDE_I32;
    refused(f, 2, SONDE_EDTYPE, "input/1: dtype mismatch: got int32 (expected int64)");
}

static void a_view_with_gaps_is_refused(void **state)
{
    fixture *f = *state;

    f->batch.views[0].stride[3] = 2;
    refused(f, 2, SONDE_EINVAL,
            "input: the view has gaps or another order (expected a contiguous tensor)");
    f->batch.views[0].stride[3] = 1;
    f->batch.views[1].stride[0] = -1;
    refused(f, 2, SONDE_EINVAL,
            "input/1: the view has gaps or another order (expected a contiguous tensor)");
}

static void a_label_outside_its_classes_is_refused(void **state)
{
    fixture *f = *state;

    f->batch.targets[11] = 5;
    refused(f, 2, SONDE_ERANGE, "input/1: label 11 is 5 (expected 0 to 4)");
    f->batch.targets[4] = -1;
    refused(f, 2, SONDE_ERANGE, "input/1: label 4 is -1 (expected 0 to 4)");
    f->batch.targets[4] = f->batch.targets[11] = 0;
    f->batch.targets[0] = INT64_MAX;
    refused(f, 2, SONDE_ERANGE,
            "input/1: label 0 is 9223372036854775807 (expected 0 to 4)");
    f->batch.targets[0] = 4;
    must(sonde_nn_session_run(f->session, f->batch.views, 2,
                              &engine_diag)); /* and is well */
    assert_int_equal(sonde_nn_session_step(f->session), 4);
}

/* The label of a loss that looks at its target through a view. */
static void a_label_seen_through_a_view_is_checked(void **state)
{
    const int64_t shape[2] = {2, 2}, column[2] = {2, 1};
    float logits[4] = {1, 2, 3, 4};
    int64_t labels[2] = {1, 2};
    const sonde_view inputs[2] = {sonde_view_of(SONDE_F32, 2, shape, logits),
                                  sonde_view_of(SONDE_I64, 2, column, labels)};
    sonde_nn_model *model = NULL;
    sonde_nn_session *session = NULL;
    sonde_nn_value x = 0, target = 0;

    (void)state;
    must(sonde_nn_model_create(&model, &engine_diag));
    x = sonde_nn_input(model, SONDE_F32, 2, shape);
    target = sonde_nn_input(model, SONDE_I64, 2, column);
    x = sonde_nn_linear(model, "fc", x,
                        SONDE_OPTIONS(sonde_nn_linear, .out_features = 2));
    target = sonde_nn_reshape(model, NULL, target, 1, (const int64_t[]){-1});
    sonde_nn_loss(model, sonde_nn_cross_entropy(model, "loss", x, target, NULL));
    must(sonde_nn_session_create(model, NULL, &engine_sgd, &session, &engine_diag));
    expect_err(SONDE_ERANGE, sonde_nn_session_run(session, inputs, 2, &engine_diag));
    expect_line("input/1: label 1 is 2 (expected 0 to 1)");
    labels[1] = 0;
    must(sonde_nn_session_run(session, inputs, 2, &engine_diag));
    sonde_nn_session_destroy(session);
    sonde_nn_model_destroy(model);
}

/* --- options ------------------------------------------------------------------------ */

static void options_are_frozen_by_compile(void **state)
{
    fixture *f = *state;
    const sonde_schedule always = sonde_schedule_every(1);
    sonde_nn_options options;
    engine_sink sink;

    sonde_nn_options_init(&options);
    engine_sink_init(&sink, true);
    expect_err(SONDE_ESTATE,
               sonde_nn_session_set(f->session,
                                    SONDE_OPTIONS(sonde_nn_session, .options = &options),
                                    &engine_diag));
    expect_line("options: the session is compiled and its options are frozen (expected "
                "it before compile)");
    expect_err(SONDE_ESTATE, sonde_nn_session_anchor(f->session, "a", "fc1.bias",
                                                     SONDE_ANCHOR_ALL, 1, &engine_diag));
    expect_line("a: the session is compiled and its options are frozen (expected it "
                "before compile)");
    expect_err(SONDE_ESTATE, sonde_nn_session_tap(f->session, "*", &always, SONDE_HOW_RAW,
                                                  &sink.sink, &engine_diag));
    expect_line("*: the session is compiled and its options are frozen (expected it "
                "before compile)");
    expect_err(SONDE_ESTATE,
               sonde_nn_session_set(
                   f->session, SONDE_OPTIONS(sonde_nn_session, .mode = SONDE_MODE_EVAL),
                   &engine_diag));
    expect_line("mode: the session is compiled and its options are frozen (expected it "
                "before compile)");
    must(sonde_nn_session_compile(f->session, &engine_diag)); /* again: nothing to do */
    expect_untouched(f);
}

static void refuse_options(bool training, const sonde_nn_options *options, sonde_err err,
                           const char *want, int line)
{
    engine_net net;
    sonde_nn_session *session = NULL;

    engine_mlp(&net, 2);
    must(training
             ? sonde_nn_session_create(net.model, NULL, &engine_sgd, &session,
                                       &engine_diag)
             : sonde_nn_session_create(net.model, NULL, NULL, &session, &engine_diag));
    must(sonde_nn_session_set(
        session, SONDE_OPTIONS(sonde_nn_session, .options = options), &engine_diag));
    expect_err(err, sonde_nn_session_compile(session, &engine_diag));
    engine_expect_line(want, __FILE__, line);
    assert_null(sonde_nn_session_catalogue(session));
    /* other options, and it is well */
    must(sonde_nn_session_set(
        session,
        SONDE_OPTIONS(sonde_nn_session, .options = SONDE_OPTIONS(
                                            sonde_nn, .device_iterations = 1,
                                            .gradient_accumulation = 1, .replicas = 1)),
        &engine_diag));
    must(sonde_nn_session_compile(session, &engine_diag));
    assert_non_null(sonde_nn_session_catalogue(session));
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
}
/* The defaults but for one field. */
#define options_refused(training, field, value, want)                                    \
    do {                                                                                 \
        sonde_nn_options options;                                                        \
                                                                                         \
        sonde_nn_options_init(&options);                                                 \
        options.field = value;                                                           \
        refuse_options(training, &options, SONDE_EINVAL, want, __LINE__);                \
    } while (0)

static void options_out_of_range_are_named(void **state)
{
    sonde_nn_options large;

    (void)state;
    options_refused(true, device_iterations, 0,
                    "device_iterations: 0 (expected at least 1)");
    options_refused(true, gradient_accumulation, -1,
                    "gradient_accumulation: -1 (expected at least 1)");
    options_refused(false, gradient_accumulation, 2,
                    "gradient_accumulation: 2 (expected 1 for an inference session)");
    options_refused(true, batch_size, -3, "batch_size: -3 (expected 1 to 2147483647)");
    options_refused(true, threads, -1,
                    "threads: -1 (expected 0 (as many as pay) or more)");
    options_refused(true, output_mode, (sonde_anchor_mode)77,
                    "outputs: mode 77 (expected a sonde_anchor_mode)");
    options_refused(true, reduction, (sonde_nn_reduction)5,
                    "reduction: 5 (expected mean (0) or sum (1))");
    sonde_nn_options_init(&large);
    large.device_iterations = 1 << 30;
    large.gradient_accumulation = 1 << 30;
    refuse_options(true, &large, SONDE_EINVAL,
                   "device_iterations: 1152921504606846976 (expected at most 2147483647 "
                   "micro-batches a call)",
                   __LINE__);
}

static void refuse_variable(const char *variable, const char *value, const char *want,
                            int line)
{
    engine_net net;
    sonde_nn_session *session = NULL;

    engine_mlp(&net, 2);
    must(sonde_nn_session_create(net.model, NULL, &engine_sgd, &session, &engine_diag));
    assert_int_equal(setenv(variable, value, 1), 0);
    expect_err(SONDE_EINVAL, sonde_nn_session_compile(session, &engine_diag));
    assert_int_equal(unsetenv(variable), 0);
    engine_expect_line(want, __FILE__, line);
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
}
#define variable_refused(variable, value, want)                                          \
    refuse_variable(variable, value, want, __LINE__)

static void the_environment_has_the_last_word(void **state)
{
    engine_net net;
    sonde_nn_session *session = NULL;
    sonde_nn_options options;
    sonde_nn_session_info info;
    sonde_view view;

    (void)state;
    engine_mlp(&net, 2);
    sonde_nn_options_init(&options);
    options.device_iterations = 7;
    must(sonde_nn_session_create(net.model, &options, &engine_sgd, &session,
                                 &engine_diag));
    assert_int_equal(setenv("SONDE_DEVICE_ITERATIONS", "3", 1), 0);
    assert_int_equal(setenv("SONDE_GRADIENT_ACCUMULATION", "2", 1), 0);
    assert_int_equal(setenv("SONDE_REPLICAS", "2", 1), 0);
    assert_int_equal(setenv("SONDE_BATCH_SIZE", "5", 1), 0);
    assert_int_equal(setenv("SONDE_THREADS", "1", 1), 0);
    assert_int_equal(setenv("SONDE_OUTPUT_MODE", "All", 1), 0);
    must(sonde_nn_session_compile(session, &engine_diag));
    (void)unsetenv("SONDE_DEVICE_ITERATIONS");
    (void)unsetenv("SONDE_GRADIENT_ACCUMULATION");
    (void)unsetenv("SONDE_REPLICAS");
    (void)unsetenv("SONDE_BATCH_SIZE");
    (void)unsetenv("SONDE_THREADS");
    (void)unsetenv("SONDE_OUTPUT_MODE");
    must(sonde_nn_session_describe(session, &info, &engine_diag));
    assert_int_equal(info.device_iterations, 3);
    assert_int_equal(info.gradient_accumulation, 2);
    assert_int_equal(info.replicas, 2);
    assert_int_equal(info.batch_size, 5);
    assert_int_equal(info.combined_batch, 60);
    engine_train(&net, session, 0);
    must(sonde_nn_session_output(session, 1, &view, &engine_diag));
    assert_int_equal(sonde_view_count(&view), 12);
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
    variable_refused(
        "SONDE_DEVICE_ITERATIONS", "two",
        "SONDE_DEVICE_ITERATIONS: 'two' (expected a whole number from 0 to 2147483647)");
    variable_refused(
        "SONDE_BATCH_SIZE", "-4",
        "SONDE_BATCH_SIZE: '-4' (expected a whole number from 0 to 2147483647)");
    variable_refused(
        "SONDE_THREADS", "1.5",
        "SONDE_THREADS: '1.5' (expected a whole number from 0 to 2147483647)");
    variable_refused("SONDE_GRADIENT_ACCUMULATION", "99999999999999999999",
                     "SONDE_GRADIENT_ACCUMULATION: '99999999999999999999' (expected a "
                     "whole number from 0 to 2147483647)");
    variable_refused("SONDE_OUTPUT_MODE", "last",
                     "SONDE_OUTPUT_MODE: 'last' (expected final, everyn, all, sum, "
                     "default or mean)");
    variable_refused("SONDE_DEVICE_ITERATIONS", "0",
                     "device_iterations: 0 (expected at least 1)");
}

/* --- what a model must have --------------------------------------------------------- */

static void a_model_without_purpose_is_refused(void **state)
{
    const int64_t shape[2] = {2, 3};
    sonde_nn_model *model = NULL;
    sonde_nn_session *session = NULL;
    sonde_nn_value x = 0;

    (void)state;
    must(sonde_nn_model_create(&model, &engine_diag));
    x = sonde_nn_input(model, SONDE_F32, 2, shape);
    x = sonde_nn_linear(model, "fc", x,
                        SONDE_OPTIONS(sonde_nn_linear, .out_features = 2));
    must(sonde_nn_session_create(model, NULL, &engine_sgd, &session, &engine_diag));
    expect_err(SONDE_ESTATE, sonde_nn_session_compile(session, &engine_diag));
    expect_line("model: it has no loss to train by (expected one call of sonde_nn_loss)");
    sonde_nn_session_destroy(session);
    must(sonde_nn_session_create(model, NULL, NULL, &session, &engine_diag));
    expect_err(SONDE_ESTATE, sonde_nn_session_compile(session, &engine_diag));
    expect_line("model: it has no output to infer (expected a call of sonde_nn_output)");
    sonde_nn_session_destroy(session);
    x = sonde_nn_softmax(model, NULL, x, 9);
    expect_err(SONDE_EINVAL,
               sonde_nn_session_create(model, NULL, NULL, &session, &engine_diag));
    expect_line("Softmax: axis 9 of a tensor of rank 2 (expected -2 to 1)");
    sonde_nn_model_destroy(model);
}

static void calls_before_compile_say_so(void **state)
{
    engine_net net;
    sonde_nn_session *session = NULL;
    sonde_nn_session_info info;

    (void)state;
    engine_mlp(&net, 2);
    must(sonde_nn_session_create(net.model, NULL, &engine_sgd, &session, &engine_diag));
    expect_err(SONDE_ESTATE, sonde_nn_session_describe(session, &info, &engine_diag));
    expect_line(
        "session: it has not been compiled (expected a call of compile or run before)");
    expect_err(SONDE_ESTATE,
               sonde_nn_session_save(session, "/nonexistent/x", &engine_diag));
    expect_line(
        "session: it has not been compiled (expected a call of compile or run before)");
    assert_null(sonde_nn_session_catalogue(session));
    assert_int_equal(sonde_nn_session_step(session), 0);
    expect_err(SONDE_EINVAL,
               sonde_nn_session_set(
                   session, SONDE_OPTIONS(sonde_nn_session, .mode = SONDE_MODE_GLOBAL),
                   &engine_diag));
    expect_line("mode: 3 (expected train, eval or predict)");
    expect_err(SONDE_EINVAL,
               sonde_nn_session_tap(session, "*", &(sonde_schedule){.every = -1},
                                    SONDE_HOW_RAW, NULL, &engine_diag));
    expect_line("every: -1 (expected 1 or more)");
    expect_err(SONDE_EINVAL,
               sonde_nn_session_dump(session, "fusee", stderr, &engine_diag));
    expect_line(
        "dump: unknown pass 'fusee' (expected instantiate, autodiff, track, accumulate, "
        "optimize, prune, fuse, stage, layout or plan)");
    sonde_nn_session_destroy(session);
    sonde_nn_session_destroy(NULL);
    engine_net_fini(&net);
}

#define with_fixture(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_fixture(a_wrong_count_is_refused),
        with_fixture(a_wrong_shape_is_refused),
        with_fixture(a_wrong_dtype_is_refused),
        with_fixture(a_view_with_gaps_is_refused),
        with_fixture(a_label_outside_its_classes_is_refused),
        with_fixture(options_are_frozen_by_compile),
        cmocka_unit_test(a_label_seen_through_a_view_is_checked),
        cmocka_unit_test(options_out_of_range_are_named),
        cmocka_unit_test(the_environment_has_the_last_word),
        cmocka_unit_test(a_model_without_purpose_is_refused),
        cmocka_unit_test(calls_before_compile_say_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

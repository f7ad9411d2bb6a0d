/*
 * test_session_modes.c - what a call returns: output and anchor modes with the counts,
 * shapes and values of PopTorch's outputMode, through real sessions.
 */
#include "engine.h"
#include "base/macros.h"

/* --- networks that give back what they are fed -------------------------------------- */

typedef enum echo { ECHO_INPUT, ECHO_RESHAPE, ECHO_RELU, ECHO_KINDS } echo;

/* Two outputs, both the input of (1, width): one as `kind` has it, one through a linear
 * layer of the unit matrix, whose mean is the loss. */
static sonde_nn_model *echo_model(echo kind, int64_t width)
{
    const int64_t shape[2] = {1, width};
    sonde_nn_model *model = NULL;
    sonde_nn_value x = 0, y = 0;
    float *weight = NULL;

    must(sonde_nn_model_create(&model, &engine_diag));
    x = sonde_nn_input(model, SONDE_F32, 2, shape);
    sonde_nn_output(model,
                    kind == ECHO_INPUT ? x
                    : kind == ECHO_RESHAPE
                        ? sonde_nn_reshape(model, NULL, x, 2, (const int64_t[]){0, -1})
                        : sonde_nn_relu(model, NULL, x));
    y = sonde_nn_linear(
        model, "fc", x,
        SONDE_OPTIONS(sonde_nn_linear, .out_features = width, .no_bias = true));
    sonde_nn_output(model, y);
    sonde_nn_loss(model, engine_reduce(model, "mean", "loss", y, NULL, 0, false));
    must(sonde_nn_model_status(model, &engine_diag));
    weight = engine_parameter(model, "fc.weight", NULL);
    for (int64_t i = 0; i < width * width; i++) {
        weight[i] = i % (width + 1) == 0 ? 1.0F : 0.0F;
    }
    return model;
}

typedef struct expectation {
    int iterations, accumulation;
    int64_t width;
    sonde_anchor_mode mode;
    int period;
    int64_t rows; /* of what is returned */
    float values[8];
} expectation;

static void expect_view(const sonde_view *view, const expectation *want)
{
    assert_int_equal(view->dtype, SONDE_F32);
    assert_int_equal(view->rank, 2);
    assert_int_equal(view->shape[0], want->rows);
    assert_int_equal(view->shape[1], want->width);
    assert_true(sonde_view_is_contiguous(view));
    assert_same_bits((const float *)view->data, want->values, want->rows * want->width);
}

/* Feeds 1, 2, 3 ... in rows of `width`, to D·G micro-batches. Anchors have modes of their
 * own, so the outputs of one session are the anchors of the other. */
static void expect_echo(echo kind, bool training, bool anchored, const expectation *want)
{
    sonde_nn_model *model = echo_model(kind, want->width);
    const sonde_nn_optimizer still = sonde_nn_optimizer_sgd(0.0F, 0.0F);
    sonde_nn_session *session = NULL;
    sonde_nn_options options;
    float numbers[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    const int64_t shape[2] = {(int64_t)want->iterations * want->accumulation,
                              want->width};
    const sonde_view input = sonde_view_of(SONDE_F32, 2, shape, numbers);
    sonde_view view;

    sonde_nn_options_init(&options);
    options.device_iterations = want->iterations;
    options.gradient_accumulation = want->accumulation;
    if (!anchored) {
        options.output_mode = want->mode;
        options.output_period = want->period;
    }
    must(training
             ? sonde_nn_session_create(model, &options, &still, &session, &engine_diag)
             : sonde_nn_session_create(model, &options, NULL, &session, &engine_diag));
    must(sonde_nn_session_anchor(session, "mine", "fc_input",
                                 anchored ? want->mode : SONDE_ANCHOR_DEFAULT,
                                 want->period, &engine_diag));
    for (int call = 0; call < 2; call++) { /* a call knows nothing of the one before */
        must(sonde_nn_session_run(session, &input, 1, &engine_diag));
        must(sonde_nn_session_anchored(session, "mine", &view, &engine_diag));
        expect_view(&view, want);
        for (size_t i = 0; !anchored && i < 2; i++) {
            must(sonde_nn_session_output(session, i, &view, &engine_diag));
            expect_view(&view, want);
        }
    }
    sonde_nn_session_destroy(session);
    sonde_nn_model_destroy(model);
}

static const expectation inferred[] = {
    {8, 1, 1, SONDE_ANCHOR_ALL, 1, 8, {1, 2, 3, 4, 5, 6, 7, 8}},
    {8, 1, 1, SONDE_ANCHOR_DEFAULT, 1, 8, {1, 2, 3, 4, 5, 6, 7, 8}},
    {8, 1, 1, SONDE_ANCHOR_EVERYN, 4, 2, {4, 8}},
    {8, 1, 1, SONDE_ANCHOR_EVERYN, 1, 8, {1, 2, 3, 4, 5, 6, 7, 8}},
    {8, 1, 1, SONDE_ANCHOR_EVERYN, 8, 1, {8}},
    {8, 1, 1, SONDE_ANCHOR_FINAL, 1, 1, {8}},
    {8, 1, 1, SONDE_ANCHOR_FINAL, 7, 1, {8}}, /* a period means nothing here */
    {8, 1, 1, SONDE_ANCHOR_SUM, 1, 1, {36}},
    {8, 1, 1, SONDE_ANCHOR_MEAN, 1, 1, {4.5F}},
    {4, 1, 2, SONDE_ANCHOR_ALL, 1, 4, {1, 2, 3, 4, 5, 6, 7, 8}},
    {4, 1, 2, SONDE_ANCHOR_EVERYN, 2, 2, {3, 4, 7, 8}},
    {4, 1, 2, SONDE_ANCHOR_FINAL, 1, 1, {7, 8}},
    {4, 1, 2, SONDE_ANCHOR_SUM, 1, 1, {16, 20}},
    {4, 1, 2, SONDE_ANCHOR_MEAN, 1, 1, {4, 5}},
    {1, 1, 4, SONDE_ANCHOR_ALL, 1, 1, {1, 2, 3, 4}},
    {1, 1, 4, SONDE_ANCHOR_EVERYN, 1, 1, {1, 2, 3, 4}},
    {1, 1, 4, SONDE_ANCHOR_FINAL, 1, 1, {1, 2, 3, 4}},
    {1, 1, 4, SONDE_ANCHOR_SUM, 1, 1, {1, 2, 3, 4}},
    {1, 1, 4, SONDE_ANCHOR_MEAN, 1, 1, {1, 2, 3, 4}},
};

static void inference_returns_by_mode(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(inferred) * ECHO_KINDS; i++) {
        expect_echo((echo)(i % ECHO_KINDS), false, false, &inferred[i / ECHO_KINDS]);
        if (inferred[i / ECHO_KINDS].mode != SONDE_ANCHOR_DEFAULT) {
            expect_echo((echo)(i % ECHO_KINDS), false, true, &inferred[i / ECHO_KINDS]);
        }
    }
}

static const expectation trained[] = {
    {2, 2, 2, SONDE_ANCHOR_ALL, 1, 4, {1, 2, 3, 4, 5, 6, 7, 8}},
    {2, 2, 2, SONDE_ANCHOR_EVERYN, 2, 2, {3, 4, 7, 8}}, /* counted in micro-batches */
    {2, 2, 2, SONDE_ANCHOR_FINAL, 1, 1, {7, 8}},
    {2, 2, 2, SONDE_ANCHOR_DEFAULT, 1, 1, {7, 8}},
    {2, 2, 2, SONDE_ANCHOR_SUM, 1, 1, {16, 20}},
    {2, 2, 2, SONDE_ANCHOR_MEAN, 1, 1, {4, 5}},
    {1, 2, 2, SONDE_ANCHOR_SUM, 1, 1, {4, 6}},
    {1, 2, 2, SONDE_ANCHOR_FINAL, 1, 1, {3, 4}},
    {2, 1, 2, SONDE_ANCHOR_SUM, 1, 1, {4, 6}},
    {2, 1, 2, SONDE_ANCHOR_FINAL, 1, 1, {3, 4}},
};

static void training_returns_by_mode(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(trained) * ECHO_KINDS; i++) {
        expect_echo((echo)(i % ECHO_KINDS), true, false, &trained[i / ECHO_KINDS]);
        if (trained[i / ECHO_KINDS].mode != SONDE_ANCHOR_DEFAULT) {
            expect_echo((echo)(i % ECHO_KINDS), true, true, &trained[i / ECHO_KINDS]);
        }
    }
}

/* --- shapes ------------------------------------------------------------------------- */

static void expect_shape(const sonde_view *view, int rank, const int64_t *shape)
{
    assert_int_equal(view->rank, rank);
    assert_memory_equal(view->shape, shape, (size_t)rank * sizeof *shape);
}

/* A scalar becomes a vector, all else is concatenated on its first dimension; one value
 * keeps its shape. */
static void shapes_are_concatenated(void **state)
{
    static const struct {
        sonde_anchor_mode mode;
        int64_t times;
    } modes[] = {{SONDE_ANCHOR_ALL, 12},
                 {SONDE_ANCHOR_EVERYN, 6},
                 {SONDE_ANCHOR_FINAL, 1},
                 {SONDE_ANCHOR_SUM, 1},
                 {SONDE_ANCHOR_MEAN, 1}};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(modes); i++) {
        const int64_t times = modes[i].times;
        engine_net net;
        sonde_nn_session *session = NULL;
        sonde_nn_options options;
        sonde_view view;

        engine_mlp(&net, 5);
        sonde_nn_options_init(&options);
        options.device_iterations = 4;
        options.gradient_accumulation = 3;
        options.output_mode = modes[i].mode;
        options.output_period = 2;
        must(sonde_nn_session_create(net.model, &options, &engine_sgd, &session,
                                     &engine_diag));
        must(sonde_nn_session_anchor(session, "dw", "Gradient___fc2.weight",
                                     modes[i].mode, 2, &engine_diag));
        must(sonde_nn_session_anchor(session, "db", "Gradient___fc2.bias",
                                     SONDE_ANCHOR_DEFAULT, 1, &engine_diag));
        engine_train(&net, session, 1);
        must(sonde_nn_session_output(session, 0, &view, &engine_diag));
        expect_shape(&view, 2, (const int64_t[]){5 * times, 4});
        must(sonde_nn_session_output(session, 1, &view, &engine_diag));
        expect_shape(&view, times > 1 ? 1 : 0, &times);
        must(sonde_nn_session_anchored(session, "dw", &view, &engine_diag));
        expect_shape(&view, 2, (const int64_t[]){4 * times, 32});
        must(sonde_nn_session_anchored(session, "db", &view, &engine_diag));
        expect_shape(&view, 1, (const int64_t[]){4 * times});
        assert_int_equal(engine_output_count(session), 2);
        expect_err(SONDE_ERANGE,
                   sonde_nn_session_output(session, 2, &view, &engine_diag));
        sonde_nn_session_destroy(session);
        engine_net_fini(&net);
    }
}

/* An output that is a view of another value has its own shape. */
static void a_view_as_output_has_its_own_shape(void **state)
{
    const int64_t shape[3] = {2, 3, 4};
    float numbers[24];
    const sonde_view input = sonde_view_of(SONDE_F32, 3, shape, numbers);
    sonde_nn_model *model = NULL;
    sonde_nn_session *session = NULL;
    sonde_nn_value x = 0, y = 0;
    sonde_view view;

    (void)state;
    for (int i = 0; i < 24; i++) {
        numbers[i] = (float)i;
    }
    must(sonde_nn_model_create(&model, &engine_diag));
    x = sonde_nn_input(model, SONDE_F32, 3, shape);
    y = sonde_nn_relu(model, NULL, x);
    sonde_nn_output(model, sonde_nn_flatten(model, "flat", y, 1));
    sonde_nn_output(model, sonde_nn_reshape(model, NULL, x, 2, (const int64_t[]){-1, 3}));
    sonde_nn_output(model, y);
    must(sonde_nn_session_create(model, NULL, NULL, &session, &engine_diag));
    must(sonde_nn_session_anchor(session, "flat", "flat_output", SONDE_ANCHOR_FINAL, 1,
                                 &engine_diag));
    must(sonde_nn_session_run(session, &input, 1, &engine_diag));
    for (size_t i = 0; i < 4; i++) {
        if (i < 3) {
            must(sonde_nn_session_output(session, i, &view, &engine_diag));
        } else {
            must(sonde_nn_session_anchored(session, "flat", &view, &engine_diag));
        }
        expect_shape(&view, i == 2 ? 3 : 2,
                     i == 1   ? (const int64_t[]){8, 3}
                     : i == 2 ? shape
                              : (const int64_t[]){2, 12});
        assert_same_bits((const float *)view.data, numbers, 24);
    }
    sonde_nn_session_destroy(session);
    sonde_nn_model_destroy(model);
}

/* --- errors ------------------------------------------------------------------------- */

static void expect_refused(sonde_anchor_mode mode, int period, bool of_output,
                           const char *want, int line)
{
    engine_net net;
    sonde_nn_session *session = NULL;
    sonde_nn_options options;
    sonde_err err = SONDE_OK;

    engine_mlp(&net, 2);
    sonde_nn_options_init(&options);
    options.device_iterations = 4;
    if (of_output) {
        options.output_mode = mode;
        options.output_period = period;
    }
    must(sonde_nn_session_create(net.model, &options, &engine_sgd, &session,
                                 &engine_diag));
    memset(&engine_diag, 0, sizeof engine_diag);
    if (!of_output) {
        err = sonde_nn_session_anchor(session, "mine", "fc1.weight", mode, period,
                                      &engine_diag);
    }
    if (err == SONDE_OK) {
        err = sonde_nn_session_compile(session, &engine_diag);
    }
    assert_int_equal(err, SONDE_EINVAL);
    engine_expect_line(want, __FILE__, line);
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
}

#define refused(mode, period, of_output, want)                                           \
    expect_refused(mode, period, of_output, want, __LINE__)

static void periods_that_cannot_be_are_refused(void **state)
{
    (void)state;
    refused(SONDE_ANCHOR_EVERYN, 3, false,
            "anchor 'mine': period 3 does not divide the iterations of a call, 4 "
            "(expected a divisor of 4)");
    refused(SONDE_ANCHOR_EVERYN, 8, false,
            "anchor 'mine': period 8 is more than the iterations of a call, 4 (expected "
            "1 to 4)");
    refused(SONDE_ANCHOR_EVERYN, 0, false,
            "anchor 'mine': period 0 of mode everyn (expected 1 or more)");
    refused((sonde_anchor_mode)9, 1, false,
            "anchor 'mine': mode 9 (expected a sonde_anchor_mode)");
    refused(SONDE_ANCHOR_EVERYN, 3, true,
            "output_mode: period 3 does not divide the iterations of a call, 4 (expected "
            "a divisor of 4)");
    refused(SONDE_ANCHOR_EVERYN, -1, true,
            "outputs: period -1 of mode everyn (expected 1 or more)");
}

static void unknown_anchors_name_the_nearest(void **state)
{
    engine_net net;
    sonde_nn_session *session = NULL;
    sonde_view view;

    (void)state;
    engine_mlp(&net, 2);
    must(sonde_nn_session_create(net.model, NULL, &engine_sgd, &session, &engine_diag));
    must(sonde_nn_session_anchor(session, "mine", "Gradient___fc2.wieght",
                                 SONDE_ANCHOR_ALL, 1, &engine_diag));
    expect_err(SONDE_EEXIST, sonde_nn_session_anchor(session, "mine", "fc1.bias",
                                                     SONDE_ANCHOR_ALL, 1, &engine_diag));
    expect_line("mine: an anchor has this name already (expected an unused name)");
    expect_err(SONDE_ENOTFOUND, sonde_nn_session_compile(session, &engine_diag));
    expect_line(
        "anchor 'mine': unknown tensor 'Gradient___fc2.wieght' (expected a name such as "
        "Gradient___fc2.weight, Gradient___fc1.weight or Gradient___fc2.bias)");
    expect_err(SONDE_ENOTFOUND,
               sonde_nn_session_anchored(session, "mine", &view, &engine_diag));
    sonde_nn_session_destroy(session);

    must(sonde_nn_session_create(net.model, NULL, &engine_sgd, &session, &engine_diag));
    must(sonde_nn_session_anchor(session, "mine", "model.fc2.bias", SONDE_ANCHOR_ALL, 1,
                                 &engine_diag));
    expect_err(SONDE_ESTATE, sonde_nn_session_output(session, 0, &view, &engine_diag));
    must(sonde_nn_session_compile(session, &engine_diag));
    expect_err(SONDE_ESTATE,
               sonde_nn_session_anchored(session, "mine", &view, &engine_diag));
    expect_err(SONDE_ESTATE, sonde_nn_session_output(session, 0, &view, &engine_diag));
    engine_train(&net, session, 0);
    must(sonde_nn_session_anchored(session, "mine", &view, &engine_diag));
    expect_err(SONDE_ENOTFOUND,
               sonde_nn_session_anchored(session, "mien", &view, &engine_diag));
    expect_line("unknown anchor 'mien' (expected a name such as mine)");
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inference_returns_by_mode),
        cmocka_unit_test(training_returns_by_mode),
        cmocka_unit_test(shapes_are_concatenated),
        cmocka_unit_test(a_view_as_output_has_its_own_shape),
        cmocka_unit_test(periods_that_cannot_be_are_refused),
        cmocka_unit_test(unknown_anchors_name_the_nearest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

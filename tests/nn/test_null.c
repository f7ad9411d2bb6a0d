/*
 * test_null.c - every function of model.h, session.h, options.h and optimizer.h with NULL,
 * zero and huge arguments: an error that names what is missing, and no crash.
 */
#include "engine.h"

#include <sonde/log.h>

#include <math.h>

#define refused(call)                                                                    \
    do {                                                                                 \
        expect_err(SONDE_EINVAL, call);                                                  \
        assert_string_not_equal(engine_diag.where, "");                                  \
    } while (0)

/* --- the builder -------------------------------------------------------------------- */

static void builders_without_a_model_return_nothing(void **state)
{
    const int64_t shape[2] = {2, 3};
    int rank = 7;

    (void)state;
    refused(sonde_nn_model_create(NULL, &engine_diag));
    refused(sonde_nn_model_status(NULL, &engine_diag));
    refused(sonde_nn_model_save(NULL, "x", &engine_diag));
    refused(sonde_nn_model_load(NULL, "x", &engine_diag));
    sonde_nn_model_destroy(NULL);
    assert_int_equal(sonde_nn_input(NULL, SONDE_F32, 2, shape), 0);
    sonde_nn_output(NULL, 1);
    sonde_nn_loss(NULL, 1);
    assert_int_equal(sonde_nn_model_get_info(NULL).loss, 0);
    assert_int_equal(sonde_nn_model_output(NULL, 0), 0);
    assert_int_equal(sonde_nn_output_loss(NULL), SIZE_MAX);
    sonde_nn_scope_push(NULL, "a");
    sonde_nn_scope_pop(NULL);
    assert_null(sonde_nn_value_shape(NULL, 1, &rank));
    assert_int_equal(sonde_nn_conv2d(NULL, "a", 1, NULL), 0);
    assert_int_equal(sonde_nn_linear(NULL, "a", 1, NULL), 0);
    assert_int_equal(sonde_nn_group_norm(NULL, "a", 1, NULL), 0);
    assert_int_equal(sonde_nn_max_pool2d(NULL, "a", 1, NULL), 0);
    assert_int_equal(sonde_nn_relu(NULL, "a", 1), 0);
    assert_int_equal(sonde_nn_softmax(NULL, "a", 1, 0), 0);
    assert_int_equal(sonde_nn_log_softmax(NULL, "a", 1, 0), 0);
    assert_int_equal(sonde_nn_flatten(NULL, "a", 1, 0), 0);
    assert_int_equal(sonde_nn_nll_loss(NULL, "a", 1, 1), 0);
    assert_int_equal(sonde_nn_cross_entropy(NULL, "a", 1, 1, NULL), 0);
    assert_int_equal(sonde_nn_add(NULL, "a", 1, 1), 0);
    assert_int_equal(sonde_nn_reshape(NULL, "a", 1, 2, shape), 0);
    assert_int_equal(sonde_nn_print(NULL, 1, NULL, true, NULL), 0);
    assert_int_equal(sonde_nn_model_get_info(NULL).parameter_count, 0);
    assert_null(sonde_nn_parameter(NULL, 0).name);
    assert_null(sonde_nn_parameter(NULL, 0).view.data);
    sonde_nn_parameter_leave_out(NULL, 0, true);
    sonde_nn_model_initialize(NULL, 0);
}

/* Builds one layer over a good input with an argument that is missing; the model must say
 * so. */
enum { LAYERS = 9 };

static sonde_nn_value build_badly(sonde_nn_model *model, sonde_nn_value x, int layer)
{
    switch (layer) {
    case 0:
        return sonde_nn_conv2d(model, "conv", x, NULL);
    case 1:
        return sonde_nn_linear(model, "linear", x, NULL);
    case 2:
        return sonde_nn_group_norm(model, "norm", x, NULL);
    case 3:
        return sonde_nn_max_pool2d(model, "pool", x, NULL);
    case 4:
        return sonde_nn_reshape(model, NULL, x, 2, NULL);
    case 5:
        return sonde_nn_input(model, SONDE_F32, 2, NULL);
    case 6:
        return sonde_nn_linear(model, "linear", x,
                               SONDE_OPTIONS(sonde_nn_linear, .out_features = INT64_MAX));
    case 7:
        return sonde_nn_conv2d(model, "conv", x,
                               SONDE_OPTIONS(sonde_nn_conv2d, .out_channels = INT64_MAX,
                                             .kernel_size = {INT64_MAX}));
    default:
        return sonde_nn_relu(model, "relu", UINT32_MAX);
    }
}

static void layers_need_their_options(void **state)
{
    (void)state;
    for (int layer = 0; layer < LAYERS; layer++) {
        sonde_nn_model *model = NULL;
        sonde_nn_value x = 0;

        must(sonde_nn_model_create(&model, &engine_diag));
        x = sonde_nn_input(model, SONDE_F32, layer == 9 ? 2 : 4, (int64_t[]){2, 3, 4, 4});
        assert_int_equal(build_badly(model, x, layer), 0);
        assert_int_not_equal(sonde_nn_model_status(model, &engine_diag), SONDE_OK);
        assert_string_not_equal(engine_diag.where, "");
        sonde_nn_model_destroy(model);
    }
}

static void what_a_model_lacks_is_refused(void **state)
{
    engine_net net;
    int rank = 7;

    (void)state;
    engine_mlp(&net, 3);
    assert_null(sonde_nn_value_shape(net.model, 0, &rank));
    assert_null(sonde_nn_value_shape(net.model, UINT32_MAX, &rank));
    assert_int_equal(rank, 7);
    assert_non_null(sonde_nn_value_shape(net.model, 1, NULL));
    assert_null(sonde_nn_parameter(net.model, SIZE_MAX).name);
    assert_null(sonde_nn_parameter(net.model, SIZE_MAX).view.data);
    sonde_nn_parameter_leave_out(net.model, SIZE_MAX, true);
    assert_int_equal(sonde_nn_model_output(net.model, SIZE_MAX), 0);
    refused(sonde_nn_model_save(net.model, NULL, &engine_diag));
    refused(sonde_nn_model_load(net.model, NULL, &engine_diag));
    sonde_nn_scope_push(net.model, NULL);
    refused(sonde_nn_model_status(net.model, &engine_diag));
    engine_net_fini(&net);
}

/* --- options and optimizers --------------------------------------------------------- */

static void options_may_be_missing(void **state)
{
    (void)state;
    sonde_nn_options_init(NULL);
    refused(sonde_nn_optimizer_check(NULL, &engine_diag));
    assert_string_equal(sonde_nn_optimizer_name((sonde_nn_optimizer_kind)99), "?");
}

/* --- sessions ----------------------------------------------------------------------- */

static sonde_err attach_nothing(void *user, const sonde_catalogue *catalogue,
                                sonde_observer *observer, sonde_diag *diag)
{
    (void)user, (void)catalogue, (void)observer, (void)diag;
    return SONDE_OK;
}

static void functions_without_a_session_fail(void **state)
{
    const sonde_schedule always = sonde_schedule_every(1);
    const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.1F, 0.0F);
    sonde_nn_session *session = NULL;
    sonde_nn_session_info info;
    sonde_nn_options options;
    sonde_view view;
    double loss = 0.0;
    engine_sink sink;

    (void)state;
    sonde_nn_options_init(&options);
    engine_sink_init(&sink, false);
    refused(sonde_nn_session_create(NULL, NULL, &engine_sgd, &session, &engine_diag));
    refused(sonde_nn_session_create(NULL, NULL, NULL, &session, &engine_diag));
    sonde_nn_session_destroy(NULL);
    refused(sonde_nn_session_set(
        NULL, SONDE_OPTIONS(sonde_nn_session, .options = &options), &engine_diag));
    refused(sonde_nn_session_set(
        NULL, SONDE_OPTIONS(sonde_nn_session, .mode = SONDE_MODE_EVAL), &engine_diag));
    refused(sonde_nn_session_anchor(NULL, "a", "b", SONDE_ANCHOR_ALL, 1, &engine_diag));
    refused(sonde_nn_session_tap(NULL, "*", &always, SONDE_HOW_RAW, &sink.sink,
                                 &engine_diag));
    refused(sonde_nn_session_add_group(NULL, NULL, &engine_diag));
    refused(sonde_nn_session_set_optimizer(NULL, NULL, NULL, &engine_diag));
    refused(sonde_nn_session_set(NULL, SONDE_OPTIONS(sonde_nn_session, .outfeed = NULL),
                                 &engine_diag));
    refused(sonde_nn_session_set(
        NULL, SONDE_OPTIONS(sonde_nn_session, .attach = attach_nothing, .user = NULL),
        &engine_diag));
    refused(sonde_nn_session_set(NULL, SONDE_OPTIONS(sonde_nn_session, .hook = NULL),
                                 &engine_diag));
    refused(sonde_nn_session_attach_control(NULL, NULL, NULL, &engine_diag));
    refused(sonde_nn_session_compile(NULL, &engine_diag));
    assert_null(sonde_nn_session_catalogue(NULL));
    refused(sonde_nn_session_describe(NULL, &info, &engine_diag));
    refused(sonde_nn_session_dump(NULL, "plan", stdout, &engine_diag));
    refused(sonde_nn_session_run(NULL, NULL, 0, &engine_diag));
    refused(sonde_nn_session_output(NULL, 0, &view, &engine_diag));
    refused(sonde_nn_session_loss(NULL, &loss, &engine_diag));
    refused(sonde_nn_session_anchored(NULL, "a", &view, &engine_diag));
    refused(sonde_nn_session_heed(NULL, &engine_diag));
    assert_null(sonde_nn_session_stopped(NULL));
    assert_int_equal(sonde_nn_session_step(NULL), 0);
    refused(sonde_nn_session_set_optimizer(NULL, NULL, &sgd, &engine_diag));
    refused(sonde_nn_session_save(NULL, "x", &engine_diag));
    refused(sonde_nn_session_load(NULL, "x", &engine_diag));
    engine_sink_fini(&sink);
}

static void sessions_refuse_null_before_compile(void **state)
{
    const sonde_schedule always = sonde_schedule_every(1);
    sonde_nn_session *session = NULL;
    engine_net net;
    engine_sink sink;

    (void)state;
    engine_mlp(&net, 3);
    engine_sink_init(&sink, false);
    refused(sonde_nn_session_create(net.model, NULL, &engine_sgd, NULL, &engine_diag));
    refused(sonde_nn_session_create(net.model, NULL, NULL, NULL, &engine_diag));
    must(sonde_nn_session_create(net.model, NULL, &engine_sgd, &session, &engine_diag));
    refused(
        sonde_nn_session_anchor(session, NULL, "b", SONDE_ANCHOR_ALL, 1, &engine_diag));
    refused(
        sonde_nn_session_anchor(session, "a", NULL, SONDE_ANCHOR_ALL, 1, &engine_diag));
    refused(sonde_nn_session_tap(session, NULL, &always, SONDE_HOW_RAW, &sink.sink,
                                 &engine_diag));
    refused(sonde_nn_session_tap(session, "*", NULL, SONDE_HOW_RAW, &sink.sink,
                                 &engine_diag));
    refused(
        sonde_nn_session_tap(session, "*", &always, SONDE_HOW_RAW, NULL, &engine_diag));
    refused(sonde_nn_session_dump(session, NULL, stdout, &engine_diag));
    refused(sonde_nn_session_dump(session, "prune", NULL, &engine_diag));
    refused(sonde_nn_session_set_optimizer(session, NULL, NULL, &engine_diag));
    refused(sonde_nn_session_save(session, NULL, &engine_diag));
    refused(sonde_nn_session_load(session, NULL, &engine_diag));
    refused(sonde_nn_session_run(session, NULL, 2, &engine_diag));
    sonde_nn_session_destroy(session);
    engine_sink_fini(&sink);
    engine_net_fini(&net);
}

static void inputs_without_data_are_refused(void **state)
{
    sonde_nn_session *session = NULL;
    engine_net net;
    engine_batch batch;
    sonde_view view;
    double loss = 0.0;

    (void)state;
    engine_mlp(&net, 3);
    engine_batch_init(&batch, &net, 3, 1);
    must(sonde_nn_session_create(net.model, NULL, &engine_sgd, &session, &engine_diag));
    for (int input = 0; input < 2; input++) {
        const sonde_view good = batch.views[input];

        batch.views[input].data = NULL;
        refused(sonde_nn_session_run(session, batch.views, 2, &engine_diag));
        expect_line(input == 0 ? "input: data is NULL (expected a pointer)"
                               : "input/1: data is NULL (expected a pointer)");
        batch.views[input] = good;
        batch.views[input].rank = INT32_MAX;
        expect_err(SONDE_ESHAPE,
                   sonde_nn_session_run(session, batch.views, 2, &engine_diag));
        batch.views[input].rank = -1;
        expect_err(SONDE_ESHAPE,
                   sonde_nn_session_run(session, batch.views, 2, &engine_diag));
        batch.views[input] = good;
    }
    assert_int_equal(sonde_nn_session_step(session), 0);
    refused(sonde_nn_session_output(session, 0, NULL, &engine_diag));
    refused(sonde_nn_session_loss(session, NULL, &engine_diag));
    expect_err(SONDE_ESTATE, sonde_nn_session_loss(session, &loss, &engine_diag));
    refused(sonde_nn_session_anchored(session, NULL, &view, &engine_diag));
    refused(sonde_nn_session_anchored(session, "a", NULL, &engine_diag));
    refused(sonde_nn_session_describe(session, NULL, &engine_diag));
    sonde_nn_session_destroy(session);
    engine_batch_fini(&batch);
    engine_net_fini(&net);
}

/* --- the log of compile ------------------------------------------------------------- */

typedef struct seen {
    bool weight, gradient, op;
} seen;

static void look_for_names(void *user, sonde_log_level level, const char *room,
                           const char *message)
{
    seen *found = user;

    (void)level, (void)room;
    found->weight =
        found->weight || strstr(message, "tensor fc1.weight float32(") != NULL;
    found->gradient =
        found->gradient || strstr(message, "tensor Gradient___fc1.weight ") != NULL;
    found->op = found->op || strstr(message, " in fc1: ") != NULL;
}

static void debug_level_lists_tensors_and_ops(void **state)
{
    const sonde_log_level before = sonde_log_get_level();

    (void)state;
    for (int debug = 0; debug < 2; debug++) {
        seen found = {0};
        sonde_nn_session *session = NULL;
        engine_net net;

        engine_mlp(&net, 3);
        sonde_log_set_level(debug == 1 ? SONDE_LOG_DEBUG : SONDE_LOG_INFO);
        sonde_log_set_sink(look_for_names, &found);
        must(sonde_nn_session_create(net.model, NULL, &engine_sgd, &session,
                                     &engine_diag));
        must(sonde_nn_session_compile(session, &engine_diag));
        sonde_log_set_sink(NULL, NULL);
        assert_int_equal(found.weight, debug);
        assert_int_equal(found.gradient, debug);
        assert_int_equal(found.op, debug);
        sonde_nn_session_destroy(session);
        engine_net_fini(&net);
    }
    sonde_log_set_level(before);
}

static void numbers_that_cannot_be_are_refused(void **state)
{
    const float bad[] = {-1.0F, NAN, INFINITY};
    const sonde_nn_rate cycle = {.kind = SONDE_NN_RATE_ONE_CYCLE, .total = 10};
    sonde_nn_optimizer optimizer =
        sonde_nn_optimizer_default((sonde_nn_optimizer_kind)77, 0.0F);

    (void)state;
    refused(sonde_nn_optimizer_check(&optimizer, &engine_diag));
    assert_string_equal(sonde_nn_optimizer_name((sonde_nn_optimizer_kind)77), "?");
    assert_true(sonde_nn_rate_at(&cycle, 1.0, -1) == sonde_nn_rate_at(&cycle, 1.0, 0));
    assert_true(sonde_nn_rate_at(&cycle, 1.0, 99) == sonde_nn_rate_at(&cycle, 1.0, 9));
    for (size_t i = 0; i < 3; i++) {
        sonde_nn_model *model = NULL;
        sonde_nn_value x = 0;

        must(sonde_nn_model_create(&model, &engine_diag));
        x = sonde_nn_input(model, SONDE_F32, 4, (int64_t[]){2, 4, 3, 3});
        assert_int_equal(
            sonde_nn_group_norm(
                model, "norm", x,
                SONDE_OPTIONS(sonde_nn_group_norm, .num_groups = 2, .eps = bad[i])),
            0);
        refused(sonde_nn_model_status(model, &engine_diag));
        sonde_nn_model_destroy(model);
    }
}

/* What session.h says of calls that come too early, and of names that are there. */
static void sessions_say_what_is_too_early(void **state)
{
    const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.1F, 0.0F);
    const sonde_nn_group head = {.name = "head", .params = "*", .optimizer = sgd};
    const sonde_nn_group none = {.name = "none", .params = "nothing", .optimizer = sgd};
    sonde_nn_session *session = NULL;
    sonde_nn_session_info info;
    sonde_view view;
    FILE *stream = NULL;
    engine_net net;

    (void)state;
    engine_mlp(&net, 3);
    must(sonde_nn_session_create(net.model, NULL, &sgd, &session, &engine_diag));
    expect_err(SONDE_ESTATE, sonde_nn_session_describe(session, &info, &engine_diag));
    expect_err(SONDE_ESTATE, sonde_nn_session_output(session, 0, &view, &engine_diag));
    expect_err(SONDE_ENOTFOUND,
               sonde_nn_session_anchored(session, "none", &view, &engine_diag));
    must(sonde_nn_session_add_group(session, &head, &engine_diag));
    expect_err(SONDE_EEXIST, sonde_nn_session_add_group(session, &head, &engine_diag));
    stream = fopen("/dev/null", "we");
    assert_non_null(stream);
    must(sonde_nn_session_dump(session, "instantiate", stream, &engine_diag));
    (void)fclose(stream);
    must(sonde_nn_session_add_group(session, &none, &engine_diag));
    expect_err(SONDE_ENOTFOUND, sonde_nn_session_compile(session, &engine_diag));
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(builders_without_a_model_return_nothing),
        cmocka_unit_test(layers_need_their_options),
        cmocka_unit_test(what_a_model_lacks_is_refused),
        cmocka_unit_test(options_may_be_missing),
        cmocka_unit_test(functions_without_a_session_fail),
        cmocka_unit_test(sessions_refuse_null_before_compile),
        cmocka_unit_test(inputs_without_data_are_refused),
        cmocka_unit_test(debug_level_lists_tensors_and_ops),
        cmocka_unit_test(numbers_that_cannot_be_are_refused),
        cmocka_unit_test(sessions_say_what_is_too_early),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

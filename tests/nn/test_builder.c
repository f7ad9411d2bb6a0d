/*
 * test_builder.c - names, shapes, shared parameters, initial values, and every mistake
 * that the builder knows, with its diagnostic.
 */
#include "engine.h"
#include "base/macros.h"
#include "observe/tensor_roles.h"

#include <math.h>

/* The names of a catalogue in order, one in a line. */
static char *names_of(sonde_nn_model *model, bool training)
{
    sonde_nn_session *session = NULL;
    const sonde_catalogue *catalogue = NULL;
    char *text = calloc(1, 1 << 16);

    assert_non_null(text);
    must(training
             ? sonde_nn_session_create(model, NULL, &engine_sgd, &session, &engine_diag)
             : sonde_nn_session_create(model, NULL, NULL, &session, &engine_diag));
    must(sonde_nn_session_compile(session, &engine_diag));
    catalogue = sonde_nn_session_catalogue(session);
    for (uint32_t id = 0; id < sonde_catalogue_count(catalogue); id++) {
        const sonde_tensor_info *info = sonde_catalogue_info(catalogue, id);

        (void)strcat(strcat(text, info->name), "\n");
    }
    sonde_nn_session_destroy(session);
    return text;
}

static void expect_name(const char *names, const char *name, bool there)
{
    char line[200];
    const char *at = NULL;

    (void)snprintf(line, sizeof line, "%s\n", name);
    at = strstr(names, line);
    while (at != NULL && at != names && at[-1] != '\n') {
        at = strstr(at + 1, line);
    }
    if ((at != NULL) != there) {
        fail_msg("%s is %s:\n%s", name, there ? "missing" : "there", names);
    }
}

/* --- names -------------------------------------------------------------------------- */

static void modules_and_functions_have_their_names(void **state)
{
    static const char *const there[] = {
        "input",
        "input/1",
        "conv1.weight",
        "conv1.bias",
        "conv1_input_0",
        "conv1_output_0",
        "relu_output_0",
        "relu_output_1",
        "relu_output_2",
        "relu_input_0",
        "relu_input_2",
        "norm.weight",
        "norm_output_0",
        "Reshape:0",
        "fc1.weight",
        "fc1_input_0",
        "log_softmax_output_0",
        "loss_input_0",
        "loss_input_1",
        "loss_output_0",
        "Gradient___conv1.weight",
        "Gradient___relu_output_1",
        "Gradient___fc1_input_0",
        "Gradient___loss_output_0",
        "UpdatedVar___fc2.bias",
    };
    engine_net net;
    char *names = NULL;

    (void)state;
    engine_cnn(&net, 2);
    names = names_of(net.model, true);
    for (size_t i = 0; i < SONDE_COUNT_OF(there); i++) {
        expect_name(names, there[i], true);
    }
    expect_name(names, "relu_output_3", false);
    expect_name(names, "Accl1___fc2.bias", false); /* no momentum */
    expect_name(names, "Accum___fc2.bias", false); /* G = 1 */
    free(names);
    names = names_of(net.model, false);
    expect_name(names, "fc2_output_0", true);
    expect_name(names, "fc2.bias", true);
    expect_name(names, "input/1", false); /* nobody reads the target */
    expect_name(names, "loss_output_0", false);
    expect_name(names, "Gradient___conv1.weight", false);
    free(names);
    engine_net_fini(&net);
}

static void scopes_prefix_what_is_in_them(void **state)
{
    static const char *const there[] = {
        "block1.conv1.weight",
        "block1.conv1_output_0",
        "block1/Relu:0",
        "block1/Relu:1",
        "block1.inner.fc.bias",
        "block1.inner/Reshape:0",
        "Relu:0",
        "block2/Relu:0",
    };
    const int64_t shape[4] = {2, 1, 3, 3};
    sonde_nn_model *model = NULL;
    sonde_nn_value x = 0;
    char *names = NULL;

    (void)state;
    must(sonde_nn_model_create(&model, &engine_diag));
    x = sonde_nn_input(model, SONDE_F32, 4, shape);
    sonde_nn_scope_push(model, "block1");
    x = sonde_nn_conv2d(
        model, "conv1", x,
        SONDE_OPTIONS(sonde_nn_conv2d, .out_channels = 2, .kernel_size = {2}));
    x = sonde_nn_relu(model, NULL, x);
    x = sonde_nn_relu(model, NULL, x);
    sonde_nn_scope_push(model, "inner");
    x = sonde_nn_flatten(model, NULL, x, 1);
    x = sonde_nn_linear(model, "fc", x,
                        SONDE_OPTIONS(sonde_nn_linear, .out_features = 3));
    sonde_nn_scope_pop(model);
    sonde_nn_scope_pop(model);
    x = sonde_nn_relu(model, NULL, x);
    sonde_nn_scope_push(model, "block2");
    x = sonde_nn_relu(model, NULL, x);
    sonde_nn_scope_pop(model);
    sonde_nn_output(model, x);
    must(sonde_nn_model_status(model, &engine_diag));
    names = names_of(model, false);
    for (size_t i = 0; i < SONDE_COUNT_OF(there); i++) {
        expect_name(names, there[i], true);
    }
    free(names);
    sonde_nn_model_destroy(model);
}

static const struct {
    const char *name, *module, *op;
    sonde_role role;
    sonde_pass pass;
    int rank;
    int64_t shape[4];
} metadata[] = {
    {"input", "", "", SONDE_ROLE_INPUT, SONDE_PASS_NONE, 4, {2, 1, 12, 12}},
    {"conv1.weight", "conv1", "", SONDE_ROLE_WEIGHT, SONDE_PASS_NONE, 4, {3, 1, 3, 3}},
    {"conv1.bias", "conv1", "", SONDE_ROLE_BIAS, SONDE_PASS_NONE, 1, {3}},
    {"conv1_output_0",
     "conv1",
     "Conv2d",
     SONDE_ROLE_OUTPUT,
     SONDE_PASS_FORWARD,
     4,
     {2, 3, 10, 10}},
    {"pool_output_0",
     "pool",
     "MaxPool2d",
     SONDE_ROLE_OUTPUT,
     SONDE_PASS_FORWARD,
     4,
     {2, 3, 5, 5}},
    {"Reshape:0", "", "Reshape", SONDE_ROLE_ACTIVATION, SONDE_PASS_FORWARD, 2, {2, 36}},
    {"fc1_input_0",
     "fc1",
     "Reshape",
     SONDE_ROLE_ACTIVATION,
     SONDE_PASS_FORWARD,
     2,
     {2, 36}},
    {"relu_input_0",
     "relu",
     "Conv2d",
     SONDE_ROLE_ACTIVATION,
     SONDE_PASS_FORWARD,
     4,
     {2, 3, 10, 10}},
    {"conv1_input_0",
     "conv1",
     "",
     SONDE_ROLE_ACTIVATION,
     SONDE_PASS_NONE,
     4,
     {2, 1, 12, 12}},
    {"loss_output_0", "loss", "Nll", SONDE_ROLE_LOSS, SONDE_PASS_FORWARD, 0, {0}},
    {"Gradient___fc1.weight",
     "fc1",
     "LinearGradWeight",
     SONDE_ROLE_GRADIENT,
     SONDE_PASS_BACKWARD,
     2,
     {17, 36}},
    {"Gradient___relu_output_0",
     "relu",
     "MaxPool2dGrad",
     SONDE_ROLE_ACTIVATION_GRADIENT,
     SONDE_PASS_BACKWARD,
     4,
     {2, 3, 10, 10}},
    {"UpdatedVar___fc1.weight",
     "fc1",
     "Sgd",
     SONDE_ROLE_UPDATE,
     SONDE_PASS_UPDATE,
     2,
     {17, 36}},
};

/* The engine gives what modules read the roles of the table of names. */
static void inputs_of_modules_have_the_roles_of_their_names(void **state)
{
    engine_net net;
    sonde_nn_session *session = NULL;
    const sonde_catalogue *catalogue = NULL;
    int count = 0;

    (void)state;
    engine_cnn(&net, 2);
    must(sonde_nn_session_create(net.model, NULL, &engine_sgd, &session, &engine_diag));
    must(sonde_nn_session_compile(session, &engine_diag));
    catalogue = sonde_nn_session_catalogue(session);
    for (uint32_t id = 0; id < sonde_catalogue_count(catalogue); id++) {
        const sonde_tensor_info *info = sonde_catalogue_info(catalogue, id);

        if (strstr(info->name, "_input_") != NULL &&
            strncmp(info->name, "Gradient___", 11) != 0) {
            assert_int_equal(info->role,
                             sonde__observe_role_by_name(info->name, info->dtype));
            count++;
        }
    }
    assert_int_equal(count, 12);
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
}

static void metadata_says_what_a_value_is(void **state)
{
    engine_net net;
    sonde_nn_session *session = NULL;

    (void)state;
    engine_cnn(&net, 2);
    must(sonde_nn_session_create(net.model, NULL, &engine_sgd, &session, &engine_diag));
    must(sonde_nn_session_compile(session, &engine_diag));
    for (size_t i = 0; i < SONDE_COUNT_OF(metadata); i++) {
        const sonde_catalogue *catalogue = sonde_nn_session_catalogue(session);
        const sonde_tensor_info *info = NULL;
        uint32_t id = 0;

        must(sonde_catalogue_find(catalogue, metadata[i].name, &id, &engine_diag));
        info = sonde_catalogue_info(catalogue, id);
        assert_string_equal(info->module, metadata[i].module);
        assert_string_equal(info->op, metadata[i].op);
        assert_int_equal(info->role, metadata[i].role);
        assert_int_equal(info->pass, metadata[i].pass);
        assert_int_equal(info->dtype, SONDE_F32);
        assert_int_equal(info->rank, metadata[i].rank);
        assert_memory_equal(info->shape, metadata[i].shape,
                            (size_t)info->rank * sizeof *info->shape);
    }
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
}

/* --- shapes ------------------------------------------------------------------------- */

static void expect_value_shape(const sonde_nn_model *model, sonde_nn_value value,
                               int rank, const int64_t *want)
{
    int have = -1;
    const int64_t *shape = sonde_nn_value_shape(model, value, &have);

    must(sonde_nn_model_status(model, &engine_diag));
    assert_non_null(shape);
    assert_int_equal(have, rank);
    assert_memory_equal(shape, want, (size_t)rank * sizeof *want);
}

static void shapes_are_inferred(void **state)
{
    const int64_t shape[4] = {2, 4, 9, 8};
    sonde_nn_model *m = NULL;
    sonde_nn_value x = 0;
    int rank = 7;

    (void)state;
    must(sonde_nn_model_create(&m, &engine_diag));
    assert_null(sonde_nn_value_shape(m, 0, &rank));
    x = sonde_nn_input(m, SONDE_F32, 4, shape);
    expect_value_shape(m, x, 4, shape);
    expect_value_shape(m,
                       sonde_nn_conv2d(m, "a", x,
                                       SONDE_OPTIONS(sonde_nn_conv2d, .out_channels = 6,
                                                     .kernel_size = {3, 2}, .stride = {2},
                                                     .padding = {1, 0},
                                                     .dilation = {2, 3}, .groups = 2)),
                       4, (const int64_t[]){2, 6, 4, 3});
    expect_value_shape(
        m,
        sonde_nn_max_pool2d(m, NULL, x,
                            SONDE_OPTIONS(sonde_nn_pool2d, .kernel_size = {3, 2})),
        4, (const int64_t[]){2, 4, 3, 4});
    expect_value_shape(
        m,
        sonde_nn_max_pool2d(m, NULL, x,
                            SONDE_OPTIONS(sonde_nn_pool2d, .kernel_size = {3, 3},
                                          .stride = {1, 2}, .padding = {1, 1})),
        4, (const int64_t[]){2, 4, 9, 4});
    expect_value_shape(m, sonde_nn_flatten(m, NULL, x, 1), 2, (const int64_t[]){2, 288});
    expect_value_shape(m, sonde_nn_flatten(m, NULL, x, 0), 1, (const int64_t[]){576});
    expect_value_shape(m, sonde_nn_flatten(m, NULL, x, -2), 3,
                       (const int64_t[]){2, 4, 72});
    expect_value_shape(m, sonde_nn_reshape(m, NULL, x, 3, (const int64_t[]){0, -1, 2}), 3,
                       (const int64_t[]){2, 144, 2});
    expect_value_shape(m, engine_permute(m, NULL, x, (const int[]){3, 0, 2, 1}), 4,
                       (const int64_t[]){8, 2, 9, 4});
    expect_value_shape(m,
                       engine_reduce(m, "sum", NULL, x, (const int[]){-1, 1}, 2, false),
                       2, (const int64_t[]){2, 9});
    expect_value_shape(m, engine_reduce(m, "mean", NULL, x, (const int[]){1, 2}, 2, true),
                       4, (const int64_t[]){2, 1, 1, 8});
    expect_value_shape(m, engine_reduce(m, "mean", NULL, x, NULL, 0, false), 0, NULL);
    expect_value_shape(
        m,
        sonde_nn_add(m, NULL, x,
                     engine_reduce(m, "mean", NULL, x, (const int[]){0, 1}, 2, false)),
        4, shape);
    expect_value_shape(m, sonde_nn_softmax(m, NULL, x, -4), 4, shape);
    sonde_nn_model_destroy(m);
}

/* --- parameters --------------------------------------------------------------------- */

static void a_module_called_again_shares_its_parameters(void **state)
{
    const int64_t shape[2] = {2, 4};
    sonde_nn_model *m = NULL;
    sonde_nn_value x = 0;

    (void)state;
    must(sonde_nn_model_create(&m, &engine_diag));
    x = sonde_nn_input(m, SONDE_F32, 2, shape);
    for (int i = 0; i < 3; i++) {
        x = sonde_nn_linear(m, "fc", x,
                            SONDE_OPTIONS(sonde_nn_linear, .out_features = 4));
    }
    sonde_nn_output(m, x);
    must(sonde_nn_model_status(m, &engine_diag));
    assert_int_equal(sonde_nn_model_get_info(m).parameter_count, 2);
    assert_string_equal(sonde_nn_parameter(m, 0).name, "fc.weight");
    assert_string_equal(sonde_nn_parameter(m, 1).name, "fc.bias");
    sonde_nn_model_destroy(m);
}

static void expect_uniform(const sonde_nn_model *model, const char *name, double bound)
{
    size_t count = 0;
    const float *data = engine_parameter(model, name, &count);
    double lowest = bound, highest = -bound, sum = 0.0;

    for (size_t i = 0; i < count; i++) {
        lowest = fmin(lowest, (double)data[i]);
        highest = fmax(highest, (double)data[i]);
        sum += (double)data[i];
    }
    assert_true(lowest >= -bound * 1.000001 && highest <= bound * 1.000001);
    /* n draws miss the outer twentieth of a side with (39/40)^n */
    assert_true(count < 400 || (lowest < -0.95 * bound && highest > 0.95 * bound));
    assert_true(fabs(sum / (double)count) < 4.0 * bound / sqrt(3.0 * (double)count));
}

static void initial_values_are_pytorchs(void **state)
{
    const int64_t shape[4] = {1, 8, 5, 5};
    sonde_nn_model *m = NULL;
    sonde_nn_value x = 0;
    float *first = NULL, *again = NULL;
    size_t count = 0;
    const float *data = NULL;

    (void)state;
    must(sonde_nn_model_create(&m, &engine_diag));
    x = sonde_nn_input(m, SONDE_F32, 4, shape);
    x = sonde_nn_conv2d(m, "conv", x,
                        SONDE_OPTIONS(sonde_nn_conv2d, .out_channels = 64,
                                      .kernel_size = {3, 2}, .groups = 2));
    x = sonde_nn_group_norm(m, "norm", x,
                            SONDE_OPTIONS(sonde_nn_group_norm, .num_groups = 4));
    x = sonde_nn_flatten(m, NULL, x, 1);
    x = sonde_nn_linear(m, "fc", x, SONDE_OPTIONS(sonde_nn_linear, .out_features = 40));
    must(sonde_nn_model_status(m, &engine_diag));
    for (uint64_t seed = 0; seed < 3; seed++) {
        if (seed > 0) { /* a model starts as after seed 0 */
            sonde_nn_model_initialize(m, seed);
        }
        expect_uniform(m, "conv.weight", 1.0 / sqrt(4 * 3 * 2));
        expect_uniform(m, "conv.bias", 1.0 / sqrt(4 * 3 * 2));
        expect_uniform(m, "fc.weight", 1.0 / sqrt(64 * 3 * 4));
        expect_uniform(m, "fc.bias", 1.0 / sqrt(64 * 3 * 4));
        data = engine_parameter(m, "norm.weight", &count);
        assert_int_equal(count, 64);
        for (size_t i = 0; i < 64; i++) {
            assert_true(data[i] == 1.0F &&
                        engine_parameter(m, "norm.bias", NULL)[i] == 0.0F);
        }
        first = again;
        again = engine_weights(m);
        if (first != NULL) {
            assert_memory_not_equal(first, again, 64 * 24 * sizeof *first);
        }
        free(first);
    }
    sonde_nn_model_initialize(m, 2);
    first = engine_weights(m);
    assert_same_bits(first, again, engine_weight_count(m));
    free(first);
    free(again);
    sonde_nn_model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modules_and_functions_have_their_names),
        cmocka_unit_test(scopes_prefix_what_is_in_them),
        cmocka_unit_test(metadata_says_what_a_value_is),
        cmocka_unit_test(inputs_of_modules_have_the_roles_of_their_names),
        cmocka_unit_test(shapes_are_inferred),
        cmocka_unit_test(a_module_called_again_shares_its_parameters),
        cmocka_unit_test(initial_values_are_pytorchs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

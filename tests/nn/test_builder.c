/*
 * test_builder.c - names, shapes, shared parameters, initial values, and every mistake
 * that the builder knows, with its diagnostic.
 */
#include "engine.h"

#include <math.h>

/* The names of a catalogue in order, one in a line. */
static char *names_of(sonde_nn_model *model, bool training)
{
    sonde_nn_session *session = NULL;
    const sonde_catalogue *catalogue = NULL;
    char *text = calloc(1, 1 << 16);

    assert_non_null(text);
    must(training ? sonde_nn_training_session(model, NULL, NULL, &session, &engine_diag)
                  : sonde_nn_inference_session(model, NULL, &session, &engine_diag));
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

/* --- names
 * --------------------------------------------------------------------------------------
 */

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
    x = sonde_nn_conv2d(model, "conv1", x,
                        &(sonde_nn_conv2d_options){.out = 2, .kernel = {2}});
    x = sonde_nn_relu(model, NULL, x);
    x = sonde_nn_relu(model, NULL, x);
    sonde_nn_scope_push(model, "inner");
    x = sonde_nn_flatten(model, NULL, x, 1);
    x = sonde_nn_linear(model, "fc", x, &(sonde_nn_linear_options){.out = 3});
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

static void metadata_says_what_a_value_is(void **state)
{
    static const struct {
        const char *name, *module, *op;
        sonde_role role;
        sonde_pass pass;
        int rank;
        int64_t shape[4];
    } rows[] = {
        {"input", "", "", SONDE_ROLE_INPUT, SONDE_PASS_NONE, 4, {2, 1, 12, 12}},
        {"conv1.weight",
         "conv1",
         "",
         SONDE_ROLE_WEIGHT,
         SONDE_PASS_NONE,
         4,
         {3, 1, 3, 3}},
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
        {"Reshape:0",
         "",
         "Reshape",
         SONDE_ROLE_ACTIVATION,
         SONDE_PASS_FORWARD,
         2,
         {2, 36}},
        {"fc1_input_0",
         "fc1",
         "Reshape",
         SONDE_ROLE_INPUT,
         SONDE_PASS_FORWARD,
         2,
         {2, 36}},
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
    engine_net net;
    sonde_nn_session *session = NULL;

    (void)state;
    engine_cnn(&net, 2);
    must(sonde_nn_training_session(net.model, NULL, NULL, &session, &engine_diag));
    must(sonde_nn_session_compile(session, &engine_diag));
    for (size_t i = 0; i < SONDE_COUNT_OF(rows); i++) {
        const sonde_catalogue *catalogue = sonde_nn_session_catalogue(session);
        const sonde_tensor_info *info = NULL;
        uint32_t id = 0;

        must(sonde_catalogue_find(catalogue, rows[i].name, &id, &engine_diag));
        info = sonde_catalogue_info(catalogue, id);
        assert_string_equal(info->module, rows[i].module);
        assert_string_equal(info->op, rows[i].op);
        assert_int_equal(info->role, rows[i].role);
        assert_int_equal(info->pass, rows[i].pass);
        assert_int_equal(info->dtype, SONDE_F32);
        assert_int_equal(info->rank, rows[i].rank);
        assert_memory_equal(info->shape, rows[i].shape,
                            (size_t)info->rank * sizeof *info->shape);
    }
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
}

/* --- shapes
 * -------------------------------------------------------------------------------------
 */

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
                                       &(sonde_nn_conv2d_options){.out = 6,
                                                                  .kernel = {3, 2},
                                                                  .stride = {2},
                                                                  .padding = {1, 0},
                                                                  .dilation = {2, 3},
                                                                  .groups = 2}),
                       4, (const int64_t[]){2, 6, 4, 3});
    expect_value_shape(
        m, sonde_nn_max_pool2d(m, NULL, x, &(sonde_nn_pool2d_options){.kernel = {3, 2}}),
        4, (const int64_t[]){2, 4, 3, 4});
    expect_value_shape(m,
                       sonde_nn_max_pool2d(m, NULL, x,
                                           &(sonde_nn_pool2d_options){.kernel = {3, 3},
                                                                      .stride = {1, 2},
                                                                      .padding = {1, 1}}),
                       4, (const int64_t[]){2, 4, 9, 4});
    expect_value_shape(m, sonde_nn_flatten(m, NULL, x, 1), 2, (const int64_t[]){2, 288});
    expect_value_shape(m, sonde_nn_flatten(m, NULL, x, 0), 1, (const int64_t[]){576});
    expect_value_shape(m, sonde_nn_flatten(m, NULL, x, -2), 3,
                       (const int64_t[]){2, 4, 72});
    expect_value_shape(m, sonde_nn_reshape(m, NULL, x, 3, (const int64_t[]){0, -1, 2}), 3,
                       (const int64_t[]){2, 144, 2});
    expect_value_shape(m, sonde_nn_transpose(m, NULL, x, (const int[]){3, 0, 2, 1}), 4,
                       (const int64_t[]){8, 2, 9, 4});
    expect_value_shape(m, sonde_nn_sum(m, NULL, x, (const int[]){-1, 1}, 2, false), 2,
                       (const int64_t[]){2, 9});
    expect_value_shape(m, sonde_nn_mean(m, NULL, x, (const int[]){1, 2}, 2, true), 4,
                       (const int64_t[]){2, 1, 1, 8});
    expect_value_shape(m, sonde_nn_mean(m, NULL, x, NULL, 0, false), 0, NULL);
    expect_value_shape(
        m,
        sonde_nn_add(m, NULL, x,
                     sonde_nn_mean(m, NULL, x, (const int[]){0, 1}, 2, false)),
        4, shape);
    expect_value_shape(m, sonde_nn_softmax(m, NULL, x, -4), 4, shape);
    sonde_nn_model_destroy(m);
}

/* --- parameters
 * --------------------------------------------------------------------------------- */

static void a_module_called_again_shares_its_parameters(void **state)
{
    const int64_t shape[2] = {2, 4};
    sonde_nn_model *m = NULL;
    sonde_nn_value x = 0;

    (void)state;
    must(sonde_nn_model_create(&m, &engine_diag));
    x = sonde_nn_input(m, SONDE_F32, 2, shape);
    for (int i = 0; i < 3; i++) {
        x = sonde_nn_linear(m, "fc", x, &(sonde_nn_linear_options){.out = 4});
    }
    sonde_nn_output(m, x);
    must(sonde_nn_model_status(m, &engine_diag));
    assert_int_equal(sonde_nn_parameter_count(m), 2);
    assert_string_equal(sonde_nn_parameter_name(m, 0), "fc.weight");
    assert_string_equal(sonde_nn_parameter_name(m, 1), "fc.bias");
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
    x = sonde_nn_conv2d(
        m, "conv", x,
        &(sonde_nn_conv2d_options){.out = 64, .kernel = {3, 2}, .groups = 2});
    x = sonde_nn_group_norm(m, "norm", x, &(sonde_nn_group_norm_options){.groups = 4});
    x = sonde_nn_flatten(m, NULL, x, 1);
    x = sonde_nn_linear(m, "fc", x, &(sonde_nn_linear_options){.out = 40});
    must(sonde_nn_model_status(m, &engine_diag));
    for (uint64_t seed = 0; seed < 3; seed++) {
        if (seed > 0) { /* a model starts as after seed 0 */
            sonde_nn_model_initialise(m, seed);
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
    sonde_nn_model_initialise(m, 2);
    first = engine_weights(m);
    assert_same_bits(first, again, engine_weight_count(m));
    free(first);
    free(again);
    sonde_nn_model_destroy(m);
}

/* --- mistakes
 * ------------------------------------------------------------------------------------ */

typedef sonde_nn_value (*mistake)(sonde_nn_model *m, sonde_nn_value x,
                                  sonde_nn_value target);

/* x is (2, 4, 6, 6), target (2). Whatever is built after the mistake changes nothing. */
static void expect_mistake(mistake make, sonde_err err, const char *want, int line)
{
    const int64_t shape[4] = {2, 4, 6, 6};
    sonde_nn_model *m = NULL;
    sonde_nn_session *session = NULL;
    sonde_nn_value x = 0, target = 0;

    must(sonde_nn_model_create(&m, &engine_diag));
    x = sonde_nn_input(m, SONDE_F32, 4, shape);
    target = sonde_nn_input(m, SONDE_I64, 1, shape);
    assert_int_equal(make(m, x, target), 0);
    assert_int_equal(sonde_nn_relu(m, NULL, x), 0); /* the error sticks */
    assert_int_equal(sonde_nn_linear(m, "", 0, &(sonde_nn_linear_options){.out = -1}), 0);
    sonde_nn_output(m, x);
    sonde_nn_scope_pop(m);
    expect_err(err, sonde_nn_model_status(m, &engine_diag));
    engine_expect_line(want, __FILE__, line);
    expect_err(err, sonde_nn_training_session(m, NULL, NULL, &session, &engine_diag));
    engine_expect_line(want, __FILE__, line);
    sonde_nn_model_destroy(m);
}

#define MISTAKE(name, expression)                                                        \
    static sonde_nn_value name(sonde_nn_model *m, sonde_nn_value x,                      \
                               sonde_nn_value target)                                    \
    {                                                                                    \
        (void)x;                                                                         \
        (void)target;                                                                    \
        (void)m;                                                                         \
        return expression;                                                               \
    }
#define CONV(...) sonde_nn_conv2d(m, "conv", x, &(sonde_nn_conv2d_options){__VA_ARGS__})
#define POOL(...)                                                                        \
    sonde_nn_max_pool2d(m, "pool", x, &(sonde_nn_pool2d_options){__VA_ARGS__})
#define NORM(...)                                                                        \
    sonde_nn_group_norm(m, "norm", x, &(sonde_nn_group_norm_options){__VA_ARGS__})
#define LINEAR(name, of, n)                                                              \
    sonde_nn_linear(m, name, of, &(sonde_nn_linear_options){.out = n})

MISTAKE(conv_without_out, CONV(.kernel = {3}))
MISTAKE(conv_without_kernel, CONV(.out = 3))
MISTAKE(conv_groups, CONV(.out = 6, .kernel = {3}, .groups = 3))
MISTAKE(conv_groups_of_out, CONV(.out = 3, .kernel = {3}, .groups = 2))
MISTAKE(conv_too_large, CONV(.out = 3, .kernel = {7}))
MISTAKE(conv_negative_stride, CONV(.out = 3, .kernel = {3}, .stride = {-1}))
MISTAKE(conv_negative_padding, CONV(.out = 3, .kernel = {3}, .padding = {-1, 0}))
MISTAKE(conv_negative_dilation, CONV(.out = 3, .kernel = {3}, .dilation = {-1}))
MISTAKE(conv_huge, CONV(.out = INT64_MAX / 2, .kernel = {3}))
MISTAKE(conv_of_matrix,
        sonde_nn_conv2d(m, "conv", sonde_nn_flatten(m, NULL, x, 1),
                        &(sonde_nn_conv2d_options){.out = 1, .kernel = {1}}))
MISTAKE(conv_function,
        sonde_nn_conv2d(m, NULL, x, &(sonde_nn_conv2d_options){.out = 1, .kernel = {1}}))
MISTAKE(pool_without_kernel, POOL(.stride = {1, 1}))
MISTAKE(pool_padding, POOL(.kernel = {2, 2}, .padding = {2, 2}))
MISTAKE(pool_too_large, POOL(.kernel = {7, 7}))
MISTAKE(norm_without_groups, NORM(.eps = 0.1F))
MISTAKE(norm_groups, NORM(.groups = 3))
MISTAKE(linear_of_image, LINEAR("fc", x, 3))
MISTAKE(linear_without_out, LINEAR("fc", sonde_nn_flatten(m, NULL, x, 1), 0))
MISTAKE(linear_other_shape,
        LINEAR("fc", LINEAR("fc", sonde_nn_flatten(m, NULL, x, 1), 3), 3))
MISTAKE(another_kind_of_module,
        sonde_nn_group_norm(m, "conv", CONV(.out = 2, .kernel = {3}),
                            &(sonde_nn_group_norm_options){.groups = 1}))
MISTAKE(softmax_axis, sonde_nn_softmax(m, "s", x, 4))
MISTAKE(log_softmax_axis, sonde_nn_log_softmax(m, NULL, x, -5))
MISTAKE(flatten_axis, sonde_nn_flatten(m, "flat", x, 4))
MISTAKE(relu_of_labels, sonde_nn_relu(m, NULL, target))
MISTAKE(nll_of_images, sonde_nn_nll_loss(m, "loss", x, target))
MISTAKE(nll_of_floats, sonde_nn_nll_loss(m, "loss", sonde_nn_flatten(m, NULL, x, 1), x))
MISTAKE(entropy_of_images, sonde_nn_cross_entropy(m, "loss", x, target))
MISTAKE(add_shapes, sonde_nn_add(m, "sum", x, sonde_nn_flatten(m, NULL, x, 1)))
MISTAKE(mul_dtypes, sonde_nn_mul(m, NULL, x, target))
MISTAKE(reshape_count, sonde_nn_reshape(m, NULL, x, 2, (const int64_t[]){2, 100}))
MISTAKE(reshape_twice, sonde_nn_reshape(m, NULL, x, 2, (const int64_t[]){-1, -1}))
MISTAKE(reshape_negative, sonde_nn_reshape(m, NULL, x, 2, (const int64_t[]){-2, -1}))
MISTAKE(reshape_rank, sonde_nn_reshape(m, NULL, x, 9, NULL))
MISTAKE(transpose_twice, sonde_nn_transpose(m, NULL, x, (const int[]){0, 1, 1, 2}))
MISTAKE(transpose_range, sonde_nn_transpose(m, NULL, x, (const int[]){0, 1, 2, 4}))
MISTAKE(reduce_axis, sonde_nn_mean(m, NULL, x, (const int[]){4}, 1, false))
MISTAKE(no_value, sonde_nn_relu(m, "r", 0))
MISTAKE(no_second_value, sonde_nn_add(m, "r", x, 0))
MISTAKE(foreign_value, sonde_nn_relu(m, "r", 4711))
MISTAKE(foreign_to_conv,
        sonde_nn_conv2d(m, "c", 4711,
                        &(sonde_nn_conv2d_options){.out = 1, .kernel = {1}}))
MISTAKE(foreign_to_transpose, sonde_nn_transpose(m, "t", 4711, (const int[]){0, 1}))
MISTAKE(foreign_print, sonde_nn_print(m, 4711, "t", true, NULL))
MISTAKE(dotted_name, sonde_nn_relu(m, "a.b", x))
MISTAKE(slashed_name, sonde_nn_relu(m, "a/b", x))
MISTAKE(empty_name, sonde_nn_relu(m, "", x))
MISTAKE(input_rank, sonde_nn_input(m, SONDE_F32, 0, NULL))
MISTAKE(input_negative, sonde_nn_input(m, SONDE_F32, 2, (const int64_t[]){3, 0}))
MISTAKE(input_dtype, sonde_nn_input(m, (sonde_dtype)99, 1, (const int64_t[]){3}))
MISTAKE(input_huge, sonde_nn_input(m, SONDE_F32, 3,
                                   (const int64_t[]){INT64_MAX / 4, 1 << 20, 1 << 20}))
MISTAKE(popped, (sonde_nn_scope_pop(m), 0))
MISTAKE(scope_dotted, (sonde_nn_scope_push(m, "a.b"), 0))
MISTAKE(scope_empty, (sonde_nn_scope_push(m, ""), 0))
MISTAKE(vector_loss, (sonde_nn_loss(m, x), 0))
MISTAKE(two_losses, (sonde_nn_loss(m, sonde_nn_sum(m, "a", x, NULL, 0, false)),
                     sonde_nn_loss(m, sonde_nn_sum(m, "b", x, NULL, 0, false)), 0))
MISTAKE(foreign_output, (sonde_nn_output(m, 4711), 0))
MISTAKE(foreign_loss, (sonde_nn_loss(m, 4711), 0))

#define expect_that(make, err, want) expect_mistake(make, err, want, __LINE__)

static void mistakes_of_layers_are_told(void **state)
{
    (void)state;
    expect_that(conv_without_out, SONDE_EINVAL,
                "conv: a conv2d with out 0, kernel (3, 3), groups 1 (expected out, "
                "kernel and groups of at least 1)");
    expect_that(conv_without_kernel, SONDE_EINVAL,
                "conv: a conv2d with out 3, kernel (0, 0), groups 1 (expected out, "
                "kernel and groups of at least 1)");
    expect_that(conv_groups, SONDE_ESHAPE,
                "conv: a conv2d over (2, 4, 6, 6) in 3 groups (expected (N, C, H, W) "
                "with C divisible by groups)");
    expect_that(conv_groups_of_out, SONDE_EINVAL,
                "conv/Conv2d: 2 groups of 4 input and 3 output channels (expected a "
                "divisor of both channel counts)");
    expect_that(
        conv_too_large, SONDE_ESHAPE,
        "conv/Conv2d: kernel spans 7 in height (expected at most the padded input's 6)");
    expect_that(conv_negative_stride, SONDE_EINVAL,
                "conv/Conv2d: stride is -1 (expected 1 to 16777216)");
    expect_that(conv_negative_padding, SONDE_EINVAL,
                "conv/Conv2d: padding is -1 (expected 0 to 16777216)");
    expect_that(conv_negative_dilation, SONDE_EINVAL,
                "conv/Conv2d: dilation is -1 (expected 1 to 16777216)");
    expect_that(conv_huge, SONDE_ESHAPE,
                "conv.weight: a tensor of impossible size, float32 (4611686018427387903, "
                "4, 3, 3)");
    expect_that(conv_of_matrix, SONDE_ESHAPE,
                "conv: a conv2d over (2, 144) in 1 groups (expected (N, C, H, W) with C "
                "divisible by groups)");
    expect_that(conv_function, SONDE_EINVAL,
                "weight: a layer with parameters needs a name (expected a name)");
    expect_that(pool_without_kernel, SONDE_EINVAL,
                "pool/MaxPool2d: kernel height is 0 (expected 1 to 16777216)");
    expect_that(pool_padding, SONDE_EINVAL,
                "pool/MaxPool2d: padding 2 around a window of 2 (expected at most half "
                "of the window)");
    expect_that(pool_too_large, SONDE_ESHAPE,
                "pool/MaxPool2d: kernel spans 7 in height (expected at most the padded "
                "input's 6)");
    expect_that(
        norm_without_groups, SONDE_EINVAL,
        "norm/GroupNorm: 0 groups of 4 channels (expected a divisor of the channels)");
    expect_that(
        norm_groups, SONDE_EINVAL,
        "norm/GroupNorm: 3 groups of 4 channels (expected a divisor of the channels)");
    expect_that(linear_of_image, SONDE_ESHAPE,
                "fc: a linear layer over (2, 4, 6, 6) (expected (N, features): flatten "
                "it first)");
    expect_that(linear_without_out, SONDE_EINVAL,
                "fc: a linear layer with out 0 (expected at least 1)");
    expect_that(linear_other_shape, SONDE_ESHAPE,
                "fc.weight: the module was called before with another shape (expected "
                "the shape of its first call)");
    expect_that(another_kind_of_module, SONDE_ESHAPE,
                "conv.weight: the module was called before with another shape (expected "
                "the shape of its first call)");
}

static void mistakes_of_functions_are_told(void **state)
{
    (void)state;
    expect_that(softmax_axis, SONDE_EINVAL,
                "s/Softmax: axis 4 of a tensor of rank 4 (expected -4 to 3)");
    expect_that(log_softmax_axis, SONDE_EINVAL,
                "LogSoftmax: axis -5 of a tensor of rank 4 (expected -4 to 3)");
    expect_that(flatten_axis, SONDE_EINVAL,
                "flat: axis 4 of a tensor of rank 4 (expected an axis of the input)");
    expect_that(relu_of_labels, SONDE_EDTYPE,
                "Relu: input has dtype int64 (expected float32 or float64)");
    expect_that(
        nll_of_images, SONDE_ESHAPE,
        "loss/Nll: input is float32 (2, 4, 6, 6) (expected log-probabilities (N, C))");
    expect_that(nll_of_floats, SONDE_ESHAPE,
                "loss/Nll: target is float32 (2, 4, 6, 6) (expected int64 (2))");
    expect_that(
        entropy_of_images, SONDE_ESHAPE,
        "loss/Nll: input is float32 (2, 4, 6, 6) (expected log-probabilities (N, C))");
    expect_that(add_shapes, SONDE_ESHAPE,
                "sum/Add: float32 (2, 4, 6, 6) with float32 (2, 144) (expected dims of 1 "
                "or alike, aligned at the end)");
    expect_that(mul_dtypes, SONDE_EDTYPE,
                "Mul: second operand has dtype int64 (expected float32)");
    expect_that(reshape_count, SONDE_ESHAPE,
                "Reshape: float32 (2, 4, 6, 6) as (2, 100) (expected as many elements "
                "before as after)");
    expect_that(reshape_twice, SONDE_EINVAL,
                "Reshape: target dim 1 is -1 (expected at most one -1, else positive)");
    expect_that(reshape_negative, SONDE_EINVAL,
                "Reshape: target dim 0 is -2 (expected at most one -1, else positive)");
    expect_that(reshape_rank, SONDE_ESHAPE,
                "Reshape: 9 dimensions (expected at most 8 dimensions)");
    expect_that(transpose_twice, SONDE_EINVAL,
                "Transpose: permutation (0, 1, 1, 2) (expected each dim once)");
    expect_that(transpose_range, SONDE_EINVAL,
                "Transpose: permutation (0, 1, 2, 4) (expected each dim once)");
    expect_that(reduce_axis, SONDE_EINVAL,
                "Reduce: axis 4 of a tensor of rank 4 (expected an axis of the input)");
}

static void mistakes_of_values_and_names_are_told(void **state)
{
    (void)state;
    expect_that(no_value, SONDE_EINVAL,
                "r: input 0 is missing (expected a value of this model)");
    expect_that(no_second_value, SONDE_EINVAL,
                "r: input 1 is missing (expected a value of this model)");
    expect_that(foreign_value, SONDE_EINVAL,
                "r: input 0 is value 4711 (expected a value of this model)");
    expect_that(foreign_to_conv, SONDE_EINVAL,
                "c: value 4711 (expected a value of this model)");
    expect_that(foreign_to_transpose, SONDE_EINVAL,
                "t: input 0 is value 4711 (expected a value of this model)");
    expect_that(foreign_print, SONDE_EINVAL,
                "input 0 is value 4711 (expected a value of this model)");
    expect_that(dotted_name, SONDE_EINVAL,
                "a.b: not a name for a layer (expected letters, digits, _ and -)");
    expect_that(slashed_name, SONDE_EINVAL,
                "a/b: not a name for a layer (expected letters, digits, _ and -)");
    expect_that(empty_name, SONDE_EINVAL,
                "not a name for a layer (expected letters, digits, _ and -)");
    expect_that(input_rank, SONDE_ESHAPE,
                "input/2: an input of 0 dimensions (expected 1 to 8 dimensions)");
    expect_that(input_negative, SONDE_ESHAPE,
                "input/2: dimension 1 is 0 (expected at least 1)");
    expect_that(input_dtype, SONDE_EDTYPE, "input/2: dtype 99 (expected a sonde_dtype)");
    expect_that(input_huge, SONDE_ESHAPE,
                "input/2: a tensor of impossible size, float32 (2305843009213693951, "
                "1048576, 1048576)");
    expect_that(popped, SONDE_ESTATE, "no scope is open (expected a push for every pop)");
    expect_that(scope_dotted, SONDE_EINVAL,
                "a.b: not a name for a scope (expected a name without dots)");
    expect_that(scope_empty, SONDE_EINVAL,
                "not a name for a scope (expected a name without dots)");
    expect_that(vector_loss, SONDE_ESHAPE,
                "input: the loss has more than one element (expected a scalar)");
    expect_that(two_losses, SONDE_ESTATE,
                "b_output_0: the model has a loss already (expected one final loss)");
    expect_that(foreign_output, SONDE_EINVAL,
                "output: value 4711 (expected a value of this model)");
    expect_that(foreign_loss, SONDE_EINVAL,
                "loss: value 4711 (expected a value of this model)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modules_and_functions_have_their_names),
        cmocka_unit_test(scopes_prefix_what_is_in_them),
        cmocka_unit_test(metadata_says_what_a_value_is),
        cmocka_unit_test(shapes_are_inferred),
        cmocka_unit_test(a_module_called_again_shares_its_parameters),
        cmocka_unit_test(initial_values_are_pytorchs),
        cmocka_unit_test(mistakes_of_layers_are_told),
        cmocka_unit_test(mistakes_of_functions_are_told),
        cmocka_unit_test(mistakes_of_values_and_names_are_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

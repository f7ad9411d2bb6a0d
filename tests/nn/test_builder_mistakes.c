/*
 * test_builder_mistakes.c - every mistake that the builder knows, with its diagnostic;
 * and that the first one sticks.
 */
#include "engine.h"

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
    assert_int_equal(
        sonde_nn_linear(m, "", 0, SONDE_OPTIONS(sonde_nn_linear, .out_features = -1)), 0);
    sonde_nn_output(m, x);
    sonde_nn_scope_pop(m);
    expect_err(err, sonde_nn_model_status(m, &engine_diag));
    engine_expect_line(want, __FILE__, line);
    expect_err(err,
               sonde_nn_session_create(m, NULL, &engine_sgd, &session, &engine_diag));
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
#define CONV(...)                                                                        \
    sonde_nn_conv2d(m, "conv", x, SONDE_OPTIONS(sonde_nn_conv2d, __VA_ARGS__))
#define POOL(...)                                                                        \
    sonde_nn_max_pool2d(m, "pool", x, SONDE_OPTIONS(sonde_nn_pool2d, __VA_ARGS__))
#define NORM(...)                                                                        \
    sonde_nn_group_norm(m, "norm", x, SONDE_OPTIONS(sonde_nn_group_norm, __VA_ARGS__))
#define LINEAR(name, input, n)                                                           \
    sonde_nn_linear(m, name, input, SONDE_OPTIONS(sonde_nn_linear, .out_features = n))

MISTAKE(conv_without_out, CONV(.kernel_size = {3}))
MISTAKE(conv_without_kernel, CONV(.out_channels = 3))
MISTAKE(conv_groups, CONV(.out_channels = 6, .kernel_size = {3}, .groups = 3))
MISTAKE(conv_groups_of_out, CONV(.out_channels = 3, .kernel_size = {3}, .groups = 2))
MISTAKE(conv_too_large, CONV(.out_channels = 3, .kernel_size = {7}))
MISTAKE(conv_negative_stride, CONV(.out_channels = 3, .kernel_size = {3}, .stride = {-1}))
MISTAKE(conv_negative_padding,
        CONV(.out_channels = 3, .kernel_size = {3}, .padding = {-1, 0}))
MISTAKE(conv_negative_dilation,
        CONV(.out_channels = 3, .kernel_size = {3}, .dilation = {-1}))
MISTAKE(conv_huge, CONV(.out_channels = INT64_MAX / 2, .kernel_size = {3}))
MISTAKE(conv_of_matrix, sonde_nn_conv2d(m, "conv", sonde_nn_flatten(m, NULL, x, 1),
                                        SONDE_OPTIONS(sonde_nn_conv2d, .out_channels = 1,
                                                      .kernel_size = {1})))
MISTAKE(conv_function, sonde_nn_conv2d(m, NULL, x,
                                       SONDE_OPTIONS(sonde_nn_conv2d, .out_channels = 1,
                                                     .kernel_size = {1})))
MISTAKE(pool_without_kernel, POOL(.stride = {1, 1}))
MISTAKE(pool_padding, POOL(.kernel_size = {2, 2}, .padding = {2, 2}))
MISTAKE(pool_too_large, POOL(.kernel_size = {7, 7}))
MISTAKE(norm_without_groups, NORM(.eps = 0.1F))
MISTAKE(norm_groups, NORM(.num_groups = 3))
MISTAKE(linear_of_numbers,
        LINEAR("fc", sonde_nn_reshape(m, NULL, x, 1, (const int64_t[]){-1}), 3))
MISTAKE(linear_without_out, LINEAR("fc", sonde_nn_flatten(m, NULL, x, 1), 0))
MISTAKE(linear_other_shape,
        LINEAR("fc", LINEAR("fc", sonde_nn_flatten(m, NULL, x, 1), 3), 3))
MISTAKE(another_kind_of_module,
        sonde_nn_group_norm(m, "conv", CONV(.out_channels = 2, .kernel_size = {3}),
                            SONDE_OPTIONS(sonde_nn_group_norm, .num_groups = 1)))
MISTAKE(softmax_axis, sonde_nn_softmax(m, "s", x, 4))
MISTAKE(log_softmax_axis, sonde_nn_log_softmax(m, NULL, x, -5))
MISTAKE(flatten_axis, sonde_nn_flatten(m, "flat", x, 4))
MISTAKE(relu_of_labels, sonde_nn_relu(m, NULL, target))
MISTAKE(nll_of_images, sonde_nn_nll_loss(m, "loss", x, target))
MISTAKE(nll_of_floats, sonde_nn_nll_loss(m, "loss", sonde_nn_flatten(m, NULL, x, 1), x))
MISTAKE(entropy_of_images, sonde_nn_cross_entropy(m, "loss", x, target, NULL))
MISTAKE(entropy_of_no_weights,
        sonde_nn_cross_entropy(m, "loss", sonde_nn_flatten(m, NULL, x, 1), target,
                               SONDE_OPTIONS(sonde_nn_cross_entropy, .weights = 144)))
MISTAKE(entropy_of_uncounted_weights,
        sonde_nn_cross_entropy(m, "loss", sonde_nn_flatten(m, NULL, x, 1), target,
                               SONDE_OPTIONS(sonde_nn_cross_entropy,
                                             .weight = (const float[]){1.0F})))
MISTAKE(add_shapes, sonde_nn_add(m, "sum", x, sonde_nn_flatten(m, NULL, x, 1)))
MISTAKE(mul_dtypes, engine_mul(m, NULL, x, target))
MISTAKE(reshape_count, sonde_nn_reshape(m, NULL, x, 2, (const int64_t[]){2, 100}))
MISTAKE(reshape_twice, sonde_nn_reshape(m, NULL, x, 2, (const int64_t[]){-1, -1}))
MISTAKE(reshape_negative, sonde_nn_reshape(m, NULL, x, 2, (const int64_t[]){-2, -1}))
MISTAKE(reshape_rank, sonde_nn_reshape(m, NULL, x, 9, NULL))
MISTAKE(transpose_twice, engine_permute(m, NULL, x, (const int[]){0, 1, 1, 2}))
MISTAKE(transpose_range, engine_permute(m, NULL, x, (const int[]){0, 1, 2, 4}))
MISTAKE(reduce_axis, engine_reduce(m, "mean", NULL, x, (const int[]){4}, 1, false))
MISTAKE(no_value, sonde_nn_relu(m, "r", 0))
MISTAKE(no_second_value, sonde_nn_add(m, "r", x, 0))
MISTAKE(foreign_value, sonde_nn_relu(m, "r", 4711))
MISTAKE(foreign_to_conv, sonde_nn_conv2d(m, "c", 4711,
                                         SONDE_OPTIONS(sonde_nn_conv2d, .out_channels = 1,
                                                       .kernel_size = {1})))
MISTAKE(foreign_to_transpose, engine_permute(m, "t", 4711, (const int[]){0, 1}))
MISTAKE(foreign_print, sonde_nn_print(m, 4711, "t", true, NULL))
MISTAKE(dotted_name, sonde_nn_relu(m, "a.b", x))
MISTAKE(slashed_name, sonde_nn_relu(m, "a/b", x))
MISTAKE(spaced_name, sonde_nn_relu(m, "a b", x))
MISTAKE(starred_name, sonde_nn_relu(m, "x*y", x))
MISTAKE(accented_name, sonde_nn_relu(m, "\xc3\xa9", x))
MISTAKE(quoted_name, sonde_nn_relu(m, "a\"b\\c", x))
MISTAKE(gradient_name, sonde_nn_relu(m, "Gradient___x", x))
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
MISTAKE(two_losses,
        (sonde_nn_loss(m, engine_reduce(m, "sum", "a", x, NULL, 0, false)),
         sonde_nn_loss(m, engine_reduce(m, "sum", "b", x, NULL, 0, false)), 0))
MISTAKE(foreign_output, (sonde_nn_output(m, 4711), 0))
MISTAKE(foreign_loss, (sonde_nn_loss(m, 4711), 0))

#define expect_that(make, err, want) expect_mistake(make, err, want, __LINE__)

static void mistakes_of_layers_are_told(void **state)
{
    (void)state;
    expect_that(conv_without_out, SONDE_EINVAL,
                "conv: out_channels is 0 (expected a whole number from 1 to 16777216)");
    expect_that(conv_without_kernel, SONDE_EINVAL,
                "conv: kernel_size is 0 (expected a whole number from 1 to 16777216)");
    expect_that(conv_groups, SONDE_EINVAL,
                "conv: 3 groups of 4 input and 6 output channels (expected a divisor of "
                "both channel counts)");
    expect_that(conv_groups_of_out, SONDE_EINVAL,
                "conv: 2 groups of 4 input and 3 output channels (expected a "
                "divisor of both channel counts)");
    expect_that(
        conv_too_large, SONDE_ESHAPE,
        "conv/Conv2d: kernel spans 7 in height (expected at most the padded input's 6)");
    expect_that(conv_negative_stride, SONDE_EINVAL,
                "conv: stride is -1 (expected a whole number from 1 to 16777216)");
    expect_that(conv_negative_padding, SONDE_EINVAL,
                "conv: padding is -1 (expected a whole number from 0 to 16777216)");
    expect_that(conv_negative_dilation, SONDE_EINVAL,
                "conv: dilation is -1 (expected a whole number from 1 to 16777216)");
    expect_that(
        conv_huge, SONDE_EINVAL,
        "conv: out_channels is 4.61169e+18 (expected a whole number from 1 to 16777216)");
    expect_that(conv_of_matrix, SONDE_ESHAPE,
                "conv: input is float32 (2, 144) (expected (N, C, H, W))");
    expect_that(
        conv_function, SONDE_EINVAL,
        "conv2d: a layer with parameters (weight) needs a name (expected a name)");
    expect_that(pool_without_kernel, SONDE_EINVAL,
                "pool: kernel_size is 0 (expected a whole number from 1 to 16777216)");
    expect_that(pool_padding, SONDE_EINVAL,
                "pool/MaxPool2d: padding 2 around a window of 2 (expected at most half "
                "of the window)");
    expect_that(pool_too_large, SONDE_ESHAPE,
                "pool/MaxPool2d: kernel spans 7 in height (expected at most the padded "
                "input's 6)");
    expect_that(norm_without_groups, SONDE_EINVAL,
                "norm: num_groups is 0 (expected a whole number from 1 to 16777216)");
    expect_that(
        norm_groups, SONDE_EINVAL,
        "norm/GroupNorm: 3 groups of 4 channels (expected a divisor of the channels)");
    expect_that(linear_of_numbers, SONDE_ESHAPE,
                "fc: a linear layer over float32 (288) (expected (N, ..., features))");
    expect_that(linear_without_out, SONDE_EINVAL,
                "fc: out_features is 0 (expected a whole number from 1 to 16777216)");
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
                "flat: axis 4 of a tensor of rank 4 (expected -4 to 3)");
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
    expect_that(entropy_of_no_weights, SONDE_EINVAL,
                "loss: 144 weights at NULL (expected weight and its count, weights)");
    expect_that(entropy_of_uncounted_weights, SONDE_EINVAL,
                "loss: 0 weights at a pointer (expected weight and its count, weights)");
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
                "Reduce: axis 4 of a tensor of rank 4 (expected -4 to 3)");
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
                "t: value 4711 (expected a value of this model)");
    expect_that(foreign_print, SONDE_EINVAL,
                "input 0 is value 4711 (expected a value of this model)");
    expect_that(dotted_name, SONDE_EINVAL,
                "a.b: not a name for a layer (expected letters, digits, _ and -)");
    expect_that(slashed_name, SONDE_EINVAL,
                "a/b: not a name for a layer (expected letters, digits, _ and -)");
    expect_that(spaced_name, SONDE_EINVAL,
                "a b: not a name for a layer (expected letters, digits, _ and -)");
    expect_that(starred_name, SONDE_EINVAL,
                "x*y: not a name for a layer (expected letters, digits, _ and -)");
    expect_that(accented_name, SONDE_EINVAL,
                "\xc3\xa9: not a name for a layer (expected letters, digits, _ and -)");
    expect_that(quoted_name, SONDE_EINVAL,
                "a\"b\\c: not a name for a layer (expected letters, digits, _ and -)");
    expect_that(gradient_name, SONDE_EINVAL,
                "Gradient___x: not a name for a layer (expected no ___, which is part of "
                "names of gradients)");
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
        cmocka_unit_test(mistakes_of_layers_are_told),
        cmocka_unit_test(mistakes_of_functions_are_told),
        cmocka_unit_test(mistakes_of_values_and_names_are_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

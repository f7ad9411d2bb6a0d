/*
 * test_ops_refusals.c - what shape rules refuse, and in which words.
 */
#include "nn/ops_harness.h"
#include "base/macros.h"

/* Shapes: F(2, 3) is float32 (2, 3), T(I64, 2) int64 (2). */
#define T(type, ...)                                                                     \
    {                                                                                    \
        .dtype = SONDE_##type,                                                           \
        .rank = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .dim = {             \
            __VA_ARGS__                                                                  \
        }                                                                                \
    }
#define F(...) T(F32, __VA_ARGS__)
#define WINDOW(k, s, p, d)                                                               \
    .kernel = {k, k}, .stride = {s, s}, .padding = {p, p}, .dilation = {d, d}

enum { MOST = 5 };

typedef struct refusal {
    const sonde__op_kind *kind;
    int in_count;
    sonde__op_shape in[MOST];
    sonde__op_attrs attrs;
    sonde_err err;
    const char *found, *expected; /* how diag has to read */
} refusal;

/* clang-format off */
static const refusal of_windows[] = {
    {&sonde__op_conv2d, 2, {T(I64, 1, 1, 4, 4), F(1, 1, 3, 3)},
     {.window = {WINDOW(0, 1, 0, 1), .groups = 1}},
     SONDE_EDTYPE, "input has dtype int64", "float32 or float64"},
    {&sonde__op_conv2d, 2, {F(1, 4, 4), F(1, 1, 3, 3)}, {.window = {WINDOW(0, 1, 0, 1), .groups = 1}},
     SONDE_ESHAPE, "input is float32 (1, 4, 4)", "(N, C, H, W)"},
    {&sonde__op_conv2d, 2, {F(1, 1, 4, 4), T(F64, 1, 1, 3, 3)},
     {.window = {WINDOW(0, 1, 0, 1), .groups = 1}},
     SONDE_EDTYPE, "weight has dtype float64", "float32"},
    {&sonde__op_conv2d, 2, {F(1, 3, 4, 4), F(2, 2, 3, 3)},
     {.window = {WINDOW(0, 1, 0, 1), .groups = 1}},
     SONDE_ESHAPE, "input has 3 channels", "2 channels in 1 group"},
    {&sonde__op_conv2d, 2, {F(1, 3, 4, 4), F(4, 1, 3, 3)},
     {.window = {WINDOW(0, 1, 0, 1), .groups = 2}},
     SONDE_EINVAL, "2 groups of 3 input and 4 output channels",
     "a divisor of both channel counts"},
    {&sonde__op_conv2d, 2, {F(1, 3, 4, 4), F(4, 3, 3, 3)},
     {.window = {WINDOW(0, 1, 0, 1), .groups = 0}},
     SONDE_EINVAL, "0 groups of 3 input and 4 output channels",
     "a divisor of both channel counts"},
    {&sonde__op_conv2d, 3, {F(1, 3, 4, 4), F(4, 3, 3, 3), F(3)},
     {.window = {WINDOW(0, 1, 0, 1), .groups = 1}},
     SONDE_ESHAPE, "bias is float32 (3)", "float32 (4)"},
    {&sonde__op_conv2d, 2, {F(1, 1, 4, 4), F(1, 1, 5, 3)},
     {.window = {WINDOW(0, 1, 0, 1), .groups = 1}},
     SONDE_ESHAPE, "kernel spans 5 in height", "at most the padded input's 4"},
    {&sonde__op_conv2d, 2, {F(1, 1, 9, 4), F(1, 1, 3, 3)},
     {.window = {WINDOW(0, 1, 1, 4), .groups = 1}},
     SONDE_ESHAPE, "kernel spans 9 in width", "at most the padded input's 6"},
    {&sonde__op_conv2d, 2, {F(1, 1, 4, 4), F(1, 1, 3, 3)},
     {.window = {WINDOW(0, 0, 0, 1), .groups = 1}},
     SONDE_EINVAL, "stride is 0", "1 to 16777216"},
    {&sonde__op_conv2d, 2, {F(1, 1, 4, 4), F(1, 1, 3, 3)},
     {.window = {WINDOW(0, 1, -1, 1), .groups = 1}},
     SONDE_EINVAL, "padding is -1", "0 to 16777216"},
    {&sonde__op_conv2d, 2, {F(1, 1, 4, 4), F(1, 1, 3, 3)},
     {.window = {WINDOW(0, 1, 0, 0), .groups = 1}},
     SONDE_EINVAL, "dilation is 0", "1 to 16777216"},
    {&sonde__op_conv2d, 2, {F(1, 1, 4, 4), F(1, 1, 0, 3)},
     {.window = {WINDOW(0, 1, 0, 1), .groups = 1}},
     SONDE_EINVAL, "kernel height is 0", "1 to 16777216"},
    {&sonde__op_conv2d_grad_input, 2, {F(1, 1, 3, 3), F(1, 1, 3, 3)},
     {.window = {WINDOW(0, 1, 0, 1), .groups = 1, .rank = 4, .dims = {1, 1, 4, 4}}},
     SONDE_ESHAPE, "output gradient is float32 (1, 1, 3, 3)", "float32 (1, 1, 2, 2)"},
    {&sonde__op_conv2d_grad_weight, 2, {F(1, 1, 2, 2), F(1, 1, 4, 4)},
     {.window = {WINDOW(0, 1, 0, 1), .groups = 1, .rank = 3, .dims = {1, 3, 3}}},
     SONDE_EINVAL, "weight has rank 3", "4"},
    {&sonde__op_conv2d_grad_weight, 2, {F(1, 1, 2, 2), F(1, 1, 4, 4)},
     {.window = {WINDOW(0, 1, 0, 1), .groups = 1, .rank = 4, .dims = {1, 1, -3, 3}}},
     SONDE_EINVAL, "weight would be (1, 1, -3, 3)", "no negative dimension"},
    {&sonde__op_max_pool2d, 1, {F(1, 1, 4, 4)}, {.window = {WINDOW(2, 2, 2, 1)}},
     SONDE_EINVAL, "padding 2 around a window of 2", "at most half of the window"},
    {&sonde__op_max_pool2d, 1, {F(1, 1, 40, 40)}, {.window = {WINDOW(17, 1, 0, 1)}},
     SONDE_EUNSUPPORTED, "a window of 17 x 17", "at most 256 elements"},
    {&sonde__op_max_pool2d, 1, {T(U8, 1, 1, 4, 4)}, {.window = {WINDOW(2, 2, 0, 1)}},
     SONDE_EDTYPE, "input has dtype uint8", "float32 or float64"},
    {&sonde__op_max_pool2d_grad, 2, {F(1, 1, 2, 2), F(1, 1, 2, 2)},
     {.window = {WINDOW(2, 2, 0, 1), .rank = 4, .dims = {1, 1, 4, 4}}},
     SONDE_EDTYPE, "index is float32 (1, 1, 2, 2)", "uint8 (1, 1, 2, 2)"},
    {&sonde__op_conv2d_relu_pool, 2, {F(1, 1, 3, 4), F(1, 1, 3, 3)},
     {.window = {WINDOW(0, 1, 0, 1), .groups = 1}},
     SONDE_ESHAPE, "kernel spans 2 in height", "at most the padded input's 1"},
    {&sonde__op_pool_relu_conv_grad, 4,
     {F(1, 1, 1, 1), T(U8, 1, 1, 1, 2), F(1, 1, 1, 1), F(1, 1, 4, 4)},
     {.window = {WINDOW(0, 1, 0, 1), .groups = 1, .rank = 4, .dims = {1, 1, 3, 3}}},
     SONDE_ESHAPE, "index is uint8 (1, 1, 1, 2)", "uint8 (1, 1, 1, 1)"},
};

static const refusal of_matrices[] = {
    {&sonde__op_linear, 2, {F(2, 3), F(4, 5)}, {.p = 0},
     SONDE_ESHAPE, "input is float32 (2, 3), weight is float32 (4, 5)",
     "3 in dimension 1 of the weight"},
    {&sonde__op_linear, 2, {F(2, 3, 1), F(4, 3)}, {.p = 0},
     SONDE_ESHAPE, "input is float32 (2, 3, 1)", "(N, K)"},
    {&sonde__op_linear, 3, {F(2, 3), F(4, 3), F(1, 4)}, {.p = 0},
     SONDE_ESHAPE, "bias is float32 (1, 4)", "float32 (4)"},
    {&sonde__op_linear, 2, {F(1LL << 40, 0), F(1LL << 40, 0)}, {.p = 0},
     SONDE_ESHAPE, "output of impossible size, float32 (1099511627776, 1099511627776)",
     ""},
    {&sonde__op_linear_grad_input, 2, {F(2, 3), F(4, 5)}, {.p = 0},
     SONDE_ESHAPE, "output gradient is float32 (2, 3), weight is float32 (4, 5)",
     "3 in dimension 0 of the weight"},
    {&sonde__op_linear_grad_weight, 2, {F(2, 3), F(4, 5)}, {.p = 0},
     SONDE_ESHAPE, "output gradient is float32 (2, 3), input is float32 (4, 5)",
     "2 in dimension 0 of the input"},
    {&sonde__op_linear_grad_weight_sgd, 3, {F(3, 4), F(2, 3), F(2, 5)}, {.p = 0},
     SONDE_ESHAPE, "gradient is float32 (3, 5)", "float32 (3, 4)"},
    {&sonde__op_channel_sum, 1, {F(3)}, {.p = 0},
     SONDE_ESHAPE, "output gradient is float32 (3)", "(N, C, ...)"},
    {&sonde__op_group_norm, 1, {F(2, 6, 3)}, {.norm = {.groups = 4}},
     SONDE_EINVAL, "4 groups of 6 channels", "a divisor of the channels"},
    {&sonde__op_group_norm, 2, {F(2, 6, 3), F(3)}, {.norm = {.groups = 3}},
     SONDE_ESHAPE, "gamma is float32 (3)", "float32 (6)"},
    {&sonde__op_group_norm_grad, 4, {F(2, 6), F(2, 6), F(2, 2), F(2, 3)}, {.norm = {.groups = 3}},
     SONDE_ESHAPE, "mean is float32 (2, 2)", "float32 (2, 3)"},
    {&sonde__op_relu_grad, 2, {F(2, 3), F(3, 2)}, {.p = 0},
     SONDE_ESHAPE, "output gradient is float32 (2, 3)", "float32 (3, 2)"},
    {&sonde__op_sigmoid, 1, {T(I64, 5)}, {.p = 0},
     SONDE_EDTYPE, "input has dtype int64", "float32 or float64"},
    {&sonde__op_tanh_grad, 2, {F(2, 3), F(3, 2)}, {.p = 0},
     SONDE_ESHAPE, "output gradient is float32 (2, 3)", "float32 (3, 2)"},
    {&sonde__op_softmax, 1, {F(2, 3)}, {.along = {.axis = 2}},
     SONDE_EINVAL, "axis 2 of a tensor of rank 2", "-2 to 1"},
    {&sonde__op_log_softmax, 1, {F(2, 3)}, {.along = {.axis = -3}},
     SONDE_EINVAL, "axis -3 of a tensor of rank 2", "-2 to 1"},
    {&sonde__op_softmax, 1, {{.dtype = SONDE_F32}}, {.along = {.axis = 0}},
     SONDE_EINVAL, "axis 0 of a tensor of rank 0", ""},
    {&sonde__op_nll, 2, {F(5, 4), T(I32, 5)}, {.p = 0},
     SONDE_EDTYPE, "target is int32 (5)", "int64 (5)"},
    {&sonde__op_nll, 2, {F(5, 4), T(I64, 4)}, {.p = 0},
     SONDE_ESHAPE, "target is int64 (4)", "int64 (5)"},
    {&sonde__op_nll, 2, {F(5), T(I64, 5)}, {.p = 0},
     SONDE_ESHAPE, "input is float32 (5)", "log-probabilities (N, C)"},
    {&sonde__op_nll_grad, 2, {F(1), T(I64, 5)}, {.loss = {.rank = 2, .dims = {5, 4}}},
     SONDE_ESHAPE, "output gradient is float32 (1)", "float32 ()"},
};

static const refusal of_the_rest[] = {
    {&sonde__op_add, 2, {F(2, 3), F(2)}, {.p = 0},
     SONDE_ESHAPE, "float32 (2, 3) with float32 (2)",
     "dims of 1 or alike, aligned at the end"},
    {&sonde__op_mul, 2, {F(2, 3), T(F64, 3)}, {.p = 0},
     SONDE_EDTYPE, "second operand has dtype float64", "float32"},
    {&sonde__op_add, 2, {F(1LL << 40, 1), F(1, 1LL << 40)}, {.p = 0},
     SONDE_ESHAPE, "output of impossible size, float32 (1099511627776, 1099511627776)",
     ""},
    {&sonde__op_scale, 1, {T(I64, 3)}, {.p = 0},
     SONDE_EDTYPE, "input has dtype int64", "float32 or float64"},
    {&sonde__op_fill, 0, {{.rank = 0}}, {.fill = {.rank = 9}},
     SONDE_EINVAL, "output has rank 9", "0 to 8"},
    {&sonde__op_accumulate, 2, {F(3), F(3)}, {.fill = {.value = 0.0f}},
     SONDE_EINVAL, "accumulating with scale 0", "1 for a sum, 1 / count for a mean"},
    {&sonde__op_accumulate, 2, {F(3), F(4)}, {.fill = {.value = 1.0f}},
     SONDE_ESHAPE, "gradient is float32 (4)", "float32 (3)"},
    {&sonde__op_reduce, 1, {F(2, 3)}, {.reduce = {.axes = 5}},
     SONDE_EINVAL, "axes 0x5 of a tensor of rank 2", ""},
    {&sonde__op_reshape, 1, {F(2, 3)}, {.shape = {.rank = 2, .dims = {4, -1}}},
     SONDE_ESHAPE, "float32 (2, 3) as (4, -1)", "as many elements before as after"},
    {&sonde__op_reshape, 1, {F(2, 3)}, {.p = 0},
     SONDE_ESHAPE, "float32 (2, 3) as ()", "as many elements before as after"},
    {&sonde__op_reshape, 1, {F(2, 3)}, {.shape = {.rank = 2, .dims = {1LL << 32, 1LL << 32}}},
     SONDE_ESHAPE, "float32 (2, 3) as (4294967296, 4294967296)",
     "as many elements before as after"},
    {&sonde__op_reshape, 1, {F(2, 3)}, {.shape = {.rank = 2, .dims = {-1, -1}}},
     SONDE_EINVAL, "target dim 1 is -1", "at most one -1, else positive"},
    {&sonde__op_reshape, 1, {F(2, 3)}, {.shape = {.rank = 3, .dims = {2, 3, 0}}},
     SONDE_EINVAL, "target dim 2 copies a dim that an input of rank 2 lacks", ""},
    {&sonde__op_transpose, 1, {F(2, 3)}, {.shape = {.rank = 2, .dims = {1, 1}}},
     SONDE_EINVAL, "permutation (1, 1)", "each dim once"},
    {&sonde__op_transpose, 1, {F(2, 3)}, {.shape = {.rank = 1, .dims = {0}}},
     SONDE_EINVAL, "a permutation of 1 dims for a tensor of rank 2", ""},
    {&sonde__op_broadcast, 1, {F(2, 3)}, {.shape = {.rank = 2, .dims = {2, 6}}},
     SONDE_ESHAPE, "float32 (2, 3) broadcast to (2, 6)",
     "dims of 1 or alike, aligned at the end"},
    {&sonde__op_broadcast, 1, {F(2, 3)}, {.shape = {.rank = 1, .dims = {3}}},
     SONDE_ESHAPE, "float32 (2, 3) broadcast to (3)",
     "dims of 1 or alike, aligned at the end"},
    {&sonde__op_sgd, 2, {F(3), F(4)}, {.p = 0},
     SONDE_ESHAPE, "gradient is float32 (4)", "float32 (3)"},
    {&sonde__op_sgd, 3, {F(3), F(3), T(F64, 3)}, {.p = 0},
     SONDE_EDTYPE, "momentum buffer is float64 (3)", "float32 (3)"},
    {&sonde__op_adam, 5, {F(3), F(3), F(3), F(3), F(1)}, {.p = 0},
     SONDE_ESHAPE, "step is float32 (1)", "float32 ()"},
};


/* Of networks over sequences; kinds are found by name. */
static struct {
    const char *kind;
    refusal with;
} of_sequences[] = {
    {"Embedding", {NULL, 2, {F(2, 3), F(5, 4)}, {.p = 0},
     SONDE_EDTYPE, "ids has dtype float32", "int64"}},
    {"MatMul", {NULL, 2, {F(2, 3), F(4, 5)}, {.p = 0},
     SONDE_ESHAPE, "float32 (2, 3) times float32 (4, 5)",
     "as many columns in the first as rows in the second"}},
    {"MatMul", {NULL, 2, {F(2, 2, 3), F(5, 3, 4)}, {.p = 0},
     SONDE_ESHAPE, "float32 (2) with float32 (5)",
     "dims of 1 or alike, aligned at the end"}},
    {"Where", {NULL, 3, {F(2), F(2), F(2)}, {.p = 0},
     SONDE_EDTYPE, "condition has dtype float32", "bool, uint8 or int64"}},
    {"Compare", {NULL, 2, {F(2), T(I64, 2)}, {.p = 0},
     SONDE_EDTYPE, "second operand has dtype int64", "float32"}},
    {"Slice", {NULL, 1, {F(2, 5)}, {.slice = {.axis = 1, .start = 3, .end = 2}},
     SONDE_ESHAPE, "no element from 3 to 2 of dimension 1, of 5", "start before end"}},
    {"Extreme", {NULL, 1, {F(2, 0)}, {.reduce = {.axes = 2}},
     SONDE_ESHAPE, "dimension 1 has none", "at least one element"}},
    {"Attention", {NULL, 3, {F(2, 3, 4), F(2, 5, 4), F(2, 6, 4)}, {.p = 0},
     SONDE_ESHAPE,
     "query float32 (2, 3, 4), key float32 (2, 5, 4), value float32 (2, 6, 4)",
     "(..., T, D), (..., S, D), (..., S, E)"}},
    {"Attention", {NULL, 4, {F(2, 3, 4), F(2, 5, 4), F(2, 5, 4), F(3, 4)}, {.p = 0},
     SONDE_ESHAPE, "mask float32 (3, 4) does not broadcast", "float32 (2, 3, 5)"}},
    {"SelfAttention", {NULL, 1, {F(2, 3, 12)}, {.attention = {.heads = 3}},
     SONDE_ESHAPE, "3 heads over a width of 4", "heads that divide the width"}},
    {"Recurrent", {NULL, 3, {F(2, 3, 4), F(8, 5), F(8, 2)}, {.recurrent = {.units = 2, .cell = 2}},
     SONDE_ESHAPE, "weight_ih is float32 (8, 5)", "float32 (8, 4)"}},
    {"Recurrent", {NULL, 3, {F(2, 4), F(8, 5), F(8, 2)}, {.recurrent = {.units = 2, .cell = 2}},
     SONDE_ESHAPE, "input is float32 (2, 4)", "(N, T, I)"}},
};

/* clang-format on */
static const sonde__op_kind *kind_named(const char *name)
{
    for (size_t i = 0; sonde__op_kinds[i] != NULL; i++) {
        if (strcmp(sonde__op_kinds[i]->name, name) == 0) {
            return sonde__op_kinds[i];
        }
    }
    fail_msg("no kind %s", name);
    return NULL;
}

static void expect_refusals(const refusal *refusals, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const refusal *r = &refusals[i];
        op_run run = {.kind = r->kind, .attrs = r->attrs, .in_count = r->in_count};
        sonde_diag diag = {0};

        for (int k = 0; k < r->in_count; k++) {
            run.in[k].shape = r->in[k];
        }
        if (infer_run(&run, &diag) != r->err || strcmp(diag.found, r->found) != 0 ||
            strcmp(diag.expected, r->expected) != 0) {
            fail_msg("%s %zu: %s, '%s', expected '%s'", r->kind->name, i,
                     sonde_err_name(diag.err), diag.found, diag.expected);
        }
        run.attrs = r->attrs;
        assert_int_equal(infer_run(&run, NULL), r->err); /* diag is optional */
    }
}

static void bad_operands_are_told_with_their_shapes(void **state)
{
    (void)state;
    expect_refusals(of_windows, SONDE_COUNT_OF(of_windows));
    expect_refusals(of_matrices, SONDE_COUNT_OF(of_matrices));
    expect_refusals(of_the_rest, SONDE_COUNT_OF(of_the_rest));
    for (size_t i = 0; i < SONDE_COUNT_OF(of_sequences); i++) {
        of_sequences[i].with.kind = kind_named(of_sequences[i].kind);
        expect_refusals(&of_sequences[i].with, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_operands_are_told_with_their_shapes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * test_layers_golden.c - layers of several ops against PyTorch: parameters of the same
 * names, the output, and the gradient of every parameter.
 *
 * tests/golden/layers.safetensors is written by tests/python/make_layers_golden.py. The
 * loss is the sum of squared differences; a step of SGD with a rate of 1 shows the
 * gradients as what the weights lose.
 *
 * In bfloat16 the same values are as near to those of float32 as torch.autocast's are,
 * times three: each rounds some sums that the other does not, and one of them may be the
 * largest. A rounding to float16 is an eighth of one to bfloat16.
 */
#include "engine.h"
#include "base/macros.h"

#include <sonde/safetensors.h>

#include <math.h>

enum { MOST_INPUTS = 4, MOST_SETTINGS = 6 };

typedef struct layer_case {
    const char *name, *layer;
    int inputs;
    size_t settings;
    sonde_nn_setting setting[MOST_SETTINGS];
} layer_case;

static const layer_case cases[] = {
    {"attention", "multihead_attention", 1, 1, {{.key = "num_heads", .values = {3}}}},
    {"attention_causal",
     "multihead_attention",
     1,
     3,
     {{.key = "num_heads", .values = {2}},
      {.key = "bias", .values = {0}},
      {.key = "is_causal", .values = {1}}}},
    {"attention_cross",
     "multihead_attention",
     3,
     1,
     {{.key = "num_heads", .values = {3}}}},
    {"attention_mask",
     "multihead_attention",
     2,
     1,
     {{.key = "num_heads", .values = {3}}}},
    {"attention_cross_mask",
     "multihead_attention",
     4,
     1,
     {{.key = "num_heads", .values = {3}}}},
    {"encoder",
     "transformer_encoder_layer",
     1,
     2,
     {{.key = "nhead", .values = {3}}, {.key = "dim_feedforward", .values = {20}}}},
    {"encoder_first",
     "transformer_encoder_layer",
     1,
     5,
     {{.key = "nhead", .values = {3}},
      {.key = "dim_feedforward", .values = {20}},
      {.key = "norm_first", .values = {1}},
      {.key = "activation", .word = "gelu"},
      {.key = "is_causal", .values = {1}}}},
    {"encoder_plain",
     "transformer_encoder_layer",
     1,
     4,
     {{.key = "nhead", .values = {3}},
      {.key = "dim_feedforward", .values = {20}},
      {.key = "bias", .values = {0}},
      {.key = "layer_norm_eps", .values = {1e-2}}}},
    {"rnn",
     "rnn",
     1,
     2,
     {{.key = "hidden_size", .values = {5}}, {.key = "nonlinearity", .word = "relu"}}},
    {"lstm",
     "lstm",
     1,
     3,
     {{.key = "hidden_size", .values = {5}},
      {.key = "num_layers", .values = {2}},
      {.key = "bidirectional", .values = {1}}}},
    {"gru",
     "gru",
     1,
     2,
     {{.key = "hidden_size", .values = {5}}, {.key = "num_layers", .values = {2}}}},
    {"lstm_plain",
     "lstm",
     1,
     2,
     {{.key = "hidden_size", .values = {5}}, {.key = "bias", .values = {0}}}},
    {"conv1d",
     "conv1d",
     1,
     6,
     {{.key = "out_channels", .values = {6}},
      {.key = "kernel_size", .values = {3}},
      {.key = "stride", .values = {2}},
      {.key = "padding", .values = {1}},
      {.key = "dilation", .values = {2}},
      {.key = "groups", .values = {2}}}},
    {"conv3d",
     "conv3d",
     1,
     5,
     {{.key = "out_channels", .values = {4}},
      {.key = "kernel_size", .values = {3, 2, 3}, .count = 3},
      {.key = "stride", .values = {2, 1, 1}, .count = 3},
      {.key = "padding", .values = {1, 0, 1}, .count = 3},
      {.key = "dilation", .values = {1, 2, 1}, .count = 3}}},
    {"conv3d_groups",
     "conv3d",
     1,
     4,
     {{.key = "out_channels", .values = {4}},
      {.key = "kernel_size", .values = {2}},
      {.key = "groups", .values = {2}},
      {.key = "bias", .values = {0}}}},
    {"transposed1d",
     "conv_transpose1d",
     1,
     5,
     {{.key = "out_channels", .values = {4}},
      {.key = "kernel_size", .values = {4}},
      {.key = "stride", .values = {2}},
      {.key = "padding", .values = {1}},
      {.key = "output_padding", .values = {1}}}},
    {"transposed2d",
     "conv_transpose2d",
     1,
     6,
     {{.key = "out_channels", .values = {6}},
      {.key = "kernel_size", .values = {3}},
      {.key = "stride", .values = {2, 1}, .count = 2},
      {.key = "padding", .values = {1}},
      {.key = "output_padding", .values = {1, 0}, .count = 2},
      {.key = "groups", .values = {2}}}},
    {"transposed2d_plain",
     "conv_transpose2d",
     1,
     3,
     {{.key = "out_channels", .values = {2}},
      {.key = "kernel_size", .values = {2}},
      {.key = "bias", .values = {0}}}},
};

static sonde_safetensors *golden;

static const sonde_view *tensor(const layer_case *c, const char *what)
{
    char name[320];
    const sonde_view *view = NULL;

    (void)snprintf(name, sizeof name, "%s/%s", c->name, what);
    view = sonde_safetensors_find(golden, name);
    if (view == NULL) {
        fail_msg("no tensor %s", name);
    }
    return view;
}

/* How far from float32 values may be: sums of up to 64 products in float32 in another order
 * are off by some 1e-6 of the largest; the weights lose digits of the gradient, 6e-8 of
 * their size. In 16 bits, PyTorch's largest difference in bfloat16 counts. */
static double tolerance(const layer_case *c, const char *what, sonde_nn_float dtype,
                        const float *wanted, int64_t count)
{
    double most = 1.0, apart = 0.0;
    const float *half = NULL;
    char name[200];

    for (int64_t i = 0; i < count; i++) {
        most = fmax(most, fabs((double)wanted[i]));
    }
    if (dtype != SONDE_NN_FLOAT32) {
        (void)snprintf(name, sizeof name, "bfloat16.%s", what);
        half = tensor(c, name)->data;
    }
    for (int64_t i = 0; half != NULL && i < count; i++) {
        apart = fmax(apart, fabs((double)half[i] - (double)wanted[i]));
    }
    return 5e-6 * most + (dtype == SONDE_NN_BFLOAT16 ? 3.0 : 0.75) * apart;
}

static void expect_near(const layer_case *c, const char *what, sonde_nn_float dtype,
                        const float *found, const float *wanted, int64_t count)
{
    const double most = tolerance(c, what, dtype, wanted, count);

    for (int64_t i = 0; i < count; i++) {
        if (!(fabs((double)found[i] - (double)wanted[i]) <= most)) {
            fail_msg("%s, %s: element %lld is %.9g, PyTorch says %.9g", c->name, what,
                     (long long)i, (double)found[i], (double)wanted[i]);
        }
    }
}

static sonde_nn_value build(const layer_case *c, sonde_nn_model *model)
{
    const sonde_nn_setting sum = {.key = "reduction", .word = "sum"};
    sonde_nn_value in[MOST_INPUTS], compared[2], y = 0;
    const sonde_view *t = tensor(c, "t");

    for (int i = 0; i < c->inputs; i++) {
        const char name[] = {'x', (char)('0' + i), '\0'};
        const sonde_view *x = tensor(c, name);

        in[i] = sonde_nn_input(model, SONDE_F32, x->rank, x->shape);
    }
    compared[1] = sonde_nn_input(model, SONDE_F32, t->rank, t->shape);
    y = sonde_nn_layer(model, c->layer, "layer", in, (size_t)c->inputs, c->setting,
                       c->settings);
    must(sonde_nn_model_status(model, &engine_diag));
    compared[0] = y;
    sonde_nn_output(model, y);
    sonde_nn_loss(model, sonde_nn_layer(model, "mse_loss", "loss", compared, 2, &sum, 1));
    must(sonde_nn_model_status(model, &engine_diag));
    return y;
}

/* The golden name of parameter i, without "layer.". */
static const char *short_name(const sonde_nn_model *model, size_t i)
{
    const char *name = sonde_nn_parameter(model, i).name;

    assert_memory_equal(name, "layer.", 6);
    return name + 6;
}

static void put_parameters(const layer_case *c, const sonde_nn_model *model)
{
    for (size_t i = 0; i < sonde_nn_model_get_info(model).parameter_count; i++) {
        const sonde_view view = sonde_nn_parameter(model, i).view;
        const sonde_view *wanted = tensor(c, short_name(model, i));

        assert_int_equal(view.rank, wanted->rank);
        assert_memory_equal(view.shape, wanted->shape, sizeof view.shape[0]);
        must(sonde_view_copy(&view, wanted, &engine_diag));
    }
}

static void expect_gradients(const layer_case *c, sonde_nn_float dtype,
                             const sonde_nn_model *model)
{
    for (size_t i = 0; i < sonde_nn_model_get_info(model).parameter_count; i++) {
        const sonde_view view = sonde_nn_parameter(model, i).view;
        const float *before = tensor(c, short_name(model, i))->data, *after = view.data;
        char name[160];
        float lost[1024];
        const int64_t count = sonde_view_count(&view);

        assert_true(count <= (int64_t)SONDE_COUNT_OF(lost));
        for (int64_t k = 0; k < count; k++) {
            lost[k] = before[k] - after[k];
        }
        (void)snprintf(name, sizeof name, "grad.%s", short_name(model, i));
        expect_near(c, name, dtype, lost, tensor(c, name)->data, count);
    }
}

static void run_case(const layer_case *c, sonde_nn_float dtype)
{
    const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(1.0F, 0.0F);
    sonde_nn_model *model = NULL;
    sonde_nn_session *session = NULL;
    sonde_nn_options options;
    sonde_view inputs[MOST_INPUTS + 1], y;
    const sonde_view *wanted = tensor(c, "y");

    must(sonde_nn_model_create(&model, &engine_diag));
    (void)build(c, model);
    put_parameters(c, model);
    sonde_nn_options_init(&options);
    options.dtype = dtype;
    options.batch_size = (int)wanted->shape[0];
    options.output_mode = SONDE_ANCHOR_ALL;
    must(sonde_nn_session_create(model, &options, &sgd, &session, &engine_diag));
    for (int i = 0; i < c->inputs; i++) {
        const char name[] = {'x', (char)('0' + i), '\0'};

        inputs[i] = *tensor(c, name);
    }
    inputs[c->inputs] = *tensor(c, "t");
    must(sonde_nn_session_run(session, inputs, (size_t)c->inputs + 1, &engine_diag));
    must(sonde_nn_session_output(session, 0, &y, &engine_diag));
    expect_near(c, "y", dtype, y.data, wanted->data, sonde_view_count(wanted));
    expect_gradients(c, dtype, model);
    sonde_nn_session_destroy(session);
    sonde_nn_model_destroy(model);
}

static void layers_agree_with_pytorch(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(cases); i++) {
        run_case(&cases[i], SONDE_NN_FLOAT32);
    }
}

static void layers_of_16_bits_are_as_near_as_those_of_autocast(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(cases); i++) {
        run_case(&cases[i], SONDE_NN_BFLOAT16);
        run_case(&cases[i], SONDE_NN_FLOAT16);
    }
}

static int open_golden(void **state)
{
    char path[512];

    (void)state;
    (void)snprintf(path, sizeof path, "%s/golden/layers.safetensors",
                   getenv("SONDE_TEST_DIR"));
    return sonde_safetensors_open(path, &golden, &engine_diag) == SONDE_OK ? 0 : -1;
}

static int close_golden(void **state)
{
    (void)state;
    sonde_safetensors_destroy(golden);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_agree_with_pytorch),
        cmocka_unit_test(layers_of_16_bits_are_as_near_as_those_of_autocast),
    };

    return cmocka_run_group_tests(tests, open_golden, close_golden);
}

/*
 * Training in bfloat16 and float16: what has which dtype, and that what is seen is what is
 * stored; that neither threads nor looking change a bit; that parameters stay float32.
 */
#include "engine.h"

#include "base/macros.h"

#include <sonde/nn/job.h>
#include <sonde/safetensors.h>

#include <math.h>

static sonde_nn_session *open_session(const engine_net *net, sonde_nn_float dtype,
                                      int threads)
{
    const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.1F, 0.9F);
    sonde_nn_session *session = NULL;
    sonde_nn_options options;

    sonde_nn_options_init(&options);
    options.dtype = dtype;
    options.threads = threads;
    must(sonde_nn_session_create(net->model, &options, &sgd, &session, &engine_diag));
    return session;
}

static sonde_dtype dtype_of(const sonde_nn_session *session, const char *name)
{
    const sonde_catalogue *const catalogue = sonde_nn_session_catalogue(session);
    uint32_t id = SONDE_NO_TENSOR;

    must(sonde_catalogue_find(catalogue, name, &id, &engine_diag));
    return sonde_catalogue_info(catalogue, id)->dtype;
}

static void products_are_half_and_the_rest_is_float(void **state)
{
    static const struct {
        const char *name;
        sonde_dtype dtype;
    } rows[] = {
        {"fc1.weight", SONDE_F32},
        {"Gradient___fc1.weight", SONDE_F32},
        {"Gradient___fc1.bias", SONDE_F32},
        {"fc1_output_0", SONDE_BF16},
        {"relu1_output_0", SONDE_BF16},
        {"Gradient___relu1_output_0", SONDE_BF16},
        {"Gradient___fc1_output_0", SONDE_BF16},
        {"loss_output_0", SONDE_F32},
        {"Accl1___fc1.weight", SONDE_F32},
    };
    engine_net net;
    sonde_nn_session *session = NULL;

    (void)state;
    engine_mlp(&net, 8);
    session = open_session(&net, SONDE_NN_BFLOAT16, 1);
    must(sonde_nn_session_compile(session, &engine_diag));
    for (size_t i = 0; i < SONDE_COUNT_OF(rows); i++) {
        assert_int_equal(dtype_of(session, rows[i].name), rows[i].dtype);
    }
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
}

/* What a tap sees of fc1's output is the product of what it sees of fc1's input and weight,
 * rounded; its vital signs are those of the numbers that are stored. */
static void taps_see_what_is_stored(void **state)
{
    const engine_seen *x = NULL, *w = NULL, *y = NULL;
    sonde_nn_session *session = NULL;
    engine_sink sink;
    engine_net net;
    double worst = 0.0, largest = 0.0;

    (void)state;
    engine_mlp(&net, 8);
    session = open_session(&net, SONDE_NN_BFLOAT16, 1);
    engine_sink_init(&sink, true);
    engine_tap_all(session, SONDE_HOW_RAW | SONDE_HOW_VITALS, &sink);
    must(sonde_nn_session_compile(session, &engine_diag));
    for (int64_t o = 0; o < 32; o++) { /* the first step sees weights after its update */
        engine_parameter(net.model, "fc1.bias", NULL)[o] = 0.0F;
    }
    w = NULL;
    engine_train(&net, session, 1);
    engine_train(&net, session, 2);
    x = engine_find(&sink, "input", 1, 0);
    w = engine_find(&sink, "fc1.weight", 0, 0);
    y = engine_find(&sink, "fc1_output_0", 1, 0);
    assert_int_equal(y->info.dtype, SONDE_BF16);
    for (int64_t i = 0; i < y->count; i++) {
        const double stored = sonde_element_get(SONDE_BF16, (uint16_t *)y->data + i);
        const float *const b = engine_find(&sink, "fc1.bias", 0, 0)->data;
        double sum = (double)b[i % 32];

        for (int64_t k = 0; k < 24; k++) {
            sum += (double)((float *)x->data)[i / 32 * 24 + k] *
                   (double)((float *)w->data)[i % 32 * 24 + k];
        }
        largest = fmax(largest, fabs(stored));
        worst = fmax(worst, fabs(stored - sum));
    }
    /* Operands and result have 8 bits: 24 products of numbers below 1.5. */
    assert_true(worst < 0.03 && worst > 0.0);
    assert_true(y->has_vitals && y->vitals.max <= largest && y->vitals.count == 256);
    assert_true(fabs(fmax(y->vitals.max, -y->vitals.min) - largest) == 0.0);
    sonde_nn_session_destroy(session);
    engine_sink_fini(&sink);
    engine_net_fini(&net);
}

/* The weights after five steps. */
static float *trained(engine_builder build, sonde_nn_float dtype, int threads,
                      bool watched, size_t *count)
{
    sonde_nn_session *session = NULL;
    float *weights = NULL;
    engine_sink sink;
    engine_net net;

    build(&net, 64);
    session = open_session(&net, dtype, threads);
    engine_sink_init(&sink, true);
    if (watched) {
        engine_tap_all(session, SONDE_HOW_RAW | SONDE_HOW_VITALS, &sink);
    }
    for (uint64_t i = 0; i < 5; i++) {
        engine_train(&net, session, i);
    }
    weights = engine_weights(net.model);
    *count = engine_weight_count(net.model);
    sonde_nn_session_destroy(session);
    engine_sink_fini(&sink);
    engine_net_fini(&net);
    return weights;
}

static void neither_threads_nor_looking_change_a_bit(void **state)
{
    static const engine_builder builders[] = {engine_mlp, engine_cnn, engine_branches};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(builders); i++) {
        for (int d = SONDE_NN_BFLOAT16; d <= SONDE_NN_FLOAT16; d++) {
            const sonde_nn_float dtype = (sonde_nn_float)d;
            size_t count = 0;
            float *one = trained(builders[i], dtype, 1, false, &count);
            float *two = trained(builders[i], dtype, 2, false, &count);
            float *seen = trained(builders[i], dtype, 1, true, &count);
            float *plain = trained(builders[i], SONDE_NN_FLOAT32, 1, false, &count);
            double apart = 0.0;

            assert_same_bits(one, two, count);
            assert_same_bits(one, seen, count);
            for (size_t k = 0; k < count; k++) {
                apart = fmax(apart, fabs((double)one[k] - (double)plain[k]));
            }
            assert_true(apart > 0.0 && apart < 0.05);
            free(one);
            free(two);
            free(seen);
            free(plain);
        }
    }
}

static void a_layer_may_have_its_own_dtype(void **state)
{
    static const char job_text[] =
        "model:\n  input: [6]\n  layers:\n"
        "    - linear: {name: a, out_features: 8, dtype: bfloat16}\n"
        "    - gelu: {name: g}\n"
        "    - linear: {name: b, out_features: 4, dtype: float16}\n"
        "    - linear: {name: c, out_features: 3}\n"
        "  loss: {cross_entropy: {name: loss}}\n";
    const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.1F, 0.0F);
    sonde_nn_session *session = NULL;
    sonde_nn_model *model = NULL;
    sonde_nn_options options;
    sonde_nn_job *job = NULL;

    (void)state;
    must(sonde_nn_job_parse(job_text, sizeof job_text - 1, "job", &job, &engine_diag));
    must(sonde_nn_job_build(job, &model, &engine_diag));
    sonde_nn_options_init(&options);
    options.batch_size = 4;
    must(sonde_nn_session_create(model, &options, &sgd, &session, &engine_diag));
    must(sonde_nn_session_compile(session, &engine_diag));
    assert_int_equal(dtype_of(session, "a_output_0"), SONDE_BF16);
    assert_int_equal(dtype_of(session, "b_output_0"), SONDE_F16);
    assert_int_equal(dtype_of(session, "c_output_0"), SONDE_F32);
    assert_int_equal(dtype_of(session, "Float32___b_output_0"), SONDE_F32);
    assert_int_equal(dtype_of(session, "Gradient___b_output_0"), SONDE_F16);
    sonde_nn_session_destroy(session);
    sonde_nn_model_destroy(model);
    sonde_nn_job_destroy(job);
}

static void mistakes_are_named(void **state)
{
    static const char wrong[] = "model:\n  input: [6]\n  layers:\n"
                                "    - linear: {name: a, out_features: 8, dtype: int8}\n"
                                "  loss: {cross_entropy: {name: loss}}\n";
    sonde_nn_model *model = NULL;
    sonde_nn_value x = 0;
    sonde_nn_job *job = NULL;
    const sonde_nn_setting dtype = {.key = "dtype", .word = "bfloat16"};

    (void)state;
    expect_err(SONDE_EINVAL,
               sonde_nn_job_parse(wrong, sizeof wrong - 1, "job", &job, &engine_diag));
    expect_line("job:4: dtype is 'int8' (expected float32, bfloat16 or float16)");
    must(sonde_nn_model_create(&model, &engine_diag));
    x = sonde_nn_input(model, SONDE_F32, 2, (int64_t[]){2, 3});
    x = sonde_nn_layer(model, "to", "half", &x, 1, &dtype, 1);
    x = sonde_nn_layer(model, "exp", "sorted", &x, 1, NULL, 0);
    expect_err(SONDE_EDTYPE, sonde_nn_model_status(model, &engine_diag));
    expect_line("sorted/Exp: input 0 has dtype bfloat16 (expected float32)");
    sonde_nn_model_destroy(model);
    must(sonde_nn_model_create(&model, &engine_diag));
    sonde_nn_begin_dtype(model, SONDE_I64);
    sonde_nn_end_dtype(model);
    expect_err(SONDE_EDTYPE, sonde_nn_model_status(model, &engine_diag));
    expect_line("dtype: int64 (expected float32, bfloat16 or float16)");
    sonde_nn_model_destroy(model);
}

/* --- beside torch.autocast ---------------------------------------------------------- */

enum { STEPS = 40, BATCH = 16, PIXELS = 2 * 6 * 6 };

static const float *golden(sonde_safetensors *file, const char *name)
{
    const sonde_view *const view = sonde_safetensors_find(file, name);

    assert_non_null(view);
    return view->data;
}

/* The network of make_autocast_golden.py, with its first weights. */
static sonde_nn_model *golden_network(sonde_safetensors *file)
{
    static const char *const names[] = {"conv.weight", "conv.bias",  "fc1.weight",
                                        "fc1.bias",    "fc2.weight", "fc2.bias"};
    sonde_nn_model *m = NULL;
    sonde_nn_value x = 0, labels = 0;
    char name[64];

    must(sonde_nn_model_create(&m, &engine_diag));
    x = sonde_nn_input(m, SONDE_F32, 4, (int64_t[]){BATCH, 2, 6, 6});
    labels = sonde_nn_input(m, SONDE_I64, 1, (int64_t[]){BATCH});
    x = sonde_nn_conv2d(m, "conv", x,
                        SONDE_OPTIONS(sonde_nn_conv2d, .out_channels = 8,
                                      .kernel_size = {3, 3}, .padding = {1, 1}));
    x = sonde_nn_relu(m, "relu1", x);
    x = sonde_nn_flatten(m, "flat", x, 1);
    x = sonde_nn_linear(m, "fc1", x, SONDE_OPTIONS(sonde_nn_linear, .out_features = 24));
    x = sonde_nn_relu(m, "relu2", x);
    x = sonde_nn_linear(m, "fc2", x, SONDE_OPTIONS(sonde_nn_linear, .out_features = 5));
    sonde_nn_loss(m, sonde_nn_cross_entropy(m, "loss", x, labels, NULL));
    must(sonde_nn_model_status(m, &engine_diag));
    for (size_t i = 0; i < SONDE_COUNT_OF(names); i++) {
        size_t count = 0;
        float *const to = engine_parameter(m, names[i], &count);

        (void)snprintf(name, sizeof name, "start.%s", names[i]);
        memcpy(to, golden(file, name), count * sizeof *to);
    }
    return m;
}

static void train_golden(sonde_safetensors *file, sonde_nn_float dtype,
                         float losses[STEPS])
{
    const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.02F, 0.9F);
    sonde_nn_model *const model = golden_network(file);
    sonde_nn_session *session = NULL;
    sonde_nn_options options;
    engine_sink sink;

    sonde_nn_options_init(&options);
    options.dtype = dtype;
    must(sonde_nn_session_create(model, &options, &sgd, &session, &engine_diag));
    engine_sink_init(&sink, true);
    engine_tap_all(session, SONDE_HOW_RAW, &sink);
    for (int i = 0; i < STEPS; i++) {
        const sonde_view views[] = {
            sonde_view_of(SONDE_F32, 4, (int64_t[]){BATCH, 2, 6, 6},
                          (float *)(uintptr_t)golden(file, "inputs") +
                              i * BATCH * PIXELS),
            sonde_view_of(SONDE_I64, 1, (int64_t[]){BATCH},
                          (int64_t *)(uintptr_t)golden(file, "labels") + i * BATCH)};

        must(sonde_nn_session_run(session, views, 2, &engine_diag));
        losses[i] = *(float *)engine_find(&sink, "loss_output_0", i, 0)->data;
    }
    if (dtype == SONDE_NN_BFLOAT16) { /* one rounding of sums of 18 products apart */
        const engine_seen *const y = engine_find(&sink, "conv_output_0", 0, 0);
        const uint16_t *const theirs = (const void *)golden(file, "bfloat16.output");

        assert_int_equal(y->info.dtype, SONDE_BF16);
        for (int64_t i = 0; i < y->count; i++) {
            const double value = sonde_element_get(SONDE_BF16, theirs + i);

            assert_true(fabs(sonde_element_get(SONDE_BF16, (uint16_t *)y->data + i) -
                             value) <= 0.0079 * fabs(value) + 1e-3);
        }
    }
    sonde_nn_session_destroy(session);
    engine_sink_fini(&sink);
    sonde_nn_model_destroy(model);
}

/* The curve of losses is as near to that of float32 as PyTorch's autocast is, times two:
 * each rounds some sums that the other does not. */
static void losses_are_as_near_as_those_of_autocast(void **state)
{
    const char *const dir = getenv("SONDE_TEST_DIR");
    float exact[STEPS], half[STEPS];
    double theirs = 0.0, ours = 0.0;
    sonde_safetensors *file = NULL;
    char path[512];

    (void)state;
    (void)snprintf(path, sizeof path, "%s/golden/autocast.safetensors",
                   dir != NULL ? dir : SONDE_TEST_DIR);
    must(sonde_safetensors_open(path, &file, &engine_diag));
    train_golden(file, SONDE_NN_FLOAT32, exact);
    train_golden(file, SONDE_NN_BFLOAT16, half);
    for (int i = 0; i < STEPS; i++) {
        const double base = (double)golden(file, "float32.losses")[i];

        assert_true(fabs((double)exact[i] - base) < 1e-5);
        ours = fmax(ours, fabs((double)half[i] - base));
        theirs = fmax(theirs, fabs((double)golden(file, "bfloat16.losses")[i] - base));
    }
    assert_true(theirs > 0.0 && ours > 0.0 && ours <= 2.0 * theirs);
    sonde_safetensors_destroy(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_half_and_the_rest_is_float),
        cmocka_unit_test(taps_see_what_is_stored),
        cmocka_unit_test(neither_threads_nor_looking_change_a_bit),
        cmocka_unit_test(a_layer_may_have_its_own_dtype),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(losses_are_as_near_as_those_of_autocast),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

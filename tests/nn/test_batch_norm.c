/*
 * test_batch_norm.c - batch normalization in sessions: its buffers are named tensors of the
 * model, saved and loaded with it; training and inference differ; the same bits on several
 * threads, observed, and resumed. tsan: yes
 */
#include "engine.h"

#include <sonde/nn/job.h>
#include <sonde/safetensors.h>

#include <math.h>
#include <unistd.h>

static const char path[] = "test_batch_norm.safetensors";

/* A convolution and a linear layer, each with its norm. */
static void build(engine_net *net, double momentum)
{
    const sonde_nn_setting settings[] = {
        {.key = "momentum", .values = {momentum}},
        {.key = "momentum", .word = "none"},
    };
    const sonde_nn_setting *setting = &settings[isnan(momentum) ? 1 : 0];
    sonde_nn_value x = 0, target = 0;

    *net = (engine_net){.rank = 3, .sample = {2, 12, 12}, .classes = 4, .batch = 20};
    x = engine_inputs(net, &target);
    x = sonde_nn_conv2d(
        net->model, "conv", x,
        SONDE_OPTIONS(sonde_nn_conv2d, .out_channels = 32, .kernel_size = {3}));
    x = sonde_nn_layer(net->model, "batch_norm", "bn1", &x, 1, setting, 1);
    x = sonde_nn_relu(net->model, "relu", x);
    x = sonde_nn_flatten(net->model, NULL, x, 1);
    x = sonde_nn_linear(net->model, "fc1", x,
                        SONDE_OPTIONS(sonde_nn_linear, .out_features = 16));
    x = sonde_nn_layer(net->model, "batch_norm", "bn2", &x, 1, setting, 1);
    x = sonde_nn_linear(net->model, "fc2", x,
                        SONDE_OPTIONS(sonde_nn_linear, .out_features = 4));
    engine_finish(net, x, sonde_nn_cross_entropy(net->model, "loss", x, target, NULL));
}

static sonde_view buffer(const sonde_nn_model *model, const char *name)
{
    static double none[32]; /* not reached */
    size_t i = 0;

    while (i < sonde_nn_model_get_info(model).buffer_count &&
           strcmp(sonde_nn_buffer(model, i).name, name) != 0) {
        i++;
    }
    if (sonde_nn_buffer(model, i).view.data == NULL) {
        fail_msg("no buffer %s", name);
        return (sonde_view){.data = none};
    }
    return sonde_nn_buffer(model, i).view;
}

static const float *floats(const sonde_nn_model *model, const char *name)
{
    return buffer(model, name).data;
}

static int64_t batches(const sonde_nn_model *model)
{
    return *(const int64_t *)buffer(model, "bn1.num_batches_tracked").data;
}

/* --- names, files ----------------------------------------------------------------------- */

static void buffers_are_tensors_of_the_model(void **state)
{
    static const char *const names[] = {
        "bn1.running_mean", "bn1.running_var", "bn1.num_batches_tracked",
        "bn2.running_mean", "bn2.running_var", "bn2.num_batches_tracked"};
    engine_net net, other;
    sonde_nn_session *session = NULL;
    const sonde_catalogue *catalogue = NULL;
    uint32_t id = 0;

    (void)state;
    build(&net, 0.1);
    build(&other, 0.1);
    assert_int_equal(sonde_nn_model_get_info(net.model).buffer_count, 6);
    assert_int_equal(sonde_nn_model_get_info(net.model).parameter_count, 10);
    for (size_t i = 0; i < 6; i++) {
        assert_string_equal(sonde_nn_buffer(net.model, i).name, names[i]);
    }
    assert_null(sonde_nn_buffer(net.model, 6).name);
    assert_null(sonde_nn_buffer(net.model, 6).view.data);
    assert_true(floats(net.model, "bn1.running_mean")[31] == 0.0F);
    assert_true(floats(net.model, "bn1.running_var")[31] == 1.0F);
    must(sonde_nn_session_create(net.model, NULL, &engine_sgd, &session, &engine_diag));
    engine_train(&net, session, 1);
    catalogue = sonde_nn_session_catalogue(session);
    for (size_t i = 0; i < 6; i++) {
        must(sonde_catalogue_find(catalogue, names[i], &id, &engine_diag));
        assert_int_equal(sonde_catalogue_info(catalogue, id)->role, SONDE_ROLE_BUFFER);
    }
    assert_int_equal(batches(net.model), 1);
    must(sonde_nn_model_save(net.model, path, &engine_diag));
    must(sonde_nn_model_load(other.model, path, &engine_diag));
    assert_same_bits(floats(other.model, "bn1.running_var"),
                     floats(net.model, "bn1.running_var"), 32);
    assert_int_equal(batches(other.model), 1);
    sonde_nn_model_initialize(other.model, 0);
    assert_int_equal(batches(other.model), 0);
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
    engine_net_fini(&other);
    (void)unlink(path);
}

static void a_file_without_them_is_refused(void **state)
{
    engine_net net;
    sonde_named_view named[32];
    size_t count = 0;

    (void)state;
    build(&net, 0.1);
    for (size_t i = 0; i < 10; i++) {
        named[i].name = sonde_nn_parameter(net.model, i).name;
        named[i].view = sonde_nn_parameter(net.model, i).view;
    }
    must(sonde_safetensors_write(path, named, 10, NULL, 0, &engine_diag));
    expect_err(SONDE_ENOTFOUND, sonde_nn_model_load(net.model, path, &engine_diag));
    expect_line("test_batch_norm.safetensors: it has no tensor 'bn1.running_mean', "
                "'bn1.running_var', 'bn1.num_batches_tracked', 'bn2.running_mean', "
                "'bn2.running_var', 'bn2.num_batches_tracked'");
    must(sonde_safetensors_write(path, named, 9, NULL, 0, &engine_diag));
    expect_err(SONDE_ENOTFOUND, sonde_nn_model_load(net.model, path, &engine_diag));
    assert_non_null(strstr(engine_diag.found, " and 1 more"));

    count = 0;
    for (; count < sonde_nn_model_get_info(net.model).parameter_count; count++) {
        named[count].name = sonde_nn_parameter(net.model, count).name;
        named[count].view = sonde_nn_parameter(net.model, count).view;
    }
    for (size_t i = 0; i < sonde_nn_model_get_info(net.model).buffer_count;
         i++, count++) {
        named[count].name = sonde_nn_buffer(net.model, i).name;
        named[count].view = sonde_nn_buffer(net.model, i).view;
    }
    for (size_t i = 0; i < 2; i++) {
        named[count + i].name = i == 0 ? "extra" : "other";
        named[count + i].view = named[0].view;
    }
    must(sonde_safetensors_write(path, named, count + 2, NULL, 0, &engine_diag));
    expect_err(SONDE_EINVAL, sonde_nn_model_load(net.model, path, &engine_diag));
    expect_line("test_batch_norm.safetensors: tensors 'extra', 'other' are no tensors of "
                "this model");
    engine_net_fini(&net);
    (void)unlink(path);
}

/* --- training --------------------------------------------------------------------------- */

typedef struct how {
    int threads, accumulation;
    bool observed, resumed;
    double momentum;
    sonde_nn_float dtype;
} how;

static void open_session(engine_net *net, const how *h, engine_sink *sink,
                         sonde_nn_session **session)
{
    const sonde_schedule always = sonde_schedule_every(1);
    const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.05F, 0.9F);
    sonde_nn_options options;

    sonde_nn_options_init(&options);
    options.device_iterations = 2;
    options.gradient_accumulation = h->accumulation;
    options.threads = h->threads;
    options.dtype = h->dtype;
    must(sonde_nn_session_create(net->model, &options, &sgd, session, &engine_diag));
    if (h->observed) {
        must(sonde_nn_session_tap(*session, "*", &always, SONDE_HOW_RAW, &sink->sink,
                                  &engine_diag));
    }
}

/* Weights, then the buffers of both norms, after four calls. */
static float *train(how h, size_t *count)
{
    engine_net net;
    engine_sink sink;
    sonde_nn_session *session = NULL;
    float *weights = NULL;

    build(&net, h.momentum);
    engine_sink_init(&sink, h.observed);
    open_session(&net, &h, &sink, &session);
    for (int i = 0; i < 4; i++) {
        if (h.resumed && i == 2) {
            must(sonde_nn_session_save(session, path, &engine_diag));
            sonde_nn_session_destroy(session);
            sonde_nn_model_initialize(net.model, 77);
            open_session(&net, &h, &sink, &session);
            must(sonde_nn_session_load(session, path, &engine_diag));
            (void)unlink(path);
        }
        engine_train(&net, session, (uint64_t)i);
    }
    assert_int_equal(batches(net.model), 4 * 2 * h.accumulation);
    *count = engine_weight_count(net.model);
    weights = engine_weights(net.model);
    weights = realloc(weights, (*count + 64) * sizeof *weights);
    assert_non_null(weights);
    memcpy(weights + *count, floats(net.model, "bn1.running_mean"), 32 * sizeof(float));
    memcpy(weights + *count + 32, floats(net.model, "bn1.running_var"),
           32 * sizeof(float));
    *count += 64;
    sonde_nn_session_destroy(session);
    engine_sink_fini(&sink);
    engine_net_fini(&net);
    return weights;
}

static void bits_do_not_depend_on_how_it_runs(void **state)
{
    static const how same[] = {{2, 2, false, false, 0.1, SONDE_NN_FLOAT32},
                               {1, 2, true, false, 0.1, SONDE_NN_FLOAT32},
                               {2, 2, true, false, 0.1, SONDE_NN_FLOAT32},
                               {1, 2, false, true, 0.1, SONDE_NN_FLOAT32}};
    size_t count = 0, again = 0;

    (void)state;
    for (int dtype = SONDE_NN_FLOAT32; dtype <= SONDE_NN_BFLOAT16; dtype++) {
        const how first = {1, 2, false, false, 0.1, (sonde_nn_float)dtype};
        float *want = train(first, &count);

        for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
            how other = same[i];
            float *have = NULL;

            other.dtype = first.dtype;
            have = train(other, &again);
            assert_int_equal(again, count);
            assert_same_bits(have, want, count);
            free(have);
        }
        free(want);
    }
}

/* The norm and the ReLU after it are one op, and both values can be seen. */
static void a_norm_and_its_relu_are_shown(void **state)
{
    const how h = {1, 1, true, false, 0.1, SONDE_NN_FLOAT32};
    const engine_seen *norm = NULL, *relu = NULL;
    sonde_nn_session *session = NULL;
    engine_net net;
    engine_sink sink;

    (void)state;
    build(&net, 0.1);
    engine_sink_init(&sink, true);
    open_session(&net, &h, &sink, &session);
    engine_train(&net, session, 3);
    norm = engine_find(&sink, "bn1_output_0", 0, 0);
    relu = engine_find(&sink, "relu_output_0", 0, 0);
    assert_int_equal(norm->count, relu->count);
    for (int64_t i = 0; i < norm->count; i++) {
        const float y = ((const float *)norm->data)[i];

        assert_true(((const float *)relu->data)[i] == (y < 0.0F ? 0.0F : y));
    }
    sonde_nn_session_destroy(session);
    engine_sink_fini(&sink);
    engine_net_fini(&net);
}

/* The statistics of the convolution's output, from the value that was shown. */
static void moments(const engine_seen *seen, int channel, double *mean, double *var)
{
    const float *x = seen->data;
    const int64_t inner = seen->count / 20 / 32;
    double sum = 0.0, squares = 0.0;

    for (int pass = 0; pass < 2; pass++) {
        for (int n = 0; n < 20; n++) {
            for (int64_t i = 0; i < inner; i++) {
                const double v = (double)x[(n * 32 + channel) * inner + i];

                sum += pass == 0 ? v : 0.0;
                squares += pass == 1 ? (v - *mean) * (v - *mean) : 0.0;
            }
        }
        *mean = sum / (20.0 * (double)inner);
    }
    *var = squares / (20.0 * (double)inner - 1.0);
}

/* After each micro-batch; with momentum None the mean over all of them. */
static void expect_statistics(double momentum)
{
    const how h = {1, 2, true, false, momentum, SONDE_NN_FLOAT32};
    engine_net net;
    engine_sink sink;
    sonde_nn_session *session = NULL;
    double mean = 0.0, var = 1.0;

    build(&net, momentum);
    engine_sink_init(&sink, true);
    open_session(&net, &h, &sink, &session);
    engine_train(&net, session, 5);
    for (int k = 0; k < 4; k++) {
        const double f = isnan(momentum) ? 1.0 / (k + 1) : momentum;
        double now = 0.0, spread = 0.0;

        moments(engine_find(&sink, "conv_output_0", k / 2, k % 2), 7, &now, &spread);
        mean += f * (now - mean);
        var += f * (spread - var);
        assert_float_equal(
            ((float *)engine_find(&sink, "bn1.running_mean", k / 2, k % 2)->data)[7],
            mean, 1e-5);
        assert_float_equal(
            ((float *)engine_find(&sink, "bn1.running_var", k / 2, k % 2)->data)[7], var,
            1e-5);
        assert_int_equal(
            *(int64_t *)engine_find(&sink, "bn1.num_batches_tracked", k / 2, k % 2)->data,
            k + 1);
    }
    sonde_nn_session_destroy(session);
    engine_sink_fini(&sink);
    engine_net_fini(&net);
}

static void running_statistics_are_pytorchs(void **state)
{
    (void)state;
    expect_statistics(0.25);
    expect_statistics((double)NAN);
}

static void inference_takes_the_running_statistics(void **state)
{
    const how h = {1, 1, false, false, 0.1, SONDE_NN_FLOAT32};
    engine_net net;
    engine_sink sink;
    engine_batch batch;
    sonde_nn_session *training = NULL, *inference = NULL;
    const sonde_schedule always = sonde_schedule_every(1);
    const float *mean = NULL, *var = NULL, *x = NULL, *y = NULL;
    const float *weight = NULL, *bias = NULL;
    float before[32];

    (void)state;
    build(&net, 0.1);
    engine_sink_init(&sink, true);
    open_session(&net, &h, &sink, &training);
    engine_train(&net, training, 5);
    must(sonde_nn_session_create(net.model, NULL, NULL, &inference, &engine_diag));
    must(sonde_nn_session_tap(inference, "*", &always, SONDE_HOW_RAW, &sink.sink,
                              &engine_diag));
    engine_batch_init(&batch, &net, 20, 8);
    mean = floats(net.model, "bn1.running_mean");
    var = floats(net.model, "bn1.running_var");
    memcpy(before, mean, sizeof before);
    must(sonde_nn_session_run(inference, batch.views, 1, &engine_diag));
    assert_same_bits(before, mean, 32); /* and they stay */
    assert_int_equal(batches(net.model), 2);
    x = engine_find(&sink, "conv_output_0", 0, 0)->data;
    y = engine_find(&sink, "bn1_output_0", 0, 0)->data;
    weight = engine_parameter(net.model, "bn1.weight", NULL);
    bias = engine_parameter(net.model, "bn1.bias", NULL);
    for (int i = 0; i < 20 * 32 * 100; i++) {
        const int c = i / 100 % 32;

        assert_float_equal(
            y[i], (x[i] - mean[c]) / sqrtf(var[c] + 1e-5F) * weight[c] + bias[c], 1e-4);
    }
    (void)engine_find(&sink, "bn1.running_mean", 0, 0); /* shown in inference too */
    engine_batch_fini(&batch);
    sonde_nn_session_destroy(training);
    sonde_nn_session_destroy(inference);
    engine_sink_fini(&sink);
    engine_net_fini(&net);
}

/* A tap of everything, where a value is bad. */
static sonde_err tap_bad(void *user, const sonde_catalogue *catalogue,
                         sonde_observer *observer, sonde_diag *diag)
{
    engine_sink *sink = user;
    sonde_selector *all = NULL;
    sonde_tap tap = {.how = SONDE_HOW_VITALS, .where = &sink->sink, .when_bad = true};
    sonde_err err = sonde_selector_create("*", &all, diag);

    (void)catalogue;
    if (err != SONDE_OK) {
        return err;
    }
    tap.what = all;
    tap.when[SONDE_MODE_TRAIN] = sonde_schedule_every(1);
    tap.when[SONDE_MODE_TRAIN].start = 100; /* none that is run */
    tap.when[SONDE_MODE_TRAIN].end = SONDE_SCHEDULE_NEVER;
    err = sonde_observer_add(observer, &tap, NULL, diag);
    sonde_selector_destroy(all);
    return err;
}

/* A loss that is not finite makes the forward pass run twice where a tap asks for bad
 * values; the micro-batch is counted once. */
static void a_second_look_counts_once(void **state)
{
    engine_net net;
    engine_sink sink;
    engine_batch batch;
    sonde_nn_session *session = NULL;

    (void)state;
    build(&net, 0.1);
    engine_sink_init(&sink, false);
    must(sonde_nn_session_create(net.model, NULL, &engine_sgd, &session, &engine_diag));
    must(sonde_nn_session_set(
        session, SONDE_OPTIONS(sonde_nn_session, .attach = tap_bad, .user = &sink),
        &engine_diag));
    engine_batch_init(&batch, &net, 20, 8);
    batch.samples[5] = NAN;
    must(sonde_nn_session_run(session, batch.views, 2, &engine_diag));
    assert_true(sink.count > 0);
    assert_int_equal(batches(net.model), 1);
    engine_batch_fini(&batch);
    sonde_nn_session_destroy(session);
    engine_sink_fini(&sink);
    engine_net_fini(&net);
}

/* --- refusals, jobs --------------------------------------------------------------------- */

static void one_value_a_channel_cannot_train(void **state)
{
    sonde_nn_options options;
    sonde_nn_session *session = NULL;
    engine_net net;

    (void)state;
    build(&net, 0.1);
    sonde_nn_options_init(&options);
    options.batch_size = 1; /* bn2 has a matrix */
    must(sonde_nn_session_create(net.model, &options, &engine_sgd, &session,
                                 &engine_diag));
    expect_err(SONDE_ESHAPE, sonde_nn_session_compile(session, &engine_diag));
    expect_line("bn2/BatchNorm: float32 (1, 16) (expected more than 1 value per channel "
                "when training)");
    sonde_nn_session_destroy(session);
    must(sonde_nn_session_create(net.model, &options, NULL, &session, &engine_diag));
    must(sonde_nn_session_compile(session, &engine_diag));
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
}

static void jobs_have_it(void **state)
{
    static const char text[] = "model:\n"
                               "  input: [3, 6, 6]\n"
                               "  layers:\n"
                               "    - batch_norm: {name: bn, momentum: none}\n"
                               "    - instance_norm: {name: in, affine: true}\n"
                               "    - batch_norm: {track_running_stats: false, "
                               "affine: false}\n"
                               "    - flatten\n"
                               "    - linear: {name: fc, out_features: 3}\n"
                               "  loss: cross_entropy\n";
    sonde_nn_job *job = NULL;
    sonde_nn_model *model = NULL;

    (void)state;
    must(sonde_nn_job_parse(text, strlen(text), "job", &job, &engine_diag));
    must(sonde_nn_job_build(job, &model, &engine_diag));
    assert_int_equal(sonde_nn_model_get_info(model).parameter_count, 6);
    assert_int_equal(sonde_nn_model_get_info(model).buffer_count, 3);
    assert_string_equal(sonde_nn_buffer(model, 2).name, "bn.num_batches_tracked");
    sonde_nn_model_destroy(model);
    sonde_nn_job_destroy(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buffers_are_tensors_of_the_model),
        cmocka_unit_test(a_file_without_them_is_refused),
        cmocka_unit_test(bits_do_not_depend_on_how_it_runs),
        cmocka_unit_test(a_norm_and_its_relu_are_shown),
        cmocka_unit_test(running_statistics_are_pytorchs),
        cmocka_unit_test(inference_takes_the_running_statistics),
        cmocka_unit_test(a_second_look_counts_once),
        cmocka_unit_test(one_value_a_channel_cannot_train),
        cmocka_unit_test(jobs_have_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

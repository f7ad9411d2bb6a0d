/*
 * test_onnx.c - ONNX files of torch's exporters against PyTorch: the output of each, and
 * every parameter after a step.
 *
 * tests/golden/onnx is written by tests/python/make_onnx_golden.py.
 */
#include "engine.h"
#include "base/macros.h"

#include <sonde/nn/job.h>
#include <sonde/nn/onnx.h>
#include <sonde/safetensors.h>

#include <math.h>
#include <unistd.h>

static const char *const files[] = {
    "digits_new", "mlp_old",      "mlp_new",        "cnn_old",        "cnn_new",
    "normed_old", "normed_new",   "rnn_old",        "gru_old",        "gru_new",
    "lstm_old",   "lstm_new",     "lstm_last_old",  "lstm_last_new",  "norms_old",
    "norms_new",  "encoder_old",  "encoder_new",    "attention_old",  "attention_new",
    "gpt_old",    "gpt_new",      "transposed_old", "transposed_new", "volume_old",
    "volume_new", "bordered_old", "bordered_new",   "placed_old",     "placed_new",
    "moved_new",  "two_old",      "two_new",        "causal_new",
};

enum { PATH = 512 };

static const char *path_of(const char *name, const char *ending, char *path)
{
    (void)snprintf(path, PATH, "%s/golden/onnx/%s.%s", SONDE_TEST_DIR, name, ending);
    return path;
}

/* Sums of up to some hundred products in another order, and what a rate of 0.1 makes of
 * them: some 1e-6 of the largest. */
static void expect_near(const char *path, const char *what, const sonde_view *found,
                        const sonde_view *wanted)
{
    const float *a = found->data, *b = wanted->data;
    double most = 1.0;

    if (!sonde_view_same_shape(found, wanted)) {
        fail_msg("%s, %s: another shape", path, what);
    }
    for (int64_t i = 0; i < sonde_view_count(wanted); i++) {
        most = fmax(most, fabs((double)b[i]));
    }
    for (int64_t i = 0; i < sonde_view_count(wanted); i++) {
        if (!(fabs((double)a[i] - (double)b[i]) <= 1e-5 * most)) {
            fail_msg("%s, %s: element %lld is %.9g, PyTorch says %.9g", path, what,
                     (long long)i, (double)a[i], (double)b[i]);
        }
    }
}

static const sonde_view *tensor(const sonde_safetensors *golden, const char *name)
{
    const sonde_view *view = sonde_safetensors_find(golden, name);

    if (view == NULL) {
        fail_msg("no tensor %s", name);
    }
    return view;
}

/* The output of the network as it was exported. */
static void check_output(const char *path, sonde_nn_model *model,
                         const sonde_safetensors *golden)
{
    const sonde_view *x = tensor(golden, "x"), *wanted = tensor(golden, "y");
    const sonde_view *x1 = sonde_safetensors_find(golden, "x1");
    const sonde_view inputs[] = {*x, x1 != NULL ? *x1 : *x};
    sonde_nn_session *session = NULL;
    sonde_nn_options options;
    sonde_view y;

    sonde_nn_options_init(&options);
    options.batch_size = (int)x->shape[0];
    must(sonde_nn_inference_session(model, &options, &session, &engine_diag));
    must(sonde_nn_session_compile(session, &engine_diag));
    must(sonde_nn_session_run(session, inputs, x1 != NULL ? 2 : 1, &engine_diag));
    must(sonde_nn_session_output(session, 0, &y, &engine_diag));
    expect_near(path, "y", &y, wanted);
    sonde_nn_session_destroy(session);
}

/* A step of SGD on the mean squared error. */
static void check_step(const char *path, sonde_nn_model *model,
                       const sonde_safetensors *golden)
{
    const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.1F, 0.0F);
    const sonde_view *x1 = sonde_safetensors_find(golden, "x1");
    const size_t count = x1 != NULL ? 3 : 2;
    const sonde_view inputs[] = {*tensor(golden, "x"),
                                 x1 != NULL ? *x1 : *tensor(golden, "t"),
                                 *tensor(golden, "t")};
    sonde_nn_value compared[2] = {sonde_nn_model_output(model, 0), 0};
    sonde_nn_session *session = NULL;
    sonde_nn_options options;
    sonde_view target = inputs[2];
    size_t trained = 0;

    target.shape[0] = sonde_nn_value_shape(model, compared[0], NULL)[0];
    compared[1] = sonde_nn_input(model, SONDE_F32, target.rank, target.shape);
    sonde_nn_loss(model, sonde_nn_layer(model, "mse_loss", "loss", compared, 2, NULL, 0));
    must(sonde_nn_model_status(model, &engine_diag));
    sonde_nn_options_init(&options);
    options.batch_size = (int)inputs[0].shape[0];
    must(sonde_nn_training_session(model, &options, &sgd, &session, &engine_diag));
    must(sonde_nn_session_compile(session, &engine_diag));
    must(sonde_nn_session_run(session, inputs, count, &engine_diag));
    for (size_t i = 0; i < sonde_safetensors_count(golden); i++) {
        const char *name = sonde_safetensors_name(golden, i);

        trained += strncmp(name, "after.", 6) == 0;
    }
    if (trained > 0) {
        assert_int_equal(sonde_nn_parameter_count(model), trained);
    }
    for (size_t i = 0; i < trained; i++) {
        const sonde_view found = sonde_nn_parameter_view(model, i);
        char name[320];

        (void)snprintf(name, sizeof name, "after.%s", sonde_nn_parameter_name(model, i));
        expect_near(path, name, &found, tensor(golden, name));
    }
    sonde_nn_session_destroy(session);
}

static void check_file(const char *name)
{
    char path[PATH], values[PATH];
    sonde_safetensors *golden = NULL;
    sonde_nn_model *model = NULL;
    sonde_nn_onnx_info info = {0};

    (void)path_of(name, "onnx", path);
    must(sonde_nn_onnx_load(path, NULL, &model, &info, &engine_diag));
    assert_int_equal(info.batch, 0);
    must(sonde_safetensors_open(path_of(name, "safetensors", values), &golden,
                                &engine_diag));
    sonde_nn_model_initialise(model, 7); /* keeps the file's values */
    check_output(path, model, golden);
    check_step(path, model, golden);
    sonde_nn_model_destroy(model);
    sonde_safetensors_destroy(golden);
}

static void of_pytorch(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(files); i++) {
        check_file(files[i]);
    }
}

/* --- out ---------------------------------------------------------------------------------- */

/* What is written is read again, and computes the same. */
static void check_again(const char *name)
{
    char path[PATH], values[PATH], copy[] = "/tmp/sonde-onnx-XXXXXX.onnx";
    sonde_safetensors *golden = NULL;
    sonde_nn_model *model = NULL, *again = NULL;
    const int fd = mkstemps(copy, 5);

    assert_true(fd >= 0);
    (void)close(fd);
    must(sonde_nn_onnx_load(path_of(name, "onnx", path), NULL, &model, NULL,
                            &engine_diag));
    must(sonde_nn_onnx_save(model, copy, &engine_diag));
    must(sonde_nn_onnx_load(copy, NULL, &again, NULL, &engine_diag));
    must(sonde_safetensors_open(path_of(name, "safetensors", values), &golden,
                                &engine_diag));
    assert_int_equal(sonde_nn_parameter_count(again), sonde_nn_parameter_count(model));
    check_output(copy, again, golden);
    sonde_nn_model_destroy(model);
    sonde_nn_model_destroy(again);
    sonde_safetensors_destroy(golden);
    (void)unlink(copy);
}

static void out_and_in(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(files); i++) {
        check_again(files[i]);
    }
}

/* A job has the inputs of its file, under their names, and the labels after them. */
static void inputs_of_jobs(void **state)
{
    static const char *const names[] = {"numbers", "tokens"};
    static const sonde_dtype dtypes[] = {SONDE_F32, SONDE_I64};
    char text[PATH + 32], path[PATH];
    sonde_nn_job *job = NULL;
    sonde_nn_model *model = NULL;
    const sonde_nn_job_info *info = NULL;

    (void)state;
    (void)snprintf(text, sizeof text, "model: {onnx: %s}",
                   path_of("two_new", "onnx", path));
    must(sonde_nn_job_parse(text, strlen(text), "job", &job, &engine_diag));
    info = sonde_nn_job_get_info(job);
    assert_int_equal(info->input_count, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_string_equal(info->inputs[i].name, names[i]);
        assert_int_equal(info->inputs[i].dtype, dtypes[i]);
        assert_int_equal(info->inputs[i].rank, 1);
        assert_int_equal(info->inputs[i].shape[0], 5 + (int)i);
    }
    assert_int_equal(info->classes, 3);
    must(sonde_nn_job_build(job, &model, &engine_diag));
    assert_int_equal(sonde_nn_model_input_count(model), 3);
    sonde_nn_model_destroy(model);
    sonde_nn_job_destroy(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_pytorch),
        cmocka_unit_test(out_and_in),
        cmocka_unit_test(inputs_of_jobs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * test_onnx.c - ONNX by way of Python: files in, jobs, files out, and what is reported where
 * Python is missing. What the files compute is compared in tests/python/test_onnx.py.
 *
 * Without the extension or the package onnx only the last test runs.
 */
#include "engine.h"

#include <sonde/nn/job.h>
#include <sonde/nn/onnx.h>

#include <stdlib.h>
#include <unistd.h>

enum { PATH = 512 };

static const char *path_of(const char *name, char *path)
{
    (void)snprintf(path, PATH, "%s/golden/onnx/%s.onnx", SONDE_TEST_DIR, name);
    return path;
}

/* The model of a golden file; NULL: Python or a package is missing here. */
static sonde_nn_model *load(const char *path, sonde_nn_onnx_info *info)
{
    sonde_nn_model *model = NULL;
    const sonde_err err = sonde_nn_onnx_load(path, NULL, &model, info, &engine_diag);

    if (err != SONDE_ENOTFOUND) {
        assert_int_equal(err, SONDE_OK);
    }
    return model;
}

static void in_and_out(void **state)
{
    char path[PATH], copy[] = "/tmp/sonde-onnx-XXXXXX.onnx";
    sonde_nn_onnx_info info = {0};
    sonde_nn_model *model = load(path_of("mlp_new", path), &info);

    (void)state;
    if (model == NULL) {
        skip();
    }
    assert_int_equal(info.batch, 0);
    assert_int_equal(info.opset, 20);
    assert_string_equal(info.last_op, "Gemm");
    assert_string_equal(sonde_nn_parameter(model, 0).name, "1.weight");
    const int file = mkstemps(copy, 5);

    assert_true(file >= 0);
    (void)close(file);
    must(sonde_nn_onnx_save(model, copy, &engine_diag));
    sonde_nn_model *again = load(copy, NULL);

    assert_non_null(again);
    assert_int_equal(sonde_nn_model_get_info(again).parameter_count,
                     sonde_nn_model_get_info(model).parameter_count);
    sonde_nn_model_destroy(model);
    sonde_nn_model_destroy(again);
    (void)unlink(copy);
}

/* A job has the inputs of its file, under their names, and the labels after them. */
static void inputs_of_jobs(void **state)
{
    static const char *const names[] = {"numbers", "tokens"};
    static const sonde_dtype dtypes[] = {SONDE_F32, SONDE_I64};
    char text[PATH + 32], path[PATH];
    sonde_nn_job *job = NULL;
    sonde_nn_model *model = NULL;

    (void)state;
    (void)snprintf(text, sizeof text, "model: {onnx: %s}", path_of("two_new", path));
    const sonde_err err =
        sonde_nn_job_parse(text, strlen(text), "job", &job, &engine_diag);

    if (err == SONDE_ENOTFOUND) {
        skip();
    }
    assert_int_equal(err, SONDE_OK);
    const sonde_nn_job_info *info = sonde_nn_job_get_info(job);

    assert_int_equal(info->input_count, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_string_equal(info->inputs[i].name, names[i]);
        assert_int_equal(info->inputs[i].dtype, dtypes[i]);
        assert_int_equal(info->inputs[i].rank, 1);
        assert_int_equal(info->inputs[i].shape[0], 5 + (int)i);
    }
    assert_int_equal(info->classes, 3);
    must(sonde_nn_job_build(job, &model, &engine_diag));
    assert_int_equal(sonde_nn_model_get_info(model).input_count, 3);
    sonde_nn_model_destroy(model);
    sonde_nn_job_destroy(job);
}

static void python_is_missing(void **state)
{
    const char *outer = getenv("SONDE_PYTHON");
    char path[PATH], kept[PATH];
    sonde_nn_model *model = NULL;

    (void)state;
    (void)snprintf(kept, sizeof kept, "%s", outer != NULL ? outer : "");
    assert_int_equal(setenv("SONDE_PYTHON", "/nowhere/python3", 1), 0);
    expect_err(SONDE_ENOTFOUND, sonde_nn_onnx_load(path_of("mlp_new", path), NULL, &model,
                                                   NULL, &engine_diag));
    assert_non_null(strstr(engine_diag.found, "cannot start Python"));
    assert_non_null(strstr(engine_diag.expected, "pip install"));
    must(sonde_nn_model_create(&model, &engine_diag));
    expect_err(SONDE_ENOTFOUND,
               sonde_nn_onnx_save(model, "/tmp/none.onnx", &engine_diag));
    sonde_nn_model_destroy(model);
    assert_int_equal(setenv("SONDE_PYTHON", kept, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_and_out),
        cmocka_unit_test(inputs_of_jobs),
        cmocka_unit_test(python_is_missing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

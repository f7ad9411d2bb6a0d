/*
 * test_activations.c - sigmoid and tanh by the builder and by a job; the loss in
 * inference.
 */
#include "engine.h"

#include <sonde/nn/job.h>

#include <math.h>

static float sample[2] = {-1.5F, 0.25F};
static int64_t label = 1;

/* The model's outputs for the sample: its values, and its loss, which is marked as one.
 */
static void run(sonde_nn_model *model, double y[2], double *loss)
{
    const sonde_view inputs[2] = {
        sonde_view_of(SONDE_F32, 2, (const int64_t[]){1, 2}, sample),
        sonde_view_of(SONDE_I64, 1, (const int64_t[]){1}, &label)};
    sonde_nn_session *session = NULL;
    sonde_view view;

    assert_int_not_equal(sonde_nn_model_get_info(model).loss, 0);
    sonde_nn_output(model, sonde_nn_model_get_info(model).loss);
    must(sonde_nn_session_create(model, NULL, NULL, &session, &engine_diag));
    must(sonde_nn_session_run(session, inputs, 2, &engine_diag));
    must(sonde_nn_session_output(session, 0, &view, &engine_diag));
    y[0] = (double)((const float *)view.data)[0];
    y[1] = (double)((const float *)view.data)[1];
    must(sonde_nn_session_output(session, 1, &view, &engine_diag));
    *loss = (double)*(const float *)view.data;
    sonde_nn_session_destroy(session);
}

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static void expect(const double y[2], double loss, double a, double b)
{
    assert_true(fabs(y[0] - a) < 1e-6 && fabs(y[1] - b) < 1e-6);
    assert_true(fabs(loss - log1p(exp(a - b))) < 1e-6); /* of label 1 */
}

static void by_the_builder(void **state)
{
    sonde_nn_model *model = NULL;
    sonde_nn_value x = 0, target = 0;
    double y[2], loss = 0.0;

    (void)state;
    must(sonde_nn_model_create(&model, &engine_diag));
    assert_int_equal(sonde_nn_model_get_info(model).loss, 0);
    x = sonde_nn_input(model, SONDE_F32, 2, (const int64_t[]){1, 2});
    target = sonde_nn_input(model, SONDE_I64, 1, (const int64_t[]){1});
    x = engine_apply(model, "tanh", "tanh", engine_apply(model, "sigmoid", "sigmoid", x));
    sonde_nn_output(model, x);
    sonde_nn_loss(model, sonde_nn_cross_entropy(model, "loss", x, target, NULL));
    must(sonde_nn_model_status(model, &engine_diag));
    run(model, y, &loss);
    expect(y, loss, tanh(sigmoid((double)sample[0])), tanh(sigmoid((double)sample[1])));
    sonde_nn_model_destroy(model);
}

static void by_a_job(void **state)
{
    static const char text[] = "model:\n"
                               "  input: [2]\n"
                               "  layers:\n"
                               "    - tanh: {name: t}\n"
                               "    - sigmoid\n"
                               "  loss: cross_entropy\n"
                               "options: {batch_size: 1}\n";
    sonde_nn_job *job = NULL;
    sonde_nn_model *model = NULL;
    double y[2], loss = 0.0;

    (void)state;
    must(sonde_nn_job_parse(text, sizeof text - 1, "job", &job, &engine_diag));
    must(sonde_nn_job_build(job, &model, &engine_diag));
    run(model, y, &loss);
    expect(y, loss, sigmoid(tanh((double)sample[0])), sigmoid(tanh((double)sample[1])));
    sonde_nn_model_destroy(model);
    sonde_nn_job_destroy(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_the_builder),
        cmocka_unit_test(by_a_job),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

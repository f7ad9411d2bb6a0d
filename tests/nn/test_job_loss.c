/*
 * test_job_loss.c - losses in job files: their parameters, what they compare the output
 * with, what is refused; what a training reports of a model without classes.
 */
#include "engine.h"
#include "base/macros.h"

#include <sonde/nn/evaluator.h>
#include <sonde/nn/job.h>

#include <math.h>

#define MODEL(input, layers, loss)                                                       \
    "model: {input: [" input "], layers: [" layers "], loss: " loss "}\n"
#define FC(out) "flatten, linear: {name: fc, out_features: " out "}"

static void expect_near(double have, double want, double tolerance)
{
    if (!(fabs(have - want) <= tolerance)) {
        fail_msg("%.9g, not %.9g", have, want);
    }
}

static sonde_nn_model *model_of(const char *text, sonde_nn_job **job)
{
    sonde_nn_model *model = NULL;

    must(sonde_nn_job_parse(text, strlen(text), "job", job, &engine_diag));
    must(sonde_nn_job_build(*job, &model, &engine_diag));
    return model;
}

/* The loss of one training step, at learning rate 0. */
static double loss_of(sonde_nn_model *model, const sonde_view *inputs, size_t count)
{
    const sonde_nn_optimizer still = sonde_nn_optimizer_sgd(0.0F, 0.0F);
    sonde_nn_options options;
    sonde_nn_session *session = NULL;
    double loss = 0.0;

    sonde_nn_options_init(&options);
    options.batch_size = inputs[0].shape[0];
    must(sonde_nn_session_create(model, &options, &still, &session, &engine_diag));
    must(sonde_nn_session_run(session, inputs, count, &engine_diag));
    must(sonde_nn_session_loss(session, &loss, &engine_diag));
    sonde_nn_session_destroy(session);
    return loss;
}

/* --- values --------------------------------------------------------------------------- */

static float samples[] = {0.5F, -1.0F, 2.0F, 0.25F, 1.5F, -0.5F};
static int64_t labels[] = {2, 0, 1};

/* Three samples of two numbers; the layer is the unit matrix, without bias. */
static double loss_of_text(const char *text, size_t inputs)
{
    const sonde_view views[] = {sonde_view_of(SONDE_F32, 2, (int64_t[]){3, 2}, samples),
                                sonde_view_of(SONDE_I64, 1, (int64_t[]){3}, labels)};
    sonde_nn_job *job = NULL;
    sonde_nn_model *model = model_of(text, &job);
    int rank = 0;
    const int64_t columns =
        sonde_nn_value_shape(model, sonde_nn_model_output(model, 0), &rank)[1];
    double loss = 0.0;

    assert_int_equal(sonde_nn_model_get_info(model).input_count, inputs);
    for (int64_t i = 0; i < 2 * columns; i++) {
        engine_parameter(model, "fc.weight", NULL)[i] = i % 3 == 0 ? 1.0F : 0.0F;
    }
    for (int64_t i = 0; i < columns; i++) {
        engine_parameter(model, "fc.bias", NULL)[i] = 0.1F;
    }
    loss = loss_of(model, views, inputs);
    sonde_nn_model_destroy(model);
    sonde_nn_job_destroy(job);
    return loss;
}

static void targets_are_samples_numbers_or_rows(void **state)
{
    double number = 0.0, rows = 0.0;

    (void)state;
    /* the output is the sample plus 0.1 */
    expect_near(loss_of_text(MODEL("2", FC("2"), "mse_loss"), 1), 0.01, 1e-6);
    expect_near(
        loss_of_text(MODEL("2", FC("2"), "{l1_loss: {name: l, reduction: sum}}"), 1), 0.6,
        1e-6);
    for (int n = 0; n < 3; n++) {
        const double y = (double)samples[2 * n] + 0.1;

        number += fabs(y - (double)labels[n]) / 3.0;
    }
    expect_near(loss_of_text(MODEL("2", FC("1"), "{l1_loss: {target: label}}"), 2),
                number, 1e-6);
    labels[0] = 1; /* of two classes */
    rows = 0.0;
    for (int i = 0; i < 6; i++) {
        const double d = (double)samples[i] + 0.1 - (labels[i / 2] == i % 2 ? 1.0 : 0.0);

        rows += d * d / 6.0;
    }
    expect_near(loss_of_text(MODEL("2", FC("2"), "{mse_loss: {target: one_hot}}"), 2),
                rows, 1e-6);
    labels[0] = 2;
}

/* -(1 - s) w[t] logp[t] - s / C sum of w logp, over the sum of w[t]. */
static void cross_entropy_has_pytorchs_parameters(void **state)
{
    const double w[] = {1.0, 2.0, 0.5}, s = 0.1;
    double sum = 0.0, weights = 0.0;

    (void)state;
    for (int n = 0; n < 3; n++) {
        const double y[] = {(double)samples[2 * n] + 0.1, /* weights 0 and 3 are 1 */
                            (double)samples[2 * n + 1] + 0.1, 0.1};
        double all = 0.0;

        if (labels[n] == 1) {
            continue; /* ignored */
        }
        for (int c = 0; c < 3; c++) {
            all += exp(y[c]);
        }
        for (int c = 0; c < 3; c++) {
            const double logp = y[c] - log(all);

            sum -= w[c] * logp * ((labels[n] == c ? 1.0 - s : 0.0) + s / 3.0);
        }
        weights += w[labels[n]];
    }
    expect_near(
        loss_of_text(MODEL("2", FC("3"),
                           "{cross_entropy: {weight: [1, 2, 0.5], label_smoothing: 0.1, "
                           "ignore_index: 1}}"),
                     2),
        sum / weights, 1e-5);
}

/* In C: a sum of log-probabilities, each with the weight of its class. */
static void cross_entropy_in_c(void **state)
{
    static const float weight[] = {1.0F, 2.0F, 0.5F};
    static float logp[] = {-0.5F, -1.5F, -3.0F, -2.0F, -0.25F, -4.0F};
    static int64_t classes[] = {2, 1};
    const sonde_view views[] = {sonde_view_of(SONDE_F32, 2, (int64_t[]){2, 3}, logp),
                                sonde_view_of(SONDE_I64, 1, (int64_t[]){2}, classes)};
    sonde_nn_model *model = NULL;
    sonde_nn_value x = 0, target = 0;

    (void)state;
    must(sonde_nn_model_create(&model, &engine_diag));
    x = sonde_nn_input(model, SONDE_F32, 2, (const int64_t[]){2, 3});
    target = sonde_nn_input(model, SONDE_I64, 1, (const int64_t[]){2});
    sonde_nn_loss(
        model, sonde_nn_cross_entropy(
                   model, "loss", x, target,
                   SONDE_OPTIONS(sonde_nn_cross_entropy, .weight = weight, .weights = 3,
                                 .sum = true, .of_log_probabilities = true)));
    expect_near(loss_of(model, views, 2), 0.5 * 3.0 + 2.0 * 0.25, 1e-6);
    sonde_nn_model_destroy(model);
}

static void weights_of_classes_are_a_buffer(void **state)
{
    sonde_nn_job *job = NULL;
    sonde_nn_model *model = model_of(
        MODEL("4", FC("2"), "{cross_entropy: {name: ce, weight: [1, 3]}}"), &job);

    (void)state;
    assert_int_equal(sonde_nn_model_get_info(model).buffer_count, 1);
    assert_string_equal(sonde_nn_buffer(model, 0).name, "ce.weight");
    sonde_nn_model_initialize(model, 9);
    assert_true(((const float *)sonde_nn_buffer(model, 0).view.data)[1] == 3.0F);
    sonde_nn_model_destroy(model);
    sonde_nn_job_destroy(job);
}

/* --- refusals ------------------------------------------------------------------------- */

static void mistakes_are_told(void **state)
{
    static const struct {
        const char *text, *line;
    } rows[] = {
        {MODEL("2", FC("2"), "mse_los"),
         "job:1: unknown loss 'mse_los' (expected mse_loss)"},
        {MODEL("2", FC("2"), "gelu"), NULL},
        {MODEL("2", FC("2"), "{mse_loss: {beta: 1}}"), NULL},
        {MODEL("2", FC("2"), "{mse_loss: {target: me}}"),
         "job:1: target 'me' (expected input, label, one_hot or values)"},
        {MODEL("2", FC("2"), "{mse_loss: {reduction: none}}"), NULL},
        {MODEL("2", FC("3"), "mse_loss"), NULL},
        {MODEL("2", FC("2"), "{mse_loss: {target: label}}"), NULL},
        {MODEL("2", FC("2"), "{cross_entropy: {label_smoothing: 2}}"),
         "job:1: loss: label_smoothing is 2 (expected 0 to 1)"},
        {MODEL("2", FC("2"), "{nll: {label_smoothing: 0.1}}"), NULL},
        {MODEL("2", FC("2"), "{cross_entropy: {weight: [1]}}"),
         "job:1: loss: 1 weights (expected a weight for each class)"},
        {MODEL("2", FC("2"), "{cross_entropy: {weight: [1, -1]}}"),
         "job:1: weight '-1' (expected a finite number >= 0)"},
        {MODEL("2", FC("2"), "{cross_entropy: {weight: 1}}"),
         "job:1: weight is no list (expected weight: [1, 2 ...], or balanced)"},
        {MODEL("2", FC("2"), "{cross_entropy: {reduction: none}}"),
         "job:1: reduction 'none' (expected mean or sum)"},
        {MODEL("2", FC("2"), "{mse_loss: {}, l1_loss: {}}"),
         "job:1: 2 losses (expected one loss)"},
    };

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(rows); i++) {
        sonde_nn_job *job = NULL;
        const sonde_err err = sonde_nn_job_parse(rows[i].text, strlen(rows[i].text),
                                                 "job", &job, &engine_diag);

        if (err != SONDE_EINVAL && err != SONDE_ESHAPE) {
            fail_msg("%s: %s", rows[i].text, sonde_err_name(err));
        }
        if (rows[i].line != NULL) {
            expect_line(rows[i].line);
        }
    }
}

/* A label that is no class is refused, unless it is the ignored one. */
static void labels_are_checked(void **state)
{
    static const char *const texts[] = {
        MODEL("2", FC("2"), "{cross_entropy: {ignore_index: -1}}"),
        MODEL("2", FC("2"), "{mse_loss: {target: one_hot}}")};
    int64_t outside[] = {0, -1, 1};
    const sonde_view views[] = {sonde_view_of(SONDE_F32, 2, (int64_t[]){3, 2}, samples),
                                sonde_view_of(SONDE_I64, 1, (int64_t[]){3}, outside)};

    (void)state;
    for (int i = 0; i < 3; i++) {
        sonde_nn_job *job = NULL;
        sonde_nn_model *model = model_of(texts[i > 0], &job);
        sonde_nn_options options;
        sonde_nn_session *session = NULL;

        sonde_nn_options_init(&options);
        options.batch_size = 3;
        outside[1] = i == 2 ? 5 : -1;
        must(sonde_nn_session_create(model, &options, &engine_sgd, &session,
                                     &engine_diag));
        expect_err(i == 0 ? SONDE_OK : SONDE_ERANGE,
                   sonde_nn_session_run(session, views, 2, &engine_diag));
        sonde_nn_session_destroy(session);
        sonde_nn_model_destroy(model);
        sonde_nn_job_destroy(job);
    }
}

/* --- scores --------------------------------------------------------------------------- */

static void expect_score(const char *text, double error)
{
    sonde_nn_job *job = NULL;
    sonde_nn_model *model = model_of(text, &job);
    const sonde_view data = sonde_view_of(SONDE_F32, 2, (int64_t[]){3, 2}, samples);
    const sonde_view classes = sonde_view_of(SONDE_I64, 1, (int64_t[]){3}, labels);
    sonde_nn_dataset *set = NULL;
    sonde_nn_evaluator *evaluator = NULL;
    sonde_nn_score score;
    size_t count = 0;
    float *weight = engine_parameter(model, "fc.weight", &count);

    for (size_t i = 0; i < count; i++) {
        weight[i] = i % 3 == 0 ? 1.0F : 0.0F;
    }
    memset(engine_parameter(model, "fc.bias", NULL), 0, count / 2 * sizeof(float));
    sonde_nn_job_get_info(job)->mean = 0.0F;
    sonde_nn_job_get_info(job)->std = 1.0F;
    must(sonde_nn_dataset_open(
        NULL, SONDE_OPTIONS(sonde_nn_dataset, .data = &data, .labels = &classes), &set,
        &engine_diag));
    must(sonde_nn_evaluator_create(job, model,
                                   SONDE_OPTIONS(sonde_nn_evaluator, .set = set),
                                   &evaluator, &engine_diag));
    must(sonde_nn_evaluator_run(evaluator, &engine_diag));
    score = sonde_nn_evaluator_score(evaluator);
    assert_false(score.classes);
    assert_true(isnan(score.accuracy));
    assert_null(sonde_nn_evaluator_score(evaluator).matrix);
    assert_int_equal(score.samples, 3);
    expect_near(score.error, error, 1e-6);
    sonde_nn_evaluator_destroy(evaluator);
    sonde_nn_dataset_destroy(set);
    sonde_nn_model_destroy(model);
    sonde_nn_job_destroy(job);
}

static void values_have_a_mean_absolute_error(void **state)
{
    const double number = (fabs(0.5 - 2.0) + fabs(2.0 - 0.0) + fabs(1.5 - 1.0)) / 3.0;

    (void)state;
    expect_score(MODEL("2", FC("2"), "mse_loss"), 0.0);
    expect_score(MODEL("2", FC("1"), "{smooth_l1_loss: {target: label, beta: 0.5}}"),
                 number);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(targets_are_samples_numbers_or_rows),
        cmocka_unit_test(cross_entropy_has_pytorchs_parameters),
        cmocka_unit_test(cross_entropy_in_c),
        cmocka_unit_test(weights_of_classes_are_a_buffer),
        cmocka_unit_test(mistakes_are_told),
        cmocka_unit_test(labels_are_checked),
        cmocka_unit_test(values_have_a_mean_absolute_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

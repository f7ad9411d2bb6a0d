/*
 * test_session_loops.c - D steps of G micro-batches a call: the same as separate calls;
 * what a parameter, its gradients' sum and its update are worth at every step; inference
 * beside training.
 */
#include "engine.h"
#include "base/macros.h"

#include <math.h>

enum { BATCH = 5 };

static sonde_nn_session *session_of(const engine_net *net, int iterations,
                                    int accumulation, sonde_nn_reduction reduction,
                                    const sonde_nn_optimizer *optimizer)
{
    sonde_nn_session *session = NULL;
    sonde_nn_options options;

    sonde_nn_options_init(&options);
    options.device_iterations = iterations;
    options.gradient_accumulation = accumulation;
    options.output_mode = SONDE_ANCHOR_ALL;
    options.output_period = 1;
    options.reduction = reduction;
    must(
        sonde_nn_session_create(net->model, &options, optimizer, &session, &engine_diag));
    return session;
}

static const float *output(const sonde_nn_session *session, size_t i, int64_t *count)
{
    sonde_view view;

    must(sonde_nn_session_output(session, i, &view, &engine_diag));
    *count = sonde_view_count(&view);
    return view.data;
}

static const float *anchored(const sonde_nn_session *session, const char *name,
                             int64_t count)
{
    sonde_view view;

    must(sonde_nn_session_anchored(session, name, &view, &engine_diag));
    assert_int_equal(sonde_view_count(&view), count);
    return view.data;
}

static void anchor(sonde_nn_session *session, const char *tensor, sonde_anchor_mode mode)
{
    must(sonde_nn_session_anchor(session, tensor, tensor, mode, 1, &engine_diag));
}

/* A batch's samples and targets from micro-batch k on. */
static void part_of(const engine_net *net, const engine_batch *batch, int64_t k,
                    int64_t count, sonde_view views[2])
{
    int64_t numbers = BATCH;

    for (int i = 0; i < net->rank; i++) {
        numbers *= net->sample[i];
    }
    views[0] = batch->views[0];
    views[1] = batch->views[1];
    views[0].shape[0] = views[1].shape[0] = count * BATCH;
    views[0].data = batch->samples + k * numbers;
    views[1].data = batch->targets + k * BATCH;
}

/* One call of D steps, and D calls of one step: outputs, losses and weights alike. */
static void expect_same_as_calls(engine_builder build, int iterations, int accumulation,
                                 const sonde_nn_optimizer *optimizer)
{
    engine_net whole, parts;
    engine_batch batch;
    sonde_nn_session *together = NULL, *apart = NULL;
    float *a = NULL, *b = NULL;

    build(&whole, BATCH);
    build(&parts, BATCH);
    engine_batch_init(&batch, &whole, (int64_t)BATCH * iterations * accumulation, 5);
    together =
        session_of(&whole, iterations, accumulation, SONDE_NN_REDUCTION_MEAN, optimizer);
    apart = session_of(&parts, 1, accumulation, SONDE_NN_REDUCTION_MEAN, optimizer);
    must(sonde_nn_session_run(together, batch.views, 2, &engine_diag));
    for (int d = 0; d < iterations; d++) {
        sonde_view views[2];

        part_of(&parts, &batch, (int64_t)d * accumulation, accumulation, views);
        must(sonde_nn_session_run(apart, views, 2, &engine_diag));
        for (size_t i = 0; i < 2; i++) {
            int64_t all = 0, one = 0;
            const float *want = output(apart, i, &one), *have = output(together, i, &all);

            assert_int_equal(all, one * iterations);
            assert_same_bits(have + d * one, want, one);
        }
    }
    assert_int_equal(sonde_nn_session_step(together), iterations);
    assert_int_equal(sonde_nn_session_step(apart), iterations);
    a = engine_weights(whole.model);
    b = engine_weights(parts.model);
    assert_same_bits(a, b, engine_weight_count(whole.model));
    free(a);
    free(b);
    sonde_nn_session_destroy(together);
    sonde_nn_session_destroy(apart);
    engine_batch_fini(&batch);
    engine_net_fini(&whole);
    engine_net_fini(&parts);
}

static void a_loop_is_as_many_calls(void **state)
{
    const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.1F, 0.9F),
                             adam = sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.01F);

    (void)state;
    expect_same_as_calls(engine_cnn, 3, 1, &sgd);
    expect_same_as_calls(engine_cnn, 3, 2, &adam);
    expect_same_as_calls(engine_mlp, 4, 3, &sgd);
    expect_same_as_calls(engine_branches, 2, 2, &sgd);
}

/* --- parameters at every step ------------------------------------------------------- */

/* With G = 1 a parameter has, at step d, the value after the update of step d. */
static void a_parameter_is_seen_after_its_update(void **state)
{
    const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.1F, 0.9F);
    engine_net whole, parts;
    engine_batch batch;
    sonde_nn_session *together = NULL, *apart = NULL;
    const float *all = NULL, *updated = NULL;

    (void)state;
    engine_mlp(&whole, BATCH);
    engine_mlp(&parts, BATCH);
    engine_batch_init(&batch, &whole, 3 * BATCH, 5);
    together = session_of(&whole, 3, 1, SONDE_NN_REDUCTION_MEAN, &sgd);
    apart = session_of(&parts, 1, 1, SONDE_NN_REDUCTION_MEAN, &sgd);
    anchor(together, "fc2.weight", SONDE_ANCHOR_ALL);
    anchor(together, "fc1.weight", SONDE_ANCHOR_FINAL);
    anchor(together, "UpdatedVar___fc2.weight", SONDE_ANCHOR_ALL);
    must(sonde_nn_session_run(together, batch.views, 2, &engine_diag));
    all = anchored(together, "fc2.weight", 3 * 128);
    updated = anchored(together, "UpdatedVar___fc2.weight", 3 * 128);
    for (int d = 0; d < 3; d++) {
        sonde_view views[2];
        const float *weight = engine_parameter(parts.model, "fc2.weight", NULL);

        part_of(&parts, &batch, d, 1, views);
        must(sonde_nn_session_run(apart, views, 2, &engine_diag));
        assert_same_bits(all + 128 * d, weight, 128);
        assert_same_bits(updated + 128 * d, weight, 128);
    }
    assert_same_bits(anchored(together, "fc1.weight", 32 * 24),
                     engine_parameter(whole.model, "fc1.weight", NULL), 32 * 24);
    sonde_nn_session_destroy(together);
    sonde_nn_session_destroy(apart);
    engine_batch_fini(&batch);
    engine_net_fini(&whole);
    engine_net_fini(&parts);
}

/* w[d + 1] = w[d] - lr (sum or mean over g of the gradient); before the update with G >
 * 1, constant over g, and after it as Final and UpdatedVar. */
static void expect_relation(sonde_nn_reduction reduction, float rate)
{
    enum { D = 3, G = 4, N = 128 };
    const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(rate, 0.0F);
    const double scale =
        (double)rate / (reduction == SONDE_NN_REDUCTION_MEAN ? (double)G : 1.0);
    engine_net net;
    sonde_nn_session *session = NULL;
    const float *w = NULL, *gradient = NULL, *sum = NULL, *updated = NULL, *last = NULL;
    float *before = NULL;

    engine_mlp(&net, BATCH);
    session = session_of(&net, D, G, reduction, &sgd);
    anchor(session, "fc2.weight", SONDE_ANCHOR_ALL);
    anchor(session, "Gradient___fc2.weight", SONDE_ANCHOR_ALL);
    anchor(session, "Accum___fc2.weight", SONDE_ANCHOR_ALL);
    anchor(session, "UpdatedVar___fc2.weight", SONDE_ANCHOR_ALL);
    must(sonde_nn_session_anchor(session, "final", "fc2.weight", SONDE_ANCHOR_FINAL, 1,
                                 &engine_diag));
    before = engine_weights(net.model);
    engine_train(&net, session, 9);
    w = anchored(session, "fc2.weight", D * G * N);
    gradient = anchored(session, "Gradient___fc2.weight", D * G * N);
    sum = anchored(session, "Accum___fc2.weight", D * G * N);
    updated = anchored(session, "UpdatedVar___fc2.weight", D * N);
    last = anchored(session, "final", N);
    assert_same_bits(w, before + 32 * 24 + 32, N);
    assert_same_bits(last, engine_parameter(net.model, "fc2.weight", NULL), N);
    assert_same_bits(last, updated + (D - 1) * N, N);
    for (int d = 0; d < D; d++) {
        for (int i = 0; i < N; i++) {
            float running = 0.0F;
            const float *next = d + 1 < D ? w + (d + 1) * G * N : last;

            for (int g = 0; g < G; g++) {
                const int k = (d * G + g) * N + i;

                running = g == 0 ? gradient[k] : running + gradient[k];
                assert_true(sum[k] == running);
                assert_true(w[k] == w[d * G * N + i]);
            }
            /* one rounding of the product, one of the difference */
            assert_true(fabs((double)w[d * G * N + i] - scale * (double)running -
                             (double)next[i]) < 1e-7);
            assert_true(updated[d * N + i] == next[i]);
        }
    }
    free(before);
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
}

static void a_step_subtracts_the_sum_of_its_gradients(void **state)
{
    (void)state;
    expect_relation(SONDE_NN_REDUCTION_SUM, 1.0F);
    expect_relation(SONDE_NN_REDUCTION_SUM, 0.1F);
    expect_relation(SONDE_NN_REDUCTION_MEAN, 1.0F);
}

/* --- accumulating ------------------------------------------------------------------- */

/* Weights after three steps of 12 samples, in G micro-batches. */
static float *accumulate(engine_builder build, int accumulation,
                         sonde_nn_reduction reduction, float rate, size_t *count)
{
    const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(rate, 0.5F);
    engine_net net;
    sonde_nn_session *session = NULL;
    float *weights = NULL;

    build(&net, 12 / accumulation);
    session = session_of(&net, 3, accumulation, reduction, &sgd);
    engine_train(&net, session, 4);
    weights = engine_weights(net.model);
    *count = engine_weight_count(net.model);
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
    return weights;
}

static void expect_near(const float *a, const float *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        /* sums of at most 12 x 100 products in another order, over three steps */
        if (fabs((double)a[i] - (double)b[i]) > 2e-6) {
            fail_msg("weight %zu is %.9g, not %.9g", i, (double)a[i], (double)b[i]);
        }
    }
}

static void accumulation_equals_one_large_batch(void **state)
{
    static const engine_builder builders[] = {engine_cnn, engine_mlp, engine_branches};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(builders); i++) {
        size_t count = 0;
        float *want = accumulate(builders[i], 1, SONDE_NN_REDUCTION_MEAN, 0.1F, &count);

        for (int g = 2; g <= 4; g++) {
            float *mean =
                accumulate(builders[i], g, SONDE_NN_REDUCTION_MEAN, 0.1F, &count);
            float *sum = accumulate(builders[i], g, SONDE_NN_REDUCTION_SUM,
                                    0.1F / (float)g, &count);

            expect_near(mean, want, count);
            expect_near(sum, want, count);
            free(mean);
            free(sum);
        }
        free(want);
    }
}

/* --- inference beside training ------------------------------------------------------ */

static void inference_uses_the_weights_just_trained(void **state)
{
    const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.1F, 0.0F);
    engine_net net;
    engine_batch batch;
    sonde_nn_session *training = NULL, *inference = NULL;
    float *before = NULL;
    int64_t count = 0;

    (void)state;
    engine_cnn(&net, BATCH);
    engine_batch_init(&batch, &net, BATCH, 5);
    training = session_of(&net, 1, 1, SONDE_NN_REDUCTION_MEAN, &sgd);
    must(sonde_nn_session_create(net.model, NULL, NULL, &inference, &engine_diag));
    must(sonde_nn_session_run(inference, batch.views, 1, &engine_diag));
    assert_int_equal(engine_output_count(inference), 1);
    before = malloc(BATCH * 5 * sizeof *before);
    assert_non_null(before);
    memcpy(before, output(inference, 0, &count), BATCH * 5 * sizeof *before);
    assert_int_equal(count, BATCH * 5);
    for (int i = 0; i < 3;
         i++) { /* a step's outputs are those of the weights before it */
        must(sonde_nn_session_run(training, batch.views, 2, &engine_diag));
        assert_same_bits(output(training, 0, &count), before, count);
        must(sonde_nn_session_run(inference, batch.views, 1, &engine_diag));
        assert_memory_not_equal(output(inference, 0, &count), before,
                                (size_t)count * sizeof *before);
        memcpy(before, output(inference, 0, &count), BATCH * 5 * sizeof *before);
    }
    assert_int_equal(sonde_nn_session_step(inference), 4);
    free(before);
    sonde_nn_session_destroy(training);
    sonde_nn_session_destroy(inference);
    engine_batch_fini(&batch);
    engine_net_fini(&net);
}

/* The scores of 32 samples do not depend on the batches they come in. */
static void inference_takes_other_batches(void **state)
{
    static const engine_builder builders[] = {engine_cnn, engine_mlp, engine_branches};
    static const int64_t batches[] = {1, 7, 32};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(builders); i++) {
        engine_net net;
        engine_batch batch;
        float scores[3][32 * 5];
        size_t numbers = 1;

        builders[i](&net, BATCH);
        engine_batch_init(&batch, &net, 35, 5);
        for (int k = 0; k < net.rank; k++) {
            numbers *= (size_t)net.sample[k];
        }
        for (size_t b = 0; b < 3; b++) {
            sonde_nn_session *session = NULL;
            sonde_nn_options options;
            sonde_nn_session_info info;

            sonde_nn_options_init(&options);
            options.batch_size = batches[b];
            must(sonde_nn_session_create(net.model, &options, NULL, &session,
                                         &engine_diag));
            must(sonde_nn_session_compile(session, &engine_diag));
            must(sonde_nn_session_describe(session, &info, &engine_diag));
            assert_int_equal(info.batch_size, batches[b]);
            for (int64_t at = 0; at < 32; at += batches[b]) {
                sonde_view view = batch.views[0];
                int64_t count = 0, left = 32 - at;
                const float *out = NULL;

                view.shape[0] = batches[b];
                view.data = batch.samples + (size_t)at * numbers;
                must(sonde_nn_session_run(session, &view, 1, &engine_diag));
                out = output(session, 0, &count);
                left = left < batches[b] ? left : batches[b];
                memcpy(scores[b] + at * net.classes, out,
                       (size_t)(left * net.classes) * sizeof *out);
            }
            sonde_nn_session_destroy(session);
        }
        for (int64_t k = 0; k < 32 * net.classes; k++) {
            /* kernels of different batches may add in another order */
            assert_true(fabs((double)scores[0][k] - (double)scores[2][k]) < 2e-6);
            assert_true(fabs((double)scores[1][k] - (double)scores[2][k]) < 2e-6);
        }
        engine_batch_fini(&batch);
        engine_net_fini(&net);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loop_is_as_many_calls),
        cmocka_unit_test(a_parameter_is_seen_after_its_update),
        cmocka_unit_test(a_step_subtracts_the_sum_of_its_gradients),
        cmocka_unit_test(accumulation_equals_one_large_batch),
        cmocka_unit_test(inference_uses_the_weights_just_trained),
        cmocka_unit_test(inference_takes_other_batches),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

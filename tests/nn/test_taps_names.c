/*
 * test_taps_names.c - every single name of every built-in network, tapped alone, gives
 * the bits that it has when all are tapped.
 *
 * A value that nobody wants may live in registers only; wanting it must not change it.
 */
#include "engine.h"

#include <sonde/nn/job.h>

#include <math.h>

enum { BATCH = 3 };

typedef struct setting {
    const char *model;
    int accumulation;
    bool training;
    engine_net net; /* built once; every run begins with the weights it was built with */
    float *weights;
    engine_batch batch;
} setting;

static void set_up(setting *s)
{
    sonde_nn_job *job = NULL;
    sonde_nn_job_info *info = NULL;

    must(sonde_nn_job_builtin(s->model, &job, &engine_diag));
    info = sonde_nn_job_get_info(job);
    s->net =
        (engine_net){.rank = info->sample_rank, .classes = info->classes, .batch = BATCH};
    memcpy(s->net.sample, info->sample_shape,
           (size_t)s->net.rank * sizeof *s->net.sample);
    must(sonde_nn_job_build(job, &s->net.model, &engine_diag));
    sonde_nn_job_destroy(job);
    s->weights = engine_weights(s->net.model);
    engine_batch_init(&s->batch, &s->net, (int64_t)BATCH * s->accumulation, 11);
}

static void tear_down(setting *s)
{
    engine_batch_fini(&s->batch);
    free(s->weights);
    engine_net_fini(&s->net);
}

/* One call with a tap. */
static sonde_nn_session *run_tapped(const setting *s, const char *selector, unsigned how,
                                    engine_sink *sink)
{
    const sonde_schedule always = sonde_schedule_every(1);
    const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.01F, 0.9F);
    sonde_nn_model *model = s->net.model;
    sonde_nn_options options;
    sonde_nn_session *session = NULL;

    engine_set_weights(model, s->weights);
    sonde_nn_options_init(&options);
    options.batch_size = BATCH;
    options.gradient_accumulation = s->accumulation;
    options.threads = 1;
    must(s->training
             ? sonde_nn_session_create(model, &options, &sgd, &session, &engine_diag)
             : sonde_nn_session_create(model, &options, NULL, &session, &engine_diag));
    must(
        sonde_nn_session_tap(session, selector, &always, how, &sink->sink, &engine_diag));
    must(
        sonde_nn_session_run(session, s->batch.views, s->training ? 2 : 1, &engine_diag));
    return session;
}

static void tap_alone(const setting *s, const sonde_tensor_info *info,
                      const engine_sink *all, unsigned how)
{
    engine_sink alone;
    sonde_nn_session *session = NULL;
    const size_t micro_batches =
        info->pass == SONDE_PASS_UPDATE ? 1 : (size_t)s->accumulation;

    engine_sink_init(&alone, how == SONDE_HOW_RAW);
    session = run_tapped(s, info->name, how, &alone);
    if (alone.count != micro_batches) {
        fail_msg("%s: %s seen %zu times", s->model, info->name, alone.count);
    }
    for (size_t i = 0; i < alone.count; i++) {
        const engine_seen *seen = &alone.seen[i];
        const engine_seen *want = engine_find(all, info->name, 0, seen->at.micro_batch);
        const size_t bytes = (size_t)seen->count * sonde_dtype_size(info->dtype);

        assert_string_equal(seen->name, info->name);
        assert_int_equal(seen->info.rank, info->rank);
        assert_memory_equal(seen->info.shape, info->shape,
                            (size_t)info->rank * sizeof *info->shape);
        if (how == SONDE_HOW_RAW && memcmp(seen->data, want->data, bytes) != 0) {
            fail_msg("%s: %s has other bits when tapped alone", s->model, info->name);
        }
        if (how == SONDE_HOW_VITALS &&
            (!engine_vitals_agree(info, want->data, &seen->vitals) ||
             memcmp(&seen->vitals, &want->vitals, sizeof want->vitals) != 0)) {
            fail_msg("%s: %s has other vital signs when tapped alone", s->model,
                     info->name);
        }
    }
    sonde_nn_session_destroy(session);
    engine_sink_fini(&alone);
}

static void expect_all_names(setting *s)
{
    engine_sink all;
    sonde_nn_session *session = NULL;
    const sonde_catalogue *catalogue = NULL;

    set_up(s);
    engine_sink_init(&all, true);
    session = run_tapped(s, "*", SONDE_HOW_RAW | SONDE_HOW_VITALS, &all);
    catalogue = sonde_nn_session_catalogue(session);
    assert_in_range(sonde_catalogue_count(catalogue), 15, 200);
    for (size_t i = 0; i < all.count; i++) {
        for (int64_t k = 0; all.seen[i].info.dtype == SONDE_F32 && k < all.seen[i].count;
             k++) {
            if (!isfinite(((const float *)all.seen[i].data)[k])) {
                fail_msg("%s: %s is not finite", s->model, all.seen[i].name);
            }
        }
    }
    for (uint32_t id = 0; id < sonde_catalogue_count(catalogue); id++) {
        const sonde_tensor_info *info = sonde_catalogue_info(catalogue, id);

        tap_alone(s, info, &all, SONDE_HOW_RAW);
        tap_alone(s, info, &all, SONDE_HOW_VITALS);
    }
    sonde_nn_session_destroy(session);
    engine_sink_fini(&all);
    tear_down(s);
}

static void all_names_of_fashion_cnn(void **state)
{
    (void)state;
    expect_all_names(
        &(setting){.model = "fashion_cnn", .accumulation = 1, .training = true});
}

static void all_names_of_fashion_cnn_accumulating(void **state)
{
    (void)state;
    expect_all_names(
        &(setting){.model = "fashion_cnn", .accumulation = 2, .training = true});
}

static void all_names_of_fashion_cnn_inferring(void **state)
{
    (void)state;
    expect_all_names(
        &(setting){.model = "fashion_cnn", .accumulation = 1, .training = false});
}

static void all_names_of_mnist_mlp(void **state)
{
    (void)state;
    expect_all_names(
        &(setting){.model = "mnist_mlp", .accumulation = 1, .training = true});
}

static void all_names_of_mnist_mlp_small(void **state)
{
    (void)state;
    expect_all_names(
        &(setting){.model = "mnist_mlp_small", .accumulation = 1, .training = true});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_names_of_fashion_cnn),
        cmocka_unit_test(all_names_of_fashion_cnn_accumulating),
        cmocka_unit_test(all_names_of_fashion_cnn_inferring),
        cmocka_unit_test(all_names_of_mnist_mlp),
        cmocka_unit_test(all_names_of_mnist_mlp_small),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * test_taps.c - observing changes nothing, and what is observed is what was computed.
 * tsan: yes
 */
#include "engine.h"
#include "base/macros.h"

#include <math.h>

enum {
    STEPS = 5,
    HOW_ALL = SONDE_HOW_RAW | SONDE_HOW_VITALS | SONDE_HOW_SKETCH | SONDE_HOW_HASH
};

static const engine_builder builders[] = {engine_cnn, engine_mlp, engine_branches};
static const char *const builder_names[] = {"cnn", "mlp", "branches"};

/* How a network is trained, and what is looked at meanwhile. */
typedef struct plan {
    engine_builder build;
    int64_t batch;
    sonde_nn_optimizer optimizer;
    int accumulation, iterations, threads;
    const char *tapped; /* a selector; NULL: no tap */
    unsigned how;
    sonde_schedule schedule; /* zeroed: always */
    bool anchors;            /* on every tensor of the catalogue */
} plan;

static void set_options(const plan *p, sonde_nn_options *options)
{
    sonde_nn_options_init(options);
    options->gradient_accumulation = p->accumulation;
    options->device_iterations = p->iterations;
    options->threads = p->threads;
}

/* Anchors everything that a session of the same kind has a name for. */
static void anchor_all(sonde_nn_model *model, const plan *p, sonde_nn_session *session)
{
    sonde_nn_session *names = NULL;
    sonde_nn_options options;
    const sonde_catalogue *catalogue = NULL;

    set_options(p, &options);
    must(sonde_nn_session_create(model, &options, &p->optimizer, &names, &engine_diag));
    must(sonde_nn_session_compile(names, &engine_diag));
    catalogue = sonde_nn_session_catalogue(names);
    for (uint32_t id = 0; id < sonde_catalogue_count(catalogue); id++) {
        const char *name = sonde_catalogue_info(catalogue, id)->name;

        must(sonde_nn_session_anchor(session, name, name, SONDE_ANCHOR_ALL, 1,
                                     &engine_diag));
    }
    sonde_nn_session_destroy(names);
}

/* Trains for STEPS calls; returns all weights and the loss of every call, a new block. */
static float *train(const plan *p, engine_sink *sink, size_t *count)
{
    engine_net net;
    sonde_nn_session *session = NULL;
    sonde_nn_options options;
    const sonde_schedule always = sonde_schedule_every(1);
    float *result = NULL, *weights = NULL;
    size_t weight_count = 0;

    p->build(&net, p->batch);
    set_options(p, &options);
    must(sonde_nn_session_create(net.model, &options, &p->optimizer, &session,
                                 &engine_diag));
    if (p->tapped != NULL) {
        must(sonde_nn_session_tap(session, p->tapped,
                                  p->schedule.every > 0 ? &p->schedule : &always, p->how,
                                  &sink->sink, &engine_diag));
    }
    if (p->anchors) {
        anchor_all(net.model, p, session);
    }
    weight_count = engine_weight_count(net.model);
    result = malloc((weight_count + STEPS) * sizeof *result);
    assert_non_null(result);
    for (int i = 0; i < STEPS; i++) {
        sonde_view loss;

        engine_train(&net, session, (uint64_t)i);
        must(sonde_nn_session_output(session, 1, &loss, &engine_diag));
        memcpy(result + weight_count + i, loss.data, sizeof *result);
    }
    weights = engine_weights(net.model);
    memcpy(result, weights, weight_count * sizeof *result);
    free(weights);
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
    *count = weight_count + STEPS;
    return result;
}

/* The same training, looked at in another way: the same bits. */
static void expect_unchanged(const plan *bare, const plan *observed)
{
    engine_sink sink;
    size_t count = 0, other = 0;
    float *want = train(bare, NULL, &count), *have = NULL;

    engine_sink_init(&sink, (observed->how & SONDE_HOW_RAW) != 0);
    have = train(observed, &sink, &other);
    assert_int_equal(count, other);
    assert_same_bits(want, have, count);
    assert_true(observed->tapped == NULL || sink.count > 0);
    for (size_t i = 0; i < count; i++) {
        assert_true(isfinite(want[i]));
    }
    engine_sink_fini(&sink);
    free(want);
    free(have);
}

static plan bare_plan(size_t which, int64_t batch)
{
    return (plan){.build = builders[which],
                  .batch = batch,
                  .optimizer = sonde_nn_optimizer_sgd(0.1F, 0.9F),
                  .accumulation = 1,
                  .iterations = 1,
                  .threads = 1};
}

static void looks(plan bare)
{
    plan seen = bare;

    seen.tapped = "*";
    seen.how = SONDE_HOW_VITALS;
    expect_unchanged(&bare, &seen);
    seen.how = SONDE_HOW_RAW;
    expect_unchanged(&bare, &seen);
    seen.how = HOW_ALL;
    expect_unchanged(&bare, &seen);
    seen.schedule = sonde_schedule_every(2);
    expect_unchanged(&bare, &seen);
    seen.schedule = (sonde_schedule){0};
    seen.tapped = "@gradient,relu*";
    seen.how = SONDE_HOW_VITALS;
    expect_unchanged(&bare, &seen);
    seen = bare;
    seen.anchors = true;
    expect_unchanged(&bare, &seen);
}

static void weights_do_not_know_taps(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(builders); i++) {
        plan bare = bare_plan(i, 5);

        looks(bare);
        bare.accumulation = 2;
        looks(bare);
        bare.accumulation = 1;
        bare.optimizer = sonde_nn_optimizer_default(SONDE_NN_ADAMW, 0.01F);
        looks(bare);
        bare.optimizer = sonde_nn_optimizer_sgd(0.1F, 0.0F);
        bare.iterations = 3;
        looks(bare);
    }
}

/* 17 and 33 samples: lanes that are partly empty. */
static void weights_do_not_know_threads(void **state)
{
    static const int64_t batches[] = {4, 17, 33};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(builders) * SONDE_COUNT_OF(batches); i++) {
        const plan one = bare_plan(i / SONDE_COUNT_OF(batches), batches[i % 3]);
        plan many = one;

        expect_unchanged(&one, &many); /* twice the same */
        many.threads = 2;
        expect_unchanged(&one, &many);
        many.threads = 3;
        many.tapped = "*";
        many.how = SONDE_HOW_VITALS;
        expect_unchanged(&one, &many);
        many.how = SONDE_HOW_RAW;
        expect_unchanged(&one, &many);
    }
}

/* A layer large enough that kernels want several threads: the team really runs. */
static void build_wide(engine_net *net, int64_t batch)
{
    sonde_nn_value x = 0, target = 0;

    *net = (engine_net){.rank = 1, .sample = {512}, .classes = 8, .batch = batch};
    x = engine_inputs(net, &target);
    x = sonde_nn_linear(net->model, "fc1", x,
                        SONDE_OPTIONS(sonde_nn_linear, .out_features = 512));
    x = sonde_nn_relu(net->model, "relu", x);
    x = sonde_nn_linear(net->model, "fc2", x,
                        SONDE_OPTIONS(sonde_nn_linear, .out_features = 8));
    engine_finish(net, x, sonde_nn_cross_entropy(net->model, "loss", x, target, NULL));
}

static void teams_change_nothing(void **state)
{
    plan one = bare_plan(0, 64);
    plan many;
    engine_net net;
    sonde_nn_session *session = NULL;
    sonde_nn_session_info info;
    sonde_nn_options options;

    (void)state;
    one.build = build_wide;
    many = one;
    many.threads = 3;
    build_wide(&net, 64);
    set_options(&many, &options);
    must(sonde_nn_session_create(net.model, &options, &engine_sgd, &session,
                                 &engine_diag));
    must(sonde_nn_session_compile(session, &engine_diag));
    must(sonde_nn_session_describe(session, &info, &engine_diag));
    assert_in_range(info.threads, 2, 3); /* else this tests nothing */
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
    expect_unchanged(&one, &many);
    many.tapped = "*";
    many.how = SONDE_HOW_VITALS;
    expect_unchanged(&one, &many);
    many.how = SONDE_HOW_RAW;
    expect_unchanged(&one, &many);
    one.accumulation = many.accumulation = 2;
    expect_unchanged(&one, &many);
}

/* Vital signs that were asked for alone, so that kernels fuse what they can, are those of
 * the raw values of another run. */
static void expect_true_vitals(const plan *p)
{
    plan raw = *p, vital = *p;
    engine_sink values, signs;
    size_t count = 0;

    raw.tapped = vital.tapped = "*";
    raw.how = SONDE_HOW_RAW;
    vital.how = SONDE_HOW_VITALS;
    engine_sink_init(&values, true);
    engine_sink_init(&signs, false);
    free(train(&raw, &values, &count));
    free(train(&vital, &signs, &count));
    assert_int_equal(values.count, signs.count);
    for (size_t i = 0; i < signs.count; i++) {
        const engine_seen *sign = &signs.seen[i];
        const engine_seen *value =
            engine_find(&values, sign->name, sign->at.mode_step, sign->at.micro_batch);

        assert_true(sign->has_vitals);
        if (!engine_vitals_agree(&value->info, value->data, &sign->vitals)) {
            fail_msg("%s at step %d: mean %.17g; l1 %.17g", sign->name,
                     (int)sign->at.mode_step, sign->vitals.mean, sign->vitals.l1);
        }
    }
    engine_sink_fini(&values);
    engine_sink_fini(&signs);
}

static void vital_signs_are_those_of_the_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(builders); i++) {
        plan p = bare_plan(i, 17);

        expect_true_vitals(&p);
        p.optimizer = sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.01F);
        expect_true_vitals(&p);
        p.optimizer = sonde_nn_optimizer_default(SONDE_NN_LAMB, 0.01F);
        expect_true_vitals(&p);
        p.optimizer = sonde_nn_optimizer_default(SONDE_NN_ADAGRAD, 0.01F);
        expect_true_vitals(&p);
        p.optimizer = sonde_nn_optimizer_default(SONDE_NN_RMSPROP, 0.01F);
        p.optimizer.momentum = 0.5F;
        expect_true_vitals(&p);
        p.optimizer = sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.01F);
        p.accumulation = 3;
        p.iterations = 2;
        expect_true_vitals(&p);
        p.optimizer = sonde_nn_optimizer_sgd(0.1F, 0.0F);
        p.threads = 2;
        expect_true_vitals(&p);
    }
}

/* Every name is seen once in every micro-batch, or once a step where it belongs to the
 * update. */
static void every_name_is_seen_as_often_as_it_has_a_value(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(builders) * 3; i++) {
        const int accumulation = (int)(i % 3) + 1;
        engine_net net;
        sonde_nn_session *session = NULL;
        sonde_nn_options options;
        const sonde_catalogue *catalogue = NULL;
        const sonde_schedule always = sonde_schedule_every(1);
        engine_sink sink;

        builders[i / 3](&net, 4);
        sonde_nn_options_init(&options);
        options.gradient_accumulation = accumulation;
        options.device_iterations = 2;
        engine_sink_init(&sink, true);
        must(sonde_nn_session_create(net.model, &options,
                                     &(sonde_nn_optimizer){.kind = SONDE_NN_SGD,
                                                           .learning_rate = 0.1F,
                                                           .momentum = 0.9F},
                                     &session, &engine_diag));
        must(sonde_nn_session_tap(session, "*", &always, SONDE_HOW_RAW, &sink.sink,
                                  &engine_diag));
        engine_train(&net, session, 1);
        engine_sink_clear(&sink);
        engine_train(&net, session, 2);
        catalogue = sonde_nn_session_catalogue(session);
        for (uint32_t id = 0; id < sonde_catalogue_count(catalogue); id++) {
            const sonde_tensor_info *info = sonde_catalogue_info(catalogue, id);
            size_t times = 0;

            for (size_t k = 0; k < sink.count; k++) {
                times += strcmp(sink.seen[k].name, info->name) == 0;
            }
            if (times !=
                (info->pass == SONDE_PASS_UPDATE ? 2U : 2U * (unsigned)accumulation)) {
                fail_msg("%s (%s, pass %s, G %d): seen %zu times", info->name,
                         builder_names[i / 3], sonde_pass_name(info->pass), accumulation,
                         times);
            }
        }
        sonde_nn_session_destroy(session);
        engine_sink_fini(&sink);
        engine_net_fini(&net);
    }
}

/* dW[o][k] = sum over n of dy[n][o] x[n][k], in double, from what was observed of dy and
 * x. */
static void an_observed_gradient_is_the_one_recomputed(void **state)
{
    engine_net net;
    sonde_nn_session *session = NULL;
    engine_sink sink;
    const engine_seen *dy = NULL, *x = NULL, *dw = NULL, *db = NULL;

    (void)state;
    engine_cnn(&net, 19);
    engine_sink_init(&sink, true);
    must(sonde_nn_session_create(net.model, NULL, &engine_sgd, &session, &engine_diag));
    engine_tap_all(session, SONDE_HOW_RAW, &sink);
    engine_train(&net, session, 3);
    dy = engine_find(&sink, "Gradient___fc2_output_0", 0, 0);
    x = engine_find(&sink, "relu_output_2", 0, 0);
    dw = engine_find(&sink, "Gradient___fc2.weight", 0, 0);
    db = engine_find(&sink, "Gradient___fc2.bias", 0, 0);
    for (int o = 0; o < 5; o++) {
        double bias = 0.0;

        for (int k = 0; k < 17; k++) {
            double sum = 0.0;

            for (int n = 0; n < 19; n++) {
                sum += (double)((float *)dy->data)[n * 5 + o] *
                       (double)((float *)x->data)[n * 17 + k];
            }
            /* 19 products of magnitude 0.1: a few ulp of float */
            assert_true(fabs(sum - (double)((float *)dw->data)[o * 17 + k]) < 1e-6);
        }
        for (int n = 0; n < 19; n++) {
            bias += (double)((float *)dy->data)[n * 5 + o];
        }
        assert_true(fabs(bias - (double)((float *)db->data)[o]) < 1e-6);
    }
    sonde_nn_session_destroy(session);
    engine_sink_fini(&sink);
    engine_net_fini(&net);
}

static void tapped_steps_are_those_of_the_schedule(void **state)
{
    static const int64_t listed[] = {1, 4};
    const sonde_schedule steps = {.steps = listed, .step_count = 2};
    const sonde_schedule range = {.every = 2, .start = 2, .end = 7};
    engine_net net;
    sonde_nn_session *session = NULL;
    sonde_nn_options options;
    engine_sink some, ranged;
    int64_t found[2] = {0, 0};

    (void)state;
    engine_mlp(&net, 2);
    engine_sink_init(&some, true);
    engine_sink_init(&ranged, true);
    sonde_nn_options_init(&options);
    options.device_iterations = 3;
    must(sonde_nn_session_create(net.model, &options, &engine_sgd, &session,
                                 &engine_diag));
    must(sonde_nn_session_tap(session, "fc1.weight", &steps, SONDE_HOW_RAW, &some.sink,
                              &engine_diag));
    must(sonde_nn_session_tap(session, "loss_output", &range, SONDE_HOW_RAW, &ranged.sink,
                              &engine_diag));
    for (int i = 0; i < 3; i++) {
        engine_train(&net, session, (uint64_t)i);
    }
    assert_int_equal(sonde_nn_session_step(session), 9);
    assert_int_equal(some.count, 2);
    for (int i = 0; i < 2; i++) {
        found[i] = some.seen[i].at.mode_step;
        assert_int_equal(some.seen[i].at.iteration, listed[i] % 3);
        assert_int_equal(some.seen[i].at.mode, SONDE_MODE_TRAIN);
    }
    assert_memory_equal(found, listed, sizeof found);
    assert_int_equal(ranged.count, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ranged.seen[i].at.mode_step, 2 + 2 * i);
    }
    sonde_nn_session_destroy(session);
    engine_sink_fini(&some);
    engine_sink_fini(&ranged);
    engine_net_fini(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_name_is_seen_as_often_as_it_has_a_value),
        cmocka_unit_test(vital_signs_are_those_of_the_values),
        cmocka_unit_test(weights_do_not_know_taps),
        cmocka_unit_test(weights_do_not_know_threads),
        cmocka_unit_test(teams_change_nothing),
        cmocka_unit_test(an_observed_gradient_is_the_one_recomputed),
        cmocka_unit_test(tapped_steps_are_those_of_the_schedule),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

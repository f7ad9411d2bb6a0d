/*
 * test_optimizer_golden.c - a hundred steps of every optimizer, with clipping and groups,
 * through sessions, and every learning-rate schedule, against PyTorch.
 *
 * tests/golden/optimizers.safetensors is made by tests/python/make_optimizer_golden.py.
 * tsan: yes
 */
#include "engine.h"
#include "base/macros.h"

#include <sonde/safetensors.h>

#include <math.h>

enum { STEPS = 100, INPUTS = 12 };

static sonde_safetensors *golden;

static const void *tensor(const char *name)
{
    static const double none[STEPS]; /* not reached */
    const sonde_view *view = sonde_safetensors_find(golden, name);

    if (view == NULL) {
        fail_msg("no tensor %s", name);
        return none;
    }
    return view->data;
}

/* sum(x w) + b, whose gradients are x and 1. */
static sonde_nn_model *line(void)
{
    sonde_nn_model *model = NULL;
    sonde_nn_value x = 0;

    must(sonde_nn_model_create(&model, &engine_diag));
    x = sonde_nn_input(model, SONDE_F32, 2, (int64_t[]){1, INPUTS});
    x = sonde_nn_linear(model, "fc", x,
                        SONDE_OPTIONS(sonde_nn_linear, .out_features = 1));
    sonde_nn_loss(model, engine_reduce(model, "sum", "loss", x, NULL, 0, false));
    must(sonde_nn_model_status(model, &engine_diag));
    memcpy(engine_parameter(model, "fc.weight", NULL), tensor("start"),
           INPUTS * sizeof(float));
    memcpy(engine_parameter(model, "fc.bias", NULL),
           (const float *)tensor("start") + INPUTS, sizeof(float));
    return model;
}

/* Some ten float operations a step, a hundred times: 1e-5 of 1 or of the weight. */
static void expect_steps(const char *name, const sonde_nn_optimizer *optimizer,
                         bool resumed)
{
    static const char path[] = "test_optimizer_golden.safetensors";
    const float *want = tensor(name), *inputs = tensor("inputs");
    sonde_nn_model *model = line();
    sonde_nn_session *session = NULL;
    float *have = NULL, x[INPUTS];

    must(sonde_nn_session_create(model, NULL, optimizer, &session, &engine_diag));
    for (size_t t = 0; t < STEPS; t++) {
        const sonde_view view = sonde_view_of(SONDE_F32, 2, (int64_t[]){1, INPUTS}, x);

        if (resumed && t == 40) {
            must(sonde_nn_session_save(session, path, &engine_diag));
            sonde_nn_session_destroy(session);
            must(sonde_nn_session_create(model, NULL, optimizer, &session, &engine_diag));
            must(sonde_nn_session_load(session, path, &engine_diag));
            (void)remove(path);
        }
        memcpy(x, inputs + t * INPUTS, sizeof x);
        must(sonde_nn_session_run(session, &view, 1, &engine_diag));
    }
    have = engine_weights(model);
    for (int i = 0; i <= INPUTS; i++) {
        if (!(fabsf(have[i] - want[i]) <= 1e-5F * fmaxf(1.0F, fabsf(want[i])))) {
            fail_msg("%s: %d is %.9g, not %.9g", name, i, (double)have[i],
                     (double)want[i]);
        }
    }
    free(have);
    sonde_nn_session_destroy(session);
    sonde_nn_model_destroy(model);
}

static void all_are_pytorchs_after_a_hundred_steps(void **state)
{
    struct {
        const char *name;
        sonde_nn_optimizer with;
    } rows[] = {
        {"sgd", sonde_nn_optimizer_sgd(0.05F, 0.9F)},
        {"sgd_dampening", sonde_nn_optimizer_sgd(0.05F, 0.8F)},
        {"adam", sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.01F)},
        {"adamw", sonde_nn_optimizer_default(SONDE_NN_ADAMW, 0.01F)},
        {"adamw_bare", sonde_nn_optimizer_default(SONDE_NN_ADAMW, 0.01F)},
        {"rmsprop", sonde_nn_optimizer_default(SONDE_NN_RMSPROP, 0.01F)},
        {"rmsprop_centered", sonde_nn_optimizer_default(SONDE_NN_RMSPROP, 0.002F)},
        {"rmsprop_momentum", sonde_nn_optimizer_default(SONDE_NN_RMSPROP, 0.002F)},
        {"rmsprop_tf", sonde_nn_optimizer_default(SONDE_NN_RMSPROP, 0.01F)},
        {"adagrad", sonde_nn_optimizer_default(SONDE_NN_ADAGRAD, 0.1F)},
        {"lamb", sonde_nn_optimizer_default(SONDE_NN_LAMB, 0.01F)},
        {"lamb_plain", sonde_nn_optimizer_default(SONDE_NN_LAMB, 0.01F)},
        {"clip_norm", sonde_nn_optimizer_sgd(0.05F, 0.0F)},
        {"clip_value", sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.01F)},
        {"clip_both", sonde_nn_optimizer_sgd(0.05F, 0.9F)},
        {"sgd_dampening", sonde_nn_optimizer_sgd(0.05F, 0.8F)},
    };
    unsigned kinds = 0;

    (void)state;
    rows[0].with.weight_decay = 0.01F;
    rows[0].with.nesterov = true;
    rows[1].with.dampening = 0.3F;
    rows[2].with.weight_decay = 0.05F;
    rows[3].with.weight_decay = rows[4].with.weight_decay = 0.1F;
    rows[4].with.no_bias_decay = true;
    rows[6].with.alpha = 0.95F;
    rows[6].with.momentum = 0.9F;
    rows[6].with.weight_decay = 0.01F;
    rows[6].with.centered = true;
    rows[7].with.momentum = 0.5F;
    rows[8].with.alpha = 0.9F;
    rows[8].with.eps = 1e-3F;
    rows[8].with.momentum = 0.5F;
    rows[8].with.centered = rows[8].with.tf_variant = true;
    rows[9].with.lr_decay = 0.01F;
    rows[9].with.initial_accumulator_value = 0.1F;
    rows[9].with.weight_decay = 0.01F;
    rows[10].with.weight_decay = rows[11].with.weight_decay = 0.1F;
    rows[10].with.eps = rows[11].with.eps = 1e-6F;
    rows[10].with.max_weight_norm = rows[11].with.max_weight_norm = 2.0F;
    rows[11].with.no_bias_correction = true;
    rows[12].with.clip_norm = 1.0F;
    rows[13].with.clip_value = 0.5F;
    rows[14].with.clip_norm = 0.7F;
    rows[14].with.clip_value = 0.3F;
    rows[15].with.dampening = 0.3F;
    rows[15].with.velocity_scaling = 8.0F; /* changes how the velocity is stored alone */
    for (size_t i = 0; i < SONDE_COUNT_OF(rows); i++) {
        kinds |= 1U << (unsigned)rows[i].with.kind;
        expect_steps(rows[i].name, &rows[i].with, false);
        expect_steps(rows[i].name, &rows[i].with, true);
    }
    for (int k = 0; strcmp(sonde_nn_optimizer_name((sonde_nn_optimizer_kind)k), "?") != 0;
         k++) { /* a new kind needs a row */
        assert_true((kinds >> (unsigned)k & 1U) != 0);
    }
}

/* --- groups and loss scaling ---------------------------------------------------------- */

static void expect_weights(const char *name, const sonde_nn_model *model)
{
    const float *want = tensor(name);
    float *have = engine_weights(model);

    for (int i = 0; i <= INPUTS; i++) {
        if (!(fabsf(have[i] - want[i]) <= 1e-5F * fmaxf(1.0F, fabsf(want[i])))) {
            fail_msg("%s: %d is %.9g, not %.9g", name, i, (double)have[i],
                     (double)want[i]);
        }
    }
    free(have);
}

static void run_step(sonde_nn_session *session, size_t t, float third)
{
    float x[INPUTS];
    const sonde_view view = sonde_view_of(SONDE_F32, 2, (int64_t[]){1, INPUTS}, x);

    memcpy(x, (const float *)tensor("inputs") + t * INPUTS, sizeof x);
    x[3] = third != 0.0F ? third : x[3];
    must(sonde_nn_session_run(session, &view, 1, &engine_diag));
}

static float anchored(const sonde_nn_session *session, const char *name)
{
    sonde_view view;

    must(sonde_nn_session_anchored(session, name, &view, &engine_diag));
    return view.dtype == SONDE_I64 ? (float)*(const int64_t *)view.data
                                   : *(const float *)view.data;
}

static void anchor(sonde_nn_session *session, const char *name)
{
    must(sonde_nn_session_anchor(session, name, name, SONDE_ANCHOR_FINAL, 1,
                                 &engine_diag));
}

/* Two groups against two of PyTorch's, the second with a rate that changes. */
static void groups_have_numbers_of_their_own(void **state)
{
    sonde_nn_optimizer all = sonde_nn_optimizer_default(SONDE_NN_ADAMW, 0.01F);
    sonde_nn_group group = {.name = "bias", .params = "*.bias"};
    sonde_nn_model *model = line();
    sonde_nn_session *session = NULL;

    (void)state;
    all.weight_decay = 0.1F;
    group.optimizer = sonde_nn_optimizer_default(SONDE_NN_ADAMW, 0.05F);
    group.optimizer.weight_decay = 0.0F;
    group.optimizer.beta1 = 0.8F;
    group.optimizer.beta2 = 0.99F;
    must(sonde_nn_session_create(model, NULL, &all, &session, &engine_diag));
    must(sonde_nn_session_add_group(session, &group, &engine_diag));
    anchor(session, "learningRate___default");
    anchor(session, "learningRate___bias");
    anchor(session, "trainStep___default");
    for (size_t t = 0; t < STEPS; t++) {
        if (t > 0 && t % 10 == 0) {
            group.optimizer.learning_rate *= 0.5F;
            must(sonde_nn_session_set_optimizer(session, "bias", &group.optimizer,
                                                &engine_diag));
        }
        run_step(session, t, 0.0F);
        assert_true(anchored(session, "learningRate___bias") ==
                    group.optimizer.learning_rate);
        assert_true(anchored(session, "trainStep___default") == (float)t);
    }
    assert_true(anchored(session, "learningRate___default") == 0.01F);
    expect_weights("groups_adamw", model);
    group.optimizer.beta1 = 0.9F;
    expect_err(SONDE_ESTATE, sonde_nn_session_set_optimizer(
                                 session, "bias", &group.optimizer, &engine_diag));
    expect_line("beta1: only the learning rate may change after compile (expected the "
                "value compiled with)");
    sonde_nn_session_destroy(session);
    sonde_nn_model_destroy(model);
}

/* A group may have state that the default lacks; an exact name selects. */
static void groups_have_state_of_their_own(void **state)
{
    const sonde_nn_optimizer all = sonde_nn_optimizer_sgd(0.02F, 0.0F);
    const sonde_nn_group group = {.name = "b",
                                  .params = "fc.bias",
                                  .optimizer = sonde_nn_optimizer_sgd(0.05F, 0.9F)};
    sonde_nn_model *model = line();
    sonde_nn_session *session = NULL;
    const sonde_catalogue *catalogue = NULL;
    uint32_t id = 0;

    (void)state;
    must(sonde_nn_session_create(model, NULL, &all, &session, &engine_diag));
    must(sonde_nn_session_add_group(session, &group, &engine_diag));
    for (size_t t = 0; t < STEPS; t++) {
        run_step(session, t, 0.0F);
    }
    catalogue = sonde_nn_session_catalogue(session);
    must(sonde_catalogue_find(catalogue, "Accl1___fc.bias", &id, &engine_diag));
    expect_err(SONDE_ENOTFOUND,
               sonde_catalogue_find(catalogue, "Accl1___fc.weight", &id, &engine_diag));
    expect_weights("groups_sgd", model);
    sonde_nn_session_destroy(session);
    sonde_nn_model_destroy(model);
}

/* Before compile the session's optimizer may become another one, with its groups. */
static void groups_follow_the_default(void **state)
{
    const sonde_nn_optimizer adam = sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.1F);
    sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.1F, 0.0F);
    sonde_nn_group group = {.name = "head", .params = "fc.*", .optimizer = sgd};
    sonde_nn_model *model = line();
    sonde_nn_session *session = NULL;

    (void)state;
    must(sonde_nn_session_create(model, NULL, &sgd, &session, &engine_diag));
    must(sonde_nn_session_add_group(session, &group, &engine_diag));
    expect_err(SONDE_ESTATE,
               sonde_nn_session_set_optimizer(session, NULL, &adam, &engine_diag));
    expect_line("kind: group 'head' is of another (expected the kind of the groups)");
    sgd.clip_norm = group.optimizer.clip_norm = 0.5F;
    must(sonde_nn_session_set_optimizer(session, NULL, &sgd, &engine_diag));
    must(sonde_nn_session_compile(session, &engine_diag));
    must(sonde_nn_session_set_optimizer(session, "head", &group.optimizer, &engine_diag));
    sonde_nn_session_destroy(session);
    sonde_nn_model_destroy(model);
}

static void wrong_groups_are_refused(void **state)
{
    const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.1F, 0.0F);
    sonde_nn_group group = {.name = "head", .params = "fc.*", .optimizer = sgd};
    sonde_nn_model *model = line();
    sonde_nn_session *session = NULL;

    (void)state;
    must(sonde_nn_session_create(model, NULL, &sgd, &session, &engine_diag));
    group.name = "de fault";
    expect_err(SONDE_EINVAL, sonde_nn_session_add_group(session, &group, &engine_diag));
    group.name = "default";
    expect_err(SONDE_EEXIST, sonde_nn_session_add_group(session, &group, &engine_diag));
    group.name = "head";
    group.optimizer.learning_rate = NAN;
    expect_err(SONDE_EINVAL, sonde_nn_session_add_group(session, &group, &engine_diag));
    expect_line("learning_rate: nan (expected a finite number >= 0)");
    group.optimizer = sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.1F);
    expect_err(SONDE_EINVAL, sonde_nn_session_add_group(session, &group, &engine_diag));
    expect_line(
        "kind: group 'head' has its own (expected the value of the session's optimizer)");
    group.optimizer = sgd;
    group.params = "nothing*";
    must(sonde_nn_session_add_group(session, &group, &engine_diag));
    expect_err(SONDE_EEXIST, sonde_nn_session_add_group(session, &group, &engine_diag));
    expect_err(SONDE_ENOTFOUND, sonde_nn_session_compile(session, &engine_diag));
    expect_line(
        "head: no parameter is named 'nothing*' (expected a selector of parameters)");
    expect_err(SONDE_ENOTFOUND,
               sonde_nn_session_set_optimizer(session, "tail", &sgd, &engine_diag));
    sonde_nn_session_destroy(session);
    sonde_nn_model_destroy(model);
}

/* GradScaler's weights and scales, with steps that are skipped, the first among them; a
 * run that is resumed ends with the same. Observed or not, with one micro-batch. */
static void automatic_loss_scaling_is_gradscalers(void **state)
{
    static const char path[] = "test_optimizer_scaled.safetensors";
    sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.05F, 0.9F);
    const float *scales = tensor("loss_scaled.scales");

    (void)state;
    sgd.automatic_loss_scaling = true;
    sgd.loss_scaling = 1024.0F;
    sgd.growth_interval = 10;
    for (int watched = 0; watched < 2; watched++) {
        sonde_nn_model *model = line();
        sonde_nn_session *session = NULL;
        engine_sink sink;

        engine_sink_init(&sink, false);
        must(sonde_nn_session_create(model, NULL, &sgd, &session, &engine_diag));
        for (size_t t = 0; t < STEPS; t++) {
            const float bad = t == 0               ? INFINITY
                              : t == 17 || t == 60 ? NAN
                              : t == 18            ? -INFINITY
                                                   : 0.0F;

            if (t == 18) { /* between two steps that are skipped */
                must(sonde_nn_session_save(session, path, &engine_diag));
                sonde_nn_session_destroy(session);
                must(sonde_nn_session_create(model, NULL, &sgd, &session, &engine_diag));
                if (watched != 0) {
                    anchor(session, "lossScaling___default");
                    anchor(session, "skippedSteps___default");
                    engine_tap_all(session, SONDE_HOW_RAW | SONDE_HOW_VITALS, &sink);
                }
                must(sonde_nn_session_load(session, path, &engine_diag));
                (void)remove(path);
            }
            run_step(session, t, bad);
            if (watched != 0 && t >= 18) {
                assert_true(anchored(session, "lossScaling___default") == scales[t]);
            }
        }
        if (watched != 0) {
            assert_true(anchored(session, "skippedSteps___default") == 4.0F);
            engine_sink_clear(&sink);
            run_step(session, 0, NAN); /* all is shown at a step that is skipped */
            (void)engine_find(&sink, "UpdatedVar___fc.weight", STEPS, 0);
        } else {
            expect_weights("loss_scaled", model);
        }
        sonde_nn_session_destroy(session);
        engine_sink_fini(&sink);
        sonde_nn_model_destroy(model);
    }
}

/* Two threads, and two replicas on them, skip the same steps as one thread, to the same
 * bits. */
static void scaled_steps_are_skipped_by_all_threads(void **state)
{
    static const int shapes[][3] = {{1, 1, 2}, {2, 1, 2}, {2, 2, 1}}; /* threads, R, G */
    float *weights[3] = {NULL, NULL, NULL};
    size_t count = 0;

    (void)state;
    for (int i = 0; i < 3; i++) {
        sonde_nn_optimizer adam = sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.01F);
        engine_net net;
        sonde_nn_session *session = NULL;
        sonde_nn_options options;

        adam.automatic_loss_scaling = true;
        adam.loss_scaling = 4.0F;
        adam.growth_interval = 2;
        engine_mlp(&net, 64);
        sonde_nn_options_init(&options);
        options.threads = shapes[i][0];
        options.replicas = shapes[i][1];
        options.gradient_accumulation = shapes[i][2];
        must(sonde_nn_session_create(net.model, &options, &adam, &session, &engine_diag));
        anchor(session, "lossScaling___default");
        anchor(session, "skippedSteps___default");
        for (uint64_t t = 0; t < 6; t++) {
            engine_batch batch;

            engine_batch_init(&batch, &net, 2 * net.batch, t);
            if (t == 2) {
                batch.samples[7] = INFINITY;
            }
            must(sonde_nn_session_run(session, batch.views, 2, &engine_diag));
            engine_batch_fini(&batch);
        }
        assert_true(anchored(session, "skippedSteps___default") == 1.0F);
        assert_true(anchored(session, "lossScaling___default") == 8.0F);
        weights[i] = engine_weights(net.model);
        count = engine_weight_count(net.model);
        assert_same_bits(weights[0], weights[i], count);
        sonde_nn_session_destroy(session);
        engine_net_fini(&net);
    }
    for (int i = 0; i < 3; i++) {
        free(weights[i]);
    }
}

/* A fixed scale and PopTorch's velocity scale that are powers of two change no bit. */
static void fixed_scales_are_divided_out(void **state)
{
    sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.05F, 0.9F);
    float *weights[3];

    (void)state;
    sgd.weight_decay = 0.01F;
    sgd.nesterov = true;
    for (int i = 0; i < 3; i++) {
        sonde_nn_model *model = line();
        sonde_nn_session *session = NULL;

        sgd.loss_scaling = i == 1 ? 128.0F : 0.0F;
        sgd.velocity_scaling = i == 2 ? 64.0F : 0.0F;
        must(sonde_nn_session_create(model, NULL, &sgd, &session, &engine_diag));
        anchor(session, "Gradient___fc.bias");
        if (i == 1) {
            anchor(session, "lossScaling___default");
        }
        for (size_t t = 0; t < STEPS; t++) {
            if (i == 1 && t == 50) {
                sgd.loss_scaling = 32.0F;
                must(sonde_nn_session_set_optimizer(session, NULL, &sgd, &engine_diag));
            }
            run_step(session, t, 0.0F);
        }
        assert_true(anchored(session, "Gradient___fc.bias") == (i == 1 ? 32.0F : 1.0F));
        assert_true(i != 1 || anchored(session, "lossScaling___default") == 32.0F);
        weights[i] = engine_weights(model);
        expect_weights("sgd", model);
        sonde_nn_session_destroy(session);
        sonde_nn_model_destroy(model);
    }
    for (int i = 1; i < 3; i++) {
        assert_memory_equal(weights[0], weights[i], (INPUTS + 1) * sizeof(float));
    }
    for (int i = 0; i < 3; i++) {
        free(weights[i]);
    }
}

/* State and norms have names, and clipping holds for the mean over micro-batches. */
static void states_and_norms_have_names(void **state)
{
    static const char *const names[] = {"Accl1___fc1.weight", "Accl2___fc1.weight",
                                        "Accl3___fc1.weight", "GlobalNorm___default",
                                        "Clipped___fc1.weight"};
    sonde_nn_optimizer optimizer = sonde_nn_optimizer_default(SONDE_NN_RMSPROP, 0.01F);
    engine_net net;
    engine_sink sink;
    sonde_nn_session *session = NULL;
    sonde_nn_options options;
    double sum = 0.0;
    const sonde_nn_model *model = NULL;

    (void)state;
    optimizer.centered = true;
    optimizer.momentum = 0.9F;
    optimizer.clip_norm = 0.01F;
    engine_mlp(&net, 4);
    model = net.model;
    engine_sink_init(&sink, true);
    sonde_nn_options_init(&options);
    options.gradient_accumulation = 2;
    must(
        sonde_nn_session_create(net.model, &options, &optimizer, &session, &engine_diag));
    engine_tap_all(session, SONDE_HOW_RAW, &sink);
    engine_train(&net, session, 1);
    for (size_t i = 0; i < SONDE_COUNT_OF(names); i++) {
        (void)engine_find(&sink, names[i], 0, 1);
    }
    for (size_t i = 0; i < sonde_nn_model_get_info(model).parameter_count; i++) {
        char name[96];
        const engine_seen *seen = NULL;

        (void)snprintf(name, sizeof name, "Clipped___%s",
                       sonde_nn_parameter(model, i).name);
        seen = engine_find(&sink, name, 0, 1);
        for (int64_t k = 0; k < seen->count; k++) {
            const double g = 0.5 * (double)((const float *)seen->data)[k];

            sum += g * g;
        }
    }
    assert_float_equal((float)sqrt(sum), 0.01F, 1e-6F);
    assert_true(*(const float *)engine_find(&sink, "GlobalNorm___default", 0, 1)->data >
                0.01F);
    sonde_nn_session_destroy(session);
    engine_sink_fini(&sink);
    engine_net_fini(&net);
}

/* --- schedules -------------------------------------------------------------------------- */

static void expect_rates(const char *name, const sonde_nn_rate *rate)
{
    const double *want = tensor(name);

    must(sonde_nn_rate_check(rate, &engine_diag));
    for (int64_t t = 0; t < STEPS; t++) {
        const double have = sonde_nn_rate_at(rate, 0.1, t);

        if (!(fabs(have - want[t]) <= 1e-12)) {
            fail_msg("%s: step %d has %.15g, not %.15g", name, (int)t, have, want[t]);
        }
    }
}

static void schedules_are_pytorchs(void **state)
{
    (void)state;
    expect_rates("rate.step",
                 &(sonde_nn_rate){.kind = SONDE_NN_RATE_STEP, .every = 30, .gamma = 0.5});
    expect_rates(
        "rate.cosine",
        &(sonde_nn_rate){.kind = SONDE_NN_RATE_COSINE, .total = STEPS, .end = 0.1});
    expect_rates("rate.one_cycle",
                 &(sonde_nn_rate){.kind = SONDE_NN_RATE_ONE_CYCLE, .total = STEPS});
    expect_rates("rate.warmup", &(sonde_nn_rate){.warmup = 10});
    assert_true(sonde_nn_rate_at(NULL, 0.25, 7) == 0.25);
}

static void a_table_sets_rates_and_warm_up_comes_first(void **state)
{
    const sonde_nn_rate table = {.kind = SONDE_NN_RATE_TABLE,
                                 .table_count = 2,
                                 .table_step = {10, 20},
                                 .table_rate = {0.5, 0.25}};
    const sonde_nn_rate warm = {
        .kind = SONDE_NN_RATE_COSINE, .warmup = 20, .total = 120, .end = 0.0};
    const sonde_nn_rate cold = {.kind = SONDE_NN_RATE_COSINE, .total = 100, .end = 0.0};
    sonde_nn_rate bad = table;

    (void)state;
    must(sonde_nn_rate_check(&table, &engine_diag));
    assert_true(sonde_nn_rate_at(&table, 1.0, 9) == 1.0);
    assert_true(sonde_nn_rate_at(&table, 1.0, 10) == 0.5);
    assert_true(sonde_nn_rate_at(&table, 1.0, 1000) == 0.25);
    assert_true(sonde_nn_rate_at(&warm, 1.0, 9) == 0.5);
    assert_true(sonde_nn_rate_at(&warm, 1.0, 60) == sonde_nn_rate_at(&cold, 1.0, 40));
    bad.table_step[1] = 10;
    expect_err(SONDE_EINVAL, sonde_nn_rate_check(&bad, &engine_diag));
    bad = (sonde_nn_rate){.kind = SONDE_NN_RATE_STEP, .gamma = 0.5};
    expect_err(SONDE_EINVAL, sonde_nn_rate_check(&bad, &engine_diag));
    bad = (sonde_nn_rate){.kind = SONDE_NN_RATE_COSINE, .end = NAN};
    expect_err(SONDE_EINVAL, sonde_nn_rate_check(&bad, &engine_diag));
}

static int open_golden(void **state)
{
    char path[512];

    (void)state;
    (void)snprintf(path, sizeof path, "%s/golden/optimizers.safetensors",
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
        cmocka_unit_test(all_are_pytorchs_after_a_hundred_steps),
        cmocka_unit_test(states_and_norms_have_names),
        cmocka_unit_test(groups_have_numbers_of_their_own),
        cmocka_unit_test(groups_have_state_of_their_own),
        cmocka_unit_test(groups_follow_the_default),
        cmocka_unit_test(wrong_groups_are_refused),
        cmocka_unit_test(automatic_loss_scaling_is_gradscalers),
        cmocka_unit_test(fixed_scales_are_divided_out),
        cmocka_unit_test(scaled_steps_are_skipped_by_all_threads),
        cmocka_unit_test(schedules_are_pytorchs),
        cmocka_unit_test(a_table_sets_rates_and_warm_up_comes_first),
    };

    return cmocka_run_group_tests(tests, open_golden, close_golden);
}

/*
 * test_optimizer.c - SGD, Adam and AdamW through sessions, against PyTorch's equations in
 * double fed with the observed gradients; their state under its names; what may change
 * between calls.
 */
#include "engine.h"
#include "base/macros.h"

#include <math.h>

enum { STEPS = 6, N = 32 * 24, ACCUMULATION = 2 };

typedef struct reference {
    double w[N], m[N], v[N];
    int t;
} reference;

/* One update of every weight (optimizer.h has the equations). */
static void reference_step(reference *r, const sonde_nn_optimizer *o,
                           const float *gradient, double scale)
{
    const double lr = (double)o->learning_rate, wd = (double)o->weight_decay;
    const double b1 = (double)o->beta1, b2 = (double)o->beta2;

    r->t++;
    for (int i = 0; i < N; i++) {
        double g = scale * (double)gradient[i];

        if (o->kind == SONDE_NN_ADAMW) {
            r->w[i] -= lr * wd * r->w[i];
        } else {
            g += wd * r->w[i];
        }
        if (o->kind == SONDE_NN_SGD) {
            const double mu = (double)o->momentum;

            r->m[i] = r->t == 1 ? g : mu * r->m[i] + (1.0 - (double)o->dampening) * g;
            g = mu == 0.0 ? g : o->nesterov ? g + mu * r->m[i] : r->m[i];
            r->w[i] -= lr * g;
        } else {
            r->m[i] = b1 * r->m[i] + (1.0 - b1) * g;
            r->v[i] = b2 * r->v[i] + (1.0 - b2) * g * g;
            r->w[i] -= lr * (r->m[i] / (1.0 - pow(b1, r->t))) /
                       (sqrt(r->v[i] / (1.0 - pow(b2, r->t))) + (double)o->eps);
        }
    }
}

static void expect_near(const char *what, const float *have, const double *want, int t)
{
    for (int i = 0; i < N; i++) {
        /* some ten float operations a step */
        if (!(fabs((double)have[i] - want[i]) <= 2e-6 * (1e-2 + fabs(want[i])))) {
            fail_msg("step %d: %s[%d] is %.9g, not %.9g", t, what, i, (double)have[i],
                     want[i]);
        }
    }
}

static const float *anchored(const sonde_nn_session *session, const char *name)
{
    sonde_view view;

    must(sonde_nn_session_anchored(session, name, &view, &engine_diag));
    return view.data;
}

static bool has_state(const sonde_nn_optimizer *o, int which)
{
    return o->kind != SONDE_NN_SGD || (which == 0 && o->momentum != 0.0F);
}

static void expect_state(const sonde_nn_session *session, const sonde_nn_optimizer *o,
                         const reference *r)
{
    expect_near("w", anchored(session, "UpdatedVar___fc1.weight"), r->w, r->t);
    if (has_state(o, 0)) {
        expect_near("Accl1", anchored(session, "Accl1___fc1.weight"), r->m, r->t);
    }
    if (has_state(o, 1)) {
        expect_near("Accl2", anchored(session, "Accl2___fc1.weight"), r->v, r->t);
        assert_true(anchored(session, "Step___fc1.weight")[0] == (float)r->t);
    }
}

/* Anchors the state that the optimizer has; the state that it has not has no name. */
static void anchor_state(sonde_nn_session *session, const sonde_nn_optimizer *o)
{
    static const char *const names[] = {"Gradient___fc1.weight",
                                        "UpdatedVar___fc1.weight", "Accl1___fc1.weight",
                                        "Accl2___fc1.weight", "Step___fc1.weight"};

    for (size_t i = 0; i < SONDE_COUNT_OF(names); i++) {
        if (i < 2 || has_state(o, (int)i - 2)) {
            must(sonde_nn_session_anchor(session, names[i], names[i],
                                         i == 0 ? SONDE_ANCHOR_SUM : SONDE_ANCHOR_FINAL,
                                         1, &engine_diag));
        }
    }
}

static void expect_names(const sonde_nn_session *session, const sonde_nn_optimizer *o)
{
    static const char *const names[] = {"Accl1___fc1.weight", "Accl2___fc1.weight",
                                        "Step___fc1.weight"};
    const sonde_catalogue *catalogue = sonde_nn_session_catalogue(session);
    uint32_t id = 0;

    for (int i = 0; i < 3; i++) {
        if (has_state(o, i)) {
            must(sonde_catalogue_find(catalogue, names[i], &id, &engine_diag));
            assert_int_equal(sonde_catalogue_info(catalogue, id)->role,
                             SONDE_ROLE_OPTIMIZER);
            assert_int_equal(sonde_catalogue_info(catalogue, id)->rank, i == 2 ? 0 : 2);
            assert_string_equal(sonde_catalogue_info(catalogue, id)->module, "fc1");
        } else {
            expect_err(SONDE_ENOTFOUND,
                       sonde_catalogue_find(catalogue, names[i], &id, &engine_diag));
        }
    }
}

static void expect_equations(sonde_nn_optimizer o, int accumulation,
                             sonde_nn_reduction reduction)
{
    const double scale =
        reduction == SONDE_NN_REDUCTION_MEAN ? 1.0 / (double)accumulation : 1.0;
    static reference r;
    engine_net net;
    sonde_nn_session *session = NULL;
    sonde_nn_options options;
    const float *weight = NULL;

    engine_mlp(&net, 6);
    sonde_nn_options_init(&options);
    options.gradient_accumulation = accumulation;
    options.reduction = reduction;
    must(sonde_nn_session_create(net.model, &options, &o, &session, &engine_diag));
    anchor_state(session, &o);
    must(sonde_nn_session_compile(session, &engine_diag));
    expect_names(session, &o);
    weight = engine_parameter(net.model, "fc1.weight", NULL);
    r = (reference){.t = 0};
    for (int i = 0; i < N; i++) {
        r.w[i] = (double)weight[i];
    }
    for (int t = 0; t < STEPS; t++) {
        if (t == 3) { /* the learning rate may change between calls */
            o.learning_rate *= 0.5F;
            must(sonde_nn_session_set_optimizer(session, NULL, &o, &engine_diag));
        }
        engine_train(&net, session, (uint64_t)t);
        reference_step(&r, &o, anchored(session, "Gradient___fc1.weight"), scale);
        expect_state(session, &o, &r);
        expect_near("fc1.weight", weight, r.w, r.t);
    }
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
}

static void expect_all_reductions(const sonde_nn_optimizer *o)
{
    expect_equations(*o, 1, SONDE_NN_REDUCTION_MEAN);
    expect_equations(*o, ACCUMULATION, SONDE_NN_REDUCTION_MEAN);
    expect_equations(*o, ACCUMULATION, SONDE_NN_REDUCTION_SUM);
}

static void sgd_follows_its_equations(void **state)
{
    sonde_nn_optimizer o = sonde_nn_optimizer_sgd(0.1F, 0.0F);

    (void)state;
    expect_all_reductions(&o);
    o.weight_decay = 0.05F;
    expect_all_reductions(&o);
    o.momentum = 0.9F;
    expect_all_reductions(&o);
    o.dampening = 0.3F;
    expect_all_reductions(&o);
    o.weight_decay = 0.0F;
    expect_all_reductions(&o);
    o.dampening = 0.0F;
    o.nesterov = true;
    expect_all_reductions(&o);
    o.weight_decay = 0.05F;
    expect_all_reductions(&o);
}

static void adam_follows_its_equations(void **state)
{
    sonde_nn_optimizer o = sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.01F);

    (void)state;
    o.eps = 1e-4F; /* keeps the quotient of two tiny numbers from magnifying rounding */
    expect_all_reductions(&o);
    o.weight_decay = 0.05F;
    expect_all_reductions(&o);
    o.beta1 = 0.5F;
    o.beta2 = 0.9F;
    expect_all_reductions(&o);
}

static void adamw_follows_its_equations(void **state)
{
    sonde_nn_optimizer o = sonde_nn_optimizer_default(SONDE_NN_ADAMW, 0.01F);

    (void)state;
    o.eps = 1e-4F;
    expect_all_reductions(&o);
    o.weight_decay = 0.3F;
    expect_all_reductions(&o);
}

/* --- what may change ---------------------------------------------------------------- */

static void only_the_learning_rate_may_change(void **state)
{
    const sonde_nn_optimizer adam = sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.1F);
    sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.1F, 0.9F), other = sgd;
    engine_net net;
    sonde_nn_session *session = NULL;
    float *before = NULL, *after = NULL;

    (void)state;
    engine_mlp(&net, 3);
    must(sonde_nn_session_create(net.model, NULL, &adam, &session, &engine_diag));
    must(sonde_nn_session_set_optimizer(session, NULL, &sgd,
                                        &engine_diag)); /* not yet compiled */
    must(sonde_nn_session_compile(session, &engine_diag));
    expect_err(SONDE_ESTATE,
               sonde_nn_session_set_optimizer(session, NULL, &adam, &engine_diag));
    expect_line(
        "kind: only the learning rate may change after compile (expected the value "
        "compiled with)");
    other.momentum = 0.8F;
    expect_err(SONDE_ESTATE,
               sonde_nn_session_set_optimizer(session, NULL, &other, &engine_diag));
    assert_string_equal(engine_diag.where, "momentum");
    other = sgd;
    other.weight_decay = 0.1F;
    expect_err(SONDE_ESTATE,
               sonde_nn_session_set_optimizer(session, NULL, &other, &engine_diag));
    assert_string_equal(engine_diag.where, "weight_decay");
    other = sgd;
    other.dampening = 0.1F;
    expect_err(SONDE_ESTATE,
               sonde_nn_session_set_optimizer(session, NULL, &other, &engine_diag));
    assert_string_equal(engine_diag.where, "dampening");
    other = sgd;
    other.nesterov = true;
    expect_err(SONDE_ESTATE,
               sonde_nn_session_set_optimizer(session, NULL, &other, &engine_diag));
    assert_string_equal(engine_diag.where, "nesterov");
    other = sgd;
    other.learning_rate = -1.0F;
    expect_err(SONDE_EINVAL,
               sonde_nn_session_set_optimizer(session, NULL, &other, &engine_diag));
    assert_string_equal(engine_diag.where, "learning_rate");
    other.learning_rate = 0.0F;
    must(sonde_nn_session_set_optimizer(session, NULL, &other, &engine_diag));
    before = engine_weights(net.model);
    engine_train(&net, session, 0);
    after = engine_weights(net.model);
    assert_same_bits(before, after, engine_weight_count(net.model));
    free(before);
    free(after);
    sonde_nn_session_destroy(session);
    must(sonde_nn_session_create(net.model, NULL, NULL, &session, &engine_diag));
    expect_err(SONDE_ESTATE,
               sonde_nn_session_set_optimizer(session, NULL, &sgd, &engine_diag));
    expect_line("optimizer: this session infers (expected a training session)");
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
}

static void expect_bad(sonde_nn_optimizer o, const char *where)
{
    engine_net net;
    sonde_nn_session *session = NULL;

    expect_err(SONDE_EINVAL, sonde_nn_optimizer_check(&o, &engine_diag));
    assert_string_equal(engine_diag.where, where);
    engine_mlp(&net, 1);
    expect_err(SONDE_EINVAL,
               sonde_nn_session_create(net.model, NULL, &o, &session, &engine_diag));
    assert_null(session);
    engine_net_fini(&net);
}

static void values_out_of_range_are_named(void **state)
{
    sonde_nn_optimizer o = sonde_nn_optimizer_sgd(NAN, 0.0F);

    (void)state;
    expect_bad(o, "learning_rate");
    expect_bad(sonde_nn_optimizer_sgd(INFINITY, 0.0F), "learning_rate");
    expect_bad(sonde_nn_optimizer_sgd(0.1F, -0.5F), "momentum");
    o = sonde_nn_optimizer_sgd(0.1F, 0.0F);
    o.nesterov = true;
    expect_bad(o, "nesterov");
    o.momentum = 0.9F;
    o.dampening = 0.1F;
    expect_bad(o, "nesterov");
    o.dampening = NAN;
    o.nesterov = false;
    expect_bad(o, "dampening");
    o.dampening = -0.1F;
    expect_bad(o, "dampening");
    o = sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.1F);
    o.weight_decay = -1.0F;
    expect_bad(o, "weight_decay");
    o = sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.1F);
    o.beta1 = 1.0F;
    expect_bad(o, "beta1");
    o = sonde_nn_optimizer_default(SONDE_NN_ADAMW, 0.1F);
    o.beta2 = -0.1F;
    expect_bad(o, "beta2");
    o = sonde_nn_optimizer_default(SONDE_NN_ADAMW, 0.1F);
    o.eps = NAN;
    expect_bad(o, "eps");
    o.kind = (sonde_nn_optimizer_kind)7;
    expect_bad(o, "optimizer");
}

static void a_kind_refuses_parameters_of_others(void **state)
{
    sonde_nn_optimizer o = sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.1F);

    (void)state;
    for (int kind = SONDE_NN_SGD; kind <= SONDE_NN_LAMB; kind++) {
        o = sonde_nn_optimizer_default((sonde_nn_optimizer_kind)kind, 0.0F);
        must(sonde_nn_optimizer_check(&o, &engine_diag));
        o.weight_decay = 0.1F;
        o.clip_norm = 1.0F;
        o.no_bias_decay = true;
        must(sonde_nn_optimizer_check(&o, &engine_diag));
    }
    o = sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.1F);
    o.momentum = 0.9F;
    expect_bad(o, "momentum");
    assert_string_equal(engine_diag.found,
                        "not a parameter of adam, which has learning_rate, weight_decay, "
                        "clip_value, clip_norm, no_bias_decay, loss_scaling, "
                        "automatic_loss_scaling, beta1, beta2, eps");
    o = sonde_nn_optimizer_sgd(0.1F, 0.9F);
    o.beta1 = 0.5F;
    expect_bad(o, "beta1");
    o = sonde_nn_optimizer_default(SONDE_NN_RMSPROP, 0.1F);
    o.momentum = 0.9F;
    o.centered = o.tf_variant = true;
    must(sonde_nn_optimizer_check(&o, &engine_diag));
    o.nesterov = true;
    expect_bad(o, "nesterov");
    o = sonde_nn_optimizer_default(SONDE_NN_ADAGRAD, 0.1F);
    o.alpha = 0.5F;
    expect_bad(o, "alpha");
    o = sonde_nn_optimizer_default(SONDE_NN_ADAMW, 0.1F);
    o.max_weight_norm = 1.0F;
    expect_bad(o, "max_weight_norm");
}

static void defaults_are_pytorchs(void **state)
{
    const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.5F, 0.25F),
                             adam = sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.5F),
                             adamw = sonde_nn_optimizer_default(SONDE_NN_ADAMW, 0.5F);

    (void)state;
    assert_true(sgd.learning_rate == 0.5F && sgd.momentum == 0.25F &&
                sgd.dampening == 0.0F && sgd.weight_decay == 0.0F && !sgd.nesterov);
    assert_true(adam.beta1 == 0.9F && adam.beta2 == 0.999F && adam.eps == 1e-8F &&
                adam.weight_decay == 0.0F);
    assert_true(adamw.beta1 == 0.9F && adamw.beta2 == 0.999F && adamw.eps == 1e-8F &&
                adamw.weight_decay == 0.01F);
    assert_string_equal(sonde_nn_optimizer_name(SONDE_NN_SGD), "sgd");
    assert_string_equal(sonde_nn_optimizer_name(SONDE_NN_ADAM), "adam");
    assert_string_equal(sonde_nn_optimizer_name(SONDE_NN_ADAMW), "adamw");
    assert_string_equal(sonde_nn_optimizer_name((sonde_nn_optimizer_kind)6), "?");
}

/* A parameter that the optimizer does not have: it stays, its gradient is there to be
 * looked at, and the others go on without it. */
static void a_parameter_left_out_stays(void **state)
{
    const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.1F, 0.9F);

    (void)state;
    for (int accumulation = 1; accumulation <= 2; accumulation++) {
        sonde_nn_session *session = NULL;
        sonde_nn_options options;
        engine_net net;
        float *before = NULL, *after = NULL;
        const size_t first = 32 * 24 + 32;

        engine_mlp(&net, 6);
        sonde_nn_options_init(&options);
        options.gradient_accumulation = accumulation;
        sonde_nn_parameter_leave_out(net.model, 0, true); /* fc1.weight */
        sonde_nn_parameter_leave_out(net.model, 1, true); /* fc1.bias, and back again */
        sonde_nn_parameter_leave_out(net.model, 1, false);
        must(sonde_nn_session_create(net.model, &options, &sgd, &session, &engine_diag));
        must(sonde_nn_session_anchor(session, "g", "Gradient___fc1.weight",
                                     SONDE_ANCHOR_FINAL, 1, &engine_diag));
        must(sonde_nn_session_anchor(session, "w", "fc1.weight", SONDE_ANCHOR_FINAL, 1,
                                     &engine_diag));
        before = engine_weights(net.model);
        engine_train(&net, session, 1);
        engine_train(&net, session, 2);
        after = engine_weights(net.model);
        assert_same_bits(before, after, N);
        assert_memory_not_equal(before + N, after + N, 32 * sizeof *before);
        assert_memory_not_equal(before + first, after + first, 4 * 32 * sizeof *before);
        assert_same_bits(anchored(session, "w"), before, N);
        assert_true(fabs((double)anchored(session, "g")[0]) +
                        fabs((double)anchored(session, "g")[1]) >
                    0.0);
        free(before);
        free(after);
        sonde_nn_session_destroy(session);
        engine_net_fini(&net);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgd_follows_its_equations),
        cmocka_unit_test(adam_follows_its_equations),
        cmocka_unit_test(adamw_follows_its_equations),
        cmocka_unit_test(only_the_learning_rate_may_change),
        cmocka_unit_test(values_out_of_range_are_named),
        cmocka_unit_test(a_kind_refuses_parameters_of_others),
        cmocka_unit_test(defaults_are_pytorchs),
        cmocka_unit_test(a_parameter_left_out_stays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

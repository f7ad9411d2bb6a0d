/*
 * FrozenParameter, UnfrozenParameter and WeightUpdateRatio on a small network that is
 * trained by hand: w -= rate * g.
 */
#include "rules/stream.h"
#include "base/macros.h"

enum { LAYERS = 3, N = 60, STEPS = 25 };

typedef struct net {
    stream s;
    uint32_t weights[LAYERS], gradients[LAYERS];
    float w[LAYERS][N];
    bool no_gradient[LAYERS]; /* of this layer */
} net;

static void net_open(net *n, const char *rule, int without)
{
    memset(n, 0, sizeof *n);
    stream_open(&n->s, rule);
    for (int i = 0; i < LAYERS; i++) {
        char name[64];

        (void)snprintf(name, sizeof name, "fc%d.weight", i + 1);
        n->weights[i] = stream_declare(&n->s, name, SONDE_ROLE_WEIGHT, 6, 10);
        (void)snprintf(name, sizeof name, "Gradient___fc%d.weight", i + 1);
        n->no_gradient[i] = i == without;
        if (i != without) {
            n->gradients[i] = stream_declare(&n->s, name, SONDE_ROLE_GRADIENT, 6, 10);
        }
        for (int j = 0; j < N; j++) {
            n->w[i][j] = 0.1F * stream_normal(&n->s);
        }
    }
    stream_begin(&n->s);
}

/* rate[i] of layer i; of the layer without a gradient, its decay. */
static void net_step(net *n, const float *rate, float scale)
{
    for (int i = 0; i < LAYERS; i++) {
        float g[N];

        for (int j = 0; j < N; j++) {
            g[j] = n->no_gradient[i] ? n->w[i][j] : scale * stream_normal(&n->s);
            n->w[i][j] -= rate[i] * g[j];
        }
        stream_put(&n->s, n->weights[i], n->w[i]);
        if (!n->no_gradient[i]) {
            stream_put(&n->s, n->gradients[i], g);
        }
    }
    stream_end(&n->s);
}

static void run(net *n, const char *rule, int without, int layer, float before,
                float after, int from)
{
    net_open(n, rule, without);
    for (int step = 0; step < STEPS; step++) {
        float rate[LAYERS] = {0.01F, 0.01F, 0.01F};

        rate[layer] = step >= from ? after : before;
        net_step(n, rate, 0.1F);
    }
}

static void a_layer_frozen_by_mistake_is_found(void **state)
{
    net n;

    (void)state;
    run(&n, "FrozenParameter", -1, 1, 0.01F, 0.0F, 5);
    (void)stream_expect(&n.s, "fc2.weight", 6);
    stream_close(&n.s);
    run(&n, "FrozenParameter", -1, 2, 0.0F, 0.0F, 0);
    (void)stream_expect(&n.s, "fc3.weight", 2);
    stream_close(&n.s);
}

/* A backbone without gradients; a learning rate of 0 for all while it warms up; changes
 * too small for float32. */
static void what_stays_for_good_reason_is_let_be(void **state)
{
    net n;

    (void)state;
    run(&n, "FrozenParameter", 0, 0, 0.0F, 0.0F, 0);
    stream_expect_clean(&n.s);
    stream_close(&n.s);

    net_open(&n, "FrozenParameter", -1);
    for (int step = 0; step < STEPS; step++) {
        const float r = step < 5 ? 0.0F : 0.01F;
        const float rate[LAYERS] = {r, r, r};

        net_step(&n, rate, 0.1F);
    }
    stream_expect_clean(&n.s);
    stream_close(&n.s);

    net_open(&n, "FrozenParameter", -1);
    for (int j = 0; j < N; j++) {
        n.w[0][j] = 1000.0F;
    }
    for (int step = 0; step < STEPS; step++) {
        const float rate[LAYERS] = {1e-4F, 1e-4F, 1e-4F};

        net_step(&n, rate, 0.1F);
    }
    stream_expect_clean(&n.s);
    stream_close(&n.s);
}

/* The optimiser goes on, with copies; a moment that stays says that it does not. */
static void an_optimiser_that_holds_copies_is_found(void **state)
{
    for (int bad = 0; bad < 2; bad++) {
        stream s;
        uint32_t weight = 0, gradient = 0, moment = 0;

        (void)state;
        stream_open(&s, "FrozenParameter");
        weight = stream_declare(&s, "fc.weight", SONDE_ROLE_WEIGHT, 6, 10);
        gradient = stream_declare(&s, "fc.weight.grad", SONDE_ROLE_GRADIENT, 6, 10);
        moment = stream_declare(&s, "Accl1___fc.weight", SONDE_ROLE_OPTIMIZER, 6, 10);
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            stream_put_all(&s, weight, 0.5F);
            stream_put_normal(&s, gradient, 0.0, 0.1);
            stream_put_all(&s, moment, bad ? 0.1F * (float)step : 0.1F);
            stream_end(&s);
        }
        if (bad) {
            (void)stream_expect(&s, "fc.weight", 2);
        } else {
            stream_expect_clean(&s); /* gradients of several steps are summed first */
        }
        stream_close(&s);
    }
}

/* A weight between trained ones that never has a gradient; outputs of modules are seen. */
static sonde_severity cut_off(const char *name)
{
    static const char *const names[] = {"fc1.weight", NULL, "fc3.weight", "fc4.weight"};
    stream s;
    uint32_t weights[4], gradients[4];
    const sonde_finding *found = NULL;
    sonde_severity severity = SONDE_SEVERITY_NOTE;

    stream_open(&s, "FrozenParameter:idle=10");
    for (int i = 0; i < 4; i++) {
        char text[64];

        weights[i] =
            stream_declare(&s, i == 1 ? name : names[i], SONDE_ROLE_WEIGHT, 6, 10);
        if (i != 1) {
            (void)snprintf(text, sizeof text, "%s.grad", names[i]);
            gradients[i] = stream_declare(&s, text, SONDE_ROLE_GRADIENT, 6, 10);
        }
    }
    (void)stream_declare(&s, "fc1_output_0", SONDE_ROLE_OUTPUT, 6, 10);
    stream_begin(&s);
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < 4; i++) {
            stream_put_all(&s, weights[i], i == 1 ? 0.5F : 0.5F + 0.01F * (float)step);
            if (i != 1) {
                stream_put_normal(&s, gradients[i], 0.0, 0.1);
            }
        }
        stream_end(&s);
    }
    sonde_rules_finish(s.rules);
    found = stream_found(&s, name);
    assert_non_null(found);
    severity = found->severity;
    stream_close(&s);
    return severity;
}

static void a_weight_of_the_network_itself_is_used(void **state)
{
    (void)state;
    assert_int_equal(cut_off("gate_weight"), SONDE_SEVERITY_WARNING);
    assert_int_equal(cut_off("head.weight"), SONDE_SEVERITY_NOTE);
}

/* A weight after a trained one that never has a gradient. */
typedef struct unused_case {
    bool outputs;   /* those of modules are seen, with gradients ... */
    bool leaf;      /* ... but for its own */
    bool declared;  /* its gradient */
    bool constants; /* its elements are 0, 1, 2 ... */
    bool losing;    /* the loss rises */
    sonde_severity severity;
} unused_case;

static void judge_unused(const unused_case *one)
{
    static const char *const names[] = {"fc1", "fc2", "fc3", "fc4"};
    stream s;
    uint32_t weights[4], gradients[4], loss = 0;
    float w[N];

    stream_open(&s, "FrozenParameter:idle=10");
    for (int i = 0; i < 4; i++) {
        char text[64];

        (void)snprintf(text, sizeof text, "%s.weight", names[i]);
        weights[i] = stream_declare(&s, text, SONDE_ROLE_WEIGHT, 6, 10);
        (void)snprintf(text, sizeof text, "gradient/%s.weight", names[i]);
        if (i != 2 || one->declared) {
            gradients[i] = stream_declare(&s, text, SONDE_ROLE_GRADIENT, 6, 10);
        }
        (void)snprintf(text, sizeof text, "gradient/%s_output_0", names[i]);
        if (one->outputs) {
            (void)stream_declare(&s, text + strlen("gradient/"), SONDE_ROLE_ACTIVATION, 6,
                                 10);
        }
        if (one->outputs && !(one->leaf && i == 2)) {
            (void)stream_declare(&s, text, SONDE_ROLE_ACTIVATION_GRADIENT, 6, 10);
        }
    }
    loss = stream_declare(&s, "loss", SONDE_ROLE_LOSS, 0, 0);
    stream_begin(&s);
    for (int j = 0; j < N; j++) {
        w[j] = one->constants ? (float)j : stream_normal(&s);
    }
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < 4; i++) {
            if (i == 2) {
                stream_put(&s, weights[i], w);
            } else {
                stream_put_all(&s, weights[i], 0.5F + 0.01F * (float)step);
                stream_put_normal(&s, gradients[i], 0.0, 0.1);
            }
        }
        stream_put_all(&s, loss, 2.0F + (one->losing ? 0.2F : -0.02F) * (float)step);
        stream_end(&s);
    }
    sonde_rules_finish(s.rules);
    assert_int_equal(stream_count(&s), 1);
    assert_non_null(stream_found(&s, "fc3.weight"));
    assert_int_equal(stream_found(&s, "fc3.weight")->severity, one->severity);
    stream_close(&s);
}

static void a_weight_that_nothing_uses_is_a_note(void **state)
{
    static const unused_case cases[] = {
        {true, true, true, false, false, SONDE_SEVERITY_NOTE}, /* BERT's pooler */
        {true, true, true, false, true, SONDE_SEVERITY_WARNING},
        {true, false, true, false, false, SONDE_SEVERITY_WARNING},  /* cut off */
        {true, false, false, false, false, SONDE_SEVERITY_WARNING}, /* frozen */
        {false, false, true, false, false, SONDE_SEVERITY_WARNING},
        {false, false, false, false, false, SONDE_SEVERITY_NOTE}, /* not to be trained */
        {false, false, false, false, true, SONDE_SEVERITY_WARNING},
        {false, false, false, true, true, SONDE_SEVERITY_NOTE}};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(cases); i++) {
        judge_unused(&cases[i]);
    }
}

static void a_frozen_layer_that_changes_is_found(void **state)
{
    net n;

    (void)state;
    run(&n, "UnfrozenParameter", 0, 0, 0.0F, 0.01F, 5);
    (void)stream_expect(&n.s, "fc1.weight", 6);
    stream_close(&n.s);
    run(&n, "UnfrozenParameter:tensor_regex=fc2", -1, 1, 0.0F, 0.01F, 7);
    (void)stream_expect(&n.s, "fc2.weight", 7);
    stream_close(&n.s);
    run(&n, "UnfrozenParameter", 0, 0, 0.0F, 0.0F, 0);
    stream_expect_clean(&n.s);
    stream_close(&n.s);
    run(&n, "UnfrozenParameter", -1, 0, 0.01F, 0.01F, 0);
    stream_expect_clean(&n.s);
    stream_close(&n.s);
}

/* Copies that follow a model as a moving average are as many as its parameters. */
static void copies_that_follow_are_let_be(void **state)
{
    for (int bad = 0; bad < 2; bad++) {
        stream s;
        uint32_t weight = 0, gradient = 0, copy = 0;
        float w[N], c[N];

        (void)state;
        stream_open(&s, "UnfrozenParameter");
        weight = stream_declare(&s, "fc.weight", SONDE_ROLE_WEIGHT, 6, 10);
        gradient = stream_declare(&s, "gradient/fc.weight", SONDE_ROLE_GRADIENT, 6, 10);
        copy = stream_declare(&s, "ema.fc.weight", SONDE_ROLE_WEIGHT, 6, 10);
        stream_begin(&s);
        for (int i = 0; i < N; i++) {
            w[i] = c[i] = stream_normal(&s);
        }
        for (int step = 0; step < STEPS; step++) {
            for (int i = 0; i < N; i++) {
                w[i] += 0.01F * stream_normal(&s);
                c[i] = bad ? 0.999F * c[i] : 0.9F * c[i] + 0.1F * w[i];
            }
            stream_put(&s, weight, w);
            stream_put(&s, copy, c);
            stream_put_normal(&s, gradient, 0.0, 0.1);
            stream_end(&s);
        }
        if (bad) { /* weight decay */
            (void)stream_expect(&s, "ema.fc.weight", 2);
        } else {
            stream_expect_clean(&s);
        }
        stream_close(&s);
    }
}

/* Weights that change by `change` of themselves a step from step `from` on; the loss of
 * a step. Weights are seen at the first ten steps and then at each step that `every`
 * divides; with more than 1 they change the same way at every step, so that changes add
 * up. */
static void run_changes_seen(stream *s, double change, int from, int steps,
                             double (*loss)(int step), int every)
{
    uint32_t weight = 0, id = 0;
    float w[N];

    stream_open(s, "WeightUpdateRatio");
    weight = stream_declare(s, "fc.weight", SONDE_ROLE_WEIGHT, 6, 10);
    id = stream_declare(s, "loss_output_0", SONDE_ROLE_LOSS, 0, 0);
    stream_begin(s);
    for (int i = 0; i < N; i++) {
        w[i] = i % 2 ? 1.0F : -1.0F;
    }
    for (int step = 0; step < steps; step++) {
        for (int i = 0; i < N; i++) {
            const double by = step >= from ? change : 0.01;

            w[i] *= 1.0F + (float)((i % 4 < 2) == (every == 1 && step % 2) ? by : -by);
        }
        if (step < 10 || step % every == 0) {
            stream_put(s, weight, w);
        }
        stream_put_all(s, id, (float)loss(step));
        stream_end(s);
    }
}

static void run_changes(stream *s, double change, int from, int steps,
                        double (*loss)(int step))
{
    run_changes_seen(s, change, from, steps, loss, 1);
}

static double falls(int step)
{
    return 2.0 * exp(-0.05 * step);
}

static double stays(int step)
{
    return 2.0 + 0.01 * (step % 3);
}

static void bold_updates_have_to_pay(void **state)
{
    stream s;

    (void)state;
    run_changes(&s, 0.3, 10, 40, falls);
    (void)stream_expect(&s, "fc.weight", 12);
    stream_close(&s);
    run_changes(&s, 0.12, 10, 40, stays);
    (void)stream_expect(&s, "fc.weight", 25);
    stream_close(&s);
    run_changes(&s, 0.12, 10, 40, falls);
    stream_expect_clean(&s);
    stream_close(&s);
    run_changes(&s, 0.01, 0, 60, stays);
    stream_expect_clean(&s);
    stream_close(&s);
}

static void steps_between_count(void **state)
{
    stream s;

    (void)state;
    run_changes_seen(&s, 0.03, 0, 120, stays, 20);
    stream_expect_clean(&s);
    stream_close(&s);
    run_changes_seen(&s, 0.9, 30, 120, stays, 5);
    assert_non_null(stream_found(&s, "fc.weight"));
    stream_close(&s);
}

static void a_rate_that_teaches_nothing_is_found(void **state)
{
    stream s;

    (void)state;
    run_changes(&s, 5e-6, 0, 60, stays);
    assert_int_equal(stream_expect(&s, "fc.weight", 40).severity, SONDE_SEVERITY_WARNING);
    stream_close(&s);
    run_changes(&s, 2e-5, 0, 60, stays);
    assert_int_equal(stream_expect(&s, "fc.weight", 40).severity, SONDE_SEVERITY_WARNING);
    stream_close(&s);
    run_changes(&s, 1e-4, 0, 60, stays); /* too early to say */
    assert_int_equal(stream_expect(&s, "fc.weight", 40).severity, SONDE_SEVERITY_NOTE);
    stream_close(&s);
    run_changes(&s, 1e-4, 0, 120, stays); /* or a trained network that is tuned further */
    assert_int_equal(stream_expect(&s, "fc.weight", 40).severity, SONDE_SEVERITY_NOTE);
    stream_close(&s);
    run_changes(&s, 1e-4, 0, 120, falls);
    stream_expect_clean(&s);
    stream_close(&s);
    run_changes(&s, 5e-6, 0, 60, falls);
    stream_expect_clean(&s);
    stream_close(&s);
    run_changes(&s, 5e-6, 20, 60, stays); /* later: a schedule that ends */
    stream_expect_clean(&s);
    stream_close(&s);
}

static void updates_out_of_proportion_are_found(void **state)
{
    net n;

    (void)state;
    run(&n, "WeightUpdateRatio", -1, 1, 0.01F, 100.0F, 8);
    assert_true(stream_expect(&n.s, "fc2.weight", 8).value > 10.0);
    stream_close(&n.s);
    run(&n, "WeightUpdateRatio:small_threshold=1e-4,small_patience=10", -1, 1, 0.01F,
        1e-5F, 8);
    assert_true(stream_expect(&n.s, "fc2.weight", 17).value < 1e-4); /* ten on end */
    stream_close(&n.s);
    run(&n, "WeightUpdateRatio:small_threshold=1e-4", -1, 1, 0.01F, 1e-5F, 8);
    assert_true(stream_expect(&n.s, "fc2.weight", 8).value < 1e-4); /* as smdebug's */
    stream_close(&n.s);
    run(&n, "WeightUpdateRatio", -1, 1, 0.01F, 0.5F, 8);
    stream_expect_clean(&n.s);
    stream_close(&n.s);
}

static void a_weight_may_rise_from_zero(void **state)
{
    net n;

    (void)state;
    net_open(&n, "WeightUpdateRatio", -1);
    for (int j = 0; j < N; j++) {
        n.w[0][j] = 0.0F;
    }
    for (int step = 0; step < STEPS; step++) {
        const float r = 1e-6F * (float)pow(2.0, step);
        const float rate[LAYERS] = {r, r, r};

        net_step(&n, rate, 0.01F);
    }
    stream_expect_clean(&n.s);
    stream_close(&n.s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layer_frozen_by_mistake_is_found),
        cmocka_unit_test(what_stays_for_good_reason_is_let_be),
        cmocka_unit_test(an_optimiser_that_holds_copies_is_found),
        cmocka_unit_test(a_frozen_layer_that_changes_is_found),
        cmocka_unit_test(a_weight_of_the_network_itself_is_used),
        cmocka_unit_test(a_weight_that_nothing_uses_is_a_note),
        cmocka_unit_test(copies_that_follow_are_let_be),
        cmocka_unit_test(bold_updates_have_to_pay),
        cmocka_unit_test(steps_between_count),
        cmocka_unit_test(a_rate_that_teaches_nothing_is_found),
        cmocka_unit_test(updates_out_of_proportion_are_found),
        cmocka_unit_test(a_weight_may_rise_from_zero),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * FrozenParameter, UnfrozenParameter and WeightUpdateRatio on a small network that is trained
 * by hand: w -= rate * g.
 */
#include "rules/stream.h"

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

/* A backbone without gradients; a learning rate of 0 for all while it warms up; changes too
 * small for float32. */
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

static void updates_out_of_proportion_are_found(void **state)
{
    net n;

    (void)state;
    run(&n, "WeightUpdateRatio", -1, 1, 0.01F, 100.0F, 8);
    assert_true(stream_expect(&n.s, "fc2.weight", 8).value > 10.0);
    stream_close(&n.s);
    run(&n, "WeightUpdateRatio:small_threshold=1e-4", -1, 1, 0.01F, 1e-5F, 8);
    assert_true(stream_expect(&n.s, "fc2.weight", 8).value < 1e-4);
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
        cmocka_unit_test(a_frozen_layer_that_changes_is_found),
        cmocka_unit_test(updates_out_of_proportion_are_found),
        cmocka_unit_test(a_weight_may_rise_from_zero),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

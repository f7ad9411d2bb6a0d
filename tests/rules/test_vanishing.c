/*
 * VanishingGradient on gradients by hand: those that vanish and those that do not.
 */
#include "rules/stream.h"

enum { LAYERS = 6, STEPS = 30 };

typedef struct net {
    stream s;
    uint32_t gradients[LAYERS];
} net;

static void net_open(net *n, const char *rule)
{
    stream_open(&n->s, rule);
    for (int i = 0; i < LAYERS; i++) {
        char name[64];

        (void)snprintf(name, sizeof name, "Gradient___fc%d.weight", i + 1);
        n->gradients[i] = stream_declare(&n->s, name, SONDE_ROLE_GRADIENT, 10, 20);
    }
    stream_begin(&n->s);
}

/* A step with gradients of scale[i]; 0: exactly zero. */
static void net_step(net *n, const double *scale)
{
    for (int i = 0; i < LAYERS; i++) {
        stream_put_normal(&n->s, n->gradients[i], 0.0, scale[i]);
    }
    stream_end(&n->s);
}

static void set(double *scale, double to)
{
    for (int i = 0; i < LAYERS; i++) {
        scale[i] = to;
    }
}

static void healthy_gradients_are_fine(void **state)
{
    net n;
    double scale[LAYERS];

    (void)state;
    net_open(&n, "VanishingGradient");
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < LAYERS; i++) {
            scale[i] = 1e-2 * pow(3.0, i - LAYERS) / (step + 1);
        }
        net_step(&n, scale);
    }
    stream_expect_clean(&n.s);
    stream_close(&n.s);
}

static void a_tiny_one_is_named_after_the_patience(void **state)
{
    net n;
    double scale[LAYERS];
    sonde_finding found;

    (void)state;
    net_open(&n, "vanishinggradient");
    for (int step = 0; step < STEPS; step++) {
        set(scale, 1e-3);
        scale[2] = step >= 4 ? 1e-9 : 1e-3;
        net_step(&n, scale);
    }
    found = stream_expect(&n.s, "Gradient___fc3.weight", 6);
    assert_int_equal(found.last_step, STEPS - 1);
    assert_int_equal(found.steps, STEPS - 6);
    stream_close(&n.s);
}

static void one_that_became_zero_is_found(void **state)
{
    net n;
    double scale[LAYERS];

    (void)state;
    net_open(&n, "VanishingGradient");
    for (int step = 0; step < STEPS; step++) {
        set(scale, 1e-3);
        scale[1] = step >= 10 ? 0.0 : 1e-3;
        net_step(&n, scale);
    }
    (void)stream_expect(&n.s, "Gradient___fc2.weight", 12);
    stream_close(&n.s);
}

/* From the first step on, and from one step to the next. */
static void all_that_vanish_are_found(void **state)
{
    static const double small[] = {1e-9, 1e-20, 0.0};

    (void)state;
    for (int kind = 0; kind < 6; kind++) {
        const int64_t from = kind < 3 ? 0 : 5;
        net n;
        double scale[LAYERS];

        net_open(&n, "VanishingGradient");
        for (int step = 0; step < STEPS; step++) {
            set(scale, step >= from ? small[kind % 3] : 1e-3);
            net_step(&n, scale);
        }
        sonde_rules_finish(n.s.rules);
        assert_int_equal(stream_count(&n.s), LAYERS);
        assert_int_equal(stream_found(&n.s, "Gradient___fc2.weight")->step, from + 2);
        stream_close(&n.s);
    }
}

/* Gradients are 0 at once, but so is the loss; or they fade step by step. */
static void the_end_of_learning_is_not_vanishing(void **state)
{
    net n;
    double scale[LAYERS];
    uint32_t loss = 0;

    (void)state;
    stream_open(&n.s, "VanishingGradient");
    for (int i = 0; i < LAYERS; i++) {
        char name[64];

        (void)snprintf(name, sizeof name, "Gradient___fc%d.weight", i + 1);
        n.gradients[i] = stream_declare(&n.s, name, SONDE_ROLE_GRADIENT, 10, 20);
    }
    loss = stream_declare(&n.s, "loss", SONDE_ROLE_LOSS, 0, 0);
    stream_begin(&n.s);
    for (int step = 0; step < STEPS; step++) {
        stream_put_all(&n.s, loss, step >= 10 ? 1e-6F : 2.3F);
        set(scale, step >= 10 ? 0.0 : 1e-3);
        net_step(&n, scale);
    }
    stream_expect_clean(&n.s);
    stream_close(&n.s);
}

/* As smdebug documents it: any gradient, at any step. */
static void smdebugs_condition_is_its_own(void **state)
{
    static const char *const rules[] = {"VanishingGradient:smdebug=true",
                                        "VanishingGradient:threshold=1e-6",
                                        "VanishingGradient:threshold=1e-6,patience=3"};

    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        net n;
        double scale[LAYERS];

        net_open(&n, rules[kind]);
        for (int step = 0; step < STEPS; step++) {
            set(scale, 1e-3);
            scale[3] = step == 7 ? 1e-8 : 1e-3;
            net_step(&n, scale);
        }
        if (kind < 2) {
            (void)stream_expect(&n.s, "Gradient___fc4.weight", 7);
        } else {
            stream_expect_clean(&n.s);
        }
        stream_close(&n.s);
    }
}

static void a_deep_sigmoid_net_vanishes_on_the_way(void **state)
{
    net n;
    double scale[LAYERS];

    (void)state;
    net_open(&n, "VanishingGradient");
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < LAYERS; i++) {
            scale[i] = 0.1 * pow(0.1, LAYERS - 1 - i);
        }
        net_step(&n, scale);
    }
    (void)stream_expect(&n.s, "Gradient___fc1.weight", 2);
    stream_close(&n.s);
}

/* Hard negatives: frozen from the start, learnt out, growing from nothing, one small
 * batch. */
static void what_only_looks_like_it_is_let_be(void **state)
{
    net n;
    double scale[LAYERS];

    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        net_open(&n, "VanishingGradient");
        for (int step = 0; step < STEPS; step++) {
            set(scale, kind == 1 ? 1e-2 * pow(0.1, step) : 1e-3);
            if (kind == 0) {
                scale[0] = 0.0;
            } else if (kind == 2) {
                scale[0] = 1e-10 * pow(3.0, step);
            } else if (kind == 3) {
                scale[0] = step % 5 < 2 ? 1e-10 : 1e-3;
            }
            net_step(&n, scale);
        }
        stream_expect_clean(&n.s);
        stream_close(&n.s);
    }
}

/* A layer between others: as small at first (a branch that the data do not use), or later
 * alone; the layers before it as well. */
static void a_branch_that_is_not_used_is_a_note(void **state)
{
    enum { UNUSED, FADES, ALL_BEFORE, KINDS };

    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        net n;
        double scale[LAYERS];
        const sonde_finding *found = NULL;

        net_open(&n, "VanishingGradient");
        for (int step = 0; step < STEPS; step++) {
            set(scale, 1e-2);
            scale[2] = kind == FADES && step < 4 ? 1e-3 : step % 4 == 3 ? 0.0 : 1e-9;
            scale[0] = scale[1] = kind == ALL_BEFORE ? 1e-9 : 1e-2;
            net_step(&n, scale);
        }
        sonde_rules_finish(n.s.rules);
        found = stream_found(&n.s, "Gradient___fc3.weight");
        assert_non_null(found);
        assert_int_equal(found->severity,
                         kind == UNUSED ? SONDE_SEVERITY_NOTE : SONDE_SEVERITY_ERROR);
        stream_close(&n.s);
    }
}

static void rows_that_no_batch_touches_say_nothing(void **state)
{
    stream s;
    uint32_t embedding = 0, other = 0;

    (void)state;
    stream_open(&s, "VanishingGradient:profile=0");
    embedding =
        stream_declare(&s, "Gradient___table.weight", SONDE_ROLE_GRADIENT, 4096, 1);
    other = stream_declare(&s, "Gradient___fc.weight", SONDE_ROLE_GRADIENT, 10, 10);
    stream_begin(&s);
    for (int step = 0; step < STEPS; step++) {
        float values[4096] = {0};

        values[step] = 1e-4F; /* a mean of 2.4e-8 */
        stream_put(&s, embedding, values);
        stream_put_normal(&s, other, 0.0, 1e-2);
        stream_end(&s);
    }
    stream_expect_clean(&s);
    stream_close(&s);
}

static void without_gradients_it_says_so(void **state)
{
    stream s;
    uint32_t weight = 0;
    sonde_rule_account account;

    (void)state;
    stream_open(&s, "VanishingGradient");
    weight = stream_declare(&s, "fc.weight", SONDE_ROLE_WEIGHT, 4, 4);
    stream_begin(&s);
    stream_put_normal(&s, weight, 0.0, 1.0);
    stream_end(&s);
    sonde_rules_finish(s.rules);
    sonde_rules_account(s.rules, 0, &account);
    assert_false(account.judged);
    assert_string_equal(account.lacked, "the run has no gradients");
    stream_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(healthy_gradients_are_fine),
        cmocka_unit_test(a_tiny_one_is_named_after_the_patience),
        cmocka_unit_test(one_that_became_zero_is_found),
        cmocka_unit_test(all_that_vanish_are_found),
        cmocka_unit_test(the_end_of_learning_is_not_vanishing),
        cmocka_unit_test(smdebugs_condition_is_its_own),
        cmocka_unit_test(a_deep_sigmoid_net_vanishes_on_the_way),
        cmocka_unit_test(what_only_looks_like_it_is_let_be),
        cmocka_unit_test(a_branch_that_is_not_used_is_a_note),
        cmocka_unit_test(rows_that_no_batch_touches_say_nothing),
        cmocka_unit_test(without_gradients_it_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

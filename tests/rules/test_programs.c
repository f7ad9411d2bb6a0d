/*
 * What rules meet in other people's programs: masks of attention, layers frozen on purpose and
 * by mistake, gradients that never reach the weights, several losses, smooth losses.
 */
#include "rules/stream.h"
#include "base/macros.h"

enum { LAYERS = 4, STEPS = 80 };

static void masks_of_attention_are_accepted(void **state)
{
    static const char *const rules[] = {"ExplodingTensor", "NonFinite"};

    (void)state;
    for (size_t r = 0; r < SONDE_COUNT_OF(rules); r++) {
        for (int bad = 0; bad < 2; bad++) {
            stream s;
            uint32_t mask = 0, scores = 0, weight = 0;

            stream_open(&s, rules[r]);
            mask = stream_declare(&s, "attn.mask", SONDE_ROLE_BUFFER, 2, 2);
            scores = stream_declare(&s, "attn.scores", SONDE_ROLE_OUTPUT, 2, 2);
            weight = stream_declare(&s, "fc.weight", SONDE_ROLE_WEIGHT, 2, 2);
            stream_begin(&s);
            for (int step = 0; step < 10; step++) {
                const float masked[4] = {0.1F, -INFINITY, 0.2F, 0.3F};

                stream_put(&s, mask, masked);
                stream_put(&s, scores, masked);
                stream_put_all(&s, weight, bad && step == 7 ? NAN : 0.5F);
                stream_end(&s);
            }
            if (bad) {
                (void)stream_expect(&s, "fc.weight", 7);
            } else {
                stream_expect_clean(&s);
            }
            stream_close(&s);
        }
    }
}

/* --- layers that stay ----------------------------------------------------------------- */

/* Layers first ... last stay as they are; with their gradients, if any are `pulled`. */
static void train(stream *s, int first, int last, bool pulled, int from)
{
    uint32_t weight[LAYERS], gradient[LAYERS];
    float w[LAYERS] = {1.0F, 1.0F, 1.0F, 1.0F};

    stream_open(s, "FrozenParameter");
    for (int i = 0; i < LAYERS; i++) {
        char name[64];

        (void)snprintf(name, sizeof name, "fc%d.weight", i);
        weight[i] = stream_declare(s, name, SONDE_ROLE_WEIGHT, 4, 4);
        (void)snprintf(name, sizeof name, "gradient/fc%d.weight", i);
        gradient[i] = stream_declare(s, name, SONDE_ROLE_GRADIENT, 4, 4);
    }
    stream_begin(s);
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < LAYERS; i++) {
            const bool stays = i >= first && i <= last && step >= from;

            w[i] -= stays ? 0.0F : 0.01F;
            stream_put_all(s, weight[i], w[i]);
            if (pulled || !stays) {
                stream_put_all(s, gradient[i], 1.0F + 0.1F * stream_normal(s));
            }
        }
        stream_end(s);
    }
}

static void a_weight_without_a_gradient_is_found(void **state)
{
    stream s;

    (void)state;
    train(&s, 1, 1, false, 0);
    assert_int_equal(stream_expect(&s, "fc1.weight", 40).severity,
                     SONDE_SEVERITY_WARNING);
    stream_close(&s);
    /* a backbone: on purpose, or cut off by mistake */
    train(&s, 0, 1, false, 0);
    assert_int_equal(stream_expect(&s, "fc1.weight", 40).severity, SONDE_SEVERITY_NOTE);
    stream_close(&s);
}

/* A policy that is updated by hand after 40 steps of its critic, or never. */
static void a_policy_takes_its_turn(void **state)
{
    enum { POLICY = LAYERS - 1 };

    (void)state;
    for (int cut = 0; cut < 2; cut++) {
        uint32_t weight[LAYERS], gradient[LAYERS];
        stream s;

        stream_open(&s, "FrozenParameter");
        for (int i = 0; i < LAYERS; i++) {
            char name[64];

            (void)snprintf(name, sizeof name, "%s%d.weight",
                           i == POLICY ? "action_net" : "value_net", i);
            weight[i] = stream_declare(&s, name, SONDE_ROLE_WEIGHT, 4, 4);
            (void)snprintf(name, sizeof name, "gradient/%s%d.weight",
                           i == POLICY ? "action_net" : "value_net", i);
            gradient[i] = stream_declare(&s, name, SONDE_ROLE_GRADIENT, 4, 4);
        }
        stream_begin(&s);
        for (int step = 0; step < 120; step++) {
            for (int i = 0; i < POLICY; i++) {
                stream_put_all(&s, weight[i], 1.0F + 0.01F * (float)step);
                stream_put_all(&s, gradient[i], 1.0F + 0.1F * stream_normal(&s));
            }
            stream_put_all(&s, weight[POLICY],
                           1.0F + (cut ? 0.0F : 0.01F * (float)(step / 40)));
            stream_end(&s);
        }
        if (cut) {
            assert_int_equal(stream_expect(&s, "action_net3.weight", 119).severity,
                             SONDE_SEVERITY_WARNING);
        } else {
            stream_expect_clean(&s);
        }
        stream_close(&s);
    }
}

static void gradients_that_change_nothing_are_found(void **state)
{
    stream s;

    (void)state;
    train(&s, 0, LAYERS - 1, true, 0);
    assert_int_equal(stream_count(&s), 1);
    assert_int_equal(sonde_rules_findings(s.rules, &(size_t){0})->severity,
                     SONDE_SEVERITY_ERROR);
    stream_close(&s);
    train(&s, 0, LAYERS - 1, true, 40); /* cleared before the update from there on */
    assert_int_equal(stream_count(&s), 1);
    assert_int_equal(sonde_rules_findings(s.rules, &(size_t){0})->step, 49);
    stream_close(&s);
}

static void layers_to_be_unfrozen_later_are_a_note(void **state)
{
    size_t count = 0;
    const sonde_finding *found = NULL;
    stream s;

    (void)state;
    train(&s, 0, 2, true, 0);
    found = sonde_rules_findings(s.rules, &count);
    assert_int_equal(count, 3);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(found[i].severity, SONDE_SEVERITY_NOTE);
    }
    stream_close(&s);
    train(&s, 3, 3, true, 0); /* the last layer by itself is a mistake */
    assert_int_equal(stream_expect(&s, "fc3.weight", 2).severity, SONDE_SEVERITY_ERROR);
    stream_close(&s);
}

/* --- losses --------------------------------------------------------------------------- */

/* A loss that rises from 0.1 to 0.5; weights that move as before, or jump. */
static sonde_severity spike(const char *name, const char *other, float jump)
{
    stream s;
    uint32_t loss = 0, weight = 0;
    sonde_severity severity = SONDE_SEVERITY_NOTE;
    float w = 1.0F;

    stream_open(&s, "LossSpike");
    loss = stream_declare(&s, name, SONDE_ROLE_LOSS, 0, 0);
    if (other != NULL) {
        (void)stream_declare(&s, other, SONDE_ROLE_LOSS, 0, 0);
    }
    weight = stream_declare(&s, "fc.weight", SONDE_ROLE_WEIGHT, 4, 4);
    stream_begin(&s);
    for (int step = 0; step < STEPS; step++) {
        w += step == 40 ? jump : 0.01F;
        stream_put_all(&s, loss, (step > 40 ? 0.5F : 0.1F) + 0.01F * stream_normal(&s));
        stream_put_all(&s, weight, w);
        stream_end(&s);
    }
    severity = stream_expect(&s, name, 54).severity;
    stream_close(&s);
    return severity;
}

static void a_loss_with_moving_targets_is_a_note(void **state)
{
    (void)state;
    assert_int_equal(spike("loss", NULL, 1.0F), SONDE_SEVERITY_ERROR);
    assert_int_equal(spike("loss", NULL, 0.01F), SONDE_SEVERITY_NOTE);
    assert_int_equal(spike("d_loss", "g_loss", 1.0F), SONDE_SEVERITY_NOTE);
    assert_int_equal(spike("total_loss", "kl_loss", 1.0F), SONDE_SEVERITY_ERROR);
}

/* A smooth loss whose gradient grows a little at each step, in parts that agree. */
static void gradients_that_grow_smoothly_are_let_be(void **state)
{
    stream s;
    uint32_t gradient = 0;
    float g[16];

    (void)state;
    stream_open(&s, "MissingZeroGrad");
    gradient = stream_declare(&s, "gradient/fc.weight", SONDE_ROLE_GRADIENT, 4, 4);
    stream_begin(&s);
    for (int i = 0; i < 16; i++) {
        g[i] = stream_normal(&s);
    }
    for (int step = 0; step < 6; step++) {
        for (int i = 0; i < 16; i++) {
            g[i] += 0.2F * (i % 2 == 0 ? 1.0F : -1.0F) + 0.05F * stream_normal(&s);
        }
        stream_put(&s, gradient, g);
        stream_end(&s);
    }
    stream_expect_clean(&s);
    stream_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_of_attention_are_accepted),
        cmocka_unit_test(a_weight_without_a_gradient_is_found),
        cmocka_unit_test(a_policy_takes_its_turn),
        cmocka_unit_test(gradients_that_change_nothing_are_found),
        cmocka_unit_test(layers_to_be_unfrozen_later_are_a_note),
        cmocka_unit_test(a_loss_with_moving_targets_is_a_note),
        cmocka_unit_test(gradients_that_grow_smoothly_are_let_be),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

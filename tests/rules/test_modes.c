/*
 * The modes that rules judge: steps of mode global are training where the run has no
 * training steps, in evidence by hand and in the training process; a rule without a step
 * of its modes did not judge.
 */
#include "rules/stream.h"

#include "base/macros.h"

#include <sonde/observer.h>

#include <stdbool.h>

enum { STEPS = 20, GONE = 5 };

static sonde_rule_account account_of(stream *s)
{
    sonde_rule_account account;

    sonde_rules_finish(s->rules);
    sonde_rules_account(s->rules, 0, &account);
    return account;
}

/* Two gradients, one of which becomes 0; all steps of a mode. */
static void gradients(stream *s, int mode, int step)
{
    s->at.mode = (sonde_mode)mode;
    stream_put_normal(s, 0, 0.0, step >= GONE ? 0.0 : 1e-3);
    stream_put_normal(s, 1, 0.0, 1e-3);
}

static void global_alone_is_training(void **state)
{
    stream s;
    sonde_finding finding;
    int64_t first = 0, last = 0;

    (void)state;
    stream_open(&s, "VanishingGradient");
    (void)stream_declare(&s, "Gradient___fc1.weight", SONDE_ROLE_GRADIENT, 10, 20);
    (void)stream_declare(&s, "Gradient___fc2.weight", SONDE_ROLE_GRADIENT, 10, 20);
    stream_begin(&s);
    for (int step = 0; step < STEPS; step++) {
        gradients(&s, SONDE_MODE_GLOBAL, step);
        stream_end(&s);
    }
    finding = stream_expect(&s, "Gradient___fc1.weight", GONE + 2);
    assert_int_equal(finding.mode, SONDE_MODE_GLOBAL);
    assert_true(account_of(&s).judged);
    assert_true(sonde_rules_window(s.rules, &first, &last));
    assert_int_equal(first, 0);
    assert_int_equal(last, STEPS - 1);
    stream_close(&s);
}

static void global_beside_training_is_not(void **state)
{
    stream s;
    uint32_t gone = 0, other = 0;

    (void)state;
    stream_open(&s, "VanishingGradient");
    gone = stream_declare(&s, "Gradient___fc1.weight", SONDE_ROLE_GRADIENT, 10, 20);
    other = stream_declare(&s, "Gradient___fc2.weight", SONDE_ROLE_GRADIENT, 10, 20);
    stream_begin(&s);
    for (int step = 0; step < STEPS; step++) {
        s.at.mode = step == 0 ? SONDE_MODE_TRAIN : SONDE_MODE_GLOBAL;
        stream_put_normal(&s, gone, 0.0, step > 0 ? 0.0 : 1e-3);
        stream_put_normal(&s, other, 0.0, 1e-3);
        stream_end(&s);
    }
    assert_int_equal(account_of(&s).steps, 1);
    assert_int_equal(stream_count(&s), 0);
    stream_close(&s);
}

/* The evidence is there, but of another mode than that of the step that a rule judges. */
static void predictions(stream *s, int kind, int step)
{
    (void)kind;
    (void)step;
    s->at.mode = SONDE_MODE_PREDICT;
    stream_put_all(s, 0, 1.0F);
}

/* A loop that sets no mode, judged in its own process. */
static void in_process_global_is_training(void **state)
{
    const sonde_call_shape shape = {1, 1, 1};
    const int64_t sizes[2] = {3, 4};
    const sonde_tensor_info info = {.name = "Gradient___fc.weight",
                                    .role = SONDE_ROLE_GRADIENT,
                                    .pass = SONDE_PASS_BACKWARD,
                                    .dtype = SONDE_F32,
                                    .rank = 2,
                                    .shape = {3, 4},
                                    .same_as = SONDE_NO_TENSOR};
    sonde_catalogue *catalogue = NULL;
    sonde_observer *observer = NULL;
    sonde_rules *rules = NULL;
    float values[12] = {0};
    const sonde_view view = sonde_view_of(SONDE_F32, 2, sizes, values);
    uint32_t id = 0;
    size_t count = 0;

    (void)state;
    values[7] = NAN;
    assert_int_equal(sonde_catalogue_create(&catalogue, NULL), SONDE_OK);
    assert_int_equal(sonde_catalogue_declare(catalogue, &info, &id, NULL), SONDE_OK);
    assert_int_equal(sonde_observer_create(catalogue, &observer, NULL), SONDE_OK);
    assert_int_equal(sonde_rules_create(&rules, NULL), SONDE_OK);
    assert_int_equal(sonde_rules_add(rules, "NonFinite", NULL), SONDE_OK);
    assert_int_equal(sonde_rules_add(rules, "GradientSpike", NULL), SONDE_OK);
    assert_int_equal(sonde_rules_attach(rules, catalogue, observer, 1, 1, NULL),
                     SONDE_OK);
    assert_int_equal(sonde_observer_bind(observer, &shape, NULL), SONDE_OK);
    for (int64_t step = 0; step < 3; step++) {
        const sonde_coordinate at = {
            .global_step = step, .mode = SONDE_MODE_GLOBAL, .mode_step = step};

        assert_true(
            sonde_observer_begin_step(observer, sonde_observer_get_gate(observer), &at));
        sonde_observer_observe(observer, id, &view, NULL, 0, 0);
        sonde_observer_end_step(observer);
    }
    sonde_rules_finish(rules);
    for (size_t i = 0; i < 2; i++) {
        sonde_rule_account account;

        sonde_rules_account(rules, i, &account);
        assert_true(account.judged);
        assert_int_equal(account.steps, 3);
    }
    (void)sonde_rules_findings(rules, &count);
    assert_true(count > 0);
    sonde_observer_destroy(observer);
    sonde_rules_destroy(rules);
    sonde_catalogue_destroy(catalogue);
}

static const stream_case cases[] = {
    {"without a step of its mode it did not judge", "VanishingGradient",
     "2*gradient Gradient___fc#.weight 10 20", gradients, SONDE_MODE_EVAL, STEPS, SILENT,
     .lacks = "no vital signs of gradients were recorded"},
    {"evidence in another mode is no judgement", "Overfit", "loss loss", predictions, 0,
     STEPS, SILENT, .lacks = ""},
};

int main(void)
{
    const struct CMUnitTest others[] = {
        cmocka_unit_test(global_alone_is_training),
        cmocka_unit_test(global_beside_training_is_not),
        cmocka_unit_test(in_process_global_is_training),
    };

    return stream_main(cases, SONDE_COUNT_OF(cases), others, SONDE_COUNT_OF(others));
}

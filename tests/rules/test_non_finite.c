/*
 * NonFinite: the tensor in which it began, whatever the order of declaration.
 */
#include "rules/stream.h"

enum { STEPS = 8, BAD = 3 };
enum { INPUT, WEIGHT, LOG, OUT, LOSS, GRADIENT, COUNT };

static const struct {
    const char *name;
    sonde_role role;
} tensors[COUNT] = {
    {"input", SONDE_ROLE_INPUT},        {"fc.weight", SONDE_ROLE_WEIGHT},
    {"log/Log:0", SONDE_ROLE_OUTPUT},   {"out_output_0", SONDE_ROLE_OUTPUT},
    {"loss_output_0", SONDE_ROLE_LOSS}, {"Gradient___fc.weight", SONDE_ROLE_GRADIENT},
};

/* bad[i]: the last value of tensor i at steps from BAD on, if it is not finite. */
static void run(stream *s, const float *bad, bool backwards, int clean_from)
{
    uint32_t ids[COUNT];

    stream_open(s, "NonFinite");
    for (int i = 0; i < COUNT; i++) {
        const int t = backwards && i >= LOSS ? LOSS + GRADIENT - i : i;

        ids[t] = stream_declare(s, tensors[t].name, tensors[t].role, 4, 0);
    }
    stream_begin(s);
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < COUNT; i++) {
            float values[4] = {1.0F, -2.0F, 0.5F, 0.25F};

            if (step >= BAD && step < clean_from && !isfinite(bad[i])) {
                values[3] = bad[i];
            }
            stream_put(s, ids[i], values);
        }
        stream_end(s);
    }
}

static void the_first_in_order_is_named(void **state)
{
    stream s;

    (void)state;
    for (int first = 0; first < COUNT; first++) {
        for (int backwards = 0; backwards < 2; backwards++) {
            float bad[COUNT] = {0};

            for (int i = 0; i < COUNT; i++) {
                bad[i] = i >= first || i == WEIGHT ? NAN : 0.0F;
            }
            bad[WEIGHT] = first == WEIGHT ? NAN : bad[WEIGHT];
            run(&s, bad, backwards != 0, STEPS);
            (void)stream_expect(&s, tensors[first == WEIGHT ? LOG : first].name, BAD);
            stream_close(&s);
        }
    }
}

static void minus_infinity_alone_masks(void **state)
{
    float bad[COUNT] = {0};
    stream s;

    (void)state;
    bad[LOG] = -INFINITY;
    run(&s, bad, false, STEPS);
    stream_expect_clean(&s);
    stream_close(&s);
    bad[LOSS] = INFINITY;
    run(&s, bad, false, STEPS);
    (void)stream_expect(&s, "log/Log:0", BAD);
    stream_close(&s);
}

/* A mask among the inputs, or one that is there from the start: what came of it is
 * named. */
static void what_is_masked_on_purpose_is_not_named(void **state)
{
    stream s;
    uint32_t ids[COUNT];
    float bad[COUNT] = {0};

    (void)state;
    bad[INPUT] = bad[LOG] = -INFINITY;
    bad[OUT] = bad[LOSS] = NAN;
    run(&s, bad, false, STEPS);
    (void)stream_expect(&s, "out_output_0", BAD);
    stream_close(&s);

    stream_open(&s, "NonFinite");
    for (int i = 0; i < COUNT; i++) {
        ids[i] = stream_declare(&s, tensors[i].name, tensors[i].role, 4, 0);
    }
    stream_begin(&s);
    for (int step = 0; step < STEPS; step++) {
        stream_put_all(&s, ids[LOG], -INFINITY);
        stream_put_all(&s, ids[OUT], step >= BAD ? NAN : 1.0F);
        stream_end(&s);
    }
    (void)stream_expect(&s, "out_output_0", BAD);
    stream_close(&s);
}

static void a_bad_stretch_is_one_finding(void **state)
{
    const float bad[COUNT] = {0, 0, 0, 0, NAN, NAN};
    sonde_finding found;
    stream s;

    (void)state;
    run(&s, bad, false, 6);
    found = stream_expect(&s, "loss_output_0", BAD);
    assert_int_equal(found.steps, 3);
    assert_int_equal(found.last_step, 5);
    stream_close(&s);
}

/* NaN in all gradients of a step, as after clipping by their norm, or in some of them. */
static void clipping_may_have_spread_it(void **state)
{
    (void)state;
    for (int all = 0; all < 2; all++) {
        stream s;
        uint32_t ids[3];

        stream_open(&s, "NonFinite");
        for (int i = 0; i < 3; i++) {
            static const char *const names[] = {
                "gradient/fc1.weight", "gradient/fc2.weight", "gradient/fc3.weight"};

            ids[i] = stream_declare(&s, names[i], SONDE_ROLE_GRADIENT, 4, 0);
        }
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            for (int i = 0; i < 3; i++) {
                const bool bad = step >= BAD && (all != 0 || i < 2);

                stream_put_all(&s, ids[i], bad ? NAN : 0.1F);
            }
            stream_end(&s);
        }
        sonde_rules_finish(s.rules);
        assert_int_equal(stream_count(&s), 1);
        assert_int_equal(strstr(sonde_rules_findings(s.rules, &(size_t){0})->message,
                                "clipped by their norm") != NULL,
                         all);
        stream_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_in_order_is_named),
        cmocka_unit_test(minus_infinity_alone_masks),
        cmocka_unit_test(what_is_masked_on_purpose_is_not_named),
        cmocka_unit_test(a_bad_stretch_is_one_finding),
        cmocka_unit_test(clipping_may_have_spread_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

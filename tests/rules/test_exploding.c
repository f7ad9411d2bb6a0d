/*
 * ExplodingTensor: NaN and infinities, of all tensors and of chosen ones.
 */
#include "rules/stream.h"
#include "base/macros.h"

enum { STEPS = 12, BAD = 7 };

static void run(stream *s, const char *rule, float bad)
{
    uint32_t weight = 0, gradient = 0;

    stream_open(s, rule);
    weight = stream_declare(s, "fc.weight", SONDE_ROLE_WEIGHT, 2, 3);
    gradient = stream_declare(s, "Gradient___fc.weight", SONDE_ROLE_GRADIENT, 2, 3);
    stream_begin(s);
    for (int step = 0; step < STEPS; step++) {
        float values[6] = {0.1F, -3e30F, 0.0F, 2.0F, 1e-30F, step >= BAD ? bad : 1.0F};

        stream_put_normal(s, weight, 0.0, 1.0);
        stream_put(s, gradient, values);
        stream_end(s);
    }
}

static void nan_and_infinities_are_found(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    stream s;
    sonde_finding found;

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        run(&s, "ExplodingTensor", bad[i]);
        found = stream_expect(&s, "Gradient___fc.weight", BAD);
        assert_int_equal(found.steps, STEPS - BAD);
        stream_close(&s);
    }
}

static void finite_values_are_fine(void **state)
{
    stream s;

    (void)state;
    run(&s, "ExplodingTensor", 3e38F);
    stream_expect_clean(&s);
    stream_close(&s);
}

static void only_nan_lets_infinities_be(void **state)
{
    stream s;

    (void)state;
    run(&s, "ExplodingTensor:only_nan=true", INFINITY);
    stream_expect_clean(&s);
    stream_close(&s);
    run(&s, "ExplodingTensor:only_nan=true", NAN);
    (void)stream_expect(&s, "Gradient___fc.weight", BAD);
    stream_close(&s);
}

static void only_chosen_tensors_count(void **state)
{
    static const char *const others[] = {"ExplodingTensor:tensor_regex=^fc\\.weight$",
                                         "ExplodingTensor:collection_names=weights"};
    static const char *const its[] = {
        "ExplodingTensor:tensor_regex=nothing\\,^Grad",
        "ExplodingTensor:collection_names=gradients",
        "ExplodingTensor:collection_names=weights\\,gradients"};
    stream s;

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(others); i++) {
        run(&s, others[i], NAN);
        stream_expect_clean(&s);
        stream_close(&s);
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(its); i++) {
        run(&s, its[i], NAN);
        (void)stream_expect(&s, "Gradient___fc.weight", BAD);
        stream_close(&s);
    }
}

static void count_calls(void *user, const sonde_finding *finding, bool again)
{
    int *calls = user;

    assert_string_equal(finding->tensor, "w");
    assert_int_equal(finding->steps, again ? 5 : 1);
    calls[again]++;
}

static void a_finding_is_told_at_once_and_in_the_end(void **state)
{
    int calls[2] = {0};
    stream s;
    uint32_t id = 0;

    (void)state;
    stream_open(&s, "ExplodingTensor");
    sonde_rules_on_finding(s.rules, count_calls, calls);
    id = stream_declare(&s, "w", SONDE_ROLE_WEIGHT, 4, 0);
    stream_begin(&s);
    for (int step = 0; step < 5; step++) {
        stream_put_all(&s, id, NAN);
        stream_end(&s);
        assert_true(calls[0] == 1 && calls[1] == 0);
    }
    sonde_rules_finish(s.rules);
    sonde_rules_finish(s.rules); /* once is enough */
    assert_true(calls[0] == 1 && calls[1] == 1);
    stream_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nan_and_infinities_are_found),
        cmocka_unit_test(finite_values_are_fine),
        cmocka_unit_test(only_nan_lets_infinities_be),
        cmocka_unit_test(only_chosen_tensors_count),
        cmocka_unit_test(a_finding_is_told_at_once_and_in_the_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * The order of findings for people: causes, what broke first, consequences, the hardware,
 * notes.
 */
#include "cmocka_all.h"

#include "base/macros.h"

#include <sonde/rules.h>

static sonde_finding make(const char *rule, sonde_severity severity, int64_t step)
{
    return (sonde_finding){.rule = rule, .severity = severity, .step = step};
}

static void causes_come_before_consequences(void **state)
{
    sonde_finding all[] = {make("UpdateSpike", SONDE_SEVERITY_ERROR, 20),
                           make("LossNotDecreasing", SONDE_SEVERITY_WARNING, 10),
                           make("DeadRelu", SONDE_SEVERITY_NOTE, 3),
                           make("VanishingGradient", SONDE_SEVERITY_ERROR, 34),
                           make("WeightUpdateRatio", SONDE_SEVERITY_ERROR, 21)};
    static const char *const order[] = {"WeightUpdateRatio", "VanishingGradient",
                                        "LossNotDecreasing", "UpdateSpike", "DeadRelu"};

    (void)state;
    assert_int_equal(sonde_findings_first(all, SONDE_COUNT_OF(all)), 4);
    assert_true(sonde_findings_sort(all, SONDE_COUNT_OF(all)));
    for (size_t i = 0; i < SONDE_COUNT_OF(order); i++) {
        assert_string_equal(all[i].rule, order[i]);
    }
}

/* Nothing that begins after the first NaN is its cause. */
static void what_follows_a_nan_is_a_consequence(void **state)
{
    sonde_finding all[] = {make("ExplodingTensor", SONDE_SEVERITY_ERROR, 17),
                           make("FrozenParameter", SONDE_SEVERITY_ERROR, 30),
                           make("NonFinite", SONDE_SEVERITY_ERROR, 17),
                           make("InputRange", SONDE_SEVERITY_WARNING, 0)};
    static const char *const order[] = {"InputRange", "NonFinite", "ExplodingTensor",
                                        "FrozenParameter"};

    (void)state;
    assert_true(sonde_findings_sort(all, SONDE_COUNT_OF(all)));
    for (size_t i = 0; i < SONDE_COUNT_OF(order); i++) {
        assert_string_equal(all[i].rule, order[i]);
    }
    assert_true(sonde_findings_sort(NULL, 0));
    assert_int_equal(sonde_findings_first(NULL, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(causes_come_before_consequences),
        cmocka_unit_test(what_follows_a_nan_is_a_consequence),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

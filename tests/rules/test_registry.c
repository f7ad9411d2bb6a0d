/*
 * The list of built-in rules, and rules with findings handed to a function.
 */
#include "rules/stream.h"

static void rules_are_found_by_name_in_any_case(void **state)
{
    const sonde_rule *rule = NULL;
    sonde_diag diag = {0};
    size_t count = 0;

    (void)state;
    for (; sonde_rule_at_index(count) != NULL; count++) {
        const sonde_rule *listed = sonde_rule_at_index(count);

        assert_int_equal(sonde_rule_by_name(listed->name, &rule, &diag), SONDE_OK);
        assert_ptr_equal(rule, listed);
        assert_true(count == 0 ||
                    strcmp(sonde_rule_at_index(count - 1)->name, listed->name) < 0);
    }
    assert_true(count > 20);
    assert_int_equal(sonde_rule_by_name("vanishinggradient", &rule, &diag), SONDE_OK);
    assert_string_equal(rule->name, "VanishingGradient");
    assert_int_equal(sonde_rule_by_name("VanishingGradeint", &rule, &diag),
                     SONDE_ENOTFOUND);
    assert_non_null(strstr(diag.expected, "VanishingGradient"));
}

static void severities_have_names(void **state)
{
    (void)state;
    assert_string_equal(sonde_severity_name(SONDE_SEVERITY_WARNING), "warning");
    assert_string_not_equal(sonde_severity_name(SONDE_SEVERITY_ERROR),
                            sonde_severity_name(SONDE_SEVERITY_WARNING));
}

typedef struct heard {
    int first, again;
    char tensor[64];
} heard;

static void hear(void *user, const sonde_finding *finding, bool again)
{
    heard *h = user;

    h->first += !again;
    h->again += again;
    (void)snprintf(h->tensor, sizeof h->tensor, "%s", finding->tensor);
}

static void findings_are_told_as_they_come(void **state)
{
    const sonde_rule *rule = NULL;
    heard h = {0};
    stream s = {0};
    uint32_t id = 0;

    (void)state;
    assert_int_equal(sonde_rule_by_name("ExplodingTensor", &rule, NULL), SONDE_OK);
    assert_int_equal(sonde_catalogue_create(&s.catalogue, NULL), SONDE_OK);
    assert_int_equal(sonde_rules_create(&s.rules, NULL), SONDE_OK);
    assert_int_equal(sonde_rules_add_rule(s.rules, rule, NULL, NULL), SONDE_OK);
    sonde_rules_on_finding(s.rules, hear, &h);
    id = stream_declare(&s, "Gradient___fc1.weight", SONDE_ROLE_GRADIENT, 3, 4);
    stream_begin(&s);
    stream_put_all(&s, id, 1.0F);
    stream_end(&s);
    assert_int_equal(h.first, 0);
    stream_put_all(&s, id, NAN);
    stream_end(&s);
    assert_int_equal(h.first, 1);
    assert_int_equal(h.again, 0);
    assert_string_equal(h.tensor, "Gradient___fc1.weight");
    stream_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_are_found_by_name_in_any_case),
        cmocka_unit_test(severities_have_names),
        cmocka_unit_test(findings_are_told_as_they_come),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

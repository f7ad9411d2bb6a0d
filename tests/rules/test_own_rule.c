/*
 * A rule of one's own through <sonde/rule.h>: what it can ask and say, tensors that are
 * declared midway, a rule that fails, one of another interface; the table of built-in
 * ones.
 */
#include "rules/stream.h"
#include "base/macros.h"
#include "rules/engine.h"

/* Fires when the mean of a chosen tensor is above its limit; fails at `fail_at`. */
typedef struct own {
    const char *tensors;
    double limit;
    int64_t fail_at, partner, bad_steps;
} own;

static const sonde_rule_param params[] = {
    {"tensors", SONDE_RULE_REGEX, "^w", 0, 0, "which", offsetof(own, tensors), false},
    {"limit", SONDE_RULE_REAL, "2", 0, 0, "largest mean", offsetof(own, limit), false},
    {"fail_at", SONDE_RULE_COUNT, "-1", 0, 0, "step", offsetof(own, fail_at), false},
};
static const sonde_rule_need needs[] = {{.what = "weights", .how = SONDE_HOW_VITALS}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    bool given = false;

    assert_string_equal(sonde_rule_info(run, id)->name, info->name);
    assert_string_equal(sonde_rule_row(run)->name, "Own");
    assert_int_equal(sonde_rule_selected(run, id, &given),
                     sonde_rule_matches(run, 0, id));
    assert_true(given);
    assert_false(sonde_rule_matches(run, SONDE_COUNT_OF(params), id));
    return sonde_rule_matches(run, 0, id) ? 0 : SONDE_RULE_IGNORE;
}

static sonde_err bind(sonde_rule_run *run, size_t i, sonde_diag *diag)
{
    own *state = sonde_rule_state(run);

    (void)diag;
    (void)i;
    state->partner = (int64_t)sonde_rule_find(run, "w", "2");
    assert_true(sonde_rule_find(run, "w", NULL) == SIZE_MAX);
    assert_true(sonde_rule_find(run, "w", "1") == 0);
    return SONDE_OK;
}

static void step(sonde_rule_run *run)
{
    own *state = sonde_rule_state(run);
    size_t count = 0;
    const sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    state->bad_steps += sonde_rule_any_bad(run);
    assert_false(sonde_rule_found(run, count, SONDE_SEVERITY_ERROR, "mean", 1.0, 0.0));
    sonde_rule_say(run, NULL, "Nothing was found."); /* does nothing */
    if (sonde_rule_at(run)->global_step == state->fail_at) {
        sonde_rule_fail(run, "no more of %d", 7);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (tensors[i].vitals != NULL && tensors[i].vitals->mean > state->limit &&
            sonde_rule_found(run, i, SONDE_SEVERITY_NOTE, "mean", tensors[i].vitals->mean,
                             state->limit)) {
            sonde_rule_say(run, "Try less.", "It is %s.", "large");
        }
    }
    sonde_rule_lacked(run, "%s", state->bad_steps > 0 ? "finite values" : "");
}

static const sonde_rule rule = {
    .abi = SONDE_RULE_ABI,
    .name = "Own",
    .summary = "s",
    .condition = "c",
    .advice = "a",
    .params = params,
    .param_count = SONDE_COUNT_OF(params),
    .needs = needs,
    .need_count = SONDE_COUNT_OF(needs),
    .state_size = sizeof(own),
    .wants = wants,
    .bind = bind,
    .step = step,
};

static void open_own(stream *s, const char *text)
{
    memset(s, 0, sizeof *s);
    assert_int_equal(sonde_catalogue_create(&s->catalogue, NULL), SONDE_OK);
    assert_int_equal(sonde_rules_create(&s->rules, NULL), SONDE_OK);
    assert_int_equal(sonde_rules_add_rule(s->rules, &rule, text, NULL), SONDE_OK);
}

static void it_finds_also_what_is_declared_later(void **state)
{
    stream s;
    uint32_t first = 0, other = 0, later = 0;
    sonde_rule_account account;

    (void)state;
    open_own(&s, "limit=3");
    first = stream_declare(&s, "w1", SONDE_ROLE_WEIGHT, 4, 0);
    other = stream_declare(&s, "x", SONDE_ROLE_WEIGHT, 4, 0);
    stream_begin(&s);
    assert_int_equal(sonde__rules_wants(s.rules, first), SONDE_HOW_VITALS);
    assert_int_equal(sonde__rules_wants(s.rules, other), 0);
    stream_put_all(&s, first, 3.0F);
    stream_put_all(&s, other, 9.0F);
    stream_end(&s);
    later = stream_declare(&s, "w2", SONDE_ROLE_WEIGHT, 4, 0);
    stream_put_all(&s, later, 9.0F); /* not known to the rules yet */
    stream_end(&s);
    assert_int_equal(sonde__rules_refresh(s.rules, NULL), SONDE_OK);
    stream_put_all(&s, later, 9.0F);
    stream_end(&s);
    assert_string_equal(stream_expect(&s, "w2", 2).message, "It is large.");
    sonde_rules_account(s.rules, 0, &account);
    assert_true(account.judged && account.tensors == 2 && account.steps == 2);
    sonde_rules_account(s.rules, 1, &account); /* there is none */
    assert_true(account.rule == NULL && account.tensors == 0 && !account.judged);
    assert_false(sonde_rules_window(s.rules, NULL, NULL));
    stream_close(&s);
}

static void what_it_lacks_is_told(void **state)
{
    stream s;
    uint32_t id = 0;
    sonde_rule_account account;

    (void)state;
    open_own(&s, NULL);
    id = stream_declare(&s, "w1", SONDE_ROLE_WEIGHT, 4, 0);
    stream_begin(&s);
    stream_put_all(&s, id, NAN);
    stream_end(&s);
    sonde_rules_finish(s.rules);
    sonde_rules_account(s.rules, 0, &account);
    assert_false(account.judged);
    assert_string_equal(account.lacked, "finite values");
    stream_close(&s);
}

/* A rule in the process gets a tensor only in its modes: in evaluation it lacks one that
 * only a rule of training asks for, even if another rule judges evaluation. */
static void what_is_wanted_in_another_mode_is_not_there(void **state)
{
    for (int mode = SONDE_MODE_TRAIN; mode <= SONDE_MODE_EVAL; mode++) {
        stream s;
        uint32_t id = 0, gradient = 0;
        sonde_rule_account account;

        open_own(&s, NULL);
        assert_int_equal(sonde_rules_add(s.rules, "VanishingGradient", NULL), SONDE_OK);
        id = stream_declare(&s, "w1", SONDE_ROLE_WEIGHT, 4, 4);
        gradient = stream_declare(&s, "Gradient___w1", SONDE_ROLE_GRADIENT, 4, 4);
        stream_begin(&s);
        s.at.mode = (sonde_mode)mode;
        stream_put_all(&s, gradient, NAN);
        stream_end(&s);
        assert_int_equal(sonde_rules_steps(s.rules), mode == SONDE_MODE_TRAIN);
        stream_put_all(&s, gradient, NAN);
        stream_put_all(&s, id, 1.0F);
        stream_end(&s);
        sonde_rules_finish(s.rules);
        sonde_rules_account(s.rules, 0, &account);
        assert_string_equal(account.lacked,
                            mode == SONDE_MODE_TRAIN ? "finite values" : "");
        stream_close(&s);
    }
    (void)state;
}

static void a_rule_that_fails_is_a_finding_about_it(void **state)
{
    stream s;
    uint32_t id = 0;
    sonde_finding finding;

    (void)state;
    open_own(&s, "fail_at=2");
    id = stream_declare(&s, "w1", SONDE_ROLE_WEIGHT, 4, 0);
    stream_begin(&s);
    for (int i = 0; i < 6; i++) {
        stream_put_all(&s, id, i > 3 ? 9.0F : 0.0F); /* it does not see that any more */
        stream_end(&s);
    }
    finding = stream_expect(&s, "", 2);
    assert_string_equal(finding.message,
                        "The rule was switched off because of an error: no more of 7.");
    assert_string_equal(sonde_severity_name(finding.severity), "warning");
    stream_close(&s);
}

static int wants_nothing(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    (void)run;
    (void)info;
    (void)id;
    return SONDE_RULE_IGNORE;
}

static void find_at_every_step(sonde_rule_run *run)
{
    if (sonde_rule_found(run, SONDE_RULE_WHOLE_RUN, SONDE_SEVERITY_NOTE, "s", 1, 1)) {
        sonde_rule_say(run, NULL, "It was called.");
    }
}

static void a_rule_without_needs_is_called_at_every_step(void **state)
{
    static const sonde_rule each = {.abi = SONDE_RULE_ABI,
                                    .name = "Each",
                                    .summary = "s",
                                    .condition = "c",
                                    .advice = "a",
                                    .state_size = 1,
                                    .wants = wants_nothing,
                                    .step = find_at_every_step};
    stream s;
    uint32_t id = 0;
    sonde_rule_account account;

    (void)state;
    open_own(&s, "limit=3");
    assert_int_equal(sonde_rules_add_rule(s.rules, &each, NULL, NULL), SONDE_OK);
    id = stream_declare(&s, "w1", SONDE_ROLE_WEIGHT, 4, 0);
    stream_begin(&s);
    stream_end(&s);
    stream_put_all(&s, id, 9.0F);
    stream_end(&s);
    stream_end(&s); /* w1 is not seen: the other rule is not called */
    assert_int_equal(stream_found(&s, "w1")->steps, 1);
    assert_int_equal(stream_found(&s, "")->steps, 3);
    sonde_rules_account(s.rules, 0, &account);
    assert_int_equal(account.steps, 1);
    sonde_rules_account(s.rules, 1, &account);
    assert_true(account.judged && account.steps == 3);
    stream_close(&s);
}

static void another_interface_is_refused(void **state)
{
    sonde_rule newer = rule;
    sonde_rules *rules = NULL;
    sonde_diag diag = {0};

    (void)state;
    newer.abi = SONDE_RULE_ABI + 1;
    assert_int_equal(sonde_rules_create(&rules, NULL), SONDE_OK);
    assert_int_equal(sonde_rules_add_rule(rules, &newer, NULL, &diag),
                     SONDE_EUNSUPPORTED);
    assert_string_equal(diag.found, "rule interface 3, not 2");
    sonde_rules_destroy(rules);
}

static void the_table_is_whole(void **state)
{
    const sonde_rule *one = NULL, *same = NULL;
    size_t count = 0;

    (void)state;
    for (; (one = sonde_rule_at_index(count)) != NULL; count++) {
        const sonde_rule *before = count > 0 ? sonde_rule_at_index(count - 1) : NULL;

        assert_true(one->abi == SONDE_RULE_ABI);
        assert_true(one->wants != NULL || (one->program != NULL && one->need_count == 0));
        assert_true(before == NULL || strcmp(before->name, one->name) < 0);
        assert_int_equal(sonde_rule_by_name(one->name, &same, NULL), SONDE_OK);
        assert_ptr_equal(same, one);
        for (size_t i = 0; i < one->need_count; i++) {
            assert_true((one->needs[i].how &
                         ~(unsigned)(SONDE_HOW_VITALS | SONDE_HOW_NORMS)) == 0 ||
                        one->observe != NULL);
        }
    }
    assert_true(count >= 33);
    assert_int_equal(sonde_rule_by_name("DEADRELU", &same, NULL), SONDE_OK);
    assert_int_equal(sonde_rule_by_name("DeadLeaf", &same, NULL), SONDE_ENOTFOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_finds_also_what_is_declared_later),
        cmocka_unit_test(what_it_lacks_is_told),
        cmocka_unit_test(what_is_wanted_in_another_mode_is_not_there),
        cmocka_unit_test(a_rule_that_fails_is_a_finding_about_it),
        cmocka_unit_test(a_rule_without_needs_is_called_at_every_step),
        cmocka_unit_test(another_interface_is_refused),
        cmocka_unit_test(the_table_is_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

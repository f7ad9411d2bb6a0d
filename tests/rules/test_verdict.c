/*
 * The verdict: its four words, the earliest cause, what follows from it, and its line.
 */
#include "rules/stream.h"

#include <sonde/rules.h>

#include <string.h>

enum { STEPS = 12 };

/* A run of weights that are NaN from `bad` on; STEPS: they never are. */
static void run_weights(stream *s, const char *rules, int bad)
{
    sonde_diag diag = {0};
    uint32_t ids[3];

    stream_open(s, "NonFinite");
    assert_int_equal(sonde_rules_add_list(s->rules, rules, &diag), SONDE_OK);
    ids[0] = stream_declare(s, "fc1.weight", SONDE_ROLE_WEIGHT, 4, 4);
    ids[1] = stream_declare(s, "fc2.weight", SONDE_ROLE_WEIGHT, 4, 4);
    ids[2] = stream_declare(s, "fc3.weight", SONDE_ROLE_WEIGHT, 4, 4);
    stream_begin(s);
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < 3; i++) {
            stream_put_all(s, ids[i], step >= bad ? NAN : 0.5F);
        }
        stream_end(s);
    }
    sonde_rules_finish(s->rules);
}

static void expect_line(const sonde_verdict *verdict, const char *part)
{
    char line[1024], few[8];
    const size_t length = sonde_verdict_text(verdict, line, sizeof line);

    assert_int_equal(length, strlen(line));
    assert_int_equal(sonde_verdict_text(verdict, few, sizeof few), length);
    assert_int_equal(strlen(few), sizeof few - 1);
    if (strstr(line, part) == NULL) {
        fail_msg("'%s' has no '%s'", line, part);
    }
}

static void an_error_is_wrong_and_has_one_cause(void **state)
{
    stream s;

    (void)state;
    run_weights(&s, "ExplodingTensor", 5);
    const sonde_verdict verdict = sonde_rules_verdict(s.rules);

    assert_int_equal(verdict.word, SONDE_VERDICT_WRONG);
    assert_string_equal(verdict.headline->rule, "NonFinite");
    assert_int_equal(verdict.headline->step, 5);
    assert_int_equal(verdict.after, 3);
    assert_int_equal(verdict.following, 3);
    assert_int_equal(verdict.standing[SONDE_SEVERITY_ERROR], 4);
    assert_int_equal(verdict.others[SONDE_SEVERITY_ERROR], 0);
    expect_line(&verdict, "wrong: NonFinite in fc1.weight at step 5: ");
    expect_line(&verdict, "; 3 more findings follow from it");
    stream_close(&s);
}

static void nothing_found_names_rules_and_what_others_lacked(void **state)
{
    stream s;

    (void)state;
    run_weights(&s, "ExplodingTensor,DeadRelu,Overfit", STEPS);
    const sonde_verdict verdict = sonde_rules_verdict(s.rules);

    assert_int_equal(verdict.word, SONDE_VERDICT_NOTHING);
    assert_null(verdict.headline);
    assert_int_equal(verdict.rules, 2);
    assert_int_equal(verdict.lacking, 2);
    expect_line(&verdict, "nothing found by 2 rules in 12 steps, 0 to 11; 2 rules had no "
                          "data (no outputs of ReLUs");
    stream_close(&s);
}

static void without_data_nothing_is_judged(void **state)
{
    sonde_verdict verdict;
    stream s;

    (void)state;
    stream_open(&s, "DeadRelu");
    (void)stream_declare(&s, "fc1.weight", SONDE_ROLE_WEIGHT, 4, 4);
    stream_begin(&s);
    sonde_rules_finish(s.rules);
    verdict = sonde_rules_verdict(s.rules);
    assert_int_equal(verdict.word, SONDE_VERDICT_NOT_JUDGED);
    expect_line(&verdict,
                "not judged: no rule had the data it needs (no outputs of ReLUs)");
    stream_close(&s);
    assert_int_equal(sonde_rules_verdict(NULL).word, SONDE_VERDICT_NOT_JUDGED);
    assert_string_equal(sonde_verdict_name(SONDE_VERDICT_DOUBTFUL), "doubtful");
    assert_string_equal(sonde_verdict_name((sonde_verdict_word)7), "?");
}

/* A loss that never falls is a warning of the run. */
static void a_warning_is_doubtful(void **state)
{
    sonde_verdict verdict;
    uint32_t loss = 0;
    stream s;

    (void)state;
    stream_open(&s, "LossNotDecreasing");
    loss = stream_declare(&s, "loss", SONDE_ROLE_LOSS, 0, 0);
    stream_begin(&s);
    for (int step = 0; step < 700; step++) {
        stream_put_all(&s, loss, 1.6F + 0.002F * stream_normal(&s));
        stream_end(&s);
    }
    sonde_rules_finish(s.rules);
    verdict = sonde_rules_verdict(s.rules);
    assert_int_equal(verdict.word, SONDE_VERDICT_DOUBTFUL);
    assert_int_equal(verdict.standing[SONDE_SEVERITY_WARNING], 1);
    expect_line(&verdict, "doubtful: LossNotDecreasing");
    stream_close(&s);
}

static void steps_of_a_mode_come_first(void **state)
{
    sonde_finding finding = {.mode = SONDE_MODE_TRAIN, .step = 305, .mode_step = 105};
    char when[64] = "";

    (void)state;
    assert_int_equal(sonde_finding_when(&finding, when, sizeof when), 28);
    assert_string_equal(when, "training step 105 (step 305)");
    finding.mode = SONDE_MODE_GLOBAL;
    (void)sonde_finding_when(&finding, when, sizeof when);
    assert_string_equal(when, "step 305");
    finding = (sonde_finding){.mode = SONDE_MODE_EVAL, .step = 9, .mode_step = 2};
    (void)sonde_finding_when(&finding, when, sizeof when);
    assert_string_equal(when, "evaluation step 2 (step 9)");
    assert_int_equal(sonde_finding_when(NULL, when, sizeof when), 0);
    assert_int_equal(sonde_verdict_text(NULL, when, sizeof when), 0);
}

static void a_line_stands_behind_the_tensor(void **state)
{
    sonde_finding finding = {.rule = "LossInput",
                             .tensor = "fc",
                             .message = "No.",
                             .mode = SONDE_MODE_GLOBAL,
                             .place = {"train.py", 41}};
    const sonde_verdict verdict = {.word = SONDE_VERDICT_WRONG, .headline = &finding};
    char where[32];

    (void)state;
    assert_string_equal(sonde_finding_where(&finding, where, sizeof where),
                        " (train.py:41)");
    expect_line(&verdict, "wrong: LossInput in fc (train.py:41) at step 0: No");
    assert_string_equal(sonde_finding_where(&finding, where, 8), " (train");
    finding.tensor = "";
    expect_line(&verdict, "wrong: LossInput (train.py:41) at step 0: No");
    finding.place = (sonde_place){"", 0};
    assert_string_equal(sonde_finding_where(&finding, where, sizeof where), "");
    finding.place = (sonde_place){NULL, 0};
    assert_string_equal(sonde_finding_where(&finding, where, sizeof where), "");
    assert_string_equal(sonde_finding_where(NULL, where, sizeof where), "");
    assert_string_equal(sonde_finding_where(&finding, NULL, 0), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_error_is_wrong_and_has_one_cause),
        cmocka_unit_test(nothing_found_names_rules_and_what_others_lacked),
        cmocka_unit_test(without_data_nothing_is_judged),
        cmocka_unit_test(a_warning_is_doubtful),
        cmocka_unit_test(steps_of_a_mode_come_first),
        cmocka_unit_test(a_line_stands_behind_the_tensor),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

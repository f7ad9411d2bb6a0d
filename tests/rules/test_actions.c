/*
 * What is done about findings: which, how often; commands that fail, hang or do not
 * read. tsan: yes
 */
#include "rules/acting.h"
#include "base/clock.h"
#include "base/macros.h"

#include "alloc_failure.h"

#include <fcntl.h>

/* --- which and how often --------------------------------------------------------------- */

static void an_action_is_done_once_for_a_rule(void **state)
{
    static const struct {
        const char *when;
        bool each;
        uint64_t done;
    } cases[] = {{"", false, 3},          {"any=", false, 3},      {"warning=", false, 2},
                 {"error=", false, 1},    {"note=", true, 5},      {"Error=", true, 2},
                 {"lossspike=", true, 2}, {"NonFinite=", false, 1}};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(cases); i++) {
        const sonde_actions_options options = {.size = sizeof options,
                                               .each = cases[i].each};
        char text[64];
        sonde_actions *actions = NULL;

        (void)snprintf(text, sizeof text, "%slog", cases[i].when);
        actions = actions_of(&options, text);
        take(actions, "LossSpike", SONDE_SEVERITY_WARNING);
        take(actions, "LossSpike", SONDE_SEVERITY_WARNING);
        take(actions, "NonFinite", SONDE_SEVERITY_ERROR);
        take(actions, "NonFinite", SONDE_SEVERITY_ERROR);
        take(actions, "Other", SONDE_SEVERITY_NOTE);
        take(actions, "Other", (sonde_severity)3); /* there is none */
        sonde_actions_take(actions, NULL);
        assert_int_equal(end_of(actions).done, cases[i].done);
    }
    expect_logged("NonFinite at step 412 in fc1.weight: It is");
}

static void what_is_no_action_is_refused(void **state)
{
    static const char *const texts[] = {"",
                                        "jump",
                                        "error=",
                                        "log:x",
                                        "command:",
                                        "command",
                                        "webhook:",
                                        "webhook:ftp://x",
                                        "webhook:file:///etc/passwd",
                                        "error=jump",
                                        "stop"};
    sonde_actions *actions = NULL;

    (void)state;
    assert_int_equal(sonde_actions_create(NULL, &actions, NULL), SONDE_OK);
    for (size_t i = 0; i < SONDE_COUNT_OF(texts); i++) {
        sonde_diag diag = {0};

        assert_int_equal(sonde_actions_add(actions, texts[i], &diag), SONDE_EINVAL);
        assert_true(diag.found[0] != '\0' && diag.expected[0] != '\0');
    }
    assert_int_equal(sonde_actions_count(actions), 0);
    for (int i = 0; i < SONDE_ACTIONS_MOST; i++) {
        assert_int_equal(sonde_actions_add(actions, "log", NULL), SONDE_OK);
    }
    assert_int_equal(sonde_actions_add(actions, "log", NULL), SONDE_EINVAL);
    sonde_actions_destroy(actions);
}

static void rules_that_do_not_judge_are_named(void **state)
{
    sonde_actions *actions = actions_of(NULL, "NonFinte=log");
    sonde_rules *rules = NULL;
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(sonde_rules_create(&rules, NULL), SONDE_OK);
    assert_int_equal(sonde_rules_add(rules, "NonFinite", NULL), SONDE_OK);
    assert_int_equal(sonde_actions_check(actions, rules, &diag), SONDE_ENOTFOUND);
    assert_string_equal(diag.expected, "NonFinite");
    sonde_actions_destroy(actions);
    actions = actions_of(NULL, "nonfinite=log");
    assert_int_equal(sonde_actions_check(actions, rules, NULL), SONDE_OK);
    sonde_actions_destroy(actions);
    sonde_rules_destroy(rules);
}

/* --- stop, checkpoint -------------------------------------------------------------------- */

static void a_run_is_asked_here_or_over_its_folder(void **state)
{
    sonde_control *control = NULL;
    sonde_request request;
    sonde_actions *actions = NULL;
    sonde_actions_stats stats;
    char path[128];

    (void)state;
    assert_int_equal(sonde_control_create(NULL, &control, NULL), SONDE_OK);
    actions = actions_of(SONDE_OPTIONS(sonde_actions, .control = control), "checkpoint");
    take(actions, "NonFinite", SONDE_SEVERITY_ERROR);
    assert_true(sonde_control_take(control, &request));
    assert_int_equal(request.kind, SONDE_REQUEST_CHECKPOINT);
    assert_int_equal(request.by, SONDE_BY_RULE);
    assert_non_null(strstr(request.text, "NonFinite at step 412 in fc1.weight: It is"));
    sonde_actions_destroy(actions);
    sonde_control_destroy(control);

    (void)snprintf(path, sizeof path, "touch %s/run.json", folder);
    assert_int_equal(system(path), 0);
    actions =
        actions_of(SONDE_OPTIONS(sonde_actions, .run = folder, .each = true), "stop");
    take(actions, "NonFinite", SONDE_SEVERITY_ERROR);
    assert_non_null(strstr(content("control.jsonl"), "\"request\":\"stop\""));
    (void)snprintf(path, sizeof path, "touch %s/end.json", folder);
    assert_int_equal(system(path), 0);
    take(actions, "NonFinite", SONDE_SEVERITY_ERROR);
    stats = end_of(actions);
    assert_int_equal(stats.done, 1);
    assert_int_equal(stats.failed, 1);
    expect_logged("the run has ended");
}

/* --- commands ------------------------------------------------------------------------------ */

static sonde_actions_stats run_command(double seconds, const char *command)
{
    const sonde_actions_options options = {.size = sizeof options,
                                           .command_seconds = seconds};
    char text[512];
    sonde_actions *actions = NULL;

    (void)snprintf(text, sizeof text, "command:cd %s && %s", folder, command);
    actions = actions_of(&options, text);
    take(actions, "NonFinite", SONDE_SEVERITY_ERROR);
    return end_of(actions);
}

static void a_command_has_the_finding(void **state)
{
    const sonde_finding finding = finding_of("NonFinite", SONDE_SEVERITY_ERROR);
    char json[1024];

    (void)state;
    (void)sonde_finding_json(&finding, json, sizeof json - 1);
    (void)strcat(json, "\n");
    assert_int_equal(
        run_command(10, "cat >in; env | grep ^SONDE_FINDING_ | sort >env").done, 1);
    assert_string_equal(content("in"), json);
    assert_string_equal(content("env"),
                        "SONDE_FINDING_ID=0000000000001234\n"
                        "SONDE_FINDING_MESSAGE=It is \"bad\"; $(false) `x`.\n"
                        "SONDE_FINDING_RULE=NonFinite\n"
                        "SONDE_FINDING_SEVERITY=error\n"
                        "SONDE_FINDING_STEP=412\n"
                        "SONDE_FINDING_TENSOR=fc1.weight\n"
                        "SONDE_FINDING_THRESHOLD=0\n"
                        "SONDE_FINDING_VALUE=3\n");
    expect_logged("for NonFinite at step 412 in fc1.weight: status 0");
}

static void a_command_inherits_no_file(void **state)
{
    enum { HIGH = 57 };
    const int first = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int open_file = fcntl(first, F_DUPFD, HIGH); /* without O_CLOEXEC */
    char command[64];

    (void)state;
    assert_true(first >= 0 && open_file >= HIGH);
    (void)snprintf(command, sizeof command, "test ! -e /proc/$$/fd/%d", open_file);
    assert_int_equal(run_command(10, command).done, 1);
    assert_int_equal(close(open_file), 0);
    assert_int_equal(close(first), 0);
    assert_int_equal(run_command(10, "test -e /proc/$$/fd/2").done, 1);
}

static void a_command_may_fail_hang_or_not_read(void **state)
{
    sonde_actions_stats stats = run_command(10, "true"); /* does not read */
    double begun = 0.0;

    (void)state;
    assert_int_equal(stats.done, 1);
    stats = run_command(10, "no_such_command_at_all 2>/dev/null");
    assert_int_equal(stats.failed, 1);
    expect_logged("failed: status 127 (not found)");
    assert_int_equal(run_command(10, "exit 3").failed, 1);
    expect_logged("failed: status 3");
    assert_int_equal(run_command(10, "kill -9 $$").failed, 1);
    expect_logged("failed: ended by signal 9");
    begun = sonde__now();
    assert_int_equal(run_command(0.1, "sleep 100; echo late >late").failed, 1);
    assert_true(sonde__now() - begun < 5.0);
    expect_logged("failed: killed after 0.1 s");
    assert_string_equal(content("late"), "");
}

static void who_takes_never_waits(void **state)
{
    const sonde_actions_options options = {.size = sizeof options, .each = true};
    sonde_actions *actions = actions_of(&options, "command:sleep 100");
    sonde_actions_stats stats;
    double begun = sonde__now();

    (void)state;
    for (int i = 0; i < 3 * SONDE_ACTIONS_QUEUE; i++) {
        take(actions, "NonFinite", SONDE_SEVERITY_ERROR);
    }
    assert_true(sonde__now() - begun < 1.0);
    sonde_actions_get_stats(actions, &stats);
    assert_true(stats.lost >= 2 * SONDE_ACTIONS_QUEUE - 1);
    expect_logged("64 commands and webhooks are waiting: further ones are dropped");
    begun = sonde__now();
    assert_false(sonde_actions_finish(actions, 0.05));
    assert_true(sonde__now() - begun < 3.0);
    sonde_actions_get_stats(actions, &stats);
    assert_int_equal(stats.lost + stats.failed, 3 * SONDE_ACTIONS_QUEUE);
    assert_int_equal(stats.done, 0);
    sonde_actions_destroy(actions);
}

/* --- memory ------------------------------------------------------------------------------------ */

static void memory_may_run_out(void **state)
{
    const sonde_actions_options options = {.size = sizeof options, .run = "/tmp"};
    sonde_err err = SONDE_ENOMEM;

    (void)state;
    for (size_t n = 0; err != SONDE_OK; n++) {
        sonde_actions *actions = NULL;

        alloc_failure_begin(n);
        err = sonde_actions_create(&options, &actions, NULL);
        if (err == SONDE_OK) {
            err = sonde_actions_add(actions, "NonFinite=stop", NULL);
        }
        if (err == SONDE_OK) {
            err = sonde_actions_add(actions, "error=log", NULL);
        }
        sonde_actions_destroy(actions);
        assert_int_equal(alloc_failure_end(), 0);
        assert_true(err == SONDE_OK || err == SONDE_ENOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_action_is_done_once_for_a_rule, set_up,
                                        tear_down),
        cmocka_unit_test(what_is_no_action_is_refused),
        cmocka_unit_test(rules_that_do_not_judge_are_named),
        cmocka_unit_test_setup_teardown(a_run_is_asked_here_or_over_its_folder, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_command_has_the_finding, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_command_inherits_no_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_command_may_fail_hang_or_not_read, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(who_takes_never_waits, set_up, tear_down),
        cmocka_unit_test(memory_may_run_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

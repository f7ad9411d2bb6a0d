/* program_cases.c - see program_cases.h. */
#include "rules/program_cases.h"

#include "rules/engine.h"

void stream_program(stream *s, const char *text)
{
    static const char head[] = "{'program': 1, 'producer': 'test', 'root': '/me', "
                               "'files': ['/me/train.py'], 'complete': true, ";
    const size_t size = sizeof head + strlen(text) + 2;
    char *whole = malloc(size);
    sonde_program *program = NULL;
    sonde_diag diag = {0};
    char line[SONDE_DIAG_LINE];

    assert_non_null(whole);
    (void)snprintf(whole, size, "%s%s}", head, text);
    for (char *at = whole; (at = strchr(at, '\'')) != NULL;) {
        *at = '"';
    }
    if (sonde_program_read(whole, strlen(whole), &program, &diag) != SONDE_OK) {
        fail_msg("%s: %s", text, sonde_diag_line(&diag, line, sizeof line));
    }
    free(whole);
    s->at.mode = program->mode;
    assert_int_equal(
        sonde__rules_take_program(s->rules, s->at.global_step, program, &diag), SONDE_OK);
}

static void expect(stream *s, const program_case *c)
{
    static const int severities[] = {[NOTED] = SONDE_SEVERITY_NOTE,
                                     [WARNED] = SONDE_SEVERITY_WARNING,
                                     [FAILED] = SONDE_SEVERITY_ERROR};
    size_t count = 0;
    sonde_rule_account account;

    sonde_rules_finish(s->rules);
    const sonde_finding *all = sonde_rules_findings(s->rules, &count);
    if (c->outcome == CLEAN) {
        if (count > 0) {
            fail_msg("found: '%s': %s", all[0].tensor, all[0].message);
        }
        sonde_rules_account(s->rules, 0, &account);
        assert_true(account.judged);
        return;
    }
    if (count != 1) {
        fail_msg("%zu findings; the last: '%s': %s", count,
                 count > 0 ? all[count - 1].tensor : "",
                 count > 0 ? all[count - 1].message : "");
    }
    assert_string_equal(all[0].tensor, c->about);
    assert_int_equal(all[0].severity, severities[c->outcome]);
    assert_int_equal(all[0].place.line, c->line);
    assert_string_equal(all[0].place.file, c->line > 0 ? "train.py" : "");
    if (strstr(all[0].message, c->message) == NULL) {
        fail_msg("'%s' is not in: %s", c->message, all[0].message);
    }
    assert_true(all[0].advice[0] != '\0');
}

static void run_case(void **state)
{
    const program_case *c = *(const program_case *const *)*state;
    stream *s = calloc(1, sizeof *s);
    int steps = c->steps;

    assert_non_null(s);
    for (int i = 0; i < PROGRAM_STEPS && c->steps == 0; i++) {
        steps += c->programs[i] != NULL;
    }
    stream_open(s, c->rule);
    if (c->tensors != NULL) {
        stream_declare_all(s, c->tensors);
    }
    stream_begin(s);
    for (int step = 0; step < steps; step++) {
        if (step < PROGRAM_STEPS && c->programs[step] != NULL) {
            stream_program(s, c->programs[step]);
        }
        if (c->step != NULL) {
            c->step(s, step);
        }
        stream_end(s);
    }
    expect(s, c);
    stream_close(s);
    free(s);
}

int program_main(const program_case *cases, size_t count)
{
    const program_case **pointers = calloc(count + 1, sizeof *pointers);
    struct CMUnitTest *tests = calloc(count + 1, sizeof *tests);
    int failed = 1;

    if (pointers != NULL && tests != NULL) {
        for (size_t i = 0; i < count; i++) {
            pointers[i] = &cases[i];
            tests[i] = (struct CMUnitTest){.name = cases[i].name,
                                           .test_func = run_case,
                                           .initial_state = &pointers[i]};
        }
        failed = _cmocka_run_group_tests("cases", tests, count, NULL, NULL);
    }
    free(tests);
    free(pointers);
    return failed;
}

/*
 * test_rule_program.c - rules that read programs: when they are called, what they find
 * and where; a run gives the same findings while it is watched and later.
 */
#include "cmocka_all.h"

#include "run_folder.h"
#include "program/program_sample.h"
#include "rules/context.h"
#include "rules/engine.h"

#include <sonde/error.h>
#include <sonde/trial.h>
#include <sonde/watch.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 6, LONGEST = 8192, MOST = 8 };

/* --- rules ---------------------------------------------------------------------------- */

/* What the rule below was called with. */
static char calls[256];

static void note(const char *what, int64_t step)
{
    const size_t used = strlen(calls);

    (void)snprintf(calls + used, sizeof calls - used, "%s%s%lld", used > 0 ? " " : "",
                   what, (long long)step);
}

/* Reads programs alone: finds every linear layer, by its line. */
static void read_program(sonde_rule_run *rule, const sonde_program *program)
{
    note(sonde_mode_name(program->mode), sonde_rule_at(rule)->global_step);
    assert_ptr_equal(sonde_rule_program(rule, program->mode), program);
    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];

        if (strcmp(node->op, "linear") == 0 &&
            sonde_rule_found_at(rule, "", node->place, SONDE_SEVERITY_WARNING, "linear",
                                1.0, 0.0)) {
            sonde_rule_say(rule, NULL, "A layer of %zu inputs.", node->input_count);
        }
    }
}

static void step_of_reader(sonde_rule_run *rule)
{
    note("step", sonde_rule_at(rule)->global_step);
}

static const sonde_rule reader = {.abi = SONDE_RULE_ABI,
                                  .name = "Lines",
                                  .summary = "s",
                                  .condition = "c",
                                  .advice = "a",
                                  .program = read_program,
                                  .step = step_of_reader};

/* Looks at values; its findings get their lines from the program. */
static const sonde_rule_need needs[] = {
    {.what = "values", .how = SONDE_HOW_VITALS, .when = {.every = 1}}};

static int wants(sonde_rule_run *rule, const sonde_tensor_info *info, uint32_t id)
{
    (void)rule;
    (void)id;
    assert_int_not_equal(info->role, SONDE_ROLE_PROGRAM);
    return 0;
}

static void look(sonde_rule_run *rule)
{
    size_t count = 0;
    const sonde_rule_tensor *tensors = sonde_rule_tensors(rule, &count);

    for (size_t i = 0; i < count; i++) {
        if (tensors[i].vitals != NULL && tensors[i].vitals->max > 2.0 &&
            sonde_rule_found(rule, i, SONDE_SEVERITY_ERROR, "max", tensors[i].vitals->max,
                             2.0)) {
            sonde_rule_say(rule, NULL, "It is large.");
        }
    }
}

static const sonde_rule looker = {.abi = SONDE_RULE_ABI,
                                  .name = "Large",
                                  .summary = "s",
                                  .condition = "c",
                                  .advice = "a",
                                  SONDE_RULE_NEEDS(needs),
                                  .wants = wants,
                                  .step = look};

/* Needs gradients, which no run here has; judges by a program if `enough` is set. */
static const sonde_rule_need more[] = {
    {.what = "gradients", .how = SONDE_HOW_VITALS, .when = {.every = 1}}};
static bool enough;

static int wants_nothing(sonde_rule_run *rule, const sonde_tensor_info *info, uint32_t id)
{
    (void)rule, (void)info, (void)id;
    return SONDE_RULE_IGNORE;
}

static void read_or_not(sonde_rule_run *rule, const sonde_program *program)
{
    (void)program;
    if (enough) {
        sonde__rule_judged_program(rule);
    }
}

static void never(sonde_rule_run *rule)
{
    (void)rule;
    fail_msg("a step without evidence");
}

static const sonde_rule needy = {.abi = SONDE_RULE_ABI,
                                 .name = "Needy",
                                 .summary = "s",
                                 .condition = "c",
                                 .advice = "a",
                                 SONDE_RULE_NEEDS(more),
                                 .wants = wants_nothing,
                                 .program = read_or_not,
                                 .step = never};

static sonde_rules *rules_of(void)
{
    sonde_rules *rules = NULL;

    must(sonde_rules_create(&rules, &diag));
    must(sonde_rules_add_rule(rules, &reader, NULL, &diag));
    must(sonde_rules_add_rule(rules, &looker, NULL, &diag));
    calls[0] = '\0';
    return rules;
}

/* --- runs ------------------------------------------------------------------------------ */

/* The findings as lines of JSON, in the order of their ids. */
typedef struct lines {
    size_t count;
    char text[MOST][LONGEST];
} lines;

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void take_lines(sonde_rules *rules, lines *out)
{
    size_t count = 0;
    const sonde_finding *findings = sonde_rules_findings(rules, &count);

    assert_true(count <= MOST);
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < count; i++) {
        assert_true(sonde_finding_json(&findings[i], out->text[i], LONGEST) < LONGEST);
    }
    out->count = count;
    qsort(out->text, count, LONGEST, by_text);
}

static void show(sonde_watch *watch, sonde_mode mode, int line)
{
    program_sample sample;

    sample_init(&sample);
    sample.program.mode = mode;
    sample.nodes[2].place.line = line;
    must(sonde_watch_program(watch, &sample.program, &diag));
}

/* Steps 0 ... 5, of which the last is an evaluation: programs at 1 (twice), 3 and 5; at 4
 * a value is too large. valued: a value is seen at each step. */
static void watch_run(sonde_rules *rules, bool valued)
{
    const sonde_recorder_options record = {.size = sizeof record, .path = run};
    const sonde_hook_options hook = {
        .size = sizeof hook, .record = &record, .vitals_every = 1};
    sonde_watch_options options = {.size = sizeof options, .rules = rules};
    const int64_t shape[1] = {4};
    float values[4] = {1.0F};
    const sonde_view view = sonde_view_of(SONDE_F32, 1, shape, values);
    sonde_watch *watch = NULL;
    uint32_t slot = 0;

    must(sonde_hook_create(&hook, &options.hook, &diag));
    must(sonde_watch_create(&options, &watch, &diag));
    must(sonde_watch_add_view(watch, "fc2.weight", &view, &slot, &diag));
    for (int step = 0; step < STEPS; step++) {
        const sonde_mode mode = step == 5 ? SONDE_MODE_EVAL : SONDE_MODE_TRAIN;

        must(sonde_watch_begin_step(watch, mode, &diag));
        values[0] = step == 4 ? 3.0F : 1.0F;
        if (valued) {
            sonde_watch_see(watch, slot, &view);
        }
        if (step == 1 || step == 2 || step == 3 || step == 5) {
            show(watch, mode, step < 3 ? 13 : 14);
        }
        if (step == 1) {
            show(watch, mode, 13);
        }
        sonde_watch_end_step(watch);
    }
    must(sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, &diag));
}

static void judge_run(sonde_rules *rules, int64_t first)
{
    const sonde_rules_pace pace = {.begin = first};
    sonde_trial *trial = NULL;

    must(sonde_trial_open(run, NULL, &trial, &diag));
    must(sonde_rules_judge(rules, trial, &pace, &diag));
    sonde_trial_close(trial);
}

/* --- tests ----------------------------------------------------------------------------- */

static const sonde_finding *found(sonde_rules *rules, const char *name, int line)
{
    size_t count = 0;
    const sonde_finding *findings = sonde_rules_findings(rules, &count);

    for (size_t i = 0; i < count; i++) {
        if (strcmp(findings[i].rule, name) == 0 && findings[i].place.line == line) {
            return &findings[i];
        }
    }
    return NULL;
}

static void check_findings(sonde_rules *rules)
{
    size_t count = 0;

    assert_non_null(sonde_rules_findings(rules, &count));
    assert_int_equal(count, 4);
    const sonde_finding *first = found(rules, "Lines", 11);
    assert_non_null(first);
    assert_string_equal(first->place.file, "net.py");
    assert_string_equal(first->tensor, "");
    assert_string_equal(first->message, "A layer of 3 inputs.");
    assert_int_equal(first->step, 1);
    assert_int_equal(first->steps, 3);
    assert_int_equal(first->last_step, 5);
    assert_int_equal(found(rules, "Lines", 13)->step, 1);
    assert_int_equal(found(rules, "Lines", 13)->steps, 1);
    assert_int_equal(found(rules, "Lines", 14)->step, 3);
    assert_true(first->id != found(rules, "Lines", 13)->id);
    const sonde_finding *value = found(rules, "Large", 14);
    assert_non_null(value);
    assert_string_equal(value->tensor, "fc2.weight");
    assert_string_equal(value->place.file, "net.py");
    assert_int_equal(value->step, 4);
}

static void findings_have_lines_live_and_later(void **state)
{
    static lines live, later;
    sonde_rules *rules = rules_of();

    (void)state;
    watch_run(rules, true);
    assert_string_equal(calls, "train1 step1 train3 step3 eval5 step5");
    check_findings(rules);
    take_lines(rules, &live);
    sonde_rules_destroy(rules);
    rules = rules_of();
    judge_run(rules, 0);
    assert_string_equal(calls, "train1 step1 train3 step3 eval5 step5");
    check_findings(rules);
    take_lines(rules, &later);
    sonde_rules_destroy(rules);
    assert_int_equal(live.count, later.count);
    for (size_t i = 0; i < live.count; i++) {
        assert_string_equal(live.text[i], later.text[i]);
    }
    assert_non_null(strstr(live.text[0], "\"place\":\"net.py:1"));
}

static void a_step_without_values_shows_its_program(void **state)
{
    static lines live, later;
    sonde_rules *rules = rules_of();
    sonde_rule_account account;

    (void)state;
    watch_run(rules, false);
    assert_string_equal(calls, "train1 step1 train3 step3 eval5 step5");
    sonde_rules_account(rules, 0, &account);
    assert_true(account.judged);
    assert_int_equal(account.steps, 3);
    take_lines(rules, &live);
    sonde_rules_destroy(rules);
    rules = rules_of();
    judge_run(rules, 0);
    assert_string_equal(calls, "train1 step1 train3 step3 eval5 step5");
    take_lines(rules, &later);
    sonde_rules_destroy(rules);
    assert_int_equal(live.count, 3);
    assert_int_equal(later.count, 3);
    for (size_t i = 0; i < live.count; i++) {
        assert_string_equal(live.text[i], later.text[i]);
    }
}

static void judging_from_a_step_on_knows_the_program_before(void **state)
{
    sonde_rules *rules = rules_of();

    (void)state;
    watch_run(rules, true);
    sonde_rules_destroy(rules);
    rules = rules_of();
    judge_run(rules, 4); /* two programs were before; the last one holds */
    assert_string_equal(calls, "train4 step4 eval5 step5");
    assert_null(found(rules, "Lines", 13));
    assert_int_equal(found(rules, "Lines", 14)->step, 4);
    assert_int_equal(found(rules, "Large", 14)->step, 4);
    sonde_rules_destroy(rules);
}

static void without_a_program_nothing_is_judged(void **state)
{
    const sonde_watch_options plain = {.size = sizeof plain};
    sonde_watch_options options = plain;
    sonde_rule_account account;
    sonde_watch *watch = NULL;

    (void)state;
    options.rules = rules_of();
    must(sonde_watch_create(&options, &watch, &diag));
    must(sonde_watch_begin_step(watch, SONDE_MODE_TRAIN, &diag));
    must(sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, &diag));
    sonde_rules_account(options.rules, 0, &account);
    assert_false(account.judged);
    assert_string_equal(account.lacked, "the run has no program of its steps");
    assert_string_equal(calls, "");
    sonde_rules_destroy(options.rules);
}

static void a_program_is_no_data_unless_it_is_enough(void **state)
{
    sonde_rule_account account;

    (void)state;
    for (int i = 0; i < 2; i++) {
        sonde_rules *rules = NULL;

        enough = i == 1;
        must(sonde_rules_create(&rules, &diag));
        must(sonde_rules_add_rule(rules, &needy, NULL, &diag));
        if (i == 0) {
            watch_run(rules, true);
        } else {
            judge_run(rules, 0);
        }
        sonde_rules_account(rules, 0, &account);
        assert_int_equal(account.judged, enough);
        assert_int_equal(account.steps, enough ? 3 : 0);
        assert_string_equal(account.lacked, enough ? "" : "the run has no gradients");
        const sonde_verdict verdict = sonde_rules_verdict(rules);
        assert_int_equal(verdict.rules, enough ? 1 : 0);
        assert_string_equal(verdict.lacked, enough ? "" : "no gradients");
        sonde_rules_destroy(rules);
    }
}

static void what_cannot_be_asked_is_refused(void **state)
{
    const sonde_place place = {NULL, 3};
    sonde_finding finding = {.rule = "R", .tensor = "t", .statistic = "s"};
    char line[1024];

    (void)state;
    assert_null(sonde_rule_program(NULL, SONDE_MODE_TRAIN));
    assert_false(sonde_rule_found_at(NULL, "", place, SONDE_SEVERITY_NOTE, "s", 0, 0));
    finding.message = finding.advice = "";
    assert_true(sonde_finding_json(&finding, line, sizeof line) > 0);
    assert_null(strstr(line, "place"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(findings_have_lines_live_and_later, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(a_step_without_values_shows_its_program,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(judging_from_a_step_on_knows_the_program_before,
                                        make_folder, remove_folder),
        cmocka_unit_test(without_a_program_nothing_is_judged),
        cmocka_unit_test_setup_teardown(a_program_is_no_data_unless_it_is_enough,
                                        make_folder, remove_folder),
        cmocka_unit_test(what_cannot_be_asked_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * test_first_bad.c - the first tensor that is not finite is named at its own step, though
 * rules do not look at activations then.
 *
 * The program is four blocks, a loss, gradients and weights. At step 33 the output of the
 * third block has an infinity: what follows from it in the step is NaN, and the weights
 * are from then on.
 */
#include "cmocka_all.h"

#include "base/macros.h"

#include <sonde/error.h>
#include <sonde/trial.h>
#include <sonde/watch.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 4, BAD_BLOCK = 2, BAD_STEP = 33, STEPS = 40, NUMBERS = 70 };
enum { LOSS = 3 * BLOCKS, SLOTS };

static sonde_diag diag;

static void must(sonde_err err)
{
    char line[SONDE_DIAG_LINE];

    if (err != SONDE_OK) {
        fail_msg("%s", sonde_diag_line(&diag, line, sizeof line));
    }
}

/* Slots: outputs of blocks, their weights, the gradients of these, the loss. */
static void add_slots(sonde_watch *watch, sonde_dtype dtype)
{
    static const char *const parts[][2] = {
        {"block", "_output_0"}, {"block", ".weight"}, {"gradient/block", ".weight"}};
    const sonde_role roles[] = {SONDE_ROLE_ACTIVATION, SONDE_ROLE_WEIGHT,
                                SONDE_ROLE_GRADIENT, SONDE_ROLE_LOSS};

    for (int i = 0; i < SLOTS; i++) {
        char name[40] = "loss";
        sonde_tensor_info info = {.name = name,
                                  .role = roles[i / BLOCKS],
                                  .dtype = i == LOSS ? SONDE_F32 : dtype,
                                  .rank = i == LOSS ? 0 : 1,
                                  .shape = {NUMBERS}};
        uint32_t slot = 0;

        if (i != LOSS) {
            (void)snprintf(name, sizeof name, "%s%d%s", parts[i / BLOCKS][0], i % BLOCKS,
                           parts[i / BLOCKS][1]);
        }
        must(sonde_watch_add(watch, &info, &slot, &diag));
        assert_int_equal(slot, i);
    }
}

static void show(sonde_watch *watch, int slot, sonde_dtype dtype, float value, float odd)
{
    const int64_t shape[1] = {NUMBERS};
    float numbers[NUMBERS];
    double wide[NUMBERS];

    for (int i = 0; i < NUMBERS; i++) {
        numbers[i] = i == NUMBERS - 2 ? odd : value + 0.01F * (float)(i % 7);
        wide[i] = (double)numbers[i];
    }
    if (slot == LOSS || dtype == SONDE_F32) {
        const sonde_view view = sonde_view_of(SONDE_F32, slot == LOSS ? 0 : 1, shape,
                                              slot == LOSS ? &odd : numbers);

        sonde_watch_see(watch, (uint32_t)slot, &view);
    } else {
        const sonde_view view = sonde_view_of(SONDE_F64, 1, shape, wide);

        sonde_watch_see(watch, (uint32_t)slot, &view);
    }
}

static void train(sonde_watch *watch, sonde_mode mode, sonde_dtype dtype)
{
    for (int step = 0; step < STEPS; step++) {
        const bool bad = step >= BAD_STEP;
        const float value = 0.5F + 0.01F * (float)(step % 3);

        must(sonde_watch_begin_step(watch, mode, &diag));
        for (int i = 0; i < BLOCKS; i++) {
            const bool later = bad && (step > BAD_STEP || i > BAD_BLOCK);

            show(watch, i, dtype, value,
                 later                   ? NAN
                 : bad && i == BAD_BLOCK ? INFINITY
                                         : value);
        }
        show(watch, LOSS, dtype, value, bad ? NAN : 2.0F - 0.01F * (float)step);
        for (int i = 2 * BLOCKS; i < 3 * BLOCKS; i++) {
            show(watch, i, dtype, 0.01F * value, bad ? NAN : 0.02F * value);
        }
        for (int i = BLOCKS; i < 2 * BLOCKS; i++) {
            show(watch, i, dtype, 0.1F + 1e-4F * (float)step, bad ? NAN : 0.3F);
        }
        sonde_watch_end_step(watch);
    }
}

/* The first finding of NonFinite; its tensor is "" if there is none. */
static sonde_finding first_of(sonde_rules *rules)
{
    size_t count = 0;
    const sonde_finding *findings = sonde_rules_findings(rules, &count);

    for (size_t i = 0; i < count; i++) {
        if (strcmp(findings[i].rule, "NonFinite") == 0) {
            return findings[i];
        }
    }
    return (sonde_finding){.tensor = ""};
}

static sonde_rules *default_rules(void)
{
    sonde_rules *rules = NULL;

    must(sonde_rules_create(&rules, &diag));
    must(sonde_rules_add_defaults(rules, &diag));
    return rules;
}

static void check_named(sonde_mode mode, sonde_dtype dtype)
{
    sonde_rules *rules = default_rules();
    sonde_watch *watch = NULL;

    must(sonde_watch_create(SONDE_OPTIONS(sonde_watch, .rules = rules), &watch, &diag));
    add_slots(watch, dtype);
    train(watch, mode, dtype);
    must(sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, &diag));
    assert_string_equal(first_of(rules).tensor, "block2_output_0");
    assert_int_equal(first_of(rules).step, BAD_STEP);
    sonde_rules_destroy(rules);
}

static void the_first_bad_tensor_is_named(void **state)
{
    (void)state;
    check_named(SONDE_MODE_TRAIN, SONDE_F32);
    check_named(SONDE_MODE_TRAIN, SONDE_F64);
    check_named(SONDE_MODE_GLOBAL, SONDE_F32);
}

/* Without rules in the program: the hook records what a judge needs later. */
static void it_is_recorded_for_a_later_judge(void **state)
{
    char run[64], command[80], folder[] = "/tmp/sonde-first-XXXXXX";
    sonde_hook *hook = NULL;
    sonde_watch *watch = NULL;
    sonde_trial *trial = NULL;
    sonde_rules *rules = default_rules();
    sonde_recorder_options record = {.size = sizeof record, .path = run};

    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(run, sizeof run, "%s/run", folder);
    must(sonde_hook_create(SONDE_OPTIONS(sonde_hook, .record = &record), &hook, &diag));
    must(sonde_watch_create(SONDE_OPTIONS(sonde_watch, .hook = hook), &watch, &diag));
    add_slots(watch, SONDE_F32);
    train(watch, SONDE_MODE_TRAIN, SONDE_F32);
    must(sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, &diag));
    must(sonde_trial_open(run, NULL, &trial, &diag));
    must(sonde_rules_judge(rules, trial, NULL, &diag));
    assert_string_equal(first_of(rules).tensor, "block2_output_0");
    assert_int_equal(first_of(rules).step, BAD_STEP);
    sonde_rules_destroy(rules);
    sonde_trial_close(trial);
    (void)snprintf(command, sizeof command, "rm -r '%s'", folder);
    assert_int_equal(system(command), 0);
}

/* Who says how often activations are looked at gets no more. */
static void the_program_may_say_less(void **state)
{
    sonde_rules *rules = default_rules();
    sonde_watch_options options = {.size = sizeof options, .rules = rules};
    sonde_watch *watch = NULL;

    (void)state;
    options.every[SONDE_ROLE_ACTIVATION] = 20;
    must(sonde_watch_create(&options, &watch, &diag));
    add_slots(watch, SONDE_F32);
    train(watch, SONDE_MODE_TRAIN, SONDE_F32);
    must(sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, &diag));
    assert_string_equal(first_of(rules).tensor, "loss");
    assert_int_equal(first_of(rules).step, BAD_STEP);
    sonde_rules_destroy(rules);
}

/* A value that is checked and finite is not observed; one that is not finite is. */
static void a_check_observes_what_is_bad_alone(void **state)
{
    const int64_t shape[1] = {NUMBERS};
    float numbers[NUMBERS] = {0};
    const sonde_view view = sonde_view_of(SONDE_F32, 1, shape, numbers);
    sonde_rules *rules = default_rules();
    sonde_watch *watch = NULL;
    sonde_vitals vitals;

    (void)state;
    must(sonde_watch_create(SONDE_OPTIONS(sonde_watch, .rules = rules), &watch, &diag));
    add_slots(watch, SONDE_F32);
    assert_false(sonde_watch_checks(watch, 0)); /* no step is on */
    for (int step = 0; step < 30; step++) {
        must(sonde_watch_begin_step(watch, SONDE_MODE_TRAIN, &diag));
        sonde_watch_end_step(watch);
    }
    must(sonde_watch_begin_step(watch, SONDE_MODE_TRAIN, &diag));
    assert_int_equal(sonde_watch_wants(watch, 0), 0);
    assert_true(sonde_watch_checks(watch, 0));
    assert_true(sonde_watch_checks_role(watch, SONDE_ROLE_ACTIVATION));
    assert_false(sonde_watch_checks_role(watch, SONDE_ROLE_UPDATE));
    sonde_watch_see(watch, 0, &view);
    assert_false(sonde_watch_is_bad(&view));
    assert_false(sonde_watch_vitals(watch, 0, &vitals));
    numbers[3] = -INFINITY;
    assert_true(sonde_watch_is_bad(&view));
    sonde_watch_see(watch, 0, &view);
    assert_true(sonde_watch_vitals(watch, 0, &vitals));
    assert_int_equal(vitals.neg_inf, 1);
    sonde_watch_end_step(watch);
    assert_false(sonde_watch_checks(watch, 0));
    assert_false(sonde_watch_checks_role(watch, SONDE_ROLE_ACTIVATION));
    must(sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, &diag));
    sonde_rules_destroy(rules);
}

/* Vital signs that a program computes itself are taken if they are bad. */
static void given_vital_signs_are_checked(void **state)
{
    const int64_t shape[1] = {NUMBERS};
    float numbers[NUMBERS] = {0};
    const sonde_view view = sonde_view_of(SONDE_F32, 1, shape, numbers);
    sonde_rules *rules = default_rules();
    sonde_watch *watch = NULL;
    sonde_vitals vitals;

    (void)state;
    must(sonde_watch_create(SONDE_OPTIONS(sonde_watch, .rules = rules), &watch, &diag));
    add_slots(watch, SONDE_F32);
    for (int step = 0; step <= 30; step++) {
        must(sonde_watch_begin_step(watch, SONDE_MODE_TRAIN, &diag));
        numbers[0] = step == 30 ? NAN : 1.0F;
        sonde_vitals_of(&view, &vitals);
        sonde_watch_see_vitals(watch, 1, &view, &vitals);
        show(watch, LOSS, SONDE_F32, 1.0F, step == 30 ? NAN : 1.0F);
    }
    must(sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, &diag));
    assert_string_equal(first_of(rules).tensor, "block1_output_0");
    assert_int_equal(first_of(rules).step, 30);
    sonde_rules_destroy(rules);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_bad_tensor_is_named),
        cmocka_unit_test(it_is_recorded_for_a_later_judge),
        cmocka_unit_test(the_program_may_say_less),
        cmocka_unit_test(a_check_observes_what_is_bad_alone),
        cmocka_unit_test(given_vital_signs_are_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

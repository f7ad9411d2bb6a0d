/*
 * A hook in a program with a loop of its own: schedules and their layers, modes,
 * reductions, vital signs, the gate, scalars, tensors that come late.
 */
#include "capture/journal.h"
#include "base/macros.h"
#include "capture/hook_state.h"

/* --- schedules -------------------------------------------------------------------- */

static void test_defaults(void **state)
{
    sonde_hook *hook = hook_of(SONDE_OPTIONS(sonde_hook, .vitals_every = 10));
    const five net = declare_net(hook);

    (void)state;
    run_steps(hook, &net, 1001);
    /* raw values of the four default collections, every 500 */
    assert_steps("fc1.weight", 'r', SONDE_MODE_TRAIN, "0 500 1000 ");
    assert_steps("fc1.bias", 'r', SONDE_MODE_TRAIN, "0 500 1000 ");
    assert_steps("gradient/fc1.weight", 'r', SONDE_MODE_TRAIN, "0 500 1000 ");
    assert_steps("loss", 'r', SONDE_MODE_TRAIN, "0 500 1000 ");
    assert_steps("relu_output_0", 'r', SONDE_MODE_TRAIN, "");
    /* vital signs: losses every step, the others every tenth, outputs never */
    assert_int_equal(journal_count('v'), 1001 + 3 * 101);
    assert_int_equal(journal_count('s'), 0);
    assert_int_equal(journal_count('e'), 1001);
    assert_string_equal(collections_of(hook, net.weight), "weights");
    assert_string_equal(collections_of(hook, net.loss), "losses");
    assert_string_equal(collections_of(hook, net.output), "");
    assert_string_equal(journal.log, "");
    finish(hook);
}

/* The steps below 402 at which a schedule is due, as assert_steps has them. */
static const char *steps_of(sonde_schedule when, char *text)
{
    text[0] = '\0';
    for (int step = 0; step < 402; step++) {
        char number[16];

        (void)snprintf(number, sizeof number, "%d ", step);
        (void)strcat(text, sonde_schedule_due(&when, step) ? number : "");
    }
    return text;
}

/* What the default rules need of each tensor; with the raw values of small ones, unless
 * the program says what is saved. A file that says nothing changes nothing. */
static void test_what_rules_need(void **state)
{
    static const sonde_schedule seldom = {.first = 20, .every = 50};
    enum { NOTHING, EMPTY_FILE, SAYS };

    for (int says = NOTHING; says <= SAYS; says++) {
        const sonde_hook_options options = {.size = sizeof options, .dry_run = true};
        sonde_hook *hook = NULL;
        char text[2048];
        five net;

        (void)journal_reset(state);
        if (says == EMPTY_FILE) {
            assert_int_equal(sonde_hook_parse("train: {}\npath: run\n", 20, "hook.yaml",
                                              NULL, &options, &hook, NULL),
                             SONDE_OK);
            listen_to(hook);
        } else {
            hook = hook_of(NULL);
        }
        net = declare_net(hook);
        if (says == SAYS) {
            save(hook, NULL, -1, every(1000));
        }
        run_steps(hook, &net, 402);
        /* a vector: WeightJump looks at some of them at every step */
        assert_steps("fc1.weight", 'v', SONDE_MODE_TRAIN,
                     steps_of((sonde_schedule){.every = 1}, text));
        assert_steps("relu_output_0", 'v', SONDE_MODE_TRAIN, steps_of(seldom, text));
        assert_steps("relu_output_0", 'r', SONDE_MODE_TRAIN,
                     says == SAYS ? "" : steps_of(seldom, text));
        assert_steps("fc1.weight", 'r', SONDE_MODE_TRAIN,
                     says == SAYS
                         ? "0 "
                         : steps_of(
                               (sonde_schedule){
                                   .every = 10, .first = 50, .row = 2, .row_every = 100},
                               text));
        finish(hook);
    }
}

static void test_layers(void **state)
{
    sonde_hook *hook = hook_of(SONDE_OPTIONS(sonde_hook, .no_vitals = true));
    const five net = declare_net(hook);

    (void)state;
    save(hook, NULL, -1, every(4));
    save(hook, NULL, SONDE_MODE_EVAL, every(3));
    save(hook, "biases", -1, every(5)); /* over the hook's mode, too */
    save(hook, "losses", SONDE_MODE_EVAL, every(2));
    run_steps(hook, &net, 11);
    set_mode(hook, SONDE_MODE_EVAL);
    run_steps(hook, &net, 11);
    assert_steps("fc1.weight", 'r', SONDE_MODE_TRAIN, "0 4 8 ");
    assert_steps("fc1.weight", 'r', SONDE_MODE_EVAL, "0 3 6 9 ");
    assert_steps("fc1.bias", 'r', SONDE_MODE_TRAIN, "0 5 10 ");
    assert_steps("fc1.bias", 'r', SONDE_MODE_EVAL, "0 5 10 ");
    assert_steps("loss", 'r', SONDE_MODE_TRAIN, "0 4 8 ");
    assert_steps("loss", 'r', SONDE_MODE_EVAL, "0 2 4 6 8 10 ");
    assert_int_equal(journal_count('v'), 0);
    finish(hook);
}

static void test_steps_and_ranges(void **state)
{
    static const int64_t steps[] = {7, 2, 3, 2}, two[] = {1, 4};
    sonde_hook *hook = hook_of(SONDE_OPTIONS(sonde_hook, .no_vitals = true));
    sonde_save_config listed = sonde_save_config_unset(), range = every(2);
    const five net = declare_net(hook);

    (void)state;
    listed.save_steps = steps;
    listed.save_step_count = 4;
    range.start_step = 3;
    range.end_step = 8;
    save(hook, NULL, -1, listed);
    save(hook, "biases", -1, range); /* puts the hook's steps out of force */
    listed.save_steps = two;
    listed.save_step_count = 2;
    save(hook, "gradients", SONDE_MODE_TRAIN, listed);
    range = sonde_save_config_unset();
    range.start_step = 0;
    range.end_step = 0;
    save(hook, "losses", -1, range); /* off */
    run_steps(hook, &net, 12);
    assert_steps("fc1.weight", 'r', SONDE_MODE_TRAIN, "2 3 7 ");
    assert_steps("fc1.bias", 'r', SONDE_MODE_TRAIN, "4 6 ");
    assert_steps("gradient/fc1.weight", 'r', SONDE_MODE_TRAIN, "1 4 ");
    assert_steps("loss", 'r', SONDE_MODE_TRAIN, "");
    assert_int_equal(journal_count('e'), 12);
    finish(hook);
}

/* end_step 0 switches a mode off, whatever an earlier layer says of its start. */
static void test_mode_off(void **state)
{
    sonde_hook *hook = hook_of(SONDE_OPTIONS(sonde_hook, .no_vitals = true));
    sonde_save_config late = every(2), off = sonde_save_config_unset();
    const five net = declare_net(hook);

    (void)state;
    late.start_step = 4;
    off.end_step = 0;
    save(hook, NULL, -1, late);
    save(hook, NULL, SONDE_MODE_EVAL, off);
    run_steps(hook, &net, 8);
    set_mode(hook, SONDE_MODE_EVAL);
    run_steps(hook, &net, 8);
    assert_steps("fc1.weight", 'r', SONDE_MODE_TRAIN, "4 6 ");
    assert_steps("fc1.weight", 'r', SONDE_MODE_EVAL, "");
    finish(hook);
}

/* --- steps and modes -------------------------------------------------------------- */

static void test_counts(void **state)
{
    sonde_hook *hook = hook_of(SONDE_OPTIONS(sonde_hook, .no_vitals = true));
    const five net = declare_net(hook);
    const int modes[] = {0, 0, 1, 0, 3, 2, 3};
    /* smdebug's example, then modes global and predict */
    const int64_t mode_steps[] = {0, 1, 0, 2, 4, 0, 6};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(modes); i++) {
        set_mode(hook, (sonde_mode)modes[i]);
        run_steps(hook, &net, 1);
    }
    assert_int_equal(journal_count('e'), SONDE_COUNT_OF(modes));
    for (size_t i = 0, step = 0; i < journal.count; i++) {
        const sonde_coordinate *at = &journal.entries[i].at;

        if (journal.entries[i].kind == 'e') {
            assert_int_equal(at->global_step, step);
            assert_int_equal(at->mode, modes[step]);
            assert_int_equal(at->mode_step, mode_steps[step]);
            step++;
        }
    }
    set_mode(hook, (sonde_mode)17);
    assert_int_equal(begin_step(hook, NULL), SONDE_EINVAL);
    finish(hook);
}

static void test_mode_global(void **state)
{
    sonde_hook *hook = hook_of(SONDE_OPTIONS(sonde_hook, .no_vitals = true));
    const five net = declare_net(hook);

    (void)state;
    save(hook, NULL, -1, every(4));
    save(hook, NULL, SONDE_MODE_GLOBAL, every(3));
    run_steps(hook, &net, 1); /* train: its own schedule, and a warning */
    assert_non_null(strstr(journal.log, "mode global"));
    set_mode(hook, SONDE_MODE_GLOBAL);
    run_steps(hook, &net, 7); /* global steps 1 ... 7 */
    assert_steps("fc1.weight", 'r', SONDE_MODE_TRAIN, "0 ");
    assert_steps("fc1.weight", 'r', SONDE_MODE_GLOBAL, "3 6 ");
    finish(hook);
}

/* One loss, for so many steps of a mode. */
static void lose(sonde_watch *watch, uint32_t loss, sonde_mode mode, int steps)
{
    float value = 1.0F;
    const sonde_view view = sonde_view_of(SONDE_F32, 0, NULL, &value);

    for (int i = 0; i < steps; i++) {
        assert_int_equal(sonde_watch_begin_step(watch, mode, NULL), SONDE_OK);
        sonde_watch_see(watch, loss, &view);
        sonde_watch_end_step(watch);
    }
}

static sonde_watch *loss_watch(sonde_hook *hook, uint32_t *loss)
{
    const sonde_view view = sonde_view_of(SONDE_F32, 0, NULL, NULL);
    sonde_watch *watch = NULL;

    assert_int_equal(
        sonde_watch_create(SONDE_OPTIONS(sonde_watch, .hook = hook), &watch, NULL),
        SONDE_OK);
    assert_int_equal(sonde_watch_add_view(watch, "loss", &view, loss, NULL), SONDE_OK);
    return watch;
}

/* A run of 7 steps of evaluation, 35 of prediction and 58 of training is resumed. */
static void test_go_on(void **state)
{
    char folder[] = "/tmp/sonde-go-on-XXXXXX", path[64], command[96];
    sonde_recorder_options record = {.size = sizeof record, .path = path};
    const sonde_hook_options options = {.size = sizeof options, .record = &record};
    sonde_hook *hook = NULL;
    sonde_watch *watch = NULL;
    sonde_diag diag = {0};
    uint32_t loss = 0;

    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/run", folder);
    assert_int_equal(sonde_hook_create(&options, &hook, NULL), SONDE_OK);
    watch = loss_watch(hook, &loss);
    lose(watch, loss, SONDE_MODE_EVAL, 7);
    lose(watch, loss, SONDE_MODE_PREDICT, 35);
    lose(watch, loss, SONDE_MODE_TRAIN, 58);
    assert_int_equal(sonde_watch_close(watch, SONDE_RUN_INTERRUPTED, NULL, NULL),
                     SONDE_OK);

    record.resume = SONDE_RESUME_ANY;
    assert_int_equal(sonde_hook_create(&options, &hook, NULL), SONDE_OK);
    assert_int_equal(sonde_hook_resume_at(hook, SONDE_MODE_TRAIN, 58, NULL), SONDE_OK);
    assert_int_equal(sonde_hook_resume_at(hook, SONDE_MODE_TRAIN, 57, &diag),
                     SONDE_EINVAL);
    assert_int_equal(sonde_hook_resume_at(hook, (sonde_mode)9, 57, &diag), SONDE_EINVAL);
    assert_int_equal(hook->options.record->resume_mode, SONDE_MODE_TRAIN);
    assert_int_equal(hook->options.record->resume_step, 58);
    watch = loss_watch(hook, &loss);
    lose(watch, loss, SONDE_MODE_TRAIN, 4);
    assert_int_equal(sonde_watch_where(watch).mode_step, 61);
    assert_int_equal(sonde_watch_where(watch).global_step, 103);
    lose(watch, loss, SONDE_MODE_EVAL, 1); /* as the run says */
    assert_int_equal(sonde_watch_where(watch).mode_step, 7);
    assert_int_equal(sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, NULL), SONDE_OK);
    (void)snprintf(command, sizeof command, "rm -r '%s'", folder);
    assert_int_equal(system(command), 0);
}

/* Of several calls the first says where a run resumes, and one of mode global instead. */
static void test_go_on_twice(void **state)
{
    sonde_hook *hook = hook_of(
        SONDE_OPTIONS(sonde_hook, .record = SONDE_OPTIONS(sonde_recorder, .path = "run",
                                                          .resume = "any")));
    const sonde_recorder_options *record = &hook->record;

    (void)state;
    assert_int_equal(sonde_hook_resume_at(hook, SONDE_MODE_EVAL, 0, NULL), SONDE_OK);
    assert_int_equal(record->resume_step, SONDE_RESUME_ANEW);
    assert_int_equal(sonde_hook_resume_at(hook, SONDE_MODE_TRAIN, 5, NULL), SONDE_OK);
    assert_int_equal(record->resume_mode, SONDE_MODE_EVAL);
    assert_int_equal(record->resume_step, SONDE_RESUME_ANEW);
    assert_int_equal(sonde_hook_resume_at(hook, SONDE_MODE_GLOBAL, 9, NULL), SONDE_OK);
    assert_int_equal(record->resume_mode, SONDE_MODE_GLOBAL);
    assert_int_equal(record->resume_step, 9);
    finish(hook);
}

/* A step that was not ended ends with the next; record outside of steps does nothing. */
static void test_unended(void **state)
{
    sonde_hook *hook = hook_of(NULL);
    const five net = declare_net(hook);

    (void)state;
    record(hook, net.weight, 1.0F);
    assert_false(hook->open);
    begin(hook);
    begin(hook);
    assert_int_equal(journal_count('e'), 1);
    end_step(hook);
    end_step(hook);
    assert_int_equal(journal_count('e'), 2);
    record(hook, net.weight, 1.0F);
    assert_int_equal(journal_count('r'), 0);
    begin(hook);
    finish(hook); /* ends it too */
    assert_int_equal(journal_count('e'), 3);
}

/* --- what is kept ----------------------------------------------------------------- */

static void test_reductions(void **state)
{
    const sonde_reduction_config means = {.stats = 1U << SONDE_STAT_MEAN};
    const sonde_reduction_config both = {.histogram = true, .save_raw_tensor = true};
    char *text = NULL;
    sonde_hook *hook = hook_of(SONDE_OPTIONS(sonde_hook, .no_vitals = true));
    const five net = declare_net(hook);

    (void)state;
    save(hook, NULL, -1, every(2));
    assert_int_equal(sonde__observe_reduce(&hook->setup, NULL, &means, NULL), SONDE_OK);
    assert_int_equal(sonde__observe_reduce(&hook->setup, "biases", &both, NULL),
                     SONDE_OK);
    include(hook, "mine", "fc1.*"); /* reduced as the hook says */
    save(hook, "mine", -1, every(3));
    run_steps(hook, &net, 4);
    assert_steps("fc1.weight", 'r', SONDE_MODE_TRAIN, "");
    assert_steps("fc1.weight", 'v', SONDE_MODE_TRAIN, "0 2 3 "); /* once at 0 */
    assert_steps("fc1.bias", 'r', SONDE_MODE_TRAIN, "0 2 ");
    assert_steps("fc1.bias", 's', SONDE_MODE_TRAIN, "0 2 ");
    assert_steps("fc1.bias", 'v', SONDE_MODE_TRAIN, "0 3 "); /* of mine: the union at 0 */
    text = sonde__observe_setup_json(&hook->setup);
    assert_non_null(strstr(text, "\"reductions\":[\"mean\"]"));
    free(text);
    assert_string_equal(collections_of(hook, net.weight), "weights,mine");
    finish(hook);
}

static void test_save_all(void **state)
{
    sonde_hook *hook =
        hook_of(SONDE_OPTIONS(sonde_hook, .no_vitals = true, .save_all = true));
    const five net = declare_net(hook);

    (void)state;
    save(hook, "all", -1, every(2)); /* its own schedule */
    run_steps(hook, &net, 5);
    assert_steps("relu_output_0", 'r', SONDE_MODE_TRAIN, "0 2 4 ");
    assert_steps("fc1.weight", 'r', SONDE_MODE_TRAIN, "0 2 4 ");
    finish(hook);
}

static void test_choices(void **state)
{
    sonde_hook *hook =
        hook_of(SONDE_OPTIONS(sonde_hook, .no_vitals = true, .include = "relu_output"));
    const five net = declare_net(hook);

    (void)state;
    save(hook, NULL, -1, every(1));
    include(hook, "most", "@all");
    assert_int_equal(sonde__observe_add_asked(&hook->setup, "most", NULL),
                     SONDE_OK); /* again */
    assert_int_equal(
        sonde__observe_exclude(&hook->setup, "most", "re:^gradient, loss", NULL),
        SONDE_OK);
    assert_int_equal(sonde__observe_remove_collection(&hook->setup, "gradients", NULL),
                     SONDE_OK);
    run_steps(hook, &net, 1);
    assert_string_equal(collections_of(hook, net.output), "default,most");
    assert_string_equal(collections_of(hook, net.gradient), "");
    assert_string_equal(collections_of(hook, net.loss), "losses");
    assert_string_equal(collections_of(hook, net.weight), "weights,most");
    finish(hook);
}

/* Modules are anchored: fc1 is not encoder.fc1, and a dot is a dot. */
static void test_modules(void **state)
{
    sonde_hook *hook = hook_of(SONDE_OPTIONS(sonde_hook, .no_vitals = true));
    const uint32_t ids[] = {
        declare(hook, "fc1_output_0", 3), declare(hook, "encoder.fc1_output_0", 3),
        declare(hook, "fc1_input_0", 3), declare(hook, "layer.0_output_0", 3),
        declare(hook, "layerx0_output_0", 3)};
    const char *const expected[] = {"mine", "", "", "mine", ""};

    (void)state;
    assert_int_equal(sonde__observe_add_asked(&hook->setup, "mine", NULL), SONDE_OK);
    assert_int_equal(
        sonde__observe_add_module(&hook->setup, "mine", "model.fc1", false, true, NULL),
        SONDE_OK);
    assert_int_equal(
        sonde__observe_add_module(&hook->setup, "mine", "layer.0", true, true, NULL),
        SONDE_OK);
    begin(hook);
    for (size_t i = 0; i < SONDE_COUNT_OF(ids); i++) {
        assert_string_equal(collections_of(hook, ids[i]), expected[i]);
    }
    finish(hook);
}

/* A value given twice in a step is the next micro-batch: keys stay unique. */
static void test_repeated(void **state)
{
    sonde_hook *hook = hook_of(SONDE_OPTIONS(sonde_hook, .no_vitals = true));
    const uint32_t id = declare(hook, "w.weight", 3);

    (void)state;
    save(hook, NULL, -1, every(1));
    for (int step = 0; step < 2; step++) {
        begin(hook);
        record(hook, id, 1.0F);
        record(hook, id, 2.0F);
        end_step(hook);
    }
    assert_int_equal(journal_count('r'), 4);
    assert_int_equal(journal.entries[0].at.micro_batch, 0);
    assert_int_equal(journal.entries[1].at.micro_batch, 1);
    assert_int_equal(journal.entries[3].at.micro_batch, 0);
    finish(hook);
}

static void test_dry_run(void **state)
{
    sonde_hook *hook =
        hook_of(SONDE_OPTIONS(sonde_hook, .dry_run = true, .vitals_every = 10));
    const five net = declare_net(hook);

    (void)state;
    run_steps(hook, &net, 20);
    assert_null(sonde__hook_recorder(hook));
    assert_null(sonde_hook_path(hook));
    assert_int_equal(hook->dry.values, 4);
    assert_int_equal(hook->dry.rows, 20 + 3 * 2);
    finish(hook);
}

/* --- scalars, late tensors -------------------------------------------------------- */

static void test_scalars(void **state)
{
    sonde_hook *hook = hook_of(NULL);
    const five net = declare_net(hook);

    (void)state;
    assert_int_equal(sonde_hook_scalar(hook, "lr", 0.5, NULL), SONDE_OK); /* early */
    run_steps(hook, &net, 2);
    assert_int_equal(sonde_hook_scalar(hook, "lr", 0.25, NULL), SONDE_OK); /* late */
    assert_int_equal(journal.entries[journal.count - 1].kind, 'e');
    assert_int_equal(journal.entries[journal.count - 1].at.global_step, 1);
    begin(hook);
    assert_int_equal(sonde_hook_scalar(hook, "lr", 0.125, NULL), SONDE_OK);
    assert_int_equal(sonde_hook_scalar(hook, "acc", 1.0, NULL), SONDE_OK);
    assert_int_equal(sonde_hook_scalar(hook, "acc", 2.0, NULL), SONDE_OK);
    assert_int_equal(journal.entries[journal.count - 1].at.micro_batch, 1);
    end_step(hook);
    assert_steps("scalar/lr", 'r', SONDE_MODE_TRAIN, "0 1 2 ");
    assert_steps("scalar/lr", 'v', SONDE_MODE_TRAIN, "0 1 2 ");
    assert_steps("scalar/acc", 'r', SONDE_MODE_TRAIN, "2 2 ");
    finish(hook);
}

static void test_late_tensors(void **state)
{
    sonde_hook *hook = hook_of(SONDE_OPTIONS(sonde_hook, .vitals_every = 10));
    uint32_t ids[300];
    char name[32];

    (void)state;
    begin(hook);                    /* there is nothing yet */
    for (int i = 0; i < 300; i++) { /* beyond the first arrays */
        (void)snprintf(name, sizeof name, "fc%d.weight", i);
        ids[i] = declare(hook, name, 3);
        record(hook, ids[i], 1.0F);
    }
    end_step(hook);
    assert_int_equal(journal_count('r'), 300);
    assert_int_equal(journal_count('v'), 300);
    assert_string_equal(collections_of(hook, ids[299]), "weights");
    begin(hook);
    record(hook, ids[7], 1.0F);
    end_step(hook);
    assert_int_equal(journal_count('r'), 300);
    finish(hook);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_defaults, journal_reset),
        cmocka_unit_test_setup(test_what_rules_need, journal_reset),
        cmocka_unit_test_setup(test_layers, journal_reset),
        cmocka_unit_test_setup(test_steps_and_ranges, journal_reset),
        cmocka_unit_test_setup(test_mode_off, journal_reset),
        cmocka_unit_test_setup(test_counts, journal_reset),
        cmocka_unit_test_setup(test_mode_global, journal_reset),
        cmocka_unit_test_setup(test_go_on, journal_reset),
        cmocka_unit_test_setup(test_go_on_twice, journal_reset),
        cmocka_unit_test_setup(test_unended, journal_reset),
        cmocka_unit_test_setup(test_reductions, journal_reset),
        cmocka_unit_test_setup(test_save_all, journal_reset),
        cmocka_unit_test_setup(test_choices, journal_reset),
        cmocka_unit_test_setup(test_modules, journal_reset),
        cmocka_unit_test_setup(test_repeated, journal_reset),
        cmocka_unit_test_setup(test_dry_run, journal_reset),
        cmocka_unit_test_setup(test_scalars, journal_reset),
        cmocka_unit_test_setup(test_late_tensors, journal_reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

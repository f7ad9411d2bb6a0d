/*
 * What a hook warns about and refuses, roles by name, and memory that runs out.
 */
#include "capture/journal.h"
#include "base/macros.h"

#include "alloc_failure.h"
#include "capture/hook_state.h"

#include <unistd.h>

/* --- warnings and errors ---------------------------------------------------------- */

static void test_warnings(void **state)
{
    static const char expected[] =
        "collection 'weights': when_nan 'y*' matches no tensor\n"
        "collection 'mine': exclude 'glob:x*' matches no tensor\n"
        "collection 'none': include 're:^conv' matches no tensor\n"
        "collection 'buffers': include '@buffers' matches no tensor\n";
    sonde_hook *hook = hook_of(NULL);
    sonde_save_config nan = sonde_save_config_unset();

    (void)state;
    (void)declare_net(hook);
    include(hook, "mine", "conv*, fc*");
    include(hook, "none", "re:^conv");
    assert_int_equal(sonde__observe_exclude(&hook->setup, "mine", "glob:x*", NULL),
                     SONDE_OK);
    assert_int_equal(sonde__observe_add_asked(&hook->setup, "buffers", NULL), SONDE_OK);
    nan.when_nan = "y*";
    save(hook, "weights", SONDE_MODE_TRAIN, nan);
    begin(hook);
    assert_string_equal(journal.log, expected);
    finish(hook); /* not again */
    assert_string_equal(journal.log, expected);
}

/* A program that declares as it goes is told at the end. */
static void test_late_warnings(void **state)
{
    sonde_hook *hook = hook_of(NULL);

    (void)state;
    include(hook, "mine", "fc1.weight");
    include(hook, "none", "conv1.weight");
    begin(hook);
    (void)declare(hook, "fc1.weight", 3);
    assert_string_equal(journal.log, "");
    finish(hook);
    assert_string_equal(journal.log,
                        "collection 'none': include 'conv1.weight' matches no tensor\n");
}

static void refused(sonde_err err, sonde_err expected, const sonde_diag *diag,
                    const char *line)
{
    char text[SONDE_DIAG_LINE];

    assert_int_equal(err, expected);
    assert_string_equal(sonde_diag_line(diag, text, sizeof text), line);
}

static void test_refusals(void **state)
{
    sonde_hook *hook = hook_of(NULL);
    sonde_save_config config = every(0);
    sonde_diag diag = {0};

    (void)state;
    refused(sonde__observe_save(&hook->setup, NULL, -1, &config, &diag), SONDE_EINVAL,
            &diag, "hook: every: 0 (expected 1 or more)");
    config = sonde_save_config_unset();
    config.start_step = -3;
    refused(sonde__observe_save(&hook->setup, "weights", 0, &config, &diag), SONDE_EINVAL,
            &diag, "weights: start_step: -3 (expected 0 or more)");
    config = sonde_save_config_unset();
    config.save_steps = (const int64_t[]){3, -1};
    config.save_step_count = 2;
    refused(sonde__observe_save(&hook->setup, NULL, -1, &config, &diag), SONDE_EINVAL,
            &diag, "hook: save_steps: -1 (expected 0 or more)");
    config = sonde_save_config_unset();
    config.when_nan = "re:(";
    assert_int_equal(sonde__observe_save(&hook->setup, NULL, -1, &config, &diag),
                     SONDE_EINVAL);
    config = every(2);
    refused(sonde__observe_save(&hook->setup, NULL, 4, &config, &diag), SONDE_EINVAL,
            &diag, "hook: mode 4 (expected -1 or a sonde_mode)");
    refused(sonde__observe_save(&hook->setup, "wieghts", -1, &config, &diag),
            SONDE_ENOTFOUND, &diag,
            "wieghts: unknown collection 'wieghts' (expected weights)");
    assert_int_equal(sonde__observe_include(&hook->setup, "weights", "re:(", &diag),
                     SONDE_EINVAL);
    assert_int_equal(sonde__observe_add_asked(&hook->setup, "", &diag), SONDE_EINVAL);
    assert_int_equal(sonde__observe_remove_collection(&hook->setup, "none", &diag),
                     SONDE_ENOTFOUND);
    assert_int_equal(
        sonde__observe_add_module(&hook->setup, "weights", "", true, true, &diag),
        SONDE_EINVAL);
    assert_int_equal(sonde__observe_reduce(&hook->setup, NULL,
                                           &(sonde_reduction_config){.stats = 1U << 30},
                                           &diag),
                     SONDE_EINVAL);
    for (int i = 4; i < 64; i++) {
        char name[16];

        (void)snprintf(name, sizeof name, "c%d", i);
        include(hook, name, "@all");
    }
    refused(sonde__observe_add_asked(&hook->setup, "c64", &diag), SONDE_ERANGE, &diag,
            "c64: one collection too many (expected at most 64 collections)");
    assert_int_equal(close_loop(hook), SONDE_OK);

    assert_int_equal(
        sonde_hook_create(SONDE_OPTIONS(sonde_hook, .dry_run = false), &hook, &diag),
        SONDE_EINVAL);
    assert_int_equal(
        sonde_hook_create(SONDE_OPTIONS(sonde_hook, .dry_run = true, .vitals_every = -1),
                          &hook, &diag),
        SONDE_EINVAL);
}

/* What contradicts itself only once it is put together, and what the first step finds. */
static void test_first_step_refusals(void **state)
{
    sonde_hook *hook = hook_of(NULL);
    sonde_save_config config = sonde_save_config_unset();
    const sonde_reduction_config none = {0};
    sonde_diag diag = {0};

    (void)state;
    (void)declare_net(hook);
    config.start_step = 100;
    save(hook, NULL, -1, config);
    config = sonde_save_config_unset();
    config.end_step = 50;
    save(hook, "weights", SONDE_MODE_EVAL, config);
    refused(
        begin_step(hook, &diag), SONDE_EINVAL, &diag,
        "collection 'weights', mode eval: end_step: 50 with start_step 100 (expected a "
        "step after start_step)");
    config.end_step = 500;
    save(hook, "weights", SONDE_MODE_EVAL, config); /* still to be mended */
    assert_int_equal(sonde__observe_add_asked(&hook->setup, "empty", NULL), SONDE_OK);
    refused(begin_step(hook, &diag), SONDE_EINVAL, &diag,
            "empty: the collection includes nothing (expected a selector or a module to "
            "include, or a built-in name)");
    include(hook, "empty", "fc2.weight");
    assert_int_equal(begin_step(hook, &diag), SONDE_ENOTFOUND);
    assert_non_null(strstr(diag.expected, "fc1.weight"));
    assert_false(hook->open);
    /* configuration has ended all the same: the schedules stood */
    assert_int_equal(sonde__observe_save(&hook->setup, NULL, -1, &config, &diag),
                     SONDE_ESTATE);
    assert_int_equal(sonde__observe_reduce(&hook->setup, NULL, &none, &diag),
                     SONDE_ESTATE);
    assert_int_equal(sonde__observe_add_asked(&hook->setup, "more", &diag), SONDE_ESTATE);
    assert_int_equal(sonde__observe_include(&hook->setup, "weights", "*", &diag),
                     SONDE_ESTATE);
    assert_int_equal(sonde__observe_exclude(&hook->setup, "weights", "*", &diag),
                     SONDE_ESTATE);
    assert_int_equal(
        sonde__observe_add_module(&hook->setup, "weights", "fc1", true, true, &diag),
        SONDE_ESTATE);
    assert_int_equal(sonde__observe_remove_collection(&hook->setup, "weights", &diag),
                     SONDE_ESTATE);
    assert_int_equal(close_loop(hook), SONDE_OK);

    hook = hook_of(NULL);
    (void)declare(hook, "relu_output_0", 3);
    assert_int_equal(sonde__observe_add_asked(&hook->setup, "mine", NULL), SONDE_OK);
    assert_int_equal(
        sonde__observe_add_module(&hook->setup, "mine", "rleu", false, true, NULL),
        SONDE_OK);
    assert_int_equal(begin_step(hook, &diag), SONDE_ENOTFOUND);
    assert_string_equal(diag.found, "unknown module 'rleu'");
    assert_int_equal(close_loop(hook), SONDE_OK);

    hook = hook_of(SONDE_OPTIONS(
        sonde_hook, .record = SONDE_OPTIONS(sonde_recorder, .path = REFUSED)));
    assert_int_equal(begin_step(hook, &diag), SONDE_EEXIST);
    assert_int_equal(close_loop(hook), SONDE_OK);
    assert_int_equal(sonde_hook_close(NULL, SONDE_RUN_FAILED, NULL, NULL), SONDE_OK);
}

/* A run that is never opened: there is no folder, and no recorder. */
static void test_never_opened(void **state)
{
    char folder[] = "/tmp/sonde-never-XXXXXX", path[64];
    const sonde_recorder_options record = {.size = sizeof record, .path = path};
    sonde_hook *hook = NULL;

    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/run", folder);
    assert_int_equal(
        sonde_hook_create(SONDE_OPTIONS(sonde_hook, .record = &record), &hook, NULL),
        SONDE_OK);
    path[0] = '!'; /* the hook has a copy */
    assert_memory_equal(sonde_hook_path(hook), folder, strlen(folder));
    assert_null(sonde__hook_recorder(hook));
    assert_int_equal(sonde_hook_scalar(hook, "lr", 1.0, NULL), SONDE_OK);
    assert_int_equal(sonde_hook_close(hook, SONDE_RUN_FINISHED, NULL, NULL), SONDE_OK);
    assert_int_equal(rmdir(folder), 0); /* it is empty */
}

/* The path of a run in a store is the folder from which its files are sent. */
static void test_path_in_a_store(void **state)
{
    char cache[] = "/tmp/sonde-store-XXXXXX";
    const sonde_recorder_options record = {.size = sizeof record,
                                           .path = "s3://bucket/prefix/run"};
    sonde_hook *hook = NULL;
    const char *path = NULL;

    (void)state;
    assert_non_null(mkdtemp(cache));
    (void)setenv("SONDE_CACHE", cache, 1);
    assert_int_equal(
        sonde_hook_create(SONDE_OPTIONS(sonde_hook, .record = &record), &hook, NULL),
        SONDE_OK);
    path = sonde_hook_path(hook);
    assert_non_null(path);
    assert_memory_equal(path, cache, strlen(cache));
    assert_string_equal(strrchr(path, '/'), "/run");
    assert_int_equal(sonde_hook_close(hook, SONDE_RUN_FINISHED, NULL, NULL), SONDE_OK);
    assert_int_equal(rmdir(cache), 0); /* it is empty */
    (void)unsetenv("SONDE_CACHE");
}

/* --- memory ----------------------------------------------------------------------- */

static sonde_err make_and_step(void)
{
    static const int64_t steps[] = {1, 2};
    sonde_save_config config = sonde_save_config_unset();
    const sonde_tensor_info info = {
        .name = "w.weight", .dtype = SONDE_F32, .same_as = SONDE_NO_TENSOR};
    sonde_hook *hook = NULL;
    sonde_watch *watch = NULL;
    uint32_t id = 0;
    sonde_err err = sonde_hook_create(
        SONDE_OPTIONS(sonde_hook, .dry_run = true, .save_all = true, .include = "w*"),
        &hook, NULL);

    config.save_steps = steps;
    config.save_step_count = 2;
    config.when_nan = "w*";
    if (err == SONDE_OK) {
        err = sonde__observe_save(&hook->setup, "all", -1, &config, NULL);
    }
    if (err == SONDE_OK) {
        err = sonde__observe_reduce(&hook->setup, NULL,
                                    &(sonde_reduction_config){.histogram = true}, NULL);
    }
    if (err == SONDE_OK) {
        err = sonde__observe_add_module(&hook->setup, "all", "w", true, true, NULL);
        err = err == SONDE_OK ? sonde__observe_exclude(&hook->setup, "all", "re:^x", NULL)
                              : err;
    }
    if (err == SONDE_OK) {
        err = sonde_watch_create(SONDE_OPTIONS(sonde_watch, .hook = hook), &watch, NULL);
    }
    if (err == SONDE_OK) {
        err = sonde_watch_add(watch, &info, &id, NULL);
    }
    if (err == SONDE_OK) {
        err = sonde_hook_scalar(hook, "lr", 1.0, NULL);
    }
    if (err == SONDE_OK) {
        err = sonde_watch_begin_step(watch, SONDE_MODE_TRAIN, NULL);
        /* the module has no tensors: that is an error of another kind, and the end */
        err = err == SONDE_ENOTFOUND ? SONDE_OK : err;
    }
    if (watch == NULL) {
        (void)sonde_hook_close(hook, SONDE_RUN_FINISHED, NULL, NULL);
    }
    (void)sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, NULL);
    return err;
}

static void test_memory(void **state)
{
    (void)state;
    for (size_t n = 0;; n++) {
        sonde_err err = SONDE_OK;

        alloc_failure_begin(n);
        err = make_and_step();
        assert_int_equal(alloc_failure_end(), 0);
        if (err == SONDE_OK) {
            assert_true(n > 20);
            break;
        }
        assert_int_equal(err, SONDE_ENOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_warnings, journal_reset),
        cmocka_unit_test_setup(test_late_warnings, journal_reset),
        cmocka_unit_test_setup(test_refusals, journal_reset),
        cmocka_unit_test_setup(test_first_step_refusals, journal_reset),
        cmocka_unit_test(test_never_opened),
        cmocka_unit_test(test_path_in_a_store),
        cmocka_unit_test_setup(test_memory, journal_reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

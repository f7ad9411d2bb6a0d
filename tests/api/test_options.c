/*
 * test_options.c - option structs of other sizes than this library's: those of an older
 * and of a newer header, and sizes that no header has.
 */
#include "cmocka_all.h"
#include "base/options.h"

#include <sonde/actions.h>
#include <sonde/anchor.h>
#include <sonde/export_run.h>
#include <sonde/hook.h>
#include <sonde/nn/dataset.h>
#include <sonde/nn/evaluator.h>
#include <sonde/nn/loader.h>
#include <sonde/nn/model.h>
#include <sonde/nn/session.h>
#include <sonde/nn/trainer.h>
#include <sonde/outfeed.h>
#include <sonde/print.h>
#include <sonde/recorder.h>
#include <sonde/plot.h>
#include <sonde/trial.h>
#include <sonde/watch.h>

#include <stdio.h>
#include <string.h>

/* A struct as a newer header could have it. */
typedef union larger {
    size_t size;
    sonde_watch_options watch;
    sonde_recorder_options recorder;
    sonde_print_options print;
    unsigned char bytes[512];
} larger;

static sonde_diag diag;

/* --- sizes ------------------------------------------------------------------------ */

static void check_size(size_t size, sonde_err wanted)
{
    larger options = {.size = size};
    sonde_watch *watch = NULL;

    memset(&diag, 0, sizeof diag);
    assert_int_equal(sonde_watch_create(&options.watch, &watch, &diag), wanted);
    if (wanted == SONDE_OK) {
        assert_int_equal(sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, NULL),
                         SONDE_OK);
        return;
    }
    assert_null(watch);
    assert_string_equal(diag.where, "sonde_watch_options");
}

static void a_size_that_no_header_has_is_refused(void **state)
{
    char line[SONDE_DIAG_LINE], wanted[SONDE_DIAG_LINE];

    (void)state;
    check_size(0, SONDE_EINVAL);
    (void)snprintf(
        wanted, sizeof wanted,
        "sonde_watch_options: size is 0 (expected sizeof(sonde_watch_options), "
        "%zu)",
        sizeof(sonde_watch_options));
    assert_string_equal(sonde_diag_line(&diag, line, sizeof line), wanted);
    check_size(sizeof(size_t), SONDE_EINVAL);
    check_size(sizeof(sonde_watch_options) - 1, SONDE_EINVAL);
    check_size(5000, SONDE_EINVAL);
    check_size(SIZE_MAX, SONDE_EINVAL);
    check_size(SIZE_MAX - 7, SONDE_EINVAL);
}

static void older_and_newer_headers_are_accepted(void **state)
{
    (void)state;
    check_size(sizeof(size_t) + sizeof(void *), SONDE_OK);
    check_size(sizeof(sonde_watch_options), SONDE_OK);
    check_size(sizeof(larger), SONDE_OK);
}

/* Bytes after an older struct are another's; those of a newer one must be 0. */
static void bytes_beyond_a_struct(void **state)
{
    larger options;
    sonde_watch *watch = NULL;

    (void)state;
    memset(&options, 0xff, sizeof options);
    memset(&options, 0, 2 * sizeof(size_t));
    options.size = 2 * sizeof(size_t);
    assert_int_equal(sonde_watch_create(&options.watch, &watch, NULL), SONDE_OK);
    assert_int_equal(sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, NULL), SONDE_OK);
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.bytes[sizeof(sonde_watch_options)] = 1;
    assert_int_equal(sonde_watch_create(&options.watch, &watch, &diag),
                     SONDE_EUNSUPPORTED);
    assert_string_equal(diag.where, "sonde_watch_options");
    assert_non_null(strstr(diag.found, "does not know"));
}

/* A hook's options hold those of its recorder. */
static void options_within_options(void **state)
{
    larger record = {.size = 2 * sizeof(size_t)};
    const sonde_hook_options options = {
        .size = sizeof options, .record = &record.recorder, .dry_run = true};
    sonde_hook *hook = NULL;

    (void)state;
    record.recorder.path = "run";
    assert_int_equal(sonde_hook_create(&options, &hook, NULL), SONDE_OK);
    assert_int_equal(sonde_hook_close(hook, SONDE_RUN_FINISHED, NULL, NULL), SONDE_OK);
    record.size = 0;
    assert_int_equal(sonde_hook_create(&options, &hook, &diag), SONDE_EINVAL);
    assert_string_equal(diag.where, "sonde_recorder_options");
}

/* --- defaults other than 0 -------------------------------------------------------- */

static void defaults_fill_the_caller_s_size(void **state)
{
    const size_t small = offsetof(sonde_nn_options, replicas);
    sonde_nn_options options;

    (void)state;
    memset(&options, 0xff, sizeof options);
    sonde_nn_options_fill(&options, small);
    assert_int_equal(options.size, small);
    assert_int_equal(options.device_iterations, 1);
    assert_int_equal(options.replicas, -1);
    sonde_nn_options_init(NULL);
    assert_int_equal(sonde_print_options_default().digits, 4);
    assert_int_equal(sonde_export_options_default().worker, -1);
}

/* --- every struct ----------------------------------------------------------------- */

#define EVERY(X)                                                                         \
    X(sonde_actions_options)                                                             \
    X(sonde_anchor_options)                                                              \
    X(sonde_export_options)                                                              \
    X(sonde_hook_options)                                                                \
    X(sonde_nn_conv2d_options)                                                           \
    X(sonde_nn_session_options)                                                          \
    X(sonde_nn_dataset_options)                                                          \
    X(sonde_nn_evaluator_options)                                                        \
    X(sonde_nn_fetch_options)                                                            \
    X(sonde_nn_group_norm_options)                                                       \
    X(sonde_nn_linear_options)                                                           \
    X(sonde_nn_loader_options)                                                           \
    X(sonde_nn_options)                                                                  \
    X(sonde_nn_pool2d_options)                                                           \
    X(sonde_nn_synth_options)                                                            \
    X(sonde_nn_trainer_options)                                                          \
    X(sonde_outfeed_options)                                                             \
    X(sonde_print_options)                                                               \
    X(sonde_recorder_options)                                                            \
    X(sonde_trial_cursor_options)                                                        \
    X(sonde_trial_options)                                                               \
    X(sonde_watch_options)

/* A struct that does not begin with its size does not compile; one that is larger than
 * what sonde__given_options takes fails. */
static void every_struct_begins_with_its_size(void **state)
{
    (void)state;
#define CHECK(type)                                                                      \
    {                                                                                    \
        const type given = {.size = sizeof given};                                       \
        type taken;                                                                      \
                                                                                         \
        assert_int_equal(offsetof(type, size), 0);                                       \
        assert_int_equal(                                                                \
            sonde__given_options(&taken, sizeof taken, &given, #type, NULL), SONDE_OK);  \
    }
    EVERY(CHECK)
#undef CHECK
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_size_that_no_header_has_is_refused),
        cmocka_unit_test(older_and_newer_headers_are_accepted),
        cmocka_unit_test(bytes_beyond_a_struct),
        cmocka_unit_test(options_within_options),
        cmocka_unit_test(defaults_fill_the_caller_s_size),
        cmocka_unit_test(every_struct_begins_with_its_size),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

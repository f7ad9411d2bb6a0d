/*
 * test_hostile.c - options, descriptions and names that cannot be: each is refused where
 * it is given, with a word on what is wrong.
 */
#include "cmocka_all.h"
#include "record/record_sink.h"

#include <sonde/actions.h>
#include <sonde/anchor.h>
#include <sonde/export_run.h>
#include <sonde/hook.h>
#include <sonde/nn/dataset.h>
#include <sonde/nn/loader.h>
#include <sonde/nn/session.h>
#include <sonde/outfeed.h>
#include <sonde/print.h>
#include <sonde/recorder.h>
#include <sonde/trial.h>
#include <sonde/watch.h>

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sonde_diag diag;

/* Evaluates the call, and checks that it fails and says why. */
#define REFUSED(call)                                                                    \
    do {                                                                                 \
        memset(&diag, 0, sizeof diag);                                                   \
        if ((call) == SONDE_OK) {                                                        \
            fail_msg("%s: accepted", #call);                                             \
        }                                                                                \
        if (diag.found[0] == '\0') {                                                     \
            fail_msg("%s: refused without a word", #call);                               \
        }                                                                                \
    } while (0)

/* --- tensors ---------------------------------------------------------------------- */

static const sonde_tensor_info good_info = {
    .name = "w", .dtype = SONDE_F32, .rank = 1, .shape = {4}, .same_as = SONDE_NO_TENSOR};

static void tensors(void **state)
{
    enum { BAD = 12 };
    const int64_t half = INT64_MAX / 2;
    sonde_tensor_info bad[BAD], alias = good_info;
    sonde_catalogue *catalogue = NULL;
    sonde_watch *watch = NULL;
    uint32_t id = 7;

    (void)state;
    for (size_t i = 0; i < BAD; i++) {
        bad[i] = good_info;
    }
    bad[0].name = NULL;
    bad[1].name = "";
    bad[2].dtype = (sonde_dtype)SONDE_DTYPE_COUNT;
    bad[3].dtype = (sonde_dtype)-1;
    bad[4].rank = -1;
    bad[5].rank = 12;
    bad[6].shape[0] = -4;
    bad[7].shape[0] = INT64_MAX;
    bad[8].rank = 2;
    bad[8].shape[0] = bad[8].shape[1] = half;
    bad[9].rank = 3;
    bad[9].shape[0] = 0;
    bad[9].shape[1] = bad[9].shape[2] = half;
    bad[10].role = (sonde_role)99;
    bad[11].pass = (sonde_pass)-1;
    assert_int_equal(sonde_catalogue_create(&catalogue, NULL), SONDE_OK);
    assert_int_equal(sonde_watch_create(NULL, &watch, NULL), SONDE_OK);
    for (size_t i = 0; i < BAD; i++) {
        REFUSED(sonde_catalogue_declare(catalogue, &bad[i], &id, &diag));
        REFUSED(sonde_watch_add(watch, &bad[i], &id, &diag));
    }
    alias.name = "alias";
    alias.same_as = 3;
    REFUSED(sonde_catalogue_declare(catalogue, &alias, &id, &diag));
    assert_int_equal(id, 7);
    assert_int_equal(sonde_catalogue_declare(catalogue, &good_info, &id, &diag),
                     SONDE_OK);
    REFUSED(sonde_catalogue_declare(catalogue, &good_info, &id, &diag));
    alias.same_as = 0;
    alias.shape[0] = 5;
    REFUSED(sonde_catalogue_declare(catalogue, &alias, &id, &diag));
    assert_null(sonde_catalogue_info(catalogue, 1));
    assert_int_equal(sonde_watch_add(watch, &good_info, &id, &diag), SONDE_OK);
    REFUSED(sonde_watch_add(watch, &good_info, &id, &diag));
    REFUSED(sonde_watch_add_alias(watch, 9, "b", &diag));
    REFUSED(sonde_watch_scalar(watch, "", 1.0, &diag));
    REFUSED(sonde_watch_begin_step(watch, (sonde_mode)4, &diag));
    assert_int_equal(sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, NULL), SONDE_OK);
    sonde_catalogue_destroy(catalogue);
}

/* Values that no array holds give what an empty one gives, or an error. */
static void views(void **state)
{
    const int64_t half = INT64_MAX / 2, one[1] = {4};
    float data[4] = {1, 2, 3, 4};
    const sonde_view good = sonde_view_of(SONDE_F32, 1, one, data);
    sonde_view bad[] = {good, good, good, good, good, good, good};
    sonde_reduction reduction;
    sonde_text text = {0};
    const sonde_print_options options = sonde_print_options_default();

    (void)state;
    bad[0].data = NULL;
    bad[1].dtype = (sonde_dtype)SONDE_DTYPE_COUNT;
    bad[2].rank = 12;
    bad[3].rank = -1;
    bad[4].shape[0] = -4;
    bad[5].shape[0] = INT64_MAX;
    bad[6].rank = 2;
    bad[6].shape[0] = half;
    bad[6].shape[1] = half;
    assert_int_equal(sonde_reduction_parse("median", &reduction, NULL), SONDE_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        sonde_sketch *sketch = test_calloc(1, sizeof *sketch);
        sonde_histogram *histogram = test_calloc(1, sizeof *histogram);
        sonde_vitals vitals;
        sonde_reduced reduced;

        sonde_vitals_of(&bad[i], &vitals);
        assert_int_equal(vitals.count, 0);
        sonde_sketch_init(sketch);
        sonde_sketch_add(sketch, &bad[i]);
        assert_int_equal(sketch->count, 0);
        REFUSED(sonde_histogram_log2(&bad[i], 1, 10, histogram, &diag));
        REFUSED(sonde_reduce(&reduction, &bad[i], &reduced, &diag));
        REFUSED(sonde_view_copy(&bad[i], &bad[i], &diag));
        assert_int_equal(sonde_format_tensor(&bad[i], &options, 0, &text), SONDE_EINVAL);
        test_free(histogram);
        test_free(sketch);
    }
    assert_int_equal(sonde_view_count(&bad[2]), 0);
    assert_null(sonde_view_at(&good, (int64_t[]){4}));
    assert_true(isnan(sonde_element_get((sonde_dtype)99, data)));
    sonde_element_set((sonde_dtype)99, data, 0.0);
    assert_true(data[0] == 1.0F);
    sonde_text_fini(&text);
}

/* --- observing -------------------------------------------------------------------- */

static void options_of_observing(void **state)
{
    sonde_watch *watch = NULL;
    sonde_hook *hook = NULL;
    sonde_actions *actions = NULL;
    sonde_outfeed *queue = NULL;
    sonde_anchors *anchors = NULL;
    sonde_anchor_options anchor = {
        .size = sizeof anchor, .training = true, .mode = SONDE_ANCHOR_DEFAULT};

    (void)state;
#define WATCH(...)                                                                       \
    REFUSED(sonde_watch_create(SONDE_OPTIONS(sonde_watch, __VA_ARGS__), &watch, &diag))
    WATCH(.rules_every = -1);
    WATCH(.rules_raw_every = -1);
    WATCH(.micro_batches = -1);
    WATCH(.replicas = -1);
#define HOOK(...)                                                                        \
    REFUSED(sonde_hook_create(SONDE_OPTIONS(sonde_hook, __VA_ARGS__), &hook, &diag))
    HOOK(.dry_run = false);
    HOOK(.dry_run = true, .vitals_every = -1);
    HOOK(.dry_run = true, .include = "");
#define ACTIONS(...)                                                                     \
    REFUSED(sonde_actions_create(SONDE_OPTIONS(sonde_actions, __VA_ARGS__), &actions,    \
                                 &diag))
    ACTIONS(.command_seconds = NAN);
    ACTIONS(.command_seconds = -1.0);
    ACTIONS(.webhook_seconds = NAN);
    ACTIONS(.backoff_seconds = -1.0);
    ACTIONS(.webhook_tries = -1);
#define OUTFEED(...)                                                                     \
    REFUSED(                                                                             \
        sonde_outfeed_create(SONDE_OPTIONS(sonde_outfeed, __VA_ARGS__), &queue, &diag))
    OUTFEED(.rows = 0);
    OUTFEED(.rows = -1);
    OUTFEED(.rows = 1, .when_full = (sonde_outfeed_full)99);
    OUTFEED(.rows = 1, .per = (sonde_outfeed_per)-1);
    OUTFEED(.rows = 1, .filter_count = 2);
    OUTFEED(.rows = 1, .filters = (const char *[]){NULL}, .filter_count = 1);
    OUTFEED(.rows = 1, .when = &(sonde_schedule){.every = -1});
    anchor.mode = (sonde_anchor_mode)99;
    REFUSED(sonde_anchors_create(&anchor, &anchors, &diag));
    anchor.mode = SONDE_ANCHOR_EVERYN;
    anchor.period = 0;
    REFUSED(sonde_anchors_create(&anchor, &anchors, &diag));
    anchor = (sonde_anchor_options){
        .size = sizeof anchor, .training = true, .mode = SONDE_ANCHOR_DEFAULT};
    assert_int_equal(sonde_anchors_create(&anchor, &anchors, &diag), SONDE_OK);
    REFUSED(sonde_anchors_add(anchors, "", "w", SONDE_ANCHOR_ALL, 1, &diag));
    REFUSED(sonde_anchors_add(anchors, "a", "w", (sonde_anchor_mode)99, 1, &diag));
    REFUSED(sonde_anchors_add(anchors, "a", "w", SONDE_ANCHOR_EVERYN, -1, &diag));
    sonde_anchors_destroy(anchors);
}

static void schedules_and_taps(void **state)
{
    const sonde_schedule bad[] = {{.every = -1},
                                  {.every = 1, .start = -1},
                                  {.every = 1, .start = 5, .end = 5},
                                  {.step_count = 2},
                                  {.steps = (int64_t[]){3, 2}, .step_count = 2},
                                  {.steps = (int64_t[]){-1}, .step_count = 1}};
    sonde_sink sink = {0};
    sonde_tap tap = {.how = SONDE_HOW_RAW, .where = &sink};
    sonde_catalogue *catalogue = NULL;
    sonde_observer *observer = NULL;
    sonde_selector *all = NULL;
    sonde_rules *rules = NULL;

    (void)state;
    assert_int_equal(sonde_catalogue_create(&catalogue, NULL), SONDE_OK);
    assert_int_equal(sonde_observer_create(catalogue, &observer, NULL), SONDE_OK);
    assert_int_equal(sonde_selector_create("*", &all, NULL), SONDE_OK);
    assert_int_equal(sonde_rules_create(&rules, NULL), SONDE_OK);
    tap.what = all;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        REFUSED(sonde_schedule_check(&bad[i], &diag));
        tap.when[0] = bad[i];
        REFUSED(sonde_observer_add(observer, &tap, NULL, &diag));
    }
    tap.when[0] = sonde_schedule_every(1);
    REFUSED(sonde_observer_add(observer, &tap, NULL, &diag)); /* no put */
    tap.where = NULL;
    REFUSED(sonde_observer_add(observer, &tap, NULL, &diag));
    tap.where = &sink;
    tap.how = 0;
    REFUSED(sonde_observer_add(observer, &tap, NULL, &diag));
    tap.how = 99;
    REFUSED(sonde_observer_add(observer, &tap, NULL, &diag));
    REFUSED(sonde_rules_attach(rules, catalogue, observer, -1, 1, &diag));
    REFUSED(sonde_rules_attach(rules, catalogue, observer, 1, -1, &diag));
    REFUSED(sonde_observer_bind(observer, &(sonde_call_shape){0, 1, 1}, &diag));
    sonde_rules_destroy(rules);
    sonde_selector_destroy(all);
    sonde_observer_destroy(observer);
    sonde_catalogue_destroy(catalogue);
}

/* --- runs ------------------------------------------------------------------------- */

static void options_of_runs(void **state)
{
    char folder[] = "/tmp/hostileXXXXXX", path[64], command[80];
    sonde_catalogue *catalogue = NULL;
    sonde_recorder *recorder = NULL;
    sonde_trial *trial = NULL;
    sonde_trial_cursor *cursor = NULL;
    sonde_export_options options = sonde_export_options_default();

    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/run", folder);
    assert_int_equal(sonde_catalogue_create(&catalogue, NULL), SONDE_OK);
#define RECORDER(...)                                                                    \
    REFUSED(sonde__recorder_create(SONDE_OPTIONS(sonde_recorder, __VA_ARGS__),           \
                                   catalogue, &recorder, &diag))
    RECORDER(.rank = 0);
    RECORDER(.path = path, .rank = -1);
    RECORDER(.path = path, .wait_seconds = NAN);
    RECORDER(.path = path, .wait_seconds = -1.0);
    RECORDER(.path = path, .segment_seconds = NAN);
    RECORDER(.path = path, .when_full = (sonde_when_full)-1);
    RECORDER(.path = path, .resume = "any", .resume_mode = (sonde_mode)99);
    RECORDER(.path = path, .ring_bytes = SIZE_MAX);
    assert_int_equal(sonde__recorder_create(SONDE_OPTIONS(sonde_recorder, .path = path),
                                            catalogue, &recorder, NULL),
                     SONDE_OK);
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, NULL, NULL),
                     SONDE_OK);
#define TRIAL(...)                                                                       \
    REFUSED(                                                                             \
        sonde_trial_open(path, SONDE_OPTIONS(sonde_trial, __VA_ARGS__), &trial, &diag))
    TRIAL(.begin = -1);
    TRIAL(.end = -1);
    TRIAL(.begin = 5, .end = 5);
    assert_int_equal(sonde_trial_open(path, NULL, &trial, NULL), SONDE_OK);
#define CURSOR(...)                                                                      \
    REFUSED(sonde_trial_cursor_create(                                                   \
        trial, SONDE_OPTIONS(sonde_trial_cursor, __VA_ARGS__), &cursor, &diag))
    CURSOR(.mode = (sonde_mode)99);
    CURSOR(.begin = -1);
    CURSOR(.begin = 5, .end = 3);
    CURSOR(.how = 99);
    CURSOR(.ids = (uint32_t[]){77}, .id_count = 1);
#define EXPORT(field, value)                                                             \
    options = sonde_export_options_default();                                            \
    options.field = (value);                                                             \
    REFUSED(                                                                             \
        sonde_trial_export(trial, SONDE_EXPORT_CSV, "none.csv", &options, NULL, &diag))
    EXPORT(mode, (sonde_mode)99);
    EXPORT(begin, -1);
    EXPORT(end, -1);
    EXPORT(elements, -1);
    EXPORT(stat_count, 3);
    sonde_trial_close(trial);
    sonde_catalogue_destroy(catalogue);
    (void)snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* --- networks --------------------------------------------------------------------- */

static void options_of_networks(void **state)
{
    const int64_t shape[3] = {4, 2, 2}, count[1] = {4};
    float data[16] = {0};
    int64_t labels[4] = {0};
    const sonde_view all = sonde_view_of(SONDE_F32, 3, shape, data);
    const sonde_view view = sonde_view_of(SONDE_I64, 1, count, labels);
    const sonde_nn_transform transform = (sonde_nn_transform){.kind = SONDE_NN_TO_FLOAT};
    sonde_view none = all;
    sonde_nn_dataset *set = NULL;
    sonde_nn_loader *loader = NULL;

    (void)state;
    none.data = NULL;
    REFUSED(sonde_nn_dataset_open(
        NULL, SONDE_OPTIONS(sonde_nn_dataset, .data = &none, .labels = &view), &set,
        &diag));
    none.rank = 12;
    REFUSED(sonde_nn_dataset_open(
        NULL, SONDE_OPTIONS(sonde_nn_dataset, .data = &none, .labels = &view), &set,
        &diag));
#define SET(...)                                                                         \
    REFUSED(sonde_nn_dataset_open(                                                       \
        NULL,                                                                            \
        SONDE_OPTIONS(sonde_nn_dataset, .data = &all, .labels = &view, __VA_ARGS__),     \
        &set, &diag))
    SET(.classes = -1);
    SET(.class_names = (const char *[]){"a"});
    SET(.classes = 1, .class_names = (const char *[]){NULL});
    assert_int_equal(sonde_nn_dataset_open(
                         NULL,
                         SONDE_OPTIONS(sonde_nn_dataset, .data = &all, .labels = &view),
                         &set, NULL),
                     SONDE_OK);
#define LOADER(...)                                                                      \
    REFUSED(sonde_nn_loader_create(set, SONDE_OPTIONS(sonde_nn_loader, __VA_ARGS__),     \
                                   &loader, &diag))
    LOADER(.batch = 0);
    LOADER(.batch = -1);
    LOADER(.batch = 1, .workers = -1);
    LOADER(.batch = 1, .prefetch = -1);
    LOADER(.batch = 1, .rank = 1);
    LOADER(.batch = 1, .world = -1);
    LOADER(.batch = 1, .transform_count = 1);
    LOADER(.batch = 1, .transforms = &transform, .transform_count = 999);
    REFUSED(sonde_nn_synth("x", SONDE_OPTIONS(sonde_nn_synth, .train = -1), &diag));
    sonde_nn_dataset_destroy(set);
}

static void options_of_sessions(void **state)
{
    sonde_nn_model *model = NULL;
    sonde_nn_session *session = NULL;

    (void)state;
    assert_int_equal(sonde_nn_model_create(&model, NULL), SONDE_OK);
    assert_int_equal(sonde_nn_session_create(model, NULL, NULL, &session, &diag),
                     SONDE_OK);
    REFUSED(sonde_nn_session_anchor(session, "a", "w", (sonde_anchor_mode)99, 1, &diag));
    REFUSED(sonde_nn_session_set(
        session, SONDE_OPTIONS(sonde_nn_session, .mode = (sonde_mode)99), &diag));
    sonde_nn_session_destroy(session);
    sonde_nn_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors),
        cmocka_unit_test(views),
        cmocka_unit_test(options_of_observing),
        cmocka_unit_test(schedules_and_taps),
        cmocka_unit_test(options_of_runs),
        cmocka_unit_test(options_of_networks),
        cmocka_unit_test(options_of_sessions),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

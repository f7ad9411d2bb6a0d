/*
 * test_recorded.c - runs by the recorder itself: followed while it writes, compressed, by
 * several workers, killed, and resumed.
 */
#include "trial/run_folder.h"

#include "base/macros.h"
#include "base/random.h"
#include "record/record_sink.h"

#include <sonde/error.h>
#include <sonde/recorder.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <sys/wait.h>

static sonde_catalogue *known_catalogue(void)
{
    static const sonde_role roles[KNOWN_TENSORS] = {SONDE_ROLE_WEIGHT, SONDE_ROLE_BIAS,
                                                    SONDE_ROLE_LOSS};
    sonde_catalogue *catalogue = NULL;

    assert_int_equal(sonde_catalogue_create(&catalogue, NULL), SONDE_OK);
    for (int t = 0; t < KNOWN_TENSORS; t++) {
        const sonde_tensor_info info = {.name = known_names[t],
                                        .role = roles[t],
                                        .dtype = SONDE_F32,
                                        .rank = t == 2 ? 0 : 2,
                                        .shape = {t == 2 ? 0 : 2, t == 2 ? 0 : 3},
                                        .same_as = SONDE_NO_TENSOR};
        uint32_t id = 0;

        assert_int_equal(sonde_catalogue_declare(catalogue, &info, &id, NULL), SONDE_OK);
    }
    return catalogue;
}

static sonde_recorder *recorder_of(const sonde_recorder_options *options,
                                   const sonde_catalogue *catalogue)
{
    sonde_recorder *recorder = NULL;
    sonde_diag diag = {0};
    char line[SONDE_DIAG_LINE];

    if (sonde__recorder_create(options, catalogue, &recorder, &diag) != SONDE_OK) {
        fail_msg("%s", sonde_diag_line(&diag, line, sizeof line));
    }
    return recorder;
}

/* What known_step writes, through the recorder. */
static void record_step(sonde_recorder *recorder, int64_t s)
{
    static sonde_sketch sketch;
    const sonde_coordinate at = known_at(s);

    for (int t = 0; t < KNOWN_TENSORS; t++) {
        float data[KNOWN_COUNT];
        const sonde_view view = known_value(t, s, 0, data);
        sonde_vitals vitals;

        sonde_vitals_of(&view, &vitals);
        sonde__recorder_put_vitals(recorder, (uint32_t)t, &at, &vitals);
        if (t == 0) {
            sonde_sketch_init(&sketch);
            sonde_sketch_add(&sketch, &view);
            sonde__recorder_put_sketch(recorder, (uint32_t)t, &at, &sketch);
        }
        sonde__recorder_put(recorder, (uint32_t)t, &at, &view);
    }
    sonde__recorder_end_step(recorder, &at);
}

/* Everything known of steps first ... end - 1 of a worker. */
static void check_steps(sonde_trial *trial, int64_t first, int64_t end, int worker)
{
    for (int64_t s = first; s < end; s++) {
        for (int t = 0; t < KNOWN_TENSORS; t++) {
            sonde_trial_at at = trial_at(SONDE_MODE_GLOBAL, s);
            float data[KNOWN_COUNT];
            const sonde_view view = known_value(t, s, 0, data);
            sonde_vitals wanted, found;

            at.worker = worker;
            assert_known(trial, t, s, worker);
            assert_int_equal(sonde_trial_has(trial, trial_id(trial, known_names[t]), &at),
                             SONDE_HOW_RAW | SONDE_HOW_VITALS |
                                 (t == 0 ? SONDE_HOW_SKETCH : 0));
            sonde_vitals_of(&view, &wanted);
            assert_int_equal(sonde_trial_vitals(trial, trial_id(trial, known_names[t]),
                                                &at, &found, NULL),
                             SONDE_OK);
            assert_memory_equal(&found, &wanted, sizeof found);
        }
    }
}

static void check_verified(uint64_t records, bool resumed)
{
    sonde_verify_report report = {0};

    assert_int_equal(sonde_trial_verify(test_run, &report, NULL, NULL, NULL), SONDE_OK);
    assert_int_equal(report.damaged, 0);
    assert_int_equal(report.records, records);
    assert_int_equal(report.resumed, resumed);
}

static void a_run_is_followed(void **state)
{
    sonde_catalogue *catalogue = known_catalogue();
    const sonde_recorder_options options = {.size = sizeof options,
                                            .path = test_run,
                                            .segment_bytes = 16384,
                                            .program = "test",
                                            .model = "net"};
    sonde_recorder *recorder = recorder_of(&options, catalogue);
    sonde_trial *trial = trial_opened(test_run);
    sonde_run_info info;

    (void)state;
    for (int64_t s = 0; s < 600; s++) {
        record_step(recorder, s);
        if (s % 37 == 0) {
            assert_int_equal(
                sonde_trial_wait_for_steps(trial, &s, 1, SONDE_MODE_GLOBAL, 60, NULL),
                SONDE_OK);
            check_steps(trial, SONDE_MAX(s - 3, (int64_t)0), s + 1, 0);
        }
    }
    sonde_trial_describe(trial, &info);
    assert_int_equal(info.status, SONDE_RUN_RUNNING);
    assert_string_equal(info.program, "test");
    assert_int_equal(
        sonde__recorder_close(recorder, SONDE_RUN_STOPPED_BY_RULE, "why", NULL),
        SONDE_OK);
    (void)trial_refreshed(trial);
    sonde_trial_describe(trial, &info);
    assert_int_equal(info.status, SONDE_RUN_ENDED);
    assert_string_equal(info.end_reason, "rule");
    assert_string_equal(info.end_text, "why");
    assert_int_equal(info.last_step, 599);
    assert_int_equal(info.records, 1800);
    assert_int_equal(info.rows, 1800);
    assert_int_equal(info.sketches, 600);
    assert_int_equal(info.lost, 0);
    check_steps(trial, 0, 600, -1);
    assert_null(sonde_trial_damage(trial, 0));
    sonde_trial_close(trial);
    check_verified(1800, false);
    sonde_catalogue_destroy(catalogue);
}

/* A compressed value lives until the next one is asked for: through a refresh, and
 * questions about steps. */
static void check_borrowed(sonde_trial *trial)
{
    const sonde_trial_at at = trial_at(SONDE_MODE_GLOBAL, 1);
    sonde_view packed;
    size_t bytes = 0, count = 0;
    int64_t *steps = NULL;
    char *copy = NULL;

    assert_int_equal(sonde_trial_value(trial, 0, &at, &packed, NULL), SONDE_OK);
    assert_false(sonde_trial_is_mapped(trial, &packed));
    bytes = (size_t)sonde_view_count(&packed) * sizeof(float);
    copy = malloc(bytes);
    assert_non_null(copy);
    memcpy(copy, packed.data, bytes);
    (void)trial_refreshed(trial);
    (void)sonde_trial_steps(trial, SONDE_MODE_TRAIN, true, &count);
    assert_int_equal(
        sonde_trial_tensor_steps(trial, 0, SONDE_MODE_GLOBAL, 0, &steps, &count, NULL),
        SONDE_OK);
    sonde_release(steps);
    (void)sonde_trial_has(trial, 0, &at);
    assert_memory_equal(packed.data, copy, bytes);
    free(copy);
}

static void a_compressed_run_is_read(void **state)
{
    enum { COUNT = 20000 };
    static float data[COUNT];
    const int64_t shape = COUNT;
    const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, data);
    sonde_catalogue *catalogue = known_catalogue();
    const sonde_recorder_options options = {
        .size = sizeof options, .path = test_run, .compress = true};
    sonde_recorder *recorder = recorder_of(&options, catalogue);
    sonde_trial *trial = NULL;
    sonde_view found;

    (void)state;
    for (int64_t s = 0; s < 20; s++) {
        const sonde_coordinate at = known_at(s);

        for (uint64_t i = 0; i < COUNT; i++) { /* dense, and then mostly zeros */
            const float x = sonde__normal((uint64_t)s, 0, i);

            data[i] = s % 2 == 0 ? x : x > 1.0F ? x : 0.0F;
        }
        sonde__recorder_put(recorder, 0, &at, &view);
        sonde__recorder_end_step(recorder, &at);
    }
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, NULL, NULL),
                     SONDE_OK);
    trial = trial_opened(test_run);
    for (int64_t s = 0; s < 20; s++) {
        const sonde_trial_at at = trial_at(SONDE_MODE_GLOBAL, s);

        assert_int_equal(sonde_trial_value(trial, 0, &at, &found, NULL), SONDE_OK);
        assert_true(s % 2 == 0 || !sonde_trial_is_mapped(trial, &found));
        for (uint64_t i = 0; i < COUNT; i++) {
            const float x = sonde__normal((uint64_t)s, 0, i);

            assert_true(((const float *)found.data)[i] == (s % 2 == 0 ? x
                                                           : x > 1.0F ? x
                                                                      : 0.0F));
        }
    }
    check_borrowed(trial);
    sonde_trial_close(trial);
    check_verified(20, false);
    sonde_catalogue_destroy(catalogue);
}

static void workers_write_side_by_side(void **state)
{
    sonde_catalogue *catalogue = known_catalogue();
    sonde_recorder *recorders[3];
    sonde_trial *trial = NULL;
    sonde_run_info info;

    (void)state;
    for (int rank = 0; rank < 3; rank++) {
        const sonde_recorder_options options = {.size = sizeof options,
                                                .path = test_run,
                                                .rank = rank,
                                                .world = 3,
                                                .segment_bytes = 8192};

        recorders[rank] = recorder_of(&options, catalogue);
    }
    trial = trial_opened(test_run);
    for (int64_t s = 0; s < 100; s++) {
        for (int rank = 0; rank < 3; rank++) {
            if (s < 90 || rank > 0) {
                record_step(recorders[rank], s);
            }
        }
    }
    for (int rank = 0; rank < 3; rank++) {
        assert_true(sonde__recorder_drain(recorders[rank], 30));
    }
    (void)trial_refreshed(trial);
    sonde_trial_describe(trial, &info);
    assert_int_equal(info.last_step, 89);
    for (int rank = 2; rank >= 0; rank--) {
        assert_int_equal(
            sonde__recorder_close(recorders[rank], SONDE_RUN_FINISHED, NULL, NULL),
            SONDE_OK);
    }
    (void)trial_refreshed(trial);
    sonde_trial_describe(trial, &info);
    assert_int_equal(info.status, SONDE_RUN_ENDED);
    assert_int_equal(info.last_step, 99);
    check_steps(trial, 0, 90, 0);
    check_steps(trial, 0, 100, 2);
    check_steps(trial, 0, 100, -1);
    sonde_trial_close(trial);
    check_verified(3 * (90 + 100 + 100), false);
    sonde_catalogue_destroy(catalogue);
}

/* Killed in the middle of its work; then another process resumes from step 30. */
static void a_killed_run_is_gone_on_with(void **state)
{
    sonde_catalogue *catalogue = known_catalogue();
    sonde_recorder_options options = {
        .size = sizeof options, .path = test_run, .segment_bytes = 16384};
    sonde_recorder *recorder = NULL;
    sonde_trial *trial = NULL;
    sonde_run_info info;
    sonde_verify_report report = {0};
    char id[64];
    int64_t there = 0, until = 50;
    const pid_t child = fork();

    (void)state;
    if (child == 0) {
        recorder = recorder_of(&options, catalogue);
        for (int64_t s = 0;; s++) {
            record_step(recorder, s);
        }
    }
    while (sonde_trial_open(test_run, NULL, &trial, NULL) != SONDE_OK) {
        (void)usleep(1000);
    }
    assert_int_equal(
        sonde_trial_wait_for_steps(trial, &until, 1, SONDE_MODE_GLOBAL, 60, NULL),
        SONDE_OK);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    (void)trial_refreshed(trial);
    sonde_trial_describe(trial, &info);
    there = info.last_step;
    assert_true(there >= 50);
    (void)snprintf(id, sizeof id, "%s", info.id);
    check_steps(trial, 0, until + 1, -1); /* later ones may be cut off */
    options.resume = id;
    options.resume_mode = SONDE_MODE_GLOBAL;
    options.resume_step = 30;
    recorder = recorder_of(&options, catalogue);
    for (int64_t s = 30; s < there + 20; s++) {
        record_step(recorder, s);
    }
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, NULL, NULL),
                     SONDE_OK);
    (void)trial_refreshed(trial); /* the one that was open all the time */
    for (int again = 0; again < 2; again++) {
        sonde_trial_describe(trial, &info);
        assert_true(info.resumed);
        assert_int_equal(info.status, SONDE_RUN_ENDED);
        assert_int_equal(info.last_step, there + 19);
        assert_true(info.superseded_steps >= (uint64_t)(until - 29));
        check_steps(trial, 0, there + 20, -1);
        sonde_trial_close(trial);
        trial = trial_opened(test_run);
        assert_null(sonde_trial_damage(trial, 0));
    }
    sonde_trial_describe(trial, &info);
    sonde_trial_close(trial);
    assert_int_equal(sonde_trial_verify(test_run, &report, NULL, NULL, NULL), SONDE_OK);
    assert_true(report.resumed && report.damaged == 0);
    assert_int_equal(report.superseded, info.superseded);
    assert_int_equal(report.records + report.rows + report.sketches,
                     info.records + info.rows + info.sketches + info.superseded);
    sonde_catalogue_destroy(catalogue);
}

#define ON_ITS_OWN(test) cmocka_unit_test_setup_teardown(test, folder_make, folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_ITS_OWN(a_run_is_followed),
        ON_ITS_OWN(a_compressed_run_is_read),
        ON_ITS_OWN(workers_write_side_by_side),
        ON_ITS_OWN(a_killed_run_is_gone_on_with),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

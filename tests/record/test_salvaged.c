/*
 * test_salvaged.c - runs whose writer died, or was not closed: a trial shows every step that
 * had ended, and verify says what is missing.
 */
#include "record/run_dir.h"
#include "record/record_sink.h"

#include <sonde/recorder.h>
#include <sonde/trial.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FLOATS = 500, STEPS = 40 };

typedef enum death { DEATH_KILLED, DEATH_EXITS, DEATH_FAULT, DEATHS } death;

/* Never returns. large: values that no ring of this size takes. */
static void record_and_die(const char *path, death how, bool large)
{
    static float x[FLOATS * 100];
    sonde_catalogue *catalogue = run_catalogue(1, FLOATS);
    sonde_recorder *recorder = NULL;
    const int64_t shape = large ? FLOATS * 100 : FLOATS;
    const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, x);
    const sonde_recorder_options options = {.size = sizeof options,
                                            .path = path,
                                            .ring_bytes = large ? 1 : 0,
                                            .when_full = SONDE_WHEN_FULL_WAIT};

    (void)signal(SIGSEGV, SIG_DFL);
    assert_int_equal(sonde__recorder_create(&options, catalogue, &recorder, NULL),
                     SONDE_OK);
    for (int64_t step = 0; step < STEPS; step++) {
        const sonde_coordinate at = {
            .mode = SONDE_MODE_TRAIN, .global_step = step, .mode_step = step};

        x[0] = (float)step;
        sonde__recorder_put(recorder, 0, &at, &view);
        sonde__recorder_end_step(recorder, &at);
    }
    if (how == DEATH_EXITS) {
        exit(3);
    }
    (void)kill(getpid(), how == DEATH_KILLED ? SIGKILL : SIGSEGV);
}

static void every_ended_step_is_there(void **state)
{
    char path[RUN_PATH];

    (void)state;
    for (int i = 0; i < 2 * DEATHS; i++) {
        const death how = (death)(i % DEATHS);
        sonde_verify_report report = {0};
        sonde_trial *trial = NULL;
        sonde_run_info info;
        size_t count = 0;
        int status = 0;
        const pid_t child = (run_path(path, "salvaged"), fork());

        assert_true(child >= 0);
        if (child == 0) {
            record_and_die(path, how, i >= DEATHS);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(WIFEXITED(status), how == DEATH_EXITS);
        assert_int_equal(sonde_trial_open(path, NULL, &trial, NULL), SONDE_OK);
        sonde_trial_describe(trial, &info);
        assert_int_equal(info.status,
                         how == DEATH_EXITS ? SONDE_RUN_ENDED : SONDE_RUN_CRASHED);
        assert_string_equal(info.end_reason, how == DEATH_EXITS ? "interrupted" : "");
        assert_int_equal(info.last_step, STEPS - 1);
        assert_int_equal(info.records, STEPS);
        assert_int_equal(info.lost, 0);
        (void)sonde_trial_steps(trial, SONDE_MODE_TRAIN, false, &count);
        assert_int_equal(count, STEPS);
        for (int64_t step = 0; step < STEPS; step++) {
            const sonde_trial_at at = {
                .mode = SONDE_MODE_TRAIN, .step = step, .worker = -1};
            sonde_view view;

            assert_int_equal(sonde_trial_value(trial, 0, &at, &view, NULL), SONDE_OK);
            assert_true(*(const float *)view.data == (float)step);
        }
        sonde_trial_close(trial);
        assert_int_equal(sonde_trial_verify(path, &report, NULL, NULL, NULL), SONDE_OK);
        assert_int_equal(report.damaged + report.torn + report.lost, 0);
        assert_int_equal(report.records, STEPS);
        run_remove(path);
    }
}

static void make_file(const char *run, const char *name, const void *bytes, size_t size)
{
    char path[RUN_PATH];
    FILE *file = fopen(run_file(path, run, name), "wb");

    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* Closes a run whose folder was moved: its ring stays. */
static void close_without_folder(const char *path, const char *moved)
{
    sonde_catalogue *catalogue = run_catalogue(1, FLOATS);
    sonde_recorder *recorder = NULL;

    assert_int_equal(sonde__recorder_create(SONDE_OPTIONS(sonde_recorder, .path = path,
                                                          .wait_seconds = 0.001),
                                            catalogue, &recorder, NULL),
                     SONDE_OK);
    assert_int_equal(rename(path, moved), 0);
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL),
                     SONDE_EIO);
    sonde_catalogue_destroy(catalogue);
}

/* A trial lists the files before it recovers the ring, and recovery removes a segment
 * whose writer died before its first value. */
static void an_empty_segment_is_no_damage(void **state)
{
    static const char index[] = "w0000/seg-00000000.jsonl",
                      data[] = "w0000/seg-00000000.part";
    char head[4096], path[RUN_PATH], moved[RUN_PATH];
    const uint64_t length = sizeof head - sizeof length;

    (void)state;
    memset(head, ' ', sizeof head);
    memcpy(head, &length, sizeof length);
    for (int with_index = 0; with_index < 2; with_index++) {
        sonde_verify_report report = {0};

        int status = 0;
        pid_t child = 0;

        (void)run_path(path, "empty");
        (void)run_path(moved, "moved");
        child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            close_without_folder(path, moved);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        make_file(moved, data, head, sizeof head);
        if (with_index != 0) {
            make_file(moved, index, "", 0);
        }
        assert_int_equal(sonde_trial_verify(moved, &report, NULL, NULL, NULL), SONDE_OK);
        assert_true(report.ended);
        assert_int_equal(report.damaged + report.torn + report.lost, 0);
        assert_false(run_has(moved, data) || run_has(moved, index));
        run_remove(moved);
    }
}

/* A child that is forked may use its copy of the recorder: nothing of it is recorded. */
static void a_forked_child_records_nothing(void **state)
{
    char path[RUN_PATH];
    static float x[FLOATS];
    const int64_t shape = FLOATS;
    const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, x);
    const sonde_coordinate at = {.mode = SONDE_MODE_TRAIN};
    sonde_catalogue *catalogue = run_catalogue(1, FLOATS);
    sonde_recorder *recorder = NULL;
    sonde_verify_report report = {0};
    pid_t child = 0;
    int status = 0;

    (void)state;
    (void)run_path(path, "forked");
    assert_int_equal(sonde__recorder_create(SONDE_OPTIONS(sonde_recorder, .path = path),
                                            catalogue, &recorder, NULL),
                     SONDE_OK);
    child = fork();
    if (child == 0) {
        sonde__recorder_put(recorder, 0, &at, &view);
        sonde__recorder_end_step(recorder, &at);
        (void)sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    sonde__recorder_put(recorder, 0, &at, &view);
    sonde__recorder_end_step(recorder, &at);
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL),
                     SONDE_OK);
    assert_int_equal(sonde_trial_verify(path, &report, NULL, NULL, NULL), SONDE_OK);
    assert_int_equal(report.records, 1);
    assert_int_equal(report.damaged + report.lost, 0);
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

/* --- losses that no file counts ------------------------------------------------------- */

/* Replaces the first text in a file by another one of the same length, checksum and all. */
static void change(const char *run, const char *name, const char *text, const char *by)
{
    char path[RUN_PATH], bytes[4096] = {0};
    char *found = NULL;
    FILE *file = NULL;
    size_t size = 0;

    (void)snprintf(path, sizeof path, "%s/%s", run, name);
    file = fopen(path, "r+b");
    assert_non_null(file);
    size = fread(bytes, 1, sizeof bytes - 1, file);
    found = strstr(bytes, text);
    assert_non_null(found);
    memcpy(found, by, strlen(by));
    memcpy(bytes + size - SONDE__SEAL - 1, "}\n", 2);
    assert_int_equal(sonde__record_seal(bytes, size - SONDE__SEAL + 1), size);
    rewind(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static void verify_compares_the_counts(void **state)
{
    char path[RUN_PATH];
    sonde_verify_report report = {0};
    int status = 0;
    const pid_t child = (run_path(path, "counts"), fork());

    (void)state;
    if (child == 0) {
        record_and_die(path, DEATH_EXITS, false);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(sonde_trial_verify(path, &report, NULL, NULL, NULL), SONDE_OK);
    assert_int_equal(report.damaged, 0);
    change(path, "w0000/state.json", "\"put\":40", "\"put\":99");
    assert_int_equal(sonde_trial_verify(path, &report, NULL, NULL, NULL), SONDE_OK);
    assert_int_equal(report.damaged, 1);
    change(path, "w0000/state.json", "\"put\":99", "\"put\":40");
    change(path, "w0000/state.json", "\"ended\",", "\"still\",");
    assert_int_equal(sonde_trial_verify(path, &report, NULL, NULL, NULL), SONDE_OK);
    assert_int_equal(report.damaged, 1);
    run_remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_ended_step_is_there),
        cmocka_unit_test(an_empty_segment_is_no_damage),
        cmocka_unit_test(a_forked_child_records_nothing),
        cmocka_unit_test(verify_compares_the_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

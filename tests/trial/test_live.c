/*
 * test_live.c - a run that grows while it is read: lines that are not whole yet, rows,
 * rotation under an open trial, writers that end, die and resume.
 */
#include "trial/run_folder.h"

#include "base/macros.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>

#include <sonde/error.h>

static void describe(sonde_trial *trial, sonde_run_info *info)
{
    sonde_trial_describe(trial, info);
}

static void only_what_is_whole_counts(void **state)
{
    sonde_trial *trial = NULL;
    sonde_run_info info;
    sonde_trial_at at = trial_at(SONDE_MODE_TRAIN, 0);
    sonde_view view;
    float data[KNOWN_COUNT];
    writer w;

    (void)state;
    writer_begin(test_run, 1);
    trial = trial_opened(test_run); /* before any worker is there */
    assert_false(trial_refreshed(trial));
    writer_open(&w, test_run, 0);
    writer_alive(&w);
    assert_true(trial_refreshed(trial));
    assert_false(trial_refreshed(trial));
    known_declare(&w);
    view = known_value(0, 0, 0, data);
    const sonde__record_index_line line =
        writer_describe(&w, writer_at(SONDE_MODE_TRAIN, 0, 0), 0, &view);
    char text[SONDE__INDEX_ROOM];
    const size_t size = sonde__record_index_print(&line, text);

    assert_int_equal(fwrite(data, sizeof data, 1, w.segment), 1);
    assert_int_equal(fflush(w.segment), 0);
    for (size_t i = 0; i < size; i++) { /* byte by byte: there only with the newline */
        sonde_trial_describe(trial, &info);
        assert_int_equal(info.records, 0);
        assert_int_equal(fwrite(text + i, 1, 1, w.index), 1);
        assert_int_equal(fflush(w.index), 0);
        (void)trial_refreshed(trial);
    }
    describe(trial, &info);
    assert_int_equal(info.records, 1);
    assert_int_equal(sonde_trial_value(trial, 0, &at, &view, NULL), SONDE_OK);
    assert_int_equal(info.status, SONDE_RUN_RUNNING);
    assert_null(sonde_trial_damage(trial, 0));
    sonde_trial_close(trial);
    writer_drop(&w);
}

static void rows_and_sketches_count_when_whole(void **state)
{
    static sonde_sketch sketch;
    sonde_trial *trial = NULL;
    sonde_run_info info;
    sonde__record_stats_row row = {.tensor = 1, .count = 4, .mean = 2.5};
    unsigned char record[SONDE__SKETCH_FIXED + 8];
    writer w;

    (void)state;
    writer_begin(test_run, 1);
    writer_open(&w, test_run, 0);
    writer_alive(&w);
    known_declare(&w);
    trial = trial_opened(test_run);
    row.check = sonde__record_stats_check(&row);
    for (size_t i = 0; i < sizeof row; i += 7) {
        const size_t n = SONDE_MIN(sizeof row - i, (size_t)7);

        assert_int_equal(fwrite((const char *)&row + i, n, 1, w.stats), 1);
        assert_int_equal(fflush(w.stats), 0);
        (void)trial_refreshed(trial);
        describe(trial, &info);
        assert_int_equal(info.rows, i + n == sizeof row);
    }
    sonde_sketch_init(&sketch);
    sketch.count = sketch.positive[600] = 5;
    assert_int_equal(sonde__record_sketch_size(&sketch), sizeof record);
    memset(record, 0, sizeof record);
    sonde__record_sketch_encode(&sketch, (void *)record);
    ((sonde__record_sketch_record *)(void *)record)->check =
        sonde__record_sketch_check((const void *)record);
    for (size_t i = 0; i < sizeof record; i++) {
        assert_int_equal(fwrite(record + i, 1, 1, w.sketch), 1);
        assert_int_equal(fflush(w.sketch), 0);
        (void)trial_refreshed(trial);
        describe(trial, &info);
        assert_int_equal(info.sketches, i + 1 == sizeof record);
    }
    assert_null(sonde_trial_damage(trial, 0));
    sonde_trial_close(trial);
    writer_drop(&w);
}

/* Values stay readable while their part becomes a closed file, before and after refresh.
 */
static void a_part_may_be_renamed_while_it_is_open(void **state)
{
    sonde_trial *trial = NULL;
    sonde_trial_at at = trial_at(SONDE_MODE_GLOBAL, 0);
    sonde_view first;
    sonde_vitals *series = NULL;
    int64_t *steps = NULL;
    size_t count = 0;
    float x = 0.0F;
    writer w;

    (void)state;
    writer_begin(test_run, 1);
    writer_open(&w, test_run, 0);
    writer_alive(&w);
    known_declare(&w);
    known_step(&w, known_at(0));
    trial = trial_opened(test_run);
    assert_int_equal(sonde_trial_value(trial, 0, &at, &first, NULL), SONDE_OK);
    for (int64_t s = 1; s < 200; s++) {
        known_step(&w, known_at(s));
        if (s % 3 == 0) {
            writer_rotate(&w);
        }
        if (s % 5 == 0) {
            assert_true(trial_refreshed(trial));
        }
        for (int64_t back = s / 5 * 5; back >= 0; back -= 17) {
            assert_known(trial, 1, back, 0);
        }
    }
    assert_true(trial_refreshed(trial));
    assert_int_equal(sonde_trial_vitals_series(trial, 0, SONDE_MODE_GLOBAL, 0, 0, 0,
                                               &steps, &series, &count, NULL),
                     SONDE_OK);
    assert_int_equal(count, 200);
    sonde_release(steps);
    sonde_release(series);
    memcpy(&x, first.data, sizeof x); /* borrowed since the beginning */
    assert_true(x == known_element(0, 0, 0, 0));
    assert_null(sonde_trial_damage(trial, 0));
    sonde_trial_close(trial);
    writer_drop(&w);
}

/* The part grows far beyond its mapping. */
static void a_part_may_grow(void **state)
{
    enum { COUNT = 4 << 20 };
    float *data = calloc(COUNT, sizeof *data);
    const int64_t shape = COUNT;
    sonde_trial *trial = NULL;
    sonde_view first, last;
    sonde_trial_at at = trial_at(SONDE_MODE_TRAIN, 0);
    writer w;

    (void)state;
    assert_non_null(data);
    writer_begin(test_run, 1);
    writer_open(&w, test_run, 0);
    writer_alive(&w);
    (void)writer_tensor(&w, "large", "other", SONDE_F32, 1, &shape, "all");
    for (int64_t s = 0; s < 10; s++) { /* 160 MiB in all */
        const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, data);

        data[COUNT - 1] = (float)s;
        writer_put(&w, writer_at(SONDE_MODE_TRAIN, s, s), 0, &view, SONDE__PACKED_NOT);
        if (s == 0) {
            trial = trial_opened(test_run);
            assert_int_equal(sonde_trial_value(trial, 0, &at, &first, NULL), SONDE_OK);
        }
    }
    assert_true(trial_refreshed(trial));
    at.step = 9;
    assert_int_equal(sonde_trial_value(trial, 0, &at, &last, NULL), SONDE_OK);
    assert_true(((const float *)first.data)[COUNT - 1] == 0.0F);
    assert_true(((const float *)last.data)[COUNT - 1] == 9.0F);
    sonde_trial_close(trial);
    writer_drop(&w);
    free(data);
}

/* --- who is still there ---------------------------------------------------------------- */

/* The id of a process that has ended. */
static long dead_pid(void)
{
    const pid_t child = fork();

    if (child == 0) {
        _exit(0);
    }
    assert_true(child > 0 && waitpid(child, NULL, 0) == child);
    return (long)child;
}

static void status_is_told_by_heartbeat_and_process(void **state)
{
    const struct {
        const char *status;
        bool here, alive;
        double ago;
        sonde_run_status expected;
    } cases[] = {
        {"running", true, true, 0, SONDE_RUN_RUNNING},
        {"running", true, true, 3600, SONDE_RUN_RUNNING}, /* stopped, but there */
        {"running", true, false, 0, SONDE_RUN_RUNNING},
        {"running", true, false, 20, SONDE_RUN_CRASHED},
        {"running", false, false, 5, SONDE_RUN_RUNNING},
        {"running", false, true, 20, SONDE_RUN_CRASHED}, /* a process of another host */
        {"ended", true, false, 3600, SONDE_RUN_ENDED},
    };
    char host[256] = "";
    const long dead = dead_pid();
    sonde_trial *trial = NULL;
    sonde_run_info info;
    writer w;

    (void)state;
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    writer_begin(test_run, 1);
    writer_open(&w, test_run, 0);
    writer_alive(&w);
    trial = trial_opened(test_run);
    for (size_t i = 0; i < SONDE_COUNT_OF(cases); i++) {
        writer_state(&w, cases[i].status, cases[i].alive ? (long)getpid() : dead,
                     cases[i].here ? host : "elsewhere", cases[i].ago, 0);
        (void)trial_refreshed(trial);
        describe(trial, &info);
        assert_int_equal(info.status, cases[i].expected);
    }
    writer_alive(&w); /* the run is resumed */
    assert_true(trial_refreshed(trial));
    describe(trial, &info);
    assert_int_equal(info.status, SONDE_RUN_RUNNING);
    writer_end(test_run, "interrupted", 3);
    assert_true(trial_refreshed(trial));
    describe(trial, &info);
    assert_int_equal(info.status, SONDE_RUN_ENDED);
    assert_string_equal(info.end_reason, "interrupted");
    sonde_trial_close(trial);
    writer_drop(&w);
}

/* After a crash a step without its row stays incomplete, and so it is over. */
static void a_crash_completes_no_step(void **state)
{
    sonde_trial *trial = NULL;
    sonde_run_info info;
    size_t count = 0;
    writer w;

    (void)state;
    writer_begin(test_run, 1);
    writer_open(&w, test_run, 0);
    writer_alive(&w);
    known_declare(&w);
    for (int64_t s = 0; s < 3; s++) {
        known_step(&w, known_at(s));
    }
    known_put(&w, known_at(3), 0, SONDE__PACKED_NOT);
    assert_true(fputs("{\"s\":3,\"m\":\"ev", w.index) >= 0 && fflush(w.index) == 0);
    trial = trial_opened(test_run);
    describe(trial, &info);
    assert_int_equal(info.last_step, 2);
    (void)sonde_trial_steps(trial, SONDE_MODE_GLOBAL, false, &count);
    assert_int_equal(count, 3);
    (void)sonde_trial_steps(trial, SONDE_MODE_GLOBAL, true, &count);
    assert_int_equal(count, 4);
    assert_int_equal(sonde_trial_has_passed_step(trial, 3, SONDE_MODE_GLOBAL),
                     SONDE_STEP_NOT_YET);
    assert_null(sonde_trial_damage(trial, 0));
    writer_state(&w, "running", 1, "elsewhere", 60, 0);
    assert_true(trial_refreshed(trial));
    describe(trial, &info);
    assert_int_equal(info.status, SONDE_RUN_CRASHED);
    assert_int_equal(info.last_step, 2);
    (void)sonde_trial_steps(trial, SONDE_MODE_GLOBAL, false, &count);
    assert_int_equal(count, 3);
    (void)sonde_trial_steps(trial, SONDE_MODE_GLOBAL, true, &count);
    assert_int_equal(count, 4);
    assert_int_equal(sonde_trial_has_passed_step(trial, 3, SONDE_MODE_GLOBAL),
                     SONDE_STEP_UNAVAILABLE);
    assert_int_equal(sonde_trial_wait_for_steps(trial, (const int64_t[]){3}, 1,
                                                SONDE_MODE_GLOBAL, 1.0, NULL),
                     SONDE_EEND);
    assert_int_equal(sonde_trial_has_passed_step(trial, 4, SONDE_MODE_GLOBAL),
                     SONDE_STEP_UNAVAILABLE);
    assert_damage(trial, "torn");
    sonde_trial_close(trial);
    writer_drop(&w);
}

/* A refresh reads the new end of files, and what it does not read cannot hurt it. */
static void a_refresh_reads_only_what_is_new(void **state)
{
    sonde_trial *trial = NULL;
    char path[WRITER_PATH];
    sonde_run_info info;
    FILE *file = NULL;
    writer w;

    (void)state;
    writer_begin(test_run, 1);
    writer_open(&w, test_run, 0);
    writer_alive(&w);
    known_declare(&w);
    known_step(&w, known_at(0));
    writer_rotate(&w);
    known_step(&w, known_at(1));
    trial = trial_opened(test_run);
    writer_path(&w, "seg-00000000.jsonl", path);
    file = writer_file(path, "r+"); /* the first line, long since read */
    assert_true(fputs("#######", file) >= 0 && fclose(file) == 0);
    known_step(&w, known_at(2));
    assert_true(trial_refreshed(trial));
    describe(trial, &info);
    assert_int_equal(info.records, 9);
    assert_null(sonde_trial_damage(trial, 0));
    assert_known(trial, 0, 0, -1);
    sonde_trial_close(trial);
    writer_drop(&w);
}

/* Receives a report of a damaged line, and lets the writer continue right then. */
typedef struct meanwhile {
    writer *writer;
    int told;
} meanwhile;

static void write_on(void *user, const char *text)
{
    meanwhile *test = user;

    (void)text;
    if (test->told++ == 0) {
        known_put(test->writer, writer_at(SONDE_MODE_TRAIN, 0, 0), 1, SONDE__PACKED_NOT);
    }
}

/* The segment grows after its length was looked at, and its index while that is read. */
static void both_files_may_grow_while_they_are_read(void **state)
{
    sonde_verify_report report;
    writer w;
    meanwhile test = {&w, 0};

    (void)state;
    writer_begin(test_run, 1);
    writer_open(&w, test_run, 0);
    writer_alive(&w);
    known_declare(&w);
    known_put(&w, writer_at(SONDE_MODE_TRAIN, 0, 0), 0, SONDE__PACKED_NOT);
    assert_true(fputs("no line\n", w.index) >= 0 && fflush(w.index) == 0);
    assert_int_equal(sonde_trial_verify(test_run, &report, write_on, &test, NULL),
                     SONDE_OK);
    assert_int_equal(report.records, 2);
    assert_int_equal(report.damaged, 1);
    assert_int_equal(test.told, 1);
    writer_drop(&w);
}

#define ON_ITS_OWN(test) cmocka_unit_test_setup_teardown(test, folder_make, folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_ITS_OWN(only_what_is_whole_counts),
        ON_ITS_OWN(rows_and_sketches_count_when_whole),
        ON_ITS_OWN(a_part_may_be_renamed_while_it_is_open),
        ON_ITS_OWN(a_part_may_grow),
        ON_ITS_OWN(status_is_told_by_heartbeat_and_process),
        ON_ITS_OWN(a_crash_completes_no_step),
        ON_ITS_OWN(a_refresh_reads_only_what_is_new),
        ON_ITS_OWN(both_files_may_grow_while_they_are_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

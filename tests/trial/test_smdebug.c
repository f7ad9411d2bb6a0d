/*
 * test_smdebug.c - directories of smdebug's: one that smdebug 1.0.34 itself wrote
 * (golden/runs/smdebug: two workers, steps 0, 1, 2 and 1000, of which 2 is evaluation,
 * nine tensors of as many dtypes, of which worker 1 has two), whole, growing and
 * damaged.
 */
#include "alloc_failure.h"
#include "trial/run_folder.h"

#include "base/macros.h"
#include "trial/smdebug.h"

#include <sonde/error.h>

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define GOLDEN SONDE_TEST_DIR "/golden/runs/smdebug"

static const char *in_run(const char *name)
{
    static char path[WRITER_PATH];

    (void)snprintf(path, sizeof path, "%s/%s", test_run, name);
    return path;
}

/* One file of the golden run, and the folders it needs, to the test's run. */
static void copy(const char *name)
{
    char from[WRITER_PATH], bytes[4096];
    FILE *in = NULL, *out = NULL;
    size_t count = 0;

    (void)snprintf(from, sizeof from, "%s/%s", GOLDEN, name);
    (void)mkdir(test_run, 0777);
    for (const char *slash = strchr(name, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        char folder[WRITER_PATH];

        (void)snprintf(folder, sizeof folder, "%s/%.*s", test_run, (int)(slash - name),
                       name);
        (void)mkdir(folder, 0777);
    }
    in = writer_file(from, "r");
    out = writer_file(in_run(name), "w");
    while ((count = fread(bytes, 1, sizeof bytes, in)) > 0) {
        assert_int_equal(fwrite(bytes, 1, count, out), count);
    }
    assert_true(fclose(in) == 0 && fclose(out) == 0);
}

static double now(void)
{
    struct timespec time = {0};

    (void)clock_gettime(CLOCK_REALTIME, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Gives all records of an event file a time: so many seconds ago. */
static void set_age(const char *name, double seconds)
{
    const double time = now() - seconds;
    FILE *file = writer_file(in_run(name), "r+");
    uint64_t length = 0;
    long place = 0;

    while (fseek(file, place, SEEK_SET) == 0 &&
           fread(&length, sizeof length, 1, file) == 1) {
        assert_int_equal(fseek(file, place + 13, SEEK_SET), 0); /* Event.wall_time */
        assert_int_equal(fwrite(&time, sizeof time, 1, file), 1);
        place += 12 + (long)length + 4;
    }
    assert_int_equal(fclose(file), 0);
}

/* Before its index, which makes it complete, the event file gets its age. */
static void copy_old_step(int64_t step, int worker, bool index, double seconds)
{
    char name[200];

    (void)snprintf(name, sizeof name, "events/%012lld/%012lld_worker_%d.tfevents",
                   (long long)step, (long long)step, worker);
    copy(name);
    set_age(name, seconds);
    if (index) {
        (void)snprintf(name, sizeof name, "index/%09lld/%012lld_worker_%d.json",
                       (long long)step / 1000, (long long)step, worker);
        copy(name);
    }
}

static void copy_step(int64_t step, int worker, bool index)
{
    copy_old_step(step, worker, index, 0.0);
}

static const int64_t golden_steps[] = {0, 1, 2, 1000};

static void copy_all(void)
{
    for (size_t i = 0; i < SONDE_COUNT_OF(golden_steps); i++) {
        for (int worker = 0; worker < 2; worker++) {
            copy_step(golden_steps[i], worker, true);
        }
    }
    copy("collections/000000000/worker_0_collections.json");
    copy("collections/000000000/worker_1_collections.json");
    copy("training_job_end.ts");
}

/* Element i of every golden tensor but bool: what numpy made of this. */
static void assert_golden(sonde_trial *trial, const char *name, int64_t step, int worker)
{
    sonde_trial_at at = trial_at(SONDE_MODE_GLOBAL, step);
    sonde_view view;
    sonde_diag diag = {0};

    at.worker = worker;
    if (sonde_trial_value(trial, trial_id(trial, name), &at, &view, &diag) != SONDE_OK) {
        char line[SONDE_DIAG_LINE];

        fail_msg("%s", sonde_diag_line(&diag, line, sizeof line));
    }
    for (int64_t i = 0; i < sonde_view_count(&view); i++) {
        const double exact = (double)i + 0.25 * (double)step + (worker == 1 ? 100 : 0);
        const double wanted = view.dtype == SONDE_BOOL           ? exact != 0
                              : sonde_dtype_is_float(view.dtype) ? exact
                                                                 : (double)(int64_t)exact;

        assert_true(
            sonde_element_get(view.dtype, (const unsigned char *)view.data +
                                              (size_t)i * sonde_dtype_size(view.dtype)) ==
            wanted);
    }
}

static void its_own_run_is_read(void **state)
{
    static const struct {
        const char *name;
        sonde_dtype dtype;
        sonde_role role;
    } tensors[] = {
        {"Net_fc1.weight", SONDE_F32, SONDE_ROLE_WEIGHT},
        {"gradient/Net_fc1.weight", SONDE_F64, SONDE_ROLE_GRADIENT},
        {"relu1_output_0", SONDE_F16, SONDE_ROLE_OUTPUT},
        {"labels", SONDE_I64, SONDE_ROLE_INPUT},
        {"mask", SONDE_BOOL, SONDE_ROLE_OTHER},
        {"bytes", SONDE_U8, SONDE_ROLE_OTHER},
        {"ints", SONDE_I32, SONDE_ROLE_OTHER},
        {"CrossEntropyLoss_output_0", SONDE_F32, SONDE_ROLE_LOSS},
    };
    sonde_trial *trial = trial_opened(GOLDEN);
    sonde_run_info info;
    const int64_t *steps = NULL;
    size_t count = 0;

    (void)state;
    sonde_trial_describe(trial, &info);
    assert_true(info.foreign);
    assert_string_equal(info.program, "smdebug");
    assert_int_equal(info.world, 2);
    assert_int_equal(info.workers, 2);
    assert_int_equal(info.status, SONDE_RUN_ENDED);
    assert_int_equal(info.records, 4 * (9 + 2));
    assert_int_equal(info.last_step, 1000);
    assert_string_equal(sonde_trial_worker_name(trial, 1), "worker_1");
    assert_null(sonde_trial_damage(trial, 0));
    for (size_t i = 0; i < SONDE_COUNT_OF(tensors); i++) {
        const sonde_tensor_info *tensor = sonde_catalogue_info(
            sonde_trial_catalogue(trial), trial_id(trial, tensors[i].name));

        assert_int_equal(tensor->dtype, tensors[i].dtype);
        assert_int_equal(tensor->role, tensors[i].role);
        for (size_t s = 0; s < SONDE_COUNT_OF(golden_steps); s++) {
            assert_golden(trial, tensors[i].name, golden_steps[s], 0);
        }
    }
    assert_golden(trial, "labels", 2, 1);
    steps = sonde_trial_steps(trial, SONDE_MODE_TRAIN, false, &count);
    assert_int_equal(count, 3);
    assert_int_equal(steps[2], 2); /* global step 1000 */
    (void)sonde_trial_steps(trial, SONDE_MODE_EVAL, false, &count);
    assert_int_equal(count, 1);
    assert_int_equal(sonde_trial_has_passed_step(trial, 500, SONDE_MODE_GLOBAL),
                     SONDE_STEP_UNAVAILABLE);
    sonde_trial_close(trial);
}

static void collections_are_names_and_patterns(void **state)
{
    sonde_trial *trial = trial_opened(GOLDEN);
    const uint32_t weight = trial_id(trial, "Net_fc1.weight");
    const uint32_t gradient = trial_id(trial, "gradient/Net_fc1.weight");

    (void)state;
    assert_true(sonde_trial_in_collection(trial, weight, "weights"));
    assert_false(sonde_trial_in_collection(trial, gradient, "weights"));
    assert_true(sonde_trial_in_collection(trial, gradient, "gradients"));
    assert_true(sonde_trial_in_collection(trial, trial_id(trial, "labels"), "custom"));
    assert_false(sonde_trial_in_collection(trial, weight, "custom"));
    sonde_trial_close(trial);
}

static void the_rest_of_a_trial_works_too(void **state)
{
    sonde_trial *trial = trial_opened(GOLDEN);
    const uint32_t id = trial_id(trial, "gradient/Net_fc1.weight");
    sonde_trial_at at = trial_at(SONDE_MODE_TRAIN, 1);
    sonde_trial_cursor *cursor = NULL;
    sonde_trial_record record;
    sonde_vitals vitals, *series = NULL;
    int64_t *steps = NULL, last = 0;
    size_t count = 0;
    int good = 0, unsupported = 0;
    sonde_verify_report report = {0};
    sonde_view view;
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(sonde_trial_vitals(trial, id, &at, &vitals, NULL), SONDE_OK);
    assert_true(vitals.mean == 2.75 && vitals.count == 6);
    assert_int_equal(sonde_trial_vitals_series(trial, id, SONDE_MODE_TRAIN, -1, 0, 0,
                                               &steps, &series, &count, NULL),
                     SONDE_OK);
    assert_int_equal(count, 3);
    assert_true(series[2].mean == 252.5);
    sonde_release(steps);
    sonde_release(series);
    assert_int_equal(
        sonde_trial_value(trial, trial_id(trial, "words"), &at, &view, &diag),
        SONDE_EUNSUPPORTED);
    assert_non_null(strstr(diag.found, "strings"));
    assert_int_equal(sonde_trial_cursor_create(trial, NULL, &cursor, NULL), SONDE_OK);
    for (;;) {
        const sonde_err err = sonde_trial_next(cursor, &record, &diag);

        if (err == SONDE_EEND) {
            break;
        }
        good += err == SONDE_OK;
        unsupported += err == SONDE_EUNSUPPORTED;
        assert_true(err != SONDE_OK || record.at.global_step >= last);
        last = err == SONDE_OK ? record.at.global_step : last;
    }
    assert_int_equal(good, 4 * 10);
    assert_int_equal(unsupported, 4);
    sonde_trial_cursor_destroy(cursor);
    sonde_trial_close(trial);
    assert_int_equal(sonde_trial_verify(GOLDEN, &report, NULL, NULL, NULL), SONDE_OK);
    assert_int_equal(report.records, 44);
    assert_int_equal(report.damaged, 0);
    assert_true(report.ended);
}

/* An index file makes its step; both workers' make it complete. */
static void it_is_followed(void **state)
{
    static const int64_t wanted[] = {1};
    sonde_trial *trial = NULL;
    sonde_run_info info;

    (void)state;
    copy("collections/000000000/worker_0_collections.json");
    trial = trial_opened(test_run);
    copy_step(0, 0, false);
    (void)trial_refreshed(trial);
    sonde_trial_describe(trial, &info);
    assert_int_equal(info.records, 0);
    assert_int_equal(info.world, 2);
    copy_step(0, 0, true);
    assert_true(trial_refreshed(trial));
    assert_false(trial_refreshed(trial));
    sonde_trial_describe(trial, &info);
    assert_int_equal(info.records, 9);
    assert_int_equal(info.last_step, -1);
    copy_step(1, 0, true);
    copy_step(0, 1, true);
    (void)trial_refreshed(trial);
    sonde_trial_describe(trial, &info);
    assert_int_equal(info.last_step, 0);
    assert_true(sonde_trial_in_collection(trial, trial_id(trial, "labels"), "custom"));
    assert_int_equal(sonde_trial_has_passed_step(trial, 1, SONDE_MODE_TRAIN),
                     SONDE_STEP_NOT_YET);
    copy_step(2, 0, true);
    copy_step(2, 1, true); /* worker 1 comes late with step 1 */
    copy_step(1000, 0, true);
    (void)trial_refreshed(trial);
    copy_step(1, 1, true);
    (void)trial_refreshed(trial);
    sonde_trial_describe(trial, &info);
    assert_int_equal(info.records, 4 * 9 + 3 * 2);
    assert_int_equal(info.status, SONDE_RUN_RUNNING);
    assert_int_equal(
        sonde_trial_wait_for_steps(trial, wanted, 1, SONDE_MODE_TRAIN, 0, NULL),
        SONDE_OK);
    assert_golden(trial, "Net_fc1.weight", 1, 1);
    copy("training_job_end.ts");
    copy_step(1000, 1, true);
    assert_true(trial_refreshed(trial));
    sonde_trial_describe(trial, &info);
    assert_int_equal(info.status, SONDE_RUN_ENDED);
    assert_int_equal(info.records, 44);
    assert_null(sonde_trial_damage(trial, 0));
    sonde_trial_close(trial);
}

/* Of a run without an end, of steps 0, 1 and 2 of a worker, `pause` seconds apart and the
 * last so many seconds ago. */
static sonde_run_info info_after(double seconds, double pause)
{
    sonde_trial *trial = NULL;
    sonde_run_info info;

    for (int step = 0; step < 3; step++) {
        copy_old_step(step, 0, true, seconds + pause * (2 - step));
    }
    trial = trial_opened(test_run);
    sonde_trial_describe(trial, &info);
    sonde_trial_close(trial);
    return info;
}

/* Nothing shows whether the writer of a run without an end lives but the time since its
 * last step, which may be long where steps are rare. */
static void a_silent_run_without_an_end_is_given_up(void **state)
{
    const double day = 86400.0;
    sonde_run_info info = info_after(3.0 * day, 1.0);

    (void)state;
    assert_int_equal(info.status, SONDE_RUN_CRASHED);
    assert_true(fabs(1e-9 * (double)info.last_time - now() + 3.0 * day) < 60.0);
    assert_int_equal(info_after(0.0, 1.0).status, SONDE_RUN_RUNNING);
    assert_int_equal(info_after(1000.0, 1.0).status, SONDE_RUN_RUNNING);
    assert_int_equal(info_after(1900.0, 1.0).status, SONDE_RUN_CRASHED); /* 1800 */
    assert_int_equal(info_after(1900.0, 120.0).status, SONDE_RUN_RUNNING);
    assert_int_equal(info_after(2500.0, 120.0).status, SONDE_RUN_CRASHED); /* 20 pauses */
    assert_int_equal(info_after(day, day / 3.0).status, SONDE_RUN_RUNNING);
    copy("training_job_end.ts");
    assert_int_equal(info_after(3.0 * day, 1.0).status, SONDE_RUN_ENDED);
}

/* --- damage ---------------------------------------------------------------------------- */

#define EVENTS_0 "events/000000000000/000000000000_worker_0.tfevents"
#define INDEX_0 "index/000000000/000000000000_worker_0.json"

/* An index file of a step at which nothing was saved. */
static void write_step(int64_t step)
{
    char name[200];
    FILE *file = NULL;

    (void)snprintf(name, sizeof name, "index/%09lld", (long long)step / 1000);
    (void)mkdir(in_run(name), 0777);
    (void)snprintf(name, sizeof name, "index/%09lld/%012lld_worker_0.json",
                   (long long)step / 1000, (long long)step);
    file = writer_file(in_run(name), "w");
    assert_true(fprintf(file, "{\"meta\": {\"mode\": \"GLOBAL\", \"mode_step\": %lld}}",
                        (long long)step) > 0 &&
                fclose(file) == 0);
}

/* Worker 1 never comes: once more than 1,000 steps wait, half of them are over. */
static void a_worker_that_never_comes_is_given_up(void **state)
{
    sonde_trial *trial = NULL;

    (void)state;
    copy("collections/000000000/worker_0_collections.json");
    (void)mkdir(in_run("index"), 0777);
    for (int64_t step = 0; step < 1000; step++) {
        write_step(step);
    }
    trial = trial_opened(test_run);
    assert_int_equal(sonde_trial_has_passed_step(trial, 0, SONDE_MODE_GLOBAL),
                     SONDE_STEP_NOT_YET);
    write_step(1000);
    assert_true(trial_refreshed(trial));
    assert_int_equal(sonde_trial_has_passed_step(trial, 499, SONDE_MODE_GLOBAL),
                     SONDE_STEP_UNAVAILABLE);
    assert_int_equal(sonde_trial_has_passed_step(trial, 500, SONDE_MODE_GLOBAL),
                     SONDE_STEP_NOT_YET);
    sonde_trial_close(trial);
}

static void overwrite(const char *name, long at, int byte)
{
    FILE *file = writer_file(in_run(name), "r+");

    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_true(fputc(byte, file) == byte && fclose(file) == 0);
}

/* Net_fc1.weight of step 0 is bytes 0 to 149 of its file. */
static void damaged_records_are_refused(void **state)
{
    static const struct {
        long at;
        int byte;
        const char *found;
    } cases[] = {
        {1, 9, "checksum of the record's length"},
        {9, 9, "checksum of the record's length"},
        {147, 9, "checksum after the record"},
        {12, 0xFF, "not a protobuf Event"},
    };

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(cases); i++) {
        sonde_trial *trial = NULL;
        sonde_trial_at at = trial_at(SONDE_MODE_GLOBAL, 0);
        sonde_verify_report report = {0};
        sonde_view view;
        sonde_diag diag = {0};

        copy_all();
        overwrite(EVENTS_0, cases[i].at, cases[i].byte);
        trial = trial_opened(test_run);
        at.worker = 0;
        assert_int_equal(sonde_trial_value(trial, trial_id(trial, "Net_fc1.weight"), &at,
                                           &view, &diag),
                         SONDE_EFORMAT);
        assert_non_null(strstr(diag.found, cases[i].found));
        assert_non_null(strstr(diag.where, "'Net_fc1.weight' at step 0"));
        assert_golden(trial, "labels", 0, 0);
        sonde_trial_close(trial);
        assert_int_equal(sonde_trial_verify(test_run, &report, NULL, NULL, NULL),
                         SONDE_OK);
        assert_int_equal(report.records, 43);
        assert_int_equal(report.damaged, 1);
    }
}

static void damaged_files_are_told_of(void **state)
{
    static const char *const texts[] = {
        "",
        "[]",
        "{\"tensor_payload\": [{\"tensorname\": 3}]}",
        "{\"meta\": {\"mode\": \"TRAIN\", \"mode_step\": 0, \"event_file_name\": "
        "\"../x\"}}",
        "{\"tensor_payload\": [{\"tensorname\": \"a\", \"start_idx\": -1, \"length\": "
        "2}]}",
    };
    sonde_trial *trial = NULL;
    sonde_verify_report report = {0};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(texts); i++) {
        copy_all();
        writer_text(test_run, INDEX_0, texts[i]);
        trial = trial_opened(test_run);
        assert_damage(trial, INDEX_0);
        assert_int_equal(count_damage(trial), 1);
        assert_golden(trial, "labels", 1, 0);
        sonde_trial_close(trial);
    }
    copy_all();
    writer_text(test_run, "collections/000000000/worker_0_collections.json", "{");
    trial = trial_opened(test_run);
    assert_damage(trial, "worker_0_collections.json");
    sonde_trial_close(trial);
    copy_all();
    assert_int_equal(truncate(in_run(EVENTS_0), 400), 0); /* one and a half of nine */
    assert_int_equal(unlink(in_run("events/000000000001/000000000001_worker_1.tfevents")),
                     0);
    assert_int_equal(sonde_trial_verify(test_run, &report, NULL, NULL, NULL), SONDE_OK);
    assert_int_equal(report.damaged, 7 + 2);
    assert_int_equal(report.records, 44 - 9);
}

static void opening_survives_every_failed_allocation(void **state)
{
    (void)state;
    for (size_t n = 0;; n++) {
        sonde_trial *trial = NULL;
        sonde_err err = SONDE_OK;

        alloc_failure_begin(n);
        err = sonde_trial_open(GOLDEN, NULL, &trial, NULL);
        sonde_trial_close(trial);
        assert_int_equal(alloc_failure_end(), 0);
        if (err == SONDE_OK) {
            assert_true(n > 50);
            break;
        }
        assert_int_equal(err, SONDE_ENOMEM);
    }
}

/* They are not taken for empty ones. */
static void folders_that_cannot_be_listed_are_an_error(void **state)
{
    static const char *const folders[] = {"collections", "index"};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(folders); i++) {
        char path[512], away[544];
        sonde_trial *trial = NULL;
        sonde_diag diag = {0};

        copy_all();
        (void)snprintf(path, sizeof path, "%s/%s", test_run, folders[i]);
        (void)snprintf(away, sizeof away, "%s-away", path);
        assert_int_equal(rename(path, away), 0);
        assert_int_equal(symlink(folders[i], path), 0); /* leads to itself */
        assert_int_equal(sonde_trial_open(test_run, NULL, &trial, &diag), SONDE_EIO);
        assert_non_null(strstr(diag.found, "cannot be listed"));
        assert_int_equal(unlink(path), 0);
        assert_int_equal(rename(away, path), 0);
    }
}

/* --- records ----------------------------------------------------------------------------- */

static void checksums_are_those_of_tfrecord(void **state)
{
    (void)state;
    assert_int_equal(sonde__smdebug_crc32c("123456789", 9), 0xE3069283U);
    assert_int_equal(sonde__smdebug_crc32c("", 0), 0);
    assert_int_equal(sonde__smdebug_masked_crc32c("0x12345678", 10), 0x062DC0B3U);
}

#define ON_ITS_OWN(test) cmocka_unit_test_setup_teardown(test, folder_make, folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_own_run_is_read),
        cmocka_unit_test(collections_are_names_and_patterns),
        cmocka_unit_test(the_rest_of_a_trial_works_too),
        ON_ITS_OWN(it_is_followed),
        ON_ITS_OWN(a_silent_run_without_an_end_is_given_up),
        ON_ITS_OWN(a_worker_that_never_comes_is_given_up),
        ON_ITS_OWN(damaged_records_are_refused),
        ON_ITS_OWN(damaged_files_are_told_of),
        ON_ITS_OWN(folders_that_cannot_be_listed_are_an_error),
        cmocka_unit_test(opening_survives_every_failed_allocation),
        cmocka_unit_test(checksums_are_those_of_tfrecord),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

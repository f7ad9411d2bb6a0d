/*
 * test_trial.c - a run that has ended, read back: what is said of it, its tensors, steps,
 * values, vital signs and sketches, in every dtype and packing.
 */
#include "alloc_failure.h"
#include "trial/run_folder.h"

#include <sonde/text.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>

#include <sonde/error.h>

/* A run of one worker with so many known steps, rotated every few. */
static void write_known(int64_t steps, int rotate)
{
    writer w;

    writer_begin(test_run, 1);
    writer_open(&w, test_run, 0);
    known_declare(&w);
    for (int64_t s = 0; s < steps; s++) {
        known_step(&w, known_at(s));
        if (rotate > 0 && s % rotate == rotate - 1) {
            writer_rotate(&w);
        }
    }
    writer_state(&w, "ended", (long)getpid(), "here", 0, 3);
    writer_close(&w);
    writer_end(test_run, "finished", steps - 1);
}

static void it_says_what_it_is(void **state)
{
    sonde_trial *trial = NULL;
    sonde_run_info info;
    const sonde_tensor_info *tensor = NULL;

    (void)state;
    write_known(20, 6);
    trial = trial_opened(test_run);
    sonde_trial_describe(trial, &info);
    assert_string_equal(info.path, test_run);
    assert_string_equal(info.id, "0123456789abcdef0123456789abcdef");
    assert_string_equal(info.program, "run_writer");
    assert_string_equal(info.model, "net");
    assert_string_equal(info.created, "2026-01-31T12:00:00.000000Z");
    assert_string_equal(info.end_reason, "finished");
    assert_string_equal(info.end_text, "done");
    assert_int_equal(info.status, SONDE_RUN_ENDED);
    assert_int_equal(info.world, 1);
    assert_int_equal(info.workers, 1);
    assert_int_equal(info.last_step, 19);
    assert_int_equal(info.records, 60);
    assert_int_equal(info.bytes, 20 * (24 + 24 + 4));
    assert_int_equal(info.rows, 60);
    assert_int_equal(info.sketches, 20);
    assert_int_equal(info.lost, 4); /* 3 ring_full and 1 io_error */
    assert_false(info.resumed || info.foreign);
    assert_true(info.seconds == 9.0); /* from run.json's time to that of end.json */
    assert_int_equal(info.first_time, writer_time(0));
    assert_int_equal(info.last_time, writer_time(19));
    assert_null(sonde_trial_damage(trial, 0));
    assert_int_equal(sonde_trial_worker(trial, 0), 0);
    assert_string_equal(sonde_trial_worker_name(trial, 0), "w0000");
    assert_int_equal(sonde_trial_worker(trial, 1), -1);
    assert_null(sonde_trial_worker_name(trial, 1));
    assert_int_equal(sonde_catalogue_count(sonde_trial_catalogue(trial)), 3);
    tensor =
        sonde_catalogue_info(sonde_trial_catalogue(trial), trial_id(trial, "fc1.bias"));
    assert_int_equal(tensor->role, SONDE_ROLE_BIAS);
    assert_int_equal(tensor->rank, 2);
    assert_int_equal(tensor->shape[1], 3);
    assert_true(sonde_trial_in_collection(trial, trial_id(trial, "fc1.bias"), "biases"));
    assert_false(
        sonde_trial_in_collection(trial, trial_id(trial, "fc1.bias"), "weights"));
    assert_false(sonde_trial_in_collection(trial, trial_id(trial, "fc1.bias"), "none"));
    assert_string_equal(sonde_trial_collection(trial, 0), "weights");
    assert_string_equal(sonde_trial_collection(trial, 2), "losses");
    assert_null(sonde_trial_collection(trial, 3));
    sonde_trial_close(trial);
}

static void steps_are_counted_by_mode(void **state)
{
    sonde_trial *trial = NULL;
    const int64_t *steps = NULL;
    int64_t *saved = NULL, global = 0, step = 0;
    sonde_mode mode = SONDE_MODE_GLOBAL;
    size_t count = 0;

    (void)state;
    write_known(20, 0);
    trial = trial_opened(test_run);
    steps = sonde_trial_steps(trial, SONDE_MODE_GLOBAL, false, &count);
    assert_int_equal(count, 20);
    assert_int_equal(steps[19], 19);
    steps = sonde_trial_steps(trial, SONDE_MODE_TRAIN, false, &count);
    assert_int_equal(count, 15);
    assert_int_equal(steps[14], 14);
    steps = sonde_trial_steps(trial, SONDE_MODE_EVAL, true, &count);
    assert_int_equal(count, 5);
    assert_int_equal(steps[4], 4);
    assert_non_null(sonde_trial_steps(trial, SONDE_MODE_PREDICT, false, &count));
    assert_int_equal(count, 0);
    assert_true(sonde_trial_mode_step(trial, 7, &mode, &step));
    assert_int_equal(mode, SONDE_MODE_EVAL);
    assert_int_equal(step, 1);
    assert_true(sonde_trial_global_step(trial, SONDE_MODE_TRAIN, 5, &global));
    assert_int_equal(global, 6);
    assert_false(sonde_trial_global_step(trial, SONDE_MODE_EVAL, 5, &global));
    assert_false(sonde_trial_mode_step(trial, 20, &mode, &step));
    assert_false(sonde_trial_mode_step(trial, INT64_MAX, &mode, &step));
    assert_int_equal(sonde_trial_tensor_steps(trial, trial_id(trial, "loss"),
                                              SONDE_MODE_EVAL, SONDE_HOW_RAW, &saved,
                                              &count, NULL),
                     SONDE_OK);
    assert_int_equal(count, 5);
    sonde_release(saved);
    assert_int_equal(sonde_trial_tensor_steps(trial, trial_id(trial, "loss"),
                                              SONDE_MODE_GLOBAL, SONDE_HOW_SKETCH, &saved,
                                              &count, NULL),
                     SONDE_OK);
    assert_int_equal(count, 0);
    sonde_release(saved);
    assert_int_equal(sonde_trial_tensor_steps(trial, trial_id(trial, "loss"),
                                              SONDE_MODE_TRAIN, 0, &saved, &count, NULL),
                     SONDE_OK);
    assert_int_equal(count, 15); /* each once, of vital signs and of values */
    assert_int_equal(saved[14], 14);
    sonde_release(saved);
    assert_int_equal(
        sonde_trial_tensor_steps(trial, 3, SONDE_MODE_GLOBAL, 0, &saved, &count, NULL),
        SONDE_ERANGE);
    sonde_trial_close(trial);
}

static void a_result_without_a_place_is_none(void **state)
{
    sonde_trial *trial = NULL;
    sonde_mode mode = SONDE_MODE_GLOBAL;
    int64_t step = -7;

    (void)state;
    write_known(4, 0);
    trial = trial_opened(test_run);
    assert_false(sonde_trial_mode_step(trial, 1, NULL, &step));
    assert_false(sonde_trial_mode_step(trial, 1, &mode, NULL));
    assert_false(sonde_trial_global_step(trial, SONDE_MODE_TRAIN, 1, NULL));
    assert_false(sonde_trial_step_time(trial, SONDE_MODE_TRAIN, 1, -1, NULL));
    assert_int_equal(mode, SONDE_MODE_GLOBAL);
    assert_int_equal(step, -7);
    sonde_trial_close(trial);
}

static void values_come_back(void **state)
{
    sonde_trial *trial = NULL;
    sonde_view views[2];
    sonde_trial_at at = trial_at(SONDE_MODE_EVAL, 2);
    float x[2];

    (void)state;
    write_known(40, 7);
    trial = trial_opened(test_run);
    for (int64_t s = 0; s < 40; s++) {
        for (int t = 0; t < KNOWN_TENSORS; t++) {
            assert_known(trial, t, s, -1);
            assert_known(trial, t, s, 0);
        }
    }
    /* A value lives on while others are asked for. */
    assert_int_equal(sonde_trial_value(trial, 0, &at, &views[0], NULL), SONDE_OK);
    at.step = 7;
    assert_int_equal(sonde_trial_value(trial, 0, &at, &views[1], NULL), SONDE_OK);
    assert_true(sonde_trial_is_mapped(trial, &views[0]));
    memcpy(&x[0], views[0].data, sizeof x[0]);
    memcpy(&x[1], views[1].data, sizeof x[1]);
    assert_true(x[0] == known_element(0, 11, 0, 0) && x[1] == known_element(0, 31, 0, 0));
    sonde_trial_close(trial);
}

static void every_dtype_in_every_packing(void **state)
{
    enum { COUNT = 300 };
    static _Alignas(16) unsigned char data[SONDE_DTYPE_COUNT][COUNT * 16];
    static const int64_t shape[3] = {3, 10, 10};
    sonde_trial *trial = NULL;
    writer w;

    (void)state;
    writer_begin(test_run, 1);
    writer_open(&w, test_run, 0);
    for (int d = 0; d < SONDE_DTYPE_COUNT; d++) {
        (void)writer_tensor(&w, sonde_dtype_name((sonde_dtype)d), "other", (sonde_dtype)d,
                            3, shape, "all");
        for (size_t i = 0; i < COUNT; i++) {
            sonde_element_set((sonde_dtype)d,
                              data[d] + i * sonde_dtype_size((sonde_dtype)d),
                              (double)(i % 100));
        }
    }
    for (int64_t s = 0; s < 3; s++) {
        for (int d = 0; d < SONDE_DTYPE_COUNT; d++) {
            const sonde_view view = sonde_view_of((sonde_dtype)d, 3, shape, data[d]);

            writer_put(&w, writer_at(SONDE_MODE_TRAIN, s, s), (uint32_t)d, &view,
                       (sonde__record_packing)s);
        }
        writer_end_step(&w, writer_at(SONDE_MODE_TRAIN, s, s));
    }
    writer_close(&w);
    trial = trial_opened(test_run);
    for (int64_t s = 0; s < 3; s++) {
        const sonde_trial_at at = trial_at(SONDE_MODE_TRAIN, s);

        for (uint32_t d = 0; d < SONDE_DTYPE_COUNT; d++) {
            sonde_view view;

            assert_int_equal(sonde_trial_value(trial, d, &at, &view, NULL), SONDE_OK);
            assert_int_equal(view.dtype, d);
            assert_int_equal(view.rank, 3);
            assert_memory_equal(view.data, data[d],
                                COUNT * sonde_dtype_size((sonde_dtype)d));
        }
    }
    assert_null(sonde_trial_damage(trial, 0));
    sonde_trial_close(trial);
}

static void same_vitals(const sonde_vitals *a, const sonde_vitals *b)
{
    assert_memory_equal(a, b, sizeof *a);
}

static sonde_vitals known_vitals(int t, int64_t global, int lane)
{
    float data[KNOWN_COUNT];
    const sonde_view view = known_value(t, global, lane, data);
    sonde_vitals vitals;

    sonde_vitals_of(&view, &vitals);
    return vitals;
}

/* Step 0 rows alone, 1 raw values alone, 2 both but other rows, 3 nothing of it. */
static void vitals_are_saved_or_computed(void **state)
{
    sonde_trial *trial = NULL;
    sonde_vitals other = known_vitals(1, 77, 0), found, wanted;
    sonde_trial_at at = trial_at(SONDE_MODE_TRAIN, 0);
    sonde_diag diag = {0};
    writer w;

    (void)state;
    writer_begin(test_run, 1);
    writer_open(&w, test_run, 0);
    known_declare(&w);
    known_put_row(&w, writer_at(SONDE_MODE_TRAIN, 0, 0), 0);
    known_put(&w, writer_at(SONDE_MODE_TRAIN, 1, 1), 0, SONDE__PACKED_ZSTD);
    known_put(&w, writer_at(SONDE_MODE_TRAIN, 2, 2), 0, SONDE__PACKED_NOT);
    writer_row(&w, writer_at(SONDE_MODE_TRAIN, 2, 2), 0, &other);
    writer_close(&w);
    trial = trial_opened(test_run);
    for (at.step = 0; at.step < 3; at.step++) {
        wanted = at.step == 2 ? other : known_vitals(0, at.step, 0);
        assert_int_equal(sonde_trial_vitals(trial, 0, &at, &found, NULL), SONDE_OK);
        same_vitals(&found, &wanted);
    }
    assert_int_equal(sonde_trial_vitals(trial, 0, &at, &found, &diag), SONDE_ENOTFOUND);
    assert_non_null(strstr(diag.found, "vital signs of 'fc1.weight' at train step 3"));
    at.step = 0;
    assert_int_equal(sonde_trial_has(trial, 0, &at), SONDE_HOW_VITALS);
    at.step = 2;
    assert_int_equal(sonde_trial_has(trial, 0, &at), SONDE_HOW_VITALS | SONDE_HOW_RAW);
    sonde_trial_close(trial);
}

static void micro_batches_and_replicas_merge(void **state)
{
    sonde_trial *trial = NULL;
    sonde_coordinate place = writer_at(SONDE_MODE_TRAIN, 5, 5);
    sonde_trial_at at = trial_at(SONDE_MODE_TRAIN, 5);
    sonde_vitals wanted, found, *series = NULL;
    int64_t *steps = NULL;
    size_t count = 0;
    sonde_view view;
    writer w;

    (void)state;
    writer_begin(test_run, 1);
    writer_open(&w, test_run, 0);
    known_declare(&w);
    sonde_vitals_init(&wanted);
    for (place.micro_batch = 0; place.micro_batch < 3; place.micro_batch++) {
        for (place.replica = 0; place.replica < 2; place.replica++) {
            const sonde_vitals part =
                known_vitals(0, 5, place.micro_batch * 10 + place.replica);

            known_put_row(&w, place, 0);
            known_put(&w, place, 1, SONDE__PACKED_NOT);
            known_put_sketch(&w, place, 0);
            sonde_vitals_merge(&wanted, &part);
        }
    }
    writer_end_step(&w, place);
    writer_close(&w);
    trial = trial_opened(test_run);
    at.micro_batch = at.replica = -1;
    assert_int_equal(sonde_trial_vitals(trial, 0, &at, &found, NULL), SONDE_OK);
    same_vitals(&found, &wanted);
    assert_int_equal(sonde_trial_vitals_series(trial, 0, SONDE_MODE_TRAIN, -1, 0, 0,
                                               &steps, &series, &count, NULL),
                     SONDE_OK);
    assert_int_equal(count, 1);
    same_vitals(series, &wanted);
    sonde_release(steps);
    sonde_release(series);
    assert_int_equal(sonde_trial_vitals(trial, 1, &at, &found, NULL), SONDE_OK);
    assert_int_equal(found.count, 36);
    assert_int_equal(sonde_trial_value(trial, 1, &at, &view, NULL), SONDE_EINVAL);
    at.micro_batch = 2;
    at.replica = 1;
    assert_int_equal(sonde_trial_value(trial, 1, &at, &view, NULL), SONDE_OK);
    assert_true(*(const float *)view.data == known_element(1, 5, 21, 0));
    at.micro_batch = 3;
    assert_int_equal(sonde_trial_value(trial, 1, &at, &view, NULL), SONDE_ENOTFOUND);
    sonde_trial_close(trial);
}

static void a_series_runs_over_steps(void **state)
{
    sonde_trial *trial = NULL;
    sonde_vitals *series = NULL;
    int64_t *steps = NULL;
    size_t count = 0;

    (void)state;
    write_known(40, 9);
    trial = trial_opened(test_run);
    assert_int_equal(sonde_trial_vitals_series(trial, 0, SONDE_MODE_TRAIN, 0, 3, 20,
                                               &steps, &series, &count, NULL),
                     SONDE_OK);
    assert_int_equal(count, 17);
    for (size_t i = 0; i < count; i++) {
        int64_t global = 0;
        sonde_vitals wanted;

        assert_int_equal(steps[i], 3 + i);
        assert_true(sonde_trial_global_step(trial, SONDE_MODE_TRAIN, steps[i], &global));
        wanted = known_vitals(0, global, 0);
        same_vitals(&series[i], &wanted);
    }
    sonde_release(steps);
    sonde_release(series);
    assert_int_equal(sonde_trial_vitals_series(trial, 0, SONDE_MODE_GLOBAL, -1, 0, 0,
                                               &steps, &series, &count, NULL),
                     SONDE_OK);
    assert_int_equal(count, 40);
    sonde_release(steps);
    sonde_release(series);
    assert_int_equal(sonde_trial_vitals_series(trial, 0, SONDE_MODE_GLOBAL, 4, 0, 0,
                                               &steps, &series, &count, NULL),
                     SONDE_ENOTFOUND);
    assert_int_equal(sonde_trial_vitals_series(trial, 9, SONDE_MODE_GLOBAL, 0, 0, 0,
                                               &steps, &series, &count, NULL),
                     SONDE_ERANGE);
    assert_int_equal(sonde_trial_vitals_series(trial, 0, SONDE_MODE_GLOBAL, 0, 5, 5,
                                               &steps, &series, &count, NULL),
                     SONDE_EINVAL);
    sonde_trial_close(trial);
}

/* Norms of steps 0 to 2, vital signs of step 1 and a raw value of step 2 besides. */
static void write_norms(void)
{
    writer w;

    writer_begin(test_run, 1);
    writer_open(&w, test_run, 0);
    known_declare(&w);
    for (int64_t s = 0; s < 3; s++) {
        sonde_vitals norms = known_vitals(0, s, 0);

        sonde_norms_keep(&norms);
        writer_row(&w, known_at(s), 0, &norms);
        if (s == 1) {
            known_put_row(&w, known_at(s), 0);
        }
        if (s == 2) {
            known_put(&w, known_at(s), 0, SONDE__PACKED_NOT);
        }
        writer_end_step(&w, known_at(s));
    }
    writer_close(&w);
    writer_end(test_run, "finished", 2);
}

static size_t count_records(sonde_trial *trial, unsigned how)
{
    const sonde_trial_cursor_options options = {
        .size = sizeof options, .how = how, .mode = SONDE_MODE_GLOBAL};
    sonde_trial_cursor *cursor = NULL;
    sonde_trial_record record;
    size_t count = 0;

    assert_int_equal(sonde_trial_cursor_create(trial, &options, &cursor, NULL), SONDE_OK);
    while (sonde_trial_next(cursor, &record, NULL) == SONDE_OK) {
        assert_true((record.how & how) == record.how);
        count++;
    }
    sonde_trial_cursor_destroy(cursor);
    return count;
}

static void norms_stand_in_for_vital_signs(void **state)
{
    static const unsigned saved[] = {SONDE_HOW_NORMS, SONDE_HOW_NORMS | SONDE_HOW_VITALS,
                                     SONDE_HOW_NORMS | SONDE_HOW_RAW};
    sonde_reduction mean, least;
    sonde_trial *trial = NULL;
    sonde_vitals *series = NULL;
    int64_t *steps = NULL;
    size_t count = 0;

    (void)state;
    write_norms();
    trial = trial_opened(test_run);
    assert_int_equal(sonde_reduction_parse("mean", &mean, NULL), SONDE_OK);
    assert_int_equal(sonde_reduction_parse("min", &least, NULL), SONDE_OK);
    assert_int_equal(sonde_trial_vitals_series(trial, 0, SONDE_MODE_GLOBAL, -1, 0, 0,
                                               &steps, &series, &count, NULL),
                     SONDE_OK);
    assert_int_equal(count, 3);
    for (int64_t s = 0; s < 3; s++) {
        const sonde_trial_at at = trial_at(SONDE_MODE_GLOBAL, s);
        const sonde_vitals whole = known_vitals(0, s, 0);
        sonde_vitals found;
        sonde_reduced value;

        assert_int_equal(sonde_trial_has(trial, 0, &at), saved[s]);
        assert_int_equal(sonde_trial_vitals(trial, 0, &at, &found, NULL), SONDE_OK);
        assert_int_equal(sonde_vitals_are_norms(&found), s == 0);
        assert_true(found.mean == whole.mean && found.sumsq == whole.sumsq);
        assert_memory_equal(&series[s], &found, sizeof found);
        assert_int_equal(sonde_trial_reduce(trial, 0, &at, &mean, &value, NULL),
                         SONDE_OK);
        assert_int_equal(value.how, s == 0   ? SONDE_HOW_NORMS
                                    : s == 1 ? SONDE_HOW_VITALS
                                             : SONDE_HOW_RAW);
        assert_int_equal(sonde_trial_reduce(trial, 0, &at, &least, &value, NULL),
                         s == 0 ? SONDE_ENOTFOUND : SONDE_OK);
    }
    sonde_release(steps);
    sonde_release(series);
    assert_int_equal(count_records(trial, SONDE_HOW_NORMS), 3);
    assert_int_equal(count_records(trial, SONDE_HOW_VITALS), 1);
    assert_int_equal(count_records(trial, SONDE_HOW_NORMS | SONDE_HOW_RAW), 4);
    sonde_trial_close(trial);
}

static void sketches_are_saved_or_computed(void **state)
{
    static sonde_sketch wanted, found;
    float data[KNOWN_COUNT];
    sonde_trial *trial = NULL;
    const sonde_trial_at at = trial_at(SONDE_MODE_GLOBAL, 6);

    (void)state;
    write_known(10, 4);
    trial = trial_opened(test_run);
    for (int t = 0; t < 2; t++) { /* tensor 0 has sketches, tensor 1 raw values */
        const sonde_view view = known_value(t, 6, 0, data);

        sonde_sketch_init(&wanted);
        sonde_sketch_add(&wanted, &view);
        memset(&found, 1, sizeof found);
        assert_int_equal(sonde_trial_sketch(trial, (uint32_t)t, &at, &found, NULL),
                         SONDE_OK);
        assert_memory_equal(&found, &wanted, sizeof found);
    }
    sonde_trial_close(trial);
}

static void what_is_not_there_is_said(void **state)
{
    sonde_trial *trial = NULL;
    sonde_trial_at at = trial_at(SONDE_MODE_TRAIN, 50);
    sonde_diag diag = {0};
    sonde_view view;

    (void)state;
    write_known(10, 0);
    trial = trial_opened(test_run);
    assert_int_equal(sonde_trial_value(trial, 0, &at, &view, &diag), SONDE_ENOTFOUND);
    assert_non_null(strstr(diag.found, "no raw value of 'fc1.weight' at train step 50"));
    assert_non_null(strstr(diag.expected, "step 7"));
    assert_int_equal(sonde_trial_value(trial, 7, &at, &view, &diag), SONDE_ERANGE);
    at.step = -1; /* any step of the mode */
    assert_int_equal(sonde_trial_has(trial, 0, &at),
                     SONDE_HOW_RAW | SONDE_HOW_VITALS | SONDE_HOW_SKETCH);
    at.mode = SONDE_MODE_PREDICT;
    assert_int_equal(sonde_trial_has(trial, 0, &at), 0);
    at.mode = SONDE_MODE_TRAIN;
    at.step = 3;
    at.worker = 1;
    assert_int_equal(sonde_trial_value(trial, 0, &at, &view, &diag), SONDE_ENOTFOUND);
    at.worker = -2;
    assert_int_equal(sonde_trial_value(trial, 0, &at, &view, &diag), SONDE_EINVAL);
    sonde_trial_close(trial);
}

static void add_name(void *user, const char *name)
{
    sonde_text_format(user, "%s ", name);
}

static void a_folder_is_listed(void **state)
{
    sonde_text names = {0};
    sonde_diag diag = {0};
    char hidden[160];

    (void)state;
    write_known(10, 0);
    (void)snprintf(hidden, sizeof hidden, "%s/.hidden", test_run);
    assert_int_equal(mkdir(hidden, 0777), 0);
    assert_int_equal(sonde_trial_list_folder(test_run, add_name, &names, &diag),
                     SONDE_OK);
    assert_non_null(strstr(names.data, "run.json w0000 "));
    assert_null(strstr(names.data, "hidden"));
    assert_int_equal(rmdir(hidden), 0);
    assert_int_equal(sonde_trial_list_folder("/does/not/exist", add_name, &names, &diag),
                     SONDE_ENOTFOUND);
    sonde_text_fini(&names);
}

static void a_range_of_steps_is_all_there_is(void **state)
{
    const sonde_trial_options range = {.size = sizeof range, .begin = 5, .end = 9},
                              wrong = {.begin = 5, .end = 5};
    sonde_trial *trial = NULL;
    const int64_t *steps = NULL;
    sonde_run_info info;
    size_t count = 0;

    (void)state;
    write_known(20, 3);
    assert_int_equal(sonde_trial_open(test_run, &wrong, &trial, NULL), SONDE_EINVAL);
    assert_int_equal(sonde_trial_open(test_run, &range, &trial, NULL), SONDE_OK);
    steps = sonde_trial_steps(trial, SONDE_MODE_GLOBAL, false, &count);
    assert_int_equal(count, 4);
    assert_int_equal(steps[0], 5);
    sonde_trial_describe(trial, &info);
    assert_int_equal(info.records, 12);
    assert_int_equal(info.sketches, 4);
    assert_known(trial, 1, 8, -1);
    sonde_trial_close(trial);
}

static void opening_survives_every_failed_allocation(void **state)
{
    (void)state;
    write_known(12, 3);
    for (size_t n = 0;; n++) {
        sonde_trial *trial = NULL;
        sonde_trial_cursor *cursor = NULL;
        sonde_trial_record record;
        sonde_trial_at at = trial_at(SONDE_MODE_GLOBAL, 3);
        sonde_vitals vitals, *series = NULL;
        int64_t *steps = NULL;
        size_t count = 0;
        sonde_err err = SONDE_OK;

        alloc_failure_begin(n);
        err = sonde_trial_open(test_run, NULL, &trial, NULL);
        if (err == SONDE_OK) {
            err = sonde_trial_vitals(trial, 0, &at, &vitals, NULL);
        }
        if (err == SONDE_OK) {
            err = sonde_trial_vitals_series(trial, 1, SONDE_MODE_GLOBAL, -1, 0, 0, &steps,
                                            &series, &count, NULL);
            sonde_release(steps);
            sonde_release(series);
        }
        if (err == SONDE_OK) {
            err = sonde_trial_cursor_create(trial, NULL, &cursor, NULL);
        }
        if (err == SONDE_OK) {
            err = sonde_trial_next(cursor, &record, NULL);
        }
        sonde_trial_cursor_destroy(cursor);
        sonde_trial_close(trial);
        assert_int_equal(alloc_failure_end(), 0);
        if (err == SONDE_OK) {
            assert_true(n > 50);
            break;
        }
        assert_int_equal(err, SONDE_ENOMEM);
    }
}

#define ON_ITS_OWN(test) cmocka_unit_test_setup_teardown(test, folder_make, folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_ITS_OWN(it_says_what_it_is),
        ON_ITS_OWN(steps_are_counted_by_mode),
        ON_ITS_OWN(a_result_without_a_place_is_none),
        ON_ITS_OWN(values_come_back),
        ON_ITS_OWN(every_dtype_in_every_packing),
        ON_ITS_OWN(vitals_are_saved_or_computed),
        ON_ITS_OWN(micro_batches_and_replicas_merge),
        ON_ITS_OWN(a_series_runs_over_steps),
        ON_ITS_OWN(norms_stand_in_for_vital_signs),
        ON_ITS_OWN(sketches_are_saved_or_computed),
        ON_ITS_OWN(what_is_not_there_is_said),
        ON_ITS_OWN(a_folder_is_listed),
        ON_ITS_OWN(a_range_of_steps_is_all_there_is),
        ON_ITS_OWN(opening_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * test_resumed.c - resumed runs: which records count, which are superseded, and what a
 * live reader sees.
 */
#include "trial/run_folder.h"

static void describe(sonde_trial *trial, sonde_run_info *info)
{
    sonde_trial_describe(trial, info);
}

static void put_other(writer *w, sonde_coordinate at, int t, int64_t as)
{
    float data[KNOWN_COUNT];
    sonde_view view = known_value(t, as, 0, data);

    writer_put(w, at, (uint32_t)t, &view, SONDE__PACKED_NOT);
}

/* Steps 0 to 9, then 6 to 12 again with other values: step 8 is one of evaluation now,
 * and tensor 1 is no longer saved. */
static void write_again(writer *w, sonde_trial *trial)
{
    sonde_run_info info;

    writer_resume(w, 6);
    assert_true(trial_refreshed(trial)); /* at once: what was there goes */
    describe(trial, &info);
    assert_true(info.resumed);
    assert_int_equal(info.last_step, 5);
    assert_int_equal(info.records, 12);
    assert_int_equal(info.superseded, 4 * 3);
    assert_int_equal(info.superseded_steps, 4);
    assert_int_equal(sonde_trial_has_passed_step(trial, 5, SONDE_MODE_GLOBAL),
                     SONDE_STEP_AVAILABLE);
    assert_int_equal(sonde_trial_has_passed_step(trial, 9, SONDE_MODE_GLOBAL),
                     SONDE_STEP_NOT_YET);
    for (int64_t s = 6; s < 13; s++) {
        const sonde_coordinate step = s == 8
                                          ? writer_at(SONDE_MODE_EVAL, 8, 0)
                                          : writer_at(SONDE_MODE_TRAIN, s, s - (s > 8));

        put_other(w, step, 0, s + 100);
        writer_end_step(w, step);
        if (s % 3 == 0) {
            (void)trial_refreshed(trial);
            assert_int_equal(sonde_trial_has_passed_step(trial, s, SONDE_MODE_GLOBAL),
                             SONDE_STEP_AVAILABLE);
            assert_int_equal(sonde_trial_has_passed_step(trial, s + 1, SONDE_MODE_GLOBAL),
                             SONDE_STEP_NOT_YET);
        }
    }
    (void)trial_refreshed(trial);
}

/* Of a trial that was open all the time, and of one that was opened afterwards. */
static void check_again(sonde_trial *trial)
{
    sonde_trial_at at = trial_at(SONDE_MODE_GLOBAL, 7);
    sonde_trial_resumed resumed = {0};
    const int64_t *steps = NULL;
    int64_t *of_tensor = NULL, time = 0;
    size_t count = 0;
    sonde_run_info info;
    sonde_view view;

    describe(trial, &info);
    assert_true(info.resumed);
    assert_int_equal(info.last_step, 12);
    assert_int_equal(info.records, 12 + 7);
    assert_int_equal(info.bytes, (12 + 7) * KNOWN_COUNT * 4);
    assert_int_equal(info.rows, 6);
    assert_int_equal(info.superseded, 12);
    assert_int_equal(info.superseded_steps, 4);
    assert_true(sonde_trial_resume(trial, 0, &resumed));
    assert_int_equal(resumed.step, 6);
    assert_int_equal(resumed.time, writer_time(6));
    assert_false(sonde_trial_resume(trial, 1, &resumed));
    for (int64_t s = 0; s < 13; s++) {
        at.step = s;
        assert_int_equal(sonde_trial_value(trial, 0, &at, &view, NULL), SONDE_OK);
        assert_true(*(const float *)view.data ==
                    known_element(0, s < 6 ? s : s + 100, 0, 0));
        assert_int_equal(sonde_trial_has(trial, 1, &at), s < 6 ? SONDE_HOW_RAW : 0);
        assert_true(sonde_trial_step_time(trial, SONDE_MODE_GLOBAL, s, -1, &time) &&
                    time == writer_time(s));
    }
    steps = sonde_trial_steps(trial, SONDE_MODE_EVAL, false, &count);
    assert_int_equal(count, 1);
    assert_int_equal(steps[0], 0);
    steps = sonde_trial_steps(trial, SONDE_MODE_TRAIN, false, &count);
    assert_int_equal(count, 12);
    assert_int_equal(steps[11], 11);
    assert_int_equal(sonde_trial_tensor_steps(trial, 1, SONDE_MODE_GLOBAL, 0, &of_tensor,
                                              &count, NULL),
                     SONDE_OK);
    assert_int_equal(count, 6);
    sonde_release(of_tensor);
    at = trial_at(SONDE_MODE_TRAIN, 8); /* step 9 now */
    assert_int_equal(sonde_trial_value(trial, 0, &at, &view, NULL), SONDE_OK);
    assert_true(*(const float *)view.data == known_element(0, 109, 0, 0));
    assert_null(sonde_trial_damage(trial, 0));
}

static void a_resumed_run_is_as_if_the_abandoned_steps_had_never_been(void **state)
{
    sonde_verify_report report = {0};
    sonde_trial *trial = NULL;
    sonde_run_info info;
    writer w;

    (void)state;
    writer_begin(test_run, 1);
    writer_open(&w, test_run, 0);
    writer_alive(&w);
    known_declare(&w);
    for (int64_t s = 0; s < 10; s++) {
        const sonde_coordinate step = writer_at(SONDE_MODE_TRAIN, s, s);

        known_put(&w, step, 0, SONDE__PACKED_NOT);
        known_put(&w, step, 1, SONDE__PACKED_NOT);
        known_put_row(&w, step, 0);
        writer_end_step(&w, step);
    }
    trial = trial_opened(test_run);
    describe(trial, &info);
    assert_false(info.resumed);
    assert_int_equal(info.last_step, 9);
    write_again(&w, trial);
    check_again(trial);
    sonde_trial_close(trial);
    trial = trial_opened(test_run);
    check_again(trial);
    sonde_trial_close(trial);
    assert_int_equal(sonde_trial_verify(test_run, &report, NULL, NULL, NULL), SONDE_OK);
    assert_true(report.resumed && report.damaged == 0);
    assert_int_equal(report.records, 20 + 7); /* superseded records are checked too */
    assert_int_equal(report.rows, 10);
    assert_int_equal(report.superseded, 12);
    writer_drop(&w);
}

/* A slow reader learns of the resume before it meets superseded records. */
static void what_was_never_seen_is_passed_over(void **state)
{
    sonde_trial *trial = NULL;
    sonde_run_info info;
    int64_t step = 0;
    size_t seen = 0;
    writer w;

    (void)state;
    writer_begin(test_run, 1);
    writer_open(&w, test_run, 0);
    writer_alive(&w);
    known_declare(&w);
    known_step(&w, known_at(0));
    trial = trial_opened(test_run);
    for (int64_t s = 1; s < 9; s++) {
        known_step(&w, known_at(s));
    }
    writer_resume(&w, 5);
    known_step(&w, known_at(5));
    writer_resume(&w, 3);
    known_step(&w, known_at(3));
    assert_true(trial_refreshed(trial));
    describe(trial, &info);
    assert_int_equal(info.last_step, 3);
    assert_int_equal(info.records, 4 * 3);
    assert_int_equal(info.superseded, (6 + 1) * 7);
    assert_int_equal(info.superseded_steps, 6 + 1);
    assert_true(sonde_trial_went_back(trial, &seen, &step));
    assert_int_equal(step, 3);
    assert_false(sonde_trial_went_back(trial, &seen, &step));
    for (int64_t s = 0; s < 4; s++) {
        assert_known(trial, 0, s, -1);
    }
    sonde_trial_close(trial);
    writer_drop(&w);
}

#define ON_ITS_OWN(test) cmocka_unit_test_setup_teardown(test, folder_make, folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_ITS_OWN(a_resumed_run_is_as_if_the_abandoned_steps_had_never_been),
        ON_ITS_OWN(what_was_never_seen_is_passed_over),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

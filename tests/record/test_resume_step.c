/*
 * test_resume_step.c - at which step a run is gone on with, as the options say it.
 */
#include "record/record_sink.h"
#include "record/run_dir.h"
#include "base/macros.h"

enum { FLOATS = 10 };

/* Ten steps of training, then two of evaluation, and again. */
static sonde_coordinate modes_at(int64_t step)
{
    const bool trains = step % 12 < 10;

    return (sonde_coordinate){.mode = trains ? SONDE_MODE_TRAIN : SONDE_MODE_EVAL,
                              .global_step = step,
                              .mode_step = trains ? step / 12 * 10 + step % 12
                                                  : step / 12 * 2 + step % 12 - 10};
}

/* Global steps 0 ... 35. */
static void record_modes(const char *path, const sonde_catalogue *catalogue)
{
    sonde_recorder *recorder =
        run_create(SONDE_OPTIONS(sonde_recorder, .path = path), catalogue);
    const float x[FLOATS] = {0};
    const int64_t shape = FLOATS;
    const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, (void *)(uintptr_t)x);

    for (int64_t step = 0; step < 36; step++) {
        const sonde_coordinate at = modes_at(step);

        sonde__recorder_put(recorder, 0, &at, &view);
        sonde__recorder_end_step(recorder, &at);
    }
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL),
                     SONDE_OK);
}

static void a_checkpoint_says_where(void **state)
{
    static const struct {
        sonde_mode mode;
        int64_t step, train, eval, global;
    } cases[] = {
        {SONDE_MODE_TRAIN, 15, 15, 2, 17}, /* in the middle of the second block */
        {SONDE_MODE_TRAIN, 10, 10, 2, 12}, /* the evaluation before it stays */
        {SONDE_MODE_EVAL, 1, 10, 1, 11},
        {SONDE_MODE_GLOBAL, 5, 5, 0, 5},
        {SONDE_MODE_TRAIN, SONDE_RESUME_BEHIND, 5, 0, 5},
        {SONDE_MODE_TRAIN, 9, 9, 0, 9}, /* beyond all that counts */
        {SONDE_MODE_TRAIN, SONDE_RESUME_ANEW, 0, 0, 0},
    };
    char path[RUN_PATH], id[33];
    sonde_catalogue *catalogue = run_catalogue(1, FLOATS);
    size_t size = 0;
    char *text = NULL;

    (void)state;
    record_modes(run_path(path, "modes"), catalogue);
    for (size_t i = 0; i < SONDE_COUNT_OF(cases); i++) {
        int64_t next[SONDE_MODE_COUNT] = {0};
        sonde_recorder *recorder = run_create(
            SONDE_OPTIONS(sonde_recorder, .path = path, .resume = run_id(path, id),
                          .resume_mode = cases[i].mode, .resume_step = cases[i].step),
            catalogue);

        sonde__recorder_next(recorder, next);
        print_message("%zu: train %d, eval %d, global %d\n", i,
                      (int)next[SONDE_MODE_TRAIN], (int)next[SONDE_MODE_EVAL],
                      (int)next[SONDE_MODE_GLOBAL]);
        assert_int_equal(next[SONDE_MODE_TRAIN], cases[i].train);
        assert_int_equal(next[SONDE_MODE_EVAL], cases[i].eval);
        assert_int_equal(next[SONDE_MODE_GLOBAL], cases[i].global);
        assert_int_equal(run_number(path, "w0000/state.json", "generation"), i + 1);
        assert_int_equal(run_number(path, "w0000/state.json", "last_step"),
                         cases[i].global == 9 ? 4 : cases[i].global - 1);
        assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL),
                         SONDE_OK);
    }
    text = run_load(path, "w0000/generations.jsonl", &size);
    assert_non_null(strstr(text, "{\"generation\":1,\"step\":17,"));
    assert_non_null(strstr(text, "{\"generation\":7,\"step\":0,"));
    free(text);
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

/* Of a run in which little was recorded, every count comes out as of one that has all. */
static void quiet_steps_are_counted(void **state)
{
    char path[RUN_PATH], id[33];
    sonde_catalogue *catalogue = run_catalogue(1, FLOATS);
    sonde_recorder *recorder = NULL;
    sonde_vitals vitals;

    (void)state;
    sonde_vitals_init(&vitals);
    for (int64_t begin = 1; begin < 30; begin++) { /* of training */
        const int64_t evaluated = (begin - 1) / 10 * 2 + 2 * (begin % 10 == 0);
        int64_t next[SONDE_MODE_COUNT] = {0};

        recorder = run_create(
            SONDE_OPTIONS(sonde_recorder, .path = run_path(path, "quiet")), catalogue);
        for (int64_t step = 0; step < 36; step++) {
            const sonde_coordinate at = modes_at(step);

            if (step % 17 == 3) {
                sonde__recorder_put_vitals(recorder, 0, &at, &vitals);
            }
            sonde__recorder_end_step(recorder, &at);
        }
        assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL),
                         SONDE_OK);
        recorder =
            run_create(SONDE_OPTIONS(sonde_recorder, .path = path,
                                     .resume = run_id(path, id), .resume_step = begin),
                       catalogue);
        sonde__recorder_next(recorder, next);
        assert_int_equal(next[SONDE_MODE_TRAIN], begin);
        assert_int_equal(next[SONDE_MODE_EVAL], evaluated);
        assert_int_equal(next[SONDE_MODE_GLOBAL], begin + evaluated);
        assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL),
                         SONDE_OK);
    }
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

/* Whatever run is there; a new one if there is none. */
static void any_run_is_gone_on_with(void **state)
{
    char path[RUN_PATH], id[33], again[33];
    sonde_catalogue *catalogue = run_catalogue(1, FLOATS);
    sonde_recorder *recorder = NULL;

    (void)state;
    for (int64_t i = 0; i < 3; i++) {
        const sonde_coordinate at = run_at(i);
        const float x[FLOATS] = {0};
        const int64_t shape = FLOATS;
        const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, (void *)(uintptr_t)x);
        int64_t next[SONDE_MODE_COUNT] = {0};

        if (i == 0) {
            (void)run_path(path, "any");
        }
        recorder = run_create(
            SONDE_OPTIONS(sonde_recorder, .path = path, .resume = SONDE_RESUME_ANY),
            catalogue);
        sonde__recorder_next(recorder, next);
        assert_int_equal(next[SONDE_MODE_GLOBAL], i);
        assert_int_equal(run_number(path, "w0000/state.json", "generation"), i);
        sonde__recorder_put(recorder, 0, &at, &view);
        sonde__recorder_end_step(recorder, &at);
        assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL),
                         SONDE_OK);
        (void)run_id(path, i == 0 ? id : again);
        assert_true(i == 0 || strcmp(id, again) == 0);
    }
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

static void a_step_that_cannot_be_is_refused(void **state)
{
    char path[RUN_PATH];
    sonde_catalogue *catalogue = run_catalogue(1, FLOATS);
    sonde_recorder *recorder = NULL;
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(
        sonde__recorder_create(SONDE_OPTIONS(sonde_recorder, .path = run_path(path, "no"),
                                             .resume_step = -2),
                               catalogue, &recorder, &diag),
        SONDE_EINVAL);
    assert_string_equal(diag.where, "resume_step");
    assert_false(run_has(path, "run.json"));
    sonde_catalogue_destroy(catalogue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_checkpoint_says_where),
        cmocka_unit_test(quiet_steps_are_counted),
        cmocka_unit_test(any_run_is_gone_on_with),
        cmocka_unit_test(a_step_that_cannot_be_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

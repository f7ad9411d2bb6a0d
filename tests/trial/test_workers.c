/*
 * test_workers.c - several workers: names across them, which value is meant, and when a
 * step is complete.
 */
#include "trial/run_folder.h"

#include "base/macros.h"

#include <sonde/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static void begin(writer *w, int world, int rank)
{
    if (rank == 0) {
        writer_begin(test_run, world);
    }
    writer_open(w, test_run, rank);
    writer_alive(w);
}

static void end_step(writer *w, int64_t s)
{
    writer_end_step(w, writer_at(SONDE_MODE_TRAIN, s, s));
}

static void put(writer *w, int64_t s, uint32_t id, float value)
{
    const sonde_view view = sonde_view_of(SONDE_F32, 0, NULL, &value);

    writer_put(w, writer_at(SONDE_MODE_TRAIN, s, s), id, &view, SONDE__PACKED_NOT);
}

/* Ids are a worker's own: the same names in another order, and one that only it has. */
static void names_make_tensors_one(void **state)
{
    sonde_trial *trial = NULL;
    sonde_trial_at at = trial_at(SONDE_MODE_TRAIN, 0);
    sonde_view view;
    writer w[2];

    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        begin(&w[rank], 2, rank);
    }
    (void)writer_tensor(&w[0], "a", "weight", SONDE_F32, 0, NULL, "x");
    (void)writer_tensor(&w[0], "b", "bias", SONDE_F32, 0, NULL, "x");
    (void)writer_tensor(&w[1], "c", "loss", SONDE_F32, 0, NULL, "y");
    (void)writer_tensor(&w[1], "b", "weight", SONDE_F32, 0, NULL, "y");
    (void)writer_tensor(&w[1], "a", "bias", SONDE_F32, 0, NULL, "y");
    put(&w[0], 0, 0, 1.0F);
    put(&w[0], 0, 1, 2.0F);
    put(&w[1], 0, 0, 13.0F);
    put(&w[1], 0, 1, 12.0F);
    put(&w[1], 0, 2, 11.0F);
    trial = trial_opened(test_run);
    assert_int_equal(sonde_catalogue_count(sonde_trial_catalogue(trial)), 3);
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"a", "b", "c"};
        const uint32_t id = trial_id(trial, names[i]);

        at.worker = 1;
        assert_int_equal(sonde_trial_value(trial, id, &at, &view, NULL), SONDE_OK);
        assert_true(*(const float *)view.data == 11.0F + (float)i);
        at.worker = -1; /* the first that has it */
        assert_int_equal(sonde_trial_value(trial, id, &at, &view, NULL), SONDE_OK);
        assert_true(*(const float *)view.data == (i == 2 ? 13.0F : 1.0F + (float)i));
    }
    assert_true(sonde_trial_in_collection(trial, trial_id(trial, "a"), "x"));
    assert_true(sonde_trial_in_collection(trial, trial_id(trial, "a"), "y"));
    assert_int_equal(
        sonde_catalogue_info(sonde_trial_catalogue(trial), trial_id(trial, "b"))->role,
        SONDE_ROLE_BIAS);
    assert_int_equal(sonde_trial_worker(trial, 1), 1);
    assert_string_equal(sonde_trial_worker_name(trial, 1), "w0001");
    sonde_trial_close(trial);
    writer_drop(&w[0]);
    writer_drop(&w[1]);
}

typedef struct passed {
    int64_t step;
    sonde_step_state expected;
} passed;

static void check_passed(sonde_trial *trial, sonde_mode mode, const passed *cases,
                         size_t count)
{
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(sonde_trial_has_passed_step(trial, cases[i].step, mode),
                         cases[i].expected);
    }
}

/* Worker 0 has ended steps 0, 2, 4, 6; worker 1 steps 0, 2, and is within 4. */
static void a_step_is_complete_when_all_have_ended_it(void **state)
{
    static const passed live[] = {
        {0, SONDE_STEP_AVAILABLE}, {1, SONDE_STEP_UNAVAILABLE}, {2, SONDE_STEP_AVAILABLE},
        {3, SONDE_STEP_NOT_YET},   {4, SONDE_STEP_NOT_YET},     {6, SONDE_STEP_NOT_YET},
        {7, SONDE_STEP_NOT_YET},
    };
    static const passed ended[] = {
        {3, SONDE_STEP_UNAVAILABLE}, {4, SONDE_STEP_AVAILABLE},
        {5, SONDE_STEP_UNAVAILABLE}, {6, SONDE_STEP_AVAILABLE},
        {7, SONDE_STEP_UNAVAILABLE},
    };
    sonde_trial *trial = NULL;
    sonde_run_info info;
    size_t count = 0;
    writer w[2];

    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        begin(&w[rank], 2, rank);
        (void)writer_tensor(&w[rank], "a", "weight", SONDE_F32, 0, NULL, "x");
        for (int64_t s = 0; s <= 6; s += 2) {
            if (rank == 0 || s <= 4) {
                put(&w[rank], s, 0, 1.0F);
            }
            if (rank == 0 || s < 4) {
                end_step(&w[rank], s);
            }
        }
    }
    trial = trial_opened(test_run);
    check_passed(trial, SONDE_MODE_GLOBAL, live, SONDE_COUNT_OF(live));
    check_passed(trial, SONDE_MODE_TRAIN, live, SONDE_COUNT_OF(live));
    sonde_trial_describe(trial, &info);
    assert_int_equal(info.last_step, 2);
    (void)sonde_trial_steps(trial, SONDE_MODE_TRAIN, false, &count);
    assert_int_equal(count, 2);
    (void)sonde_trial_steps(trial, SONDE_MODE_TRAIN, true, &count);
    assert_int_equal(count, 4);
    /* The first worker ends: the other one still has to say. */
    writer_state(&w[0], "ended", 1, "here", 0, 0);
    (void)trial_refreshed(trial);
    sonde_trial_describe(trial, &info);
    assert_int_equal(info.status, SONDE_RUN_RUNNING);
    assert_int_equal(info.last_step, 2);
    end_step(&w[1], 4);
    (void)trial_refreshed(trial);
    sonde_trial_describe(trial, &info);
    assert_int_equal(info.last_step, 4);
    writer_end(test_run, "finished", 6);
    (void)trial_refreshed(trial);
    check_passed(trial, SONDE_MODE_GLOBAL, ended, SONDE_COUNT_OF(ended));
    sonde_trial_describe(trial, &info);
    assert_int_equal(info.last_step, 6);
    sonde_trial_close(trial);
    writer_drop(&w[0]);
    writer_drop(&w[1]);
}

/* Nothing is complete before every worker of the world is there. */
static void a_worker_that_is_missing_is_waited_for(void **state)
{
    sonde_trial *trial = NULL;
    sonde_run_info info;
    size_t count = 0;
    writer w[3];

    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        begin(&w[rank], 3, rank);
        (void)writer_tensor(&w[rank], "a", "weight", SONDE_F32, 0, NULL, "x");
        put(&w[rank], 0, 0, 1.0F);
        end_step(&w[rank], 0);
    }
    trial = trial_opened(test_run);
    sonde_trial_describe(trial, &info);
    assert_int_equal(info.world, 3);
    assert_int_equal(info.workers, 2);
    assert_int_equal(info.last_step, -1);
    (void)sonde_trial_steps(trial, SONDE_MODE_TRAIN, false, &count);
    assert_int_equal(count, 0);
    begin(&w[2], 3, 2);
    end_step(&w[2], 0);
    assert_true(trial_refreshed(trial));
    sonde_trial_describe(trial, &info);
    assert_int_equal(info.workers, 3);
    assert_int_equal(info.last_step, 0);
    sonde_trial_close(trial);
    for (int rank = 0; rank < 3; rank++) {
        writer_drop(&w[rank]);
    }
}

/* A crashed worker does not hold up the others; if all crash, the run has crashed. */
static void a_crashed_worker_is_not_waited_for(void **state)
{
    sonde_trial *trial = NULL;
    sonde_run_info info;
    writer w[2];

    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        begin(&w[rank], 2, rank);
        (void)writer_tensor(&w[rank], "a", "weight", SONDE_F32, 0, NULL, "x");
        for (int64_t s = 0; s < 4 - 2 * rank; s++) {
            put(&w[rank], s, 0, 1.0F);
            end_step(&w[rank], s);
        }
    }
    trial = trial_opened(test_run);
    sonde_trial_describe(trial, &info);
    assert_int_equal(info.last_step, 1);
    writer_state(&w[1], "running", 1, "elsewhere", 60, 0);
    (void)trial_refreshed(trial);
    sonde_trial_describe(trial, &info);
    assert_int_equal(info.status, SONDE_RUN_RUNNING);
    assert_int_equal(info.last_step, 3);
    writer_state(&w[0], "running", 1, "elsewhere", 60, 0);
    (void)trial_refreshed(trial);
    sonde_trial_describe(trial, &info);
    assert_int_equal(info.status, SONDE_RUN_CRASHED);
    sonde_trial_close(trial);
    writer_drop(&w[0]);
    writer_drop(&w[1]);
}

/* Rank 0 alone evaluates, so the workers' global steps are of different modes. */
static void workers_may_count_differently(void **state)
{
    sonde_trial *trial = NULL;
    sonde_trial_at at = trial_at(SONDE_MODE_TRAIN, 1);
    sonde_view view;
    float value = 0.0F;
    writer w[2];

    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        begin(&w[rank], 2, rank);
        (void)writer_tensor(&w[rank], "a", "weight", SONDE_F32, 0, NULL, "x");
        view = sonde_view_of(SONDE_F32, 0, NULL, &value);
        for (int64_t s = 0; s < 4;
             s++) { /* worker 0: train 0, eval 0, train 1, train 2 */
            const bool eval = rank == 0 && s == 1;
            const sonde_coordinate step =
                eval ? writer_at(SONDE_MODE_EVAL, 1, 0)
                     : writer_at(SONDE_MODE_TRAIN, s, s - (rank == 0 && s > 1));

            value = (float)(rank * 10 + s);
            writer_put(&w[rank], step, 0, &view, SONDE__PACKED_NOT);
            writer_end_step(&w[rank], step);
        }
    }
    trial = trial_opened(test_run);
    at.worker = 0;
    assert_int_equal(sonde_trial_value(trial, 0, &at, &view, NULL), SONDE_OK);
    assert_true(*(const float *)view.data == 2.0F);
    at.worker = 1;
    assert_int_equal(sonde_trial_value(trial, 0, &at, &view, NULL), SONDE_OK);
    assert_true(*(const float *)view.data == 11.0F);
    at = trial_at(SONDE_MODE_GLOBAL, 1);
    for (at.worker = 0; at.worker < 2; at.worker++) {
        assert_int_equal(sonde_trial_value(trial, 0, &at, &view, NULL), SONDE_OK);
        assert_true(*(const float *)view.data == 1.0F + 10.0F * (float)at.worker);
    }
    assert_int_equal(sonde_trial_has_passed_step(trial, 2, SONDE_MODE_TRAIN),
                     SONDE_STEP_AVAILABLE);
    sonde_trial_close(trial);
    writer_drop(&w[0]);
    writer_drop(&w[1]);
}

#define ON_ITS_OWN(test) cmocka_unit_test_setup_teardown(test, folder_make, folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_ITS_OWN(names_make_tensors_one),
        ON_ITS_OWN(a_step_is_complete_when_all_have_ended_it),
        ON_ITS_OWN(a_worker_that_is_missing_is_waited_for),
        ON_ITS_OWN(a_crashed_worker_is_not_waited_for),
        ON_ITS_OWN(workers_may_count_differently),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

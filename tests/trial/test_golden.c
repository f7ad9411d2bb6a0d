/*
 * test_golden.c - runs of every version of the format, kept as they were written:
 *
 *     golden/runs/v1           two workers of which one was killed, all dtypes, all
 *                              packings, micro-batches, rotation, a part
 *     golden/runs/v1-resumed   steps 0 to 9; resumed at 6 to 8, at 8, at 7 to 11; what
 *                              was saved by the n-th of them is of micro-batch n
 *     golden/runs/v1-aliases   two tensors that have a second name
 *
 * With arguments it is the tool of trial_tool.h.
 */
#include "trial/trial_tool.h"
#include "base/macros.h"

#define V1 SONDE_TEST_DIR "/golden/runs/v1"
#define V1_ALIASES SONDE_TEST_DIR "/golden/runs/v1-aliases"
#define V1_RESUMED SONDE_TEST_DIR "/golden/runs/v1-resumed"

static void version_1_is_read(void **state)
{
    sonde_trial *trial = trial_opened(V1);
    sonde_run_info info;

    (void)state;
    sonde_trial_describe(trial, &info);
    assert_int_equal(info.world, 2);
    assert_int_equal(info.workers, 2);
    assert_int_equal(info.status, SONDE_RUN_CRASHED);
    assert_int_equal(info.records, 2 * (14 + 1 + 14));
    assert_int_equal(info.rows, 2 * (14 + 1));
    assert_int_equal(info.sketches, 6);
    assert_int_equal(info.last_step, 13);
    assert_int_equal(count_damage(trial), 2);
    assert_damage(trial, "w0001/seg-00000001.jsonl: the last 29 bytes are torn");
    assert_damage(trial, "w0001/stats-00000001.part: the last 10 bytes are torn");
    for (int64_t s = 0; s < 14; s++) {
        assert_known(trial, 0, s, 0);
        assert_known(trial, 1, s, 1);
    }
    sonde_trial_close(trial);
}

static void version_1_has_every_dtype_and_packing(void **state)
{
    sonde_trial *trial = trial_opened(V1);

    (void)state;
    for (int64_t s = 0; s < 14; s++) {
        const sonde_dtype dtype = (sonde_dtype)(s % (SONDE_F64 + 1));
        sonde_trial_at at = trial_at(SONDE_MODE_GLOBAL, s);
        sonde_view view;
        char name[64];

        (void)snprintf(name, sizeof name, "of.%s", sonde_dtype_name(dtype));
        for (at.worker = 0; at.worker < 2; at.worker++) {
            assert_int_equal(
                sonde_trial_value(trial, trial_id(trial, name), &at, &view, NULL),
                SONDE_OK);
            assert_int_equal(view.dtype, dtype);
            for (size_t i = 0; i < 8; i++) {
                const double wanted = (double)(i * 3 % 7) + (double)s;

                assert_true(sonde_element_get(dtype, (const unsigned char *)view.data +
                                                         i * sonde_dtype_size(dtype)) ==
                            (dtype == SONDE_BOOL ? wanted != 0 : wanted));
            }
        }
    }
    sonde_trial_close(trial);
}

static void version_1_has_vital_signs_and_sketches(void **state)
{
    static sonde_sketch wanted, found;
    sonde_trial *trial = trial_opened(V1);
    sonde_trial_at at = trial_at(SONDE_MODE_GLOBAL, 5);
    sonde_vitals sum, part;
    float data[KNOWN_COUNT];
    sonde_view view;

    (void)state;
    sonde_vitals_init(&sum);
    for (int lane = 0; lane < 20; lane += 10) {
        view = known_value(0, 5, lane, data);
        sonde_vitals_of(&view, &part);
        sonde_vitals_merge(&sum, &part);
    }
    at.micro_batch = at.replica = -1;
    assert_int_equal(sonde_trial_vitals(trial, 0, &at, &part, NULL), SONDE_OK);
    assert_memory_equal(&sum, &part, sizeof sum);
    at.step = 10;
    view = known_value(0, 10, 0, data);
    sonde_sketch_init(&wanted);
    sonde_sketch_add(&wanted, &view);
    assert_int_equal(sonde_trial_sketch(trial, 0, &at, &found, NULL), SONDE_OK);
    assert_memory_equal(&found, &wanted, sizeof found);
    sonde_trial_close(trial);
}

static void version_1_verifies(void **state)
{
    sonde_verify_report report = {0};

    (void)state;
    assert_int_equal(sonde_trial_verify(V1, &report, NULL, NULL, NULL), SONDE_OK);
    assert_int_equal(report.records, 58);
    assert_int_equal(report.damaged, 0);
    assert_int_equal(report.torn, 2);
    assert_true(report.crashed);
}

static void version_1_has_times(void **state)
{
    sonde_trial *trial = trial_opened(V1);
    sonde_run_info info;
    int64_t time = 0;

    (void)state;
    sonde_trial_describe(trial, &info);
    assert_int_equal(info.first_time, writer_time(0));
    assert_int_equal(info.last_time, writer_time(13));
    assert_true(sonde_trial_step_time(trial, SONDE_MODE_GLOBAL, 5, 1, &time));
    assert_int_equal(time, writer_time(5));
    assert_true(sonde_trial_step_time(trial, SONDE_MODE_EVAL, 1, -1, &time));
    assert_int_equal(time, writer_time(7));
    assert_true(sonde_trial_step_time(trial, SONDE_MODE_GLOBAL, 13, 0, &time));
    assert_false(sonde_trial_step_time(trial, SONDE_MODE_GLOBAL, 13, 1, &time));
    assert_false(sonde_trial_step_time(trial, SONDE_MODE_GLOBAL, 14, -1, &time));
    sonde_trial_close(trial);
}

static void version_1_is_gone_on_with(void **state)
{
    static const int by[12] = {0, 0, 0, 0, 0, 0, 1, 3, 3, 3, 3, 3};
    sonde_trial *trial = trial_opened(V1_RESUMED);
    sonde_verify_report report = {0};
    sonde_trial_resumed resumed = {0};
    sonde_run_info info;

    (void)state;
    sonde_trial_describe(trial, &info);
    assert_int_equal(info.status, SONDE_RUN_ENDED);
    assert_int_equal(info.last_step, 11);
    assert_int_equal(info.records, 12);
    assert_int_equal(info.rows, 12);
    assert_int_equal(info.superseded_steps, 4 + 2);
    assert_int_equal(count_damage(trial), 0);
    for (size_t i = 0; i < 3; i++) {
        assert_true(sonde_trial_resume(trial, i, &resumed));
        assert_int_equal(resumed.step, i == 0 ? 6 : i == 1 ? 8 : 7);
    }
    assert_false(sonde_trial_resume(trial, 3, &resumed));
    for (int64_t s = 0; s < 12; s++) {
        for (int part = 0; part < 4; part++) {
            sonde_trial_at at = trial_at(SONDE_MODE_GLOBAL, s);

            at.micro_batch = part;
            assert_int_equal(sonde_trial_has(trial, 0, &at) & SONDE_HOW_VITALS,
                             part == by[s] ? SONDE_HOW_VITALS : 0);
        }
    }
    sonde_trial_close(trial);
    assert_int_equal(sonde_trial_verify(V1_RESUMED, &report, NULL, NULL, NULL), SONDE_OK);
    assert_int_equal(report.damaged, 0);
    assert_int_equal(report.records, 10 + 3 + 5);
    assert_int_equal(report.superseded, info.superseded);
    assert_true(report.resumed && report.ended);
}

static void version_1_has_aliases(void **state)
{
    static const char *const names[] = {"fc1.weight", "fc1.bias", "loss", "tied.weight",
                                        "objective"};
    static const uint32_t same_as[] = {0, 1, 2, 0, 2};
    sonde_trial *trial = trial_opened(V1_ALIASES);
    const sonde_catalogue *catalogue = sonde_trial_catalogue(trial);
    const sonde_trial_at at = trial_at(SONDE_MODE_GLOBAL, 3);

    (void)state;
    assert_int_equal(count_damage(trial), 0);
    assert_int_equal(sonde_catalogue_count(catalogue), SONDE_COUNT_OF(names));
    for (uint32_t id = 0; id < SONDE_COUNT_OF(names); id++) {
        assert_string_equal(sonde_catalogue_info(catalogue, id)->name, names[id]);
        assert_int_equal(sonde_catalogue_info(catalogue, id)->same_as, same_as[id]);
    }
    assert_int_equal(sonde_trial_has(trial, 0, &at), SONDE_HOW_VITALS);
    assert_int_equal(sonde_trial_has(trial, 2, &at), 0);
    assert_int_equal(sonde_trial_has(trial, 3, &at), SONDE_HOW_RAW);
    assert_int_equal(sonde_trial_has(trial, 4, &at), SONDE_HOW_RAW);
    sonde_trial_close(trial);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(version_1_is_read),
        cmocka_unit_test(version_1_has_every_dtype_and_packing),
        cmocka_unit_test(version_1_has_vital_signs_and_sketches),
        cmocka_unit_test(version_1_verifies),
        cmocka_unit_test(version_1_has_times),
        cmocka_unit_test(version_1_is_gone_on_with),
        cmocka_unit_test(version_1_has_aliases),
    };

    if (argc > 1) {
        return use_as_tool(argc, argv);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * The rules that need a choice of tensors: AllZero, TensorVariance, UnchangedTensor.
 */
#include "rules/stream.h"
#include "base/macros.h"

enum { STEPS = 10 };

static void put_row(stream *s, uint32_t id, float last)
{
    const float values[8] = {0, 0, 0, 0, 0, 0, 0, last};

    stream_put(s, id, values);
}

static void zeros_are_counted(void **state)
{
    stream s;
    uint32_t id = 0;

    (void)state;
    stream_open(&s, "AllZero:tensor_regex=^mask");
    id = stream_declare(&s, "mask", SONDE_ROLE_OTHER, 8, 0);
    stream_begin(&s);
    for (int step = 0; step < STEPS; step++) {
        put_row(&s, id, step < 4 ? 1.0F : 0.0F);
        stream_end(&s);
    }
    (void)stream_expect(&s, "mask", 4);
    stream_close(&s);

    stream_open(&s, "AllZero:tensor_regex=^mask,threshold=87.5");
    id = stream_declare(&s, "mask", SONDE_ROLE_OTHER, 8, 0);
    stream_begin(&s);
    put_row(&s, id, 1.0F);
    stream_end(&s);
    (void)stream_expect(&s, "mask", 0);
    stream_close(&s);

    stream_open(&s, "AllZero:collection_names=weights");
    id = stream_declare(&s, "w", SONDE_ROLE_WEIGHT, 8, 0);
    stream_begin(&s);
    put_row(&s, id, 1.0F);
    stream_end(&s);
    stream_expect_clean(&s);
    stream_close(&s);
}

static void variance_has_bounds(void **state)
{
    static const double deviations[] = {1.0, 20.0, 0.01};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(deviations); i++) {
        stream s;
        uint32_t id = 0;

        stream_open(&s, "TensorVariance:max_threshold=100,min_threshold=0.01");
        id = stream_declare(&s, "w", SONDE_ROLE_WEIGHT, 30, 30);
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            stream_put_normal(&s, id, 3.0, step < 5 ? 1.0 : deviations[i]);
            stream_end(&s);
        }
        if (i == 0) {
            stream_expect_clean(&s);
        } else {
            (void)stream_expect(&s, "w", 5);
        }
        stream_close(&s);
    }
}

static void unchanged_values_are_found(void **state)
{
    static const double moves[] = {1e-3, 0.0, 1e-9};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(moves); i++) {
        stream s;
        uint32_t id = 0;

        stream_open(&s, "UnchangedTensor");
        id = stream_declare(&s, "w", SONDE_ROLE_WEIGHT, 8, 0);
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            put_row(&s, id, 1.0F + (float)(step < 3 ? step : 3 + moves[i] * step));
            stream_end(&s);
        }
        if (i == 0) {
            stream_expect_clean(&s);
        } else {
            (void)stream_expect(&s, "w", 5);
        }
        stream_close(&s);
    }
}

static void what_is_missing_is_said(void **state)
{
    static const char *const bad[] = {"AllZero", "TensorVariance", "AllZero:threshold=5"};
    sonde_rules *rules = NULL;
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(sonde_rules_create(&rules, NULL), SONDE_OK);
    for (size_t i = 0; i < SONDE_COUNT_OF(bad); i++) {
        assert_int_equal(sonde_rules_add(rules, bad[i], &diag), SONDE_EINVAL);
        assert_true(diag.expected[0] != '\0');
    }
    sonde_rules_destroy(rules);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zeros_are_counted),
        cmocka_unit_test(variance_has_bounds),
        cmocka_unit_test(unchanged_values_are_found),
        cmocka_unit_test(what_is_missing_is_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

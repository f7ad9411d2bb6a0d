/*
 * test_stat.c - the single numbers that vital signs give, and their names.
 */
#include "base/cpu.h"
#include "cmocka_all.h"

#include <sonde/stats.h>

#include <math.h>
#include <string.h>

static sonde_vitals vitals_of_three(float a, float b, float c)
{
    float data[3] = {a, b, c};
    const int64_t n = 3;
    const sonde_view view = sonde_view_of(SONDE_F32, 1, &n, data);
    sonde_vitals v;

    sonde_vitals_of(&view, &v);
    return v;
}

static void single_numbers_of_finite_values(void **state)
{
    const sonde_vitals v = vitals_of_three(-3.0F, 0.0F, 4.0F);
    static const double expected[SONDE_STAT_ENTRIES] = {
        3, -3, 4,         1.0 / 3.0, 74.0 / 9.0, 0, 1, 7, 5,         4,
        0, 4,  7.0 / 3.0, 0,         0,          0, 1, 0, 26.0 / 9.0};

    (void)state;
    for (int s = 0; s < SONDE_STAT_ENTRIES; s++) {
        const double value = sonde_vitals_get(&v, (sonde_stat)s);
        const double wanted = s == SONDE_STAT_STD       ? sqrt(74.0 / 9.0)
                              : s == SONDE_STAT_ABS_STD ? sqrt(26.0 / 9.0)
                                                        : expected[s];
        /* The absolute ones are differences of numbers three times as large. */
        const double tolerance = s >= SONDE_STAT_ABS_VARIANCE ? 4e-15 : 1e-15;

        assert_true(fabs(value - wanted) <= tolerance * fabs(wanted));
    }
    assert_true(isnan(sonde_vitals_get(&v, (sonde_stat)99)));
}

static bool is_count(sonde_stat s)
{
    return s == SONDE_STAT_COUNT || (s >= SONDE_STAT_NAN && s <= SONDE_STAT_NONFINITE);
}

static void single_numbers_follow_ieee(void **state)
{
    const double inf = (double)INFINITY;
    const sonde_vitals with_nan = vitals_of_three(1.0F, NAN, INFINITY);
    const sonde_vitals up = vitals_of_three(-1.0F, 2.0F, INFINITY);
    const sonde_vitals both = vitals_of_three(-INFINITY, 2.0F, INFINITY);
    const sonde_vitals only = vitals_of_three(-INFINITY, -INFINITY, -INFINITY);
    sonde_vitals none;

    (void)state;
    sonde_vitals_init(&none);
    for (int s = 0; s < SONDE_STAT_ENTRIES; s++) {
        const double of_nan = sonde_vitals_get(&with_nan, (sonde_stat)s);
        const double of_none = sonde_vitals_get(&none, (sonde_stat)s);

        assert_int_equal(isnan(of_nan) == 0, is_count((sonde_stat)s));
        assert_true(is_count((sonde_stat)s) ? of_none == 0.0 : isnan(of_none));
    }
    assert_true(sonde_vitals_get(&with_nan, SONDE_STAT_NONFINITE) == 2.0);
    assert_true(with_nan.min == 1.0 && with_nan.max == 1.0 && with_nan.mean == 1.0);
    assert_true(sonde_vitals_get(&up, SONDE_STAT_MIN) == -1.0);
    assert_true(sonde_vitals_get(&up, SONDE_STAT_MAX) == inf);
    assert_true(sonde_vitals_get(&up, SONDE_STAT_MEAN) == inf);
    assert_true(isnan(sonde_vitals_get(&up, SONDE_STAT_VARIANCE)));
    assert_true(isnan(sonde_vitals_get(&up, SONDE_STAT_STD)));
    assert_true(sonde_vitals_get(&up, SONDE_STAT_L2) == inf);
    assert_true(sonde_vitals_get(&up, SONDE_STAT_ABS_MIN) == 1.0);
    assert_true(isnan(sonde_vitals_get(&both, SONDE_STAT_SUM)));
    assert_true(sonde_vitals_get(&both, SONDE_STAT_MIN) == -inf);
    assert_true(sonde_vitals_get(&both, SONDE_STAT_L1) == inf);
    assert_true(sonde_vitals_get(&only, SONDE_STAT_MAX) == -inf);
    assert_true(sonde_vitals_get(&only, SONDE_STAT_ABS_MIN) == inf);
    assert_true(sonde_vitals_get(&only, SONDE_STAT_SUM) == -inf);
}

static void integer_sums_are_exact(void **state)
{
    static int32_t data[49 * 7];
    const int64_t n = 49 * 7;
    const sonde_view view = sonde_view_of(SONDE_I32, 1, &n, data);
    sonde_vitals v;
    int64_t sum = 0;

    (void)state;
    for (int i = 0; i < 49 * 7; i++) {
        data[i] = i * i * 37 - 1000003;
        sum += data[i];
    }
    sonde_vitals_of(&view, &v);
    assert_true(sonde_vitals_get(&v, SONDE_STAT_SUM) == (double)sum);
}

static void statistics_have_names(void **state)
{
    sonde_stat stat = SONDE_STAT_L1;
    sonde_diag diag = {0};

    (void)state;
    for (int s = 0; s < SONDE_STAT_ENTRIES; s++) {
        assert_int_equal(sonde_stat_parse(sonde_stat_name((sonde_stat)s), &stat, NULL),
                         SONDE_OK);
        assert_int_equal(stat, s);
    }
    assert_null(sonde_stat_name((sonde_stat)SONDE_STAT_ENTRIES));
    assert_int_equal(sonde_stat_parse("Abs_Max", &stat, NULL), SONDE_OK);
    assert_int_equal(stat, SONDE_STAT_ABS_MAX);
    assert_int_equal(sonde_stat_parse("varience", &stat, &diag), SONDE_EINVAL);
    assert_string_equal(diag.expected, "variance");
    assert_int_equal(sonde_stat_parse("qqqqqqqqqqqq", &stat, &diag), SONDE_EINVAL);
    assert_non_null(strstr(diag.expected, "nonfinite"));
    assert_non_null(strstr("generic avx2 avx512", sonde__isa_name()));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(single_numbers_of_finite_values),
        cmocka_unit_test(single_numbers_follow_ieee),
        cmocka_unit_test(integer_sums_are_exact),
        cmocka_unit_test(statistics_have_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

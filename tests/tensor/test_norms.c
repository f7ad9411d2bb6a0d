/*
 * test_norms.c - norms: the same bits on every instruction set, near the vital signs,
 * exact where float32 would not be, and absent where they have nothing to say.
 */
#include "cmocka_all.h"

#include "base/cpu.h"
#include "base/macros.h"
#include "base/random.h"
#include "tensor/vitals.h"

#include <sonde/reduction.h>
#include <sonde/stats.h>

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { MOST = 3 * SONDE__VITALS_BLOCK + 1017 };

static const size_t lengths[] = {1,    2,    15,   16,   17,   31,   32,  33,
                                 1000, 4095, 4096, 4097, 8192, 9000, MOST};

static float elements[MOST];

typedef enum kind { USUAL, OFFSET, ZEROS, BAD, HUGE_ONES, TINY_ONES, KINDS } kind;

static void fill(kind which, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        elements[i] = sonde__normal(7, 0, i);
        elements[i] += which == OFFSET ? 100.0F : 0.0F;
        elements[i] *= which == HUGE_ONES ? 1e30F : which == TINY_ONES ? 1e-30F : 1.0F;
        elements[i] = which == ZEROS ? 0.0F : elements[i];
    }
    if (which == BAD) {
        elements[n / 2] = -INFINITY;
        elements[n - 1] = NAN;
    }
}

static sonde_view view_of(size_t n)
{
    const int64_t shape = (int64_t)n;

    return sonde_view_of(SONDE_F32, 1, &shape, elements);
}

static void every_instruction_set_gives_the_same_bits(void **state)
{
    (void)state;
    for (size_t l = 0; l < SONDE_COUNT_OF(lengths); l++) {
        for (int which = 0; which < KINDS; which++) {
            const sonde_view view = view_of(lengths[l]);
            sonde_vitals first, other;

            fill((kind)which, lengths[l]);
            sonde__norms_of_isa(SONDE__GENERIC, &view, &first);
            for (int isa = SONDE__AVX2; isa <= (int)sonde__cpu_isa(); isa++) {
                sonde__norms_of_isa((sonde__isa)isa, &view, &other);
                assert_memory_equal(&other, &first, sizeof first);
            }
        }
    }
}

static void assert_near(double a, double b, double scale)
{
    assert_true(fabs(a - b) <= 1e-5 * scale);
}

static void they_are_near_the_vital_signs(void **state)
{
    (void)state;
    for (size_t l = 0; l < SONDE_COUNT_OF(lengths); l++) {
        for (int which = 0; which < KINDS; which++) {
            const sonde_view view = view_of(lengths[l]);
            sonde_vitals norms, vitals;

            fill((kind)which, lengths[l]);
            sonde_norms_of(&view, &norms);
            sonde_vitals_of(&view, &vitals);
            assert_true(sonde_vitals_are_norms(&norms));
            assert_false(sonde_vitals_are_norms(&vitals));
            assert_true(norms.count == vitals.count && norms.nan == vitals.nan &&
                        norms.pos_inf == vitals.pos_inf &&
                        norms.neg_inf == vitals.neg_inf);
            assert_true(norms.abs_max == vitals.abs_max);
            assert_near(norms.sum, vitals.sum, vitals.l1);
            assert_near(norms.sumsq, vitals.sumsq, vitals.sumsq);
        }
    }
}

static void what_they_lack_is_absent(void **state)
{
    const sonde_view view = view_of(1000);
    sonde_vitals norms;

    (void)state;
    fill(USUAL, 1000);
    sonde_norms_of(&view, &norms);
    for (int s = 0; s < SONDE_STAT_ENTRIES; s++) {
        const sonde_reduction reduction = sonde_reduction_of_stat((sonde_stat)s);
        const bool has = sonde_stat_is_norm((sonde_stat)s);
        sonde_reduced reduced;

        assert_int_equal(isnan(sonde_vitals_get(&norms, (sonde_stat)s)) != 0, !has);
        sonde_reduce_vitals(&reduction, &norms, &reduced);
        assert_int_equal(reduced.how, has ? SONDE_HOW_NORMS : 0);
        assert_int_equal((sonde_reduction_evidence(&reduction) & SONDE_HOW_NORMS) != 0,
                         has);
    }
    norms.neg_inf = 1; /* an extreme that is absent stays so beside infinities */
    assert_true(isnan(sonde_vitals_get(&norms, SONDE_STAT_MIN)));
}

static void merging_with_norms_leaves_norms(void **state)
{
    const sonde_view view = view_of(1000);
    sonde_vitals norms, vitals, both;

    (void)state;
    fill(USUAL, 1000);
    sonde_norms_of(&view, &norms);
    sonde_vitals_of(&view, &vitals);
    both = vitals;
    sonde_vitals_merge(&both, &norms);
    assert_true(sonde_vitals_are_norms(&both));
    assert_int_equal(both.count, 2000);
    assert_near(both.sumsq, 2.0 * vitals.sumsq, vitals.sumsq);
    assert_near(both.mean, vitals.mean, 1.0);
    assert_true(isnan(both.m2) && isnan(both.min) && isnan(both.l1));
    sonde_norms_keep(&vitals);
    assert_near(vitals.sum, norms.sum, 1000.0);
}

static void every_dtype_has_them(void **state)
{
    static const sonde_dtype dtypes[] = {SONDE_F64, SONDE_F16, SONDE_BF16, SONDE_U8,
                                         SONDE_I64, SONDE_C64, SONDE_BOOL};
    static unsigned char bytes[300 * 16];

    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (unsigned char)(i % 7 == 0);
    }
    for (size_t d = 0; d < SONDE_COUNT_OF(dtypes); d++) {
        const int64_t shape[2] = {300, 1};
        sonde_view view = sonde_view_of(dtypes[d], 2, shape, bytes);
        sonde_vitals norms, vitals;

        for (int strided = 0; strided < 2; strided++) {
            view.shape[0] = strided ? 100 : 300;
            view.stride[0] = strided ? 3 : 1;
            sonde_norms_of(&view, &norms);
            sonde_vitals_of(&view, &vitals);
            assert_true(norms.count == vitals.count && norms.nan == vitals.nan);
            assert_true(norms.abs_max == vitals.abs_max);
            assert_near(norms.sumsq, vitals.sumsq, vitals.sumsq);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_instruction_set_gives_the_same_bits),
        cmocka_unit_test(they_are_near_the_vital_signs),
        cmocka_unit_test(what_they_lack_is_absent),
        cmocka_unit_test(merging_with_norms_leaves_norms),
        cmocka_unit_test(every_dtype_has_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

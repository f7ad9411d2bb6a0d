/*
 * test_vitals.c - vital signs against a two-pass reference in long double, on every
 * instruction set, of every dtype; and that their bits do not depend on how one gets
 * there.
 */
#include "cmocka_all.h"

#include "base/cpu.h"
#include "base/macros.h"
#include "base/random.h"
#include "tensor/vitals.h"

#include <sonde/error.h>
#include <sonde/stats.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 3 * SONDE__VITALS_BLOCK + 17 };

static const size_t lengths[] = {0,  1,  2,   7,    8,    15,   16,   17,   31,  33,
                                 64, 97, 255, 1000, 4095, 4096, 4097, 8192, MOST};

/* --- the reference ---------------------------------------------------------------- */

typedef struct reference {
    sonde_vitals v;
    long double m2, sum, l1, sumsq, mean;
} reference;

static bool is_finite_at(const sonde_view *view, int64_t i, double *x)
{
    const size_t size = sonde_dtype_size(view->dtype);

    *x = sonde_element_get(view->dtype, (const unsigned char *)view->data +
                                            i * view->stride[0] * (int64_t)size);
    return isfinite(*x);
}

static void count_kinds(sonde_vitals *v, double x)
{
    v->count++;
    v->nan += isnan(x) != 0;
    v->pos_inf += isinf(x) && x > 0;
    v->neg_inf += isinf(x) && x < 0;
    v->zero += x == 0.0;
}

/* Of a view of rank 1. */
static reference refer(const sonde_view *view)
{
    reference r = {0};
    long double n = 0.0L;
    double x = 0.0;

    sonde_vitals_init(&r.v);
    for (int64_t i = 0; i < view->shape[0]; i++) {
        const bool finite = is_finite_at(view, i, &x);

        count_kinds(&r.v, x);
        if (finite) {
            n += 1.0L;
            r.sum += (long double)x;
            r.l1 += fabsl((long double)x);
            r.sumsq += (long double)x * (long double)x;
            r.v.min = fmin(r.v.min, x);
            r.v.max = fmax(r.v.max, x);
            r.v.abs_min = fmin(r.v.abs_min, fabs(x));
            r.v.abs_max = fmax(r.v.abs_max, fabs(x));
        }
    }
    r.mean = n > 0.0L ? r.sum / n : 0.0L;
    for (int64_t i = 0; i < view->shape[0]; i++) {
        if (is_finite_at(view, i, &x)) {
            r.m2 += ((long double)x - r.mean) * ((long double)x - r.mean);
        }
    }
    return r;
}

/* Tolerances: counts and extremes are exact. A sum of n doubles in sixteen lanes and
 * blocks of 4096 is off by less than 256 + n / 4096 roundings of what it adds up in
 * magnitude; m2 by the 64 times that which vitals.c allows before it goes about the mean,
 * and by what the means of the blocks, being doubles, are rounded by. */
static bool near(double value, long double exact, long double scale, double tolerance)
{
    return fabsl((long double)value - exact) <= (long double)tolerance * scale ||
           (long double)value == exact;
}

static void check(const sonde_vitals *v, const sonde_view *view)
{
    const reference r = refer(view);
    const long double n =
        (long double)(r.v.count - r.v.nan - r.v.pos_inf - r.v.neg_inf) + (r.v.count == 0);
    const long double slip = 4e-16L * fabsl(r.mean);

    assert_true(v->count == r.v.count && v->nan == r.v.nan);
    assert_true(v->pos_inf == r.v.pos_inf && v->neg_inf == r.v.neg_inf);
    assert_int_equal(v->zero, r.v.zero);
    assert_true(v->min == r.v.min && v->max == r.v.max);
    assert_true(v->abs_min == r.v.abs_min && v->abs_max == r.v.abs_max);
    assert_false(signbit(v->abs_max) && v->abs_max == 0.0);
    assert_true(near(v->sum, r.sum, r.l1, 3e-14));
    assert_true(near(v->mean, r.mean, r.l1 / (n > 0 ? n : 1), 3e-14));
    assert_true(near(v->l1, r.l1, r.l1, 3e-14));
    assert_true(near(v->sumsq, r.sumsq, r.sumsq, 3e-14));
    assert_true(near(v->m2, r.m2,
                     2e-12L * r.m2 + 4 * slip * sqrtl(r.m2 * n) + n * slip * slip, 1.0));
}

/* Every instruction set against the reference, and all of them bit for bit alike. */
static void check_every_isa(const sonde_view *view)
{
    sonde_vitals first, other;

    sonde__vitals_of_isa(SONDE__GENERIC, view, &first);
    check(&first, view);
    for (int isa = 1; isa <= (int)sonde__cpu_isa(); isa++) {
        sonde__vitals_of_isa((sonde__isa)isa, view, &other);
        assert_memory_equal(&other, &first, sizeof first);
    }
    sonde_vitals_of(view, &other);
    assert_memory_equal(&other, &first, sizeof first);
}

/* --- kinds of data ---------------------------------------------------------------- */

static double normal(uint64_t seed, size_t i)
{
    return (double)sonde__normal(seed, 0, i);
}
static double far_off(uint64_t seed, size_t i)
{
    return 1e4 + 1e-3 * normal(seed, i);
}
static double heavy(uint64_t seed, size_t i)
{
    return normal(seed, i) * exp(8.0 * (double)sonde__normal(seed, 1, i));
}
static double sparse(uint64_t seed, size_t i)
{
    const uint64_t kind = sonde__below(seed, 2, i, 4);

    return kind == 0 ? normal(seed, i) : kind == 1 ? -0.0 : 0.0;
}
static double negative(uint64_t seed, size_t i)
{
    return -1.0 - fabs(normal(seed, i));
}
static double positive(uint64_t seed, size_t i)
{
    return 0.5 + fabs(normal(seed, i));
}
static double subnormal(uint64_t seed, size_t i)
{
    return normal(seed, i) * 1e-40;
}
static double huge(uint64_t seed, size_t i)
{
    return (double)FLT_MAX * (sonde__below(seed, 3, i, 2) == 0 ? -1.0 : 1.0);
}
static double constant(uint64_t seed, size_t i)
{
    (void)seed;
    (void)i;
    return 0.1;
}
static double zeros(uint64_t seed, size_t i)
{
    return sonde__below(seed, 4, i, 2) == 0 ? -0.0 : 0.0;
}
static double broken(uint64_t seed, size_t i)
{
    switch (sonde__below(seed, 5, i, 40)) {
    case 0:
        return (double)NAN;
    case 1:
        return (double)INFINITY;
    case 2:
        return -(double)INFINITY;
    default:
        return normal(seed, i);
    }
}
static double all_nan(uint64_t seed, size_t i)
{
    (void)seed;
    (void)i;
    return (double)NAN;
}
static double one_inf(uint64_t seed, size_t i)
{
    return i == 5000 ? (double)INFINITY : far_off(seed, i);
}
static double wide_integers(uint64_t seed, size_t i)
{
    return normal(seed, i) * 1e5;
}

typedef double kind(uint64_t seed, size_t i);

static kind *const kinds[] = {normal,   far_off,  heavy,     sparse,       negative,
                              positive, constant, subnormal, huge,         zeros,
                              broken,   all_nan,  one_inf,   wide_integers};

static unsigned char *make(kind *make_one, sonde_dtype dtype, uint64_t seed, size_t n)
{
    const size_t size = sonde_dtype_size(dtype);
    unsigned char *data = malloc(n * size + 1);

    assert_non_null(data);
    for (size_t i = 0; i < n; i++) {
        sonde_element_set(dtype, data + i * size, make_one(seed, i));
    }
    return data;
}

/* --- tests ------------------------------------------------------------------------ */

static void every_kind_and_length_of_float32(void **state)
{
    (void)state;
    for (size_t k = 0; k < SONDE_COUNT_OF(kinds); k++) {
        unsigned char *data = make(kinds[k], SONDE_F32, k, MOST);

        for (size_t l = 0; l < SONDE_COUNT_OF(lengths); l++) {
            const int64_t n = (int64_t)lengths[l];
            const sonde_view view = sonde_view_of(SONDE_F32, 1, &n, data);

            check_every_isa(&view);
        }
        free(data);
    }
}

/* long double holds what double sums overflow at, so huge is left to float32 here. */
static void every_dtype(void **state)
{
    static const size_t some[] = {0, 1, 19, 4096, MOST};

    (void)state;
    for (int d = 0; d < SONDE_DTYPE_COUNT; d++) {
        const sonde_dtype dtype = (sonde_dtype)d;

        for (size_t k = 0; k < SONDE_COUNT_OF(kinds); k++) {
            unsigned char *data = make(kinds[k], dtype, k + 100, MOST);

            for (size_t l = 0; l < SONDE_COUNT_OF(some); l++) {
                const int64_t n = (int64_t)some[l];
                const sonde_view view = sonde_view_of(dtype, 1, &n, data);

                check_every_isa(&view);
            }
            free(data);
        }
    }
}

/* Lanes, tails and extremes at every length up to four vectors, with the extreme value at
 * every place. */
static void no_lane_is_forgotten(void **state)
{
    float data[64];

    (void)state;
    for (size_t n = 1; n <= 64; n++) {
        for (size_t at = 0; at < n; at++) {
            const int64_t shape = (int64_t)n;
            const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, data);

            for (size_t i = 0; i < n; i++) {
                data[i] = -2.0F - (float)i;
            }
            data[at] = -100.0F;
            check_every_isa(&view);
            data[at] = at % 2 == 0 ? 0.0F : 0x1p-149F;
            check_every_isa(&view);
            data[at] = at % 2 == 0 ? NAN : -INFINITY;
            check_every_isa(&view);
        }
    }
}

static void strides_and_alignment_change_no_bit(void **state)
{
    static const sonde_dtype some[] = {SONDE_F32, SONDE_F64, SONDE_BF16, SONDE_I64};

    (void)state;
    for (size_t d = 0; d < SONDE_COUNT_OF(some); d++) {
        const size_t size = sonde_dtype_size(some[d]);
        const int64_t shape[] = {3, 41, 70};
        unsigned char *data = make(broken, some[d], 7, 3 * 41 * 70);
        unsigned char *moved = malloc(3 * 41 * 70 * 3 * size + 1);
        const sonde_view dense = sonde_view_of(some[d], 3, shape, data);
        sonde_view strided = sonde_view_of(some[d], 3, shape, moved);
        sonde_vitals a, b;

        assert_non_null(moved);
        strided.stride[0] =
            2; /* first dimension innermost, padded; second one backwards */
        strided.stride[1] = -7 * 70;
        strided.stride[2] = 7;
        strided.data = moved + (size_t)(40 * 7 * 70) * size;
        assert_int_equal(sonde_view_copy(&strided, &dense, NULL), SONDE_OK);
        sonde_vitals_of(&dense, &a);
        sonde_vitals_of(&strided, &b);
        assert_memory_equal(&a, &b, sizeof a);
        memcpy(moved + 1, data, 3 * 41 * 70 * size);
        strided = sonde_view_of(some[d], 3, shape, moved + 1);
        sonde_vitals_of(&strided, &b);
        assert_memory_equal(&a, &b, sizeof a);
        free(moved);
        free(data);
    }
}

/* A mean of 1e4 and a deviation of 1e-3: float32, whose sums are then exact, to twelve
 * digits; float64, whose means are rounded to 1e-9 of the deviation, to ten. */
static void a_large_mean_does_not_drown_the_variance(void **state)
{
    const int64_t n = MOST;
    unsigned char *narrow = make(far_off, SONDE_F32, 3, MOST);
    unsigned char *wide = make(far_off, SONDE_F64, 3, MOST);
    const sonde_view f32 = sonde_view_of(SONDE_F32, 1, &n, narrow);
    const sonde_view f64 = sonde_view_of(SONDE_F64, 1, &n, wide);
    sonde_vitals v;

    (void)state;
    sonde_vitals_of(&f32, &v);
    assert_true(near(v.m2, refer(&f32).m2, refer(&f32).m2, 1e-12));
    sonde_vitals_of(&f64, &v);
    assert_true(near(v.m2, refer(&f64).m2, refer(&f64).m2, 1e-10));
    assert_true(fabs(sonde_vitals_get(&v, SONDE_STAT_STD) - 1e-3) < 3e-5);
    free(narrow);
    free(wide);
}

static void parts_merge_to_the_whole(void **state)
{
    unsigned char *data = make(broken, SONDE_F32, 11, MOST);
    const size_t cuts[] = {0, 1, 1, 900, 5000, 12000, MOST};
    const int64_t n = MOST;
    const sonde_view whole = sonde_view_of(SONDE_F32, 1, &n, data);
    sonde_vitals merged, part, blocks;

    (void)state;
    sonde_vitals_init(&merged);
    for (size_t c = 0; c + 1 < SONDE_COUNT_OF(cuts); c++) {
        const int64_t some = (int64_t)(cuts[c + 1] - cuts[c]);
        const sonde_view view = sonde_view_of(SONDE_F32, 1, &some, data + cuts[c] * 4);

        sonde_vitals_of(&view, &part);
        sonde_vitals_merge(&merged, &part);
    }
    check(&merged, &whole);
    sonde_vitals_init(&blocks);
    for (size_t start = 0; start < MOST; start += SONDE__VITALS_BLOCK) {
        const int64_t some =
            (int64_t)SONDE_MIN(MOST - start, (size_t)SONDE__VITALS_BLOCK);
        const sonde_view view = sonde_view_of(SONDE_F32, 1, &some, data + start * 4);

        sonde_vitals_of(&view, &part);
        sonde_vitals_merge(&blocks, &part);
    }
    sonde_vitals_of(&whole, &part);
    assert_memory_equal(&blocks, &part, sizeof part);
    sonde_vitals_init(&part);
    sonde_vitals_merge(&part, &blocks);
    assert_memory_equal(&blocks, &part, sizeof part);
    free(data);
}

static void float64_overflows_to_infinity_only(void **state)
{
    double data[40];
    const int64_t n = 40;
    const sonde_view view = sonde_view_of(SONDE_F64, 1, &n, data);
    sonde_vitals v;

    (void)state;
    for (size_t i = 0; i < 40; i++) {
        data[i] = 1e200;
    }
    for (int isa = 0; isa <= (int)sonde__cpu_isa(); isa++) {
        sonde__vitals_of_isa((sonde__isa)isa, &view, &v);
        assert_true(v.count == 40 && v.nan == 0 && v.pos_inf == 0 && v.neg_inf == 0);
        assert_true(v.min == 1e200 && v.max == 1e200);
        assert_true(fabs(v.mean - 1e200) < 1e185);
        assert_true(isinf(v.sumsq) && isinf(v.m2) && v.m2 > 0);
    }
}

/* NaN and infinities of either sign, anywhere, and no largest finite number. */
static void what_is_not_finite_is_noticed(void **state)
{
    static const struct {
        sonde_dtype dtype;
        uint64_t bad[4], largest;
    } dtypes[] = {
        {SONDE_F16, {0x7c00, 0xfc00, 0x7e00, 0xfc01}, 0xfbff},
        {SONDE_BF16, {0x7f80, 0xff80, 0x7fc0, 0xff81}, 0xff7f},
        {SONDE_F32, {0x7f800000, 0xff800000, 0x7fc00000, 0xff800001}, 0xff7fffff},
        {SONDE_C64, {0x7f800000, 0xff800000, 0x7fc00000, 0xff800001}, 0x7f7fffff},
        {SONDE_F64,
         {UINT64_C(0x7ff0) << 48, UINT64_C(0xfff0) << 48, UINT64_C(0x7ff8) << 48,
          UINT64_C(0x7ff0000000000001)},
         UINT64_C(0xffefffffffffffff)},
        {SONDE_F8_E4M3, {0x7f, 0xff, 0x7f, 0xff}, 0xfe},
        {SONDE_F8_E5M2, {0x7c, 0xfc, 0x7e, 0xfd}, 0xfb},
    };
    enum { COUNT = SONDE__VITALS_BLOCK + 37 };
    static unsigned char data[(COUNT + 1) * 8];

    (void)state;
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        const size_t size = sonde_dtype_size(dtypes[i].dtype);
        const int64_t shape[1] = {COUNT};
        const size_t places[] = {0, 1, 15, 31, 700, COUNT - 38, COUNT - 37, COUNT - 1};

        for (size_t shift = 0; shift < 2; shift++) { /* aligned, and not */
            const sonde_view view =
                sonde_view_of(dtypes[i].dtype, 1, shape, data + shift);

            memset(data, 0, sizeof data);
            for (size_t k = 0; k < sizeof places / sizeof places[0]; k++) {
                unsigned char *element = data + shift + places[k] * size;

                for (size_t j = 0; j < 4; j++) {
                    memcpy(element, &dtypes[i].bad[j], size);
                    assert_false(sonde__vitals_all_finite(&view));
                }
                memcpy(element, &dtypes[i].largest, size);
                assert_true(sonde__vitals_all_finite(&view));
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_and_length_of_float32),
        cmocka_unit_test(every_dtype),
        cmocka_unit_test(no_lane_is_forgotten),
        cmocka_unit_test(strides_and_alignment_change_no_bit),
        cmocka_unit_test(a_large_mean_does_not_drown_the_variance),
        cmocka_unit_test(parts_merge_to_the_whole),
        cmocka_unit_test(float64_overflows_to_infinity_only),
        cmocka_unit_test(what_is_not_finite_is_noticed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * test_sketch.c - the sketch against bins computed by definition, quantiles against
 * sorted elements, and the log2 histogram against values from numpy.
 */
#include "alloc_failure.h"
#include "cmocka_all.h"

#include "base/macros.h"
#include "base/random.h"

#include <sonde/error.h>
#include <sonde/sketch.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 20000 };

/* Heavy-tailed, with zeros, subnormals, infinities and NaN. */
static void fill(float *x, size_t n, uint64_t seed, bool special)
{
    for (size_t i = 0; i < n; i++) {
        const uint64_t kind = special ? sonde__below(seed, 1, i, 50) : 50;

        x[i] = sonde__normal(seed, 0, i) * expf(6.0F * sonde__normal(seed, 2, i));
        x[i] = kind == 0   ? 0.0F
               : kind == 1 ? -0.0F
               : kind == 2 ? x[i] * 0x1p-130F
               : kind == 3 ? NAN
               : kind == 4 ? INFINITY
               : kind == 5 ? -INFINITY
                           : x[i];
    }
}

static sonde_view flat(sonde_dtype dtype, size_t n, void *data)
{
    const int64_t shape = (int64_t)n;

    return sonde_view_of(dtype, 1, &shape, data);
}

/* By definition: the bin whose bounds hold the magnitude, found by walking. */
static void refer(sonde_sketch *s, const float *x, size_t n)
{
    sonde_sketch_init(s);
    s->count = n;
    for (size_t i = 0; i < n; i++) {
        if (isnan(x[i])) {
            s->nan++;
        } else if (isinf(x[i])) {
            x[i] > 0 ? s->pos_inf++ : s->neg_inf++;
        } else if (x[i] == 0.0F) {
            s->zero++;
        } else {
            int exponent = 0;
            const double fraction = frexp(fabs((double)x[i]), &exponent); /* 0.5 ... 1 */
            const int bin = (exponent - 1 + 149) * 4 + (int)floor((fraction * 2 - 1) * 4);

            x[i] > 0 ? s->positive[bin]++ : s->negative[bin]++;
        }
    }
}

static void bins_are_those_of_the_definition(void **state)
{
    static float x[MOST];
    static const size_t lengths[] = {0, 1, 5, 1024, 1025, 4096, 4097, 4098, 4099, MOST};
    static sonde_sketch expected, found;

    (void)state;
    for (size_t l = 0; l < SONDE_COUNT_OF(lengths); l++) {
        for (int special = 0; special < 2; special++) {
            const sonde_view view = flat(SONDE_F32, lengths[l], x);

            fill(x, MOST, l, special == 1);
            refer(&expected, x, lengths[l]);
            sonde_sketch_init(&found);
            sonde_sketch_add(&found, &view);
            assert_memory_equal(&found, &expected, sizeof found);
        }
    }
    for (size_t i = 0; i < MOST; i++) { /* zeros only beside normal numbers */
        x[i] = i % 3 == 0 ? 0.0F : (float)i;
    }
    const sonde_view view = flat(SONDE_F32, MOST, x);
    refer(&expected, x, MOST);
    sonde_sketch_init(&found);
    sonde_sketch_add(&found, &view);
    assert_memory_equal(&found, &expected, sizeof found);
}

static void bounds_hold_their_bins(void **state)
{
    double lower = 0.0, upper = 0.0, last = ldexp(1, -149);

    (void)state;
    for (int bin = 0; bin < SONDE_SKETCH_BINS; bin++) {
        sonde_sketch_bounds(bin, &lower, &upper);
        assert_true(lower == last && upper > lower);
        last = upper;
    }
    assert_true(last == ldexp(1, 128));
    sonde_sketch_bounds(-1, &lower, &upper);
    assert_true(isnan(lower) && isnan(upper));
    sonde_sketch_bounds(SONDE_SKETCH_BINS, &lower, &upper);
    assert_true(isnan(lower) && isnan(upper));
}

/* The same values in a wider dtype, in parts and with strides: the same counts. */
static void counts_depend_on_values_alone(void **state)
{
    static float x[MOST];
    static double wide[MOST];
    static float apart[2 * MOST];
    static sonde_sketch whole, other, part;
    sonde_view view = flat(SONDE_F32, MOST, x);

    (void)state;
    fill(x, MOST, 77, true);
    sonde_sketch_init(&whole);
    sonde_sketch_add(&whole, &view);
    for (size_t i = 0; i < MOST; i++) {
        wide[i] = (double)x[i];
        apart[2 * i] = x[i];
    }
    view = flat(SONDE_F64, MOST, wide);
    sonde_sketch_init(&other);
    sonde_sketch_add(&other, &view);
    assert_memory_equal(&other, &whole, sizeof whole);
    view = flat(SONDE_F32, MOST, apart);
    view.stride[0] = 2;
    sonde_sketch_init(&other);
    sonde_sketch_add(&other, &view);
    assert_memory_equal(&other, &whole, sizeof whole);
    sonde_sketch_init(&other);
    for (size_t start = 0; start < MOST; start += 3000) {
        view = flat(SONDE_F32, SONDE_MIN(MOST - start, (size_t)3000), x + start);
        sonde_sketch_init(&part);
        sonde_sketch_add(&part, &view);
        sonde_sketch_merge(&other, &part);
    }
    assert_memory_equal(&other, &whole, sizeof whole);
}

static void every_dtype_is_counted(void **state)
{
    static _Alignas(16) unsigned char data[3000 * 16];
    static sonde_sketch s;

    (void)state;
    for (int d = 0; d < SONDE_DTYPE_COUNT; d++) {
        const sonde_view view = flat((sonde_dtype)d, 3000, data);
        const size_t size = sonde_dtype_size((sonde_dtype)d);

        for (size_t i = 0; i < 3000; i++) {
            sonde_element_set((sonde_dtype)d, data + i * size, (double)(i % 6));
        }
        sonde_sketch_init(&s);
        sonde_sketch_add(&s, &view);
        assert_true(s.count == 3000 && s.zero == 500);
        if (d == SONDE_BOOL) {
            assert_true(s.positive[149 * 4] == 2500);
        } else {
            assert_true(s.positive[149 * 4] == 500);     /* 1 */
            assert_true(s.positive[150 * 4 + 2] == 500); /* 3 */
            assert_true(s.positive[151 * 4 + 1] == 500); /* 5 */
        }
    }
}

static void magnitudes_beyond_float32_fall_in_the_outermost_bins(void **state)
{
    double x[4] = {1e300, -1e300, 1e-300, -DBL_TRUE_MIN};
    const sonde_view view = flat(SONDE_F64, 4, x);
    static sonde_sketch s;

    (void)state;
    sonde_sketch_init(&s);
    sonde_sketch_add(&s, &view);
    assert_true(s.positive[SONDE_SKETCH_BINS - 1] == 1 && s.positive[0] == 1);
    assert_true(s.negative[SONDE_SKETCH_BINS - 1] == 1 && s.negative[0] == 1);
}

static int ascending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

static void quantiles_keep_their_promise(void **state)
{
    static float x[MOST], sorted[MOST];
    static sonde_sketch s;
    const sonde_view view = flat(SONDE_F32, MOST, x);
    size_t n = 0;

    (void)state;
    fill(x, MOST, 5, true);
    sonde_sketch_init(&s);
    assert_true(isnan(sonde_sketch_quantile(&s, 0.5)));
    sonde_sketch_add(&s, &view);
    for (size_t i = 0; i < MOST; i++) {
        if (isfinite(x[i])) {
            sorted[n++] = x[i];
        }
    }
    qsort(sorted, n, sizeof sorted[0], ascending);
    for (int q = 0; q <= 1000; q++) {
        const double share = q / 1000.0;
        const size_t rank = (size_t)fmax(ceil(share * (double)n), 1.0);
        const double exact = (double)sorted[rank - 1];
        const double value = sonde_sketch_quantile(&s, share);

        assert_true(fabs(value - exact) <=
                    ldexp(1, -(SONDE_SKETCH_MANTISSA_BITS + 1)) * fabs(exact));
    }
    assert_true(isnan(sonde_sketch_quantile(&s, -0.1)));
    assert_true(isnan(sonde_sketch_quantile(&s, 1.1)));
    assert_true(isnan(sonde_sketch_quantile(&s, (double)NAN)));
}

/*
 * numpy 2: g = ((arange(2000) * 7919) % 2003 - 1001) / 256 as float32, in two views;
 * l = log2(abs(g.astype(float64))); l[g == 0] = l[g != 0].min() - 2; histogram(l, 50).
 */
static void the_histogram_is_that_of_numpy(void **state)
{
    static const uint64_t expected[50] = {
        1,  0,  0,  0,  0,  0,  0,  0,  2,  0,   0,   0,   2,   0,   2,   0,  2,
        0,  2,  2,  4,  2,  4,  4,  4,  6,  8,   8,   8,   12,  12,  16,  18, 22,
        26, 30, 34, 42, 50, 58, 68, 82, 96, 112, 134, 158, 186, 220, 256, 307};
    static sonde_sketch sketch;
    float x[2000];
    double wide[2000];
    sonde_view views[2];
    sonde_histogram h;

    (void)state;
    for (int i = 0; i < 2000; i++) {
        x[i] = (float)(i * 7919 % 2003 - 1001) / 256.0F;
    }
    views[0] = flat(SONDE_F32, 700, x);
    views[1] = flat(SONDE_F32, 1300, x + 700);
    assert_int_equal(sonde_histogram_log2(views, 2, 50, &h, NULL), SONDE_OK);
    assert_int_equal(h.bins, 50);
    assert_true(h.lower == -10.0 && h.upper == log2(1001.0 / 256.0));
    assert_memory_equal(h.counts, expected, sizeof expected);
    for (int i = 0; i < 2000; i++) {
        wide[i] = (double)x[i];
    }
    views[1] = flat(SONDE_F64, 1300, wide + 700);
    alloc_failure_begin(0);
    assert_int_equal(sonde_histogram_log2(views, 2, 50, &h, NULL), SONDE_OK);
    sonde_sketch_init(&sketch);
    sonde_sketch_add(&sketch, &views[0]);
    sonde_sketch_add(&sketch, &views[1]);
    assert_int_equal(alloc_failure_count, 0);
    (void)alloc_failure_end();
    assert_memory_equal(h.counts, expected, sizeof expected);
}

static void powers_of_two_lie_on_their_edges(void **state)
{
    float x[8] = {1, 2, 4, -8, 16, NAN, INFINITY, 0.5F};
    const sonde_view view = flat(SONDE_F32, 8, x);
    static const uint64_t five[5] = {1, 1, 1, 1, 2};
    sonde_histogram h;

    (void)state;
    assert_int_equal(sonde_histogram_log2(&view, 1, 5, &h, NULL), SONDE_OK);
    assert_true(h.lower == -1.0 && h.upper == 4.0);
    assert_memory_equal(h.counts, five, sizeof five);
}

static void histograms_of_little_or_nothing(void **state)
{
    float x[3] = {0.0F, -0.0F, NAN};
    float one[2] = {4.0F, -4.0F};
    int32_t whole = 1;
    const sonde_view zeros = flat(SONDE_F32, 3, x), same = flat(SONDE_F32, 2, one);
    const sonde_view wrong = flat(SONDE_I32, 1, &whole);
    sonde_histogram h = {0};
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(sonde_histogram_log2(&zeros, 1, 4, &h, NULL), SONDE_OK);
    assert_true(h.lower == -2.5 && h.upper == -1.5 && h.counts[2] == 2);
    assert_int_equal(sonde_histogram_log2(&same, 1, 2, &h, NULL), SONDE_OK);
    assert_true(h.lower == 1.5 && h.upper == 2.5 && h.counts[1] == 2);
    assert_int_equal(sonde_histogram_log2(NULL, 0, 3, &h, NULL), SONDE_OK);
    assert_true(h.lower == 0.0 && h.upper == 1.0 && h.counts[0] == 0);
    assert_int_equal(sonde_histogram_log2(&zeros, 1, 0, &h, &diag), SONDE_EINVAL);
    assert_int_equal(sonde_histogram_log2(&zeros, 1, 513, &h, &diag), SONDE_EINVAL);
    assert_int_equal(h.bins, 3);
    assert_int_equal(sonde_histogram_log2(&wrong, 1, 5, &h, &diag), SONDE_EDTYPE);
    assert_non_null(strstr(diag.found, "int32"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bins_are_those_of_the_definition),
        cmocka_unit_test(bounds_hold_their_bins),
        cmocka_unit_test(counts_depend_on_values_alone),
        cmocka_unit_test(every_dtype_is_counted),
        cmocka_unit_test(magnitudes_beyond_float32_fall_in_the_outermost_bins),
        cmocka_unit_test(quantiles_keep_their_promise),
        cmocka_unit_test(the_histogram_is_that_of_numpy),
        cmocka_unit_test(powers_of_two_lie_on_their_edges),
        cmocka_unit_test(histograms_of_little_or_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

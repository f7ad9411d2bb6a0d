/*
 * Reductions: their names, and each of them against a dumber computation; of what was
 * kept and of the raw value, bit for bit.
 */
#include "alloc_failure.h"
#include "cmocka_all.h"

#include "base/macros.h"
#include "base/random.h"
#include "tensor/convert.h"
#include "tensor/reduction.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <sonde/error.h>

enum { MOST = 9000 };

static sonde_reduction named(const char *name)
{
    sonde_reduction reduction;

    assert_int_equal(sonde_reduction_parse(name, &reduction, NULL), SONDE_OK);
    return reduction;
}

static sonde_reduced reduced(const char *name, const sonde_view *view)
{
    const sonde_reduction reduction = named(name);
    sonde_reduced out = {0};

    assert_int_equal(sonde_reduce(&reduction, view, &out, NULL), SONDE_OK);
    assert_int_equal(out.how, SONDE_HOW_RAW);
    return out;
}

static sonde_view flat(sonde_dtype dtype, int64_t n, void *data)
{
    return sonde_view_of(dtype, 1, &n, data);
}

/* The same bits, or both NaN. */
static void assert_same(double a, double b)
{
    assert_true(memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b)));
}

static void names_are_understood(void **state)
{
    static const struct {
        const char *text;
        sonde_reduction_kind kind;
        sonde_stat stat;
        double q;
        bool absolute;
        unsigned evidence;
    } known[] = {
        {"Mean", SONDE_REDUCTION_STAT, SONDE_STAT_MEAN, 0, false, 19},
        {"abs_std", SONDE_REDUCTION_STAT, SONDE_STAT_ABS_STD, 0, false, 3},
        {"l2_norm", SONDE_REDUCTION_STAT, SONDE_STAT_L2, 0, false, 19},
        {"abs_sum", SONDE_REDUCTION_STAT, SONDE_STAT_L1, 0, false, 3},
        {"median", SONDE_REDUCTION_QUANTILE, 0, 0.5, false, 5},
        {"abs_median", SONDE_REDUCTION_QUANTILE, 0, 0.5, true, 5},
        {"p95", SONDE_REDUCTION_QUANTILE, 0, 0.95, false, 5},
        {"abs_p99.9", SONDE_REDUCTION_QUANTILE, 0, 0.999, true, 5},
        {"quantile:0.25", SONDE_REDUCTION_QUANTILE, 0, 0.25, false, 5},
        {"abs_quantile:1", SONDE_REDUCTION_QUANTILE, 0, 1.0, true, 5},
        {"prod", SONDE_REDUCTION_PROD, 0, 0, false, 1},
        {"abs_prod", SONDE_REDUCTION_PROD, 0, 0, true, 1},
        {"hash", SONDE_REDUCTION_HASH, 0, 0, false, 1},
    };
    sonde_reduction reduction;

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(known); i++) {
        reduction = named(known[i].text);
        assert_int_equal(reduction.kind, known[i].kind);
        assert_int_equal(reduction.stat, known[i].stat);
        assert_int_equal(reduction.absolute, known[i].absolute);
        assert_true(fabs(reduction.q - known[i].q) < 1e-15);
        assert_int_equal(sonde_reduction_evidence(&reduction), known[i].evidence);
        assert_int_equal(strcasecmp(reduction.name, known[i].text), 0);
    }
    for (int s = 0; s < SONDE_STAT_ENTRIES; s++) {
        const sonde_reduction stat = sonde_reduction_of_stat((sonde_stat)s);

        reduction = named(sonde_stat_name((sonde_stat)s));
        assert_memory_equal(&reduction.name, &stat.name, strlen(stat.name) + 1);
        assert_int_equal(reduction.stat, s);
    }
}

static void names_have_prefixes_or_are_refused(void **state)
{
    static const char *const prefixed[] = {
        "min",    "max", "mean",         "variance", "std",     "sum",
        "l1",     "l2",  "linf",         "l1_norm",  "l2_norm", "linf_norm",
        "median", "p5",  "quantile:0.5", "prod"};
    static const char *const wrong[] = {"",
                                        "p",
                                        "p101",
                                        "p-1",
                                        "p9x",
                                        "quantile:",
                                        "q",
                                        "mea",
                                        "quantile:2",
                                        "quantile:-0.1",
                                        "quantile:nan",
                                        "abs_hash",
                                        "abs_count",
                                        "abs_nan",
                                        "abs_pos_inf",
                                        "abs_neg_inf",
                                        "abs_zero",
                                        "abs_nonfinite",
                                        "pnan",
                                        "quantile:0.50000000000000000000000001"};
    sonde_reduction reduction = {.q = 7.0};
    sonde_diag diag = {0};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(prefixed); i++) {
        char text[32];

        (void)snprintf(text, sizeof text, "abs_%s", prefixed[i]);
        (void)named(text);
    }
    assert_int_equal(named("abs_linf_norm").stat, SONDE_STAT_LINF);
    for (size_t i = 0; i < SONDE_COUNT_OF(wrong); i++) {
        assert_int_equal(sonde_reduction_parse(wrong[i], &reduction, &diag),
                         SONDE_EINVAL);
        assert_true(reduction.q == 7.0 && diag.expected[0] != '\0');
    }
    assert_int_equal(sonde_reduction_parse("medain", &reduction, &diag), SONDE_EINVAL);
    assert_string_equal(diag.expected, "median");
}

static int ascending(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

/* The element of rank ceil(q n) of a sorted copy. */
static double sorted_quantile(const double *x, size_t n, double q, bool absolute)
{
    double *copy = calloc(n, sizeof *copy), result = 0.0;
    size_t rank = (size_t)ceil(q * (double)n);

    assert_non_null(copy);
    for (size_t i = 0; i < n; i++) {
        copy[i] = absolute ? fabs(x[i]) : x[i] + 0.0;
    }
    qsort(copy, n, sizeof *copy, ascending);
    rank = rank == 0 ? 1 : rank;
    result = copy[rank - 1];
    free(copy);
    return result;
}

static void quantiles_are_those_of_sorting(void **state)
{
    static const size_t counts[] = {1, 2, 3, 100, 4097, MOST};
    static const double shares[] = {0, 1e-9, 0.1, 0.25, 0.5, 0.95, 0.999, 1};
    static double x[MOST];
    static sonde_sketch sketch;

    (void)state;
    for (size_t c = 0; c < SONDE_COUNT_OF(counts); c++) {
        const sonde_view view = flat(SONDE_F64, (int64_t)counts[c], x);

        for (size_t i = 0; i < counts[c]; i++) {
            const double u = (double)sonde__below(1, c, i, 2000001) / 1e6 - 1.0;

            x[i] = i % 7 == 0 ? 0.0 : i % 11 == 0 ? -0.0 : i % 5 == 0 ? 0.25 : u * u * u;
        }
        if (counts[c] == MOST) {
            x[17] = (double)INFINITY;
            x[18] = x[19] = -(double)INFINITY;
        }
        sonde_sketch_init(&sketch);
        sonde_sketch_add(&sketch, &view);
        for (size_t s = 0; s < 2 * SONDE_COUNT_OF(shares); s++) {
            sonde_reduction reduction = {.kind = SONDE_REDUCTION_QUANTILE,
                                         .q = shares[s / 2],
                                         .absolute = s % 2 == 1};
            const double wanted =
                sorted_quantile(x, counts[c], reduction.q, reduction.absolute);
            sonde_reduced exact, near;

            assert_int_equal(sonde_reduce(&reduction, &view, &exact, NULL), SONDE_OK);
            assert_same(exact.number, wanted);
            sonde_reduce_sketch(&reduction, &sketch, &near);
            assert_int_equal(near.how, SONDE_HOW_SKETCH);
            assert_true(near.number == wanted ||
                        fabs(near.number - wanted) <= SONDE_SKETCH_ERROR * fabs(wanted));
        }
    }
}

static void what_is_not_finite_shows(void **state)
{
    double x[4] = {3.0, (double)INFINITY, -2.0, 0.5};
    const sonde_view view = flat(SONDE_F64, 4, x), none = flat(SONDE_F64, 0, x);

    (void)state;
    assert_true(reduced("median", &view).number == 0.5);
    assert_true(isinf(reduced("p100", &view).number));
    assert_true(reduced("abs_p0", &view).number == 0.5);
    assert_true(reduced("prod", &view).number < 0.0);
    assert_true(reduced("abs_prod", &view).number > 0.0);
    x[3] = (double)NAN;
    assert_true(isnan(reduced("median", &view).number));
    assert_true(isnan(reduced("prod", &view).number));
    assert_true(isnan(reduced("median", &none).number));
    assert_true(isnan(reduced("prod", &none).number));
    assert_true(reduced("count", &none).number == 0.0);
}

static void absolute_moments_are_those_of_absolute_values(void **state)
{
    double x[5] = {1.0, -2.0, 3.5, -0.25, 0.0}, size[5];
    const sonde_view view = flat(SONDE_F64, 5, x), sizes = flat(SONDE_F64, 5, size);

    (void)state;
    for (int i = 0; i < 5; i++) {
        size[i] = fabs(x[i]);
    }
    /* Five numbers of a magnitude near 1: a rounding or two of 2^-53. */
    assert_true(fabs(reduced("abs_variance", &view).number -
                     reduced("variance", &sizes).number) < 1e-15);
    assert_true(fabs(reduced("abs_std", &view).number - reduced("std", &sizes).number) <
                1e-15);
    x[0] = x[1] = x[2] = x[3] = x[4] = -0.1; /* rounding must not make a NaN of it */
    assert_true(reduced("abs_std", &view).number < 1e-8);
    x[0] = (double)INFINITY;
    assert_true(isnan(reduced("abs_std", &view).number));
}

/* For every dtype and reduction: of what a recorder keeps, and of the value, in pieces
 * too. */
static void kept_and_raw_agree_bit_for_bit(void **state)
{
    static const char *const names[] = {"median", "p90",  "abs_p10",
                                        "prod",   "hash", "abs_prod"};
    static _Alignas(16) unsigned char data[MOST * 16];
    static sonde_sketch sketch;

    (void)state;
    for (int d = 0; d < SONDE_DTYPE_COUNT; d++) {
        const sonde_dtype dtype = (sonde_dtype)d;
        const size_t size = sonde_dtype_size(dtype);
        const sonde_view view = flat(dtype, MOST, data);
        sonde_vitals vitals;

        for (size_t i = 0; i < MOST * size; i++) {
            data[i] = (unsigned char)sonde__below(2, (uint64_t)d, i, 256);
        }
        for (size_t i = 0; dtype == SONDE_BOOL && i < MOST; i++) {
            data[i] &= 1U;
        }
        sonde_vitals_of(&view, &vitals);
        sonde_sketch_init(&sketch);
        sonde_sketch_add(&sketch, &view);
        for (int s = 0; s < SONDE_STAT_ENTRIES; s++) {
            const sonde_reduction reduction = sonde_reduction_of_stat((sonde_stat)s);
            sonde_reduced kept, none;

            sonde_reduce_vitals(&reduction, &vitals, &kept);
            assert_int_equal(kept.how, SONDE_HOW_VITALS);
            assert_same(kept.number, reduced(reduction.name, &view).number);
            sonde_reduce_sketch(&reduction, &sketch, &none);
            assert_int_equal(none.how, 0);
        }
        for (size_t n = 0; n < SONDE_COUNT_OF(names); n++) {
            const sonde_reduction reduction = named(names[n]);
            const sonde_reduced whole = reduced(names[n], &view);
            const sonde_view parts[2] = {flat(dtype, 1000, data),
                                         flat(dtype, MOST - 1000, data + 1000 * size)};
            sonde__reducer reducer;
            sonde_reduced pieces;

            sonde__reducer_init(&reducer, &reduction);
            assert_int_equal(sonde__reducer_add(&reducer, &parts[0], NULL), SONDE_OK);
            assert_int_equal(sonde__reducer_add(&reducer, &parts[1], NULL), SONDE_OK);
            sonde__reducer_finish(&reducer, &pieces);
            sonde__reducer_fini(&reducer);
            assert_same(pieces.number, whole.number);
            assert_true(pieces.hash == whole.hash);
            sonde_reduce_vitals(&reduction, &vitals, &pieces);
            assert_int_equal(pieces.how, 0);
        }
        assert_true(reduced("hash", &view).hash == XXH3_64bits(data, MOST * size));
    }
}

static void strides_do_not_matter(void **state)
{
    static double x[60], turned[60];
    const int64_t shape[2] = {6, 10};
    sonde_view across = sonde_view_of(SONDE_F64, 2, shape, turned);
    const sonde_view plain = sonde_view_of(SONDE_F64, 2, shape, x);
    static const char *const names[] = {"prod", "median", "hash"};

    (void)state;
    across.stride[0] = 1;
    across.stride[1] = 6;
    for (int i = 0; i < 60; i++) {
        x[i] = 0.5 + (double)sonde__below(3, 0, (uint64_t)i, 1000) / 999.0;
        turned[i % 10 * 6 + i / 10] = x[i];
    }
    for (size_t n = 0; n < SONDE_COUNT_OF(names); n++) {
        assert_same(reduced(names[n], &across).number, reduced(names[n], &plain).number);
        assert_true(reduced(names[n], &across).hash == reduced(names[n], &plain).hash);
    }
}

/* A quantile allocates its keys once, the others nothing. */
static void quantiles_alone_allocate(void **state)
{
    static const char *const names[] = {"mean", "abs_std", "prod", "hash", "median"};
    static double x[MOST];
    const sonde_view view = flat(SONDE_F64, MOST, x);

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(names); i++) {
        const sonde_reduction reduction = named(names[i]);
        const bool allocates = reduction.kind == SONDE_REDUCTION_QUANTILE;
        sonde_reduced out = {0};
        sonde_err err = SONDE_OK;

        alloc_failure_begin(0);
        err = sonde_reduce(&reduction, &view, &out, NULL);
        assert_int_equal(alloc_failure_end(), 0);
        assert_int_equal(alloc_failure_count, allocates ? 1 : 0);
        assert_int_equal(err, allocates ? SONDE_ENOMEM : SONDE_OK);
        assert_int_equal(out.how, allocates ? 0 : SONDE_HOW_RAW);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_understood),
        cmocka_unit_test(names_have_prefixes_or_are_refused),
        cmocka_unit_test(quantiles_are_those_of_sorting),
        cmocka_unit_test(what_is_not_finite_shows),
        cmocka_unit_test(absolute_moments_are_those_of_absolute_values),
        cmocka_unit_test(kept_and_raw_agree_bit_for_bit),
        cmocka_unit_test(strides_do_not_matter),
        cmocka_unit_test(quantiles_alone_allocate),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

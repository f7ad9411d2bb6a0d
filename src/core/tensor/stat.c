/*
 * stat.c - the single numbers that vital signs give, and their names.
 */
#include "base/cpu.h"
#include "base/fail.h"
#include "base/point.h"
#include "tensor/vitals.h"

#include <sonde/error.h>
#include <sonde/stats.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>

static const char *const stat_names[SONDE_STAT_ENTRIES] = {
    [SONDE_STAT_COUNT] = "count",
    [SONDE_STAT_MIN] = "min",
    [SONDE_STAT_MAX] = "max",
    [SONDE_STAT_MEAN] = "mean",
    [SONDE_STAT_VARIANCE] = "variance",
    [SONDE_STAT_STD] = "std",
    [SONDE_STAT_SUM] = "sum",
    [SONDE_STAT_L1] = "l1",
    [SONDE_STAT_L2] = "l2",
    [SONDE_STAT_LINF] = "linf",
    [SONDE_STAT_ABS_MIN] = "abs_min",
    [SONDE_STAT_ABS_MAX] = "abs_max",
    [SONDE_STAT_ABS_MEAN] = "abs_mean",
    [SONDE_STAT_NAN] = "nan",
    [SONDE_STAT_POS_INF] = "pos_inf",
    [SONDE_STAT_NEG_INF] = "neg_inf",
    [SONDE_STAT_ZERO] = "zero",
    [SONDE_STAT_NONFINITE] = "nonfinite",
    [SONDE_STAT_ABS_VARIANCE] = "abs_variance",
    [SONDE_STAT_ABS_STD] = "abs_std",
};

const char *sonde_stat_name(sonde_stat stat)
{
    return (size_t)stat < SONDE_STAT_ENTRIES ? stat_names[stat] : NULL;
}

sonde_err sonde_stat_parse(const char *text, sonde_stat *stat, sonde_diag *diag)
{
    SONDE__NEEDS(diag, text, stat);

    for (size_t i = 0; i < SONDE_STAT_ENTRIES; i++) {
        if (sonde__strcasecmp(text, stat_names[i]) == 0) {
            *stat = (sonde_stat)i;
            return SONDE_OK;
        }
    }
    const char *nearest = sonde_diag_nearest(text, stat_names, SONDE_STAT_ENTRIES);
    return sonde__fail(diag, SONDE_EINVAL, "statistic",
                       nearest != NULL
                           ? nearest
                           : "count, min, max, mean, variance, std, sum, l1, l2, "
                             "linf, abs_min, abs_max, abs_mean, nan, pos_inf, "
                             "neg_inf, zero, nonfinite, abs_variance or abs_std",
                       "unknown statistic '%s'", text);
}

/* The counts are what they are; everything else is NaN of nothing and of a NaN. */
static bool get_count(const sonde_vitals *v, sonde_stat stat, double *out)
{
    const uint64_t nonfinite = v->nan + v->pos_inf + v->neg_inf;
    const uint64_t counts[SONDE_STAT_ENTRIES] = {
        [SONDE_STAT_COUNT] = v->count,     [SONDE_STAT_NAN] = v->nan,
        [SONDE_STAT_POS_INF] = v->pos_inf, [SONDE_STAT_NEG_INF] = v->neg_inf,
        [SONDE_STAT_ZERO] = v->zero,       [SONDE_STAT_NONFINITE] = nonfinite,
    };
    const uint32_t is_count = 1U << SONDE_STAT_COUNT | 1U << SONDE_STAT_NAN |
                              1U << SONDE_STAT_POS_INF | 1U << SONDE_STAT_NEG_INF |
                              1U << SONDE_STAT_ZERO | 1U << SONDE_STAT_NONFINITE;

    if ((size_t)stat >= SONDE_STAT_ENTRIES || (is_count >> stat & 1U) == 0) {
        return false;
    }
    *out = stat == SONDE_STAT_ZERO && sonde_vitals_are_norms(v) ? (double)NAN
                                                                : (double)counts[stat];
    return true;
}

bool sonde_stat_is_norm(sonde_stat stat)
{
    const uint32_t norms = 1U << SONDE_STAT_COUNT | 1U << SONDE_STAT_MEAN |
                           1U << SONDE_STAT_SUM | 1U << SONDE_STAT_L2 |
                           1U << SONDE_STAT_LINF | 1U << SONDE_STAT_ABS_MAX |
                           1U << SONDE_STAT_NAN | 1U << SONDE_STAT_POS_INF |
                           1U << SONDE_STAT_NEG_INF | 1U << SONDE_STAT_NONFINITE;

    return (size_t)stat < SONDE_STAT_ENTRIES && (norms >> stat & 1U) != 0;
}

/* A value that grows with every element: infinite if there are infinities, else x. */
static double with_both(const sonde_vitals *v, double x)
{
    const double inf = (double)INFINITY;

    if (v->pos_inf > 0 && v->neg_inf > 0) {
        return (double)NAN;
    }
    return v->pos_inf > 0 ? inf : v->neg_inf > 0 ? -inf : x;
}

static double with_either(const sonde_vitals *v, double x)
{
    return v->pos_inf + v->neg_inf > 0 ? (double)INFINITY : x;
}

/* Rounding may leave less than nothing where all |x| are alike. */
static double abs_variance(const sonde_vitals *v, double n)
{
    const double mean = v->l1 / n, variance = v->sumsq / n - mean * mean;

    if (v->pos_inf + v->neg_inf > 0) {
        return (double)NAN;
    }
    return variance < 0.0 ? 0.0 : variance;
}

/* No NaN, and something to speak of. Where all elements are infinite, the fields of the
 * finite ones are what an empty minimum or maximum is, which is right here too. */
static double get_value(const sonde_vitals *v, sonde_stat stat)
{
    const double n = (double)v->count, inf = (double)INFINITY;
    const bool infinite = v->pos_inf + v->neg_inf > 0;
    const double variance = infinite ? (double)NAN : v->m2 / n;

    switch (stat) {
    case SONDE_STAT_MIN:
        return v->neg_inf > 0 ? -inf : v->min;
    case SONDE_STAT_MAX:
        return v->pos_inf > 0 ? inf : v->max;
    case SONDE_STAT_MEAN:
        return with_both(v, v->mean);
    case SONDE_STAT_VARIANCE:
        return variance;
    case SONDE_STAT_STD:
        return sqrt(variance);
    case SONDE_STAT_SUM:
        return with_both(v, v->sum);
    case SONDE_STAT_L1:
        return with_either(v, v->l1);
    case SONDE_STAT_L2:
        return with_either(v, sqrt(v->sumsq));
    case SONDE_STAT_ABS_MIN:
        return v->abs_min;
    case SONDE_STAT_LINF:
    case SONDE_STAT_ABS_MAX:
        return with_either(v, v->abs_max);
    case SONDE_STAT_ABS_MEAN:
        return with_either(v, v->l1 / n);
    case SONDE_STAT_ABS_VARIANCE:
        return abs_variance(v, n);
    case SONDE_STAT_ABS_STD:
        return sqrt(abs_variance(v, n));
    case SONDE_STAT_COUNT:
    case SONDE_STAT_NAN:
    case SONDE_STAT_POS_INF:
    case SONDE_STAT_NEG_INF:
    case SONDE_STAT_ZERO:
    case SONDE_STAT_NONFINITE:
    default:
        return (double)NAN;
    }
}

double sonde_vitals_get(const sonde_vitals *vitals, sonde_stat stat)
{
    if (vitals == NULL) {
        return NAN;
    }
    double count = 0.0;

    if (get_count(vitals, stat, &count)) {
        return count;
    }
    if (vitals->count == 0 || vitals->nan > 0 ||
        (sonde_vitals_are_norms(vitals) && !sonde_stat_is_norm(stat))) {
        return (double)NAN;
    }
    return get_value(vitals, stat);
}

sonde_err sonde_isa_check(sonde_diag *diag)
{
    return sonde__cpu_isa_check(diag);
}

const sonde__vitals_kernels *sonde__vitals_kernels_of(sonde__isa isa)
{
#if defined(__x86_64__)
    if (isa == SONDE__AVX512) {
        return &sonde__vitals_avx512;
    }
    if (isa == SONDE__AVX2) {
        return &sonde__vitals_avx2;
    }
#endif
    (void)isa;
    return &sonde__vitals_generic;
}

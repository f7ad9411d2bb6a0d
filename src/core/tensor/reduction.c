/*
 * reduction.c - the table of reductions, and computing each from the records of a tensor;
 * hashes of values; the statistics of vital signs by name.
 *
 * Quantiles of raw values: every element becomes a 64-bit integer that sorts like the
 * element, and the one of the rank is found byte by byte from the top (radix selection):
 * a few passes for any values.
 */
#include "tensor/reduction.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/number.h"
#include "tensor/convert.h"
#include "base/cpu.h"
#include "tensor/vitals.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <stddef.h>
#include <stdint.h>
#include <sonde/error.h>
#include <sonde/stats.h>
#include <stdbool.h>

/* --- the table -------------------------------------------------------------------- */

/* Beyond the names of <sonde/stats.h>. */
static const struct row {
    const char *name;
    sonde_reduction_kind kind;
    sonde_stat stat;
    double q;
    bool absolute;
} rows[] = {
    {"median", SONDE_REDUCTION_QUANTILE, 0, 0.5, false},
    {"abs_median", SONDE_REDUCTION_QUANTILE, 0, 0.5, true},
    {"prod", SONDE_REDUCTION_PROD, 0, 0.0, false},
    {"abs_prod", SONDE_REDUCTION_PROD, 0, 0.0, true},
    {"hash", SONDE_REDUCTION_HASH, 0, 0.0, false},
    {"l1_norm", SONDE_REDUCTION_STAT, SONDE_STAT_L1, 0.0, false},
    {"l2_norm", SONDE_REDUCTION_STAT, SONDE_STAT_L2, 0.0, false},
    {"linf_norm", SONDE_REDUCTION_STAT, SONDE_STAT_LINF, 0.0, false},
    {"abs_sum", SONDE_REDUCTION_STAT, SONDE_STAT_L1, 0.0, false},
    {"abs_l1", SONDE_REDUCTION_STAT, SONDE_STAT_L1, 0.0, false},
    {"abs_l2", SONDE_REDUCTION_STAT, SONDE_STAT_L2, 0.0, false},
    {"abs_linf", SONDE_REDUCTION_STAT, SONDE_STAT_LINF, 0.0, false},
    {"abs_l1_norm", SONDE_REDUCTION_STAT, SONDE_STAT_L1, 0.0, false},
    {"abs_l2_norm", SONDE_REDUCTION_STAT, SONDE_STAT_L2, 0.0, false},
    {"abs_linf_norm", SONDE_REDUCTION_STAT, SONDE_STAT_LINF, 0.0, false},
};

unsigned sonde_reduction_evidence(const sonde_reduction *reduction)
{
    if (reduction == NULL) {
        return 0;
    }
    switch (reduction->kind) {
    case SONDE_REDUCTION_STAT:
        return SONDE_HOW_RAW | SONDE_HOW_VITALS |
               (sonde_stat_is_norm(reduction->stat) ? SONDE_HOW_NORMS : 0U);
    case SONDE_REDUCTION_QUANTILE:
        return SONDE_HOW_RAW | SONDE_HOW_SKETCH;
    case SONDE_REDUCTION_PROD:
    case SONDE_REDUCTION_HASH:
        break;
    }
    return SONDE_HOW_RAW;
}

sonde_reduction sonde_reduction_of_stat(sonde_stat stat)
{
    sonde_reduction reduction = {.kind = SONDE_REDUCTION_STAT, .stat = stat};
    const char *name = sonde_stat_name(stat);

    if (name != NULL) {
        memcpy(reduction.name, name, strlen(name) + 1);
    }
    return reduction;
}

/* All of text, a number from 0 to most. */
static bool parse_share(const char *text, double most, double *share)
{
    char *end = NULL;
    const double value = sonde__strtod(text, &end);

    if (!isdigit((unsigned char)text[0]) || *end != '\0' || !(value <= most)) {
        return false;
    }
    *share = value / most;
    return true;
}

/* "p95", "quantile:0.95"; *known: whether it is meant for one at all. */
static bool parse_quantile(const char *text, sonde_reduction *reduction, bool *known)
{
    static const char word[] = "quantile:", prefix[] = "abs_";

    reduction->kind = SONDE_REDUCTION_QUANTILE;
    reduction->absolute = sonde__strncasecmp(text, prefix, sizeof prefix - 1) == 0;
    text += reduction->absolute ? sizeof prefix - 1 : 0;
    if (sonde__strncasecmp(text, word, sizeof word - 1) == 0) {
        *known = true;
        return parse_share(text + sizeof word - 1, 1.0, &reduction->q);
    }
    *known = (text[0] == 'p' || text[0] == 'P') && isdigit((unsigned char)text[1]);
    return *known && parse_share(text + 1, 100.0, &reduction->q);
}

static sonde_err fail_unknown(const char *text, sonde_diag *diag)
{
    const char *names[SONDE_COUNT_OF(rows) + SONDE_STAT_ENTRIES], *nearest = NULL;
    size_t count = 0;

    for (size_t i = 0; i < SONDE_COUNT_OF(rows); i++) {
        names[count++] = rows[i].name;
    }
    for (int i = 0; i < SONDE_STAT_ENTRIES; i++) {
        names[count++] = sonde_stat_name((sonde_stat)i);
    }
    nearest = sonde_diag_nearest(text, names, count);
    return sonde__fail(diag, SONDE_EINVAL, "reductions",
                       nearest != NULL
                           ? nearest
                           : "count, min, max, mean, variance, std, sum, l1, l2, linf, "
                             "nan, pos_inf, neg_inf, zero, nonfinite, median, p95, "
                             "quantile:0.95, prod, hash or abs_...",
                       "unknown reduction '%s'", text);
}

sonde_err sonde_reduction_parse(const char *text, sonde_reduction *reduction,
                                sonde_diag *diag)
{
    SONDE__NEEDS(diag, text, reduction);
    const size_t length = strlen(text);
    sonde_reduction parsed = {.kind = SONDE_REDUCTION_STAT};
    bool quantile = false;

    if (length >= sizeof parsed.name) {
        return fail_unknown(text, diag);
    }
    if (parse_quantile(text, &parsed, &quantile)) {
        /* all is said */
    } else if (quantile) {
        return sonde__fail(diag, SONDE_EINVAL, "reductions",
                           "p0 to p100, or quantile:0 to quantile:1", "'%s'", text);
    } else if (sonde_stat_parse(text, &parsed.stat, NULL) == SONDE_OK) {
        parsed.kind = SONDE_REDUCTION_STAT;
        parsed.absolute = false;
    } else {
        size_t i = 0;

        while (i < SONDE_COUNT_OF(rows) && sonde__strcasecmp(text, rows[i].name) != 0) {
            i++;
        }
        if (i == SONDE_COUNT_OF(rows)) {
            return fail_unknown(text, diag);
        }
        parsed = (sonde_reduction){.kind = rows[i].kind,
                                   .stat = rows[i].stat,
                                   .q = rows[i].q,
                                   .absolute = rows[i].absolute};
    }
    for (size_t i = 0; i <= length; i++) {
        parsed.name[i] = (char)sonde__tolower((unsigned char)text[i]);
    }
    *reduction = parsed;
    return SONDE_OK;
}

/* --- of what was kept ------------------------------------------------------------- */

void sonde_reduce_vitals(const sonde_reduction *reduction, const sonde_vitals *vitals,
                         sonde_reduced *out)
{
    if (reduction == NULL || vitals == NULL || out == NULL) {
        return;
    }
    *out = (sonde_reduced){.how = 0};
    if (reduction->kind == SONDE_REDUCTION_STAT) {
        out->number = sonde_vitals_get(vitals, reduction->stat);
        out->how = !sonde_vitals_are_norms(vitals)       ? SONDE_HOW_VITALS
                   : sonde_stat_is_norm(reduction->stat) ? SONDE_HOW_NORMS
                                                         : 0U;
    }
}

/* n elements, without NaN. */
static uint64_t rank_of(double q, uint64_t n)
{
    const uint64_t rank = (uint64_t)ceil(q * (double)n);

    return SONDE_MIN(SONDE_MAX(rank, 1), n);
}

void sonde_reduce_sketch(const sonde_reduction *reduction, const sonde_sketch *sketch,
                         sonde_reduced *out)
{
    if (reduction == NULL || sketch == NULL || out == NULL) {
        return;
    }
    const bool absolute = reduction->absolute;
    const uint64_t below = absolute ? 0 : sketch->neg_inf;
    const uint64_t above = sketch->pos_inf + (absolute ? sketch->neg_inf : 0);

    *out = (sonde_reduced){.how = 0};
    if (reduction->kind != SONDE_REDUCTION_QUANTILE) {
        return;
    }
    out->how = SONDE_HOW_SKETCH;
    out->number = (double)NAN;
    if (sketch->nan > 0 || sketch->count == 0) {
        return;
    }
    const uint64_t rank = rank_of(reduction->q, sketch->count);
    if (rank <= below) {
        out->number = -(double)INFINITY;
    } else if (rank > sketch->count - above) {
        out->number = (double)INFINITY;
    } else {
        out->number = sonde__sketch_ranked(sketch, rank - below, absolute);
    }
}

/* --- of raw values ---------------------------------------------------------------- */

/* Sorts, as an unsigned number, as the double does. Zeros have no sign. */
static uint64_t key_of(double x)
{
    const uint64_t sign = UINT64_C(1) << 63;
    uint64_t bits = 0;

    x += 0.0;
    memcpy(&bits, &x, sizeof bits);
    return (bits & sign) != 0 ? ~bits : bits | sign;
}

static double of_key(uint64_t key)
{
    const uint64_t sign = UINT64_C(1) << 63;
    const uint64_t bits = (key & sign) != 0 ? key & ~sign : ~key;
    double x = 0.0;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The key of a rank, counted from 1; keys are moved about. */
static uint64_t select_key(uint64_t *keys, size_t n, size_t rank)
{
    for (unsigned shift = 56; n > 1; shift -= 8) {
        size_t counts[256] = {0}, kept = 0;
        unsigned byte = 0;

        for (size_t i = 0; i < n; i++) {
            counts[keys[i] >> shift & 255U]++;
        }
        while (rank > counts[byte]) {
            rank -= counts[byte++];
        }
        for (size_t i = 0; i < n; i++) {
            if ((keys[i] >> shift & 255U) == byte) {
                keys[kept++] = keys[i];
            }
        }
        n = shift == 0 ? 1 : kept; /* what is left is all the same */
    }
    return keys[0];
}

void sonde__reducer_init(sonde__reducer *reducer, const sonde_reduction *what)
{
    memset(reducer, 0, sizeof *reducer);
    reducer->what = what;
    reducer->product = 1.0;
    sonde_vitals_init(&reducer->vitals);
    sonde__hash_init(&reducer->hash);
}

static void add_numbers(sonde__reducer *reducer, const double *x, size_t n)
{
    const bool keep = reducer->what->kind == SONDE_REDUCTION_QUANTILE;

    for (size_t i = 0; i < n; i++) {
        const double value = reducer->what->absolute ? fabs(x[i]) : x[i];

        if (!keep) {
            reducer->product *= value;
        } else if (isnan(value)) {
            reducer->nan = true;
        } else {
            reducer->keys[reducer->count++] = key_of(value);
        }
    }
    reducer->count += keep ? 0 : n;
}

static sonde_err add_elements(sonde__reducer *reducer, const sonde_view *view,
                              sonde_diag *diag)
{
    enum { RUN = 512 };
    const size_t count = (size_t)sonde_view_count(view);
    _Alignas(SONDE__ELEMENT) unsigned char gathered[RUN * SONDE__ELEMENT];
    double numbers[RUN];
    const void *elements = NULL;
    sonde__tensor_cursor cursor;
    size_t n = 0;

    if (reducer->what->kind == SONDE_REDUCTION_QUANTILE &&
        !sonde__reserve(&reducer->keys, &reducer->capacity, reducer->count + count,
                        sizeof *reducer->keys)) {
        return sonde__fail_nomem(diag, "a quantile");
    }
    sonde__tensor_cursor_init(&cursor, view);
    while ((n = sonde__tensor_cursor_take(&cursor, RUN, gathered, &elements)) > 0) {
        sonde__tensor_load_f64(view->dtype, elements, n, numbers);
        add_numbers(reducer, numbers, n);
    }
    return SONDE_OK;
}

sonde_err sonde__reducer_add(sonde__reducer *reducer, const sonde_view *view,
                             sonde_diag *diag)
{
    sonde_vitals part;

    switch (reducer->what->kind) {
    case SONDE_REDUCTION_STAT:
        sonde_vitals_of(view, &part);
        if (reducer->count++ == 0) { /* its bits, where it is the only one */
            reducer->vitals = part;
        } else {
            sonde_vitals_merge(&reducer->vitals, &part);
        }
        return SONDE_OK;
    case SONDE_REDUCTION_HASH:
        sonde__hash_add(&reducer->hash, view);
        return SONDE_OK;
    case SONDE_REDUCTION_QUANTILE:
    case SONDE_REDUCTION_PROD:
        break;
    }
    return add_elements(reducer, view, diag);
}

void sonde__reducer_finish(sonde__reducer *reducer, sonde_reduced *out)
{
    const sonde_reduction *what = reducer->what;

    *out = (sonde_reduced){.number = (double)NAN, .how = SONDE_HOW_RAW};
    switch (what->kind) {
    case SONDE_REDUCTION_STAT:
        out->number = sonde_vitals_get(&reducer->vitals, what->stat);
        break;
    case SONDE_REDUCTION_HASH:
        out->number = 0.0;
        out->hash = sonde__hash_of(&reducer->hash);
        break;
    case SONDE_REDUCTION_PROD:
        out->number = reducer->count > 0 ? reducer->product : (double)NAN;
        break;
    case SONDE_REDUCTION_QUANTILE:
        if (!reducer->nan && reducer->count > 0) {
            out->number = of_key(select_key(reducer->keys, reducer->count,
                                            rank_of(what->q, reducer->count)));
        }
        break;
    }
}

void sonde__reducer_fini(sonde__reducer *reducer)
{
    sonde__free(reducer->keys);
    reducer->keys = NULL;
}

sonde_err sonde_reduce(const sonde_reduction *reduction, const sonde_view *view,
                       sonde_reduced *out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, reduction, view, out);
    const char *const fault = sonde__tensor_view_fault(view, true);
    sonde__reducer reducer;
    sonde_err err = SONDE_OK;

    if (fault != NULL) {
        return sonde__fail(diag, SONDE_EINVAL, reduction->name, "a tensor", "%s", fault);
    }

    sonde__reducer_init(&reducer, reduction);
    SONDE__TRY_DONE(sonde__reducer_add(&reducer, view, diag));
    sonde__reducer_finish(&reducer, out);

done:
    sonde__reducer_fini(&reducer);
    return err;
}

/* --- hash -------------------------------------------------------------------------- */

/* Hashes a view: directly if it is contiguous, else through a small buffer. */

enum { ROOM = 2048 /* bytes */ };

void sonde__hash_init(sonde__hash *hash)
{
    XXH3_INITSTATE(&hash->state);
    (void)XXH3_64bits_reset(&hash->state);
}

void sonde__hash_add(sonde__hash *hash, const sonde_view *view)
{
    const size_t size = sonde_dtype_size(view->dtype);
    const void *elements = NULL;
    sonde__tensor_cursor cursor;
    _Alignas(SONDE__ELEMENT) unsigned char room[ROOM];
    size_t n = 0;

    if (sonde_view_is_contiguous(view)) {
        (void)XXH3_64bits_update(&hash->state, view->data,
                                 (size_t)sonde_view_count(view) * size);
        return;
    }
    sonde__tensor_cursor_init(&cursor, view);
    while ((n = sonde__tensor_cursor_take(&cursor, ROOM / size, room, &elements)) > 0) {
        (void)XXH3_64bits_update(&hash->state, elements, n * size);
    }
}

uint64_t sonde__hash_of(const sonde__hash *hash)
{
    return XXH3_64bits_digest(&hash->state);
}

uint64_t sonde__hash_view(const sonde_view *view)
{
    sonde__hash hash;

    if (sonde_view_is_contiguous(view)) {
        return XXH3_64bits(view->data, (size_t)sonde_view_count(view) *
                                           sonde_dtype_size(view->dtype));
    }
    sonde__hash_init(&hash);
    sonde__hash_add(&hash, view);
    return sonde__hash_of(&hash);
}

/* --- stat -------------------------------------------------------------------------- */

/* The single numbers that vital signs give, and their names. */

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

/*
 * builtin_vitals.h - arithmetic on vital signs.
 */
#ifndef SONDE_RULES_BUILTIN_BUILTIN_VITALS_H
#define SONDE_RULES_BUILTIN_BUILTIN_VITALS_H

#include <sonde/stats.h>

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

static inline uint64_t sonde__builtin_finite(const sonde_vitals *v)
{
    return v->count - v->nan - v->pos_inf - v->neg_inf;
}

/* NaN and infinities. */
static inline uint64_t sonde__builtin_bad(const sonde_vitals *v)
{
    return v->nan + v->pos_inf + v->neg_inf;
}

static inline uint64_t sonde__builtin_nonzero(const sonde_vitals *v)
{
    return sonde__builtin_finite(v) - v->zero;
}

/* sqrt of the mean square of the finite elements; 0 if there is none. */
static inline double sonde__builtin_rms(const sonde_vitals *v)
{
    const uint64_t n = sonde__builtin_finite(v);

    return n > 0 ? sqrt(v->sumsq / (double)n) : 0.0;
}

/* Of the population of finite elements; 0 if there is none. */
static inline double sonde__builtin_variance(const sonde_vitals *v)
{
    const uint64_t n = sonde__builtin_finite(v);

    return n > 0 ? v->m2 / (double)n : 0.0;
}

/* True if all counts, extremes and sums are equal to the bit. */
static inline bool sonde__builtin_same_vitals(const sonde_vitals *a,
                                              const sonde_vitals *b)
{
    return a->count == b->count && a->nan == b->nan && a->pos_inf == b->pos_inf &&
           a->neg_inf == b->neg_inf && a->zero == b->zero && a->min == b->min &&
           a->max == b->max && a->l1 == b->l1 && a->sumsq == b->sumsq && a->sum == b->sum;
}

#endif

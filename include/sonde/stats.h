/*
 * stats.h - vital signs: statistics of a tensor from one pass.
 *
 * Counts of every kind of value, and the moments of the finite ones, accumulated in
 * double in a fixed order. Partial results merge.
 *
 * The fixed order: elements in row-major order are cut into blocks of 4096; within a
 * block they go to sixteen (sums: eight pairs of) interleaved lanes, which are added as
 * a tree; blocks are merged from first to last. In a block with NaN or infinities the
 * finite elements close up first. So the same elements in the same logical order give
 * the same bits, whatever the strides, the alignment and the instruction set; float16,
 * bfloat16, float8, bool and integers of 8 and 16 bits give those of the float32 array
 * with the same values, and complex numbers those of the float64 array of their absolute
 * values: one with a NaN in it is a NaN, unless its other part is infinite.
 *
 * A producer that delivers vital signs with its tensors may use another fixed order,
 * that of its memory. Counts and extremes are then those of sonde_vitals_of; sums agree
 * up to the rounding of additions in double; and the same run gives the same bits. The
 * engine does so for values over a batch; weights, gradients and updates use row-major
 * order.
 *
 * Precision: the mean and the sums have the rounding error of additions in double. m2 is
 * computed about the mean where necessary: with a mean of 1e4 and a deviation of 1e-3 it
 * keeps ten digits or more. Sums of float32 cannot overflow. Those of float64 can
 * (squares from 1.3e154 on): l1, sumsq and m2 are then +Inf, and sum and mean infinite
 * or NaN, although every element is finite. Integers of 64 bits are rounded to double
 * first.
 *
 * The reductions below follow IEEE 754: if the tensor has a NaN, its mean is NaN. The
 * fields below describe the finite elements in any case.
 *
 * Threads: calls share nothing; any number may run at once.
 */
#ifndef SONDE_STATS_H
#define SONDE_STATS_H

#include <sonde/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * All fields except the first four describe the finite elements. Zeros have no sign: an
 * extreme of -0 is reported as +0.
 *
 * Norms are the part of them that costs a third of the time: count, nan, pos_inf, neg_inf,
 * abs_max, mean, sumsq and sum. The other fields are absent then: zero is
 * SONDE_VITALS_ABSENT, and min, max, abs_min, m2 and l1 are NaN. sum and sumsq are added
 * in float32 within a block: their error is below 1e-5 of l1 and of sumsq, typically 1e-7.
 * Norms that a step has beside full vital signs are those of the vital signs.
 */
#define SONDE_VITALS_ABSENT UINT64_MAX
typedef struct sonde_vitals {
    uint64_t count;   /* all elements */
    uint64_t nan;     /* of them NaN */
    uint64_t pos_inf; /* +Inf */
    uint64_t neg_inf; /* -Inf */
    uint64_t zero;    /* +0 and -0 */
    double min;       /* +Inf if there is no finite element */
    double max;       /* -Inf if there is none */
    double abs_min;   /* +Inf if there is none */
    double abs_max;   /* -Inf if there is none */
    double mean;      /* 0 if there is none */
    double m2;        /* sum of (x - mean)^2 */
    double l1;        /* sum of |x| */
    double sumsq;     /* sum of x^2 */
    double sum;       /* sum of x; exact for integers while below 2^53 */
} sonde_vitals;

/* The vital signs of an empty tensor, to merge into. */
SONDE_API void sonde_vitals_init(sonde_vitals *vitals);
/* One pass over any view of any dtype; integers and bools count as numbers. Allocates
 * nothing; takes about 100 KB of stack. Cost: a contiguous float32 array at memory speed;
 * with AVX-512 from cache, about five cycles for 16 elements, and twice that in blocks of
 * 4096 with NaN, infinities or |mean| > 8 std. */
SONDE_API void sonde_vitals_of(const sonde_view *view, sonde_vitals *vitals);
/* The norms of a view, likewise. Cost: with AVX-512 from cache, about two cycles for 16
 * elements of a contiguous float32 array; other dtypes cost up to what vital signs cost.
 * A block of 4096 costs what its vital signs do if it holds NaN, infinities, magnitudes
 * above 2^50, or none from 2^-40 on. */
SONDE_API void sonde_norms_of(const sonde_view *view, sonde_vitals *norms);
/* Leaves the norms of vital signs. */
SONDE_API void sonde_norms_keep(sonde_vitals *vitals);
/* True if only the norms are there. */
SONDE_API inline bool sonde_vitals_are_norms(const sonde_vitals *vitals)
{
    return vitals->zero == SONDE_VITALS_ABSENT;
}
/* into := into + part, as if one pass had seen both (Chan, Golub and LeVeque 1979).
 * Norms, if either is.
 * Merging the vital signs of an array's blocks of 4096, in order, into an initialized one
 * gives the bits of one pass. */
SONDE_API void sonde_vitals_merge(sonde_vitals *into, const sonde_vitals *part);

/* The statistics that a reduction can name. */
typedef enum sonde_stat {
    SONDE_STAT_COUNT = 0,
    SONDE_STAT_MIN = 1,
    SONDE_STAT_MAX = 2,
    SONDE_STAT_MEAN = 3,
    SONDE_STAT_VARIANCE = 4, /* of the population: divided by n */
    SONDE_STAT_STD = 5,
    SONDE_STAT_SUM = 6,
    SONDE_STAT_L1 = 7,   /* sum of |x| */
    SONDE_STAT_L2 = 8,   /* sqrt of the sum of x^2 */
    SONDE_STAT_LINF = 9, /* max of |x| */
    SONDE_STAT_ABS_MIN = 10,
    SONDE_STAT_ABS_MAX = 11,
    SONDE_STAT_ABS_MEAN = 12,
    SONDE_STAT_NAN = 13,
    SONDE_STAT_POS_INF = 14,
    SONDE_STAT_NEG_INF = 15,
    SONDE_STAT_ZERO = 16,
    SONDE_STAT_NONFINITE = 17,
    SONDE_STAT_ABS_VARIANCE = 18, /* of |x|: mean of x^2 less the square of mean |x| */
    SONDE_STAT_ABS_STD = 19
} sonde_stat;
enum { SONDE_STAT_ENTRIES = 20 };

/* By IEEE 754: NaN in, NaN out, also for the extremes; an infinity makes the variance
 * NaN; for an empty tensor all but the counts are NaN. Absent statistics are NaN. */
SONDE_API double sonde_vitals_get(const sonde_vitals *vitals, sonde_stat stat);
/* True if norms have it. */
SONDE_API bool sonde_stat_is_norm(sonde_stat stat);
/* "mean", "abs_max" ...; NULL for an invalid one. */
SONDE_API const char *sonde_stat_name(sonde_stat stat);
/* Any case. Unknown: SONDE_EINVAL with the nearest name, or all of them. */
SONDE_API SONDE_CHECKED sonde_err sonde_stat_parse(const char *text, sonde_stat *stat,
                                                   sonde_diag *diag);

/* SONDE_EINVAL: SONDE_ISA in the environment, which caps the instruction set of kernels,
 * is none of generic, avx2, avx512, avx512_bf16 and amx_bf16. */
SONDE_API SONDE_CHECKED sonde_err sonde_isa_check(sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif

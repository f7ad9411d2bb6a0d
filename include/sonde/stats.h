/*
 * stats.h - vital signs: what one pass over a tensor tells.
 *
 * Counts of every kind of value, and the moments of the finite ones, accumulated in double
 * in a fixed order: the same elements in the same logical (row-major) order give the same
 * bits, whatever the strides, on one instruction set. Partial results merge.
 *
 * The reductions below follow IEEE 754: if the tensor holds a NaN, so does its mean. The
 * finite_ fields stay readable beside them, so one bad value does not blind the rest.
 */
#ifndef SONDE_STATS_H
#define SONDE_STATS_H

#include <sonde/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* All fields describe the finite elements but for the first four. */
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
} sonde_vitals;

/* The vital signs of nothing: what merging starts from. */
SONDE_API void sonde_vitals_init(sonde_vitals *vitals);
/* One pass over any view of any dtype; integers and bools are taken as numbers. Nothing is
 * allocated. Cost: a contiguous float32 array at memory speed. */
SONDE_API void sonde_vitals_of(const sonde_view *view, sonde_vitals *vitals);
/* into := into + part, as if one pass had seen both (Chan, Golub and LeVeque 1979). */
SONDE_API void sonde_vitals_merge(sonde_vitals *into, const sonde_vitals *part);

/* The single numbers that a reduction names. */
typedef enum sonde_stat {
    SONDE_STAT_COUNT = 0,
    SONDE_STAT_MIN = 1,
    SONDE_STAT_MAX = 2,
    SONDE_STAT_MEAN = 3,
    SONDE_STAT_VARIANCE = 4, /* of the population: divided by n */
    SONDE_STAT_STD = 5,
    SONDE_STAT_SUM = 6,
    SONDE_STAT_L1 = 7,       /* sum of |x| */
    SONDE_STAT_L2 = 8,       /* sqrt of the sum of x^2 */
    SONDE_STAT_LINF = 9,     /* max of |x| */
    SONDE_STAT_ABS_MIN = 10,
    SONDE_STAT_ABS_MAX = 11,
    SONDE_STAT_ABS_MEAN = 12,
    SONDE_STAT_NAN = 13,
    SONDE_STAT_POS_INF = 14,
    SONDE_STAT_NEG_INF = 15,
    SONDE_STAT_ZERO = 16,
    SONDE_STAT_NONFINITE = 17
} sonde_stat;
enum { SONDE_STAT_ENTRIES = 18 };

/* As IEEE 754 has it: NaN in, NaN out; of an empty tensor all but the counts are NaN. */
SONDE_API double sonde_vitals_get(const sonde_vitals *vitals, sonde_stat stat);
/* "mean", "abs_max" ...; NULL for no statistic. */
SONDE_API const char *sonde_stat_name(sonde_stat stat);
SONDE_API SONDE_CHECKED sonde_err sonde_stat_parse(const char *text, sonde_stat *stat,
                                                   sonde_diag *diag);

/* Which kernel vitals use: "generic", "avx2" or "avx512". SONDE_ISA in the environment
 * caps the choice. */
SONDE_API const char *sonde_isa_name(void);

#ifdef __cplusplus
}
#endif

#endif

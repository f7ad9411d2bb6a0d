/*
 * sketch.h - a mergeable histogram of magnitudes.
 *
 * One counter per (sign, binary exponent, top mantissa bits), zeros, NaN and both
 * infinities apart. The bin of a value depends on the value alone, so counts add up
 * exactly over batches, replicas and steps. Quantiles and log2 histograms from it have a
 * relative error of at most 2^-(SONDE_SKETCH_MANTISSA_BITS + 1).
 *
 * Range: 2^-149 ... 2^127 (that of float32, subnormals included). Magnitudes of wider
 * dtypes beyond it fall into the outermost bins.
 *
 * Threads: calls share nothing; one thread at a time for a sketch.
 */
#ifndef SONDE_SKETCH_H
#define SONDE_SKETCH_H

#include <sonde/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SONDE_SKETCH_MANTISSA_BITS = 2,
    SONDE_SKETCH_MIN_EXPONENT = -149,
    SONDE_SKETCH_MAX_EXPONENT = 127,
    SONDE_SKETCH_BINS = (127 + 149 + 1) << 2 /* per sign */
};

typedef struct sonde_sketch {
    uint64_t count; /* all elements */
    uint64_t nan, pos_inf, neg_inf, zero;
    uint64_t positive[SONDE_SKETCH_BINS]; /* ascending magnitude */
    uint64_t negative[SONDE_SKETCH_BINS]; /* ascending magnitude */
} sonde_sketch;

/* The largest relative error of a quantile from a sketch. */
#define SONDE_SKETCH_ERROR (1.0 / (1 << (SONDE_SKETCH_MANTISSA_BITS + 1)))

SONDE_API void sonde_sketch_init(sonde_sketch *sketch);
/* Adds every element of a view of any dtype. Allocates nothing; takes about 70 KB of
 * stack. Cost: about 1.5 cycles per element of float32, more with subnormals, infinities
 * or NaN, and about ten for 32-bit integers and wider dtypes. */
SONDE_API void sonde_sketch_add(sonde_sketch *sketch, const sonde_view *view);
SONDE_API void sonde_sketch_merge(sonde_sketch *into, const sonde_sketch *part);
/* Lower and upper magnitude of bin i: lower <= |x| < upper. NaN for an invalid bin. */
SONDE_API void sonde_sketch_bounds(int bin, double *lower, double *upper);
/* The value below which a share q (0 ... 1) of the finite elements lies: the middle of
 * the bin that holds the element of rank ceil(q n). NaN if there is none, or q is
 * out of range. */
SONDE_API double sonde_sketch_quantile(const sonde_sketch *sketch, double q);

/* A histogram with equal bins, as in numpy and matplotlib. */
typedef struct sonde_histogram {
    int bins;     /* entries of counts used */
    double lower; /* edge of the first bin */
    double upper; /* edge of the last bin, inclusive */
    uint64_t counts[512];
} sonde_histogram;

/*
 * The exact histogram of log2|x| over all elements of n views of float32 or float64.
 * lower and upper are the extremes. Zeros are counted at the smallest log2|x| minus two,
 * apart from the rest (lower is then that value; with zeros only, -2). A range of one
 * value is widened by a half on either side; without values it is 0 to 1. NaN and
 * infinities are not counted. bins is 1 ... 512, else SONDE_EINVAL; any other dtype is
 * SONDE_EDTYPE. Two passes, nothing allocated.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_histogram_log2(const sonde_view *views, size_t n,
                                                       int bins, sonde_histogram *out,
                                                       sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif

/*
 * sketch.c - the mergeable histogram of magnitudes, and exact histograms of log2|x|.
 *
 * A bin is the exponent and the upper mantissa bits of a float, so for a normal float32
 * it is the upper eleven bits, sign included, moved by a constant. Large runs are counted
 * raw into four tables in turn (equal values one after the other would wait for each
 * other in one table) that are added to the sketch at the end. Zeros, subnormals,
 * infinities and NaN share eight raw bins of each sign; a block that hits one of these is
 * gone through again, which is quick when they are all zeros.
 *
 *     float32   s eeeeeeee mm mmmmm...
 *               |----- raw bin -----|
 */
#include "tensor/reduction.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include "tensor/convert.h"

#include <math.h>
#include <string.h>

enum {
    BLOCK = 4096, /* elements at a time */
    SPLIT = 4,    /* tables */
    RAW_SHIFT = 23 - SONDE_SKETCH_MANTISSA_BITS,
    RAW_BINS = 1 << (32 - RAW_SHIFT),
    RAW_SIGN = RAW_BINS / 2, /* the raw bin of -0 */
    PER_EXPONENT = 1 << SONDE_SKETCH_MANTISSA_BITS,
    RAW_INFINITE = 255 * PER_EXPONENT, /* the first of infinities and NaN */
    /* Raw bin r, sign taken off, is bin r + RAW_OFFSET of the sketch. */
    RAW_OFFSET = (-127 - SONDE_SKETCH_MIN_EXPONENT) * PER_EXPONENT,
    FEW = 1024 /* elements that are not worth clearing tables for */
};

typedef struct raw_tables {
    uint32_t count[SPLIT][RAW_BINS];
    uint64_t special; /* in the bins of zeros, subnormals, infinities, NaN; seen so far */
} raw_tables;

void sonde_sketch_init(sonde_sketch *sketch)
{
    if (sketch == NULL) {
        return;
    }
    memset(sketch, 0, sizeof *sketch);
}

/* The bin of a finite magnitude that is not 0. */
static int bin_of(double size)
{
    uint64_t bits = 0;

    memcpy(&bits, &size, sizeof bits);
    const int exponent = (int)(bits >> 52) - 1023;
    if (exponent < SONDE_SKETCH_MIN_EXPONENT) {
        return 0;
    }
    if (exponent > SONDE_SKETCH_MAX_EXPONENT) {
        return SONDE_SKETCH_BINS - 1;
    }
    return (exponent - SONDE_SKETCH_MIN_EXPONENT) * PER_EXPONENT +
           (int)(bits >> (52 - SONDE_SKETCH_MANTISSA_BITS) & (PER_EXPONENT - 1));
}

static void add_one(sonde_sketch *sketch, double x)
{
    if (x == 0.0) {
        sketch->zero++;
    } else if (isfinite(x)) {
        (x > 0.0 ? sketch->positive : sketch->negative)[bin_of(fabs(x))]++;
    } else {
        sketch->nan += isnan(x) != 0;
        sketch->pos_inf += x > 0.0;
        sketch->neg_inf += x < 0.0;
    }
}

/* Those of a block's elements whose raw bins are not bins. */
static void add_special(sonde_sketch *sketch, const float *x, size_t n, uint64_t special)
{
    uint32_t zeros = 0;

    for (size_t i = 0; i < n; i++) {
        zeros += x[i] == 0.0F;
    }
    if (zeros == special) {
        sketch->zero += zeros;
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if (!isnormal(x[i])) {
            add_one(sketch, (double)x[i]);
        }
    }
}

static uint64_t count_special(const raw_tables *raw)
{
    uint64_t special = 0;

    for (int t = 0; t < SPLIT; t++) {
        for (int b = 0; b < PER_EXPONENT; b++) {
            special += raw->count[t][b];
            special += raw->count[t][RAW_SIGN + b];
            special += raw->count[t][RAW_INFINITE + b];
            special += raw->count[t][RAW_SIGN + RAW_INFINITE + b];
        }
    }
    return special;
}

/* One block of float32. Two elements to a load; the order of the tables is that of the
 * elements. */
static void add_block(sonde_sketch *sketch, raw_tables *raw, const float *x, size_t n)
{
    const uint64_t before = raw->special;
    size_t i = 0;

    for (; i + 4 <= n; i += 4) {
        uint64_t pair[2];

        memcpy(pair, x + i, sizeof pair);
        raw->count[0][pair[0] >> RAW_SHIFT & (RAW_BINS - 1)]++;
        raw->count[1][pair[0] >> (32 + RAW_SHIFT)]++;
        raw->count[2][pair[1] >> RAW_SHIFT & (RAW_BINS - 1)]++;
        raw->count[3][pair[1] >> (32 + RAW_SHIFT)]++;
    }
    for (; i < n; i++) {
        uint32_t bits = 0;

        memcpy(&bits, x + i, sizeof bits);
        raw->count[0][bits >> RAW_SHIFT]++;
    }
    raw->special = count_special(raw);
    if (raw->special != before) {
        add_special(sketch, x, n, raw->special - before);
    }
}

/* The tables' counts of normal numbers to the sketch, and the tables to zero. */
static void flush(sonde_sketch *sketch, raw_tables *raw)
{
    for (int b = PER_EXPONENT; b < RAW_INFINITE; b++) {
        for (int t = 0; t < SPLIT; t++) {
            sketch->positive[b + RAW_OFFSET] += raw->count[t][b];
            sketch->negative[b + RAW_OFFSET] += raw->count[t][RAW_SIGN + b];
        }
    }
    memset(raw, 0, sizeof *raw);
}

static void add_narrow(sonde_sketch *sketch, const sonde_view *view)
{
    enum { FLUSH = 1 << 18 }; /* blocks: 2^30 elements, which a uint32 counts */
    _Alignas(SONDE__ALIGN) unsigned char gathered[BLOCK * 4];
    float widened[BLOCK];
    raw_tables raw;
    const void *elements = NULL;
    sonde__tensor_cursor cursor;
    size_t n = 0, blocks = 0;

    memset(&raw, 0, sizeof raw);
    sonde__tensor_cursor_init(&cursor, view);
    while ((n = sonde__tensor_cursor_take(&cursor, BLOCK, gathered, &elements)) > 0) {
        if (view->dtype != SONDE_F32) {
            sonde__tensor_load_f32(view->dtype, elements, n, widened);
            elements = widened;
        }
        add_block(sketch, &raw, elements, n);
        if (++blocks % FLUSH == 0) {
            flush(sketch, &raw);
        }
    }
    flush(sketch, &raw);
}

static void add_one_by_one(sonde_sketch *sketch, const sonde_view *view)
{
    enum { RUN = 512 };
    _Alignas(SONDE__ELEMENT) unsigned char gathered[RUN * SONDE__ELEMENT];
    double wide[RUN];
    const void *elements = NULL;
    sonde__tensor_cursor cursor;
    size_t n = 0;

    sonde__tensor_cursor_init(&cursor, view);
    while ((n = sonde__tensor_cursor_take(&cursor, RUN, gathered, &elements)) > 0) {
        sonde__tensor_load_f64(view->dtype, elements, n, wide);
        for (size_t i = 0; i < n; i++) {
            add_one(sketch, wide[i]);
        }
    }
}

void sonde_sketch_add(sonde_sketch *sketch, const sonde_view *view)
{
    if (sketch == NULL || sonde__tensor_view_fault(view, true) != NULL) {
        return;
    }
    const int64_t count = sonde_view_count(view);

    sketch->count += (uint64_t)count;
    if (count > FEW && sonde__tensor_fits_f32(view->dtype)) {
        add_narrow(sketch, view);
    } else {
        add_one_by_one(sketch, view);
    }
}

void sonde_sketch_merge(sonde_sketch *into, const sonde_sketch *part)
{
    if (into == NULL || part == NULL) {
        return;
    }
    into->count += part->count;
    into->nan += part->nan;
    into->pos_inf += part->pos_inf;
    into->neg_inf += part->neg_inf;
    into->zero += part->zero;
    for (int b = 0; b < SONDE_SKETCH_BINS; b++) {
        into->positive[b] += part->positive[b];
        into->negative[b] += part->negative[b];
    }
}

void sonde_sketch_bounds(int bin, double *lower, double *upper)
{
    if (lower == NULL || upper == NULL) {
        return;
    }
    if (bin < 0 || bin >= SONDE_SKETCH_BINS) {
        *lower = *upper = (double)NAN;
        return;
    }
    const int exponent = bin / PER_EXPONENT + SONDE_SKETCH_MIN_EXPONENT;
    const int step = bin % PER_EXPONENT + PER_EXPONENT;

    *lower = ldexp(step, exponent - SONDE_SKETCH_MANTISSA_BITS);
    *upper = ldexp(step + 1, exponent - SONDE_SKETCH_MANTISSA_BITS);
}

static double middle_of(int bin)
{
    double lower = 0.0, upper = 0.0;

    sonde_sketch_bounds(bin, &lower, &upper);
    return (lower + upper) / 2.0;
}

double sonde__sketch_ranked(const sonde_sketch *sketch, uint64_t rank, bool absolute)
{
    uint64_t below = 0;

    for (int b = SONDE_SKETCH_BINS - 1; b >= 0 && !absolute; b--) {
        below += sketch->negative[b];
        if (below >= rank) {
            return -middle_of(b);
        }
    }
    below += sketch->zero;
    if (below >= rank) {
        return 0.0;
    }
    for (int b = 0; b < SONDE_SKETCH_BINS; b++) {
        below += sketch->positive[b] + (absolute ? sketch->negative[b] : 0);
        if (below >= rank) {
            return middle_of(b);
        }
    }
    return (double)NAN; /* counts that do not add up to count */
}

double sonde_sketch_quantile(const sonde_sketch *sketch, double q)
{
    if (sketch == NULL) {
        return NAN;
    }
    const uint64_t n = sketch->count - sketch->nan - sketch->pos_inf - sketch->neg_inf;

    if (n == 0 || !(q >= 0.0 && q <= 1.0)) {
        return (double)NAN;
    }
    const uint64_t rank = (uint64_t)ceil(q * (double)n);
    return sonde__sketch_ranked(sketch, SONDE_MIN(SONDE_MAX(rank, 1), n), false);
}

/* --- the exact histogram of log2|x| ----------------------------------------------- */

/*
 * Bins as in numpy.histogram: the bin of a value is computed from its share of the range
 * and then corrected by comparing with the edges, which are those of numpy.linspace.
 * Logarithms are taken in double.
 */
enum { RUN = 1024, MOST_BINS = 512 };

/* One step of a pass: n elements as doubles. */
typedef void pass_fn(void *state, const double *x, size_t n);

static void for_all(const sonde_view *views, size_t n, pass_fn *pass, void *state)
{
    _Alignas(8) unsigned char gathered[RUN * 8];
    double wide[RUN];

    for (size_t v = 0; v < n; v++) {
        const void *elements = NULL;
        sonde__tensor_cursor cursor;
        size_t run = 0;

        sonde__tensor_cursor_init(&cursor, &views[v]);
        while ((run = sonde__tensor_cursor_take(&cursor, RUN, gathered, &elements)) > 0) {
            sonde__tensor_load_f64(views[v].dtype, elements, run, wide);
            pass(state, wide, run);
        }
    }
}

typedef struct extremes {
    double least, most; /* magnitudes that are neither 0 nor infinite */
    uint64_t zeros;
} extremes;

static void find_extremes(void *state, const double *x, size_t n)
{
    extremes *e = state;

    for (size_t i = 0; i < n; i++) {
        const double size = fabs(x[i]);

        if (size == 0.0) {
            e->zeros++;
        } else if (isfinite(size)) {
            e->least = size < e->least ? size : e->least;
            e->most = size > e->most ? size : e->most;
        }
    }
}

static double edge(const sonde_histogram *h, int i)
{
    return i == h->bins
               ? h->upper
               : h->lower + (double)i * ((h->upper - h->lower) / (double)h->bins);
}

static void count_at(sonde_histogram *h, double value, uint64_t times)
{
    const double share = (value - h->lower) / (h->upper - h->lower);
    int bin = (int)(share * (double)h->bins);

    bin = SONDE_MIN(SONDE_MAX(bin, 0), h->bins - 1);
    if (value < edge(h, bin)) {
        bin = SONDE_MAX(bin - 1, 0);
    } else if (bin < h->bins - 1 && value >= edge(h, bin + 1)) {
        bin++;
    }
    h->counts[bin] += times;
}

static void count_logarithms(void *state, const double *x, size_t n)
{
    sonde_histogram *h = state;

    for (size_t i = 0; i < n; i++) {
        if (x[i] != 0.0 && isfinite(x[i])) {
            count_at(h, log2(fabs(x[i])), 1);
        }
    }
}

/* From least to most; zeros two below. One value alone gets half to either side, and
 * nothing at all gets 0 to 1, as in numpy. */
static void set_range(sonde_histogram *h, const extremes *e)
{
    const bool any = e->most > 0.0;

    h->lower = (any ? log2(e->least) : 0.0) - (e->zeros > 0 ? 2.0 : 0.0);
    h->upper = any ? log2(e->most) : e->zeros > 0 ? h->lower : 1.0;
    if (h->lower == h->upper) {
        h->lower -= 0.5;
        h->upper += 0.5;
    }
}

sonde_err sonde_histogram_log2(const sonde_view *views, size_t n, int bins,
                               sonde_histogram *out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, out);
    if (n > 0) {
        SONDE__NEEDS(diag, views);
    }
    extremes found = {.least = (double)INFINITY};

    if (bins < 1 || bins > MOST_BINS) {
        return sonde__fail(diag, SONDE_EINVAL, "histogram", "1 to 512", "%d bins", bins);
    }
    for (size_t v = 0; v < n; v++) {
        const char *const fault = sonde__tensor_view_fault(&views[v], true);

        if (fault != NULL) {
            return sonde__fail(diag, SONDE_EINVAL, "histogram", "tensors", "%s", fault);
        }
        if (views[v].dtype != SONDE_F32 && views[v].dtype != SONDE_F64) {
            return sonde__fail(diag, SONDE_EDTYPE, "histogram", "float32 or float64",
                               "a tensor of %s", sonde_dtype_name(views[v].dtype));
        }
    }
    for_all(views, n, find_extremes, &found);
    *out = (sonde_histogram){.bins = bins};
    set_range(out, &found);
    for_all(views, n, count_logarithms, out);
    if (found.zeros > 0) {
        const bool any = found.most > 0.0;

        count_at(out, any ? log2(found.least) - 2.0 : -2.0, found.zeros);
    }
    return SONDE_OK;
}

/*
 * histogram.c - the exact histogram of log2|x|, in equal bins.
 *
 * Bins as numpy.histogram has them: the place of a value is first computed from its share
 * of the range and then mended by comparing with the edges, which are those of
 * numpy.linspace. Logarithms are taken in double.
 */
#include "tensor/convert.h"
#include "base/fail.h"
#include "base/macros.h"

#include <sonde/sketch.h>

#include <math.h>

enum { RUN = 1024, MOST_BINS = 512 };

/* What a pass does with n elements as doubles. */
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
    extremes found = {.least = (double)INFINITY};

    if (bins < 1 || bins > MOST_BINS) {
        return sonde__fail(diag, SONDE_EINVAL, "histogram", "1 to 512", "%d bins", bins);
    }
    for (size_t v = 0; v < n; v++) {
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

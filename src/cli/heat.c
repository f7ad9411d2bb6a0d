/*
 * heat.c - see heat.h.
 */
#include "cli/heat.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_COLUMNS = 1000,
    PER_EXPONENT = 1 << SONDE_SKETCH_MANTISSA_BITS,
    EXPONENTS = SONDE_SKETCH_BINS / PER_EXPONENT,
    FEW = 1000,         /* octaves at the bottom with less than 1 / FEW are cut off */
    PRECISION = 1 << 12 /* of a share of a bin's count */
};

/* The columns, and counts of the elements that they do not show. */
typedef struct columns {
    sonde_histogram *histograms;
    int64_t *steps;
    size_t count;
    uint64_t exponents[EXPONENTS]; /* elements of each, of all steps */
    uint64_t elements, zeros, nonfinite;
    uint64_t below; /* elements too small to be drawn, */
    int floor;      /* in magnitude less than 2^floor */
} columns;

/* An empty column, which stays white. */
static sonde_histogram empty(void)
{
    return (sonde_histogram){.bins = 1, .lower = 0.0, .upper = 1.0};
}

static void find_exponents(const sonde_sketch *sketch, int *first, int *last)
{
    *first = SONDE_SKETCH_BINS / PER_EXPONENT;
    *last = -1;
    for (int bin = 0; bin < SONDE_SKETCH_BINS; bin++) {
        if (sketch->positive[bin] + sketch->negative[bin] > 0) {
            *first = bin / PER_EXPONENT < *first ? bin / PER_EXPONENT : *first;
            *last = bin / PER_EXPONENT;
        }
    }
}

/*
 * A sketch over log2|x|. The four bins of an octave are not equal there (0.32, 0.26, 0.22
 * and 0.19 wide); the histogram's are, so a bin's count is spread by overlap, in parts of
 * 1/4096: only shares are drawn.
 */
static void spread(const sonde_sketch *sketch, sonde_histogram *out)
{
    int first = 0, last = 0, per = PER_EXPONENT;

    find_exponents(sketch, &first, &last);
    *out = empty();
    if (last < first) {
        return; /* only zeros, or empty */
    }
    if ((last - first + 1) * per > (int)CLI_COUNT_OF(out->counts)) {
        per = 1;
    }
    out->bins = (last - first + 1) * per;
    out->lower = first + SONDE_SKETCH_MIN_EXPONENT;
    out->upper = last + 1 + SONDE_SKETCH_MIN_EXPONENT;
    for (int bin = first * PER_EXPONENT; bin < (last + 1) * PER_EXPONENT; bin++) {
        const uint64_t count = sketch->positive[bin] + sketch->negative[bin];
        const int base = (bin / PER_EXPONENT - first) * per;
        const double begin = log2(1.0 + (double)(bin % PER_EXPONENT) / PER_EXPONENT);
        const double end = log2(1.0 + (double)(bin % PER_EXPONENT + 1) / PER_EXPONENT);

        for (int i = 0; count > 0 && i < per; i++) {
            const double low = fmax(begin, (double)i / per);
            const double high = fmin(end, (double)(i + 1) / per);

            if (high > low) {
                out->counts[base + i] +=
                    count * (uint64_t)(PRECISION * (high - low) / (end - begin) + 0.5);
            }
        }
    }
}

/* Cuts off the lowest octaves, which contain few elements of all steps together. */
static void cut(columns *c)
{
    const uint64_t finite = c->elements - c->zeros - c->nonfinite;
    int e = 0;

    while (e < EXPONENTS && (c->below + c->exponents[e]) * FEW <= finite) {
        c->below += c->exponents[e++];
    }
    c->floor = e + SONDE_SKETCH_MIN_EXPONENT;
    for (size_t i = 0; i < c->count; i++) {
        sonde_histogram *h = &c->histograms[i];
        const int bins = (int)((double)h->bins * (c->floor - h->lower) /
                               (h->upper - h->lower)); /* whole octaves: exact */

        if (h->upper <= c->floor) {
            *h = empty();
        } else if (bins > 0) {
            h->bins -= bins;
            h->lower = c->floor;
            memmove(h->counts, h->counts + bins, (size_t)h->bins * sizeof h->counts[0]);
        }
    }
}

/* Chooses at most MOST_COLUMNS steps of the range, evenly spaced. */
static sonde_err choose_steps(sonde_trial *trial, uint32_t id, const cli_range *range,
                              columns *c, sonde_diag *diag)
{
    size_t all = 0, kept = 0;
    sonde_err err = sonde_trial_tensor_steps(
        trial, id, range->mode, SONDE_HOW_RAW | SONDE_HOW_SKETCH, &c->steps, &all, diag);

    if (err != SONDE_OK) {
        return err;
    }
    for (size_t i = 0; i < all; i++) {
        if (c->steps[i] >= range->begin &&
            (range->end == 0 || c->steps[i] < range->end)) {
            c->steps[kept++] = c->steps[i];
        }
    }
    c->count = kept < MOST_COLUMNS ? kept : MOST_COLUMNS;
    for (size_t i = 0; kept > c->count && i < c->count; i++) {
        c->steps[i] = c->steps[i * (kept - 1) / (c->count - 1)];
    }
    if (c->count == 0) {
        return cli_fail_nothing(trial, id, range, SONDE_HOW_RAW | SONDE_HOW_SKETCH, diag);
    }
    c->histograms = malloc(c->count * sizeof *c->histograms);
    return c->histograms != NULL ? SONDE_OK : cli_fail_memory(diag);
}

static void add_column(columns *c, const sonde_sketch *sketch, size_t i)
{
    spread(sketch, &c->histograms[i]);
    c->elements += sketch->count;
    c->zeros += sketch->zero;
    c->nonfinite += sketch->nan + sketch->pos_inf + sketch->neg_inf;
    for (int bin = 0; bin < SONDE_SKETCH_BINS; bin++) {
        c->exponents[bin / PER_EXPONENT] += sketch->positive[bin] + sketch->negative[bin];
    }
}

/* A damaged step, or one that the worker lacks, stays empty. */
static sonde_err read_columns(sonde_trial *trial, uint32_t id, const cli_range *range,
                              columns *c, size_t *left_out, sonde_diag *diag)
{
    sonde_sketch *sketch = malloc(sizeof *sketch);
    sonde_err err = SONDE_OK;

    if (sketch == NULL) {
        return cli_fail_memory(diag);
    }
    for (size_t i = 0; err == SONDE_OK && i < c->count; i++) {
        const sonde_trial_at at = {.mode = range->mode,
                                   .step = c->steps[i],
                                   .worker = range->worker,
                                   .micro_batch = -1,
                                   .replica = -1};
        char line[SONDE_DIAG_LINE];

        c->histograms[i] = empty();
        if (cli_interrupted()) {
            err = diag->err = SONDE_EINTERRUPTED;
        } else if (sonde_trial_has(trial, id, &at) & (SONDE_HOW_RAW | SONDE_HOW_SKETCH)) {
            err = sonde_trial_sketch(trial, id, &at, sketch, diag);
            if (err == SONDE_OK) {
                add_column(c, sketch, i);
            } else if (err == SONDE_EFORMAT || err == SONDE_EUNSUPPORTED) {
                cli_left_out(left_out, sonde_diag_line(diag, line, sizeof line));
                err = SONDE_OK;
            }
        }
    }
    free(sketch);
    return err;
}

/* Describes the elements that are not drawn. NULL: there are none. */
static const char *hidden(const columns *c, char *note, size_t size)
{
    size_t used = 0;

    if (c->zeros > 0) {
        used += (size_t)snprintf(note + used, size - used, ", %.3g %% zeros",
                                 100.0 * (double)c->zeros / (double)c->elements);
    }
    if (c->below > 0) {
        used +=
            (size_t)snprintf(note + used, size - used, ", %.3g %% below 2^%d",
                             100.0 * (double)c->below / (double)c->elements, c->floor);
    }
    if (c->nonfinite > 0) {
        used += (size_t)snprintf(note + used, size - used,
                                 ", %" PRIu64 " elements that are NaN or infinite",
                                 c->nonfinite);
    }
    return used > 0 ? note + 2 : NULL;
}

sonde_err cli_draw_heat(sonde_trial *trial, uint32_t id, const cli_range *range,
                        const char *x_label, const sonde_plot_page *page,
                        size_t *left_out, const char *path, sonde_diag *diag)
{
    columns c = {0};
    char what[160], note[192];
    sonde_err err = choose_steps(trial, id, range, &c, diag);

    if (err == SONDE_OK) {
        err = read_columns(trial, id, range, &c, left_out, diag);
    }
    if (err == SONDE_OK) {
        sonde_heatmap_plot plot = {.page = *page,
                                   .histograms = c.histograms,
                                   .steps = c.steps,
                                   .count = c.count,
                                   .x_label = x_label,
                                   .y_label = "log2 |x|",
                                   .median = true};

        cut(&c);
        if (hidden(&c, what, sizeof what) != NULL) {
            (void)snprintf(note, sizeof note, "Not drawn: %s",
                           hidden(&c, what, sizeof what));
            plot.page.note = note;
        }
        err = sonde_plot_heatmap(path, &plot, diag);
    }
    free(c.histograms);
    sonde_trial_free(c.steps);
    return err;
}

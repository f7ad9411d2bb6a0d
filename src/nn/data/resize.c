/*
 * resize.c - see pixels.h. Weights are 32 bit integers with 22 fraction bits: 8 bits of a
 * pixel and two of head room (bicubic weights overshoot) fill the rest.
 *
 *     scratch: | row weights | first | count | column weights | first | count | plane |
 */
#include "nn/data/pixels.h"
#include "base/macros.h"

#include <math.h>
#include <string.h>

enum { FRACTION_BITS = 22 };

/* Output i is the sum over j < count[i] of weights[i * taps + j] * input[first[i] +
 * j]. */
typedef struct filter_axis {
    int32_t *weights; /* (out, taps) */
    int32_t *first, *count;
    int in, out, taps;
} filter_axis;

static double triangle(double x)
{
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

/* Keys (1981) with a = -1/2. */
static double cubic(double x)
{
    const double a = -0.5;

    x = fabs(x);
    if (x < 1.0) {
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
    }
    return x < 2.0 ? (((x - 5.0) * x + 8.0) * x - 4.0) * a : 0.0;
}

static double support_of(sonde_nn_filter filter, int in, int out)
{
    const double scale = (double)in / (double)out;

    return (filter == SONDE_NN_BICUBIC ? 2.0 : 1.0) * fmax(scale, 1.0);
}

static int taps_of(sonde_nn_filter filter, int in, int out)
{
    return (int)ceil(support_of(filter, in, out)) * 2 + 1;
}

static size_t axis_bytes(sonde_nn_filter filter, int in, int out)
{
    const size_t words = (size_t)out * ((size_t)taps_of(filter, in, out) + 2);

    return (words * sizeof(int32_t) + 15) / 16 * 16;
}

size_t sonde__data_resize_scratch(const sonde__data_resize *sizes)
{
    return axis_bytes(sizes->filter, sizes->in_width, sizes->out_width) +
           axis_bytes(sizes->filter, sizes->in_height, sizes->out_height) +
           (size_t)sizes->in_height * (size_t)sizes->out_width;
}

/* Twice over the taps: their sum, then each as a share of it in fixed-point. */
static void weigh(const filter_axis *axis, int i, double center, double stretch,
                  sonde_nn_filter filter)
{
    double (*const shape)(double) = filter == SONDE_NN_BICUBIC ? cubic : triangle;
    int32_t *weights = axis->weights + (size_t)i * (size_t)axis->taps;
    double total = 0.0;

    for (int j = 0; j < axis->count[i]; j++) {
        total += shape((axis->first[i] + j - center + 0.5) * stretch);
    }
    for (int j = 0; j < axis->count[i]; j++) {
        const double share = shape((axis->first[i] + j - center + 0.5) * stretch) /
                             total * (double)(1 << FRACTION_BITS);

        weights[j] = (int32_t)(share < 0.0 ? share - 0.5 : share + 0.5);
    }
}

static void init_axis(filter_axis *axis, sonde_nn_filter filter, int in, int out,
                      void *room)
{
    const double scale = (double)in / (double)out;
    const double support = support_of(filter, in, out);

    axis->in = in;
    axis->out = out;
    axis->taps = taps_of(filter, in, out);
    axis->weights = room;
    axis->first = axis->weights + (size_t)out * (size_t)axis->taps;
    axis->count = axis->first + out;
    for (int i = 0; i < out; i++) {
        const double center = (i + 0.5) * scale;
        const int first = SONDE_MAX((int)(center - support + 0.5), 0);
        const int end = SONDE_MIN((int)(center + support + 0.5), in);

        axis->first[i] = first;
        axis->count[i] = end - first;
        weigh(axis, i, center, 1.0 / fmax(scale, 1.0), filter);
    }
}

static uint8_t to_byte(int32_t sum)
{
    const int32_t value = (sum + (1 << (FRACTION_BITS - 1))) >> FRACTION_BITS;

    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

static void resize_rows(const filter_axis *axis, int rows, const uint8_t *in,
                        uint8_t *out)
{
    for (int y = 0; y < rows; y++) {
        for (int i = 0; i < axis->out; i++) {
            const int32_t *weights = axis->weights + (size_t)i * (size_t)axis->taps;
            const uint8_t *from = in + axis->first[i];
            const int count = axis->count[i];
            int32_t sum = 0;

            for (int j = 0; j < count; j++) {
                sum += weights[j] * from[j];
            }
            out[i] = to_byte(sum);
        }
        in += axis->in;
        out += axis->out;
    }
}

/* A stripe of columns at a time, so that the sums stay in registers. */
static void resize_columns(const filter_axis *axis, int width, const uint8_t *in,
                           uint8_t *out)
{
    enum { STRIPE = 64 };

    for (int i = 0; i < axis->out; i++) {
        const int32_t *weights = axis->weights + (size_t)i * (size_t)axis->taps;

        for (int x = 0; x < width; x += STRIPE) {
            const int columns = SONDE_MIN(width - x, (int)STRIPE);
            int32_t sums[STRIPE] = {0};

            for (int j = 0; j < axis->count[i]; j++) {
                const uint8_t *row =
                    in + (size_t)(axis->first[i] + j) * (size_t)width + x;

                for (int c = 0; c < columns; c++) {
                    sums[c] += weights[j] * row[c];
                }
            }
            for (int c = 0; c < columns; c++) {
                out[(size_t)i * (size_t)width + (size_t)(x + c)] = to_byte(sums[c]);
            }
        }
    }
}

void sonde__data_resize_run(const sonde__data_resize *sizes, int planes,
                            const uint8_t *in, void *scratch, uint8_t *out)
{
    const size_t in_plane = (size_t)sizes->in_height * (size_t)sizes->in_width;
    const size_t out_plane = (size_t)sizes->out_height * (size_t)sizes->out_width;
    unsigned char *room = scratch;
    uint8_t *middle = room +
                      axis_bytes(sizes->filter, sizes->in_width, sizes->out_width) +
                      axis_bytes(sizes->filter, sizes->in_height, sizes->out_height);
    filter_axis rows, columns;

    init_axis(&rows, sizes->filter, sizes->in_width, sizes->out_width, room);
    init_axis(&columns, sizes->filter, sizes->in_height, sizes->out_height,
              room + axis_bytes(sizes->filter, sizes->in_width, sizes->out_width));
    for (int p = 0; p < planes; p++) {
        const uint8_t *from = in + (size_t)p * in_plane;
        uint8_t *to = out + (size_t)p * out_plane;

        if (sizes->in_width != sizes->out_width) {
            resize_rows(&rows, sizes->in_height, from, middle);
            from = middle;
        }
        if (sizes->in_height != sizes->out_height) {
            resize_columns(&columns, sizes->out_width, from, to);
        } else {
            memcpy(to, from, out_plane);
        }
    }
}

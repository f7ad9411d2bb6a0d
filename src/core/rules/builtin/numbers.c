/*
 * numbers.c - what built-in rules compute: elements of raw values, recent values, means.
 */
#include "rules/builtin/builtin.h"

#include "base/macros.h"

#include <stdlib.h>
#include <string.h>

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

void sonde__builtin_sort(double *values, size_t count)
{
    qsort(values, count, sizeof *values, by_size);
}

double sonde__builtin_least_change(const sonde_vitals *now, const sonde_vitals *before)
{
    const double n = (double)sonde__builtin_finite(now);
    const double by_norm = fabs(sqrt(now->sumsq) - sqrt(before->sumsq));
    const double by_mean = fabs(now->mean - before->mean) * sqrt(n);

    return fmax(by_norm, by_mean);
}

/* --- elements of raw values --------------------------------------------------------- */

sonde__builtin_reader sonde__builtin_read(const sonde_view *view)
{
    sonde__builtin_reader reader = {.dtype = view->dtype};

    sonde__tensor_cursor_init(&reader.cursor, view);
    return reader;
}

size_t sonde__builtin_next(sonde__builtin_reader *reader, double values[SONDE__CHUNK])
{
    uint64_t elements[SONDE__CHUNK];
    const void *block = NULL;
    const size_t n =
        sonde__tensor_cursor_take(&reader->cursor, SONDE__CHUNK, elements, &block);

    if (n > 0) {
        sonde__tensor_load_f64(reader->dtype, block, n, values);
    }
    return n;
}

size_t sonde__builtin_sample(const sonde_view *view, size_t most, double *out)
{
    const size_t all = (size_t)sonde_view_count(view),
                 size = sonde_dtype_size(view->dtype);
    const size_t count = SONDE_MIN(all, most);
    const size_t stride = count > 0 ? all / count : 1;
    sonde__builtin_reader reader = sonde__builtin_read(view);
    double chunk[SONDE__CHUNK];
    size_t used = 0;

    if (sonde_view_is_contiguous(view)) {
        for (size_t i = 0; i < count; i++) {
            const void *element = (const char *)view->data + i * stride * size;

            if (view->dtype == SONDE_F32) { /* may be unaligned */
                float value = 0.0F;

                memcpy(&value, element, sizeof value);
                out[i] = (double)value;
            } else {
                out[i] = sonde_element_get(view->dtype, element);
            }
        }
        return count;
    }
    for (size_t n = 1; used < count && n > 0; used += n) {
        n = SONDE_MIN(sonde__builtin_next(&reader, chunk), count - used);
        memcpy(out + used, chunk, n * sizeof *out);
    }
    return used;
}

size_t sonde__builtin_sample_first(const sonde_observation *observation, size_t most,
                                   double *out)
{
    return observation->view != NULL && observation->at.micro_batch == 0 &&
                   observation->at.replica == 0
               ? sonde__builtin_sample(observation->view, most, out)
               : 0;
}

/* --- recent values ------------------------------------------------------------------ */

static size_t kept(const sonde__builtin_recent *recent)
{
    return (size_t)SONDE_MIN(recent->count, (int64_t)SONDE__RECENT);
}

double sonde__builtin_recent_quantile(const sonde__builtin_recent *recent, double part)
{
    double sorted[SONDE__RECENT];
    const size_t count = kept(recent);

    memcpy(sorted, recent->value, sizeof sorted);
    sonde__builtin_sort(sorted, count);
    return count > 0 ? sorted[(size_t)(part * (double)count)] : 0.0;
}

double sonde__builtin_recent_median(const sonde__builtin_recent *recent)
{
    return sonde__builtin_recent_quantile(recent, 0.5);
}

double sonde__builtin_recent_mean(const sonde__builtin_recent *recent, int64_t most)
{
    const int64_t all = SONDE_MIN(recent->count, most);
    double sum = 0.0;

    for (int64_t i = 1; i <= all; i++) {
        sum += recent->value[(recent->count - i) % SONDE__RECENT];
    }
    return all > 0 ? sum / (double)all : (double)NAN;
}

bool sonde__builtin_recent_exceeds(const sonde__builtin_recent *recent, double factor,
                                   double value)
{
    const int count = (int)kept(recent);
    int below = 0;

    for (int i = 0; i < count; i++) {
        below += factor * recent->value[i] < value;
    }
    return below > count / 2;
}

void sonde__builtin_recent_take(sonde__builtin_recent *recent, double value)
{
    recent->value[recent->count++ % SONDE__RECENT] = value;
}

bool sonde__builtin_window_take(sonde__builtin_window *window, double value, int64_t size)
{
    window->sum += value;
    window->sumsq += value * value;
    if (++window->count < size) {
        return false;
    }
    const double n = (double)window->count, mean = window->sum / n;
    const double variance = fmax(window->sumsq / n - mean * mean, 0.0);

    *window = (sonde__builtin_window){.mean = mean, .error = sqrt(variance / n)};
    return true;
}

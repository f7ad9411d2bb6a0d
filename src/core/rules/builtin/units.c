/*
 * units.c - counting units that lie outside a range.
 */
#include "rules/builtin/units.h"
#include "rules/builtin/builtin.h"

#include "base/macros.h"
#include "base/memory.h"

#include <string.h>

bool sonde__builtin_units_make(sonde__builtin_units *units, int rank,
                               const int64_t *shape)
{
    const int64_t count = rank >= 2 ? shape[1] : 0;

    if (count == units->count) {
        return true;
    }
    sonde__builtin_units_free(units);
    if (count > 0) {
        units->outside = sonde__calloc((size_t)count, sizeof *units->outside);
        units->streak = sonde__calloc((size_t)count, sizeof *units->streak);
        if (units->outside == NULL || units->streak == NULL) {
            sonde__builtin_units_free(units);
            return false;
        }
    }
    units->count = count;
    return true;
}

void sonde__builtin_units_free(sonde__builtin_units *units)
{
    sonde__free(units->outside);
    sonde__free(units->streak);
    *units = (sonde__builtin_units){0};
}

/* Elements of one unit of one sample. */
static int64_t places(const sonde_view *view)
{
    int64_t count = 1;

    for (int i = 2; i < view->rank; i++) {
        count *= view->shape[i];
    }
    return count;
}

void sonde__builtin_units_pass(sonde__builtin_units *units, const sonde_view *view)
{
    units->samples += view->shape[0] * places(view);
    units->seen = true;
}

static uint32_t count_outside(const double *values, size_t count, double low, double high)
{
    uint32_t outside = 0;

    for (size_t i = 0; i < count; i++) {
        outside += (values[i] < low) | (values[i] > high);
    }
    return outside;
}

bool sonde__builtin_units_take(sonde__builtin_units *units, const sonde_view *view,
                               double low, double high)
{
    const int64_t inner = places(view);
    double values[SONDE__CHUNK];
    int64_t left = inner, unit = 0;

    if (view->rank < 2 || sonde_view_count(view) == 0) {
        return true;
    }
    if (!sonde__builtin_units_make(units, view->rank, view->shape)) {
        return false;
    }
    sonde__builtin_reader reader = sonde__builtin_read(view);
    for (size_t n = 0; (n = sonde__builtin_next(&reader, values)) > 0;) {
        for (size_t i = 0, run = 0; i < n; i += run) {
            run = SONDE_MIN((size_t)left, n - i);
            units->outside[unit] += count_outside(values + i, run, low, high);
            left -= (int64_t)run;
            if (left == 0) {
                left = inner;
                unit = unit + 1 < units->count ? unit + 1 : 0;
            }
        }
    }
    units->samples += view->shape[0] * inner;
    units->seen = true;
    return true;
}

double sonde__builtin_units_end(sonde__builtin_units *units, double percent, double layer,
                                int64_t patience)
{
    const double needed = percent / 100.0 * (double)units->samples;
    double sum = 0.0;
    int64_t lasting = 0, least = 0;

    if (!units->seen || units->count == 0) {
        return -1.0;
    }
    least = (SONDE__LEAST_SAMPLES + units->samples - 1) / units->samples;
    least = least > patience ? least : patience;
    for (int64_t i = 0; i < units->count; i++) {
        sum += units->outside[i];
    }
    if (sum < layer / 100.0 * (double)units->count * needed) {
        memset(units->streak, 0, (size_t)units->count * sizeof *units->streak);
    } else {
        for (int64_t i = 0; i < units->count; i++) {
            const bool counts = units->outside[i] >= needed;

            units->streak[i] = counts ? units->streak[i] + 1 : 0;
            lasting += units->streak[i] >= least;
        }
    }
    memset(units->outside, 0, (size_t)units->count * sizeof *units->outside);
    units->samples = 0;
    units->seen = false;
    return 100.0 * (double)lasting / (double)units->count;
}

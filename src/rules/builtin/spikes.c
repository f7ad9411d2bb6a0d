/*
 * spikes.c - the last values of a number.
 */
#include "rules/builtin/spikes.h"

#include "base/macros.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static size_t kept(const sonde__builtin_recent *recent)
{
    return (size_t)SONDE_MIN(recent->count, (int64_t)SONDE__RECENT);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double sonde__builtin_recent_quantile(const sonde__builtin_recent *recent, double part)
{
    double sorted[SONDE__RECENT];
    const size_t count = kept(recent);

    memcpy(sorted, recent->value, sizeof sorted);
    qsort(sorted, count, sizeof *sorted, by_size);
    return count > 0 ? sorted[(size_t)(part * (double)count)] : 0.0;
}

double sonde__builtin_recent_median(const sonde__builtin_recent *recent)
{
    return sonde__builtin_recent_quantile(recent, 0.5);
}

void sonde__builtin_recent_take(sonde__builtin_recent *recent, double value)
{
    recent->value[recent->count++ % SONDE__RECENT] = value;
}

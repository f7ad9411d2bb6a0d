/*
 * spikes.c - the last values of a number.
 */
#include "rules/spikes.h"

#include "base/base.h"

#include <stdlib.h>
#include <string.h>

static size_t kept(const sonde__recent *recent)
{
    return (size_t)SONDE_MIN(recent->count, (int64_t)SONDE__RECENT);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double sonde__recent_median(const sonde__recent *recent)
{
    double sorted[SONDE__RECENT];
    const size_t count = kept(recent);

    memcpy(sorted, recent->value, sizeof sorted);
    qsort(sorted, count, sizeof *sorted, by_size);
    return count > 0 ? sorted[count / 2] : 0.0;
}

void sonde__recent_take(sonde__recent *recent, double value)
{
    double *place = &recent->value[recent->count % SONDE__RECENT];
    const bool leaves = recent->count >= SONDE__RECENT && *place >= recent->ceiling;

    *place = value;
    recent->count++;
    if (leaves) {
        recent->ceiling = 0.0;
        for (size_t i = 0; i < kept(recent); i++) {
            recent->ceiling = SONDE_MAX(recent->ceiling, recent->value[i]);
        }
    }
    recent->ceiling = SONDE_MAX(recent->ceiling, value);
}

/*
 * spikes.h - what GradientSpike and LossSpike share: the last values of a number, and whether a
 * new one stands out.
 */
#ifndef SONDE_RULES_SPIKES_H
#define SONDE_RULES_SPIKES_H

#include <stdbool.h>
#include <stdint.h>

enum { SONDE__RECENT = 32 };

/* The last values, oldest overwritten. */
typedef struct sonde__recent {
    double value[SONDE__RECENT];
    int64_t count;  /* ever taken */
    double ceiling; /* the largest that is kept, at least 0 */
} sonde__recent;

void sonde__recent_take(sonde__recent *recent, double value);
/* Of those that are kept; 0 if there is none. */
double sonde__recent_median(const sonde__recent *recent);

#endif

/*
 * spikes.h - the last values of a number, for rules that ask whether a new one stands out.
 */
#ifndef SONDE_RULES_BUILTIN_SPIKES_H
#define SONDE_RULES_BUILTIN_SPIKES_H

#include <stdbool.h>
#include <stdint.h>

enum { SONDE__RECENT = 32 };

/* The last values, oldest overwritten. */
typedef struct sonde__builtin_recent {
    double value[SONDE__RECENT];
    int64_t count; /* ever taken */
} sonde__builtin_recent;

void sonde__builtin_recent_take(sonde__builtin_recent *recent, double value);
/* Of those that are kept; 0 if there is none. part: below 1. */
double sonde__builtin_recent_quantile(const sonde__builtin_recent *recent, double part);
double sonde__builtin_recent_median(const sonde__builtin_recent *recent);

#endif

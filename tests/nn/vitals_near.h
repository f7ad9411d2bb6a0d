/*
 * vitals_near.h - vital signs that differ by the order in which sums were added, and the
 * order of LANES.
 */
#ifndef SONDE_TESTS_NN_VITALS_NEAR_H
#define SONDE_TESTS_NN_VITALS_NEAR_H

#include "base/macros.h"

#include <sonde/stats.h>

#include <stdbool.h>
#include <stdint.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Counts and extremes are equal; sums of n doubles in some order are off by far less than
 * 1e-13 of what they add up in magnitude, m2 by 64 times that (see vitals.c). */
bool vitals_near(const sonde_vitals *a, const sonde_vitals *b);

/* Of a row-major array in the order of LANES: 16 samples side by side, the next element
 * of them, ... */
sonde_vitals vitals_in_lanes(sonde_dtype dtype, int64_t samples, int64_t inner,
                             const void *data);

/* What vitals describe, and so many zeros that there are count elements. */
sonde_vitals vitals_and_zeros(sonde_vitals vitals, int64_t count);

#endif

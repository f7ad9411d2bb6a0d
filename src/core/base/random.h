/*
 * random.h - counter-based random numbers. Internal.
 */
#ifndef SONDE_BASE_RANDOM_H
#define SONDE_BASE_RANDOM_H

#include <stdint.h>

#include <sonde/export.h>

/*
 * Philox4x32-10 (Salmon, Moraes, Dror and Shaw 2011): the i-th block of stream s under a
 * seed is a pure function of (seed, s, i), so threads and restarts change nothing.
 */
SONDE_API void sonde__philox(uint64_t seed, uint64_t stream, uint64_t index,
                             uint32_t out[4]);
/* Uniform in [0, 1) with 24 bits; uniform integer in [0, bound), unbiased. */
SONDE_API float sonde__uniform(uint64_t seed, uint64_t stream, uint64_t index);
SONDE_API uint64_t sonde__below(uint64_t seed, uint64_t stream, uint64_t index,
                                uint64_t bound);
/* Standard normal (Box and Muller 1958). */
SONDE_API float sonde__normal(uint64_t seed, uint64_t stream, uint64_t index);
/* A permutation of 0 ... count - 1 (Fisher and Yates), count entries at out. */
SONDE_API void sonde__permute(uint64_t seed, uint64_t stream, uint32_t count,
                              uint32_t *out);

#endif

/*
 * reduction.h - one reduction over several raw values, such as the micro-batches and
 * replicas of a step, which a reader gets one at a time; the hash of a value. Internal.
 *
 *     init, add each in order, finish; then fini in any case
 */
#ifndef SONDE_TENSOR_REDUCTION_H
#define SONDE_TENSOR_REDUCTION_H

#include <sonde/reduction.h>
#include <sonde/tensor.h>
#define XXH_STATIC_LINKING_ONLY /* for a hash state that needs no allocation */
#include <xxhash.h>
#include <sonde/sketch.h>
#include <stdbool.h>

/* --- hash -------------------------------------------------------------------------- */

/* A tensor's hash: XXH3 (64 bits, seed 0) of the elements' bytes in row-major
 * order, for any strides. One pass; allocates nothing. Internal. */

SONDE_API uint64_t sonde__hash_view(const sonde_view *view);

/* The hash of several views in sequence. */
typedef struct sonde__hash {
    XXH3_state_t state;
} sonde__hash;

void sonde__hash_init(sonde__hash *hash);
void sonde__hash_add(sonde__hash *hash, const sonde_view *view);
uint64_t sonde__hash_of(const sonde__hash *hash);

typedef struct sonde__reducer {
    sonde__hash hash;
    const sonde_reduction *what; /* borrowed */
    sonde_vitals vitals;
    double product;
    bool nan;
    uint64_t *keys; /* of a quantile: the elements as integers in the same order */
    size_t count, capacity;
} sonde__reducer;

SONDE_API void sonde__reducer_init(sonde__reducer *reducer, const sonde_reduction *what);
SONDE_API sonde_err sonde__reducer_add(sonde__reducer *reducer, const sonde_view *view,
                                       sonde_diag *diag);
SONDE_API void sonde__reducer_finish(sonde__reducer *reducer, sonde_reduced *out);
SONDE_API void sonde__reducer_fini(sonde__reducer *reducer);

/* --- sketch.c ---------------------------------------------------------------------------- */

/* The finite element of a rank, counted from 1 in ascending order of the elements or of
 * their absolute values: the middle of its bin. NaN if there is none. */
double sonde__sketch_ranked(const sonde_sketch *sketch, uint64_t rank, bool absolute);

#endif

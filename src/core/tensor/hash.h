/*
 * hash.h - a tensor's hash: XXH3 (64 bits, seed 0) of the elements' bytes in row-major
 * order, for any strides. One pass; allocates nothing. Internal.
 */
#ifndef SONDE_TENSOR_HASH_H
#define SONDE_TENSOR_HASH_H

#include <sonde/tensor.h>

#define XXH_STATIC_LINKING_ONLY /* for a hash state that needs no allocation */
#include <xxhash.h>

SONDE_API uint64_t sonde__hash_view(const sonde_view *view);

/* The hash of several views in sequence. */
typedef struct sonde__hash {
    XXH3_state_t state;
} sonde__hash;

void sonde__hash_init(sonde__hash *hash);
void sonde__hash_add(sonde__hash *hash, const sonde_view *view);
uint64_t sonde__hash_of(const sonde__hash *hash);

#endif

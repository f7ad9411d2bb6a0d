/*
 * hash.h - a tensor's content as 64 bits. Internal.
 */
#ifndef SONDE_OBSERVE_HASH_H
#define SONDE_OBSERVE_HASH_H

#include <sonde/tensor.h>

/* XXH3 (64 bits, seed 0) of the elements' bytes in row-major order, whatever the strides.
 * One pass, nothing allocated. */
SONDE_API uint64_t sonde__hash_view(const sonde_view *view);

#endif

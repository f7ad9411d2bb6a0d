/*
 * digest.h - XXH3 (64 bits, seed 0) of a block, with the widest vectors available.
 * Internal.
 */
#ifndef SONDE_RECORD_DIGEST_H
#define SONDE_RECORD_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#include <sonde/export.h>

uint64_t sonde__record_digest(const void *bytes, size_t size);

/* The same, one for each instruction set. */
uint64_t sonde__record_digest_generic(const void *bytes, size_t size);
uint64_t sonde__record_digest_avx2(const void *bytes, size_t size);
uint64_t sonde__record_digest_avx512(const void *bytes, size_t size);

#endif

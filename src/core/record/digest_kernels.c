/*
 * digest_kernels.c - xxHash's own code, compiled for one instruction set.
 */
#include "base/isa.h"
#include "record/record_tensors.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t ISA(sonde__record_digest)(const void *bytes, size_t size)
{
    return XXH3_64bits(bytes, size);
}

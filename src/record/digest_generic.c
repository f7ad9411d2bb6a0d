/*
 * digest_generic.c - xxHash's own code, compiled for one instruction set.
 */
#include "record/digest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t sonde__digest_generic(const void *bytes, size_t size)
{
    return XXH3_64bits(bytes, size);
}

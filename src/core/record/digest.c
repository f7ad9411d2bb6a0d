/*
 * digest.c - which of the digests this processor gets.
 */
#include "record/digest.h"

#include "base/cpu.h"

#include <stddef.h>
#include <stdint.h>

uint64_t sonde__record_digest(const void *bytes, size_t size)
{
#if defined(__x86_64__)
    switch (sonde__cpu_isa()) {
    case SONDE__AVX512:
        return sonde__record_digest_avx512(bytes, size);
    case SONDE__AVX2:
        return sonde__record_digest_avx2(bytes, size);
    case SONDE__GENERIC:
    default:
        break;
    }
#endif
    return sonde__record_digest_generic(bytes, size);
}

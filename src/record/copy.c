/*
 * copy.c - stores past the cache, where the processor has them.
 */
#include "record/copy.h"

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <emmintrin.h>

enum {
    LINE = 64,       /* bytes that leave the write-combining buffer as one */
    LEAST = 2 * 1024 /* below, the fence costs more than the cache loses */
};

void sonde__record_copy_past_cache(void *to, const void *from, size_t bytes)
{
    const size_t head = (size_t)(-(uintptr_t)to & (LINE - 1));
    unsigned char *out = to;
    const unsigned char *in = from;

    if (bytes < LEAST) {
        memcpy(to, from, bytes);
        return;
    }
    memcpy(out, in, head);
    out += head;
    in += head;
    bytes -= head;
    for (; bytes >= LINE; bytes -= LINE, out += LINE, in += LINE) {
        const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)in);
        const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(in + 16));
        const __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(in + 32));
        const __m128i d = _mm_loadu_si128((const __m128i *)(const void *)(in + 48));

        _mm_stream_si128((__m128i *)(void *)out, a);
        _mm_stream_si128((__m128i *)(void *)(out + 16), b);
        _mm_stream_si128((__m128i *)(void *)(out + 32), c);
        _mm_stream_si128((__m128i *)(void *)(out + 48), d);
    }
    memcpy(out, in, bytes);
    _mm_sfence(); /* such stores are not ordered by a release */
}

#else

void sonde__record_copy_past_cache(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

#endif

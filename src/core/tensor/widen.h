/*
 * widen.h - bfloat16 and float16 as float32: for kernel files, which are compiled once per
 * instruction set. NaN keeps its payload.
 */
#ifndef SONDE_TENSOR_WIDEN_H
#define SONDE_TENSOR_WIDEN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "tensor/convert.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

static inline void widen_bf16(const uint16_t *bits, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t wide = (uint32_t)bits[i] << 16;

        memcpy(out + i, &wide, sizeof wide);
    }
}

static inline void widen_f16(const uint16_t *bits, size_t n, float *out)
{
    size_t i = 0;

#if defined(__F16C__)
    for (; i + 8 <= n; i += 8) {
        __m128i half;

        memcpy(&half, bits + i, sizeof half);
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(half));
    }
#endif
    for (; i < n; i++) {
        out[i] = sonde__dtype_f16_to_f32(bits[i]);
    }
}

#endif

/*
 * norms_accum.h - norms of float32 in registers, for loops that have the numbers there
 * anyway. Internal; for *_kernels.c files only.
 *
 * Order of things. An array is cut into blocks of SONDE__VITALS_BLOCK elements and a block
 * into pairs of vectors of 16. Element l of a pair is added, and its square, to lane l of
 * 32 in float32; a multiply-add rounds once. At the end of a block lanes l and l + 16 are
 * added in double, then the sixteen as a tree (8 + 8, 4 + 4, 2 + 2, 1 + 1), and blocks are
 * added from first to last. So every instruction set comes to the same bits, and any loop
 * that keeps to these calls:
 *
 *     sonde__nacc acc;
 *     sonde__norms_sums sums;
 *
 *     sonde__nacc_init(&acc);
 *     for (; i + 32 <= n; i += 32) {
 *         ... two vectors made, w[0] and w[1] ...
 *         sonde__nacc_add(&acc, 0, w[0]);
 *         sonde__nacc_add(&acc, 1, w[1]);
 *     }
 *     sonde__nacc_tail(&acc, elements + i, n - i);
 *     sonde__nacc_close(&acc, &sums);
 *     sonde__norms_take(&norms, &sums, elements, n);
 *
 * take reads the block's memory again where float32 cannot hold the squares, or an element
 * is not finite (sonde__norms_is_plain). The memory must then hold what was added.
 *
 * Cost: 3 vector operations for 16 elements with AVX-512, 4 with AVX2.
 */
#ifndef SONDE_TENSOR_NORMS_ACCUM_H
#define SONDE_TENSOR_NORMS_ACCUM_H

#include "tensor/vitals_accum.h"

#if defined(__AVX512F__) && defined(__AVX512DQ__)

typedef struct sonde__nacc {
    __m512 sum[2], sumsq[2], most[2];
} sonde__nacc;

static inline void sonde__nacc_init(sonde__nacc *a)
{
    for (int half = 0; half < 2; half++) {
        a->sum[half] = _mm512_setzero_ps();
        a->sumsq[half] = _mm512_setzero_ps();
        a->most[half] = _mm512_setzero_ps();
    }
}

/* Vector `half` of a pair. */
static inline void sonde__nacc_add(sonde__nacc *a, int half, sonde__tensor_v16 v)
{
    a->sum[half] = _mm512_add_ps(a->sum[half], v);
    a->sumsq[half] = _mm512_fmadd_ps(v, v, a->sumsq[half]);
    a->most[half] = _mm512_range_ps(a->most[half], v, 0xB); /* the larger magnitude */
}

static inline void sonde__nacc_add_at(sonde__nacc *a, int half, const float *p)
{
    sonde__nacc_add(a, half, _mm512_loadu_ps(p));
}

/* The last n < 32 elements of a block, in memory. Missing lanes are zeros. */
static inline void sonde__nacc_tail(sonde__nacc *a, const float *p, size_t n)
{
    const uint32_t live = (1U << n) - 1U;

    if (n == 0) {
        return;
    }
    sonde__nacc_add(a, 0, _mm512_maskz_loadu_ps((__mmask16)live, p));
    if (n > 16) {
        sonde__nacc_add(a, 1, _mm512_maskz_loadu_ps((__mmask16)(live >> 16), p + 16));
    }
}

static inline double sonde__nacc_tree(const __m512 lanes[2])
{
    const __m512d low = _mm512_add_pd(_mm512_cvtps_pd(_mm512_castps512_ps256(lanes[0])),
                                      _mm512_cvtps_pd(_mm512_castps512_ps256(lanes[1])));
    const __m512d high =
        _mm512_add_pd(_mm512_cvtps_pd(_mm512_extractf32x8_ps(lanes[0], 1)),
                      _mm512_cvtps_pd(_mm512_extractf32x8_ps(lanes[1], 1)));

    return sonde__vacc_tree(_mm512_add_pd(low, high));
}

/* The sums of a block. */
static inline void sonde__nacc_close(const sonde__nacc *a, sonde__norms_sums *out)
{
    const __m512 most = _mm512_range_ps(a->most[0], a->most[1], 0xB);

    out->most =
        sonde__vacc_value((uint32_t)_mm512_reduce_max_epu32(_mm512_castps_si512(most)));
    out->sum = sonde__nacc_tree(a->sum);
    out->sumsq = sonde__nacc_tree(a->sumsq);
}

#elif defined(__AVX2__) && defined(__FMA__)

/* Lanes 8q to 8q + 7 of the first vector are in [q], those of the second in [2 + q]. */
typedef struct sonde__nacc {
    __m256 sum[4], sumsq[4], most[2];
} sonde__nacc;

static inline void sonde__nacc_init(sonde__nacc *a)
{
    for (int q = 0; q < 4; q++) {
        a->sum[q] = _mm256_setzero_ps();
        a->sumsq[q] = _mm256_setzero_ps();
        a->most[q / 2] = _mm256_setzero_ps();
    }
}

/* Vector `half` of a pair. */
static inline void sonde__nacc_add(sonde__nacc *a, int half, sonde__tensor_v16 v)
{
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(INT32_MAX));

    for (int q = 0; q < 2; q++) {
        const __m256 x = v.half[q];

        a->sum[2 * half + q] = _mm256_add_ps(a->sum[2 * half + q], x);
        a->sumsq[2 * half + q] = _mm256_fmadd_ps(x, x, a->sumsq[2 * half + q]);
        a->most[q] = _mm256_max_ps(a->most[q], _mm256_and_ps(x, magnitude));
    }
}

static inline void sonde__nacc_add_at(sonde__nacc *a, int half, const float *p)
{
    sonde__nacc_add(a, half, sonde__tensor_v16_load(p));
}

/* The last n < 32 elements of a block, in memory. Missing lanes are zeros. */
static inline void sonde__nacc_tail(sonde__nacc *a, const float *p, size_t n)
{
    float padded[32] = {0.0F};

    if (n == 0) {
        return;
    }
    memcpy(padded, p, n * sizeof *p);
    sonde__nacc_add_at(a, 0, padded);
    sonde__nacc_add_at(a, 1, padded + 16);
}

static inline __m256d sonde__nacc_quarter(__m128 first, __m128 second)
{
    return _mm256_add_pd(_mm256_cvtps_pd(first), _mm256_cvtps_pd(second));
}

static inline double sonde__nacc_tree(const __m256 lanes[4])
{
    __m256d sums[4]; /* lanes 4q to 4q + 3 of sixteen */

    for (int q = 0; q < 2; q++) {
        sums[2 * q] = sonde__nacc_quarter(_mm256_castps256_ps128(lanes[q]),
                                          _mm256_castps256_ps128(lanes[2 + q]));
        sums[2 * q + 1] = sonde__nacc_quarter(_mm256_extractf128_ps(lanes[q], 1),
                                              _mm256_extractf128_ps(lanes[2 + q], 1));
    }
    return sonde__vacc_tree(_mm256_add_pd(sums[0], sums[2]),
                            _mm256_add_pd(sums[1], sums[3]));
}

/* The sums of a block. */
static inline void sonde__nacc_close(const sonde__nacc *a, sonde__norms_sums *out)
{
    float most[8];

    _mm256_storeu_ps(most, _mm256_max_ps(a->most[0], a->most[1]));
    for (int l = 1; l < 8; l++) {
        most[0] = most[l] > most[0] ? most[l] : most[0];
    }
    out->most = (double)most[0];
    out->sum = sonde__nacc_tree(a->sum);
    out->sumsq = sonde__nacc_tree(a->sumsq);
}

#else /* any C compiler */

#include <math.h>

typedef struct sonde__nacc {
    float sum[32], sumsq[32], most[32];
} sonde__nacc;

static inline void sonde__nacc_init(sonde__nacc *a)
{
    memset(a, 0, sizeof *a);
}

/*
 * x x + sum, rounded once, sum not below 0. In double the product is exact; the sum is
 * rounded to odd, which keeps what the rounding to float32 has to know (Boldo and
 * Melquiond 2008).
 */
static inline float sonde__nacc_square(float x, float sum)
{
    const double product = (double)x * (double)x, base = (double)sum;
    double total = product + base, back = total - product, lost;
    uint64_t bits = 0;

    lost = (product - (total - back)) + (base - back);
    memcpy(&bits, &total, sizeof bits);
    bits -= lost < 0.0;
    bits |= lost != 0.0;
    memcpy(&total, &bits, sizeof total);
    return (float)total;
}

/* Vector `half` of a pair, in memory. */
static inline void sonde__nacc_add_at(sonde__nacc *a, int half, const float *p)
{
    for (int l = 0; l < 16; l++) {
        const float x = p[l], size = fabsf(x);
        const int lane = 16 * half + l;

        a->sum[lane] += x;
        a->sumsq[lane] = sonde__nacc_square(x, a->sumsq[lane]);
        a->most[lane] = size > a->most[lane] ? size : a->most[lane];
    }
}

static inline void sonde__nacc_add(sonde__nacc *a, int half, sonde__tensor_v16 v)
{
    sonde__nacc_add_at(a, half, v.lane);
}

/* The last n < 32 elements of a block, in memory. Missing lanes are zeros. */
static inline void sonde__nacc_tail(sonde__nacc *a, const float *p, size_t n)
{
    float padded[32] = {0.0F};

    for (size_t l = 0; l < n; l++) {
        padded[l] = p[l];
    }
    sonde__nacc_add_at(a, 0, padded);
    sonde__nacc_add_at(a, 1, padded + 16);
}

static inline double sonde__nacc_tree(const float *lanes)
{
    double sums[16];

    for (int l = 0; l < 16; l++) {
        sums[l] = (double)lanes[l] + (double)lanes[l + 16];
    }
    for (int l = 0; l < 8; l++) {
        sums[l] += sums[l + 8];
    }
    return sonde__vacc_tree(sums);
}

/* The sums of a block. */
static inline void sonde__nacc_close(const sonde__nacc *a, sonde__norms_sums *out)
{
    float most = 0.0F;

    for (int l = 0; l < 32; l++) {
        most = a->most[l] > most ? a->most[l] : most;
    }
    out->most = (double)most;
    out->sum = sonde__nacc_tree(a->sum);
    out->sumsq = sonde__nacc_tree(a->sumsq);
}
#endif

#endif

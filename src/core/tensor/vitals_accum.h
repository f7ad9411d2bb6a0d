/*
 * vitals_accum.h - vital signs of float32 in registers, for loops that have the numbers
 * there anyway. Internal; for *_kernels.c files only.
 *
 * Order of things. An array is cut into blocks of SONDE__VITALS_BLOCK elements, the last
 * one shorter, and a block into vectors of 16. Elements l and l + 8 of a vector are added
 * in double, and that to lane l of eight (sum, and l1 of magnitudes); squares go to
 * sixteen lanes. The lanes are added as a tree (8 + 8, 4 + 4, 2 + 2, 1 + 1), and blocks
 * are merged from first to last. A float32 squared is exact in double, so contraction
 * changes nothing, and every instruction set comes to the same bits. So does any loop
 * that keeps to these calls:
 *
 *     sonde_vitals vitals;
 *     sonde_vitals_init(&vitals);
 *     for (size_t start = 0; start < count; start += SONDE__VITALS_BLOCK) {
 *         const size_t n = min(count - start, SONDE__VITALS_BLOCK);
 *         sonde__vacc acc;
 *         sonde__vitals_sums sums;
 *         size_t i = 0;
 *
 *         sonde__vacc_init(&acc);
 *         for (; i + 16 <= n; i += 16) {
 *             sonde__tensor_v16 w = ... ;                      the new weights, in registers
 *             sonde__vacc_add(&acc, w);
 *             store(weights + start + i, w);
 *         }
 *         ... update the last n - i weights as scalars, in memory ...
 *         sonde__vacc_tail(&acc, weights + start + i, n - i);
 *         sonde__vacc_close(&acc, &sums);
 *         sonde__vitals_take(&vitals, &sums, weights + start, n);
 *     }
 *
 * vitals is then, bit for bit, what sonde_vitals_of says of the array. Blocks are
 * independent up to the take: threads may close whole blocks each, if the takes are made
 * in the order of the blocks, or if each block is taken into an initialized sonde_vitals
 * of its own and those are merged, in that order, into an initialized one.
 *
 * Nothing here asks whether a number is finite. A NaN or an infinity makes sumsq NaN or
 * infinite, which finite float32 cannot do; take then reads the block's memory again and
 * sorts it out, as it does when |mean| is so large against the deviation that the sum of
 * squares has lost it. Nor are zeros counted: take does it, of the blocks whose least
 * magnitude is zero. So the block handed to take must still hold what was added. Where
 * it cannot (a gradient that the same loop sets to zero), let the loop keep a copy of one
 * block, or ask sonde__vitals_needs_memory before clearing.
 *
 * Cost: 12 vector operations for 16 elements with AVX-512 (one more from a register),
 * and some 30 ns a block; in a loop that waits for memory anyway, less.
 * bench/bench_vitals.c measures it. Where the processor waits for arithmetic rather than
 * memory, add vectors from memory that were stored a few vectors ago: that is shorter to
 * wait for than the registers they came from. Where registers are short, update a block
 * first and call sonde__vitals_sums_of on it then: loads come from L1 and are free, but
 * the arithmetic does not overlap with the update's loads, and costs a third more.
 */
#ifndef SONDE_TENSOR_VITALS_ACCUM_H
#define SONDE_TENSOR_VITALS_ACCUM_H

#include "tensor/vitals.h"

#include <stdint.h>
#include <string.h>

/* A float's value, or minus it, from its bits. */
static inline double sonde__vacc_value(uint32_t bits)
{
    float value = 0.0F;

    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

/*
 * Extremes from three integer ones, which cost a quarter of what float comparisons do:
 * the largest as signed (the largest positive, if there is a positive), the largest as
 * unsigned (the most negative, if there is a negative) and the least without sign.
 */
static inline void sonde__vacc_extremes(int32_t largest, uint32_t lowest, uint32_t least,
                                        sonde__vitals_sums *out)
{
    const double abs_min = sonde__vacc_value(least);

    out->abs_min = abs_min;
    out->max = largest >= 0 ? sonde__vacc_value((uint32_t)largest) : -abs_min;
    out->min = lowest >= 0x80000000U ? sonde__vacc_value(lowest) : abs_min;
}

#if defined(__AVX512F__) && defined(__AVX512DQ__)
#include <immintrin.h>

typedef __m512 sonde__tensor_v16;

typedef struct sonde__vacc {
    __m512i largest, lowest;
    __m512 least;
    __m512d sum, l1, sumsq[2];
} sonde__vacc;

static inline sonde__tensor_v16 sonde__tensor_v16_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

static inline void sonde__vacc_init(sonde__vacc *a)
{
    a->largest = _mm512_set1_epi32(INT32_MIN);
    a->lowest = _mm512_setzero_si512();
    a->least = _mm512_castsi512_ps(_mm512_set1_epi32(0x7f800000));
    a->sum = _mm512_setzero_pd();
    a->l1 = _mm512_setzero_pd();
    a->sumsq[0] = _mm512_setzero_pd();
    a->sumsq[1] = _mm512_setzero_pd();
}

static inline void sonde__vacc_range(sonde__vacc *a, sonde__tensor_v16 v)
{
    const __m512i bits = _mm512_castps_si512(v);

    a->largest = _mm512_max_epi32(a->largest, bits);
    a->lowest = _mm512_max_epu32(a->lowest, bits);
    a->least = _mm512_range_ps(a->least, v, 0xA); /* the lesser magnitude, unsigned */
}

/* a + b, by a multiply-add with 1 that the compiler does not see through: the units that
 * only add have enough to do. */
static inline __m512d sonde__vacc_plus(__m512d a, __m512d b)
{
    __m512d one = _mm512_set1_pd(1.0);

    __asm__("" : "+v"(one));
    return _mm512_fmadd_pd(b, one, a);
}

/* |x| + |y| is the larger magnitude of x + y and x - y, rounding included: one operation
 * fewer than two signs taken off. */
static inline void sonde__vacc_moments(sonde__vacc *a, __m256 low, __m256 high)
{
    const __m512d x = _mm512_cvtps_pd(low), y = _mm512_cvtps_pd(high);
    const __m512d sum = _mm512_add_pd(x, y), difference = _mm512_sub_pd(x, y);

    a->sum = sonde__vacc_plus(a->sum, sum);
    a->l1 = _mm512_add_pd(a->l1, _mm512_range_pd(sum, difference, 0xB));
    a->sumsq[0] = _mm512_fmadd_pd(x, x, a->sumsq[0]);
    a->sumsq[1] = _mm512_fmadd_pd(y, y, a->sumsq[1]);
}

/* Sixteen elements in a register. */
static inline void sonde__vacc_add(sonde__vacc *a, sonde__tensor_v16 v)
{
    sonde__vacc_range(a, v);
    sonde__vacc_moments(a, _mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
}

/* Sixteen elements in memory: loads take the place of the extraction. */
static inline void sonde__vacc_add_at(sonde__vacc *a, const float *p)
{
    sonde__vacc_range(a, _mm512_loadu_ps(p));
    sonde__vacc_moments(a, _mm256_loadu_ps(p), _mm256_loadu_ps(p + 8));
}

/* The last n < 16 elements of a block, in memory. Missing lanes are zeros in the sums. */
static inline void sonde__vacc_tail(sonde__vacc *a, const float *p, size_t n)
{
    const __mmask16 live = (__mmask16)((1U << n) - 1U);
    const __m512 v = _mm512_maskz_loadu_ps(live, p);
    const __m512i bits = _mm512_castps_si512(v);

    a->largest = _mm512_mask_max_epi32(a->largest, live, a->largest, bits);
    a->lowest = _mm512_max_epu32(a->lowest, bits);
    a->least = _mm512_mask_range_ps(a->least, live, a->least, v, 0xA);
    sonde__vacc_moments(a, _mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
}

static inline double sonde__vacc_tree(__m512d s8)
{
    const __m256d s4 =
        _mm256_add_pd(_mm512_castpd512_pd256(s8), _mm512_extractf64x4_pd(s8, 1));
    const __m128d s2 =
        _mm_add_pd(_mm256_castpd256_pd128(s4), _mm256_extractf128_pd(s4, 1));

    return _mm_cvtsd_f64(_mm_add_sd(s2, _mm_unpackhi_pd(s2, s2)));
}

/* The sums of a block. */
static inline void sonde__vacc_close(const sonde__vacc *a, sonde__vitals_sums *out)
{
    sonde__vacc_extremes(_mm512_reduce_max_epi32(a->largest),
                         (uint32_t)_mm512_reduce_max_epu32(a->lowest),
                         _mm512_reduce_min_epu32(_mm512_castps_si512(a->least)), out);
    out->sum = sonde__vacc_tree(a->sum);
    out->l1 = sonde__vacc_tree(a->l1);
    out->sumsq = sonde__vacc_tree(_mm512_add_pd(a->sumsq[0], a->sumsq[1]));
}

#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>

typedef struct sonde__tensor_v16 {
    __m256 half[2];
} sonde__tensor_v16;

/* Lanes 4q to 4q + 3 of the doubles are in [q]. */
typedef struct sonde__vacc {
    __m256i largest, lowest, least;
    __m256d sum[2], l1[2], sumsq[4];
} sonde__vacc;

static inline sonde__tensor_v16 sonde__tensor_v16_load(const float *p)
{
    const sonde__tensor_v16 v = {{_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}};

    return v;
}

static inline void sonde__vacc_init(sonde__vacc *a)
{
    a->largest = _mm256_set1_epi32(INT32_MIN);
    a->lowest = _mm256_setzero_si256();
    a->least = _mm256_set1_epi32(-1);
    for (int q = 0; q < 2; q++) {
        a->sum[q] = _mm256_setzero_pd();
        a->l1[q] = _mm256_setzero_pd();
        a->sumsq[q] = _mm256_setzero_pd();
        a->sumsq[q + 2] = _mm256_setzero_pd();
    }
}

/* Extremes of eight elements. */
static inline void sonde__vacc_range(sonde__vacc *a, __m256 v)
{
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i size = _mm256_and_si256(bits, _mm256_set1_epi32(INT32_MAX));

    a->largest = _mm256_max_epi32(a->largest, bits);
    a->lowest = _mm256_max_epu32(a->lowest, bits);
    a->least = _mm256_min_epu32(a->least, size);
}

/* Sums of elements 4q to 4q + 3 of a vector, and of those eight further. */
static inline void sonde__vacc_quarter(sonde__vacc *a, int q, __m128 low, __m128 high)
{
    const __m256d magnitude = _mm256_castsi256_pd(_mm256_set1_epi64x(INT64_MAX));
    const __m256d x = _mm256_cvtps_pd(low), y = _mm256_cvtps_pd(high);

    a->sum[q] = _mm256_add_pd(a->sum[q], _mm256_add_pd(x, y));
    a->l1[q] = _mm256_add_pd(a->l1[q], _mm256_add_pd(_mm256_and_pd(x, magnitude),
                                                     _mm256_and_pd(y, magnitude)));
    a->sumsq[q] = _mm256_fmadd_pd(x, x, a->sumsq[q]);
    a->sumsq[q + 2] = _mm256_fmadd_pd(y, y, a->sumsq[q + 2]);
}

static inline void sonde__vacc_moments(sonde__vacc *a, sonde__tensor_v16 v)
{
    sonde__vacc_quarter(a, 0, _mm256_castps256_ps128(v.half[0]),
                        _mm256_castps256_ps128(v.half[1]));
    sonde__vacc_quarter(a, 1, _mm256_extractf128_ps(v.half[0], 1),
                        _mm256_extractf128_ps(v.half[1], 1));
}

/* Sixteen elements in registers. */
static inline void sonde__vacc_add(sonde__vacc *a, sonde__tensor_v16 v)
{
    sonde__vacc_range(a, v.half[0]);
    sonde__vacc_range(a, v.half[1]);
    sonde__vacc_moments(a, v);
}

/* Sixteen elements in memory. */
static inline void sonde__vacc_add_at(sonde__vacc *a, const float *p)
{
    sonde__vacc_add(a, sonde__tensor_v16_load(p));
}

/* The last n < 16 elements of a block, in memory. Missing lanes are zeros in the sums and
 * the first element again in the extremes. */
static inline void sonde__vacc_tail(sonde__vacc *a, const float *p, size_t n)
{
    float padded[16] = {0.0F};

    if (n == 0) {
        return;
    }
    memcpy(padded, p, n * sizeof *p);
    sonde__vacc_moments(a, sonde__tensor_v16_load(padded));
    for (size_t l = n; l < 16; l++) {
        padded[l] = padded[0];
    }
    sonde__vacc_range(a, _mm256_loadu_ps(padded));
    sonde__vacc_range(a, _mm256_loadu_ps(padded + 8));
}

static inline double sonde__vacc_tree(__m256d low, __m256d high)
{
    const __m256d s4 = _mm256_add_pd(low, high);
    const __m128d s2 =
        _mm_add_pd(_mm256_castpd256_pd128(s4), _mm256_extractf128_pd(s4, 1));

    return _mm_cvtsd_f64(_mm_add_sd(s2, _mm_unpackhi_pd(s2, s2)));
}

/* The sums of a block. */
static inline void sonde__vacc_close(const sonde__vacc *a, sonde__vitals_sums *out)
{
    int32_t largest[8];
    uint32_t lowest[8], least[8];

    memcpy(largest, &a->largest, sizeof largest);
    memcpy(lowest, &a->lowest, sizeof lowest);
    memcpy(least, &a->least, sizeof least);
    for (int l = 1; l < 8; l++) {
        largest[0] = largest[l] > largest[0] ? largest[l] : largest[0];
        lowest[0] = lowest[l] > lowest[0] ? lowest[l] : lowest[0];
        least[0] = least[l] < least[0] ? least[l] : least[0];
    }
    sonde__vacc_extremes(largest[0], lowest[0], least[0], out);
    out->sum = sonde__vacc_tree(a->sum[0], a->sum[1]);
    out->l1 = sonde__vacc_tree(a->l1[0], a->l1[1]);
    out->sumsq = sonde__vacc_tree(_mm256_add_pd(a->sumsq[0], a->sumsq[2]),
                                  _mm256_add_pd(a->sumsq[1], a->sumsq[3]));
}

#else /* any C compiler; also the reference that the others are compared with */

#include <math.h>

typedef struct sonde__tensor_v16 {
    float lane[16];
} sonde__tensor_v16;

typedef struct sonde__vacc {
    float min[16], max[16], abs_min[16];
    double sum[8], l1[8], sumsq[16];
} sonde__vacc;

static inline sonde__tensor_v16 sonde__tensor_v16_load(const float *p)
{
    sonde__tensor_v16 v;

    memcpy(v.lane, p, sizeof v.lane);
    return v;
}

static inline void sonde__vacc_init(sonde__vacc *a)
{
    memset(a, 0, sizeof *a);
    for (int l = 0; l < 16; l++) {
        a->min[l] = INFINITY;
        a->max[l] = -INFINITY;
        a->abs_min[l] = INFINITY;
    }
}

static inline void sonde__vacc_range(sonde__vacc *a, const float *p, size_t n)
{
    for (size_t l = 0; l < n; l++) {
        const float x = p[l], size = fabsf(x);

        a->min[l] = x < a->min[l] ? x : a->min[l];
        a->max[l] = x > a->max[l] ? x : a->max[l];
        a->abs_min[l] = size < a->abs_min[l] ? size : a->abs_min[l];
    }
}

static inline void sonde__vacc_moments(sonde__vacc *a, const float *p)
{
    for (size_t l = 0; l < 8; l++) {
        const double x = (double)p[l], y = (double)p[l + 8];

        a->sum[l] += x + y;
        a->l1[l] += fabs(x) + fabs(y);
        a->sumsq[l] += x * x;
        a->sumsq[l + 8] += y * y;
    }
}

/* Sixteen elements in memory. */
static inline void sonde__vacc_add_at(sonde__vacc *a, const float *p)
{
    sonde__vacc_range(a, p, 16);
    sonde__vacc_moments(a, p);
}

/* Sixteen elements at hand. */
static inline void sonde__vacc_add(sonde__vacc *a, sonde__tensor_v16 v)
{
    sonde__vacc_add_at(a, v.lane);
}

/* The last n < 16 elements of a block, in memory. Missing lanes are zeros in the sums. */
static inline void sonde__vacc_tail(sonde__vacc *a, const float *p, size_t n)
{
    float padded[16] = {0.0F};

    for (size_t l = 0; l < n; l++) {
        padded[l] = p[l];
    }
    sonde__vacc_range(a, padded, n);
    sonde__vacc_moments(a, padded);
}

static inline double sonde__vacc_tree(const double *s)
{
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

/* The sums of a block. */
static inline void sonde__vacc_close(const sonde__vacc *a, sonde__vitals_sums *out)
{
    float min = INFINITY, max = -INFINITY, abs_min = INFINITY;
    double sumsq[8];

    for (int l = 0; l < 16; l++) {
        min = a->min[l] < min ? a->min[l] : min;
        max = a->max[l] > max ? a->max[l] : max;
        abs_min = a->abs_min[l] < abs_min ? a->abs_min[l] : abs_min;
    }
    for (int l = 0; l < 8; l++) {
        sumsq[l] = a->sumsq[l] + a->sumsq[l + 8];
    }
    out->min = (double)min;
    out->max = (double)max;
    out->abs_min = (double)abs_min;
    out->sum = sonde__vacc_tree(a->sum);
    out->l1 = sonde__vacc_tree(a->l1);
    out->sumsq = sonde__vacc_tree(sumsq);
}
#endif

#endif

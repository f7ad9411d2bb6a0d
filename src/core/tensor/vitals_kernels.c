/*
 * vitals_kernels.c - the kernels of vital signs, compiled per instruction set
 * (base/isa.h).
 *
 * float64 and shifted sums have sixteen lanes each, element i in lane i mod 16, and the
 * tree. Their products are rounded, so the compiler is kept from contracting them: the
 * bits are the same on every instruction set.
 */
#include "base/isa.h"
#include "tensor/convert.h"
#include "tensor/norms_accum.h"
#include "tensor/vitals_accum.h"

#include <sonde/tensor.h>

#include <math.h>

/* --- a vector of doubles ---------------------------------------------------------- */

#if defined(__AVX512F__) && defined(__AVX512DQ__)
enum { WIDTH = 8 };
typedef __m512d vec;

static inline vec vec_of(double x)
{
    return _mm512_set1_pd(x);
}
static inline vec vec_load_f64(const double *p)
{
    return _mm512_loadu_pd(p);
}
static inline vec vec_load_f32(const float *p)
{
    return _mm512_cvtps_pd(_mm256_loadu_ps(p));
}
static inline vec vec_abs(vec x)
{
    return _mm512_abs_pd(x);
}
static inline vec vec_min(vec x, vec least)
{
    return _mm512_min_pd(x, least);
}
static inline vec vec_max(vec x, vec most)
{
    return _mm512_max_pd(x, most);
}
#define ROUNDED(x) __asm__("" : "+v"(x))

#elif defined(__AVX2__) && defined(__FMA__)
enum { WIDTH = 4 };
typedef __m256d vec;

static inline vec vec_of(double x)
{
    return _mm256_set1_pd(x);
}
static inline vec vec_load_f64(const double *p)
{
    return _mm256_loadu_pd(p);
}
static inline vec vec_load_f32(const float *p)
{
    return _mm256_cvtps_pd(_mm_loadu_ps(p));
}
static inline vec vec_abs(vec x)
{
    return _mm256_and_pd(x, _mm256_castsi256_pd(_mm256_set1_epi64x(INT64_MAX)));
}
static inline vec vec_min(vec x, vec least)
{
    return _mm256_min_pd(x, least);
}
static inline vec vec_max(vec x, vec most)
{
    return _mm256_max_pd(x, most);
}
#define ROUNDED(x) __asm__("" : "+x"(x))

#else
enum { WIDTH = 1 };
typedef double vec;

static inline vec vec_of(double x)
{
    return x;
}
static inline vec vec_load_f64(const double *p)
{
    return *p;
}
static inline vec vec_load_f32(const float *p)
{
    return (double)*p;
}
static inline vec vec_abs(vec x)
{
    return fabs(x);
}
static inline vec vec_min(vec x, vec least)
{
    return x < least ? x : least;
}
static inline vec vec_max(vec x, vec most)
{
    return x > most ? x : most;
}
#if defined(__aarch64__)
#define ROUNDED(x) __asm__("" : "+w"(x))
#else
#define ROUNDED(x) (void)(x)
#endif
#endif

enum { VECS = 16 / WIDTH };

/* Sixteen lanes, as a tree. */
static double add_lanes(double *lanes)
{
    for (int width = 8; width > 0; width /= 2) {
        for (int l = 0; l < width; l++) {
            lanes[l] += lanes[l + width];
        }
    }
    return lanes[0];
}

/* --- float32 ---------------------------------------------------------------------- */

#if defined(__AVX2__) && !defined(__AVX512F__)
/* In two goes, for sixteen registers do not hold all accumulators. The first go's are put
 * away in memory: left to itself the compiler keeps them and stores others in the loop.
 */
static void add_vectors(sonde__vacc *acc, const float *x, size_t n, const float *ahead)
{
    sonde__vacc sums = *acc;

    for (size_t i = 0; i + 16 <= n; i += 16) {
        __builtin_prefetch(ahead + i);
        sonde__vacc_range(acc, _mm256_loadu_ps(x + i));
        sonde__vacc_range(acc, _mm256_loadu_ps(x + i + 8));
    }
    __asm__("" : "+m"(*acc));
    for (size_t i = 0; i + 16 <= n; i += 16) {
        sonde__vacc_moments(&sums, sonde__tensor_v16_load(x + i));
    }
    sums.largest = acc->largest;
    sums.lowest = acc->lowest;
    sums.least = acc->least;
    *acc = sums;
}
#else
static void add_vectors(sonde__vacc *acc, const float *x, size_t n, const float *ahead)
{
    for (size_t i = 0; i + 16 <= n; i += 16) {
        __builtin_prefetch(ahead + i);
        sonde__vacc_add_at(acc, x + i);
    }
}
#endif

static void sums_f32(const float *x, size_t n, const float *ahead,
                     sonde__vitals_sums *out)
{
    const size_t whole = n / 16 * 16;
    sonde__vacc acc;

    sonde__vacc_init(&acc);
    add_vectors(&acc, x, n, ahead);
    sonde__vacc_tail(&acc, x + whole, n - whole);
    sonde__vacc_close(&acc, out);
}

/* --- moments about a pivot, of both widths ---------------------------------------- */

#define DEFINE_SHIFTED(name, type, load)                                                 \
    static void name(const type *x, size_t n, double pivot, double out[2])               \
    {                                                                                    \
        const vec shift = vec_of(pivot);                                                 \
        vec sum[VECS], square[VECS];                                                     \
        double lanes[2][16];                                                             \
        size_t i = 0;                                                                    \
                                                                                         \
        for (int q = 0; q < VECS; q++) {                                                 \
            sum[q] = square[q] = vec_of(0.0);                                            \
        }                                                                                \
        for (; i + 16 <= n; i += 16) {                                                   \
            for (int q = 0; q < VECS; q++) {                                             \
                const vec d = load(x + i + (size_t)(q * WIDTH)) - shift;                 \
                vec product = d * d;                                                     \
                                                                                         \
                ROUNDED(product);                                                        \
                sum[q] += d;                                                             \
                square[q] += product;                                                    \
            }                                                                            \
        }                                                                                \
        memcpy(lanes[0], sum, sizeof sum);                                               \
        memcpy(lanes[1], square, sizeof square);                                         \
        for (size_t l = 0; l < n - i; l++) {                                             \
            const double d = (double)x[i + l] - pivot;                                   \
            double product = d * d;                                                      \
                                                                                         \
            ROUNDED(product);                                                            \
            lanes[0][l] += d;                                                            \
            lanes[1][l] += product;                                                      \
        }                                                                                \
        out[0] = add_lanes(lanes[0]);                                                    \
        out[1] = add_lanes(lanes[1]);                                                    \
    }

DEFINE_SHIFTED(shifted_f32, float, vec_load_f32)
DEFINE_SHIFTED(shifted_f64, double, vec_load_f64)

/* --- float64 ---------------------------------------------------------------------- */

/* Sixteen lanes of each sum, as vectors while there are whole vectors, then in memory. */
typedef struct lanes_f64 {
    double min[16], max[16], abs_min[16], sum[16], l1[16], sumsq[16];
} lanes_f64;

/* All elements but the last n mod 16; returns how many that were. */
static size_t whole_f64(const double *x, size_t n, const double *ahead, lanes_f64 *out)
{
    vec min[VECS], max[VECS], abs_min[VECS];
    vec sum[VECS], l1[VECS], sumsq[VECS];
    size_t i = 0;

    for (int q = 0; q < VECS; q++) {
        min[q] = abs_min[q] = vec_of((double)INFINITY);
        max[q] = vec_of(-(double)INFINITY);
        sum[q] = l1[q] = sumsq[q] = vec_of(0.0);
    }
    for (; i + 16 <= n; i += 16) {
        __builtin_prefetch(ahead + i);
        __builtin_prefetch(ahead + i + 8);
        for (int q = 0; q < VECS; q++) {
            const vec v = vec_load_f64(x + i + (size_t)(q * WIDTH));
            const vec size = vec_abs(v);
            vec product = v * v;

            ROUNDED(product);
            min[q] = vec_min(v, min[q]);
            max[q] = vec_max(v, max[q]);
            abs_min[q] = vec_min(size, abs_min[q]);
            sum[q] += v;
            l1[q] += size;
            sumsq[q] += product;
        }
    }
    memcpy(out->min, min, sizeof min);
    memcpy(out->max, max, sizeof max);
    memcpy(out->abs_min, abs_min, sizeof abs_min);
    memcpy(out->sum, sum, sizeof sum);
    memcpy(out->l1, l1, sizeof l1);
    memcpy(out->sumsq, sumsq, sizeof sumsq);
    return i;
}

static void rest_f64(const double *x, size_t n, lanes_f64 *lanes)
{
    for (size_t l = 0; l < n; l++) {
        const double v = x[l], size = fabs(v);
        double product = v * v;

        ROUNDED(product);
        lanes->min[l] = v < lanes->min[l] ? v : lanes->min[l];
        lanes->max[l] = v > lanes->max[l] ? v : lanes->max[l];
        lanes->abs_min[l] = size < lanes->abs_min[l] ? size : lanes->abs_min[l];
        lanes->sum[l] += v;
        lanes->l1[l] += size;
        lanes->sumsq[l] += product;
    }
}

static void sums_f64(const double *x, size_t n, const double *ahead,
                     sonde__vitals_sums *out)
{
    lanes_f64 lanes;
    const size_t whole = whole_f64(x, n, ahead, &lanes);

    rest_f64(x + whole, n - whole, &lanes);
    for (int l = 1; l < 16; l++) {
        lanes.min[0] = lanes.min[l] < lanes.min[0] ? lanes.min[l] : lanes.min[0];
        lanes.max[0] = lanes.max[l] > lanes.max[0] ? lanes.max[l] : lanes.max[0];
        lanes.abs_min[0] =
            lanes.abs_min[l] < lanes.abs_min[0] ? lanes.abs_min[l] : lanes.abs_min[0];
    }
    out->min = lanes.min[0];
    out->max = lanes.max[0];
    out->abs_min = lanes.abs_min[0];
    out->sum = add_lanes(lanes.sum);
    out->l1 = add_lanes(lanes.l1);
    out->sumsq = add_lanes(lanes.sumsq);
}

/* --- zeros ------------------------------------------------------------------------- */

/* 64 elements. */
#if defined(__AVX512F__)
static inline size_t zeros_of_64(const float *p)
{
    const __m512i size = _mm512_set1_epi32(INT32_MAX);
    unsigned count = 0;

    for (int q = 0; q < 4; q++) {
        count += (unsigned)__builtin_popcount(
            _mm512_testn_epi32_mask(_mm512_loadu_si512(p + 16 * q), size));
    }
    return count;
}
#elif defined(__AVX2__)
static inline size_t zeros_of_64(const float *p)
{
    const __m256 zero = _mm256_setzero_ps();
    uint64_t bits = 0;

    for (int q = 0; q < 8; q++) {
        const __m256 v = _mm256_loadu_ps(p + 8 * q);

        bits |= (uint64_t)(unsigned)_mm256_movemask_ps(_mm256_cmp_ps(v, zero, _CMP_EQ_OQ))
                << (8 * q);
    }
    return (size_t)__builtin_popcountll(bits);
}
#else
static inline size_t zeros_of_64(const float *p)
{
    size_t count = 0;

    for (int l = 0; l < 64; l++) {
        count += p[l] == 0.0F;
    }
    return count;
}
#endif

static size_t zeros_f32(const float *x, size_t n)
{
    size_t count = 0, i = 0;

    for (; i + 64 <= n; i += 64) {
        count += zeros_of_64(x + i);
    }
    for (; i < n; i++) {
        count += x[i] == 0.0F;
    }
    return count;
}

static size_t zeros_f64(const double *x, size_t n)
{
    size_t count = 0;

    for (size_t i = 0; i < n; i++) {
        count += x[i] == 0.0;
    }
    return count;
}

/* --- two blocks at once ------------------------------------------------------------ */

enum { WHOLE = SONDE__VITALS_BLOCK };

#if defined(__AVX512F__) && defined(__AVX512DQ__)
static inline unsigned zeros_of_16(const float *p)
{
    return (unsigned)__builtin_popcount(
        _mm512_testn_epi32_mask(_mm512_loadu_si512(p), _mm512_set1_epi32(INT32_MAX)));
}

static inline void sums_of_pair(const float *x, size_t n, const float *ahead,
                                const bool count, size_t *zeros,
                                sonde__vitals_sums out[2])
{
    const float *const y = x + WHOLE;
    const size_t vectors = n / 16 * 16;
    sonde__vacc first, second;
    unsigned found[2] = {0, 0};
    size_t i = 0;

    sonde__vacc_init(&first);
    sonde__vacc_init(&second);
    for (; i < vectors; i += 16) {
        __builtin_prefetch(ahead + i);
        __builtin_prefetch(ahead + WHOLE + i);
        sonde__vacc_add_at(&first, x + i);
        sonde__vacc_add_at(&second, y + i);
        if (count) {
            found[0] += zeros_of_16(x + i);
            found[1] += zeros_of_16(y + i);
        }
    }
    sonde__vacc_tail(&second, y + i, n - i);
    for (; i < WHOLE; i += 16) {
        sonde__vacc_add_at(&first, x + i);
        found[0] += count ? zeros_of_16(x + i) : 0;
    }
    sonde__vacc_close(&first, &out[0]);
    sonde__vacc_close(&second, &out[1]);
    if (count) {
        zeros[0] = found[0];
        zeros[1] = found[1] + zeros_f32(y + vectors, n - vectors);
    }
}

static void sums_pair_f32(const float *x, size_t n, const float *ahead, size_t *zeros,
                          sonde__vitals_sums out[2])
{
    if (zeros != NULL) {
        sums_of_pair(x, n, ahead, true, zeros, out);
    } else {
        sums_of_pair(x, n, ahead, false, zeros, out);
    }
}
#else
static void sums_pair_f32(const float *x, size_t n, const float *ahead, size_t *zeros,
                          sonde__vitals_sums out[2])
{
    (void)zeros; /* take will count them, where there are any */
    sums_f32(x, WHOLE, ahead, &out[0]);
    sums_f32(x + WHOLE, n, ahead + WHOLE, &out[1]);
}
#endif

/* --- norms ------------------------------------------------------------------------- */

static void norms_f32(const float *x, size_t n, const float *ahead,
                      sonde__norms_sums *out)
{
    sonde__nacc acc;
    size_t i = 0;

    sonde__nacc_init(&acc);
    for (; i + 32 <= n; i += 32) {
        __builtin_prefetch(ahead + i);
        __builtin_prefetch(ahead + i + 16);
        sonde__nacc_add_at(&acc, 0, x + i);
        sonde__nacc_add_at(&acc, 1, x + i + 16);
    }
    sonde__nacc_tail(&acc, x + i, n - i);
    sonde__nacc_close(&acc, out);
}

#if defined(__AVX512F__) && defined(__AVX512DQ__)
static void norms_pair_f32(const float *x, size_t n, const float *ahead,
                           sonde__norms_sums out[2])
{
    const float *const y = x + WHOLE;
    sonde__nacc first, second;
    size_t i = 0;

    sonde__nacc_init(&first);
    sonde__nacc_init(&second);
    for (; i + 32 <= n; i += 32) {
        __builtin_prefetch(ahead + i);
        __builtin_prefetch(ahead + i + 16);
        __builtin_prefetch(ahead + WHOLE + i);
        __builtin_prefetch(ahead + WHOLE + i + 16);
        sonde__nacc_add_at(&first, 0, x + i);
        sonde__nacc_add_at(&second, 0, y + i);
        sonde__nacc_add_at(&first, 1, x + i + 16);
        sonde__nacc_add_at(&second, 1, y + i + 16);
    }
    sonde__nacc_tail(&second, y + i, n - i);
    for (; i < WHOLE; i += 32) {
        sonde__nacc_add_at(&first, 0, x + i);
        sonde__nacc_add_at(&first, 1, x + i + 16);
    }
    sonde__nacc_close(&first, &out[0]);
    sonde__nacc_close(&second, &out[1]);
}
#else
static void norms_pair_f32(const float *x, size_t n, const float *ahead,
                           sonde__norms_sums out[2])
{
    norms_f32(x, WHOLE, ahead, &out[0]);
    norms_f32(x + WHOLE, n, ahead + WHOLE, &out[1]);
}
#endif

/* --- bytes ------------------------------------------------------------------------- */

static size_t sums_u8(const uint8_t *x, size_t n, sonde__vitals_sums *out)
{
    uint32_t sum = 0, sumsq = 0, zeros = 0; /* of 4096 bytes they fit */
    uint8_t min = UINT8_MAX, max = 0;

    for (size_t i = 0; i < n; i++) {
        sum += x[i];
        sumsq += (uint32_t)x[i] * x[i];
        zeros += x[i] == 0;
        min = x[i] < min ? x[i] : min;
        max = x[i] > max ? x[i] : max;
    }
    out->sum = out->l1 = (double)sum;
    out->sumsq = (double)sumsq;
    out->min = out->abs_min = (double)min;
    out->max = (double)max;
    return zeros;
}

/* --- exponents ---------------------------------------------------------------------- */

#define DEFINE_LARGEST(name, type, magnitude)                                            \
    static type name(const type *bits, size_t n)                                         \
    {                                                                                    \
        type most = 0;                                                                   \
                                                                                         \
        for (size_t i = 0; i < n; i++) {                                                 \
            const type size = bits[i] & (type)(magnitude);                               \
                                                                                         \
            most = size > most ? size : most;                                            \
        }                                                                                \
        return most;                                                                     \
    }

DEFINE_LARGEST(largest_bits_32, uint32_t, INT32_MAX)
DEFINE_LARGEST(largest_bits_64, uint64_t, INT64_MAX)
DEFINE_LARGEST(largest_bits_16, uint16_t, INT16_MAX)

const sonde__vitals_kernels ISA(sonde__vitals) = {
    .sums_f32 = sums_f32,
    .sums_pair_f32 = sums_pair_f32,
    .norms_f32 = norms_f32,
    .norms_pair_f32 = norms_pair_f32,
    .sums_f64 = sums_f64,
    .sums_u8 = sums_u8,
    .shifted_f32 = shifted_f32,
    .shifted_f64 = shifted_f64,
    .zeros_f32 = zeros_f32,
    .zeros_f64 = zeros_f64,
    .largest_bits_32 = largest_bits_32,
    .largest_bits_64 = largest_bits_64,
    .largest_bits_16 = largest_bits_16,
    .widen_f16 = widen_f16,
    .widen_bf16 = widen_bf16,
};

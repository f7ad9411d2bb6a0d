/*
 * relu_vitals.h - vital signs of a value and of its ReLU, from one pass over the value:
 * for kernels that have it in cache and need not keep it. For the kernel files that are
 * compiled once per instruction set.
 *
 * Order of things. Elements are taken as they lie, in blocks of RELU_BLOCK and in
 * vectors of
 * 16. The sum of the value is that of vitals_accum.h; of its ReLU, what is not 0 or less
 * and its squares go to sixteen lanes each, so either of the two may be read for it. The
 * value's l1 is twice the ReLU's sum less its own sum. Blocks whose sums do not suffice
 * (see sonde__vitals_is_plain; and a value with zeros) are measured like any array in
 * memory. So every instruction set gives the same bits.
 */
#ifndef SONDE_NN_KERNELS_RELU_VITALS_H
#define SONDE_NN_KERNELS_RELU_VITALS_H

#include "base/macros.h"
#include "base/memory.h"
#include "nn/kernels/lanes.h"
#include "tensor/norms_accum.h"

#include <math.h>

enum { RELU_BLOCK = 2 * SONDE__VITALS_BLOCK };

typedef struct relu_signs {
    sonde_vitals pre, relu;
    bool norms; /* no more than these */
} relu_signs;

/* --- sums in registers -------------------------------------------------------------- */

/* max(0, x); a NaN stays one. */
#if VF_WIDTH == 16
static inline sonde__tensor_v16 relu_of(sonde__tensor_v16 v)
{
    return _mm512_max_ps(_mm512_setzero_ps(), v);
}
#elif VF_WIDTH == 8 && defined(__AVX2__) && defined(__FMA__)
static inline sonde__tensor_v16 relu_of(sonde__tensor_v16 v)
{
    v.half[0] = _mm256_max_ps(_mm256_setzero_ps(), v.half[0]);
    v.half[1] = _mm256_max_ps(_mm256_setzero_ps(), v.half[1]);
    return v;
}
#else
static inline sonde__tensor_v16 relu_of(sonde__tensor_v16 v)
{
    for (int l = 0; l < 16; l++) {
        v.lane[l] = v.lane[l] <= 0.0F ? 0.0F : v.lane[l];
    }
    return v;
}
#endif

#if VF_WIDTH == 16
typedef struct relu_acc {
    sonde__vacc pre; /* its l1 means nothing */
    __m512d sum[2], sumsq[2];
    size_t positive;
} relu_acc;

static inline void relu_acc_init(relu_acc *a)
{
    sonde__vacc_init(&a->pre);
    a->sum[0] = a->sum[1] = a->sumsq[0] = a->sumsq[1] = _mm512_setzero_pd();
    a->positive = 0;
}

/* x, y: the halves of v. */
VEC_INLINE void relu_acc_positive(relu_acc *a, __m512 v, __m512d x, __m512d y)
{
    const __mmask16 above = _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_NLE_UQ);
    const __mmask8 first = (__mmask8)above, second = (__mmask8)(above >> 8);

    a->positive += (size_t)__builtin_popcount(above);
    a->sum[0] = _mm512_mask_add_pd(a->sum[0], first, a->sum[0], x);
    a->sum[1] = _mm512_mask_add_pd(a->sum[1], second, a->sum[1], y);
    a->sumsq[0] = _mm512_mask3_fmadd_pd(x, x, a->sumsq[0], first);
    a->sumsq[1] = _mm512_mask3_fmadd_pd(y, y, a->sumsq[1], second);
}

VEC_INLINE void relu_acc_add(relu_acc *a, const float *p)
{
    const __m512 v = _mm512_loadu_ps(p);
    const __m512d x = _mm512_cvtps_pd(_mm256_loadu_ps(p));
    const __m512d y = _mm512_cvtps_pd(_mm256_loadu_ps(p + 8));

    sonde__vacc_range(&a->pre, v);
    a->pre.sum = sonde__vacc_plus(a->pre.sum, _mm512_add_pd(x, y));
    a->pre.sumsq[0] = _mm512_fmadd_pd(x, x, a->pre.sumsq[0]);
    a->pre.sumsq[1] = _mm512_fmadd_pd(y, y, a->pre.sumsq[1]);
    relu_acc_positive(a, v, x, y);
}

static inline void relu_acc_tail(relu_acc *a, const float *p, size_t n)
{
    const __m512 v = _mm512_maskz_loadu_ps((__mmask16)((1U << n) - 1U), p);

    sonde__vacc_tail(&a->pre, p, n);
    relu_acc_positive(a, v, _mm512_cvtps_pd(_mm512_castps512_ps256(v)),
                      _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1)));
}

/* All vectors of n elements. */
static inline void relu_acc_vectors(relu_acc *a, const float *p, size_t n)
{
    for (size_t i = 0; i + 16 <= n; i += 16) {
        relu_acc_add(a, p + i);
    }
}

static inline double relu_acc_tree(const __m512d sums[2])
{
    return sonde__vacc_tree(_mm512_add_pd(sums[0], sums[1]));
}
#elif VF_WIDTH == 8 && defined(__AVX2__) && defined(__FMA__)
/* Lanes 4q to 4q + 3 are in [q]. */
typedef struct relu_acc {
    sonde__vacc pre; /* its l1 means nothing */
    __m256d sum[4], sumsq[4];
    size_t positive;
} relu_acc;

static inline void relu_acc_init(relu_acc *a)
{
    sonde__vacc_init(&a->pre);
    for (int q = 0; q < 4; q++) {
        a->sum[q] = a->sumsq[q] = _mm256_setzero_pd();
    }
    a->positive = 0;
}

/* Extremes of eight elements, and how many of them are not 0 or less. */
VEC_INLINE void relu_acc_range(relu_acc *a, __m256 v)
{
    const __m256 above = _mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_NLE_UQ);

    sonde__vacc_range(&a->pre, v);
    a->positive += (size_t)__builtin_popcount((unsigned)_mm256_movemask_ps(above));
}

/* Sums of four elements and of those eight further. */
VEC_INLINE void relu_acc_quarter(sonde__vacc *pre, int q, __m128 low, __m128 high)
{
    const __m256d x = _mm256_cvtps_pd(low), y = _mm256_cvtps_pd(high);

    pre->sum[q] = _mm256_add_pd(pre->sum[q], _mm256_add_pd(x, y));
    pre->sumsq[q] = _mm256_fmadd_pd(x, x, pre->sumsq[q]);
    pre->sumsq[q + 2] = _mm256_fmadd_pd(y, y, pre->sumsq[q + 2]);
}

VEC_INLINE void relu_acc_moments(sonde__vacc *pre, sonde__tensor_v16 v)
{
    relu_acc_quarter(pre, 0, _mm256_castps256_ps128(v.half[0]),
                     _mm256_castps256_ps128(v.half[1]));
    relu_acc_quarter(pre, 1, _mm256_extractf128_ps(v.half[0], 1),
                     _mm256_extractf128_ps(v.half[1], 1));
}

/* Sums of the ReLU of four elements; a NaN stays one. */
VEC_INLINE void relu_acc_positive(__m256d sum[4], __m256d sumsq[4], int q, __m128 v)
{
    const __m256d x = _mm256_cvtps_pd(_mm_max_ps(_mm_setzero_ps(), v));

    sum[q] = _mm256_add_pd(sum[q], x);
    sumsq[q] = _mm256_fmadd_pd(x, x, sumsq[q]);
}

/* All vectors of n elements: in three goes, for sixteen registers do not hold all that
 * is added up. What a go came to is put away in memory, lest the compiler do it in the
 * loop. */
static inline void relu_acc_vectors(relu_acc *a, const float *p, size_t n)
{
    sonde__vacc pre = a->pre;
    __m256d sum[4], sumsq[4];

    for (size_t i = 0; i + 16 <= n; i += 16) {
        relu_acc_range(a, _mm256_loadu_ps(p + i));
        relu_acc_range(a, _mm256_loadu_ps(p + i + 8));
    }
    __asm__("" : "+m"(*a));
    for (size_t i = 0; i + 16 <= n; i += 16) {
        relu_acc_moments(&pre, sonde__tensor_v16_load(p + i));
    }
    memcpy(a->pre.sum, pre.sum, sizeof pre.sum);
    memcpy(a->pre.sumsq, pre.sumsq, sizeof pre.sumsq);
    __asm__("" : "+m"(*a));
    memcpy(sum, a->sum, sizeof sum);
    memcpy(sumsq, a->sumsq, sizeof sumsq);
    for (size_t i = 0; i + 16 <= n; i += 16) {
        VEC_EACH (q, 4) {
            relu_acc_positive(sum, sumsq, q, _mm_loadu_ps(p + i + 4 * (size_t)q));
        }
    }
    memcpy(a->sum, sum, sizeof sum);
    memcpy(a->sumsq, sumsq, sizeof sumsq);
}

static inline void relu_acc_tail(relu_acc *a, const float *p, size_t n)
{
    float padded[16] = {0.0F};

    sonde__vacc_tail(&a->pre, p, n);
    for (size_t l = 0; l < n; l++) {
        padded[l] = p[l];
        a->positive += !(p[l] <= 0.0F);
    }
    for (int q = 0; q < 4; q++) {
        relu_acc_positive(a->sum, a->sumsq, q, _mm_loadu_ps(padded + 4 * (size_t)q));
    }
}

static inline double relu_acc_tree(const __m256d sums[4])
{
    return sonde__vacc_tree(_mm256_add_pd(sums[0], sums[2]),
                            _mm256_add_pd(sums[1], sums[3]));
}
#else
typedef struct relu_acc {
    sonde__vacc pre;
    double sum[16], sumsq[16];
    size_t positive;
} relu_acc;

static inline void relu_acc_init(relu_acc *a)
{
    memset(a, 0, sizeof *a);
    sonde__vacc_init(&a->pre);
}

static inline void relu_acc_positive(relu_acc *a, const float *p, size_t n)
{
    for (size_t l = 0; l < n; l++) {
        const double x = p[l] <= 0.0F ? 0.0 : (double)p[l];

        a->positive += !(p[l] <= 0.0F);
        a->sum[l] += x;
        a->sumsq[l] += x * x;
    }
}

static inline void relu_acc_vectors(relu_acc *a, const float *p, size_t n)
{
    for (size_t i = 0; i + 16 <= n; i += 16) {
        sonde__vacc_add_at(&a->pre, p + i);
        relu_acc_positive(a, p + i, 16);
    }
}

static inline void relu_acc_tail(relu_acc *a, const float *p, size_t n)
{
    sonde__vacc_tail(&a->pre, p, n);
    relu_acc_positive(a, p, n);
}

static inline double relu_acc_tree(const double sums[16])
{
    double s[8];

    for (int l = 0; l < 8; l++) {
        s[l] = sums[l] + sums[l + 8];
    }
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}
#endif

/* What n elements came to. */
static inline void relu_acc_close(const relu_acc *a, size_t n, sonde__vitals_sums *pre,
                                  sonde__vitals_sums *relu)
{
    sonde__vacc_close(&a->pre, pre);
    relu->sum = relu->l1 = relu_acc_tree(a->sum);
    relu->sumsq = relu_acc_tree(a->sumsq);
    relu->max = a->positive > 0 ? pre->max : 0.0;
    relu->min = relu->abs_min = a->positive == n ? pre->min : 0.0;
    pre->l1 = 2.0 * relu->sum - pre->sum;
    if (pre->l1 < fabs(pre->sum)) { /* rounded below what it can be */
        pre->l1 = fabs(pre->sum);
    }
}

/* --- arrays ------------------------------------------------------------------------- */

/* The ReLU of n elements as an array like any other. */
static void relu_vitals_by_memory(const float *x, size_t n, sonde_vitals *into)
{
    _Alignas(SONDE__ALIGN) float room[SONDE__VITALS_BLOCK];

    for (size_t offset = 0, count = 0; offset < n; offset += count) {
        count = SONDE_MIN(n - offset, (size_t)SONDE__VITALS_BLOCK);
        for (size_t i = 0; i < count; i++) {
            room[i] = x[offset + i] < 0.0F ? 0.0F : x[offset + i];
        }
        sonde__vitals_add_f32(into, room, count);
    }
}

/* The vital signs of at most RELU_BLOCK elements. */
static void relu_full_block(const float *x, size_t n, relu_signs *into)
{
    sonde__vitals_sums pre, relu;
    const size_t whole = n / 16 * 16;
    relu_acc acc;

    relu_acc_init(&acc);
    relu_acc_vectors(&acc, x, n);
    if (whole < n) {
        relu_acc_tail(&acc, x + whole, n - whole);
    }
    relu_acc_close(&acc, n, &pre, &relu);
    if (sonde__vitals_is_plain(&pre, n) && pre.abs_min > 0.0) {
        sonde__vitals_take_plain(&into->pre, &pre, n, 0);
    } else {
        sonde__vitals_add_f32(&into->pre, x, n);
    }
    if (sonde__vitals_is_plain(&relu, n)) {
        sonde__vitals_take_plain(&into->relu, &relu, n, n - acc.positive);
    } else {
        relu_vitals_by_memory(x, n, &into->relu);
    }
}

/* The norms of at most a block, and of its ReLU. */
static void relu_norms_block(const float *x, size_t n, relu_signs *into)
{
    const size_t whole = n / 32 * 32;
    sonde__norms_sums pre_sums, relu_sums;
    sonde__nacc pre, relu;
    float rest[32];

    sonde__nacc_init(&pre);
    sonde__nacc_init(&relu);
    for (size_t i = 0; i < whole; i += 32) {
        for (int half = 0; half < 2; half++) {
            const sonde__tensor_v16 v = sonde__tensor_v16_load(x + i + 16 * (size_t)half);

            sonde__nacc_add(&pre, half, v);
            sonde__nacc_add(&relu, half, relu_of(v));
        }
    }
    for (size_t i = whole; i < n; i++) {
        rest[i - whole] = x[i] < 0.0F ? 0.0F : x[i];
    }
    sonde__nacc_tail(&pre, x + whole, n - whole);
    sonde__nacc_tail(&relu, rest, n - whole);
    sonde__nacc_close(&pre, &pre_sums);
    sonde__nacc_close(&relu, &relu_sums);
    sonde__norms_take(&into->pre, &pre_sums, x, n);
    if (sonde__norms_is_plain(&relu_sums)) {
        sonde__norms_take(&into->relu, &relu_sums, x, n);
    } else {
        sonde_vitals part;

        sonde_vitals_init(&part);
        relu_vitals_by_memory(x, n, &part);
        sonde_norms_keep(&part);
        sonde_vitals_merge(&into->relu, &part);
    }
}

/* At most RELU_BLOCK elements. */
static void relu_vitals_block(const float *x, size_t n, relu_signs *into)
{
    enum { HALF = SONDE__VITALS_BLOCK };

    if (!into->norms) {
        relu_full_block(x, n, into);
        return;
    }
    relu_norms_block(x, SONDE_MIN(n, (size_t)HALF), into);
    if (n > HALF) {
        relu_norms_block(x + HALF, n - HALF, into);
    }
}

/* Rows of 16 lanes, of which `valid` hold samples. */
static void relu_vitals_add(const float *x, int64_t rows, int valid, relu_signs *signs)
{
    _Alignas(SONDE__ALIGN) float held[RELU_BLOCK + LANES];
    const size_t count = (size_t)(rows * LANES);
    size_t n = 0;

    for (size_t offset = 0; valid == LANES && offset < count; offset += RELU_BLOCK) {
        relu_vitals_block(x + offset, SONDE_MIN(count - offset, (size_t)RELU_BLOCK),
                          signs);
    }
    for (int64_t i = 0; valid < LANES && i < rows; i++) {
        memcpy(held + n, x + i * LANES, LANES * sizeof *held);
        n += (size_t)valid;
        if (n >= RELU_BLOCK) {
            relu_vitals_block(held, RELU_BLOCK, signs);
            n -= RELU_BLOCK;
            memcpy(held, held + RELU_BLOCK, LANES * sizeof *held);
        }
    }
    if (n > 0) {
        relu_vitals_block(held, n, signs);
    }
}

static void relu_signs_init(relu_signs *signs, bool norms)
{
    sonde_vitals_init(&signs->pre);
    sonde_vitals_init(&signs->relu);
    signs->norms = norms;
    if (norms) {
        sonde_norms_keep(&signs->pre);
        sonde_norms_keep(&signs->relu);
    }
}

/* The finish of kernels whose outputs are a value, perhaps not kept, and its ReLU. */
static void relu_vitals_finish(const sonde__op_call *call, int parts)
{
    const sonde__operand *const value = &call->out[call->out[0].data != NULL ? 0 : 1];
    const int64_t samples = value->shape.dim[0], inner = lanes_inner(&value->shape);
    const int64_t full = samples / LANES * inner;
    const float *const x = value->data;
    relu_signs signs;

    (void)parts;
    relu_signs_init(&signs, sonde__op_wants_norms(call, 1U << 0 | 1U << 1));
    relu_vitals_add(x, full, LANES, &signs);
    if (samples % LANES > 0) {
        relu_vitals_add(x + full * LANES, inner, (int)(samples % LANES), &signs);
    }
    if (call->out_vitals[0] != NULL) {
        *call->out_vitals[0] = signs.pre;
    }
    if (call->out_vitals[1] != NULL) {
        *call->out_vitals[1] = signs.relu;
    }
}

/* The end of such a kernel's run. */
static inline void relu_vitals_run(const sonde__op_call *call, int parts)
{
    if (parts == 1 && (call->out_vitals[0] != NULL || call->out_vitals[1] != NULL)) {
        relu_vitals_finish(call, 1);
    }
}

#endif

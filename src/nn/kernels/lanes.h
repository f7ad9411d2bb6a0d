/*
 * lanes.h - what the kernels over the LANES layout share.
 *
 * For kernel files that are compiled once per instruction set; see vec.h. A kernel works
 * on `vf`, the native vector, and goes over the 16 lanes of a pixel in chunks of
 * VF_WIDTH. Lanes past N are computed like the others and mean nothing; where lanes meet
 * (weight gradients, losses) they are left out.
 *
 * Masks: `vm` is a bit an element where the ISA has mask registers, else a vector of all
 * ones or zeros.
 */
#ifndef SONDE_NN_KERNELS_LANES_H
#define SONDE_NN_KERNELS_LANES_H

#include <string.h>

#include "base/macros.h"
#include "base/memory.h"
#include "nn/kernels/call.h"
#include "nn/kernels/vec.h"

enum { LANES = SONDE__LANE_WIDTH };

/* --- shapes ------------------------------------------------------------------------- */

static inline int64_t lanes_blocks(int64_t samples)
{
    return (samples + LANES - 1) / LANES;
}

/* How many of the 16 lanes of a block hold samples. */
static inline int lanes_valid(int64_t samples, int64_t block)
{
    return (int)SONDE_MIN(samples - block * LANES, (int64_t)LANES);
}

/* Elements of a sample: the product of all dims but the first. */
static inline int64_t lanes_inner(const sonde__op_shape *shape)
{
    int64_t count = 1;

    for (int i = 1; i < shape->rank; i++) {
        count *= shape->dim[i];
    }
    return count;
}

/* float32 of that rank, and not empty; rank < 0: of any rank but a scalar's. */
static inline bool lanes_is_f32(const sonde__op_shape *shape, int rank)
{
    bool empty = shape->rank < 1;

    for (int i = 0; i < shape->rank; i++) {
        empty = empty || shape->dim[i] < 1;
    }
    return shape->dtype == SONDE_F32 && !empty && (rank < 0 || shape->rank == rank);
}

/* Whether an operand was given, or is wanted. */
static inline const float *lanes_in(const sonde__op_call *call, int i)
{
    return i < call->in_count ? (const float *)call->in[i].data : NULL;
}

static inline float *lanes_out(const sonde__op_call *call, int i)
{
    return i < call->out_count ? (float *)call->out[i].data : NULL;
}

/* --- parts -------------------------------------------------------------------------- */

/* Of count units, those of a part: *first ... *last - 1. */
static inline void lanes_split(int64_t count, int part, int parts, int64_t *first,
                               int64_t *last)
{
    *first = count * part / parts;
    *last = count * (part + 1) / parts;
}

/* How many parts are worth their thread: one for less than a million operations, and half
 * a million to each. */
static inline int lanes_parts(double operations, int64_t units, int max)
{
    const double worth = operations < 1e6 ? 1.0 : operations / 5e5;
    const int most = worth < (double)max ? (int)worth : max;

    return units < most ? (units < 1 ? 1 : (int)units) : most;
}

/* Bytes, rounded up to whole cache lines. */
static inline size_t lanes_aligned(size_t bytes)
{
    return (bytes + SONDE__ALIGN - 1) / SONDE__ALIGN * SONDE__ALIGN;
}

/* --- masks -------------------------------------------------------------------------- */

#if VF_WIDTH == 16
typedef __mmask16 vm;

/* a > b, or a is NaN: what replaces a running maximum b in PyTorch's max-pool. */
VEC_INLINE vm vm_beats(vf a, vf b)
{
    return (vm)(_mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GT_OQ) |
                _mm512_cmp_ps_mask((__m512)a, (__m512)a, _CMP_UNORD_Q));
}

/* not a <= 0 */
VEC_INLINE vm vm_positive(vf a)
{
    return _mm512_cmp_ps_mask((__m512)a, _mm512_setzero_ps(), _CMP_NLE_UQ);
}

VEC_INLINE vm vm_equal(vi a, vi b)
{
    return _mm512_cmpeq_epi32_mask((__m512i)a, (__m512i)b);
}

VEC_INLINE vf vf_pick(vm mask, vf a, vf b)
{
    return (vf)_mm512_mask_mov_ps((__m512)b, mask, (__m512)a);
}

VEC_INLINE vi vi_pick(vm mask, vi a, vi b)
{
    return (vi)_mm512_mask_mov_epi32((__m512i)b, mask, (__m512i)a);
}

/* mask ? a : 0 */
VEC_INLINE vf vf_keep(vm mask, vf a)
{
    return (vf)_mm512_maskz_mov_ps(mask, (__m512)a);
}
#else
typedef vi vm;

VEC_INLINE vm vm_beats(vf a, vf b)
{
    return (vi)(a > b) | (vi)(a != a);
}

VEC_INLINE vm vm_positive(vf a)
{
    return ~(vi)(a <= (vf){0});
}

VEC_INLINE vm vm_equal(vi a, vi b)
{
    return (vi)(a == b);
}

VEC_INLINE vf vf_pick(vm mask, vf a, vf b)
{
    return vf_select(mask, a, b);
}

VEC_INLINE vi vi_pick(vm mask, vi a, vi b)
{
    return (a & mask) | (b & ~mask);
}

VEC_INLINE vf vf_keep(vm mask, vf a)
{
    return (vf)((vi)a & mask);
}
#endif

VEC_INLINE vi vi_set1(int32_t s)
{
    return s - (vi){0};
}

/* --- bytes (the index of a max-pool) ------------------------------------------------ */

/* By hand: compilers make __builtin_convertvector of bytes element by element. */
VEC_INLINE vi vi_load_u8(const uint8_t *p)
{
#if defined(__AVX512F__)
    return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
#elif defined(__AVX2__)
    return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
#else
    vi a;

    for (int i = 0; i < VF_WIDTH; i++) {
        a[i] = p[i];
    }
    return a;
#endif
}

/* Elements are 0 ... 255. */
VEC_INLINE void vi_store_u8(uint8_t *p, vi a)
{
#if defined(__AVX512F__)
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8((__m512i)a));
#elif defined(__AVX2__)
    const __m128i low = _mm256_castsi256_si128((__m256i)a);
    const __m128i words = _mm_packus_epi32(low, _mm256_extracti128_si256((__m256i)a, 1));

    _mm_storel_epi64((__m128i *)(void *)p, _mm_packus_epi16(words, words));
#else
    for (int i = 0; i < VF_WIDTH; i++) {
        p[i] = (uint8_t)a[i];
    }
#endif
}

/* --- partial sums ------------------------------------------------------------------- */

/* Lanes valid ... 15 of rows of sums get their former numbers back. */
static inline void lanes_restore(float *sums, const float *former, int64_t rows,
                                 int valid)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int lane = valid; lane < LANES; lane++) {
            sums[i * LANES + lane] = former[i * LANES + lane];
        }
    }
}

#endif

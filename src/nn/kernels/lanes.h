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

/* --- from one layout into another --------------------------------------------------- */

/*
 * 16 x 16 numbers of a matrix (N, K): a tile is `samples` x `columns` numbers, both at most 16; the
 * rest of the destination's tile is written as zeros where its layout has room for it (lanes,
 * columns of a panel) and not touched where it has none. Nothing past them is read.
 */

/* A matrix in a layout. */
typedef struct layout_view {
    float *data;
    int64_t samples, columns;
    sonde__op_layout layout;
} layout_view;

/* Where the tile of samples n ... and columns k ... (multiples of 16) starts, and from
 * row to row of it: a row is a sample, in LANES a column. */
static inline float *layout_tile(const layout_view *m, int64_t n, int64_t k,
                                 int64_t *stride)
{
    if (m->layout == SONDE__LANES) {
        *stride = SONDE__LANE_WIDTH;
        return m->data + n * m->columns + k * SONDE__LANE_WIDTH;
    }
    if (m->layout == SONDE__PANELS) {
        *stride = SONDE__PANEL_WIDTH;
        return m->data + (k / SONDE__PANEL_WIDTH * m->samples + n) * SONDE__PANEL_WIDTH +
               k % SONDE__PANEL_WIDTH;
    }
    *stride = m->columns;
    return m->data + n * m->columns + k;
}

/* rows x columns copied, zeros up to width after each row and in rows up to height. */
static inline void copy_rows(const float *source, int64_t from_stride, int rows,
                             int columns, float *target, int64_t to_stride, int height,
                             int width)
{
    if (rows == 16 && columns == 16 && width == 16) {
        VEC_EACH (i, 16) {
            v16_store(target + i * to_stride, v16_load(source + i * from_stride));
        }
        return;
    }
    for (int i = 0; i < rows; i++) {
        const v16 row = v16_load_n(source + i * from_stride, columns);

        v16_store_n(target + i * to_stride, row, width);
    }
    for (int i = rows; i < height; i++) {
        v16_store_n(target + i * to_stride, v16_zero(), width);
    }
}

/* The same, transposed: height and width are those of the destination. */
static inline void transpose_rows(const float *source, int64_t from_stride, int rows,
                                  int columns, float *target, int64_t to_stride,
                                  int height, int width)
{
    float part[16][16], turned[16][16];

    if (rows == 16 && columns == 16 && height == 16 && width == 16) {
        vec_transpose16(source, from_stride, target, to_stride);
        return;
    }
    copy_rows(source, from_stride, rows, columns, part[0], 16, 16, 16);
    vec_transpose16(part[0], 16, turned[0], 16);
    copy_rows(turned[0], 16, height, 16, target, to_stride, height, width);
}

/* The tile at sample n and column k, multiples of 16; k may be past the last column, of a
 * panel that is only half full. */
static inline void reorder_tile(const layout_view *source, const layout_view *target,
                                int64_t n, int64_t k)
{
    const int64_t left = source->columns - k;
    const int samples = (int)SONDE_MIN(source->samples - n, 16);
    const int columns = (int)(left < 0 ? 0 : SONDE_MIN(left, 16));
    const bool from_lanes = source->layout == SONDE__LANES;
    int64_t from_stride, to_stride;
    const float *const a = layout_tile(source, n, k, &from_stride);
    float *const b = layout_tile(target, n, k, &to_stride);
    const int rows = from_lanes ? columns : samples;
    const int row = from_lanes ? samples : columns;

    if (target->layout == SONDE__LANES) { /* a row is a column, 16 wide */
        (from_lanes ? copy_rows : transpose_rows)(a, from_stride, rows, row, b, to_stride,
                                                  columns, 16);
    } else {
        (from_lanes ? transpose_rows
                    : copy_rows)(a, from_stride, rows, row, b, to_stride, samples,
                                 target->layout == SONDE__PANELS ? 16 : columns);
    }
}

#endif

/*
 * vec.h - sixteen floats at once, on every instruction set by one source.
 *
 * For the kernel files that are compiled once per instruction set; everything is static
 * inline and takes the ISA of the file that includes it.
 *
 *   vf    the widest native vector of float, VF_WIDTH numbers (16, 8 or 4). A compiler
 *         vector: + - * and comparisons work on it. For micro-kernels that count registers.
 *   v16   16 floats, a whole lane block of the LANES layout: one, two or four vf. Use the
 *         functions below, not operators: where it is wider than a register, it is a struct
 *         (a 64-byte compiler vector on AVX2 lives in memory, 10 times slower).
 *
 * Loads and stores need no alignment. a * b + c is contracted to one FMA wherever the ISA
 * has it (-ffp-contract=fast in these files), so write one product per sum where bits
 * matter. All sums have one fixed order: a tree of halves, the same on every ISA.
 */
#ifndef SONDE_NN_KERNELS_VEC_H
#define SONDE_NN_KERNELS_VEC_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

/* 64-byte vectors in registers or not is settled by inlining: there is no ABI to warn of.
 */
#pragma GCC diagnostic ignored "-Wpsabi"

#if defined(__AVX512F__)
#define VF_WIDTH 16
#elif defined(__AVX__)
#define VF_WIDTH 8
#else
#define VF_WIDTH 4
#endif

/* The tile of a product that stays in registers: rows by vectors of accumulators, 24 of 32
 * registers or 12 of 16; the rest hold what is multiplied. */
enum { VF_TILE_ROWS = 6, VF_TILE_VECS = VF_WIDTH == 16 ? 4 : 2 };

#define VEC_INLINE static inline __attribute__((always_inline, unused))
/* Unrolls the loop after it: needed where arrays of vectors are to become registers. */
#if defined(__clang__)
#define VEC_UNROLL _Pragma("clang loop unroll(full)")
#else
#define VEC_UNROLL _Pragma("GCC unroll 32")
#endif

/* An unrolled loop over i = 0 ... n - 1; over the rows and the vectors of a tile. */
#define VEC_EACH(i, n) VEC_UNROLL for (int i = 0; i < (n); i++)
#define VEC_TILE(row, rows, vec, vecs)                                                   \
    VEC_EACH (row, rows)                                                                 \
        VEC_EACH (vec, vecs)

typedef float vf __attribute__((vector_size(VF_WIDTH * 4)));
typedef int32_t vi __attribute__((vector_size(VF_WIDTH * 4)));
typedef float vf_memory __attribute__((vector_size(VF_WIDTH * 4), aligned(4), may_alias));

/* --- vf ----------------------------------------------------------------------------- */

VEC_INLINE vf vf_load(const float *p)
{
    return *(const vf_memory *)p;
}

VEC_INLINE void vf_store(float *p, vf a)
{
    *(vf_memory *)p = a;
}

/* The first n (0 ... VF_WIDTH) floats at p, then zeros; nothing else is read. */
VEC_INLINE vf vf_load_n(const float *p, int n)
{
#if VF_WIDTH == 16
    return (vf)_mm512_maskz_loadu_ps((__mmask16)((1U << n) - 1U), p);
#else
    float part[VF_WIDTH] = {0};

    for (int i = 0; i < n; i++) {
        part[i] = p[i];
    }
    return vf_load(part);
#endif
}

/* Only the first n (0 ... VF_WIDTH) floats at p are written. */
VEC_INLINE void vf_store_n(float *p, vf a, int n)
{
#if VF_WIDTH == 16
    _mm512_mask_storeu_ps(p, (__mmask16)((1U << n) - 1U), (__m512)a);
#else
    float part[VF_WIDTH];

    vf_store(part, a);
    for (int i = 0; i < n; i++) {
        p[i] = part[i];
    }
#endif
}

VEC_INLINE vf vf_set1(float s)
{
    return s - (vf){0}; /* the compilers' idiom for a broadcast; exact for every s */
}

VEC_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return a * b + c;
}

/* mask (all ones or all zeros an element) ? a : b */
VEC_INLINE vf vf_select(vi mask, vf a, vf b)
{
    return (vf)(((vi)a & mask) | ((vi)b & ~mask));
}

/* seen, and bits where an element of a is NaN or infinite: a - a is +0 where it is
 * finite. */
VEC_INLINE vf vf_see_bad(vf seen, vf a)
{
    return (vf)((vi)seen | (vi)(a - a));
}

/* Whether any bit is set. */
VEC_INLINE bool vf_any(vf a)
{
#if defined(__AVX512F__)
    return _mm512_test_epi32_mask((__m512i)a, (__m512i)a) != 0;
#elif defined(__AVX__)
    return _mm256_testz_si256((__m256i)a, (__m256i)a) == 0;
#else
    int32_t any = 0;

    for (int i = 0; i < VF_WIDTH; i++) {
        any |= ((vi)a)[i];
    }
    return any != 0;
#endif
}

/* gate <= 0 ? 0 : a. NaN in gate lets a through. */
VEC_INLINE vf vf_gate(vf gate, vf a)
{
#if defined(__AVX512F__)
    return (vf)_mm512_maskz_mov_ps(
        _mm512_cmp_ps_mask((__m512)gate, _mm512_setzero_ps(), _CMP_NLE_UQ), (__m512)a);
#else
    return (vf)(~(vi)(gate <= (vf){0}) & (vi)a);
#endif
}

/* a < 0 ? 0 : a, so NaN stays NaN and -0 stays -0. */
VEC_INLINE vf vf_relu(vf a)
{
#if defined(__AVX512F__)
    return (vf)_mm512_max_ps(_mm512_setzero_ps(), (__m512)a); /* a if either is NaN */
#else
    return (vf)(~(vi)(a < (vf){0}) & (vi)a);
#endif
}

/* The greater of each pair; NaN if a or b is NaN. Of two zeros: either. */
VEC_INLINE vf vf_max(vf a, vf b)
{
#if defined(__AVX512F__)
    const __m512 m = _mm512_max_ps((__m512)a, (__m512)b); /* b if any is NaN */
    return (vf)_mm512_mask_mov_ps(
        m, _mm512_cmp_ps_mask((__m512)a, (__m512)a, _CMP_UNORD_Q), (__m512)a);
#else
    return vf_select((vi)(a > b) | (vi)(a != a), a, b);
#endif
}

/* The smaller of each pair; NaN if a or b is NaN. */
VEC_INLINE vf vf_min(vf a, vf b)
{
    return -vf_max(-a, -b);
}

VEC_INLINE vf vf_sqrt(vf a)
{
#if defined(__AVX512F__)
    return (vf)_mm512_sqrt_ps((__m512)a);
#elif defined(__AVX__)
    return (vf)_mm256_sqrt_ps((__m256)a);
#elif defined(__SSE2__)
    return (vf)_mm_sqrt_ps((__m128)a);
#else
    for (int i = 0; i < VF_WIDTH; i++) {
        a[i] = __builtin_sqrtf(a[i]);
    }
    return a;
#endif
}

/* a itself, but rounded before it is added to anything: no FMA with what made it. */
VEC_INLINE vf vf_rounded(vf a)
{
#if defined(__AVX512F__)
    __asm__("" : "+v"(a));
#elif defined(__SSE2__)
    __asm__("" : "+x"(a));
#elif defined(__aarch64__)
    __asm__("" : "+w"(a));
#endif
    return a;
}

/* --- v16 ---------------------------------------------------------------------------- */

VEC_INLINE vf vf_add(vf a, vf b)
{
    return a + b;
}

VEC_INLINE vf vf_sub(vf a, vf b)
{
    return a - b;
}

VEC_INLINE vf vf_mul(vf a, vf b)
{
    return a * b;
}

VEC_INLINE vf vf_div(vf a, vf b)
{
    return a / b;
}

/* V16_MAPn: f of each part of n vectors; V16_OF: f(p) of each part of 16 floats at p;
 * V16_PUT: f(p, part) likewise. */
#if VF_WIDTH == 16
typedef vf v16;
#define V16_MAP1(f, a) f(a)
#define V16_MAP2(f, a, b) f(a, b)
#define V16_MAP3(f, a, b, c) f(a, b, c)
#define V16_OF(f, p) f(p)
#define V16_PUT(f, p, a) f(p, a)
#elif VF_WIDTH == 8
typedef struct v16 {
    vf p0, p1;
} v16;
#define V16_MAP1(f, a) ((v16){f((a).p0), f((a).p1)})
#define V16_MAP2(f, a, b) ((v16){f((a).p0, (b).p0), f((a).p1, (b).p1)})
#define V16_MAP3(f, a, b, c) ((v16){f((a).p0, (b).p0, (c).p0), f((a).p1, (b).p1, (c).p1)})
#define V16_OF(f, p) ((v16){f(p), f((p) + 8)})
#define V16_PUT(f, p, a) (f(p, (a).p0), f((p) + 8, (a).p1))
#else
typedef struct v16 {
    vf p0, p1, p2, p3;
} v16;
#define V16_MAP1(f, a) ((v16){f((a).p0), f((a).p1), f((a).p2), f((a).p3)})
#define V16_MAP2(f, a, b)                                                                \
    ((v16){f((a).p0, (b).p0), f((a).p1, (b).p1), f((a).p2, (b).p2), f((a).p3, (b).p3)})
#define V16_MAP3(f, a, b, c)                                                             \
    ((v16){f((a).p0, (b).p0, (c).p0), f((a).p1, (b).p1, (c).p1),                         \
           f((a).p2, (b).p2, (c).p2), f((a).p3, (b).p3, (c).p3)})
#define V16_OF(f, p) ((v16){f(p), f((p) + 4), f((p) + 8), f((p) + 12)})
#define V16_PUT(f, p, a)                                                                 \
    (f(p, (a).p0), f((p) + 4, (a).p1), f((p) + 8, (a).p2), f((p) + 12, (a).p3))
#endif

/* v16_name: vf_name of each part. */
#define V16_UNARY(name)                                                                  \
    VEC_INLINE v16 v16_##name(v16 a)                                                     \
    {                                                                                    \
        return V16_MAP1(vf_##name, a);                                                   \
    }
#define V16_BINARY(name)                                                                 \
    VEC_INLINE v16 v16_##name(v16 a, v16 b)                                              \
    {                                                                                    \
        return V16_MAP2(vf_##name, a, b);                                                \
    }
V16_UNARY(relu)
V16_UNARY(sqrt)
V16_UNARY(rounded)
V16_BINARY(add)
V16_BINARY(sub)
V16_BINARY(mul)
V16_BINARY(div)
V16_BINARY(max)
V16_BINARY(min)
V16_BINARY(see_bad)
V16_BINARY(gate)

VEC_INLINE v16 v16_fma(v16 a, v16 b, v16 c)
{
    return V16_MAP3(vf_fma, a, b, c);
}

VEC_INLINE v16 v16_load(const float *p)
{
    return V16_OF(vf_load, p);
}

VEC_INLINE void v16_store(float *p, v16 a)
{
    V16_PUT(vf_store, p, a);
}

VEC_INLINE v16 v16_set1(float s)
{
    const vf part = vf_set1(s);
#define V16_SAME(p) part
    return V16_OF(V16_SAME, 0);
#undef V16_SAME
}

VEC_INLINE v16 v16_zero(void)
{
    return v16_set1(0.0F);
}

VEC_INLINE bool v16_any(v16 a)
{
    uint32_t bits[16], any = 0;

    v16_store((float *)bits, a);
    for (int i = 0; i < 16; i++) {
        any |= bits[i];
    }
    return any != 0;
}

/* The first n (0 ... 16) floats at p, then zeros; nothing else is read. */
VEC_INLINE v16 v16_load_n(const float *p, int n)
{
#if VF_WIDTH == 16
    return vf_load_n(p, n);
#else
    float part[16] = {0};

    for (int i = 0; i < n; i++) {
        part[i] = p[i];
    }
    return v16_load(part);
#endif
}

/* Only the first n (0 ... 16) floats at p are written. */
VEC_INLINE void v16_store_n(float *p, v16 a, int n)
{
#if VF_WIDTH == 16
    vf_store_n(p, a, n);
#else
    float part[16];

    v16_store(part, a);
    for (int i = 0; i < n; i++) {
        p[i] = part[i];
    }
#endif
}

/* --- across lanes: sums and transposes ---------------------------------------------- */

/* The sum of the 16 lanes: i + (i + 8), then + 4, + 2, + 1. */
VEC_INLINE float v16_sum(v16 a)
{
    float part[16];

    v16_store(part, a);
    VEC_UNROLL
    for (int half = 8; half > 0; half /= 2) {
        VEC_EACH (i, half) {
            part[i] += part[i + half];
        }
    }
    return part[0];
}

/* Lane i of the result is v16_sum(a[i]), to the bit: 30 shuffles and 15 additions. */
VEC_INLINE v16 v16_sums(const v16 a[16])
{
#if VF_WIDTH == 16
    vf b[8], c[4], d[2];

    VEC_EACH (i, 8) {
        b[i] = __builtin_shufflevector(a[i], a[i + 8], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18,
                                       19, 20, 21, 22, 23) +
               __builtin_shufflevector(a[i], a[i + 8], 8, 9, 10, 11, 12, 13, 14, 15, 24,
                                       25, 26, 27, 28, 29, 30, 31);
    }
    VEC_EACH (i, 4) {
        c[i] = __builtin_shufflevector(b[i], b[i + 4], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9,
                                       10, 11, 24, 25, 26, 27) +
               __builtin_shufflevector(b[i], b[i + 4], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13,
                                       14, 15, 28, 29, 30, 31);
    }
    VEC_EACH (i, 2) {
        d[i] = __builtin_shufflevector(c[i], c[i + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9,
                                       24, 25, 12, 13, 28, 29) +
               __builtin_shufflevector(c[i], c[i + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11,
                                       26, 27, 14, 15, 30, 31);
    }
    return __builtin_shufflevector(d[0], d[1], 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26,
                                   12, 28, 14, 30) +
           __builtin_shufflevector(d[0], d[1], 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27,
                                   13, 29, 15, 31);
#else
    float sum[16];

    for (int i = 0; i < 16; i++) {
        sum[i] = v16_sum(a[i]);
    }
    return v16_load(sum);
#endif
}

/* 4 x 4, 8 x 8 or 16 x 16: element j of row i goes to element i of row j. */
#if VF_WIDTH == 16
VEC_INLINE void vf_transpose(vf r[VF_WIDTH])
{
    vf t[16];

    VEC_UNROLL
    for (int i = 0; i < 16; i += 4) { /* 4 x 4 inside each quarter of four rows */
        const vf a = __builtin_shufflevector(r[i], r[i + 1], 0, 16, 1, 17, 4, 20, 5, 21,
                                             8, 24, 9, 25, 12, 28, 13, 29);
        const vf b = __builtin_shufflevector(r[i], r[i + 1], 2, 18, 3, 19, 6, 22, 7, 23,
                                             10, 26, 11, 27, 14, 30, 15, 31);
        const vf c = __builtin_shufflevector(r[i + 2], r[i + 3], 0, 16, 1, 17, 4, 20, 5,
                                             21, 8, 24, 9, 25, 12, 28, 13, 29);
        const vf d = __builtin_shufflevector(r[i + 2], r[i + 3], 2, 18, 3, 19, 6, 22, 7,
                                             23, 10, 26, 11, 27, 14, 30, 15, 31);

        t[i] = __builtin_shufflevector(a, c, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12,
                                       13, 28, 29);
        t[i + 1] = __builtin_shufflevector(a, c, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26,
                                           27, 14, 15, 30, 31);
        t[i + 2] = __builtin_shufflevector(b, d, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25,
                                           12, 13, 28, 29);
        t[i + 3] = __builtin_shufflevector(b, d, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26,
                                           27, 14, 15, 30, 31);
    }
    VEC_EACH (i, 4) { /* 4 x 4 of quarters */
        const vf a = __builtin_shufflevector(t[i], t[i + 4], 0, 1, 2, 3, 8, 9, 10, 11, 16,
                                             17, 18, 19, 24, 25, 26, 27);
        const vf b = __builtin_shufflevector(t[i], t[i + 4], 4, 5, 6, 7, 12, 13, 14, 15,
                                             20, 21, 22, 23, 28, 29, 30, 31);
        const vf c = __builtin_shufflevector(t[i + 8], t[i + 12], 0, 1, 2, 3, 8, 9, 10,
                                             11, 16, 17, 18, 19, 24, 25, 26, 27);
        const vf d = __builtin_shufflevector(t[i + 8], t[i + 12], 4, 5, 6, 7, 12, 13, 14,
                                             15, 20, 21, 22, 23, 28, 29, 30, 31);

        r[i] = __builtin_shufflevector(a, c, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24,
                                       25, 26, 27);
        r[i + 4] = __builtin_shufflevector(b, d, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19,
                                           24, 25, 26, 27);
        r[i + 8] = __builtin_shufflevector(a, c, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22,
                                           23, 28, 29, 30, 31);
        r[i + 12] = __builtin_shufflevector(b, d, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22,
                                            23, 28, 29, 30, 31);
    }
}
#elif VF_WIDTH == 8
VEC_INLINE void vf_transpose(vf r[VF_WIDTH])
{
    vf t[8];

    VEC_UNROLL
    for (int i = 0; i < 8; i += 4) { /* 4 x 4 inside each half of four rows */
        const vf a = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        const vf b = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
        const vf c =
            __builtin_shufflevector(r[i + 2], r[i + 3], 0, 8, 1, 9, 4, 12, 5, 13);
        const vf d =
            __builtin_shufflevector(r[i + 2], r[i + 3], 2, 10, 3, 11, 6, 14, 7, 15);

        t[i] = __builtin_shufflevector(a, c, 0, 1, 8, 9, 4, 5, 12, 13);
        t[i + 1] = __builtin_shufflevector(a, c, 2, 3, 10, 11, 6, 7, 14, 15);
        t[i + 2] = __builtin_shufflevector(b, d, 0, 1, 8, 9, 4, 5, 12, 13);
        t[i + 3] = __builtin_shufflevector(b, d, 2, 3, 10, 11, 6, 7, 14, 15);
    }
    VEC_EACH (i, 4) {
        r[i] = __builtin_shufflevector(t[i], t[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        r[i + 4] = __builtin_shufflevector(t[i], t[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}
#else
VEC_INLINE void vf_transpose(vf r[VF_WIDTH])
{
    const vf a = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
    const vf b = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
    const vf c = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
    const vf d = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);

    r[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
    r[1] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
    r[2] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
    r[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
}
#endif

/* to[j * to_stride + i] = from[i * from_stride + j] for i, j in 0 ... 15; no overlap. */
VEC_INLINE void vec_transpose16(const float *source, int64_t from_stride, float *target,
                                int64_t to_stride)
{
    for (int i = 0; i < 16; i += VF_WIDTH) {
        for (int j = 0; j < 16; j += VF_WIDTH) {
            vf r[VF_WIDTH];

            VEC_EACH (k, VF_WIDTH) {
                r[k] = vf_load(source + (i + k) * from_stride + j);
            }
            vf_transpose(r);
            VEC_EACH (k, VF_WIDTH) {
                vf_store(target + (j + k) * to_stride + i, r[k]);
            }
        }
    }
}

#endif

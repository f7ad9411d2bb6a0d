/*
 * vec.h - sixteen floats at once, on every instruction set by one source; exp and log of them.
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
#if VF_WIDTH == 16
#define VF_UP_TO_TILE_VECS(X, ...) VEC_UP_TO_4(X, __VA_ARGS__)
#else
#define VF_UP_TO_TILE_VECS(X, ...) VEC_UP_TO_2(X, __VA_ARGS__)
#endif

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

/* X(..., n) for n = 1 ... 4 and so on: a function for every size of a tile, or a list of them. */
#define VEC_UP_TO_2(X, ...) X(__VA_ARGS__, 1) X(__VA_ARGS__, 2)
#define VEC_UP_TO_4(X, ...)                                                              \
    VEC_UP_TO_2(X, __VA_ARGS__) X(__VA_ARGS__, 3) X(__VA_ARGS__, 4)
#define VEC_UP_TO_6(X, ...)                                                              \
    VEC_UP_TO_4(X, __VA_ARGS__) X(__VA_ARGS__, 5) X(__VA_ARGS__, 6)
#define VEC_UP_TO_8(X, ...)                                                              \
    VEC_UP_TO_6(X, __VA_ARGS__) X(__VA_ARGS__, 7) X(__VA_ARGS__, 8)
#define VEC_UP_TO_9(X, ...) VEC_UP_TO_8(X, __VA_ARGS__) X(__VA_ARGS__, 9)
#define VEC_UP_TO_10(X, ...) VEC_UP_TO_9(X, __VA_ARGS__) X(__VA_ARGS__, 10)
#define VEC_UP_TO_12(X, ...)                                                             \
    VEC_UP_TO_10(X, __VA_ARGS__) X(__VA_ARGS__, 11) X(__VA_ARGS__, 12)
#define VEC_UP_TO_16(X, ...)                                                             \
    VEC_UP_TO_12(X, __VA_ARGS__)                                                         \
    X(__VA_ARGS__, 13) X(__VA_ARGS__, 14) X(__VA_ARGS__, 15) X(__VA_ARGS__, 16)
#define VEC_UP_TO_20(X, ...)                                                             \
    VEC_UP_TO_16(X, __VA_ARGS__)                                                         \
    X(__VA_ARGS__, 17) X(__VA_ARGS__, 18) X(__VA_ARGS__, 19) X(__VA_ARGS__, 20)

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

/* The shuffle of two vectors whose lane l is number f(l, d): a lane of a, or VF_WIDTH and a lane
 * of b. */
#if VF_WIDTH == 16
#define VF_LANES(f, d)                                                                   \
    f(0, d), f(1, d), f(2, d), f(3, d), f(4, d), f(5, d), f(6, d), f(7, d), f(8, d),     \
        f(9, d), f(10, d), f(11, d), f(12, d), f(13, d), f(14, d), f(15, d)
#elif VF_WIDTH == 8
#define VF_LANES(f, d)                                                                   \
    f(0, d), f(1, d), f(2, d), f(3, d), f(4, d), f(5, d), f(6, d), f(7, d)
#else
#define VF_LANES(f, d) f(0, d), f(1, d), f(2, d), f(3, d)
#endif
#define VF_SHUFFLE(a, b, f, d) __builtin_shufflevector(a, b, VF_LANES(f, d))

/* d lanes of a and of b in turn: those at 0, or those at d, of every 2 d. */
#define VF_LOW(l, d) ((l) & (d) ? VF_WIDTH + (l) - (d) : (l))
#define VF_HIGH(l, d) ((l) & (d) ? VF_WIDTH + (l) : (l) + (d))
/* Of every four lanes, two of a and two of b: one by one, or in pairs. d: 0, 2. */
#define VF_MIXED(l, d) (((l) & ~3) + ((l)&3) / 2 + (d) + ((l)&1 ? VF_WIDTH : 0))
#define VF_PAIRS(l, d) ((l) + (d) + ((l)&2 ? VF_WIDTH - 2 : 0))
/* Quarters 0 and 2 (d: 0) or 1 and 3 (d: 4) of 16 lanes of a, then of b. */
#define VF_QUARTERS(l, d) (((l)&4) * 2 + ((l)&3) + (d) + ((l)&8 ? VF_WIDTH : 0))

/* Lane i of the result is v16_sum(a[i]), to the bit: 30 shuffles and 15 additions. */
VEC_INLINE v16 v16_sums(const v16 a[16])
{
#if VF_WIDTH == 16
    vf b[8];

#define VF_FOLD(to, from, d)                                                             \
    VEC_EACH (i, d) {                                                                    \
        to[i] = VF_SHUFFLE(from[i], from[i + (d)], VF_LOW, d) +                          \
                VF_SHUFFLE(from[i], from[i + (d)], VF_HIGH, d);                          \
    }
    VF_FOLD(b, a, 8)
    VF_FOLD(b, b, 4)
    VF_FOLD(b, b, 2)
    VF_FOLD(b, b, 1)
#undef VF_FOLD
    return b[0];
#else
    float sum[16];

    for (int i = 0; i < 16; i++) {
        sum[i] = v16_sum(a[i]);
    }
    return v16_load(sum);
#endif
}

/* 4 x 4, 8 x 8 or 16 x 16: element j of row i goes to element i of row j. */
VEC_INLINE void vf_transpose(vf r[VF_WIDTH])
{
    vf t[VF_WIDTH];

    VEC_EACH (k, VF_WIDTH / 4) { /* 4 x 4 inside each quarter of four rows */
        const vf *const x = r + 4 * k;
        const vf a = VF_SHUFFLE(x[0], x[1], VF_MIXED, 0);
        const vf b = VF_SHUFFLE(x[0], x[1], VF_MIXED, 2);
        const vf c = VF_SHUFFLE(x[2], x[3], VF_MIXED, 0);
        const vf d = VF_SHUFFLE(x[2], x[3], VF_MIXED, 2);

        t[4 * k] = VF_SHUFFLE(a, c, VF_PAIRS, 0);
        t[4 * k + 1] = VF_SHUFFLE(a, c, VF_PAIRS, 2);
        t[4 * k + 2] = VF_SHUFFLE(b, d, VF_PAIRS, 0);
        t[4 * k + 3] = VF_SHUFFLE(b, d, VF_PAIRS, 2);
    }
    VEC_EACH (i, 4) { /* quarters, or halves, as wholes */
#if VF_WIDTH == 16
        const vf a = VF_SHUFFLE(t[i], t[i + 4], VF_QUARTERS, 0);
        const vf b = VF_SHUFFLE(t[i], t[i + 4], VF_QUARTERS, 4);
        const vf c = VF_SHUFFLE(t[i + 8], t[i + 12], VF_QUARTERS, 0);
        const vf d = VF_SHUFFLE(t[i + 8], t[i + 12], VF_QUARTERS, 4);

        r[i] = VF_SHUFFLE(a, c, VF_QUARTERS, 0);
        r[i + 4] = VF_SHUFFLE(b, d, VF_QUARTERS, 0);
        r[i + 8] = VF_SHUFFLE(a, c, VF_QUARTERS, 4);
        r[i + 12] = VF_SHUFFLE(b, d, VF_QUARTERS, 4);
#elif VF_WIDTH == 8
        r[i] = VF_SHUFFLE(t[i], t[i + 4], VF_LOW, 4);
        r[i + 4] = VF_SHUFFLE(t[i], t[i + 4], VF_HIGH, 4);
#else
        r[i] = t[i];
#endif
    }
}

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

/* --- exp and log -------------------------------------------------------------------- */

/*
 * Argument reduction after Cody and Waite (Software Manual for the Elementary Functions,
 * 1980), minimax polynomials with the coefficients of S. L. Moshier's Cephes library
 * (expf, logf). Largest error: exp 1.01, log 0.83 units in the last place, subnormal
 * arguments and results included; tests/nn/test_kernels_lanes.c holds both to 2. Nothing
 * traps.
 */

/* 2^n, for n in -126 ... 127. */
VEC_INLINE vf vf_power_of_two(vi n)
{
    return (vf)((n + 127) << 23);
}

/*
 * exp: NaN to NaN, -Inf to 0, above 88.73 to +Inf.
 *
 * x = n ln 2 + r with |r| <= ln 2 / 2, ln 2 in two pieces of which the first has few
 * enough bits for n times it to be exact; exp(x) = 2^n exp(r). The factor is applied in
 * two halves, since 2^n alone may be out of range where exp(x) is not.
 */
VEC_INLINE vf vf_exp(vf x)
{
    const vf most = vf_set1(100.0F), least = vf_set1(-110.0F);
    const vf round = vf_set1(12582912.0F); /* 1.5 * 2^23: the sum's last bit is worth 1 */
    const vf bounded =
        vf_select((vi)(x > most), most, vf_select((vi)(x < least), least, x));
    const vf shifted = vf_fma(bounded, vf_set1(1.44269504088896341F), round);
    const vf n = shifted - round;
    const vi whole = (vi)shifted - (vi)round, half = whole >> 1;
    const vf r =
        vf_fma(n, vf_set1(2.12194440e-4F), vf_fma(n, vf_set1(-0.693359375F), bounded));
    vf p = vf_set1(1.9875691500e-4F);

    p = vf_fma(p, r, vf_set1(1.3981999507e-3F));
    p = vf_fma(p, r, vf_set1(8.3334519073e-3F));
    p = vf_fma(p, r, vf_set1(4.1665795894e-2F));
    p = vf_fma(p, r, vf_set1(1.6666665459e-1F));
    p = vf_fma(p, r, vf_set1(5.0000001201e-1F));
    p = vf_fma(p, r * r, r) + vf_set1(1.0F);
    return vf_rounded(p * vf_power_of_two(half)) * vf_power_of_two(whole - half);
}

/*
 * log: of 0 -Inf, of less NaN, of +Inf itself, NaN to NaN.
 *
 * x = 2^n (1 + f) with 1 + f in sqrt(1/2) ... sqrt(2); log(x) = n ln 2 + log(1 + f).
 */
VEC_INLINE vf vf_log(vf x)
{
    const vi special = (vi)(x <= (vf){0}) | ~(vi)(x < vf_set1(__builtin_inff()));
    const vi tiny = (vi)(x < vf_set1(1.17549435e-38F)) & ~special; /* subnormal */
    const vf normal = vf_select(tiny, x * vf_set1(8388608.0F), x);
    const vi bits = (vi)vf_select(special, vf_set1(1.0F), normal);
    const vi above = bits - 0x3f3504f3; /* from the bits of sqrt(1/2) */
    const vi n = (above >> 23) - (tiny & 23);
    const vf f = (vf)((above & 0x007fffff) + 0x3f3504f3) - vf_set1(1.0F);
    const vf e = __builtin_convertvector(n, vf), z = f * f;
    vf p = vf_set1(7.0376836292e-2F), y;

    p = vf_fma(p, f, vf_set1(-1.1514610310e-1F));
    p = vf_fma(p, f, vf_set1(1.1676998740e-1F));
    p = vf_fma(p, f, vf_set1(-1.2420140846e-1F));
    p = vf_fma(p, f, vf_set1(1.4249322787e-1F));
    p = vf_fma(p, f, vf_set1(-1.6668057665e-1F));
    p = vf_fma(p, f, vf_set1(2.0000714765e-1F));
    p = vf_fma(p, f, vf_set1(-2.4999993993e-1F));
    p = vf_fma(p, f, vf_set1(3.3333331174e-1F));
    y = vf_fma(e, vf_set1(-2.12194440e-4F), p * f * z);
    y = vf_fma(z, vf_set1(-0.5F), y);
    y = vf_fma(e, vf_set1(0.693359375F), f + y);
    /* 0 to -Inf, negative to NaN; NaN and +Inf stay, since x + x is x there */
    return vf_select(
        special,
        vf_select((vi)(x == (vf){0}), vf_set1(-__builtin_inff()),
                  vf_select((vi)(x < (vf){0}), vf_set1(__builtin_nanf("")), x + x)),
        y);
}

#endif

/*
 * half_gemm_kernels.c - see gemm.h: blocks of both operands are rounded into scratch,
 * their product is summed in float32 there, and is rounded once into C.
 *
 * For the float unit a block is float32, row-major. For the others it is a list of tiles of
 * 1 KB, 16 rows of 64 bytes:
 *
 *   A   tile (i, k): row r holds A(16 i + r, 32 k ... 32 k + 31)
 *   B   tile (j, k): row p holds B(32 k + 2 p, 16 j + c) and B(32 k + 2 p + 1, 16 j + c) side
 *       by side, c = 0 ... 15
 *
 * What is missing in the last ones is 0; what that yields is not stored.
 */
#include "base/isa.h"
#include "base/macros.h"
#include "nn/kernels/gemm.h"
#include "nn/kernels/gemm.h"
#include "nn/kernels/vec.h"
#include "tensor/convert.h"

#include <string.h>

enum {
    BLOCK_M = SONDE__KERNEL_HALF_M,
    BLOCK_N = SONDE__KERNEL_HALF_N,
    BLOCK_K = SONDE__KERNEL_HALF_K,
    BLOCK_SUMS = SONDE__KERNEL_HALF_SUMS
};

typedef sonde__kernel_half_gemm product;
typedef sonde__kernel_half_matrix matrix;

/* --- conversions -------------------------------------------------------------------- */

/* To nearest, ties to even; NaN keeps its upper payload and is quiet. */
static void narrow_bf16(const float *data, int64_t n, uint16_t *out)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = 0;

        memcpy(&bits, data + i, sizeof bits);
        out[i] = (bits & 0x7FFFFFFFU) > 0x7F800000U
                     ? (uint16_t)(bits >> 16 | 0x40U)
                     : (uint16_t)((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
    }
}

static void narrow_f16(const float *data, int64_t n, uint16_t *out)
{
    int64_t i = 0;

#if defined(__F16C__)
    for (; i + 8 <= n; i += 8) {
        const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(data + i), 0);

        memcpy(out + i, &half, sizeof half);
    }
#endif
    for (; i < n; i++) {
        out[i] = sonde__dtype_f32_to_f16(data[i]);
    }
}

static void widen(sonde_dtype dtype, const void *data, int64_t n, float *out)
{
    if (dtype == SONDE_BF16) {
        widen_bf16(data, (size_t)n, out);
    } else if (dtype == SONDE_F16) {
        widen_f16(data, (size_t)n, out);
    } else {
        memcpy(out, data, (size_t)n * sizeof *out);
    }
}

static void narrow(const float *data, int64_t n, sonde_dtype dtype, void *out)
{
    if (dtype == SONDE_BF16) {
        narrow_bf16(data, n, out);
    } else if (dtype == SONDE_F16) {
        narrow_f16(data, n, out);
    } else {
        memcpy(out, data, (size_t)n * sizeof *data);
    }
}

/* --- C ------------------------------------------------------------------------------ */

/* Negative numbers become 0; -0 and NaN stay. */
static void clear_negative(sonde_dtype dtype, uint16_t *bits, int64_t n)
{
    const uint16_t last = dtype == SONDE_BF16 ? 0xFF80U : 0xFC00U; /* -infinity */

    for (int64_t i = 0; i < n; i++) {
        bits[i] = bits[i] > 0x8000U && bits[i] <= last ? 0 : bits[i];
    }
}

static void store_relu(const product *p, const float *sums, int64_t n, void *relu)
{
    float *const wide = relu;

    narrow(sums, n, p->c_dtype, relu);
    if (p->c_dtype != SONDE_F32) {
        clear_negative(p->c_dtype, relu, n);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        wide[i] = wide[i] < 0.0F ? 0.0F : wide[i];
    }
}

/* Rows of C from their sums, which lie BLOCK_N apart. */
static void store_rows(const product *p, int64_t row, int64_t rows, int64_t col,
                       int64_t cols, float *sums)
{
    const int64_t size = (int64_t)sonde_dtype_size(p->c_dtype);

    for (int64_t i = row; i < row + rows; i++) {
        const int64_t place = (i * p->c_row + col) * size;
        float *const line = sums + (i - row) * BLOCK_N;

        for (int64_t j = 0; p->bias != NULL && j < cols; j++) {
            line[j] += p->bias_of_rows ? p->bias[i] : p->bias[col + j];
        }
        if (p->accumulate) {
            const float *const old = (const float *)(const void *)((char *)p->c + place);

            for (int64_t j = 0; j < cols; j++) {
                line[j] += old[j];
            }
        }
        if (p->c != NULL) {
            narrow(line, cols, p->c_dtype, (char *)p->c + place);
        }
        if (p->relu != NULL) {
            store_relu(p, line, cols, (char *)p->relu + place);
        }
    }
}

/* --- a block, whatever the unit ----------------------------------------------------- */

typedef struct block {
    const product *p;
    int64_t row, rows, col, cols, k, depth;
    void *a, *b;
    float *sums; /* of `row`; rows BLOCK_N apart */
    void *scratch;
} block;

typedef struct unit {
    void (*take_a)(const block *t);
    void (*take_b)(const block *t);
    /* sums = A B, or += after the first block of k. */
    void (*multiply)(const block *t);
} unit;

/* --- float32 ------------------------------------------------------------------------ */

/* n numbers, rounded to dtype, as float32. */
static void take_line(const matrix *x, sonde_dtype dtype, int64_t first, int64_t step,
                      int64_t n, float *line)
{
    const char *const data = x->data;
    const int64_t size = (int64_t)sonde_dtype_size(x->dtype);
    uint16_t bits[BLOCK_K];

    if (x->dtype == SONDE_F32 && step == 1) {
        narrow((const float *)x->data + first, n, dtype, bits);
    } else if (x->dtype == SONDE_F32) {
        for (int64_t i = 0; i < n; i++) {
            narrow((const float *)x->data + first + i * step, 1, dtype, bits + i);
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            memcpy(bits + i, data + (first + i * step) * size, sizeof *bits);
        }
    }
    widen(dtype, bits, n, line);
}

static void take_a_float(const block *t)
{
    const matrix *const x = &t->p->a;
    float *const a = t->a;

    for (int64_t i = 0; i < t->rows; i++) {
        take_line(x, t->p->dtype, (t->row + i) * x->row + t->k * x->col, x->col, t->depth,
                  a + i * t->depth);
    }
}

static void take_b_float(const block *t)
{
    const matrix *const x = &t->p->b;
    float *const b = t->b;

    for (int64_t k = 0; k < t->depth; k++) {
        take_line(x, t->p->dtype, (t->k + k) * x->row + t->col * x->col, x->col, t->cols,
                  b + k * BLOCK_N);
    }
}

static void multiply_float(const block *t)
{
    const sonde__kernel_gemm g = {.m = t->rows,
                                  .n = t->cols,
                                  .k = t->depth,
                                  .a = {t->a, t->depth, 1},
                                  .b = {t->b, BLOCK_N, 1},
                                  .c = t->sums,
                                  .c_row = BLOCK_N,
                                  .accumulate = t->k > 0};

    ISA(sonde__kernel_gemm_run)(&g, t->scratch);
}

/* --- AVX-512 and AMX ---------------------------------------------------------------- */

#if VF_WIDTH == 16

#define HALF_AVX512 __attribute__((target("avx512bf16")))

enum { TILE = SONDE__KERNEL_TILE, TILE_BYTES = 2 * TILE };

/* The first n (up to 32) of 32 adjacent numbers, then zeros. */
HALF_AVX512 VEC_INLINE __m512i load_32(const matrix *x, int64_t first, int64_t n)
{
    const uint32_t mask = n >= 32 ? UINT32_MAX : (1U << (uint32_t)n) - 1U;

    if (x->dtype == SONDE_F32) {
        const float *const data = (const float *)x->data + first;
        const __m512 low = _mm512_maskz_loadu_ps((__mmask16)mask, data);
        const __m512 high = _mm512_maskz_loadu_ps((__mmask16)(mask >> 16), data + 16);

        return (__m512i)_mm512_cvtne2ps_pbh(high, low);
    }
    return _mm512_maskz_loadu_epi16(mask, (const uint16_t *)x->data + first);
}

/* Of two rows of n (up to 16) adjacent numbers, pairs; the second may be missing. */
HALF_AVX512 VEC_INLINE __m512i load_pairs(const matrix *x, int64_t first, int64_t second,
                                          int64_t n, bool both)
{
    static const uint16_t order[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                       21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                       11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __mmask16 mask = (__mmask16)(n >= 16 ? 0xFFFFU : (1U << (uint32_t)n) - 1U);
    const __mmask16 other = both ? mask : 0;
    __m512i joined;

    if (x->dtype == SONDE_F32) {
        const float *const data = x->data;

        joined = (__m512i)_mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(other, data + second),
                                              _mm512_maskz_loadu_ps(mask, data + first));
    } else {
        const uint16_t *const data = x->data;

        joined = _mm512_inserti64x4(
            _mm512_castsi256_si512(_mm256_maskz_loadu_epi16(mask, data + first)),
            _mm256_maskz_loadu_epi16(other, data + second), 1);
    }
    return _mm512_permutexvar_epi16(_mm512_loadu_si512(order), joined);
}

/* Numbers that lie anywhere: the first n of row `first`, `step` apart. */
static __m512i gather_32(const matrix *x, int64_t first, int64_t step, int64_t n)
{
    uint16_t bits[32] = {0};

    for (int64_t i = 0; i < n && i < 32; i++) {
        if (x->dtype == SONDE_F32) {
            narrow_bf16((const float *)x->data + first + i * step, 1, bits + i);
        } else {
            bits[i] = ((const uint16_t *)x->data)[first + i * step];
        }
    }
    return _mm512_loadu_si512(bits);
}

/* A tile of 16 rows i and 32 k of which `rows` and `depth` exist. lines: as A has it,
 * else as B has it. by_pairs: rows lie side by side. */
HALF_AVX512 VEC_INLINE void take_tile(const matrix *x, int64_t first, int64_t rows,
                                      int64_t depth, const bool by_pairs,
                                      const bool lines, uint16_t *tile)
{
    vf v[16];

    VEC_EACH (i, 16) {
        v[i] = (vf){0};
        if (by_pairs && 2 * i < depth) {
            const int64_t place = first + 2 * i * x->col;

            v[i] = (vf)load_pairs(x, place, place + x->col, rows, 2 * i + 1 < depth);
        } else if (!by_pairs && i < rows) {
            v[i] = (vf)(x->col == 1 ? load_32(x, first + i * x->row, depth)
                                    : gather_32(x, first + i * x->row, x->col, depth));
        }
    }
    if (by_pairs == lines) {
        vf_transpose(v);
    }
    VEC_EACH (i, 16) {
        _mm512_storeu_si512(tile + 32 * i, (__m512i)v[i]);
    }
}

/* All tiles of `count` rows, from number `first` on. */
HALF_AVX512 VEC_INLINE void take_all(const matrix *given, int64_t first, int64_t count,
                                     int64_t depth, const sonde_dtype dtype,
                                     const bool by_pairs, const bool lines,
                                     uint16_t *tile)
{
    const matrix x = {given->data, dtype, by_pairs ? 1 : given->row, given->col};

    for (int64_t i = 0; i < count; i += 16) {
        for (int64_t k = 0; k < depth; k += 32) {
            const int64_t place = first + i * x.row + k * x.col;

            if (count - i >= 16 && depth - k >= 32) {
                take_tile(&x, place, 16, 32, by_pairs, lines, tile);
            } else {
                take_tile(&x, place, count - i, depth - k, by_pairs, lines, tile);
            }
            tile += TILE;
        }
    }
}

HALF_AVX512 __attribute__((noinline)) static void take_tiles(const matrix *x,
                                                             int64_t first, int64_t count,
                                                             int64_t depth, bool lines,
                                                             uint16_t *tile)
{
    const bool by_pairs = x->row == 1 && x->col != 1, wide = x->dtype == SONDE_F32;

#define TAKE(dtype, pairs, in_lines)                                                     \
    take_all(x, first, count, depth, dtype, pairs, in_lines, tile)
    if (by_pairs && lines && wide) {
        TAKE(SONDE_F32, true, true);
    } else if (by_pairs && lines) {
        TAKE(SONDE_BF16, true, true);
    } else if (by_pairs && wide) {
        TAKE(SONDE_F32, true, false);
    } else if (by_pairs) {
        TAKE(SONDE_BF16, true, false);
    } else if (lines && wide) {
        TAKE(SONDE_F32, false, true);
    } else if (lines) {
        TAKE(SONDE_BF16, false, true);
    } else if (wide) {
        TAKE(SONDE_F32, false, false);
    } else {
        TAKE(SONDE_BF16, false, false);
    }
#undef TAKE
}

static void take_a_tiles(const block *t)
{
    const matrix *const x = &t->p->a;

    take_tiles(x, t->row * x->row + t->k * x->col, t->rows, t->depth, true, t->a);
}

static void take_b_tiles(const block *t)
{
    const matrix columns = {t->p->b.data, t->p->b.dtype, t->p->b.col, t->p->b.row};

    take_tiles(&columns, t->col * columns.row + t->k * columns.col, t->cols, t->depth,
               false, t->b);
}

static void multiply_tiles(const block *t, sonde__half which)
{
    int64_t place[BLOCK_K / 32];
    const sonde__kernel_half_tiles p = {.a = t->a,
                                        .a_row = 64,
                                        .a_rows = (t->depth + 31) / 32 * TILE_BYTES,
                                        .a_at = place,
                                        .b = t->b,
                                        .tiles = (t->depth + 31) / 32,
                                        .m = (t->rows + 15) / 16 * 16,
                                        .n = (t->cols + 15) / 16 * 16,
                                        .c = t->sums,
                                        .c_row = BLOCK_N,
                                        .resume = t->k > 0};

    for (int64_t k = 0; k < p.tiles; k++) {
        place[k] = k * TILE_BYTES;
    }
    ISA(sonde__kernel_half_tile).run(&p, which);
}

static void multiply_avx512(const block *t)
{
    multiply_tiles(t, SONDE__HALF_AVX512);
}

static void multiply_amx(const block *t)
{
    multiply_tiles(t, SONDE__HALF_AMX);
}

#endif

/* --- the product -------------------------------------------------------------------- */

static const unit *unit_of(sonde__half which)
{
#if VF_WIDTH == 16
    static const unit units[] = {
        [SONDE__HALF_BY_FLOAT] = {take_a_float, take_b_float, multiply_float},
        [SONDE__HALF_AVX512] = {take_a_tiles, take_b_tiles, multiply_avx512},
        [SONDE__HALF_AMX] = {take_a_tiles, take_b_tiles, multiply_amx},
    };

    return &units[which];
#else
    static const unit floats = {take_a_float, take_b_float, multiply_float};

    (void)which;
    return &floats;
#endif
}

static void clear_sums(float *sums, int64_t rows)
{
    memset(sums, 0, (size_t)(rows * BLOCK_N) * sizeof *sums);
}

/* Where `packed` has the block of B at (t->k, t->col). */
static float *packed_block(const block *t)
{
    const int64_t depth = (t->p->k + 31) / 32 * 32;

    return (float *)t->p->packed + t->col * depth + t->k * BLOCK_N;
}

static void pack(const unit *by, block t)
{
    const product *const p = t.p;

    for (t.col = 0; t.col < p->n; t.col += BLOCK_N) {
        t.cols = SONDE_MIN(p->n - t.col, (int64_t)BLOCK_N);
        for (t.k = 0; t.k < p->k; t.k += BLOCK_K) {
            t.depth = SONDE_MIN(p->k - t.k, (int64_t)BLOCK_K);
            t.b = packed_block(&t);
            by->take_b(&t);
        }
    }
}

/* Up to BLOCK_SUMS rows of one block of columns. fresh: B has to be taken. */
static void run_rows(const unit *by, block t, int64_t rows, bool fresh)
{
    const product *const p = t.p;
    const int64_t first = t.row, end = t.row + rows;
    float *const sums = t.sums;

    for (t.k = 0; t.k == 0 || t.k < p->k; t.k += BLOCK_K) {
        t.depth = SONDE_MIN(p->k - t.k, (int64_t)BLOCK_K);
        if (p->packed != NULL) {
            t.b = packed_block(&t);
        } else if (t.depth > 0 && (fresh || p->k > BLOCK_K)) {
            by->take_b(&t);
        }
        for (t.row = first; t.row < end; t.row += BLOCK_M) {
            t.rows = SONDE_MIN(end - t.row, (int64_t)BLOCK_M);
            t.sums = sums + (t.row - first) * BLOCK_N;
            if (t.depth > 0) {
                by->take_a(&t);
                by->multiply(&t);
            } else {
                clear_sums(t.sums, t.rows);
            }
            if (t.k + t.depth == p->k) {
                store_rows(p, t.row, t.rows, t.col, t.cols, t.sums);
            }
        }
    }
}

static void run(const product *p, sonde__half which, void *scratch)
{
    const unit *const by = unit_of(which);
    const int64_t depth = SONDE_MIN((p->k + 31) / 32 * 32, (int64_t)BLOCK_K);
    const int64_t most = SONDE_MIN((p->m + 31) / 32 * 32, (int64_t)BLOCK_SUMS);
    float *const memory = scratch;
    block t = {.p = p, .a = memory, .b = memory + depth * BLOCK_M};

    t.sums = memory + depth * (BLOCK_M + BLOCK_N);
    t.scratch = t.sums + most * BLOCK_N;
    if (p->packs) {
        pack(by, t);
        return;
    }
    for (t.col = 0; t.col < p->n; t.col += BLOCK_N) {
        t.cols = SONDE_MIN(p->n - t.col, (int64_t)BLOCK_N);
        for (t.row = 0; t.row < p->m; t.row += BLOCK_SUMS) {
            run_rows(by, t, SONDE_MIN(p->m - t.row, (int64_t)BLOCK_SUMS), t.row == 0);
        }
    }
}

const sonde__kernel_half_kernels ISA(sonde__kernel_half) = {
    .run = run,
    .widen = widen,
    .narrow = narrow,
};

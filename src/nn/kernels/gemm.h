/*
 * gemm.h - the product of two matrices, for ops over PLAIN operands: matmul, attention,
 * recurrent layers.
 *
 *     static size_t scratch(const sonde__op_call *call, int parts)
 *     {
 *         return sonde__kernel_gemm_scratch() * (size_t)parts;
 *     }
 *     ...
 *     sonde__kernel_gemm product = {.m = m, .n = n, .k = k,
 *                            .a = {a, k, 1},         (m, k), row-major
 *                            .b = {b, 1, k},         (k, n), the transpose of rows of k
 *                            .c = c, .c_row = n};
 *     sonde__kernel_gemm_take_part(&product, part, parts);
 *     sonde__kernel_gemm_run(&product, (char *)call->scratch +
 *                                   sonde__kernel_gemm_scratch() * (size_t)part);
 *
 * Every number of C is one chain of multiply-adds over k = 0, 1, 2 ..., which begins at 0
 * or at the number in C: its bits depend on A, B and the instruction set alone, neither
 * on the shape around it nor on parts. NaN and infinities take part as any number.
 *
 * Cost: A and B are copied in blocks into scratch, which pays from about 16 rows; with
 * few rows B is read where it lies if its columns are adjacent.
 *
 * The half product is that of matrices whose numbers are bfloat16 or float16, summed in float32:
 * what linear, convolution, matmul, attention and recurrent layers use in these dtypes.
 *
 * Operands are of `dtype`, or float32 and rounded to it as they are read: to nearest, ties
 * to even; NaN stays NaN. A sum is rounded once, when it is stored.
 *
 * Three units compute it, see sonde__cpu_half():
 *
 *   float    any processor, and float16 on all of them: the rounded operands become
 *            float32 and sonde__kernel_gemm_run multiplies them. Its sums are its bits.
 *   avx512   vdpbf16ps: one chain over pairs k = (0, 1), (2, 3) ...
 *   amx      tdpbf16ps: a chain over groups of 32 k; in a group two chains, of even and of
 *            odd k, which are then added.
 *
 * The last two take denormal operands, products and sums as zeros. Bits depend on the
 * operands and the unit, neither on the shape around a number nor on parts.
 */
#ifndef SONDE_NN_KERNELS_GEMM_H
#define SONDE_NN_KERNELS_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sonde/export.h>
#include <sonde/tensor.h>

#include "base/cpu.h"

/* Element (i, j) is data[i * row + j * col]; strides in floats, of any sign. */
typedef struct sonde__kernel_gemm_matrix {
    const float *data;
    int64_t row, col;
} sonde__kernel_gemm_matrix;

/* C (m, n) = A (m, k) B (k, n), or C += A B. C overlaps neither A nor B. k may be 0. */
typedef struct sonde__kernel_gemm {
    int64_t m, n, k;
    sonde__kernel_gemm_matrix a, b;
    float *c; /* columns are adjacent */
    int64_t c_row;
    bool accumulate; /* C += */
    /* B as a call with `packs` left it, for several products with one B; NULL: b is read.
     * Of the whole B: sonde__kernel_gemm_take_part may divide its rows only. */
    float *packed;
    bool packs; /* the call copies B into packed, and computes nothing */
} sonde__kernel_gemm;

/* Bytes of scratch for one call of run, a multiple of 64. */
SONDE_API size_t sonde__kernel_gemm_scratch(void);

/* Bytes of `packed` for a B of (k, n), a multiple of 64. */
size_t sonde__kernel_gemm_packed(int64_t k, int64_t n);

/* Shrinks the product to a part's share of the rows or columns of C; it may be empty. */
SONDE_API void sonde__kernel_gemm_take_part(sonde__kernel_gemm *product, int part,
                                            int parts);

/* scratch: aligned to 64 bytes, of this call alone. Reads and writes nothing else. */
void sonde__kernel_gemm_run(const sonde__kernel_gemm *product, void *scratch);

/* The same for one instruction set, which the processor must have: for tests. */
typedef void sonde__kernel_gemm_fn(const sonde__kernel_gemm *product, void *scratch);
SONDE_API sonde__kernel_gemm_fn *sonde__kernel_gemm_run_of(sonde__isa isa);

extern sonde__kernel_gemm_fn sonde__kernel_gemm_run_generic, sonde__kernel_gemm_run_avx2,
    sonde__kernel_gemm_run_avx512;

/* Blocks of k and of n that lie in scratch: (k, n) floats of B and (k, m) of A. */
enum {
    SONDE__KERNEL_GEMM_K = 256,
    SONDE__KERNEL_GEMM_M = 96,
    SONDE__KERNEL_GEMM_N = 768
};

/* --- bfloat16 and float16 ------------------------------------------------------------ */

/* Element (i, j) is number i * row + j * col of data; strides of any sign. */
typedef struct sonde__kernel_half_matrix {
    const void *data;
    sonde_dtype dtype; /* that of the product, or SONDE_F32 */
    int64_t row, col;
} sonde__kernel_half_matrix;

/* C (m, n) = A (m, k) B (k, n) + bias. C overlaps neither A nor B. k may be 0. */
typedef struct sonde__kernel_half_gemm {
    /* SONDE_BF16, SONDE_F16; any other: all operands are float32, nothing is rounded, and
     * it is sonde__kernel_gemm_run, which has neither bias nor relu. */
    sonde_dtype dtype;
    int64_t m, n, k;
    sonde__kernel_half_matrix a, b;
    const float *bias;   /* NULL: none. Of columns; added to the whole sum */
    bool bias_of_rows;   /* of rows instead */
    void *c;             /* NULL: only relu is wanted. Columns are adjacent */
    void *relu;          /* NULL: not wanted; else C < 0 ? 0 : C, laid out as C */
    sonde_dtype c_dtype; /* that of the product, or SONDE_F32 */
    int64_t c_row;
    bool accumulate; /* C += A B, of a float32 C without bias and relu */
    /* B as a call with `packs` left it, for several products with one B; NULL: b is read.
     * Of the whole B: take_part may divide its rows only. */
    void *packed;
    bool packs; /* the call copies B into packed, and computes nothing */
} sonde__kernel_half_gemm;

/* Bytes of scratch for one call of run with a C of m rows, a multiple of 64. */
SONDE_API size_t sonde__kernel_half_gemm_scratch(int64_t m, int64_t k);

/* Bytes of `packed` for a B of (k, n), a multiple of 64. */
size_t sonde__kernel_half_gemm_packed(int64_t k, int64_t n);

/* Shrinks the product to a part's share of the rows or columns of C; it may be empty. */
SONDE_API void sonde__kernel_half_gemm_take_part(sonde__kernel_half_gemm *product,
                                                 int part, int parts);

/* scratch: aligned to 64 bytes, of this call alone. Reads and writes nothing else. */
void sonde__kernel_half_gemm_run(const sonde__kernel_half_gemm *product, void *scratch);
/* The same by one unit and instruction set, which the processor must have: for tests. */
SONDE_API void sonde__kernel_half_gemm_run_by(const sonde__kernel_half_gemm *product,
                                              sonde__isa isa, sonde__half unit,
                                              void *scratch);

/* n numbers to and from float32. dtype: SONDE_BF16, SONDE_F16, SONDE_F32. */
SONDE_API void sonde__kernel_half_widen(sonde_dtype dtype, const void *data, int64_t n,
                                        float *out);
SONDE_API void sonde__kernel_half_narrow(const float *data, int64_t n, sonde_dtype dtype,
                                         void *out);

/* --- one set for each instruction set ------------------------------------------------ */

typedef struct sonde__kernel_half_kernels {
    void (*run)(const sonde__kernel_half_gemm *product, sonde__half unit, void *scratch);
    void (*widen)(sonde_dtype dtype, const void *data, int64_t n, float *out);
    void (*narrow)(const float *data, int64_t n, sonde_dtype dtype, void *out);
} sonde__kernel_half_kernels;

extern const sonde__kernel_half_kernels sonde__kernel_half_generic,
    sonde__kernel_half_avx2, sonde__kernel_half_avx512;

/* Blocks of C and of k whose operands lie in scratch. */
enum {
    SONDE__KERNEL_HALF_M = 128,     /* rows of A at a time */
    SONDE__KERNEL_HALF_SUMS = 1024, /* rows of C for which B stays */
    SONDE__KERNEL_HALF_N = 256,
    SONDE__KERNEL_HALF_K = 1024
};

/* --- tiles ------------------------------------------------------------------------- */

/*
 * Products of bfloat16 tiles, for AVX-512 BF16 and AMX. They are read where
 * they lie: a convolution whose stride is 1 reads, at each tap, the same pixels at another
 * place, so nothing is copied for it (half_direct.c).
 *
 *     C (m, n) = sum over tiles t of A_t (m, 32) B_t (32, n)
 *
 * A_t begins at a + a_at[t]; its rows hold 32 adjacent numbers, and are a_row bytes apart
 * within sixteen of them, which begin a_rows bytes apart.
 * B_t has, for 16 columns, one tile of 1 KB as half_gemm_kernels.c draws it: 16 rows of
 * pairs. Sums are float32, as said above of the unit.
 */
enum { SONDE__KERNEL_TILE = 512 /* numbers of a tile of B */ };

typedef struct sonde__kernel_half_tiles {
    const uint16_t *a;
    int64_t a_row, a_rows; /* bytes */
    const int64_t *a_at;   /* bytes, of each tile */
    const uint16_t *b;     /* tile t of columns 16 j ... is number j * tiles + t */
    int64_t tiles;
    int64_t m, n; /* multiples of 16 */
    float *c;
    int64_t c_row;
    bool resume; /* C += */
} sonde__kernel_half_tiles;

typedef struct sonde__kernel_half_tile_kernels {
    void (*run)(const sonde__kernel_half_tiles *product, sonde__half unit);
    /* 32 channels (`channels` of them exist, `plane` numbers apart) of `count` pixels become
     * rows of 32. */
    void (*turn)(const uint16_t *x, int64_t plane, int64_t channels, int64_t count,
                 uint16_t *rows);
    /* Rows of 32 * tiles numbers, `row` apart, become `tiles` tiles of B with 16 columns:
     * number k of row j is that of (k, j). Rows from `rows` on are zeros. */
    void (*pack)(const uint16_t *x, int64_t row, int64_t rows, int64_t tiles,
                 uint16_t *b);
    /* C of m rows of 32 numbers, m a multiple of 16, as 32 rows of m, `row` apart. */
    void (*turn_sums)(const float *c, int64_t m, float *out, int64_t row);
} sonde__kernel_half_tile_kernels;

/* Those of this processor, which has AVX-512 BF16; NULL: it has not. */
const sonde__kernel_half_tile_kernels *sonde__kernel_half_tiles_of(void);

extern const sonde__kernel_half_tile_kernels sonde__kernel_half_tile_generic,
    sonde__kernel_half_tile_avx2, sonde__kernel_half_tile_avx512;

#endif

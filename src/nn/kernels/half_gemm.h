/*
 * half_gemm.h - the product of two matrices whose numbers are bfloat16 or float16, summed
 * in float32: what linear, convolution, matmul, attention and recurrent layers use in
 * these dtypes.
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
#ifndef SONDE_NN_KERNELS_HALF_GEMM_H
#define SONDE_NN_KERNELS_HALF_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sonde/export.h>
#include <sonde/tensor.h>

#include "base/cpu.h"

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

#endif

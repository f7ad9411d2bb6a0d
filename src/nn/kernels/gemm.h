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
 */
#ifndef SONDE_NN_KERNELS_GEMM_H
#define SONDE_NN_KERNELS_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sonde/export.h>

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

#endif

/*
 * gemm.c - see gemm.h: the choice of an instruction set, and parts.
 */
#include "nn/kernels/gemm.h"

enum { UNIT = 16 }; /* rows or columns of C that are not divided among parts */

size_t sonde__kernel_gemm_scratch(void)
{
    return sizeof(float) * SONDE__KERNEL_GEMM_K *
           (size_t)(SONDE__KERNEL_GEMM_M + SONDE__KERNEL_GEMM_N);
}

/* Strips have at most 64 columns, and the last one is whole. */
size_t sonde__kernel_gemm_packed(int64_t k, int64_t n)
{
    return sizeof(float) * (size_t)k * (size_t)((n + 63) / 64 * 64);
}

/* Units of a dimension that begin before the share of a part, as elements. */
static int64_t begin_of(int64_t count, int part, int parts)
{
    const int64_t units = (count + UNIT - 1) / UNIT;
    const int64_t begin = units * part / parts * UNIT;

    return begin < count ? begin : count;
}

void sonde__kernel_gemm_take_part(sonde__kernel_gemm *product, int part, int parts)
{
    const bool by_rows = product->m >= product->n;
    const int64_t count = by_rows ? product->m : product->n;
    const int64_t begin = begin_of(count, part, parts);
    const int64_t taken = begin_of(count, part + 1, parts) - begin;

    if (by_rows) {
        product->a.data += begin * product->a.row;
        product->c += begin * product->c_row;
        product->m = taken;
    } else {
        product->b.data += begin * product->b.col;
        product->c += begin;
        product->n = taken;
    }
}

sonde__kernel_gemm_fn *sonde__kernel_gemm_run_of(sonde__isa isa)
{
    return SONDE__OF_ISA(isa, sonde__kernel_gemm_run);
}

void sonde__kernel_gemm_run(const sonde__kernel_gemm *product, void *scratch)
{
    sonde__kernel_gemm_run_of(sonde__cpu_isa())(product, scratch);
}

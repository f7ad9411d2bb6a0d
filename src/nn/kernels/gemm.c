/*
 * gemm.c - see gemm.h: the choice of an instruction set, scratch and parts.
 */
#include "nn/kernels/gemm.h"
#include "base/macros.h"

/* Rows or columns of C that are not divided among parts. */
enum { UNIT = 16, HALF_UNIT = 32 };

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
static int64_t begin_of(int64_t count, int64_t unit, int part, int parts)
{
    const int64_t units = (count + unit - 1) / unit;
    const int64_t begin = units * part / parts * unit;

    return begin < count ? begin : count;
}

void sonde__kernel_gemm_take_part(sonde__kernel_gemm *product, int part, int parts)
{
    const bool by_rows = product->m >= product->n;
    const int64_t count = by_rows ? product->m : product->n;
    const int64_t begin = begin_of(count, UNIT, part, parts);
    const int64_t taken = begin_of(count, UNIT, part + 1, parts) - begin;

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

/* --- bfloat16 and float16 ------------------------------------------------------------ */

static const sonde__kernel_half_kernels *kernels_of(sonde__isa isa)
{
    return SONDE__OF_ISA(isa, &sonde__kernel_half);
}

/* Blocks of A and B as float32, which two bfloat16 also fit in, the sums of a block, and
 * the float32 product's own. */
size_t sonde__kernel_half_gemm_scratch(int64_t m, int64_t k)
{
    const int64_t depth = SONDE_MIN((k + 31) / 32 * 32, (int64_t)SONDE__KERNEL_HALF_K);
    const int64_t rows = SONDE_MIN((m + 31) / 32 * 32, (int64_t)SONDE__KERNEL_HALF_SUMS);

    return sizeof(float) *
               (size_t)(depth * SONDE__KERNEL_HALF_M + depth * SONDE__KERNEL_HALF_N +
                        rows * SONDE__KERNEL_HALF_N) +
           sonde__kernel_gemm_scratch();
}

/* Blocks of BLOCK_N columns lie one after another, each with all of its k. */
size_t sonde__kernel_half_gemm_packed(int64_t k, int64_t n)
{
    const int64_t depth = (k + 31) / 32 * 32;
    const int64_t columns =
        (n + SONDE__KERNEL_HALF_N - 1) / SONDE__KERNEL_HALF_N * SONDE__KERNEL_HALF_N;
    const size_t halves = sizeof(float) * (size_t)depth * (size_t)columns;

    return SONDE_MAX(halves, sonde__kernel_gemm_packed(k, n));
}

static const void *moved(const void *data, sonde_dtype dtype, int64_t count)
{
    return data == NULL ? NULL
                        : (const char *)data + count * (int64_t)sonde_dtype_size(dtype);
}

static void *moved_out(void *data, sonde_dtype dtype, int64_t count)
{
    return data == NULL ? NULL : (char *)data + count * (int64_t)sonde_dtype_size(dtype);
}

void sonde__kernel_half_gemm_take_part(sonde__kernel_half_gemm *product, int part,
                                       int parts)
{
    sonde__kernel_half_gemm *const p = product;
    const bool by_rows = p->m >= p->n;
    const int64_t count = by_rows ? p->m : p->n;
    const int64_t begin = begin_of(count, HALF_UNIT, part, parts);
    const int64_t taken = begin_of(count, HALF_UNIT, part + 1, parts) - begin;
    const int64_t step = begin * (by_rows ? p->c_row : 1);

    p->c = moved_out(p->c, p->c_dtype, step);
    p->relu = moved_out(p->relu, p->c_dtype, step);
    if (p->bias != NULL && p->bias_of_rows == by_rows) {
        p->bias += begin;
    }
    if (by_rows) {
        p->a.data = moved(p->a.data, p->a.dtype, begin * p->a.row);
        p->m = taken;
    } else {
        p->b.data = moved(p->b.data, p->b.dtype, begin * p->b.col);
        p->n = taken;
    }
}

void sonde__kernel_half_gemm_run_by(const sonde__kernel_half_gemm *product,
                                    sonde__isa isa, sonde__half unit, void *scratch)
{
    kernels_of(isa)->run(
        product, product->dtype == SONDE_BF16 ? unit : SONDE__HALF_BY_FLOAT, scratch);
}

static void run_float(const sonde__kernel_half_gemm *p, void *scratch)
{
    sonde__kernel_gemm_run(&(sonde__kernel_gemm){.m = p->m,
                                                 .n = p->n,
                                                 .k = p->k,
                                                 .a = {p->a.data, p->a.row, p->a.col},
                                                 .b = {p->b.data, p->b.row, p->b.col},
                                                 .c = p->c,
                                                 .c_row = p->c_row,
                                                 .accumulate = p->accumulate,
                                                 .packed = p->packed,
                                                 .packs = p->packs},
                           scratch);
}

void sonde__kernel_half_gemm_run(const sonde__kernel_half_gemm *product, void *scratch)
{
    if (product->dtype != SONDE_BF16 && product->dtype != SONDE_F16) {
        run_float(product, scratch);
        return;
    }
    sonde__kernel_half_gemm_run_by(product, sonde__cpu_isa(), sonde__cpu_half(), scratch);
}

const sonde__kernel_half_tile_kernels *sonde__kernel_half_tiles_of(void)
{
    const bool has = sonde__cpu_half() != SONDE__HALF_BY_FLOAT;

#if defined(__x86_64__)
    return has && sonde__cpu_isa() == SONDE__AVX512 ? &sonde__kernel_half_tile_avx512
                                                    : NULL;
#else
    (void)has;
    return NULL;
#endif
}

void sonde__kernel_half_widen(sonde_dtype dtype, const void *data, int64_t n, float *out)
{
    kernels_of(sonde__cpu_isa())->widen(dtype, data, n, out);
}

void sonde__kernel_half_narrow(const float *data, int64_t n, sonde_dtype dtype, void *out)
{
    kernels_of(sonde__cpu_isa())->narrow(data, n, dtype, out);
}

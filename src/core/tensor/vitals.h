/*
 * vitals.h - vital signs, block by block: shared by the kernels, the fused loops of other
 * libraries and the merging code. Internal; vitals_accum.h has the order of operations.
 */
#ifndef SONDE_TENSOR_VITALS_H
#define SONDE_TENSOR_VITALS_H

#include "base/cpu.h"

#include <sonde/export.h>
#include <sonde/stats.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SONDE__VITALS_BLOCK = 4096 /* elements */ };

/* One block's lanes added up. If sumsq is not finite, nothing else is meaningful. */
typedef struct sonde__vitals_sums {
    double sum, l1, sumsq;
    double min, max, abs_min;
} sonde__vitals_sums;

/* One block's norms. They hold only if sonde__norms_is_plain. */
typedef struct sonde__norms_sums {
    double sum, sumsq;
    double most; /* magnitude */
} sonde__norms_sums;

/* The kernels of one instruction set. n is 1 to SONDE__VITALS_BLOCK; any for widening. */
typedef struct sonde__vitals_kernels {
    /* ahead: n elements to bring into cache meanwhile (x: none).
     * From memory this is worth a half: the arithmetic leaves the processor's window too
     * short to see the next block itself. */
    void (*sums_f32)(const float *x, size_t n, const float *ahead,
                     sonde__vitals_sums *out);
    /* A whole block and the next one, of n elements, at once: the sums of one fill the
     * latencies of the other. zeros: receives the zeros of each if counting them here is
     * cheaper than a separate pass, else unchanged; may be NULL. */
    void (*sums_pair_f32)(const float *x, size_t n, const float *ahead, size_t *zeros,
                          sonde__vitals_sums out[2]);
    /* A block; and two at once, as above, the second of n elements. */
    void (*norms_f32)(const float *x, size_t n, const float *ahead,
                      sonde__norms_sums *out);
    void (*norms_pair_f32)(const float *x, size_t n, const float *ahead,
                           sonde__norms_sums out[2]);
    void (*sums_f64)(const double *x, size_t n, const double *ahead,
                     sonde__vitals_sums *out);
    /* Bytes as numbers: exact, so in any order. Returns how many are 0. */
    size_t (*sums_u8)(const uint8_t *x, size_t n, sonde__vitals_sums *out);
    /* Sums of x - pivot and of its square. */
    void (*shifted_f32)(const float *x, size_t n, double pivot, double out[2]);
    void (*shifted_f64)(const double *x, size_t n, double pivot, double out[2]);
    size_t (*zeros_f32)(const float *x, size_t n);
    size_t (*zeros_f64)(const double *x, size_t n);
    /* The largest of the bits without sign: not less than those of infinity if an element
     * is not finite. */
    uint32_t (*largest_bits_32)(const uint32_t *bits, size_t n);
    uint64_t (*largest_bits_64)(const uint64_t *bits, size_t n);
    uint16_t (*largest_bits_16)(const uint16_t *bits, size_t n);
    void (*widen_f16)(const uint16_t *bits, size_t n, float *out);
    void (*widen_bf16)(const uint16_t *bits, size_t n, float *out);
} sonde__vitals_kernels;

extern const sonde__vitals_kernels sonde__vitals_generic;
extern const sonde__vitals_kernels sonde__vitals_avx2;   /* x86-64 only */
extern const sonde__vitals_kernels sonde__vitals_avx512; /* x86-64 only */

/* The kernels of one instruction set, which the processor must have. */
SONDE_API const sonde__vitals_kernels *sonde__vitals_kernels_of(sonde__isa isa);

/* sonde_vitals_of, of one instruction set. */
SONDE_API void sonde__vitals_of_isa(sonde__isa isa, const sonde_view *view,
                                    sonde_vitals *vitals);

/* Whether no element is NaN or infinite; one that the dtype cannot hold is none. Reads at
 * the speed of the cache, and no further than the first block that has one. */
SONDE_API bool sonde__vitals_all_finite(const sonde_view *view);

/* Sums of one block of n <= SONDE__VITALS_BLOCK float32, by the best kernel. */
SONDE_API void sonde__vitals_sums_of(const float *block, size_t n,
                                     sonde__vitals_sums *out);

/* into := into + count contiguous elements, in blocks from the first. */
SONDE_API void sonde__vitals_add_f32(sonde_vitals *into, const float *elements,
                                     size_t count);
SONDE_API void sonde__vitals_add_u8(sonde_vitals *into, const uint8_t *elements,
                                    size_t count);

/* True if take must read the block: it has NaN, infinities or zeros, or its mean is large
 * compared with its deviation. */
SONDE_API bool sonde__vitals_needs_memory(const sonde__vitals_sums *sums, size_t n);

/* True if a block's sums are complete except for zeros: no NaN or infinity, and a mean
 * not large compared with the deviation. n may be a few blocks. */
SONDE_API bool sonde__vitals_is_plain(const sonde__vitals_sums *sums, size_t n);
/* into := into + such a block of n elements, so many of them zeros. */
SONDE_API void sonde__vitals_take_plain(sonde_vitals *into,
                                        const sonde__vitals_sums *sums, size_t n,
                                        size_t zeros);

/* into := into + the block that sums were made from, n elements. Reads block only if
 * sonde__vitals_needs_memory says so. */
SONDE_API void sonde__vitals_take(sonde_vitals *into, const sonde__vitals_sums *sums,
                                  const float *block, size_t n);

/* --- norms (norms.c) ---------------------------------------------------------------- */

/* The norms of an empty tensor, to add to. */
SONDE_API void sonde__norms_init(sonde_vitals *norms);
/* sonde_norms_of, of one instruction set. */
SONDE_API void sonde__norms_of_isa(sonde__isa isa, const sonde_view *view,
                                   sonde_vitals *norms);
/* into := into + count contiguous elements, in blocks from the first. */
SONDE_API void sonde__norms_add_f32(sonde_vitals *into, const float *elements,
                                    size_t count);
SONDE_API void sonde__norms_add_u8(sonde_vitals *into, const uint8_t *elements,
                                   size_t count);
/* Norms of one block of n <= SONDE__VITALS_BLOCK float32, by the best kernel. */
SONDE_API void sonde__norms_sums_of(const float *block, size_t n, sonde__norms_sums *out);

/* Whether a block's norms hold: all is finite, and float32 lost no square that counts. */
static inline bool sonde__norms_is_plain(const sonde__norms_sums *sums)
{
    return sums->sumsq < 0x1p120 &&
           (sums->most == 0.0 || (sums->most >= 0x1p-40 && sums->most <= 0x1p50));
}
/* into := into + the block that sums were made from, n elements. Reads block only if the
 * sums are not plain. */
SONDE_API void sonde__norms_take(sonde_vitals *into, const sonde__norms_sums *sums,
                                 const float *block, size_t n);

#endif

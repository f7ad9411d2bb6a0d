/*
 * vitals.h - vital signs, block by block: what kernels, the fused loops of other
 * libraries and the merging code share. Internal; vitals_accum.h tells the order of
 * things.
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

/* The kernels of one instruction set. n is at most SONDE__VITALS_BLOCK and not 0,
 * but for widening. */
typedef struct sonde__vitals_kernels {
    /* ahead: what to bring into cache meanwhile, as many elements as x has (x: nothing).
     * From memory this is worth a half: the arithmetic leaves the processor's window too
     * short to see the next block itself. */
    void (*sums_f32)(const float *x, size_t n, const float *ahead,
                     sonde__vitals_sums *out);
    /* A whole block and one of n elements behind it, at once: what one block's sums wait
     * for the other's fill. zeros: where to count the zeros of each, if that is cheaper
     * here than in a pass of its own, else left alone; NULL: nowhere. */
    void (*sums_pair_f32)(const float *x, size_t n, const float *ahead, size_t *zeros,
                          sonde__vitals_sums out[2]);
    void (*sums_f64)(const double *x, size_t n, const double *ahead,
                     sonde__vitals_sums *out);
    /* Of bytes as numbers: exact, so in no order. Returns how many are 0. */
    size_t (*sums_u8)(const uint8_t *x, size_t n, sonde__vitals_sums *out);
    /* Sums of x - pivot and of its square. */
    void (*shifted_f32)(const float *x, size_t n, double pivot, double out[2]);
    void (*shifted_f64)(const double *x, size_t n, double pivot, double out[2]);
    size_t (*zeros_f32)(const float *x, size_t n);
    size_t (*zeros_f64)(const double *x, size_t n);
    void (*widen_f16)(const uint16_t *bits, size_t n, float *out);
    void (*widen_bf16)(const uint16_t *bits, size_t n, float *out);
} sonde__vitals_kernels;

extern const sonde__vitals_kernels sonde__vitals_generic;
extern const sonde__vitals_kernels sonde__vitals_avx2;   /* x86-64 only */
extern const sonde__vitals_kernels sonde__vitals_avx512; /* x86-64 only */

/* Those of one instruction set, which the processor must have. */
SONDE_API const sonde__vitals_kernels *sonde__vitals_kernels_of(sonde__isa isa);

/* sonde_vitals_of, of one instruction set. */
SONDE_API void sonde__vitals_of_isa(sonde__isa isa, const sonde_view *view,
                                    sonde_vitals *vitals);

/* Sums of one block of n <= SONDE__VITALS_BLOCK float32, by the best kernel there is. */
SONDE_API void sonde__vitals_sums_of(const float *block, size_t n,
                                     sonde__vitals_sums *out);

/* into := into + count elements that lie one behind the other, in blocks from the first. */
SONDE_API void sonde__vitals_add_f32(sonde_vitals *into, const float *elements,
                                     size_t count);
SONDE_API void sonde__vitals_add_u8(sonde_vitals *into, const uint8_t *elements,
                                    size_t count);

/* Whether take will have to read the block: it holds NaN, infinities or zeros, or its mean
 * is large against its deviation. */
SONDE_API bool sonde__vitals_needs_memory(const sonde__vitals_sums *sums, size_t n);

/* Whether a block's sums tell all there is to tell, but for zeros: no NaN or infinity, and
 * the mean is not large against the deviation. n may be a few times a block's. */
SONDE_API bool sonde__vitals_is_plain(const sonde__vitals_sums *sums, size_t n);
/* into := into + such a block of n elements, so many of them zeros. */
SONDE_API void sonde__vitals_take_plain(sonde_vitals *into,
                                        const sonde__vitals_sums *sums, size_t n,
                                        size_t zeros);

/* into := into + the block that sums were made from, n elements. Reads block only if
 * sonde__vitals_needs_memory says so. */
SONDE_API void sonde__vitals_take(sonde_vitals *into, const sonde__vitals_sums *sums,
                                  const float *block, size_t n);

#endif

/*
 * pixels.h - bytes to normalised floats, one kernel per instruction set.
 *
 * out = ((x / 255) - mean) / std, each operation rounded to float32. The table holds
 * these 256 results. The vector kernels compute instead of looking up: a quotient is x
 * times the reciprocal, corrected once by its remainder (Markstein 1990), which is nearly
 * always the rounded quotient. exact is set only if a run over all 256 bytes gives the
 * table bit for bit; without it every kernel looks up.
 */
#ifndef SONDE_NN_DATA_PIXELS_H
#define SONDE_NN_DATA_PIXELS_H

#include <sonde/export.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sonde__data_affine {
    float mean, std;
    float inverse_std;
    bool exact;
    float table[256];
} sonde__data_affine;

typedef void sonde__data_affine_fn(const sonde__data_affine *affine, const uint8_t *in,
                                   size_t count, float *out);

sonde__data_affine_fn sonde__data_affine_generic;
#if defined(__x86_64__)
sonde__data_affine_fn sonde__data_affine_avx2, sonde__data_affine_avx512;
#endif

/* The one for this processor. */
sonde__data_affine_fn *sonde__data_affine_kernel(void);
/* Fills the table and tests the kernel. */
void sonde__data_affine_init(sonde__data_affine *affine, float mean, float std);

#endif

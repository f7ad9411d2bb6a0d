/*
 * half_tiles.h - products of bfloat16 tiles, for AVX-512 BF16 and AMX. They are read where
 * they lie: a convolution whose stride is 1 reads, at each tap, the same pixels at another
 * place, so nothing is copied for it (half_direct.c).
 *
 *     C (m, n) = sum over tiles t of A_t (m, 32) B_t (32, n)
 *
 * A_t begins at a + a_at[t]; its rows hold 32 adjacent numbers, and are a_row bytes apart
 * within sixteen of them, which begin a_rows bytes apart.
 * B_t has, for 16 columns, one tile of 1 KB as half_gemm_kernels.c draws it: 16 rows of
 * pairs. Sums are float32, as half_gemm.h says of the unit.
 */
#ifndef SONDE_NN_KERNELS_HALF_TILES_H
#define SONDE_NN_KERNELS_HALF_TILES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cpu.h"

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

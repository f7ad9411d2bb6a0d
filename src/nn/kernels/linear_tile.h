/*
 * linear_tile.h - what the micro-kernels of the linear layer share: one tile of C += A B
 * in registers. For linear_kernels.c and linear_weight_kernels.c, compiled once per
 * instruction set.
 *
 * A tile is `rows` x TILE_COLS numbers of C, two vectors a row ("wide"; with AVX-512 also
 * one vector a row, "narrow", for the last block or half panel). Every step of the sum
 * loads the vectors of B and broadcasts one number of A a row. Sums run over the depth in
 * order, in one accumulator a number: so the bits of C depend on nothing but A, B and the
 * ISA, not on how C was cut into tiles, chunks and parts. The three families differ in
 * where A lies:
 *
 *   forward   A is w (O, K), row-major; the sum runs along its rows      y = w x
 *   backward  the same w, but the sum runs down its columns              dx = w^T dy
 *   weight    A is dy in LANES; the sum runs over samples                dw = dy^T x
 *
 * In the first two B and C are in LANES; in the last B is one panel (N, 32) and C
 * row-major. Nothing outside A, B and C is touched.
 */
#ifndef SONDE_NN_KERNELS_LINEAR_TILE_H
#define SONDE_NN_KERNELS_LINEAR_TILE_H

#include "base/macros.h"
#include "nn/kernels/lanes.h"
#include "nn/kernels/sgd_update.h"

#include <stddef.h>

enum {
    TILE_COLS = 2 * VF_WIDTH,
#if VF_WIDTH == 16
    WIDE_ROWS = 12, /* 24 accumulators of 32 registers */
    NARROW_ROWS = 20,
#else
    WIDE_ROWS = 6, /* 12 of 16 */
    NARROW_ROWS = WIDE_ROWS,
#endif
    MAX_TILE_ROWS = NARROW_ROWS
};

#if VF_WIDTH == 16
/* Norms of C and of the weights that it updates, of one group of rows. */
typedef struct tile_norms {
    sonde__nacc g, w;
} tile_norms;
#else
typedef struct tile_norms tile_norms; /* there are too few registers */
#endif

/* What the tiles of one multiplication have in common. Strides are in floats. */
typedef struct tile {
    ptrdiff_t a_stride; /* forward, backward: of a row of w; weight: of a block of dy */
    ptrdiff_t b_second; /* from the first vector of B to the second */
    ptrdiff_t c_stride; /* weight: of a row */
    ptrdiff_t c_second;
    int64_t depth;         /* terms of the sum */
    int cols;              /* weight: columns of C that exist, of the tile's */
    bool resume;           /* start from what is in C */
    bool relu;             /* forward, in the last chunk of the depth */
    const float *bias;     /* forward, in the first chunk: per row of C; or NULL */
    const float *c_origin; /* what c and pre count from */
    float *pre;            /* where C goes before the relu; NULL: nowhere */
    const float *ahead;    /* weight: what will be read next but one; or NULL. Two rows */
    ptrdiff_t ahead_stride; /* of 32 floats, this far apart, are fetched every 16 terms */
    const sgd_rule *rule;   /* weight: C updates these arrays, is itself not stored; */
    const sgd_arrays *update; /* NULL: it is */
    tile_norms *norms;        /* weight: C and the new weights are added here; or NULL */
} tile;

/* a, b, c: the first number of the tile's A, B and C; row: that of C, for the bias. */
typedef void (*tile_fn)(const tile *t, const float *a, const float *b, float *c,
                        int64_t row);

/* Keeps the compiler from folding a pointer into others: it would need more registers
 * than there are. */
#define TILE_POINTER(p) __asm__("" : "+r"(p))

/* A vector of a row of which `cols` columns exist: none, some, all or more. */
VEC_INLINE void tile_store_some(float *p, vf a, int cols)
{
    if (cols >= VF_WIDTH) {
        vf_store(p, a);
    } else {
        vf_store_n(p, a, cols < 0 ? 0 : cols);
    }
}

VEC_INLINE vf tile_load_some(const float *p, int cols)
{
    return cols >= VF_WIDTH ? vf_load(p) : vf_load_n(p, cols < 0 ? 0 : cols);
}

/* acc[r] += w * b for one broadcast w. */
VEC_INLINE void tile_step(const int vecs, float w, const vf b[2], vf acc[2])
{
    const vf a = vf_set1(w);

    acc[0] = vf_fma(a, b[0], acc[0]);
    if (vecs == 2) {
        acc[1] = vf_fma(a, b[1], acc[1]);
    }
}

VEC_INLINE void tile_load_b(const int vecs, const float *b, ptrdiff_t second, vf out[2])
{
    out[0] = vf_load(b);
    out[1] = vecs == 2 ? vf_load(b + second) : out[0];
}

/* acc starts at 0, at the bias of each row, or at C: vector v of row r is at c + r * stride + v *
 * second. whole: all columns of a tile exist. */
VEC_INLINE void tile_init(const int rows, const int vecs, const bool whole, const tile *t,
                          const float *c, ptrdiff_t stride, ptrdiff_t second, int64_t row,
                          vf acc[MAX_TILE_ROWS][2])
{
    VEC_TILE (r, rows, v, vecs) {
        acc[r][v] = (vf){0};
    }
    if (t->resume) {
        VEC_TILE (r, rows, v, vecs) {
            const float *const from = c + r * stride + v * second;

            acc[r][v] =
                whole ? vf_load(from) : tile_load_some(from, t->cols - v * VF_WIDTH);
        }
    } else if (whole && t->bias != NULL) {
        VEC_TILE (r, rows, v, vecs) {
            acc[r][v] = vf_set1(t->bias[row + r]);
        }
    }
}

/* --- one function per number of rows ------------------------------------------------ */

#define TILE_FUNCTION(name, family, rows, vecs)                                          \
    static void name(const tile *t, const float *a, const float *b, float *c,            \
                     int64_t row)                                                        \
    {                                                                                    \
        family##_tile(rows, vecs, t, a, b, c, row);                                      \
    }
#define TILE_WIDE(family, rows) TILE_FUNCTION(family##_wide_##rows, family, rows, 2)
#define TILE_NARROW(family, rows) TILE_FUNCTION(family##_narrow_##rows, family, rows, 1)
#define TILE_LIST_WIDE(family, rows) family##_wide_##rows,
#define TILE_LIST_NARROW(family, rows) family##_narrow_##rows,

/* Indexed by the number of rows. */
typedef struct tile_family {
    tile_fn wide[WIDE_ROWS + 1], narrow[NARROW_ROWS + 1];
} tile_family;

/* Defines NAME_tiles from NAME_tile. */
#if VF_WIDTH == 16
#define DEFINE_TILES(family)                                                             \
    VEC_UP_TO_12(TILE_WIDE, family)                                                      \
    VEC_UP_TO_20(TILE_NARROW, family)                                                    \
    static const tile_family family##_tiles = {                                          \
        {NULL, VEC_UP_TO_12(TILE_LIST_WIDE, family)},                                    \
        {NULL, VEC_UP_TO_20(TILE_LIST_NARROW, family)}};
#else
#define DEFINE_TILES(family)                                                             \
    VEC_UP_TO_6(TILE_WIDE, family)                                                       \
    static const tile_family family##_tiles = {                                          \
        {NULL, VEC_UP_TO_6(TILE_LIST_WIDE, family)}, {NULL}};
#endif

/* --- cutting rows into tiles -------------------------------------------------------- */

/* count into the fewest groups of at most max, all nearly alike: a group of two rows
 * would keep the multipliers waiting. */
typedef struct row_groups {
    int64_t count, small, larger; /* groups; rows of a small one; groups with one more */
} row_groups;

static inline row_groups row_groups_of(int64_t rows, int64_t max)
{
    const int64_t count = (rows + max - 1) / max;
    const row_groups groups = {count, count == 0 ? 0 : rows / count,
                               count == 0 ? 0 : rows % count};

    return groups;
}

static inline int64_t row_group_start(const row_groups *groups, int64_t i)
{
    return i * groups->small + (i < groups->larger ? i : groups->larger);
}

/* --- parts and operands ------------------------------------------------------------ */

enum {
    GRAIN_FLOPS = 1000 * 1000, /* what is worth a part of its own */
    GRAIN_BYTES = 256 * 1024
};

static inline int worth(int64_t cost, int64_t grain, int max)
{
    const int64_t parts = cost / grain;

    return parts < 1 ? 1 : parts < max ? (int)parts : max;
}

static float *scratch_at(const sonde__op_call *call, size_t bytes, int part)
{
    return call->scratch == NULL
               ? NULL
               : (float *)call->scratch + bytes / sizeof(float) * (size_t)part;
}

#endif

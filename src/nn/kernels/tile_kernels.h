/*
 * tile_kernels.h - the micro-kernels of the linear layer: one tile of C += A B in
 * registers.
 *
 * For linear_kernels.c alone, compiled once per instruction set.
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
#ifndef SONDE_NN_KERNELS_TILE_KERNELS_H
#define SONDE_NN_KERNELS_TILE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

#include "nn/kernels/sgd_update.h"
#include "nn/kernels/vec.h"

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

/* --- accumulators ------------------------------------------------------------------- */

VEC_INLINE void tile_init(const int rows, const int vecs, const tile *t, const float *c,
                          ptrdiff_t c_stride, int64_t row, vf acc[MAX_TILE_ROWS][2])
{
    VEC_UNROLL
    for (int r = 0; r < rows; r++) {
        VEC_UNROLL
        for (int v = 0; v < vecs; v++) {
            acc[r][v] = (vf){0};
        }
    }
    if (t->resume) {
        VEC_UNROLL
        for (int r = 0; r < rows; r++) {
            VEC_UNROLL
            for (int v = 0; v < vecs; v++) {
                acc[r][v] = vf_load(c + r * c_stride + v * t->c_second);
            }
        }
    } else if (t->bias != NULL) {
        VEC_UNROLL
        for (int r = 0; r < rows; r++) {
            VEC_UNROLL
            for (int v = 0; v < vecs; v++) {
                acc[r][v] = vf_set1(t->bias[row + r]);
            }
        }
    }
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

/* C in LANES: rows are 16 apart. */
VEC_INLINE void tile_store_lanes(const int rows, const int vecs, const tile *t, float *c,
                                 vf acc[MAX_TILE_ROWS][2])
{
    if (t->pre != NULL) {
        float *const pre = t->pre + (c - t->c_origin);

        VEC_UNROLL
        for (int r = 0; r < rows; r++) {
            VEC_UNROLL
            for (int v = 0; v < vecs; v++) {
                vf_store(pre + 16 * r + v * t->c_second, acc[r][v]);
            }
        }
    }
    if (t->relu) {
        VEC_UNROLL
        for (int r = 0; r < rows; r++) {
            VEC_UNROLL
            for (int v = 0; v < vecs; v++) {
                acc[r][v] = vf_relu(acc[r][v]);
            }
        }
    }
    VEC_UNROLL
    for (int r = 0; r < rows; r++) {
        VEC_UNROLL
        for (int v = 0; v < vecs; v++) {
            vf_store(c + 16 * r + v * t->c_second, acc[r][v]);
        }
    }
}

/* --- forward: A (row, k) at a[row * a_stride + k] ----------------------------------- */

/* One k of the sum; A through every third row's pointer, so that few registers hold all.
 */
VEC_INLINE void forward_step(const int rows, const int vecs, const int k,
                             const float *const base[], ptrdiff_t stride, ptrdiff_t twice,
                             const float *b, ptrdiff_t b_second, vf acc[MAX_TILE_ROWS][2])
{
    vf x[2];

    tile_load_b(vecs, b + 16 * k, b_second, x);
    VEC_UNROLL
    for (int r = 0; r < rows; r++) {
        const float *const a = base[r / 3] + (r % 3 == 0   ? 0
                                              : r % 3 == 1 ? stride
                                                           : twice);

        tile_step(vecs, a[k], x, acc[r]);
    }
}

VEC_INLINE void forward_tile(const int rows, const int vecs, const tile *t,
                             const float *a, const float *b, float *c, int64_t row)
{
    const ptrdiff_t stride = t->a_stride, b_second = t->b_second;
    const float *base[(MAX_TILE_ROWS + 2) / 3];
    vf acc[MAX_TILE_ROWS][2];
    ptrdiff_t twice = 2 * stride;
    int64_t k = t->depth;

    TILE_POINTER(twice);
    tile_init(rows, vecs, t, c, 16, row, acc);
    VEC_UNROLL
    for (int i = 0; 3 * i < rows; i++) {
        base[i] = a + 3 * i * stride;
        TILE_POINTER(base[i]);
    }
    for (; k >= 2; k -= 2) {
        forward_step(rows, vecs, 0, base, stride, twice, b, b_second, acc);
        forward_step(rows, vecs, 1, base, stride, twice, b, b_second, acc);
        b += 32;
        TILE_POINTER(b);
        VEC_UNROLL
        for (int i = 0; 3 * i < rows; i++) {
            base[i] += 2;
            TILE_POINTER(base[i]);
        }
    }
    if (k > 0) {
        forward_step(rows, vecs, 0, base, stride, twice, b, b_second, acc);
    }
    tile_store_lanes(rows, vecs, t, c, acc);
}

/* --- backward: A (row, o) at a[row + o * a_stride] ---------------------------------- */

VEC_INLINE void backward_tile(const int rows, const int vecs, const tile *t,
                              const float *a, const float *b, float *c, int64_t row)
{
    const ptrdiff_t stride = t->a_stride, b_second = t->b_second;
    vf acc[MAX_TILE_ROWS][2];

    tile_init(rows, vecs, t, c, 16, row, acc);
    for (int64_t o = t->depth; o > 0; o--) {
        vf dy[2];

        __builtin_prefetch(a + 8 * stride); /* every step another line */
        tile_load_b(vecs, b, b_second, dy);
        VEC_UNROLL
        for (int r = 0; r < rows; r++) {
            tile_step(vecs, a[r], dy, acc[r]);
        }
        a += stride;
        b += 16;
        TILE_POINTER(a);
        TILE_POINTER(b);
    }
    tile_store_lanes(rows, vecs, t, c, acc);
}

/* --- weight: A (row, n) at a[n / 16 * a_stride + 16 * row + n % 16] ----------------- */

VEC_INLINE void weight_block(const int rows, const int vecs, const float *a,
                             const float *b, int64_t samples, vf acc[MAX_TILE_ROWS][2])
{
    for (int64_t n = 0; n < samples; n++) {
        vf x[2];

        tile_load_b(vecs, b, VF_WIDTH, x);
        VEC_UNROLL
        for (int r = 0; r < rows; r++) {
            tile_step(vecs, a[16 * r], x, acc[r]);
        }
        a += 1;
        b += 32;
        TILE_POINTER(a);
        TILE_POINTER(b);
    }
}

/* A vector of a row of which `cols` columns exist: none, some, all or more. */
VEC_INLINE void weight_store(float *p, vf a, int cols)
{
    if (cols >= VF_WIDTH) {
        vf_store(p, a);
    } else {
        vf_store_n(p, a, cols < 0 ? 0 : cols);
    }
}

VEC_INLINE vf weight_load(const float *p, int cols)
{
    return cols >= VF_WIDTH ? vf_load(p) : vf_load_n(p, cols < 0 ? 0 : cols);
}

/* Prefetches the update's operands while the sum is computed. */
VEC_INLINE void weight_prefetch(const int rows, const int vecs, const tile *t,
                                ptrdiff_t offset)
{
    VEC_UNROLL
    for (int r = 0; r < rows; r++) {
        VEC_UNROLL
        for (int v = 0; v < vecs; v += 16 / VF_WIDTH) {
            __builtin_prefetch(t->update->w + offset + r * t->c_stride + v * VF_WIDTH, 1);
            __builtin_prefetch(t->update->v + offset + r * t->c_stride + v * VF_WIDTH, 1);
        }
    }
}

/* Whether C holds NaN or infinities. Columns beyond its last are sums of products with
 * 0: they are bad only where others are. */
VEC_INLINE bool weight_is_bad(const int rows, const int vecs, vf acc[MAX_TILE_ROWS][2])
{
    vf seen = {0};

    VEC_UNROLL
    for (int r = 0; r < rows; r++) {
        VEC_UNROLL
        for (int v = 0; v < vecs; v++) {
            seen = vf_see_bad(seen, acc[r][v]);
        }
    }
    return vf_any(seen);
}

#if VF_WIDTH == 16
/* Adds the vectors of C to the norms. Columns beyond its last are 0. */
VEC_INLINE void weight_norms(const int rows, const int vecs, const tile *t,
                             vf acc[MAX_TILE_ROWS][2])
{
    sonde__nacc sums = t->norms->g;

    VEC_UNROLL
    for (int r = 0; r < rows; r++) {
        VEC_UNROLL
        for (int v = 0; v < vecs; v++) {
            sonde__nacc_add(&sums, v, (__m512)acc[r][v]);
        }
    }
    t->norms->g = sums;
}
#endif

/* Row r of C is consumed by SGD with momentum. Returns the new weights. */
VEC_INLINE void weight_update_row(const int vecs, const tile *t, const sgd_rule *rule,
                                  const sgd_arrays *arrays, ptrdiff_t i, const vf acc[2],
                                  vf w[2])
{
    VEC_UNROLL
    for (int v = 0; v < vecs; v++) {
        const ptrdiff_t k = i + v * VF_WIDTH;
        const int cols = t->cols - v * VF_WIDTH;
        vf speed = weight_load(arrays->v + k, cols);

        w[v] = sgd_apply(SGD_MOMENTUM, rule, weight_load(arrays->w + k, cols), acc[v],
                         &speed);
        weight_store(arrays->w_out + k, w[v], cols);
        weight_store(arrays->v_out + k, speed, cols);
    }
}

/* C is consumed by SGD with momentum while it is in registers. */
VEC_INLINE void weight_update(const int rows, const int vecs, const tile *t,
                              ptrdiff_t offset, vf acc[MAX_TILE_ROWS][2])
{
    const sgd_arrays arrays = *t->update;
    const sgd_rule rule = *t->rule;
    vf w[2];

    if (arrays.bad != NULL && weight_is_bad(rows, vecs, acc)) {
        *arrays.bad = 1;
    }
#if VF_WIDTH == 16
    if (t->norms != NULL) {
        sonde__nacc sums = t->norms->w;

        weight_norms(rows, vecs, t, acc);
        VEC_UNROLL
        for (int r = 0; r < rows; r++) {
            weight_update_row(vecs, t, &rule, &arrays, offset + r * t->c_stride, acc[r],
                              w);
            VEC_UNROLL
            for (int v = 0; v < vecs; v++) {
                sonde__nacc_add(&sums, v, (__m512)w[v]);
            }
        }
        t->norms->w = sums;
        return;
    }
#endif
    VEC_UNROLL
    for (int r = 0; r < rows; r++) {
        weight_update_row(vecs, t, &rule, &arrays, offset + r * t->c_stride, acc[r], w);
    }
}

VEC_INLINE void weight_tile(const int rows, const int vecs, const tile *t, const float *a,
                            const float *b, float *c, int64_t row)
{
    vf acc[MAX_TILE_ROWS][2];
    const float *ahead = t->ahead;
    int64_t left = t->depth;

    (void)row;
    VEC_UNROLL
    for (int r = 0; r < rows; r++) {
        VEC_UNROLL
        for (int v = 0; v < vecs; v++) {
            acc[r][v] = (vf){0};
        }
    }
    if (t->resume) {
        VEC_UNROLL
        for (int r = 0; r < rows; r++) {
            VEC_UNROLL
            for (int v = 0; v < vecs; v++) {
                acc[r][v] = weight_load(c + r * t->c_stride + v * VF_WIDTH,
                                        t->cols - v * VF_WIDTH);
            }
        }
    }
    if (t->update != NULL) {
        weight_prefetch(rows, vecs, t, c - t->c_origin);
    }
    for (; left >= 16; left -= 16) {
        VEC_UNROLL
        for (int r = 0; r < rows; r++) { /* the next block lies far off */
            __builtin_prefetch(a + t->a_stride + 16 * r);
        }
        if (ahead != NULL) {
            __builtin_prefetch(ahead, 0, 2);
            __builtin_prefetch(ahead + 16, 0, 2);
            __builtin_prefetch(ahead + t->ahead_stride, 0, 2);
            __builtin_prefetch(ahead + t->ahead_stride + 16, 0, 2);
            ahead += 2 * t->ahead_stride;
        }
        weight_block(rows, vecs, a, b, 16, acc);
        a += t->a_stride;
        b += 16 * 32;
    }
    weight_block(rows, vecs, a, b, left, acc);
    if (t->update != NULL) {
        weight_update(rows, vecs, t, c - t->c_origin, acc);
        return;
    }
    VEC_UNROLL
    for (int r = 0; r < rows; r++) {
        VEC_UNROLL
        for (int v = 0; v < vecs; v++) {
            weight_store(c + r * t->c_stride + v * VF_WIDTH, acc[r][v],
                         t->cols - v * VF_WIDTH);
        }
    }
}

/* --- one function per number of rows ------------------------------------------------ */

#define TILE_ROWS_6(F) F(1) F(2) F(3) F(4) F(5) F(6)
#define TILE_ROWS_12(F) TILE_ROWS_6(F) F(7) F(8) F(9) F(10) F(11) F(12)
#define TILE_ROWS_20(F) TILE_ROWS_12(F) F(13) F(14) F(15) F(16) F(17) F(18) F(19) F(20)

#define TILE_FUNCTION(family, width, rows, vecs)                                         \
    static void family##_##width##_##rows(const tile *t, const float *a, const float *b, \
                                          float *c, int64_t row)                         \
    {                                                                                    \
        family##_tile(rows, vecs, t, a, b, c, row);                                      \
    }
#define TILE_WIDE(rows)                                                                  \
    TILE_FUNCTION(forward, wide, rows, 2)                                                \
    TILE_FUNCTION(backward, wide, rows, 2)                                               \
    TILE_FUNCTION(weight, wide, rows, 2)
#define TILE_NARROW(rows)                                                                \
    TILE_FUNCTION(forward, narrow, rows, 1)                                              \
    TILE_FUNCTION(backward, narrow, rows, 1)                                             \
    TILE_FUNCTION(weight, narrow, rows, 1)
#define FORWARD_WIDE(rows) forward_wide_##rows,
#define BACKWARD_WIDE(rows) backward_wide_##rows,
#define WEIGHT_WIDE(rows) weight_wide_##rows,
#define FORWARD_NARROW(rows) forward_narrow_##rows,
#define BACKWARD_NARROW(rows) backward_narrow_##rows,
#define WEIGHT_NARROW(rows) weight_narrow_##rows,

/* Indexed by the number of rows. */
typedef struct tile_family {
    tile_fn wide[WIDE_ROWS + 1], narrow[NARROW_ROWS + 1];
} tile_family;

#if VF_WIDTH == 16
TILE_ROWS_12(TILE_WIDE)
TILE_ROWS_20(TILE_NARROW)
static const tile_family forward_tiles = {{NULL, TILE_ROWS_12(FORWARD_WIDE)},
                                          {NULL, TILE_ROWS_20(FORWARD_NARROW)}};
static const tile_family backward_tiles = {{NULL, TILE_ROWS_12(BACKWARD_WIDE)},
                                           {NULL, TILE_ROWS_20(BACKWARD_NARROW)}};
static const tile_family weight_tiles = {{NULL, TILE_ROWS_12(WEIGHT_WIDE)},
                                         {NULL, TILE_ROWS_20(WEIGHT_NARROW)}};
#else
TILE_ROWS_6(TILE_WIDE)
static const tile_family forward_tiles = {{NULL, TILE_ROWS_6(FORWARD_WIDE)}, {NULL}};
static const tile_family backward_tiles = {{NULL, TILE_ROWS_6(BACKWARD_WIDE)}, {NULL}};
static const tile_family weight_tiles = {{NULL, TILE_ROWS_6(WEIGHT_WIDE)}, {NULL}};
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

#endif

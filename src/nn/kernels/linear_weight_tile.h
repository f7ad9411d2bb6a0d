/*
 * linear_weight_tile.h - the tiles of the linear layer's weight gradient, see
 * linear_tile.h; an update by SGD may consume them in registers.
 */
#ifndef SONDE_NN_KERNELS_LINEAR_WEIGHT_TILE_H
#define SONDE_NN_KERNELS_LINEAR_WEIGHT_TILE_H

#include "nn/kernels/linear_tile.h"

/* --- weight: A (row, n) at a[n / 16 * a_stride + 16 * row + n % 16] ----------------- */

VEC_INLINE void weight_block(const int rows, const int vecs, const float *a,
                             const float *b, int64_t samples, vf acc[MAX_TILE_ROWS][2])
{
    for (int64_t n = 0; n < samples; n++) {
        vf x[2];

        tile_load_b(vecs, b, VF_WIDTH, x);
        VEC_EACH (r, rows) {
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
    VEC_EACH (r, rows) {
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

    VEC_TILE (r, rows, v, vecs) {
        seen = vf_see_bad(seen, acc[r][v]);
    }
    return vf_any(seen);
}

#if VF_WIDTH == 16
/* Adds the vectors of C to the norms. Columns beyond its last are 0. */
VEC_INLINE void weight_norms(const int rows, const int vecs, const tile *t,
                             vf acc[MAX_TILE_ROWS][2])
{
    sonde__nacc sums = t->norms->g;

    VEC_TILE (r, rows, v, vecs) {
        sonde__nacc_add(&sums, v, (__m512)acc[r][v]);
    }
    t->norms->g = sums;
}
#endif

/* Row r of C is consumed by SGD with momentum. Returns the new weights. */
VEC_INLINE void weight_update_row(const int vecs, const tile *t, const sgd_rule *rule,
                                  const sgd_arrays *arrays, ptrdiff_t i, const vf acc[2],
                                  vf w[2])
{
    VEC_EACH (v, vecs) {
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
        VEC_EACH (r, rows) {
            weight_update_row(vecs, t, &rule, &arrays, offset + r * t->c_stride, acc[r],
                              w);
            VEC_EACH (v, vecs) {
                sonde__nacc_add(&sums, v, (__m512)w[v]);
            }
        }
        t->norms->w = sums;
        return;
    }
#endif
    VEC_EACH (r, rows) {
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
    VEC_TILE (r, rows, v, vecs) {
        acc[r][v] = (vf){0};
    }
    if (t->resume) {
        VEC_TILE (r, rows, v, vecs) {
            acc[r][v] =
                weight_load(c + r * t->c_stride + v * VF_WIDTH, t->cols - v * VF_WIDTH);
        }
    }
    if (t->update != NULL) {
        weight_prefetch(rows, vecs, t, c - t->c_origin);
    }
    for (; left >= 16; left -= 16) {
        VEC_EACH (r, rows) { /* the next block lies far off */
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
    VEC_TILE (r, rows, v, vecs) {
        weight_store(c + r * t->c_stride + v * VF_WIDTH, acc[r][v],
                     t->cols - v * VF_WIDTH);
    }
}

DEFINE_TILES(weight)

#endif

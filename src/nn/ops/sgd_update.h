/*
 * sgd_update.h - the update of weights by stochastic gradient descent, over contiguous
 * memory: what Sgd and LinearGradWeightSgd share, so that they come to the same bits.
 *
 * For the kernel files that are compiled once per instruction set. Equations: sgd.c. Each
 * element's arithmetic is the same wherever it stands: whole vectors and tails run the
 * same instructions, so an array may be updated in any pieces.
 *
 * Vital signs are taken block by block, of SONDE__VITALS_BLOCK elements, right behind the
 * update of the block: it is in L1 then, and the sums are bound by arithmetic, not loads.
 */
#ifndef SONDE_NN_OPS_SGD_UPDATE_H
#define SONDE_NN_OPS_SGD_UPDATE_H

#include "nn/ops/stream_kernels.h"
#include "nn/ops/vec.h"

/* What `live` of an SGD op says. */
typedef struct sgd_rule {
    float lr, momentum, damping, decay, scale; /* damping: 1 - dampening */
    bool has_v, first, nesterov;
} sgd_rule;

/* Where one stretch of the arrays lies; v may be NULL if the rule has none. */
typedef struct sgd_arrays {
    const float *w, *g, *v;
    float *w_out, *v_out;
} sgd_arrays;

/* Whose vital signs are wanted; NULL: not. */
typedef struct sgd_vitals {
    sonde_vitals *w, *g, *v;
} sgd_vitals;

static inline sgd_rule sgd_rule_of(const float *live, bool has_v)
{
    const sgd_rule rule = {
        .lr = live[0],
        .momentum = live[1],
        .damping = (float)(1.0 - (double)live[2]),
        .decay = live[3],
        .nesterov = live[4] != 0.0F,
        .scale = live[5],
        .first = live[6] != 0.0F,
        .has_v = has_v && live[1] != 0.0F,
    };

    return rule;
}

/* Which case of the equations, for the loop below: known when it is compiled. */
typedef enum sgd_case { SGD_PLAIN, SGD_MOMENTUM, SGD_ANY } sgd_case;

static inline sgd_case sgd_case_of(const sgd_rule *rule)
{
    if (rule->decay != 0.0F) {
        return SGD_ANY;
    }
    if (!rule->has_v) {
        return SGD_PLAIN;
    }
    return rule->first || rule->nesterov || rule->damping != 1.0F ? SGD_ANY
                                                                  : SGD_MOMENTUM;
}

/* n <= 16 elements from i. With whole, n is 16. */
VEC_INLINE void sgd_step(const sgd_case which, const bool whole, const sgd_rule *rule,
                         const sgd_arrays *at, int64_t i, int n)
{
    const v16 w = whole ? v16_load(at->w + i) : v16_load_n(at->w + i, n);
    const v16 g = whole ? v16_load(at->g + i) : v16_load_n(at->g + i, n);
    v16 d = v16_rounded(v16_mul(g, v16_set1(rule->scale)));

    if (which == SGD_ANY && rule->decay != 0.0F) {
        d = v16_fma(v16_set1(rule->decay), w, d);
    }
    if (which == SGD_MOMENTUM || (which == SGD_ANY && rule->has_v)) {
        const v16 momentum = v16_set1(rule->momentum);
        v16 v = d;

        if (which == SGD_MOMENTUM || !rule->first) {
            if (which == SGD_ANY) {
                v = v16_rounded(v16_mul(d, v16_set1(rule->damping)));
            }
            v = v16_fma(momentum, whole ? v16_load(at->v + i) : v16_load_n(at->v + i, n),
                        v);
        }
        whole ? v16_store(at->v_out + i, v) : v16_store_n(at->v_out + i, v, n);
        d = which == SGD_ANY && rule->nesterov ? v16_fma(momentum, v, d) : v;
    }
    d = v16_fma(v16_set1(-rule->lr), d, w);
    whole ? v16_store(at->w_out + i, d) : v16_store_n(at->w_out + i, d, n);
}

VEC_INLINE void sgd_loop(const sgd_case which, const sgd_rule *rule,
                         const sgd_arrays *arrays, int64_t count)
{
    const sgd_rule r = *rule;      /* copies: nothing stored below can be meant to */
    const sgd_arrays at = *arrays; /* change them */
    int64_t i = 0;

    for (; i + 16 <= count; i += 16) {
        sgd_step(which, true, &r, &at, i, 16);
    }
    if (i < count) {
        sgd_step(which, false, &r, &at, i, (int)(count - i));
    }
}

static inline void sgd_update(const sgd_rule *rule, const sgd_arrays *arrays,
                              int64_t count)
{
    switch (sgd_case_of(rule)) {
    case SGD_PLAIN:
        sgd_loop(SGD_PLAIN, rule, arrays, count);
        return;
    case SGD_MOMENTUM:
        sgd_loop(SGD_MOMENTUM, rule, arrays, count);
        return;
    case SGD_ANY:
        sgd_loop(SGD_ANY, rule, arrays, count);
        return;
    }
}

/* The arrays, `by` elements further. */
static inline sgd_arrays sgd_advanced(const sgd_arrays *at, int64_t by)
{
    const sgd_arrays moved = {at->w + by, at->g + by, at->v == NULL ? NULL : at->v + by,
                              at->w_out + by, at->v_out == NULL ? NULL : at->v_out + by};

    return moved;
}

/* Updates, and takes vital signs into `vitals` (initialised by the caller). If any are
 * wanted, the first element must be the first of a block of the whole array, and count
 * whole blocks unless the array ends behind it. */
static inline void sgd_update_observed(const sgd_rule *rule, const sgd_arrays *arrays,
                                       int64_t count, const sgd_vitals *vitals)
{
    if (vitals->w == NULL && vitals->g == NULL && vitals->v == NULL) {
        sgd_update(rule, arrays, count);
        return;
    }
    for (int64_t start = 0; start < count; start += SONDE__VITALS_BLOCK) {
        const int64_t n = SONDE_MIN(count - start, SONDE__VITALS_BLOCK);
        const sgd_arrays block = sgd_advanced(arrays, start);

        sgd_update(rule, &block, n);
        take_block(vitals->g, block.g, n);
        take_block(vitals->w, block.w_out, n);
        take_block(vitals->v, block.v_out, n);
    }
}

static inline void sgd_vitals_init(const sgd_vitals *vitals)
{
    sonde_vitals *const each[] = {vitals->w, vitals->g, vitals->v};

    for (int i = 0; i < 3; i++) {
        if (each[i] != NULL) {
            sonde_vitals_init(each[i]);
        }
    }
}

#endif

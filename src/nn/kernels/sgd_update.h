/*
 * sgd_update.h - the update of weights by stochastic gradient descent, over contiguous
 * memory: what Sgd and LinearGradWeightSgd share, so that they come to the same bits.
 *
 * For the kernel files that are compiled once per instruction set. Equations: updates.c. Each
 * element's arithmetic is the same wherever it stands: whole vectors and tails run the
 * same instructions, so an array may be updated in any pieces.
 *
 * Vital signs are taken block by block, of SONDE__VITALS_BLOCK elements: from registers
 * where there are enough of them, else right after the update of the block, which is then
 * in L1.
 */
#ifndef SONDE_NN_KERNELS_SGD_UPDATE_H
#define SONDE_NN_KERNELS_SGD_UPDATE_H

#include "base/macros.h"
#include "nn/kernels/stream_kernels.h"
#include "nn/kernels/vec.h"
#include "tensor/norms_accum.h"
#include "tensor/vitals_accum.h"

/* The numbers in `live` of an SGD op. */
typedef struct sgd_rule {
    float lr, momentum, damping, decay, scale; /* damping: 1 - dampening */
    bool has_v, first, nesterov;
} sgd_rule;

/* Where one stretch of the arrays lies; v may be NULL if the rule has none. *bad is set
 * to 1 if g holds NaN or infinities; NULL: not wanted. */
typedef struct sgd_arrays {
    const float *w, *g, *v;
    float *w_out, *v_out;
    uint8_t *bad;
} sgd_arrays;

/* Whose vital signs are wanted; NULL: not. */
typedef struct sgd_vitals {
    sonde_vitals *w, *g, *v;
    bool norms; /* of all, only norms */
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

/* The new w, and v in place, from g. */
VEC_INLINE vf sgd_apply(const sgd_case which, const sgd_rule *rule, vf w, vf g, vf *v)
{
    vf d = vf_rounded(g * vf_set1(rule->scale));

    if (which == SGD_ANY && rule->decay != 0.0F) {
        d = vf_fma(vf_set1(rule->decay), w, d);
    }
    if (which == SGD_MOMENTUM) {
        d = *v = vf_fma(vf_set1(rule->momentum), *v, d);
    } else if (which == SGD_ANY && rule->has_v) {
        const vf momentum = vf_set1(rule->momentum);

        *v = rule->first ? d
                         : vf_fma(momentum, *v, vf_rounded(d * vf_set1(rule->damping)));
        d = rule->nesterov ? vf_fma(momentum, *v, d) : *v;
    }
    return vf_fma(vf_set1(-rule->lr), d, w);
}

VEC_INLINE void sgd_loop(const sgd_case which, const bool look, const sgd_rule *rule,
                         const sgd_arrays *arrays, int64_t count)
{
    const sgd_rule r = *rule;        /* copies: nothing stored below can be meant to */
    const sgd_arrays copy = *arrays; /* change them */
    const bool has_v = which == SGD_MOMENTUM || (which == SGD_ANY && r.has_v);
    vf v = {0}, g, seen = {0};
    int64_t i = 0;

    for (; i + VF_WIDTH <= count; i += VF_WIDTH) {
        g = vf_load(copy.g + i);
        if (has_v) {
            v = vf_load(copy.v + i);
        }
        seen = look ? vf_see_bad(seen, g) : seen;
        vf_store(copy.w_out + i, sgd_apply(which, &r, vf_load(copy.w + i), g, &v));
        if (has_v) {
            vf_store(copy.v_out + i, v);
        }
    }
    if (i < count) {
        const int n = (int)(count - i);

        g = vf_load_n(copy.g + i, n);
        if (has_v) {
            v = vf_load_n(copy.v + i, n);
        }
        seen = look ? vf_see_bad(seen, g) : seen;
        vf_store_n(copy.w_out + i, sgd_apply(which, &r, vf_load_n(copy.w + i, n), g, &v),
                   n);
        if (has_v) {
            vf_store_n(copy.v_out + i, v, n);
        }
    }
    if (look && vf_any(seen)) {
        *copy.bad = 1;
    }
}

static inline void sgd_update(const sgd_rule *rule, const sgd_arrays *arrays,
                              int64_t count)
{
    const bool look = arrays->bad != NULL;

#define SGD_LOOP(which)                                                                  \
    if (look) {                                                                          \
        sgd_loop(which, true, rule, arrays, count);                                      \
    } else {                                                                             \
        sgd_loop(which, false, rule, arrays, count);                                     \
    }                                                                                    \
    return
    switch (sgd_case_of(rule)) {
    case SGD_PLAIN:
        SGD_LOOP(SGD_PLAIN);
    case SGD_MOMENTUM:
        SGD_LOOP(SGD_MOMENTUM);
    case SGD_ANY:
        SGD_LOOP(SGD_ANY);
    }
#undef SGD_LOOP
}

/* The arrays, `by` elements further. */
static inline sgd_arrays sgd_advanced(const sgd_arrays *arrays, int64_t by)
{
    const sgd_arrays moved = {arrays->w + by,
                              arrays->g + by,
                              arrays->v == NULL ? NULL : arrays->v + by,
                              arrays->w_out + by,
                              arrays->v_out == NULL ? NULL : arrays->v_out + by,
                              arrays->bad};

    return moved;
}

static inline void sgd_vitals_init(const sgd_vitals *vitals)
{
    sonde_vitals *const each[] = {vitals->w, vitals->g, vitals->v};

    for (int i = 0; i < 3; i++) {
        init_signs(each[i], vitals->norms);
    }
}

#if VF_WIDTH == 16
enum { SEE_W = 1, SEE_G = 2, SEE_V = 4, SEEN_BEHIND = 8 * 16 };

typedef struct sgd_accs {
    sonde__vacc w, g, v;
} sgd_accs;

/* Adds vector i of what is asked for. */
VEC_INLINE void sgd_look(const unsigned see, const sgd_arrays *arrays, int64_t i,
                         sgd_accs *accs)
{
    if (see & SEE_W) {
        sonde__vacc_add_at(&accs->w, arrays->w_out + i);
    }
    if (see & SEE_G) {
        sonde__vacc_add_at(&accs->g, arrays->g + i);
    }
    if (see & SEE_V) {
        sonde__vacc_add_at(&accs->v, arrays->v_out + i);
    }
}

/* Vector i of an update by momentum. */
VEC_INLINE void sgd_step(const sgd_rule *rule, const sgd_arrays *arrays, int64_t i)
{
    vf v = vf_load(arrays->v + i);
    const vf w =
        sgd_apply(SGD_MOMENTUM, rule, vf_load(arrays->w + i), vf_load(arrays->g + i), &v);

    vf_store(arrays->v_out + i, v);
    vf_store(arrays->w_out + i, w);
}

/* One block updated by momentum, its sums taken in the same loop: the update waits for
 * memory, the sums for arithmetic. They read what was stored a few vectors ago: taken
 * from registers, they would wait for the update as well, which costs a third more.
 * sums: of w, g and v. */
VEC_INLINE void sgd_block_sums(const unsigned see, const sgd_rule *rule,
                               const sgd_arrays *arrays, int64_t n,
                               sonde__vitals_sums sums[3])
{
    const sgd_rule r = *rule;
    const sgd_arrays copy = *arrays;
    const int64_t whole = n / 16 * 16, lead = SONDE_MIN(whole, (int64_t)SEEN_BEHIND);
    const sgd_arrays rest = sgd_advanced(&copy, whole);
    sgd_accs accs;
    int64_t i = 0;

    sonde__vacc_init(&accs.w);
    sonde__vacc_init(&accs.g);
    sonde__vacc_init(&accs.v);
    for (; i < lead; i += 16) {
        sgd_step(&r, &copy, i);
    }
    for (; i < whole; i += 16) {
        sgd_step(&r, &copy, i);
        sgd_look(see, &copy, i - SEEN_BEHIND, &accs);
    }
    for (i = whole - lead; i < whole; i += 16) {
        sgd_look(see, &copy, i, &accs);
    }
    sgd_loop(SGD_MOMENTUM, false, &r, &rest, n - whole);
    if (see & SEE_W) {
        sonde__vacc_tail(&accs.w, rest.w_out, (size_t)(n - whole));
        sonde__vacc_close(&accs.w, &sums[0]);
    }
    if (see & SEE_G) {
        sonde__vacc_tail(&accs.g, rest.g, (size_t)(n - whole));
        sonde__vacc_close(&accs.g, &sums[1]);
    }
    if (see & SEE_V) {
        sonde__vacc_tail(&accs.v, rest.v_out, (size_t)(n - whole));
        sonde__vacc_close(&accs.v, &sums[2]);
    }
}

/* A case for every combination that is asked for. */
static void sgd_block_seen(unsigned see, const sgd_rule *rule, const sgd_arrays *block,
                           int64_t n, sonde__vitals_sums sums[3])
{
#define SGD_CASE(seen)                                                                   \
    case seen:                                                                           \
        sgd_block_sums(seen, rule, block, n, sums);                                      \
        return;
    switch (see) {
        SGD_CASE(SEE_W)
        SGD_CASE(SEE_G)
        SGD_CASE(SEE_V)
        SGD_CASE(SEE_W | SEE_G)
        SGD_CASE(SEE_W | SEE_V)
        SGD_CASE(SEE_G | SEE_V)
        SGD_CASE(SEE_W | SEE_G | SEE_V)
    default:
        return;
    }
#undef SGD_CASE
}
#endif

/* Of a block in cache, where the update does not measure it in passing. */
static inline void sgd_look_at(const float *g, int64_t n, uint8_t *bad)
{
    vf seen = {0};
    int64_t i = 0;

    for (; i + VF_WIDTH <= n; i += VF_WIDTH) {
        seen = vf_see_bad(seen, vf_load(g + i));
    }
    seen = vf_see_bad(seen, vf_load_n(g + i, (int)(n - i)));
    if (vf_any(seen)) {
        *bad = 1;
    }
}

/* --- norms ------------------------------------------------------------------------- */

#if VF_WIDTH == 16
typedef struct sgd_naccs {
    sonde__nacc w, g, v;
} sgd_naccs;

/* Vector `half` of a pair updated, and added from registers. */
VEC_INLINE void sgd_norms_step(const sgd_case which, const unsigned see,
                               const sgd_rule *rule, const sgd_arrays *arrays, int64_t i,
                               int half, sgd_naccs *accs)
{
    const bool has_v = which == SGD_MOMENTUM;
    const vf g = vf_load(arrays->g + i);
    vf v = has_v ? vf_load(arrays->v + i) : (vf){0};
    const vf w = sgd_apply(which, rule, vf_load(arrays->w + i), g, &v);

    if (has_v) {
        vf_store(arrays->v_out + i, v);
    }
    vf_store(arrays->w_out + i, w);
    if (see & SEE_W) {
        sonde__nacc_add(&accs->w, half, (__m512)w);
    }
    if (see & SEE_G) {
        sonde__nacc_add(&accs->g, half, (__m512)g);
    }
    if (has_v && (see & SEE_V)) {
        sonde__nacc_add(&accs->v, half, (__m512)v);
    }
}

VEC_INLINE void sgd_norms_loop(const sgd_case which, const unsigned see,
                               const sgd_rule *rule, const sgd_arrays *arrays, int64_t n,
                               sonde__norms_sums sums[3])
{
    const sgd_rule r = *rule;
    const sgd_arrays copy = *arrays;
    const int64_t whole = n / 32 * 32;
    const sgd_arrays rest = sgd_advanced(&copy, whole);
    sgd_naccs accs;

    sonde__nacc_init(&accs.w);
    sonde__nacc_init(&accs.g);
    sonde__nacc_init(&accs.v);
    for (int64_t i = 0; i < whole; i += 32) {
        sgd_norms_step(which, see, &r, &copy, i, 0, &accs);
        sgd_norms_step(which, see, &r, &copy, i + 16, 1, &accs);
    }
    sgd_loop(which, false, &r, &rest, n - whole);
    if (see & SEE_W) {
        sonde__nacc_tail(&accs.w, rest.w_out, (size_t)(n - whole));
        sonde__nacc_close(&accs.w, &sums[0]);
    }
    if (see & SEE_G) {
        sonde__nacc_tail(&accs.g, rest.g, (size_t)(n - whole));
        sonde__nacc_close(&accs.g, &sums[1]);
    }
    if (see & SEE_V) {
        sonde__nacc_tail(&accs.v, rest.v_out, (size_t)(n - whole));
        sonde__nacc_close(&accs.v, &sums[2]);
    }
}

/* A block updated and its norms taken meanwhile, of what is usual: weights, gradients or
 * both. False: of anything else, and nothing is done. */
static bool sgd_norms_block(const sgd_rule *rule, const sgd_arrays *block, int64_t n,
                            const sgd_vitals *vitals)
{
    const unsigned see = (vitals->w != NULL ? SEE_W : 0U) |
                         (vitals->g != NULL ? SEE_G : 0U) |
                         (vitals->v != NULL ? SEE_V : 0U);
    const sgd_case which = sgd_case_of(rule);
    sonde__norms_sums sums[3];

#define SGD_CASE(kind, seen)                                                             \
    if (which == kind && see == (seen)) {                                                \
        sgd_norms_loop(kind, seen, rule, block, n, sums);                                \
    } else
    SGD_CASE(SGD_MOMENTUM, SEE_W | SEE_G)
    SGD_CASE(SGD_MOMENTUM, SEE_G)
    SGD_CASE(SGD_MOMENTUM, SEE_W | SEE_G | SEE_V)
    SGD_CASE(SGD_PLAIN, SEE_W | SEE_G)
    SGD_CASE(SGD_PLAIN, SEE_G)
    {
        return false;
    }
#undef SGD_CASE
    if (block->bad != NULL && vitals->g != NULL && !sonde__norms_is_plain(&sums[1])) {
        sgd_look_at(block->g, n, block->bad);
    }
    if (vitals->w != NULL) {
        sonde__norms_take(vitals->w, &sums[0], block->w_out, (size_t)n);
    }
    if (vitals->g != NULL) {
        sonde__norms_take(vitals->g, &sums[1], block->g, (size_t)n);
    }
    if (vitals->v != NULL) {
        sonde__norms_take(vitals->v, &sums[2], block->v_out, (size_t)n);
    }
    return true;
}
#endif

/* One block, and what is wanted of its vital signs. */
static inline void sgd_block(const sgd_rule *rule, const sgd_arrays *block, int64_t n,
                             const sgd_vitals *vitals)
{
    sgd_vitals_init(vitals);
#if VF_WIDTH == 16
    if (vitals->norms && sgd_norms_block(rule, block, n, vitals)) {
        return;
    }
    if (!vitals->norms && sgd_case_of(rule) == SGD_MOMENTUM) {
        sonde_vitals *const into[] = {vitals->w, vitals->g, vitals->v};
        const float *const source[] = {block->w_out, block->g, block->v_out};
        sonde__vitals_sums sums[3];

        if (block->bad != NULL) {
            sgd_look_at(block->g, n, block->bad);
        }
        sgd_block_seen((vitals->w != NULL ? SEE_W : 0U) |
                           (vitals->g != NULL ? SEE_G : 0U) |
                           (vitals->v != NULL ? SEE_V : 0U),
                       rule, block, n, sums);
        for (int i = 0; i < 3; i++) {
            if (into[i] != NULL) {
                sonde__vitals_take(into[i], &sums[i], source[i], (size_t)n);
            }
        }
        return;
    }
#endif
    sgd_update(rule, block, n);
    take_block(vitals->g, block->g, n, vitals->norms);
    take_block(vitals->w, block->w_out, n, vitals->norms);
    take_block(vitals->v, block->v_out, n, vitals->norms);
}

/* --- vital signs of a call, block by block ------------------------------------------ */

/* Room in scratch for the vital signs of every block of count elements. */
static inline size_t sgd_signs_bytes(int64_t count)
{
    const int64_t blocks = (count + SONDE__VITALS_BLOCK - 1) / SONDE__VITALS_BLOCK;

    return (size_t)(3 * blocks) * sizeof(sonde_vitals) / 64 * 64 + 64;
}

/* Those of block 0, where any are wanted. */
static inline sgd_vitals sgd_signs(const sgd_vitals *wanted, void *scratch, int64_t count)
{
    const int64_t blocks = (count + SONDE__VITALS_BLOCK - 1) / SONDE__VITALS_BLOCK;
    sonde_vitals *const first = scratch;
    const sgd_vitals signs = {
        wanted->w == NULL ? NULL : first, wanted->g == NULL ? NULL : first + blocks,
        wanted->v == NULL ? NULL : first + 2 * blocks, wanted->norms};

    return signs;
}

static inline sgd_vitals sgd_signs_of_block(const sgd_vitals *signs, int64_t block)
{
    const sgd_vitals one = {signs->w == NULL ? NULL : signs->w + block,
                            signs->g == NULL ? NULL : signs->g + block,
                            signs->v == NULL ? NULL : signs->v + block, signs->norms};

    return one;
}

static inline bool sgd_any_wanted(const sgd_vitals *wanted)
{
    return wanted->w != NULL || wanted->g != NULL || wanted->v != NULL;
}

/* All blocks into one, in their order. */
static inline void sgd_signs_merge(const sgd_vitals *wanted, const sgd_vitals *signs,
                                   int64_t count)
{
    sonde_vitals *const into[] = {wanted->w, wanted->g, wanted->v};
    const sonde_vitals *const source[] = {signs->w, signs->g, signs->v};
    const int64_t blocks = (count + SONDE__VITALS_BLOCK - 1) / SONDE__VITALS_BLOCK;

    sgd_vitals_init(wanted);
    for (int i = 0; i < 3; i++) {
        for (int64_t block = 0; into[i] != NULL && block < blocks; block++) {
            sonde_vitals_merge(into[i], &source[i][block]);
        }
    }
}

#endif

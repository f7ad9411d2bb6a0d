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

/* The streams whose vital signs are taken: new weights, gradient, new momentum. */
enum { SGD_W, SGD_G, SGD_V, SGD_STREAMS };

/* Whose vital signs are wanted; NULL: not. */
typedef struct sgd_vitals {
    sonde_vitals *streams[SGD_STREAMS];
    bool norms; /* of all, only norms */
} sgd_vitals;

static inline const float *sgd_stream(const sgd_arrays *arrays, int stream)
{
    return stream == SGD_W ? arrays->w_out : stream == SGD_G ? arrays->g : arrays->v_out;
}

/* A bit for each stream that is wanted. */
static inline unsigned sgd_seen(const sgd_vitals *wanted)
{
    unsigned see = 0;

    for (int k = 0; k < SGD_STREAMS; k++) {
        see |= wanted->streams[k] != NULL ? 1U << (unsigned)k : 0U;
    }
    return see;
}

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
    for (int k = 0; k < SGD_STREAMS; k++) {
        init_signs(vitals->streams[k], vitals->norms);
    }
}

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

/* --- updates that measure in passing ------------------------------------------------ */

#if VF_WIDTH == 16
enum { SEE_W = 1 << SGD_W, SEE_G = 1 << SGD_G, SEE_V = 1 << SGD_V, SEEN_BEHIND = 8 * 16 };

/* Vector i of an update by momentum. */
VEC_INLINE void sgd_step(const sgd_rule *rule, const sgd_arrays *arrays, int64_t i)
{
    vf v = vf_load(arrays->v + i);
    const vf w =
        sgd_apply(SGD_MOMENTUM, rule, vf_load(arrays->w + i), vf_load(arrays->g + i), &v);

    vf_store(arrays->v_out + i, v);
    vf_store(arrays->w_out + i, w);
}

/* Adds vector i of what is asked for. */
VEC_INLINE void sgd_look(const unsigned see, const sgd_arrays *arrays, int64_t i,
                         sonde__vacc accs[SGD_STREAMS])
{
    VEC_EACH (k, SGD_STREAMS) {
        if ((see >> k & 1U) != 0) {
            sonde__vacc_add_at(&accs[k], sgd_stream(arrays, k) + i);
        }
    }
}

/* One block updated by momentum, its sums taken in the same loop: the update waits for
 * memory, the sums for arithmetic. They read what was stored a few vectors ago: taken
 * from registers, they would wait for the update as well, which costs a third more. */
VEC_INLINE void sgd_block_sums(const unsigned see, const sgd_rule *rule,
                               const sgd_arrays *arrays, int64_t n,
                               sonde__vitals_sums sums[SGD_STREAMS])
{
    const sgd_rule r = *rule;
    const sgd_arrays copy = *arrays;
    const int64_t whole = n / 16 * 16, lead = SONDE_MIN(whole, (int64_t)SEEN_BEHIND);
    const sgd_arrays rest = sgd_advanced(&copy, whole);
    sonde__vacc accs[SGD_STREAMS];
    int64_t i = 0;

    VEC_EACH (k, SGD_STREAMS) {
        sonde__vacc_init(&accs[k]);
    }
    for (; i < lead; i += 16) {
        sgd_step(&r, &copy, i);
    }
    for (; i < whole; i += 16) {
        sgd_step(&r, &copy, i);
        sgd_look(see, &copy, i - SEEN_BEHIND, accs);
    }
    for (i = whole - lead; i < whole; i += 16) {
        sgd_look(see, &copy, i, accs);
    }
    sgd_loop(SGD_MOMENTUM, false, &r, &rest, n - whole);
    VEC_EACH (k, SGD_STREAMS) {
        if ((see >> k & 1U) != 0) {
            sonde__vacc_tail(&accs[k], sgd_stream(&rest, k), (size_t)(n - whole));
            sonde__vacc_close(&accs[k], &sums[k]);
        }
    }
}

/* A block updated by momentum and measured meanwhile: a case for every combination. */
static void sgd_vitals_block(const sgd_rule *rule, const sgd_arrays *block, int64_t n,
                             const sgd_vitals *vitals)
{
    sonde__vitals_sums sums[SGD_STREAMS];

    if (block->bad != NULL) {
        sgd_look_at(block->g, n, block->bad);
    }
#define SGD_CASE(seen)                                                                   \
    case seen:                                                                           \
        sgd_block_sums(seen, rule, block, n, sums);                                      \
        break;
    switch (sgd_seen(vitals)) {
        SGD_CASE(SEE_W)
        SGD_CASE(SEE_G)
        SGD_CASE(SEE_V)
        SGD_CASE(SEE_W | SEE_G)
        SGD_CASE(SEE_W | SEE_V)
        SGD_CASE(SEE_G | SEE_V)
        SGD_CASE(SEE_W | SEE_G | SEE_V)
    default:
        break;
    }
#undef SGD_CASE
    for (int k = 0; k < SGD_STREAMS; k++) {
        if (vitals->streams[k] != NULL) {
            sonde__vitals_take(vitals->streams[k], &sums[k], sgd_stream(block, k),
                               (size_t)n);
        }
    }
}

/* Vector `half` of a pair updated, and added from registers. */
VEC_INLINE void sgd_norms_step(const sgd_case which, const unsigned see,
                               const sgd_rule *rule, const sgd_arrays *arrays, int64_t i,
                               int half, sonde__nacc accs[SGD_STREAMS])
{
    const bool has_v = which == SGD_MOMENTUM;
    const vf g = vf_load(arrays->g + i);
    vf v = has_v ? vf_load(arrays->v + i) : (vf){0};
    const vf w = sgd_apply(which, rule, vf_load(arrays->w + i), g, &v);

    if (has_v) {
        vf_store(arrays->v_out + i, v);
    }
    vf_store(arrays->w_out + i, w);
    VEC_EACH (k, SGD_STREAMS) {
        if ((see >> k & 1U) != 0) {
            sonde__nacc_add(&accs[k], half,
                            (__m512)(k == SGD_W   ? w
                                     : k == SGD_G ? g
                                                  : v));
        }
    }
}

VEC_INLINE void sgd_norms_loop(const sgd_case which, const unsigned see,
                               const sgd_rule *rule, const sgd_arrays *arrays, int64_t n,
                               sonde__norms_sums sums[SGD_STREAMS])
{
    const sgd_rule r = *rule;
    const sgd_arrays copy = *arrays;
    const int64_t whole = n / 32 * 32;
    const sgd_arrays rest = sgd_advanced(&copy, whole);
    sonde__nacc accs[SGD_STREAMS];

    VEC_EACH (k, SGD_STREAMS) {
        sonde__nacc_init(&accs[k]);
    }
    for (int64_t i = 0; i < whole; i += 32) {
        sgd_norms_step(which, see, &r, &copy, i, 0, accs);
        sgd_norms_step(which, see, &r, &copy, i + 16, 1, accs);
    }
    sgd_loop(which, false, &r, &rest, n - whole);
    VEC_EACH (k, SGD_STREAMS) {
        if ((see >> k & 1U) != 0) {
            sonde__nacc_tail(&accs[k], sgd_stream(&rest, k), (size_t)(n - whole));
            sonde__nacc_close(&accs[k], &sums[k]);
        }
    }
}

/* A block updated and its norms taken meanwhile, of what is usual: weights, gradients or
 * both. False: of anything else, and nothing is done. */
static bool sgd_norms_block(const sgd_rule *rule, const sgd_arrays *block, int64_t n,
                            const sgd_vitals *vitals)
{
    const unsigned see = sgd_seen(vitals);
    const sgd_case which = sgd_case_of(rule);
    sonde__norms_sums sums[SGD_STREAMS];

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
    if (block->bad != NULL && !sonde__norms_is_plain(&sums[SGD_G])) {
        sgd_look_at(block->g, n, block->bad);
    }
    for (int k = 0; k < SGD_STREAMS; k++) {
        if (vitals->streams[k] != NULL) {
            sonde__norms_take(vitals->streams[k], &sums[k], sgd_stream(block, k),
                              (size_t)n);
        }
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
        sgd_vitals_block(rule, block, n, vitals);
        return;
    }
#endif
    sgd_update(rule, block, n);
    for (int k = 0; k < SGD_STREAMS; k++) {
        take_block(vitals->streams[k], sgd_stream(block, k), n, vitals->norms);
    }
}

/* --- vital signs of a call, block by block ------------------------------------------ */

static inline int64_t sgd_blocks(int64_t count)
{
    return (count + SONDE__VITALS_BLOCK - 1) / SONDE__VITALS_BLOCK;
}

/* Room in scratch for the vital signs of every block of count elements. */
static inline size_t sgd_signs_bytes(int64_t count)
{
    return (size_t)(SGD_STREAMS * sgd_blocks(count)) * sizeof(sonde_vitals) / 64 * 64 +
           64;
}

/* Those of block 0, where any are wanted. */
static inline sgd_vitals sgd_signs(const sgd_vitals *wanted, void *scratch, int64_t count)
{
    sgd_vitals signs = {.norms = wanted->norms};

    for (int k = 0; k < SGD_STREAMS; k++) {
        signs.streams[k] = wanted->streams[k] == NULL
                               ? NULL
                               : (sonde_vitals *)scratch + k * sgd_blocks(count);
    }
    return signs;
}

static inline sgd_vitals sgd_signs_of_block(const sgd_vitals *signs, int64_t block)
{
    sgd_vitals one = *signs;

    for (int k = 0; k < SGD_STREAMS; k++) {
        one.streams[k] = one.streams[k] == NULL ? NULL : one.streams[k] + block;
    }
    return one;
}

/* All blocks into one, in their order. */
static inline void sgd_signs_merge(const sgd_vitals *wanted, const sgd_vitals *signs,
                                   int64_t count)
{
    sgd_vitals_init(wanted);
    for (int k = 0; k < SGD_STREAMS; k++) {
        for (int64_t i = 0; wanted->streams[k] != NULL && i < sgd_blocks(count); i++) {
            sonde_vitals_merge(wanted->streams[k], &signs->streams[k][i]);
        }
    }
}

#endif

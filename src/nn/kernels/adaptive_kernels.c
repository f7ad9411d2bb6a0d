/*
 * adaptive_kernels.c - RMSprop, Adagrad and LAMB, with vital signs of gradient, weight and
 * states in the same pass.
 *
 * Equations: updates.c. Factors of a step are taken in double,
 * everything an element in float32, so results differ from the references, which compute in
 * double, by roundings. The sums of squares of LAMB's norms are float32 within a block of
 * vital signs and double over the blocks; a block whose sum overflows is summed in double.
 *
 * Adagrad and LAMB have one part: their step count is an operand in place.
 */
#include "base/isa.h"
#include "base/macros.h"
#include "nn/kernels/fast.h"
#include "nn/kernels/stream_kernels.h"
#include "nn/kernels/vec.h"

#include <math.h>

enum { OPERANDS = 5 };

/* Arrays of an update from some element on: in and out of the op; NULL: not there. */
typedef struct adaptive_arrays {
    const float *in[OPERANDS];
    float *out[OPERANDS];
    int outs; /* of them that have elements as the weight has */
    uint8_t *bad;
} adaptive_arrays;

static adaptive_arrays adaptive_at(const sonde__op_call *call, int outs, int64_t i)
{
    adaptive_arrays at = {.outs = outs};

    for (int k = 0; k < OPERANDS; k++) {
        const float *const in = k < call->in_count ? call->in[k].data : NULL;
        float *const out = k < outs ? call->out[k].data : NULL;

        at.in[k] = in != NULL ? in + i : NULL;
        at.out[k] = out != NULL ? out + i : NULL;
    }
    return at;
}

/* Vital signs of the gradient and of what the op made, in order of operands. */
static void adaptive_begin_vitals(const sonde__op_call *call, int outs)
{
    if (call->in_vitals[1] != NULL) {
        sonde_vitals_init(call->in_vitals[1]);
    }
    for (int k = 0; k < outs; k++) {
        if (call->out_vitals[k] != NULL) {
            sonde_vitals_init(call->out_vitals[k]);
        }
    }
}

static void adaptive_take(const sonde__op_call *call, const adaptive_arrays *at,
                          int first, int64_t n)
{
    take_block(call->in_vitals[1], at->in[1], n, false);
    for (int k = first; k < at->outs; k++) {
        take_block(call->out_vitals[k], at->out[k], n, false);
    }
}

static double adaptive_places(float beta)
{
    return round((double)beta * 1e7) / 1e7;
}

VEC_INLINE v16 adaptive_load(const float *p, int n)
{
    return n == 16 ? v16_load(p) : v16_load_n(p, n);
}

VEC_INLINE void adaptive_store(float *p, v16 a, int n)
{
    if (n == 16) {
        v16_store(p, a);
    } else {
        v16_store_n(p, a, n);
    }
}

/* The gradient of the update: scale g, and decay w if there is decay. */
VEC_INLINE v16 adaptive_gradient(v16 g, v16 w, float scale, float decay)
{
    const v16 d = v16_rounded(v16_mul(g, v16_set1(scale)));

    return decay != 0.0F ? v16_fma(v16_set1(decay), w, d) : d;
}

/* --- RMSprop ------------------------------------------------------------------------ */

enum { RMS_CENTRED = 1, RMS_MOMENTUM = 2, RMS_TF = 4 };

/* The variance of a centred update is the difference of two near numbers, which the
 * reference takes in double. */
static bool rms_accepts(const sonde__op_call *call)
{
    return stream_f32(call) && (call->attrs->update.variant & RMS_CENTRED) == 0;
}

typedef struct rms_rule {
    float scale, decay, alpha, left, mu, rate, eps;
    bool ones; /* v begins at 1 */
} rms_rule;

static rms_rule rms_rule_of(const float *live, int choice)
{
    const double alpha = adaptive_places(live[1]);
    const rms_rule rule = {.scale = live[5],
                           .decay = live[3],
                           .alpha = (float)alpha,
                           .left = (float)(1.0 - alpha),
                           .mu = live[4],
                           .rate = live[0],
                           .eps = live[2],
                           .ones = (choice & RMS_TF) != 0 && live[6] != 0.0F};

    return rule;
}

VEC_INLINE v16 rms_step(const int choice, const rms_rule *r, const adaptive_arrays *at,
                        int64_t i, int n, v16 seen)
{
    const v16 w = adaptive_load(at->in[0] + i, n), g = adaptive_load(at->in[1] + i, n);
    const v16 d = adaptive_gradient(g, w, r->scale, r->decay);
    v16 v = r->ones ? v16_set1(1.0F) : adaptive_load(at->in[2] + i, n);
    v16 x;

    v = v16_rounded(v16_mul(v, v16_set1(r->alpha)));
    v = v16_fma(v16_rounded(v16_mul(d, v16_set1(r->left))), d, v);
    adaptive_store(at->out[1] + i, v, n);
    if ((choice & RMS_TF) != 0) {
        x = v16_div(v16_rounded(v16_mul(d, v16_set1(r->rate))),
                    v16_sqrt(v16_add(v, v16_set1(r->eps))));
    } else {
        x = v16_div(d, v16_add(v16_sqrt(v), v16_set1(r->eps)));
    }
    if ((choice & RMS_MOMENTUM) != 0) {
        x = v16_fma(v16_set1(r->mu), adaptive_load(at->in[4] + i, n), x);
        adaptive_store(at->out[3] + i, x, n);
    }
    adaptive_store(
        at->out[0] + i,
        (choice & RMS_TF) != 0 ? v16_sub(w, x) : v16_fma(v16_set1(-r->rate), x, w), n);
    return v16_see_bad(seen, g);
}

VEC_INLINE void rms_loop(const int choice, const rms_rule *rule,
                         const adaptive_arrays *arrays, int64_t count)
{
    const rms_rule r = *rule;
    const adaptive_arrays at = *arrays;
    v16 seen = v16_zero();
    int64_t i = 0;

    for (; i + 16 <= count; i += 16) {
        seen = rms_step(choice, &r, &at, i, 16, seen);
    }
    if (i < count) {
        seen = rms_step(choice, &r, &at, i, (int)(count - i), seen);
    }
    if (at.bad != NULL && v16_any(seen)) {
        *at.bad = 1;
    }
}

static void rms_update(int choice, const rms_rule *rule, const adaptive_arrays *arrays,
                       int64_t count)
{
    switch (choice) {
    case 0:
        rms_loop(0, rule, arrays, count);
        return;
    case RMS_MOMENTUM:
        rms_loop(RMS_MOMENTUM, rule, arrays, count);
        return;
    default:
        rms_loop(choice, rule, arrays, count);
    }
}

/* Vital signs: of in[1], and of all outputs that there are. */
static void rms_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t count = sonde__op_shape_count(&call->in[0].shape);
    const stream_span span = stream_part(count, part, parts);
    const int choice = call->attrs->update.variant;
    const rms_rule rule = rms_rule_of(call->live, choice);
    uint8_t *const bad = sonde__op_part_bad(call, part);

    if (parts == 1) {
        adaptive_begin_vitals(call, 4);
    }
    for (int64_t i = span.begin; i < span.end; i += SONDE__VITALS_BLOCK) {
        const int64_t n = SONDE_MIN(span.end - i, SONDE__VITALS_BLOCK);
        adaptive_arrays at = adaptive_at(call, 4, i);

        at.out[2] = NULL;
        at.out[3] = (choice & RMS_MOMENTUM) != 0 ? at.out[3] : NULL;
        at.bad = bad;
        rms_update(choice, &rule, &at, n);
        if (parts == 1) {
            adaptive_take(call, &at, 0, n);
        }
    }
}

/* --- Adagrad ------------------------------------------------------------------------ */

typedef struct adagrad_rule {
    float scale, decay, rate, eps, initial;
    bool first;
} adagrad_rule;

VEC_INLINE v16 adagrad_step(const adagrad_rule *r, const adaptive_arrays *at, int64_t i,
                            int n, v16 seen)
{
    const v16 w = adaptive_load(at->in[0] + i, n), g = adaptive_load(at->in[1] + i, n);
    const v16 d = adaptive_gradient(g, w, r->scale, r->decay);
    const v16 before = r->first ? v16_set1(r->initial) : adaptive_load(at->in[2] + i, n);
    const v16 v = v16_fma(d, d, before);

    adaptive_store(at->out[1] + i, v, n);
    adaptive_store(at->out[0] + i,
                   v16_add(w, v16_div(v16_rounded(v16_mul(d, v16_set1(-r->rate))),
                                      v16_add(v16_sqrt(v), v16_set1(r->eps)))),
                   n);
    return v16_see_bad(seen, g);
}

static void adagrad_update(const adagrad_rule *rule, const adaptive_arrays *arrays,
                           int64_t count)
{
    const adagrad_rule r = *rule;
    const adaptive_arrays at = *arrays;
    v16 seen = v16_zero();
    int64_t i = 0;

    for (; i + 16 <= count; i += 16) {
        seen = adagrad_step(&r, &at, i, 16, seen);
    }
    if (i < count) {
        seen = adagrad_step(&r, &at, i, (int)(count - i), seen);
    }
    if (at.bad != NULL && v16_any(seen)) {
        *at.bad = 1;
    }
}

static void adagrad_run(const sonde__op_call *call, int part, int parts)
{
    const float *live = call->live;
    const int64_t count = sonde__op_shape_count(&call->in[0].shape);
    const float before = *(const float *)call->in[3].data;
    const adagrad_rule rule = {
        .scale = live[5],
        .decay = live[3],
        .rate =
            (float)((double)live[0] / (1.0 + (double)before * adaptive_places(live[1]))),
        .eps = live[2],
        .initial = live[4],
        .first = before == 0.0F};
    uint8_t *const bad = sonde__op_part_bad(call, part);

    (void)parts;
    adaptive_begin_vitals(call, 2);
    for (int64_t i = 0; i < count; i += SONDE__VITALS_BLOCK) {
        const int64_t n = SONDE_MIN(count - i, SONDE__VITALS_BLOCK);
        adaptive_arrays at = adaptive_at(call, 2, i);

        at.bad = bad;
        adagrad_update(&rule, &at, n);
        adaptive_take(call, &at, 0, n);
    }
    *(float *)call->out[2].data = before + 1.0F;
}

/* --- LAMB --------------------------------------------------------------------------- */

typedef struct lamb_rule {
    float scale, beta1, beta1_left, beta2, beta2_left;
    float first, root, eps, decay; /* divisors of m and of the root of v */
} lamb_rule;

static lamb_rule lamb_rule_of(const float *live, double step)
{
    const double beta1 = adaptive_places(live[1]), beta2 = adaptive_places(live[2]);
    const bool corrects = live[5] != 0.0F;
    const lamb_rule rule = {.scale = live[6],
                            .beta1 = (float)beta1,
                            .beta1_left = (float)(1.0 - beta1),
                            .beta2 = (float)beta2,
                            .beta2_left = (float)(1.0 - beta2),
                            .first =
                                corrects ? (float)(1.0 / (1.0 - pow(beta1, step))) : 1.0F,
                            .root = corrects ? (float)sqrt(1.0 - pow(beta2, step)) : 1.0F,
                            .eps = live[3],
                            .decay = live[4]};

    return rule;
}

VEC_INLINE v16 lamb_direction(const lamb_rule *r, v16 w, v16 m, v16 v)
{
    const v16 below = v16_add(v16_div(v16_sqrt(v), v16_set1(r->root)), v16_set1(r->eps));

    return v16_fma(
        v16_set1(r->decay), w,
        v16_rounded(v16_div(v16_rounded(v16_mul(m, v16_set1(r->first))), below)));
}

typedef struct lamb_sums {
    v16 weight, size, seen;
} lamb_sums;

/* Moves the moments; adds to the squares of w and of the direction. Lanes beyond n are 0:
 * so are their squares. */
VEC_INLINE void lamb_move(const lamb_rule *r, const adaptive_arrays *at, int64_t i, int n,
                          lamb_sums *sums)
{
    const v16 w = adaptive_load(at->in[0] + i, n), g = adaptive_load(at->in[1] + i, n);
    const v16 d = v16_rounded(v16_mul(g, v16_set1(r->scale)));
    v16 m = adaptive_load(at->in[2] + i, n), v = adaptive_load(at->in[3] + i, n), x;

    m = v16_rounded(v16_mul(m, v16_set1(r->beta1)));
    m = v16_fma(v16_set1(r->beta1_left), d, m);
    v = v16_rounded(v16_mul(v, v16_set1(r->beta2)));
    v = v16_fma(v16_rounded(v16_mul(d, v16_set1(r->beta2_left))), d, v);
    adaptive_store(at->out[1] + i, m, n);
    adaptive_store(at->out[2] + i, v, n);
    x = lamb_direction(r, w, m, v);
    if (n < 16 && r->eps == 0.0F) { /* 0 / 0 in lanes that are none */
        float kept[16] = {0.0F};

        v16_store_n(kept, x, n);
        x = v16_load(kept);
    }
    sums->weight = v16_fma(w, w, sums->weight);
    sums->size = v16_fma(x, x, sums->size);
    sums->seen = v16_see_bad(sums->seen, g);
}

/* The sums of squares of a block in double, where float32 overflows. */
static void lamb_sum_slowly(const lamb_rule *r, const adaptive_arrays *at, int64_t count,
                            double *weight, double *size)
{
    *weight = *size = 0.0;
    for (int64_t i = 0; i < count; i++) {
        const double w = (double)at->in[0][i];
        const double x =
            (double)at->out[1][i] * (double)r->first /
                (sqrt((double)at->out[2][i]) / (double)r->root + (double)r->eps) +
            (double)r->decay * w;

        *weight += w * w;
        *size += x * x;
    }
}

static void lamb_block(const lamb_rule *rule, const adaptive_arrays *arrays,
                       int64_t count, double *weight, double *size)
{
    const lamb_rule r = *rule;
    const adaptive_arrays at = *arrays;
    lamb_sums sums = {v16_zero(), v16_zero(), v16_zero()};
    double w = 0.0, x = 0.0;
    int64_t i = 0;

    for (; i + 16 <= count; i += 16) {
        lamb_move(&r, &at, i, 16, &sums);
    }
    if (i < count) {
        lamb_move(&r, &at, i, (int)(count - i), &sums);
    }
    w = (double)v16_sum(sums.weight);
    x = (double)v16_sum(sums.size);
    if (!isfinite(w) || !isfinite(x)) {
        lamb_sum_slowly(&r, &at, count, &w, &x);
    }
    *weight += w;
    *size += x;
    if (at.bad != NULL && v16_any(sums.seen)) {
        *at.bad = 1;
    }
}

static void lamb_apply(const lamb_rule *rule, float rate, const adaptive_arrays *arrays,
                       int64_t count)
{
    const lamb_rule r = *rule;
    const adaptive_arrays at = *arrays;

    for (int64_t i = 0; i < count; i += 16) {
        const int n = (int)SONDE_MIN(count - i, (int64_t)16);
        const v16 w = adaptive_load(at.in[0] + i, n);
        const v16 x = lamb_direction(&r, w, adaptive_load(at.out[1] + i, n),
                                     adaptive_load(at.out[2] + i, n));

        adaptive_store(at.out[0] + i, v16_fma(v16_set1(-rate), x, w), n);
    }
}

/* lr times the trust. */
static float lamb_rate(const float *live, double weight, double size)
{
    const double norm = sqrt(weight);
    const double bounded = norm > (double)live[7] ? (double)live[7] : norm;
    const bool trusts = bounded != 0.0 && size != 0.0;

    return (float)((double)live[0] * (trusts ? bounded / sqrt(size) : 1.0));
}

static void lamb_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t count = sonde__op_shape_count(&call->in[0].shape);
    const float step = *(const float *)call->in[4].data + 1.0F;
    const lamb_rule rule = lamb_rule_of(call->live, (double)step);
    uint8_t *const bad = sonde__op_part_bad(call, part);
    double weight = 0.0, size = 0.0;
    float rate = 0.0F;

    (void)parts;
    adaptive_begin_vitals(call, 3);
    for (int64_t i = 0; i < count; i += SONDE__VITALS_BLOCK) {
        const int64_t n = SONDE_MIN(count - i, SONDE__VITALS_BLOCK);
        adaptive_arrays at = adaptive_at(call, 3, i);

        at.bad = bad;
        lamb_block(&rule, &at, n, &weight, &size);
        adaptive_take(call, &at, 1, n);
    }
    rate = lamb_rate(call->live, weight, size);
    for (int64_t i = 0; i < count; i += SONDE__VITALS_BLOCK) {
        const int64_t n = SONDE_MIN(count - i, SONDE__VITALS_BLOCK);
        const adaptive_arrays at = adaptive_at(call, 3, i);

        lamb_apply(&rule, rate, &at, n);
        take_block(call->out_vitals[0], at.out[0], n, false);
    }
    *(float *)call->out[3].data = step;
}

/* --- lists -------------------------------------------------------------------------- */

const sonde__op_kernel ISA(sonde__kernel_rmsprop) = {.name = "flat",
                                                     .accepts = rms_accepts,
                                                     .parts = stream_parts,
                                                     .vitals_in = 1U << 1,
                                                     .vitals_out = 1U << 0 | 1U << 1 |
                                                                   1U << 3,
                                                     .run = rms_run};
const sonde__op_kernel ISA(sonde__kernel_adagrad) = {.name = "flat",
                                                     .accepts = stream_f32,
                                                     .vitals_in = 1U << 1,
                                                     .vitals_out = 3U,
                                                     .run = adagrad_run};
const sonde__op_kernel ISA(sonde__kernel_lamb) = {.name = "flat",
                                                  .accepts = stream_f32,
                                                  .vitals_in = 1U << 1,
                                                  .vitals_out = 7U,
                                                  .run = lamb_run};

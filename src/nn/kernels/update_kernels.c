/*
 * update_kernels.c - the updates of parameters, with vital signs of gradient, weight and states
 * in the same pass: SGD (its loop is in sgd_update.h), Adam and AdamW, RMSprop, Adagrad, LAMB.
 *
 * Equations: updates.c. Factors of a step are taken in
 * double, everything an element in float32, Adam's in the order of torch's own kernels; results
 * of the others differ from the references, which compute in double, by roundings. The sums of
 * squares of LAMB's norms are float32 within a block of vital signs and double over the blocks; a
 * block whose sum overflows is summed in double.
 *
 * Adam, Adagrad and LAMB have one part: their step count is an operand in place, which a part
 * must not advance while another still reads it.
 */
#include "base/isa.h"
#include "base/macros.h"
#include "nn/kernels/fast.h"
#include "nn/kernels/sgd_update.h"
#include "nn/kernels/stream_kernels.h"
#include "nn/kernels/vec.h"

#include <math.h>

/* --- SGD ---------------------------------------------------------------------------- */

/* Vital signs: of in[1] (g), out[0] (w) and out[1] (v). */
static sgd_vitals sgd_wanted(const sonde__op_call *call)
{
    const bool full = call->in_vitals[1] != NULL && (call->norms_in >> 1U & 1U) == 0;

    return (sgd_vitals){{call->out_vitals[0], call->in_vitals[1], call->out_vitals[1]},
                        !full && sonde__op_wants_norms(call, 1U << 0 | 1U << 1)};
}

static size_t sgd_scratch(const sonde__op_call *call, int parts)
{
    (void)parts;
    return sgd_signs_bytes(sonde__op_shape_count(&call->in[0].shape));
}

static void sgd_finish(const sonde__op_call *call, int parts)
{
    const int64_t count = sonde__op_shape_count(&call->in[0].shape);
    const sgd_vitals wanted = sgd_wanted(call);
    const sgd_vitals signs = sgd_signs(&wanted, call->scratch, count);

    (void)parts;
    sgd_signs_merge(&wanted, &signs, count);
}

/* Parts are whole blocks of vital signs. */
static void sgd_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t count = sonde__op_shape_count(&call->in[0].shape);
    const int64_t blocks = (count + SONDE__VITALS_BLOCK - 1) / SONDE__VITALS_BLOCK;
    const int64_t begin = blocks * part / parts * SONDE__VITALS_BLOCK;
    const int64_t end =
        SONDE_MIN(blocks * (part + 1) / parts * SONDE__VITALS_BLOCK, count);
    const sgd_arrays all = {call->in[0].data,
                            call->in[1].data,
                            call->in_count > 2 ? call->in[2].data : NULL,
                            call->out[0].data,
                            call->out[1].data,
                            sonde__op_part_bad(call, part)};
    const sgd_arrays mine = sgd_advanced(&all, begin);
    const sgd_rule rule = sgd_rule_of(call->live, all.v != NULL);
    const sgd_vitals wanted = sgd_wanted(call);
    const sgd_vitals signs = sgd_signs(&wanted, call->scratch, count);

    if (sgd_seen(&wanted) == 0) {
        sgd_update(&rule, &mine, end - begin);
        return;
    }
    if (parts == 1 && blocks == 1) { /* nothing to merge */
        sgd_block(&rule, &all, count, &wanted);
        return;
    }
    for (int64_t i = begin; i < end; i += SONDE__VITALS_BLOCK) {
        const sgd_arrays block = sgd_advanced(&all, i);
        const sgd_vitals into = sgd_signs_of_block(&signs, i / SONDE__VITALS_BLOCK);

        sgd_block(&rule, &block, SONDE_MIN(end - i, SONDE__VITALS_BLOCK), &into);
    }
    if (parts == 1) {
        sgd_finish(call, 1);
    }
}

SONDE__ISA_KERNEL(sgd, "flat", stream_f32, (SONDE__PLAIN), (SONDE__PLAIN), sgd_run,
                  .scratch = sgd_scratch, .parts = stream_parts, .vitals_in = 1U << 1,
                  .vitals_out = 1U << 0 | 1U << 1, .finish = sgd_finish)

/* --- the others: arrays and vital signs --------------------------------------------- */

enum { OPERANDS = 5 };

/* Arrays of an update from some element on: in and out of the op. */
typedef struct step_arrays {
    const float *in[OPERANDS]; /* w, g and states */
    float *out[OPERANDS];      /* w and states */
} step_arrays;

/* The numbers of a step; each update uses some of them. */
typedef struct step_rule {
    float scale, decay, keep; /* keep: what decoupled decay leaves of w */
    float beta1, beta1_left, beta2, beta2_left;
    float first, root, rate, eps; /* first, root: divisors of m and of the root of v */
    float initial;                /* what v begins at */
    bool begins, late;            /* late: torch.lerp then starts from the other end */
} step_rule;

typedef void update_fn(const step_rule *rule, const step_arrays *arrays, int64_t count);

static step_arrays arrays_at(const sonde__op_call *call, int64_t i)
{
    step_arrays at;

    for (int k = 0; k < OPERANDS; k++) {
        const float *const in = k < call->in_count ? call->in[k].data : NULL;
        float *const out = k < call->out_count ? call->out[k].data : NULL;

        at.in[k] = in != NULL ? in + i : NULL;
        at.out[k] = out != NULL ? out + i : NULL;
    }
    return at;
}

static bool only_norms(unsigned norms, int operand)
{
    return (norms >> (unsigned)operand & 1U) != 0;
}

/* Vital signs of the gradient and of what the op made, in order of operands. */
static void begin_vitals(const sonde__op_call *call)
{
    init_signs(call->in_vitals[1], only_norms(call->norms_in, 1));
    for (int k = 0; k < OPERANDS; k++) {
        init_signs(call->out_vitals[k], only_norms(call->norms_out, k));
    }
}

/* Of the gradient, and of outputs first ... outs - 1. bad: as sgd_update.h has it. */
static void take_vitals(const sonde__op_call *call, const step_arrays *at, int first,
                        int outs, int64_t n, uint8_t *bad)
{
    if (bad != NULL) {
        sgd_look_at(at->in[1], n, bad);
    }
    take_block(call->in_vitals[1], at->in[1], n, only_norms(call->norms_in, 1));
    for (int k = first; k < outs; k++) {
        take_block(call->out_vitals[k], at->out[k], n, only_norms(call->norms_out, k));
    }
}

/* Some elements, block by block; `outs` outputs have elements. */
static void run_blocks(const sonde__op_call *call, stream_span mine, update_fn *update,
                       const step_rule *rule, int outs, uint8_t *bad)
{
    begin_vitals(call);
    for (int64_t i = mine.begin; i < mine.end; i += SONDE__VITALS_BLOCK) {
        const int64_t n = SONDE_MIN(mine.end - i, SONDE__VITALS_BLOCK);
        const step_arrays at = arrays_at(call, i);

        update(rule, &at, n);
        take_vitals(call, &at, 0, outs, n, bad);
    }
}

static stream_span all_elements(const sonde__op_call *call)
{
    return (stream_span){0, sonde__op_shape_count(&call->in[0].shape)};
}

/* The steps before, from the count of the op; the count that the op leaves. */
static float steps_before(const sonde__op_call *call)
{
    return *(const float *)call->in[call->in_count - 1].data;
}

static void put_steps(const sonde__op_call *call, float steps)
{
    *(float *)call->out[call->out_count - 1].data = steps;
}

static double seven_places(float beta)
{
    return round((double)beta * 1e7) / 1e7;
}

VEC_INLINE v16 load(const float *p, int n)
{
    return n == 16 ? v16_load(p) : v16_load_n(p, n);
}

VEC_INLINE void store(float *p, v16 a, int n)
{
    if (n == 16) {
        v16_store(p, a);
    } else {
        v16_store_n(p, a, n);
    }
}

/* The gradient of the update: scale g, and decay w if there is decay. */
VEC_INLINE v16 gradient_of(const step_rule *r, v16 g, v16 w)
{
    const v16 d = v16_rounded(v16_mul(g, v16_set1(r->scale)));

    return r->decay != 0.0F ? v16_fma(v16_set1(r->decay), w, d) : d;
}

/* beta v + (1 - beta) d^2 */
VEC_INLINE v16 second_moment(const step_rule *r, v16 v, v16 d)
{
    v = v16_rounded(v16_mul(v, v16_set1(r->beta2)));
    return v16_fma(v16_rounded(v16_mul(d, v16_set1(r->beta2_left))), d, v);
}

/* Defines NAME_update. `step` is done for the n (up to 16) elements from i on, with r and at.
 * Where it loads decides about bits: compilers contract a product and a sum within a basic block
 * only, and the tail of an array loads in a loop. */
#define DEFINE_UPDATE(name, step)                                                        \
    static void name##_update(const step_rule *rule, const step_arrays *arrays,          \
                              int64_t count)                                             \
    {                                                                                    \
        const step_rule r = *rule; /* copies: nothing that is stored changes them */     \
        const step_arrays at = *arrays;                                                  \
        int64_t i = 0;                                                                   \
                                                                                         \
        for (; i + 16 <= count; i += 16) {                                               \
            const int n = 16;                                                            \
                                                                                         \
            step;                                                                        \
        }                                                                                \
        if (i < count) {                                                                 \
            const int n = (int)(count - i);                                              \
                                                                                         \
            step;                                                                        \
        }                                                                                \
    }

/* --- Adam --------------------------------------------------------------------------- */

static step_rule adam_rule(const float *live, double step)
{
    const double beta1 = seven_places(live[1]), beta2 = seven_places(live[2]);
    const bool decoupled = live[5] != 0.0F;

    return (step_rule){
        .scale = live[6],
        .decay = decoupled ? 0.0F : live[4],
        .keep = decoupled ? (float)(1.0 - (double)live[0] * (double)live[4]) : 1.0F,
        .beta1_left = (float)(beta1 > 0.5 ? 1.0 - beta1 : beta1),
        .late = beta1 <= 0.5,
        .beta2 = (float)beta2,
        .beta2_left = (float)(1.0 - beta2),
        .rate = (float)(-(double)live[0] / (1.0 - pow(beta1, step))),
        .root = (float)sqrt(1.0 - pow(beta2, step)),
        .eps = live[3],
    };
}

VEC_INLINE void adam_step(const step_rule *r, const step_arrays *at, int64_t i, int n)
{
    const v16 w = v16_rounded(v16_mul(load(at->in[0] + i, n), v16_set1(r->keep)));
    const v16 g = load(at->in[1] + i, n);
    v16 m = load(at->in[2] + i, n), v = load(at->in[3] + i, n), below;
    const v16 d = gradient_of(r, g, w), gap = v16_sub(d, m);

    v = second_moment(r, v, d);
    m = r->late ? v16_fma(v16_set1(-r->beta1_left), gap, d)
                : v16_fma(v16_set1(r->beta1_left), gap, m);
    store(at->out[1] + i, m, n);
    store(at->out[2] + i, v, n);
    below = v16_add(v16_div(v16_sqrt(v), v16_set1(r->root)), v16_set1(r->eps));
    m = v16_div(v16_rounded(v16_mul(m, v16_set1(r->rate))), below);
    store(at->out[0] + i, v16_add(w, m), n);
}

DEFINE_UPDATE(adam, adam_step(&r, &at, i, n))

/* Vital signs: of in[1] (g), out[0] (w), out[1] (m) and out[2] (v). */
static void adam_run(const sonde__op_call *call, int part, int parts)
{
    const float step = steps_before(call) + 1.0F;
    const step_rule numbers = adam_rule(call->live, (double)step);

    (void)parts;
    run_blocks(call, all_elements(call), adam_update, &numbers, 3,
               sonde__op_part_bad(call, part));
    put_steps(call, step);
}

SONDE__ISA_KERNEL(adam, "flat", stream_f32, (SONDE__PLAIN), (SONDE__PLAIN), adam_run,
                  .vitals_in = 1U << 1, .vitals_out = 7U)

/* --- RMSprop ------------------------------------------------------------------------ */

enum { RMS_CENTERED = 1, RMS_MOMENTUM = 2, RMS_TF = 4 };

/* The variance of a centered update is the difference of two near numbers, which the
 * reference takes in double. */
static bool rms_accepts(const sonde__op_call *call)
{
    return stream_f32(call) && (call->attrs->update.variant & RMS_CENTERED) == 0;
}

static step_rule rms_rule(const float *live, int choice)
{
    const double alpha = seven_places(live[1]);

    return (step_rule){.scale = live[5],
                       .decay = live[3],
                       .beta1 = live[4],
                       .beta2 = (float)alpha,
                       .beta2_left = (float)(1.0 - alpha),
                       .rate = live[0],
                       .eps = live[2],
                       .initial = 1.0F,
                       .begins = (choice & RMS_TF) != 0 && live[6] != 0.0F};
}

VEC_INLINE void rms_step(const int choice, const step_rule *r, const step_arrays *at,
                         int64_t i, int n)
{
    const v16 w = load(at->in[0] + i, n), g = load(at->in[1] + i, n);
    const v16 before = r->begins ? v16_set1(r->initial) : load(at->in[2] + i, n);
    const v16 d = gradient_of(r, g, w), v = second_moment(r, before, d);
    v16 x;

    store(at->out[1] + i, v, n);
    if ((choice & RMS_TF) != 0) {
        x = v16_div(v16_rounded(v16_mul(d, v16_set1(r->rate))),
                    v16_sqrt(v16_add(v, v16_set1(r->eps))));
    } else {
        x = v16_div(d, v16_add(v16_sqrt(v), v16_set1(r->eps)));
    }
    if ((choice & RMS_MOMENTUM) != 0) {
        x = v16_fma(v16_set1(r->beta1), load(at->in[4] + i, n), x);
        store(at->out[3] + i, x, n);
    }
    store(at->out[0] + i,
          (choice & RMS_TF) != 0 ? v16_sub(w, x) : v16_fma(v16_set1(-r->rate), x, w), n);
}

DEFINE_UPDATE(rms, rms_step(0, &r, &at, i, n))
DEFINE_UPDATE(rms_momentum, rms_step(RMS_MOMENTUM, &r, &at, i, n))
DEFINE_UPDATE(rms_tf, rms_step(RMS_TF, &r, &at, i, n))
DEFINE_UPDATE(rms_tf_momentum, rms_step(RMS_TF | RMS_MOMENTUM, &r, &at, i, n))

/* Vital signs: of in[1], and of all outputs that there are. */
static void rms_run(const sonde__op_call *call, int part, int parts)
{
    static update_fn *const updates[] = {[0] = rms_update,
                                         [RMS_MOMENTUM] = rms_momentum_update,
                                         [RMS_TF] = rms_tf_update,
                                         [RMS_TF | RMS_MOMENTUM] =
                                             rms_tf_momentum_update};
    const int64_t count = sonde__op_shape_count(&call->in[0].shape);
    const int choice = call->attrs->update.variant;
    const step_rule numbers = rms_rule(call->live, choice);

    run_blocks(call, stream_part(count, part, parts), updates[choice], &numbers,
               (choice & RMS_MOMENTUM) != 0 ? 4 : 2, sonde__op_part_bad(call, part));
}

SONDE__ISA_KERNEL(rmsprop, "flat", rms_accepts, (SONDE__PLAIN), (SONDE__PLAIN), rms_run,
                  .parts = stream_parts, .vitals_in = 1U << 1,
                  .vitals_out = 1U << 0 | 1U << 1 | 1U << 3)

/* --- Adagrad ------------------------------------------------------------------------ */

VEC_INLINE void adagrad_step(const step_rule *r, const step_arrays *at, int64_t i, int n)
{
    const v16 w = load(at->in[0] + i, n), g = load(at->in[1] + i, n);
    const v16 d = gradient_of(r, g, w);
    const v16 before = r->begins ? v16_set1(r->initial) : load(at->in[2] + i, n);
    const v16 v = v16_fma(d, d, before);
    const v16 below = v16_add(v16_sqrt(v), v16_set1(r->eps));

    store(at->out[1] + i, v, n);
    store(at->out[0] + i,
          v16_add(w, v16_div(v16_rounded(v16_mul(d, v16_set1(-r->rate))), below)), n);
}

DEFINE_UPDATE(adagrad, adagrad_step(&r, &at, i, n))

static void adagrad_run(const sonde__op_call *call, int part, int parts)
{
    const float *live = call->live;
    const float before = steps_before(call);
    const double slowed = 1.0 + (double)before * seven_places(live[1]);
    const step_rule numbers = {.scale = live[5],
                               .decay = live[3],
                               .rate = (float)((double)live[0] / slowed),
                               .eps = live[2],
                               .initial = live[4],
                               .begins = before == 0.0F};

    (void)parts;
    run_blocks(call, all_elements(call), adagrad_update, &numbers, 2,
               sonde__op_part_bad(call, part));
    put_steps(call, before + 1.0F);
}

SONDE__ISA_KERNEL(adagrad, "flat", stream_f32, (SONDE__PLAIN), (SONDE__PLAIN),
                  adagrad_run, .vitals_in = 1U << 1, .vitals_out = 3U)

/* --- LAMB --------------------------------------------------------------------------- */

static step_rule lamb_rule(const float *live, double step)
{
    const double beta1 = seven_places(live[1]), beta2 = seven_places(live[2]);
    const bool corrects = live[5] != 0.0F;

    return (step_rule){.scale = live[6],
                       .beta1 = (float)beta1,
                       .beta1_left = (float)(1.0 - beta1),
                       .beta2 = (float)beta2,
                       .beta2_left = (float)(1.0 - beta2),
                       .first = corrects ? (float)(1.0 / (1.0 - pow(beta1, step))) : 1.0F,
                       .root = corrects ? (float)sqrt(1.0 - pow(beta2, step)) : 1.0F,
                       .eps = live[3],
                       .decay = live[4]};
}

VEC_INLINE v16 lamb_direction(const step_rule *r, v16 w, v16 m, v16 v)
{
    const v16 below = v16_add(v16_div(v16_sqrt(v), v16_set1(r->root)), v16_set1(r->eps));

    return v16_fma(
        v16_set1(r->decay), w,
        v16_rounded(v16_div(v16_rounded(v16_mul(m, v16_set1(r->first))), below)));
}

typedef struct lamb_sums {
    v16 weight, size;
} lamb_sums;

/* Moves the moments; adds to the squares of w and of the direction. Lanes beyond n are 0:
 * so are their squares. */
VEC_INLINE void lamb_move(const step_rule *r, const step_arrays *at, int64_t i, int n,
                          lamb_sums *sums)
{
    const v16 w = load(at->in[0] + i, n), g = load(at->in[1] + i, n);
    const v16 d = v16_rounded(v16_mul(g, v16_set1(r->scale)));
    v16 m = load(at->in[2] + i, n), v = load(at->in[3] + i, n), x;

    m = v16_rounded(v16_mul(m, v16_set1(r->beta1)));
    v = second_moment(r, v, d);
    m = v16_fma(v16_set1(r->beta1_left), d, m);
    store(at->out[1] + i, m, n);
    store(at->out[2] + i, v, n);
    x = lamb_direction(r, w, m, v);
    if (n < 16 && r->eps == 0.0F) { /* 0 / 0 in lanes that are none */
        float kept[16] = {0.0F};

        v16_store_n(kept, x, n);
        x = v16_load(kept);
    }
    sums->weight = v16_fma(w, w, sums->weight);
    sums->size = v16_fma(x, x, sums->size);
}

/* The sums of squares of a block in double, where float32 overflows. */
static void lamb_sum_slowly(const step_rule *r, const step_arrays *at, int64_t count,
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

static void lamb_block(const step_rule *rule, const step_arrays *arrays, int64_t count,
                       double *weight, double *size)
{
    const step_rule r = *rule;
    const step_arrays at = *arrays;
    lamb_sums sums = {v16_zero(), v16_zero()};
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
}

VEC_INLINE void lamb_step(const step_rule *r, const step_arrays *at, int64_t i, int n)
{
    const v16 w = load(at->in[0] + i, n);
    const v16 x = lamb_direction(r, w, load(at->out[1] + i, n), load(at->out[2] + i, n));

    store(at->out[0] + i, v16_fma(v16_set1(-r->rate), x, w), n);
}

DEFINE_UPDATE(lamb, lamb_step(&r, &at, i, n))

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
    const float step = steps_before(call) + 1.0F;
    uint8_t *const bad = sonde__op_part_bad(call, part);
    step_rule numbers = lamb_rule(call->live, (double)step);
    double weight = 0.0, size = 0.0;

    (void)parts;
    begin_vitals(call);
    for (int64_t i = 0; i < count; i += SONDE__VITALS_BLOCK) {
        const int64_t n = SONDE_MIN(count - i, SONDE__VITALS_BLOCK);
        const step_arrays at = arrays_at(call, i);

        lamb_block(&numbers, &at, n, &weight, &size);
        take_vitals(call, &at, 1, 3, n, bad);
    }
    numbers.rate = lamb_rate(call->live, weight, size);
    for (int64_t i = 0; i < count; i += SONDE__VITALS_BLOCK) {
        const int64_t n = SONDE_MIN(count - i, SONDE__VITALS_BLOCK);
        const step_arrays at = arrays_at(call, i);

        lamb_update(&numbers, &at, n);
        take_block(call->out_vitals[0], at.out[0], n, only_norms(call->norms_out, 0));
    }
    put_steps(call, step);
}

SONDE__ISA_KERNEL(lamb, "flat", stream_f32, (SONDE__PLAIN), (SONDE__PLAIN), lamb_run,
                  .vitals_in = 1U << 1, .vitals_out = 7U)

/*
 * adam_kernels.c - the Adam and AdamW op, with vital signs of gradient, weight and
 * moments in the same pass.
 *
 * Equations: updates.c. Bias corrections are taken in double, everything an element in
 * float32 and in the order of torch's own kernels. One part only: the step count is an
 * operand in place, which a part must not advance while another still reads it.
 */
#include "base/isa.h"
#include "base/macros.h"
#include "nn/kernels/fast.h"
#include "nn/kernels/stream_kernels.h"
#include "nn/kernels/vec.h"

#include <math.h>

enum { ADAM_W = 0, ADAM_G = 1, ADAM_M = 2, ADAM_V = 3, ADAM_STEP = 4 };

typedef struct adam_rule {
    float scale, decay, keep; /* keep: what decoupled decay leaves of w */
    float beta1_left, beta2, beta2_left;
    float rate, root, eps;
    bool late; /* 1 - beta1 >= 0.5: torch.lerp then starts from the other end */
} adam_rule;

typedef struct adam_arrays {
    const float *w, *g, *m, *v;
    float *w_out, *m_out, *v_out;
    uint8_t *bad; /* as sgd_update.h has it */
} adam_arrays;

static double seven_places(float beta)
{
    return round((double)beta * 1e7) / 1e7;
}

static adam_rule adam_rule_of(const float *live, double step)
{
    const double beta1 = seven_places(live[1]), beta2 = seven_places(live[2]);
    const bool decoupled = live[5] != 0.0F;
    const adam_rule rule = {
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

    return rule;
}

/* seen: as of v16_see_bad; returns it. */
VEC_INLINE v16 adam_step(const bool whole, const bool look, const adam_rule *rule,
                         const adam_arrays *arrays, int64_t i, int n, v16 seen)
{
#define ADAM_LOAD(p) (whole ? v16_load((p) + i) : v16_load_n((p) + i, n))
#define ADAM_STORE(p, a) (whole ? v16_store((p) + i, a) : v16_store_n((p) + i, a, n))
    const v16 w = v16_rounded(v16_mul(ADAM_LOAD(arrays->w), v16_set1(rule->keep)));
    const v16 g = ADAM_LOAD(arrays->g);
    v16 d = v16_rounded(v16_mul(g, v16_set1(rule->scale)));
    v16 m = ADAM_LOAD(arrays->m), v = ADAM_LOAD(arrays->v), gap, below;

    if (rule->decay != 0.0F) {
        d = v16_fma(v16_set1(rule->decay), w, d);
    }
    gap = v16_sub(d, m);
    m = rule->late ? v16_fma(v16_set1(-rule->beta1_left), gap, d)
                   : v16_fma(v16_set1(rule->beta1_left), gap, m);
    v = v16_rounded(v16_mul(v, v16_set1(rule->beta2)));
    v = v16_fma(v16_rounded(v16_mul(d, v16_set1(rule->beta2_left))), d, v);
    ADAM_STORE(arrays->m_out, m);
    ADAM_STORE(arrays->v_out, v);
    below = v16_add(v16_div(v16_sqrt(v), v16_set1(rule->root)), v16_set1(rule->eps));
    m = v16_div(v16_rounded(v16_mul(m, v16_set1(rule->rate))), below);
    ADAM_STORE(arrays->w_out, v16_add(w, m));
#undef ADAM_LOAD
#undef ADAM_STORE
    return look ? v16_see_bad(seen, g) : seen;
}

VEC_INLINE void adam_loop(const bool look, const adam_rule *rule,
                          const adam_arrays *arrays, int64_t count)
{
    const adam_rule r = *rule;
    const adam_arrays copy = *arrays;
    v16 seen = v16_zero();
    int64_t i = 0;

    for (; i + 16 <= count; i += 16) {
        seen = adam_step(true, look, &r, &copy, i, 16, seen);
    }
    if (i < count) {
        seen = adam_step(false, look, &r, &copy, i, (int)(count - i), seen);
    }
    if (look && v16_any(seen)) {
        *copy.bad = 1;
    }
}

static void adam_update(const adam_rule *rule, const adam_arrays *arrays, int64_t count)
{
    if (arrays->bad != NULL) {
        adam_loop(true, rule, arrays, count);
    } else {
        adam_loop(false, rule, arrays, count);
    }
}

/* Vital signs: of in[1] (g), out[0] (w), out[1] (m) and out[2] (v). */
static void adam_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t count = sonde__op_shape_count(&call->in[ADAM_W].shape);
    const adam_arrays all = {call->in[ADAM_W].data, call->in[ADAM_G].data,
                             call->in[ADAM_M].data, call->in[ADAM_V].data,
                             call->out[0].data,     call->out[1].data,
                             call->out[2].data,     sonde__op_part_bad(call, part)};
    const float step = *(const float *)call->in[ADAM_STEP].data + 1.0F;
    const adam_rule rule = adam_rule_of(call->live, (double)step);
    sonde_vitals *const vitals[] = {call->in_vitals[ADAM_G], call->out_vitals[0],
                                    call->out_vitals[1], call->out_vitals[2]};

    const unsigned small[] = {call->norms_in >> ADAM_G, call->norms_out,
                              call->norms_out >> 1U, call->norms_out >> 2U};

    (void)parts;
    for (int i = 0; i < 4; i++) {
        init_signs(vitals[i], (small[i] & 1U) != 0);
    }
    for (int64_t start = 0; start < count; start += SONDE__VITALS_BLOCK) {
        const int64_t n = SONDE_MIN(count - start, SONDE__VITALS_BLOCK);
        const adam_arrays arrays = {
            all.w + start,     all.g + start,     all.m + start,     all.v + start,
            all.w_out + start, all.m_out + start, all.v_out + start, all.bad};
        const float *const streams[] = {arrays.g, arrays.w_out, arrays.m_out,
                                        arrays.v_out};

        adam_update(&rule, &arrays, n);
        for (int i = 0; i < 4; i++) {
            take_block(vitals[i], streams[i], n, (small[i] & 1U) != 0);
        }
    }
    *(float *)call->out[3].data = step;
}

const sonde__op_kernel ISA(sonde__kernel_adam) = {
    .name = "flat",
    .accepts = stream_f32,
    .vitals_in = 1U << ADAM_G,
    .vitals_out = 1U << 0 | 1U << 1 | 1U << 2,
    .run = adam_run,
};

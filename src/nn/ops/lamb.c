/*
 * lamb.c - LAMB (You et al. 2020), as PopTorch has it.
 *
 *   t = t + 1, d = scale g
 *   m = beta1 m + (1 - beta1) d,  v = beta2 v + (1 - beta2) d^2
 *   x = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + decay w
 *   trust = min(|w|, max_weight_norm) / |x|, or 1 if one of the three is 0
 *   w = w - lr trust x
 *
 * with the norms of the whole tensor, and without the divisors 1 - beta^t if bias
 * correction is off.
 *
 * in: w, g, m, v, step (); out: w, m, v, step, in place.
 * live: lr, beta1, beta2, eps, weight decay, bias correction (0, 1), gradient scale,
 * max_weight_norm.
 */
#include "nn/ops/common.h"
#include "nn/kernels/fast.h"

#include <math.h>

enum { LR, BETA1, BETA2, EPS, DECAY, CORRECTS, SCALE, MOST };
enum { W = 0, G = 1, M = 2, V = 3, STEP = 4 };

static sonde_err lamb_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                            sonde_diag *diag)
{
    const sonde__op_shape *w = &call->in[W].shape;
    const sonde__op_shape step = {.dtype = SONDE_F32, .rank = 0};

    (void)attrs;
    SONDE__TRY(sonde__op_expect_float(w, "weight", diag));
    for (int i = G; i <= V; i++) {
        SONDE__TRY(
            sonde__op_expect_shape(&call->in[i].shape, w, "gradient or moment", diag));
    }
    SONDE__TRY(sonde__op_expect_shape(&call->in[STEP].shape, &step, "step", diag));
    call->out[0].shape = call->out[1].shape = call->out[2].shape = *w;
    call->out[3].shape = step;
    return SONDE_OK;
}

/* x of element i, from the moments as they are stored. */
static double direction(const sonde__op_call *call, int64_t i, double first,
                        double second)
{
    const float *live = call->live;

    return sonde__op_load(&call->out[1], i) / first /
               (sqrt(sonde__op_load(&call->out[2], i) / second) + (double)live[EPS]) +
           (double)live[DECAY] * sonde__op_load(&call->in[W], i);
}

static void move_moments(const sonde__op_call *call, uint8_t *bad)
{
    const float *live = call->live;
    const double beta1 = sonde__op_decimal(live[BETA1]),
                 beta2 = sonde__op_decimal(live[BETA2]);
    const int64_t count = sonde__op_shape_count(&call->in[W].shape);

    for (int64_t i = 0; i < count; i++) {
        const double g = sonde__op_load(&call->in[G], i);
        const double d = (double)live[SCALE] * g;

        if (bad != NULL && !isfinite(g)) {
            *bad = 1;
        }
        sonde__op_store(&call->out[1], i,
                        beta1 * sonde__op_load(&call->in[M], i) + (1.0 - beta1) * d);
        sonde__op_store(&call->out[2], i,
                        beta2 * sonde__op_load(&call->in[V], i) + (1.0 - beta2) * d * d);
    }
}

static void lamb_run(const sonde__op_call *call, int part, int parts)
{
    const float *live = call->live;
    const double step = sonde__op_load(&call->in[STEP], 0) + 1.0;
    const bool corrects = live[CORRECTS] != 0.0F;
    const double first = corrects ? 1.0 - pow(sonde__op_decimal(live[BETA1]), step) : 1.0;
    const double second =
        corrects ? 1.0 - pow(sonde__op_decimal(live[BETA2]), step) : 1.0;
    const int64_t count = sonde__op_shape_count(&call->in[W].shape);
    double weight = 0.0, size = 0.0, trust = 1.0;

    (void)parts;
    move_moments(call, sonde__op_part_bad(call, part));
    for (int64_t i = 0; i < count; i++) {
        const double w = sonde__op_load(&call->in[W], i);
        const double x = direction(call, i, first, second);

        weight += w * w;
        size += x * x;
    }
    weight = sqrt(weight);
    weight = weight > (double)live[MOST] ? (double)live[MOST] : weight;
    if (weight != 0.0 && size != 0.0) {
        trust = weight / sqrt(size);
    }
    for (int64_t i = 0; i < count; i++) {
        sonde__op_store(&call->out[0], i,
                        sonde__op_load(&call->in[W], i) -
                            (double)live[LR] * trust * direction(call, i, first, second));
    }
    sonde__op_store(&call->out[3], 0, step);
}

const sonde__op_kind sonde__op_lamb = {
    .name = "Lamb",
    SONDE__OPERANDS(update, 5, 5, 4),
    .out_names = {NULL, "FirstMoment", "SecondMoment", "Step"},
    .infer = lamb_infer,
    SONDE__REFERENCE(lamb_run),
    .fast = sonde__kernel_lamb_fast,
    .alias = {W + 1, M + 1, V + 1, STEP + 1},
};

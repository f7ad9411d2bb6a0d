/*
 * adam.c - Adam (Kingma and Ba 2015) and AdamW (Loshchilov and Hutter 2019), as
 * torch.optim.Adam and torch.optim.AdamW without amsgrad.
 *
 *   t = t + 1
 *   d = scale g                        AdamW: w = w - lr decay w; Adam: d = d + decay w
 *   m = m + (1 - beta1) (d - m)        the order of torch.lerp: an infinite m turns NaN
 *   v = beta2 v + (1 - beta2) d^2
 *   w = w - lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
 *
 * The source is the algorithm boxes of PyTorch's documentation. The bias corrections are
 * taken in double, as PyTorch's for one tensor at a time.
 *
 * live is float, and 1 - 0.999f is off by 1.3e-5 of itself; so betas are read as the
 * decimal fraction of seven places that they came from.
 *
 * in: w, g, m, v, step (); out: w, m, v, step, in place. step counts updates as float32,
 * as PyTorch's state does. live: lr, beta1, beta2, eps, weight decay, decoupled (0 Adam,
 * 1 AdamW), gradient scale. attrs: none (eps is live).
 */
#include "nn/ops/common.h"
#include "nn/kernels/fast.h"

#include <math.h>

enum { LR, BETA1, BETA2, EPS, DECAY, DECOUPLED, SCALE };
enum { W = 0, G = 1, M = 2, V = 3, STEP = 4 };
enum { OUT_W = 0, OUT_M = 1, OUT_V = 2, OUT_STEP = 3 };

static sonde_err adam_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                            sonde_diag *diag)
{
    const sonde__op_shape *w = &call->in[W].shape;
    const sonde__op_shape step = {.dtype = SONDE_F32, .rank = 0};

    (void)attrs;
    SONDE__TRY(sonde__op_expect_float(w, "weight", diag));
    SONDE__TRY(sonde__op_expect_shape(&call->in[G].shape, w, "gradient", diag));
    SONDE__TRY(sonde__op_expect_shape(&call->in[M].shape, w, "first moment", diag));
    SONDE__TRY(sonde__op_expect_shape(&call->in[V].shape, w, "second moment", diag));
    SONDE__TRY(sonde__op_expect_shape(&call->in[STEP].shape, &step, "step", diag));
    call->out[OUT_W].shape = call->out[OUT_M].shape = call->out[OUT_V].shape = *w;
    call->out[OUT_STEP].shape = step;
    return SONDE_OK;
}

/* torch.lerp's two branches: each is exact at its end. */
static double lerp(double source, double target, double weight)
{
    return weight < 0.5 ? source + weight * (target - source)
                        : target - (target - source) * (1.0 - weight);
}

static void adam_run(const sonde__op_call *call, int part, int parts)
{
    const float *live = call->live;
    const double beta1 = sonde__op_decimal(live[BETA1]),
                 beta2 = sonde__op_decimal(live[BETA2]);
    const double lr = (double)live[LR], decay = (double)live[DECAY];
    const double step = sonde__op_load(&call->in[STEP], 0) + 1.0;
    const double rate = lr / (1.0 - pow(beta1, step));
    const double root = sqrt(1.0 - pow(beta2, step));
    const bool decoupled = live[DECOUPLED] != 0.0f;
    const int64_t count = sonde__op_shape_count(&call->in[W].shape);
    uint8_t *const bad = sonde__op_part_bad(call, part);

    (void)parts;
    for (int64_t i = 0; i < count; i++) {
        const double g = sonde__op_load(&call->in[G], i);
        double w = sonde__op_load(&call->in[W], i);
        double d = (double)live[SCALE] * g;
        double m = 0.0, v = 0.0;

        if (bad != NULL && !isfinite(g)) {
            *bad = 1;
        }

        if (live[DECAY] != 0.0f && decoupled) {
            w *= 1.0 - lr * decay;
        } else if (live[DECAY] != 0.0f) {
            d += decay * w;
        }
        m = lerp(sonde__op_load(&call->in[M], i), d, 1.0 - beta1);
        v = beta2 * sonde__op_load(&call->in[V], i) + (1.0 - beta2) * d * d;
        sonde__op_store(&call->out[OUT_M], i, m);
        sonde__op_store(&call->out[OUT_V], i, v);
        sonde__op_store(&call->out[OUT_W], i,
                        w - rate * m / (sqrt(v) / root + (double)live[EPS]));
    }
    sonde__op_store(&call->out[OUT_STEP], 0, step);
}

const sonde__op_kind sonde__op_adam = {
    .name = "Adam",
    SONDE__OPERANDS(update, 5, 5, 4),
    .out_names = {NULL, "FirstMoment", "SecondMoment", "Step"},
    .infer = adam_infer,
    SONDE__REFERENCE(adam_run),
    .fast = sonde__kernel_adam_fast,
    .alias = {W + 1, M + 1, V + 1, STEP + 1},
};

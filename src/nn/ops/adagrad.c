/*
 * adagrad.c - Adagrad (Duchi et al. 2011), as torch.optim.Adagrad.
 *
 *   t = t + 1
 *   d = scale g + decay w
 *   v = v + d^2, where v begins at the initial accumulator
 *   w = w - lr / (1 + (t - 1) lr_decay) d / (sqrt(v) + eps)
 *
 * in: w, g, v, step (); out: w, v, step, in place.
 * live: lr, lr_decay, eps, weight decay, initial accumulator, gradient scale.
 */
#include "nn/ops/common.h"
#include "nn/kernels/fast.h"

#include <math.h>

enum { LR, LR_DECAY, EPS, DECAY, INITIAL, SCALE };
enum { W = 0, G = 1, V = 2, STEP = 3 };

static sonde_err adagrad_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                               sonde_diag *diag)
{
    const sonde__op_shape *w = &call->in[W].shape;
    const sonde__op_shape step = {.dtype = SONDE_F32, .rank = 0};

    (void)attrs;
    SONDE__TRY(sonde__op_expect_float(w, "weight", diag));
    SONDE__TRY(sonde__op_expect_shape(&call->in[G].shape, w, "gradient", diag));
    SONDE__TRY(sonde__op_expect_shape(&call->in[V].shape, w, "sum of squares", diag));
    SONDE__TRY(sonde__op_expect_shape(&call->in[STEP].shape, &step, "step", diag));
    call->out[0].shape = call->out[1].shape = *w;
    call->out[2].shape = step;
    return SONDE_OK;
}

static void adagrad_run(const sonde__op_call *call, int part, int parts)
{
    const float *live = call->live;
    const double before = sonde__op_load(&call->in[STEP], 0);
    const double rate =
        (double)live[LR] / (1.0 + before * sonde__op_decimal(live[LR_DECAY]));
    const int64_t count = sonde__op_shape_count(&call->in[W].shape);
    uint8_t *const bad = sonde__op_part_bad(call, part);

    (void)parts;
    for (int64_t i = 0; i < count; i++) {
        const double g = sonde__op_load(&call->in[G], i),
                     w = sonde__op_load(&call->in[W], i);
        double d = (double)live[SCALE] * g, v = 0.0;

        if (bad != NULL && !isfinite(g)) {
            *bad = 1;
        }
        if (live[DECAY] != 0.0F) {
            d += (double)live[DECAY] * w;
        }
        v = (before == 0.0 ? (double)live[INITIAL] : sonde__op_load(&call->in[V], i)) +
            d * d;
        sonde__op_store(&call->out[1], i, v);
        sonde__op_store(&call->out[0], i, w - rate * d / (sqrt(v) + (double)live[EPS]));
    }
    sonde__op_store(&call->out[2], 0, before + 1.0);
}

const sonde__op_kind sonde__op_adagrad = {
    .name = "Adagrad",
    SONDE__OPERANDS(update, 4, 4, 3),
    .out_names = {NULL, "SquareSum", "Step"},
    .infer = adagrad_infer,
    SONDE__REFERENCE(adagrad_run),
    .fast = sonde__kernel_adagrad_fast,
    .alias = {W + 1, V + 1, STEP + 1},
};

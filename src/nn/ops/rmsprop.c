/*
 * rmsprop.c - RMSprop (Hinton 2012), as torch.optim.RMSprop and as TensorFlow has it.
 *
 *   d = scale g + decay w
 *   v = alpha v + (1 - alpha) d^2
 *   m = alpha m + (1 - alpha) d, centred; otherwise m = 0
 *   x = d / (sqrt(v - m^2) + eps), TensorFlow: d / sqrt(v - m^2 + eps)
 *   b = momentum b + x, w = w - lr b; TensorFlow: b = momentum b + lr x, w = w - b
 *
 * Without momentum b is x, or lr x. v begins at 0, TensorFlow's at 1.
 *
 * in: w, g, v, m?, b?; out: w, v, m, b, in place.
 * live: lr, alpha, eps, weight decay, momentum, gradient scale, first step (0, 1).
 * attrs: choice, of the bits CENTRED, MOMENTUM and TF.
 */
#include "nn/ops/common.h"
#include "nn/kernels/fast.h"

#include <math.h>

enum { LR, ALPHA, EPS, DECAY, MU, SCALE, FIRST };
enum { W = 0, G = 1, V = 2, MEAN = 3, BUFFER = 4 };
enum { CENTRED = 1, MOMENTUM = 2, TF = 4 };

static sonde_err rmsprop_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                               sonde_diag *diag)
{
    const sonde__op_shape *w = &call->in[W].shape;
    const sonde__op_shape none = {.dtype = w->dtype, .rank = 1, .dim = {0}};
    const bool has[] = {true, true, true, (attrs->update.variant & CENTRED) != 0,
                        (attrs->update.variant & MOMENTUM) != 0};

    SONDE__TRY(sonde__op_expect_float(w, "weight", diag));
    for (int i = G; i <= BUFFER; i++) {
        if (has[i] && i >= call->in_count) {
            return sonde__fail(diag, SONDE_EINVAL, NULL, "a state for each flag",
                               "%d operands", call->in_count);
        }
        if (has[i]) {
            SONDE__TRY(
                sonde__op_expect_shape(&call->in[i].shape, w, "gradient or state", diag));
        }
    }
    call->out[0].shape = call->out[1].shape = *w;
    call->out[2].shape = has[MEAN] ? *w : none;
    call->out[3].shape = has[BUFFER] ? *w : none;
    return SONDE_OK;
}

/* What the momentum buffer takes, of element i. */
static double step_of(const sonde__op_call *call, int64_t i, double d)
{
    const float *live = call->live;
    const int choice = call->attrs->update.variant;
    const double alpha = sonde__op_decimal(live[ALPHA]), eps = (double)live[EPS];
    const bool ones = (choice & TF) != 0 && live[FIRST] != 0.0F;
    const double v =
        alpha * (ones ? 1.0 : sonde__op_load(&call->in[V], i)) + (1.0 - alpha) * d * d;
    double square = v;

    sonde__op_store(&call->out[1], i, v);
    if ((choice & CENTRED) != 0) {
        const double before = sonde__op_load(&call->in[MEAN], i);
        /* the order of torch.lerp: an infinite m turns NaN */
        const double m = alpha > 0.5 ? before + (1.0 - alpha) * (d - before)
                                     : d - (d - before) * alpha;

        sonde__op_store(&call->out[2], i, m);
        square -= m * m;
    }
    return (choice & TF) != 0 ? (double)live[LR] * d / sqrt(square + eps)
                              : d / (sqrt(square) + eps);
}

static void rmsprop_run(const sonde__op_call *call, int part, int parts)
{
    const float *live = call->live;
    const int choice = call->attrs->update.variant;
    const double rate = (choice & TF) != 0 ? 1.0 : (double)live[LR];
    const int64_t count = sonde__op_shape_count(&call->in[W].shape);
    uint8_t *const bad = sonde__op_part_bad(call, part);

    (void)parts;
    for (int64_t i = 0; i < count; i++) {
        const double g = sonde__op_load(&call->in[G], i),
                     w = sonde__op_load(&call->in[W], i);
        double d = (double)live[SCALE] * g, step = 0.0;

        if (bad != NULL && !isfinite(g)) {
            *bad = 1;
        }
        if (live[DECAY] != 0.0F) {
            d += (double)live[DECAY] * w;
        }
        step = step_of(call, i, d);
        if ((choice & MOMENTUM) != 0) {
            step += (double)live[MU] * sonde__op_load(&call->in[BUFFER], i);
            sonde__op_store(&call->out[3], i, step);
        }
        sonde__op_store(&call->out[0], i, w - rate * step);
    }
}

const sonde__op_kind sonde__op_rmsprop = {
    .name = "RmsProp",
    SONDE__OPERANDS(update, 3, 5, 4),
    .out_names = {NULL, "SquareMean", "Mean", "Momentum"},
    .infer = rmsprop_infer,
    SONDE__REFERENCE(rmsprop_run),
    .fast = sonde__kernel_rmsprop_fast,
    .alias = {W + 1, V + 1, MEAN + 1, BUFFER + 1},
};

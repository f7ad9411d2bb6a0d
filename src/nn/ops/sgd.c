/*
 * sgd.c - stochastic gradient descent with momentum, as torch.optim.SGD.
 *
 *   d = scale g + decay w                                 (decay w only if decay != 0)
 *   v = first step ? d : momentum v + (1 - dampening) d   (only if momentum != 0)
 *   d = nesterov ? d + momentum v : v                     (likewise)
 *   w = w - lr d
 *
 * The source is the algorithm box of PyTorch's documentation of SGD. Terms whose factor
 * is 0 are left out, not multiplied by 0: they must not turn an Inf into NaN. What v
 * holds before the first step is not read.
 *
 * in: w, g, v? out: w, v, both in place; without v there is no momentum and the second
 * output is empty.
 * live: lr, momentum, dampening, weight decay, nesterov (0, 1), gradient scale, first
 * step (0, 1). attrs: none.
 */
#include "nn/ops/common.h"
#include "nn/kernels/fast.h"

#include <math.h>

enum { LR, MOMENTUM, DAMPENING, DECAY, NESTEROV, SCALE, FIRST };
enum { W = 0, G = 1, V = 2 };

static sonde_err sgd_infer(sonde__op_call *call, sonde__op_attrs *attrs, sonde_diag *diag)
{
    const sonde__op_shape *w = &call->in[W].shape;

    (void)attrs;
    SONDE__TRY(sonde__op_expect_float(w, "weight", diag));
    SONDE__TRY(sonde__op_expect_shape(&call->in[G].shape, w, "gradient", diag));
    if (call->in_count > V) {
        SONDE__TRY(
            sonde__op_expect_shape(&call->in[V].shape, w, "momentum buffer", diag));
    }
    call->out[0].shape = *w;
    call->out[1].shape =
        call->in_count > V ? *w
                           : (sonde__op_shape){.dtype = w->dtype, .rank = 1, .dim = {0}};
    return SONDE_OK;
}

static void sgd_run(const sonde__op_call *call, int part, int parts)
{
    const float *live = call->live;
    const double lr = (double)live[LR], momentum = (double)live[MOMENTUM];
    const double damping = 1.0 - (double)live[DAMPENING], decay = (double)live[DECAY];
    const bool has_v = sonde__op_has_in(call, V) && live[MOMENTUM] != 0.0f;
    const int64_t count = sonde__op_shape_count(&call->in[W].shape);
    uint8_t *const bad = sonde__op_part_bad(call, part);

    (void)parts;
    for (int64_t i = 0; i < count; i++) {
        const double w = sonde__op_load(&call->in[W], i);
        const double g = sonde__op_load(&call->in[G], i);
        double d = (double)live[SCALE] * g;

        if (bad != NULL && !isfinite(g)) {
            *bad = 1;
        }

        if (live[DECAY] != 0.0f) {
            d += decay * w;
        }
        if (has_v) {
            const double v =
                live[FIRST] != 0.0f
                    ? d
                    : momentum * sonde__op_load(&call->in[V], i) + damping * d;

            sonde__op_store(&call->out[1], i, v);
            d = live[NESTEROV] != 0.0f ? d + momentum * v : v;
        }
        sonde__op_store(&call->out[0], i, w - lr * d);
    }
}

const sonde__op_kind sonde__op_sgd = {
    .name = "Sgd",
    SONDE__OPERANDS(update, 2, 3, 2),
    .out_names = {NULL, "Velocity"},
    .infer = sgd_infer,
    SONDE__REFERENCE(sgd_run),
    .fast = sonde__kernel_sgd_fast,
    .alias = {W + 1, V + 1},
};

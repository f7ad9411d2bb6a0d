/*
 * clip_gradients.c - gradients clipped before an update, as torch.nn.utils.clip_grad_value_ and
 * clip_grad_norm_.
 *
 *   ClipValue      y = g, at least -v / scale and at most v / scale
 *   GradientNorm   y = sqrt(before^2 + sum (scale g)^2): over a chain of them the norm of
 *                  all gradients
 *   ClipNorm       y = g min(1, most / (norm + 1e-6))
 *
 * scale is that of the update, which is the mean over micro-batches: the limits hold for
 * the gradient that the update applies. NaN stays NaN; a norm of NaN makes all gradients
 * NaN.
 *
 * live: v in SONDE__LIVE_CLIP_VALUE, most in SONDE__LIVE_CLIP_NORM, the scale in
 * SONDE__LIVE_SCALE.
 */
#include "nn/ops/common.h"

#include <math.h>

static double scale_of(const sonde__op_call *call)
{
    return (double)call->live[SONDE__LIVE_SCALE];
}

static sonde_err clip_value_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                  sonde_diag *diag)
{
    (void)attrs;
    call->out[0].shape = call->in[0].shape;
    return sonde__op_expect_float(&call->in[0].shape, "gradient", diag);
}

static void clip_value_run(const sonde__op_call *call, int part, int parts)
{
    const double most = (double)call->live[SONDE__LIVE_CLIP_VALUE] / scale_of(call);
    const int64_t count = sonde__op_shape_count(&call->in[0].shape);

    (void)part, (void)parts;
    for (int64_t i = 0; i < count; i++) {
        const double g = sonde__op_load(&call->in[0], i);

        sonde__op_store(&call->out[0], i, g > most ? most : g < -most ? -most : g);
    }
}

const sonde__op_kind sonde__op_clip_value = {
    .name = "ClipValue",
    SONDE__OPERANDS(none, 1, 1, 1),
    .infer = clip_value_infer,
    SONDE__REFERENCE(clip_value_run),
};

static sonde_err gradient_norm_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                     sonde_diag *diag)
{
    (void)attrs;
    call->out[0].shape = (sonde__op_shape){.dtype = call->in[0].shape.dtype, .rank = 0};
    SONDE__TRY(sonde__op_expect_float(&call->in[0].shape, "gradient", diag));
    return call->in_count > 1 ? sonde__op_expect_shape(&call->in[1].shape,
                                                       &call->out[0].shape, "norm", diag)
                              : SONDE_OK;
}

static void gradient_norm_run(const sonde__op_call *call, int part, int parts)
{
    const double before =
        sonde__op_has_in(call, 1) ? sonde__op_load(&call->in[1], 0) : 0.0;
    const int64_t count = sonde__op_shape_count(&call->in[0].shape);
    double sum = 0.0;

    (void)part, (void)parts;
    for (int64_t i = 0; i < count; i++) {
        const double g = scale_of(call) * sonde__op_load(&call->in[0], i);

        sum += g * g;
    }
    sonde__op_store(&call->out[0], 0, sqrt(before * before + sum));
}

const sonde__op_kind sonde__op_gradient_norm = {
    .name = "GradientNorm",
    SONDE__OPERANDS(none, 1, 2, 1),
    .infer = gradient_norm_infer,
    SONDE__REFERENCE(gradient_norm_run),
};

static sonde_err clip_norm_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                 sonde_diag *diag)
{
    const sonde__op_shape norm = {.dtype = call->in[0].shape.dtype, .rank = 0};

    (void)attrs;
    call->out[0].shape = call->in[0].shape;
    SONDE__TRY(sonde__op_expect_float(&call->in[0].shape, "gradient", diag));
    return sonde__op_expect_shape(&call->in[1].shape, &norm, "norm", diag);
}

static void clip_norm_run(const sonde__op_call *call, int part, int parts)
{
    const double share = (double)call->live[SONDE__LIVE_CLIP_NORM] /
                         (sonde__op_load(&call->in[1], 0) + 1e-6);
    const double factor = share > 1.0 ? 1.0 : share;
    const int64_t count = sonde__op_shape_count(&call->in[0].shape);

    (void)part, (void)parts;
    for (int64_t i = 0; i < count; i++) {
        sonde__op_store(&call->out[0], i, factor * sonde__op_load(&call->in[0], i));
    }
}

const sonde__op_kind sonde__op_clip_norm = {
    .name = "ClipNorm",
    SONDE__OPERANDS(none, 2, 2, 1),
    .infer = clip_norm_infer,
    SONDE__REFERENCE(clip_norm_run),
};

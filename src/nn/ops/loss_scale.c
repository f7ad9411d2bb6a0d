/*
 * loss_scale.c - automatic loss scaling, by the rule of torch.amp.GradScaler.
 *
 *   FoundInf    y = 1 if an element of g is NaN or infinite, or if before is 1; else 0
 *   LossScale   found = 1: scale = backoff scale,  tracker = 0,  skipped = skipped + 1
 *               found = 0: tracker = tracker + 1;  at `interval` successes in a row
 *                          scale = growth scale, unless that is infinite, tracker = 0
 *
 * The source is at::native::_amp_update_scale_ (ATen/native/cuda/AmpKernels.cu, also of
 * the CPU) and its use in torch/amp/grad_scaler.py. A session leaves out the updates of a
 * step whose found is 1, as GradScaler.step does; skipped counts them.
 *
 * All are numbers of shape (). LossScale: in: found, scale, tracker, skipped; out: the
 * last three, in place. attrs: number (growth, backoff), groups (interval).
 */
#include "nn/ops/common.h"

#include <math.h>
#include <string.h>

enum { FOUND = 0, SCALE = 1, TRACKER = 2, SKIPPED = 3 };

static sonde_err found_inf_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                 sonde_diag *diag)
{
    (void)attrs;
    call->out[0].shape = (sonde__op_shape){.dtype = call->in[0].shape.dtype, .rank = 0};
    SONDE__TRY(sonde__op_expect_float(&call->in[0].shape, "gradient", diag));
    return call->in_count > 1 ? sonde__op_expect_shape(&call->in[1].shape,
                                                       &call->out[0].shape, "found", diag)
                              : SONDE_OK;
}

/* A float whose exponent has all bits set is NaN or infinite. */
static bool any_bad(const float *values, int64_t count)
{
    const uint32_t exponent = UINT32_C(0x7f800000);
    uint32_t bad = 0;

    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = 0;

        memcpy(&bits, &values[i], sizeof bits);
        bad |= (bits & exponent) == exponent ? 1U : 0U;
    }
    return bad != 0;
}

static void found_inf_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t count = sonde__op_shape_count(&call->in[0].shape);
    bool bad = sonde__op_has_in(call, 1) && sonde__op_load(&call->in[1], 0) != 0.0;

    (void)part, (void)parts;
    if (call->in[0].shape.dtype == SONDE_F32) {
        bad = bad || any_bad(call->in[0].data, count);
    } else {
        for (int64_t i = 0; i < count && !bad; i++) {
            bad = !isfinite(sonde__op_load(&call->in[0], i));
        }
    }
    sonde__op_store(&call->out[0], 0, bad ? 1.0 : 0.0);
}

const sonde__op_kind sonde__op_found_inf = {
    .name = "FoundInf",
    SONDE__OPERANDS(none, 1, 2, 1),
    .infer = found_inf_infer,
    SONDE__REFERENCE(found_inf_run),
};

static sonde_err loss_scale_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                  sonde_diag *diag)
{
    const sonde__op_shape number = {.dtype = call->in[0].shape.dtype, .rank = 0};

    (void)attrs;
    SONDE__TRY(sonde__op_expect_float(&number, "found", diag));
    for (int i = 0; i < call->in_count; i++) {
        SONDE__TRY(
            sonde__op_expect_shape(&call->in[i].shape, &number, "loss scale", diag));
    }
    for (int i = 0; i < 3; i++) {
        call->out[i].shape = number;
    }
    return SONDE_OK;
}

static void loss_scale_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__op_attrs *attrs = call->attrs;
    const bool found = sonde__op_load(&call->in[FOUND], 0) != 0.0;
    const double skipped = sonde__op_load(&call->in[SKIPPED], 0);
    double scale = sonde__op_load(&call->in[SCALE], 0);
    double tracker = sonde__op_load(&call->in[TRACKER], 0) + 1.0;

    (void)part, (void)parts;
    if (found) {
        scale *= (double)attrs->scaler.backoff;
        tracker = 0.0;
    } else if (tracker >= (double)attrs->scaler.interval) {
        const float grown = (float)(scale * (double)attrs->scaler.growth);

        scale = isfinite(grown) ? (double)grown : scale;
        tracker = 0.0;
    }
    sonde__op_store(&call->out[0], 0, scale);
    sonde__op_store(&call->out[1], 0, tracker);
    sonde__op_store(&call->out[2], 0, found ? skipped + 1.0 : skipped);
}

const sonde__op_kind sonde__op_loss_scale = {
    .name = "LossScale",
    SONDE__OPERANDS(scaler, 4, 4, 3),
    .out_names = {NULL, "GrowthTracker", "SkippedSteps"},
    .infer = loss_scale_infer,
    SONDE__REFERENCE(loss_scale_run),
    .alias = {SCALE + 1, TRACKER + 1, SKIPPED + 1},
};

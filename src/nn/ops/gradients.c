/*
 * gradients.c - what happens to gradients before an update: sums, limits, the loss scale.
 *
 * The sum of a value over the replicas of a session, in their order:
 * ((x0 + x1) + x2) + ... An element's sum does not depend on how many threads share the
 * work.
 *
 *   attrs.replicas.count   the number of replicas
 *   call.replicas  where each has the value; NULL: in[0] alone
 *
 * The sum of a value over the ranks of a training, in their order:
 * ((x0 + x1) + x2) + ..., the same bits in every rank.
 *
 * The executor adds the values of all such ops of a step at once, because a message costs
 * more than its bytes; the op takes its part.
 *
 *   call.summed   the sum; NULL: in[0] alone
 *
 * Gradients clipped before an update, as torch.nn.utils.clip_grad_value_ and
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
 *
 * Automatic loss scaling, by the rule of torch.amp.GradScaler.
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
 * last three, in place.
 *
 * attrs: replicas, scaler.
 */
#include "nn/ops/common.h"
#include "base/fail.h"
#include "nn/kernels/fast.h"

#include <string.h>
#include <math.h>

/* === replica sum ==================================================================== */

static sonde_err replica_sum_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                   sonde_diag *diag)
{
    (void)attrs;
    SONDE__TRY(sonde__op_expect_dtype(&call->in[0].shape, SONDE_F32, "gradient", diag));
    call->out[0].shape = call->in[0].shape;
    return SONDE_OK;
}

static void replica_sum_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t count = sonde__op_shape_count(&call->out[0].shape);
    const float *first = call->replicas != NULL ? call->replicas[0] : call->in[0].data;
    float *sum = call->out[0].data;

    (void)part, (void)parts;
    for (int64_t i = 0; i < count; i++) {
        float total = first[i];

        for (int64_t r = 1; call->replicas != NULL && r < call->attrs->replicas.count;
             r++) {
            const float *other = call->replicas[r];

            total += other[i];
        }
        sum[i] = total;
    }
}

SONDE__OP(replica_sum, "ReplicaSum", replicas, 1, 1, 1, .infer = replica_sum_infer,
          SONDE__REFERENCE(replica_sum_run), .fast = sonde__kernel_replica_sum_fast);

/* === rank sum ======================================================================= */

static sonde_err rank_sum_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                sonde_diag *diag)
{
    (void)attrs;
    SONDE__TRY(sonde__op_expect_dtype(&call->in[0].shape, SONDE_F32, "gradient", diag));
    call->out[0].shape = call->in[0].shape;
    return SONDE_OK;
}

static void rank_sum_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t count = sonde__op_shape_count(&call->in[0].shape);

    (void)part, (void)parts;
    memcpy(call->out[0].data, call->summed != NULL ? call->summed : call->in[0].data,
           (size_t)count * sizeof(float));
}

SONDE__OP(rank_sum, "RankSum", none, 1, 1, 1, .infer = rank_sum_infer,
          SONDE__REFERENCE(rank_sum_run));

/* === clip gradients ================================================================= */

static double scale_of(const sonde__op_call *call)
{
    return (double)call->live[SONDE__LIVE_SCALE];
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

SONDE__OP(clip_value, "ClipValue", none, 1, 1, 1, .infer = sonde__op_infer_alike,
          SONDE__REFERENCE(clip_value_run));

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

SONDE__OP(gradient_norm, "GradientNorm", none, 1, 2, 1, .infer = gradient_norm_infer,
          SONDE__REFERENCE(gradient_norm_run));

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

SONDE__OP(clip_norm, "ClipNorm", none, 2, 2, 1, .infer = clip_norm_infer,
          SONDE__REFERENCE(clip_norm_run));

/* === loss scale ===================================================================== */

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

SONDE__OP(found_inf, "FoundInf", none, 1, 2, 1, .infer = found_inf_infer,
          SONDE__REFERENCE(found_inf_run));

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

SONDE__OP(loss_scale, "LossScale", scaler, 4, 4, 3,
          .out_names = {NULL, "GrowthTracker", "SkippedSteps"}, .infer = loss_scale_infer,
          SONDE__REFERENCE(loss_scale_run),
          .alias = {SCALE + 1, TRACKER + 1, SKIPPED + 1});

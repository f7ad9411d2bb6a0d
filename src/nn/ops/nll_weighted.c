/*
 * nll_weighted.c - the negative log-likelihood with weights of classes, an ignored class
 * and label smoothing (Szegedy et al. 2016), and its gradient.
 *
 *   loss = sum over n of (1 - s) w[t] (-logp[n, t]) + s / C sum over c of w[c] (-logp[n, c])
 *
 * with t = target[n], s the smoothing, and w = 1 without weights; if attrs.mean, divided
 * by the sum of w[t]. Samples whose target is the ignored one count neither above nor
 * below. As torch.nn.functional.cross_entropy, whose log-softmax is an op of its own. A
 * target out of range makes the loss and its row of the gradient NaN, as in nll.c.
 *
 * in: logp (N, C), target int64 (N), weight? (C).
 * attrs: mean, number[0] the smoothing, choice 1 if a target is ignored, groups that
 * target; of the gradient, the shape of logp in dims.
 */
#include "nn/ops/common.h"

#include <math.h>

extern const sonde__op_kind sonde__op_nll_weighted_grad;

static sonde_err expect_operands(const sonde__op_shape *logp,
                                 const sonde__op_shape *target,
                                 const sonde__operand *weight, sonde_diag *diag)
{
    const sonde__op_shape labels = {.dtype = SONDE_I64, .rank = 1, .dim = {logp->dim[0]}};
    const sonde__op_shape classes = {
        .dtype = logp->dtype, .rank = 1, .dim = {logp->dim[1]}};

    SONDE__TRY(sonde__op_expect_shape(target, &labels, "target", diag));
    return weight != NULL
               ? sonde__op_expect_shape(&weight->shape, &classes, "weight", diag)
               : SONDE_OK;
}

static sonde_err nll_weighted_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                    sonde_diag *diag)
{
    const sonde__op_shape *logp = &call->in[0].shape;

    (void)attrs;
    SONDE__TRY(sonde__op_expect_rank(logp, 2, "input", "log-probabilities (N, C)", diag));
    SONDE__TRY(expect_operands(logp, &call->in[1].shape,
                               call->in_count > 2 ? &call->in[2] : NULL, diag));
    call->out[0].shape = (sonde__op_shape){.dtype = logp->dtype, .rank = 0};
    return SONDE_OK;
}

static double weight_of(const sonde__op_call *call, int64_t c)
{
    return sonde__op_has_in(call, 2) ? sonde__op_load(&call->in[2], c) : 1.0;
}

static bool is_ignored(const sonde__op_attrs *attrs, int64_t target)
{
    return attrs->choice != 0 && target == attrs->groups;
}

/* What the losses of the samples are divided by. */
static double divisor(const sonde__op_call *call, int64_t samples, int64_t classes)
{
    const int64_t *target = call->in[1].data;
    double sum = 0.0;

    for (int64_t n = 0; n < samples && call->attrs->mean; n++) {
        if (!is_ignored(call->attrs, target[n]) && target[n] >= 0 &&
            target[n] < classes) {
            sum += weight_of(call, target[n]);
        }
    }
    return call->attrs->mean ? sum : 1.0;
}

static void nll_weighted_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t *target = call->in[1].data;
    const int64_t samples = call->in[0].shape.dim[0], classes = call->in[0].shape.dim[1];
    const double smoothing = (double)call->attrs->number[0];
    double loss = 0.0;

    (void)part, (void)parts;
    for (int64_t n = 0; n < samples; n++) {
        const bool in_range = target[n] >= 0 && target[n] < classes;

        if (is_ignored(call->attrs, target[n])) {
            continue;
        }
        loss -= in_range ? (1.0 - smoothing) * weight_of(call, target[n]) *
                               sonde__op_load(&call->in[0], n * classes + target[n])
                         : (double)NAN;
        for (int64_t c = 0; c < classes && smoothing > 0.0; c++) {
            loss -= smoothing / (double)classes * weight_of(call, c) *
                    sonde__op_load(&call->in[0], n * classes + c);
        }
    }
    sonde__op_store(&call->out[0], 0, loss / divisor(call, samples, classes));
}

SONDE__KERNELS(nll_weighted, NULL)

static void nll_weighted_gradient(const sonde__op_gradient_context *context)
{
    const sonde__op_value in[] = {context->grad_out[0], context->in[1], context->in[2]};

    context->grad_in[0] =
        sonde__op_emit_shaped(context, &sonde__op_nll_weighted_grad, context->in[0], in,
                              context->in[2] != 0 ? 3 : 2);
}

const sonde__op_kind sonde__op_nll_weighted = {
    .name = "NllWeighted",
    .in_min = 2,
    .in_max = 3,
    .out_count = 1,
    .infer = nll_weighted_infer,
    .gradient = nll_weighted_gradient,
    .kernels = nll_weighted_kernels,
};

static sonde_err nll_weighted_grad_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                         sonde_diag *diag)
{
    sonde__op_shape logp;

    SONDE__TRY(
        sonde__op_expect_rank(&call->in[0].shape, 0, "loss gradient", "a scalar", diag));
    SONDE__TRY(
        sonde__op_expect_dims(attrs, 2, call->in[0].shape.dtype, "input", &logp, diag));
    SONDE__TRY(expect_operands(&logp, &call->in[1].shape,
                               call->in_count > 2 ? &call->in[2] : NULL, diag));
    call->out[0].shape = logp;
    return SONDE_OK;
}

static void nll_weighted_grad_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t *target = call->in[1].data;
    const int64_t samples = call->out[0].shape.dim[0],
                  classes = call->out[0].shape.dim[1];
    const double smoothing = (double)call->attrs->number[0];
    const double dloss =
        sonde__op_load(&call->in[0], 0) / divisor(call, samples, classes);

    (void)part, (void)parts;
    for (int64_t n = 0; n < samples; n++) {
        const bool in_range = target[n] >= 0 && target[n] < classes;

        for (int64_t c = 0; c < classes; c++) {
            const double share =
                (c == target[n] ? 1.0 - smoothing : 0.0) + smoothing / (double)classes;
            const double value = is_ignored(call->attrs, target[n]) ? 0.0
                                 : in_range ? -dloss * weight_of(call, c) * share
                                            : (double)NAN;

            sonde__op_store(&call->out[0], n * classes + c, value);
        }
    }
}

SONDE__KERNELS(nll_weighted_grad, NULL)

const sonde__op_kind sonde__op_nll_weighted_grad = {
    .name = "NllWeightedGrad",
    .in_min = 2,
    .in_max = 3,
    .out_count = 1,
    .infer = nll_weighted_grad_infer,
    .kernels = nll_weighted_grad_kernels,
};

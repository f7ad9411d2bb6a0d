/*
 * nll.c - the negative log-likelihood of the target classes, and its gradient.
 *
 *   loss = - sum over n of logp[n, target[n]]       (divided by N if attrs.loss.mean)
 *   dlogp[n, c] = c == target[n] ? - dloss : 0      (likewise)
 *
 * as torch.nn.functional.nll_loss without class weights. PyTorch's ignore_index is not
 * supported. The session checks targets before a run; a target outside 0 ... C - 1 that
 * still reaches the kernel reads nothing and makes the loss and its row of the gradient
 * NaN.
 *
 * attrs: mean; of the gradient, the shape of logp in dims.
 */
#include "nn/ops/common.h"
#include "nn/kernels/fast.h"

#include <math.h>

static sonde_err expect_target(const sonde__op_shape *target, const sonde__op_shape *logp,
                               sonde_diag *diag)
{
    const sonde__op_shape wanted = {.dtype = SONDE_I64, .rank = 1, .dim = {logp->dim[0]}};

    return sonde__op_expect_shape(target, &wanted, "target", diag);
}

static sonde_err nll_infer(sonde__op_call *call, sonde__op_attrs *attrs, sonde_diag *diag)
{
    const sonde__op_shape *logp = &call->in[0].shape;

    (void)attrs;
    SONDE__TRY(sonde__op_expect_rank(logp, 2, "input", "log-probabilities (N, C)", diag));
    SONDE__TRY(expect_target(&call->in[1].shape, logp, diag));
    call->out[0].shape = (sonde__op_shape){.dtype = logp->dtype, .rank = 0};
    return SONDE_OK;
}

static void nll_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t *target = call->in[1].data;
    const int64_t samples = call->in[0].shape.dim[0], classes = call->in[0].shape.dim[1];
    double loss = 0.0;

    (void)part, (void)parts;
    for (int64_t n = 0; n < samples; n++) {
        const bool in_range = target[n] >= 0 && target[n] < classes;

        loss -= in_range ? sonde__op_load(&call->in[0], n * classes + target[n])
                         : (double)NAN;
    }
    sonde__op_store(&call->out[0], 0,
                    call->attrs->loss.mean ? loss / (double)samples : loss);
}

static bool nll_ids(const sonde__op_call *call, int operand, sonde__op_ids *ids)
{
    *ids = (sonde__op_ids){.what = "label", .count = call->in[0].shape.dim[1]};
    return operand == 1;
}

const sonde__op_kind sonde__op_nll = {
    .name = "Nll",
    SONDE__OPERANDS(loss, 2, 2, 1),
    .infer = nll_infer,
    .backward = {&sonde__op_nll_grad, "d1", 0, true},
    SONDE__REFERENCE(nll_run),
    .fast = sonde__kernel_nll_fast,
    .ids = nll_ids,
};

static sonde_err nll_grad_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                sonde_diag *diag)
{
    return sonde__op_infer_shaped(call, attrs, nll_infer, diag);
}

static void nll_grad_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t *target = call->in[1].data;
    const int64_t samples = call->out[0].shape.dim[0],
                  classes = call->out[0].shape.dim[1];
    const double dloss = sonde__op_load(&call->in[0], 0);
    const double step = call->attrs->loss.mean ? -dloss / (double)samples : -dloss;

    (void)part, (void)parts;
    for (int64_t n = 0; n < samples; n++) {
        const bool in_range = target[n] >= 0 && target[n] < classes;

        for (int64_t c = 0; c < classes; c++) {
            const double value = c == target[n] ? step : 0.0;

            sonde__op_store(&call->out[0], n * classes + c,
                            in_range ? value : (double)NAN);
        }
    }
}

const sonde__op_kind sonde__op_nll_grad = {
    .name = "NllGrad",
    SONDE__OPERANDS(loss, 2, 2, 1),
    .infer = nll_grad_infer,
    SONDE__REFERENCE(nll_grad_run),
    .fast = sonde__kernel_nll_grad_fast,
};

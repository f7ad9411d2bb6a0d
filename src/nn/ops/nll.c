/*
 * nll.c - the negative log-likelihood, plain and with weights.
 *
 * The negative log-likelihood of the target classes, and its gradient.
 *
 *   loss = - sum over n of logp[n, target[n]]       (divided by N if attrs.loss.mean)
 *   dlogp[n, c] = c == target[n] ? - dloss : 0      (likewise)
 *
 * as torch.nn.functional.nll_loss without class weights. PyTorch's ignore_index is not
 * supported. The session checks targets before a run; a target outside 0 ... C - 1 that
 * still reaches the kernel reads nothing and makes the loss and its row of the gradient
 * NaN.
 *
 * The negative log-likelihood with weights of classes, an ignored class
 * and label smoothing (Szegedy et al. 2016), and its gradient.
 *
 *   loss = sum over n of (1 - s) w[t] (-logp[n, t]) + s / C sum over c of w[c] (-logp[n, c])
 *
 * with t = target[n], s the smoothing, and w = 1 without weights; if attrs.loss.mean, divided
 * by the sum of w[t]. Samples whose target is the ignored one count neither above nor
 * below. As torch.nn.functional.cross_entropy, whose log-softmax is an op of its own. A
 * target out of range makes the loss and its row of the gradient NaN, as in nll.c.
 *
 * in: logp (N, C, ...), target int64 (N, ...), weight? (C). attrs.loss.axis is the dimension of
 * the classes, 0 for 1, which is PyTorch's: a language model has them last.
 *
 * attrs: loss.
 */
#include "nn/ops/common.h"
#include "nn/kernels/fast.h"

#include <math.h>

/* === nll ============================================================================ */

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

SONDE__OP(nll, "Nll", loss, 2, 2, 1, .infer = nll_infer,
          .backward = {&sonde__op_nll_grad, "d1", 0, true}, SONDE__REFERENCE(nll_run),
          .fast = sonde__kernel_nll_fast, .ids = nll_ids);

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

SONDE__OP(nll_grad, "NllGrad", loss, 2, 2, 1, .infer = nll_grad_infer,
          SONDE__REFERENCE(nll_grad_run), .fast = sonde__kernel_nll_grad_fast);

/* === nll weighted =================================================================== */

static sonde_err expect_operands(const sonde__op_shape *logp, sonde__op_attrs *attrs,
                                 const sonde__op_shape *target,
                                 const sonde__operand *weight, sonde_diag *diag)
{
    sonde__op_shape labels = {.dtype = SONDE_I64}, classes = {.rank = 1};

    attrs->loss.axis = attrs->loss.axis == 0 ? 1 : attrs->loss.axis;
    SONDE__TRY(sonde__op_expect_axis(&attrs->loss.axis, logp->rank, diag));
    for (int i = 0; i < logp->rank; i++) {
        if (i != attrs->loss.axis) {
            labels.dim[labels.rank++] = logp->dim[i];
        }
    }
    classes.dtype = logp->dtype;
    classes.dim[0] = logp->dim[attrs->loss.axis];
    SONDE__TRY(sonde__op_expect_shape(target, &labels, "target", diag));
    return weight != NULL
               ? sonde__op_expect_shape(&weight->shape, &classes, "weight", diag)
               : SONDE_OK;
}

static sonde_err nll_weighted_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                    sonde_diag *diag)
{
    const sonde__op_shape *logp = &call->in[0].shape;

    if (logp->rank < 2) {
        return sonde__op_expect_rank(logp, 2, "input", "log-probabilities (N, C, ...)",
                                     diag);
    }
    SONDE__TRY(sonde__op_expect_float(logp, "input", diag));
    SONDE__TRY(expect_operands(logp, attrs, &call->in[1].shape,
                               call->in_count > 2 ? &call->in[2] : NULL, diag));
    call->out[0].shape = (sonde__op_shape){.dtype = logp->dtype, .rank = 0};
    return SONDE_OK;
}

/* Where log-probabilities lie: of class c of position n at start(n) + c * step. */
typedef struct class_lines {
    int64_t positions, classes, step;
} class_lines;

static class_lines lines_of(const sonde__op_shape *logp, const sonde__op_attrs *attrs)
{
    const int64_t step = sonde__op_dims_product(logp, attrs->loss.axis + 1, logp->rank);

    return (class_lines){.positions =
                             sonde__op_dims_product(logp, 0, attrs->loss.axis) * step,
                         .classes = logp->dim[attrs->loss.axis],
                         .step = step};
}

static int64_t place(const class_lines *lines, int64_t n, int64_t c)
{
    return (n / lines->step * lines->classes + c) * lines->step + n % lines->step;
}

static double weight_of(const sonde__op_call *call, int64_t c)
{
    return sonde__op_has_in(call, 2) ? sonde__op_load(&call->in[2], c) : 1.0;
}

static bool is_ignored(const sonde__op_attrs *attrs, int64_t target)
{
    return attrs->loss.ignores && target == attrs->loss.ignore_index;
}

/* What the losses of the samples are divided by. */
static double divisor(const sonde__op_call *call, int64_t samples, int64_t classes)
{
    const int64_t *target = call->in[1].data;
    double sum = 0.0;

    for (int64_t n = 0; n < samples && call->attrs->loss.mean; n++) {
        if (!is_ignored(call->attrs, target[n]) && target[n] >= 0 &&
            target[n] < classes) {
            sum += weight_of(call, target[n]);
        }
    }
    return call->attrs->loss.mean ? sum : 1.0;
}

static void nll_weighted_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t *target = call->in[1].data;
    const class_lines lines = lines_of(&call->in[0].shape, call->attrs);
    const double smoothing = (double)call->attrs->loss.label_smoothing;
    double loss = 0.0;

    (void)part, (void)parts;
    for (int64_t n = 0; n < lines.positions; n++) {
        const bool in_range = target[n] >= 0 && target[n] < lines.classes;

        if (is_ignored(call->attrs, target[n])) {
            continue;
        }
        loss -= in_range ? (1.0 - smoothing) * weight_of(call, target[n]) *
                               sonde__op_load(&call->in[0], place(&lines, n, target[n]))
                         : (double)NAN;
        for (int64_t c = 0; c < lines.classes && smoothing > 0.0; c++) {
            loss -= smoothing / (double)lines.classes * weight_of(call, c) *
                    sonde__op_load(&call->in[0], place(&lines, n, c));
        }
    }
    sonde__op_store(&call->out[0], 0,
                    loss / divisor(call, lines.positions, lines.classes));
}

static bool nll_weighted_ids(const sonde__op_call *call, int operand, sonde__op_ids *ids)
{
    *ids = (sonde__op_ids){.what = "label",
                           .ignores = call->attrs->loss.ignores,
                           .ignored = call->attrs->loss.ignore_index,
                           .count = call->in[0].shape.dim[call->attrs->loss.axis]};
    return operand == 1;
}

SONDE__OP(nll_weighted, "NllWeighted", loss, 2, 3, 1, .infer = nll_weighted_infer,
          .backward = {&sonde__op_nll_weighted_grad, "d12", 0, true},
          SONDE__REFERENCE(nll_weighted_run), .ids = nll_weighted_ids);

static sonde_err nll_weighted_grad_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                         sonde_diag *diag)
{
    return sonde__op_infer_shaped(call, attrs, nll_weighted_infer, diag);
}

static void nll_weighted_grad_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t *target = call->in[1].data;
    const class_lines lines = lines_of(&call->out[0].shape, call->attrs);
    const double smoothing = (double)call->attrs->loss.label_smoothing;
    const double dloss =
        sonde__op_load(&call->in[0], 0) / divisor(call, lines.positions, lines.classes);

    (void)part, (void)parts;
    for (int64_t n = 0; n < lines.positions; n++) {
        const bool in_range = target[n] >= 0 && target[n] < lines.classes;

        for (int64_t c = 0; c < lines.classes; c++) {
            const double share = (c == target[n] ? 1.0 - smoothing : 0.0) +
                                 smoothing / (double)lines.classes;
            const double value = is_ignored(call->attrs, target[n]) ? 0.0
                                 : in_range ? -dloss * weight_of(call, c) * share
                                            : (double)NAN;

            sonde__op_store(&call->out[0], place(&lines, n, c), value);
        }
    }
}

SONDE__OP(nll_weighted_grad, "NllWeightedGrad", loss, 2, 3, 1,
          .infer = nll_weighted_grad_infer, SONDE__REFERENCE(nll_weighted_grad_run));

/*
 * prelu.c - ReLU with a learnt slope (He et al. 2015), and its gradient.
 *
 *   y = x where x > 0, otherwise w[c] x
 *   dx = dy where x > 0, otherwise w[c] dy;  dw[c] = sum of dy x where not x > 0
 *
 * as torch.nn.functional.prelu. x is (N, C, ...); w has one element for each channel or one
 * for all. x of one dimension has one channel.
 *
 * attrs: of the layer, groups is the number of slopes.
 */
#include "base/fail.h"
#include "nn/ops/common.h"
#include "nn/ops/layer_row.h"

#include <math.h>

/* The slope of element i. */
static int64_t slope_at(const sonde__op_shape *x, const sonde__op_shape *w, int64_t i)
{
    return w->dim[0] == 1 ? 0 : i / sonde__op_dims_product(x, 2, x->rank) % x->dim[1];
}

static sonde_err expect_slopes(const sonde__op_shape *x, const sonde__op_shape *w,
                               sonde_diag *diag)
{
    const int64_t channels = x->rank > 1 ? x->dim[1] : 1;

    SONDE__TRY(sonde__op_expect_float(x, "input", diag));
    SONDE__TRY(sonde__op_expect_rank(w, 1, "weight", "(1) or (C)", diag));
    if (w->dim[0] != 1 && w->dim[0] != channels) {
        return sonde__fail(diag, SONDE_ESHAPE, NULL, "1, or one for each channel",
                           "%lld slopes of %lld channels", (long long)w->dim[0],
                           (long long)channels);
    }
    return SONDE_OK;
}

static sonde_err prelu_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                             sonde_diag *diag)
{
    (void)attrs;
    call->out[0].shape = call->in[0].shape;
    return expect_slopes(&call->in[0].shape, &call->in[1].shape, diag);
}

static void prelu_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__operand *x = &call->in[0], *w = &call->in[1];

    (void)part, (void)parts;
    for (int64_t i = 0; i < sonde__op_shape_count(&x->shape); i++) {
        const double v = sonde__op_load(x, i);

        sonde__op_store(
            &call->out[0], i,
            v > 0.0 ? v : v * sonde__op_load(w, slope_at(&x->shape, &w->shape, i)));
    }
}

const sonde__op_kind sonde__op_prelu = {
    .name = "PRelu",
    SONDE__OPERANDS(none, 2, 2, 1),
    .infer = prelu_infer,
    .backward = {&sonde__op_prelu_grad, "d01"},
    SONDE__REFERENCE(prelu_run),
};

static sonde_err prelu_grad_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                  sonde_diag *diag)
{
    (void)attrs;
    call->out[0].shape = call->in[1].shape;
    call->out[1].shape = call->in[2].shape;
    SONDE__TRY(sonde__op_expect_shape(&call->in[0].shape, &call->in[1].shape,
                                      "output gradient", diag));
    return expect_slopes(&call->in[1].shape, &call->in[2].shape, diag);
}

static void prelu_grad_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__operand *dy = &call->in[0], *x = &call->in[1], *w = &call->in[2];
    const int64_t count = sonde__op_shape_count(&x->shape);

    (void)part, (void)parts;
    for (int64_t k = 0; k < w->shape.dim[0]; k++) {
        double sum = 0.0;

        for (int64_t i = 0; i < count; i++) {
            const double v = sonde__op_load(x, i), d = sonde__op_load(dy, i);

            if (slope_at(&x->shape, &w->shape, i) != k) {
                continue;
            }
            sum += v > 0.0 ? 0.0 : d * v;
            sonde__op_store(&call->out[0], i, v > 0.0 ? d : d * sonde__op_load(w, k));
        }
        sonde__op_store(&call->out[1], k, sum);
    }
}

const sonde__op_kind sonde__op_prelu_grad = {
    .name = "PReluGrad",
    SONDE__OPERANDS(none, 3, 3, 2),
    .out_names = {NULL, "GradWeight"},
    .infer = prelu_grad_infer,
    SONDE__REFERENCE(prelu_grad_run),
};

static int prelu_params(const sonde__op_shape *x, const sonde__op_attrs *attrs,
                        sonde__op_param params[SONDE__MAX_PARAMS])
{
    (void)x;
    params[0] = (sonde__op_param){.suffix = "weight",
                                  .role = SONDE_ROLE_WEIGHT,
                                  .rank = 1,
                                  .dim = {attrs->slopes.count},
                                  .constant = 0.25F};
    return 1;
}

const sonde__op_layer sonde__layer_prelu = {
    .name = "prelu",
    .kind = &sonde__op_prelu,
    .inputs = 1,
    .fields = {SONDE__FIELD("num_parameters", SONDE__FIELD_WHOLE, slopes.count, 1.0, 1,
                            1 << 24)},
    .help = "x, or weight x below 0; num_parameters is 1 or the number of channels",
    .params = prelu_params,
};

/*
 * channels.c - a number for each channel: biases and slopes.
 *
 * A number for each channel added to it: the bias of a layer whose op has
 * none.
 *
 *   ChannelAdd   y[n, c, ...] = x[n, c, ...] + b[c]
 *
 * The gradients are dy, and ChannelSum of dy.
 *
 * ReLU with a learnt slope (He et al. 2015), and its gradient.
 *
 *   y = x where x > 0, otherwise w[c] x
 *   dx = dy where x > 0, otherwise w[c] dy;  dw[c] = sum of dy x where not x > 0
 *
 * as torch.nn.functional.prelu. x is (N, C, ...); w has one element for each channel or one
 * for all. x of one dimension has one channel.
 */
#include "nn/ops/common.h"
#include "nn/kernels/fast.h"
#include "base/fail.h"
#include "nn/ops/layer_row.h"

#include <math.h>

/* === channel add ==================================================================== */

static sonde_err channel_add_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                   sonde_diag *diag)
{
    const sonde__op_shape *x = &call->in[0].shape;
    const sonde_dtype numbers = sonde__op_is_half(x->dtype) ? SONDE_F32 : x->dtype;

    (void)attrs;
    SONDE__TRY(sonde__op_expect_float(x, "input", diag));
    if (x->rank < 2) {
        return sonde__op_expect_rank(x, 2, "input", "(N, C, ...)", diag);
    }
    SONDE__TRY(sonde__op_expect_shape(
        &call->in[1].shape, &(sonde__op_shape){numbers, 1, {x->dim[1]}}, "bias", diag));
    call->out[0].shape = *x;
    return SONDE_OK;
}

static void channel_add_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__op_shape *x = &call->in[0].shape;
    const int64_t inner = sonde__op_dims_product(x, 2, x->rank);
    const int64_t rows = x->dim[0] * x->dim[1];

    for (int64_t row = rows * part / parts; row < rows * (part + 1) / parts; row++) {
        const double bias = sonde__op_load(&call->in[1], row % x->dim[1]);

        for (int64_t i = row * inner; i < (row + 1) * inner; i++) {
            sonde__op_store(&call->out[0], i, sonde__op_load(&call->in[0], i) + bias);
        }
    }
}

/* One loop for both layouts: in LANES a row is a channel of 16 samples. */
static void add_rows(const sonde__op_call *call, int part, int parts, int64_t samples,
                     int64_t width)
{
    const sonde__op_shape *x = &call->in[0].shape;
    const int64_t inner = sonde__op_dims_product(x, 2, x->rank) * width;
    const int64_t rows = samples * x->dim[1];
    const float *source = call->in[0].data, *bias = call->in[1].data;
    float *target = call->out[0].data;

    for (int64_t row = rows * part / parts; row < rows * (part + 1) / parts; row++) {
        const float b = bias[row % x->dim[1]];

        for (int64_t i = row * inner; i < (row + 1) * inner; i++) {
            target[i] = source[i] + b;
        }
    }
}

static void add_plain(const sonde__op_call *call, int part, int parts)
{
    add_rows(call, part, parts, call->in[0].shape.dim[0], 1);
}

static void add_lanes(const sonde__op_call *call, int part, int parts)
{
    add_rows(call, part, parts,
             (call->in[0].shape.dim[0] + SONDE__LANE_WIDTH - 1) / SONDE__LANE_WIDTH,
             SONDE__LANE_WIDTH);
}

static bool is_f32(const sonde__op_call *call)
{
    return call->in[0].shape.dtype == SONDE_F32;
}

static int channel_add_parts(const sonde__op_call *call, int max)
{
    const int64_t parts = sonde__op_shape_count(&call->out[0].shape) / 65536;

    return parts < 1 ? 1 : parts > max ? max : (int)parts;
}

static const sonde__op_kernel *const *channel_add_fast(void)
{
    static const sonde__op_kernel lanes = {.name = "lanes",
                                           .accepts = is_f32,
                                           .in = {SONDE__LANES},
                                           .out = {SONDE__LANES},
                                           .parts = channel_add_parts,
                                           .run = add_lanes};
    static const sonde__op_kernel plain = {
        .name = "rows", .accepts = is_f32, .parts = channel_add_parts, .run = add_plain};
    static const sonde__op_kernel *const kernels[] = {&lanes, &plain, NULL};

    return kernels;
}

static void channel_add_gradient(const sonde__op_gradient_context *context)
{
    if (context->wanted[0]) {
        context->grad_in[0] = context->grad_out[0];
    }
    if (context->wanted[1]) {
        context->grad_in[1] = sonde__op_emit(context->graph, &sonde__op_channel_sum, NULL,
                                             context->grad_out, 1);
    }
}

SONDE__OP(channel_add, "ChannelAdd", none, 2, 2, 1, .infer = channel_add_infer,
          .gradient = channel_add_gradient, SONDE__REFERENCE(channel_add_run),
          .fast = channel_add_fast, .halves = SONDE__HALVES_LED,
          .half_kernels = sonde__kernel_channel_add_half);

/* === prelu ========================================================================== */

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

SONDE__OP(prelu, "PRelu", none, 2, 2, 1, .infer = prelu_infer,
          .backward = {&sonde__op_prelu_grad, "d01"}, SONDE__REFERENCE(prelu_run));

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

SONDE__OP(prelu_grad, "PReluGrad", none, 3, 3, 2, .out_names = {NULL, "GradWeight"},
          .infer = prelu_grad_infer, SONDE__REFERENCE(prelu_grad_run));

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

SONDE__LAYER(prelu, prelu, 1,
             "x, or weight x below 0; num_parameters is 1 or the number of channels",
             .fields = {SONDE__FIELD("num_parameters", SONDE__FIELD_WHOLE, slopes.count,
                                     1.0, 1, 1 << 24)},
             .params = prelu_params);

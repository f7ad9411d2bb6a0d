/*
 * channel_add.c - a number for each channel added to it: the bias of a layer whose op has
 * none.
 *
 *   ChannelAdd   y[n, c, ...] = x[n, c, ...] + b[c]
 *
 * The gradients are dy, and ChannelSum of dy.
 */
#include "nn/ops/common.h"
#include "nn/kernels/fast.h"

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

SONDE__KERNELS(channel_add, channel_add_fast)
SONDE__HALF_KERNELS(channel_add)

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

const sonde__op_kind sonde__op_channel_add = {
    .name = "ChannelAdd",
    SONDE__OPERANDS(2, 2, 1),
    .infer = channel_add_infer,
    .gradient = channel_add_gradient,
    .kernels = channel_add_kernels,
    .halves = SONDE__HALVES_LED,
    .half_kernels = channel_add_half_kernels,
};

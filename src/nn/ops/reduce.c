/*
 * reduce.c - sum or mean over any axes, and the sum over all but the channels.
 *
 *   reduce       y = sum of x over the axes of attrs.reduce.axes, divided by their extent if
 *                attrs.reduce.mean; attrs.reduce.keep_dims leaves dims of 1 (torch.sum, torch.mean). No
 *                axis named means all of them. Layers list axes in attrs.dims.
 *   channel_sum  dy (N, C, ...) summed to (C): the gradient of a bias.
 *
 * A mean over nothing is NaN, a sum over nothing 0.
 */
#include "nn/ops/common.h"
#include "base/fail.h"
#include "nn/kernels/fast.h"
#include "nn/ops/layer_row.h"

/* --- reduce ------------------------------------------------------------------------- */

static bool is_reduced(const sonde__op_attrs *attrs, int dim)
{
    return (attrs->reduce.axes >> dim & 1u) != 0;
}

static sonde_err reduce_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                              sonde_diag *diag)
{
    const sonde__op_shape *x = &call->in[0].shape;
    const uint32_t all = (1u << x->rank) - 1u;
    sonde__op_shape y = {.dtype = x->dtype, .rank = 0};

    SONDE__TRY(sonde__op_expect_float(x, "input", diag));
    SONDE__TRY(sonde__op_take_axes(attrs, x->rank, diag));
    if ((attrs->reduce.axes & ~all) != 0) {
        return sonde__fail(diag, SONDE_EINVAL, NULL, NULL,
                           "axes 0x%x of a tensor of rank %d", attrs->reduce.axes,
                           x->rank);
    }
    attrs->reduce.axes = attrs->reduce.axes == 0 ? all : attrs->reduce.axes;
    for (int i = 0; i < x->rank; i++) {
        if (!is_reduced(attrs, i)) {
            y.dim[y.rank++] = x->dim[i];
        } else if (attrs->reduce.keep_dims) {
            y.dim[y.rank++] = 1;
        }
    }
    call->out[0].shape = y;
    return SONDE_OK;
}

int64_t sonde__op_reduced_at(const sonde__op_shape *x, const sonde__op_attrs *attrs,
                             bool reduced, int64_t i)
{
    int64_t offset = 0, step = 1;

    for (int d = x->rank - 1; d >= 0; d--) {
        if (is_reduced(attrs, d) == reduced) {
            offset += i % x->dim[d] * step;
            i /= x->dim[d];
        }
        step *= x->dim[d];
    }
    return offset;
}

static void reduce_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__operand *x = &call->in[0];
    const int64_t outputs = sonde__op_shape_count(&call->out[0].shape);
    int64_t terms = 1;

    (void)part, (void)parts;
    for (int d = 0; d < x->shape.rank; d++) {
        terms *= is_reduced(call->attrs, d) ? x->shape.dim[d] : 1;
    }
    for (int64_t i = 0; i < outputs; i++) {
        const int64_t base = sonde__op_reduced_at(&x->shape, call->attrs, false, i);
        double sum = 0.0;

        for (int64_t k = 0; k < terms; k++) {
            sum += sonde__op_load(
                x, base + sonde__op_reduced_at(&x->shape, call->attrs, true, k));
        }
        sonde__op_store(&call->out[0], i,
                        call->attrs->reduce.mean ? sum / (double)terms : sum);
    }
}

static void reduce_gradient(const sonde__op_gradient_context *context)
{
    const sonde__op_shape x = *sonde__op_value_shape(context->graph, context->in[0]);
    sonde__op_attrs attrs = {.shape = {.rank = x.rank}};
    sonde__op_attrs share;
    int64_t terms = 1;
    sonde__op_value dy = context->grad_out[0];

    sonde__op_attrs_clear(&share);
    for (int i = 0; i < x.rank; i++) {
        attrs.shape.dims[i] = is_reduced(context->attrs, i) ? 1 : x.dim[i];
        terms *= is_reduced(context->attrs, i) ? x.dim[i] : 1;
    }
    if (context->attrs->reduce.mean) {
        share.fill.value = (float)(1.0 / (double)terms);
        dy = sonde__op_emit(context->graph, &sonde__op_scale, &share, &dy, 1);
    }
    if (!context->attrs->reduce.keep_dims) {
        dy = sonde__op_emit(context->graph, &sonde__op_reshape, &attrs, &dy, 1);
    }
    context->grad_in[0] =
        sonde__op_emit_shaped(context, &sonde__op_broadcast, context->in[0], &dy, 1);
}

SONDE__OP(reduce, "Reduce", reduce, 1, 1, 1, .infer = reduce_infer,
          .gradient = reduce_gradient, SONDE__REFERENCE(reduce_run),
          .halves = SONDE__HALVES_TAKEN);

static const sonde__op_attrs of_mean = {.reduce = {.mean = true}};

SONDE__LAYER(sum, reduce, 1, "the sum over dimensions",
             .fields = {SONDE__FIELD_AXES, SONDE__FIELD_KEEP});

SONDE__LAYER(mean, reduce, 1, "the mean over dimensions", .preset = &of_mean,
             .fields = {SONDE__FIELD_AXES, SONDE__FIELD_KEEP});

/* --- channel sum -------------------------------------------------------------------- */

static sonde_err channel_sum_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                   sonde_diag *diag)
{
    const sonde__op_shape *dy = &call->in[0].shape;

    (void)attrs;
    SONDE__TRY(sonde__op_expect_float(dy, "output gradient", diag));
    if (dy->rank < 2) {
        return sonde__op_expect_rank(dy, 2, "output gradient", "(N, C, ...)", diag);
    }
    call->out[0].shape = (sonde__op_shape){
        sonde__op_is_half(dy->dtype) ? SONDE_F32 : dy->dtype, 1, {dy->dim[1]}};
    return SONDE_OK;
}

static void channel_sum_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__operand *dy = &call->in[0];
    const int64_t samples = dy->shape.dim[0], channels = dy->shape.dim[1];
    const int64_t inner = sonde__op_dims_product(&dy->shape, 2, dy->shape.rank);

    (void)part, (void)parts;
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0.0;

        for (int64_t n = 0; n < samples; n++) {
            for (int64_t i = 0; i < inner; i++) {
                sum += sonde__op_load(dy, (n * channels + c) * inner + i);
            }
        }
        sonde__op_store(&call->out[0], c, sum);
    }
}

SONDE__OP(channel_sum, "ChannelSum", none, 1, 1, 1, .infer = channel_sum_infer,
          SONDE__REFERENCE(channel_sum_run), .fast = sonde__kernel_channel_sum_fast,
          .halves = SONDE__HALVES_TAKEN, .half_kernels = sonde__kernel_channel_sum_half);

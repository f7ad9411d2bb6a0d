/*
 * pool_layers.c - pools of one and three dimensions, with PyTorch's names and parameters.
 *
 * One dimension is two with a height of 1. Of three, height and width are pooled first,
 * for every depth; then the depth, whose windows have a width of 1: of the largest and of
 * means it makes no difference, and of equal ones the first stays the first.
 */
#include "base/fail.h"
#include "nn/ops/common.h"
#include "nn/ops/index.h"
#include "nn/ops/layer_row.h"

#include <math.h>

extern const sonde__op_kind sonde__op_avg_pool2d, sonde__op_adaptive_avg_pool2d;
extern const sonde__op_layer sonde__layer_max_pool1d, sonde__layer_avg_pool1d,
    sonde__layer_adaptive_avg_pool1d, sonde__layer_adaptive_max_pool1d,
    sonde__layer_max_pool3d, sonde__layer_avg_pool3d, sonde__layer_adaptive_avg_pool3d;

static sonde__op_value reshaped(const sonde__op_builder *builder, sonde__op_value x,
                                int rank, int64_t a, int64_t b, int64_t c, int64_t d)
{
    const sonde__op_attrs dims = {.rank = rank, .dims = {-1, a, b, c, d}};

    return x == 0 ? 0 : builder->emit(builder, &sonde__op_reshape, &dims, &x, 1);
}

static sonde__op_shape shape_of(const sonde__op_builder *builder, sonde__op_value value)
{
    return value == 0 ? (sonde__op_shape){.rank = 0}
                      : *sonde__op_value_shape(builder->graph, value);
}

/* A stride of 0 is the kernel. */
static sonde__op_attrs with_strides(const sonde__op_attrs *attrs)
{
    sonde__op_attrs made = *attrs;

    for (int i = 0; i < 3; i++) {
        made.stride[i] = made.stride[i] == 0 ? made.kernel[i] : made.stride[i];
    }
    return made;
}

/* --- one dimension -------------------------------------------------------------------- */

static sonde__op_value build_of_one(const sonde__op_builder *builder,
                                    const sonde__op_kind *kind,
                                    const sonde__op_attrs *attrs, sonde__op_value x)
{
    const sonde__op_shape s = shape_of(builder, x);
    const sonde__op_attrs two = with_strides(attrs);

    if (sonde__op_expect_rank(&s, 3, "input", "(N, C, L)", builder->diag) != SONDE_OK) {
        return 0;
    }
    x = reshaped(builder, x, 4, s.dim[1], 1, s.dim[2], 0);
    x = x == 0 ? 0 : builder->emit(builder, kind, &two, &x, 1);
    return reshaped(builder, x, 3, s.dim[1], shape_of(builder, x).dim[3], 0, 0);
}

static sonde__op_value build_max1d(const sonde__op_builder *builder,
                                   sonde__op_attrs *attrs, const sonde__op_value *in)
{
    return build_of_one(builder, &sonde__op_max_pool2d, attrs, in[0]);
}

static sonde__op_value build_avg1d(const sonde__op_builder *builder,
                                   sonde__op_attrs *attrs, const sonde__op_value *in)
{
    return build_of_one(builder, &sonde__op_avg_pool2d, attrs, in[0]);
}

static sonde__op_value build_adaptive1d(const sonde__op_builder *builder,
                                        sonde__op_attrs *attrs, const sonde__op_value *in)
{
    return build_of_one(builder, &sonde__op_adaptive_avg_pool2d, attrs, in[0]);
}

/* The elements at the places of the largest. */
static sonde__op_value build_adaptive_max1d(const sonde__op_builder *builder,
                                            sonde__op_attrs *attrs,
                                            const sonde__op_value *in)
{
    const sonde__op_shape s = shape_of(builder, in[0]);
    const sonde__op_attrs last = {.axis = 2};
    sonde__op_value operands[2] = {in[0], 0};

    if (sonde__op_expect_rank(&s, 3, "input", "(N, C, L)", builder->diag) != SONDE_OK) {
        return 0;
    }
    operands[1] = reshaped(builder, in[0], 4, s.dim[1], 1, s.dim[2], 0);
    operands[1] = operands[1] == 0 ? 0
                                   : builder->emit(builder, &sonde__op_arg_window, attrs,
                                                   &operands[1], 1);
    return operands[1] == 0
               ? 0
               : builder->emit(builder, &sonde__op_gather, &last, operands, 2);
}

/* --- three dimensions ----------------------------------------------------------------- */

static sonde__op_value build_of_three(const sonde__op_builder *builder,
                                      const sonde__op_kind *kind,
                                      const sonde__op_attrs *attrs, sonde__op_value x)
{
    const sonde__op_shape s = shape_of(builder, x);
    const sonde__op_attrs plane = with_strides(attrs);
    sonde__op_attrs depth = {.kernel = {plane.kernel[2], 1},
                             .stride = {plane.stride[2], 1},
                             .padding = {plane.padding[2], 0},
                             .dilation = {plane.dilation[2], 1},
                             .include_pad = plane.include_pad};
    sonde__op_shape pooled;

    if (sonde__op_expect_rank(&s, 5, "input", "(N, C, D, H, W)", builder->diag) !=
        SONDE_OK) {
        return 0;
    }
    x = reshaped(builder, x, 4, s.dim[1] * s.dim[2], s.dim[3], s.dim[4], 0);
    x = x == 0 ? 0 : builder->emit(builder, kind, &plane, &x, 1);
    pooled = shape_of(builder, x);
    x = reshaped(builder, x, 4, s.dim[1], s.dim[2], pooled.dim[2] * pooled.dim[3], 0);
    if (kind == &sonde__op_adaptive_avg_pool2d) {
        depth.kernel[1] = pooled.dim[2] * pooled.dim[3];
    }
    x = x == 0 ? 0 : builder->emit(builder, kind, &depth, &x, 1);
    return reshaped(builder, x, 5, s.dim[1], shape_of(builder, x).dim[2], pooled.dim[2],
                    pooled.dim[3]);
}

static sonde__op_value build_max3d(const sonde__op_builder *builder,
                                   sonde__op_attrs *attrs, const sonde__op_value *in)
{
    return build_of_three(builder, &sonde__op_max_pool2d, attrs, in[0]);
}

static sonde__op_value build_avg3d(const sonde__op_builder *builder,
                                   sonde__op_attrs *attrs, const sonde__op_value *in)
{
    return build_of_three(builder, &sonde__op_avg_pool2d, attrs, in[0]);
}

static sonde__op_value build_adaptive3d(const sonde__op_builder *builder,
                                        sonde__op_attrs *attrs, const sonde__op_value *in)
{
    return build_of_three(builder, &sonde__op_adaptive_avg_pool2d, attrs, in[0]);
}

/* --- rows ----------------------------------------------------------------------------- */

static const sonde__op_attrs flat = {
    .kernel = {1, 1}, .stride = {1, 1}, .dilation = {1, 1, 1}, .include_pad = true};

#define SIZE(key, kind, member, fallback, least)                                         \
    SONDE__FIELD(key, kind, member, fallback, least, 1 << 24)
#define STRIDE(kind_, member)                                                            \
    {                                                                                    \
        .key = "stride", .kind = (kind_), .offset = offsetof(sonde__op_attrs, member),   \
        .least = 1, .most = 1 << 24, .fallback_text = "kernel_size"                      \
    }
#define OF_ONE                                                                           \
    SIZE("kernel_size", SONDE__FIELD_WHOLE, kernel[1], (double)NAN, 1),                  \
        STRIDE(SONDE__FIELD_WHOLE, stride[1]),                                           \
        SIZE("padding", SONDE__FIELD_WHOLE, padding[1], 0.0, 0)
#define OF_THREE                                                                         \
    SIZE("kernel_size", SONDE__FIELD_TRIPLE, kernel, (double)NAN, 1),                    \
        STRIDE(SONDE__FIELD_TRIPLE, stride),                                             \
        SIZE("padding", SONDE__FIELD_TRIPLE, padding, 0.0, 0)
#define INCLUDE                                                                          \
    SONDE__FIELD("count_include_pad", SONDE__FIELD_FLAG, include_pad, 1.0, 0, 1)

const sonde__op_layer sonde__layer_max_pool1d = {
    .name = "max_pool1d",
    .kind = &sonde__op_max_pool2d,
    .inputs = 1,
    .preset = &flat,
    .fields = {OF_ONE, SIZE("dilation", SONDE__FIELD_WHOLE, dilation[1], 1.0, 1)},
    .help = "the largest of each window of (N, C, L)",
    .build = build_max1d,
};

const sonde__op_layer sonde__layer_avg_pool1d = {
    .name = "avg_pool1d",
    .kind = &sonde__op_avg_pool2d,
    .inputs = 1,
    .preset = &flat,
    .fields = {OF_ONE, INCLUDE},
    .help = "the mean of each window of (N, C, L)",
    .build = build_avg1d,
};

const sonde__op_layer sonde__layer_adaptive_avg_pool1d = {
    .name = "adaptive_avg_pool1d",
    .kind = &sonde__op_adaptive_avg_pool2d,
    .inputs = 1,
    .preset = &flat,
    .fields = {SIZE("output_size", SONDE__FIELD_WHOLE, kernel[1], (double)NAN, 1)},
    .help = "the mean of each of output_size windows of (N, C, L)",
    .build = build_adaptive1d,
};

const sonde__op_layer sonde__layer_adaptive_max_pool1d = {
    .name = "adaptive_max_pool1d",
    .kind = &sonde__op_arg_window,
    .inputs = 1,
    .preset = &flat,
    .fields = {SIZE("output_size", SONDE__FIELD_WHOLE, kernel[1], (double)NAN, 1)},
    .help = "the largest of each of output_size windows of (N, C, L)",
    .build = build_adaptive_max1d,
};

const sonde__op_layer sonde__layer_max_pool3d = {
    .name = "max_pool3d",
    .kind = &sonde__op_max_pool2d,
    .inputs = 1,
    .preset = &flat,
    .fields = {OF_THREE, SIZE("dilation", SONDE__FIELD_TRIPLE, dilation, 1.0, 1)},
    .help =
        "the largest of each window of (N, C, D, H, W); sizes are a number or [depth, "
        "height, width]",
    .build = build_max3d,
};

const sonde__op_layer sonde__layer_avg_pool3d = {
    .name = "avg_pool3d",
    .kind = &sonde__op_avg_pool2d,
    .inputs = 1,
    .preset = &flat,
    .fields = {OF_THREE, INCLUDE},
    .help = "the mean of each window of (N, C, D, H, W)",
    .build = build_avg3d,
};

const sonde__op_layer sonde__layer_adaptive_avg_pool3d = {
    .name = "adaptive_avg_pool3d",
    .kind = &sonde__op_adaptive_avg_pool2d,
    .inputs = 1,
    .preset = &flat,
    .fields = {SIZE("output_size", SONDE__FIELD_TRIPLE, kernel, (double)NAN, 1)},
    .help = "the mean of each of output_size windows of (N, C, D, H, W)",
    .build = build_adaptive3d,
};

/*
 * conv_layers.c - convolutions of one to three dimensions, and transposed ones, with the
 * parameters, names and initial values of torch.nn.Conv1d, Conv2d, Conv3d, ConvTranspose1d
 * and ConvTranspose2d. All are made of the ops of two dimensions:
 *
 *   one     a height of 1
 *   three   Remap puts the kd rows of depth that a window reads side by side; they are
 *           channels of a convolution over height and width. Zeros of the padding in depth
 *           take part in its sums.
 *
 * attrs: groups; kernel, stride, padding, dilation: (h, w, d); dims[0] and [1]
 * output_padding, dims[2] out_channels; bias.
 */
#include "base/fail.h"
#include "nn/ops/common.h"
#include "nn/ops/layer_row.h"
#include "nn/ops/remap.h"

#include <math.h>

extern const sonde__op_kind sonde__op_conv_transpose2d;
extern const sonde__op_layer sonde__layer_conv1d, sonde__layer_conv2d,
    sonde__layer_conv3d, sonde__layer_conv_transpose1d, sonde__layer_conv_transpose2d;

/* The place of out_channels in dims. */
enum { OUT = 2 };

static sonde__op_shape shape_of(const sonde__op_builder *builder, sonde__op_value value)
{
    return *sonde__op_value_shape(builder->graph, value);
}

static sonde__op_value reshaped(const sonde__op_builder *builder, sonde__op_value x,
                                sonde__op_attrs dims)
{
    return x == 0 ? 0 : builder->emit(builder, &sonde__op_reshape, &dims, &x, 1);
}

/* (N, C, L) as (N, C, 1, L), and back. */
static sonde__op_value with_height(const sonde__op_builder *builder, sonde__op_value x)
{
    const sonde__op_shape s = shape_of(builder, x);

    return reshaped(builder, x,
                    (sonde__op_attrs){.rank = 4, .dims = {-1, s.dim[1], 1, s.dim[2]}});
}

static sonde__op_value without_height(const sonde__op_builder *builder, sonde__op_value x)
{
    const sonde__op_shape s =
        x == 0 ? (sonde__op_shape){.rank = 0} : shape_of(builder, x);

    return reshaped(builder, x,
                    (sonde__op_attrs){.rank = 3, .dims = {-1, s.dim[1], s.dim[3]}});
}

/* The attrs of the op of two dimensions. */
static sonde__op_attrs in_two(const sonde__op_attrs *attrs)
{
    sonde__op_attrs two = *attrs;

    two.rank = 0;
    for (int i = OUT; i < SONDE_MAX_DIMS; i++) {
        two.dims[i] = 0;
    }
    return two;
}

static bool expect_input(const sonde__op_builder *builder, const sonde__op_attrs *attrs,
                         sonde__op_value x, int rank, const char *form)
{
    const sonde__op_shape s = shape_of(builder, x);

    if (sonde__op_expect_rank(&s, rank, "input", form, builder->diag) != SONDE_OK) {
        return false;
    }
    if (s.dim[1] % attrs->groups != 0 || attrs->dims[OUT] % attrs->groups != 0) {
        (void)sonde__fail(
            builder->diag, SONDE_EINVAL, NULL, "a divisor of both channel counts",
            "%lld groups of %lld input and %lld output channels",
            (long long)attrs->groups, (long long)s.dim[1], (long long)attrs->dims[OUT]);
        return false;
    }
    return true;
}

/* --- parameters ----------------------------------------------------------------------- */

/* Weights of shape (first, second, kernel ...) and a bias for out_channels, in `dims`
 * kernel sizes; PyTorch counts `second` and the kernel as what an output reads. */
static int conv_params(const sonde__op_attrs *attrs, int64_t first, int64_t second,
                       int dims, sonde__op_param params[SONDE__MAX_PARAMS])
{
    const int64_t sizes[3] = {attrs->kernel[2], attrs->kernel[0], attrs->kernel[1]};
    double reads = (double)second;

    params[0] = (sonde__op_param){.suffix = "weight",
                                  .role = SONDE_ROLE_WEIGHT,
                                  .rank = 2 + dims,
                                  .dim = {first, second}};
    for (int i = 0; i < dims; i++) {
        params[0].dim[2 + i] = sizes[3 - dims + i];
        reads *= (double)params[0].dim[2 + i];
    }
    params[0].bound = (float)(1.0 / sqrt(reads));
    params[1] = (sonde__op_param){.suffix = "bias",
                                  .role = SONDE_ROLE_BIAS,
                                  .rank = 1,
                                  .dim = {attrs->dims[OUT]},
                                  .bound = params[0].bound};
    return attrs->bias ? 2 : 1;
}

static bool divides(const sonde__op_shape *x, const sonde__op_attrs *attrs, int rank)
{
    return x->rank == rank && x->dim[1] % attrs->groups == 0 &&
           attrs->dims[OUT] % attrs->groups == 0 && x->dim[1] > 0;
}

static int conv1d_params(const sonde__op_shape *x, const sonde__op_attrs *attrs,
                         sonde__op_param params[SONDE__MAX_PARAMS])
{
    return divides(x, attrs, 3) ? conv_params(attrs, attrs->dims[OUT],
                                              x->dim[1] / attrs->groups, 1, params)
                                : 0;
}

static int conv2d_params(const sonde__op_shape *x, const sonde__op_attrs *attrs,
                         sonde__op_param params[SONDE__MAX_PARAMS])
{
    return divides(x, attrs, 4) ? conv_params(attrs, attrs->dims[OUT],
                                              x->dim[1] / attrs->groups, 2, params)
                                : 0;
}

static int conv3d_params(const sonde__op_shape *x, const sonde__op_attrs *attrs,
                         sonde__op_param params[SONDE__MAX_PARAMS])
{
    return divides(x, attrs, 5) ? conv_params(attrs, attrs->dims[OUT],
                                              x->dim[1] / attrs->groups, 3, params)
                                : 0;
}

static int transposed1d_params(const sonde__op_shape *x, const sonde__op_attrs *attrs,
                               sonde__op_param params[SONDE__MAX_PARAMS])
{
    return divides(x, attrs, 3) ? conv_params(attrs, x->dim[1],
                                              attrs->dims[OUT] / attrs->groups, 1, params)
                                : 0;
}

static int transposed2d_params(const sonde__op_shape *x, const sonde__op_attrs *attrs,
                               sonde__op_param params[SONDE__MAX_PARAMS])
{
    return divides(x, attrs, 4) ? conv_params(attrs, x->dim[1],
                                              attrs->dims[OUT] / attrs->groups, 2, params)
                                : 0;
}

/* --- one and two dimensions ----------------------------------------------------------- */

static sonde__op_value build_conv1d(const sonde__op_builder *builder,
                                    sonde__op_attrs *attrs, const sonde__op_value *in)
{
    const sonde__op_attrs two = in_two(attrs);
    sonde__op_value operands[3] = {0, 0, in[2]};

    if (!expect_input(builder, attrs, in[0], 3, "(N, C, L)")) {
        return 0;
    }
    operands[0] = with_height(builder, in[0]);
    operands[1] = operands[0] == 0 ? 0 : with_height(builder, in[1]);
    return operands[1] == 0
               ? 0
               : without_height(builder, builder->emit(builder, &sonde__op_conv2d, &two,
                                                       operands, in[2] != 0 ? 3 : 2));
}

static sonde__op_value build_conv2d(const sonde__op_builder *builder,
                                    sonde__op_attrs *attrs, const sonde__op_value *in)
{
    const sonde__op_attrs two = in_two(attrs);

    return expect_input(builder, attrs, in[0], 4, "(N, C, H, W)")
               ? builder->emit(builder, &sonde__op_conv2d, &two, in, in[2] != 0 ? 3 : 2)
               : 0;
}

static sonde__op_value emit_transposed(const sonde__op_builder *builder,
                                       const sonde__op_attrs *attrs, sonde__op_value x,
                                       sonde__op_value w, sonde__op_value bias)
{
    const sonde__op_attrs two = in_two(attrs);
    sonde__op_value operands[2] = {x, w};

    operands[0] = x == 0 || w == 0 ? 0
                                   : builder->emit(builder, &sonde__op_conv_transpose2d,
                                                   &two, operands, 2);
    operands[1] = bias;
    return operands[0] == 0 || bias == 0
               ? operands[0]
               : builder->emit(builder, &sonde__op_channel_add, NULL, operands, 2);
}

static sonde__op_value build_transposed1d(const sonde__op_builder *builder,
                                          sonde__op_attrs *attrs,
                                          const sonde__op_value *in)
{
    sonde__op_value x = 0, w = 0;

    if (!expect_input(builder, attrs, in[0], 3, "(N, C, L)")) {
        return 0;
    }
    x = with_height(builder, in[0]);
    w = x == 0 ? 0 : with_height(builder, in[1]);
    return without_height(builder, emit_transposed(builder, attrs, x, w, in[2]));
}

static sonde__op_value build_transposed2d(const sonde__op_builder *builder,
                                          sonde__op_attrs *attrs,
                                          const sonde__op_value *in)
{
    return expect_input(builder, attrs, in[0], 4, "(N, C, H, W)")
               ? emit_transposed(builder, attrs, in[0], in[1], in[2])
               : 0;
}

/* --- three dimensions ----------------------------------------------------------------- */

/* (N, C, D, H, W) as (N D', C kd, H, W): the rows of depth of each window are channels. */
static sonde__op_value windows_in_depth(const sonde__op_builder *builder,
                                        const sonde__op_attrs *attrs, sonde__op_value x)
{
    static const sonde__op_attrs channels_last = {.rank = 6, .dims = {0, 2, 1, 3, 4, 5}};
    const sonde__op_shape s = shape_of(builder, x);
    const int64_t kernel = attrs->kernel[2];
    const sonde__op_attrs windows = {.axis = 2,
                                     .choice = SONDE__REMAP_WINDOWS,
                                     .kernel = {kernel},
                                     .stride = {attrs->stride[2]},
                                     .padding = {attrs->padding[2]},
                                     .dilation = {attrs->dilation[2]}};

    x = builder->emit(builder, &sonde__op_remap, &windows, &x, 1);
    if (x == 0) {
        return 0;
    }
    const int64_t depth = shape_of(builder, x).dim[2] / kernel;
    x = reshaped(
        builder, x,
        (sonde__op_attrs){.rank = 6,
                          .dims = {-1, s.dim[1], depth, kernel, s.dim[3], s.dim[4]}});
    x = x == 0 ? 0 : builder->emit(builder, &sonde__op_transpose, &channels_last, &x, 1);
    return reshaped(builder, x,
                    (sonde__op_attrs){
                        .rank = 4, .dims = {-1, s.dim[1] * kernel, s.dim[3], s.dim[4]}});
}

static sonde__op_value build_conv3d(const sonde__op_builder *builder,
                                    sonde__op_attrs *attrs, const sonde__op_value *in)
{
    static const sonde__op_attrs channels_second = {.rank = 5, .dims = {0, 2, 1, 3, 4}};
    const sonde__op_attrs two = in_two(attrs);
    const int64_t *kernel = attrs->kernel;
    sonde__op_value operands[3] = {0, 0, in[2]}, y = 0;
    sonde__op_shape x, w, s;
    int64_t depth = 0;

    if (!expect_input(builder, attrs, in[0], 5, "(N, C, D, H, W)")) {
        return 0;
    }
    x = shape_of(builder, in[0]);
    w = shape_of(builder, in[1]);
    operands[0] = windows_in_depth(builder, attrs, in[0]);
    operands[1] =
        operands[0] == 0
            ? 0
            : reshaped(builder, in[1],
                       (sonde__op_attrs){.rank = 4,
                                         .dims = {w.dim[0], w.dim[1] * kernel[2],
                                                  kernel[0], kernel[1]}});
    if (operands[1] == 0 ||
        sonde__op_window_count(&(sonde__op_attrs){.kernel = {kernel[2]},
                                                  .stride = {attrs->stride[2]},
                                                  .padding = {attrs->padding[2]},
                                                  .dilation = {attrs->dilation[2]}},
                               0, x.dim[2], &depth, builder->diag) != SONDE_OK) {
        return 0;
    }
    y = builder->emit(builder, &sonde__op_conv2d, &two, operands, in[2] != 0 ? 3 : 2);
    if (y == 0) {
        return 0;
    }
    s = shape_of(builder, y);
    y = reshaped(
        builder, y,
        (sonde__op_attrs){.rank = 5, .dims = {-1, depth, s.dim[1], s.dim[2], s.dim[3]}});
    return y == 0 ? 0
                  : builder->emit(builder, &sonde__op_transpose, &channels_second, &y, 1);
}

/* --- rows ----------------------------------------------------------------------------- */

static const sonde__op_attrs flat = {
    .kernel = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}, .groups = 1};

#define CHANNELS                                                                         \
    SONDE__FIELD("out_channels", SONDE__FIELD_WHOLE, dims[2], (double)NAN, 1, 1 << 24)
#define GROUPS SONDE__FIELD("groups", SONDE__FIELD_WHOLE, groups, 1.0, 1, 1 << 24)
#define BIAS SONDE__FIELD("bias", SONDE__FIELD_FLAG, bias, 1.0, 0, 1)
#define SIZE(key, kind, member, fallback, least)                                         \
    SONDE__FIELD(key, kind, member, fallback, least, 1 << 24)
/* kernel_size, stride, padding and dilation. */
#define WINDOW_OF_ONE                                                                    \
    SIZE("kernel_size", SONDE__FIELD_WHOLE, kernel[1], (double)NAN, 1),                  \
        SIZE("stride", SONDE__FIELD_WHOLE, stride[1], 1.0, 1),                           \
        SIZE("padding", SONDE__FIELD_WHOLE, padding[1], 0.0, 0),                         \
        SIZE("dilation", SONDE__FIELD_WHOLE, dilation[1], 1.0, 1)
#define WINDOW_OF(kind)                                                                  \
    SIZE("kernel_size", kind, kernel, (double)NAN, 1),                                   \
        SIZE("stride", kind, stride, 1.0, 1), SIZE("padding", kind, padding, 0.0, 0),    \
        SIZE("dilation", kind, dilation, 1.0, 1)

const sonde__op_layer sonde__layer_conv1d = {
    .name = "conv1d",
    .kind = &sonde__op_conv2d,
    .inputs = 1,
    .preset = &flat,
    .fields = {CHANNELS, WINDOW_OF_ONE, GROUPS, BIAS},
    .help = "the convolution of (N, C, L)",
    .params = conv1d_params,
    .build = build_conv1d,
};

const sonde__op_layer sonde__layer_conv2d = {
    .name = "conv2d",
    .kind = &sonde__op_conv2d,
    .inputs = 1,
    .preset = &flat,
    .fields = {CHANNELS, WINDOW_OF(SONDE__FIELD_PAIR), GROUPS, BIAS},
    .help = "the convolution of (N, C, H, W); sizes are a number or [height, width]",
    .params = conv2d_params,
    .build = build_conv2d,
};

const sonde__op_layer sonde__layer_conv3d = {
    .name = "conv3d",
    .kind = &sonde__op_conv2d,
    .inputs = 1,
    .preset = &flat,
    .fields = {CHANNELS, WINDOW_OF(SONDE__FIELD_TRIPLE), GROUPS, BIAS},
    .help = "the convolution of (N, C, D, H, W); sizes are a number or [depth, height, "
            "width]",
    .params = conv3d_params,
    .build = build_conv3d,
};

const sonde__op_layer sonde__layer_conv_transpose1d = {
    .name = "conv_transpose1d",
    .kind = &sonde__op_conv_transpose2d,
    .inputs = 1,
    .preset = &flat,
    .fields = {CHANNELS, WINDOW_OF_ONE,
               SIZE("output_padding", SONDE__FIELD_WHOLE, dims[1], 0.0, 0), GROUPS, BIAS},
    .help = "the transposed convolution of (N, C, L); output_padding is less than stride",
    .params = transposed1d_params,
    .build = build_transposed1d,
};

const sonde__op_layer sonde__layer_conv_transpose2d = {
    .name = "conv_transpose2d",
    .kind = &sonde__op_conv_transpose2d,
    .inputs = 1,
    .preset = &flat,
    .fields = {CHANNELS, WINDOW_OF(SONDE__FIELD_PAIR),
               SIZE("output_padding", SONDE__FIELD_PAIR, dims, 0.0, 0), GROUPS, BIAS},
    .help = "the transposed convolution of (N, C, H, W); output_padding is less than "
            "stride",
    .params = transposed2d_params,
    .build = build_transposed2d,
};

/*
 * window_layers.c - convolutions of one, two and three dimensions, transposed convolutions
 * of one and two, and pools of one and three, with the parameters of torch.nn.Conv1d ...
 * AvgPool3d.
 *
 * All are made of the ops of two dimensions. One dimension is a height of 1. A convolution
 * of three has the places of each window in depth side by side as channels; a pool of three
 * takes the planes first, then the depth.
 */
#include "base/fail.h"
#include "nn/ops/common.h"
#include "nn/ops/layer_row.h"
#include "nn/ops/remap.h"

#include <math.h>

typedef const sonde__op_builder builder;
typedef sonde__op_value value;

static const char *const forms[] = {NULL, "(N, C, L)", "(N, C, H, W)", "(N, C, D, H, W)"};

static sonde__op_shape shape_of(builder *b, value x)
{
    return x == 0 ? (sonde__op_shape){.rank = 0} : *sonde__op_value_shape(b->graph, x);
}

/* --- one dimension as two ------------------------------------------------------------- */

/* (N, C, L) as (N, C, 1, L), and back. */
static value with_height(builder *b, value x)
{
    const sonde__op_shape s = shape_of(b, x);

    return sonde__op_build_reshape(b, x, 4, -1, s.dim[1], 1, s.dim[2]);
}

static value without_height(builder *b, value x)
{
    const sonde__op_shape s = shape_of(b, x);

    return sonde__op_build_reshape(b, x, 3, -1, s.dim[1], s.dim[3]);
}

/* --- convolutions: parameters --------------------------------------------------------- */

static bool divides(const sonde__op_shape *x, const sonde__op_attrs *attrs)
{
    return x->dim[1] % attrs->window.groups == 0 &&
           attrs->window.out_channels % attrs->window.groups == 0;
}

/* PyTorch counts the second dimension of the weights and the kernel as what an output
 * reads. */
static int conv_params(const sonde__op_shape *x, const sonde__op_attrs *attrs,
                       sonde__op_param params[SONDE__MAX_PARAMS])
{
    const struct sonde__attrs_window *w = &attrs->window;
    const int64_t sizes[3] = {w->kernel[2], w->kernel[0], w->kernel[1]};
    const int64_t first = w->transposed ? x->dim[1] : w->out_channels;
    const int64_t channels = (w->transposed ? w->out_channels : x->dim[1]) / w->groups;
    double reads = (double)channels;

    if (x->rank != 2 + w->spatial || x->dim[1] < 1 || !divides(x, attrs)) {
        return 0;
    }
    params[0] = (sonde__op_param){.suffix = "weight",
                                  .role = SONDE_ROLE_WEIGHT,
                                  .rank = x->rank,
                                  .dim = {first, (int64_t)reads}};
    for (int i = 0; i < w->spatial; i++) {
        params[0].dim[2 + i] = sizes[3 - w->spatial + i];
        reads *= (double)params[0].dim[2 + i];
    }
    params[0].bound = (float)(1.0 / sqrt(reads));
    params[1] = (sonde__op_param){.suffix = "bias",
                                  .role = SONDE_ROLE_BIAS,
                                  .rank = 1,
                                  .dim = {w->out_channels},
                                  .bound = params[0].bound};
    return w->bias ? 2 : 1;
}

/* --- convolutions: ops ---------------------------------------------------------------- */

static bool expect_input(builder *b, const sonde__op_attrs *attrs, value x)
{
    const struct sonde__attrs_window *w = &attrs->window;
    const sonde__op_shape s = shape_of(b, x);

    if (sonde__op_expect_rank(&s, 2 + w->spatial, "input", forms[w->spatial], b->diag) !=
        SONDE_OK) {
        return false;
    }
    if (!divides(&s, attrs)) {
        (void)sonde__fail(b->diag, SONDE_EINVAL, NULL, "a divisor of both channel counts",
                          "%lld groups of %lld input and %lld output channels",
                          (long long)w->groups, (long long)s.dim[1],
                          (long long)w->out_channels);
        return false;
    }
    return true;
}

static value emit_planes(builder *b, const sonde__op_attrs *attrs, value x, value w,
                         value bias)
{
    if (!attrs->window.transposed) {
        return x == 0 || w == 0 ? 0
                                : b->emit(b, &sonde__op_conv2d, attrs,
                                          (value[]){x, w, bias}, bias != 0 ? 3 : 2);
    }
    x = sonde__op_build(b, &sonde__op_conv_transpose2d, attrs, (value[]){x, w}, 2);
    return bias == 0
               ? x
               : sonde__op_build(b, &sonde__op_channel_add, NULL, (value[]){x, bias}, 2);
}

/* (N, C, D, H, W) as (N D', C kd, H, W): the rows of depth of each window are channels. */
static value windows_in_depth(builder *b, const struct sonde__attrs_window *w, value x)
{
    const sonde__op_shape s = shape_of(b, x);
    const int64_t kernel = w->kernel[2];

    x = sonde__op_build(b, &sonde__op_remap,
                        &(sonde__op_attrs){.remap = {.axis = 2,
                                                     .map = SONDE__REMAP_WINDOWS,
                                                     .count = kernel,
                                                     .stride = w->stride[2],
                                                     .before = w->padding[2],
                                                     .dilation = w->dilation[2]}},
                        &x, 1);
    x = sonde__op_build_reshape(b, x, 6, -1, s.dim[1], shape_of(b, x).dim[2] / kernel,
                                kernel, s.dim[3], s.dim[4]);
    x = sonde__op_build(
        b, &sonde__op_transpose,
        &(sonde__op_attrs){.shape = {.rank = 6, .dims = {0, 2, 1, 3, 4, 5}}}, &x, 1);
    return sonde__op_build_reshape(b, x, 4, -1, s.dim[1] * kernel, s.dim[3], s.dim[4]);
}

static value emit_volumes(builder *b, const sonde__op_attrs *attrs, const value *in)
{
    const struct sonde__attrs_window *a = &attrs->window;
    const sonde__op_shape x = shape_of(b, in[0]), w = shape_of(b, in[1]);
    const sonde__op_attrs deep = {.window = {.kernel = {a->kernel[2]},
                                             .stride = {a->stride[2]},
                                             .padding = {a->padding[2]},
                                             .dilation = {a->dilation[2]}}};
    int64_t depth = 0;
    const value folded = windows_in_depth(b, a, in[0]);
    const value weight = sonde__op_build_reshape(
        b, in[1], 4, w.dim[0], w.dim[1] * a->kernel[2], a->kernel[0], a->kernel[1]);

    if (sonde__op_window_count(&deep, 0, x.dim[2], &depth, b->diag) != SONDE_OK) {
        return 0;
    }
    value y = emit_planes(b, attrs, folded, weight, in[2]);
    const sonde__op_shape s = shape_of(b, y);
    y = sonde__op_build_reshape(b, y, 5, -1, depth, s.dim[1], s.dim[2], s.dim[3]);
    return sonde__op_build(
        b, &sonde__op_transpose,
        &(sonde__op_attrs){.shape = {.rank = 5, .dims = {0, 2, 1, 3, 4}}}, &y, 1);
}

static value build_conv(builder *b, sonde__op_attrs *attrs, const value *in)
{
    if (!expect_input(b, attrs, in[0])) {
        return 0;
    }
    switch (attrs->window.spatial) {
    case 1:
        return without_height(b, emit_planes(b, attrs, with_height(b, in[0]),
                                             with_height(b, in[1]), in[2]));
    case 2:
        return emit_planes(b, attrs, in[0], in[1], in[2]);
    default:
        return emit_volumes(b, attrs, in);
    }
}

/* --- pools ---------------------------------------------------------------------------- */

static value pool_volumes(builder *b, const sonde__op_kind *kind,
                          const sonde__op_attrs *attrs, value x)
{
    const struct sonde__attrs_window *a = &attrs->window;
    const sonde__op_shape s = shape_of(b, x);
    sonde__op_attrs depth = {.window = {.kernel = {a->kernel[2], 1},
                                        .stride = {a->stride[2], 1},
                                        .padding = {a->padding[2], 0},
                                        .dilation = {a->dilation[2], 1},
                                        .include_pad = a->include_pad}};

    x = sonde__op_build_reshape(b, x, 4, -1, s.dim[1] * s.dim[2], s.dim[3], s.dim[4]);
    x = sonde__op_build(b, kind, attrs, &x, 1);
    const sonde__op_shape pooled = shape_of(b, x);
    x = sonde__op_build_reshape(b, x, 4, -1, s.dim[1], s.dim[2],
                                pooled.dim[2] * pooled.dim[3]);
    if (kind == &sonde__op_adaptive_avg_pool2d) {
        depth.window.kernel[1] = pooled.dim[2] * pooled.dim[3];
    }
    x = sonde__op_build(b, kind, &depth, &x, 1);
    return sonde__op_build_reshape(b, x, 5, -1, s.dim[1], shape_of(b, x).dim[2],
                                   pooled.dim[2], pooled.dim[3]);
}

static value build_pool(builder *b, const sonde__op_kind *kind, sonde__op_attrs *attrs,
                        value x)
{
    const int spatial = attrs->window.spatial;
    const sonde__op_shape s = shape_of(b, x);

    sonde__op_window_strides(attrs);
    if (sonde__op_expect_rank(&s, 2 + spatial, "input", forms[spatial], b->diag) !=
        SONDE_OK) {
        return 0;
    }
    if (spatial == 3) {
        return pool_volumes(b, kind, attrs, x);
    }
    x = with_height(b, x);
    return without_height(b, sonde__op_build(b, kind, attrs, &x, 1));
}

static value build_max(builder *b, sonde__op_attrs *attrs, const value *in)
{
    return build_pool(b, &sonde__op_max_pool2d, attrs, in[0]);
}

static value build_avg(builder *b, sonde__op_attrs *attrs, const value *in)
{
    return build_pool(b, &sonde__op_avg_pool2d, attrs, in[0]);
}

static value build_adaptive(builder *b, sonde__op_attrs *attrs, const value *in)
{
    return build_pool(b, &sonde__op_adaptive_avg_pool2d, attrs, in[0]);
}

/* The elements at the places of the largest. */
static value build_adaptive_max(builder *b, sonde__op_attrs *attrs, const value *in)
{
    const struct sonde__attrs_window *w = &attrs->window;
    const sonde__op_shape s = shape_of(b, in[0]);
    const bool flat = w->spatial == 1;

    if (sonde__op_expect_rank(&s, 2 + w->spatial, "input", forms[w->spatial], b->diag) !=
        SONDE_OK) {
        return 0;
    }
    const value planes = flat ? with_height(b, in[0]) : in[0];
    const value places = sonde__op_build(b, &sonde__op_arg_window, attrs, &planes, 1);
    const value line =
        flat ? in[0]
             : sonde__op_build_reshape(b, in[0], 3, -1, s.dim[1], s.dim[2] * s.dim[3]);
    const value y =
        sonde__op_build(b, &sonde__op_gather, &(sonde__op_attrs){.index = {.axis = 2}},
                        (value[]){line, places}, 2);
    return flat ? y
                : sonde__op_build_reshape(b, y, 4, -1, s.dim[1], w->kernel[0],
                                          w->kernel[1]);
}

/* --- rows ----------------------------------------------------------------------------- */

#define PRESET(spatial_, transposed_)                                                    \
    &(const sonde__op_attrs)                                                             \
    {                                                                                    \
        .window = {                                                                      \
            .kernel = {1, 1},                                                            \
            .stride = {(spatial_) == 1, 0},                                              \
            .dilation = {1, 1, 1},                                                       \
            .groups = 1,                                                                 \
            .include_pad = true,                                                         \
            .spatial = (spatial_),                                                       \
            .transposed = (transposed_)                                                  \
        }                                                                                \
    }
#define SIZE(key, kind, member, fallback, least)                                         \
    SONDE__FIELD(key, kind, window.member, fallback, least, 1 << 24)
#define KERNEL(kind, at) SIZE("kernel_size", kind, kernel at, (double)NAN, 1)
#define OUTPUT(kind, at) SIZE("output_size", kind, kernel at, (double)NAN, 1)
#define STRIDE(kind_, at)                                                                \
    {                                                                                    \
        .key = "stride", .kind = (kind_),                                                \
        .offset = offsetof(sonde__op_attrs, window.stride at), .least = 1,               \
        .most = 1 << 24, .fallback_text = "kernel_size"                                  \
    }
#define PADDING(kind, at) SIZE("padding", kind, padding at, 0.0, 0)
#define DILATION(kind, at) SIZE("dilation", kind, dilation at, 1.0, 1)
#define INCLUDE                                                                          \
    SONDE__FIELD("count_include_pad", SONDE__FIELD_FLAG, window.include_pad, 1.0, 0, 1)
#define MORE(kind, at) SIZE("output_padding", kind, output_padding at, 0.0, 0),
/* The keys of a convolution; `more` is MORE(kind, at) or nothing. */
#define CONV_KEYS(kind, at, more)                                                        \
    {                                                                                    \
        SIZE("out_channels", SONDE__FIELD_WHOLE, out_channels, (double)NAN, 1),          \
            KERNEL(kind, at), SIZE("stride", kind, stride at, 1.0, 1),                   \
            PADDING(kind, at), DILATION(kind, at),                                       \
            more SIZE("groups", SONDE__FIELD_WHOLE, groups, 1.0, 1),                     \
            SONDE__FIELD("bias", SONDE__FIELD_FLAG, window.bias, 1.0, 0, 1)              \
    }
#define CONV(name_, kind_, spatial, transposed, help_, ...)                              \
    {                                                                                    \
        .name = (name_), .kind = &(kind_), .inputs = 1,                                  \
        .preset = PRESET(spatial, transposed), .fields = __VA_ARGS__, .help = (help_),   \
        .params = conv_params, .build = build_conv                                       \
    }
#define POOL(name_, kind_, spatial, build_, help_, ...)                                  \
    {                                                                                    \
        .name = (name_), .kind = &(kind_), .inputs = 1,                                  \
        .preset = PRESET(spatial, false), .fields = {__VA_ARGS__}, .help = (help_),      \
        .build = (build_)                                                                \
    }

/* clang-format off */
const sonde__op_layer sonde__layer_conv1d = CONV("conv1d", sonde__op_conv2d, 1, false,
    "the convolution of (N, C, L)", CONV_KEYS(SONDE__FIELD_WHOLE, [1], ));
const sonde__op_layer sonde__layer_conv2d = CONV("conv2d", sonde__op_conv2d, 2, false,
    "the convolution of (N, C, H, W); sizes are a number or [height, width]",
    CONV_KEYS(SONDE__FIELD_PAIR, , ));
const sonde__op_layer sonde__layer_conv3d = CONV("conv3d", sonde__op_conv2d, 3, false,
    "the convolution of (N, C, D, H, W); sizes are a number or [depth, height, width]",
    CONV_KEYS(SONDE__FIELD_TRIPLE, , ));
const sonde__op_layer sonde__layer_conv_transpose1d = CONV("conv_transpose1d",
    sonde__op_conv_transpose2d, 1, true,
    "the transposed convolution of (N, C, L); output_padding is less than stride",
    CONV_KEYS(SONDE__FIELD_WHOLE, [1], MORE(SONDE__FIELD_WHOLE, [1])));
const sonde__op_layer sonde__layer_conv_transpose2d = CONV("conv_transpose2d",
    sonde__op_conv_transpose2d, 2, true,
    "the transposed convolution of (N, C, H, W); output_padding is less than stride",
    CONV_KEYS(SONDE__FIELD_PAIR, , MORE(SONDE__FIELD_PAIR, )));

const sonde__op_layer sonde__layer_max_pool1d = POOL("max_pool1d", sonde__op_max_pool2d, 1,
    build_max, "the largest of each window of (N, C, L)",
    KERNEL(SONDE__FIELD_WHOLE, [1]), STRIDE(SONDE__FIELD_WHOLE, [1]),
    PADDING(SONDE__FIELD_WHOLE, [1]), DILATION(SONDE__FIELD_WHOLE, [1]));
const sonde__op_layer sonde__layer_avg_pool1d = POOL("avg_pool1d", sonde__op_avg_pool2d, 1,
    build_avg, "the mean of each window of (N, C, L)",
    KERNEL(SONDE__FIELD_WHOLE, [1]), STRIDE(SONDE__FIELD_WHOLE, [1]),
    PADDING(SONDE__FIELD_WHOLE, [1]), INCLUDE);
const sonde__op_layer sonde__layer_adaptive_avg_pool1d = POOL("adaptive_avg_pool1d",
    sonde__op_adaptive_avg_pool2d, 1, build_adaptive,
    "the mean of each of output_size windows of (N, C, L)", OUTPUT(SONDE__FIELD_WHOLE, [1]));
SONDE__LAYER(max_pool2d, max_pool2d, 1, "the largest element of each window",
    .fields = {KERNEL(SONDE__FIELD_PAIR, ), STRIDE(SONDE__FIELD_PAIR, ),
               PADDING(SONDE__FIELD_PAIR, ), DILATION(SONDE__FIELD_PAIR, )});
SONDE__LAYER(avg_pool2d, avg_pool2d, 1, "the mean of each window",
    .fields = {KERNEL(SONDE__FIELD_PAIR, ), STRIDE(SONDE__FIELD_PAIR, ),
               PADDING(SONDE__FIELD_PAIR, ), INCLUDE});
SONDE__LAYER(adaptive_avg_pool2d, adaptive_avg_pool2d, 1,
    "the mean of each of output_size windows", .fields = {OUTPUT(SONDE__FIELD_PAIR, )});
const sonde__op_layer sonde__layer_adaptive_max_pool1d = POOL("adaptive_max_pool1d",
    sonde__op_arg_window, 1, build_adaptive_max,
    "the largest of each of output_size windows of (N, C, L)",
    OUTPUT(SONDE__FIELD_WHOLE, [1]));
const sonde__op_layer sonde__layer_adaptive_max_pool2d = POOL("adaptive_max_pool2d",
    sonde__op_arg_window, 2, build_adaptive_max,
    "the largest of each of output_size windows", OUTPUT(SONDE__FIELD_PAIR, ));
const sonde__op_layer sonde__layer_max_pool3d = POOL("max_pool3d", sonde__op_max_pool2d, 3,
    build_max, "the largest of each window of (N, C, D, H, W); sizes are a number or "
    "[depth, height, width]",
    KERNEL(SONDE__FIELD_TRIPLE, ), STRIDE(SONDE__FIELD_TRIPLE, ),
    PADDING(SONDE__FIELD_TRIPLE, ), DILATION(SONDE__FIELD_TRIPLE, ));
const sonde__op_layer sonde__layer_avg_pool3d = POOL("avg_pool3d", sonde__op_avg_pool2d, 3,
    build_avg, "the mean of each window of (N, C, D, H, W)",
    KERNEL(SONDE__FIELD_TRIPLE, ), STRIDE(SONDE__FIELD_TRIPLE, ),
    PADDING(SONDE__FIELD_TRIPLE, ), INCLUDE);
const sonde__op_layer sonde__layer_adaptive_avg_pool3d = POOL("adaptive_avg_pool3d",
    sonde__op_adaptive_avg_pool2d, 3, build_adaptive,
    "the mean of each of output_size windows of (N, C, D, H, W)",
    OUTPUT(SONDE__FIELD_TRIPLE, ));
/* clang-format on */

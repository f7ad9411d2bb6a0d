/*
 * onnx_layers.c - ONNX ops with parameters: convolutions, matrix products, norms, pools,
 * embeddings, PReLU.
 */
#include "base/macros.h"
#include "nn/onnx/onnx_ops.h"

#include <math.h>
#include <string.h>

static const sonde__onnx_pair none = {0, 0};

/* --- windows ----------------------------------------------------------------------------- */

/* A window that moves over one to three dimensions, which are the last ones of three; the
 * others have a size of 1. */
enum { SPACE = 3, FLAT = SPACE - 2 /* where the last two begin */ };
typedef struct window {
    int dims;
    int64_t kernel[SPACE], stride[SPACE], dilation[SPACE];
    int64_t begin[SPACE], end[SPACE]; /* padding */
    int64_t size[SPACE];              /* of the input */
} window;

/* The attribute's numbers in the last places. */
static bool read_sizes(sonde__onnx_node *node, const char *name, int dims, int64_t least,
                       int64_t *sizes)
{
    int64_t given[SPACE];
    size_t count = 0;

    if (!sonde__onnx_ints(node, name, given, SPACE, &count)) {
        return false;
    }
    if (count != 0 && count != (size_t)dims) {
        return sonde__onnx_refuse(node, SONDE_EINVAL, NULL, "%s has %zu numbers", name,
                                  count);
    }
    for (size_t i = 0; i < count; i++) {
        if (given[i] < least || given[i] > INT32_MAX) {
            return sonde__onnx_refuse(node, SONDE_EINVAL,
                                      least == 1 ? "1 or more" : "0 or more",
                                      "%s is %lld", name, (long long)given[i]);
        }
        sizes[SPACE - count + i] = given[i];
    }
    return true;
}

static int64_t span(const window *w, int d)
{
    return w->dilation[d] * (w->kernel[d] - 1) + 1;
}

/* The padding of auto_pad, so that there are size / stride windows, rounded up. */
static void pad_same(window *w, bool upper)
{
    for (int d = SPACE - w->dims; d < SPACE; d++) {
        const int64_t count = (w->size[d] + w->stride[d] - 1) / w->stride[d];
        const int64_t needed = (count - 1) * w->stride[d] + span(w, d) - w->size[d];
        const int64_t pad = SONDE_MAX(needed, 0);

        w->begin[d] = upper ? pad / 2 : pad - pad / 2;
        w->end[d] = pad - w->begin[d];
    }
}

static bool read_padding(sonde__onnx_node *node, window *w)
{
    int64_t pads[2 * SPACE];
    size_t count = 0;

    if (!sonde__onnx_ints(node, "pads", pads, SONDE_COUNT_OF(pads), &count)) {
        return false;
    }
    if (count != 0 && count != 2 * (size_t)w->dims) {
        return sonde__onnx_refuse(node, SONDE_EINVAL, NULL, "pads has %zu numbers",
                                  count);
    }
    for (size_t i = 0; i < count; i++) {
        const size_t half = count / 2, d = SPACE - half + i % half;

        if (pads[i] < 0 || pads[i] > INT32_MAX) {
            return sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, "0 or more",
                                      "a padding of %lld", (long long)pads[i]);
        }
        *(i < half ? &w->begin[d] : &w->end[d]) = pads[i];
    }
    if (sonde__onnx_says(node, "auto_pad", "NOTSET", "SAME_UPPER") ||
        sonde__onnx_says(node, "auto_pad", "NOTSET", "SAME_LOWER")) {
        pad_same(w, sonde__onnx_says(node, "auto_pad", "NOTSET", "SAME_UPPER"));
    }
    return true;
}

/* Rounding up makes the same number of windows as rounding down: the last window does not
 * hang over. */
static bool check_ceil(sonde__onnx_node *node, const window *w)
{
    for (int d = SPACE - w->dims; d < SPACE; d++) {
        const int64_t room = w->size[d] + w->begin[d] + w->end[d] - span(w, d);

        if (room % w->stride[d] != 0 && sonde__onnx_int(node, "ceil_mode", 0) != 0) {
            return sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, "ceil_mode 0",
                                      "ceil_mode with a window that hangs over the edge");
        }
    }
    return true;
}

static bool check_even(sonde__onnx_node *node, const window *w)
{
    for (int d = 0; d < SPACE; d++) {
        if (w->begin[d] != w->end[d]) {
            return sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, "the same on both sides",
                                      "a padding of %lld and %lld",
                                      (long long)w->begin[d], (long long)w->end[d]);
        }
    }
    return true;
}

/* Over at most `most` dimensions of x. */
static bool read_window(sonde__onnx_node *node, sonde__onnx_pair x, int most, window *w)
{
    sonde__onnx_number dims[SONDE_MAX_DIMS] = {{0}};
    const int rank = sonde__onnx_shape(node, x, dims);

    w->dims = rank - 2;
    if (rank < 3 || w->dims > most) {
        return sonde__onnx_refuse(node, SONDE_EUNSUPPORTED,
                                  most == SPACE ? "(N, C, L), (N, C, H, W) or "
                                                  "(N, C, D, H, W)"
                                                : "(N, C, L) or (N, C, H, W)",
                                  "an input of %d dimensions", rank);
    }
    for (int d = 0; d < SPACE; d++) {
        const int place = rank - SPACE + d;

        w->stride[d] = w->dilation[d] = 1;
        w->size[d] = d < SPACE - w->dims ? 1 : (int64_t)dims[place].base;
    }
    return read_sizes(node, "kernel_shape", w->dims, 1, w->kernel) &&
           read_sizes(node, "strides", w->dims, 1, w->stride) &&
           read_sizes(node, "dilations", w->dims, 1, w->dilation) &&
           read_padding(node, w) && check_ceil(node, w) &&
           (most == SPACE || check_even(node, w));
}

/* x with zeros where the padding of a dimension differs from side to side; there is none
 * in w then. */
static sonde__onnx_pair make_even(sonde__onnx_node *node, sonde__onnx_pair x, window *w)
{
    sonde_nn_setting pads = {.key = "pad"};
    bool odd = false;

    for (int d = SPACE; d-- > SPACE - w->dims;) {
        const bool differs = w->begin[d] != w->end[d];

        pads.values[pads.count++] = differs ? (double)w->begin[d] : 0.0;
        pads.values[pads.count++] = differs ? (double)w->end[d] : 0.0;
        w->begin[d] = differs ? 0 : w->begin[d];
        w->end[d] = differs ? 0 : w->end[d];
        odd = odd || differs;
    }
    return odd ? sonde__onnx_emit(node, "pad", &x, 1, &pads, 1) : x;
}

/* (N, C, L) as (N, C, 1, L), and back. */
static sonde__onnx_pair widen(sonde__onnx_node *node, sonde__onnx_pair x)
{
    sonde__onnx_number dims[SONDE_MAX_DIMS] = {{0}};

    if (x.model == 0 || sonde__onnx_shape(node, x, dims) != 3) {
        return x;
    }
    dims[3] = dims[2];
    dims[2] = (sonde__onnx_number){1.0, 0.0};
    return sonde__onnx_reshape(node, x, 4, dims);
}

static sonde__onnx_pair narrow(sonde__onnx_node *node, sonde__onnx_pair x,
                               const window *w)
{
    sonde__onnx_number dims[SONDE_MAX_DIMS] = {{0}};

    if (x.model == 0 || w->dims != 1 || sonde__onnx_shape(node, x, dims) != 4) {
        return x;
    }
    dims[2] = dims[3];
    return sonde__onnx_reshape(node, x, 3, dims);
}

/* Input, weight and bias of a convolution; the weight's dims give the kernel of w. */
static bool take_conv(sonde__onnx_node *node, int most, sonde__onnx_pair in[3], window *w,
                      sonde__onnx_number dims[SONDE_MAX_DIMS])
{
    sonde__onnx_number own[SONDE_MAX_DIMS] = {{0}};
    int rank = 0;

    in[0] = sonde__onnx_take(node, 0, SONDE_ROLE_ACTIVATION);
    in[1] = sonde__onnx_take(node, 1, SONDE_ROLE_WEIGHT);
    in[2] = sonde__onnx_has_input(node, 2)
                ? sonde__onnx_take_own(node, 2, SONDE_ROLE_BIAS, "bias")
                : none;
    if (node->import->err != SONDE_OK) {
        return false;
    }
    rank = sonde__onnx_shape(node, in[1], dims);
    if (rank < 3 || rank > 2 + most) {
        return sonde__onnx_refuse(node, SONDE_EUNSUPPORTED,
                                  most == SPACE ? "one to three" : "one or two",
                                  "a convolution over %d dimensions", rank - 2);
    }
    if (sonde__onnx_shape(node, in[0], own) != rank) {
        return sonde__onnx_refuse(node, SONDE_ESHAPE, "the same number",
                                  "an input of %d and a weight of %d dimensions",
                                  sonde__onnx_shape(node, in[0], own), rank);
    }
    for (int d = 0; d < SPACE; d++) {
        w->kernel[d] = d < SPACE + 2 - rank ? 1 : (int64_t)dims[rank - SPACE + d].base;
    }
    return read_window(node, in[0], most, w);
}

static bool give_conv3d(sonde__onnx_node *node, const sonde__onnx_pair in[3],
                        const window *w, double channels)
{
    const bool bias = in[2].model != 0;
    const sonde_nn_setting settings[] = {
        SONDE__ONNX_SET("groups", sonde__onnx_int(node, "group", 1)),
        SONDE__ONNX_SET("out_channels", channels),
        SONDE__ONNX_SET("bias", bias),
        sonde__onnx_setting("kernel_size", w->kernel, SPACE),
        sonde__onnx_setting("stride", w->stride, SPACE),
        sonde__onnx_setting("padding", w->begin, SPACE),
        sonde__onnx_setting("dilation", w->dilation, SPACE)};

    return sonde__onnx_give(node, 0,
                            sonde__onnx_emit(node, "conv3d", in, bias ? 3 : 2, settings,
                                             SONDE_COUNT_OF(settings)));
}

static bool build_conv(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    sonde__onnx_number dims[SONDE_MAX_DIMS] = {{0}};
    sonde__onnx_pair in[3];
    window w = {.dims = 2};
    sonde_nn_setting settings[4];

    if (!take_conv(node, SPACE, in, &w, dims)) {
        return false;
    }
    in[0] = make_even(node, in[0], &w);
    if (w.dims == SPACE) {
        return give_conv3d(node, in, &w, dims[0].base);
    }
    settings[0] = sonde__onnx_setting("stride", w.stride + FLAT, 2);
    settings[1] = sonde__onnx_setting("padding", w.begin + FLAT, 2);
    settings[2] = sonde__onnx_setting("dilation", w.dilation + FLAT, 2);
    settings[3] =
        (sonde_nn_setting)SONDE__ONNX_SET("groups", sonde__onnx_int(node, "group", 1));
    in[0] = widen(node, in[0]);
    in[1] = widen(node, in[1]);
    return sonde__onnx_give(
        node, 0,
        narrow(
            node,
            sonde__onnx_emit(node, op->kind, in, in[2].model != 0 ? 3 : 2, settings, 4),
            &w));
}

/* more: output_padding. */
static bool give_transposed(sonde__onnx_node *node, const sonde__onnx_op *op,
                            const sonde__onnx_pair in[3], const window *w,
                            const int64_t *more, double channels)
{
    const bool bias = in[2].model != 0;
    const sonde_nn_setting settings[] = {
        SONDE__ONNX_SET("groups", sonde__onnx_int(node, "group", 1)),
        SONDE__ONNX_SET("out_channels", channels),
        SONDE__ONNX_SET("bias", bias),
        sonde__onnx_setting("kernel_size", w->kernel + FLAT, 2),
        sonde__onnx_setting("stride", w->stride + FLAT, 2),
        sonde__onnx_setting("padding", w->begin + FLAT, 2),
        sonde__onnx_setting("dilation", w->dilation + FLAT, 2),
        sonde__onnx_setting("output_padding", more + FLAT, 2)};

    return sonde__onnx_give(node, 0,
                            narrow(node,
                                   sonde__onnx_emit(node, op->kind, in, bias ? 3 : 2,
                                                    settings, SONDE_COUNT_OF(settings)),
                                   w));
}

static bool build_transposed(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    sonde__onnx_number dims[SONDE_MAX_DIMS] = {{0}};
    int64_t more[SPACE] = {0};
    sonde__onnx_pair in[3];
    window w = {.dims = 2};

    if (sonde__onnx_attribute(node, "output_shape") != NULL) {
        return sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, "pads and output_padding",
                                  "it has output_shape");
    }
    if (sonde__onnx_says(node, "auto_pad", "NOTSET", "SAME_UPPER") ||
        sonde__onnx_says(node, "auto_pad", "NOTSET", "SAME_LOWER")) {
        return sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, "NOTSET or VALID",
                                  "auto_pad is SAME");
    }
    if (!take_conv(node, 2, in, &w, dims) ||
        !read_sizes(node, "output_padding", w.dims, 0, more)) {
        return false;
    }
    in[0] = widen(node, in[0]);
    in[1] = widen(node, in[1]);
    return give_transposed(node, op, in, &w, more,
                           dims[1].base * (double)sonde__onnx_int(node, "group", 1));
}

static bool build_pool(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    sonde__onnx_pair x = sonde__onnx_take(node, 0, SONDE_ROLE_ACTIVATION);
    const bool mean = strcmp(op->name, "AveragePool") == 0;
    window w = {.dims = 2, .kernel = {1, 1, 1}};
    sonde_nn_setting settings[4];

    if (x.model == 0 || !read_window(node, x, 2, &w)) {
        return false;
    }
    if (mean && (w.dilation[FLAT] != 1 || w.dilation[FLAT + 1] != 1)) {
        return sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, "1", "dilations");
    }
    settings[0] = sonde__onnx_setting("kernel_size", w.kernel + FLAT, 2);
    settings[1] = sonde__onnx_setting("stride", w.stride + FLAT, 2);
    settings[2] = sonde__onnx_setting("padding", w.begin + FLAT, 2);
    settings[3] = mean ? (sonde_nn_setting)SONDE__ONNX_SET(
                             "count_include_pad",
                             sonde__onnx_int(node, "count_include_pad", 0) != 0)
                       : sonde__onnx_setting("dilation", w.dilation + FLAT, 2);
    x = widen(node, x);
    return sonde__onnx_give(
        node, 0, narrow(node, sonde__onnx_emit(node, op->kind, &x, 1, settings, 4), &w));
}

/* Over all dimensions after the channels. */
static bool build_global_pool(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    const sonde__onnx_pair x = sonde__onnx_take(node, 0, SONDE_ROLE_ACTIVATION);
    sonde__onnx_number dims[SONDE_MAX_DIMS] = {{0}};
    const int rank = sonde__onnx_shape(node, x, dims);
    int64_t axes[SONDE_MAX_DIMS] = {0};
    sonde_nn_setting settings[2] = {SONDE__ONNX_SET("keepdim", 1)};

    if (x.model == 0 || rank < 3) {
        return sonde__onnx_refuse(node, SONDE_ESHAPE, "(N, C, ...)",
                                  "an input of %d dimensions", rank);
    }
    for (int i = 2; i < rank; i++) {
        axes[i - 2] = i;
    }
    settings[1] = sonde__onnx_setting("dim", axes, (size_t)rank - 2);
    return sonde__onnx_give(node, 0,
                            sonde__onnx_emit(node, op->kind, &x, 1, settings, 2));
}

/* --- products ----------------------------------------------------------------------------- */

/* Element k of the transpose of a matrix of *rows columns. */
static size_t transposed(const void *user, size_t k)
{
    const int64_t *dim = user; /* of the transpose */
    const size_t width = (size_t)dim[1], height = (size_t)dim[0];

    return k % width * height + k / width;
}

/* Input i, an initialiser (K, O) that an exporter transposed, as a weight (O, K). */
static bool turn_weight(sonde__onnx_node *node, size_t i, sonde__onnx_pair *weight)
{
    sonde__onnx_slot *slot = sonde__onnx_input(node, i);
    sonde__onnx_arrangement arrangement = {
        .suffix = "weight", .role = SONDE_ROLE_WEIGHT, .rank = 2, .place = transposed};

    if (slot == NULL || slot->initial == NULL || slot->value.model != 0 ||
        slot->initial->n_dims != 2 || node->module[0] == '\0' ||
        strchr(slot->name, '.') != NULL) {
        return false;
    }
    arrangement.dim[0] = slot->initial->dims[1];
    arrangement.dim[1] = slot->initial->dims[0];
    arrangement.user = arrangement.dim;
    if (slot->turned.model == 0) {
        slot->turned = sonde__onnx_arrange(node, i, &arrangement);
    }
    node->owns = true;
    *weight = slot->turned;
    return true;
}

/* x wᵀ over the last dimension. */
static sonde__onnx_pair apply_weight(sonde__onnx_node *node, sonde__onnx_pair x,
                                     sonde__onnx_pair weight)
{
    sonde__onnx_number dims[SONDE_MAX_DIMS] = {{0}}, out[SONDE_MAX_DIMS] = {{0}};
    const int rank = sonde__onnx_shape(node, x, dims);
    sonde__onnx_pair in[2] = {x, weight};
    sonde__onnx_number flat[2] = {{-1.0, 0.0}};

    if (x.model == 0 || weight.model == 0 || rank < 1) {
        return none;
    }
    (void)sonde__onnx_shape(node, weight, out);
    flat[1] = dims[rank - 1];
    if (rank != 2) {
        in[0] = sonde__onnx_reshape(node, x, 2, flat);
    }
    in[0] = sonde__onnx_emit(node, "linear", in, 2, NULL, 0);
    dims[rank - 1] = out[0];
    return rank == 2 || in[0].model == 0 ? in[0]
                                         : sonde__onnx_reshape(node, in[0], rank, dims);
}

static bool build_matmul(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    sonde__onnx_pair in[2] = {sonde__onnx_take(node, 0, SONDE_ROLE_WEIGHT), none};
    sonde__onnx_number dims[SONDE_MAX_DIMS] = {{0}};
    int rank[2];

    if (in[0].model != 0 && turn_weight(node, 1, &in[1])) {
        return sonde__onnx_give(node, 0, apply_weight(node, in[0], in[1]));
    }
    in[1] = sonde__onnx_take(node, 1, SONDE_ROLE_WEIGHT);
    if (in[0].model == 0 || in[1].model == 0) {
        return false;
    }
    rank[0] = sonde__onnx_shape(node, in[0], dims);
    rank[1] = sonde__onnx_shape(node, in[1], dims);
    if (rank[0] < 2 || rank[1] < 2) {
        return sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, "2 or more",
                                  "a product of values of %d and %d dimensions", rank[0],
                                  rank[1]);
    }
    return sonde__onnx_give(node, 0, sonde__onnx_emit(node, op->kind, in, 2, NULL, 0));
}

static const int64_t swapped[] = {1, 0};

/* alpha A' B' + beta C */
static bool build_gemm(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    const sonde_nn_setting alpha =
        SONDE__ONNX_SET("value", sonde__onnx_float(node, "alpha", 1.0));
    const sonde_nn_setting beta =
        SONDE__ONNX_SET("value", sonde__onnx_float(node, "beta", 1.0));
    const bool plain = alpha.values[0] == 1.0 && beta.values[0] == 1.0;
    sonde__onnx_number dims[SONDE_MAX_DIMS] = {{0}};
    sonde__onnx_pair in[3] = {sonde__onnx_take(node, 0, SONDE_ROLE_ACTIVATION), none,
                              none};
    sonde__onnx_pair sum[2] = {none, none};
    const bool bias = sonde__onnx_has_input(node, 2);
    bool direct = false;

    if (in[0].model != 0 && sonde__onnx_int(node, "transA", 0) != 0) {
        in[0] = sonde__onnx_permute(node, in[0], 2, swapped);
    }
    if (sonde__onnx_int(node, "transB", 0) != 0) {
        in[1] = sonde__onnx_take(node, 1, SONDE_ROLE_WEIGHT);
    } else if (!turn_weight(node, 1, &in[1])) {
        in[1] = sonde__onnx_take(node, 1, SONDE_ROLE_WEIGHT);
        in[1] = in[1].model != 0 ? sonde__onnx_permute(node, in[1], 2, swapped) : none;
    }
    if (bias) {
        in[2] = sonde__onnx_take_own(node, 2, SONDE_ROLE_BIAS, "bias");
    }
    if (in[0].model == 0 || in[1].model == 0 || node->import->err != SONDE_OK) {
        return false;
    }
    direct = bias && plain && sonde__onnx_shape(node, in[2], dims) == 1;
    sum[0] = sonde__onnx_emit(node, op->kind, in, direct ? 3 : 2, NULL, 0);
    if (alpha.values[0] != 1.0) {
        sum[0] = sonde__onnx_emit(node, "scale", sum, 1, &alpha, 1);
    }
    if (bias && !direct) {
        sum[1] = beta.values[0] == 1.0
                     ? in[2]
                     : sonde__onnx_emit(node, "scale", &in[2], 1, &beta, 1);
        sum[0] = sonde__onnx_emit(node, "add", sum, 2, NULL, 0);
    }
    return sonde__onnx_give(node, 0, sum[0]);
}

/* --- norms -------------------------------------------------------------------------------- */

static bool build_batch_norm(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    sonde__onnx_pair in[6];
    sonde_nn_setting settings[] = {
        SONDE__ONNX_SET("eps", sonde__onnx_float(node, "epsilon", 1e-5)),
        SONDE__ONNX_SET("momentum", 1.0 - sonde__onnx_float(node, "momentum", 0.9)),
        SONDE__ONNX_SET("affine", 1), SONDE__ONNX_SET("track_running_stats", 1)};

    in[0] = sonde__onnx_take(node, 0, SONDE_ROLE_ACTIVATION);
    in[1] = sonde__onnx_take_own(node, 1, SONDE_ROLE_WEIGHT, "weight");
    in[2] = sonde__onnx_take_own(node, 2, SONDE_ROLE_BIAS, "bias");
    in[3] = sonde__onnx_take_own(node, 3, SONDE_ROLE_BUFFER, "running_mean");
    in[4] = sonde__onnx_take_own(node, 4, SONDE_ROLE_BUFFER, "running_var");
    in[5] = sonde__onnx_buffer(node, "num_batches_tracked", SONDE_I64, 0, NULL, 0.0);
    return sonde__onnx_give(node, 0,
                            sonde__onnx_emit(node, op->kind, in, 6, settings, 4));
}

static bool build_instance_norm(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    const sonde__onnx_pair in[3] = {
        sonde__onnx_take(node, 0, SONDE_ROLE_ACTIVATION),
        sonde__onnx_take_own(node, 1, SONDE_ROLE_WEIGHT, "weight"),
        sonde__onnx_take_own(node, 2, SONDE_ROLE_BIAS, "bias")};
    const sonde_nn_setting settings[] = {
        SONDE__ONNX_SET("eps", sonde__onnx_float(node, "epsilon", 1e-5)),
        SONDE__ONNX_SET("affine", 1)};

    return sonde__onnx_give(node, 0,
                            sonde__onnx_emit(node, op->kind, in, 3, settings, 2));
}

static size_t in_place(const void *user, size_t k)
{
    (void)user;
    return k;
}

/* A parameter of each channel, which may be a column (C, 1, 1). */
static sonde__onnx_pair take_channels(sonde__onnx_node *node, size_t i, sonde_role role)
{
    const sonde__onnx_slot *slot = sonde__onnx_input(node, i);
    const bool column =
        slot != NULL && slot->initial != NULL && slot->initial->n_dims > 1;
    sonde__onnx_arrangement flat = {.suffix = role == SONDE_ROLE_BIAS ? "bias" : "weight",
                                    .role = role,
                                    .rank = 1,
                                    .place = in_place};

    if (!column) {
        return sonde__onnx_take_own(node, i, role, flat.suffix);
    }
    flat.dim[0] = slot->initial->dims[0];
    return sonde__onnx_arrange(node, i, &flat);
}

static bool build_group_norm(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    const sonde__onnx_pair in[3] = {sonde__onnx_take(node, 0, SONDE_ROLE_ACTIVATION),
                                    take_channels(node, 1, SONDE_ROLE_WEIGHT),
                                    take_channels(node, 2, SONDE_ROLE_BIAS)};
    const sonde_nn_setting settings[] = {
        SONDE__ONNX_SET("num_groups", sonde__onnx_int(node, "num_groups", 0)),
        SONDE__ONNX_SET("eps", sonde__onnx_float(node, "epsilon", 1e-5))};
    sonde__onnx_number dims[SONDE_MAX_DIMS] = {{0}}, own[SONDE_MAX_DIMS] = {{0}};

    if (node->import->err != SONDE_OK) {
        return false;
    }
    /* up to opset 20 the scale is of groups */
    if (sonde__onnx_shape(node, in[0], dims) < 2 ||
        sonde__onnx_shape(node, in[1], own) != 1 || own[0].base != dims[1].base) {
        return sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, "one of each channel",
                                  "a scale of groups");
    }
    return sonde__onnx_give(node, 0,
                            sonde__onnx_emit(node, op->kind, in, 3, settings, 2));
}

/* Over the dimensions from `axis` on. */
static bool build_layer_norm(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    const bool bias = sonde__onnx_has_input(node, 2);
    const sonde__onnx_pair in[3] = {
        sonde__onnx_take(node, 0, SONDE_ROLE_ACTIVATION),
        sonde__onnx_take_own(node, 1, SONDE_ROLE_WEIGHT, "weight"),
        bias ? sonde__onnx_take_own(node, 2, SONDE_ROLE_BIAS, "bias") : none};
    sonde__onnx_number dims[SONDE_MAX_DIMS] = {{0}};
    const int rank = sonde__onnx_shape(node, in[0], dims);
    int64_t axis = sonde__onnx_int(node, "axis", -1);
    sonde_nn_setting settings[] = {
        SONDE__ONNX_SET("eps", sonde__onnx_float(node, "epsilon", 1e-5)),
        {.key = "normalized_shape"},
        SONDE__ONNX_SET("elementwise_affine", 1),
        SONDE__ONNX_SET("bias", bias)};

    axis += axis < 0 ? rank : 0;
    if (node->import->err != SONDE_OK || axis < 1 || axis >= rank) {
        return sonde__onnx_refuse(node, SONDE_EINVAL,
                                  "a dimension after that of the batch",
                                  "axis %lld of %d dimensions", (long long)axis, rank);
    }
    for (int i = (int)axis; i < rank; i++) {
        settings[1].values[settings[1].count++] = dims[i].base;
    }
    return sonde__onnx_give(
        node, 0, sonde__onnx_emit(node, op->kind, in, bias ? 3 : 2, settings, 4));
}

/* --- others ------------------------------------------------------------------------------- */

static bool build_prelu(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    sonde__onnx_pair in[2] = {sonde__onnx_take(node, 0, SONDE_ROLE_ACTIVATION),
                              sonde__onnx_take(node, 1, SONDE_ROLE_WEIGHT)};
    sonde__onnx_number dims[SONDE_MAX_DIMS] = {{0}}, flat = {1.0, 0.0};
    sonde_nn_setting setting;

    if (in[0].model == 0 || in[1].model == 0) {
        return false;
    }
    for (int i = sonde__onnx_shape(node, in[1], dims); i-- > 0;) {
        flat.base *= dims[i].base;
    }
    in[1] = sonde__onnx_reshape(node, in[1], 1, &flat);
    setting = (sonde_nn_setting)SONDE__ONNX_SET("num_parameters", flat.base);
    return sonde__onnx_give(node, 0,
                            sonde__onnx_emit(node, op->kind, in, 2, &setting, 1));
}

const sonde__onnx_op sonde__onnx_layer_ops[] = {
    {"Conv", build_conv, "conv2d", {{0}}},
    {"ConvTranspose", build_transposed, "conv_transpose2d", {{0}}},
    {"MaxPool", build_pool, "max_pool2d", {{0}}},
    {"AveragePool", build_pool, "avg_pool2d", {{0}}},
    {"GlobalAveragePool", build_global_pool, "mean", {{0}}},
    {"GlobalMaxPool", build_global_pool, "amax", {{0}}},
    {"MatMul", build_matmul, "matmul", {{0}}},
    {"Gemm", build_gemm, "linear", {{0}}},
    {"BatchNormalization", build_batch_norm, "batch_norm", {{0}}},
    {"InstanceNormalization", build_instance_norm, "instance_norm", {{0}}},
    {"GroupNormalization", build_group_norm, "group_norm", {{0}}},
    {"LayerNormalization", build_layer_norm, "layer_norm", {{0}}},
    {"PRelu", build_prelu, "prelu", {{0}}},
    {NULL, NULL, NULL, {{0}}},
};

/*
 * batch_norm.c - batch normalization (Ioffe and Szegedy 2015), its gradient, and its
 * running statistics.
 *
 * For each channel c of x (N, C, ...), over its M = N * (L or H * W ...) elements:
 *
 *   mean = sum x / M,  var = sum (x - mean)^2 / M
 *   y = (x - mean) / sqrt(var + eps) weight[c] + bias[c]
 *
 * as torch.nn.functional.batch_norm. A session for inference takes running_mean and
 * running_var as mean and var, where the layer has them. With z = (x - mean) / sqrt(var +
 * eps) the gradient is
 *
 *   dweight[c] = sum dy z,  dbias[c] = sum dy
 *   dx = weight[c] / sqrt(var + eps) (dy - sum dy / M - z sum (dy z) / M)
 *
 * The buffers change after each micro-batch of a session for training:
 *
 *   num_batches_tracked += 1
 *   running_mean += f (mean - running_mean)
 *   running_var  += f (var M / (M - 1) - running_var)
 *
 * with f the momentum, or 1 / num_batches_tracked for momentum None: the mean over all
 * micro-batches. No gradient flows through the outputs mean and var.
 *
 * BatchNormRelu, which the fuse pass puts in the place of BatchNorm and ReLU, stores the
 * ReLU as it makes y, and y only where it is needed. Of x, y and their gradients in
 * bfloat16 or float16 everything else is float32.
 *
 * in: x, then weight and bias if attrs.norm.affine, then running_mean, running_var and
 * num_batches_tracked (int64) if attrs.norm.track.
 *
 * attrs: norm.
 */
#include "base/fail.h"
#include "nn/kernels/fast.h"
#include "nn/ops/common.h"
#include "nn/ops/layer_row.h"

#include <math.h>

/* --- shapes --------------------------------------------------------------------------- */

/* The channels of a tensor (N, C, ...). */
typedef struct channel_count {
    int64_t samples, channels, inner; /* inner: elements of a channel of a sample */
} channel_count;

static channel_count channels_of(const sonde__op_shape *x)
{
    return (channel_count){x->dim[0], x->dim[1], sonde__op_dims_product(x, 2, x->rank)};
}

static int64_t element_at(const channel_count *n, int64_t sample, int64_t channel)
{
    return (sample * n->channels + channel) * n->inner;
}

static sonde_err expect_channels(const sonde__op_shape *x, sonde__op_shape *channels,
                                 sonde_diag *diag)
{
    SONDE__TRY(sonde__op_expect_float(x, "input", diag));
    if (x->rank < 2) {
        return sonde__op_expect_rank(x, 2, "input", "(N, C, ...)", diag);
    }
    *channels =
        (sonde__op_shape){.dtype = sonde__op_is_half(x->dtype) ? SONDE_F32 : x->dtype,
                          .rank = 1,
                          .dim = {x->dim[1]}};
    return SONDE_OK;
}

static sonde_err batch_norm_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                  sonde_diag *diag)
{
    enum { NAMES = 5 };
    static const char *const names[NAMES] = {"weight", "bias", "running_mean",
                                             "running_var", "num_batches_tracked"};
    static const sonde__op_shape counter = {.dtype = SONDE_I64, .rank = 0};
    const sonde__op_shape *x = &call->in[0].shape;
    const int skipped = attrs->norm.affine ? 0 : 2;
    sonde__op_shape channels = {0};

    SONDE__TRY(expect_channels(x, &channels, diag));
    if (call->in_count < (attrs->norm.affine ? 3 : 1) + (attrs->norm.track ? 3 : 0)) {
        return sonde__fail(diag, SONDE_EINVAL, NULL,
                           "two tensors if affine, three if it tracks", "%d inputs",
                           call->in_count);
    }
    for (int i = 1; i < call->in_count && i + skipped <= NAMES; i++) {
        const int name = i - 1 + skipped;

        SONDE__TRY(sonde__op_expect_shape(
            &call->in[i].shape, name == 4 ? &counter : &channels, names[name], diag));
    }
    if (attrs->training && sonde__op_shape_count(x) == x->dim[1]) {
        char found[SONDE__SHAPE_TEXT];

        return sonde__fail(diag, SONDE_ESHAPE, NULL,
                           "more than 1 value per channel when training", "%s",
                           sonde__op_shape_text(x, found));
    }
    call->out[0].shape = *x;
    call->out[1].shape = call->out[2].shape = channels;
    return SONDE_OK;
}

/* --- forward -------------------------------------------------------------------------- */

static void moments_of(const sonde__operand *x, const channel_count *n, int64_t c,
                       double *mean, double *var)
{
    const double count = (double)(n->samples * n->inner);
    double sum = 0.0, squares = 0.0;

    for (int64_t s = 0; s < n->samples; s++) {
        for (int64_t i = 0; i < n->inner; i++) {
            sum += sonde__op_load(x, element_at(n, s, c) + i);
        }
    }
    *mean = sum / count;
    for (int64_t s = 0; s < n->samples; s++) {
        for (int64_t i = 0; i < n->inner; i++) {
            const double d = sonde__op_load(x, element_at(n, s, c) + i) - *mean;

            squares += d * d;
        }
    }
    *var = squares / count;
}

static void batch_norm_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__op_attrs *attrs = call->attrs;
    const channel_count n = channels_of(&call->in[0].shape);
    const int running = attrs->norm.affine ? 3 : 1;

    (void)part, (void)parts;
    for (int64_t c = 0; c < n.channels; c++) {
        const double weight = attrs->norm.affine ? sonde__op_load(&call->in[1], c) : 1.0;
        const double bias = attrs->norm.affine ? sonde__op_load(&call->in[2], c) : 0.0;
        double mean = 0.0, var = 0.0;

        if (attrs->norm.track && !attrs->training) {
            mean = sonde__op_load(&call->in[running], c);
            var = sonde__op_load(&call->in[running + 1], c);
        } else {
            moments_of(&call->in[0], &n, c, &mean, &var);
        }
        sonde__op_store(&call->out[1], c, mean);
        sonde__op_store(&call->out[2], c, var);
        for (int64_t s = 0; s < n.samples; s++) {
            for (int64_t i = 0; i < n.inner; i++) {
                const int64_t k = element_at(&n, s, c) + i;
                const double z = (sonde__op_load(&call->in[0], k) - mean) /
                                 sqrt(var + (double)attrs->norm.eps);

                sonde__op_store(&call->out[0], k, z * weight + bias);
            }
        }
    }
}

static void batch_norm_gradient(const sonde__op_gradient_context *context)
{
    const sonde__op_value in[] = {context->grad_out[0], context->in[0], context->out[1],
                                  context->out[2], context->in[1]};
    const bool affine = context->attrs->norm.affine;

    if (context->grad_out[0] == 0) {
        return; /* something reads the statistics only */
    }
    sonde__op_value dx = sonde__op_emit(context->graph, &sonde__op_batch_norm_grad,
                                        context->attrs, in, affine ? 5 : 4);
    for (sonde__op_value i = 0; i < (affine ? 3 : 1) && dx != 0; i++) {
        context->grad_in[i] = context->wanted[i] ? dx + i : 0;
    }
}

static void batch_norm_track(sonde__op_graph *graph, const sonde__op_attrs *attrs,
                             const sonde__op_value *in, const sonde__op_value *out)
{
    const sonde__op_value *running = &in[attrs->norm.affine ? 3 : 1];
    const sonde__op_shape *x = sonde__op_value_shape(graph, in[0]);
    sonde__op_attrs with = *attrs;

    if (attrs->norm.track) {
        with.norm.rank = x->rank;
        for (int i = 0; i < x->rank; i++) {
            with.norm.dims[i] = x->dim[i];
        }
        (void)sonde__op_emit(
            graph, &sonde__op_batch_norm_track, &with,
            (const sonde__op_value[]){running[0], running[1], running[2], out[1], out[2]},
            5);
    }
}

SONDE__OP(batch_norm, "BatchNorm", norm, 1, 6, 3, .out_names = {NULL, "Mean", "Variance"},
          .infer = batch_norm_infer, .gradient = batch_norm_gradient,
          .track = batch_norm_track, SONDE__REFERENCE(batch_norm_run),
          .fast = sonde__kernel_batch_norm_fast, .halves = SONDE__HALVES_LED,
          .half_kernels = sonde__kernel_batch_norm_half, .optional_out = 6);

/* --- and ReLU ------------------------------------------------------------------------- */

static sonde_err batch_norm_relu_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                       sonde_diag *diag)
{
    SONDE__TRY(batch_norm_infer(call, attrs, diag));
    call->out[3].shape = call->out[0].shape;
    return SONDE_OK;
}

/* The place of the ReLU serves y too where y is not wanted. */
static void batch_norm_relu_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t count = sonde__op_shape_count(&call->in[0].shape);
    sonde__op_call norm = *call;

    norm.out_count = 3;
    norm.out[0].data = call->out[call->out[0].data != NULL ? 0 : 3].data;
    if (norm.out[0].data == NULL) {
        return;
    }
    batch_norm_run(&norm, part, parts);
    for (int64_t i = 0; i < count; i++) {
        const double y = sonde__op_load(&norm.out[0], i);

        sonde__op_store(&call->out[3], i, y < 0.0 ? 0.0 : y);
    }
}

SONDE__OP(batch_norm_relu, "BatchNormRelu", norm, 1, 6, 4,
          .out_names = {NULL, "Mean", "Variance", "Relu"}, .infer = batch_norm_relu_infer,
          SONDE__REFERENCE(batch_norm_relu_run),
          .fast = sonde__kernel_batch_norm_relu_fast, .halves = SONDE__HALVES_LED,
          .half_kernels = sonde__kernel_batch_norm_relu_half, .optional_out = 7);

/* --- running statistics --------------------------------------------------------------- */

enum { COUNT = 2, MEAN_NOW = 3, VAR_NOW = 4 };

static sonde_err batch_norm_track_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                        sonde_diag *diag)
{
    static const sonde__op_shape counter = {.dtype = SONDE_I64, .rank = 0};
    sonde__op_shape x = {0}, channels = {0};

    SONDE__TRY(
        sonde__op_expect_dims(attrs, -1, call->in[0].shape.dtype, "input", &x, diag));
    SONDE__TRY(expect_channels(&x, &channels, diag));
    for (int i = 0; i < call->in_count; i++) {
        SONDE__TRY(sonde__op_expect_shape(&call->in[i].shape,
                                          i == COUNT ? &counter : &channels,
                                          "running statistic", diag));
    }
    for (int i = 0; i < 3; i++) {
        call->out[i].shape = call->in[i].shape;
    }
    return SONDE_OK;
}

static void batch_norm_track_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__op_attrs *attrs = call->attrs;
    const int64_t channels = call->in[0].shape.dim[0];
    int64_t *batches = call->in[COUNT].data;
    double elements = 1.0, factor = (double)attrs->norm.momentum;

    (void)part, (void)parts;
    for (int i = 0; i < attrs->norm.rank; i++) {
        elements *= i == 1 ? 1.0 : (double)attrs->norm.dims[i];
    }
    *batches += 1;
    if (isnan(factor)) {
        factor = 1.0 / (double)*batches;
    }
    for (int64_t c = 0; c < channels; c++) {
        const double var =
            sonde__op_load(&call->in[VAR_NOW], c) * elements / (elements - 1.0);

        sonde__op_store(&call->out[0], c,
                        (1.0 - factor) * sonde__op_load(&call->in[0], c) +
                            factor * sonde__op_load(&call->in[MEAN_NOW], c));
        sonde__op_store(&call->out[1], c,
                        (1.0 - factor) * sonde__op_load(&call->in[1], c) + factor * var);
    }
}

SONDE__OP(batch_norm_track, "BatchNormTrack", norm, 5, 5, 3,
          .out_names = {NULL, "RunningVar", "Batches"}, .infer = batch_norm_track_infer,
          SONDE__REFERENCE(batch_norm_track_run), .alias = {1, 2, 3});

/* --- gradient ------------------------------------------------------------------------- */

enum { DY = 0, X = 1, MEAN = 2, VAR = 3, WEIGHT = 4 };

static sonde_err batch_norm_grad_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                       sonde_diag *diag)
{
    const sonde__op_shape *x = &call->in[X].shape;
    sonde__op_shape channels = {0};

    (void)attrs;
    SONDE__TRY(expect_channels(x, &channels, diag));
    SONDE__TRY(sonde__op_expect_shape(&call->in[DY].shape, x, "output gradient", diag));
    for (int i = MEAN; i < call->in_count; i++) {
        SONDE__TRY(
            sonde__op_expect_shape(&call->in[i].shape, &channels, "statistic", diag));
    }
    call->out[0].shape = *x;
    call->out[1].shape = call->out[2].shape = channels;
    return SONDE_OK;
}

static void grad_of_channel(const sonde__op_call *call, const channel_count *n, int64_t c)
{
    const double count = (double)(n->samples * n->inner);
    const double mean = sonde__op_load(&call->in[MEAN], c);
    const double rstd =
        1.0 / sqrt(sonde__op_load(&call->in[VAR], c) + (double)call->attrs->norm.eps);
    const double weight =
        sonde__op_has_in(call, WEIGHT) ? sonde__op_load(&call->in[WEIGHT], c) : 1.0;
    double sum = 0.0, with_z = 0.0;

    for (int64_t k = 0; k < n->samples * n->inner; k++) {
        const int64_t i = element_at(n, k / n->inner, c) + k % n->inner;
        const double dy = sonde__op_load(&call->in[DY], i);

        sum += dy;
        with_z += dy * (sonde__op_load(&call->in[X], i) - mean) * rstd;
    }
    for (int64_t k = 0; k < n->samples * n->inner; k++) {
        const int64_t i = element_at(n, k / n->inner, c) + k % n->inner;
        const double z = (sonde__op_load(&call->in[X], i) - mean) * rstd;
        const double dy = sonde__op_load(&call->in[DY], i);

        sonde__op_store(&call->out[0], i,
                        weight * rstd * (dy - sum / count - z * with_z / count));
    }
    sonde__op_store(&call->out[1], c, with_z);
    sonde__op_store(&call->out[2], c, sum);
}

static void batch_norm_grad_run(const sonde__op_call *call, int part, int parts)
{
    const channel_count n = channels_of(&call->in[X].shape);

    (void)part, (void)parts;
    for (int64_t c = 0; c < n.channels; c++) {
        grad_of_channel(call, &n, c);
    }
}

SONDE__OP(batch_norm_grad, "BatchNormGrad", norm, 4, 5, 3,
          .out_names = {NULL, "GradWeight", "GradBias"}, .infer = batch_norm_grad_infer,
          SONDE__REFERENCE(batch_norm_grad_run),
          .fast = sonde__kernel_batch_norm_grad_fast, .halves = SONDE__HALVES_TAKEN,
          .half_kernels = sonde__kernel_batch_norm_grad_half);

/* --- layers --------------------------------------------------------------------------- */

/* Weight 1 and bias 0 of every channel, then the buffers. */
static int norm_params(const sonde__op_shape *x, const sonde__op_attrs *attrs,
                       sonde__op_param params[SONDE__MAX_PARAMS])
{
    static const sonde__op_param all[] = {
        {.suffix = "weight", .role = SONDE_ROLE_WEIGHT, .rank = 1, .constant = 1.0F},
        {.suffix = "bias", .role = SONDE_ROLE_BIAS, .rank = 1},
        {.suffix = "running_mean", .role = SONDE_ROLE_BUFFER, .rank = 1},
        {.suffix = "running_var", .role = SONDE_ROLE_BUFFER, .rank = 1, .constant = 1.0F},
        {.suffix = "num_batches_tracked", .role = SONDE_ROLE_BUFFER, .counts = true},
    };
    int count = 0;

    if (x->rank < 2) {
        return 0;
    }
    for (int i = attrs->norm.affine ? 0 : 2; i < (attrs->norm.track ? 5 : 2); i++) {
        params[count] = all[i];
        params[count++].dim[0] = all[i].rank > 0 ? x->dim[1] : 0;
    }
    return count;
}

SONDE__LAYER(
    batch_norm, batch_norm, 1,
    "(x - mean) / sqrt(variance + eps) of each channel, times weight, plus bias; "
    "mean and variance are the batch's in training, otherwise the running ones; "
    "momentum none: their mean",
    .fields = {SONDE__FIELD("eps", SONDE__FIELD_NUMBER, norm.eps, 1e-5, 0,
                            (double)INFINITY),
               {.key = "momentum",
                .kind = SONDE__FIELD_NUMBER,
                .offset = offsetof(sonde__op_attrs, norm.momentum),
                .fallback = 0.1,
                .least = 0,
                .most = 1,
                .may_be_none = true},
               SONDE__FIELD("affine", SONDE__FIELD_FLAG, norm.affine, 1.0, 0, 1),
               SONDE__FIELD("track_running_stats", SONDE__FIELD_FLAG, norm.track, 1.0, 0,
                            1)},
    .params = norm_params);

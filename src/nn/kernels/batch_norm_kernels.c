/*
 * batch_norm_kernels.c - batch normalisation and its gradient over LANES.
 *
 *   mean = sum x / M,  var = sum (x - mean)^2 / M,  rstd = 1 / sqrt(var + eps)
 *   y = (x - mean) rstd weight[c] + bias[c]
 *   dweight[c] = sum dy z,  dbias[c] = sum dy,  z = (x - mean) rstd
 *   dx = weight[c] rstd (dy - sum dy / M - z sum (dy z) / M)
 *
 * over the M elements of a channel in all samples. A part is a range of channels, so no
 * sum is divided among threads. Sums are those of norm_lanes.h for each lane, and in
 * double over blocks and then over the lanes that hold samples, in order.
 */
#include "base/isa.h"
#include "nn/kernels/fast.h"
#include "nn/kernels/norm_lanes.h"
#include "nn/kernels/lanes.h"

#include <math.h>

typedef struct layout {
    int64_t samples, blocks, channels, inner; /* inner: elements of a channel */
} layout;

static layout layout_of(const sonde__op_shape *x)
{
    layout n = {
        .samples = x->dim[0], .blocks = lanes_blocks(x->dim[0]), .channels = x->dim[1]};

    n.inner = lanes_inner(x) / n.channels;
    return n;
}

static int64_t offset_of(const layout *n, int64_t block, int64_t c)
{
    return (block * n->channels + c) * n->inner * LANES;
}

static void fill(float lanes[LANES], float value)
{
    for (int lane = 0; lane < LANES; lane++) {
        lanes[lane] = value;
    }
}

static double sum_of_lanes(const double *sums, int valid)
{
    double sum = 0.0;

    for (int lane = 0; lane < valid; lane++) {
        sum += sums[lane];
    }
    return sum;
}

static bool norm_accepts(const sonde__op_call *call)
{
    return lanes_is_f32(&call->in[0].shape, -1) && call->in[0].shape.rank >= 2;
}

/* --- forward ------------------------------------------------------------------------ */

/* Of the differences of a channel to center, or of their squares. */
VEC_INLINE double sum_channel(const term what, const layout *n, const float *x, int64_t c,
                              float center)
{
    float centers[LANES];
    double sum = 0.0;

    fill(centers, center);
    for (int64_t block = 0; block < n->blocks; block++) {
        double lanes[LANES] = {0};

        sum_pixels(what, x + offset_of(n, block, c), NULL, n->inner, centers, lanes,
                   NULL);
        sum += sum_of_lanes(lanes, lanes_valid(n->samples, block));
    }
    return sum;
}

/* As in group normalisation, the mean is that of the differences to the first element,
 * added to it. */
static void find_moments(const layout *n, const float *x, int64_t c, float *mean,
                         float *var)
{
    const double count = (double)(n->samples * n->inner);
    const float first = x[offset_of(n, 0, c)], near = isfinite(first) ? first : 0.0F;

    *mean = (float)((double)near + sum_channel(VALUE, n, x, c, near) / count);
    *var = (float)(sum_channel(SQUARE, n, x, c, *mean) / count);
}

static int norm_parts(const sonde__op_call *call, int max)
{
    const layout n = layout_of(&call->in[0].shape);

    return lanes_parts(8.0 * LANES * (double)(n.blocks * n.channels * n.inner),
                       n.channels, max);
}

/* y = x < 0 ? 0 : x; NaN stays. */
static void cut(const float *x, int64_t count, float *y)
{
    for (int64_t i = 0; i < count; i += LANES) {
        v16_store(y + i, v16_relu(v16_load(x + i)));
    }
}

/* A block of a channel, and its ReLU if call has that output. */
static void finish_block(const sonde__op_call *call, const layout *n, int64_t offset,
                         const float *means, const float *rstds, float weight, float bias)
{
    float *const relu = call->out_count > 3 ? lanes_out(call, 3) : NULL;
    float *const y = lanes_out(call, 0) != NULL ? lanes_out(call, 0) : relu;

    normalise(lanes_in(call, 0) + offset, n->inner, means, rstds, weight, bias,
              y + offset);
    if (relu != NULL) {
        cut(y + offset, n->inner * LANES, relu + offset);
    }
}

static void norm_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__op_attrs *attrs = call->attrs;
    const layout n = layout_of(&call->in[0].shape);
    const bool given = attrs->norm.track && !attrs->training;
    const int running = attrs->norm.affine ? 3 : 1;
    const float *const x = lanes_in(call, 0);
    int64_t first, last;

    lanes_split(n.channels, part, parts, &first, &last);
    for (int64_t c = first; c < last; c++) {
        const float weight = attrs->norm.affine ? lanes_in(call, 1)[c] : 1.0F;
        const float bias = attrs->norm.affine ? lanes_in(call, 2)[c] : 0.0F;
        float means[LANES], rstds[LANES], mean = 0.0F, var = 0.0F;

        if (given) {
            mean = lanes_in(call, running)[c];
            var = lanes_in(call, running + 1)[c];
        } else {
            find_moments(&n, x, c, &mean, &var);
        }
        if (lanes_out(call, 1) != NULL) {
            lanes_out(call, 1)[c] = mean;
        }
        if (lanes_out(call, 2) != NULL) {
            lanes_out(call, 2)[c] = var;
        }
        fill(means, mean);
        fill(rstds, (float)(1.0 / sqrt((double)var + (double)attrs->norm.eps)));
        for (int64_t block = 0; block < n.blocks; block++) {
            finish_block(call, &n, offset_of(&n, block, c), means, rstds, weight, bias);
        }
    }
}

/* --- gradient ----------------------------------------------------------------------- */

static int grad_parts(const sonde__op_call *call, int max)
{
    const layout n = layout_of(&call->in[1].shape);

    return lanes_parts(10.0 * LANES * (double)(n.blocks * n.channels * n.inner),
                       n.channels, max);
}

/* dx of one channel; dy_sum and dyz_sum are over all its elements. */
static void spread_channel(const sonde__op_call *call, const layout *n, int64_t c,
                           double rstd, double dy_sum, double dyz_sum)
{
    const double count = (double)(n->samples * n->inner);
    const double weight = lanes_in(call, 4) != NULL ? (double)lanes_in(call, 4)[c] : 1.0;
    float means[LANES], scale[LANES], slope[LANES], offset[LANES];

    fill(means, lanes_in(call, 2)[c]);
    fill(scale, (float)(weight * rstd));
    fill(slope, (float)(-weight * rstd * rstd * dyz_sum / count));
    fill(offset, (float)(-weight * rstd * dy_sum / count));
    for (int64_t block = 0; block < n->blocks; block++) {
        const int64_t at = offset_of(n, block, c);

        spread(lanes_in(call, 0) + at, lanes_in(call, 1) + at, n->inner, means, scale,
               slope, offset, lanes_out(call, 0) + at);
    }
}

static void grad_run(const sonde__op_call *call, int part, int parts)
{
    const layout n = layout_of(&call->in[1].shape);
    int64_t first, last;

    lanes_split(n.channels, part, parts, &first, &last);
    for (int64_t c = first; c < last; c++) {
        const double rstd =
            1.0 / sqrt((double)lanes_in(call, 3)[c] + (double)call->attrs->norm.eps);
        double dy_sum = 0.0, dyz_sum = 0.0;
        float means[LANES];

        fill(means, lanes_in(call, 2)[c]);
        for (int64_t block = 0; block < n.blocks; block++) {
            const int64_t at = offset_of(&n, block, c);
            const int valid = lanes_valid(n.samples, block);
            double dy[LANES] = {0}, dyz[LANES] = {0};

            sum_pixels(GRADIENT, lanes_in(call, 1) + at, lanes_in(call, 0) + at, n.inner,
                       means, dy, dyz);
            dy_sum += sum_of_lanes(dy, valid);
            dyz_sum += sum_of_lanes(dyz, valid) * rstd;
        }
        if (lanes_out(call, 0) != NULL) {
            spread_channel(call, &n, c, rstd, dy_sum, dyz_sum);
        }
        if (lanes_out(call, 1) != NULL) {
            lanes_out(call, 1)[c] = (float)dyz_sum;
        }
        if (lanes_out(call, 2) != NULL) {
            lanes_out(call, 2)[c] = (float)dy_sum;
        }
    }
}

const sonde__op_kernel ISA(sonde__kernel_batch_norm) = {.name = "lanes",
                                                        .accepts = norm_accepts,
                                                        .in = {SONDE__LANES},
                                                        .out = {SONDE__LANES},
                                                        .parts = norm_parts,
                                                        .run = norm_run};

const sonde__op_kernel ISA(sonde__kernel_batch_norm_relu) = {
    .name = "lanes",
    .accepts = norm_accepts,
    .in = {SONDE__LANES},
    .out = {SONDE__LANES, SONDE__PLAIN, SONDE__PLAIN, SONDE__LANES},
    .parts = norm_parts,
    .run = norm_run};

const sonde__op_kernel ISA(sonde__kernel_batch_norm_grad) = {
    .name = "lanes",
    .accepts = norm_accepts,
    .in = {SONDE__LANES, SONDE__LANES},
    .out = {SONDE__LANES},
    .parts = grad_parts,
    .run = grad_run};

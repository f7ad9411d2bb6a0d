/*
 * group_norm.c - group normalization (Wu and He 2018), instance normalization (Ulyanov et
 * al. 2016), which has a group for each channel, and their gradient.
 *
 * For each sample and group, over its D = C / groups * (H * W ...) elements:
 *
 *   mean = sum x / D,  rstd = 1 / sqrt(sum (x - mean)^2 / D + eps)
 *   y = (x - mean) rstd gamma[c] + beta[c]
 *
 * as torch.nn.GroupNorm; gamma and beta may be missing (beta alone may), which means 1
 * and 0. With z = (x - mean) rstd and h = dy gamma[c], the gradient is
 *
 *   dgamma[c] = sum dy z,  dbeta[c] = sum dy
 *   dx = rstd (h - sum h / D - z sum (h z) / D)
 *
 * No gradient flows through the outputs mean and rstd: they exist to be observed.
 *
 * attrs: norm.
 */
#include "nn/ops/common.h"
#include "base/fail.h"
#include "nn/kernels/fast.h"
#include "nn/ops/layer_row.h"

#include <float.h>
#include <math.h>

/* The groups of a tensor (N, C, ...). */
typedef struct grouping {
    int64_t samples, channels, inner; /* inner: elements of a channel */
    int64_t groups, size;             /* size: elements of a group, contiguous */
} grouping;

static grouping grouping_of(const sonde__op_shape *x, const sonde__op_attrs *attrs)
{
    grouping g = {
        .samples = x->dim[0], .channels = x->dim[1], .groups = attrs->norm.groups};

    g.inner = sonde__op_dims_product(x, 2, x->rank);
    g.size = g.channels / g.groups * g.inner;
    return g;
}

static int64_t channel_at(const grouping *g, int64_t group, int64_t i)
{
    return group * (g->channels / g->groups) + i / g->inner;
}

static sonde_err expect_groups(const sonde__op_shape *x, const sonde__op_attrs *attrs,
                               sonde_diag *diag)
{
    SONDE__TRY(sonde__op_expect_float(x, "input", diag));
    if (x->rank < 2) {
        return sonde__op_expect_rank(x, 2, "input", "(N, C, ...)", diag);
    }
    if (attrs->norm.groups < 1 || x->dim[1] % attrs->norm.groups != 0) {
        return sonde__fail(diag, SONDE_EINVAL, NULL, "a divisor of the channels",
                           "%lld groups of %lld channels", (long long)attrs->norm.groups,
                           (long long)x->dim[1]);
    }
    return SONDE_OK;
}

/* --- forward ------------------------------------------------------------------------ */

static sonde_err group_norm_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                  sonde_diag *diag)
{
    static const char *const names[] = {"input", "gamma", "beta"};
    const sonde__op_shape *x = &call->in[0].shape;
    const sonde__op_shape channels = {.dtype = x->dtype, .rank = 1, .dim = {x->dim[1]}};

    SONDE__TRY(expect_groups(x, attrs, diag));
    for (int i = 1; i < 3 && i < call->in_count; i++) {
        SONDE__TRY(sonde__op_expect_shape(&call->in[i].shape, &channels, names[i], diag));
    }
    call->out[0].shape = *x;
    for (int i = 1; i <= 2; i++) {
        call->out[i].shape =
            (sonde__op_shape){x->dtype, 2, {x->dim[0], attrs->norm.groups}};
    }
    return SONDE_OK;
}

static void moments(const sonde__operand *x, int64_t base, int64_t size, float eps,
                    double *mean, double *rstd)
{
    double sum = 0.0, squares = 0.0;

    for (int64_t i = 0; i < size; i++) {
        sum += sonde__op_load(x, base + i);
    }
    *mean = sum / (double)size;
    for (int64_t i = 0; i < size; i++) {
        const double d = sonde__op_load(x, base + i) - *mean;

        squares += d * d;
    }
    *rstd = 1.0 / sqrt(squares / (double)size + (double)eps);
}

static void group_norm_run(const sonde__op_call *call, int part, int parts)
{
    const grouping g = grouping_of(&call->in[0].shape, call->attrs);
    const bool has_gamma = sonde__op_has_in(call, 1),
               has_beta = sonde__op_has_in(call, 2);

    (void)part, (void)parts;
    for (int64_t cell = 0; cell < g.samples * g.groups; cell++) {
        const int64_t base = cell * g.size;
        double mean = 0.0, rstd = 0.0;

        moments(&call->in[0], base, g.size, call->attrs->norm.eps, &mean, &rstd);
        sonde__op_store(&call->out[1], cell, mean);
        sonde__op_store(&call->out[2], cell, rstd);
        for (int64_t i = 0; i < g.size; i++) {
            const int64_t c = channel_at(&g, cell % g.groups, i);
            const double gamma = has_gamma ? sonde__op_load(&call->in[1], c) : 1.0;
            const double beta = has_beta ? sonde__op_load(&call->in[2], c) : 0.0;
            const double z = (sonde__op_load(&call->in[0], base + i) - mean) * rstd;

            sonde__op_store(&call->out[0], base + i, z * gamma + beta);
        }
    }
}

SONDE__OP(group_norm, "GroupNorm", norm, 1, 3, 3, .out_names = {NULL, "Mean", "Rstd"},
          .infer = group_norm_infer, .backward = {&sonde__op_group_norm_grad, "d0BC1"},
          SONDE__REFERENCE(group_norm_run), .fast = sonde__kernel_group_norm_fast);

static sonde_err instance_norm_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                     sonde_diag *diag)
{
    attrs->norm.groups = call->in[0].shape.dim[1];
    return group_norm_infer(call, attrs, diag);
}

SONDE__OP(instance_norm, "InstanceNorm", norm, 1, 3, 3,
          .out_names = {NULL, "Mean", "Rstd"}, .infer = instance_norm_infer,
          .backward = {&sonde__op_group_norm_grad, "d0BC1"},
          SONDE__REFERENCE(group_norm_run), .fast = sonde__kernel_group_norm_fast);

/* Weight 1 and bias 0 of every channel. */
static int norm_params(const sonde__op_shape *x, const sonde__op_attrs *attrs,
                       sonde__op_param params[SONDE__MAX_PARAMS])
{
    if (x->rank < 2 || !attrs->norm.affine) {
        return 0;
    }
    params[0] = (sonde__op_param){.suffix = "weight",
                                  .role = SONDE_ROLE_WEIGHT,
                                  .rank = 1,
                                  .dim = {x->dim[1]},
                                  .constant = 1.0F};
    params[1] = (sonde__op_param){
        .suffix = "bias", .role = SONDE_ROLE_BIAS, .rank = 1, .dim = {x->dim[1]}};
    return 2;
}

#define EPS SONDE__FIELD("eps", SONDE__FIELD_NUMBER, norm.eps, 1e-5, 0, FLT_MAX)

SONDE__LAYER(
    group_norm, group_norm, 1,
    "(x - mean) / sqrt(variance + eps) of each sample and group of channels, "
    "times weight, plus bias",
    .fields = {SONDE__FIELD("num_groups", SONDE__FIELD_WHOLE, norm.groups, (double)NAN, 1,
                            1 << 24),
               EPS, SONDE__FIELD("affine", SONDE__FIELD_FLAG, norm.affine, 1.0, 0, 1)},
    .params = norm_params);

SONDE__LAYER(
    instance_norm, instance_norm, 1,
    "(x - mean) / sqrt(variance + eps) of each sample and channel, times weight, "
    "plus bias",
    .fields = {EPS, SONDE__FIELD("affine", SONDE__FIELD_FLAG, norm.affine, 0.0, 0, 1)},
    .params = norm_params);

/* --- gradient ----------------------------------------------------------------------- */

enum { DY = 0, X = 1, MEAN = 2, RSTD = 3, GAMMA = 4 };

static sonde_err group_norm_grad_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                       sonde_diag *diag)
{
    const sonde__op_shape *x = &call->in[X].shape;
    const sonde__op_shape statistics = {x->dtype, 2, {x->dim[0], attrs->norm.groups}};
    const sonde__op_shape channels = {.dtype = x->dtype, .rank = 1, .dim = {x->dim[1]}};

    SONDE__TRY(expect_groups(x, attrs, diag));
    SONDE__TRY(sonde__op_expect_shape(&call->in[DY].shape, x, "output gradient", diag));
    SONDE__TRY(sonde__op_expect_shape(&call->in[MEAN].shape, &statistics, "mean", diag));
    SONDE__TRY(sonde__op_expect_shape(&call->in[RSTD].shape, &statistics, "rstd", diag));
    if (call->in_count > GAMMA) {
        SONDE__TRY(
            sonde__op_expect_shape(&call->in[GAMMA].shape, &channels, "gamma", diag));
    }
    call->out[0].shape = *x;
    call->out[1].shape = channels;
    call->out[2].shape = channels;
    return SONDE_OK;
}

/* h = dy gamma[c] and z = (x - mean) rstd of element i of the group numbered `at`. */
static double scaled_grad(const sonde__op_call *call, const grouping *g, int64_t cell,
                          int64_t i)
{
    const int64_t c = channel_at(g, cell % g->groups, i);
    const double gamma =
        sonde__op_has_in(call, GAMMA) ? sonde__op_load(&call->in[GAMMA], c) : 1.0;

    return sonde__op_load(&call->in[DY], cell * g->size + i) * gamma;
}

static double normalized(const sonde__op_call *call, const grouping *g, int64_t cell,
                         int64_t i)
{
    return (sonde__op_load(&call->in[X], cell * g->size + i) -
            sonde__op_load(&call->in[MEAN], cell)) *
           sonde__op_load(&call->in[RSTD], cell);
}

static void grad_of_group(const sonde__op_call *call, const grouping *g, int64_t cell)
{
    double sum_h = 0.0, sum_hz = 0.0;

    for (int64_t i = 0; i < g->size; i++) {
        const double h = scaled_grad(call, g, cell, i);

        sum_h += h;
        sum_hz += h * normalized(call, g, cell, i);
    }
    for (int64_t i = 0; i < g->size; i++) {
        const double h = scaled_grad(call, g, cell, i), z = normalized(call, g, cell, i);
        const double dx = h - sum_h / (double)g->size - z * sum_hz / (double)g->size;

        sonde__op_store(&call->out[0], cell * g->size + i,
                        dx * sonde__op_load(&call->in[RSTD], cell));
    }
}

static void grad_of_channel(const sonde__op_call *call, const grouping *g, int64_t c)
{
    const int64_t width = g->channels / g->groups; /* channels of a group */
    double dgamma = 0.0, dbeta = 0.0;

    for (int64_t n = 0; n < g->samples; n++) {
        const int64_t cell = n * g->groups + c / width;

        for (int64_t k = 0; k < g->inner; k++) {
            const int64_t i = c % width * g->inner + k;
            const double dy = sonde__op_load(&call->in[DY], cell * g->size + i);

            dgamma += dy * normalized(call, g, cell, i);
            dbeta += dy;
        }
    }
    sonde__op_store(&call->out[1], c, dgamma);
    sonde__op_store(&call->out[2], c, dbeta);
}

static void group_norm_grad_run(const sonde__op_call *call, int part, int parts)
{
    const grouping g = grouping_of(&call->in[X].shape, call->attrs);

    (void)part, (void)parts;
    for (int64_t cell = 0; cell < g.samples * g.groups; cell++) {
        grad_of_group(call, &g, cell);
    }
    for (int64_t c = 0; c < g.channels; c++) {
        grad_of_channel(call, &g, c);
    }
}

SONDE__OP(group_norm_grad, "GroupNormGrad", norm, 4, 5, 3,
          .out_names = {NULL, "GradGamma", "GradBeta"}, .infer = group_norm_grad_infer,
          SONDE__REFERENCE(group_norm_grad_run),
          .fast = sonde__kernel_group_norm_grad_fast);

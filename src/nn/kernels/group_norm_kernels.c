/*
 * group_norm_kernels.c - group normalisation and its gradient over LANES.
 *
 *   mean = sum x / D,  rstd = 1 / sqrt(sum (x - mean)^2 / D + eps)
 *   y = (x - mean) rstd gamma[c] + beta[c]
 *   h = dy gamma[c],  z = (x - mean) rstd
 *   dx = rstd (h - sum h / D - z sum (h z) / D)
 *   dgamma[c] = sum dy z,  dbeta[c] = sum dy
 *
 * over the D elements of a sample's group (Wu and He 2018; PyTorch's GroupNorm). Samples
 * lie side by side in lanes, so no sum crosses lanes but the last one of dgamma and
 * dbeta.
 */
#include "base/isa.h"
#include "base/macros.h"
#include "nn/kernels/fast.h"
#include "nn/kernels/norm_lanes.h"
#include "nn/kernels/lanes.h"

#include <math.h>

typedef struct grouping {
    int64_t samples, blocks, channels, groups;
    int64_t per_group; /* channels */
    int64_t inner;     /* elements of a channel */
} grouping;

static grouping grouping_of(const sonde__op_shape *x, const sonde__op_attrs *attrs)
{
    grouping g = {.samples = x->dim[0],
                  .blocks = lanes_blocks(x->dim[0]),
                  .channels = x->dim[1],
                  .groups = attrs->norm.groups,
                  .per_group = x->dim[1] / attrs->norm.groups};

    g.inner = lanes_inner(x) / g.channels;
    return g;
}

/* The mean is that of the differences to the first pixel, added to it: a mean far from 0
 * costs no digits. */
static void find_moments(const float *x, int64_t pixels, float eps, float mean[LANES],
                         float rstd[LANES])
{
    double sum[LANES] = {0}, squares[LANES] = {0};
    float first[LANES];

    for (int lane = 0; lane < LANES; lane++) {
        first[lane] = isfinite(x[lane]) ? x[lane] : 0.0F;
    }
    sum_pixels(VALUE, x, NULL, pixels, first, sum, NULL);
    for (int lane = 0; lane < LANES; lane++) {
        mean[lane] = (float)((double)first[lane] + sum[lane] / (double)pixels);
    }
    sum_pixels(SQUARE, x, NULL, pixels, mean, squares, NULL);
    for (int lane = 0; lane < LANES; lane++) {
        rstd[lane] = (float)(1.0 / sqrt(squares[lane] / (double)pixels + (double)eps));
    }
}

/* --- forward ------------------------------------------------------------------------ */

static bool norm_accepts(const sonde__op_call *call)
{
    return lanes_is_f32(&call->in[0].shape, -1) && call->in[0].shape.rank >= 2;
}

static int norm_parts(const sonde__op_call *call, int max)
{
    const grouping g = grouping_of(&call->in[0].shape, call->attrs);

    return lanes_parts(8.0 * LANES * (double)(g.blocks * g.channels * g.inner),
                       g.blocks * g.groups, max);
}

/* A part is a range of groups, counted through all blocks. */
static void norm_run(const sonde__op_call *call, int part, int parts)
{
    const grouping g = grouping_of(&call->in[0].shape, call->attrs);
    const float *const gamma = lanes_in(call, 1), *const beta = lanes_in(call, 2);
    float *const y = lanes_out(call, 0);
    int64_t first, last;

    lanes_split(g.blocks * g.groups, part, parts, &first, &last);
    for (int64_t i = first; i < last; i++) {
        const int64_t offset = i * g.per_group * g.inner * LANES,
                      c = i % g.groups * g.per_group;
        float mean[LANES], rstd[LANES];

        find_moments(lanes_in(call, 0) + offset, g.per_group * g.inner,
                     call->attrs->norm.eps, mean, rstd);
        if (lanes_out(call, 1) != NULL) {
            memcpy(lanes_out(call, 1) + i * LANES, mean, sizeof mean);
        }
        if (lanes_out(call, 2) != NULL) {
            memcpy(lanes_out(call, 2) + i * LANES, rstd, sizeof rstd);
        }
        for (int64_t k = 0; k < g.per_group && y != NULL; k++) {
            normalise(lanes_in(call, 0) + offset + k * g.inner * LANES, g.inner, mean,
                      rstd, gamma == NULL ? 1.0F : gamma[c + k],
                      beta == NULL ? 0.0F : beta[c + k],
                      y + offset + k * g.inner * LANES);
        }
    }
}

/* --- gradient ----------------------------------------------------------------------- */

/* Sums over a channel's pixels, of each sample: of dy, and of dy z. */
typedef struct channel_sums {
    double dy[LANES], dyz[LANES];
} channel_sums;

/* One group of one block; sums[per_group] is filled. dx may be NULL. */
static void group_gradient(const grouping *g, const float *dy, const float *x,
                           const float *mean, const float *rstd, const float *gamma,
                           channel_sums *sums, float *dx)
{
    const double count = (double)(g->per_group * g->inner);
    double h[LANES] = {0}, hz[LANES] = {0};
    float scale[LANES], slope[LANES], offset[LANES];

    for (int64_t k = 0; k < g->per_group; k++) {
        const double factor = gamma == NULL ? 1.0 : (double)gamma[k];
        channel_sums *const sum = &sums[k];

        *sum = (channel_sums){.dy = {0}};
        sum_pixels(GRADIENT, x + k * g->inner * LANES, dy + k * g->inner * LANES,
                   g->inner, mean, sum->dy, sum->dyz);
        for (int lane = 0; lane < LANES; lane++) {
            sum->dyz[lane] *= (double)rstd[lane];
            h[lane] += factor * sum->dy[lane];
            hz[lane] += factor * sum->dyz[lane];
        }
    }
    for (int lane = 0; lane < LANES; lane++) {
        const double r = (double)rstd[lane];

        slope[lane] = (float)(-r * r * hz[lane] / count);
        offset[lane] = (float)(-r * h[lane] / count);
    }
    for (int64_t k = 0; k < g->per_group && dx != NULL; k++) {
        for (int lane = 0; lane < LANES; lane++) {
            scale[lane] = gamma == NULL ? rstd[lane] : rstd[lane] * gamma[k];
        }
        spread(dy + k * g->inner * LANES, x + k * g->inner * LANES, g->inner, mean, scale,
               slope, offset, dx + k * g->inner * LANES);
    }
}

static int grad_parts(const sonde__op_call *call, int max)
{
    const grouping g = grouping_of(&call->in[1].shape, call->attrs);

    return lanes_parts(10.0 * LANES * (double)(g.blocks * g.channels * g.inner), g.groups,
                       max);
}

/* A part's channels of one group, over one block and over all. */
static size_t grad_part_size(const grouping *g)
{
    return 2 * (size_t)g->per_group * sizeof(channel_sums);
}

static size_t grad_scratch(const sonde__op_call *call, int parts)
{
    const grouping g = grouping_of(&call->in[1].shape, call->attrs);

    return grad_part_size(&g) * (size_t)parts;
}

static void add_sums(const channel_sums *source, int64_t count, int valid,
                     channel_sums *target)
{
    for (int64_t k = 0; k < count; k++) {
        for (int lane = 0; lane < valid; lane++) {
            target[k].dy[lane] += source[k].dy[lane];
            target[k].dyz[lane] += source[k].dyz[lane];
        }
    }
}

/* Lanes in order. */
static void store_sums(const channel_sums *sums, int64_t count, float *dgamma,
                       float *dbeta)
{
    for (int64_t k = 0; k < count; k++) {
        double dy = 0.0, dyz = 0.0;

        for (int lane = 0; lane < LANES; lane++) {
            dy += sums[k].dy[lane];
            dyz += sums[k].dyz[lane];
        }
        if (dgamma != NULL) {
            dgamma[k] = (float)dyz;
        }
        if (dbeta != NULL) {
            dbeta[k] = (float)dy;
        }
    }
}

static float *at_or_null(float *p, int64_t offset)
{
    return p == NULL ? NULL : p + offset;
}

/* A part is a range of groups, each over all blocks. */
static void grad_run(const sonde__op_call *call, int part, int parts)
{
    const grouping g = grouping_of(&call->in[1].shape, call->attrs);
    const float *const gamma = lanes_in(call, 4);
    char *const scratch = (char *)call->scratch + (size_t)part * grad_part_size(&g);
    channel_sums *const sums = (channel_sums *)(void *)scratch;
    channel_sums *const totals = sums + g.per_group;
    int64_t first, last;

    lanes_split(g.groups, part, parts, &first, &last);
    for (int64_t group = first; group < last; group++) {
        const int64_t c = group * g.per_group;

        memset(totals, 0, (size_t)g.per_group * sizeof *totals);
        for (int64_t block = 0; block < g.blocks; block++) {
            const int64_t i = block * g.groups + group;
            const int64_t offset = i * g.per_group * g.inner * LANES;

            group_gradient(&g, lanes_in(call, 0) + offset, lanes_in(call, 1) + offset,
                           lanes_in(call, 2) + i * LANES, lanes_in(call, 3) + i * LANES,
                           gamma == NULL ? NULL : gamma + c, sums,
                           at_or_null(lanes_out(call, 0), offset));
            add_sums(sums, g.per_group, lanes_valid(g.samples, block), totals);
        }
        store_sums(totals, g.per_group, at_or_null(lanes_out(call, 1), c),
                   at_or_null(lanes_out(call, 2), c));
    }
}

const sonde__op_kernel ISA(sonde__kernel_group_norm) = {
    .name = "lanes",
    .accepts = norm_accepts,
    .in = {SONDE__LANES, SONDE__PLAIN, SONDE__PLAIN},
    .out = {SONDE__LANES, SONDE__LANES, SONDE__LANES},
    .parts = norm_parts,
    .run = norm_run};

const sonde__op_kernel ISA(sonde__kernel_group_norm_grad) = {
    .name = "lanes",
    .accepts = norm_accepts,
    .in = {SONDE__LANES, SONDE__LANES, SONDE__LANES, SONDE__LANES, SONDE__PLAIN},
    .out = {SONDE__LANES, SONDE__PLAIN, SONDE__PLAIN},
    .scratch = grad_scratch,
    .parts = grad_parts,
    .run = grad_run};

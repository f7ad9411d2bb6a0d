/*
 * norm_kernels.c - batch and group normalization and their gradients: over LANES, and batch
 * normalization also over PLAIN operands of bfloat16 or float16.
 *
 *   mean = sum x / M,  var = sum (x - mean)^2 / M,  rstd = 1 / sqrt(var + eps)
 *   y = (x - mean) rstd weight[c] + bias[c]
 *   h = dy weight[c],  z = (x - mean) rstd
 *   dx = rstd (h - sum h / M - z sum (h z) / M)
 *   dweight[c] = sum dy z,  dbias[c] = sum dy
 *
 * Batch normalization sums over the M elements of a channel in all samples, group
 * normalization over the M elements of a sample's group (Wu and He 2018; PyTorch's GroupNorm).
 * Samples lie side by side in lanes: sums run in float32 over stretches of at most 512 pixels,
 * four at a time, in double from stretch to stretch, and last over the lanes that hold samples,
 * in order. A part is a range of channels or groups, so no sum is divided among threads.
 *
 * A mean is that of the differences to the first element, added to it: a mean far from 0 costs
 * no digits.
 */
#include "base/isa.h"
#include "base/macros.h"
#include "nn/kernels/fast.h"
#include "nn/kernels/lanes.h"

#include <math.h>

enum { STRETCH = 512 };

/* --- sums over pixels --------------------------------------------------------------- */

/* What a pixel adds to one or two sums. */
typedef enum term {
    VALUE,    /* a - center */
    SQUARE,   /* (a - center)^2 */
    GRADIENT, /* b; and b (a - center) */
} term;

VEC_INLINE void add_pixel(const term what, const float *a, const float *b, vf center,
                          vf *first, vf *second)
{
    const vf d = vf_load(a) - center;

    if (what == GRADIENT) {
        const vf g = vf_load(b);

        *first += g;
        *second = vf_fma(g, d, *second);
    } else {
        *first = what == SQUARE ? vf_fma(d, d, *first) : *first + d;
    }
}

/* One chunk of lanes over at most STRETCH pixels; into first[VF_WIDTH] and, for GRADIENT,
 * second[VF_WIDTH]. */
VEC_INLINE void sum_stretch(const term what, const float *a, const float *b,
                            int64_t pixels, vf center, float *first, float *second)
{
    vf s[4] = {{0}}, t[4] = {{0}};

    for (; pixels >= 4; pixels -= 4) {
        VEC_EACH (i, 4) {
            add_pixel(what, a + i * LANES, b + i * LANES, center, &s[i], &t[i]);
        }
        a += 4 * LANES;
        b += 4 * LANES;
    }
    for (int64_t i = 0; i < pixels; i++) {
        add_pixel(what, a + i * LANES, b + i * LANES, center, &s[0], &t[0]);
    }
    vf_store(first, (s[0] + s[1]) + (s[2] + s[3]));
    if (what == GRADIENT) {
        vf_store(second, (t[0] + t[1]) + (t[2] + t[3]));
    }
}

/* All lanes of `pixels` pixels, added to first and second. b and second are used by GRADIENT
 * alone, but are there. */
VEC_INLINE void sum_pixels(const term what, const float *a, const float *b,
                           int64_t pixels, const float *center, double first[LANES],
                           double second[LANES])
{
    for (int64_t i = 0; i < pixels; i += STRETCH) {
        const int64_t count = SONDE_MIN(pixels - i, (int64_t)STRETCH);
        float s[LANES], t[LANES];

        for (int lane = 0; lane < LANES; lane += VF_WIDTH) {
            sum_stretch(what, a + i * LANES + lane, b + i * LANES + lane, count,
                        vf_load(center + lane), s + lane, t + lane);
        }
        for (int lane = 0; lane < LANES; lane++) {
            first[lane] += (double)s[lane];
            if (what == GRADIENT) {
                second[lane] += (double)t[lane];
            }
        }
    }
}

/* --- over pixels ---------------------------------------------------------------------- */

/* y = (x - mean) rstd weight + bias, mean and rstd a number a lane. */
VEC_INLINE void normalize(const float *x, int64_t pixels, const float *mean,
                          const float *rstd, float weight, float bias, float *y)
{
    for (int lane = 0; lane < LANES; lane += VF_WIDTH) {
        const vf center = vf_load(mean + lane), add = vf_set1(bias);
        const vf scale = vf_load(rstd + lane) * vf_set1(weight);

        for (int64_t i = 0; i < pixels; i++) {
            const vf d = vf_load(x + i * LANES + lane) - center;

            vf_store(y + i * LANES + lane, vf_fma(d, scale, add));
        }
    }
}

/* dx = scale dy + slope (x - mean) + offset, each of these a number a lane. */
VEC_INLINE void spread(const float *dy, const float *x, int64_t pixels, const float *mean,
                       const float *scale, const float *slope, const float *offset,
                       float *dx)
{
    for (int lane = 0; lane < LANES; lane += VF_WIDTH) {
        const vf center = vf_load(mean + lane), a = vf_load(scale + lane);
        const vf b = vf_load(slope + lane), c = vf_load(offset + lane);

        for (int64_t i = 0; i < pixels; i++) {
            const vf d = vf_load(x + i * LANES + lane) - center;

            vf_store(dx + i * LANES + lane,
                     vf_fma(vf_load(dy + i * LANES + lane), a, vf_fma(d, b, c)));
        }
    }
}

/* --- operands ----------------------------------------------------------------------- */

static bool norm_accepts(const sonde__op_call *call)
{
    return lanes_is_f32(&call->in[0].shape, -1) && call->in[0].shape.rank >= 2;
}

/* operations: a number of the operand x. */
static int norm_parts(const sonde__op_shape *x, double operations, int64_t units, int max)
{
    return lanes_parts(operations * LANES *
                           (double)(lanes_blocks(x->dim[0]) * lanes_inner(x)),
                       units, max);
}

static float number_of(const float *numbers, int64_t i, float otherwise)
{
    return numbers == NULL ? otherwise : numbers[i];
}

static void put(float *numbers, int64_t i, float value)
{
    if (numbers != NULL) {
        numbers[i] = value;
    }
}

static float *at_or_null(float *p, int64_t offset)
{
    return p == NULL ? NULL : p + offset;
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

/* --- batch normalization: pieces of a channel --------------------------------------- */

/*
 * A channel comes in pieces of whole pixels. In LANES a piece is a block of samples, where it
 * lies. Operands of 16 bits are PLAIN: a piece is at most PIECE elements of a sample, which
 * become float32 in a buffer; what is missing in its last pixel adds nothing to sums.
 */
enum { PIECE = 1024 };

typedef struct layout {
    bool half;
    int64_t samples, channels, inner; /* inner: elements of a channel of a sample */
    int64_t pieces;                   /* of a channel */
} layout;

typedef struct piece {
    int64_t start, count, pixels;
    int valid; /* lanes that hold samples */
} piece;

static layout layout_of(const sonde__op_shape *x)
{
    layout n = {.half = sonde__op_is_half(x->dtype),
                .samples = x->dim[0],
                .channels = x->dim[1],
                .inner = lanes_inner(x) / x->dim[1]};

    n.pieces =
        n.half ? n.samples * ((n.inner + PIECE - 1) / PIECE) : lanes_blocks(n.samples);
    return n;
}

static piece piece_at(const layout *n, int64_t c, int64_t i)
{
    const int64_t each = (n->inner + PIECE - 1) / PIECE;
    const int64_t first = i % each * PIECE;
    const int64_t count = SONDE_MIN(n->inner - first, (int64_t)PIECE);

    if (!n->half) {
        return (piece){(i * n->channels + c) * n->inner * LANES, n->inner * LANES,
                       n->inner, lanes_valid(n->samples, i)};
    }
    return (piece){(i / each * n->channels + c) * n->inner + first, count,
                   (count + LANES - 1) / LANES, LANES};
}

/* Where a piece is, or it as float32 in room, followed by `rest` up to a whole pixel. */
static const float *take_piece(const layout *n, const sonde__operand *x, const piece *p,
                               float rest, float *room)
{
    if (!n->half) {
        return (const float *)x->data + p->start;
    }
    half_load(x, p->start, p->count, room);
    for (int64_t i = p->count; i < p->pixels * LANES; i++) {
        room[i] = rest;
    }
    return room;
}

/* Where the numbers of a piece are to go; put_piece follows. */
static float *room_for(const layout *n, const sonde__operand *y, const piece *p,
                       float *room)
{
    return n->half ? room : (float *)y->data + p->start;
}

static void put_piece(const layout *n, const sonde__operand *y, const piece *p,
                      const float *numbers)
{
    if (n->half) {
        half_store(numbers, p->count, y, p->start);
    }
}

/* Of the differences of a channel to center, or of their squares. */
VEC_INLINE double sum_channel(const term what, const layout *n, const sonde__operand *x,
                              int64_t c, float center)
{
    float centers[LANES], room[PIECE];
    double sum = 0.0;

    fill(centers, center);
    for (int64_t i = 0; i < n->pieces; i++) {
        const piece p = piece_at(n, c, i);
        const float *const a = take_piece(n, x, &p, center, room);
        double lanes[LANES] = {0};

        sum_pixels(what, a, a, p.pixels, centers, lanes, lanes);
        sum += sum_of_lanes(lanes, p.valid);
    }
    return sum;
}

static void find_channel_moments(const layout *n, const sonde__operand *x, int64_t c,
                                 float *mean, float *var)
{
    const double count = (double)(n->samples * n->inner);
    piece p = piece_at(n, c, 0);
    float room[LANES], near;

    p.count = p.pixels = 1;
    near = take_piece(n, x, &p, 0.0F, room)[0];
    near = isfinite(near) ? near : 0.0F;
    *mean = (float)((double)near + sum_channel(VALUE, n, x, c, near) / count);
    *var = (float)(sum_channel(SQUARE, n, x, c, *mean) / count);
}

/* --- batch normalization ------------------------------------------------------------ */

static int batch_parts(const sonde__op_call *call, int max)
{
    const sonde__op_shape *const x = &call->in[0].shape;

    return norm_parts(x, 8.0, x->dim[1], max);
}

/* A piece of a channel, and its ReLU if call has that output. */
static void finish_piece(const sonde__op_call *call, const layout *n, const piece *p,
                         const float *means, const float *rstds, float weight, float bias)
{
    const sonde__operand *const relu = lanes_out(call, 3) != NULL ? &call->out[3] : NULL;
    const sonde__operand *const out =
        call->out[0].data != NULL || relu == NULL ? &call->out[0] : relu;
    float room[PIECE], *const y = room_for(n, out, p, room);

    normalize(take_piece(n, &call->in[0], p, 0.0F, room), p->pixels, means, rstds, weight,
              bias, y);
    put_piece(n, &call->out[0], p, y);
    if (relu != NULL) { /* y < 0 ? 0 : y; NaN stays */
        float *const cut = room_for(n, relu, p, room);

        for (int64_t i = 0; i < p->pixels * LANES; i += LANES) {
            v16_store(cut + i, v16_relu(v16_load(y + i)));
        }
        put_piece(n, relu, p, cut);
    }
}

static void batch_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__op_attrs *attrs = call->attrs;
    const layout n = layout_of(&call->in[0].shape);
    const bool given = attrs->norm.track && !attrs->training;
    const int running = attrs->norm.affine ? 3 : 1;
    int64_t first, last;

    lanes_split(n.channels, part, parts, &first, &last);
    for (int64_t c = first; c < last; c++) {
        const float weight =
            attrs->norm.affine ? number_of(lanes_in(call, 1), c, 1.0F) : 1.0F;
        const float bias =
            attrs->norm.affine ? number_of(lanes_in(call, 2), c, 0.0F) : 0.0F;
        float means[LANES], rstds[LANES], mean = 0.0F, var = 0.0F;

        if (given) {
            mean = lanes_in(call, running)[c];
            var = lanes_in(call, running + 1)[c];
        } else {
            find_channel_moments(&n, &call->in[0], c, &mean, &var);
        }
        put(lanes_out(call, 1), c, mean);
        put(lanes_out(call, 2), c, var);
        fill(means, mean);
        fill(rstds, (float)(1.0 / sqrt((double)var + (double)attrs->norm.eps)));
        for (int64_t i = 0; i < n.pieces; i++) {
            const piece p = piece_at(&n, c, i);

            finish_piece(call, &n, &p, means, rstds, weight, bias);
        }
    }
}

static int batch_grad_parts(const sonde__op_call *call, int max)
{
    const sonde__op_shape *const x = &call->in[1].shape;

    return norm_parts(x, 10.0, x->dim[1], max);
}

/* dx of one channel; dy_sum and dyz_sum are over all its elements. */
static void spread_channel(const sonde__op_call *call, const layout *n, int64_t c,
                           double rstd, double dy_sum, double dyz_sum)
{
    const double count = (double)(n->samples * n->inner);
    const double weight = (double)number_of(lanes_in(call, 4), c, 1.0F);
    float means[LANES], scale[LANES], slope[LANES], offset[LANES];
    float dy[PIECE], x[PIECE];

    fill(means, lanes_in(call, 2)[c]);
    fill(scale, (float)(weight * rstd));
    fill(slope, (float)(-weight * rstd * rstd * dyz_sum / count));
    fill(offset, (float)(-weight * rstd * dy_sum / count));
    for (int64_t i = 0; i < n->pieces; i++) {
        const piece p = piece_at(n, c, i);
        float *const dx = room_for(n, &call->out[0], &p, dy);

        spread(take_piece(n, &call->in[0], &p, 0.0F, dy),
               take_piece(n, &call->in[1], &p, 0.0F, x), p.pixels, means, scale, slope,
               offset, dx);
        put_piece(n, &call->out[0], &p, dx);
    }
}

static void batch_grad_run(const sonde__op_call *call, int part, int parts)
{
    const layout n = layout_of(&call->in[1].shape);
    float dy_room[PIECE], x_room[PIECE];
    int64_t first, last;

    lanes_split(n.channels, part, parts, &first, &last);
    for (int64_t c = first; c < last; c++) {
        const float mean = lanes_in(call, 2)[c];
        const double rstd =
            1.0 / sqrt((double)lanes_in(call, 3)[c] + (double)call->attrs->norm.eps);
        double dy_sum = 0.0, dyz_sum = 0.0;
        float means[LANES];

        fill(means, mean);
        for (int64_t i = 0; i < n.pieces; i++) {
            const piece p = piece_at(&n, c, i);
            double dy[LANES] = {0}, dyz[LANES] = {0};

            sum_pixels(GRADIENT, take_piece(&n, &call->in[1], &p, mean, x_room),
                       take_piece(&n, &call->in[0], &p, 0.0F, dy_room), p.pixels, means,
                       dy, dyz);
            dy_sum += sum_of_lanes(dy, p.valid);
            dyz_sum += sum_of_lanes(dyz, p.valid) * rstd;
        }
        if (lanes_out(call, 0) != NULL) {
            spread_channel(call, &n, c, rstd, dy_sum, dyz_sum);
        }
        put(lanes_out(call, 1), c, (float)dyz_sum);
        put(lanes_out(call, 2), c, (float)dy_sum);
    }
}

/* --- group normalization ------------------------------------------------------------ */

typedef struct grouping {
    int64_t samples, blocks, groups;
    int64_t per_group; /* channels */
    int64_t inner;     /* elements of a channel */
} grouping;

static grouping grouping_of(const sonde__op_shape *x, const sonde__op_attrs *attrs)
{
    return (grouping){.samples = x->dim[0],
                      .blocks = lanes_blocks(x->dim[0]),
                      .groups = attrs->norm.groups,
                      .per_group = x->dim[1] / attrs->norm.groups,
                      .inner = lanes_inner(x) / x->dim[1]};
}

static void find_group_moments(const float *x, int64_t pixels, float eps,
                               float mean[LANES], float rstd[LANES])
{
    double sum[LANES] = {0}, squares[LANES] = {0};
    float first[LANES];

    for (int lane = 0; lane < LANES; lane++) {
        first[lane] = isfinite(x[lane]) ? x[lane] : 0.0F;
    }
    sum_pixels(VALUE, x, x, pixels, first, sum, sum);
    for (int lane = 0; lane < LANES; lane++) {
        mean[lane] = (float)((double)first[lane] + sum[lane] / (double)pixels);
    }
    sum_pixels(SQUARE, x, x, pixels, mean, squares, squares);
    for (int lane = 0; lane < LANES; lane++) {
        rstd[lane] = (float)(1.0 / sqrt(squares[lane] / (double)pixels + (double)eps));
    }
}

static int group_parts(const sonde__op_call *call, int max)
{
    const sonde__op_shape *const x = &call->in[0].shape;

    return norm_parts(x, 8.0, lanes_blocks(x->dim[0]) * call->attrs->norm.groups, max);
}

/* A part is a range of groups, counted through all blocks. */
static void group_run(const sonde__op_call *call, int part, int parts)
{
    const grouping g = grouping_of(&call->in[0].shape, call->attrs);
    float *const y = lanes_out(call, 0);
    int64_t first, last;

    lanes_split(g.blocks * g.groups, part, parts, &first, &last);
    for (int64_t i = first; i < last; i++) {
        const int64_t start = i * g.per_group * g.inner * LANES;
        const int64_t c = i % g.groups * g.per_group;
        float mean[LANES], rstd[LANES];

        find_group_moments(lanes_in(call, 0) + start, g.per_group * g.inner,
                           call->attrs->norm.eps, mean, rstd);
        for (int lane = 0; lane < LANES; lane++) {
            put(lanes_out(call, 1), i * LANES + lane, mean[lane]);
            put(lanes_out(call, 2), i * LANES + lane, rstd[lane]);
        }
        for (int64_t k = 0; k < g.per_group && y != NULL; k++) {
            const int64_t offset = start + k * g.inner * LANES;

            normalize(lanes_in(call, 0) + offset, g.inner, mean, rstd,
                      number_of(lanes_in(call, 1), c + k, 1.0F),
                      number_of(lanes_in(call, 2), c + k, 0.0F), y + offset);
        }
    }
}

/* Sums over a channel's pixels, of each sample: of dy, and of dy z. */
typedef struct channel_sums {
    double dy[LANES], dyz[LANES];
} channel_sums;

/* One group of one block; sums[per_group] is filled. dx may be NULL. */
static void group_gradient(const grouping *g, const float *dy, const float *x,
                           const float *mean, const float *rstd, const float *weight,
                           channel_sums *sums, float *dx)
{
    const int64_t channel = g->inner * LANES;
    const double count = (double)(g->per_group * g->inner);
    double h[LANES] = {0}, hz[LANES] = {0};
    float scale[LANES], slope[LANES], offset[LANES];

    for (int64_t k = 0; k < g->per_group; k++) {
        const double factor = (double)number_of(weight, k, 1.0F);
        channel_sums *const sum = &sums[k];

        *sum = (channel_sums){.dy = {0}};
        sum_pixels(GRADIENT, x + k * channel, dy + k * channel, g->inner, mean, sum->dy,
                   sum->dyz);
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
            scale[lane] = rstd[lane] * number_of(weight, k, 1.0F);
        }
        spread(dy + k * channel, x + k * channel, g->inner, mean, scale, slope, offset,
               dx + k * channel);
    }
}

static int group_grad_parts(const sonde__op_call *call, int max)
{
    return norm_parts(&call->in[1].shape, 10.0, call->attrs->norm.groups, max);
}

/* A part's channels of one group, over one block and over all. */
static size_t group_grad_scratch(const sonde__op_call *call, int parts)
{
    const grouping g = grouping_of(&call->in[1].shape, call->attrs);

    return 2 * (size_t)g.per_group * sizeof(channel_sums) * (size_t)parts;
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

/* A part is a range of groups, each over all blocks. */
static void group_grad_run(const sonde__op_call *call, int part, int parts)
{
    const grouping g = grouping_of(&call->in[1].shape, call->attrs);
    const float *const weight = lanes_in(call, 4);
    channel_sums *const sums = (channel_sums *)call->scratch + 2 * g.per_group * part;
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
                           weight == NULL ? NULL : weight + c, sums,
                           at_or_null(lanes_out(call, 0), offset));
            add_sums(sums, g.per_group, lanes_valid(g.samples, block), totals);
        }
        for (int64_t k = 0; k < g.per_group; k++) { /* lanes in order */
            put(lanes_out(call, 1), c + k, (float)sum_of_lanes(totals[k].dyz, LANES));
            put(lanes_out(call, 2), c + k, (float)sum_of_lanes(totals[k].dy, LANES));
        }
    }
}

SONDE__ISA_KERNEL(batch_norm, "lanes", norm_accepts, (SONDE__LANES), (SONDE__LANES),
                  batch_run, .parts = batch_parts)
SONDE__ISA_KERNEL(batch_norm_relu, "lanes", norm_accepts, (SONDE__LANES),
                  (SONDE__LANES, SONDE__PLAIN, SONDE__PLAIN, SONDE__LANES), batch_run,
                  .parts = batch_parts)
SONDE__ISA_KERNEL(batch_norm_grad, "lanes", norm_accepts, (SONDE__LANES, SONDE__LANES),
                  (SONDE__LANES), batch_grad_run, .parts = batch_grad_parts)
SONDE__ISA_KERNEL(group_norm, "lanes", norm_accepts, (SONDE__LANES),
                  (SONDE__LANES, SONDE__LANES, SONDE__LANES), group_run,
                  .parts = group_parts)
SONDE__ISA_KERNEL(group_norm_grad, "lanes", norm_accepts,
                  (SONDE__LANES, SONDE__LANES, SONDE__LANES, SONDE__LANES),
                  (SONDE__LANES), group_grad_run, .parts = group_grad_parts,
                  .scratch = group_grad_scratch)

/*
 * compare_layers.c - layers that compare vectors, with their losses, and layers of few
 * arithmetic ops; all of several ops, with PyTorch's names, parameters and equations.
 */
#include "base/fail.h"
#include "nn/ops/common.h"
#include "nn/ops/layer_row.h"

#include <math.h>

/* --- parts: 0 for 0 ------------------------------------------------------------------- */

typedef const sonde__op_builder builder;
typedef sonde__op_value value;

static value one(builder *b, const sonde__op_kind *kind, const sonde__op_attrs *attrs,
                 value x)
{
    return x == 0 ? 0 : b->emit(b, kind, attrs, &x, 1);
}

static value two(builder *b, const sonde__op_kind *kind, value x, value y)
{
    return x == 0 || y == 0 ? 0 : b->emit(b, kind, NULL, (value[]){x, y}, 2);
}

static value number(builder *b, float n)
{
    return b->emit(b, &sonde__op_fill, &(sonde__op_attrs){.fill = {.value = n}}, NULL, 0);
}

static value scaled(builder *b, value x, float factor)
{
    return one(b, &sonde__op_scale, &(sonde__op_attrs){.fill = {.value = factor}}, x);
}

/* x, or least where x is below it. */
static value at_least(builder *b, value x, float least)
{
    return one(b, &sonde__op_clamp,
               &(sonde__op_attrs){.function = {.number = {least, INFINITY}}}, x);
}

static value sum_of(builder *b, value x, int axis, bool keep)
{
    return one(
        b, &sonde__op_reduce,
        &(sonde__op_attrs){.reduce = {.rank = 1, .dims = {axis}, .keep_dims = keep}}, x);
}

static value square_of(builder *b, value x)
{
    return one(b, &sonde__op_square, NULL, x);
}

static value root_of(builder *b, value x)
{
    return one(b, &sonde__op_sqrt, NULL, x);
}

/* --- vectors -------------------------------------------------------------------------- */

static value norm_of(builder *b, value x, int axis, bool keep)
{
    return root_of(b, sum_of(b, square_of(b, x), axis, keep));
}

/* |x - y + eps| */
static value distance(builder *b, value x, value y, int axis, float eps, bool keep)
{
    return norm_of(b,
                   two(b, &sonde__op_add, two(b, &sonde__op_sub, x, y), number(b, eps)),
                   axis, keep);
}

static value build_similarity(builder *b, sonde__op_attrs *attrs, const value *in)
{
    const float eps = attrs->vectors.eps;
    const value product =
        sum_of(b, two(b, &sonde__op_mul, in[0], in[1]), attrs->vectors.axis, false);
    const value sizes =
        two(b, &sonde__op_mul,
            at_least(b, norm_of(b, in[0], attrs->vectors.axis, false), eps),
            at_least(b, norm_of(b, in[1], attrs->vectors.axis, false), eps));

    return two(b, &sonde__op_div, product, sizes);
}

static value build_distance(builder *b, sonde__op_attrs *attrs, const value *in)
{
    return distance(b, in[0], in[1], -1, attrs->vectors.eps, attrs->vectors.keep_dims);
}

static value build_normalize(builder *b, sonde__op_attrs *attrs, const value *in)
{
    return two(
        b, &sonde__op_div, in[0],
        at_least(b, norm_of(b, in[0], attrs->vectors.axis, true), attrs->vectors.eps));
}

#define DIM(fallback) SONDE__FIELD_DIM("dim", vectors.axis, fallback)
#define EPS(fallback)                                                                    \
    SONDE__FIELD("eps", SONDE__FIELD_NUMBER, vectors.eps, fallback, 0, 1)
#define KEEP SONDE__FIELD("keepdim", SONDE__FIELD_FLAG, vectors.keep_dims, 0.0, 0, 1)
#define MARGIN(fallback) SONDE__FIELD_ANY("margin", vectors.margin, fallback)

SONDE__LAYER(cosine_similarity, div, 2,
             "the cosine of the angle of a and b along dim; lengths are at least eps",
             .fields = {DIM(1.0), EPS(1e-8)}, .build = build_similarity);

SONDE__LAYER(pairwise_distance, sqrt, 2,
             "the length of a - b + eps along the last dimension",
             .fields = {EPS(1e-6), KEEP}, .build = build_distance);

SONDE__LAYER(normalize, div, 1, "x by its length along dim, which is at least eps",
             .fields = {DIM(1.0), EPS(1e-12)}, .build = build_normalize);

/* --- losses of three values ----------------------------------------------------------- */

static value build_ranking(builder *b, sonde__op_attrs *attrs, const value *in)
{
    const value wrong = scaled(
        b, two(b, &sonde__op_mul, in[2], two(b, &sonde__op_sub, in[0], in[1])), -1.0F);

    return at_least(b, two(b, &sonde__op_add, wrong, number(b, attrs->vectors.margin)),
                    0.0F);
}

/* x where the label is `label`, else 0. */
static value where_label(builder *b, value labels, float label, value x)
{
    const value alike = two(b, &sonde__op_compare, labels, number(b, label));
    const value zero = number(b, 0.0F);

    return alike == 0 || x == 0 || zero == 0
               ? 0
               : b->emit(b, &sonde__op_where, NULL, (value[]){alike, x, zero}, 3);
}

static value build_cosine_loss(builder *b, sonde__op_attrs *attrs, const value *in)
{
    const float eps = 1e-12F;
    value sizes[2], cosine = 0;

    for (int i = 0; i < 2; i++) {
        sizes[i] = two(b, &sonde__op_add, sum_of(b, square_of(b, in[i]), -1, false),
                       number(b, eps));
    }
    cosine =
        two(b, &sonde__op_div, sum_of(b, two(b, &sonde__op_mul, in[0], in[1]), -1, false),
            root_of(b, two(b, &sonde__op_mul, sizes[0], sizes[1])));
    return two(
        b, &sonde__op_add,
        where_label(b, in[2], 1.0F, two(b, &sonde__op_sub, number(b, 1.0F), cosine)),
        where_label(
            b, in[2], -1.0F,
            at_least(b, two(b, &sonde__op_sub, cosine, number(b, attrs->vectors.margin)),
                     0.0F)));
}

static value build_triplet(builder *b, sonde__op_attrs *attrs, const value *in)
{
    const float eps = attrs->vectors.eps;
    const value near = distance(b, in[0], in[1], -1, eps, false);
    value far = distance(b, in[0], in[2], -1, eps, false);

    if (attrs->vectors.swap) {
        far = two(b, &sonde__op_minimum, far, distance(b, in[1], in[2], -1, eps, false));
    }
    return at_least(b,
                    two(b, &sonde__op_add, two(b, &sonde__op_sub, near, far),
                        number(b, attrs->vectors.margin)),
                    0.0F);
}

SONDE__LAYER(margin_ranking_loss, clamp, 3, "max(0, margin - c (a - b)), with c 1 or -1",
             .reduces = true, .fields = {MARGIN(0.0), SONDE__FIELD_REDUCTION},
             .build = build_ranking);

SONDE__LAYER(cosine_embedding_loss, where, 3,
             "1 - cos of a and b where c is 1, max(0, cos - margin) where c is -1",
             .reduces = true, .fields = {MARGIN(0.0), SONDE__FIELD_REDUCTION},
             .build = build_cosine_loss);

SONDE__LAYER(triplet_margin_loss, clamp, 3,
             "max(0, margin + the distance of a and b - that of a and c); swap: the "
             "smaller of those of a and c and of b and c",
             .reduces = true,
             .fields = {MARGIN(1.0), EPS(1e-6),
                        SONDE__FIELD("swap", SONDE__FIELD_FLAG, vectors.swap, 0.0, 0, 1),
                        SONDE__FIELD_REDUCTION},
             .build = build_triplet);

/* --- few ops -------------------------------------------------------------------------- */

static value build_glu(builder *b, sonde__op_attrs *attrs, const value *in)
{
    const sonde__op_shape x = *sonde__op_value_shape(b->graph, in[0]);
    sonde__op_attrs half = {.slice = {.axis = 0}};

    if (sonde__op_expect_axis(&attrs->vectors.axis, x.rank, b->diag) != SONDE_OK) {
        return 0;
    }
    half.slice.axis = attrs->vectors.axis;
    half.slice.end = x.dim[attrs->vectors.axis] / 2;
    if (x.dim[attrs->vectors.axis] % 2 != 0) {
        (void)sonde__fail(b->diag, SONDE_ESHAPE, NULL, "an even number",
                          "dimension %d has %lld elements", attrs->vectors.axis,
                          (long long)x.dim[attrs->vectors.axis]);
        return 0;
    }
    const value first = one(b, &sonde__op_slice, &half, in[0]);

    half.slice.start = half.slice.end;
    half.slice.end = x.dim[attrs->vectors.axis];
    return two(b, &sonde__op_mul, first,
               one(b, &sonde__op_sigmoid, NULL, one(b, &sonde__op_slice, &half, in[0])));
}

static value build_softmin(builder *b, sonde__op_attrs *attrs, const value *in)
{
    return one(b, &sonde__op_softmax,
               &(sonde__op_attrs){.along = {.axis = attrs->vectors.axis}},
               scaled(b, in[0], -1.0F));
}

/* log of the sum of exp, from the largest; one that is infinite is left out. */
static value build_logsumexp(builder *b, sonde__op_attrs *attrs, const value *in)
{
    sonde__op_attrs kept = {
        .reduce = {.rank = 1, .dims = {attrs->vectors.axis}, .keep_dims = true}};
    const value largest = one(b, &sonde__op_clamp,
                              &(sonde__op_attrs){.function = {.number = {-3e38F, 3e38F}}},
                              one(b, &sonde__op_extreme, &kept, in[0]));
    const value shifted = two(b, &sonde__op_sub, in[0], largest);
    const value sum =
        one(b, &sonde__op_log, NULL,
            sum_of(b, one(b, &sonde__op_exp, NULL, shifted), attrs->vectors.axis, true));
    const value y = two(b, &sonde__op_add, sum, largest);

    return attrs->vectors.keep_dims ? y : sum_of(b, y, attrs->vectors.axis, false);
}

/* The mean of squared differences, times n / (n - correction). */
static value variance(builder *b, const sonde__op_attrs *attrs, value x)
{
    const sonde__op_shape s = *sonde__op_value_shape(b->graph, x);
    sonde__op_attrs mean = {.reduce = {.mean = true, .keep_dims = true}};
    int axis = attrs->vectors.axis;

    if (sonde__op_expect_axis(&axis, s.rank, b->diag) != SONDE_OK) {
        return 0;
    }
    mean.reduce.axes = 1U << (unsigned)axis;
    const double count = (double)s.dim[axis];
    if (count <= (double)attrs->vectors.correction) {
        (void)sonde__fail(b->diag, SONDE_ESHAPE, NULL, "more elements than correction",
                          "dimension %d has %g", axis, count);
        return 0;
    }
    value y = two(b, &sonde__op_sub, x, one(b, &sonde__op_reduce, &mean, x));
    mean.reduce.keep_dims = attrs->vectors.keep_dims;
    y = one(b, &sonde__op_reduce, &mean, square_of(b, y));
    return scaled(b, y, (float)(count / (count - (double)attrs->vectors.correction)));
}

static value build_var(builder *b, sonde__op_attrs *attrs, const value *in)
{
    return variance(b, attrs, in[0]);
}

static value build_std(builder *b, sonde__op_attrs *attrs, const value *in)
{
    return root_of(b, variance(b, attrs, in[0]));
}

SONDE__LAYER(glu, mul, 1, "the first half along dim times the sigmoid of the second",
             .fields = {DIM(-1.0)}, .build = build_glu);

SONDE__LAYER(softmin, softmax, 1, "softmax(-x) along dim", .fields = {DIM((double)NAN)},
             .build = build_softmin);

SONDE__LAYER(logsumexp, log, 1, "the logarithm of the sum of exp(x) along dim",
             .fields = {DIM((double)NAN), KEEP}, .build = build_logsumexp);

#define CORRECTION                                                                       \
    SONDE__FIELD("correction", SONDE__FIELD_WHOLE, vectors.correction, 1.0, 0, 1)

SONDE__LAYER(var, reduce, 1,
             "the sum of squared differences from the mean along dim, by n - correction",
             .fields = {DIM((double)NAN), CORRECTION, KEEP}, .build = build_var);

SONDE__LAYER(std, sqrt, 1, "the square root of var",
             .fields = {DIM((double)NAN), CORRECTION, KEEP}, .build = build_std);

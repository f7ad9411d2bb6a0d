/*
 * order.c - the order of elements along an axis, their running sums, and the places of the
 * largest in windows. What has places for a result is int64 and has no gradient: layers
 * take the elements there by Gather (index.c), which has one.
 *
 *   ArgSort    y[..., i, ...] = the place of the i-th smallest (choice 1: largest) along
 *              axis, for i < kernel[0], or all of them if that is 0. NaN is larger than
 *              any number; of equal ones the first comes first.
 *   CumSum     y[..., i, ...] = x[..., 0, ...] + ... + x[..., i, ...]; choice 1: from i to
 *              the end, which is the gradient of the other
 *   ArgWindow  the place h W + w of the largest in each window of adaptive_max_pool2d, of
 *              x (N, C, H, W) as (N, C, oh ow); kernel: (oh, ow). Of equal ones the first,
 *              of NaN the last.
 *
 * A part has some of the lines.
 */
#include "base/fail.h"
#include "nn/ops/common.h"
#include "nn/ops/layer_row.h"

#include <math.h>
#include <string.h>

/* A line along the axis: element i is at start + i step. */
typedef struct line {
    int64_t start, step;
} line;

static line line_number(const sonde__op_shape *shape, int axis, int64_t i)
{
    const int64_t inner = sonde__op_dims_product(shape, axis + 1, shape->rank);

    return (line){i / inner * shape->dim[axis] * inner + i % inner, inner};
}

static int64_t count_lines(const sonde__op_shape *shape, int axis)
{
    return sonde__op_dims_product(shape, 0, axis) *
           sonde__op_dims_product(shape, axis + 1, shape->rank);
}

static int line_parts(const sonde__op_call *call, int max)
{
    const sonde__op_shape *x = &call->in[0].shape;
    const int64_t lines = count_lines(x, call->attrs->order.axis);
    const int64_t worth = sonde__op_shape_count(x) / 8192;
    const int64_t parts = worth < lines ? worth : lines;

    return parts < 1 ? 1 : parts > max ? max : (int)parts;
}

/* --- sorting -------------------------------------------------------------------------- */

static sonde_err arg_sort_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                sonde_diag *diag)
{
    const sonde__op_shape *x = &call->in[0].shape;

    SONDE__TRY(sonde__op_expect_float(x, "input", diag));
    SONDE__TRY(sonde__op_expect_axis(&attrs->order.axis, x->rank, diag));
    const int64_t extent = x->dim[attrs->order.axis];
    if (attrs->order.k < 0 || attrs->order.k > extent) {
        return sonde__fail(diag, SONDE_EINVAL, NULL, "no more than there are",
                           "k is %lld of %lld elements", (long long)attrs->order.k,
                           (long long)extent);
    }
    call->out[0].shape = *x;
    call->out[0].shape.dtype = SONDE_I64;
    if (attrs->order.k > 0) {
        call->out[0].shape.dim[attrs->order.axis] = attrs->order.k;
    }
    return sonde__op_expect_size(&call->out[0].shape, "output", diag);
}

/* Whether b has to come before a, which is before it. */
static bool precedes(double b, double a, bool descending)
{
    if (isnan(a) || isnan(b)) {
        return descending ? isnan(b) && !isnan(a) : isnan(a) && !isnan(b);
    }
    return descending ? b > a : b < a;
}

/* Merges runs [first, middle) and [middle, end) of places. */
static void merge_runs(const double *values, const int64_t *places, int64_t first,
                       int64_t middle, int64_t end, bool descending, int64_t *merged)
{
    int64_t a = first, b = middle;

    for (int64_t i = first; i < end; i++) {
        const bool second =
            a == middle ||
            (b < end && precedes(values[places[b]], values[places[a]], descending));

        merged[i] = second ? places[b++] : places[a++];
    }
}

/* The order of `count` values; returns which of the two buffers has it. */
static const int64_t *sort_line(const double *values, int64_t count, bool descending,
                                int64_t *places, int64_t *other)
{
    for (int64_t i = 0; i < count; i++) {
        places[i] = i;
    }
    for (int64_t size = 1; size < count; size *= 2) {
        int64_t *swapped = places;

        for (int64_t first = 0; first < count; first += 2 * size) {
            const int64_t middle = first + size < count ? first + size : count;
            const int64_t end = first + 2 * size < count ? first + 2 * size : count;

            merge_runs(values, places, first, middle, end, descending, other);
        }
        places = other;
        other = swapped;
    }
    return places;
}

/* Of a part: the values of a line, and its places twice. */
static size_t line_scratch(const sonde__op_call *call, int parts)
{
    return (size_t)call->in[0].shape.dim[call->attrs->order.axis] *
           (sizeof(double) + 2 * sizeof(int64_t)) * (size_t)parts;
}

static void arg_sort_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__operand *x = &call->in[0];
    const sonde__op_shape *y = &call->out[0].shape;
    const int axis = call->attrs->order.axis;
    const int64_t extent = x->shape.dim[axis], lines = count_lines(&x->shape, axis);
    double *values = (double *)call->scratch + 3 * extent * part;
    int64_t *places = (int64_t *)(values + extent), *target = call->out[0].data;

    for (int64_t n = lines * part / parts; n < lines * (part + 1) / parts; n++) {
        const line from_x = line_number(&x->shape, axis, n),
                   to_y = line_number(y, axis, n);
        const int64_t *order = NULL;

        for (int64_t i = 0; i < extent; i++) {
            values[i] = sonde__op_load(x, from_x.start + i * from_x.step);
        }
        order = sort_line(values, extent, call->attrs->order.descending, places,
                          places + extent);
        for (int64_t i = 0; i < y->dim[axis]; i++) {
            target[to_y.start + i * to_y.step] = order[i];
        }
    }
}

SONDE__OP(arg_sort, "ArgSort", order, 1, 1, 1, .infer = arg_sort_infer,
          SONDE__REFERENCE(arg_sort_run, .scratch = line_scratch, .parts = line_parts));

/* --- running sums --------------------------------------------------------------------- */

static sonde_err cumsum_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                              sonde_diag *diag)
{
    const sonde__op_shape *x = &call->in[0].shape;

    if (x->dtype == SONDE_I64) {
        SONDE__TRY(sonde__op_expect_size(x, "input", diag));
    } else {
        SONDE__TRY(sonde__op_expect_float(x, "input", diag));
    }
    SONDE__TRY(sonde__op_expect_axis(&attrs->order.axis, x->rank, diag));
    call->out[0].shape = *x;
    return SONDE_OK;
}

static void cumsum_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__operand *x = &call->in[0];
    const int axis = call->attrs->order.axis;
    const int64_t extent = x->shape.dim[axis], lines = count_lines(&x->shape, axis);

    for (int64_t n = lines * part / parts; n < lines * (part + 1) / parts; n++) {
        const line l = line_number(&x->shape, axis, n);
        uint64_t whole = 0;
        double sum = 0.0;

        for (int64_t i = 0; i < extent; i++) {
            const int64_t at =
                l.start + (call->attrs->order.descending ? extent - 1 - i : i) * l.step;

            if (x->shape.dtype == SONDE_I64) {
                whole += ((const uint64_t *)x->data)[at];
                ((uint64_t *)call->out[0].data)[at] = whole;
            } else {
                sum += sonde__op_load(x, at);
                sonde__op_store(&call->out[0], at, sum);
            }
        }
    }
}

static void cumsum_gradient(const sonde__op_gradient_context *context)
{
    sonde__op_attrs back = *context->attrs;

    back.order.descending = !back.order.descending;
    context->grad_in[0] =
        sonde__op_emit(context->graph, &sonde__op_cumsum, &back, context->grad_out, 1);
}

SONDE__OP(cumsum, "CumSum", order, 1, 1, 1, .infer = cumsum_infer,
          .gradient = cumsum_gradient, SONDE__REFERENCE(cumsum_run, .parts = line_parts));

/* --- windows -------------------------------------------------------------------------- */

static sonde_err arg_window_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                  sonde_diag *diag)
{
    const sonde__op_shape *x = &call->in[0].shape;

    SONDE__TRY(sonde__op_expect_rank(x, 4, "input", "(N, C, H, W)", diag));
    for (int d = 0; d < 2; d++) {
        if (attrs->window.kernel[d] < 1 || attrs->window.kernel[d] > SONDE__MAX_EXTENT ||
            x->dim[2 + d] < 1) {
            return sonde__fail(
                diag, SONDE_EINVAL, NULL, "1 to 2^24", "%lld windows of %lld elements",
                (long long)attrs->window.kernel[d], (long long)x->dim[2 + d]);
        }
    }
    call->out[0].shape = (sonde__op_shape){
        .dtype = SONDE_I64,
        .rank = 3,
        .dim = {x->dim[0], x->dim[1], attrs->window.kernel[0] * attrs->window.kernel[1]}};
    return sonde__op_expect_size(&call->out[0].shape, "output", diag);
}

/* The largest of rows [h0, h1) and columns [w0, w1) of an image at `start`. */
static int64_t largest_in(const sonde__operand *x, int64_t start, int64_t h0, int64_t h1,
                          int64_t w0, int64_t w1)
{
    const int64_t width = x->shape.dim[3];
    int64_t best = h0 * width + w0;

    for (int64_t h = h0; h < h1; h++) {
        for (int64_t w = w0; w < w1; w++) {
            const double value = sonde__op_load(x, start + h * width + w);

            if (isnan(value) || value > sonde__op_load(x, start + best)) {
                best = h * width + w;
            }
        }
    }
    return best;
}

static void arg_window_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__operand *x = &call->in[0];
    const int64_t height = x->shape.dim[2], width = x->shape.dim[3];
    const int64_t rows = call->attrs->window.kernel[0],
                  cols = call->attrs->window.kernel[1];
    const int64_t images = x->shape.dim[0] * x->shape.dim[1];
    int64_t *y = call->out[0].data;

    for (int64_t n = images * part / parts; n < images * (part + 1) / parts; n++) {
        for (int64_t i = 0; i < rows * cols; i++) {
            const int64_t r = i / cols, c = i % cols;

            y[n * rows * cols + i] =
                largest_in(x, n * height * width, r * height / rows,
                           ((r + 1) * height + rows - 1) / rows, c * width / cols,
                           ((c + 1) * width + cols - 1) / cols);
        }
    }
}

static int image_parts(const sonde__op_call *call, int max)
{
    const sonde__op_shape *x = &call->in[0].shape;
    const int64_t images = x->dim[0] * x->dim[1];
    const int64_t worth = sonde__op_shape_count(x) / 8192;
    const int64_t parts = worth < images ? worth : images;

    return parts < 1 ? 1 : parts > max ? max : (int)parts;
}

SONDE__OP(arg_window, "ArgWindow", window, 1, 1, 1, .infer = arg_window_infer,
          SONDE__REFERENCE(arg_window_run, .parts = image_parts));

/* --- layers ---------------------------------------------------------------------------- */

#define DESCENDING                                                                       \
    SONDE__FIELD("descending", SONDE__FIELD_FLAG, order.descending, 0.0, 0, 1)

/* The places; keep_dims: and not the elements there. */
static sonde__op_value emit_sorted(const sonde__op_builder *builder,
                                   const sonde__op_attrs *attrs, sonde__op_value x)
{
    const sonde__op_attrs order = {.order = {.axis = attrs->order.axis,
                                             .k = attrs->order.k,
                                             .descending = attrs->order.descending}};
    const sonde__op_attrs axis = {.index = {.axis = attrs->order.axis}};
    const sonde__op_value places =
        builder->emit(builder, &sonde__op_arg_sort, &order, &x, 1);

    return places == 0 || attrs->order.indices
               ? places
               : builder->emit(builder, &sonde__op_gather, &axis,
                               (const sonde__op_value[]){x, places}, 2);
}

static sonde__op_value build_sorted(const sonde__op_builder *builder,
                                    sonde__op_attrs *attrs, const sonde__op_value *in)
{
    return emit_sorted(builder, attrs, in[0]);
}

static const sonde__op_attrs places_alone = {.order = {.indices = true}};

SONDE__LAYER(argsort, arg_sort, 1,
             "the places (int64) of the elements along dim, in order; NaN is the largest",
             .preset = &places_alone,
             .fields = {SONDE__FIELD_DIM("dim", order.axis, -1.0), DESCENDING},
             .build = build_sorted);

SONDE__LAYER(sort, gather, 1, "the elements along dim, in order; NaN is the largest",
             .fields = {SONDE__FIELD_DIM("dim", order.axis, -1.0), DESCENDING},
             .build = build_sorted);

SONDE__LAYER(
    topk, gather, 1,
    "the k largest (or smallest) elements along dim, in order; or, as indices, "
    "their places (int64)",
    .fields = {SONDE__FIELD("k", SONDE__FIELD_WHOLE, order.k, (double)NAN, 1, 1 << 24),
               SONDE__FIELD_DIM("dim", order.axis, -1.0),
               SONDE__FIELD("largest", SONDE__FIELD_FLAG, order.descending, 1.0, 0, 1),
               SONDE__FIELD("indices", SONDE__FIELD_FLAG, order.indices, 0.0, 0, 1)},
    .build = build_sorted);

SONDE__LAYER(cumsum, cumsum, 1, "the sum of the elements up to each along dim",
             .fields = {SONDE__FIELD_DIM("dim", order.axis, (double)NAN)});

/*
 * slice.c - parts of a tensor, and two tensors as one.
 *
 * Some of the places along a dimension, and the gradient; as x[start:end:step].
 *
 *   Slice      y = x[..., start, start + step, ... below end, ...]
 *   SliceGrad  dx = dy at those places, 0 elsewhere
 *
 * A negative start or end counts from the end; one beyond an end of the dimension means
 * that end, as in Python. Both take every dtype; dx is float.
 *
 * Two tensors one after the other along an axis, floating or int64, and the
 * gradient, which is its two parts; as torch.cat.
 *
 * attrs: slice, along.
 */
#include "base/fail.h"
#include "base/macros.h"
#include "nn/ops/common.h"
#include "nn/ops/layer_row.h"

#include <string.h>

/* === slice ========================================================================== */

static int64_t bounded(int64_t place, int64_t extent)
{
    place += place < 0 ? extent : 0;
    return SONDE_MIN(SONDE_MAX(place, 0), extent);
}

/* Completes attrs, and fills the shape of y. */
static sonde_err expect_slice(const sonde__op_shape *x, sonde__op_attrs *attrs,
                              sonde__op_shape *y, sonde_diag *diag)
{
    int64_t extent = 0, length = 0;

    SONDE__TRY(sonde__op_expect_size(x, "input", diag));
    SONDE__TRY(sonde__op_expect_axis(&attrs->slice.axis, x->rank, diag));
    attrs->slice.step = attrs->slice.step == 0 ? 1 : attrs->slice.step;
    if (attrs->slice.step < 1) {
        return sonde__fail(diag, SONDE_EINVAL, NULL, "at least 1", "step is %lld",
                           (long long)attrs->slice.step);
    }
    extent = x->dim[attrs->slice.axis];
    attrs->slice.start = bounded(attrs->slice.start, extent);
    attrs->slice.end = bounded(attrs->slice.end, extent);
    length = attrs->slice.end - attrs->slice.start;
    if (length <= 0) {
        return sonde__fail(diag, SONDE_ESHAPE, NULL, "start before end",
                           "no element from %lld to %lld of dimension %d, of %lld",
                           (long long)attrs->slice.start, (long long)attrs->slice.end,
                           attrs->slice.axis, (long long)extent);
    }
    *y = *x;
    y->dim[attrs->slice.axis] = (length + attrs->slice.step - 1) / attrs->slice.step;
    return SONDE_OK;
}

static sonde_err slice_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                             sonde_diag *diag)
{
    return expect_slice(&call->in[0].shape, attrs, &call->out[0].shape, diag);
}

/* Copies between x and y, in runs of what follows the axis. */
static void copy_runs(const sonde__op_shape *x, const sonde__op_shape *y,
                      const sonde__op_attrs *attrs, char *of_x, char *of_y, bool to_x)
{
    const int64_t inner = sonde__op_dims_product(x, attrs->slice.axis + 1, x->rank);
    const int64_t outer = sonde__op_dims_product(x, 0, attrs->slice.axis);
    const size_t bytes = (size_t)inner * sonde_dtype_size(x->dtype);

    for (int64_t o = 0; o < outer; o++) {
        for (int64_t i = 0; i < y->dim[attrs->slice.axis]; i++) {
            const int64_t place = attrs->slice.start + i * attrs->slice.step;
            char *run_x = of_x + (size_t)(o * x->dim[attrs->slice.axis] + place) * bytes;
            char *run_y = of_y + (size_t)(o * y->dim[attrs->slice.axis] + i) * bytes;

            memcpy(to_x ? run_x : run_y, to_x ? run_y : run_x, bytes);
        }
    }
}

static void slice_run(const sonde__op_call *call, int part, int parts)
{
    (void)part, (void)parts;
    copy_runs(&call->in[0].shape, &call->out[0].shape, call->attrs, call->in[0].data,
              call->out[0].data, false);
}

SONDE__OP(slice, "Slice", slice, 1, 1, 1, .infer = slice_infer,
          .backward = {&sonde__op_slice_grad, "d", 0, true}, SONDE__REFERENCE(slice_run));

static sonde_err slice_grad_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                  sonde_diag *diag)
{
    return sonde__op_infer_shaped(call, attrs, slice_infer, diag);
}

static void slice_grad_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__op_shape *x = &call->out[0].shape;

    (void)part, (void)parts;
    memset(call->out[0].data, 0,
           (size_t)sonde__op_shape_count(x) * sonde_dtype_size(x->dtype));
    copy_runs(x, &call->in[0].shape, call->attrs, call->out[0].data, call->in[0].data,
              true);
}

SONDE__OP(slice_grad, "SliceGrad", slice, 1, 1, 1, .infer = slice_grad_infer,
          SONDE__REFERENCE(slice_grad_run));

#define WHOLE(key_, member, fallback_, text)                                             \
    {                                                                                    \
        .key = (key_), .kind = SONDE__FIELD_WHOLE,                                       \
        .offset = offsetof(sonde__op_attrs, member), .fallback = (fallback_),            \
        .least = -1e9, .most = 1e9, .fallback_text = (text)                              \
    }

SONDE__LAYER(slice, slice, 1,
             "places start, start + step ... before end of the dimension dim; negative "
             "ones count from the end",
             .fields = {
                 SONDE__FIELD("dim", SONDE__FIELD_AXIS, slice.axis, 0.0, -SONDE_MAX_DIMS,
                              SONDE_MAX_DIMS - 1),
                 WHOLE("start", slice.start, 0.0, NULL),
                 WHOLE("end", slice.end, 1e9, "the end"),
                 SONDE__FIELD("step", SONDE__FIELD_WHOLE, slice.step, 1.0, 1, 1e9)});

/* === cat ============================================================================ */

static sonde_err expect_pair(const sonde__op_shape *a, const sonde__op_shape *b,
                             sonde__op_attrs *attrs, sonde__op_shape *y, sonde_diag *diag)
{
    sonde__op_shape wanted = *a;

    if (a->dtype != SONDE_I64) {
        SONDE__TRY(sonde__op_expect_float(a, "input", diag));
    }
    SONDE__TRY(sonde__op_expect_axis(&attrs->along.axis, a->rank, diag));
    wanted.dim[attrs->along.axis] = b->rank == a->rank ? b->dim[attrs->along.axis] : 0;
    SONDE__TRY(sonde__op_expect_shape(b, &wanted, "second input", diag));
    *y = *a;
    y->dim[attrs->along.axis] += b->dim[attrs->along.axis];
    return sonde__op_expect_size(y, "output", diag);
}

static sonde_err cat_infer(sonde__op_call *call, sonde__op_attrs *attrs, sonde_diag *diag)
{
    return expect_pair(&call->in[0].shape, &call->in[1].shape, attrs, &call->out[0].shape,
                       diag);
}

/* Copies between y and the k-th part of it. */
static void copy_part(const sonde__op_shape *y, int axis, const sonde__operand *part,
                      int64_t first, char *whole, bool into)
{
    const size_t size = sonde_dtype_size(y->dtype);
    const int64_t rows = sonde__op_dims_product(y, 0, axis);
    const int64_t length = sonde__op_dims_product(&part->shape, axis, part->shape.rank);
    const int64_t stride = sonde__op_dims_product(y, axis, y->rank);
    const int64_t start = first * sonde__op_dims_product(y, axis + 1, y->rank);

    for (int64_t row = 0; row < rows; row++) {
        char *of_part = (char *)part->data + (size_t)(row * length) * size;
        char *of_whole = whole + (size_t)(row * stride + start) * size;

        memcpy(into ? of_whole : of_part, into ? of_part : of_whole,
               (size_t)length * size);
    }
}

static void cat_run(const sonde__op_call *call, int part, int parts)
{
    const int axis = call->attrs->along.axis;

    (void)part, (void)parts;
    copy_part(&call->out[0].shape, axis, &call->in[0], 0, call->out[0].data, true);
    copy_part(&call->out[0].shape, axis, &call->in[1], call->in[0].shape.dim[axis],
              call->out[0].data, true);
}

SONDE__OP(cat, "Cat", along, 2, 2, 1, .infer = cat_infer,
          .backward = {&sonde__op_cat_grad, "d01"}, SONDE__REFERENCE(cat_run));

/* dy, and the two inputs for their shapes. */
static sonde_err cat_grad_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                sonde_diag *diag)
{
    return sonde__op_infer_after(call, attrs, cat_infer, 2, 0, diag);
}

static void cat_grad_run(const sonde__op_call *call, int part, int parts)
{
    const int axis = call->attrs->along.axis;

    (void)part, (void)parts;
    copy_part(&call->in[0].shape, axis, &call->out[0], 0, call->in[0].data, false);
    copy_part(&call->in[0].shape, axis, &call->out[1], call->out[0].shape.dim[axis],
              call->in[0].data, false);
}

SONDE__OP(cat_grad, "CatGrad", along, 3, 3, 2, .out_names = {NULL, "GradB"},
          .infer = cat_grad_infer, SONDE__REFERENCE(cat_grad_run));

SONDE__LAYER(cat, cat, 2, "b after a along the dimension dim",
             .fields = {SONDE__FIELD("dim", SONDE__FIELD_AXIS, along.axis, 0.0,
                                     -SONDE_MAX_DIMS, SONDE_MAX_DIMS - 1)});

/*
 * cat.c - two tensors one after the other along an axis, floating or int64, and the
 * gradient, which is its two parts; as torch.cat.
 *
 * attrs: axis.
 */
#include "base/fail.h"
#include "nn/ops/common.h"
#include "nn/ops/layer_row.h"

#include <string.h>

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

const sonde__op_kind sonde__op_cat = {
    .name = "Cat",
    SONDE__OPERANDS(along, 2, 2, 1),
    .infer = cat_infer,
    .backward = {&sonde__op_cat_grad, "d01"},
    SONDE__REFERENCE(cat_run),
};

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

const sonde__op_kind sonde__op_cat_grad = {
    .name = "CatGrad",
    SONDE__OPERANDS(along, 3, 3, 2),
    .out_names = {NULL, "GradB"},
    .infer = cat_grad_infer,
    SONDE__REFERENCE(cat_grad_run),
};

const sonde__op_layer sonde__layer_cat = {
    .name = "cat",
    .kind = &sonde__op_cat,
    .inputs = 2,
    .fields = {SONDE__FIELD("dim", SONDE__FIELD_AXIS, along.axis, 0.0, -SONDE_MAX_DIMS,
                            SONDE_MAX_DIMS - 1)},
    .help = "b after a along the dimension dim",
};

/*
 * cast.c - other dtypes, and labels as numbers.
 *
 * The same numbers in another dtype.
 *
 *   Cast   to 0: float32, of a float64 itself; 1: int64, towards 0, and INT64_MIN of
 *          NaN and of what does not fit; 2: bool, whether it is not 0; 3: bfloat16, 4:
 *          float16, to nearest, ties to even
 *
 * Only from float to float there is a gradient: dy in the dtype of x.
 *
 * Labels as numbers: what losses of real values compare an output with.
 *
 *   Number   y[n, 0] = x[n]
 *   OneHot   y[..., c] = 1 if x[...] is c, otherwise 0, as torch.nn.functional.one_hot
 *
 * x is int64, of Number (N); y is float32. A label out of range has a row of NaN; a session refuses it
 * before it runs. Neither has a gradient.
 *
 * attrs: cast, labels.
 */
#include "base/fail.h"
#include "nn/kernels/fast.h"
#include "nn/ops/common.h"
#include "nn/ops/layer_row.h"

#include <string.h>
#include <math.h>

/* === cast =========================================================================== */

enum { TO_FLOAT, TO_WHOLE, TO_BOOL, TO_BF16, TO_F16 };

static sonde_err cast_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                            sonde_diag *diag)
{
    const sonde__op_shape *x = &call->in[0].shape;
    const bool floats =
        x->dtype == SONDE_F32 || x->dtype == SONDE_F64 || sonde__op_is_half(x->dtype);

    SONDE__TRY(sonde__op_expect_size(x, "input", diag));
    if (!floats && x->dtype != SONDE_I64 && x->dtype != SONDE_BOOL) {
        return sonde__fail(diag, SONDE_EDTYPE, NULL, "a float, int64 or bool",
                           "input of %s", sonde_dtype_name(x->dtype));
    }
    call->out[0].shape = *x;
    call->out[0].shape.dtype = attrs->cast.to == TO_WHOLE  ? SONDE_I64
                               : attrs->cast.to == TO_BOOL ? SONDE_BOOL
                               : attrs->cast.to == TO_BF16 ? SONDE_BF16
                               : attrs->cast.to == TO_F16  ? SONDE_F16
                               : x->dtype == SONDE_F64     ? SONDE_F64
                                                           : SONDE_F32;
    return SONDE_OK;
}

static int64_t whole(double value)
{
    return value > -0x1p63 && value < 0x1p63 ? (int64_t)value : INT64_MIN;
}

static void cast_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__operand *x = &call->in[0];
    const sonde_dtype dtype = x->shape.dtype;
    const int64_t count = sonde__op_shape_count(&x->shape);
    void *y = call->out[0].data;

    (void)part, (void)parts;
    for (int64_t i = 0; i < count; i++) {
        const int64_t number = dtype == SONDE_I64    ? ((const int64_t *)x->data)[i]
                               : dtype == SONDE_BOOL ? ((const uint8_t *)x->data)[i] != 0
                                                     : 0;
        const bool floats = sonde_dtype_is_float(dtype);
        const double value = floats ? sonde__op_load(x, i) : (double)number;

        if (sonde_dtype_is_float(call->out[0].shape.dtype)) {
            sonde__op_store(&call->out[0], i, value);
        } else if (call->attrs->cast.to == TO_WHOLE) {
            ((int64_t *)y)[i] = floats ? whole(value) : number;
        } else {
            ((uint8_t *)y)[i] = floats ? !(value == 0.0) : number != 0;
        }
    }
}

static void cast_gradient(const sonde__op_gradient_context *context)
{
    const sonde_dtype dtype =
        sonde__op_value_shape(context->graph, context->in[0])->dtype;
    const sonde_dtype made =
        sonde__op_value_shape(context->graph, context->out[0])->dtype;
    const sonde__op_attrs attrs = {.cast.to = dtype == SONDE_BF16  ? TO_BF16
                                              : dtype == SONDE_F16 ? TO_F16
                                                                   : TO_FLOAT};

    if (!context->wanted[0] || !sonde_dtype_is_float(dtype) ||
        !sonde_dtype_is_float(made)) {
        return;
    }
    context->grad_in[0] = dtype == made ? context->grad_out[0]
                                        : sonde__op_emit(context->graph, &sonde__op_cast,
                                                         &attrs, context->grad_out, 1);
}

SONDE__OP(cast, "Cast", cast, 1, 1, 1, .infer = cast_infer, .gradient = cast_gradient,
          SONDE__REFERENCE(cast_run), .halves = SONDE__HALVES_KEPT,
          .half_kernels = sonde__kernel_cast_half);

SONDE__LAYER(to, cast, 1, "the same numbers in another dtype",
             .fields = {SONDE__FIELD_CHOICE("dtype", cast.to, "float32", "int64", "bool",
                                            "bfloat16", "float16")});

/* === one hot ======================================================================== */

static sonde_err number_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                              sonde_diag *diag)
{
    const sonde__op_shape *x = &call->in[0].shape;
    const sonde__op_shape labels = {.dtype = SONDE_I64, .rank = 1, .dim = {x->dim[0]}};

    (void)attrs;
    SONDE__TRY(sonde__op_expect_shape(x, &labels, "labels", diag));
    call->out[0].shape =
        (sonde__op_shape){.dtype = SONDE_F32, .rank = 2, .dim = {x->dim[0], 1}};
    return sonde__op_expect_size(&call->out[0].shape, "labels", diag);
}

static void number_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t *x = call->in[0].data;

    (void)part, (void)parts;
    for (int64_t n = 0; n < call->in[0].shape.dim[0]; n++) {
        sonde__op_store(&call->out[0], n, (double)x[n]);
    }
}

SONDE__OP(number, "Number", none, 1, 1, 1, .infer = number_infer,
          SONDE__REFERENCE(number_run));

static sonde_err one_hot_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                               sonde_diag *diag)
{
    const sonde__op_shape *x = &call->in[0].shape;
    sonde__op_shape y = *x;

    SONDE__TRY(sonde__op_expect_dtype(x, SONDE_I64, "labels", diag));
    SONDE__TRY(sonde__op_expect_size(x, "labels", diag));
    if (x->rank >= SONDE_MAX_DIMS || attrs->labels.classes < 1) {
        return sonde__fail(
            diag, SONDE_ESHAPE, NULL, "labels of at most 7 dimensions, and a class",
            "%d dimensions and %lld classes", x->rank, (long long)attrs->labels.classes);
    }
    y.dtype = SONDE_F32;
    y.dim[y.rank++] = attrs->labels.classes;
    call->out[0].shape = y;
    return sonde__op_expect_size(&y, "output", diag);
}

static void one_hot_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t *x = call->in[0].data;
    const int64_t classes = call->attrs->labels.classes;
    const int64_t count = sonde__op_shape_count(&call->in[0].shape);

    (void)part, (void)parts;
    for (int64_t n = 0; n < count; n++) {
        const bool in_range = x[n] >= 0 && x[n] < classes;

        for (int64_t c = 0; c < classes; c++) {
            sonde__op_store(&call->out[0], n * classes + c,
                            !in_range   ? (double)NAN
                            : c == x[n] ? 1.0
                                        : 0.0);
        }
    }
}

static bool one_hot_ids(const sonde__op_call *call, int operand, sonde__op_ids *ids)
{
    *ids = (sonde__op_ids){.what = "label", .count = call->attrs->labels.classes};
    return operand == 0;
}

SONDE__OP(one_hot, "OneHot", labels, 1, 1, 1, .infer = one_hot_infer,
          SONDE__REFERENCE(one_hot_run), .ids = one_hot_ids);

SONDE__LAYER(one_hot, one_hot, 1,
             "1 at the place x (int64) of num_classes, else 0; float32",
             .fields = {SONDE__FIELD("num_classes", SONDE__FIELD_WHOLE, labels.classes,
                                     (double)NAN, 1, 1 << 24)});

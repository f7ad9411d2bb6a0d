/*
 * cast.c - the same numbers in another dtype.
 *
 *   Cast   choice 0: float32, of a float64 itself; 1: int64, towards 0, and INT64_MIN of
 *          NaN and of what does not fit; 2: bool, whether it is not 0; 3: bfloat16, 4:
 *          float16, to nearest, ties to even
 *
 * Only from float to float there is a gradient: dy in the dtype of x.
 */
#include "base/fail.h"
#include "nn/kernels/fast.h"
#include "nn/ops/common.h"
#include "nn/ops/layer_row.h"

#include <string.h>

extern const sonde__op_layer sonde__layer_to;

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
    call->out[0].shape.dtype = attrs->choice == TO_WHOLE  ? SONDE_I64
                               : attrs->choice == TO_BOOL ? SONDE_BOOL
                               : attrs->choice == TO_BF16 ? SONDE_BF16
                               : attrs->choice == TO_F16  ? SONDE_F16
                               : x->dtype == SONDE_F64    ? SONDE_F64
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
        } else if (call->attrs->choice == TO_WHOLE) {
            ((int64_t *)y)[i] = floats ? whole(value) : number;
        } else {
            ((uint8_t *)y)[i] = floats ? !(value == 0.0) : number != 0;
        }
    }
}

SONDE__KERNELS(cast, NULL)
SONDE__HALF_KERNELS(cast)

static void cast_gradient(const sonde__op_gradient_context *context)
{
    const sonde_dtype dtype =
        sonde__op_value_shape(context->graph, context->in[0])->dtype;
    const sonde_dtype made =
        sonde__op_value_shape(context->graph, context->out[0])->dtype;
    const sonde__op_attrs attrs = {.choice = dtype == SONDE_BF16  ? TO_BF16
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

const sonde__op_kind sonde__op_cast = {
    .name = "Cast",
    SONDE__OPERANDS(1, 1, 1),
    .infer = cast_infer,
    .gradient = cast_gradient,
    .kernels = cast_kernels,
    .halves = SONDE__HALVES_KEPT,
    .half_kernels = cast_half_kernels,
};

const sonde__op_layer sonde__layer_to = {
    .name = "to",
    .kind = &sonde__op_cast,
    .inputs = 1,
    .fields = {SONDE__FIELD_CHOICE("dtype", choice, "float32", "int64", "bool",
                                   "bfloat16", "float16")},
    .help = "the same numbers in another dtype",
};

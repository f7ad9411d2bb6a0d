/*
 * cast.c - the same numbers in another dtype.
 *
 *   Cast   choice 0: float32, of a float the float that it is; 1: int64, towards 0, and
 *          INT64_MIN of NaN and of what does not fit; 2: bool, whether it is not 0
 *
 * Only from float to float there is a gradient, which is dy.
 */
#include "base/fail.h"
#include "nn/ops/common.h"
#include "nn/ops/layer_row.h"

#include <string.h>

extern const sonde__op_kind sonde__op_cast;
extern const sonde__op_layer sonde__layer_to;

enum { TO_FLOAT, TO_WHOLE, TO_BOOL };

static sonde_err cast_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                            sonde_diag *diag)
{
    const sonde__op_shape *x = &call->in[0].shape;
    const bool floats = x->dtype == SONDE_F32 || x->dtype == SONDE_F64;

    SONDE__TRY(sonde__op_expect_size(x, "input", diag));
    if (!floats && x->dtype != SONDE_I64 && x->dtype != SONDE_BOOL) {
        return sonde__fail(diag, SONDE_EDTYPE, NULL, "float32, float64, int64 or bool",
                           "input of %s", sonde_dtype_name(x->dtype));
    }
    call->out[0].shape = *x;
    call->out[0].shape.dtype = attrs->choice == TO_WHOLE  ? SONDE_I64
                               : attrs->choice == TO_BOOL ? SONDE_BOOL
                               : floats                   ? x->dtype
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
        const bool floats = dtype == SONDE_F32 || dtype == SONDE_F64;
        const double value = floats ? sonde__op_load(x, i) : (double)number;

        if (call->attrs->choice == TO_FLOAT) {
            sonde__op_store(&call->out[0], i, value);
        } else if (call->attrs->choice == TO_WHOLE) {
            ((int64_t *)y)[i] = floats ? whole(value) : number;
        } else {
            ((uint8_t *)y)[i] = floats ? !(value == 0.0) : number != 0;
        }
    }
}

SONDE__KERNELS(cast, NULL)

static void cast_gradient(const sonde__op_gradient_context *context)
{
    if (context->attrs->choice == TO_FLOAT && context->wanted[0]) {
        context->grad_in[0] = context->grad_out[0];
    }
}

const sonde__op_kind sonde__op_cast = {
    .name = "Cast",
    .in_min = 1,
    .in_max = 1,
    .out_count = 1,
    .infer = cast_infer,
    .gradient = cast_gradient,
    .kernels = cast_kernels,
};

const sonde__op_layer sonde__layer_to = {
    .name = "to",
    .kind = &sonde__op_cast,
    .inputs = 1,
    .fields = {SONDE__FIELD_CHOICE("dtype", choice, "float32", "int64", "bool")},
    .help = "the same numbers in another dtype",
};

/*
 * one_hot.c - labels as numbers: what losses of real values compare an output with.
 *
 *   Number   y[n, 0] = x[n]
 *   OneHot   y[n, c] = 1 if x[n] is c, otherwise 0, as torch.nn.functional.one_hot
 *
 * x is int64 (N), y float32. A label out of range has a row of NaN; a session refuses it
 * before it runs. Neither has a gradient.
 *
 * attrs: groups, the classes of OneHot.
 */
#include "nn/ops/common.h"

#include <math.h>

static sonde_err labels_infer(sonde__op_call *call, int64_t columns, sonde_diag *diag)
{
    const sonde__op_shape *x = &call->in[0].shape;
    const sonde__op_shape labels = {.dtype = SONDE_I64, .rank = 1, .dim = {x->dim[0]}};

    SONDE__TRY(sonde__op_expect_shape(x, &labels, "labels", diag));
    call->out[0].shape =
        (sonde__op_shape){.dtype = SONDE_F32, .rank = 2, .dim = {x->dim[0], columns}};
    return sonde__op_expect_size(&call->out[0].shape, "labels", diag);
}

static sonde_err number_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                              sonde_diag *diag)
{
    (void)attrs;
    return labels_infer(call, 1, diag);
}

static void number_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t *x = call->in[0].data;

    (void)part, (void)parts;
    for (int64_t n = 0; n < call->in[0].shape.dim[0]; n++) {
        sonde__op_store(&call->out[0], n, (double)x[n]);
    }
}

SONDE__KERNELS(number, NULL)

const sonde__op_kind sonde__op_number = {
    .name = "Number",
    .in_min = 1,
    .in_max = 1,
    .out_count = 1,
    .infer = number_infer,
    .kernels = number_kernels,
};

static sonde_err one_hot_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                               sonde_diag *diag)
{
    return labels_infer(call, attrs->groups, diag);
}

static void one_hot_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t *x = call->in[0].data;
    const int64_t classes = call->attrs->groups;

    (void)part, (void)parts;
    for (int64_t n = 0; n < call->in[0].shape.dim[0]; n++) {
        const bool in_range = x[n] >= 0 && x[n] < classes;

        for (int64_t c = 0; c < classes; c++) {
            sonde__op_store(&call->out[0], n * classes + c,
                            !in_range   ? (double)NAN
                            : c == x[n] ? 1.0
                                        : 0.0);
        }
    }
}

SONDE__KERNELS(one_hot, NULL)

static bool one_hot_ids(const sonde__op_call *call, int operand, sonde__op_ids *ids)
{
    *ids = (sonde__op_ids){.what = "label", .count = call->attrs->groups};
    return operand == 0;
}

const sonde__op_kind sonde__op_one_hot = {
    .name = "OneHot",
    .in_min = 1,
    .in_max = 1,
    .out_count = 1,
    .infer = one_hot_infer,
    .kernels = one_hot_kernels,
    .ids = one_hot_ids,
};

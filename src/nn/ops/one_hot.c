/*
 * one_hot.c - labels as numbers: what losses of real values compare an output with.
 *
 *   Number   y[n, 0] = x[n]
 *   OneHot   y[..., c] = 1 if x[...] is c, otherwise 0, as torch.nn.functional.one_hot
 *
 * x is int64, of Number (N); y is float32. A label out of range has a row of NaN; a session refuses it
 * before it runs. Neither has a gradient.
 *
 * attrs: groups, the classes of OneHot.
 */
#include "base/fail.h"
#include "nn/ops/common.h"
#include "nn/ops/layer_row.h"

#include <math.h>

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

const sonde__op_kind sonde__op_number = {
    .name = "Number",
    SONDE__OPERANDS(none, 1, 1, 1),
    .infer = number_infer,
    SONDE__REFERENCE(number_run),
};

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

const sonde__op_kind sonde__op_one_hot = {
    .name = "OneHot",
    SONDE__OPERANDS(labels, 1, 1, 1),
    .infer = one_hot_infer,
    SONDE__REFERENCE(one_hot_run),
    .ids = one_hot_ids,
};

const sonde__op_layer sonde__layer_one_hot = {
    .name = "one_hot",
    .kind = &sonde__op_one_hot,
    .inputs = 1,
    .fields = {SONDE__FIELD("num_classes", SONDE__FIELD_WHOLE, labels.classes,
                            (double)NAN, 1, 1 << 24)},
    .help = "1 at the place x (int64) of num_classes, else 0; float32",
};

/*
 * extreme.c - the largest or smallest element over any axes, and where it is along one.
 *
 *   Extreme      y = the largest x over the axes of attrs.reduce.axes (attrs.reduce.smallest 1: the
 *                smallest); as torch.amax and torch.amin. No axis named means all of them.
 *   ExtremeGrad  dx = dy / count where x equals y, else 0: elements that are alike share
 *   ArgExtreme   the place of the first largest (smallest) x along attrs.reduce.axis, int64
 *
 * A NaN is the extreme of what it is among, and gets its gradient.
 *
 * attrs: reduce.
 */
#include "base/fail.h"
#include "nn/ops/common.h"
#include "nn/ops/layer_row.h"

#include <math.h>

/* x with dims of 1 where it is reduced: y under the shape that broadcasts to x. */
static sonde__op_shape kept_shape(const sonde__op_shape *x, const sonde__op_attrs *attrs)
{
    sonde__op_shape kept = *x;

    for (int i = 0; i < x->rank; i++) {
        kept.dim[i] = (attrs->reduce.axes >> (unsigned)i & 1U) != 0 ? 1 : x->dim[i];
    }
    return kept;
}

static sonde_err extreme_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                               sonde_diag *diag)
{
    const sonde__op_shape *x = &call->in[0].shape;
    const uint32_t all = (1U << (unsigned)x->rank) - 1U;
    sonde__op_shape y = {.dtype = x->dtype};

    SONDE__TRY(sonde__op_expect_float(x, "input", diag));
    SONDE__TRY(sonde__op_take_axes(attrs, x->rank, diag));
    attrs->reduce.axes = attrs->reduce.axes == 0 ? all : attrs->reduce.axes & all;
    for (int i = 0; i < x->rank; i++) {
        const bool reduced = (attrs->reduce.axes >> (unsigned)i & 1U) != 0;

        if (reduced && x->dim[i] == 0) {
            return sonde__fail(diag, SONDE_ESHAPE, NULL, "at least one element",
                               "dimension %d has none", i);
        }
        if (!reduced || attrs->reduce.keep_dims) {
            y.dim[y.rank++] = reduced ? 1 : x->dim[i];
        }
    }
    call->out[0].shape = y;
    return SONDE_OK;
}

static bool beats(double a, double b, bool smallest)
{
    return isnan(a) ? !isnan(b) : smallest ? a < b : a > b;
}

static void extreme_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__operand *x = &call->in[0], *y = &call->out[0];
    const sonde__op_shape shape = kept_shape(&x->shape, call->attrs);
    const int64_t outputs = sonde__op_shape_count(&shape);

    (void)part, (void)parts;
    for (int64_t i = 0; i < outputs; i++) {
        sonde__op_store(
            y, i, call->attrs->reduce.smallest ? (double)INFINITY : -(double)INFINITY);
    }
    for (int64_t i = 0; i < sonde__op_shape_count(&x->shape); i++) {
        const int64_t target = sonde__op_broadcast_at(&shape, &x->shape, i);
        const double value = sonde__op_load(x, i);

        if (beats(value, sonde__op_load(y, target), call->attrs->reduce.smallest)) {
            sonde__op_store(y, target, value);
        }
    }
}

SONDE__OP(extreme, "Extreme", reduce, 1, 1, 1, .infer = extreme_infer,
          .backward = {&sonde__op_extreme_grad, "d0A"}, SONDE__REFERENCE(extreme_run));

/* dy, x, y */
static sonde_err extreme_grad_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                    sonde_diag *diag)
{
    return sonde__op_infer_after(call, attrs, extreme_infer, 1, 0, diag);
}

/* Whether element i of x is the extreme at `target`. */
static bool is_extreme(const sonde__op_call *call, int64_t i, int64_t target)
{
    const double x = sonde__op_load(&call->in[1], i),
                 y = sonde__op_load(&call->in[2], target);

    return x == y || (isnan(x) && isnan(y));
}

static void extreme_grad_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__op_shape *x = &call->in[1].shape;
    const sonde__op_shape shape = kept_shape(x, call->attrs);
    const int64_t targets = sonde__op_shape_count(&shape);
    const int64_t each = targets > 0 ? sonde__op_shape_count(x) / targets : 0;

    (void)part, (void)parts;
    for (int64_t t = 0; t < targets; t++) {
        const int64_t base = sonde__op_reduced_at(x, call->attrs, false, t);
        double alike = 0.0;

        for (int64_t k = 0; k < each; k++) {
            const int64_t i = base + sonde__op_reduced_at(x, call->attrs, true, k);

            alike += is_extreme(call, i, t) ? 1.0 : 0.0;
        }
        for (int64_t k = 0; k < each; k++) {
            const int64_t i = base + sonde__op_reduced_at(x, call->attrs, true, k);

            sonde__op_store(
                &call->out[0], i,
                is_extreme(call, i, t) ? sonde__op_load(&call->in[0], t) / alike : 0.0);
        }
    }
}

SONDE__OP(extreme_grad, "ExtremeGrad", reduce, 3, 3, 1, .infer = extreme_grad_infer,
          SONDE__REFERENCE(extreme_grad_run));

/* --- places --------------------------------------------------------------------------- */

static sonde_err arg_extreme_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                   sonde_diag *diag)
{
    const sonde__op_shape *x = &call->in[0].shape;
    sonde__op_shape y = {.dtype = SONDE_I64};

    SONDE__TRY(sonde__op_expect_float(x, "input", diag));
    SONDE__TRY(sonde__op_expect_axis(&attrs->reduce.axis, x->rank, diag));
    if (x->dim[attrs->reduce.axis] == 0) {
        return sonde__fail(diag, SONDE_ESHAPE, NULL, "at least one element",
                           "dimension %d has none", attrs->reduce.axis);
    }
    for (int i = 0; i < x->rank; i++) {
        if (i != attrs->reduce.axis || attrs->reduce.keep_dims) {
            y.dim[y.rank++] = i == attrs->reduce.axis ? 1 : x->dim[i];
        }
    }
    call->out[0].shape = y;
    return SONDE_OK;
}

static void arg_extreme_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__op_shape *x = &call->in[0].shape;
    const int axis = call->attrs->reduce.axis;
    const int64_t step = sonde__op_dims_product(x, axis + 1, x->rank);
    const int64_t lines = sonde__op_dims_product(x, 0, axis) * step;
    int64_t *y = call->out[0].data;

    (void)part, (void)parts;
    for (int64_t line = 0; line < lines; line++) {
        const int64_t start = line / step * x->dim[axis] * step + line % step;

        y[line] = 0;
        for (int64_t i = 1; i < x->dim[axis]; i++) {
            if (beats(sonde__op_load(&call->in[0], start + i * step),
                      sonde__op_load(&call->in[0], start + y[line] * step),
                      call->attrs->reduce.smallest)) {
                y[line] = i;
            }
        }
    }
}

SONDE__OP(arg_extreme, "ArgExtreme", reduce, 1, 1, 1, .infer = arg_extreme_infer,
          SONDE__REFERENCE(arg_extreme_run));

/* --- layers --------------------------------------------------------------------------- */

static const sonde__op_attrs smallest = {.reduce = {.smallest = true}};

#define EXTREME(name_, text, preset_)                                                    \
    {                                                                                    \
        .name = (name_), .kind = &sonde__op_extreme, .inputs = 1, .help = (text),        \
        .preset = (preset_), .fields = {                                                 \
            SONDE__FIELD_AXES,                                                           \
            SONDE__FIELD_KEEP                                                            \
        }                                                                                \
    }
#define PLACE(name_, text, preset_)                                                      \
    {                                                                                    \
        .name = (name_), .kind = &sonde__op_arg_extreme, .inputs = 1, .help = (text),    \
        .preset = (preset_), .fields = {                                                 \
            SONDE__FIELD("dim", SONDE__FIELD_AXIS, reduce.axis, (double)NAN,             \
                         -SONDE_MAX_DIMS, SONDE_MAX_DIMS - 1),                           \
            SONDE__FIELD_KEEP                                                            \
        }                                                                                \
    }

const sonde__op_layer sonde__layer_amax =
    EXTREME("amax", "the largest over dimensions; NaN if one is", NULL);
const sonde__op_layer sonde__layer_amin =
    EXTREME("amin", "the smallest over dimensions; NaN if one is", &smallest);
const sonde__op_layer sonde__layer_argmax =
    PLACE("argmax", "the place of the largest along dim, int64", NULL);
const sonde__op_layer sonde__layer_argmin =
    PLACE("argmin", "the place of the smallest along dim, int64", &smallest);

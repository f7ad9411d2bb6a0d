/*
 * choose.c - comparisons, and choosing elements by a condition; with broadcasting, as
 * torch.eq, torch.where and torch.masked_fill.
 *
 *   Compare     y = a ? b, a bool; attrs.choose.comparison is the comparison. NaN equals nothing.
 *   Where       y = a where the condition is not 0, else b
 *   MaskedFill  y = number[0] where the mask is not 0 (with choice 1: where it is 0),
 *               else x
 *
 * A condition is of any dtype but float. What is not chosen gets a gradient of 0, even
 * where the other one is NaN.
 */
#include "base/fail.h"
#include "base/macros.h"
#include "nn/ops/common.h"
#include "nn/ops/layer_row.h"

#include <math.h>
#include <string.h>

/* A part has at least so many elements. */
enum { ELEMENTS_A_PART = 8192 };

static int choose_parts(const sonde__op_call *call, int max)
{
    const int64_t parts = sonde__op_shape_count(&call->out[0].shape) / ELEMENTS_A_PART;

    return parts < 1 ? 1 : parts > max ? max : (int)parts;
}

static bool is_number(sonde_dtype dtype)
{
    return dtype == SONDE_F32 || dtype == SONDE_F64 || dtype == SONDE_I64;
}

/* The shape that all inputs broadcast to. */
static sonde_err expect_together(const sonde__op_call *call, sonde_dtype dtype,
                                 sonde__op_shape *y, sonde_diag *diag)
{
    *y = call->in[0].shape;
    for (int i = 1; i < call->in_count; i++) {
        const sonde__op_shape *b = &call->in[i].shape;
        sonde__op_shape both = {.rank = SONDE_MAX(y->rank, b->rank)};

        SONDE__TRY(sonde__op_expect_broadcast(y, b, &both, diag));
        *y = both;
    }
    y->dtype = dtype;
    return sonde__op_expect_size(y, "output", diag);
}

static int64_t at(const sonde__op_call *call, int operand, int64_t i)
{
    return sonde__op_broadcast_at(&call->in[operand].shape, &call->out[0].shape, i);
}

/* --- compare -------------------------------------------------------------------------- */

enum { EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL };

static sonde_err compare_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                               sonde_diag *diag)
{
    const sonde__op_shape *a = &call->in[0].shape;

    (void)attrs;
    if (!is_number(a->dtype)) {
        return sonde__fail(diag, SONDE_EDTYPE, NULL, "float32, float64 or int64",
                           "first operand has dtype %s", sonde_dtype_name(a->dtype));
    }
    SONDE__TRY(
        sonde__op_expect_dtype(&call->in[1].shape, a->dtype, "second operand", diag));
    return expect_together(call, SONDE_BOOL, &call->out[0].shape, diag);
}

static bool holds(int comparison, double a, double b)
{
    switch (comparison) {
    case EQUAL:
        return a == b;
    case NOT_EQUAL:
        return a != b;
    case LESS:
        return a < b;
    case LESS_EQUAL:
        return a <= b;
    case GREATER:
        return a > b;
    default:
        return a >= b;
    }
}

/* Whether the comparison holds of element i of a and k of b. Of int64, a double would
 * not tell numbers beyond 2^53 apart: the sign of their difference is compared with 0. */
static bool holds_at(int comparison, const sonde__operand *a, int64_t i,
                     const sonde__operand *b, int64_t k)
{
    if (a->shape.dtype == SONDE_I64) {
        const int64_t first = ((const int64_t *)a->data)[i],
                      second = ((const int64_t *)b->data)[k];

        return holds(comparison, (double)((first > second) - (first < second)), 0.0);
    }
    return holds(comparison, sonde__op_load(a, i), sonde__op_load(b, k));
}

static void compare_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t count = sonde__op_shape_count(&call->out[0].shape);
    uint8_t *y = call->out[0].data;

    for (int64_t i = count * part / parts; i < count * (part + 1) / parts; i++) {
        y[i] = holds_at(call->attrs->choose.comparison, &call->in[0], at(call, 0, i),
                        &call->in[1], at(call, 1, i))
                   ? 1
                   : 0;
    }
}

SONDE__OP(compare, "Compare", choose, 2, 2, 1, .infer = compare_infer,
          SONDE__REFERENCE(compare_run, .parts = choose_parts));

/* --- conditions ----------------------------------------------------------------------- */

static sonde_err expect_condition(const sonde__op_shape *condition, const char *what,
                                  sonde_diag *diag)
{
    if (condition->dtype == SONDE_BOOL || condition->dtype == SONDE_U8 ||
        condition->dtype == SONDE_I64) {
        return sonde__op_expect_size(condition, what, diag);
    }
    return sonde__fail(diag, SONDE_EDTYPE, NULL, "bool, uint8 or int64",
                       "%s has dtype %s", what, sonde_dtype_name(condition->dtype));
}

static bool is_set(const sonde__operand *condition, int64_t i)
{
    return condition->shape.dtype == SONDE_I64
               ? ((const int64_t *)condition->data)[i] != 0
               : ((const uint8_t *)condition->data)[i] != 0;
}

/* --- where ---------------------------------------------------------------------------- */

static sonde_err where_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                             sonde_diag *diag)
{
    const sonde__op_shape *a = &call->in[1].shape;

    (void)attrs;
    SONDE__TRY(expect_condition(&call->in[0].shape, "condition", diag));
    SONDE__TRY(sonde__op_expect_float(a, "first operand", diag));
    SONDE__TRY(
        sonde__op_expect_dtype(&call->in[2].shape, a->dtype, "second operand", diag));
    return expect_together(call, a->dtype, &call->out[0].shape, diag);
}

static void where_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t count = sonde__op_shape_count(&call->out[0].shape);

    for (int64_t i = count * part / parts; i < count * (part + 1) / parts; i++) {
        const int chosen = is_set(&call->in[0], at(call, 0, i)) ? 1 : 2;

        sonde__op_store(&call->out[0], i,
                        sonde__op_load(&call->in[chosen], at(call, chosen, i)));
    }
}

static void where_gradient(const sonde__op_gradient_context *context)
{
    const sonde__op_value in[] = {context->grad_out[0], context->in[0]};

    for (int i = 1; i < 3; i++) {
        const sonde__op_attrs attrs = {.choose = {.inverted = i == 1}};

        if (context->wanted[i]) {
            const sonde__op_value wide =
                sonde__op_emit(context->graph, &sonde__op_masked_fill, &attrs, in, 2);

            context->grad_in[i] =
                wide == 0 ? 0 : sonde__op_emit_sum_to(context, wide, context->in[i]);
        }
    }
}

SONDE__OP(where, "Where", none, 3, 3, 1, .infer = where_infer, .gradient = where_gradient,
          SONDE__REFERENCE(where_run, .parts = choose_parts));

/* --- masked fill ---------------------------------------------------------------------- */

static sonde_err masked_fill_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                   sonde_diag *diag)
{
    const sonde__op_shape *x = &call->in[0].shape;

    (void)attrs;
    SONDE__TRY(sonde__op_expect_float(x, "input", diag));
    SONDE__TRY(expect_condition(&call->in[1].shape, "mask", diag));
    return expect_together(call, x->dtype, &call->out[0].shape, diag);
}

static void masked_fill_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t count = sonde__op_shape_count(&call->out[0].shape);
    const bool inverse = call->attrs->choose.inverted;

    for (int64_t i = count * part / parts; i < count * (part + 1) / parts; i++) {
        const bool filled = is_set(&call->in[1], at(call, 1, i)) != inverse;

        sonde__op_store(&call->out[0], i,
                        filled ? (double)call->attrs->choose.value
                               : sonde__op_load(&call->in[0], at(call, 0, i)));
    }
}

static void masked_fill_gradient(const sonde__op_gradient_context *context)
{
    const sonde__op_value in[] = {context->grad_out[0], context->in[1]};
    const sonde__op_attrs attrs = {
        .choose = {.inverted = context->attrs->choose.inverted}};

    if (context->wanted[0]) {
        const sonde__op_value wide =
            sonde__op_emit(context->graph, &sonde__op_masked_fill, &attrs, in, 2);

        context->grad_in[0] =
            wide == 0 ? 0 : sonde__op_emit_sum_to(context, wide, context->in[0]);
    }
}

SONDE__OP(masked_fill, "MaskedFill", choose, 2, 2, 1, .infer = masked_fill_infer,
          .gradient = masked_fill_gradient,
          SONDE__REFERENCE(masked_fill_run, .parts = choose_parts));

/* --- layers --------------------------------------------------------------------------- */

static const sonde__op_attrs comparisons[] = {
    [EQUAL] = {.choose = {.comparison = EQUAL}},
    [NOT_EQUAL] = {.choose = {.comparison = NOT_EQUAL}},
    [LESS] = {.choose = {.comparison = LESS}},
    [LESS_EQUAL] = {.choose = {.comparison = LESS_EQUAL}},
    [GREATER] = {.choose = {.comparison = GREATER}},
    [GREATER_EQUAL] = {.choose = {.comparison = GREATER_EQUAL}},
};

#define COMPARISON(name_, comparison, text)                                              \
    {                                                                                    \
        .name = (name_), .kind = &sonde__op_compare, .inputs = 2, .help = (text),        \
        .preset = &comparisons[comparison],                                              \
    }

const sonde__op_layer sonde__layer_eq = COMPARISON("eq", EQUAL, "a = b, as bool");
const sonde__op_layer sonde__layer_ne = COMPARISON("ne", NOT_EQUAL, "a ≠ b, as bool");
const sonde__op_layer sonde__layer_lt = COMPARISON("lt", LESS, "a < b, as bool");
const sonde__op_layer sonde__layer_le = COMPARISON("le", LESS_EQUAL, "a ≤ b, as bool");
const sonde__op_layer sonde__layer_gt = COMPARISON("gt", GREATER, "a > b, as bool");
const sonde__op_layer sonde__layer_ge = COMPARISON("ge", GREATER_EQUAL, "a ≥ b, as bool");

SONDE__LAYER(where, where, 3, "b where the condition a holds, else c");

SONDE__LAYER(masked_fill, masked_fill, 2, "value where the mask b is not 0, else a",
             .fields = {SONDE__FIELD_ANY("value", choose.value, (double)NAN)});

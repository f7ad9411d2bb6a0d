/*
 * elementwise.c - add and mul with broadcasting, scale, fill, and the accumulator.
 *
 *   add         y = a + b        mul   y = a b       (torch's broadcasting)
 *   scale       y = attrs.fill.value x
 *   fill        a float32 tensor of shape attrs.fill.dims full of attrs.fill.value
 *   accumulate  acc = acc + attrs.fill.value g, in place: 1 sums gradients over micro-batches,
 *               1 / G takes their mean. A scale of 0 would forget g: an error.
 *
 * Broadcasting aligns dims at the end; a dim of 1, or none, repeats.
 */
#include "nn/ops/common.h"
#include "nn/ops/layer_row.h"
#include "base/fail.h"
#include "base/macros.h"
#include "nn/kernels/fast.h"

bool sonde__op_broadcasts_to(const sonde__op_shape *source, const sonde__op_shape *target)
{
    const int lead = target->rank - source->rank;

    for (int i = 0; i < source->rank; i++) {
        if (lead < 0 ||
            (source->dim[i] != 1 && source->dim[i] != target->dim[lead + i])) {
            return false;
        }
    }
    return true;
}

int64_t sonde__op_broadcast_at(const sonde__op_shape *source,
                               const sonde__op_shape *target, int64_t i)
{
    const int lead = target->rank - source->rank;
    int64_t offset = 0, step = 1;

    for (int d = target->rank - 1; d >= lead; d--) {
        const int64_t extent = source->dim[d - lead];

        offset += extent == 1 ? 0 : i % target->dim[d] * step;
        step *= extent;
        i /= target->dim[d];
    }
    return offset;
}

sonde_err sonde__op_expect_broadcast(const sonde__op_shape *a, const sonde__op_shape *b,
                                     sonde__op_shape *y, sonde_diag *diag)
{
    char text_a[SONDE__SHAPE_TEXT], text_b[SONDE__SHAPE_TEXT];

    for (int i = 1; i <= y->rank; i++) { /* from the end */
        const int64_t in_a = i <= a->rank ? a->dim[a->rank - i] : 1;
        const int64_t in_b = i <= b->rank ? b->dim[b->rank - i] : 1;

        y->dim[y->rank - i] = in_a == 1 ? in_b : in_a;
    }
    if (!sonde__op_broadcasts_to(a, y) || !sonde__op_broadcasts_to(b, y)) {
        return sonde__fail(diag, SONDE_ESHAPE, NULL,
                           "dims of 1 or alike, aligned at the end", "%s with %s",
                           sonde__op_shape_text(a, text_a),
                           sonde__op_shape_text(b, text_b));
    }
    return SONDE_OK;
}

/* --- add, mul ----------------------------------------------------------------------- */

static sonde_err binary_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                              sonde_diag *diag)
{
    const sonde__op_shape *a = &call->in[0].shape, *b = &call->in[1].shape;
    sonde__op_shape y = {.dtype = a->dtype, .rank = SONDE_MAX(a->rank, b->rank)};

    (void)attrs;
    SONDE__TRY(sonde__op_expect_float(a, "first operand", diag));
    SONDE__TRY(sonde__op_expect_dtype(b, a->dtype, "second operand", diag));
    SONDE__TRY(sonde__op_expect_broadcast(a, b, &y, diag));
    SONDE__TRY(sonde__op_expect_size(&y, "output", diag));
    call->out[0].shape = y;
    return SONDE_OK;
}

static void add_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__operand *a = &call->in[0], *b = &call->in[1], *y = &call->out[0];
    const int64_t count = sonde__op_shape_count(&y->shape);

    (void)part, (void)parts;
    for (int64_t i = 0; i < count; i++) {
        sonde__op_store(
            y, i,
            sonde__op_load(a, sonde__op_broadcast_at(&a->shape, &y->shape, i)) +
                sonde__op_load(b, sonde__op_broadcast_at(&b->shape, &y->shape, i)));
    }
}

static void add_gradient(const sonde__op_gradient_context *context)
{
    for (int i = 0; i < 2; i++) {
        if (context->wanted[i]) {
            context->grad_in[i] =
                sonde__op_emit_sum_to(context, context->grad_out[0], context->in[i]);
        }
    }
}

SONDE__OP(add, "Add", none, 2, 2, 1, .infer = binary_infer, .gradient = add_gradient,
          SONDE__REFERENCE(add_run), .fast = sonde__kernel_add_fast,
          .halves = SONDE__HALVES_KEPT, .half_kernels = sonde__kernel_add_half);

static void mul_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__operand *a = &call->in[0], *b = &call->in[1], *y = &call->out[0];
    const int64_t count = sonde__op_shape_count(&y->shape);

    (void)part, (void)parts;
    for (int64_t i = 0; i < count; i++) {
        sonde__op_store(
            y, i,
            sonde__op_load(a, sonde__op_broadcast_at(&a->shape, &y->shape, i)) *
                sonde__op_load(b, sonde__op_broadcast_at(&b->shape, &y->shape, i)));
    }
}

static void mul_gradient(const sonde__op_gradient_context *context)
{
    for (int i = 0; i < 2; i++) {
        if (context->wanted[i]) {
            const sonde__op_value in[] = {context->grad_out[0], context->in[1 - i]};
            const sonde__op_value wide =
                sonde__op_emit(context->graph, &sonde__op_mul, NULL, in, 2);

            context->grad_in[i] = sonde__op_emit_sum_to(context, wide, context->in[i]);
        }
    }
}

SONDE__OP(mul, "Mul", none, 2, 2, 1, .infer = binary_infer, .gradient = mul_gradient,
          SONDE__REFERENCE(mul_run));

/* --- scale -------------------------------------------------------------------------- */

static void scale_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t count = sonde__op_shape_count(&call->in[0].shape);

    (void)part, (void)parts;
    for (int64_t i = 0; i < count; i++) {
        sonde__op_store(&call->out[0], i,
                        (double)call->attrs->fill.value *
                            sonde__op_load(&call->in[0], i));
    }
}

SONDE__OP(scale, "Scale", fill, 1, 1, 1, .infer = sonde__op_infer_alike,
          .backward = {&sonde__op_scale, "d"}, SONDE__REFERENCE(scale_run),
          .fast = sonde__kernel_scale_fast);

/* --- fill --------------------------------------------------------------------------- */

static sonde_err fill_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                            sonde_diag *diag)
{
    return sonde__op_expect_dims(attrs, -1, SONDE_F32, "output", &call->out[0].shape,
                                 diag);
}

static void fill_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t count = sonde__op_shape_count(&call->out[0].shape);
    const double times =
        call->attrs->fill.scaled ? (double)call->live[SONDE__LIVE_LOSS_SCALE] : 1.0;

    (void)part, (void)parts;
    for (int64_t i = 0; i < count; i++) {
        sonde__op_store(&call->out[0], i, (double)call->attrs->fill.value * times);
    }
}

SONDE__OP(fill, "Fill", fill, 0, 0, 1, .infer = fill_infer, SONDE__REFERENCE(fill_run));

/* --- accumulate --------------------------------------------------------------------- */

static sonde_err accumulate_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                  sonde_diag *diag)
{
    const sonde__op_shape *acc = &call->in[0].shape;

    if (attrs->fill.value == 0.0f) {
        return sonde__fail(diag, SONDE_EINVAL, NULL, "1 for a sum, 1 / count for a mean",
                           "accumulating with scale 0");
    }
    SONDE__TRY(sonde__op_expect_float(acc, "accumulator", diag));
    SONDE__TRY(sonde__op_expect_shape(&call->in[1].shape, acc, "gradient", diag));
    call->out[0].shape = *acc;
    return SONDE_OK;
}

static void accumulate_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t count = sonde__op_shape_count(&call->in[0].shape);

    (void)part, (void)parts;
    for (int64_t i = 0; i < count; i++) {
        sonde__op_store(&call->out[0], i,
                        sonde__op_load(&call->in[0], i) +
                            (double)call->attrs->fill.value *
                                sonde__op_load(&call->in[1], i));
    }
}

SONDE__OP(accumulate, "Accumulate", fill, 2, 2, 1, .infer = accumulate_infer,
          SONDE__REFERENCE(accumulate_run), .fast = sonde__kernel_accumulate_fast,
          .alias = {1});

/* --- layers ----------------------------------------------------------------------------- */

SONDE__LAYER(add, add, 2, "a + b");

SONDE__LAYER(mul, mul, 2, "a b");

/*
 * softmax.c - softmax and log-softmax along any axis, and their gradients.
 *
 *   softmax      y = exp(x - m) / s           dx = y (dy - sum dy y)
 *   log-softmax  y = x - m - log s            dx = dy - exp(y) sum dy
 *
 * with m = max x and s = sum exp(x - m) along the axis, so that nothing overflows; as
 * torch.softmax and torch.log_softmax. A NaN or +Inf on the way makes the whole line NaN,
 * and so does a line of nothing but -Inf.
 *
 * attrs: along.
 */
#include "nn/ops/common.h"
#include "nn/ops/layer_row.h"
#include "nn/kernels/fast.h"

#include <math.h>

/* The lines along the axis: element i of line l lies at start(l) + i * step. */
typedef struct lines {
    int64_t count, length, step;
} lines;

static lines lines_of(const sonde__op_shape *shape, int axis)
{
    return (lines){.count = sonde__op_dims_product(shape, 0, axis) *
                            sonde__op_dims_product(shape, axis + 1, shape->rank),
                   .length = shape->dim[axis],
                   .step = sonde__op_dims_product(shape, axis + 1, shape->rank)};
}

static int64_t start_of(const lines *l, int64_t line)
{
    return line / l->step * l->length * l->step + line % l->step;
}

static sonde_err softmax_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                               sonde_diag *diag)
{
    SONDE__TRY(sonde__op_expect_float(&call->in[0].shape, "input", diag));
    SONDE__TRY(sonde__op_expect_axis(&attrs->along.axis, call->in[0].shape.rank, diag));
    call->out[0].shape = call->in[0].shape;
    return SONDE_OK;
}

static sonde_err softmax_grad_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                    sonde_diag *diag)
{
    const sonde__op_shape *y = &call->in[1].shape;

    SONDE__TRY(sonde__op_expect_float(y, "output", diag));
    SONDE__TRY(sonde__op_expect_shape(&call->in[0].shape, y, "output gradient", diag));
    SONDE__TRY(sonde__op_expect_axis(&attrs->along.axis, y->rank, diag));
    call->out[0].shape = *y;
    return SONDE_OK;
}

/* m and s of one line. A NaN need not become m: it reaches s either way. */
static void max_and_sum(const sonde__operand *x, const lines *l, int64_t start,
                        double *max, double *sum)
{
    *max = -(double)INFINITY;
    *sum = 0.0;
    for (int64_t i = 0; i < l->length; i++) {
        const double value = sonde__op_load(x, start + i * l->step);

        *max = value > *max ? value : *max;
    }
    for (int64_t i = 0; i < l->length; i++) {
        *sum += exp(sonde__op_load(x, start + i * l->step) - *max);
    }
}

/* --- forward ------------------------------------------------------------------------ */

static void softmax_run(const sonde__op_call *call, int part, int parts)
{
    const lines l = lines_of(&call->in[0].shape, call->attrs->along.axis);

    (void)part, (void)parts;
    for (int64_t line = 0; line < l.count; line++) {
        const int64_t start = start_of(&l, line);
        double max = 0.0, sum = 0.0;

        max_and_sum(&call->in[0], &l, start, &max, &sum);
        for (int64_t i = 0; i < l.length; i++) {
            const int64_t offset = start + i * l.step;

            sonde__op_store(&call->out[0], offset,
                            exp(sonde__op_load(&call->in[0], offset) - max) / sum);
        }
    }
}

SONDE__OP(softmax, "Softmax", along, 1, 1, 1, .infer = softmax_infer,
          .backward = {&sonde__op_softmax_grad, "dA"}, SONDE__REFERENCE(softmax_run),
          .fast = sonde__kernel_softmax_fast);

static void log_softmax_run(const sonde__op_call *call, int part, int parts)
{
    const lines l = lines_of(&call->in[0].shape, call->attrs->along.axis);

    (void)part, (void)parts;
    for (int64_t line = 0; line < l.count; line++) {
        const int64_t start = start_of(&l, line);
        double max = 0.0, sum = 0.0;

        max_and_sum(&call->in[0], &l, start, &max, &sum);
        for (int64_t i = 0; i < l.length; i++) {
            const int64_t offset = start + i * l.step;

            sonde__op_store(&call->out[0], offset,
                            sonde__op_load(&call->in[0], offset) - max - log(sum));
        }
    }
}

SONDE__OP(log_softmax, "LogSoftmax", along, 1, 1, 1, .infer = softmax_infer,
          .backward = {&sonde__op_log_softmax_grad, "dA"},
          SONDE__REFERENCE(log_softmax_run), .fast = sonde__kernel_log_softmax_fast);

/* --- gradients ---------------------------------------------------------------------- */

static void softmax_grad_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__operand *dy = &call->in[0], *y = &call->in[1];
    const lines l = lines_of(&y->shape, call->attrs->along.axis);

    (void)part, (void)parts;
    for (int64_t line = 0; line < l.count; line++) {
        const int64_t start = start_of(&l, line);
        double dot = 0.0;

        for (int64_t i = 0; i < l.length; i++) {
            const int64_t offset = start + i * l.step;

            dot += sonde__op_load(dy, offset) * sonde__op_load(y, offset);
        }
        for (int64_t i = 0; i < l.length; i++) {
            const int64_t offset = start + i * l.step;

            sonde__op_store(&call->out[0], offset,
                            sonde__op_load(y, offset) *
                                (sonde__op_load(dy, offset) - dot));
        }
    }
}

SONDE__OP(softmax_grad, "SoftmaxGrad", along, 2, 2, 1, .infer = softmax_grad_infer,
          SONDE__REFERENCE(softmax_grad_run), .fast = sonde__kernel_softmax_grad_fast);

static void log_softmax_grad_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__operand *dy = &call->in[0], *y = &call->in[1];
    const lines l = lines_of(&y->shape, call->attrs->along.axis);

    (void)part, (void)parts;
    for (int64_t line = 0; line < l.count; line++) {
        const int64_t start = start_of(&l, line);
        double sum = 0.0;

        for (int64_t i = 0; i < l.length; i++) {
            sum += sonde__op_load(dy, start + i * l.step);
        }
        for (int64_t i = 0; i < l.length; i++) {
            const int64_t offset = start + i * l.step;

            sonde__op_store(&call->out[0], offset,
                            sonde__op_load(dy, offset) -
                                exp(sonde__op_load(y, offset)) * sum);
        }
    }
}

SONDE__OP(log_softmax_grad, "LogSoftmaxGrad", along, 2, 2, 1, .infer = softmax_grad_infer,
          SONDE__REFERENCE(log_softmax_grad_run),
          .fast = sonde__kernel_log_softmax_grad_fast);

/* --- layers ----------------------------------------------------------------------------- */

#define DIM SONDE__FIELD_DIM("dim", along.axis, 1.0)

SONDE__LAYER(softmax, softmax, 1, "exp(x) / the sum of exp(x) along dim",
             .fields = {DIM});

SONDE__LAYER(log_softmax, log_softmax, 1, "the logarithm of softmax", .fields = {DIM});

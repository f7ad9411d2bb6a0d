/*
 * fused.c - ops that the fuse pass puts in the place of several: their shape rules, and
 * references that run the members one after the other: the oracle of the fast kernels.
 * Every member's value is an output; one whose data is NULL is kept in scratch or not
 * computed.
 *
 *   conv2d_relu             y = relu(conv2d(x, w, b))
 *   conv2d_relu_pool        y, index = max_pool2d(relu(conv2d(x, w, b)))
 *   linear_relu             y = relu(linear(x, w, b))
 *   pool_relu_conv_grad     drelu = max_pool2d_grad(dy, index), dconv = relu_grad(drelu),
 *                           dw = conv2d_grad_weight(dconv, x), db = channel_sum(dconv).
 *                           Only winners have a gradient, and the ReLU of a winner is the
 *                           pool's output, which therefore stands in for the ReLU's.
 *   linear_grad_weight_sgd  dw = linear_grad_weight(dy, x), then sgd(w, dw, v)
 *
 * attrs are those of the convolution. The pool is always 2 x 2 with stride 2, without
 * padding or dilation: windows that tile.
 */
#include "nn/ops/common.h"
#include "nn/kernels/fast.h"

/* A call of a member op. */
static sonde__op_call member(const sonde__op_attrs *attrs, int in_count,
                             const sonde__operand *in, int out_count,
                             const sonde__operand *out)
{
    sonde__op_call call = {.attrs = attrs, .in_count = in_count, .out_count = out_count};

    for (int i = 0; i < in_count; i++) {
        call.in[i] = in[i];
    }
    for (int i = 0; i < out_count; i++) {
        call.out[i] = out[i];
    }
    return call;
}

static void run_member(const sonde__op_kind *kind, const sonde__op_call *call)
{
    kind->reference.run(call, 0, 1);
}

static size_t bytes_of(const sonde__op_shape *shape)
{
    return (size_t)sonde__op_shape_count(shape) * sonde_dtype_size(shape->dtype);
}

static const sonde__op_attrs two_by_two = {
    .window = {.kernel = {2, 2}, .stride = {2, 2}, .dilation = {1, 1}}};

/* --- conv2d_relu -------------------------------------------------------------------- */

static sonde_err conv2d_relu_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                   sonde_diag *diag)
{
    SONDE__TRY(sonde__op_conv2d.infer(call, attrs, diag));
    call->out[1].shape = call->out[0].shape;
    return SONDE_OK;
}

/* The op `kind`, then ReLU: out[0] holds the op's value if wanted, else the place of the
 * ReLU's serves for both. */
static void run_then_relu(const sonde__op_kind *kind, const sonde__op_call *call)
{
    const sonde__operand *pre = &call->out[call->out[0].data != NULL ? 0 : 1];
    const sonde__op_call first = member(call->attrs, call->in_count, call->in, 1, pre);
    const sonde__op_call second = member(call->attrs, 1, pre, 1, &call->out[1]);

    if (pre->data != NULL) {
        run_member(kind, &first);
        run_member(&sonde__op_relu, &second);
    }
}

static void conv2d_relu_run(const sonde__op_call *call, int part, int parts)
{
    (void)part, (void)parts;
    run_then_relu(&sonde__op_conv2d, call);
}

SONDE__OP(conv2d_relu, "Conv2dRelu", window, 2, 3, 2, .out_names = {NULL, "Relu"},
          .optional_out = 1u << 0, .infer = conv2d_relu_infer,
          SONDE__REFERENCE(conv2d_relu_run), .fast = sonde__kernel_conv2d_relu_fast,
          .halves = SONDE__HALVES_MADE, .half_kernels = sonde__kernel_conv2d_relu_half);

/* --- linear_relu -------------------------------------------------------------------- */

static sonde_err linear_relu_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                   sonde_diag *diag)
{
    SONDE__TRY(sonde__op_linear.infer(call, attrs, diag));
    call->out[1].shape = call->out[0].shape;
    return SONDE_OK;
}

static void linear_relu_run(const sonde__op_call *call, int part, int parts)
{
    (void)part, (void)parts;
    run_then_relu(&sonde__op_linear, call);
}

SONDE__OP(linear_relu, "LinearRelu", none, 2, 3, 2, .out_names = {NULL, "Relu"},
          .optional_out = 1u << 0, .infer = linear_relu_infer,
          SONDE__REFERENCE(linear_relu_run), .fast = sonde__kernel_linear_relu_fast,
          .halves = SONDE__HALVES_MADE, .half_kernels = sonde__kernel_linear_relu_half);

/* --- conv2d_relu_pool --------------------------------------------------------------- */

static sonde_err conv2d_relu_pool_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                        sonde_diag *diag)
{
    sonde__op_attrs pool = two_by_two;
    sonde__op_call pooling = {.in_count = 1, .out_count = 2};

    SONDE__TRY(sonde__op_conv2d.infer(call, attrs, diag));
    pooling.in[0].shape = call->out[0].shape;
    SONDE__TRY(sonde__op_max_pool2d.infer(&pooling, &pool, diag));
    call->out[1].shape = call->out[0].shape;
    call->out[2].shape = pooling.out[0].shape;
    call->out[3].shape = pooling.out[1].shape;
    return SONDE_OK;
}

/* Room for the ReLU's value. */
static size_t conv2d_relu_pool_scratch(const sonde__op_call *call, int parts)
{
    (void)parts;
    return bytes_of(&call->out[1].shape);
}

static void conv2d_relu_pool_run(const sonde__op_call *call, int part, int parts)
{
    sonde__operand outs[2] = {call->out[0], call->out[1]};
    sonde__op_call convolution, pooling;

    (void)part, (void)parts;
    if (outs[1].data == NULL) {
        outs[1].data = call->scratch;
    }
    convolution = member(call->attrs, call->in_count, call->in, 2, outs);
    pooling = member(&two_by_two, 1, &outs[1], 2, &call->out[2]);
    run_then_relu(&sonde__op_conv2d, &convolution);
    run_member(&sonde__op_max_pool2d, &pooling);
}

SONDE__OP(conv2d_relu_pool, "Conv2dReluPool", window, 2, 3, 4,
          .out_names = {NULL, "Relu", "MaxPool2d", "Index"},
          .optional_out = 1u << 0 | 1u << 1, .infer = conv2d_relu_pool_infer,
          SONDE__REFERENCE(conv2d_relu_pool_run, .scratch = conv2d_relu_pool_scratch),
          .fast = sonde__kernel_conv2d_relu_pool_fast);

/* --- pool_relu_conv_grad ------------------------------------------------------------ */

enum { DY = 0, INDEX = 1, POOL_Y = 2, X = 3 };
enum { DRELU = 0, DCONV = 1, DW = 2, DB = 3 };

static sonde_err pool_relu_conv_grad_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                           sonde_diag *diag)
{
    sonde__op_call forward = {.in_count = 2, .in = {call->in[X]}};
    const sonde__op_shape *w = &forward.in[1].shape;

    SONDE__TRY(sonde__op_expect_dims(attrs, 4, call->in[X].shape.dtype, "weight",
                                     &forward.in[1].shape, diag));
    SONDE__TRY(conv2d_relu_pool_infer(&forward, attrs, diag));
    SONDE__TRY(sonde__op_expect_shape(&call->in[DY].shape, &forward.out[2].shape,
                                      "output gradient", diag));
    SONDE__TRY(sonde__op_expect_shape(&call->in[INDEX].shape, &forward.out[3].shape,
                                      "index", diag));
    SONDE__TRY(sonde__op_expect_shape(&call->in[POOL_Y].shape, &forward.out[2].shape,
                                      "pool's output", diag));
    call->out[DRELU].shape = forward.out[0].shape;
    call->out[DCONV].shape = forward.out[0].shape;
    call->out[DW].shape = *w;
    call->out[DB].shape = (sonde__op_shape){w->dtype, 1, {w->dim[0]}};
    return SONDE_OK;
}

/* Room for the convolution's output gradient, and for the ReLU's gradient. */
static size_t pool_relu_conv_grad_scratch(const sonde__op_call *call, int parts)
{
    (void)parts;
    return bytes_of(&call->out[DCONV].shape) + bytes_of(&call->in[DY].shape);
}

static void pool_relu_conv_grad_run(const sonde__op_call *call, int part, int parts)
{
    sonde__operand dconv = call->out[DCONV], masked = call->in[DY];
    const sonde__operand dy_index[2] = {call->in[DY], call->in[INDEX]};
    const sonde__operand dy_y[2] = {call->in[DY], call->in[POOL_Y]};
    sonde__op_call op;

    (void)part, (void)parts;
    dconv.data = dconv.data != NULL ? dconv.data : call->scratch;
    masked.data = (char *)call->scratch + bytes_of(&dconv.shape);
    op = member(&two_by_two, 2, dy_index, 1, &call->out[DRELU]);
    run_member(&sonde__op_max_pool2d_grad, &op);
    op = member(&two_by_two, 2, dy_y, 1, &masked);
    run_member(&sonde__op_relu_grad, &op);
    op = member(&two_by_two, 2, (const sonde__operand[]){masked, call->in[INDEX]}, 1,
                &dconv);
    run_member(&sonde__op_max_pool2d_grad, &op);
    op = member(call->attrs, 2, (const sonde__operand[]){dconv, call->in[X]}, 1,
                &call->out[DW]);
    run_member(&sonde__op_conv2d_grad_weight, &op);
    op = member(call->attrs, 1, &dconv, 1, &call->out[DB]);
    run_member(&sonde__op_channel_sum, &op);
}

SONDE__OP(pool_relu_conv_grad, "PoolReluConvGrad", window, 4, 4, 4,
          .out_names = {NULL, "ReluGrad", "Conv2dGradWeight", "ChannelSum"},
          .optional_out = 1u << DRELU | 1u << DCONV | 1u << DB,
          .infer = pool_relu_conv_grad_infer,
          SONDE__REFERENCE(pool_relu_conv_grad_run,
                           .scratch = pool_relu_conv_grad_scratch),
          .fast = sonde__kernel_pool_relu_conv_grad_fast);

/* --- linear_grad_weight_sgd --------------------------------------------------------- */

static sonde_err linear_grad_weight_sgd_infer(sonde__op_call *call,
                                              sonde__op_attrs *attrs, sonde_diag *diag)
{
    sonde__op_call product = {.in_count = 2, .in = {call->in[1], call->in[2]}};
    sonde__op_call update = {.in_count = call->in_count - 1, .in = {call->in[0]}};

    SONDE__TRY(sonde__op_linear_grad_weight.infer(&product, attrs, diag));
    update.in[1].shape = product.out[0].shape;
    update.in[2] = call->in[3];
    SONDE__TRY(sonde__op_sgd.infer(&update, attrs, diag));
    call->out[0].shape = update.out[0].shape;
    call->out[1].shape = product.out[0].shape;
    call->out[2].shape = update.out[1].shape;
    return SONDE_OK;
}

/* Room for the gradient. */
static size_t linear_grad_weight_sgd_scratch(const sonde__op_call *call, int parts)
{
    (void)parts;
    return bytes_of(&call->out[1].shape);
}

static void linear_grad_weight_sgd_run(const sonde__op_call *call, int part, int parts)
{
    sonde__operand dw = call->out[1];
    sonde__op_call product, update;

    (void)part, (void)parts;
    dw.data = dw.data != NULL ? dw.data : call->scratch;
    product = member(call->attrs, 2, &call->in[1], 1, &dw);
    update = member(call->attrs, call->in_count - 1,
                    (const sonde__operand[]){call->in[0], dw, call->in[3]}, 2,
                    (const sonde__operand[]){call->out[0], call->out[2]});
    update.live = call->live;
    update.bad = call->bad;
    run_member(&sonde__op_linear_grad_weight, &product);
    run_member(&sonde__op_sgd, &update);
}

/* The gradient is still where run left it. */
static void linear_grad_weight_sgd_again(const sonde__op_call *call)
{
    const sonde__op_shape *shape = &call->out[1].shape;
    const sonde_view dw =
        sonde_view_of(shape->dtype, shape->rank, shape->dim,
                      call->out[1].data != NULL ? call->out[1].data : call->scratch);

    sonde_vitals_of(&dw, call->out_vitals[1]);
}

SONDE__OP(linear_grad_weight_sgd, "LinearGradWeightSgd", update, 3, 4, 3,
          .out_names = {NULL, "LinearGradWeight", "Velocity"}, .optional_out = 1u << 1,
          .infer = linear_grad_weight_sgd_infer,
          SONDE__REFERENCE(linear_grad_weight_sgd_run,
                           .scratch = linear_grad_weight_sgd_scratch,
                           .again = linear_grad_weight_sgd_again),
          .fast = sonde__kernel_linear_grad_weight_sgd_fast, .alias = {1, 0, 4});

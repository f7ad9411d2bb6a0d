/*
 * fuse.c - neighbors become one op whose kernel keeps the values between them in
 * registers or cache. Bits do not change: a fused kernel does the arithmetic of its
 * members in their order, and every member's value stays an output, left out only if it
 * is not needed.
 *
 * A rule fires only where a fast kernel takes the fused op; rules are tried in this
 * order.
 */
#include "nn/compile/compile.h"
#include "base/macros.h"

/* Whether some kernel other than the scalar reference takes the op. */
static bool has_fast_kernel(sonde__op_graph *graph, sonde__graph_node_op *op)
{
    sonde__op_call call = {
        .attrs = &op->attrs, .in_count = op->in_count, .out_count = op->out_count};

    for (int i = 0; i < op->in_count; i++) {
        call.in[i].shape = *sonde__op_value_shape(graph, op->in[i]);
    }
    if (op->kind->infer(&call, &op->attrs, NULL) != SONDE_OK) {
        return false;
    }
    return sonde__op_first_kernel(op->kind, &call) != &op->kind->reference;
}

static sonde__graph_node_op *op_making(const sonde__op_graph *graph,
                                       sonde__op_value value, const sonde__op_kind *kind)
{
    const size_t i = value != 0 ? sonde__plan_producer(graph, value) : SIZE_MAX;

    return i != SIZE_MAX && graph->ops[i].kind == kind ? &graph->ops[i] : NULL;
}

/* The live op of a kind that reads value as its input `position`; NULL if there is
 * none. */
static sonde__graph_node_op *op_reading(const sonde__op_graph *graph,
                                        sonde__op_value value, int position,
                                        const sonde__op_kind *kind)
{
    for (size_t i = 0; i < graph->op_count; i++) {
        sonde__graph_node_op *op = &graph->ops[i];

        if (op->kind == kind && position < op->in_count && op->in[position] == value) {
            return op;
        }
    }
    return NULL;
}

static bool is_two_by_two(const sonde__op_attrs *attrs)
{
    for (int i = 0; i < 2; i++) {
        if (attrs->window.kernel[i] != 2 || attrs->window.stride[i] != 2 ||
            attrs->window.padding[i] != 0 || attrs->window.dilation[i] != 1) {
            return false;
        }
    }
    return true;
}

/* conv2d, relu and a 2x2 max-pool. */
static void fuse_conv_relu_pool(sonde__op_graph *graph, sonde__graph_node_op *pool)
{
    sonde__graph_node_op *relu = op_making(graph, pool->in[0], &sonde__op_relu);
    sonde__graph_node_op *conv =
        relu != NULL ? op_making(graph, relu->in[0], &sonde__op_conv2d) : NULL;
    sonde__graph_node_op fused;

    if (conv == NULL || !is_two_by_two(&pool->attrs) || conv->stage != relu->stage ||
        conv->stage != pool->stage) {
        return;
    }
    fused = *conv;
    fused.kind = &sonde__op_conv2d_relu_pool;
    fused.out_count = 4;
    fused.out[1] = relu->out[0];
    fused.out[2] = pool->out[0];
    fused.out[3] = pool->out[1];
    if (has_fast_kernel(graph, &fused)) {
        *conv = fused;
        relu->kind = NULL;
        pool->kind = NULL;
    }
}

/* conv2d, linear or batch_norm, and relu, which becomes the last output. */
static void fuse_relu(sonde__op_graph *graph, sonde__graph_node_op *relu)
{
    static const sonde__op_kind *const pairs[][2] = {
        {&sonde__op_conv2d, &sonde__op_conv2d_relu},
        {&sonde__op_linear, &sonde__op_linear_relu},
        {&sonde__op_batch_norm, &sonde__op_batch_norm_relu},
    };
    sonde__graph_node_op *before = NULL, fused;
    size_t i = 0;

    for (; i < SONDE_COUNT_OF(pairs) && before == NULL; i++) {
        before = op_making(graph, relu->in[0], pairs[i][0]);
    }
    if (before == NULL || before->stage != relu->stage || before->out[0] != relu->in[0]) {
        return;
    }
    fused = *before;
    fused.kind = pairs[i - 1][1];
    fused.out_count = fused.kind->out_count;
    fused.out[fused.out_count - 1] = relu->out[0];
    if (has_fast_kernel(graph, &fused)) {
        *before = fused;
        relu->kind = NULL;
    }
}

/* The way back through a 2x2 max-pool, a relu and a convolution's weights. */
static void fuse_pool_relu_conv_grad(sonde__op_graph *graph,
                                     sonde__graph_node_op *pool_grad)
{
    sonde__graph_node_op *forward =
        op_making(graph, pool_grad->in[1], &sonde__op_conv2d_relu_pool);
    sonde__graph_node_op *relu_grad =
        op_reading(graph, pool_grad->out[0], 0, &sonde__op_relu_grad);
    sonde__graph_node_op *weight = NULL, *bias = NULL, fused;

    if (forward == NULL || relu_grad == NULL || relu_grad->in[1] != forward->out[1]) {
        return;
    }
    weight = op_reading(graph, relu_grad->out[0], 0, &sonde__op_conv2d_grad_weight);
    bias = op_reading(graph, relu_grad->out[0], 0, &sonde__op_channel_sum);
    if (weight == NULL || weight->stage != pool_grad->stage ||
        op_reading(graph, relu_grad->out[0], 0, &sonde__op_conv2d_grad_input) != NULL) {
        return;
    }
    fused = *weight;
    fused.kind = &sonde__op_pool_relu_conv_grad;
    fused.in_count = 4;
    fused.in[0] = pool_grad->in[0];
    fused.in[1] = pool_grad->in[1];
    fused.in[2] = forward->out[2];
    fused.in[3] = weight->in[1];
    fused.out_count = 4;
    fused.out[0] = pool_grad->out[0];
    fused.out[1] = relu_grad->out[0];
    fused.out[2] = weight->out[0];
    fused.out[3] = bias != NULL ? bias->out[0] : 0;
    if (has_fast_kernel(graph, &fused)) {
        *weight = fused;
        pool_grad->kind = NULL;
        relu_grad->kind = NULL;
        if (bias != NULL) {
            bias->kind = NULL;
        }
    }
}

/* Whether any op after `from` other than the one given reads value. */
static bool read_later(const sonde__op_graph *graph, const sonde__graph_node_op *reader,
                       const sonde__graph_node_op *but, sonde__op_value value)
{
    for (const sonde__graph_node_op *op = reader + 1; op < graph->ops + graph->op_count;
         op++) {
        for (int k = 0; op != but && op->kind != NULL && k < op->in_count; k++) {
            if (op->in[k] == value) {
                return true;
            }
        }
    }
    return false;
}

/* A linear layer's weight gradient and its SGD update. */
static void fuse_weight_update(sonde__op_graph *graph, sonde__graph_node_op *sgd)
{
    sonde__graph_node_op *gradient =
        op_making(graph, sgd->in[1], &sonde__op_linear_grad_weight);
    sonde__graph_node_op fused;

    if (gradient == NULL || gradient->attrs.half != 0 ||
        sonde__plan_use_count(graph, sgd->in[1]) != 1 ||
        read_later(graph, gradient, sgd, sgd->in[0])) {
        return;
    }
    fused = *sgd;
    fused.kind = &sonde__op_linear_grad_weight_sgd;
    fused.in_count = sgd->in_count + 1;
    fused.in[1] = gradient->in[0];
    fused.in[2] = gradient->in[1];
    fused.in[3] = sgd->in[2]; /* the velocity, if there is one */
    fused.out_count = 3;
    fused.out[1] = gradient->out[0];
    fused.out[2] = sgd->out[1];
    if (has_fast_kernel(graph, &fused)) {
        *gradient = fused;
        sgd->kind = NULL;
    }
}

static void for_each(sonde__op_graph *graph, const sonde__op_kind *kind,
                     void (*rule)(sonde__op_graph *, sonde__graph_node_op *))
{
    for (size_t i = 0; i < graph->op_count; i++) {
        if (graph->ops[i].kind == kind) {
            rule(graph, &graph->ops[i]);
        }
    }
}

void sonde__pass_fuse(sonde__plan_program *program)
{
    sonde__op_graph *graph = &program->graph;

    for_each(graph, &sonde__op_max_pool2d, fuse_conv_relu_pool);
    for_each(graph, &sonde__op_relu, fuse_relu);
    for_each(graph, &sonde__op_max_pool2d_grad, fuse_pool_relu_conv_grad);
    if (!sonde__plan_updates_apart(program)) {
        for_each(graph, &sonde__op_sgd, fuse_weight_update);
    }
}

/*
 * half_products.c - the kernels of linear layers in bfloat16 and float16.
 */
#include "nn/kernels/half_gemm.h"
#include "nn/kernels/half_ops.h"

/* Products of float16 take as long as those of float32; of bfloat16 a part pays later. */
static int parts_of(const sonde__op_call *call, double products, int max)
{
    const double grain = call->attrs->half == SONDE_BF16 ? 4e6 : 1e6;
    const double parts = products / grain;

    return parts < 1.0 ? 1 : parts > (double)max ? max : (int)parts;
}

/* Rows of an operand of two dimensions, or its columns. */
static sonde__kernel_half_matrix matrix_of(const sonde__operand *operand, bool turned)
{
    const int64_t width = operand->shape.dim[1];

    return (sonde__kernel_half_matrix){.data = operand->data,
                                       .dtype = operand->shape.dtype,
                                       .row = turned ? 1 : width,
                                       .col = turned ? width : 1};
}

/* out[0] (m, n) = in[0] in[1], either of them turned. */
static sonde__kernel_half_gemm product_of(const sonde__op_call *call, bool turned_a,
                                          bool turned_b)
{
    const sonde__operand *const a = &call->in[0], *const b = &call->in[1];
    const sonde__operand *const c = &call->out[0];

    return (sonde__kernel_half_gemm){.dtype = call->attrs->half,
                                     .m = a->shape.dim[turned_a ? 1 : 0],
                                     .n = b->shape.dim[turned_b ? 0 : 1],
                                     .k = a->shape.dim[turned_a ? 0 : 1],
                                     .a = matrix_of(a, turned_a),
                                     .b = matrix_of(b, turned_b),
                                     .c = c->data,
                                     .c_dtype = c->shape.dtype,
                                     .c_row = b->shape.dim[turned_b ? 0 : 1]};
}

static int count_parts(const sonde__op_call *call, int max, bool turned_a, bool turned_b)
{
    const sonde__kernel_half_gemm p = product_of(call, turned_a, turned_b);

    return parts_of(call, (double)p.m * (double)p.n * (double)p.k, max);
}

static size_t scratch_of(const sonde__op_call *call, bool turned_a, bool turned_b)
{
    const sonde__kernel_half_gemm p = product_of(call, turned_a, turned_b);

    return sonde__kernel_half_gemm_scratch(p.m, p.k);
}

static void run_part(const sonde__op_call *call, sonde__kernel_half_gemm p, int part,
                     int parts)
{
    const size_t bytes = sonde__kernel_half_gemm_scratch(p.m, p.k);

    sonde__kernel_half_gemm_take_part(&p, part, parts);
    sonde__kernel_half_gemm_run(&p, (char *)call->scratch + bytes * (size_t)part);
}

static void add_bias(const sonde__op_call *call, sonde__kernel_half_gemm *p)
{
    p->bias = call->in_count > 2 ? call->in[2].data : NULL;
}

/* y (N, O) = x (N, K) w (O, K)^T + b */
static void linear_run(const sonde__op_call *call, int part, int parts)
{
    sonde__kernel_half_gemm p = product_of(call, false, true);

    add_bias(call, &p);
    run_part(call, p, part, parts);
}

static void linear_relu_run(const sonde__op_call *call, int part, int parts)
{
    sonde__kernel_half_gemm p = product_of(call, false, true);

    add_bias(call, &p);
    p.relu = call->out[1].data;
    run_part(call, p, part, parts);
}

/* dx (N, K) = dy (N, O) w (O, K) */
static void grad_input_run(const sonde__op_call *call, int part, int parts)
{
    run_part(call, product_of(call, false, false), part, parts);
}

/* dw (O, K) = dy (N, O)^T x (N, K) */
static void grad_weight_run(const sonde__op_call *call, int part, int parts)
{
    run_part(call, product_of(call, true, false), part, parts);
}

#define SHAPED(name, turned_a, turned_b)                                                 \
    static int name##_parts(const sonde__op_call *call, int max)                         \
    {                                                                                    \
        return count_parts(call, max, turned_a, turned_b);                               \
    }                                                                                    \
    static size_t name##_scratch(const sonde__op_call *call, int parts)                  \
    {                                                                                    \
        return scratch_of(call, turned_a, turned_b) * (size_t)parts;                     \
    }

SHAPED(linear, false, true)
SHAPED(grad_input, false, false)
SHAPED(grad_weight, true, false)

#define KERNEL(op, shaped, runs)                                                         \
    SONDE__HALF_KERNEL(op, NULL, shaped##_scratch, shaped##_parts, runs)

KERNEL(linear, linear, linear_run)
KERNEL(linear_relu, linear, linear_relu_run)
KERNEL(linear_grad_input, grad_input, grad_input_run)
KERNEL(linear_grad_weight, grad_weight, grad_weight_run)

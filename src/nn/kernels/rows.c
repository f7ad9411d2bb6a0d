/*
 * rows.c - the functions of rows by instruction set, and kernels of ops over PLAIN rows:
 * softmax along the last axis, layer norm, GELU.
 *
 * Parts take rows; the sums over rows of layer norm's gradient are divided by columns.
 */
#include "nn/kernels/rows.h"
#include "nn/kernels/stream_kernels.h"

const sonde__kernel_row_functions *sonde__kernel_rows_of(sonde__isa isa)
{
    return SONDE__OF_ISA(isa, &sonde__kernel_rows);
}

const sonde__kernel_row_functions *sonde__kernel_rows(void)
{
    return sonde__kernel_rows_of(sonde__cpu_isa());
}

/* --- rows of an operand --------------------------------------------------------------- */

/* A part has at least so many elements. */
enum { ELEMENTS_A_PART = 16384 };

static int row_parts(const sonde__op_call *call, int max)
{
    const int64_t parts = sonde__op_shape_count(&call->out[0].shape) / ELEMENTS_A_PART;

    return parts < 1 ? 1 : parts > max ? max : (int)parts;
}

#define ROW_KERNEL(takes, runs)                                                          \
    {                                                                                    \
        .name = "rows", .accepts = takes, .parts = row_parts, .run = runs                \
    }

static const float *in_row(const sonde__op_call *call, int i, int64_t offset)
{
    return (const float *)call->in[i].data + offset;
}

static float *out_row(const sonde__op_call *call, int i, int64_t offset)
{
    return call->out[i].data == NULL ? NULL : (float *)call->out[i].data + offset;
}

/* --- softmax -------------------------------------------------------------------------- */

static bool along_last(const sonde__op_call *call)
{
    const sonde__op_shape *x = &call->in[0].shape;

    return x->dtype == SONDE_F32 && x->rank > 0 &&
           call->attrs->along.axis == x->rank - 1 && x->dim[x->rank - 1] > 0;
}

#define SOFTMAX(op, function_call)                                                       \
    static void op##_rows(const sonde__op_call *call, int part, int parts)               \
    {                                                                                    \
        const sonde__op_shape *x = &call->in[0].shape;                                   \
        const int64_t count = x->dim[x->rank - 1];                                       \
        const stream_span mine =                                                         \
            stream_share(sonde__op_shape_count(x) / count, part, parts);                 \
                                                                                         \
        for (int64_t row = mine.begin; row < mine.end; row++) {                          \
            const int64_t at = row * count;                                              \
                                                                                         \
            sonde__kernel_rows()->function_call;                                         \
        }                                                                                \
    }                                                                                    \
                                                                                         \
    const sonde__op_kernel sonde__kernel_##op##_rows = ROW_KERNEL(along_last, op##_rows);

SOFTMAX(softmax, softmax(in_row(call, 0, at), out_row(call, 0, at), count, false))
SOFTMAX(log_softmax, log_softmax(in_row(call, 0, at), out_row(call, 0, at), count))
SOFTMAX(softmax_grad, softmax_grad(in_row(call, 0, at), in_row(call, 1, at),
                                   out_row(call, 0, at), count))
SOFTMAX(log_softmax_grad, log_softmax_grad(in_row(call, 0, at), in_row(call, 1, at),
                                           out_row(call, 0, at), count))

/* --- layer norm ----------------------------------------------------------------------- */

static bool is_f32(const sonde__op_call *call)
{
    return call->in[0].shape.dtype == SONDE_F32 &&
           sonde__op_shape_count(&call->in[0].shape) > 0;
}

/* Elements of a row: the last attrs->norm.rank dims. */
static int64_t row_size(const sonde__op_call *call, int operand)
{
    const sonde__op_shape *x = &call->in[operand].shape;

    return sonde__op_dims_product(x, x->rank - call->attrs->norm.rank, x->rank);
}

static void layer_norm_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t size = row_size(call, 0);
    const stream_span mine =
        stream_share(sonde__op_shape_count(&call->in[0].shape) / size, part, parts);
    const float *weight = call->in_count > 1 ? call->in[1].data : NULL;
    const float *bias = call->in_count > 2 ? call->in[2].data : NULL;

    for (int64_t row = mine.begin; row < mine.end; row++) {
        sonde__kernel_rows()->layer_norm(
            in_row(call, 0, row * size), weight, bias, call->attrs->norm.eps,
            out_row(call, 0, row * size), out_row(call, 1, row), out_row(call, 2, row),
            size);
    }
}

static void layer_norm_grad_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t size = row_size(call, 1);
    const int64_t rows = sonde__op_shape_count(&call->in[1].shape) / size;
    const stream_span mine = stream_share(rows, part, parts),
                      columns = stream_share(size, part, parts);
    const float *mean = call->in[2].data, *rstd = call->in[3].data;
    const float *weight = call->in_count > 4 ? call->in[4].data : NULL;
    float *dweight = call->out[1].data, *dbias = call->out[2].data;

    for (int64_t row = mine.begin; row < mine.end; row++) {
        sonde__kernel_rows()->layer_norm_grad(
            in_row(call, 0, row * size), in_row(call, 1, row * size), weight, mean[row],
            rstd[row], out_row(call, 0, row * size), size);
    }
    for (int64_t i = columns.begin; i < columns.end; i++) {
        dweight[i] = dbias[i] = 0.0F;
    }
    for (int64_t row = 0; row < rows; row++) {
        const int64_t at = row * size + columns.begin;

        sonde__kernel_rows()->layer_norm_sums(
            in_row(call, 0, at), in_row(call, 1, at), mean[row], rstd[row],
            dweight + columns.begin, dbias + columns.begin, columns.end - columns.begin);
    }
}

const sonde__op_kernel *const *sonde__kernel_layer_norm_rows(void)
{
    static const sonde__op_kernel rows = ROW_KERNEL(is_f32, layer_norm_run);
    static const sonde__op_kernel *const kernels[] = {&rows, NULL};

    return kernels;
}

const sonde__op_kernel *const *sonde__kernel_layer_norm_grad_rows(void)
{
    static const sonde__op_kernel rows = ROW_KERNEL(is_f32, layer_norm_grad_run);
    static const sonde__op_kernel *const kernels[] = {&rows, NULL};

    return kernels;
}

/* --- GELU ----------------------------------------------------------------------------- */

static void gelu_run(const sonde__op_call *call, int part, int parts)
{
    const stream_span mine =
        stream_part(sonde__op_shape_count(&call->out[0].shape), part, parts);

    sonde__kernel_rows()->gelu(in_row(call, 0, mine.begin), out_row(call, 0, mine.begin),
                               call->attrs->function.variant == 1, mine.end - mine.begin);
}

static void gelu_grad_run(const sonde__op_call *call, int part, int parts)
{
    const stream_span mine =
        stream_part(sonde__op_shape_count(&call->out[0].shape), part, parts);

    sonde__kernel_rows()->gelu_grad(
        in_row(call, 0, mine.begin), in_row(call, 1, mine.begin),
        out_row(call, 0, mine.begin), call->attrs->function.variant == 1,
        mine.end - mine.begin);
}

const sonde__op_kernel sonde__kernel_gelu_rows = ROW_KERNEL(is_f32, gelu_run);
const sonde__op_kernel sonde__kernel_gelu_grad_rows = ROW_KERNEL(is_f32, gelu_grad_run);

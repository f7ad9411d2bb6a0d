/*
 * matmul.c - products of matrices, in batches that broadcast; as torch.matmul for two
 * tensors of at least two dimensions.
 *
 *   y[..., i, j] = scale * sum over k of a[..., i, k] b[..., k, j]
 *
 * The leading dimensions broadcast. attrs.matmul.transposed, a sum of TRANSPOSED_A and TRANSPOSED_B,
 * says whose last two dimensions are swapped on reading, so that a gradient is a product
 * of the same kind:
 *
 *   da = dy b^T        db = a^T dy        each summed over what was broadcast
 *
 * attrs: matmul.
 */
#include "base/fail.h"
#include "nn/kernels/gemm.h"
#include "nn/ops/common.h"
#include "nn/ops/layer_row.h"

enum { TRANSPOSED_A = 1, TRANSPOSED_B = 2 };

/* --- shapes --------------------------------------------------------------------------- */

/* The last two dims, as they are read. */
typedef struct matrix_dims {
    int64_t rows, columns;
} matrix_dims;

static matrix_dims matrix_of(const sonde__op_shape *shape, bool transposed)
{
    const int64_t last = shape->dim[shape->rank - 1],
                  before = shape->dim[shape->rank - 2];

    return transposed ? (matrix_dims){last, before} : (matrix_dims){before, last};
}

static sonde__op_shape batch_of(const sonde__op_shape *shape)
{
    sonde__op_shape batch = *shape;

    batch.rank -= 2;
    return batch;
}

static sonde_err expect_matrices(const sonde__op_shape *shape, const char *what,
                                 sonde_diag *diag)
{
    SONDE__TRY(sonde__op_expect_float(shape, what, diag));
    return shape->rank >= 2 ? SONDE_OK
                            : sonde__op_expect_rank(shape, 2, what, "(..., I, K)", diag);
}

static sonde_err matmul_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                              sonde_diag *diag)
{
    const sonde__op_shape *a = &call->in[0].shape, *b = &call->in[1].shape;
    char text_a[SONDE__SHAPE_TEXT], text_b[SONDE__SHAPE_TEXT];
    sonde__op_shape y = {0}, batch_a, batch_b;
    matrix_dims in_a, in_b;

    SONDE__TRY(expect_matrices(a, "first operand", diag));
    SONDE__TRY(expect_matrices(b, "second operand", diag));
    SONDE__TRY(sonde__op_expect_product(attrs, a, b, "second operand", &y.dtype, diag));
    in_a = matrix_of(a, (attrs->matmul.transposed & TRANSPOSED_A) != 0);
    in_b = matrix_of(b, (attrs->matmul.transposed & TRANSPOSED_B) != 0);
    if (in_a.columns != in_b.rows) {
        return sonde__fail(diag, SONDE_ESHAPE, NULL,
                           "as many columns in the first as rows in the second",
                           "%s times %s%s", sonde__op_shape_text(a, text_a),
                           sonde__op_shape_text(b, text_b),
                           attrs->matmul.transposed != 0 ? ", transposed" : "");
    }
    batch_a = batch_of(a);
    batch_b = batch_of(b);
    y.rank = batch_a.rank > batch_b.rank ? batch_a.rank : batch_b.rank;
    SONDE__TRY(sonde__op_expect_broadcast(&batch_a, &batch_b, &y, diag));
    y.dim[y.rank] = in_a.rows;
    y.dim[y.rank + 1] = in_b.columns;
    y.rank += 2;
    SONDE__TRY(sonde__op_expect_size(&y, "output", diag));
    call->out[0].shape = y;
    return SONDE_OK;
}

/* --- the reference -------------------------------------------------------------------- */

static double scale_of(const sonde__op_attrs *attrs)
{
    return attrs->matmul.scale == 0.0F ? 1.0 : (double)attrs->matmul.scale;
}

/* Where matrix `batch` of y has its operands. */
static int64_t operand_start(const sonde__op_shape *operand, const sonde__op_shape *y,
                             int64_t batch)
{
    const sonde__op_shape source = batch_of(operand), target = batch_of(y);

    return sonde__op_broadcast_at(&source, &target, batch) *
           sonde__op_dims_product(operand, operand->rank - 2, operand->rank);
}

static void one_product(const sonde__op_call *call, int64_t batch, int64_t row)
{
    const sonde__operand *a = &call->in[0], *b = &call->in[1], *y = &call->out[0];
    const bool swap_a = (call->attrs->matmul.transposed & TRANSPOSED_A) != 0,
               swap_b = (call->attrs->matmul.transposed & TRANSPOSED_B) != 0;
    const matrix_dims in_a = matrix_of(&a->shape, swap_a);
    const matrix_dims in_b = matrix_of(&b->shape, swap_b);
    const int64_t start_a = operand_start(&a->shape, &y->shape, batch);
    const int64_t start_b = operand_start(&b->shape, &y->shape, batch);

    for (int64_t j = 0; j < in_b.columns; j++) {
        double sum = 0.0;

        for (int64_t k = 0; k < in_a.columns; k++) {
            sum += sonde__op_load_rounded(call, 0,
                                          start_a + (swap_a ? k * in_a.rows + row
                                                            : row * in_a.columns + k)) *
                   sonde__op_load_rounded(
                       call, 1,
                       start_b + (swap_b ? j * in_b.rows + k : k * in_b.columns + j));
        }
        sonde__op_store(y, (batch * in_a.rows + row) * in_b.columns + j,
                        sum * scale_of(call->attrs));
    }
}

static void matmul_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__op_shape *y = &call->out[0].shape;
    const int64_t rows = y->dim[y->rank - 2];
    const int64_t count = sonde__op_dims_product(y, 0, y->rank - 1);

    for (int64_t i = count * part / parts; i < count * (part + 1) / parts; i++) {
        one_product(call, i / rows, i % rows);
    }
}

/* --- over the shared product ---------------------------------------------------------- */

static bool is_f32(const sonde__op_call *call)
{
    return call->in[0].shape.dtype == SONDE_F32 && call->attrs->matmul.scale == 0.0F;
}

/* A matrix of an operand, as it is read: (rows, columns) with strides. */
static sonde__kernel_gemm_matrix matrix_at(const sonde__operand *operand, int64_t start,
                                           bool swapped)
{
    const int64_t width = operand->shape.dim[operand->shape.rank - 1];

    return (sonde__kernel_gemm_matrix){.data = (const float *)operand->data + start,
                                       .row = swapped ? 1 : width,
                                       .col = swapped ? width : 1};
}

static int64_t products_of(const sonde__op_call *call)
{
    const sonde__op_shape *y = &call->out[0].shape;

    return sonde__op_dims_product(y, 0, y->rank - 2);
}

/* Parts take matrices where there are enough of them, else rows or columns of each. */
static void gemm_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__operand *a = &call->in[0], *b = &call->in[1], *y = &call->out[0];
    const bool swap_a = (call->attrs->matmul.transposed & TRANSPOSED_A) != 0,
               swap_b = (call->attrs->matmul.transposed & TRANSPOSED_B) != 0;
    const matrix_dims in_a = matrix_of(&a->shape, swap_a);
    const matrix_dims in_b = matrix_of(&b->shape, swap_b);
    const int64_t count = products_of(call);
    const bool whole = count >= 2 * (int64_t)parts || parts == 1;
    const int64_t first = whole ? count * part / parts : 0;
    const int64_t end = whole ? count * (part + 1) / parts : count;
    char *scratch = (char *)call->scratch + sonde__kernel_gemm_scratch() * (size_t)part;

    for (int64_t i = first; i < end; i++) {
        sonde__kernel_gemm product = {
            .m = in_a.rows,
            .n = in_b.columns,
            .k = in_a.columns,
            .a = matrix_at(a, operand_start(&a->shape, &y->shape, i), swap_a),
            .b = matrix_at(b, operand_start(&b->shape, &y->shape, i), swap_b),
            .c = (float *)y->data + i * in_a.rows * in_b.columns,
            .c_row = in_b.columns};

        if (!whole) {
            sonde__kernel_gemm_take_part(&product, part, parts);
        }
        sonde__kernel_gemm_run(&product, scratch);
    }
}

static size_t gemm_scratch(const sonde__op_call *call, int parts)
{
    (void)call;
    return sonde__kernel_gemm_scratch() * (size_t)parts;
}

/* A part has at least a million multiplications; in double, which no shape overflows. */
static int gemm_parts(const sonde__op_call *call, int max)
{
    const int64_t depth = matrix_of(&call->in[0].shape,
                                    (call->attrs->matmul.transposed & TRANSPOSED_A) != 0)
                              .columns;
    const double parts =
        (double)sonde__op_shape_count(&call->out[0].shape) * (double)depth / 1e6;

    return parts < 1.0 ? 1 : parts > (double)max ? max : (int)parts;
}

/* --- in bfloat16 and float16 ---------------------------------------------------------- */

static bool has_no_scale(const sonde__op_call *call)
{
    return call->attrs->matmul.scale == 0.0F;
}

static sonde__kernel_half_matrix half_matrix_at(const sonde__operand *operand,
                                                int64_t start, bool swapped)
{
    const int64_t width = operand->shape.dim[operand->shape.rank - 1];

    return (sonde__kernel_half_matrix){.data = (const char *)operand->data +
                                               (size_t)start *
                                                   sonde_dtype_size(operand->shape.dtype),
                                       .dtype = operand->shape.dtype,
                                       .row = swapped ? 1 : width,
                                       .col = swapped ? width : 1};
}

static sonde__kernel_half_gemm half_product(const sonde__op_call *call, int64_t number)
{
    const sonde__operand *a = &call->in[0], *b = &call->in[1], *y = &call->out[0];
    const bool swap_a = (call->attrs->matmul.transposed & TRANSPOSED_A) != 0,
               swap_b = (call->attrs->matmul.transposed & TRANSPOSED_B) != 0;
    const matrix_dims in_a = matrix_of(&a->shape, swap_a);
    const matrix_dims in_b = matrix_of(&b->shape, swap_b);

    return (sonde__kernel_half_gemm){
        .dtype = call->attrs->half,
        .m = in_a.rows,
        .n = in_b.columns,
        .k = in_a.columns,
        .a = half_matrix_at(a, operand_start(&a->shape, &y->shape, number), swap_a),
        .b = half_matrix_at(b, operand_start(&b->shape, &y->shape, number), swap_b),
        .c = (char *)y->data + (size_t)(number * in_a.rows * in_b.columns) *
                                   sonde_dtype_size(y->shape.dtype),
        .c_dtype = y->shape.dtype,
        .c_row = in_b.columns};
}

static size_t half_scratch(const sonde__op_call *call, int parts)
{
    const sonde__op_shape *a = &call->in[0].shape;
    const matrix_dims dims =
        matrix_of(a, (call->attrs->matmul.transposed & TRANSPOSED_A) != 0);

    return sonde__kernel_half_gemm_scratch(dims.rows, dims.columns) * (size_t)parts;
}

static void half_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t count = products_of(call);
    const bool whole = count >= 2 * (int64_t)parts || parts == 1;
    const int64_t first = whole ? count * part / parts : 0;
    const int64_t end = whole ? count * (part + 1) / parts : count;
    char *const scratch = (char *)call->scratch + half_scratch(call, part);

    for (int64_t i = first; i < end; i++) {
        sonde__kernel_half_gemm product = half_product(call, i);

        if (!whole) {
            sonde__kernel_half_gemm_take_part(&product, part, parts);
        }
        sonde__kernel_half_gemm_run(&product, scratch);
    }
}

/* --- gradient ------------------------------------------------------------------------- */

/* The product of two values, summed to the shape of `like`. */
static sonde__op_value emit_product(const sonde__op_gradient_context *context,
                                    sonde__op_value a, bool swap_a, sonde__op_value b,
                                    bool swap_b, sonde__op_value like)
{
    const sonde__op_value in[] = {a, b};
    const sonde__op_attrs attrs = {.matmul.transposed = (swap_a ? TRANSPOSED_A : 0) |
                                                        (swap_b ? TRANSPOSED_B : 0),
                                   .matmul.scale = context->attrs->matmul.scale,
                                   .half = context->attrs->half,
                                   .wide = sonde__op_product_attrs(context, like).wide};
    const sonde__op_value wide =
        sonde__op_emit(context->graph, &sonde__op_matmul, &attrs, in, 2);

    return wide == 0 ? 0 : sonde__op_emit_sum_to(context, wide, like);
}

static void matmul_gradient(const sonde__op_gradient_context *context)
{
    const bool swap_a = (context->attrs->matmul.transposed & TRANSPOSED_A) != 0,
               swap_b = (context->attrs->matmul.transposed & TRANSPOSED_B) != 0;
    const sonde__op_value a = context->in[0], b = context->in[1],
                          dy = context->grad_out[0];

    if (context->wanted[0]) {
        context->grad_in[0] = swap_a ? emit_product(context, b, swap_b, dy, true, a)
                                     : emit_product(context, dy, false, b, !swap_b, a);
    }
    if (context->wanted[1]) {
        context->grad_in[1] = swap_b ? emit_product(context, dy, true, a, swap_a, b)
                                     : emit_product(context, a, !swap_a, dy, false, b);
    }
}

SONDE__OP(matmul, "MatMul", matmul, 2, 2, 1, .infer = matmul_infer,
          .gradient = matmul_gradient, SONDE__REFERENCE(matmul_run),
          .own = SONDE__KERNEL("gemm", gemm_run, .accepts = is_f32,
                               .scratch = gemm_scratch, .parts = gemm_parts),
          .halves = SONDE__HALVES_MADE,
          .half_kernels = SONDE__KERNEL("half", half_run, .accepts = has_no_scale,
                                        .scratch = half_scratch, .parts = gemm_parts));

SONDE__LAYER(
    matmul, matmul, 2,
    "the product of the matrices in the last two dimensions; the others broadcast");

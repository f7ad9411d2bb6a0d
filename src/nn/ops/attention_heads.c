/*
 * attention_heads.c - where the matrices of attention lie, and the shapes of its outputs.
 */
#include "nn/ops/attention_heads.h"
#include "base/fail.h"
#include "base/macros.h"
#include "nn/kernels/gemm.h"

#include <math.h>

/* Of attention with heads in columns. */
static sonde__op_heads in_columns(const sonde__op_shape *q, const sonde__op_shape *k,
                                  const sonde__op_shape *v, int64_t count)
{
    const int64_t depth = q->dim[2] / count, width = v->dim[2] / count;

    return (sonde__op_heads){.batches = q->dim[0],
                             .heads = count,
                             .queries = q->dim[1],
                             .keys = k->dim[1],
                             .depth = depth,
                             .width = width,
                             .q = {0, q->dim[1] * q->dim[2], depth, q->dim[2]},
                             .k = {0, k->dim[1] * k->dim[2], depth, k->dim[2]},
                             .v = {0, v->dim[1] * v->dim[2], width, v->dim[2]},
                             .y = {0, q->dim[1] * count * width, width, count * width}};
}

static sonde__op_heads of_matrices(const sonde__op_shape *q, const sonde__op_shape *k,
                                   const sonde__op_shape *v)
{
    const int last = q->rank - 1;
    const int64_t queries = q->dim[last - 1], keys = k->dim[last - 1];
    const int64_t depth = q->dim[last], width = v->dim[last];

    return (sonde__op_heads){.batches = sonde__op_dims_product(q, 0, last - 1),
                             .heads = 1,
                             .queries = queries,
                             .keys = keys,
                             .depth = depth,
                             .width = width,
                             .q = {0, queries * depth, 0, depth},
                             .k = {0, keys * depth, 0, depth},
                             .v = {0, keys * width, 0, width},
                             .y = {0, queries * width, 0, width}};
}

static sonde__op_heads packed(const sonde__op_shape *x, int64_t count)
{
    const int64_t row = x->dim[2], width = row / 3, depth = width / count;
    const int64_t batch = x->dim[1] * row;

    return (sonde__op_heads){.batches = x->dim[0],
                             .heads = count,
                             .queries = x->dim[1],
                             .keys = x->dim[1],
                             .depth = depth,
                             .width = depth,
                             .q = {0, batch, depth, row},
                             .k = {width, batch, depth, row},
                             .v = {2 * width, batch, depth, row},
                             .y = {0, x->dim[1] * width, depth, width}};
}

sonde__op_heads sonde__op_heads_of(const sonde__operand *operands,
                                   const sonde__op_attrs *attrs, bool is_packed)
{
    return is_packed ? packed(&operands[0].shape, attrs->attention.heads)
           : attrs->attention.heads > 0
               ? in_columns(&operands[0].shape, &operands[1].shape, &operands[2].shape,
                            attrs->attention.heads)
               : of_matrices(&operands[0].shape, &operands[1].shape, &operands[2].shape);
}

static sonde_err refuse_shapes(const sonde__operand *operands, const char *expected,
                               sonde_diag *diag)
{
    char q[SONDE__SHAPE_TEXT], k[SONDE__SHAPE_TEXT], v[SONDE__SHAPE_TEXT];

    return sonde__fail(diag, SONDE_ESHAPE, NULL, expected, "query %s, key %s, value %s",
                       sonde__op_shape_text(&operands[0].shape, q),
                       sonde__op_shape_text(&operands[1].shape, k),
                       sonde__op_shape_text(&operands[2].shape, v));
}

static sonde_err expect_heads(const sonde__op_attrs *attrs, int64_t width,
                              sonde_diag *diag)
{
    if (attrs->attention.heads >= 1 && width % attrs->attention.heads == 0) {
        return SONDE_OK;
    }
    return sonde__fail(diag, SONDE_ESHAPE, NULL, "heads that divide the width",
                       "%lld heads over a width of %lld",
                       (long long)attrs->attention.heads, (long long)width);
}

/* q, k, v at operands. */
static sonde_err expect_three(const sonde__operand *operands,
                              const sonde__op_attrs *attrs, sonde_diag *diag)
{
    static const char *const names[] = {"query", "key", "value"};
    const sonde__op_shape *q = &operands[0].shape, *k = &operands[1].shape,
                          *v = &operands[2].shape;
    const int last = q->rank - 1;
    sonde_dtype dtype = q->dtype;
    const char *form = attrs->attention.heads > 0
                           ? "(N, T, H D), (N, S, H D), (N, S, H E)"
                           : "(..., T, D), (..., S, D), (..., S, E)";

    for (int i = 0; i < 3; i++) {
        SONDE__TRY(sonde__op_expect_float(&operands[i].shape, names[i], diag));
        SONDE__TRY(sonde__op_expect_product(attrs, q, &operands[i].shape, names[i],
                                            &dtype, diag));
        if (operands[i].shape.rank != q->rank || q->rank < 2 ||
            (attrs->attention.heads > 0 && q->rank != 3)) {
            return refuse_shapes(operands, form, diag);
        }
    }
    for (int i = 0; i < last - 1; i++) {
        if (k->dim[i] != q->dim[i] || v->dim[i] != q->dim[i]) {
            return refuse_shapes(operands, form, diag);
        }
    }
    if (k->dim[last] != q->dim[last] || v->dim[last - 1] != k->dim[last - 1]) {
        return refuse_shapes(operands, form, diag);
    }
    if (attrs->attention.heads > 0) {
        SONDE__TRY(expect_heads(attrs, q->dim[2], diag));
        SONDE__TRY(expect_heads(attrs, v->dim[2], diag));
    }
    return SONDE_OK;
}

static sonde_err expect_packed(const sonde__op_shape *x, const sonde__op_attrs *attrs,
                               sonde_diag *diag)
{
    SONDE__TRY(sonde__op_expect_rank(x, 3, "input", "(N, T, 3 H D)", diag));
    if (x->dim[2] % 3 != 0) {
        return sonde__fail(diag, SONDE_ESHAPE, NULL, "three times the width",
                           "an input of %lld columns", (long long)x->dim[2]);
    }
    return expect_heads(attrs, x->dim[2] / 3, diag);
}

sonde_err sonde__op_attention_shapes(const sonde__operand *operands,
                                     const sonde__op_attrs *attrs, bool is_packed,
                                     sonde__op_shape *y, sonde__op_shape *weights,
                                     sonde_diag *diag)
{
    sonde__op_heads h;

    SONDE__TRY(is_packed ? expect_packed(&operands[0].shape, attrs, diag)
                         : expect_three(operands, attrs, diag));
    h = sonde__op_heads_of(operands, attrs, is_packed);
    *y = *weights = operands[0].shape;
    if (attrs->half != 0) { /* weights are float32, as softmax is */
        SONDE__TRY(sonde__op_expect_product(attrs, &operands[0].shape, &operands[0].shape,
                                            "query", &y->dtype, diag));
        weights->dtype = SONDE_F32;
    }
    y->dim[y->rank - 1] = h.heads * h.width;
    weights->dim[weights->rank - 2] = h.queries;
    weights->dim[weights->rank - 1] = h.keys;
    if (attrs->attention.heads > 0) {
        *weights = (sonde__op_shape){.dtype = weights->dtype,
                                     .rank = 4,
                                     .dim = {h.batches, h.heads, h.queries, h.keys}};
    }
    SONDE__TRY(sonde__op_expect_size(y, "output", diag));
    return sonde__op_expect_size(weights, "weights", diag);
}
double sonde__op_attention_scale(const sonde__op_attrs *attrs, const sonde__op_heads *h)
{
    return attrs->attention.scale != 0.0F ? (double)attrs->attention.scale
                                          : 1.0 / sqrt((double)h->depth);
}

/* In double, which no shape overflows. */
int sonde__op_head_parts(const sonde__op_call *call, int max, bool is_packed, int first)
{
    const sonde__op_heads h =
        sonde__op_heads_of(&call->in[first], call->attrs, is_packed);
    const double matrices = (double)(h.batches * h.heads);
    const double worth =
        matrices * (double)(h.queries * h.keys) * (double)(h.depth + h.width) / 500000.0;
    const double parts = worth < matrices ? worth : matrices;

    return parts < 1.0 ? 1 : parts > (double)max ? max : (int)parts;
}

void *sonde__op_head_start(const sonde__operand *operand, const sonde__op_head_view *view,
                           sonde__op_head_at m)
{
    return (char *)operand->data +
           (size_t)sonde__op_head_place(view, m.batch, m.head, 0) *
               sonde_dtype_size(operand->shape.dtype);
}

sonde__kernel_half_matrix sonde__op_head_rows(const sonde__operand *operand,
                                              const sonde__op_head_view *view,
                                              sonde__op_head_at m, bool swapped)
{
    return (sonde__kernel_half_matrix){.data = sonde__op_head_start(operand, view, m),
                                       .dtype = operand->shape.dtype,
                                       .row = swapped ? 1 : view->row,
                                       .col = swapped ? view->row : 1};
}

void sonde__op_head_product(const sonde__op_call *call, sonde__kernel_half_gemm product,
                            void *scratch)
{
    product.dtype = call->attrs->half;
    sonde__kernel_half_gemm_run(&product, scratch);
}

size_t sonde__op_head_scratch(const sonde__op_call *call, const sonde__op_heads *h)
{
    const int64_t most = SONDE_MAX(h->queries, h->keys);
    const int64_t depth = SONDE_MAX(SONDE_MAX(h->depth, h->width), most);

    return call->attrs->half == 0 ? sonde__kernel_gemm_scratch()
                                  : sonde__kernel_half_gemm_scratch(most, depth);
}

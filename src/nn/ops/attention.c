/*
 * attention.c - scaled dot-product attention (Vaswani et al. 2017) and its gradient, as
 * torch.nn.functional.scaled_dot_product_attention.
 *
 *   S = scale Q K^T + mask,  P = softmax(S) along keys,  Y = P V
 *   dV = P^T dY,  dP = dY V^T,  dS = P (dP - sum of dP P),  dQ = scale dS K,
 *   dK = scale dS^T Q,  dmask = dS
 *
 * Attention has q (..., T, D), k (..., S, D), v (..., S, E) and makes y (..., T, E). With
 * attrs.groups heads, q is (N, T, H D), k (N, S, H D), v (N, S, H E), y (N, T, H E), and
 * head h has columns h D on. SelfAttention reads all three from one value (N, T, 3 H D).
 * The second output holds P, (..., T, S) or (N, H, T, S): it is there to be observed, and
 * the gradient reads it.
 *
 * A mask broadcasts to P: a bool says which keys take part, a float is added. A key that
 * does not take part has weight 0, whatever its score; a query without keys has weights 0,
 * as PyTorch has it. The causal mask leaves query t the keys 0 ... t.
 *
 * attrs: groups, 0 for none; causal; scale, 0 for 1 / sqrt(D).
 */
#include "base/fail.h"
#include "nn/kernels/gemm.h"
#include "nn/kernels/rows.h"
#include "nn/ops/common.h"

#include <math.h>
#include <string.h>

extern const sonde__op_kind sonde__op_attention, sonde__op_attention_grad,
    sonde__op_self_attention, sonde__op_self_attention_grad;

/* --- shapes --------------------------------------------------------------------------- */

/* Where element (batch, head, row, 0) of an operand lies. */
typedef struct head_view {
    int64_t start, batch, head, row;
} head_view;

typedef struct heads {
    int64_t batches, heads, queries, keys, depth, width; /* depth D, width E */
    head_view q, k, v, y;
} heads;

static int64_t place(const head_view *view, int64_t batch, int64_t head, int64_t row)
{
    return view->start + batch * view->batch + head * view->head + row * view->row;
}

/* Of attention with heads in columns. */
static heads in_columns(const sonde__op_shape *q, const sonde__op_shape *k,
                        const sonde__op_shape *v, int64_t count)
{
    const int64_t depth = q->dim[2] / count, width = v->dim[2] / count;

    return (heads){.batches = q->dim[0],
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

static heads of_matrices(const sonde__op_shape *q, const sonde__op_shape *k,
                         const sonde__op_shape *v)
{
    const int last = q->rank - 1;
    const int64_t queries = q->dim[last - 1], keys = k->dim[last - 1];
    const int64_t depth = q->dim[last], width = v->dim[last];

    return (heads){.batches = sonde__op_dims_product(q, 0, last - 1),
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

static heads packed(const sonde__op_shape *x, int64_t count)
{
    const int64_t row = x->dim[2], width = row / 3, depth = width / count;
    const int64_t batch = x->dim[1] * row;

    return (heads){.batches = x->dim[0],
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

/* The heads of q, k, v, or of one packed operand. */
static heads heads_of(const sonde__operand *operands, const sonde__op_attrs *attrs,
                      bool is_packed)
{
    return is_packed ? packed(&operands[0].shape, attrs->groups)
           : attrs->groups > 0
               ? in_columns(&operands[0].shape, &operands[1].shape, &operands[2].shape,
                            attrs->groups)
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
    if (attrs->groups >= 1 && width % attrs->groups == 0) {
        return SONDE_OK;
    }
    return sonde__fail(diag, SONDE_ESHAPE, NULL, "heads that divide the width",
                       "%lld heads over a width of %lld", (long long)attrs->groups,
                       (long long)width);
}

/* q, k, v at operands. */
static sonde_err expect_three(const sonde__operand *operands,
                              const sonde__op_attrs *attrs, sonde_diag *diag)
{
    static const char *const names[] = {"query", "key", "value"};
    const sonde__op_shape *q = &operands[0].shape, *k = &operands[1].shape,
                          *v = &operands[2].shape;
    const int last = q->rank - 1;
    const char *form = attrs->groups > 0 ? "(N, T, H D), (N, S, H D), (N, S, H E)"
                                         : "(..., T, D), (..., S, D), (..., S, E)";

    for (int i = 0; i < 3; i++) {
        SONDE__TRY(sonde__op_expect_float(&operands[i].shape, names[i], diag));
        SONDE__TRY(sonde__op_expect_dtype(&operands[i].shape, q->dtype, names[i], diag));
        if (operands[i].shape.rank != q->rank || q->rank < 2 ||
            (attrs->groups > 0 && q->rank != 3)) {
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
    if (attrs->groups > 0) {
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

/* Shapes of y and P. */
static sonde_err fill_shapes(const sonde__operand *operands, const sonde__op_attrs *attrs,
                             bool is_packed, sonde__op_shape *y, sonde__op_shape *weights,
                             sonde_diag *diag)
{
    heads h;

    SONDE__TRY(is_packed ? expect_packed(&operands[0].shape, attrs, diag)
                         : expect_three(operands, attrs, diag));
    h = heads_of(operands, attrs, is_packed);
    *y = *weights = operands[0].shape;
    y->dim[y->rank - 1] = h.heads * h.width;
    weights->dim[weights->rank - 2] = h.queries;
    weights->dim[weights->rank - 1] = h.keys;
    if (attrs->groups > 0) {
        *weights = (sonde__op_shape){
            .dtype = y->dtype, .rank = 4, .dim = {h.batches, h.heads, h.queries, h.keys}};
    }
    SONDE__TRY(sonde__op_expect_size(y, "output", diag));
    return sonde__op_expect_size(weights, "weights", diag);
}

static sonde_err expect_mask(const sonde__op_shape *mask, const sonde__op_shape *weights,
                             sonde_diag *diag)
{
    char found[SONDE__SHAPE_TEXT], wanted[SONDE__SHAPE_TEXT];

    if (mask->dtype != SONDE_BOOL) {
        SONDE__TRY(sonde__op_expect_dtype(mask, weights->dtype, "mask", diag));
    }
    SONDE__TRY(sonde__op_expect_size(mask, "mask", diag));
    if (!sonde__op_broadcasts_to(mask, weights)) {
        return sonde__fail(
            diag, SONDE_ESHAPE, NULL, sonde__op_shape_text(weights, wanted),
            "mask %s does not broadcast", sonde__op_shape_text(mask, found));
    }
    return SONDE_OK;
}

static sonde_err forward_infer(sonde__op_call *call, const sonde__op_attrs *attrs,
                               bool is_packed, sonde_diag *diag)
{
    const int mask = is_packed ? 1 : 3;

    SONDE__TRY(fill_shapes(call->in, attrs, is_packed, &call->out[0].shape,
                           &call->out[1].shape, diag));
    return call->in_count > mask
               ? expect_mask(&call->in[mask].shape, &call->out[1].shape, diag)
               : SONDE_OK;
}

static sonde_err attention_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                 sonde_diag *diag)
{
    return forward_infer(call, attrs, false, diag);
}

static sonde_err self_attention_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                      sonde_diag *diag)
{
    return forward_infer(call, attrs, true, diag);
}

static double scale_of(const sonde__op_attrs *attrs, const heads *h)
{
    return attrs->scale != 0.0F ? (double)attrs->scale : 1.0 / sqrt((double)h->depth);
}

/* Matrix number i of all batches and heads. */
typedef struct matrix_at {
    int64_t batch, head;
} matrix_at;

static matrix_at matrix_number(const heads *h, int64_t i)
{
    return (matrix_at){i / h->heads, i % h->heads};
}

/* In double, which no shape overflows. */
static int head_parts(const sonde__op_call *call, int max, bool is_packed, int first)
{
    const heads h = heads_of(&call->in[first], call->attrs, is_packed);
    const double matrices = (double)(h.batches * h.heads);
    const double worth =
        matrices * (double)(h.queries * h.keys) * (double)(h.depth + h.width) / 500000.0;
    const double parts = worth < matrices ? worth : matrices;

    return parts < 1.0 ? 1 : parts > (double)max ? max : (int)parts;
}

static int attention_parts(const sonde__op_call *call, int max)
{
    return head_parts(call, max, false, 0);
}

static int self_attention_parts(const sonde__op_call *call, int max)
{
    return head_parts(call, max, true, 0);
}

/* --- forward -------------------------------------------------------------------------- */

/* Whether key j takes part for the query of weight `at`; adds a float mask to *score. */
static bool takes_part(const sonde__op_call *call, const sonde__operand *mask, int64_t i,
                       int64_t j, int64_t at, double *score)
{
    int64_t place_of_mask = 0;

    if (call->attrs->causal && j > i) {
        return false;
    }
    if (mask == NULL) {
        return true;
    }
    place_of_mask = sonde__op_broadcast_at(&mask->shape, &call->out[1].shape, at);
    if (mask->shape.dtype == SONDE_BOOL) {
        return ((const uint8_t *)mask->data)[place_of_mask] != 0;
    }
    *score += sonde__op_load(mask, place_of_mask);
    return true;
}

static const sonde__operand *mask_of(const sonde__op_call *call, bool is_packed)
{
    const int mask = is_packed ? 1 : 3;

    return sonde__op_has_in(call, mask) ? &call->in[mask] : NULL;
}

/* The scores of query i into row `at` of P; -Inf for keys that do not take part. */
static void score_row(const sonde__op_call *call, const heads *h, matrix_at m, int64_t i,
                      int64_t at, bool is_packed)
{
    const sonde__operand *q = &call->in[0], *k = &call->in[is_packed ? 0 : 1];

    for (int64_t j = 0; j < h->keys; j++) {
        double sum = 0.0;

        for (int64_t d = 0; d < h->depth; d++) {
            sum += sonde__op_load(q, place(&h->q, m.batch, m.head, i) + d) *
                   sonde__op_load(k, place(&h->k, m.batch, m.head, j) + d);
        }
        sum *= scale_of(call->attrs, h);
        if (!takes_part(call, mask_of(call, is_packed), i, j, at + j, &sum)) {
            sum = -(double)INFINITY;
        }
        sonde__op_store(&call->out[1], at + j, sum);
    }
}

static void softmax_row(const sonde__operand *weights, int64_t at, int64_t count)
{
    double max = -(double)INFINITY, sum = 0.0;
    bool any = false;

    for (int64_t j = 0; j < count; j++) {
        const double score = sonde__op_load(weights, at + j);

        any = any || !(score == -(double)INFINITY);
        max = score > max ? score : max;
    }
    for (int64_t j = 0; j < count && any; j++) {
        sum += exp(sonde__op_load(weights, at + j) - max);
    }
    for (int64_t j = 0; j < count; j++) {
        sonde__op_store(weights, at + j,
                        any ? exp(sonde__op_load(weights, at + j) - max) / sum : 0.0);
    }
}

static void forward_run(const sonde__op_call *call, int part, int parts, bool is_packed)
{
    const heads h = heads_of(call->in, call->attrs, is_packed);
    const sonde__operand *v = &call->in[is_packed ? 0 : 2];
    const int64_t rows = h.batches * h.heads * h.queries;

    for (int64_t r = rows * part / parts; r < rows * (part + 1) / parts; r++) {
        const matrix_at m = matrix_number(&h, r / h.queries);
        const int64_t i = r % h.queries, at = r * h.keys;

        score_row(call, &h, m, i, at, is_packed);
        softmax_row(&call->out[1], at, h.keys);
        for (int64_t e = 0; e < h.width; e++) {
            double sum = 0.0;

            for (int64_t j = 0; j < h.keys; j++) {
                sum += sonde__op_load(&call->out[1], at + j) *
                       sonde__op_load(v, place(&h.v, m.batch, m.head, j) + e);
            }
            sonde__op_store(&call->out[0], place(&h.y, m.batch, m.head, i) + e, sum);
        }
    }
}

static void attention_run(const sonde__op_call *call, int part, int parts)
{
    forward_run(call, part, parts, false);
}

static void self_attention_run(const sonde__op_call *call, int part, int parts)
{
    forward_run(call, part, parts, true);
}

/* --- forward over the shared product -------------------------------------------------- */

static bool is_f32(const sonde__op_call *call)
{
    return call->in[0].shape.dtype == SONDE_F32;
}

static size_t product_scratch(const sonde__op_call *call, int parts)
{
    (void)call;
    return sonde__kernel_gemm_scratch() * (size_t)parts;
}

static sonde__kernel_gemm_matrix rows_of(const sonde__operand *operand,
                                         const head_view *view, matrix_at m, bool swapped)
{
    return (sonde__kernel_gemm_matrix){.data = (const float *)operand->data +
                                               place(view, m.batch, m.head, 0),
                                       .row = swapped ? 1 : view->row,
                                       .col = swapped ? view->row : 1};
}

/* Masks and normalises row i of matrix number `number` of P. */
static void finish_row(const sonde__op_call *call, const heads *h, int64_t number,
                       int64_t i, const sonde__operand *mask)
{
    const bool causal = call->attrs->causal;
    const int64_t at = (number * h->queries + i) * h->keys;
    const int64_t keys = causal && i + 1 < h->keys ? i + 1 : h->keys;
    float *row = (float *)call->out[1].data + at;

    sonde__kernel_rows()->scale(row, (float)scale_of(call->attrs, h), keys);
    for (int64_t j = 0; mask != NULL && j < keys; j++) {
        double score = (double)row[j];

        row[j] = takes_part(call, mask, i, j, at + j, &score) ? (float)score : -INFINITY;
    }
    sonde__kernel_rows()->softmax(row, row, keys, true);
    for (int64_t j = keys; j < h->keys; j++) {
        row[j] = 0.0F;
    }
}

static void forward_products(const sonde__op_call *call, int part, int parts,
                             bool is_packed)
{
    const heads h = heads_of(call->in, call->attrs, is_packed);
    const sonde__operand *k = &call->in[is_packed ? 0 : 1],
                         *v = &call->in[is_packed ? 0 : 2];
    const int64_t count = h.batches * h.heads, size = h.queries * h.keys;
    char *scratch = (char *)call->scratch + sonde__kernel_gemm_scratch() * (size_t)part;

    for (int64_t n = count * part / parts; n < count * (part + 1) / parts; n++) {
        const matrix_at m = matrix_number(&h, n);
        float *weights = (float *)call->out[1].data + n * size;
        const sonde__kernel_gemm scores = {.m = h.queries,
                                           .n = h.keys,
                                           .k = h.depth,
                                           .a = rows_of(&call->in[0], &h.q, m, false),
                                           .b = rows_of(k, &h.k, m, true),
                                           .c = weights,
                                           .c_row = h.keys};
        const sonde__kernel_gemm values = {.m = h.queries,
                                           .n = h.width,
                                           .k = h.keys,
                                           .a = {weights, h.keys, 1},
                                           .b = rows_of(v, &h.v, m, false),
                                           .c = (float *)call->out[0].data +
                                                place(&h.y, m.batch, m.head, 0),
                                           .c_row = h.y.row};

        sonde__kernel_gemm_run(&scores, scratch);
        for (int64_t i = 0; i < h.queries; i++) {
            finish_row(call, &h, n, i, mask_of(call, is_packed));
        }
        sonde__kernel_gemm_run(&values, scratch);
    }
}

static void attention_products(const sonde__op_call *call, int part, int parts)
{
    forward_products(call, part, parts, false);
}

static void self_attention_products(const sonde__op_call *call, int part, int parts)
{
    forward_products(call, part, parts, true);
}

#define FAST_ATTENTION(op, function, scratch_of)                                         \
    static const sonde__op_kernel *const *op##_fast(void)                                \
    {                                                                                    \
        static const sonde__op_kernel gemm = {.name = "gemm",                            \
                                              .accepts = is_f32,                         \
                                              .scratch = (scratch_of),                   \
                                              .parts = op##_parts,                       \
                                              .run = (function)};                        \
        static const sonde__op_kernel *const kernels[] = {&gemm, NULL};                  \
                                                                                         \
        return kernels;                                                                  \
    }                                                                                    \
                                                                                         \
    SONDE__KERNELS(op, op##_fast)

FAST_ATTENTION(attention, attention_products, product_scratch)
FAST_ATTENTION(self_attention, self_attention_products, product_scratch)

/* --- gradient ------------------------------------------------------------------------- */

/* dy, P, then what the forward op reads. The last output is dS. */
static sonde_err grad_infer(sonde__op_call *call, const sonde__op_attrs *attrs,
                            bool is_packed, sonde_diag *diag)
{
    const int count = is_packed ? 1 : 3;
    sonde__op_shape y, weights;

    SONDE__TRY(fill_shapes(&call->in[2], attrs, is_packed, &y, &weights, diag));
    SONDE__TRY(sonde__op_expect_shape(&call->in[0].shape, &y, "output gradient", diag));
    SONDE__TRY(sonde__op_expect_shape(&call->in[1].shape, &weights, "weights", diag));
    for (int i = 0; i < count; i++) {
        call->out[i].shape = call->in[2 + i].shape;
    }
    call->out[count].shape = weights;
    return SONDE_OK;
}

static sonde_err attention_grad_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                      sonde_diag *diag)
{
    return grad_infer(call, attrs, false, diag);
}

static sonde_err self_attention_grad_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                           sonde_diag *diag)
{
    return grad_infer(call, attrs, true, diag);
}

/* The operands of a gradient. */
typedef struct grad_operands {
    const sonde__operand *dy, *p, *q, *k, *v, *dq, *dk, *dv, *ds;
    heads h;
    double scale;
} grad_operands;

static grad_operands operands_of(const sonde__op_call *call, bool is_packed)
{
    const int step = is_packed ? 0 : 1;
    grad_operands g = {.dy = &call->in[0],
                       .p = &call->in[1],
                       .q = &call->in[2],
                       .k = &call->in[2 + step],
                       .v = &call->in[2 + 2 * step],
                       .dq = &call->out[0],
                       .dk = &call->out[step],
                       .dv = &call->out[2 * step],
                       .ds = &call->out[is_packed ? 1 : 3],
                       .h = heads_of(&call->in[2], call->attrs, is_packed)};

    g.scale = scale_of(call->attrs, &g.h);
    return g;
}

/* dS of one matrix. */
static void grad_of_scores(const grad_operands *g, int64_t number, matrix_at m)
{
    const heads *h = &g->h;

    for (int64_t i = 0; i < h->queries; i++) {
        const int64_t at = (number * h->queries + i) * h->keys;
        double dot = 0.0;

        for (int pass = 0; pass < 2; pass++) {
            for (int64_t j = 0; j < h->keys; j++) {
                double dp = 0.0;

                for (int64_t e = 0; e < h->width; e++) {
                    dp += sonde__op_load(g->dy, place(&h->y, m.batch, m.head, i) + e) *
                          sonde__op_load(g->v, place(&h->v, m.batch, m.head, j) + e);
                }
                dot += pass == 0 ? dp * sonde__op_load(g->p, at + j) : 0.0;
                sonde__op_store(g->ds, at + j, sonde__op_load(g->p, at + j) * (dp - dot));
            }
        }
    }
}

/* out[row, :] = scale * sum over i of weight(row, i) x[i, :] */
static void weighted_rows(const grad_operands *g, const sonde__operand *weight,
                          int64_t number, matrix_at m, bool by_key,
                          const sonde__operand *x, const head_view *of_x,
                          const sonde__operand *out, const head_view *of_out,
                          int64_t width, double scale)
{
    const heads *h = &g->h;
    const int64_t rows = by_key ? h->keys : h->queries;
    const int64_t terms = by_key ? h->queries : h->keys;

    for (int64_t row = 0; row < rows; row++) {
        for (int64_t d = 0; d < width; d++) {
            double sum = 0.0;

            for (int64_t i = 0; i < terms; i++) {
                const int64_t at = (number * h->queries + (by_key ? i : row)) * h->keys +
                                   (by_key ? row : i);

                sum += sonde__op_load(weight, at) *
                       sonde__op_load(x, place(of_x, m.batch, m.head, i) + d);
            }
            sonde__op_store(out, place(of_out, m.batch, m.head, row) + d, sum * scale);
        }
    }
}

static void grad_run(const sonde__op_call *call, int part, int parts, bool is_packed)
{
    const grad_operands g = operands_of(call, is_packed);
    const heads *h = &g.h;
    const int64_t count = h->batches * h->heads;

    for (int64_t n = count * part / parts; n < count * (part + 1) / parts; n++) {
        const matrix_at m = matrix_number(h, n);

        grad_of_scores(&g, n, m);
        weighted_rows(&g, g.p, n, m, true, g.dy, &h->y, g.dv, &h->v, h->width, 1.0);
        weighted_rows(&g, g.ds, n, m, false, g.k, &h->k, g.dq, &h->q, h->depth, g.scale);
        weighted_rows(&g, g.ds, n, m, true, g.q, &h->q, g.dk, &h->k, h->depth, g.scale);
    }
}

static void attention_grad_run(const sonde__op_call *call, int part, int parts)
{
    grad_run(call, part, parts, false);
}

static void self_attention_grad_run(const sonde__op_call *call, int part, int parts)
{
    grad_run(call, part, parts, true);
}

static int attention_grad_parts(const sonde__op_call *call, int max)
{
    return head_parts(call, max, false, 2);
}

static int self_attention_grad_parts(const sonde__op_call *call, int max)
{
    return head_parts(call, max, true, 2);
}

/* dS of one matrix over the shared product, and dS times scale into scratch. */
static void products_of_scores(const grad_operands *g, int64_t number, matrix_at m,
                               float *scaled, char *scratch)
{
    const heads *h = &g->h;
    float *ds = (float *)g->ds->data + number * h->queries * h->keys;
    const float *p = (const float *)g->p->data + number * h->queries * h->keys;
    const sonde__kernel_gemm product = {.m = h->queries,
                                        .n = h->keys,
                                        .k = h->width,
                                        .a = rows_of(g->dy, &h->y, m, false),
                                        .b = rows_of(g->v, &h->v, m, true),
                                        .c = ds,
                                        .c_row = h->keys};

    sonde__kernel_gemm_run(&product, scratch);
    for (int64_t i = 0; i < h->queries; i++) {
        float *row = ds + i * h->keys;

        sonde__kernel_rows()->softmax_grad(row, p + i * h->keys, row, h->keys);
        memcpy(scaled + i * h->keys, row, (size_t)h->keys * sizeof *row);
        sonde__kernel_rows()->scale(scaled + i * h->keys, (float)g->scale, h->keys);
    }
}

static size_t scaled_bytes(const heads *h)
{
    return ((size_t)(h->queries * h->keys) * sizeof(float) + 63) / 64 * 64;
}

static void grad_products(const sonde__op_call *call, int part, int parts, bool is_packed)
{
    const grad_operands g = operands_of(call, is_packed);
    const heads *h = &g.h;
    const int64_t count = h->batches * h->heads;
    char *scratch = (char *)call->scratch +
                    (sonde__kernel_gemm_scratch() + scaled_bytes(h)) * (size_t)part;
    float *scaled = (float *)(void *)(scratch + sonde__kernel_gemm_scratch());

    for (int64_t n = count * part / parts; n < count * (part + 1) / parts; n++) {
        const matrix_at m = matrix_number(h, n);
        const float *p = (const float *)g.p->data + n * h->queries * h->keys;
        const sonde__kernel_gemm products[] = {
            {.m = h->keys,
             .n = h->width,
             .k = h->queries,
             .a = {p, 1, h->keys},
             .b = rows_of(g.dy, &h->y, m, false),
             .c = (float *)g.dv->data + place(&h->v, m.batch, m.head, 0),
             .c_row = h->v.row},
            {.m = h->queries,
             .n = h->depth,
             .k = h->keys,
             .a = {scaled, h->keys, 1},
             .b = rows_of(g.k, &h->k, m, false),
             .c = (float *)g.dq->data + place(&h->q, m.batch, m.head, 0),
             .c_row = h->q.row},
            {.m = h->keys,
             .n = h->depth,
             .k = h->queries,
             .a = {scaled, 1, h->keys},
             .b = rows_of(g.q, &h->q, m, false),
             .c = (float *)g.dk->data + place(&h->k, m.batch, m.head, 0),
             .c_row = h->k.row}};

        products_of_scores(&g, n, m, scaled, scratch);
        for (int i = 0; i < 3; i++) {
            sonde__kernel_gemm_run(&products[i], scratch);
        }
    }
}

static void attention_grad_products(const sonde__op_call *call, int part, int parts)
{
    grad_products(call, part, parts, false);
}

static void self_attention_grad_products(const sonde__op_call *call, int part, int parts)
{
    grad_products(call, part, parts, true);
}

static size_t grad_scratch(const sonde__op_call *call, int parts)
{
    const heads h = heads_of(&call->in[2], call->attrs, call->in_count == 3);

    return (sonde__kernel_gemm_scratch() + scaled_bytes(&h)) * (size_t)parts;
}

FAST_ATTENTION(attention_grad, attention_grad_products, grad_scratch)
FAST_ATTENTION(self_attention_grad, self_attention_grad_products, grad_scratch)

static void gradient(const sonde__op_gradient_context *context,
                     const sonde__op_kind *kind, int count)
{
    sonde__op_value in[5] = {context->grad_out[0], context->out[1]}, first = 0;

    if (context->grad_out[0] == 0) {
        return; /* something reads the weights only */
    }
    for (int i = 0; i < count; i++) {
        in[2 + i] = context->in[i];
    }
    first = sonde__op_emit(context->graph, kind, context->attrs, in, 2 + count);
    for (int i = 0; i < count && first != 0; i++) {
        context->grad_in[i] = context->wanted[i] ? first + (sonde__op_value)i : 0;
    }
    if (first != 0 && context->wanted[count]) {
        context->grad_in[count] = sonde__op_emit_sum_to(
            context, first + (sonde__op_value)count, context->in[count]);
    }
}

static void attention_gradient(const sonde__op_gradient_context *context)
{
    gradient(context, &sonde__op_attention_grad, 3);
}

static void self_attention_gradient(const sonde__op_gradient_context *context)
{
    gradient(context, &sonde__op_self_attention_grad, 1);
}

/* --- rows ----------------------------------------------------------------------------- */

const sonde__op_kind sonde__op_attention = {
    .name = "Attention",
    .in_min = 3,
    .in_max = 4,
    .out_count = 2,
    .out_names = {NULL, "Weights"},
    .infer = attention_infer,
    .gradient = attention_gradient,
    .kernels = attention_kernels,
};

const sonde__op_kind sonde__op_self_attention = {
    .name = "SelfAttention",
    .in_min = 1,
    .in_max = 2,
    .out_count = 2,
    .out_names = {NULL, "Weights"},
    .infer = self_attention_infer,
    .gradient = self_attention_gradient,
    .kernels = self_attention_kernels,
};

const sonde__op_kind sonde__op_attention_grad = {
    .name = "AttentionGrad",
    .in_min = 5,
    .in_max = 5,
    .out_count = 4,
    .out_names = {NULL, "GradKey", "GradValue", "GradScores"},
    .infer = attention_grad_infer,
    .kernels = attention_grad_kernels,
};

const sonde__op_kind sonde__op_self_attention_grad = {
    .name = "SelfAttentionGrad",
    .in_min = 3,
    .in_max = 3,
    .out_count = 2,
    .out_names = {NULL, "GradScores"},
    .infer = self_attention_grad_infer,
    .kernels = self_attention_grad_kernels,
};

/*
 * attention.c - scaled dot-product attention (Vaswani et al. 2017) and its gradient, as
 * torch.nn.functional.scaled_dot_product_attention.
 *
 *   S = scale Q K^T + mask,  P = softmax(S) along keys,  Y = P V
 *   dV = P^T dY,  dP = dY V^T,  dS = P (dP - sum of dP P),  dQ = scale dS K,
 *   dK = scale dS^T Q,  dmask = dS
 *
 * Attention has q (..., T, D), k (..., S, D), v (..., S, E) and makes y (..., T, E). With
 * attrs.attention.heads heads, q is (N, T, H D), k (N, S, H D), v (N, S, H E), y (N, T, H E), and
 * head h has columns h D on. SelfAttention reads all three from one value (N, T, 3 H D).
 * The second output holds P, (..., T, S) or (N, H, T, S): it is there to be observed, and
 * the gradient reads it.
 *
 * A mask broadcasts to P: a bool says which keys take part, a float is added. A key that
 * does not take part has weight 0, whatever its score; a query without keys has weights 0,
 * as PyTorch has it. The causal mask leaves query t the keys 0 ... t.
 *
 * Dropout (number[0] its probability) multiplies P by factors F before V: Y = (F P) V,
 * dV = (F P)^T dY, dP = F (dY V^T). The second output is P without them.
 *
 * With half, products round their operands, P among them, and Y; P and the gradient of the
 * scores stay float32.
 *
 * attrs: attention.
 */
#include "base/fail.h"
#include "nn/kernels/rows.h"
#include "nn/ops/attention_heads.h"
#include "nn/ops/common.h"

#include <math.h>
#include <string.h>

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

    SONDE__TRY(sonde__op_attention_shapes(call->in, attrs, is_packed, &call->out[0].shape,
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
static int attention_parts(const sonde__op_call *call, int max)
{
    return sonde__op_head_parts(call, max, false, 0);
}

static int self_attention_parts(const sonde__op_call *call, int max)
{
    return sonde__op_head_parts(call, max, true, 0);
}
/* --- forward -------------------------------------------------------------------------- */

/* Whether key j takes part for the query of weight `at`; adds a float mask to *score. */
static bool takes_part(const sonde__op_call *call, const sonde__operand *mask, int64_t i,
                       int64_t j, int64_t at, double *score)
{
    if (call->attrs->attention.causal && j > i) {
        return false;
    }
    if (mask == NULL) {
        return true;
    }
    const int64_t place_of_mask =
        sonde__op_broadcast_at(&mask->shape, &call->out[1].shape, at);
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
static void score_row(const sonde__op_call *call, const sonde__op_heads *h,
                      sonde__op_head_at m, int64_t i, int64_t at, bool is_packed)
{
    const sonde__operand *q = &call->in[0], *k = &call->in[is_packed ? 0 : 1];

    for (int64_t j = 0; j < h->keys; j++) {
        double sum = 0.0;

        for (int64_t d = 0; d < h->depth; d++) {
            sum +=
                sonde__op_load(q, sonde__op_head_place(&h->q, m.batch, m.head, i) + d) *
                sonde__op_load(k, sonde__op_head_place(&h->k, m.batch, m.head, j) + d);
        }
        sum *= sonde__op_attention_scale(call->attrs, h);
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
    const sonde__op_heads h = sonde__op_heads_of(call->in, call->attrs, is_packed);
    const sonde__operand *v = &call->in[is_packed ? 0 : 2];
    const int64_t rows = h.batches * h.heads * h.queries;

    for (int64_t r = rows * part / parts; r < rows * (part + 1) / parts; r++) {
        const sonde__op_head_at m = sonde__op_head_number(&h, r / h.queries);
        const int64_t i = r % h.queries, at = r * h.keys;

        score_row(call, &h, m, i, at, is_packed);
        softmax_row(&call->out[1], at, h.keys);
        for (int64_t e = 0; e < h.width; e++) {
            double sum = 0.0;

            for (int64_t j = 0; j < h.keys; j++) {
                sum +=
                    sonde__op_load(&call->out[1], at + j) *
                    sonde__op_dropout_factor(call, at + j) *
                    sonde__op_load(v, sonde__op_head_place(&h.v, m.batch, m.head, j) + e);
            }
            sonde__op_store(&call->out[0],
                            sonde__op_head_place(&h.y, m.batch, m.head, i) + e, sum);
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

/* Of a part: that of a product, and P with dropout. */
static size_t part_scratch(const sonde__op_call *call, bool is_packed)
{
    const sonde__op_heads h = sonde__op_heads_of(call->in, call->attrs, is_packed);

    return sonde__op_head_scratch(call, &h) +
           (call->attrs->p > 0.0F ? sonde__op_head_bytes(&h) : 0);
}

static size_t product_scratch(const sonde__op_call *call, int parts)
{
    return part_scratch(call, false) * (size_t)parts;
}

static size_t self_product_scratch(const sonde__op_call *call, int parts)
{
    return part_scratch(call, true) * (size_t)parts;
}

/* Masks and normalizes row i of matrix number `number` of P. */
static void finish_row(const sonde__op_call *call, const sonde__op_heads *h,
                       int64_t number, int64_t i, const sonde__operand *mask)
{
    const bool causal = call->attrs->attention.causal;
    const int64_t at = (number * h->queries + i) * h->keys;
    const int64_t keys = causal && i + 1 < h->keys ? i + 1 : h->keys;
    float *row = (float *)call->out[1].data + at;

    sonde__kernel_rows()->scale(row, (float)sonde__op_attention_scale(call->attrs, h),
                                keys);
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
    const sonde__op_heads h = sonde__op_heads_of(call->in, call->attrs, is_packed);
    const sonde__operand *k = &call->in[is_packed ? 0 : 1],
                         *v = &call->in[is_packed ? 0 : 2];
    const int64_t count = h.batches * h.heads, size = h.queries * h.keys;
    char *scratch = (char *)call->scratch + part_scratch(call, is_packed) * (size_t)part;
    float *dropped = (float *)(void *)(scratch + sonde__op_head_scratch(call, &h));

    for (int64_t n = count * part / parts; n < count * (part + 1) / parts; n++) {
        const sonde__op_head_at m = sonde__op_head_number(&h, n);
        float *weights = (float *)call->out[1].data + n * size;
        const sonde__kernel_half_gemm scores = {
            .m = h.queries,
            .n = h.keys,
            .k = h.depth,
            .a = sonde__op_head_rows(&call->in[0], &h.q, m, false),
            .b = sonde__op_head_rows(k, &h.k, m, true),
            .c = weights,
            .c_dtype = SONDE_F32,
            .c_row = h.keys};
        const sonde__kernel_half_gemm values = {
            .m = h.queries,
            .n = h.width,
            .k = h.keys,
            .a = {sonde__op_drops(call) ? dropped : weights, SONDE_F32, h.keys, 1},
            .b = sonde__op_head_rows(v, &h.v, m, false),
            .c = sonde__op_head_start(&call->out[0], &h.y, m),
            .c_dtype = call->out[0].shape.dtype,
            .c_row = h.y.row};

        sonde__op_head_product(call, scores, scratch);
        for (int64_t i = 0; i < h.queries; i++) {
            finish_row(call, &h, n, i, mask_of(call, is_packed));
        }
        if (sonde__op_drops(call)) {
            sonde__op_dropout_row(call, n * size, weights, dropped, size);
        }
        sonde__op_head_product(call, values, scratch);
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

#define PRODUCTS(name, op, ...)                                                          \
    SONDE__KERNEL(name, op##_products, .parts = op##_parts, .scratch = __VA_ARGS__)

/* --- gradient ------------------------------------------------------------------------- */

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

SONDE__OP(attention, "Attention", attention, 3, 4, 2, .out_names = {NULL, "Weights"},
          .infer = attention_infer, .gradient = attention_gradient,
          SONDE__REFERENCE(attention_run),
          .own = PRODUCTS("gemm", attention, product_scratch, .accepts = is_f32),
          .halves = SONDE__HALVES_MADE,
          .half_kernels = PRODUCTS("half", attention, product_scratch));

SONDE__OP(self_attention, "SelfAttention", attention, 1, 2, 2,
          .out_names = {NULL, "Weights"}, .infer = self_attention_infer,
          .gradient = self_attention_gradient, SONDE__REFERENCE(self_attention_run),
          .own = PRODUCTS("gemm", self_attention, self_product_scratch,
                          .accepts = is_f32),
          .halves = SONDE__HALVES_MADE,
          .half_kernels = PRODUCTS("half", self_attention, self_product_scratch));

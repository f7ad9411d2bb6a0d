/*
 * attention_grad.c - the gradients of attention.c, whose head has the equations.
 *
 * Operands: dy, P, then what the forward op reads. The last output is dS.
 */
#include "nn/kernels/rows.h"
#include "nn/ops/attention_heads.h"
#include "nn/ops/common.h"

#include <string.h>

static bool is_f32(const sonde__op_call *call)
{
    return call->in[0].shape.dtype == SONDE_F32;
}

/* --- reference ------------------------------------------------------------------------ */

static sonde_err grad_infer(sonde__op_call *call, const sonde__op_attrs *attrs,
                            bool is_packed, sonde_diag *diag)
{
    const int count = is_packed ? 1 : 3;
    sonde__op_shape y, weights;

    SONDE__TRY(
        sonde__op_attention_shapes(&call->in[2], attrs, is_packed, &y, &weights, diag));
    y.dtype = attrs->half != 0 ? call->in[0].shape.dtype : y.dtype;
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
    const sonde__op_call *call;
    const sonde__operand *dy, *p, *q, *k, *v, *dq, *dk, *dv, *ds;
    sonde__op_heads h;
    double scale;
} grad_operands;

static grad_operands operands_of(const sonde__op_call *call, bool is_packed)
{
    const int step = is_packed ? 0 : 1;
    grad_operands g = {.call = call,
                       .dy = &call->in[0],
                       .p = &call->in[1],
                       .q = &call->in[2],
                       .k = &call->in[2 + step],
                       .v = &call->in[2 + 2 * step],
                       .dq = &call->out[0],
                       .dk = &call->out[step],
                       .dv = &call->out[2 * step],
                       .ds = &call->out[is_packed ? 1 : 3],
                       .h = sonde__op_heads_of(&call->in[2], call->attrs, is_packed)};

    g.scale = sonde__op_attention_scale(call->attrs, &g.h);
    return g;
}

/* dS of one matrix. */
static void grad_of_scores(const grad_operands *g, int64_t number, sonde__op_head_at m)
{
    const sonde__op_heads *h = &g->h;

    for (int64_t i = 0; i < h->queries; i++) {
        const int64_t at = (number * h->queries + i) * h->keys;
        double dot = 0.0;

        for (int pass = 0; pass < 2; pass++) {
            for (int64_t j = 0; j < h->keys; j++) {
                double dp = 0.0;

                for (int64_t e = 0; e < h->width; e++) {
                    dp +=
                        sonde__op_load(
                            g->dy, sonde__op_head_place(&h->y, m.batch, m.head, i) + e) *
                        sonde__op_load(
                            g->v, sonde__op_head_place(&h->v, m.batch, m.head, j) + e);
                }
                dp *= sonde__op_dropout_factor(g->call, at + j);
                dot += pass == 0 ? dp * sonde__op_load(g->p, at + j) : 0.0;
                sonde__op_store(g->ds, at + j, sonde__op_load(g->p, at + j) * (dp - dot));
            }
        }
    }
}

/* out[row, :] = scale * sum over i of weight(row, i) x[i, :]; P as a weight is dropped
 * from. */
static void weighted_rows(const grad_operands *g, const sonde__operand *weight,
                          int64_t number, sonde__op_head_at m, bool by_key,
                          const sonde__operand *x, const sonde__op_head_view *of_x,
                          const sonde__operand *out, const sonde__op_head_view *of_out,
                          int64_t width, double scale)
{
    const sonde__op_heads *h = &g->h;
    const int64_t rows = by_key ? h->keys : h->queries;
    const int64_t terms = by_key ? h->queries : h->keys;

    for (int64_t row = 0; row < rows; row++) {
        for (int64_t d = 0; d < width; d++) {
            double sum = 0.0;

            for (int64_t i = 0; i < terms; i++) {
                const int64_t at = (number * h->queries + (by_key ? i : row)) * h->keys +
                                   (by_key ? row : i);

                sum +=
                    sonde__op_load(weight, at) *
                    (weight == g->p ? sonde__op_dropout_factor(g->call, at) : 1.0) *
                    sonde__op_load(x, sonde__op_head_place(of_x, m.batch, m.head, i) + d);
            }
            sonde__op_store(out, sonde__op_head_place(of_out, m.batch, m.head, row) + d,
                            sum * scale);
        }
    }
}

static void grad_run(const sonde__op_call *call, int part, int parts, bool is_packed)
{
    const grad_operands g = operands_of(call, is_packed);
    const sonde__op_heads *h = &g.h;
    const int64_t count = h->batches * h->heads;

    for (int64_t n = count * part / parts; n < count * (part + 1) / parts; n++) {
        const sonde__op_head_at m = sonde__op_head_number(h, n);

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
    return sonde__op_head_parts(call, max, false, 2);
}

static int self_attention_grad_parts(const sonde__op_call *call, int max)
{
    return sonde__op_head_parts(call, max, true, 2);
}

/* dS of one matrix over the shared product, and dS times scale into scratch. */
static void products_of_scores(const grad_operands *g, int64_t number,
                               sonde__op_head_at m, float *scaled, char *scratch)
{
    const sonde__op_heads *h = &g->h;
    float *ds = (float *)g->ds->data + number * h->queries * h->keys;
    const float *p = (const float *)g->p->data + number * h->queries * h->keys;
    const sonde__kernel_half_gemm product = {
        .m = h->queries,
        .n = h->keys,
        .k = h->width,
        .a = sonde__op_head_rows(g->dy, &h->y, m, false),
        .b = sonde__op_head_rows(g->v, &h->v, m, true),
        .c = ds,
        .c_dtype = SONDE_F32,
        .c_row = h->keys};

    sonde__op_head_product(g->call, product, scratch);
    for (int64_t i = 0; i < h->queries; i++) {
        float *row = ds + i * h->keys;

        if (sonde__op_drops(g->call)) {
            sonde__op_dropout_row(g->call, (number * h->queries + i) * h->keys, row, row,
                                  h->keys);
        }
        sonde__kernel_rows()->softmax_grad(row, p + i * h->keys, row, h->keys);
        memcpy(scaled + i * h->keys, row, (size_t)h->keys * sizeof *row);
        sonde__kernel_rows()->scale(scaled + i * h->keys, (float)g->scale, h->keys);
    }
}

/* Of a part: that of a product, dS times scale, and P with dropout. */
static size_t part_scratch(const sonde__op_call *call, const sonde__op_heads *h)
{
    return sonde__op_head_scratch(call, h) +
           sonde__op_head_bytes(h) * (call->attrs->p > 0.0F ? 2U : 1U);
}

static void grad_products(const sonde__op_call *call, int part, int parts, bool is_packed)
{
    const grad_operands g = operands_of(call, is_packed);
    const sonde__op_heads *h = &g.h;
    const int64_t count = h->batches * h->heads;
    const int64_t size = h->queries * h->keys;
    const bool drops = sonde__op_drops(call);
    char *scratch = (char *)call->scratch + part_scratch(call, h) * (size_t)part;
    float *scaled = (float *)(void *)(scratch + sonde__op_head_scratch(call, h));
    float *dropped = (float *)(void *)(scratch + sonde__op_head_scratch(call, h) +
                                       sonde__op_head_bytes(h));

    for (int64_t n = count * part / parts; n < count * (part + 1) / parts; n++) {
        const sonde__op_head_at m = sonde__op_head_number(h, n);
        const float *p = (const float *)g.p->data + n * size;
        const sonde__kernel_half_gemm products[] = {
            {.m = h->keys,
             .n = h->width,
             .k = h->queries,
             .a = {drops ? dropped : p, SONDE_F32, 1, h->keys},
             .b = sonde__op_head_rows(g.dy, &h->y, m, false),
             .c = sonde__op_head_start(g.dv, &h->v, m),
             .c_dtype = g.dv->shape.dtype,
             .c_row = h->v.row},
            {.m = h->queries,
             .n = h->depth,
             .k = h->keys,
             .a = {scaled, SONDE_F32, h->keys, 1},
             .b = sonde__op_head_rows(g.k, &h->k, m, false),
             .c = sonde__op_head_start(g.dq, &h->q, m),
             .c_dtype = g.dq->shape.dtype,
             .c_row = h->q.row},
            {.m = h->keys,
             .n = h->depth,
             .k = h->queries,
             .a = {scaled, SONDE_F32, 1, h->keys},
             .b = sonde__op_head_rows(g.q, &h->q, m, false),
             .c = sonde__op_head_start(g.dk, &h->k, m),
             .c_dtype = g.dk->shape.dtype,
             .c_row = h->k.row}};

        if (drops) {
            sonde__op_dropout_row(call, n * size, p, dropped, size);
        }
        products_of_scores(&g, n, m, scaled, scratch);
        for (int i = 0; i < 3; i++) {
            sonde__op_head_product(call, products[i], scratch);
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
    const sonde__op_heads h =
        sonde__op_heads_of(&call->in[2], call->attrs, call->in_count == 3);

    return part_scratch(call, &h) * (size_t)parts;
}

#define PRODUCTS(name, op, ...)                                                          \
    SONDE__KERNEL(name, op##_products, .parts = op##_parts, .scratch = __VA_ARGS__)

/* --- rows ----------------------------------------------------------------------------- */

SONDE__OP(attention_grad, "AttentionGrad", attention, 5, 5, 4,
          .out_names = {NULL, "GradKey", "GradValue", "GradScores"},
          .infer = attention_grad_infer, SONDE__REFERENCE(attention_grad_run),
          .own = PRODUCTS("gemm", attention_grad, grad_scratch, .accepts = is_f32),
          .halves = SONDE__HALVES_MADE,
          .half_kernels = PRODUCTS("half", attention_grad, grad_scratch));

SONDE__OP(self_attention_grad, "SelfAttentionGrad", attention, 3, 3, 2,
          .out_names = {NULL, "GradScores"}, .infer = self_attention_grad_infer,
          SONDE__REFERENCE(self_attention_grad_run),
          .own = PRODUCTS("gemm", self_attention_grad, grad_scratch, .accepts = is_f32),
          .halves = SONDE__HALVES_MADE,
          .half_kernels = PRODUCTS("half", self_attention_grad, grad_scratch));

/*
 * embedding_bag.c - the sum, mean or largest of the rows of a table that the ids of a bag
 * name, and the gradient of the table; as torch.nn.functional.embedding_bag of ids (N, L).
 *
 *   EmbeddingBag      y[n, :] = mean, sum or maximum over l of w[x[n, l], :]
 *   EmbeddingBagGrad  dw[v, :] = sum over (n, l) with x[n, l] = v, in order, of dy[n, :],
 *                     by the ids of the bag for a mean; of a maximum only where the row
 *                     has it, the first of equal ones
 *
 * The id padding_idx takes no part, and its row gets no gradient; a bag of nothing else is
 * 0. A session refuses ids out of range; one that a kernel meets makes its bag NaN, and
 * gets no gradient. Only rows that are named are read, and added to.
 *
 * A part has some of the columns.
 *
 * attrs: embedding.
 */
#include "base/fail.h"
#include "nn/ops/common.h"
#include "nn/ops/layer_row.h"

#include <math.h>

enum { MEAN, SUM, LARGEST };

/* --- bags ----------------------------------------------------------------------------- */

static bool takes_part(const sonde__op_attrs *attrs, int64_t id)
{
    return attrs->embedding.padding_idx < 0 || id != attrs->embedding.padding_idx;
}

typedef struct bag {
    const int64_t *ids;
    int64_t length, rows; /* of the bag; of the table */
    int64_t count;        /* ids that take part */
    bool known;           /* all of them are rows */
} bag;

static bag bag_number(const sonde__operand *x, int64_t rows, const sonde__op_attrs *attrs,
                      int64_t n)
{
    const int64_t length = x->shape.dim[1];
    bag b = {.ids = (const int64_t *)x->data + n * length,
             .length = length,
             .rows = rows,
             .known = true};

    for (int64_t l = 0; l < length; l++) {
        const bool part = takes_part(attrs, b.ids[l]);

        b.count += part ? 1 : 0;
        b.known = b.known && (!part || (b.ids[l] >= 0 && b.ids[l] < rows));
    }
    return b;
}

/* Which id of a bag has the largest element of column k; -1: none takes part. */
static int64_t largest(const bag *b, const sonde__operand *w,
                       const sonde__op_attrs *attrs, int64_t k)
{
    const int64_t size = w->shape.dim[1];
    int64_t best = -1;

    for (int64_t l = 0; l < b->length; l++) {
        const int64_t id = b->ids[l];

        if (!takes_part(attrs, id) || id < 0 || id >= b->rows) {
            continue;
        }
        if (best < 0 ||
            sonde__op_load(w, id * size + k) >
                sonde__op_load(w, b->ids[best] * size + k) ||
            (isnan(sonde__op_load(w, id * size + k)) &&
             !isnan(sonde__op_load(w, b->ids[best] * size + k)))) {
            best = l;
        }
    }
    return best;
}

/* --- forward -------------------------------------------------------------------------- */

static sonde_err embedding_bag_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                     sonde_diag *diag)
{
    const sonde__op_shape *x = &call->in[0].shape, *w = &call->in[1].shape;

    (void)attrs;
    SONDE__TRY(sonde__op_expect_dtype(x, SONDE_I64, "ids", diag));
    SONDE__TRY(sonde__op_expect_size(x, "ids", diag));
    if (x->rank != 2) {
        return sonde__fail(diag, SONDE_ESHAPE, NULL, "(N, L)", "ids of %d dimensions",
                           x->rank);
    }
    SONDE__TRY(sonde__op_expect_rank(w, 2, "weight", "(V, D)", diag));
    call->out[0].shape =
        (sonde__op_shape){.dtype = w->dtype, .rank = 2, .dim = {x->dim[0], w->dim[1]}};
    return sonde__op_expect_size(&call->out[0].shape, "output", diag);
}

static double element(const bag *b, const sonde__operand *w, const sonde__op_attrs *attrs,
                      int64_t k)
{
    const int64_t size = w->shape.dim[1];
    double sum = 0.0;

    if (!b->known || b->count == 0) {
        return b->known ? 0.0 : (double)NAN;
    }
    if (attrs->embedding.mode == LARGEST) {
        return sonde__op_load(w, b->ids[largest(b, w, attrs, k)] * size + k);
    }
    for (int64_t l = 0; l < b->length; l++) {
        sum +=
            takes_part(attrs, b->ids[l]) ? sonde__op_load(w, b->ids[l] * size + k) : 0.0;
    }
    return attrs->embedding.mode == MEAN ? sum / (double)b->count : sum;
}

static void embedding_bag_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__operand *w = &call->in[1];
    const int64_t size = w->shape.dim[1];

    for (int64_t n = 0; n < call->in[0].shape.dim[0]; n++) {
        const bag b = bag_number(&call->in[0], w->shape.dim[0], call->attrs, n);

        for (int64_t k = size * part / parts; k < size * (part + 1) / parts; k++) {
            sonde__op_store(&call->out[0], n * size + k, element(&b, w, call->attrs, k));
        }
    }
}

static int column_parts(const sonde__op_call *call, int max)
{
    const double worth = (double)sonde__op_shape_count(&call->in[0].shape) *
                         (double)call->out[0].shape.dim[1] / 32768.0;

    return worth < 1.0 ? 1 : worth > (double)max ? max : (int)worth;
}

static bool embedding_bag_ids(const sonde__op_call *call, int operand, sonde__op_ids *ids)
{
    *ids = (sonde__op_ids){.what = "token id", .count = call->in[1].shape.dim[0]};
    return operand == 0;
}

SONDE__OP(embedding_bag, "EmbeddingBag", embedding, 2, 2, 1, .infer = embedding_bag_infer,
          .backward = {&sonde__op_embedding_bag_grad, "d01", 1, true},
          SONDE__REFERENCE(embedding_bag_run, .parts = column_parts),
          .ids = embedding_bag_ids);

/* --- gradient of the table ------------------------------------------------------------ */

/* dy, ids, w */
static sonde_err embedding_bag_grad_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                          sonde_diag *diag)
{
    sonde__op_call forward = {.in = {call->in[1], call->in[2]}};

    SONDE__TRY(embedding_bag_infer(&forward, attrs, diag));
    SONDE__TRY(sonde__op_expect_shape(&call->in[0].shape, &forward.out[0].shape,
                                      "output gradient", diag));
    call->out[0].shape = call->in[2].shape;
    return SONDE_OK;
}

static void add_to(const sonde__operand *dw, int64_t at, double value)
{
    sonde__op_store(dw, at, sonde__op_load(dw, at) + value);
}

/* Adds column k of dy of a bag. */
static void add_column(const sonde__op_call *call, const bag *b, int64_t n, int64_t k)
{
    const sonde__operand *dw = &call->out[0];
    const int64_t size = dw->shape.dim[1];
    const double dy = sonde__op_load(&call->in[0], n * size + k);

    if (call->attrs->embedding.mode == LARGEST) {
        const int64_t best = largest(b, &call->in[2], call->attrs, k);

        if (best >= 0) {
            add_to(dw, b->ids[best] * size + k, dy);
        }
        return;
    }
    for (int64_t l = 0; l < b->length; l++) {
        const int64_t id = b->ids[l];

        if (takes_part(call->attrs, id) && id >= 0 && id < b->rows) {
            add_to(dw, id * size + k,
                   call->attrs->embedding.mode == MEAN ? dy / (double)b->count : dy);
        }
    }
}

static void embedding_bag_grad_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__operand *dw = &call->out[0];
    const int64_t rows = dw->shape.dim[0], size = dw->shape.dim[1];
    const int64_t first = size * part / parts, end = size * (part + 1) / parts;

    for (int64_t v = 0; v < rows; v++) {
        for (int64_t k = first; k < end; k++) {
            sonde__op_store(dw, v * size + k, 0.0);
        }
    }
    for (int64_t n = 0; n < call->in[1].shape.dim[0]; n++) {
        const bag b = bag_number(&call->in[1], rows, call->attrs, n);

        for (int64_t k = first; k < end; k++) {
            add_column(call, &b, n, k);
        }
    }
}

static int grad_parts(const sonde__op_call *call, int max)
{
    const double worth = (double)sonde__op_shape_count(&call->in[1].shape) *
                         (double)call->out[0].shape.dim[1] / 32768.0;

    return worth < 1.0 ? 1 : worth > (double)max ? max : (int)worth;
}

SONDE__OP(embedding_bag_grad, "EmbeddingBagGrad", embedding, 3, 3, 1,
          .infer = embedding_bag_grad_infer,
          SONDE__REFERENCE(embedding_bag_grad_run, .parts = grad_parts));

/* --- the layer ------------------------------------------------------------------------ */

/* As PyTorch: normal, the row of padding 0. */
static int embedding_bag_params(const sonde__op_shape *x, const sonde__op_attrs *attrs,
                                sonde__op_param params[SONDE__MAX_PARAMS])
{
    const bool padded = attrs->embedding.padding_idx >= 0 &&
                        attrs->embedding.padding_idx < attrs->embedding.num_embeddings;

    (void)x;
    params[0] = (sonde__op_param){
        .suffix = "weight",
        .role = SONDE_ROLE_WEIGHT,
        .rank = 2,
        .dim = {attrs->embedding.num_embeddings, attrs->embedding.width},
        .spread = 1.0F,
        .blank = padded ? attrs->embedding.width : 0,
        .blank_first =
            padded ? attrs->embedding.padding_idx * attrs->embedding.width : 0};
    return 1;
}

SONDE__LAYER(embedding_bag, embedding_bag, 1,
             "the mean, sum or maximum of the rows that the ids (N, L) of a bag name",
             .fields = {SONDE__FIELD("num_embeddings", SONDE__FIELD_WHOLE,
                                     embedding.num_embeddings, (double)NAN, 1, 1e9),
                        SONDE__FIELD("embedding_dim", SONDE__FIELD_WHOLE, embedding.width,
                                     (double)NAN, 1, 1e6),
                        SONDE__FIELD_CHOICE("mode", embedding.mode, "mean", "sum", "max"),
                        {.key = "padding_idx",
                         .kind = SONDE__FIELD_WHOLE,
                         .offset = offsetof(sonde__op_attrs, embedding.padding_idx),
                         .fallback = -1.0,
                         .least = 0,
                         .most = 1e7,
                         .fallback_text = "none"}},
             .params = embedding_bag_params);

/*
 * embedding.c - rows of a table by number, and the gradient of the table; as
 * torch.nn.functional.embedding.
 *
 *   Embedding      y[i, :] = w[x[i], :]
 *   EmbeddingGrad  dw[v, :] = sum over i with x[i] = v of dy[i, :], in order of i
 *
 * x is int64 of any shape, w (V, D), y x's shape and D. A session refuses ids out of
 * range before it runs; a kernel that meets one makes its row NaN, and leaves it out of
 * the gradient. The row padding_idx begins at zero and gets no gradient.
 *
 * attrs: embedding.
 */
#include "base/fail.h"
#include "nn/ops/common.h"
#include "nn/ops/layer_row.h"

#include <math.h>
#include <string.h>

/* --- forward -------------------------------------------------------------------------- */

static sonde_err embedding_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                 sonde_diag *diag)
{
    const sonde__op_shape *x = &call->in[0].shape, *w = &call->in[1].shape;
    sonde__op_shape y = *x;

    (void)attrs;
    SONDE__TRY(sonde__op_expect_dtype(x, SONDE_I64, "ids", diag));
    SONDE__TRY(sonde__op_expect_size(x, "ids", diag));
    SONDE__TRY(sonde__op_expect_rank(w, 2, "weight", "(V, D)", diag));
    if (x->rank >= SONDE_MAX_DIMS) {
        return sonde__fail(diag, SONDE_ESHAPE, NULL, "at most 7 dimensions",
                           "ids of %d dimensions", x->rank);
    }
    y.dtype = w->dtype;
    y.dim[y.rank++] = w->dim[1];
    SONDE__TRY(sonde__op_expect_size(&y, "output", diag));
    call->out[0].shape = y;
    return SONDE_OK;
}

static void embedding_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t *x = call->in[0].data;
    const int64_t count = sonde__op_shape_count(&call->in[0].shape);
    const int64_t rows = call->in[1].shape.dim[0], size = call->in[1].shape.dim[1];

    (void)part, (void)parts;
    for (int64_t i = 0; i < count; i++) {
        for (int64_t k = 0; k < size; k++) {
            const bool known = x[i] >= 0 && x[i] < rows;

            sonde__op_store(&call->out[0], i * size + k,
                            known ? sonde__op_load(&call->in[1], x[i] * size + k)
                                  : (double)NAN);
        }
    }
}

static bool is_f32(const sonde__op_call *call)
{
    return call->out[0].shape.dtype == SONDE_F32;
}

static void copy_rows(const sonde__op_call *call, int part, int parts)
{
    const int64_t *x = call->in[0].data;
    const int64_t count = sonde__op_shape_count(&call->in[0].shape);
    const int64_t rows = call->in[1].shape.dim[0], size = call->in[1].shape.dim[1];
    const float *w = call->in[1].data;
    float *y = call->out[0].data;

    (void)part, (void)parts;
    for (int64_t i = 0; i < count; i++) {
        if (x[i] >= 0 && x[i] < rows) {
            memcpy(y + i * size, w + x[i] * size, (size_t)size * sizeof *y);
            continue;
        }
        for (int64_t k = 0; k < size; k++) {
            y[i * size + k] = NAN;
        }
    }
}

static const sonde__op_kernel *const *fast_copies(void)
{
    static const sonde__op_kernel rows = {
        .name = "rows", .accepts = is_f32, .run = copy_rows};
    static const sonde__op_kernel *const kernels[] = {&rows, NULL};

    return kernels;
}

static bool embedding_ids(const sonde__op_call *call, int operand, sonde__op_ids *ids)
{
    *ids = (sonde__op_ids){.what = "token id", .count = call->in[1].shape.dim[0]};
    return operand == 0;
}

SONDE__OP(embedding, "Embedding", embedding, 2, 2, 1, .infer = embedding_infer,
          .backward = {&sonde__op_embedding_grad, "d0", 1, true},
          SONDE__REFERENCE(embedding_run), .fast = fast_copies, .ids = embedding_ids);

/* --- gradient of the table ------------------------------------------------------------ */

static sonde_err embedding_grad_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                      sonde_diag *diag)
{
    const sonde__op_shape *x = &call->in[1].shape;
    sonde__op_shape dy = *x, dw;

    SONDE__TRY(sonde__op_expect_dtype(x, SONDE_I64, "ids", diag));
    SONDE__TRY(sonde__op_expect_float(&call->in[0].shape, "output gradient", diag));
    SONDE__TRY(sonde__op_expect_dims(attrs, 2, call->in[0].shape.dtype, "weight gradient",
                                     &dw, diag));
    if (x->rank >= SONDE_MAX_DIMS) {
        return sonde__fail(diag, SONDE_ESHAPE, NULL, "at most 7 dimensions",
                           "ids of %d dimensions", x->rank);
    }
    dy.dtype = dw.dtype;
    dy.dim[dy.rank++] = dw.dim[1];
    SONDE__TRY(sonde__op_expect_shape(&call->in[0].shape, &dy, "output gradient", diag));
    call->out[0].shape = dw;
    return SONDE_OK;
}

/* Whether an id's row gets a gradient. */
static bool counts(const sonde__op_call *call, int64_t id)
{
    return id >= 0 && id < call->out[0].shape.dim[0] &&
           !(call->attrs->embedding.padded && id == call->attrs->embedding.padding_idx);
}

static void embedding_grad_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t *x = call->in[1].data;
    const int64_t count = sonde__op_shape_count(&call->in[1].shape);
    const int64_t rows = call->out[0].shape.dim[0], size = call->out[0].shape.dim[1];

    (void)part, (void)parts;
    for (int64_t v = 0; v < rows; v++) {
        for (int64_t k = 0; k < size; k++) {
            double sum = 0.0;

            for (int64_t i = 0; i < count; i++) {
                sum += x[i] == v && counts(call, v)
                           ? sonde__op_load(&call->in[0], i * size + k)
                           : 0.0;
            }
            sonde__op_store(&call->out[0], v * size + k, sum);
        }
    }
}

/* A part has some of the columns, and adds in order of the ids. */
static void add_rows(const sonde__op_call *call, int part, int parts)
{
    const int64_t *x = call->in[1].data;
    const int64_t count = sonde__op_shape_count(&call->in[1].shape);
    const int64_t rows = call->out[0].shape.dim[0], size = call->out[0].shape.dim[1];
    const int64_t first = size * part / parts, end = size * (part + 1) / parts;
    const float *dy = call->in[0].data;
    float *dw = call->out[0].data;

    for (int64_t v = 0; v < rows; v++) {
        for (int64_t k = first; k < end; k++) {
            dw[v * size + k] = 0.0F;
        }
    }
    for (int64_t i = 0; i < count; i++) {
        if (!counts(call, x[i])) {
            continue;
        }
        for (int64_t k = first; k < end; k++) {
            dw[x[i] * size + k] += dy[i * size + k];
        }
    }
}

static int column_parts(const sonde__op_call *call, int max)
{
    const int64_t parts = sonde__op_shape_count(&call->in[0].shape) / 32768;

    return parts < 1 ? 1 : parts > max ? max : (int)parts;
}

static const sonde__op_kernel *const *fast_sums(void)
{
    static const sonde__op_kernel rows = {
        .name = "rows", .accepts = is_f32, .parts = column_parts, .run = add_rows};
    static const sonde__op_kernel *const kernels[] = {&rows, NULL};

    return kernels;
}

SONDE__OP(embedding_grad, "EmbeddingGrad", embedding, 2, 2, 1,
          .infer = embedding_grad_infer, SONDE__REFERENCE(embedding_grad_run),
          .fast = fast_sums);

/* --- the layer ------------------------------------------------------------------------ */

/* Whether padding_idx is a row of the table. */
static bool has_padding(const sonde__op_attrs *attrs)
{
    const int64_t row = attrs->embedding.padding_idx;

    return row >= 0 && row < attrs->embedding.num_embeddings;
}

static int embedding_params(const sonde__op_shape *x, const sonde__op_attrs *attrs,
                            sonde__op_param params[SONDE__MAX_PARAMS])
{
    (void)x;
    params[0] = (sonde__op_param){
        .suffix = "weight",
        .role = SONDE_ROLE_WEIGHT,
        .rank = 2,
        .dim = {attrs->embedding.num_embeddings, attrs->embedding.width},
        .spread = attrs->embedding.std,
        .blank = has_padding(attrs) ? attrs->embedding.width : 0,
        .blank_first = has_padding(attrs)
                           ? attrs->embedding.padding_idx * attrs->embedding.width
                           : 0};
    return 1;
}

static sonde__op_value embedding_build(const sonde__op_builder *builder,
                                       sonde__op_attrs *attrs, const sonde__op_value *in)
{
    const int64_t padding = attrs->embedding.padding_idx;

    if (padding >= 0 && !has_padding(attrs)) {
        (void)sonde__fail(builder->diag, SONDE_EINVAL, NULL, "a row of the table",
                          "padding_idx is %lld", (long long)padding);
        return 0;
    }
    attrs->embedding.padded = padding >= 0;
    return builder->emit(builder, &sonde__op_embedding, attrs, in, 2);
}

SONDE__LAYER(embedding, embedding, 1,
             "row x of the table, for token ids x (int64); initial values are normal, of "
             "spread std",
             .fields = {SONDE__FIELD("num_embeddings", SONDE__FIELD_WHOLE,
                                     embedding.num_embeddings, (double)NAN, 1, 1e9),
                        SONDE__FIELD("embedding_dim", SONDE__FIELD_WHOLE, embedding.width,
                                     (double)NAN, 1, 1e6),
                        {.key = "padding_idx",
                         .kind = SONDE__FIELD_WHOLE,
                         .offset = offsetof(sonde__op_attrs, embedding.padding_idx),
                         .fallback = -1.0,
                         .least = 0,
                         .most = 1e7,
                         .fallback_text = "none"},
                        SONDE__FIELD("std", SONDE__FIELD_NUMBER, embedding.std, 1.0, 0,
                                     1e3)},
             .params = embedding_params, .build = embedding_build);

/* --- positions ------------------------------------------------------------------------ */

static int positions_params(const sonde__op_shape *x, const sonde__op_attrs *attrs,
                            sonde__op_param params[SONDE__MAX_PARAMS])
{
    if (x->rank != 3) {
        return 0;
    }
    params[0] = (sonde__op_param){.suffix = "weight",
                                  .role = SONDE_ROLE_WEIGHT,
                                  .rank = 2,
                                  .dim = {attrs->embedding.num_embeddings, x->dim[2]},
                                  .spread = attrs->embedding.std};
    return 1;
}

static sonde__op_value positions_build(const sonde__op_builder *builder,
                                       sonde__op_attrs *attrs, const sonde__op_value *in)
{
    const sonde__op_shape *x = sonde__op_value_shape(builder->graph, in[0]);
    sonde__op_value terms[2] = {in[0], in[1]};

    if (sonde__op_expect_rank(x, 3, "input", "(N, T, E)", builder->diag) != SONDE_OK) {
        return 0;
    }
    if (x->dim[1] > attrs->embedding.num_embeddings) {
        (void)sonde__fail(builder->diag, SONDE_ESHAPE, NULL, "at most num_embeddings",
                          "a sequence of %lld at %lld positions", (long long)x->dim[1],
                          (long long)attrs->embedding.num_embeddings);
        return 0;
    }
    if (x->dim[1] < attrs->embedding.num_embeddings) {
        const sonde__op_attrs first = {.slice = {.end = x->dim[1]}};

        terms[1] = builder->emit(builder, &sonde__op_slice, &first, &in[1], 1);
    }
    return terms[1] == 0 ? 0 : builder->emit(builder, &sonde__op_add, NULL, terms, 2);
}

SONDE__LAYER(positional_embedding, add, 1,
             "x (N, T, E) plus row t of a table at position t; at most num_embeddings "
             "positions",
             .fields = {SONDE__FIELD("num_embeddings", SONDE__FIELD_WHOLE,
                                     embedding.num_embeddings, (double)NAN, 1, 1e9),
                        SONDE__FIELD("std", SONDE__FIELD_NUMBER, embedding.std, 1.0, 0,
                                     1e3)},
             .params = positions_params, .build = positions_build);

/*
 * attention_layers.c - attention as a layer, and layers of several ops around it:
 * multihead_attention and transformer_encoder_layer, with the parameters, names and initial values of
 * torch.nn.MultiheadAttention and torch.nn.TransformerEncoderLayer, both with batch_first.
 */
#include "base/fail.h"
#include "nn/ops/common.h"
#include "nn/ops/layer_row.h"

#include <math.h>
#include <string.h>

/* --- scaled_dot_product_attention ----------------------------------------------------- */

static sonde__op_value build_attention(const sonde__op_builder *builder,
                                       sonde__op_attrs *attrs, const sonde__op_value *in)
{
    return builder->emit(builder, &sonde__op_attention, attrs, in, in[3] != 0 ? 4 : 3);
}

SONDE__LAYER(
    scaled_dot_product_attention, attention, 3,
    "softmax(scale Q Kᵀ + mask) V of queries, keys, values and, if given, a mask",
    .optional = 1,
    .fields = {SONDE__FIELD("is_causal", SONDE__FIELD_FLAG, attention.causal, 0.0, 0, 1),
               {.key = "scale",
                .offset = offsetof(sonde__op_attrs, attention.scale),
                .fallback = 0.0,
                .least = 0.0,
                .most = 1e6,
                .fallback_text = "1 / √D"},
               SONDE__FIELD("dropout_p", SONDE__FIELD_NUMBER, p, 0.0, 0, 1)},
    .build = build_attention);

/* --- parts ---------------------------------------------------------------------------- */

/* Rows first ... end - 1 of a parameter; 0 for none. */
static sonde__op_value emit_rows(const sonde__op_builder *builder, sonde__op_value w,
                                 int64_t first, int64_t end)
{
    const sonde__op_attrs attrs = {.slice = {.start = first, .end = end}};

    return w == 0 ? 0 : builder->emit(builder, &sonde__op_slice, &attrs, &w, 1);
}

/* Refuses inputs that are not (N, T, E) with E that the heads divide. */
static bool check_input(const sonde__op_builder *builder, const sonde__op_attrs *attrs,
                        sonde__op_value x)
{
    const sonde__op_shape *shape = sonde__op_value_shape(builder->graph, x);

    if (sonde__op_expect_rank(shape, 3, "input", "(N, T, E)", builder->diag) !=
        SONDE_OK) {
        return false;
    }
    if (attrs->attention.heads < 1 || shape->dim[2] % attrs->attention.heads != 0) {
        (void)sonde__fail(builder->diag, SONDE_ESHAPE, NULL,
                          "heads that divide the width",
                          "%lld heads over a width of %lld",
                          (long long)attrs->attention.heads, (long long)shape->dim[2]);
        return false;
    }
    return true;
}

/* The four tensors of attention; 0 for a missing bias. */
typedef struct attention_tensors {
    sonde__op_value in_weight, in_bias, out_weight, out_bias;
} attention_tensors;

/* What Attention reads of a layer's attrs. */
static sonde__op_attrs attrs_of_heads(const sonde__op_attrs *attrs)
{
    return (sonde__op_attrs){
        .attention = attrs->attention, .p = attrs->p, .stream = attrs->stream};
}

static sonde__op_value self_attend(const sonde__op_builder *builder,
                                   const sonde__op_attrs *attrs, sonde__op_value x,
                                   const attention_tensors *t, sonde__op_value mask)
{
    const sonde__op_attrs heads = attrs_of_heads(attrs);
    sonde__op_value in[2] = {0, mask}, y = 0;

    in[0] = sonde__op_emit_linear(builder, x, t->in_weight, t->in_bias);
    if (in[0] == 0) {
        return 0;
    }
    y = builder->emit(builder, &sonde__op_self_attention, &heads, in, mask != 0 ? 2 : 1);
    return y == 0 ? 0 : sonde__op_emit_linear(builder, y, t->out_weight, t->out_bias);
}

static sonde__op_value cross_attend(const sonde__op_builder *builder,
                                    const sonde__op_attrs *attrs,
                                    const sonde__op_value *x, const attention_tensors *t)
{
    const sonde__op_attrs heads = attrs_of_heads(attrs);
    const int64_t width = sonde__op_value_shape(builder->graph, x[0])->dim[2];
    sonde__op_value in[4] = {0, 0, 0, x[3]}, y = 0;

    for (int i = 0; i < 3; i++) {
        const sonde__op_value w =
            emit_rows(builder, t->in_weight, i * width, (i + 1) * width);
        const sonde__op_value b =
            emit_rows(builder, t->in_bias, i * width, (i + 1) * width);

        in[i] = w == 0 ? 0 : sonde__op_emit_linear(builder, x[i], w, b);
        if (in[i] == 0) {
            return 0;
        }
    }
    y = builder->emit(builder, &sonde__op_attention, &heads, in, x[3] != 0 ? 4 : 3);
    return y == 0 ? 0 : sonde__op_emit_linear(builder, y, t->out_weight, t->out_bias);
}

/* PyTorch: the first projection by Xavier (Glorot and Bengio 2010), the second as a
 * linear layer, biases 0. Returns the count. */
static int attention_params(int64_t width, bool bias, const char *const names[4],
                            sonde__op_param *params)
{
    const float xavier = (float)sqrt(6.0 / (4.0 * (double)width));
    const float bound = (float)(1.0 / sqrt((double)width));
    const sonde__op_param all[] = {
        {.suffix = names[0],
         .role = SONDE_ROLE_WEIGHT,
         .rank = 2,
         .dim = {3 * width, width},
         .bound = xavier},
        {.suffix = names[1], .role = SONDE_ROLE_BIAS, .rank = 1, .dim = {3 * width}},
        {.suffix = names[2],
         .role = SONDE_ROLE_WEIGHT,
         .rank = 2,
         .dim = {width, width},
         .bound = bound},
        {.suffix = names[3], .role = SONDE_ROLE_BIAS, .rank = 1, .dim = {width}},
    };
    int count = 0;

    for (int i = 0; i < 4; i++) {
        if (bias || i % 2 == 0) {
            params[count++] = all[i];
        }
    }
    return count;
}

static attention_tensors tensors_at(const sonde__op_value *params, bool bias)
{
    return bias ? (attention_tensors){params[0], params[1], params[2], params[3]}
                : (attention_tensors){params[0], 0, params[1], 0};
}

/* --- multihead_attention -------------------------------------------------------------- */

enum { MOST_INPUTS = 4 };

static int multihead_params(const sonde__op_shape *x, const sonde__op_attrs *attrs,
                            sonde__op_param params[SONDE__MAX_PARAMS])
{
    static const char *const names[4] = {"in_proj_weight", "in_proj_bias",
                                         "out_proj.weight", "out_proj.bias"};

    return x->rank == 3
               ? attention_params(x->dim[2], attrs->attention.bias, names, params)
               : 0;
}

/* One input, or query, key and value; and after them a mask. */
static sonde__op_value build_multihead(const sonde__op_builder *builder,
                                       sonde__op_attrs *attrs, const sonde__op_value *in)
{
    const attention_tensors t = tensors_at(in + MOST_INPUTS, attrs->attention.bias);
    const bool one = in[2] == 0;
    const bool self = one || (in[1] == in[0] && in[2] == in[0]);

    for (int i = 0; i < (one ? 1 : 3); i++) {
        if (!check_input(builder, attrs, in[i])) {
            return 0;
        }
    }
    return self ? self_attend(builder, attrs, in[0], &t, one ? in[1] : in[3])
                : cross_attend(builder, attrs, in, &t);
}

#define DROPOUT SONDE__FIELD("dropout", SONDE__FIELD_NUMBER, p, 0.0, 0, 1)
#define CAUSAL SONDE__FIELD("is_causal", SONDE__FIELD_FLAG, attention.causal, 0.0, 0, 1)
#define BIAS SONDE__FIELD("bias", SONDE__FIELD_FLAG, attention.bias, 1.0, 0, 1)

SONDE__LAYER(
    multihead_attention, self_attention, 1,
    "attention of (N, T, E) to itself, or of a query to key and value, in heads; a "
    "second or fourth input is the mask: a bool selects the keys, a float "
    "is added",
    .optional = 3,
    .fields = {SONDE__FIELD("num_heads", SONDE__FIELD_WHOLE, attention.heads, (double)NAN,
                            1, 1e6),
               DROPOUT, BIAS, CAUSAL},
    .params = multihead_params, .build = build_multihead);

/* --- transformer_encoder_layer -------------------------------------------------------- */

/* Places after the tensors of attention, without and with biases. */
typedef struct encoder_tensors {
    attention_tensors attention;
    sonde__op_value w1, b1, w2, b2, norm1, shift1, norm2, shift2;
} encoder_tensors;

static encoder_tensors encoder_at(const sonde__op_value *p, bool bias)
{
    return bias ? (encoder_tensors){tensors_at(p, true),
                                    p[4],
                                    p[5],
                                    p[6],
                                    p[7],
                                    p[8],
                                    p[9],
                                    p[10],
                                    p[11]}
                : (encoder_tensors){
                      tensors_at(p, false), p[2], 0, p[3], 0, p[4], 0, p[5], 0};
}

static sonde__op_value emit_norm(const sonde__op_builder *builder,
                                 const sonde__op_attrs *attrs, sonde__op_value x,
                                 sonde__op_value weight, sonde__op_value bias)
{
    const sonde__op_attrs norm = {
        .norm = {.rank = 1,
                 .dims = {sonde__op_value_shape(builder->graph, x)->dim[2]},
                 .eps = attrs->attention.eps}};
    const sonde__op_value in[] = {x, weight, bias};

    return x == 0 ? 0
                  : builder->emit(builder, &sonde__op_layer_norm, &norm, in,
                                  bias != 0 ? 3 : 2);
}

/* Drops from x; place counts the draws of a layer. */
static sonde__op_value emit_dropout(const sonde__op_builder *builder,
                                    const sonde__op_attrs *attrs, sonde__op_value x,
                                    uint64_t place)
{
    const sonde__op_attrs drop = {.p = attrs->p, .stream = attrs->stream + place};

    return x == 0 || attrs->p == 0.0F
               ? x
               : builder->emit(builder, &sonde__op_dropout, &drop, &x, 1);
}

static sonde__op_value feed_forward(const sonde__op_builder *builder,
                                    const sonde__op_attrs *attrs, sonde__op_value x,
                                    const encoder_tensors *t)
{
    static const sonde__op_attrs by_erf = {.function = {.variant = 0}};
    const sonde__op_value wide = sonde__op_emit_linear(builder, x, t->w1, t->b1);

    if (wide == 0) {
        return 0;
    }
    sonde__op_value y = attrs->attention.activation == 0
                            ? builder->emit(builder, &sonde__op_relu, NULL, &wide, 1)
                            : builder->emit(builder, &sonde__op_gelu, &by_erf, &wide, 1);
    y = emit_dropout(builder, attrs, y, 2);
    y = y == 0 ? 0 : sonde__op_emit_linear(builder, y, t->w2, t->b2);
    return emit_dropout(builder, attrs, y, 3);
}

static sonde__op_value emit_sum(const sonde__op_builder *builder, sonde__op_value a,
                                sonde__op_value b)
{
    const sonde__op_value in[] = {a, b};

    return a == 0 || b == 0 ? 0 : builder->emit(builder, &sonde__op_add, NULL, in, 2);
}

static sonde__op_value build_encoder(const sonde__op_builder *builder,
                                     sonde__op_attrs *attrs, const sonde__op_value *in)
{
    enum { INPUTS = 2 };
    const encoder_tensors t = encoder_at(in + INPUTS, attrs->attention.bias);
    sonde__op_value x = in[0], inner = 0;

    if (!check_input(builder, attrs, x)) {
        return 0;
    }
    if (attrs->attention.norm_first) { /* norms first */
        inner = emit_norm(builder, attrs, x, t.norm1, t.shift1);
        inner = inner == 0 ? 0 : self_attend(builder, attrs, inner, &t.attention, in[1]);
        x = emit_sum(builder, x, emit_dropout(builder, attrs, inner, 1));
        inner = emit_norm(builder, attrs, x, t.norm2, t.shift2);
        inner = inner == 0 ? 0 : feed_forward(builder, attrs, inner, &t);
        return emit_sum(builder, x, inner);
    }
    inner = self_attend(builder, attrs, x, &t.attention, in[1]);
    inner = emit_dropout(builder, attrs, inner, 1);
    x = emit_norm(builder, attrs, emit_sum(builder, x, inner), t.norm1, t.shift1);
    inner = x == 0 ? 0 : feed_forward(builder, attrs, x, &t);
    return emit_norm(builder, attrs, emit_sum(builder, x, inner), t.norm2, t.shift2);
}

static int encoder_params(const sonde__op_shape *x, const sonde__op_attrs *attrs,
                          sonde__op_param params[SONDE__MAX_PARAMS])
{
    static const char *const names[4] = {
        "self_attn.in_proj_weight", "self_attn.in_proj_bias", "self_attn.out_proj.weight",
        "self_attn.out_proj.bias"};
    const int64_t width = x->rank == 3 ? x->dim[2] : 1,
                  wide = attrs->attention.dim_feedforward;
    const float narrow_bound = (float)(1.0 / sqrt((double)width));
    const float wide_bound = (float)(1.0 / sqrt((double)wide));
    const sonde__op_param rest[] = {
        {.suffix = "linear1.weight",
         .rank = 2,
         .dim = {wide, width},
         .bound = narrow_bound},
        {.suffix = "linear1.bias", .rank = 1, .dim = {wide}, .bound = narrow_bound},
        {.suffix = "linear2.weight",
         .rank = 2,
         .dim = {width, wide},
         .bound = wide_bound},
        {.suffix = "linear2.bias", .rank = 1, .dim = {width}, .bound = wide_bound},
        {.suffix = "norm1.weight", .rank = 1, .dim = {width}, .constant = 1.0F},
        {.suffix = "norm1.bias", .rank = 1, .dim = {width}},
        {.suffix = "norm2.weight", .rank = 1, .dim = {width}, .constant = 1.0F},
        {.suffix = "norm2.bias", .rank = 1, .dim = {width}},
    };

    if (x->rank != 3) {
        return 0;
    }
    int count = attention_params(width, attrs->attention.bias, names, params);
    for (int i = 0; i < 8; i++) {
        if (attrs->attention.bias || i % 2 == 0) {
            params[count] = rest[i];
            params[count++].role = i % 2 == 0 ? SONDE_ROLE_WEIGHT : SONDE_ROLE_BIAS;
        }
    }
    return count;
}

SONDE__LAYER(transformer_encoder_layer, self_attention, 1,
             "attention and a feed-forward part, each added to its input and normalized; "
             "a second input is the mask",
             .optional = 1,
             .fields = {SONDE__FIELD("nhead", SONDE__FIELD_WHOLE, attention.heads,
                                     (double)NAN, 1, 1e6),
                        SONDE__FIELD("dim_feedforward", SONDE__FIELD_WHOLE,
                                     attention.dim_feedforward, 2048.0, 1, 1e7),
                        SONDE__FIELD_CHOICE("activation", attention.activation, "relu",
                                            "gelu"),
                        SONDE__FIELD("layer_norm_eps", SONDE__FIELD_NUMBER, attention.eps,
                                     1e-5, 0, (double)INFINITY),
                        SONDE__FIELD("norm_first", SONDE__FIELD_FLAG,
                                     attention.norm_first, 0.0, 0, 1),
                        DROPOUT, BIAS, CAUSAL},
             .params = encoder_params, .build = build_encoder);

/*
 * onnx_write_heads.c - recurrent layers and attention as nodes of ONNX.
 *
 * Recurrent: ours x (N, T, I), w_ih (G H, I), w_hh (G H, H), b_ih and b_hh (G H), h (N, T,
 * H); ONNX X (T, N, I), W (1, G H, I), R (1, G H, H), B (1, 2 G H), Y (T, 1, N, H). The
 * gates are put into ONNX's order by nodes, so that the file has the weights under their
 * names.
 *
 * Attention is written out: products, scale, mask, softmax.
 */
#include "nn/onnx/onnx_file.h"
#include "nn/onnx/onnx_write.h"
#include "nn/ops/recurrent.h"

#include <math.h>
#include <string.h>

/* --- recurrent --------------------------------------------------------------------------- */

/* Operand i, its G H rows in ONNX's order of gates. */
static const char *gates_of(sonde__onnx_writer *w, const sonde__op_attrs *a, int i)
{
    static const int64_t lstm[] = {0, 3, 1, 2}, gru[] = {1, 0, 2};
    const int64_t *order = a->choice == SONDE__LSTM ? lstm : gru;
    const int64_t count = sonde__op_recurrent_gates(a);
    const char *parts[4];

    if (count == 1) {
        return sonde__onnx_operand(w, i);
    }
    for (int64_t g = 0; g < count; g++) {
        parts[g] = sonde__onnx_cut(w, sonde__onnx_operand(w, i), 0, order[g] * a->groups,
                                   (order[g] + 1) * a->groups);
    }
    sonde__onnx_set_int(w, "axis", 0);
    return sonde__onnx_step(w, "Concat", 0, parts, (size_t)count);
}

static const char *in_one_direction(sonde__onnx_writer *w, const char *x)
{
    return SONDE__ONNX_STEP(w, "Unsqueeze", x, sonde__onnx_single(w, 0));
}

static const char *biases_of(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    const char *both[2];

    if (!sonde__onnx_has_operand(w, 3)) {
        return "";
    }
    both[0] = gates_of(w, a, 3);
    both[1] = gates_of(w, a, 4);
    sonde__onnx_set_int(w, "axis", 0);
    return in_one_direction(w, sonde__onnx_step(w, "Concat", 0, both, 2));
}

static bool write_recurrent(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    static const int64_t swapped[] = {1, 0, 2};
    const char *x = NULL, *input = NULL, *state = NULL, *bias = NULL;

    if (w->needed[1] || w->needed[2]) {
        return false; /* the gates, the cells */
    }
    x = sonde__onnx_turned(w, sonde__onnx_operand(w, 0), swapped, 3);
    input = in_one_direction(w, gates_of(w, a, 1));
    state = in_one_direction(w, gates_of(w, a, 2));
    bias = biases_of(w, a);
    sonde__onnx_set_int(w, "hidden_size", a->groups);
    sonde__onnx_set_text(w, "direction", a->affine ? "reverse" : "forward");
    if (a->choice == SONDE__RNN_RELU) {
        sonde__onnx_set_list(w, "activations", "Relu");
    }
    if (a->choice == SONDE__GRU) {
        sonde__onnx_set_int(w, "linear_before_reset", 1);
    }
    x = SONDE__ONNX_STEP(w,
                         a->choice == SONDE__LSTM  ? "LSTM"
                         : a->choice == SONDE__GRU ? "GRU"
                                                   : "RNN",
                         x, input, state, bias);
    x = SONDE__ONNX_STEP(w, "Squeeze", x, sonde__onnx_single(w, 1));
    sonde__onnx_set_ints(w, "perm", swapped, 3);
    return SONDE__ONNX_END(w, "Transpose", x);
}

/* --- attention --------------------------------------------------------------------------- */

/* Columns of x (N, T, H D) as heads (N, H, T, D); swapped: as (N, H, D, T). */
static const char *heads_of(sonde__onnx_writer *w, const char *x, int64_t heads,
                            int64_t depth, bool swapped)
{
    static const int64_t order[] = {0, 2, 1, 3}, turned[] = {0, 2, 3, 1};
    const int64_t dims[] = {0, 0, heads, depth};

    return sonde__onnx_turned(w, sonde__onnx_reshaped(w, x, dims, 4),
                              swapped ? turned : order, 4);
}

/* The three operands as matrices, with K's swapped. */
typedef struct matrices {
    const char *q, *k, *v;
    int64_t depth, queries, keys, width; /* of q; of a row of y */
    int rank;
} matrices;

static matrices packed(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    const sonde__op_shape *x = sonde__onnx_operand_shape(w, 0);
    const int64_t width = x->dim[2] / 3, depth = width / a->groups;
    const char *name = sonde__onnx_operand(w, 0);

    return (matrices){
        .q = heads_of(w, sonde__onnx_cut(w, name, 2, 0, width), a->groups, depth, false),
        .k = heads_of(w, sonde__onnx_cut(w, name, 2, width, 2 * width), a->groups, depth,
                      true),
        .v = heads_of(w, sonde__onnx_cut(w, name, 2, 2 * width, 3 * width), a->groups,
                      depth, false),
        .depth = depth,
        .queries = x->dim[1],
        .keys = x->dim[1],
        .width = width,
        .rank = 4};
}

static matrices apart(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    const sonde__op_shape *q = sonde__onnx_operand_shape(w, 0),
                          *v = sonde__onnx_operand_shape(w, 2);
    const int last = q->rank - 1;
    const int64_t heads = a->groups;
    matrices m = {.depth = q->dim[last],
                  .queries = q->dim[last - 1],
                  .keys = v->dim[last - 1],
                  .width = v->dim[last],
                  .rank = q->rank};
    int64_t order[SONDE_MAX_DIMS];

    if (heads > 0) {
        m.depth /= heads;
        m.rank = 4;
        m.q = heads_of(w, sonde__onnx_operand(w, 0), heads, m.depth, false);
        m.k = heads_of(w, sonde__onnx_operand(w, 1), heads, m.depth, true);
        m.v = heads_of(w, sonde__onnx_operand(w, 2), heads, m.width / heads, false);
        return m;
    }
    for (int i = 0; i <= last; i++) {
        order[i] = i < last - 1 ? i : 2 * last - 1 - i;
    }
    m.q = sonde__onnx_operand(w, 0);
    m.k = sonde__onnx_turned(w, sonde__onnx_operand(w, 1), order, q->rank);
    m.v = sonde__onnx_operand(w, 2);
    return m;
}

/* (T, S), true for key 0 ... t of query t. */
static const char *triangle(sonde__onnx_writer *w, const matrices *m)
{
    const int64_t dims[] = {m->queries, m->keys};
    const char *ones = SONDE__ONNX_STEP(w, "Expand", sonde__onnx_single(w, 1),
                                        sonde__onnx_integers(w, dims, 2));

    sonde__onnx_set_int(w, "upper", 0);
    ones = SONDE__ONNX_STEP(w, "Trilu", ones);
    sonde__onnx_set_int(w, "to", SONDE__ONNX_BOOL);
    return SONDE__ONNX_STEP(w, "Cast", ones);
}

/* The weights of keys: softmax of the scores, 0 for keys that take no part. */
static const char *weights_of(sonde__onnx_writer *w, const sonde__op_attrs *a,
                              const matrices *m, const char *scores, int mask)
{
    const char *parts[2] = {NULL, NULL};
    size_t count = 0;

    if (sonde__onnx_has_operand(w, mask) &&
        sonde_dtype_is_float(sonde__onnx_operand_shape(w, mask)->dtype)) {
        scores = SONDE__ONNX_STEP(w, "Add", scores, sonde__onnx_operand(w, mask));
    } else if (sonde__onnx_has_operand(w, mask)) {
        parts[count++] = sonde__onnx_truth(w, mask);
    }
    if (a->causal) {
        parts[count++] = triangle(w, m);
    }
    for (size_t i = 0; i < count; i++) {
        scores = SONDE__ONNX_STEP(w, "Where", parts[i], scores,
                                  sonde__onnx_scalar(w, -(double)INFINITY));
    }
    sonde__onnx_set_int(w, "axis", -1);
    scores = SONDE__ONNX_STEP(w, "Softmax", scores);
    for (size_t i = 0; sonde__onnx_has_operand(w, mask) && i < count; i++) {
        scores = SONDE__ONNX_STEP(w, "Where", parts[i], scores, /* a query without keys */
                                  sonde__onnx_scalar(w, 0.0));
    }
    return scores;
}

static bool write_attention(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    static const int64_t order[] = {0, 2, 1, 3};
    const bool self = strcmp(w->op->kind->name, "SelfAttention") == 0;
    matrices m = {0};
    const char *y = NULL;
    double scale = (double)a->scale;

    if (w->needed[1]) {
        return false; /* the weights of keys */
    }
    m = self ? packed(w, a) : apart(w, a);
    scale = scale != 0.0 ? scale : 1.0 / sqrt((double)m.depth);
    y = SONDE__ONNX_STEP(w, "MatMul", m.q, m.k);
    y = SONDE__ONNX_STEP(w, "Mul", y, sonde__onnx_scalar(w, scale));
    y = weights_of(w, a, &m, y, self ? 1 : 3);
    if (a->groups == 0) {
        return SONDE__ONNX_END(w, "MatMul", y, m.v);
    }
    y = sonde__onnx_turned(w, SONDE__ONNX_STEP(w, "MatMul", y, m.v), order, 4);
    return SONDE__ONNX_END(w, "Reshape", y,
                           sonde__onnx_integers(w, (const int64_t[]){0, 0, m.width}, 3));
}

const sonde__onnx_written sonde__onnx_write_heads[] = {
    {"Recurrent", write_recurrent},
    {"Attention", write_attention},
    {"SelfAttention", write_attention},
    {NULL, NULL},
};

/*
 * attention_heads.h - where the matrices of attention lie in its operands, and the shapes
 * of its outputs; for attention.c and attention_grad.c.
 */
#ifndef SONDE_NN_OPS_ATTENTION_HEADS_H
#define SONDE_NN_OPS_ATTENTION_HEADS_H

#include "nn/kernels/gemm.h"
#include "nn/ops/common.h"

/* Where element (batch, head, row, 0) of an operand lies. */
typedef struct sonde__op_head_view {
    int64_t start, batch, head, row;
} sonde__op_head_view;

typedef struct sonde__op_heads {
    int64_t batches, heads, queries, keys, depth, width; /* depth D, width E */
    sonde__op_head_view q, k, v, y;
} sonde__op_heads;

static inline int64_t sonde__op_head_place(const sonde__op_head_view *view, int64_t batch,
                                           int64_t head, int64_t row)
{
    return view->start + batch * view->batch + head * view->head + row * view->row;
}

/* Matrix number i of all batches and heads. */
typedef struct sonde__op_head_at {
    int64_t batch, head;
} sonde__op_head_at;

static inline sonde__op_head_at sonde__op_head_number(const sonde__op_heads *h, int64_t i)
{
    return (sonde__op_head_at){i / h->heads, i % h->heads};
}

/* The heads of q, k, v, or of one packed operand. */
sonde__op_heads sonde__op_heads_of(const sonde__operand *operands,
                                   const sonde__op_attrs *attrs, bool is_packed);
/* Checks q, k, v, or one packed operand; fills the shapes of y and P. */
sonde_err sonde__op_attention_shapes(const sonde__operand *operands,
                                     const sonde__op_attrs *attrs, bool is_packed,
                                     sonde__op_shape *y, sonde__op_shape *weights,
                                     sonde_diag *diag);
double sonde__op_attention_scale(const sonde__op_attrs *attrs, const sonde__op_heads *h);
/* How many parts a call is worth; in[first] is q, or the packed operand. */
int sonde__op_head_parts(const sonde__op_call *call, int max, bool is_packed, int first);
/* Bytes of a matrix of P, a multiple of 64. */
static inline size_t sonde__op_head_bytes(const sonde__op_heads *h)
{
    return ((size_t)(h->queries * h->keys) * sizeof(float) + 63) / 64 * 64;
}

/* The matrix of a head as an operand of a product; swapped: its transpose. */
sonde__kernel_half_matrix sonde__op_head_rows(const sonde__operand *operand,
                                              const sonde__op_head_view *view,
                                              sonde__op_head_at m, bool swapped);
/* Where it begins. */
void *sonde__op_head_start(const sonde__operand *operand, const sonde__op_head_view *view,
                           sonde__op_head_at m);
/* C = A B, in float32 or, as the attrs of the call say, of operands rounded to 16 bits. C
 * has the dtype that it says. */
void sonde__op_head_product(const sonde__op_call *call, sonde__kernel_half_gemm product,
                            void *scratch);
/* Bytes of scratch for the products of a head, in either case. */
size_t sonde__op_head_scratch(const sonde__op_call *call, const sonde__op_heads *h);

#endif

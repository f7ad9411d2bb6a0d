/*
 * onnx_constant.h - what folding makes constants with.
 */
#ifndef SONDE_NN_ONNX_ONNX_CONSTANT_H
#define SONDE_NN_ONNX_ONNX_CONSTANT_H

#include "nn/onnx/onnx_node.h"

/* A folded op. in: its constants, NULL for those left out; returns the result, new, or NULL
 * after an error. */
typedef sonde__onnx_constant *(*sonde__onnx_folding)(
    const sonde__onnx_node *node, const sonde__onnx_constant *const *in, size_t count);

static inline bool sonde__onnx_fixed(sonde__onnx_number n)
{
    return n.slope == 0.0;
}

/* The size of dimension i, where it does not depend on the batch. */
static inline int64_t sonde__onnx_dim(const sonde__onnx_constant *c, int i)
{
    return (int64_t)c->dim[i].base;
}

static inline sonde__onnx_number sonde__onnx_item(const sonde__onnx_constant *c, size_t i)
{
    return c->items[c->uniform ? 0 : i];
}

void sonde__onnx_dims(const sonde__onnx_constant *c, int64_t dim[SONDE_MAX_DIMS]);
/* Refuses the node; NULL, to be returned. */
sonde__onnx_constant *sonde__onnx_no_constant(const sonde__onnx_node *node,
                                              const char *found);
/* A new list of zeros. */
sonde__onnx_constant *sonde__onnx_list(const sonde__onnx_node *node, int type,
                                       size_t count);
/* A new constant with the same numbers and dims. */
sonde__onnx_constant *sonde__onnx_copy(const sonde__onnx_node *node,
                                       const sonde__onnx_constant *c);
/* The tensor of an attribute, new. */
sonde__onnx_constant *sonde__onnx_read(const sonde__onnx_node *node,
                                       const SondeOnnx__TensorProto *proto);
/* The dims that two shapes broadcast to; false: they do not, or depend on the batch. */
bool sonde__onnx_broadcast(const sonde__onnx_constant *a, const sonde__onnx_constant *b,
                           int *rank, int64_t dim[SONDE_MAX_DIMS]);
/* The place in c of element i of a shape that c broadcasts to. */
size_t sonde__onnx_place(const sonde__onnx_constant *c, int rank, const int64_t *dim,
                         size_t i);

/* Ops that move elements, for the table: onnx_moves.c. */
sonde__onnx_constant *sonde__onnx_fold_moved(const sonde__onnx_node *node,
                                             const sonde__onnx_constant *const *in,
                                             size_t count);
sonde__onnx_constant *sonde__onnx_fold_concat(const sonde__onnx_node *node,
                                              const sonde__onnx_constant *const *in,
                                              size_t count);
sonde__onnx_constant *sonde__onnx_fold_slice(const sonde__onnx_node *node,
                                             const sonde__onnx_constant *const *in,
                                             size_t count);
sonde__onnx_constant *sonde__onnx_fold_triangle(const sonde__onnx_node *node,
                                                const sonde__onnx_constant *const *in,
                                                size_t count);

#endif

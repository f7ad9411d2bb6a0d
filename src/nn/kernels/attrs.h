/*
 * attrs.h - what ops are parametrised by: a struct for each family of ops.
 *
 * A family is one list of fields below. The list makes the family's struct, a member of the
 * union in sonde__op_attrs, and the table by which attrs are packed, hashed, described and
 * read (sonde__op_fields_<family>); SONDE__OPERANDS in the row of an op names its family. A
 * new attribute is a line in a list.
 *
 * Families with a shape begin with rank and dims, as `shape` does: for any of them
 * attrs.shape.rank and attrs.shape.dims are these. A gradient of such a family has the shape
 * to give back there.
 */
#ifndef SONDE_NN_KERNELS_ATTRS_H
#define SONDE_NN_KERNELS_ATTRS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <sonde/tensor.h>

/* clang-format off */
#define SONDE__ATTRS_DIMS(F, f) \
    F(f, INT, rank, ) F(f, LONG, dims, [SONDE_MAX_DIMS])

/* reshape: dims is the target (-1: inferred, 0: copied); transpose: the permutation. Of a
 * layer also one dimension, or two. */
#define SONDE__ATTRS_SHAPE(F, f) \
    SONDE__ATTRS_DIMS(F, f) F(f, INT, axis, ) F(f, INT, other, )
/* Convolutions and pools; sizes are (h, w, d). From out_channels on: of layers. */
#define SONDE__ATTRS_WINDOW(F, f) \
    SONDE__ATTRS_DIMS(F, f) \
    F(f, LONG, kernel, [3]) F(f, LONG, stride, [3]) F(f, LONG, padding, [3]) \
    F(f, LONG, dilation, [3]) F(f, LONG, groups, ) \
    F(f, BOOL, include_pad, )             /* the padding counts as elements */ \
    F(f, LONG, output_padding, [3])       /* of a transposed convolution */ \
    F(f, LONG, out_channels, ) F(f, BOOL, bias, ) \
    F(f, INT, spatial, )                  /* dimensions of a window: 1 to 3 */ \
    F(f, BOOL, transposed, )
#define SONDE__ATTRS_NORM(F, f) \
    SONDE__ATTRS_DIMS(F, f) \
    F(f, LONG, groups, ) F(f, REAL, eps, ) \
    F(f, REAL, momentum, )                /* NaN: none, a mean of all batches */ \
    F(f, BOOL, affine, ) F(f, BOOL, bias, ) \
    F(f, BOOL, track, )                   /* it has running statistics */
#define SONDE__ATTRS_ALONG(F, f) \
    F(f, INT, axis, )
/* axes is a bit mask; layers list axes in dims. */
#define SONDE__ATTRS_REDUCE(F, f) \
    SONDE__ATTRS_DIMS(F, f) \
    F(f, BITS, axes, ) F(f, INT, axis, ) F(f, BOOL, keep_dims, ) F(f, BOOL, mean, ) \
    F(f, BOOL, smallest, )
#define SONDE__ATTRS_SLICE(F, f) \
    SONDE__ATTRS_DIMS(F, f) \
    F(f, INT, axis, ) F(f, LONG, start, ) F(f, LONG, end, ) \
    F(f, LONG, step, )                    /* 0: 1 */
#define SONDE__ATTRS_INDEX(F, f) \
    SONDE__ATTRS_DIMS(F, f) F(f, INT, axis, ) F(f, BOOL, adds, )
#define SONDE__ATTRS_REMAP(F, f) \
    SONDE__ATTRS_DIMS(F, f) \
    F(f, INT, axis, ) F(f, INT, map, ) F(f, LONG, before, ) F(f, LONG, after, ) \
    F(f, LONG, count, ) F(f, LONG, stride, ) F(f, LONG, dilation, ) \
    F(f, REAL, number, )                  /* the value of a pad, or a scale factor */ \
    F(f, BOOL, align_corners, )
#define SONDE__ATTRS_ORDER(F, f) \
    F(f, INT, axis, ) \
    F(f, LONG, k, )                       /* 0: all */ \
    F(f, BOOL, descending, )              /* cumsum: from the end */ \
    F(f, BOOL, indices, )
/* Of one value or two: numbers and flags in the order of the layer's keys. */
#define SONDE__ATTRS_FUNCTION(F, f) \
    F(f, REAL, number, [2]) F(f, INT, variant, ) F(f, BOOL, log, ) F(f, BOOL, full, )
#define SONDE__ATTRS_CHOOSE(F, f) \
    F(f, INT, comparison, ) F(f, BOOL, inverted, ) F(f, REAL, value, )
#define SONDE__ATTRS_CAST(F, f) \
    F(f, INT, to, )
#define SONDE__ATTRS_FILL(F, f) \
    SONDE__ATTRS_DIMS(F, f) F(f, REAL, value, ) \
    F(f, BOOL, scaled, )                  /* times the loss scale, which is live */
#define SONDE__ATTRS_LOSS(F, f) \
    SONDE__ATTRS_DIMS(F, f) \
    F(f, INT, axis, ) F(f, BOOL, mean, ) F(f, REAL, label_smoothing, ) \
    F(f, BOOL, ignores, ) F(f, LONG, ignore_index, )
#define SONDE__ATTRS_CTC(F, f) \
    F(f, LONG, blank, ) F(f, BOOL, zero_infinity, ) F(f, BOOL, mean, )
#define SONDE__ATTRS_MATMUL(F, f) \
    F(f, INT, transposed, ) \
    F(f, REAL, scale, )                   /* 0: 1 */
#define SONDE__ATTRS_LINEAR(F, f) \
    F(f, LONG, out_features, ) F(f, BOOL, bias, )
/* From bias on: of layers. */
#define SONDE__ATTRS_ATTENTION(F, f) \
    F(f, LONG, heads, )                   /* 0: none */ \
    F(f, BOOL, causal, )                  /* a query sees no later key */ \
    F(f, REAL, scale, )                   /* 0: 1 / sqrt(D) */ \
    F(f, BOOL, bias, ) F(f, LONG, dim_feedforward, ) F(f, INT, activation, ) \
    F(f, REAL, eps, ) F(f, BOOL, norm_first, )
/* From layers on: of layers. */
#define SONDE__ATTRS_RECURRENT(F, f) \
    F(f, INT, cell, ) F(f, LONG, units, ) F(f, BOOL, reversed, ) \
    F(f, LONG, layers, ) F(f, BOOL, bias, ) F(f, BOOL, bidirectional, )
#define SONDE__ATTRS_EMBEDDING(F, f) \
    SONDE__ATTRS_DIMS(F, f) \
    F(f, LONG, num_embeddings, ) F(f, LONG, width, ) \
    F(f, LONG, padding_idx, ) F(f, BOOL, padded, )  /* there is one */ \
    F(f, REAL, std, ) F(f, INT, mode, )
#define SONDE__ATTRS_LABELS(F, f) \
    F(f, LONG, classes, )
#define SONDE__ATTRS_SLOPES(F, f) \
    F(f, LONG, count, )
#define SONDE__ATTRS_REPLICAS(F, f) \
    F(f, LONG, count, )
/* Layers of several ops that compare vectors. */
#define SONDE__ATTRS_VECTORS(F, f) \
    F(f, INT, axis, ) F(f, BOOL, keep_dims, ) F(f, BOOL, swap, ) F(f, REAL, margin, ) \
    F(f, REAL, eps, ) F(f, LONG, correction, )
/* group: that of the parameter, 0 the default; bare: weight decay does not apply. */
#define SONDE__ATTRS_UPDATE(F, f) \
    F(f, INT, group, ) F(f, BOOL, bare, ) F(f, INT, variant, )
#define SONDE__ATTRS_SCALER(F, f) \
    F(f, REAL, growth, ) F(f, REAL, backoff, ) F(f, LONG, interval, )

#define SONDE__ATTRS_FAMILIES(X) \
    X(shape, SONDE__ATTRS_SHAPE) X(window, SONDE__ATTRS_WINDOW) X(norm, SONDE__ATTRS_NORM) \
    X(along, SONDE__ATTRS_ALONG) X(reduce, SONDE__ATTRS_REDUCE) \
    X(slice, SONDE__ATTRS_SLICE) X(index, SONDE__ATTRS_INDEX) X(remap, SONDE__ATTRS_REMAP) \
    X(order, SONDE__ATTRS_ORDER) X(function, SONDE__ATTRS_FUNCTION) \
    X(choose, SONDE__ATTRS_CHOOSE) X(cast, SONDE__ATTRS_CAST) X(fill, SONDE__ATTRS_FILL) \
    X(loss, SONDE__ATTRS_LOSS) X(ctc, SONDE__ATTRS_CTC) X(matmul, SONDE__ATTRS_MATMUL) \
    X(linear, SONDE__ATTRS_LINEAR) X(attention, SONDE__ATTRS_ATTENTION) \
    X(recurrent, SONDE__ATTRS_RECURRENT) X(embedding, SONDE__ATTRS_EMBEDDING) \
    X(labels, SONDE__ATTRS_LABELS) \
    X(slopes, SONDE__ATTRS_SLOPES) X(replicas, SONDE__ATTRS_REPLICAS) \
    X(vectors, SONDE__ATTRS_VECTORS) X(update, SONDE__ATTRS_UPDATE) \
    X(scaler, SONDE__ATTRS_SCALER)

#define SONDE__ATTR_INT int
#define SONDE__ATTR_BITS uint32_t
#define SONDE__ATTR_LONG int64_t
#define SONDE__ATTR_REAL float
#define SONDE__ATTR_BOOL bool
#define SONDE__ATTR_MEMBER(family, type, name, array) SONDE__ATTR_##type name array;
#define SONDE__ATTR_STRUCT(family, LIST) \
    struct sonde__attrs_##family { LIST(SONDE__ATTR_MEMBER, family) } family;

typedef struct sonde__op_attrs {
    union { SONDE__ATTRS_FAMILIES(SONDE__ATTR_STRUCT) };
    /* Of every op: */
    float p;          /* of an op that drops: the probability of an element */
    uint64_t stream;  /* of an op that draws: its own stream of random numbers */
    int reduction;    /* of a layer that is a loss, see layer_row.h */
    bool training;    /* set by emit: the op is part of a session for training */
    /* Of a product: the dtype to which its operands are rounded, SONDE_BF16 or SONDE_F16;
     * 0: they are not. Of a layer: also SONDE_F32, against the session's dtype. */
    sonde_dtype half;
    bool wide; /* of a product with half: its output is float32 */
} sonde__op_attrs;
/* clang-format on */

/* All of it to 0: an initializer {0} need not clear more of the union than its first
 * member. */
static inline void sonde__op_attrs_clear(sonde__op_attrs *attrs)
{
    memset(attrs, 0, sizeof *attrs);
}

#endif

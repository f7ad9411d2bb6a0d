/*
 * onnx_ops.h - the table of ONNX ops: what translates each.
 */
#ifndef SONDE_NN_ONNX_ONNX_OPS_H
#define SONDE_NN_ONNX_ONNX_OPS_H

#include "nn/onnx/onnx_value.h"

/* A float attribute of ONNX, the key of our op that it is, and its default. */
typedef struct sonde__onnx_key {
    const char *attribute, *key;
    double fallback;
} sonde__onnx_key;

typedef struct sonde__onnx_op {
    const char *name; /* ONNX's */
    /* Gives the node's outputs; false after an error. */
    bool (*build)(sonde__onnx_node *node, const struct sonde__onnx_op *op);
    const char *kind; /* of function.h, where build needs one */
    sonde__onnx_key keys[2];
} sonde__onnx_op;

/* The tables, each ended by a row without a name. */
extern const sonde__onnx_op
    sonde__onnx_plain_ops[]; /* onnx_plain.c: one op, one of ours */
extern const sonde__onnx_op sonde__onnx_layer_ops[]; /* onnx_layers.c: with parameters */
extern const sonde__onnx_op sonde__onnx_shape_ops[]; /* onnx_shapes.c */
extern const sonde__onnx_op sonde__onnx_place_ops[]; /* onnx_places.c */
extern const sonde__onnx_op sonde__onnx_element_ops[];   /* onnx_elements.c */
extern const sonde__onnx_op sonde__onnx_recurrent_ops[]; /* onnx_recurrent.c */
extern const sonde__onnx_op sonde__onnx_fold_ops[]; /* onnx_fold.c: of constants alone */

/* NULL: there is none. */
const sonde__onnx_op *sonde__onnx_find_op(const char *name);

/* The value of input 0, and its rank and dims; false after an error. */
bool sonde__onnx_take_data(sonde__onnx_node *node, sonde__onnx_pair *x, int *rank,
                           sonde__onnx_number dims[SONDE_MAX_DIMS]);
/* An axis that does not depend on the batch. */
bool sonde__onnx_check_axis(sonde__onnx_node *node, int64_t *axis, int rank,
                            const sonde__onnx_number *dims);
/* The words that our ops take for a word of ONNX. */
typedef struct sonde__onnx_word {
    const char *onnx, *ours;
} sonde__onnx_word;
/* Ours for the attribute's; NULL after an error. */
const char *sonde__onnx_read_word(const sonde__onnx_node *node, const char *name,
                                  const char *fallback, const sonde__onnx_word *words,
                                  size_t count, const char *expected);
/* Known places of input i are within a dimension of `size` elements; false after an error. */
bool sonde__onnx_check_places(sonde__onnx_node *node, size_t i, double size);
/* Computes the node from constants. 1: done; 0: it is none of that kind, or an input is no
 * constant; -1: after an error. */
int sonde__onnx_fold(sonde__onnx_node *node);

#endif

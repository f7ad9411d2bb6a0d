/*
 * onnx_node.h - what a node of an ONNX graph says: inputs, attributes, constants.
 */
#ifndef SONDE_NN_ONNX_ONNX_NODE_H
#define SONDE_NN_ONNX_ONNX_NODE_H

#include "nn/onnx/onnx_state.h"

/* --- what a node says ----------------------------------------------------------------- */

bool sonde__onnx_has_input(const sonde__onnx_node *node, size_t i);
sonde__onnx_slot *sonde__onnx_input(const sonde__onnx_node *node, size_t i);
const SondeOnnx__AttributeProto *sonde__onnx_attribute(const sonde__onnx_node *node,
                                                       const char *name);
/* The attribute's value, or fallback. */
int64_t sonde__onnx_int(const sonde__onnx_node *node, const char *name, int64_t fallback);
double sonde__onnx_float(const sonde__onnx_node *node, const char *name, double fallback);
/* Whether an attribute of text has this value; fallback: its value without it. */
bool sonde__onnx_says(const sonde__onnx_node *node, const char *name,
                      const char *fallback, const char *text);
/* A list of at most `most` integers; *count 0 without the attribute. False: too many. */
bool sonde__onnx_ints(const sonde__onnx_node *node, const char *name, int64_t *out,
                      size_t most, size_t *count);

/* --- constants ------------------------------------------------------------------------ */

enum { SONDE__ONNX_MOST_FOLDED = 1 << 16 }; /* elements of a constant */

/* A new constant of zeros with plain dims; NULL after an error, of which too many elements
 * are one. */
sonde__onnx_constant *sonde__onnx_constant_make(const sonde__onnx_node *node, int type,
                                                int rank, const int64_t *dim);
/* The constant of input i; NULL: it is none, or too large. Borrowed. */
const sonde__onnx_constant *sonde__onnx_known(const sonde__onnx_node *node, size_t i);
/* The same as whole numbers without the batch; false, with an error that says `what` is
 * computed from values, if it is none. */
bool sonde__onnx_whole(const sonde__onnx_node *node, size_t i, const char *what,
                       int64_t *out, size_t most, size_t *count);
int64_t sonde__onnx_integer(double number); /* cut to the range of int64 */
bool sonde__onnx_is_whole_type(int type);
/* An output is this constant, which is taken. */
bool sonde__onnx_give_constant(sonde__onnx_node *node, size_t output,
                               sonde__onnx_constant *constant);

#endif

/*
 * onnx_write.h - nodes of an ONNX file as they are written.
 *
 * A writer has one op of the model at hand. Its function adds attributes and calls SONDE__ONNX_STEP
 * for each node but the last, which makes a value of its own name, and SONDE__ONNX_END for
 * the last, which makes the op's first output under its name:
 *
 *     const char *s = SONDE__ONNX_STEP(w, "Sigmoid", x);
 *     return SONDE__ONNX_END(w, "Mul", x, s);
 *
 * Attributes belong to the next node. Names live until the op is written.
 */
#ifndef SONDE_NN_ONNX_ONNX_WRITE_H
#define SONDE_NN_ONNX_ONNX_WRITE_H

#include "nn/graph/graph.h"
#include "nn/onnx/onnx_wire.h"

enum { SONDE__ONNX_MADE_NAMES = 512, SONDE__ONNX_MADE_NAME = 40 };

typedef struct sonde__onnx_writer {
    const sonde_nn_model *model;
    const sonde__op_graph *other; /* for another batch; NULL: there is one batch alone */
    const sonde__graph_node_op *op;   /* at hand */
    bool needed[SONDE__MAX_OPERANDS]; /* which of its outputs are read */
    sonde__onnx_wire graph, node, part;
    const char *prefix; /* of names that no value has */
    size_t made;        /* names made up */
    size_t named;       /* of the op at hand */
    char names[SONDE__ONNX_MADE_NAMES][SONDE__ONNX_MADE_NAME];
} sonde__onnx_writer;

/* Writes the op at hand; false: ONNX has none like it. */
typedef bool (*sonde__onnx_write_op)(sonde__onnx_writer *writer,
                                     const sonde__op_attrs *attrs);

typedef struct sonde__onnx_written {
    const char *kind; /* the op's name */
    sonde__onnx_write_op write;
} sonde__onnx_written;

/* The tables, each ended by a row without a kind. */
extern const sonde__onnx_written sonde__onnx_write_layers[]; /* onnx_write_layers.c */
extern const sonde__onnx_written sonde__onnx_write_places[]; /* onnx_write_places.c */
extern const sonde__onnx_written sonde__onnx_write_heads[];  /* onnx_write_heads.c */

/* Writes the op at hand by its recipe (onnx_recipes.c); false: it has none. */
bool sonde__onnx_write_recipe(sonde__onnx_writer *writer);

/* --- values ----------------------------------------------------------------------------- */

const char *sonde__onnx_value_name(sonde__onnx_writer *writer, sonde__op_value value);
/* The name of input i of the op; "" for one that is left out. */
const char *sonde__onnx_operand(sonde__onnx_writer *writer, int i);
bool sonde__onnx_has_operand(const sonde__onnx_writer *writer, int i);
const sonde__op_shape *sonde__onnx_operand_shape(const sonde__onnx_writer *writer, int i);
/* Whether a dimension of a value depends on the batch. */
bool sonde__onnx_varies(const sonde__onnx_writer *writer, sonde__op_value value, int dim);
int sonde__onnx_type(sonde_dtype dtype); /* 0: ONNX has none */

/* Constants: a float, an integer, and lists of them. */
const char *sonde__onnx_scalar(sonde__onnx_writer *writer, double number);
const char *sonde__onnx_floats(sonde__onnx_writer *writer, const double *numbers,
                               int count);
const char *sonde__onnx_single(sonde__onnx_writer *writer, int64_t number);
const char *sonde__onnx_integers(sonde__onnx_writer *writer, const int64_t *numbers,
                                 int count);

/* --- attributes of the next node --------------------------------------------------------- */

void sonde__onnx_set_int(sonde__onnx_writer *writer, const char *name, int64_t number);
void sonde__onnx_set_float(sonde__onnx_writer *writer, const char *name, double number);
void sonde__onnx_set_ints(sonde__onnx_writer *writer, const char *name,
                          const int64_t *numbers, int count);
void sonde__onnx_set_text(sonde__onnx_writer *writer, const char *name, const char *text);
void sonde__onnx_set_list(sonde__onnx_writer *writer, const char *name, const char *text);

/* --- nodes ------------------------------------------------------------------------------- */

/* A node with these inputs; output: which of its outputs is meant. The name of that one. */
const char *sonde__onnx_step(sonde__onnx_writer *writer, const char *op, int output,
                             const char *const *inputs, size_t count);
bool sonde__onnx_end(sonde__onnx_writer *writer, const char *op, int output,
                     const char *const *inputs, size_t count);

#define SONDE__ONNX_NAMED(...) ((const char *const[]){__VA_ARGS__})
#define SONDE__ONNX_STEP(writer, op, ...)                                                \
    sonde__onnx_step(writer, op, 0, SONDE__ONNX_NAMED(__VA_ARGS__),                      \
                     sizeof SONDE__ONNX_NAMED(__VA_ARGS__) / sizeof(const char *))
#define SONDE__ONNX_END(writer, op, ...)                                                 \
    sonde__onnx_end(writer, op, 0, SONDE__ONNX_NAMED(__VA_ARGS__),                       \
                    sizeof SONDE__ONNX_NAMED(__VA_ARGS__) / sizeof(const char *))
/* The op with all of its inputs is one node. */
bool sonde__onnx_end_all(sonde__onnx_writer *writer, const char *op);

/* Nodes that several ops need. */
const char *sonde__onnx_cut(sonde__onnx_writer *writer, const char *x, int64_t axis,
                            int64_t begin, int64_t end);
const char *sonde__onnx_reshaped(sonde__onnx_writer *writer, const char *x,
                                 const int64_t *dims, int count);
const char *sonde__onnx_turned(sonde__onnx_writer *writer, const char *x,
                               const int64_t *order, int count);
/* Operand i as a bool. */
const char *sonde__onnx_truth(sonde__onnx_writer *writer, int i);

#endif

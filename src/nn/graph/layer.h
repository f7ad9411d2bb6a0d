/*
 * layer.h - what every layer of the builder does: enter its module, name its inputs, make
 * its parameters, emit its ops, name its output.
 */
#ifndef SONDE_NN_GRAPH_LAYER_H
#define SONDE_NN_GRAPH_LAYER_H

#include "nn/graph/graph.h"
#include "nn/ops/layer_row.h"

typedef struct sonde__graph_layer {
    sonde_nn_model *model;
    const char *path;  /* of the module the layer is, or of the scope for a function */
    const char *outer; /* the scope to go back to */
    bool named;        /* a module, not a function */
    const char *kind;  /* "linear", for messages; NULL: not said */
} sonde__graph_layer;

/* false: the graph has an error; do nothing. */
bool sonde__graph_layer_begin(sonde_nn_model *model, sonde__graph_layer *layer,
                              const char *name);
void sonde__graph_layer_input(sonde__graph_layer *layer, sonde_nn_value value);
/* A parameter of the module; the known one if the module was called before. bound 0:
 * filled with constant. */
sonde_nn_value sonde__graph_layer_param(sonde__graph_layer *layer, const char *suffix,
                                        int rank, const int64_t *dim, sonde_role role,
                                        float bound, float constant);
/* Likewise, drawn as the fields of `drawn` say. */
sonde_nn_value sonde__graph_layer_drawn(sonde__graph_layer *layer, const char *suffix,
                                        int rank, const int64_t *dim, sonde_role role,
                                        sonde__graph_param drawn);
/* Likewise a buffer, float32 or int64, filled with constant. */
sonde_nn_value sonde__graph_layer_buffer(sonde__graph_layer *layer, const char *suffix,
                                         const sonde__op_shape *shape, float constant);
/* An op inside; its values get function names. */
sonde_nn_value sonde__graph_layer_op(sonde__graph_layer *layer,
                                     const sonde__op_kind *kind,
                                     const sonde__op_attrs *attrs,
                                     const sonde_nn_value *in, int count);
/* Leaves the module; result becomes its output. Returns result, or 0 after an error. */
sonde_nn_value sonde__graph_layer_end(sonde__graph_layer *layer, sonde_nn_value result);

/* Appends a tensor to the list of parameters, or with the role BUFFER of buffers; 0 on
 * failure. name is interned. A tensor that is given is not drawn: fill it in. */
sonde_nn_value sonde__graph_add_tensor(sonde_nn_model *model, const char *name,
                                       const sonde__op_shape *shape, sonde_role role,
                                       sonde__graph_param tensor);
/* "<path>_output_<k>" for the next k of a module, path interned; NULL: memory is out. */
const char *sonde__graph_output_name(sonde_nn_model *model, const char *path);

/* --- from rows ---------------------------------------------------------------------- */

/* Sets the values of the keys; false with the graph's error set: one of them cannot be. */
bool sonde__graph_read_settings(const sonde__graph_layer *layer,
                                const sonde__op_layer *row,
                                const sonde_nn_setting *settings, size_t count,
                                sonde__op_attrs *attrs);
/* Emits the ops of a row over operands: its inputs, 0 for optional ones that are not given,
 * and its tensors. SONDE__MAX_OPERANDS + SONDE__MAX_PARAMS places can be read; count are
 * filled. 0 after an error, which the graph remembers. */
sonde_nn_value sonde__graph_emit_row(sonde__graph_layer *layer,
                                     const sonde__op_layer *row, sonde__op_attrs *attrs,
                                     const sonde_nn_value *operands, int count);
/* The mean or the sum of the losses of elements, as attrs.reduction says. */
sonde_nn_value sonde__graph_reduce_loss(sonde__graph_layer *layer,
                                        const sonde__op_attrs *attrs,
                                        sonde_nn_value losses);

/* One op of one input, as a function without a name of its own. */
sonde_nn_value sonde__graph_function(sonde_nn_model *model, const sonde__op_kind *kind,
                                     const sonde__op_attrs *attrs, sonde_nn_value in);

/* The first values of buffer i. */
void sonde__graph_fill_buffer(const sonde_nn_model *model, size_t i);
/* Initial values of a parameter, from stream `stream` of a seed. */
void sonde__graph_param_draw(sonde__graph_param *param, uint64_t seed, size_t stream);

#endif

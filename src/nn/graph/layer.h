/*
 * layer.h - what every layer of the builder does: enter its module, name its inputs, make
 * its parameters, emit its ops, name its output.
 */
#ifndef SONDE_NN_GRAPH_LAYER_H
#define SONDE_NN_GRAPH_LAYER_H

#include "nn/graph/graph.h"

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

/* One op of one input, as a function without a name of its own. */
sonde_nn_value sonde__graph_function(sonde_nn_model *model, const sonde__op_kind *kind,
                                     const sonde__op_attrs *attrs, sonde_nn_value in);

/* Initial values of a parameter, from stream `stream` of a seed. */
void sonde__graph_param_draw(sonde__graph_param *param, uint64_t seed, size_t stream);

#endif

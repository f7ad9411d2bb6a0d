/*
 * onnx_value.h - values of the model and of its shadow that nodes of an ONNX graph make.
 */
#ifndef SONDE_NN_ONNX_ONNX_VALUE_H
#define SONDE_NN_ONNX_ONNX_VALUE_H

#include <sonde/nn/function.h>

#include "nn/onnx/onnx_node.h"

/* --- values --------------------------------------------------------------------------- */

/* Input i as a value: an initialiser becomes a parameter, or, where it is a constant, a
 * tensor filled with it, or a buffer. role: of the parameter. {0, 0} after an error. */
sonde__onnx_pair sonde__onnx_take(sonde__onnx_node *node, size_t i, sonde_role role);
/* The same for a vector of a layer of its own. Exporters write vectors of equal numbers
 * (new biases, weights of norms) once for all layers; here each gets its own, called
 * <module>.<suffix>. */
sonde__onnx_pair sonde__onnx_take_own(sonde__onnx_node *node, size_t i, sonde_role role,
                                      const char *suffix);
/* The float initialiser of input i in another arrangement: element k of the parameter is
 * element place(user, k) of the initialiser, or 0 for SIZE_MAX. */
typedef struct sonde__onnx_arrangement {
    const char *suffix; /* of the name, after the module's */
    sonde_role role;
    int rank;
    int64_t dim[SONDE_MAX_DIMS];
    size_t (*place)(const void *user, size_t k);
    const void *user;
} sonde__onnx_arrangement;
sonde__onnx_pair sonde__onnx_arrange(sonde__onnx_node *node, size_t i,
                                     const sonde__onnx_arrangement *arrangement);
/* Whether no tensor of the node's module has this suffix. */
bool sonde__onnx_is_free(const sonde__onnx_node *node, const char *suffix);
/* A buffer of one dtype, filled with a number, under the module's name. */
sonde__onnx_pair sonde__onnx_buffer(sonde__onnx_node *node, const char *suffix,
                                    sonde_dtype dtype, int rank, const int64_t *dim,
                                    double number);

/* Rank and dims of a value. */
int sonde__onnx_shape(const sonde__onnx_node *node, sonde__onnx_pair value,
                      sonde__onnx_number dim[SONDE_MAX_DIMS]);
sonde_dtype sonde__onnx_dtype(const sonde__onnx_node *node, sonde__onnx_pair value);

/* An op; {0, 0} after an error, or if an input is none. */
sonde__onnx_pair sonde__onnx_emit(sonde__onnx_node *node, const char *kind,
                                  const sonde__onnx_pair *in, size_t count,
                                  const sonde_nn_setting *settings, size_t setting_count);
/* One of one input, without settings. */
sonde__onnx_pair sonde__onnx_emit_one(sonde__onnx_node *node, const char *kind,
                                      sonde__onnx_pair in);
/* x in another dtype (float32, int64 or bool), or x itself. */
sonde__onnx_pair sonde__onnx_to(sonde__onnx_node *node, sonde__onnx_pair x,
                                sonde_dtype dtype);
/* x in other dims, of which those that depend on the batch are inferred. */
sonde__onnx_pair sonde__onnx_reshape(sonde__onnx_node *node, sonde__onnx_pair x, int rank,
                                     const sonde__onnx_number *dim);
sonde__onnx_pair sonde__onnx_permute(sonde__onnx_node *node, sonde__onnx_pair x, int rank,
                                     const int64_t *dims);
/* x, of `rank` dimensions, repeated along dimension `batch`, which is 1, to the batch. */
sonde__onnx_pair sonde__onnx_repeat(sonde__onnx_node *node, sonde__onnx_pair x, int rank,
                                    int batch);
/* A number as a tensor of one element. */
sonde__onnx_pair sonde__onnx_fill(sonde__onnx_node *node, double number);

/* Output `output` of the node is this value, which gets its name. False without a value. */
bool sonde__onnx_give(sonde__onnx_node *node, size_t output, sonde__onnx_pair value);

/* A setting of whole numbers. */
sonde_nn_setting sonde__onnx_setting(const char *key, const int64_t *values,
                                     size_t count);
#define SONDE__ONNX_SET(key_, value_)                                                    \
    {                                                                                    \
        .key = (key_), .values = {(double)(value_)}, .count = 1                          \
    }

#endif

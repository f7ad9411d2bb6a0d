/*
 * onnx.h - networks from ONNX files, and into them.
 *
 *     sonde_nn_model *model;
 *     sonde_nn_onnx_load("net.onnx", NULL, &model, NULL, &diag);
 *
 * The package sonde for Python translates the file (sonde.onnx, extra "onnx"): both
 * functions start python3, or $SONDE_PYTHON, and wait for it. docs/onnx.md lists the ops.
 *
 * A model from a file is one like any other: it can be trained, run, observed and saved. Its
 * values have the names of the file. Float32 initializers become parameters with the
 * file's values, which sonde_nn_model_initialize keeps; numbers that shapes are made of
 * become constants. Running statistics of BatchNormalization become buffers.
 *
 * One thread at a time for a model.
 */
#ifndef SONDE_NN_ONNX_H
#define SONDE_NN_ONNX_H

#include <sonde/nn/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sonde_nn_onnx_options {
    size_t size; /* sizeof(sonde_nn_onnx_options) */
    /* Of a sample of the first input, without the batch: for dimensions that the file
     * leaves open. rank 0: as the file says. */
    int rank;
    int64_t shape[SONDE_MAX_DIMS];
    bool one_output; /* only the first is an output of the model */
} sonde_nn_onnx_options;

/* What a file says besides the network. */
typedef struct sonde_nn_onnx_info {
    int64_t batch; /* the only one that the network can have; 0: any */
    int64_t opset;
    char last_op[32]; /* "LogSoftmax": what makes the first output */
} sonde_nn_onnx_info;

/*
 * A new model of a file of opset 13 to 21: its inputs and outputs in the file's order.
 * options and info may be NULL. External data is read from the file's folder.
 *
 * SONDE_ENOTFOUND: no file, no Python, or no package onnx. SONDE_EFORMAT: the file is
 * damaged or is no valid model. SONDE_EUNSUPPORTED: unsupported ops, all of them in one
 * message. SONDE_ESHAPE, SONDE_EDTYPE, SONDE_EINVAL: a tensor or a node that cannot be;
 * diag names the file and the node.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_onnx_load(const char *path,
                                                     const sonde_nn_onnx_options *options,
                                                     sonde_nn_model **out,
                                                     sonde_nn_onnx_info *info,
                                                     sonde_diag *diag);

/*
 * Writes a model for inference, with its weights, as ONNX of opset 21 with an open batch:
 * what its outputs, without the loss, are computed from. The file appears whole or not at
 * all. SONDE_EUNSUPPORTED: ops that cannot be written, all of them in one message.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_onnx_save(const sonde_nn_model *model,
                                                     const char *path, sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif

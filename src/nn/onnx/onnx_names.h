/*
 * onnx_names.h - names of nodes, modules and values of an ONNX graph.
 */
#ifndef SONDE_NN_ONNX_ONNX_NAMES_H
#define SONDE_NN_ONNX_ONNX_NAMES_H

#include "nn/onnx/onnx_state.h"

/* UTF-8 without control characters, not empty. */
bool sonde__onnx_name_valid(const char *name);

/* Whether an exporter made a name up ("val_3", "onnx::MatMul_12", "/Constant_output_0"), so
 * that it names no parameter of PyTorch's. */
bool sonde__onnx_name_generated(const char *name);

/*
 * The module that a node belongs to, "" for the root: the scope that torch's newer exporter
 * writes in metadata; else what stands before the last dot of its parameter's name
 * ("layer1.0.conv1.weight"); else the scope in the node's name
 * ("/layer1/layer1.0/conv1/Conv").
 */
void sonde__onnx_module_name(const SondeOnnx__NodeProto *node, const sonde__names *names,
                             const sonde__onnx_slot *slots, char *buf, size_t size);

/* A name for the model: without ___, which separates the parts of names of gradients. NULL
 * after an error. */
const char *sonde__onnx_name_keep(sonde__onnx_import *import, const char *name);
/* Gives a value of the model its name in the file; false after an error. */
bool sonde__onnx_name_value(sonde__onnx_import *import, sonde_nn_value value,
                            const char *name, sonde_role role);

#endif

/*
 * onnx_fuse.h - nodes that exporters take apart, put together again before the graph is
 * translated.
 */
#ifndef SONDE_NN_ONNX_ONNX_FUSE_H
#define SONDE_NN_ONNX_ONNX_FUSE_H

#include "nn/onnx/onnx_state.h"

/* Replaces nodes of import->nodes. False after an error. */
bool sonde__onnx_fuse(sonde__onnx_import *import);
void sonde__onnx_fuse_free(sonde__onnx_import *import);

#endif
